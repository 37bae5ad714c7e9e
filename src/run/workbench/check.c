/*
 * `check`. In: a file. Out: for every kernel, findings of the checking interpreter at odd and even sizes in random
 * program order, then the disagreements of every other device with it (check_devices.c); one summary line a kernel. The
 * CUDA text runs on `emu` in its checked mode, at one size unless that device is asked for. A raw kernel has no IR: it is
 * compared with the first variant of the bench that names it. Cases are compiled side by side and run one by one.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/check_state.h"

#include <stdlib.h>
#include <string.h>

#define KERNEL_LIMIT_NS ((int64_t)20 * 1000000000) /* after this the remaining cases of a kernel are left out */
#define LEAST_TOGETHER 8    /* cases: not all of them are compiled for, and some take longer than others */
#define JOBS_AHEAD 8        /* compiled ahead for each core */
#define STEP_LIMIT 20000000 /* ops of one program, unless the options say otherwise */

static qn_status apply(checker *c, qn_call *call, const check_case *at, qn_error *error)
{
    const kernel_entry *e = call->kernel;
    for (int i = 0; i < at->count; i++) {
        bool known = false; /* the truth of a raw kernel need not have all its names */
        for (int n = 0; n < e->name_count; n++) known |= !strcmp(e->names[n], at->names[i]);
        if (known || e == c->entry) QN_TRY(qn_call_set_text(call, at->names[i], at->values[i], error));
    }
    for (int i = 0; i < c->options->settings.count; i++) {
        const char *item = c->options->settings.items[i];
        bool known = false;
        for (int n = 0; n < e->name_count; n++) {
            size_t length = strlen(e->names[n]);
            known |= !strncmp(item, e->names[n], length) && item[length] == '=';
        }
        qn_settings one = {.items = &item, .count = 1};
        if (known || c->options->kernel) QN_TRY(call_apply(call, &one, error));
    }
    return QN_OK;
}

/* The truth of a raw kernel takes the element types of arrays with the same names. */
static qn_status match_types(checker *c, qn_call *call, qn_error *error)
{
    for (int i = 0; c->truth != c->entry && i < c->truth->param_count; i++) {
        const parameter *p = &c->truth->params[i];
        if (!p->generic || p->rank < 0) continue;
        const parameter *own = entry_param(c->entry, p->name, NULL);
        if (own && !own->generic) QN_TRY(qn_call_set_type(call, p->type, (qn_dtype)own->elem, error));
    }
    return QN_OK;
}

qn_status checker_prepare(checker *c, kernel_entry *entry, const check_case *at, qn_call **out, qn_error *error)
{
    QN_TRY(qn_call_new(c->module, entry->name, out, error));
    (*out)->kernel = function_spread((*out)->kernel, entry->spread);
    qn_status status = entry == c->truth && entry != c->entry ? match_types(c, *out, error) : QN_OK;
    if (status == QN_OK) status = apply(c, *out, at, error);
    if (status == QN_OK) status = call_generate(*out, c->options->seed, at->whole && c->truth == c->entry, error);
    if (status != QN_OK) {
        qn_call_free(*out);
        *out = NULL;
    }
    return status;
}

/* Extents that an assume or the head refuses are not this kernel's fault. */
static bool is_refusal(const qn_error *error)
{
    return error->status == QN_BAD_CALL &&
           (error->code == E502 || error->code == E503 || error->code == E509 || error->code == E510);
}

