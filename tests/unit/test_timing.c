/*
 * What samples say of a time and of two: intervals, outliers, two peaks, verdicts; races played with recorded noise, so
 * that every run of this test sees the same; qn_bench on real functions.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/timing.h"
#include "noise.h"
#include "quiet.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double random_unit(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

static double random_normal(uint64_t *state)
{
    double a = random_unit(state), b = random_unit(state);
    return sqrt(-2 * log(a + 1e-300)) * cos(2 * M_PI * b);
}

TEST(interval_of_the_median)
{
    double x[100], low, high;
    for (int i = 0; i < 100; i++) x[i] = i + 1;
    median_interval(x, 6, 0.95, &low, &high);
    EXPECT(low == 1 && high == 6);
    median_interval(x, 10, 0.95, &low, &high);
    EXPECT(low == 2 && high == 9);
    median_interval(x, 20, 0.95, &low, &high);
    EXPECT(low == 6 && high == 15);
    median_interval(x, 50, 0.95, &low, &high);
    EXPECT(low == 18 && high == 33);
    median_interval(x, 100, 0.95, &low, &high);
    EXPECT(low == 40 && high == 61);
    median_interval(x, 3, 0.95, &low, &high); /* too few for any confidence: all of them */
    EXPECT(low == 1 && high == 3);
    median_interval(x, 1, 0.95, &low, &high);
    EXPECT(low == 1 && high == 1);
}

TEST(intervals_hold_the_median_as_often_as_they_say)
{
    uint64_t state = 7;
    int held = 0;
    for (int trial = 0; trial < 2000; trial++) {
        double x[40], low, high;
        for (int i = 0; i < 40; i++) x[i] = exp(random_normal(&state)); /* skewed; its median is 1 */
        sort_samples(x, 40);
        median_interval(x, 40, 0.95, &low, &high);
        held += low <= 1 && 1 <= high;
    }
    EXPECT(held >= 1890 && held <= 1960); /* 96.2 percent by the binomial distribution */
}

static qn_bench_time summary_of(double *samples, int count)
{
    qn_bench_time t = time_unknown();
    t.samples_ns = samples;
    t.sample_count = count;
    time_summarise(&t, 0.005);
    return t;
}

TEST(outliers_are_counted_and_kept)
{
    double x[40];
    for (int i = 0; i < 40; i++) x[i] = 100 + i % 8;
    x[0] = 900;
    qn_bench_time t = summary_of(x, 40);
    EXPECT(t.severe_outliers == 1 && t.mild_outliers == 0 && t.first_was_slow && t.most_ns == 900);
    x[0] = 100;
    x[17] = 900;
    x[18] = 115;
    t = summary_of(x, 40);
    EXPECT(t.severe_outliers == 1 && t.mild_outliers == 1 && !t.first_was_slow && t.sample_count == 40);
}

TEST(two_peaks_are_told)
{
    double x[100];
    uint64_t state = 3;
    for (int i = 0; i < 100; i++) x[i] = (i % 3 ? 100 : 140) + random_normal(&state);
    EXPECT(summary_of(x, 100).two_peaks);
    for (int i = 0; i < 100; i++) x[i] = 100 + 10 * random_normal(&state);
    EXPECT(!summary_of(x, 100).two_peaks);
    for (int i = 0; i < 100; i++) x[i] = (i % 25 ? 100 : 200) + random_normal(&state); /* outliers are no group */
    EXPECT(!summary_of(x, 100).two_peaks);
}

TEST(neighbours_tell_a_drift)
{
    double x[200];
    uint64_t state = 5;
    for (int i = 0; i < 200; i++) x[i] = 100 + random_normal(&state);
    EXPECT(fabs(summary_of(x, 200).autocorrelation) < 0.2);
    for (int i = 0; i < 200; i++) x[i] = 100 + 0.1 * i + random_normal(&state);
    EXPECT(summary_of(x, 200).autocorrelation > 0.7);
}

TEST(verdicts)
{
    EXPECT(verdict_of(0.9, 0.95, 0.01) == QN_FASTER);
    EXPECT(verdict_of(1.02, 1.05, 0.01) == QN_SLOWER);
    EXPECT(verdict_of(0.995, 1.005, 0.01) == QN_SAME);
    EXPECT(verdict_of(0.98, 1.02, 0.01) == QN_AMBIGUOUS);
    EXPECT(verdict_of(1.005, 1.05, 0.01) == QN_AMBIGUOUS);
    EXPECT(verdict_of(NAN, NAN, 0.01) == QN_NOT_COMPARED);
    EXPECT_TEXT(qn_verdict_name(QN_SLOWER), "SLOWER");
    EXPECT_TEXT(qn_verdict_name(QN_NOT_COMPARED), "");
}

