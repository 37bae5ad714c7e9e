/*
 * Tile IR to tile IR. passes.c holds the pipeline as a table; each pass is one file whose function, dump name and test
 * folder share its name.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PASSES_PASSES_H
#define QUERN_PASSES_PASSES_H

#include "ir/tile.h"

typedef struct pass {
    const char *name, *summary;         /* summary: one line for `quern show --help` and docs */
    bool (*run)(tile_kernel *k);        /* true: something changed */
    const char *const *requires_passes; /* names that must have run before, NULL-terminated; or NULL */
    const char *const *breaks;          /* names whose result this one may undo; the runner runs those again at once */
} pass;
extern const pass passes[];
extern const int pass_count;

/* Called after each pass with its name, whether it changed anything, and its time. */
typedef void passes_observer(void *context, const tile_kernel *k, const char *name, bool changed, int64_t time_ns);

/* Runs the pipeline, up to and including `last` (NULL: all). Verifies after each pass. */
qn_status passes_run(tile_kernel *k, const char *last, passes_observer *observer, void *context, qn_error *error);

/* facts.c, used by emitters too: what is known of an integer value. */
typedef struct integer_fact {
    int64_t low, high; /* inclusive; INT64_MIN, INT64_MAX when unknown */
    int64_t divisor;   /* the value is a multiple of it; 1 when unknown, 0 for the constant 0 */
} integer_fact;
typedef struct facts facts;
facts *facts_compute(const tile_kernel *k, arena *memory);
integer_fact facts_of(const facts *f, value v);
/* Is the extent in this class of tile_facts? */
bool size_class_holds(int class, int64_t extent);
/* Along one axis of an integer tile: does it grow by exactly `*step` per element? */
bool facts_stride(const facts *f, value v, int axis, int64_t *step);

#endif
