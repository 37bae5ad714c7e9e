/*
 * Calls: what may be called where, with how many arguments, and what a call does to arrays. In: an AST_CALL. Out:
 * diagnostics, the call graph's edges, and marks on the symbols that are read and written.
 * SPDX-License-Identifier: MIT
 */
#include "lang/check.h"
#include "lang/fault.h"

void check_write(checker *c, symbol *s, place at)
{
    s->used = s->written = true;
    if (s->kind == SYMBOL_IN) fault_written(c->d, at, s->name);
}

/* The symbol an argument is made of, if it is a name or an access. */
static symbol *base_symbol(const checker *c, const ast *node)
{
    if (node->kind == AST_INDEX) node = node->left;
    return node->kind == AST_NAME ? checker_find(c, node->name) : NULL;
}

static void check_brackets(checker *c, const ast *node)
{
    if (node->kind != AST_INDEX) return;
    for (int i = 0; i < node->list.count; i++) {
        const ast *subscript = node->list.items[i];
        if (subscript->left) check_expression(c, subscript->left);
        if (subscript->right) check_expression(c, subscript->right);
        if (subscript->third) check_expression(c, subscript->third);
    }
}

static bool check_count(checker *c, const ast *node, const char *name, int least, int most)
{
    int count = 0;
    for (int i = 0; i < node->list.count; i++) count += node->list.items[i]->kind != AST_NAMED;
    if (count >= least && (most < 0 || count <= most)) return true;
    fault_argument_count(c->d, node->at, name, least, most, count);
    return false;
}

/* Functions of the file take their arguments by position. */
static void refuse_named(checker *c, const ast *node, const char *name)
{
    for (int i = 0; i < node->list.count; i++) {
        const ast *argument = node->list.items[i];
        if (argument->kind == AST_NAMED)
            fault_named_argument(c->d, argument->at, name, argument->name, "give it by position");
    }
}

static void check_atomic_place(checker *c, const ast *node, const char *name)
{
    const ast *where = node->list.items[0];
    symbol *s = base_symbol(c, where);
    if (!s) {
        check_expression(c, where);
        bool known = where->kind == AST_NAME || (where->kind == AST_INDEX && where->left->kind == AST_NAME);
        if (!known)
            diagnose(c->d, E403, where->at, "the place is an access such as `y[i : BLOCK]`",
                     "`%s` needs a place in an array", name);
        return;
    }
    check_brackets(c, where);
    bool initial = s->node && s->node->left;
    bool in_kernel = c->node->item->kind == AST_KERNEL;
    s->used = s->written = true;
    if (!symbol_is_array(s))
        diagnose(c->d, E403, where->at, "the place is an access such as `y[i : BLOCK]`",
                 "`%s` on `%s`, which is not an array", name, s->name);
    else if (s->kind == SYMBOL_IN)
        diagnose(c->d, E403, where->at, "declare it `inout`", "`%s` on the `in` array `%s`", name, s->name);
    else if (s->kind == SYMBOL_OUT && in_kernel && !initial)
        diagnose(c->d, E403, where->at, arena_print(c->memory, "give it one: `out ... %s ... = 0`", s->name),
                 "`%s` on the `out` array `%s`, which has no initial value", name, s->name);
}

static void check_print(checker *c, const ast *node)
{
    const ast *first = node->list.items[0];
    if (first->kind != AST_STRING) {
        diagnose(c->d, E213, first->from, "print(\"m = {}\", m)", "the first argument of `print` is a string");
        check_expression(c, first);
        return;
    }
    int holes = 0;
    for (size_t i = 0; i + 1 < first->length; i++) holes += first->words[i] == '{' && first->words[i + 1] == '}';
    if (holes != node->list.count - 1)
        diagnose(c->d, E213, first->from, "one `{}` for each value", "`print` has %d `{}` and %d value%s", holes,
                 node->list.count - 1, node->list.count == 2 ? "" : "s");
}

