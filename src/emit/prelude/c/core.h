/*
 * The core of the prelude: masks, choice, comparisons, integer operations.
 * SPDX-License-Identifier: MIT
 */

/* Of a function with several bodies in one loop: gcc mixes their instructions only when asked. */

//@ part OVERLAP
#if defined(__GNUC__) && !defined(__clang__)
#define OVERLAP __attribute__((optimize("schedule-insns")))
#else
#define OVERLAP
#endif

/* Masks. A mask is i32x16 with lanes 0 or -1. */

//@ part select_$tx16
//@ for f32 i32 u32
INLINE $tx16 select_$tx16(mask16 m, $tx16 a, $tx16 b) { return ($tx16)(((i32x16)a & m) | ((i32x16)b & ~m)); }

//@ part select_$tx16
//@ for i8 u8 i16 u16
INLINE $tx16 select_$tx16(mask16 m, $tx16 a, $tx16 b)
{
    $jx16 w = __builtin_convertvector(m, $jx16);
    return ($tx16)((($jx16)a & w) | (($jx16)b & ~w));
}

//@ part select_$tx16
//@ for f64 i64 u64
//@ needs split_i32
INLINE $tx16 select_$tx16(mask16 m, $tx16 a, $tx16 b)
{
    union { $tx16 whole; i64x8 half[2]; } x = {a}, y = {b};
    for (int h = 0; h < 2; h++) {
        i64x8 w = __builtin_convertvector(half_i32(m, h), i64x8);
        x.half[h] = (x.half[h] & w) | (y.half[h] & ~w);
    }
    return x.whole;
}

//@ part select_boolx16
INLINE mask16 select_boolx16(mask16 m, mask16 a, mask16 b) { return (a & m) | (b & ~m); }

//@ part split_i32
INLINE i32x8 half_i32(i32x16 v, int h)
{
    return h ? __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)
             : __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
}
INLINE i32x16 join_i32(i32x8 a, i32x8 b)
{
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

//@ part mask_bits
INLINE unsigned mask_bits(mask16 m)
{
#ifdef MASK_REGISTERS
    unsigned short bits;
    __asm__("vpmovd2m %1, %0" : "=Yk"(bits) : "v"(m));
    return bits;
#else
    unsigned bits = 0;
    for (int k = 0; k < 16; k++) bits |= (m[k] & 1u) << k;
    return bits;
#endif
}

//@ part any_mask
//@ needs mask_bits
INLINE int any_mask(mask16 m) { return mask_bits(m) != 0; }

//@ part all_mask
//@ needs mask_bits
INLINE int all_mask(mask16 m) { return mask_bits(m) == 0xffff; }

//@ part count_mask
//@ needs mask_bits
INLINE int count_mask(mask16 m) { return __builtin_popcount(mask_bits(m)); }

//@ part iota_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE $tx16 iota_$tx16(void) { return ($tx16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }

//@ part splat_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE $tx16 splat_$tx16($c x) { return ($tx16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

//@ part splat_boolx16
//@ needs splat_i32x16
INLINE mask16 splat_boolx16(int x) { return splat_i32x16(-(x != 0)); }

//@ part room_of
/* Bytes of `extent` parts; more than any memory where that is no number. */
INLINE long room_of(long extent, long bytes)
{
    long all;
    if (extent <= 0) return 0;
    return __builtin_mul_overflow(extent, bytes, &all) || all > 1L << 56 ? 1L << 56 : all;
}

//@ part first_mask
//@ needs iota_i32x16 splat_i32x16
INLINE mask16 first_mask(long count) { return iota_i32x16() < splat_i32x16((int)count); }

/* Comparisons. */

//@ part lt_$tx16
//@ for f32 i32 u32
INLINE mask16 lt_$tx16($tx16 a, $tx16 b) { return (mask16)(a < b); }

//@ part le_$tx16
//@ for f32 i32 u32
INLINE mask16 le_$tx16($tx16 a, $tx16 b) { return (mask16)(a <= b); }

//@ part gt_$tx16
//@ for f32 i32 u32
INLINE mask16 gt_$tx16($tx16 a, $tx16 b) { return (mask16)(a > b); }

//@ part ge_$tx16
//@ for f32 i32 u32
INLINE mask16 ge_$tx16($tx16 a, $tx16 b) { return (mask16)(a >= b); }

//@ part eq_$tx16
//@ for f32 i32 u32
INLINE mask16 eq_$tx16($tx16 a, $tx16 b) { return (mask16)(a == b); }

//@ part ne_$tx16
//@ for f32 i32 u32
INLINE mask16 ne_$tx16($tx16 a, $tx16 b) { return (mask16)(a != b); }

//@ part lt_$tx16
//@ for i8 u8 i16 u16
INLINE mask16 lt_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a < b, i32x16); }

