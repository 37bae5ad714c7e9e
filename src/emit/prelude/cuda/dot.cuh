/*
 * Products in the CUDA prelude.
 *
 * dot_plain_<m>: c[m][n] += a[m][k] * b[k][n] (or = with `clear`) by a team of threads, any strides, any sizes, operands
 * in any memory. Only positions from first up to last count; the elements of c outside add nothing (or are cleared).
 * SPDX-License-Identifier: MIT
 */

//@ part dot_plain_$t
//@ for f32 f64 f16 bf16 f8e4m3 i8 u8
//@ needs read_$t
INLINE void dot_plain_$t(const $m *a, long a_row, long a_column, const $m *b, long b_row, long b_column, $k *c,
                         long c_row, long m, long n, long m_first, long m_last, long n_first, long n_last,
                         long k_first, long k_last, bool clear, int thread, int threads)
{
    for (long i = thread; i < m * n; i += threads) {
        const long row = i / n, column = i % n;
        $k sum = clear ? 0 : c[row * c_row + column];
        if (row >= m_first && row < m_last && column >= n_first && column < n_last) {
            const $m *x = a + row * a_row, *y = b + column * b_column;
            for (long p = k_first; p < k_last; p++)
                sum += ($k)read_$t(x + p * a_column) * ($k)read_$t(y + p * b_row);
        }
        c[row * c_row + column] = sum;
    }
}

/* -- products -- */

//@ part dot_tile
/* The part of an operand that exists: positions from first up to last along its rows (m or n) and along k. */
struct dot_range {
    long first, last, k_first, k_last;
};
/* Along k both must exist. */
INLINE void dot_meet(dot_range &a, dot_range &b)
{
    if (a.k_first < b.k_first) a.k_first = b.k_first;
    if (a.k_last > b.k_last) a.k_last = b.k_last;
    b.k_first = a.k_first, b.k_last = a.k_last;
}

//@ part product_16
//@ needs copy_async mma_16 dot_tile
/* One operand of a product in shared memory: ROWS lines of CHUNKS times 16 bytes, the chunks of a line exchanged so that
 * eight lines below each other lie in different banks. */
template <class E>
INLINE bool dot_is_whole(const E *p, long stride, long line_stride) /* chunks of 16 bytes are aligned */
{
    return stride == 1 && !(((unsigned long)p | (unsigned long)line_stride * sizeof(E)) & 15);
}
template <int CHUNKS> INLINE int dot_place(int line, int chunk)
{
    /* of 8 chunks: also four lines by pairs of chunks, as words of a turned operand are read */
    return (line * CHUNKS + (chunk ^ (CHUNKS >= 8   ? (line << 1 | (line >> 2 & 1)) & 7
                                      : CHUNKS == 4 ? line >> 1 & 3
                                      : CHUNKS == 2 ? line >> 2 & 1
                                                    : 0))) *
           16;
}
/* Where a chunk of a step lies. Words of an operand that lies across k are read one by one, four lines below each other by eight
 * words beside each other: 32 bytes behind each line keep the banks apart, and all places are a lane's own and constants. */
template <class E, int CHUNKS, bool INNER> INLINE int dot_step_place(int line, int chunk)
{
    return INNER || sizeof(E) < 4 ? dot_place<CHUNKS>(line, chunk) : line * (CHUNKS * 16 + 32) + chunk * 16;
}
/* Lines and elements of a matrix to shared memory, what is outside as 0. E: unsigned short, or unsigned for 32 bits. */
template <class E, int LINES, int CHUNKS, int THREADS, bool INNER, bool GLOBAL>
INLINE void dot_stage(unsigned char *room, const E *p, long line_stride, long stride, long line_first,
                      long line_last, long first, long last, bool whole, int thread)
{
    enum {
        PER = 16 / sizeof(E)
    };
    if (GLOBAL && whole && first <= 0) {
#pragma unroll
        for (int i = thread; i < LINES * CHUNKS; i += THREADS) {
            const int line = i / CHUNKS, chunk = i % CHUNKS;
            const long left =
                line >= line_first && line < line_last ? (last - chunk * PER) * (long)sizeof(E) : 0;
            const int bytes = left < 0 ? 0 : left > 16 ? 16 : (int)left;
            copy_async(room + dot_step_place<E, CHUNKS, INNER>(line, chunk),
                       bytes ? p + line * line_stride + chunk * PER : p, bytes);
        }
        return;
    }
#pragma unroll 1
    for (int i = thread; i < LINES * CHUNKS; i += THREADS) {
        const int line = i / CHUNKS, chunk = i % CHUNKS;
        const bool there = line >= line_first && line < line_last;
        const E *const from = p + line * line_stride + chunk * PER * stride;
        words4 w = {{0, 0, 0, 0}};
        if (there && whole && chunk * PER >= first && chunk * PER + PER <= last) {
            w = *(const words4 *)from;
        } else if (there) {
#pragma unroll
            for (int e = 0; e < PER; e++)
                if (chunk * PER + e >= first && chunk * PER + e < last)
                    w.w[e * sizeof(E) / 4] |= (unsigned)from[e * stride] << e * sizeof(E) % 4 * 8;
        }
        *(words4 *)(room + dot_step_place<E, CHUNKS, INNER>(line, chunk)) = w;
    }
}

