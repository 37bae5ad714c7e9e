/*
 * Safetensors files, writing. In: names, types, shapes, then the data of one tensor after the other, so that a model
 * larger than the host's memory can be saved. Out: a file that is whole or not there (base/aside.c). Wide types come
 * first, so that every tensor is aligned to its elements.
 * SPDX-License-Identifier: MIT
 */
#include "data/safetensors.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static void order_of(const qn_safetensor *tensors, int count, int *order)
{
    int placed = 0;
    for (int size = 8; size > 0; size /= 2)
        for (int i = 0; i < count; i++)
            if (qn_dtype_size_bytes(tensors[i].type) == (size_t)size) order[placed++] = i;
}

static qn_status check_names(const char *path, const qn_safetensor *tensors, int count, qn_error *error)
{
    arena *scratch = arena_new();
    map *seen = map_new(scratch);
    qn_status status = QN_OK;
    for (int i = 0; i < count && !status; i++) {
        size_t size;
        const qn_safetensor *t = &tensors[i];
        bool known = (unsigned)t->type < SAFETENSORS_TYPES && t->rank >= 0 && t->rank <= QN_TENSOR_RANK;
        for (int k = 0; known && k < t->rank; k++) known = t->extents[k] >= 0;
        if (!t->name || !strcmp(t->name, "__metadata__"))
            status = error_set(error, QN_BAD_CALL, "%s: tensor %d has no name that can be written", path, i);
        else if (map_get(seen, t->name))
            status = error_set(error, QN_BAD_CALL, "%s: two tensors are named `%s`", path, t->name);
        else if (!known || !safetensors_size(t, &size) || size != t->size_bytes)
            status = error_set(error, QN_BAD_CALL, "%s: tensor `%s`: %zu bytes do not fit its type and shape", path,
                               t->name, t->size_bytes);
        else
            map_set(seen, t->name, (void *)t);
    }
    arena_free(scratch);
    return status;
}

static void add_header(text *out, const qn_safetensor *tensors, int count, const int *order,
                       const char *const *metadata)
{
    uint64_t at = 0;
    text_add(out, "{");
    if (metadata && *metadata) {
        text_add(out, "\"__metadata__\":{");
        for (int i = 0; metadata[i] && metadata[i + 1]; i += 2) {
            if (i) text_add(out, ",");
            json_add_string(out, metadata[i]);
            text_add(out, ":");
            json_add_string(out, metadata[i + 1]);
        }
        text_add(out, count ? "}," : "}");
    }
    for (int i = 0; i < count; i++) {
        const qn_safetensor *t = &tensors[order[i]];
        if (i) text_add(out, ",");
        json_add_string(out, t->name);
        text_print(out, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_types[t->type]);
        for (int k = 0; k < t->rank; k++) text_print(out, "%s%lld", k ? "," : "", (long long)t->extents[k]);
        text_print(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                   (unsigned long long)(at + t->size_bytes));
        at += t->size_bytes;
    }
    text_add(out, "}");
    while (out->length % 8) text_add(out, " ");
}

qn_status safetensors_begin(const char *path, const qn_safetensor *tensors, int count, const char *const *metadata,
                            file_aside **out, int *order, qn_error *error)
{
    *out = NULL;
    QN_TRY(check_names(path, tensors, count, error));
    order_of(tensors, count, order);
    text header = {0};
    add_header(&header, tensors, count, order, metadata);
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header.length >> (8 * i));
    file_aside *file;
    qn_status status = file_begin(path, &file, error);
    if (!status) status = file_append(file, length, sizeof(length), error);
    if (!status) status = file_append(file, header.data, header.length, error);
    text_free(&header);
    if (!status)
        *out = file;
    else if (file)
        status = file_finish(file, status, error);
    return status;
}

qn_status qn_safetensors_write(const char *path, const qn_safetensor *tensors, int count, const char *const *metadata,
                               qn_error *error)
{
    HEAP_ENTER(error);
    if (!path || count < 0 || (count && !tensors))
        return error_set(error, QN_BAD_CALL, "qn_safetensors_write: an argument is NULL");
    for (int i = 0; i < count; i++)
        if (tensors[i].size_bytes && !tensors[i].data)
            return error_set(error, QN_BAD_CALL, "qn_safetensors_write: the data of tensor %d is NULL", i);
    int *order = heap_new(sizeof(int) * (size_t)(count + 1));
    file_aside *file;
    qn_status status = safetensors_begin(path, tensors, count, metadata, &file, order, error);
    for (int i = 0; i < count && !status; i++)
        status = file_append(file, tensors[order[i]].data, tensors[order[i]].size_bytes, error);
    if (file) status = file_finish(file, status, error);
    heap_free(order);
    return status;
}
