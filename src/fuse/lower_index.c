/*
 * Numbers and places of a kernel as values. In: an affine expression of the space, a condition, a quotient. Out: values of
 * the frame's block: scalars where the whole tile shares them, else slices or tiles of indices.
 *
 * Small numbers and what is structure (strides and sizes of windows) stand in the text; other sizes are parameters, so
 * that a new size has the same text.
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

value lower_number_value(lowering *l, tile_block *b, dtype elem, number n)
{
    n = dtype_is_float(elem) ? (number){.f = n.f} : (number){.i = n.i};
    if (is_literal(elem, n) || l->k->param_count > LOWER_PARAMS - 20) return lower_number(l, b, elem, n);
    return lower_scalar_value(l, b, lower_number_param(l, elem, n));
}

#define LITERAL_DIVISOR 16
#define LITERAL_OFFSET 256 /* where windows are structure, so is how far their elements lie apart */

value lower_size(lowering *l, tile_block *b, int64_t n)
{
    bool around = l->t->unroll != UNROLL_NONE || l->t->strip_axes;
    if (around && llabs(n) <= LITERAL_OFFSET) return lower_integer(l, b, n);
    return lower_number_value(l, b, DT_I64, (number){.i = n});
}

/* What divides a position: strides and sizes of windows are structure, and by a literal a division is a multiplication. */
static value divisor_value(lowering *l, tile_block *b, int64_t n)
{
    return n <= LITERAL_DIVISOR ? lower_integer(l, b, n) : lower_size(l, b, n);
}

static value scaled(lowering *l, tile_block *b, value x, int64_t factor)
{
    if (factor == 1) return x;
    return lower_op(l, b, OP_MUL, DT_I64, (value[]){x, lower_size(l, b, factor)}, 2, 0);
}

value lower_sum(lowering *l, tile_block *b, value x, value y)
{
    return !x ? y : !y ? x : lower_op(l, b, OP_ADD, DT_I64, (value[]){x, y}, 2, 0);
}

/* ---- index arithmetic ---- */

/* What one step along a kernel axis adds to an affine expression. Axes of the space were taken as one because every
 * expression of the kernel goes on counting from one into the next; one that does not would be read wrongly. */
int64_t lower_axis_factor(const lowering *l, const affine *a, int axis)
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

value lower_iota(lowering *l, frame *f, int tile_axis)
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
    value position = x->tile ? lower_iota(l, f, x->tile_axis) : 0, sum = 0;
    position = lower_sum(l, f->block, position, x->start);
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
        if (a->factor[i]) sum = lower_sum(l, f->block, sum, scaled(l, f->block, digit, a->factor[i]));
        unit *= s->axes[i].extent;
    }
    return sum;
}

/* The part of an affine expression that is the same for the whole tile; 0: it is zero. The rest: *step along
 * *tile_axis, or tile atoms. Returns false if it depends on several tile axes or on tile atoms. */
bool lower_affine_parts(lowering *l, frame *f, const affine *a, value *start, int *tile_axis, int64_t *step)
{
    value sum = a->constant ? lower_size(l, f->block, a->constant) : 0;
    bool simple = true;
    *tile_axis = -1;
    *step = 0;
    for (int i = 0; i < l->axis_count; i++) {
        const lower_axis *x = &f->axes[i];
        if (!lower_is_linear(l, a, i)) {
            CHECK(x->set);
            simple &= !x->tile;
            if (!x->tile) sum = lower_sum(l, f->block, sum, digits_value(l, f, a, i));
            continue;
        }
        int64_t factor = lower_axis_factor(l, a, i);
        if (!factor) continue;
        CHECK(x->set);
        if (x->start) sum = lower_sum(l, f->block, sum, scaled(l, f->block, x->start, factor));
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
            sum = lower_sum(l, f->block, sum, scaled(l, f->block, atom, factor));
    }
    *start = sum;
    return simple;
}

void lower_digits(lowering *l, frame *f, const int *axes, int count)
{
    value left = lower_iota(l, f, 0);
    for (int i = count - 1; i >= 0; i--) {
        value extent = lower_extent(l, axes[i]);
        frame_tile(f, axes[i], 0, 0, false);
        f->axes[axes[i]].digit = i ? lower_op(l, f->block, OP_MOD, DT_I64, (value[]){left, extent}, 2, 0) : left;
        if (i) left = lower_op(l, f->block, OP_DIV, DT_I64, (value[]){left, extent}, 2, 0);
    }
}

