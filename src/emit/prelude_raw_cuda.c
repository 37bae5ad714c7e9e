/*
 * The prelude of raw CUDA kernels, as text: integer types of known width, a few constants of <float.h> and <math.h>,
 * and the 16-bit floats as structs that convert to and from float, laid out as the vendor's. NVRTC has no headers, and
 * this stands in for the usual ones; where the text includes the vendor's own, its types are used instead.
 * SPDX-License-Identifier: MIT
 */
#include "emit/raw.h"

static const char basics[] = "typedef signed char int8_t;\n"
                             "typedef short int16_t;\n"
                             "typedef int int32_t;\n"
                             "typedef long int64_t;\n"
                             "typedef unsigned char uint8_t;\n"
                             "typedef unsigned short uint16_t;\n"
                             "typedef unsigned int uint32_t;\n"
                             "typedef unsigned long uintptr_t, uint64_t;\n"
                             "#ifndef INFINITY\n"
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
    "};\n"
    "typedef __nv_bfloat16 bfloat, bf16;\n"
    "__device__ inline float __bfloat162float(bfloat x) { return x; }\n"
    "__device__ inline bfloat __float2bfloat16(float x) { return x; }\n";

void raw_prelude(bool own_half, bool own_brain, text *out)
{
    text_add(out, basics);
    if (!own_half) text_add(out, halves);
    text_add(out, own_brain ? "struct __nv_bfloat16;\ntypedef __nv_bfloat16 bfloat;\n" : brains);
}
