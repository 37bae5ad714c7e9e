/*
 * What each step of a recorded plan has to wait for. In: steps in order, whose views have their addresses. Out: for each
 * step the earlier ones that wrote what it reads or writes, or read what it writes; only those that no other of them
 * waits for already. A device then runs side by side what does not touch the same memory.
 *
 * Steps are compared by ranges of addresses, so memory that a plan uses twice keeps its order, scratch memory too: it is
 * given out round and round, within a bound, so that neighbours have different pieces. Every so many steps one waits for
 * all before it, and nobody looks further back: long plans take time in proportion to their length.
 * SPDX-License-Identifier: MIT
 */
#include "run/launch/capture_order.h"

#include <string.h>

enum { BLOCK = 512, WORD = 64 };          /* steps that are compared with each other */
enum { MOST_VALUES = 400 };               /* that are spread; each is compared with all others */
#define VALUES_BYTES ((int64_t)16 << 20)  /* what they may have anyhow; beyond it no more than eager kernels' */
#define SCRATCH_BYTES ((int64_t)64 << 20) /* more than the largest only up to here */

typedef struct touched {
    intptr_t low, high;
    bool writes;
} touched;

typedef struct touches {
    touched *ranges;
    int count;
} touches;

/* The whole memory of a node whose places are computed: of one in the workspace its own, else that of the base. */
static touched whole_of(const plan_step *s, const step_array *a, int argument, const int64_t *base_bytes)
{
    const array_view *v = &s->views[a->param];
    intptr_t low = (intptr_t)v->data - (intptr_t)a->at.offset_bytes;
    if (a->at.base || !s->fused || argument >= s->fused->argument_count)
        return (touched){.low = low, .high = low + (intptr_t)base_bytes[a->at.base]};
    const fuse_argument *from = &s->fused->arguments[argument];
    low = (intptr_t)v->data - (intptr_t)(from->offset * dtypes[v->elem].size_bytes);
    return (touched){.low = low, .high = low + (intptr_t)graph_size_bytes(s->graph, from->base)};
}

static touched range_of(const array_view *v)
{
    int64_t low, high, size = dtypes[v->elem].size_bytes;
    view_reach(v, &low, &high);
    return (touched){.low = (intptr_t)v->data + (intptr_t)(low * size),
                     .high = (intptr_t)v->data + (intptr_t)(high * size)};
}

static touches touches_of(const plan_step *s, const int64_t *base_bytes, arena *memory)
{
    touches t = {.ranges = ARENA_ARRAY(memory, touched, s->array_count + 2)};
    if (!s->instance) {
        intptr_t from = (intptr_t)s->copy_from, to = (intptr_t)s->copy_to, size = (intptr_t)s->size_bytes;
        t.ranges[t.count++] = (touched){.low = from, .high = from + size};
        t.ranges[t.count++] = (touched){.low = to, .high = to + size, .writes = true};
        return t;
    }
    const tile_kernel *k = s->instance->kernel;
    for (int i = 0, argument = 0; i < s->array_count; i++) {
        const step_array *a = &s->arrays[i];
        const tile_param *p = &k->params[a->param];
        touched r = p->digits ? whole_of(s, a, argument, base_bytes) : range_of(&s->views[a->param]);
        argument += p->kind != PARAM_SCRATCH;
        r.writes = p->kind != PARAM_IN;
        if (r.low < r.high) t.ranges[t.count++] = r;
    }
    return t;
}

static bool conflict(const touches *a, const touches *b)
{
    for (int i = 0; i < a->count; i++)
        for (int k = 0; k < b->count; k++) {
            const touched *x = &a->ranges[i], *y = &b->ranges[k];
            if ((x->writes || y->writes) && x->low < y->high && y->low < x->high) return true;
        }
    return false;
}

static bool has(const uint64_t *set, int i)
{
    return set[i / WORD] >> (i % WORD) & 1;
}

static void add(uint64_t *set, int i)
{
    set[i / WORD] |= (uint64_t)1 << (i % WORD);
}

