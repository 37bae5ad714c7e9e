/*
 * Sweeps: a setting at many values. In: "n=2^10..2^28". Out: the list of values, and after all points one table: a row
 * for each value, a column for each variant.
 *
 * Names that are joined by commas, "rows,cols=2^6..2^10", take every value together. A range doubles from its first value to its last; `*3` after it multiplies by 3, `+100` adds 100. Values may also be
 * listed: "BLOCK=64,256,1000".
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"
#include "profile/measure/roofs.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 1000 };

bool sweep_has(const char *item, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = item; *at && *at != '=';) {
        size_t word = strcspn(at, ",=");
        if (word == length && !strncmp(at, name, length)) return true;
        at += word + (at[word] == ',');
    }
    return false;
}

/* "4096", "2^12", "1<<12". */
static bool read_value(const char **at, int64_t *out)
{
    char *end;
    errno = 0;
    long long base = strtoll(*at, &end, 10);
    if (end == *at || errno) return false;
    bool power = *end == '^', shift = end[0] == '<' && end[1] == '<';
    if (power || shift) {
        const char *start = end + (power ? 1 : 2);
        long long exponent = strtoll(start, &end, 10), value = power ? 1 : base, by = power ? base : 2;
        if (end == start || exponent < 0 || exponent > 62) return false;
        for (long long i = 0; i < exponent; i++)
            if (__builtin_mul_overflow(value, by, &value)) return false;
        base = value;
    }
    *at = end;
    *out = base;
    return true;
}

static qn_status not_a_sweep(const char *item, qn_error *error)
{
    return error_set(
        error, QN_BAD_CALL,
        "a sweep is NAME=FIRST..LAST (doubling), NAME=FIRST..LAST*FACTOR, NAME=FIRST..LAST+STEP or "
        "NAME=VALUE,VALUE,... of whole numbers such as 1000 or 2^20 (NAME,NAME=... sweeps both together), not "
        "`%s`",
        item);
}

static qn_status read_range(const char *item, const char *at, int64_t first, int64_t *values, int *count,
                            qn_error *error)
{
    int64_t last, step = 2;
    char how = '*';
    at += 2;
    if (!read_value(&at, &last)) return not_a_sweep(item, error);
    if (*at == '*' || *at == '+') {
        how = *at++;
        if (!read_value(&at, &step)) return not_a_sweep(item, error);
    }
    if (*at) return not_a_sweep(item, error);
    if (last < first || (how == '*' ? step < 2 || first < 1 : step < 1))
        return error_set(error, QN_BAD_CALL, "the sweep `%s` never comes to its end: it goes up, from FIRST to LAST",
                         item);
    for (int64_t value = first; value <= last && *count <= MOST_VALUES;) {
        values[(*count)++] = value;
        if (how == '*' ? __builtin_mul_overflow(value, step, &value) : __builtin_add_overflow(value, step, &value))
            break;
    }
    return QN_OK;
}

qn_status sweep_read(arena *memory, const char *item, const char *const **words, int *count, qn_error *error)
{
    int64_t values[MOST_VALUES + 2], value;
    const char *at = strchr(item, '=');
    *count = 0;
    if (!at || at == item) return not_a_sweep(item, error);
    at++;
    if (!read_value(&at, &value)) return not_a_sweep(item, error);
    if (at[0] == '.' && at[1] == '.') {
        QN_TRY(read_range(item, at, value, values, count, error));
    } else {
        values[(*count)++] = value;
        while (*at == ',' && *count <= MOST_VALUES) {
            at++;
            if (!read_value(&at, &values[(*count)++])) return not_a_sweep(item, error);
        }
        if (*at && *count <= MOST_VALUES) return not_a_sweep(item, error);
    }
    if (*count > MOST_VALUES)
        return error_set(error, QN_BAD_CALL, "the sweep `%s` has more than %d values", item, MOST_VALUES);
    const char **list = ARENA_ARRAY(memory, const char *, *count);
    for (int i = 0; i < *count; i++) list[i] = arena_print(memory, "%" PRId64, values[i]);
    *words = list;
    return QN_OK;
}

/* ---- what belongs to one sweep ---- */

double variant_rate(const qn_bench_variant *v, bool flops)
{
    if (!v->time.sample_count) return NAN;
    double amount = flops ? v->flops * 1e-3 : v->bytes > 0 ? v->bytes : NAN;
    return amount / v->time.median_ns;
}

double variant_peak(const qn_bench_point *p, const qn_bench_variant *v)
{
    bool products = limit_is_products(v->limit) && v->share_of_limit > 0;
    return products ? v->flops / v->time.median_ns / v->share_of_limit : p->ceilings.fma_all_gflop_per_s;
}

