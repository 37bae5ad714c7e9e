/*
 * Moving bytes between host and GPU. Large copies go through pinned chunks in turn, so that the
 * host's copy of one overlaps the GPU's copy of another; small ones the driver takes as they are. `write` returns when
 * the host's memory may change, `read` when it is filled. From page-locked memory that was asked for here (batches of a
 * loader) the GPU copies by itself: an event tells when it has done so.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "device/cuda/trace.h"

#include <stdlib.h>
#include <string.h>

#define STAGE_BYTES ((size_t)4 << 20)
#define SMALL_BYTES ((size_t)64 << 10) /* not worth a chunk */

static void *stream_of(cuda_device *d, const device_stream *s)
{
    return s ? s->handle : d->own.handle;
}

/* The chunks; the copy lock is held. False: no pinned memory, the driver's own way must do. */
static bool stages_ready(cuda_device *d)
{
    for (int i = 0; i < CUDA_STAGES && !d->stage[i]; i++) {
        void *memory = NULL;
        if (d->api.cuMemHostAlloc(&memory, STAGE_BYTES, CUDA_HOST_PORTABLE)) return false;
        if (d->api.cuEventCreate(&d->stage_event[i], CUDA_EVENT_NO_TIMING)) {
            d->api.cuMemFreeHost(memory);
            return false;
        }
        d->stage[i] = memory;
    }
    return d->stage[CUDA_STAGES - 1] != NULL;
}

/* ---- page-locked memory of others ---- */

typedef struct cuda_locked {
    struct cuda_locked *next;
    char *memory;
    size_t size_bytes;
    void *event; /* behind the last copy from it */
} cuda_locked;

/* The block that an address lies in, or NULL; the copy lock is held. */
static cuda_locked *find_locked(const cuda_device *d, const void *address)
{
    cuda_locked *b = d->locked;
    while (b && !((const char *)address >= b->memory && (const char *)address < b->memory + b->size_bytes)) b = b->next;
    return b;
}

qn_status cuda_allocate_locked(device *base, size_t size_bytes, void **out, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    cuda_locked *b = heap_new(sizeof(*b));
    void *memory = NULL;
    bool pushed;
    *out = NULL;
    qn_status status = cuda_enter(d, &pushed, error);
    if (status == QN_OK) {
        int result = d->api.cuMemHostAlloc(&memory, MAXIMUM(size_bytes, 1), CUDA_HOST_PORTABLE);
        if (!result) result = d->api.cuEventCreate(&b->event, CUDA_EVENT_NO_TIMING);
        if (result && memory) d->api.cuMemFreeHost(memory);
        if (result) status = error_set(error, QN_NO_MEMORY, "no page-locked memory of %zu bytes", size_bytes);
        cuda_leave(d, pushed);
    }
    if (status != QN_OK) {
        heap_free(b);
        return status;
    }
    b->memory = *out = memory;
    b->size_bytes = MAXIMUM(size_bytes, 1);
    lock_take(&d->copy_lock);
    b->next = d->locked;
    d->locked = b;
    lock_give(&d->copy_lock);
    return QN_OK;
}

void cuda_settle_locked(device *base, void *memory)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    qn_error unused;
    lock_take(&d->copy_lock);
    const cuda_locked *b = find_locked(d, memory);
    lock_give(&d->copy_lock);
    if (!b || d->lost || cuda_enter(d, &pushed, &unused) != QN_OK) return;
    d->api.cuEventSynchronize(b->event); /* what fails shows where the work is waited for */
    cuda_leave(d, pushed);
}

void cuda_release_locked(device *base, void *memory)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    qn_error unused;
    cuda_settle_locked(base, memory);
    lock_take(&d->copy_lock);
    cuda_locked **at = &d->locked, *b = find_locked(d, memory);
    while (*at && *at != b) at = &(*at)->next;
    if (b) *at = b->next;
    lock_give(&d->copy_lock);
    if (b && !d->lost && cuda_enter(d, &pushed, &unused) == QN_OK) {
        d->api.cuEventDestroy_v2(b->event);
        d->api.cuMemFreeHost(b->memory);
        cuda_leave(d, pushed);
    }
    heap_free(b);
}

/* False: it is memory of another kind. */
static bool write_locked(cuda_device *d, void *stream, uint64_t to, const void *from, size_t size, int *result)
{
    lock_take(&d->copy_lock);
    const cuda_locked *b = find_locked(d, from);
    if (b) *result = d->api.cuMemcpyHtoDAsync_v2(to, from, size, stream);
    if (b && !*result) *result = d->api.cuEventRecord(b->event, stream);
    lock_give(&d->copy_lock);
    return b != NULL;
}

static qn_status write_staged(cuda_device *d, void *stream, uint64_t to, const char *from, size_t size, qn_error *error)
{
    int turn = 0;
    for (size_t done = 0; done < size; turn = (turn + 1) % CUDA_STAGES) {
        size_t part = MINIMUM(size - done, STAGE_BYTES);
        CUDA_TRY(d, d->api.cuEventSynchronize(d->stage_event[turn]), "copying to the device");
        memcpy(d->stage[turn], from + done, part);
        CUDA_TRY(d, d->api.cuMemcpyHtoDAsync_v2(to + done, d->stage[turn], part, stream), "copying to the device");
        CUDA_TRY(d, d->api.cuEventRecord(d->stage_event[turn], stream), "copying to the device");
        done += part;
    }
    return QN_OK;
}

