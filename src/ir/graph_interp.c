/*
 * The interpreter of the tensor graph. In: a graph and the memory of its leaves. Out: elements of the wanted nodes.
 * One function an op, each written as the op's definition reads: for every element of the result, where it comes from.
 * Arithmetic is the tile interpreter's, so that an op of ops.def has one meaning.
 * Invariant: values[n] holds all elements of node n, rounded unless exact; every input is computed before its node.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_interp.h"

#include "ir/interp_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct machine {
    const graph *graph;
    const graph_memory *where;
    bool exact;
    arena *memory;
    cell **values;          /* by node; of a KERNEL: NULL */
    graph_tensor **outputs; /* by node: of a KERNEL */
    qn_error *error;
} machine;

/* ---- indices ---- */

static void index_of(const shape *s, int64_t at, int64_t index[GRAPH_RANK])
{
    for (int k = s->rank - 1; k >= 0; k--) {
        index[k] = at % s->extents[k];
        at /= s->extents[k];
    }
}

static int64_t place_of(const shape *s, const int64_t *index)
{
    int64_t at = 0;
    for (int k = 0; k < s->rank; k++) at = at * s->extents[k] + index[k];
    return at;
}

static const graph_node *input_node(const machine *m, const graph_node *n, int i)
{
    return graph_get(m->graph, n->inputs[i]);
}

static const cell *input(const machine *m, const graph_node *n, int i)
{
    return m->values[n->inputs[i]];
}

static cell cell_of(dtype elem, number n)
{
    cell c;
    if (dtype_is_float(elem))
        c.f = n.f;
    else
        c.i = n.i;
    return c;
}

static number number_of(dtype elem, cell c)
{
    number n = {0};
    if (dtype_is_float(elem))
        n.f = c.f;
    else
        n.i = c.i;
    return n;
}

/* ---- leaves ---- */

static qn_status leaf(const machine *m, const graph_node *n, int64_t count, cell *r)
{
    if (n->code == GRAPH_FULL) {
        for (int64_t j = 0; j < count; j++) r[j] = cell_of(n->elem, n->attr.number);
        return QN_OK;
    }
    if (n->code == GRAPH_IOTA) {
        for (int64_t j = 0; j < count; j++) r[j].i = j;
        return QN_OK;
    }
    const void *data = m->where && m->where->find ? m->where->find(m->where->context, n) : n->attr.storage;
    if (!data && count) return error_set(m->error, QN_BAD_CALL, "a leaf of the graph has no memory");
    for (int64_t j = 0; j < count; j++) {
        int64_t index[GRAPH_RANK], at = n->attr.offset;
        index_of(&n->shape, j, index);
        for (int k = 0; k < n->shape.rank; k++) at += index[k] * n->attr.strides[k];
        r[j] = cell_of(n->elem, element_read(n->elem, (const char *)data + at * dtypes[n->elem].size_bytes));
    }
    return QN_OK;
}

/* ---- arithmetic ---- */

static void map_fma(const graph_node *n, bool exact, int64_t count, const cell *x, const cell *y, const cell *z,
                    cell *r)
{
    for (int64_t j = 0; j < count; j++)
        r[j].f = n->elem == DT_F32 && !exact ? fmaf((float)x[j].f, (float)y[j].f, (float)z[j].f)
                                             : fma(x[j].f, y[j].f, z[j].f);
}

