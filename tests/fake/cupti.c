/*
 * A libcupti that traces the libcuda beside it. In: what that driver tells of its work. Out: activity records in buffers
 * of the client, laid out as CUPTI lays them out (test_cupti.c has the offsets), each call's external correlation in
 * another buffer than its work, which comes later, as it may with the real one. It refuses on demand
 * (FAKE_CUPTI_REFUSE=39), and gives records that a test planted.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "fake/trace.h"

#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define FAKE(name, ...)           \
    EXPORT int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

enum { KIND_COPY = 1, KIND_SET = 2, KIND_KERNEL = 10, KIND_OVERHEAD = 17, KIND_EXTERNAL = 39, KIND_GRAPH = 51 };
enum { MOST_KINDS = 64, MOST_DEPTH = 32 };

typedef struct buffer {
    uint8_t *bytes;
    size_t size, used;
} buffer;

static struct {
    pthread_mutex_t lock;
    bool on[MOST_KINDS];
    void (*request)(uint8_t **buffer, size_t *size_bytes, size_t *most_records);
    void (*complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size_bytes, size_t valid_bytes);
    buffer work, correlations;
    uint32_t last_call;
    size_t dropped;
    int64_t clock_shift_ns;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local uint64_t stack[MOST_DEPTH];
static _Thread_local int depth;

EXPORT void fake_cupti_plant(const void *record, size_t size); /* comes with the next records */
EXPORT void fake_cupti_drop(size_t count);
EXPORT void fake_cupti_shift(int64_t ns); /* another clock than the host's */

/* Sizes of the records, by kind: so far the next one lies. */
static size_t size_of(uint32_t kind)
{
    switch (kind) {
    case KIND_KERNEL: return 216;
    case KIND_COPY: return 96;
    case KIND_SET: return 88;
    case KIND_EXTERNAL: return 24;
    case KIND_GRAPH: return 56;
    case KIND_OVERHEAD: return 56;
    default: return 8;
    }
}

static void deliver(buffer *b)
{
    if (b->bytes) fake.complete(NULL, 0, b->bytes, b->size, b->used);
    *b = (buffer){0};
}

static void add(buffer *b, const void *record, size_t size)
{
    if (b->bytes && b->size - b->used < size) deliver(b);
    if (!b->bytes) {
        size_t most = 0;
        fake.request(&b->bytes, &b->size, &most);
        b->used = 0;
    }
    if (!b->bytes) {
        fake.dropped++;
        return;
    }
    memcpy(b->bytes + b->used, record, size);
    b->used += size;
}

static void put(uint8_t *record, size_t at, uint64_t value, size_t size)
{
    memcpy(record + at, &value, size);
}

static void listen(const fake_span *span)
{
    uint8_t r[256] = {0};
    uint64_t start = (uint64_t)(span->start_ns + fake.clock_shift_ns), end = start;
    end += (uint64_t)(span->end_ns - span->start_ns);
    static const uint32_t kinds[] = {KIND_KERNEL, KIND_COPY, KIND_SET, KIND_GRAPH};
    uint32_t kind = kinds[span->kind];
    pthread_mutex_lock(&fake.lock);
    if (span->correlation != fake.last_call && depth && fake.on[KIND_EXTERNAL]) {
        put(r, 0, KIND_EXTERNAL, 4);
        put(r, 4, 3, 4);
        put(r, 8, stack[depth - 1], 8);
        put(r, 16, span->correlation, 4);
        add(&fake.correlations, r, size_of(KIND_EXTERNAL));
        memset(r, 0, sizeof(r));
    }
    fake.last_call = span->correlation;
    bool hidden = kind == KIND_GRAPH ? !fake.on[KIND_GRAPH] : span->graph && fake.on[KIND_GRAPH];
    put(r, 0, kind, 4);
    if (kind == KIND_KERNEL) {
        put(r, 6, 32, 2);
        put(r, 16, start, 8);
        put(r, 24, end, 8);
        put(r, 48, 7, 4);
        for (size_t i = 0; i < 3; i++) {
            put(r, 52 + 4 * i, span->grid[i], 4);
            put(r, 64 + 4 * i, span->block[i], 4);
        }
        put(r, 80, span->shared_bytes, 4);
        put(r, 92, span->correlation, 4);
        put(r, 104, (uint64_t)(uintptr_t)span->name, 8);
        put(r, 144, span->node, 8);
        put(r, 156, span->graph, 4);
    } else if (kind == KIND_GRAPH) {
        put(r, 4, span->correlation, 4);
        put(r, 8, start, 8);
        put(r, 16, end, 8);
        put(r, 28, span->graph, 4);
        put(r, 36, 7, 4);
    } else {
        put(r, 4, (uint64_t)span->direction, 1);
        put(r, 8, span->bytes, 8);
        put(r, 16, start, 8);
        put(r, 24, end, 8);
        put(r, 40, 7, 4);
        put(r, 44, span->correlation, 4);
        put(r, 64, span->node, 8);
        put(r, 72, span->graph, 4);
    }
    if (!hidden && fake.on[kind]) add(&fake.work, r, size_of(kind));
    pthread_mutex_unlock(&fake.lock);
}