value lower_affine(lowering *l, frame *f, const affine *a)
{
    value sum;
    int tile_axis;
    int64_t step;
    lower_affine_parts(l, f, a, &sum, &tile_axis, &step);
    for (int i = 0; i < l->axis_count; i++) {
        if (!lower_is_linear(l, a, i)) {
            if (f->axes[i].tile) sum = lower_sum(l, f->block, sum, digits_value(l, f, a, i));
            continue;
        }
        int64_t factor = lower_axis_factor(l, a, i);
        if (!factor || !f->axes[i].tile) continue;
        value along = f->axes[i].digit ? f->axes[i].digit : lower_iota(l, f, f->axes[i].tile_axis);
        sum = lower_sum(l, f->block, sum, scaled(l, f->block, along, factor));
    }
    for (int i = 0; i < l->t->atom_count; i++) {
        int64_t factor = a->factor[SPACE_AXES + i];
        if (!factor) continue;
        value atom = lower_term(l, f, l->t->atoms[i]);
        if (tile_type_of(l->k, atom).rank) sum = lower_sum(l, f->block, sum, scaled(l, f->block, atom, factor));
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
bool lower_is_same_for_tile(const lowering *l, const frame *f, const affine *a)
{
    for (int i = 0; i < l->t->space.axis_count; i++)
        if (a->factor[i] && f->axes[l->axis_of[i]].tile) return false;
    return true;
}

value lower_inside(lowering *l, frame *f, const term *x)
{
    affine moved = x->index;
    moved.constant -= x->low;
    bool known = f->inside || (f->rows_inside && lower_is_same_for_tile(l, f, &moved));
    if (known && !affine_has_atoms(&moved)) return lower_number(l, f->block, DT_BOOL, (number){.i = 1});
    value start, extent = lower_number_value(l, f->block, DT_I64, (number){.i = x->high - x->low});
    int tile_axis;
    int64_t step;
    if (lower_affine_parts(l, f, &moved, &start, &tile_axis, &step)) {
        if (!start) start = lower_integer(l, f->block, 0);
        return bound(l, f, tile_axis, start, lower_size(l, f->block, tile_axis < 0 ? 1 : step), extent);
    }
    value v = lower_affine(l, f, &moved), zero = lower_integer(l, f->block, 0);
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
    lower_affine_parts(l, f, a, &start, &tile_axis, &step);
    if (!start) start = lower_integer(l, f->block, 0);
    for (int i = 0; i < l->axis_count; i++) {
        int64_t reach = f->axes[i].tile ? lower_axis_factor(l, a, i) * (f->dims[f->axes[i].tile_axis] - 1) : 0;
        low += MINIMUM(reach, 0);
        high += MAXIMUM(reach, 0);
    }
    value first = lower_sum(l, f->block, start, low ? lower_integer(l, f->block, low) : 0);
    value last = lower_sum(l, f->block, start, high ? lower_integer(l, f->block, high) : 0);
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
        if (rows && !lower_is_same_for_tile(l, f, &x->index)) continue;
        affine moved = x->index;
        moved.constant -= x->low;
        whole =
            both(l, f, whole,
                 tile_inside(l, f, &moved, lower_number_value(l, f->block, DT_I64, (number){.i = x->high - x->low})));
    }
    return whole ? whole : lower_number(l, f->block, DT_BOOL, (number){.i = 1});
}

value lower_quotient(lowering *l, frame *f, const term *x)
{
    value v = lower_affine(l, f, &x->index);
    if (x->low != 1) v = lower_op(l, f->block, OP_DIV, DT_I64, (value[]){v, divisor_value(l, f->block, x->low)}, 2, 0);
    if (x->high) v = lower_op(l, f->block, OP_MOD, DT_I64, (value[]){v, divisor_value(l, f->block, x->high)}, 2, 0);
    return v;
}

unsigned lower_own_axes(const tile_type *type)
{
    unsigned axes = 0;
    for (int i = 0; i < type->rank; i++) axes |= (unsigned)(type->dims[i] != 1) << i;
    return axes;
}

value lower_mask_of(lowering *l, frame *f, unsigned tile_axes)
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
