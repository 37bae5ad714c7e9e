/*
 * Floats in the CUDA prelude: exact functions, and the few instructions that the fast functions are built on. `MATH(f)`
 * is the function f of the CUDA or C library. What is written mad_f32 is fused everywhere, also in emu, so that the
 * fast functions of the next file give the same bits there but for the four approximate instructions.
 * SPDX-License-Identifier: MIT
 */

//@ part library
#ifdef QUERN_EMU
#define MATH(f) __builtin_##f
#else
#define MATH(f) f
#endif

//@ part abs_$t
//@ for f32 f64
//@ needs library
INLINE $v abs_$t($v x) { return MATH(fabs$f)(x); }

//@ part floor_$t
//@ for f32 f64
//@ needs library
INLINE $v floor_$t($v x) { return MATH(floor$f)(x); }

//@ part ceil_$t
//@ for f32 f64
//@ needs library
INLINE $v ceil_$t($v x) { return MATH(ceil$f)(x); }

//@ part round_$t
//@ for f32 f64
//@ needs library
INLINE $v round_$t($v x) { return MATH(rint$f)(x); }

//@ part with_sign_$t
//@ for f32 f64
//@ needs library
INLINE $v with_sign_$t($v size, $v sign) { return MATH(copysign$f)(size, sign); }

//@ part fma_$t
//@ for f32 f64
//@ needs library
INLINE $v fma_$t($v a, $v b, $v c) { return MATH(fma$f)(a, b, c); }

//@ part mad_$t
//@ for f32 f64
//@ needs library
INLINE $v mad_$t($v a, $v b, $v c) { return MATH(fma$f)(a, b, c); }

//@ part sign_$t
//@ for f32 f64
INLINE $v sign_$t($v x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

//@ part relu_$t
//@ for f32 f64
INLINE $v relu_$t($v x) { return x < 0 ? 0 : x; }

//@ part isnan_$t
//@ for f32 f64
INLINE int isnan_$t($v x) { return x != x; }

//@ part isinf_f32
//@ needs abs_f32
INLINE int isinf_f32(float x) { return abs_f32(x) > 0x1.fffffep127f; }

//@ part isinf_f64
//@ needs abs_f64
INLINE int isinf_f64(double x) { return abs_f64(x) > 0x1.fffffffffffffp1023; }

//@ part min_f32
INLINE float min_f32(float a, float b)
{
#if defined(QUERN_EMU) || __CUDA_ARCH__ < 800
    return a < b || a != a ? a : b;
#else
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#endif
}

//@ part max_f32
INLINE float max_f32(float a, float b)
{
#if defined(QUERN_EMU) || __CUDA_ARCH__ < 800
    return a > b || a != a ? a : b;
#else
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#endif
}

//@ part min_f64
INLINE double min_f64(double a, double b) { return a < b || a != a ? a : b; }

//@ part max_f64
INLINE double max_f64(double a, double b) { return a > b || a != a ? a : b; }

//@ part tf32_f32
//@ needs real_f32
INLINE float tf32_f32(float x)
{
#if !defined(QUERN_EMU) && __CUDA_ARCH__ >= 900
    int b;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(b) : "f"(x));
    return real_f32(b);
#else
    int b = bits_f32(x);
    return x - x == 0 ? real_f32((b + 0xfff + ((b >> 13) & 1)) & ~0x1fff) : x;
#endif
}

/* A product that no sum takes in. */

//@ part mul_exact_$t
//@ for f32 f64
INLINE $v mul_exact_$t($v a, $v b)
{
#ifdef QUERN_EMU
    volatile $v r = a * b;
    return r;
#else
    $v r;
    asm("mul.rn.$t %0, %1, %2;" : "=$c"(r) : "$c"(a), "$c"(b));
    return r;
#endif
}

//@ part mod_f64
//@ needs mul_exact_f64 floor_f64
INLINE double mod_f64(double x, double y) { return x - mul_exact_f64(y, floor_f64(x / y)); }

//@ part mod_f32
//@ needs mod_f64
INLINE float mod_f32(float x, float y) { return (float)mod_f64(x, y); }

//@ part div_f64
INLINE double div_f64(double a, double b) { return a / b; }

//@ part sqrt_f64
//@ needs library
INLINE double sqrt_f64(double x) { return MATH(sqrt)(x); }

//@ part rsqrt_f64
//@ needs library
INLINE double rsqrt_f64(double x) { return 1 / MATH(sqrt)(x); }

//@ part precise_div_$t
//@ for f32 f64
INLINE $v precise_div_$t($v a, $v b) { return a / b; }

//@ part precise_sqrt_$t
//@ for f32 f64
//@ needs library
INLINE $v precise_sqrt_$t($v x) { return MATH(sqrt$f)(x); }

//@ part precise_rsqrt_$t
//@ for f32 f64
//@ needs library
INLINE $v precise_rsqrt_$t($v x) { return 1 / MATH(sqrt$f)(x); }

/* The instructions. 2^x, log2 x, 1/x: results and, but for log2, arguments below 2^-126 count as 0. */

//@ part ex2_approx
//@ needs library
INLINE float ex2_approx(float x)
{
#ifdef QUERN_EMU
    float r = __builtin_exp2f(x);
    return r < 0x1p-126f ? 0 : r;
#else
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#endif
}

//@ part lg2_approx
INLINE float lg2_approx(float x)
{
#ifdef QUERN_EMU
    return __builtin_log2f(x);
#else
    float r;
    asm("lg2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#endif
}

//@ part rcp_approx
INLINE float rcp_approx(float x)
{
#ifdef QUERN_EMU
    float r = 1 / x;
    return r < 0x1p-126f && r > -0x1p-126f ? 0 : r;
#else
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#endif
}

//@ part div_f32
INLINE float div_f32(float a, float b)
{
#ifdef QUERN_EMU
    return a / b;
#else
    float r;
    asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#endif
}

//@ part sqrt_f32
INLINE float sqrt_f32(float x)
{
#ifdef QUERN_EMU
    return __builtin_sqrtf(x);
#else
    float r;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#endif
}

//@ part rsqrt_f32
INLINE float rsqrt_f32(float x)
{
#ifdef QUERN_EMU
    return 1 / __builtin_sqrtf(x);
#else
    float r;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#endif
}
