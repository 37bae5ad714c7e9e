/*
 * Recorded steps. Between begin and end nothing runs: every evaluation adds its plan, with the memory it was given, to a
 * list. The end finds one workspace for all of them, fills in every address, prepares every launch, and on a device with
 * streams records them as one graph. A replay starts that graph, or goes through the list; it allocates nothing.
 *
 * A recorded step reads and writes fixed memory: buffers of inputs and variables, which stay while the plan does, and
 * results, whose handles are leaves over the plan's memory and show the values of the last replay. A replay changes
 * that memory, so what was made from it before can not be computed afterwards; the leaves get new identities, unless no
 * node was made since they got their last ones.
 * SPDX-License-Identifier: MIT
 */
#include "run/launch/capture_order.h"
#include "run/compile/facts.h"
#include "run/evaluate/shares.h"

#include <stdlib.h>
#include <string.h>

typedef struct part {
    plan *plan;
    qn_buffer **buffers; /* by base less 1: as they were recorded, results too; retained */
    char **bases;
    const range_path *const *paths; /* by origin: the range that each of its nodes was called in */
} part;

typedef struct written {
    uint32_t slot, stamp;
} written;

typedef struct swap {
    qn_buffer *recorded, *now; /* retained */
} swap;

struct qn_plan {
    qn_plan *next; /* of the tape's */
    qn_tape *tape; /* NULL: it is gone */
    qn_context *context;
    int slot;
    arena *memory;
    part *parts;
    int part_count, part_capacity;
    node *computed; /* nodes that were placed in results; while it is being recorded */
    int computed_count, computed_capacity;
    written *written; /* handles of what a replay writes */
    int written_count, written_capacity;
    swap *swaps;
    int swap_count, swap_capacity;
    uint64_t counted_by;           /* number of the counter of launches that has seen its kernels; 0: none */
    qn_status status;              /* of the recording */
    uint64_t outside[RANGE_DEPTH]; /* ranges that were open when it began: those of a replay stand for them */
    int outside_count;
    storage *workspace;
    int64_t workspace_bytes, result_bytes;
    int64_t values_bytes; /* of the workspace; scratch memory of kernels lies behind them */
    plan_step *steps;     /* with views of their own, which have their addresses */
    int step_count, kernel_count;
    const record_facts **facts; /* by step, once a replay was recorded; NULL before */
    const record_facts *whole;  /* of all steps together, likewise */
    device_stream *stream;
    device_graph *graph;
    device_series *series;
    int64_t clean_renumbered; /* the tape's nodes as they were when the leaves got their identities */
    int clean_count; /* 0: before the first replay, or nodes of a scope that has ended read the leaves already */
};

/* ---- recording ---- */

qn_status qn_capture_begin(qn_tape *tape, qn_error *error)
{
    HEAP_ENTER(error);
    if (!tape_enter(tape, "capture_begin")) return error_set(error, QN_BAD_CALL, "qn_capture_begin: the tape is NULL");
    if (tape->capturing)
        return error_set(error, QN_BAD_CALL, "qn_capture_begin: a step of this tape is being recorded already");
    QN_TRY(qn_tape_error(tape, error));
    qn_random_state(tape); /* made before the step: made by it, it would begin anew in each replay */
    QN_TRY(realize_slots(tape, NULL, 0, error)); /* initial values of variables are no part of the step */
    qn_plan *p = heap_new(sizeof(*p));
    p->tape = tape;
    p->context = tape->context;
    p->slot = tape->realizer->slot;
    p->memory = arena_new();
    const range_open *open = range_stack(&p->outside_count);
    for (int i = 0; i < p->outside_count; i++) p->outside[i] = open[i].number;
    tape->capturing = p;
    return QN_OK;
}

static void remember_written(qn_plan *p, uint32_t slot)
{
    for (int i = 0; i < p->written_count; i++)
        if (p->written[i].slot == slot) return;
    written w = {.slot = slot, .stamp = p->tape->slots[slot].stamp};
    ARENA_PUSH(p->memory, p->written, p->written_count, p->written_capacity, w);
}

