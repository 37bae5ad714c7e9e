/*
 * Statements: declarations, assignment (which stores: section 7), branches, jumps.
 *
 * A branch snapshots all variables, lowers both sides and merges what differs: as results of an `if`, or inside a
 * scalar function that is applied to tiles as selects, where every element takes its own path. A jump clears `live`;
 * what follows a statement that may jump is a branch on it. SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

enum { MAX_GUARDS = 400 };

static bool is_word(const char *word, const char *other)
{
    return !strcmp(word, other);
}

variable *variable_new(walk *w, const char *name, dtype elem)
{
    variable *v = ARENA_NEW(w->memory, variable);
    v->name = name;
    v->elem = elem;
    v->loop_depth = w->loop_depth;
    ARENA_PUSH(w->memory, w->variables, w->variable_count, w->variable_capacity, v);
    return v;
}

value *variables_note(walk *w)
{
    value *noted = ARENA_ARRAY(w->memory, value, w->variable_count + 1);
    for (int i = 0; i < w->variable_count; i++) noted[i] = w->variables[i]->now.value;
    return noted;
}

void variables_hold(walk *w, const value *noted, int count, place at)
{
    for (int i = 0; i < count; i++) {
        variable *v = w->variables[i];
        if (v->now.value == noted[i]) continue;
        diagnose(w->d, E213, at, "call it in a statement of its own, and branch with `if`",
                 "a function changes `%s` where it may or may not be called", v->name ? v->name : "a variable");
        v->now.value = noted[i];
    }
}

static void name_value(walk *w, value v, const char *name)
{
    const tile_op *op = tile_def(w->k, v);
    const char *known = w->k->values[v].name;
    bool shared = op && (op->code == OP_CONST || op->code == OP_ARG || op->code == OP_PROGRAM);
    if (shared || (known && strcmp(known, name)))
        tile_alias_add(w->k, v, name);
    else if (op)
        value_name(w, v, name);
}

/* A declarator whose value is wrong still declares its name. */
static void declare(walk *w, const char *name, dtype elem, const term *t, bool follows)
{
    variable *v = variable_new(w, name, elem);
    v->follows = follows;
    if (!is_error(t)) {
        v->now = *t;
        v->now.value = term_value(w, t);
        v->now.kind = TERM_VALUE;
        v->is_set = true;
        name_value(w, v->now.value, name);
    }
    symbol_push(w, (symbol){.name = name, .kind = SYMBOL_VARIABLE, .variable = v});
}

static term declared_tile(walk *w, const ast *node, const term *t)
{
    if (!node->list.count) {
        if (t->rank) return *t;
        diagnose(
            w->d, E304, node->at,
            arena_print(
                w->memory,
                "one number is no tile: write `float %s = ...`; a block of it: `tile float %s[BLOCK] = 0`, or `like`",
                node->name, node->name),
            "tile `%s` is initialised with a scalar and needs extents", node->name);
        return term_error();
    }
    term shape = {.kind = TERM_VALUE, .rank = node->list.count}, out;
    for (int i = 0; i < shape.rank; i++)
        if (!axis_from(w, node->list.items[i], &shape.axes[i])) return term_error();
    w->at = node->at;
    if (!shape_check(w, &shape, node->at) || !shape_fit(w, t, &shape, &out, node->left->at)) return term_error();
    return out;
}

static void scalar_from_tile(walk *w, place at, const char *name, const term *t)
{
    diagnose(w->d, E305, at, "reduce it, or declare it `tile`", "scalar `%s` from a tile of shape %s", name,
             shape_text(w, t));
}