//@ part dot_feed
//@ needs product_16
/* One operand's way to shared memory, step by step along k: ROWS lines of CHUNKS chunks of k where the elements lie
 * side by side along k (INNER), else BK lines of ROWS elements. Steps that lie inside whole are copied from addresses
 * that only move on; others element by element where they must. */
template <class E, int ROWS, int CHUNKS, int THREADS, bool INNER, bool GLOBAL> struct dot_feed {
    enum {
        PER = 16 / sizeof(E),
        BK = CHUNKS * PER,
        LINES = INNER ? ROWS : BK,
        ACROSS = INNER ? CHUNKS : ROWS / PER,
        BYTES = LINES * (ACROSS * 16 + (INNER || sizeof(E) < 4 ? 0 : 32)), /* of a step */
        SHARE = (LINES * ACROSS + THREADS - 1) / THREADS,
        EVEN = GLOBAL && THREADS % ACROSS == 0 && (LINES * ACROSS) % THREADS == 0
    };
    const E *p, *next;
    long row, column, jump;
    bool whole, inside;
    INLINE void start(dot_feed &f, const E *from, long row_stride, long k_stride, dot_range range, long k, int thread)
    {
        const long line_stride = INNER ? row_stride : k_stride;
        f.p = from, f.row = row_stride, f.column = k_stride;
        f.whole = dot_is_whole<E>(from, INNER ? k_stride : row_stride, line_stride);
        f.inside = EVEN && f.whole && range.first <= 0 && range.last >= ROWS && range.k_first <= k;
        f.next = from + k * k_stride + thread / ACROSS * line_stride + thread % ACROSS * PER;
        f.jump = THREADS / ACROSS * line_stride;
    }
    INLINE void step(dot_feed &f, unsigned char *room, dot_range range, long k, int thread)
    {
        if (f.inside && k + BK <= range.k_last) {
            const E *from = f.next;
#pragma unroll
            for (int s = 0; s < SHARE; s++) {
                copy_async(room + dot_step_place<E, ACROSS, INNER>(s * (THREADS / ACROSS) + thread / ACROSS, thread % ACROSS),
                           from, 16);
                from += f.jump;
            }
        } else if (INNER) {
            dot_stage<E, LINES, ACROSS, THREADS, INNER, GLOBAL>(room, f.p + k * f.column, f.row, f.column, range.first, range.last,
                                                         range.k_first - k, range.k_last - k, f.whole, thread);
        } else {
            dot_stage<E, LINES, ACROSS, THREADS, INNER, GLOBAL>(room, f.p + k * f.column, f.column, f.row, range.k_first - k,
                                                         range.k_last - k, range.first, range.last, f.whole, thread);
        }
        f.next += BK * f.column;
    }
};

//@ part dot_scale
//@ needs dot_tile copy_async
/* What an operand is multiplied with as it leaves shared memory: nothing, or a number for each step of k, which lies behind
 * the operands of its step. */
struct dot_unscaled {
    enum {
        LEFT = 0,
        RIGHT = 0,
        BYTES = 0 /* for each step of k */
    };
    INLINE void step(const dot_unscaled &, unsigned char *, dot_range, long, int, int) {}
};
template <bool OF_LEFT> struct dot_scale {
    enum {
        LEFT = OF_LEFT,
        RIGHT = !OF_LEFT,
        BYTES = 4
    };
    const float *p;
    long stride;
    INLINE void step(const dot_scale &s, unsigned char *room, dot_range range, long k, int steps, int thread)
    {
        const bool there = k + thread >= range.k_first && k + thread < range.k_last;
        if (thread < steps)
            copy_async_few<4>(room + thread * 4, there ? s.p + (k + thread) * s.stride : s.p, there ? 4 : 0);
    }
};

