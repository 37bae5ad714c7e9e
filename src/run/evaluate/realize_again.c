/*
 * Evaluations that were done before. In: nodes to be computed. Out: the plan that served them the last time, without a walk
 * of the graph for its key. A step that is called again builds the same nodes (what a scope made stays for the next one,
 * tape_collect.c), so what is to be computed is known by their numbers as long as no node got another one. What may have
 * changed is looked at: which nodes of the piece are computed, and where leaves lie, as far as a plan depends on it.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "run/evaluate/realize.h"

#include <string.h>

#define HEAP_PUSH(items, count, capacity, item)                                    \
    do {                                                                           \
        if ((count) == (capacity)) {                                               \
            (capacity) = MAXIMUM(2 * (capacity), 16);                              \
            (items) = heap_resize((items), sizeof(*(items)) * (size_t)(capacity)); \
        }                                                                          \
        (items)[(count)++] = (item);                                               \
    } while (0)

enum { PLACES = 64, MOST_TARGETS = 6 };

/* A leaf of the piece, as its key has it. */
typedef struct again_leaf {
    node node;
    int number, misalignment_bytes;
    int64_t offset, strides[GRAPH_RANK];
} again_leaf;

typedef struct again_entry {
    plan *plan; /* NULL: nothing is known here */
    int64_t renumbered;
    qn_mode mode;
    int tile, library;
    bool check_indices;
    node targets[MOST_TARGETS];
    int target_count;
    node *inner; /* nodes of the piece that were not computed */
    int inner_count, inner_capacity;
    again_leaf *leaves;
    int leaf_count, leaf_capacity;
} again_entry;

struct realize_again {
    again_entry entries[PLACES];
};

static again_entry *entry_of(realizer *r, const realize_work *work)
{
    if (!r->again) r->again = heap_new(sizeof(*r->again));
    return &r->again->entries[(work->targets[0] * 0x9e3779b1u) >> 26];
}

static bool is_asked(const qn_tape *tape, const realize_work *work)
{
    return !work->assign_count && work->target_count <= MOST_TARGETS && !tape->capturing && !record_is_on();
}

static bool lies_as_before(qn_tape *tape, const again_leaf *leaf)
{
    const placed *p = tape_placed(tape, leaf->node);
    return p && !p->storage->overwritten && p->offset == leaf->offset &&
           !memcmp(p->strides, leaf->strides, sizeof(leaf->strides)) &&
           buffer_misalignment(p->storage->buffer) == leaf->misalignment_bytes &&
           realize_buffer_number(tape->realizer, p->storage->buffer) == leaf->number;
}

plan *realize_again_find(qn_tape *tape, const realize_work *work)
{
    realizer *r = tape->realizer;
    if (!is_asked(tape, work)) return NULL;
    const again_entry *e = entry_of(r, work);
    if (!e->plan || e->renumbered != tape->renumbered || e->mode != tape->mode || e->tile != tape->tile ||
        e->library != tape->library ||
        e->check_indices != tape->check_indices || e->target_count != work->target_count ||
        memcmp(e->targets, work->targets, sizeof(node) * (size_t)e->target_count) != 0)
        return NULL;
    for (int i = 0; i < e->inner_count; i++)
        if (tape_placed(tape, e->inner[i])) return NULL;
    realize_begin(tape);
    for (int i = 0; i < e->leaf_count; i++)
        if (!lies_as_before(tape, &e->leaves[i])) return NULL;
    e->plan->last_used = r->evaluations;
    r->known_count++;
    return e->plan;
}

void realize_again_keep(qn_tape *tape, const realize_work *work, plan *p)
{
    realizer *r = tape->realizer;
    if (!is_asked(tape, work)) return;
    bool looks_at_indices = !tape->context->slots[r->slot].driver->memory;
    again_entry *e = entry_of(r, work);
    e->plan = NULL;
    e->inner_count = e->leaf_count = 0;
    for (int i = 0; i < r->order_count; i++) {
        const placed *where = tape_placed(tape, r->order[i]);
        if (!where) {
            if (looks_at_indices && graph_ops[graph_get(tape->graph, r->order[i])->code].class == GRAPH_CLASS_INDEX)
                return; /* their values are looked at each time */
            HEAP_PUSH(e->inner, e->inner_count, e->inner_capacity, r->order[i]);
            continue;
        }
        again_leaf leaf = {.node = r->order[i],
                           .number = realize_buffer_number(r, where->storage->buffer),
                           .misalignment_bytes = buffer_misalignment(where->storage->buffer),
                           .offset = where->offset};
        memcpy(leaf.strides, where->strides, sizeof(leaf.strides));
        HEAP_PUSH(e->leaves, e->leaf_count, e->leaf_capacity, leaf);
    }
    memcpy(e->targets, work->targets, sizeof(node) * (size_t)work->target_count);
    e->target_count = work->target_count;
    e->renumbered = tape->renumbered;
    e->mode = tape->mode;
    e->tile = tape->tile;
    e->library = tape->library;
    e->check_indices = tape->check_indices;
    e->plan = p;
}

void realize_again_forget(realizer *r, const plan *p)
{
    for (int i = 0; r->again && i < PLACES; i++)
        if (r->again->entries[i].plan == p) r->again->entries[i].plan = NULL;
}

void realize_again_free(realizer *r)
{
    for (int i = 0; r->again && i < PLACES; i++) {
        heap_free(r->again->entries[i].inner);
        heap_free(r->again->entries[i].leaves);
    }
    heap_free(r->again);
    r->again = NULL;
}
