/*
 * Values of terms in a frame, loads and stores. In: a term. Out: a value of the frame's block.
 *
 * An array that is read at coordinates which are affine and inside becomes a strided view over exactly the kernel axes
 * it depends on, the widest stride first. Under a pad, a concat or a gather it is a view over its own axes, and indices
 * are computed; what lies outside is not touched, by the rules of the IR.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/lower_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

/* Small numbers belong to the text of a kernel, others to its sizes: a new batch changes no text. */
static bool is_literal(dtype elem, number n)
{
    if (elem == DT_BOOL) return true;
    if (dtype_is_float(elem)) return isinf(n.f) || isnan(n.f) || n.f == 0.5 || (fabs(n.f) <= 2 && n.f == floor(n.f));
    return n.i >= -2 && n.i <= 2;
}

static value number_value(lowering *l, tile_block *b, dtype elem, number n)
{
    n = dtype_is_float(elem) ? (number){.f = n.f} : (number){.i = n.i};
    if (is_literal(elem, n) || l->k->param_count > LOWER_PARAMS - 20) return lower_number(l, b, elem, n);
    return lower_scalar_value(l, b, lower_number_param(l, elem, n));
}

#define LITERAL_DIVISOR 16
#define LITERAL_OFFSET 256 /* where windows are structure, so is how far their elements lie apart */

static value size_value(lowering *l, tile_block *b, int64_t n)
{
    if (l->t->unroll != UNROLL_NONE && llabs(n) <= LITERAL_OFFSET) return lower_integer(l, b, n);
    return number_value(l, b, DT_I64, (number){.i = n});
}

/* What divides a position: strides and sizes of windows are structure, and by a literal a division is a multiplication. */
static value divisor_value(lowering *l, tile_block *b, int64_t n)
{
    return n <= LITERAL_DIVISOR ? lower_integer(l, b, n) : size_value(l, b, n);
}

static value scaled(lowering *l, tile_block *b, value x, int64_t factor)
{
    if (factor == 1) return x;
    return lower_op(l, b, OP_MUL, DT_I64, (value[]){x, size_value(l, b, factor)}, 2, 0);
}

static value sum_of(lowering *l, tile_block *b, value x, value y)
{
    return !x ? y : !y ? x : lower_op(l, b, OP_ADD, DT_I64, (value[]){x, y}, 2, 0);
}

/* ---- index arithmetic ---- */

/* What one step along a kernel axis adds to an affine expression. Axes of the space were taken as one because every
 * expression of the kernel goes on counting from one into the next; one that does not would be read wrongly. */
static int64_t axis_factor(const lowering *l, const affine *a, int axis)
{
    const space *s = &l->t->space;
    int64_t step = a->factor[l->innermost[axis]], unit = 1;
    for (int n = s->axis_count - 1; n >= 0; n--) {
        int i = l->order[n];
        if (l->axis_of[i] != axis) continue;
        CHECK(a->factor[i] == step * unit);
        unit *= s->axes[i].extent;
    }
    return step;
}

bool lower_is_linear(const lowering *l, const affine *a, int axis)
{
    const space *s = &l->t->space;
    int64_t step = a->factor[l->innermost[axis]], unit = 1;
    for (int n = s->axis_count - 1; n >= 0; n--) {
        int i = l->order[n];
        if (l->axis_of[i] != axis) continue;
        if (a->factor[i] != step * unit) return false;
        unit *= s->axes[i].extent;
    }
    return true;
}

static value iota(lowering *l, frame *f, int tile_axis)
{
    tile_op *op = tile_op_new(l->k, OP_IOTA, NULL, 0);
    op->attr.index = tile_axis;
    value v = tile_result(l->k, op, frame_type(f, DT_I64, 1u << tile_axis));
    tile_append(l->k, f->block, op);
    return v;
}

/* What a kernel axis adds that counts through its axes of the space at steps of their own: digit by digit. */
static value digits_value(lowering *l, frame *f, const affine *a, int axis)
{
    const space *s = &l->t->space;
    const lower_axis *x = &f->axes[axis];
    value position = x->tile ? iota(l, f, x->tile_axis) : 0, sum = 0;
    position = sum_of(l, f->block, position, x->start);
    int64_t unit = 1;
    for (int n = s->axis_count - 1; n >= 0; n--) {
        int i = l->order[n];
        if (l->axis_of[i] != axis) continue;
        bool outermost = true;
        for (int k = 0; k < n; k++) outermost &= l->axis_of[l->order[k]] != axis;
        value digit = position;
        if (unit != 1)
            digit = lower_op(l, f->block, OP_DIV, DT_I64, (value[]){digit, divisor_value(l, f->block, unit)}, 2, 0);
        if (!outermost)
            digit = lower_op(l, f->block, OP_MOD, DT_I64,
                             (value[]){digit, divisor_value(l, f->block, s->axes[i].extent)}, 2, 0);
        if (a->factor[i]) sum = sum_of(l, f->block, sum, scaled(l, f->block, digit, a->factor[i]));
        unit *= s->axes[i].extent;
    }
    return sum;
}

/* The part of an affine expression that is the same for the whole tile; 0: it is zero. The rest: *step along
 * *tile_axis, or tile atoms. Returns false if it depends on several tile axes or on tile atoms. */
