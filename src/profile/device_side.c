/*
 * The device's side of a profile. In: records of the device (CUPTI's, or spans between events), identities of the host's
 * launches and copies. Out: device records in the profile, each with the facts of its launch.
 *
 * A record of the device comes with a number of CUPTI's, that number with an identity, and the identity with a record of
 * the host; each of the three may come first. So what has arrived waits until the other two are there. Whether it is
 * kept depends on the phase in which its launch was made. What finds no launch in the end (kernels of other libraries
 * in the process) is kept by its time.
 * Numbers and identities only grow, so both tables are arrays that they wrap around in: an old entry is overwritten by
 * the one that comes so many later, and nothing is allocated while the program runs.
 * The kernels of a graph come with one number. They run in the order in which they were captured, so they are told
 * apart by going through the graph's parts by name.
 * SPDX-License-Identifier: MIT
 */
#include "profile/device_side.h"

#include "profile/measure/cupti.h"
#include "run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 1 << 17, LAUNCHES = 1 << 16, MOST_WINDOWS = 64, MOST_CURSORS = 8, PHASE_NONE = -1 };

typedef struct number_entry {
    uint64_t identity;
    uint32_t correlation;
} number_entry;

typedef struct waiting {
    device_record record;
    uint32_t correlation; /* 0: the record's identity is known */
    int phase;            /* of the kernel's launch */
    int64_t first_ns;     /* when its launch began: of a graph, the earliest of its nodes */
} waiting;

/* How far the kernels of one launch of a graph have been told apart. */
typedef struct cursor {
    uint32_t correlation;
    int *phases; /* by part: the last that was seen, or PHASE_NONE */
    int capacity;
} cursor;

struct device_side {
    qn_profile *profile;
    cupti *cupti;
    number_entry *numbers;
    device_launched *launches;
    waiting *waiting;
    int64_t waiting_count, waiting_capacity;
    cursor cursors[MOST_CURSORS];
    int next_cursor;
    int64_t windows[MOST_WINDOWS][2]; /* times in which everything is kept; [1] 0: still open */
    int window_count;
    int64_t overhead_ns;
    bool last; /* nothing more will come */
    int event_slots[MAX_DEVICES], event_slot_count;
    int event_slot; /* that is being read */
};

/* ---- what arrives ---- */

static void wait_for_launch(device_side *s, const waiting *w)
{
    if (s->waiting_count == s->waiting_capacity) {
        int64_t capacity = s->waiting_capacity ? 2 * s->waiting_capacity : 4096;
        waiting *grown = realloc(s->waiting, sizeof(*grown) * (size_t)capacity);
        if (!grown) {
            s->profile->device_lost++;
            return;
        }
        s->waiting = grown;
        s->waiting_capacity = capacity;
    }
    s->waiting[s->waiting_count++] = *w;
}

static void correlates(void *user, uint32_t correlation, uint64_t identity)
{
    device_side *s = user;
    s->numbers[correlation % NUMBERS] = (number_entry){identity, correlation};
}

/* "softmax_phase1": the kernel's name, and the number of the phase. Other names have no phase. */
static const char *name_of(const char *symbol, int *phase)
{
    char words[256];
    const char *end = symbol;
    *phase = 0;
    for (const char *at = symbol; (at = strstr(at, "_phase")); at++) end = at;
    int used = 0;
    if (end == symbol || sscanf(end, "_phase%d%n", phase, &used) != 1 || end[used]) {
        *phase = 0;
        return record_name(symbol);
    }
    snprintf(words, sizeof(words), "%.*s", (int)(end - symbol), symbol);
    return record_name(words);
}

/* No times: CUPTI could not take them. */
static bool has_times(device_side *s, uint64_t start_ns, uint64_t end_ns)
{
    if (start_ns && end_ns >= start_ns) return true;
    s->profile->device_lost++;
    return false;
}

static void take_kernel(void *user, const cupti_kernel *k)
{
    device_side *s = user;
    int64_t offset = cupti_clock_offset_ns(s->cupti);
    if (!has_times(s, k->start_ns, k->end_ns)) return;
    waiting w = {.correlation = k->correlation,
                 .record = {.start_ns = (int64_t)k->start_ns + offset,
                            .end_ns = (int64_t)k->end_ns + offset,
                            .device = k->device,
                            .stream = k->stream,
                            .graph = k->node ? k->graph : 0,
                            .node = (uint32_t)k->node,
                            .grid = {k->grid[0], k->grid[1], k->grid[2]},
                            .block = {k->block[0], k->block[1], k->block[2]},
                            .registers = k->registers,
                            .shared_bytes = k->static_shared_bytes + k->dynamic_shared_bytes,
                            .local_bytes = k->local_bytes,
                            .kind = DEVICE_KERNEL}};
    w.record.name = name_of(k->name ? k->name : "kernel", &w.phase);
    wait_for_launch(s, &w);
}

