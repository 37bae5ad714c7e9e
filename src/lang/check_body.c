/*
 * Statements and expressions: every name has a meaning, every assignment a target that can be assigned, every path its
 * return. No types: what `+` does with a tile and a float is lowering's business.
 * SPDX-License-Identifier: MIT
 */
#include "lang/check.h"
#include "lang/fault.h"

static bool check_statement(checker *c, const ast *node);

void check_read(checker *c, symbol *s, place at)
{
    s->used = true;
    if (!s->read) s->first_read = at;
    s->read = true;
}

static void check_name(checker *c, const ast *node)
{
    symbol *s = checker_find(c, node->name);
    if (s) {
        check_read(c, s, node->at);
        if (s->kind == SYMBOL_FUNCTION) fault_not_value(c->d, node->at, s->name);
        return;
    }
    const call_node *item = map_get(c->items, node->name);
    if (item && item->item->kind == AST_CONSTANT) return;
    if (!strcmp(node->name, "inf") || !strcmp(node->name, "nan") || !strcmp(node->name, "pi")) return;
    if (c->in_tensor && item) return; /* grad(f, ...) */
    if (item || builtin_find(node->name))
        fault_not_value(c->d, node->at, node->name);
    else
        checker_unknown(c, node->name, node->at, false);
}

static bool is_zero(const ast *node)
{
    return node && node->kind == AST_NUMBER && !node->is_float && node->number.i == 0;
}

static void check_subscripts(checker *c, const ast *node)
{
    for (int i = 0; i < node->list.count; i++) {
        const ast *subscript = node->list.items[i];
        if (subscript->is_spread && !c->in_tensor)
            diagnose(c->d, E104, subscript->from, "give one bracket for every axis: `[:]` for a whole axis",
                     "`[...]` outside a tensor function");
        if (subscript->left) check_expression(c, subscript->left);
        if (subscript->right) check_expression(c, subscript->right);
        if (subscript->third) check_expression(c, subscript->third);
        const ast *step = subscript->third;
        if (step && is_zero(step)) fault_step(c->d, step->at, true);
    }
}

void check_expression(checker *c, const ast *node)
{
    if (checker_tired(c)) return;
    switch (node->kind) {
    case AST_NAME: check_name(c, node); break;
    case AST_TYPE_NAME:
        diagnose(c->d, E104, node->at, arena_print(c->memory, "a cast is `%s(x)`", node->word),
                 "expected a value, found the type `%s`", node->word);
        break;
    case AST_STRING:
        diagnose(c->d, E104, node->at, "strings are for `print` and `assert`", "expected a value, found a string");
        break;
    case AST_UNARY: check_expression(c, node->left); break;
    case AST_BINARY:
        check_expression(c, node->left);
        check_expression(c, node->right);
        break;
    case AST_CONDITIONAL:
        check_expression(c, node->left);
        check_expression(c, node->right);
        check_expression(c, node->third);
        break;
    case AST_CALL: check_call(c, node, false); break;
    case AST_INDEX:
        check_expression(c, node->left);
        check_subscripts(c, node);
        break;
    case AST_NAMED: /* calls take these apart; anywhere else the parser makes none */
        if (node->left) check_expression(c, node->left);
        check_expressions(c, &node->list);
        break;
    default: break;
    }
}

void check_expressions(checker *c, const ast_list *list)
{
    for (int i = 0; i < list->count; i++) check_expression(c, list->items[i]);
}

static void check_type(checker *c, const ast *type)
{
    if (!type->is_generic) return;
    const ast *item = c->node->item;
    if (item->type && !strcmp(item->type->word, type->word)) return;
    for (int i = 0; i < item->list.count; i++)
        if (!strcmp(item->list.items[i]->type->word, type->word)) return;
    diagnose(c->d, E201, type->at, "a generic type is one that types a parameter", "unknown type `%s`", type->word);
}

static void cannot_assign(checker *c, const ast *target, const char *what, const char *advice)
{
    diagnose(c->d, E203, target->at, advice, "%s `%s` cannot be assigned", what, target->name);
}

