/*
 * Where barriers stand in generated CUDA. In: the touches of memory that the threads of a team share, item by item, as
 * they are emitted. Out: a barrier in front of an item that touches what another thread may have touched since the last
 * one, when one of the two writes.
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
#include "emit/cuda/nest.h"
#include "schedule/apart.h"
#include "passes/facts.h"

#include <string.h>

enum {
    MOST_OPEN = 64,      /* accesses of one array: more are not compared, a barrier stands between */
    MOST_IN_LOOP = 1024, /* likewise of all memory, between two trips */
};

/* ---- which threads ---- */

/* Does the place run along every loop of the pass? */
static bool covers(const cnest *n, const place *at, int rank)
{
    unsigned along = 0;
    for (int i = 0; i < rank; i++)
        if (at->axis[i] != NO_AXIS) along |= 1u << at->axis[i];
    return along == (1u << n->view.layout->loop_count) - 1;
}

static bool team_is_one(const emitter *e)
{
    return e->cuda->spread->team.kind == TEAM_LANES && e->cuda->spread->team.threads == 1;
}

static void add(emitter *e, touch t)
{
    hazards *now = &e->cuda->now;
    for (int i = 0; i < now->count; i++)
        if (!memcmp(&now->items[i], &t, sizeof(t))) return;
    ARENA_PUSH(e->memory, now->items, now->count, now->capacity, t);
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

void hazard_buffer(emitter *e, int buffer, bool writes)
{
    if (e->cuda->spread->kept[buffer].kind == HOME_REGISTERS) return;
    touch t = touch_of(NULL, THREADS_MANY);
    t.buffer = buffer;
    t.writes = writes;
    add(e, t);
}

void hazard_access(cnest *n, const tile_op *op, place at)
{
    emitter *e = n->e;
    if (!e->survey->written[op->attr.access.array] || team_is_one(e)) return;
    bool load = op->code == OP_LOAD, loops = n->view.layout && n->view.layout->loop_count;
    tile_type type = tile_type_of(e->k, load ? op->results[0] : op->operands[0]);
    touch t = touch_of(op, THREADS_MANY);
    if (loops && n->view.has_inner && covers(n, &at, type.rank))
        t.threads = THREADS_OWN;
    else if (!load || (loops && !n->view.has_inner && !n->lead && covers(n, &at, type.rank)))
        t.threads = THREADS_LEAD;
    if (t.threads != THREADS_MANY) {
        t.layout = loops ? n->view.layout : NULL;
        memcpy(t.at.axis, at.axis, sizeof(at.axis[0]) * (size_t)type.rank);
    }
    add(e, t);
}

void hazard_by_many(emitter *e, const tile_op *op)
{
    if (e->survey->written[op->attr.access.array] && !team_is_one(e)) add(e, touch_of(op, THREADS_MANY));
}

/* ---- may two accesses of an array meet? ---- */

static bool commute(const emitter *e, const tile_op *a, const tile_op *b)
{
    return a->code == OP_ATOMIC && b->code == OP_ATOMIC && a->attr.atomic == b->attr.atomic &&
           a->attr.atomic != ATOMIC_EXCHANGE && a->attr.atomic != ATOMIC_CAS && !e->survey->uses[a->results[0]] &&
           !e->survey->uses[b->results[0]];
}

static bool changes_in(const trips *t, value v)
{
    return t->op && t->changes[v];
}

/* Is every element that both touch touched by the same thread? */
static bool same_thread(const emitter *e, const touch *a, const touch *b, const trips *t)
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
        if (!range_of(e->survey, a->op, axis, &r) || !range_of(e->survey, b->op, axis, &s) || r.step != s.step)
            continue;
        if (changes_in(t, r.step)) continue;
        if (r.start != s.start || changes_in(t, r.start)) {
            linear each, between;
            if (!apart_by_trips(e->survey, t, &r.first, &s.first, &each)) continue;
            between = relate_add(s.first, r.first, -1);
            if (between.bad || between.count || between.constant || each.count || each.constant) continue;
        }
        known |= 1u << loop;
    }
    return known == (1u << a->layout->loop_count) - 1;
}

