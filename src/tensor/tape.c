/*
 * Tapes: slots behind handles, scopes, storages, variables with their pending assignments, the first error, call sites.
 * In: calls of <quern/tensor.h>. Out: nodes of the tape's graph, and what evaluation needs to know about them.
 * Invariants: a slot with a node is named by exactly the handles with its stamp; every LEAF is placed; a variable's home
 * is read through home_leaf alone.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/tape.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_COLLECTION 4096 /* nodes */
#define RELEASED_BYTES ((int64_t)16 << 20)

/* ---- call sites ---- */

static _Thread_local graph_site site_of_call;

void qn_here(const char *file, int line)
{
    site_of_call = (graph_site){.file = file, .line = line};
}

graph_site tape_site(void)
{
    return site_of_call;
}

/* ---- storages ---- */

storage *storage_new(qn_buffer *buffer, int64_t size_bytes, const tape_calls *calls)
{
    storage *s = heap_new(sizeof(*s));
    s->calls = calls;
    s->references = 1;
    s->buffer = buffer;
    s->size_bytes = size_bytes;
    return s;
}

storage *storage_retain(storage *s)
{
    if (s) s->references++;
    return s;
}

void storage_release(storage *s)
{
    if (!s || --s->references > 0) return;
    if (s->buffer) s->calls->release(s->buffer);
    heap_free(s);
}

/* The same memory under a new identity, for what reads it after a write. */
static storage *storage_renew(storage *s)
{
    storage *next = storage_new(s->buffer ? s->calls->retain(s->buffer) : NULL, s->size_bytes, s->calls);
    next->written = s->written;
    s->overwritten = true;
    return next;
}

/* ---- tapes ---- */

qn_tape *tape_new(qn_context *context, const char *device, const tape_calls *calls)
{
    arena *memory = arena_new();
    qn_tape *tape = ARENA_NEW(memory, qn_tape);
    tape->memory = memory;
    tape->context = context;
    tape->calls = calls;
    snprintf(tape->device, sizeof(tape->device), "%s", device);
    tape->graph = graph_new(arena_new());
    tape->slot_count = 1;
    tape->slot_capacity = 64;
    tape->slots = ARENA_ARRAY(memory, tape_slot, tape->slot_capacity);
    tape->collect_at = FIRST_COLLECTION;
    tape->collect_at_bytes = (size_t)4 << 20;
    tape->spare_from = INT_MAX;
#ifndef NDEBUG
    tape->check_indices = true;
#endif
    return tape;
}

void tape_free(qn_tape *tape)
{
    if (!tape) return;
    for (int i = 1; i < tape->slot_count; i++) storage_release(tape->slots[i].home);
    for (int n = 0; n < tape->placed_capacity; n++) storage_release(tape->placed[n].storage);
    heap_free(tape->placed);
    arena_free(tape->graph->memory);
    arena_free(tape->memory);
}

void qn_tape_set_mode(qn_tape *tape, qn_mode mode)
{
    if (tape) tape->mode = mode;
}

void qn_tape_set_tf32(qn_tape *tape, bool allow)
{
    if (tape) tape->products = allow ? PRODUCT_TF32 : PRODUCT_ANY;
}

void qn_tape_set_products(qn_tape *tape, qn_products products)
{
    static const product_way ways[] = {PRODUCT_ANY, PRODUCT_TF32, PRODUCT_FMA, PRODUCT_TERMS};
    if (tape && (unsigned)products < COUNT(ways)) tape->products = ways[products];
}

void qn_tape_set_check_indices(qn_tape *tape, bool check)
{
    if (tape) tape->check_indices = check;
}

qn_status qn_tape_error(qn_tape *tape, qn_error *error)
{
    if (!tape) return error_set(error, QN_BAD_CALL, "qn_tape_error: the tape is NULL");
    qn_status status = tape->graph->status;
    if (status) error_set(error, status, "%s", tape->graph->error.message);
    tape->graph->status = QN_OK;
    return status;
}

/* The range that the thread is in, as the graph knows it. What was noted and got no node is forgotten again, so a loop
 * that makes none adds nothing. */
