/*
 * Things by hash: numbers of what the caller keeps, and on top of that string to pointer. Open addressing with linear probing,
 * grown at two thirds. What follows a removed entry moves up, so a search never meets a hole. Keys of maps are borrowed.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"

#include <string.h>

typedef struct hash_entry {
    uint64_t hash;
    int number; /* from 1; 0: free */
} hash_entry;

static void put(hash_index *h, hash_entry e)
{
    unsigned mask = (unsigned)h->capacity - 1, at = (unsigned)e.hash & mask;
    while (h->entries[at].number) at = (at + 1) & mask;
    h->entries[at] = e;
}

void hash_index_add(hash_index *h, uint64_t hash, int number)
{
    if (h->count * 3 >= h->capacity * 2) {
        const hash_entry *old = h->entries;
        int capacity = h->capacity, more = capacity ? capacity * 2 : 16;
        h->entries = ARENA_ARRAY(h->memory, hash_entry, more); /* without memory for it the old ones stay (heap_try) */
        h->capacity = more;
        for (int i = 0; i < capacity; i++)
            if (old[i].number) put(h, old[i]);
    }
    h->count++;
    put(h, (hash_entry){hash, number + 1});
}

int hash_index_next(const hash_index *h, uint64_t hash, int *at)
{
    unsigned mask = (unsigned)h->capacity - 1;
    while (h->capacity) {
        const hash_entry *e = &h->entries[((unsigned)hash + (unsigned)(*at)++) & mask];
        if (!e->number) break;
        if (e->hash == hash) return e->number - 1;
    }
    return -1;
}

void hash_index_remove(hash_index *h, uint64_t hash, int number)
{
    unsigned mask = (unsigned)h->capacity - 1, hole = (unsigned)hash & mask;
    while (h->entries[hole].number != number + 1) {
        CHECK(h->entries[hole].number);
        hole = (hole + 1) & mask;
    }
    h->count--;
    for (unsigned at = hole;;) {
        at = (at + 1) & mask;
        const hash_entry *e = &h->entries[at];
        if (!e->number) break;
        unsigned home = (unsigned)e->hash & mask;
        if (((at - home) & mask) < ((at - hole) & mask)) continue; /* it begins behind the hole */
        h->entries[hole] = *e;
        hole = at;
    }
    h->entries[hole] = (hash_entry){0};
}

void hash_index_clear(hash_index *h)
{
    if (h->capacity) memset(h->entries, 0, sizeof(hash_entry) * (size_t)h->capacity);
    h->count = 0;
}

typedef struct pair {
    const char *key;
    void *value;
} pair;

struct map {
    hash_index index;
    pair *pairs;
    int count, capacity;
};

map *map_new(arena *a)
{
    map *m = ARENA_NEW(a, map);
    m->index.memory = a;
    return m;
}

static pair *find(const map *m, const char *key, uint64_t hash)
{
    for (int at = 0, i; (i = hash_index_next(&m->index, hash, &at)) >= 0;)
        if (!strcmp(m->pairs[i].key, key)) return &m->pairs[i];
    return NULL;
}

static uint64_t hash_of(const char *key)
{
    return hash_bytes(key, strlen(key)).low;
}

void *map_get(const map *m, const char *key)
{
    const pair *p = find(m, key, hash_of(key));
    return p ? p->value : NULL;
}

void map_set(map *m, const char *key, void *value)
{
    uint64_t hash = hash_of(key);
    pair *p = find(m, key, hash), new = {key, value};
    if (p) {
        *p = new;
        return;
    }
    hash_index_add(&m->index, hash, m->count);
    ARENA_PUSH(m->index.memory, m->pairs, m->count, m->capacity, new);
}

int map_count(const map *m)
{
    return m->count;
}
