/*
 * The results of a bench as rows, one for each variant of each point: JSON objects with the samples, or lines of CSV
 * without them. One list of fields serves both.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"

#include <math.h>
#include <string.h>

const char *const variant_status_names[] = {"ok", "wrong", "failed", "skipped"};

/* Where fields go: a JSON object, the names of a CSV file, or a line of it. */
typedef struct sink {
    json *json;
    text *csv;
    bool names;
    int count;
} sink;

static void csv_words(sink *s, const char *words)
{
    if (s->count++) text_add(s->csv, ",");
    if (!strpbrk(words, ",\"\n\r")) {
        text_add(s->csv, words);
        return;
    }
    text_add(s->csv, "\"");
    for (; *words; words++) text_print(s->csv, "%s%c", *words == '"' ? "\"" : "", *words);
    text_add(s->csv, "\"");
}

static void field_words(sink *s, const char *key, const char *words)
{
    if (s->json)
        json_text(s->json, key, words);
    else
        csv_words(s, s->names ? key : words);
}

static void field_number(sink *s, const char *key, double number)
{
    char words[40];
    if (s->json) {
        json_number(s->json, key, number);
        return;
    }
    plain_print(words, sizeof(words), "%.9g", number);
    csv_words(s, s->names ? key : isfinite(number) ? words : "");
}

static void field_whole(sink *s, const char *key, int64_t number)
{
    char words[40];
    if (s->json) {
        json_whole(s->json, key, number);
        return;
    }
    snprintf(words, sizeof(words), "%lld", (long long)number);
    csv_words(s, s->names ? key : words);
}

static void time_fields(sink *s, const qn_bench_time *t)
{
    bool timed = t->sample_count > 0;
    field_number(s, "median_ns", t->median_ns);
    field_number(s, "interval_low_ns", t->interval_low_ns);
    field_number(s, "interval_high_ns", t->interval_high_ns);
    field_number(s, "least_ns", t->least_ns);
    field_number(s, "low_ns", t->low_ns);
    field_number(s, "high_ns", t->high_ns);
    field_number(s, "most_ns", t->most_ns);
    field_number(s, "first_ns", t->first_ns);
    field_whole(s, "samples", t->sample_count);
    field_whole(s, "warmup", t->warmup_count);
    field_whole(s, "calls_per_sample", t->calls_per_sample);
    field_whole(s, "mild_outliers", t->mild_outliers);
    field_whole(s, "severe_outliers", t->severe_outliers);
    field_words(s, "converged", !timed ? "" : t->converged ? "yes" : "no");
    field_words(s, "two_peaks", !timed ? "" : t->two_peaks ? "yes" : "no");
    field_number(s, "autocorrelation", t->autocorrelation);
    field_number(s, "clock_mhz", t->clock_mhz);
    field_number(s, "clock_low_mhz", t->clock_low_mhz);
    field_number(s, "clock_high_mhz", t->clock_high_mhz);
}

static void comparison_fields(sink *s, const char *const keys[4], const qn_bench_comparison *c)
{
    field_words(s, keys[0], qn_verdict_name(c->verdict));
    field_number(s, keys[1], c->ratio);
    field_number(s, keys[2], c->ratio_low);
    field_number(s, keys[3], c->ratio_high);
}

static void row(sink *s, const qn_bench_results *r, const qn_bench_point *p, const qn_bench_variant *v)
{
    static const char *const first_keys[] = {"verdict", "ratio", "ratio_low", "ratio_high"};
    static const char *const baseline_keys[] = {"baseline_verdict", "baseline_ratio", "baseline_ratio_low",
                                                "baseline_ratio_high"};
    const qn_environment *e = &r->environment;
    bool timed = v->time.sample_count > 0;
    field_words(s, "file", p->file);
    field_words(s, "bench", p->bench);
    field_words(s, "variant", v->label);
    field_words(s, "device", p->device);
    field_words(s, "arguments", p->arguments);
    time_fields(s, &v->time);
    field_number(s, "hot_ns", v->hot_ns);
    field_number(s, "bytes", timed ? v->bytes : NAN);
    field_number(s, "flops", timed ? v->flops : NAN);
    field_number(s, "gb_per_s", timed ? v->bytes / v->time.median_ns : NAN);
    field_number(s, "gflop_per_s", timed ? v->flops / v->time.median_ns : NAN);
    field_number(s, "percent_of_limit", 100 * v->share_of_limit);
    field_words(s, "limit", v->limit);
    field_number(s, "max_error", v->max_error);
    comparison_fields(s, first_keys, &v->first);
    comparison_fields(s, baseline_keys, &v->baseline);
    field_number(s, "baseline_ns", v->baseline_ns);
    field_words(s, "status", variant_status_names[v->status]);
    field_words(s, "message", v->message);
    field_whole(s, "copies", p->copies);
    field_words(s, "in_cache", p->in_cache ? "yes" : "no");
    field_words(s, "machine", e->machine);
    field_words(s, "processor", e->processor);
    field_words(s, "gpu", e->gpu);
    field_words(s, "driver", e->driver);
    field_words(s, "power_limit", e->power_limit);
    field_words(s, "system", e->system);
    field_words(s, "version", e->version);
    field_words(s, "started", e->started);
    field_words(s, "throttling", e->throttling);
    if (s->json) json_numbers(s->json, "samples_ns", v->time.samples_ns, v->time.sample_count);
}

void results_json(const qn_bench_results *r, json *out)
{
    sink s = {.json = out};
    for (int p = 0; p < r->point_count; p++)
        for (int v = 0; v < r->points[p].variant_count; v++) {
            json_open_object(out);
            row(&s, r, &r->points[p], &r->points[p].variants[v]);
            json_close_object(out);
        }
}

void results_csv(const qn_bench_results *r, text *out)
{
    for (int p = 0; p < r->point_count; p++)
        for (int v = 0; v < r->points[p].variant_count; v++)
            for (int names = p || v ? 0 : 1; names >= 0; names--) {
                sink s = {.csv = out, .names = names};
                row(&s, r, &r->points[p], &r->points[p].variants[v]);
                text_add(out, "\n");
            }
}