double variant_roof(const qn_bench_point *p, const qn_bench_variant *v, bool flops)
{
    const qn_ceilings *c = &p->ceilings;
    double bandwidth = v->read_share > 0.95 ? c->read_gb_per_s : c->copy_gb_per_s;
    double peak = variant_peak(p, v);
    double intensity = v->flops / v->bytes;
    if (!(bandwidth > 0)) return NAN;
    if (!flops) return intensity > 0 && peak > 0 ? fmin(bandwidth, peak / intensity) : bandwidth;
    return peak > 0 && intensity > 0 ? fmin(peak, intensity * bandwidth) * 1e-3 : NAN;
}

static bool is_compute(const char *limit)
{
    return !strcmp(limit, "fma") || limit_is_products(limit);
}

bool bench_counts_flops(const qn_bench_point *p)
{
    int by_compute = 0, timed = 0;
    for (int i = 0; i < p->variant_count; i++) {
        timed += p->variants[i].time.sample_count > 0;
        by_compute += is_compute(p->variants[i].limit);
    }
    return 2 * by_compute > timed;
}

static bool is_elsewhere(const qn_bench_point *p, int variant)
{
    return p->variants[variant].status == QN_VARIANT_SKIPPED;
}

static void head(table *t, const qn_bench_point *p, const char *unit)
{
    for (int i = 0; i < p->setting_count; i++)
        if (p->settings[i].swept) table_cell(t, "%s", p->settings[i].name);
    for (int v = 0; v < p->variant_count; v++)
        if (!is_elsewhere(p, v)) table_cell(t, "%s", p->variants[v].label);
    if (unit) table_cell(t, "roof %s", unit);
    table_cell(t, "fastest");
}

static void row(table *t, const qn_bench_point *p, const qn_bench_point *like, bool flops, bool times)
{
    double roof = NAN, least = INFINITY;
    const char *fastest = "-";
    for (int i = 0; i < p->setting_count; i++)
        if (p->settings[i].swept) table_cell(t, "%s", p->settings[i].value);
    for (int k = 0; k < p->variant_count; k++) {
        const qn_bench_variant *v = &p->variants[k];
        double rate = variant_rate(v, flops);
        text time = {0};
        if (v->time.median_ns < least) {
            least = v->time.median_ns;
            fastest = v->label;
        }
        if (isnan(roof)) roof = variant_roof(p, v, flops);
        if (is_elsewhere(like, k)) continue;
        if (times && v->time.sample_count) {
            text_add_duration(&time, v->time.median_ns);
            table_cell(t, "%s", text_get(&time));
            text_free(&time);
        } else if (v->time.sample_count && isfinite(rate))
            table_cell(t, "%.*f", rate < 10 ? 2 : 1, rate);
        else
            table_cell(t, "%s", v->time.sample_count ? "-" : variant_status_names[v->status]);
    }
    if (times) {
        table_cell(t, "%s", fastest);
        return;
    }
    if (isfinite(roof) && !p->in_cache)
        table_cell(t, "%.*f", roof < 10 ? 2 : 1, roof);
    else
        table_cell(t, p->in_cache ? "in cache" : "-");
    table_cell(t, "%s", fastest);
}

void sweep_table(const qn_bench_results *r, const char *name, bool colour, text *out)
{
    const qn_bench_point *like = NULL, *last = NULL;
    table t;
    int columns = 2, variants = 0;
    for (int i = 0; i < r->point_count; i++) {
        if (strcmp(r->points[i].bench, name) != 0) continue;
        if (!like) like = &r->points[i];
        last = &r->points[i];
    }
    if (!like) return;
    bool flops = bench_counts_flops(last);
    const char *unit = flops ? "TFLOP/s" : "GB/s";
    for (int i = 0; i < like->setting_count; i++) columns += like->settings[i].swept;
    for (int v = 0; v < like->variant_count; v++) variants += !is_elsewhere(like, v);
    if (columns + variants > TABLE_MOST_COLUMNS) return;
    for (int times = 1; times >= 0; times--) {
        text_print(out, "%s%s%s on %s: %s\n", colour ? "\033[1m" : "", name, colour ? "\033[0m" : "", like->device,
                   times ? "time" : unit);
        table_open(&t, columns + variants - times);
        t.left[0] = false;
        t.left[columns + variants - 1 - times] = true;
        head(&t, like, times ? NULL : unit);
        for (int i = 0; i < r->point_count; i++)
            if (!strcmp(r->points[i].bench, name)) row(&t, &r->points[i], like, flops, times);
        table_print(&t, false, out);
        table_close(&t);
        text_add(out, "\n");
    }
}