/* Two rounds tell only what is far apart; one round nothing. */
TEST(few_rounds)
{
    int rounds[] = {0, 1};
    double one[] = {100, 110}, nine[] = {900, 960}, more[] = {150, 160};
    qn_bench_time a = {.samples_ns = one, .sample_rounds = rounds, .sample_count = 2}, b = a;
    EXPECT(compare_rounds(&a, &b, 0.01).verdict == QN_AMBIGUOUS);
    b.samples_ns = more;
    EXPECT(compare_rounds(&a, &b, 0.01).verdict == QN_AMBIGUOUS);
    b.samples_ns = nine;
    EXPECT(compare_rounds(&a, &b, 0.01).verdict == QN_SLOWER && compare_rounds(&b, &a, 0.01).verdict == QN_FASTER);
    a.sample_count = b.sample_count = 1;
    EXPECT(compare_rounds(&a, &b, 0.01).verdict == QN_AMBIGUOUS);
}

/* The base became slower after the other one had ended: the table must not call the one with the lower median slower. */
TEST(verdicts_follow_the_medians)
{
    int rounds[60];
    double base[60], mine[20];
    for (int i = 0; i < 60; i++) rounds[i] = i, base[i] = i < 20 ? 300 : 401;
    for (int i = 0; i < 20; i++) mine[i] = 395;
    qn_bench_time a = {.samples_ns = base, .sample_rounds = rounds, .sample_count = 60, .median_ns = 401};
    qn_bench_time b = {.samples_ns = mine, .sample_rounds = rounds, .sample_count = 20, .median_ns = 395};
    EXPECT(compare_rounds(&a, &b, 0.01).verdict == QN_AMBIGUOUS);
    EXPECT(compare_rounds(&b, &a, 0.01).verdict == QN_AMBIGUOUS);
    b.median_ns = 410;
    EXPECT(compare_rounds(&a, &b, 0.01).verdict == QN_SLOWER);
}

TEST(another_clock_is_no_other_speed)
{
    double x[40], y[40];
    for (int i = 0; i < 40; i++) x[i] = 100 + 0.01 * i, y[i] = 1.1 * x[i];
    qn_bench_time a = summary_of(x, 40), b = summary_of(y, 40);
    EXPECT(compare_runs(&a, &b, 0.03).verdict == QN_SLOWER);
    EXPECT(compare_runs(&b, &a, 0.03).verdict == QN_FASTER);
    a.clock_mhz = 1980;
    b.clock_mhz = 1980;
    EXPECT(compare_runs(&a, &b, 0.03).verdict == QN_SLOWER);
    b.clock_mhz = 1800; /* as many cycles as before */
    EXPECT(compare_runs(&a, &b, 0.03).verdict == QN_AMBIGUOUS);
}

/* ---- races with recorded noise ---- */

/* Time goes on through the recording: neighbours in a race were neighbours when it was recorded. */
typedef struct simulation {
    const uint16_t *noise;
    int count, at;
    double time_ns[2];
} simulation;

static bool simulate(void *user, int arm, int calls, double *ns, double *spent_ns)
{
    simulation *s = user;
    *ns = s->time_ns[arm] * s->noise[s->at] * 1e-4;
    *spent_ns = *ns * calls;
    s->at = (s->at + 1) % s->count;
    return true;
}

static qn_bench_comparison simulate_race(const uint16_t *noise, int count, double planted, uint64_t seed)
{
    uint64_t state = seed * 977 + 5;
    simulation s = {.noise = noise,
                    .count = count,
                    .at = (int)(random_unit(&state) * count),
                    .time_ns = {20000, 20000 * (1 + planted)}};
    race_arm arms[2] = {0}, *pointers[2] = {&arms[0], &arms[1]};
    race r = {
        .sample = simulate, .user = &s, .arms = pointers, .count = 2, .seconds = 1, .sample_ns = 5e5, .seed = seed};
    race_run(&r);
    qn_bench_comparison c = compare_rounds(&arms[0].time, &arms[1].time, r.margin);
    race_arm_free(&arms[0]);
    race_arm_free(&arms[1]);
    return c;
}

static void play(const uint16_t *noise, int count, double planted, int counts[5])
{
    memset(counts, 0, sizeof(int[5]));
    for (int trial = 0; trial < 200; trial++)
        counts[simulate_race(noise, count, planted, (uint64_t)trial + 1).verdict]++;
}

TEST(the_same_is_not_told_apart)
{
    int counts[5];
    play(quiet_noise, COUNT(quiet_noise), 0, counts);
    EXPECT(counts[QN_FASTER] + counts[QN_SLOWER] <= 4); /* 2 percent of 200 */
    EXPECT(counts[QN_SAME] >= 150);
    play(loaded_noise, COUNT(loaded_noise), 0, counts);
    EXPECT(counts[QN_FASTER] + counts[QN_SLOWER] <= 4);
}