//@ part le_$tx16
//@ for i8 u8 i16 u16
INLINE mask16 le_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a <= b, i32x16); }

//@ part gt_$tx16
//@ for i8 u8 i16 u16
INLINE mask16 gt_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a > b, i32x16); }

//@ part ge_$tx16
//@ for i8 u8 i16 u16
INLINE mask16 ge_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a >= b, i32x16); }

//@ part eq_$tx16
//@ for i8 u8 i16 u16
INLINE mask16 eq_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a == b, i32x16); }

//@ part ne_$tx16
//@ for i8 u8 i16 u16
INLINE mask16 ne_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a != b, i32x16); }

//@ part lt_$tx16
//@ for f64 i64 u64
//@ needs split_i32
INLINE mask16 lt_$tx16($tx16 a, $tx16 b)
{
    union { $tx16 whole; $tx8 half[2]; } x = {a}, y = {b};
    return join_i32(__builtin_convertvector(x.half[0] < y.half[0], i32x8),
                    __builtin_convertvector(x.half[1] < y.half[1], i32x8));
}

//@ part le_$tx16
//@ for f64 i64 u64
//@ needs split_i32
INLINE mask16 le_$tx16($tx16 a, $tx16 b)
{
    union { $tx16 whole; $tx8 half[2]; } x = {a}, y = {b};
    return join_i32(__builtin_convertvector(x.half[0] <= y.half[0], i32x8),
                    __builtin_convertvector(x.half[1] <= y.half[1], i32x8));
}

//@ part gt_$tx16
//@ for f64 i64 u64
//@ needs lt_$tx16
INLINE mask16 gt_$tx16($tx16 a, $tx16 b) { return lt_$tx16(b, a); }

//@ part ge_$tx16
//@ for f64 i64 u64
//@ needs le_$tx16
INLINE mask16 ge_$tx16($tx16 a, $tx16 b) { return le_$tx16(b, a); }

//@ part eq_$tx16
//@ for f64 i64 u64
//@ needs split_i32
INLINE mask16 eq_$tx16($tx16 a, $tx16 b)
{
    union { $tx16 whole; $tx8 half[2]; } x = {a}, y = {b};
    return join_i32(__builtin_convertvector(x.half[0] == y.half[0], i32x8),
                    __builtin_convertvector(x.half[1] == y.half[1], i32x8));
}

//@ part ne_$tx16
//@ for f64 i64 u64
//@ needs eq_$tx16
INLINE mask16 ne_$tx16($tx16 a, $tx16 b) { return ~eq_$tx16(a, b); }

//@ part lt_$t
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE int lt_$t($c a, $c b) { return a < b; }

//@ part le_$t
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE int le_$t($c a, $c b) { return a <= b; }

//@ part gt_$t
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE int gt_$t($c a, $c b) { return a > b; }

//@ part ge_$t
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE int ge_$t($c a, $c b) { return a >= b; }

//@ part eq_$t
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE int eq_$t($c a, $c b) { return a == b; }

//@ part ne_$t
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE int ne_$t($c a, $c b) { return a != b; }

/* Closed to the optimiser: what goes in is not fused with what comes out. */

//@ part exact_$tx16
//@ for f32
INLINE $tx16 exact_$tx16($tx16 x)
{
#ifdef __AVX512F__
    __asm__("" : "+v"(x));
#else
    __asm__("" : "+m"(x));
#endif
    return x;
}

//@ part exact_$tx16
//@ for f64
INLINE $tx16 exact_$tx16($tx16 x)
{
    __asm__("" : "+m"(x));
    return x;
}

