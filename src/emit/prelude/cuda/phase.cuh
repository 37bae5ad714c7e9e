/*
 * What sm_90 adds to the prelude of CUDA texts: counted phases (mbarriers), copies of boxes by the copy engine, matrix
 * products of four warps (wgmma), and the little that goes with them. Written for roles: one warp asks for copies, others
 * multiply.
 *
 * Every function has two bodies, inline PTX and the call that emu's header knows (device/emu/text/async.h);
 * those whose number of axes or width is part of the name are written by rule in cuda/prelude_phase.c. A `phase` is 8 bytes of shared memory. A tensor map is what the host encoded, 128 bytes of the
 * frame, which is then a `const __grid_constant__` parameter. Functions of emu take the caller's line besides, so that
 * who waits for ever is told with the line of the kernel.
 * SPDX-License-Identifier: MIT
 */

//@ part tensor_map
/* An array as the copy engine sees it; the host fills it. */
struct __align__(64) tensor_map { unsigned long long words[16]; };
#ifdef QUERN_EMU
#define WHERE , EMU_WHERE
#define WHERE_ONLY EMU_WHERE
#else
#define WHERE
#define WHERE_ONLY
#endif
INLINE unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

//@ part phases
//@ needs tensor_map
/* A phase ends when `count` threads have arrived and the bytes that were announced have come. */
INLINE void phase_init(unsigned long long *bar, int count WHERE)
{
#ifdef QUERN_EMU
    emu_phase(bar, EMU_PHASE_INIT, count, file, line);
#else
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
#endif
}
/* What phase_init wrote is seen by the copy engine and the cluster; a barrier of the block follows. */
INLINE void phases_ready()
{
#ifdef QUERN_EMU
    emu_phase(0, EMU_PHASE_READY, 0, "", 0);
#else
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
/* Arrives, and announces bytes of copies. */
INLINE void phase_expect(unsigned long long *bar, int bytes WHERE)
{
#ifdef QUERN_EMU
    emu_phase(bar, EMU_PHASE_EXPECT, bytes, file, line);
#else
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes)
                 : "memory");
#endif
}
INLINE void phase_arrive(unsigned long long *bar WHERE)
{
#ifdef QUERN_EMU
    emu_phase(bar, EMU_PHASE_ARRIVE, 0, file, line);
#else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
#endif
}
/* The same at the phase of another block of the cluster. */
INLINE void phase_arrive_at(unsigned long long *bar, unsigned rank WHERE)
{
#ifdef QUERN_EMU
    emu_phase(emu_cluster_map(bar, rank), EMU_PHASE_ARRIVE, 0, file, line);
#else
    asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [a];\n}" ::"r"(shared_address(bar)), "r"(rank)
                 : "memory");
#endif
}
/* Until the phase of this parity has ended: of a new barrier 1 has, 0 has not. Without a trap, which would take the
 * roles their register budgets. */
INLINE void phase_wait(unsigned long long *bar, int parity WHERE)
{
#ifdef QUERN_EMU
    emu_phase(bar, EMU_PHASE_WAIT, parity, file, line);
#else
    const unsigned at = shared_address(bar);
    unsigned done;
    do
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
    while (!done);
#endif
}

