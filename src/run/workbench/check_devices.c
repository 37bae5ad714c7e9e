/*
 * What `check` runs on the devices beside the interpreter. In: a case, then the truth about it. Out: the disagreements, on
 * contiguous arrays and on views with gaps, and memory that was written between them.
 *
 * A case's runs are made first and launched later, so that several cases can be compiled at once; nothing is launched
 * before the interpreter found the case to be right.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/check_state.h"

#include <string.h>

#define INSTRUMENTED_RUNS 2

/* ---- comparing ---- */

/* A `double` that was computed in `float`, or a `float` that was rounded to 16 bits on the way, is as good as that. */
static void find_rounding(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    dtype *least = context;
    for (int i = 0; i < op->result_count; i++) {
        dtype elem = tile_type_of(k, op->results[i]).elem;
        bool computed = op->code == OP_CONVERT || ops[op->code].class == CLASS_BINARY ||
                        ops[op->code].class == CLASS_TERNARY || ops[op->code].class == CLASS_FOLD;
        if (!computed || !dtype_is_float(elem)) continue;
        if (dtypes[elem].digits < dtypes[*least].digits) *least = elem;
    }
}

static void tolerances(const checker *c, const qn_call *call, dtype elem, double *relative, double *absolute)
{
    dtype least = elem;
    tile_kernel *k = call->instance->kernel;
    for (int i = 0; dtype_is_float(elem) && i < k->phase_count; i++) tile_walk(k, k->phases[i], find_rounding, &least);
    if (call_is_function(call) && dtype_is_float(elem)) {
        dtype other = call->instance->narrowest; /* eager rounds to it where fused does not */
        if (dtypes[other].digits < dtypes[least].digits) least = other;
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
        if (checker_prepare(c, c->truth, at, &call, &error) != QN_OK) return;
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
            checker_tell(c, at, device, "an output has another type or shape than in the reference");
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
        checker_tell(c, at, device, words);
    }
}

/* ---- runs ---- */

static check_run *add_run(checker *c, check_runs *runs, int slot)
{
    check_run *r = &runs->items[runs->count++];
    int most = c->entry->param_count + 1;
    *r = (check_run){.slot = slot,
                     .views = ARENA_ARRAY(c->memory, array_view, most),
                     .bases = ARENA_ARRAY(c->memory, void *, most),
                     .sizes = ARENA_ARRAY(c->memory, size_t, most)};
    return r;
}

/* Every array laid out in another way, over memory with gaps. */
static qn_status scatter(checker *c, check_run *r, int style, qn_error *error)
{
    QN_TRY(call_bind(r->call, r->slot, false, error)); /* gives the outputs their extents */
    for (int i = 0; i < c->entry->param_count; i++) {
        const parameter *p = &c->entry->params[i];
        if (p->rank < 0 || p->kind == PARAM_SCRATCH) continue;
        array_view from = r->call->arguments[i].view;
        if (!view_scatter(&from, style + i, &r->views[i], &r->bases[i], &r->sizes[i]))
            return error_set(error, QN_NO_MEMORY, "no memory for a strided copy of `%s`", p->name);
        if (p->kind != PARAM_OUT) view_assign(&r->views[i], &from);
        QN_TRY(qn_call_set_memory(r->call, p->name, r->views[i].data, (qn_dtype)from.elem, from.rank,
                                  r->views[i].extents, r->views[i].strides, error));
    }
    return QN_OK;
}

static void make_run(checker *c, const check_case *at, check_runs *runs, int slot, bool strided, int style)
{
    check_run *r = add_run(c, runs, slot);
    r->strided = strided;
    r->status = checker_prepare(c, c->entry, at, &r->call, &r->error);
    if (r->status == QN_OK && strided) r->status = scatter(c, r, style, &r->error);
}

/* `emu` is there to watch where raw text reads and writes, which its element type does not change: where a GPU compares the
 * other types, it need not compile them too. */
static bool runs_elsewhere(const checker *c, int slot)
{
    bool elsewhere = false;
    for (int i = 0; i < c->context->slot_count; i++)
        elsewhere |= i != slot && c->context->slots[i].driver->memory && checker_wants(c, i);
    return elsewhere && c->context->slots[slot].driver == &driver_emu;
}

void check_runs_make(checker *c, const check_case *at, int number, check_runs *runs)
{
    bool raw = c->truth != c->entry;
    *runs = (check_runs){.items = ARENA_ARRAY(c->memory, check_run, 4 * c->context->slot_count)};
    for (int slot = 0; slot < c->context->slot_count; slot++) {
        if (at->as_cuda && checker_wants_text(c, slot)) {
            make_run(c, at, runs, slot, false, 0);
            runs->items[runs->count - 1].as_cuda = true;
        }
        if (!checker_wants(c, slot) || !(at->on_devices || raw)) continue;
        if (raw && at->again && runs_elsewhere(c, slot)) continue;
        make_run(c, at, runs, slot, false, 0);
        if (at->strided && !raw) make_run(c, at, runs, slot, true, number);
    }
}