/* The truth: the interpreter with every check, in a random order of programs. Copies of its outputs into truth[]. */
static qn_status run_truth(checker *c, const check_case *at, int number, array_view *truth, qn_error *error)
{
    qn_call *call;
    findings found = {0};
    QN_TRY(checker_prepare(c, c->truth, at, &call, error));
    call->mode = QN_EAGER; /* of a tensor function: one op at a time, each rounded */
    interp_options interp = {.check = true,
                             .order_seed = c->options->seed + (uint64_t)number + 1,
                             .units = slot_about(c->context, c->ref_slot)->units,
                             .step_limit = c->options->step_limit > 0 ? c->options->step_limit : STEP_LIMIT,
                             .print = c->context->print,
                             .print_context = c->context->user};
    launch_options options = {.interp = &interp, .found = &found};
    qn_status status = call_launch(call, c->ref_slot, &options, error);
    if (call->instance) checker_tell_findings(c, at, &found, call->instance->kernel);
    if (call->instance && call->instance->warnings.length && !c->warned) {
        checker_say(c, "%s", text_get(&call->instance->warnings));
        c->warned = true;
    }
    if (status == QN_FINDING && !found.count)
        checker_tell_failure(c, at, "ref", error); /* of a kernel that fusion made */
    bool asserted =
        false; /* a failed assert, or a program without end, is both a finding and a failure: tell it once */
    for (int i = 0; i < found.count; i++) asserted |= found.items[i].code == 507;
    c->endless |= status != QN_OK && error->code == R709;
    if ((status == QN_OK && found.count) || asserted || c->endless) status = QN_FINDING; /* the results mean nothing */
    for (int i = 0; status == QN_OK && i < c->truth->param_count; i++) {
        const parameter *p = &c->truth->params[i];
        if ((p->kind == PARAM_OUT || p->kind == PARAM_INOUT) && !view_copy(&call->arguments[i].view, &truth[i]))
            status = error_set(error, QN_NO_MEMORY, "no memory to keep `%s`", p->name);
    }
    findings_free(&found);
    qn_call_free(call);
    return status;
}

bool checker_wants(const checker *c, int slot)
{
    const device_slot *s = &c->context->slots[slot];
    const ast *item = c->entry ? c->entry->item : NULL;
    if (slot == c->ref_slot || (c->options->device && strcmp(c->options->device, s->name) != 0)) return false;
    bool raw = item && item->kind == AST_RAW;
    if (raw && !raw_runs_on(item->word, s->driver->name)) return false;
    if (s->driver == &driver_emu && !raw && !c->options->device) return false; /* see checker_wants_text */
    return slot_about(c->context, slot)->available;
}

/* `emu` takes long: where nobody asks for it, it runs the text of one case. */
bool checker_wants_text(const checker *c, int slot)
{
    const device_slot *s = &c->context->slots[slot];
    bool raw = c->truth != c->entry;
    return s->driver == &driver_emu && !raw && !c->options->device && !c->options->no_emu &&
           slot_about(c->context, slot)->available;
}

static void run_case(checker *c, const check_case *at, int number, check_runs *runs)
{
    array_view *truth = ARENA_ARRAY(c->memory, array_view, c->truth->param_count + 1);
    qn_error error;
    int before = c->findings, empty_before = c->empty_count;
    int64_t start = clock_now_ns();
    qn_status status = run_truth(c, at, number, truth, &error);
    if (status == QN_BAD_SOURCE || (status != QN_OK && is_refusal(&error))) {
        checker_skip(c, at, &error);
        return;
    }
    if (status == QN_NO_DEVICE && c->truth->item && c->truth->item->kind == AST_TENSOR) {
        checker_say(c, "%s: skipped, %s\n", c->entry->name, error.message); /* a raw kernel in it */
        c->ended = true;
        return;
    }
    c->ran++;
    if (status != QN_OK && status != QN_FINDING) checker_tell_failure(c, at, "ref", &error);
    if (status == QN_OK && !number)
        check_runs_compile(c->context, runs, 1); /* those of the others are: see check_kernel */
    if (status == QN_OK) check_runs_compare(c, at, runs, truth);
    for (int i = 0; i < c->truth->param_count; i++) memory_free(truth[i].data);
    c->moved = NULL;
    if (c->options->verbose) {
        text where = {0};
        check_describe(at, &where);
        checker_say(c, "  %s %6.0f ms  %s\n",
                    c->findings > before            ? "FOUND"
                    : c->empty_count > empty_before ? "empty"
                                                    : "ok   ",
                    (double)(clock_now_ns() - start) * 1e-6, text_get(&where));
        text_free(&where);
    }
}

