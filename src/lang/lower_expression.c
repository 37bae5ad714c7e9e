/*
 * Expressions to terms. Constants fold at once; a scalar `?:`, `&&` or `||` evaluates its other side only if needed:
 * as an `if` region where that side reads memory, divides integers or acts, else as a select or a plain and/or.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

static bool is_word(const char *word, const char *other)
{
    return !strcmp(word, other);
}

static term fault_term(walk *w, error_code code, place at)
{
    fault_constant(w->d, code, at);
    return term_error();
}

/* An elementwise op over terms that have one type already. */
static term combine(walk *w, op_code code, const term *a, const term *b, place at)
{
    term out = {.kind = TERM_VALUE};
    if (!shape_join(w, a, b, &out, at)) return term_error();
    value x = term_value(w, a), y = term_value(w, b);
    if ((code == OP_DIV || code == OP_MOD) && w->path &&
        dtype_is_integer(a->elem)) /* elements on another path do not divide */
        y = build_select(w, w->path, y, build_number(w, (number){.i = 1}, b->elem), 0);
    out.value = build2(w, code, x, y);
    tile_type type = tile_type_of(w->k, out.value);
    out.elem = type.elem;
    if (type.rank && !out.rank) return term_of_value(w, out.value); /* the path made it a tile */
    bounds_add_all(w, &out.bounds, &a->bounds);
    bounds_add_all(w, &out.bounds, &b->bounds);
    return out;
}

static bool is_plain(walk *w, const term *t, place at)
{
    if (t->kind == TERM_CONSTANT || t->kind == TERM_VALUE) return true;
    if (!is_error(t)) term_convert(w, t, DT_F32, at);
    return false;
}

term lower_binary(walk *w, const char *word, const term *left, const term *right, place at)
{
    if (!is_plain(w, left, at) || !is_plain(w, right, at)) return term_error();
    w->at = at;
    if (left->kind == TERM_CONSTANT && right->kind == TERM_CONSTANT && !left->rank && !right->rank) {
        binding out;
        error_code fault = constant_binary(word, &left->constant, &right->constant, &out);
        if (fault == E206) {
            fault_join(w->d, at, left->elem, right->elem);
            return term_error();
        }
        return fault ? fault_term(w, fault, at) : term_of_constant(out);
    }
    op_code code = operator_code(word);
    CHECK(code != OP_NONE);
    typed both[2] = {term_typed(left), term_typed(right)};
    dtype to[2];
    if (!typing_binary(w->d, w->memory, TYPING_KERNEL, word, both, at, to)) return term_error();
    term a = term_cast(w, left, to[0], 0), b = term_cast(w, right, to[1], 0);
    return combine(w, code, &a, &b, at);
}

static term lower_unary(walk *w, const ast *node)
{
    term t = lower_expression(w, node->left);
    if (!is_plain(w, &t, node->left->at)) return term_error();
    w->at = node->at;
    if (t.kind == TERM_CONSTANT) {
        binding out;
        error_code fault = constant_unary(node->word, &t.constant, &out);
        if (fault) return fault_term(w, fault, node->at);
        term c = t;
        c.constant = out;
        c.elem = out.type;
        return c;
    }
    if (is_word(node->word, "!")) {
        t = term_condition(w, &t, node->at);
        if (!is_error(&t)) t.value = build(w, OP_NOT, &t.value, 1);
        return t;
    }
    if (is_word(node->word, "~") && dtype_is_float(t.elem)) {
        fault_integers(w->d, node->at, "~");
        return term_error();
    }
    t = term_promote(w, &t);
    if (is_word(node->word, "-")) t.value = build(w, OP_NEG, &t.value, 1);
    if (is_word(node->word, "~")) t.value = build(w, OP_NOT, &t.value, 1);
    return t;
}

/* May this block's ops be computed although nobody asked? */
static bool is_harmless(const walk *w, const tile_block *b)
{
    if (b->op_count > 12) return false;
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        if (!ops[op->code].pure || op->region_count) return false;
        if ((op->code == OP_DIV || op->code == OP_MOD) && !dtype_is_float(tile_type_of(w->k, op->operands[0]).elem))
            return false;
        if (op->flags & (F_INDEX | F_IMPLICIT)) return false;
    }
    return true;
}

static void splice(walk *w, const tile_block *b)
{
    for (int i = 0; i < b->op_count; i++) op_append(w, b->ops[i]);
}

static void yield(walk *w, const value *values, int count)
{
    op_append(w, op_make(w, OP_YIELD, values, count));
}

static term lower_side(walk *w, const ast *node, tile_block *block)
{
    int mark, count = w->variable_count;
    value *noted = variables_note(w);
    tile_block *outer = block_enter(w, block, &mark);
    term t = lower_expression(w, node);
    block_leave(w, outer, mark);
    variables_hold(w, noted, count, node->at);
    return t;
}

