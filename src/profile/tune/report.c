/*
 * What tune says: a table with the fastest candidate first, and JSON with one object for each.
 * SPDX-License-Identifier: MIT
 */
#include "profile/tune/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const status_names[] = {"not tried", "refused", "spills", "wrong", "failed", "slow", "ok"};

static int faster_first(const void *a, const void *b)
{
    const candidate *x = *(const candidate *const *)a, *y = *(const candidate *const *)b;
    bool timed_x = isfinite(x->median_ns), timed_y = isfinite(y->median_ns);
    if (timed_x != timed_y) return timed_x ? -1 : 1;
    if (timed_x && x->median_ns != y->median_ns) return x->median_ns < y->median_ns ? -1 : 1;
    return x < y ? -1 : 1;
}

static const candidate **sorted(const tuning *t)
{
    const candidate **list = ARENA_ARRAY(t->bench.memory, const candidate *, t->count + 1);
    for (int i = 0; i < t->count; i++) list[i] = &t->items[i];
    qsort(list, (size_t)t->count, sizeof(list[0]), faster_first);
    return list;
}

static void row(const tuning *t, const candidate *c, bool usage, table *out)
{
    const candidate *first = &t->items[0];
    bool timed = isfinite(c->median_ns);
    text time = {0};
    if (timed) text_add_duration(&time, c->median_ns);
    table_cell(out, "%s", c->words);
    table_cell(out, "%s", timed ? text_get(&time) : "-");
    if (timed)
        table_cell(out, "%+.1f %+.1f%%", (c->low_ns / c->median_ns - 1) * 100, (c->high_ns / c->median_ns - 1) * 100);
    else
        table_cell(out, "-");
    if (timed && isfinite(first->median_ns))
        table_cell(out, "%.2fx", first->median_ns / c->median_ns);
    else
        table_cell(out, "-");
    if (usage && c->has_usage) {
        table_cell(out, "%d", c->usage.registers);
        table_cell(out, "%lld", (long long)c->usage.local_bytes);
    } else if (usage) {
        table_cell(out, "-");
        table_cell(out, "-");
    }
    table_cell(out, "%s%s%s", status_names[c->status], c->is_default ? ", the default" : "",
               t->best >= 0 && c == &t->items[t->best] ? ", the best" : "");
    text_free(&time);
}

void tune_table(const tuning *t, text *out)
{
    const bench *b = &t->bench;
    text size = {0};
    point_print(&b->at, &size);
    int counts[CANDIDATE_OK + 1] = {0};
    bool usage = false;
    for (int i = 0; i < t->count; i++) {
        counts[t->items[i].status]++;
        usage |= t->items[i].has_usage;
    }
    text_print(out, "%s%s%s on %s (%s): %d of %d candidates timed in %.1f s\n", b->options->colour ? "\033[1m" : "",
               t->entry->name, b->options->colour ? "\033[0m" : "", b->device, text_get(&size),
               counts[CANDIDATE_OK] + counts[CANDIDATE_SLOW], t->count, (double)(clock_now_ns() - t->start_ns) * 1e-9);
    text_free(&size);
    table all;
    table_open(&all, usage ? 7 : 5);
    static const char *const heads[] = {"configuration", "time",        "20% 80%", "against the default",
                                        "registers",     "local bytes", "status"};
    for (int i = 0; i < COUNT(heads); i++)
        if (usage || (i != 4 && i != 5)) table_cell(&all, "%s", heads[i]);
    all.left[all.columns - 1] = true;
    const candidate **list = sorted(t);
    int waiting = 0;
    for (int i = 0; i < t->count; i++) {
        if (list[i]->status == CANDIDATE_WAITS)
            waiting++;
        else
            row(t, list[i], usage, &all);
    }
    table_print(&all, b->options->colour, out);
    table_close(&all);
    for (int i = 0; i < t->count; i++)
        if (*list[i]->message)
            text_print(out, "%s %s: %s\n", list[i]->words, status_names[list[i]->status], list[i]->message);
    if (waiting)
        text_print(out, "%d more %s not tried: give more time with --budget, or --effort full\n", waiting,
                   waiting == 1 ? "was" : "were");
    const candidate *best = &t->items[t->best];
    if (best->is_default)
        text_print(out, "best: %s, which is the default\n", best->words);
    else
        text_print(out, "best: %s\n", best->words);
    text_add(out, b->context->no_cache ? "nothing is kept (no cache): give these with --set\n"
                  : t->kept            ? "kept: calls of this kernel at sizes like these use it where they do not set "
                                         "these themselves\n"
                                       : "not kept, as the cache folder cannot be used: give these with --set\n");
}

void tune_json(const tuning *t, const char *path, json *out)
{
    text size = {0};
    point_print(&t->bench.at, &size);
    for (int i = 0; i < t->count; i++) {
        const candidate *c = &t->items[i];
        json_open_object(out);
        json_text(out, "file", path);
        json_text(out, "kernel", t->entry->name);
        json_text(out, "device", t->bench.device);
        json_text(out, "arguments", text_get(&size));
        json_text(out, "configuration", c->words);
        json_number(out, "median_ns", c->median_ns);
        json_number(out, "low_ns", c->low_ns);
        json_number(out, "high_ns", c->high_ns);
        json_whole(out, "samples", c->samples);
        if (c->has_usage) {
            json_whole(out, "registers", c->usage.registers);
            json_whole(out, "local_bytes", c->usage.local_bytes);
        }
        json_text(out, "status", status_names[c->status]);
        json_whole(out, "default", c->is_default);
        json_whole(out, "best", i == t->best);
        json_text(out, "message", c->message);
        json_close_object(out);
    }
    text_free(&size);
}
