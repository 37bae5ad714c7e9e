/*
 * Matrix products of the prelude: c += a b with packed panels and a register-blocked kernel, in plain C with vectors.
 * The sums of 6 rows and 4 vectors live in registers for the depth of a block. A panel of B stays in L1 while the rows
 * of A go past it; the next panel of B and the next block of A are packed on the side, one vector every few steps, so
 * that the wait for memory hides behind arithmetic. A's rows are packed without transposing. Sums between blocks of depth
 * rest in c; the first block need not read them and the last may put them somewhere else. How much scratch that takes is
 * counted in prelude.c (prelude_dot_scratch_bytes).
 * Panels are made of words: one element in the type of the sum, or two narrow ones that follow each other in k, which one
 * instruction multiplies and adds (DEEP). Where elements become words is told by three functions of their type.
 * SPDX-License-Identifier: MIT
 */

/* A panel of A has 6 rows of constant stride, so that its elements are displacements from one register; a panel of
 * B has 4 vectors of columns. 6 x 4 sums, 4 of B and some of A fill 32 registers; 6 x 2 fill 16. Loads are what
 * limits wide vectors: of the shapes that fit, this one needs few (10 for 24 multiply-adds). */

//@ part dot_sizes
#ifdef __AVX512F__
typedef f32x16 dot_f32v;
typedef f32x16_u dot_f32v_u;
typedef i32x16 dot_i32v;
typedef i32x16_u dot_i32v_u;
typedef f64x8 dot_f64v;
typedef f64x8_u dot_f64v_u;
enum { DOT_VECTORS = 4, DOT_K = 128 }; /* deepest block: 32 KB of B's panel stay in L1 */
#else
typedef f32x8 dot_f32v;
typedef f32x8_u dot_f32v_u;
typedef i32x8 dot_i32v;
typedef i32x8_u dot_i32v_u;
typedef double dot_f64v __attribute__((vector_size(32)));
typedef double dot_f64v_u __attribute__((vector_size(32), aligned(8), may_alias));
enum { DOT_VECTORS = 2, DOT_K = 256 };
#endif
enum { DOT_ROWS = 6, DOT_M = 264 }; /* rows of a kernel; rows of A that are packed at a time: twice that stays in L2 */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
/* Remainders are short: a compiler that makes vectors of them takes its time for nothing. */
#define ONE_BY_ONE __asm__ volatile("" ::: "memory")

//@ part dot_word_$t
//@ for f32 f64
//@ needs dot_sizes
typedef dot_$tv dot_words_$t;
typedef dot_$tv_u dot_words_$t_u;
enum { DOT_$t_DEEP = 1 };
INLINE dot_$tv dot_add_$t(dot_$tv sum, dot_$tv x, dot_$tv y) { return sum + x * y; }

/* Products of bf16 are exact in f32. The instruction takes subnormal numbers as zero, so a precise kernel does without it: then, and where
 * there is none, a word is one float. */

//@ part dot_word_bf16x2
//@ needs dot_sizes
#if defined(__AVX512BF16__) && !defined(PRECISE)
typedef int dot_word_bf16x2;
typedef i32x16 dot_words_bf16x2;
typedef i32x16_u dot_words_bf16x2_u;
enum { DOT_bf16x2_DEEP = 2 };
INLINE f32x16 dot_add_bf16x2(f32x16 sum, i32x16 x, i32x16 y)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
}
#else
typedef float dot_word_bf16x2;
typedef dot_f32v dot_words_bf16x2;
typedef dot_f32v_u dot_words_bf16x2_u;
enum { DOT_bf16x2_DEEP = 1 };
INLINE dot_f32v dot_add_bf16x2(dot_f32v sum, dot_f32v x, dot_f32v y) { return sum + x * y; }
#endif

/* Pairs of 16-bit integers that hold elements of 8 bits: their two products and the sum of both are exact. */