//@ part exact_$t
//@ for f32 f64
INLINE $c exact_$t($c x)
{
#ifdef __SSE2__
    __asm__("" : "+x"(x));
#else
    __asm__("" : "+m"(x));
#endif
    return x;
}

//@ part exact_$tx16
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $tx16 exact_$tx16($tx16 x) { return x; }

//@ part exact_$t
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $c exact_$t($c x) { return x; }

/* Integers. */

//@ part min_$tx16
//@ for i8 i16 i32 u8 u16 u32
INLINE $tx16 min_$tx16($tx16 a, $tx16 b)
{
    $jx16 m = ($jx16)(a < b);
    return ($tx16)((($jx16)a & m) | (($jx16)b & ~m));
}

//@ part max_$tx16
//@ for i8 i16 i32 u8 u16 u32
INLINE $tx16 max_$tx16($tx16 a, $tx16 b)
{
    $jx16 m = ($jx16)(a > b);
    return ($tx16)((($jx16)a & m) | (($jx16)b & ~m));
}

//@ part min_$tx16
//@ for i64 u64
//@ needs lt_$tx16 select_$tx16
INLINE $tx16 min_$tx16($tx16 a, $tx16 b) { return select_$tx16(lt_$tx16(a, b), a, b); }

//@ part max_$tx16
//@ for i64 u64
//@ needs lt_$tx16 select_$tx16
INLINE $tx16 max_$tx16($tx16 a, $tx16 b) { return select_$tx16(lt_$tx16(a, b), b, a); }

//@ part min_$t
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $c min_$t($c a, $c b) { return a < b ? a : b; }

//@ part max_$t
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $c max_$t($c a, $c b) { return a > b ? a : b; }

//@ part abs_$tx16
//@ for i8 i16 i32 i64
INLINE $tx16 abs_$tx16($tx16 a)
{
    $tx16 s = a >> ($b - 1);
    return ($tx16)((($ux16)a ^ ($ux16)s) - ($ux16)s);
}

//@ part abs_$tx16
//@ for u8 u16 u32 u64
INLINE $tx16 abs_$tx16($tx16 a) { return a; }

//@ part abs_$t
//@ for i8 i16 i32 i64
INLINE $c abs_$t($c a) { return a < 0 ? ($c)(0 - (unsigned long)a) : a; }

//@ part abs_$t
//@ for u8 u16 u32 u64
INLINE $c abs_$t($c a) { return a; }

//@ part sign_$tx16
//@ for i8 i16 i32 i64
INLINE $tx16 sign_$tx16($tx16 a) { return (a >> ($b - 1)) | ($tx16)(($ux16)-a >> ($b - 1)); }

//@ part sign_$tx16
//@ for u8 u16 u32 u64
INLINE $tx16 sign_$tx16($tx16 a) { return ($tx16)(a != 0) & 1; }

//@ part sign_$t
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $c sign_$t($c a) { return ($c)((a > 0) - (a < 0)); }

//@ part div_$t
//@ for i8 i16 i32 i64
INLINE $c div_$t($c a, $c b)
{
    if (b == 0) return 0;
    if (b == -1) return ($c)(0 - (unsigned long)a);
    $c q = ($c)(a / b);
    return ($c)(q - ((a % b != 0) & ((a < 0) != (b < 0))));
}

//@ part mod_$t
//@ for i8 i16 i32 i64
INLINE $c mod_$t($c a, $c b)
{
    if (b == 0 || b == -1) return 0;
    $c r = ($c)(a % b);
    return ($c)(r + ((r != 0) & ((r < 0) != (b < 0)) ? b : 0));
}

//@ part div_$t
//@ for u8 u16 u32 u64
INLINE $c div_$t($c a, $c b) { return b ? ($c)(a / b) : 0; }

//@ part mod_$t
//@ for u8 u16 u32 u64
INLINE $c mod_$t($c a, $c b) { return b ? ($c)(a % b) : 0; }

