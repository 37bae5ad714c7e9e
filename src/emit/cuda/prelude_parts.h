/*
 * The parts of the CUDA prelude, in prelude/cuda: templates as in prelude_parts.h, with these variables:
 *   $t the type itself (for folds: max_f32)   $y the type without the fold (f32)   $v the C type in a register
 *   $m the C type in memory   $u $i unsigned and signed integer of the same width, as C types   $b its bits
 *   $s what a shuffle moves (int, long long, float, double)   $o the identity of a fold   $f the suffix f of C functions
 *   $w the C type of an atomic word of its width   $c the letter of a float's asm constraint
 *   $k what dot adds up in   $e unsigned of 16 or 32 bits   $g > for a fold that begins with max, else <
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_PRELUDE_PARTS_H
#define QUERN_EMIT_CUDA_PRELUDE_PARTS_H

#include "emit/cuda/prelude.h"
#include "emit/prelude_parts.h"

/* By rule: load_<m>x<v>, store_<m>x<v> and their kinds. False: no such name. */
bool cuda_memory_text(const char *name, text *needs, text *out);
/* By rule: bulk_in_<n>d, `bulk_in_<n>d_to`, bulk_out_<n>d, wgmma_<t>_n<N>, wgmma_<t>_n<N>_ra. */
bool cuda_phase_text(const char *name, text *needs, text *out);

#endif
