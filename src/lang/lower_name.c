/*
 * Names while lowering: scopes, what a name stands for, types by name, and the values of parameters in the head, where
 * a default may use any other parameter as long as there is no circle.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

void symbol_push(walk *w, symbol s)
{
    ARENA_PUSH(w->memory, w->symbols, w->symbol_count, w->symbol_capacity, s);
}

symbol *symbol_find(walk *w, const char *name)
{
    int end = w->scope_end >= 0 ? w->scope_end : w->symbol_count;
    for (int i = end; i-- > w->scope_first;)
        if (!strcmp(w->symbols[i].name, name)) return &w->symbols[i];
    return NULL;
}

bool resolve_type(walk *w, const ast *type, dtype *out)
{
    symbol *s = symbol_find(w, type->word);
    if (s && s->kind == SYMBOL_TYPE) {
        *out = s->type;
        return true;
    }
    if (dtype_from_text(type->word, out)) return true;
    diagnose(w->d, E215, type->at, type->is_generic ? "name it" : "use `f8e4m3`, `bf16` or `i8`", "`%s` %s", type->word,
             type->is_generic ? "cannot be inferred" : "is not supported by any device yet");
    return false;
}

value head_value(walk *w, int param, place at)
{
    if (w->head_values[param]) return w->head_values[param];
    const tile_param *p = &w->k->params[param];
    const ast *item = w->param_items[param];
    if (p->kind != PARAM_SCALAR || !item || !item->left) {
        tile_op *op = op_make(w, OP_ARG, NULL, 0);
        op->attr.index = param;
        w->head_values[param] = op_finish(w, op, scalar_type(p->elem));
        value_name(w, w->head_values[param], p->name);
        return w->head_values[param];
    }
    if (w->head_busy[param]) {
        diagnose(w->d, E217, at, "break the circle", "the default of `%s` depends on itself", p->name);
        return build_number(w, (number){0}, p->elem);
    }
    w->head_busy[param] = true;
    term t = lower_expression(w, item->left);
    t = term_convert(w, &t, p->elem, item->left->at);
    w->head_busy[param] = false;
    if (!is_error(&t) && t.rank) {
        diagnose(w->d, E305, item->left->at, "reduce it", "a default is a scalar");
        t = term_error();
    }
    value v = is_error(&t) ? build_number(w, (number){0}, p->elem) : term_value(w, &t);
    w->at = item->at;
    tile_op *op = op_make(w, OP_DEFAULT, &v, 1);
    op->attr.index = param;
    w->head_values[param] = op_finish(w, op, scalar_type(p->elem));
    value_name(w, w->head_values[param], p->name);
    return w->head_values[param];
}

/* A file constant, evaluated where it is used. */
static term file_constant(walk *w, const ast *node)
{
    binding b;
    const char *unbound = NULL;
    bindings none = {0};
    int errors = w->d->errors;
    if (lang_evaluate(w->file, node, &none, 1, w->d, &b, &unbound)) return term_of_constant(b);
    if (w->d->errors == errors)
        fault_depends(w->d, node->at, unbound ? unbound : node->name, "use numbers and other file constants");
    return term_error();
}

term lower_name(walk *w, const ast *node)
{
    symbol *s = symbol_find(w, node->name);
    binding b;
    if (s) {
        switch (s->kind) {
        case SYMBOL_VARIABLE: return s->variable->is_set ? s->variable->now : term_error();
        case SYMBOL_TERM: return s->term;
        case SYMBOL_SCALAR: {
            w->at = node->at;
            term t = term_of_value(w, build_argument(w, s->param));
            return t;
        }
        case SYMBOL_ARRAY:
            if (s->array->rank == 0) return lower_access(w, node, false);
            return (term){.kind = TERM_ARRAY, .array = s->array, .elem = w->k->params[s->array->param].elem};
        case SYMBOL_TYPE:
        case SYMBOL_FUNCTION:
            diagnose(w->d, E212, node->at, "call it", "`%s` is a %s, not a value", node->name,
                     s->kind == SYMBOL_TYPE ? "type" : "function");
            return term_error();
        }
    }
    const ast *item = ast_find(w->file, node->name);
    if (item && item->kind == AST_CONSTANT) return file_constant(w, node);
    if (constant_word(node->name, &b)) return term_of_constant(b);
    fault_unknown(w->d, node->at, false, node->name, NULL);
    return term_error();
}

bool is_host_expression(walk *w, const ast *node)
{
    if (!node) return true;
    switch (node->kind) {
    case AST_NUMBER:
    case AST_BOOL:
    case AST_TYPE_NAME: return true;
    case AST_NAME: {
        symbol *s = symbol_find(w, node->name);
        if (s) return s->kind == SYMBOL_SCALAR || (s->kind == SYMBOL_TERM && s->term.kind == TERM_CONSTANT);
        binding b;
        const ast *item = ast_find(w->file, node->name);
        return (item && item->kind == AST_CONSTANT) || constant_word(node->name, &b);
    }
    case AST_UNARY:
    case AST_BINARY:
    case AST_CONDITIONAL:
        return is_host_expression(w, node->left) && is_host_expression(w, node->right) &&
               is_host_expression(w, node->third);
    case AST_CALL: {
        if (node->left->kind == AST_NAME) {
            const builtin *b = builtin_find(node->left->name);
            if (symbol_find(w, node->left->name) || ast_find(w->file, node->left->name) || !b) return false;
            if (b->class != BUILTIN_ELEMENTWISE && b->class != BUILTIN_HOST) return false;
        } else if (node->left->kind != AST_TYPE_NAME) {
            return false;
        }
        for (int i = 0; i < node->list.count; i++)
            if (node->list.items[i]->kind == AST_NAMED || !is_host_expression(w, node->list.items[i])) return false;
        return true;
    }
    default: return false;
    }
}
