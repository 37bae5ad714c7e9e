/*
 * The ops of random tensor graphs: one function a class of ops, which gives a node that was built on operands of the
 * pool, or 0 where it found nothing to work on; each says whether the node is stable (see random_state.h).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_RANDOM_OPS_H
#define QUERN_TESTS_RANDOM_OPS_H

#include "random_state.h"

static inline node random_constant(random_graph *r, node like, double x)
{
    node n = graph_full_double(r->g, random_at(r, like)->elem, &random_at(r, like)->shape, x);
    random_set_stable(r, n, true);
    return n;
}

/* x * x + 1/2: positive, and away from 0. */
static inline node random_positive(random_graph *r, node x)
{
    node half = random_constant(r, x, 0.5);
    return graph_binary(r->g, OP_ADD, graph_binary(r->g, OP_MUL, x, x), half);
}

static inline node random_unary(random_graph *r)
{
    static const op_code smooth[] = {OP_NEG, OP_EXP,     OP_EXP2, OP_EXPM1,     OP_SIN,  OP_COS,      OP_TANH,
                                     OP_ERF, OP_SIGMOID, OP_GELU, OP_GELU_TANH, OP_SILU, OP_SOFTPLUS, OP_NEG};
    static const op_code positive[] = {OP_SQRT, OP_RSQRT, OP_LOG, OP_LOG2, OP_LOG1P};
    static const op_code kinked[] = {OP_ABS, OP_RELU};
    static const op_code steps[] = {OP_SIGN, OP_FLOOR, OP_CEIL, OP_ROUND};
    int kind = random_pick(r, 10);
    bool stable = kind == 9 || (kind == 8 && r->options.gradient);
    node x = random_operand(r, stable ? random_is_stable_float : random_is_float);
    if (!x) return 0;
    op_code code = kind < 6    ? smooth[random_pick(r, COUNT(smooth))]
                   : kind < 8  ? positive[random_pick(r, COUNT(positive))]
                   : kind == 8 ? kinked[random_pick(r, COUNT(kinked))]
                               : steps[random_pick(r, COUNT(steps))];
    bool kept = random_stable(r, x) && (kind >= 8 || code == OP_NEG);
    if (kind >= 6 && kind < 8) x = random_positive(r, x);
    node n = graph_unary(r->g, code, x);
    if (n) random_set_stable(r, n, kept);
    return n;
}

static inline node random_binary(random_graph *r)
{
    static const op_code codes[] = {OP_ADD, OP_ADD, OP_SUB, OP_MUL, OP_MUL, OP_DIV, OP_POW, OP_MIN, OP_MAX, OP_FMA};
    op_code code = codes[random_pick(r, COUNT(codes))];
    bool kinked = code == OP_MIN || code == OP_MAX, stable = kinked && r->options.gradient;
    node x = random_operand(r, stable ? random_is_stable_float : random_is_float);
    if (!x) return 0;
    shape s = random_at(r, x)->shape;
    node y = random_partner(r, r->type, &s, stable);
    if (!y) return 0;
    if (code == OP_DIV) y = random_positive(r, y);
    if (code == OP_POW) x = random_positive(r, x);
    node n = code == OP_FMA ? graph_map(r->g, OP_FMA, r->type, (node[]){x, y, random_partner(r, r->type, &s, false)}, 3)
                            : graph_binary(r->g, code, random_pick(r, 2) || code == OP_DIV || code == OP_POW ? x : y,
                                           code == OP_DIV || code == OP_POW || random_pick(r, 2) ? y : x);
    if (n) random_set_stable(r, n, kinked && random_stable(r, x) && random_stable(r, y));
    return n;
}

static inline node random_integers(random_graph *r)
{
    static const op_code codes[] = {OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MOD, OP_MIN,
                                    OP_MAX, OP_AND, OP_OR,  OP_XOR, OP_SHL, OP_SHR};
    static const dtype types[] = {DT_I8, DT_I16, DT_I32, DT_I64, DT_U8, DT_U16, DT_U32, DT_U64};
    node x = random_pick(r, 2) ? random_operand(r, random_is_integer) : 0;
    if (!x) {
        shape s =
            random_pick(r, 2) ? random_at(r, random_operand(r, NULL))->shape : random_shape(r, 1 + random_pick(r, 3));
        x = random_leaf(r, types[random_pick(r, COUNT(types))], &s);
    }
    shape s = random_at(r, x)->shape;
    op_code code = codes[random_pick(r, COUNT(codes))];
    node y = random_partner(r, random_at(r, x)->elem, &s, false), n;
    if (!y) return 0;
    if (code == OP_DIV || code == OP_MOD) { /* by 1 to 4: what a division by 0 gives is nobody's business */
        node four = random_constant(r, y, 3), one = random_constant(r, y, 1);
        y = graph_binary(r->g, OP_ADD, graph_binary(r->g, OP_AND, y, four), one);
    }
    n = graph_binary(r->g, code, x, y);
    if (!n) return 0;
    random_set_stable(r, n, true);
    if (!random_pick(r, 3)) n = graph_convert(r->g, n, r->type); /* wrapped integers may be large: the caller looks */
    random_set_stable(r, n, true);
    return n;
}

