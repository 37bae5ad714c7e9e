/*
 * Statements: declarations, assignment (which stores: section 7), branches, jumps.
 *
 * A branch snapshots all variables, lowers both sides and merges what differs: as results of an `if`, or inside a
 * scalar function that is applied to tiles as selects, where every element takes its own path. A jump clears `live`;
 * what follows a statement that may jump is a branch on it. SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

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
        diagnose(w->d, "E304", node->at,
                 arena_print(w->memory, "write `tile float %s[BLOCK] = 0`, or use `like`", node->name),
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
            diagnose(w->d, "E305", item->left->at, "reduce it, or declare it `tile`",
                     "scalar `%s` from a tile of shape %s", item->name, shape_text(w, &t));
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
        diagnose(w->d, "E217", node->left->at, "use a `const` parameter, or declare a variable",
                 "not a compile-time constant: `%s`", text_get(&words));
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
    diagnose(w->d, "W601", node->at, "use `fill(..., 0)` to give the others a value",
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
        diagnose(w->d, "E305", at, "reduce it, or declare it `tile`", "scalar `%s` from a tile of shape %s", v->name,
                 shape_text(w, &t));
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
    diagnose(w->d, "E401", node->at, "declare a new tile",
             "`%s = %s(%s, ...)`: validity is fixed where `%s` is declared", name, callee, name, name);
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
        diagnose(w->d, "E204", node->left->at, "declare it `inout`", "write to the `in` array `%s`",
                 w->k->params[a.access.array].name);
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
        diagnose(w->d, "E208", node->left->at, "use `where`", "part of a tile cannot be assigned");
    else if (s)
        diagnose(w->d, "E203", base->at, "declare a variable", "`%s` cannot be assigned", base->name);
    else
        diagnose(w->d, "E201", base->at, "declare it", "unknown name `%s`", base->kind == AST_NAME ? base->name : "");
}

/* Variables before a branch. */
typedef struct snapshot {
    term *terms;
    bool *set;
    int count;
} snapshot;

static snapshot snapshot_take(walk *w)
{
    snapshot s = {ARENA_ARRAY(w->memory, term, w->variable_count + 1),
                  ARENA_ARRAY(w->memory, bool, w->variable_count + 1), w->variable_count};
    for (int i = 0; i < s.count; i++) {
        s.terms[i] = w->variables[i]->now;
        s.set[i] = w->variables[i]->is_set;
    }
    return s;
}

static void snapshot_restore(walk *w, const snapshot *s)
{
    for (int i = 0; i < s->count; i++) {
        w->variables[i]->now = s->terms[i];
        w->variables[i]->is_set = s->set[i];
    }
}

/* One side of a branch. The rest of a list is guarded by `live`, which is known on either side. */
static void lower_side(walk *w, const ast *body, const ast_list *rest, int first, bool taken)
{
    int symbols = w->symbol_count, variables = w->variable_count;
    if (rest) w->target->live->now = term_of_value(w, build_bool(w, taken));
    if (rest && taken)
        lower_list(w, rest, first);
    else if (body)
        lower_statement(w, body);
    w->symbol_count = symbols;
    w->variable_count = variables;
}

static bool same_bounds(const walk *w, const bound_list *a, const bound_list *b)
{
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (!bounds_have(w, b, &a->items[i])) return false;
    return true;
}

/* Inside an elementwise function: both sides in one block, merged by selects. */
static void branch_by_element(walk *w, value condition, const ast *then_body, const ast *else_body,
                              const ast_list *rest, int first)
{
    value path = w->path, other = build(w, OP_NOT, &condition, 1);
    snapshot before = snapshot_take(w);
    w->path = path ? build2(w, OP_AND, path, condition) : condition;
    lower_side(w, then_body, rest, first, true);
    snapshot yes = snapshot_take(w);
    snapshot_restore(w, &before);
    w->path = path ? build2(w, OP_AND, path, other) : other;
    lower_side(w, else_body, rest, first, false);
    w->path = path;
    for (int i = 0; i < before.count; i++) {
        variable *v = w->variables[i];
        const term *a = &yes.terms[i];
        if (!yes.set[i] || (v->is_set && v->now.value == a->value)) continue;
        if (!v->is_set) {
            v->now = *a;
            v->is_set = true;
            continue;
        }
        bool yes_true, no_true;
        if (v->elem == DT_BOOL && bool_known(w, a->value, &yes_true) && bool_known(w, v->now.value, &no_true) &&
            yes_true != no_true) {
            v->now = term_of_value(w, yes_true ? condition : other);
            continue;
        }
        term c = term_of_value(w, condition), out = {.kind = TERM_VALUE, .elem = v->elem};
        if (!shape_join(w, a, &v->now, &out, w->at) || !shape_join(w, &out, &c, &out, w->at)) continue;
        out.value = build_select(w, condition, a->value, v->now.value, 0);
        v->now = out;
    }
}

typedef struct merge {
    walk *w;
    value condition;
    tile_block *blocks[2];
    value *yields[2];
    int yield_count;
    tile_op *op;
} merge;

static value in_block(walk *w, tile_block *block, const term *t, bool mask, bool filler, dtype elem)
{
    int mark;
    tile_block *outer = block_enter(w, block, &mark);
    value v;
    if (mask)
        v = mask_full(w, t);
    else if (filler) {
        v = build_number(w, (number){0}, elem);
        if (t->rank) v = build_shape(w, OP_BROADCAST, v, term_type(t, elem));
    } else
        v = t->value;
    block_leave(w, outer, mark);
    return v;
}

