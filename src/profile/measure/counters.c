/*
 * Hardware counters of launches on a GPU. In: a CUDA context and ways to run launches, one after the other. Out: what
 * counters.def lists, as far as this chip has it, of each launch. Opening CUPTI's profiler and laying out its passes takes
 * far longer than counting: who counts many launches keeps one session for all of them.
 *
 * What is counted is each kernel of the launch from its beginning to its end, as Nsight Compute does, and the kernels of a
 * launch are put together: amounts are added, shares weigh by the kernels' cycles. Where CUPTI does not find the kernels
 * itself, all between handing the launch over and its end is counted, and shares are brought to the cycles in which a
 * multiprocessor was at work; they are estimates then, and 100 % at most.
 *
 * CUPTI's range profiler counts in passes: the launch is run again for each, by us, so that nothing has to be saved and
 * restored. So it has to give the same work every time. Counting and timing do not mix: launches that are counted are
 * no samples of a benchmark.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/counters.h"

#include "device/cuda/api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANGE_PROFILER = 0, AUTO_RANGE = 1, USER_RANGE = 2, USER_REPLAY = 3 };
enum { MOST_METRICS = 64, MOST_PASSES = 64, MOST_RANGES = 32 };

typedef struct metric {
    const char *name, *unit;
    double scale;
    const char *metric, *other;
} metric;
static const metric metrics[] = {
#define COUNTER(name, unit, scale, metric, other) {name, unit, scale, metric, other},
#include "profile/measure/counters.def"
};

struct counters_session {
    cuda_api api;
    int device;
    void *context, *host, *range;
    uint8_t *availability, *config, *data;
    size_t config_bytes, data_bytes;
    const char *names[MOST_METRICS]; /* that this chip has */
    int of[MOST_METRICS], count;     /* by name: the metric */
    bool begun, open;
    bool around; /* CUPTI does not find the kernels of a launch: all between its beginning and its end is counted */
};
typedef counters_session session;

bool counters_is_beyond(const char *unit, double value)
{
    return !strcmp(unit, "%") && value > 100.05;
}

void counters_add(qn_counters *c, const char *name, const char *unit, double value, const char *why)
{
    if (c->count < QN_MOST_COUNTERS)
        c->items[c->count++] = (qn_counter){.name = name, .unit = unit, .value = value, .why = why};
}

static qn_status refused(session *s, int result, const char *doing, qn_error *error)
{
    const char *words = "";
    const char *advice = result == 35   ? "only an administrator may read them: run as root or with CAP_SYS_ADMIN, or "
                                          "set the driver's option NVreg_RestrictProfilingToAdminUsers=0"
                         : result == 39 ? "another tool has them (nsys, ncu, DCGM): end it"
                         : result == 26 ? "another process has them (DCGM?): end it"
                                        : "they are not to be had here";
    s->api.cuptiGetResultString(result, &words);
    return error_set(error, QN_NO_DEVICE, "hardware counters: %s (%s: %s, error %d)", advice, doing, words ? words : "",
                     result);
}

