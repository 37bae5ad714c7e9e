/*
 * `check`. In: a file. Out: for every kernel, findings of the checking interpreter at odd and even sizes in random
 * program order, then the disagreements of every other device with it, on contiguous arrays and on views with gaps; one
 * summary line a kernel. The CUDA text runs on `emu` in its checked mode, at one size unless that device is asked for. A raw kernel has no IR: it is compared with the first variant of the bench that names it.
 * SPDX-License-Identifier: MIT
 */
#include "base/json.h"
#include "run/check.h"

#include <stdlib.h>
#include <string.h>

#define KERNEL_LIMIT_NS ((int64_t)20 * 1000000000) /* after this the remaining cases of a kernel are left out */
#define INSTRUMENTED_CASES 2
#define STEP_LIMIT 20000000 /* ops of one program, unless the options say otherwise */

typedef struct checker {
    qn_context *context;
    qn_module *module;
    const qn_check_options *options;
    qn_write *write;
    void *user;
    int ref_slot;
    arena *memory;               /* of the kernel at hand */
    kernel_entry *entry, *truth; /* truth: who is right, the kernel itself unless it is raw */
    struct {
        int code, line;
    } seen[64]; /* findings already told */
    int seen_count;
    char told[16][256]; /* how failures begin that were told already */
    int told_count;
    int ran, skipped, compared, findings; /* of the kernel at hand */
    int as_cuda;                          /* cases whose text ran on emu without being asked for */
    text skip_reason;                     /* the first one */
    text refused; /* a case whose constants or types the source refuses, with its message; the first one */
    text broken;  /* diagnostics of the first case that does not compile */
    int broken_code;
    text assumed;   /* the first `assume` that refused a case, as it stands in the source */
    text told_text; /* everything said about the kernel, where `each` wants it */
    text misfit; /* a case of a tensor function at which shapes do not fit though nothing rules it out; the first one */
    text empty;  /* what was found with an empty array, in short */
    int empty_count;
    double **moved; /* of the case: how far its results move (shake_truth); made where it is asked for */
    bool stopped, endless;
    bool ended;         /* nobody knows what is right: no summary */
    qn_error no_memory; /* the first that had none */
    int total_findings;
} checker;

static void say(checker *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(checker *c, const char *format, ...)
{
    text line = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&line, format, list);
    va_end(list);
    c->write(c->user, text_get(&line), line.length);
    if (c->options->each) text_add_bytes(&c->told_text, text_get(&line), line.length);
    text_free(&line);
}

static void tell(checker *c, const check_case *at, const char *device, const char *words)
{
    text where = {0};
    check_describe(at, &where);
    say(c, "%s on %s with %s:\n%s%s", c->entry->name, device, where.length ? text_get(&where) : "no settings", words,
        *words && words[strlen(words) - 1] == '\n' ? "" : "\n");
    text_free(&where);
    c->findings++;
}

/* A failure of a run, once: the same one at other sizes has the same place and code, or begins with the same words. That
 * there was no memory says nothing about the kernel: the check ends. */
static void tell_failure(checker *c, const check_case *at, const char *device, const qn_error *error)
{
    char start[256];
    const char *words = error->message;
    if (error->status == QN_NO_MEMORY) {
        if (c->no_memory.status == QN_OK) c->no_memory = *error;
        c->ended = true;
        return;
    }
    if (at->empty && error->status == QN_FINDING) { /* as in tell_findings */
        text_print(&c->empty, "%s%s=0: %.160s", c->empty_count++ ? "; " : "", at->empty, words);
        return;
    }
    if (error->code)
        snprintf(start, sizeof(start), "%s: %d:%d: %d", device, error->line, error->column, error->code);
    else
        snprintf(start, sizeof(start), "%s: %.60s", device, words);
    for (int i = 0; i < c->told_count; i++)
        if (!strcmp(c->told[i], start)) return;
    if (c->told_count < COUNT(c->told)) memcpy(c->told[c->told_count++], start, sizeof(start));
    tell(c, at, device, words);
}

