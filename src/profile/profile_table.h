/*
 * A table of a profile while it is made: profile_rows.c fills it, profile_table.c writes it.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_PROFILE_TABLE_H
#define QUERN_PROFILE_PROFILE_TABLE_H

#include "profile/nesting.h"
#include "profile/profile.h"

typedef struct row {
    const char *name, *kind, *shapes, *device;
    const char *source; /* of a kernel: what it is made of and where that was written, "linear+gelu train.c:25" */
    bool fused;         /* its own name was made by fusion: people read `source` */
    int64_t calls, self_ns, total_ns, device_self_ns, device_total_ns, device_calls, memory_bytes;
    double flops, bytes;        /* of launches and copies, together */
    double roofline;            /* share of it; NAN: not known */
    const char *bound;          /* "memory", "compute", "tensor cores", "products": of what took longest; NULL: not known */
    double roof_ns, longest_ns; /* the time that `roofline` is of; of the sum that `bound` is of */
    int64_t estimated_ns;       /* of its device time: from kernels that it shares with others */
} row;

typedef struct view {
    arena *memory;
    const qn_profile *profile;
    qn_table_options options;
    row *rows;
    int row_count, row_capacity;
    row **rows_of; /* by sum; NULL: not shown */
    int64_t self_total_ns, device_total_ns;
    /* Rows by name (interned), while device time is given to its owners: of ranges, of operations. */
    struct names {
        struct name_row {
            const char *name;
            int row; /* plus 1; 0: free */
        } * items;
        int size, used;
    } ranges, operations;
    const nesting *nesting;
} view;

void table_make_rows(view *v, const nesting *n);
void table_add_devices(view *v); /* roofs and flops of what ran on devices; after the rows */

#endif
