/*
 * The tensor API by its names: a call in a .qn file becomes a call of <quern/tensor.h> or <quern/nn.h>. In: a call.
 * Out: what the C function gives.
 *
 * Behind each name stands one small function, which takes its arguments by position and by name. A named argument that
 * nobody asked for is an error. Names and counts of arguments stand in lang/tensor_functions.def.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_api.h"

#include <string.h>

/* ---- arguments ---- */

static qn_tensor tensor_of(api_call *a, const operand *x)
{
    dtype type = x->kind == OPERAND_CONSTANT && x->constant.untyped && x->constant.kind == BIND_FLOAT
                     ? DT_F32
                     : operand_type(a->t, x);
    qn_tensor handle = tape_handle(a->t->tape, operand_node(a->t, x, type));
    qn_here(a->t->file->path, a->call->at.line);
    return handle;
}

qn_tensor api_tensor(api_call *a, int i)
{
    return i >= a->count || a->bad ? (qn_tensor){0} : tensor_of(a, &a->values[i]);
}

int64_t api_integer(api_call *a, int i)
{
    int64_t out = 0;
    if (i >= a->count || a->bad) return 0;
    a->bad = !is_number(a->t, &a->values[i], a->places[i]->at, &out);
    return out;
}

static double float_of(api_call *a, const operand *x, place at)
{
    if (x->kind == OPERAND_CONSTANT && x->constant.kind == BIND_FLOAT) return x->constant.number.f;
    if (x->kind == OPERAND_CONSTANT) return (double)x->constant.number.i;
    if (is_plain(a->t, x, at)) fault_traced(a->t->d, at, "pass a number, or a scalar parameter");
    a->bad = true;
    return 0;
}

double api_float(api_call *a, int i)
{
    return i < a->count && !a->bad ? float_of(a, &a->values[i], a->places[i]->at) : 0;
}

const ast *api_named(api_call *a, const char *name)
{
    if (a->asked_count < COUNT(a->asked)) a->asked[a->asked_count++] = name;
    const ast *n = named_of(a->call, name);
    if (n && !n->left) {
        fault_no_set(a->t->d, n->at, name, a->name);
        a->bad = true;
        return NULL;
    }
    return n;
}

int64_t api_named_integer(api_call *a, const char *name, int64_t otherwise)
{
    const ast *n = api_named(a, name);
    if (!n || a->bad) return otherwise;
    operand x = trace_expression(a->t, n->left);
    a->bad = !is_number(a->t, &x, n->left->at, &otherwise);
    return otherwise;
}

double api_named_float(api_call *a, const char *name, double otherwise)
{
    const ast *n = api_named(a, name);
    if (!n || a->bad) return otherwise;
    operand x = trace_expression(a->t, n->left);
    return float_of(a, &x, n->left->at);
}

bool api_named_bool(api_call *a, const char *name, bool otherwise)
{
    const ast *n = api_named(a, name);
    if (!n || a->bad) return otherwise;
    operand x = trace_expression(a->t, n->left);
    if (x.kind == OPERAND_CONSTANT && x.constant.kind != BIND_FLOAT) return constant_truth(&x.constant);
    if (!is_bad(&x)) fault_flag(a->t->d, n->left->at, name, a->name);
    a->bad = true;
    return otherwise;
}

/* `axis = k`: one axis of the first argument, checked here so that the message points at it. */
int api_axis(api_call *a, int otherwise)
{
    unsigned set;
    bool given;
    int rank = operand_shape(a->t, &a->values[0])->rank;
    if (a->asked_count < COUNT(a->asked)) a->asked[a->asked_count++] = "axis";
    if (a->bad || !axes_of(a->t, a->call, rank, &set, &given)) {
        a->bad = true;
        return otherwise;
    }
    if (!given) return otherwise;
    if (set & (set - 1)) {
        diagnose(a->t->d, E309, a->call->at, "write `axis = k`", "`%s` takes one axis", a->name);
        a->bad = true;
    }
    return set ? __builtin_ctz(set) : otherwise;
}

/* `axis = k` or `axis = {j, k}`; *keep: some were named, and stay as unit axes. */
qn_axes api_axes(api_call *a, bool *keep)
{
    unsigned set = 0;
    qn_axes out = {0};
    int rank = operand_shape(a->t, &a->values[0])->rank;
    if (a->asked_count < COUNT(a->asked)) a->asked[a->asked_count++] = "axis";
    a->bad |= !axes_of(a->t, a->call, rank, &set, keep);
    for (int k = 0; k < rank; k++)
        if (set >> k & 1) out.axes[out.count++] = k;
    if (*keep) a->units = set;
    return out;
}

/* Extents from position `first` on; a literal 1 is a unit axis. */
qn_shape api_shape(api_call *a, int first)
{
    qn_shape s = {0};
    if (a->count - first > QN_TENSOR_RANK) {
        fault_tensor_axes(a->t->d, a->call->at, QN_TENSOR_RANK);
        a->bad = true;
        return s;
    }
    for (int i = first; i < a->count; i++) {
        if (ast_is_literal(a->places[i], 1)) a->units |= 1u << s.rank;
        s.extents[s.rank++] = api_integer(a, i);
    }
    return s;
}

qn_axes api_order(api_call *a, int first)
{
    qn_axes out = {0};
    for (int i = first; i < a->count && out.count < QN_TENSOR_RANK; i++) out.axes[out.count++] = (int)api_integer(a, i);
    return out;
}

