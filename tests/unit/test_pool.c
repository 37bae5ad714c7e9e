/*
 * The pool: every item once, uneven work balanced, several callers at once, sleeping and waking, and the cost of an
 * empty job.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "quiet.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

typedef struct tally {
    _Atomic int *seen;
    _Atomic int64_t calls, least, bad_worker;
    int threads;
} tally;

static void mark(void *context, int64_t first, int64_t last, int worker)
{
    tally *t = context;
    if (worker < 0 || worker >= t->threads) atomic_fetch_add(&t->bad_worker, 1);
    atomic_fetch_add(&t->calls, 1);
    for (int64_t i = first; i < last; i++) atomic_fetch_add(&t->seen[i], 1);
}

static bool covers_once(pool *p, int64_t count, int64_t grain)
{
    tally t = {.seen = calloc((size_t)count + 1, sizeof(int)), .threads = pool_threads(p)};
    pool_run(p, count, grain, mark, &t);
    bool good = !t.bad_worker && !t.seen[count];
    for (int64_t i = 0; i < count; i++) good &= t.seen[i] == 1;
    good &= t.calls <= (count + grain - 1) / grain;
    free((void *)t.seen);
    return good;
}

TEST(every_item_once)
{
    static const int64_t counts[] = {0, 1, 2, 3, 7, 16, 17, 100, 1000, 4097};
    for (int threads = 1; threads <= 5; threads++) {
        pool *p = pool_new(threads);
        EXPECT(pool_threads(p) == threads);
        for (int i = 0; i < COUNT(counts); i++)
            for (int64_t grain = 1; grain < 200; grain = grain * 5 + 1) EXPECT(covers_once(p, counts[i], grain));
        pool_free(p);
    }
}

TEST(wakes_after_sleep)
{
    pool *p = pool_new(3);
    for (int i = 0; i < 20; i++) {
        nanosleep(&(struct timespec){0, 1000000 * (i % 3)}, NULL);
        EXPECT(covers_once(p, 64, 1));
    }
    pool_free(p);
}

static void sleep_long(void *context, int64_t first, int64_t last, int worker)
{
    for (int64_t i = first; i < last; i++) nanosleep(&(struct timespec){0, 2000000}, NULL);
    atomic_fetch_add((_Atomic int64_t *)context, last - first);
}

TEST(joins_slow_workers)
{
    pool *p = pool_new(4);
    _Atomic int64_t done = 0;
    int64_t start_ns = clock_now_ns();
    pool_run(p, 16, 1, sleep_long, &done);
    double took_ms = (double)(clock_now_ns() - start_ns) * 1e-6;
    EXPECT(done == 16);
    EXPECT_QUICK(took_ms < 30); /* alone it would take 32 */
    pool_free(p);
}

static void *caller(void *argument)
{
    pool *p = argument;
    bool good = true;
    for (int i = 0; i < 200; i++) good &= covers_once(p, 1 + i % 50, 1 + i % 3);
    return good ? p : NULL;
}

TEST(several_callers)
{
    pool *p = pool_new(3);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, caller, p);
    for (int i = 0; i < 4; i++) {
        void *good = NULL;
        pthread_join(threads[i], &good);
        EXPECT(good);
    }
    pool_free(p);
}

typedef struct sums {
    _Atomic int64_t total;
    const struct sums *before; /* complete when this one begins */
    int64_t expected;
    _Atomic int wrong;
} sums;

static void add_up(void *context, int64_t first, int64_t last, int worker)
{
    sums *s = context;
    if (s->before && s->before->total != s->before->expected) s->wrong++;
    for (int64_t i = first; i < last; i++) s->total += i;
}

TEST(jobs_one_after_the_other)
{
    enum { JOBS = 40 };
    pool *p = pool_new(3);
    sums all[JOBS];
    pool_job *jobs = aligned_alloc(64, sizeof(pool_job) * JOBS);
    bool good = true;
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < JOBS; i++) {
            int64_t count = i % 7 == 3 ? 0 : 1 + (i * 37 + round) % 200;
            all[i] = (sums){.before = i ? &all[i - 1] : NULL, .expected = count * (count - 1) / 2};
            jobs[i] = (pool_job){.work = add_up, .context = &all[i], .count = count, .grain = 1 + i % 4};
        }
        pool_run_jobs(p, jobs, JOBS);
        for (int i = 0; i < JOBS; i++) good &= all[i].total == all[i].expected && !all[i].wrong;
    }
    EXPECT(good);
    free(jobs);
    pool_free(p);
}

static void nothing(void *context, int64_t first, int64_t last, int worker)
{
}

TEST(empty_job)
{
    pool *p = pool_new(MINIMUM(cpu_count(), 8));
    double best_ns = 1e18;
    for (int round = 0; round < 50; round++) {
        int64_t start_ns = clock_now_ns();
        for (int i = 0; i < 100; i++) pool_run(p, pool_threads(p), 1, nothing, NULL);
        double each_ns = (double)(clock_now_ns() - start_ns) / 100;
        if (each_ns < best_ns) best_ns = each_ns;
    }
    printf("note: pool: empty fork and join of %d threads takes %.0f ns\n", pool_threads(p), best_ns);
    EXPECT_QUICK(best_ns < 50000);
    pool_free(p);
}

TEST_MAIN(CASE(every_item_once), CASE(wakes_after_sleep), CASE(joins_slow_workers), CASE(several_callers),
          CASE(jobs_one_after_the_other), CASE(empty_job))
