/*
 * The prelude of generated C: vector types and functions, as text, only what a kernel needs.
 *
 * Conventions of the generated C. A loop nest works on 16 lanes whatever the element type: f32x16, f64x16, i8x16,
 * i16x16, i32x16, i64x16, u8x16 ... u64x16 (GNU vector types; wide ones are several registers), and `mask16`, which is
 * i32x16 with lanes 0 or -1. bf16 and f16 live in memory as u16 and are f32 in registers.
 * Functions of the op table are named after op and type: exp_f32x16(f32x16), exp_f32(float), exp_f64x16, exp_f64.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_PRELUDE_H
#define QUERN_EMIT_PRELUDE_H

#include "base/base.h"

/* Appends the vector types and then the named functions with all they depend on, each once, in a valid order.
 * False: a name is unknown (it is in *unknown). Names that every user may ask for, beside op_type functions:
 *   load_u16_as_f32: f32x16 f16_to_f32x16(u16x16), bf16_to_f32x16, f32_to_f16x16, f32_to_bf16x16 and scalar forms (f16_to_f32, ...)
 *   select_<t>x16(mask16, a, b), any_mask(mask16), all_mask, sum_f32x16 (horizontal folds: sum prod max min), splat by arithmetic
 *   load_part_<t>x16(const T *p, long count): the first `count` (0..16) lanes, others 0; store_part_<t>x16(T *p, v, count)
 *   stream_<t>x16(T *p, v): non-temporal store of a 64-byte aligned place, stream_fence()
 *   div_floor_<t>, mod_floor_<t> scalar and x16 for integers; philox_u32x16(seed, offset, i64x16, lane) and philox_u32
 *   dot_<t>: see below; atomic_<kind>_<t>(T *p, T v) */
bool prelude_emit(const char *const *names, int count, text *out, const char **unknown);

/* dot_f32, dot_f64, dot_f16, dot_bf16, dot_i8, dot_u8:
 *   static void dot_f32(const float *a, long a_row, long a_column, const float *b, long b_row, long b_column,
 *                       float *c, long c_row, long m, long n, long k, char *scratch)
 * c[m][n] += a[m][k] * b[k][n], c's columns contiguous, any element strides of a and b (a transposed operand swaps
 * them), any m, n, k >= 0. Packs into scratch, which needs dot_scratch_bytes(m, n, k) at most: */
uint64_t prelude_dot_scratch_bytes(int64_t m, int64_t n, int64_t k);

#endif
