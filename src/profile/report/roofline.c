/*
 * The roofline: what each kernel reaches beside what the machine can. In: kernels with bytes and operations, measured
 * ceilings. Out: one log-log picture for each device: the slope is the memory's bandwidth, the flat part the peak of the
 * arithmetic, a dot is a kernel, its area the share of the time.
 * SPDX-License-Identifier: MIT
 */
#include "profile/report/report.h"
#include "profile/measure/roofs.h"

#include <math.h>
#include <string.h>

static double rate_of(const roof_dot *d) /* GFLOP/s */
{
    return d->flops / d->time_ns;
}

static bool is_drawn(const roof_dot *d)
{
    return d->flops > 0 && d->bytes > 0 && d->time_ns > 0;
}

/* ---- places ---- */

typedef struct area {
    double left, right, top, bottom;
} area;

static area area_of(const plot *p, const roof_dot *d)
{
    double x = plot_x(p, d->flops / d->bytes), y = plot_y(p, rate_of(d));
    double radius = isfinite(d->share) ? 3.5 + 14 * sqrt(d->share) : 5;
    return (area){x - radius, x + radius, y - radius, y + radius};
}

/* What lies on the picture already: dots (of what is not drawn: empty), and pieces of names. */
typedef struct layout {
    area *dots;
    int dot_count, name_count;
    area names[96];
} layout;

static bool meet(const area *a, const area *b)
{
    return a->left < b->right && b->left < a->right && a->top < b->bottom && b->top < a->bottom;
}

/* On a dot other than this one, or on a name. */
static bool is_taken(const layout *l, const area *own, int but)
{
    for (int i = 0; i < l->name_count; i++)
        if (meet(own, &l->names[i])) return true;
    for (int i = 0; i < l->dot_count; i++)
        if (i != but && l->dots[i].right > l->dots[i].left && meet(own, &l->dots[i])) return true;
    return false;
}

static void take(layout *l, const area *own)
{
    if (l->name_count < COUNT(l->names)) l->names[l->name_count++] = *own;
}

/* ---- roofs ---- */

/* A name along a slope, which begins at (x, y), in pieces; false: one of them lies on something. */
static bool along_slope(layout *l, double x, double y, double angle, double length, bool taken)
{
    for (double at = 0; at <= length; at += 12) {
        double middle_x = x + at * cos(angle), middle_y = y + at * sin(angle) - 4;
        area piece = {middle_x - 6, middle_x + 6, middle_y - 6, middle_y + 6};
        if (taken) take(l, &piece);
        if (!taken && is_taken(l, &piece, -1)) return false;
    }
    return true;
}

/* The slope of one memory, up to the highest peak. */
static void put_slope(const plot *p, const roof *r, double peak, bool highest, layout *l)
{
    double knee = peak / r->value, from_x = p->x_low, from_y = r->value * p->x_low;
    if (from_y < p->y_low) {
        from_y = p->y_low;
        from_x = from_y / r->value;
    }
    double x0 = plot_x(p, from_x), y0 = plot_y(p, from_y), x1 = plot_x(p, knee), y1 = plot_y(p, peak);
    if (x1 <= x0) return;
    text_print(p->out, "<path class=\"roof %s\" d=\"M%.1f %.1fL%.1f %.1f\"/>", r->dashed ? "second" : "first", x0, y0,
               x1, y1);
    /* The name runs along it, above the highest, below the others, which may be near it, where no dot lies. */
    double angle = atan2(y1 - y0, x1 - x0), usual = r->dashed ? 0.4 : 0.08, at = usual;
    double length = 7.2 * (double)(strlen(r->name) + strlen(" 1234 GB/s")), aside = highest ? -5 : 19;
    for (int turn = 0; turn < 8; turn++) {
        at = fmod(usual + 0.125 * turn, 1);
        double x = x0 + at * (x1 - x0), y = y0 + at * (y1 - y0) + aside;
        if (x + length * cos(angle) < x1 && along_slope(l, x, y, angle, length, false)) break;
        at = usual;
    }
    along_slope(l, x0 + at * (x1 - x0), y0 + at * (y1 - y0) + aside, angle, length, true);
    text_print(p->out, "<text class=\"roof-name\" transform=\"translate(%.1f %.1f) rotate(%.1f)\">",
               x0 + at * (x1 - x0), y0 + at * (y1 - y0) + aside, angle * 180 / 3.14159265358979);
    html_print(p->out, "%s %.4g %s", r->name, r->value < 1e4 ? r->value : r->value / 1e3,
               r->value < 1e4 ? "GB/s" : "TB/s");
    text_add(p->out, "</text>\n");
}