static bool affine_parts(lowering *l, frame *f, const affine *a, value *start, int *tile_axis, int64_t *step)
{
    value sum = a->constant ? size_value(l, f->block, a->constant) : 0;
    bool simple = true;
    *tile_axis = -1;
    *step = 0;
    for (int i = 0; i < l->axis_count; i++) {
        const lower_axis *x = &f->axes[i];
        if (!lower_is_linear(l, a, i)) {
            CHECK(x->set);
            simple &= !x->tile;
            if (!x->tile) sum = sum_of(l, f->block, sum, digits_value(l, f, a, i));
            continue;
        }
        int64_t factor = axis_factor(l, a, i);
        if (!factor) continue;
        CHECK(x->set);
        if (x->start) sum = sum_of(l, f->block, sum, scaled(l, f->block, x->start, factor));
        if (!x->tile) continue;
        if (*tile_axis >= 0 || x->digit) simple = false;
        *tile_axis = x->tile_axis;
        *step = factor;
    }
    for (int i = 0; i < l->t->atom_count; i++) {
        int64_t factor = a->factor[SPACE_AXES + i];
        if (!factor) continue;
        value atom = lower_term(l, f, l->t->atoms[i]);
        if (tile_type_of(l->k, atom).rank)
            simple = false;
        else
            sum = sum_of(l, f->block, sum, scaled(l, f->block, atom, factor));
    }
    *start = sum;
    return simple;
}

void lower_digits(lowering *l, frame *f, const int *axes, int count)
{
    value left = iota(l, f, 0);
    for (int i = count - 1; i >= 0; i--) {
        value extent = lower_extent(l, axes[i]);
        frame_tile(f, axes[i], 0, 0, false);
        f->axes[axes[i]].digit = i ? lower_op(l, f->block, OP_MOD, DT_I64, (value[]){left, extent}, 2, 0) : left;
        if (i) left = lower_op(l, f->block, OP_DIV, DT_I64, (value[]){left, extent}, 2, 0);
    }
}

static value affine_value(lowering *l, frame *f, const affine *a)
{
    value sum;
    int tile_axis;
    int64_t step;
    affine_parts(l, f, a, &sum, &tile_axis, &step);
    for (int i = 0; i < l->axis_count; i++) {
        if (!lower_is_linear(l, a, i)) {
            if (f->axes[i].tile) sum = sum_of(l, f->block, sum, digits_value(l, f, a, i));
            continue;
        }
        int64_t factor = axis_factor(l, a, i);
        if (!factor || !f->axes[i].tile) continue;
        value along = f->axes[i].digit ? f->axes[i].digit : iota(l, f, f->axes[i].tile_axis);
        sum = sum_of(l, f->block, sum, scaled(l, f->block, along, factor));
    }
    for (int i = 0; i < l->t->atom_count; i++) {
        int64_t factor = a->factor[SPACE_AXES + i];
        if (!factor) continue;
        value atom = lower_term(l, f, l->t->atoms[i]);
        if (tile_type_of(l->k, atom).rank) sum = sum_of(l, f->block, sum, scaled(l, f->block, atom, factor));
    }
    return sum ? sum : lower_integer(l, f->block, 0);
}

static value bound(lowering *l, frame *f, int tile_axis, value start, value step, value extent)
{
    tile_op *op = tile_op_new(l->k, OP_BOUND, (value[]){start, step, extent}, 3);
    op->attr.index = MAXIMUM(tile_axis, 0);
    value v = tile_result(l->k, op, frame_type(f, DT_BOOL, tile_axis < 0 ? 0 : 1u << tile_axis));
    tile_append(l->k, f->block, op);
    return v;
}

/* Does it go along no axis of the tile? */
static bool is_same_for_tile(const lowering *l, const frame *f, const affine *a)
{
    for (int i = 0; i < l->t->space.axis_count; i++)
        if (a->factor[i] && f->axes[l->axis_of[i]].tile) return false;
    return true;
}

static value inside_value(lowering *l, frame *f, const term *x)
{
    affine moved = x->index;
    moved.constant -= x->low;
    bool known = f->inside || (f->rows_inside && is_same_for_tile(l, f, &moved));
    if (known && !affine_has_atoms(&moved)) return lower_number(l, f->block, DT_BOOL, (number){.i = 1});
    value start, extent = number_value(l, f->block, DT_I64, (number){.i = x->high - x->low});
    int tile_axis;
    int64_t step;
    if (affine_parts(l, f, &moved, &start, &tile_axis, &step)) {
        if (!start) start = lower_integer(l, f->block, 0);
        return bound(l, f, tile_axis, start, size_value(l, f->block, tile_axis < 0 ? 1 : step), extent);
    }
    value v = affine_value(l, f, &moved), zero = lower_integer(l, f->block, 0);
    value low = lower_op(l, f->block, OP_GE, DT_BOOL, (value[]){v, zero}, 2, 0);
    value high = lower_op(l, f->block, OP_LT, DT_BOOL, (value[]){v, extent}, 2, 0);
    return lower_op(l, f->block, OP_AND, DT_BOOL, (value[]){low, high}, 2, 0);
}

static value both(lowering *l, frame *f, value a, value b)
{
    return a ? lower_op(l, f->block, OP_AND, DT_BOOL, (value[]){a, b}, 2, 0) : b;
}

