/*
 * Tensors of memory that is there: buffers of a device, memory of the host that stays the host's, .npy files. In: a tape.
 * Out: leaves, with the error in the tape's graph where something does not fit.
 * SPDX-License-Identifier: MIT
 */
#include "run/evaluate/realize.h"
#include "target/target.h"
#include "tensor/ops.h"

#include <quern/workbench.h>
#include <string.h>

static int64_t size_of(dtype elem, const shape *s)
{
    return shape_count(s) * dtypes[elem].size_bytes;
}

qn_tensor qn_empty(qn_tape *tape, qn_dtype type, qn_shape extents)
{
    shape s;
    if (!tape_begin_new(tape, "empty", type, extents, &s)) return tape_failed();
    graph *g = tape->graph;
    qn_buffer *buffer = NULL; /* zeroed; a graph that never runs has none */
    qn_error error;
    qn_status status = QN_OK;
    if (tape->context)
        status = qn_buffer_new_on(tape->context, tape->device, (size_t)size_of((dtype)type, &s), &buffer, &error);
    if (status) {
        graph_fail(g, "empty", "%s", error.message);
        g->status = g->error.status = status;
        return tape_failed();
    }
    storage *memory = storage_of_buffer(buffer);
    node leaf = tape_leaf(tape, (dtype)type, &s, NULL, 0, memory);
    storage_release(memory);
    return tape_handle(tape, leaf);
}

/* First and one past the last element that a view touches, from its offset; false, with the error set: too far apart. */
static bool reach(graph *g, const char *op, const shape *s, const int64_t *strides, int64_t *low, int64_t *high)
{
    int64_t plain[GRAPH_RANK];
    strides_set_row_major(s->rank, s->extents, plain);
    if (strides_reach(s->rank, s->extents, strides ? strides : plain, low, high)) return true;
    graph_fail(g, op, "the extents and strides do not fit in memory");
    return false;
}

qn_tensor qn_from_buffer(qn_tape *tape, qn_buffer *buffer, int64_t offset_elements, qn_dtype type, qn_shape extents,
                         const int64_t *strides)
{
    shape s;
    if (!tape_begin_new(tape, "from_buffer", type, extents, &s)) return tape_failed();
    graph *g = tape->graph;
    if (!buffer) return graph_fail(g, "from_buffer", "the buffer is NULL"), tape_failed();
    if ((uintptr_t)qn_buffer_data(buffer) % (uintptr_t)dtypes[type].size_bytes)
        return graph_fail(g, "from_buffer", "the buffer does not begin at a multiple of %d bytes, the size of %s",
                          dtypes[type].size_bytes, dtypes[type].text),
               tape_failed();
    int64_t low, high, room = (int64_t)qn_buffer_size_bytes(buffer) / dtypes[type].size_bytes;
    if (!reach(g, "from_buffer", &s, strides, &low, &high)) return tape_failed();
    if (__builtin_add_overflow(low, offset_elements, &low) || __builtin_add_overflow(high, offset_elements, &high) ||
        offset_elements < 0 || low < 0 || high > room)
        return graph_fail(g, "from_buffer", "elements %lld to %lld of a buffer of %lld", (long long)low,
                          (long long)high, (long long)room),
               tape_failed();
    storage *memory = storage_of_buffer(qn_buffer_retain(buffer));
    node leaf = tape_leaf(tape, (dtype)type, &s, strides, offset_elements, memory);
    storage_release(memory);
    return tape_handle(tape, leaf);
}

/* True when the device reads the host's memory. */
static bool host_memory(const qn_tape *tape)
{
    return target_find(tape->device)->host_memory;
}

/* The elements of a strided view, one after the other. */
static void pack(const shape *s, const int64_t *strides, int axis, size_t size, const char *from, char **to)
{
    if (axis == s->rank) {
        memcpy(*to, from, size);
        *to += size;
        return;
    }
    for (int64_t i = 0; i < s->extents[axis]; i++)
        pack(s, strides, axis + 1, size, from + i * strides[axis] * (int64_t)size, to);
}

static node leaf_packed(qn_tape *tape, dtype elem, const shape *s, const int64_t *strides, const void *data)
{
    if (!strides) return tape_leaf_from(tape, elem, s, data);
    arena *scratch = arena_new();
    char *whole = arena_alloc(scratch, (size_t)size_of(elem, s) + 1), *at = whole;
    pack(s, strides, 0, (size_t)dtypes[elem].size_bytes, data, &at);
    node leaf = tape_leaf_from(tape, elem, s, whole);
    arena_free(scratch);
    return leaf;
}

qn_tensor qn_wrap_memory(qn_tape *tape, void *data, qn_dtype type, qn_shape extents, const int64_t *strides,
                         qn_deleter *deleter, void *user)
{
    shape s;
    if (!tape_begin_new(tape, "wrap_memory", type, extents, &s)) return tape_failed();
    graph *g = tape->graph;
    int64_t low, high, size = dtypes[type].size_bytes;
    if (!data && shape_count(&s)) return graph_fail(g, "wrap_memory", "the data is NULL"), tape_failed();
    if ((uintptr_t)data % (uintptr_t)size)
        return graph_fail(g, "wrap_memory", "the data does not begin at a multiple of %lld bytes, the size of %s",
                          (long long)size, dtypes[type].text),
               tape_failed();
    if (!reach(g, "wrap_memory", &s, strides, &low, &high)) return tape_failed();
    node leaf;
    if (host_memory(tape) && tape->context) {
        qn_buffer *buffer;
        qn_error error;
        if (qn_buffer_wrap(tape->context, (char *)data + low * size, (size_t)((high - low) * size), deleter, user,
                           &buffer, &error))
            return graph_fail(g, "wrap_memory", "%s", error.message), tape_failed();
        storage *memory = storage_of_buffer(buffer);
        leaf = tape_leaf(tape, (dtype)type, &s, strides, -low, memory);
        storage_release(memory);
    } else {
        leaf = leaf_packed(tape, (dtype)type, &s, strides, data);
        if (leaf && deleter) deleter(user, data);
    }
    return tape_handle(tape, leaf);
}

qn_tensor qn_load_npy(qn_tape *tape, const char *path)
{
    qn_npy file;
    qn_error error;
    shape s;
    if (!tape_begin_new(tape, "load_npy", QN_F32, (qn_shape){0}, &s)) return tape_failed();
    qn_status status = qn_npy_read(path, &file, &error);
    if (status) {
        graph_fail(tape->graph, "load_npy", "%s", error.message);
        tape->graph->status = tape->graph->error.status = status;
        return tape_failed();
    }
    s.rank = file.array.rank;
    memcpy(s.extents, file.array.extents, sizeof(int64_t) * (size_t)s.rank);
    node leaf = leaf_packed(tape, (dtype)file.array.type, &s, file.array.strides, file.array.data);
    qn_npy_free(&file);
    return tape_handle(tape, leaf);
}
