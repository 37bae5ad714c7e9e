/*
 * Stacks of open ranges, one a thread, and interned paths of names.
 * Numbers: the thread's own in the upper bits, a count below, so that a push needs nobody else's memory.
 * SPDX-License-Identifier: MIT
 */
#include "base/range.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local range_open ranges[RANGE_DEPTH];
static _Thread_local int range_count; /* may be more than there is room for */
static _Thread_local uint64_t numbers;
static _Atomic uint64_t threads;

void range_push(const char *name)
{
    const char *words = name ? name : "";
    record_mark(words);
    if (range_count < RANGE_DEPTH) {
        range_open *r = &ranges[range_count];
        if (!numbers) numbers = (atomic_fetch_add(&threads, 1) + 1) << 40;
        r->number = ++numbers;
        r->from = record_begin();
        r->recorded = record_is_on() ? record_name(words) : NULL;
        size_t length = strnlen(words, RANGE_WORDS - 1);
        memcpy(r->name, words, length);
        r->name[length] = 0;
    }
    range_count++;
}

void range_pop(void)
{
    if (range_count <= 0) return;
    record_mark(NULL);
    if (--range_count >= RANGE_DEPTH) return;
    const range_open *r = &ranges[range_count];
    record_end(r->from, RECORD_RANGE, r->recorded, NULL, 0, (int64_t)r->number, 0);
}

bool range_push_once(const char *name)
{
    if (range_count > 0 && range_count <= RANGE_DEPTH && !strcmp(ranges[range_count - 1].name, name)) return false;
    range_push(name);
    return true;
}

uint64_t range_now(void)
{
    return range_count ? ranges[MINIMUM(range_count, RANGE_DEPTH) - 1].number : 0;
}

const range_open *range_stack(int *count)
{
    *count = MINIMUM(range_count, RANGE_DEPTH);
    return ranges;
}

/* ---- paths ---- */

typedef struct path_entry {
    range_path path;
    struct path_entry *next;
} path_entry;

static struct {
    pthread_mutex_t lock;
    path_entry *chains[256];
} paths = {.lock = PTHREAD_MUTEX_INITIALIZER};

const range_path *range_path_keep(const range_path *parent, const char *name)
{
    name = record_name(name);
    uint64_t hash = ((uint64_t)(uintptr_t)parent * 31 + (uint64_t)(uintptr_t)name) * 0x9e3779b97f4a7c15u;
    path_entry **chain = &paths.chains[hash >> 56];
    lock_take(&paths.lock);
    path_entry *e = *chain;
    while (e && (e->path.parent != parent || e->path.name != name)) e = e->next;
    if (!e && (e = malloc(sizeof(*e)))) {
        *e = (path_entry){{parent, name}, *chain};
        *chain = e;
    }
    lock_give(&paths.lock);
    return e ? &e->path : NULL;
}