/* Who is right for this kernel; NULL with why it cannot be checked here. */
static kernel_entry *find_truth(checker *c, kernel_entry *entry, text *why)
{
    if (!entry->item || entry->item->kind != AST_RAW) return entry;
    bool runs = false;
    for (int slot = 0; slot < c->context->slot_count; slot++) runs |= checker_wants(c, slot);
    const ast *bench = bench_of(c->module->file, entry->name);
    kernel_entry *first = bench ? module_find(c->module, bench->list.items[0]->name, NULL) : NULL;
    if (!runs)
        text_print(why, "%s text, and no device that runs it is %s", entry->item->word,
                   c->options->device ? "asked for" : "here");
    else if (!c->context->allow_raw)
        text_add(why, "raw kernels are not allowed here");
    else if (!first || first == entry || !first->item || first->item->kind != AST_KERNEL)
        text_add(why, "a raw kernel is compared with the first variant of its bench, which must be a tile kernel");
    else
        return first;
    return NULL;
}

static void tell_progress(checker *c, int done, int count)
{
    text line = {0};
    if (!c->options->progress) return;
    text_print(&line, "[%d/%d] %s: %d of %d cases\n", c->number, c->options->kernel ? 1 : c->module->kernel_count,
               c->entry->name, done, count);
    c->options->progress(c->options->progress_user, text_get(&line), line.length);
    text_free(&line);
}

static void check_kernel(checker *c, kernel_entry *entry)
{
    text why = {0};
    c->entry = entry;
    c->truth = find_truth(c, entry, &why);
    if (!c->truth) checker_say(c, "%s: skipped, %s\n", entry->name, text_get(&why));
    text_free(&why);
    if (!c->truth) return;
    c->memory = arena_new();
    c->seen_count = c->told_count = c->ran = c->skipped = c->compared = c->findings = c->as_cuda = 0;
    c->empty_count = 0;
    c->stopped = c->endless = c->ended = c->warned = false;
    text_clear(&c->skip_reason);
    text_clear(&c->refused);
    text_clear(&c->broken);
    text_clear(&c->assumed);
    text_clear(&c->misfit);
    text_clear(&c->told_text);
    text_clear(&c->empty);
    check_cases cases = {0};
    check_choose(entry, &c->options->settings, slot_about(c->context, c->ref_slot)->units, c->memory, &cases);
    int64_t start = clock_now_ns();
    bool enough = false; /* to read; the other sizes would not end either */
    /* The first case alone, as what is wrong is mostly wrong there, and compiled once `ref` is through; then several at a
     * time. */
    for (int first = 0, count = 1; first < cases.count && !c->stopped && !enough; first += count) {
        if (first) count = MINIMUM(MAXIMUM(cpu_count(), LEAST_TOGETHER), cases.count - first);
        check_runs *runs = ARENA_ARRAY(c->memory, check_runs, count);
        tell_progress(c, first, cases.count);
        for (int i = 0; i < count; i++) check_runs_make(c, &cases.items[first + i], first + i, &runs[i]);
        if (first)
            check_runs_compile(c->context, runs, count); /* the first case's are in run_case, if it runs at all */
        for (int i = 0; i < count; i++) {
            if (!c->stopped && !enough) run_case(c, &cases.items[first + i], first + i, &runs[i]);
            tell_progress(c, first + i + 1, cases.count);
            check_runs_free(&runs[i]);
            c->stopped |= clock_now_ns() - start > KERNEL_LIMIT_NS && first + i + 1 < cases.count;
            enough = c->findings >= 10 || c->endless || c->ended;
        }
    }
    if (!c->ended) checker_summary(c);
    checker_tell_each(c);
    c->total_findings += c->findings;
    arena_free(c->memory);
}

