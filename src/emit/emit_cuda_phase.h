/*
 * One phase of a kernel, analysed: shared by emit_cuda.c (text), geometry.c (launches) and layout_print.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_EMIT_CUDA_PHASE_H
#define QUERN_EMIT_EMIT_CUDA_PHASE_H

#include "emit/emit_cuda_nest.h"

/* Chooses e->cuda for the phase and writes its statements into *body. */
bool cuda_loops_over_programs(const cuda_state *c); /* fewer teams than programs, perhaps */
qn_status cuda_phase(emitter *e, int phase, const cuda_target *target, text *body, qn_error *error);
/* The same for a phase of one program that the last block of the phase before, which e->cuda is of, may go on with.
 * *joined false: it cannot. */
qn_status cuda_phase_join(emitter *e, int phase, const cuda_target *target, text *body, bool *joined, qn_error *error);

#endif