//@ part dot_word_i16x2
//@ needs dot_sizes
typedef dot_i32v dot_words_i16x2;
typedef dot_i32v_u dot_words_i16x2_u;
enum { DOT_i16x2_DEEP = 2 };
INLINE dot_i32v dot_add_i16x2(dot_i32v sum, dot_i32v x, dot_i32v y)
{
#if defined(__AVX512VNNI__)
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
#elif defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__))
    dot_i32v both;
    __asm__("vpmaddwd %2, %1, %0" : "=v"(both) : "v"(x), "v"(y));
    return sum + both;
#else
    return sum + (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}

//@ part dot_rows_$t
//@ for f32 f64 bf16x2 i16x2
//@ needs dot_word_$t
enum { DOT_$t_LANES = sizeof(dot_$kv) / sizeof($a), DOT_$t_COLUMNS = DOT_VECTORS * DOT_$t_LANES, DOT_$t_STRIDE = DOT_K + DOT_$t_LANES };
/* Rows of DOT_COLUMNS that a kernel copies on the side, one vector every four steps, on their way from memory while the sums
 * keep the processor busy. */
typedef struct dot_side_$t {
    const $c *from;
    long from_row;
    $c *to;
    long to_row, rows;
} dot_side_$t;
/* Vector v of a row, fetched into L2 eight rows ahead. A row that was not finished is begun again. */
INLINE void dot_side_step_$t(dot_side_$t *s, long v)
{
    const $c *from = s->from + v * DOT_$t_LANES;
    __builtin_prefetch(from + 8 * s->from_row, 0, 2);
    *(dot_words_$t *)(s->to + v * DOT_$t_LANES) = *(const dot_words_$t_u *)from;
    if (v < DOT_VECTORS - 1) return;
    s->from += s->from_row;
    s->to += s->to_row;
    s->rows--;
}
OUTLINE void dot_side_rest_$t(dot_side_$t *s)
{
    while (s->rows > 0)
        for (int v = 0; v < DOT_VECTORS; v++) dot_side_step_$t(s, v);
}
INLINE void dot_step_$t(const int rows, const int vectors, dot_$kv (*s)[DOT_VECTORS], const $c *a, const $c *b)
{
    ONE_BY_ONE; /* reading ahead costs registers that are not there */
    dot_words_$t y[DOT_VECTORS];
    UNROLL for (int v = 0; v < vectors; v++) y[v] = *(const dot_words_$t *)(b + v * DOT_$t_LANES);
    UNROLL for (int i = 0; i < rows; i++) {
        dot_words_$t x = a[i * DOT_$t_STRIDE] - (dot_words_$t){0};
        UNROLL for (int v = 0; v < vectors; v++) s[i][v] = dot_add_$t(s[i][v], x, y[v]);
    }
}
/* Where the sums of a block come from (null: from zero) and go to. */
typedef struct dot_sums_$t {
    const $a *from;
    long from_row;
    $a *to;
    long to_row;
} dot_sums_$t;
/* to[rows][columns] = from + a[rows][k] b[k][columns], k in words. The sums start at zero and `from` comes last, so that a kernel
 * need not wait for it and the next one can begin while this one ends. */
INLINE void dot_rows_$t(const int rows, const int vectors, const $c *a, const $c *b, dot_sums_$t c, long k, dot_side_$t *side)
{
    dot_$kv s[DOT_ROWS][DOT_VECTORS];
    dot_side_$t copy = *side;
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < vectors; v++) s[i][v] = (dot_$kv){0};
    long p = 0;
    for (; p + 4 <= k; p += 4) {
        unsigned long turn = (unsigned long)p / 4;
        if (turn < (unsigned long)(rows * vectors)) /* one at a time: all at once would hold up the loop */
            __builtin_prefetch(c.to + turn / vectors * c.to_row + turn % vectors * DOT_$t_LANES, 1);
        if (copy.rows > 0) dot_side_step_$t(&copy, turn % DOT_VECTORS);
        UNROLL for (int q = 0; q < 4; q++) dot_step_$t(rows, vectors, s, a + q, b + q * vectors * DOT_$t_LANES);
        a += 4;
        b += 4 * vectors * DOT_$t_LANES;
    }
    for (; p < k; p++) {
        dot_step_$t(rows, vectors, s, a, b);
        a++;
        b += vectors * DOT_$t_LANES;
    }
    if (c.from)
        UNROLL for (int i = 0; i < rows; i++)
            UNROLL for (int v = 0; v < vectors; v++)
                s[i][v] += *(const dot_$kv_u *)(c.from + i * c.from_row + v * DOT_$t_LANES);
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < vectors; v++) *(dot_$kv_u *)(c.to + i * c.to_row + v * DOT_$t_LANES) = s[i][v];
    *side = copy;
}