/* Tiles, or scalars inside a function that is applied element by element. */
static term lower_logical_tile(walk *w, const ast *node, const term *left)
{
    value path = w->path;
    if (w->elementwise) {
        value own = term_value(w, left);
        if (is_word(node->word, "||")) own = build(w, OP_NOT, &own, 1);
        w->path = path ? build2(w, OP_AND, path, own) : own;
    }
    term right = lower_expression(w, node->right);
    w->path = path;
    return lower_binary(w, node->word, left, &right, node->at);
}

static term lower_logical(walk *w, const ast *node)
{
    bool both = is_word(node->word, "&&");
    term left = lower_expression(w, node->left);
    left = term_condition(w, &left, node->left->at);
    if (left.kind == TERM_CONSTANT && !left.rank) {
        if (constant_truth(&left.constant) != both) return term_of_constant(constant_bool(!both));
        term right = lower_expression(w, node->right);
        return term_condition(w, &right, node->right->at);
    }
    if (is_error(&left) || left.rank || w->elementwise) return lower_logical_tile(w, node, &left);
    tile_block *block = tile_block_new(w->k);
    term right = lower_side(w, node->right, block);
    w->at = node->at;
    if (is_error(&right) || right.kind == TERM_CONSTANT || right.rank || is_harmless(w, block)) {
        splice(w, block);
        return lower_binary(w, node->word, &left, &right, node->at);
    }
    int mark;
    tile_block *outer = block_enter(w, block, &mark);
    right = term_condition(w, &right, node->right->at);
    value v = is_error(&right) ? build_bool(w, false) : term_value(w, &right);
    yield(w, &v, 1);
    tile_block *other = tile_block_new(w->k);
    block_leave(w, outer, mark);
    block_enter(w, other, &mark);
    value known = build_bool(w, !both);
    yield(w, &known, 1);
    block_leave(w, outer, mark);
    value condition = term_value(w, &left);
    tile_op *op = op_make(w, OP_IF, &condition, 1);
    op->regions[0] = both ? block : other;
    op->regions[1] = both ? other : block;
    op->region_count = 2;
    value result = tile_result(w->k, op, scalar_type(DT_BOOL));
    op_append(w, op);
    value_set_depth(w, result, w->loop_depth);
    return is_error(&right) ? term_error() : term_of_value(w, result);
}

/* where(c, a, b): all are evaluated. */
static term choose(walk *w, const term *c, term *a, term *b, place at)
{
    if (is_error(c) || is_error(a) || is_error(b)) return term_error();
    typed both[2] = {term_typed(a), term_typed(b)};
    dtype type;
    if (!typing_select(w->d, w->memory, TYPING_KERNEL, both, at, &type)) return term_error();
    *a = term_cast(w, a, type, 0);
    *b = term_cast(w, b, type, 0);
    term out = {.kind = TERM_VALUE, .elem = a->elem};
    if (!shape_join(w, a, b, &out, at) || !shape_join(w, &out, c, &out, at)) return term_error();
    w->at = at;
    out.elem = a->elem;
    out.value = build_select(w, term_value(w, c), term_value(w, a), term_value(w, b), 0);
    bounds_add_all(w, &out.bounds, &c->bounds);
    bounds_add_all(w, &out.bounds, &a->bounds);
    bounds_add_all(w, &out.bounds, &b->bounds);
    return out;
}

term lower_where(walk *w, const term *condition, const term *a, const term *b, place at)
{
    term c = term_condition(w, condition, at), x = *a, y = *b;
    if (!is_plain(w, &x, at) || !is_plain(w, &y, at)) return term_error();
    return choose(w, &c, &x, &y, at);
}

/* Ends a side of a scalar condition: its value in the joint type and shape, and its mask if one of the sides has
 * bounds. */
static void end_side(walk *w, tile_block *block, const term *t, const term *joint, bool masked)
{
    int mark;
    tile_block *outer = block_enter(w, block, &mark);
    term shaped = shape_broadcast(w, t, joint);
    value values[2] = {term_value(w, &shaped), 0};
    if (masked) values[1] = mask_full(w, &shaped);
    yield(w, values, masked ? 2 : 1);
    block_leave(w, outer, mark);
}

static term cast_in(walk *w, tile_block *block, const term *t, dtype to)
{
    int mark;
    tile_block *outer = block_enter(w, block, &mark);
    term out = term_cast(w, t, to, 0);
    block_leave(w, outer, mark);
    return out;
}

/* The common type of two sides that stand in blocks of their own. */
static bool join_sides(walk *w, term *a, tile_block *a_block, term *b, tile_block *b_block, place at)
{
    typed both[2] = {term_typed(a), term_typed(b)};
    dtype type;
    if (!typing_select(w->d, w->memory, TYPING_KERNEL, both, at, &type)) return false;
    *a = cast_in(w, a_block, a, type);
    *b = cast_in(w, b_block, b, type);
    return true;
}

