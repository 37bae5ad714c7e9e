/*
 * Showing any stage of a kernel. In: a file, a kernel, settings. Out: text: the tree, the IR as lowered, the IR after
 * any pass, the C text, the machine's instructions; or how long each stage took; or why the compiled variants exist.
 * With all extents given, the facts are those of a launch on contiguous, aligned arrays; otherwise nothing is assumed.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/show_graph.h"
#include "passes/passes.h"

#include <string.h>

static const struct {
    const char *name, *summary;
} first_stages[] = {{"ast", "the syntax tree"},
                    {"graph", "of a tensor function: its graph, one op a line"},
                    {"fusion",
                     "of a tensor function: its kernels, what each reads, writes and saves, and why no fewer"},
                    {"memory", "of a tensor function: where intermediates lie, and when"},
                    {"tile", "the tile IR as it was lowered"}},
  last_stages[] = {
      {"c", "the text for the compiler"},
      {"asm", "the instructions it became"},
      {"layout", "for a GPU: how tiles lie over threads, and where they are kept"},
      {"schedule", "for a GPU: what was chosen for a product that is fed by bulk copies, or why it is not"},
      {"choices", "for a GPU: the recipe and tile of a product, the others with estimated times, and why"},
      {"loops", "for a GPU: the program that is built from the schedule"},
      {"cuda", "for a GPU: the CUDA C text"},
      {"ptx", "for a GPU: the PTX it became, with registers, spills and occupancy"},
      {"sass", "for a GPU: the machine's instructions"},
      {"hints", "for a GPU: what bounds it, as far as that is known before it runs"}};

int qn_stage_count(void)
{
    return COUNT(first_stages) + pass_count + COUNT(last_stages);
}

const char *qn_stage_name(int number, const char **summary)
{
    const char *words = "", *name = "";
    if (number >= 0 && number < COUNT(first_stages)) {
        name = first_stages[number].name;
        words = first_stages[number].summary;
    } else if (number >= 0 && (number -= COUNT(first_stages)) < pass_count) {
        name = passes[number].name;
        words = passes[number].summary;
    } else if (number >= 0 && (number -= pass_count) < COUNT(last_stages)) {
        name = last_stages[number].name;
        words = last_stages[number].summary;
    }
    if (summary) *summary = words;
    return name;
}

static qn_status check_stage(const char *stage, qn_error *error)
{
    arena *memory = arena_new();
    int count = qn_stage_count();
    const char **names = ARENA_ARRAY(memory, const char *, count);
    bool known = false;
    text list = {0};
    for (int i = 0; i < count; i++) {
        names[i] = qn_stage_name(i, NULL);
        known |= !strcmp(names[i], stage);
        text_print(&list, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = known ? NULL : suggest_name(stage, names, count);
    qn_status status = QN_OK;
    if (!known && near)
        status = error_set(error, QN_BAD_CALL, "unknown stage `%s`; did you mean `%s`?", stage, near);
    else if (!known)
        status = error_set(error, QN_BAD_CALL, "unknown stage `%s`; the stages are %s", stage, text_get(&list));
    text_free(&list);
    arena_free(memory);
    return status;
}

/* The tree: one node a line, children indented. */
static void print_tree(const ast *node, const char *role, int depth, text *out)
{
    static const char *const kinds[AST_KIND_COUNT] = {[AST_FUNCTION] = "function",
                                                      [AST_KERNEL] = "kernel",
                                                      [AST_TENSOR] = "tensor",
                                                      [AST_RAW] = "raw",
                                                      [AST_BENCH] = "bench",
                                                      [AST_CONSTANT] = "constant",
                                                      [AST_PARAM] = "param",
                                                      [AST_CLAUSE] = "clause",
                                                      [AST_PHASE] = "phase",
                                                      [AST_SETTING] = "setting",
                                                      [AST_VARIANT] = "variant",
                                                      [AST_TYPE] = "type",
                                                      [AST_BLOCK] = "block",
                                                      [AST_DECLARE] = "declare",
                                                      [AST_DECLARATOR] = "declarator",
                                                      [AST_ASSIGN] = "assign",
                                                      [AST_CALL_STATEMENT] = "call statement",
                                                      [AST_IF] = "if",
                                                      [AST_FOR] = "for",
                                                      [AST_WHILE] = "while",
                                                      [AST_BREAK] = "break",
                                                      [AST_CONTINUE] = "continue",
                                                      [AST_RETURN] = "return",
                                                      [AST_LET] = "let",
                                                      [AST_EMPTY] = "empty",
                                                      [AST_NUMBER] = "number",
                                                      [AST_STRING] = "string",
                                                      [AST_BOOL] = "bool",
                                                      [AST_NAME] = "name",
                                                      [AST_TYPE_NAME] = "type name",
                                                      [AST_UNARY] = "unary",
                                                      [AST_BINARY] = "binary",
                                                      [AST_CONDITIONAL] = "conditional",
                                                      [AST_CALL] = "call",
                                                      [AST_NAMED] = "named",
                                                      [AST_INDEX] = "index",
                                                      [AST_SUBSCRIPT] = "subscript"};
    if (!node) return;
    text_print(out, "%*s%s%s%s", 2 * depth, "", role, *role ? ": " : "",
               kinds[node->kind] ? kinds[node->kind] : "node");
    if (node->is_tile) text_add(out, " tile");
    if (node->is_slice) text_add(out, " slice");
    if (node->name && *node->name) text_print(out, " %s", node->name);
    if (node->word && *node->word) text_print(out, " `%s`", node->word);
    if (node->kind == AST_NUMBER && node->is_float) {
        text_add(out, " ");
        text_add_double(out, node->number.f);
    } else if (node->kind == AST_NUMBER || node->kind == AST_BOOL) {
        text_print(out, " %lld", (long long)node->number.i);
    }
    if (node->words) {
        size_t shown = MINIMUM(node->length, 60);
        text_add(out, " ");
        text_add_quoted(out, node->words, shown);
        if (shown < node->length) text_add(out, "...");
    }
    text_print(out, " @%d:%d\n", node->at.line, node->at.column);
    const struct {
        const char *role;
        const ast *child;
    } children[] = {{"type", node->type}, {"left", node->left}, {"right", node->right}, {"third", node->third}};
    for (int i = 0; i < COUNT(children); i++) print_tree(children[i].child, children[i].role, depth + 1, out);
    for (int i = 0; i < node->list.count; i++) print_tree(node->list.items[i], "", depth + 1, out);
    for (int i = 0; i < node->clauses.count; i++) print_tree(node->clauses.items[i], "", depth + 1, out);
    for (int i = 0; i < node->phases.count; i++) print_tree(node->phases.items[i], "", depth + 1, out);
    print_tree(node->body, "body", depth + 1, out);
    print_tree(node->other, "else", depth + 1, out);
}

