/*
 * The data of the page's script, as JSON. In: a model. Out: names once, rows with their slices in columns (starts as
 * distances from the one before), arrows from launches to what they started, kernels, memory over time. Times are whole
 * nanoseconds from the beginning of the span.
 * SPDX-License-Identifier: MIT
 */
#include "profile/report/report.h"
#include "profile/measure/roofs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POINTS = 20000 }; /* of one curve of memory */

static void add_real(text *out, const char *key, double number)
{
    text_print(out, ",\"%s\":", key);
    json_add_number(out, number, 6);
}

static void add_words(text *out, const char *key, const char *words)
{
    text_print(out, ",\"%s\":", key);
    json_add_string(out, words);
}

/* ---- names ---- */

typedef struct name_list {
    arena *memory;
    map *numbers; /* plus one */
    const char **items;
    int count, capacity;
} name_list;

static int number_of(name_list *n, const char *name)
{
    intptr_t number = (intptr_t)map_get(n->numbers, name);
    if (number) return (int)number - 1;
    ARENA_PUSH(n->memory, n->items, n->count, n->capacity, name);
    map_set(n->numbers, name, (void *)(intptr_t)n->count);
    return n->count - 1;
}

/* ---- rows ---- */

static void add_row(const report_model *m, const report_row *row, name_list *names, text *out)
{
    const report_slice *slices = m->slices + row->first;
    text_add(out, "{\"name\":");
    json_add_string(out, row->name);
    add_words(out, "group", row->group);
    text_print(out, ",\"lanes\":%d,\"first\":%lld", row->lanes, (long long)row->first);
#define COLUMN(key, value)                                                                                  \
    do {                                                                                                    \
        text_add(out, ",\"" key "\":[");                                                                    \
        for (int64_t i = 0; i < row->count; i++) text_add(out, i ? "," : ""), text_add_whole(out, (value)); \
        text_add(out, "]");                                                                                 \
    } while (0)
    COLUMN("start", slices[i].start_ns - (i ? slices[i - 1].start_ns : 0));
    COLUMN("length", slices[i].end_ns - slices[i].start_ns);
    COLUMN("names", number_of(names, slices[i].name));
    if (row->lanes > 1) COLUMN("lane", slices[i].lane);
    bool kernels = false;
    for (int64_t i = 0; i < row->count; i++) kernels |= slices[i].kernel >= 0;
    if (kernels) COLUMN("kernel", slices[i].kernel);
#undef COLUMN
    text_add(out, "}");
}

/* ---- arrows ---- */

typedef struct tie {
    uint64_t identity;
    int64_t slice;
    bool device;
} tie;

static int by_identity(const void *left, const void *right)
{
    const tie *a = left, *b = right;
    if (a->identity != b->identity) return a->identity < b->identity ? -1 : 1;
    return a->device != b->device ? a->device - b->device : a->slice < b->slice ? -1 : a->slice > b->slice;
}

/* From the host's record to all that the device did for it. */
static void add_arrows(const report_model *m, text *out)
{
    tie *ties = heap_array((size_t)m->slice_count + 1, sizeof(*ties));
    int64_t count = 0, written = 0;
    for (int64_t i = 0; i < m->slice_count; i++) {
        const report_slice *s = &m->slices[i];
        bool call = s->kind == RECORD_LAUNCH || s->kind == RECORD_COPY;
        if (s->identity && (call || s->kind == RECORD_KINDS))
            ties[count++] = (tie){s->identity, i, s->kind == RECORD_KINDS};
    }
    qsort(ties, (size_t)count, sizeof(*ties), by_identity);
    text_add(out, ",\"arrows\":[");
    for (int64_t i = 0, call = 0; i < count; i++) {
        if (ties[i].identity != ties[call].identity || !ties[i].device) call = i;
        if (!ties[i].device || ties[call].device) continue;
        text_print(out, "%s%lld,%lld", written++ ? "," : "", (long long)ties[call].slice, (long long)ties[i].slice);
    }
    text_add(out, "]");
    heap_free(ties);
}

/* ---- kernels, memory ---- */

static void add_kernel(const report_kernel *k, text *out)
{
    text_add(out, "{\"name\":");
    json_add_string(out, k->name);
    add_words(out, "shapes", k->shapes);
    add_words(out, "device", k->device);
    add_words(out, "file", k->file);
    add_words(out, "bound", k->bound);
    add_words(out, "above", limit_words(INFINITY, k->bound)); /* a part of the run may be above what the whole is not */
    add_words(out, "ops", k->facts ? k->facts->ops : NULL);
    text_print(out, ",\"line\":%d,\"calls\":%lld,\"total\":%lld,\"registers\":%d,\"shared\":%d,\"blocks\":%lld",
               k->line, (long long)k->calls, (long long)k->total_ns, k->registers, k->shared_bytes,
               (long long)k->blocks);
    add_real(out, "bytes", k->bytes);
    add_real(out, "flops", k->flops);
    add_real(out, "roof", k->roof_share);
    add_real(out, "occupancy", k->facts ? k->facts->occupancy : NAN);
    add_real(out, "waves", k->facts ? k->facts->waves : NAN);
    text_add(out, "}");
}

/* Of many points the highest of each stretch, so that peaks stay. */
static void add_memory(const report_model *m, const memory_timeline *s, text *out)
{
    int64_t stretch = s->count / MOST_POINTS + 1;
    text_add(out, "{\"name\":");
    json_add_string(out, s->place);
    text_print(out, ",\"peak\":%lld,\"points\":[", (long long)s->peak_bytes);
    for (int64_t first = 0; first < s->count; first += stretch) {
        int64_t best = first;
        for (int64_t i = first; i < MINIMUM(first + stretch, s->count); i++)
            if (s->points[i].bytes > s->points[best].bytes) best = i;
        text_print(out, "%s%lld,%lld", first ? "," : "", (long long)(s->points[best].time_ns - m->start_ns),
                   (long long)s->points[best].bytes);
    }
    text_add(out, "]}");
}

void report_data(const report_model *m, text *out)
{
    name_list names = {.memory = m->memory, .numbers = map_new(m->memory)};
    text_print(out, "{\"span\":%lld,\"left_out\":%lld,\"left_out_below\":%lld,\"rows\":[", (long long)m->span_ns,
               (long long)m->left_out, (long long)m->left_out_below_ns);
    for (int i = 0; i < m->row_count; i++) {
        text_add(out, i ? ",\n" : "\n");
        add_row(m, &m->rows[i], &names, out);
    }
    text_add(out, "],\n\"names\":[");
    for (int i = 0; i < names.count; i++) {
        text_add(out, i ? "," : "");
        json_add_string(out, names.items[i]);
    }
    text_add(out, "]");
    add_arrows(m, out);
    text_add(out, ",\n\"kernels\":[");
    for (int i = 0; i < m->kernel_count; i++) {
        text_add(out, i ? ",\n" : "");
        add_kernel(&m->kernels[i], out);
    }
    text_add(out, "],\n\"memory\":[");
    for (int i = 0; i < m->memory_count; i++) {
        text_add(out, i ? ",\n" : "");
        add_memory(m, &m->memories[i], out);
    }
    text_add(out, "]}");
}
