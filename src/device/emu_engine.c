/*
 * Blocks, warps and barriers of `emu`; emu_engine.h has the idea.
 *
 * A host thread (worker) runs one group of blocks after another: a block, a cluster, or a whole cooperative grid. Inside
 * a group it runs a block until every thread of it waits or is done, then the next one. A thread that must wait hands
 * over to the next ready thread of its block, else to one that has not started, else to the worker's own stack (run_group),
 * which goes to the next block, or sees that nobody can go on and says who waits where.
 * Invariants: a thread that waits is in no queue; a collective is completed by the last that arrives, which computes
 * everybody's result before anybody goes on; stacks go back to the worker when a thread is done.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/emu_engine.h"
#include "device/emu_switch.h"
#include "device/emu_worker.h"

#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STACKS_AT_ONCE 32
#define MOST_SPINS (1 << 16) /* of a thread that gives way with nobody to give way to, 1024 atomics each */

struct emu_engine {
    pthread_mutex_t lock; /* one launch at a time */
    pthread_mutex_t finding_lock;
    pool *pool;
    int threads;
    emu_worker *workers;
};

/* ---- stacks ---- */

static emu_thread *stack_thread(char *stack)
{
    return (emu_thread *)(stack + EMU_STACK_BYTES - EMU_THREAD_BYTES);
}

static bool stacks_add(emu_worker *w)
{
    size_t bytes = (STACKS_AT_ONCE + 1) * EMU_STACK_BYTES;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    emu_chunk *chunk = calloc(1, sizeof(*chunk));
    CHECK(chunk);
    *chunk = (emu_chunk){.next = w->chunks, .memory = memory, .size_bytes = bytes};
    w->chunks = chunk;
    char *first = (char *)(((uintptr_t)memory + EMU_STACK_BYTES - 1) & ~(uintptr_t)(EMU_STACK_BYTES - 1));
    for (int i = STACKS_AT_ONCE; i-- > 0;) {
        char *stack = first + (size_t)i * EMU_STACK_BYTES;
        (void)mprotect(stack, 4096, PROT_NONE); /* too deep a stack ends here, not in its neighbour */
        emu_thread *t = stack_thread(stack);
        t->next = w->free_stacks;
        w->free_stacks = t;
    }
    return true;
}

static void stacks_free(emu_worker *w)
{
    while (w->chunks) {
        emu_chunk *chunk = w->chunks;
        w->chunks = chunk->next;
        munmap(chunk->memory, chunk->size_bytes);
        free(chunk);
    }
    w->free_stacks = NULL;
}

/* ---- threads ---- */

static void push_ready(emu_thread *t)
{
    emu_block *b = t->block;
    t->state = EMU_READY;
    t->next = NULL;
    if (b->ready_last)
        b->ready_last->next = t;
    else
        b->ready = t;
    b->ready_last = t;
}

static emu_thread *pop_ready(emu_block *b)
{
    emu_thread *t = b->ready;
    if (!t) return NULL;
    b->ready = t->next;
    if (!b->ready) b->ready_last = NULL;
    return t;
}

static void thread_start(emu_thread *t, emu_block *b)
{
    uint32_t number = (uint32_t)b->started++;
    const uint32_t *size = b->worker->launch->block;
    *t = (emu_thread){.number = number, .lane = number % EMU_WARP, .worker = b->worker, .block = b};
    t->index[0] = number % size[0];
    t->index[1] = number / size[0] % size[1];
    t->index[2] = number / size[0] / size[1];
    memcpy(t->block_index, b->index, sizeof(t->block_index));
    memcpy(t->block_size, size, sizeof(t->block_size));
    memcpy(t->grid_size, b->worker->launch->grid, sizeof(t->grid_size));
    t->cluster_rank = (uint32_t)b->cluster_rank;
    t->cluster_size = (uint32_t)b->worker->launch->cluster_blocks;
    t->warp = &b->warps[number / EMU_WARP];
    b->threads[number] = t;
}

static void thread_end(emu_thread *self);

EMU_ON_STACK static void thread_run(void)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    emu_thread *self = stack_thread((char *)(here & ~(uintptr_t)(EMU_STACK_BYTES - 1)));
    emu_worker *w = self->worker;
    void *nowhere;
    for (;;) {
        w->launch->entry(w->launch->arguments);
        emu_block *b = self->block;
        thread_end(self);
        if (w->stopping || b->ready || b->started == b->thread_count) break;
        thread_start(self, b); /* the next one on the same stack */
    }
    emu_block *b = self->block;
    emu_thread *next = w->stopping ? NULL : pop_ready(b);
    self->next = w->free_stacks; /* nobody takes it before the switch */
    w->free_stacks = self;
    emu_switch(&nowhere, next ? next->stack_pointer : w->stack_pointer);
}

