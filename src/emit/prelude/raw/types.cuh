/*
 * The prelude of raw CUDA kernels: integer types of known width, a few constants of <float.h> and <math.h>,
 * and the 16-bit floats as structs that convert to and from float, laid out as the vendor's, with pairs of them and the
 * usual functions. NVRTC has no headers, and this stands in for the usual ones; where the text includes the vendor's
 * own, its types are used instead. emu, whose compiler cannot read the vendor's, always has these
 * (warps.cuh has what warps do together).
 * SPDX-License-Identifier: MIT
 */

//@ part integers
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uintptr_t, uint64_t;

//@ part basics
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-7f
#define DBL_MAX 1.7976931348623158e+308
#endif
#ifndef M_PI
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_1_PI 0.31830988618379067154
#define M_E 2.7182818284590452354
#define M_LN2 0.69314718055994530942
#define M_LOG2E 1.4426950408889634074
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define M_2_SQRTPI 1.12837916709551257390
#endif
#ifndef INT_MAX
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#endif
__device__ inline double quern_number(long long bits)
{
    union { long long bits; double number; } u;
    u.bits = bits;
    return u.number;
}
__device__ inline unsigned quern_bits(float x)
{
    union { float number; unsigned bits; } u;
    u.number = x;
    return u.bits;
}
__device__ inline float quern_float(unsigned bits)
{
    union { unsigned bits; float number; } u;
    u.bits = bits;
    return u.number;
}

