/*
 * The checked mode of `emu`: every load, store and atomic of the text comes through emu_check_access before it happens.
 *
 * In: a thread, an address, a size. Out: findings. Shared memory has a shadow, a cell a byte; an array has one, a cell an
 * element: the last writer, the last atomic and two readers, each with the barrier interval (epoch) and the warp's time
 * it happened in. Two accesses of one cell by two threads of a group (the blocks that live together: a team, or several)
 * race when one of them writes, not both are atomic, no barrier of the block, or of the cluster or grid where they are
 * of two blocks, lies between them, and, inside a warp, no __syncwarp of both. What the order of execution happened to
 * be does not matter.
 * Other addresses must lie in an array of the kernel or in memory that belongs to the launch; an access that does not
 * ends the launch before it is made.
 * SPDX-License-Identifier: MIT
 */
#include "device/emu/worker.h"

#include <stdlib.h>
#include <string.h>

typedef struct mark { /* one access */
    const void *place;
    uint32_t epoch, time;   /* epoch: of the block */
    uint32_t together;      /* barriers of all blocks of the group so far */
    uint32_t fences;        /* of the thread, between what it writes and the copy engine */
    uint16_t thread, block; /* block: its number in the group */
} mark;

typedef struct cell {
    mark write, atomic, reads[2];
} cell;

struct emu_shadow {
    size_t count;
    cell cells[];
};

emu_shadow *emu_shadow_new(size_t count)
{
    if (count > (SIZE_MAX >> 8) / sizeof(cell)) return NULL;
    emu_shadow *s = calloc(1, sizeof(*s) + count * sizeof(cell));
    if (s) s->count = count;
    return s;
}

void emu_shadow_free(emu_shadow *s)
{
    heap_free(s);
}

static const char *kind_words(int kind)
{
    return kind & EMU_ATOMIC ? "atomic" : kind & EMU_WRITE ? "write" : "read";
}

/* Did the earlier access happen before this one for sure? Of another group of blocks nothing is said: its programs are
 * others, which `ref` watches. */
static inline bool is_ordered(const emu_thread *self, const mark *earlier)
{
    const emu_block *b = self->block;
    if (earlier->block != b->number) return earlier->together != b->worker->together;
    if (earlier->epoch != b->epoch || earlier->thread == self->number) return true;
    if (earlier->thread / EMU_WARP != self->number / EMU_WARP) return false;
    return self->warp->together[(earlier->thread % EMU_WARP) * EMU_WARP + self->lane] > earlier->time;
}

typedef struct touched { /* what a shadow is of */
    emu_shadow *shadow;
    const char *memory, *name; /* name: of an array, or NULL */
    size_t first, count;       /* cells */
    int cell_bytes;
} touched;

EMU_ON_STACK static void report_race(emu_thread *self, const touched *t, const mark *earlier, const char *earlier_kind,
                                     size_t cell, int kind, const void *place)
{
    emu_finding f = {.place = place, .other = earlier->place};
    text words = {0};
    text_print(&words, "%s-memory race: %s of byte %zu%s%s%s by ", t->memory, kind_words(kind),
               cell * (size_t)t->cell_bytes, t->name ? " of `" : "", t->name ? t->name : "", t->name ? "`" : "");
    emu_thread_words(self, &words);
    text_print(&words, ", and %s of it by thread number %u", earlier_kind, earlier->thread);
    if (earlier->block != self->block->number) text_add(&words, " of another block of its team");
    text_add(&words, " with no barrier between");
    snprintf(f.words, sizeof(f.words), "%s", text_get(&words));
    text_free(&words);
    emu_finding_add(self->worker, &f);
}

static mark mark_now(const emu_thread *self, const void *place)
{
    return (mark){.place = place,
                  .epoch = self->block->epoch,
                  .time = self->warp->time,
                  .together = self->worker->together,
                  .fences = self->block->background ? self->block->background->fences[self->number] : 0,
                  .thread = (uint16_t)self->number,
                  .block = (uint16_t)self->block->number};
}

