/*
 * Tensor functions as calls. In: a tensor function of a module and a call's settings. Out: an instance whose kernel has
 * the function's parameters, its results `result0`, `result1`, ... (`d_x` of a gradient) and its extents, so that
 * binding, checking and allocating arrays is the same as for kernels; and the function in the graph of a tape.
 *
 * Shapes of results follow from the extents, so an instance has them in its key; the function is traced once to find
 * them, on a tape that computes nothing.
 * SPDX-License-Identifier: MIT
 */
#include "run/module/function.h"
#include "run/evaluate/realize.h"

#include <string.h>

bool call_is_function(const qn_call *call)
{
    return call->kernel->item && call->kernel->item->kind == AST_TENSOR;
}

const char *function_name(const char *spelled, qn_mode *mode, qn_products *products)
{
    static const struct {
        const char *word;
        qn_mode mode;
        qn_products products; /* QN_PRODUCTS_ANY: the word is a mode */
    } words[] = {{"fused ", QN_FUSED, QN_PRODUCTS_ANY},
                 {"eager ", QN_EAGER, QN_PRODUCTS_ANY},
                 {"strict ", QN_STRICT, QN_PRODUCTS_ANY},
                 {"tf32 ", 0, QN_PRODUCTS_TF32},
                 {"fma ", 0, QN_PRODUCTS_FMA}};
    *mode = QN_FUSED;
    *products = QN_PRODUCTS_ANY;
    for (int i = 0; i < COUNT(words); i++) {
        size_t length = strlen(words[i].word);
        if (strncmp(spelled, words[i].word, length) != 0) continue;
        if (words[i].products)
            *products = words[i].products;
        else
            *mode = words[i].mode;
        spelled += length;
        i = -1; /* another may follow */
    }
    return spelled;
}

kernel_entry *function_gradient(const kernel_entry *e)
{
    if (!e->item || e->item->kind != AST_TENSOR) return NULL;
    text name = {0};
    text_print(&name, "grad(%s)", e->item->name);
    kernel_entry *gradient = map_get(e->module->by_name, text_get(&name));
    text_free(&name);
    return gradient;
}

kernel_entry *function_renamed(kernel_entry *e, const char *const *names, int count)
{
    qn_module *m = e->module;
    kernel_entry *copy = ARENA_NEW(m->memory, kernel_entry);
    *copy = *e;
    copy->instances = NULL;
    copy->spread_of = NULL;
    copy->warnings = (text){0};
    copy->params = ARENA_ARRAY(m->memory, parameter, e->param_count + 1);
    memcpy(copy->params, e->params, sizeof(parameter) * (size_t)e->param_count);
    copy->names = NULL;
    copy->name_count = copy->name_capacity = 0;
    for (int i = 0, at = 0; i < e->param_count; i++) {
        if (!e->params[i].result || at == count) continue;
        copy->params[i].name = arena_copy_text(m->memory, names[at], strlen(names[at]));
        at++;
    }
    for (int i = 0; i < e->name_count; i++) {
        int number;
        bool param = entry_param(e, e->names[i], &number) != NULL;
        entry_add_name(copy, param ? copy->params[number].name : e->names[i]);
    }
    ARENA_PUSH(m->memory, m->renamed, m->renamed_count, m->renamed_capacity, copy);
    return copy;
}

int function_spread_axes(const kernel_entry *e, int number, int rank)
{
    if (e->spread < 0 || number >= e->item->list.count || !e->item->list.items[number]->has_spread) return -1;
    int axes = rank - spread_fixed(e->item->list.items[number]);
    return axes < 0 ? -2 : axes;
}

