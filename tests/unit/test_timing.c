/*
 * What samples say of a time and of two: intervals, outliers, two peaks, verdicts; races played with recorded noise, so
 * that every run of this test sees the same; qn_bench on real functions.
 * SPDX-License-Identifier: MIT
 */
#include "profile/timing.h"
#include "test.h"

#include <stdlib.h>
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

TEST_MAIN(CASE(interval_of_the_median), CASE(intervals_hold_the_median_as_often_as_they_say),
          CASE(outliers_are_counted_and_kept), CASE(two_peaks_are_told), CASE(neighbours_tell_a_drift), CASE(verdicts),
          CASE(another_clock_is_no_other_speed))
