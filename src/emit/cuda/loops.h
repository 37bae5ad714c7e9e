/*
 * Printing loop programs as CUDA C; cuda/emit.c calls it for phases whose warps have roles.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_LOOPS_H
#define QUERN_EMIT_CUDA_LOOPS_H

#include "emit/cuda/nest.h"
#include "loops/loops.h"

/* The function of the program's phase, appended; what it needs of the prelude is noted in e. */
void emit_cuda_loops(emitter *e, const loop_program *program, text *functions);

/* cuda/emit.c: declarations of the arrays, extents and strides that the body names. */
void cuda_put_arrays(emitter *e);
/* The beginning of a function with tensor maps in its frame: e->out is where it goes. */
void cuda_put_head(emitter *e, int phase, int maps, int threads, int blocks);
/* The end of a function whose first thread has made its phases: all see them, then what roles do, which is freed. */
void cuda_put_body(emitter *e, text *functions, text *body);
void emit_cuda_chained(emitter *e, const loop_program *program,
                       text *functions); /* cuda/chained.c: of such a program */

#endif
