/*
 * Products of gathered operands in the CUDA prelude.
 *
 * gather_view: an operand as digits and guards (param_digits), numbers of the text. gather_feed: one thread's way through
 * it. A thread stays at one k of each step and at a few lines (rows of the left operand, columns of the right one): where
 * a line lies is divided out once, the digits of k are counted up from step to step, and an element costs an addition and
 * a comparison for each guard. product_gather: sums in registers, two steps in shared memory, the next one on its way.
 * SPDX-License-Identifier: MIT
 */

//@ part gather_view
//@ needs dot_tile words
template <int LD, int KD, int G> struct gather_view {
    enum {
        LINE_DIGITS = LD,
        K_DIGITS = KD,
        GUARDS = G
    };
    const void *p;
    long line_start, k_start;
    int line_extent[LD];
    long line_stride[LD];
    int k_extent[KD];
    long k_stride[KD];
    int line_guard[G + 1][LD], k_guard[G + 1][KD];
    int first[G + 1], extent[G + 1];
};

//@ part gather_feed
//@ needs gather_view
/* LINES x BK elements of a view, step by step along k. O: what holds the distance of two lines of one tile. K_FAST:
 * neighbouring threads go along k. */
template <class E, class O, class V, int LINES, int BK, int THREADS, bool K_FAST> struct gather_feed {
    enum {
        LD = V::LINE_DIGITS,
        KD = V::K_DIGITS,
        G = V::GUARDS,
        BESIDE = THREADS / BK,
        SHARE = LINES < BESIDE ? 1 : LINES / BESIDE,
        EVEN = LINES >= BESIDE
    };
    const E *base;
    int k, k_last;
    O offset[SHARE];
    int guard[SHARE][G + 1], digits[KD];
    unsigned there;
    INLINE int line_of(int thread) { return K_FAST ? thread / BK : thread % BESIDE; }
    INLINE int k_of(int thread) { return K_FAST ? thread % BK : thread / BESIDE; }
    INLINE void start(gather_feed &f, const V &v, dot_range range, long k, int thread)
    {
        int begin[LD];
        long line = v.line_start;
        f.base = (const E *)v.p;
#pragma unroll
        for (int i = LD - 1; i > 0; i--) {
            begin[i] = (int)(line % v.line_extent[i]);
            line /= v.line_extent[i];
            f.base += begin[i] * v.line_stride[i];
        }
        begin[0] = (int)line;
        f.base += line * v.line_stride[0];
        f.k = (int)k + k_of(thread);
        f.k_last = (int)range.k_last;
        f.there = 0;
#pragma unroll
        for (int j = 0; j < SHARE; j++) {
            const int at = line_of(thread) + j * BESIDE;
            if ((EVEN || at < LINES) && at >= range.first && at < range.last) f.there |= 1u << j;
            unsigned rest = (unsigned)at;
            int digit[LD];
            f.offset[j] = 0;
#pragma unroll
            for (int i = LD - 1; i > 0; i--) {
                const unsigned next = (unsigned)begin[i] + rest;
                rest = next / (unsigned)v.line_extent[i];
                digit[i] = (int)(next - rest * (unsigned)v.line_extent[i]);
                f.offset[j] += (O)(digit[i] - begin[i]) * (O)v.line_stride[i];
            }
            digit[0] = begin[0] + (int)rest;
            f.offset[j] += (O)rest * (O)v.line_stride[0];
#pragma unroll
            for (int g = 0; g < G; g++) {
                f.guard[j][g] = v.first[g];
#pragma unroll
                for (int i = 0; i < LD; i++) f.guard[j][g] += digit[i] * v.line_guard[g][i];
            }
        }
        long rest = v.k_start + f.k;
#pragma unroll
        for (int i = KD - 1; i > 0; i--) {
            f.digits[i] = (int)(rest % v.k_extent[i]);
            rest /= v.k_extent[i];
        }
        f.digits[0] = (int)rest;
    }
    /* This step's elements of the thread; then on to the next step. */
    INLINE void fetch(gather_feed &f, const V &v, E *r)
    {
        long place = 0;
        int sums[G + 1];
#pragma unroll
        for (int i = 0; i < KD; i++) place += f.digits[i] * v.k_stride[i];
#pragma unroll
        for (int g = 0; g < G; g++) {
            sums[g] = 0;
#pragma unroll
            for (int i = 0; i < KD; i++) sums[g] += f.digits[i] * v.k_guard[g][i];
        }
        const E *const from = f.base + place;
        const unsigned there = f.k < f.k_last ? f.there : 0;
#pragma unroll
        for (int j = 0; j < SHARE; j++) {
            bool inside = there >> j & 1;
#pragma unroll
            for (int g = 0; g < G; g++) inside &= (unsigned)(f.guard[j][g] + sums[g]) < (unsigned)v.extent[g];
            r[j] = 0;
            if (inside) r[j] = from[f.offset[j]];
        }
        int step = BK, over = 0;
        f.k += BK;
#pragma unroll
        for (int i = KD - 1; i > 0; i--) {
            const int next = f.digits[i] + step % v.k_extent[i] + over;
            step /= v.k_extent[i];
            over = next >= v.k_extent[i];
            f.digits[i] = over ? next - v.k_extent[i] : next;
        }
        f.digits[0] += step + over;
    }
};

