/*
 * What the generator of random tensor graphs stands on: its state, the numbers in the leaves' memory (which depend on a
 * storage's number alone, so the graph's text is all that a replay needs), choices of operands and leaves.
 *
 * What devices may compute to other last bits must not decide anything: comparisons, rounding, sorting and positions are
 * taken only of `stable` nodes, which have the same bits everywhere (leaves, integers, and what merely moves them), and
 * so are functions with a kink where gradients are wanted. Values stay below a limit, or the op is tried anew.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_RANDOM_STATE_H
#define QUERN_TESTS_RANDOM_STATE_H

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
    bool longer;   /* axes of some hundred elements, too */
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
    static const int extents[] = {1, 1, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 33},
                     longer[] = {24, 48, 64, 65, 96, 130, 256, 300, 700};
    if (r->options.longer && !random_pick(r, 4)) return longer[random_pick(r, COUNT(longer))];
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

#endif
