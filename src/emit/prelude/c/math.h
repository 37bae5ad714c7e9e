/*
 * The functions of the prelude, first part: bits, choice, rounding, powers of two. Each function of the three parts is
 * written once and instantiated for vectors and scalars, so that both give the same bits. Sums of products are meant to
 * fuse where the processor can (-ffp-contract=fast); where fusing is needed for correctness it says fma or mad.
 * SPDX-License-Identifier: MIT
 */

/* Bits, choice, rounding. A form is f32x16, f32, f64x8 or f64; its masks are the integers of its own width. */

//@ part real_$t
//@ for f32x16 f64x8
INLINE $i bits_$t($v x) { return ($i)x; }
INLINE $v real_$t($i x) { return ($v)x; }

//@ part real_$t
//@ for f32 f64
INLINE $i bits_$t($v x)
{
    union { $v x; $i i; } u = {x};
    return u.i;
}
INLINE $v real_$t($i x)
{
    union { $i i; $v x; } u = {x};
    return u.x;
}

//@ part fill_$t
//@ for f32x16 f64x8
INLINE $v fill_$t($c x) { return x - ($v){0}; }

//@ part fill_$t
//@ for f32 f64
INLINE $v fill_$t($v x) { return x; }

//@ part pick_$t
//@ for f32x16 f64x8
INLINE $v pick_$t($i m, $v a, $v b) { return ($v)((($i)a & m) | (($i)b & ~m)); }

//@ part pick_$t
//@ for f32 f64
INLINE $v pick_$t($i m, $v a, $v b) { return m ? a : b; }

//@ part to_real_$t
//@ for f32x16 f64x8
INLINE $v to_real_$t($i x) { return __builtin_convertvector(x, $v); }

//@ part to_real_$t
//@ for f32 f64
INLINE $v to_real_$t($i x) { return ($v)x; }

//@ part abs_$t
//@ for f32x16 f32
//@ needs real_$t
INLINE $v abs_$t($v x) { return real_$t(bits_$t(x) & 0x7fffffff); }

//@ part abs_$t
//@ for f64x8 f64
//@ needs real_$t
INLINE $v abs_$t($v x) { return real_$t(bits_$t(x) & 0x7fffffffffffffff); }

//@ part with_sign_$t
//@ for f32x16 f32
//@ needs real_$t
INLINE $v with_sign_$t($v size, $v sign)
{
    return real_$t((bits_$t(size) & 0x7fffffff) | (bits_$t(sign) & (int)0x80000000));
}

//@ part with_sign_$t
//@ for f64x8 f64
//@ needs real_$t
INLINE $v with_sign_$t($v size, $v sign)
{
    return real_$t((bits_$t(size) & 0x7fffffffffffffff) | (bits_$t(sign) & (long)0x8000000000000000));
}

//@ part below_$t
//@ for f32x16 f32 f64x8 f64
//@ needs fill_$t pick_$t
/* x cut at a limit; NaN stays NaN. */
INLINE $v below_$t($v x, $c limit)
{
    $v high = fill_$t(limit);
#ifdef __AVX512F__
    __asm__("vmin$p %2, %1, %0" : "=v"(x) : "v"(high), "v"(x));
    return x;
#else
    return pick_$t(x > high, high, x);
#endif
}

//@ part above_$t
//@ for f32x16 f32 f64x8 f64
//@ needs fill_$t pick_$t
INLINE $v above_$t($v x, $c limit)
{
    $v low = fill_$t(limit);
#ifdef __AVX512F__
    __asm__("vmax$p %2, %1, %0" : "=v"(x) : "v"(low), "v"(x));
    return x;
#else
    return pick_$t(x < low, low, x);
#endif
}

//@ part min_$t
//@ for f32x16 f64x8
//@ needs pick_$t
INLINE $v min_$t($v a, $v b)
{
#ifdef __AVX512F__
    $v r;
    unsigned short k;
    __asm__("vmin$p %3, %2, %0\n\tvcmp$p $3, %2, %2, %1\n\tvmova$p %2, %0%{%1%}"
            : "=&v"(r), "=&Yk"(k) : "v"(a), "v"(b));
    return r;
#else
    return pick_$t((a < b) | (a != a), a, b);
#endif
}

