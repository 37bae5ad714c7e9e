/*
 * Stacks for flame graphs. In: kept records. Out: a line for each stack that was seen, with the nanoseconds that its
 * last frame took for itself: "main;train;eval;softmax 1234". Time of the host stands under its threads; time on a
 * device that is not the host stands under the device, with the ranges and the operation that called for it.
 *
 * Stacks are kept as a tree: a frame is its parent and a name. Parents end after what is in them, so the records are
 * gone through from the last.
 * SPDX-License-Identifier: MIT
 */
#include "profile/owners.h"
#include "profile/sink.h"

#include <stdlib.h>
#include <string.h>

typedef struct frame {
    int parent; /* -1: a root */
    const char *name;
    int64_t own_ns;
    int next; /* of its chain; -1: none */
} frame;

typedef struct stacks {
    arena *memory;
    frame *frames;
    int count, capacity;
    int chains[4096];
} stacks;

static int frame_of(stacks *s, int parent, const char *name)
{
    uint64_t hash = ((uint64_t)(uintptr_t)name ^ (uint64_t)(parent + 1) << 40) * 0x9e3779b97f4a7c15u;
    int *chain = &s->chains[hash >> 52];
    for (int i = *chain; i >= 0; i = s->frames[i].next)
        if (s->frames[i].parent == parent && s->frames[i].name == name) return i;
    frame fresh = {.parent = parent, .name = name, .next = *chain};
    ARENA_PUSH(s->memory, s->frames, s->count, s->capacity, fresh);
    return *chain = s->count - 1;
}

static void add_frame(const stacks *s, int at, text *out)
{
    if (at < 0) return;
    add_frame(s, s->frames[at].parent, out);
    if (s->frames[at].parent >= 0) text_add(out, ";");
    for (const char *p = s->frames[at].name; *p; p++) {
        char c = *p == ';' ? ':' : *p == '\n' ? ' ' : *p;
        text_add_bytes(out, &c, 1);
    }
}

static void write_stacks(const stacks *s, sink *to)
{
    text line = {0};
    for (int i = 0; i < s->count; i++) {
        if (s->frames[i].own_ns <= 0) continue;
        text_clear(&line);
        add_frame(s, i, &line);
        text_print(&line, " %lld\n", (long long)s->frames[i].own_ns);
        sink_add(to, line.data, line.length);
    }
    text_free(&line);
}

static stacks *stacks_new(arena *memory)
{
    stacks *s = ARENA_NEW(memory, stacks);
    s->memory = memory;
    for (int i = 0; i < COUNT(s->chains); i++) s->chains[i] = -1;
    return s;
}

/* Under the device: the ranges in which the work was called, the operation, the kernel. */
typedef struct device_stacks {
    const qn_profile *profile;
    const nesting *nesting;
    stacks *stacks;
} device_stacks;

static void add_owned(void *user, const owned *o)
{
    const device_stacks *all = user;
    const char *names[RANGE_DEPTH];
    char words[32];
    if (o->device < 0) return; /* it stands on its thread */
    snprintf(words, sizeof(words), "GPU %u", all->profile->device_kept[o->device].device);
    int at = frame_of(all->stacks, -1, record_name(words));
    int count = owners_ranges(all->profile, all->nesting, o, names);
    for (int i = 0; i < count; i++) at = frame_of(all->stacks, at, names[i]);
    if (o->op) at = frame_of(all->stacks, at, o->op);
    at = frame_of(all->stacks, at, o->kernel);
    all->stacks->frames[at].own_ns += o->end_ns - o->start_ns;
}

static qn_status fold(const qn_profile *p, const nesting *n, sink *to, qn_error *error)
{
    arena *memory = arena_new();
    stacks *host = stacks_new(memory), *devices = stacks_new(memory);
    int *frames = ARENA_ARRAY(memory, int, n->count + 1);
    for (int64_t i = n->count - 1; i >= 0; i--) {
        const record *r = &p->kept[i];
        frames[i] = -1;
        if (r->end_ns == r->start_ns || r->kind == RECORD_STEP) continue;
        if (r->kind == RECORD_WORK && n->parent[i] >= 0) { /* the own time of what it is in */
            frames[i] = frames[n->parent[i]];
            continue;
        }
        int parent = n->parent[i] >= 0 ? frames[n->parent[i]] : frame_of(host, -1, record_thread_name(r->thread));
        frames[i] = frame_of(host, parent, r->name);
        host->frames[frames[i]].own_ns += n->self_ns[i];
    }
    device_stacks all = {.profile = p, .nesting = n, .stacks = devices};
    qn_status status = owners_visit(p, n, add_owned, &all, error);
    write_stacks(host, to);
    write_stacks(devices, to);
    arena_free(memory);
    return status;
}

qn_status qn_profile_write_folded(const qn_profile *profile, const char *path, qn_error *error)
{
    HEAP_ENTER(error);
    if (!profile || !path) return error_set(error, QN_BAD_CALL, "qn_profile_write_folded: an argument is NULL");
    qn_profile *p = (qn_profile *)profile;
    nesting n;
    sink *to;
    QN_TRY(sink_open(path, &to, error));
    lock_take(&p->lock);
    qn_status status = nesting_make(p, &n, error);
    if (status == QN_OK) {
        status = fold(p, &n, to, error);
        nesting_free(&n);
    }
    lock_give(&p->lock);
    qn_status written = sink_close(to, status == QN_OK, status == QN_OK ? error : NULL);
    return status == QN_OK ? written : status;
}