static inline node random_compare(random_graph *r)
{
    static const op_code codes[] = {OP_LT, OP_LE, OP_GT, OP_GE, OP_EQ, OP_NE};
    node x = random_operand(r, random_pick(r, 3) ? random_is_stable_float : random_is_integer);
    if (!x) return 0;
    shape s = random_at(r, x)->shape;
    node y = random_partner(r, random_at(r, x)->elem, &s, true);
    if (!y) return 0;
    if (!random_stable(r, y)) return 0;
    node n = graph_binary(r->g, codes[random_pick(r, COUNT(codes))], x, y);
    if (!n) return 0;
    random_set_stable(r, n, true);
    if (random_pick(r, 3)) return n;
    node more = random_pick(r, 2) ? graph_unary(r->g, OP_NOT, n) : graph_convert(r->g, n, r->type);
    if (more) random_set_stable(r, more, true);
    return more;
}

static inline node random_select(random_graph *r)
{
    node condition = random_operand(r, random_is_bool);
    if (!condition) return random_compare(r);
    shape s = random_at(r, condition)->shape;
    node a = random_partner(r, r->type, &s, false), b = random_partner(r, r->type, &s, false);
    if (!a || !b) return 0;
    node n = graph_select(r->g, condition, a, b);
    if (n) random_set_stable(r, n, random_stable(r, a) && random_stable(r, b));
    return n;
}

static inline node random_convert(random_graph *r)
{
    static const dtype types[] = {DT_F32, DT_F64, DT_F16, DT_BF16, DT_F8E4M3, DT_I8,  DT_I16,
                                  DT_I32, DT_I64, DT_U8,  DT_U16,  DT_U32,    DT_U64, DT_BOOL};
    node x = random_operand(r, NULL);
    dtype to = random_pick(r, 2) ? r->type : types[random_pick(r, COUNT(types))], from = random_at(r, x)->elem;
    if (from == to || (!random_stable(r, x) && !dtype_is_float(to))) return 0;
    node n = graph_convert(r->g, x, to);
    if (!n) return 0;
    /* A conversion of integers to 16 bits, or from a wider float, may keep more bits in fused kernels. */
    random_set_stable(r, n,
                      random_stable(r, x) && (!dtype_is_float(to) || dtype_is_float(from)) &&
                          dtypes[to].size_bytes >= dtypes[from].size_bytes);
    if (to != r->type && dtype_is_float(to) && random_pick(r, 2)) {
        node back = graph_convert(r->g, graph_unary(r->g, OP_TANH, n), r->type);
        if (back) random_set_stable(r, back, false);
        return back;
    }
    return n;
}

static inline node random_philox(random_graph *r)
{
    int64_t count = 1 + random_pick(r, 40);
    shape s = {1, {count}}, one = {0};
    node seed = graph_full_double(r->g, DT_U64, &one, 7), at = graph_full_double(r->g, DT_U64, &one, random_pick(r, 9));
    seed = graph_expand(r->g, graph_reshape(r->g, seed, &(shape){1, {1}}), &s);
    at = graph_expand(r->g, graph_reshape(r->g, at, &(shape){1, {1}}), &s);
    node bits =
        graph_map_index(r->g, OP_PHILOX, random_pick(r, 4), DT_U32, (node[]){seed, at, graph_iota(r->g, count)}, 3);
    node top = graph_binary(r->g, OP_SHR, bits, graph_full_double(r->g, DT_U32, &s, 26));
    node n =
        graph_binary(r->g, OP_MUL, graph_convert(r->g, top, r->type), graph_full_double(r->g, r->type, &s, 1.0 / 64));
    if (n) random_set_stable(r, n, false);
    return n;
}

