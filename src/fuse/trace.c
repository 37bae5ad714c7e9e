/*
 * Following nodes down to terms. In: a node and the map of its coordinates. Out: a term, or why there is none.
 * Invariants: a term's inputs are older; equal terms are one.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/trace.h"

#include <string.h>

/* A node at a map, followed once. */
typedef struct trace_visit {
    node n;
    int guard;
    const index_map *map;
    int term;
} trace_visit;

trace *trace_new(arena *memory, const graph *g, const bool *in_memory, const fuse_options *options, const space *s)
{
    trace *t = ARENA_NEW(memory, trace);
    t->memory = memory;
    t->g = g;
    t->in_memory = in_memory;
    t->mode = options->mode;
    t->check_indices = options->check_indices;
    t->space = *s;
    t->term_capacity = 32;
    t->terms = ARENA_ARRAY(memory, term, t->term_capacity);
    t->term_count = 1;
    t->term_index.memory = t->visit_index.memory = t->map_index.memory = memory;
    t->cut_axis = -1;
    return t;
}

static void know(trace *t, const trace_known *known)
{
    ARENA_PUSH(t->memory, t->known, t->known_count, t->known_capacity, *known);
}

void trace_know(trace *t, node n, const index_map *map)
{
    know(t, &(trace_known){.n = n, .map = *map});
}

void trace_know_fold(trace *t, node n, const index_map *map, const index_map *input)
{
    know(t, &(trace_known){.n = n, .map = *map, .fold = true, .input = *input});
}

int trace_fail(trace *t, const char *why)
{
    if (!t->why) t->why = why;
    return 0;
}

static uint64_t mix(uint64_t hash, uint64_t word);
static uint64_t mix_affine(uint64_t hash, const affine *a);

/* The one copy of a map. */
static const index_map *map_intern(trace *t, const index_map *m)
{
    uint64_t hash = (uint64_t)m->rank;
    for (int k = 0; k < m->rank; k++) hash = mix_affine(hash, &m->axes[k]);
    for (int at = 0, i; (i = hash_index_next(&t->map_index, hash, &at)) >= 0;)
        if (t->maps[i] == m || index_map_same(t->maps[i], m)) return t->maps[i];
    index_map *copy = ARENA_NEW(t->memory, index_map);
    copy->rank = m->rank;
    memcpy(copy->axes, m->axes, sizeof(affine) * (size_t)m->rank);
    hash_index_add(&t->map_index, hash, t->map_count);
    ARENA_PUSH(t->memory, t->maps, t->map_count, t->map_capacity, copy);
    return copy;
}

static uint64_t visit_hash(const trace *t, node n, const index_map *m)
{
    return mix(mix(n, (uintptr_t)m), (uint64_t)t->guard);
}

/* What the node at the map became before; 0: it was not followed yet. */
static int visit_find(const trace *t, node n, const index_map *m)
{
    for (int at = 0, i; (i = hash_index_next(&t->visit_index, visit_hash(t, n, m), &at)) >= 0;) {
        const trace_visit *v = &t->visits[i];
        if (v->n == n && v->map == m && v->guard == t->guard) return v->term;
    }
    return 0;
}

static void visit_add(trace *t, node n, const index_map *m, int x)
{
    trace_visit visit = {n, t->guard, m, x};
    hash_index_add(&t->visit_index, visit_hash(t, n, m), t->visit_count);
    ARENA_PUSH(t->memory, t->visits, t->visit_count, t->visit_capacity, visit);
}

