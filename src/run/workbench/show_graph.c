/*
 * Showing a tensor function. In: the function, settings (sizes that are not given are those of its bench, else 64). Out:
 * its graph, what fusion made of it and why, where intermediates lie, a picture; or any stage of each kernel that it
 * becomes. Nothing is run and no device is needed.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/show_graph.h"

#include "ir/graph_simplify.h"
#include "run/workbench/check.h"
#include "run/module/function.h"
#include "run/evaluate/realize.h"

#include <string.h>

typedef struct shown {
    qn_call *call;
    int slot, units, arch; /* arch: of a GPU */
    bool gpu;
    const char *device; /* whose sizes of the bench are taken */
    qn_tape *tape;
    arena *memory;
    node results[FUNCTION_RESULTS];
    int count;
    const char *names[FUNCTION_PARAMS + FUNCTION_RESULTS]; /* of leaves */
    fuse_options options;
    fuse_plan *plan;
} shown;

bool show_is_graph(const char *stage)
{
    return !strcmp(stage, "graph") || !strcmp(stage, "fusion") || !strcmp(stage, "memory");
}

/* Sizes that nobody gave. */
static qn_status give_sizes(shown *s, text *out, qn_error *error)
{
    const kernel_entry *e = s->call->kernel;
    const ast_file *file = e->module->file;
    for (int i = 0; i < e->name_count; i++) {
        const char *name = e->names[i];
        int number = 0;
        const parameter *p = entry_param(e, name, &number);
        bool generic = false;
        for (int k = 0; k < e->param_count && !p; k++)
            generic |= e->params[k].generic && !strcmp(e->params[k].type, name);
        bool open = !p || (p->rank < 0 && number < e->item->list.count && !e->item->list.items[number]->left);
        if (!open || generic || bindings_find(&s->call->settings, name)) continue;
        const char *words = check_bench_words_on(file, e->item->name, name, s->device, s->units, s->memory);
        const char *whose = words ? "of its bench" : "assumed";
        if (!words) words = p && p->function ? "relu" : p && p->constant ? "2" : p ? "0.5" : "64";
        if (p && !p->generic && !p->function && !dtype_is_float(p->elem) && !strcmp(words, "0.5")) words = "2";
        bool extent = false; /* a constant that is an extent is as large as one */
        for (int k = 0; p && p->constant && k < e->item->list.count; k++)
            for (int a = 0; a < e->item->list.items[k]->list.count; a++)
                extent |= e->item->list.items[k]->list.items[a]->kind == AST_NAME &&
                          !strcmp(e->item->list.items[k]->list.items[a]->name, name);
        if (extent && !strcmp(words, "2")) words = "4";
        QN_TRY(qn_call_set_text(s->call, name, words, error));
        if (out) text_print(out, "// %s = %s, %s\n", name, words, whose);
    }
    for (int i = 0; i < e->param_count; i++) {
        const parameter *p = &e->params[i];
        if (!p->generic || bindings_find(&s->call->settings, p->type)) continue;
        const char *words = check_bench_words_on(file, e->item->name, p->type, s->device, s->units, s->memory);
        QN_TRY(qn_call_set_text(s->call, p->type, words ? words : "f32", error));
    }
    return QN_OK;
}

static qn_status trace(shown *s, qn_error *error)
{
    qn_call *call = s->call;
    QN_TRY(call_bind(call, s->slot, true, error));
    const tile_kernel *k = call->instance->kernel;
    s->tape = tape_new(call->context, "ref", &tape_of_devices);
    qn_tape_set_products(s->tape, call->products);
    node arguments[FUNCTION_PARAMS] = {0};
    for (int i = 0; i < k->param_count; i++) {
        if (k->params[i].kind != PARAM_IN) continue;
        shape extents = {.rank = k->params[i].rank};
        for (int a = 0; a < extents.rank; a++) extents.extents[a] = call->views[i].extents[a];
        void *identity = (void *)(intptr_t)(call->declared[i] + 1);
        s->names[call->declared[i]] = k->params[i].name;
        arguments[call->declared[i]] = graph_leaf(s->tape->graph, k->params[i].elem, &extents, NULL, 0, identity);
    }
    diagnostics d = {.memory = s->memory};
    if (function_in_tape(call->kernel, call->instance, &call->settings, s->tape, arguments, s->units, &d, s->results,
                         &s->count))
        return QN_OK;
    return diagnostics_error(&d, call->kernel->module->file, QN_BAD_SOURCE, error);
}

