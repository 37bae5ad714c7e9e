/*
 * The core of the prelude: masks, comparisons, integer operations, folds, random numbers, atomics.
 * In and out: text templates, see prelude_parts.h.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_parts.h"

const prelude_part prelude_core_parts[] = {
    /* Of a function with several bodies in one loop: gcc mixes their instructions only when asked. */
    {"OVERLAP", "", "",
     "#if defined(__GNUC__) && !defined(__clang__)\n"
     "#define OVERLAP __attribute__((optimize(\"schedule-insns\")))\n"
     "#else\n"
     "#define OVERLAP\n"
     "#endif\n"},
    /* Masks. A mask is i32x16 with lanes 0 or -1. */
    {"select_$tx16", "f32 i32 u32", "",
     "INLINE $tx16 select_$tx16(mask16 m, $tx16 a, $tx16 b) { return ($tx16)(((i32x16)a & m) | ((i32x16)b & ~m)); }\n"},
    {"select_$tx16", "i8 u8 i16 u16", "",
     "INLINE $tx16 select_$tx16(mask16 m, $tx16 a, $tx16 b)\n"
     "{\n"
     "    $jx16 w = __builtin_convertvector(m, $jx16);\n"
     "    return ($tx16)((($jx16)a & w) | (($jx16)b & ~w));\n"
     "}\n"},
    {"select_$tx16", "f64 i64 u64", "split_i32",
     "INLINE $tx16 select_$tx16(mask16 m, $tx16 a, $tx16 b)\n"
     "{\n"
     "    union { $tx16 whole; i64x8 half[2]; } x = {a}, y = {b};\n"
     "    for (int h = 0; h < 2; h++) {\n"
     "        i64x8 w = __builtin_convertvector(half_i32(m, h), i64x8);\n"
     "        x.half[h] = (x.half[h] & w) | (y.half[h] & ~w);\n"
     "    }\n"
     "    return x.whole;\n"
     "}\n"},
    {"select_boolx16", "", "",
     "INLINE mask16 select_boolx16(mask16 m, mask16 a, mask16 b) { return (a & m) | (b & ~m); }\n"},
    {"split_i32", "", "",
     "INLINE i32x8 half_i32(i32x16 v, int h)\n"
     "{\n"
     "    return h ? __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)\n"
     "             : __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);\n"
     "}\n"
     "INLINE i32x16 join_i32(i32x8 a, i32x8 b)\n"
     "{\n"
     "    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);\n"
     "}\n"},
    {"mask_bits", "", "",
     "INLINE unsigned mask_bits(mask16 m)\n"
     "{\n"
     "#ifdef MASK_REGISTERS\n"
     "    unsigned short bits;\n"
     "    __asm__(\"vpmovd2m %1, %0\" : \"=Yk\"(bits) : \"v\"(m));\n"
     "    return bits;\n"
     "#else\n"
     "    unsigned bits = 0;\n"
     "    for (int k = 0; k < 16; k++) bits |= (m[k] & 1u) << k;\n"
     "    return bits;\n"
     "#endif\n"
     "}\n"},
    {"any_mask", "", "mask_bits", "INLINE int any_mask(mask16 m) { return mask_bits(m) != 0; }\n"},
    {"all_mask", "", "mask_bits", "INLINE int all_mask(mask16 m) { return mask_bits(m) == 0xffff; }\n"},
    {"count_mask", "", "mask_bits", "INLINE int count_mask(mask16 m) { return __builtin_popcount(mask_bits(m)); }\n"},
    {"iota_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "",
     "INLINE $tx16 iota_$tx16(void) { return ($tx16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }\n"},
    {"splat_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "",
     "INLINE $tx16 splat_$tx16($c x) { return ($tx16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }\n"},
    {"splat_boolx16", "", "splat_i32x16", "INLINE mask16 splat_boolx16(int x) { return splat_i32x16(-(x != 0)); }\n"},
    {"room_of", "", "",
     "/* Bytes of `extent` parts; more than any memory where that is no number. */\n"
     "INLINE long room_of(long extent, long bytes)\n"
     "{\n"
     "    long all;\n"
     "    if (extent <= 0) return 0;\n"
     "    return __builtin_mul_overflow(extent, bytes, &all) || all > 1L << 56 ? 1L << 56 : all;\n"
     "}\n"},
    {"first_mask", "", "iota_i32x16 splat_i32x16",
     "INLINE mask16 first_mask(long count) { return iota_i32x16() < splat_i32x16((int)count); }\n"},
    /* Comparisons. */
    {"lt_$tx16", "f32 i32 u32", "", "INLINE mask16 lt_$tx16($tx16 a, $tx16 b) { return (mask16)(a < b); }\n"},
    {"le_$tx16", "f32 i32 u32", "", "INLINE mask16 le_$tx16($tx16 a, $tx16 b) { return (mask16)(a <= b); }\n"},
    {"gt_$tx16", "f32 i32 u32", "", "INLINE mask16 gt_$tx16($tx16 a, $tx16 b) { return (mask16)(a > b); }\n"},
    {"ge_$tx16", "f32 i32 u32", "", "INLINE mask16 ge_$tx16($tx16 a, $tx16 b) { return (mask16)(a >= b); }\n"},
    {"eq_$tx16", "f32 i32 u32", "", "INLINE mask16 eq_$tx16($tx16 a, $tx16 b) { return (mask16)(a == b); }\n"},
    {"ne_$tx16", "f32 i32 u32", "", "INLINE mask16 ne_$tx16($tx16 a, $tx16 b) { return (mask16)(a != b); }\n"},
    {"lt_$tx16", "i8 u8 i16 u16", "",
     "INLINE mask16 lt_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a < b, i32x16); }\n"},
    {"le_$tx16", "i8 u8 i16 u16", "",
     "INLINE mask16 le_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a <= b, i32x16); }\n"},
    {"gt_$tx16", "i8 u8 i16 u16", "",
     "INLINE mask16 gt_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a > b, i32x16); }\n"},
    {"ge_$tx16", "i8 u8 i16 u16", "",
     "INLINE mask16 ge_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a >= b, i32x16); }\n"},
    {"eq_$tx16", "i8 u8 i16 u16", "",
     "INLINE mask16 eq_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a == b, i32x16); }\n"},
    {"ne_$tx16", "i8 u8 i16 u16", "",
     "INLINE mask16 ne_$tx16($tx16 a, $tx16 b) { return __builtin_convertvector(a != b, i32x16); }\n"},
    {"lt_$tx16", "f64 i64 u64", "split_i32",
     "INLINE mask16 lt_$tx16($tx16 a, $tx16 b)\n"
     "{\n"
     "    union { $tx16 whole; $tx8 half[2]; } x = {a}, y = {b};\n"
     "    return join_i32(__builtin_convertvector(x.half[0] < y.half[0], i32x8),\n"
     "                    __builtin_convertvector(x.half[1] < y.half[1], i32x8));\n"
     "}\n"},
    {"le_$tx16", "f64 i64 u64", "split_i32",
     "INLINE mask16 le_$tx16($tx16 a, $tx16 b)\n"
     "{\n"
     "    union { $tx16 whole; $tx8 half[2]; } x = {a}, y = {b};\n"
     "    return join_i32(__builtin_convertvector(x.half[0] <= y.half[0], i32x8),\n"
     "                    __builtin_convertvector(x.half[1] <= y.half[1], i32x8));\n"
     "}\n"},
    {"gt_$tx16", "f64 i64 u64", "lt_$tx16", "INLINE mask16 gt_$tx16($tx16 a, $tx16 b) { return lt_$tx16(b, a); }\n"},
    {"ge_$tx16", "f64 i64 u64", "le_$tx16", "INLINE mask16 ge_$tx16($tx16 a, $tx16 b) { return le_$tx16(b, a); }\n"},
    {"eq_$tx16", "f64 i64 u64", "split_i32",
     "INLINE mask16 eq_$tx16($tx16 a, $tx16 b)\n"
     "{\n"
     "    union { $tx16 whole; $tx8 half[2]; } x = {a}, y = {b};\n"
     "    return join_i32(__builtin_convertvector(x.half[0] == y.half[0], i32x8),\n"
     "                    __builtin_convertvector(x.half[1] == y.half[1], i32x8));\n"
     "}\n"},
    {"ne_$tx16", "f64 i64 u64", "eq_$tx16", "INLINE mask16 ne_$tx16($tx16 a, $tx16 b) { return ~eq_$tx16(a, b); }\n"},
    {"lt_$t", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "", "INLINE int lt_$t($c a, $c b) { return a < b; }\n"},
    {"le_$t", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "", "INLINE int le_$t($c a, $c b) { return a <= b; }\n"},
    {"gt_$t", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "", "INLINE int gt_$t($c a, $c b) { return a > b; }\n"},
    {"ge_$t", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "", "INLINE int ge_$t($c a, $c b) { return a >= b; }\n"},
    {"eq_$t", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "", "INLINE int eq_$t($c a, $c b) { return a == b; }\n"},
    {"ne_$t", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "", "INLINE int ne_$t($c a, $c b) { return a != b; }\n"},
    /* Closed to the optimiser: what goes in is not fused with what comes out. */
    {"exact_$tx16", "f32", "",
     "INLINE $tx16 exact_$tx16($tx16 x)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    __asm__(\"\" : \"+v\"(x));\n"
     "#else\n"
     "    __asm__(\"\" : \"+m\"(x));\n"
     "#endif\n"
     "    return x;\n"
     "}\n"},
    {"exact_$tx16", "f64", "",
     "INLINE $tx16 exact_$tx16($tx16 x)\n"
     "{\n"
     "    __asm__(\"\" : \"+m\"(x));\n"
     "    return x;\n"
     "}\n"},
    {"exact_$t", "f32 f64", "",
     "INLINE $c exact_$t($c x)\n"
     "{\n"
     "#ifdef __SSE2__\n"
     "    __asm__(\"\" : \"+x\"(x));\n"
     "#else\n"
     "    __asm__(\"\" : \"+m\"(x));\n"
     "#endif\n"
     "    return x;\n"
     "}\n"},
    {"exact_$tx16", "i8 i16 i32 i64 u8 u16 u32 u64", "", "INLINE $tx16 exact_$tx16($tx16 x) { return x; }\n"},
    {"exact_$t", "i8 i16 i32 i64 u8 u16 u32 u64", "", "INLINE $c exact_$t($c x) { return x; }\n"},
    /* Integers. */
    {"min_$tx16", "i8 i16 i32 u8 u16 u32", "",
     "INLINE $tx16 min_$tx16($tx16 a, $tx16 b)\n"
     "{\n"
     "    $jx16 m = ($jx16)(a < b);\n"
     "    return ($tx16)((($jx16)a & m) | (($jx16)b & ~m));\n"
     "}\n"},
    {"max_$tx16", "i8 i16 i32 u8 u16 u32", "",
     "INLINE $tx16 max_$tx16($tx16 a, $tx16 b)\n"
     "{\n"
     "    $jx16 m = ($jx16)(a > b);\n"
     "    return ($tx16)((($jx16)a & m) | (($jx16)b & ~m));\n"
     "}\n"},
    {"min_$tx16", "i64 u64", "lt_$tx16 select_$tx16",
     "INLINE $tx16 min_$tx16($tx16 a, $tx16 b) { return select_$tx16(lt_$tx16(a, b), a, b); }\n"},
    {"max_$tx16", "i64 u64", "lt_$tx16 select_$tx16",
     "INLINE $tx16 max_$tx16($tx16 a, $tx16 b) { return select_$tx16(lt_$tx16(a, b), b, a); }\n"},
    {"min_$t", "i8 i16 i32 i64 u8 u16 u32 u64", "", "INLINE $c min_$t($c a, $c b) { return a < b ? a : b; }\n"},
    {"max_$t", "i8 i16 i32 i64 u8 u16 u32 u64", "", "INLINE $c max_$t($c a, $c b) { return a > b ? a : b; }\n"},
    {"abs_$tx16", "i8 i16 i32 i64", "",
     "INLINE $tx16 abs_$tx16($tx16 a)\n"
     "{\n"
     "    $tx16 s = a >> ($b - 1);\n"
     "    return ($tx16)((($ux16)a ^ ($ux16)s) - ($ux16)s);\n"
     "}\n"},
    {"abs_$tx16", "u8 u16 u32 u64", "", "INLINE $tx16 abs_$tx16($tx16 a) { return a; }\n"},
    {"abs_$t", "i8 i16 i32 i64", "", "INLINE $c abs_$t($c a) { return a < 0 ? ($c)(0 - (unsigned long)a) : a; }\n"},
    {"abs_$t", "u8 u16 u32 u64", "", "INLINE $c abs_$t($c a) { return a; }\n"},
    {"sign_$tx16", "i8 i16 i32 i64", "",
     "INLINE $tx16 sign_$tx16($tx16 a) { return (a >> ($b - 1)) | ($tx16)(($ux16)-a >> ($b - 1)); }\n"},
    {"sign_$tx16", "u8 u16 u32 u64", "", "INLINE $tx16 sign_$tx16($tx16 a) { return ($tx16)(a != 0) & 1; }\n"},
    {"sign_$t", "i8 i16 i32 i64 u8 u16 u32 u64", "", "INLINE $c sign_$t($c a) { return ($c)((a > 0) - (a < 0)); }\n"},
    {"div_$t", "i8 i16 i32 i64", "",
     "INLINE $c div_$t($c a, $c b)\n"
     "{\n"
     "    if (b == 0) return 0;\n"
     "    if (b == -1) return ($c)(0 - (unsigned long)a);\n"
     "    $c q = ($c)(a / b);\n"
     "    return ($c)(q - ((a % b != 0) & ((a < 0) != (b < 0))));\n"
     "}\n"},
    {"mod_$t", "i8 i16 i32 i64", "",
     "INLINE $c mod_$t($c a, $c b)\n"
     "{\n"
     "    if (b == 0 || b == -1) return 0;\n"
     "    $c r = ($c)(a % b);\n"
     "    return ($c)(r + ((r != 0) & ((r < 0) != (b < 0)) ? b : 0));\n"
     "}\n"},
    {"div_$t", "u8 u16 u32 u64", "", "INLINE $c div_$t($c a, $c b) { return b ? ($c)(a / b) : 0; }\n"},
    {"mod_$t", "u8 u16 u32 u64", "", "INLINE $c mod_$t($c a, $c b) { return b ? ($c)(a % b) : 0; }\n"},
    {"div_$tx16", "i8 i16 i32 i64 u8 u16 u32 u64", "div_$t",
     "INLINE $tx16 div_$tx16($tx16 a, $tx16 b)\n"
     "{\n"
     "    $tx16 r;\n"
     "    for (int k = 0; k < 16; k++) r[k] = div_$t(a[k], b[k]);\n"
     "    return r;\n"
     "}\n"},
    {"mod_$tx16", "i8 i16 i32 i64 u8 u16 u32 u64", "mod_$t",
     "INLINE $tx16 mod_$tx16($tx16 a, $tx16 b)\n"
     "{\n"
     "    $tx16 r;\n"
     "    for (int k = 0; k < 16; k++) r[k] = mod_$t(a[k], b[k]);\n"
     "    return r;\n"
     "}\n"},
    {"shl_$tx16", "i8 i16 i32 i64 u8 u16 u32 u64", "",
     "INLINE $tx16 shl_$tx16($tx16 a, $tx16 n) { return ($tx16)(($ux16)a << (($ux16)n & ($b - 1))); }\n"},
    {"shr_$tx16", "i8 i16 i32 i64 u8 u16 u32 u64", "",
     "INLINE $tx16 shr_$tx16($tx16 a, $tx16 n) { return a >> (n & ($b - 1)); }\n"},
    {"shl_$t", "i8 i16 i32 i64 u8 u16 u32 u64", "",
     "INLINE $c shl_$t($c a, $c n) { return ($c)((unsigned long)a << (n & ($b - 1))); }\n"},
    {"shr_$t", "i8 i16 i32 i64 u8 u16 u32 u64", "",
     "INLINE $c shr_$t($c a, $c n) { return ($c)(a >> (n & ($b - 1))); }\n"},
    /* Horizontal folds, by halves; and prefixes. */
    {"rotate_$tx16", "f32 i32 u32", "",
     "#define ROTATE8_$t(v) __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)\n"
     "#define ROTATE4_$t(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)\n"
     "#define ROTATE2_$t(v) __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)\n"
     "#define ROTATE1_$t(v) __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)\n"},
    {"fold_sum_$tx16", "f32 i32 u32", "rotate_$tx16",
     "INLINE $c fold_sum_$tx16($tx16 v)\n"
     "{\n"
     "    v += ROTATE8_$t(v);\n"
     "    v += ROTATE4_$t(v);\n"
     "    v += ROTATE2_$t(v);\n"
     "    v += ROTATE1_$t(v);\n"
     "    return v[0];\n"
     "}\n"},
    {"fold_prod_$tx16", "f32 i32 u32", "rotate_$tx16",
     "INLINE $c fold_prod_$tx16($tx16 v)\n"
     "{\n"
     "    v *= ROTATE8_$t(v);\n"
     "    v *= ROTATE4_$t(v);\n"
     "    v *= ROTATE2_$t(v);\n"
     "    v *= ROTATE1_$t(v);\n"
     "    return v[0];\n"
     "}\n"},
    {"fold_max_$tx16", "f32 i32 u32", "rotate_$tx16 max_$tx16",
     "INLINE $c fold_max_$tx16($tx16 v)\n"
     "{\n"
     "    v = max_$tx16(v, ROTATE8_$t(v));\n"
     "    v = max_$tx16(v, ROTATE4_$t(v));\n"
     "    v = max_$tx16(v, ROTATE2_$t(v));\n"
     "    v = max_$tx16(v, ROTATE1_$t(v));\n"
     "    return v[0];\n"
     "}\n"},
    {"fold_min_$tx16", "f32 i32 u32", "rotate_$tx16 min_$tx16",
     "INLINE $c fold_min_$tx16($tx16 v)\n"
     "{\n"
     "    v = min_$tx16(v, ROTATE8_$t(v));\n"
     "    v = min_$tx16(v, ROTATE4_$t(v));\n"
     "    v = min_$tx16(v, ROTATE2_$t(v));\n"
     "    v = min_$tx16(v, ROTATE1_$t(v));\n"
     "    return v[0];\n"
     "}\n"},
    {"fold_sum_$tx16", "f64 i8 i16 i64 u8 u16 u64", "",
     "INLINE $c fold_sum_$tx16($tx16 v)\n"
     "{\n"
     "    for (int w = 8; w; w /= 2)\n"
     "        for (int k = 0; k < w; k++) v[k] = ($c)(v[k] + v[k + w]);\n"
     "    return v[0];\n"
     "}\n"},
    {"fold_prod_$tx16", "f64 i8 i16 i64 u8 u16 u64", "",
     "INLINE $c fold_prod_$tx16($tx16 v)\n"
     "{\n"
     "    for (int w = 8; w; w /= 2)\n"
     "        for (int k = 0; k < w; k++) v[k] = ($c)(v[k] * v[k + w]);\n"
     "    return v[0];\n"
     "}\n"},
    {"fold_max_$tx16", "f64 i8 i16 i64 u8 u16 u64", "max_$t",
     "INLINE $c fold_max_$tx16($tx16 v)\n"
     "{\n"
     "    for (int w = 8; w; w /= 2)\n"
     "        for (int k = 0; k < w; k++) v[k] = max_$t(v[k], v[k + w]);\n"
     "    return v[0];\n"
     "}\n"},
    {"fold_min_$tx16", "f64 i8 i16 i64 u8 u16 u64", "min_$t",
     "INLINE $c fold_min_$tx16($tx16 v)\n"
     "{\n"
     "    for (int w = 8; w; w /= 2)\n"
     "        for (int k = 0; k < w; k++) v[k] = min_$t(v[k], v[k + w]);\n"
     "    return v[0];\n"
     "}\n"},
    {"scan_sum_$tx16", "f32 i32 u32", "",
     "INLINE $tx16 scan_sum_$tx16($tx16 v)\n"
     "{\n"
     "    $tx16 o = {0};\n"
     "    v += __builtin_shufflevector(v, o, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);\n"
     "    v += __builtin_shufflevector(v, o, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13);\n"
     "    v += __builtin_shufflevector(v, o, 16, 16, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);\n"
     "    v += __builtin_shufflevector(v, o, 16, 16, 16, 16, 16, 16, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7);\n"
     "    return v;\n"
     "}\n"},
    {"scan_sum_$tx16", "f64 i8 i16 i64 u8 u16 u64", "",
     "INLINE $tx16 scan_sum_$tx16($tx16 v)\n"
     "{\n"
     "    for (int k = 1; k < 16; k++) v[k] = ($c)(v[k] + v[k - 1]);\n"
     "    return v;\n"
     "}\n"},
    {"scan_prod_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "",
     "INLINE $tx16 scan_prod_$tx16($tx16 v)\n"
     "{\n"
     "    for (int k = 1; k < 16; k++) v[k] = ($c)(v[k] * v[k - 1]);\n"
     "    return v;\n"
     "}\n"},
    {"scan_max_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "max_$t",
     "INLINE $tx16 scan_max_$tx16($tx16 v)\n"
     "{\n"
     "    for (int k = 1; k < 16; k++) v[k] = max_$t(v[k], v[k - 1]);\n"
     "    return v;\n"
     "}\n"},
    {"scan_min_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "min_$t",
     "INLINE $tx16 scan_min_$tx16($tx16 v)\n"
     "{\n"
     "    for (int k = 1; k < 16; k++) v[k] = min_$t(v[k], v[k - 1]);\n"
     "    return v;\n"
     "}\n"},
    /* Philox4x32-10: the counter is (offset low, offset high, i low, i high). */
    {"philox_u32", "", "",
     "INLINE unsigned philox_u32(unsigned long seed, unsigned long offset, long i, int lane)\n"
     "{\n"
     "    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);\n"
     "    unsigned c[4] = {(unsigned)offset, (unsigned)(offset >> 32), (unsigned)i, (unsigned)((unsigned long)i >> "
     "32)};\n"
     "    for (int round = 0; round < 10; round++) {\n"
     "        unsigned long p = 0xD2511F53ul * c[0], q = 0xCD9E8D57ul * c[2];\n"
     "        c[0] = (unsigned)(q >> 32) ^ c[1] ^ k0;\n"
     "        c[2] = (unsigned)(p >> 32) ^ c[3] ^ k1;\n"
     "        c[1] = (unsigned)q;\n"
     "        c[3] = (unsigned)p;\n"
     "        k0 += 0x9E3779B9u;\n"
     "        k1 += 0xBB67AE85u;\n"
     "    }\n"
     "    return c[lane];\n"
     "}\n"},
    {"philox_u32x16", "", "splat_u32x16",
     "INLINE u32x16 philox_high(u32x16 v, unsigned long m)\n"
     "{\n"
     "    union { u32x16 narrow; u64x8 wide; } even = {v}, odd = {v};\n"
     "    even.wide = ((even.wide & 0xffffffff) * m) >> 32;\n"
     "    odd.wide = ((odd.wide >> 32) * m) & 0xffffffff00000000;\n"
     "    return even.narrow | odd.narrow;\n"
     "}\n"
     "INLINE u32x16 philox_u32x16(unsigned long seed, unsigned long offset, i64x16 i, int lane)\n"
     "{\n"
     "    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);\n"
     "    u32x16 c0 = splat_u32x16((unsigned)offset), c1 = splat_u32x16((unsigned)(offset >> 32));\n"
     "    u32x16 c2 = __builtin_convertvector(i, u32x16), c3 = __builtin_convertvector((u64x16)i >> 32, u32x16);\n"
     "    for (int round = 0; round < 10; round++) {\n"
     "        u32x16 p = philox_high(c0, 0xD2511F53), q = philox_high(c2, 0xCD9E8D57);\n"
     "        u32x16 p_low = c0 * 0xD2511F53u, q_low = c2 * 0xCD9E8D57u;\n"
     "        c0 = q ^ c1 ^ k0;\n"
     "        c2 = p ^ c3 ^ k1;\n"
     "        c1 = q_low;\n"
     "        c3 = p_low;\n"
     "        k0 += 0x9E3779B9u;\n"
     "        k1 += 0xBB67AE85u;\n"
     "    }\n"
     "    return lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3;\n"
     "}\n"},
    /* Atomics: relaxed, giving the old value. */
    {"atomic_add_$t", "i32 u32 i64 u64", "",
     "INLINE $c atomic_add_$t($c *p, $c v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }\n"},
    {"atomic_and_$t", "i32 u32 i64 u64", "",
     "INLINE $c atomic_and_$t($c *p, $c v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }\n"},
    {"atomic_or_$t", "i32 u32 i64 u64", "",
     "INLINE $c atomic_or_$t($c *p, $c v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }\n"},
    {"atomic_xor_$t", "i32 u32 i64 u64", "",
     "INLINE $c atomic_xor_$t($c *p, $c v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }\n"},
    {"atomic_exchange_$t", "i32 u32 i64 u64 f32 f64", "",
     "INLINE $c atomic_exchange_$t($c *p, $c v)\n"
     "{\n"
     "    $c old;\n"
     "    __atomic_exchange(p, &v, &old, __ATOMIC_RELAXED);\n"
     "    return old;\n"
     "}\n"},
    {"atomic_cas_$t", "i32 u32 i64 u64 f32 f64", "",
     "INLINE $c atomic_cas_$t($c *p, $c expected, $c v)\n"
     "{\n"
     "    $c old;\n"
     "    __atomic_load(p, &old, __ATOMIC_RELAXED);\n"
     "    while (old == expected && !__atomic_compare_exchange(p, &old, &v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) "
     "{}\n"
     "    return old;\n"
     "}\n"},
    {"atomic_min_$t", "i32 u32 i64 u64 f32 f64", "min_$t",
     "INLINE $c atomic_min_$t($c *p, $c v)\n"
     "{\n"
     "    $c old, new;\n"
     "    __atomic_load(p, &old, __ATOMIC_RELAXED);\n"
     "    do {\n"
     "        new = min_$t(old, v);\n"
     "    } while (!__atomic_compare_exchange(p, &old, &new, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));\n"
     "    return old;\n"
     "}\n"},
    {"atomic_max_$t", "i32 u32 i64 u64 f32 f64", "max_$t",
     "INLINE $c atomic_max_$t($c *p, $c v)\n"
     "{\n"
     "    $c old, new;\n"
     "    __atomic_load(p, &old, __ATOMIC_RELAXED);\n"
     "    do {\n"
     "        new = max_$t(old, v);\n"
     "    } while (!__atomic_compare_exchange(p, &old, &new, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));\n"
     "    return old;\n"
     "}\n"},
    {"atomic_add_$t", "f32 f64", "",
     "INLINE $c atomic_add_$t($c *p, $c v)\n"
     "{\n"
     "    $c old, new;\n"
     "    __atomic_load(p, &old, __ATOMIC_RELAXED);\n"
     "    do {\n"
     "        new = old + v;\n"
     "    } while (!__atomic_compare_exchange(p, &old, &new, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));\n"
     "    return old;\n"
     "}\n"},
    {"atomic_add_$t", "f16 bf16", "$t_to_f32 f32_to_$t",
     "INLINE float atomic_add_$t(unsigned short *p, float v)\n"
     "{\n"
     "    unsigned short old = __atomic_load_n(p, __ATOMIC_RELAXED), new;\n"
     "    do {\n"
     "        new = f32_to_$t($t_to_f32(old) + v);\n"
     "    } while (!__atomic_compare_exchange(p, &old, &new, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));\n"
     "    return $t_to_f32(old);\n"
     "}\n"},
    {"raw_types", "", "",
     "typedef struct half { unsigned short bits; } half;\n"
     "typedef struct bfloat { unsigned short bits; } bfloat;\n"},
    {0},
};
