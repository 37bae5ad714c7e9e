/*
 * The report of a bench. In: results, whole or as far as they are. Out: a page with verdicts, one table of all variants
 * at all points, sweeps, the distribution of the samples, ratios with their intervals, a roofline, the kernels' texts.
 *
 * `quern bench` writes it after every point, so that whatever ends the run leaves a page of what was measured.
 * SPDX-License-Identifier: MIT
 */
#include "profile/report/bench.h"

#include "profile/bench/bench.h"
#include "profile/measure/roofs.h"

#include <math.h>
#include <string.h>

static bool is_timed(const qn_bench_variant *v)
{
    return v->status == QN_VARIANT_OK && v->time.sample_count > 0;
}

/* ---- words ---- */

static void put_verdicts(const qn_bench_results *r, text *out)
{
    enum { MOST = 6 };
    int bad = 0, said = 0;
    for (int i = 0; i < r->point_count; i++) {
        const qn_bench_point *p = &r->points[i];
        const qn_bench_variant *best = NULL;
        for (int k = 0; k < p->variant_count; k++) {
            const qn_bench_variant *v = &p->variants[k];
            bad += v->status == QN_VARIANT_WRONG || v->status == QN_VARIANT_FAILED;
            if (is_timed(v) && (!best || v->time.median_ns < best->time.median_ns)) best = v;
        }
        if (!best || said++ >= MOST) continue;
        text words = {0};
        text_print(&words, "%s on %s (%s): %s is the fastest, ", p->bench, p->device, p->arguments, best->label);
        text_add_duration(&words, best->time.median_ns);
        if (isfinite(best->share_of_limit))
            text_print(&words, ", %.0f %% of the limit: %s", 100 * best->share_of_limit,
                       limit_words(best->share_of_limit, best->limit));
        page_note(out, "verdict", text_get(&words));
        text_free(&words);
    }
    if (said > MOST) text_print(out, "<p class=\"about\">and %d more points, in the table.</p>\n", said - MOST);
    if (bad) text_print(out, "<p class=\"bad\">%d variant%s wrong or failed.</p>\n", bad, bad == 1 ? " is" : "s are");
}

static void put_environment(const qn_environment *e, const char *command, text *out)
{
    const struct {
        const char *name, *words;
    } pairs[] = {{"command", command},  {"processor", e->processor},     {"GPU", e->gpu},
                 {"driver", e->driver}, {"power limit", e->power_limit}, {"memory", e->memory},
                 {"system", e->system}, {"governor", e->governor},       {"Quern", e->version},
                 {"began", e->started}, {"held back by", e->throttling}};
    text_add(out, "<details class=\"environment\"><summary>environment</summary><dl>\n");
    for (int i = 0; i < COUNT(pairs); i++) {
        if (!pairs[i].words || !*pairs[i].words) continue;
        text_add(out, "<dt>");
        html_text(out, pairs[i].name);
        text_add(out, "</dt><dd>");
        html_text(out, pairs[i].words);
        text_add(out, "</dd>\n");
    }
    text_print(out, "<dt>cores</dt><dd>%d</dd>\n</dl></details>\n", e->cores);
    page_note(out, "warning", e->warnings);
}

/* ---- the table ---- */

/* Verdict and how many times as fast; the interval comes later in the row. */
static void comparison_cells(const qn_bench_comparison *c, text *out)
{
    if (!c->verdict) {
        text_add(out, "<td>-</td><td class=\"n\">-</td>");
        return;
    }
    text_print(out, "<td class=\"%s\">%s</td>",
               c->verdict == QN_FASTER   ? "good"
               : c->verdict == QN_SLOWER ? "bad"
                                         : "",
               qn_verdict_name(c->verdict));
    html_cell_number(out, 1 / c->ratio, "%.2f");
}

static void interval_cell(const qn_bench_comparison *c, text *out)
{
    if (c->verdict)
        text_print(out, "<td>%.2f to %.2f</td>", 1 / c->ratio_high, 1 / c->ratio_low);
    else
        text_add(out, "<td>-</td>");
}

/* What differs between the rows: the rest is said once, above the table. */
typedef struct shown_columns {
    bool status, benches, arguments, baseline;
    const qn_bench_point *like; /* settings that all points have as this one are not in the column; NULL: all are */
    const qn_bench_results *all;
} shown_columns;

