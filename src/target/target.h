/*
 * What a device can, by its name: one row of targets.def. In: "cpu", "cuda", "cuda:1". Out: its row. So nothing outside
 * src/device compares names, and another device is another row.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TARGET_TARGET_H
#define QUERN_TARGET_TARGET_H

#include "base/base.h"

/* The GPUs whose warps multiply from shared memory in groups, fed by bulk copies: neither before nor after this one. */
#define TARGET_HOPPER 90

typedef enum target_language { TARGET_NONE, TARGET_C, TARGET_CUDA } target_language;

typedef struct target {
    const char *name;
    target_language language;
    bool host_memory; /* it reads the host's memory */
    bool timed;       /* its times say something; else it checks, and takes small sizes */
    bool threads;     /* its programs are teams of threads */
} target;

extern const target targets[];
extern const int target_count;

/* The row of a device, whatever its number; of a name that nobody has, one that can nothing. Never NULL. */
const target *target_find(const char *device);
bool target_runs_cuda(const char *device);                   /* CUDA text: a GPU, or what takes its part */
bool target_is_gpu(const char *device);                      /* ... on hardware with memory of its own */
bool target_runs_raw(const target *t, const char *language); /* "c", "cuda": kernels in the user's own text */
const char *target_text_ending(const target *t);             /* "c", "cu", "tile" */

#endif
