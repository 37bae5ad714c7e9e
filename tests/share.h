/*
 * How many of many cases alike a run tries. In: the variable of the environment that says a number, and the usual number.
 * Out: one of them, or a share of the usual one where QUERN_SLOW=N says that everything takes N times as long
 * (tools/test-sanitized: 4 with the address sanitizer, 32 with the thread sanitizer). A share is said aloud, once for each
 * kind of case; what has only a few cases always tries them all.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_SHARE_H
#define QUERN_TESTS_SHARE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline int number_from(const char *name, int otherwise)
{
    const char *words = getenv(name);
    return words ? atoi(words) : otherwise;
}

static inline void share_say(const char *what, int share)
{
    static const char *said;
    if (said != what && share > 1) printf("note: %s: 1 of %d under a sanitizer\n", what, share);
    said = what;
}

/* N: one of N of these is tried. */
static inline int share_of(const char *what)
{
    int share = number_from("QUERN_SLOW", 1);
    if (share < 2) return 1;
    share_say(what, share);
    return share;
}

/* The same of a list of cases that each are something of their own: all of them unless everything is very slow. */
static inline int share_of_few(const char *what)
{
    int share = (number_from("QUERN_SLOW", 1) + 3) / 4;
    share_say(what, share);
    return share;
}

/* How many of something. */
static inline int count_from(const char *name, const char *what, int otherwise)
{
    if (getenv(name)) return number_from(name, otherwise);
    int count = otherwise / share_of(what);
    return count ? count : 1;
}

#endif
