/*
 * Products of few rows in the CUDA prelude: the other operand is read once, and nobody shares it, so that it goes from memory to the
 * registers of the matrix units without a stop in shared memory.
 *
 * The warps of a block take turns along k, 32 steps each, AHEAD turns asked for at once; their sums meet in shared memory at the end,
 * in the order of the warps. Any order of k within a turn will do as long as both operands have the same: lane t of four has 8
 * neighbours from 8 t on, 16 bytes where the operand lies along k.
 * SPDX-License-Identifier: MIT
 */

//@ part thin_load
//@ needs words
/* BYTES of an array, zeros where `ok` does not hold. ONCE: nobody reads them again. */
template <int BYTES, bool ONCE> INLINE void thin_load(unsigned *w, const void *p, int ok)
{
#ifdef QUERN_EMU
    for (int i = 0; i < BYTES / 4; i++) w[i] = ok ? ((const unsigned *)p)[i] : 0;
#else
#define THIN_LOAD(HINT)                                                                                               \
    if (BYTES == 16)                                                                                                  \
        asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\n"                     \
                     "mov.u32 %2, 0;\nmov.u32 %3, 0;\n@p ld.global" HINT ".v4.u32 {%0, %1, %2, %3}, [%4];\n}"        \
                     : "=&r"(w[0]), "=&r"(w[1]), "=&r"(w[2]), "=&r"(w[3])                                             \
                     : "l"(p), "r"(ok) : "memory");                                                                              \
    else if (BYTES == 8)                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\n"                     \
                     "@p ld.global" HINT ".v2.u32 {%0, %1}, [%2];\n}"                                                 \
                     : "=&r"(w[0]), "=&r"(w[1])                                                                       \
                     : "l"(p), "r"(ok) : "memory");                                                                              \
    else                                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\nmov.u32 %0, 0;\n@p ld.global" HINT ".u32 %0, [%1];\n}" \
                     : "=&r"(w[0])                                                                                    \
                     : "l"(p), "r"(ok) : "memory")
    if (ONCE) {
        THIN_LOAD(".L1::no_allocate.L2::128B");
    } else {
        THIN_LOAD("");
    }
#undef THIN_LOAD
#endif
}

//@ part thin_side
//@ needs thin_load dot_tile
/* One operand: LINES of it, of which a lane has every eighth (INNER) or, of each of its steps of k, LINES / 8 neighbours. Its share
 * of a turn is WORDS registers. */
template <int LINES, bool INNER, bool ONCE> struct thin_side {
    enum {
        V = INNER ? 8 : LINES / 8, /* elements of a load */
        LOADS = INNER ? LINES / 8 : 8,
        EACH = V / 2,
        WORDS = LOADS * EACH
    };
    const unsigned short *p;
    long row, column; /* strides of lines and of k */
    dot_range range;
    INLINE void start(thin_side &s, const void *from, long row_stride, long k_stride, dot_range there)
    {
        s.p = (const unsigned short *)from, s.row = row_stride, s.column = k_stride, s.range = there;
    }
    /* Are loads of V elements aligned, and do they exist as a whole or not at all? */
    INLINE bool whole(const thin_side &s)
    {
        const long apart = INNER ? s.row : s.column;
        return (INNER ? s.column : s.row) == 1 && !(((unsigned long)s.p | (unsigned long)apart * 2) & (V * 2 - 1)) &&
               (INNER || (s.range.first <= 0 && (s.range.last >= LINES || s.range.last % V == 0)));
    }
    /* The lane's share of 32 steps from k on, if they are there, by whole loads. */
    INLINE void take(const thin_side &s, unsigned *w, long k, bool there, int lane)
    {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int line = INNER ? i * 8 + g : g * V, step = INNER ? t * 8 : t * 8 + i;
            thin_load<V * 2, ONCE>(w + i * EACH, s.p + line * s.row + (k + step) * s.column,
                                   there && line >= s.range.first && line < s.range.last);
        }
    }
    /* The same element by element, wherever they lie. */
    INLINE void take_any(const thin_side &s, unsigned *w, long k, int lane)
    {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < LOADS * V; i++) {
            const long line = INNER ? i / V * 8 + g : g * V + i % V, step = k + t * 8 + (INNER ? i % V : i / V);
            const bool there =
                line >= s.range.first && line < s.range.last && step >= s.range.k_first && step < s.range.k_last;
            const unsigned x = there ? s.p[line * s.row + step * s.column] : 0;
            w[i / 2] = i % 2 ? w[i / 2] | x << 16 : x;
        }
    }
    /* Line j * 8 + g (or g * V + j) at the lane's steps 4 h and 4 h + 1, then 4 h + 2 and 4 h + 3. */
    INLINE void pick(unsigned *r, const unsigned *w, int j, int h)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned x = w[INNER ? j * 4 + h * 2 + i : (h * 4 + i * 2) * EACH + j / 2];
            const unsigned y = w[INNER ? 0 : (h * 4 + i * 2 + 1) * EACH + j / 2];
            r[i] = INNER ? x : j % 2 ? x >> 16 | (y & 0xffff0000u) : (x & 0xffffu) | y << 16;
        }
    }
};

