/*
 * Sweeps as pictures. In: the results of a bench. Out: an SVG document: the rate of every variant against the swept
 * setting, with bands (of many variants: whiskers) where 60 percent of the samples lie, and the roof that memory and
 * arithmetic allow as a broken line. It needs neither a network nor a script, and reads in dark and light.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 760, HEIGHT = 420, LEFT = 70, RIGHT = 20, TOP = 34, BOTTOM = 52, LEGEND_LINE = 18, MOST_SERIES = 24 };
enum { MOST_BANDS = 3 }; /* more would hide each other */

/* Colours that are told apart by everybody (Okabe and Ito). */
static const char *const colours[] = {"#0072b2", "#e69f00", "#cc79a7", "#009e73",
                                      "#5b636d", "#b3261e", "#a07840"}; /* as report.css has them */
static const char *const dark_colours[] = {"#56a8e0", "#e9b949", "#d993bd", "#3fc49a", "#9aa3ad", "#ff8a80", "#a07840"};

typedef struct plot {
    const qn_bench_results *results;
    const char *bench, *name; /* name: of the swept setting on the x axis */
    bool flops;
    double x_low, x_high, y_high; /* x as logarithms of base 2 where `log_x` */
    bool log_x;
    const char *series[MOST_SERIES]; /* labels */
    int series_count, lines;         /* lines: of the legend */
    arena *memory;
} plot;

static void add_escaped(text *out, const char *words)
{
    text_add_escaped(out, ESCAPE_PAGE, words, strlen(words));
}

static const qn_bench_setting *axis_setting(const qn_bench_point *p, const char *name)
{
    for (int i = 0; i < p->setting_count; i++)
        if (p->settings[i].swept && isfinite(p->settings[i].number) && (!name || !strcmp(p->settings[i].name, name)))
            return &p->settings[i];
    return NULL;
}

/* The variant, with the other settings that change from point to point. */
static const char *series_label(const plot *p, const qn_bench_point *point, const qn_bench_variant *v)
{
    text words = {0};
    text_add(&words, v->label);
    for (int i = 0; i < point->setting_count; i++)
        if (point->settings[i].swept && strcmp(point->settings[i].name, p->name) != 0)
            text_print(&words, ", %s = %s", point->settings[i].name, point->settings[i].value);
    const char *copy = arena_copy_text(p->memory, text_get(&words), words.length);
    text_free(&words);
    return copy;
}

static double x_value(const plot *p, const qn_bench_point *point)
{
    double number = axis_setting(point, p->name)->number;
    return p->log_x ? log2(number) : number;
}

static double x_place(const plot *p, double x)
{
    double share = p->x_high > p->x_low ? (x - p->x_low) / (p->x_high - p->x_low) : 0.5;
    return LEFT + share * (WIDTH - LEFT - RIGHT);
}

static double y_place(const plot *p, double y)
{
    return HEIGHT - BOTTOM - y / p->y_high * (HEIGHT - TOP - BOTTOM);
}

static bool belongs(const plot *p, const qn_bench_point *point)
{
    return !strcmp(point->bench, p->bench) && axis_setting(point, p->name);
}

static void add_series(plot *p, const char *label)
{
    for (int i = 0; i < p->series_count; i++)
        if (!strcmp(p->series[i], label)) return;
    if (p->series_count < MOST_SERIES) p->series[p->series_count++] = label;
}

/* Ranges of both axes, and the series. False: nothing to draw. */
static bool look(plot *p)
{
    p->log_x = true;
    p->x_low = INFINITY;
    p->x_high = -INFINITY;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < p->results->point_count; i++) {
            const qn_bench_point *point = &p->results->points[i];
            if (!belongs(p, point)) continue;
            if (!pass) p->log_x = p->log_x && axis_setting(point, p->name)->number > 0;
            for (int v = 0; pass && v < point->variant_count; v++) {
                double rate = variant_rate(&point->variants[v], p->flops), x = x_value(p, point);
                double roof = variant_roof(point, &point->variants[v], p->flops);
                if (!isfinite(rate)) continue;
                add_series(p, series_label(p, point, &point->variants[v]));
                p->x_low = fmin(p->x_low, x);
                p->x_high = fmax(p->x_high, x);
                p->y_high = fmax(p->y_high, rate);
                if (isfinite(roof) && !point->in_cache) p->y_high = fmax(p->y_high, roof);
            }
        }
    p->lines = (p->series_count + 2) / 2;
    return p->series_count > 0 && p->y_high > 0;
}

/* 1, 2 or 5 times a power of ten: about five steps to the top. */
static double nice_step(double high)
{
    double power = pow(10, floor(log10(high / 5))), rest = high / 5 / power;
    return power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
}

