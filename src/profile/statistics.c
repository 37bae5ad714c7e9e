/*
 * Statistics of timing samples. A median with the 20 and 80 percent quantiles tells more of a distribution with a long
 * tail than a mean with a deviation would: one interrupted run moves neither.
 * SPDX-License-Identifier: MIT
 */
#include "profile/profile.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between the two samples nearest to q * (count - 1), by weight. */
static double sorted_quantile(const double *samples, int count, double q)
{
    if (count <= 0) return NAN;
    double place = (q < 0 ? 0 : q > 1 ? 1 : q) * (count - 1);
    int below = (int)place;
    if (below == count - 1) return samples[below];
    return samples[below] + (place - below) * (samples[below + 1] - samples[below]);
}

double quantile(double *samples, int count, double q)
{
    if (count > 1) qsort(samples, (size_t)count, sizeof(*samples), compare);
    return sorted_quantile(samples, count, q);
}

spread spread_of(double *samples, int count)
{
    if (count > 1) qsort(samples, (size_t)count, sizeof(*samples), compare);
    return (spread){.median = sorted_quantile(samples, count, 0.5),
                    .low = sorted_quantile(samples, count, 0.2),
                    .high = sorted_quantile(samples, count, 0.8),
                    .count = count};
}

double spread_relative(const spread *s)
{
    return s->count && s->median > 0 ? (s->high - s->low) / (2 * s->median) : INFINITY;
}
