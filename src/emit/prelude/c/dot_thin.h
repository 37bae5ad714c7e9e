/*
 * Thin products of the prelude, for which packing panels (prelude/c/dot.h) costs more than it saves: one or two rows, fewer columns than a
 * vector has lanes. In: the operands as pointers and strides. Out: c += a b, or out = a b.
 * SPDX-License-Identifier: MIT
 */

/* Rows and columns in the type of the sum. */

//@ part dot_thin_$t
//@ for f32 f64 f16 bf16 f8e4m3 i8 u8
//@ needs dot_sizes dot_take_$t fold_sum_$kx16
OUTLINE void dot_pack_row_$t($a *to, const $c *from, long step, long count)
{
    long i = 0;
    for (; i + 16 <= count && step == 1; i += 16) dot_take16_$t(to + i, from + i);
    for (; i < count; i++) {
        to[i] = dot_take_$t(from[i * step]);
        ONE_BY_ONE;
    }
}
/* c[m][n] += a b for one or two rows whose elements lie side by side, as those of each column of b do: products of lines, eight sums at a
 * time. Nothing is packed, and each line is read from its beginning to its end. */
INLINE void dot_lines_some_$t(const int rows, const int columns, const $c *a, long a_row, const $c *b, long b_column, $a *c, long c_row, long k)
{
    $kx16 sums[2][4] = {{{0}}};
    $a rest[2][4] = {{0}};
    long p = 0;
    for (; p + 16 <= k; p += 16) {
        $a x[2][16], y[16];
        UNROLL for (int i = 0; i < rows; i++) dot_take16_$t(x[i], a + i * a_row + p);
        UNROLL for (int j = 0; j < columns; j++) {
            dot_take16_$t(y, b + j * b_column + p);
            UNROLL for (int i = 0; i < rows; i++) sums[i][j] += *($kx16_u *)x[i] * *($kx16_u *)y;
        }
    }
    for (; p < k; p++)
        UNROLL for (int j = 0; j < columns; j++)
            UNROLL for (int i = 0; i < rows; i++) {
                rest[i][j] += dot_take_$t(a[i * a_row + p]) * dot_take_$t(b[j * b_column + p]);
                ONE_BY_ONE;
            }
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < columns; j++) c[i * c_row + j] += rest[i][j] + fold_sum_$kx16(sums[i][j]);
}
OUTLINE void dot_lines_$t(const $c *a, long a_row, const $c *b, long b_column, $a *c, long c_row, long m, long n, long k)
{
    for (long j = 0; j < n; j += 4) {
        const $c *line = b + j * b_column;
        if (m == 2 && n - j >= 4) {
            dot_lines_some_$t(2, 4, a, a_row, line, b_column, c + j, c_row, k);
        } else if (n - j >= 4) {
            dot_lines_some_$t(1, 4, a, a_row, line, b_column, c + j, c_row, k);
        } else {
            for (long i = 0; i < m; i++)
                for (long l = 0; l < n - j; l++)
                    dot_lines_some_$t(1, 1, a + i * a_row, a_row, line + l * b_column, b_column, c + i * c_row + j + l, c_row, k);
        }
    }
}
/* Few rows or few columns: A and B are read once or twice, nothing is packed but one row or column of B. */
OUTLINE void dot_thin_$t(const $c *a, long a_row, long a_column, const $c *b, long b_row, long b_column, $a *c, long c_row,
                         long m, long n, long k, $a *buffer)
{
    for (long p = 0; p < k && n >= 8; p++) {
        dot_pack_row_$t(buffer, b + p * b_row, b_column, n);
        for (long i = 0; i < m; i++) {
            $a x = dot_take_$t(a[i * a_row + p * a_column]);
            long j = 0;
            for (; j + 16 <= n; j += 16) *($kx16_u *)(c + i * c_row + j) += x * *($kx16_u *)(buffer + j);
            for (; j < n; j++) {
                c[i * c_row + j] += x * buffer[j];
                ONE_BY_ONE;
            }
        }
    }
    for (long j = 0; j < n && n < 8; j++) {
        dot_pack_row_$t(buffer, b + j * b_column, b_row, k);
        for (long i = 0; i < m; i++) {
            $kx16 sums = {0};
            $a sum = 0, x[16];
            const $c *row = a + i * a_row;
            long p = 0;
            for (; p + 16 <= k && a_column == 1; p += 16) {
                dot_take16_$t(x, row + p);
                sums += *($kx16_u *)x * *($kx16_u *)(buffer + p);
            }
            for (; p < k; p++) {
                sum += dot_take_$t(row[p * a_column]) * buffer[p];
                ONE_BY_ONE;
            }
            c[i * c_row + j] += sum + fold_sum_$kx16(sums);
        }
    }
}

/* No more columns than a vector has lanes: lanes of b's rows as they lie, where lanes can be left out, else of a copy; a's elements as they lie.
 * Nothing is worth packing for so few. */

