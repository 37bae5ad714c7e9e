/*
 * Movement in a trace: coordinates through views, pads, joins and indices. In: a movement (or an elementwise op) and the map
 * of its result, or of an input. Out: the map on the other side, or the term of a node that only moves what others compute.
 * Invariant: where an element may be missing, t->guard says when it is there while its input is followed.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/trace.h"

static int quotient_atom(void *context, const affine *a, int64_t divisor, int64_t modulus)
{
    trace *t = context;
    return trace_atom(t, trace_quotient(t, a, divisor, modulus));
}

void trace_guard_sums(const trace *t, int guard, index_known *known, int *count)
{
    const term *x = &t->terms[guard];
    if (!guard) return;
    if (x->kind == TERM_OP && x->op == OP_AND) {
        trace_guard_sums(t, x->inputs[0], known, count);
        trace_guard_sums(t, x->inputs[1], known, count);
    }
    if (x->kind != TERM_INSIDE || x->low < 0 || *count == INDEX_KNOWN_MOST) return;
    known[(*count)++] = (index_known){x->index, x->high};
}

bool trace_pull(trace *t, node n, int i, const index_map *m, index_map *out)
{
    const graph_node *x = graph_get(t->g, n);
    const shape *from = &graph_get(t->g, x->inputs[i])->shape;
    *out = *m;
    out->rank = from->rank;
    switch (x->code) {
    case GRAPH_MAP:
    case GRAPH_DETACH:
    case GRAPH_KEEP:
    case GRAPH_AGAIN: return true;
    case GRAPH_PERMUTE:
        for (int k = 0; k < m->rank; k++) out->axes[x->attr.axes[k]] = m->axes[k];
        return true;
    case GRAPH_EXPAND:
        for (int k = 0; k < m->rank; k++)
            if (from->extents[k] == 1) out->axes[k] = affine_constant(0);
        return true;
    case GRAPH_SLICE:
        for (int k = 0; k < m->rank; k++) {
            out->axes[k] = affine_constant(x->attr.start[k]);
            affine_add(&out->axes[k], &m->axes[k], x->attr.step[k]);
        }
        return true;
    case GRAPH_WINDOW:
        out->axes[x->attr.axis] = affine_constant(0);
        affine_add(&out->axes[x->attr.axis], &m->axes[x->attr.axis], x->attr.stride);
        affine_add(&out->axes[x->attr.axis], &m->axes[m->rank - 1], x->attr.dilation);
        return true;
    case GRAPH_RESHAPE: {
        int cut_axis, known_count = 0;
        int64_t cut_inner;
        index_known known[INDEX_KNOWN_MOST];
        trace_guard_sums(t, t->guard, known, &known_count);
        /* Coordinates that are tested (under a guard, and in strips, which may stick out) are those of the array's axes. */
        bool tested = t->guard || t->strip_axes;
        bool dense = t->leaves && !tested && t->in_memory[x->inputs[0]] && !t->leaves[x->inputs[0]].given;
        bool fine = index_reshape(&t->space, &x->shape, m, from, out, !t->uncut, &cut_axis, &cut_inner, known,
                                  known_count, dense, quotient_atom, t);
        if (fine) return true;
        if (cut_axis >= 0 && t->cut_axis < 0) {
            t->cut_axis = cut_axis;
            t->cut_inner = cut_inner;
        }
        if (cut_axis < 0) trace_fail(t, "a reshape mixes too many axes");
        return false;
    }
    default: return false;
    }
}