static void map_all(const machine *m, const graph_node *n, int64_t count, cell *r)
{
    /* Missing operands are the first again: no operation looks at them. */
    const cell *a = input(m, n, 0), *b = input(m, n, n->input_count > 1 ? 1 : 0),
               *c = input(m, n, n->input_count > 2 ? 2 : 0);
    dtype from = input_node(m, n, 0)->elem;
    switch (n->attr.map) {
    case OP_CONVERT: math_convert(from, n->elem, m->exact, count, a, 1, r); return;
    case OP_BITCAST: math_bitcast(from, n->elem, count, a, 1, r); return;
    case OP_FMA: map_fma(n, m->exact, count, a, b, c, r); return;
    case OP_SELECT:
        for (int64_t j = 0; j < count; j++) r[j] = a[j].i ? b[j] : c[j];
        return;
    case OP_PHILOX:
        for (int64_t j = 0; j < count; j++) {
            uint32_t words[4];
            philox_words((uint64_t)a[j].i, (uint64_t)b[j].i, (uint64_t)c[j].i, words);
            r[j].i = words[n->attr.index & 3];
        }
        return;
    default: break;
    }
    switch (ops[n->attr.map].class) {
    case CLASS_UNARY: math_unary(n->attr.map, from, count, a, 1, r); return;
    case CLASS_BINARY: math_binary(n->attr.map, from, count, a, 1, b, 1, r); return;
    default: math_compare(n->attr.map, from, count, a, 1, b, 1, r); return;
    }
}

/* ---- movement ---- */

/* Where element `index` of the result of a movement lies in its input; -1: nowhere, it is the pad's number. */
static int64_t source_of(const graph_node *n, const shape *from, int64_t index[GRAPH_RANK])
{
    int64_t source[GRAPH_RANK] = {0};
    const graph_attr *a = &n->attr;
    for (int k = 0; k < from->rank; k++) source[k] = index[k];
    switch (n->code) {
    case GRAPH_PERMUTE:
        for (int k = 0; k < from->rank; k++) source[a->axes[k]] = index[k];
        break;
    case GRAPH_EXPAND:
        for (int k = 0; k < from->rank; k++)
            if (from->extents[k] == 1) source[k] = 0;
        break;
    case GRAPH_SLICE:
        for (int k = 0; k < from->rank; k++) source[k] = a->start[k] + index[k] * a->step[k];
        break;
    case GRAPH_WINDOW: source[a->axis] = index[a->axis] * a->stride + index[from->rank] * a->dilation; break;
    default: /* PAD */
        for (int k = 0; k < from->rank; k++) {
            int64_t steps = index[k] - a->start[k];
            if (steps < 0 || steps % a->step[k] || steps / a->step[k] >= from->extents[k]) return -1;
            source[k] = steps / a->step[k];
        }
    }
    return place_of(from, source);
}

static void move(const machine *m, const graph_node *n, int64_t count, cell *r)
{
    const shape *from = &input_node(m, n, 0)->shape;
    const cell *x = input(m, n, 0);
    for (int64_t j = 0; j < count; j++) {
        int64_t index[GRAPH_RANK] = {0};
        index_of(&n->shape, j, index);
        int64_t at = n->code == GRAPH_RESHAPE ? j : source_of(n, from, index);
        r[j] = at < 0 ? cell_of(n->elem, n->attr.number) : x[at];
    }
}

static void concat(const machine *m, const graph_node *n, int64_t count, cell *r)
{
    int axis = n->attr.axis;
    for (int64_t j = 0; j < count; j++) {
        int64_t index[GRAPH_RANK] = {0};
        index_of(&n->shape, j, index);
        int i = 0;
        while (index[axis] >= input_node(m, n, i)->shape.extents[axis])
            index[axis] -= input_node(m, n, i++)->shape.extents[axis];
        r[j] = input(m, n, i)[place_of(&input_node(m, n, i)->shape, index)];
    }
}

/* ---- folds ---- */

static void reduce(const machine *m, const graph_node *n, int64_t count, cell *r)
{
    const graph_node *x = input_node(m, n, 0);
    fold_kind fold = n->attr.fold;
    bool position = fold == FOLD_ARGMAX || fold == FOLD_ARGMIN;
    int axis = __builtin_ctz(n->attr.axis_set);
    cell *best = position ? ARENA_ARRAY(m->memory, cell, count) : NULL;
    for (int64_t j = 0; j < count; j++) {
        r[j] = math_identity(fold, x->elem);
        if (position) r[j].i = -1;
    }
    for (int64_t j = 0, all = shape_count(&x->shape); j < all; j++) {
        int64_t index[GRAPH_RANK] = {0};
        index_of(&x->shape, j, index);
        int64_t at_axis = index[axis];
        for (int k = 0; k < x->shape.rank; k++)
            if (n->attr.axis_set >> k & 1) index[k] = 0;
        int64_t to = place_of(&n->shape, index);
        cell c = input(m, n, 0)[j];
        if (!position) {
            r[to] = math_fold(fold, x->elem, r[to], c);
        } else if (r[to].i < 0 || math_beats(fold, x->elem, c, best[to])) {
            r[to].i = at_axis;
            best[to] = c;
        }
    }
}