static void put_flat(const plot *p, const roof *r, double steepest)
{
    double y = plot_y(p, r->value), x = plot_x(p, r->value / steepest);
    text_print(p->out, "<path class=\"roof %s\" d=\"M%.1f %.1fH%.1f\"/>", r->dashed ? "second" : "first", x, y,
               p->left + p->width);
    text_print(p->out, "<text class=\"roof-name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", p->left + p->width - 6,
               y - 5);
    html_print(p->out, "%s %.4g %s", r->name, r->value < 1e4 ? r->value : r->value / 1e3,
               r->value < 1e4 ? "GFLOP/s" : "TFLOP/s");
    text_add(p->out, "</text>\n");
}

/* ---- kernels ---- */

static void put_dot(const plot *p, const roof_dot *d, double x, double y, double radius)
{
    text_print(p->out, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"", x, y, radius);
    if (d->kernel >= 0) text_print(p->out, " data-kernel=\"%d\"", d->kernel);
    text_add(p->out, "><title>");
    html_print(p->out, "%s %s: %.4g GFLOP/s, %.4g GB/s, %.3g FLOP/byte", d->name, d->about ? d->about : "", rate_of(d),
               d->bytes / d->time_ns, d->flops / d->bytes);
    if (isfinite(d->share)) html_print(p->out, ", %.1f %% of the time", 100 * d->share);
    if (isfinite(d->roof_share))
        html_print(p->out, ", %.0f %% of the roof: %s", 100 * d->roof_share, limit_words(d->roof_share, d->bound));
    text_add(p->out, "</title></circle>");
}

/* Beside its dot, on the right or on the left, where it lies on nothing; else it is left to the tip. */
static void put_name(const plot *p, const roof_dot *d, int number, layout *l)
{
    double length = 7.2 * (double)strlen(d->name); /* as wide as a phone draws it, nearly */
    const area *dot = &l->dots[number];
    double y = (dot->top + dot->bottom) / 2;
    for (int side = 0; side < 2; side++) {
        double from = side ? dot->left - 3 - length : dot->right + 3;
        area own = {from, from + length, y - 7, y + 7};
        if (own.left < p->left || own.right > p->left + p->width || is_taken(l, &own, number)) continue;
        take(l, &own);
        text_print(p->out, "<text class=\"dot-name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
                   side ? own.right : own.left, y + 4, side ? "end" : "start");
        html_text(p->out, d->name);
        text_add(p->out, "</text>\n");
        return;
    }
}

static void put_dots(const plot *p, const roof_dot *dots, int count, layout *l)
{
    for (int i = 0; i < count; i++) {
        const area *at = &l->dots[i];
        if (is_drawn(&dots[i]))
            put_dot(p, &dots[i], (at->left + at->right) / 2, (at->top + at->bottom) / 2, (at->right - at->left) / 2);
    }
    for (int i = 0; i < count; i++)
        if (is_drawn(&dots[i])) put_name(p, &dots[i], i, l);
}