/* 0 <= the coordinate < limit in the whole tile. */
static value tile_inside(lowering *l, frame *f, const affine *a, value limit)
{
    value start;
    int tile_axis;
    int64_t step, low = 0, high = 0;
    affine_parts(l, f, a, &start, &tile_axis, &step);
    if (!start) start = lower_integer(l, f->block, 0);
    for (int i = 0; i < l->axis_count; i++) {
        int64_t reach = f->axes[i].tile ? axis_factor(l, a, i) * (f->dims[f->axes[i].tile_axis] - 1) : 0;
        low += MINIMUM(reach, 0);
        high += MAXIMUM(reach, 0);
    }
    value first = sum_of(l, f->block, start, low ? lower_integer(l, f->block, low) : 0);
    value last = sum_of(l, f->block, start, high ? lower_integer(l, f->block, high) : 0);
    value above = lower_op(l, f->block, OP_GE, DT_BOOL, (value[]){first, lower_integer(l, f->block, 0)}, 2, 0);
    value below = lower_op(l, f->block, OP_LT, DT_BOOL, (value[]){last, limit}, 2, 0);
    return both(l, f, above, below);
}

/* Is there a like condition that holds nowhere beyond where this one does? One with a smaller constant and one with a
 * larger one say all that those between them say. */
static bool is_between(const trace *t, int id)
{
    const term *x = &t->terms[id];
    bool below = false, above = false;
    for (int i = 1; i < t->term_count; i++) {
        const term *y = &t->terms[i];
        if (i == id || y->kind != TERM_INSIDE || y->high - y->low != x->high - x->low) continue;
        affine like = y->index;
        like.constant = x->index.constant;
        if (!affine_same(&like, &x->index)) continue;
        int64_t apart = (y->index.constant - y->low) - (x->index.constant - x->low);
        below |= apart < 0 || (!apart && i < id);
        above |= apart > 0 || (!apart && i < id);
    }
    return below && above;
}

value lower_whole(lowering *l, frame *f, bool rows)
{
    value whole = 0;
    for (int i = 0; i < l->axis_count && !rows; i++) {
        affine along = {0};
        if (!f->axes[i].tile || !f->axes[i].outside) continue;
        for (int n = l->t->space.axis_count - 1, unit = 1; n >= 0; n--) {
            int k = l->order[n];
            if (l->axis_of[k] != i) continue;
            along.factor[k] = unit;
            unit *= (int)l->t->space.axes[k].extent;
        }
        whole = both(l, f, whole, tile_inside(l, f, &along, lower_extent(l, i)));
    }
    for (int i = 1; i < l->t->term_count; i++) {
        const term *x = &l->t->terms[i];
        if (x->kind != TERM_INSIDE || affine_has_atoms(&x->index) || is_between(l->t, i)) continue;
        if (rows && !is_same_for_tile(l, f, &x->index)) continue;
        affine moved = x->index;
        moved.constant -= x->low;
        whole = both(l, f, whole,
                     tile_inside(l, f, &moved, number_value(l, f->block, DT_I64, (number){.i = x->high - x->low})));
    }
    return whole ? whole : lower_number(l, f->block, DT_BOOL, (number){.i = 1});
}

static value quotient_value(lowering *l, frame *f, const term *x)
{
    value v = affine_value(l, f, &x->index);
    if (x->low != 1) v = lower_op(l, f->block, OP_DIV, DT_I64, (value[]){v, divisor_value(l, f->block, x->low)}, 2, 0);
    if (x->high) v = lower_op(l, f->block, OP_MOD, DT_I64, (value[]){v, divisor_value(l, f->block, x->high)}, 2, 0);
    return v;
}

static value mask_of(lowering *l, frame *f, unsigned tile_axes);

static unsigned own_axes(const tile_type *type)
{
    unsigned axes = 0;
    for (int i = 0; i < type->rank; i++) axes |= (unsigned)(type->dims[i] != 1) << i;
    return axes;
}

/* ---- memory ---- */

/* An access under construction: its operands and the tile axes it reaches. */
typedef struct reach {
    access access;
    value operands[3 + 3 * MAX_RANK];
    int operand_count;
    unsigned tile_axes;
} reach;

static void reach_scalar(reach *r, value at, bool safe)
{
    int i = r->access.rank++;
    r->access.kind[i] = INDEX_SCALAR;
    r->access.safe[i] = safe;
    r->operands[r->operand_count++] = at;
}

static void reach_slice(lowering *l, frame *f, reach *r, value start, value step, int tile_axis, bool safe)
{
    int i = r->access.rank++;
    r->access.kind[i] = INDEX_SLICE;
    r->access.result_axis[i] = tile_axis;
    r->access.safe[i] = safe;
    r->operands[r->operand_count++] = start ? start : lower_integer(l, f->block, 0);
    r->operands[r->operand_count++] = step ? step : lower_integer(l, f->block, 1);
    r->tile_axes |= 1u << tile_axis;
}

static void reach_tile(lowering *l, reach *r, value at)
{
    int i = r->access.rank++;
    tile_type type = tile_type_of(l->k, at);
    r->access.kind[i] = INDEX_TILE;
    r->operands[r->operand_count++] = at;
    for (int k = 0; k < type.rank; k++)
        if (type.dims[k] != 1) r->tile_axes |= 1u << k;
}

static int by_stride(const void *a, const void *b)
{
    const int64_t *x = a, *y = b; /* stride, kernel axis */
    int64_t p = llabs(x[0]), q = llabs(y[0]);
    return p != q ? (p < q ? 1 : -1) : x[1] < y[1] ? -1 : x[1] > y[1];
}