unsigned api_units(const api_call *a, int i)
{
    return i < a->count ? a->values[i].units : 0;
}

double api_option(api_call *a, int i, const char *name, double otherwise)
{
    return i < a->count ? api_float(a, i) : api_named_float(a, name, otherwise);
}

qn_tensor api_option_tensor(api_call *a, int i, const char *name)
{
    if (i < a->count) return api_tensor(a, i);
    const ast *n = api_named(a, name);
    if (!n || a->bad) return (qn_tensor){0};
    operand x = trace_expression(a->t, n->left);
    if (!is_plain(a->t, &x, n->left->at)) {
        a->bad = true;
        return (qn_tensor){0};
    }
    return tensor_of(a, &x);
}

bool api_each(api_call *a, const char *name, int64_t *out, int count)
{
    if (a->asked_count < COUNT(a->asked)) a->asked[a->asked_count++] = name;
    const ast *n = named_of(a->call, name);
    if (!n || a->bad) return false;
    if (n->is_set && n->list.count != count) {
        diagnose(a->t->d, E213, n->at, "give one number, or one for each axis",
                 "`%s` of `%s` has %d numbers for %d axes", name, a->name, n->list.count, count);
        a->bad = true;
    }
    for (int i = 0; i < count && !a->bad; i++) {
        const ast *item = n->is_set ? n->list.items[i] : n->left;
        operand x = trace_expression(a->t, item);
        a->bad = !is_number(a->t, &x, item->at, &out[i]);
    }
    return !a->bad;
}

qn_tensor api_list(api_call *a, int count)
{
    qn_tensor first = a->more[0];
    a->more_count = count - 1;
    memmove(a->more, a->more + 1, sizeof(a->more[0]) * (size_t)a->more_count);
    return first;
}

/* The equation of einsum is the one argument that is no value. */
static bool api_takes_words(const builtin *b, int position)
{
    return position == 0 && !strcmp(b->name, "einsum");
}

/* ---- calls ---- */

static const struct {
    const char *name;
    api_function *run;
} functions[] = {
    {"@", api_run_matmul},
#define TENSOR_FUNCTION(name, least, most) {#name, api_run_##name},
#define TILE_FUNCTION(name) {#name, api_run_##name},
#include "lang/tensor_functions.def"
};

static api_function *function_named(const char *name)
{
    for (int i = 0; i < COUNT(functions); i++)
        if (!strcmp(functions[i].name, name)) return functions[i].run;
    return NULL;
}

bool function_api_has(const char *name)
{
    return function_named(name) != NULL;
}

/* Named arguments that the function did not look for. */
static bool names_known(api_call *a)
{
    for (int i = 0; i < a->call->list.count; i++) {
        const ast *argument = a->call->list.items[i];
        bool known = argument->kind != AST_NAMED;
        for (int k = 0; k < a->asked_count; k++) known |= !known && !strcmp(a->asked[k], argument->name);
        if (known) continue;
        const char *near = suggest_name(argument->name, a->asked, a->asked_count);
        fault_named_argument(a->t->d, argument->at, a->name, argument->name,
                             near ? arena_print(a->t->memory, "did you mean `%s`?", near) : NULL);
        return false;
    }
    return true;
}

static operand result_of(api_call *a, qn_tensor handle, unsigned units)
{
    const tape_slot *slot = tape_slot_of(handle);
    return operand_of_node(a->t, slot ? slot->node : 0, units, a->call->at);
}

operand trace_api(tracer *t, const ast *call, const builtin *b)
{
    api_call *a = ARENA_NEW(t->memory, api_call);
    a->t = t;
    a->call = call;
    a->name = b->name;
    for (int i = 0; i < call->list.count; i++) {
        const ast *argument = call->list.items[i];
        if (argument->kind == AST_NAMED || a->count == API_ARGUMENTS) continue;
        if (argument->kind == AST_STRING && api_takes_words(b, a->count)) {
            a->values[a->count] = operand_of_constant(constant_int(0));
            a->places[a->count++] = argument;
            continue;
        }
        a->values[a->count] = trace_expression(t, argument);
        if (!is_plain(t, &a->values[a->count], argument->at)) return operand_error();
        a->places[a->count++] = argument;
    }
    api_function *run = function_named(b->name);
    if (!run) {
        diagnose(t->d, E212, call->at, strcmp(b->name, "grad") ? NULL : "write `grad(f)(x, ...)`",
                 "`%s` cannot be called like this", b->name);
        return operand_error();
    }
    site_set(t, call->at, b->name);
    graph_site before = tape_site(); /* the caller's: a file's name goes with its module */
    qn_here(t->file->path, call->at.line);
    qn_tensor out = run(a);
    qn_here(before.file, before.line);
    if (a->bad || !names_known(a) || t->d->errors) {
        t->g->status = QN_OK; /* an empty operand was the consequence, not the mistake */
        return operand_error();
    }
    site_set(t, call->at, b->name);
    operand first = result_of(a, out, a->units);
    if (is_bad(&first) || !a->more_count) return first;
    operand *items = ARENA_ARRAY(t->memory, operand, a->more_count + 1);
    items[0] = first;
    for (int i = 0; i < a->more_count; i++) items[i + 1] = result_of(a, a->more[i], 0);
    return (operand){.kind = OPERAND_LIST, .items = items, .count = a->more_count + 1};
}
