/*
 * Floats in the CUDA prelude: exact functions, and the few instructions that the fast functions are built on. `MATH(f)`
 * is the function f of the CUDA or C library. What is written mad_f32 is fused everywhere, also in emu, so that the
 * fast functions of the next file give the same bits there but for the four approximate instructions.
 * In and out: text templates, see prelude_cuda_parts.h.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_cuda_parts.h"

const prelude_part cuda_float_parts[] = {
    {"library", "", "",
     "#ifdef QUERN_EMU\n"
     "#define MATH(f) __builtin_##f\n"
     "#else\n"
     "#define MATH(f) f\n"
     "#endif\n"},
    {"abs_$t", "f32 f64", "library", "INLINE $v abs_$t($v x) { return MATH(fabs$f)(x); }\n"},
    {"floor_$t", "f32 f64", "library", "INLINE $v floor_$t($v x) { return MATH(floor$f)(x); }\n"},
    {"ceil_$t", "f32 f64", "library", "INLINE $v ceil_$t($v x) { return MATH(ceil$f)(x); }\n"},
    {"round_$t", "f32 f64", "library", "INLINE $v round_$t($v x) { return MATH(rint$f)(x); }\n"},
    {"with_sign_$t", "f32 f64", "library",
     "INLINE $v with_sign_$t($v size, $v sign) { return MATH(copysign$f)(size, sign); }\n"},
    {"fma_$t", "f32 f64", "library", "INLINE $v fma_$t($v a, $v b, $v c) { return MATH(fma$f)(a, b, c); }\n"},
    {"mad_$t", "f32 f64", "library", "INLINE $v mad_$t($v a, $v b, $v c) { return MATH(fma$f)(a, b, c); }\n"},
    {"sign_$t", "f32 f64", "", "INLINE $v sign_$t($v x) { return x > 0 ? 1 : x < 0 ? -1 : x; }\n"},
    {"relu_$t", "f32 f64", "", "INLINE $v relu_$t($v x) { return x < 0 ? 0 : x; }\n"},
    {"isnan_$t", "f32 f64", "", "INLINE int isnan_$t($v x) { return x != x; }\n"},
    {"isinf_f32", "", "abs_f32", "INLINE int isinf_f32(float x) { return abs_f32(x) > 0x1.fffffep127f; }\n"},
    {"isinf_f64", "", "abs_f64", "INLINE int isinf_f64(double x) { return abs_f64(x) > 0x1.fffffffffffffp1023; }\n"},
    {"min_f32", "", "",
     "INLINE float min_f32(float a, float b)\n"
     "{\n"
     "#if defined(QUERN_EMU) || __CUDA_ARCH__ < 800\n"
     "    return a < b || a != a ? a : b;\n"
     "#else\n"
     "    float r;\n"
     "    asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b));\n"
     "    return r;\n"
     "#endif\n"
     "}\n"},
    {"max_f32", "", "",
     "INLINE float max_f32(float a, float b)\n"
     "{\n"
     "#if defined(QUERN_EMU) || __CUDA_ARCH__ < 800\n"
     "    return a > b || a != a ? a : b;\n"
     "#else\n"
     "    float r;\n"
     "    asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b));\n"
     "    return r;\n"
     "#endif\n"
     "}\n"},
    {"min_f64", "", "", "INLINE double min_f64(double a, double b) { return a < b || a != a ? a : b; }\n"},
    {"max_f64", "", "", "INLINE double max_f64(double a, double b) { return a > b || a != a ? a : b; }\n"},
    {"tf32_f32", "", "real_f32",
     "INLINE float tf32_f32(float x)\n"
     "{\n"
     "#if !defined(QUERN_EMU) && __CUDA_ARCH__ >= 900\n"
     "    int b;\n"
     "    asm(\"cvt.rn.tf32.f32 %0, %1;\" : \"=r\"(b) : \"f\"(x));\n"
     "    return real_f32(b);\n"
     "#else\n"
     "    int b = bits_f32(x);\n"
     "    return x - x == 0 ? real_f32((b + 0xfff + ((b >> 13) & 1)) & ~0x1fff) : x;\n"
     "#endif\n"
     "}\n"},
    /* A product that no sum takes in. */
    {"mul_exact_$t", "f32 f64", "",
     "INLINE $v mul_exact_$t($v a, $v b)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    volatile $v r = a * b;\n"
     "    return r;\n"
     "#else\n"
     "    $v r;\n"
     "    asm(\"mul.rn.$t %0, %1, %2;\" : \"=$c\"(r) : \"$c\"(a), \"$c\"(b));\n"
     "    return r;\n"
     "#endif\n"
     "}\n"},
    {"mod_f64", "", "mul_exact_f64 floor_f64",
     "INLINE double mod_f64(double x, double y) { return x - mul_exact_f64(y, floor_f64(x / y)); }\n"},
    {"mod_f32", "", "mod_f64", "INLINE float mod_f32(float x, float y) { return (float)mod_f64(x, y); }\n"},
    {"div_f64", "", "", "INLINE double div_f64(double a, double b) { return a / b; }\n"},
    {"sqrt_f64", "", "library", "INLINE double sqrt_f64(double x) { return MATH(sqrt)(x); }\n"},
    {"rsqrt_f64", "", "library", "INLINE double rsqrt_f64(double x) { return 1 / MATH(sqrt)(x); }\n"},
    {"precise_div_$t", "f32 f64", "", "INLINE $v precise_div_$t($v a, $v b) { return a / b; }\n"},
    {"precise_sqrt_$t", "f32 f64", "library", "INLINE $v precise_sqrt_$t($v x) { return MATH(sqrt$f)(x); }\n"},
    {"precise_rsqrt_$t", "f32 f64", "library", "INLINE $v precise_rsqrt_$t($v x) { return 1 / MATH(sqrt$f)(x); }\n"},
    /* The instructions. 2^x, log2 x, 1/x: results and, but for log2, arguments below 2^-126 count as 0. */
    {"ex2_approx", "", "library",
     "INLINE float ex2_approx(float x)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    float r = __builtin_exp2f(x);\n"
     "    return r < 0x1p-126f ? 0 : r;\n"
     "#else\n"
     "    float r;\n"
     "    asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n"
     "    return r;\n"
     "#endif\n"
     "}\n"},
    {"lg2_approx", "", "",
     "INLINE float lg2_approx(float x)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    return __builtin_log2f(x);\n"
     "#else\n"
     "    float r;\n"
     "    asm(\"lg2.approx.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n"
     "    return r;\n"
     "#endif\n"
     "}\n"},
    {"rcp_approx", "", "",
     "INLINE float rcp_approx(float x)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    float r = 1 / x;\n"
     "    return r < 0x1p-126f && r > -0x1p-126f ? 0 : r;\n"
     "#else\n"
     "    float r;\n"
     "    asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n"
     "    return r;\n"
     "#endif\n"
     "}\n"},
    {"div_f32", "", "",
     "INLINE float div_f32(float a, float b)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    return a / b;\n"
     "#else\n"
     "    float r;\n"
     "    asm(\"div.full.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b));\n"
     "    return r;\n"
     "#endif\n"
     "}\n"},
    {"sqrt_f32", "", "",
     "INLINE float sqrt_f32(float x)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    return __builtin_sqrtf(x);\n"
     "#else\n"
     "    float r;\n"
     "    asm(\"sqrt.approx.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n"
     "    return r;\n"
     "#endif\n"
     "}\n"},
    {"rsqrt_f32", "", "",
     "INLINE float rsqrt_f32(float x)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    return 1 / __builtin_sqrtf(x);\n"
     "#else\n"
     "    float r;\n"
     "    asm(\"rsqrt.approx.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n"
     "    return r;\n"
     "#endif\n"
     "}\n"},
    {0},
};
