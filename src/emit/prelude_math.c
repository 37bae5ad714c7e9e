/*
 * The functions of the prelude, first part: bits, choice, rounding, powers of two. Each function of the three parts is
 * written once and instantiated for vectors and scalars, so that both give the same bits. Sums of products are meant to
 * fuse where the processor can (-ffp-contract=fast); where fusing is needed for correctness it says fma or mad.
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
    {"mod_$t", "f64x8 f64", "floor_$t",
     "INLINE $v mod_$t($v x, $v y)\n"
     "{\n"
     "    $v product = y * floor_$t(x / y);\n"
     "    __asm__(\"\" : \"+m\"(product)); /* not fused: the difference is taken of the rounded product, as everywhere "
     "*/\n"
     "    return x - product;\n"
     "}\n"},
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
    {0},
};
