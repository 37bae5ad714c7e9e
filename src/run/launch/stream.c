/*
 * Streams, events, graphs and launches that do not wait: the public functions. A driver with streams does the work; for
 * one without (cpu, ref) a stream runs everything at once, an event is the time it was recorded, and a graph is the
 * list of calls that were recorded, which are run again.
 * SPDX-License-Identifier: MIT
 */
#include "run/compile/facts.h"
#include "tensor/tape.h"

#include <quern/device.h>
#include <stdlib.h>
#include <string.h>

struct qn_stream {
    qn_context *context;
    int slot;
    device_stream *own;  /* NULL: the driver has none */
    bool is_devices;     /* `own` is the device's own and stays open */
    qn_graph *recording; /* with `own`, only what its launches are */
};

struct qn_event {
    qn_context *context;
    int slot;
    device_event *own;
    int64_t time_ns; /* 0: not recorded */
};

struct qn_graph {
    qn_context *context;
    int slot;
    device_graph *own;
    qn_call **calls; /* where there is no own */
    int call_count, call_capacity;
    const record_facts **parts; /* where there is an own: of its launches, for records */
    int part_count, part_capacity;
    const record_facts *facts; /* of all together, once there was a record */
};

static const device_slot *slot_of(const qn_context *context, int slot)
{
    return &context->slots[slot];
}

static const driver_streams *streams_of(const qn_context *context, int slot)
{
    return context->slots[slot].driver->streams;
}

static qn_status open_stream(qn_context *context, const char *device, bool wrapped, void *native, qn_stream **out,
                             qn_error *error)
{
    int slot;
    if (!context || !out) return error_set(error, QN_BAD_CALL, "qn_stream_new: an argument is NULL");
    *out = NULL;
    QN_TRY(context_slot(context, device, &slot, error));
    const device_slot *s = slot_of(context, slot);
    device_stream *own = NULL;
    const driver_streams *streams = s->driver->streams;
    if (streams)
        QN_TRY(wrapped ? streams->wrap(s->device, native, &own, error) : streams->open(s->device, &own, error));
    qn_stream *stream = heap_new(sizeof(*stream));
    *stream = (qn_stream){.context = context, .slot = slot, .own = own};
    *out = stream;
    return QN_OK;
}

qn_status qn_stream_new(qn_context *context, const char *device, qn_stream **stream, qn_error *error)
{
    HEAP_ENTER(error);
    return open_stream(context, device, false, NULL, stream, error);
}

qn_status qn_stream_wrap(qn_context *context, const char *device, void *native, qn_stream **stream, qn_error *error)
{
    HEAP_ENTER(error);
    return open_stream(context, device, true, native, stream, error);
}

qn_status qn_tape_stream(qn_tape *tape, qn_stream **out, qn_error *error)
{
    HEAP_ENTER(error);
    int slot;
    if (!tape || !out) return error_set(error, QN_BAD_CALL, "qn_tape_stream: an argument is NULL");
    *out = NULL;
    QN_TRY(context_slot(tape->context, tape->device, &slot, error));
    const device_slot *s = slot_of(tape->context, slot);
    device_stream *own = NULL;
    if (s->driver->streams) QN_TRY(s->driver->streams->own(s->device, &own, error));
    qn_stream *stream = heap_new(sizeof(*stream));
    *stream = (qn_stream){.context = tape->context, .slot = slot, .own = own, .is_devices = true};
    *out = stream;
    return QN_OK;
}

void *qn_stream_native(const qn_stream *stream)
{
    return stream && stream->own ? streams_of(stream->context, stream->slot)->native(stream->own) : NULL;
}

void qn_stream_free(qn_stream *stream)
{
    if (!stream || heap_is_stopped()) return;
    if (stream->own && !stream->is_devices) streams_of(stream->context, stream->slot)->close(stream->own);
    if (stream->is_devices && stream->own) (void)!qn_stream_wait(stream, NULL);
    qn_graph_free(stream->recording);
    heap_free(stream);
}

qn_status qn_stream_wait(qn_stream *stream, qn_error *error)
{
    if (!stream) return error_set(error, QN_BAD_CALL, "qn_stream_wait: the stream is NULL");
    return stream->own ? streams_of(stream->context, stream->slot)->wait(stream->own, error) : QN_OK;
}

static qn_status same_device(const qn_context *context, int a, int b, const char *what, qn_error *error)
{
    if (a == b) return QN_OK;
    return error_set(error, QN_BAD_CALL, "%s is of %s and the stream of %s", what, slot_of(context, a)->name,
                     slot_of(context, b)->name);
}

qn_status qn_stream_wait_event(qn_stream *stream, qn_event *event, qn_error *error)
{
    if (!stream || !event) return error_set(error, QN_BAD_CALL, "qn_stream_wait_event: an argument is NULL");
    QN_TRY(same_device(stream->context, event->slot, stream->slot, "the event", error));
    return stream->own ? streams_of(stream->context, stream->slot)->wait_event(stream->own, event->own, error) : QN_OK;
}

