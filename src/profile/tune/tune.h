/*
 * Inside `tune`: the candidates of one kernel at one size, and what became of each.
 *
 * tune/plan.c makes the candidates, tune/schedule.c those of the schedule; tune.c compiles, checks, times and records them; tune/report.c writes it down.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_TUNE_TUNE_H
#define QUERN_PROFILE_TUNE_TUNE_H

#include "device/cuda/cubin.h"
#include "profile/bench/bench.h"

enum { TUNE_MOST_NAMES = 16, TUNE_MOST_CANDIDATES = 4096, TUNE_QUICK_CANDIDATES = 16 };

typedef enum candidate_status {
    CANDIDATE_WAITS, /* the budget ended before it was looked at */
    CANDIDATE_REFUSED,
    CANDIDATE_SPILLS,
    CANDIDATE_WRONG,
    CANDIDATE_FAILED,
    CANDIDATE_SLOW, /* timed a little: clearly slower than the best */
    CANDIDATE_OK
} candidate_status;

typedef struct candidate {
    int64_t values[TUNE_MOST_NAMES];
    const char *words; /* "BM=64 BN=128", as it is recorded */
    candidate_status status;
    const char *message; /* why it is not ok; "" */
    bool is_default;
    bool has_usage;
    cubin_usage usage;
    double median_ns, low_ns, high_ns; /* NAN: not timed */
    int samples;
} candidate;

typedef struct tuning {
    bench bench; /* its block is made of the candidates */
    const qn_tune_options *options;
    qn_bench_options bench_options;
    const kernel_entry *entry;
    const char *names[TUNE_MOST_NAMES];
    int name_count;
    const char *fixed; /* " BK=64": what the caller fixed of the names that `tune` lists; NULL: nothing */
    candidate *items;  /* the default first */
    int count, taken;  /* taken: how many are looked at with this effort */
    int64_t start_ns;
    double budget_ns;
    int best;  /* -1: none */
    bool kept; /* other processes find the timings */
} tuning;

typedef struct tune_choice {
    int64_t values[64];
    int count;
} tune_choice;

/* tune/schedule.c: knobs that make other schedules, added to the names and, by name, to their choices. */
void tune_add_schedules(tuning *t, tune_choice *choices);

/* tune/plan.c */
bool tune_is_fixed(const tuning *t, const char *name); /* by the caller */
/* The names and every combination that the conditions allow, at the bench's point. */
qn_status tune_plan(tuning *t, qn_error *error);
/* A block like the kernel's bench whose variants are these candidates (by number). */
ast *tune_block(tuning *t, const int *numbers, int count);

/* tune/report.c */
void tune_table(const tuning *t, text *out);
void tune_json(const tuning *t, const char *path, json *out);

#endif
