/*
 * Statements of tensor functions and of the scalar functions they apply. Loops run now (they are unrolled), branches on
 * what the host knows run one side. In a scalar function a branch on a tensor runs both sides: what they assign becomes
 * a select over the path, and what they return too.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_trace.h"

#include <string.h>

enum { MOST_STEPS = 200000 };

static flow trace_statement(tracer *t, const ast *x);

static bool bind_value(tracer *t, const ast *type, const operand *value, const char *name, place at)
{
    dtype elem;
    if (!trace_type(t, type, &elem)) return false;
    if (!t->in_scalar && operand_shape(t, value)->rank) {
        fault_scalar_from(t->d, at, operand_shape(t, value)->rank);
        return false;
    }
    operand converted = operand_convert(t, value, elem, at);
    if (is_bad(&converted)) return false;
    local_push(t, (local){.name = name, .now = converted, .is_typed = true, .type = elem});
    return true;
}

static void trace_let(tracer *t, const ast *x)
{
    operand value = trace_expression(t, x->left);
    if (is_bad(&value)) return;
    if (x->list.count == 1 && value.kind != OPERAND_LIST) {
        if (is_plain(t, &value, x->left->at)) local_push(t, (local){.name = x->list.items[0]->name, .now = value});
        return;
    }
    int count = value.kind == OPERAND_LIST ? value.count : 1;
    if (count != x->list.count) {
        diagnose(t->d, E213, x->at, "give one name for each result", "%d name%s for %d result%s", x->list.count,
                 x->list.count == 1 ? "" : "s", count, count == 1 ? "" : "s");
        return;
    }
    for (int i = 0; i < count; i++)
        local_push(t,
                   (local){.name = x->list.items[i]->name, .now = value.kind == OPERAND_LIST ? value.items[i] : value});
}

static void trace_assign(tracer *t, const ast *x)
{
    if (x->left->kind != AST_NAME) {
        fault_part_of_tensor(t->d, x->left->left->at, x->left->left->name);
        return;
    }
    const char *name = x->left->name;
    bool steps = !strcmp(x->word, "++") || !strcmp(x->word, "--");
    operand value = steps ? operand_of_constant(constant_int(1)) : trace_expression(t, x->right);
    local *l = local_find(t, name);
    if (is_bad(&value)) return;
    if (!l || l->is_type || l->is_function) {
        fault_assigned(t->d, x->left->at, name);
        return;
    }
    if (strcmp(x->word, "=") != 0) {
        char word[4] = {0};
        snprintf(word, sizeof(word), "%.*s", steps ? 1 : (int)strlen(x->word) - 1, x->word);
        operand old = l->now;
        value = trace_binary(t, word, &old, &value, x->at);
        if (is_bad(&value)) return;
    }
    l = local_find(t, name);
    if (!is_plain(t, &value, x->at)) return;
    if (l->is_typed) {
        if (!t->in_scalar && operand_shape(t, &value)->rank) {
            fault_scalar_from(t->d, x->at, operand_shape(t, &value)->rank);
            return;
        }
        value = operand_convert(t, &value, l->type, x->at);
        if (is_bad(&value)) return;
    }
    if (t->path) {
        operand condition = {.kind = OPERAND_TENSOR, .tensor = t->path};
        operand old = l->now;
        site_set(t, x->at, "where");
        value = trace_select(t, &condition, &value, &old, x->at);
        if (l->is_typed && !is_bad(&value)) value = operand_cast(t, &value, l->type, x->at);
        if (is_bad(&value)) return;
    }
    local_find(t, name)->now = value;
}

/* `a` where the mask of an earlier return holds, else `b`. */
static void merge_result(tracer *t, const operand *value, place at)
{
    operand converted = *value;
    if (t->has_result_type) converted = operand_convert(t, value, t->result_type, at);
    if (is_bad(&converted)) return;
    if (t->returned_somewhere) {
        operand condition = {.kind = OPERAND_TENSOR, .tensor = t->returned};
        site_set(t, at, "where");
        converted = trace_select(t, &condition, &t->result, &converted, at);
        if (t->has_result_type && !is_bad(&converted)) converted = operand_cast(t, &converted, t->result_type, at);
    }
    t->result = converted;
}