qn_status capture_add(qn_tape *tape, plan *from, qn_error *error)
{
    qn_plan *p = tape->capturing;
    const realizer *r = tape->realizer;
    int bases = from->buffer_count + from->result_count;
    (void)error;
    part added = {.plan = plan_retain(from),
                  .buffers = ARENA_ARRAY(p->memory, qn_buffer *, bases + 1),
                  .bases = ARENA_ARRAY(p->memory, char *, bases + 2),
                  .paths = shares_paths(tape, p->outside, p->outside_count, p->memory)};
    for (int i = 0; i < bases; i++) {
        qn_buffer *b = i < from->buffer_count ? r->buffers[i] : r->results[i - from->buffer_count]->buffer;
        added.buffers[i] = qn_buffer_retain(b);
    }
    ARENA_PUSH(p->memory, p->parts, p->part_count, p->part_capacity, added);
    p->workspace_bytes = MAXIMUM(p->workspace_bytes, from->workspace_bytes);
    p->values_bytes = MAXIMUM(p->values_bytes, from->values_bytes);
    for (int i = 0; i < from->result_count; i++) p->result_bytes += from->result_bytes[i];
    for (int i = 0; i < tape->assign_count; i++) remember_written(p, tape->assigns[i].slot);
    return QN_OK;
}

void capture_placed(qn_tape *tape, node n)
{
    qn_plan *p = tape->capturing;
    const placed where = *tape_placed(tape, n);
    ARENA_PUSH(p->memory, p->computed, p->computed_count, p->computed_capacity, n);
    const graph_node *at = graph_get(tape->graph, n);
    shape s = at->shape;
    node leaf = tape_leaf(tape, at->elem, &s, where.strides, where.offset, where.storage);
    for (int i = 1; i < tape->slot_count; i++) {
        if (tape->slots[i].node != n) continue;
        tape->slots[i].node = leaf;
        remember_written(p, (uint32_t)i);
    }
}

/* ---- making it ready ---- */

static char *address_of(const qn_plan *p, const qn_buffer *recorded)
{
    for (int i = 0; i < p->swap_count; i++)
        if (p->swaps[i].recorded == recorded) return p->swaps[i].now->data;
    return recorded->data;
}

static void give_addresses(qn_plan *p)
{
    int at = 0;
    for (int i = 0; i < p->part_count; i++) {
        part *from = &p->parts[i];
        int bases = from->plan->buffer_count + from->plan->result_count;
        from->bases[0] = storage_data(p->workspace);
        for (int b = 0; b < bases; b++) from->bases[1 + b] = address_of(p, from->buffers[b]);
        for (int s = 0; s < from->plan->step_count; s++) step_address(&p->steps[at++], from->bases);
    }
}

static void copy_steps(qn_plan *p)
{
    int count = 0;
    for (int i = 0; i < p->part_count; i++) count += p->parts[i].plan->step_count;
    p->steps = ARENA_ARRAY(p->memory, plan_step, count + 1);
    for (int i = 0; i < p->part_count; i++)
        for (int s = 0; s < p->parts[i].plan->step_count; s++) {
            plan_step *to = &p->steps[p->step_count++];
            *to = p->parts[i].plan->steps[s];
            to->ready = NULL;
            to->is_ready = false;
            to->facts = NULL; /* they tell whose the time is, here by paths */
            to->shares = NULL;
            to->paths = p->parts[i].paths;
            if (!to->instance) continue;
            size_t bytes = sizeof(array_view) * (size_t)to->instance->kernel->param_count;
            to->views = arena_alloc(p->memory, bytes + 1);
            memcpy(to->views, p->parts[i].plan->steps[s].views, bytes);
            p->kernel_count++;
        }
}

/* Steps that could run side by side do not share memory only because it was free. */
static void spread_places(qn_plan *p)
{
    int64_t values = p->values_bytes;
    for (int i = 0, at = 0; i < p->part_count; at += p->parts[i++].plan->step_count) {
        const plan *of = p->parts[i].plan;
        int64_t end = capture_spread_values(p->steps + at, of->step_count, of, p->memory);
        values = MAXIMUM(values, end);
    }
    p->workspace_bytes = capture_spread_scratch(p->steps, p->step_count, values, p->memory);
}

