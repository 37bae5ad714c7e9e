/*
 * Products. In: handles of vectors, matrices, batches. Out: DOT nodes over [..][M][K] and [..][K][N] with equal batch
 * axes. A batch times one matrix is one product of all rows; integers that DOT does not take are a sum of products.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include "ir/graph_build.h"

#include <math.h>

#define DIRECT_ROWS 25 /* cdist: up to here distances are summed, beyond they come from a product, as in PyTorch */

static bool dot_takes(dtype elem)
{
    return dtype_is_float(elem) || elem == DT_I8 || elem == DT_U8;
}

/* Matrices with equal batch axes, of one type. */
static node dot(graph *g, node a, node b, product_way way)
{
    dtype elem = tensor_elem(g, a);
    if (dot_takes(elem)) return graph_dot(g, a, b, dtype_is_float(elem) ? elem : DT_I32, way);
    if (elem == DT_BOOL) return graph_fail(g, "matmul", "it does not take bool: cast it");
    node x[2] = {a, b};
    shape result = *tensor_shape(g, a);
    int rank = result.rank;
    result.extents[rank - 1] = tensor_shape(g, b)->extents[rank - 1];
    for (int i = 0; i < 2; i++) { /* the batch as one axis: the products have one more than the matrices */
        const shape *s = tensor_shape(g, x[i]);
        shape flat = {3, {1, s->extents[rank - 2], s->extents[rank - 1]}};
        for (int k = 0; k < rank - 2; k++) flat.extents[0] *= s->extents[k];
        x[i] = tensor_insert(g, graph_reshape(g, x[i], &flat), i ? 1 : 3);
    }
    if (!tensor_meet(g, "matmul", x, 2)) return 0;
    return graph_reshape(g, graph_reduce(g, FOLD_SUM, graph_binary(g, OP_MUL, x[0], x[1]), 1u << 2), &result);
}

/* Rows of all batches as one matrix. */
static node dot_rows(graph *g, node a, node b, product_way way)
{
    shape s = *tensor_shape(g, a), flat = {2, {1, s.extents[s.rank - 1]}};
    for (int k = 0; k < s.rank - 1; k++) flat.extents[0] *= s.extents[k];
    node product = dot(g, graph_reshape(g, a, &flat), b, way);
    if (!product) return 0;
    s.extents[s.rank - 1] = tensor_shape(g, b)->extents[1];
    return graph_reshape(g, product, &s);
}

static node expand_batch(graph *g, node x, const shape *batch)
{
    const shape *s = tensor_shape(g, x);
    shape whole = *batch;
    for (int k = 2; k > 0; k--) whole.extents[whole.rank++] = s->extents[s->rank - k];
    return tensor_broadcast(g, "matmul", x, &whole);
}

/* Batch axes, which are all but the last two, broadcast. */
static bool batches_meet(graph *g, node a, node b, shape *batch)
{
    const shape *s[2] = {tensor_shape(g, a), tensor_shape(g, b)};
    *batch = (shape){.rank = MAXIMUM(s[0]->rank, s[1]->rank) - 2};
    for (int k = 0; k < batch->rank; k++) {
        int64_t extent[2];
        for (int i = 0; i < 2; i++) {
            int at = k - (batch->rank - (s[i]->rank - 2));
            extent[i] = at < 0 ? 1 : s[i]->extents[at];
        }
        if (extent[0] != extent[1] && extent[0] != 1 && extent[1] != 1) return false;
        batch->extents[k] = extent[0] == 1 ? extent[1] : extent[0];
    }
    return true;
}