static void lower_declare(walk *w, const ast *node)
{
    dtype elem;
    bool good = resolve_type(w, node->type, &elem);
    for (int i = 0; i < node->list.count; i++) {
        const ast *item = node->list.items[i];
        term t = lower_expression(w, item->left);
        w->at = item->at;
        if (good)
            t = term_convert(w, &t, elem, item->left->at);
        else
            t = term_error();
        if (!is_error(&t) && node->is_tile)
            t = declared_tile(w, item, &t);
        else if (!is_error(&t) && t.rank && !w->elementwise) {
            scalar_from_tile(w, item->left->at, item->name, &t);
            t = term_error();
        }
        declare(w, item->name, good ? elem : DT_F32, &t, w->elementwise);
    }
}

static void lower_constant(walk *w, const ast *node)
{
    dtype elem;
    term t = lower_expression(w, node->left);
    bool good = resolve_type(w, node->type, &elem);
    if (good && !is_error(&t) && (t.kind != TERM_CONSTANT || t.rank)) {
        text words = {0};
        lang_format_expression(node->left, &words);
        fault_not_constant(w->d, node->left->at, text_get(&words), "use a `const` parameter, or declare a variable");
        text_free(&words);
        t = term_error();
    }
    t = good ? term_convert(w, &t, elem, node->left->at) : term_error();
    symbol_push(w, (symbol){.name = node->name, .kind = SYMBOL_TERM, .term = t});
}

static bool mentions(const ast *node, const char *name)
{
    if (!node) return false;
    if (node->kind == AST_NAME && is_word(node->name, name)) return true;
    const ast *parts[] = {node->left, node->right, node->third};
    for (int i = 0; i < COUNT(parts); i++)
        if (mentions(parts[i], name)) return true;
    for (int i = 0; i < node->list.count; i++)
        if (mentions(node->list.items[i], name)) return true;
    return false;
}

/* A plain `=` whose value is invalid in places that move with a loop leaves old elements behind. */
static void warn_of_rest(walk *w, const variable *v, const bound *extra, const ast *node)
{
    if (!is_word(node->word, "=") || !node->right || mentions(node->right, v->name)) return;
    int depth = MAXIMUM(value_loop_depth(w, extra->start), value_loop_depth(w, extra->extent));
    if (depth <= v->loop_depth) return;
    diagnose(w->d, W601, node->at, "use `fill(..., 0)` to give the others a value",
             "`=` may keep old elements of `%s` where the value is invalid", v->name);
}

static void assign_variable(walk *w, variable *v, const term *given, const ast *node)
{
    place at = node->right ? node->right->at : node->at;
    term t = term_convert(w, given, v->elem, at), fitted;
    if (is_error(&t) || !v->is_set) return;
    w->at = node->at;
    if (v->follows) {
        v->now = t;
        v->now.value = term_value(w, &t);
        v->now.kind = TERM_VALUE;
        return;
    }
    if (!v->now.rank && t.rank) {
        scalar_from_tile(w, at, v->name, &t);
        return;
    }
    if (!shape_fit(w, &t, &v->now, &fitted, at)) return;
    value stored = term_value(w, &fitted), mask = 0;
    bool warned = false;
    for (int i = 0; i < fitted.bounds.count; i++) {
        const bound *b = &fitted.bounds.items[i];
        if (bounds_have(w, &v->now.bounds, b)) continue;
        value own = bound_mask(w, &fitted, b);
        mask = mask ? build2(w, OP_AND, mask, own) : own;
        int before = w->d->count;
        if (!warned) warn_of_rest(w, v, b, node);
        warned = warned || w->d->count > before;
    }
    if (mask) stored = build_select(w, mask, stored, v->now.value, F_ASSIGN);
    v->now.value = stored;
    name_value(w, stored, v->name);
}

static bool is_name(const ast *node, const char *name)
{
    return node && node->kind == AST_NAME && is_word(node->name, name);
}

