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
/* BYTES of an array. ONCE: nobody reads them again. */
template <int BYTES, bool ONCE> INLINE void thin_load(unsigned *w, const void *p)
{
#ifdef QUERN_EMU
    for (int i = 0; i < BYTES / 4; i++) w[i] = ((const unsigned *)p)[i];
#else
#define THIN_LOAD(HINT)                                                                                               \
    if (BYTES == 16)                                                                                                  \
        asm volatile("ld.global" HINT ".v4.u32 {%0, %1, %2, %3}, [%4];"                                               \
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])                                                 \
                     : "l"(p)                                                                                         \
                     : "memory");                                                                                     \
    else if (BYTES == 8)                                                                                              \
        asm volatile("ld.global" HINT ".v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(p) : "memory");        \
    else                                                                                                              \
        asm volatile("ld.global" HINT ".u32 %0, [%1];" : "=r"(w[0]) : "l"(p) : "memory")
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
 * of a turn is WORDS registers. For a line that does not exist another one is read: its sums are left out. */
template <int LINES, bool INNER, bool ONCE> struct thin_side {
    enum {
        V = INNER ? 8 : LINES / 8, /* elements of a load */
        LOADS = INNER ? LINES / 8 : 8,
        EACH = V / 2,
        WORDS = LOADS * EACH
    };
    const unsigned short *p, *lines[INNER ? LOADS : 1];
    long row, column; /* strides of lines and of k */
    dot_range range;
    INLINE void start(thin_side &s, const void *from, long row_stride, long k_stride, dot_range range, int lane)
    {
        const int g = lane / 4, t = lane % 4;
        s.p = (const unsigned short *)from, s.row = row_stride, s.column = k_stride, s.range = range;
#pragma unroll
        for (int i = 0; i < (INNER ? LOADS : 1); i++) {
            const long wanted = INNER ? i * 8 + g : g * V, most = range.last - (INNER ? 1 : V);
            const long line = wanted > most ? most : wanted < range.first ? range.first : wanted;
            s.lines[i] = s.p + line * row_stride + t * 8 * k_stride;
        }
    }
    /* Are loads of V elements aligned, and do they exist as a whole or not at all? */
    INLINE bool whole(const thin_side &s)
    {
        const long apart = INNER ? s.row : s.column;
        return s.range.first < s.range.last && (INNER ? s.column : s.row) == 1 && !(((unsigned long)s.p | (unsigned long)apart * 2) & (V * 2 - 1)) &&
               (INNER || (s.range.first <= 0 && (s.range.last >= LINES || s.range.last % V == 0)));
    }
    /* The lane's share of 32 steps from k on, by whole loads. */
    INLINE void take(const thin_side &s, unsigned *w, long k)
    {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            thin_load<V * 2, ONCE>(w + i * EACH, INNER ? s.lines[i] + k : s.lines[0] + (k + i) * s.column);
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
/* FEW (16 or 32) by MANY elements; TURNED: the many are the rows of the result, else its columns. A warp takes two turns side by
 * side, which are a line of the cache where an operand lies along k; AHEAD is even. */
template <int FEW, int MANY, int THREADS, int AHEAD, bool TURNED, bool FEW_INNER, bool MANY_INNER> struct product_thin_$t {
    enum {
        WARPS = THREADS / 32,
        TURN = 32,
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
        const int warp = thread / 32, lane = thread % 32;
        x.start(x, TURNED ? b : a, TURNED ? b_column : a_row, TURNED ? b_row : a_column, TURNED ? of_b : of_a, lane);
        y.start(y, TURNED ? a : b, TURNED ? a_row : b_column, TURNED ? a_column : b_row, TURNED ? of_a : of_b, lane);
        const long k_first = of_a.k_first, k_last = of_a.k_last, jump = TURN * WARPS;
        const long first = (k_first + TURN - 1) / TURN * TURN;
        const long last = x.whole(x) && y.whole(y) && first < k_last ? k_last / TURN * TURN : first;
        float part[PARTS];
#pragma unroll
        for (int i = 0; i < PARTS; i++) part[i] = 0;
        unsigned u[AHEAD][few::WORDS], v[AHEAD][many::WORDS];
        long k = first + warp * 2 * TURN;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const long at = k + i / 2 * 2 * jump + i % 2 * TURN;
            if (at >= last) continue;
            y.take(y, v[i], at);
            x.take(x, u[i], at);
        }
#pragma unroll 1
        for (; k < last; k += AHEAD * jump) {
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                const long now = k + i / 2 * 2 * jump + i % 2 * TURN, at = now + AHEAD * jump;
                if (now < last) multiply(part, u[i], v[i]);
                if (at >= last) continue;
                y.take(y, v[i], at);
                x.take(x, u[i], at);
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
        for (int i = 0; i < COUNT; i++) {
            const int p = few_of(i, thread), q = many_of(i, thread);
            if (p < x.range.first || p >= x.range.last || q < y.range.first || q >= y.range.last) continue;
#pragma unroll
            for (int w = 0; w < WARPS; w++) sums[i] += all[w * FEW * MANY + i * THREADS + thread];
        }
        __syncthreads();
    }
};