capture_waits *capture_order(const plan_step *steps, int count, const int64_t *const *base_bytes, arena *memory)
{
    enum { WORDS = BLOCK / WORD + 1 };
    capture_waits *out = ARENA_ARRAY(memory, capture_waits, count + 1);
    touches *all = ARENA_ARRAY(memory, touches, BLOCK + 1);
    uint64_t(*before)[WORDS] = (void *)ARENA_ARRAY(memory, uint64_t, (BLOCK + 1) * WORDS); /* by step of the block */
    int *found = ARENA_ARRAY(memory, int, BLOCK + 1), first = 0;
    for (int i = 0; i < count; i++) {
        bool joins = i - first == BLOCK;
        int found_count = 0, at = joins ? 0 : i - first;
        touches t = touches_of(&steps[i], base_bytes[i], memory);
        uint64_t seen[WORDS] = {0};
        for (int j = i - 1; j >= first; j--) {
            if (has(seen, j - first)) continue;
            if (!joins && j != first && !conflict(&t, &all[j - first])) continue;
            /* Everything in a block comes after its first step, which the steps before it ended with. */
            if (!joins && j == first && !first && !conflict(&t, &all[0])) continue;
            found[found_count++] = j;
            add(seen, j - first);
            for (int w = 0; w < WORDS; w++) seen[w] |= before[j - first][w];
        }
        if (joins) first = i;
        all[at] = t;
        memcpy(before[at], seen, sizeof(seen));
        if (joins) memset(before[at], 0, sizeof(seen));
        out[i] = (capture_waits){.steps = ARENA_ARRAY(memory, int, found_count + 1), .count = found_count};
        memcpy(out[i].steps, found, sizeof(int) * (size_t)found_count);
    }
    return out;
}

/* ---- places ---- */

static void own_arrays(plan_step *s, arena *memory)
{
    step_array *own = ARENA_ARRAY(memory, step_array, s->array_count + 1);
    memcpy(own, s->arrays, sizeof(*own) * (size_t)s->array_count);
    s->arrays = own; /* the plan's steps keep theirs */
}

typedef struct spread {
    node n;
    int first, last; /* steps */
    int64_t size, offset;
} spread;

typedef struct spreads {
    spread *values;
    int *number; /* by node: its value's from 1 on, or 0 */
    int count;
} spreads;

static void note(spreads *s, const plan_place *at, int step)
{
    if (at->base || !at->value) return;
    int *number = &s->number[at->value];
    if (!*number && s->count < MOST_VALUES) {
        s->values[s->count] = (spread){.n = at->value, .first = step};
        *number = ++s->count;
    }
    if (*number) s->values[*number - 1].last = step;
}

/* ---- what other places gain ---- */

/* A value in the workspace (its number, from 0 on) or an array beside it (-1 less its base), as a step touches it. */
typedef struct use {
    int what;
    bool writes;
} use;

typedef struct uses {
    use *list;
    int count;
    double time_ns;
} uses;

static void add_use(uses *u, const spreads *s, const plan_place *at, bool writes)
{
    int number = at->base || !at->value ? 0 : s->number[at->value];
    if (at->base || number) u->list[u->count++] = (use){.what = number ? number - 1 : -1 - at->base, .writes = writes};
}

static uses uses_of(const plan_step *step, const spreads *s, arena *memory)
{
    enum { COPY_NS = 3000 };
    uses u = {.list = ARENA_ARRAY(memory, use, step->array_count + 2), .time_ns = COPY_NS};
    if (step->fused) u.time_ns = MAXIMUM(step->fused->cost.time_ns, COPY_NS);
    for (int a = 0; step->instance && a < step->array_count; a++) {
        const step_array *x = &step->arrays[a];
        add_use(&u, s, &x->at, step->instance->kernel->params[x->param].kind != PARAM_IN);
    }
    if (!step->instance) add_use(&u, s, &step->from, false);
    if (!step->instance) add_use(&u, s, &step->to, true);
    return u;
}

