/*
 * The one parameter of a generated CUDA kernel: a struct of 8-byte words, filled by the host alike for `cuda` and
 * `emu`. In order, for each parameter of the kernel: an array is its pointer, its extents, its strides in elements; a
 * scalar or an extent is one word (integers sign-extended, floats as the bits of a double). Then the tail.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_FRAME_H
#define QUERN_DEVICE_CUDA_FRAME_H

#include "ir/interp.h"

enum { CUDA_FRAME_TAIL_WORDS = 8, CUDA_FRAME_MOST_WORDS = 64 * (1 + 2 * MAX_RANK) + CUDA_FRAME_TAIL_WORDS };

/* What the tail holds after the programs of the phase; pointers as the kernel sees them, NULL where not needed. */
typedef struct cuda_tail {
    void *report;  /* struct cuda_report */
    void *scratch; /* kept values too large for shared memory */
    void *sync;    /* zeroed words for barriers and reductions of the grid */
    void *print;   /* ring buffer of printed lines */
    int64_t units; /* multiprocessors */
} cuda_tail;

int cuda_frame_words(const tile_kernel *k); /* with the tail */
/* Everything but the tail. */
void cuda_frame_arguments(const tile_kernel *k, const array_view *arrays, const launch_plan *plan, int64_t *words);
void cuda_frame_tail(const tile_kernel *k, const launch_plan *plan, int phase, const cuda_tail *tail, int64_t *words);

#endif
