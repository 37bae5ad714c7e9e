/*
 * Calls by name: casts, elementwise functions of the language, scalar functions of the file applied to tensors. What is
 * not one of these goes on to function.c (tensor functions, grad), function_kernel.c, function_reduce.c (folds) and
 * function_api.c (the tensor API).
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_trace.h"

#include <string.h>

const ast *named_of(const ast *call, const char *name)
{
    for (int i = 0; i < call->list.count; i++)
        if (call->list.items[i]->kind == AST_NAMED && !strcmp(call->list.items[i]->name, name))
            return call->list.items[i];
    return NULL;
}

static bool no_named(tracer *t, const ast *call, const char *name)
{
    for (int i = 0; i < call->list.count; i++)
        if (call->list.items[i]->kind == AST_NAMED) {
            fault_named_argument(t->d, call->list.items[i]->at, name, call->list.items[i]->name, "give it by position");
            return false;
        }
    return true;
}

/* ---- elementwise functions of the language ---- */

static bool keeps_integers(op_code code)
{
    return code == OP_ABS || code == OP_SIGN || code == OP_MIN || code == OP_MAX;
}

static operand number_as_tensor(tracer *t, const operand *x, dtype type, place at)
{
    return x->kind == OPERAND_CONSTANT ? operand_of_node(t, operand_node(t, x, type), 0, at) : *x;
}

static operand elementwise(tracer *t, const builtin *b, const char *name, const operand *x, int count, place at)
{
    binding constants[4], out;
    bool all = count <= COUNT(constants);
    for (int i = 0; i < count; i++) {
        if (!is_plain(t, &x[i], at)) return operand_error();
        all &= x[i].kind == OPERAND_CONSTANT;
        if (all) constants[i] = x[i].constant;
    }
    error_code fault = ERROR_NONE;
    if (all && constant_call(name, constants, count, &out, &fault)) {
        if (!fault) return operand_of_constant(out);
        fault_constant(t->d, fault, at);
        return operand_error();
    }
    site_set(t, at, b->name);
    if (b->op == OP_SELECT) return trace_select(t, &x[0], &x[1], &x[2], at);
    if (!strcmp(name, "clamp")) {
        dtype type; /* of all three */
        if (!operands_type(t, x, 3, at, &type)) return operand_error();
        operand same[3];
        for (int i = 0; i < 3; i++) {
            same[i] = operand_cast(t, &x[i], type, at);
            if (is_bad(&same[i])) return same[i];
        }
        operand low = trace_map(t, OP_MAX, same, 2, false, at);
        return is_bad(&low) ? low : trace_map(t, OP_MIN, (operand[]){low, same[2]}, 2, false, at);
    }
    if (!strcmp(name, "cdiv")) {
        if (dtype_is_float(operand_type(t, &x[0])) || dtype_is_float(operand_type(t, &x[1]))) {
            fault_integers(t->d, at, "cdiv");
            return operand_error();
        }
        operand one = operand_of_constant(constant_int(1)), sum = trace_binary(t, "+", &x[0], &x[1], at);
        if (!is_bad(&sum)) sum = trace_binary(t, "-", &sum, &one, at);
        return is_bad(&sum) ? sum : trace_binary(t, "/", &sum, &x[1], at);
    }
    operand first = x[0]; /* numbers alone become a tensor of rank 0 */
    if (all) {
        bool floats = !keeps_integers(b->op) || x[0].constant.kind == BIND_FLOAT;
        first = number_as_tensor(t, &x[0], floats ? DT_F32 : x[0].constant.type, at);
    }
    operand copy[3] = {first};
    for (int i = 1; i < count; i++) copy[i] = x[i];
    return trace_map(t, b->op, copy, count, !keeps_integers(b->op), at);
}

static operand call_bitcast(tracer *t, const ast *call)
{
    dtype type;
    if (call->list.items[0]->kind != AST_TYPE_NAME) {
        fault_bitcast_type(t->d, call->list.items[0]->from);
        return operand_error();
    }
    if (!trace_type(t, call->list.items[0], &type)) return operand_error();
    operand x = trace_expression(t, call->list.items[1]);
    if (!is_plain(t, &x, call->at)) return operand_error();
    site_set(t, call->at, "bitcast");
    typed of = operand_typed(t, &x);
    dtype from;
    if (!typing_bitcast(t->d, &of, type, call->at, &from)) return operand_error();
    node n = operand_node(t, &x, from);
    return operand_of_node(t, graph_map(t->g, OP_BITCAST, type, &n, 1), x.units, call->at);
}

