/*
 * Tensor functions: a call binds types, constants and extents by the arguments, runs the body once and gives its
 * results. `grad(f)` runs f on copies of its arguments, so that each parameter is a value of its own even where two get
 * the same tensor, differentiates the first result by them, and puts the arguments back in their places.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_trace.h"
#include "tensor/grad.h"

#include <string.h>

enum { MOST_PARAMS = FUNCTION_PARAMS, FIRST_COPY = 1 << 20 };

static const operand nothing = {.kind = OPERAND_VOID};

static bool is_tensor_param(const ast *param)
{
    return param->is_tensor;
}

/* ---- results, without running ---- */

static int results_of(const ast_file *file, const ast *item, int depth);

static const ast *last_return(const ast *node)
{
    if (!node) return NULL;
    if (node->kind == AST_RETURN) return node;
    const ast *found = NULL;
    for (int i = 0; i < node->list.count && (node->kind == AST_BLOCK); i++) {
        const ast *inner = last_return(node->list.items[i]);
        if (inner) found = inner;
    }
    if (!found) found = last_return(node->body);
    return found ? found : last_return(node->other);
}

static int differentiable(const ast *item)
{
    int count = 0;
    dtype type;
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        bool floats = param->type->is_generic || (dtype_from_text(param->type->word, &type) && dtype_is_float(type));
        count += !param_is_constant(param) && floats;
    }
    return count;
}

static int outputs_of(const ast *kernel)
{
    int count = 0;
    for (int i = 0; i < kernel->list.count; i++) {
        const char *word = kernel->list.items[i]->word;
        count += !strcmp(word, "out") || !strcmp(word, "inout");
    }
    return count;
}

/* Of a call of a builtin; parts whose number is not written there are as one. */
static int builtin_values(const ast *x)
{
    const char *name = x->left->name;
    if (!strcmp(name, "sort") || !strcmp(name, "topk")) return 2;
    if (strcmp(name, "split") != 0 && strcmp(name, "chunk") != 0) return 1;
    const ast *sizes = named_of(x, "sizes"), *parts = x->list.count > 1 ? x->list.items[1] : NULL;
    if (sizes) return sizes->list.count;
    return parts && parts->kind == AST_NUMBER && !parts->is_float ? (int)MINIMUM(parts->number.i, FUNCTION_RESULTS) : 1;
}

static int values_of(const ast_file *file, const ast *x, int depth)
{
    if (x->kind != AST_CALL) return 1;
    if (x->left->kind == AST_CALL) {
        const ast *grad = x->left;
        const ast *f = grad->list.count && grad->list.items[0]->kind == AST_NAME
                           ? ast_find(file, grad->list.items[0]->name)
                           : NULL;
        return grad->list.count > 1 ? grad->list.count - 1 : f ? differentiable(f) : 1;
    }
    const ast *item = x->left->kind == AST_NAME ? ast_find(file, x->left->name) : NULL;
    if (item && item->kind == AST_TENSOR) return results_of(file, item, depth + 1);
    if (item && (item->kind == AST_KERNEL || item->kind == AST_RAW)) return outputs_of(item);
    return item || x->left->kind != AST_NAME ? 1 : builtin_values(x);
}

static int results_of(const ast_file *file, const ast *item, int depth)
{
    const ast *end = last_return(item->body);
    if (!end || depth > CALL_DEPTH_LIMIT) return 1;
    int count = end->list.count == 1 ? values_of(file, end->list.items[0], depth) : end->list.count;
    return MINIMUM(MAXIMUM(count, 1), FUNCTION_RESULTS);
}

int function_result_count(const ast_file *file, const ast *item)
{
    return results_of(file, item, 0);
}

bool function_differentiates(const ast *param, const bindings *constants)
{
    dtype type;
    const binding *bound = param->type->is_generic ? bindings_find(constants, param->type->word) : NULL;
    if (param_is_constant(param)) return false;
    if (bound) return bound->kind == BIND_TYPE && dtype_is_float(bound->type);
    return dtype_from_text(param->type->word, &type) && dtype_is_float(type);
}

