/*
 * What bench says: lines of progress, a table for each point and remarks under it. Every figure is a measurement of this
 * run; what is unknown is left out ("-"), never guessed.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"
#include "profile/measure/environment.h"
#include "profile/measure/roofs.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* Each variant is checked at two small sizes and in full, and timed: that many lines come. */
static void add_progress(bench *b, text *line)
{
    if (!b->step_total) return;
    if (!b->step_count) b->step_start_ns = clock_now_ns();
    b->step_count = MINIMUM(b->step_count + 1, b->step_total);
    text_print(line, "[%lld/%lld] ", (long long)b->step_count, (long long)b->step_total);
}

static double seconds_left(const bench *b)
{
    double spent = (double)(clock_now_ns() - b->step_start_ns) * 1e-9;
    return spent / (double)(b->step_count - 1) * (double)(b->step_total - b->step_count + 1);
}

void bench_say(const bench *b, const char *format, ...)
{
    if (!b->options->progress || !b->progress) return;
    text line = {0};
    va_list list;
    text_print(&line, "%s: ", b->block->name);
    add_progress((bench *)b, &line);
    va_start(list, format);
    text_print_list(&line, format, list);
    va_end(list);
    if (b->step_count > 2 && b->step_total >= b->step_count) text_print(&line, ", %.0f s left", seconds_left(b));
    text_add(&line, "\n");
    b->progress(b->user, text_get(&line), line.length);
    text_free(&line);
}

void variant_end(bench *b, bench_variant *v, variant_status status, const char *format, ...)
{
    text words = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&words, format, list);
    va_end(list);
    while (words.length && words.data[words.length - 1] == '\n') words.length--;
    v->status = status;
    v->message = arena_copy_text(b->memory, text_get(&words), words.length);
    text_free(&words);
}

/* The ceiling this variant is nearest to: copying (reading, if it hardly writes), multiply-adds or the tensor cores. */
double share_of_limit(const bench *b, const bench_variant *v, const char **limit)
{
    if (v->arm.time.sample_count == 0 || v->status != VARIANT_OK) return NAN;
    bool reads_only = v->read_share > 0.95;
    double bandwidth = reads_only ? b->ceilings.read_gb_per_s : b->ceilings.copy_gb_per_s;
    double memory = bandwidth > 0 && !b->arrays.in_cache ? v->bytes / v->arm.time.median_ns / bandwidth : NAN;
    const record_facts *facts = v->call ? call_facts(v->call) : NULL;
    const char *by;
    qn_roofline roof = b->roofline;
    roof.fma_f32_gflop_per_s = b->ceilings.fma_all_gflop_per_s;
    double compute = compute_share(&roof, facts ? facts->shapes : NULL, v->flops / v->arm.time.median_ns, &by);
    bool by_compute = compute > memory;
    *limit = !by_compute ? (reads_only ? "read" : "copy") : strcmp(by, "compute") ? by : "fma";
    return by_compute ? compute : memory;
}

enum { BASELINE_COLUMN = 8 };

/* What makes the numbers of this table less certain. */
static void remark_times(const bench *b, text *out)
{
    int open = 0, outliers = 0, samples = 0, peaks = 0;
    double low = INFINITY, high = 0;
    for (int i = 0; i < b->variant_count; i++) {
        const qn_bench_time *t = &b->variants[i].arm.time;
        if (!t->sample_count || b->variants[i].status != VARIANT_OK) continue;
        open += !t->converged;
        outliers += t->severe_outliers;
        samples += t->sample_count;
        peaks += t->two_peaks;
        low = fmin(low, t->clock_low_mhz);
        high = fmax(high, t->clock_high_mhz);
    }
    if (open)
        text_print(out, "~: %d did not settle within %s time: the +- column says how far %s known\n", open,
                   open == 1 ? "its" : "their", open == 1 ? "it is" : "they are");
    if (peaks) text_print(out, "%d with times in two groups: the median may stand for neither\n", peaks);
    if (outliers > samples / 20)
        text_print(out, "%d of %d samples are far outliers: something else was running\n", outliers, samples);
    if (b->held) text_print(out, "the clock was held back by: %s\n", held_words(b->held));
    if (high > 1.1 * low) text_print(out, "the clock moved between %.0f and %.0f MHz\n", low, high);
}

static void remark_copies(const bench *b, text *out)
{
    double ratio = NAN;
    for (int i = 0; i < b->variant_count && isnan(ratio); i++)
        if (b->variants[i].status == VARIANT_OK) ratio = b->variants[i].hot_ns / b->variants[i].arm.time.median_ns;
    if (b->arrays.in_cache || !isfinite(ratio)) return;
    text_print(out,
               "cold: %d copies of the arrays take turns; on one that is in the cache the first takes %.2f of it\n",
               b->arrays.copy_count, ratio);
}

static void remarks(const bench *b, text *out)
{
    const char *limit;
    bool odd = false;
    remark_times(b, out);
    remark_copies(b, out);
    for (int i = 0; i < b->variant_count; i++) odd |= share_is_above(share_of_limit(b, &b->variants[i], &limit));
    if (odd) text_print(out, "%s\n", above_words);
    if (!target_find(b->device)->timed && target_runs_cuda(b->device))
        text_add(out, "emu is for checking CUDA text: its times say nothing about a GPU\n");
    if (b->arrays.in_cache && b->arrays.count)
        text_add(out, "in cache: the arrays are too small to be timed out of it, so no share of the memory's limit is "
                      "given\n");
}