node tensor_matmul(graph *g, node a, node b, product_way way)
{
    if (!a || !b) return 0;
    node x[2] = {a, b};
    dtype elem = tensor_promote(g, "matmul", x, 2);
    if (elem == DT_COUNT) return 0;
    int a_rank = tensor_shape(g, a)->rank, b_rank = tensor_shape(g, b)->rank;
    shape batch;
    if (!a_rank || !b_rank)
        return graph_fail(g, "matmul", "%s and %s: both need an axis", tensor_words(g, a), tensor_words(g, b));
    a = tensor_convert(g, a_rank == 1 ? tensor_insert(g, a, 0) : a, elem);
    b = tensor_convert(g, b_rank == 1 ? tensor_insert(g, b, 1) : b, elem);
    const shape *left = tensor_shape(g, a), *right = tensor_shape(g, b);
    if (left->extents[left->rank - 1] != right->extents[right->rank - 2] || !batches_meet(g, a, b, &batch))
        return graph_fail(g, "matmul", "%s and %s do not multiply", tensor_words(g, x[0]), tensor_words(g, x[1]));
    node product;
    if (left->rank > 2 && right->rank == 2) {
        product = dot_rows(g, a, b, way);
    } else {
        if (batch.rank) a = expand_batch(g, a, &batch);
        if (batch.rank) b = expand_batch(g, b, &batch);
        product = a && b ? dot(g, a, b, way) : 0;
    }
    if (!product) return 0;
    int rank = tensor_shape(g, product)->rank;
    return tensor_drop(g, product, (a_rank == 1 ? 1u << (rank - 2) : 0) | (b_rank == 1 ? 1u << (rank - 1) : 0));
}

qn_tensor qn_matmul(qn_tensor a, qn_tensor b)
{
    node n[2];
    qn_tape *tape = tape_begin("matmul", (qn_tensor[]){a, b}, 2, n);
    return tape ? tape_handle(tape, tensor_matmul(tape->graph, n[0], n[1], tape->products)) : tape_failed();
}

/* Batches of matrices alone. */
static node batch_product(graph *g, const char *op, node a, node b, product_way way)
{
    if (tensor_shape(g, a)->rank != 3 || tensor_shape(g, b)->rank != 3 ||
        tensor_shape(g, a)->extents[0] != tensor_shape(g, b)->extents[0])
        return graph_fail(g, op, "%s and %s: they should be [B][M][K] and [B][K][N]", tensor_words(g, a),
                          tensor_words(g, b));
    return tensor_matmul(g, a, b, way);
}

qn_tensor qn_bmm(qn_tensor a, qn_tensor b)
{
    node n[2];
    qn_tape *tape = tape_begin("bmm", (qn_tensor[]){a, b}, 2, n);
    return tape ? tape_handle(tape, batch_product(tape->graph, "bmm", n[0], n[1], tape->products)) : tape_failed();
}