/* A stack with the block's next thread on it, or NULL: no memory. */
static emu_thread *thread_new(emu_block *b)
{
    emu_worker *w = b->worker;
    if (!w->free_stacks && !stacks_add(w)) return NULL;
    emu_thread *t = w->free_stacks;
    w->free_stacks = t->next;
    thread_start(t, b);
    /* The tops of stacks lie at different places of their pages, else they would all want the same lines of a cache. */
    char *top = (char *)t - (size_t)(t->number % 24) * 128;
    t->stack_pointer = emu_switch_prepare(top, thread_run);
    return t;
}

/* Leaves the running thread, whose state says what it waits for. */
EMU_ON_STACK static void wait(emu_thread *self)
{
    emu_worker *w = self->worker;
    emu_block *b = self->block;
    emu_thread *next = w->stopping ? NULL : pop_ready(b);
    if (next == self) return;
    if (!next && !w->stopping && b->started < b->thread_count) {
        next = thread_new(b);
        if (!next) w->no_memory = w->stopping = true;
    }
    emu_switch(&self->stack_pointer, next ? next->stack_pointer : w->stack_pointer);
}

/* ---- findings ---- */

void emu_finding_add(emu_worker *w, const emu_finding *found)
{
    emu_launch *launch = w->launch;
    pthread_mutex_lock(&w->engine->finding_lock);
    emu_finding *same = NULL;
    for (int i = 0; i < launch->finding_count && !same; i++) {
        emu_finding *f = &launch->findings[i];
        if (f->place == found->place && f->other == found->other && f->at.line == found->at.line &&
            !strncmp(f->words, found->words, 16))
            same = f;
    }
    if (same) {
        same->times++;
    } else if (launch->finding_count < EMU_MAX_FINDINGS) {
        launch->findings[launch->finding_count] = *found;
        launch->findings[launch->finding_count++].times = 1;
    }
    pthread_mutex_unlock(&w->engine->finding_lock);
}

EMU_ON_STACK void emu_stop(emu_thread *self)
{
    emu_worker *w = self->worker;
    w->launch->stopped = w->stopping = true;
    emu_switch(&self->stack_pointer, w->stack_pointer);
}

void emu_thread_words(const emu_thread *t, text *out)
{
    const uint32_t *size = t->block_size, *grid = t->grid_size;
    text_print(out, "thread %u", t->index[0]);
    if (size[1] > 1 || size[2] > 1) text_print(out, ", %u", t->index[1]);
    if (size[2] > 1) text_print(out, ", %u", t->index[2]);
    text_print(out, " of block %u", t->block_index[0]);
    if (grid[1] > 1 || grid[2] > 1) text_print(out, ", %u", t->block_index[1]);
    if (grid[2] > 1) text_print(out, ", %u", t->block_index[2]);
}

static const char *file_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "?";
}

static void place_words(const emu_thread *t, text *out)
{
    static const char *const waits[] = {
        [EMU_READY] = "runs",
        [EMU_AT_WARP] = "waits for the lanes of its warp",
        [EMU_AT_BARRIER] = "waits for its block",
        [EMU_AT_CLUSTER] = "waits for its cluster",
        [EMU_AT_GRID] = "waits for the grid",
        [EMU_DONE] = "has ended",
    };
    emu_thread_words(t, out);
    text_print(out, " %s", waits[t->state]);
    if (t->state != EMU_DONE) text_print(out, " (%s:%d)", file_name(t->place.file), t->place.line);
}

