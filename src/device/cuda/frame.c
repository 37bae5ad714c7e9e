/*
 * Filling the parameter struct of a generated CUDA kernel; see cuda/frame.h for its order.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/frame.h"

#include <string.h>

static bool is_array(const tile_param *p)
{
    return p->kind < PARAM_SCALAR;
}

static int argument_words(const tile_kernel *k)
{
    int count = 0;
    for (int i = 0; i < k->param_count; i++) count += is_array(&k->params[i]) ? 1 + 2 * k->params[i].rank : 1;
    return count;
}

int cuda_frame_words(const tile_kernel *k, int maps)
{
    int words = maps * CUDA_MAP_WORDS + argument_words(k) + CUDA_FRAME_TAIL_WORDS;
    return maps ? (words + CUDA_FRAME_ALIGNED_WORDS - 1) / CUDA_FRAME_ALIGNED_WORDS * CUDA_FRAME_ALIGNED_WORDS : words;
}

void cuda_frame_arguments(const tile_kernel *k, const array_view *arrays, const launch_plan *plan, int64_t *words)
{
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        if (!is_array(p)) {
            *words++ = plan->scalars_bits[i];
            continue;
        }
        *words++ = (int64_t)(intptr_t)arrays[i].data;
        for (int axis = 0; axis < p->rank; axis++) *words++ = arrays[i].extents[axis];
        for (int axis = 0; axis < p->rank; axis++) *words++ = arrays[i].strides[axis];
    }
}

void cuda_frame_tail(const tile_kernel *k, const launch_plan *plan, int phase, const cuda_tail *tail, int64_t *words)
{
    cuda_tail own = *tail;
    memcpy(own.programs, plan->programs[phase], sizeof(own.programs));
    memcpy(words + argument_words(k), &own, sizeof(own));
}
