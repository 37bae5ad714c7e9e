/*
 * `tune`: the fastest configuration of one kernel at one size. In: a file, a kernel, a device, a budget. Out: a table of
 * every candidate; every timing in the cache's record, which later calls choose from.
 *
 * Candidates are compiled in parallel, those that spill are rejected, each is run once and its results compared with
 * those of the first, then the right ones are timed in turn by the bench's clock: a little at first, then again without
 * those that are clearly slower than the best. The budget ends each of these steps early, but the configuration that
 * runs without tuning is always timed.
 * SPDX-License-Identifier: MIT
 */
#include "profile/tune/tune.h"
#include "run/compile/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double hopeless = 1.3;                              /* times slower than the best after the first look */
static const double compile_share = 0.5, first_look_share = 0.2; /* of the budget */

static double spent(const tuning *t)
{
    return (double)(clock_now_ns() - t->start_ns) / t->budget_ns;
}

static void end(tuning *t, candidate *c, candidate_status status, const char *message)
{
    size_t length = strlen(message);
    while (length && message[length - 1] == '\n') length--;
    c->status = status;
    c->message = arena_copy_text(t->bench.memory, message, length);
}

/* ---- compiling ---- */

/* Registers and spills of the worst kernel of a cubin; the other devices' binaries are none. */
static void read_usage(candidate *c, const char *binary_path)
{
    char *bytes = NULL;
    size_t size;
    if (!binary_path || file_read(binary_path, (size_t)256 << 20, &bytes, &size, NULL) != QN_OK) return;
    const char *symbol;
    for (int i = 0; (symbol = cubin_symbol(bytes, size, i)); i++) {
        cubin_usage usage;
        if (!cubin_read(bytes, size, symbol, &usage)) continue;
        bool worse = usage.local_bytes > c->usage.local_bytes ||
                     (usage.local_bytes == c->usage.local_bytes && usage.registers > c->usage.registers);
        if (!c->has_usage || worse) c->usage = usage;
        c->has_usage = true;
    }
    heap_free(bytes);
}

static void finish_job(tuning *t, candidate *c, const compile_job *job)
{
    if (job->status == QN_BAD_CALL || job->status == QN_BAD_SOURCE) {
        end(t, c, CANDIDATE_REFUSED, job->error.message);
    } else if (job->status != QN_OK) {
        end(t, c, CANDIDATE_FAILED, job->error.message);
    } else {
        c->status = CANDIDATE_OK;
        read_usage(c, job->variant->binary_path);
        if (c->has_usage && c->usage.local_bytes > 0 && !c->is_default)
            end(t, c, CANDIDATE_SPILLS,
                arena_print(t->bench.memory, "%lld bytes of local memory a thread", (long long)c->usage.local_bytes));
    }
}

static qn_status compile_chunk(tuning *t, int first, int count, int threads, qn_error *error)
{
    bench *b = &t->bench;
    compile_job *jobs = heap_array((size_t)count, sizeof(*jobs));
    int ready = 0;
    int *numbers = ARENA_ARRAY(b->memory, int, count);
    for (int i = 0; i < count; i++) {
        candidate *c = &t->items[first + i];
        int number = first + i;
        b->block = tune_block(t, &number, 1);
        plan_variants(b);
        qn_status status = plan_call(b, &b->variants[0], &b->at, &jobs[ready].call, error);
        if (status != QN_OK) {
            end(t, c, CANDIDATE_REFUSED, error->message);
            continue;
        }
        if (call_is_function(jobs[ready].call)) { /* its kernels are compiled when it is checked */
            qn_call_free(jobs[ready].call);
            c->status = CANDIDATE_OK;
            continue;
        }
        jobs[ready].usual = true;
        jobs[ready].slot = b->slot;
        numbers[ready++] = number;
    }
    calls_compile(jobs, ready, threads);
    for (int i = 0; i < ready; i++) {
        finish_job(t, &t->items[numbers[i]], &jobs[i]);
        qn_call_free(jobs[i].call);
    }
    heap_free(jobs);
    return QN_OK;
}

static qn_status compile_all(tuning *t, qn_error *error)
{
    int threads = cpu_count();
    for (int first = 0; first < t->taken; first += threads) {
        if (first && spent(t) > compile_share) break;
        int count = MINIMUM(threads, t->taken - first);
        bench_say(&t->bench, "compiling %d to %d of %d candidates", first + 1, first + count, t->taken);
        QN_TRY(compile_chunk(t, first, count, threads, error));
    }
    return QN_OK;
}