/* Findings that were not told before. A reduction of nothing or an index into nothing is often the caller's affair:
 * with an empty array that nobody asked for, findings are named in the summary, and do not count. */
static void tell_findings(checker *c, const check_case *at, const findings *found, const tile_kernel *k)
{
    for (int i = 0; i < found->count; i++) {
        finding *f = &found->items[i];
        bool known = false;
        if (at->empty) {
            text_print(&c->empty, "%s%s=0: %c%d on line %d", c->empty_count++ ? "; " : "", at->empty,
                       f->code < 700 ? 'E' : 'R', f->code, f->line);
            continue;
        }
        for (int s = 0; s < c->seen_count; s++) known |= c->seen[s].code == f->code && c->seen[s].line == f->line;
        if (known) continue;
        if (c->seen_count < COUNT(c->seen)) {
            c->seen[c->seen_count].code = f->code;
            c->seen[c->seen_count++].line = f->line;
        }
        text words = {0};
        findings one = {.items = f, .count = 1, .capacity = 1};
        findings_print(&one, k, &words);
        tell(c, at, "ref", text_get(&words));
        text_free(&words);
    }
}

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

static qn_status prepare(checker *c, kernel_entry *entry, const check_case *at, qn_call **out, qn_error *error)
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

/* Why a case was refused: by an `assume`, which is the kernel's right, or because the shapes of a tensor function do not
 * fit at sizes that its extents allow, which is a mistake of the function. */
static void note_refusal(checker *c, const check_case *at, const qn_error *error, const char *where)
{
    /* "file:3:5: error E503: `assume` on line 3 is false: n > 4", or at a launch "... assume is false: n > 4 with n = 1" */
    const char *is_false = error->code == E503 ? strstr(error_words(error), " is false: ") : NULL;
    if (is_false) {
        const char *words = is_false + strlen(" is false: "), *with = strstr(words, " with ");
        int length = (int)strcspn(words, "\n");
        if (with && with - words < length) length = (int)(with - words);
        if (!c->assumed.length) text_print(&c->assumed, "`assume(%.*s)` on line %d", length, words, error->line);
        return;
    }
    bool tensor = c->entry->item && c->entry->item->kind == AST_TENSOR && !at->empty;
    if (!tensor || c->misfit.length || error->code == E510) return;
    text_print(
        &c->misfit,
        "%s on ref with %s:\n%s  extents that must agree have one name; what else must hold is said by `assume`, as "
        "`assume(D %% 4 == 0);`\n",
        c->entry->name, *where ? where : "no settings", error->message);
}

static void skip(checker *c, const check_case *at, const qn_error *error)
{
    text where = {0};
    check_describe(at, &where);
    if (!c->skipped++) text_add(&c->skip_reason, error->message);
    if (error->status == QN_BAD_SOURCE && !c->broken.length && error->code != E503) {
        text_add(&c->broken, error->message);
        c->broken_code = error->code;
    }
    if (error->status == QN_BAD_SOURCE && !c->refused.length)
        text_print(&c->refused, "%s: %.*s", text_get(&where), (int)strcspn(error->message, "\n"), error->message);
    note_refusal(c, at, error, text_get(&where));
    if (c->options->verbose) say(c, "  skipped %s: %s", text_get(&where), error->message);
    text_free(&where);
}

/* A `double` that was computed in `float`, or a `float` that was rounded to 16 bits on the way, is as good as that. */
static void find_rounding(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    dtype *least = context;
    for (int i = 0; i < op->result_count; i++) {
        dtype elem = tile_type_of(k, op->results[i]).elem;
        bool computed = op->code == OP_CONVERT || ops[op->code].class == CLASS_BINARY ||
                        ops[op->code].class == CLASS_TERNARY || ops[op->code].class == CLASS_FOLD;
        if (!computed || !dtype_is_float(elem)) continue;
        if (dtypes[elem].size_bytes < dtypes[*least].size_bytes || elem == DT_BF16) *least = elem;
    }
}