static void check_assign(checker *c, const ast *node)
{
    const ast *target = node->left->kind == AST_INDEX ? node->left->left : node->left;
    bool indexed = node->left->kind == AST_INDEX, compound = strcmp(node->word, "=") != 0;
    symbol *s = checker_find(c, target->name);
    if (indexed) check_subscripts(c, node->left);
    if (node->right) check_expression(c, node->right);
    if (!s) {
        const call_node *item = map_get(c->items, target->name);
        bool function = !item && builtin_find(target->name);
        if (!item && !function)
            checker_unknown(c, target->name, target->at, false);
        else if (item && item->item->kind == AST_CONSTANT)
            cannot_assign(c, target, "the constant", "declare a variable");
        else
            cannot_assign(c, target, "the function", "declare a variable");
        return;
    }
    s->assigned = ++c->clock;
    switch (s->kind) {
    case SYMBOL_LOOP: cannot_assign(c, target, "the loop variable", "use `while`, or another variable"); break;
    case SYMBOL_EXTENT: cannot_assign(c, target, "the extent", "copy it to a variable"); break;
    case SYMBOL_CONSTANT:
    case SYMBOL_FUNCTION: cannot_assign(c, target, "the constant", "copy it to a variable"); break;
    case SYMBOL_SCALAR:
        if (s->is_extent) cannot_assign(c, target, "the extent", "copy it to a variable");
        break;
    case SYMBOL_TILE:
        if (s->is_param && !strcmp(s->node->word, "inout")) s->used = true;
        if (indexed) fault_part_of_tile(c->d, target->at, s->name);
        break;
    case SYMBOL_TENSOR:
        if (compound) check_read(c, s, target->at);
        if (indexed) fault_part_of_tensor(c->d, target->at, s->name);
        break;
    default:
        if (compound) check_read(c, s, target->at);
        check_write(c, s, target->at);
    }
}

/* The names of bound and step, as symbols; a loop reads them once. */
static void collect(checker *c, const ast *node, ast_list *names)
{
    if (!node) return;
    if (node->kind == AST_NAME) ARENA_PUSH(c->memory, names->items, names->count, names->capacity, (ast *)node);
    const ast *children[] = {node->left, node->right, node->third};
    for (int i = 0; i < COUNT(children); i++) collect(c, children[i], names);
    for (int i = 0; i < node->list.count; i++) collect(c, node->list.items[i], names);
}

static void check_for(checker *c, const ast *node)
{
    check_expression(c, node->left);
    check_expression(c, node->right);
    if (node->third) check_expression(c, node->third);
    if (is_zero(node->third)) fault_step(c->d, node->third->at, false);
    ast_list names = {0};
    collect(c, node->right, &names);
    collect(c, node->third, &names);
    symbol **symbols = ARENA_ARRAY(c->memory, symbol *, names.count + 1);
    for (int i = 0; i < names.count; i++) symbols[i] = checker_find(c, names.items[i]->name);
    int64_t start = c->clock;
    checker_open(c);
    symbol *variable = checker_declare(c, node->name, SYMBOL_LOOP, node->at, node);
    if (variable) variable->used = true;
    c->loops++;
    checker_open(c);
    check_statement(c, node->body);
    checker_close(c);
    c->loops--;
    checker_close(c);
    for (int i = 0; i < names.count; i++)
        if (symbols[i] && !symbol_is_array(symbols[i]) && symbols[i]->assigned > start)
            diagnose(c->d, E402, names.items[i]->at, "bound and step are evaluated once: use `while`",
                     "the body changes `%s`, which the loop's bound or step mentions", names.items[i]->name);
}

static void check_declare(checker *c, const ast *node)
{
    check_type(c, node->type);
    if (node->is_tile && c->in_scalar_function)
        diagnose(c->d, E216, node->from, "take a `tile` parameter to make it a tile function",
                 "a tile inside a scalar function");
    if (node->is_tile && c->in_tensor)
        diagnose(c->d, E104, node->from, "use `let`", "expected a statement of a tensor function, found a tile");
    for (int i = 0; i < node->list.count; i++) {
        const ast *declarator = node->list.items[i];
        check_expressions(c, &declarator->list);
        check_expression(c, declarator->left);
        checker_declare(c, declarator->name, node->is_tile ? SYMBOL_TILE : SYMBOL_SCALAR, declarator->at, declarator);
    }
}