/* Elements along an axis lie `inner` apart; calls of the lines: line l of the axis starts at line_start. */
static int64_t line_start(const shape *s, int axis, int64_t line, int64_t *inner)
{
    *inner = 1;
    for (int k = axis + 1; k < s->rank; k++) *inner *= s->extents[k];
    return line / *inner * *inner * s->extents[axis] + line % *inner;
}

static void scan(const machine *m, const graph_node *n, int64_t count, cell *r)
{
    int64_t extent = n->shape.extents[n->attr.axis], inner;
    for (int64_t line = 0; extent && line < count / extent; line++) {
        int64_t at = line_start(&n->shape, n->attr.axis, line, &inner);
        cell sum = math_identity(n->attr.fold, n->elem);
        for (int64_t i = 0; i < extent; i++, at += inner)
            r[at] = sum = math_fold(n->attr.fold, n->elem, sum, input(m, n, 0)[at]);
    }
}

/* Whether x stands before y; NaN is the largest. */
static bool stands_before(dtype elem, bool descending, cell x, cell y)
{
    if (dtype_is_float(elem) && (isnan(x.f) || isnan(y.f)))
        return descending ? isnan(x.f) && !isnan(y.f) : isnan(y.f) && !isnan(x.f);
    return descending ? math_less(elem, y, x) : math_less(elem, x, y);
}

static void argsort(const machine *m, const graph_node *n, int64_t count, cell *r)
{
    dtype elem = input_node(m, n, 0)->elem;
    int64_t extent = n->shape.extents[n->attr.axis], inner;
    for (int64_t line = 0; extent && line < count / extent; line++) {
        int64_t start = line_start(&n->shape, n->attr.axis, line, &inner);
        const cell *x = input(m, n, 0) + start;
        for (int64_t i = 0; i < extent; i++) { /* by insertion: equal elements keep their order */
            int64_t to = i;
            while (to > 0 && stands_before(elem, n->attr.index, x[i * inner], x[r[start + (to - 1) * inner].i * inner]))
                to--;
            for (int64_t k = i; k > to; k--) r[start + k * inner] = r[start + (k - 1) * inner];
            r[start + to * inner].i = i;
        }
    }
}

static void dot(const machine *m, const graph_node *n, int64_t count, cell *r)
{
    int rank = n->shape.rank;
    int64_t rows = n->shape.extents[rank - 2], columns = n->shape.extents[rank - 1];
    bool is_float = dtype_is_float(n->elem);
    for (int64_t j = 0; j < count; j++) {
        int64_t column = j % columns, row = j / columns % rows, batch = j / columns / rows;
        double sum = 0;
        uint64_t whole = 0;
        for (int pair = 0; pair < n->input_count; pair += 2) {
            int64_t depth = input_node(m, n, pair)->shape.extents[rank - 1];
            const cell *a = input(m, n, pair) + (batch * rows + row) * depth;
            const cell *b = input(m, n, pair + 1) + batch * depth * columns + column;
            for (int64_t i = 0; i < depth; i++) {
                if (is_float)
                    sum += a[i].f * b[i * columns].f;
                else
                    whole += (uint64_t)a[i].i * (uint64_t)b[i * columns].i;
            }
        }
        if (is_float)
            r[j].f = sum;
        else
            r[j].i = (int64_t)whole;
    }
}

/* ---- access by index ---- */

/* The element of x that TAKE or GATHER reads for element `at` of `places` (the shape of what they give); -1: the index
 * lies outside, and *bad has it. */
