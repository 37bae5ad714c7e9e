/*
 * The prelude of generated CUDA: functions as text, only what a kernel needs. The same bytes go to NVRTC (inline PTX)
 * and to emu (plain C++ under `#ifdef QUERN_EMU`); there are no headers.
 *
 * Conventions of the generated CUDA. Scalars in registers have the C types of the CPU's text (scalar_c_type): float
 * double, signed char short int long and the unsigned ones; f16 and bf16 are float in registers and unsigned short in
 * memory; bool is int 0 or 1 in registers and one byte in memory. `long` has 64 bits.
 * Functions are `static __device__ __forceinline__` (macro INLINE), so that one need of a function costs nothing else.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_PRELUDE_CUDA_H
#define QUERN_EMIT_PRELUDE_CUDA_H

#include "base/base.h"

/* Appends the named functions with all they depend on, each once, in a valid order. False: a name is unknown (it is in
 * *unknown). <t> is f32 f64 i8 i16 i32 i64 u8 u16 u32 u64, <m> is <t>, f16, bf16 or bool, <v> a count of elements
 * (1 2 4 8 16, at most 16 bytes in memory).
 *
 * Elementwise, one element each:
 *   <op>_<t>        after the op table, as in prelude.h; floats of f32 in their fast forms (docs/accuracy.md)
 *   precise_<op>_<t>  floats: within 2 ulp, division and square root exact: div sqrt rsqrt exp exp2 expm1 log log2 log1p
 *                   sin cos tanh erf sigmoid gelu gelu_tanh silu softplus pow
 *   div_f32, div_f64  a / b; mul_exact_f32, mul_exact_f64: a product that is never fused
 *   convert_<from>_<to>, f16_to_f32 bf16_to_f32 f32_to_f16 f32_to_bf16 (unsigned short bits), bitcast_<from>_<to>
 *   real_f32(int bits) bits_f32(float), real_f64(long) bits_f64(double)
 *   philox_u32(seed, offset, i, lane); atomic_<kind>_<m>(M *p, T v), all kinds and all types but bool, relaxed, gives
 *                   the old value; atomic_cas_<m>(p, expected, v)
 *
 * Memory, to and from an array of registers (pointers aligned to v elements):
 *   load_<m>x<v>(T *r, const M *p)           anywhere: global, shared, scratch
 *   load_<m>x<v>_read(r, p)                  global, through the read-only path: nothing writes the array in this launch
 *   load_<m>x<v>_stream(r, p)                the same, and each element is read once: not kept in L1
 *   store_<m>x<v>(M *p, const T *r), store_<m>x<v>_stream(p, r): written around the caches' working set
 *   fetch_<m>(const M *p) gives T, put_<m>(M *p, T x): one element, anywhere
 *
 * Teams. `lanes` is a power of two up to 32, `mask` the lanes of this warp that take part; every lane gets the result.
 * <fold> is sum prod max min (any type), any all (int), by <t>; bool: any and all with t = bool.
 *   lanes_<fold>_<t>(T x, int lanes, unsigned mask)
 *   block_<fold>_<t>(T x, T *slots)          all threads of the block (a multiple of 32, linear threadIdx.x); slots: 32
 *                                            of shared memory; one barrier inside. The same slots may be used again
 *                                            only after another barrier: alternate between two sets
 *   cluster_<fold>_<t>(T x, T *slots)        x the same in all threads of the block, combined over the blocks of the
 *                                            cluster; slots: 8 of shared memory; two cluster barriers inside
 *   grid_<fold>_<t>(T x, T *parts, unsigned *word, int rank, int blocks, T *slots) the same over a grid team: parts:
 *                                            `blocks` of global memory (alternate between two sets), slots: 32 shared
 *   lanes_argmax_<t>(T *x, long *at, lanes, mask), lanes_argmin_<t>; block_argmax_<t>(T *x, long *at, T *slots, long
 *                   *places), block_argmin_<t>: at < 0 means nothing yet; equal values: the lower place; NaN first
 *   lanes_scan_<fold>_<t>(T x, lanes, mask), block_scan_<fold>_<t>(T x, T *slots): inclusive; fold sum prod max min
 *   cluster_rank() cluster_size() cluster_sync()
 *   grid_sync(unsigned *word, int blocks)    barrier of a grid team; its word is zero at the launch
 *
 * Effects:
 *   report_failure(long *report, long line, long p0, long p1, long p2): the first failure of the launch is kept
 *   print_open(long *ring, long words) gives long * (0: no room), print_<m>(long *to, const M *from, long count) gives
 *                   the place after them. See cuda_print below. */
bool prelude_cuda_emit(const char *const *names, int count, text *out, const char **unknown);

/* The ring that `print` writes to: words of 8 bytes. ring[0]: words there are for records, ring[1]: words asked for so
 * far (more than ring[0]: the rest was lost), records from ring[CUDA_PRINT_HEAD] on. A record: its length in words, the
 * number of the PRINT op (in the order of tile_walk over the phases), three program numbers, then for each shown value
 * its rank, its extents, its elements (floats as the bits of a double, the rest as i64), then 1 if validity follows, or
 * 0; validity has rank, extents (1 where it broadcasts) and elements (0 or 1) too. */
enum { CUDA_PRINT_HEAD = 2, CUDA_PRINT_FIELDS = 5 };

#endif