static kernel_entry *spread_new(kernel_entry *from, int axes)
{
    qn_module *m = from->module;
    kernel_entry *copy = ARENA_NEW(m->memory, kernel_entry);
    *copy = *from;
    copy->instances = NULL;
    copy->warnings = (text){0};
    copy->spread = axes;
    copy->spread_of = from;
    copy->item = lang_spread(m->memory, from->item, axes, NULL);
    copy->params = ARENA_ARRAY(m->memory, parameter, from->param_count + 1);
    memcpy(copy->params, from->params, sizeof(parameter) * (size_t)from->param_count);
    for (int i = 0; i < copy->item->list.count; i++)
        if (copy->params[i].rank >= 0) copy->params[i].rank = copy->item->list.items[i]->list.count;
    copy->names = NULL;
    copy->name_count = copy->name_capacity = 0;
    for (int i = 0; i < from->name_count; i++)
        if (spread_axis_number(from->names[i]) < 0) entry_add_name(copy, from->names[i]);
    for (int k = 0; k < axes; k++) entry_add_name(copy, arena_print(m->memory, "axis_%d", k));
    ARENA_PUSH(m->memory, m->renamed, m->renamed_count, m->renamed_capacity, copy);
    return copy;
}

kernel_entry *function_spread(kernel_entry *e, int axes)
{
    if (e->spread < 0 || e->spread == axes) return e;
    kernel_entry *from = e->spread_of ? e->spread_of : e, *found = from->spread == axes ? from : NULL;
    qn_module *m = e->module;
    lock_take(&m->context->lock);
    for (int i = 0; i < m->renamed_count && !found; i++)
        if (m->renamed[i]->spread_of == from && m->renamed[i]->spread == axes) found = m->renamed[i];
    if (!found) found = spread_new(from, axes);
    lock_give(&m->context->lock);
    return found;
}

static void add_result(kernel_entry *e, const char *name)
{
    e->params[e->param_count++] =
        (parameter){.name = name, .type = "", .kind = PARAM_OUT, .result = true, .at = e->item->at};
    entry_add_name(e, name);
}

void function_results(kernel_entry *e, bool gradient)
{
    arena *memory = e->module->memory;
    const ast *item = e->item;
    const bindings none = {0};
    dtype ignored;
    if (!gradient) {
        int count = function_result_count(e->module->file, item);
        for (int i = 0; i < count; i++) add_result(e, arena_print(memory, "result%d", i));
        return;
    }
    e->gradient = true;
    e->name = arena_print(memory, "grad(%s)", item->name);
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        bool constant = !strcmp(param->word, "const"), open = param->type->is_generic;
        bool floats = open || (dtype_from_text(param->type->word, &ignored) && function_differentiates(param, &none));
        if (!constant && floats) add_result(e, arena_print(memory, "d_%s", param->name));
    }
}

/* ---- instances ---- */

void function_key(const qn_call *call, arena *memory, const bindings *extents, bindings *constants)
{
    for (int i = 0; i < extents->count; i++) {
        binding b = extents->items[i];
        b.name = arena_print(memory, "extent %s", b.name);
        bindings_set(memory, constants, b);
    }
    for (int i = 0; i < call->settings.count; i++) {
        binding b = call->settings.items[i];
        const parameter *p = entry_param(call->kernel, b.name, NULL);
        if (!p || p->constant || p->rank >= 0) continue;
        b.name = arena_print(memory, b.kind == BIND_FLOAT ? "number %s" : "extent %s", b.name);
        bindings_set(memory, constants, b);
    }
}

static ast *number_node(arena *memory, int64_t n, place at)
{
    ast *x = ARENA_NEW(memory, ast);
    *x = (ast){.kind = AST_NUMBER, .at = at, .from = at, .word = arena_print(memory, "%lld", (long long)n)};
    x->number = (number){.i = n, .f = (double)n};
    return x;
}

static void list_add(arena *memory, ast_list *list, ast *x)
{
    ARENA_PUSH(memory, list->items, list->count, list->capacity, x);
}

