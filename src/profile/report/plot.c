/*
 * Plots as SVG: axes with round numbers, linear or logarithmic. In: a field and ranges. Out: SVG whose colours are the
 * page's (classes, not values), so that it follows the theme.
 * SPDX-License-Identifier: MIT
 */
#include "profile/report/report.h"

#include <math.h>

void plot_open(plot *p, text *out, const char *title, double width, double height)
{
    p->out = out;
    p->left = 70;
    p->top = 12;
    p->width = width - p->left - 16;
    p->height = height - p->top - 46;
    text_print(out, "<div class=\"figure\"><svg class=\"plot\" viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"", width,
               height);
    html_text(out, title);
    text_add(out, "\">\n<title>");
    html_text(out, title);
    text_add(out, "</title>\n");
}

static double place(double value, double low, double high, bool logarithmic)
{
    if (logarithmic) return log(value / low) / log(high / low);
    return high > low ? (value - low) / (high - low) : 0.5;
}

double plot_x(const plot *p, double value)
{
    return p->left + p->width * place(value, p->x_low, p->x_high, p->x_log);
}

double plot_y(const plot *p, double value)
{
    return p->top + p->height * (1 - place(value, p->y_low, p->y_high, p->y_log));
}

static void put_tick(const plot *p, bool across, double value, bool labelled)
{
    text *out = p->out;
    double at = across ? plot_x(p, value) : plot_y(p, value);
    if (across)
        text_print(out, "<path class=\"%s\" d=\"M%.1f %.1fV%.1f\"/>", labelled ? "grid" : "grid fine", at, p->top,
                   p->top + p->height);
    else
        text_print(out, "<path class=\"%s\" d=\"M%.1f %.1fH%.1f\"/>", labelled ? "grid" : "grid fine", p->left, at,
                   p->left + p->width);
    if (!labelled) return;
    if (across)
        text_print(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", at, p->top + p->height + 15);
    else
        text_print(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", p->left - 6, at + 4);
    text_add_count(out, value);
    text_add(out, "</text>\n");
}

static void log_ticks(const plot *p, bool across, double low, double high)
{
    int first = (int)floor(log10(low) + 1e-9), last = (int)ceil(log10(high) - 1e-9);
    int every = (last - first) / 8 + 1;
    for (int power = first; power <= last; power++)
        for (int digit = 1; digit <= 9; digit++) {
            double value = digit * pow(10, power);
            bool labelled =
                last - first <= 2 ? digit == 1 || digit == 2 || digit == 5 : digit == 1 && (power - first) % every == 0;
            if (value < low * 0.9999 || value > high * 1.0001 || (digit > 1 && every > 1)) continue;
            put_tick(p, across, value, labelled);
        }
}

static void linear_ticks(const plot *p, bool across, double low, double high)
{
    double span = high > low ? high - low : 1, step = pow(10, floor(log10(span / 4)));
    if (span / step > 20)
        step *= 5;
    else if (span / step > 8)
        step *= 2;
    for (double value = ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step)
        put_tick(p, across, fabs(value) < step * 1e-6 ? 0 : value, true);
}

void plot_axes(plot *p, const char *x_name, const char *y_name)
{
    text *out = p->out;
    (p->x_log ? log_ticks : linear_ticks)(p, true, p->x_low, p->x_high);
    if (!p->no_y) (p->y_log ? log_ticks : linear_ticks)(p, false, p->y_low, p->y_high);
    text_print(out, "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", p->left, p->top,
               p->width, p->height);
    text_print(out, "<text class=\"axis\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", p->left + p->width / 2,
               p->top + p->height + 36);
    html_text(out, x_name);
    text_print(out, "</text><text class=\"axis\" transform=\"translate(16 %.1f) rotate(-90)\" text-anchor=\"middle\">",
               p->top + p->height / 2);
    html_text(out, y_name);
    text_add(out, "</text>\n");
}

void plot_close(plot *p)
{
    text_add(p->out, "</svg></div>\n");
}
