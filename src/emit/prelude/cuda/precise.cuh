/*
 * Functions of the CUDA prelude through the library: everything in f64, and the `precise` forms of f32. What the library
 * lacks is computed in double, so that one rounding remains.
 * SPDX-License-Identifier: MIT
 */

//@ part $t_f64
//@ for exp exp2 expm1 log log2 log1p sin cos tanh erf
//@ needs library
INLINE double $t_f64(double x) { return MATH($t)(x); }

//@ part pow_f64
//@ needs library
INLINE double pow_f64(double x, double y) { return MATH(pow)(x, y); }

//@ part sigmoid_f64
//@ needs library
INLINE double sigmoid_f64(double x)
{
    double e = MATH(exp)(x < 0 ? x : -x);
    return (x < 0 ? e : 1) / (1 + e);
}

//@ part silu_f64
//@ needs sigmoid_f64
INLINE double silu_f64(double x) { return (x < -1500 ? -1500 : x) * sigmoid_f64(x); }

//@ part softplus_f64
//@ needs library
INLINE double softplus_f64(double x) { return (x > 0 ? x : 0) + MATH(log1p)(MATH(exp)(x < 0 ? x : -x)); }

//@ part gelu_f64
//@ needs library
INLINE double gelu_f64(double x)
{
    return 0.5 * (x < -40 ? -40 : x) * MATH(erfc)(x * -0x1.6a09e667f3bcdp-1);
}

//@ part gelu_tanh_f64
//@ needs sigmoid_f64
INLINE double gelu_tanh_f64(double x)
{
    return (x < -40 ? -40 : x) * sigmoid_f64(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x));
}

//@ part precise_$t_f32
//@ for exp exp2 expm1 log log2 log1p sin cos tanh erf
//@ needs library
INLINE float precise_$t_f32(float x) { return MATH($tf)(x); }

//@ part precise_$t_f32
//@ for sigmoid silu softplus gelu gelu_tanh
//@ needs $t_f64
INLINE float precise_$t_f32(float x) { return (float)$t_f64(x); }

//@ part precise_pow_f32
//@ needs pow_f64
INLINE float precise_pow_f32(float x, float y) { return (float)pow_f64(x, y); }

//@ part precise_$t_f64
//@ for exp exp2 expm1 log log2 log1p sin cos tanh erf sigmoid silu softplus gelu gelu_tanh
//@ needs $t_f64
INLINE double precise_$t_f64(double x) { return $t_f64(x); }

//@ part precise_pow_f64
//@ needs pow_f64
INLINE double precise_pow_f64(double x, double y) { return pow_f64(x, y); }
