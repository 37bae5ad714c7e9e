/*
 * Random tensor graphs. random_graph_make(seed) writes a graph of every class of op over leaves of every kind of view;
 * the numbers in a leaf's memory depend on its storage's number alone, so the graph's text is all that a replay needs.
 *
 * What devices may compute to other last bits must not decide anything: comparisons, rounding, sorting and positions are
 * taken only of `stable` nodes, which have the same bits everywhere (leaves, integers, and what merely moves them), and
 * so are functions with a kink where gradients are wanted. Values stay below LARGEST, or the op is tried anew.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_RANDOM_GRAPH_H
#define QUERN_TESTS_RANDOM_GRAPH_H

#include "ir/graph_build.h"
#include "ir/graph_interp.h"
#include "tensor/grad.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANDOM_ROOTS = 8, RANDOM_STORAGES = 4096, RANDOM_MOST_ELEMENTS = 2048 };

typedef struct random_options {
    int least_ops, most_ops;
    dtype type;    /* of the floats; DT_COUNT: any */
    bool gradient; /* roots are a loss and its gradients by the float leaves too */
} random_options;

typedef struct random_graph {
    arena *memory;
    graph *g;
    node roots[RANDOM_ROOTS];
    int root_count;
    /* Of the generator. */
    uint64_t state;
    random_options options;
    dtype type;
    node *pool; /* what may be an operand, in the order of making */
    int pool_count, pool_capacity;
    bool *stable; /* by node */
    int stable_capacity;
    int storages;
    node leaves[16]; /* of the float type, whole: gradients are taken by some of them */
    int leaf_count;
} random_graph;

/* ---- numbers in memory ---- */

static inline uint64_t random_hash(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Element i of storage k, as any type: floats between -2 and 2 that every type holds, integers between -8 and 7. */
static inline number random_number(int storage, int64_t i, dtype elem)
{
    uint64_t h = random_hash((uint64_t)storage << 40 ^ (uint64_t)i);
    int64_t small = (int64_t)(h % 16) - 8;
    number n = {0};
    if (dtype_is_float(elem))
        n.f = ((double)(int64_t)(h >> 8 & 255) - 127.5) / 64;
    else
        n.i = elem == DT_BOOL ? (int64_t)(h & 1) : integer_wrap(elem, small);
    return n;
}

/* How many elements of its storage a leaf reaches. */
static inline int64_t random_reach(const graph_node *leaf)
{
    int64_t reach = leaf->attr.offset + 1;
    for (int k = 0; k < leaf->shape.rank; k++)
        reach += MAXIMUM(leaf->attr.strides[k], 0) * MAXIMUM(leaf->shape.extents[k] - 1, 0);
    return reach;
}

static inline void *random_memory(int storage, dtype elem, int64_t count, arena *memory)
{
    int size = dtypes[elem].size_bytes;
    char *data = arena_alloc(memory, (size_t)(count * size) + 1);
    for (int64_t i = 0; i < count; i++) element_write(elem, data + i * size, random_number(storage, i, elem));
    return data;
}

static inline const void *random_find(void *context, const graph_node *leaf)
{
    return random_memory((int)(uintptr_t)leaf->attr.storage, leaf->elem, random_reach(leaf), context);
}

/* ---- choices ---- */

static inline int random_pick(random_graph *r, int count)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((r->state >> 33) % (uint64_t)count);
}

static inline const graph_node *random_at(const random_graph *r, node n)
{
    return graph_get(r->g, n);
}

static inline bool random_stable(const random_graph *r, node n)
{
    return (int)n < r->stable_capacity && r->stable[n];
}

static inline void random_set_stable(random_graph *r, node n, bool stable)
{
    while ((int)n >= r->stable_capacity)
        r->stable = arena_grow(r->memory, r->stable, (size_t)r->stable_capacity, &r->stable_capacity, sizeof(bool));
    r->stable[n] = stable;
}

