/*
 * The one parameter of a generated CUDA kernel: a struct of 8-byte words, filled by the host alike for `cuda` and
 * `emu`. In order, for each parameter of the kernel: an array is its pointer, its extents, its strides in elements; a
 * scalar or an extent is one word (integers sign-extended, floats as the bits of a double). Then the tail. The maps of a
 * phase that has some (tensor_map.h) stand before all of it.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_FRAME_H
#define QUERN_DEVICE_CUDA_FRAME_H

#include "emit/cuda/emit.h"

enum {
    CUDA_FRAME_TAIL_WORDS = sizeof(cuda_tail) / sizeof(int64_t),
    CUDA_FRAME_ALIGNED_WORDS = 8, /* a struct with maps is 64-byte aligned, so its size is a multiple of that */
    CUDA_FRAME_MOST_WORDS =
        CUDA_MOST_MAPS * CUDA_MAP_WORDS + 64 * (1 + 2 * MAX_RANK) + CUDA_FRAME_TAIL_WORDS + CUDA_FRAME_ALIGNED_WORDS
};

int cuda_frame_words(const tile_kernel *k, int maps); /* with that many maps in front, and the tail */
/* words: behind the maps. Everything but the tail. */
void cuda_frame_arguments(const tile_kernel *k, const array_view *arrays, const launch_plan *plan, int64_t *words);
/* The tail, whose programs are those of the plan's phase; its pointers as the kernel sees them. */
void cuda_frame_tail(const tile_kernel *k, const launch_plan *plan, int phase, const cuda_tail *tail, int64_t *words);

#endif
