/*
 * A bench against an earlier one. In: the JSON that `bench --json` wrote. Out: for each variant the ratio to its median
 * there and a verdict.
 *
 * The two runs did not take turns, so what counts as the same is wider, and a baseline from another machine, GPU or
 * driver says nothing: it is refused before anything is timed, unless that is asked for.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"
#include "base/json_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double baseline_margin = 0.03;

struct baseline {
    arena *memory;
    json_node rows;
    const char *path;
};

static const char *words_or(const json_node *row, const char *key, const char *otherwise)
{
    const char *words = json_find_words(row, key);
    return words && *words ? words : otherwise;
}

/* Every row that counts must be of this machine. */
static qn_status check_machine(const baseline *b, const qn_environment *here, qn_error *error)
{
    for (int i = 0; i < b->rows.count; i++) {
        const json_node *row = &b->rows.items[i];
        const char *machine = json_find_words(row, "machine");
        if (machine && !strcmp(machine, here->machine)) continue;
        const char *there = words_or(row, "gpu", words_or(row, "processor", "unknown"));
        const char *version = words_or(row, "driver", "");
        return error_set(
            error, QN_BAD_CALL,
            "the baseline %s cannot be compared with this run: it was measured on another machine (%s%s%s) than "
            "this one (%s%s%s); make a new one here with --json, or compare nevertheless with --force",
            b->path, there, *version ? ", driver " : "", version, *here->gpu ? here->gpu : here->processor,
            *here->driver ? ", driver " : "", here->driver);
    }
    return QN_OK;
}

qn_status baseline_open(const char *path, const qn_environment *here, bool force, baseline **out, qn_error *error)
{
    char *words;
    size_t size;
    *out = NULL;
    QN_TRY(file_read(path, (size_t)256 << 20, &words, &size, error));
    baseline *b = heap_new(sizeof(*b));
    b->memory = arena_new();
    b->path = arena_copy_text(b->memory, path, strlen(path));
    qn_status status = json_read(b->memory, path, words, &b->rows, error);
    heap_free(words);
    bool rows = b->rows.kind == JSON_LIST;
    for (int i = 0; rows && i < b->rows.count; i++) rows = json_find_words(&b->rows.items[i], "variant") != NULL;
    if (status == QN_OK && !rows)
        status =
            error_set(error, QN_BAD_FILE, "%s is not the JSON of a bench: write one with `quern bench --json`", path);
    if (status == QN_OK && !b->rows.count)
        status = error_set(error, QN_BAD_FILE,
                           "the baseline %s is empty, so nothing can be compared with it: write one with `quern bench "
                           "--json`",
                           path);
    if (status == QN_OK && !force) status = check_machine(b, here, error);
    if (status == QN_OK)
        *out = b;
    else
        baseline_free(b);
    return status;
}

void baseline_free(baseline *b)
{
    if (!b) return;
    arena_free(b->memory);
    heap_free(b);
}

static bool same(const json_node *row, const char *key, const char *words)
{
    const char *there = json_find_words(row, key);
    return there && !strcmp(there, words);
}

void baseline_compare(const baseline *b, bench *now)
{
    text arguments = {0};
    double margin = now->options->margin > 0 ? now->options->margin : baseline_margin;
    point_print(&now->at, &arguments);
    for (int i = 0; i < now->variant_count; i++) {
        bench_variant *v = &now->variants[i];
        for (int k = 0; k < b->rows.count; k++) {
            const json_node *row = &b->rows.items[k];
            if (!same(row, "bench", now->block->name) || !same(row, "variant", v->label) ||
                !same(row, "device", now->device) || !same(row, "arguments", text_get(&arguments)))
                continue;
            qn_bench_time then = time_unknown();
            then.median_ns = v->baseline_ns = json_find_number(row, "median_ns");
            then.interval_low_ns = json_find_number(row, "interval_low_ns");
            then.interval_high_ns = json_find_number(row, "interval_high_ns");
            then.clock_mhz = json_find_number(row, "clock_mhz");
            if (v->status == VARIANT_OK) v->baseline = compare_runs(&then, &v->arm.time, margin);
            v->baseline.against = "the baseline";
            break;
        }
    }
    text_free(&arguments);
}

/* Nothing that was compared is no success: a baseline of other sizes, or of kernels that were renamed since, would guard
 * nothing without a word. */
qn_status baseline_unmatched(const baseline *b, const bench *now, qn_error *error)
{
    const json_node *row = &b->rows.items[0];
    const qn_bench_point *point = now->results->point_count ? &now->results->points[0] : NULL;
    const char *variant = point && point->variant_count ? point->variants[0].label : "nothing";
    return error_set(
        error, QN_BAD_CALL,
        "the baseline %s has nothing of this run: a variant is compared where bench, label, device and "
        "arguments are equal; the baseline begins with `%s` of `%s` on %s (%s), this run with `%s` of `%s` "
        "on %s (%s); write a new one with --json",
        b->path, words_or(row, "variant", "?"), words_or(row, "bench", "?"), words_or(row, "device", "?"),
        words_or(row, "arguments", ""), variant, point ? point->bench : "?", now->device,
        point ? point->arguments : "");
}
