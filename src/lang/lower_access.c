/*
 * Access to arrays: index, slice, gather, scatter, store, atomics (sections 5 and 13).
 *
 * In: an array's name with brackets. Out: an access with its indices, the shape it gives, and two lists of bounds: what
 * the access tests itself, and what its index tiles bring along, which become explicit masks. A read is valid where
 * both hold. A store needs a mask only for those bounds of its value that the access does not test anyway.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

axis *array_axes(walk *w, int param)
{
    if (w->extents[param]) return w->extents[param];
    const ast *item = w->param_items[param];
    axis *axes = ARENA_ARRAY(w->memory, axis, ARRAY_RANK);
    entry_state saved;
    place at = w->at;
    entry_begin(w, &saved);
    for (int i = 0; i < item->list.count; i++) {
        if (axis_of_array(w, item->list.items[i], &axes[i])) continue;
        axes[i] = (axis){.extent = 1, .unit = true, .source = item->list.items[i]}; /* already diagnosed */
    }
    entry_end(w, &saved);
    w->at = at;
    return w->extents[param] = axes;
}

static value axis_value(walk *w, const axis *a)
{
    return a->extent < 0 ? (value)-a->extent : build_integer(w, a->extent);
}

/* One bracket, lowered. */
typedef struct bracket {
    const ast *node;
    bool is_unit, is_whole;
    term start, length, step; /* start: also the index */
    axis axis;                /* slices */
} bracket;

static bool lower_scalar_index(walk *w, const ast *node, term *out)
{
    *out = lower_expression(w, node);
    *out = term_index(w, out, node->at);
    if (is_error(out)) return false;
    if (!out->rank) return true;
    diagnose(w->d, E305, node->at, "gather with `[t]` instead",
             "start, length and step of a slice are scalars, not tiles");
    return false;
}

static bool lower_bracket(walk *w, const ast *node, bracket *out)
{
    *out =
        (bracket){.node = node, .is_unit = !node->is_slice && !node->left, .is_whole = node->is_slice && !node->left};
    if (out->is_unit || out->is_whole) return true;
    if (!node->is_slice) {
        out->start = lower_expression(w, node->left);
        out->start = term_index(w, &out->start, node->left->at);
        return !is_error(&out->start);
    }
    bool good = lower_scalar_index(w, node->left, &out->start);
    good = lower_scalar_index(w, node->right, &out->length) && good;
    out->step = term_of_constant(constant_int(1));
    if (node->third) good = lower_scalar_index(w, node->third, &out->step) && good;
    if (!good) return false;
    if (out->step.kind == TERM_CONSTANT && out->step.constant.number.i == 0) {
        fault_step(w->d, node->third->at, true);
        return false;
    }
    out->axis.source = node->right;
    if (out->length.kind == TERM_CONSTANT) {
        out->axis.extent = out->length.constant.number.i;
        out->axis.unit = false;
        if (out->axis.extent >= 1) return true;
        fault_extent(w->d, node->right->at, out->axis.extent, "a slice has at least one element");
        return false;
    }
    value length = out->length.value;
    int64_t known;
    if (value_constant(w, length, &known) && known >= 1) { /* a variable that holds a number */
        out->axis.extent = known;
        return true;
    }
    if (!value_nonnegative(w, length)) length = build2(w, OP_MAX, length, build_integer(w, 0));
    out->axis.extent = -(int64_t)length;
    return true;
}

static bool constant_of(const walk *w, const term *t, int64_t *out)
{
    if (t->kind == TERM_CONSTANT) {
        *out = t->constant.number.i;
        return true;
    }
    return value_constant(w, t->value, out);
}

/* Whether constants show that the slice lies inside. */
static bool slice_is_inside(const walk *w, const bracket *b, const axis *whole)
{
    int64_t start, step, last;
    if (!constant_of(w, &b->start, &start) || !constant_of(w, &b->step, &step)) return false;
    if (start == 0 && step == 1 && axis_same(&b->axis, whole)) return true;
    if (b->axis.extent < 1 || whole->extent < 1) return false;
    if (__builtin_mul_overflow(b->axis.extent - 1, step, &last) || __builtin_add_overflow(last, start, &last))
        return false;
    return start >= 0 && start < whole->extent && last >= 0 && last < whole->extent;
}