static inline node random_reshape(random_graph *r, node x)
{
    const shape *from = &random_at(r, x)->shape;
    shape s = {0};
    int64_t left = shape_count(from);
    if (random_pick(r, 3) == 0) { /* units come and go */
        for (int k = 0; k < from->rank; k++)
            if (from->extents[k] != 1 || random_pick(r, 2)) s.extents[s.rank++] = from->extents[k];
        for (int more = random_pick(r, 3); more > 0 && s.rank < 5; more--) {
            int at = random_pick(r, s.rank + 1);
            for (int k = s.rank; k > at; k--) s.extents[k] = s.extents[k - 1];
            s.extents[at] = 1;
            s.rank++;
        }
        return graph_reshape(r->g, x, &s);
    }
    while (left > 1 && s.rank < 4) {
        int64_t factor = left;
        if (s.rank < 3 && random_pick(r, 3))
            for (int64_t f = 2 + random_pick(r, 6), tries = 0; tries < 8; tries++, f++)
                if (left % f == 0) {
                    factor = f;
                    break;
                }
        s.extents[s.rank++] = factor;
        left /= factor;
    }
    if (left != 1 || !s.rank) return graph_reshape(r->g, x, &(shape){1, {shape_count(from)}});
    return graph_reshape(r->g, x, &s);
}

static inline node random_slice(random_graph *r, node x)
{
    shape s = random_at(r, x)->shape;
    int64_t start[GRAPH_RANK], step[GRAPH_RANK];
    for (int k = 0; k < s.rank; k++) {
        int64_t extent = s.extents[k];
        start[k] = 0;
        step[k] = 1;
        if (extent < 2 || random_pick(r, 2)) continue;
        int64_t first = random_pick(r, (int)extent), by = 1 + random_pick(r, 3);
        if (random_pick(r, 3)) {
            start[k] = first;
            step[k] = by;
            s.extents[k] = (extent - 1 - first) / by + 1;
        } else { /* backwards */
            start[k] = extent - 1 - first;
            step[k] = -by;
            s.extents[k] = start[k] / by + 1;
        }
    }
    return graph_slice(r->g, x, start, step, &s);
}

static inline node random_pad(random_graph *r, node x)
{
    shape s = random_at(r, x)->shape;
    int64_t before[GRAPH_RANK], step[GRAPH_RANK];
    for (int k = 0; k < s.rank; k++) {
        int64_t extent = s.extents[k];
        before[k] = random_pick(r, 2) ? 0 : random_pick(r, 4) - (extent > 3);
        step[k] = random_pick(r, 5) ? 1 : 2;
        int64_t after = random_pick(r, 2) ? 0 : random_pick(r, 3) - (extent > 4);
        s.extents[k] = MAXIMUM(before[k] + (extent ? (extent - 1) * step[k] + 1 : 0) + after, 0);
    }
    if (shape_count(&s) > RANDOM_MOST_ELEMENTS) return 0;
    number fill = {0};
    if (dtype_is_float(random_at(r, x)->elem) && random_pick(r, 2)) fill.f = 0.5;
    return graph_pad(r->g, x, before, step, &s, fill);
}

static inline node random_expand(random_graph *r, node x)
{
    shape s = random_at(r, x)->shape;
    if (!s.rank || random_pick(r, 2)) {
        if (s.rank == 4) return 0;
        for (int k = s.rank; k > 0; k--) s.extents[k] = s.extents[k - 1];
        s.extents[0] = 1;
        s.rank++;
        x = graph_reshape(r->g, x, &s);
    }
    for (int k = 0; k < s.rank; k++)
        if (s.extents[k] == 1 && random_pick(r, 2)) s.extents[k] = 1 + random_pick(r, 9);
    return shape_count(&s) > RANDOM_MOST_ELEMENTS ? 0 : graph_expand(r->g, x, &s);
}

static inline node random_concat(random_graph *r, node x)
{
    const graph_node *at = random_at(r, x);
    if (!at->shape.rank) return 0;
    int axis = random_pick(r, at->shape.rank), count = 2 + random_pick(r, 2);
    node inputs[3] = {x};
    bool stable = random_stable(r, x);
    for (int i = 1; i < count; i++) {
        shape s = at->shape;
        if (random_pick(r, 2)) s.extents[axis] = random_extent(r);
        if (shape_count(&s) > RANDOM_MOST_ELEMENTS / 3) s.extents[axis] = 1;
        inputs[i] = random_partner(r, at->elem, &s, false);
        if (!inputs[i]) return 0;
        at = random_at(r, x);
        stable = stable && random_stable(r, inputs[i]);
    }
    node n = graph_concat(r->g, inputs, count, axis);
    if (n) random_set_stable(r, n, stable);
    return n;
}