/* The facts of a launch on the usual arrays, where all extents are known; else nothing. */
static void usual_facts(show_request *r, const instance *i, tile_facts *facts)
{
    qn_call *call = r->call;
    const tile_facts unknown = {.size_class = -1};
    for (int p = 0; p < i->kernel->param_count; p++)
        facts[p] = call->kernel->dump && !r->fused ? i->kernel->params[p].facts : unknown;
    if (call_bind(call, r->slot, true, NULL) != QN_OK) return;
    call_usual_views(call);
    call->slot = r->slot;
    r->planned = true;
    if (call->kernel->dump && !r->fused) return;
    if (show_is_cuda(r->stage)) {
        tile_param params[MAX_PARAMS];
        memcpy(params, i->kernel->params, sizeof(params[0]) * (size_t)i->kernel->param_count);
        tile_kernel probe = *i->kernel;
        probe.params = params;
        for (int p = 0; p < probe.param_count; p++) params[p].facts = unknown;
        cuda_choose_facts(&probe, call->views, &call->plan);
        for (int p = 0; p < probe.param_count; p++) facts[p] = params[p].facts;
        extent_facts(i->kernel, i->uses, &call->plan, facts);
        drop_numbers(call, facts);
    } else {
        launch_facts(call, facts);
    }
}

