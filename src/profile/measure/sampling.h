/*
 * Where warps wait: samples of program counters, and CUPTI's structs for them. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_MEASURE_SAMPLING_H
#define QUERN_PROFILE_MEASURE_SAMPLING_H

#include "profile/measure/counters.h"

typedef struct cupti_pc_stall {
    uint32_t reason, samples;
} cupti_pc_stall;
typedef struct cupti_pc {
    size_t size;
    uint64_t cubin_crc, offset;
    uint32_t function, padding;
    char *name;
    size_t stall_count;
    cupti_pc_stall *stalls;
    uint32_t correlation;
} cupti_pc;
typedef struct cupti_pc_data {
    size_t size, room;
    uint64_t samples, dropped;
    size_t count, remaining;
    uint64_t range;
    cupti_pc *pcs;
    uint64_t samples_of_others;
    uint8_t full;
} cupti_pc_data;
typedef struct cupti_pc_attribute {
    int type, status;
    union {
        uint64_t words[3];
        uint32_t number;
        struct {
            size_t count;
            uint32_t *indices;
        } stalls;
        void *buffer;
    } value;
} cupti_pc_attribute;
typedef struct cupti_pc_configuration {
    size_t size;
    void *reserved, *context;
    size_t count;
    cupti_pc_attribute *attributes;
} cupti_pc_configuration;
typedef struct cupti_pc_plain { /* of calls that take a context, and one thing to fill */
    size_t size;
    void *reserved, *context, *out;
} cupti_pc_plain;
typedef struct cupti_pc_reasons {
    size_t size;
    void *reserved, *context;
    size_t count;
    uint32_t *indices;
    char **names;
} cupti_pc_reasons;
typedef struct cupti_pc_line {
    size_t size;
    const void *cubin;
    const char *function;
    size_t cubin_bytes;
    uint32_t line;
    uint64_t offset;
    char *file, *folder;
} cupti_pc_line;

/* What one place in a function's code was seen doing. */
typedef void sampling_take(void *user, const char *function, uint64_t offset, const char *reason, uint32_t samples);
/* Runs the launch under the sampler. dropped: samples that the hardware had no room for. */
qn_status sampling_gpu(void *context, counters_run *run, void *user, sampling_take *take, void *taker, int64_t *dropped,
                       qn_error *error);

#endif