typedef bool random_filter(const random_graph *r, node n);

/* A node of the pool that passes; newer ones more often. 0: none was found. */
static inline node random_operand(random_graph *r, random_filter *passes)
{
    for (int tries = 0; tries < 24; tries++) {
        int back = tries & 1 ? random_pick(r, r->pool_count) : random_pick(r, MINIMUM(r->pool_count, 6));
        node n = r->pool[r->pool_count - 1 - back];
        if (!passes || passes(r, n)) return n;
    }
    return 0;
}

static inline bool random_is_float(const random_graph *r, node n)
{
    return random_at(r, n)->elem == r->type;
}

static inline bool random_is_stable_float(const random_graph *r, node n)
{
    return random_is_float(r, n) && random_stable(r, n);
}

static inline bool random_is_integer(const random_graph *r, node n)
{
    return dtype_is_integer(random_at(r, n)->elem);
}

static inline bool random_is_bool(const random_graph *r, node n)
{
    return random_at(r, n)->elem == DT_BOOL;
}

static inline bool random_has_axes(const random_graph *r, node n)
{
    return random_at(r, n)->shape.rank > 0;
}

static inline int64_t random_extent(random_graph *r)
{
    static const int extents[] = {1, 1, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 33};
    return random_pick(r, 60) ? extents[random_pick(r, COUNT(extents))] : 0;
}

static inline shape random_shape(random_graph *r, int rank)
{
    shape s;
    do {
        s = (shape){.rank = rank};
        for (int k = 0; k < rank; k++) s.extents[k] = random_extent(r);
    } while (shape_count(&s) > RANDOM_MOST_ELEMENTS);
    return s;
}

/* A leaf of new memory: row-major, transposed, with gaps, backwards, or with axes that do not move. */
static inline node random_leaf(random_graph *r, dtype elem, const shape *s)
{
    int64_t strides[GRAPH_RANK] = {0}, offset = 0, inner = 1;
    int order[GRAPH_RANK], kind = random_pick(r, 3) ? 0 : 1 + random_pick(r, 4);
    for (int k = 0; k < s->rank; k++) order[k] = kind == 1 ? k : s->rank - 1 - k;
    for (int i = 0; i < s->rank; i++) {
        int k = order[i];
        strides[k] = inner;
        inner *= MAXIMUM(s->extents[k], 1);
        if (kind == 2) inner += random_pick(r, 3);
        if (kind == 3 && random_pick(r, 2)) {
            offset += strides[k] * MAXIMUM(s->extents[k] - 1, 0);
            strides[k] = -strides[k];
        }
        if (kind == 4 && random_pick(r, 2)) strides[k] = 0;
    }
    if (kind == 2) offset += random_pick(r, 5);
    node n = graph_leaf(r->g, elem, s, strides, offset, (void *)(uintptr_t)++r->storages);
    if (n) random_set_stable(r, n, true);
    if (kind <= 1 && elem == r->type && r->leaf_count < COUNT(r->leaves) && shape_count(s))
        r->leaves[r->leaf_count++] = n;
    return n;
}

static inline node random_full(random_graph *r, dtype elem, const shape *s)
{
    static const double numbers[] = {0, 1, -1, 0.5, 2, 3, -1.5};
    node n = graph_full_double(r->g, elem, s, numbers[random_pick(r, COUNT(numbers))]);
    random_set_stable(r, n, true);
    return n;
}

/* x broadcast to the shape, or 0. */
static inline node random_broadcast(random_graph *r, node x, const shape *to)
{
    const shape *from = &random_at(r, x)->shape;
    shape wide = {.rank = to->rank};
    if (from->rank > to->rank) return 0;
    for (int k = 0; k < to->rank; k++) {
        int at = k - (to->rank - from->rank);
        wide.extents[k] = at < 0 ? 1 : from->extents[at];
        if (wide.extents[k] != 1 && wide.extents[k] != to->extents[k]) return 0;
    }
    return graph_expand(r->g, graph_reshape(r->g, x, &wide), to);
}