//@ part div_by_doubles
/* floor(a / b), 0 where b is, of integers below 2^52: no quotient of two such that is not a whole number is rounded to one. */
INLINE i64x8 div_by_doubles(i64x8 a, i64x8 b)
{
    i64x8 q = __builtin_convertvector(__builtin_convertvector(a, f64x8) / __builtin_convertvector(b, f64x8), i64x8);
    i64x8 rest = a - q * b;
    return (q + ((rest != 0) & ((rest ^ b) < 0))) & (b != 0);
}

//@ part fit_doubles_i64
/* Whether all are below 2^52, and not below -2^52. */
INLINE int fit_doubles_i64(i64x16 x)
{
    union { i64x16 whole; u64x8 half[2]; } v = {x};
    u64x8 beyond = (v.half[0] + (1ul << 52)) >> 53 | (v.half[1] + (1ul << 52)) >> 53;
    return !(long)__builtin_convertvector(beyond != 0, i8x8);
}

//@ part fit_doubles_u64
/* Whether all are below 2^52. */
INLINE int fit_doubles_u64(u64x16 x)
{
    union { u64x16 whole; u64x8 half[2]; } v = {x};
    return !(long)__builtin_convertvector((v.half[0] | v.half[1]) >> 52 != 0, i8x8);
}

//@ part div_$tx16
//@ for i32 u32
//@ needs div_$t div_by_doubles
INLINE $tx16 div_$tx16($tx16 a, $tx16 b)
{
#ifdef __AVX512DQ__
    union { $tx16 whole; $tx8 half[2]; } x = {a}, y = {b}, to;
    for (int h = 0; h < 2; h++)
        to.half[h] = __builtin_convertvector(div_by_doubles(__builtin_convertvector(x.half[h], i64x8), __builtin_convertvector(y.half[h], i64x8)), $tx8);
    return to.whole;
#else
    $tx16 r;
    for (int k = 0; k < 16; k++) r[k] = div_$t(a[k], b[k]);
    return r;
#endif
}

//@ part div_$tx16
//@ for i64 u64
//@ needs div_$t div_by_doubles fit_doubles_$t
INLINE $tx16 div_$tx16($tx16 a, $tx16 b)
{
    $tx16 r;
#ifdef __AVX512DQ__
    if (fit_doubles_$t(a) && fit_doubles_$t(b)) {
        union { $tx16 whole; i64x8 half[2]; } x = {a}, y = {b}, to;
        for (int h = 0; h < 2; h++) to.half[h] = div_by_doubles(x.half[h], y.half[h]);
        return to.whole;
    }
#endif
    for (int k = 0; k < 16; k++) r[k] = div_$t(a[k], b[k]);
    return r;
}

//@ part mod_$tx16
//@ for i32 u32 i64 u64
//@ needs mod_$t div_$tx16
INLINE $tx16 mod_$tx16($tx16 a, $tx16 b)
{
#ifdef __AVX512DQ__
    return (a - div_$tx16(a, b) * b) & ($tx16)(b != 0);
#else
    $tx16 r;
    for (int k = 0; k < 16; k++) r[k] = mod_$t(a[k], b[k]);
    return r;
#endif
}

//@ part div_$tx16
//@ for i8 i16 u8 u16
//@ needs div_$t
INLINE $tx16 div_$tx16($tx16 a, $tx16 b)
{
    $tx16 r;
    for (int k = 0; k < 16; k++) r[k] = div_$t(a[k], b[k]);
    return r;
}

//@ part mod_$tx16
//@ for i8 i16 u8 u16
//@ needs mod_$t
INLINE $tx16 mod_$tx16($tx16 a, $tx16 b)
{
    $tx16 r;
    for (int k = 0; k < 16; k++) r[k] = mod_$t(a[k], b[k]);
    return r;
}

//@ part shl_$tx16
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $tx16 shl_$tx16($tx16 a, $tx16 n) { return ($tx16)(($ux16)a << (($ux16)n & ($b - 1))); }

//@ part shr_$tx16
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $tx16 shr_$tx16($tx16 a, $tx16 n) { return a >> (n & ($b - 1)); }

//@ part shl_$t
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $c shl_$t($c a, $c n) { return ($c)((unsigned long)a << (n & ($b - 1))); }

//@ part shr_$t
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $c shr_$t($c a, $c n) { return ($c)(a >> (n & ($b - 1))); }