//@ part dot_kernel_$t
//@ for f32 f64 bf16x2 i16x2
//@ needs dot_rows_$t
typedef void dot_kernel_$t(const $c *a, const $c *b, dot_sums_$t c, long k, dot_side_$t *side);
OUTLINE void dot_many_$t(const $c *a, const $c *b, dot_sums_$t c, long k, dot_side_$t *side)
{
    dot_rows_$t(DOT_ROWS, DOT_VECTORS, a, b, c, k, side);
}
OUTLINE void dot_some_$t(const $c *a, const $c *b, dot_sums_$t c, long k, dot_side_$t *side)
{
    dot_rows_$t(DOT_ROWS - 2, DOT_VECTORS, a, b, c, k, side);
}
OUTLINE void dot_few_$t(const $c *a, const $c *b, dot_sums_$t c, long k, dot_side_$t *side)
{
    dot_rows_$t(DOT_ROWS - 4, DOT_VECTORS, a, b, c, k, side);
}
OUTLINE void dot_narrow_$t(const $c *a, const $c *b, dot_sums_$t c, long k, dot_side_$t *side)
{
    dot_rows_$t(DOT_ROWS, DOT_VECTORS / 2, a, b, c, k, side);
}
/* A kernel over a tile that is smaller than it: through a buffer. The last vector of a row overlaps the one before; it is added up
 * before that one is stored. */
OUTLINE void dot_edge_$t(dot_kernel_$t *kernel, const $c *a, const $c *b, dot_sums_$t c, long m, long n, long k, $a *buffer, dot_side_$t *side)
{
    enum { LANES = DOT_$t_LANES };
    kernel(a, b, (dot_sums_$t){0, 0, buffer, DOT_$t_COLUMNS}, k, side);
    for (long i = 0; i < m; i++, buffer += DOT_$t_COLUMNS) {
        const $a *from = c.from ? c.from + i * c.from_row : 0;
        $a *to = c.to + i * c.to_row;
        for (long j = 0; j < n && n < LANES; j++) {
            to[j] = buffer[j] + (from ? from[j] : 0);
            ONE_BY_ONE;
        }
        if (n < LANES) continue;
        dot_$kv end = *(dot_$kv_u *)(buffer + n - LANES);
        if (from) end += *(const dot_$kv_u *)(from + n - LANES);
        for (long j = 0; j + LANES <= n; j += LANES) {
            dot_$kv sum = *(dot_$kv_u *)(buffer + j);
            if (from) sum += *(const dot_$kv_u *)(from + j);
            *(dot_$kv_u *)(to + j) = sum;
            ONE_BY_ONE;
        }
        *(dot_$kv_u *)(to + n - LANES) = end;
    }
}

