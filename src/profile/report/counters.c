/*
 * Counters and stalls on the page. In: the files that a run under counters, and the sampler, left (JSON). Out: a table of
 * kernels with the throughputs first, each opening as all its counters; and where warps waited.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/counters.h"
#include "base/json_read.h"
#include "profile/report/report.h"

#include <math.h>
#include <string.h>

static const char *const columns[][2] = {{"time", "time"},
                                         {"compute throughput", "compute"},
                                         {"memory throughput", "memory"},
                                         {"DRAM throughput", "DRAM"},
                                         {"L2 throughput", "L2"},
                                         {"L1 throughput", "L1"},
                                         {"occupancy achieved", "occupancy"},
                                         {"tensor pipe", "tensor pipe"},
                                         {"CPU time", "CPU time"},
                                         {"cycles", "cycles"},
                                         {"instructions", "instructions"},
                                         {"cache misses", "cache misses"},
                                         {"branch misses", "branch misses"},
                                         {"page faults", "page faults"}};

static bool read_list(arena *memory, const char *path, json_node *out)
{
    char *words = NULL;
    size_t length = 0;
    qn_error ignored; /* a file that is not there, or not whole, leaves its section out */
    if (!path || file_read(path, (size_t)64 << 20, &words, &length, &ignored) != QN_OK) return false;
    bool good = json_read(memory, path, words, out, &ignored) == QN_OK && out->kind == JSON_LIST && out->count;
    heap_free(words);
    return good;
}

static const char *words_of(const json_node *n, const char *key)
{
    const char *words = json_find_words(n, key);
    return words ? words : "";
}

static bool same_kernel(const json_node *a, const json_node *b)
{
    return !strcmp(words_of(a, "kernel"), words_of(b, "kernel")) &&
           !strcmp(words_of(a, "shapes"), words_of(b, "shapes")) &&
           !strcmp(words_of(a, "device"), words_of(b, "device"));
}

/* Of the counters from `first` on, that of this name and of the same kernel. */
static const json_node *counter_of(const json_node *all, int first, const char *name)
{
    for (int i = first; i < all->count && same_kernel(&all->items[first], &all->items[i]); i++)
        if (!strcmp(words_of(&all->items[i], "counter"), name)) return &all->items[i];
    return NULL;
}

static void put_value(text *out, const json_node *c)
{
    double value = c ? json_find_number(c, "value") : NAN;
    const char *unit = c ? words_of(c, "unit") : "";
    if (!strcmp(unit, "ns"))
        html_cell_duration(out, value);
    else if (!strcmp(unit, "bytes"))
        html_cell_bytes(out, value);
    else if (!strcmp(unit, "%"))
        html_cell_number(out, value, counters_is_beyond(unit, value) ? "%.1f%% *" : "%.1f%%");
    else
        html_cell_count(out, value);
}

static int next_kernel(const json_node *all, int first)
{
    int i = first + 1;
    while (i < all->count && same_kernel(&all->items[first], &all->items[i])) i++;
    return i;
}

static const char *title_of(const json_node *n)
{
    return *words_of(n, "source") ? words_of(n, "source") : words_of(n, "kernel");
}

void report_counters(const char *path, text *out)
{
    json_node all = {0};
    arena *memory = arena_new();
    const char *heads[COUNT(columns) + 2] = {"kernel"};
    int shown[COUNT(columns)], count = 0;
    if (!read_list(memory, path, &all)) {
        arena_free(memory);
        return;
    }
    for (int k = 0; k < COUNT(columns); k++) {
        bool any = false;
        for (int i = 0; i < all.count && !any; i = next_kernel(&all, i)) {
            const json_node *c = counter_of(&all, i, columns[k][0]);
            any = c && !isnan(json_find_number(c, "value"));
        }
        if (!any) continue;
        heads[count + 1] = columns[k][1];
        shown[count++] = k;
    }
    html_open_section(out, "counters-section", "Counters",
                      "What the hardware counted in one launch of each kernel, in a run of its own. Throughputs are of "
                      "what the hardware can sustain, while the kernel ran. " COUNTERS_BEYOND ".");
    html_table_open(out, "counters", heads, count + 1);
    for (int i = 0; i < all.count; i = next_kernel(&all, i)) {
        text_add(out, "<tr><td class=\"name\">"); /* which breaks, so that a phone has room for the numbers */
        html_text(out, title_of(&all.items[i]));
        text_add(out, "</td>");
        for (int k = 0; k < count; k++) put_value(out, counter_of(&all, i, columns[shown[k]][0]));
        text_add(out, "</tr>\n");
    }
    html_table_close(out);
    for (int i = 0, end; i < all.count; i = end) {
        end = next_kernel(&all, i);
        text_add(out, "<details><summary>all counters of ");
        html_text(out, title_of(&all.items[i]));
        html_print(out, " (%s; %s)", words_of(&all.items[i], "kernel"), words_of(&all.items[i], "shapes"));
        text_add(out, "</summary><div class=\"scroll\"><table><tbody>\n");
        for (int k = i; k < end; k++) {
            const json_node *c = &all.items[k];
            text_add(out, "<tr>");
            html_cell_text(out, words_of(c, "counter"));
            put_value(out, c);
            html_cell_text(out, isnan(json_find_number(c, "value")) ? words_of(c, "why") : words_of(c, "unit"));
            text_add(out, "</tr>\n");
        }
        text_add(out, "</tbody></table></div></details>\n");
    }
    html_close_section(out);
    arena_free(memory);
}

void report_stalls(const char *path, text *out)
{
    static const char *const heads[] = {"where", "of all samples", "waits most for", "of its samples", "samples"};
    json_node all = {0};
    arena *memory = arena_new();
    if (read_list(memory, path, &all)) {
        html_open_section(
            out, "stalls-section", "Where warps wait",
            "Samples of what the warps of each multiprocessor were at, while the kernel ran. " COUNTERS_BEYOND ".");
        html_table_open(out, "stalls", heads, COUNT(heads));
        for (int i = 0; i < all.count; i++) {
            const json_node *n = &all.items[i];
            text_add(out, "<tr><td class=\"name\">");
            html_text(out, words_of(n, "place"));
            text_add(out, "</td>");
            html_cell_number(out, json_find_number(n, "share_percent"), "%.1f%%");
            html_cell_text(out, words_of(n, "reason"));
            html_cell_number(out, json_find_number(n, "reason_percent"), "%.0f%%");
            html_cell_count(out, json_find_number(n, "samples"));
            text_add(out, "</tr>\n");
        }
        html_table_close(out);
        html_close_section(out);
    }
    arena_free(memory);
}
