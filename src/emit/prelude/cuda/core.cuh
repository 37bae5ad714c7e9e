/*
 * The core of the CUDA prelude: bits, comparisons, integers, 16-bit floats, random numbers.
 * SPDX-License-Identifier: MIT
 */

//@ part real_f32
#ifdef QUERN_EMU
INLINE int bits_f32(float x)
{
    int i;
    __builtin_memcpy(&i, &x, 4);
    return i;
}
INLINE float real_f32(int i)
{
    float x;
    __builtin_memcpy(&x, &i, 4);
    return x;
}
#else
INLINE int bits_f32(float x) { return __float_as_int(x); }
INLINE float real_f32(int i) { return __int_as_float(i); }
#endif

//@ part real_f64
#ifdef QUERN_EMU
INLINE long bits_f64(double x)
{
    long i;
    __builtin_memcpy(&i, &x, 8);
    return i;
}
INLINE double real_f64(long i)
{
    double x;
    __builtin_memcpy(&x, &i, 8);
    return x;
}
#else
INLINE long bits_f64(double x) { return __double_as_longlong(x); }
INLINE double real_f64(long i) { return __longlong_as_double(i); }
#endif

//@ part bits_$t
//@ for f32 f64
//@ needs real_$t

/* Integers. */

//@ part min_$t
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $v min_$t($v a, $v b) { return a < b ? a : b; }

//@ part max_$t
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $v max_$t($v a, $v b) { return a > b ? a : b; }

//@ part abs_$t
//@ for i8 i16 i32 i64
INLINE $v abs_$t($v a) { return a < 0 ? ($v)(0 - ($u)a) : a; }

//@ part abs_$t
//@ for u8 u16 u32 u64
INLINE $v abs_$t($v a) { return a; }

//@ part sign_$t
//@ for i8 i16 i32 i64
INLINE $v sign_$t($v a) { return ($v)((a > 0) - (a < 0)); }

//@ part sign_$t
//@ for u8 u16 u32 u64
INLINE $v sign_$t($v a) { return a != 0; }

//@ part div_$t
//@ for i8 i16 i32
//@ needs div_floor_$t
INLINE $v div_$t($v a, $v b) { return div_floor_$t(a, b); }

//@ part mod_$t
//@ for i8 i16 i32
//@ needs mod_floor_$t
INLINE $v mod_$t($v a, $v b) { return mod_floor_$t(a, b); }

/* Places are 64 bits wide and almost always below 2^32, where dividing takes a fifth of the instructions. */

//@ part div_i64
//@ needs div_floor_i64
INLINE long div_i64(long a, long b)
{
    if (b && ((unsigned long)a | (unsigned long)b) >> 32 == 0) return (long)((unsigned)a / (unsigned)b);
    return div_floor_i64(a, b);
}

//@ part mod_i64
//@ needs mod_floor_i64
INLINE long mod_i64(long a, long b)
{
    if (b && ((unsigned long)a | (unsigned long)b) >> 32 == 0) return (long)((unsigned)a % (unsigned)b);
    return mod_floor_i64(a, b);
}

//@ part div_floor_$t
//@ for i8 i16 i32 i64
INLINE $v div_floor_$t($v a, $v b)
{
    if (b == 0) return 0;
    if (b == -1) return ($v)(0 - ($u)a);
    $v q = ($v)(a / b), r = ($v)(a - q * b);
    return ($v)(q - ((r != 0) & ((r < 0) != (b < 0))));
}

//@ part mod_floor_$t
//@ for i8 i16 i32 i64
INLINE $v mod_floor_$t($v a, $v b)
{
    if (b == 0 || b == -1) return 0;
    $v r = ($v)(a % b);
    return ($v)(r + ((r != 0) & ((r < 0) != (b < 0)) ? b : 0));
}

//@ part div_$t
//@ for u8 u16 u32 u64
INLINE $v div_$t($v a, $v b) { return b ? ($v)(a / b) : 0; }

//@ part mod_$t
//@ for u8 u16 u32 u64
INLINE $v mod_$t($v a, $v b) { return b ? ($v)(a % b) : 0; }

//@ part digits
/* x / n and x % n for x below 2^31, with by = digit_by(n): the quotient of a product is at most one too small. */
INLINE unsigned digit_by(unsigned n) { return 0xffffffffu / n; }
INLINE unsigned digits_above(unsigned x, unsigned n, unsigned by)
{
    const unsigned q = (unsigned)((unsigned long)x * by >> 32);
    return q + (x - q * n >= n);
}
INLINE unsigned digits_below(unsigned x, unsigned n, unsigned by)
{
    const unsigned r = x - (unsigned)((unsigned long)x * by >> 32) * n;
    return r >= n ? r - n : r;
}

//@ part shl_$t
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $v shl_$t($v a, $v n) { return ($v)(($u)a << (n & ($b - 1))); }

//@ part shr_$t
//@ for i8 i16 i32 i64 u8 u16 u32 u64
INLINE $v shr_$t($v a, $v n) { return ($v)(a >> (n & ($b - 1))); }

