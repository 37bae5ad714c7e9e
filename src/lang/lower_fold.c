/*
 * Reductions, scans and dot (section 9). Operands are brought to the type they accumulate in, and invalid elements
 * become the identity, so that the op itself knows no masks. Bounds that involve no folded axis stay with the result.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <math.h>
#include <string.h>

static bool is_word(const char *word, const char *other)
{
    return !strcmp(word, other);
}

static bool one_axis(walk *w, const ast *node, int rank, unsigned *set)
{
    term t = lower_expression(w, node);
    if (is_error(&t)) return false;
    if (t.kind != TERM_CONSTANT || t.constant.kind != BIND_INT) {
        diagnose(w->d, E309, node->at, "use a number or a `const` parameter", "axis not constant");
        return false;
    }
    int64_t axis = t.constant.number.i;
    if (axis < -rank || axis >= rank) {
        fault_axis(w->d, node->at, axis, rank);
        return false;
    }
    *set |= 1u << (axis < 0 ? axis + rank : axis);
    return true;
}

/* The axes named by `axis = k` or `axis = {j, k}`; 0 if there is none. */
static bool axes_named(walk *w, const ast *call, int rank, unsigned *set)
{
    const ast *named;
    *set = 0;
    for (int i = 0; i < call->list.count; i++)
        if (call->list.items[i]->kind == AST_NAMED && !is_word(call->list.items[i]->name, "axis")) {
            fault_named_argument(w->d, call->list.items[i]->at, call->left->name, call->list.items[i]->name,
                                 "give it by position");
            return false;
        }
    if (!named_argument(call, "axis", &named)) return true;
    if (!named->is_set) return one_axis(w, named->left, rank, set);
    for (int i = 0; i < named->list.count; i++)
        if (!one_axis(w, named->list.items[i], rank, set)) return false;
    return true;
}

/* The shape after folding: a scalar when no axis was named. */
static term folded_shape(walk *w, const term *t, unsigned set, bool everything)
{
    term out = {.kind = TERM_VALUE};
    if (everything) return out;
    term_set_shape(&out, t);
    for (int i = 0; i < t->rank; i++)
        if (set >> i & 1) out.axes[i] = (axis){.extent = 1, .unit = true};
    out.bounds = bounds_without(w, t, set);
    return out;
}

static value build_reduce(walk *w, value v, fold_kind fold, unsigned set, const term *shape)
{
    dtype elem = fold == FOLD_ARGMAX || fold == FOLD_ARGMIN ? DT_I64 : tile_type_of(w->k, v).elem;
    tile_op *op = op_make(w, OP_REDUCE, &v, 1);
    op->attr.fold = fold;
    op->attr.axis_set = set;
    return op_finish(w, op, term_type(shape, elem));
}

/* The lowest position among the valid elements: the extreme first, then the first place that holds it. */
static value masked_position(walk *w, const term *t, fold_kind fold, unsigned set, const term *shape)
{
    fold_kind extreme = fold == FOLD_ARGMAX ? FOLD_MAX : FOLD_MIN;
    value mask = mask_of(w, t), v = t->value, none = build_integer(w, INT64_MAX);
    value filled = build_select(w, mask, v, build_number(w, fold_identity(extreme, t->elem), t->elem), 0);
    term kept = *t; /* with its axes, so that it broadcasts back */
    for (int i = 0; i < t->rank; i++)
        if (set >> i & 1) kept.axes[i] = (axis){.extent = 1, .unit = true};
    value best = build_reduce(w, filled, extreme, set, &kept);
    value hit = build2(w, OP_EQ, v, best);
    if (dtype_is_float(t->elem)) hit = build2(w, OP_OR, hit, build(w, OP_ISNAN, &v, 1));
    hit = build2(w, OP_AND, mask, hit);
    int along = __builtin_ctz(set);
    tile_type type = {.elem = DT_I64, .rank = t->rank};
    for (int i = 0; i < t->rank; i++) type.dims[i] = i == along ? t->axes[i].extent : 1;
    value position = build_leaf(w, OP_IOTA, along, type);
    value first = build_reduce(w, build_select(w, hit, position, none, 0), FOLD_MIN, set, shape);
    return build_select(w, build2(w, OP_EQ, first, none), build_integer(w, -1), first, 0);
}