/* beta * c + alpha * product; a beta of 0 leaves c's NaN out, as PyTorch does. */
static qn_tensor add_product(const char *op, qn_tensor c, qn_tensor a, qn_tensor b, double beta, double alpha)
{
    node n[3];
    qn_tape *tape = tape_begin(op, (qn_tensor[]){c, a, b}, 3, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    node product;
    if (op[0] == 'b') {
        product = batch_product(g, op, n[1], n[2], tape->products);
    } else {
        if (tensor_shape(g, n[1])->rank != 2 || tensor_shape(g, n[2])->rank != 2)
            return graph_fail(g, op, "%s and %s: they should be [M][K] and [K][N]", tensor_words(g, n[1]),
                              tensor_words(g, n[2])),
                   tape_failed();
        product = tensor_matmul(g, n[1], n[2], tape->products);
    }
    if (!product) return tape_failed();
    shape s = *tensor_shape(g, product);
    node base = tensor_broadcast(g, op, n[0], &s);
    if (alpha != 1) product = tensor_scalar(g, OP_MUL, product, alpha, false);
    if (!base || beta == 0) return tape_handle(tape, base ? product : 0);
    if (beta != 1) base = tensor_scalar(g, OP_MUL, base, beta, false);
    return tape_handle(tape, tensor_binary(g, OP_ADD, base, product));
}

qn_tensor qn_addmm(qn_tensor c, qn_tensor a, qn_tensor b, double beta, double alpha)
{
    return add_product("addmm", c, a, b, beta, alpha);
}

qn_tensor qn_baddbmm(qn_tensor c, qn_tensor a, qn_tensor b, double beta, double alpha)
{
    return add_product("baddbmm", c, a, b, beta, alpha);
}

qn_tensor qn_linear(qn_tensor x, qn_tensor weight, qn_tensor bias)
{
    node n[3] = {0};
    bool has_bias = bias.tape != NULL;
    qn_tape *tape = tape_begin("linear", (qn_tensor[]){x, weight, bias}, 2 + has_bias, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    const shape *w = tensor_shape(g, n[1]), *s = tensor_shape(g, n[0]);
    const shape *b = has_bias ? tensor_shape(g, n[2]) : NULL;
    bool matrix = w->rank == 2 && s->rank && (!b || b->rank == 1);
    bool fits = matrix && s->extents[s->rank - 1] == w->extents[0] && (!b || b->extents[0] == w->extents[1]);
    bool turned = matrix && s->extents[s->rank - 1] == w->extents[1] && (!b || b->extents[0] == w->extents[0]);
    if (!fits)
        return graph_fail(g, "linear", "x %s, weight %s%s%s: they should be [..][in], [in][out] and [out]%s",
                          tensor_words(g, n[0]), tensor_words(g, n[1]), has_bias ? ", bias " : "",
                          has_bias ? tensor_words(g, n[2]) : "",
                          turned ? "; a weight [out][in] goes with `transposed = true`, in C through qn_transpose"
                                 : ""),
               tape_failed();
    node y = tensor_matmul(g, n[0], n[1], tape->products);
    return tape_handle(tape, has_bias ? tensor_binary(g, OP_ADD, y, n[2]) : y);
}

qn_tensor qn_outer(qn_tensor a, qn_tensor b)
{
    node n[2];
    qn_tape *tape = tape_begin("outer", (qn_tensor[]){a, b}, 2, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    if (tensor_shape(g, n[0])->rank != 1 || tensor_shape(g, n[1])->rank != 1)
        return graph_fail(g, "outer", "%s and %s: both must be vectors", tensor_words(g, n[0]), tensor_words(g, n[1])),
               tape_failed();
    return tape_handle(tape, tensor_binary(g, OP_MUL, tensor_insert(g, n[0], 1), tensor_insert(g, n[1], 0)));
}

/* ---- distances ---- */

static node row_squares(graph *g, node x)
{
    return graph_reduce(g, FOLD_SUM, graph_binary(g, OP_MUL, x, x), 1u << (tensor_shape(g, x)->rank - 1));
}

/* |a|^2 + |b|^2 - 2 a b, which rounding may put below zero. Never by tf32: the difference would be noise. */
static node distances_by_product(graph *g, node a, node b, int rank)
{
    node b_squares = tensor_swap(g, row_squares(g, b), rank - 2, rank - 1);
    node sum = tensor_binary(g, OP_ADD, row_squares(g, a), b_squares);
    node twice = tensor_scalar(g, OP_MUL, tensor_matmul(g, a, tensor_swap(g, b, rank - 2, rank - 1), false), 2, false);
    return tensor_scalar(g, OP_MAX, tensor_binary(g, OP_SUB, sum, twice), 0, false);
}

static node distances_directly(graph *g, node a, node b, int rank)
{
    node difference = tensor_binary(g, OP_SUB, tensor_insert(g, a, rank - 1), tensor_insert(g, b, rank - 2));
    return difference ? tensor_drop(g, row_squares(g, difference), 1u << rank) : 0;
}

qn_tensor qn_cdist(qn_tensor a, qn_tensor b)
{
    node n[2];
    qn_tape *tape = tape_begin("cdist", (qn_tensor[]){a, b}, 2, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    dtype elem = tensor_promote(g, "cdist", n, 2);
    if (elem == DT_COUNT) return tape_failed();
    shape s[2] = {*tensor_shape(g, n[0]), *tensor_shape(g, n[1])}, batch;
    if (s[0].rank < 2 || s[1].rank < 2 || s[0].extents[s[0].rank - 1] != s[1].extents[s[1].rank - 1] ||
        !batches_meet(g, n[0], n[1], &batch))
        return graph_fail(g, "cdist", "%s and %s: they should be [..][M][D] and [..][N][D]", tensor_words(g, n[0]),
                          tensor_words(g, n[1])),
               tape_failed();
    if (!dtype_is_float(elem)) elem = DT_F32;
    for (int i = 0; i < 2; i++) {
        n[i] = tensor_wide(g, tensor_convert(g, n[i], elem));
        if (batch.rank) n[i] = expand_batch(g, n[i], &batch);
    }
    int rank = batch.rank + 2;
    int64_t rows = MAXIMUM(s[0].extents[s[0].rank - 2], s[1].extents[s[1].rank - 2]);
    bool direct = rows <= DIRECT_ROWS && rank < GRAPH_RANK;
    node squares = direct ? distances_directly(g, n[0], n[1], rank) : distances_by_product(g, n[0], n[1], rank);
    return squares ? tape_handle(tape, tensor_convert(g, tensor_root(g, squares), elem)) : tape_failed();
}