/* ---- timing ---- */

static void take_times(tuning *t, const int *numbers)
{
    const bench *b = &t->bench;
    t->best = -1;
    for (int i = 0; i < b->variant_count; i++) {
        const bench_variant *v = &b->variants[i];
        candidate *c = &t->items[numbers[i]];
        if (v->status == VARIANT_WRONG) end(t, c, CANDIDATE_WRONG, v->message);
        if (v->status == VARIANT_SKIPPED && v->asks_library)
            end(t, c, CANDIDATE_REFUSED, v->message);
        else if (v->status == VARIANT_FAILED || v->status == VARIANT_SKIPPED)
            end(t, c, CANDIDATE_FAILED, v->message);
        const qn_bench_time *time = &v->arm.time;
        if (v->status != VARIANT_OK || !time->sample_count) continue;
        c->median_ns = time->median_ns;
        c->low_ns = time->low_ns;
        c->high_ns = time->high_ns;
        c->samples = time->sample_count;
        if (t->best < 0 || c->median_ns < t->items[t->best].median_ns) t->best = numbers[i];
    }
}

/* A first look at all, then the rest of the time for those that can still be the best. */
static void time_all(tuning *t, const int *numbers)
{
    bench *b = &t->bench;
    int right = 0;
    for (int i = 0; i < b->variant_count; i++) right += b->variants[i].status == VARIANT_OK;
    if (!right) {
        take_times(t, numbers);
        return;
    }
    double left = MAXIMUM(1 - spent(t), 0.05) * t->budget_ns * 1e-9;
    t->bench_options.seconds = MINIMUM(left * first_look_share / right, 0.3);
    clock_variants(b);
    take_times(t, numbers);
    if (t->best < 0) return;
    int hopeful = 0;
    double best_ns = t->items[t->best].median_ns;
    for (int i = 0; i < b->variant_count; i++) {
        bench_variant *v = &b->variants[i];
        candidate *c = &t->items[numbers[i]];
        if (v->status != VARIANT_OK) continue;
        if (c->median_ns > hopeless * best_ns && !c->is_default) {
            c->status = CANDIDATE_SLOW;
            v->status = VARIANT_SKIPPED; /* its samples are in the candidate already */
        } else {
            hopeful++;
        }
    }
    left = MAXIMUM(1 - spent(t), 0.0) * t->budget_ns * 1e-9;
    if (left > 0) {
        t->bench_options.seconds = MINIMUM(left / hopeful, 2.0);
        clock_variants(b);
    }
    for (int i = 0; i < b->variant_count; i++)
        if (t->items[numbers[i]].status == CANDIDATE_SLOW) b->variants[i].status = VARIANT_OK;
    take_times(t, numbers);
}

static void close_variants(bench *b)
{
    clock_close(b);
    for (int i = 0; i < b->variant_count; i++) {
        qn_call_free(b->variants[i].call);
        race_arm_free(&b->variants[i].arm);
    }
    b->variant_count = 0;
    arrays_free(&b->arrays);
}

static qn_status measure(tuning *t, qn_error *error)
{
    bench *b = &t->bench;
    int *numbers = ARENA_ARRAY(b->memory, int, t->taken + 1), count = 0;
    for (int i = 0; i < t->taken; i++)
        if (t->items[i].status == CANDIDATE_OK) numbers[count++] = i;
    t->best = -1;
    if (!count) return QN_OK;
    b->block = tune_block(t, numbers, count);
    plan_variants(b);
    qn_status status = verify_full(b, error);
    if (status == QN_OK) status = clock_prepare(b, error);
    if (status == QN_OK) time_all(t, numbers);
    close_variants(b);
    return status;
}

/* Every timing, under the key of a call that leaves the tuned constants open. */
static qn_status remember(tuning *t, qn_error *error)
{
    bench *b = &t->bench;
    qn_call *call;
    bench_variant plain = {.kernel = t->entry->name};
    text key = {0};
    QN_TRY(plan_call(b, &plain, &b->at, &call, error));
    for (int i = 0; i < t->name_count; i++) call_forget_setting(call, t->names[i]);
    qn_status status = tune_key_of(call, b->slot, &key, error);
    t->kept = status == QN_OK;
    for (int i = 0; i < t->count && status == QN_OK; i++)
        if (isfinite(t->items[i].median_ns))
            t->kept &= tune_record(b->context, text_get(&key), t->items[i].words, t->items[i].median_ns);
    text_free(&key);
    qn_call_free(call);
    return status;
}