static void take_move(device_side *s, const cupti_move *m, device_record_kind kind, const char *name)
{
    int64_t offset = cupti_clock_offset_ns(s->cupti);
    if (!has_times(s, m->start_ns, m->end_ns)) return;
    wait_for_launch(s, &(waiting){.correlation = m->correlation,
                                  .record = {.start_ns = (int64_t)m->start_ns + offset,
                                             .end_ns = (int64_t)m->end_ns + offset,
                                             .name = name,
                                             .bytes = (int64_t)m->bytes,
                                             .device = m->device,
                                             .stream = m->stream,
                                             .graph = m->node ? m->graph : 0,
                                             .node = (uint32_t)m->node,
                                             .kind = (uint16_t)kind}});
}

static void take_copy(void *user, const cupti_move *m)
{
    const char *name = m->direction == CUPTI_TO_DEVICE ? "copy in"
                       : m->direction == CUPTI_TO_HOST ? "copy out"
                                                       : "copy inside";
    take_move(user, m, DEVICE_COPY, name);
}

static void take_set(void *user, const cupti_move *m)
{
    take_move(user, m, DEVICE_SET, "fill");
}

static void take_graph(void *user, const cupti_graph *g)
{
    device_side *s = user;
    int64_t offset = cupti_clock_offset_ns(s->cupti);
    if (!has_times(s, g->start_ns, g->end_ns)) return;
    wait_for_launch(s, &(waiting){.correlation = g->correlation,
                                  .record = {.start_ns = (int64_t)g->start_ns + offset,
                                             .end_ns = (int64_t)g->end_ns + offset,
                                             .name = "graph",
                                             .device = g->device,
                                             .stream = g->stream,
                                             .graph = g->graph,
                                             .kind = DEVICE_GRAPH}});
}

static void take_overhead(void *user, int64_t ns)
{
    ((device_side *)user)->overhead_ns += ns;
}

static void take_dropped(void *user, int64_t count)
{
    ((device_side *)user)->profile->device_lost += count;
}

static void take_span(void *user, const trace_span *span)
{
    device_side *s = user;
    wait_for_launch(s, &(waiting){.record = {.start_ns = span->start_ns,
                                             .end_ns = span->end_ns,
                                             .name = "launch",
                                             .identity = span->identity,
                                             .device = (uint32_t)s->event_slot,
                                             .stream = (uint32_t)((uintptr_t)span->stream >> 4),
                                             .kind = DEVICE_KERNEL}});
}

static void take_all(device_side *s, bool flush)
{
    const cupti_takers takers = {.user = s,
                                 .correlates = correlates,
                                 .kernel = take_kernel,
                                 .copy = take_copy,
                                 .set = take_set,
                                 .graph = take_graph,
                                 .overhead = take_overhead,
                                 .dropped = take_dropped};
    if (s->cupti) cupti_take(s->cupti, flush, s->last, &takers);
    for (int i = 0; i < s->event_slot_count; i++) {
        const device_slot *slot = &s->profile->context->slots[s->event_slots[i]];
        s->event_slot = i;
        s->profile->device_lost += slot->driver->trace->read(slot->device, take_span, s);
    }
}

/* ---- whose it is ---- */

void device_side_host(device_side *s, const record *r, bool kept)
{
    const record_facts *f = record_facts_of(r);
    s->launches[r->identity % LAUNCHES] = (device_launched){
        .identity = r->identity, .name = r->name, .detail = r->detail, .facts = f, .kind = r->kind, .kept = kept};
}

static cursor *cursor_of(device_side *s, uint32_t correlation, int part_count)
{
    for (int i = 0; i < MOST_CURSORS; i++)
        if (s->cursors[i].correlation == correlation && s->cursors[i].capacity >= part_count) return &s->cursors[i];
    cursor *c = &s->cursors[s->next_cursor++ % MOST_CURSORS];
    if (c->capacity < part_count) {
        int *grown = realloc(c->phases, sizeof(*grown) * (size_t)part_count);
        if (!grown) return NULL;
        c->phases = grown;
        c->capacity = part_count;
    }
    c->correlation = correlation;
    for (int i = 0; i < c->capacity; i++) c->phases[i] = PHASE_NONE;
    return c;
}

