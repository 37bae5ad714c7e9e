/*
 * Operands of a tensor function: their types, their shapes, and elementwise ops over them. In: operands. Out: operands,
 * or a diagnostic and an error operand.
 *
 * Types: tensors of one type keep it; of two, the wider float (f16 with bf16: f32), a float over an integer. Numbers
 * and tensors of rank 0 follow a tensor of their own kind. In a scalar function the rules of kernels hold instead.
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
        diagnose(t->d, "E315", at, "check the shapes and types of its operands", "`%s`: %s",
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
        diagnose(t->d, "E212", at, "take the results apart: `let (a, b) = ...;`",
                 "%d results where one value is wanted", x->count);
    if (x->kind == OPERAND_VOID) diagnose(t->d, "E212", at, "write it as a statement", "this gives no value");
    return false;
}

bool is_number(tracer *t, const operand *x, place at, int64_t *out)
{
    if (x->kind == OPERAND_CONSTANT && x->constant.kind == BIND_INT) {
        *out = x->constant.number.i;
        return true;
    }
    if (is_plain(t, x, at))
        diagnose(t->d, "E217", at, "use extents, `int` parameters, `const` names and numbers",
                 x->kind == OPERAND_CONSTANT ? "an integer is wanted here"
                                             : "a tensor's value is not known when the function is traced");
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

operand operand_convert(tracer *t, const operand *x, dtype type, place at)
{
    if (!is_plain(t, x, at)) return operand_error();
    dtype from = operand_type(t, x);
    const char *code = NULL;
    if (x->kind == OPERAND_CONSTANT) {
        binding unused;
        code = constant_convert(&x->constant, type, &unused);
    } else if (dtype_is_float(from) && !dtype_is_float(type)) {
        code = type == DT_BOOL ? "E207" : "E205";
    } else if (type == DT_BOOL && from != DT_BOOL) {
        code = "E207";
    }
    if (!code) return operand_cast(t, x, type, at);
    diagnose(t->d, code, at, constant_fault_advice(code), "%s", constant_fault_text(code));
    return operand_error();
}

operand operand_condition(tracer *t, const operand *x, place at)
{
    if (!is_plain(t, x, at)) return operand_error();
    if (dtype_is_float(operand_type(t, x))) {
        diagnose(t->d, "E210", at, "compare it with something", "a float is not a condition");
        return operand_error();
    }
    if (operand_type(t, x) == DT_BOOL) return *x;
    if (x->kind == OPERAND_CONSTANT) return operand_of_constant(constant_bool(constant_truth(&x->constant)));
    operand zero = operand_of_constant(constant_int(0));
    return trace_binary(t, "!=", x, &zero, at);
}

/* ---- types ---- */

static bool tensors_join(dtype a, dtype b, dtype *out)
{
    bool a_float = dtype_is_float(a), b_float = dtype_is_float(b);
    *out = a;
    if (a == b) return true;
    if (a_float != b_float || a == DT_BOOL || b == DT_BOOL) {
        *out = a_float || b == DT_BOOL ? a : b;
        return true;
    }
    if (!a_float) return type_join(a, b, out);
    *out = dtypes[a].size_bytes > dtypes[b].size_bytes ? a : dtypes[a].size_bytes < dtypes[b].size_bytes ? b : DT_F32;
    return true;
}

/* 0: an untyped number, 1: a typed one or a tensor of rank 0, 2: a tensor with axes. */
static int weight(const tracer *t, const operand *x)
{
    if (x->kind == OPERAND_CONSTANT) return x->constant.untyped ? 0 : 1;
    return operand_shape(t, x)->rank ? 2 : 1;
}

static int category(dtype type)
{
    return dtype_is_float(type) ? 2 : type == DT_BOOL ? 0 : 1;
}

bool operands_type(tracer *t, const operand *x, int count, place at, dtype *out)
{
    int best = -1;
    for (int i = 0; i < count; i++)
        best = MAXIMUM(best, t->in_scalar ? MINIMUM(weight(t, &x[i]), 1) : weight(t, &x[i]));
    bool begun = false;
    for (int i = 0; i < count; i++) {
        int mine = t->in_scalar ? MINIMUM(weight(t, &x[i]), 1) : weight(t, &x[i]);
        dtype type = operand_type(t, &x[i]);
        if (mine < best) continue;
        bool good = !begun || (t->in_scalar ? type_join(*out, type, out) : tensors_join(*out, type, out));
        if (!begun) *out = t->in_scalar && mine ? type_promote(type) : type;
        begun = true;
        if (good) continue;
        diagnose(t->d, "E206", at, "cast one of them", "`%s` with `%s`", type_text(*out), type_text(type));
        return false;
    }
    for (int i = 0; i < count; i++) { /* lighter ones only lift the kind */
        dtype type = operand_type(t, &x[i]);
        if (category(type) <= category(*out)) continue;
        bool float64 = type == DT_F64 && !(x[i].kind == OPERAND_CONSTANT && x[i].constant.untyped);
        *out = category(type) == 2 ? (float64 && t->in_scalar ? DT_F64 : DT_F32) : DT_I64;
    }
    return true;
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
            diagnose(t->d, "E301", at, "add an axis with `[]`: `m[:][]` is a column, `m[][:]` a row",
                     "operands have ranks %d and %d", s.rank, mine->rank);
            return false;
        }
        for (int k = 0; k < mine->rank; k++) {
            bool unit = x[i].units >> k & 1, old = marks >> k & 1;
            if (!begun || (old && !unit)) {
                s.extents[k] = mine->extents[k];
                marks = (marks & ~(1u << k)) | (unsigned)unit << k;
            } else if (!unit && s.extents[k] != mine->extents[k]) {
                bool one = s.extents[k] == 1 || mine->extents[k] == 1;
                diagnose(t->d, "E302", at,
                         one ? "only axes made by `[]`, by a reduction or as a literal 1 broadcast"
                             : "operands have equal extents, or unit axes",
                         "extents differ on axis %d: %lld and %lld", k, (long long)s.extents[k],
                         (long long)mine->extents[k]);
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
    bool takes_bool = strchr(ops[code].types, 'B') != NULL, bools = takes_bool;
    for (int i = 0; i < count; i++) bools &= operand_type(t, &x[i]) == DT_BOOL;
    if (type == DT_BOOL && !takes_bool) type = DT_I32;
    if (bools) type = DT_BOOL; /* kernels promote them, but not where the op is one of truth */
    if (dtype_is_float(type) && !strchr(ops[code].types, 'F')) {
        diagnose(t->d, "E211", at, "cast the operands to an integer type", "this operator needs integers");
        return operand_error();
    }
    if (!operands_join(t, x, count, type, at, nodes, &units)) return operand_error();
    return operand_of_node(t, graph_map(t->g, code, type, nodes, count), units, at);
}

operand trace_select(tracer *t, const operand *condition, const operand *a, const operand *b, place at)
{
    operand all[3] = {operand_condition(t, condition, at), *a, *b};
    dtype type;
    node nodes[3];
    unsigned units;
    if (is_bad(&all[0]) || !is_plain(t, a, at) || !is_plain(t, b, at)) return operand_error();
    if (!operands_type(t, all + 1, 2, at, &type)) return operand_error();
    for (int i = 1; i < 3; i++) {
        all[i] = operand_cast(t, &all[i], type, at);
        if (is_bad(&all[i])) return all[i];
        all[i].constant.untyped = false;
    }
    if (!operands_join(t, all, 3, DT_COUNT, at, nodes, &units)) return operand_error();
    return operand_of_node(t, graph_select(t->g, nodes[0], nodes[1], nodes[2]), units, at);
}
