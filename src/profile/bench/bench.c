/*
 * `bench`: every block of a file, every point of a block: plan, check, time, report. In: a file, a device, settings.
 * Out: a table per point (one for all points of a sweep) through `write`, JSON, CSV and a plot in files if asked for. A
 * variant that is wrong, failed, or slower than the baseline makes the result a finding, after everything has been
 * measured that can be.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"
#include "profile/measure/environment.h"
#include "profile/measure/roofs.h"

#include <stdlib.h>
#include <string.h>

static qn_status read_tolerance(bench *b, qn_error *error)
{
    const ast *clause = clause_of(b->block, "tolerance");
    double *places[] = {&b->relative, &b->absolute};
    b->relative = b->absolute = 0;
    b->tolerance_given = clause != NULL;
    for (int i = 0; clause && i < clause->list.count; i++) {
        bindings known = {0};
        binding value = {0};
        diagnostics d = {.memory = b->memory};
        const char *unbound = NULL;
        if (i >= COUNT(places) ||
            !lang_evaluate(b->module->file, clause->list.items[i], &known, 1, &d, &value, &unbound) || d.errors ||
            (value.kind != BIND_INT && value.kind != BIND_FLOAT))
            return error_set(error, QN_BAD_SOURCE,
                             "%s:%d: `tolerance` of bench `%s` takes one or two numbers: relative, absolute",
                             b->module->path, clause->from.line, b->block->name);
        *places[i] = value.kind == BIND_INT ? (double)value.number.i : value.number.f;
        if (!(*places[i] >= 0)) /* with NaN nothing would be wrong */
            return error_set(error, QN_BAD_SOURCE, "%s:%d: `tolerance` of bench `%s` takes numbers from 0",
                             b->module->path, clause->from.line, b->block->name);
    }
    return QN_OK;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The copy of as many bytes as the variants move. What was measured for like sizes before counts as well: the best is
 * the ceiling, since anything else on the machine only takes from it. */
static void measure_limits(bench *b)
{
    double bytes = 0;
    qn_error error;
    qn_ceilings now, *best = &b->ceilings;
    for (int i = 0; i < b->variant_count; i++)
        if (b->variants[i].status == VARIANT_OK) bytes = larger(bytes, b->variants[i].bytes);
    if (bytes <= 0) return;
    /* Half is read, half written. A device with memory of its own rotates what would fit its cache. */
    bool rotates = b->context->slots[b->slot].driver->measure != NULL;
    size_t copy_bytes = rotates ? (size_t)(bytes / 2) : MAXIMUM((size_t)(bytes / 2), 2 * bench_cache_bytes(b));
    bench_say(b, "measuring the copy bandwidth of %.0f MB", (double)copy_bytes * 2e-6);
    if (qn_measure(b->context, b->device, copy_bytes, &now, &error) != QN_OK) return;
    if (copy_bytes >= 2 * b->ceilings_bytes || b->ceilings_bytes >= 2 * copy_bytes) *best = now;
    b->ceilings_bytes = copy_bytes;
    best->copy_gb_per_s = larger(best->copy_gb_per_s, now.copy_gb_per_s);
    best->read_gb_per_s = larger(best->read_gb_per_s, now.read_gb_per_s);
    best->fma_one_gflop_per_s = larger(best->fma_one_gflop_per_s, now.fma_one_gflop_per_s);
    best->fma_all_gflop_per_s = larger(best->fma_all_gflop_per_s, now.fma_all_gflop_per_s);
}

/* A variant cannot be faster than the machine: then the limit was measured in a bad moment. */
static bool limits_are_odd(const bench *b)
{
    const char *limit;
    for (int i = 0; i < b->variant_count; i++)
        if (share_is_above(share_of_limit(b, &b->variants[i], &limit))) return true;
    return false;
}

/* Is a variant faster than multiply-adds? Then its limit are the tensor cores', or on a CPU those of the instructions for products of
 * narrow types, which are measured once for a machine. A processor has none for wide types: there the limit was measured low. */
static bool beats_multiply_adds(const bench *b)
{
    double peak = b->ceilings.fma_all_gflop_per_s;
    if (!(peak > 0)) return false;
    for (int i = 0; i < b->variant_count; i++) {
        const bench_variant *v = &b->variants[i];
        if (v->status != VARIANT_OK || !v->arm.time.sample_count) continue; /* what failed may not have been compiled */
        const record_facts *facts = v->call ? call_facts(v->call) : NULL;
        bool narrow = facts && facts->shapes && (strstr(facts->shapes, " bf16[") || strstr(facts->shapes, "8["));
        if (!narrow && !target_is_gpu(b->device)) continue;
        if (v->flops / v->arm.time.median_ns > peak) return true;
    }
    return false;
}

static void close_point(bench *b)
{
    clock_close(b);
    for (int i = 0; i < b->variant_count; i++) {
        qn_call_free(b->variants[i].call);
        race_arm_free(&b->variants[i].arm);
    }
    arrays_free(&b->arrays);
}