/* The part of the graph that this kernel is of; NULL: none has its name. Nodes run side by side: it is the first part of
 * its name that waits for this phase, or the first that nothing was seen of. */
static const record_facts *part_of(device_side *s, const waiting *w, const record_facts *graph)
{
    cursor *c = cursor_of(s, w->correlation, graph->part_count);
    int found = -1;
    for (int part = 0; c && part < graph->part_count; part++) {
        if (c->phases[part] >= w->phase || strcmp(graph->parts[part]->kernel, w->record.name) != 0) continue;
        if (found < 0) found = part;
        if (c->phases[part] == PHASE_NONE) continue;
        found = part;
        break;
    }
    if (found < 0) return NULL;
    c->phases[found] = w->phase;
    return graph->parts[found];
}

static bool is_kept_by_time(const device_side *s, const device_record *r)
{
    for (int i = 0; i < s->window_count; i++)
        if (r->start_ns >= s->windows[i][0] && (!s->windows[i][1] || r->start_ns < s->windows[i][1])) return true;
    return false;
}

/* True: it has gone to the profile, or is of no interest. */
static bool resolve(device_side *s, waiting *w)
{
    device_record *r = &w->record;
    if (w->correlation && !r->identity) {
        const number_entry *n = &s->numbers[w->correlation % NUMBERS];
        if (n->correlation == w->correlation) r->identity = n->identity;
    }
    const device_launched *l = &s->launches[r->identity % LAUNCHES];
    if (!r->identity || l->identity != r->identity) {
        if (!s->last) return false;
        r->identity = 0;
        if (is_kept_by_time(s, r)) session_keep_device(s->profile, r, NULL);
        return true;
    }
    if (!l->kept) return true;
    bool whole = l->facts && l->facts->part_count > 0;
    if (!w->correlation) { /* between events: what it was, the launch knows */
        r->kind = (uint16_t)(l->kind == RECORD_COPY ? DEVICE_COPY : whole ? DEVICE_GRAPH : DEVICE_KERNEL);
        r->name = l->name;
    }
    r->facts = whole && r->kind == DEVICE_KERNEL                     ? part_of(s, w, l->facts)
               : r->kind == DEVICE_KERNEL || r->kind == DEVICE_GRAPH ? l->facts
                                                                     : NULL;
    session_keep_device(s->profile, r, l);
    return true;
}

static int by_launch(const void *a, const void *b)
{
    const waiting *x = a, *y = b;
    if (x->correlation != y->correlation) return x->correlation < y->correlation ? -1 : 1;
    return (x->record.start_ns > y->record.start_ns) - (x->record.start_ns < y->record.start_ns);
}

/* Launches as they began, the nodes of a graph as they were recorded. */
static int by_start(const void *a, const void *b)
{
    const waiting *x = a, *y = b;
    if (x->first_ns != y->first_ns) return x->first_ns < y->first_ns ? -1 : 1;
    if (x->correlation != y->correlation) return x->correlation < y->correlation ? -1 : 1;
    if (x->record.node != y->record.node) return x->record.node < y->record.node ? -1 : 1;
    return (x->record.start_ns > y->record.start_ns) - (x->record.start_ns < y->record.start_ns);
}

static void sort_waiting(waiting *all, int64_t count)
{
    qsort(all, (size_t)count, sizeof(*all), by_launch);
    for (int64_t i = 0; i < count; i++) {
        bool same = i && all[i].record.node && all[i].correlation == all[i - 1].correlation;
        all[i].first_ns = same ? all[i - 1].first_ns : all[i].record.start_ns;
    }
    qsort(all, (size_t)count, sizeof(*all), by_start);
}

static void resolve_all(device_side *s)
{
    int64_t left = 0, most = s->profile->options.most_records > 0 ? s->profile->options.most_records : LAUNCHES;
    if (!s->waiting_count) return;
    sort_waiting(s->waiting, s->waiting_count);
    for (int64_t i = 0; i < s->waiting_count; i++)
        if (!resolve(s, &s->waiting[i])) s->waiting[left++] = s->waiting[i];
    s->waiting_count = left;
    if (left <= most) return; /* else: of other libraries, most likely; they go first come, first kept */
    int64_t early = left - most;
    for (int64_t i = 0; i < early; i++)
        if (is_kept_by_time(s, &s->waiting[i].record)) session_keep_device(s->profile, &s->waiting[i].record, NULL);
    memmove(s->waiting, s->waiting + early, sizeof(waiting) * (size_t)most);
    s->waiting_count = most;
}

void device_side_collect(device_side *s)
{
    take_all(s, false);
    resolve_all(s);
}