/* Chunk n is asked for before chunk n - 1 is taken out. */
static qn_status read_staged(cuda_device *d, void *stream, char *to, uint64_t from, size_t size, qn_error *error)
{
    size_t asked = 0, taken = 0;
    for (int turn = 0; taken < size;) {
        while (asked < size && asked - taken < CUDA_STAGES * STAGE_BYTES) {
            int chunk = (int)(asked / STAGE_BYTES % CUDA_STAGES);
            size_t part = MINIMUM(size - asked, STAGE_BYTES);
            CUDA_TRY(d, d->api.cuEventSynchronize(d->stage_event[chunk]), "copying from the device");
            CUDA_TRY(d, d->api.cuMemcpyDtoHAsync_v2(d->stage[chunk], from + asked, part, stream),
                     "copying from the device");
            CUDA_TRY(d, d->api.cuEventRecord(d->stage_event[chunk], stream), "copying from the device");
            asked += part;
        }
        size_t part = MINIMUM(size - taken, STAGE_BYTES);
        CUDA_TRY(d, d->api.cuEventSynchronize(d->stage_event[turn]), "copying from the device");
        memcpy(to + taken, d->stage[turn], part);
        taken += part;
        turn = (turn + 1) % CUDA_STAGES;
    }
    return QN_OK;
}

static qn_status check_capture(const device_stream *s, qn_error *error)
{
    if (!s || !s->capturing) return QN_OK;
    return error_set(error, QN_BAD_CALL,
                     "a copy between host and device cannot be recorded in a graph; copy before the recording begins");
}

qn_status cuda_write(device *base, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    if (!size_bytes) return QN_OK;
    QN_TRY(check_capture(s, error));
    QN_TRY(cuda_enter(d, &pushed, error));
    uint64_t address = (uint64_t)(uintptr_t)to;
    qn_status status = QN_OK;
    bool staged = false;
    int64_t begun = record_begin();
    uint64_t identity = record_enter("copy to the device");
    int64_t span = cuda_trace_begin(d, s ? s : &d->own);
    int locked = 0;
    if (write_locked(d, stream_of(d, s), address, from, size_bytes, &locked)) {
        staged = true;
        if (locked) status = cuda_failed(d, locked, s ? s : &d->own, "copying to the device", error);
    } else if (size_bytes > SMALL_BYTES) {
        lock_take(&d->copy_lock);
        staged = stages_ready(d);
        if (staged) status = write_staged(d, stream_of(d, s), address, from, size_bytes, error);
        lock_give(&d->copy_lock);
    }
    if (!staged) {
        int result = d->api.cuMemcpyHtoDAsync_v2(address, from, size_bytes, stream_of(d, s));
        /* Pageable memory is free again here, except where the driver took it as pinned: the caller's. */
        if (!result && size_bytes > SMALL_BYTES) result = d->api.cuStreamSynchronize(stream_of(d, s));
        if (result) status = cuda_failed(d, result, s ? s : &d->own, "copying to the device", error);
    }
    cuda_trace_end(d, s ? s : &d->own, span);
    record_leave(identity);
    record_end(begun, RECORD_COPY, "copy to the device", NULL, identity, (int64_t)size_bytes, 0);
    cuda_leave(d, pushed);
    return status;
}

qn_status cuda_read(device *base, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    if (!size_bytes) return QN_OK;
    QN_TRY(check_capture(s, error));
    QN_TRY(cuda_enter(d, &pushed, error));
    uint64_t address = (uint64_t)(uintptr_t)from;
    qn_status status = QN_OK;
    bool staged = false;
    int64_t begun = record_begin();
    uint64_t identity = record_enter("copy from the device");
    int64_t span = cuda_trace_begin(d, s ? s : &d->own);
    if (size_bytes > SMALL_BYTES) {
        lock_take(&d->copy_lock);
        staged = stages_ready(d);
        if (staged) status = read_staged(d, stream_of(d, s), to, address, size_bytes, error);
        lock_give(&d->copy_lock);
    }
    if (!staged) {
        int result = d->api.cuMemcpyDtoHAsync_v2(to, address, size_bytes, stream_of(d, s));
        if (!result) result = d->api.cuStreamSynchronize(stream_of(d, s));
        if (result) status = cuda_failed(d, result, s ? s : &d->own, "copying from the device", error);
    }
    cuda_trace_end(d, s ? s : &d->own, span);
    record_leave(identity);
    record_end(begun, RECORD_COPY, "copy from the device", NULL, identity, (int64_t)size_bytes, 1);
    cuda_leave(d, pushed);
    return status;
}

qn_status cuda_copy(device *base, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    if (!size_bytes) return QN_OK;
    QN_TRY(cuda_enter(d, &pushed, error));
    int64_t begun = record_begin();
    uint64_t identity = record_enter("copy on the device");
    int64_t span = cuda_trace_begin(d, s ? s : &d->own);
    int result =
        d->api.cuMemcpyDtoDAsync_v2((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, size_bytes, stream_of(d, s));
    cuda_trace_end(d, s ? s : &d->own, span);
    record_leave(identity);
    record_end(begun, RECORD_COPY, "copy on the device", NULL, identity, (int64_t)size_bytes, 2);
    qn_status status = result ? cuda_failed(d, result, NULL, "copying on the device", error) : QN_OK;
    cuda_leave(d, pushed);
    return status;
}

void cuda_copy_close(cuda_device *d)
{
    for (int i = 0; i < CUDA_STAGES && d->stage[i] && !d->lost; i++) {
        d->api.cuEventDestroy_v2(d->stage_event[i]);
        d->api.cuMemFreeHost(d->stage[i]);
    }
}