static void check_named(checker *c, const ast *node, const builtin *b)
{
    bool takes_axis = b->class == BUILTIN_REDUCE || b->class == BUILTIN_SCAN || b->op == OP_MIN || b->op == OP_MAX;
    int positional = 0, named = 0;
    for (int i = 0; i < node->list.count; i++) positional += node->list.items[i]->kind != AST_NAMED;
    for (int i = 0; i < node->list.count; i++) {
        const ast *argument = node->list.items[i];
        if (argument->kind != AST_NAMED) continue;
        if (!takes_axis || strcmp(argument->name, "axis"))
            fault_named_argument(c->d, argument->at, b->name, argument->name, takes_axis ? "it has `axis = k`" : NULL);
        else if (positional > 1)
            diagnose(c->d, E213, argument->at, "a reduction takes one tile", "`%s` of two operands has no `axis`",
                     b->name);
        else if (named++)
            diagnose(c->d, E213, argument->at, "write several axes as `axis = {0, 1}`", "`axis` is given twice");
        if (argument->left) check_expression(c, argument->left);
        check_expressions(c, &argument->list);
    }
}

static void check_builtin(checker *c, const ast *node, const builtin *b, bool is_statement)
{
    if (c->in_tensor) {
        bool effect = b->class == BUILTIN_PROGRAM || b->class == BUILTIN_ATOMIC || b->class == BUILTIN_STATEMENT;
        bool validity = b->class == BUILTIN_VALIDITY && strcmp(b->name, "like") != 0;
        if (validity || (effect && strcmp(b->name, "assume") != 0))
            fault_no_place(c->d, node->at, b->name, validity);
        else if (is_statement && !effect)
            fault_no_effect(c->d, node->at);
        else if (b->class != BUILTIN_RANDOM) /* rand(n, m) takes a shape there */
            check_count(c, node, b->name, b->least, b->most);
        for (int i = 0; i < node->list.count; i++) {
            ast_kind kind = node->list.items[i]->kind;
            bool words = kind == AST_STRING && (effect || (i == 0 && !strcmp(b->name, "einsum")));
            if (kind != AST_TYPE_NAME && !words) check_expression(c, node->list.items[i]);
        }
        return;
    }
    if (b->class == BUILTIN_TENSOR)
        diagnose(c->d, E212, node->at, !strcmp(b->name, "matmul") ? "use `dot`" : habit_advice(b->name),
                 "`%s` works on whole tensors: only tensor functions call it", b->name);
    bool effect = b->class == BUILTIN_STATEMENT || b->class == BUILTIN_ATOMIC;
    if (is_statement && !effect) fault_no_effect(c->d, node->at);
    if (!is_statement && b->class == BUILTIN_STATEMENT) fault_gives_nothing(c->d, node->at, b->name);
    bool scalars_only = b->class == BUILTIN_PROGRAM || b->class == BUILTIN_ATOMIC || !strcmp(b->name, "print") ||
                        !strcmp(b->name, "iota");
    if (c->in_scalar_function && scalars_only)
        diagnose(c->d, E216, node->at, "take a `tile` parameter to make it a tile function, or pass the value",
                 "`%s` inside a scalar function", b->name);
    check_named(c, node, b);
    if (!check_count(c, node, b->name, b->least, b->most)) return;
    for (int i = 0, k = -1; i < node->list.count; i++) {
        const ast *argument = node->list.items[i];
        if (argument->kind == AST_NAMED) continue;
        k++;
        symbol *s = base_symbol(c, argument);
        bool shape_only = !strcmp(b->name, "valid") || !strcmp(b->name, "like"); /* of an access: reads no memory */
        if (k == 0 && b->class == BUILTIN_ATOMIC)
            check_atomic_place(c, node, b->name);
        else if (k == 0 && shape_only && s && symbol_is_array(s)) {
            s->used = true;
            check_brackets(c, argument);
        } else if (k == 0 && b->op == OP_BITCAST) {
            if (argument->kind != AST_TYPE_NAME) fault_bitcast_type(c->d, argument->from);
        } else if (argument->kind == AST_STRING && (!strcmp(b->name, "print") || !strcmp(b->name, "assert")) &&
                   k == !strcmp(b->name, "assert")) {
            continue;
        } else
            check_expression(c, argument);
    }
    if (!strcmp(b->name, "print")) check_print(c, node);
}

