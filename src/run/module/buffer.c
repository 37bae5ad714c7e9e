/*
 * Buffers: reference-counted memory of the host or of a device, owned or the caller's. The count is atomic; the last
 * release frees owned memory or calls the deleter.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "run/run.h"

#include <quern/device.h>
#include <stdlib.h>
#include <string.h>

static qn_status make(qn_context *context, void *data, size_t size_bytes, qn_buffer **out, qn_error *error)
{
    qn_buffer *b = malloc(sizeof(*b));
    if (!b) return error_set(error, QN_NO_MEMORY, "no memory for a buffer");
    *b = (qn_buffer){.references = 1, .context = context, .slot = -1, .data = data, .size_bytes = size_bytes};
    *out = b;
    return QN_OK;
}

qn_status qn_buffer_new(qn_context *context, size_t size_bytes, qn_buffer **buffer, qn_error *error)
{
    HEAP_ENTER(error);
    if (!context || !buffer) return error_set(error, QN_BAD_CALL, "qn_buffer_new: an argument is NULL");
    *buffer = NULL;
    void *data = memory_allocate(size_bytes);
    if (!data) return error_set(error, QN_NO_MEMORY, "no memory for a buffer of %zu bytes", size_bytes);
    memset(data, 0, size_bytes);
    qn_status status = make(context, data, size_bytes, buffer, error);
    record_instant(RECORD_ALLOCATE, record_host_memory, (int64_t)size_bytes, (int64_t)(uintptr_t)data);
    if (*buffer)
        (*buffer)->owned = true;
    else
        memory_free(data);
    return status;
}

qn_status qn_buffer_wrap(qn_context *context, void *data, size_t size_bytes, qn_deleter *deleter, void *user,
                         qn_buffer **buffer, qn_error *error)
{
    HEAP_ENTER(error);
    if (!context || !buffer) return error_set(error, QN_BAD_CALL, "qn_buffer_wrap: an argument is NULL");
    *buffer = NULL;
    if (!data && size_bytes) return error_set(error, QN_BAD_CALL, "qn_buffer_wrap: %zu bytes at NULL", size_bytes);
    QN_TRY(make(context, data, size_bytes, buffer, error));
    CHECK(*buffer);
    (*buffer)->deleter = deleter;
    (*buffer)->user = user;
    return QN_OK;
}

qn_buffer *qn_buffer_retain(qn_buffer *buffer)
{
    if (buffer) buffer->references++;
    return buffer;
}

void qn_buffer_release(qn_buffer *buffer)
{
    if (!buffer || --buffer->references > 0) return;
    if (buffer->owned && buffer->slot >= 0) {
        const device_slot *s = &buffer->context->slots[buffer->slot];
        s->driver->memory->release(s->device, buffer->data);
    } else if (buffer->owned) {
        record_instant(RECORD_FREE, record_host_memory, (int64_t)buffer->size_bytes, (int64_t)(uintptr_t)buffer->data);
        memory_free(buffer->data);
    }
    if (buffer->deleter) buffer->deleter(buffer->user, buffer->data);
    heap_free(buffer);
}

void *qn_buffer_data(qn_buffer *buffer)
{
    return buffer ? buffer->data : NULL;
}

size_t qn_buffer_size_bytes(const qn_buffer *buffer)
{
    return buffer ? buffer->size_bytes : 0;
}

/* ---- on a device ---- */

qn_status buffer_of_device(qn_context *context, int slot, size_t size_bytes, qn_buffer **buffer, qn_error *error)
{
    const device_slot *s = &context->slots[slot];
    void *data = NULL;
    QN_TRY(s->driver->memory->allocate(s->device, size_bytes, &data, error));
    qn_status status = make(context, data, size_bytes, buffer, error);
    if (status != QN_OK) {
        s->driver->memory->release(s->device, data);
        return status;
    }
    CHECK(*buffer);
    (*buffer)->slot = slot;
    (*buffer)->owned = true;
    return QN_OK;
}

qn_status qn_buffer_new_on(qn_context *context, const char *device, size_t size_bytes, qn_buffer **buffer,
                           qn_error *error)
{
    HEAP_ENTER(error);
    int slot;
    if (!context || !buffer) return error_set(error, QN_BAD_CALL, "qn_buffer_new_on: an argument is NULL");
    *buffer = NULL;
    QN_TRY(context_slot(context, device, &slot, error));
    const device_slot *s = &context->slots[slot];
    if (!s->driver->memory) return qn_buffer_new(context, size_bytes, buffer, error);
    qn_buffer *b = NULL;
    QN_TRY(buffer_of_device(context, slot, size_bytes, &b, error));
    array_view whole = {.data = b->data, .elem = DT_U8, .rank = 1, .extents = {(int64_t)size_bytes}, .strides = {1}};
    qn_status status = s->driver->memory->fill(s->device, NULL, &whole, &(uint64_t){0}, error);
    /* Other streams do not wait for the device's own: the zeros are there before anybody can use it. */
    if (status == QN_OK) status = s->driver->memory->settle(s->device, error);
    if (status == QN_OK)
        *buffer = b;
    else
        qn_buffer_release(b);
    return status;
}

static void release_locked(void *user, void *data)
{
    const device_slot *s = user;
    s->driver->memory->release_locked(s->device, data);
}

