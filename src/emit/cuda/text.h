/*
 * What the files of the CUDA emitter share: between the files of cuda/ (structure), cuda/expression.c (operations) and
 * cuda/dot.c (products).
 *
 * Registers of the generated text: f32 f64 i8 .. u64 as their C types, f16 and bf16 as float (already rounded), bool as
 * `bool`. Memory: f16 and bf16 are unsigned short, bool is unsigned char. `long` is 64 bits.
 * In a phase these names exist: `frame` (the parameter), `thread` (int, of the team), `threads` (int, of the team),
 * `program`, `program0..2` (long), NAME_array, NAME_extentK, NAME_strideK for arrays, `shared_room` (extern shared).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_TEXT_H
#define QUERN_EMIT_CUDA_TEXT_H

#include "emit/cuda/emit.h"
#include "emit/nest.h"

/* cuda/expression.c. Names of prelude functions are asked for with need(e, ...) of nest.h, like the CPU's. */
/* The C++ expression of an elementwise op (unary, binary, compare, ternary, convert, bitcast, philox ...) on registers;
 * operands are names or literals. */
const char *cuda_expression(emitter *e, const tile_op *op, const char *const *operands);
const char *cuda_number(emitter *e, dtype t, number n); /* a literal */
const char *cuda_register_type(dtype t);
const char *cuda_memory_type(dtype t);
/* a folded with b, for the folds that keep no position. Identity: fold_identity of ir/tile.h with cuda_number. */
const char *cuda_fold_step(emitter *e, fold_kind fold, dtype t, const char *a, const char *b);

/* What emitted text calls; the prelude has it. <m>: f32 f64 f16 bf16 i8 .. u64 bool; <t>: the same without f16, bf16
 * (which are f32 in registers).
 *   void load_<m>x<n>(R (&out)[n] or R *out, const M *p)    n = 1 2 4 8 16 with n * size <= 16 bytes, p aligned to that
 *   void load_<m>x<n>_constant(R *out, const M *p)          an array that this launch only reads
 *   void store_<m>x<n>(M *p, const R *in)
 *   R read_<m>(const M *p), void write_<m>(M *p, R x)       one element
 *   R atomic_<kind>_<m>(M *p, R x); atomic_cas_<m>(p, expected, x)
 *   R lanes_fold_<fold>_<t>(R x, int lanes, unsigned mask)  all `lanes` (a power of two) neighbours get the result
 *   R block_fold_<fold>_<t>(R x, void *room, int threads)   room: 32 words of 8 bytes of shared memory; one barrier in it;
 *                                                           two calls in a row use different rooms
 *   lanes_best_<max|min>_<t>(R *x, long *position, int lanes, unsigned mask), block_best_...(..., room of 64 words, threads)
 *   R cluster_fold_<fold>_<t>(R x, void *room)              x: the block's result in every thread; room: 16 words
 *   void cluster_barrier(), void grid_barrier(unsigned *sync, unsigned blocks)
 *   R grid_fold_<fold>_<t>(R x, void *parts, unsigned *sync, unsigned block, unsigned blocks, void *room)
 *   void report_failure(report *r, long kind, long line, long p0, long p1, long p2)
 */

#endif