void device_side_settle(device_side *s)
{
    qn_context *context = s->profile->context;
    for (int i = 0; i < context->slot_count; i++) {
        const device_slot *slot = &context->slots[i];
        qn_error ignored;
        if (slot->driver->trace) (void)!slot->driver->memory->settle_all(slot->device, &ignored);
    }
    take_all(s, true);
    resolve_all(s);
}

/* ---- from start to end ---- */

static void focus(const device_side *s, bool on)
{
    qn_context *context = s->profile->context;
    for (int i = 0; s->profile->options.nvtx && i < context->slot_count; i++) {
        const device_slot *slot = &context->slots[i];
        if (slot->driver->trace && slot_about(context, i)->available) slot->driver->trace->focus(slot->device, on);
    }
}

void device_side_phase(device_side *s, bool kept)
{
    int64_t now = record_clock_ns();
    bool open = s->window_count && !s->windows[s->window_count - 1][1];
    if (open && !kept) s->windows[s->window_count - 1][1] = now;
    if (open != kept) focus(s, kept);
    if (open || !kept) return;
    if (s->window_count == MOST_WINDOWS) { /* the two oldest become one */
        s->windows[1][0] = s->windows[0][0];
        memmove(s->windows[0], s->windows[1], sizeof(s->windows[0]) * (size_t)(MOST_WINDOWS - 1));
        s->window_count--;
    }
    s->windows[s->window_count][0] = now;
    s->windows[s->window_count++][1] = 0;
}

/* Events around launches, on each device that has them. */
static bool start_events(device_side *s)
{
    qn_context *context = s->profile->context;
    for (int i = 0; i < context->slot_count; i++) {
        const device_slot *slot = &context->slots[i];
        qn_error ignored;
        if (!slot->driver->trace || !slot_about(context, i)->available) continue;
        if (slot->driver->trace->start(slot->device, &ignored) == QN_OK) s->event_slots[s->event_slot_count++] = i;
    }
    return s->event_slot_count > 0;
}

static bool has_device(qn_context *context)
{
    for (int i = 0; context && i < context->slot_count; i++)
        if (context->slots[i].driver->trace && slot_about(context, i)->available) return true;
    return false;
}

device_side *device_side_open(qn_profile *p)
{
    const char *wanted = environment_get("QUERN_PROFILE_DEVICE"); /* "cupti", "events", "none" */
    if (!has_device(p->context)) return NULL;
    device_side *s = calloc(1, sizeof(*s));
    if (s) {
        s->numbers = calloc(NUMBERS, sizeof(*s->numbers));
        s->launches = calloc(LAUNCHES, sizeof(*s->launches));
    }
    if (!s || !s->numbers || !s->launches) {
        device_side_close(s);
        p->device_reason = "there is no memory for tracing the GPU";
        return NULL;
    }
    s->profile = p;
    qn_error error = {.status = QN_OK};
    if (wanted && !strcmp(wanted, "none")) {
        error_set(&error, QN_NO_DEVICE, "QUERN_PROFILE_DEVICE is `none`: unset it for times of the GPU");
    } else if (wanted && !strcmp(wanted, "events")) {
        error_set(&error, QN_NO_DEVICE, "QUERN_PROFILE_DEVICE is `events`: unset it for times of kernels");
        if (start_events(s)) p->device_source = "CUDA events";
    } else if (cupti_start(p->options.graph_nodes, &s->cupti, &error) == QN_OK) {
        p->device_source = "CUPTI activity";
    } else if (start_events(s)) {
        p->device_source = "CUDA events";
    }
    if (error.status != QN_OK) p->device_reason = record_name(error.message);
    device_side_phase(s, p->phase == PHASE_KEEP);
    return s;
}

void device_side_finish(device_side *s)
{
    qn_profile *p = s->profile;
    device_side_settle(s);
    device_side_phase(s, false);
    cupti_stop(s->cupti);
    s->last = true;
    take_all(s, false);
    resolve_all(s);
    for (int i = 0; i < s->event_slot_count; i++) {
        const device_slot *slot = &p->context->slots[s->event_slots[i]];
        slot->driver->trace->stop(slot->device);
    }
    if (s->cupti) p->device_overhead_share = (double)s->overhead_ns / (double)(record_clock_ns() - p->start_ns);
}

void device_side_close(device_side *s)
{
    if (!s) return;
    cupti_free(s->cupti);
    heap_free(s->numbers);
    heap_free(s->launches);
    heap_free(s->waiting);
    for (int i = 0; i < MOST_CURSORS; i++) heap_free(s->cursors[i].phases);
    heap_free(s);
}