static qn_status run(tuning *t, const char *path, qn_error *error)
{
    bench *b = &t->bench;
    plan p;
    int nobody = 0;
    b->block = tune_block(t, &nobody, 0);
    QN_TRY(bench_plan_make(b, &p, error));
    QN_TRY(plan_point(b, &p, 0, &b->at, error));
    QN_TRY(tune_plan(t, error));
    bool full = t->options->effort && !strcmp(t->options->effort, "full");
    t->taken = full ? t->count : MINIMUM(t->count, TUNE_QUICK_CANDIDATES);
    QN_TRY(compile_all(t, error));
    QN_TRY(measure(t, error));
    if (t->best < 0) {
        const candidate *first = &t->items[0];
        return error_set(error, QN_FAILED, "no candidate of kernel `%s` could be timed; the first (%s): %s",
                         t->entry->name, first->words, *first->message ? first->message : "not looked at");
    }
    QN_TRY(remember(t, error));
    text words = {0};
    tune_table(t, &words);
    b->write(b->user, text_get(&words), words.length);
    text_free(&words);
    if (!t->options->json_path) return QN_OK;
    json out = {0};
    tune_json(t, path, &out);
    const char *list = json_finish(&out);
    qn_status status = file_write(t->options->json_path, list, strlen(list), error);
    json_free(&out);
    return status;
}

/* Unknown settings are told before anything is compiled. */
static qn_status check_settings(tuning *t, qn_error *error)
{
    qn_call *call;
    QN_TRY(qn_call_new(t->bench.module, t->entry->name, &call, error));
    qn_status status = call_apply(call, &t->options->settings, error);
    qn_call_free(call);
    return status;
}

static qn_status open_kernel(tuning *t, const char *path, const char *kernel, qn_error *error)
{
    bench *b = &t->bench;
    const char *effort = t->options->effort;
    if (effort && strcmp(effort, "quick") != 0 && strcmp(effort, "full") != 0)
        return error_set(error, QN_BAD_CALL, "the effort is quick or full, not `%s`", effort);
    QN_TRY(context_slot(b->context, b->device, &b->slot, error));
    if (!b->context->slots[b->slot].driver->emit)
        return error_set(error, QN_BAD_CALL, "the device %s compiles nothing: there is nothing to tune", b->device);
    QN_TRY(qn_module_load_file(b->context, path, &b->module, error));
    t->entry = module_find(b->module, kernel, error);
    if (!t->entry) return QN_BAD_CALL;
    if (!t->entry->item)
        return error_set(error, QN_BAD_CALL, "`%s` is not of a .qn file: it has no `tune` clause", kernel);
    QN_TRY(check_settings(t, error));
    /* A path that cannot be written is told before anything is timed. */
    return t->options->json_path ? file_write(t->options->json_path, "[]\n", 3, error) : QN_OK;
}

qn_status qn_tune(qn_context *context, const char *path, const char *kernel, const qn_tune_options *options,
                  qn_write *write, qn_write *progress, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    const qn_tune_options defaults = {0};
    qn_error unread;
    if (!error) error = &unread;
    if (!context || !path || !kernel || !write) return error_set(error, QN_BAD_CALL, "qn_tune: an argument is NULL");
    tuning *t = heap_new(sizeof(*t));
    t->options = options ? options : &defaults;
    t->start_ns = clock_now_ns();
    t->budget_ns = (t->options->budget_s > 0 ? t->options->budget_s : 30) * 1e9;
    t->bench_options = (qn_bench_options){.settings = t->options->settings,
                                          .seed = t->options->seed,
                                          .progress = t->options->progress,
                                          .colour = t->options->colour};
    t->bench = (bench){.context = context,
                       .options = &t->bench_options,
                       .device = t->options->device ? t->options->device : qn_device_best(context),
                       .ref_slot = -1, /* `check` is for that: here candidates are compared with each other */
                       .write = write,
                       .progress = progress,
                       .user = user,
                       .memory = arena_new(),
                       .tolerance_given = true,
                       .relative = 1e-2,
                       .absolute = 1e-2};
    qn_status status = open_kernel(t, path, kernel, error);
    if (status == QN_OK) status = run(t, path, error);
    qn_module_free(t->bench.module);
    arena_free(t->bench.memory);
    heap_free(t);
    return status;
}