//@ part dot_panel_$t
//@ for f32 f64 bf16x2 i16x2
//@ needs dot_kernel_$t
/* What is copied while a block is computed: B's next panel, then A's next rows, in strips of COLUMNS. */
typedef struct dot_ahead_$t {
    dot_side_$t b, a;
    const $c *a_from;
    $c *a_to;
    long a_row, m, strips;
} dot_ahead_$t;
INLINE void dot_next_strip_$t(dot_ahead_$t *x)
{
    x->a = (dot_side_$t){x->a_from, x->a_row, x->a_to, DOT_$t_STRIDE, x->m};
    x->a_from += DOT_$t_COLUMNS;
    x->a_to += DOT_$t_COLUMNS;
    x->strips--;
}
/* One panel of columns: every row of the block. */
OUTLINE void dot_panel_$t(const $c *rows_a, const $c *panel, dot_sums_$t c, long m, long n, long k, $a *edge, dot_ahead_$t *ahead)
{
    int narrow = n <= DOT_$t_COLUMNS / 2;
    for (long i = 0, rows; i < m; i += rows) {
        long left = m - i;
        rows = narrow || (left > 4 && left != 7 && left != 8) ? DOT_ROWS : left > 2 ? DOT_ROWS - 2 : DOT_ROWS - 4;
        dot_kernel_$t *kernel = narrow ? dot_narrow_$t : rows == DOT_ROWS ? dot_many_$t : rows == DOT_ROWS - 2 ? dot_some_$t : dot_few_$t;
        dot_sums_$t here = {c.from ? c.from + i * c.from_row : 0, c.from_row, c.to + i * c.to_row, c.to_row};
        if (ahead->a.rows <= 0 && ahead->strips > 0) dot_next_strip_$t(ahead);
        dot_side_$t *side = ahead->b.rows > 0 ? &ahead->b : &ahead->a;
        if (left < rows || n < (narrow ? DOT_$t_COLUMNS / 2 : DOT_$t_COLUMNS))
            dot_edge_$t(kernel, rows_a + i * DOT_$t_STRIDE, panel, here, left < rows ? left : rows, n, k, edge, side);
        else
            kernel(rows_a + i * DOT_$t_STRIDE, panel, here, k, side);
    }
}

/* One element, and sixteen in a row, in the type of the sum. */

//@ part dot_take_$t
//@ for f32 f64 i8 u8
//@ needs load_$tx16
INLINE $a dot_take_$t($c x) { return x; }
INLINE void dot_take16_$t($a *to, const $c *from) { *($kx16_u *)to = __builtin_convertvector(load_$tx16(from), $kx16); }

//@ part dot_take_$t
//@ for f16 bf16 f8e4m3
//@ needs load_$tx16 $t_to_f32
INLINE float dot_take_$t($c x) { return $t_to_f32(x); }
INLINE void dot_take16_$t(float *to, const $c *from) { *(f32x16_u *)to = load_$tx16(from); }

/* Words from elements: one; sixteen that follow each other in a line; one of each of sixteen lines that lie side by side. From one element of
 * a word to the next it is `down`; beyond the `left` that there are they are zero. */

//@ part dot_fill_$t
//@ for f32 f64 f16 f8e4m3
//@ needs dot_word_$q dot_take_$t
INLINE $a dot_one_$t(const $c *from, long down, long left) { return dot_take_$t(*from); }
INLINE void dot_along_$t($a *to, const $c *from) { dot_take16_$t(to, from); }
INLINE void dot_across_$t($a *to, const $c *from, long down) { dot_take16_$t(to, from); }

//@ part dot_fill_$t
//@ for i8 u8
//@ needs dot_word_$q load_$tx16
typedef short dot_wide_$t __attribute__((vector_size(32), aligned(2), may_alias));
INLINE int dot_one_$t(const $c *from, long down, long left) { return (from[0] & 0xffff) | (int)((left > 1 ? (unsigned)from[down] : 0) << 16); }
INLINE void dot_along_$t(int *to, const $c *from)
{
    *(dot_wide_$t *)to = __builtin_convertvector(load_$tx16(from), dot_wide_$t);
    *(dot_wide_$t *)(to + 8) = __builtin_convertvector(load_$tx16(from + 16), dot_wide_$t);
}
INLINE void dot_across_$t(int *to, const $c *from, long down)
{
    i32x16 low = __builtin_convertvector(load_$tx16(from), i32x16), high = __builtin_convertvector(load_$tx16(from + down), i32x16);
    *(i32x16_u *)to = (low & 0xffff) | high << 16;
}

//@ part dot_fill_bf16
//@ needs dot_word_bf16x2 dot_take_bf16
#if defined(__AVX512BF16__) && !defined(PRECISE)
INLINE int dot_one_bf16(const unsigned short *from, long down, long left) { return from[0] | (int)((left > 1 ? (unsigned)from[down] : 0) << 16); }
INLINE void dot_along_bf16(int *to, const unsigned short *from) { *(i32x16_u *)to = *(const i32x16_u *)from; }
INLINE void dot_across_bf16(int *to, const unsigned short *from, long down)
{
    i32x16 low = __builtin_convertvector(*(const u16x16_u *)from, i32x16), high = __builtin_convertvector(*(const u16x16_u *)(from + down), i32x16);
    *(i32x16_u *)to = low | high << 16;
}
#else
INLINE float dot_one_bf16(const unsigned short *from, long down, long left) { return dot_take_bf16(*from); }
INLINE void dot_along_bf16(float *to, const unsigned short *from) { dot_take16_bf16(to, from); }
INLINE void dot_across_bf16(float *to, const unsigned short *from, long down) { dot_take16_bf16(to, from); }
#endif

