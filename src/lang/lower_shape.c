/*
 * Shapes of terms: axes, broadcasting, unit axes, axis brackets, transpose, permute, reshape, iota (sections 4 and 9).
 * The rule throughout: ranks are equal, extents are equal or one of them is a unit axis. In the IR a unit axis has
 * extent one and broadcasts by itself, so most of this is checking.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

enum { MAX_ELEMENTS = 1 << 24 };

tile_type term_type(const term *t, dtype elem)
{
    tile_type type = {.elem = elem, .rank = t->rank};
    for (int i = 0; i < t->rank; i++) type.dims[i] = t->axes[i].extent;
    return type;
}

void term_set_shape(term *t, const term *from)
{
    t->rank = from->rank;
    memcpy(t->axes, from->axes, sizeof(t->axes));
}

static void axis_text(walk *w, const axis *a, bool named, text *out)
{
    if (a->source && a->source->kind != AST_NUMBER && (named || a->extent < 0)) {
        lang_format_expression(a->source, out);
        if (a->extent >= 0) text_print(out, " = %lld", (long long)a->extent);
    } else if (a->extent >= 0) {
        text_print(out, "%lld", (long long)a->extent);
    } else {
        const char *name = w->k->values[-a->extent].name;
        text_add(out, name ? name : "a run-time extent");
    }
}

const char *shape_text(walk *w, const term *t)
{
    text out = {0};
    for (int i = 0; i < t->rank; i++) {
        text_add(&out, "[");
        axis_text(w, &t->axes[i], false, &out);
        text_add(&out, "]");
    }
    const char *words = arena_print(w->memory, "%s", t->rank ? text_get(&out) : "a scalar");
    text_free(&out);
    return words;
}

bool axis_same(const axis *a, const axis *b)
{
    return a->extent == b->extent; /* equal run-time expressions are one value */
}

static const char *two_axes(walk *w, const axis *a, const axis *b)
{
    text out = {0};
    axis_text(w, a, true, &out);
    text_add(&out, a->extent < 0 || b->extent < 0 ? " and " : ", ");
    axis_text(w, b, true, &out);
    const char *words = arena_print(w->memory, "%s", text_get(&out));
    text_free(&out);
    return words;
}

bool shape_check(walk *w, const term *t, place at)
{
    int run_time = 0;
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) {
        if (t->axes[i].extent < 0) {
            run_time++;
        } else if (t->axes[i].extent < 1) {
            diagnose(w->d, E314, at, "an extent is at least 1", "axis %d has extent %lld", i,
                     (long long)t->axes[i].extent);
            return false;
        } else if (__builtin_mul_overflow(count, t->axes[i].extent, &count) || count > MAX_ELEMENTS) {
            diagnose(w->d, E314, at, "use a smaller tile, or loop over it", "a tile of more than 16777216 elements: %s",
                     shape_text(w, t));
            return false;
        }
    }
    if (run_time > 1) {
        diagnose(w->d, E310, at, "loop over one of them, or make one a `const` parameter",
                 "two run-time axes in one tile: %s", shape_text(w, t));
        return false;
    }
    return true;
}

bool shape_join(walk *w, const term *a, const term *b, term *out, place at)
{
    if (!a->rank || !b->rank) {
        term_set_shape(out, a->rank ? a : b);
        return true;
    }
    if (a->rank != b->rank) {
        fault_ranks(w->d, at, a->rank, b->rank);
        return false;
    }
    term joint = {.rank = a->rank};
    for (int i = 0; i < a->rank; i++) {
        if (a->axes[i].unit)
            joint.axes[i] = b->axes[i];
        else if (b->axes[i].unit || axis_same(&a->axes[i], &b->axes[i]))
            joint.axes[i] = a->axes[i];
        else {
            fault_extents(w->d, at, i, two_axes(w, &a->axes[i], &b->axes[i]));
            return false;
        }
    }
    term_set_shape(out, &joint);
    return shape_check(w, &joint, at);
}

term shape_broadcast(walk *w, const term *t, const term *shape)
{
    term out = *t;
    term_set_shape(&out, shape);
    if (t->kind == TERM_VALUE && t->value)
        out.value = build_shape(w, OP_BROADCAST, t->value, term_type(shape, t->elem));
    return out;
}

static bool fits(const walk *w, const term *t, const term *shape)
{
    if (t->rank != shape->rank) return t->rank == 0;
    for (int i = 0; i < t->rank; i++)
        if (!t->axes[i].unit && !axis_same(&t->axes[i], &shape->axes[i])) return false;
    return true;
}