/* Places of one array that differ by constants (the elements of a window): axes of the view, each with a literal index. */
typedef struct family {
    int count;
    int64_t strides[GRAPH_RANK], extents[GRAPH_RANK], at[GRAPH_RANK];
} family;

/* Do two maps differ in their constants alone? */
static bool are_neighbours(const index_map *a, const index_map *b)
{
    for (int k = 0; k < a->rank; k++) {
        affine x = a->axes[k];
        x.constant = b->axes[k].constant;
        if (!affine_same(&x, &b->axes[k])) return false;
    }
    return true;
}

static bool is_whole(const term *x)
{
    bool whole = !x->guarded;
    for (int k = 0; k < x->map->rank; k++) whole &= !affine_has_atoms(&x->map->axes[k]);
    return whole;
}

/* The family of an access; *place becomes that of its first member. */
static family family_of(const lowering *l, const term *x, affine *place)
{
    family all = {0};
    int64_t low[GRAPH_RANK], high[GRAPH_RANK];
    int rank = x->map->rank;
    if (l->t->unroll == UNROLL_NONE) return all;
    for (int k = 0; k < rank; k++) low[k] = high[k] = x->map->axes[k].constant;
    for (int i = 1; i < l->t->term_count; i++) {
        const term *y = &l->t->terms[i];
        if (y->kind != TERM_ACCESS || y->n != x->n || !is_whole(y) || !are_neighbours(x->map, y->map)) continue;
        for (int k = 0; k < rank; k++) {
            low[k] = MINIMUM(low[k], y->map->axes[k].constant);
            high[k] = MAXIMUM(high[k], y->map->axes[k].constant);
        }
    }
    index_map first = *x->map;
    for (int k = 0; k < rank; k++) {
        if (low[k] == high[k]) continue;
        index_map unit = {.rank = rank};
        unit.axes[k].constant = 1;
        const index_map zero = {.rank = rank};
        all.strides[all.count] = lower_place(l, x->n, &unit).constant - lower_place(l, x->n, &zero).constant;
        all.extents[all.count] = high[k] - low[k] + 1;
        all.at[all.count++] = first.axes[k].constant - low[k];
        first.axes[k].constant = low[k];
    }
    *place = lower_place(l, x->n, &first);
    return all;
}

enum { CHANNELS = 64, MOST_TAPS = 16 };

/* The digits of one kernel axis; neighbours that all sums go through as one are one. */
static axis_digits digits_of(const lowering *l, const affine *place, const affine *guards, int guard_count, int axis)
{
    const space *s = &l->t->space;
    axis_digits d = {0};
    for (int n = 0; n < s->axis_count; n++) {
        int i = l->order[n];
        if (l->axis_of[i] != axis) continue;
        int64_t extent = s->axes[i].extent, last = d.count - 1;
        bool joins = d.count && d.stride[last] == place->factor[i] * extent;
        for (int g = 0; g < guard_count && joins; g++) joins = d.guard[g][last] == guards[g].factor[i] * extent;
        int to = joins ? (int)last : d.count++;
        if (d.count > DIGITS_MOST) return d;
        d.extent[to] = joins ? d.extent[to] * extent : extent;
        d.stride[to] = place->factor[i];
        for (int g = 0; g < guard_count; g++) d.guard[g][to] = guards[g].factor[i];
    }
    /* Whatever is left: the text is the same for all batches. Of elements of windows before channels along memory it is
     * told, so that the copy engine can walk them. */
    bool channels = d.count > 1 && d.stride[d.count - 1] == 1 && d.extent[d.count - 1] % CHANNELS == 0;
    if (!channels || d.extent[0] > MOST_TAPS) d.extent[0] = 0;
    return d;
}

/* A place in memory that counts through kernel axes digit by digit, or exists only where sums lie inside. */
static void reach_digits(lowering *l, frame *f, param_kind kind, node base, const affine *place, const term *inside,
                         int guard_count, reach *r)
{
    param_digits *d = ARENA_NEW(l->memory, param_digits);
    affine guards[GUARDS_MOST];
    int axes[SPACE_AXES];
    d->guard_count = guard_count;
    for (int g = 0; g < guard_count; g++) {
        guards[g] = inside[g].index;
        d->guard_first[g] = guards[g].constant - inside[g].low;
        d->guard_extent[g] = inside[g].high - inside[g].low;
    }
    d->origin = MINIMUM(place->constant, 0);
    fuse_argument view = {.base = base, .offset = place->constant - d->origin};
    for (int i = 0; i < l->axis_count; i++) {
        axis_digits digits = digits_of(l, place, guards, guard_count, i);
        bool used = false;
        if (digits.count > DIGITS_MOST) l->why = "an axis of the product has too many pieces";
        for (int k = 0; k < digits.count; k++) {
            used |= digits.stride[k] != 0;
            for (int g = 0; g < guard_count; g++) used |= digits.guard[g][k] != 0;
        }
        if (!used) continue;
        d->axes[view.rank] = digits;
        view.extents[view.rank] = l->extents[i];
        axes[view.rank++] = i;
    }
    int64_t step = 1;
    for (int i = view.rank - 1; i >= 0; i--) { /* the positions of what is written lie apart */
        view.strides[i] = kind == PARAM_IN ? 0 : step;
        step *= MAXIMUM(view.extents[i], 1);
    }
    if (l->why) return;
    r->access.array = lower_array(l, kind, base, &view, axes, d);
    if (r->access.array < 0) return;
    for (int i = 0; i < view.rank; i++) {
        const lower_axis *x = &f->axes[axes[i]];
        CHECK(x->set);
        if (x->tile)
            reach_slice(l, f, r, x->start, 0, x->tile_axis, !x->outside);
        else
            reach_scalar(r, x->start, true);
    }
}

