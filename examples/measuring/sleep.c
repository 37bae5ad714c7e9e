/*
 * Does the clock read right? A sleep of 50 ms must read as 50 ms, here and under any other tool that you trust.
 * Build: cc sleep.c $(pkg-config --cflags --libs quern)
 * SPDX-License-Identifier: MIT
 */
#include <quern/bench.h>
#include <stdio.h>
#include <time.h>

static void sleep_50_ms(void *user)
{
    (void)user;
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
}

int main(void)
{
    qn_error error;
    qn_bench_time time;
    if (qn_bench(sleep_50_ms, NULL, &(qn_time_options){.seconds = 1}, &time, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    printf("a sleep of 50 ms: %.2f ms, 95%% sure of %.2f to %.2f (%d samples)\n", time.median_ns * 1e-6,
           time.interval_low_ns * 1e-6, time.interval_high_ns * 1e-6, time.sample_count);
    bool right = time.least_ns > 49.5e6 && time.least_ns < 55e6;
    qn_bench_time_free(&time);
    return right ? 0 : 1;
}