/* A kernel with these parameters that does nothing: binding needs no more. */
static ast *signature_item(const kernel_entry *e, const ast *item, const graph *g, const node *results, int count,
                           arena *memory)
{
    ast *kernel = ARENA_NEW(memory, ast), *phase = ARENA_NEW(memory, ast), *body = ARENA_NEW(memory, ast);
    /* A gradient is called `grad(f)`, which is no name of a kernel. */
    *kernel = (ast){.kind = AST_KERNEL, .at = item->at, .from = item->from, .name = item->name, .is_signature = true};
    for (int i = 0; i < item->list.count; i++) list_add(memory, &kernel->list, item->list.items[i]);
    for (int r = 0; r < count; r++) {
        const graph_node *n = graph_get(g, results[r]);
        ast *param = ARENA_NEW(memory, ast), *type = ARENA_NEW(memory, ast);
        *type = (ast){.kind = AST_TYPE, .at = item->at, .word = dtypes[n->elem].text};
        *param = (ast){.kind = AST_PARAM, .at = item->at, .from = item->at, .word = "out", .type = type};
        param->name = e->params[item->list.count + r].name;
        for (int k = 0; k < n->shape.rank; k++)
            list_add(memory, &param->list, number_node(memory, n->shape.extents[k], item->at));
        list_add(memory, &kernel->list, param);
    }
    *body = (ast){.kind = AST_BLOCK, .at = item->at, .from = item->at};
    *phase = (ast){.kind = AST_PHASE, .at = item->at, .from = item->at, .body = body};
    list_add(memory, &phase->list, number_node(memory, 1, item->at));
    list_add(memory, &kernel->phases, phase);
    return kernel;
}

/* The leaf of a tensor parameter, of the shape that its brackets say. */
static node parameter_leaf(const kernel_entry *e, const instance *i, const bindings *all, const ast *param, int number,
                           int units, graph *g, diagnostics *d)
{
    shape s = {.rank = param->list.count};
    const binding *generic = bindings_find(&i->constants, param->type->word);
    dtype type;
    if (generic)
        type = generic->type;
    else if (!dtype_from_text(param->type->word, &type))
        return 0;
    for (int k = 0; k < s.rank; k++) {
        binding b = {0};
        const char *unbound = NULL;
        int errors = d->errors;
        bool good = lang_evaluate(e->module->file, param->list.items[k], all, units, d, &b, &unbound);
        if (!good && d->errors == errors)
            diagnose(d, E505, param->list.items[k]->at, "set it by name, such as n = 1000", "`%s` is not given",
                     unbound ? unbound : "?");
        if (good && (b.kind != BIND_INT || b.number.i < 0 || b.number.i > (int64_t)1 << 40)) {
            diagnose(d, E502, param->list.items[k]->at, "check the sizes it is computed from",
                     "axis %d of `%s` cannot have this extent", k, param->name);
            good = false;
        }
        if (!good) return 0;
        s.extents[k] = b.number.i;
    }
    node leaf = graph_leaf(g, type, &s, NULL, number, NULL);
    if (!leaf && !d->errors)
        diagnose(d, E502, param->at, "check the sizes it is computed from", "`%s` cannot have this shape: %s",
                 param->name, g->status ? g->error.message : "it has too many elements");
    return leaf;
}

void *function_kernel_entry(void *module, const ast *item, const bindings *constants, diagnostics *d)
{
    qn_module *m = module;
    qn_error error;
    instance *i = NULL;
    kernel_entry *entry = module_find(m, item->name, &error);
    if (entry && entry_instance(entry, constants, &i, &error) == QN_OK) return i;
    diagnose(d, E212, item->at, NULL, "the kernel `%s` does not compile here: %s", item->name, error.message);
    return NULL;
}