static bool conflict_of(const emitter *e, const touch *a, const touch *b, const trips *t)
{
    if (!a->writes && !b->writes) return false;
    if (a->buffer || b->buffer) return a->buffer == b->buffer;
    if (a->op->attr.access.array != b->op->attr.access.array || commute(e, a->op, b->op)) return false;
    bool atomic = a->op->code == OP_ATOMIC || b->op->code == OP_ATOMIC;
    if ((!atomic || !a->layout) && same_thread(e, a, b, t)) return false;
    for (int axis = 0; axis < a->op->attr.access.rank; axis++)
        if (axis_is_apart(e->survey, a->op, b->op, axis, t)) return false;
    return true;
}

/* ---- barriers ---- */

const char *barrier_text(emitter *e)
{
    const team *team = &e->cuda->spread->team;
    if (team->kind == TEAM_LANES) return team->threads == 1 ? "" : "__syncwarp(team_mask);";
    if (team->kind == TEAM_BLOCK) return "__syncthreads();";
    if (team->kind == TEAM_CLUSTER)
        return arena_print(e->memory, "cluster_meet(met), %s();", need(e, "cluster_barrier"));
    return arena_print(e->memory, "%s(team_word, team_blocks);", need(e, "grid_barrier"));
}

void put_barrier(emitter *e)
{
    cuda_state *c = e->cuda;
    CHECK(!c->in_map);
    c->hazards.count = 0;
    c->barriers++;
    if (*barrier_text(e)) put(e, "%s", barrier_text(e));
}

static int count_of_array(const hazards *h, int array)
{
    int count = 0;
    for (int i = 0; i < h->count; i++) count += !h->items[i].buffer && h->items[i].op->attr.access.array == array;
    return count;
}

void hazard_commit(emitter *e)
{
    cuda_state *c = e->cuda;
    const trips same = {0};
    bool conflict = false;
    for (int i = 0; i < c->now.count && !conflict; i++) {
        const touch *now = &c->now.items[i];
        for (int k = 0; k < c->hazards.count && !conflict; k++)
            conflict = conflict_of(e, &c->hazards.items[k], now, &same);
        if (!now->buffer && now->writes && count_of_array(&c->hazards, now->op->attr.access.array) > MOST_OPEN)
            conflict = true;
    }
    if (conflict) put_barrier(e);
    hazards_join(e, &c->hazards, &c->now);
    for (int i = 0; i < c->now.count; i++)
        ARENA_PUSH(e->memory, c->log.items, c->log.count, c->log.capacity, c->now.items[i]);
    c->now.count = 0;
}

hazards hazards_copy(emitter *e, const hazards *from)
{
    hazards to = {0};
    hazards_join(e, &to, from);
    return to;
}

void hazards_join(emitter *e, hazards *to, const hazards *from)
{
    int before = to->count;
    for (int i = 0; i < from->count; i++) {
        bool known = false;
        for (int k = 0; k < before && !known; k++) known = !memcmp(&to->items[k], &from->items[i], sizeof(touch));
        if (!known) ARENA_PUSH(e->memory, to->items, to->count, to->capacity, from->items[i]);
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

void hazard_loop_ends(emitter *e, const tile_op *loop, int logged)
{
    cuda_state *c = e->cuda;
    bool wrote = false, buffers = false, arrays = false, conflict;
    if (c->log.count == logged) return; /* all that is open was there before */
    for (int i = 0; i < c->hazards.count; i++) {
        const touch *t = &c->hazards.items[i];
        arrays |= !t->buffer;
        buffers |= t->buffer != 0;
        wrote |= t->buffer && t->writes;
    }
    conflict = wrote || (buffers && c->barriers != c->loop_barriers);
    if (!conflict && arrays) {
        bool *inside = ARENA_ARRAY(e->memory, bool, e->k->value_count);
        for (int r = 0; r < loop->region_count; r++)
            tile_walk((tile_kernel *)e->k, loop->regions[r], mark_inside, inside);
        const trips later = {loop, inside};
        conflict = c->log.count - logged > MOST_IN_LOOP;
        for (int i = 0; i < c->hazards.count && !conflict; i++)
            for (int k = logged; k < c->log.count && !conflict && !c->hazards.items[i].buffer; k++)
                conflict = conflict_of(e, &c->hazards.items[i], &c->log.items[k], &later);
    }
    if (conflict) put_barrier(e);
}