bool trace_push(trace *t, node n, int i, const index_map *m, index_map *out)
{
    const graph_node *x = graph_get(t->g, n);
    const shape *from = &graph_get(t->g, x->inputs[i])->shape;
    *out = *m;
    out->rank = x->shape.rank;
    switch (x->code) {
    case GRAPH_MAP:
    case GRAPH_DETACH:
    case GRAPH_KEEP:
    case GRAPH_AGAIN: return true;
    case GRAPH_PERMUTE:
        for (int k = 0; k < m->rank; k++) out->axes[k] = m->axes[x->attr.axes[k]];
        return true;
    case GRAPH_SCAN: return true;
    case GRAPH_SLICE: /* all of it, turned round or not */
        for (int k = 0; k < m->rank; k++) {
            int64_t extent = from->extents[k], start = x->attr.start[k], step = x->attr.step[k];
            if (x->shape.extents[k] != extent) return false;
            if (extent == 1 || (step == 1 && !start)) continue;
            if (step != -1 || start != extent - 1) return false;
            out->axes[k] = affine_constant(extent - 1);
            affine_add(&out->axes[k], &m->axes[k], -1);
        }
        return true;
    case GRAPH_REDUCE:
        for (int k = 0; k < m->rank; k++)
            if (x->attr.axis_set >> k & 1) out->axes[k] = affine_constant(0);
        return true;
    case GRAPH_RESHAPE: {
        int cut_axis;
        int64_t cut_inner;
        bool fine = index_reshape(&t->space, from, m, &x->shape, out, !t->uncut, &cut_axis, &cut_inner, NULL, 0, false,
                                  quotient_atom, t);
        if (!fine && cut_axis >= 0 && t->cut_axis < 0) {
            t->cut_axis = cut_axis;
            t->cut_inner = cut_inner;
        }
        return fine;
    }
    default: return false;
    }
}

/* Adds a condition to what guards the coordinates; returns what did before. */
static int guard_add(trace *t, int mask)
{
    int before = t->guard;
    if (mask) t->guard = before ? trace_op(t, OP_AND, DT_BOOL, 0, (int[]){before, mask}, 2) : mask;
    return before;
}

/* Of every step-th place: is it known which they are, whatever the coordinates? *rest: how far the places lie behind one;
 * *a becomes their number where that is 0. */
static bool is_stepped(const trace *t, affine *a, int64_t step, int64_t *rest)
{
    if (!t->strip_axes) return false;
    for (int i = 0; i < SPACE_AXES + SPACE_ATOMS; i++)
        if (a->factor[i] % step) return false;
    *rest = (a->constant % step + step) % step;
    if (*rest) return true;
    a->constant /= step;
    for (int i = 0; i < SPACE_AXES + SPACE_ATOMS; i++) a->factor[i] /= step;
    return true;
}

/* The map of a PAD's input, and the condition under which it has an element (0: always, -1: never); false: no room. */
static bool pad_input(trace *t, node n, const index_map *m, index_map *out, int *condition)
{
    const graph_node *x = graph_get(t->g, n);
    const shape *from = &graph_get(t->g, x->inputs[0])->shape;
    index_map in = *m;
    int mask = 0;
    for (int k = 0; k < m->rank; k++) {
        int64_t start = x->attr.start[k], step = x->attr.step[k], reach = (from->extents[k] - 1) * step + 1;
        in.axes[k].constant -= start;
        affine moved = in.axes[k];
        int inside = 0;
        int64_t rest = 0;
        bool stepped = step > 1 && is_stepped(t, &in.axes[k], step, &rest);
        if (rest) {
            *condition = -1;
            return true;
        }
        if (start > 0 || x->shape.extents[k] - start > reach || !from->extents[k])
            inside = trace_inside(t, &moved, 0, from->extents[k] ? reach : 0);
        if (step > 1 && !stepped) {
            int behind = trace_quotient(t, &moved, 1, step), zero = trace_constant(t, DT_I64, (number){0});
            int even = trace_op(t, OP_EQ, DT_BOOL, 0, (int[]){behind, zero}, 2);
            inside = inside ? trace_op(t, OP_AND, DT_BOOL, 0, (int[]){inside, even}, 2) : even;
            int atom = trace_atom(t, trace_quotient(t, &moved, step, 0));
            if (atom < 0) return trace_fail(t, "there are too many computed indices");
            in.axes[k] = affine_constant(0);
            in.axes[k].factor[SPACE_AXES + atom] = 1;
        }
        if (!inside) continue;
        mask = mask ? trace_op(t, OP_AND, DT_BOOL, 0, (int[]){mask, inside}, 2) : inside;
    }
    *out = in;
    *condition = mask;
    return true;
}

