/*
 * Counted phases of `emu`, and what a block has in the background.
 *
 * A phase is a word of shared memory: how many must arrive, how many still have to, the bytes announced, its parity, and
 * a mark of phase_init. It ends when all have arrived and the copies asked for carry the bytes announced; that is seen
 * when somebody waits for it, or arrives at the next one: so copies land as late as the hardware may let them.
 * In: a thread that inits, arrives, announces or waits. Out: the threads that waited are ready.
 * SPDX-License-Identifier: MIT
 */
#include "device/emu/worker.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define PHASE_MARK 0x5au

typedef struct phase { /* 8 bytes of shared memory */
    uint16_t count, pending;
    uint32_t bytes : 23, mark : 8, parity : 1;
} phase;
_Static_assert(sizeof(phase) == 8, "a phase is 8 bytes");

EMU_ON_STACK void emu_failed(emu_thread *self, emu_place at, bool stop, const char *format, ...)
{
    emu_finding f = {.at = at};
    text words = {0};
    va_list list;
    va_start(list, format);
    plain_print_list(f.words, sizeof(f.words) - 100, format, list);
    va_end(list);
    text_print(&words, " (");
    emu_thread_words(self, &words);
    text_add(&words, ")");
    size_t length = strlen(f.words);
    snprintf(f.words + length, sizeof(f.words) - length, "%s", text_get(&words));
    text_free(&words);
    emu_finding_add(self->worker, &f);
    if (stop) emu_stop(self);
}

/* ---- what a block has in the background ---- */

char *emu_block_memory(const emu_block *b)
{
    return b->image && b->worker->inside != b ? b->image : b->worker->shared;
}

emu_background *emu_background_of(emu_block *b)
{
    if (!b->background) b->background = calloc(1, sizeof(*b->background));
    CHECK(b->background);
    return b->background;
}

bool emu_background_reset(emu_block *b, bool free_all)
{
    emu_background *g = b->background;
    if (!g) return false;
    for (int t = 0; t < EMU_MAX_THREADS; t++) {
        emu_products *p = &g->products[t];
        for (int i = 0; i < p->count; i++) {
            heap_free(p->list[i].saved);
            heap_free(p->list[i].result);
        }
        p->count = 0;
        p->groups = 0;
        p->fenced = false;
        if (free_all) heap_free(p->list);
    }
    g->in_count = g->out_count = 0;
    memset(g->out_groups, 0, sizeof(g->out_groups));
    memset(g->fences, 0, sizeof(g->fences));
    g->unready = false;
    if (!free_all) return true;
    heap_free(g->in);
    heap_free(g->out);
    heap_free(g);
    b->background = NULL;
    return true;
}

EMU_ON_STACK void emu_background_end(emu_thread *self)
{
    const emu_background *g = self->block->background;
    bool checked = self->worker->launch->checked;
    for (int i = 0; i < g->out_count; i++)
        if (g->out[i].thread == self->number && checked) {
            emu_failed(self, g->out[i].at, false,
                       "no wait: a thread ends with a copy out of shared memory that it has not waited for");
            break;
        }
    const emu_products *p = &g->products[self->number];
    if (p->count && checked)
        emu_failed(self, (emu_place){p->list[0].call.file, p->list[0].call.line}, false,
                   "no wait: a thread ends with a product that it has not waited for");
    emu_bulk_finish(self, 0, NULL);
}

EMU_ON_STACK uint32_t emu_call_address(emu_thread *self, const void *pointer)
{
    return (uint32_t)((const char *)pointer - self->worker->shared);
}

EMU_ON_STACK void emu_call_fence_async(emu_thread *self)
{
    emu_background_of(self->block)->fences[self->number]++;
}

/* ---- phases ---- */

/* The block that the address is shared memory of, and its offset there; NULL: none. */
static emu_block *find_block(emu_thread *self, const void *address, uint32_t *offset)
{
    emu_worker *w = self->worker;
    size_t own = (size_t)((const char *)address - w->shared);
    if (own < w->shared_size) {
        *offset = (uint32_t)own;
        return self->block;
    }
    for (int i = 0; i < w->block_count; i++) {
        size_t in = (size_t)((const char *)address - w->blocks[i].image);
        if (!w->blocks[i].image || in >= w->shared_size) continue;
        *offset = (uint32_t)in;
        return &w->blocks[i];
    }
    return NULL;
}