//@ part max_$t
//@ for f32x16 f64x8
//@ needs pick_$t
INLINE $v max_$t($v a, $v b)
{
#ifdef __AVX512F__
    $v r;
    unsigned short k;
    __asm__("vmax$p %3, %2, %0\n\tvcmp$p $3, %2, %2, %1\n\tvmova$p %2, %0%{%1%}"
            : "=&v"(r), "=&Yk"(k) : "v"(a), "v"(b));
    return r;
#else
    return pick_$t((a > b) | (a != a), a, b);
#endif
}

//@ part min_$t
//@ for f32 f64
INLINE $v min_$t($v a, $v b) { return a < b || a != a ? a : b; }

//@ part max_$t
//@ for f32 f64
INLINE $v max_$t($v a, $v b) { return a > b || a != a ? a : b; }

//@ part fma_$t
//@ for f32x16 f64x8
INLINE $v fma_$t($v a, $v b, $v c)
{
#ifdef __AVX512F__
    __asm__("vfmadd213$p %2, %1, %0" : "+v"(a) : "v"(b), "v"(c));
#else
    for (unsigned k = 0; k < sizeof(a) / sizeof(a[0]); k++) a[k] = __builtin_fma$f(a[k], b[k], c[k]);
#endif
    return a;
}

//@ part fma_$t
//@ for f32 f64
INLINE $v fma_$t($v a, $v b, $v c) { return __builtin_fma$f(a, b, c); }

//@ part mad_$t
//@ for f32x16 f64x8
/* a * b + c, fused where the processor can: for the places where a compiler could fuse either of two products. */
INLINE $v mad_$t($v a, $v b, $v c)
{
#ifdef __AVX512F__
    __asm__("vfmadd213$p %2, %1, %0" : "+v"(a) : "v"(b), "v"(c));
    return a;
#else
    return a * b + c;
#endif
}

//@ part mad_$t
//@ for f32 f64
INLINE $v mad_$t($v a, $v b, $v c)
{
#ifdef __FMA__
    return __builtin_fma$f(a, b, c);
#else
    return a * b + c;
#endif
}

//@ part round_$t
//@ for f32x16 f64x8 f32 f64
//@ needs with_sign_$t abs_$t pick_$t
INLINE $v round_$t($v x)
{
#ifdef __AVX512F__
    $v r;
    __asm__("vrndscale$p $8, $w%0" : "=v"(r) : "v"(x));
    return r;
#else
    $v size = abs_$t(x);
    return pick_$t(size < $R, with_sign_$t((size + $R) - $R, x), x);
#endif
}

//@ part floor_$t
//@ for f32x16 f64x8 f32 f64
//@ needs round_$t pick_$t fill_$t with_sign_$t
INLINE $v floor_$t($v x)
{
#ifdef __AVX512F__
    $v r;
    __asm__("vrndscale$p $9, $w%0" : "=v"(r) : "v"(x));
    return r;
#else
    $v r = round_$t(x);
    return pick_$t(r > x, with_sign_$t(r - 1, x), r);
#endif
}

//@ part ceil_$t
//@ for f32x16 f64x8 f32 f64
//@ needs round_$t pick_$t fill_$t with_sign_$t
INLINE $v ceil_$t($v x)
{
#ifdef __AVX512F__
    $v r;
    __asm__("vrndscale$p $10, $w%0" : "=v"(r) : "v"(x));
    return r;
#else
    $v r = round_$t(x);
    return pick_$t(r < x, with_sign_$t(r + 1, x), r);
#endif
}

//@ part sqrt_$t
//@ for f32x16 f64x8
INLINE $v sqrt_$t($v x)
{
#ifdef __AVX512F__
    $v r;
    __asm__("vsqrt$p %1, %0" : "=v"(r) : "v"(x));
    return r;
#else
    for (unsigned k = 0; k < sizeof(x) / sizeof(x[0]); k++) x[k] = __builtin_sqrt$f(x[k]);
    return x;
#endif
}

//@ part sqrt_$t
//@ for f32 f64
INLINE $v sqrt_$t($v x) { return __builtin_sqrt$f(x); }

