/*
 * Streams, events and graphs. A stream is work in order; the device has one of its own, on which everything runs that
 * names none. Waiting for a stream is where failures show: what the driver says, and what kernels left in their
 * reports. A graph is a recording of launches, instantiated once, replayed with one call.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "device/cuda/trace.h"

#include <stdlib.h>
#include <string.h>

struct device_event {
    cuda_device *device;
    void *handle;
    bool recorded;
};

struct device_graph {
    cuda_device *device;
    void *graph, *ready;
    size_t node_count;
    uint64_t trace;                    /* that was on when `ready` was made; 0: none */
    const char *recorded[CUDA_RECENT]; /* names of its last kernels, in order; NULL behind them */
};

void cuda_stream_note(device_stream *s, const char *kernel)
{
    int64_t number = atomic_fetch_add(&s->pending, 1);
    s->recent[number % CUDA_RECENT] = kernel;
}

static qn_status open_stream(device *base, bool owned, void *native, device_stream **out, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    QN_TRY(cuda_enter(d, &pushed, error));
    device_stream *s = heap_new(sizeof(*s));
    s->device = d;
    s->handle = native;
    s->owned = owned;
    int result = owned ? d->api.cuStreamCreate(&s->handle, CUDA_STREAM_OWN) : 0;
    cuda_leave(d, pushed);
    if (result) {
        heap_free(s);
        return cuda_failed(d, result, NULL, "making a stream", error);
    }
    lock_take(&d->lock);
    s->next = d->streams;
    d->streams = s;
    lock_give(&d->lock);
    *out = s;
    return QN_OK;
}

static qn_status stream_open(device *base, device_stream **out, qn_error *error)
{
    return open_stream(base, true, NULL, out, error);
}

static qn_status stream_wrap(device *base, void *native, device_stream **out, qn_error *error)
{
    return open_stream(base, false, native, out, error);
}

static qn_status stream_of_device(device *base, device_stream **out, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    QN_TRY(cuda_enter(d, &pushed, error)); /* makes it at the first use */
    cuda_leave(d, pushed);
    *out = &d->own;
    return QN_OK;
}

static void *stream_native(const device_stream *s)
{
    return s->handle;
}

/* Does somebody record a graph from it: we, or the host program? */
static bool is_recorded(const device_stream *s)
{
    int status = 0;
    if (s->capturing || s->owned || s == &s->device->own) return s->capturing;
    return !s->device->api.cuStreamIsCapturing(s->handle, &status) && status;
}

static void stream_close(device_stream *s)
{
    if (!s) return;
    cuda_device *d = s->device;
    bool pushed;
    qn_error ignored;
    if (cuda_enter(d, &pushed, &ignored) == QN_OK) {
        int mode;
        cuda_relax(d, &mode); /* somebody may record another stream */
        if (!is_recorded(s)) d->api.cuStreamSynchronize(s->handle);
        cuda_relaxed(d, mode);
        if (s->owned) d->api.cuStreamDestroy_v2(s->handle);
        cuda_leave(d, pushed);
    }
    lock_take(&d->lock);
    for (device_stream **p = &d->streams; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            break;
        }
    for (int i = 0; i < CUDA_REPORTS; i++)
        if (d->launches[i] && d->launches[i]->stream == s) d->launches[i]->stream = NULL;
    lock_give(&d->lock);
    heap_free(s);
}

qn_status cuda_wait(device_stream *s, qn_error *error)
{
    cuda_device *d = s->device;
    bool pushed;
    if (is_recorded(s))
        return error_set(error, QN_BAD_CALL, "a stream that is being recorded cannot be waited for; end the recording");
    QN_TRY(cuda_enter(d, &pushed, error));
    int64_t from = record_begin();
    int result = d->api.cuStreamSynchronize(s->handle);
    record_end(from, RECORD_WAIT, "wait for the stream", NULL, 0, 0, 0);
    qn_status status = result ? cuda_failed(d, result, s, "waiting for the device", error) : QN_OK;
    cuda_leave(d, pushed);
    if (status == QN_OK) status = cuda_report_read(s, error);
    atomic_store(&s->pending, 0);
    return status;
}

void cuda_settle(cuda_device *d)
{
    bool pushed, busy = false;
    qn_error ignored;
    lock_take(&d->lock);
    for (device_stream *s = d->streams; s; s = s->next) busy |= is_recorded(s);
    lock_give(&d->lock);
    if (busy || !d->opened || cuda_enter(d, &pushed, &ignored) != QN_OK) return;
    int result = d->api.cuCtxSynchronize();
    if (result) cuda_failed(d, result, d->streams, "waiting for the device", &ignored);
    cuda_leave(d, pushed);
    if (result) return;
    lock_take(&d->lock);
    for (device_stream *s = d->streams; s; s = s->next) atomic_store(&s->pending, 0);
    cuda_memory_settled(d);
    lock_give(&d->lock);
}

