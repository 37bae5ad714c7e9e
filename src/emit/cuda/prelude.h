/*
 * The prelude of generated CUDA: functions as text, only what a kernel needs. The same bytes go to NVRTC (inline PTX)
 * and to emu (plain C++ under `#ifdef QUERN_EMU`); there are no headers.
 *
 * Conventions of the generated CUDA. In registers: float double, signed char short int long and the unsigned ones, bool;
 * f16 and bf16 are float there and unsigned short in memory; bool is one byte in memory. `long` has 64 bits.
 * Functions are `static __device__ __forceinline__` (macro INLINE).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_PRELUDE_H
#define QUERN_EMIT_CUDA_PRELUDE_H

#include "base/base.h"

/* Appends the named functions with all they depend on, each once, in a valid order. False: a name is unknown (it is in
 * *unknown). <t> is f32 f64 i8 i16 i32 i64 u8 u16 u32 u64, <m> is <t>, f16, bf16 or bool; T and M are their C types in
 * registers and in memory; <v> is a count of elements (1 2 4 8 16, at most 16 bytes in memory).
 *
 * Elementwise, one element each:
 *   <op>_<t>        after the op table, as in prelude.h; floats of f32 in their fast forms (docs/accuracy.md)
 *   precise_<op>_<t>  floats: within 2 ulp, division and square root exact: div sqrt rsqrt exp exp2 expm1 log log2 log1p
 *                   sin cos tanh erf sigmoid gelu gelu_tanh silu softplus pow
 *   div_<t>         integers: floor; floats: a / b. `mul_exact_f32`, `mul_exact_f64`: a product that is never fused
 *   add_ sub_ mul_ of i32, i64: they wrap, whatever the values
 *   convert_<from>_<to>, f16_to_f32 bf16_to_f32 f32_to_f16 f32_to_bf16 (unsigned short bits), bitcast_<from>_<to>
 *   real_f32(int bits) bits_f32(float), real_f64(long) bits_f64(double)
 *   philox_u32(seed, offset, i, lane); atomic_<kind>_<m>(M *p, T v), all kinds and all types but bool, relaxed, gives
 *                   the old value; atomic_cas_<m>(p, expected, v)
 *
 * Memory, to and from an array of registers (pointers aligned to v elements):
 *   load_<m>x<v>(T *r, const M *p)           anywhere: global, shared, scratch
 *   load_<m>x<v>_constant(r, p)              global, through the read-only path: nothing writes the array in this launch
 *   store_<m>x<v>(M *p, const T *r)
 *   read_<m>(const M *p) gives T, write_<m>(M *p, T x): one element, anywhere
 *
 * Teams. Every thread of the team calls and gets the result. `lanes` is a power of two up to 32, `mask` the lanes of
 * this warp that take part, `threads` those of the block: a multiple of 32 or a power of two, counted by threadIdx.x.
 * <fold>_<t> is sum prod max min with <t>, or `any_bool`, `all_bool`.
 *   T lanes_fold_<fold>_<t>(T x, int lanes, unsigned mask)
 *   T block_fold_<fold>_<t>(T x, void *room, int threads)   room: 32 words of 8 bytes, shared; one barrier inside. A
 *                   room may be used again only after another barrier of the block: alternate between two
 *   T cluster_fold_<fold>_<t>(T x, void *room)   x the same in all threads of a block; room: 8 words, shared; one
 *                   cluster barrier inside: alternate between two rooms. Before the first one: cluster_meet(met)
 *   T grid_fold_<fold>_<t>(T x, void *parts, unsigned *sync, unsigned block, unsigned blocks, void *room)   the same over
 *                   the blocks of a grid team; parts: `blocks` words of 8 bytes, global (alternate), room as a block's
 *   void lanes_best_<max|min>_<t>(T *x, long *place, int lanes, unsigned mask)   place < 0: none yet; equal values: the
 *                   lower place; NaN before all. <t> also bool
 *   void block_best_<max|min>_<t>(T *x, long *place, void *room, int threads)    room: 64 words of 8 bytes
 *   T lanes_scan_<fold>_<t>(T x, int lanes, unsigned mask)                       inclusive prefix
 *   T block_scan_<fold>_<t>(T x, void *room, int threads, T *total)              room: 32 words of 8 bytes
 *   unsigned cluster_rank(), cluster_size(), void cluster_barrier(), void *cluster_map(p, rank), void cluster_appear()
 *                   when a block begins, void cluster_meet(bool &met) before the first touch: need "cluster_barrier"
 *   void grid_barrier(unsigned *sync, unsigned blocks)   of a grid team; its word is zero at the launch
 *   bool grid_last(unsigned *ticket)   in all threads of the block that is the last one to call; the ticket is 0 before
 *   void grid_call()   first of all: the next launch may begin. With grid_begin
 *   int grid_begin()   the launch before this one has ended: a condition with its result, 0, guards all of global memory
 *
 * sm_90: copies by the copy engine and products of four warps (128 threads, all of them call). `bar` is 8 bytes of shared
 * memory, `map` a tensor_map at the start of the frame, which is `const __grid_constant__`; names of the parts in [].
 *   [tensor_map] struct tensor_map, unsigned shared_address(p)
 *   [phases] phase_init(bar, count), phases_ready(), phase_expect(bar, bytes), phase_arrive(bar),
 *                   phase_arrive_at(bar, rank), phase_wait(bar, parity)
 *   [bulk_in_<n>d] bulk_in_<n>d(to, map, bar, x, y ...), n = 2 to 5; x is the innermost; [`bulk_in_<n>d_to`] the same with
 *                   a mask of blocks of the cluster at the end; [bulk_out_<n>d] bulk_out_<n>d(map, from, x, y ...)
 *   [bulk_groups] bulk_commit(), bulk_wait_read<N>(), bulk_wait<N>(), fence_async(), map_prefetch(map)
 *   [matrix_groups] matrix_descriptor<SWIZZLE>(first, leading_bytes, stride_bytes), matrix_fence(), matrix_commit(),
 *                   matrix_wait<N>(), matrix_keep(sums)
 *   [wgmma_<t>_n<N>] wgmma_<t>_n<N><TURN_A, TURN_B>(sums, a, b, add), t = bf16 f16 (turns) tf32 e4m3 s8 (no template);
 *                   [.._ra] wgmma_<t>_n<N>_ra<TURN_B>(sums, a0, a1, a2, a3, b, add)
 *   [store_matrices] store_matrices(row, r0, r1, r2, r3)
 *   [roles] registers_more<N>(), registers_less<N>(), barrier_named(number, threads), barrier_named_arrive(number,
 *                   threads), warp_number()
 *
 * Effects:
 *   void report_failure(void *report, long kind, long line, long p0, long p1, long p2)   the first one is kept
 *   long *print_open(void *ring, long words, long op, long p0, long p1, long p2)   0: no room; see below
 *   long *print_<m>(long *to, const M *from, long count)   elements of a kept tile; gives the place after them
 *   long print_word_<t>(T x)                               one */
bool prelude_cuda_emit(const char *const *names, int count, text *out, const char **unknown);

/* The ring that `print` writes to: words of 8 bytes. ring[0]: words there are for records, ring[1]: words asked for so
 * far (more than ring[0]: the rest was lost), records from ring[CUDA_PRINT_HEAD] on. A record: its length in words, the
 * number of the PRINT op (in the order of tile_walk over the phases), three program numbers, then for each shown value
 * its rank, its extents and its elements (floats as the bits of a double, the rest as i64); then, where the op has
 * validities, for each of them rank, extents (1 where it broadcasts) and elements (0 or 1). */
enum { CUDA_PRINT_HEAD = 2, CUDA_PRINT_FIELDS = 5 };

#endif