//@ part dot_lanes_$t
//@ for f32
//@ needs dot_rows_$t
#ifdef __AVX512F__
enum { DOT_MASKS_$t = 1 };
INLINE dot_$tv dot_lanes_$t(const $c *from, long n) { return __builtin_ia32_loadups512_mask(from, (dot_$tv){0}, (unsigned short)((1u << n) - 1)); }
INLINE void dot_keep_$t($c *to, dot_$tv v, long n) { __builtin_ia32_storeups512_mask(to, v, (unsigned short)((1u << n) - 1)); }
#else
enum { DOT_MASKS_$t = 0 };
INLINE dot_$tv dot_lanes_$t(const $c *from, long n)
{
    dot_$tv v = {0};
    for (long j = 0; j < n; j++) v[j] = from[j];
    return v;
}
INLINE void dot_keep_$t($c *to, dot_$tv v, long n)
{
    for (long j = 0; j < n; j++) to[j] = v[j];
}
#endif

//@ part dot_lanes_$t
//@ for f64
//@ needs dot_rows_$t
#ifdef __AVX512F__
enum { DOT_MASKS_$t = 1 };
INLINE dot_$tv dot_lanes_$t(const $c *from, long n) { return __builtin_ia32_loadupd512_mask(from, (dot_$tv){0}, (unsigned char)((1u << n) - 1)); }
INLINE void dot_keep_$t($c *to, dot_$tv v, long n) { __builtin_ia32_storeupd512_mask(to, v, (unsigned char)((1u << n) - 1)); }
#else
enum { DOT_MASKS_$t = 0 };
INLINE dot_$tv dot_lanes_$t(const $c *from, long n)
{
    dot_$tv v = {0};
    for (long j = 0; j < n; j++) v[j] = from[j];
    return v;
}
INLINE void dot_keep_$t($c *to, dot_$tv v, long n)
{
    for (long j = 0; j < n; j++) to[j] = v[j];
}
#endif

//@ part dot_slim_$t
//@ for f32 f64
//@ needs dot_lanes_$t dot_pack_$t
INLINE void dot_slim_rows_$t(const int rows, const int whole, const $c *a, long a_row, long a_column, const $c *b, long b_row, dot_sums_$t c, long n, long k)
{
    dot_$tv s[8];
    UNROLL for (int i = 0; i < rows; i++) s[i] = (dot_$tv){0};
    for (long p = 0; p < k; p++, a += a_column, b += b_row) {
        dot_$tv y;
        if (whole)
            y = *(const dot_$tv_u *)b;
        else
            y = dot_lanes_$t(b, n);
        UNROLL for (int i = 0; i < rows; i++) s[i] += (a[i * a_row] - (dot_$tv){0}) * y;
    }
    UNROLL for (int i = 0; i < rows; i++) {
        if (c.from) s[i] += dot_lanes_$t(c.from + i * c.from_row, n);
        dot_keep_$t(c.to + i * c.to_row, s[i], n);
    }
}
/* 1: done so; 0: not for this product. */
OUTLINE int dot_slim_$t(const $c *a, long a_row, long a_column, const $c *b, long b_row, long b_column, int fresh, $c *out, long out_row, long m, long n, long k, $c *panel)
{
    enum { LANES = DOT_$t_LANES, SHORT = 64 };
    if (n > LANES || (n < 8 && k > SHORT && a_column == 1)) return 0; /* few columns of long rows: products of lines */
    int packed = b_column != 1 || (!DOT_MASKS_$t && n < LANES), whole = packed || n == LANES;
    long from_row = packed ? LANES : b_row;
    for (long p = 0, some; p < k; p += some) {
        some = packed && k - p > DOT_K ? DOT_K : k - p;
        const $c *from = b + p * b_row, *left = a + p * a_column;
        for (long q = 0; q < some && packed; q++) {
            *(dot_$tv_u *)(panel + q * LANES) = (dot_$tv){0};
            dot_pack_words_$t(panel + q * LANES, from + q * b_row, b_column, n, b_row, 1);
        }
        if (packed) from = panel;
        for (long i = 0, rows; i < m; i += rows) {
            dot_sums_$t sums = {fresh && !p ? 0 : out + i * out_row, out_row, out + i * out_row, out_row};
            const $c *x = left + i * a_row;
            rows = m - i >= 8 ? 8 : m - i >= 4 ? 4 : 1;
            if (rows == 8 && whole)
                dot_slim_rows_$t(8, 1, x, a_row, a_column, from, from_row, sums, n, some);
            else if (rows == 8)
                dot_slim_rows_$t(8, 0, x, a_row, a_column, from, from_row, sums, n, some);
            else if (rows == 4)
                dot_slim_rows_$t(4, whole, x, a_row, a_column, from, from_row, sums, n, some);
            else
                dot_slim_rows_$t(1, whole, x, a_row, a_column, from, from_row, sums, n, some);
        }
    }
    return 1;
}

//@ part dot_slim_$t
//@ for f16 bf16 f8e4m3 i8 u8
INLINE int dot_slim_$t(const $c *a, long a_row, long a_column, const $c *b, long b_row, long b_column, int fresh, $a *out, long out_row, long m, long n, long k, $a *panel) { return 0; }