typedef struct resolving {
    walk *w;
    place_access *out;
    bracket brackets[2 * MAX_RANK];
    int count;
    term common; /* of the index tiles */
    int common_at;
} resolving;

/* The common shape of the index tiles, and where each axis of the access stands. */
static bool place_axes(resolving *r, place at, int *axis_of_bracket)
{
    walk *w = r->w;
    term *shape = &r->out->shape;
    bool any = false;
    for (int i = 0; i < r->count; i++) {
        bracket *b = &r->brackets[i];
        if (b->is_unit || b->node->is_slice || !b->start.rank) continue;
        if (!any)
            term_set_shape(&r->common, &b->start);
        else if (!shape_join(w, &r->common, &b->start, &r->common, b->node->at))
            return false;
        any = true;
    }
    bool placed = false;
    shape->rank = 0;
    for (int i = 0; i < r->count; i++) {
        bracket *b = &r->brackets[i];
        bool slice = b->node->is_slice, tile = !b->is_unit && !slice && b->start.rank;
        int need = b->is_unit || slice ? 1 : tile && !placed ? r->common.rank : 0;
        if (shape->rank + need > ARRAY_RANK) {
            fault_tile_axes(w->d, at, ARRAY_RANK);
            return false;
        }
        axis_of_bracket[i] = shape->rank;
        if (b->is_unit)
            shape->axes[shape->rank] = (axis){.extent = 1, .unit = true};
        else if (slice)
            shape->axes[shape->rank] = b->axis;
        else if (need)
            memcpy(&shape->axes[shape->rank], r->common.axes, sizeof(axis) * (size_t)need);
        if (tile && !placed) {
            placed = true;
            r->common_at = shape->rank;
        }
        shape->rank += need;
    }
    return shape_check(w, shape, at);
}

static void add_index(place_access *out, value v)
{
    out->indices[out->index_count++] = v;
}

static void resolve_scalar(walk *w, place_access *out, int axis, value index, value extent)
{
    access *a = &out->access;
    a->kind[axis] = INDEX_SCALAR;
    a->safe[axis] = value_nonnegative(w, index) && value_below(w, index, extent);
    add_index(out, index);
    if (!a->safe[axis])
        bounds_add(w, &out->own,
                   (bound){.kind = BOUND_RANGE, .start = index, .step = build_integer(w, 1), .extent = extent});
}

static void resolve_bracket(resolving *r, int array_axis, const bracket *b, int at_axis, const axis *whole)
{
    walk *w = r->w;
    place_access *out = r->out;
    access *a = &out->access;
    if (b->node->is_slice) {
        value start = b->is_whole ? build_integer(w, 0) : term_value(w, &b->start);
        value step = b->is_whole ? build_integer(w, 1) : term_value(w, &b->step);
        a->kind[array_axis] = INDEX_SLICE;
        a->result_axis[array_axis] = at_axis;
        a->safe[array_axis] = b->is_whole || slice_is_inside(w, b, whole);
        add_index(out, start);
        add_index(out, step);
        if (!a->safe[array_axis])
            bounds_add(w, &out->own,
                       (bound){.kind = BOUND_RANGE,
                               .axes = 1u << at_axis,
                               .start = start,
                               .step = step,
                               .extent = axis_value(w, whole)});
        return;
    }
    if (!b->start.rank) {
        resolve_scalar(w, out, array_axis, term_value(w, &b->start), axis_value(w, whole));
        return;
    }
    int to[MAX_RANK];
    bound range = {.kind = BOUND_INDEX, .extent = axis_value(w, whole)};
    for (int i = 0; i < b->start.rank; i++) {
        to[i] = r->common_at + i;
        if (!b->start.axes[i].unit) range.axes |= 1u << to[i];
    }
    a->kind[array_axis] = INDEX_TILE;
    range.start = value_moved(w, term_value(w, &b->start), to, b->start.rank, out->shape.rank);
    add_index(out, range.start);
    bounds_add(w, &out->own, range);
    bound_list moved = bounds_moved(w, &b->start, to, out->shape.rank);
    bounds_add_all(w, &out->index_bounds, &moved);
}