//@ part dot_ring
//@ needs dot_feed dot_scale
/* Adds a product P to its sums: the operands come through a ring of P::STEPS steps of k in shared memory, and P
 * multiplies one while the next ones are on their way. */
template <class P>
INLINE void dot_ring(float *sums, const void *a, long a_row, long a_column, const void *b, long b_row, long b_column,
                     dot_range of_a, dot_range of_b, unsigned char *room, int thread, typename P::scale by)
{
    typedef typename P::element element;
    dot_meet(of_a, of_b);
    const long k_first = of_a.k_first, k_last = of_a.k_last, start = k_first / (long)P::PER * (long)P::PER;
    const int chunks = k_last > k_first ? (int)((k_last - start + P::BK - 1) / P::BK) : 0;
    typename P::feed_a first;
    typename P::feed_b second;
    first.start(first, (const element *)a, a_row, a_column, of_a, start, thread);
    second.start(second, (const element *)b, b_column, b_row, of_b, start, thread);
    int to = 0, from = 0; /* stages */
#pragma unroll 1
    for (int c = 1 - P::STEPS; c < chunks; c++) { /* below 0 the ring only fills */
        const int next = c + P::STEPS - 1;
        if (c >= 0) {
            copy_wait<P::STEPS - 2>();
            __syncthreads();
        }
        if (next < chunks) {
            unsigned char *const stage = room + to * P::STEP_BYTES;
            first.step(first, stage, of_a, start + (long)next * P::BK, thread);
            second.step(second, stage + P::A_BYTES, of_b, start + (long)next * P::BK, thread);
            by.step(by, stage + P::SCALE_AT, of_a, start + (long)next * P::BK, P::BK, thread);
            to = to + 1 < P::STEPS ? to + 1 : 0;
        }
        copy_commit();
        if (c < 0) continue;
        if (thread < P::BUSY) P::multiply(sums, room + from * P::STEP_BYTES, thread);
        from = from + 1 < P::STEPS ? from + 1 : 0;
    }
    copy_wait<0>();
    __syncthreads();
    if (P::BUSY > P::OWNERS) { /* several warps took turns along k: their sums come together */
        float *const others = (float *)room + thread;
#pragma unroll
        for (int i = 0; i < P::COUNT; i++)
            if (thread >= P::OWNERS && thread < P::BUSY)
                others[i * P::BUSY] = sums[i], sums[i] = 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < P::COUNT; i++)
            for (int part = P::OWNERS; thread < P::OWNERS && part < P::BUSY; part += P::OWNERS)
                sums[i] += others[i * P::BUSY + part];
        __syncthreads();
    }
}

//@ part product_$t
//@ for f16 bf16 tf32
//@ needs dot_ring fragments_$t mma_$t
/* Products on the matrix units: TM x TN elements of the result by DOWN x ACROSS warps; all THREADS copy.
 * A_INNER, B_INNER: along k the operand's elements lie side by side (else along m or n). A step is CHUNKS * 16 bytes
 * of k; STAGES steps are in shared memory or on their way. */
template <int TM, int TN, int DOWN, int ACROSS, int THREADS, bool A_INNER, bool B_INNER, bool A_GLOBAL,
          bool B_GLOBAL, int STAGES, int CHUNKS, class SCALE = dot_unscaled>
