/*
 * Expressions of tensor functions: names, operators, conditionals. In: a tree. Out: an operand. What the host knows is
 * computed at once with the language's arithmetic on constants; the rest becomes nodes.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_trace.h"

#include <string.h>

local *local_find(tracer *t, const char *name)
{
    for (int i = t->local_count; i-- > t->first;)
        if (!strcmp(t->locals[i].name, name)) return &t->locals[i];
    return NULL;
}

void local_push(tracer *t, local l)
{
    ARENA_PUSH(t->memory, t->locals, t->local_count, t->local_capacity, l);
}

void site_set(tracer *t, place at, const char *label)
{
    t->g->site.file = t->file->path;
    t->g->site.line = at.line;
    t->g->label = label;
}

bool trace_type(tracer *t, const ast *type, dtype *out)
{
    const local *l = local_find(t, type->word);
    if (l && l->is_type) {
        *out = l->type;
        return true;
    }
    if (dtype_from_text(type->word, out)) return true;
    diagnose(t->d, E215, type->at, "give it an argument of that type", "`%s` is not bound to a type", type->word);
    return false;
}

static operand constant_fault(tracer *t, error_code code, place at)
{
    fault_constant(t->d, code, at);
    return operand_error();
}

static operand trace_name(tracer *t, const ast *x)
{
    const local *l = local_find(t, x->name);
    if (l && !l->is_type && !l->is_function) return l->now;
    binding b;
    const ast *item = ast_find(t->file, x->name);
    if (item && item->kind == AST_CONSTANT) {
        bindings none = {0};
        if (lang_evaluate(t->file, x, &none, t->units, t->d, &b, NULL)) return operand_of_constant(b);
        return operand_error();
    }
    if (!item && constant_word(x->name, &b)) return operand_of_constant(b);
    if (item || l || builtin_find(x->name))
        fault_not_value(t->d, x->at, x->name);
    else
        fault_unknown(t->d, x->at, false, x->name, NULL);
    return operand_error();
}

operand trace_binary(tracer *t, const char *word, const operand *a, const operand *b, place at)
{
    binding out;
    if (!is_plain(t, a, at) || !is_plain(t, b, at)) return operand_error();
    if (a->kind == OPERAND_CONSTANT && b->kind == OPERAND_CONSTANT) {
        error_code fault = constant_binary(word, &a->constant, &b->constant, &out);
        if (!fault) return operand_of_constant(out);
        if (fault != E206) return constant_fault(t, fault, at);
        fault_join(t->d, at, a->constant.type, b->constant.type);
        return operand_error();
    }
    return trace_operator(t, word, (operand[]){*a, *b}, at);
}

static operand trace_unary(tracer *t, const ast *x)
{
    operand a = trace_expression(t, x->left);
    binding out;
    if (!is_plain(t, &a, x->left->at)) return operand_error();
    if (a.kind == OPERAND_CONSTANT) {
        error_code fault = constant_unary(x->word, &a.constant, &out);
        return fault ? constant_fault(t, fault, x->at) : operand_of_constant(out);
    }
    op_code code = !strcmp(x->word, "-") ? OP_NEG : OP_NOT;
    dtype type = operand_type(t, &a);
    if (!strcmp(x->word, "!")) {
        a = operand_condition(t, &a, x->at);
    } else if (!strcmp(x->word, "~") && dtype_is_float(type)) {
        fault_integers(t->d, x->at, "~");
        return operand_error();
    } else if (t->in_scalar || type == DT_BOOL) {
        a = operand_cast(t, &a, type_promote(type), x->at);
    }
    site_set(t, x->at, ops[code].text);
    return is_bad(&a) || x->word[0] == '+' ? a : trace_map(t, code, &a, 1, false, x->at);
}

/* A side that is not taken is not looked at. */
static operand trace_conditional(tracer *t, const ast *x)
{
    operand c = trace_expression(t, x->left);
    c = operand_condition(t, &c, x->left->at);
    if (is_bad(&c)) return c;
    if (c.kind == OPERAND_CONSTANT) return trace_expression(t, constant_truth(&c.constant) ? x->right : x->third);
    operand a = trace_expression(t, x->right), b = trace_expression(t, x->third);
    if (is_bad(&a) || is_bad(&b)) return operand_error();
    site_set(t, x->at, "where");
    return trace_select(t, &c, &a, &b, x->at);
}

static operand trace_one(tracer *t, const ast *x)
{
    switch (x->kind) {
    case AST_NUMBER: return operand_of_constant(constant_of_number(x));
    case AST_BOOL: return operand_of_constant(constant_bool(x->number.i != 0));
    case AST_NAME: return trace_name(t, x);
    case AST_UNARY: return trace_unary(t, x);
    case AST_BINARY: {
        operand a = trace_expression(t, x->left);
        bool both = !strcmp(x->word, "&&"), either = !strcmp(x->word, "||");
        if (is_bad(&a)) return a;
        if ((both || either) && a.kind == OPERAND_CONSTANT && a.constant.kind != BIND_FLOAT &&
            constant_truth(&a.constant) == either)
            return operand_of_constant(constant_bool(either));
        operand b = trace_expression(t, x->right);
        if (is_bad(&b)) return b;
        return trace_binary(t, x->word, &a, &b, x->at);
    }
    case AST_CONDITIONAL: return trace_conditional(t, x);
    case AST_CALL: return trace_call(t, x);
    case AST_INDEX: return trace_access(t, x);
    default: diagnose(t->d, E104, x->at, NULL, "expected a value"); return operand_error();
    }
}

operand trace_expression(tracer *t, const ast *x)
{
    if (t->expression_depth >= EXPRESSION_DEPTH_LIMIT) {
        fault_expression_depth(t->d, x->at);
        return operand_error();
    }
    t->expression_depth++;
    operand out = trace_one(t, x);
    t->expression_depth--;
    return out;
}
