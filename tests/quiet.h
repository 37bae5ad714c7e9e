/*
 * Tests that depend on the machine as it is: its speed, and paths that must not exist.
 *
 * EXPECT_QUICK(condition) is EXPECT for a condition on measured times. Where it does not hold and the machine is busy (more
 * runs than it has cores, or this thread is kept waiting while it only counts), nothing is known about Quern: the test
 * says "note: skipped ...", which tools/test tells once more at its end, and goes on. QUERN_TEST_BUSY=0 or 1 decides
 * instead of looking.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_QUIET_H
#define QUERN_TESTS_QUIET_H

#include "test.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/sysinfo.h>
#include <time.h>

static inline int64_t quiet_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Why times mean nothing here, in words; NULL on a quiet machine. */
static inline const char *machine_busy(void)
{
    static char words[120];
    const char *said = getenv("QUERN_TEST_BUSY");
    if (said && *said) return *said == '0' ? NULL : "QUERN_TEST_BUSY says so";
    double load = 0;
    int cores = get_nprocs(); /* unistd.h has an `access`, as the tile IR has */
    if (getloadavg(&load, 1) == 1 && load > cores + 0.5) {
        snprintf(words, sizeof(words), "a load of %.1f on %d cores", load, cores);
        return words;
    }
    int64_t wall = quiet_clock_ns(CLOCK_MONOTONIC), own = quiet_clock_ns(CLOCK_THREAD_CPUTIME_ID), now;
    while ((now = quiet_clock_ns(CLOCK_MONOTONIC)) < wall + 100000000) continue;
    double share = (double)(quiet_clock_ns(CLOCK_THREAD_CPUTIME_ID) - own) / (double)(now - wall);
    if (share > 0.97) return NULL;
    snprintf(words, sizeof(words), "a thread that only counts gets %.0f %% of a core", 100 * share);
    return words;
}

static inline void quick_check(bool good, const char *file, int line, const char *what)
{
    const char *busy = good ? NULL : machine_busy();
    if (busy)
        printf("note: skipped: %s:%d: %s does not hold, but the machine is busy (%s)\n", file, line, what, busy);
    else if (!good)
        test_fail(file, line, what);
}
#define EXPECT_QUICK(condition) quick_check((condition), __FILE__, __LINE__, #condition)

/* A path that does not exist, whatever this machine has: inside a folder that was made for it and removed again. */
static inline const char *absent_path(const char *name)
{
    static char path[4][128];
    static int turn;
    char folder[] = "/tmp/quern-absent-XXXXXX";
    turn = (turn + 1) % 4;
    if (!mkdtemp(folder) || remove(folder)) test_fail(__FILE__, __LINE__, "a folder in /tmp");
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
    return path[turn];
}

#endif