/* v = keep(v, ...) and v = fill(v, ...) */
static bool refuses_validity(walk *w, const ast *node, const char *name)
{
    const ast *call = node->right;
    if (!is_word(node->word, "=") || !call || call->kind != AST_CALL || call->left->kind != AST_NAME ||
        !call->list.count)
        return false;
    const char *callee = call->left->name;
    if ((!is_word(callee, "keep") && !is_word(callee, "fill")) || ast_find(w->file, callee) ||
        !is_name(call->list.items[0], name))
        return false;
    diagnose(w->d, E401, node->at, "declare a new tile", "`%s = %s(%s, ...)`: validity is fixed where `%s` is declared",
             name, callee, name, name);
    return true;
}

/* The operator of a compound assignment: "+=" gives "+", "++" gives "+". */
static const char *compound_operator(walk *w, const char *word)
{
    if (is_word(word, "=")) return NULL;
    if (is_word(word, "++") || is_word(word, "--")) return word[0] == '+' ? "+" : "-";
    return arena_copy_text(w->memory, word, strlen(word) - 1);
}

static void assign_name(walk *w, const ast *node, variable *v)
{
    if (refuses_validity(w, node, v->name)) return;
    const char *operator= compound_operator(w, node->word);
    const ast *right = node->right;
    bool sums = operator&& is_word(operator, "+");
    const ast *product = sums && is_dot_call(w, right) ? right : NULL;
    if (!operator&& right->kind == AST_BINARY && is_word(right->word, "+") && is_name(right->left, v->name) &&
        is_dot_call(w, right->right))
        product = right->right;
    term t;
    if (product && v->is_set && v->now.rank)
        t = lower_dot(w, product, &v->now);
    else {
        t = right ? lower_expression(w, right) : term_of_constant(constant_int(1));
        if (operator) {
            term old = v->is_set ? v->now : term_error();
            t = lower_binary(w, operator, & old, &t, node->at);
        }
    }
    assign_variable(w, v, &t, node);
}

static void assign_access(walk *w, const ast *node)
{
    const char *operator= compound_operator(w, node->word);
    place_access a;
    bool good = access_resolve(w, node->left, &a);
    term old = term_error();
    if (good && operator) old = access_load(w, &a);
    term t = node->right ? lower_expression(w, node->right) : term_of_constant(constant_int(1));
    if (!good) return;
    if (w->k->params[a.access.array].kind == PARAM_IN) {
        fault_written(w->d, node->left->at, w->k->params[a.access.array].name);
        return;
    }
    w->at = node->at;
    if (operator) t = lower_binary(w, operator, & old, &t, node->at);
    w->at = node->at;
    if (!is_error(&t)) access_store(w, &a, &t, node->right ? node->right->at : node->at);
}

static void lower_assign(walk *w, const ast *node)
{
    const ast *base = node->left->kind == AST_INDEX ? node->left->left : node->left;
    symbol *s = base->kind == AST_NAME ? symbol_find(w, base->name) : NULL;
    if (s && s->kind == SYMBOL_ARRAY)
        assign_access(w, node);
    else if (s && s->kind == SYMBOL_VARIABLE && node->left->kind == AST_NAME)
        assign_name(w, node, s->variable);
    else if (s && s->kind == SYMBOL_VARIABLE)
        fault_part_of_tile(w->d, base->at, base->name);
    else if (s)
        fault_assigned(w->d, base->at, base->name);
    else
        fault_unknown(w->d, base->at, false, base->kind == AST_NAME ? base->name : "", NULL);
}

static void lower_if(walk *w, const ast *node)
{
    term c = lower_expression(w, node->left);
    if (!is_error(&c) && c.rank && !w->elementwise) {
        fault_tile_condition(w->d, node->left->at, false);
        c = term_error();
    }
    c = term_condition(w, &c, node->left->at);
    if (is_error(&c)) return;
    w->at = node->at;
    if (c.kind == TERM_CONSTANT) {
        const ast *taken = constant_truth(&c.constant) ? node->body : node->other;
        if (taken) lower_statement(w, taken);
        return;
    }
    lower_branch(w, c.value, node->body, node->other, NULL, 0);
}

