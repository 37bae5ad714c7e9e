/*
 * Products in the CUDA prelude. In and out: text templates, see prelude_cuda_parts.h.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_cuda_parts.h"

const prelude_part cuda_dot_parts[] = {
    {0},
};