TEST(three_percent_are_found)
{
    int counts[5];
    play(quiet_noise, COUNT(quiet_noise), 0.03, counts);
    EXPECT(counts[QN_SLOWER] >= 190 && counts[QN_FASTER] == 0); /* 95 percent of 200 */
    play(quiet_noise, COUNT(quiet_noise), -0.03, counts);
    EXPECT(counts[QN_FASTER] >= 190 && counts[QN_SLOWER] == 0);
}

/* ---- real functions ---- */

static void sleep_50_ms(void *user)
{
    struct timespec wait = {.tv_nsec = 50000000};
    ++*(int *)user;
    nanosleep(&wait, NULL);
}

TEST(a_sleep_reads_as_long_as_it_is)
{
    qn_error error;
    qn_bench_time time;
    int calls = 0;
    qn_time_options options = {.seconds = 0.6};
    EXPECT(qn_bench(sleep_50_ms, &calls, &options, &time, &error) == QN_OK);
    EXPECT(time.median_ns >= 50e6);
    EXPECT_QUICK(time.median_ns < 55e6);
    EXPECT(time.calls_per_sample == 1 && time.sample_count >= 6 && calls == time.sample_count + time.warmup_count);
    EXPECT(time.interval_low_ns <= time.median_ns && time.median_ns <= time.interval_high_ns);
    qn_bench_time_free(&time);
    EXPECT(qn_bench(NULL, NULL, NULL, &time, &error) == QN_BAD_CALL);
}

static void add_some(void *user)
{
    volatile double *x = user;
    for (int i = 0; i < 50; i++) *x += 1;
}

static void add_more(void *user)
{
    add_some(user);
    add_some(user);
}

TEST(short_functions_fill_a_sample)
{
    qn_error error;
    qn_bench_time time;
    qn_bench_comparison c;
    double x = 0;
    qn_time_options options = {.seconds = 0.1};
    EXPECT(qn_bench(add_some, &x, &options, &time, &error) == QN_OK);
    EXPECT(time.calls_per_sample > 50 && time.median_ns > 10 && time.median_ns < 5000);
    EXPECT(time.clock_mhz > 100 && time.clock_mhz < 10000);
    qn_bench_time_free(&time);
    options.calls = 7;
    EXPECT(qn_bench(add_some, &x, &options, &time, &error) == QN_OK && time.calls_per_sample == 7);
    qn_bench_time_free(&time);
    options.calls = 0;
    EXPECT(qn_bench_compare(add_some, &x, add_more, &x, &options, &c, &error) == QN_OK);
    EXPECT(c.verdict == QN_SLOWER && c.ratio > 1.5 && c.ratio < 2.6);
    EXPECT(qn_bench_compare(add_more, &x, add_some, &x, &options, &c, &error) == QN_OK && c.verdict == QN_FASTER);
}

/* One arm whose very first call is slow beyond all budgets must not keep the others from being timed. */
static bool slow_arm(void *user, int arm, int calls, double *ns, double *spent_ns)
{
    int *taken = user;
    taken[arm]++;
    *ns = arm == 2 ? 3e8 : 1e5;
    *spent_ns = *ns * calls;
    return arm != 1 || taken[arm] < 12; /* the second gives up after a while */
}

TEST(slow_and_failing_arms_do_not_hold_the_others)
{
    race_arm arms[3] = {0}, *pointers[3] = {&arms[0], &arms[1], &arms[2]};
    int taken[3] = {0};
    race r = {.sample = slow_arm, .user = taken, .arms = pointers, .count = 3, .seconds = 0.05, .sample_ns = 2e5};
    race_run(&r);
    EXPECT(arms[0].time.sample_count >= 20 && arms[0].time.converged);
    EXPECT(arms[1].out && taken[1] == 12);
    EXPECT(arms[2].time.sample_count == 1 && taken[2] <= 3);
    for (int i = 0; i < 3; i++) race_arm_free(&arms[i]);
}

TEST_MAIN(CASE(interval_of_the_median), CASE(intervals_hold_the_median_as_often_as_they_say),
          CASE(outliers_are_counted_and_kept), CASE(two_peaks_are_told), CASE(neighbours_tell_a_drift), CASE(verdicts),
          CASE(few_rounds), CASE(verdicts_follow_the_medians), CASE(another_clock_is_no_other_speed),
          CASE(the_same_is_not_told_apart), CASE(three_percent_are_found), CASE(a_sleep_reads_as_long_as_it_is),
          CASE(short_functions_fill_a_sample), CASE(slow_and_failing_arms_do_not_hold_the_others))