/* All launches as one series, if there is nothing between them. */
static qn_status open_series(qn_plan *p, qn_error *error)
{
    const device_slot *s = &p->context->slots[p->slot];
    s->driver->series_close(p->series);
    p->series = NULL;
    for (int i = 0; i < p->step_count; i++)
        if (!p->steps[i].instance || p->steps[i].has_initials) return QN_OK;
    series_launch *launches = heap_new(sizeof(*launches) * (size_t)(p->step_count + 1));
    for (int i = 0; i < p->step_count; i++)
        launches[i] = (series_launch){
            .program = p->steps[i].variant->program, .arrays = p->steps[i].views, .plan = &p->steps[i].launch};
    qn_status status = s->driver->series_open(s->device, launches, p->step_count, &p->series, error);
    heap_free(launches);
    return status;
}

typedef struct recorded {
    void **nodes; /* of the graph, after which the step is done */
    int count;
} recorded;

enum { MOST_NODES = 1024 };

/* The sizes of all bases, by part. */
static const int64_t *const *base_bytes(const qn_plan *p, arena *memory)
{
    const int64_t **out = ARENA_ARRAY(memory, const int64_t *, p->step_count + 1);
    for (int i = 0, at = 0; i < p->part_count; i++) {
        const part *from = &p->parts[i];
        int bases = from->plan->buffer_count + from->plan->result_count;
        int64_t *bytes = ARENA_ARRAY(memory, int64_t, bases + 1);
        bytes[0] = p->workspace_bytes;
        for (int b = 0; b < bases; b++) bytes[1 + b] = (int64_t)from->buffers[b]->size_bytes;
        for (int s = 0; s < from->plan->step_count; s++) out[at++] = bytes;
    }
    return out;
}

/* Each step after those that it waits for, and the recording's end after all. */
static qn_status record_order(qn_plan *p, arena *memory, qn_error *error)
{
    const driver_streams *streams = p->context->slots[p->slot].driver->streams;
    void *none;
    if (streams->capture_ends(p->stream, &none, 1, error) < 0) return QN_NO_DEVICE;
    const capture_waits *waits = capture_order(p->steps, p->step_count, base_bytes(p, memory), memory);
    recorded *done = ARENA_ARRAY(memory, recorded, p->step_count + 1);
    void **nodes = ARENA_ARRAY(memory, void *, MOST_NODES);
    bool *inner = ARENA_ARRAY(memory, bool, p->step_count + 1);
    for (int i = 0; i <= p->step_count; i++) {
        int count = 0;
        for (int w = 0; w < (i < p->step_count ? waits[i].count : p->step_count); w++) {
            int from = i < p->step_count ? waits[i].steps[w] : w;
            if (i == p->step_count && inner[from]) continue;
            inner[from] = true;
            if (count + done[from].count > MOST_NODES)
                return error_set(error, QN_FAILED, "a step waits for more than %d nodes", MOST_NODES);
            for (int n = 0; n < done[from].count; n++) nodes[count++] = done[from].nodes[n];
        }
        QN_TRY(streams->capture_after(p->stream, nodes, count, error));
        if (i == p->step_count) break;
        QN_TRY(step_run(&p->steps[i], p->context, p->slot, p->stream, NULL, error));
        count = streams->capture_ends(p->stream, nodes, MOST_NODES, error);
        if (count < 0) return error ? error->status : QN_FAILED;
        done[i] = (recorded){.nodes = ARENA_ARRAY(memory, void *, count + 1), .count = count};
        memcpy(done[i].nodes, nodes, sizeof(*nodes) * (size_t)count);
    }
    return QN_OK;
}

static qn_status record_row(qn_plan *p, arena *memory, qn_error *error)
{
    (void)memory;
    for (int i = 0; i < p->step_count; i++) QN_TRY(step_run(&p->steps[i], p->context, p->slot, p->stream, NULL, error));
    return QN_OK;
}