/* Another operand of this type and shape: from the pool, perhaps broadcast; a leaf, perhaps broadcast; a constant. */
static inline node random_partner(random_graph *r, dtype elem, const shape *s, bool stable)
{
    for (int tries = 0; tries < 12 && random_pick(r, 4); tries++) {
        node n = random_operand(r, stable ? random_is_stable_float : NULL);
        if (!n || random_at(r, n)->elem != elem || (stable && !random_stable(r, n))) continue;
        node wide = shape_same(&random_at(r, n)->shape, s) ? n : random_broadcast(r, n, s);
        if (!wide) continue;
        if (wide != n) random_set_stable(r, wide, random_stable(r, n));
        return wide;
    }
    if (!random_pick(r, 4)) return random_full(r, elem, s);
    shape small = *s;
    if (random_pick(r, 2))
        for (int k = 0; k < s->rank; k++)
            if (random_pick(r, 2)) small.extents[k] = 1;
    node leaf = random_leaf(r, elem, &small);
    node wide = graph_expand(r->g, leaf, s);
    if (wide) random_set_stable(r, wide, true);
    return wide;
}

/* ---- ops: each gives a node, or 0 where it found nothing to work on ---- */

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
    static const dtype types[] = {DT_F32, DT_F64, DT_F16, DT_BF16, DT_I32, DT_I64, DT_U8, DT_BOOL};
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
    static const fold_kind folds[] = {FOLD_SUM, FOLD_SUM, FOLD_MAX, FOLD_MIN};
    node x = random_operand(r, random_has_axes);
    fold_kind fold = folds[random_pick(r, COUNT(folds))];
    if (!x || random_at(r, x)->elem == DT_BOOL) return 0;
    bool sums = fold == FOLD_SUM, is_float = dtype_is_float(random_at(r, x)->elem);
    if (!sums && r->options.gradient && !random_stable(r, x)) return 0;
    if (sums && is_float) x = graph_binary(r->g, OP_MUL, x, random_constant(r, x, 0.125));
    node n = graph_scan(r->g, fold, x, random_pick(r, random_at(r, x)->shape.rank));
    if (n) random_set_stable(r, n, random_stable(r, x) && !(sums && is_float));
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

/* ---- a whole graph ---- */

/* All floats are finite and below the limit. */
static inline bool random_tame(random_graph *r, const node *nodes, int count, double limit)
{
    arena *scratch = arena_new();
    graph_tensor *t = ARENA_ARRAY(scratch, graph_tensor, count);
    graph_memory where = {.find = random_find, .context = scratch};
    bool tame = !graph_interpret(r->g, nodes, count, &where, false, scratch, t, NULL);
    for (int i = 0; i < count && tame; i++)
        for (int64_t j = 0; j < t[i].count && tame && dtype_is_float(t[i].elem); j++)
            tame = fabs(t[i].elements[j].f) < limit; /* false for NaN */
    arena_free(scratch);
    return tame;
}

static inline void random_grow(random_graph *r)
{
    static const struct {
        int weight;
        node (*make)(random_graph *r);
    } kinds[] = {{18, random_unary},   {22, random_binary}, {22, random_move},  {12, random_reduce},
                 {4, random_integers}, {4, random_compare}, {4, random_select}, {4, random_convert},
                 {1, random_philox},   {2, random_scan},    {2, random_sort},   {6, random_dot},
                 {5, random_by_index}, {2, random_same}};
    int all = 0, at = 0;
    for (int i = 0; i < COUNT(kinds); i++) all += kinds[i].weight;
    int choice = random_pick(r, all);
    while (choice >= kinds[at].weight) choice -= kinds[at++].weight;
    int nodes = r->g->node_count, leaves = r->leaf_count, storages = r->storages;
    node n = kinds[at].make(r);
    bool fresh = n >= (node)nodes; /* an old one came out: nothing was added */
    if (r->g->status || !n || !fresh || !random_tame(r, &n, 1, 100)) {
        r->g->status = QN_OK;
        graph_truncate(r->g, nodes);
        for (int i = nodes; i < r->stable_capacity; i++) r->stable[i] = false;
        r->leaf_count = leaves;
        r->storages = storages;
        return;
    }
    ARENA_PUSH(r->memory, r->pool, r->pool_count, r->pool_capacity, n);
}

