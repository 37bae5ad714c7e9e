/*
 * Where barriers stand in the program of a spread. In: the touches of memory that the threads of a team share, item by
 * item, as they are built. Out: a barrier in front of an item that touches what another thread may have touched since the
 * last one, when one of the two writes.
 *
 * Memory is a kept tile that is not in registers, or an array that the phase writes. Kept tiles count as a whole. Of two
 * accesses of an array there are three ways to show that nothing has to be waited for: both are the same kind of atomic
 * and commute; each element is always the same thread's, because the pass has the same layout and every axis that is
 * spread over threads is indexed by the same slice; or some axis is indexed by ranges that never meet. What is not shown
 * counts as a conflict. At the end of a loop's body the same is asked of what is still open and all that the next trip
 * may do, where an index may differ by what the trip adds to the loop's variable.
 * Regions of single elements (`map`) hold no memory and no barrier: threads leave their loops at different times.
 * SPDX-License-Identifier: MIT
 */
#include "loops/spread_build.h"
#include "schedule/apart.h"
#include "passes/facts.h"

#include <string.h>

enum {
    MOST_OPEN = 64,      /* accesses of one array: more are not compared, a barrier stands between */
    MOST_IN_LOOP = 1024, /* likewise of all memory, between two trips */
};

/* ---- which threads ---- */

/* Does the place run along every loop of the pass? */
static bool covers(const pass_builder *n, const place *at, int rank)
{
    unsigned along = 0;
    for (int i = 0; i < rank; i++)
        if (at->axis[i] != NO_AXIS) along |= 1u << at->axis[i];
    return along == (1u << n->view.layout->loop_count) - 1;
}

static void add(spread_builder *b, touch t)
{
    touches *now = &b->now;
    for (int i = 0; i < now->count; i++)
        if (!memcmp(&now->items[i], &t, sizeof(t))) return;
    ARENA_PUSH(b->memory, now->items, now->count, now->capacity, t);
}

static touch touch_of(const tile_op *op, threads_of_touch threads)
{
    touch t;
    memset(&t, 0, sizeof(t)); /* compared as bytes */
    t.op = op;
    t.writes = op && op->code != OP_LOAD;
    t.threads = threads;
    return t;
}

void touch_buffer(spread_builder *b, int buffer, bool writes)
{
    if (b->spread->kept[buffer].kind == HOME_REGISTERS) return;
    touch t = touch_of(NULL, THREADS_MANY);
    t.buffer = buffer;
    t.writes = writes;
    add(b, t);
}

void touch_access(const pass_builder *n, const tile_op *op, place at)
{
    spread_builder *b = n->b;
    if (!b->survey->written[op->attr.access.array] || spread_team_is_one(b)) return;
    bool load = op->code == OP_LOAD, loops = n->view.layout && n->view.layout->loop_count;
    tile_type type = tile_type_of(b->survey->k, load ? op->results[0] : op->operands[0]);
    touch t = touch_of(op, THREADS_MANY);
    if (loops && n->view.has_inner && covers(n, &at, type.rank))
        t.threads = THREADS_OWN;
    else if (!load || (loops && !n->view.has_inner && !n->leads && covers(n, &at, type.rank)))
        t.threads = THREADS_LEAD;
    if (t.threads != THREADS_MANY) {
        t.layout = loops ? n->view.layout : NULL;
        memcpy(t.at.axis, at.axis, sizeof(at.axis[0]) * (size_t)type.rank);
    }
    add(b, t);
}

void touch_by_many(spread_builder *b, const tile_op *op)
{
    if (b->survey->written[op->attr.access.array] && !spread_team_is_one(b)) add(b, touch_of(op, THREADS_MANY));
}

/* ---- may two accesses of an array meet? ---- */

static bool commute(const survey *e, const tile_op *a, const tile_op *b)
{
    return a->code == OP_ATOMIC && b->code == OP_ATOMIC && a->attr.atomic == b->attr.atomic &&
           a->attr.atomic != ATOMIC_EXCHANGE && a->attr.atomic != ATOMIC_CAS && !e->uses[a->results[0]] &&
           !e->uses[b->results[0]];
}

static bool changes_in(const trips *t, value v)
{
    return t->op && t->changes[v];
}

/* Is every element that both touch touched by the same thread? */
static bool same_thread(const survey *e, const touch *a, const touch *b, const trips *t)
{
    if (a->threads == THREADS_MANY || a->threads != b->threads || a->layout != b->layout) return false;
    if (!a->layout) return true; /* thread 0, or the lead of the only row */
    const struct access *x = &a->op->attr.access, *y = &b->op->attr.access;
    unsigned known = 0;
    for (int axis = 0; axis < x->rank; axis++) {
        index_range r, s;
        if (x->kind[axis] != INDEX_SLICE || y->kind[axis] != INDEX_SLICE) continue;
        int loop = a->at.axis[x->result_axis[axis]];
        if (loop == NO_AXIS || loop != b->at.axis[y->result_axis[axis]]) continue;
        if (!range_of(e, a->op, axis, &r) || !range_of(e, b->op, axis, &s) || r.step != s.step) continue;
        if (changes_in(t, r.step)) continue;
        if (r.start != s.start || changes_in(t, r.start)) {
            linear each, between;
            if (!apart_by_trips(e, t, &r.first, &s.first, &each)) continue;
            between = relate_add(s.first, r.first, -1);
            if (between.bad || between.count || between.constant || each.count || each.constant) continue;
        }
        known |= 1u << loop;
    }
    return known == (1u << a->layout->loop_count) - 1;
}

