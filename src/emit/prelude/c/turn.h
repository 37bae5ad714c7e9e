/*
 * Tiles turned over for the C printer: lines of memory become columns. In: where a tile lies, which of its rows and columns are
 * wanted. Out: the same with its axes exchanged, in the worker's own memory.
 * SPDX-License-Identifier: MIT
 */

/* to[i][j] = from[j][i], for rows i and columns j of those limits: in blocks of as many lines as a vector has lanes, whose rows are
 * interleaved with those half as many apart until they are columns. */

//@ part turn_block
#define TURN_SIXTEEN(a, b, c, d) \
    c = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23); \
    d = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define TURN_EIGHT(a, b, c, d) \
    c = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); \
    d = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define TURN_8 TURN_SIXTEEN
#define TURN_16 TURN_SIXTEEN
#define TURN_32 TURN_SIXTEEN
#define TURN_64 TURN_EIGHT
#ifdef __clang__
#define TURN_ALL _Pragma("clang loop unroll(full)")
#else
#define TURN_ALL _Pragma("GCC unroll 16")
#endif
/* Remainders are short: a compiler that makes vectors of them takes its time for nothing. */
#define TURN_ONE __asm__ volatile("" ::: "memory")

//@ part turn_$t
//@ for f32 i8 i16 i32 u8 u16 u32 f64 i64 u64
//@ needs turn_block
OUTLINE void turn_$t($c *to, long to_row, const $c *from, long from_row, long first, long last, long from_first, long from_last)
{
    enum { LINES = sizeof(*to) == 8 ? 8 : 16 };
    typedef $c lanes __attribute__((vector_size(sizeof($c) * LINES)));
    typedef $c lanes_u __attribute__((vector_size(sizeof($c) * LINES), aligned(sizeof($c)), may_alias));
    for (long i = first; i < last; i += LINES)
        for (long j = from_first; j < from_last; j += LINES) {
            if (last - i < LINES || from_last - j < LINES) {
                for (long r = i; r < last && r < i + LINES; r++)
                    for (long c = j; c < from_last && c < j + LINES; c++) {
                        to[r * to_row + c] = from[c * from_row + r];
                        TURN_ONE;
                    }
                continue;
            }
            lanes v[LINES], w[LINES];
            TURN_ALL for (int l = 0; l < LINES; l++) v[l] = *(const lanes_u *)(from + (j + l) * from_row + i);
            TURN_ALL for (int round = 1; round < LINES; round *= 2) {
                TURN_ALL for (int l = 0; l < LINES / 2; l++) { TURN_$b(v[l], v[l + LINES / 2], w[2 * l], w[2 * l + 1]); }
                TURN_ALL for (int l = 0; l < LINES; l++) v[l] = w[l];
            }
            TURN_ALL for (int l = 0; l < LINES; l++) *(lanes_u *)(to + (i + l) * to_row + j) = v[l];
        }
}

//@ part turn_$t
//@ for f16 bf16 f8e4m3
//@ needs turn_$u
INLINE void turn_$t($c *to, long to_row, const $c *from, long from_row, long first, long last, long from_first, long from_last)
{
    turn_$u(to, to_row, from, from_row, first, last, from_first, from_last);
}