EMU_ON_STACK static void check_races(emu_thread *self, const touched *t, int kind, const void *place)
{
    mark now = mark_now(self, place);
    bool told = false;
    for (size_t i = t->first; i < t->first + t->count && i < t->shadow->count; i++) {
        cell *c = &t->shadow->cells[i];
        const mark *earlier = NULL; /* an access that this one races with */
        const char *was = "read";
        if (!is_ordered(self, &c->write)) {
            earlier = &c->write;
            was = "write";
        } else if (!(kind & EMU_ATOMIC) && !is_ordered(self, &c->atomic)) {
            earlier = &c->atomic;
            was = "atomic";
        } else if (kind != EMU_READ && !is_ordered(self, &c->reads[0])) {
            earlier = &c->reads[0];
        } else if (kind != EMU_READ && !is_ordered(self, &c->reads[1])) {
            earlier = &c->reads[1];
        }
        if (earlier && !told) report_race(self, t, earlier, was, i, kind, place);
        told |= earlier != NULL;
        if (kind & EMU_ATOMIC)
            c->atomic = now;
        else if (kind & EMU_WRITE)
            c->write = now;
        else /* who may not come before an earlier reader stands for both */
            c->reads[!is_ordered(self, &c->reads[0])] = now;
    }
}

EMU_ON_STACK void emu_check_fenced(emu_thread *self, uint32_t offset, uint32_t size_bytes, const char *what,
                                   emu_place at)
{
    const emu_block *b = self->block;
    for (size_t i = offset; b->shadow && i < (size_t)offset + size_bytes && i < b->shadow->count; i++) {
        const mark *write = &b->shadow->cells[i].write;
        if (write->epoch < b->first_epoch || write->fences != b->background->fences[write->thread]) continue;
        emu_finding f = {.at = at, .other = write->place};
        text who = {0};
        emu_thread_words(self, &who);
        snprintf(f.words, sizeof(f.words),
                 "no fence: %s that %s asks for reads byte %zu of shared memory, which thread number %u wrote with no "
                 "fence_async since",
                 what, text_get(&who), i, write->thread);
        text_free(&who);
        emu_finding_add(self->worker, &f);
        return;
    }
}

void emu_check_waited(emu_thread *self, uint32_t offset, uint32_t size_bytes, const void *place)
{
    const emu_block *b = self->block;
    mark now = mark_now(self, place);
    for (size_t i = offset; b->shadow && i < (size_t)offset + size_bytes && i < b->shadow->count; i++) {
        cell *c = &b->shadow->cells[i];
        c->reads[!is_ordered(self, &c->reads[0])] = now;
    }
}

void emu_check_forget(emu_block *b, uint32_t offset, uint32_t size_bytes)
{
    for (size_t i = offset; b->shadow && i < (size_t)offset + size_bytes && i < b->shadow->count; i++)
        b->shadow->cells[i] = (cell){0};
}

/* Memory that the threads of a team share beyond their block. */
EMU_ON_STACK static void check_range(emu_thread *self, int number, uintptr_t address, size_t size_bytes, int kind,
                                     const void *place)
{
    emu_worker *w = self->worker;
    const emu_range *r = &w->launch->ranges[number];
    if (r->kind == EMU_RANGE_SYNC && kind & EMU_ATOMIC) w->together++; /* blocks that wait for each other by hand */
    if (r->kind != EMU_RANGE_WATCHED) return;
    emu_shadow **shadow = &w->range_shadows[number];
    size_t cell_bytes = (size_t)r->elem_bytes, offset = address - r->first;
    if (!*shadow && !w->range_tried[number]) *shadow = emu_shadow_new((r->end - r->first) / cell_bytes + 1);
    w->range_tried[number] = true;
    if (!*shadow) return; /* too large to be watched */
    touched t = {.shadow = *shadow,
                 .memory = "global",
                 .name = r->name,
                 .first = offset / cell_bytes,
                 .count = (offset + size_bytes - 1) / cell_bytes - offset / cell_bytes + 1,
                 .cell_bytes = r->elem_bytes};
    check_races(self, &t, kind, place);
}

