/*
 * CUDA threads as coroutines: their stacks, which thread runs next, and the words for who waits where.
 *
 * In: a block whose threads have not all started. Out: each of them runs until it waits or ends. Stacks come from the
 * worker in chunks, aligned to their size, and go back to it when a thread is done; a thread that ends hands its stack
 * to the block's next one without a switch. Invariant: a thread that waits is in no queue.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/emu/switch.h"
#include "device/emu/worker.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STACKS_AT_ONCE 32
#define GUARDED_CHUNKS 256

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
    emu_chunk *chunk = heap_new(sizeof(*chunk));
    *chunk = (emu_chunk){.next = w->chunks, .memory = memory, .size_bytes = bytes};
    w->chunks = chunk;
    w->chunk_count++;
    char *first = (char *)(((uintptr_t)memory + EMU_STACK_BYTES - 1) & ~(uintptr_t)(EMU_STACK_BYTES - 1));
    for (int i = STACKS_AT_ONCE; i-- > 0;) {
        char *stack = first + (size_t)i * EMU_STACK_BYTES;
        /* Too deep a stack ends here, not in its neighbour; but the system counts such pieces, and has a limit. */
        if (w->chunk_count < GUARDED_CHUNKS) (void)mprotect(stack, 4096, PROT_NONE);
        emu_thread *t = stack_thread(stack);
        t->next = w->free_stacks;
        w->free_stacks = t;
    }
    return true;
}

void emu_stacks_free(emu_worker *w)
{
    while (w->chunks) {
        emu_chunk *chunk = w->chunks;
        w->chunks = chunk->next;
        munmap(chunk->memory, chunk->size_bytes);
        heap_free(chunk);
    }
    w->free_stacks = NULL;
    w->chunk_count = 0;
}

/* ---- threads ---- */

void emu_push_ready(emu_thread *t)
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

emu_thread *emu_pop_ready(emu_block *b)
{
    emu_thread *t = b->ready, *before = NULL;
    emu_order order = b->worker->launch->order;
    if (!t) return NULL;
    if (order >= EMU_LOWEST_FIRST)
        for (emu_thread *at = t; at->next; at = at->next)
            if (order == EMU_LOWEST_FIRST ? at->next->number < t->number : at->next->number > t->number)
                before = at, t = at->next;
    *(before ? &before->next : &b->ready) = t->next;
    if (!t->next) b->ready_last = before;
    return t;
}

static void thread_start(emu_thread *t, emu_block *b)
{
    uint32_t number = emu_turn(b, b->started++, b->thread_count);
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

EMU_ON_STACK static void thread_run(void)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    emu_thread *self = stack_thread((char *)(here & ~(uintptr_t)(EMU_STACK_BYTES - 1)));
    emu_worker *w = self->worker;
    void *nowhere;
    for (;;) {
        w->launch->entry(w->launch->arguments);
        emu_block *b = self->block;
        emu_thread_end(self);
        if (w->stopping || b->ready || b->started == b->thread_count) break;
        thread_start(self, b); /* the next one on the same stack */
    }
    emu_block *b = self->block;
    emu_thread *next = w->stopping ? NULL : emu_pop_ready(b);
    self->next = w->free_stacks; /* nobody takes it before the switch */
    w->free_stacks = self;
    emu_switch(&nowhere, next ? next->stack_pointer : w->stack_pointer);
}

/* A stack with the block's next thread on it, or NULL: no memory. */
emu_thread *emu_thread_new(emu_block *b)
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
EMU_ON_STACK void emu_wait(emu_thread *self)
{
    emu_worker *w = self->worker;
    emu_block *b = self->block;
    emu_thread *next = w->stopping ? NULL : emu_pop_ready(b);
    if (next == self) return;
    if (!next && !w->stopping && b->started < b->thread_count) {
        next = emu_thread_new(b);
        if (!next) w->no_memory = w->stopping = true;
    }
    emu_switch(&self->stack_pointer, next ? next->stack_pointer : w->stack_pointer);
}

/* ---- who waits where ---- */

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

const char *emu_file_name(const char *path)
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
        [EMU_AT_PHASE] = "waits for a phase",
        [EMU_AT_MATRIX] = "waits for a product that other warps have not asked for",
        [EMU_DONE] = "has ended",
    };
    emu_thread_words(t, out);
    text_print(out, " %s", waits[t->state]);
    if (t->state != EMU_DONE) text_print(out, " (%s:%d)", emu_file_name(t->place.file), t->place.line);
}

/* Some thread waits for a phase: all places where somebody waits, with how many do. */
static bool report_phases(emu_worker *w)
{
    enum { MOST_PLACES = 8 };
    const emu_thread *first[MOST_PLACES];
    int counts[MOST_PLACES] = {0}, places = 0;
    bool phases = false;
    for (int i = 0; i < w->block_count; i++) {
        const emu_block *b = &w->blocks[i];
        for (int n = 0; n < b->thread_count; n++) {
            const emu_thread *t = b->threads[n];
            if (!t || t->state == EMU_DONE) continue;
            phases |= t->state == EMU_AT_PHASE;
            int at = 0;
            while (at < places && (first[at]->state != t->state || first[at]->place.line != t->place.line ||
                                   first[at]->phase_offset != t->phase_offset))
                at++;
            if (at == MOST_PLACES) continue;
            if (at == places) first[places++] = t;
            counts[at]++;
        }
    }
    if (!phases) return false;
    text words = {0};
    text_add(&words, "nobody can go on: ");
    for (int i = 0; i < places; i++) {
        if (i) text_add(&words, "; ");
        place_words(first[i], &words);
        if (first[i]->state == EMU_AT_PHASE) text_print(&words, " at byte %u", first[i]->phase_offset);
        if (counts[i] > 1) text_print(&words, " with %d others", counts[i] - 1);
    }
    emu_finding f = {.at = first[0]->place};
    snprintf(f.words, sizeof(f.words), "%s", text_get(&words));
    text_free(&words);
    emu_finding_add(w, &f);
    w->launch->stopped = true;
    return true;
}

/* Nobody can go on: one thread that waits, and one that is elsewhere. */
void emu_report_stuck(emu_worker *w)
{
    if (report_phases(w)) return;
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
    if (!waiting) return; /* never: cppcheck does not see that CHECK ends */
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