/* Whether every point has this value: it stands in the heading then. */
static bool is_constant(const qn_bench_results *r, const qn_bench_setting *s)
{
    for (int i = 0; i < r->point_count; i++) {
        bool same = false;
        for (int k = 0; k < r->points[i].setting_count; k++) {
            const qn_bench_setting *other = &r->points[i].settings[k];
            same |= !strcmp(other->name, s->name) && !strcmp(other->value, s->value);
        }
        if (!same) return false;
    }
    return true;
}

/* The settings that are constant, or those that are not, as "n = 1024, T = f32". */
static void put_settings(const qn_bench_results *r, const qn_bench_point *p, bool constant, text *out)
{
    int count = 0;
    for (int i = 0; i < p->setting_count; i++)
        if (is_constant(r, &p->settings[i]) == constant)
            html_print(out, "%s%s = %s", count++ ? ", " : "", p->settings[i].name, p->settings[i].value);
}

static void arguments_cell(const qn_bench_point *p, const shown_columns *shown, text *out)
{
    if (!shown->like) {
        html_cell_text(out, p->arguments);
        return;
    }
    text_add(out, "<td>");
    put_settings(shown->all, p, false, out);
    text_add(out, "</td>");
}

static void put_row(const qn_bench_point *p, const qn_bench_variant *v, const shown_columns *shown, text *out)
{
    bool timed = is_timed(v);
    const qn_bench_time *t = &v->time;
    text_add(out, "<tr><td class=\"name\">");
    html_name(out, v->label);
    if (*v->message) {
        text_add(out, "<small>");
        html_text(out, v->message);
        text_add(out, "</small>");
    }
    text_add(out, "</td>");
    if (shown->benches) html_cell_text(out, p->bench);
    if (shown->arguments) arguments_cell(p, shown, out);
    html_cell_duration(out, timed ? t->median_ns : NAN);
    comparison_cells(&v->first, out);
    html_cell_number(out, 100 * v->share_of_limit, "%.0f");
    html_cell_text(out, *v->limit ? v->limit : "-");
    if (shown->status)
        text_print(out, "<td class=\"%s\">%s</td>", v->status == QN_VARIANT_OK ? "good" : "bad",
                   variant_status_names[v->status]);
    if (shown->baseline) comparison_cells(&v->baseline, out);
    html_cell_number(
        out, timed && t->sample_count > 1 ? 50 * (t->interval_high_ns - t->interval_low_ns) / t->median_ns : NAN,
        "%.2f");
    html_cell_duration(out, timed ? t->low_ns : NAN);
    html_cell_duration(out, timed ? t->high_ns : NAN);
    html_cell_number(out, timed ? v->bytes / t->median_ns : NAN, "%.1f");
    html_cell_number(out, timed ? v->flops / t->median_ns * 1e-3 : NAN, "%.3f");
    interval_cell(&v->first, out);
    html_cell_number(out, v->max_error, "%.1e");
    html_cell_number(out, timed ? t->sample_count : NAN, "%.0f");
    html_cell_number(out, timed ? t->mild_outliers + t->severe_outliers : NAN, "%.0f");
    html_cell_duration(out, timed ? v->hot_ns : NAN);
    html_cell_number(out, timed ? t->clock_mhz : NAN, "%.0f");
    text_add(out, "</tr>\n");
}

/* Whether a variant before this one, of this point or an earlier, did not run either: it is named once. */
static bool skipped_before(const qn_bench_results *r, int point, int variant)
{
    for (int i = 0; i <= point; i++)
        for (int k = 0; k < (i < point ? r->points[i].variant_count : variant); k++) {
            const qn_bench_variant *v = &r->points[i].variants[k];
            if (v->status == QN_VARIANT_SKIPPED && !strcmp(v->label, r->points[point].variants[variant].label))
                return true;
        }
    return false;
}

/* One line for those that did not run. */
static void put_skipped(const qn_bench_results *r, text *out)
{
    int count = 0;
    for (int i = 0; i < r->point_count; i++)
        for (int k = 0; k < r->points[i].variant_count; k++) {
            const qn_bench_variant *v = &r->points[i].variants[k];
            if (v->status != QN_VARIANT_SKIPPED || skipped_before(r, i, k)) continue;
            text_add(out, count++ ? ", " : "<p class=\"about\">Skipped: ");
            html_text(out, v->label);
        }
    if (count) text_add(out, ".</p>\n");
}

