/*
 * String to pointer, open addressing with linear probing, grown at two thirds. Keys are borrowed, nothing is removed.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"

#include <string.h>

typedef struct slot {
    const char *key;
    void *value;
} slot;

struct map {
    arena *memory;
    slot *slots;
    int capacity, count;
};

static slot *find(slot *slots, int capacity, const char *key)
{
    uint64_t i = hash_bytes(key, strlen(key)).low;
    for (;; i++) {
        slot *s = &slots[i & (uint64_t)(capacity - 1)];
        if (!s->key || !strcmp(s->key, key)) return s;
    }
}

map *map_new(arena *a)
{
    map *m = ARENA_NEW(a, map);
    m->memory = a;
    m->capacity = 16;
    m->slots = ARENA_ARRAY(a, slot, m->capacity);
    return m;
}

void *map_get(const map *m, const char *key)
{
    return find(m->slots, m->capacity, key)->value;
}

void map_set(map *m, const char *key, void *value)
{
    if (m->count * 3 >= m->capacity * 2) {
        int capacity = m->capacity * 2;
        slot *slots = ARENA_ARRAY(m->memory, slot, capacity);
        for (int i = 0; i < m->capacity; i++)
            if (m->slots[i].key) *find(slots, capacity, m->slots[i].key) = m->slots[i];
        m->slots = slots;
        m->capacity = capacity;
    }
    slot *s = find(m->slots, m->capacity, key);
    if (!s->key) m->count++;
    s->key = key;
    s->value = value;
}

int map_count(const map *m)
{
    return m->count;
}