static value merged(merge *m, value yes, value no)
{
    m->yields[0][m->yield_count] = yes;
    m->yields[1][m->yield_count++] = no;
    value v = tile_result(m->w->k, m->op, tile_type_of(m->w->k, yes));
    value_set_depth(m->w, v, m->w->loop_depth);
    return v;
}

static void merge_variable(merge *m, variable *v, const term *yes, bool yes_set)
{
    walk *w = m->w;
    if (!yes_set && !v->is_set) return;
    bool yes_true, no_true;
    if (yes_set && v->is_set && yes->value == v->now.value) return;
    if (yes_set && v->is_set && v->elem == DT_BOOL && !yes->rank && bool_known(w, yes->value, &yes_true) &&
        bool_known(w, v->now.value, &no_true)) {
        value c = m->condition;
        v->now = term_of_value(w, yes_true == no_true ? build_bool(w, yes_true)
                                  : yes_true          ? c
                                                      : build(w, OP_NOT, &c, 1));
        return;
    }
    const term *full = yes_set ? yes : &v->now;
    term no = v->now, joint = *full;
    bool no_set = v->is_set;
    if (yes_set && no_set && !shape_fit(w, &no, yes, &no, w->at)) return; /* results of different shape: told */
    value a = in_block(w, m->blocks[0], full, false, !yes_set, v->elem),
          b = in_block(w, m->blocks[1], no_set ? &no : full, false, !no_set, v->elem);
    if (yes_set && no_set && !same_bounds(w, &yes->bounds, &no.bounds)) {
        value mask = merged(m, in_block(w, m->blocks[0], yes, true, false, DT_BOOL),
                            in_block(w, m->blocks[1], &no, true, false, DT_BOOL));
        joint.bounds = (bound_list){0};
        bounds_add(w, &joint.bounds, (bound){.kind = BOUND_MASK, .axes = (1u << joint.rank) - 1, .start = mask});
    }
    joint.value = merged(m, a, b);
    v->now = joint;
    v->is_set = true;
    if (v->name) value_name(w, joint.value, v->name);
}

/* Only values that nobody sees. */
static bool does_nothing(const tile_block *b)
{
    for (int i = 0; i < b->op_count; i++)
        if (!ops[b->ops[i]->code].pure) return false;
    return true;
}

void lower_branch(walk *w, value condition, const ast *then_body, const ast *else_body, const ast_list *rest, int first)
{
    bool at_top = w->at_top;
    place at = w->at;
    w->at_top = false;
    if (w->elementwise) {
        branch_by_element(w, condition, then_body, else_body, rest, first);
        w->at_top = at_top;
        return;
    }
    merge m = {.w = w, .condition = condition, .blocks = {tile_block_new(w->k), tile_block_new(w->k)}};
    snapshot before = snapshot_take(w);
    int mark;
    tile_block *outer = block_enter(w, m.blocks[0], &mark);
    lower_side(w, then_body, rest, first, true);
    block_leave(w, outer, mark);
    snapshot yes = snapshot_take(w);
    snapshot_restore(w, &before);
    block_enter(w, m.blocks[1], &mark);
    lower_side(w, else_body, rest, first, false);
    block_leave(w, outer, mark);
    w->at = at;
    w->at_top = at_top;
    m.op = op_make(w, OP_IF, &condition, 1);
    for (int side = 0; side < 2; side++) m.yields[side] = ARENA_ARRAY(w->memory, value, 2 * before.count + 1);
    for (int i = 0; i < before.count; i++) merge_variable(&m, w->variables[i], &yes.terms[i], yes.set[i]);
    if (!m.op->result_count && does_nothing(m.blocks[0]) && does_nothing(m.blocks[1])) return;
    for (int side = 0; side < 2; side++)
        tile_append(w->k, m.blocks[side], op_make(w, OP_YIELD, m.yields[side], m.yield_count));
    m.op->regions[0] = m.blocks[0];
    m.op->regions[1] = m.blocks[1];
    m.op->region_count = 2;
    op_append(w, m.op);
}

static void lower_if(walk *w, const ast *node)
{
    term c = lower_expression(w, node->left);
    if (!is_error(&c) && c.rank && !w->elementwise) {
        diagnose(w->d, "E210", node->left->at, "say `any(...)`, `all(...)` or use `where`",
                 "a tile is not a condition");
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
            diagnose(w->d, "E305", expression->at, "reduce it, or declare the function `tile`",
                     "scalar result of `%s` from a tile", end->function->name);
            t = term_error();
        } else if (!is_error(&t) && tile && !t.rank) {
            diagnose(w->d, "E304", expression->at, "return a tile", "`%s` returns a tile, this is a scalar",
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
        diagnose(w->d, "E404", node->at, "remove it", "`%s` outside a loop",
                 node->kind == AST_BREAK ? "break" : "continue");
        return;
    }
    clear(w, w->target->live);
    if (node->kind == AST_BREAK) clear(w, w->target->on);
}

void lower_statement(walk *w, const ast *node)
{
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
        if (i + 1 < list->count) {
            w->at = list->items[i]->at;
            lower_branch(w, flag, NULL, NULL, list, i + 1);
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
