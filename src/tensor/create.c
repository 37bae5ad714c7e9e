/*
 * Making tensors. In: numbers, host memory, buffers, .npy files. Out: leaves with memory on the tape's device, or
 * constants and sequences that take no memory until a kernel writes them.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include "ir/graph_build.h"
#include "target/target.h"

#include <math.h>
#include <quern/workbench.h>
#include <string.h>

/* Starts a call that makes a tensor of this shape; false with the error recorded. */
static bool begin(qn_tape *tape, const char *op, qn_dtype type, qn_shape extents, shape *s)
{
    if (!tape_enter(tape, op) || tape->graph->status) return false;
    if (!tape_type(tape, op, type)) return false;
    *s = (shape){.rank = extents.rank};
    if (extents.rank >= 0 && extents.rank <= GRAPH_RANK) *s = shape_from_public(extents);
    return graph_shape_fits(tape->graph, op, s);
}

/* ---- without memory ---- */

static qn_tensor full(qn_tape *tape, const char *op, qn_dtype type, qn_shape extents, double value)
{
    shape s;
    if (!begin(tape, op, type, extents, &s)) return tape_failed();
    return tape_handle(tape, graph_full_double(tape->graph, (dtype)type, &s, value));
}

qn_tensor qn_full(qn_tape *tape, qn_dtype type, qn_shape extents, double value)
{
    return full(tape, "full", type, extents, value);
}

qn_tensor qn_zeros(qn_tape *tape, qn_dtype type, qn_shape extents)
{
    return full(tape, "zeros", type, extents, 0);
}

qn_tensor qn_ones(qn_tape *tape, qn_dtype type, qn_shape extents)
{
    return full(tape, "ones", type, extents, 1);
}

qn_tensor qn_scalar(qn_tape *tape, qn_dtype type, double value)
{
    return full(tape, "scalar", type, (qn_shape){0}, value);
}

/* start + i * step in the element type; halves in f32, rounded at the end. */
static node ramp(graph *g, dtype elem, node i, double start, double step)
{
    dtype wide = elem == DT_F16 || elem == DT_BF16 ? DT_F32 : elem;
    node x = graph_convert(g, i, wide);
    if (!x) return 0;
    if (step != 1) x = graph_binary(g, OP_MUL, x, tensor_number(g, x, step));
    return start != 0 ? graph_binary(g, OP_ADD, x, tensor_number(g, x, start)) : x;
}

qn_tensor qn_arange(qn_tape *tape, qn_dtype type, double start, double stop, double step)
{
    shape s;
    if (!begin(tape, "arange", type, (qn_shape){0}, &s)) return tape_failed();
    graph *g = tape->graph;
    double count = ceil((stop - start) / step);
    if (type == QN_BOOL) return graph_fail(g, "arange", "it does not give bool"), tape_failed();
    if (step == 0 || !isfinite(count) || count > (double)LARGEST_EXTENT)
        return graph_fail(g, "arange", "from %g to %g by %g is not a sequence", start, stop, step), tape_failed();
    if (dtype_is_integer((dtype)type) && (start != floor(start) || step != floor(step)))
        return graph_fail(g, "arange", "from %g by %g: %s needs whole numbers", start, step, dtypes[type].text),
               tape_failed();
    node x = ramp(g, (dtype)type, graph_iota(g, count < 0 ? 0 : (int64_t)count), start, step);
    return tape_handle(tape, tensor_convert(g, x, (dtype)type));
}

/* Counted from the nearer end, so that both ends are exact. */
qn_tensor qn_linspace(qn_tape *tape, qn_dtype type, double start, double stop, int64_t count)
{
    shape s;
    if (!begin(tape, "linspace", type, (qn_shape){1, {count}}, &s)) return tape_failed();
    graph *g = tape->graph;
    if (!dtype_is_float((dtype)type))
        return graph_fail(g, "linspace", "it gives floats, not %s", dtypes[type].text), tape_failed();
    double step = count > 1 ? (stop - start) / (double)(count - 1) : 0;
    node i = graph_iota(g, count), back = tensor_scalar(g, OP_SUB, i, (double)(count - 1), true);
    int64_t half = count / 2 + (count == 1);
    node early = tensor_scalar(g, OP_LT, i, (double)half, false);
    node x = graph_select(g, early, ramp(g, (dtype)type, i, start, step), ramp(g, (dtype)type, back, stop, -step));
    return tape_handle(tape, tensor_convert(g, x, (dtype)type));
}

qn_tensor qn_eye(qn_tape *tape, qn_dtype type, int64_t rows, int64_t columns)
{
    shape s;
    if (!begin(tape, "eye", type, (qn_shape){2, {rows, columns}}, &s)) return tape_failed();
    graph *g = tape->graph;
    node same =
        tensor_binary(g, OP_EQ, tensor_insert(g, graph_iota(g, rows), 1), tensor_insert(g, graph_iota(g, columns), 0));
    return tape_handle(tape, tensor_convert(g, same, (dtype)type));
}

/* ---- with memory ---- */

static int64_t size_of(dtype elem, const shape *s)
{
    return shape_count(s) * dtypes[elem].size_bytes;
}

node tape_leaf_from(qn_tape *tape, dtype elem, const shape *s, const void *data)
{
    graph *g = tape->graph;
    const char *op = g->label;
    int64_t size_bytes = size_of(elem, s);
    qn_error error;
    storage *memory = tape_memory(tape, op, size_bytes);
    if (!memory) return 0;
    node leaf = 0;
    if (!memory->buffer)
        graph_fail(g, op, "the tape has no device");
    else if (tape_storage_write(tape, memory, 0, data, size_bytes, &error))
        graph_fail(g, op, "%s", error.message);
    else
        leaf = tape_leaf(tape, elem, s, NULL, 0, memory);
    storage_release(memory);
    return leaf;
}

qn_tensor qn_empty(qn_tape *tape, qn_dtype type, qn_shape extents)
{
    shape s;
    if (!begin(tape, "empty", type, extents, &s)) return tape_failed();
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
    storage *memory = storage_new(buffer);
    node leaf = tape_leaf(tape, (dtype)type, &s, NULL, 0, memory);
    storage_release(memory);
    return tape_handle(tape, leaf);
}

qn_tensor qn_from_memory(qn_tape *tape, const void *data, qn_dtype type, qn_shape extents)
{
    shape s;
    if (!begin(tape, "from_memory", type, extents, &s)) return tape_failed();
    if (!data && shape_count(&s)) return graph_fail(tape->graph, "from_memory", "the data is NULL"), tape_failed();
    return tape_handle(tape, tape_leaf_from(tape, (dtype)type, &s, data));
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
    if (!begin(tape, "from_buffer", type, extents, &s)) return tape_failed();
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
    storage *memory = storage_new(qn_buffer_retain(buffer));
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
    if (!begin(tape, "wrap_memory", type, extents, &s)) return tape_failed();
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
        storage *memory = storage_new(buffer);
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
    if (!begin(tape, "load_npy", QN_F32, (qn_shape){0}, &s)) return tape_failed();
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