void roofline_draw(const char *device, const roof *roofs, int roof_count, const roof_dot *dots, int count, text *out)
{
    double low_x = 0.05, high_x = 64, low_y = INFINITY, high_y = 0, peak = 0, steepest = 0, slowest = INFINITY;
    for (int i = 0; i < roof_count; i++) {
        if (roofs[i].is_memory) steepest = fmax(steepest, roofs[i].value);
        if (roofs[i].is_memory) slowest = fmin(slowest, roofs[i].value);
        if (!roofs[i].is_memory) peak = fmax(peak, roofs[i].value);
    }
    high_y = peak;
    for (int i = 0; i < count; i++) {
        if (!is_drawn(&dots[i])) continue;
        low_x = fmin(low_x, dots[i].flops / dots[i].bytes / 2);
        high_x = fmax(high_x, dots[i].flops / dots[i].bytes * 4);
        low_y = fmin(low_y, rate_of(&dots[i]) / 4);
        high_y = fmax(high_y, rate_of(&dots[i]));
    }
    if (!isfinite(low_y)) return;
    if (peak > 0 && isfinite(slowest)) high_x = fmax(high_x, 3 * peak / slowest);
    plot p = {.x_low = low_x,
              .x_high = high_x,
              .y_low = fmin(low_y, high_y / 1000),
              .y_high = high_y * 2,
              .x_log = true,
              .y_log = true};
    text title = {0};
    text_print(&title, "Roofline of %s", device);
    plot_open(&p, out, text_get(&title), 760, 420);
    text_free(&title);
    plot_axes(&p, "operations for each byte of memory (FLOP/byte)", "GFLOP/s");
    layout l = {.dots = heap_array((size_t)count + 1, sizeof(area)), .dot_count = count};
    for (int i = 0; i < count; i++)
        if (is_drawn(&dots[i])) l.dots[i] = area_of(&p, &dots[i]);
    for (int i = 0; i < roof_count; i++) {
        if (roofs[i].is_memory && peak > 0) put_slope(&p, &roofs[i], peak, roofs[i].value >= steepest, &l);
        if (!roofs[i].is_memory && steepest > 0) put_flat(&p, &roofs[i], steepest);
    }
    put_dots(&p, dots, count, &l);
    heap_free(l.dots);
    plot_close(&p);
}

int roofs_of(const qn_roofline *r, roof *out)
{
    const roof all[] = {{"copy", r->copy_gb_per_s, true, false},
                        {"read", r->read_gb_per_s, true, true},
                        {"last cache", r->cache_gb_per_s, true, true},
                        {"multiply-add f32", r->fma_f32_gflop_per_s, false, false},
                        {"multiply-add f64", r->fma_f64_gflop_per_s, false, true},
                        {"products tf32", r->dot_tf32_gflop_per_s, false, true},
                        {"products bf16", r->dot_bf16_gflop_per_s, false, true},
                        {"products f8", r->dot_f8_gflop_per_s, false, true}};
    int count = 0;
    for (int i = 0; i < COUNT(all); i++)
        if (all[i].value > 0) out[count++] = all[i];
    return count;
}

/* ---- of a profile ---- */

static void draw_device(const report_model *m, int number, text *out)
{
    const report_device *device = &m->devices[number];
    roof_dot *dots = ARENA_ARRAY(m->memory, roof_dot, m->kernel_count + 1);
    roof roofs[MOST_ROOFS];
    int64_t total_ns = 0;
    int count = 0;
    for (int i = 0; i < m->kernel_count; i++)
        if (m->kernels[i].device_number == number) total_ns += m->kernels[i].total_ns;
    for (int i = 0; i < m->kernel_count; i++) {
        const report_kernel *k = &m->kernels[i];
        if (k->device_number != number) continue;
        dots[count++] = (roof_dot){.name = k->title,
                                   .about = k->shapes,
                                   .flops = k->flops,
                                   .bytes = k->bytes,
                                   .time_ns = (double)k->total_ns / (double)k->calls,
                                   .share = (double)k->total_ns / (double)MAXIMUM(total_ns, 1),
                                   .roof_share = k->roof_share,
                                   .bound = k->bound,
                                   .kernel = i};
    }
    roofline_draw(device->name, roofs, device->measured ? roofs_of(&device->roofline, roofs) : 0, dots, count, out);
    if (!device->measured) html_print(out, "The ceilings of %s were not measured. ", device->name);
    bool first = true;
    for (int i = 0; i < count; i++) {
        if (is_drawn(&dots[i])) continue;
        text_add(out, first
                          ? "<p class=\"about\">Without a place, since they compute nothing or nobody knows how much: "
                          : ", ");
        first = false;
        html_text(out, dots[i].name);
        if (isfinite(dots[i].roof_share))
            html_print(out, " (%.0f %% of the roof: %s)", 100 * dots[i].roof_share,
                       limit_words(dots[i].roof_share, dots[i].bound));
    }
    if (!first) text_add(out, "</p>\n");
}

void report_roofline(const report_model *m, text *out)
{
    html_open_section(out, "roofline", "Roofline",
                      "A dot is a kernel; the larger, the more of the time it takes. On the slope the memory is the "
                      "limit, under the flat part the arithmetic. Bytes are those of the arrays, once each; ceilings "
                      "are measured on this machine.");
    for (int i = 0; i < m->device_count; i++) draw_device(m, i, out);
    html_close_section(out);
}
