/*
 * Copies of boxes between arrays and shared memory, by the copy engine that `emu` plays.
 *
 * In: a map, a place, a room. A copy in makes its room NaN when it is asked for and fills it when its phase ends; a copy
 * out reads its room when its thread waits. What lies outside the array is 0 on the way in and left out on the way out.
 * The checked mode tells of rooms that are touched meanwhile, and of writes that no fence separates from a copy.
 * SPDX-License-Identifier: MIT
 */
#include "device/emu/worker.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM_ALIGNMENT = 128 };

static uint32_t box_bytes(const emu_map *m)
{
    uint32_t bytes = m->elem_bytes;
    for (int i = 0; i < (m->windows ? 2 : m->rank); i++) bytes *= m->box[i];
    return bytes;
}

/* The place of a byte of a box: chunks of 16 bytes of a line are exchanged by the number of the line. */
static uint32_t swizzled(uint32_t address, int swizzle)
{
    uint32_t mask = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
    return address ^ ((address >> 7 & mask) << 4);
}

/* f32 as the copy engine rounds it on the way: 10 bits of mantissa, the nearest. */
static void round_element(char *room)
{
    uint32_t word;
    memcpy(&word, room, sizeof(word));
    if ((word & 0x7f800000u) != 0x7f800000u)
        word += 0xfff + (word >> 13 & 1);
    else if (word & 0x007fffffu)
        word |= 0x00400000u; /* stays NaN */
    word &= 0xffffe000u;
    memcpy(room, &word, sizeof(word));
}

/* Where line `number` of a copy of windows lies: places in order from where it begins, by steps, over lines and images. */
static bool find_window(const emu_map *m, const emu_copy *c, uint32_t number, char **from)
{
    int64_t rest = number;
    bool inside = true;
    for (int i = 1; i + 1 < m->rank; i++) {
        int64_t step = m->box[1 + i], count = (m->extents[i] + m->upper[i - 1] - m->lower[i - 1] + step - 1) / step;
        int64_t index = (c->place[i] - m->lower[i - 1]) / step + rest;
        int64_t at = m->lower[i - 1] + index % count * step + c->place[m->rank + i - 1];
        rest = index / count;
        inside &= at >= 0 && at < m->extents[i];
        *from += at * m->strides[i - 1];
    }
    int64_t image = c->place[m->rank - 1] + rest;
    *from += image * m->strides[m->rank - 2];
    return inside && image >= 0 && image < m->extents[m->rank - 1];
}

/* One box, in (out false) or out, a chunk of at most 16 bytes at a time. */
static void move_box(const emu_block *b, const emu_copy *c, bool out)
{
    const emu_map *m = &c->map;
    char *memory = emu_block_memory(b);
    uint32_t line_bytes = m->box[0] * m->elem_bytes, lines = c->size_bytes / line_bytes;
    for (uint32_t line = 0; line < lines; line++) {
        char *from = (char *)(uintptr_t)m->address; /* NOLINT(performance-no-int-to-ptr) */
        bool inside = true;
        uint32_t rest = line;
        if (m->windows) inside = find_window(m, c, line, &from);
        for (int i = 1; i < m->rank && !m->windows; i++) {
            int64_t at = (int64_t)c->place[i] + rest % m->box[i];
            rest /= m->box[i];
            inside &= at >= 0 && at < m->extents[i];
            from += at * m->strides[i - 1];
        }
        for (uint32_t e = 0; e < m->box[0]; e++) {
            int64_t at = (int64_t)c->place[0] + e;
            char *room = memory + swizzled(c->offset + line * line_bytes + e * m->elem_bytes, m->swizzle);
            bool there = inside && at >= 0 && at < m->extents[0];
            if (there && out) memcpy(from + at * m->elem_bytes, room, m->elem_bytes);
            if (there && !out) memcpy(room, from + at * m->elem_bytes, m->elem_bytes);
            if (!there && !out) memset(room, 0, m->elem_bytes);
            if (there && !out && m->rounds) round_element(room);
        }
    }
}

static bool overlaps(const emu_copy *c, uint32_t offset, size_t size_bytes)
{
    return offset < c->offset + c->size_bytes && c->offset < offset + size_bytes;
}

/* What was asked for, checked; a mistake ends the launch. */
EMU_ON_STACK static emu_copy asked(emu_thread *self, const void *map, const void *room, const int *place, int rank,
                                   emu_place at)
{
    emu_copy c = {.at = at, .thread = (uint16_t)self->number};
    memcpy(&c.map, map, sizeof(c.map));
    if (c.map.mark != EMU_MAP_MARK) emu_failed(self, at, true, "a copy of a box from a map that the host did not make");
    int wanted = c.map.windows ? 2 * c.map.rank - 2 : c.map.rank;
    if (wanted != rank) emu_failed(self, at, true, "a copy of a box of %d coordinates from a map of %d", rank, wanted);
    for (int i = 0; i < rank; i++) c.place[i] = place[i];
    c.offset = emu_call_address(self, room);
    c.size_bytes = box_bytes(&c.map);
    uint32_t alignment = c.map.swizzle == 128 ? 1024 : c.map.swizzle == 64 ? 512 : c.map.swizzle == 32 ? 256 : 0;
    if (alignment < ROOM_ALIGNMENT) alignment = ROOM_ALIGNMENT;
    if ((size_t)c.offset + c.size_bytes > self->worker->shared_size)
        emu_failed(self, at, true, "a copy of a box to or from what is not shared memory");
    if (c.offset % alignment)
        emu_failed(self, at, true, "a box of swizzle %d at byte %u of shared memory: no multiple of %u", c.map.swizzle,
                   c.offset, alignment);
    return c;
}

