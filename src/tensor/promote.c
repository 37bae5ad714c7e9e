/*
 * How tensors of different types and shapes meet. In: operands. Out: operands of one type and one shape, by CONVERT,
 * RESHAPE (axes of 1 in front) and EXPAND. Types follow PyTorch: floats before integers before bools, then the wider
 * one; f16 with bf16 gives f32; u8 with a signed type the next signed one that holds both; tensors of rank 0 count only
 * if their kind is higher than that of the tensors with axes.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include "ir/graph_build.h"

const char *tensor_words(graph *g, node x)
{
    return graph_shape_words(g, &graph_get(g, x)->shape);
}

/* ---- types ---- */

static int kind_rank(dtype t)
{
    return dtype_is_float(t) ? 2 : t == DT_BOOL ? 0 : 1;
}

/* DT_COUNT: none. */
static dtype promote_two(dtype a, dtype b)
{
    if (a == DT_COUNT || a == b) return b;
    if (b == DT_COUNT) return a;
    if (kind_rank(a) != kind_rank(b)) return kind_rank(a) > kind_rank(b) ? a : b;
    int a_size = dtypes[a].size_bytes, b_size = dtypes[b].size_bytes;
    if (dtype_is_float(a)) return a_size == b_size ? DT_F32 : a_size > b_size ? a : b;
    if (dtypes[a].kind == dtypes[b].kind) return a_size > b_size ? a : b;
    dtype with_sign = dtypes[a].kind == KIND_INT ? a : b, without = with_sign == a ? b : a;
    if (dtypes[with_sign].size_bytes > dtypes[without].size_bytes) return with_sign;
    return without == DT_U8 ? DT_I16 : without == DT_U16 ? DT_I32 : without == DT_U32 ? DT_I64 : DT_COUNT;
}

dtype tensor_promote(graph *g, const char *op, const node *x, int count)
{
    dtype with_axes = DT_COUNT, without = DT_COUNT;
    bool fits = true;
    for (int i = 0; i < count; i++) {
        dtype *group = tensor_shape(g, x[i])->rank ? &with_axes : &without, before = *group;
        *group = promote_two(before, tensor_elem(g, x[i]));
        fits &= *group != DT_COUNT;
    }
    dtype elem = with_axes;
    if (with_axes == DT_COUNT || (without != DT_COUNT && kind_rank(without) > kind_rank(with_axes))) elem = without;
    if (fits && elem != DT_COUNT) return elem;
    graph_fail(g, op, "u64 and signed integers have no common type: cast one");
    return DT_COUNT;
}

node tensor_convert(graph *g, node x, dtype elem)
{
    if (!x || tensor_elem(g, x) == elem) return x;
    const graph_node *n = graph_get(g, x);
    if (n->code != GRAPH_FULL || (dtype_is_float(n->elem) && !dtype_is_float(elem))) return graph_convert(g, x, elem);
    if (dtype_is_float(n->elem)) return graph_full_double(g, elem, &n->shape, n->attr.number.f);
    if (dtype_is_float(elem) && n->elem != DT_U64)
        return graph_full_double(g, elem, &n->shape, (double)n->attr.number.i);
    return graph_convert(g, x, elem);
}

node tensor_number(graph *g, node like, double value)
{
    if (!like) return 0;
    shape s = *tensor_shape(g, like);
    return graph_full_double(g, tensor_elem(g, like), &s, value);
}

node tensor_float(graph *g, node x)
{
    return x && !dtype_is_float(tensor_elem(g, x)) ? tensor_convert(g, x, DT_F32) : x;
}

node tensor_wide(graph *g, node x)
{
    return x && tensor_elem(g, x) != DT_F64 ? tensor_convert(g, x, DT_F32) : x;
}

/* ---- shapes ---- */

bool tensor_shapes_meet(graph *g, const char *op, const node *x, int count, shape *out)
{
    *out = (shape){0};
    for (int i = 0; i < count; i++) out->rank = MAXIMUM(out->rank, tensor_shape(g, x[i])->rank);
    for (int k = 0; k < out->rank; k++) out->extents[k] = 1;
    for (int i = 0; i < count; i++) {
        const shape *s = tensor_shape(g, x[i]);
        for (int k = 0; k < s->rank; k++) {
            int64_t *extent = &out->extents[out->rank - s->rank + k];
            if (s->extents[k] == *extent || s->extents[k] == 1) continue;
            if (*extent != 1) {
                text words = {0};
                for (int j = 0; j < count; j++)
                    text_print(&words, "%s%s", j == 0 ? "" : j + 1 < count ? ", " : " and ", tensor_words(g, x[j]));
                graph_fail(g, op, "shapes %s do not broadcast", text_get(&words));
                text_free(&words);
                return false;
            }
            *extent = s->extents[k];
        }
    }
    return true;
}

node tensor_broadcast(graph *g, const char *op, node x, const shape *s)
{
    if (!x) return 0;
    const graph_node *n = graph_get(g, x);
    if (shape_same(&n->shape, s)) return x;
    int more = s->rank - n->shape.rank;
    bool fits = more >= 0;
    shape aligned = {.rank = s->rank};
    for (int k = 0; k < s->rank && fits; k++) {
        aligned.extents[k] = k < more ? 1 : n->shape.extents[k - more];
        fits = aligned.extents[k] == 1 || aligned.extents[k] == s->extents[k];
    }
    if (!fits) return graph_fail(g, op, "%s does not expand to %s", tensor_words(g, x), graph_shape_words(g, s));
    if (n->code == GRAPH_FULL) return graph_full(g, n->elem, s, n->attr.number);
    return graph_expand(g, graph_reshape(g, x, &aligned), s);
}

bool tensor_meet(graph *g, const char *op, node *x, int count)
{
    if (!graph_given(x, count)) return false;
    bool same = true; /* the common case, quickly */
    for (int i = 1; i < count && same; i++)
        same = tensor_elem(g, x[i]) == tensor_elem(g, x[0]) && shape_same(tensor_shape(g, x[i]), tensor_shape(g, x[0]));
    if (same) return true;
    shape s;
    dtype elem = tensor_promote(g, op, x, count);
    if (elem == DT_COUNT || !tensor_shapes_meet(g, op, x, count, &s)) return false;
    for (int i = 0; i < count; i++) x[i] = tensor_broadcast(g, op, tensor_convert(g, x[i], elem), &s);
    return graph_given(x, count);
}