void fake_cupti_plant(const void *record, size_t size)
{
    pthread_mutex_lock(&fake.lock);
    add(&fake.work, record, size);
    pthread_mutex_unlock(&fake.lock);
}

void fake_cupti_drop(size_t count)
{
    fake.dropped += count;
}

void fake_cupti_shift(int64_t ns)
{
    fake.clock_shift_ns = ns;
}

/* ---- CUPTI ---- */

FAKE(cuptiGetResultString, int result, const char **words)
{
    *words = result == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_OF_THE_FAKE";
    return 0;
}

FAKE(cuptiGetTimestamp, uint64_t *ns)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    *ns = (uint64_t)((int64_t)t.tv_sec * 1000000000 + t.tv_nsec + fake.clock_shift_ns);
    return 0;
}

FAKE(cuptiActivityRegisterCallbacks, void (*request)(uint8_t **buffer, size_t *size_bytes, size_t *most_records),
     void (*complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size_bytes, size_t valid_bytes))
{
    Dl_info info;
    char path[4200];
    fake.request = request;
    fake.complete = complete;
    if (!dladdr((void *)&fake, &info)) return 15;
    snprintf(path, sizeof(path), "%s", info.dli_fname);
    char *folder = dirname(path);
    memmove(path, folder, strlen(folder) + 1);
    strcat(path, "/libcuda.so.1");
    void *driver = dlopen(path, RTLD_NOW);
    void (*tell)(fake_listener *) = NULL;
    void *address = driver ? dlsym(driver, "fake_listen") : NULL;
    memcpy(&tell, &address, sizeof(tell));
    if (!tell) return 15;
    tell(listen);
    return 0;
}

FAKE(cuptiActivityEnable, int kind)
{
    const char *refuse = getenv("FAKE_CUPTI_REFUSE");
    if (refuse) return atoi(refuse);
    fake.on[kind] = true;
    return 0;
}

FAKE(cuptiActivityDisable, int kind)
{
    fake.on[kind] = false;
    return 0;
}

FAKE(cuptiActivityEnableDriverApi, uint32_t callback, uint8_t enable)
{
    (void)callback, (void)enable;
    return 0;
}

FAKE(cuptiActivityFlushAll, uint32_t flag)
{
    (void)flag;
    pthread_mutex_lock(&fake.lock);
    buffer work = fake.work, correlations = fake.correlations;
    fake.work = fake.correlations = (buffer){0};
    pthread_mutex_unlock(&fake.lock);
    deliver(&work);
    deliver(&correlations);
    return 0;
}

FAKE(cuptiActivityGetNextRecord, uint8_t *buffer, size_t valid_bytes, void **record)
{
    uint8_t *next = buffer;
    if (*record) {
        uint32_t kind;
        memcpy(&kind, *record, sizeof(kind));
        next = (uint8_t *)*record + size_of(kind);
    }
    if (next >= buffer + valid_bytes) return 12;
    *record = next;
    return 0;
}