bool trace_pull_guarded(trace *t, node n, const index_map *m, index_map *out)
{
    const graph_node *x = graph_get(t->g, n);
    int mask = 0;
    if (x->code != GRAPH_PAD) return graph_ops[x->code].class == GRAPH_CLASS_MOVE && trace_pull(t, n, 0, m, out);
    if (!dtype_is_float(x->elem) || x->attr.number.f != 0 || !pad_input(t, n, m, out, &mask) || mask < 0) return false;
    guard_add(t, mask);
    return true;
}

int trace_pad(trace *t, node n, const index_map *m)
{
    const graph_node *x = graph_get(t->g, n);
    index_map in;
    int mask = 0;
    if (!pad_input(t, n, m, &in, &mask)) return 0;
    if (mask < 0) return trace_constant(t, trace_elem(x->elem), x->attr.number);
    int before = guard_add(t, mask);
    int value = trace_node(t, x->inputs[0], &in);
    t->guard = before;
    if (!mask || !value) return value;
    int fill = trace_constant(t, trace_elem(x->elem), x->attr.number);
    return trace_op(t, OP_SELECT, t->terms[value].elem, n, (int[]){mask, value, fill}, 3);
}

int trace_concat(trace *t, node n, const index_map *m)
{
    const graph_node *x = graph_get(t->g, n);
    int axis = x->attr.axis, result = 0;
    int64_t end = x->shape.extents[axis];
    for (int i = x->input_count - 1; i >= 0; i--) {
        int64_t length = graph_get(t->g, x->inputs[i])->shape.extents[axis], start = end - length;
        index_map in = *m;
        in.axes[axis].constant -= start;
        int here = trace_inside(t, &m->axes[axis], start, end), before = guard_add(t, here);
        int value = length ? trace_node(t, x->inputs[i], &in) : 0;
        t->guard = before;
        if (length && !value) return 0;
        if (value && result) {
            result = trace_op(t, OP_SELECT, t->terms[value].elem, n, (int[]){here, value, result}, 3);
        } else if (value) {
            result = value;
        }
        end = start;
    }
    if (!result && !t->why && t->cut_axis < 0) return trace_constant(t, trace_elem(x->elem), (number){0});
    return result;
}

/* One coordinate of x is the value of the index. */
int trace_take(trace *t, node n, const index_map *m)
{
    const graph_node *x = graph_get(t->g, n), *index = graph_get(t->g, x->inputs[1]);
    const shape *from = &graph_get(t->g, x->inputs[0])->shape;
    int axis = x->attr.axis, rank = index->shape.rank;
    index_map at = *m, in = *m;
    if (x->code == GRAPH_TAKE) {
        at.rank = rank;
        in.rank = from->rank;
        for (int k = 0; k < rank; k++) at.axes[k] = m->axes[axis + k];
        for (int k = axis + 1; k < from->rank; k++) in.axes[k] = m->axes[k - 1 + rank];
    }
    int place = trace_convert(t, trace_node(t, x->inputs[1], &at), DT_I64, n);
    if (!place) return 0;
    if (t->guard) { /* where nothing is taken, there is no index either */
        int zero = trace_constant(t, DT_I64, (number){0});
        place = trace_op(t, OP_SELECT, DT_I64, n, (int[]){t->guard, place, zero}, 3);
    }
    int atom = trace_atom(t, place);
    if (atom < 0) return trace_fail(t, "there are too many computed indices");
    in.axes[axis] = affine_constant(0);
    in.axes[axis].factor[SPACE_AXES + atom] = 1;
    if (t->check_indices) {
        int check = trace_inside(t, &in.axes[axis], 0, from->extents[axis]);
        bool there = false;
        for (int i = 0; i < t->check_count; i++) there |= t->checks[i] == check;
        if (!there) ARENA_PUSH(t->memory, t->checks, t->check_count, t->check_capacity, check);
    }
    return trace_node(t, x->inputs[0], &in);
}
