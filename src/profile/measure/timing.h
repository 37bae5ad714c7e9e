/*
 * Timing: samples of several things that take turns (race.c), what they say about one thing (timing.c), and what they
 * say about two (verdict.c).
 *
 * A race reads no clock itself: its sampler tells how long things took, so a test can play it with recorded times.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_MEASURE_TIMING_H
#define QUERN_PROFILE_MEASURE_TIMING_H

#include "profile/profile.h"

#include <quern/bench.h>

/* timing.c */
/* The median's interval of the given confidence from sorted samples, whatever their distribution: two of them. With
 * too few samples for that confidence, the first and the last. */
void median_interval(const double *sorted, int count, double confidence, double *low, double *high);
/* Everything of *out that follows from samples_ns and sample_count; precision: what counts as converged. */
void time_summarise(qn_bench_time *out, double precision);
qn_bench_time time_unknown(void); /* no samples, every number NAN */

/* verdict.c */
qn_verdict verdict_of(double ratio_low, double ratio_high, double margin);
/* Samples of the rounds that both have, pair by pair. */
qn_bench_comparison compare_rounds(const qn_bench_time *base, const qn_bench_time *mine, double margin);
/* Two runs that did not take turns: medians, and how well each is known. Where both clocks are known the verdict must
 * hold in cycles too. */
qn_bench_comparison compare_runs(const qn_bench_time *base, const qn_bench_time *mine, double margin);

/* race.c */
typedef struct race_arm {
    qn_bench_time time; /* samples and rounds on the heap; race_arm_free */
    int capacity, calls;
    int next_look;           /* samples at which it is looked at again */
    double spent_ns, one_ns; /* wall time of its samples; about what one call takes */
    bool done, out;          /* out: the sampler gave up on it */
} race_arm;
void race_arm_free(race_arm *arm);

/* Takes one sample of an arm: `calls` calls; *ns is the time of one, *spent_ns the wall time of the whole. False: the
 * arm is out. */
typedef bool race_sampler(void *user, int arm, int calls, double *ns, double *spent_ns);
typedef struct race {
    race_sampler *sample;
    double (*clock_mhz)(void *user); /* NULL: nobody knows */
    void *user;
    race_arm **arms; /* the first is the base of comparisons */
    int count;
    double seconds, precision, margin; /* for each arm; 0: defaults */
    double sample_ns;                  /* how long a sample should take; 0: one call */
    int most_calls;                    /* in a sample; 0: no limit */
    int fixed_calls;                   /* in a sample; 0: chosen */
    uint64_t seed;
} race;
/* Warms up, then takes samples until every arm is known well enough or has spent its time; fills their `time`. Arms that
 * have samples already keep them. */
void race_run(race *r);

#endif
