/*
 * Times of launches by events around them. In: spans on streams, with the identity that the thread is inside of. Out:
 * their times on the realtime clock, once they are over. A span holds the gaps between the phases of a launch, so it is
 * longer than its kernels; whoever shows it says so.
 *
 * Spans go through a ring: threads that launch take the next one, the collector gives back the oldest that is over. A
 * full ring drops the span and counts it. An event that was recorded between two readings of the host's clock, on a
 * stream of its own, ties both clocks together; it is recorded again every second, since differences are told in floats.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/trace.h"

#include "base/record.h"

#include <stdlib.h>

enum { MOST_SPANS = 8192, ANCHOR_TRIES = 9 };
static const int64_t anchor_life_ns = 1000000000;

enum { SPAN_FREE, SPAN_OPEN, SPAN_CLOSED };

typedef struct span {
    _Atomic int state;
    void *from, *to; /* events, made at the first use */
    uint64_t identity;
    const void *stream;
} span;

struct cuda_trace {
    _Atomic bool on;
    _Atomic int64_t head, tail, dropped;
    void *anchor, *stream;
    int64_t anchor_ns, anchored_ns;
    span spans[MOST_SPANS];
};

static int place_anchor(cuda_device *d, struct cuda_trace *t)
{
    int64_t tightest = INT64_MAX, width = INT64_MAX;
    int result = 0;
    /* The event keeps the last time, so the last try must be a good one. */
    for (int i = 0; i < ANCHOR_TRIES && !result && (i < 3 || width > tightest + tightest / 4); i++) {
        int64_t before = record_clock_ns();
        result = d->api.cuEventRecord(t->anchor, t->stream);
        if (!result) result = d->api.cuEventSynchronize(t->anchor);
        t->anchored_ns = record_clock_ns();
        width = t->anchored_ns - before;
        tightest = MINIMUM(tightest, width);
        t->anchor_ns = before + width / 2;
    }
    return result;
}

static void trace_free(cuda_device *d, struct cuda_trace *t)
{
    for (int i = 0; i < MOST_SPANS && !d->lost; i++) {
        if (t->spans[i].from) d->api.cuEventDestroy_v2(t->spans[i].from);
        if (t->spans[i].to) d->api.cuEventDestroy_v2(t->spans[i].to);
    }
    if (t->anchor && !d->lost) d->api.cuEventDestroy_v2(t->anchor);
    if (t->stream && !d->lost) d->api.cuStreamDestroy_v2(t->stream);
    heap_free(t);
}

static qn_status start(device *base, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    struct cuda_trace *t = d->trace, *fresh = t ? NULL : calloc(1, sizeof(*t));
    if (!t && !fresh) return error_set(error, QN_NO_MEMORY, "there is no memory for tracing the GPU");
    qn_status status = cuda_enter(d, &pushed, error);
    if (status != QN_OK) {
        heap_free(fresh);
        return status;
    }
    int result = 0;
    if (fresh) {
        t = fresh;
        result = d->api.cuStreamCreate(&t->stream, CUDA_STREAM_OWN);
        if (!result) result = d->api.cuEventCreate(&t->anchor, 0);
    }
    if (!result) result = place_anchor(d, t);
    if (result && fresh) trace_free(d, fresh);
    if (result) status = cuda_failed(d, result, NULL, "making events", error);
    if (!result) {
        atomic_store(&t->on, true);
        atomic_store(&d->trace, t);
    }
    cuda_leave(d, pushed);
    return status;
}

int64_t cuda_trace_begin(cuda_device *d, const device_stream *s)
{
    struct cuda_trace *t = atomic_load_explicit(&d->trace, memory_order_acquire);
    if (!t || !atomic_load(&t->on) || s->capturing) return -1;
    int64_t number = atomic_load(&t->head);
    do {
        if (number - atomic_load(&t->tail) >= MOST_SPANS) {
            atomic_fetch_add(&t->dropped, 1);
            return -1;
        }
    } while (!atomic_compare_exchange_weak(&t->head, &number, number + 1));
    span *at = &t->spans[number % MOST_SPANS];
    at->identity = record_inside();
    at->stream = s->handle;
    if (!at->from && d->api.cuEventCreate(&at->from, 0)) at->from = NULL;
    if (!at->to && d->api.cuEventCreate(&at->to, 0)) at->to = NULL;
    if (!at->from || !at->to || d->api.cuEventRecord(at->from, s->handle)) at->identity = 0;
    atomic_store(&at->state, SPAN_OPEN);
    return number;
}

void cuda_trace_end(cuda_device *d, const device_stream *s, int64_t number)
{
    struct cuda_trace *t = atomic_load_explicit(&d->trace, memory_order_acquire);
    if (number < 0 || !t) return;
    span *at = &t->spans[number % MOST_SPANS];
    if (!at->to || d->api.cuEventRecord(at->to, s->handle)) at->identity = 0;
    atomic_store(&at->state, SPAN_CLOSED);
}

/* False: it is not over. */
static bool take(cuda_device *d, const struct cuda_trace *t, span *at, trace_take *to, void *user)
{
    float since = 0, length = 0;
    if (atomic_load(&at->state) != SPAN_CLOSED) return false;
    if (at->identity) {
        int result = d->api.cuEventQuery(at->to);
        if (result == CUDA_NOT_READY) return false;
        if (!result) result = d->api.cuEventElapsedTime(&since, t->anchor, at->from);
        if (!result) result = d->api.cuEventElapsedTime(&length, at->from, at->to);
        int64_t start_ns = t->anchor_ns + (int64_t)((double)since * 1e6);
        if (!result)
            to(user, &(trace_span){.start_ns = start_ns,
                                   .end_ns = start_ns + (int64_t)((double)length * 1e6),
                                   .identity = at->identity,
                                   .stream = at->stream});
    }
    atomic_store(&at->state, SPAN_FREE);
    return true;
}

static int64_t read_spans(device *base, trace_take *to, void *user)
{
    cuda_device *d = (cuda_device *)base;
    struct cuda_trace *t = d->trace;
    bool pushed;
    qn_error ignored;
    if (!t || cuda_enter(d, &pushed, &ignored) != QN_OK) return 0;
    if (record_clock_ns() - t->anchored_ns > anchor_life_ns) place_anchor(d, t);
    while (t->tail < t->head && take(d, t, &t->spans[t->tail % MOST_SPANS], to, user)) t->tail++;
    cuda_leave(d, pushed);
    return atomic_exchange(&t->dropped, 0);
}

/* A launch that is just being made on another thread may still hold a span: they are given back with the device. */
static void stop(device *base)
{
    struct cuda_trace *t = ((cuda_device *)base)->trace;
    if (t) atomic_store(&t->on, false);
}

static void focus(device *base, bool on)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    qn_error ignored;
    if (!d->api.cuProfilerStart || !d->api.cuProfilerStop || cuda_enter(d, &pushed, &ignored) != QN_OK) return;
    on ? d->api.cuProfilerStart() : d->api.cuProfilerStop();
    cuda_leave(d, pushed);
}

void cuda_trace_close(cuda_device *d)
{
    struct cuda_trace *t = d->trace;
    if (t) trace_free(d, t);
    d->trace = NULL;
}

const driver_trace cuda_tracing = {.start = start, .read = read_spans, .stop = stop, .focus = focus};