static void check_function_name(checker *c, const ast *argument, const ast *param, const ast *function)
{
    symbol *s = base_symbol(c, argument);
    const call_node *item = argument->kind == AST_NAME ? map_get(c->items, argument->name) : NULL;
    bool known = argument->kind == AST_NAME && ((item && item->item->kind == AST_FUNCTION) ||
                                                builtin_find(argument->name) || (s && s->kind == SYMBOL_FUNCTION));
    if (s) s->used = true;
    if (!known)
        diagnose(c->d, E213, argument->from, "name a function", "`%s` of `%s` is a function", param->name,
                 function->name);
}

/* One argument of a tensor function or kernel that a tensor function calls, by position or by name. */
static void check_tensor_argument(checker *c, const ast *argument, int position, const ast *item)
{
    const ast *param = NULL, *value = argument->kind == AST_NAMED ? argument->left : argument;
    if (argument->kind != AST_NAMED && item->kind == AST_TENSOR && position < item->list.count)
        param = item->list.items[position];
    for (int i = 0; argument->kind == AST_NAMED && i < item->list.count; i++)
        if (!strcmp(item->list.items[i]->name, argument->name)) param = item->list.items[i];
    if (param && param->is_function && value)
        check_function_name(c, value, param, item);
    else
        check_expression(c, argument);
}

/* One argument of a function of the file: arrays are read or written as the parameter says. */
static void check_argument(checker *c, const ast *argument, const ast *param, const ast *function)
{
    symbol *s = base_symbol(c, argument);
    bool array = param->word[0] && strcmp(param->word, "const") && !param->is_tile;
    bool writes = !strcmp(param->word, "out") || !strcmp(param->word, "inout") || !strcmp(param->word, "scratch");
    if (param->is_function) {
        check_function_name(c, argument, param, function);
    } else if (array && s && symbol_is_array(s)) {
        check_brackets(c, argument);
        if (strcmp(param->word, "out")) check_read(c, s, argument->at);
        if (writes) check_write(c, s, argument->at);
    } else if (param->is_tile && !strcmp(param->word, "inout")) {
        check_expression(c, argument);
        if (argument->kind != AST_NAME || !s || s->kind != SYMBOL_TILE)
            diagnose(c->d, E213, argument->from, "declare a tile variable and pass it",
                     "`%s` of `%s` is `inout`: it needs a tile variable", param->name, function->name);
        else
            s->assigned = ++c->clock;
    } else
        check_expression(c, argument);
}

static void check_item_call(checker *c, const ast *node, call_node *callee, bool is_statement)
{
    const ast *item = callee->item;
    ARENA_PUSH(c->memory, c->node->edges, c->node->edge_count, c->node->edge_capacity,
               ((call_edge){.to = (int)(callee - c->nodes), .at = node->at}));
    bool callable = item->kind == AST_FUNCTION || (c->in_tensor && item->kind != AST_CONSTANT);
    if (!callable) {
        const char *what = item->kind == AST_KERNEL   ? "kernel"
                           : item->kind == AST_RAW    ? "raw kernel"
                           : item->kind == AST_TENSOR ? "tensor function"
                                                      : "constant";
        const char *where = c->node->item->kind == AST_KERNEL ? "inside a kernel" : "here";
        diagnose(c->d, E212, node->at, item->kind == AST_CONSTANT ? NULL : "make the common part a function",
                 "the %s `%s` cannot be called %s", what, item->name, where);
    }
    if (!callable || item->kind != AST_FUNCTION) {
        for (int i = 0; i < node->list.count; i++) check_tensor_argument(c, node->list.items[i], i, item);
        return;
    }
    bool scalar = function_is_scalar(item);
    if (is_statement && scalar) fault_no_effect(c->d, node->at);
    if (!is_statement && !item->type) fault_gives_nothing(c->d, node->at, item->name);
    if (c->in_scalar_function && !scalar)
        diagnose(c->d, E216, node->at, "take a `tile` parameter to make it a tile function",
                 "the tile function `%s` inside a scalar function", item->name);
    refuse_named(c, node, item->name);
    int least = 0;
    for (int i = 0; i < item->list.count; i++)
        if (!item->list.items[i]->left) least = i + 1;
    if (!check_count(c, node, item->name, least, item->list.count)) return;
    for (int i = 0, position = 0; i < node->list.count; i++)
        if (node->list.items[i]->kind != AST_NAMED)
            check_argument(c, node->list.items[i], item->list.items[position++], item);
}

