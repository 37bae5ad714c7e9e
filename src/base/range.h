/*
 * The ranges that the calling thread is inside of, recorded or not: whoever makes work that runs later (a node of a
 * graph) remembers the range, so that its time counts there. In: pushes and pops of names. Out: a number for each push,
 * which no other push of the process has, and the record of kind RANGE that carries it.
 *
 * A push is some nanoseconds while nothing is recorded: the name is copied into a place that the thread has already,
 * nothing is allocated, nothing is locked.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_BASE_RANGE_H
#define QUERN_BASE_RANGE_H

#include "base/record.h"

enum {
    RANGE_DEPTH = 64,
    RANGE_WORDS = 64
}; /* deeper ones belong to the last; longer names are cut where they are copied */

typedef struct range_open {
    uint64_t number;
    int64_t from;         /* of record_begin; 0: it is not recorded */
    const char *recorded; /* interned and whole; NULL: it is not recorded */
    char name[RANGE_WORDS];
} range_open;

void range_push(const char *name); /* NULL: "" */
void range_pop(void);
/* A range of the library's own, unless the innermost one has its name already; false: then there is nothing to pop. */
bool range_push_once(const char *name);
uint64_t range_now(void); /* the number of the innermost; 0: none */
/* Those that are open, outermost first; borrowed until the next push or pop. */
const range_open *range_stack(int *count);

/* Ranges of work that is done again and again (a captured step), by names: interned, for the life of the process. */
typedef struct range_path {
    const struct range_path *parent; /* NULL: the outermost */
    const char *name;
} range_path;
const range_path *range_path_keep(const range_path *parent, const char *name); /* NULL without memory */

#endif
