/*
 * The prelude of raw CUDA kernels, as text: integer types of known width, a few constants of <float.h> and <math.h>,
 * and the 16-bit floats as structs that convert to and from float, laid out as the vendor's, with pairs of them and the
 * usual functions. NVRTC has no headers, and this stands in for the usual ones; where the text includes the vendor's
 * own, its types are used instead. emu, whose compiler cannot read the vendor's, always has these
 * (prelude_raw_warp.c has what warps do together).
 * SPDX-License-Identifier: MIT
 */
#include "emit/raw.h"

static const char integers[] = "typedef signed char int8_t;\n"
                               "typedef short int16_t;\n"
                               "typedef int int32_t;\n"
                               "typedef long int64_t;\n"
                               "typedef unsigned char uint8_t;\n"
                               "typedef unsigned short uint16_t;\n"
                               "typedef unsigned int uint32_t;\n"
                               "typedef unsigned long uintptr_t, uint64_t;\n";

static const char basics[] = "#ifndef INFINITY\n"
                             "#define INFINITY __int_as_float(0x7f800000)\n"
                             "#endif\n"
                             "#ifndef NAN\n"
                             "#define NAN __int_as_float(0x7fffffff)\n"
                             "#endif\n"
                             "#ifndef FLT_MAX\n"
                             "#define FLT_MAX 3.402823466e+38f\n"
                             "#define FLT_MIN 1.175494351e-38f\n"
                             "#define FLT_EPSILON 1.192092896e-7f\n"
                             "#define DBL_MAX 1.7976931348623158e+308\n"
                             "#endif\n"
                             "#ifndef M_PI\n"
                             "#define M_PI 3.14159265358979323846\n"
                             "#define M_PI_2 1.57079632679489661923\n"
                             "#define M_1_PI 0.31830988618379067154\n"
                             "#define M_E 2.7182818284590452354\n"
                             "#define M_LN2 0.69314718055994530942\n"
                             "#define M_LOG2E 1.4426950408889634074\n"
                             "#define M_SQRT2 1.41421356237309504880\n"
                             "#define M_SQRT1_2 0.70710678118654752440\n"
                             "#define M_2_SQRTPI 1.12837916709551257390\n"
                             "#endif\n"
                             "#ifndef INT_MAX\n"
                             "#define INT_MAX 2147483647\n"
                             "#define INT_MIN (-INT_MAX - 1)\n"
                             "#define UINT_MAX 4294967295u\n"
                             "#endif\n"
                             "__device__ inline double quern_number(long long bits)\n"
                             "{\n"
                             "    union { long long bits; double number; } u;\n"
                             "    u.bits = bits;\n"
                             "    return u.number;\n"
                             "}\n"
                             "__device__ inline unsigned quern_bits(float x)\n"
                             "{\n"
                             "    union { float number; unsigned bits; } u;\n"
                             "    u.number = x;\n"
                             "    return u.bits;\n"
                             "}\n"
                             "__device__ inline float quern_float(unsigned bits)\n"
                             "{\n"
                             "    union { unsigned bits; float number; } u;\n"
                             "    u.bits = bits;\n"
                             "    return u.number;\n"
                             "}\n";

static const char halves[] =
    "struct half {\n"
    "    unsigned short bits;\n"
    "    half() = default;\n"
    "    __device__ half(float x)\n"
    "    {\n"
    "#ifdef QUERN_EMU\n"
    "        unsigned u = quern_bits(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;\n"
    "        if (magnitude > 0x7f800000)\n"
    "            bits = sign | 0x7e00;\n"
    "        else if (magnitude >= 0x477ff000)\n"
    "            bits = sign | 0x7c00;\n"
    "        else if (magnitude < 0x38800000)\n"
    "            bits = sign | (unsigned short)(quern_bits(quern_float(magnitude) + 0.5f) - 0x3f000000);\n"
    "        else\n"
    "            bits = sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;\n"
    "#else\n"
    "        asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(x));\n"
    "#endif\n"
    "    }\n"
    "    __device__ operator float() const\n"
    "    {\n"
    "#ifdef QUERN_EMU\n"
    "        unsigned sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fff;\n"
    "        if (magnitude >= 0x7c00) return quern_float(sign | magnitude << 13 | 0x7f800000);\n"
    "        return quern_float(sign | quern_bits(quern_float(magnitude << 13) * 0x1p112f));\n"
    "#else\n"
    "        float x;\n"
    "        asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(bits));\n"
    "        return x;\n"
    "#endif\n"
    "    }\n"
    "    __device__ half &operator+=(float x) { return *this = half((float)*this + x); }\n"
    "    __device__ half &operator-=(float x) { return *this = half((float)*this - x); }\n"
    "    __device__ half &operator*=(float x) { return *this = half((float)*this * x); }\n"
    "    __device__ half &operator/=(float x) { return *this = half((float)*this / x); }\n"
    "};\n"
    "typedef half __half, f16;\n"
    "__device__ inline float __half2float(half x) { return x; }\n"
    "__device__ inline half __float2half(float x) { return x; }\n";