/* Sums, products and negations that wrap: signed overflow is undefined in the text's language. */

//@ part add_$t
//@ for i32 i64
INLINE $v add_$t($v a, $v b) { return ($v)(($u)a + ($u)b); }

//@ part sub_$t
//@ for i32 i64
INLINE $v sub_$t($v a, $v b) { return ($v)(($u)a - ($u)b); }

//@ part mul_$t
//@ for i32 i64
INLINE $v mul_$t($v a, $v b) { return ($v)(($u)a * ($u)b); }

/* 16-bit floats: one rounding to nearest even. */

//@ part f16_to_f32
//@ needs real_f32
INLINE float f16_to_f32(unsigned short h)
{
#ifdef QUERN_EMU
    unsigned sign = (h & 0x8000u) << 16, size = h & 0x7fffu;
    if (size >= 0x7c00) return real_f32((int)(sign | 0x7f800000 | size << 13));
    float x = real_f32((int)(size << 13)) * 0x1p112f;
    return sign ? -x : x;
#else
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
#endif
}

//@ part f32_to_f16
//@ needs real_f32
INLINE unsigned short f32_to_f16(float x)
{
#ifdef QUERN_EMU
    unsigned bits = (unsigned)bits_f32(x), size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    if (size > 0x7f800000) return (unsigned short)(sign | 0x7e00);
    if (size >= 0x477ff000) return (unsigned short)(sign | 0x7c00);
    if (size < 0x38800000) /* subnormal: adding a power of two rounds at the right bit */
        return (unsigned short)(sign | (bits_f32(real_f32((int)size) + 0.5f) - 0x3f000000));
    return (unsigned short)(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
#else
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#endif
}

//@ part bf16_to_f32
//@ needs real_f32
INLINE float bf16_to_f32(unsigned short h) { return real_f32((int)((unsigned)h << 16)); }

//@ part f32_to_bf16
//@ needs real_f32
INLINE unsigned short f32_to_bf16(float x)
{
#if defined(QUERN_EMU) || __CUDA_ARCH__ < 800
    unsigned bits = (unsigned)bits_f32(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (unsigned short)(x != x ? (bits >> 16 & 0x8000) | 0x7fc0 : rounded);
#else
    unsigned short h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#endif
}

//@ part f8e4m3_to_f32
//@ needs real_f32 f16_to_f32
INLINE float f8e4m3_to_f32(unsigned char h)
{
#if defined(QUERN_EMU) || __CUDA_ARCH__ < 890
    unsigned sign = (unsigned)(h & 0x80) << 24, size = h & 0x7f;
    unsigned bits = size == 0x7f ? 0x7fc00000u : size >= 8 ? (size << 20) + 0x3c000000u : (unsigned)bits_f32((float)size * 0x1p-9f);
    return real_f32((int)(sign | bits));
#else
    unsigned both;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"((unsigned short)h));
    return f16_to_f32((unsigned short)both);
#endif
}

//@ part f32_to_f8e4m3
//@ needs real_f32
/* What rounds beyond the largest is NaN, where the instruction gives the largest. */
INLINE unsigned char f32_to_f8e4m3(float x)
{
    unsigned bits = (unsigned)bits_f32(x), size = bits & 0x7fffffff;
#if defined(QUERN_EMU) || __CUDA_ARCH__ < 890
    unsigned least = (unsigned)bits_f32(real_f32((int)size) + 0x1p14f) - 0x46800000u; /* rounds to 2^-9 */
    unsigned rounded = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - 960;
    unsigned number = size < 0x3c800000u ? least : rounded;
#else
    unsigned short number;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(number) : "f"(0.0f), "f"(x));
#endif
    return (unsigned char)((bits >> 24 & 0x80) | (size > 0x43e80000u ? 0x7f : number));
}

/* Two at once, the first in the low half: how vectors of them go to memory. */

//@ part pack_$t
//@ for f16 bf16
//@ needs f32_to_$t
INLINE unsigned pack_$t(float first, float second)
{
#if defined(QUERN_EMU) || __CUDA_ARCH__ < 800
    return f32_to_$t(first) | (unsigned)f32_to_$t(second) << 16;
#else
    unsigned w;
    asm("cvt.rn.$tx2.f32 %0, %2, %1;" : "=r"(w) : "f"(first), "f"(second));
    return w;
#endif
}

/* Philox4x32-10: the counter is (offset low, offset high, i low, i high). */

//@ part philox_u32
INLINE unsigned philox_u32(unsigned long seed, unsigned long offset, long i, int lane)
{
    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
    unsigned c0 = (unsigned)offset, c1 = (unsigned)(offset >> 32);
    unsigned c2 = (unsigned)i, c3 = (unsigned)((unsigned long)i >> 32);
    for (int round = 0; round < 10; round++) {
        unsigned long p = 0xD2511F53ul * c0, q = 0xCD9E8D57ul * c2;
        c0 = (unsigned)(q >> 32) ^ c1 ^ k0;
        c2 = (unsigned)(p >> 32) ^ c3 ^ k1;
        c1 = (unsigned)q;
        c3 = (unsigned)p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3;
}
