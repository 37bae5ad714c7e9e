/*
 * Large products of f32 by multiply and add in the CUDA prelude: 128 x 128 sums by 256 threads, 64 a thread.
 *
 * Both operands lie in shared memory with the elements of one k side by side, so that a thread needs the numbers of one step of k
 * at a time and two blocks fit onto a multiprocessor: one that lies along k is turned by copies of single elements on its way.
 * The numbers of the next step come out of shared memory while this one's are multiplied.
 * SPDX-License-Identifier: MIT
 */

//@ part large_feed
//@ needs copy_async dot_tile
/* One operand's way to shared memory: BK lines of 128 elements, PAD apart. INNER: its elements lie side by side along k. */
template <bool INNER> struct large_feed {
    enum {
        BK = 8,
        LINES = 128,
        PAD = INNER ? 4 : 0, /* eight steps of k of four lines meet each bank once */
        BYTES = BK * (LINES + PAD) * 4
    };
    const float *p, *next;
    long row, column;
    dot_range range;
    bool whole, inside;
    INLINE void start(large_feed &f, const void *from, long row_stride, long k_stride, dot_range there, long k, int thread)
    {
        f.p = (const float *)from, f.row = row_stride, f.column = k_stride, f.range = there;
        f.whole = INNER || (row_stride == 1 && !(((unsigned long)from | (unsigned long)k_stride * 4) & 15));
        f.inside = f.whole && there.first <= 0 && there.last >= LINES;
        f.next = INNER ? f.p + thread / BK * row_stride + (k + thread % BK) * k_stride
                       : f.p + thread % (LINES / 4) * 4 * row_stride + (k + thread / (LINES / 4)) * k_stride;
    }
    INLINE void step(large_feed &f, unsigned char *room, long k, int thread)
    {
        float *const to = (float *)room;
        if (f.inside && k + BK <= f.range.k_last) {
            if (INNER) {
                const float *from = f.next;
                const long jump = 32 * f.row;
#pragma unroll
                for (int i = 0; i < LINES / 32; i++, from += jump)
                    copy_async_few<4>(to + thread % BK * (LINES + PAD) + thread / BK + i * 32, from, 4);
            } else {
                copy_async(to + thread * 4, f.next, 16);
            }
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int line = INNER ? thread / BK + i * 32 : thread % (LINES / 4) * 4 + i;
                const int at = INNER ? thread % BK : thread / (LINES / 4);
                const bool there = line >= f.range.first && line < f.range.last && k + at < f.range.k_last;
                copy_async_few<4>(to + at * (LINES + PAD) + line,
                                  there ? f.p + line * f.row + (k + at) * f.column : f.p, there ? 4 : 0);
            }
        }
        f.next += BK * f.column;
    }
};

//@ part product_large_f32
//@ needs large_feed real_f32
template <bool A_INNER, bool B_INNER, int STAGES> struct product_large_f32 {
    typedef float sum;
    typedef large_feed<A_INNER> feed_a;
    typedef large_feed<B_INNER> feed_b;
    enum {
        BK = feed_a::BK,
        COUNT = 64,
        A_LINE = feed_a::LINES + feed_a::PAD,
        B_LINE = feed_b::LINES + feed_b::PAD,
        STEP_BYTES = feed_a::BYTES + feed_b::BYTES
    };
    INLINE bool works(int) { return true; }
    /* A warp is 4 threads down and 8 across, each with two runs of four rows and of four columns, 64 apart. */
    INLINE int down(int thread) { return thread / 64 * 4 + thread / 8 % 4; }
    INLINE int across(int thread) { return thread / 32 % 2 * 8 + thread % 8; }
    INLINE int row(int i, int thread) { return (i / 32 * 16 + down(thread)) * 4 + i / 8 % 4; }
    INLINE int column(int i, int thread) { return (i % 8 / 4 * 16 + across(thread)) * 4 + i % 4; }
    INLINE void load(float *r, const float *line)
    {
#pragma unroll
        for (int run = 0; run < 2; run++) {
            const words4 w = *(const words4 *)(line + run * 64);
#pragma unroll
            for (int i = 0; i < 4; i++) r[run * 4 + i] = real_f32((int)w.w[i]);
        }
    }
    INLINE void multiply(float *sums, const unsigned char *stage, int thread)
    {
        const float *const a = (const float *)stage + down(thread) * 4;
        const float *const b = (const float *)(stage + feed_a::BYTES) + across(thread) * 4;
        float x[2][8], y[2][8];
        load(x[0], a);
        load(y[0], b);
#pragma unroll
        for (int k = 0; k < BK; k++) {
            if (k + 1 < BK) {
                load(x[(k + 1) % 2], a + (k + 1) * A_LINE);
                load(y[(k + 1) % 2], b + (k + 1) * B_LINE);
            }
#pragma unroll
            for (int i = 0; i < COUNT; i++) sums[i] += x[k % 2][i / 8] * y[k % 2][i % 8];
        }
    }
    INLINE void add(float *sums, const void *a, long a_row, long a_column, const void *b, long b_row, long b_column,
                    dot_range of_a, dot_range of_b, unsigned char *room, int thread)
    {
        dot_meet(of_a, of_b);
        const long first = of_a.k_first;
        const int steps = of_a.k_last > first ? (int)((of_a.k_last - first + BK - 1) / BK) : 0;
        feed_a left;
        feed_b right;
        left.start(left, a, a_row, a_column, of_a, first, thread);
        right.start(right, b, b_column, b_row, of_b, first, thread);
        int to = 0, from = 0; /* stages */
#pragma unroll 1
        for (int c = 1 - STAGES; c < steps; c++) { /* below 0 the ring only fills */
            const int next = c + STAGES - 1;
            if (c >= 0) {
                copy_wait<STAGES - 2>();
                __syncthreads();
            }
            if (next < steps) {
                left.step(left, room + to * STEP_BYTES, first + (long)next * BK, thread);
                right.step(right, room + to * STEP_BYTES + feed_a::BYTES, first + (long)next * BK, thread);
                to = to + 1 < STAGES ? to + 1 : 0;
            }
            copy_commit();
            if (c < 0) continue;
            multiply(sums, room + from * STEP_BYTES, thread);
            from = from + 1 < STAGES ? from + 1 : 0;
        }
        copy_wait<0>();
        __syncthreads();
    }
};