/* Everything of a place in memory that depends on kernel axes alone: one strided view. */
static void reach_view(lowering *l, frame *f, param_kind kind, node base, const affine *place, const family *near,
                       reach *r)
{
    int64_t axes[SPACE_AXES][2];
    int count = 0, order[MAX_RANK], first = near ? near->count : 0;
    for (int i = 0; i < l->axis_count; i++) {
        if (lower_is_linear(l, place, i)) continue;
        reach_digits(l, f, kind, base, place, NULL, 0, r);
        return;
    }
    for (int i = 0; i < l->axis_count; i++) {
        int64_t stride = axis_factor(l, place, i);
        if (!stride) continue;
        axes[count][0] = stride;
        axes[count++][1] = i;
    }
    qsort(axes, (size_t)count, sizeof(axes[0]), by_stride);
    if (first + count > MAX_RANK) {
        l->why = "a window has more axes than an array can have";
        return;
    }
    fuse_argument view = {.base = base, .rank = first + count, .offset = place->constant};
    for (int i = 0; i < first; i++) {
        order[i] = -1;
        view.extents[i] = near->extents[i];
        view.strides[i] = near->strides[i];
    }
    for (int i = 0; i < count; i++) {
        order[first + i] = (int)axes[i][1];
        view.extents[first + i] = l->extents[order[first + i]];
        view.strides[first + i] = axes[i][0];
    }
    r->access.array = lower_array(l, kind, base, &view, order, NULL);
    if (r->access.array < 0) return;
    for (int i = 0; i < first; i++) reach_scalar(r, lower_integer(l, f->block, near->at[i]), true);
    for (int i = first; i < first + count; i++) {
        const lower_axis *x = &f->axes[order[i]];
        CHECK(x->set);
        if (x->tile && x->digit) {
            reach_tile(l, r, x->digit);
            r->access.safe[r->access.rank - 1] = true;
        } else if (x->tile)
            reach_slice(l, f, r, x->start, 0, x->tile_axis, !x->outside);
        else
            reach_scalar(r, x->start, true);
    }
}

/* Index tiles of elements that do not exist are not looked at. */
static void reach_existing(lowering *l, frame *f, reach *r)
{
    bool tiles = false;
    for (int i = 0; i < r->access.rank; i++) tiles |= r->access.kind[i] == INDEX_TILE;
    value mask = tiles ? mask_of(l, f, r->tile_axes) : 0;
    if (!mask) return;
    r->operands[r->operand_count++] = mask;
    r->access.mask_count++;
}

/* Under a pad or a concat a coordinate may lie outside: what is selected away later is not read now. */
static void reach_guard(lowering *l, frame *f, reach *r)
{
    int operand = 0, rank = r->access.rank;
    for (int i = 0; i < rank; i++) {
        value at = r->operands[operand];
        operand += r->access.kind[i] == INDEX_SLICE ? 2 : 1;
        if (r->access.kind[i] == INDEX_SLICE || r->access.safe[i]) continue;
        value extent = lower_scalar_value(l, f->block, l->k->params[r->access.array].extent_param[i]);
        value zero = lower_integer(l, f->block, 0);
        value low = lower_op(l, f->block, OP_GE, DT_BOOL, (value[]){at, zero}, 2, 0);
        value high = lower_op(l, f->block, OP_LT, DT_BOOL, (value[]){at, extent}, 2, 0);
        r->operands[r->operand_count++] = lower_op(l, f->block, OP_AND, DT_BOOL, (value[]){low, high}, 2, 0);
        r->access.mask_count++;
    }
}

/* Does the condition say that the coordinate lies inside an axis of this extent? */
static bool says_inside(const trace *t, int condition, const affine *a, int64_t extent)
{
    const term *x = &t->terms[condition];
    if (x->kind == TERM_INSIDE) return x->low >= 0 && x->high <= extent && affine_same(&x->index, a);
    if (x->kind != TERM_OP || x->op != OP_AND) return false;
    return says_inside(t, x->inputs[0], a, extent) || says_inside(t, x->inputs[1], a, extent);
}

/* An axis of a view for an access by computed indices: of the node, with its own coordinate, or a kernel axis. */
typedef struct own_axis {
    int64_t stride, extent;
    int axis, kernel_axis; /* one of them is -1 */
} own_axis;

static int by_own_stride(const void *a, const void *b)
{
    const own_axis *x = a, *y = b;
    int64_t p = llabs(x->stride), q = llabs(y->stride);
    if (p != q) return p < q ? 1 : -1;
    return x->axis != y->axis ? (x->axis < y->axis ? -1 : 1) : x->kernel_axis - y->kernel_axis;
}