device_stream *stream_own(const qn_stream *stream, int *slot)
{
    *slot = stream->slot;
    return stream->own;
}

qn_status stream_event(const qn_stream *stream, qn_event **event, qn_error *error)
{
    return qn_event_new(stream->context, stream->context->slots[stream->slot].name, event, error);
}

/* A launch that is being recorded; what it is will be asked for when the graph is replayed under a profile. */
static void add_part(qn_graph *g, qn_call *call)
{
    const record_facts *f = g && !call_is_function(call) ? call_facts(call) : NULL;
    if (!f) return;
    if (g->part_count == g->part_capacity) {
        g->part_capacity = g->part_capacity ? 2 * g->part_capacity : 16;
        g->parts = heap_resize(g->parts, sizeof(*g->parts) * (size_t)g->part_capacity);
    }
    g->parts[g->part_count++] = f;
}

qn_status qn_call_launch(qn_call *call, qn_stream *stream, qn_error *error)
{
    HEAP_ENTER(error);
    if (!call || !stream) return error_set(error, QN_BAD_CALL, "qn_call_launch: an argument is NULL");
    if (stream->own) {
        QN_TRY(call_submit(call, stream->slot, stream->own, error));
        add_part(stream->recording, call);
        return QN_OK;
    }
    qn_graph *g = stream->recording;
    if (!g) return call_launch(call, stream->slot, NULL, error);
    if (g->call_count == g->call_capacity) {
        g->call_capacity = g->call_capacity ? 2 * g->call_capacity : 16;
        g->calls = heap_resize(g->calls, sizeof(*g->calls) * (size_t)g->call_capacity);
    }
    g->calls[g->call_count++] = call;
    return QN_OK;
}

qn_status qn_call_expect(qn_call *call, const char *device, const char *name, qn_array *array, qn_error *error)
{
    HEAP_ENTER(error);
    int slot;
    if (!call || !name || !array) return error_set(error, QN_BAD_CALL, "qn_call_expect: an argument is NULL");
    QN_TRY(context_slot(call->context, device, &slot, error));
    QN_TRY(call_bind(call, slot, true, error));
    const tile_kernel *k = call->instance->kernel;
    for (int i = 0; i < k->param_count; i++) {
        if (k->params[i].kind >= PARAM_SCRATCH || strcmp(k->params[i].name, name) != 0) continue;
        *array = (qn_array){.type = (qn_dtype)k->params[i].elem, .rank = k->params[i].rank};
        for (int axis = 0; axis < array->rank; axis++) array->extents[axis] = call->plan.extents[i][axis];
        strides_set_row_major(array->rank, array->extents, array->strides);
        return QN_OK;
    }
    return error_set(error, QN_BAD_CALL, "`%s` has no array `%s`", call->kernel->name, name);
}

qn_status qn_call_scratch(qn_call *call, const char *device, int64_t *size_bytes, qn_error *error)
{
    HEAP_ENTER(error);
    int slot;
    int64_t offsets[MAX_PARAMS];
    if (!call || !size_bytes) return error_set(error, QN_BAD_CALL, "qn_call_scratch: an argument is NULL");
    *size_bytes = 0;
    QN_TRY(context_slot(call->context, device, &slot, error));
    if (!slot_of(call->context, slot)->driver->memory) return QN_OK;
    if (call_is_function(call)) return function_scratch(call, slot, size_bytes, error);
    if (!call->bound || call->slot != slot || call->pointers_changed || call->moved)
        QN_TRY(call_bind(call, slot, false, error));
    *size_bytes = call_scratch_bytes(call, offsets);
    return call->variant ? QN_OK : variant_get(call, &call->variant, error);
}

qn_status qn_call_set_scratch(qn_call *call, void *memory, int64_t size_bytes, qn_error *error)
{
    if (!call || size_bytes < 0) return error_set(error, QN_BAD_CALL, "qn_call_set_scratch: an argument is NULL");
    if ((uintptr_t)memory % 256)
        return error_set(error, QN_BAD_CALL,
                         "qn_call_set_scratch: the memory does not begin at a multiple of 256 bytes");
    if (call->scratch == memory && call->scratch_bytes == size_bytes) return QN_OK;
    call->scratch = memory;
    call->scratch_bytes = memory ? size_bytes : 0;
    call->staged = false;
    return QN_OK;
}

/* ---- events ---- */

qn_status qn_event_new(qn_context *context, const char *device, qn_event **out, qn_error *error)
{
    HEAP_ENTER(error);
    int slot;
    if (!context || !out) return error_set(error, QN_BAD_CALL, "qn_event_new: an argument is NULL");
    *out = NULL;
    QN_TRY(context_slot(context, device, &slot, error));
    const device_slot *s = slot_of(context, slot);
    device_event *own = NULL;
    if (s->driver->streams) QN_TRY(s->driver->streams->event_open(s->device, &own, error));
    qn_event *event = heap_new(sizeof(*event));
    *event = (qn_event){.context = context, .slot = slot, .own = own};
    *out = event;
    return QN_OK;
}