static void draw_axes(const plot *p, text *out)
{
    double step = nice_step(p->y_high);
    for (double y = 0; y <= p->y_high * 1.0001; y += step)
        text_print(out,
                   "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" "
                   "text-anchor=\"end\">%g</text>\n",
                   LEFT, WIDTH - RIGHT, y_place(p, y), y_place(p, y), LEFT - 8, y_place(p, y) + 4, y);
    double wide = p->x_high - p->x_low;
    double x_step = p->log_x ? fmax(1, ceil(wide / 10)) : wide > 0 ? nice_step(wide) : 1;
    for (double x = p->log_x ? ceil(p->x_low - 1e-9) : p->x_low; x <= p->x_high + 1e-9; x += x_step) {
        text_print(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", x_place(p, x), HEIGHT - BOTTOM + 18);
        if (p->log_x)
            text_print(out, "2<tspan dy=\"-5\" font-size=\"75%%\">%.0f</tspan></text>\n", x);
        else
            text_print(out, "%g</text>\n", x);
    }
    text_print(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14);
    add_escaped(out, p->name);
    text_print(out, "</text>\n<text class=\"title\" x=\"%d\" y=\"20\">", LEFT);
    add_escaped(out, p->bench);
    text_print(out, ": %s</text>\n", p->flops ? "TFLOP/s" : "GB/s");
}

typedef struct corner {
    double x, y, low, high;
} corner;

static int by_x(const void *a, const void *b)
{
    double x = ((const corner *)a)->x, y = ((const corner *)b)->x;
    return (x > y) - (x < y);
}

/* The points of a series (roof: of what its first variant could reach), from left to right. */
static int collect(const plot *p, const char *label, bool roof, corner *out)
{
    int count = 0;
    for (int i = 0; i < p->results->point_count; i++) {
        const qn_bench_point *point = &p->results->points[i];
        if (!belongs(p, point)) continue;
        for (int v = 0; v < point->variant_count; v++) {
            const qn_bench_variant *variant = &point->variants[v];
            double rate = variant_rate(variant, p->flops), top = variant_roof(point, variant, p->flops);
            if (!isfinite(rate) || strcmp(series_label(p, point, variant), label) != 0) continue;
            if (roof && (!isfinite(top) || point->in_cache)) continue;
            double median = variant->time.median_ns, y = roof ? top : rate;
            out[count++] = (corner){.x = x_value(p, point),
                                    .y = y,
                                    .low = rate * median / variant->time.high_ns,
                                    .high = rate * median / variant->time.low_ns};
        }
    }
    qsort(out, (size_t)count, sizeof(*out), by_x);
    return count;
}

static void draw_line(const plot *p, const corner *c, int count, const char *style, text *out)
{
    text_print(out, "<polyline fill=\"none\" %s points=\"", style);
    for (int i = 0; i < count; i++) text_print(out, "%.1f,%.1f ", x_place(p, c[i].x), y_place(p, c[i].y));
    text_add(out, "\"/>\n");
}

static void draw_band(const plot *p, const corner *c, int count, const char *colour, text *out)
{
    text_print(out, "<polygon class=\"band\" fill=\"%s\" opacity=\"0.18\" points=\"", colour);
    for (int i = 0; i < count; i++)
        text_print(out, "%.1f,%.1f ", x_place(p, c[i].x), y_place(p, fmin(c[i].high, p->y_high)));
    for (int i = count - 1; i >= 0; i--) text_print(out, "%.1f,%.1f ", x_place(p, c[i].x), y_place(p, c[i].low));
    text_add(out, "\"/>\n");
}

/* Side by side, each a little beside its dot. */
static void draw_whiskers(const plot *p, int number, const corner *c, int count, const char *colour, text *out)
{
    double aside = 1.6 * (number - 0.5 * (p->series_count - 1));
    for (int i = 0; i < count; i++)
        text_print(out, "<path class=\"curve\" stroke=\"%s\" opacity=\"0.7\" d=\"M%.1f %.1fV%.1f\"/>\n", colour,
                   x_place(p, c[i].x) + aside, y_place(p, c[i].low), y_place(p, fmin(c[i].high, p->y_high)));
}

static void draw_series(const plot *p, int number, corner *c, text *out)
{
    const char *colour = colours[number % COUNT(colours)], *dash = number >= COUNT(colours) ? "6 3" : "none";
    int count = collect(p, p->series[number], false, c);
    text_print(out, "<g class=\"s%d\">\n", number % COUNT(colours));
    if (p->series_count <= MOST_BANDS)
        draw_band(p, c, count, colour, out);
    else
        draw_whiskers(p, number, c, count, colour, out);
    const char *style = arena_print(
        p->memory, "class=\"curve\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\"", colour, dash);
    draw_line(p, c, count, style, out);
    for (int i = 0; i < count; i++) {
        text_print(out, "<circle class=\"mark\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>",
                   x_place(p, c[i].x), y_place(p, c[i].y), colour);
        add_escaped(out, p->series[number]);
        text_print(out, ", %s = %.0f: %.4g</title></circle>\n", p->name, p->log_x ? exp2(c[i].x) : c[i].x, c[i].y);
    }
    int x = LEFT + number % 2 * (WIDTH - LEFT) / 2, y = HEIGHT + number / 2 * LEGEND_LINE;
    text_print(out,
               "<line class=\"curve\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"3\" "
               "stroke-dasharray=\"%s\"/><text x=\"%d\" y=\"%d\">",
               x, x + 22, y, y, colour, dash, x + 28, y + 4);
    add_escaped(out, p->series[number]);
    text_add(out, "</text>\n</g>\n");
}

/* One panel, `top` from the top of the picture; gives its height. */
static int draw(plot *p, int top, text *out)
{
    corner *c = heap_new(sizeof(*c) * (size_t)(p->results->point_count + 1));
    text_print(out, "<g transform=\"translate(0 %d)\">\n", top);
    draw_axes(p, out);
    int count = collect(p, p->series[0], true, c);
    if (count > 1) {
        draw_line(p, c, count, "class=\"roof\"", out);
        int y = HEIGHT + p->series_count / 2 * LEGEND_LINE, x = LEFT + p->series_count % 2 * (WIDTH - LEFT) / 2;
        text_print(out,
                   "<line class=\"roof\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/><text x=\"%d\" y=\"%d\">roof of the "
                   "first, measured</text>\n",
                   x, x + 22, y, y, x + 28, y + 4);
    }
    for (int i = 0; i < p->series_count; i++) draw_series(p, i, c, out);
    text_add(out, "</g>\n");
    heap_free(c);
    return HEIGHT + p->lines * LEGEND_LINE + 10;
}

/* which: bit 0 GB/s, bit 1 TFLOP/s. False: nothing to draw. */
bool plot_sweep(const qn_bench_results *r, const char *bench, int which, text *out)
{
    text panels = {0};
    int height = 0;
    for (int flops = 0; flops < 2; flops++) {
        plot p = {.results = r, .bench = bench, .flops = flops, .memory = arena_new()};
        for (int i = 0; i < r->point_count && !p.name; i++) {
            const qn_bench_setting *s = strcmp(r->points[i].bench, bench) ? NULL : axis_setting(&r->points[i], NULL);
            if (s) p.name = s->name;
        }
        if ((which >> flops & 1) && p.name && look(&p)) height += draw(&p, height, &panels);
        arena_free(p.memory);
    }
    text dark = {0};
    for (int i = 0; i < COUNT(dark_colours); i++)
        text_print(&dark, " .s%d .curve { stroke: %s; } .s%d .mark, .s%d .band { fill: %s; }", i, dark_colours[i], i, i,
                   dark_colours[i]);
    if (height)
        text_print(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                   "font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n"
                   "<style>svg { background: #fff; } svg:root { max-width: 100%%; height: auto; } text { fill: #222; } "
                   ".title { font-size: 14px; font-weight: 600; "
                   "} .grid { stroke: #999; "
                   "stroke-opacity: .35; } .roof { stroke: #555; stroke-width: 1.5; stroke-dasharray: 3 4; }\n"
                   "@media (prefers-color-scheme: dark) { svg { background: #1b1b1d; } text { fill: #ddd; } .roof { "
                   "stroke: #bbb; }%s }</style>\n"
                   "%s</svg>\n",
                   WIDTH, height, WIDTH, text_get(&dark), text_get(&panels));
    text_free(&dark);
    text_free(&panels);
    return height > 0;
}

qn_status qn_bench_plot(const qn_bench_results *results, const char *bench, bool flops, qn_write *write, void *user,
                        qn_error *error)
{
    HEAP_ENTER(error);
    text out = {0};
    if (!results || !write) return error_set(error, QN_BAD_CALL, "qn_bench_plot: an argument is NULL");
    if (!bench && results->point_count) bench = results->points[0].bench;
    bool drawn = bench && plot_sweep(results, bench, flops ? 2 : 1, &out);
    if (drawn) write(user, text_get(&out), out.length);
    text_free(&out);
    return drawn ? QN_OK : error_set(error, QN_BAD_CALL, "there is no sweep of numbers to draw: use --sweep");
}