static term lower_conditional(walk *w, const ast *node)
{
    term c = lower_expression(w, node->left);
    c = term_condition(w, &c, node->left->at);
    if (c.kind == TERM_CONSTANT && !c.rank)
        return lower_expression(w, constant_truth(&c.constant) ? node->right : node->third);
    if (is_error(&c) || c.rank || w->elementwise) {
        value path = w->path;
        if (w->elementwise && !is_error(&c))
            w->path = path ? build2(w, OP_AND, path, term_value(w, &c)) : term_value(w, &c);
        term a = lower_expression(w, node->right);
        if (w->elementwise && !is_error(&c)) {
            value own = term_value(w, &c), not = build(w, OP_NOT, &own, 1);
            w->path = path ? build2(w, OP_AND, path, not ) : not ;
        }
        term b = lower_expression(w, node->third);
        w->path = path;
        return lower_where(w, &c, &a, &b, node->at);
    }
    tile_block *blocks[2] = {tile_block_new(w->k), tile_block_new(w->k)};
    term a = lower_side(w, node->right, blocks[0]), b = lower_side(w, node->third, blocks[1]);
    w->at = node->at;
    if (!is_plain(w, &a, node->right->at) || !is_plain(w, &b, node->third->at)) return term_error();
    if (!a.rank && !b.rank && is_harmless(w, blocks[0]) && is_harmless(w, blocks[1])) {
        splice(w, blocks[0]);
        splice(w, blocks[1]);
        return lower_where(w, &c, &a, &b, node->at);
    }
    term out = {.kind = TERM_VALUE};
    if (!shape_join(w, &a, &b, &out, node->at) || !join_sides(w, &a, blocks[0], &b, blocks[1], node->at))
        return term_error();
    for (int i = 0; i < out.rank; i++)
        if (out.axes[i].extent < 0) { /* the extent must be known outside */
            splice(w, blocks[0]);
            splice(w, blocks[1]);
            return lower_where(w, &c, &a, &b, node->at);
        }
    bool masked = a.bounds.count || b.bounds.count;
    out.elem = a.elem;
    end_side(w, blocks[0], &a, &out, masked);
    end_side(w, blocks[1], &b, &out, masked);
    value condition = term_value(w, &c);
    tile_op *op = op_make(w, OP_IF, &condition, 1);
    op->regions[0] = blocks[0];
    op->regions[1] = blocks[1];
    op->region_count = 2;
    out.value = tile_result(w->k, op, term_type(&out, out.elem));
    value_set_depth(w, out.value, w->loop_depth);
    if (masked) {
        value mask = tile_result(w->k, op, term_type(&out, DT_BOOL));
        value_set_depth(w, mask, w->loop_depth);
        bounds_add(w, &out.bounds, (bound){.kind = BOUND_MASK, .axes = (1u << out.rank) - 1, .start = mask});
    }
    op_append(w, op);
    return out;
}

static term lower_index(walk *w, const ast *node)
{
    if (node->left->kind == AST_NAME) {
        symbol *s = symbol_find(w, node->left->name);
        if (s && s->kind == SYMBOL_ARRAY) return lower_access(w, node, false);
    }
    term t = lower_expression(w, node->left);
    w->at = node->at;
    if (!is_plain(w, &t, node->left->at)) return term_error();
    return shape_brackets(w, &t, node);
}

static term lower_one(walk *w, const ast *node)
{
    term out;
    switch (node->kind) {
    case AST_NUMBER: return term_of_constant(constant_of_number(node));
    case AST_BOOL: return term_of_constant(constant_bool(node->number.i != 0));
    case AST_NAME: return lower_name(w, node);
    case AST_UNARY: return lower_unary(w, node);
    case AST_BINARY:
        if (is_word(node->word, "&&") || is_word(node->word, "||")) return lower_logical(w, node);
        out = lower_expression(w, node->left);
        term right = lower_expression(w, node->right);
        return lower_binary(w, node->word, &out, &right, node->at);
    case AST_CONDITIONAL: return lower_conditional(w, node);
    case AST_CALL: return lower_call(w, node);
    case AST_INDEX: return lower_index(w, node);
    default:
        diagnose(w->d, E212, node->at, "use it as an argument of a builtin that takes it",
                 node->kind == AST_STRING ? "a text is not a value" : "a type is not a value");
        return term_error();
    }
}

term lower_expression(walk *w, const ast *node)
{
    if (w->expression_depth >= EXPRESSION_DEPTH_LIMIT) {
        fault_expression_depth(w->d, node->at);
        return term_error();
    }
    w->expression_depth++;
    term out = lower_one(w, node);
    w->expression_depth--;
    return out;
}