/* philox, rand, randn of seed, offset and positions: the numbers of the language on every device. */
static operand random_numbers(tracer *t, const char *name, const operand *x, int count, place at)
{
    node nodes[3], words[2];
    unsigned units;
    int64_t lane = 0;
    operand given[3];
    static const dtype types[3] = {DT_U64, DT_U64, DT_I64};
    if (count == 4) {
        bool known = x[3].kind == OPERAND_CONSTANT && x[3].constant.kind == BIND_INT;
        lane = known ? x[3].constant.number.i : -1;
        if (lane < 0 || lane > 3) {
            fault_lane(t->d, at);
            return operand_error();
        }
    }
    for (int i = 0; i < 3; i++) {
        if (!is_plain(t, &x[i], at)) return operand_error();
        if (dtype_is_float(operand_type(t, &x[i]))) {
            fault_integers(t->d, at, name);
            return operand_error();
        }
        given[i] = operand_cast(t, &x[i], types[i], at);
    }
    site_set(t, at, name);
    operand four = operand_of_constant(constant_int(4));
    if (strcmp(name, "philox") != 0) given[1] = trace_binary(t, "/", &given[1], &four, at);
    if (is_bad(&given[1])) return given[1];
    given[1] = operand_cast(t, &given[1], DT_U64, at);
    if (!operands_join(t, given, 3, DT_COUNT, at, nodes, &units)) return operand_error();
    for (int i = 0; i < 2; i++)
        words[i] = graph_map_index(t->g, OP_PHILOX, count == 4 ? (int)lane : i, DT_U32, nodes, 3);
    operand first = operand_of_node(t, words[0], units, at), second = operand_of_node(t, words[1], units, at);
    if (is_bad(&first) || count == 4) return first;
    if (!strcmp(name, "rand")) {
        operand eight = operand_of_constant(constant_int(8)), scale = operand_of_constant(constant_float(0x1p-24));
        first = trace_binary(t, ">>", &first, &eight, at);
        first = operand_cast(t, &first, DT_F32, at);
        return trace_binary(t, "*", &first, &scale, at);
    }
    operand half = operand_of_constant(constant_float(0x1p-33)), scale = operand_of_constant(constant_float(0x1p-32));
    operand unit[2] = {first, second};
    for (int i = 0; i < 2; i++) {
        unit[i] = operand_cast(t, &unit[i], DT_F32, at);
        unit[i] = trace_binary(t, "*", &unit[i], &scale, at);
        unit[i] = trace_binary(t, "+", &unit[i], &half, at);
    }
    operand minus = operand_of_constant(constant_float(-2)),
            turn = operand_of_constant(constant_float(6.28318530717958647692));
    operand radius = trace_map(t, OP_LOG, &unit[0], 1, true, at);
    radius = trace_binary(t, "*", &minus, &radius, at);
    radius = trace_map(t, OP_SQRT, &radius, 1, true, at);
    operand angle = trace_binary(t, "*", &turn, &unit[1], at);
    angle = trace_map(t, OP_SIN, &angle, 1, true, at);
    return trace_binary(t, "*", &radius, &angle, at);
}

static int positional(const ast *call)
{
    int count = 0;
    for (int i = 0; i < call->list.count; i++) count += call->list.items[i]->kind != AST_NAMED;
    return count;
}

static bool right_count(tracer *t, const ast *call, const builtin *b)
{
    int count = positional(call);
    if (count >= b->least && (b->most < 0 || count <= b->most)) return true;
    fault_argument_count(t->d, call->at, b->name, b->least, b->most, count);
    return false;
}

