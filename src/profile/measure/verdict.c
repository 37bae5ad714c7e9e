/*
 * Is one thing faster than another? In: their samples. Out: the ratio of their times with an interval, and a verdict.
 *
 * What took turns is compared round by round: a change of the machine meets both samples of a round, and leaves their
 * ratio alone. The median of the ratios and its interval (99.8 percent, by the sign test) need no distribution. A verdict
 * of FASTER or SLOWER asks for the whole interval beyond the margin, so what is called so differs by more than that.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/timing.h"

#include <math.h>
#include <stdlib.h>

/* An arm is looked at several times before it ends: at 99.8 percent all these looks together are wrong in far less than
 * one of fifty. */
static const double confidence = 0.998;

const char *qn_verdict_name(qn_verdict verdict)
{
    static const char *const names[] = {"", "FASTER", "SLOWER", "SAME", "AMBIGUOUS"};
    return (unsigned)verdict < COUNT(names) ? names[verdict] : "";
}

qn_verdict verdict_of(double low, double high, double margin)
{
    if (!(low <= high)) return QN_NOT_COMPARED;
    if (high < 1 / (1 + margin)) return QN_FASTER;
    if (low > 1 + margin) return QN_SLOWER;
    if (low >= 1 / (1 + margin) && high <= 1 + margin) return QN_SAME;
    return QN_AMBIGUOUS;
}

qn_bench_comparison compare_rounds(const qn_bench_time *base, const qn_bench_time *mine, double margin)
{
    int most = MINIMUM(base->sample_count, mine->sample_count), pairs = 0;
    qn_bench_comparison c = {.ratio = NAN, .ratio_low = NAN, .ratio_high = NAN, .margin = margin, .against = ""};
    if (!most) return c;
    double *logs = heap_new(sizeof(double) * (size_t)most);
    for (int i = 0, k = 0; i < base->sample_count && k < mine->sample_count;) {
        int a = base->sample_rounds[i], b = mine->sample_rounds[k];
        if (a == b && base->samples_ns[i] > 0 && mine->samples_ns[k] > 0)
            logs[pairs++] = log(mine->samples_ns[k] / base->samples_ns[i]);
        i += a <= b;
        k += b <= a;
    }
    if (pairs) {
        sort_samples(logs, pairs);
        median_interval(logs, pairs, confidence, &c.ratio_low, &c.ratio_high);
        c.ratio = exp(sorted_quantile(logs, pairs, 0.5));
        c.ratio_low = exp(c.ratio_low);
        c.ratio_high = exp(c.ratio_high);
        c.rounds = pairs;
        /* Fewer pairs than the confidence needs: the interval is the range, and only what is far apart can be told; of
         * two pairs only what takes twice as long in both. */
        double least = pairs >= 10 ? margin : pairs >= 3 ? 4 * margin : MAXIMUM(4 * margin, 1);
        c.verdict = pairs >= 2 ? verdict_of(c.ratio_low, c.ratio_high, least) : QN_AMBIGUOUS;
        if (pairs < 3 && c.verdict == QN_SAME) c.verdict = QN_AMBIGUOUS;
        /* Who ended early has no rounds with the base's later ones: where all samples of both point the other way, the
         * machine changed meanwhile, and neither is believed. */
        double medians = mine->median_ns / base->median_ns;
        if ((c.verdict == QN_FASTER && medians >= 1) || (c.verdict == QN_SLOWER && medians <= 1))
            c.verdict = QN_AMBIGUOUS;
    }
    heap_free(logs);
    return c;
}

/* Half the width of the median's interval in logarithms. */
static double log_width(const qn_bench_time *t)
{
    return fmax(log(t->interval_high_ns / t->median_ns), log(t->median_ns / t->interval_low_ns));
}

qn_bench_comparison compare_runs(const qn_bench_time *base, const qn_bench_time *mine, double margin)
{
    qn_bench_comparison c = {.ratio = NAN, .ratio_low = NAN, .ratio_high = NAN, .margin = margin, .against = ""};
    if (!(base->median_ns > 0) || !(mine->median_ns > 0)) return c;
    double a = log_width(base), b = log_width(mine), width = 3.09 / 1.96 * sqrt(a * a + b * b);
    c.ratio = mine->median_ns / base->median_ns;
    c.ratio_low = c.ratio * exp(-width);
    c.ratio_high = c.ratio * exp(width);
    c.verdict = verdict_of(c.ratio_low, c.ratio_high, margin);
    double clocks = mine->clock_mhz / base->clock_mhz;
    bool differs = c.verdict == QN_FASTER || c.verdict == QN_SLOWER;
    if (differs && clocks > 0 && verdict_of(c.ratio_low * clocks, c.ratio_high * clocks, margin) != c.verdict)
        c.verdict = QN_AMBIGUOUS; /* the clock was another one: the difference may be its */
    return c;
}