//@ part bulk_groups
//@ needs tensor_map
/* Ordinary writes of this thread to shared memory are seen by copies and products from here on. */
INLINE void fence_async()
{
#ifdef QUERN_EMU
    emu_fence_async();
#else
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
INLINE void map_prefetch(const tensor_map *map)
{
#ifndef QUERN_EMU
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#endif
}
INLINE void bulk_commit()
{
#ifdef QUERN_EMU
    emu_bulk_commit();
#else
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
/* All but the last PENDING groups of this thread's copies out have read shared memory; bulk_wait: and have arrived. */
template <int PENDING> INLINE void bulk_wait_read(WHERE_ONLY)
{
#ifdef QUERN_EMU
    emu_bulk_wait(PENDING, file, line);
#else
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
#endif
}
template <int PENDING> INLINE void bulk_wait(WHERE_ONLY)
{
#ifdef QUERN_EMU
    emu_bulk_wait(PENDING, file, line);
#else
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

//@ part matrix_groups
//@ needs tensor_map
/* A matrix in shared memory for a product: 64 bits. SWIZZLE 128, 64, 32 or 0 bytes; offsets in bytes, as
 * docs/cuda.md lays out. Steps inside a tile are added to it, in units of 16 bytes. */
template <int SWIZZLE>
INLINE unsigned long long matrix_descriptor(const void *first, unsigned leading_bytes, unsigned stride_bytes)
{
    const unsigned kind = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : SWIZZLE == 32 ? 3 : 0;
    const unsigned low = (shared_address(first) & 0x3ffff) >> 4 | (leading_bytes >> 4) << 16;
    return (unsigned long long)(stride_bytes >> 4 | kind << 30) << 32 | low;
}
/* Registers of the sums and of a left operand are ready for products. */
INLINE void matrix_fence()
{
#ifdef QUERN_EMU
    emu_matrix_wait(EMU_MATRIX_FENCE, "", 0);
#else
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
INLINE void matrix_commit()
{
#ifdef QUERN_EMU
    emu_matrix_commit();
#else
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/* All but the last PENDING groups of products are done. */
template <int PENDING> INLINE void matrix_wait(WHERE_ONLY)
{
#ifdef QUERN_EMU
    emu_matrix_wait(PENDING, file, line);
#else
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#endif
}
/* Uses of the sums stay on their side of this point. */
template <int N> INLINE void matrix_keep(float (&sums)[N])
{
#ifndef QUERN_EMU
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(sums[i])::"memory");
#endif
}
template <int N> INLINE void matrix_keep(int (&sums)[N])
{
#ifndef QUERN_EMU
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(sums[i])::"memory");
#endif
}

//@ part matrix_at
//@ needs matrix_groups
/* A descriptor so many 16 bytes further on: the upper half stays a constant, which saves instructions. */
INLINE unsigned long long matrix_at(unsigned long long place, unsigned step)
{
    return (place & 0xffffffff00000000) | ((unsigned)place + step);
}

//@ part pair_f32
struct __align__(8) pair_f32 { float at[2]; };

//@ part pack_bf16
//@ needs f32_to_bf16
/* Two neighbours, rounded, in one register. */
INLINE unsigned pack_bf16(float low, float high)
{
#ifdef QUERN_EMU
    return f32_to_bf16(low) | (unsigned)f32_to_bf16(high) << 16;
#else
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#endif
}

//@ part unpack_bf16
//@ needs real_f32
/* Both of a register, as f32. */
INLINE void unpack_bf16(float *x, unsigned both)
{
    x[0] = real_f32((int)(both << 16));
    x[1] = real_f32((int)(both & 0xffff0000));
}

//@ part unpack_f16
//@ needs f16_to_f32
INLINE void unpack_f16(float *x, unsigned both)
{
    x[0] = f16_to_f32((unsigned short)both);
    x[1] = f16_to_f32((unsigned short)(both >> 16));
}

//@ part ask_u32
/* A word that is waited for where it is used; outside 0. */
INLINE unsigned ask_u32(const void *p, bool inside)
{
#ifdef QUERN_EMU
    return inside ? *(const unsigned *)p : 0;
#else
    unsigned w;
    asm volatile("{\n\t.reg .pred in;\n\tsetp.ne.s32 in, %2, 0;\n\tmov.u32 %0, 0;\n\t@in ld.global.u32 %0, [%1];\n\t}"
                 : "=&r"(w)
                 : "l"(p), "r"((int)inside));
    return w;
#endif
}

//@ part ask_u16
INLINE unsigned ask_u16(const void *p, bool inside)
{
#ifdef QUERN_EMU
    return inside ? *(const unsigned short *)p : 0;
#else
    unsigned w;
    asm volatile("{\n\t.reg .pred in;\n\tsetp.ne.s32 in, %2, 0;\n\tmov.u32 %0, 0;\n\t@in ld.global.u16 %0, [%1];\n\t}"
                 : "=&r"(w)
                 : "l"(p), "r"((int)inside));
    return w;
#endif
}

//@ part take_ask
//@ needs load_words4_if ask_u32
/* Asks for VECTORS times 4 neighbours of lines that are APART; what is outside is 0. ALONG: lines follow each other; else
 * they are in boxes of 64, each 64 elements further on than the one before. `lines` and `elements`: how many are left from the
 * first on; `extent`: of the axis that elements lie along. WHOLE: 16 bytes are aligned, and inside or outside. */
template <int VECTORS, int APART, bool ALONG, bool WHOLE>
INLINE void take_ask(unsigned (&raw)[VECTORS][4], const float *from, long line_stride, long lines, long elements,
                     long extent)
{
    const int lines_left = lines > 4096 ? 4096 : lines < 0 ? 0 : (int)lines;
    const int left = elements > 4096 ? 4096 : elements < 0 ? 0 : (int)elements;
    if (WHOLE || !((unsigned long)from & 15 || line_stride & 3 || extent & 3)) {
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const int line = i * APART % (ALONG ? VECTORS * APART : 64), box = ALONG ? 0 : i * APART / 64 * 64;
            load_words4_if(raw[i], from + line * line_stride + box, line < lines_left && box < left);
        }
    } else {
#pragma unroll
        for (int i = 0; i < VECTORS * 4; i++) {
            const int line = i / 4 * APART % (ALONG ? VECTORS * APART : 64);
            const int at = (ALONG ? 0 : i / 4 * APART / 64 * 64) + i % 4;
            raw[i / 4][i % 4] = ask_u32(from + line * line_stride + at, line < lines_left && at < left);
        }
    }
}

//@ part take_ask_turned
//@ needs load_words4_if ask_u32
/* Asks for VECTORS / 4 times 4 neighbours of 4 lines; from one four of neighbours to the next it is APART elements. */
template <int VECTORS, int APART, bool WHOLE>
INLINE void take_ask_turned(unsigned (&raw)[VECTORS][4], const float *from, long line_stride, long lines, long elements,
                            long extent)
{
    const int lines_left = lines > 4096 ? 4096 : lines < 0 ? 0 : (int)lines;
    const int left = elements > 4096 ? 4096 : elements < 0 ? 0 : (int)elements;
    if (WHOLE || !((unsigned long)from & 15 || line_stride & 3 || extent & 3)) {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            load_words4_if(raw[i], from + i % 4 * line_stride + i / 4 * APART, i % 4 < lines_left && i / 4 * APART < left);
    } else {
#pragma unroll
        for (int i = 0; i < VECTORS * 4; i++) {
            const int line = i / 4 % 4, at = i / 16 * APART + i % 4;
            raw[i / 4][i % 4] = ask_u32(from + line * line_stride + at, line < lines_left && at < left);
        }
    }
}

//@ part take_ahead
/* 128 bytes of an array that ends at `end`, on their way to the L2. */
INLINE void take_ahead(const float *line, const float *end)
{
#ifndef QUERN_EMU
    if (line < end) asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
#endif
}

//@ part pack_f16
//@ needs f32_to_f16
INLINE unsigned pack_f16(float low, float high)
{
#ifdef QUERN_EMU
    return f32_to_f16(low) | (unsigned)f32_to_f16(high) << 16;
#else
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#endif
}

//@ part store_matrices
//@ needs tensor_map
/* Four 8x8 matrices of 16-bit elements to shared memory: lane l gives the address of row l % 8 of matrix l / 8. */
INLINE void store_matrices(void *row, unsigned r0, unsigned r1, unsigned r2, unsigned r3)
{
#ifdef QUERN_EMU
    struct shown { unsigned short *row; unsigned r[4]; } mine = {(unsigned short *)row, {r0, r1, r2, r3}};
    const shown *all = (const shown *)emu_warp_gather(&mine, sizeof(mine));
    const int lane = threadIdx.x % 32;
    unsigned short *const to = mine.row;
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned short)(all[lane % 8 * 4 + i / 2].r[lane / 8] >> i % 2 * 16);
#else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                 "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
#endif
}

//@ part load_matrices
//@ needs tensor_map
/* Four 8x8 matrices of 16-bit elements from shared memory: lane l gives the address of row l % 8 of matrix l / 8. */
INLINE void load_matrices(const void *row, unsigned &r0, unsigned &r1, unsigned &r2, unsigned &r3)
{
#ifdef QUERN_EMU
    const unsigned *mine = (const unsigned *)row, *const *all = (const unsigned *const *)emu_warp_gather(&mine, sizeof(mine));
    const int lane = threadIdx.x % 32, line = lane / 4, at = lane % 4;
    r0 = all[line][at], r1 = all[8 + line][at], r2 = all[16 + line][at], r3 = all[24 + line][at];
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                 : "r"(shared_address(row))
                 : "memory");
#endif
}

//@ part roles
//@ needs tensor_map
/* How many registers a thread of this warp group may have from here on. */
template <int COUNT> INLINE void registers_more()
{
#ifndef QUERN_EMU
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}
template <int COUNT> INLINE void registers_less()
{
#ifndef QUERN_EMU
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}
/* A barrier of some warps: 1 to 15 (0 is the block's), and how many threads come. */
INLINE void barrier_named(int number, int threads WHERE)
{
#ifdef QUERN_EMU
    emu_barrier(number, threads, file, line);
#else
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
#endif
}
INLINE void barrier_named_arrive(int number, int threads WHERE)
{
#ifdef QUERN_EMU
    emu_barrier_arrive(number, threads, file, line);
#else
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
#endif
}
/* The number of this thread's warp, the same for all its lanes as far as the compiler sees. */
INLINE int warp_number() { return __shfl_sync(~0u, (int)threadIdx.x / 32, 0); }
