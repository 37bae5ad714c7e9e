/*
 * What is inside what: the kept records of a profile as trees, one a thread, and the work of devices at the records
 * that started it.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_NESTING_H
#define QUERN_PROFILE_NESTING_H

#include "profile/session.h"

typedef struct nesting {
    int64_t count, device_count; /* of records, of device records, when it was made */
    int64_t *parent;             /* by record; -1: it is in nothing */
    int64_t *self_ns;            /* by record: its own time; a worker's share of a job is the kernel's own */
    int64_t *device_self_ns;     /* by record: what it started, or is itself, on a device */
    int64_t *device_total_ns;    /* with what is nested in it */
    int64_t *memory_bytes;       /* allocated less freed, with what is nested in it */
    int64_t *host;               /* by device record: the record that started it; -1: not kept */
} nesting;

/* Under the profile's lock, or when it has stopped. */
qn_status nesting_make(const qn_profile *p, nesting *out, qn_error *error);
void nesting_free(nesting *n);

/* memory_timeline.c */
/* What is alive, address by address. Zero-initialise. */
typedef struct memory_block {
    int64_t address, bytes, record; /* record: the caller's number */
    const char *place;              /* "memory of the host"; NULL: free */
} memory_block;
typedef struct memory_book {
    memory_block *table; /* heap; open addressing */
    int64_t capacity, used;
    struct {
        const char *name;
        int64_t bytes, peak_bytes;
    } places[8];
    int place_count;
} memory_book;
/* Takes an ALLOCATE or FREE record; gives what it added (below 0: freed), 0 for memory that it never saw. *place: its
 * number; -1: there are too many. */
int64_t memory_book_add(memory_book *b, const record *r, int64_t number, int *place);
void memory_book_free(memory_book *b);

typedef struct memory_point {
    int64_t time_ns, bytes;
} memory_point;
/* One kind of memory over the time of the profile. */
typedef struct memory_timeline {
    const char *place;
    memory_point *points; /* after each record */
    int64_t count;
    int64_t peak_bytes, peak_ns;
    int64_t *alive; /* at the peak: records of kind ALLOCATE, the largest first */
    int64_t alive_count;
} memory_timeline;
enum { MOST_PLACES = 8 };
/* Into out[MOST_PLACES]; *count of them. Under the profile's lock, or when it has stopped. */
qn_status memory_timelines_make(const qn_profile *p, memory_timeline *out, int *count, qn_error *error);
void memory_timelines_free(memory_timeline *timelines, int count);

#endif
