/*
 * Kernels as ops. In: a kernel of the file, its arguments. Out: a KERNEL node and a RESULT for every out and inout
 * array; the shapes of outputs come from the declaration, so that nothing is compiled here. Arguments are functional:
 * an inout gives a new tensor.
 *
 * `gradient (f)`: the kernel or tensor function f gets by name what it asks for: this kernel's inputs `x`, outputs `y`
 * and the gradients `d_y`. Its outputs are named `d_x`; a tensor function returns them in the order of this kernel's
 * float arrays.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_trace.h"

#include <string.h>

enum { MOST_OUTPUTS = 16 };

/* What the graph's node points to, and what its gradient needs. */
typedef struct kernel_op {
    graph_kernel base; /* first: the graph knows this part alone */
    qn_tape *tape;
    const ast_file *file;
    const ast *item;
    void *module;
    function_entry *entry;
    int units;
    bindings settings;                             /* as it was called */
    int inputs[MAX_PARAMS], outputs[MOST_OUTPUTS]; /* parameters, in the order of the node's */
} kernel_op;

static bool reads(const ast *param)
{
    return !strcmp(param->word, "in") || !strcmp(param->word, "inout");
}

static bool writes(const ast *param)
{
    return !strcmp(param->word, "out") || !strcmp(param->word, "inout");
}

static bool is_scalar(const ast *param)
{
    return !param_is_array(param) && !param_is_constant(param);
}

static const ast *gradient_of(const ast_file *file, const ast *kernel)
{
    for (int i = 0; i < kernel->clauses.count; i++)
        if (!strcmp(kernel->clauses.items[i]->word, "gradient")) return ast_find(file, kernel->clauses.items[i]->name);
    return NULL;
}

static uint64_t identity_of(const kernel_op *op, const bindings *constants)
{
    text words = {0};
    const bindings *all[] = {constants, &op->settings};
    text_print(&words, "%p %s", op->module, op->item->name);
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < all[n]->count; i++) {
            const binding *b = &all[n]->items[i];
            text_print(&words, " %s=%d,%d,%lld,%a,%s", b->name, b->kind, b->type, (long long)b->number.i, b->number.f,
                       b->function ? b->function : "");
        }
    uint64_t identity = hash_bytes(text_get(&words), words.length).low;
    text_free(&words);
    return identity;
}

/* Integer parameters with a default become known when what they need is. */
static void add_defaults(tracer *t, const ast *item, bindings *known)
{
    for (int pass = 0; pass < item->list.count; pass++)
        for (int i = 0; i < item->list.count; i++) {
            const ast *param = item->list.items[i];
            binding b;
            const char *unbound = NULL;
            diagnostics quiet = {.memory = t->memory};
            if (!is_scalar(param) || !param->left || bindings_find(known, param->name)) continue;
            if (!lang_evaluate(t->file, param->left, known, t->units, &quiet, &b, &unbound)) continue;
            b.name = param->name;
            bindings_set(t->memory, known, b);
        }
}

static bool output_shape(tracer *t, const ast *item, const ast *param, const bindings *known, place at, shape *s)
{
    s->rank = param->list.count;
    for (int k = 0; k < s->rank; k++) {
        const ast *extent = param->list.items[k];
        binding b;
        const char *unbound = NULL;
        int errors = t->d->errors;
        if (lang_evaluate(t->file, extent, known, t->units, t->d, &b, &unbound) && b.kind == BIND_INT) {
            s->extents[k] = b.number.i;
            continue;
        }
        if (t->d->errors == errors)
            diagnose(t->d, E505, at, arena_print(t->memory, "give it by name: `%s = ...`", unbound ? unbound : "n"),
                     "the extent `%s` of the output `%s` of `%s` is not given", unbound ? unbound : "?", param->name,
                     item->name);
        return false;
    }
    return true;
}

static bool kernel_gradient(graph *g, node call, const node *d_outputs, node *d_inputs);

static void bind_all(tracer *t, bindings *to, const bindings *from)
{
    for (int i = 0; i < from->count; i++) bindings_set(t->memory, to, from->items[i]);
}

/* Copies for the graph's life. */
static bindings bindings_copy(arena *memory, const bindings *from)
{
    bindings out = {0};
    for (int i = 0; i < from->count; i++) {
        binding b = from->items[i];
        b.name = arena_copy_text(memory, b.name, strlen(b.name));
        if (b.kind == BIND_FUNCTION) b.function = arena_copy_text(memory, b.function, strlen(b.function));
        bindings_set(memory, &out, b);
    }
    return out;
}