static void tolerances(const checker *c, const qn_call *call, dtype elem, double *relative, double *absolute)
{
    dtype least = elem;
    tile_kernel *k = call->instance->kernel;
    for (int i = 0; dtype_is_float(elem) && i < k->phase_count; i++) tile_walk(k, k->phases[i], find_rounding, &least);
    if (call_is_function(call) && dtype_is_float(elem)) {
        dtype other = call->instance->narrowest; /* eager rounds to it where fused does not */
        if (dtypes[other].size_bytes < dtypes[least].size_bytes || other == DT_BF16) least = other;
    }
    tolerance_default(least, relative, absolute);
    const ast_file *file = c->module->file;
    const ast *clause = clause_of(bench_of(file, c->entry->name), "tolerance");
    if (!clause || !dtype_is_float(elem)) return;
    double given[2] = {0, 0};
    for (int i = 0; i < clause->list.count && i < 2; i++) {
        diagnostics d = {.memory = c->memory};
        bindings nothing = {0};
        const char *unbound = NULL;
        binding b = {0};
        if (lang_evaluate(file, clause->list.items[i], &nothing, 1, &d, &b, &unbound))
            given[i] = b.kind == BIND_FLOAT ? b.number.f : (double)b.number.i;
    }
    /* A tolerance is written for the bench's types; a smaller type keeps its own. */
    *relative = MAXIMUM(*relative, given[0]);
    *absolute = MAXIMUM(*absolute, given[1]);
}

static void index_words(const array_view *v, int64_t index, char *out, size_t size)
{
    int64_t at[MAX_RANK] = {0};
    for (int a = v->rank - 1; a >= 0; a--) {
        at[a] = index % v->extents[a];
        index /= v->extents[a];
    }
    size_t used = 0;
    out[0] = 0;
    for (int a = 0; a < v->rank && used < size; a++)
        used += (size_t)snprintf(out + used, size - used, "[%lld]", (long long)at[a]);
}

/* The truth of this case some times again, each time with every input moved by its last bit: what that does to a result is
 * what rounding does to it, and a device that is so far off is not wrong. */
static void shake_truth(checker *c, const check_case *at, const array_view *truth)
{
    int count = c->truth->param_count;
    if (c->moved) return;
    c->moved = ARENA_ARRAY(c->memory, double *, count + 1);
    for (int seed = 0; seed < 3; seed++) {
        qn_error error;
        qn_call *call;
        bool any = false;
        if (prepare(c, c->truth, at, &call, &error) != QN_OK) return;
        call->mode = QN_EAGER;
        for (int i = 0; i < count; i++) {
            param_kind kind = c->truth->params[i].kind;
            if (kind == PARAM_IN || kind == PARAM_INOUT) any |= view_shake(&call->arguments[i].view, seed);
        }
        bool ran = any && call_launch(call, c->ref_slot, NULL, &error) == QN_OK;
        for (int i = 0; ran && i < count; i++) {
            if (!truth[i].data || !dtype_is_float(truth[i].elem)) continue;
            if (!c->moved[i]) c->moved[i] = ARENA_ARRAY(c->memory, double, view_count(&truth[i]) + 1);
            moved_note(c->moved[i], &truth[i], &call->arguments[i].view);
        }
        qn_call_free(call);
    }
}

