/*
 * One phase of a kernel, analysed: shared by cuda/phase.c (its body), cuda/emit.c (text), geometry.c (launches) and layout_print.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_PHASE_H
#define QUERN_EMIT_CUDA_PHASE_H

#include "emit/cuda/loops.h"

/* Chooses e->cuda for the phase, its program included. */
qn_status cuda_phase(emitter *e, int phase, const cuda_target *target, qn_error *error);
/* The same for a phase of one program that the last block of the phase before, which e->cuda is of, may go on with.
 * *joined false: it cannot. */
qn_status cuda_phase_join(emitter *e, int phase, const cuda_target *target, bool *joined, qn_error *error);
void cuda_phase_body(emitter *e, int phase, text *body); /* its statements, once it was chosen */

/* geometry.c: what was decided for a phase, noted as its text is written. The layout's memory is the emitter's, so that
 * what is noted may be pointed at; its target has no gaps. */
cuda_layout *cuda_layout_open(const tile_kernel *k, const cuda_target *target);
arena *cuda_layout_memory(cuda_layout *l);
const cuda_target *cuda_layout_target(const cuda_layout *l);
void cuda_layout_note(cuda_layout *l, int phase, const emitter *e);
void cuda_layout_note_join(cuda_layout *l, int phase,
                           const emitter *e); /* e->cuda: of the phase that is gone on with */
void cuda_layout_note_roles(cuda_layout *l, const loop_program *program);
sched_machine cuda_machine(const cuda_target *target); /* as schedule/ sees it, without gaps */

#endif
