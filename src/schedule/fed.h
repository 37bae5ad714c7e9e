/*
 * The parts of the recipe `fed`, for its own files: fed_loops.c finds the product, fed_epilogue.c what follows it,
 * fed_gather.c and fed_take.c what an operand is computed from, fed_windows.c whether the copy engine gathers it, fed.c chooses the numbers. Each returns false after it has said why the recipe does not suit.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SCHEDULE_FED_H
#define QUERN_SCHEDULE_FED_H

#include "schedule/schedule.h"

typedef struct fed_work {
    schedule *s;
    arena *memory;
    const char *why;
} fed_work;

bool fed_refuse(fed_work *w, const char *why);
bool fed_find_loops(fed_work *w);
bool fed_find_epilogue(fed_work *w);
bool fed_epilogue_is_long(const schedule *s);
/* fed_loops.c */
bool fed_is_number(const fed_work *w, value v, int64_t n);
bool fed_is_zero_tile(const fed_work *w, value v);
bool fed_mask_is_own(const fed_work *w, value mask, const tile_op *load,
                     bool turned); /* nothing but the bounds of the load, or of its transpose */
bool fed_find_axes(fed_work *w, sched_operand *o, int k_result, value k);
/* fed_gather.c: the load that a value is computed from, element by element, if it is one of an array with digits; NULL:
 * there is none. */
const tile_op *fed_gathered_load(const fed_work *w, value v);
/* It is the load of the operand, whose axes are known. */
bool fed_add_gather(fed_work *w, const sched_operand *o);
bool fed_choose_gather(fed_work *w); /* the tile is known */
/* The one load that a value is computed from, element by element; NULL: there is none, or there are several. */
const tile_op *fed_load_below(const fed_work *w, value v);
/* What v is computed from, down to the load, into `needed`. */
void fed_need_values(const tile_kernel *k, const tile_op *load, value v, bool *needed);
/* fed_take.c: the same of an operand that is computed from a slice of an f32 array. */
const tile_op *fed_taken_load(const fed_work *w, value v, int side);
bool fed_add_take(fed_work *w, const sched_operand *o);
bool fed_check_taken_loops(fed_work *w); /* the nest around the steps is one that the warps that fill can count through */
bool fed_choose_takes(fed_work *w); /* the tile is known */
/* fed_windows.c: does the copy engine walk what is gathered? Then nothing is gathered by warps. */
void fed_choose_windows(fed_work *w);
bool fed_gather_is_plain(const schedule *s); /* fed_gather.c: elements go to the ring as they are */
/* Can a bulk copy walk this array? */
bool fed_array_is_bulk(const tile_param *p);
int fed_map_add(schedule *s, sched_map map); /* its number */

#endif
