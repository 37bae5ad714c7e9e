/*
 * Loops. A `for` without break and return becomes FOR, everything else WHILE with an `on` flag. What the body assigns,
 * found by looking at its tree, is carried; flags of outer bodies are carried when the body may return.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

typedef struct carried {
    walk *w;
    variable **items;
    int count, capacity;
} carried;

static void carry(carried *c, variable *v)
{
    if (!v || !v->is_set) return;
    for (int i = 0; i < c->count; i++)
        if (c->items[i] == v) return;
    ARENA_PUSH(c->w->memory, c->items, c->count, c->capacity, v);
}

static void carry_name(carried *c, const ast *node)
{
    symbol *s = node && node->kind == AST_NAME ? symbol_find(c->w, node->name) : NULL;
    if (s && s->kind == SYMBOL_VARIABLE) carry(c, s->variable);
}

/* Assigned names, and tile variables that a function may change. */
static void carry_assigned(carried *c, const ast *node)
{
    if (!node) return;
    if (node->kind == AST_ASSIGN) carry_name(c, node->left);
    if (node->kind == AST_CALL && node->left->kind == AST_NAME) {
        const ast *item = ast_find(c->w->file, node->left->name);
        bool function = item && item->kind == AST_FUNCTION;
        for (int i = 0; function && i < node->list.count && i < item->list.count; i++)
            if (item->list.items[i]->is_tile && !strcmp(item->list.items[i]->word, "inout"))
                carry_name(c, node->list.items[i]);
    }
    const ast *parts[] = {node->left, node->right, node->third, node->body, node->other};
    for (int i = 0; i < COUNT(parts); i++) carry_assigned(c, parts[i]);
    for (int i = 0; i < node->list.count; i++) carry_assigned(c, node->list.items[i]);
}

/* A break of this loop, not of one inside. */
static bool breaks(const ast *node)
{
    if (!node || node->kind == AST_FOR || node->kind == AST_WHILE) return false;
    if (node->kind == AST_BREAK) return true;
    if (breaks(node->body) || breaks(node->other)) return true;
    for (int i = 0; node->kind == AST_BLOCK && i < node->list.count; i++)
        if (breaks(node->list.items[i])) return true;
    return false;
}

static void carry_flags(carried *c, bool returns)
{
    for (target *t = c->w->target; returns && t; t = t->outer) {
        carry(c, t->live);
        carry(c, t->on);
        carry(c, t->result);
        if (!t->is_loop) break;
    }
}

static tile_type variable_type(const variable *v)
{
    return term_type(&v->now, v->elem);
}

/* Region arguments for the carried variables, which hold them from here on. */
static void take_arguments(carried *c, tile_block *region)
{
    walk *w = c->w;
    for (int i = 0; i < c->count; i++) {
        variable *v = c->items[i];
        value argument = tile_block_arg(w->k, region, variable_type(v));
        value_set_depth(w, argument, w->loop_depth);
        if (v->name) value_name(w, argument, v->name);
        v->now.value = argument;
    }
}

static void append_yield(carried *c, value before, bool has_before)
{
    walk *w = c->w;
    value *values = ARENA_ARRAY(w->memory, value, c->count + 1);
    int count = 0;
    if (has_before) values[count++] = before;
    for (int i = 0; i < c->count; i++) values[count++] = c->items[i]->now.value;
    op_append(w, op_make(w, OP_YIELD, values, count));
}

static void take_results(carried *c, tile_op *op)
{
    walk *w = c->w;
    for (int i = 0; i < c->count; i++) {
        variable *v = c->items[i];
        value result = tile_result(w->k, op, variable_type(v));
        value_set_depth(w, result, w->loop_depth);
        if (v->name) value_name(w, result, v->name);
        v->now.value = result;
    }
}

static variable *flag_new(walk *w)
{
    variable *v = variable_new(w, NULL, DT_BOOL);
    v->now = term_of_value(w, build_bool(w, true));
    v->is_set = v->follows = true;
    return v;
}