qn_status buffer_new_locked(qn_context *context, const char *device, size_t size_bytes, qn_buffer **buffer,
                            qn_error *error)
{
    int slot;
    void *data = NULL;
    qn_error unused;
    QN_TRY(context_slot(context, device, &slot, error));
    device_slot *s = &context->slots[slot];
    const driver_memory *memory = s->driver->memory;
    if (!memory || !memory->allocate_locked || memory->allocate_locked(s->device, size_bytes, &data, &unused) != QN_OK)
        return qn_buffer_new(context, size_bytes, buffer, error);
    memset(data, 0, size_bytes);
    qn_status status = qn_buffer_wrap(context, data, size_bytes, release_locked, s, buffer, error);
    if (status != QN_OK) memory->release_locked(s->device, data);
    return status;
}

void buffer_settle(const qn_buffer *buffer)
{
    if (buffer->deleter != release_locked) return;
    const device_slot *s = buffer->user;
    s->driver->memory->settle_locked(s->device, buffer->data);
}

qn_status qn_buffer_wrap_on(qn_context *context, const char *device, void *data, size_t size_bytes, qn_deleter *deleter,
                            void *user, qn_buffer **buffer, qn_error *error)
{
    HEAP_ENTER(error);
    int slot;
    if (!context || !buffer) return error_set(error, QN_BAD_CALL, "qn_buffer_wrap_on: an argument is NULL");
    QN_TRY(context_slot(context, device, &slot, error));
    QN_TRY(qn_buffer_wrap(context, data, size_bytes, deleter, user, buffer, error));
    CHECK(*buffer);
    if (context->slots[slot].driver->memory) (*buffer)->slot = slot;
    return QN_OK;
}

const char *qn_buffer_device(const qn_buffer *buffer)
{
    return buffer && buffer->slot >= 0 ? buffer->context->slots[buffer->slot].name : "";
}

static qn_status check_part(const qn_buffer *buffer, size_t offset_bytes, const void *data, size_t size_bytes,
                            const char *function, qn_error *error)
{
    if (!buffer || (!data && size_bytes)) return error_set(error, QN_BAD_CALL, "%s: an argument is NULL", function);
    if (offset_bytes <= buffer->size_bytes && size_bytes <= buffer->size_bytes - offset_bytes) return QN_OK;
    return error_set(error, QN_BAD_CALL, "%s: bytes %zu to %zu of a buffer of %zu", function, offset_bytes,
                     offset_bytes + size_bytes, buffer->size_bytes);
}

/* The driver's stream, which must be of the buffer's device. */
static qn_status stream_for(const qn_buffer *buffer, const qn_stream *stream, device_stream **out, qn_error *error)
{
    int slot = buffer->slot;
    *out = stream ? stream_own(stream, &slot) : NULL;
    if (buffer->slot < 0 || slot == buffer->slot) return QN_OK;
    return error_set(error, QN_BAD_CALL, "the buffer is on %s and the stream of %s", qn_buffer_device(buffer),
                     buffer->context->slots[slot].name);
}

qn_status qn_buffer_write(qn_buffer *buffer, size_t offset_bytes, const void *data, size_t size_bytes,
                          qn_stream *stream, qn_error *error)
{
    HEAP_ENTER(error);
    device_stream *own;
    QN_TRY(check_part(buffer, offset_bytes, data, size_bytes, "qn_buffer_write", error));
    QN_TRY(stream_for(buffer, stream, &own, error));
    char *to = (char *)buffer->data + offset_bytes;
    if (buffer->slot < 0) {
        if (size_bytes) memcpy(to, data, size_bytes);
        return QN_OK;
    }
    const device_slot *s = &buffer->context->slots[buffer->slot];
    QN_TRY(s->driver->memory->write(s->device, own, to, data, size_bytes, error));
    return own ? QN_OK : s->driver->memory->settle(s->device, error);
}

qn_status qn_buffer_read(qn_buffer *buffer, size_t offset_bytes, void *data, size_t size_bytes, qn_stream *stream,
                         qn_error *error)
{
    HEAP_ENTER(error);
    device_stream *own;
    QN_TRY(check_part(buffer, offset_bytes, data, size_bytes, "qn_buffer_read", error));
    QN_TRY(stream_for(buffer, stream, &own, error));
    const char *from = (const char *)buffer->data + offset_bytes;
    if (buffer->slot < 0) {
        if (size_bytes) memcpy(data, from, size_bytes);
        return QN_OK;
    }
    const device_slot *s = &buffer->context->slots[buffer->slot];
    return s->driver->memory->read(s->device, own, data, from, size_bytes, error);
}

qn_status qn_buffer_copy(qn_buffer *to, size_t to_offset_bytes, qn_buffer *from, size_t from_offset_bytes,
                         size_t size_bytes, qn_stream *stream, qn_error *error)
{
    HEAP_ENTER(error);
    device_stream *own;
    QN_TRY(check_part(to, to_offset_bytes, to, size_bytes, "qn_buffer_copy", error));
    QN_TRY(check_part(from, from_offset_bytes, from, size_bytes, "qn_buffer_copy", error));
    if (to->slot != from->slot)
        return error_set(error, QN_BAD_CALL, "qn_buffer_copy: the buffers are on different devices; read and write");
    QN_TRY(stream_for(to, stream, &own, error));
    char *target = (char *)to->data + to_offset_bytes, *source = (char *)from->data + from_offset_bytes;
    if (to->slot < 0) {
        memmove(target, source, size_bytes);
        return QN_OK;
    }
    const device_slot *s = &to->context->slots[to->slot];
    return s->driver->memory->copy(s->device, own, target, source, size_bytes, error);
}
