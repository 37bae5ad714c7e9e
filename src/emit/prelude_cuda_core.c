/*
 * The core of the CUDA prelude: bits, comparisons, integers, 16-bit floats, random numbers.
 * In and out: text templates, see prelude_cuda_parts.h.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_cuda_parts.h"

const prelude_part cuda_core_parts[] = {
    {"real_f32", "", "",
     "#ifdef QUERN_EMU\n"
     "INLINE int bits_f32(float x)\n"
     "{\n"
     "    int i;\n"
     "    __builtin_memcpy(&i, &x, 4);\n"
     "    return i;\n"
     "}\n"
     "INLINE float real_f32(int i)\n"
     "{\n"
     "    float x;\n"
     "    __builtin_memcpy(&x, &i, 4);\n"
     "    return x;\n"
     "}\n"
     "#else\n"
     "INLINE int bits_f32(float x) { return __float_as_int(x); }\n"
     "INLINE float real_f32(int i) { return __int_as_float(i); }\n"
     "#endif\n"},
    {"real_f64", "", "",
     "#ifdef QUERN_EMU\n"
     "INLINE long bits_f64(double x)\n"
     "{\n"
     "    long i;\n"
     "    __builtin_memcpy(&i, &x, 8);\n"
     "    return i;\n"
     "}\n"
     "INLINE double real_f64(long i)\n"
     "{\n"
     "    double x;\n"
     "    __builtin_memcpy(&x, &i, 8);\n"
     "    return x;\n"
     "}\n"
     "#else\n"
     "INLINE long bits_f64(double x) { return __double_as_longlong(x); }\n"
     "INLINE double real_f64(long i) { return __longlong_as_double(i); }\n"
     "#endif\n"},
    {"bits_$t", "f32 f64", "real_$t", ""},
    /* Integers. */
    {"min_$t", CUDA_INTEGERS, "", "INLINE $v min_$t($v a, $v b) { return a < b ? a : b; }\n"},
    {"max_$t", CUDA_INTEGERS, "", "INLINE $v max_$t($v a, $v b) { return a > b ? a : b; }\n"},
    {"abs_$t", "i8 i16 i32 i64", "", "INLINE $v abs_$t($v a) { return a < 0 ? ($v)(0 - ($u)a) : a; }\n"},
    {"abs_$t", "u8 u16 u32 u64", "", "INLINE $v abs_$t($v a) { return a; }\n"},
    {"sign_$t", "i8 i16 i32 i64", "", "INLINE $v sign_$t($v a) { return ($v)((a > 0) - (a < 0)); }\n"},
    {"sign_$t", "u8 u16 u32 u64", "", "INLINE $v sign_$t($v a) { return a != 0; }\n"},
    {"div_$t", "i8 i16 i32 i64", "",
     "INLINE $v div_$t($v a, $v b)\n"
     "{\n"
     "    if (b == 0) return 0;\n"
     "    if (b == -1) return ($v)(0 - ($u)a);\n"
     "    $v q = ($v)(a / b), r = ($v)(a - q * b);\n"
     "    return ($v)(q - ((r != 0) & ((r < 0) != (b < 0))));\n"
     "}\n"},
    {"mod_$t", "i8 i16 i32 i64", "",
     "INLINE $v mod_$t($v a, $v b)\n"
     "{\n"
     "    if (b == 0 || b == -1) return 0;\n"
     "    $v r = ($v)(a % b);\n"
     "    return ($v)(r + ((r != 0) & ((r < 0) != (b < 0)) ? b : 0));\n"
     "}\n"},
    {"div_$t", "u8 u16 u32 u64", "", "INLINE $v div_$t($v a, $v b) { return b ? ($v)(a / b) : 0; }\n"},
    {"mod_$t", "u8 u16 u32 u64", "", "INLINE $v mod_$t($v a, $v b) { return b ? ($v)(a % b) : 0; }\n"},
    {"digits", "", "",
     "/* x / n and x % n for x below 2^31, with by = digit_by(n): the quotient of a product is at most one too small. "
     "*/\n"
     "INLINE unsigned digit_by(unsigned n) { return 0xffffffffu / n; }\n"
     "INLINE unsigned digits_above(unsigned x, unsigned n, unsigned by)\n"
     "{\n"
     "    const unsigned q = (unsigned)((unsigned long)x * by >> 32);\n"
     "    return q + (x - q * n >= n);\n"
     "}\n"
     "INLINE unsigned digits_below(unsigned x, unsigned n, unsigned by)\n"
     "{\n"
     "    const unsigned r = x - (unsigned)((unsigned long)x * by >> 32) * n;\n"
     "    return r >= n ? r - n : r;\n"
     "}\n"},
    {"shl_$t", CUDA_INTEGERS, "", "INLINE $v shl_$t($v a, $v n) { return ($v)(($u)a << (n & ($b - 1))); }\n"},
    {"shr_$t", CUDA_INTEGERS, "", "INLINE $v shr_$t($v a, $v n) { return ($v)(a >> (n & ($b - 1))); }\n"},
    /* Sums, products and negations that wrap: signed overflow is undefined in the text's language. */
    {"add_$t", "i32 i64", "", "INLINE $v add_$t($v a, $v b) { return ($v)(($u)a + ($u)b); }\n"},
    {"sub_$t", "i32 i64", "", "INLINE $v sub_$t($v a, $v b) { return ($v)(($u)a - ($u)b); }\n"},
    {"mul_$t", "i32 i64", "", "INLINE $v mul_$t($v a, $v b) { return ($v)(($u)a * ($u)b); }\n"},
    /* 16-bit floats: one rounding to nearest even. */
    {"f16_to_f32", "", "real_f32",
     "INLINE float f16_to_f32(unsigned short h)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    unsigned sign = (h & 0x8000u) << 16, size = h & 0x7fffu;\n"
     "    if (size >= 0x7c00) return real_f32((int)(sign | 0x7f800000 | size << 13));\n"
     "    float x = real_f32((int)(size << 13)) * 0x1p112f;\n"
     "    return sign ? -x : x;\n"
     "#else\n"
     "    float x;\n"
     "    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(h));\n"
     "    return x;\n"
     "#endif\n"
     "}\n"},
    {"f32_to_f16", "", "real_f32",
     "INLINE unsigned short f32_to_f16(float x)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    unsigned bits = (unsigned)bits_f32(x), size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;\n"
     "    if (size > 0x7f800000) return (unsigned short)(sign | 0x7e00);\n"
     "    if (size >= 0x477ff000) return (unsigned short)(sign | 0x7c00);\n"
     "    if (size < 0x38800000) /* subnormal: adding a power of two rounds at the right bit */\n"
     "        return (unsigned short)(sign | (bits_f32(real_f32((int)size) + 0.5f) - 0x3f000000));\n"
     "    return (unsigned short)(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));\n"
     "#else\n"
     "    unsigned short h;\n"
     "    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
     "    return h;\n"
     "#endif\n"
     "}\n"},
    {"bf16_to_f32", "", "real_f32",
     "INLINE float bf16_to_f32(unsigned short h) { return real_f32((int)((unsigned)h << 16)); }\n"},
    {"f32_to_bf16", "", "real_f32",
     "INLINE unsigned short f32_to_bf16(float x)\n"
     "{\n"
     "#if defined(QUERN_EMU) || __CUDA_ARCH__ < 800\n"
     "    unsigned bits = (unsigned)bits_f32(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;\n"
     "    return (unsigned short)(x != x ? (bits >> 16 & 0x8000) | 0x7fc0 : rounded);\n"
     "#else\n"
     "    unsigned short h;\n"
     "    asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
     "    return h;\n"
     "#endif\n"
     "}\n"},
    /* Two at once, the first in the low half: how vectors of them go to memory. */
    {"pack_$t", "f16 bf16", "f32_to_$t",
     "INLINE unsigned pack_$t(float first, float second)\n"
     "{\n"
     "#if defined(QUERN_EMU) || __CUDA_ARCH__ < 800\n"
     "    return f32_to_$t(first) | (unsigned)f32_to_$t(second) << 16;\n"
     "#else\n"
     "    unsigned w;\n"
     "    asm(\"cvt.rn.$tx2.f32 %0, %2, %1;\" : \"=r\"(w) : \"f\"(first), \"f\"(second));\n"
     "    return w;\n"
     "#endif\n"
     "}\n"},
    /* Philox4x32-10: the counter is (offset low, offset high, i low, i high). */
    {"philox_u32", "", "",
     "INLINE unsigned philox_u32(unsigned long seed, unsigned long offset, long i, int lane)\n"
     "{\n"
     "    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);\n"
     "    unsigned c0 = (unsigned)offset, c1 = (unsigned)(offset >> 32);\n"
     "    unsigned c2 = (unsigned)i, c3 = (unsigned)((unsigned long)i >> 32);\n"
     "    for (int round = 0; round < 10; round++) {\n"
     "        unsigned long p = 0xD2511F53ul * c0, q = 0xCD9E8D57ul * c2;\n"
     "        c0 = (unsigned)(q >> 32) ^ c1 ^ k0;\n"
     "        c2 = (unsigned)(p >> 32) ^ c3 ^ k1;\n"
     "        c1 = (unsigned)q;\n"
     "        c3 = (unsigned)p;\n"
     "        k0 += 0x9E3779B9u;\n"
     "        k1 += 0xBB67AE85u;\n"
     "    }\n"
     "    return lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3;\n"
     "}\n"},
    {0},
};