/* Whether t has the axes of `shape` once some unit axes are dropped; to[k] is where axis k goes, or -1. */
static bool drop_units(const walk *w, const term *t, const term *shape, int i, int next, int *to)
{
    if (i == t->rank) return next == shape->rank;
    to[i] = next;
    if (next < shape->rank && axis_same(&t->axes[i], &shape->axes[next]) &&
        drop_units(w, t, shape, i + 1, next + 1, to))
        return true;
    to[i] = -1;
    return t->axes[i].unit && drop_units(w, t, shape, i + 1, next, to);
}

bool shape_fit(walk *w, const term *t, const term *shape, term *out, place at)
{
    if (is_error(t)) return false;
    if (fits(w, t, shape)) {
        *out = shape_broadcast(w, t, shape);
        return true;
    }
    int to[MAX_RANK];
    if (t->rank > shape->rank && drop_units(w, t, shape, 0, 0, to)) {
        term dropped = *t;
        dropped.rank = shape->rank;
        for (int i = 0; i < t->rank; i++)
            if (to[i] >= 0) dropped.axes[to[i]] = t->axes[i];
        dropped.bounds = bounds_moved(w, t, to, shape->rank);
        if (t->kind == TERM_VALUE && t->value)
            dropped.value = build_shape(w, OP_RESHAPE, t->value, term_type(&dropped, t->elem));
        *out = shape_broadcast(w, &dropped, shape);
        return true;
    }
    diagnose(w->d, E303, at, shape->rank ? "broadcasting needs equal ranks and unit axes" : "reduce it first",
             "value of shape %s does not fit %s", shape_text(w, t), shape_text(w, shape));
    return false;
}

term shape_permute(walk *w, const term *t, const int *axes)
{
    term out = *t;
    int to[MAX_RANK];
    for (int i = 0; i < t->rank; i++) {
        out.axes[i] = t->axes[axes[i]];
        to[axes[i]] = i;
    }
    out.bounds = bounds_moved(w, t, to, t->rank);
    if (t->kind != TERM_VALUE || !t->value) return out;
    tile_op *op = op_make(w, OP_PERMUTE, &t->value, 1);
    for (int i = 0; i < t->rank; i++) op->attr.axes[i] = axes[i];
    out.value = op_finish(w, op, term_type(&out, t->elem));
    return out;
}

term shape_brackets(walk *w, const term *t, const ast *node)
{
    if (is_error(t)) return *t;
    term out = *t;
    int axis = 0, to[MAX_RANK], rank = 0;
    for (int i = 0; i < node->list.count; i++) {
        const ast *bracket = node->list.items[i];
        if (!t->rank) {
            fault_scalar_brackets(w->d, bracket->at);
            return term_error();
        }
        bool inserts = !bracket->is_slice && !bracket->left, keeps = bracket->is_slice && !bracket->left;
        if (inserts) {
            if (rank >= ARRAY_RANK) {
                fault_tile_axes(w->d, bracket->at, ARRAY_RANK);
                return term_error();
            }
            out.axes[rank++] = (struct axis){.extent = 1, .unit = true};
            continue;
        }
        bool drops = ast_is_literal(bracket->left, 0) && !bracket->is_slice && axis < t->rank && t->axes[axis].unit;
        if (!keeps && !drops) {
            diagnose(w->d, E308, bracket->at, "read it from memory, or use `where(iota(n) == k, ...)` and a reduction",
                     "a tile is not indexed or sliced");
            return term_error();
        }
        if (axis >= t->rank || (keeps && rank >= ARRAY_RANK)) {
            axis = t->rank + 1;
            break;
        }
        to[axis] = drops ? -1 : rank;
        if (keeps) out.axes[rank++] = t->axes[axis];
        axis++;
    }
    if (axis != t->rank) {
        diagnose(w->d, E306, node->at, "`[:]` keeps an axis, `[]` adds one, `[0]` drops a unit axis",
                 "a tile of %d %s is given brackets for %s%d", t->rank, t->rank == 1 ? "axis" : "axes",
                 axis > t->rank ? "more than " : "", axis > t->rank ? t->rank : axis);
        return term_error();
    }
    out.rank = rank;
    out.bounds = bounds_moved(w, t, to, rank);
    if (t->kind == TERM_VALUE && t->value) out.value = build_shape(w, OP_RESHAPE, t->value, term_type(&out, t->elem));
    return out;
}