FAKE(cuptiActivityGetNumDroppedRecords, void *context, uint32_t stream, size_t *dropped)
{
    (void)context, (void)stream;
    *dropped = fake.dropped;
    fake.dropped = 0;
    return 0;
}

FAKE(cuptiActivityPushExternalCorrelationId, int kind, uint64_t id)
{
    if (kind != 3 || depth == MOST_DEPTH) return 1;
    stack[depth++] = id;
    return 0;
}

FAKE(cuptiActivityPopExternalCorrelationId, int kind, uint64_t *last)
{
    if (kind != 3 || !depth) return 18;
    *last = stack[--depth];
    return 0;
}

/* ---- the range profiler: two passes, and values by the metric's name ---- */

enum { FAKE_PASSES = 2 };
static int sessions, ranges_open, passes_done, range_kind; /* 1: found by kernel, 2: pushed */

EXPORT int fake_cupti_sessions(void); /* that were opened so far */
int fake_cupti_sessions(void)
{
    return sessions;
}

static int may_count(void)
{
    const char *refuse = getenv("FAKE_CUPTI_COUNTERS");
    return refuse ? atoi(refuse) : 0;
}

/* A word of a struct of parameters: each begins with its size and a reserved pointer. */
static void set_word(void *parameters, int word, uint64_t value)
{
    memcpy((uint64_t *)parameters + word, &value, sizeof(value));
}

#define TAKES(name) FAKE(name, void *parameters)
#define NOTHING_TO_DO(name) \
    TAKES(name)             \
    {                       \
        (void)parameters;   \
        return 0;           \
    }
NOTHING_TO_DO(cuptiProfilerInitialize)
NOTHING_TO_DO(cuptiProfilerDeInitialize)
NOTHING_TO_DO(cuptiProfilerHostDeinitialize)
NOTHING_TO_DO(cuptiProfilerHostConfigAddMetrics)
NOTHING_TO_DO(cuptiProfilerHostGetConfigImage)
NOTHING_TO_DO(cuptiRangeProfilerCounterDataImageInitialize)
NOTHING_TO_DO(cuptiRangeProfilerDecodeData)
NOTHING_TO_DO(cuptiRangeProfilerDisable)

TAKES(cuptiDeviceGetChipName)
{
    set_word(parameters, 3, (uint64_t)(uintptr_t) "GH100");
    return 0;
}

TAKES(cuptiProfilerGetCounterAvailability)
{
    set_word(parameters, 3, 16);
    return may_count();
}

TAKES(cuptiProfilerHostInitialize)
{
    set_word(parameters, 5, 1);
    return 0;
}

TAKES(cuptiProfilerHostGetMetricProperties)
{
    const char *name = *(const char *const *)((uint64_t *)parameters + 3);
    return strstr(name, "_op_read") || strstr(name, "gmma") ? 17 : 0;
}

TAKES(cuptiProfilerHostGetConfigImageSize)
{
    set_word(parameters, 3, 64);
    return 0;
}

TAKES(cuptiRangeProfilerEnable)
{
    set_word(parameters, 3, 1);
    sessions++;
    ranges_open = 0;
    return 0;
}

TAKES(cuptiRangeProfilerGetCounterDataSize)
{
    set_word(parameters, 7, 128);
    return 0;
}

TAKES(cuptiRangeProfilerSetConfig)
{
    size_t size;
    memcpy(&size, parameters, sizeof(size));
    memcpy(&range_kind, (uint64_t *)parameters + 7, sizeof(range_kind));
    passes_done = 0;
    const char *refuse = getenv("FAKE_CUPTI_RANGES"); /* one that finds no kernels itself */
    return size != 90 || (range_kind == 1 && refuse) ? 1 : 0;
}

TAKES(cuptiRangeProfilerStart)
{
    (void)parameters;
    return ranges_open ? 7 : 0;
}

TAKES(cuptiRangeProfilerPushRange)
{
    (void)parameters;
    ranges_open++;
    return range_kind == 2 ? 0 : 7;
}

TAKES(cuptiRangeProfilerPopRange)
{
    (void)parameters;
    ranges_open--;
    return 0;
}