/* ---- terms ---- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t mix_affine(uint64_t hash, const affine *a)
{
    hash = mix(hash, (uint64_t)a->constant);
    for (int i = 0; i < SPACE_AXES + SPACE_ATOMS; i++)
        if (a->factor[i]) hash = mix(mix(hash, (uint64_t)i), (uint64_t)a->factor[i]);
    return hash;
}

static uint64_t term_hash(const term *x)
{
    bool by_node = x->kind == TERM_ACCESS || x->kind == TERM_FOLD || x->kind == TERM_BOUND;
    uint64_t h = mix((uint64_t)x->kind << 40 ^ (uint64_t)x->op << 16 ^ (uint64_t)x->elem, by_node ? x->n : 0);
    for (int i = 0; i < x->input_count; i++) h = mix(h, (uint64_t)x->inputs[i]);
    uint64_t bits;
    memcpy(&bits, &x->number.f, sizeof(bits));
    h = mix(mix(h, bits), (uint64_t)x->number.i ^ (uint64_t)x->attr_index << 32 ^ (uint64_t)x->guarded << 50);
    if (x->map)
        for (int k = 0; k < x->map->rank; k++) h = mix_affine(h, &x->map->axes[k]);
    if (x->kind >= TERM_INDEX && x->kind <= TERM_QUOTIENT)
        h = mix(mix(mix_affine(h, &x->index), (uint64_t)x->low), (uint64_t)x->high);
    return h;
}

static bool term_same(const term *a, const term *b)
{
    if (a->kind != b->kind || a->elem != b->elem || a->op != b->op || a->input_count != b->input_count ||
        a->attr_index != b->attr_index || a->guarded != b->guarded || a->low != b->low || a->high != b->high)
        return false;
    if (memcmp(a->inputs, b->inputs, sizeof(a->inputs)) || memcmp(&a->number, &b->number, sizeof(number))) return false;
    if (a->kind == TERM_ACCESS || a->kind == TERM_FOLD || a->kind == TERM_BOUND)
        return a->n == b->n && index_map_same(a->map, b->map);
    return affine_same(&a->index, &b->index);
}

/* See term.rounded. */
static int rounded_types(const trace *t, const term *x)
{
    static const dtype narrow[] = {DT_F16, DT_BF16, DT_F8E4M3};
    int types = 0;
    switch (x->kind) {
    case TERM_ACCESS: return 1 << graph_get(t->g, x->n)->elem;
    case TERM_CONSTANT:
        for (int i = 0; i < COUNT(narrow) && x->elem == DT_F32; i++)
            if (round_to_dtype(narrow[i], x->number.f) == x->number.f) types |= 1 << narrow[i];
        return types;
    case TERM_FOLD: return x->fold == FOLD_MAX || x->fold == FOLD_MIN ? t->terms[x->inputs[0]].rounded : 0;
    case TERM_OP: break;
    default: return 0;
    }
    switch (x->op) {
    case OP_CONVERT: return 1 << t->terms[x->inputs[0]].elem;
    case OP_NEG:
    case OP_ABS: return t->terms[x->inputs[0]].rounded;
    case OP_MAX:
    case OP_MIN: return t->terms[x->inputs[0]].rounded & t->terms[x->inputs[1]].rounded;
    case OP_SELECT: return t->terms[x->inputs[1]].rounded & t->terms[x->inputs[2]].rounded;
    default: return 0;
    }
}

static int term_add(trace *t, term *x)
{
    uint64_t hash = term_hash(x);
    for (int at = 0, i; (i = hash_index_next(&t->term_index, hash, &at)) >= 0;)
        if (term_same(&t->terms[i], x)) return i;
    if (t->term_count >= TRACE_MOST_TERMS) trace_fail(t, "the kernel would be too long");
    for (int i = 0; i < x->input_count; i++) x->axes |= t->terms[x->inputs[i]].axes;
    if (x->map) x->map = map_intern(t, x->map);
    x->rounded = rounded_types(t, x);
    hash_index_add(&t->term_index, hash, t->term_count);
    ARENA_PUSH(t->memory, t->terms, t->term_count, t->term_capacity, *x);
    return t->term_count - 1;
}

dtype trace_elem(dtype elem)
{
    return dtype_is_narrow(elem) ? DT_F32 : elem;
}

int trace_op(trace *t, op_code op, dtype elem, node n, const int *inputs, int count)
{
    term x = {.kind = TERM_OP, .n = n, .elem = elem, .op = op, .input_count = count};
    for (int i = 0; i < count; i++) {
        if (!inputs[i]) return 0;
        x.inputs[i] = inputs[i];
    }
    return term_add(t, &x);
}

int trace_constant(trace *t, dtype elem, number value)
{
    return term_add(t, &(term){.kind = TERM_CONSTANT, .elem = elem, .number = value});
}

int trace_index(trace *t, const affine *a)
{
    term x = {.kind = TERM_INDEX, .elem = DT_I64, .index = *a, .axes = affine_axes(a, t->atom_axes)};
    return term_add(t, &x);
}

int trace_inside(trace *t, const affine *a, int64_t low, int64_t high)
{
    term x = {.kind = TERM_INSIDE, .elem = DT_BOOL, .index = *a, .low = low, .high = high};
    x.axes = affine_axes(a, t->atom_axes);
    return term_add(t, &x);
}

int trace_quotient(trace *t, const affine *a, int64_t divisor, int64_t modulus)
{
    term x = {.kind = TERM_QUOTIENT, .elem = DT_I64, .index = *a, .low = divisor, .high = modulus};
    x.axes = affine_axes(a, t->atom_axes);
    return term_add(t, &x);
}

