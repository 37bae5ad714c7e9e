/*
 * Records as trees. In: kept records, each thread's in the order of their ends, with their depths. Out: parents, own
 * times, device time and memory of each with what is nested in it.
 *
 * A record's parent ends after it, so records wait by depth until one of a lesser depth comes. One that began before
 * that one did has lost its parent (a full ring, a step that was thrown away) and is in nothing.
 * SPDX-License-Identifier: MIT
 */
#include "profile/nesting.h"

#include <stdlib.h>
#include <string.h>

void nesting_free(nesting *n)
{
    heap_free(n->parent);
    heap_free(n->self_ns);
    heap_free(n->device_self_ns);
    heap_free(n->device_total_ns);
    heap_free(n->memory_bytes);
    heap_free(n->host);
    *n = (nesting){0};
}

typedef struct waiting {
    int64_t first[MOST_DEPTH + 2]; /* by depth: records without a parent, plus 1; 0: none */
    int deepest;
} waiting;

static void find_parents(const qn_profile *p, nesting *n, waiting *threads, int64_t *next)
{
    for (int64_t i = 0; i < n->count; i++) {
        const record *r = &p->kept[i];
        waiting *w = &threads[r->thread];
        int depth = MINIMUM(r->depth, MOST_DEPTH);
        n->parent[i] = -1;
        bool span = r->end_ns > r->start_ns && r->kind != RECORD_STEP;
        for (int d = depth + 1; span && d <= w->deepest; d++) {
            for (int64_t child = w->first[d]; child; child = next[child - 1])
                if (p->kept[child - 1].start_ns >= r->start_ns) n->parent[child - 1] = i;
            w->first[d] = 0;
        }
        if (span && w->deepest > depth) w->deepest = depth;
        next[i] = w->first[depth];
        w->first[depth] = i + 1;
        w->deepest = MAXIMUM(w->deepest, depth);
    }
}

/* Parents come after their children. */
static void add_times(const qn_profile *p, nesting *n)
{
    for (int64_t i = 0; i < n->count; i++) {
        const record *r = &p->kept[i];
        int64_t time_ns = r->end_ns - r->start_ns, up = n->parent[i];
        n->self_ns[i] += time_ns;
        if (r->kind == RECORD_KERNEL) n->device_self_ns[i] += time_ns;
        n->device_total_ns[i] += n->device_self_ns[i];
        if (r->kind == RECORD_ALLOCATE) n->memory_bytes[i] += r->a;
        if (r->kind == RECORD_FREE) n->memory_bytes[i] -= r->a;
        if (up < 0) continue;
        int64_t around = up; /* a worker's share of a job is the own time of who asked for it */
        while (around >= 0 && p->kept[around].kind == RECORD_WORK) around = n->parent[around];
        if (r->kind != RECORD_WORK && around >= 0) n->self_ns[around] -= time_ns;
        if (r->kind != RECORD_WORK && around != up) n->self_ns[up] -= time_ns;
        n->device_total_ns[up] += n->device_total_ns[i];
        n->memory_bytes[up] += n->memory_bytes[i];
    }
}

/* Identities to records: open addressing, entries plus 1. */
static void find_hosts(const qn_profile *p, nesting *n, int64_t *table, uint64_t mask)
{
    for (int64_t i = 0; i < n->count; i++) {
        const record *r = &p->kept[i];
        if (!r->identity || (r->kind != RECORD_LAUNCH && r->kind != RECORD_COPY)) continue;
        uint64_t at = r->identity * 0x9e3779b97f4a7c15u & mask;
        while (table[at]) at = (at + 1) & mask;
        table[at] = i + 1;
    }
    for (int64_t i = 0; i < n->device_count; i++) {
        const device_record *d = &p->device_kept[i];
        uint64_t at = d->identity * 0x9e3779b97f4a7c15u & mask;
        n->host[i] = -1;
        while (d->identity && table[at] && p->kept[table[at] - 1].identity != d->identity) at = (at + 1) & mask;
        if (!d->identity || !table[at]) continue;
        n->host[i] = table[at] - 1;
        n->device_self_ns[n->host[i]] += d->end_ns - d->start_ns;
    }
}

qn_status nesting_make(const qn_profile *p, nesting *out, qn_error *error)
{
    nesting n = {.count = p->kept_count, .device_count = p->device_count};
    size_t bytes = sizeof(int64_t) * ((size_t)n.count + 1), thread_count = 1;
    uint64_t size = 1024;
    while (size < 2 * (uint64_t)n.count) size *= 2;
    for (int64_t i = 0; i < n.count; i++) thread_count = MAXIMUM(thread_count, p->kept[i].thread + (size_t)1);
    waiting *threads = calloc(thread_count, sizeof(*threads));
    int64_t *next = malloc(bytes), *table = p->device_count ? calloc(size, sizeof(*table)) : NULL;
    n.parent = malloc(bytes);
    n.self_ns = calloc(1, bytes);
    n.device_self_ns = calloc(1, bytes);
    n.device_total_ns = calloc(1, bytes);
    n.memory_bytes = calloc(1, bytes);
    n.host = malloc(sizeof(int64_t) * ((size_t)n.device_count + 1));
    bool good = threads && next && (table || !p->device_count) && n.parent && n.self_ns && n.device_self_ns &&
                n.device_total_ns && n.memory_bytes && n.host;
    if (good) {
        find_parents(p, &n, threads, next);
        if (table) find_hosts(p, &n, table, size - 1);
        add_times(p, &n);
    }
    heap_free(threads);
    heap_free(next);
    heap_free(table);
    if (!good) {
        nesting_free(&n);
        return error_set(error, QN_NO_MEMORY, "no memory to nest %lld records", (long long)p->kept_count);
    }
    *out = n;
    return QN_OK;
}