//@ part halves
struct half {
    unsigned short bits;
    half() = default;
    __device__ half(float x)
    {
#ifdef QUERN_EMU
        unsigned u = quern_bits(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
        if (magnitude > 0x7f800000)
            bits = sign | 0x7e00;
        else if (magnitude >= 0x477ff000)
            bits = sign | 0x7c00;
        else if (magnitude < 0x38800000)
            bits = sign | (unsigned short)(quern_bits(quern_float(magnitude) + 0.5f) - 0x3f000000);
        else
            bits = sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
#else
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#endif
    }
    __device__ operator float() const
    {
#ifdef QUERN_EMU
        unsigned sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fff;
        if (magnitude >= 0x7c00) return quern_float(sign | magnitude << 13 | 0x7f800000);
        return quern_float(sign | quern_bits(quern_float(magnitude << 13) * 0x1p112f));
#else
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
#endif
    }
    __device__ half &operator+=(float x) { return *this = half((float)*this + x); }
    __device__ half &operator-=(float x) { return *this = half((float)*this - x); }
    __device__ half &operator*=(float x) { return *this = half((float)*this * x); }
    __device__ half &operator/=(float x) { return *this = half((float)*this / x); }
};
typedef half __half, f16;
__device__ inline float __half2float(half x) { return x; }
__device__ inline half __float2half(float x) { return x; }

//@ part brains
struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    __device__ __nv_bfloat16(float x)
    {
        unsigned u = quern_bits(x);
        bits = (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
    }
    __device__ operator float() const { return quern_float((unsigned)bits << 16); }
    __device__ __nv_bfloat16 &operator+=(float x) { return *this = __nv_bfloat16((float)*this + x); }
    __device__ __nv_bfloat16 &operator-=(float x) { return *this = __nv_bfloat16((float)*this - x); }
    __device__ __nv_bfloat16 &operator*=(float x) { return *this = __nv_bfloat16((float)*this * x); }
    __device__ __nv_bfloat16 &operator/=(float x) { return *this = __nv_bfloat16((float)*this / x); }
};
typedef __nv_bfloat16 bfloat, bf16, nv_bfloat16;
__device__ inline float __bfloat162float(bfloat x) { return x; }
__device__ inline bfloat __float2bfloat16(float x) { return x; }

/* Of one 16-bit type and its pair: what both of the vendor's headers have. */

//@ part common
#define QUERN_NARROW(T, P) \
    struct __align__(4) P { \
        T x, y; \
        P() = default; \
        __device__ P(T a, T b) : x(a), y(b) {} \
        __device__ P &operator+=(P a) { return *this = P(float(x) + float(a.x), float(y) + float(a.y)); } \
        __device__ P &operator*=(P a) { return *this = P(float(x) * float(a.x), float(y) * float(a.y)); } \
    }; \
    QUERN_NARROW_2(T, P, __hadd, operator+, a + b) QUERN_NARROW_2(T, P, __hsub, operator-, a - b) \
    QUERN_NARROW_2(T, P, __hmul, operator*, a * b) QUERN_NARROW_2(T, P, __hdiv, operator/, a / b) \
    QUERN_NARROW_2(T, P, __hmax, quern_max, fmaxf(a, b)) QUERN_NARROW_2(T, P, __hmin, quern_min, fminf(a, b)) \
    QUERN_NARROW_1(T, P, __hneg, -a) QUERN_NARROW_1(T, P, __habs, fabsf(a)) \
    __device__ inline T hexp(T v) { return T(expf(v)); } \
    __device__ inline T hlog(T v) { return T(logf(v)); } \
    __device__ inline T hsqrt(T v) { return T(sqrtf(v)); } \
    __device__ inline T hrsqrt(T v) { return T(1 / sqrtf(v)); } \
    __device__ inline P h2exp(P v) { return P(hexp(v.x), hexp(v.y)); } \
    __device__ inline T __hfma(T a, T b, T c) { return T(fmaf(a, b, c)); } \
    __device__ inline P __hfma2(P a, P b, P c) { return P(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \
    __device__ inline bool __hgt(T a, T b) { return float(a) > float(b); } \
    __device__ inline bool __hge(T a, T b) { return float(a) >= float(b); } \
    __device__ inline bool __hlt(T a, T b) { return float(a) < float(b); } \
    __device__ inline bool __hle(T a, T b) { return float(a) <= float(b); } \
    __device__ inline bool __heq(T a, T b) { return float(a) == float(b); } \
    __device__ inline bool __hne(T a, T b) { return float(a) != float(b); } \
    __device__ inline bool __hisnan(T a) { return float(a) != float(a); } \
    __device__ inline float __low2float(P v) { return v.x; } \
    __device__ inline float __high2float(P v) { return v.y; }
#define QUERN_NARROW_2(T, P, name, sign, value) \
    __device__ inline T name(T u, T v) { float a = u, b = v; return T(value); } \
    __device__ inline P name##2(P u, P v) { return P(name(u.x, v.x), name(u.y, v.y)); } \
    __device__ inline P sign(P u, P v) { return name##2(u, v); }
#define QUERN_NARROW_1(T, P, name, value) \
    __device__ inline T name(T v) { float a = v; return T(value); } \
    __device__ inline P name##2(P v) { return P(name(v.x), name(v.y)); }

//@ part half_pairs
QUERN_NARROW(half, __half2)
typedef __half2 half2;
__device__ inline half2 make_half2(half a, half b) { return half2(a, b); }
__device__ inline half2 __halves2half2(half a, half b) { return half2(a, b); }
__device__ inline half2 __half2half2(half a) { return half2(a, a); }
__device__ inline half2 __float2half2_rn(float a) { return half2(a, a); }
__device__ inline half2 __floats2half2_rn(float a, float b) { return half2(a, b); }
__device__ inline half2 __float22half2_rn(float2 v) { return half2(v.x, v.y); }
__device__ inline float2 __half22float2(half2 v) { return make_float2(v.x, v.y); }
__device__ inline half __low2half(half2 v) { return v.x; }
__device__ inline half __high2half(half2 v) { return v.y; }
__device__ inline half __float2half_rn(float x) { return half(x); }
__device__ inline half __int2half_rn(int x) { return half((float)x); }

//@ part brain_pairs
QUERN_NARROW(__nv_bfloat16, __nv_bfloat162)
typedef __nv_bfloat162 nv_bfloat162;
__device__ inline nv_bfloat162 __halves2bfloat162(bfloat a, bfloat b) { return nv_bfloat162(a, b); }
__device__ inline nv_bfloat162 __bfloat162bfloat162(bfloat a) { return nv_bfloat162(a, a); }
__device__ inline nv_bfloat162 __float2bfloat162_rn(float a) { return nv_bfloat162(a, a); }
__device__ inline nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return nv_bfloat162(a, b); }
__device__ inline float2 __bfloat1622float2(nv_bfloat162 v) { return make_float2(v.x, v.y); }
__device__ inline bfloat __low2bfloat16(nv_bfloat162 v) { return v.x; }
__device__ inline bfloat __high2bfloat16(nv_bfloat162 v) { return v.y; }
__device__ inline bfloat __float2bfloat16_rn(float x) { return bfloat(x); }
