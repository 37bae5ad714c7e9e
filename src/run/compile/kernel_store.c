/*
 * Kernels that fusion wrote. In: a tile kernel. Out: the entry of an equal one from before, with all that was compiled
 * of it, or a new entry. Equal means: the same printed text and the same wishes to the back end, whatever program and
 * sizes it came from. The entries live as long as the context, so that every tape of it finds them.
 * SPDX-License-Identifier: MIT
 */
#include "run/evaluate/realize.h"

#include <stdlib.h>

struct kernel_store {
    qn_module owner; /* what the entries name as their module */
    map *entries;    /* by text */
    kernel_entry **list;
    int count, capacity;
};

static struct kernel_store *store_of(qn_context *context)
{
    if (context->store) return context->store;
    struct kernel_store *s = heap_new(sizeof(*s));
    s->owner.context = context;
    s->owner.memory = arena_new();
    s->owner.path = "tensors";
    s->entries = map_new(s->owner.memory);
    context->store = s;
    return s;
}

kernel_entry *store_kernel(qn_context *context, const tile_kernel *k)
{
    text words = {0};
    tile_print(k, &words);
    for (int i = 0; i < KNOB_COUNT; i++) text_print(&words, "%d ", k->knobs[i]);
    text_print(&words, "%d %d %d\n", k->split_loops, k->fills, k->few);
    lock_take(&context->lock);
    struct kernel_store *s = store_of(context);
    kernel_entry *e = map_get(s->entries, text_get(&words));
    if (!e) {
        arena *memory = s->owner.memory;
        e = ARENA_NEW(memory, kernel_entry);
        e->module = &s->owner;
        entry_from_dump(e, tile_clone(k, memory));
        map_set(s->entries, arena_copy_text(memory, text_get(&words), words.length), e);
        ARENA_PUSH(memory, s->list, s->count, s->capacity, e);
    }
    lock_give(&context->lock);
    text_free(&words);
    return e;
}

void store_free(qn_context *context)
{
    struct kernel_store *s = context->store;
    if (!s) return;
    for (int i = 0; i < s->count; i++) {
        text_free(&s->list[i]->warnings);
        for (instance *at = s->list[i]->instances, *next; at; at = next) {
            next = at->next;
            instance_free(at, context);
        }
    }
    arena_free(s->owner.memory);
    heap_free(s);
    context->store = NULL;
}
