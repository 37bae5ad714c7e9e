/*
 * Buffers: reference-counted memory, owned or the caller's. The count is atomic; the last release frees owned memory or
 * calls the deleter.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"

#include <stdlib.h>
#include <string.h>

static qn_status make(void *data, size_t size_bytes, qn_buffer **out, qn_error *error)
{
    qn_buffer *b = calloc(1, sizeof(*b));
    if (!b) return error_set(error, QN_NO_MEMORY, "no memory for a buffer");
    b->references = 1;
    b->data = data;
    b->size_bytes = size_bytes;
    *out = b;
    return QN_OK;
}

qn_status qn_buffer_new(qn_context *context, size_t size_bytes, qn_buffer **buffer, qn_error *error)
{
    if (!context || !buffer) return error_set(error, QN_BAD_CALL, "qn_buffer_new: an argument is NULL");
    *buffer = NULL;
    void *data = memory_allocate(size_bytes);
    if (!data) return error_set(error, QN_NO_MEMORY, "no memory for a buffer of %zu bytes", size_bytes);
    memset(data, 0, size_bytes);
    qn_status status = make(data, size_bytes, buffer, error);
    if (*buffer)
        (*buffer)->owned = true;
    else
        memory_free(data);
    return status;
}

qn_status qn_buffer_wrap(qn_context *context, void *data, size_t size_bytes, qn_deleter *deleter, void *user,
                         qn_buffer **buffer, qn_error *error)
{
    if (!context || !buffer) return error_set(error, QN_BAD_CALL, "qn_buffer_wrap: an argument is NULL");
    *buffer = NULL;
    if (!data && size_bytes) return error_set(error, QN_BAD_CALL, "qn_buffer_wrap: %zu bytes at NULL", size_bytes);
    QN_TRY(make(data, size_bytes, buffer, error));
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
    if (buffer->owned) memory_free(buffer->data);
    if (buffer->deleter) buffer->deleter(buffer->user, buffer->data);
    free(buffer);
}

void *qn_buffer_data(qn_buffer *buffer)
{
    return buffer->data;
}

size_t qn_buffer_size_bytes(const qn_buffer *buffer)
{
    return buffer->size_bytes;
}
