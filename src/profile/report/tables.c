/*
 * The tables and figures of a profile. In: a model. Out: HTML: the kernels, the sums of everything recorded, and at the
 * top how busy the devices were, where the time of the steps went, and the memory.
 * SPDX-License-Identifier: MIT
 */
#include "profile/owners.h"
#include "profile/report/report.h"
#include "profile/measure/roofs.h"
#include "target/target.h"

#include <math.h>
#include <quern/device.h>
#include <string.h>

/* ---- kernels ---- */

static void name_cell(const report_kernel *k, text *out)
{
    bool named = strcmp(k->title, k->name) != 0;
    text_add(out, "<td class=\"name\">");
    if (k->source >= 0) text_print(out, "<a href=\"#source-%d\">", k->source);
    html_name(out, k->title);
    if (k->source >= 0) text_add(out, "</a>");
    if (k->shapes || named) {
        text_add(out, "<small>");
        if (named) html_name(out, k->name);
        if (k->shapes) html_print(out, "%s%s", named ? "; " : "", k->shapes);
        text_add(out, "</small>");
    }
    text_add(out, "</td>");
}

/* Time, percents and what bounds it first. The script recomputes columns 1 to 8 for a range of time: its list of them is in
 * tables.js. */
void report_kernel_table(const report_model *m, text *out)
{
    static const char *const heads[] = {"kernel", "total",     "% of kernels", "% of roof", "bound",  "mean",
                                        "calls",  "GB/s",      "TFLOP/s",      "device",    "median", "least",
                                        "most",   "bytes",     "FLOPs",        "blocks",    "waves",  "occupancy %",
                                        "limit",  "registers", "shared",       "spills"};
    html_table_open(out, "kernels", heads, COUNT(heads));
    for (int i = 0; i < m->kernel_count; i++) {
        const report_kernel *k = &m->kernels[i];
        const record_facts *f = k->facts;
        double mean = (double)k->total_ns / (double)k->calls;
        text_print(out, "<tr data-kernel=\"%d\">", i);
        name_cell(k, out);
        html_cell_duration(out, (double)k->total_ns);
        html_cell_number(out, 100 * (double)k->total_ns / (double)MAXIMUM(m->kernel_ns, 1), "%.1f");
        html_cell_number(out, 100 * k->roof_share, "%.0f");
        html_cell_text(out, k->bound ? limit_words(k->roof_share, k->bound) : "-");
        html_cell_duration(out, mean);
        html_cell_number(out, (double)k->calls, "%.0f");
        html_cell_number(out, k->bytes / mean, "%.1f");
        html_cell_number(out, k->flops / mean * 1e-3, "%.3f");
        html_cell_text(out, k->device);
        html_cell_duration(out, (double)k->median_ns);
        html_cell_duration(out, (double)k->least_ns);
        html_cell_duration(out, (double)k->most_ns);
        html_cell_bytes(out, k->bytes);
        html_cell_count(out, k->flops);
        html_cell_number(out, k->blocks ? (double)k->blocks : NAN, "%.0f");
        html_cell_number(out, f ? f->waves : NAN, "%.2f");
        html_cell_number(out, f ? 100 * f->occupancy : NAN, "%.0f");
        html_cell_text(out, f && f->limit ? f->limit : "-");
        html_cell_number(out, k->registers ? k->registers : NAN, "%.0f");
        html_cell_number(out, k->registers ? k->shared_bytes : NAN, "%.0f");
        html_cell_number(out, k->registers ? k->spill_bytes : NAN, "%.0f");
        text_add(out, "</tr>\n");
    }
    html_table_close(out);
}

/* ---- everything recorded ---- */