static void clear(walk *w, variable *v)
{
    if (!v) return;
    v->now = term_of_value(w, build_bool(w, false));
}

static void lower_return(walk *w, const ast *node)
{
    target *end = w->target;
    while (end->is_loop) end = end->outer;
    if (end->result && node->list.count == 1) {
        const ast *expression = node->list.items[0];
        term t = lower_expression(w, expression);
        t = term_convert(w, &t, end->result->elem, expression->at);
        bool tile = end->function->is_tile;
        if (!is_error(&t) && !tile && t.rank && !w->elementwise) {
            diagnose(w->d, E305, expression->at, "reduce it, or declare the function `tile`",
                     "scalar result of `%s` from a tile", end->function->name);
            t = term_error();
        } else if (!is_error(&t) && tile && !t.rank) {
            diagnose(w->d, E304, expression->at, "return a tile", "`%s` returns a tile, this is a scalar",
                     end->function->name);
            t = term_error();
        }
        if (!is_error(&t)) {
            end->result->now = t;
            end->result->now.value = term_value(w, &t);
            end->result->now.kind = TERM_VALUE;
            end->result->is_set = true;
        }
    }
    w->at = node->at;
    for (target *t = w->target;; t = t->outer) {
        clear(w, t->live);
        clear(w, t->on);
        if (t == end) break;
    }
}

void lower_jump(walk *w, const ast *node)
{
    w->at = node->at;
    if (node->kind == AST_RETURN) {
        lower_return(w, node);
        return;
    }
    if (!w->target->is_loop) {
        fault_outside_loop(w->d, node->at, node->kind == AST_BREAK ? "break" : "continue");
        return;
    }
    clear(w, w->target->live);
    if (node->kind == AST_BREAK) clear(w, w->target->on);
}

void lower_statement(walk *w, const ast *node)
{
    if (w->k->value_count > MAX_VALUES) {
        if (!w->d->errors)
            diagnose(w->d, E105, node->from, "functions are expanded where they are called: split it, or write loops",
                     "`%s` has more than %d operations", w->kernel->name, MAX_VALUES);
        return;
    }
    w->at = node->at;
    switch (node->kind) {
    case AST_BLOCK: lower_block(w, node); break;
    case AST_DECLARE: lower_declare(w, node); break;
    case AST_CONSTANT: lower_constant(w, node); break;
    case AST_ASSIGN: lower_assign(w, node); break;
    case AST_CALL_STATEMENT: lower_call(w, node->left); break;
    case AST_IF: lower_if(w, node); break;
    case AST_FOR: lower_for(w, node); break;
    case AST_WHILE: lower_while(w, node); break;
    case AST_BREAK:
    case AST_CONTINUE:
    case AST_RETURN: lower_jump(w, node); break;
    default: break;
    }
}

void lower_list(walk *w, const ast_list *list, int first)
{
    for (int i = first; i < list->count; i++) {
        lower_statement(w, list->items[i]);
        bool live;
        value flag = w->target->live->now.value;
        if (bool_known(w, flag, &live)) {
            if (!live) return;
            continue;
        }
        if (i + 1 < list->count && w->guard_depth >= MAX_GUARDS) {
            diagnose(w->d, E105, list->items[i]->at, "split it", "more than %d jumps after each other", MAX_GUARDS);
        } else if (i + 1 < list->count) {
            w->at = list->items[i]->at;
            w->guard_depth++;
            lower_branch(w, flag, NULL, NULL, list, i + 1);
            w->guard_depth--;
        }
        return;
    }
}

void lower_block(walk *w, const ast *body)
{
    int symbols = w->symbol_count, variables = w->variable_count;
    if (body->kind == AST_BLOCK)
        lower_list(w, &body->list, 0);
    else
        lower_statement(w, body);
    w->symbol_count = symbols;
    w->variable_count = variables;
}