static bool conflict_of(const survey *e, const touch *a, const touch *b, const trips *t)
{
    if (!a->writes && !b->writes) return false;
    if (a->buffer || b->buffer) return a->buffer == b->buffer;
    if (a->op->attr.access.array != b->op->attr.access.array || commute(e, a->op, b->op)) return false;
    bool atomic = a->op->code == OP_ATOMIC || b->op->code == OP_ATOMIC;
    if ((!atomic || !a->layout) && same_thread(e, a, b, t)) return false;
    for (int axis = 0; axis < a->op->attr.access.rank; axis++)
        if (axis_is_apart(e, a->op, b->op, axis, t)) return false;
    return true;
}

/* ---- barriers ---- */

void touches_stop(spread_builder *b)
{
    CHECK(!b->in_map);
    b->open.count = 0;
    b->barriers++;
}

static int count_of_array(const touches *h, int array)
{
    int count = 0;
    for (int i = 0; i < h->count; i++) count += !h->items[i].buffer && h->items[i].op->attr.access.array == array;
    return count;
}

void touches_commit(spread_builder *b, loop_node *item)
{
    const trips same = {0};
    const tile_op *op = item->op;
    /* What an ordered atomic tells is what all threads did. */
    bool conflict = op && op->code == OP_ATOMIC && op->flags & F_ORDERED && !b->survey->uses[op->results[0]] &&
                    b->spread->team.threads != 1;
    for (int i = 0; i < b->now.count && !conflict; i++) {
        const touch *now = &b->now.items[i];
        for (int k = 0; k < b->open.count && !conflict; k++)
            conflict = conflict_of(b->survey, &b->open.items[k], now, &same);
        if (!now->buffer && now->writes && count_of_array(&b->open, now->op->attr.access.array) > MOST_OPEN)
            conflict = true;
    }
    item->waits = conflict;
    if (conflict) touches_stop(b);
    touches_join(b, &b->open, &b->now);
    for (int i = 0; i < b->now.count; i++)
        ARENA_PUSH(b->memory, b->log.items, b->log.count, b->log.capacity, b->now.items[i]);
    b->now.count = 0;
}

touches touches_copy(spread_builder *b, const touches *from)
{
    touches to = {0};
    touches_join(b, &to, from);
    return to;
}

void touches_join(spread_builder *b, touches *to, const touches *from)
{
    int before = to->count;
    for (int i = 0; i < from->count; i++) {
        bool known = false;
        for (int k = 0; k < before && !known; k++) known = !memcmp(&to->items[k], &from->items[i], sizeof(touch));
        if (!known) ARENA_PUSH(b->memory, to->items, to->count, to->capacity, from->items[i]);
    }
}

/* ---- loops ---- */

static void mark_inside(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    bool *inside = context;
    (void)k;
    for (int i = 0; i < op->result_count; i++) inside[op->results[i]] = true;
    for (int i = 0; i < b->arg_count; i++) inside[b->args[i]] = true;
    for (int r = 0; r < op->region_count; r++)
        for (int i = 0; i < op->regions[r]->arg_count; i++) inside[op->regions[r]->args[i]] = true;
}

void touches_loop_ends(spread_builder *b, const tile_op *loop, int logged)
{
    const survey *e = b->survey;
    bool wrote = false, buffers = false, arrays = false, conflict;
    if (b->log.count == logged) return; /* all that is open was there before */
    for (int i = 0; i < b->open.count; i++) {
        const touch *t = &b->open.items[i];
        arrays |= !t->buffer;
        buffers |= t->buffer != 0;
        wrote |= t->buffer && t->writes;
    }
    conflict = wrote || (buffers && b->barriers != b->loop_barriers);
    if (!conflict && arrays) {
        bool *inside = ARENA_ARRAY(e->memory, bool, e->k->value_count);
        for (int r = 0; r < loop->region_count; r++)
            tile_walk((tile_kernel *)e->k, loop->regions[r], mark_inside, inside);
        const trips later = {loop, inside};
        conflict = b->log.count - logged > MOST_IN_LOOP;
        for (int i = 0; i < b->open.count && !conflict; i++)
            for (int k = logged; k < b->log.count && !conflict && !b->open.items[i].buffer; k++)
                conflict = conflict_of(e, &b->open.items[i], &b->log.items[k], &later);
    }
    if (!conflict) return;
    spread_add(b, LOOP_BARRIER, NULL);
    touches_stop(b);
}