void report_sum_table(const report_model *m, text *out)
{
    static const char *const heads[] = {"name", "kind",  "calls", "total",      "self",
                                        "mean", "least", "most",  "on devices", "bytes"};
    const qn_profile *p = m->profile;
    bool any = false;
    for (int i = 0; i < p->sum_count; i++) any |= p->sums[i].sum.calls > 0;
    if (!any) return;
    html_open_section(out, "sums-section", "Everything recorded",
                      "Self is without what is nested in it. `on devices` is the time of what it started there.");
    html_table_open(out, "sums", heads, COUNT(heads));
    for (int i = 0; i < p->sum_count; i++) {
        const qn_profile_sum *s = &p->sums[i].sum;
        if (!s->calls) continue;
        text_add(out, "<tr><td class=\"name\">");
        html_text(out, s->name);
        if (s->detail) {
            text_add(out, "<small>");
            html_text(out, s->detail);
            text_add(out, "</small>");
        }
        text_add(out, "</td>");
        html_cell_text(out, s->kind);
        html_cell_number(out, (double)s->calls, "%.0f");
        html_cell_duration(out, (double)s->total_ns);
        html_cell_duration(out, (double)s->self_ns);
        html_cell_duration(out, (double)s->total_ns / (double)s->calls);
        html_cell_duration(out, (double)s->least_ns);
        html_cell_duration(out, (double)s->most_ns);
        html_cell_duration(out, s->device_ns ? (double)s->device_ns : NAN);
        html_cell_bytes(out, s->bytes ? (double)s->bytes : NAN);
        text_add(out, "</tr>\n");
    }
    html_table_close(out);
    html_close_section(out);
}

/* ---- memory ---- */

enum { MOST_BLOCKS = 100 };

void report_memory(const report_model *m, text *out)
{
    static const char *const heads[] = {"memory", "bytes", "allocated at", "by"};
    const qn_profile *p = m->profile;
    nesting n;
    if (!m->memory_count || nesting_make(p, &n, NULL) != QN_OK) return;
    html_open_section(out, "memory", "Memory at its peak",
                      "What was alive when most was, the largest first. Memory from before the profile is not seen.");
    html_table_open(out, "alive", heads, COUNT(heads));
    for (int i = 0; i < m->memory_count; i++) {
        const memory_timeline *t = &m->memories[i];
        for (int64_t k = 0; k < MINIMUM(t->alive_count, MOST_BLOCKS); k++) {
            const record *r = &p->kept[t->alive[k]];
            text_add(out, "<tr>");
            html_cell_text(out, t->place);
            html_cell_bytes(out, (double)r->a);
            html_cell_duration(out, (double)(r->start_ns - m->start_ns));
            text path = {0};
            for (int64_t at = n.parent[t->alive[k]]; at >= 0; at = n.parent[at]) {
                text_add(&path, path.length ? " < " : "");
                text_add(&path, p->kept[at].name);
            }
            html_cell_text(out, text_get(&path));
            text_add(out, "</tr>\n");
            text_free(&path);
        }
        if (t->alive_count > MOST_BLOCKS)
            text_print(out, "<tr><td>and %lld smaller ones</td><td></td><td></td><td></td></tr>\n",
                       (long long)(t->alive_count - MOST_BLOCKS));
    }
    html_table_close(out);
    html_close_section(out);
    nesting_free(&n);
}

/* ---- the top of the page ---- */

static void card(text *out, const char *value, const char *what)
{
    text_add(out, "<div class=\"card\"><b>");
    html_text(out, value);
    text_add(out, "</b><span>");
    html_text(out, what);
    text_add(out, "</span></div>\n");
}

static void __attribute__((format(printf, 4, 5)))
card_print(text *out, arena *memory, const char *what, const char *format, ...)
{
    text words = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&words, format, list);
    va_end(list);
    card(out, arena_copy_text(memory, text_get(&words), words.length), what);
    text_free(&words);
}