/* rank(x), extent(x, axis): what the host knows of a tensor; axes count from the end when negative. */
static operand call_shape(tracer *t, const ast *call, const builtin *b)
{
    int64_t axis = 0;
    if (!no_named(t, call, b->name)) return operand_error();
    operand x = trace_expression(t, call->list.items[0]);
    if (!is_plain(t, &x, call->list.items[0]->at)) return operand_error();
    const shape *s = operand_shape(t, &x);
    if (b->most == 1) return operand_of_constant(constant_int(s->rank));
    operand k = trace_expression(t, call->list.items[1]);
    if (!is_number(t, &k, call->list.items[1]->at, &axis)) return operand_error();
    int64_t from = axis < 0 ? axis + s->rank : axis;
    if (from < 0 || from >= s->rank) {
        fault_axis(t->d, call->list.items[1]->at, axis, s->rank);
        return operand_error();
    }
    return operand_of_constant(constant_int(s->extents[from]));
}

static operand call_builtin(tracer *t, const ast *call, const builtin *b)
{
    int count = positional(call);
    bool random_shape = b->class == BUILTIN_RANDOM && strcmp(b->name, "philox") != 0;
    if (b->class == BUILTIN_RANDOM && count >= 3) {
        operand last = trace_expression(t, call->list.items[2]);
        random_shape &= last.kind == OPERAND_CONSTANT;
    }
    if (!random_shape && !right_count(t, call, b)) return operand_error();
    switch (b->class) {
    case BUILTIN_ELEMENTWISE:
        if ((b->op == OP_MIN || b->op == OP_MAX) && count == 1) return trace_reduce(t, call, b);
        if (b->op == OP_BITCAST) return call_bitcast(t, call);
        break;
    case BUILTIN_REDUCE:
    case BUILTIN_SCAN: return trace_reduce(t, call, b);
    case BUILTIN_RANDOM:
        if (random_shape) return trace_api(t, call, b);
        break;
    case BUILTIN_SHAPE:
    case BUILTIN_DOT:
    case BUILTIN_TENSOR: return trace_api(t, call, b);
    case BUILTIN_HOST: {
        if (b->most) return call_shape(t, call, b);
        binding units = constant_int(MAXIMUM(t->units, 1));
        return operand_of_constant(units);
    }
    default:
        if (!strcmp(b->name, "like")) return trace_api(t, call, b);
        fault_no_place(t->d, call->at, b->name, b->class == BUILTIN_VALIDITY);
        return operand_error();
    }
    operand x[4];
    if (!no_named(t, call, b->name)) return operand_error();
    for (int i = 0; i < count && i < COUNT(x); i++) {
        x[i] = trace_expression(t, call->list.items[i]);
        if (!is_plain(t, &x[i], call->list.items[i]->at)) return operand_error();
    }
    if (x[0].kind == OPERAND_TENSOR && dtype_is_float(operand_type(t, &x[0])))
        habit_extreme(t->d, t->memory, call, operand_shape(t, &x[0])->rank);
    if (b->class == BUILTIN_RANDOM) return random_numbers(t, b->name, x, count, call->at);
    return elementwise(t, b, b->name, x, count, call->at);
}

/* ---- scalar functions ---- */

static bool is_scalar_function(const ast *function)
{
    if (!function->type || function->is_tile) return false;
    for (int i = 0; i < function->list.count; i++) {
        const ast *param = function->list.items[i];
        if (param->is_tile || (!param_is_constant(param) && param_is_array(param))) return false;
    }
    return true;
}

static bool bind_generic(tracer *t, const ast *param, const operand *x, bool untyped_too, place at)
{
    bool untyped = x->kind == OPERAND_CONSTANT && x->constant.untyped;
    if (!param->type->is_generic || untyped != untyped_too) return true;
    dtype type = untyped ? typing_alone(&x->constant) : operand_type(t, x);
    const local *l = local_find(t, param->type->word);
    if (!l) {
        local_push(t, (local){.name = param->type->word, .is_type = true, .type = type});
        return true;
    }
    if (untyped || l->type == type) return true;
    fault_generic(t->d, at, param->type->word, l->type, type);
    return false;
}

