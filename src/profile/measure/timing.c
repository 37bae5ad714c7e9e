/*
 * What samples of a time say: the median with an interval that needs no distribution, quantiles, outliers, whether there
 * are two groups, whether neighbours are alike. Nothing is ever dropped: a machine that interrupts every tenth run does
 * that to its users too.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/timing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The chance that at most k of n fair coins fall heads. */
static double at_most(int k, int n)
{
    double sum = 0;
    for (int i = 0; i <= k; i++) sum += exp(lgamma(n + 1.0) - lgamma(i + 1.0) - lgamma(n - i + 1.0) - n * M_LN2);
    return sum;
}

void median_interval(const double *sorted, int count, double confidence, double *low, double *high)
{
    if (count < 1) {
        *low = *high = NAN;
        return;
    }
    /* A normal guess of the rank, then the exact one nearby. */
    double tail = (1 - confidence) / 2, z = confidence > 0.99 ? 3.09 : 1.96;
    int k = (int)((count - z * sqrt(count)) / 2) + 2;
    if (k > count / 2) k = count / 2;
    while (k > 0 && at_most(k - 1, count) > tail) k--;
    int first = k > 0 ? k - 1 : 0; /* from sample k to sample n + 1 - k, counted from 1 */
    *low = sorted[first];
    *high = sorted[count - 1 - first];
}

qn_bench_time time_unknown(void)
{
    return (qn_bench_time){.median_ns = NAN,
                           .interval_low_ns = NAN,
                           .interval_high_ns = NAN,
                           .least_ns = NAN,
                           .low_ns = NAN,
                           .high_ns = NAN,
                           .most_ns = NAN,
                           .first_ns = NAN,
                           .autocorrelation = NAN,
                           .clock_mhz = NAN,
                           .clock_low_mhz = NAN,
                           .clock_high_mhz = NAN};
}

static void count_outliers(qn_bench_time *t, const double *sorted)
{
    int n = t->sample_count;
    double low = sorted_quantile(sorted, n, 0.25), high = sorted_quantile(sorted, n, 0.75), width = high - low;
    t->mild_outliers = t->severe_outliers = 0;
    for (int i = 0; i < n; i++) {
        double beyond = fmax(low - sorted[i], sorted[i] - high);
        if (beyond > 3 * width)
            t->severe_outliers++;
        else if (beyond > 1.5 * width)
            t->mild_outliers++;
    }
    t->first_was_slow = n >= 8 && t->samples_ns[0] > high + 3 * width && t->severe_outliers == 1;
}

/* Two groups: cut where the sum of squares within both is least; they are two if the cut explains most of it, the gap is
 * wide, and neither is a handful of outliers. Extremes are left out: one of them would be a group of its own. */
static bool has_two_peaks(const double *sorted, int n)
{
    int skip = n / 20, count = n - 2 * skip;
    const double *x = sorted + skip;
    if (count < 20) return false;
    double sum = 0, squares = 0, left = 0, best = INFINITY;
    int cut = 0;
    double middle = x[count / 2];
    for (int i = 0; i < count; i++) {
        sum += x[i] - middle;
        squares += (x[i] - middle) * (x[i] - middle);
    }
    double whole = squares - sum * sum / count;
    for (int i = 1; i < count; i++) {
        left += x[i - 1] - middle;
        double right = sum - left, within = squares - left * left / i - right * right / (count - i);
        if (within < best) {
            best = within;
            cut = i;
        }
    }
    if (cut < count / 8 || cut > count - count / 8) return false;
    double gap = x[cut] - x[cut - 1], reach = x[count - 1] - x[0];
    return best < 0.15 * whole && gap > 0.2 * reach && reach > 0.02 * middle;
}

static double neighbours_alike(const double *samples, int n)
{
    double mean = 0, whole = 0, shifted = 0;
    if (n < 8) return NAN;
    for (int i = 0; i < n; i++) mean += samples[i] / n;
    for (int i = 0; i < n; i++) {
        whole += (samples[i] - mean) * (samples[i] - mean);
        if (i) shifted += (samples[i] - mean) * (samples[i - 1] - mean);
    }
    return whole > 0 ? shifted / whole : 0;
}

void time_summarise(qn_bench_time *t, double precision)
{
    int n = t->sample_count;
    if (n < 1) return;
    double *sorted = heap_new(sizeof(double) * (size_t)n);
    memcpy(sorted, t->samples_ns, sizeof(double) * (size_t)n);
    sort_samples(sorted, n);
    t->median_ns = sorted_quantile(sorted, n, 0.5);
    t->low_ns = sorted_quantile(sorted, n, 0.2);
    t->high_ns = sorted_quantile(sorted, n, 0.8);
    t->least_ns = sorted[0];
    t->most_ns = sorted[n - 1];
    median_interval(sorted, n, 0.95, &t->interval_low_ns, &t->interval_high_ns);
    t->converged = n >= 6 && t->interval_high_ns - t->interval_low_ns <= 2 * precision * t->median_ns;
    count_outliers(t, sorted);
    t->two_peaks = has_two_peaks(sorted, n);
    t->autocorrelation = neighbours_alike(t->samples_ns, n);
    heap_free(sorted);
}
