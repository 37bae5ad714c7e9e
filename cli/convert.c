/*
 * Numbers of a file in the type of a parameter: NumPy has no bfloat16, its integers have 64 bits and few programs write
 * halves. In: an array with any strides. Out: a row-major copy, each number rounded once, to nearest, ties to even; what is
 * too large for a float becomes infinite (NaN where there is no infinity), NaN stays NaN; what an integer type cannot hold ends it.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_float(qn_dtype type)
{
    return type <= QN_BF16 || type == QN_F8E4M3;
}

/* Fractions are never cut off behind anybody's back. */
bool converts(qn_dtype from, qn_dtype to)
{
    return from != to && (is_float(to) || !is_float(from));
}

/* To a format of so many digits (bits) and exponents. A double holds every step exactly. */
static double rounded(double x, int digits, int least_exponent, int greatest_exponent)
{
    if (x == 0 || !isfinite(x)) return x;
    int exponent = ilogb(x);
    if (exponent < least_exponent) exponent = least_exponent;
    double y = ldexp(rint(ldexp(x, digits - 1 - exponent)), exponent - digits + 1);
    return fabs(y) >= ldexp(1, greatest_exponent + 1) ? copysign(INFINITY, x) : y;
}

static uint16_t half_bits(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return sign | 0x7e00;
    double y = fabs(rounded(x, 11, -14, 15));
    if (isinf(y)) return sign | 0x7c00;
    if (y < ldexp(1, -14)) return sign | (uint16_t)ldexp(y, 24);
    int exponent = ilogb(y);
    return (uint16_t)(sign | ((exponent + 15) << 10) | ((int)ldexp(y, 10 - exponent) - 1024));
}

static uint16_t bfloat_bits(double x)
{
    uint32_t bits;
    if (isnan(x)) return signbit(x) ? 0xffc0 : 0x7fc0;
    float exact = (float)rounded(x, 8, -126, 127);
    memcpy(&bits, &exact, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

static uint8_t eighth_bits(double x)
{
    uint8_t sign = signbit(x) ? 0x80 : 0;
    double y = isnan(x) ? INFINITY : fabs(rounded(x, 4, -6, 8));
    if (y > 448) return sign | 0x7f;
    if (y < ldexp(1, -6)) return sign | (uint8_t)ldexp(y, 9);
    int exponent = ilogb(y);
    return (uint8_t)(sign | ((exponent + 7) << 3) | ((int)ldexp(y, 3 - exponent) - 8));
}

/* Integers of 64 bits are not all doubles: between two such types the bits go over as they are. */
static bool put_whole(const qn_array *array, const int64_t *index, qn_dtype to, void *at)
{
    double x = element_as_double(array, index), two = ldexp(1, 8 * (int)qn_dtype_size_bytes(to) - (to <= QN_I64));
    bool is_signed = to <= QN_I64;
    if (to == QN_BOOL) two = 2;
    if (x != rint(x) || x >= two || x < (is_signed ? -two : 0)) return false;
    uint64_t bits = x < 0 ? (uint64_t)(int64_t)x : (uint64_t)x;
    if (array->type == QN_I64 || array->type == QN_U64) memcpy(&bits, element_at(array, index), sizeof(bits));
    memcpy(at, &bits, qn_dtype_size_bytes(to)); /* little-endian, as everything here */
    return true;
}

void *convert_array(const qn_array *array, qn_dtype to, double *misfit)
{
    int64_t count = 1, index[QN_MAX_RANK] = {0};
    for (int axis = 0; axis < array->rank; axis++) count *= array->extents[axis];
    char *out = memory_or_exit(NULL, (size_t)count * qn_dtype_size_bytes(to) + 1);
    for (int64_t i = 0; i < count; i++) {
        double x = element_as_double(array, index);
        if (to == QN_F64) {
            ((double *)(void *)out)[i] = x;
        } else if (to == QN_F32) {
            ((float *)(void *)out)[i] = (float)x;
        } else if (to == QN_F8E4M3) {
            ((uint8_t *)out)[i] = eighth_bits(x);
        } else if (is_float(to)) {
            ((uint16_t *)(void *)out)[i] = to == QN_F16 ? half_bits(x) : bfloat_bits(x);
        } else if (!put_whole(array, index, to, out + (size_t)i * qn_dtype_size_bytes(to))) {
            *misfit = x;
            free(out);
            return NULL;
        }
        for (int axis = array->rank - 1; axis >= 0 && ++index[axis] == array->extents[axis]; axis--) index[axis] = 0;
    }
    return out;
}