static int64_t indexed(const graph_node *n, const shape *x, const graph_node *index_node, const cell *indices,
                       const shape *places, int64_t at, int64_t *bad)
{
    bool takes = n->code == GRAPH_TAKE || n->code == GRAPH_TAKE_ADD;
    int axis = n->attr.axis, more = takes ? index_node->shape.rank - 1 : 0; /* axes more than x has */
    int64_t index[GRAPH_RANK] = {0}, source[GRAPH_RANK] = {0};
    index_of(places, at, index);
    int64_t found = indices[takes ? place_of(&index_node->shape, index + axis) : at].i;
    for (int k = 0; k < x->rank; k++) source[k] = k < axis ? index[k] : k > axis ? index[k + more] : found;
    *bad = found;
    bool inside = found >= 0 && found < x->extents[axis];
    return inside ? place_of(x, source) : -1;
}

static qn_status by_index(const machine *m, const graph_node *n, int64_t count, cell *r)
{
    bool adds = n->code == GRAPH_TAKE_ADD || n->code == GRAPH_GATHER_ADD;
    const graph_node *x = input_node(m, n, 0), *index_node = input_node(m, n, 1);
    const shape *places = adds ? &input_node(m, n, 2)->shape : &n->shape;
    int64_t row = adds && places->rank && places->extents[0] ? shape_count(places) / places->extents[0] : 1;
    if (adds)
        for (int64_t j = 0; j < count; j++) r[j] = input(m, n, 0)[j];
    for (int64_t j = 0, all = shape_count(places); j < all; j++) {
        int64_t bad, at = indexed(n, &x->shape, index_node, input(m, n, 1), places, j, &bad);
        if (at < 0)
            return error_set(m->error, QN_FAILED, "%s: the index %lld lies outside axis %d of extent %lld",
                             graph_ops[n->code].text, (long long)bad, n->attr.axis,
                             (long long)x->shape.extents[n->attr.axis]);
        if (adds && n->attr.index && j >= row && input(m, n, 1)[j / row].i == input(m, n, 1)[j / row - 1].i) continue;
        if (adds)
            r[at] = math_fold(FOLD_SUM, n->elem, r[at], input(m, n, 2)[j]);
        else
            r[j] = input(m, n, 0)[at];
    }
    return QN_OK;
}

static qn_status run_sum(const machine *m, const graph_node *n, cell *r)
{
    const cell *index = input(m, n, 0), *updates = input(m, n, 1), *order = input(m, n, 2);
    int64_t count = n->shape.extents[0], row = count ? shape_count(&n->shape) / count : 0, first = 0;
    memset(r, 0, sizeof(*r) * (size_t)(count * row));
    for (int64_t p = 0; p < count; p++) {
        if (!p || index[p].i != index[p - 1].i) first = p;
        if (order[p].i < 0 || order[p].i >= count)
            return error_set(m->error, QN_FAILED, "run_sum: the order %lld lies outside %lld rows",
                             (long long)order[p].i, (long long)count);
        for (int64_t e = 0; e < row; e++)
            r[first * row + e] = math_fold(FOLD_SUM, n->elem, r[first * row + e], updates[order[p].i * row + e]);
    }
    return QN_OK;
}

/* ---- kernels ---- */

static graph_tensor tensor_of(const machine *m, node n)
{
    const graph_node *from = graph_get(m->graph, n);
    graph_tensor t = {.elem = from->elem, .shape = from->shape, .count = shape_count(&from->shape)};
    t.elements = ARENA_ARRAY(m->memory, number, MAXIMUM(t.count, 1));
    for (int64_t j = 0; j < t.count; j++) t.elements[j] = number_of(t.elem, m->values[n][j]);
    return t;
}