/* The body with its own `live` flag; `variable` is the loop's name for `counter`, if there is one. */
static void lower_body(walk *w, const ast *body, const char *name, value counter, variable *on)
{
    int symbols = w->symbol_count, variables = w->variable_count;
    if (name) {
        term t = term_of_value(w, counter);
        value_name(w, counter, name);
        symbol_push(w, (symbol){.name = name, .kind = SYMBOL_TERM, .term = t});
    }
    target here = {.outer = w->target, .is_loop = true, .on = on};
    here.live = flag_new(w);
    w->target = &here;
    lower_block(w, body);
    w->target = here.outer;
    w->symbol_count = symbols;
    w->variable_count = variables;
}

typedef struct range {
    value first, limit, step;
    bool down;
} range;

static bool loop_integer(walk *w, const ast *node, value *out)
{
    term t = lower_expression(w, node);
    t = term_convert(w, &t, DT_I64, node->at);
    if (is_error(&t)) return false;
    if (t.rank) {
        diagnose(w->d, E305, node->at, "reduce it", "first value, bound and step of a `for` are scalars, not tiles");
        return false;
    }
    *out = term_value(w, &t);
    return true;
}

static bool lower_range(walk *w, const ast *node, range *r)
{
    bool good = loop_integer(w, node->left, &r->first);
    good = loop_integer(w, node->right, &r->limit) && good;
    r->step = build_integer(w, 1);
    if (node->third) good = loop_integer(w, node->third, &r->step) && good;
    if (!good) return false;
    w->at = node->at;
    int64_t step;
    if (value_constant(w, r->step, &step) && step == 0) {
        fault_step(w->d, node->third ? node->third->at : node->at, false);
        return false;
    }
    if (node->words[0] == '-')
        r->step = value_constant(w, r->step, &step) ? build_integer(w, (int64_t)(0 - (uint64_t)step))
                                                    : build(w, OP_NEG, &r->step, 1);
    r->down = node->word[0] == '>';
    if (node->word[1] == '=') {
        int64_t limit, last = r->down ? INT64_MIN : INT64_MAX; /* nobody gets there to see that it is left out */
        op_code code = r->down ? OP_SUB : OP_ADD;
        r->limit = !value_constant(w, r->limit, &limit) ? build2(w, code, r->limit, build_integer(w, 1))
                   : limit == last                      ? r->limit
                                                        : build_integer(w, limit + (r->down ? -1 : 1));
    }
    return true;
}

static void remember_loop(walk *w, value variable, const range *r)
{
    loop_fact fact = {.variable = variable, .first = r->first, .limit = r->limit, .up = !r->down};
    ARENA_PUSH(w->memory, w->loops, w->loop_count, w->loop_capacity, fact);
    value_set_depth(w, variable, w->loop_depth);
}

static void lower_counted(walk *w, const ast *node, const range *r, carried *c)
{
    value *operands = ARENA_ARRAY(w->memory, value, c->count + 3);
    operands[0] = r->first;
    operands[1] = r->limit;
    operands[2] = r->step;
    for (int i = 0; i < c->count; i++) operands[3 + i] = c->items[i]->now.value;
    tile_op *op = op_make(w, OP_FOR, operands, c->count + 3);
    if (r->down) op->flags |= F_DOWN;
    tile_block *region = tile_block_new(w->k);
    int mark;
    tile_block *outer = block_enter(w, region, &mark);
    w->loop_depth++;
    value counter = tile_block_arg(w->k, region, scalar_type(DT_I64));
    remember_loop(w, counter, r);
    take_arguments(c, region);
    lower_body(w, node->body, node->name, counter, NULL);
    append_yield(c, 0, false);
    w->loop_depth--;
    block_leave(w, outer, mark);
    op->regions[0] = region;
    op->region_count = 1;
    take_results(c, op);
    op_append(w, op);
}

static value loop_test(walk *w, const range *r, value counter)
{
    value test = build2(w, r->down ? OP_GT : OP_LT, counter, r->limit);
    int64_t step;
    if (value_constant(w, r->step, &step)) return (step > 0) == !r->down ? test : build_bool(w, false);
    return build2(w, OP_AND, test, build2(w, r->down ? OP_LT : OP_GT, r->step, build_integer(w, 0)));
}

