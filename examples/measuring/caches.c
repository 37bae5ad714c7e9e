/*
 * Cold and warm caches: the same sum over 512 KB, again and again from the same array, and each time from another one of
 * 512. The first finds its numbers in the cache and reads as a bandwidth that no large array will ever see.
 * Build: cc caches.c $(pkg-config --cflags --libs quern)
 * SPDX-License-Identifier: MIT
 */
#include <quern/bench.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 1 << 17, ARRAYS = 512 };

typedef struct work {
    const float *numbers;
    int arrays, at;
    double sum;
} work;

static void sum_next(void *user)
{
    work *w = user;
    const float *x = w->numbers + (size_t)w->at * NUMBERS;
    float sums[16] = {0};
    for (int i = 0; i < NUMBERS; i += 16)
        for (int k = 0; k < 16; k++) sums[k] += x[i + k];
    for (int k = 0; k < 16; k++) w->sum += sums[k];
    w->at = (w->at + 1) % w->arrays;
}

static int measure(const char *name, work *w, double *gb_per_s)
{
    qn_error error;
    qn_bench_time time;
    if (qn_bench(sum_next, w, &(qn_time_options){.seconds = 0.5}, &time, &error))
        return fprintf(stderr, "%s\n", error.message), 1;
    *gb_per_s = sizeof(float) * NUMBERS / time.median_ns;
    printf("%-28s %8.1f us  %6.1f GB/s\n", name, time.median_ns * 1e-3, *gb_per_s);
    qn_bench_time_free(&time);
    return 0;
}

int main(void)
{
    size_t bytes = sizeof(float) * NUMBERS * ARRAYS;
    float *numbers = aligned_alloc(64, bytes);
    double warm, cold;
    if (!numbers) return 1;
    memset(numbers, 0, bytes); /* touch it: memory that was never written may all be one page of zeros */
    for (size_t i = 0; i < (size_t)NUMBERS * ARRAYS; i++) numbers[i] = (float)(i % 7);
    if (measure("the same 512 KB (warm)", &(work){.numbers = numbers, .arrays = 1}, &warm) ||
        measure("another one each time (cold)", &(work){.numbers = numbers, .arrays = ARRAYS}, &cold))
        return 1;
    printf("the warm figure is %.1f times the cold one; `quern bench` rotates copies so that it reports the cold one\n",
           warm / cold);
    free(numbers);
    return 0;
}
