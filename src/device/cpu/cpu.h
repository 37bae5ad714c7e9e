/*
 * What the files of the `cpu` device share: its structs, and one phase of a launch as a job of the pool.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CPU_CPU_H
#define QUERN_DEVICE_CPU_CPU_H

#include "device/cpu/compiler.h"
#include "device/cpu/numbers.h"
#include "device/device.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CPU_FEW_BYTES = 16384 /* not worth waking anybody */ };

typedef struct cpu_memory {
    void *data;
    uint64_t size_bytes;
} cpu_memory;

typedef struct cpu_device {
    const driver *driver;
    device_options options;
    compiler compiler;
    int threads;
    cpu_numbers numbers;  /* under the lock, as they may be measured again */
    char *folder;         /* where they are kept; NULL: nowhere */
    pthread_mutex_t lock; /* of the pool's making, of printing and of the numbers */
    pool *pool;           /* made at the first launch */
    cpu_memory *memory;   /* per worker */
} cpu_device;

typedef struct cpu_program {
    const driver *driver;
    cpu_device *device;
    const tile_kernel *kernel;
    void *library;
    cpu_phase *phases[MAX_PHASES];
    int phase_count;
    cpu_scratch *scratch_bytes;
} cpu_program;

/* One phase of a launch: the context of cpu_work. */
typedef struct cpu_job {
    cpu_device *device;
    cpu_phase *phase;
    cpu_launch launch;
    uint64_t scratch_bytes;
    _Atomic bool no_memory;
} cpu_job;

/* cpu.c */
pool *cpu_pool(cpu_device *d);
bool cpu_grow(cpu_memory *m, uint64_t size_bytes);                     /* false: there is no memory */
void cpu_work(void *context, int64_t first, int64_t last, int worker); /* a pool_work; nothing once something failed */
int64_t cpu_views(const tile_kernel *k, const array_view *arrays, cpu_array *views); /* returns all bytes */
/* Returns how many programs there are. */
int64_t cpu_job_make(cpu_program *p, int phase, const cpu_array *views, const launch_plan *plan, cpu_report *report,
                     cpu_job *out);
qn_status cpu_job_status(const cpu_program *p, int phase, const cpu_job *j, const launch_plan *plan, qn_error *error);

/* cpu/series.c */
qn_status cpu_series_open(device *base, const series_launch *launches, int count, device_series **out, qn_error *error);
void cpu_series_move(device_series *s, const series_launch *launches, int count);
qn_status cpu_series_run(device_series *s, const struct record_facts *const *facts, qn_error *error);
void cpu_series_close(device_series *s);

#endif