#define ASK(s, function, parameters)                                                \
    do {                                                                            \
        int result_of_ask = (s)->api.function ? (s)->api.function(parameters) : 11; \
        if (result_of_ask) return refused((s), result_of_ask, #function, error);    \
    } while (0)

static qn_status open_host(session *s, qn_error *error)
{
    cupti_plain plain = {.size = SIZE_UP_TO(cupti_plain, reserved)};
    QN_TRY(cuda_api_open(&s->api, CUDA_LIBRARY_CUPTI, error));
    ASK(s, cuptiProfilerInitialize, &plain);
    s->begun = true;
    cupti_chip chip = {.size = sizeof(chip), .device = (size_t)s->device};
    ASK(s, cuptiDeviceGetChipName, &chip);
    cupti_availability a = {.size = sizeof(a), .context = s->context};
    ASK(s, cuptiProfilerGetCounterAvailability, &a);
    s->availability = a.image = malloc(a.image_bytes + 1);
    if (!a.image) return error_set(error, QN_NO_MEMORY, "there is no memory for hardware counters");
    ASK(s, cuptiProfilerGetCounterAvailability, &a);
    cupti_host host = {.size = sizeof(host), .type = RANGE_PROFILER, .chip = chip.name, .availability = a.image};
    ASK(s, cuptiProfilerHostInitialize, &host);
    s->host = host.object;
    return QN_OK;
}

static bool has_metric(session *s, const char *name)
{
    cupti_metric m = {.size = SIZE_UP_TO(cupti_metric, type), .object = s->host, .name = name};
    return name && s->api.cuptiProfilerHostGetMetricProperties && !s->api.cuptiProfilerHostGetMetricProperties(&m);
}

static qn_status configure(session *s, qn_error *error)
{
    for (int i = 0; i < COUNT(metrics) && s->count < MOST_METRICS; i++) {
        const char *name = has_metric(s, metrics[i].metric)  ? metrics[i].metric
                           : has_metric(s, metrics[i].other) ? metrics[i].other
                                                             : NULL;
        if (!name) continue;
        s->of[s->count] = i;
        s->names[s->count++] = name;
    }
    cupti_metrics m = {.size = sizeof(m), .object = s->host, .names = s->names, .count = (size_t)s->count};
    ASK(s, cuptiProfilerHostConfigAddMetrics, &m);
    cupti_image image = {.size = SIZE_UP_TO(cupti_image, bytes), .object = s->host};
    ASK(s, cuptiProfilerHostGetConfigImageSize, &image);
    s->config_bytes = image.bytes;
    s->config = image.image = malloc(image.bytes + 1);
    if (!s->config) return error_set(error, QN_NO_MEMORY, "there is no memory for hardware counters");
    image.size = sizeof(image);
    ASK(s, cuptiProfilerHostGetConfigImage, &image);
    return QN_OK;
}

static qn_status open_range(session *s, qn_error *error)
{
    cupti_range_enable enable = {.size = sizeof(enable), .context = s->context};
    ASK(s, cuptiRangeProfilerEnable, &enable);
    s->range = enable.object;
    cupti_range_size size = {.size = sizeof(size),
                             .object = s->range,
                             .names = s->names,
                             .count = (size_t)s->count,
                             .ranges = MOST_RANGES,
                             .nodes = MOST_RANGES};
    ASK(s, cuptiRangeProfilerGetCounterDataSize, &size);
    s->data_bytes = size.bytes;
    s->data = calloc(1, size.bytes + 1);
    return s->data ? QN_OK : error_set(error, QN_NO_MEMORY, "there is no memory for hardware counters");
}

/* For each launch anew: its first pass, into an empty image. */
static qn_status begin(session *s, qn_error *error)
{
    cupti_image image = {.size = sizeof(image), .object = s->range, .bytes = s->data_bytes, .image = s->data};
    ASK(s, cuptiRangeProfilerCounterDataImageInitialize, &image);
    cupti_range_config config = {.size = SIZE_UP_TO(cupti_range_config, target_level),
                                 .object = s->range,
                                 .config_bytes = s->config_bytes,
                                 .config = s->config,
                                 .data_bytes = s->data_bytes,
                                 .data = s->data,
                                 .range = s->around ? USER_RANGE : AUTO_RANGE,
                                 .replay = USER_REPLAY,
                                 .most_ranges = MOST_RANGES,
                                 .levels = 1,
                                 .least_level = 1};
    ASK(s, cuptiRangeProfilerSetConfig, &config);
    return QN_OK;
}

static qn_status count(session *s, counters_run *run, void *user, int *passes, qn_error *error)
{
    cupti_plain plain = {.size = sizeof(plain), .object = s->range};
    cupti_range_push push = {.size = sizeof(push), .object = s->range, .name = "launch"};
    cupti_range_stop stop = {.size = SIZE_UP_TO(cupti_range_stop, all), .object = s->range};
    for (*passes = 0; *passes < MOST_PASSES && !stop.all; ++*passes) {
        ASK(s, cuptiRangeProfilerStart, &plain);
        if (s->around) ASK(s, cuptiRangeProfilerPushRange, &push);
        qn_status status = run(user, error);
        if (s->around) ASK(s, cuptiRangeProfilerPopRange, &plain);
        ASK(s, cuptiRangeProfilerStop, &stop);
        QN_TRY(status);
    }
    cupti_range_decode decode = {.size = sizeof(decode), .object = s->range};
    ASK(s, cuptiRangeProfilerDecodeData, &decode);
    return decode.dropped ? error_set(error, QN_FAILED, "hardware counters: CUPTI lost the launch") : QN_OK;
}

/* Amounts of several kernels add up; of shares and ratios there is a mean. */
static bool is_amount(const metric *m)
{
    return !*m->unit || !strcmp(m->unit, "bytes") || !strcmp(m->unit, "cycles");
}

/* All ranges as one. */
static qn_status add_up(session *s, double *values, qn_error *error)
{
    double of_range[MOST_METRICS], cycles = 0;
    int elapsed = -1;
    cupti_range_info info = {.size = sizeof(info), .data = s->data, .data_bytes = s->data_bytes};
    ASK(s, cuptiRangeProfilerGetCounterDataInfo, &info);
    for (int i = 0; i < s->count; i++)
        if (!strcmp(metrics[s->of[i]].name, "cycles elapsed")) elapsed = i;
    for (size_t r = 0; r < info.count; r++) {
        cupti_evaluate e = {.size = sizeof(e),
                            .object = s->host,
                            .data = s->data,
                            .data_bytes = s->data_bytes,
                            .range = r,
                            .names = s->names,
                            .count = (size_t)s->count,
                            .values = of_range};
        ASK(s, cuptiProfilerHostEvaluateToGpuValues, &e);
        double weight = elapsed >= 0 ? of_range[elapsed] : 1;
        for (int i = 0; i < s->count; i++)
            values[i] += is_amount(&metrics[s->of[i]]) ? of_range[i] : of_range[i] * weight;
        cycles += weight;
    }
    for (int i = 0; i < s->count; i++)
        if (!is_amount(&metrics[s->of[i]])) values[i] /= cycles;
    return info.count ? QN_OK : error_set(error, QN_FAILED, "hardware counters: CUPTI saw no kernel");
}

/* To the cycles of the kernel itself, where more was counted. */
static void bring_to_kernel(qn_counters *out)
{
    double elapsed = qn_counters_find(out, "cycles elapsed"), most = qn_counters_find(out, "cycles active at most");
    for (int i = 0; i < COUNT(metrics); i++) {
        qn_counter *c = &out->items[i];
        if (!strstr(metrics[i].metric, "pct_of_peak_sustained_elapsed")) continue;
        if (elapsed > most && most > 0) c->value = MINIMUM(c->value * elapsed / most, 100);
    }
}

static qn_status evaluate(session *s, qn_counters *out, qn_error *error)
{
    double values[MOST_METRICS] = {0};
    QN_TRY(add_up(s, values, error));
    for (int i = 0, at = 0; i < COUNT(metrics); i++) {
        bool has = at < s->count && s->of[at] == i;
        counters_add(out, metrics[i].name, metrics[i].unit, has ? values[at] * metrics[i].scale : NAN,
                     has ? NULL : "this chip does not count it");
        at += has;
    }
    if (s->around) bring_to_kernel(out);
    double cycles = qn_counters_find(out, s->around ? "cycles active at most" : "cycles elapsed");
    double time_ns = cycles / qn_counters_find(out, "clock") * 1e9;
    counters_add(out, "time", "ns", time_ns, isnan(time_ns) ? "it has no cycles" : NULL);
    return QN_OK;
}

static void close_session(session *s)
{
    cupti_plain plain = {.size = sizeof(plain), .object = s->range};
    if (s->range) s->api.cuptiRangeProfilerDisable(&plain);
    plain.object = s->host;
    if (s->host) s->api.cuptiProfilerHostDeinitialize(&plain);
    plain = (cupti_plain){.size = SIZE_UP_TO(cupti_plain, reserved)};
    if (s->begun) s->api.cuptiProfilerDeInitialize(&plain);
    heap_free(s->availability);
    heap_free(s->config);
    heap_free(s->data);
    cuda_api_close(&s->api);
    *s = (session){.context = s->context, .device = s->device, .around = s->around};
}

static qn_status count_once(session *s, counters_run *run, void *user, qn_counters *out, qn_error *error)
{
    *out = (qn_counters){.source = s->around ? "CUPTI range profiler, around the launch: shares are estimates"
                                             : "CUPTI range profiler, kernel by kernel"};
    if (!s->open) {
        QN_TRY(open_host(s, error));
        QN_TRY(configure(s, error));
        QN_TRY(open_range(s, error));
        s->open = true;
    }
    QN_TRY(begin(s, error));
    QN_TRY(count(s, run, user, &out->launches, error));
    return evaluate(s, out, error);
}

counters_session *counters_session_new(void *context, int device)
{
    session *s = heap_new(sizeof(*s));
    *s = (session){.context = context, .device = device};
    return s;
}

qn_status counters_session_count(counters_session *s, counters_run *run, void *user, qn_counters *out, qn_error *error)
{
    qn_error ignored; /* what forbids both ways is told by the second */
    bool first = !s->open && !s->around;
    qn_status status = count_once(s, run, user, out, first ? &ignored : error);
    if (status != QN_OK) close_session(s);
    if (status == QN_OK || !first) return status;
    s->around = true;
    status = count_once(s, run, user, out, error);
    if (status != QN_OK) close_session(s);
    return status;
}

void counters_session_free(counters_session *s)
{
    if (!s) return;
    close_session(s);
    heap_free(s);
}