/* Arguments as the parameters want them, in locals. Tensors all get the shape they have together. */
static bool bind_scalar_arguments(tracer *t, const ast *function, const operand *given, const ast *call, place at,
                                  unsigned *units, bool *tensors)
{
    int count = function->list.count, kept = 0, which[MAX_PARAMS];
    operand *values = ARENA_ARRAY(t->memory, operand, count + 1);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++)
            if (!function->list.items[i]->is_function &&
                !bind_generic(t, function->list.items[i], &given[i], pass == 1, at))
                return false;
    for (int i = 0; i < count; i++) {
        const ast *param = function->list.items[i], *argument = call ? call->list.items[i] : NULL;
        dtype to;
        if (param->is_function) {
            if (!argument || argument->kind != AST_NAME) {
                fault_needs_function(t->d, at, param->name);
                return false;
            }
            local_push(t, (local){.name = param->name, .is_function = true, .function = argument->name, .item = param});
            continue;
        }
        if (!trace_type(t, param->type, &to)) return false;
        if (param_is_constant(param) && given[i].kind != OPERAND_CONSTANT) {
            fault_not_constant(t->d, argument ? argument->at : at, param->name, NULL);
            return false;
        }
        operand x = operand_argument(t, &given[i], to, param->name, argument ? argument->at : at);
        if (is_bad(&x)) return false;
        *tensors |= x.kind == OPERAND_TENSOR;
        which[kept] = i;
        values[kept++] = x;
    }
    node nodes[MAX_PARAMS];
    if (*tensors && !operands_join(t, values, kept, DT_COUNT, at, nodes, units)) return false;
    for (int i = 0; i < kept; i++) {
        const ast *param = function->list.items[which[i]];
        dtype type = operand_type(t, &values[i]);
        bool tensor = values[i].kind == OPERAND_TENSOR && operand_shape(t, &values[i])->rank;
        operand now = tensor ? (operand){.kind = OPERAND_TENSOR, .tensor = nodes[i]} : values[i];
        local_push(t, (local){.name = param->name, .now = now, .is_typed = true, .type = type});
    }
    return true;
}

operand trace_scalar_function(tracer *t, const ast *function, const operand *given, int count, const ast *call,
                              place at)
{
    if (count != function->list.count || count > MAX_PARAMS) {
        fault_argument_count(t->d, at, function->name, function->list.count, function->list.count, count);
        return operand_error();
    }
    if (t->depth >= CALL_DEPTH_LIMIT) {
        fault_call_depth(t->d, at, function->name);
        return operand_error();
    }
    const tracer outer = *t;
    unsigned units = 0;
    bool tensors = false;
    int first = t->first;
    t->first = t->local_count; /* what is outside is not seen inside */
    /* Names of functions that are passed on are looked up in the caller's scope. */
    for (int i = 0; call && i < count; i++) {
        const ast *argument = call->list.items[i];
        if (!function->list.items[i]->is_function || argument->kind != AST_NAME) continue;
        for (int k = t->first; k-- > first;)
            if (t->locals[k].is_function && !strcmp(t->locals[k].name, argument->name)) {
                local passed = t->locals[k];
                local_push(t, passed);
                break;
            }
    }
    operand out = operand_error();
    if (bind_scalar_arguments(t, function, given, call, at, &units, &tensors) &&
        trace_type(t, function->type, &t->result_type)) {
        t->in_scalar = t->has_result_type = true;
        t->returned_somewhere = false;
        t->path = t->returned = 0;
        t->result = operand_error();
        t->depth++;
        trace_block(t, function->body);
        out = t->result;
    }
    /* Back to the caller, with what grew meanwhile. */
    tracer inner = *t;
    *t = outer;
    t->locals = inner.locals;
    t->local_capacity = inner.local_capacity;
    t->steps = inner.steps;
    t->copies = inner.copies;
    if (t->d->errors || is_bad(&out)) return operand_error();
    if (out.kind == OPERAND_TENSOR && operand_shape(t, &out)->rank) out.units = units;
    if (!tensors || (out.kind == OPERAND_TENSOR && operand_shape(t, &out)->rank)) return out;
    /* A result that does not depend on the tensors has their shape all the same. */
    operand *with = ARENA_ARRAY(t->memory, operand, count + 1);
    with[0] = out;
    node nodes[MAX_PARAMS + 1];
    int kept = 1;
    for (int i = 0; i < count; i++)
        if (!function->list.items[i]->is_function && given[i].kind == OPERAND_TENSOR) with[kept++] = given[i];
    site_set(t, at, function->name);
    if (!operands_join(t, with, kept, DT_COUNT, at, nodes, &units)) return operand_error();
    return operand_of_node(t, nodes[0], units, at);
}

