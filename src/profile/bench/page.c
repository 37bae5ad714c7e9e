/*
 * The report of a bench as it runs. In: points as they are finished. Out: a page that is written again after each, with
 * the texts of the kernels that were timed and the hints about them; what ends the run leaves the last one.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"
#include "profile/hints/hints.h"
#include "profile/report/bench.h"

#include <stdlib.h>
#include <string.h>

typedef struct bench_page {
    arena *memory;
    source_list sources;
    bench_hint *hints; /* the largest gain first */
    int hint_count, hint_capacity;
} bench_page;

static const char unfinished[] = "The run is not finished, or was ended before it was: the points until then.";

static qn_report_options options_of(const bench *b, bool finished)
{
    return (qn_report_options){.command = b->options->command, .note = finished ? NULL : unfinished};
}

static qn_status write_page(const bench *b, bool finished, qn_error *error)
{
    qn_report_options o = options_of(b, finished);
    const bench_page *p = b->page;
    bench_extras extras = {.sources = &p->sources, .hints = p->hints, .hint_count = p->hint_count};
    return bench_report_write(b->results, &extras, b->options->report_path, &o, error);
}

qn_status page_begin(bench *b, qn_error *error)
{
    if (!b->options->report_path) return QN_OK;
    b->page = heap_new(sizeof(*b->page));
    b->page->memory = b->page->sources.memory = arena_new();
    return write_page(b, false, error);
}

static void add_source(bench *b, const bench_variant *v)
{
    bench_page *p = b->page;
    if (v->status != VARIANT_OK || v->is_function || !v->call || !v->call->variant) return;
    for (int i = 0; i < p->sources.count; i++)
        if (!strcmp(p->sources.items[i].title, v->label)) return;
    kernel_texts *t = texts_make(b->context, b->slot, v->call->variant->kernel);
    const ast *item = v->call->kernel->item;
    if (t)
        sources_add(&p->sources, &(source_item){.title = arena_copy_text(p->memory, v->label, strlen(v->label)),
                                                .texts = t,
                                                .line = item ? item->at.line : 0,
                                                .owned = true});
}

static int larger_first(const void *left, const void *right)
{
    double a = ((const bench_hint *)left)->gain, b = ((const bench_hint *)right)->gain;
    return a > b ? -1 : a < b;
}

/* Of the same words about a variant at several points those with the largest gain. */
static void keep_hint(bench_page *p, const bench_hint *item)
{
    for (int i = 0; i < p->hint_count; i++) {
        bench_hint *h = &p->hints[i];
        if (h->rule != item->rule || strcmp(h->label, item->label) != 0) continue;
        if (item->gain > h->gain) *h = *item;
        return;
    }
    ARENA_PUSH(p->memory, p->hints, p->hint_count, p->hint_capacity, *item);
}

static void add_hints(bench *b, const bench_variant *v)
{
    enum { BEST = 2 };
    bench_page *p = b->page;
    arena *memory = arena_new();
    hint_list list;
    text at = {0};
    int source = p->sources.count - 1;
    while (source >= 0 && strcmp(p->sources.items[source].title, v->label) != 0) source--;
    text_print(&at, "%s, ", v->label);
    point_print(&b->at, &at);
    variant_hints(b, v, memory, &list);
    for (int i = 0; i < MINIMUM(list.count, BEST); i++) {
        text words = {0};
        html_hint(&words, &list.items[i], text_get(&at), source);
        keep_hint(p, &(bench_hint){.gain = list.items[i].gain,
                                   .rule = (int)list.items[i].number,
                                   .label = arena_copy_text(p->memory, v->label, strlen(v->label)),
                                   .words = arena_copy_text(p->memory, text_get(&words), words.length)});
        text_free(&words);
    }
    text_free(&at);
    arena_free(memory);
}

qn_status page_add_point(bench *b, qn_error *error)
{
    bench_page *p = b->page;
    if (!p) return QN_OK;
    for (int i = 0; i < b->variant_count; i++) add_source(b, &b->variants[i]);
    for (int i = 0; i < b->variant_count; i++) add_hints(b, &b->variants[i]);
    if (p->hint_count) qsort(p->hints, (size_t)p->hint_count, sizeof(*p->hints), larger_first);
    return write_page(b, false, error);
}

qn_status page_end(bench *b, qn_error *error)
{
    if (!b->page) return QN_OK;
    sources_compile(&b->page->sources, b->context, b->slot);
    return write_page(b, true, error);
}

void page_free(bench *b)
{
    if (!b->page) return;
    sources_free(&b->page->sources);
    arena_free(b->page->memory);
    heap_free(b->page);
    b->page = NULL;
}