/* An extent as a scalar: a constant, or a value that may still be negative. */
static bool axis_scalar(walk *w, const ast *expression, int64_t least, axis *out)
{
    term t = lower_expression(w, expression);
    if (is_error(&t)) return false;
    *out = (axis){.source = expression, .unit = ast_is_literal(expression, 1)};
    t = term_index(w, &t, expression->at);
    if (is_error(&t)) return false;
    if (t.rank) {
        diagnose(w->d, E305, expression->at, "reduce it", "an extent is a scalar, not a tile");
        return false;
    }
    if (t.kind == TERM_CONSTANT) {
        out->extent = t.constant.number.i;
        if (out->extent >= least) return true;
        fault_extent(w->d, expression->at, out->extent, "an extent is at least 1");
        return false;
    }
    int64_t known; /* a variable that holds a number */
    out->extent = value_constant(w, t.value, &known) && known >= 1 ? known : -(int64_t)t.value;
    return true;
}

bool axis_from(walk *w, const ast *expression, axis *out)
{
    if (!axis_scalar(w, expression, 1, out)) return false;
    if (out->extent < 0 && !value_nonnegative(w, (value)-out->extent))
        out->extent = -(int64_t)build2(w, OP_MAX, (value)-out->extent, build_integer(w, 0));
    return true;
}

bool axis_of_array(walk *w, const ast *expression, axis *out)
{
    return axis_scalar(w, expression, 0, out);
}

static term lower_reshape(walk *w, const ast *call)
{
    term t = lower_expression(w, call->list.items[0]), out = t;
    if (is_error(&t)) return t;
    int64_t from = 1, to = 1;
    bool constant = true;
    if (call->list.count - 1 > ARRAY_RANK) {
        fault_tile_axes(w->d, call->at, ARRAY_RANK);
        return term_error();
    }
    out.rank = call->list.count - 1;
    memset(out.axes, 0, sizeof(out.axes));
    for (int i = 0; i < out.rank; i++) {
        if (!axis_from(w, call->list.items[i + 1], &out.axes[i])) return term_error();
        constant = constant && out.axes[i].extent > 0 && !__builtin_mul_overflow(to, out.axes[i].extent, &to);
    }
    for (int i = 0; i < t.rank; i++)
        constant = constant && t.axes[i].extent > 0 && !__builtin_mul_overflow(from, t.axes[i].extent, &from);
    if (t.rank && constant && from != to) {
        fault_reshape(w->d, call->at, shape_text(w, &t), shape_text(w, &out));
        return term_error();
    }
    if (!t.rank || !constant) {
        diagnose(w->d, E312, call->at, "the extents of a tile are constants",
                 t.rank ? "`reshape` has a run-time extent: %s to %s" : "`reshape` of a scalar", shape_text(w, &t),
                 shape_text(w, &out));
        return term_error();
    }
    out.bounds = (bound_list){0};
    if (t.bounds.count) {
        value mask = build_shape(w, OP_RESHAPE, mask_full(w, &t), term_type(&out, DT_BOOL));
        bounds_add(w, &out.bounds, (bound){.kind = BOUND_MASK, .axes = (1u << out.rank) - 1, .start = mask});
    }
    if (t.kind == TERM_VALUE && t.value) out.value = build_shape(w, OP_RESHAPE, t.value, term_type(&out, t.elem));
    return out;
}

static term lower_permute(walk *w, const ast *call, bool transpose)
{
    term t = lower_expression(w, call->list.items[0]);
    if (is_error(&t)) return t;
    int axes[MAX_RANK];
    unsigned seen = 0;
    if (transpose) {
        if (t.rank < 2) {
            fault_transpose(w->d, call->at, t.rank);
            return term_error();
        }
        for (int i = 0; i < t.rank; i++) axes[i] = i;
        axes[t.rank - 1] = t.rank - 2;
        axes[t.rank - 2] = t.rank - 1;
        return shape_permute(w, &t, axes);
    }
    bool good = call->list.count - 1 == t.rank;
    for (int i = 0; good && i < t.rank; i++) {
        int64_t axis;
        if (!constant_argument(w, call->list.items[i + 1], &axis)) return term_error();
        good = axis >= 0 && axis < t.rank && !(seen >> axis & 1);
        if (good) {
            axes[i] = (int)axis;
            seen |= 1u << axis;
        }
    }
    if (!good) {
        fault_permute(w->d, call->at, t.rank);
        return term_error();
    }
    return shape_permute(w, &t, axes);
}

term lower_shape_call(walk *w, const ast *call, const char *name)
{
    if (!strcmp(name, "reshape")) return lower_reshape(w, call);
    if (!strcmp(name, "transpose")) return lower_permute(w, call, true);
    if (!strcmp(name, "permute")) return lower_permute(w, call, false);
    term out = {.kind = TERM_VALUE, .elem = DT_I64, .rank = 1}; /* iota */
    if (!axis_from(w, call->list.items[0], &out.axes[0])) return term_error();
    out.axes[0].unit = false;
    if (!shape_check(w, &out, call->at)) return term_error();
    out.value = build_leaf(w, OP_IOTA, 0, term_type(&out, DT_I64));
    return out;
}