struct product_$t {
    typedef $e element;
    typedef dot_feed<element, TM, CHUNKS, THREADS, A_INNER, A_GLOBAL> feed_a;
    typedef dot_feed<element, TN, CHUNKS, THREADS, B_INNER, B_GLOBAL> feed_b;
    enum {
        PER = 16 / sizeof(element),
        BK = CHUNKS * PER,
        FM = TM / DOWN / 16,
        FN = TN / ACROSS / 8,
        COUNT = FM * FN * 4,
        STEPS = STAGES,
        A_BYTES = feed_a::BYTES,
        SCALE_AT = (int)feed_a::BYTES + (int)feed_b::BYTES,
        STEP_BYTES = SCALE_AT + BK * SCALE::BYTES,
        OWNERS = DOWN * ACROSS * 32, /* threads with a share of the result */
        TURNS = THREADS / OWNERS,
        SPLIT = TURNS >= 4 && CHUNKS >= 8 ? 4 : TURNS >= 2 ? 2 : 1, /* warps that take turns along k */
        BUSY = SPLIT * TM * TN * 4 <= STEPS * STEP_BYTES ? OWNERS * SPLIT : OWNERS
    };
    typedef float sum;
    typedef SCALE scale;
    INLINE bool works(int thread)
    {
        return thread < OWNERS;
    } /* has a share of the result */
    /* Where element i of a thread's share lies. */
    INLINE int row(int i, int thread)
    {
        return (thread / 32 / ACROSS * FM + i / 4 / FN) * 16 + i / 2 % 2 * 8 + thread % 32 / 4;
    }
    INLINE int column(int i, int thread)
    {
        return (thread / 32 % ACROSS * FN + i / 4 % FN) * 8 + thread % 4 * 2 + i % 2;
    }
    INLINE void multiply(float *sums, const unsigned char *at, int thread)
    {
        const unsigned char *const bt = at + A_BYTES;
        const float *const factors = (const float *)(at + SCALE_AT);
        const int warp = thread % OWNERS / 32, lane = thread % 32, top = warp / ACROSS * FM * 16,
                  left = warp % ACROSS * FN * 8;
#pragma unroll
        for (int step = 0; step < BK; step += BUSY / OWNERS * 2 * PER) {
            const int k = step + thread / OWNERS * 2 * PER;
            unsigned x[FM][4], y[4];
#pragma unroll
            for (int f = 0; f < FM; f++) {
                if (A_INNER)
                    load_straight_$t<true, CHUNKS>(x[f], at, k, top + f * 16, lane);
                else
                    load_turned_$t<true, TM>(x[f], at, k, top + f * 16, lane);
                ready_$t<true, SCALE::LEFT>(x[f], factors + k, lane);
            }
#pragma unroll
            for (int f = 0; f < FN; f += 2) {
                if (B_INNER)
                    load_straight_$t<false, CHUNKS>(y, bt, k, left + f * 8, lane);
                else
                    load_turned_$t<false, TN>(y, bt, k, left + f * 8, lane);
                ready_$t<false, SCALE::RIGHT>(y, factors + k, lane);
#pragma unroll
                for (int i = 0; i < 2 * FM; i++)
                    mma_$t(sums + (i / 2 * FN + f + i % 2) * 4, x[i / 2], y + i % 2 * 2);
            }
        }
    }
    INLINE void add(float *sums, const void *a, long a_row, long a_column, const void *b, long b_row,
                    long b_column, dot_range of_a, dot_range of_b, unsigned char *room, int thread, SCALE by = SCALE())
    {
        dot_ring<product_$t>(sums, a, a_row, a_column, b, b_row, b_column, of_a, of_b, room, thread, by);
    }
};

//@ part product_f32
//@ needs dot_ring real_f32
/* Products of f32 by multiply and add, fed as those on the matrix units are: TM x TN elements of the result by TY x TX
 * threads. Four steps of k at a time come out of shared memory: of an operand whose elements lie side by side along k
 * as one chunk for each row, of another one as a run of rows for each k. */
template <int TM, int TN, int TY, int TX, bool A_INNER, bool B_INNER, bool A_GLOBAL, bool B_GLOBAL, int STAGES,
          int CHUNKS, class SCALE = dot_unscaled>
