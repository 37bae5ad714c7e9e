/*
 * The functions of the prelude. Each is written once and instantiated for vectors and scalars, so that both give the
 * same bits. Sums of products are meant to fuse where the processor can (-ffp-contract=fast); where fusing is needed
 * for correctness it says fma. Coefficients: tools/minimax.py. Errors: docs/accuracy.md, tested by test_math.
 * In and out: text templates, see prelude_parts.h.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_parts.h"

const prelude_part prelude_math_parts[] = {
    /* Bits, choice, rounding. A form is f32x16, f32, f64x8 or f64; its masks are the integers of its own width. */
    {"real_$t", "f32x16 f64x8", "",
     "INLINE $i bits_$t($v x) { return ($i)x; }\n"
     "INLINE $v real_$t($i x) { return ($v)x; }\n"},
    {"real_$t", "f32 f64", "",
     "INLINE $i bits_$t($v x)\n"
     "{\n"
     "    union { $v x; $i i; } u = {x};\n"
     "    return u.i;\n"
     "}\n"
     "INLINE $v real_$t($i x)\n"
     "{\n"
     "    union { $i i; $v x; } u = {x};\n"
     "    return u.x;\n"
     "}\n"},
    {"fill_$t", "f32x16 f64x8", "", "INLINE $v fill_$t($c x) { return x - ($v){0}; }\n"},
    {"fill_$t", "f32 f64", "", "INLINE $v fill_$t($v x) { return x; }\n"},
    {"pick_$t", "f32x16 f64x8", "",
     "INLINE $v pick_$t($i m, $v a, $v b) { return ($v)((($i)a & m) | (($i)b & ~m)); }\n"},
    {"pick_$t", "f32 f64", "", "INLINE $v pick_$t($i m, $v a, $v b) { return m ? a : b; }\n"},
    {"to_real_$t", "f32x16 f64x8", "", "INLINE $v to_real_$t($i x) { return __builtin_convertvector(x, $v); }\n"},
    {"to_real_$t", "f32 f64", "", "INLINE $v to_real_$t($i x) { return ($v)x; }\n"},
    {"abs_$t", "f32x16 f32", "real_$t", "INLINE $v abs_$t($v x) { return real_$t(bits_$t(x) & 0x7fffffff); }\n"},
    {"abs_$t", "f64x8 f64", "real_$t", "INLINE $v abs_$t($v x) { return real_$t(bits_$t(x) & 0x7fffffffffffffff); }\n"},
    {"with_sign_$t", "f32x16 f32", "real_$t",
     "INLINE $v with_sign_$t($v size, $v sign)\n"
     "{\n"
     "    return real_$t((bits_$t(size) & 0x7fffffff) | (bits_$t(sign) & (int)0x80000000));\n"
     "}\n"},
    {"with_sign_$t", "f64x8 f64", "real_$t",
     "INLINE $v with_sign_$t($v size, $v sign)\n"
     "{\n"
     "    return real_$t((bits_$t(size) & 0x7fffffffffffffff) | (bits_$t(sign) & (long)0x8000000000000000));\n"
     "}\n"},
    {"below_$t", "f32x16 f32 f64x8 f64", "fill_$t pick_$t",
     "/* x cut at a limit; NaN stays NaN. */\n"
     "INLINE $v below_$t($v x, $c limit)\n"
     "{\n"
     "    $v high = fill_$t(limit);\n"
     "#ifdef __AVX512F__\n"
     "    __asm__(\"vmin$p %2, %1, %0\" : \"=v\"(x) : \"v\"(high), \"v\"(x));\n"
     "    return x;\n"
     "#else\n"
     "    return pick_$t(x > high, high, x);\n"
     "#endif\n"
     "}\n"},
    {"above_$t", "f32x16 f32 f64x8 f64", "fill_$t pick_$t",
     "INLINE $v above_$t($v x, $c limit)\n"
     "{\n"
     "    $v low = fill_$t(limit);\n"
     "#ifdef __AVX512F__\n"
     "    __asm__(\"vmax$p %2, %1, %0\" : \"=v\"(x) : \"v\"(low), \"v\"(x));\n"
     "    return x;\n"
     "#else\n"
     "    return pick_$t(x < low, low, x);\n"
     "#endif\n"
     "}\n"},
    {"min_$t", "f32x16 f64x8", "pick_$t",
     "INLINE $v min_$t($v a, $v b)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    $v r;\n"
     "    unsigned short k;\n"
     "    __asm__(\"vmin$p %3, %2, %0\\n\\tvcmp$p $3, %2, %2, %1\\n\\tvmova$p %2, %0%{%1%}\"\n"
     "            : \"=&v\"(r), \"=&Yk\"(k) : \"v\"(a), \"v\"(b));\n"
     "    return r;\n"
     "#else\n"
     "    return pick_$t((a < b) | (a != a), a, b);\n"
     "#endif\n"
     "}\n"},
    {"max_$t", "f32x16 f64x8", "pick_$t",
     "INLINE $v max_$t($v a, $v b)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    $v r;\n"
     "    unsigned short k;\n"
     "    __asm__(\"vmax$p %3, %2, %0\\n\\tvcmp$p $3, %2, %2, %1\\n\\tvmova$p %2, %0%{%1%}\"\n"
     "            : \"=&v\"(r), \"=&Yk\"(k) : \"v\"(a), \"v\"(b));\n"
     "    return r;\n"
     "#else\n"
     "    return pick_$t((a > b) | (a != a), a, b);\n"
     "#endif\n"
     "}\n"},
    {"min_$t", "f32 f64", "", "INLINE $v min_$t($v a, $v b) { return a < b || a != a ? a : b; }\n"},
    {"max_$t", "f32 f64", "", "INLINE $v max_$t($v a, $v b) { return a > b || a != a ? a : b; }\n"},
    {"fma_$t", "f32x16 f64x8", "",
     "INLINE $v fma_$t($v a, $v b, $v c)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    __asm__(\"vfmadd213$p %2, %1, %0\" : \"+v\"(a) : \"v\"(b), \"v\"(c));\n"
     "#else\n"
     "    for (unsigned k = 0; k < sizeof(a) / sizeof(a[0]); k++) a[k] = __builtin_fma$f(a[k], b[k], c[k]);\n"
     "#endif\n"
     "    return a;\n"
     "}\n"},
    {"fma_$t", "f32 f64", "", "INLINE $v fma_$t($v a, $v b, $v c) { return __builtin_fma$f(a, b, c); }\n"},
    {"mad_$t", "f32x16 f64x8", "",
     "/* a * b + c, fused where the processor can: for the places where a compiler could fuse either of two products. "
     "*/\n"
     "INLINE $v mad_$t($v a, $v b, $v c)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    __asm__(\"vfmadd213$p %2, %1, %0\" : \"+v\"(a) : \"v\"(b), \"v\"(c));\n"
     "    return a;\n"
     "#else\n"
     "    return a * b + c;\n"
     "#endif\n"
     "}\n"},
    {"mad_$t", "f32 f64", "",
     "INLINE $v mad_$t($v a, $v b, $v c)\n"
     "{\n"
     "#ifdef __FMA__\n"
     "    return __builtin_fma$f(a, b, c);\n"
     "#else\n"
     "    return a * b + c;\n"
     "#endif\n"
     "}\n"},
    {"round_$t", "f32x16 f64x8 f32 f64", "with_sign_$t abs_$t pick_$t",
     "INLINE $v round_$t($v x)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    $v r;\n"
     "    __asm__(\"vrndscale$p $8, $w%0\" : \"=v\"(r) : \"v\"(x));\n"
     "    return r;\n"
     "#else\n"
     "    $v size = abs_$t(x);\n"
     "    return pick_$t(size < $R, with_sign_$t((size + $R) - $R, x), x);\n"
     "#endif\n"
     "}\n"},
    {"floor_$t", "f32x16 f64x8 f32 f64", "round_$t pick_$t fill_$t with_sign_$t",
     "INLINE $v floor_$t($v x)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    $v r;\n"
     "    __asm__(\"vrndscale$p $9, $w%0\" : \"=v\"(r) : \"v\"(x));\n"
     "    return r;\n"
     "#else\n"
     "    $v r = round_$t(x);\n"
     "    return pick_$t(r > x, with_sign_$t(r - 1, x), r);\n"
     "#endif\n"
     "}\n"},
    {"ceil_$t", "f32x16 f64x8 f32 f64", "round_$t pick_$t fill_$t with_sign_$t",
     "INLINE $v ceil_$t($v x)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    $v r;\n"
     "    __asm__(\"vrndscale$p $10, $w%0\" : \"=v\"(r) : \"v\"(x));\n"
     "    return r;\n"
     "#else\n"
     "    $v r = round_$t(x);\n"
     "    return pick_$t(r < x, with_sign_$t(r + 1, x), r);\n"
     "#endif\n"
     "}\n"},
    {"sqrt_$t", "f32x16 f64x8", "",
     "INLINE $v sqrt_$t($v x)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    $v r;\n"
     "    __asm__(\"vsqrt$p %1, %0\" : \"=v\"(r) : \"v\"(x));\n"
     "    return r;\n"
     "#else\n"
     "    for (unsigned k = 0; k < sizeof(x) / sizeof(x[0]); k++) x[k] = __builtin_sqrt$f(x[k]);\n"
     "    return x;\n"
     "#endif\n"
     "}\n"},
    {"sqrt_$t", "f32 f64", "", "INLINE $v sqrt_$t($v x) { return __builtin_sqrt$f(x); }\n"},
    {"rsqrt_$t", "f32x16 f32 f64x8 f64", "sqrt_$t", "INLINE $v rsqrt_$t($v x) { return 1 / sqrt_$t(x); }\n"},
    {"sign_$t", "f32x16 f32 f64x8 f64", "pick_$t fill_$t",
     "INLINE $v sign_$t($v x) { return pick_$t(x > 0, fill_$t(1), pick_$t(x < 0, fill_$t(-1), x)); }\n"},
    {"relu_$t", "f32x16 f32 f64x8 f64", "above_$t", "INLINE $v relu_$t($v x) { return above_$t(x, 0); }\n"},
    {"isnan_$t", "f32x16 f32 f64", "", "INLINE $i isnan_$t($v x) { return x != x; }\n"},
    {"isinf_$t", "f32x16 f32 f64", "abs_$t", "INLINE $i isinf_$t($v x) { return abs_$t(x) == __builtin_inff(); }\n"},
    {"isnan_f64x16", "", "ne_f64x16", "INLINE mask16 isnan_f64x16(f64x16 x) { return ne_f64x16(x, x); }\n"},
    {"isinf_f64x16", "", "eq_f64x16 abs_f64x16 splat_f64x16",
     "INLINE mask16 isinf_f64x16(f64x16 x) { return eq_f64x16(abs_f64x16(x), splat_f64x16(__builtin_inf())); }\n"},
    {"tf32_$t", "f32x16 f32", "real_$t pick_$t",
     "INLINE $v tf32_$t($v x)\n"
     "{\n"
     "    $i b = bits_$t(x);\n"
     "    return pick_$t(x == x, real_$t((b + 0xfff + ((b >> 13) & 1)) & ~0x1fff), x);\n"
     "}\n"},
    {"mod_$t", "f64x8 f64", "floor_$t", "INLINE $v mod_$t($v x, $v y) { return x - y * floor_$t(x / y); }\n"},
    {"mod_f32", "", "mod_f64", "INLINE float mod_f32(float x, float y) { return (float)mod_f64(x, y); }\n"},
    {"mod_f32x16", "", "mod_f64x8 split_f32",
     "INLINE f32x16 mod_f32x16(f32x16 x, f32x16 y)\n"
     "{\n"
     "    return join_f32(mod_f64x8(half_f32(x, 0), half_f32(y, 0)), mod_f64x8(half_f32(x, 1), half_f32(y, 1)));\n"
     "}\n"},
    {"split_f32", "", "",
     "/* Half of a vector in double precision, and back. */\n"
     "INLINE f64x8 half_f32(f32x16 v, int h)\n"
     "{\n"
     "    return __builtin_convertvector(h ? __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)\n"
     "                                     : __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7), f64x8);\n"
     "}\n"
     "INLINE f32x16 join_f32(f64x8 a, f64x8 b)\n"
     "{\n"
     "    return __builtin_shufflevector(__builtin_convertvector(a, f32x8), __builtin_convertvector(b, f32x8), 0, 1, "
     "2, 3, 4,\n"
     "                                   5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);\n"
     "}\n"},
    /* Powers of two. scale: p * 2^n for whole n, rounding once. recip: 1 / x for normal x. */
    {"scale_$t", "f32x16 f32 f64x8 f64", "real_$t to_int_$t",
     "INLINE $v scale_$t($v p, $v n)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    __asm__(\"vscalef$p %1, %0, %0\" : \"+v\"(p) : \"v\"(n));\n"
     "    return p;\n"
     "#else\n"
     "    $i i = to_int_$t(n), h = i >> 1;\n"
     "    return p * real_$t((h + $X) << $M) * real_$t((i - h + $X) << $M);\n"
     "#endif\n"
     "}\n"},
    {"to_int_$t", "f32x16 f64x8", "", "INLINE $i to_int_$t($v x) { return __builtin_convertvector(x, $i); }\n"},
    {"to_int_$t", "f32 f64", "", "INLINE $i to_int_$t($v x) { return ($i)x; }\n"},
    {"recip_$t", "f32x16 f32", "",
     "INLINE $v recip_$t($v x)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    $v r;\n"
     "    __asm__(\"vrcp14$p $w%0\" : \"=v\"(r) : \"v\"(x));\n"
     "    $v e = 1 - x * r;\n"
     "    return r * e + r;\n"
     "#else\n"
     "    return 1 / x;\n"
     "#endif\n"
     "}\n"},
    {"recip_$t", "f64x8 f64", "", "INLINE $v recip_$t($v x) { return 1 / x; }\n"},
    /* exp and its kin: x = n ln 2 + r, |r| <= ln 2 / 2. exp_parts gives p and n with exp(x + low) = p 2^n for a small
       low. */
    {"exp_parts_$t", "f32x16 f32", "below_$t above_$t",
     "INLINE $v exp_parts_$t($v x, $v low, $v *n)\n"
     "{\n"
     "    x = above_$t(below_$t(x, 89.0f), -126.0f);\n"
     "    *n = (x * 0x1.715476p+0f + 0x1.8p23f) - 0x1.8p23f;\n"
     "    $v r = x - *n * 0x1.63p-1f;\n"
     "    r = r - *n * -0x1.bd0106p-13f;\n"
     "    r = r + low;\n"
     "    $v p = r * 0x1.6a4f5ep-10f + 0x1.123974p-7f;\n"
     "    p = p * r + 0x1.5558aep-5f;\n"
     "    p = p * r + 0x1.555492p-3f;\n"
     "    p = p * r + 0x1.fffffcp-2f;\n"
     "    p = p * r + 1;\n"
     "    return p * r + 1;\n"
     "}\n"},
    {"exp_$t", "f32x16 f32", "below_$t above_$t scale_$t",
     "INLINE $v exp_$t($v x)\n"
     "{\n"
     "    x = above_$t(below_$t(x, 89.0f), -126.0f);\n"
     "    $v n = (x * 0x1.715476p+0f + 0x1.8p23f) - 0x1.8p23f;\n"
     "    $v r = x - n * 0x1.63p-1f;\n"
     "    r = r - n * -0x1.bd0106p-13f;\n"
     "    $v p = r * 0x1.6a4f5ep-10f + 0x1.123974p-7f;\n"
     "    p = p * r + 0x1.5558aep-5f;\n"
     "    p = p * r + 0x1.555492p-3f;\n"
     "    p = p * r + 0x1.fffffcp-2f;\n"
     "    p = p * r + 1;\n"
     "    p = p * r + 1;\n"
     "    return scale_$t(p, n);\n"
     "}\n"},
    {"exp_parts_$t", "f64x8 f64", "below_$t above_$t",
     "INLINE $v exp_parts_$t($v x, $v low, $v *n)\n"
     "{\n"
     "    x = above_$t(below_$t(x, 710.0), -1400.0);\n"
     "    *n = (x * 0x1.71547652b82fep+0 + 0x1.8p52) - 0x1.8p52;\n"
     "    $v r = x - *n * 0x1.62e42feep-1;\n"
     "    r = r - *n * 0x1.a39ef35793c76p-33;\n"
     "    r = r + low;\n"
     "    $v p = r * 0x1.adadd911742bep-26 + 0x1.28aded7374ed9p-22;\n"
     "    p = p * r + 0x1.71df06c545bfbp-19;\n"
     "    p = p * r + 0x1.a019996c2ae62p-16;\n"
     "    p = p * r + 0x1.a01a0138afe20p-13;\n"
     "    p = p * r + 0x1.6c16c18473b2ep-10;\n"
     "    p = p * r + 0x1.1111111124eefp-7;\n"
     "    p = p * r + 0x1.55555555506c3p-5;\n"
     "    p = p * r + 0x1.5555555555506p-3;\n"
     "    p = p * r + 0x1.000000000000ap-1;\n"
     "    p = p * r + 1;\n"
     "    return p * r + 1;\n"
     "}\n"},
    {"exp_$t", "f64x8 f64", "exp_parts_$t scale_$t fill_$t",
     "INLINE $v exp_$t($v x)\n"
     "{\n"
     "    $v n, p = exp_parts_$t(x, fill_$t(0), &n);\n"
     "    return scale_$t(p, n);\n"
     "}\n"},
    {"exp2_$t", "f32x16 f32", "below_$t above_$t scale_$t",
     "INLINE $v exp2_$t($v x)\n"
     "{\n"
     "    x = above_$t(below_$t(x, 129.0f), -180.0f);\n"
     "    $v n = (x + 0x1.8p23f) - 0x1.8p23f, r = x - n;\n"
     "    $v p = r * 0x1.417bdcp-13f + 0x1.5f0938p-10f;\n"
     "    p = p * r + 0x1.3b2dd0p-7f;\n"
     "    p = p * r + 0x1.c6af7ap-5f;\n"
     "    p = p * r + 0x1.ebfbdcp-3f;\n"
     "    p = p * r + 0x1.62e430p-1f;\n"
     "    p = p * r + 1;\n"
     "    return scale_$t(p, n);\n"
     "}\n"},
    {"exp2_$t", "f64x8 f64", "below_$t above_$t scale_$t",
     "INLINE $v exp2_$t($v x)\n"
     "{\n"
     "    x = above_$t(below_$t(x, 1025.0), -2000.0);\n"
     "    $v n = (x + 0x1.8p52) - 0x1.8p52, r = x - n;\n"
     "    $v p = r * 0x1.e831e24e41cdcp-32 + 0x1.e612dea202e63p-28;\n"
     "    p = p * r + 0x1.b525f6cbc9585p-24;\n"
     "    p = p * r + 0x1.62bfcd1254081p-20;\n"
     "    p = p * r + 0x1.ffcbfc034b27bp-17;\n"
     "    p = p * r + 0x1.4309130c5cf1dp-13;\n"
     "    p = p * r + 0x1.5d87fe78b1bdep-10;\n"
     "    p = p * r + 0x1.3b2ab6fba0fddp-7;\n"
     "    p = p * r + 0x1.c6b08d704a0dcp-5;\n"
     "    p = p * r + 0x1.ebfbdff82c59dp-3;\n"
     "    p = p * r + 0x1.62e42fefa39efp-1;\n"
     "    p = p * r + 1;\n"
     "    return scale_$t(p, n);\n"
     "}\n"},
    {"expm1_$t", "f32x16 f32", "below_$t above_$t real_$t to_int_$t abs_$t pick_$t",
     "INLINE $v expm1_$t($v x)\n"
     "{\n"
     "    $v y = above_$t(below_$t(x, 89.0f), -18.0f);\n"
     "    $v n = (y * 0x1.715476p+0f + 0x1.8p23f) - 0x1.8p23f;\n"
     "    $v r = y - n * 0x1.63p-1f;\n"
     "    r = r - n * -0x1.bd0106p-13f;\n"
     "    $v p = r * 0x1.a2477ap-13f + 0x1.6d3c82p-10f;\n"
     "    p = p * r + 0x1.111002p-7f;\n"
     "    p = p * r + 0x1.5554f6p-5f;\n"
     "    p = p * r + 0x1.555556p-3f;\n"
     "    p = p * r + 0.5f;\n"
     "    p = (r * r) * p + r;\n"
     "    $v s = real_$t((to_int_$t(n) + 126) << 23); /* 2^(n-1), so that n = 128 does not overflow too early */\n"
     "    p = 2 * (s * p + (s - 0.5f));\n"
     "    return pick_$t(abs_$t(x) < 0x1p-25f, x, pick_$t(x == x, p, x));\n"
     "}\n"},
    {"expm1_$t", "f64x8 f64", "below_$t above_$t real_$t to_int_$t abs_$t pick_$t",
     "INLINE $v expm1_$t($v x)\n"
     "{\n"
     "    $v y = above_$t(below_$t(x, 710.0), -38.0);\n"
     "    $v n = (y * 0x1.71547652b82fep+0 + 0x1.8p52) - 0x1.8p52;\n"
     "    $v r = y - n * 0x1.62e42feep-1;\n"
     "    r = r - n * 0x1.a39ef35793c76p-33;\n"
     "    $v p = r * 0x1.1f7b4e75eea1bp-29 + 0x1.af5f5cca0081fp-26;\n"
     "    p = p * r + 0x1.27e4d6cf7d15fp-22;\n"
     "    p = p * r + 0x1.71ddf7f403aa6p-19;\n"
     "    p = p * r + 0x1.a01a01a887720p-16;\n"
     "    p = p * r + 0x1.a01a01b00d5aap-13;\n"
     "    p = p * r + 0x1.6c16c16c15f3ep-10;\n"
     "    p = p * r + 0x1.111111110f643p-7;\n"
     "    p = p * r + 0x1.5555555555556p-5;\n"
     "    p = p * r + 0x1.5555555555559p-3;\n"
     "    p = p * r + 0.5;\n"
     "    p = (r * r) * p + r;\n"
     "    $v s = real_$t((to_int_$t(n) + 1022) << 52);\n"
     "    p = 2 * (s * p + (s - 0.5));\n"
     "    return pick_$t(abs_$t(x) < 0x1p-54, x, pick_$t(x == x, p, x));\n"
     "}\n"},
    /* log and its kin: x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2). */
    {"log_end_$t", "f32x16 f32 f64x8 f64", "pick_$t fill_$t",
     "/* The value r for 0 < x < infinity; -infinity at 0, NaN below. */\n"
     "INLINE $v log_end_$t($v x, $v r)\n"
     "{\n"
     "    $v other = pick_$t(x == 0, fill_$t(-__builtin_inff()), pick_$t(x > 0, x, fill_$t(__builtin_nanf(\"\"))));\n"
     "    return pick_$t((x > 0) & (x < __builtin_inff()), r, other);\n"
     "}\n"},
    {"log_tail_$t", "f32x16 f32", "mad_$t",
     "/* log(1 + f) - f + start */\n"
     "INLINE $v log_tail_$t($v f, $v start)\n"
     "{\n"
     "    $v q = f * -0x1.41ecdep-4f + 0x1.07d2a6p-3f;\n"
     "    q = q * f - 0x1.0ce080p-3f;\n"
     "    q = q * f + 0x1.226da0p-3f;\n"
     "    q = q * f - 0x1.547886p-3f;\n"
     "    q = q * f + 0x1.99a5a6p-3f;\n"
     "    q = q * f - 0x1.000220p-2f;\n"
     "    q = q * f + 0x1.55554ap-2f;\n"
     "    q = q * f - 0.5f;\n"
     "    return mad_$t(f * f, q, start);\n"
     "}\n"},
    {"log_tail_$t", "f64x8 f64", "",
     "INLINE $v log_tail_$t($v f, $v start)\n"
     "{\n"
     "    $v s = f / (f + 2), z = s * s, h = 0.5 * f * f;\n"
     "    $v q = z * 0x1.2f048769c2a1ep-3 + 0x1.39a1d99ca7472p-3;\n"
     "    q = q * z + 0x1.74663d4830b60p-3;\n"
     "    q = q * z + 0x1.c71c5213dfc68p-3;\n"
     "    q = q * z + 0x1.24924941e03ffp-2;\n"
     "    q = q * z + 0x1.999999997ff40p-2;\n"
     "    q = q * z + 0x1.5555555555592p-1;\n"
     "    q = q * z + h;\n"
     "    q = s * q - h;\n"
     "    return q + start;\n"
     "}\n"},
    {"log_$t", "f32x16 f32", "real_$t pick_$t fill_$t to_real_$t log_tail_$t log_end_$t",
     "INLINE $v log_$t($v x)\n"
     "{\n"
     "    $i small = x < 0x1p-126f;\n"
     "    $i b = bits_$t(pick_$t(small, x * 0x1p25f, x)) - 0x3f3504f3;\n"
     "    $v n = to_real_$t(b >> 23) - pick_$t(small, fill_$t(25), fill_$t(0));\n"
     "    $v f = real_$t((b & 0x7fffff) + 0x3f3504f3) - 1;\n"
     "    $v r = log_tail_$t(f, n * -0x1.bd0106p-13f);\n"
     "    r = f + r;\n"
     "    return log_end_$t(x, n * 0x1.63p-1f + r);\n"
     "}\n"},
    {"log_$t", "f64x8 f64", "real_$t pick_$t fill_$t to_real_$t log_tail_$t log_end_$t",
     "INLINE $v log_$t($v x)\n"
     "{\n"
     "    $i small = x < 0x1p-1022;\n"
     "    $i b = bits_$t(pick_$t(small, x * 0x1p54, x)) - 0x3fe6a09e667f3bcd;\n"
     "    $v n = to_real_$t(b >> 52) - pick_$t(small, fill_$t(54), fill_$t(0));\n"
     "    $v f = real_$t((b & 0xfffffffffffff) + 0x3fe6a09e667f3bcd) - 1;\n"
     "    $v r = log_tail_$t(f, n * 0x1.a39ef35793c76p-33);\n"
     "    r = f + r;\n"
     "    return log_end_$t(x, n * 0x1.62e42feep-1 + r);\n"
     "}\n"},
    {"log2_$t", "f32x16 f32", "mad_$t real_$t pick_$t fill_$t to_real_$t log_end_$t",
     "INLINE $v log2_$t($v x)\n"
     "{\n"
     "    $i small = x < 0x1p-126f;\n"
     "    $i b = bits_$t(pick_$t(small, x * 0x1p25f, x)) - 0x3f3504f3;\n"
     "    $v n = to_real_$t(b >> 23) - pick_$t(small, fill_$t(25), fill_$t(0));\n"
     "    $v f = real_$t((b & 0x7fffff) + 0x3f3504f3) - 1;\n"
     "    $v q = f * -0x1.cea0b0p-4f + 0x1.7fa184p-3f;\n"
     "    q = q * f - 0x1.85decap-3f;\n"
     "    q = q * f + 0x1.a29010p-3f;\n"
     "    q = q * f - 0x1.eaddf4p-3f;\n"
     "    q = q * f + 0x1.2781cep-2f;\n"
     "    q = q * f - 0x1.7159c2p-2f;\n"
     "    q = q * f + 0x1.ec7086p-2f;\n"
     "    q = q * f - 0x1.715472p-1f;\n"
     "    $v r = mad_$t(f * f, q, f * 0x1.4ae0c0p-26f); /* log2(e) in two parts */\n"
     "    r = f * 0x1.715476p+0f + r;\n"
     "    return log_end_$t(x, n + r);\n"
     "}\n"},
    {"log2_$t", "f64x8 f64", "real_$t pick_$t fill_$t to_real_$t log_tail_$t log_end_$t",
     "INLINE $v log2_$t($v x)\n"
     "{\n"
     "    $i small = x < 0x1p-1022;\n"
     "    $i b = bits_$t(pick_$t(small, x * 0x1p54, x)) - 0x3fe6a09e667f3bcd;\n"
     "    $v n = to_real_$t(b >> 52) - pick_$t(small, fill_$t(54), fill_$t(0));\n"
     "    $v f = real_$t((b & 0xfffffffffffff) + 0x3fe6a09e667f3bcd) - 1;\n"
     "    $v t = log_tail_$t(f, fill_$t(0));\n"
     "    /* log(1 + f) = high + low, high with few bits so that its product with log2(e)'s high part is exact. */\n"
     "    $v high = real_$t(bits_$t(f + t) & ~0xffffffffl), low = (f - high) + t;\n"
     "    $v r = low * 0x1.71547652b82fep+0;\n"
     "    r = high * 0x1.94ae0bf85ddf4p-22 + r;\n"
     "    $v h = high * 0x1.71547p+0, s = n + h;\n"
     "    return log_end_$t(x, s + (((n - s) + h) + r));\n"
     "}\n"},
    {"log1p_$t", "f32x16 f32", "real_$t pick_$t fill_$t to_real_$t log_tail_$t log_end_$t abs_$t",
     "INLINE $v log1p_$t($v x)\n"
     "{\n"
     "    $v u = 1 + x, v = u - 1, c = (1 - (u - v)) + (x - v); /* 1 + x = u + c exactly */\n"
     "    $i b = bits_$t(u) - 0x3f3504f3, e = b >> 23;\n"
     "    $v n = to_real_$t(e);\n"
     "    $v f = real_$t((b & 0x7fffff) + 0x3f3504f3) - 1;\n"
     "    f = f + pick_$t(x < 0x1p40f, c * real_$t((127 - e) << 23), fill_$t(0));\n"
     "    $v r = log_tail_$t(f, n * -0x1.bd0106p-13f);\n"
     "    r = f + r;\n"
     "    r = log_end_$t(u, n * 0x1.63p-1f + r);\n"
     "    return pick_$t(abs_$t(x) < 0x1p-25f, x, r);\n"
     "}\n"},
    {"log1p_$t", "f64x8 f64", "real_$t pick_$t fill_$t to_real_$t log_tail_$t log_end_$t abs_$t",
     "INLINE $v log1p_$t($v x)\n"
     "{\n"
     "    $v u = 1 + x, v = u - 1, c = (1 - (u - v)) + (x - v);\n"
     "    $i b = bits_$t(u) - 0x3fe6a09e667f3bcd, e = b >> 52;\n"
     "    $v n = to_real_$t(e);\n"
     "    $v f = real_$t((b & 0xfffffffffffff) + 0x3fe6a09e667f3bcd) - 1;\n"
     "    f = f + pick_$t(x < 0x1p70, c * real_$t((1023 - e) << 52), fill_$t(0));\n"
     "    $v r = log_tail_$t(f, n * 0x1.a39ef35793c76p-33);\n"
     "    r = f + r;\n"
     "    r = log_end_$t(u, n * 0x1.62e42feep-1 + r);\n"
     "    return pick_$t(abs_$t(x) < 0x1p-54, x, r);\n"
     "}\n"},
    /* sin and cos: r = x - n pi/2 in three parts, exact in the first; beyond 2^16 the C library. */
    {"trig_libm", "", "",
     "extern double sin(double), cos(double), erf(double), erfc(double), pow(double, double), exp(double);\n"},
    {"trig_$t", "f32x16 f32", "real_$t pick_$t to_int_$t fill_$t",
     "/* sin(x + quarter * pi/2) for |x| <= 2^16 */\n"
     "INLINE $v trig_$t($v x, int quarter)\n"
     "{\n"
     "    $v n = (x * 0x1.45f306p-1f + 0x1.8p23f) - 0x1.8p23f;\n"
     "    $v r = x - n * 0x1.921fb6p+0f;\n"
     "    r = r - n * -0x1.777a5cp-25f;\n"
     "    r = r - n * -0x1.ee59dap-50f;\n"
     "    $i k = to_int_$t(n) + quarter;\n"
     "    $v z = r * r;\n"
     "    $v s = z * 0x1.7bf2ecp-19f - 0x1.a058e6p-13f;\n"
     "    s = s * z + 0x1.111174p-7f;\n"
     "    s = s * z - 0x1.555556p-3f;\n"
     "    s = (z * r) * s + r;\n"
     "    $v c = z * 0x1.99e1e4p-16f - 0x1.6c0c1cp-10f;\n"
     "    c = c * z + 0x1.55554ap-5f;\n"
     "    c = c * z - 0.5f;\n"
     "    c = c * z + 1;\n"
     "    return real_$t(bits_$t(pick_$t((k & 1) != 0, c, s)) ^ ((k & 2) << 30));\n"
     "}\n"},
    {"sin_f32", "", "trig_libm trig_f32 abs_f32",
     "INLINE float sin_f32(float x)\n"
     "{\n"
     "#ifdef __FMA__\n"
     "    if (abs_f32(x) <= 65536) return trig_f32(x, 0);\n"
     "#endif\n"
     "    return (float)sin(x);\n"
     "}\n"},
    {"cos_f32", "", "trig_libm trig_f32 abs_f32",
     "INLINE float cos_f32(float x)\n"
     "{\n"
     "#ifdef __FMA__\n"
     "    if (abs_f32(x) <= 65536) return trig_f32(x, 1);\n"
     "#endif\n"
     "    return (float)cos(x);\n"
     "}\n"},
    {"sin_f32x16", "", "trig_libm trig_f32x16 abs_f32x16 all_mask",
     "OUTLINE f32x16 sin_lanes(f32x16 x)\n"
     "{\n"
     "    for (int k = 0; k < 16; k++) x[k] = (float)sin(x[k]);\n"
     "    return x;\n"
     "}\n"
     "INLINE f32x16 sin_f32x16(f32x16 x)\n"
     "{\n"
     "#ifdef __FMA__\n"
     "    mask16 near = abs_f32x16(x) <= 65536;\n"
     "    if (__builtin_expect(all_mask(near), 1)) return trig_f32x16(x, 0);\n"
     "    f32x16 far = sin_lanes(x), r = trig_f32x16(x, 0);\n"
     "    return pick_f32x16(near, r, far);\n"
     "#else\n"
     "    return sin_lanes(x);\n"
     "#endif\n"
     "}\n"},
    {"cos_f32x16", "", "trig_libm trig_f32x16 abs_f32x16 all_mask",
     "OUTLINE f32x16 cos_lanes(f32x16 x)\n"
     "{\n"
     "    for (int k = 0; k < 16; k++) x[k] = (float)cos(x[k]);\n"
     "    return x;\n"
     "}\n"
     "INLINE f32x16 cos_f32x16(f32x16 x)\n"
     "{\n"
     "#ifdef __FMA__\n"
     "    mask16 near = abs_f32x16(x) <= 65536;\n"
     "    if (__builtin_expect(all_mask(near), 1)) return trig_f32x16(x, 1);\n"
     "    f32x16 far = cos_lanes(x), r = trig_f32x16(x, 1);\n"
     "    return pick_f32x16(near, r, far);\n"
     "#else\n"
     "    return cos_lanes(x);\n"
     "#endif\n"
     "}\n"},
    {"sin_f64", "", "trig_libm", "INLINE double sin_f64(double x) { return sin(x); }\n"},
    {"cos_f64", "", "trig_libm", "INLINE double cos_f64(double x) { return cos(x); }\n"},
    {"erf_f64", "", "trig_libm", "INLINE double erf_f64(double x) { return erf(x); }\n"},
    {"pow_f64", "", "trig_libm", "INLINE double pow_f64(double x, double y) { return pow(x, y); }\n"},
    {"gelu_f64", "", "trig_libm",
     "INLINE double gelu_f64(double x)\n"
     "{\n"
     "    double z = x * -0x1.6a09e667f3bcdp-1, rest = __builtin_fma(x, -0x1.6a09e667f3bcdp-1, -z);\n"
     "    rest = x * 0x1.bdd3413b26456p-55 + rest; /* -x / sqrt(2) = z + rest */\n"
     "    if (!(z < 40)) return x == x ? -0.0 : x;\n"
     "    if (z < -30) return x;\n"
     "    return 0.5 * x * (erfc(z) - rest * (0x1.20dd750429b6dp+0 * exp(-z * z)));\n"
     "}\n"},
    {"$t_f64x8", "sin cos erf gelu", "$t_f64",
     "INLINE f64x8 $t_f64x8(f64x8 x)\n"
     "{\n"
     "    for (int k = 0; k < 8; k++) x[k] = $t_f64(x[k]);\n"
     "    return x;\n"
     "}\n"},
    {"pow_f64x8", "", "pow_f64",
     "INLINE f64x8 pow_f64x8(f64x8 x, f64x8 y)\n"
     "{\n"
     "    for (int k = 0; k < 8; k++) x[k] = pow_f64(x[k], y[k]);\n"
     "    return x;\n"
     "}\n"},
    /* tanh, sigmoid and what neural networks make of them. e = exp(-|x|) never overflows. */
    {"tanh_$t", "f32x16 f32", "exp_$t recip_$t abs_$t with_sign_$t pick_$t below_$t",
     "INLINE $v tanh_$t($v x)\n"
     "{\n"
     "    $v size = abs_$t(x), z = x * x;\n"
     "    $v s = z * -0x1.76917ap-8f + 0x1.525078p-6f;\n"
     "    s = s * z - 0x1.b8433cp-5f;\n"
     "    s = s * z + 0x1.110760p-3f;\n"
     "    s = s * z - 0x1.555534p-2f;\n"
     "    s = (z * x) * s + x;\n"
     "    $v b = 1 - 2 * recip_$t(exp_$t(2 * below_$t(size, 10.0f)) + 1);\n"
     "    return pick_$t(size < 0.625f, s, with_sign_$t(b, x));\n"
     "}\n"},
    {"tanh_$t", "f64x8 f64", "exp_$t recip_$t abs_$t with_sign_$t pick_$t below_$t",
     "INLINE $v tanh_$t($v x)\n"
     "{\n"
     "    $v size = abs_$t(x), z = x * x;\n"
     "    $v s = z * -0x1.1b42663bb30f6p-19 + 0x1.7e4c940c59081p-17;\n"
     "    s = s * z - 0x1.2f8ad72ff8b0cp-15;\n"
     "    s = s * z + 0x1.906e49a69eb6dp-14;\n"
     "    s = s * z - 0x1.f47f3aff95de1p-13;\n"
     "    s = s * z + 0x1.35495ff2fbb8bp-11;\n"
     "    s = s * z - 0x1.7da22d6afdd50p-10;\n"
     "    s = s * z + 0x1.d6d3bf0a9928ep-9;\n"
     "    s = s * z - 0x1.226e3505aecb1p-7;\n"
     "    s = s * z + 0x1.664f488088b73p-6;\n"
     "    s = s * z - 0x1.ba1ba1ba133c1p-5;\n"
     "    s = s * z + 0x1.1111111111091p-3;\n"
     "    s = s * z - 0x1.5555555555555p-2;\n"
     "    s = (z * x) * s + x;\n"
     "    $v b = 1 - 2 * recip_$t(exp_$t(2 * below_$t(size, 20.0)) + 1);\n"
     "    return pick_$t(size < 0.625, s, with_sign_$t(b, x));\n"
     "}\n"},
    {"sigmoid_$t", "f32x16 f32 f64x8 f64", "exp_$t recip_$t abs_$t pick_$t fill_$t",
     "INLINE $v sigmoid_$t($v x)\n"
     "{\n"
     "    $v e = exp_$t(-abs_$t(x));\n"
     "    return pick_$t(x < 0, e, fill_$t(1)) * recip_$t(1 + e);\n"
     "}\n"},
    {"silu_$t", "f32x16 f32 f64x8 f64", "exp_parts_$t recip_$t abs_$t pick_$t fill_$t scale_$t above_$t",
     "INLINE $v silu_$t($v x)\n"
     "{\n"
     "    /* Scaled last, so that the far negative tail loses nothing to subnormal steps. */\n"
     "    $v n, p = exp_parts_$t(-abs_$t(x), fill_$t(0), &n), r = recip_$t(1 + scale_$t(p, n));\n"
     "    $v y = pick_$t(x < 0, p, fill_$t(1)) * r;\n"
     "    return scale_$t(y * above_$t(x, -1500), pick_$t(x < 0, n, fill_$t(0)));\n"
     "}\n"},
    {"softplus_$t", "f32x16 f32 f64x8 f64", "exp_$t log1p_$t abs_$t above_$t",
     "INLINE $v softplus_$t($v x) { return above_$t(x, 0) + log1p_$t(exp_$t(-abs_$t(x))); }\n"},
    {"gelu_tanh_$t", "f32x16 f32", "exp_parts_$t recip_$t abs_$t pick_$t fill_$t scale_$t above_$t below_$t fma_$t",
     "INLINE $v gelu_tanh_$t($v x)\n"
     "{\n"
     "    /* x sigmoid(v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3) in two parts: its error would be the tail's. */\n"
     "    $v a = below_$t(abs_$t(x), 20.0f), s = a * a, s_low = fma_$t(a, a, -s);\n"
     "    $v q = s * 0x1.2444f2p-4f + 0x1.98844p+0f;\n"
     "    $v q_low = fma_$t(s, fill_$t(0x1.2444f2p-4f), 0x1.98844p+0f - q);\n"
     "    q_low = s_low * 0x1.2444f2p-4f + q_low;\n"
     "    q_low = s * 0x1.49b16ap-29f + q_low;\n"
     "    q_low = q_low + 0x1.33d436p-20f;\n"
     "    $v v = a * q, v_low = fma_$t(a, q, -v);\n"
     "    v_low = a * q_low + v_low;\n"
     "    $v n, p = exp_parts_$t(-v, -v_low, &n), r = recip_$t(1 + scale_$t(p, n));\n"
     "    $v y = pick_$t(x < 0, p, fill_$t(1)) * r;\n"
     "    return scale_$t(y * above_$t(x, -20.0f), pick_$t(x < 0, n, fill_$t(0)));\n"
     "}\n"},
    {"gelu_tanh_$t", "f64x8 f64", "exp_parts_$t recip_$t abs_$t pick_$t fill_$t scale_$t above_$t below_$t fma_$t",
     "INLINE $v gelu_tanh_$t($v x)\n"
     "{\n"
     "    $v a = below_$t(abs_$t(x), 40.0), s = a * a, s_low = fma_$t(a, a, -s);\n"
     "    $v q = s * 0x1.2444f2a4d8b4bp-4 + 0x1.9884533d4364p+0;\n"
     "    $v q_low = fma_$t(s, fill_$t(0x1.2444f2a4d8b4bp-4), 0x1.9884533d4364p+0 - q);\n"
     "    q_low = s_low * 0x1.2444f2a4d8b4bp-4 + q_low;\n"
     "    q_low = s * -0x1.6c843a29d1c70p-61 + q_low;\n"
     "    q_low = q_low + 0x1.08d0fcb3c500cp-48;\n"
     "    $v v = a * q, v_low = fma_$t(a, q, -v);\n"
     "    v_low = a * q_low + v_low;\n"
     "    $v n, p = exp_parts_$t(-v, -v_low, &n), r = recip_$t(1 + scale_$t(p, n));\n"
     "    $v y = pick_$t(x < 0, p, fill_$t(1)) * r;\n"
     "    return scale_$t(y * above_$t(x, -40.0), pick_$t(x < 0, n, fill_$t(0)));\n"
     "}\n"},
    {"gelu_$t", "f32x16 f32", "exp_parts_$t recip_$t abs_$t pick_$t scale_$t above_$t below_$t real_$t",
     "INLINE $v gelu_$t($v x)\n"
     "{\n"
     "    /* Phi(-a) = exp(-a^2 / 2) h(a), h(a) (a + 4) a polynomial in u = (a - 4) / (a + 4). */\n"
     "    $v a = below_$t(abs_$t(x), 15.0f), d = a + 4, t = recip_$t(d), u = (a - 4) * t;\n"
     "    $v e = 1 - d * t; /* what is missing in t and d, given back to u and h */\n"
     "    e = e - (a - (d - 4)) * t;\n"
     "    u = u * e + u;\n"
     "    $v h = u * -0x1.112da8p-13f + 0x1.92cd52p-13f;\n"
     "    h = h * u + 0x1.9ef744p-10f;\n"
     "    h = h * u - 0x1.cd4cd8p-9f;\n"
     "    h = h * u - 0x1.edcebcp-8f;\n"
     "    h = h * u + 0x1.eed722p-5f;\n"
     "    h = h * u - 0x1.7dfeeep-3f;\n"
     "    h = h * u + 0x1.8c6d8ep-2f;\n"
     "    h = h * u - 0x1.373e3cp-1f;\n"
     "    h = h * u + 0x1.82b4bcp-1f;\n"
     "    h = h * t;\n"
     "    h = h * e + h;\n"
     "    $v top = real_$t(bits_$t(a) & ~0xfff), rest = (a - top) * (a + top); /* a^2 = top^2 + rest */\n"
     "    $v n, p = exp_parts_$t(-0.5f * (top * top), -0.5f * rest, &n);\n"
     "    p = p * h;\n"
     "    $v far = pick_$t(x < 0, scale_$t(p * above_$t(x, -15.0f), n), x * (1 - scale_$t(p, n)));\n"
     "    $v z = x * x; /* up to 1: Phi(x) = 1/2 + x G(x^2) */\n"
     "    $v g = z * -0x1.212ff6p-17f + 0x1.e7403ap-14f;\n"
     "    g = g * z - 0x1.37b412p-10f;\n"
     "    g = g * z + 0x1.46d88p-7f;\n"
     "    g = g * z - 0x1.10586ep-4f;\n"
     "    g = g * z + 0x1.988454p-2f;\n"
     "    g = g * x + 0.5f;\n"
     "    return pick_$t(z < 1, x * g, far);\n"
     "}\n"},
    {"erf_$t", "f32x16 f32", "exp_$t abs_$t with_sign_$t pick_$t below_$t",
     "INLINE $v erf_$t($v x)\n"
     "{\n"
     "    $v size = abs_$t(x), z = x * x;\n"
     "    $v s = z * 0x1.4c37fcp-14f - 0x1.a50c28p-11f;\n"
     "    s = s * z + 0x1.542e2cp-8f;\n"
     "    s = s * z - 0x1.b7fe92p-6f;\n"
     "    s = s * z + 0x1.ce2d50p-4f;\n"
     "    s = s * z - 0x1.812740p-2f;\n"
     "    s = s * z + 0x1.06eba8p-3f;\n"
     "    s = s * x + x;\n"
     "    $v t = below_$t(size, 4.0f) - 2; /* the logarithm of erfc */\n"
     "    $v b = t * 0x1.60dfbcp-20f - 0x1.02bf28p-17f;\n"
     "    b = b * t + 0x1.5a2b56p-13f;\n"
     "    b = b * t - 0x1.7979f8p-11f;\n"
     "    b = b * t + 0x1.d201d8p-9f;\n"
     "    b = b * t - 0x1.0dfd7ep-6f;\n"
     "    b = b * t - 0x1.d8f61cp-1f;\n"
     "    b = b * t - 0x1.1ac322p+2f;\n"
     "    b = b * t - 0x1.575b32p+2f;\n"
     "    return pick_$t(size < 1, s, with_sign_$t(1 - exp_$t(b), x));\n"
     "}\n"},
    /* pow in float goes through double. */
    {"pow_wide_$t", "f64x8 f64", "exp2_$t log2_$t abs_$t pick_$t fill_$t floor_$t with_sign_$t",
     "INLINE $v pow_wide_$t($v x, $v y)\n"
     "{\n"
     "    $v size = abs_$t(x), whole = floor_$t(y), half = 0.5 * y;\n"
     "    $v r = exp2_$t(pick_$t(size == 1, fill_$t(0), y * log2_$t(size)));\n"
     "    $i odd = (whole == y) & (floor_$t(half) != half);\n"
     "    r = pick_$t(odd, with_sign_$t(r, x), r);\n"
     "    r = pick_$t((x < 0) & (whole != y) & (x > -__builtin_inf()), fill_$t(__builtin_nan(\"\")), r);\n"
     "    r = pick_$t((x != x) | (y != y), x + y, r);\n"
     "    return pick_$t((y == 0) | (x == 1), fill_$t(1), r);\n"
     "}\n"},
    {"pow_f32", "", "pow_wide_f64", "INLINE float pow_f32(float x, float y) { return (float)pow_wide_f64(x, y); }\n"},
    {"pow_f32x16", "", "pow_wide_f64x8 split_f32",
     "INLINE f32x16 pow_f32x16(f32x16 x, f32x16 y)\n"
     "{\n"
     "    return join_f32(pow_wide_f64x8(half_f32(x, 0), half_f32(y, 0)), pow_wide_f64x8(half_f32(x, 1), half_f32(y, "
     "1)));\n"
     "}\n"},
    {0},
};