/* Nobody can go on: one thread that waits, and one that is elsewhere. */
static void report_stuck(emu_worker *w)
{
    const emu_thread *waiting = NULL, *other = NULL;
    int ended = 0, of_block = 0;
    for (int i = 0; i < w->block_count; i++) {
        emu_block *b = &w->blocks[i];
        for (int n = 0; n < b->thread_count; n++) {
            const emu_thread *t = b->threads[n];
            if (t && t->state != EMU_DONE && !waiting) waiting = t;
        }
    }
    CHECK(waiting);
    const emu_block *b = waiting->block;
    for (int n = 0; n < b->thread_count; n++) {
        const emu_thread *t = b->threads[n];
        of_block++;
        if (!t) {
            ended++;
            continue;
        }
        bool same = t->state == waiting->state && t->place.line == waiting->place.line && t->mask == waiting->mask;
        if (!same && !other) other = t;
    }
    for (int i = 0; i < w->block_count && !other; i++)
        for (int n = 0; n < w->blocks[i].thread_count && !other; n++) {
            const emu_thread *t = w->blocks[i].threads[n];
            if (t && (t->state != waiting->state || t->place.line != waiting->place.line)) other = t;
        }
    text words = {0};
    text_add(&words, "barrier divergence: ");
    place_words(waiting, &words);
    if (other) {
        text_add(&words, "; ");
        place_words(other, &words);
    }
    if (ended) text_print(&words, "; %d of the block's %d threads have ended", ended, of_block);
    emu_finding f = {.at = waiting->place};
    snprintf(f.words, sizeof(f.words), "%s", text_get(&words));
    text_free(&words);
    emu_finding_add(w, &f);
    w->launch->stopped = true;
}

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
        emu_thread *t = b->threads[n];
        if (!t || t->state != EMU_AT_BARRIER || t->barrier != number) continue;
        t->result = (uint64_t)sum;
        push_ready(t);
    }
}

static void barrier_places(emu_thread *self, emu_barrier *at)
{
    if (!at->arrived) {
        at->first = self->place;
        at->first_thread = self->number;
    } else if (self->worker->launch->checked && at->first.line != self->place.line) {
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
    barrier_places(self, at);
    at->arrived++;
    at->expected = count;
    at->sum += value != 0;
    self->barrier = number;
    self->state = EMU_AT_BARRIER;
    if (at->arrived >= (count ? count : b->live))
        barrier_open(b, at, number); /* also this thread: it waits for its turn */
    wait(self);
    return (int)self->result;
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
    for (int i = 0; i < w->block_count; i++) {
        emu_block *b = &w->blocks[i];
        if (!grid && b->cluster != cluster) continue;
        b->waiting[grid] = 0;
        b->epoch = ++w->epochs;
        for (int n = 0; n < b->thread_count; n++)
            if (b->threads[n] && b->threads[n]->state == state) push_ready(b->threads[n]);
    }
}

EMU_ON_STACK static void call_together(emu_thread *self, int grid, const char *file, int line)
{
    self->place = (emu_place){file, line};
    self->state = grid ? EMU_AT_GRID : EMU_AT_CLUSTER;
    self->block->waiting[grid]++;
    together_check(self->worker, self->block->cluster, grid);
    wait(self);
}

static void thread_end(emu_thread *self)
{
    emu_block *b = self->block;
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
        case EMU_SHUFFLE:
            t->result = mask >> (t->argument & 31) & 1 ? lanes[t->argument & 31]->value : t->value;
            break;
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
             self->lane, self->mask, other->lane, other->mask, file_name(other->place.file), other->place.line);
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
        for (int l = 0; l < lanes_there; l++)
            if (mask >> l & 1 && lanes[l] != self) push_ready(lanes[l]);
        self->state = EMU_READY;
        return self->result;
    }
    wait(self);
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
    push_ready(self);
    if (!alone) {
        wait(self);
        return;
    }
    if (w->block_count > 1) { /* the other blocks' turn */
        w->gave_way = true;
        emu_switch(&self->stack_pointer, w->stack_pointer);
    } else {
        (void)pop_ready(self->block);
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
                                    .stop = call_stop};
    return &calls;
}

/* ---- groups of blocks ---- */

typedef struct segment_search {
    uintptr_t address;
    char *data;
    size_t size_bytes;
} segment_search;

static int find_shared(struct dl_phdr_info *info, size_t size, void *context)
{
    segment_search *s = context;
    (void)size;
    bool ours = false;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t first = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD) ours |= s->address >= first && s->address < first + p->p_memsz;
        if (p->p_type == PT_TLS) bytes = p->p_memsz;
    }
    if (!ours) return 0;
    s->data = info->dlpi_tls_data;
    s->size_bytes = s->data ? bytes : 0;
    return 1;
}