/* The array or shared memory that the address is nearest to. */
EMU_ON_STACK static void report_outside(emu_thread *self, uintptr_t address, size_t size_bytes, int kind,
                                        const void *place)
{
    const emu_worker *w = self->worker;
    const emu_launch *launch = w->launch;
    emu_finding f = {.place = place};
    text words = {0}, who = {0};
    emu_thread_words(self, &who);
    uintptr_t best = UINTPTR_MAX;
    const emu_range *near = NULL;
    for (int i = 0; i < launch->range_count; i++) {
        const emu_range *r = &launch->ranges[i];
        if (!r->name) continue;
        uintptr_t away = address >= r->end ? address - r->end : address < r->first ? r->first - address : 0;
        if (away < best) {
            best = away;
            near = r;
        }
    }
    size_t offset = (size_t)(address - (uintptr_t)w->shared);
    bool in_dynamic = w->dynamic && offset < w->shared_size;
    text_print(&words, "out of bounds: %s of %zu bytes by %s", kind_words(kind), size_bytes, text_get(&who));
    if (in_dynamic)
        text_print(&words, ", at byte %lld of %zu bytes of dynamic shared memory",
                   (long long)(address - (uintptr_t)w->dynamic), launch->shared_bytes);
    else if (w->shared_size > 1 && address - (uintptr_t)w->shared + 4096 < w->shared_size + 8192)
        text_print(&words, ", outside shared memory");
    else if (near && best < (uintptr_t)1 << 30)
        text_print(&words, ", %llu bytes %s of `%s` (%llu bytes)", (unsigned long long)best,
                   address >= near->end ? "after the end" : "before the start", near->name,
                   (unsigned long long)(near->end - near->first));
    else
        text_print(&words, ", at %#llx, which is in no array", (unsigned long long)address);
    snprintf(f.words, sizeof(f.words), "%s", text_get(&words));
    text_free(&words);
    text_free(&who);
    emu_finding_add(self->worker, &f);
    emu_stop(self);
}

EMU_ON_STACK static void report_range(emu_thread *self, const emu_range *r, uintptr_t address, size_t size_bytes,
                                      int kind, const void *place)
{
    emu_finding f = {.place = place};
    text who = {0};
    emu_thread_words(self, &who);
    if (size_bytes && address % size_bytes)
        snprintf(f.words, sizeof(f.words), "misaligned: %s of %zu bytes by %s at an address that is no multiple of it",
                 kind_words(kind), size_bytes, text_get(&who));
    else
        snprintf(f.words, sizeof(f.words), "write of the input `%s` by %s", r->name, text_get(&who));
    text_free(&who);
    emu_finding_add(self->worker, &f);
}

static const emu_range *find_range(emu_worker *w, uintptr_t address, size_t size_bytes)
{
    const emu_launch *launch = w->launch;
    for (int i = 0; i < launch->range_count; i++) {
        int n = (i + w->last_range) % launch->range_count;
        const emu_range *r = &launch->ranges[n];
        if (address < r->first || address + size_bytes > r->end) continue;
        w->last_range = n;
        return r;
    }
    return NULL;
}

/* Shared memory of another block of the cluster. */
static emu_block *find_neighbour(emu_worker *w, uintptr_t address, size_t size_bytes)
{
    for (int i = 0; i < w->block_count; i++) {
        uintptr_t first = (uintptr_t)w->blocks[i].image;
        if (first && address >= first && address + size_bytes <= first + w->shared_size) return &w->blocks[i];
    }
    return NULL;
}

/* What the lanes of its warp have shown each other. */
static bool is_gathered(const emu_thread *self, uintptr_t address, size_t size_bytes)
{
    uintptr_t first = (uintptr_t)self->warp->gathered;
    return address >= first && address + size_bytes <= first + sizeof(self->warp->gathered);
}

EMU_ON_STACK void emu_check_access(emu_thread *self, const void *pointer, size_t size_bytes, int kind,
                                   const void *place)
{
    emu_worker *w = self->worker;
    uintptr_t address = (uintptr_t)pointer;
    size_t offset = (size_t)(address - (uintptr_t)w->shared);
    if (offset < w->shared_size) {
        for (int i = 0; i < w->piece_count; i++) {
            uintptr_t first = (uintptr_t)w->pieces[i].data;
            if (address < first || address + size_bytes > first + w->pieces[i].size_bytes) continue;
            if (size_bytes <= 16 && address % size_bytes) report_range(self, NULL, address, size_bytes, kind, place);
            touched t = {.shadow = self->block->shadow,
                         .memory = "shared",
                         .first = offset,
                         .count = size_bytes,
                         .cell_bytes = 1};
            check_races(self, &t, kind, place);
            if (self->block->background) emu_bulk_check(self, (uint32_t)offset, size_bytes, kind, place);
            return;
        }
        report_outside(self, address, size_bytes, kind, place);
        return;
    }
    const emu_range *r = find_range(w, address, size_bytes);
    if (r) {
        bool misaligned = size_bytes <= 16 && size_bytes && address % size_bytes;
        if (misaligned || (r->read_only && kind != EMU_READ)) report_range(self, r, address, size_bytes, kind, place);
        if (size_bytes) check_range(self, (int)(r - w->launch->ranges), address, size_bytes, kind, place);
    } else if (!find_neighbour(w, address, size_bytes) && !is_gathered(self, address, size_bytes)) {
        report_outside(self, address, size_bytes, kind, place);
    }
}
