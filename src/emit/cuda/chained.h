/*
 * Printing the recipe `chained` as CUDA C; cuda/emit.c calls it for phases that have such a schedule.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_CHAINED_H
#define QUERN_EMIT_CUDA_CHAINED_H

#include "emit/cuda/loops.h"
#include "schedule/chained.h"

void emit_cuda_chained(emitter *e, const chained *c, text *functions);
/* The maps at the start of its frame; how many. */
int cuda_chained_maps(const chained *c, cuda_map *maps);
/* The schedule of a phase on this target; NULL: it goes another way. */
const chained *cuda_chained(const tile_kernel *k, int phase, const cuda_target *target, arena *memory,
                            const char **why);

#endif