int trace_atom(trace *t, int x)
{
    for (int i = 0; i < t->atom_count; i++)
        if (t->atoms[i] == x) return i;
    if (t->atom_count == SPACE_ATOMS) return -1;
    t->atoms[t->atom_count] = x;
    t->atom_axes[t->atom_count] = t->terms[x].axes;
    return t->atom_count++;
}

int trace_convert(trace *t, int x, dtype elem, node n)
{
    if (!x || t->terms[x].elem == elem) return x;
    return trace_op(t, OP_CONVERT, elem, n, &x, 1);
}

/* To the node's type and back to what it is computed in. */
static int round_always(trace *t, int x, dtype elem, node n)
{
    return trace_convert(t, trace_convert(t, x, elem, n), trace_elem(elem), n);
}

int trace_round(trace *t, int x, dtype elem, node n)
{
    return t->mode == FUSE_FUSED ? x : round_always(t, x, elem, n);
}

/* ---- arithmetic ---- */

static int map_term(trace *t, node n, const index_map *m)
{
    const graph_node *x = graph_get(t->g, n);
    int inputs[3] = {0};
    for (int i = 0; i < x->input_count; i++) {
        inputs[i] = trace_node(t, x->inputs[i], m);
        if (!inputs[i]) return 0;
    }
    dtype elem = trace_elem(x->elem), from = graph_get(t->g, x->inputs[0])->elem;
    if (x->attr.map == OP_CONVERT) return round_always(t, trace_convert(t, inputs[0], elem, n), x->elem, n);
    if (x->attr.map == OP_BITCAST) {
        inputs[0] = trace_convert(t, inputs[0], from, n); /* the bits of the type itself */
        return trace_convert(t, trace_op(t, OP_BITCAST, x->elem, n, inputs, 1), elem, n);
    }
    /* One side may have been through memory, and been rounded there, while the other is computed here once more: an element
     * must still be equal to the largest of its window. */
    bool compares = ops[x->attr.map].class == CLASS_COMPARE, rounds = compares && dtype_is_narrow(from);
    for (int i = 0; i < x->input_count; i++) rounds &= t->terms[inputs[i]].kind != TERM_CONSTANT;
    for (int i = 0; i < x->input_count && rounds; i++)
        if (!(t->terms[inputs[i]].rounded >> from & 1)) inputs[i] = round_always(t, inputs[i], from, n);
    term result = {.kind = TERM_OP, .n = n, .elem = elem, .op = x->attr.map, .attr_index = x->attr.index};
    result.input_count = x->input_count;
    memcpy(result.inputs, inputs, sizeof(int) * (size_t)x->input_count);
    int value = term_add(t, &result);
    return compares || x->attr.map == OP_SELECT ? value : trace_round(t, value, x->elem, n);
}

unsigned trace_folded_axes(const graph_node *x)
{
    return x->code == GRAPH_SCAN ? 1u << x->attr.axis : x->attr.axis_set;
}

static int known_term(trace *t, const trace_known *known, const index_map *m)
{
    const graph_node *x = graph_get(t->g, known->n);
    if (!index_map_same(m, &known->map))
        return trace_fail(t, "its values are needed at other places than they are computed at");
    if (!known->fold) {
        term bound = {.kind = TERM_BOUND, .n = known->n, .elem = trace_elem(x->elem), .map = m};
        for (int k = 0; k < m->rank; k++) bound.axes |= affine_axes(&m->axes[k], t->atom_axes);
        return term_add(t, &bound);
    }
    int guard = t->guard; /* what is read of it may be guarded; it is computed at every place of the space */
    t->guard = 0;
    int input = trace_node(t, x->inputs[0], &known->input);
    t->guard = guard;
    if (!input) return 0;
    term fold = {.kind = TERM_FOLD, .n = known->n, .elem = trace_elem(x->elem), .map = m, .fold = x->attr.fold};
    fold.inputs[0] = input;
    fold.input_count = 1;
    fold.scan = x->code == GRAPH_SCAN;
    for (int k = 0; k < known->input.rank; k++)
        if (trace_folded_axes(x) >> k & 1) fold.folded |= affine_axes(&known->input.axes[k], t->atom_axes);
    int id = term_add(t, &fold);
    t->terms[id].axes = 0;
    for (int k = 0; k < m->rank; k++) t->terms[id].axes |= affine_axes(&m->axes[k], t->atom_axes);
    return trace_round(t, id, x->elem, known->n);
}

/* Does a coordinate leave its axis? Where a reshape reads memory that is dense the last coordinate counts all of its
 * elements (index.c). Through arithmetic on the same elements that holds; what follows single axes would be wrong, and so
 * would memory that is not dense. Under a guard, and in strips, coordinates leave for other reasons, and are tested. */
