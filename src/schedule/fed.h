/*
 * The parts of the recipe `fed`, for its own files: fed_loops.c finds the product, fed_epilogue.c what follows it,
 * fed.c chooses the numbers. Each returns false after it has said why the recipe does not suit.
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
/* Can a bulk copy walk this array? */
bool fed_array_is_bulk(const tile_param *p);
int fed_map_add(schedule *s, sched_map map); /* its number */

#endif