/* ---- running a function ---- */

static bool check_extents(tracer *t, const ast *param, const operand *x, const bindings *all, place at)
{
    const shape *s = operand_shape(t, x);
    for (int k = 0; k < param->list.count; k++) {
        binding b;
        const char *unbound = NULL;
        int errors = t->d->errors;
        if (!lang_evaluate(t->file, param->list.items[k], all, t->units, t->d, &b, &unbound) || b.kind != BIND_INT) {
            if (t->d->errors == errors) fault_extent_missing(t->d, param->list.items[k]->from, unbound ? unbound : "?");
            return false;
        }
        bool open = k >= param->spread_at && k < param->spread_at + param->spread_count && x->units >> k & 1;
        if (b.number.i == s->extents[k] || open) continue;
        text words = {0};
        lang_format_expression(param->list.items[k], &words);
        diagnose(t->d, E502, at, "give tensors whose shapes agree", "axis %d of `%s` has %lld, expected `%s` = %lld", k,
                 param->name, (long long)s->extents[k], text_get(&words), (long long)b.number.i);
        text_free(&words);
        return false;
    }
    return true;
}

bool trace_bind_known(tracer *t, const bindings *constants, const bindings *known)
{
    const bindings *both[] = {constants, known};
    for (int n = 0; n < 2; n++)
        for (int i = 0; both[n] && i < both[n]->count; i++) {
            const binding *b = &both[n]->items[i];
            local l = {.name = b->name, .is_type = b->kind == BIND_TYPE, .is_function = b->kind == BIND_FUNCTION};
            l.type = b->type;
            l.function = b->function;
            if (!l.is_type && !l.is_function) l.now = operand_of_constant(*b);
            local_push(t, l);
        }
    return true;
}

operand trace_function(tracer *t, const ast *item, const operand *arguments, const bindings *constants,
                       const bindings *known, place at)
{
    if (t->depth >= CALL_DEPTH_LIMIT) {
        fault_call_depth(t->d, at, item->name);
        return operand_error();
    }
    const tracer outer = *t;
    bindings all = {0};
    t->first = t->local_count;
    for (int i = 0; i < constants->count; i++) bindings_set(t->memory, &all, constants->items[i]);
    for (int i = 0; i < known->count; i++) bindings_set(t->memory, &all, known->items[i]);
    bool good = trace_bind_known(t, constants, known);
    for (int i = t->first; i < t->local_count; i++)
        if (t->locals[i].is_function) t->locals[i].item = param_find(item, t->locals[i].name);
    for (int i = 0; i < item->list.count && good; i++) {
        const ast *param = item->list.items[i];
        const operand *x = &arguments[i];
        if (param_is_constant(param)) continue;
        if (is_tensor_param(param)) {
            CHECK(x->kind == OPERAND_TENSOR);
            good = check_extents(t, param, x, &all, at);
            operand marked = *x; /* what broadcasts is what the declaration says, whoever calls */
            marked.units = 0;    /* and behind `[...]` what the caller's does */
            for (int k = 0; k < param->list.count; k++)
                marked.units |= (unsigned)ast_is_literal(param->list.items[k], 1) << k;
            marked.units |= x->units & ((1u << param->spread_count) - 1) << param->spread_at;
            local_push(t, (local){.name = param->name, .now = marked});
        } else {
            dtype type = DT_F32; /* where it has none, that was said */
            operand value = *x;
            const binding *b = bindings_find(known, param->name);
            if (value.kind == OPERAND_VOID && b) value = operand_of_constant(*b);
            if (value.kind == OPERAND_VOID && param->left) value = trace_expression(t, param->left);
            if (value.kind == OPERAND_VOID) fault_no_default(t->d, param->at, "scalar", param->name);
            good = value.kind != OPERAND_VOID && trace_type(t, param->type, &type);
            if (good) value = operand_argument(t, &value, type, param->name, at);
            good = good && !is_bad(&value);
            local_push(t, (local){.name = param->name, .now = value, .is_typed = true, .type = type});
        }
    }
    t->in_scalar = t->has_result_type = t->returned_somewhere = false;
    t->path = t->returned = 0;
    t->result = operand_error();
    t->depth++;
    if (good) trace_block(t, item->body);
    operand out = t->result;
    tracer inner = *t;
    *t = outer;
    t->locals = inner.locals;
    t->local_capacity = inner.local_capacity;
    t->steps = inner.steps;
    t->copies = inner.copies;
    return t->d->errors || !good ? operand_error() : out;
}