static void write_words(const bench *b, text *words)
{
    b->write(b->user, text_get(words), words->length);
    text_free(words);
}

static void count_outcomes(bench *b)
{
    for (int i = 0; i < b->variant_count; i++) {
        const bench_variant *v = &b->variants[i];
        b->bad += v->status == VARIANT_WRONG || v->status == VARIANT_FAILED;
        b->slower += v->baseline.verdict == QN_SLOWER;
        b->ambiguous += v->baseline.verdict == QN_AMBIGUOUS;
        b->matched += v->baseline.against != NULL;
    }
}

/* Files are whole after every point, so that what was measured is there whenever it ends. */
static qn_status write_files(const bench *b, qn_error *error)
{
    const qn_bench_options *o = b->options;
    qn_status status = QN_OK;
    if (o->json_path) {
        json out = {0};
        results_json(b->results, &out);
        const char *words = json_finish(&out);
        status = file_write(o->json_path, words, strlen(words), error);
        json_free(&out);
    }
    if (o->csv_path && status == QN_OK) {
        text out = {0};
        results_csv(b->results, &out);
        status = file_write(o->csv_path, text_get(&out), out.length, error);
        text_free(&out);
    }
    if (o->plot_path && status == QN_OK && b->results->point_count) {
        text out = {0};
        const char *last = b->results->points[b->results->point_count - 1].bench;
        if (plot_sweep(b->results, last, 3, &out)) status = file_write(o->plot_path, text_get(&out), out.length, error);
        text_free(&out);
    }
    return status;
}

static qn_status run_point(bench *b, const plan *p, int64_t number, const char *path, qn_error *error)
{
    plan_variants(b);
    QN_TRY(plan_point(b, p, number, &b->at, error));
    qn_status status = verify_small(b, error);
    if (status == QN_OK) status = verify_full(b, error);
    if (status == QN_OK) status = clock_prepare(b, error);
    if (status == QN_OK) {
        text words = {0};
        /* A short look at the variants takes a short look at the limits. */
        bool brief = b->options->seconds > 0 && b->options->seconds < 0.1, first = !b->ceilings_bytes && !brief;
        if (!brief || !b->ceilings_bytes) measure_limits(b);
        clock_variants(b);
        if (first) measure_limits(b);
        if (beats_multiply_adds(b)) (void)!qn_roofline_get(b->context, b->device, false, &b->roofline, NULL);
        for (int tries = 0; tries < (brief ? 1 : 2) && limits_are_odd(b); tries++) measure_limits(b);
        if (b->baseline) baseline_compare(b->baseline, b);
        results_add(b->results, b, path);
        b->results->environment.throttling = held_words(b->held);
        if (b->options->sweeps.count)
            report_messages(b, &words);
        else
            report_table(b, &words);
        if (b->options->hints) bench_hints(b, &words);
        write_words(b, &words);
        count_outcomes(b);
        status = write_files(b, error);
        if (status == QN_OK) status = page_add_point(b, error);
    }
    close_point(b);
    return status;
}

static qn_status run_points(bench *b, const plan *p, const char *path, qn_error *error)
{
    int64_t points = plan_points(p);
    b->step_total = points * ((int64_t)4 * b->block->list.count + 1);
    b->step_count = 0;
    bool sweeps = b->options->sweeps.count > 0;
    qn_status status = QN_OK;
    for (int64_t number = 0; number < points && status == QN_OK; number++) {
        if (sweeps) bench_say(b, "point %lld of %lld", (long long)number + 1, (long long)points);
        status = run_point(b, p, number, path, error);
        if (status != QN_NO_MEMORY || !sweeps || !number) continue;
        text words = {0}; /* the sweep ends where the memory does */
        text_print(&words, "%s: the sweep ends before ", b->block->name);
        point_print(&b->at, &words);
        text_print(&words, ": %s\n", error->message);
        write_words(b, &words);
        status = QN_OK;
        break;
    }
    if (sweeps && status == QN_OK) {
        text words = {0};
        sweep_table(b->results, b->block->name, b->options->colour, &words);
        write_words(b, &words);
    }
    return status;
}

static qn_status run_block(bench *b, const char *path, qn_error *error)
{
    plan p;
    b->memory = arena_new();
    plan_variants(b);
    qn_status status = QN_OK;
    if (!b->variant_count) {
        const char *words =
            arena_print(b->memory, "%s: no variants: name kernels between the braces\n\n", b->block->name);
        b->write(b->user, words, strlen(words));
    } else {
        status = bench_plan_make(b, &p, error);
        if (status == QN_OK) status = read_tolerance(b, error);
        b->plan = &p;
        if (status == QN_OK) status = run_points(b, &p, path, error);
        b->plan = NULL;
    }
    arena_free(b->memory);
    b->memory = NULL;
    return status;
}