static int own_axes_of(const lowering *l, const term *x, own_axis *list, int64_t *offset)
{
    const graph_node *n = graph_get(l->t->g, x->n);
    const affine zero = {0};
    index_map unit = {.rank = n->shape.rank};
    affine inside = lower_inside_place(l, x);
    int count = 0;
    *offset = lower_place(l, x->n, &unit).constant;
    for (int i = 0; i < l->axis_count; i++) {
        int64_t stride = axis_factor(l, &inside, i);
        if (stride) list[count++] = (own_axis){stride, l->extents[i], -1, i};
    }
    for (int k = 0; k < n->shape.rank; k++) {
        if (lower_axis_is_inside(l, x, k)) continue;
        if (n->shape.extents[k] == 1 && affine_same(&x->map->axes[k], &zero)) continue;
        unit.axes[k].constant = 1;
        list[count++] = (own_axis){lower_place(l, x->n, &unit).constant - *offset, n->shape.extents[k], k, -1};
        unit.axes[k].constant = 0;
    }
    qsort(list, (size_t)count, sizeof(*list), by_own_stride);
    return count;
}

static void reach_coordinate(lowering *l, frame *f, const affine *a, bool inside, reach *r)
{
    value start;
    int tile_axis;
    int64_t step;
    bool simple = affine_parts(l, f, a, &start, &tile_axis, &step);
    bool taken = tile_axis >= 0 && r->tile_axes >> tile_axis & 1; /* two slices cannot share an axis */
    if (!simple || taken)
        reach_tile(l, r, affine_value(l, f, a));
    else if (tile_axis >= 0)
        reach_slice(l, f, r, start, size_value(l, f->block, step), tile_axis, inside);
    else
        reach_scalar(r, start ? start : lower_integer(l, f->block, 0), inside);
}

/* Each axis of the node that may be left by its own coordinate; the others together, along kernel axes. */
static void reach_own(lowering *l, frame *f, param_kind kind, const term *x, reach *r)
{
    own_axis list[SPACE_AXES + GRAPH_RANK];
    int kernel_axes[MAX_RANK], count;
    fuse_argument view = {.base = x->n};
    count = view.rank = own_axes_of(l, x, list, &view.offset);
    if (count > MAX_RANK) {
        l->why = "an access has more axes than an array can have";
        return;
    }
    for (int i = 0; i < count; i++) {
        kernel_axes[i] = list[i].kernel_axis;
        view.extents[i] = list[i].extent;
        view.strides[i] = list[i].stride;
    }
    r->access.array = lower_array(l, kind, x->n, &view, kernel_axes, NULL);
    if (r->access.array < 0) return;
    for (int i = 0; i < count; i++) {
        const lower_axis *along = list[i].axis < 0 ? &f->axes[list[i].kernel_axis] : NULL;
        CHECK(!along || along->set);
        if (!along) {
            const affine *a = &x->map->axes[list[i].axis];
            bool inside = !affine_has_atoms(a), known = f->inside || (f->rows_inside && is_same_for_tile(l, f, a));
            inside &= known || (x->input_count && says_inside(l->t, x->inputs[0], a, list[i].extent));
            reach_coordinate(l, f, a, inside, r);
        } else if (along->digit) {
            reach_tile(l, r, along->digit);
            r->access.safe[r->access.rank - 1] = true;
        } else if (!along->tile)
            reach_scalar(r, along->start, true);
        else if (r->tile_axes >> along->tile_axis & 1)
            reach_tile(l, r, sum_of(l, f->block, along->start, iota(l, f, along->tile_axis)));
        else
            reach_slice(l, f, r, along->start, 0, along->tile_axis, !along->outside);
    }
    if (x->guarded && !x->input_count) reach_guard(l, f, r);
    reach_existing(l, f, r);
    if (x->input_count && !f->inside) {
        value mask = lower_term(l, f, x->inputs[0]);
        tile_type type = tile_type_of(l->k, mask);
        r->tile_axes |= own_axes(&type);
        r->operands[r->operand_count++] = mask;
        r->access.mask_count++;
    }
}

static value load(lowering *l, frame *f, reach *r, dtype elem)
{
    tile_op *op = tile_op_new(l->k, OP_LOAD, r->operands, r->operand_count);
    op->attr.access = r->access;
    value v = tile_result(l->k, op, frame_type(f, elem, r->tile_axes));
    tile_append(l->k, f->block, op);
    return v;
}

static value access_value(lowering *l, frame *f, const term *x)
{
    const graph_node *n = graph_get(l->t->g, x->n);
    reach r = {0};
    affine place = lower_place(l, x->n, x->map);
    if (is_whole(x)) {
        family near = family_of(l, x, &place);
        reach_view(l, f, PARAM_IN, x->n, &place, &near, &r);
    } else {
        reach_own(l, f, PARAM_IN, x, &r);
    }
    if (l->why) return lower_number(l, f->block, n->elem, (number){0});
    return load(l, f, &r, n->elem);
}

static void store(lowering *l, frame *f, reach *r, value v, node n)
{
    memmove(r->operands + 1, r->operands, sizeof(value) * (size_t)r->operand_count);
    r->operands[0] = lower_broadcast(l, f, v, r->tile_axes);
    r->access.first_index = 1;
    tile_op *op = tile_op_new(l->k, OP_STORE, r->operands, r->operand_count + 1);
    op->attr.access = r->access;
    lower_note(l, op, n);
    tile_append(l->k, f->block, op);
}

void lower_store(lowering *l, frame *f, const lower_output *out, value v)
{
    const graph_node *x = graph_get(l->t->g, out->n);
    affine place = index_linear(&out->map, &x->shape, NULL);
    reach r = {0};
    if (l->t->strip_axes) {
        term written = {.kind = TERM_ACCESS, .n = out->n, .map = &out->map};
        reach_own(l, f, PARAM_OUT, &written, &r);
    } else {
        reach_view(l, f, PARAM_OUT, out->n, &place, NULL, &r);
    }
    if (l->why) return;
    store(l, f, &r, lower_convert(l, f->block, v, x->elem), out->n);
}