static qn_status record_graph(qn_plan *p, qn_status (*record)(qn_plan *p, arena *memory, qn_error *error),
                              qn_error *error)
{
    const driver_streams *streams = p->context->slots[p->slot].driver->streams;
    qn_error unread;
    QN_TRY(streams->capture(p->stream, error));
    arena *memory = arena_new();
    qn_status status = record(p, memory, error);
    arena_free(memory);
    qn_status end = streams->capture_end(p->stream, &p->graph, status == QN_OK ? error : &unread);
    if (status == QN_OK) return end;
    if (end == QN_OK) streams->graph_close(p->graph);
    p->graph = NULL;
    return status;
}

static qn_status record_steps(qn_plan *p, qn_error *error)
{
    const device_slot *s = &p->context->slots[p->slot];
    for (int i = 0; i < p->step_count; i++) QN_TRY(step_prepare(&p->steps[i], p->context, p->slot, error));
    if (s->driver->series_open) return open_series(p, error);
    if (!s->driver->streams) return QN_OK;
    QN_TRY(s->driver->memory->settle(s->device, error));
    if (p->graph) s->driver->streams->graph_close(p->graph);
    p->graph = NULL;
    if (!p->stream) QN_TRY(s->driver->streams->open(s->device, &p->stream, error));
    qn_error unread;
    if (record_graph(p, record_order, &unread) == QN_OK) return QN_OK;
    return record_graph(p, record_row, error); /* a driver that knows no other order */
}

/* Results that were placed are leaves now; what was computed from them in the step is not computed for others. */
static void forget_computed(qn_plan *p)
{
    const placed nowhere = {0};
    for (int i = 0; i < p->computed_count; i++) tape_place(p->tape, p->computed[i], &nowhere);
    p->computed_count = 0;
}

qn_status qn_capture_end(qn_tape *tape, qn_plan **out, qn_error *error)
{
    HEAP_ENTER(error);
    if (!tape || !out) return error_set(error, QN_BAD_CALL, "qn_capture_end: an argument is NULL");
    *out = NULL;
    qn_plan *p = tape->capturing;
    if (!p) return error_set(error, QN_BAD_CALL, "qn_capture_end: no recording was begun on this tape");
    forget_computed(p);
    tape->capturing = NULL;
    p->next = tape->realizer->captured;
    tape->realizer->captured = p;
    qn_status status = qn_tape_error(tape, error);
    if (status == QN_OK && p->status != QN_OK)
        status = error_set(error, p->status, "qn_capture_end: an evaluation of the step failed");
    if (status == QN_OK) {
        copy_steps(p);
        if (p->context->slots[p->slot].driver->streams) spread_places(p);
        status = tape_storage(tape, MAXIMUM(p->workspace_bytes, 1), &p->workspace, error);
    }
    if (status == QN_OK) {
        give_addresses(p);
        status = record_steps(p, error);
    }
    if (status != QN_OK) {
        qn_plan_free(p);
        return status;
    }
    *out = p;
    return QN_OK;
}

void capture_failed(qn_tape *tape, qn_status status)
{
    if (tape->capturing) tape->capturing->status = status;
}

/* ---- replay ---- */

/* What was made from the memory that the step writes can not be computed any more. */
static void renew(qn_plan *p)
{
    qn_tape *tape = p->tape;
    if (p->clean_renumbered == tape->renumbered && p->clean_count == tape->graph->node_count) return;
    bool fresh = true;
    for (int i = 0; i < p->written_count; i++) {
        const tape_slot *s = &tape->slots[p->written[i].slot];
        if (!s->node || s->stamp != p->written[i].stamp) continue;
        if (!s->variable && graph_get(tape->graph, s->node)->code != GRAPH_LEAF) continue;
        int count = tape->graph->node_count;
        tape_overwritten(tape, s->variable ? s->home_leaf : s->node);
        fresh &= (int)(s->variable ? s->home_leaf : s->node) >= count;
    }
    p->clean_renumbered = tape->renumbered;
    p->clean_count = fresh ? tape->graph->node_count : 0;
}