void show_time(time_table *t, const char *name, const char *note, int64_t time_ns)
{
    t->total_ns += time_ns;
    text_print(&t->out, "%-20s %9.3f ms%s%s\n", name, (double)time_ns * 1e-6, *note ? "  " : "", note);
}

static void observe(void *context, const tile_kernel *k, const char *name, bool changed, int64_t time_ns)
{
    show_time(context, name, changed ? "changed" : "", time_ns);
}

/* The text of the device, and what its compiler made of it. */
static qn_status show_text(show_request *r, const tile_kernel *k, text *out, qn_error *error)
{
    const device_slot *s = &r->call->context->slots[r->slot];
    text source = {0};
    int64_t start = clock_now_ns();
    qn_status status = s->driver->emit(s->device, k, &source, NULL, error);
    show_time(&r->times, "emit", "", clock_now_ns() - start);
    if (status == QN_OK && !strcmp(r->stage, "asm")) {
        start = clock_now_ns();
        if (s->driver->disassemble)
            status = s->driver->disassemble(s->device, text_get(&source), out, error);
        else
            status = error_set(error, QN_BAD_CALL, "the device %s has no stage `asm`", s->driver->name);
        show_time(&r->times, "compile", "", clock_now_ns() - start);
    } else if (status == QN_OK) {
        text_add_bytes(out, text_get(&source), source.length);
    }
    text_free(&source);
    return status;
}

qn_status show_call(show_request *r, bool times, text *out, qn_error *error)
{
    const device_slot *s = &r->call->context->slots[r->slot];
    bool cuda = show_is_cuda(r->stage), to_text = !strcmp(r->stage, "c") || !strcmp(r->stage, "asm");
    int64_t start = clock_now_ns();
    instance *i;
    if (cuda) r->call->assumed_units = r->target.multiprocessors;
    QN_TRY(call_instance(r->call, r->slot, &i, error));
    show_time(&r->times, "lower", "", clock_now_ns() - start);
    if (!times && !strcmp(r->stage, "tile")) {
        tile_print(i->kernel, out);
        return QN_OK;
    }
    if (to_text && !s->driver->emit)
        return error_set(error, QN_BAD_CALL, "the device %s has no stage `%s`: it runs the tile IR itself",
                         s->driver->name, r->stage);
    arena *memory = arena_new();
    tile_facts facts[MAX_PARAMS];
    usual_facts(r, i, facts);
    tile_kernel *k = tile_clone(i->kernel, memory);
    for (int p = 0; p < k->param_count; p++) k->params[p].facts = facts[p];
    qn_status status = QN_OK;
    if (!k->raw_language) status = passes_run(k, to_text || cuda ? NULL : r->stage, observe, &r->times, error);
    text result = {0};
    if (status == QN_OK && cuda)
        status = show_cuda(r, k, &result, error);
    else if (status == QN_OK && to_text)
        status = show_text(r, k, &result, error);
    else if (status == QN_OK)
        tile_print(k, &result);
    if (status == QN_OK && times) {
        int64_t total_ns = r->times.total_ns;
        show_time(&r->times, "all", "", total_ns);
        text_add_bytes(out, text_get(&r->times.out), r->times.out.length);
    } else if (status == QN_OK) {
        text_add_bytes(out, text_get(&result), result.length);
    }
    text_free(&result);
    arena_free(memory);
    return status;
}