static qn_status wait_event(device_stream *s, device_event *e, qn_error *error)
{
    cuda_device *d = s->device;
    bool pushed;
    QN_TRY(cuda_enter(d, &pushed, error));
    int result = d->api.cuStreamWaitEvent(s->handle, e->handle, 0);
    cuda_leave(d, pushed);
    return result ? cuda_failed(d, result, NULL, "waiting for an event", error) : QN_OK;
}

/* ---- graphs ---- */

static qn_status capture(device_stream *s, qn_error *error)
{
    cuda_device *d = s->device;
    bool pushed;
    if (s->capturing) return error_set(error, QN_BAD_CALL, "this stream is being recorded already");
    QN_TRY(cuda_enter(d, &pushed, error));
    int result = d->api.cuStreamBeginCapture_v2(s->handle, CUDA_CAPTURE_RELAXED);
    cuda_leave(d, pushed);
    if (result) return cuda_failed(d, result, NULL, "recording a graph", error);
    s->capturing = true;
    s->recorded_count = 0;
    return QN_OK;
}

static qn_status capture_after(device_stream *s, void *const *nodes, int count, qn_error *error)
{
    cuda_device *d = s->device;
    bool pushed;
    QN_TRY(cuda_enter(d, &pushed, error));
    int result = d->api.cuStreamUpdateCaptureDependencies(s->handle, nodes, (size_t)count, CUDA_CAPTURE_SET);
    cuda_leave(d, pushed);
    return result ? cuda_failed(d, result, NULL, "recording a graph", error) : QN_OK;
}

static int capture_ends(device_stream *s, void **nodes, int most, qn_error *error)
{
    cuda_device *d = s->device;
    bool pushed;
    int status = 0;
    uint64_t number = 0;
    void *graph = NULL, *const *list = NULL;
    size_t count = 0;
    if (!d->api.cuStreamGetCaptureInfo_v2 || !d->api.cuStreamUpdateCaptureDependencies) {
        (void)!error_set(error, QN_NO_DEVICE, "the driver records launches in a row only");
        return -1;
    }
    if (cuda_enter(d, &pushed, error) != QN_OK) return -1;
    int result = d->api.cuStreamGetCaptureInfo_v2(s->handle, &status, &number, &graph, &list, &count);
    for (size_t i = 0; !result && i < count && i < (size_t)most; i++) nodes[i] = list[i];
    cuda_leave(d, pushed);
    if (result) (void)!cuda_failed(d, result, NULL, "recording a graph", error);
    return result || count > (size_t)most ? -1 : (int)count;
}

static qn_status capture_end(device_stream *s, device_graph **out, qn_error *error)
{
    cuda_device *d = s->device;
    bool pushed;
    if (!s->capturing) return error_set(error, QN_BAD_CALL, "this stream is not being recorded");
    s->capturing = false;
    QN_TRY(cuda_enter(d, &pushed, error));
    device_graph *g = heap_new(sizeof(*g));
    g->device = d;
    int mode;
    int result = d->api.cuStreamEndCapture(s->handle, &g->graph);
    if (!result) result = d->api.cuGraphGetNodes(g->graph, NULL, &g->node_count);
    cuda_relax(d, &mode);
    if (!result) result = d->api.cuGraphInstantiateWithFlags(&g->ready, g->graph, 0);
    cuda_relaxed(d, mode);
    g->trace = record_trace_number();
    for (int64_t i = MAXIMUM(s->recorded_count - CUDA_RECENT, 0), at = 0; i < s->recorded_count; i++)
        g->recorded[at++] = s->recorded[i % CUDA_RECENT];
    if (result && g->graph) d->api.cuGraphDestroy(g->graph);
    cuda_leave(d, pushed);
    if (result) {
        heap_free(g);
        return cuda_failed(d, result, NULL, "ending the recording of a graph", error);
    }
    *out = g;
    return QN_OK;
}

/* CUPTI loses its way (and the process with it) in a graph that was made ready before it traced graphs. */
static int make_ready_again(device_graph *g, uint64_t trace)
{
    const cuda_api *api = &g->device->api;
    void *ready = NULL;
    int result = api->cuCtxSynchronize();
    if (!result) result = api->cuGraphInstantiateWithFlags(&ready, g->graph, 0);
    if (result) return result;
    api->cuGraphExecDestroy(g->ready);
    g->ready = ready;
    g->trace = trace;
    return 0;
}