TAKES(cuptiRangeProfilerStop)
{
    uint8_t all = ++passes_done == FAKE_PASSES;
    memcpy((uint8_t *)parameters + 40, &all, 1);
    return 0;
}

/* A launch is two kernels, the second with twice the values of the first. */
TAKES(cuptiRangeProfilerGetCounterDataInfo)
{
    set_word(parameters, 4, range_kind == 1 ? 2 : 1);
    return 0;
}

TAKES(cuptiProfilerHostEvaluateToGpuValues)
{
    double scale = (double)((uint64_t *)parameters)[5] + 1;
    const char *const *names = *(const char *const *const *)((uint64_t *)parameters + 6);
    uint64_t count = ((uint64_t *)parameters)[7];
    double *values = *(double **)((uint64_t *)parameters + 8);
    for (uint64_t i = 0; i < count; i++)
        values[i] = (getenv("FAKE_CUPTI_BEYOND") ? 101 : 1) * scale *
                    (!strcmp(names[i], "dram__bytes_read.sum") ? 4096 : (double)i + 1);
    return 0;
}

/* ---- the sampler: two places of one function, three reasons, one of which is counted twice ---- */

typedef struct sampled_pc {
    size_t size;
    uint64_t cubin_crc, offset;
    uint32_t function, padding;
    char *name;
    size_t stall_count;
    uint32_t (*stalls)[2];
    uint32_t correlation;
} sampled_pc;

static const char *const reasons[] = {"smsp__pcsamp_warps_issue_stalled_long_scoreboard",
                                      "smsp__pcsamp_warps_issue_stalled_not_selected",
                                      "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued"};
static bool sampling, configured;

TAKES(cuptiPCSamplingEnable)
{
    (void)parameters;
    sampling = true;
    configured = false;
    return may_count();
}

TAKES(cuptiPCSamplingDisable)
{
    (void)parameters;
    sampling = false;
    return 0;
}

TAKES(cuptiPCSamplingGetNumStallReasons)
{
    **(size_t **)((uint64_t *)parameters + 3) = 3;
    return sampling ? 0 : 7;
}

TAKES(cuptiPCSamplingGetStallReasons)
{
    uint32_t *indices = *(uint32_t **)((uint64_t *)parameters + 4);
    char **names = *(char ***)((uint64_t *)parameters + 5);
    for (uint32_t i = 0; i < 3; i++) {
        indices[i] = 10 + i;
        snprintf(names[i], 128, "%s", reasons[i]);
    }
    return 0;
}

TAKES(cuptiPCSamplingSetConfigurationAttribute)
{
    configured = ((uint64_t *)parameters)[3] == 3;
    return configured ? 0 : 1;
}

TAKES(cuptiPCSamplingGetData)
{
    uint64_t *data = *(uint64_t **)((uint64_t *)parameters + 3);
    sampled_pc *pcs = *(sampled_pc **)(data + 7);
    static char name[] = "twice_phase0", other[] = "somebody_else";
    if (!configured || data[0] != 80) return 1;
    const uint32_t planted[3][3] = {{70, 10, 60}, {5, 15, 5}, {900, 0, 0}};
    for (int i = 0; i < 3; i++) {
        pcs[i].offset = 16 * (uint64_t)i;
        pcs[i].name = i < 2 ? name : other;
        pcs[i].stall_count = 3;
        for (uint32_t k = 0; k < 3; k++) {
            pcs[i].stalls[k][0] = 10 + k;
            pcs[i].stalls[k][1] = planted[i][k];
        }
    }
    data[3] = 2; /* dropped */
    data[4] = 3; /* places */
    data[5] = 0;
    return 0;
}

/* The first place is of line 2, the other of the prelude. */
TAKES(cuptiGetSassToSourceCorrelation)
{
    uint64_t offset = ((uint64_t *)parameters)[5];
    *(uint32_t *)((uint64_t *)parameters + 4) = offset ? 99 : 2;
    *(char **)((uint64_t *)parameters + 6) = strdup(offset ? "kernel.cu" : "twice.qn");
    *(char **)((uint64_t *)parameters + 7) = strdup("");
    return 0;
}