static qn_status show(qn_context *context, qn_module *module, const char *kernel, const qn_show_options *options,
                      const show_taker *taker, text *out, qn_error *error)
{
    const char *stage = options->stage ? options->stage : "c";
    kernel_entry *entry = module_find(module, kernel, error);
    qn_mode mode;
    qn_products products;
    if (!entry) return QN_BAD_CALL;
    QN_TRY(check_stage(stage, error));
    if (!strcmp(stage, "hints") && !taker)
        return error_set(error, QN_BAD_CALL, "hints are more than text: qn_show_hints gives them");
    bool function = entry->item && entry->item->kind == AST_TENSOR;
    if (function && strcmp(stage, "ast") != 0) {
        (void)function_name(kernel, &mode, &products);
        if (options->backward) entry = function_gradient(entry);
        return show_function(context, entry, mode, products, options, taker, out, error);
    }
    if (!function && (show_is_graph(stage) || options->backward || options->dot))
        return error_set(error, QN_BAD_CALL, "`%s` is a kernel: %s%s%s tensor functions", kernel,
                         options->backward ? "--backward is for"
                         : options->dot    ? "--dot is for"
                                           : "the stage `",
                         options->backward || options->dot ? "" : stage,
                         options->backward || options->dot ? "" : "` is one of");
    if (options->why) {
        why_print(context, entry, out);
        return QN_OK;
    }
    if (!strcmp(stage, "ast")) {
        if (!entry->item) return error_set(error, QN_BAD_CALL, "%s is a tile IR dump: it has no tree", module->path);
        print_tree(entry->item, "", 0, out);
        return QN_OK;
    }
    if (options->arch && !show_is_cuda(stage))
        return error_set(
            error, QN_BAD_CALL,
            "the stage `%s` is not of a GPU: --arch goes with layout, schedule, loops, cuda, ptx, sass and hints",
            stage);
    if (options->annotate && strcmp(stage, "ptx") != 0 && strcmp(stage, "sass") != 0)
        return error_set(error, QN_BAD_CALL, "--annotate goes with the stages ptx and sass, not with `%s`", stage);
    show_request r = {.stage = stage, .annotate = options->annotate, .taker = taker};
    if (show_is_cuda(stage)) {
        QN_TRY(show_cuda_target(context, options->device, options->arch, &r, error));
    } else {
        qn_status there = context_slot(context, options->device ? options->device : "cpu", &r.slot, error);
        if (there == QN_NO_DEVICE && strcmp(stage, "asm")) there = QN_OK; /* text needs no device */
        QN_TRY(there);
    }
    QN_TRY(qn_call_new(module, kernel, &r.call, error));
    qn_status status = call_apply(r.call, &options->settings, error);
    const char *device = options->device ? options->device : show_is_cuda(stage) ? "cuda" : "cpu";
    if (status == QN_OK && options->bench_sizes && strcmp(stage, "tile") != 0)
        status = qn_call_take_bench(r.call, device, options->told, options->told_user, error);
    if (status == QN_OK) status = show_call(&r, options->times, out, error);
    text_free(&r.times.out);
    qn_call_free(r.call);
    return status;
}

qn_status show_file(qn_context *context, const char *path, const char *kernel, const qn_show_options *options,
                    const show_taker *taker, text *out, qn_error *error)
{
    const qn_show_options defaults = {0};
    qn_module *module;
    QN_TRY(qn_module_load_file(context, path, &module, error));
    qn_status status = show(context, module, kernel, options ? options : &defaults, taker, out, error);
    qn_module_free(module);
    return status;
}

qn_status qn_show(qn_context *context, const char *path, const char *kernel, const qn_show_options *options,
                  qn_write *write, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    if (!context || !path || !kernel || !write) return error_set(error, QN_BAD_CALL, "qn_show: an argument is NULL");
    text out = {0};
    qn_status status = show_file(context, path, kernel, options, NULL, &out, error);
    if (status == QN_OK) write(user, text_get(&out), out.length);
    text_free(&out);
    return status;
}