/* Every output of `call` against the copies of the truth. */
static void compare(checker *c, const check_case *at, const char *device, const qn_call *call, const array_view *truth)
{
    for (int i = 0; i < c->entry->param_count; i++) {
        const parameter *p = &c->entry->params[i];
        int other;
        if ((p->kind != PARAM_OUT && p->kind != PARAM_INOUT) || !entry_param(c->truth, p->name, &other)) continue;
        const array_view *actual = &call->arguments[i].view, *expected = &truth[other];
        if (!expected->data) continue;
        if (expected->elem != actual->elem || expected->rank != actual->rank ||
            memcmp(expected->extents, actual->extents, sizeof(actual->extents[0]) * (size_t)actual->rank)) {
            tell(c, at, device, "an output has another type or shape than in the reference");
            continue;
        }
        double relative, absolute;
        tolerances(c, call, expected->elem, &relative, &absolute);
        comparison result = arrays_compare(actual, expected, relative, absolute);
        if (result.wrong && dtype_is_float(expected->elem)) {
            shake_truth(c, at, truth);
            result = arrays_compare_moved(actual, expected, c->moved[other], relative, absolute);
        }
        if (!result.wrong) continue;
        char index[160];
        index_words(expected, result.first, index, sizeof(index));
        char words[600];
        plain_print(
            words, sizeof(words),
            "`%s%s` is %.9g, the reference has %.9g (allowed difference %.3g); %lld of %lld elements differ, at most "
            "by %.3g",
            p->name, index, result.actual, result.expected, result.allowed, (long long)result.wrong,
            (long long)result.count, result.worst);
        tell(c, at, device, words);
    }
}

/* On a GPU an access outside an array takes the device away and tells no line. So the first cases of a kernel run with
 * every access tested before they run as they are. False: that found something. */
static bool run_instrumented(checker *c, const check_case *at, int slot)
{
    device_slot *s = &c->context->slots[slot];
    if (!s->driver->set_checked || !s->driver->memory || c->compared >= INSTRUMENTED_CASES) return true;
    qn_error error;
    qn_call *call;
    s->driver->set_checked(s->device, true);
    s->checked = true;
    qn_status status = prepare(c, c->entry, at, &call, &error);
    if (status == QN_OK) status = call_launch(call, slot, NULL, &error);
    if (status != QN_OK) tell_failure(c, at, s->name, &error);
    qn_call_free(call);
    s->driver->set_checked(s->device, false);
    s->checked = false;
    return status == QN_OK;
}

/* Runs the case on one device as it is. */
static void run_device(checker *c, const check_case *at, int slot, const array_view *truth)
{
    const char *device = c->context->slots[slot].name;
    qn_error error;
    qn_call *call;
    if (!run_instrumented(c, at, slot)) return;
    qn_status status = prepare(c, c->entry, at, &call, &error);
    if (status == QN_OK) status = call_launch(call, slot, NULL, &error);
    if (status == QN_OK)
        compare(c, at, device, call, truth);
    else
        tell_failure(c, at, device, &error);
    c->compared++;
    qn_call_free(call);
}

/* The same with every array laid out in another way, over memory with gaps. */
static void run_strided(checker *c, const check_case *at, int slot, int style, const array_view *truth)
{
    char device[64];
    snprintf(device, sizeof(device), "%s (strided arrays)", c->context->slots[slot].name);
    qn_error error;
    qn_call *call;
    int most = c->entry->param_count + 1;
    array_view *views = ARENA_ARRAY(c->memory, array_view, most);
    void **bases = ARENA_ARRAY(c->memory, void *, most);
    size_t *sizes = ARENA_ARRAY(c->memory, size_t, most);
    qn_status status = prepare(c, c->entry, at, &call, &error);
    if (status == QN_OK) status = call_bind(call, slot, false, &error); /* gives the outputs their extents */
    for (int i = 0; status == QN_OK && i < c->entry->param_count; i++) {
        const parameter *p = &c->entry->params[i];
        if (p->rank < 0 || p->kind == PARAM_SCRATCH) continue;
        array_view from = call->arguments[i].view;
        if (!view_scatter(&from, style + i, &views[i], &bases[i], &sizes[i])) {
            status = error_set(&error, QN_NO_MEMORY, "no memory for a strided copy of `%s`", p->name);
            break;
        }
        if (p->kind != PARAM_OUT) view_assign(&views[i], &from);
        status = qn_call_set_memory(call, p->name, views[i].data, (qn_dtype)from.elem, from.rank, views[i].extents,
                                    views[i].strides, &error);
    }
    if (status == QN_OK) status = call_launch(call, slot, NULL, &error);
    if (status == QN_OK)
        compare(c, at, device, call, truth);
    else
        tell_failure(c, at, device, &error);
    for (int i = 0; i < c->entry->param_count; i++) {
        if (!bases[i]) continue;
        if (status == QN_OK && !view_gaps_intact(&views[i], bases[i], sizes[i])) {
            char words[200];
            snprintf(words, sizeof(words), "memory outside the array `%s` was written", c->entry->params[i].name);
            tell(c, at, device, words);
        }
        memory_free(bases[i]);
    }
    c->compared++;
    qn_call_free(call);
}