static inline node random_move(random_graph *r)
{
    node x = random_operand(r, NULL), n = 0;
    if (!x) return 0;
    int rank = random_at(r, x)->shape.rank, axes[GRAPH_RANK];
    bool stable = random_stable(r, x);
    switch (random_pick(r, 9)) {
    case 0:
    case 1: n = random_reshape(r, x); break;
    case 2:
        for (int k = 0; k < rank; k++) axes[k] = k;
        for (int k = rank - 1; k > 0; k--) {
            int other = random_pick(r, k + 1), kept = axes[k];
            axes[k] = axes[other];
            axes[other] = kept;
        }
        n = graph_permute(r->g, x, axes);
        break;
    case 3: n = random_expand(r, x); break;
    case 4:
    case 5: n = random_slice(r, x); break;
    case 6: n = random_pad(r, x); break;
    case 7: return random_concat(r, x);
    default: {
        if (!rank || rank > 3) return 0;
        int axis = random_pick(r, rank);
        int64_t extent = random_at(r, x)->shape.extents[axis], size = 1 + random_pick(r, 3),
                dilation = 1 + random_pick(r, 2);
        if ((size - 1) * dilation + 1 > extent || shape_count(&random_at(r, x)->shape) * size > RANDOM_MOST_ELEMENTS)
            return 0;
        n = graph_window(r->g, x, axis, size, 1 + random_pick(r, 2), dilation);
    }
    }
    if (n) random_set_stable(r, n, stable);
    return n;
}

static inline node random_reduce(random_graph *r)
{
    static const fold_kind folds[] = {FOLD_SUM, FOLD_SUM,  FOLD_SUM,    FOLD_MAX,
                                      FOLD_MIN, FOLD_PROD, FOLD_ARGMAX, FOLD_ARGMIN};
    fold_kind fold = folds[random_pick(r, COUNT(folds))];
    node x = random_operand(r, random_has_axes);
    if (!x) return 0;
    dtype elem = random_at(r, x)->elem;
    if (elem == DT_BOOL) fold = random_pick(r, 2) ? FOLD_ANY : FOLD_ALL;
    bool position = fold == FOLD_ARGMAX || fold == FOLD_ARGMIN, extreme = fold == FOLD_MAX || fold == FOLD_MIN;
    if ((position || (extreme && r->options.gradient)) && !random_stable(r, x)) return 0;
    shape s = random_at(r, x)->shape;
    unsigned axis_set = 1u << random_pick(r, s.rank);
    if (!position && random_pick(r, 2)) axis_set |= 1u << random_pick(r, s.rank);
    int64_t each = 1;
    for (int k = 0; k < s.rank; k++)
        if (axis_set >> k & 1) each *= s.extents[k];
    if (!each && (position || extreme)) return 0;
    node n = graph_reduce(r->g, fold, x, axis_set);
    if (!n) return 0;
    random_set_stable(r, n, random_stable(r, x) && (!dtype_is_float(elem) || position || extreme));
    if (fold == FOLD_SUM && dtype_is_float(elem) && each > 2) { /* a mean */
        n = graph_binary(r->g, OP_MUL, n, random_constant(r, n, 1.0 / (double)each));
        random_set_stable(r, n, false);
    }
    if (random_pick(r, 2)) { /* back to the full shape: what norms and softmax do */
        node wide = graph_expand(r->g, n, &s);
        if (wide != n) random_set_stable(r, wide, random_stable(r, n));
        if (random_at(r, wide)->elem == elem && dtype_is_float(elem) && random_pick(r, 3))
            wide = graph_binary(r->g, OP_SUB, x, wide);
        if (!random_stable(r, wide)) random_set_stable(r, wide, false);
        return wide;
    }
    return n;
}

static inline node random_scan(random_graph *r)
{
    static const fold_kind folds[] = {FOLD_SUM, FOLD_SUM, FOLD_MAX, FOLD_MIN, FOLD_PROD};
    node x = random_operand(r, random_has_axes);
    fold_kind fold = folds[random_pick(r, COUNT(folds))];
    if (!x || random_at(r, x)->elem == DT_BOOL) return 0;
    bool sums = fold == FOLD_SUM, is_float = dtype_is_float(random_at(r, x)->elem);
    if (!sums && r->options.gradient && !random_stable(r, x)) return 0;
    if (sums && is_float) x = graph_binary(r->g, OP_MUL, x, random_constant(r, x, 0.125));
    node n = graph_scan(r->g, fold, x, random_pick(r, random_at(r, x)->shape.rank));
    if (n) random_set_stable(r, n, random_stable(r, x) && !((sums || fold == FOLD_PROD) && is_float));
    return n;
}

