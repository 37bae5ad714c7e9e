/*
 * Memory over time. In: records of allocations and frees. Out: how much was alive after each, the peak of each kind of
 * memory, and what was alive then. Memory that was allocated before the profile began is not seen, nor is its end.
 * SPDX-License-Identifier: MIT
 */
#include "profile/nesting.h"
#include "profile/profile.h"

#include <quern/profile.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is alive ---- */

static uint64_t hash_of(int64_t address)
{
    uint64_t x = (uint64_t)address * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

/* The block of this address, or the free one where it would be. */
static memory_block *find(const memory_book *b, int64_t address, const char *place)
{
    uint64_t mask = (uint64_t)b->capacity - 1, at = hash_of(address) & mask;
    while (b->table[at].place && (b->table[at].address != address || b->table[at].place != place)) at = (at + 1) & mask;
    return &b->table[at];
}

static bool grow(memory_book *b)
{
    memory_book larger = {.capacity = b->capacity ? 2 * b->capacity : 256};
    larger.table = calloc((size_t)larger.capacity, sizeof(memory_block));
    if (!larger.table) return false;
    for (int64_t i = 0; i < b->capacity; i++)
        if (b->table[i].place) *find(&larger, b->table[i].address, b->table[i].place) = b->table[i];
    heap_free(b->table);
    b->table = larger.table;
    b->capacity = larger.capacity;
    return true;
}

/* What stands behind it in its run moves up, so that runs have no gaps. */
static void take_out(memory_book *b, memory_block *gone)
{
    uint64_t mask = (uint64_t)b->capacity - 1, hole = (uint64_t)(gone - b->table);
    for (uint64_t at = (hole + 1) & mask; b->table[at].place; at = (at + 1) & mask) {
        uint64_t home = hash_of(b->table[at].address) & mask;
        if (((at - home) & mask) < ((at - hole) & mask)) continue;
        b->table[hole] = b->table[at];
        hole = at;
    }
    b->table[hole] = (memory_block){0};
    b->used--;
}

static int place_of(memory_book *b, const char *name)
{
    int i = 0;
    while (i < b->place_count && b->places[i].name != name) i++;
    if (i == MOST_PLACES) return -1;
    if (i == b->place_count) {
        b->places[b->place_count].name = name;
        b->place_count++;
    }
    return i;
}

int64_t memory_book_add(memory_book *b, const record *r, int64_t number, int *place)
{
    *place = place_of(b, r->name);
    if (*place < 0) return 0;
    if (r->kind == RECORD_ALLOCATE) {
        if (2 * (b->used + 1) > b->capacity && !grow(b)) return 0;
        memory_block *at = find(b, r->b, r->name);
        if (at->place) return 0; /* its end was not seen: it is counted already */
        *at = (memory_block){.address = r->b, .bytes = r->a, .record = number, .place = r->name};
        b->used++;
        b->places[*place].bytes += r->a;
        b->places[*place].peak_bytes = MAXIMUM(b->places[*place].peak_bytes, b->places[*place].bytes);
        return r->a;
    }
    memory_block *at = b->capacity ? find(b, r->b, r->name) : NULL;
    if (!at || !at->place) return 0;
    int64_t bytes = at->bytes;
    take_out(b, at);
    b->places[*place].bytes -= bytes;
    return -bytes;
}

void memory_book_free(memory_book *b)
{
    heap_free(b->table);
    *b = (memory_book){0};
}

/* ---- over time ---- */

static int by_time(const void *a, const void *b)
{
    const record *x = *(const record *const *)a, *y = *(const record *const *)b;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int larger_first(const void *a, const void *b)
{
    const memory_block *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->record < y->record ? -1 : x->record > y->record;
}

void memory_timelines_free(memory_timeline *timelines, int count)
{
    for (int i = 0; i < count; i++) {
        heap_free(timelines[i].points);
        heap_free(timelines[i].alive);
    }
}

/* Alive in the place, now. */
static bool take_alive(const memory_book *b, memory_timeline *t)
{
    memory_block *blocks = malloc(sizeof(*blocks) * ((size_t)b->used + 1));
    int64_t count = 0;
    t->alive = malloc(sizeof(int64_t) * ((size_t)b->used + 1));
    if (blocks && t->alive) {
        for (int64_t i = 0; i < b->capacity; i++)
            if (b->table[i].place == t->place) blocks[count++] = b->table[i];
        qsort(blocks, (size_t)count, sizeof(*blocks), larger_first);
        for (int64_t i = 0; i < count; i++) t->alive[i] = blocks[i].record;
        t->alive_count = count;
    }
    heap_free(blocks);
    return blocks && t->alive;
}

/* Once to find the peaks, once more to see what was alive then. */
static bool follow(const qn_profile *p, const record *const *sorted, int64_t count, memory_timeline *out, int *places)
{
    int64_t peak_at[MOST_PLACES] = {0};
    bool good = true;
    for (int pass = 0; pass < 2 && good; pass++) {
        memory_book book = {0};
        for (int64_t i = 0; i < count && good; i++) {
            int place;
            int64_t change = memory_book_add(&book, sorted[i], sorted[i] - p->kept, &place);
            if (!change) continue;
            memory_timeline *t = &out[place];
            int64_t bytes = book.places[place].bytes;
            if (pass) {
                if (peak_at[place] == i) good = take_alive(&book, t);
                continue;
            }
            if (!t->points) {
                *t =
                    (memory_timeline){.place = sorted[i]->name, .points = malloc(sizeof(memory_point) * (size_t)count)};
                *places = MAXIMUM(*places, place + 1);
                good = t->points;
                if (!good) break;
            }
            t->points[t->count++] = (memory_point){sorted[i]->start_ns, bytes};
            if (bytes <= t->peak_bytes) continue;
            t->peak_bytes = bytes;
            t->peak_ns = sorted[i]->start_ns;
            peak_at[place] = i;
        }
        memory_book_free(&book);
    }
    return good;
}

qn_status memory_timelines_make(const qn_profile *p, memory_timeline *out, int *count, qn_error *error)
{
    int64_t records = 0;
    memset(out, 0, sizeof(*out) * MOST_PLACES);
    *count = 0;
    for (int64_t i = 0; i < p->kept_count; i++)
        records += p->kept[i].kind == RECORD_ALLOCATE || p->kept[i].kind == RECORD_FREE;
    const record **sorted = malloc(sizeof(*sorted) * ((size_t)records + 1));
    bool good = sorted;
    if (good) {
        records = 0;
        for (int64_t i = 0; i < p->kept_count; i++)
            if (p->kept[i].kind == RECORD_ALLOCATE || p->kept[i].kind == RECORD_FREE) sorted[records++] = &p->kept[i];
        qsort(sorted, (size_t)records, sizeof(*sorted), by_time);
        good = follow(p, sorted, records, out, count);
    }
    heap_free(sorted);
    if (good) return QN_OK;
    memory_timelines_free(out, *count);
    *count = 0;
    return error_set(error, QN_NO_MEMORY, "no memory to follow %lld allocations", (long long)records);
}

/* ---- in words ---- */

/* "train > eval": the spans that were open. */
static void add_path(const qn_profile *p, const nesting *n, int64_t at, text *out)
{
    if (n->parent[at] < 0) return;
    add_path(p, n, n->parent[at], out);
    if (n->parent[n->parent[at]] >= 0) text_add(out, " > ");
    text_add(out, p->kept[n->parent[at]].name);
}

static void print_timeline(const qn_profile *p, const nesting *n, const memory_timeline *t, text *out)
{
    enum { SHOWN = 20 };
    table rows;
    text cell = {0};
    text_print(out, "%s: at most ", t->place);
    text_add_size(out, (double)t->peak_bytes);
    text_print(out, ", %.3f ms after the start; %lld allocations were alive then\n",
               (double)(t->peak_ns - p->start_ns) * 1e-6, (long long)t->alive_count);
    table_open(&rows, 4);
    rows.left[0] = false;
    rows.left[3] = true;
    table_cell(&rows, "size");
    table_cell(&rows, "share");
    table_cell(&rows, "allocated");
    table_cell(&rows, "in");
    for (int64_t i = 0; i < MINIMUM(t->alive_count, SHOWN); i++) {
        const record *r = &p->kept[t->alive[i]];
        text_clear(&cell);
        text_add_size(&cell, (double)r->a);
        table_cell(&rows, "%s", text_get(&cell));
        table_cell(&rows, "%.1f %%", 100 * (double)r->a / (double)t->peak_bytes);
        table_cell(&rows, "%.3f ms", (double)(r->start_ns - p->start_ns) * 1e-6);
        text_clear(&cell);
        add_path(p, n, t->alive[i], &cell);
        table_cell(&rows, "%s", text_get(&cell));
    }
    table_print(&rows, false, out);
    table_close(&rows);
    text_free(&cell);
    if (t->alive_count > SHOWN) text_print(out, "and %lld smaller ones\n", (long long)(t->alive_count - SHOWN));
}

qn_status qn_profile_memory(const qn_profile *profile, qn_write *write, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    if (!profile || !write) return error_set(error, QN_BAD_CALL, "qn_profile_memory: an argument is NULL");
    qn_profile *p = (qn_profile *)profile;
    memory_timeline timelines[MOST_PLACES];
    int count = 0;
    nesting n = {0};
    text out = {0};
    lock_take(&p->lock);
    qn_status status = nesting_make(p, &n, error);
    if (status == QN_OK) status = memory_timelines_make(p, timelines, &count, error);
    if (status == QN_OK && !count) text_add(&out, "nothing was allocated while the profile ran\n");
    for (int i = 0; i < count; i++) print_timeline(p, &n, &timelines[i], &out);
    lock_give(&p->lock);
    if (status == QN_OK) write(user, text_get(&out), out.length);
    memory_timelines_free(timelines, count);
    nesting_free(&n);
    text_free(&out);
    return status;
}
