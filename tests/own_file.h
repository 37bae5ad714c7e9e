/*
 * Files beside a test program. In: a name. Out: one that this run alone has: suites of two builds run beside each other.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_OWN_FILE_H
#define QUERN_TESTS_OWN_FILE_H

#include <stdio.h>
#include <unistd.h>

static inline const char *own_file(const char *name)
{
    static char room[80];
    snprintf(room, sizeof(room), "%d.%s", (int)getpid(), name);
    return room;
}

#endif
