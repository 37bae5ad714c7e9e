/*
 * Comparing arrays. In: two arrays of one type and how far they may differ. Out: the greatest error and what was wrong.
 *
 * A float may differ by absolute + relative * max(|expected|, root mean square of the expected array): where terms
 * cancel, an element is as wrong as its terms are, which the array's own size stands for. Integers must be equal. NaN
 * equals NaN, infinities must agree.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1024 };

#define WIDEN(type)                                                           \
    for (int i = 0; i < count; i++) out[i] = (double)((const type *)from)[i]; \
    return

static void widen(dtype elem, const void *from, int count, double *out)
{
    switch (elem) {
    case DT_F32: WIDEN(float);
    case DT_F64: WIDEN(double);
    case DT_I8: WIDEN(int8_t);
    case DT_I16: WIDEN(int16_t);
    case DT_I32: WIDEN(int32_t);
    case DT_I64: WIDEN(int64_t);
    case DT_U8: WIDEN(uint8_t);
    case DT_U16: WIDEN(uint16_t);
    case DT_U32: WIDEN(uint32_t);
    case DT_U64: WIDEN(uint64_t);
    case DT_BOOL: WIDEN(uint8_t);
    case DT_F16:
        for (int i = 0; i < count; i++) out[i] = f16_to_double(((const uint16_t *)from)[i]);
        return;
    case DT_BF16:
        for (int i = 0; i < count; i++) out[i] = bf16_to_double(((const uint16_t *)from)[i]);
        return;
    case DT_F8E4M3:
        for (int i = 0; i < count; i++) out[i] = f8e4m3_to_double(((const uint8_t *)from)[i]);
        return;
    default: CHECK(!"a type without elements");
    }
}

/* Which of the block's elements count. */
static int choose(int size, const char *expected, const char *before, int64_t before_step, int count, bool *counts)
{
    int chosen = 0;
    for (int i = 0; i < count; i++) {
        counts[i] =
            !before || memcmp(expected + (size_t)i * (size_t)size, before + i * before_step * size, (size_t)size) != 0;
        chosen += counts[i];
    }
    return chosen;
}

static double root_mean_square(dtype elem, const char *expected, const char *before, int64_t before_step, int64_t count)
{
    int size = dtypes[elem].size_bytes;
    double sum = 0, wide[BLOCK];
    int64_t finite = 0;
    bool counts[BLOCK];
    for (int64_t start = 0; start < count; start += BLOCK) {
        int now = (int)MINIMUM(BLOCK, count - start);
        const char *from = expected + start * size;
        if (!choose(size, from, before ? before + start * before_step * size : NULL, before_step, now, counts))
            continue;
        widen(elem, from, now, wide);
        for (int i = 0; i < now; i++) {
            if (!counts[i] || !isfinite(wide[i])) continue;
            sum += wide[i] * wide[i];
            finite++;
        }
    }
    return finite ? sqrt(sum / (double)finite) : 0;
}

void compare_elements(dtype elem, const void *actual, const void *expected, const void *before, int64_t before_step,
                      int64_t count, double relative, double absolute, comparison *out)
{
    int size = dtypes[elem].size_bytes;
    bool is_float = dtype_is_float(elem), counts[BLOCK];
    double scale = is_float ? root_mean_square(elem, expected, before, before_step, count) : 0;
    double wide_actual[BLOCK], wide_expected[BLOCK];
    *out = (comparison){.first_wrong = -1};
    for (int64_t start = 0; start < count; start += BLOCK) {
        int now = (int)MINIMUM(BLOCK, count - start);
        const char *from = (const char *)expected + start * size, *mine = (const char *)actual + start * size;
        const char *old = before ? (const char *)before + start * before_step * size : NULL;
        int chosen = choose(size, from, old, before_step, now, counts);
        out->compared += chosen;
        if (!chosen || (chosen == now && !memcmp(from, mine, (size_t)now * (size_t)size))) continue;
        widen(elem, from, now, wide_expected);
        widen(elem, mine, now, wide_actual);
        for (int i = 0; i < now; i++) {
            double a = wide_actual[i], e = wide_expected[i], error = 0;
            bool wrong = false;
            if (!counts[i] || !memcmp(from + i * size, mine + i * size, (size_t)size)) continue;
            if (!is_float) { /* the bits differ, even where a double cannot tell them apart */
                error = fmax(fabs(a - e), 1);
                wrong = true;
            } else if (isfinite(a) && isfinite(e)) {
                double unit = fmax(fabs(e), scale);
                wrong = fabs(a - e) > absolute + relative * unit;
                error = unit > 0 ? fabs(a - e) / unit : fabs(a - e);
            } else if (!(isnan(a) && isnan(e)) && a != e) {
                error = INFINITY;
                wrong = true;
            }
            if (error > out->max_error) out->max_error = error;
            if (!wrong) continue;
            if (!out->wrong++) {
                out->first_wrong = start + i;
                out->first_actual = a;
                out->first_expected = e;
            }
        }
    }
}
