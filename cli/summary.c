/*
 * One array in a few lines: name, type, shape, least, greatest and mean value, how many are not numbers, and the first
 * elements. In comes any view (strides of any sign); nothing is copied.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static double half_to_double(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                       : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                      : ldexp(fraction, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

const char *element_at(const qn_array *array, const int64_t *index)
{
    int64_t offset = 0;
    for (int axis = 0; axis < array->rank; axis++) offset += index[axis] * array->strides[axis];
    return (const char *)array->data + offset * (int64_t)qn_dtype_size_bytes(array->type);
}

double element_as_double(const qn_array *array, const int64_t *index)
{
    const char *at = element_at(array, index);
    union {
        float f32;
        double f64;
        uint16_t bits16;
        uint32_t bits32;
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
        uint64_t u64;
    } value = {0};
    memcpy(&value, at, qn_dtype_size_bytes(array->type));
    switch (array->type) {
    case QN_F32: return value.f32;
    case QN_F64: return value.f64;
    case QN_F16: return half_to_double(value.bits16);
    case QN_BF16: {
        uint32_t wide = (uint32_t)value.bits16 << 16;
        memcpy(&value.f32, &wide, sizeof(wide));
        return value.f32;
    }
    case QN_I8: return value.i8;
    case QN_I16: return value.i16;
    case QN_I32: return value.i32;
    case QN_I64: return (double)value.i64;
    case QN_U8: return value.u8;
    case QN_U16: return value.bits16;
    case QN_U32: return value.bits32;
    case QN_U64: return (double)value.u64;
    case QN_BOOL: return value.u8 != 0;
    case QN_F8E4M3: {
        int exponent = value.u8 >> 3 & 15, mantissa = value.u8 & 7;
        double size = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
        return (value.u8 & 0x7f) == 0x7f ? NAN : value.u8 & 0x80 ? -size : size;
    }
    }
    return NAN;
}

void print_element(const qn_array *array, const int64_t *index, int digits, FILE *to)
{
    if (array->type == QN_I64 || array->type == QN_U64) { /* a double cannot hold them all */
        int64_t whole;
        memcpy(&whole, element_at(array, index), sizeof(whole));
        if (array->type == QN_I64)
            fprintf(to, "%" PRId64, whole);
        else
            fprintf(to, "%" PRIu64, (uint64_t)whole);
    } else {
        fprintf(to, "%.*g", digits, element_as_double(array, index));
    }
}

/* The next index in row-major order; false after the last. */
static bool advance(const qn_array *array, int64_t *index)
{
    for (int axis = array->rank - 1; axis >= 0; axis--) {
        if (++index[axis] < array->extents[axis]) return true;
        index[axis] = 0;
    }
    return false;
}

void summarise_array(const char *name, const qn_array *array, FILE *to)
{
    int64_t count = 1, not_numbers = 0, infinite = 0, finite = 0, index[QN_MAX_RANK] = {0};
    double least = INFINITY, greatest = -INFINITY, sum = 0;
    fprintf(to, "%s: %s", name, qn_dtype_name(array->type));
    for (int axis = 0; axis < array->rank; axis++) {
        fprintf(to, "[%" PRId64 "]", array->extents[axis]);
        count *= array->extents[axis];
    }
    if (!count) {
        fprintf(to, "  empty\n");
        return;
    }
    do {
        double x = element_as_double(array, index);
        if (isnan(x)) {
            not_numbers++;
            continue;
        }
        if (x < least) least = x;
        if (x > greatest) greatest = x;
        if (isinf(x)) {
            infinite++;
        } else {
            sum += x;
            finite++;
        }
    } while (advance(array, index));
    if (not_numbers < count) fprintf(to, "  min %.6g  max %.6g", least, greatest);
    if (finite) fprintf(to, "  mean %.6g", sum / (double)finite);
    if (infinite) fprintf(to, "  %" PRId64 " infinite", infinite);
    if (not_numbers) fprintf(to, "  %" PRId64 " NaN", not_numbers);
    fprintf(to, "\n ");
    memset(index, 0, sizeof(index));
    for (int shown = 0; shown < 8; shown++) {
        fputc(' ', to);
        print_element(array, index, 6, to);
        if (!advance(array, index)) break;
    }
    fprintf(to, count > 8 ? " ...\n" : "\n");
}

double largest_difference(const qn_array *a, const qn_array *b)
{
    int64_t count = 1, index[QN_MAX_RANK] = {0};
    double largest = 0;
    for (int axis = 0; axis < a->rank; axis++) count *= a->extents[axis];
    if (!count) return 0;
    do {
        double x = element_as_double(a, index), y = element_as_double(b, index);
        if (x == y || (isnan(x) && isnan(y))) continue;
        double difference = isnan(x) || isnan(y) ? INFINITY : fabs(x - y);
        if (difference > largest) largest = difference;
    } while (advance(a, index));
    return largest;
}
