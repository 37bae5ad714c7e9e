/*
 * Whose the time of devices is: every kernel's time, part by part, with the operation and the range that called for it.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_OWNERS_H
#define QUERN_PROFILE_OWNERS_H

#include "base/range.h"
#include "profile/nesting.h"

/* A part of a kernel (or of a copy, or of a whole graph). The parts of one follow each other and fill its time. */
typedef struct owned {
    int64_t range;             /* the kept record of kind RANGE that it counts in; -1: none */
    const range_path *path;    /* and the ranges of a captured step inside that; NULL: none */
    const char *op;            /* the operation; NULL: a kernel that was called by itself, a copy */
    const char *kernel;        /* what ran */
    const record_facts *facts; /* NULL: not known */
    int64_t start_ns, end_ns;
    int64_t host, device; /* the record that started it, -1: not kept; the device's record, -1: it is `host` itself */
    bool shared;          /* with another operation: its time is an estimate */
    bool shared_between_ranges; /* and with another range */
    int common; /* of its ranges, outermost first, so many have all of the kernel: their time is measured */
} owned;
typedef void owned_take(void *user, const owned *o);

/* All of it: the times of the parts add up to those of the kernels. Under the profile's lock, or when it has stopped. */
qn_status owners_visit(const qn_profile *p, const nesting *n, owned_take *take, void *user, qn_error *error);
/* The names of the ranges that it is in, outermost first; at most RANGE_DEPTH of them, the innermost ones. */
int owners_ranges(const qn_profile *p, const nesting *n, const owned *o, const char *names[RANGE_DEPTH]);

/* "linear+gelu train.c:25": the operations of a kernel by the names that the user called (of one that was written, its
 * own), and the place; in the arena. NULL:
 * nobody knows. */
const char *owners_source(arena *memory, const record_facts *f);
/* What a launch costs in bytes, with FLOPs as bytes: for shares of what was timed together. */
double owners_cost(const record_facts *f);

/* owners_timeline.c: the same as slices that nest, row by row: ranges, in them operations. */
typedef struct owner_slice {
    const char *name, *kernel; /* kernel: of an operation; NULL: a range */
    int64_t start_ns, end_ns;
    bool on_host, estimate;
    uint32_t device, stream, thread; /* device and stream of a device, thread of the host */
    int depth;
} owner_slice;
/* In the order of rows, outer ones before what is in them; the caller frees the list. */
qn_status owners_timeline(const qn_profile *p, const nesting *n, owner_slice **out, int64_t *count, qn_error *error);

#endif