static bool meet(const uses *a, const uses *b, const spread *values)
{
    for (int i = 0; i < a->count; i++)
        for (int k = 0; k < b->count; k++) {
            int x = a->list[i].what, y = b->list[k].what;
            if (!a->list[i].writes && !b->list[k].writes) continue;
            if (x == y) return true;
            if (x >= 0 && y >= 0 && values[x].offset < values[y].offset + values[y].size &&
                values[y].offset < values[x].offset + values[x].size)
                return true;
        }
    return false;
}

/* The longest row of steps that wait for each other, with the values where they are now. end: room for as many. */
static double longest_row(const uses *all, int count, const spread *values, double *end)
{
    double longest = 0;
    for (int i = 0; i < count; i++) {
        double start = 0;
        for (int j = i - 1; j >= 0; j--)
            if (end[j] > start && meet(&all[i], &all[j], values)) start = end[j];
        end[i] = start + all[i].time_ns;
        longest = MAXIMUM(longest, end[i]);
    }
    return longest;
}

/* The lowest place beside those that live at the same time; they are in order of their places. */
static void place_low(spread *const *placed, int count, spread *x)
{
    x->offset = 0;
    for (int i = 0; i < count; i++) {
        const spread *p = placed[i];
        if (p->last < x->first || p->first > x->last) continue;
        if (x->offset + x->size <= p->offset) return;
        x->offset = MAXIMUM(x->offset, p->offset + p->size);
    }
}

static int larger_first(const void *left, const void *right)
{
    const spread *a = *(spread *const *)left, *b = *(spread *const *)right;
    return a->size != b->size ? (a->size < b->size) - (a->size > b->size) : a->first - b->first;
}

/* Values of up to `small` bytes have places that no other has; the larger ones lie as low as they can. Returns the bytes
 * that all take. sorted: larger first; placed: room for as many. */
static int64_t place_values(spread *const *sorted, int count, int64_t small, spread **placed)
{
    int64_t end = 0;
    for (int i = 0; i < count; i++) {
        spread *x = sorted[i];
        if (x->size <= small) {
            x->offset = end;
        } else {
            int at = i;
            place_low(placed, i, x);
            for (; at && placed[at - 1]->offset > x->offset; at--) placed[at] = placed[at - 1];
            placed[at] = x;
        }
        end = MAXIMUM(end, x->offset + x->size);
    }
    return end;
}

/* Places of their own for as many values as there is room for, the small ones first: most of what waits for a place that
 * it need not wait for is small (indices being sorted beside the long row of products). There is room for what eager kernels
 * would need. Returns the bytes that all take, or 0: it gains nothing. */
static int64_t place_apart(spreads *s, const plan_step *steps, int count, const plan *of, arena *memory)
{
    const double little = 0.02;
    const fuse_plan *fused = of->fused;
    uses *all = ARENA_ARRAY(memory, uses, count + 1);
    double *end = ARENA_ARRAY(memory, double, count + 1);
    spread **sorted = ARENA_ARRAY(memory, spread *, s->count + 1),
           **placed = ARENA_ARRAY(memory, spread *, s->count + 1);
    for (int i = 0; i < count; i++) all[i] = uses_of(&steps[i], s, memory);
    for (int i = 0; i < s->count; i++) {
        s->values[i].offset = fused->places[s->values[i].n].offset_bytes;
        sorted[i] = &s->values[i];
    }
    double before = longest_row(all, count, s->values, end);
    if (s->count) qsort(sorted, (size_t)s->count, sizeof(*sorted), larger_first);
    int64_t results = fused->peak_bytes - fused->workspace_bytes;
    int64_t limit = MAXIMUM(MAXIMUM(of->values_bytes, fused->eager_bytes - results), VALUES_BYTES);
    for (int64_t small = s->count ? sorted[0]->size : 0; small; small /= 2) {
        int64_t bytes = place_values(sorted, s->count, small, placed);
        if (bytes > limit) continue;
        return longest_row(all, count, s->values, end) < (1 - little) * before ? bytes : 0;
    }
    return 0;
}

