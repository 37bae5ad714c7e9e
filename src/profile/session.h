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
    uint16_t kind;
    int next; /* of its chain; -1: none */
} sum_entry;

typedef enum session_phase { PHASE_OFF, PHASE_WARM, PHASE_KEEP } session_phase;

struct qn_profile {
    qn_context *context;
    qn_profile_options options;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t collector;
    bool running, stopping;
    session_phase phase;
    int64_t step, step_start_ns, cycle;
    record *kept; /* heap */
    int64_t kept_count, kept_capacity, records, lost;
    sum_entry *sums; /* heap */
    int sum_count, sum_capacity;
    int chains[1024];
    session_thread threads[MOST_THREADS];
    int64_t start_ns, end_ns;
};

#endif
