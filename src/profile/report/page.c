/*
 * Pieces of HTML. In: words and numbers. Out: text in which nothing of the user's can become a tag; tables whose cells
 * carry the number that they are sorted by.
 * SPDX-License-Identifier: MIT
 */
#include "profile/report/report.h"

#include <math.h>
#include <string.h>

void html_text(text *out, const char *words)
{
    if (words) text_add_escaped(out, ESCAPE_PAGE, words, strlen(words));
}

void html_name(text *out, const char *words)
{
    while (*words) {
        size_t length = strcspn(words, "_(,");
        length += words[length] != 0;
        text_add_escaped(out, ESCAPE_PAGE, words, length);
        words += length;
        if (*words) text_add(out, "<wbr>");
    }
}

void html_print(text *out, const char *format, ...)
{
    text words = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&words, format, list);
    va_end(list);
    html_text(out, text_get(&words));
    text_free(&words);
}

void html_open_section(text *out, const char *id, const char *title, const char *about)
{
    text_print(out, "<section id=\"%s\">\n<h2>", id);
    html_text(out, title);
    text_add(out, "</h2>\n");
    if (!about) return;
    text_add(out, "<p class=\"about\">");
    html_text(out, about);
    text_add(out, "</p>\n");
}

void html_close_section(text *out)
{
    text_add(out, "</section>\n");
}

void text_add_bytes_count(text *t, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    while (fabs(bytes) >= 999.5 && unit < COUNT(units) - 1) {
        bytes /= 1000;
        unit++;
    }
    text_print(t, unit && fabs(bytes) < 99.95 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

void text_add_count(text *t, double count)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    int unit = 0;
    while (fabs(count) >= 999.5 && unit < COUNT(units) - 1) {
        count /= 1000;
        unit++;
    }
    text_print(t, "%.3g%s", count, units[unit]);
}

void html_table_open(text *out, const char *id, const char *const *heads, int count)
{
    text_print(out,
               "<div class=\"tools\"><input type=\"search\" placeholder=\"filter\" aria-label=\"filter the table\" "
               "data-filter=\"%s\"><button type=\"button\" data-csv=\"%s\">copy as CSV</button></div>\n"
               "<div class=\"scroll\"><table class=\"sortable%s\" id=\"%s\">\n<thead><tr>",
               id, id, count > 16 ? " wide" : "", id);
    for (int i = 0; i < count; i++) {
        text_add(out, "<th scope=\"col\" tabindex=\"0\">");
        html_text(out, heads[i]);
        text_add(out, "</th>");
    }
    text_add(out, "</tr></thead>\n<tbody>\n");
}

void html_table_close(text *out)
{
    text_add(out, "</tbody></table></div>\n");
}

void html_cell_text(text *out, const char *words)
{
    text_add(out, "<td>");
    html_text(out, words);
    text_add(out, "</td>");
}

static bool open_number(text *out, double value)
{
    if (isfinite(value))
        text_print(out, "<td class=\"n\" data-v=\"%.9g\">", value);
    else
        text_add(out, "<td class=\"n\">-</td>");
    return isfinite(value);
}

void html_cell_number(text *out, double value, const char *format)
{
    char words[64];
    if (!open_number(out, value)) return;
    snprintf(words, sizeof(words), format, value);
    html_text(out, words);
    text_add(out, "</td>");
}

void html_cell_duration(text *out, double time_ns)
{
    if (!open_number(out, time_ns)) return;
    text_add_duration(out, time_ns);
    text_add(out, "</td>");
}

void html_cell_bytes(text *out, double bytes)
{
    if (!open_number(out, bytes)) return;
    text_add_bytes_count(out, bytes);
    text_add(out, "</td>");
}

void html_cell_count(text *out, double count)
{
    if (!open_number(out, count)) return;
    text_add_count(out, count);
    text_add(out, "</td>");
}
