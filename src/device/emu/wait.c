/*
 * What the threads of `emu` do together: barriers of blocks, clusters and grids, the collective operations of warps;
 * and the few other things that the text calls.
 *
 * In: a thread that arrives. Out: it waits, or it is the last and completes the operation: it computes everybody's
 * result before anybody goes on, so nobody can see a later one. Threads that have ended are not waited for, as on a
 * GPU; the checked mode tells of them.
 * SPDX-License-Identifier: MIT
 */
#include "device/emu/switch.h"
#include "device/emu/worker.h"

#include <string.h>

#define MOST_SPINS (1 << 16) /* of a thread that gives way with nobody to give way to, 1024 atomics each */

/* ---- barriers ---- */

static void barrier_open(emu_block *b, emu_barrier *at, int number)
{
    int sum = at->sum;
    if (b->worker->launch->checked && !number && b->live < b->thread_count) {
        text words = {0};
        const emu_thread *waiting = NULL;
        for (int n = 0; n < b->thread_count && !waiting; n++)
            if (b->threads[n] && b->threads[n]->state == EMU_AT_BARRIER) waiting = b->threads[n];
        if (waiting) {
            text_add(&words, "barrier divergence: ");
            emu_thread_words(waiting, &words);
            text_print(&words, " waits for its block, of which %d of %d threads have ended", b->thread_count - b->live,
                       b->thread_count);
            emu_finding f = {.at = waiting->place};
            snprintf(f.words, sizeof(f.words), "%s", text_get(&words));
            emu_finding_add(b->worker, &f);
        }
        text_free(&words);
    }
    *at = (emu_barrier){0};
    b->epoch = ++b->worker->epochs;
    for (int n = 0; n < b->thread_count; n++) {
        emu_thread *t = b->threads[emu_turn(b, n, b->thread_count)];
        if (!t || t->state != EMU_AT_BARRIER || t->barrier != number) continue;
        t->result = (uint64_t)sum;
        emu_push_ready(t);
    }
}

static void barrier_places(emu_thread *self, emu_barrier *at)
{
    if (!at->arrived) {
        at->first = self->place;
        at->first_thread = self->number;
    } else if (!self->barrier && self->worker->launch->checked && at->first.line != self->place.line) {
        emu_finding f = {.at = self->place};
        snprintf(f.words, sizeof(f.words),
                 "barrier divergence: thread %u of a block waits here, thread %u of it on line %d", self->number,
                 at->first_thread, at->first.line);
        emu_finding_add(self->worker, &f);
    }
}

EMU_ON_STACK static int call_barrier(emu_thread *self, int number, int count, int value, const char *file, int line)
{
    emu_block *b = self->block;
    emu_barrier *at = &b->barriers[number & (EMU_BARRIERS - 1)];
    self->place = (emu_place){file, line};
    self->barrier = number;
    barrier_places(self, at);
    at->arrived++;
    at->expected = count;
    at->sum += value != 0;
    self->state = EMU_AT_BARRIER;
    if (at->arrived >= (count ? count : b->live))
        barrier_open(b, at, number); /* also this thread: it waits for its turn */
    emu_wait(self);
    return (int)self->result;
}

/* Is counted and goes on. */
EMU_ON_STACK void emu_call_arrive(emu_thread *self, int number, int count, const char *file, int line)
{
    emu_block *b = self->block;
    emu_barrier *at = &b->barriers[number & (EMU_BARRIERS - 1)];
    self->place = (emu_place){file, line};
    at->arrived++;
    at->expected = count;
    if (at->arrived >= count) barrier_open(b, at, number);
}

/* A barrier of several blocks: of the caller's cluster, or of everything that is alive. */
static void together_check(emu_worker *w, int cluster, bool grid)
{
    emu_state state = grid ? EMU_AT_GRID : EMU_AT_CLUSTER;
    int live = 0, waiting = 0;
    for (int i = 0; i < w->block_count; i++) {
        if (!grid && w->blocks[i].cluster != cluster) continue;
        live += w->blocks[i].live;
        waiting += w->blocks[i].waiting[grid];
    }
    if (!waiting || waiting < live) return;
    w->together++;
    for (int i = 0; i < w->block_count; i++) {
        emu_block *b = &w->blocks[i];
        if (!grid && b->cluster != cluster) continue;
        b->waiting[grid] = 0;
        b->epoch = ++w->epochs;
        for (int n = 0; n < b->thread_count; n++) {
            emu_thread *t = b->threads[emu_turn(b, n, b->thread_count)];
            if (t && t->state == state) emu_push_ready(t);
        }
    }
}

