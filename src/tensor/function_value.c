/*
 * Operands of a tensor function: their types, their shapes, and elementwise ops over them. In: operands. Out: operands,
 * or a diagnostic and an error operand.
 *
 * Types are those of lang/typing.h: the rules of tensors, in a scalar function those of kernels.
 * Shapes: equal ranks, or rank 0; only marked axes broadcast.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_trace.h"

#include <string.h>

operand operand_error(void)
{
    return (operand){.kind = OPERAND_ERROR};
}

operand operand_of_constant(binding b)
{
    return (operand){.kind = OPERAND_CONSTANT, .constant = b};
}

bool is_bad(const operand *x)
{
    return x->kind == OPERAND_ERROR;
}

/* "softmax: reduce (f.qn:3): no such axis" without what the diagnostic says itself. */
static const char *message_of(const graph *g)
{
    const char *words = g->error.message, *after = g->site.file ? strstr(words, g->site.file) : NULL;
    after = after ? strstr(after, "): ") : NULL;
    return after ? after + 3 : words;
}

operand operand_of_node(tracer *t, node n, unsigned units, place at)
{
    if (n) return (operand){.kind = OPERAND_TENSOR, .tensor = n, .units = units};
    if (t->g->status) {
        diagnose(t->d, E315, at, "check the shapes and types of its operands", "`%s`: %s",
                 t->g->label ? t->g->label : "tensor", message_of(t->g));
        t->g->status = QN_OK;
        t->g->error = (qn_error){0};
    }
    return operand_error();
}

bool is_plain(tracer *t, const operand *x, place at)
{
    if (x->kind == OPERAND_CONSTANT || x->kind == OPERAND_TENSOR) return true;
    if (x->kind == OPERAND_LIST)
        diagnose(t->d, E212, at, "take the results apart: `let (a, b) = ...;`", "%d results where one value is wanted",
                 x->count);
    if (x->kind == OPERAND_VOID) diagnose(t->d, E212, at, "write it as a statement", "this gives no value");
    return false;
}

bool is_number(tracer *t, const operand *x, place at, int64_t *out)
{
    if (x->kind == OPERAND_CONSTANT && x->constant.kind == BIND_INT) {
        *out = x->constant.number.i;
        return true;
    }
    if (!is_plain(t, x, at)) return false;
    typed of = operand_typed(t, x);
    if (of.constant && !typing_index(t->d, t->memory, &of, at)) return false;
    fault_traced(t->d, at, "use extents, `int` parameters, `const` names and numbers");
    return false;
}

const shape *operand_shape(const tracer *t, const operand *x)
{
    static const shape scalar;
    return x->kind == OPERAND_TENSOR ? &graph_get(t->g, x->tensor)->shape : &scalar;
}

dtype operand_type(const tracer *t, const operand *x)
{
    return x->kind == OPERAND_TENSOR ? graph_get(t->g, x->tensor)->elem : x->constant.type;
}

node operand_node(tracer *t, const operand *x, dtype type)
{
    if (x->kind == OPERAND_TENSOR) return graph_convert(t->g, x->tensor, type);
    binding b = constant_cast(&x->constant, type);
    shape scalar = {0};
    return graph_full(t->g, type, &scalar, b.number);
}

operand operand_cast(tracer *t, const operand *x, dtype type, place at)
{
    if (!is_plain(t, x, at)) return operand_error();
    if (x->kind == OPERAND_CONSTANT) return operand_of_constant(constant_cast(&x->constant, type));
    return operand_of_node(t, graph_convert(t->g, x->tensor, type), x->units, at);
}

typed operand_typed(const tracer *t, const operand *x)
{
    return (typed){.type = operand_type(t, x),
                   .constant = x->kind == OPERAND_CONSTANT ? &x->constant : NULL,
                   .has_axes = operand_shape(t, x)->rank > 0};
}

static typing_rules rules_of(const tracer *t)
{
    return t->in_scalar ? TYPING_KERNEL : TYPING_TENSOR;
}

operand operand_convert(tracer *t, const operand *x, dtype type, place at)
{
    if (!is_plain(t, x, at)) return operand_error();
    typed from = operand_typed(t, x);
    return typing_convert(t->d, t->memory, &from, type, at) ? operand_cast(t, x, type, at) : operand_error();
}

operand operand_argument(tracer *t, const operand *x, dtype type, const char *name, place at)
{
    if (!is_plain(t, x, at)) return operand_error();
    typed from = operand_typed(t, x);
    return typing_argument(t->d, t->memory, &from, type, name, at) ? operand_cast(t, x, type, at) : operand_error();
}

operand operand_condition(tracer *t, const operand *x, place at)
{
    if (!is_plain(t, x, at)) return operand_error();
    typed from = operand_typed(t, x);
    if (!typing_condition(t->d, &from, at)) return operand_error();
    return from.type == DT_BOOL ? *x : operand_cast(t, x, DT_BOOL, at);
}