static qn_status call(machine *m, node at)
{
    const graph_node *n = graph_get(m->graph, at);
    const graph_kernel *k = n->attr.kernel;
    if (!m->where || !m->where->call)
        return error_set(m->error, QN_BAD_CALL, "%s: there is nothing here to run a kernel with", k->name);
    graph_tensor *inputs = ARENA_ARRAY(m->memory, graph_tensor, MAXIMUM(n->input_count, 1));
    graph_tensor *outputs = ARENA_ARRAY(m->memory, graph_tensor, k->output_count);
    for (int i = 0; i < n->input_count; i++) inputs[i] = tensor_of(m, n->inputs[i]);
    for (int i = 0; i < k->output_count; i++) {
        outputs[i] = (graph_tensor){k->output_elem[i], k->output_shape[i], shape_count(&k->output_shape[i]), NULL};
        outputs[i].elements = ARENA_ARRAY(m->memory, number, MAXIMUM(outputs[i].count, 1));
    }
    m->outputs[at] = outputs;
    return m->where->call(m->where->context, n, inputs, outputs, m->error);
}

/* ---- all nodes ---- */

static qn_status compute(machine *m, node at)
{
    const graph_node *n = graph_get(m->graph, at);
    if (n->code == GRAPH_KERNEL) return call(m, at);
    int64_t count = shape_count(&n->shape);
    cell *r = m->values[at] = ARENA_ARRAY(m->memory, cell, MAXIMUM(count, 1));
    switch (n->code) {
    case GRAPH_LEAF:
    case GRAPH_FULL:
    case GRAPH_IOTA: QN_TRY(leaf(m, n, count, r)); break;
    case GRAPH_MAP: map_all(m, n, count, r); break;
    case GRAPH_DETACH:
    case GRAPH_KEEP:
    case GRAPH_AGAIN:
        for (int64_t j = 0; j < count; j++) r[j] = input(m, n, 0)[j];
        break;
    case GRAPH_CONCAT: concat(m, n, count, r); break;
    case GRAPH_REDUCE: reduce(m, n, count, r); break;
    case GRAPH_SCAN: scan(m, n, count, r); break;
    case GRAPH_ARGSORT: argsort(m, n, count, r); break;
    case GRAPH_DOT: dot(m, n, count, r); break;
    case GRAPH_RUN_SUM: QN_TRY(run_sum(m, n, r)); break;
    case GRAPH_TAKE:
    case GRAPH_GATHER:
    case GRAPH_TAKE_ADD:
    case GRAPH_GATHER_ADD: QN_TRY(by_index(m, n, count, r)); break;
    case GRAPH_RESULT:
        for (int64_t j = 0; j < count; j++)
            r[j] = cell_of(n->elem, m->outputs[n->inputs[0]][n->attr.index].elements[j]);
        break;
    default: move(m, n, count, r); break;
    }
    if (n->elem != DT_BOOL && !(m->exact && dtype_is_float(n->elem))) math_round(n->elem, count, r);
    return QN_OK;
}

qn_status graph_interpret(const graph *g, const node *wanted, int wanted_count, const graph_memory *where, bool exact,
                          arena *memory, graph_tensor *results, qn_error *error)
{
    arena *scratch = arena_new();
    machine m = {g, where, exact, scratch, NULL, NULL, error};
    m.values = ARENA_ARRAY(scratch, cell *, g->node_count);
    m.outputs = ARENA_ARRAY(scratch, graph_tensor *, g->node_count);
    node *order = ARENA_ARRAY(scratch, node, g->node_count);
    int count = graph_order(g, wanted, wanted_count, order);
    qn_status status = QN_OK;
    for (int i = 0; i < count && !status; i++) status = compute(&m, order[i]);
    m.memory = memory;
    for (int i = 0; i < wanted_count && !status; i++) results[i] = tensor_of(&m, wanted[i]);
    arena_free(scratch);
    return status;
}

void graph_tensor_write(const graph_tensor *t, void *to)
{
    for (int64_t j = 0; j < t->count; j++)
        element_write(t->elem, (char *)to + j * dtypes[t->elem].size_bytes, t->elements[j]);
}

graph_tensor graph_tensor_read(dtype elem, const shape *s, const void *from, arena *memory)
{
    graph_tensor t = {elem, *s, shape_count(s), NULL};
    t.elements = ARENA_ARRAY(memory, number, MAXIMUM(t.count, 1));
    for (int64_t j = 0; j < t.count; j++)
        t.elements[j] = element_read(elem, (const char *)from + j * dtypes[elem].size_bytes);
    return t;
}