static qn_status find_blocks(bench *b, const char *path, qn_error *error)
{
    const char *names[256];
    int count = 0;
    const ast_file *file = b->module->file;
    for (int i = 0; file && i < file->items.count; i++) {
        const ast *item = file->items.items[i];
        if (item->kind != AST_BENCH) continue;
        if (count < COUNT(names)) names[count++] = item->name;
        if (b->options->bench && !strcmp(item->name, b->options->bench)) return QN_OK;
    }
    if (!count)
        return error_set(error, QN_BAD_CALL,
                         "%s has no bench block; add one, such as `bench NAME (n = 1 << 20) { a_kernel, another }`",
                         path);
    if (!b->options->bench) return QN_OK;
    const ast *has = bench_of(file, b->options->bench);
    if (has)
        return error_set(error, QN_BAD_CALL, "%s has no bench `%s`; the kernel is timed in the bench `%s`", path,
                         b->options->bench, has->name);
    const char *near = suggest_name(b->options->bench, names, count);
    return error_set(error, QN_BAD_CALL, "%s has no bench `%s`; %s `%s`%s", path, b->options->bench,
                     near ? "did you mean" : "the first is", near ? near : names[0], near ? "?" : "");
}

static const char picture_endings[] = ".png .jpg .jpeg .pdf .gif .webp .eps .html";
static const char empty_picture[] = "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n";

/* Paths that cannot be written and baselines that cannot be compared are told before anything is timed. */
static qn_status open_files(const bench *b, baseline **against, qn_error *error)
{
    const qn_bench_options *o = b->options;
    if (o->against_path && !b->against_library)
        QN_TRY(baseline_open(o->against_path, &b->results->environment, o->force, against, error));
    if (o->plot_path && !o->sweeps.count)
        return error_set(error, QN_BAD_CALL, "a plot needs a sweep: --sweep n=2^10..2^20");
    const char *end = o->plot_path ? strrchr(o->plot_path, '.') : NULL;
    if (end && strcmp(end, ".svg") && !strchr(end, '/') && strncmp(o->plot_path, "/dev/", 5) &&
        strstr(picture_endings, end))
        return error_set(error, QN_BAD_CALL, "a plot is SVG: name it something.svg, not `%s`", o->plot_path);
    if (o->json_path) QN_TRY(file_write(o->json_path, "[]\n", 3, error));
    if (o->csv_path) QN_TRY(file_write(o->csv_path, "", 0, error));
    return o->plot_path ? file_write(o->plot_path, empty_picture, strlen(empty_picture), error) : QN_OK;
}

static qn_status judge(const bench *b, qn_error *error)
{
    if (b->bad)
        return error_set(error, QN_FINDING, "%d variant%s wrong or failed", b->bad, b->bad == 1 ? " is" : "s are");
    if (b->baseline && !b->matched) return baseline_unmatched(b->baseline, b, error);
    if (b->slower)
        return error_set(error, QN_FINDING, "%d variant%s slower than the baseline", b->slower,
                         b->slower == 1 ? " is" : "s are");
    if (b->ambiguous && b->options->strict)
        return error_set(error, QN_FINDING, "%d variant%s ambiguous against the baseline", b->ambiguous,
                         b->ambiguous == 1 ? " is" : "s are");
    return QN_OK;
}

qn_status qn_bench_file(qn_context *context, const char *path, const qn_bench_options *options, qn_write *write,
                        qn_write *progress, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    static const qn_bench_options defaults;
    qn_error unread;
    baseline *against = NULL;
    if (!error) error = &unread;
    if (!context || !path || !write) return error_set(error, QN_BAD_CALL, "qn_bench_file: an argument is NULL");
    bench *b = heap_new(sizeof(*b));
    *b = (bench){.context = context,
                 .options = options ? options : &defaults,
                 .write = write,
                 .progress = progress,
                 .user = user,
                 .results = results_new()};
    b->against_library = b->options->against_path && !strcmp(b->options->against_path, "cublas");
    b->device = b->options->device ? b->options->device : qn_device_best(context);
    if (b->options->results) *b->options->results = NULL;
    qn_status status = context_slot(context, b->device, &b->slot, error);
    if (context_slot(context, "ref", &b->ref_slot, NULL) != QN_OK) b->ref_slot = -1;
    if (status == QN_OK) environment_fill(b->results->memory, context, b->slot, &b->results->environment);
    if (status == QN_OK) status = qn_module_load_file(context, path, &b->module, error);
    if (status == QN_OK) status = find_blocks(b, path, error);
    if (status == QN_OK) status = plan_check_caller(b, error);
    if (status == QN_OK) status = open_files(b, &against, error);
    b->baseline = against;
    if (status == QN_OK) status = page_begin(b, error);
    for (int i = 0; status == QN_OK && i < b->module->file->items.count; i++) {
        b->block = b->module->file->items.items[i];
        if (b->block->kind != AST_BENCH) continue;
        if (b->options->bench && strcmp(b->options->bench, b->block->name) != 0) continue;
        status = run_block(b, path, error);
    }
    if (status == QN_OK) status = page_end(b, error);
    if (status == QN_OK) status = judge(b, error);
    baseline_free(against);
    page_free(b);
    if (b->options->results)
        *b->options->results = b->results;
    else
        qn_bench_results_free(b->results);
    qn_module_free(b->module);
    heap_free(b);
    return status;
}