/* A share that cannot be is explained below the table: in it, the words would push the numbers off the screen. */
static void put_above(const qn_bench_results *r, text *out)
{
    bool above = false;
    for (int i = 0; i < r->point_count; i++)
        for (int k = 0; k < r->points[i].variant_count; k++)
            above |= share_is_above(r->points[i].variants[k].share_of_limit);
    if (above) page_note(out, "about", above_words);
}

static void put_table(const qn_bench_results *r, text *out)
{
    static const char *const before[] = {"time", "against the first", "times as fast", "% of limit", "limit"};
    static const char *const baselines[] = {"against the baseline", "times as fast"};
    static const char *const after[] = {"± % of it", "20 %",    "80 %",     "GB/s",     "TFLOP/s", "99 % sure",
                                        "error",     "samples", "outliers", "in cache", "MHz"};
    const char *heads[COUNT(before) + 4 + COUNT(baselines) + COUNT(after)];
    shown_columns shown = {.all = r};
    int count = 0;
    for (int i = 0; i < r->point_count; i++) {
        shown.benches |= strcmp(r->points[i].bench, r->points[0].bench) != 0;
        shown.arguments |= strcmp(r->points[i].arguments, r->points[0].arguments) != 0;
        for (int k = 0; k < r->points[i].variant_count; k++) {
            qn_variant_status status = r->points[i].variants[k].status;
            shown.baseline |= r->points[i].variants[k].baseline.verdict != QN_NOT_COMPARED;
            shown.status |= status != QN_VARIANT_OK && status != QN_VARIANT_SKIPPED;
        }
    }
    if (shown.arguments && !shown.benches && r->points[0].setting_count) shown.like = &r->points[0];
    heads[count++] = "variant";
    if (shown.benches) heads[count++] = "bench"; /* what tells rows of one name apart, before what was measured */
    if (shown.arguments) heads[count++] = "arguments";
    memcpy(heads + count, before, sizeof(before));
    count += COUNT(before);
    if (shown.status) heads[count++] = "status";
    if (shown.baseline) memcpy(heads + count, baselines, sizeof(baselines));
    count += shown.baseline ? COUNT(baselines) : 0;
    memcpy(heads + count, after, sizeof(after));
    html_open_section(
        out, "results-section", "Results",
        "Times are medians; the median is within the percents of ± with 95 % confidence. Every variant was "
        "checked against the reference before it was timed.");
    if (r->point_count && (!shown.benches || !shown.arguments)) {
        text_print(out, "<p class=\"about\">All rows: %s", shown.status ? "" : "ok, ");
        if (!shown.benches) html_text(out, r->points[0].bench);
        text_add(out, !shown.benches && !shown.arguments ? ", " : "");
        if (!shown.arguments) html_text(out, r->points[0].arguments);
        text constants = {0};
        if (shown.like) put_settings(r, shown.like, true, &constants);
        if (constants.length) text_print(out, ", %s", text_get(&constants));
        text_free(&constants);
        text_add(out, ".</p>\n");
    }
    html_table_open(out, "results", heads, count + COUNT(after));
    for (int i = 0; i < r->point_count; i++)
        for (int k = 0; k < r->points[i].variant_count; k++)
            if (r->points[i].variants[k].status != QN_VARIANT_SKIPPED)
                put_row(&r->points[i], &r->points[i].variants[k], &shown, out);
    html_table_close(out);
    put_skipped(r, out);
    put_above(r, out);
    html_close_section(out);
}

/* ---- sweeps ---- */

