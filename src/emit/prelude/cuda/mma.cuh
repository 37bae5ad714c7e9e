/*
 * The matrix units in the prelude of CUDA texts: asynchronous copies to shared memory, the instruction for each kind of
 * number, and the fragments it takes. dot.cuh builds products of them.
 * SPDX-License-Identifier: MIT
 */

//@ part copy_async
//@ needs words
/* 16 bytes from global to shared memory, the first `bytes` of them real and the rest 0, in the background. */
INLINE void copy_async(void *to, const void *from, int bytes)
{
#if defined(QUERN_EMU) || __CUDA_ARCH__ < 800
    words4 w = {{0, 0, 0, 0}};
    if (bytes == 16)
        w = *(const words4 *)from;
    else
        for (int i = 0; i < bytes / 2; i++)
            w.w[i / 2] |= (unsigned)((const unsigned short *)from)[i] << i % 2 * 16;
    *(words4 *)to = w;
#else
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
        "l"(from), "r"(bytes)
        : "memory");
#endif
}
/* The same of 4 or 8 bytes, all or none of them real. */
template <int BYTES> INLINE void copy_async_few(void *to, const void *from, int bytes)
{
#if defined(QUERN_EMU) || __CUDA_ARCH__ < 800
    for (int i = 0; i < BYTES / 4; i++) ((unsigned *)to)[i] = bytes ? ((const unsigned *)from)[i] : 0;
#else
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
        "l"(from), "r"(bytes), "n"(BYTES)
        : "memory");
#endif
}
INLINE void copy_commit()
{
#if !defined(QUERN_EMU) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int PENDING> INLINE void copy_wait()
{
#if !defined(QUERN_EMU) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

//@ part mma_16
//@ needs words
/* Four 8x8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8. */
template <bool TURNED> INLINE void load_matrices(unsigned *r, const void *row)
{
#ifdef QUERN_EMU
    __shared__ const unsigned short *rows[32][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    rows[warp][lane] = (const unsigned short *)row;
    __syncwarp();
    for (int q = 0; q < 4; q++) {
        r[q] = 0;
        for (int i = 0; i < 2; i++) {
            const int line = TURNED ? lane % 4 * 2 + i : lane / 4,
                      at = TURNED ? lane / 4 : lane % 4 * 2 + i;
            r[q] |= (unsigned)rows[warp][q * 8 + line][at] << i * 16;
        }
    }
    __syncwarp();
#else
    const unsigned p = (unsigned)__cvta_generic_to_shared(row);
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(p)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(p)
                     : "memory");
#endif
}

//@ part mma_$t
//@ for f16 bf16
//@ needs mma_16 $t_to_f32
/* sum[16][8] += a[16][16] * b[16][8], spread over a warp. */
INLINE void mma_$t(float *sum, const unsigned *a, const unsigned *b)
{
#if defined(QUERN_EMU)
    __shared__ unsigned all[32][32][6];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 6; i++) all[warp][lane][i] = i < 4 ? a[i] : b[i - 4];
    __syncwarp();
    for (int t = 0; t < 4; t++) {
        const unsigned *x = all[warp][(lane & ~3) + t];
        for (int column = 0; column < 2; column++) {
            const unsigned *y = all[warp][lane % 4 * 8 + column * 4 + t];
            for (int half = 0; half < 2; half++)
                for (int i = 0; i < 2; i++) {
                    const float yk = $t_to_f32((unsigned short)(y[4 + half] >> i * 16));
                    sum[column] += $t_to_f32((unsigned short)(x[2 * half] >> i * 16)) * yk;
                    sum[column + 2] += $t_to_f32((unsigned short)(x[2 * half + 1] >> i * 16)) * yk;
                }
        }
    }
    __syncwarp();
#elif __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.$t.$t.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

//@ part fragments_$t
//@ for f16 bf16
//@ needs mma_16 dot_tile product_16
/* Four registers of a fragment from a staged operand, whose lines are rows or, turned, steps of k. K_HIGH: registers 2 and
 * 3 are the later half of k (an a), else 1 and 3 (a b). */
template <bool K_HIGH, int CHUNKS>
INLINE void load_straight_$t(unsigned *r, const unsigned char *tile, int k, int row, int lane)
{
    const int q = lane / 8;
    load_matrices<false>(r, tile + dot_place<CHUNKS>(row + (K_HIGH ? q % 2 : q / 2) * 8 + lane % 8,
                                                k / 8 + (K_HIGH ? q / 2 : q % 2)));
}
template <bool K_HIGH, int ROWS>
INLINE void load_turned_$t(unsigned *r, const unsigned char *tile, int k, int row, int lane)
{
    const int q = lane / 8;
    load_matrices<true>(r, tile + dot_place<ROWS / 8>(k + (K_HIGH ? q / 2 : q % 2) * 8 + lane % 8,
                                                      row / 8 + (K_HIGH ? q % 2 : q / 2)));
}
/* 16-bit elements are multiplied as they lie. */
template <bool K_HIGH, bool SCALED> INLINE void ready_$t(unsigned *, const float *, int)
{
    static_assert(!SCALED, "only f32 is scaled on its way");
}

//@ part fragments_tf32
//@ needs mma_16 dot_tile product_16 tf32_f32
/* The same for f32. */
template <bool K_HIGH, int CHUNKS>
INLINE void load_straight_tf32(unsigned *r, const unsigned char *tile, int k, int row, int lane)
{
    const int q = lane / 8;
    load_matrices<false>(r, tile + dot_place<CHUNKS>(row + (K_HIGH ? q % 2 : q / 2) * 8 + lane % 8,
                                                k / 4 + (K_HIGH ? q / 2 : q % 2)));
}
template <bool K_HIGH, int ROWS>
INLINE void load_turned_tf32(unsigned *r, const unsigned char *tile, int k, int row, int lane)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int p = k + (K_HIGH ? i / 2 : i % 2) * 4 + lane % 4,
                  at = row + (K_HIGH ? i % 2 : i / 2) * 8 + lane / 4;
        r[i] = *(const unsigned *)(tile + dot_step_place<unsigned, ROWS / 4, false>(p, at / 4) + at % 4 * 4);
    }
}
/* Rounded to tf32, perhaps after each was multiplied with the number that belongs to its step of k. */
template <bool K_HIGH, bool SCALED> INLINE void ready_tf32(unsigned *r, const float *factors, int lane)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float x = real_f32((int)r[i]);
        if (SCALED) x *= factors[(K_HIGH ? i / 2 : i % 2) * 4 + lane % 4];
        r[i] = (unsigned)bits_f32(tf32_f32(x));
    }
}

//@ part mma_tf32
//@ needs real_f32
/* sum[16][8] += a[16][8] * b[8][8], spread over a warp. */
INLINE void mma_tf32(float *sum, const unsigned *a, const unsigned *b)
{
#if defined(QUERN_EMU)
    __shared__ unsigned all[32][32][6];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 6; i++) all[warp][lane][i] = i < 4 ? a[i] : b[i - 4];
    __syncwarp();
    for (int t = 0; t < 4; t++) {
        const unsigned *x = all[warp][(lane & ~3) + t];
        for (int column = 0; column < 2; column++) {
            const unsigned *y = all[warp][lane % 4 * 8 + column * 4 + t];
            for (int half = 0; half < 2; half++) {
                const float yk = real_f32((int)y[4 + half]);
                sum[column] += real_f32((int)x[2 * half]) * yk;
                sum[column + 2] += real_f32((int)x[2 * half + 1]) * yk;
            }
        }
    }
    __syncwarp();
#elif __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, "
                 "%7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