//@ part rsqrt_$t
//@ for f32x16 f32 f64x8 f64
//@ needs sqrt_$t
INLINE $v rsqrt_$t($v x) { return 1 / sqrt_$t(x); }

//@ part sign_$t
//@ for f32x16 f32 f64x8 f64
//@ needs pick_$t fill_$t
INLINE $v sign_$t($v x) { return pick_$t(x > 0, fill_$t(1), pick_$t(x < 0, fill_$t(-1), x)); }

//@ part relu_$t
//@ for f32x16 f32 f64x8 f64
//@ needs above_$t
INLINE $v relu_$t($v x) { return above_$t(x, 0); }

//@ part isnan_$t
//@ for f32x16 f32 f64
INLINE $i isnan_$t($v x) { return x != x; }

//@ part isinf_$t
//@ for f32x16 f32 f64
//@ needs abs_$t
INLINE $i isinf_$t($v x) { return abs_$t(x) == __builtin_inff(); }

//@ part isnan_f64x16
//@ needs ne_f64x16
INLINE mask16 isnan_f64x16(f64x16 x) { return ne_f64x16(x, x); }

//@ part isinf_f64x16
//@ needs eq_f64x16 abs_f64x16 splat_f64x16
INLINE mask16 isinf_f64x16(f64x16 x) { return eq_f64x16(abs_f64x16(x), splat_f64x16(__builtin_inf())); }

//@ part tf32_$t
//@ for f32x16 f32
//@ needs real_$t pick_$t
INLINE $v tf32_$t($v x)
{
    $i b = bits_$t(x);
    return pick_$t(x == x, real_$t((b + 0xfff + ((b >> 13) & 1)) & ~0x1fff), x);
}

//@ part mod_$t
//@ for f64x8 f64
//@ needs floor_$t
INLINE $v mod_$t($v x, $v y)
{
    $v product = y * floor_$t(x / y);
    __asm__("" : "+m"(product)); /* not fused: the difference is taken of the rounded product, as everywhere */
    return x - product;
}

//@ part mod_f32
//@ needs mod_f64
INLINE float mod_f32(float x, float y) { return (float)mod_f64(x, y); }

//@ part mod_f32x16
//@ needs mod_f64x8 split_f32
INLINE f32x16 mod_f32x16(f32x16 x, f32x16 y)
{
    return join_f32(mod_f64x8(half_f32(x, 0), half_f32(y, 0)), mod_f64x8(half_f32(x, 1), half_f32(y, 1)));
}

//@ part split_f32
/* Half of a vector in double precision, and back. */
INLINE f64x8 half_f32(f32x16 v, int h)
{
    return __builtin_convertvector(h ? __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)
                                     : __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7), f64x8);
}
INLINE f32x16 join_f32(f64x8 a, f64x8 b)
{
    return __builtin_shufflevector(__builtin_convertvector(a, f32x8), __builtin_convertvector(b, f32x8), 0, 1, 2, 3, 4,
                                   5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* Powers of two. scale: p * 2^n for whole n, rounding once. recip: 1 / x for normal x. */

//@ part scale_$t
//@ for f32x16 f32 f64x8 f64
//@ needs real_$t to_int_$t
INLINE $v scale_$t($v p, $v n)
{
#ifdef __AVX512F__
    __asm__("vscalef$p %1, %0, %0" : "+v"(p) : "v"(n));
    return p;
#else
    $i i = to_int_$t(n), h = i >> 1;
    return p * real_$t((h + $X) << $M) * real_$t((i - h + $X) << $M);
#endif
}

//@ part to_int_$t
//@ for f32x16 f64x8
INLINE $i to_int_$t($v x) { return __builtin_convertvector(x, $i); }

//@ part to_int_$t
//@ for f32 f64
INLINE $i to_int_$t($v x) { return ($i)x; }

//@ part recip_$t
//@ for f32x16 f32
INLINE $v recip_$t($v x)
{
#ifdef __AVX512F__
    $v r;
    __asm__("vrcp14$p $w%0" : "=v"(r) : "v"(x));
    $v e = 1 - x * r;
    return r * e + r;
#else
    return 1 / x;
#endif
}

//@ part recip_$t
//@ for f64x8 f64
INLINE $v recip_$t($v x) { return 1 / x; }