/* The value as a row-major tensor of its own, where it may be a view or memory of another order. */
static node in_memory(tracer *t, node n)
{
    const graph_node *x = graph_get(t->g, n);
    bool plain = graph_ops[x->code].class != GRAPH_CLASS_MOVE;
    if (x->code == GRAPH_LEAF) plain = strides_are_row_major(x->shape.rank, x->shape.extents, x->attr.strides);
    return plain ? n : graph_same(t->g, GRAPH_KEEP, n, 0);
}

operand trace_kernel(tracer *t, const ast *item, const operand *arguments, const bindings *settings, place at)
{
    given_array arrays[MAX_PARAMS];
    lang_given given = {.settings = *settings, .arrays = arrays, .units = t->units};
    node inputs[MAX_PARAMS];
    int input_count = 0;
    kernel_op *op = ARENA_NEW(t->tape->memory, kernel_op);
    *op = (kernel_op){
        .tape = t->tape, .file = t->file, .item = item, .module = t->module, .entry = t->entry, .units = t->units};
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        if (!reads(param)) continue;
        const shape *s = operand_shape(t, &arguments[i]);
        given_array *a = &arrays[given.array_count++];
        *a = (given_array){.name = param->name, .elem = operand_type(t, &arguments[i]), .rank = s->rank};
        a->has_extents = true;
        memcpy(a->extents, s->extents, sizeof(a->extents[0]) * (size_t)s->rank);
        op->inputs[input_count] = i;
        bool whole = item->kind == AST_RAW || writes(param); /* taken as bytes: a view is put into memory first */
        inputs[input_count++] = whole ? in_memory(t, arguments[i].tensor) : arguments[i].tensor;
    }
    bindings constants = {0}, known = {0}, all = {0};
    if (!lang_instantiate(t->file, item, &given, t->d, t->memory, &constants, &known)) return operand_error();
    bind_all(t, &all, settings);
    bind_all(t, &all, &known);
    bind_all(t, &all, &constants);
    add_defaults(t, item, &all);
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        if (!is_scalar(param)) continue;
        operand value = arguments[i];
        const binding *b = bindings_find(&all, param->name);
        const binding *generic = bindings_find(&constants, param->type->word);
        dtype type;
        if (value.kind == OPERAND_VOID && b) value = operand_of_constant(*b);
        if (value.kind == OPERAND_VOID) {
            diagnose(t->d, E505, at, "pass it by position or by name", "the scalar `%s` of `%s` is not given",
                     param->name, item->name);
            return operand_error();
        }
        if (generic)
            type = generic->type;
        else if (!dtype_from_text(param->type->word, &type))
            type = DT_F32;
        value = operand_convert(t, &value, type, at);
        if (is_bad(&value)) return value;
        op->inputs[input_count] = i;
        inputs[input_count++] = operand_node(t, &value, type);
    }
    graph_kernel *k = &op->base;
    k->name = item->name;
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        if (!writes(param)) continue;
        if (k->output_count == MOST_OUTPUTS) {
            diagnose(t->d, E105, at, "split it", "the kernel `%s` has more than %d outputs", item->name, MOST_OUTPUTS);
            return operand_error();
        }
        const binding *generic = bindings_find(&constants, param->type->word);
        op->outputs[k->output_count] = i;
        if (generic)
            k->output_elem[k->output_count] = generic->type;
        else if (!dtype_from_text(param->type->word, &k->output_elem[k->output_count]))
            return operand_error();
        if (!output_shape(t, item, param, &all, at, &k->output_shape[k->output_count])) return operand_error();
        k->output_count++;
    }
    op->settings = bindings_copy(t->tape->memory, settings);
    k->identity = identity_of(op, &constants);
    k->gradient = gradient_of(t->file, item) ? kernel_gradient : NULL;
    k->entry = t->entry ? t->entry(t->module, item, &constants, t->d) : NULL;
    if (t->entry && !k->entry) return operand_error();
    site_set(t, at, item->name);
    node n = graph_kernel_call(t->g, k, inputs, input_count);
    if (!n) return operand_of_node(t, 0, 0, at);
    operand *items = ARENA_ARRAY(t->memory, operand, k->output_count + 1);
    for (int i = 0; i < k->output_count; i++) items[i] = operand_of_node(t, graph_result(t->g, n, i), 0, at);
    return k->output_count == 1 ? items[0] : (operand){.kind = OPERAND_LIST, .items = items, .count = k->output_count};
}