static unsigned note_range(graph *g)
{
    int open;
    const range_open *stack = range_stack(&open);
    unsigned at = g->range;
    while (at && (g->ranges[at].depth >= open || stack[g->ranges[at].depth].number != g->ranges[at].number))
        at = g->ranges[at].parent;
    while (g->range_count - 1 > (int)at && g->ranges[g->range_count - 1].node_count == g->node_count) g->range_count--;
    for (int depth = at ? g->ranges[at].depth + 1 : 0; depth < open; depth++) {
        graph_range fresh = {.number = stack[depth].number, .parent = at, .depth = depth, .node_count = g->node_count};
        memcpy(fresh.name, stack[depth].name, sizeof(fresh.name));
        ARENA_PUSH(g->memory, g->ranges, g->range_count, g->range_capacity, fresh);
        at = (unsigned)g->range_count - 1;
    }
    return g->range = at;
}

/* The tape that this thread's latest call entered: what a call gives that fails still names it, so that reading that, or
 * what was made from it, tells the tape's first error. */
static _Thread_local qn_tape *entered;

qn_tensor tape_failed(void)
{
    return (qn_tensor){.tape = entered};
}

bool tape_enter(qn_tape *tape, const char *label)
{
    entered = tape;
    if (!tape) return false;
    graph *g = tape->graph;
    g->site = site_of_call;
    g->label = label;
    /* Every list of the graph may double in one op. */
    if (!heap_begin(arena_used_bytes(tape->memory) + arena_used_bytes(g->memory)) && !g->status)
        g->status = heap_refuse(&g->error);
    if (tape->is_broken)
        g->status = error_set(&g->error, QN_NO_MEMORY,
                              "this tape ran out of memory in the middle of a gradient: make it again");
    g->site.origin = g->ranges[g->range].number == range_now() ? g->range : note_range(g);
    return true;
}

/* ---- slots and handles ---- */

tape_slot *tape_slot_of(qn_tensor t)
{
    if (!t.tape || !t.slot || t.slot >= (uint32_t)t.tape->slot_count) return NULL;
    tape_slot *s = &t.tape->slots[t.slot];
    return s->node && s->stamp == t.stamp ? s : NULL;
}

qn_tensor tape_handle(qn_tape *tape, node n)
{
    if (!n) return (qn_tensor){.tape = tape};
    if (tape->scope <= tape->spare_scope && (int)n >= tape->spare_from) tape->spare_from = INT_MAX;
    uint32_t number = tape->free_slot;
    if (number) {
        tape->free_slot = tape->slots[number].next_free;
    } else {
        number = (uint32_t)tape->slot_count;
        ARENA_PUSH(tape->memory, tape->slots, tape->slot_count, tape->slot_capacity, (tape_slot){0});
    }
    tape_slot *s = &tape->slots[number];
    *s = (tape_slot){.node = n, .stamp = s->stamp + 1, .scope = tape->scope};
    return (qn_tensor){tape, number, s->stamp};
}

node tape_node(qn_tape *tape, const char *op, qn_tensor t)
{
    const tape_slot *s = tape_slot_of(t);
    if (!t.tape || (!t.slot && t.tape == tape)) return graph_fail(tape->graph, op, "an operand is the empty tensor");
    if (t.tape != tape) return graph_fail(tape->graph, op, "the operands belong to different tapes");
    if (!s) return graph_fail(tape->graph, op, "an operand was released, or its scope has ended");
    return s->node;
}

qn_tape *tape_begin(const char *op, const qn_tensor *operands, int count, node *nodes)
{
    qn_tape *tape = NULL;
    for (int i = 0; i < count && operands && !tape; i++) tape = operands[i].tape;
    if (!tape_enter(tape, op)) return NULL;
    bool good = !tape->graph->status;
    for (int i = 0; i < count && good; i++) good = (nodes[i] = tape_node(tape, op, operands[i])) != 0;
    return good ? tape : NULL;
}

bool tape_type(qn_tape *tape, const char *op, qn_dtype type)
{
    if ((unsigned)type < DT_COUNT) return true;
    graph_fail(tape->graph, op, "%d is not a type", (int)type);
    return false;
}

bool tape_array(qn_tape *tape, const char *op, const void *array, int count)
{
    if (array || count < 1) return true;
    if (tape_enter(tape, op)) graph_fail(tape->graph, op, "an array of %d is at NULL", count);
    return false;
}

static void drop_assign(qn_tape *tape, uint32_t slot)
{
    int kept = 0;
    for (int i = 0; i < tape->assign_count; i++)
        if (tape->assigns[i].slot != slot) tape->assigns[kept++] = tape->assigns[i];
    tape->assign_count = kept;
}

