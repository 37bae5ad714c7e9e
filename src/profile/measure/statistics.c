/*
 * Quantiles of samples. They tell more of a distribution with a long tail than a mean with a deviation would: one
 * interrupted run moves none of them.
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

void sort_samples(double *samples, int count)
{
    if (count > 1) qsort(samples, (size_t)count, sizeof(*samples), compare);
}

double sorted_quantile(const double *samples, int count, double q)
{
    if (count <= 0) return NAN;
    double place = (q < 0 ? 0 : q > 1 ? 1 : q) * (count - 1);
    int below = (int)place;
    if (below == count - 1) return samples[below];
    return samples[below] + (place - below) * (samples[below + 1] - samples[below]);
}

double quantile(double *samples, int count, double q)
{
    sort_samples(samples, count);
    return sorted_quantile(samples, count, q);
}
