/*
 * The fake driver's streams, graphs and events. A graph runs, of what may run now, what was recorded last: whatever lacks
 * an edge runs too early, and its numbers are wrong.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "fake/state.h"

#include <stdlib.h>
#include <string.h>

EXPORT int64_t fake_depth(void); /* of the graph that was launched last: nodes of its longest way */

FAKE(cuStreamCreate, void **handle, unsigned flags)
{
    (void)flags;
    ASK();
    *handle = calloc(1, sizeof(stream));
    return *handle ? 0 : CUDA_OUT_OF_MEMORY;
}

FAKE(cuStreamDestroy_v2, void *handle)
{
    ASK();
    free(((stream *)handle)->after);
    free(handle);
    return 0;
}

FAKE(cuStreamSynchronize, void *handle)
{
    (void)handle;
    return fake_ask(__func__);
}

FAKE(cuStreamWaitEvent, void *handle, void *event, unsigned flags)
{
    (void)handle, (void)event, (void)flags;
    return fake_ask(__func__);
}

FAKE(cuStreamIsCapturing, void *handle, int *status)
{
    const stream *s = fake_stream(handle);
    *status = s && s->recording != NULL;
    return 0;
}

FAKE(cuThreadExchangeStreamCaptureMode, int *mode)
{
    int before = fake_capture_mode;
    fake_capture_mode = *mode;
    *mode = before;
    return 0;
}

FAKE(cuStreamBeginCapture_v2, void *handle, int mode)
{
    ASK();
    stream *s = handle;
    s->is_strict = mode != CUDA_CAPTURE_RELAXED;
    fake.strict += s->is_strict;
    s->recording = calloc(1, sizeof(graph));
    if (!s->recording) return CUDA_OUT_OF_MEMORY;
    s->recording->owners = 1;
    fake_set_after(s, NULL, 0);
    s->recording->number = ++fake.graphs;
    return 0;
}

FAKE(cuStreamGetCaptureInfo_v2, void *handle, int *status, uint64_t *number, void **out, void *const **nodes,
     size_t *count)
{
    const stream *s = handle;
    *status = s->recording != NULL;
    *number = s->recording ? s->recording->number : 0;
    *out = s->recording;
    *nodes = s->after;
    *count = s->after_count;
    return 0;
}

FAKE(cuStreamUpdateCaptureDependencies, void *handle, void *const *nodes, size_t count, unsigned flags)
{
    ASK();
    stream *s = handle;
    if (!s->recording || flags != 1) return CUDA_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!nodes[i] || (uintptr_t)nodes[i] > s->recording->count) return CUDA_INVALID_VALUE;
    fake_set_after(s, nodes, count);
    return 0;
}

FAKE(cuStreamEndCapture, void *handle, void **out)
{
    ASK();
    stream *s = handle;
    *out = s->recording;
    s->recording = NULL;
    fake.strict -= s->is_strict;
    return *out ? 0 : CUDA_INVALID_VALUE;
}

FAKE(cuGraphGetNodes, void *handle, void **nodes, size_t *count)
{
    (void)nodes;
    *count = ((graph *)handle)->count;
    return 0;
}

FAKE(cuGraphInstantiateWithFlags, void **ready, void *handle, unsigned long long flags)
{
    (void)flags;
    ASK();
    ((graph *)handle)->owners++;
    *ready = handle;
    return 0;
}

static int drop_graph(graph *g)
{
    if (--g->owners) return 0;
    for (size_t i = 0; i < g->count; i++) {
        free(g->items[i].parameters);
        free(g->items[i].waits);
    }
    free(g->items);
    free(g);
    return 0;
}

FAKE(cuGraphDestroy, void *handle)
{
    return drop_graph(handle);
}

FAKE(cuGraphExecDestroy, void *handle)
{
    return drop_graph(handle);
}

/* Of what may run now the last that was recorded: whatever lacks an edge runs too early. */
static size_t last_ready(const graph *g, const bool *done)
{
    for (size_t i = g->count; i-- > 0;) {
        bool ready = !done[i];
        for (size_t k = 0; k < g->items[i].wait_count && ready; k++) ready = done[(uintptr_t)g->items[i].waits[k] - 1];
        if (ready) return i;
    }
    return g->count;
}

static int64_t depth_of(const graph *g)
{
    int64_t most = 0, *depth = calloc(g->count + 1, sizeof(*depth)); /* a node waits for earlier ones */
    if (!depth) abort();
    for (size_t i = 0; i < g->count; i++) {
        depth[i] = 1;
        for (size_t k = 0; k < g->items[i].wait_count; k++) {
            int64_t before = depth[(uintptr_t)g->items[i].waits[k] - 1];
            if (before >= depth[i]) depth[i] = before + 1;
        }
        if (depth[i] > most) most = depth[i];
    }
    free(depth);
    return most;
}

int64_t fake_depth(void)
{
    return fake.depth;
}

FAKE(cuGraphLaunch, void *handle, void *stream_handle)
{
    (void)stream_handle;
    ASK();
    const graph *g = handle;
    int result = 0;
    uint32_t call = fake_next_call();
    int64_t start_ns = fake_now_ns();
    fake.depth = depth_of(g);
    bool *done = calloc(g->count + 1, sizeof(*done));
    if (!done) return CUDA_OUT_OF_MEMORY;
    for (size_t i = 0; i < g->count && !result; i++) {
        size_t next = last_ready(g, done);
        if (next == g->count) abort(); /* it waits for itself */
        result = fake_run(&g->items[next], NULL, call, g->number, (uint32_t)next + 1);
        done[next] = true;
    }
    free(done);
    if (fake.listener)
        fake.listener(&(fake_span){.kind = FAKE_GRAPH,
                                   .correlation = call,
                                   .graph = g->number,
                                   .start_ns = start_ns,
                                   .end_ns = fake_now_ns()});
    return result;
}

FAKE(cuEventCreate, void **event, unsigned flags)
{
    (void)flags;
    ASK();
    *event = calloc(1, sizeof(int64_t));
    return *event ? 0 : CUDA_OUT_OF_MEMORY;
}

FAKE(cuEventDestroy_v2, void *event)
{
    free(event);
    return 0;
}

FAKE(cuEventRecord, void *event, void *handle)
{
    (void)handle;
    ASK();
    *(int64_t *)event = clock_now_ns();
    return 0;
}

FAKE(cuEventQuery, void *event)
{
    (void)event;
    return fake_ask(__func__);
}

FAKE(cuEventSynchronize, void *event)
{
    (void)event;
    return fake_ask(__func__);
}

FAKE(cuEventElapsedTime, float *milliseconds, void *from, void *to)
{
    *milliseconds = (float)((double)(*(int64_t *)to - *(int64_t *)from) * 1e-6);
    return 0;
}
