/*
 * Memory of tensors on the device of a tape. A device with memory of its own keeps what is released (its driver does);
 * for the host's memory the blocks are kept here, so that the results of a step lie where those of the last one lay and
 * the system need not find and clear pages again. A block is kept by its size, rounded up to an eighth of a power of
 * two; what is kept goes back to the system when a request fails, and when the tape goes.
 * SPDX-License-Identifier: MIT
 */
#include "run/evaluate/realize.h"

#include "base/record.h"

#include <stdlib.h>
#include <string.h>

typedef struct block {
    block_pool *pool;
    struct block *next; /* while it is kept */
    void *data;
    size_t size_bytes;
} block;

struct block_pool {
    pthread_mutex_t lock; /* buffers may be released by any thread */
    block *kept;          /* smallest first */
    int in_use;
    bool closed; /* the tape is gone: the last block takes the pool with it */
};

block_pool *block_pool_new(void)
{
    block_pool *p = heap_new(sizeof(*p));
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

static void destroy(block *b)
{
    memory_free(b->data);
    heap_free(b);
}

static void drop_kept(block_pool *p)
{
    while (p->kept) {
        block *b = p->kept;
        p->kept = b->next;
        destroy(b);
    }
}

static void pool_destroy(block_pool *p)
{
    pthread_mutex_destroy(&p->lock);
    heap_free(p);
}

void block_pool_free(block_pool *p)
{
    if (!p) return;
    lock_take(&p->lock);
    drop_kept(p);
    p->closed = true;
    bool last = !p->in_use;
    lock_give(&p->lock);
    if (last) pool_destroy(p);
}

static size_t rounded(size_t size_bytes)
{
    size_t step = 64;
    while (step * 8 < size_bytes) step *= 2;
    return (MAXIMUM(size_bytes, (size_t)1) + step - 1) / step * step;
}

/* A qn_deleter. */
static void give_back(void *user, void *data)
{
    block *b = user;
    block_pool *p = b->pool;
    (void)data;
    record_instant(RECORD_FREE, record_host_memory, (int64_t)b->size_bytes, (int64_t)(uintptr_t)b->data);
    lock_take(&p->lock);
    p->in_use--;
    bool closed = p->closed, last = closed && !p->in_use;
    if (closed) {
        destroy(b);
    } else {
        block **at = &p->kept;
        while (*at && (*at)->size_bytes < b->size_bytes) at = &(*at)->next;
        b->next = *at;
        *at = b;
    }
    lock_give(&p->lock);
    if (last) pool_destroy(p);
}

static block *take(block_pool *p, size_t size_bytes)
{
    size_t size = rounded(size_bytes);
    lock_take(&p->lock);
    block **at = &p->kept;
    while (*at && (*at)->size_bytes < size) at = &(*at)->next;
    block *b = *at;
    if (b && b->size_bytes <= size + size / 4) {
        *at = b->next;
    } else {
        b = heap_new(sizeof(*b));
        b->pool = p;
        b->size_bytes = size;
        b->data = memory_allocate(size);
        if (!b->data) {
            drop_kept(p);
            b->data = memory_allocate(size);
        }
        if (!b->data) {
            heap_free(b);
            b = NULL;
        }
    }
    if (b) p->in_use++;
    lock_give(&p->lock);
    if (b) record_instant(RECORD_ALLOCATE, record_host_memory, (int64_t)b->size_bytes, (int64_t)(uintptr_t)b->data);
    return b;
}

static qn_status host_buffer(qn_tape *tape, size_t size_bytes, qn_buffer **out, qn_error *error)
{
    block *b = take(tape->realizer->blocks, size_bytes);
    if (!b) return error_set(error, QN_NO_MEMORY, "no memory for a tensor of %zu bytes", size_bytes);
    qn_status status = qn_buffer_wrap(tape->context, b->data, size_bytes, give_back, b, out, error);
    if (status != QN_OK) give_back(b, NULL);
    return status;
}

static qn_status device_buffer(qn_tape *tape, size_t size_bytes, qn_buffer **out, qn_error *error)
{
    qn_error inner;
    qn_status status = buffer_of_device(tape->context, tape->realizer->slot, size_bytes, out, &inner);
    return status == QN_OK ? QN_OK : error_set(error, status, "a tensor of %zu bytes: %s", size_bytes, inner.message);
}

qn_status tape_storage(qn_tape *tape, int64_t size_bytes, storage **out, qn_error *error)
{
    const realizer *r = realize_open(tape);
    qn_buffer *buffer = NULL;
    size_t size = (size_t)MAXIMUM(size_bytes, 1); /* an array always has an address */
    QN_TRY(tape->context->slots[r->slot].driver->memory ? device_buffer(tape, size, &buffer, error)
                                                        : host_buffer(tape, size, &buffer, error));
    *out = storage_of_buffer(buffer);
    return QN_OK;
}

qn_status tape_storage_write(qn_tape *tape, storage *s, int64_t offset_bytes, const void *host, int64_t size_bytes,
                             qn_error *error)
{
    const device_slot *slot = &tape->context->slots[realize_open(tape)->slot];
    char *to = storage_data(s) + offset_bytes;
    if (!size_bytes) return QN_OK;
    if (slot->driver->memory)
        return slot->driver->memory->write(slot->device, NULL, to, host, (size_t)size_bytes, error);
    memcpy(to, host, (size_t)size_bytes);
    return QN_OK;
}

const tape_calls tape_of_devices = {.allocate = tape_storage,
                                    .write = tape_storage_write,
                                    .write_tensor = qn_tensor_write,
                                    .retain = qn_buffer_retain,
                                    .release = qn_buffer_release};

storage *storage_of_buffer(qn_buffer *buffer)
{
    return storage_new(buffer, buffer ? (int64_t)qn_buffer_size_bytes(buffer) : 0, &tape_of_devices);
}

char *storage_data(const storage *s)
{
    return s->buffer->data;
}

qn_status realize_workspace(qn_tape *tape, int64_t size_bytes, storage **kept, qn_error *error)
{
    if (*kept && (*kept)->size_bytes >= size_bytes) return QN_OK;
    storage_release(*kept); /* first: there may be no room for both */
    *kept = NULL;
    return tape_storage(tape, MAXIMUM(size_bytes, 1), kept, error);
}