static phase *phase_at(const emu_block *b, uint32_t bar)
{
    return (phase *)(void *)(emu_block_memory(b) + bar);
}

bool emu_phase_is_ready(emu_block *b, uint32_t bar)
{
    const phase *p = phase_at(b, bar);
    uint64_t asked = 0;
    const emu_background *g = b->background;
    for (int i = 0; g && i < g->in_count; i++)
        if (g->in[i].bar == bar) asked += g->in[i].size_bytes;
    return !p->pending && asked == p->bytes;
}

static void phase_end(emu_block *b, uint32_t bar)
{
    phase *p = phase_at(b, bar);
    if (p->bytes) emu_bulk_land(b, bar);
    p->pending = p->count;
    p->bytes = 0;
    p->parity ^= 1;
    /* What was done before it is done for those who waited. */
    b->epoch = ++b->worker->epochs;
    emu_worker *w = b->worker;
    for (int i = 0; i < w->block_count; i++)
        for (int n = 0; n < w->blocks[i].thread_count; n++) {
            emu_thread *t = w->blocks[i].threads[emu_turn(b, n, w->blocks[i].thread_count)];
            if (t && t->state == EMU_AT_PHASE && t->phase_block == (uint32_t)b->number && t->phase_offset == bar &&
                t->argument != p->parity)
                emu_push_ready(t);
        }
}

static bool has_waiter(const emu_block *b, uint32_t bar)
{
    const emu_worker *w = b->worker;
    for (int i = 0; i < w->block_count; i++)
        for (int n = 0; n < w->blocks[i].thread_count; n++) {
            const emu_thread *t = w->blocks[i].threads[n];
            if (t && t->state == EMU_AT_PHASE && t->phase_block == (uint32_t)b->number && t->phase_offset == bar)
                return true;
        }
    return false;
}

void emu_phase_asked(emu_block *b, uint32_t bar)
{
    if (has_waiter(b, bar) && emu_phase_is_ready(b, bar)) phase_end(b, bar);
}

EMU_ON_STACK void emu_call_phase(emu_thread *self, void *bar, int what, int number, const char *file, int line)
{
    uint32_t offset = 0;
    emu_place at = {file, line};
    if (what == EMU_PHASE_READY) {
        emu_background_of(self->block)->unready = false;
        return;
    }
    emu_block *b = find_block(self, bar, &offset);
    if (!b || offset % sizeof(phase)) {
        emu_failed(self, at, true, "a phase is not 8 aligned bytes of shared memory");
        return;
    }
    (void)emu_background_of(b);
    phase *p = phase_at(b, offset);
    if (what == EMU_PHASE_INIT) {
        *p = (phase){.count = (uint16_t)number, .pending = (uint16_t)number, .mark = PHASE_MARK};
        b->background->unready = true;
        return;
    }
    if (b->background->unready && self->worker->launch->checked) {
        b->background->unready = false; /* once is enough */
        emu_failed(self, at, false, "no fence: phases_ready() stands between phase_init and the first use of a phase");
    }
    if (p->mark != PHASE_MARK) emu_failed(self, at, true, "a phase is used before phase_init");
    if (what != EMU_PHASE_WAIT) {
        if (!p->pending && emu_phase_is_ready(b, offset)) phase_end(b, offset); /* nobody has looked yet */
        if (!p->pending)
            emu_failed(self, at, true, "more threads arrive at a phase than the %u that it was made for", p->count);
        p->pending--;
        if (what == EMU_PHASE_EXPECT) p->bytes += (uint32_t)number;
        emu_phase_asked(b, offset);
        return;
    }
    if (p->parity == (unsigned)(number & 1) && emu_phase_is_ready(b, offset)) phase_end(b, offset);
    if (p->parity != (unsigned)(number & 1)) return;
    self->place = at;
    self->state = EMU_AT_PHASE;
    self->phase_block = (uint32_t)b->number;
    self->phase_offset = offset;
    self->argument = (uint64_t)(number & 1);
    emu_wait(self);
}