struct product_f32 {
    typedef unsigned element;
    typedef dot_feed<element, TM, CHUNKS, TY * TX, A_INNER, A_GLOBAL> feed_a;
    typedef dot_feed<element, TN, CHUNKS, TY * TX, B_INNER, B_GLOBAL> feed_b;
    enum {
        THREADS = TY * TX,
        BK = CHUNKS * 4,
        RM = TM / TY,
        RN = TN / TX,
        VM = A_INNER ? 1 : RM < 4 ? RM : 4,
        VN = B_INNER ? 1 : RN < 4 ? RN : 4,
        COUNT = RM * RN,
        PER = 4,
        STEPS = STAGES,
        OWNERS = THREADS,
        BUSY = THREADS,
        A_BYTES = feed_a::BYTES,
        SCALE_AT = (int)feed_a::BYTES + (int)feed_b::BYTES,
        STEP_BYTES = SCALE_AT + BK * SCALE::BYTES
    };
    typedef float sum;
    typedef SCALE scale;
    INLINE bool works(int) { return true; }
    /* A warp is 4 threads down and 8 across where that fits: what it reads of both operands is least then. */
    static constexpr bool SQUARE = TX % 8 == 0 && TY % 4 == 0;
    INLINE int down(int thread) { return SQUARE ? thread / 32 / (TX / 8) * 4 + thread / 8 % 4 : thread / TX; }
    INLINE int across(int thread) { return SQUARE ? thread / 32 % (TX / 8) * 8 + thread % 8 : thread % TX; }
    INLINE int row(int i, int thread) { return (i / RN / VM * TY + down(thread)) * VM + i / RN % VM; }
    INLINE int column(int i, int thread) { return (i % RN / VN * TX + across(thread)) * VN + i % RN % VN; }
    /* R rows of an operand at four steps of k: r[step][row]. */
    template <int ROWS, int R, int V, bool INNER, int APART>
    INLINE void load(float (*r)[R], const unsigned char *tile, int chunk, int first)
    {
#pragma unroll
        for (int i = 0; i < (INNER ? R : 4); i++) {
            if (INNER) {
                const words4 w = *(const words4 *)(tile + dot_place<CHUNKS>(i * APART + first, chunk));
#pragma unroll
                for (int k = 0; k < 4; k++) r[k][i] = real_f32((int)w.w[k]);
            } else {
#pragma unroll
                for (int j = 0; j < R; j += V) {
                    const int at = (j / V * APART + first) * V;
                    const unsigned char *const from = tile + dot_step_place<unsigned, ROWS / 4, false>(chunk * 4 + i, at / 4) + at % 4 * 4;
                    if (V == 4) {
                        const words4 w = *(const words4 *)from;
#pragma unroll
                        for (int v = 0; v < V; v++) r[i][j + v] = real_f32((int)w.w[v]);
                    } else {
#pragma unroll
                        for (int v = 0; v < V; v++) r[i][j + v] = ((const float *)from)[v];
                    }
                }
            }
        }
    }
    INLINE void multiply(float *sums, const unsigned char *stage, int thread)
    {
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            float x[4][RM], y[4][RN];
            load<TM, RM, VM, A_INNER, TY>(x, stage, chunk, down(thread));
            load<TN, RN, VN, B_INNER, TX>(y, stage + A_BYTES, chunk, across(thread));
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float factor = SCALE::BYTES ? ((const float *)(stage + SCALE_AT))[chunk * 4 + k] : 1;
#pragma unroll
                for (int i = 0; i < RM && SCALE::LEFT; i++) x[k][i] *= factor;
#pragma unroll
                for (int i = 0; i < RN && SCALE::RIGHT; i++) y[k][i] *= factor;
#pragma unroll
                for (int i = 0; i < COUNT; i++) sums[i] += x[k][i / RN] * y[k][i % RN];
            }
        }
    }
    INLINE void add(float *sums, const void *a, long a_row, long a_column, const void *b, long b_row,
                    long b_column, dot_range of_a, dot_range of_b, unsigned char *room, int thread, SCALE by = SCALE())
    {
        dot_ring<product_f32>(sums, a, a_row, a_column, b, b_row, b_column, of_a, of_b, room, thread, by);
    }
};

//@ part ask_rows
/* Rows of an array, of which so many are there, on their way to the L2. */
template <class T>
INLINE void ask_rows(const T *first, long stride, long rows, long rows_there, long columns, long columns_there,
                     int thread, int threads)
{
#ifndef QUERN_EMU
    const int down = (int)(rows < rows_there ? rows : rows_there);
    const int lines = (int)(((columns < columns_there ? columns : columns_there) * (long)sizeof(T) + 127) / 128);
    for (int i = thread; i < down * lines; i += threads) {
        const char *line = (const char *)(first + (long)(i / lines) * stride) + i % lines * 128;
        asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
    }
#endif
}

//@ part dot_finish
/* The sums of a tile that begins at (top, left) to memory, or added to what is there. */
template <class P>
INLINE void dot_finish(const typename P::sum *sums, typename P::sum *c, long c_row, long top, long left,
                       long m, long n, bool clear, int thread)
{
    if (!P::works(thread)) return;
#pragma unroll
    for (int i = 0; i < P::COUNT; i++) {
        const long row = top + P::row(i, thread), column = left + P::column(i, thread);
        if (row >= m || column >= n) continue;
        c[row * c_row + column] = clear ? sums[i] : c[row * c_row + column] + sums[i];
    }
}
/* And back into registers. */
template <class P>
INLINE void dot_resume(typename P::sum *sums, const typename P::sum *c, long c_row, long m, long n,
                       int thread)
{
#pragma unroll
    for (int i = 0; i < P::COUNT; i++) {
        const long row = P::row(i, thread), column = P::column(i, thread);
        sums[i] = P::works(thread) && row < m && column < n ? c[row * c_row + column] : 0;
    }
}

