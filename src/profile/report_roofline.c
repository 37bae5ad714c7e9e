/*
 * The roofline: what each kernel reaches beside what the machine can. In: kernels with bytes and operations, measured
 * ceilings. Out: one log-log picture for each device: the slope is the memory's bandwidth, the flat part the peak of the
 * arithmetic, a dot is a kernel, its area the share of the time.
 * SPDX-License-Identifier: MIT
 */
#include "profile/report.h"

#include <math.h>
#include <string.h>

static double rate_of(const report_kernel *k) /* GFLOP/s */
{
    return k->flops / ((double)k->total_ns / (double)k->calls);
}

static bool is_drawn(const report_kernel *k)
{
    return k->flops > 0 && k->bytes > 0 && k->total_ns > 0;
}

static void put_roof(const plot *p, double gb_per_s, double peak, const char *name, const char *class)
{
    double knee = peak / gb_per_s, from_x = p->x_low, from_y = gb_per_s * p->x_low;
    if (gb_per_s <= 0 || peak <= 0) return;
    if (from_y < p->y_low) {
        from_y = p->y_low;
        from_x = from_y / gb_per_s;
    }
    text_print(p->out, "<path class=\"roof %s\" d=\"M%.1f %.1fL%.1f %.1fH%.1f\"/>", class, plot_x(p, from_x),
               plot_y(p, from_y), plot_x(p, knee), plot_y(p, peak), p->left + p->width);
    /* The name runs along the slope. */
    double x0 = plot_x(p, from_x), y0 = plot_y(p, from_y), x1 = plot_x(p, knee), y1 = plot_y(p, peak);
    double angle = atan2(y1 - y0, x1 - x0) * 180 / 3.14159265358979;
    text_print(p->out, "<text class=\"roof-name\" transform=\"translate(%.1f %.1f) rotate(%.1f)\">",
               x0 + 0.12 * (x1 - x0), y0 + 0.12 * (y1 - y0) - 5, angle);
    html_print(p->out, "%s %.4g GB/s", name, gb_per_s);
    text_add(p->out, "</text>\n");
}

static void put_kernels(const report_model *m, int device, const plot *p, int64_t total_ns)
{
    struct {
        double left, right, y;
    } labels[24];
    int label_count = 0;
    for (int i = 0; i < m->kernel_count; i++) {
        const report_kernel *k = &m->kernels[i];
        if (k->device_number != device || !is_drawn(k)) continue;
        double share = (double)k->total_ns / (double)MAXIMUM(total_ns, 1), x = plot_x(p, k->flops / k->bytes);
        double y = plot_y(p, rate_of(k)), radius = 3.5 + 14 * sqrt(share);
        text_print(p->out, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" data-kernel=\"%d\"><title>", x, y,
                   radius, i);
        html_print(p->out, "%s %s: %.4g GFLOP/s, %.3g FLOP/byte, %.1f %% of the time", k->name,
                   k->shapes ? k->shapes : "", rate_of(k), k->flops / k->bytes, 100 * share);
        if (isfinite(k->roof_share)) html_print(p->out, ", %.0f %% of the %s roof", 100 * k->roof_share, k->bound);
        text_add(p->out, "</title></circle>");
        /* A name that would lie over another is left to the tip. */
        double length = 6.2 * (double)strlen(k->name);
        bool right = x + radius + 3 + length < p->left + p->width, covered = label_count == COUNT(labels);
        double from = right ? x + radius + 3 : x - radius - 3 - length;
        for (int n = 0; n < label_count; n++)
            covered |= fabs(labels[n].y - y) < 11 && from < labels[n].right && labels[n].left < from + length;
        if (covered) continue;
        labels[label_count].left = from;
        labels[label_count].right = from + length;
        labels[label_count++].y = y;
        text_print(p->out, "<text class=\"dot-name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
                   right ? x + radius + 3 : x - radius - 3, y + 4, right ? "start" : "end");
        html_text(p->out, k->name);
        text_add(p->out, "</text>\n");
    }
}

static void draw(const report_model *m, int number, text *out)
{
    const report_device *d = &m->devices[number];
    double peak = d->measured ? d->ceilings.fma_all_gflop_per_s : 0, low_x = 0.05, high_x = 64, low_y = INFINITY;
    double high_y = peak;
    int64_t total_ns = 0;
    for (int i = 0; i < m->kernel_count; i++) {
        const report_kernel *k = &m->kernels[i];
        if (k->device_number != number) continue;
        total_ns += k->total_ns;
        if (!is_drawn(k)) continue;
        low_x = fmin(low_x, k->flops / k->bytes / 2);
        high_x = fmax(high_x, k->flops / k->bytes * 4);
        low_y = fmin(low_y, rate_of(k) / 4);
        high_y = fmax(high_y, rate_of(k));
    }
    if (!isfinite(low_y)) return;
    if (peak > 0) high_x = fmax(high_x, 4 * peak / d->ceilings.copy_gb_per_s);
    plot p = {.x_low = low_x,
              .x_high = high_x,
              .y_low = fmin(low_y, high_y / 1000),
              .y_high = high_y * 2,
              .x_log = true,
              .y_log = true};
    text title = {0};
    text_print(&title, "Roofline of %s", d->name);
    plot_open(&p, out, text_get(&title), 760, 420);
    text_free(&title);
    plot_axes(&p, "operations for each byte of memory (FLOP/byte)", "GFLOP/s");
    if (d->measured) {
        put_roof(&p, d->ceilings.read_gb_per_s, peak, "read", "second");
        put_roof(&p, d->ceilings.copy_gb_per_s, peak, "copy", "first");
        text_print(out, "<text class=\"roof-name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", p.left + p.width - 6,
                   plot_y(&p, peak) - 5);
        html_print(out, "multiply-add f32 %.4g GFLOP/s", peak);
        text_add(out, "</text>\n");
    }
    put_kernels(m, number, &p, total_ns);
    plot_close(&p);
}

void report_roofline(const report_model *m, text *out)
{
    html_open_section(out, "roofline", "Roofline",
                      "A dot is a kernel; the larger, the more of the time it takes. On the slope the memory is the "
                      "limit, under the flat part the arithmetic. Bytes are those of the arrays, once each; ceilings "
                      "are measured on this machine.");
    for (int i = 0; i < m->device_count; i++) {
        const report_device *d = &m->devices[i];
        draw(m, i, out);
        if (!d->measured) html_print(out, "The ceilings of %s were not measured. ", d->name);
    }
    int without = 0;
    for (int i = 0; i < m->kernel_count; i++) {
        const report_kernel *k = &m->kernels[i];
        if (is_drawn(k)) continue;
        text_add(out, without++ ? ", "
                                : "<p class=\"about\">Without a place, since they compute nothing or nobody "
                                  "knows how much: ");
        html_text(out, k->name);
        if (isfinite(k->roof_share)) html_print(out, " (%.0f %% of the %s roof)", 100 * k->roof_share, k->bound);
    }
    if (without) text_add(out, "</p>\n");
    html_close_section(out);
}
