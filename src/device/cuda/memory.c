/*
 * The caching allocator of GPU memory. In: requests. Out: blocks of at least that size, 512-byte aligned, taken from
 * those that were released before, so that a program in its steady state never asks the driver. A released block may
 * still be in use by work on a stream: while streams other than the device's own have work in flight it waits as
 * pending, and becomes free when everything has come to rest. When the GPU is full, what is kept is given back first.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "device/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_STEP ((size_t)512)
#define LARGE_STEP ((size_t)2 << 20)

static size_t rounded(size_t size_bytes)
{
    size_t step = size_bytes < LARGE_STEP / 2 ? SMALL_STEP : LARGE_STEP;
    return (MAXIMUM(size_bytes, (size_t)1) + step - 1) / step * step;
}

/* Where an address is, or would be, in the list. */
static int place_of(const cuda_device *d, uint64_t address)
{
    int low = 0, high = d->block_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (d->blocks[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void insert(cuda_device *d, cuda_block block)
{
    if (d->block_count == d->block_capacity) {
        d->block_capacity = d->block_capacity ? 2 * d->block_capacity : 64;
        d->blocks = heap_resize(d->blocks, sizeof(cuda_block) * (size_t)d->block_capacity);
    }
    int at = place_of(d, block.address);
    memmove(&d->blocks[at + 1], &d->blocks[at], sizeof(cuda_block) * (size_t)(d->block_count - at));
    d->blocks[at] = block;
    d->block_count++;
}

/* The smallest free block that fits and is not mostly wasted. */
static cuda_block *find_free(cuda_device *d, size_t size)
{
    cuda_block *best = NULL;
    for (int i = 0; i < d->block_count; i++) {
        cuda_block *b = &d->blocks[i];
        if (b->state != BLOCK_FREE || b->size_bytes < size || b->size_bytes / 2 > size + LARGE_STEP) continue;
        if (!best || b->size_bytes < best->size_bytes) best = b;
    }
    return best;
}

void cuda_memory_settled(cuda_device *d)
{
    for (int i = 0; i < d->block_count; i++)
        if (d->blocks[i].state == BLOCK_PENDING) d->blocks[i].state = BLOCK_FREE;
}

static bool has_pending(const cuda_device *d, size_t size)
{
    for (int i = 0; i < d->block_count; i++)
        if (d->blocks[i].state == BLOCK_PENDING && d->blocks[i].size_bytes >= size) return true;
    return false;
}

/* Free blocks back to the driver. */
static void trim(cuda_device *d)
{
    int kept = 0;
    for (int i = 0; i < d->block_count; i++) {
        if (d->blocks[i].state == BLOCK_FREE) {
            d->api.cuMemFree_v2(d->blocks[i].address);
            d->memory.kept_bytes -= (int64_t)d->blocks[i].size_bytes;
            continue;
        }
        d->blocks[kept++] = d->blocks[i];
    }
    d->block_count = kept;
}

static bool others_busy(const cuda_device *d)
{
    for (const device_stream *s = d->streams; s; s = s->next)
        if (s != &d->own && s->pending) return true;
    return false;
}

static qn_status no_memory(cuda_device *d, size_t size, qn_error *error)
{
    size_t free_bytes = 0, total_bytes = 0;
    d->api.cuMemGetInfo_v2(&free_bytes, &total_bytes);
    return error_set(error, QN_NO_MEMORY,
                     "no memory on %s for %.3f GB: %.3f of its %.3f GB are free, %.3f GB are in use by this program's "
                     "arrays",
                     d->name, (double)size * 1e-9, (double)free_bytes * 1e-9, (double)total_bytes * 1e-9,
                     (double)d->memory.used_bytes * 1e-9);
}

/* A new block from the driver; when there is none, what is kept is given back and the driver asked again. */
static qn_status make(cuda_device *d, size_t size, qn_error *error)
{
    uint64_t address = 0;
    int mode;
    cuda_relax(d, &mode);
    int result = d->api.cuMemAlloc_v2(&address, size);
    if (result == CUDA_OUT_OF_MEMORY && d->block_count) {
        lock_give(&d->lock);
        cuda_settle(d);
        lock_take(&d->lock);
        trim(d);
        result = d->api.cuMemAlloc_v2(&address, size);
    }
    cuda_relaxed(d, mode);
    if (result == CUDA_OUT_OF_MEMORY) return no_memory(d, size, error);
    if (result) return cuda_failed(d, result, NULL, "allocating memory", error);
    d->memory.system_allocations++;
    d->memory.kept_bytes += (int64_t)size;
    insert(d, (cuda_block){.address = address, .size_bytes = size, .state = BLOCK_FREE});
    return QN_OK;
}

qn_status cuda_allocate(device *base, size_t size_bytes, void **out, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    *out = NULL;
    QN_TRY(cuda_enter(d, &pushed, error));
    size_t size = rounded(size_bytes);
    lock_take(&d->lock);
    cuda_block *b = find_free(d, size);
    if (!b && has_pending(d, size)) {
        lock_give(&d->lock);
        cuda_settle(d);
        lock_take(&d->lock);
        b = find_free(d, size);
    }
    qn_status status = QN_OK;
    if (!b) {
        status = make(d, size, error);
        b = find_free(d, size);
    }
    if (status == QN_OK) {
        CHECK(b);
        b->state = BLOCK_USED;
        d->memory.allocations++;
        d->memory.used_bytes += (int64_t)b->size_bytes;
        d->memory.kept_bytes -= (int64_t)b->size_bytes;
        d->memory.peak_bytes = MAXIMUM(d->memory.peak_bytes, d->memory.used_bytes);
        *out = (void *)(uintptr_t)b->address;
        record_instant(RECORD_ALLOCATE, record_device_memory, (int64_t)b->size_bytes, (int64_t)b->address);
    }
    lock_give(&d->lock);
    cuda_leave(d, pushed);
    return status;
}

void cuda_release(device *base, void *memory)
{
    cuda_device *d = (cuda_device *)base;
    if (!memory) return;
    lock_take(&d->lock);
    int at = place_of(d, (uint64_t)(uintptr_t)memory);
    CHECK(at < d->block_count && d->blocks[at].address == (uint64_t)(uintptr_t)memory);
    CHECK(d->blocks[at].state == BLOCK_USED);
    d->blocks[at].state = others_busy(d) ? BLOCK_PENDING : BLOCK_FREE;
    d->memory.used_bytes -= (int64_t)d->blocks[at].size_bytes;
    d->memory.kept_bytes += (int64_t)d->blocks[at].size_bytes;
    record_instant(RECORD_FREE, record_device_memory, (int64_t)d->blocks[at].size_bytes, (int64_t)(uintptr_t)memory);
    lock_give(&d->lock);
}

static void memory_trim(device *base)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    qn_error ignored;
    if (!d->opened || cuda_enter(d, &pushed, &ignored) != QN_OK) return;
    cuda_settle(d);
    lock_take(&d->lock);
    trim(d);
    lock_give(&d->lock);
    cuda_leave(d, pushed);
}

static bool owns(device *base, const void *address)
{
    cuda_device *d = (cuda_device *)base;
    int type = 0;
    bool pushed;
    qn_error ignored;
    if (!address || cuda_enter(d, &pushed, &ignored) != QN_OK) return false;
    int result = d->api.cuPointerGetAttribute(&type, CUDA_POINTER_MEMORY_TYPE, (uint64_t)(uintptr_t)address);
    cuda_leave(d, pushed);
    return !result && type == CUDA_MEMORY_DEVICE;
}

static qn_status settle_own(device *base, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    return d->opened ? cuda_wait(&d->own, error) : QN_OK;
}

static qn_status settle_all(device *base, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    if (!d->opened) return QN_OK;
    cuda_settle(d);
    return cuda_wait(&d->own, error);
}

static void statistics(device *base, memory_statistics *out)
{
    cuda_device *d = (cuda_device *)base;
    lock_take(&d->lock);
    *out = d->memory;
    lock_give(&d->lock);
    bool pushed;
    qn_error ignored;
    size_t free_bytes = 0, total_bytes = 0;
    if (!d->opened || cuda_enter(d, &pushed, &ignored) != QN_OK) return;
    if (!d->api.cuMemGetInfo_v2(&free_bytes, &total_bytes)) {
        out->free_bytes = (int64_t)free_bytes;
        out->total_bytes = (int64_t)total_bytes;
    }
    cuda_leave(d, pushed);
}

void cuda_memory_close(cuda_device *d)
{
    if (!d->lost)
        for (int i = 0; i < d->block_count; i++) d->api.cuMemFree_v2(d->blocks[i].address);
    heap_free(d->blocks);
    d->blocks = NULL;
    d->block_count = d->block_capacity = 0;
}

const driver_memory cuda_memory = {
    .allocate = cuda_allocate,
    .release = cuda_release,
    .trim = memory_trim,
    .owns = owns,
    .write = cuda_write,
    .read = cuda_read,
    .allocate_locked = cuda_allocate_locked,
    .settle_locked = cuda_settle_locked,
    .release_locked = cuda_release_locked,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .settle = settle_own,
    .settle_all = settle_all,
    .statistics = statistics,
};
