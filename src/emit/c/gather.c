/*
 * Products whose operands are gathered, in C text. In: the operands of a DOT as matrices, one of an array with digits.
 * Out: a view of each for the prelude (prelude/c/gather.h), which packs panels through it: per axis of the product its digits,
 * where it begins, and what it adds to guards. An operand without digits is one digit with its stride. Results that lie so
 * are stored through a table of places, counted once for all rows of a tile.
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <inttypes.h>

static void put_axis(emitter *e, const matrix *m, int axis, const char *moved, const char *end)
{
    text words = {0};
    if (!m->digits) {
        text_print(&words, "{%s, 1, {0}, {%s}, {{0}}}%s", moved, m->strides[axis], end);
    } else if (m->digit_axis[axis] < 0) {
        text_print(&words, "{0, 1, {0}, {0}, {{0}}}%s", end);
    } else {
        const axis_digits *d = &m->digits->axes[m->digit_axis[axis]];
        text_print(&words, "{%s + %s, %d, ", m->starts[axis], moved, d->count);
        digits_numbers(&words, d->extent, d->count, "L");
        text_add(&words, ", ");
        digits_numbers(&words, d->stride, d->count, "L");
        text_add(&words, ", {");
        for (int g = 0; g < m->digits->guard_count; g++) {
            if (g) text_add(&words, ", ");
            digits_numbers(&words, d->guard[g], d->count, "L");
        }
        text_print(&words, "%s}}%s", m->digits->guard_count ? "" : "{0}", end);
    }
    put(e, "    %s", text_get(&words));
    text_free(&words);
}

static void put_view(emitter *e, const char *name, const matrix *m, int line, const char *moved)
{
    text words = {0};
    int guards = m->digits ? m->digits->guard_count : 0;
    text_print(&words, "const gather_view %s = {%s, %d, {", name, m->pointer, guards);
    for (int g = 0; g < guards; g++) text_print(&words, "%s%s", g ? ", " : "", m->first[g]);
    text_add(&words, guards ? "}, " : "0}, ");
    if (guards)
        digits_numbers(&words, m->digits->guard_extent, guards, "L");
    else
        text_add(&words, "{0}");
    text_add(&words, ",");
    put(e, "%s", text_get(&words));
    text_free(&words);
    put_axis(e, m, line, moved, ",");
    put_axis(e, m, 1 - line, "k_first", "};");
}

const char *gather_places(emitter *e, const axis_digits *d, const char *start, const char *count)
{
    text words = {0};
    text_print(&words, "%s((long[%s]){0}, %s, &(gather_axis){%s, %d, ", need(e, "gather_places"), count, count, start,
               d->count);
    digits_numbers(&words, d->extent, d->count, "L");
    text_add(&words, ", ");
    digits_numbers(&words, d->stride, d->count, "L");
    text_add(&words, ", {{0}}})");
    const char *result = arena_print(e->memory, "%s", text_get(&words));
    text_free(&words);
    return result;
}

void gather_put_operands(emitter *e, const char *function, const matrix *left, const matrix *right)
{
    put_view(e, "left_view", left, 0, "m_first");
    put_view(e, "right_view", right, 1, "n_first");
    put(e, "%s(&left_view, &right_view,", function);
}