//@ part gather_steps
//@ needs gather_feed
/* Adds a product P to its sums: one step of k is multiplied in shared memory while the next one comes. */
template <class P, class F, int LINES>
INLINE void gather_put(typename P::stored *room, const typename P::element *r, int thread)
{
#pragma unroll
    for (int j = 0; j < F::SHARE; j++) {
        const int line = F::line_of(thread) + j * F::BESIDE;
        if (F::EVEN || line < LINES) room[F::k_of(thread) * (LINES + 8) + line] = P::store(r + j);
    }
}
template <class P, class VA, class VB>
INLINE void gather_steps(typename P::sum *sums, const VA &va, const VB &vb, dot_range of_a, dot_range of_b,
                         unsigned char *room, int thread)
{
    typedef typename P::feed_a feed_a;
    typedef typename P::feed_b feed_b;
    enum {
        TM = P::A_LINE - 8,
        TN = P::B_LINE - 8,
        B_AT = P::BK * P::A_LINE
    };
    dot_meet(of_a, of_b);
    const long k_first = of_a.k_first, k_last = of_a.k_last;
    feed_a fa;
    feed_b fb;
    typename P::element x[feed_a::SHARE], y[feed_b::SHARE];
    fa.start(fa, va, of_a, k_first, thread);
    fb.start(fb, vb, of_b, k_first, thread);
    typename P::stored *const stage = (typename P::stored *)room;
    int turn = 0;
    fa.fetch(fa, va, x);
    fb.fetch(fb, vb, y);
    gather_put<P, feed_a, TM>(stage, x, thread);
    gather_put<P, feed_b, TN>(stage + B_AT, y, thread);
    __syncthreads();
#pragma unroll 1
    for (long k = k_first; k < k_last; k += P::BK, turn ^= 1) {
        const bool more = k + P::BK < k_last;
        if (more) {
            fa.fetch(fa, va, x);
            fb.fetch(fb, vb, y);
        }
        P::multiply(sums, stage + turn * P::STEP, stage + turn * P::STEP + B_AT, thread);
        if (more) {
            gather_put<P, feed_a, TM>(stage + (turn ^ 1) * P::STEP, x, thread);
            gather_put<P, feed_b, TN>(stage + (turn ^ 1) * P::STEP + B_AT, y, thread);
        }
        __syncthreads();
    }
}