static void reach_array(lowering *l, frame *f, int param, const value *scalar, const int *axis, const bool *safe,
                        reach *r)
{
    r->access.array = param;
    for (int i = 0; i < l->k->params[param].rank; i++) {
        if (axis[i] < 0)
            reach_scalar(r, scalar[i], safe[i]);
        else
            reach_slice(l, f, r, scalar[i], 0, axis[i], safe[i]);
    }
}

value lower_load_array(lowering *l, frame *f, int param, const value *scalar, const int *axis, const bool *safe)
{
    reach r = {0};
    reach_array(l, f, param, scalar, axis, safe, &r);
    return load(l, f, &r, l->k->params[param].elem);
}

void lower_store_array(lowering *l, frame *f, int param, const value *scalar, const int *axis, const bool *safe,
                       value v)
{
    reach r = {0};
    reach_array(l, f, param, scalar, axis, safe, &r);
    store(l, f, &r, v, 0);
}

/* ---- values ---- */

value lower_convert(lowering *l, tile_block *b, value x, dtype elem)
{
    return tile_type_of(l->k, x).elem == elem ? x : lower_op(l, b, OP_CONVERT, elem, &x, 1, 0);
}

value lower_broadcast(lowering *l, frame *f, value x, unsigned tile_axes)
{
    tile_type from = tile_type_of(l->k, x), to = frame_type(f, from.elem, tile_axes | own_axes(&from));
    if (tile_type_same(&from, &to)) return x;
    tile_op *op = tile_op_new(l->k, OP_BROADCAST, &x, 1);
    value v = tile_result(l->k, op, to);
    tile_append(l->k, f->block, op);
    return v;
}

static value mask_of(lowering *l, frame *f, unsigned tile_axes)
{
    value mask = 0;
    for (int i = 0; i < l->axis_count; i++) {
        const lower_axis *x = &f->axes[i];
        if (!x->set || !x->tile || !x->outside || !(tile_axes >> x->tile_axis & 1)) continue;
        value start = x->start ? x->start : lower_integer(l, f->block, 0), one = lower_integer(l, f->block, 1);
        value here = bound(l, f, x->tile_axis, start, one, lower_extent(l, i));
        mask = mask ? lower_op(l, f->block, OP_AND, DT_BOOL, (value[]){mask, here}, 2, 0) : here;
    }
    return mask;
}

value lower_mask(lowering *l, frame *f)
{
    if (!f->mask) f->mask = mask_of(l, f, ~0u);
    return f->mask;
}

value lower_fill(lowering *l, frame *f, value x, fold_kind fold)
{
    tile_type type = tile_type_of(l->k, x);
    value mask = mask_of(l, f, own_axes(&type));
    if (!mask) return x;
    value identity = lower_number(l, f->block, type.elem, fold_identity(fold, type.elem));
    return lower_op(l, f->block, OP_SELECT, type.elem, (value[]){mask, x, identity}, 3, 0);
}

value lower_scan(lowering *l, frame *f, value v, const term *x)
{
    tile_op *op = tile_op_new(l->k, OP_SCAN, &v, 1);
    op->attr.fold = x->fold;
    op->attr.index = 0;
    lower_note(l, op, x->n);
    value result = tile_result(l->k, op, tile_type_of(l->k, v));
    tile_append(l->k, f->block, op);
    return result;
}

value lower_fold(lowering *l, frame *f, int id)
{
    const term *x = &l->t->terms[id];
    if (x->scan) return lower_scan(l, f, lower_broadcast(l, f, lower_term(l, f, x->inputs[0]), 1), x);
    value v = lower_term(l, f, x->inputs[0]);
    bool position = x->fold == FOLD_ARGMAX || x->fold == FOLD_ARGMIN;
    unsigned axes = frame_axes(l, f, x->folded);
    if (!axes) return position ? lower_integer(l, f->block, 0) : v;
    v = lower_fill(l, f, lower_broadcast(l, f, v, axes), x->fold);
    tile_type type = tile_type_of(l->k, v);
    unsigned left = 0;
    for (int i = 0; i < type.rank; i++) {
        if (axes >> i & 1)
            type.dims[i] = 1;
        else
            left |= (type.dims[i] != 1) << i;
    }
    tile_op *op = tile_op_new(l->k, OP_REDUCE, &v, 1);
    op->attr.fold = x->fold;
    op->attr.axis_set = left ? axes : (1u << type.rank) - 1;
    lower_note(l, op, x->n);
    if (position && !left) op->attr.axis_set = axes;
    if (l->k->precise && dtype_is_float(type.elem)) op->flags |= F_PRECISE;
    if (position) type.elem = DT_I64;
    bool scalar = op->attr.axis_set == (1u << type.rank) - 1;
    value result = tile_result(l->k, op, scalar ? scalar_type(type.elem) : type);
    tile_append(l->k, f->block, op);
    return result;
}

value lower_combine(lowering *l, frame *f, fold_kind fold, value a, value b, node n)
{
    static const op_code codes[FOLD_COUNT] = {[FOLD_SUM] = OP_ADD, [FOLD_PROD] = OP_MUL, [FOLD_MAX] = OP_MAX,
                                              [FOLD_MIN] = OP_MIN, [FOLD_ANY] = OP_OR,   [FOLD_ALL] = OP_AND};
    CHECK(codes[fold]);
    return lower_op(l, f->block, codes[fold], tile_type_of(l->k, a).elem, (value[]){a, b}, 2, n);
}