/* ---- calls ---- */

typedef struct bound_call {
    const ast *item;    /* with axes for `[...]` */
    operand *arguments; /* by parameter */
    bindings constants, known;
} bound_call;

static void give(tracer *t, const ast *param, const operand *x, place at, lang_given *given, bool *good)
{
    if (is_tensor_param(param)) {
        if (x->kind == OPERAND_CONSTANT && !spread_fixed(param)) return; /* a number is a tensor of rank 0 */
        if (x->kind != OPERAND_TENSOR) {
            diagnose(t->d, E213, at, "pass a tensor, such as `full(v, n)`", "`%s` is a tensor parameter", param->name);
            *good = false;
            return;
        }
        const shape *s = operand_shape(t, x);
        given_array *a = &given->arrays[given->array_count++];
        *a = (given_array){.name = param->name, .elem = operand_type(t, x), .rank = s->rank, .has_extents = true};
        memcpy(a->extents, s->extents, sizeof(a->extents[0]) * (size_t)s->rank);
        a->units = x->units;
        return;
    }
    if (x->kind == OPERAND_TENSOR && (param_is_constant(param) || operand_shape(t, x)->rank)) {
        if (param_is_constant(param))
            fault_not_constant(t->d, at, param->name, NULL);
        else
            diagnose(t->d, E305, at, "reduce it", "`%s` is a scalar, this is a tensor", param->name);
        *good = false;
        return;
    }
    if (x->kind != OPERAND_CONSTANT) return;
    binding b = x->constant;
    b.name = param->name;
    bindings_set(t->memory, &given->settings, b);
}

const ast *trace_spread(tracer *t, const ast *item, const operand *arguments, place at)
{
    int count = -1;
    const ast *first = NULL;
    bool *bare = ARENA_ARRAY(t->memory, bool, item->list.count + 1);
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        bare[i] = arguments[i].kind == OPERAND_CONSTANT;
        if (!param->has_spread || arguments[i].kind != OPERAND_TENSOR) continue;
        int rank = operand_shape(t, &arguments[i])->rank, axes = rank - spread_fixed(param);
        bare[i] = !rank && !spread_fixed(param); /* a tensor of rank 0 goes with every shape */
        if (bare[i]) continue;
        if (axes < 0 || (first && axes != count)) {
            diagnose(
                t->d, E501, at,
                axes < 0
                    ? "insert axes: `x[][:]`, or `unsqueeze(x, like = y)`"
                    : "all `[...]` of a function stand for the same axes; `unsqueeze(x, like = y)` adds some in front",
                axes < 0 ? "`%s` has %d ax%s, the parameter at least %d" : "`%s` has %d ax%s, expected %d as in `%s`",
                param->name, rank, rank == 1 ? "is" : "es",
                axes < 0 ? spread_fixed(param) : spread_fixed(param) + count, first ? first->name : "");
            return NULL;
        }
        count = axes;
        first = param;
    }
    return lang_spread(t->memory, item, MAXIMUM(count, 0), bare);
}