/* With the context's lock held a kernel's instance cannot be asked for, and shapes do not need it. */
static bool trace(const kernel_entry *e, const instance *i, const bindings *numbers, qn_tape *tape,
                  const node *arguments, int units, function_entry *kernels, diagnostics *d, node *results, int *count)
{
    arena *memory = arena_new();
    bindings known = {0};
    for (int k = 0; k < i->known.count; k++) bindings_set(memory, &known, i->known.items[k]);
    for (int k = 0; numbers && k < numbers->count; k++) bindings_set(memory, &known, numbers->items[k]);
    function_request request = {.file = e->module->file,
                                .item = e->item,
                                .constants = &i->constants,
                                .known = &known,
                                .arguments = arguments,
                                .module = e->module,
                                .entry = kernels,
                                .units = units,
                                .gradient = e->gradient,
                                .sums = e->gradient};
    bool good = function_trace(tape, &request, d, results, count);
    if (!good && !d->errors)
        diagnose(d, E315, e->item->at, NULL, "%s",
                 tape->graph->status ? tape->graph->error.message : "it has no result");
    arena_free(memory);
    return good;
}

bool function_in_tape(const kernel_entry *entry, const instance *i, const bindings *settings, qn_tape *tape,
                      const node *arguments, int units, diagnostics *d, node *results, int *count)
{
    bindings numbers = {0};
    arena *memory = arena_new();
    for (int k = 0; k < settings->count; k++) {
        const parameter *p = entry_param(entry, settings->items[k].name, NULL);
        if (p && !p->constant && p->rank < 0) bindings_set(memory, &numbers, settings->items[k]);
    }
    bool good = trace(entry, i, &numbers, tape, arguments, units, function_kernel_entry, d, results, count);
    arena_free(memory);
    return good;
}

bool function_signature(const kernel_entry *entry, instance *i, const bindings *constants, diagnostics *d)
{
    const ast *item = entry->item;
    bindings numbers = {0}, all = {0};
    for (int k = 0; k < constants->count; k++) {
        binding b = constants->items[k];
        const char *blank = strchr(b.name, ' ');
        if (!blank || !strncmp(b.name, "knob", 4)) continue;
        bool number = !strncmp(b.name, "number", 6);
        b.name = arena_copy_text(i->memory, blank + 1, strlen(blank + 1));
        bindings_set(i->memory, number ? &numbers : &i->known, b);
    }
    for (int k = 0; k < i->known.count; k++) bindings_set(i->memory, &all, i->known.items[k]);
    for (int k = 0; k < i->constants.count; k++) bindings_set(i->memory, &all, i->constants.items[k]);
    qn_tape *tape = tape_new(entry->module->context, "ref", &tape_of_devices); /* random numbers have a state there */
    node arguments[FUNCTION_PARAMS] = {0}, results[FUNCTION_RESULTS];
    int count = 0;
    bool good = true;
    for (int p = 0; p < item->list.count && good; p++) {
        const ast *param = item->list.items[p];
        if (!param->is_tensor) continue;
        arguments[p] = parameter_leaf(entry, i, &all, param, p, 1, tape->graph, d);
        good = arguments[p] != 0;
    }
    good = good && trace(entry, i, &numbers, tape, arguments, 1, NULL, d, results, &count);
    i->any = ARENA_ARRAY(i->memory, bool, MAXIMUM(item->list.count, 1));
    for (int p = 0; p < item->list.count && good; p++)
        i->any[p] = arguments[p] && graph_integers_may_be_any(tape->graph, arguments[p]);
    int declared = entry->param_count - item->list.count;
    if (good && count != declared) {
        diagnose(d, E213, item->at, "end every path with as many results",
                 "`%s` gives %d results here and %d elsewhere", entry->name, count, declared);
        good = false;
    }
    i->narrowest = DT_F64;
    for (int n = 1; n < tape->graph->node_count; n++) {
        dtype elem = graph_get(tape->graph, (node)n)->elem;
        if (graph_get(tape->graph, (node)n)->code == GRAPH_KERNEL || !dtype_is_float(elem)) continue;
        if (dtypes[elem].digits < dtypes[i->narrowest].digits) i->narrowest = elem;
    }
    if (good) {
        const ast *kernel = signature_item(entry, item, tape->graph, results, count, i->memory);
        good = lang_lower(entry->module->file, kernel, &i->constants, i->memory, d, &i->kernel);
    }
    qn_tape_free(tape);
    return good;
}
