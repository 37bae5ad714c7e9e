/*
 * Schedules as candidates. In: a kernel as it runs without tuning. Out: knobs that its `tune` clauses do not list, each with
 * the numbers that make another schedule of it than the rule does. Of a tensor function: the tiles of its products. Of both:
 * the ways of the library of the device's maker, where that may compute a product.
 *
 * What a number changes is asked of the schedule itself (its text): a number that the machine has no room for, or that means
 * nothing to this kernel, makes the same schedule again and is no candidate.
 * SPDX-License-Identifier: MIT
 */
#include "profile/tune/tune.h"

#include "fuse/fuse.h"
#include "ir/whole.h"

#include <string.h>

static const struct {
    tile_knob knob;
    int numbers[6]; /* until 0 */
} tried[] = {{KNOB_STAGES, {2, 3, 4, 5, 6, 8}}, {KNOB_GROUP, {1, 2, 4, 16, 32}}, {KNOB_TURNS, {1}}, {KNOB_BLOCKS, {1}}};

static bool is_listed(const tuning *t, const char *name)
{
    for (int i = 0; i < t->name_count; i++)
        if (!strcmp(t->names[i], name)) return true;
    return tune_is_fixed(t, name);
}

/* The schedule of a kernel with one more wish; NULL: it has none. */
static const char *schedule_with(const tuning *t, const tile_kernel *k, tile_knob knob, int number)
{
    const device_slot *s = &t->bench.context->slots[t->bench.slot];
    arena *memory = t->bench.memory;
    tile_kernel *copy = tile_clone(k, memory);
    text words = {0};
    copy->knobs[knob] = number;
    bool good = s->driver->schedule(s->device, copy, &words, NULL) == QN_OK;
    const char *made = good ? arena_copy_text(memory, text_get(&words), words.length) : NULL;
    text_free(&words);
    return made;
}

static void add_knob(tuning *t, const tile_kernel *k, int row, tune_choice *choices)
{
    const char *made[COUNT(tried[0].numbers) + 1], *name = tile_knobs[tried[row].knob];
    int count = 0;
    if (is_listed(t, name) || t->name_count == TUNE_MOST_NAMES) return;
    tune_choice *to = &choices[t->name_count];
    *to = (tune_choice){{0}, 1}; /* the rule's own number */
    made[count++] = schedule_with(t, k, tried[row].knob, k->knobs[tried[row].knob]);
    for (int i = 0; i < COUNT(tried[row].numbers) && tried[row].numbers[i] && made[0]; i++) {
        const char *words = schedule_with(t, k, tried[row].knob, tried[row].numbers[i]);
        bool known = !words;
        for (int m = 0; m < count && !known; m++) known = !strcmp(words, made[m]);
        if (known) continue;
        made[count++] = words;
        to->values[to->count++] = tried[row].numbers[i];
    }
    if (to->count > 1) t->names[t->name_count++] = name;
}

/* The first ways of the library of the device's maker, where there is one and, of a kernel (NULL: a tensor function), the
 * kernel is a product that it may compute. */
static void add_library(tuning *t, const tile_kernel *k, tune_choice *choices)
{
    enum { WAYS = 4 };
    const bench *b = &t->bench;
    tune_choice *to = &choices[t->name_count];
    if (b->context->library != LIBRARY_TUNED || is_listed(t, tile_knobs[KNOB_LIBRARY])) return;
    if (t->name_count == TUNE_MOST_NAMES || !context_library(b->context, b->slot, 1)) return;
    if (k && !whole_find(k, b->memory, NULL)) return;
    *to = (tune_choice){{0}, 0};
    for (int way = 0; way <= WAYS; way++) to->values[to->count++] = way;
    t->names[t->name_count++] = tile_knobs[KNOB_LIBRARY];
}

void tune_add_schedules(tuning *t, tune_choice *choices)
{
    bench *b = &t->bench;
    bench_variant plain = {.kernel = t->entry->name};
    compile_job job = {.usual = true, .slot = b->slot};
    if (!b->context->slots[b->slot].driver->schedule) return;
    if (t->entry->item->kind == AST_TENSOR) {
        tune_choice *to = &choices[t->name_count];
        for (int tile = 0; tile <= FUSE_TILES; tile++) to->values[to->count++] = tile;
        if (!is_listed(t, tile_knobs[KNOB_TILE])) t->names[t->name_count++] = tile_knobs[KNOB_TILE];
        add_library(t, NULL, choices);
        return;
    }
    if (plan_call(b, &plain, &b->at, &job.call, NULL) != QN_OK) return; /* as a candidate it says why */
    calls_compile(&job, 1, 1);
    if (job.status == QN_OK && !job.variant->kernel->raw_language) {
        for (int i = 0; i < COUNT(tried); i++) add_knob(t, job.variant->kernel, i, choices);
        add_library(t, job.variant->kernel, choices);
    }
    qn_call_free(job.call);
}