static inline node random_sort(random_graph *r)
{
    node x = random_operand(r, random_is_stable_float);
    if (!x || !random_at(r, x)->shape.rank) return 0;
    int axis = random_pick(r, random_at(r, x)->shape.rank);
    node order = graph_argsort(r->g, x, axis, random_pick(r, 2));
    if (!order) return 0;
    random_set_stable(r, order, true);
    if (!random_pick(r, 3)) return order;
    node n = graph_gather(r->g, x, order, axis);
    if (n) random_set_stable(r, n, true);
    return n;
}

/* Of two nodes of the pool, or of one and a new leaf that fits it. */
static inline node random_dot(random_graph *r)
{
    node x = random_operand(r, random_is_float);
    if (!x) return 0;
    const shape *s = &random_at(r, x)->shape;
    if (s->rank < 2 || s->rank > 4) return 0;
    int rank = s->rank;
    int64_t depth = s->extents[rank - 1], wide = 1 + random_pick(r, 20);
    shape other = *s;
    other.extents[rank - 2] = depth;
    other.extents[rank - 1] = wide;
    if (shape_count(&other) > RANDOM_MOST_ELEMENTS || shape_count(s) / MAXIMUM(depth, 1) * wide > RANDOM_MOST_ELEMENTS)
        return 0;
    node y = random_partner(r, r->type, &other, false);
    if (!y) return 0;
    bool half = r->type == DT_F16 || r->type == DT_BF16;
    node n = graph_dot(r->g, x, y, half && random_pick(r, 2) ? DT_F32 : r->type, false);
    if (!n) return 0;
    node scaled = graph_binary(r->g, OP_MUL, n, random_constant(r, n, 1 / sqrt((double)MAXIMUM(depth, 1))));
    scaled = graph_convert(r->g, scaled, r->type);
    if (scaled) random_set_stable(r, scaled, false);
    return scaled;
}

/* Integers between 0 and limit - 1. */
static inline node random_index(random_graph *r, const shape *s, int64_t limit)
{
    dtype elem = random_pick(r, 2) ? DT_I64 : DT_I32;
    node raw = random_leaf(r, elem, s);
    node n = raw ? graph_binary(r->g, OP_MOD, raw, graph_full_double(r->g, elem, s, (double)limit)) : 0;
    if (n) random_set_stable(r, n, true);
    return n;
}

static inline node random_by_index(random_graph *r)
{
    node x = random_operand(r, random_pick(r, 4) ? random_is_float : random_has_axes), n = 0;
    if (!x || !random_at(r, x)->shape.rank) return 0;
    shape s = random_at(r, x)->shape, places = random_shape(r, random_pick(r, 3));
    dtype elem = random_at(r, x)->elem;
    int axis = random_pick(r, s.rank);
    bool adds = random_pick(r, 2) && elem == r->type, takes = random_pick(r, 2);
    if (!s.extents[axis]) return 0;
    if (!takes) {
        places = s;
        places.extents[axis] = random_extent(r);
    }
    node index = random_index(r, &places, s.extents[axis]);
    if (!index) return 0;
    n = takes ? graph_take(r->g, x, index, axis) : graph_gather(r->g, x, index, axis);
    if (!n || random_at(r, n)->shape.rank > 4 || shape_count(&random_at(r, n)->shape) > RANDOM_MOST_ELEMENTS) {
        r->g->status = QN_OK;
        return 0;
    }
    random_set_stable(r, n, random_stable(r, x));
    if (!adds) return n;
    shape wanted = random_at(r, n)->shape;
    node updates = random_partner(r, elem, &wanted, false);
    if (!updates) return 0;
    if (random_pick(r, 3)) x = random_constant(r, x, 0);
    n = takes ? graph_take_add(r->g, x, index, updates, axis) : graph_gather_add(r->g, x, index, updates, axis);
    if (n) random_set_stable(r, n, false);
    return n;
}

static inline node random_same(random_graph *r)
{
    node x = random_operand(r, NULL);
    if (!x) return 0;
    graph_code code = random_pick(r, 3) ? GRAPH_KEEP : random_pick(r, 2) ? GRAPH_AGAIN : GRAPH_DETACH;
    node n = graph_same(r->g, code, x, code == GRAPH_AGAIN ? 1 + random_pick(r, 2) : 0);
    if (n) random_set_stable(r, n, random_stable(r, x));
    return n;
}

#endif