/* Arguments of a call by parameter; types, constants and extents that follow from them. */
static bool bind_call(tracer *t, const ast *item, const ast *call, bound_call *out)
{
    bool good = true;
    given_array *arrays = ARENA_ARRAY(t->memory, given_array, item->list.count + 1);
    lang_given given = {.arrays = arrays, .units = t->units};
    out->item = item;
    out->arguments = ARENA_ARRAY(t->memory, operand, item->list.count + 1);
    for (int i = 0; i < item->list.count; i++) out->arguments[i] = nothing;
    for (int i = 0, at = 0; i < call->list.count && good; i++) {
        const ast *argument = call->list.items[i];
        bool named = argument->kind == AST_NAMED;
        int which = named ? 0 : at++;
        while (named && which < item->list.count && strcmp(item->list.items[which]->name, argument->name)) which++;
        if (which >= item->list.count) {
            diagnose(t->d, E213, argument->at, "see its parameters",
                     named ? "`%s` has no parameter `%s`" : "`%s` takes fewer arguments than %s", item->name,
                     named ? argument->name : "these");
            return false;
        }
        const ast *param = item->list.items[which], *value = named ? argument->left : argument;
        if (out->arguments[which].kind != OPERAND_VOID || bindings_find(&given.settings, param->name)) {
            diagnose(t->d, E213, argument->at, "give it once", "`%s` of `%s` is given twice", param->name, item->name);
            return false;
        }
        if (param->is_function) {
            binding b = {.name = param->name, .kind = BIND_FUNCTION};
            b.function = value && value->kind == AST_NAME ? value->name : "";
            const local *l = local_find(t, b.function);
            if (l && l->is_function) b.function = l->function;
            bindings_set(t->memory, &given.settings, b);
            continue;
        }
        if (!value) {
            fault_no_set(t->d, argument->at, param->name, item->name);
            return false;
        }
        operand x = trace_expression(t, value);
        if (!is_plain(t, &x, value->at)) return false;
        out->arguments[which] = x;
        give(t, param, &x, value->at, &given, &good);
    }
    for (int i = 0; i < item->list.count && good; i++) {
        const ast *param = item->list.items[i];
        if (!is_tensor_param(param) || out->arguments[i].kind != OPERAND_VOID) continue;
        fault_not_given(t->d, call->at, param->name, item->name);
        good = false;
    }
    if (!good) return false;
    out->item = trace_spread(t, item, out->arguments, call->at);
    if (!out->item || !lang_instantiate(t->file, out->item, &given, t->d, t->memory, &out->constants, &out->known))
        return false;
    for (int i = 0; i < item->list.count && good; i++) {
        operand *x = &out->arguments[i];
        const ast *param = item->list.items[i];
        dtype type = DT_F32;
        if (!is_tensor_param(param) || x->kind != OPERAND_CONSTANT) continue;
        const binding *generic = bindings_find(&out->constants, param->type->word);
        if (generic)
            type = generic->type;
        else
            dtype_from_text(param->type->word, &type);
        *x = operand_argument(t, x, type, param->name, call->at);
        if (!is_bad(x)) *x = operand_of_node(t, operand_node(t, x, type), 0, call->at);
        good = !is_bad(x);
    }
    return good;
}

operand trace_tensor_call(tracer *t, const ast *item, const ast *call)
{
    bound_call *b = ARENA_NEW(t->memory, bound_call);
    if (!bind_call(t, item, call, b)) return operand_error();
    return trace_function(t, b->item, b->arguments, &b->constants, &b->known, call->at);
}

/* ---- gradients ---- */

/* The nodes of `roots` with each of from[] replaced by its to[]. */
static void put_back(tracer *t, const node *from, const node *to, int count, node *roots, int root_count)
{
    graph *g = t->g;
    int node_count = g->node_count;
    arena *scratch = arena_new();
    node *order = ARENA_ARRAY(scratch, node, node_count), *map = ARENA_ARRAY(scratch, node, node_count);
    int length = graph_order(g, roots, root_count, order);
    for (int i = 0; i < count; i++) map[from[i]] = to[i];
    for (int i = 0; i < length; i++) {
        const graph_node n = *graph_get(g, order[i]);
        if (map[order[i]]) continue;
        node *inputs = ARENA_ARRAY(scratch, node, n.input_count + 1);
        bool same = true;
        for (int k = 0; k < n.input_count; k++) {
            inputs[k] = map[n.inputs[k]];
            same &= inputs[k] == n.inputs[k];
        }
        g->site = n.site;
        g->label = n.label;
        map[order[i]] = same ? order[i] : graph_again(g, order[i], inputs);
    }
    for (int i = 0; i < root_count; i++) roots[i] = map[roots[i]];
    arena_free(scratch);
}

