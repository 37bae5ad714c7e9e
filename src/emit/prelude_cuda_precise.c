/*
 * Functions of the CUDA prelude through the library: everything in f64, and the `precise` forms of f32. What the library
 * lacks is computed in double, so that one rounding remains.
 * In and out: text templates, see prelude_cuda_parts.h.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_cuda_parts.h"

const prelude_part cuda_precise_parts[] = {
    {"$t_f64", "exp exp2 expm1 log log2 log1p sin cos tanh erf", "library",
     "INLINE double $t_f64(double x) { return MATH($t)(x); }\n"},
    {"pow_f64", "", "library", "INLINE double pow_f64(double x, double y) { return MATH(pow)(x, y); }\n"},
    {"sigmoid_f64", "", "library",
     "INLINE double sigmoid_f64(double x)\n"
     "{\n"
     "    double e = MATH(exp)(x < 0 ? x : -x);\n"
     "    return (x < 0 ? e : 1) / (1 + e);\n"
     "}\n"},
    {"silu_f64", "", "sigmoid_f64",
     "INLINE double silu_f64(double x) { return (x < -1500 ? -1500 : x) * sigmoid_f64(x); }\n"},
    {"softplus_f64", "", "library",
     "INLINE double softplus_f64(double x) { return (x > 0 ? x : 0) + MATH(log1p)(MATH(exp)(x < 0 ? x : -x)); }\n"},
    {"gelu_f64", "", "library",
     "INLINE double gelu_f64(double x)\n"
     "{\n"
     "    return 0.5 * (x < -40 ? -40 : x) * MATH(erfc)(x * -0x1.6a09e667f3bcdp-1);\n"
     "}\n"},
    {"gelu_tanh_f64", "", "sigmoid_f64",
     "INLINE double gelu_tanh_f64(double x)\n"
     "{\n"
     "    return (x < -40 ? -40 : x) * sigmoid_f64(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x));\n"
     "}\n"},
    {"precise_$t_f32", "exp exp2 expm1 log log2 log1p sin cos tanh erf", "library",
     "INLINE float precise_$t_f32(float x) { return MATH($tf)(x); }\n"},
    {"precise_$t_f32", "sigmoid silu softplus gelu gelu_tanh", "$t_f64",
     "INLINE float precise_$t_f32(float x) { return (float)$t_f64(x); }\n"},
    {"precise_pow_f32", "", "pow_f64",
     "INLINE float precise_pow_f32(float x, float y) { return (float)pow_f64(x, y); }\n"},
    {"precise_$t_f64", "exp exp2 expm1 log log2 log1p sin cos tanh erf sigmoid silu softplus gelu gelu_tanh", "$t_f64",
     "INLINE double precise_$t_f64(double x) { return $t_f64(x); }\n"},
    {"precise_pow_f64", "", "pow_f64", "INLINE double precise_pow_f64(double x, double y) { return pow_f64(x, y); }\n"},
    {0},
};
