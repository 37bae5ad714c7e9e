/*
 * Number formats: rounding, conversion and element access, one function per format.
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"

#include <math.h>
#include <string.h>

bool dtype_from_text(const char *text, dtype *out)
{
    static const struct {
        const char *text;
        dtype type;
    } other[] = {{"float", DT_F32}, {"double", DT_F64}, {"int", DT_I64}};
    for (int i = 0; i < DT_COUNT; i++) {
        if (!strcmp(text, dtypes[i].text)) {
            *out = (dtype)i;
            return true;
        }
    }
    for (int i = 0; i < COUNT(other); i++) {
        if (!strcmp(text, other[i].text)) {
            *out = other[i].type;
            return true;
        }
    }
    return false;
}

uint16_t f16_from_double(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double size = fabs(x);
    if (isnan(x)) return sign | 0x7e00;
    if (size >= 65520.0) return sign | 0x7c00; /* halfway to the next one after 65504 rounds to infinity */
    if (size < 0x1p-14) return sign | (uint16_t)nearbyint(size * 0x1p24); /* subnormal; 1024 is the first normal one */
    int exponent;
    double fraction = frexp(size, &exponent);                              /* [0.5, 1) */
    int mantissa = (int)nearbyint(fraction * 2048.0);                      /* 1024 .. 2048 */
    return sign | (uint16_t)(((exponent + 14) << 10) + (mantissa - 1024)); /* a carry moves into the exponent */
}

double f16_to_double(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                  : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                 : ldexp(mantissa, -24);
    return bits & 0x8000 ? -size : size;
}

uint16_t bf16_from_double(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double size = fabs(x);
    if (isnan(x)) return sign | 0x7fc0;
    if (size >= 0x1.ffp127) return sign | 0x7f80;
    if (size < 0x1p-126) return sign | (uint16_t)nearbyint(size * 0x1p133);
    int exponent;
    double fraction = frexp(size, &exponent);
    int mantissa = (int)nearbyint(fraction * 256.0); /* 128 .. 256 */
    return sign | (uint16_t)(((exponent + 126) << 7) + (mantissa - 128));
}

double bf16_to_double(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
}

uint8_t f8e4m3_from_double(double x)
{
    uint8_t sign = signbit(x) ? 0x80 : 0;
    double size = fabs(x);
    if (!(size <= 464.0)) return sign | 0x7f; /* halfway to what would be the next one rounds down, to even */
    if (size < 0x1p-6) return sign | (uint8_t)nearbyint(size * 0x1p9);
    int exponent;
    double fraction = frexp(size, &exponent);
    int mantissa = (int)nearbyint(fraction * 16.0); /* 8 .. 16 */
    return sign | (uint8_t)(((exponent + 6) << 3) + (mantissa - 8));
}

double f8e4m3_to_double(uint8_t bits)
{
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    double size = (bits & 0x7f) == 0x7f ? NAN : exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return bits & 0x80 ? -size : size;
}

double dtype_tolerance(dtype t)
{
    switch (t) {
    case DT_F64: return 1e-12;
    case DT_F32: return 1e-5;
    case DT_F16: return 1e-3;
    case DT_BF16: return 1e-2;
    case DT_F8E4M3: return 0.13;
    default: return 0;
    }
}

double round_to_dtype(dtype t, double x)
{
    switch (t) {
    case DT_F32: return (float)x;
    case DT_F16: return f16_to_double(f16_from_double(x));
    case DT_BF16: return bf16_to_double(bf16_from_double(x));
    case DT_F8E4M3: return f8e4m3_to_double(f8e4m3_from_double(x));
    default: return x;
    }
}

int64_t integer_wrap(dtype t, int64_t x)
{
    switch (t) {
    case DT_I8: return (int8_t)x;
    case DT_I16: return (int16_t)x;
    case DT_I32: return (int32_t)x;
    case DT_U8: return (uint8_t)x;
    case DT_U16: return (uint16_t)x;
    case DT_U32: return (uint32_t)x;
    case DT_BOOL: return x != 0;
    default: return x;
    }
}

#define READ(type, field)            \
    {                                \
        type x;                      \
        memcpy(&x, from, sizeof(x)); \
        n.field = x;                 \
        break;                       \
    }
#define WRITE(type, from)          \
    {                              \
        type x = (type)(from);     \
        memcpy(to, &x, sizeof(x)); \
        break;                     \
    }

number element_read(dtype t, const void *from)
{
    number n = {0, 0};
    switch (t) {
    case DT_F32: READ(float, f)
    case DT_F64: READ(double, f)
    case DT_F16: {
        uint16_t bits;
        memcpy(&bits, from, 2);
        n.f = f16_to_double(bits);
        break;
    }
    case DT_BF16: {
        uint16_t bits;
        memcpy(&bits, from, 2);
        n.f = bf16_to_double(bits);
        break;
    }
    case DT_F8E4M3: n.f = f8e4m3_to_double(*(const uint8_t *)from); break;
    case DT_I8: READ(int8_t, i)
    case DT_I16: READ(int16_t, i)
    case DT_I32: READ(int32_t, i)
    case DT_I64: READ(int64_t, i)
    case DT_U8: READ(uint8_t, i)
    case DT_U16: READ(uint16_t, i)
    case DT_U32: READ(uint32_t, i)
    case DT_U64: READ(int64_t, i)
    case DT_BOOL: n.i = *(const uint8_t *)from != 0; break;
    case DT_COUNT: break;
    }
    return n;
}

void element_write(dtype t, void *to, number n)
{
    switch (t) {
    case DT_F32: WRITE(float, n.f)
    case DT_F64: WRITE(double, n.f)
    case DT_F16: WRITE(uint16_t, f16_from_double(n.f))
    case DT_BF16: WRITE(uint16_t, bf16_from_double(n.f))
    case DT_F8E4M3: WRITE(uint8_t, f8e4m3_from_double(n.f))
    case DT_I8: WRITE(int8_t, n.i)
    case DT_I16: WRITE(int16_t, n.i)
    case DT_I32: WRITE(int32_t, n.i)
    case DT_I64: WRITE(int64_t, n.i)
    case DT_U8: WRITE(uint8_t, n.i)
    case DT_U16: WRITE(uint16_t, n.i)
    case DT_U32: WRITE(uint32_t, n.i)
    case DT_U64: WRITE(uint64_t, n.i)
    case DT_BOOL: WRITE(uint8_t, n.i != 0)
    case DT_COUNT: break;
    }
}