//@ part product_fma_$t
//@ for f32 f64 f16 bf16 f8e4m3 i8 u8
//@ needs read_$t dot_tile
/* Products by multiply and add: TM x TN elements of the result by TY x TX threads, each with runs of VM x VN. The next
 * step of k is on its way to registers while this one is multiplied in shared memory. */
template <int TM, int TN, int TY, int TX, int VM, int VN> struct product_fma_$t {
    typedef $k sum;
    enum {
        THREADS = TY * TX,
        BK = 8,
        RM = TM / TY,
        RN = TN / TX,
        COUNT = RM * RN,
        A_LINE = TM + 4,
        B_LINE = TN + 4,
        A_SHARE = (TM * BK + THREADS - 1) / THREADS,
        B_SHARE = (TN * BK + THREADS - 1) / THREADS
    };
    INLINE bool works(int) { return true; }
    INLINE int row(int i, int thread) { return (i / RN / VM * TY + thread / TX) * VM + i / RN % VM; }
    INLINE int column(int i, int thread) { return (i % RN / VN * TX + thread % TX) * VN + i % RN % VN; }
    /* One step of an operand with lines of LINES: neighbouring threads go along k if `inner`, else along the line. */
    template <int LINES, int SHARE>
    INLINE void fetch(sum *r, const $m *p, long stride, long k_stride, bool inner, dot_range range,
                      int thread)
    {
#pragma unroll
        for (int s = 0; s < SHARE; s++) {
            const int i = s * THREADS + thread, line = inner ? i / BK : i % LINES,
                      k = inner ? i % BK : i / LINES;
            const bool there =
                line >= range.first && line < range.last && k >= range.k_first && k < range.k_last;
            r[s] = i < LINES * BK && there ? (sum)read_$t(p + line * stride + k * k_stride) : 0;
        }
    }
    template <int LINES, int SHARE> INLINE void put(sum *room, const sum *r, bool inner, int thread)
    {
#pragma unroll
        for (int s = 0; s < SHARE; s++) {
            const int i = s * THREADS + thread, line = inner ? i / BK : i % LINES,
                      k = inner ? i % BK : i / LINES;
            if (i < LINES * BK) room[k * (LINES + 4) + line] = r[s];
        }
    }
    INLINE void add(sum *sums, const $m *a, long a_row, long a_column, const $m *b, long b_row,
                    long b_column, dot_range of_a, dot_range of_b, unsigned char *room, int thread)
    {
        dot_meet(of_a, of_b);
        const long k_first = of_a.k_first, k_last = of_a.k_last;
        const bool a_inner = a_column == 1, b_inner = b_row == 1;
        sum *const at = (sum *)room, *const bt = at + 2 * BK * A_LINE;
        sum x[A_SHARE], y[B_SHARE];
        of_a.k_first = of_b.k_first = 0;
        for (long k = k_first, turn = 0; k < k_last + BK; k += BK, turn ^= 1) {
            of_a.k_last = of_b.k_last = k_last - k;
            if (k < k_last) {
                fetch<TM, A_SHARE>(x, a + k * a_column, a_row, a_column, a_inner, of_a, thread);
                fetch<TN, B_SHARE>(y, b + k * b_row, b_column, b_row, b_inner, of_b, thread);
            }
            if (k > k_first) {
                const sum *const s = at + (turn ^ 1) * BK * A_LINE + thread / TX * VM;
                const sum *const t = bt + (turn ^ 1) * BK * B_LINE + thread % TX * VN;
#pragma unroll 4
                for (int p = 0; p < BK; p++) {
                    sum u[RM], v[RN];
#pragma unroll
                    for (int i = 0; i < RM; i++) u[i] = s[p * A_LINE + i / VM * TY * VM + i % VM];
#pragma unroll
                    for (int j = 0; j < RN; j++) v[j] = t[p * B_LINE + j / VN * TX * VN + j % VN];
#pragma unroll
                    for (int i = 0; i < COUNT; i++) sums[i] += u[i / RN] * v[i % RN];
                }
            }
            if (k < k_last) {
                put<TM, A_SHARE>(at + turn * BK * A_LINE, x, a_inner, thread);
                put<TN, B_SHARE>(bt + turn * BK * B_LINE, y, b_inner, thread);
            }
            __syncthreads();
        }
    }
};
