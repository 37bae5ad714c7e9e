/*
 * The prelude of generated C: vector types and functions, as text, only what a kernel needs.
 *
 * Conventions of the generated C. A loop nest works on 16 lanes whatever the element type: f32x16, f64x16, i8x16,
 * i16x16, i32x16, i64x16, u8x16 ... u64x16 (GNU vector types; wide ones are several registers), and `mask16`, which is
 * i32x16 with lanes 0 or -1. bf16 and f16 live in memory as u16 and are f32 in registers; bool lives in memory as one
 * byte 0 or 1, is mask16 in vectors and int 0 or 1 as a scalar.
 * C types: float double, signed char short int long, and the unsigned ones; f16 and bf16 are unsigned short, bool is
 * unsigned char. The text is for -ffp-contract=fast; `exact_<t>` and `exact_<t>x16` hold a product back from fusing.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_PRELUDE_H
#define QUERN_EMIT_PRELUDE_H

#include "base/base.h"

/* Appends the vector types and then the named functions with all they depend on, each once, in a valid order.
 * False: a name is unknown (it is in *unknown). Always there: the vector types and their unaligned forms (f32x16_u, of
 * element alignment, may_alias) for plain loads and stores. <t> is f32 f64 i8 i16 i32 i64 u8 u16 u32 u64; all that is
 * named f(x16) exists as a scalar form f too, with the same bits, unless it says otherwise:
 *
 *   elementwise     <op>_<t>x16, <op>_<t>, after the op table:
 *     floats        abs sign floor ceil round sqrt rsqrt exp exp2 expm1 log log2 log1p sin cos tanh erf sigmoid relu
 *                   gelu gelu_tanh silu softplus pow min max mod fma; isnan isinf (mask16; scalar int); tf32 (f32 only)
 *     integers      abs sign min max div mod (floor semantics, by zero gives 0) shl shr (count of the same type)
 *     all           lt le gt ge eq ne (mask16; scalar int 0 or 1)
 *                   exact (the value as it is, closed to the optimiser)
 *   convert_<from>_<to>x16   the language's cast between <t>, bool; <to> also f16, bf16: the f32 value rounded to that
 *                   format once. (The source f16 or bf16 is f32 in registers: ask for convert_f32_<to>.)
 *   f16_to_f32x16(u16x16), bf16_to_f32x16, f32_to_f16x16, f32_to_bf16x16, and the scalar forms on unsigned short
 *
 *   select_<t>x16(mask16, a, b); select_boolx16 on masks (vectors only, C's ?: does scalars)
 *   any_mask(m), all_mask(m): int; count_mask(m): int, how many; first_mask(count): lanes 0 .. count-1
 *   splat_<t>x16(x), splat_boolx16(int); iota_<t>x16(): 0 .. 15
 *   fold_sum_<t>x16(v), fold_prod_, fold_max_, fold_min_: horizontal, a scalar, always by halves
 *   scan_sum_<t>x16(v), scan_prod_, scan_max_, scan_min_: inclusive prefix within the vector
 *
 *   memory (vectors only), <m> is <t>, f16, bf16 or bool: register form as above
 *   load_<m>x16(const E *p), store_<m>x16(E *p, v): any element alignment
 *   load_part_<m>x16(p, long count): the first `count` (0 .. 16) lanes, others 0; store_part_<m>x16(p, v, count)
 *   load_mask_<m>x16(p, mask16), store_mask_<m>x16(p, v, mask16): lanes off are not touched, read as 0
 *   load_stride_<m>x16(p, long stride, mask16), store_stride_<m>x16(p, stride, v, mask16): lane k at p[k * stride]
 *   gather_<m>x16(p, i64x16 index, mask16), scatter_<m>x16(p, i64x16 index, v, mask16): in lane order
 *   stream_<m>x16(p, v): non-temporal where the place is aligned to the vector's bytes; stream_fence() after the loops
 *
 *   philox_u32x16(unsigned long seed, unsigned long offset, i64x16 i, int lane), philox_u32(seed, offset, long i, lane)
 *   atomic_<kind>_<t>(T *p, T v), kinds of the IR, relaxed, gives the old value; t: i32 u32 i64 u64 f32 f64; add also
 *   f16 bf16 (unsigned short *p, float v; gives float); atomic_cas_<t>(p, expected, v)
 *   half, bfloat: the 16-bit structs of raw kernels (one name, "raw_types") */
bool prelude_emit(const char *const *names, int count, text *out, const char **unknown);

/* dot_f32, dot_f64, dot_f16, dot_bf16, dot_i8, dot_u8:
 *   static void dot_f32(const float *a, long a_row, long a_column, const float *b, long b_row, long b_column,
 *                       float *c, long c_row, long m, long n, long k, char *scratch)
 * c[m][n] += a[m][k] * b[k][n], c's columns contiguous, any element strides of a and b (a transposed operand swaps
 * them), any m, n, k >= 0. Packs into scratch, which needs prelude_dot_scratch_bytes at most.
 *   static void dot_into_f32(a ... b_column, float *c, long c_row, float *out, long out_row, m, n, k, scratch)
 * out[m][n] = a[m][k] * b[k][n] for k > 0; sums that are not complete rest in c, which is left with anything. */
uint64_t prelude_dot_scratch_bytes(int64_t m, int64_t n);

#endif
