/*
 * Values of terms in a frame. In: a term. Out: a value of the frame's block, computed once for each way of seeing the axes
 * it depends on; masks, folds and scans of what lies in a tile. Places are lower_index.c's, memory is lower_access.c's.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/lower_parts.h"

#include <string.h>

value lower_convert(lowering *l, tile_block *b, value x, dtype elem)
{
    return tile_type_of(l->k, x).elem == elem ? x : lower_op(l, b, OP_CONVERT, elem, &x, 1, 0);
}

value lower_broadcast(lowering *l, frame *f, value x, unsigned tile_axes)
{
    tile_type from = tile_type_of(l->k, x), to = frame_type(f, from.elem, tile_axes | lower_own_axes(&from));
    if (tile_type_same(&from, &to)) return x;
    tile_op *op = tile_op_new(l->k, OP_BROADCAST, &x, 1);
    value v = tile_result(l->k, op, to);
    tile_append(l->k, f->block, op);
    return v;
}

value lower_mask(lowering *l, frame *f)
{
    if (!f->mask) f->mask = lower_mask_of(l, f, ~0u);
    return f->mask;
}

value lower_fill(lowering *l, frame *f, value x, fold_kind fold)
{
    tile_type type = tile_type_of(l->k, x);
    value mask = lower_mask_of(l, f, lower_own_axes(&type));
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
    case TERM_CONSTANT: v = lower_number_value(l, f->block, x->elem, x->number); break;
    case TERM_ACCESS: v = lower_convert(l, f->block, lower_load_term(l, f, x), x->elem); break;
    case TERM_INDEX: v = lower_affine(l, f, &x->index); break;
    case TERM_INSIDE: v = lower_inside(l, f, x); break;
    case TERM_QUOTIENT: v = lower_quotient(l, f, x); break;
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
    return x->kind == TERM_ACCESS ? lower_load_term(l, f, x) : lower_term(l, f, id);
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