/* The truth: the interpreter with every check, in a random order of programs. Copies of its outputs into truth[]. */
static qn_status run_truth(checker *c, const check_case *at, int number, array_view *truth, qn_error *error)
{
    qn_call *call;
    findings found = {0};
    QN_TRY(prepare(c, c->truth, at, &call, error));
    call->mode = QN_EAGER; /* of a tensor function: one op at a time, each rounded */
    interp_options interp = {.check = true,
                             .order_seed = c->options->seed + (uint64_t)number + 1,
                             .units = slot_about(c->context, c->ref_slot)->units,
                             .step_limit = c->options->step_limit > 0 ? c->options->step_limit : STEP_LIMIT,
                             .print = c->context->print,
                             .print_context = c->context->user};
    launch_options options = {.interp = &interp, .found = &found};
    qn_status status = call_launch(call, c->ref_slot, &options, error);
    if (call->instance) tell_findings(c, at, &found, call->instance->kernel);
    if (status == QN_FINDING && !found.count) tell_failure(c, at, "ref", error); /* of a kernel that fusion made */
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

static bool wants(const checker *c, int slot)
{
    const device_slot *s = &c->context->slots[slot];
    const ast *item = c->entry ? c->entry->item : NULL;
    if (slot == c->ref_slot || (c->options->device && strcmp(c->options->device, s->name) != 0)) return false;
    bool raw = item && item->kind == AST_RAW;
    if (raw && !raw_runs_on(item->word, s->driver->name)) return false;
    if (s->driver == &driver_emu && !raw && !c->options->device) return false; /* see wants_text */
    return slot_about(c->context, slot)->available;
}

/* `emu` takes long: where nobody asks for it, it runs the text of one case. */
static bool wants_text(const checker *c, int slot)
{
    const device_slot *s = &c->context->slots[slot];
    bool raw = c->truth != c->entry;
    return s->driver == &driver_emu && !raw && !c->options->device && !c->options->no_emu &&
           slot_about(c->context, slot)->available;
}

static void run_case(checker *c, const check_case *at, int number)
{
    array_view *truth = ARENA_ARRAY(c->memory, array_view, c->truth->param_count + 1);
    qn_error error;
    int before = c->findings, empty_before = c->empty_count;
    int64_t start = clock_now_ns();
    qn_status status = run_truth(c, at, number, truth, &error);
    if (status == QN_BAD_SOURCE || (status != QN_OK && is_refusal(&error))) {
        skip(c, at, &error);
        return;
    }
    if (status == QN_NO_DEVICE && c->truth->item && c->truth->item->kind == AST_TENSOR) {
        say(c, "%s: skipped, %s\n", c->entry->name, error.message); /* a raw kernel in it */
        c->ended = true;
        return;
    }
    c->ran++;
    if (status != QN_OK && status != QN_FINDING) tell_failure(c, at, "ref", &error);
    bool raw = c->truth != c->entry;
    for (int slot = 0; status == QN_OK && slot < c->context->slot_count; slot++) {
        if (at->as_cuda && wants_text(c, slot)) {
            run_device(c, at, slot, truth);
            c->as_cuda++;
        }
        if (!wants(c, slot) || !(at->on_devices || raw)) continue;
        run_device(c, at, slot, truth);
        if (at->strided && !raw) run_strided(c, at, slot, number, truth);
    }
    for (int i = 0; i < c->truth->param_count; i++) memory_free(truth[i].data);
    c->moved = NULL;
    if (c->options->verbose) {
        text where = {0};
        check_describe(at, &where);
        say(c, "  %s %6.0f ms  %s\n",
            c->findings > before            ? "FOUND"
            : c->empty_count > empty_before ? "empty"
                                            : "ok   ",
            (double)(clock_now_ns() - start) * 1e-6, text_get(&where));
        text_free(&where);
    }
}

/* Its name, and of a function of any rank how many axes `[...]` had. */
static const char *called(const checker *c)
{
    const kernel_entry *e = c->entry;
    if (e->spread < 0) return e->name;
    return arena_print(c->memory, "%s with %d ax%s for [...]", e->name, e->spread, e->spread == 1 ? "is" : "es");
}

static void summary(checker *c)
{
    text devices = {0};
    bool raw = c->truth != c->entry;
    if (!raw) text_add(&devices, "ref");
    for (int slot = 0; slot < c->context->slot_count; slot++)
        if (wants(c, slot) && c->compared)
            text_print(&devices, "%s%s", devices.length ? ", " : "", c->context->slots[slot].name);
    const char *text_ran = c->as_cuda ? "; its CUDA text on emu, 1 case" : "";
    if (raw) text_print(&devices, " against the bench's first variant `%s`", c->truth->name);
    if (c->ran && c->misfit.length) {
        say(c, "%s", text_get(&c->misfit));
        c->findings++;
    }
    if (!c->ran && c->broken.length) {
        bool sized = c->entry->item && c->entry->item->kind == AST_TENSOR && c->broken_code / 100 == 3;
        say(c, "%s%s: does not compile%s\n", text_get(&c->broken), c->entry->name,
            sized ? " with sizes that are chosen each for itself; give some that fit with --set, or write what one is "
                    "of the "
                    "others where it is declared: `float w[8 * H][C]`"
                  : "");
        c->findings++;
    } else if (!c->ran && c->assumed.length) {
        say(c, "%s: no size that was tried satisfies %s; give sizes with --set\n", c->entry->name,
            text_get(&c->assumed));
        c->findings++;
    } else if (!c->ran) {
        say(c, "%s: every case that was tried is refused; give sizes with --set. The first refusal:\n%s",
            c->entry->name, text_get(&c->skip_reason));
        c->findings++;
    } else if (c->findings) {
        say(c, "%s: %d finding%s in %d cases on %s%s\n", called(c), c->findings, c->findings == 1 ? "" : "s", c->ran,
            text_get(&devices), text_ran);
    } else {
        say(c, "%s: clean, %d cases on %s%s", called(c), c->ran, text_get(&devices), text_ran);
        if (c->skipped)
            say(c, "; %d refused by %s", c->skipped, c->assumed.length ? text_get(&c->assumed) : "the kernel");
        say(c, "%s\n", c->stopped ? "; stopped at the time limit" : "");
    }
    if (c->empty_count)
        say(c, "  with an empty array ref finds, not counted: %s; --set NAME=0 reports it in full\n",
            text_get(&c->empty));
    if (c->ran && c->refused.length && !c->misfit.length)
        say(c, "  it does not compile with %s\n", text_get(&c->refused));
    text_free(&devices);
}

/* The kernel as one JSON object: what the summary says, for programs. */
static void tell_each(checker *c)
{
    if (!c->options->each) return;
    text out = {0};
    text_add(&out, "{");
    text_add(&out, "\"file\": ");
    json_add_string(&out, c->module->file ? c->module->file->path : "");
    text_add(&out, ", ");
    text_add(&out, "\"kernel\": ");
    json_add_string(&out, c->entry->name);
    text_print(&out, ", \"status\": \"%s\", \"cases\": %d, \"findings\": %d, \"refused\": %d, \"stopped\": %s",
               c->findings ? "found"
               : c->ran    ? "clean"
                           : "skipped",
               c->ran, c->findings, c->skipped, c->stopped ? "true" : "false");
    text_add(&out, ", \"devices\": [");
    int count = 0;
    if (c->truth == c->entry) text_print(&out, "\"ref\""), count++;
    for (int slot = 0; slot < c->context->slot_count; slot++)
        if ((wants(c, slot) && c->compared) || (c->as_cuda && wants_text(c, slot)))
            text_print(&out, "%s\"%s\"", count++ ? ", " : "", c->context->slots[slot].name);
    text_add(&out, "], ");
    text_add(&out, "\"text\": ");
    json_add_string(&out, text_get(&c->told_text));
    text_add(&out, "}");
    c->options->each(c->options->each_user, text_get(&out), out.length);
    text_free(&out);
}

/* Who is right for this kernel; NULL with a line of explanation if it cannot be checked here. */
static kernel_entry *find_truth(checker *c, kernel_entry *entry)
{
    if (!entry->item || entry->item->kind != AST_RAW) return entry;
    bool runs = false;
    for (int slot = 0; slot < c->context->slot_count; slot++) runs |= wants(c, slot);
    if (!runs) {
        say(c, "%s: skipped, %s text, and no device that runs it is %s\n", entry->name, entry->item->word,
            c->options->device ? "asked for" : "here");
        return NULL;
    }
    if (!c->context->allow_raw) {
        say(c, "%s: skipped, raw kernels are not allowed here\n", entry->name);
        return NULL;
    }
    const ast *bench = bench_of(c->module->file, entry->name);
    kernel_entry *first = bench ? module_find(c->module, bench->list.items[0]->name, NULL) : NULL;
    if (!first || first == entry || !first->item || first->item->kind != AST_KERNEL) {
        say(c,
            "%s: skipped, a raw kernel is compared with the first variant of its bench, which must be a tile kernel\n",
            entry->name);
        return NULL;
    }
    return first;
}

static void check_kernel(checker *c, kernel_entry *entry)
{
    c->entry = entry;
    c->truth = find_truth(c, entry);
    if (!c->truth) return;
    c->memory = arena_new();
    c->seen_count = c->told_count = c->ran = c->skipped = c->compared = c->findings = c->as_cuda = 0;
    c->empty_count = 0;
    c->stopped = c->endless = c->ended = false;
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
    for (int i = 0; i < cases.count && !c->stopped; i++) {
        run_case(c, &cases.items[i], i);
        c->stopped = clock_now_ns() - start > KERNEL_LIMIT_NS && i + 1 < cases.count;
        if (c->findings >= 10 || c->endless || c->ended)
            break; /* enough to read; the other sizes would not end either */
    }
    if (!c->ended) summary(c);
    tell_each(c);
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
        bound = !cases.items[i].empty && prepare(c, entry, &cases.items[i], &call, error) == QN_OK &&
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
    checker c = {.context = context, .options = options ? options : &defaults, .write = write, .user = user};
    QN_TRY(context_slot(context, "ref", &c.ref_slot, error));
    int slot;
    if (c.options->device) QN_TRY(context_slot(context, c.options->device, &slot, error));
    QN_TRY(qn_module_load_file(context, path, &c.module, error));
    set_checked(context, true);
    kernel_entry *only = c.options->kernel ? module_find(c.module, c.options->kernel, error) : NULL;
    qn_status status = c.options->kernel && !only ? QN_BAD_CALL : QN_OK;
    if (!c.options->kernel && !c.module->kernel_count)
        status = error_set(error, QN_BAD_CALL, "%s has no kernel to check", path);
    for (int i = 0; status == QN_OK && c.no_memory.status == QN_OK && i < c.module->kernel_count; i++)
        if (only ? only == &c.module->kernels[i] : !ast_is_imported(c.module->kernels[i].item))
            check_entry(&c, &c.module->kernels[i]);
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
