/*
 * Tensor maps: an array as the copy engine of sm_90 sees it. In: what the compiled text asks for (cuda_map) and the
 * array of a launch. Out: the 128 bytes at the start of the frame, for a GPU by its driver, for emu as plain numbers.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_TENSOR_MAP_H
#define QUERN_DEVICE_CUDA_TENSOR_MAP_H

#include "device/cuda/api.h"
#include "emit/cuda/emit.h"

/* Everything that a map depends on; two equal ones have the same map. Axis 0 is the innermost. */
typedef struct map_numbers {
    uint64_t address;
    int rank, swizzle;
    int rounds; /* f32 is rounded to tf32 on its way */
    dtype elem;
    uint64_t extents[CUDA_MAP_AXES], strides[CUDA_MAP_AXES]; /* strides in bytes; [0] is an element */
    uint32_t box[CUDA_MAP_AXES];
    /* Windows (sched_windows): box is channels and places of a copy; steps and corners of axes 1 .. */
    int windows;
    uint32_t steps[CUDA_MAP_AXES];
    int lower[CUDA_MAP_AXES - 2], upper[CUDA_MAP_AXES - 2];
} map_numbers;

/* QN_FAILED with the reason where the array has no map: the variant's facts should have said so. */
qn_status map_numbers_of(const cuda_map *map, const array_view *array, map_numbers *out, qn_error *error);

/* words: CUDA_MAP_WORDS of them. */
void map_for_emu(const map_numbers *numbers, int64_t *words);
/* 0, or the driver's result. */
int map_for_driver(const cuda_api *api, const map_numbers *numbers, int64_t *words);

#endif