static flow trace_return(tracer *t, const ast *x)
{
    if (!t->in_scalar) {
        operand *items = ARENA_ARRAY(t->memory, operand, FUNCTION_RESULTS + 1);
        int count = 0;
        for (int i = 0; i < x->list.count; i++) {
            operand value = trace_expression(t, x->list.items[i]);
            if (is_bad(&value)) return FLOW_RETURN;
            bool several = value.kind == OPERAND_LIST;
            if (!several && !is_plain(t, &value, x->list.items[i]->at)) return FLOW_RETURN;
            if (several && x->list.count > 1) {
                (void)is_plain(t, &value, x->list.items[i]->at);
                return FLOW_RETURN;
            }
            for (int k = 0; k < (several ? value.count : 1); k++) {
                if (count == FUNCTION_RESULTS) {
                    diagnose(t->d, E105, x->at, "stack some of them", "a tensor function has at most %d results",
                             FUNCTION_RESULTS);
                    return FLOW_RETURN;
                }
                items[count++] = several ? value.items[k] : value;
            }
        }
        t->result = count == 1 ? items[0] : (operand){.kind = OPERAND_LIST, .items = items, .count = count};
        return FLOW_RETURN;
    }
    operand value = x->list.count ? trace_expression(t, x->list.items[0]) : operand_error();
    if (is_bad(&value)) return FLOW_RETURN;
    merge_result(t, &value, x->at);
    if (!t->path) return FLOW_RETURN;
    operand path = {.kind = OPERAND_TENSOR, .tensor = t->path};
    if (t->returned_somewhere) {
        operand before = {.kind = OPERAND_TENSOR, .tensor = t->returned};
        path = trace_binary(t, "||", &before, &path, x->at);
    }
    t->returned_somewhere = true;
    t->returned = path.tensor;
    return FLOW_RETURN;
}

/* One side of a branch on a tensor. */
static flow trace_side(tracer *t, const ast *side, const operand *condition)
{
    node outer = t->path;
    operand path = *condition;
    if (outer) {
        operand before = {.kind = OPERAND_TENSOR, .tensor = outer};
        path = trace_binary(t, "&&", &before, condition, side->at);
    }
    if (is_bad(&path)) return FLOW_RETURN;
    t->path = path.tensor;
    int count = t->local_count;
    flow how = trace_statement(t, side);
    t->local_count = count;
    t->path = outer;
    if (how == FLOW_BREAK || how == FLOW_CONTINUE) {
        fault_while(t->d, side->at, true);
        return FLOW_RETURN;
    }
    return how;
}

static flow trace_if(tracer *t, const ast *x)
{
    operand c = trace_expression(t, x->left);
    if (c.kind == OPERAND_TENSOR && !t->in_scalar) {
        diagnose(t->d, E210, x->left->at, "use `where`, or test what the host knows: extents, `int` and `const` names",
                 "a tensor is not a condition");
        return FLOW_RETURN;
    }
    c = operand_condition(t, &c, x->left->at);
    if (is_bad(&c)) return FLOW_RETURN;
    if (c.kind == OPERAND_CONSTANT) {
        const ast *side = constant_truth(&c.constant) ? x->body : x->other;
        int count = t->local_count;
        flow how = side ? trace_statement(t, side) : FLOW_ON;
        t->local_count = count;
        return how;
    }
    flow then = trace_side(t, x->body, &c), other = FLOW_ON;
    if (t->d->errors) return FLOW_RETURN;
    if (x->other) {
        site_set(t, x->at, "not");
        operand no = trace_map(t, OP_NOT, &c, 1, false, x->at);
        other = trace_side(t, x->other, &no);
    }
    return then == FLOW_RETURN && other == FLOW_RETURN && !t->path ? FLOW_RETURN : FLOW_ON;
}

static bool compare(const char *word, int64_t a, int64_t b)
{
    return word[0] == '<' ? (word[1] ? a <= b : a < b) : (word[1] ? a >= b : a > b);
}

