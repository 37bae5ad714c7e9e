/*
 * Making tensors. In: numbers, host memory. Out: leaves with memory on the tape's device, or constants and sequences that
 * take no memory until a kernel writes them. Of buffers, files and memory that stays the host's: run/evaluate/tensor_memory.c.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include "ir/graph_build.h"
#include "target/target.h"

#include <math.h>
#include <quern/workbench.h>
#include <string.h>

bool tape_begin_new(qn_tape *tape, const char *op, qn_dtype type, qn_shape extents, shape *s)
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
    if (!tape_begin_new(tape, op, type, extents, &s)) return tape_failed();
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
    dtype wide = dtype_is_narrow(elem) ? DT_F32 : elem;
    node x = graph_convert(g, i, wide);
    if (!x) return 0;
    if (step != 1) x = graph_binary(g, OP_MUL, x, tensor_number(g, x, step));
    return start != 0 ? graph_binary(g, OP_ADD, x, tensor_number(g, x, start)) : x;
}

qn_tensor qn_arange(qn_tape *tape, qn_dtype type, double start, double stop, double step)
{
    shape s;
    if (!tape_begin_new(tape, "arange", type, (qn_shape){0}, &s)) return tape_failed();
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
    if (!tape_begin_new(tape, "linspace", type, (qn_shape){1, {count}}, &s)) return tape_failed();
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
    if (!tape_begin_new(tape, "eye", type, (qn_shape){2, {rows, columns}}, &s)) return tape_failed();
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
    else if (tape->calls->write(tape, memory, 0, data, size_bytes, &error))
        graph_fail(g, op, "%s", error.message);
    else
        leaf = tape_leaf(tape, elem, s, NULL, 0, memory);
    storage_release(memory);
    return leaf;
}

qn_tensor qn_from_memory(qn_tape *tape, const void *data, qn_dtype type, qn_shape extents)
{
    shape s;
    if (!tape_begin_new(tape, "from_memory", type, extents, &s)) return tape_failed();
    if (!data && shape_count(&s)) return graph_fail(tape->graph, "from_memory", "the data is NULL"), tape_failed();
    return tape_handle(tape, tape_leaf_from(tape, (dtype)type, &s, data));
}