/* The loss is a weighted mean of the float roots; its gradients by up to three leaves join the roots. */
static inline void random_gradient(random_graph *r)
{
    graph *g = r->g;
    node loss = 0, inputs[3], gradients[3];
    int count = 0, nodes = g->node_count;
    for (int i = 0; i < r->root_count; i++) {
        const graph_node *at = random_at(r, r->roots[i]);
        int64_t elements = shape_count(&at->shape);
        if (!dtype_is_float(at->elem) || !elements) continue;
        shape s = at->shape;
        node weights = graph_leaf(g, r->type, &s, NULL, 0, (void *)(uintptr_t)++r->storages);
        node x = graph_binary(g, OP_MUL, graph_convert(g, r->roots[i], r->type), weights);
        x = graph_reduce(g, FOLD_SUM, x, (1u << s.rank) - 1);
        x = graph_reshape(g, x, &(shape){0});
        x = graph_binary(g, OP_MUL, x, graph_full_double(g, r->type, &(shape){0}, 1 / (double)elements));
        loss = loss ? graph_binary(g, OP_ADD, loss, x) : x;
    }
    for (int i = 0; i < r->leaf_count && count < 3 && r->root_count + count < RANDOM_ROOTS; i++)
        if (r->leaves[i] < (node)nodes) inputs[count++] = r->leaves[i];
    if (!loss || !count || !graph_gradient(g, loss, inputs, count, gradients) ||
        !random_tame(r, gradients, count, 10000)) {
        g->status = QN_OK;
        graph_truncate(g, nodes);
        return;
    }
    for (int i = 0; i < count; i++) r->roots[r->root_count++] = gradients[i];
}

static inline random_graph *random_graph_make(uint64_t seed, const random_options *options)
{
    static const dtype types[] = {DT_F32, DT_F32, DT_F32, DT_BF16, DT_F16, DT_F64};
    arena *memory = arena_new();
    random_graph *r = ARENA_NEW(memory, random_graph);
    r->memory = memory;
    r->g = graph_new(memory);
    r->state = random_hash(seed + 1);
    r->options = *options;
    r->type = options->type < DT_COUNT ? options->type : types[random_pick(r, COUNT(types))];
    for (int i = 1 + random_pick(r, 3); i > 0; i--) {
        shape s = random_shape(r, 1 + random_pick(r, 3));
        ARENA_PUSH(memory, r->pool, r->pool_count, r->pool_capacity, random_leaf(r, r->type, &s));
    }
    int ops = options->least_ops + random_pick(r, options->most_ops - options->least_ops + 1);
    for (int tries = 0; r->pool_count < ops && tries < 20 * ops; tries++) random_grow(r);
    /* What nothing uses is wanted, the newest first; and now and then something in the middle. */
    bool *used = ARENA_ARRAY(memory, bool, r->g->node_count);
    for (int n = 1; n < r->g->node_count; n++)
        for (int i = 0; i < random_at(r, (node)n)->input_count; i++) used[random_at(r, (node)n)->inputs[i]] = true;
    for (int i = r->pool_count - 1; i >= 0 && r->root_count < 5; i--)
        if (!used[r->pool[i]] || !random_pick(r, 12)) r->roots[r->root_count++] = r->pool[i];
    if (options->gradient) random_gradient(r);
    return r;
}

static inline void random_graph_free(random_graph *r)
{
    if (r) arena_free(r->memory);
}

#endif