static void release_slot(qn_tape *tape, uint32_t number)
{
    tape_slot *s = &tape->slots[number];
    if (s->variable) drop_assign(tape, number);
    storage_release(s->home);
    *s = (tape_slot){.stamp = s->stamp, .next_free = tape->free_slot};
    tape->free_slot = number;
}

void tape_forget(qn_tensor t)
{
    const tape_slot *s = tape_slot_of(t);
    if (!s) return;
    qn_tape *tape = t.tape;
    if (tape_placed(tape, s->node)) {
        tape->dead_bytes += graph_size_bytes(tape->graph, s->node) + 1;
        tape->older_died |= !tape->scope || (int)s->node < tape->scopes[tape->scope - 1].first;
    }
    release_slot(tape, t.slot);
}

void qn_release(qn_tensor t)
{
    if (!tape_slot_of(t)) return;
    qn_tape *tape = t.tape;
    tape_forget(t);
    if (tape->dead_bytes > RELEASED_BYTES || tape->graph->node_count > tape->collect_at) tape_collect(tape);
}

qn_tensor qn_keep(qn_tensor t)
{
    tape_slot *s = tape_slot_of(t);
    if (s && s->scope > 0) s->scope--;
    return t;
}

void qn_scope_begin(qn_tape *tape)
{
    if (!tape) return;
    int count = tape->scope++;
    tape_scope begun = {.first = tape->graph->node_count, .newly = tape->newly_count};
    /* Whatever was placed of what is spare belongs to this scope with its nodes: they may be forgotten when it ends. */
    if (tape->spare_from < begun.first) begun = (tape_scope){.first = tape->spare_from, .newly = tape->spare_newly};
    ARENA_PUSH(tape->memory, tape->scopes, count, tape->scope_capacity, begun);
}

static bool all_are_named(const qn_tape *tape, const node *nodes, int count)
{
    for (int k = 0; k < count; k++) {
        int i = 1;
        while (i < tape->slot_count && tape->slots[i].node != nodes[k] && tape->slots[i].home_leaf != nodes[k]) i++;
        if (i == tape->slot_count) return false;
    }
    return true;
}

void qn_scope_end(qn_tape *tape)
{
    if (!tape_enter(tape, "scope_end")) return;
    if (!tape->scope) {
        graph_fail(tape->graph, "scope_end", "no scope was begun");
        return;
    }
    node older[8]; /* computed, of before the scope, and named in it */
    tape_scope ended = tape->scopes[tape->scope - 1];
    int older_count = 0;
    for (int i = 1; i < tape->slot_count; i++) {
        const tape_slot *s = &tape->slots[i];
        if (!s->node || s->scope < tape->scope) continue;
        if ((int)s->node < ended.first && tape_placed(tape, s->node)) {
            if (older_count < COUNT(older)) older[older_count] = s->node;
            older_count++;
        }
        release_slot(tape, (uint32_t)i);
    }
    tape->scope--;
    tape->older_died |= older_count > COUNT(older) || !all_are_named(tape, older, older_count);
    tape_collect_scope(tape, ended);
    if (tape->older_died || tape->graph->node_count > tape->collect_at ||
        arena_used_bytes(tape->graph->memory) > tape->collect_at_bytes)
        tape_collect(tape);
}

/* ---- what is computed ---- */

void tape_place(qn_tape *tape, node n, const placed *where)
{
    if ((int)n >= tape->placed_capacity) {
        int capacity = MAXIMUM(2 * tape->placed_capacity, tape->graph->node_capacity);
        placed *more = heap_resize(tape->placed, sizeof(placed) * (size_t)capacity);
        memset(more + tape->placed_capacity, 0, sizeof(placed) * (size_t)(capacity - tape->placed_capacity));
        tape->placed = more;
        tape->placed_capacity = capacity;
    }
    storage_retain(where->storage);
    storage_release(tape->placed[n].storage);
    tape->placed[n] = *where;
    if ((tape->scope || (int)n >= tape->spare_from) && where->storage)
        ARENA_PUSH(tape->memory, tape->newly, tape->newly_count, tape->newly_capacity, n);
}

const placed *tape_placed(const qn_tape *tape, node n)
{
    return (int)n < tape->placed_capacity && tape->placed[n].storage ? &tape->placed[n] : NULL;
}