//@ part product_gather_$t
//@ for f32 f64 f16 bf16 f8e4m3
//@ needs gather_steps read_$t
/* Products by multiply and add: TM x TN sums by TY x TX threads. */
template <int TM, int TN, int TY, int TX, class OA, class OB, class VA, class VB, bool A_FAST, bool B_FAST>
struct product_gather_$t {
    typedef $k sum;
    typedef sum stored;
    typedef $m element;
    struct WORDS(16) pack { sum v[16 / sizeof(sum)]; };
    enum {
        THREADS = TY * TX,
        BK = 8,
        RM = TM / TY,
        RN = TN / TX,
        PER = 16 / sizeof(sum),
        VM = RM < PER ? RM : PER,
        VN = RN < PER ? RN : PER,
        COUNT = RM * RN,
        A_LINE = TM + 8,
        B_LINE = TN + 8,
        STEP = BK * (A_LINE + B_LINE)
    };
    typedef gather_feed<$m, OA, VA, TM, BK, THREADS, A_FAST> feed_a;
    typedef gather_feed<$m, OB, VB, TN, BK, THREADS, B_FAST> feed_b;
    INLINE bool works(int) { return true; }
    INLINE int row(int i, int thread) { return (i / RN / VM * TY + thread / TX) * VM + i / RN % VM; }
    INLINE int column(int i, int thread) { return (i % RN / VN * TX + thread % TX) * VN + i % RN % VN; }
    INLINE sum store(const $m *from) { return (sum)read_$t(from); }
    template <int R, int V, int APART> INLINE void take(sum *r, const sum *room)
    {
#pragma unroll
        for (int i = 0; i < R; i += V) {
            if (V == PER) {
                const pack w = *(const pack *)(room + i * APART);
#pragma unroll
                for (int j = 0; j < V; j++) r[i + j] = w.v[j];
            } else {
#pragma unroll
                for (int j = 0; j < V; j++) r[i + j] = room[i * APART + j];
            }
        }
    }
    INLINE void multiply(sum *sums, const sum *a, const sum *b, int thread)
    {
        const sum *const s = a + thread / TX * VM, *const t = b + thread % TX * VN;
#pragma unroll
        for (int p = 0; p < BK; p++) {
            sum u[RM], v[RN];
            take<RM, VM, TY>(u, s + p * A_LINE);
            take<RN, VN, TX>(v, t + p * B_LINE);
#pragma unroll
            for (int i = 0; i < COUNT; i++) sums[i] += u[i / RN] * v[i % RN];
        }
    }
    INLINE void add(sum *sums, const VA &va, const VB &vb, dot_range of_a, dot_range of_b, unsigned char *room,
                    int thread)
    {
        gather_steps<product_gather_$t>(sums, va, vb, of_a, of_b, room, thread);
    }
};

//@ part product_gather_tf32
//@ needs gather_steps mma_tf32 real_f32 tf32_f32
/* Products of f32 rounded to tf32 on the matrix units: TM x TN sums by DOWN x ACROSS warps. */
template <int TM, int TN, int DOWN, int ACROSS, class OA, class OB, class VA, class VB, bool A_FAST, bool B_FAST>
struct product_gather_tf32 {
    typedef float sum;
    typedef float element;
    typedef unsigned stored;
    enum {
        THREADS = DOWN * ACROSS * 32,
        BK = 8,
        FM = TM / DOWN / 16,
        FN = TN / ACROSS / 8,
        COUNT = FM * FN * 4,
        A_LINE = TM + 8,
        B_LINE = TN + 8,
        STEP = BK * (A_LINE + B_LINE)
    };
    typedef gather_feed<float, OA, VA, TM, BK, THREADS, A_FAST> feed_a;
    typedef gather_feed<float, OB, VB, TN, BK, THREADS, B_FAST> feed_b;
    INLINE bool works(int) { return true; }
    INLINE int row(int i, int thread)
    {
        return (thread / 32 / ACROSS * FM + i / 4 / FN) * 16 + i / 2 % 2 * 8 + thread % 32 / 4;
    }
    INLINE int column(int i, int thread)
    {
        return (thread / 32 % ACROSS * FN + i / 4 % FN) * 8 + thread % 4 * 2 + i % 2;
    }
    INLINE unsigned store(const float *from) { return (unsigned)bits_f32(tf32_f32(*from)); }
    INLINE void multiply(float *sums, const stored *a, const stored *b, int thread)
    {
        const int warp = thread / 32, line = thread % 32 / 4, k = thread % 4;
        const stored *const s = a + k * A_LINE + warp / ACROSS * FM * 16 + line;
        const stored *const t = b + k * B_LINE + warp % ACROSS * FN * 8 + line;
        unsigned x[FM][4], y[2];
#pragma unroll
        for (int i = 0; i < FM * 4; i++) x[i / 4][i % 4] = s[i % 4 / 2 * 4 * A_LINE + i / 4 * 16 + i % 2 * 8];
#pragma unroll
        for (int f = 0; f < FN; f++) {
            y[0] = t[f * 8], y[1] = t[4 * B_LINE + f * 8];
#pragma unroll
            for (int i = 0; i < FM; i++) mma_tf32(sums + (i * FN + f) * 4, x[i], y);
        }
    }
    INLINE void add(float *sums, const VA &va, const VB &vb, dot_range of_a, dot_range of_b, unsigned char *room,
                    int thread)
    {
        gather_steps<product_gather_tf32>(sums, va, vb, of_a, of_b, room, thread);
    }
};

