/*
 * What bench says: lines of progress, a table for each point, JSON with one object for each variant. Every figure is a
 * measurement of this run; what is unknown is left out ("-", null), never guessed.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

static const char *const status_names[] = {"ok", "wrong", "failed", "skipped"};

void bench_say(const bench *b, const char *format, ...)
{
    if (!b->options->progress || !b->progress) return;
    text line = {0};
    va_list list;
    text_print(&line, "%s: ", b->block->name);
    va_start(list, format);
    text_print_list(&line, format, list);
    va_end(list);
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

/* The ceiling this variant is nearest to: copying (reading, if it hardly writes) or multiply-adds. */
double share_of_limit(const bench *b, const bench_variant *v, const char **limit)
{
    if (v->arm.time.sample_count == 0 || v->status != VARIANT_OK) return NAN;
    bool reads_only = v->read_share > 0.95;
    double bandwidth = reads_only ? b->ceilings.read_gb_per_s : b->ceilings.copy_gb_per_s;
    double memory = bandwidth > 0 && !b->arrays.in_cache ? v->bytes / v->arm.time.median_ns / bandwidth : NAN;
    double compute =
        b->ceilings.fma_all_gflop_per_s > 0 ? v->flops / v->arm.time.median_ns / b->ceilings.fma_all_gflop_per_s : NAN;
    bool by_compute = compute > memory;
    *limit = by_compute ? "fma" : reads_only ? "read" : "copy";
    return by_compute ? compute : memory;
}

bool share_is_odd(double share)
{
    return share > 1.05;
}

static void remarks(const bench *b, text *out)
{
    const char *limit;
    bool odd = false;
    for (int i = 0; i < b->variant_count; i++) odd |= share_is_odd(share_of_limit(b, &b->variants[i], &limit));
    if (odd)
        text_add(out,
                 "more than 100%: a limit was measured while the machine was busy with other work, or a large part "
                 "of what this counts as moved is never touched\n");
    if (!strcmp(b->device, "emu")) text_add(out, "emu is for checking CUDA text: its times say nothing about a GPU\n");
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

static void row(const bench *b, const bench_variant *v, table *t)
{
    const char *limit = "";
    text time = {0}, low_high = {0};
    bool timed = v->arm.time.sample_count > 0 && v->status == VARIANT_OK;
    double share = share_of_limit(b, v, &limit);
    table_cell(t, "%s", v->label);
    if (timed) {
        text_add_duration(&time, v->arm.time.median_ns);
        text_print(&low_high, "%+.1f %+.1f%%", (v->arm.time.low_ns / v->arm.time.median_ns - 1) * 100,
                   (v->arm.time.high_ns / v->arm.time.median_ns - 1) * 100);
    }
    table_cell(t, "%s", timed ? text_get(&time) : "-");
    table_cell(t, "%s", timed ? text_get(&low_high) : "-");
    number_cell(t, timed ? v->bytes / v->arm.time.median_ns : NAN, 1);
    number_cell(t, timed ? v->flops / v->arm.time.median_ns : NAN, 1);
    if (isfinite(share))
        table_cell(t, "%.0f%% %s", share * 100, limit);
    else
        table_cell(t, "-");
    if (isnan(v->max_error))
        table_cell(t, "-");
    else
        table_cell(t, "%.1e", v->max_error);
    table_cell(t, "%s", status_names[v->status]);
    text_free(&time);
    text_free(&low_high);
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

void report_table(const bench *b, text *out)
{
    static const char *const heads[] = {"variant", "time", "20% 80%", "GB/s", "GFLOP/s", "of limit", "error", "status"};
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
    table_open(&t, COUNT(heads));
    t.left[COUNT(heads) - 1] = true;
    for (int i = 0; i < COUNT(heads); i++) table_cell(&t, "%s", heads[i]);
    for (int i = 0; i < b->variant_count; i++)
        if (!b->variants[i].elsewhere) row(b, &b->variants[i], &t);
    table_print(&t, b->options->colour, out);
    table_close(&t);
    for (int i = 0; i < b->variant_count; i++)
        if (*b->variants[i].message && !b->variants[i].elsewhere)
            text_print(out, "%s %s: %s\n", b->variants[i].label, status_names[b->variants[i].status],
                       b->variants[i].message);
    elsewhere(b, out);
    remarks(b, out);
    text_add(out, "\n");
    text_free(&size);
}

void report_json(const bench *b, const char *path, json *out)
{
    text arguments = {0};
    point_print(&b->at, &arguments);
    for (int i = 0; i < b->variant_count; i++) {
        const bench_variant *v = &b->variants[i];
        const char *limit;
        bool timed = v->arm.time.sample_count > 0 && v->status == VARIANT_OK;
        json_open_object(out);
        json_text(out, "file", path);
        json_text(out, "bench", b->block->name);
        json_text(out, "variant", v->label);
        json_text(out, "device", b->device);
        json_text(out, "arguments", text_get(&arguments));
        json_number(out, "median_ns", timed ? v->arm.time.median_ns : NAN);
        json_number(out, "low_ns", timed ? v->arm.time.low_ns : NAN);
        json_number(out, "high_ns", timed ? v->arm.time.high_ns : NAN);
        json_whole(out, "samples", timed ? v->arm.time.sample_count : 0);
        json_number(out, "bytes", timed ? v->bytes : NAN);
        json_number(out, "flops", timed ? v->flops : NAN);
        json_number(out, "gb_per_s", timed ? v->bytes / v->arm.time.median_ns : NAN);
        json_number(out, "percent_of_limit", 100 * share_of_limit(b, v, &limit));
        json_number(out, "max_error", v->max_error);
        json_text(out, "status", status_names[v->status]);
        json_text(out, "message", v->message);
        json_close_object(out);
    }
    text_free(&arguments);
}