node tape_leaf(qn_tape *tape, dtype elem, const shape *s, const int64_t *strides, int64_t offset, storage *memory)
{
    node leaf = graph_leaf(tape->graph, elem, s, strides, offset, memory);
    if (!leaf) return 0;
    placed where = {.storage = memory, .offset = offset};
    memcpy(where.strides, graph_get(tape->graph, leaf)->attr.strides, sizeof(where.strides));
    tape_place(tape, leaf, &where);
    return leaf;
}

storage *tape_memory(qn_tape *tape, const char *op, int64_t size_bytes)
{
    storage *memory = NULL;
    qn_error error;
    if (!tape->context) return storage_new(NULL, 0, NULL);
    qn_status status = tape->calls->allocate(tape, size_bytes, &memory, &error);
    if (!status) return memory;
    graph_fail(tape->graph, op, "%s", error.message);
    tape->graph->status = tape->graph->error.status = status;
    return NULL;
}

/* ---- variables and writes ---- */

void tape_assign_slot(qn_tape *tape, uint32_t number, node from)
{
    if (!from) return;
    tape_slot *slot = &tape->slots[number];
    drop_assign(tape, number);
    slot->node = from;
    if (from == slot->home_leaf) return;
    ARENA_PUSH(tape->memory, tape->assigns, tape->assign_count, tape->assign_capacity, ((tape_assign){number, from}));
}

qn_tensor tape_variable(qn_tape *tape, node initial)
{
    graph *g = tape->graph;
    if (!initial) return (qn_tensor){.tape = tape};
    storage *home = tape_memory(tape, "variable", graph_size_bytes(g, initial));
    if (!home) return (qn_tensor){.tape = tape};
    home->written = true;
    shape s = graph_get(g, initial)->shape;
    node leaf = tape_leaf(tape, graph_get(g, initial)->elem, &s, NULL, 0, home);
    qn_tensor t = tape_handle(tape, initial);
    tape_slot *slot = &tape->slots[t.slot];
    slot->variable = true;
    slot->home = home;
    slot->home_leaf = leaf;
    /* Equal initial values are one node, variables are not: each has gradients of its own. */
    tape_assign_slot(tape, t.slot, graph_same(g, GRAPH_AGAIN, initial, (int)t.slot));
    return t;
}

qn_tensor qn_variable(qn_tensor initial)
{
    node n;
    qn_tape *tape = tape_begin("variable", &initial, 1, &n);
    return tape ? tape_variable(tape, n) : tape_failed();
}

void qn_assign(qn_tensor variable, qn_tensor value)
{
    node nodes[2];
    qn_tape *tape = tape_begin("assign", (qn_tensor[]){variable, value}, 2, nodes);
    if (!tape) return;
    graph *g = tape->graph;
    tape_slot *slot = &tape->slots[variable.slot];
    if (!slot->variable) {
        graph_fail(g, "assign", "the tensor is not a variable: make it one with qn_variable");
        return;
    }
    const graph_node *home = graph_get(g, slot->home_leaf);
    if (!shape_same(&home->shape, &graph_get(g, nodes[1])->shape)) {
        text words = {0};
        text_add(&words, "a value of shape ");
        shape_print(&graph_get(g, nodes[1])->shape, &words);
        text_add(&words, " for a variable of shape ");
        shape_print(&home->shape, &words);
        graph_fail(g, "assign", "%s", text_get(&words));
        text_free(&words);
        return;
    }
    tape_assign_slot(tape, variable.slot, graph_convert(g, nodes[1], home->elem));
}

void tape_overwritten(qn_tape *tape, node leaf)
{
    const graph_node *n = graph_get(tape->graph, leaf);
    CHECK(n->code == GRAPH_LEAF);
    storage *next = storage_renew(n->attr.storage);
    shape s = n->shape;
    dtype elem = n->elem;
    int64_t strides[GRAPH_RANK];
    memcpy(strides, n->attr.strides, sizeof(strides));
    node renewed = tape_leaf(tape, elem, &s, strides, n->attr.offset, next);
    for (int i = 1; i < tape->slot_count; i++) {
        tape_slot *slot = &tape->slots[i];
        if (slot->node == leaf) slot->node = renewed;
        if (slot->home_leaf != leaf) continue;
        slot->home_leaf = renewed;
        storage_release(slot->home);
        slot->home = storage_retain(next);
    }
    storage_release(next);
}

void tape_assigned(qn_tape *tape, uint32_t number)
{
    drop_assign(tape, number);
    tape_overwritten(tape, tape->slots[number].home_leaf);
    tape->slots[number].node = tape->slots[number].home_leaf;
}