//@ part product_thin_$t
//@ for f16 bf16
//@ needs thin_side mma_$t
/* FEW (16 or 32) by MANY elements; TURNED: the many are the rows of the result, else its columns. */
template <int FEW, int MANY, int THREADS, bool TURNED, bool FEW_INNER, bool MANY_INNER> struct product_thin_$t {
    enum {
        WARPS = THREADS / 32,
        TURN = 32,
        AHEAD = FEW == 16 ? 4 : 2, /* turns of the many that are asked for; of the few, which are in a cache, the next one */
        FM = FEW / 16,
        FN = MANY / 8,
        PARTS = FM * FN * 4,
        COUNT = FEW * MANY / THREADS
    };
    typedef float sum;
    typedef thin_side<FEW, FEW_INNER, false> few;
    typedef thin_side<MANY, MANY_INNER, true> many;
    INLINE bool works(int) { return true; }
    INLINE int few_of(int i, int thread) { return (i * THREADS + thread) / MANY; }
    INLINE int many_of(int i, int thread) { return (i * THREADS + thread) % MANY; }
    INLINE int row(int i, int thread) { return TURNED ? many_of(i, thread) : few_of(i, thread); }
    INLINE int column(int i, int thread) { return TURNED ? few_of(i, thread) : many_of(i, thread); }
    INLINE void multiply(float *part, const unsigned *u, const unsigned *v)
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            unsigned p[FM][4], r[2];
#pragma unroll
            for (int f = 0; f < FM * 2; f++) {
                few::pick(r, u, f, h);
                p[f / 2][f % 2] = r[0], p[f / 2][f % 2 + 2] = r[1];
            }
#pragma unroll
            for (int j = 0; j < FN; j++) {
                many::pick(r, v, j, h);
#pragma unroll
                for (int f = 0; f < FM; f++) mma_$t(part + (f * FN + j) * 4, p[f], r);
            }
        }
    }
    INLINE void add(float *sums, const void *a, long a_row, long a_column, const void *b, long b_row, long b_column,
                    dot_range of_a, dot_range of_b, unsigned char *room, int thread)
    {
        dot_meet(of_a, of_b);
        few x;
        many y;
        x.start(x, TURNED ? b : a, TURNED ? b_column : a_row, TURNED ? b_row : a_column, TURNED ? of_b : of_a);
        y.start(y, TURNED ? a : b, TURNED ? a_row : b_column, TURNED ? a_column : b_row, TURNED ? of_a : of_b);
        const int warp = thread / 32, lane = thread % 32;
        const long k_first = of_a.k_first, k_last = of_a.k_last, jump = TURN * WARPS;
        const long first = (k_first + TURN - 1) / TURN * TURN;
        const long last = x.whole(x) && y.whole(y) && first < k_last ? k_last / TURN * TURN : first;
        float part[PARTS];
#pragma unroll
        for (int i = 0; i < PARTS; i++) part[i] = 0;
        unsigned u[2][few::WORDS], v[AHEAD][many::WORDS];
        long k = first + warp * TURN;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) y.take(y, v[i], k + i * jump, k + i * jump < last, lane);
        x.take(x, u[0], k, k < last, lane);
#pragma unroll 1
        for (; k < last; k += AHEAD * jump) {
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                const long next = k + (i + 1) * jump, later = k + (i + AHEAD) * jump;
                x.take(x, u[(i + 1) % 2], next, next < last, lane);
                multiply(part, u[i % 2], v[i]);
                y.take(y, v[i], later, later < last, lane);
            }
        }
#pragma unroll 1
        for (k = k_first / TURN * TURN + warp * TURN; k < k_last; k += jump) {
            if (k >= first && k < last) continue;
            x.take_any(x, u[0], k, lane);
            y.take_any(y, v[0], k, lane);
            multiply(part, u[0], v[0]);
        }
        float *const all = (float *)room;
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            const int f = i / 4 / FN, j = i / 4 % FN, c = lane % 4 * 2 + i % 2, half = i / 2 % 2;
            const int line = FEW_INNER ? f * 16 + half * 8 + lane / 4 : lane / 4 * (int)few::V + f * 2 + half;
            all[(warp * FEW + line) * MANY + (MANY_INNER ? j * 8 + c : c * (int)many::V + j)] = part[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < COUNT; i++)
#pragma unroll
            for (int w = 0; w < WARPS; w++) sums[i] += all[w * FEW * MANY + i * THREADS + thread];
        __syncthreads();
    }
};