/* A call bound at the sizes of the first case that it takes, to be freed; NULL: none, and why the last one was not. */
static qn_call *bind_first(checker *c, kernel_entry *entry, qn_error *error)
{
    qn_call *call = NULL;
    bool bound = false;
    arena *memory = arena_new();
    check_cases cases = {0};
    check_choose(entry, &c->options->settings, slot_about(c->context, c->ref_slot)->units, memory, &cases);
    for (int i = 0; i < cases.count && !bound; i++) {
        qn_call_free(call);
        call = NULL;
        c->entry = c->truth = entry;
        bound = !cases.items[i].empty && checker_prepare(c, entry, &cases.items[i], &call, error) == QN_OK &&
                call_bind(call, c->ref_slot, true, error) == QN_OK;
    }
    arena_free(memory);
    if (bound) return call;
    qn_call_free(call);
    return NULL;
}

/* Is the first result of this tensor function one float? */
static bool has_gradient(checker *c, kernel_entry *entry)
{
    qn_error error;
    bool one = false;
    qn_call *call = bind_first(c, entry, &error);
    for (int p = 0; call && p < call->instance->kernel->param_count; p++) {
        const tile_param *param = &call->instance->kernel->params[p];
        if (!strcmp(param->name, "result0")) one = dtype_is_float(param->elem) && !param->rank;
    }
    qn_call_free(call);
    return one;
}

/* A function whose result is a constant, such as `return pi;`, has none. */
static bool is_constant(checker *c, kernel_entry *gradient)
{
    qn_error error = {0};
    qn_call *call = bind_first(c, gradient, &error);
    bool constant = !call && error.code == E318;
    qn_call_free(call);
    return constant;
}

/* A tensor function that gives one number is checked with its gradient. */
static void check_one(checker *c, kernel_entry *entry)
{
    check_kernel(c, entry);
    if (!entry->item || entry->item->kind != AST_TENSOR || c->findings || c->ended || !has_gradient(c, entry)) return;
    kernel_entry *gradient = function_gradient(entry);
    if (gradient) gradient = function_spread(gradient, entry->spread);
    if (gradient && gradient->param_count > entry->item->list.count && !is_constant(c, gradient))
        check_kernel(c, gradient);
}

/* A function of any rank, with one, two, three and no axes for `[...]`, or as many as the settings name. */
static void check_entry(checker *c, kernel_entry *entry)
{
    int named = 0;
    const qn_settings *s = &c->options->settings;
    for (int i = 0; i < s->count && entry->spread >= 0; i++) {
        size_t length = strcspn(s->items[i], "=");
        char name[16];
        snprintf(name, sizeof(name), "%.*s", (int)MINIMUM(length, 15), s->items[i]);
        named = MAXIMUM(named, spread_axis_number(name) + 1);
    }
    if (entry->spread < 0 || named) {
        check_one(c, named ? function_spread(entry, named) : entry);
        return;
    }
    static const int ranks[] = {1, 2, 3, 0};
    for (int i = 0; i < COUNT(ranks) && !c->ended; i++) check_one(c, function_spread(entry, ranks[i]));
}

/* Compiles all that the cases of the kernels from this one on will run, of as many kernels as keep every core busy; each kernel
 * by itself ends with some cores waiting for the slowest text, and a file has dozens of them. The first kernel of a file is
 * left out: it is compiled once `ref` found it right, as what is wrong is mostly wrong there. What cannot be compiled says so
 * when it is its turn. */
