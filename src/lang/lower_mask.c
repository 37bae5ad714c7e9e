/*
 * Validity as mask factors (section 6). A bound stays a description until a reduction, a store or a select needs it;
 * equal ones are kept once. Moving axes moves bounds along; a range keeps its form, other masks are reshaped.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

bool bound_same(const walk *w, const bound *a, const bound *b)
{
    if (a->kind != b->kind || a->axes != b->axes || !value_same(w, a->start, b->start)) return false;
    if (a->kind == BOUND_MASK) return true;
    if (!value_same(w, a->extent, b->extent)) return false;
    return a->kind == BOUND_INDEX || value_same(w, a->step, b->step);
}

bool bounds_have(const walk *w, const bound_list *list, const bound *b)
{
    for (int i = 0; i < list->count; i++)
        if (bound_same(w, &list->items[i], b)) return true;
    return false;
}

void bounds_add(walk *w, bound_list *list, bound b)
{
    if (bounds_have(w, list, &b)) return;
    bound *grown =
        ARENA_ARRAY(w->memory, bound, list->count + 1); /* lists are shared between terms: never grow in place */
    if (list->count) memcpy(grown, list->items, sizeof(bound) * (size_t)list->count);
    grown[list->count] = b;
    *list = (bound_list){.items = grown, .count = list->count + 1, .capacity = list->count + 1};
}

void bounds_add_all(walk *w, bound_list *list, const bound_list *from)
{
    if (!list->count) {
        *list = *from;
        return;
    }
    for (int i = 0; i < from->count; i++) bounds_add(w, list, from->items[i]);
}

static int axis_of(unsigned axes)
{
    return axes ? __builtin_ctz(axes) : -1;
}

value bound_mask(walk *w, const term *t, const bound *b)
{
    if (b->kind == BOUND_MASK) return b->start;
    if (b->kind == BOUND_INDEX) {
        dtype type = tile_type_of(w->k, b->start).elem;
        value index = b->start, extent = b->extent;
        if (type != DT_I64) index = build_convert(w, index, DT_I64, 0);
        value above = build2(w, OP_GE, index, build_integer(w, 0)), below = build2(w, OP_LT, index, extent);
        return build2(w, OP_AND, above, below);
    }
    tile_type type = {.elem = DT_BOOL};
    int axis = axis_of(b->axes);
    if (axis >= 0) {
        type.rank = t->rank;
        for (int i = 0; i < t->rank; i++) type.dims[i] = i == axis ? t->axes[i].extent : 1;
    }
    tile_op *op = op_make(w, OP_BOUND, (value[]){b->start, b->step, b->extent}, 3);
    op->attr.index = axis >= 0 ? axis : 0;
    return op_finish(w, op, type);
}

value mask_of(walk *w, const term *t)
{
    value all = 0;
    for (int i = 0; i < t->bounds.count; i++) {
        value mask = bound_mask(w, t, &t->bounds.items[i]);
        all = all ? build2(w, OP_AND, all, mask) : mask;
    }
    return all;
}

value mask_full(walk *w, const term *t)
{
    value mask = mask_of(w, t);
    if (!mask) mask = build_bool(w, true);
    return t->rank ? build_shape(w, OP_BROADCAST, mask, term_type(t, DT_BOOL)) : mask;
}

value term_filled(walk *w, const term *t, value v, number with)
{
    value mask = mask_of(w, t);
    if (!mask) return v;
    return build_select(w, mask, v, build_number(w, with, tile_type_of(w->k, v).elem), 0);
}

value value_moved(walk *w, value v, const int *to, int from_rank, int rank)
{
    tile_type type = tile_type_of(w->k, v), target = {.elem = type.elem, .rank = rank};
    if (!type.rank) return v;
    int order[MAX_RANK], kept = 0, last = -1;
    bool sorted = true;
    for (int i = 0; i < rank; i++) target.dims[i] = 1;
    for (int i = 0; i < from_rank; i++) {
        if (to[i] < 0) continue;
        target.dims[to[i]] = type.dims[i];
        sorted &= to[i] > last;
        last = to[i];
        kept++;
    }
    if (sorted) return build_shape(w, OP_RESHAPE, v, target);
    CHECK(kept == rank && rank == from_rank);
    for (int i = 0; i < rank; i++) order[to[i]] = i;
    tile_op *op = op_make(w, OP_PERMUTE, &v, 1);
    for (int i = 0; i < rank; i++) op->attr.axes[i] = order[i];
    return op_finish(w, op, target);
}

