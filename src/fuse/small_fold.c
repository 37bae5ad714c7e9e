/*
 * Small folds: a reduction whose extents are structure (a window, a stencil, a few classes) is no loop but a chain of
 * terms, one for each element, in the thread that owns the result. So a pool is a map: its results are computed as any
 * others, equal elements of windows that overlap are one term, padding is the guard of an access, and nothing is
 * exchanged. In: a REDUCE and the map of its result. Out: the term of the chain's end.
 *
 * The order is that of the elements, axis by axis and the last one first, so that every mode and every grouping gives
 * the same bits.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/trace.h"

bool fold_is_small(const graph *g, node n)
{
    const graph_node *x = graph_get(g, n);
    if (x->code != GRAPH_REDUCE) return false;
    const shape *from = &graph_get(g, x->inputs[0])->shape;
    int64_t count = 1;
    for (int k = 0; k < from->rank; k++) {
        if (!(x->attr.axis_set >> k & 1)) continue;
        if (from->extents[k] > SMALL_FOLD_AXIS) return false;
        count *= from->extents[k];
    }
    return count > 1 && count <= SMALL_FOLD_MOST; /* of one element: a sum of -0 is 0 */
}

/* Were the last of these axes made by windows below n? maps: through arithmetic, too, of which one operand will do, since it
 * keeps the places of what it takes. */
static bool are_of_windows(const graph *g, const bool *in_memory, node n, unsigned axes, int maps)
{
    while (!in_memory[n]) {
        const graph_node *y = graph_get(g, n);
        if (y->code == GRAPH_WINDOW) {
            int last = y->shape.rank - 1;
            axes &= ~(1u << last); /* the new one; the others stand where they stood */
            if (!axes) return true;
        } else if (graph_ops[y->code].class == GRAPH_CLASS_MAP) {
            for (int i = 0; i < y->input_count && maps; i++)
                if (are_of_windows(g, in_memory, y->inputs[i], axes, maps - 1)) return true;
            return false;
        } else if (y->code != GRAPH_EXPAND && y->code != GRAPH_SLICE && y->code != GRAPH_DETACH &&
                   y->code != GRAPH_AGAIN) {
            return false;
        }
        n = y->inputs[0];
    }
    return false;
}

/* Other extents than those of windows may be small by chance (a last batch): a text of their own has to be worth it. */
bool fold_is_worth_a_text(const graph *g, const bool *in_memory, node n)
{
    enum { MOST_MAPS = 6 }; /* one upon the other */
    if (!fold_is_small(g, n)) return false;
    const graph_node *x = graph_get(g, n);
    return shape_count(&x->shape) >= SMALL_FOLD_RESULTS ||
           are_of_windows(g, in_memory, x->inputs[0], x->attr.axis_set, MOST_MAPS);
}

/* Are its folded axes those of windows? Then they lie over each other or side by side in what it reads. */
bool fold_is_window(const graph *g, const bool *in_memory, node n)
{
    const graph_node *x = graph_get(g, n);
    return are_of_windows(g, in_memory, x->inputs[0], x->attr.axis_set, 0);
}

/* Position i, one of a chain's, beats the best so far: NaN is the extreme, and of equal ones the first stays. */
static int beats(trace *t, fold_kind fold, int x, int best, node n)
{
    op_code worse = fold == FOLD_ARGMAX ? OP_LE : OP_GE;
    int no = trace_op(t, worse, DT_BOOL, n, (int[]){x, best}, 2), yes = trace_op(t, OP_NOT, DT_BOOL, n, &no, 1);
    if (!dtype_is_float(t->terms[best].elem)) return yes;
    int known = trace_op(t, OP_NOT, DT_BOOL, n, (int[]){trace_op(t, OP_ISNAN, DT_BOOL, n, &best, 1)}, 1);
    return trace_op(t, OP_AND, DT_BOOL, n, (int[]){known, yes}, 2);
}

static int combine(trace *t, fold_kind fold, int a, int b, node n)
{
    static const op_code codes[FOLD_COUNT] = {[FOLD_SUM] = OP_ADD, [FOLD_PROD] = OP_MUL, [FOLD_MAX] = OP_MAX,
                                              [FOLD_MIN] = OP_MIN, [FOLD_ANY] = OP_OR,   [FOLD_ALL] = OP_AND};
    CHECK(codes[fold]);
    return trace_op(t, codes[fold], t->terms[a].elem, n, (int[]){a, b}, 2);
}

/* Position of an extreme: the elements in order. */
static int fold_position(trace *t, node n, const index_map *m, int64_t count)
{
    const graph_node *x = graph_get(t->g, n);
    const shape *from = &graph_get(t->g, x->inputs[0])->shape;
    int64_t at[GRAPH_RANK] = {0};
    int best = 0, where = 0;
    for (int64_t i = 0; i < count; i++) {
        index_map in = *m;
        for (int k = 0; k < from->rank; k++)
            if (x->attr.axis_set >> k & 1) in.axes[k] = affine_constant(at[k]);
        int next = trace_node(t, x->inputs[0], &in);
        if (!next) return 0;
        int here = trace_constant(t, DT_I64, (number){.i = i});
        if (i) {
            int better = beats(t, x->attr.fold, next, best, n);
            where = trace_op(t, OP_SELECT, DT_I64, n, (int[]){better, here, where}, 3);
            best = trace_op(t, OP_SELECT, t->terms[next].elem, n, (int[]){better, next, best}, 3);
        } else {
            best = next;
            where = here;
        }
        for (int k = from->rank - 1; k >= 0; k--) { /* the next element, the last axis first */
            if (!(x->attr.axis_set >> k & 1)) continue;
            if (++at[k] < from->extents[k]) break;
            at[k] = 0;
        }
    }
    return where;
}

/* Along the last axis first: what a row of a window gives is the same term in every window that has the row. */
static int fold_axes(trace *t, node n, const index_map *m, int axis)
{
    const graph_node *x = graph_get(t->g, n);
    const shape *from = &graph_get(t->g, x->inputs[0])->shape;
    while (axis < from->rank && !(x->attr.axis_set >> axis & 1)) axis++;
    if (axis == from->rank) return trace_node(t, x->inputs[0], m);
    int result = 0;
    for (int64_t i = 0; i < from->extents[axis]; i++) {
        index_map in = *m;
        in.axes[axis] = affine_constant(i);
        int next = fold_axes(t, n, &in, axis + 1);
        if (!next) return 0;
        result = i ? combine(t, x->attr.fold, result, next, n) : next;
    }
    return result;
}

int trace_small_fold(trace *t, node n, const index_map *m)
{
    const graph_node *x = graph_get(t->g, n);
    const shape *from = &graph_get(t->g, x->inputs[0])->shape;
    bool position = x->attr.fold == FOLD_ARGMAX || x->attr.fold == FOLD_ARGMIN;
    int before = t->unrolled;
    int64_t count = 1;
    for (int k = 0; k < from->rank; k++)
        if (x->attr.axis_set >> k & 1) count *= from->extents[k];
    t->unrolled = (int)(MAXIMUM(before, 1) * count);
    if (t->unrolled > SMALL_FOLD_MOST) {
        if (!t->why) t->why = "windows of windows would be too long";
        return 0;
    }
    int had = t->term_count, result = position ? fold_position(t, n, m, count) : fold_axes(t, n, m, 0);
    if (!result) return 0;
    if (t->term_count - had > SMALL_FOLD_TERMS && !fold_is_window(t->g, t->in_memory, n))
        return trace_fail(t, "a chain of so many terms would be too long a text");
    t->unrolled = before;
    return position ? result : trace_round(t, result, x->elem, n);
}