static value count_valid(walk *w, const term *t, unsigned set, const term *shape)
{
    if (t->bounds.count) {
        value ones = build_convert(w, mask_full(w, t), DT_I64, 0);
        return build_reduce(w, ones, FOLD_SUM, set, shape);
    }
    int64_t count = 1;
    value v = 0;
    for (int i = 0; i < t->rank; i++) {
        if (!(set >> i & 1)) continue;
        if (t->axes[i].extent < 0)
            v = (value)-t->axes[i].extent;
        else
            count *= t->axes[i].extent;
    }
    value n = build_integer(w, count);
    if (v) n = count == 1 ? v : build2(w, OP_MUL, v, n);
    return shape->rank ? build_shape(w, OP_BROADCAST, n, term_type(shape, DT_I64)) : n;
}

static term lower_scan(walk *w, const term *t, const char *name, unsigned set, place at)
{
    fold_kind fold = fold_code(name);
    if (!set && t->rank == 1) set = 1;
    if (!set || set & (set - 1)) {
        fault_one_axis(w->d, at, name);
        return term_error();
    }
    term out = *t;
    value v = term_filled(w, t, term_value(w, t), fold_identity(fold, t->elem));
    v = build_shape(w, OP_BROADCAST, v, term_type(t, t->elem));
    tile_op *op = op_make(w, OP_SCAN, &v, 1);
    op->attr.fold = fold;
    op->attr.index = __builtin_ctz(set);
    out.kind = TERM_VALUE;
    out.value = op_finish(w, op, term_type(t, t->elem));
    return out;
}

static term lower_mean(walk *w, const term *t, unsigned set, const term *shape, dtype sum)
{
    term out = *shape;
    dtype type = sum == DT_F64 ? DT_F64 : DT_F32;
    value total =
        build_reduce(w, term_filled(w, t, term_value(w, t), fold_identity(FOLD_SUM, sum)), FOLD_SUM, set, shape);
    value count = build_convert(w, count_valid(w, t, set, shape), type, 0);
    out.elem = type;
    out.value = build2(w, OP_DIV, build_convert(w, total, type, 0), count);
    return out;
}

term lower_fold_call(walk *w, const ast *call, const char *name)
{
    const ast *first = call->list.items[0];
    if (first->kind == AST_NAMED) {
        fault_argument_count(w->d, call->at, name, 1, 1, 0);
        return term_error();
    }
    term t = lower_expression(w, first);
    if (is_error(&t)) return t;
    if (t.kind == TERM_ARRAY || t.kind == TERM_VOID) return term_convert(w, &t, DT_F32, first->at);
    if (!t.rank) {
        fault_reduce_scalar(w->d, call->at, name);
        return term_error();
    }
    unsigned set;
    if (!axes_named(w, call, t.rank, &set)) return term_error();
    w->at = call->at;
    fold_kind fold = fold_code(name);
    bool scan = !strncmp(name, "cum", 3), everything = !set;
    bool position = fold == FOLD_ARGMAX || fold == FOLD_ARGMIN;
    if (t.kind == TERM_CONSTANT && t.constant.untyped) t = term_cast(w, &t, typing_alone(&t.constant), 0);
    if (position && (everything ? t.rank > 1 : (set & (set - 1)) != 0)) {
        fault_one_axis(w->d, call->at, name);
        return term_error();
    }
    if (fold == FOLD_ANY || fold == FOLD_ALL)
        t = term_condition(w, &t, first->at);
    else
        t = term_cast(w, &t, typing_fold(TYPING_KERNEL, name, t.elem), 0);
    if (is_error(&t)) return t;
    if (scan) return lower_scan(w, &t, name, set, call->at);
    if (everything) set = (1u << t.rank) - 1;
    term out = folded_shape(w, &t, set, everything);
    if (is_word(name, "count")) {
        out.elem = DT_I64;
        out.value = count_valid(w, &t, set, &out);
        return out;
    }
    if (is_word(name, "mean")) return lower_mean(w, &t, set, &out, t.elem);
    t.value = term_value(w, &t);
    t.kind = TERM_VALUE;
    if (position) {
        out.elem = DT_I64;
        out.value =
            t.bounds.count ? masked_position(w, &t, fold, set, &out) : build_reduce(w, t.value, fold, set, &out);
        return out;
    }
    out.elem = t.elem;
    out.value = build_reduce(w, term_filled(w, &t, t.value, fold_identity(fold, t.elem)), fold, set, &out);
    return out;
}

/* An operand of dot: zero where invalid. A transposed tile is zeroed before it is turned, so that a masked load stays a
 * load under a select. */