operand trace_kernel_call(tracer *t, const ast *item, const ast *call)
{
    operand *arguments = ARENA_ARRAY(t->memory, operand, MAX_PARAMS);
    int order[MAX_PARAMS], count = 0, at = 0;
    bindings settings = {0};
    for (int i = 0; i < item->list.count; i++) {
        arguments[i].kind = OPERAND_VOID;
        if (reads(item->list.items[i]) || is_scalar(item->list.items[i])) order[count++] = i;
    }
    for (int i = 0; i < call->list.count; i++) {
        const ast *argument = call->list.items[i];
        bool named = argument->kind == AST_NAMED;
        const ast *value = named ? argument->left : argument;
        int which = -1;
        for (int k = 0; named && k < item->list.count; k++)
            if (!strcmp(item->list.items[k]->name, argument->name)) which = k;
        if (!named && at < count) which = order[at++];
        const ast *param = which >= 0 ? item->list.items[which] : NULL;
        bool extent = named && !param && name_is_extent(item, argument->name);
        if (!value || (!param && !extent) || (param && !reads(param) && writes(param))) {
            diagnose(t->d, E213, argument->at,
                     "a call gives the `in` and `inout` arrays and the scalars in order, constants by name",
                     named ? "`%s` has no argument `%s`" : "`%s` takes %s", item->name,
                     named ? argument->name : "fewer arguments");
            return operand_error();
        }
        if (param && param->is_function) {
            binding b = {
                .name = param->name, .kind = BIND_FUNCTION, .function = value->kind == AST_NAME ? value->name : ""};
            bindings_set(t->memory, &settings, b);
            continue;
        }
        operand x = trace_expression(t, value);
        if (!is_plain(t, &x, value->at)) return operand_error();
        if (param && reads(param)) {
            if (x.kind != OPERAND_TENSOR) {
                diagnose(t->d, E213, value->at, "pass a tensor", "`%s` of `%s` is an array", param->name, item->name);
                return operand_error();
            }
            arguments[which] = x;
            continue;
        }
        if (param && is_scalar(param)) arguments[which] = x;
        if (x.kind == OPERAND_TENSOR && param && is_scalar(param) && !operand_shape(t, &x)->rank) continue;
        if (x.kind != OPERAND_CONSTANT) {
            diagnose(t->d, E217, value->at, "pass a number or a `const` name",
                     "`%s` of `%s` is a number that the host knows",
                     argument->kind == AST_NAMED ? argument->name : param->name, item->name);
            return operand_error();
        }
        binding b = x.constant;
        b.name = param ? param->name : argument->name;
        bindings_set(t->memory, &settings, b);
    }
    for (int i = 0; i < item->list.count; i++)
        if (reads(item->list.items[i]) && arguments[i].kind != OPERAND_TENSOR) {
            fault_not_given(t->d, call->at, item->list.items[i]->name, item->name);
            return operand_error();
        }
    return trace_kernel(t, item, arguments, &settings, call->at);
}

/* ---- gradients ---- */

/* The value that a parameter of the gradient asks for by its name: an input, an output, or d_ and an output. */
static operand value_named(tracer *t, const kernel_op *op, node call, const node *d_outputs, const char *name)
{
    graph *g = t->g;
    const graph_node n = *graph_get(g, call);
    for (int i = 0; i < n.input_count; i++)
        if (!strcmp(op->item->list.items[op->inputs[i]]->name, name))
            return (operand){.kind = OPERAND_TENSOR, .tensor = n.inputs[i]};
    for (int i = 0; i < op->base.output_count; i++) {
        const char *output = op->item->list.items[op->outputs[i]]->name;
        if (!strcmp(output, name)) return (operand){.kind = OPERAND_TENSOR, .tensor = graph_result(g, call, i)};
        if (strncmp(name, "d_", 2) || strcmp(name + 2, output)) continue;
        node d = d_outputs[i];
        if (!d) d = graph_full_double(g, op->base.output_elem[i], &op->base.output_shape[i], 0);
        return (operand){.kind = OPERAND_TENSOR, .tensor = d};
    }
    return (operand){.kind = OPERAND_VOID};
}

static bool fail_gradient(graph *g, const kernel_op *op, const diagnostics *d, const char *words)
{
    const diagnostic *first = d && d->count ? &d->items[0] : NULL;
    char line[32] = "";
    if (first && first->at.line < FOREIGN_LINES) snprintf(line, sizeof(line), ", line %d", first->at.line);
    graph_fail(g, "grad", "the gradient of the kernel `%s`%s: %s%s%s", op->item->name, line,
               first ? first->message : words, first && first->advice ? "; " : "",
               first && first->advice ? first->advice : "");
    return false;
}

static const ast *returned_name(const ast *item, int number)
{
    const ast_list *body = &item->body->list;
    const ast *end = body->count ? body->items[body->count - 1] : NULL;
    if (!end || end->kind != AST_RETURN || number >= end->list.count) return NULL;
    return end->list.items[number]->kind == AST_NAME ? end->list.items[number] : NULL;
}