operand trace_gradient(tracer *t, const ast *item, const operand *arguments, const bindings *constants,
                       const bindings *known, const bool *chosen, place at)
{
    operand *copies = ARENA_ARRAY(t->memory, operand, MOST_PARAMS);
    node from[MOST_PARAMS], to[MOST_PARAMS], out[MOST_PARAMS];
    int count = 0;
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        copies[i] = arguments[i];
        if (!chosen[i]) continue;
        operand x = arguments[i];
        const binding *b = bindings_find(known, param->name);
        if (x.kind == OPERAND_VOID && b) x = operand_of_constant(*b);
        if (x.kind == OPERAND_VOID && param->left) x = trace_expression(t, param->left);
        dtype type = x.kind == OPERAND_TENSOR ? operand_type(t, &x) : DT_F32;
        const binding *generic = param->type->is_generic ? bindings_find(constants, param->type->word) : NULL;
        if (x.kind != OPERAND_TENSOR && generic)
            type = generic->type;
        else if (x.kind != OPERAND_TENSOR)
            dtype_from_text(param->type->word, &type);
        if (x.kind == OPERAND_VOID) {
            fault_no_default(t->d, param->at, "scalar", param->name);
            return operand_error();
        }
        to[count] = operand_node(t, &x, type);
        from[count] = graph_same(t->g, GRAPH_AGAIN, to[count], FIRST_COPY + t->copies++);
        copies[i] = operand_of_node(t, from[count], x.units, at);
        if (is_bad(&copies[i])) return copies[i];
        count++;
    }
    operand loss = trace_function(t, item, copies, constants, known, at);
    if (loss.kind == OPERAND_LIST) loss = loss.items[0];
    if (!is_plain(t, &loss, at)) return operand_error();
    if (t->sums && loss.kind == OPERAND_TENSOR && operand_shape(t, &loss)->rank) {
        site_set(t, at, "sum");
        node all = graph_reduce(t->g, FOLD_SUM, loss.tensor, (1u << operand_shape(t, &loss)->rank) - 1);
        loss = operand_of_node(t, all, 0, at);
        if (is_bad(&loss)) return loss;
    }
    if (loss.kind != OPERAND_TENSOR || shape_count(operand_shape(t, &loss)) != 1) {
        text words = {0};
        shape_print(operand_shape(t, &loss), &words);
        diagnose(t->d, E318, at, "reduce it: `mean(...)` or `sum(...)`",
                 "`grad` differentiates one number, and the first result of `%s` is %s%s", item->name,
                 loss.kind == OPERAND_TENSOR ? "of shape " : "a constant",
                 loss.kind == OPERAND_TENSOR ? text_get(&words) : "");
        text_free(&words);
        return operand_error();
    }
    site_set(t, at, "grad");
    if (!graph_gradient(t->g, loss.tensor, from, count, out)) return operand_of_node(t, 0, 0, at);
    put_back(t, from, to, count, out, count);
    operand *items = ARENA_ARRAY(t->memory, operand, count + 1);
    for (int i = 0; i < count; i++) {
        items[i] = operand_of_node(t, out[i], 0, at);
        if (is_bad(&items[i])) return items[i];
    }
    return count == 1 ? items[0] : (operand){.kind = OPERAND_LIST, .items = items, .count = count};
}