/* The scalar condition of a while, as a value; errors give false. */
static value while_test(walk *w, const ast *node)
{
    int count = w->variable_count;
    value *noted = variables_note(w);
    term t = lower_expression(w, node);
    variables_hold(w, noted, count, node->at);
    if (!is_error(&t) && t.rank) {
        fault_tile_condition(w->d, node->at, true);
        t = term_error();
    }
    t = term_condition(w, &t, node->at);
    return is_error(&t) ? build_bool(w, false) : term_value(w, &t);
}

/* on && test, where the test is made only if `on`. */
static value guarded_test(walk *w, const ast *node, const variable *on)
{
    if (!on) return while_test(w, node);
    value condition = on->now.value, result;
    tile_block *blocks[2] = {tile_block_new(w->k), tile_block_new(w->k)};
    tile_op *op = op_make(w, OP_IF, &condition, 1);
    for (int side = 0; side < 2; side++) {
        int mark;
        tile_block *outer = block_enter(w, blocks[side], &mark);
        value v = side ? build_bool(w, false) : while_test(w, node);
        op_append(w, op_make(w, OP_YIELD, &v, 1));
        block_leave(w, outer, mark);
        op->regions[side] = blocks[side];
    }
    op->region_count = 2;
    result = tile_result(w->k, op, scalar_type(DT_BOOL));
    op_append(w, op);
    return result;
}

/* `r` NULL: a while statement. */
static void lower_general(walk *w, const ast *node, const range *r, carried *c, variable *on)
{
    value *operands = ARENA_ARRAY(w->memory, value, c->count + 1);
    int count = 0;
    if (r) operands[count++] = r->first;
    for (int i = 0; i < c->count; i++) operands[count++] = c->items[i]->now.value;
    tile_op *op = op_make(w, OP_WHILE, operands, count);
    w->loop_depth++;
    for (int side = 0; side < 2; side++) {
        tile_block *region = tile_block_new(w->k);
        int mark;
        tile_block *outer = block_enter(w, region, &mark);
        value counter = r ? tile_block_arg(w->k, region, scalar_type(DT_I64)) : 0;
        if (r) remember_loop(w, counter, r);
        take_arguments(c, region);
        if (side == 0) {
            w->at = node->at;
            value test = r ? loop_test(w, r, counter) : guarded_test(w, node->left, on);
            if (r && on) test = build2(w, OP_AND, on->now.value, test);
            op_append(w, op_make(w, OP_CONDITION, &test, 1));
        } else {
            lower_body(w, node->body, r ? node->name : NULL, counter, on);
            w->at = node->at;
            append_yield(c, r ? build2(w, OP_ADD, counter, r->step) : 0, r != NULL);
        }
        block_leave(w, outer, mark);
        op->regions[side] = region;
    }
    op->region_count = 2;
    w->loop_depth--;
    if (r) tile_result(w->k, op, scalar_type(DT_I64));
    take_results(c, op);
    op_append(w, op);
}

static void lower_loop(walk *w, const ast *node, const range *r)
{
    carried c = {.w = w};
    bool at_top = w->at_top, returns = tree_has(node->body, AST_RETURN), stops = returns || breaks(node->body);
    int variables = w->variable_count;
    variable *on = stops ? flag_new(w) : NULL;
    carry_assigned(&c, node->body);
    carry_flags(&c, returns);
    carry(&c, on);
    w->at_top = false;
    if (r && !stops)
        lower_counted(w, node, r, &c);
    else
        lower_general(w, node, r, &c, on);
    w->at_top = at_top;
    w->variable_count = variables;
}

void lower_for(walk *w, const ast *node)
{
    range r = {0};
    if (lower_range(w, node, &r)) lower_loop(w, node, &r);
}

void lower_while(walk *w, const ast *node)
{
    term t = {0};
    if (node->left->kind == AST_BOOL) t = lower_expression(w, node->left);
    if (t.kind == TERM_CONSTANT && !constant_truth(&t.constant)) return;
    lower_loop(w, node, NULL);
}