//@ part gather_place
//@ needs words
/* Where an element lies as far as one axis says: a distance in memory, and a part of the sum of each guard. */
template <int G, class O> struct gather_place {
    O offset;
    int guard[G];
};

//@ part gather_take
//@ needs gather_place
/* The place that a lane keeps, to all of its warp. */
template <int G, class O> INLINE gather_place<G, O> gather_pass(const gather_place<G, O> &place, int lane)
{
    gather_place<G, O> here;
    here.offset = __shfl_sync(~0u, place.offset, lane);
#pragma unroll
    for (int g = 0; g < G; g++) here.guard[g] = __shfl_sync(~0u, place.guard[g], lane);
    return here;
}
/* An element, or 0, into a register of its own: without a branch, so that those of many lines go on side by side. */
INLINE void gather_load(float &x, const float *from, int inside)
{
#ifdef QUERN_EMU
    x = inside ? *from : 0;
#else
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.b32 %0, [%1];\n}"
                 : "=&f"(x)
                 : "l"(from), "r"(inside));
#endif
}
INLINE void gather_load(unsigned &x, const unsigned short *from, int inside)
{
#ifdef QUERN_EMU
    x = inside ? *from : 0;
#else
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.u16 %0, [%1];\n}"
                 : "=&r"(x)
                 : "l"(from), "r"(inside));
#endif
}
/* The element at two places, one of each axis; 0 where a guard does not hold. */
template <class R, class E, int G, class O>
INLINE void gather_take(R &x, const E *base, const gather_place<G, O> &a, const gather_place<G, O> &b,
                        const int (&extents)[G])
{
    bool inside = true;
#pragma unroll
    for (int g = 0; g < G; g++) inside &= (unsigned)(a.guard[g] + b.guard[g]) < (unsigned)extents[g];
    gather_load(x, base + (a.offset + b.offset), inside);
}

//@ part gather_take4
//@ needs gather_take load_words4_if
/* Four neighbours at two places, of which none is outside alone. */
template <int G, class O>
INLINE void gather_take4(unsigned *words, const float *base, const gather_place<G, O> &a, const gather_place<G, O> &b,
                         const int (&extents)[G])
{
    bool inside = true;
#pragma unroll
    for (int g = 0; g < G; g++) inside &= (unsigned)(a.guard[g] + b.guard[g]) < (unsigned)extents[g];
    load_words4_if(words, base + (a.offset + b.offset), inside);
}

//@ part gather_copy
//@ needs gather_place copy_async
/* 16 bytes from two places, in the background. */
template <class E, int G, class O>
INLINE void gather_copy(void *to, const E *base, const gather_place<G, O> &a, const gather_place<G, O> &b,
                        const int (&extents)[G])
{
    bool inside = true;
#pragma unroll
    for (int g = 0; g < G; g++) inside &= (unsigned)(a.guard[g] + b.guard[g]) < (unsigned)extents[g];
    copy_async(to, base + (a.offset + b.offset), inside ? 16 : 0);
}