operand trace_gradient_call(tracer *t, const ast *call)
{
    const ast *grad = call->left;
    const ast *name = grad->list.count ? grad->list.items[0] : NULL;
    bool known_name = grad->left->kind == AST_NAME && !strcmp(grad->left->name, "grad");
    const ast *item = known_name && name && name->kind == AST_NAME ? ast_find(t->file, name->name) : NULL;
    if (!item || item->kind != AST_TENSOR) {
        if (known_name)
            fault_gradient(t->d, grad->at);
        else
            fault_not_callable(t->d, grad->at, NULL);
        return operand_error();
    }
    bound_call *b = ARENA_NEW(t->memory, bound_call);
    if (!bind_call(t, item, call, b)) return operand_error();
    bool chosen[MOST_PARAMS] = {0};
    for (int i = 0; i < item->list.count && grad->list.count == 1; i++)
        chosen[i] = function_differentiates(item->list.items[i], &b->constants);
    int order[MOST_PARAMS], wanted = 0;
    for (int i = 1; i < grad->list.count; i++) {
        const ast *by = grad->list.items[i];
        int which = 0;
        while (which < item->list.count && (by->kind != AST_NAME || strcmp(item->list.items[which]->name, by->name)))
            which++;
        bool good = which < item->list.count && function_differentiates(item->list.items[which], &b->constants);
        if (!good || chosen[which]) {
            diagnose(t->d, E213, by->at, "name float parameters of the function, each once",
                     "`grad` cannot differentiate `%s` by this", item->name);
            return operand_error();
        }
        chosen[which] = true;
        order[wanted++] = which;
    }
    operand out = trace_gradient(t, b->item, b->arguments, &b->constants, &b->known, chosen, call->at);
    if (out.kind != OPERAND_LIST || !wanted) return out;
    operand *items = ARENA_ARRAY(t->memory, operand, wanted); /* as they were named */
    for (int i = 0; i < wanted; i++) {
        int place = 0;
        for (int k = 0; k < order[i]; k++) place += chosen[k];
        items[i] = out.items[place];
    }
    return (operand){.kind = OPERAND_LIST, .items = items, .count = wanted};
}

tracer tracer_new(qn_tape *tape, const ast_file *file, void *module, function_entry *entry, int units, diagnostics *d,
                  arena *memory)
{
    return (tracer){.tape = tape,
                    .g = tape->graph,
                    .file = file,
                    .d = d,
                    .memory = memory,
                    .module = module,
                    .entry = entry,
                    .units = units};
}

operand *trace_arguments(tracer *t, const node *nodes, int count)
{
    operand *arguments = ARENA_ARRAY(t->memory, operand, MOST_PARAMS);
    for (int i = 0; i < count; i++)
        arguments[i] = nodes[i] ? (operand){.kind = OPERAND_TENSOR, .tensor = nodes[i]} : nothing;
    return arguments;
}

bool function_trace(qn_tape *tape, const function_request *r, diagnostics *d, node *results, int *count)
{
    tracer t = tracer_new(tape, r->file, r->module, r->entry, r->units, d, arena_new());
    t.sums = r->sums;
    int parameters = r->item->list.count;
    operand *arguments = trace_arguments(&t, r->arguments, parameters);
    bool chosen[MOST_PARAMS] = {0};
    for (int i = 0; i < parameters; i++) chosen[i] = function_differentiates(r->item->list.items[i], r->constants);
    operand out = r->gradient ? trace_gradient(&t, r->item, arguments, r->constants, r->known, chosen, r->item->at)
                              : trace_function(&t, r->item, arguments, r->constants, r->known, r->item->at);
    bool good = !d->errors && !is_bad(&out);
    *count = out.kind == OPERAND_LIST ? out.count : 1;
    for (int i = 0; i < *count && good; i++) {
        const operand *x = out.kind == OPERAND_LIST ? &out.items[i] : &out;
        dtype type = x->kind == OPERAND_CONSTANT && x->constant.untyped && x->constant.kind == BIND_FLOAT
                         ? DT_F32
                         : operand_type(&t, x);
        results[i] = operand_node(&t, x, type);
        good = results[i] != 0;
    }
    if (good) tape_enter(tape, NULL);
    arena_free(t.memory);
    return good;
}
