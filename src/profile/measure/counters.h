/*
 * Hardware counters of a launch: who reads them, and CUPTI's structs for it. Each struct of CUPTI begins with its own
 * size, up to the last field that the caller knows, so that later versions may add to it.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_MEASURE_COUNTERS_H
#define QUERN_PROFILE_MEASURE_COUNTERS_H

#include "base/base.h"

#include <quern/profile.h>

typedef qn_status counters_run(void *user, qn_error *error); /* the launch, once, until it is over */

/* counters.c: by CUPTI's range profiler; each launch is run as often as the counters need. context: CUDA's. One session
 * at a time in a process, used and freed in the context that it is of. */
typedef struct counters_session counters_session;
counters_session *counters_session_new(void *context, int device);
qn_status counters_session_count(counters_session *s, counters_run *run, void *user, qn_counters *out, qn_error *error);
void counters_session_free(counters_session *s); /* NULL is fine */
/* counters_cpu.c: by the kernel's performance events, of all threads of the process. */
qn_status counters_cpu(counters_run *run, void *user, qn_counters *out, qn_error *error);
/* counting.c: who waits for it hears now and then how many kernels are counted and which one is next. */
typedef void counting_teller(int counted, const char *kernel);
void counting_tell(qn_counting *counting, counting_teller *teller);
/* A share of more than all: the runs that were counted differed, or a clock rose. It is marked wherever it is shown. */
bool counters_is_beyond(const char *unit, double value);
#define COUNTERS_BEYOND "* more than the chip sustains: the runs that were counted differed"
void counters_add(qn_counters *c, const char *name, const char *unit, double value, const char *why);

#define SIZE_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

typedef struct cupti_plain { /* of calls that take nothing, or one object */
    size_t size;
    void *reserved, *object;
} cupti_plain;
typedef struct cupti_chip {
    size_t size;
    void *reserved;
    size_t device;
    const char *name;
} cupti_chip;
typedef struct cupti_availability {
    size_t size;
    void *reserved, *context;
    size_t image_bytes;
    uint8_t *image;
} cupti_availability;
typedef struct cupti_host {
    size_t size;
    void *reserved;
    int type;
    const char *chip;
    const uint8_t *availability;
    void *object;
} cupti_host;
typedef struct cupti_metric {
    size_t size;
    void *reserved, *object;
    const char *name, *description, *unit, *dimension;
    int type;
} cupti_metric;
typedef struct cupti_metrics {
    size_t size;
    void *reserved, *object;
    const char **names;
    size_t count;
} cupti_metrics;
typedef struct cupti_image {
    size_t size;
    void *reserved, *object;
    size_t bytes;
    uint8_t *image;
} cupti_image;
typedef struct cupti_range_enable {
    size_t size;
    void *reserved, *context, *object;
} cupti_range_enable;
typedef struct cupti_range_size {
    size_t size;
    void *reserved, *object;
    const char **names;
    size_t count, ranges;
    uint32_t nodes;
    size_t bytes;
} cupti_range_size;
typedef struct cupti_range_config {
    size_t size;
    void *reserved, *object;
    size_t config_bytes;
    const uint8_t *config;
    size_t data_bytes;
    uint8_t *data;
    int range, replay;
    size_t most_ranges;
    uint16_t levels, least_level;
    size_t pass;
    uint16_t target_level;
} cupti_range_config;
typedef struct cupti_range_push {
    size_t size;
    void *reserved, *object;
    const char *name;
} cupti_range_push;
typedef struct cupti_range_stop {
    size_t size;
    void *reserved, *object;
    size_t pass, target_level;
    uint8_t all;
} cupti_range_stop;
typedef struct cupti_range_decode {
    size_t size;
    void *reserved, *object;
    size_t dropped;
} cupti_range_decode;
typedef struct cupti_range_info {
    size_t size;
    void *reserved;
    const uint8_t *data;
    size_t data_bytes, count;
} cupti_range_info;
typedef struct cupti_evaluate {
    size_t size;
    void *reserved, *object;
    const uint8_t *data;
    size_t data_bytes, range;
    const char **names;
    size_t count;
    double *values;
} cupti_evaluate;

#endif
