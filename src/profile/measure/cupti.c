/*
 * CUPTI's activity records. In: which kinds. Out: records, buffer by buffer.
 *
 * CUPTI asks for a buffer and gives it back full, from any thread, without a pointer of ours; so the trace that is on is
 * a variable of this file. Full buffers wait in a list until the collector takes them. No lock of ours is held while
 * CUPTI is called: it holds its own when it calls us. Buffers go round, so that a long run allocates no more than it
 * had in flight at once.
 * A record finds its launch by external correlation: launches push the identity of their record (base/record.h), and
 * CUPTI tells which of its own numbers that became. It tells so beside a record of the driver's call, so the few calls
 * that hand over work are traced too.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/cupti.h"

#include "base/record.h"
#include "device/cuda/api.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUFFER_BYTES = 512 << 10,
    READY_BUFFERS = 8, /* from the start, touched, so that the program does not wait for pages */
    EXTERNAL_OURS = 3, /* CUSTOM0 */
    FLUSH_FORCED = 1,
    MOST_KINDS = 8,
    MOST_CALLS = 2048
};

typedef struct buffer {
    struct buffer *next;
    size_t valid_bytes;
    _Alignas(16) uint8_t bytes[BUFFER_BYTES];
} buffer;

struct cupti {
    cuda_api api;
    buffer *full, **full_end, *free; /* under the lock below */
    int kinds[MOST_KINDS];
    int kind_count;
    bool nodes, on;
    int64_t clock_offset_ns;
};

/* The trace that is on. CUPTI may give back a buffer after its end: then it is only freed. The two calls are those of a
 * library that stays loaded, so that a thread may still be in one when the trace ends. */