bound_list bounds_moved(walk *w, const term *t, const int *to, int rank)
{
    bound_list out = {0};
    for (int i = 0; i < t->bounds.count; i++) {
        bound b = t->bounds.items[i];
        unsigned axes = 0;
        for (int k = 0; k < t->rank; k++)
            if (b.axes >> k & 1 && to[k] >= 0) axes |= 1u << to[k];
        if (b.kind != BOUND_RANGE) b.start = value_moved(w, b.start, to, t->rank, rank);
        b.axes = axes;
        bounds_add(w, &out, b);
    }
    return out;
}

bound_list bounds_without(walk *w, const term *t, unsigned axes)
{
    bound_list out = {0};
    for (int i = 0; i < t->bounds.count; i++)
        if (!(t->bounds.items[i].axes & axes)) bounds_add(w, &out, t->bounds.items[i]);
    return out;
}

/* An argument whose elements are not needed: an access reads no memory. */
static term shape_argument(walk *w, const ast *node)
{
    if (node->kind == AST_INDEX && node->left->kind == AST_NAME) {
        symbol *s = symbol_find(w, node->left->name);
        if (s && s->kind == SYMBOL_ARRAY) return lower_access(w, node, true);
    }
    return lower_expression(w, node);
}

static term lower_keep(walk *w, const term *t, const term *condition, place at)
{
    term c = term_condition(w, condition, at), out = *t;
    if (is_error(&c) || is_error(t)) return term_error();
    if (t->kind == TERM_ARRAY || t->kind == TERM_VOID) return term_convert(w, t, DT_F32, at);
    if (c.kind == TERM_CONSTANT && !c.rank && constant_truth(&c.constant)) return out;
    if (!shape_join(w, t, &c, &out, at)) return term_error();
    if (!out.rank) {
        diagnose(w->d, E305, at, "use `?:`", "`keep` of a scalar: a scalar is always valid");
        return term_error();
    }
    term shape = out;
    out = shape_broadcast(w, t, &shape);
    if (!t->rank) out.bounds = (bound_list){0};
    bounds_add_all(w, &out.bounds, &c.bounds);
    bound b = {.kind = BOUND_MASK, .start = term_value(w, &c)};
    for (int i = 0; i < c.rank; i++)
        if (!c.axes[i].unit) b.axes |= 1u << i;
    bounds_add(w, &out.bounds, b);
    return out;
}

static term lower_fill(walk *w, const term *t, const term *with, place at)
{
    if (is_error(t) || is_error(with)) return term_error();
    if (t->kind == TERM_ARRAY || t->kind == TERM_VOID) return term_convert(w, t, DT_F32, at);
    term v = term_convert(w, with, t->elem, at), out = *t;
    if (is_error(&v)) return v;
    if (v.bounds.count) {
        diagnose(w->d, E303, at, "fill it first", "the second argument of `fill` has bounds of its own");
        return term_error();
    }
    if (v.rank && !shape_fit(w, &v, t, &v, at)) return term_error();
    value mask = mask_of(w, t);
    out.bounds = (bound_list){0};
    if (!mask) return out;
    out.value = build_select(w, mask, term_value(w, t), term_value(w, &v), 0);
    out.kind = TERM_VALUE;
    return out;
}

term lower_validity_call(walk *w, const ast *call, const char *name)
{
    const ast *first = call->list.items[0];
    if (!strcmp(name, "keep") || !strcmp(name, "fill")) {
        term t = lower_expression(w, first), v = lower_expression(w, call->list.items[1]);
        w->at = call->at;
        return name[0] == 'k' ? lower_keep(w, &t, &v, call->at) : lower_fill(w, &t, &v, call->at);
    }
    term t = shape_argument(w, first);
    if (is_error(&t)) return t;
    if (t.kind == TERM_ARRAY || t.kind == TERM_VOID) return term_convert(w, &t, DT_F32, first->at);
    if (!strcmp(name, "valid")) {
        term out = t;
        out.kind = TERM_VALUE;
        out.elem = DT_BOOL;
        out.bounds = (bound_list){0};
        out.value = mask_full(w, &t);
        return out;
    }
    term v = lower_expression(w, call->list.items[1]); /* like */
    if (is_error(&v)) return v;
    if (v.rank || v.kind == TERM_ARRAY || v.kind == TERM_VOID) {
        diagnose(w->d, E305, call->list.items[1]->at, "reduce it", "`like` fills with a scalar, not a tile");
        return term_error();
    }
    term out = shape_broadcast(w, &v, &t);
    out.bounds = t.bounds;
    return out;
}