bool access_resolve(walk *w, const ast *node, place_access *out)
{
    const ast *name = node->kind == AST_INDEX ? node->left : node;
    symbol *s = name->kind == AST_NAME ? symbol_find(w, name->name) : NULL;
    CHECK(s && s->kind == SYMBOL_ARRAY);
    array_ref *array = s->array;
    const tile_param *param = &w->k->params[array->param];
    memset(out, 0, sizeof(*out));
    out->access = (access){.array = array->param, .rank = param->rank};
    out->shape.kind = TERM_VALUE;
    out->shape.elem = param->elem;
    resolving r = {.w = w, .out = out};
    int given = 0, brackets = node->kind == AST_INDEX ? node->list.count : 0;
    for (int i = 0; i < brackets; i++) given += node->list.items[i]->is_slice || node->list.items[i]->left;
    if (given != array->rank || brackets > COUNT(r.brackets)) {
        fault_brackets(w->d, node->kind == AST_INDEX ? name->at : node->at, name->name, array->rank, given);
        return false;
    }
    axis *axes = array_axes(w, array->param);
    bool good = true, inside = w->in_index;
    w->in_index = true;
    for (int i = 0, view = 0; i < brackets; i++) {
        bracket *b = &r.brackets[r.count++];
        good = lower_bracket(w, node->list.items[i], b) && good;
        if (b->is_whole) b->axis = axes[array->axis_of[view]];
        view += !b->is_unit;
    }
    w->in_index = inside;
    int at_axis[2 * MAX_RANK] = {0};
    if (!good || !place_axes(&r, node->at, at_axis)) return false;
    w->at = name->at;
    int next = 0;
    for (int p = 0; p < param->rank; p++) {
        if (array->fixed[p]) {
            resolve_scalar(w, out, p, array->fixed[p], axis_value(w, &axes[p]));
            continue;
        }
        while (r.brackets[next].is_unit) next++;
        CHECK(next < r.count);
        resolve_bracket(&r, p, &r.brackets[next], at_axis[next], &axes[p]);
        next++;
    }
    bounds_add_all(w, &out->shape.bounds, &out->index_bounds);
    bounds_add_all(w, &out->shape.bounds, &out->own);
    if (!out->shape.rank) out->shape.bounds = (bound_list){0}; /* a scalar is always valid: it reads 0 */
    return true;
}

/* Operands of the access op: values first, then indices, then masks. */
static tile_op *access_op(walk *w, op_code code, const place_access *a, const value *values, int value_count,
                          const bound_list *masks, const term *shape)
{
    value operands[4 + 2 * MAX_RANK + 64];
    int count = 0;
    for (int i = 0; i < value_count; i++) operands[count++] = values[i];
    for (int i = 0; i < a->index_count; i++) operands[count++] = a->indices[i];
    int limit = MINIMUM(masks->count, 63), mask_count = 0;
    for (int i = 0; i < limit; i++, mask_count++) operands[count++] = bound_mask(w, shape, &masks->items[i]);
    value rest = 0;
    for (int i = limit; i < masks->count; i++) {
        value mask = bound_mask(w, shape, &masks->items[i]);
        rest = rest ? build2(w, OP_AND, rest, mask) : mask;
    }
    if (rest) operands[count++] = rest, mask_count++;
    tile_op *op = op_make(w, code, operands, count);
    op->attr.access = a->access;
    op->attr.access.first_index = value_count;
    op->attr.access.mask_count = mask_count;
    return op;
}

term access_load(walk *w, const place_access *a)
{
    term out = a->shape;
    tile_op *op = access_op(w, OP_LOAD, a, NULL, 0, &a->index_bounds, &a->shape);
    out.value = op_finish(w, op, term_type(&out, out.elem));
    value_set_depth(w, out.value, w->loop_depth);
    return out;
}

/* The masks a write needs beyond what the access tests itself. */
static bound_list masks_of_write(walk *w, const place_access *a, const term *t)
{
    bound_list masks = a->index_bounds;
    for (int i = 0; i < t->bounds.count; i++)
        if (!bounds_have(w, &a->own, &t->bounds.items[i])) bounds_add(w, &masks, t->bounds.items[i]);
    return masks;
}