static qn_status replay(device_graph *g, device_stream *s, qn_error *error)
{
    cuda_device *d = g->device;
    bool pushed;
    if (!s) s = &d->own;
    QN_TRY(cuda_enter(d, &pushed, error));
    uint64_t trace = record_trace_number();
    int result = trace && trace != g->trace ? make_ready_again(g, trace) : 0;
    for (int i = 0; i < CUDA_RECENT && g->recorded[i]; i++) cuda_stream_note(s, g->recorded[i]);
    if (!g->recorded[0]) cuda_stream_note(s, "(a graph)"); /* of copies alone */
    int64_t span = cuda_trace_begin(d, s);
    if (!result) result = d->api.cuGraphLaunch(g->ready, s->handle);
    cuda_trace_end(d, s, span);
    cuda_leave(d, pushed);
    if (result) return cuda_failed(d, result, NULL, "replaying a graph", error);
    return d->synchronous && !s->capturing ? cuda_wait(s, error) : QN_OK;
}

static void graph_close(device_graph *g)
{
    bool pushed;
    qn_error ignored;
    if (!g) return;
    if (cuda_enter(g->device, &pushed, &ignored) == QN_OK) {
        g->device->api.cuGraphExecDestroy(g->ready);
        g->device->api.cuGraphDestroy(g->graph);
        cuda_leave(g->device, pushed);
    }
    heap_free(g);
}

static int64_t graph_nodes(const device_graph *g)
{
    return (int64_t)g->node_count;
}

/* ---- events ---- */

static qn_status event_open(device *base, device_event **out, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    QN_TRY(cuda_enter(d, &pushed, error));
    device_event *e = heap_new(sizeof(*e));
    e->device = d;
    int result = d->api.cuEventCreate(&e->handle, 0);
    cuda_leave(d, pushed);
    if (result) {
        heap_free(e);
        return cuda_failed(d, result, NULL, "making an event", error);
    }
    *out = e;
    return QN_OK;
}

static void event_close(device_event *e)
{
    bool pushed;
    qn_error ignored;
    if (!e) return;
    if (cuda_enter(e->device, &pushed, &ignored) == QN_OK) {
        e->device->api.cuEventDestroy_v2(e->handle);
        cuda_leave(e->device, pushed);
    }
    heap_free(e);
}

static qn_status event_record(device_event *e, device_stream *s, qn_error *error)
{
    cuda_device *d = e->device;
    bool pushed;
    QN_TRY(cuda_enter(d, &pushed, error));
    int result = d->api.cuEventRecord(e->handle, s ? s->handle : d->own.handle);
    cuda_leave(d, pushed);
    e->recorded = !result;
    return result ? cuda_failed(d, result, NULL, "recording an event", error) : QN_OK;
}

static qn_status event_wait(device_event *e, qn_error *error)
{
    cuda_device *d = e->device;
    bool pushed;
    QN_TRY(cuda_enter(d, &pushed, error));
    int result = d->api.cuEventSynchronize(e->handle);
    cuda_leave(d, pushed);
    return result ? cuda_failed(d, result, NULL, "waiting for an event", error) : QN_OK;
}

static qn_status event_elapsed(device_event *from, device_event *to, double *ns, qn_error *error)
{
    cuda_device *d = from->device;
    bool pushed;
    float milliseconds = 0;
    if (!from->recorded || !to->recorded)
        return error_set(error, QN_BAD_CALL, "an event has no time before it is recorded");
    QN_TRY(cuda_enter(d, &pushed, error));
    int result = d->api.cuEventSynchronize(to->handle);
    if (!result) result = d->api.cuEventElapsedTime(&milliseconds, from->handle, to->handle);
    cuda_leave(d, pushed);
    *ns = (double)milliseconds * 1e6;
    return result ? cuda_failed(d, result, NULL, "reading events", error) : QN_OK;
}

const driver_streams cuda_streams = {
    .open = stream_open,
    .wrap = stream_wrap,
    .own = stream_of_device,
    .native = stream_native,
    .close = stream_close,
    .wait = cuda_wait,
    .wait_event = wait_event,
    .capture = capture,
    .capture_after = capture_after,
    .capture_ends = capture_ends,
    .capture_end = capture_end,
    .replay = replay,
    .graph_close = graph_close,
    .graph_nodes = graph_nodes,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_elapsed = event_elapsed,
};