bool operands_type(tracer *t, const operand *x, int count, place at, dtype *out)
{
    typed all[4];
    CHECK(count <= COUNT(all));
    for (int i = 0; i < count; i++) all[i] = operand_typed(t, &x[i]);
    return typing_join(t->d, t->memory, rules_of(t), all, count, at, out);
}

/* ---- shapes ---- */

bool operands_join(tracer *t, const operand *x, int count, dtype type, place at, node *nodes, unsigned *units)
{
    shape s = {0};
    unsigned marks = 0;
    bool begun = false;
    for (int i = 0; i < count; i++) {
        const shape *mine = operand_shape(t, &x[i]);
        if (!mine->rank) continue;
        if (begun && mine->rank != s.rank) {
            fault_ranks(t->d, at, s.rank, mine->rank);
            return false;
        }
        for (int k = 0; k < mine->rank; k++) {
            bool unit = x[i].units >> k & 1, old = marks >> k & 1;
            if (!begun || (old && !unit)) {
                s.extents[k] = mine->extents[k];
                marks = (marks & ~(1u << k)) | (unsigned)unit << k;
            } else if (!unit && s.extents[k] != mine->extents[k]) {
                fault_extents(
                    t->d, at, k,
                    arena_print(t->memory, "%lld, %lld", (long long)s.extents[k], (long long)mine->extents[k]));
                return false;
            }
        }
        s.rank = mine->rank;
        begun = true;
    }
    for (int i = 0; i < count; i++) {
        dtype elem = type == DT_COUNT ? operand_type(t, &x[i]) : type;
        shape ones = s;
        for (int k = 0; k < s.rank; k++) ones.extents[k] = 1;
        if (x[i].kind == OPERAND_CONSTANT) {
            nodes[i] = graph_full(t->g, elem, &s, constant_cast(&x[i].constant, elem).number);
        } else {
            node n = operand_node(t, &x[i], elem);
            if (n && !graph_get(t->g, n)->shape.rank && s.rank) n = graph_reshape(t->g, n, &ones);
            nodes[i] = n ? graph_expand(t->g, n, &s) : 0;
        }
        if (!nodes[i]) {
            operand_of_node(t, 0, 0, at);
            return false;
        }
    }
    *units = marks;
    return true;
}

operand trace_map(tracer *t, op_code code, const operand *x, int count, bool as_float, place at)
{
    dtype type;
    node nodes[4];
    unsigned units;
    for (int i = 0; i < count; i++)
        if (!is_plain(t, &x[i], at)) return operand_error();
    if (!operands_type(t, x, count, at, &type)) return operand_error();
    if (as_float && !dtype_is_float(type)) type = DT_F32;
    if (type == DT_BOOL && !strchr(ops[code].types, 'B')) type = DT_I32;
    if (code == OP_NOT && operand_type(t, &x[0]) == DT_BOOL) type = DT_BOOL; /* of a truth: `~` has promoted it */
    if (!operands_join(t, x, count, type, at, nodes, &units)) return operand_error();
    return operand_of_node(t, graph_map(t->g, code, type, nodes, count), units, at);
}

operand trace_operator(tracer *t, const char *word, const operand x[2], place at)
{
    typed both[2] = {operand_typed(t, &x[0]), operand_typed(t, &x[1])};
    operand converted[2];
    dtype to[2];
    node nodes[2];
    unsigned units;
    if (!typing_binary(t->d, t->memory, rules_of(t), word, both, at, to)) return operand_error();
    for (int i = 0; i < 2; i++) {
        converted[i] = operand_cast(t, &x[i], to[i], at);
        if (is_bad(&converted[i])) return converted[i];
    }
    op_code code = operator_code(word);
    site_set(t, at, ops[code].text);
    if (!operands_join(t, converted, 2, DT_COUNT, at, nodes, &units)) return operand_error();
    return operand_of_node(t, graph_map(t->g, code, to[0], nodes, 2), units, at);
}

operand trace_select(tracer *t, const operand *condition, const operand *a, const operand *b, place at)
{
    operand all[3] = {operand_condition(t, condition, at), *a, *b};
    dtype type;
    node nodes[3];
    unsigned units;
    if (is_bad(&all[0]) || !is_plain(t, a, at) || !is_plain(t, b, at)) return operand_error();
    typed arms[2] = {operand_typed(t, a), operand_typed(t, b)};
    if (!typing_select(t->d, t->memory, rules_of(t), arms, at, &type)) return operand_error();
    bool constant = true;
    for (int i = 0; i < 3; i++) {
        if (i) all[i] = operand_cast(t, &all[i], type, at);
        if (is_bad(&all[i])) return all[i];
        constant &= all[i].kind == OPERAND_CONSTANT;
    }
    if (constant) return constant_truth(&all[0].constant) ? all[1] : all[2];
    if (!operands_join(t, all, 3, DT_COUNT, at, nodes, &units)) return operand_error();
    return operand_of_node(t, graph_select(t->g, nodes[0], nodes[1], nodes[2]), units, at);
}