static void compile_ahead(checker *c, int from)
{
    if (from == 0 || from < c->ahead || c->options->kernel) return;
    checker own = {.context = c->context, .module = c->module, .options = c->options, .ref_slot = c->ref_slot};
    own.memory = arena_new();
    check_runs *runs = NULL;
    int count = 0, capacity = 0, jobs = 0, units = slot_about(c->context, c->ref_slot)->units;
    for (c->ahead = from; c->ahead < c->module->kernel_count && jobs < JOBS_AHEAD * cpu_count(); c->ahead++) {
        kernel_entry *entry = own.entry = &c->module->kernels[c->ahead];
        text why = {0};
        if (entry->spread < 0 && !ast_is_imported(entry->item)) own.truth = find_truth(&own, entry, &why);
        text_free(&why);
        check_cases cases = {0};
        if (own.truth) check_choose(entry, &c->options->settings, units, own.memory, &cases);
        own.compared = 0;
        for (int i = 0; i < cases.count; i++) {
            check_runs one = {0};
            check_runs_make(&own, &cases.items[i], i, &one);
            jobs += one.count;
            ARENA_PUSH(own.memory, runs, count, capacity, one);
            check_runs_add_instrumented(&own, &cases.items[i], &runs[count - 1]);
        }
        own.truth = NULL;
    }
    check_runs_compile(c->context, runs, count);
    for (int i = 0; i < count; i++) check_runs_free(&runs[i]);
    arena_free(own.memory);
}

/* Devices that can watch what a kernel does do so while it is checked. */
static void set_checked(qn_context *context, bool checked)
{
    for (int slot = 0; slot < context->slot_count; slot++) {
        device_slot *s = &context->slots[slot];
        if (!s->driver->set_checked || s->driver->memory) continue; /* a GPU: see run_instrumented */
        s->driver->set_checked(s->device, checked);
        s->checked = checked;
    }
}

qn_status qn_check_file(qn_context *context, const char *path, const qn_check_options *options, qn_write *write,
                        void *user, qn_error *error)
{
    HEAP_ENTER(error);
    const qn_check_options defaults = {0};
    if (!context || !path || !write) return error_set(error, QN_BAD_CALL, "qn_check_file: an argument is NULL");
    qn_check_options own = options ? *options : defaults;
    checker c = {.context = context, .options = &own, .write = write, .user = user};
    QN_TRY(context_slot(context, "ref", &c.ref_slot, error));
    int slot;
    if (own.device) QN_TRY(context_slot(context, own.device, &slot, error));
    if (own.device) own.device = context->slots[slot].name; /* `gpu` and `CUDA` are cuda */
    QN_TRY(qn_module_load_file(context, path, &c.module, error));
    set_checked(context, true);
    kernel_entry *only = c.options->kernel ? module_find(c.module, c.options->kernel, error) : NULL;
    qn_status status = c.options->kernel && !only ? QN_BAD_CALL : QN_OK;
    if (!c.options->kernel && !c.module->kernel_count)
        status = error_set(error, QN_BAD_CALL, "%s has no kernel to check", path);
    for (int i = 0; status == QN_OK && c.no_memory.status == QN_OK && i < c.module->kernel_count; i++)
        if (only ? only == &c.module->kernels[i] : !ast_is_imported(c.module->kernels[i].item)) {
            c.number = only ? 1 : i + 1;
            compile_ahead(&c, i);
            check_entry(&c, &c.module->kernels[i]);
        }
    for (int i = 0; status == QN_OK && only && i < c.module->gradient_count; i++)
        if (only == &c.module->gradients[i]) check_kernel(&c, only);
    text_free(&c.skip_reason);
    text_free(&c.refused);
    text_free(&c.broken);
    text_free(&c.assumed);
    text_free(&c.misfit);
    text_free(&c.told_text);
    text_free(&c.empty);
    qn_module_free(c.module);
    set_checked(context, false);
    if (status == QN_OK && c.no_memory.status) status = error_set(error, QN_NO_MEMORY, "%s", c.no_memory.message);
    if (status == QN_OK && c.total_findings)
        status =
            error_set(error, QN_FINDING, "%s: %d finding%s", path, c.total_findings, c.total_findings == 1 ? "" : "s");
    return status;
}