static void move_place(const spreads *s, const plan *of, plan_place *at)
{
    if (at->base || !at->value) return;
    at->offset_bytes += s->values[s->number[at->value] - 1].offset - of->fused->places[at->value].offset_bytes;
}

int64_t capture_spread_values(plan_step *steps, int count, const plan *of, arena *memory)
{
    const graph *g = of->graph;
    spreads s = {.values = ARENA_ARRAY(memory, spread, MOST_VALUES), .number = ARENA_ARRAY(memory, int, g->node_count)};
    for (int i = 0; i < count; i++) {
        for (int a = 0; a < steps[i].array_count; a++) note(&s, &steps[i].arrays[a].at, i);
        if (!steps[i].instance) note(&s, &steps[i].from, i);
        if (!steps[i].instance) note(&s, &steps[i].to, i);
    }
    /* Outputs of calls that nobody reads have places behind the values, and no node. */
    if (s.count == MOST_VALUES || of->values_bytes != of->fused->workspace_bytes) return of->values_bytes;
    for (int n = 1; n < g->node_count; n++) { /* those that share a place are not all of one size */
        node root = of->fused->places[n].root ? of->fused->places[n].root : (node)n;
        if (!s.number[root]) continue;
        spread *v = &s.values[s.number[root] - 1];
        v->size = MAXIMUM(v->size, (graph_size_bytes(g, (node)n) + 255) / 256 * 256);
    }
    int64_t end = place_apart(&s, steps, count, of, memory);
    if (!end) return of->values_bytes;
    for (int i = 0; i < count; i++) {
        if (steps[i].instance) own_arrays(&steps[i], memory);
        for (int a = 0; a < steps[i].array_count; a++) move_place(&s, of, &steps[i].arrays[a].at);
        move_place(&s, of, &steps[i].from);
        move_place(&s, of, &steps[i].to);
    }
    return end;
}

static int64_t scratch_bytes(const plan_step *s)
{
    int64_t low = INT64_MAX, high = 0;
    for (int i = 0; s->instance && i < s->array_count; i++) {
        const step_array *a = &s->arrays[i];
        if (s->instance->kernel->params[a->param].kind != PARAM_SCRATCH) continue;
        int64_t bytes = dtypes[s->views[a->param].elem].size_bytes;
        for (int axis = 0; axis < s->views[a->param].rank; axis++)
            bytes *= MAXIMUM(s->views[a->param].extents[axis], 1);
        low = MINIMUM(low, a->at.offset_bytes);
        high = MAXIMUM(high, a->at.offset_bytes + bytes);
    }
    return high > low ? (high - low + 255) / 256 * 256 : 0;
}

int64_t capture_spread_scratch(plan_step *steps, int count, int64_t values_bytes, arena *memory)
{
    int64_t most = 0, all = 0, start = (values_bytes + 255) / 256 * 256;
    for (int i = 0; i < count; i++) {
        int64_t bytes = scratch_bytes(&steps[i]);
        most = MAXIMUM(most, bytes);
        all += bytes;
    }
    int64_t room = MAXIMUM(most, MINIMUM(all, SCRATCH_BYTES)), at = 0;
    for (int i = 0; i < count; i++) {
        int64_t bytes = scratch_bytes(&steps[i]), low = INT64_MAX;
        if (!bytes) continue;
        if (at + bytes > room) at = 0;
        own_arrays(&steps[i], memory);
        step_array *own = steps[i].arrays;
        const tile_kernel *k = steps[i].instance->kernel;
        for (int a = 0; a < steps[i].array_count; a++)
            if (k->params[own[a].param].kind == PARAM_SCRATCH) low = MINIMUM(low, own[a].at.offset_bytes);
        for (int a = 0; a < steps[i].array_count; a++)
            if (k->params[own[a].param].kind == PARAM_SCRATCH) own[a].at.offset_bytes += start + at - low;
        at += bytes;
    }
    return start + room;
}
