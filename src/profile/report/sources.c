/*
 * Kernels' texts on the page. In: the kernels of a model, or texts kept by a bench. Out: for each its source beside what
 * became of it; lines that belong together carry the same number, by which the page's script links them.
 *
 * Kernels that took the most time come first; so many are shown, and PTX and SASS of so many as a few seconds allow. The
 * rest is counted.
 * SPDX-License-Identifier: MIT
 */
#include "profile/report/sources.h"

#include <string.h>

enum { MOST_SOURCES = 40, MOST_COMPILED = 8, MOST_LINES = 3000 };
static const int64_t compile_budget_ns = 10000000000;

/* ---- the page ---- */

static void put_lines(const text_line *lines, int count, bool numbered, text *out)
{
    for (int i = 0; i < MINIMUM(count, MOST_LINES); i++) {
        if (lines[i].source_line)
            text_print(out, "<span class=\"l\" data-line=\"%d\">", lines[i].source_line);
        else
            text_add(out, "<span class=\"l\">");
        if (numbered) text_print(out, "<u>%d</u>", lines[i].source_line);
        html_text(out, *lines[i].words ? lines[i].words : " ");
        text_add(out, "</span>");
    }
    if (count > MOST_LINES) text_print(out, "<span class=\"l\">... and %d more lines</span>", count - MOST_LINES);
}

static void put_stages(const kernel_texts *t, const char *missing, text *out)
{
    static const struct {
        const char *stage, *title;
    } titles[] = {{"c", "C"}, {"cuda", "CUDA"}, {"tile", "tile IR"}, {"ptx", "PTX"}, {"sass", "SASS"}};
    text_add(out, "<figure><figcaption>");
    for (int i = 0; i < t->stage_count; i++) {
        const char *title = "";
        for (int n = 0; n < COUNT(titles); n++)
            if (!strcmp(titles[n].stage, t->stages[i].stage)) title = titles[n].title;
        text_print(out, "<button type=\"button\" data-tab=\"%s\" aria-selected=\"%s\">%s</button>", t->stages[i].stage,
                   i ? "false" : "true", title);
    }
    html_text(out, missing);
    text_add(out, "</figcaption>\n");
    for (int i = 0; i < t->stage_count; i++) {
        text_print(out, "<pre data-pane=\"%s\"%s>", t->stages[i].stage, i ? " hidden" : "");
        put_lines(t->stages[i].lines, t->stages[i].count, false, out);
        text_add(out, "</pre>\n");
    }
    text_add(out, "</figure>\n");
}

void sources_put(const source_list *list, text *out)
{
    if (!list->count) return;
    html_open_section(out, "sources", "Sources",
                      "What was written, beside what it became. Choose a line to see what belongs to it.");
    for (int i = 0; i < list->count; i++) {
        const source_item *s = &list->items[i];
        text_print(out, "<div class=\"kernel-source\" id=\"source-%d\"><h3>", i);
        html_text(out, s->title);
        if (s->about) {
            text_add(out, "<small>");
            html_text(out, s->about);
            text_add(out, "</small>");
        }
        text_add(out, "</h3>\n<div class=\"panes\"><figure><figcaption>");
        html_text(out, s->texts->file ? s->texts->file : "operations of this kernel");
        text_print(out, "</figcaption>\n<pre class=\"source\" data-at=\"%d\">", s->line);
        put_lines(s->texts->source, s->texts->source_count, true, out);
        text_add(out, "</pre></figure>\n");
        put_stages(s->texts, s->missing, out);
        text_add(out, "</div></div>\n");
    }
    if (list->left_out) text_print(out, "<p class=\"about\">%d more kernels have no text here.</p>\n", list->left_out);
    html_close_section(out);
}

/* ---- gathering ---- */

int sources_add(source_list *list, const source_item *item)
{
    ARENA_PUSH(list->memory, list->items, list->count, list->capacity, *item);
    return list->count - 1;
}

void sources_compile(source_list *list, qn_context *context, int slot)
{
    int64_t until_ns = clock_now_ns() + compile_budget_ns;
    bool told = false;
    for (int i = 0; i < list->count; i++) {
        source_item *s = &list->items[i];
        qn_error error;
        if (!s->texts->whole || s->texts->stage_count > 1) continue;
        if (i >= MOST_COMPILED || clock_now_ns() > until_ns) {
            s->missing = "PTX: only of the kernels before it";
            continue;
        }
        if (!told) context_say(context, "the report takes some seconds: PTX of its kernels is made");
        told = true;
        if (texts_compile(s->texts, context, slot, &error) == QN_OK) continue;
        s->missing = arena_print(list->memory, "no PTX: %.*s", (int)strcspn(error.message, "\n"), error.message);
        break;
    }
}

void sources_free(source_list *list)
{
    for (int i = 0; i < list->count; i++)
        if (list->items[i].owned) texts_free(list->items[i].texts);
}

static int find_source(report_model *m, const record_facts *f, source_list *list)
{
    const void *key = f->variant ? f->variant : f->texts;
    int slot;
    for (int i = 0; i < list->count && key; i++)
        if (list->items[i].key == key) return i;
    if (key && list->count == MOST_SOURCES) list->left_out++;
    if (!key || list->count == MOST_SOURCES) return -1;
    source_item item = {.title = f->kernel,
                        .about = f->shapes,
                        .key = key,
                        .line = f->line,
                        .texts = (kernel_texts *)f->texts,
                        .owned = !f->texts};
    if (!item.texts && context_slot(m->profile->context, f->device, &slot, NULL) == QN_OK)
        item.texts = texts_make(m->profile->context, slot, ((const variant *)f->variant)->kernel);
    return item.texts ? sources_add(list, &item) : -1;
}

void sources_of_model(report_model *m, source_list *list)
{
    qn_context *context = m->profile->context;
    int slot;
    list->memory = m->memory;
    for (int i = 0; context && i < m->kernel_count; i++) {
        const record_facts *f = m->kernels[i].facts;
        if (f) m->kernels[i].source = find_source(m, f, list);
        /* A captured step has no text of its own; its kernels have. */
        for (int n = 0; f && n < f->part_count; n++) (void)find_source(m, f->parts[n], list);
    }
    for (int i = 0; context && i < m->device_count; i++) {
        const char *name = m->devices[i].name;
        if (!target_runs_cuda(name)) continue;
        if (context_slot(context, name, &slot, NULL) == QN_OK) sources_compile(list, context, slot);
    }
}