static qn_status usable(const qn_plan *p, const char *function, qn_error *error)
{
    if (!p) return error_set(error, QN_BAD_CALL, "%s: the plan is NULL", function);
    if (!p->tape) return error_set(error, QN_BAD_CALL, "%s: the tape that recorded the plan was freed", function);
    if (p->tape->capturing)
        return error_set(error, QN_BAD_CALL, "%s: a step of the same tape is being recorded", function);
    return QN_OK;
}

/* By step, for the record; made at the first replay that is recorded, so that later ones allocate nothing. */
static const record_facts *const *step_facts_all(qn_plan *p)
{
    if (p->facts) return p->facts;
    p->facts = ARENA_ARRAY(p->memory, const record_facts *, p->step_count + 1);
    for (int i = 0; i < p->step_count; i++) p->facts[i] = step_facts(&p->steps[i], p->context, p->slot);
    return p->facts;
}

/* Copies have no facts: they are no parts. */
static const record_facts *facts_of_all(qn_plan *p)
{
    if (p->whole) return p->whole;
    const record_facts *const *each = step_facts_all(p);
    const record_facts **parts = ARENA_ARRAY(p->memory, const record_facts *, p->step_count + 1);
    int count = 0;
    for (int i = 0; i < p->step_count; i++)
        if (each[i]) parts[count++] = each[i];
    p->whole = facts_of_parts(parts, count, "graph", p->context->slots[p->slot].name);
    return p->whole;
}

static qn_status run_all(qn_plan *p, bool recorded, qn_error *error)
{
    const device_slot *s = &p->context->slots[p->slot];
    if (p->context->counter && p->counted_by != p->context->counter->number) { /* one by one, this once */
        p->counted_by = p->context->counter->number;
        for (int i = 0; i < p->step_count; i++) {
            QN_TRY(step_run(&p->steps[i], p->context, p->slot, NULL, NULL, error));
            step_count(&p->steps[i], p->context, p->slot);
        }
        return QN_OK;
    }
    if (p->series) return s->driver->series_run(p->series, recorded ? step_facts_all(p) : NULL, error);
    if (!p->graph) {
        for (int i = 0; i < p->step_count; i++) QN_TRY(step_run(&p->steps[i], p->context, p->slot, NULL, NULL, error));
        return QN_OK;
    }
    const record_facts *whole = recorded ? facts_of_all(p) : NULL;
    int64_t from = record_begin();
    uint64_t identity = record_enter("graph");
    qn_status status = s->driver->streams->replay(p->graph, NULL, error);
    record_leave(identity);
    record_end(from, RECORD_LAUNCH, "graph", NULL, identity, (intptr_t)whole, p->slot);
    return status;
}

qn_status qn_plan_replay(qn_plan *p, qn_error *error)
{
    HEAP_ENTER(error);
    QN_TRY(usable(p, "qn_plan_replay", error));
    QN_TRY(qn_tape_error(p->tape, error));
    if (p->tape->assign_count) QN_TRY(realize_slots(p->tape, NULL, 0, error)); /* what was asked for earlier */
    int64_t from = record_begin();
    qn_status status = run_all(p, from != 0, error);
    if (status == QN_OK) renew(p);
    record_end(from, RECORD_OP, "replay", NULL, 0, p->kernel_count, p->slot);
    return status;
}