static struct {
    pthread_mutex_t lock;
    cupti *on;
    int (*_Atomic push)(int kind, uint64_t id);
    int (*_Atomic pop)(int kind, uint64_t *last);
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static buffer *buffer_of(uint8_t *bytes)
{
    return (buffer *)(void *)(bytes - offsetof(buffer, bytes));
}

/* ---- callbacks ---- */

static void request(uint8_t **bytes, size_t *size_bytes, size_t *most_records)
{
    lock_take(&state.lock);
    buffer *b = state.on ? state.on->free : NULL;
    if (b) state.on->free = b->next;
    lock_give(&state.lock);
    if (!b) b = aligned_alloc(_Alignof(buffer), sizeof(*b));
    *bytes = b ? b->bytes : NULL;
    *size_bytes = b ? BUFFER_BYTES : 0;
    *most_records = 0;
}

static void complete(void *context, uint32_t stream, uint8_t *bytes, size_t size_bytes, size_t valid_bytes)
{
    (void)context, (void)stream, (void)size_bytes;
    if (!bytes) return;
    buffer *b = buffer_of(bytes);
    b->next = NULL;
    b->valid_bytes = valid_bytes;
    lock_take(&state.lock);
    cupti *c = state.on;
    if (c) {
        *c->full_end = b;
        c->full_end = &b->next;
    }
    lock_give(&state.lock);
    if (!c) heap_free(b);
}

static void enter(uint64_t identity)
{
    state.push(EXTERNAL_OURS, identity);
}

static void leave(void)
{
    uint64_t last;
    state.pop(EXTERNAL_OURS, &last);
}

static const record_tracer tracer = {enter, leave};

/* ---- starting and stopping ---- */

/* Calls of the driver that hand work to the GPU, by CUPTI's numbers. */
static const uint32_t submits[] = {
    307, 477, 652,                /* cuLaunchKernel, cuLaunchCooperativeKernel, cuLaunchKernelEx */
    514,                          /* cuGraphLaunch */
    277, 279, 281,                /* cuMemcpyHtoDAsync_v2, DtoH, DtoD */
    216, 218, 220, 222, 224, 226, /* cuMemsetD8Async and so on */
};

static const char *advice(int result)
{
    switch (result) {
    case 35:
        return "the user may not use it: run as root, with CAP_SYS_ADMIN, or with the driver's option "
               "NVreg_RestrictProfilingToAdminUsers=0";
    case 39: return "another tool is tracing this process (nsys, another profiler): end it, or profile without it";
    case 33:
    case 40: return "the GPU is virtual and its host does not allow tracing: ask for a vGPU with profiling enabled";
    case 41: return "confidential computing is on, which forbids tracing";
    case 43: return "it is not possible on this MIG instance";
    case 45: return "WSL does not allow it: allow it in the NVIDIA control panel (developer settings)";
    case 15: return "CUPTI did not start: is a folder of `stubs` in LD_LIBRARY_PATH?";
    default: return "times come from events around launches instead";
    }
}

static qn_status refused(cupti *c, int result, const char *doing, qn_error *error)
{
    const char *words = "";
    c->api.cuptiGetResultString(result, &words);
    return error_set(error, QN_NO_DEVICE, "CUPTI does not trace (%s: %s, error %d): %s", doing, words ? words : "",
                     result, advice(result));
}

static void find_clock(cupti *c)
{
    int64_t tightest = INT64_MAX;
    for (int i = 0; i < 9; i++) {
        uint64_t theirs = 0;
        int64_t before = record_clock_ns();
        if (c->api.cuptiGetTimestamp(&theirs)) return;
        int64_t after = record_clock_ns();
        if (after - before >= tightest) continue;
        tightest = after - before;
        c->clock_offset_ns = before + tightest / 2 - (int64_t)theirs;
    }
    /* The same clock, as it is on Linux: what is left is the time of the call. */
    if (llabs(c->clock_offset_ns) < 100000) c->clock_offset_ns = 0;
}

/* CUPTI tells of external correlation only with all calls of the driver on; then those that hand over no work are off. */
static void trace_submits(cupti *c)
{
    if (!c->api.cuptiActivityEnableDriverApi) return;
    for (uint32_t call = 1; call < MOST_CALLS; call++) {
        bool wanted = false;
        for (int i = 0; i < COUNT(submits); i++) wanted |= submits[i] == call;
        if (!wanted && c->api.cuptiActivityEnableDriverApi(call, 0)) return; /* there are no more */
    }
}

static qn_status enable(cupti *c, int kind, bool needed, qn_error *error)
{
    int result = c->api.cuptiActivityEnable(kind);
    if (!result) c->kinds[c->kind_count++] = kind;
    return result && needed ? refused(c, result, "cuptiActivityEnable", error) : QN_OK;
}

static qn_status begin(cupti *c, qn_error *error)
{
    QN_TRY(cuda_api_open(&c->api, CUDA_LIBRARY_CUPTI, error));
    lock_take(&state.lock);
    bool busy = state.on != NULL;
    if (!busy) state.on = c;
    lock_give(&state.lock);
    if (busy) return error_set(error, QN_NO_DEVICE, "another profile is tracing the GPU already");
    int result = c->api.cuptiActivityRegisterCallbacks(request, complete);
    if (result) return refused(c, result, "cuptiActivityRegisterCallbacks", error);
    find_clock(c);
    c->on = true;
    QN_TRY(enable(c, CUPTI_KERNEL, true, error));
    QN_TRY(enable(c, CUPTI_COPY, true, error));
    QN_TRY(enable(c, CUPTI_SET, true, error));
    QN_TRY(enable(c, CUPTI_EXTERNAL, true, error));
    QN_TRY(enable(c, CUPTI_OVERHEAD, false, error));
    if (!c->nodes) QN_TRY(enable(c, CUPTI_GRAPH, false, error));
    QN_TRY(enable(c, CUPTI_DRIVER, true, error));
    trace_submits(c);
    state.push = c->api.cuptiActivityPushExternalCorrelationId;
    state.pop = c->api.cuptiActivityPopExternalCorrelationId;
    record_trace_by(&tracer);
    return QN_OK;
}

qn_status cupti_start(bool nodes, cupti **out, qn_error *error)
{
    *out = NULL;
    cupti *c = calloc(1, sizeof(*c));
    if (!c) return error_set(error, QN_NO_MEMORY, "there is no memory for tracing the GPU");
    c->nodes = nodes;
    c->full_end = &c->full;
    for (int i = 0; i < READY_BUFFERS; i++) {
        buffer *b = aligned_alloc(_Alignof(buffer), sizeof(*b));
        if (!b) break;
        memset(b, 0, sizeof(*b));
        b->next = c->free;
        c->free = b;
    }
    qn_status status = begin(c, error);
    if (status == QN_OK)
        *out = c;
    else
        cupti_free(c);
    return status;
}

void cupti_stop(cupti *c)
{
    if (!c || !c->on) return;
    record_trace_by(NULL);
    for (int i = 0; i < c->kind_count; i++) c->api.cuptiActivityDisable(c->kinds[i]);
    c->on = false;
}

static void free_buffers(buffer *b)
{
    for (buffer *next; b; b = next) {
        next = b->next;
        heap_free(b);
    }
}

void cupti_free(cupti *c)
{
    if (!c) return;
    cupti_stop(c);
    lock_take(&state.lock);
    if (state.on == c) state.on = NULL;
    lock_give(&state.lock);
    free_buffers(c->full);
    free_buffers(c->free);
    cuda_api_close(&c->api);
    heap_free(c);
}

/* ---- reading ---- */

static void take_record(const void *of, const cupti_takers *to)
{
    uint32_t kind;
    memcpy(&kind, of, sizeof(kind));
    switch (kind) {
    case CUPTI_KERNEL: to->kernel(to->user, of); break;
    case CUPTI_COPY: to->copy(to->user, of); break;
    case CUPTI_SET: to->set(to->user, of); break;
    case CUPTI_GRAPH: to->graph(to->user, of); break;
    case CUPTI_EXTERNAL: {
        const cupti_external *e = of;
        if (e->of == EXTERNAL_OURS) to->correlates(to->user, e->correlation, e->identity);
        break;
    }
    case CUPTI_OVERHEAD: {
        const cupti_overhead *o = of;
        if (o->end_ns > o->start_ns) to->overhead(to->user, (int64_t)(o->end_ns - o->start_ns));
        break;
    }
    default: break;
    }
}

void cupti_take(cupti *c, bool flush, bool forced, const cupti_takers *takers)
{
    if (flush) c->api.cuptiActivityFlushAll(0);
    if (forced) c->api.cuptiActivityFlushAll(FLUSH_FORCED);
    lock_take(&state.lock);
    buffer *full = c->full, **last = &full;
    c->full = NULL;
    c->full_end = &c->full;
    lock_give(&state.lock);
    if (!full) return;
    for (buffer *b = full; b; b = b->next) {
        void *of = NULL;
        while (b->valid_bytes && !c->api.cuptiActivityGetNextRecord(b->bytes, b->valid_bytes, &of))
            take_record(of, takers);
        last = &b->next;
    }
    size_t dropped = 0;
    if (!c->api.cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped) && dropped)
        takers->dropped(takers->user, (int64_t)dropped);
    lock_take(&state.lock);
    *last = c->free;
    c->free = full;
    lock_give(&state.lock);
}

int64_t cupti_clock_offset_ns(const cupti *c)
{
    return c->clock_offset_ns;
}
