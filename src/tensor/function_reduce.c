/*
 * Reductions and scans of tensor functions. `f(t)` over everything gives rank 0, `axis = k` or `axis = {j, k}` leaves
 * unit axes. In: a call. Out: nodes; sums of integers count in 64 bits, means of integers are float.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_trace.h"
#include "tensor/ops.h"

#include <string.h>

static bool one_axis(tracer *t, const ast *x, int rank, unsigned *set)
{
    operand value = trace_expression(t, x);
    int64_t axis;
    if (!is_number(t, &value, x->at, &axis)) return false;
    if (axis < -rank || axis >= rank) {
        fault_axis(t->d, x->at, axis, rank);
        return false;
    }
    *set |= 1u << (axis < 0 ? axis + rank : axis);
    return true;
}

bool axes_of(tracer *t, const ast *call, int rank, unsigned *set, bool *given)
{
    const ast *named = named_of(call, "axis");
    *set = 0;
    *given = named != NULL;
    if (!named) return true;
    if (!named->is_set) return one_axis(t, named->left, rank, set);
    for (int i = 0; i < named->list.count; i++)
        if (!one_axis(t, named->list.items[i], rank, set)) return false;
    return true;
}

static node scaled(tracer *t, node n, double by)
{
    shape s = graph_get(t->g, n)->shape;
    return graph_binary(t->g, OP_DIV, n, graph_full_double(t->g, graph_get(t->g, n)->elem, &s, by));
}

/* `reverse = true`, `exclusive = true` of a scan. */
static bool flag_of(tracer *t, const ast *call, const char *name, bool *out)
{
    const ast *named = named_of(call, name);
    *out = false;
    if (!named) return true;
    operand x = named->left ? trace_expression(t, named->left) : operand_error();
    bool known = x.kind == OPERAND_CONSTANT && x.constant.kind != BIND_FLOAT;
    if (known) *out = constant_truth(&x.constant);
    if (!known) fault_flag(t->d, named->at, name, call->left->name);
    return known;
}

/* What a reduction over these axes gives: they stay as unit axes, or go away where `axis =` was not given or `keep = false`
 * says so. */
static operand folded(tracer *t, const ast *call, node n, unsigned set, const operand *x, bool given)
{
    bool keep = given;
    if (named_of(call, "keep") && !flag_of(t, call, "keep", &keep)) return operand_error();
    if (!n || keep) return operand_of_node(t, n, keep ? set | x->units : 0, call->at);
    shape from = graph_get(t->g, n)->shape, to = {0};
    unsigned units = 0;
    for (int k = 0; k < from.rank; k++) {
        if (set >> k & 1) continue;
        units |= (x->units >> k & 1) << to.rank;
        to.extents[to.rank++] = from.extents[k];
    }
    return operand_of_node(t, graph_reshape(t->g, n, &to), units, call->at);
}

static operand scan(tracer *t, const ast *call, const builtin *b, const operand *x, unsigned set, bool given)
{
    bool reverse, exclusive;
    if (!flag_of(t, call, "reverse", &reverse) || !flag_of(t, call, "exclusive", &exclusive)) return operand_error();
    int rank = operand_shape(t, x)->rank;
    if ((!given && rank != 1) || (given && (set & (set - 1)))) {
        fault_one_axis(t->d, call->at, b->name);
        return operand_error();
    }
    node n = graph_convert(t->g, x->tensor, typing_fold(TYPING_TENSOR, b->name, operand_type(t, x)));
    n = tensor_scan(t->g, fold_code(b->name), n, given ? __builtin_ctz(set) : 0, reverse, exclusive);
    return operand_of_node(t, n, x->units, call->at);
}

static bool takes_named(const builtin *b, const char *name)
{
    if (!strcmp(name, "axis")) return true;
    if (b->class != BUILTIN_SCAN && !strcmp(name, "keep")) return true;
    return b->class == BUILTIN_SCAN && (!strcmp(name, "reverse") || !strcmp(name, "exclusive"));
}

operand trace_reduce(tracer *t, const ast *call, const builtin *b)
{
    unsigned set;
    bool given;
    operand x = trace_expression(t, call->list.items[0]);
    if (!is_plain(t, &x, call->list.items[0]->at)) return operand_error();
    for (int i = 0; i < call->list.count; i++)
        if (call->list.items[i]->kind == AST_NAMED && !takes_named(b, call->list.items[i]->name)) {
            fault_named_argument(t->d, call->list.items[i]->at, b->name, call->list.items[i]->name,
                                 "give it by position");
            return operand_error();
        }
    const shape s = *operand_shape(t, &x);
    if (x.kind == OPERAND_CONSTANT || !s.rank) {
        fault_reduce_scalar(t->d, call->at, b->name);
        return operand_error();
    }
    if (!axes_of(t, call, s.rank, &set, &given)) return operand_error();
    site_set(t, call->at, b->name);
    if (b->class == BUILTIN_SCAN) return scan(t, call, b, &x, set, given);
    if (!given) set = (1u << s.rank) - 1;
    int64_t count = 1;
    for (int k = 0; k < s.rank; k++) count *= set >> k & 1 ? s.extents[k] : 1;
    graph *g = t->g;
    node n = x.tensor;
    dtype type = operand_type(t, &x);
    const char *name = b->name;
    bool position = !strcmp(name, "argmax") || !strcmp(name, "argmin");
    if (position && (set & (set - 1))) {
        fault_one_axis(t->d, call->at, name);
        return operand_error();
    }
    if (!strcmp(name, "count")) {
        binding many = constant_int(count);
        many.untyped = false;
        if (!given) return operand_of_constant(many);
        shape kept = s;
        for (int k = 0; k < s.rank; k++)
            if (set >> k & 1) kept.extents[k] = 1;
        return folded(t, call, graph_full(g, DT_I64, &kept, many.number), set, &x, given);
    }
    if (!strcmp(name, "sum") || !strcmp(name, "prod")) {
        n = graph_convert(g, n, typing_fold(TYPING_TENSOR, name, type));
        n = n ? graph_reduce(g, fold_code(name), n, set) : 0;
    } else if (!strcmp(name, "mean")) {
        n = graph_convert(g, n, type == DT_F64 ? type : DT_F32); /* narrow floats are rounded once, at the end */
        n = n ? graph_reduce(g, FOLD_SUM, n, set) : 0;
        n = n ? scaled(t, n, (double)count) : 0;
        if (dtype_is_float(type)) n = graph_convert(g, n, type);
    } else if (!strcmp(name, "any") || !strcmp(name, "all")) {
        operand c = operand_condition(t, &x, call->at);
        if (is_bad(&c)) return c;
        n = graph_reduce(g, fold_code(name), c.tensor, set);
    } else {
        n = graph_reduce(g, fold_code(name), n, set);
    }
    return folded(t, call, n, set, &x, given);
}
