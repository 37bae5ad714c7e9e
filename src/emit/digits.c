/*
 * Positions that are numbers of several digits (param_digits). In: a position on an axis of such an array, as text.
 * Out: what it adds to a place in memory, or to a guard, as text. Both printers ask.
 * SPDX-License-Identifier: MIT
 */
#include "emit/nest.h"

#include <inttypes.h>

const char *digits_sum(emitter *e, const axis_digits *d, const int64_t *factors, const char *position)
{
    const char *sum = NULL;
    int64_t unit = 1;
    for (int i = d->count - 1; i >= 0; i--) {
        const char *digit = position;
        if (unit != 1) digit = arena_print(e->memory, "%s / %" PRId64, digit, unit);
        if (i) digit = arena_print(e->memory, "%s %% %" PRId64, digit, d->extent[i]);
        if (factors[i])
            sum = arena_print(e->memory, "%s%s(long)(%s) * %" PRId64 "L", sum ? sum : "", sum ? " + " : "", digit,
                              factors[i]);
        unit *= d->extent[i];
    }
    return sum;
}

void digits_numbers(text *to, const int64_t *numbers, int count, const char *end)
{
    text_add(to, "{");
    for (int i = 0; i < count; i++) text_print(to, "%s%" PRId64 "%s", i ? ", " : "", numbers[i], end);
    text_add(to, "}");
}