static bool push(emu_copy **list, int *count, int *capacity, const emu_copy *c)
{
    if (*count == *capacity) {
        int more = *capacity ? *capacity * 2 : 16;
        emu_copy *grown = realloc(*list, (size_t)more * sizeof(*grown));
        if (!grown) return false;
        *list = grown;
        *capacity = more;
    }
    (*list)[(*count)++] = *c;
    return true;
}

EMU_ON_STACK static void copy_in(emu_thread *self, emu_block *b, const emu_copy *c)
{
    emu_background *g = emu_background_of(b);
    if (self->worker->launch->checked) {
        int line = emu_matrix_reads(b, c->offset, c->size_bytes);
        if (line)
            emu_failed(self, c->at, false,
                       "too early: a copy into shared memory that the product on line %d, not awaited yet, reads",
                       line);
        for (int i = 0; i < g->out_count; i++)
            if (overlaps(&g->out[i], c->offset, c->size_bytes))
                emu_failed(self, c->at, false,
                           "too early: a copy into shared memory that a copy out still reads (line %d)",
                           g->out[i].at.line);
        for (int i = 0; i < g->in_count; i++)
            if (overlaps(&g->in[i], c->offset, c->size_bytes))
                emu_failed(self, c->at, false, "too early: a copy into shared memory that another copy still fills");
        emu_check_forget(b, c->offset, c->size_bytes);
    }
    memset(emu_block_memory(b) + c->offset, 0xff, c->size_bytes);
    CHECK(push(&g->in, &g->in_count, &g->in_capacity, c));
    emu_phase_asked(b, c->bar);
}

EMU_ON_STACK void emu_call_bulk_in(emu_thread *self, void *to, const void *map, void *bar, const int *place, int rank,
                                   uint32_t mask, const char *file, int line)
{
    emu_copy c = asked(self, map, to, place, rank, (emu_place){file, line});
    c.bar = emu_call_address(self, bar);
    if (!mask) {
        copy_in(self, self->block, &c);
        return;
    }
    for (int i = 0; i < self->worker->block_count; i++) {
        emu_block *b = &self->worker->blocks[i];
        if (b->cluster == self->block->cluster && mask >> b->cluster_rank & 1) copy_in(self, b, &c);
    }
}

void emu_bulk_land(emu_block *b, uint32_t bar)
{
    emu_background *g = b->background;
    int kept = 0;
    for (int i = 0; i < g->in_count; i++) {
        if (g->in[i].bar == bar)
            move_box(b, &g->in[i], false);
        else
            g->in[kept++] = g->in[i];
    }
    g->in_count = kept;
}

EMU_ON_STACK void emu_call_bulk_out(emu_thread *self, const void *map, const void *from, const int *place, int rank,
                                    const char *file, int line)
{
    emu_background *g = emu_background_of(self->block);
    emu_copy c = asked(self, map, from, place, rank, (emu_place){file, line});
    if (self->worker->launch->checked) emu_check_fenced(self, c.offset, c.size_bytes, "a copy", c.at);
    CHECK(push(&g->out, &g->out_count, &g->out_capacity, &c));
}

EMU_ON_STACK void emu_call_bulk_commit(emu_thread *self)
{
    emu_background *g = emu_background_of(self->block);
    uint32_t group = ++g->out_groups[self->number];
    for (int i = 0; i < g->out_count; i++)
        if (g->out[i].thread == self->number && !g->out[i].group) g->out[i].group = group;
}

void emu_bulk_finish(emu_thread *self, uint32_t last, const void *place)
{
    emu_background *g = self->block->background;
    int kept = 0;
    for (int i = 0; g && i < g->out_count; i++) {
        const emu_copy *c = &g->out[i];
        if (c->thread != self->number || (last && (!c->group || c->group > last))) {
            g->out[kept++] = *c;
            continue;
        }
        move_box(self->block, c, true);
        if (last) emu_check_waited(self, c->offset, c->size_bytes, place);
    }
    if (g) g->out_count = kept;
}

EMU_ON_STACK void emu_call_bulk_wait(emu_thread *self, int pending, const char *file, int line)
{
    const emu_background *g = emu_background_of(self->block);
    (void)file;
    (void)line;
    uint32_t groups = g->out_groups[self->number];
    if (groups > (uint32_t)pending) emu_bulk_finish(self, groups - (uint32_t)pending, __builtin_return_address(0));
}

EMU_ON_STACK void emu_bulk_check(emu_thread *self, uint32_t offset, size_t size_bytes, int kind, const void *place)
{
    const emu_background *g = self->block->background;
    const char *words = NULL;
    int line = 0;
    for (int i = 0; i < g->in_count && !words; i++)
        if (overlaps(&g->in[i], offset, size_bytes)) {
            words = kind & EMU_WRITE ? "too early: a write of shared memory that a copy still fills"
                                     : "too early: a read of shared memory that a copy still fills";
            line = g->in[i].at.line;
        }
    for (int i = 0; i < g->out_count && !words && kind & (EMU_WRITE | EMU_ATOMIC); i++)
        if (overlaps(&g->out[i], offset, size_bytes)) {
            words = "too early: a write of shared memory that a copy out still reads";
            line = g->out[i].at.line;
        }
    if (!words) return;
    emu_finding f = {.place = place};
    text who = {0};
    emu_thread_words(self, &who);
    snprintf(f.words, sizeof(f.words), "%s (asked for on line %d): byte %u by %s", words, line, offset, text_get(&who));
    text_free(&who);
    emu_finding_add(self->worker, &f);
}
