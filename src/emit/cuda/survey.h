/*
 * The survey of a phase: what it does, seen before any text. Filled by survey.c; layout.c chooses by it, and the printers
 * of passes read what an access allows from the same rules.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_SURVEY_H
#define QUERN_EMIT_CUDA_SURVEY_H

#include "emit/cuda/nest.h"

enum { ASSUMED_THREADS = 256 }; /* of a product, as long as the team is not chosen */

/* What an access at its place in a pass allows, whatever the vector. */
typedef struct access_view {
    int level;         /* the deepest it depends on */
    bool late;         /* an index or a mask is computed in the chunk or the element */
    bool apart;        /* the elements of a vector go their own ways */
    bool side_by_side; /* along the vectors, by steps of one element; rows do not move it against each other */
    bool back;         /* the same backwards */
    bool tested;       /* an element may be outside */
    int width;         /* elements side by side and aligned, 16 bytes at most */
    int digits;        /* vectors of at most so many elements are not taken apart by digits; 0: it has none */
    int along_rows, along_inner; /* axes of memory that neighbouring rows, or positions of a row, go along */
} access_view;
access_view access_look(const cnest *n, const tile_op *op, place at); /* after its indices and masks were met */
/* After its indices were met: does it lie side by side along the row, and only positions say where? */
bool access_is_row(const cnest *n, const tile_op *op, place at);
int tile_level(const cnest *n, const tile_type *type, const place *at); /* of a kept tile in memory */

/* A quotient or a remainder of a position: how the axes that one tile axis runs along are told apart. */
typedef struct digit {
    int axis;          /* loop axis of the position */
    bool side_by_side; /* the elements of a vector are neighbours; else they have the same */
    int64_t divisor;   /* vectors up to this many elements have such elements only */
} digit;
bool digit_look(const cnest *n, value v, const place *at, digit *out);
value digit_by(const emitter *e, const tile_op *op); /* the scalar that a DIV or MOD divides by */
bool access_is_digit(const cnest *n, const tile_op *op, int axis, int operand, place at, digit *out);

/* A position compared with a scalar. */
typedef struct place_test {
    int side, axis; /* which operand is the position; its loop axis */
    value other;    /* the scalar */
} place_test;
bool place_test_look(const cnest *n, const tile_op *op, place at, place_test *out);

/* Fills e->cuda with what the phase does, and keeps the plans of its blocks. */
void survey_phase(emitter *e, tile_block *b);
const block_plan *survey_plan(const cuda_state *c, const tile_block *b);

#endif