static const char brains[] =
    "struct __nv_bfloat16 {\n" /* by this name <cuda_fp16.h> declares it */
    "    unsigned short bits;\n"
    "    __nv_bfloat16() = default;\n"
    "    __device__ __nv_bfloat16(float x)\n"
    "    {\n"
    "        unsigned u = quern_bits(x);\n"
    "        bits = (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;\n"
    "    }\n"
    "    __device__ operator float() const { return quern_float((unsigned)bits << 16); }\n"
    "    __device__ __nv_bfloat16 &operator+=(float x) { return *this = __nv_bfloat16((float)*this + x); }\n"
    "    __device__ __nv_bfloat16 &operator-=(float x) { return *this = __nv_bfloat16((float)*this - x); }\n"
    "    __device__ __nv_bfloat16 &operator*=(float x) { return *this = __nv_bfloat16((float)*this * x); }\n"
    "    __device__ __nv_bfloat16 &operator/=(float x) { return *this = __nv_bfloat16((float)*this / x); }\n"
    "};\n"
    "typedef __nv_bfloat16 bfloat, bf16, nv_bfloat16;\n"
    "__device__ inline float __bfloat162float(bfloat x) { return x; }\n"
    "__device__ inline bfloat __float2bfloat16(float x) { return x; }\n";

/* Of one 16-bit type and its pair: what both of the vendor's headers have. */
static const char common[] =
    "#define QUERN_NARROW(T, P) \\\n"
    "    struct __align__(4) P { \\\n"
    "        T x, y; \\\n"
    "        P() = default; \\\n"
    "        __device__ P(T a, T b) : x(a), y(b) {} \\\n"
    "        __device__ P &operator+=(P a) { return *this = P(float(x) + float(a.x), float(y) + float(a.y)); } \\\n"
    "        __device__ P &operator*=(P a) { return *this = P(float(x) * float(a.x), float(y) * float(a.y)); } \\\n"
    "    }; \\\n"
    "    QUERN_NARROW_2(T, P, __hadd, operator+, a + b) QUERN_NARROW_2(T, P, __hsub, operator-, a - b) \\\n"
    "    QUERN_NARROW_2(T, P, __hmul, operator*, a * b) QUERN_NARROW_2(T, P, __hdiv, operator/, a / b) \\\n"
    "    QUERN_NARROW_2(T, P, __hmax, quern_max, fmaxf(a, b)) QUERN_NARROW_2(T, P, __hmin, quern_min, fminf(a, b)) \\\n"
    "    QUERN_NARROW_1(T, P, __hneg, -a) QUERN_NARROW_1(T, P, __habs, fabsf(a)) \\\n"
    "    __device__ inline T hexp(T v) { return T(expf(v)); } \\\n"
    "    __device__ inline T hlog(T v) { return T(logf(v)); } \\\n"
    "    __device__ inline T hsqrt(T v) { return T(sqrtf(v)); } \\\n"
    "    __device__ inline T hrsqrt(T v) { return T(1 / sqrtf(v)); } \\\n"
    "    __device__ inline P h2exp(P v) { return P(hexp(v.x), hexp(v.y)); } \\\n"
    "    __device__ inline T __hfma(T a, T b, T c) { return T(fmaf(a, b, c)); } \\\n"
    "    __device__ inline P __hfma2(P a, P b, P c) { return P(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \\\n"
    "    __device__ inline bool __hgt(T a, T b) { return float(a) > float(b); } \\\n"
    "    __device__ inline bool __hge(T a, T b) { return float(a) >= float(b); } \\\n"
    "    __device__ inline bool __hlt(T a, T b) { return float(a) < float(b); } \\\n"
    "    __device__ inline bool __hle(T a, T b) { return float(a) <= float(b); } \\\n"
    "    __device__ inline bool __heq(T a, T b) { return float(a) == float(b); } \\\n"
    "    __device__ inline bool __hne(T a, T b) { return float(a) != float(b); } \\\n"
    "    __device__ inline bool __hisnan(T a) { return float(a) != float(a); } \\\n"
    "    __device__ inline float __low2float(P v) { return v.x; } \\\n"
    "    __device__ inline float __high2float(P v) { return v.y; }\n"
    "#define QUERN_NARROW_2(T, P, name, sign, value) \\\n"
    "    __device__ inline T name(T u, T v) { float a = u, b = v; return T(value); } \\\n"
    "    __device__ inline P name##2(P u, P v) { return P(name(u.x, v.x), name(u.y, v.y)); } \\\n"
    "    __device__ inline P sign(P u, P v) { return name##2(u, v); }\n"
    "#define QUERN_NARROW_1(T, P, name, value) \\\n"
    "    __device__ inline T name(T v) { float a = v; return T(value); } \\\n"
    "    __device__ inline P name##2(P v) { return P(name(v.x), name(v.y)); }\n";