static void compile_these(check_runs *runs, int count, bool instrumented)
{
    int total = 0, jobs_count = 0;
    for (int i = 0; i < count; i++) total += runs[i].count;
    compile_job *jobs = heap_array((size_t)total + 1, sizeof(*jobs));
    for (int i = 0; i < count; i++)
        for (int k = 0; k < runs[i].count; k++) {
            check_run *r = &runs[i].items[k];
            if (r->status == QN_OK && r->instrumented == instrumented)
                jobs[jobs_count++] = (compile_job){.call = r->call, .slot = r->slot};
        }
    calls_compile(jobs, jobs_count, cpu_count()); /* why one could not be, its launch will say */
    heap_free(jobs);
}

/* GPUs whose kernels are made with tests of every access from now on, or without. */
static void set_instrumented(qn_context *context, bool on)
{
    for (int slot = 0; slot < context->slot_count; slot++) {
        device_slot *s = &context->slots[slot];
        if (!s->driver->set_checked || !s->driver->memory) continue;
        s->driver->set_checked(s->device, on);
        s->checked = on;
    }
}

static bool wants_instrumented(const checker *c, int slot)
{
    const driver *d = c->context->slots[slot].driver;
    return d->set_checked && d->memory && c->compared < INSTRUMENTED_RUNS;
}

void check_runs_add_instrumented(checker *c, const check_case *at, check_runs *runs)
{
    for (int i = 0, count = runs->count; i < count; i++, c->compared++) {
        if (runs->items[i].strided || !wants_instrumented(c, runs->items[i].slot)) continue;
        make_run(c, at, runs, runs->items[i].slot, false, 0);
        runs->items[runs->count - 1].instrumented = true;
    }
}

void check_runs_compile(qn_context *context, check_runs *runs, int count)
{
    set_instrumented(context, true);
    compile_these(runs, count, true);
    set_instrumented(context, false);
    compile_these(runs, count, false);
}

void check_runs_free(check_runs *runs)
{
    for (int i = 0; i < runs->count; i++) {
        check_run *r = &runs->items[i];
        int count = r->call ? r->call->kernel->param_count : 0;
        qn_call_free(r->call);
        for (int k = 0; k < count; k++)
            if (r->bases[k]) memory_free(r->bases[k]);
    }
    runs->count = 0;
}

/* On a GPU an access outside an array takes the device away and tells no line. So the first runs of a kernel have every
 * access tested before they go as they are. False: that found something. */
static bool run_instrumented(checker *c, const check_case *at, int slot)
{
    if (!wants_instrumented(c, slot)) return true;
    qn_error error;
    qn_call *call;
    set_instrumented(c->context, true);
    qn_status status = checker_prepare(c, c->entry, at, &call, &error);
    if (status == QN_OK) status = call_launch(call, slot, NULL, &error);
    if (status != QN_OK) checker_tell_failure(c, at, c->context->slots[slot].name, &error);
    qn_call_free(call);
    set_instrumented(c->context, false);
    return status == QN_OK;
}

static void compare_gaps(checker *c, const check_case *at, const char *device, const check_run *r)
{
    for (int i = 0; i < c->entry->param_count; i++) {
        if (!r->bases[i] || view_gaps_intact(&r->views[i], r->bases[i], r->sizes[i])) continue;
        char words[200];
        snprintf(words, sizeof(words), "memory outside the array `%s` was written", c->entry->params[i].name);
        checker_tell(c, at, device, words);
    }
}

void check_runs_compare(checker *c, const check_case *at, check_runs *runs, const array_view *truth)
{
    for (int i = 0; i < runs->count; i++) {
        check_run *r = &runs->items[i];
        char device[64];
        snprintf(device, sizeof(device), "%s%s", c->context->slots[r->slot].name,
                 r->strided ? " (strided arrays)" : "");
        c->as_cuda += r->as_cuda;
        if (!r->strided && !run_instrumented(c, at, r->slot)) continue;
        if (r->status == QN_OK) r->status = call_launch(r->call, r->slot, NULL, &r->error);
        if (r->status == QN_OK) {
            compare(c, at, device, r->call, truth);
            compare_gaps(c, at, device, r);
        } else {
            checker_tell_failure(c, at, device, &r->error);
        }
        c->compared++;
    }
}