static void write_text(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* The picture without what makes a document of it. */
static void put_picture(const char *svg, text *out)
{
    static const char close[] = "</style>";
    const char *begin = strstr(svg, "<svg"), *style = strstr(svg, "<style>"), *rest = strstr(svg, close);
    if (!begin) return;
    text_add(out, "<div class=\"figure sweep\">");
    if (style && rest && begin < style) { /* the page's own is meant to hold */
        text_add_bytes(out, begin, (size_t)(style - begin));
        begin = rest + strlen(close);
    }
    text_add(out, begin);
    text_add(out, "</div>\n");
}

static bool has_sweep(const qn_bench_results *r, const char *bench)
{
    int points = 0;
    for (int i = 0; i < r->point_count; i++) points += !strcmp(r->points[i].bench, bench);
    return points > 1;
}

static void put_sweeps(const qn_bench_results *r, text *out)
{
    bool open = false;
    for (int i = 0; i < r->point_count; i++) {
        const char *bench = r->points[i].bench;
        bool seen = false;
        for (int k = 0; k < i; k++) seen |= !strcmp(r->points[k].bench, bench);
        if (seen || !has_sweep(r, bench)) continue;
        for (int flops = 0; flops < 2; flops++) {
            text svg = {0};
            if (qn_bench_plot(r, bench, flops, write_text, &svg, NULL) == QN_OK) {
                if (!open)
                    html_open_section(out, "sweeps", "Sweeps",
                                      "Each variant at every size, below the machine's limit.");
                open = true;
                put_picture(text_get(&svg), out);
            }
            text_free(&svg);
        }
    }
    if (open) html_close_section(out);
}

/* ---- distributions and ratios ---- */

enum { BINS = 60, MOST_SHAPES = 24, ROW = 40, NAME = 18, RATIO_ROW = 30 }; /* NAME: of a row, above its bars */

typedef struct unit {
    const char *name;
    double ns;
} unit;

static unit unit_of(double time_ns)
{
    return time_ns < 2e3   ? (unit){"ns", 1}
           : time_ns < 2e6 ? (unit){"us", 1e3}
           : time_ns < 2e9 ? (unit){"ms", 1e6}
                           : (unit){"s", 1e9};
}

static void put_label(const plot *p, double y, const char *words)
{
    text_print(p->out, "<text class=\"dot-name\" x=\"%.1f\" y=\"%.1f\">", p->left + 4, y);
    html_text(p->out, words);
    text_add(p->out, "</text>\n");
}

/* A row of bars for one variant: how often each time came. The marks are the median and its interval. */
static void put_histogram(const plot *p, const qn_bench_variant *v, double ns, double top)
{
    int bins[BINS] = {0}, most = 1, beyond = 0;
    for (int i = 0; i < v->time.sample_count; i++) {
        double at = (plot_x(p, v->time.samples_ns[i] / ns) - p->left) / p->width;
        if (at >= 1 || at < 0) {
            beyond++;
            continue;
        }
        int bin = (int)(at * BINS);
        bins[bin]++;
        most = MAXIMUM(most, bins[bin]);
    }
    double width = p->width / BINS;
    for (int i = 0; i < BINS; i++)
        if (bins[i]) {
            double height = (ROW - NAME - 2) * (double)bins[i] / most;
            text_print(p->out,
                       "<rect class=\"mark\" opacity=\"0.6\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
                       p->left + i * width, top + ROW - 2 - height, width, height);
        }
    double low = plot_x(p, fmax(v->time.interval_low_ns / ns, p->x_low));
    double high = plot_x(p, fmin(v->time.interval_high_ns / ns, p->x_high));
    text_print(p->out, "<rect class=\"band\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>", low, top + NAME - 1,
               fmax(high - low, 1), ROW - NAME - 1);
    text_print(p->out, "<path class=\"median\" d=\"M%.1f %.1fV%.1f\"/>\n", plot_x(p, v->time.median_ns / ns),
               top + NAME - 1, top + ROW - 2);
    text words = {0};
    text_print(&words, "%s%s", v->label, v->time.two_peaks ? " (two peaks)" : "");
    if (beyond) text_print(&words, ", %d beyond the picture", beyond);
    put_label(p, top + NAME - 5, text_get(&words));
    text_free(&words);
}

static void put_distribution(const qn_bench_point *point, text *out)
{
    double low = INFINITY, high = 0;
    int shown = 0;
    for (int i = 0; i < point->variant_count; i++) {
        const qn_bench_variant *v = &point->variants[i];
        if (!is_timed(v) || shown++ >= MOST_SHAPES) continue;
        low = fmin(low, v->time.least_ns);
        /* Far outliers would press all else into a corner. */
        high = fmax(high, fmin(v->time.most_ns, v->time.high_ns + 3 * (v->time.high_ns - v->time.low_ns)));
    }
    if (!shown) return;
    shown = MINIMUM(shown, MOST_SHAPES);
    unit u = unit_of(high);
    bool wide = high > 8 * low; /* variants far apart: each needs room */
    double margin = 0.03 * (high - low) + 1e-3 * high;
    plot p = {.x_low = (wide ? low * 0.9 : fmax(low - margin, 0)) / u.ns,
              .x_high = (high + margin) / u.ns,
              .y_low = 0,
              .y_high = 1,
              .x_log = wide};
    char axis[40];
    snprintf(axis, sizeof(axis), "time (%s)", u.name);
    plot_open(&p, out, "Distribution of the samples", 760, ROW * shown + 60);
    p.no_y = true;
    plot_axes(&p, axis, "");
    int row = 0;
    for (int i = 0; i < point->variant_count && row < MOST_SHAPES; i++) {
        if (!is_timed(&point->variants[i])) continue;
        text_print(out, "<g class=\"s%d\">", row % 6);
        put_histogram(&p, &point->variants[i], u.ns, p.top + ROW * row++);
        text_add(out, "</g>\n");
    }
    plot_close(&p);
}

static void put_ratios(const qn_bench_point *point, text *out)
{
    double low = 0.95, high = 1.05;
    int shown = 0;
    for (int i = 0; i < point->variant_count; i++) {
        const qn_bench_comparison *c = &point->variants[i].first;
        if (!c->verdict || shown++ >= MOST_SHAPES) continue;
        low = fmin(low, 0.97 / c->ratio_high);
        high = fmax(high, 1.03 / c->ratio_low);
    }
    if (!shown) return;
    shown = MINIMUM(shown, MOST_SHAPES);
    plot p = {.x_low = low, .x_high = high, .y_low = 0, .y_high = 1, .x_log = high / low > 3};
    plot_open(&p, out, "Ratios to the first variant", 760, RATIO_ROW * shown + 60);
    p.no_y = true;
    plot_axes(&p, "times as fast as the first variant, 99 % interval", "");
    text_print(out, "<path class=\"limit\" d=\"M%.1f %.1fV%.1f\"/>", plot_x(&p, 1), p.top, p.top + p.height);
    int row = 0;
    for (int i = 0; i < point->variant_count && row < MOST_SHAPES; i++) {
        const qn_bench_comparison *c = &point->variants[i].first;
        if (!c->verdict) continue;
        double y = p.top + RATIO_ROW * row++ + RATIO_ROW - 8;
        int colour = c->verdict == QN_FASTER ? 3 : c->verdict == QN_SLOWER ? 5 : 4;
        text_print(out,
                   "<g class=\"s%d\"><path class=\"curve\" d=\"M%.1f %.1fH%.1f\"/><circle class=\"mark\" cx=\"%.1f\" "
                   "cy=\"%.1f\" r=\"4\"/></g>",
                   colour, plot_x(&p, 1 / c->ratio_high), y, plot_x(&p, 1 / c->ratio_low), plot_x(&p, 1 / c->ratio), y);
        text words = {0};
        text_print(&words, "%s: %s", point->variants[i].label, qn_verdict_name(c->verdict));
        put_label(&p, y - 8, text_get(&words));
        text_free(&words);
    }
    plot_close(&p);
}

static void put_points(const qn_bench_results *r, text *out)
{
    html_open_section(out, "distributions", "Distributions",
                      "How often each time came; the line is the median, the band its interval. Outliers are counted, "
                      "never dropped.");
    for (int i = 0; i < r->point_count; i++) {
        const qn_bench_point *p = &r->points[i];
        bool any = false;
        for (int k = 0; k < p->variant_count; k++) any |= is_timed(&p->variants[k]);
        if (!any) continue;
        text_print(out, "<details%s><summary>", i < 3 ? " open" : "");
        html_print(out, "%s on %s (%s)", p->bench, p->device, p->arguments);
        text_add(out, "</summary>\n");
        put_distribution(p, out);
        put_ratios(p, out);
        text_add(out, "</details>\n");
    }
    html_close_section(out);
}

/* ---- roofline ---- */

static void put_roofline(const qn_bench_results *r, text *out)
{
    int most = 0, count = 0;
    for (int i = 0; i < r->point_count; i++) most += r->points[i].variant_count;
    arena *memory = arena_new();
    roof_dot *dots = ARENA_ARRAY(memory, roof_dot, most + 1);
    qn_ceilings best = {0};
    double products = 0;
    for (int i = 0; i < r->point_count; i++) {
        const qn_bench_point *p = &r->points[i];
        best.copy_gb_per_s = fmax(best.copy_gb_per_s, p->ceilings.copy_gb_per_s);
        best.read_gb_per_s = fmax(best.read_gb_per_s, p->ceilings.read_gb_per_s);
        best.fma_all_gflop_per_s = fmax(best.fma_all_gflop_per_s, p->ceilings.fma_all_gflop_per_s);
        for (int k = 0; k < p->variant_count; k++) {
            const qn_bench_variant *v = &p->variants[k];
            if (!is_timed(v)) continue;
            if (limit_is_products(v->limit)) products = fmax(products, variant_peak(p, v));
            dots[count++] = (roof_dot){.name = v->label,
                                       .about = p->arguments,
                                       .flops = v->flops,
                                       .bytes = v->bytes,
                                       .time_ns = v->time.median_ns,
                                       .share = NAN,
                                       .roof_share = v->share_of_limit,
                                       .bound = v->limit,
                                       .kernel = -1};
        }
    }
    roof roofs[MOST_ROOFS];
    text picture = {0};
    const qn_roofline roofline = roofline_from(&best);
    int roof_count = roofs_of(&roofline, roofs);
    if (products > 0) roofs[roof_count++] = (roof){"products", products, false, true};
    if (count) roofline_draw(r->points[0].device, roofs, roof_count, dots, count, &picture);
    if (picture.length) {
        html_open_section(out, "roofline", "Roofline",
                          "A dot is a variant at a size. On the slope the memory is the limit, under the flat part the "
                          "arithmetic. Ceilings were measured in the same run.");
        text_add_bytes(out, text_get(&picture), picture.length);
        html_close_section(out);
    }
    text_free(&picture);
    arena_free(memory);
}

/* ---- data ---- */

enum { MOST_SAMPLES = 2000 }; /* of a variant; the page has the quantiles of all */

static void put_data(const qn_bench_results *r, text *out)
{
    text_add(out, "{\"bench\":[");
    for (int i = 0, written = 0; i < r->point_count; i++)
        for (int k = 0; k < r->points[i].variant_count; k++) {
            const qn_bench_variant *v = &r->points[i].variants[k];
            text_print(out, "%s{\"bench\":", written++ ? ",\n" : "\n");
            json_add_string(out, r->points[i].bench);
            text_add(out, ",\"arguments\":");
            json_add_string(out, r->points[i].arguments);
            text_add(out, ",\"variant\":");
            json_add_string(out, v->label);
            text_print(out, ",\"status\":\"%s\",\"samples_ns\":[", variant_status_names[v->status]);
            for (int n = 0; n < MINIMUM(v->time.sample_count, MOST_SAMPLES); n++)
                text_print(out, "%s%.7g", n ? "," : "", v->time.samples_ns[n]);
            text_add(out, "]}");
        }
    text_add(out, "]}");
}

qn_status bench_report_write(const qn_bench_results *results, const bench_extras *extras, const char *path,
                             const qn_report_options *options, qn_error *error)
{
    text page = {0}, data = {0}, title = {0};
    text_print(&title, "Quern bench%s%s", results->point_count ? " of " : "",
               results->point_count ? results->points[0].file : "");
    page_open(&page, options->title ? options->title : text_get(&title));
    page_note(&page, "warning", options->note);
    put_verdicts(results, &page);
    put_environment(&results->environment, options->command, &page);
    text_add(&page, "</header>\n<main>\n");
    put_table(results, &page);
    if (extras && extras->hint_count) bench_hints_put(extras, &page);
    put_sweeps(results, &page);
    put_points(results, &page);
    put_roofline(results, &page);
    if (extras) sources_put(extras->sources, &page);
    text_add(&page, "</main>\n");
    put_data(results, &data);
    page_close(&page, &data);
    qn_status status = file_write(path, text_get(&page), page.length, error);
    text_free(&page);
    text_free(&data);
    text_free(&title);
    return status;
}

qn_status qn_bench_report(const qn_bench_results *results, const char *path, const qn_report_options *options,
                          qn_error *error)
{
    HEAP_ENTER(error);
    static const qn_report_options defaults;
    if (!results || !path) return error_set(error, QN_BAD_CALL, "qn_bench_report: an argument is NULL");
    return bench_report_write(results, NULL, path, options ? options : &defaults, error);
}