static const char half_pairs[] = "QUERN_NARROW(half, __half2)\n"
                                 "typedef __half2 half2;\n"
                                 "__device__ inline half2 make_half2(half a, half b) { return half2(a, b); }\n"
                                 "__device__ inline half2 __halves2half2(half a, half b) { return half2(a, b); }\n"
                                 "__device__ inline half2 __half2half2(half a) { return half2(a, a); }\n"
                                 "__device__ inline half2 __float2half2_rn(float a) { return half2(a, a); }\n"
                                 "__device__ inline half2 __floats2half2_rn(float a, float b) { return half2(a, b); }\n"
                                 "__device__ inline half2 __float22half2_rn(float2 v) { return half2(v.x, v.y); }\n"
                                 "__device__ inline float2 __half22float2(half2 v) { return make_float2(v.x, v.y); }\n"
                                 "__device__ inline half __low2half(half2 v) { return v.x; }\n"
                                 "__device__ inline half __high2half(half2 v) { return v.y; }\n"
                                 "__device__ inline half __float2half_rn(float x) { return half(x); }\n"
                                 "__device__ inline half __int2half_rn(int x) { return half((float)x); }\n";

static const char brain_pairs[] =
    "QUERN_NARROW(__nv_bfloat16, __nv_bfloat162)\n"
    "typedef __nv_bfloat162 nv_bfloat162;\n"
    "__device__ inline nv_bfloat162 __halves2bfloat162(bfloat a, bfloat b) { return nv_bfloat162(a, b); }\n"
    "__device__ inline nv_bfloat162 __bfloat162bfloat162(bfloat a) { return nv_bfloat162(a, a); }\n"
    "__device__ inline nv_bfloat162 __float2bfloat162_rn(float a) { return nv_bfloat162(a, a); }\n"
    "__device__ inline nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return nv_bfloat162(a, b); }\n"
    "__device__ inline float2 __bfloat1622float2(nv_bfloat162 v) { return make_float2(v.x, v.y); }\n"
    "__device__ inline bfloat __low2bfloat16(nv_bfloat162 v) { return v.x; }\n"
    "__device__ inline bfloat __high2bfloat16(nv_bfloat162 v) { return v.y; }\n"
    "__device__ inline bfloat __float2bfloat16_rn(float x) { return bfloat(x); }\n";

static void add_one_type(const char *scalars, const char *pairs, const char *instead, text *out)
{
    if (instead) text_add(out, "#ifdef QUERN_EMU\n");
    text_add(out, scalars);
    text_add(out, pairs);
    if (instead) text_print(out, "#else\n%s#endif\n", instead);
}

void raw_prelude(bool own_half, bool own_brain, bool own_integers, text *out)
{
    text_print(out, own_integers ? "#ifdef QUERN_EMU\n%s#endif\n" : "%s", integers);
    text_add(out, basics);
    text_add(out, common);
    add_one_type(halves, half_pairs, own_half ? "" : NULL, out);
    add_one_type(brains, brain_pairs, own_brain ? "struct __nv_bfloat16;\ntypedef __nv_bfloat16 bfloat;\n" : NULL, out);
}