EMU_ON_STACK static void call_together(emu_thread *self, int grid, const char *file, int line)
{
    self->place = (emu_place){file, line};
    self->state = grid ? EMU_AT_GRID : EMU_AT_CLUSTER;
    self->block->waiting[grid]++;
    together_check(self->worker, self->block->cluster, grid);
    emu_wait(self);
}

void emu_thread_end(emu_thread *self)
{
    emu_block *b = self->block;
    if (b->background) emu_background_end(self);
    self->state = EMU_DONE;
    b->ended_lanes[self->number / EMU_WARP] |= 1u << self->lane;
    b->live--;
    /* Its stack may serve another thread from now on; what is asked later is only whether it has ended. */
    b->threads[self->number] = NULL;
    for (int i = 0; i < EMU_BARRIERS; i++) {
        emu_barrier *at = &b->barriers[i];
        if (at->arrived && !at->expected && at->arrived >= b->live) barrier_open(b, at, i);
    }
    if (b->waiting[0]) together_check(b->worker, b->cluster, false);
    if (b->worker->block_count > 1 || b->waiting[1]) together_check(b->worker, b->cluster, true);
    if (b->worker->block_count > 1) together_check(b->worker, b->cluster, false);
}

/* ---- warps ---- */

static uint64_t reduced(emu_collective kind, uint32_t a, uint32_t b)
{
    switch (kind) {
    case EMU_REDUCE_ADD: return a + b;
    case EMU_REDUCE_MIN: return (int32_t)a < (int32_t)b ? a : b;
    case EMU_REDUCE_MAX: return (int32_t)a > (int32_t)b ? a : b;
    case EMU_REDUCE_UMIN: return a < b ? a : b;
    case EMU_REDUCE_UMAX: return a > b ? a : b;
    case EMU_REDUCE_AND: return a & b;
    case EMU_REDUCE_OR: return a | b;
    default: return a ^ b;
    }
}

/* Everybody of the mask is there: everybody's result. */
static void collective_compute(emu_thread *self, emu_thread *const *lanes)
{
    uint32_t mask = self->mask, ballot = 0;
    bool all_equal = true;
    uint64_t total = self->value;
    emu_warp *w = self->warp;
    for (int l = 0; l < EMU_WARP; l++) {
        if (!(mask >> l & 1)) continue;
        if (lanes[l]->value) ballot |= 1u << l;
        all_equal &= lanes[l]->value == self->value;
        if (self->collective >= EMU_REDUCE_ADD && lanes[l] != self)
            total = reduced(self->collective, (uint32_t)total, (uint32_t)lanes[l]->value);
        if (self->collective == EMU_GATHER)
            memcpy(w->gathered + (size_t)l * self->argument, (const void *)(uintptr_t)lanes[l]->value, self->argument);
    }
    for (int l = 0; l < EMU_WARP; l++) {
        if (!(mask >> l & 1)) continue;
        emu_thread *t = lanes[l];
        switch (self->collective) {
        case EMU_SYNC: t->result = 0; break;
        case EMU_SHUFFLE: t->result = mask >> (t->argument & 31) & 1 ? lanes[t->argument & 31]->value : t->value; break;
        case EMU_BALLOT: t->result = ballot; break;
        case EMU_MATCH_ANY:
            t->result = 0;
            for (int o = 0; o < EMU_WARP; o++)
                if (mask >> o & 1 && lanes[o]->value == t->value) t->result |= 1u << o;
            break;
        case EMU_MATCH_ALL: t->result = all_equal ? mask : 0; break;
        case EMU_GATHER: t->result = (uint64_t)(uintptr_t)w->gathered; break;
        default: t->result = total;
        }
    }
}

EMU_ON_STACK static void collective_differs(emu_thread *self, const emu_thread *other)
{
    emu_finding f = {.at = self->place};
    snprintf(f.words, sizeof(f.words),
             "warp divergence: lane %u is here with mask %08x, lane %u with mask %08x in another operation (%s:%d)",
             self->lane, self->mask, other->lane, other->mask, emu_file_name(other->place.file), other->place.line);
    emu_finding_add(self->worker, &f);
    emu_stop(self);
}