static flow trace_for(tracer *t, const ast *x)
{
    operand first = trace_expression(t, x->left), bound = trace_expression(t, x->right);
    operand by = x->third ? trace_expression(t, x->third) : operand_of_constant(constant_int(1));
    int64_t at, limit, step;
    if (!is_number(t, &first, x->left->at, &at) || !is_number(t, &bound, x->right->at, &limit) ||
        !is_number(t, &by, x->at, &step))
        return FLOW_RETURN;
    if (x->words[0] == '-') step = (int64_t)(0 - (uint64_t)step);
    if (!step) {
        fault_step(t->d, x->third ? x->third->at : x->at, false);
        return FLOW_RETURN;
    }
    if ((x->word[0] == '<') != (step > 0)) return FLOW_ON; /* runs no iteration */
    for (bool more = true; more && compare(x->word, at, limit); more = !__builtin_add_overflow(at, step, &at)) {
        binding b = constant_int(at);
        b.untyped = false;
        int count = t->local_count;
        local_push(t, (local){.name = x->name, .now = operand_of_constant(b)});
        flow how = trace_statement(t, x->body);
        t->local_count = count;
        if (t->d->errors || how == FLOW_RETURN) return FLOW_RETURN;
        if (how == FLOW_BREAK) break;
    }
    return FLOW_ON;
}

/* Only in scalar functions, and only while the host knows the condition. */
static flow trace_while(tracer *t, const ast *x)
{
    for (;;) {
        operand c = trace_expression(t, x->left);
        if (!t->in_scalar || c.kind == OPERAND_TENSOR) {
            fault_while(t->d, x->at, t->in_scalar);
            return FLOW_RETURN;
        }
        c = operand_condition(t, &c, x->left->at);
        if (is_bad(&c)) return FLOW_RETURN;
        if (!constant_truth(&c.constant)) return FLOW_ON;
        int count = t->local_count;
        flow how = trace_statement(t, x->body);
        t->local_count = count;
        if (t->d->errors || how == FLOW_RETURN) return FLOW_RETURN;
        if (how == FLOW_BREAK) return FLOW_ON;
    }
}

static void trace_call_statement(tracer *t, const ast *x)
{
    const ast *call = x->left;
    const char *name = call->left->kind == AST_NAME ? call->left->name : "";
    if (!strcmp(name, "assume") && !ast_find(t->file, name)) {
        const ast *condition = call->list.items[0];
        operand c = trace_expression(t, condition);
        c = operand_condition(t, &c, condition->at);
        if (is_bad(&c)) return;
        if (c.kind != OPERAND_CONSTANT) {
            fault_traced(t->d, condition->at, "`assume` is about extents, `int` parameters and constants");
        } else if (!constant_truth(&c.constant)) {
            text words = {0};
            lang_format_expression(condition, &words);
            fault_assume(t->d, call->at, text_get(&words));
            text_free(&words);
        }
        return;
    }
    fault_no_effect(t->d, call->at);
}

static flow trace_statement(tracer *t, const ast *x)
{
    if (t->d->errors) return FLOW_RETURN;
    if (++t->steps > MOST_STEPS) {
        diagnose(t->d, E105, x->from, "loops are unrolled here: make it shorter, or write a tile kernel",
                 "more than %d statements", MOST_STEPS);
        return FLOW_RETURN;
    }
    switch (x->kind) {
    case AST_BLOCK: return trace_block(t, x);
    case AST_LET: trace_let(t, x); break;
    case AST_DECLARE:
        for (int i = 0; i < x->list.count; i++) {
            const ast *d = x->list.items[i];
            operand value = trace_expression(t, d->left);
            if (is_bad(&value) || !is_plain(t, &value, d->left->at) ||
                !bind_value(t, x->type, &value, d->name, d->left->at))
                return FLOW_RETURN;
        }
        break;
    case AST_CONSTANT: {
        operand value = trace_expression(t, x->left);
        if (value.kind == OPERAND_TENSOR)
            fault_not_constant(t->d, x->left->at, x->name, NULL);
        else if (!is_bad(&value))
            bind_value(t, x->type, &value, x->name, x->left->at);
        break;
    }
    case AST_ASSIGN: trace_assign(t, x); break;
    case AST_CALL_STATEMENT: trace_call_statement(t, x); break;
    case AST_IF: return trace_if(t, x);
    case AST_FOR: return trace_for(t, x);
    case AST_WHILE: return trace_while(t, x);
    case AST_BREAK: return FLOW_BREAK;
    case AST_CONTINUE: return FLOW_CONTINUE;
    case AST_RETURN: return trace_return(t, x);
    default: break;
    }
    return t->d->errors ? FLOW_RETURN : FLOW_ON;
}

flow trace_block(tracer *t, const ast *block)
{
    int count = t->local_count;
    flow how = FLOW_ON;
    for (int i = 0; i < block->list.count && how == FLOW_ON; i++) how = trace_statement(t, block->list.items[i]);
    t->local_count = count;
    return how;
}