value lower_reduce(lowering *l, frame *f, value v, fold_kind fold, node n, unsigned tile_axes, bool to_scalar)
{
    tile_type type = tile_type_of(l->k, v);
    tile_op *op = tile_op_new(l->k, OP_REDUCE, &v, 1);
    op->attr.fold = fold;
    op->attr.axis_set = tile_axes;
    lower_note(l, op, n);
    if (l->k->precise && dtype_is_float(type.elem)) op->flags |= F_PRECISE;
    for (int i = 0; i < type.rank; i++)
        if (tile_axes >> i & 1) type.dims[i] = 1;
    value result = tile_result(l->k, op, to_scalar ? scalar_type(type.elem) : type);
    tile_append(l->k, f->block, op);
    return result;
}

value lower_keep_beyond(lowering *l, frame *f, value first, value count, value now, value old)
{
    value one = lower_integer(l, f->block, 1);
    tile_op *rows = tile_op_new(l->k, OP_BOUND, (value[]){first, one, count}, 3);
    value inside = tile_result(l->k, rows, frame_type(f, DT_BOOL, 1));
    tile_append(l->k, f->block, rows);
    value next = lower_op(l, f->block, OP_SELECT, tile_type_of(l->k, now).elem, (value[]){inside, now, old}, 3, 0);
    tile_def(l->k, next)->flags |= F_ASSIGN;
    return next;
}

void lower_bind(frame *f, int id, value v)
{
    f->values[id] = v;
}

static value op_value(lowering *l, frame *f, const term *x)
{
    value operands[3];
    for (int i = 0; i < x->input_count; i++) operands[i] = lower_term(l, f, x->inputs[i]);
    value v = lower_op(l, f->block, x->op, x->elem, operands, x->input_count, x->n);
    tile_def(l->k, v)->attr.index = x->attr_index;
    return v;
}

/* What an outer frame computed is good here if the axes it depends on are seen in the same way. */
static value inherited(const lowering *l, const frame *f, int id)
{
    unsigned axes = l->t->terms[id].axes;
    for (const frame *o = f->outer; o; o = o->outer) {
        bool same = true;
        for (int i = 0; i < l->t->space.axis_count && same; i++)
            if (axes >> i & 1) same = !memcmp(&f->axes[l->axis_of[i]], &o->axes[l->axis_of[i]], sizeof(lower_axis));
        if (!same) return 0;
        if (o->values[id]) return o->values[id];
    }
    return 0;
}

value lower_term(lowering *l, frame *f, int id)
{
    CHECK(id > 0 && id < l->t->term_count);
    value v = f->values[id];
    if (!v) v = inherited(l, f, id);
    if (v) return v;
    const term *x = &l->t->terms[id];
    switch (x->kind) {
    case TERM_CONSTANT: v = number_value(l, f->block, x->elem, x->number); break;
    case TERM_ACCESS: v = lower_convert(l, f->block, access_value(l, f, x), x->elem); break;
    case TERM_INDEX: v = affine_value(l, f, &x->index); break;
    case TERM_INSIDE: v = inside_value(l, f, x); break;
    case TERM_QUOTIENT: v = quotient_value(l, f, x); break;
    case TERM_OP: v = op_value(l, f, x); break;
    case TERM_FOLD: v = lower_fold(l, f, id); break;
    case TERM_BOUND: CHECK(!"a value that the builder gives"); break;
    }
    f->values[id] = v;
    return v;
}

value lower_stored(lowering *l, frame *f, int id)
{
    const term *x = &l->t->terms[id];
    return x->kind == TERM_ACCESS ? access_value(l, f, x) : lower_term(l, f, id);
}

value lower_guarded(lowering *l, frame *f, int id, const int *guards, int guard_count)
{
    const term *x = &l->t->terms[id];
    dtype elem = graph_get(l->t->g, x->n)->elem;
    affine place = lower_place(l, x->n, x->map);
    term inside[GUARDS_MOST];
    reach r = {0};
    CHECK(guard_count <= GUARDS_MOST);
    for (int g = 0; g < guard_count; g++) inside[g] = l->t->terms[guards[g]];
    reach_digits(l, f, PARAM_IN, x->n, &place, inside, guard_count, &r);
    if (l->why) return lower_number(l, f->block, elem, (number){0});
    return load(l, f, &r, elem);
}

void lower_checks(lowering *l, frame *f)
{
    for (int i = 0; i < l->t->check_count; i++) {
        const term *x = &l->t->terms[l->t->checks[i]];
        bool here = true;
        for (int k = 0; k < l->t->space.axis_count; k++) here &= !(x->axes >> k & 1) || f->axes[l->axis_of[k]].set;
        if (!here) continue;
        value operands[2] = {lower_term(l, f, l->t->checks[i]), lower_mask(l, f)};
        bool masked = operands[1] && tile_type_of(l->k, operands[0]).rank;
        if (masked) operands[0] = lower_broadcast(l, f, operands[0], (1u << f->rank) - 1); /* as wide as its mask */
        tile_op *op = tile_op_new(l->k, OP_ASSERT, operands, 1 + masked);
        op->attr.words = "an index outside its axis";
        tile_append(l->k, f->block, op);
    }
}