static qn_status fuse(shown *s, qn_error *error)
{
    graph *g = s->tape->graph;
    static const fuse_mode modes[] = {[QN_FUSED] = FUSE_FUSED, [QN_EAGER] = FUSE_EAGER, [QN_STRICT] = FUSE_STRICT};
    const graph_rules rules = {.relaxed = s->call->mode == QN_FUSED};
    node wanted[FUNCTION_RESULTS];
    int count = 0;
    graph_simplify(g, s->results, s->count, &rules);
    for (int i = 0; i < s->count; i++) {
        if (graph_ops[graph_get(g, s->results[i])->code].class == GRAPH_CLASS_LEAF)
            s->results[i] = graph_same(g, GRAPH_KEEP, s->results[i], 0);
        bool known = false;
        for (int k = 0; k < count; k++) known |= wanted[k] == s->results[i];
        if (!known) wanted[count++] = s->results[i];
    }
    fuse_leaf *leaves = ARENA_ARRAY(s->memory, fuse_leaf, g->node_count + 1);
    for (int n = 1; n < g->node_count; n++) {
        const graph_node *x = graph_get(g, (node)n);
        leaves[n].given = x->code == GRAPH_LEAF;
        leaves[n].offset = x->attr.offset;
        memcpy(leaves[n].strides, x->attr.strides, sizeof(leaves[n].strides));
    }
    s->options = (fuse_options){.mode = modes[s->call->mode],
                                .gpu = s->gpu,
                                .cuda_text = s->gpu,
                                .c_text = !s->gpu,
                                .units = s->units,
                                .arch = s->arch,
                                .tile = s->call->instance->kernel->knobs[KNOB_TILE],
                                .library = context_library_wish(s->call->context,
                                                                s->call->instance->kernel->knobs[KNOB_LIBRARY])};
    return fuse_plan_make(g, leaves, wanted, count, NULL, 0, &s->options, s->memory, &s->plan, error);
}

/* ---- stages of its kernels ---- */

/* A call of a kernel that fusion wrote, on memory that is not there. */
static qn_call *call_of(shown *s, const fuse_kernel *k)
{
    static char nowhere[64] __attribute__((aligned(64)));
    qn_call *call = call_new(store_kernel(s->call->context, k->kernel), s->call->context);
    int argument = 0, scalar = 0;
    for (int i = 0; i < call->kernel->param_count; i++) {
        const parameter *p = &call->kernel->params[i];
        if (p->kind == PARAM_SCRATCH) continue;
        if (p->rank < 0) {
            bool is_float = dtype_is_float(p->elem);
            binding b = {.name = p->name, .kind = is_float ? BIND_FLOAT : BIND_INT, .type = p->elem};
            if (scalar < k->scalar_count) b.number = k->scalars[scalar++];
            bindings_set(call->memory, &call->settings, b);
            continue;
        }
        const fuse_argument *from = &k->arguments[argument++];
        array_view *v = &call->arguments[i].view;
        *v = (array_view){.data = nowhere, .elem = p->elem, .rank = from->rank};
        memcpy(v->extents, from->extents, sizeof(v->extents));
        memcpy(v->strides, from->strides, sizeof(v->strides));
        call->arguments[i].given = true;
    }
    return call;
}

