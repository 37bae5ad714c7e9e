/*
 * Printing the nodes of loop programs by which warps gather an operand; emit_cuda_loops.c calls these.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_EMIT_CUDA_FILL_H
#define QUERN_EMIT_EMIT_CUDA_FILL_H

#include "emit/emit_cuda_nest.h"
#include "loops/loops.h"

void print_gather_begin(emitter *e, const schedule *s, const loop_node *n);
void print_gather_next(emitter *e, const schedule *s, const loop_node *n);
void print_gather(emitter *e, const schedule *s);
void print_filled(emitter *e, const schedule *s);
void print_filled_last(emitter *e, const schedule *s);

#endif