void access_store(walk *w, const place_access *a, const term *t, place at)
{
    term v = term_convert(w, t, a->shape.elem, at), fitted;
    if (is_error(&v) || !shape_fit(w, &v, &a->shape, &fitted, at)) return;
    value stored = term_value(w, &fitted);
    bound_list masks = masks_of_write(w, a, &fitted);
    op_append(w, access_op(w, OP_STORE, a, &stored, 1, &masks, &a->shape));
}

term lower_access(walk *w, const ast *node, bool shape_only)
{
    place_access a;
    if (!access_resolve(w, node, &a)) return term_error();
    return shape_only ? a.shape : access_load(w, &a);
}

static bool atomic_takes(dtype t, atomic_kind kind)
{
    if (t == DT_I32 || t == DT_U32 || t == DT_I64 || t == DT_U64) return true;
    bool bits = kind == ATOMIC_AND || kind == ATOMIC_OR || kind == ATOMIC_XOR;
    if (t == DT_F32 || t == DT_F64) return !bits;
    return kind == ATOMIC_ADD && (t == DT_F16 || t == DT_BF16);
}

term lower_atomic_call(walk *w, const ast *call, const char *name)
{
    atomic_kind kind = ATOMIC_COUNT;
    for (int i = 0; i < ATOMIC_COUNT; i++)
        if (!strcmp(name + strlen("atomic_"), atomic_names[i])) kind = (atomic_kind)i;
    CHECK(kind != ATOMIC_COUNT);
    const ast *node = call->list.items[0], *base = node->kind == AST_INDEX ? node->left : node;
    symbol *s = base->kind == AST_NAME ? symbol_find(w, base->name) : NULL;
    if (!s || s->kind != SYMBOL_ARRAY) {
        diagnose(w->d, E403, node->at, "name an array with its brackets",
                 "the place of an atomic is an access to an array");
        return term_error();
    }
    const tile_param *param = &w->k->params[s->array->param];
    if (param->kind == PARAM_IN || (param->kind == PARAM_OUT && !param->has_initial)) {
        diagnose(w->d, E403, node->at,
                 param->kind == PARAM_IN ? "declare it `inout`" : "give it an initial value: `out ... = 0`",
                 param->kind == PARAM_IN ? "atomic on the `in` array `%s`"
                                         : "atomic on the `out` array `%s`, which has no initial value",
                 base->name);
        return term_error();
    }
    if (!atomic_takes(param->elem, kind)) {
        diagnose(w->d, E403, node->at, "use i32, u32, i64, u64, float or double (and f16, bf16 for atomic_add)",
                 "`%s` on an array of `%s`", name, type_text(param->elem));
        return term_error();
    }
    place_access a;
    bool good = access_resolve(w, node, &a);
    term values[2];
    int count = kind == ATOMIC_CAS ? 2 : 1;
    for (int i = 0; i < count; i++) {
        const ast *argument = call->list.items[i + 1];
        values[i] = lower_expression(w, argument);
        values[i] = term_convert(w, &values[i], param->elem, argument->at);
        good = good && !is_error(&values[i]) && shape_fit(w, &values[i], &a.shape, &values[i], argument->at);
    }
    if (!good) return term_error();
    w->at = call->at;
    term both = a.shape;
    value operands[2];
    bound_list bounds = {0};
    for (int i = 0; i < count; i++) {
        operands[count - 1 - i] = term_value(w, &values[i]); /* cas: the new value first, then the expected one */
        bounds_add_all(w, &bounds, &values[i].bounds);
    }
    both.bounds = bounds;
    bound_list masks = masks_of_write(w, &a, &both);
    tile_op *op = access_op(w, OP_ATOMIC, &a, operands, count, &masks, &a.shape);
    op->attr.atomic = kind;
    term out = a.shape;
    out.value = op_finish(w, op, term_type(&out, out.elem));
    value_set_depth(w, out.value, w->loop_depth);
    if (out.rank) bounds_add_all(w, &out.bounds, &bounds);
    return out;
}