qn_status qn_plan_swap(qn_plan *p, qn_tensor input, qn_buffer *buffer, qn_error *error)
{
    HEAP_ENTER(error);
    QN_TRY(usable(p, "qn_plan_swap", error));
    if (!buffer) return error_set(error, QN_BAD_CALL, "qn_plan_swap: the buffer is NULL");
    const tape_slot *s = input.tape == p->tape ? tape_slot_of(input) : NULL;
    if (!s) return error_set(error, QN_BAD_CALL, "qn_plan_swap: the tensor is empty, released or of another tape");
    const placed *where = tape_placed(p->tape, s->variable ? s->home_leaf : s->node);
    qn_buffer *recorded = where ? where->storage->buffer : NULL;
    bool found = false;
    for (int i = 0; i < p->part_count && recorded; i++)
        for (int b = 0; b < p->parts[i].plan->buffer_count; b++) found |= p->parts[i].buffers[b] == recorded;
    if (!found) return error_set(error, QN_BAD_CALL, "qn_plan_swap: the plan does not read this tensor's memory");
    const char *device = qn_buffer_device(recorded);
    if (strcmp(device, qn_buffer_device(buffer)) != 0)
        return error_set(error, QN_BAD_CALL, "qn_plan_swap: the buffer is on %s and the tensor on %s",
                         *qn_buffer_device(buffer) ? qn_buffer_device(buffer) : "the host",
                         *device ? device : "the host");
    if (buffer->size_bytes < recorded->size_bytes)
        return error_set(error, QN_BAD_CALL, "qn_plan_swap: the buffer has %zu bytes; the tensor's memory has %zu",
                         buffer->size_bytes, recorded->size_bytes);
    if ((uintptr_t)buffer->data % 64 != (uintptr_t)recorded->data % 64)
        return error_set(error, QN_BAD_CALL,
                         "qn_plan_swap: the buffer is not aligned as the tensor's memory is (to 64 bytes)");
    int at = 0;
    while (at < p->swap_count && p->swaps[at].recorded != recorded) at++;
    if (at == p->swap_count) {
        swap fresh = {.recorded = qn_buffer_retain(recorded)};
        ARENA_PUSH(p->memory, p->swaps, p->swap_count, p->swap_capacity, fresh);
    }
    if (p->swaps[at].now == buffer) return QN_OK;
    qn_buffer_retain(buffer);
    qn_buffer_release(p->swaps[at].now);
    p->swaps[at].now = buffer;
    give_addresses(p);
    return record_steps(p, error);
}

void qn_plan_info(const qn_plan *p, qn_plan_facts *facts)
{
    if (facts) *facts = (qn_plan_facts){0};
    if (!p || !facts) return;
    const device_slot *s = &p->context->slots[p->slot];
    facts->kernels = p->kernel_count;
    facts->nodes = p->graph ? (int)s->driver->streams->graph_nodes(p->graph) : p->step_count;
    facts->workspace_bytes = p->workspace_bytes;
    facts->peak_bytes = p->workspace_bytes + p->result_bytes;
}

/* Everything that needs the device. */
static void release(qn_plan *p)
{
    const device_slot *s = &p->context->slots[p->slot];
    qn_error ignored;
    if (s->driver->memory) (void)!s->driver->memory->settle(s->device, &ignored);
    if (p->graph) s->driver->streams->graph_close(p->graph);
    if (p->stream) s->driver->streams->close(p->stream);
    if (p->series) s->driver->series_close(p->series);
    for (int i = 0; i < p->step_count; i++)
        if (p->steps[i].ready) s->driver->discard(p->steps[i].ready);
    for (int i = 0; i < p->part_count; i++) {
        int bases = p->parts[i].plan->buffer_count + p->parts[i].plan->result_count;
        for (int b = 0; b < bases; b++) qn_buffer_release(p->parts[i].buffers[b]);
        plan_release(p->parts[i].plan, p->context, p->slot);
    }
    for (int i = 0; i < p->swap_count; i++) {
        qn_buffer_release(p->swaps[i].recorded);
        qn_buffer_release(p->swaps[i].now);
    }
    storage_release(p->workspace);
    p->graph = NULL;
    p->stream = NULL;
    p->series = NULL;
    p->workspace = NULL;
    p->step_count = p->part_count = p->swap_count = 0;
}

void capture_abandon(qn_tape *tape)
{
    if (!tape->realizer) return;
    if (tape->capturing) {
        qn_plan *p = tape->capturing;
        tape->capturing = NULL;
        release(p);
        arena_free(p->memory);
        heap_free(p);
    }
    for (qn_plan *p = tape->realizer->captured; p; p = p->next) {
        release(p);
        p->tape = NULL;
    }
}

void qn_plan_free(qn_plan *p)
{
    if (!p || heap_is_stopped()) return;
    if (p->tape) {
        qn_plan **at = &p->tape->realizer->captured;
        while (*at != p) at = &(*at)->next;
        *at = p->next;
        release(p);
    }
    arena_free(p->memory);
    heap_free(p);
}
