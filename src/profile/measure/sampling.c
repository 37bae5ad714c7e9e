/*
 * Samples of program counters on a GPU, by CUPTI. In: a CUDA context and a way to run the launch. Out: for each place in
 * the code and each reason that a warp waited there, how often the sampler saw it. Kernels run one after the other while
 * they are sampled.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/sampling.h"

#include "device/cuda/api.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_REASONS = 128,
    REASON_BYTES = 128, /* as CUPTI says */
    MOST_PCS = 8192,
    ATTRIBUTE_REASONS = 2,
    ATTRIBUTE_MODE = 5,
    ATTRIBUTE_BUFFER = 8,
    MODE_SERIALIZED = 2
};

typedef struct sampler {
    cuda_api api;
    void *context;
    bool enabled;
    size_t reason_count;
    uint32_t indices[MOST_REASONS];
    char *names[MOST_REASONS];
    char words[MOST_REASONS][REASON_BYTES];
    cupti_pc_data data[2]; /* what CUPTI fills by itself, and what is asked for */
    cupti_pc *pcs;
    cupti_pc_stall *stalls;
} sampler;

static qn_status refused(sampler *s, int result, const char *doing, qn_error *error)
{
    const char *words = "";
    s->api.cuptiGetResultString(result, &words);
    return error_set(error, QN_NO_DEVICE, "stall samples: %s (%s: %s, error %d)",
                     result == 35
                         ? "only an administrator may take them: run as root or with CAP_SYS_ADMIN, or set the "
                           "driver's option NVreg_RestrictProfilingToAdminUsers=0"
                         : "they are not to be had here",
                     doing, words ? words : "", result);
}

#define ASK(s, function, parameters)                                                \
    do {                                                                            \
        int result_of_ask = (s)->api.function ? (s)->api.function(parameters) : 11; \
        if (result_of_ask) return refused((s), result_of_ask, #function, error);    \
    } while (0)

static qn_status make_room(sampler *s, qn_error *error)
{
    s->pcs = calloc(2 * MOST_PCS, sizeof(*s->pcs));
    s->stalls = calloc((size_t)2 * MOST_PCS * s->reason_count, sizeof(*s->stalls));
    if (!s->pcs || !s->stalls) return error_set(error, QN_NO_MEMORY, "there is no memory for stall samples");
    for (int i = 0; i < 2 * MOST_PCS; i++)
        s->pcs[i] = (cupti_pc){.size = sizeof(cupti_pc), .stalls = s->stalls + (size_t)i * s->reason_count};
    for (int i = 0; i < 2; i++)
        s->data[i] = (cupti_pc_data){.size = sizeof(cupti_pc_data), .room = MOST_PCS, .pcs = s->pcs + i * MOST_PCS};
    return QN_OK;
}

static qn_status begin(sampler *s, qn_error *error)
{
    cupti_pc_plain plain = {.size = SIZE_UP_TO(cupti_pc_plain, context), .context = s->context};
    QN_TRY(cuda_api_open(&s->api, CUDA_LIBRARY_CUPTI, error));
    ASK(s, cuptiPCSamplingEnable, &plain);
    s->enabled = true;
    plain.size = sizeof(plain);
    plain.out = &s->reason_count;
    ASK(s, cuptiPCSamplingGetNumStallReasons, &plain);
    if (s->reason_count > MOST_REASONS) s->reason_count = MOST_REASONS;
    for (size_t i = 0; i < s->reason_count; i++) s->names[i] = s->words[i];
    cupti_pc_reasons reasons = {.size = sizeof(reasons),
                                .context = s->context,
                                .count = s->reason_count,
                                .indices = s->indices,
                                .names = s->names};
    ASK(s, cuptiPCSamplingGetStallReasons, &reasons);
    QN_TRY(make_room(s, error));
    cupti_pc_attribute attributes[] = {
        {.type = ATTRIBUTE_REASONS, .value.stalls = {s->reason_count, s->indices}},
        {.type = ATTRIBUTE_MODE, .value.number = MODE_SERIALIZED},
        {.type = ATTRIBUTE_BUFFER, .value.buffer = &s->data[0]},
    };
    cupti_pc_configuration configuration = {
        .size = sizeof(configuration), .context = s->context, .count = COUNT(attributes), .attributes = attributes};
    ASK(s, cuptiPCSamplingSetConfigurationAttribute, &configuration);
    return QN_OK;
}

static const char *reason_name(const sampler *s, uint32_t index)
{
    for (size_t i = 0; i < s->reason_count; i++)
        if (s->indices[i] == index) return s->names[i];
    return "";
}

static void give(const sampler *s, const cupti_pc_data *data, sampling_take *take, void *taker)
{
    for (size_t i = 0; i < data->count && i < MOST_PCS; i++) {
        const cupti_pc *at = &data->pcs[i];
        for (size_t k = 0; k < at->stall_count && at->name; k++)
            if (at->stalls[k].samples)
                take(taker, at->name, at->offset, reason_name(s, at->stalls[k].reason), at->stalls[k].samples);
    }
}

static qn_status sample(sampler *s, counters_run *run, void *user, sampling_take *take, void *taker, int64_t *dropped,
                        qn_error *error)
{
    QN_TRY(begin(s, error));
    QN_TRY(run(user, error));
    give(s, &s->data[0], take, taker);
    *dropped += (int64_t)s->data[0].dropped;
    do { /* as much as the buffer holds at a time */
        cupti_pc_plain plain = {.size = sizeof(plain), .context = s->context, .out = &s->data[1]};
        s->data[1].count = s->data[1].remaining = 0;
        ASK(s, cuptiPCSamplingGetData, &plain);
        give(s, &s->data[1], take, taker);
        *dropped += (int64_t)s->data[1].dropped;
    } while (s->data[1].remaining && s->data[1].count);
    return QN_OK;
}

qn_status sampling_gpu(void *context, counters_run *run, void *user, sampling_take *take, void *taker, int64_t *dropped,
                       qn_error *error)
{
    sampler *s = calloc(1, sizeof(*s));
    if (!s) return error_set(error, QN_NO_MEMORY, "there is no memory for stall samples");
    s->context = context;
    qn_status status = sample(s, run, user, take, taker, dropped, error);
    cupti_pc_plain plain = {.size = SIZE_UP_TO(cupti_pc_plain, context), .context = context};
    if (s->enabled) s->api.cuptiPCSamplingDisable(&plain);
    heap_free(s->pcs);
    heap_free(s->stalls);
    cuda_api_close(&s->api);
    heap_free(s);
    return status;
}