/* How tiles lie over threads: raw kernels have none. */
static bool is_layout(const char *stage)
{
    return !strcmp(stage, "layout") || !strcmp(stage, "schedule") || !strcmp(stage, "loops") ||
           !strcmp(stage, "choices");
}

static qn_status show_kernels(shown *s, const char *stage, const qn_show_options *options, const show_taker *taker,
                              text *out, qn_error *error)
{
    for (int i = 0; i < s->plan->kernel_count; i++) {
        const fuse_kernel *k = &s->plan->kernels[i];
        if (s->plan->kernel_count > 1) text_print(out, "%s// kernel %d: %s\n", i ? "\n" : "", i, k->name);
        if (!k->kernel) {
            text_print(out, "// a kernel of the file: `quern show FILE %s` shows it\n", k->name);
            continue;
        }
        show_request r = {
            .stage = stage, .annotate = options->annotate, .slot = s->slot, .fused = true, .taker = taker};
        if (show_is_cuda(stage)) QN_TRY(show_cuda_target(s->call->context, options->device, options->arch, &r, error));
        r.call = call_of(s, k);
        bool chosen = !strcmp(stage, "choices"), written = k->kernel->raw_language && is_layout(stage);
        if (chosen) fuse_print_choices(&s->options, k, out);
        if (written && !chosen) text_add(out, "// written in CUDA: `--stage cuda` shows its text\n");
        if (options->why) why_print(s->call->context, r.call->kernel, out);
        qn_status status = options->why || written ? QN_OK : show_call(&r, options->times, out, error);
        text_free(&r.times.out);
        qn_call_free(r.call);
        QN_TRY(status);
    }
    return QN_OK;
}

qn_status show_function(qn_context *context, kernel_entry *entry, qn_mode mode, qn_products products,
                        const qn_show_options *options, const show_taker *taker, text *out, qn_error *error)
{
    const char *stage = options->stage ? options->stage : "fusion", *device = options->device;
    shown s = {.memory = arena_new()};
    show_request target = {.stage = stage};
    qn_status status = QN_OK;
    s.gpu = show_is_cuda(stage) || (device && target_find(device)->threads);
    s.device = device ? device : s.gpu ? "cuda" : "cpu";
    if (s.gpu) {
        status = show_cuda_target(context, device, options->arch, &target, error);
        s.slot = target.slot;
        s.units = target.target.multiprocessors;
        s.arch = target.target.arch;
    } else {
        status = context_slot(context, s.device, &s.slot, error);
        if (status == QN_NO_DEVICE && strcmp(stage, "asm") != 0) status = QN_OK; /* text needs no device */
        if (status == QN_OK) s.units = slot_about(context, s.slot)->units;
    }
    if (status == QN_OK) {
        s.call = call_new(entry, context);
        s.call->mode = mode;
        s.call->products = products;
        s.call->assumed_units = s.units;
        status = call_apply(s.call, &options->settings, error);
    }
    bool kernels = !show_is_graph(stage) && !options->dot;
    if (status == QN_OK) status = give_sizes(&s, kernels || options->dot ? NULL : out, error);
    if (status == QN_OK) status = trace(&s, error);
    if (status == QN_OK && !strcmp(stage, "graph") && !options->dot)
        graph_print(s.tape->graph, s.results, s.count, out);
    else if (status == QN_OK)
        status = fuse(&s, error);
    if (status == QN_OK && s.plan) {
        if (options->dot)
            show_picture(s.plan, s.results, s.count, s.names, COUNT(s.names), out);
        else if (options->why && options->stage && !strcmp(stage, "fusion"))
            fuse_print_why(s.plan, out);
        else if (kernels || options->why)
            status = show_kernels(&s, stage, options, taker, out, error);
        else if (!strcmp(stage, "memory"))
            fuse_print_memory(s.plan, out);
        else
            fuse_print(s.plan, out);
    }
    qn_call_free(s.call);
    qn_tape_free(s.tape);
    arena_free(s.memory);
    return status;
}
