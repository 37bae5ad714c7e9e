/*
 * What the benchmarks of this folder share: a clock, the end on an error, the order of samples.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_BENCH_RATIOS_H
#define QUERN_BENCH_RATIOS_H

#include <quern/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline void stop(const qn_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    exit(1);
}

#define TRY(call)                      \
    do {                               \
        if ((call) != 0) stop(&error); \
    } while (0)

static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

#endif