static value dot_operand(walk *w, const term *t)
{
    value v = term_value(w, t);
    number zero = {0};
    if (!t->bounds.count) return v;
    const tile_op *def = tile_def(w->k, v);
    if (!def || def->code != OP_PERMUTE) return term_filled(w, t, v, zero);
    term inner = *t;
    inner.value = def->operands[0];
    int to[MAX_RANK];
    for (int i = 0; i < t->rank; i++) {
        to[i] = def->attr.axes[i];
        inner.axes[to[i]] = t->axes[i];
    }
    inner.bounds = bounds_moved(w, t, to, t->rank);
    value filled = dot_operand(w, &inner);
    tile_op *op = op_make(w, OP_PERMUTE, &filled, 1);
    for (int i = 0; i < t->rank; i++) op->attr.axes[i] = def->attr.axes[i];
    return op_finish(w, op, tile_type_of(w->k, v));
}

bool is_dot_call(walk *w, const ast *node)
{
    if (!node || node->kind != AST_CALL || node->left->kind != AST_NAME || node->list.count != 2) return false;
    if (is_word(node->left->name, "@")) return true;
    return is_word(node->left->name, "dot") && !symbol_find(w, "dot") && !ast_find(w->file, "dot");
}

static bool dot_operands_fit(walk *w, const term *a, const term *b, place at)
{
    const char *advice = "operands are [M][K] and [K][N], perhaps with one batch axis before";
    if (a->elem != b->elem) {
        fault_dot_types(w->d, at, a->elem, b->elem);
        return false;
    }
    if (!dtype_is_float(a->elem) && a->elem != DT_I8 && a->elem != DT_U8) {
        diagnose(w->d, E311, at, "cast to a float type, i8 or u8", "`dot` of `%s`", type_text(a->elem));
        return false;
    }
    if (a->rank != b->rank || a->rank < 2 || a->rank > 3) {
        diagnose(w->d, E311, at, advice, "`dot` of tiles of ranks %d and %d", a->rank, b->rank);
        return false;
    }
    int m = a->rank - 2, n = a->rank - 1;
    if (!axis_same(&a->axes[n], &b->axes[m])) {
        diagnose(w->d, E311, at, advice, "inner extents of `dot` differ: %s and %s", shape_text(w, a),
                 shape_text(w, b));
        return false;
    }
    if (m && !axis_same(&a->axes[0], &b->axes[0])) {
        diagnose(w->d, E311, at, advice, "batch extents of `dot` differ: %s and %s", shape_text(w, a),
                 shape_text(w, b));
        return false;
    }
    return true;
}

term lower_dot(walk *w, const ast *call, const term *accumulator)
{
    term a = lower_expression(w, call->list.items[0]), b = lower_expression(w, call->list.items[1]),
         c = {.kind = TERM_VOID};
    if (accumulator)
        c = *accumulator;
    else if (call->list.count == 3)
        c = lower_expression(w, call->list.items[2]);
    if (is_error(&a) || is_error(&b) || is_error(&c)) return term_error();
    bool plain = (a.kind == TERM_VALUE || a.kind == TERM_CONSTANT) && (b.kind == TERM_VALUE || b.kind == TERM_CONSTANT);
    if (!plain) return term_convert(w, a.kind == TERM_VALUE || a.kind == TERM_CONSTANT ? &b : &a, DT_F32, call->at);
    if (!dot_operands_fit(w, &a, &b, call->at)) return term_error();
    int n = a.rank - 1;
    term out = {.kind = TERM_VALUE};
    term_set_shape(&out, &a);
    out.axes[n] = b.axes[n];
    out.elem = a.elem == DT_F64 ? DT_F64 : dtype_is_float(a.elem) ? DT_F32 : DT_I32;
    if (!shape_check(w, &out, call->at)) return term_error();
    w->at = call->at;
    value operands[3] = {dot_operand(w, &a), dot_operand(w, &b), 0};
    w->at = call->at;
    if (c.kind == TERM_VOID) {
        bound_list rows = bounds_without(w, &a, 1u << n), columns = bounds_without(w, &b, 1u << (n - 1));
        bounds_add_all(w, &out.bounds, &rows);
        bounds_add_all(w, &out.bounds, &columns);
    } else {
        bool converts = c.kind == TERM_CONSTANT || c.elem == out.elem;
        term fitted;
        if (!shape_fit(w, &c, &out, &fitted, call->at)) return term_error();
        if (!converts) { /* another type: add outside */
            value product = op_finish(w, op_make(w, OP_DOT, operands, 2), term_type(&out, out.elem));
            term sum = out;
            sum.value = product;
            sum = lower_binary(w, "+", &fitted, &sum, call->at);
            sum.bounds = fitted.bounds;
            return sum;
        }
        fitted = term_cast(w, &fitted, out.elem, 0);
        operands[2] = term_value(w, &fitted);
        out.bounds = fitted.bounds;
    }
    out.value = op_finish(w, op_make(w, OP_DOT, operands, operands[2] ? 3 : 2), term_type(&out, out.elem));
    return out;
}
