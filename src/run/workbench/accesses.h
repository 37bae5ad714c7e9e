/*
 * How the compiled text of a launch touches memory, as a warp sees it: what hints are made of.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_WORKBENCH_ACCESSES_H
#define QUERN_RUN_WORKBENCH_ACCESSES_H

#include "emit/cuda/emit.h"
#include "run/run.h"

typedef enum access_kind { ACCESS_LOAD, ACCESS_STORE, ACCESS_ATOMIC, ACCESS_TILE } access_kind;

/* One access of the text. Sectors are 32 bytes, of all elements that a warp takes in one go. */
typedef struct launch_access {
    access_kind kind;              /* TILE: of a kept tile in shared memory */
    const char *array;             /* name, or the tile's, "" if it has none */
    int line;                      /* 0: not known */
    int bytes;                     /* that one instruction of a thread moves */
    int possible_bytes;            /* that it could: neighbours that this thread takes anyway, 16 at most */
    int64_t stride_bytes;          /* from a thread to the next */
    int at_once;                   /* elements that a warp takes together */
    double sectors, least_sectors; /* touched; enough for the bytes that are used. 0: an index that was read decides */
    int ways;                      /* TILE: lanes that meet in one bank, at most; 1: no conflict */
    double elements;               /* touched in the whole launch */
    double per_address;            /* ATOMIC: updates of one address, on average */
} launch_access;

/* What the IR and the layout of one launch say. Everything lives in the arena that was given. */
typedef struct launch_look {
    launch_access *accesses;
    int access_count, access_capacity;
    double touched_bytes;    /* of arrays: read and written, each element once; NAN: not known (products) */
    int full_product_line;   /* a product of f32 that was not allowed to round to tf32; 0: none */
    double product_flops;    /* of all products; 0: none, NAN: not known */
    const char *rough_array; /* operand of a product whose rows do not start at multiples of 16 bytes; NULL: none */
    int rough_line;
    int64_t rough_stride_bytes;
    const char *team;    /* why it has the threads it has; NULL: not known */
    double loaded_bytes; /* by all loads together; 0: not known */
} launch_look;

/* Of a kernel that went through the pipeline; views and plan are those of the launch (no data is touched). A raw kernel
 * gives an empty look. */
void launch_look_make(const tile_kernel *k, const cuda_target *target, const array_view *views, const launch_plan *plan,
                      arena *memory, launch_look *out);

#endif
