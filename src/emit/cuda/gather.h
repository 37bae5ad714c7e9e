/*
 * Products whose operands are gathered: shared by cuda/gather.c and cuda/dot.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_GATHER_H
#define QUERN_EMIT_CUDA_GATHER_H

#include "emit/cuda/nest.h"

/* The views gather_a and gather_b, from line `top` of the left and line `left` of the right operand on. The class of the
 * product, with its numbers. */
const char *gather_put(emitter *e, const loop_product *p);

#endif