/* Sixteen by sixteen words turned over: to[p][j] = word p of line j, or with lines side by side to[j][p]. Four rounds of interleaving
 * rows eight apart. */

//@ part dot_turn_$t
//@ for f32 f16 bf16 f8e4m3 i8 u8
//@ needs dot_fill_$t
OUTLINE void dot_turn_$t($e *to, long to_row, const $c *from, long from_row, int side_by_side)
{
    i32x16 v[16], w[16];
    if (side_by_side)
        UNROLL for (int i = 0; i < 16; i++) dot_across_$t(($e *)&v[i], from + i * DOT_$q_DEEP * from_row, from_row);
    else
        UNROLL for (int i = 0; i < 16; i++) dot_along_$t(($e *)&v[i], from + i * from_row);
    UNROLL for (int round = 0; round < 4; round++) {
        UNROLL for (int i = 0; i < 8; i++) {
            w[2 * i] = __builtin_shufflevector(v[i], v[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            w[2 * i + 1] = __builtin_shufflevector(v[i], v[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        UNROLL for (int i = 0; i < 16; i++) v[i] = w[i];
    }
    UNROLL for (int i = 0; i < 16; i++) *(i32x16_u *)(to + i * to_row) = v[i];
}

//@ part dot_turn_f64
//@ needs dot_fill_f64
OUTLINE void dot_turn_f64(double *to, long to_row, const double *from, long from_row, int side_by_side)
{
    for (int j = 0; j < 16; j++)
        for (int p = 0; p < 16; p++) {
            to[p * to_row + j] = from[j * from_row + p];
            ONE_BY_ONE;
        }
}

/* Packers: rows of A at the constant stride, a panel of B; what is missing of a panel is zero. */

//@ part dot_pack_$t
//@ for f32 f64 f16 bf16 f8e4m3 i8 u8
//@ needs dot_rows_$q dot_turn_$t
/* Words of one line, and one word of each of `count` lines, of the `left` elements that are there. */
OUTLINE void dot_pack_line_$t($e *to, const $c *from, long step, long left)
{
    enum { DEEP = DOT_$q_DEEP, MANY = 16 * DEEP };
    for (; left >= MANY && step == 1; left -= MANY, from += MANY, to += 16) dot_along_$t(to, from);
    for (; left > 0; left -= DEEP, from += DEEP * step) {
        *to++ = dot_one_$t(from, step, left);
        ONE_BY_ONE;
    }
}
OUTLINE void dot_pack_words_$t($e *to, const $c *from, long step, long count, long down, long left)
{
    long i = 0;
    for (; i + 16 <= count && step == 1 && left >= DOT_$q_DEEP; i += 16) dot_across_$t(to + i, from + i, down);
    for (; i < count; i++) {
        to[i] = dot_one_$t(from + i * step, down, left);
        ONE_BY_ONE;
    }
}
OUTLINE void dot_pack_a_$t($e *to, const $c *a, long a_row, long a_column, long m, long k)
{
    enum { DEEP = DOT_$q_DEEP, MANY = 16 * DEEP };
    long i = 0;
    for (; a_row == 1 && a_column != 1 && i + 16 <= m; i += 16, to += 16 * DOT_$q_STRIDE) { /* a column of A is contiguous */
        long p = 0;
        for (; p + MANY <= k; p += MANY) dot_turn_$t(to + p / DEEP, DOT_$q_STRIDE, a + i + p * a_column, a_column, 1);
        for (long r = 0; r < 16; r++)
            dot_pack_line_$t(to + r * DOT_$q_STRIDE + p / DEEP, a + i + r + p * a_column, a_column, k - p);
    }
    for (; i < m; i++, to += DOT_$q_STRIDE) dot_pack_line_$t(to, a + i * a_row, a_column, k);
}
/* A panel of at most COLUMNS, or of half as many when that is enough. */
OUTLINE void dot_pack_b_$t($e *to, const $c *b, long b_row, long b_column, long n, long k)
{
    enum { DEEP = DOT_$q_DEEP, MANY = 16 * DEEP };
    if (n > DOT_$q_COLUMNS) n = DOT_$q_COLUMNS;
    long width = n <= DOT_$q_COLUMNS / 2 ? DOT_$q_COLUMNS / 2 : DOT_$q_COLUMNS;
    long p = 0, turned = b_row == 1 && b_column != 1 ? n / 16 * 16 : 0; /* a column of B is contiguous */
    for (; turned && p + MANY <= k; p += MANY)
        for (long j = 0; j < turned; j += 16) dot_turn_$t(to + p / DEEP * width + j, width, b + p + j * b_column, b_column, 0);
    for (long q = turned < n ? 0 : p; q < k; q += DEEP) {
        long j = q < p ? turned : 0;
        dot_pack_words_$t(to + q / DEEP * width + j, b + q * b_row + j * b_column, b_column, n - j, b_row, k - q);
    }
    for (long q = 0; q < k && n < width; q += DEEP)
        for (long j = n; j < width; j++) {
            to[q / DEEP * width + j] = 0;
            ONE_BY_ONE;
        }
}

//@ part dot_strips_$t
//@ for f32 f64 f16 bf16 f8e4m3 i8 u8
//@ needs dot_panel_$q dot_pack_$t dot_thin_$t dot_slim_$t
/* At most DOT_M rows: blocks of depth, in them panels of columns. The sums start in c, or at zero when `fresh`, rest in
 * c between blocks, and end in out. */
OUTLINE void dot_strip_$t(const $c *a, long a_row, long a_column, const $c *b, long b_row, long b_column, int fresh, $a *c, long c_row, $a *out, long out_row, long m, long n, long k, $a *scratch)
{
    enum { WIDE = DOT_$q_COLUMNS, DEEP = DOT_$q_DEEP, MOST = DOT_K * DEEP };
    long pieces = (k + MOST - 1) / MOST, depth = ((k + pieces - 1) / pieces + 15) / 16 * 16;
    $a *edge = scratch;
    $e *panel = ($e *)(edge + DOT_ROWS * WIDE), *next_panel = panel + DOT_K * WIDE;
    $e *rows_a = next_panel + DOT_K * WIDE, *next_rows = rows_a + (m + DOT_ROWS) * DOT_$q_STRIDE, *swap;
    int easy = sizeof(*a) == sizeof(*c);
    for (long i = 0; i < DOT_ROWS * DOT_$q_STRIDE; i += DOT_$q_LANES) /* what kernels read beyond the last row */
        *(dot_words_$q *)(rows_a + m * DOT_$q_STRIDE + i) = *(dot_words_$q *)(next_rows + m * DOT_$q_STRIDE + i) = (dot_words_$q){0};
    long kc = k < depth ? k : depth, next_kc;
    dot_pack_a_$t(rows_a, a, a_row, a_column, m, kc);
    dot_pack_b_$t(panel, b, b_row, b_column, n, kc);
    for (long p0 = 0; p0 < k; p0 += kc, kc = next_kc) {
        next_kc = k - p0 - kc < depth ? k - p0 - kc : depth;
        long strips = easy && a_column == 1 ? next_kc / WIDE : 0;
        const $c *next_a = a + (p0 + kc) * a_column;
        dot_ahead_$q ahead = {.a_from = (const void *)next_a, .a_to = next_rows, .a_row = a_row, .m = m, .strips = strips};
        for (long j = 0; j < n; j += WIDE) {
            int last = j + WIDE >= n;
            const $c *next_b = last ? b + (p0 + kc) * b_row : b + p0 * b_row + (j + WIDE) * b_column;
            long next_n = last ? n : n - j - WIDE, next_k = last ? next_kc : kc, packed = 0;
            if (easy && b_column == 1 && next_n >= WIDE && next_k > 0)
                ahead.b = (dot_side_$q){(const void *)next_b, b_row, next_panel, WIDE, next_k}, packed = 1;
            dot_sums_$q sums = {fresh && !p0 ? 0 : c + j, c_row, c + j, c_row};
            if (!next_kc) sums.to = out + j, sums.to_row = out_row;
            dot_panel_$q(rows_a, panel, sums, m, n - j < WIDE ? n - j : WIDE, (kc + DEEP - 1) / DEEP, edge, &ahead);
            if (packed)
                dot_side_rest_$q(&ahead.b);
            else if (next_k > 0)
                dot_pack_b_$t(next_panel, next_b, b_row, b_column, next_n, next_k);
            swap = panel, panel = next_panel, next_panel = swap;
        }
        for (dot_side_rest_$q(&ahead.a); ahead.strips > 0; dot_side_rest_$q(&ahead.a)) dot_next_strip_$q(&ahead);
        if (next_kc > strips * WIDE)
            dot_pack_a_$t(next_rows + strips * WIDE, next_a + strips * WIDE * a_column, a_row, a_column, m, next_kc - strips * WIDE);
        swap = rows_a, rows_a = next_rows, next_rows = swap;
    }
}
OUTLINE void dot_strips_$t(const $c *a, long a_row, long a_column, const $c *b, long b_row, long b_column, int fresh, $a *c, long c_row, $a *out, long out_row, long m, long n, long k, char *scratch)
{
    int lines = m < 3 && b_row == 1 && b_column != 1;
    if (!lines && dot_slim_$t(a, a_row, a_column, b, b_row, b_column, fresh, out, out_row, m, n, k, ($a *)scratch)) return;
    if (n < 8 || m < 3) {
        for (long i = 0; i < m && fresh; i++) __builtin_memset(out + i * out_row, 0, n * sizeof(*out));
        if (lines && a_column == 1) {
            dot_lines_$t(a, a_row, b, b_column, out, out_row, m, n, k);
            return;
        }
        for (long p = 0; p < k; p += DOT_K) {
            long some = k - p < DOT_K ? k - p : DOT_K;
            const $c *from = a + p * a_column;
            if (!lines) {
                dot_thin_$t(from, a_row, a_column, b + p * b_row, b_row, b_column, out, out_row, m, n, some, ($a *)scratch);
                continue;
            }
            $c rows[2 * DOT_K];
            for (long i = 0; i < m * some; i++) {
                rows[i / some * DOT_K + i % some] = from[i / some * a_row + i % some * a_column];
                ONE_BY_ONE;
            }
            dot_lines_$t(rows, DOT_K, b + p, b_column, out, out_row, m, n, some);
        }
        return;
    }
    for (long i = 0; i < m; i += DOT_M)
        dot_strip_$t(a + i * a_row, a_row, a_column, b, b_row, b_column, fresh, c + i * c_row, c_row, out + i * out_row, out_row, m - i < DOT_M ? m - i : DOT_M, n, k, ($a *)scratch);
}

//@ part dot_$t
//@ for f32 f64 f16 bf16 f8e4m3 i8 u8
//@ needs dot_strips_$t
/* c += a b */
INLINE void dot_$t(const $c *a, long a_row, long a_column, const $c *b, long b_row, long b_column, $a *c, long c_row, long m, long n, long k, char *scratch)
{
    if (m > 0 && n > 0 && k > 0) dot_strips_$t(a, a_row, a_column, b, b_row, b_column, 0, c, c_row, c, c_row, m, n, k, scratch);
}

//@ part dot_into_$t
//@ for f32 f64 f16 bf16 f8e4m3 i8 u8
//@ needs dot_strips_$t
/* out = a b, for k > 0. Sums that are not complete rest in c, which is dense and stays in cache. */
INLINE void dot_into_$t(const $c *a, long a_row, long a_column, const $c *b, long b_row, long b_column, $a *c, long c_row, $a *out, long out_row, long m, long n, long k, char *scratch)
{
    if (m > 0 && n > 0) dot_strips_$t(a, a_row, a_column, b, b_row, b_column, 1, c, c_row, out, out_row, m, n, k, scratch);
}
