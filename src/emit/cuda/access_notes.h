/*
 * Notes of memory accesses: which element each thread of a warp touches, for hints.
 *
 * While a phase is emitted, each access to an array or to a kept tile in shared memory leaves a note: its layout and how
 * far one position of each loop moves it along each axis. Strides and extents come later, from the launch: note_measure
 * then plays a warp's threads through it.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_ACCESS_NOTES_H
#define QUERN_EMIT_CUDA_ACCESS_NOTES_H

#include "emit/cuda/emit.h"

typedef struct access_note {
    const tile_op *op; /* LOAD, STORE, ATOMIC; of a tile: what made it, or NULL */
    value tile;        /* the kept tile; 0: an access to an array */
    int phase, line;
    dtype elem;
    int width, vector; /* elements of one instruction; side by side in one thread */
    bool gathers;      /* an index that was read from memory takes part: the step of it is not known */
    int loop_count;
    int64_t loops[MAX_RANK]; /* extents, like tile_type.dims */
    unsigned row_axes;
    bool row_fast;
    int inner_threads, team_threads;   /* 0: all of the team; at the launch */
    bool lanes;                        /* the team is a part of a block: the next team has the next program */
    int64_t steps[MAX_RANK][MAX_RANK]; /* [loop][axis of the array]; of a tile [loop][0]: elements */
    int64_t program_steps[MAX_RANK];   /* from one program of axis 0 to the next, by axis of the array */
} access_note;

typedef struct access_notes {
    arena *memory;
    access_note *items;
    int count, capacity, from; /* from: of the phase that is being emitted, which may begin again */
    const char *team;          /* why the last phase has the threads it has, as `show --stage layout` says it */
} access_notes;

/* The accesses of all phases. Not of the operands of products, which have ways of their own. */
qn_status emit_access_notes(const tile_kernel *k, const cuda_target *target, access_notes *out, qn_error *error);

/* A warp's threads at one access. Numbers of the launch: extents of the loops (0: large), strides of the array in
 * elements by axis (of a tile {1}). */
typedef struct warp_access {
    double sectors, least; /* of 32 bytes, of all elements that the threads take side by side; enough for them */
    int ways;           /* turns that one instruction takes in shared memory, beyond what its width needs: 1 is best */
    int64_t stride;     /* elements from the first thread to the second */
    int possible_width; /* elements that an instruction could take */
} warp_access;
void note_measure(const access_note *n, const int64_t *extents, const int64_t *strides, warp_access *out);

#endif
