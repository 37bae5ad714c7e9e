/*
 * Launches that are repeated together on the CPU. In: programs with complete arrays. Out: one pass through the pool:
 * every phase of every launch is a job with everything computed beforehand; the workers are woken once and go from job
 * to job without a lock. A failure is told when all is done; what came after it has run, as on a GPU.
 * SPDX-License-Identifier: MIT
 */
#include "device/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

typedef struct series_part {
    cpu_program *program;
    const launch_plan *plan;
    int phase, launch;
} series_part;

struct device_series {
    cpu_device *device;
    cpu_report *reports; /* by job */
    cpu_array *views;
    cpu_job *work;
    pool_job *jobs;
    series_part *parts;
    int count;
    const struct record_facts *const *named; /* whose the jobs' facts are */
};

void cpu_series_close(device_series *s)
{
    if (!s) return;
    heap_free(s->reports);
    heap_free(s->views);
    heap_free(s->work);
    heap_free(s->jobs);
    heap_free(s->parts);
    heap_free(s);
}

/* A pool_work of one item, which nothing runs beside: every worker's memory is as large as any job wants it. What can not
 * be had now is asked for again by the job. */
static void grow_all(void *context, int64_t first, int64_t last, int worker)
{
    const device_series *s = context;
    uint64_t most = 0;
    (void)first, (void)last, (void)worker;
    for (int i = 0; i < s->count; i++) most = MAXIMUM(most, s->work[i].scratch_bytes);
    for (int i = 0; i < s->device->threads; i++) (void)cpu_grow(&s->device->memory[i], most);
}

qn_status cpu_series_open(device *base, const series_launch *launches, int count, device_series **out, qn_error *error)
{
    cpu_device *d = (cpu_device *)base;
    size_t views = 0, jobs = 0;
    for (int i = 0; i < count; i++) {
        const cpu_program *p = (const cpu_program *)launches[i].program;
        views += (size_t)p->kernel->param_count;
        jobs += (size_t)p->phase_count;
    }
    device_series *s = calloc(1, sizeof(*s));
    if (s) {
        s->device = d;
        s->reports = calloc(jobs + 1, sizeof(cpu_report));
        s->views = calloc(views + 1, sizeof(cpu_array));
        s->work = calloc(jobs + 1, sizeof(cpu_job));
        s->jobs = aligned_alloc(_Alignof(pool_job), (jobs + 1) * sizeof(pool_job));
        s->parts = calloc(jobs + 1, sizeof(series_part));
    }
    if (!s || !s->reports || !s->views || !s->work || !s->jobs || !s->parts) {
        cpu_series_close(s);
        return error_set(error, QN_NO_MEMORY, "no memory for %d launches", count);
    }
    memset(s->jobs, 0, (jobs + 1) * sizeof(pool_job));
    cpu_array *next = s->views;
    for (int i = 0; i < count; i++) {
        cpu_program *p = (cpu_program *)launches[i].program;
        int64_t bytes = cpu_views(p->kernel, launches[i].arrays, next);
        for (int phase = 0; phase < p->phase_count; phase++) {
            cpu_job *work = &s->work[s->count];
            int64_t programs = cpu_job_make(p, phase, next, launches[i].plan, &s->reports[s->count], work);
            s->parts[s->count] = (series_part){.program = p, .plan = launches[i].plan, .phase = phase, .launch = i};
            pool_job *j = &s->jobs[s->count++];
            j->work = cpu_work;
            j->context = work;
            j->count = programs;
            j->grain = bytes <= CPU_FEW_BYTES ? programs : 1;
        }
        next += p->kernel->param_count;
    }
    pool_run(cpu_pool(d), 1, 1, grow_all, s);
    *out = s;
    return QN_OK;
}

void cpu_series_move(device_series *s, const series_launch *launches, int count)
{
    cpu_array *next = s->views;
    for (int i = 0; i < count; i++) {
        const tile_kernel *k = ((const cpu_program *)launches[i].program)->kernel;
        for (int p = 0; p < k->param_count; p++)
            if (k->params[p].kind <= PARAM_SCRATCH) next[p].data = launches[i].arrays[p].data;
        next += k->param_count;
    }
}

/* A launch ends with its last phase. */
static void name_jobs(device_series *s, const struct record_facts *const *facts)
{
    for (int i = 0; i < s->count; i++) {
        bool last = i + 1 == s->count || s->parts[i + 1].launch != s->parts[i].launch;
        s->jobs[i].facts = facts && last ? facts[s->parts[i].launch] : NULL;
    }
    s->named = facts;
}

qn_status cpu_series_run(device_series *s, const struct record_facts *const *facts, qn_error *error)
{
    if (facts != s->named) name_jobs(s, facts);
    memset(s->reports, 0, sizeof(cpu_report) * (size_t)s->count);
    for (int i = 0; i < s->count; i++) atomic_store(&s->work[i].no_memory, false); /* of the last time */
    pool_run_jobs(cpu_pool(s->device), s->jobs, s->count);
    for (int i = 0; i < s->count; i++) {
        const series_part *p = &s->parts[i];
        if (!s->reports[i].failed && !atomic_load(&s->work[i].no_memory)) continue;
        return cpu_job_status(p->program, p->phase, &s->work[i], p->plan, error);
    }
    return QN_OK;
}
