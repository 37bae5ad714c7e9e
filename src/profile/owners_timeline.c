/*
 * Ranges and operations on the time of devices. In: parts of kernels with their owners. Out: slices that nest, one row
 * for each stream of a device and for each thread that runs kernels itself.
 *
 * The parts of a row are gone through in the order of time with the ranges they are in as a stack: what two neighbours
 * have in common goes on, the rest ends and begins. So a range that alternates with others is several slices.
 * SPDX-License-Identifier: MIT
 */
#include "profile/owners.h"

#include <stdlib.h>
#include <string.h>

typedef struct frame {
    const char *name;
    int64_t record;         /* of a range of the host; -1: of a captured step */
    const range_path *path; /* of a captured step */
} frame;

typedef struct timeline {
    const qn_profile *profile;
    const nesting *nesting;
    owned *parts; /* heap */
    int64_t part_count, part_capacity;
    owner_slice *slices; /* heap */
    int64_t count, capacity;
    int64_t *open; /* by depth: its slice */
    frame frames[RANGE_DEPTH];
    int depth;
    bool no_memory;
} timeline;

static void *with_room(timeline *t, void *items, size_t item_bytes, int64_t count, int64_t *capacity)
{
    if (count < *capacity) return items;
    int64_t wanted = *capacity ? 2 * *capacity : 1024;
    void *grown = realloc(items, item_bytes * (size_t)wanted);
    t->no_memory |= !grown;
    if (!grown) return items;
    *capacity = wanted;
    return grown;
}

static void take(void *user, const owned *o)
{
    timeline *t = user;
    t->parts = with_room(t, t->parts, sizeof(*t->parts), t->part_count, &t->part_capacity);
    if (t->part_count < t->part_capacity && (o->device >= 0 || o->host >= 0)) t->parts[t->part_count++] = *o;
}

/* What tells rows apart. */
static owner_slice row_of(const qn_profile *p, const owned *o)
{
    owner_slice s = {.on_host = o->device < 0};
    if (s.on_host) {
        s.thread = p->kept[o->host].thread;
    } else {
        s.device = p->device_kept[o->device].device;
        s.stream = p->device_kept[o->device].stream;
    }
    return s;
}

static int compare_rows(const owner_slice *a, const owner_slice *b)
{
    if (a->on_host != b->on_host) return a->on_host ? -1 : 1;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
    return a->thread < b->thread ? -1 : a->thread > b->thread;
}

/* Order by row and time: parts are sorted by number, for what qsort cannot be told. */
typedef struct key {
    owner_slice row;
    int64_t start_ns, part;
} key;

static int by_row_and_time(const void *a, const void *b)
{
    const key *x = a, *y = b;
    int rows = compare_rows(&x->row, &y->row);
    if (rows) return rows;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    return x->part < y->part ? -1 : x->part > y->part;
}

static int outer_first(const void *a, const void *b)
{
    const owner_slice *x = a, *y = b;
    int rows = compare_rows(x, y);
    if (rows) return rows;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    return x->depth < y->depth ? -1 : x->depth > y->depth;
}

/* The innermost RANGE_DEPTH - 1 ranges; there is an operation too. */
static int frames_of(const timeline *t, const owned *o, frame *frames)
{
    int count = 0;
    for (const range_path *at = o->path; at && count < RANGE_DEPTH; at = at->parent)
        frames[count++] = (frame){at->name, -1, at};
    for (int64_t at = o->range; at >= 0 && count < RANGE_DEPTH; at = t->nesting->parent[at])
        if (t->profile->kept[at].kind == RECORD_RANGE) frames[count++] = (frame){t->profile->kept[at].name, at, NULL};
    for (int a = 0, b = count - 1; a < b; a++, b--) {
        frame swap = frames[a];
        frames[a] = frames[b];
        frames[b] = swap;
    }
    return count;
}

static int64_t add_slice(timeline *t, owner_slice s)
{
    t->slices = with_room(t, t->slices, sizeof(*t->slices), t->count, &t->capacity);
    if (t->count == t->capacity) return -1;
    t->slices[t->count] = s;
    return t->count++;
}

static void add_part(timeline *t, const owned *o, owner_slice row, int64_t start_ns)
{
    frame frames[RANGE_DEPTH];
    int count = frames_of(t, o, frames), same = 0;
    while (same < count && same < t->depth && frames[same].name == t->frames[same].name &&
           frames[same].record == t->frames[same].record && frames[same].path == t->frames[same].path)
        same++;
    memcpy(t->frames, frames, sizeof(frame) * (size_t)count);
    t->depth = count;
    for (int i = 0; i < count; i++) {
        row.name = frames[i].name;
        row.start_ns = start_ns;
        row.end_ns = o->end_ns;
        row.depth = i;
        if (i >= same) t->open[i] = add_slice(t, row);
        if (t->open[i] >= 0) t->slices[t->open[i]].end_ns = o->end_ns;
    }
    if (!o->op || o->end_ns <= start_ns) return;
    row.name = o->op;
    row.kernel = o->kernel;
    row.estimate = o->shared;
    row.start_ns = start_ns;
    row.end_ns = o->end_ns;
    row.depth = count;
    add_slice(t, row);
}

static void go_through(timeline *t, const key *keys)
{
    int64_t until_ns = INT64_MIN;
    for (int64_t i = 0; i < t->part_count; i++) {
        if (!i || compare_rows(&keys[i].row, &keys[i - 1].row)) {
            until_ns = INT64_MIN;
            t->depth = 0;
        }
        const owned *o = &t->parts[keys[i].part];
        if (o->end_ns < until_ns) continue; /* beside another one, which is longer */
        add_part(t, o, keys[i].row, MAXIMUM(o->start_ns, until_ns));
        until_ns = o->end_ns;
    }
}

qn_status owners_timeline(const qn_profile *p, const nesting *n, owner_slice **out, int64_t *count, qn_error *error)
{
    timeline t = {.profile = p, .nesting = n};
    *out = NULL;
    *count = 0;
    QN_TRY(owners_visit(p, n, take, &t, error));
    key *keys = calloc((size_t)t.part_count + 1, sizeof(*keys));
    t.open = calloc(RANGE_DEPTH, sizeof(*t.open));
    t.no_memory |= !keys || !t.open;
    for (int64_t i = 0; i < t.part_count && !t.no_memory; i++)
        keys[i] = (key){row_of(p, &t.parts[i]), t.parts[i].start_ns, i};
    if (!t.no_memory) {
        if (t.part_count) qsort(keys, (size_t)t.part_count, sizeof(*keys), by_row_and_time);
        go_through(&t, keys);
        if (t.count) qsort(t.slices, (size_t)t.count, sizeof(*t.slices), outer_first);
    }
    heap_free(keys);
    heap_free(t.open);
    heap_free(t.parts);
    if (t.no_memory) {
        heap_free(t.slices);
        return error_set(error, QN_NO_MEMORY, "no memory for the ranges of a timeline");
    }
    *out = t.slices;
    *count = t.count;
    return QN_OK;
}