/* The pieces of this host thread's shared memory that the launch may use: all of it but unused dynamic memory. */
static void find_pieces(emu_worker *w)
{
    const emu_launch *launch = w->launch;
    launch->touch();
    segment_search s = {.address = (uintptr_t)launch->library_address};
    dl_iterate_phdr(find_shared, &s);
    w->shared = s.data;
    w->shared_size = s.size_bytes;
    char *end = s.data + s.size_bytes, *dynamic = launch->dynamic ? launch->dynamic() : NULL;
    w->dynamic = dynamic;
    w->piece_count = 0;
    if (!dynamic) {
        w->pieces[w->piece_count++] = (emu_piece){s.data, s.size_bytes};
        return;
    }
    w->pieces[w->piece_count++] = (emu_piece){s.data, (size_t)(dynamic - s.data)};
    w->pieces[w->piece_count++] = (emu_piece){dynamic, launch->shared_bytes};
    if (dynamic + EMU_DYNAMIC_BYTES < end)
        w->pieces[w->piece_count++] =
            (emu_piece){dynamic + EMU_DYNAMIC_BYTES, (size_t)(end - dynamic) - EMU_DYNAMIC_BYTES};
}

/* Shared memory holds anything at first: NaN shows it. */
static void shared_spoil(emu_worker *w, char *base)
{
    for (int i = 0; i < w->piece_count; i++)
        memset(base + (w->pieces[i].data - w->shared), 0xff, w->pieces[i].size_bytes);
}

static void shared_copy(emu_worker *w, char *to, const char *from)
{
    for (int i = 0; i < w->piece_count; i++) {
        size_t offset = (size_t)(w->pieces[i].data - w->shared);
        memcpy(to + offset, from + offset, w->pieces[i].size_bytes);
    }
}

static void block_enter(emu_worker *w, emu_block *b)
{
    if (w->inside == b) return;
    if (w->inside && w->inside->image) shared_copy(w, w->inside->image, w->shared);
    if (b->image) shared_copy(w, w->shared, b->image);
    w->inside = b;
}

static bool block_prepare(emu_worker *w, emu_block *b, int64_t number, bool alone)
{
    const emu_launch *launch = w->launch;
    emu_warp *warps = b->warps;
    uint32_t *together = b->together;
    emu_shadow *shadow = b->shadow;
    char *image = b->image;
    *b = (emu_block){.worker = w, .warps = warps, .together = together, .shadow = shadow, .image = image};
    const uint32_t *grid = launch->grid;
    b->index[0] = (uint32_t)(number % grid[0]);
    b->index[1] = (uint32_t)(number / grid[0] % grid[1]);
    b->index[2] = (uint32_t)(number / grid[0] / grid[1]);
    b->cluster = (int)(number / launch->cluster_blocks);
    b->cluster_rank = (int)(number % launch->cluster_blocks);
    b->thread_count = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
    b->live = b->thread_count;
    b->epoch = ++w->epochs;
    int warp_count = (b->thread_count + EMU_WARP - 1) / EMU_WARP;
    if (!b->warps) b->warps = calloc(EMU_MAX_THREADS / EMU_WARP, sizeof(emu_warp));
    if (!b->warps) return false;
    if (launch->checked && !b->together)
        b->together = calloc(EMU_MAX_THREADS / EMU_WARP, EMU_WARP * EMU_WARP * sizeof(uint32_t));
    if (launch->checked && !b->shadow) b->shadow = emu_shadow_new(w->shared_size);
    if (launch->checked && (!b->together || !b->shadow)) return false;
    for (int i = 0; i < warp_count; i++) {
        b->warps[i].waiting = 0;
        b->warps[i].together = launch->checked ? b->together + (size_t)i * EMU_WARP * EMU_WARP : NULL;
    }
    if (alone) {
        shared_spoil(w, w->shared);
        return true;
    }
    if (!b->image) b->image = malloc(w->shared_size + 1);
    if (!b->image) return false;
    shared_spoil(w, b->image);
    return true;
}

/* Blocks first .. first+count-1 live at once. */
static void run_group(emu_worker *w, int64_t first, int count)
{
    w->inside = NULL;
    w->block_count = count;
    for (int i = 0; i < count; i++)
        if (!block_prepare(w, &w->blocks[i], first + i, count == 1)) w->no_memory = w->stopping = true;
    for (bool alive = true; alive && !w->stopping;) {
        bool moved = false;
        alive = false;
        for (int i = 0; i < count && !w->stopping; i++) {
            emu_block *b = &w->blocks[i];
            while ((b->ready || b->started < b->thread_count) && !w->stopping) {
                block_enter(w, b);
                emu_thread *t = pop_ready(b);
                if (!t) t = thread_new(b);
                if (!t) {
                    w->no_memory = w->stopping = true;
                    break;
                }
                moved = true;
                emu_switch(&w->stack_pointer, t->stack_pointer);
                if (w->gave_way) break;
            }
            w->gave_way = false;
            alive |= b->live > 0;
        }
        if (alive && !moved && !w->stopping) {
            report_stuck(w);
            w->stopping = true;
        }
    }
}