/* Puts result `number` of the gradient where it belongs: by the name d_x, else the next float array. */
static bool place_result(const kernel_op *op, node n, const char *name, int number, const graph *g, node call,
                         node *d_inputs)
{
    const graph_node *c = graph_get(g, call);
    int seen = 0, at = -1;
    for (int i = 0; i < c->input_count; i++) {
        const ast *param = op->item->list.items[op->inputs[i]];
        bool floats = reads(param) && dtype_is_float(graph_get(g, c->inputs[i])->elem);
        if (name && !strncmp(name, "d_", 2) && !strcmp(param->name, name + 2)) at = i;
        if (!name && floats && seen++ == number) at = i;
    }
    if (at < 0) return false;
    d_inputs[at] = n;
    return true;
}

static bool kernel_gradient(graph *g, node call, const node *d_outputs, node *d_inputs)
{
    const kernel_op *op = (const kernel_op *)graph_get(g, call)->attr.kernel;
    const ast *item = gradient_of(op->file, op->item);
    diagnostics d = {.memory = arena_new()};
    tracer t = tracer_new(op->tape, op->file, op->module, op->entry, op->units, &d, d.memory);
    t.g = g; /* the one that is differentiated */
    operand *arguments = ARENA_ARRAY(t.memory, operand, item->list.count + 1);
    given_array *arrays = ARENA_ARRAY(t.memory, given_array, item->list.count + 1);
    bindings settings = {0};
    lang_given given = {.arrays = arrays, .units = op->units};
    int input_count = graph_get(g, call)->input_count;
    memset(d_inputs, 0, sizeof(node) * (size_t)input_count);
    bool tensor = item->kind == AST_TENSOR, good = true;
    for (int i = 0; i < item->list.count && good; i++) {
        const ast *param = item->list.items[i];
        const binding *b = bindings_find(&op->settings, param->name);
        arguments[i] = value_named(&t, op, call, d_outputs, param->name);
        if (b) bindings_set(t.memory, &settings, *b);
        bool array = tensor ? param->is_tensor : reads(param);
        if (!array) continue;
        if (arguments[i].kind != OPERAND_TENSOR) {
            diagnose(&d, E505, param->at, NULL,
                     "`%s` asks for `%s`, which is neither an input, an output nor `d_` and an output", item->name,
                     param->name);
            good = false;
            break;
        }
        const shape *s = operand_shape(&t, &arguments[i]);
        given_array *a = &arrays[given.array_count++];
        *a = (given_array){
            .name = param->name, .elem = operand_type(&t, &arguments[i]), .rank = s->rank, .has_extents = true};
        memcpy(a->extents, s->extents, sizeof(a->extents[0]) * (size_t)s->rank);
    }
    operand out = operand_error();
    if (good && tensor) {
        bindings constants = {0}, known = {0};
        given.settings = settings;
        item = trace_spread(&t, item, arguments, item->at);
        good = item && lang_instantiate(op->file, item, &given, &d, t.memory, &constants, &known);
        if (good) out = trace_function(&t, item, arguments, &constants, &known, item->at);
    } else if (good) {
        out = trace_kernel(&t, item, arguments, &settings, item->at);
    }
    good = good && !d.errors && !is_bad(&out);
    if (!good) fail_gradient(g, op, &d, "it could not be built");
    int count = out.kind == OPERAND_LIST ? out.count : 1, written = 0;
    for (int i = 0; i < count && good; i++) {
        const operand *x = out.kind == OPERAND_LIST ? &out.items[i] : &out;
        const char *name = NULL;
        if (tensor) {
            const ast *returned = returned_name(item, i);
            name = returned && !strncmp(returned->name, "d_", 2) ? returned->name : NULL;
        } else {
            while (!writes(item->list.items[written])) written++;
            name = item->list.items[written++]->name;
        }
        good = x->kind == OPERAND_TENSOR && place_result(op, x->tensor, name, i, g, call, d_inputs);
        if (!good)
            fail_gradient(g, op, NULL,
                          "its results are named `d_` and an input, or stand in the order of the float arrays");
    }
    arena_free(d.memory);
    return good;
}

bool function_kernel(qn_tape *tape, const function_kernel_request *r, diagnostics *d, node *results, int *count)
{
    tracer t = tracer_new(tape, r->file, r->module, r->entry, r->units, d, arena_new());
    operand *arguments = trace_arguments(&t, r->inputs, r->item->list.count);
    operand out = trace_kernel(&t, r->item, arguments, r->settings, r->item->at);
    bool good = !d->errors && !is_bad(&out);
    *count = !good ? 0 : out.kind == OPERAND_LIST ? out.count : 1;
    for (int i = 0; i < *count; i++) results[i] = out.kind == OPERAND_LIST ? out.items[i].tensor : out.tensor;
    arena_free(t.memory);
    return good;
}