static bool counts_elements(const trace *t, const shape *s, const index_map *m)
{
    for (int k = 0; k < m->rank && !t->guard && !t->strip_axes; k++) {
        const affine *a = &m->axes[k];
        int64_t high = a->constant;
        for (int i = 0; i < t->space.axis_count; i++) high += MAXIMUM(a->factor[i], 0) * (t->space.axes[i].extent - 1);
        if (high >= s->extents[k] && shape_count(s) && !affine_has_atoms(a)) return true;
    }
    return false;
}

static bool follows_elements(const trace *t, node n)
{
    const graph_node *x = graph_get(t->g, n);
    if (t->in_memory[n])
        return !t->leaves || !t->leaves[n].given ||
               strides_are_row_major(x->shape.rank, x->shape.extents, t->leaves[n].strides);
    if (x->code == GRAPH_EXPAND) return shape_count(&graph_get(t->g, x->inputs[0])->shape) == 1;
    return x->code == GRAPH_MAP || x->code == GRAPH_FULL || x->code == GRAPH_DETACH || x->code == GRAPH_KEEP ||
           x->code == GRAPH_AGAIN;
}

/* From its inputs. */
static int computed_term(trace *t, node n, const index_map *m)
{
    const graph_node *x = graph_get(t->g, n);
    index_map in;
    for (int i = 0; i < t->known_count; i++)
        if (t->known[i].n == n) return known_term(t, &t->known[i], m);
    switch (x->code) {
    case GRAPH_FULL: return trace_constant(t, trace_elem(x->elem), x->attr.number);
    case GRAPH_IOTA: return trace_index(t, &m->axes[0]);
    case GRAPH_MAP: return map_term(t, n, m);
    case GRAPH_PAD: return trace_pad(t, n, m);
    case GRAPH_CONCAT: return trace_concat(t, n, m);
    case GRAPH_REDUCE:
        if (t->unroll == UNROLL_NONE || !fold_is_small(t->g, n))
            return trace_fail(t, "it is computed by a kernel of its own");
        return trace_small_fold(t, n, m);
    case GRAPH_TAKE:
    case GRAPH_GATHER: return trace_take(t, n, m);
    case GRAPH_DETACH:
    case GRAPH_KEEP:
    case GRAPH_AGAIN:
    case GRAPH_RESHAPE:
    case GRAPH_PERMUTE:
    case GRAPH_EXPAND:
    case GRAPH_SLICE:
    case GRAPH_WINDOW: return trace_pull(t, n, 0, m, &in) ? trace_node(t, x->inputs[0], &in) : 0;
    default: return trace_fail(t, "it is computed by a kernel of its own");
    }
}

/* A strip may go beyond the last result: an access that would leave its node there is guarded by its own coordinate. */
static int guard_strip(trace *t, node n, const index_map *m)
{
    const shape *s = &graph_get(t->g, n)->shape;
    int guard = t->guard;
    for (int k = 0; k < m->rank && t->strip_axes; k++) {
        if (!(affine_axes(&m->axes[k], t->atom_axes) & t->strip_axes)) continue;
        int inside = trace_inside(t, &m->axes[k], 0, s->extents[k]), known_count = 0;
        index_known known[INDEX_KNOWN_MOST];
        bool there = false;
        trace_guard_sums(t, guard, known, &known_count);
        for (int i = 0; i < known_count; i++)
            there |= known[i].extent <= s->extents[k] && affine_same(&known[i].sum, &m->axes[k]);
        if (!there) guard = guard ? trace_op(t, OP_AND, DT_BOOL, 0, (int[]){guard, inside}, 2) : inside;
    }
    return guard;
}

int trace_node(trace *t, node n, const index_map *m)
{
    if (t->why || t->cut_axis >= 0) return 0;
    const graph_node *x = graph_get(t->g, n);
    m = map_intern(t, m);
    int id = visit_find(t, n, m);
    if (id) return id;
    if (counts_elements(t, &x->shape, m) && !follows_elements(t, n))
        return trace_fail(t, "its elements are counted in memory, where it follows single axes");
    if (t->in_memory[n]) {
        int guard = guard_strip(t, n, m);
        term access = {.kind = TERM_ACCESS, .n = n, .elem = trace_elem(x->elem), .map = m, .guarded = guard != 0};
        if (guard && t->unroll != UNROLL_NONE) { /* many accesses: each is tested once, by what guards it */
            access.inputs[0] = guard;
            access.input_count = 1;
        }
        for (int k = 0; k < m->rank; k++) access.axes |= affine_axes(&m->axes[k], t->atom_axes);
        id = term_add(t, &access);
    } else {
        id = computed_term(t, n, m);
    }
    if (id) visit_add(t, n, m, id);
    return id;
}