/* grad(f, w, b): a tensor function of the file and parameters of it. */
static void check_gradient(checker *c, const ast *grad)
{
    const ast *name = grad->list.count ? grad->list.items[0] : NULL;
    call_node *f = name && name->kind == AST_NAME ? map_get(c->items, name->name) : NULL;
    if (grad->left->kind != AST_NAME || strcmp(grad->left->name, "grad") != 0) {
        fault_not_callable(c->d, grad->at, grad->left->kind == AST_NAME ? grad->left->name : NULL);
        return;
    }
    if (!f || f->item->kind != AST_TENSOR) {
        fault_gradient(c->d, name ? name->at : grad->at);
        return;
    }
    ARENA_PUSH(c->memory, c->node->edges, c->node->edge_count, c->node->edge_capacity,
               ((call_edge){.to = (int)(f - c->nodes), .at = grad->at}));
    for (int i = 1; i < grad->list.count; i++) {
        const ast *by = grad->list.items[i];
        const char *names[64];
        int count = 0;
        bool known = false;
        for (int k = 0; k < f->item->list.count && count < COUNT(names); k++) {
            names[count++] = f->item->list.items[k]->name;
            known |= by->kind == AST_NAME && !strcmp(by->name, names[count - 1]);
        }
        if (known) continue;
        const char *near = by->kind == AST_NAME ? suggest_name(by->name, names, count) : NULL;
        diagnose(c->d, E213, by->from,
                 near ? arena_print(c->memory, "did you mean `%s`?", near) : "name parameters of the function",
                 "`%s` has no such parameter to differentiate by", f->item->name);
    }
}

void check_call(checker *c, const ast *node, bool is_statement)
{
    if (checker_tired(c)) return;
    const ast *callee = node->left;
    if (callee->kind == AST_TYPE_NAME) {
        refuse_named(c, node, callee->word);
        if (is_statement) fault_no_effect(c->d, node->at);
        if (check_count(c, node, callee->word, 1, 1)) check_expressions(c, &node->list);
        return;
    }
    if (callee->kind != AST_NAME) {
        bool gradient = c->in_tensor && callee->kind == AST_CALL;
        if (gradient)
            check_gradient(c, callee);
        else {
            fault_not_callable(c->d, node->at, NULL);
            check_expression(c, callee);
        }
        check_expressions(c, &node->list);
        return;
    }
    symbol *s = checker_find(c, callee->name);
    call_node *item = map_get(c->items, callee->name);
    const builtin *b = builtin_find(callee->name);
    if (s) {
        s->used = true;
        if (s->kind == SYMBOL_FUNCTION) {
            refuse_named(c, node, s->name);
            check_count(c, node, s->name, s->node->list.count, s->node->list.count);
            if (is_statement) fault_no_effect(c->d, node->at);
        } else {
            diagnose(c->d, E212, node->at,
                     b || item ? "rename the variable, which hides the function" : "to multiply write `*`",
                     "`%s` is a variable and cannot be called", s->name);
        }
        check_expressions(c, &node->list);
    } else if (item) {
        check_item_call(c, node, item, is_statement);
    } else if (b) {
        check_builtin(c, node, b, is_statement);
    } else {
        checker_unknown(c, callee->name, callee->at, true);
        check_expressions(c, &node->list);
    }
}