static void number_cell(table *t, double number, int digits)
{
    if (isfinite(number))
        table_cell(t, "%.*f", digits, number);
    else
        table_cell(t, "-");
}

enum { FEW_ROUNDS = 10 }; /* of fewer the interval is the range: it says nothing where they differ */

/* "1.34x FASTER", "SAME", "0.71..1.43x AMBIGUOUS" where it cannot be told. */
static void verdict_cell(table *t, const qn_bench_comparison *c)
{
    switch (c->verdict) {
    case QN_FASTER: table_cell(t, "%.2fx FASTER", 1 / c->ratio); break;
    case QN_SLOWER: table_cell(t, "%.2fx SLOWER", c->ratio); break;
    case QN_SAME: table_cell(t, "SAME"); break;
    case QN_AMBIGUOUS: /* in the direction of the others: above 1 is faster */
        if (c->rounds > 0 && c->rounds < FEW_ROUNDS)
            table_cell(t, "too few samples");
        else
            table_cell(t, "%.2f..%.2fx AMBIGUOUS", 1 / c->ratio_high, 1 / c->ratio_low);
        break;
    default: table_cell(t, "-"); break;
    }
}

static void row(const bench *b, const bench_variant *v, table *t)
{
    const char *limit = "";
    const qn_bench_time *time = &v->arm.time;
    text words = {0};
    bool timed = time->sample_count > 0 && v->status == VARIANT_OK;
    double share = share_of_limit(b, v, &limit);
    table_cell(t, "%s", v->label);
    if (timed) {
        text_add_duration(&words, time->median_ns);
        table_cell(t, "%s%s", text_get(&words), time->converged ? "" : "~");
        if (time->sample_count < 2) { /* one says nothing about the next */
            table_cell(t, "one sample");
            table_cell(t, "-");
        } else {
            table_cell(t, "%.1f%%", 50 * (time->interval_high_ns - time->interval_low_ns) / time->median_ns);
            table_cell(t, "%+.1f %+.1f%%", (time->low_ns / time->median_ns - 1) * 100,
                       (time->high_ns / time->median_ns - 1) * 100);
        }
    } else {
        for (int i = 0; i < 3; i++) table_cell(t, "-");
    }
    number_cell(t, timed ? v->bytes / time->median_ns : NAN, 1);
    number_cell(t, timed ? v->flops / time->median_ns : NAN, 1);
    if (isfinite(share))
        table_cell(t, "%.0f%% %s", share * 100, limit);
    else
        table_cell(t, "-");
    verdict_cell(t, &v->first);
    if (b->baseline) verdict_cell(t, &v->baseline);
    if (isnan(v->max_error))
        table_cell(t, "-");
    else
        table_cell(t, "%.1e", v->max_error);
    table_cell(t, "%s", variant_status_names[v->status]);
    text_free(&words);
}

static void elsewhere(const bench *b, text *out)
{
    int count = 0;
    for (int i = 0; i < b->variant_count; i++) {
        if (!b->variants[i].elsewhere) continue;
        text_print(out, "%s%s", count++ ? ", " : "skipped, raw text of other devices: ", b->variants[i].label);
    }
    if (count) text_add(out, "\n");
}

void report_messages(const bench *b, text *out)
{
    for (int i = 0; i < b->variant_count; i++)
        if (*b->variants[i].message && !b->variants[i].elsewhere)
            text_print(out, "%s %s: %s\n", b->variants[i].label, variant_status_names[b->variants[i].status],
                       b->variants[i].message);
}

void report_table(const bench *b, text *out)
{
    static const char *const heads[] = {"variant",  "time",          "+-",           "20% 80%", "GB/s",  "GFLOP/s",
                                        "of limit", "against first", "and baseline", "error",   "status"};
    static const char *const least[] = {"20% 80%", "GFLOP/s", "error", "+-", "of limit", "GB/s"};
    int columns = b->baseline ? COUNT(heads) : COUNT(heads) - 1;
    text size = {0};
    table t;
    double bytes = 0;
    point_print(&b->at, &size);
    for (int i = 0; i < b->variant_count; i++) bytes = MAXIMUM(bytes, b->variants[i].bytes);
    text_print(out, "%s%s%s%s on %s (%s)", b->options->colour ? "\033[1m" : "", b->block->name,
               b->options->colour ? "\033[0m" : "", "", b->device, text_get(&size));
    if (bytes > 0) text_print(out, ", %.1f MB", bytes * 1e-6);
    if (b->ceilings.copy_gb_per_s > 0)
        text_print(out, "; limits: copy %.1f GB/s, read %.1f GB/s, fma %.0f GFLOP/s", b->ceilings.copy_gb_per_s,
                   b->ceilings.read_gb_per_s, b->ceilings.fma_all_gflop_per_s);
    text_add(out, "\n");
    table_open(&t, columns);
    t.left[columns - 1] = true;
    for (int i = 0; i < COUNT(heads); i++)
        if (i != BASELINE_COLUMN || b->baseline) table_cell(&t, "%s", heads[i]);
    for (int i = 0; i < b->variant_count; i++)
        if (!b->variants[i].elsewhere) row(b, &b->variants[i], &t);
    int dropped = table_fit(&t, b->options->width, least, COUNT(least));
    table_print(&t, b->options->colour, out);
    table_close(&t);
    if (dropped)
        text_print(out, "%d column%s left out to fit the terminal; --csv - has all\n", dropped,
                   dropped == 1 ? "" : "s");
    report_messages(b, out);
    elsewhere(b, out);
    remarks(b, out);
    text_add(out, "\n");
    text_free(&size);
}