void qn_event_free(qn_event *event)
{
    if (!event) return;
    if (event->own) streams_of(event->context, event->slot)->event_close(event->own);
    heap_free(event);
}

qn_status qn_event_record(qn_event *event, qn_stream *stream, qn_error *error)
{
    if (!event || !stream) return error_set(error, QN_BAD_CALL, "qn_event_record: an argument is NULL");
    QN_TRY(same_device(event->context, event->slot, stream->slot, "the event", error));
    event->time_ns = clock_now_ns();
    if (!event->own) return QN_OK;
    return streams_of(event->context, event->slot)->event_record(event->own, stream->own, error);
}

qn_status qn_event_wait(qn_event *event, qn_error *error)
{
    if (!event) return error_set(error, QN_BAD_CALL, "qn_event_wait: the event is NULL");
    return event->own ? streams_of(event->context, event->slot)->event_wait(event->own, error) : QN_OK;
}

qn_status qn_event_elapsed(qn_event *from, qn_event *to, double *ns, qn_error *error)
{
    if (!from || !to || !ns) return error_set(error, QN_BAD_CALL, "qn_event_elapsed: an argument is NULL");
    if (from->slot != to->slot) return error_set(error, QN_BAD_CALL, "the two events are of different devices");
    if (from->own) return streams_of(from->context, from->slot)->event_elapsed(from->own, to->own, ns, error);
    if (!from->time_ns || !to->time_ns)
        return error_set(error, QN_BAD_CALL, "an event has no time before it is recorded");
    *ns = (double)(to->time_ns - from->time_ns);
    return QN_OK;
}

/* ---- graphs ---- */

static qn_graph *new_graph(const qn_stream *stream)
{
    qn_graph *g = heap_new(sizeof(*g));
    g->context = stream->context;
    g->slot = stream->slot;
    return g;
}

qn_status qn_graph_begin(qn_stream *stream, qn_error *error)
{
    HEAP_ENTER(error);
    if (!stream) return error_set(error, QN_BAD_CALL, "qn_graph_begin: the stream is NULL");
    if (stream->own) QN_TRY(streams_of(stream->context, stream->slot)->capture(stream->own, error));
    if (stream->recording) return error_set(error, QN_BAD_CALL, "this stream is being recorded already");
    stream->recording = new_graph(stream);
    return QN_OK;
}

qn_status qn_graph_end(qn_stream *stream, qn_graph **graph, qn_error *error)
{
    HEAP_ENTER(error);
    if (!stream || !graph) return error_set(error, QN_BAD_CALL, "qn_graph_end: an argument is NULL");
    *graph = NULL;
    if (stream->own) {
        qn_graph *g = stream->recording;
        device_graph *own = NULL;
        stream->recording = NULL;
        qn_status status = streams_of(stream->context, stream->slot)->capture_end(stream->own, &own, error);
        if (status != QN_OK) {
            qn_graph_free(g);
            return status;
        }
        CHECK(g);
        g->own = own;
        *graph = g;
        return QN_OK;
    }
    if (!stream->recording) return error_set(error, QN_BAD_CALL, "this stream is not being recorded");
    *graph = stream->recording;
    stream->recording = NULL;
    return QN_OK;
}

static qn_status replay(qn_graph *g, qn_stream *stream, qn_error *error)
{
    if (record_is_on() && !g->facts)
        g->facts = facts_of_parts(g->parts, g->part_count, "graph", slot_of(g->context, g->slot)->name);
    int64_t from = record_begin();
    uint64_t identity = record_enter("graph");
    qn_status status = streams_of(g->context, g->slot)->replay(g->own, stream->own, error);
    record_leave(identity);
    record_end(from, RECORD_LAUNCH, "graph", NULL, identity, (intptr_t)g->facts, g->slot);
    return status;
}

qn_status qn_graph_launch(qn_graph *graph, qn_stream *stream, qn_error *error)
{
    HEAP_ENTER(error);
    if (!graph || !stream) return error_set(error, QN_BAD_CALL, "qn_graph_launch: an argument is NULL");
    QN_TRY(same_device(graph->context, graph->slot, stream->slot, "the graph", error));
    if (graph->own) return replay(graph, stream, error);
    for (int i = 0; i < graph->call_count; i++) QN_TRY(qn_call_launch(graph->calls[i], stream, error));
    return QN_OK;
}

int64_t qn_graph_node_count(const qn_graph *graph)
{
    if (!graph) return 0;
    return graph->own ? streams_of(graph->context, graph->slot)->graph_nodes(graph->own) : graph->call_count;
}

void qn_graph_free(qn_graph *graph)
{
    if (!graph || heap_is_stopped()) return;
    if (graph->own) streams_of(graph->context, graph->slot)->graph_close(graph->own);
    heap_free(graph->calls);
    heap_free(graph->parts);
    heap_free(graph);
}
