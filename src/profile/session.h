/*
 * A profile: what its collector gathered. Readers (tables, traces, hints, the report) see kept records and sums.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_SESSION_H
#define QUERN_PROFILE_SESSION_H

#include "base/record.h"

#include <pthread.h>
#include <quern/profile.h>

enum { MOST_DEPTH = 64, MOST_THREADS = 256 };

/* One thread's open sums: what is nested in a span ends before it does. */
typedef struct session_thread {
    int64_t nested_ns[MOST_DEPTH + 1];
} session_thread;

typedef struct sum_entry {
    qn_profile_sum sum;
    int64_t device_calls; /* kernels and copies that a device told of */
    uint16_t kind;
    int next; /* of its chain; -1: none */
} sum_entry;

/* What ran on a device, told by the device's own tracing or by events around it. */
typedef enum device_record_kind { DEVICE_KERNEL, DEVICE_COPY, DEVICE_SET, DEVICE_GRAPH } device_record_kind;
typedef struct device_record {
    int64_t start_ns, end_ns;             /* of the realtime clock */
    const char *name;                     /* interned; of a copy "copy in", "copy out", "copy inside" */
    uint64_t identity;                    /* of the host's record that started it; 0: none was kept */
    const record_facts *facts;            /* of the launch, or of the graph's node; NULL: not known */
    int64_t bytes;                        /* of a copy or a set */
    uint32_t device, stream, graph, node; /* graph 0: not of a graph */
    uint32_t grid[3], block[3];
    uint32_t registers, shared_bytes, local_bytes; /* of a thread, of a block, of a thread */
    uint16_t kind;
} device_record;

/* A record of the host that has an identity: what the device's records look for. */
typedef struct device_launched {
    uint64_t identity;
    const char *name, *detail;
    const record_facts *facts; /* of a launch, or NULL */
    uint16_t kind;
    bool kept; /* the phase that it was made in is kept */
} device_launched;
typedef struct device_side device_side;

typedef enum session_phase { PHASE_OFF, PHASE_WARM, PHASE_KEEP } session_phase;

struct qn_profile {
    qn_context *context;
    qn_profile_options options;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t collector;
    bool running, stopping;
    bool interrupted; /* a signal ended the run: reports say so */
    session_phase phase;
    int64_t step, step_start_ns, cycle;
    record *kept; /* heap */
    int64_t kept_count, kept_capacity, records, lost;
    sum_entry *sums; /* heap */
    int sum_count, sum_capacity;
    int chains[1024];
    session_thread threads[MOST_THREADS];
    int64_t start_ns, end_ns;
    /* The device's side. */
    device_side *side;          /* NULL: no device needs one */
    device_record *device_kept; /* heap; in the order of arrival */
    int64_t device_count, device_capacity, device_lost;
    const char *device_source;  /* where device times come from: "CUPTI activity", "CUDA events"; NULL: nothing told */
    const char *device_reason;  /* why there is no better source, and what to do; NULL: there is none better */
    struct trace_writer *trace; /* written as records come; NULL: none */
    struct profile_outputs *outputs; /* what is to be written; NULL: nothing */
    /* Clocks, looked at now and then while a GPU works: sums over the looks at which something held them down. */
    double held_clock_mhz, most_clock_mhz;
    int held_samples;
    unsigned held;                /* HELD_BY_* */
    double device_overhead_share; /* of the run's time, that the device's tracing says it took; NAN: not known */
};

/* from_environment.c: the one that QUERN_PROFILE started; NULL: none. */
qn_profile *profile_of_environment(void);
/* profile_table.c: QN_BAD_CALL where there is no such column to sort by. */
qn_status table_sort_check(const qn_table_options *options, qn_error *error);
/* The sum that a record counts in, by number; -1: none. */
int session_find_sum(const qn_profile *p, const record *r);
/* Keeps what ran on a device while the phase keeps; under the profile's lock. Its sums go to the launch's name. */
void session_add_device(qn_profile *p, const device_record *r);
/* The same whatever the phase is; l: the launch or copy that it belongs to, or NULL. */
void session_keep_device(qn_profile *p, const device_record *r, const device_launched *l);

#endif