static void blocks_free(emu_worker *w)
{
    for (int i = 0; i < w->block_capacity; i++) {
        free(w->blocks[i].warps);
        free(w->blocks[i].together);
        free(w->blocks[i].image);
        emu_shadow_free(w->blocks[i].shadow);
    }
    free(w->blocks);
    w->blocks = NULL;
    w->block_capacity = 0;
}

typedef struct job {
    emu_engine *engine;
    emu_launch *launch;
    int group_blocks;
    _Atomic bool no_memory;
} job;

static void work(void *context, int64_t first, int64_t last, int number)
{
    job *j = context;
    emu_worker *w = &j->engine->workers[number];
    w->engine = j->engine;
    w->launch = j->launch;
    w->stopping = w->no_memory = false;
    w->spins = 0;
    find_pieces(w);
    /* Images, shadows and blocks have the size of this launch's shared memory. */
    if (w->block_capacity < j->group_blocks || w->blocks_shared_size != w->shared_size) {
        blocks_free(w);
        w->blocks = calloc((size_t)j->group_blocks, sizeof(emu_block));
        w->block_capacity = w->blocks ? j->group_blocks : 0;
        w->blocks_shared_size = w->shared_size;
        if (!w->blocks) w->no_memory = true;
    }
    for (int64_t g = first; g < last && !w->no_memory && !w->stopping && !j->launch->stopped; g++)
        run_group(w, g * j->group_blocks, j->group_blocks);
    if (w->stopping) stacks_free(w); /* threads were left in the middle: their stacks are nobody's */
    if (w->no_memory) j->no_memory = true;
}

qn_status emu_engine_run(emu_engine *e, emu_launch *launch, qn_error *error)
{
    int64_t blocks = (int64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    int64_t threads = (int64_t)launch->block[0] * launch->block[1] * launch->block[2];
    if (threads > EMU_MAX_THREADS)
        return error_set(error, QN_BAD_CALL, "a block of %u x %u x %u = %lld threads: a block has at most %d threads",
                         launch->block[0], launch->block[1], launch->block[2], (long long)threads, EMU_MAX_THREADS);
    if (launch->shared_bytes > EMU_DYNAMIC_BYTES)
        return error_set(error, QN_BAD_CALL, "%llu bytes of shared memory: a block has at most %d",
                         (unsigned long long)launch->shared_bytes, EMU_DYNAMIC_BYTES);
    if (!blocks || !threads) return QN_OK;
    if (launch->cluster_blocks < 1) launch->cluster_blocks = 1;
    if (blocks % launch->cluster_blocks)
        return error_set(error, QN_BAD_CALL, "%lld blocks are not whole clusters of %d", (long long)blocks,
                         launch->cluster_blocks);
    pthread_mutex_lock(&e->lock);
    if (!e->pool) {
        e->pool = pool_new(e->threads);
        e->workers = calloc((size_t)e->threads, sizeof(emu_worker));
        CHECK(e->pool && e->workers);
    }
    job j = {.engine = e, .launch = launch, .group_blocks = launch->cooperative ? (int)blocks : launch->cluster_blocks};
    int64_t groups = blocks / j.group_blocks;
    /* Small launches are not worth waking anybody. */
    pool_run(e->pool, groups, blocks * threads < 4096 ? groups : 1, work, &j);
    pthread_mutex_unlock(&e->lock);
    if (j.no_memory)
        return error_set(error, QN_NO_MEMORY, "no memory for the stacks of %lld threads that live at once",
                         (long long)(threads * j.group_blocks));
    return QN_OK;
}

emu_engine *emu_engine_new(int threads)
{
    emu_engine *e = calloc(1, sizeof(*e));
    CHECK(e);
    e->threads = MAXIMUM(threads, 1);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->finding_lock, NULL);
    return e;
}

void emu_engine_free(emu_engine *e)
{
    if (!e) return;
    for (int i = 0; e->workers && i < e->threads; i++) {
        stacks_free(&e->workers[i]);
        blocks_free(&e->workers[i]);
    }
    free(e->workers);
    pool_free(e->pool);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->finding_lock);
    free(e);
}