static void put_cards(const report_model *m, text *out)
{
    arena *memory = arena_new();
    text words = {0};
    double span = (double)MAXIMUM(m->span_ns, 1);
    text_add_duration(&words, (double)m->span_ns);
    card(out, text_get(&words), "time seen");
    for (int i = 0; i < m->device_count; i++) {
        const report_device *d = &m->devices[i];
        card_print(out, memory, arena_print(memory, "%s is busy: some kernel runs", d->name), "%.1f %%",
                   100 * (double)d->busy_ns / span);
        if (isfinite(d->blocks_per_unit))
            card_print(out, memory,
                       arena_print(memory, "%s a %s of %s, mean over time",
                                   target_is_gpu(d->name) ? "blocks" : "programs",
                                   target_is_gpu(d->name) ? "multiprocessor" : "thread", d->name),
                       "%.1f", d->blocks_per_unit);
        if (isfinite(d->occupancy))
            card_print(out, memory, arena_print(memory, "occupancy of %s, mean over time", d->name), "%.0f %%",
                       100 * d->occupancy);
    }
    if (m->worker_count)
        card_print(out, memory, arena_print(memory, "of %d threads of the pool are busy", m->worker_count), "%.1f %%",
                   100 * (double)m->thread_busy_ns / span / m->worker_count);
    for (int i = 0; m->profile->context && i < m->device_count; i++) {
        qn_memory_statistics s;
        qn_error ignored;
        if (qn_device_memory(m->profile->context, m->devices[i].name, &s, &ignored) != QN_OK || !s.allocations)
            continue;
        text_clear(&words);
        text_add_bytes_count(&words, (double)(s.used_bytes + s.kept_bytes));
        card(out, text_get(&words),
             arena_print(memory, "of %s's memory are reserved: in use or kept", m->devices[i].name));
    }
    for (int i = 0; i < m->memory_count; i++) {
        text_clear(&words);
        text_add_bytes_count(&words, (double)m->memories[i].peak_bytes);
        card(out, text_get(&words), arena_print(memory, "%s allocated at its peak", m->memories[i].place));
    }
    text_free(&words);
    arena_free(memory);
}

/* A bar whose parts are the classes. */
static void put_bar(const int64_t *class_ns, const char *label, int64_t full_ns, text *out)
{
    int64_t total_ns = 0;
    for (int i = 0; i < SLICE_CLASSES; i++) total_ns += class_ns[i];
    text_add(out, "<div class=\"bar\"><span class=\"label\">");
    html_text(out, label);
    text_add(out, "</span><span class=\"track\">");
    for (int i = 0; i < SLICE_CLASSES; i++) {
        double share = (double)class_ns[i] / (double)MAXIMUM(full_ns, 1) * 100;
        if (share < 0.05) continue;
        text_print(out, "<i class=\"c%d\" style=\"width:%.2f%%\" title=\"%s %.1f %%\"></i>", i, share,
                   slice_class_names[i], (double)class_ns[i] / (double)MAXIMUM(total_ns, 1) * 100);
    }
    text_add(out, "</span><span class=\"value\">");
    text_add_duration(out, (double)total_ns);
    text_add(out, "</span></div>\n");
}

enum { MOST_BARS = 60 };

static void put_split(const report_model *m, text *out)
{
    int64_t longest_ns = 1;
    text_add(out, "<div class=\"legend\">");
    for (int i = 0; i < SLICE_CLASSES; i++)
        text_print(out, "<span><i class=\"c%d\"></i>%s %.1f %%</span> ", i, slice_class_names[i],
                   100 * (double)m->class_ns[i] / (double)MAXIMUM(m->span_ns, 1));
    text_add(out, "</div>\n");
    put_bar(m->class_ns, "all", m->span_ns, out);
    for (int i = 0; i < m->step_count; i++) longest_ns = MAXIMUM(longest_ns, m->steps[i].end_ns - m->steps[i].start_ns);
    if (m->step_count) text_add(out, "<details><summary>by step</summary>\n");
    for (int i = 0; i < MINIMUM(m->step_count, MOST_BARS); i++) {
        char label[40];
        snprintf(label, sizeof(label), "step %lld", (long long)m->steps[i].number);
        put_bar(m->steps[i].class_ns, label, longest_ns, out);
    }
    if (m->step_count > MOST_BARS)
        text_print(out, "<p class=\"about\">and %d more steps, which the timeline has</p>\n",
                   m->step_count - MOST_BARS);
    if (m->step_count) text_add(out, "</details>\n");
}

void report_cards(const report_model *m, text *out)
{
    text_add(out, "<div class=\"cards\">\n");
    put_cards(m, out);
    text_add(out, "</div>\n");
    put_split(m, out);
}