EMU_ON_STACK static uint64_t call_warp(emu_thread *self, uint32_t mask, int collective, uint64_t value,
                                       uint64_t argument, const char *file, int line)
{
    emu_block *b = self->block;
    emu_warp *w = self->warp;
    uint32_t own = 1u << self->lane;
    int first = (int)(self->number - self->lane), lanes_there = MINIMUM(b->thread_count - first, EMU_WARP);
    self->place = (emu_place){file, line};
    self->collective = (emu_collective)collective;
    self->value = value;
    self->argument = argument;
    if (lanes_there < EMU_WARP) mask &= (1u << lanes_there) - 1; /* lanes that the block does not have */
    self->mask = mask;
    if (!(mask & own)) {
        emu_finding f = {.at = self->place};
        snprintf(f.words, sizeof(f.words), "warp divergence: lane %u is not in the mask %08x that it gives", self->lane,
                 mask);
        emu_finding_add(self->worker, &f);
        emu_stop(self);
    }
    self->state = EMU_AT_WARP;
    w->waiting |= own;
    if ((w->waiting & mask) == mask) {
        emu_thread *const *lanes = &b->threads[first];
        for (int l = 0; l < lanes_there; l++)
            if (mask >> l & 1 && (lanes[l]->mask != mask || lanes[l]->collective != self->collective))
                collective_differs(self, lanes[l]);
        collective_compute(self, lanes);
        if (collective == EMU_SYNC && w->together) {
            w->time++;
            for (int l = 0; l < lanes_there; l++)
                for (int o = 0; mask >> l & 1 && o < lanes_there; o++)
                    if (mask >> o & 1) w->together[l * EMU_WARP + o] = w->time;
        }
        w->waiting &= ~mask;
        for (int n = 0; n < lanes_there; n++) {
            uint32_t l = emu_turn(b, n, lanes_there);
            if (mask >> l & 1 && lanes[l] != self) emu_push_ready(lanes[l]);
        }
        self->state = EMU_READY;
        return self->result;
    }
    emu_wait(self);
    return self->result;
}

static uint32_t call_active(emu_thread *self)
{
    const emu_block *b = self->block;
    int first = (int)(self->number - self->lane), lanes_there = MINIMUM(b->thread_count - first, EMU_WARP);
    uint32_t all = lanes_there < EMU_WARP ? (1u << lanes_there) - 1 : ~0u;
    return all & ~b->ended_lanes[self->number / EMU_WARP];
}

/* ---- the rest of what the text calls ---- */

static void *call_map(emu_thread *self, void *pointer, uint32_t rank)
{
    emu_worker *w = self->worker;
    const emu_block *own = self->block;
    size_t offset = (size_t)((char *)pointer - w->shared);
    if (offset >= w->shared_size || rank == (uint32_t)own->cluster_rank) return pointer;
    for (int i = 0; i < w->block_count; i++)
        if (w->blocks[i].cluster == own->cluster && w->blocks[i].cluster_rank == (int)rank)
            return w->blocks[i].image + offset;
    return pointer;
}

EMU_ON_STACK static void call_give_way(emu_thread *self)
{
    emu_worker *w = self->worker;
    bool alone = !self->block->ready && self->block->started == self->block->thread_count;
    emu_push_ready(self);
    if (!alone) {
        emu_wait(self);
        return;
    }
    if (w->block_count > 1) { /* the other blocks' turn */
        w->gave_way = true;
        emu_switch(&self->stack_pointer, w->stack_pointer);
    } else {
        (void)emu_pop_ready(self->block);
    }
    if (++w->spins > MOST_SPINS) {
        emu_finding f = {0};
        snprintf(f.words, sizeof(f.words),
                 "a thread of block %u waits for memory that nobody changes: blocks of a launch that is not "
                 "cooperative may run one after another",
                 self->block_index[0]);
        emu_finding_add(w, &f);
        emu_stop(self);
    }
}

static void call_print(emu_thread *self, const char *words)
{
    const emu_launch *launch = self->worker->launch;
    if (launch->print) launch->print(launch->print_context, words);
}

EMU_ON_STACK static void call_stop(emu_thread *self, const char *words, const char *file, int line)
{
    text who = {0};
    emu_thread_words(self, &who);
    emu_finding f = {.at = {file, line}};
    snprintf(f.words, sizeof(f.words), "%s (%s)", words, text_get(&who));
    text_free(&who);
    emu_finding_add(self->worker, &f);
    emu_stop(self);
}

const emu_calls *emu_engine_calls(void)
{
    static const emu_calls calls = {.barrier = call_barrier,
                                    .warp = call_warp,
                                    .active = call_active,
                                    .together = call_together,
                                    .map = call_map,
                                    .give_way = call_give_way,
                                    .access = emu_check_access,
                                    .print = call_print,
                                    .stop = call_stop,
                                    .address = emu_call_address,
                                    .arrive = emu_call_arrive,
                                    .phase = emu_call_phase,
                                    .bulk_in = emu_call_bulk_in,
                                    .bulk_out = emu_call_bulk_out,
                                    .bulk_commit = emu_call_bulk_commit,
                                    .bulk_wait = emu_call_bulk_wait,
                                    .fence_async = emu_call_fence_async,
                                    .matrix = emu_call_matrix,
                                    .matrix_commit = emu_call_matrix_commit,
                                    .matrix_wait = emu_call_matrix_wait};
    return &calls;
}