static void check_return(checker *c, const ast *node)
{
    const ast *item = c->node->item;
    check_expressions(c, &node->list);
    if (item->kind == AST_TENSOR) {
        if (!node->list.count)
            diagnose(c->d, E404, node->at, "return the results", "`return` without a value in a tensor function");
    } else if (item->kind == AST_KERNEL) {
        if (node->list.count)
            diagnose(c->d, E404, node->at, "results go to `out` arrays", "`return` with a value in a kernel");
    } else if (!item->type) {
        if (node->list.count)
            diagnose(c->d, E404, node->at, "write `return;`, or declare a result type",
                     "`return` with a value in a `void` function");
    } else if (!node->list.count) {
        diagnose(c->d, E404, node->at, "return a value", "`return` without a value in `%s`", item->name);
    } else if (node->list.count != 1) {
        diagnose(c->d, E404, node->at, "a function returns one value", "`return` with %d values in `%s`",
                 node->list.count, item->name);
    }
}

static bool has_break(const ast *node)
{
    if (!node) return false;
    if (node->kind == AST_BREAK) return true;
    if (node->kind == AST_FOR || node->kind == AST_WHILE) return false; /* theirs */
    for (int i = 0; i < node->list.count; i++)
        if (has_break(node->list.items[i])) return true;
    return has_break(node->body) || has_break(node->other);
}

/* Statements one after the other; true if the end cannot be reached. */
static bool check_list(checker *c, const ast_list *list)
{
    bool ended = false, warned = false;
    for (int i = 0; i < list->count; i++) {
        const ast *node = list->items[i];
        if (ended && !warned && node->kind != AST_EMPTY) {
            ast_kind kind = list->items[i - 1]->kind;
            const char *word = kind == AST_BREAK ? "break" : kind == AST_CONTINUE ? "continue" : "return";
            diagnose(c->d, W602, node->from, "remove it", "code after `%s` never runs", word);
            warned = true;
        }
        ended |= check_statement(c, node);
    }
    return ended;
}

/* A statement under an if or while has a scope even without braces: a declaration there is seen by nobody. */
static bool check_inner(checker *c, const ast *node)
{
    checker_open(c);
    bool ended = node->kind == AST_BLOCK ? check_list(c, &node->list) : check_statement(c, node);
    checker_close(c);
    return ended;
}

/* True if control never goes past it. */
static bool check_statement(checker *c, const ast *node)
{
    if (checker_tired(c)) return false;
    switch (node->kind) {
    case AST_BLOCK: return check_inner(c, node);
    case AST_DECLARE: check_declare(c, node); break;
    case AST_CONSTANT:
        check_expression(c, node->left);
        checker_declare(c, node->name, SYMBOL_CONSTANT, node->at, node);
        break;
    case AST_ASSIGN: check_assign(c, node); break;
    case AST_CALL_STATEMENT: check_call(c, node->left, true); break;
    case AST_IF: {
        check_expression(c, node->left);
        bool then = check_inner(c, node->body);
        return node->other && check_inner(c, node->other) && then;
    }
    case AST_WHILE:
        if (c->in_tensor) fault_while(c->d, node->at, false);
        check_expression(c, node->left);
        c->loops++;
        check_inner(c, node->body);
        c->loops--;
        return node->left->kind == AST_BOOL && node->left->number.i && !has_break(node->body);
    case AST_FOR: check_for(c, node); break;
    case AST_BREAK:
    case AST_CONTINUE:
        if (!c->loops) fault_outside_loop(c->d, node->at, node->kind == AST_BREAK ? "break" : "continue");
        return true;
    case AST_RETURN: check_return(c, node); return true;
    case AST_LET:
        check_expression(c, node->left);
        if (!c->in_tensor)
            diagnose(c->d, E104, node->at, "declare it with its type: `tile float v = ...`",
                     "`let` is for tensor functions");
        for (int i = 0; i < node->list.count; i++) {
            const ast *name = node->list.items[i];
            checker_declare(c, name->name, SYMBOL_TENSOR, name->at, name);
        }
        break;
    default: break;
    }
    return false;
}

void check_body(checker *c, const ast *block)
{
    const ast *item = c->node->item;
    checker_open(c);
    bool ended = check_list(c, &block->list);
    checker_close(c);
    if (ended || checker_tired(c)) return;
    place end = {.line = block->end_line, .column = block->end_column - 1};
    if (item->kind == AST_TENSOR)
        diagnose(c->d, E404, end, "end with `return`", "the tensor function `%s` returns nothing", item->name);
    if (item->kind == AST_FUNCTION && item->type)
        diagnose(c->d, E404, end, "return a value on every path", "a path of `%s` ends without `return`", item->name);
}
