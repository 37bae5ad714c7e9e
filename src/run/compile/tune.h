/*
 * What tuning found out, kept in the cache, and used by later calls.
 *
 * A timing belongs to a *tuning key*: the text of the kernel, the device with its compiler, and the bucket of the
 * shapes (each extent to the next power of two; types and other constants exactly). Within a key every configuration
 * ("BM=64 BN=128") has its own timing, so that a call that fixes one of the constants still gets the best of the others.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_COMPILE_TUNE_H
#define QUERN_RUN_COMPILE_TUNE_H

#include "run/run.h"

/* Is `name` a knob, or a constant that the kernel's `tune` clauses list? */
bool tune_lists(const kernel_entry *entry, const char *name);

/* The key of a call whose constants and extents are bound as they are without a record. */
void tune_key(const qn_call *call, int slot, const bindings *constants, const bindings *extents, text *out);
/* The key of a call with everything set. */
qn_status tune_key_of(qn_call *call, int slot, text *out, qn_error *error);

/* Keeps one timing; a later one of the same configuration replaces it. False: for this context alone, as no other will find
 * it. Takes the context's lock. */
bool tune_record(qn_context *context, const char *key, const char *configuration, double median_ns);
/* The fastest configuration of the key that agrees with the settings; false: there is none. Takes the lock. */
bool tune_best(qn_context *context, const char *key, const bindings *settings, text *configuration);
/* Has anything been recorded for a kernel of this name? Cheap: most kernels are never tuned. Takes the lock. */
bool tune_knows(qn_context *context, const char *kernel);
/* Settings plus what the record chooses for names that are not set. False: nothing was added. */
bool tune_settings(const qn_call *call, int slot, const bindings *constants, const bindings *extents, arena *memory,
                   bindings *settings);

void tune_book_free(struct tune_book *book);
void tune_forget(qn_context *context); /* the cache was cleared; the lock is held */

#endif