/* A name that stands for a function: of the file or a builtin. */
static operand call_bound_function(tracer *t, const local *l, const ast *call)
{
    int count = call->list.count;
    operand *x = ARENA_ARRAY(t->memory, operand, count + 1);
    const ast *param = l->item;
    const char *name = l->function;
    if (count != param->list.count || count > MAX_PARAMS) {
        fault_argument_count(t->d, call->at, l->name, param->list.count, param->list.count, count);
        return operand_error();
    }
    for (int i = 0; i < count; i++) {
        x[i] = trace_expression(t, call->list.items[i]);
        if (!is_plain(t, &x[i], call->list.items[i]->at)) return operand_error();
    }
    for (const local *next; (next = local_find(t, name)) && next->is_function && next->function != name;)
        name = next->function;
    const ast *item = ast_find(t->file, name);
    const builtin *b = item ? NULL : builtin_find(name);
    if (item && item->kind == AST_FUNCTION && is_scalar_function(item))
        return trace_scalar_function(t, item, x, count, NULL, call->at);
    if (b && b->class == BUILTIN_ELEMENTWISE && b->op != OP_BITCAST && count >= b->least && count <= b->most)
        return elementwise(t, b, name, x, count, call->at);
    fault_stands_for(t->d, call->at, name, l->name);
    return operand_error();
}

static operand call_item(tracer *t, const ast *item, const ast *call)
{
    if (item->kind == AST_TENSOR) return trace_tensor_call(t, item, call);
    if (item->kind == AST_KERNEL || item->kind == AST_RAW) return trace_kernel_call(t, item, call);
    if (item->kind != AST_FUNCTION || !is_scalar_function(item)) {
        fault_called_here(t->d, call->at, item->name,
                          "tensor functions call scalar functions, tensor functions and kernels");
        return operand_error();
    }
    operand *x = ARENA_ARRAY(t->memory, operand, call->list.count + 1);
    if (!no_named(t, call, item->name)) return operand_error();
    for (int i = 0; i < call->list.count && i < MAX_PARAMS; i++) {
        if (i < item->list.count && item->list.items[i]->is_function) continue;
        x[i] = trace_expression(t, call->list.items[i]);
        if (!is_plain(t, &x[i], call->list.items[i]->at)) return operand_error();
    }
    return trace_scalar_function(t, item, x, call->list.count, call, call->at);
}

/* Spelled like a type, and a rounding: what products take where they may round. */
static operand call_tf32(tracer *t, const ast *call)
{
    operand x = trace_expression(t, call->list.items[0]);
    if (!is_plain(t, &x, call->list.items[0]->at)) return operand_error();
    dtype type = operand_type(t, &x);
    if (dtype_is_integer(type) || type == DT_F64) {
        fault_tf32(t->d, call->at, type);
        return operand_error();
    }
    x = operand_cast(t, &x, DT_F32, call->at);
    return is_bad(&x) ? x : elementwise(t, builtin_find("tf32"), "tf32", &x, 1, call->at);
}

operand trace_call(tracer *t, const ast *call)
{
    const ast *callee = call->left;
    if (callee->kind == AST_TYPE_NAME) {
        dtype type;
        if (call->list.count != 1 || call->list.items[0]->kind == AST_NAMED) {
            fault_argument_count(t->d, call->at, callee->word, 1, 1, call->list.count);
            return operand_error();
        }
        if (!strcmp(callee->word, "tf32")) return call_tf32(t, call);
        if (!trace_type(t, callee, &type)) return operand_error();
        operand x = trace_expression(t, call->list.items[0]);
        if (is_bad(&x)) return x;
        site_set(t, call->at, "cast");
        return operand_cast(t, &x, type, call->at);
    }
    if (callee->kind == AST_CALL) return trace_gradient_call(t, call);
    if (callee->kind != AST_NAME) {
        fault_not_callable(t->d, call->at, NULL);
        return operand_error();
    }
    const local *l = local_find(t, callee->name);
    if (l && l->is_function) return call_bound_function(t, l, call);
    const ast *item = ast_find(t->file, callee->name);
    if (item) return call_item(t, item, call);
    const builtin *b = builtin_find(callee->name);
    if (b) return call_builtin(t, call, b);
    fault_unknown(t->d, callee->at, true, callee->name, NULL);
    return operand_error();
}
