/*
 * Products whose operands are gathered, in CUDA text. In: a DOT with an operand that is a slice of an array with digits.
 * Out: the views of both operands and the class of the prelude that multiplies them (prelude/cuda/gather.cuh).
 *
 * A tile's side is a power of two; about 64 sums a thread. Neighbouring threads go along k where the elements lie side by
 * side along k, else along the lines.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/gather.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- views ---- */

/* One of the two axes of an operand, as text. */
typedef struct gather_axis {
    axis_digits digits;
    const char *stride; /* of an array without digits */
    const char *start;
} gather_axis;

typedef struct gather {
    const char *pointer;
    gather_axis axes[2]; /* lines, k */
    int guard_count;
    const char *first[GUARDS_MOST];
    int64_t extent[GUARDS_MOST];
} gather;

static gather gather_of(emitter *e, value v, int line_axis)
{
    tile_op *load;
    bool swapped;
    CHECK(dot_operand_is_direct(e->survey, v, &load, &swapped));
    const struct access *a = &load->attr.access;
    const tile_param *p = &e->k->params[a->array];
    const param_digits *d = p->digits;
    gather g = {.pointer = arena_print(e->memory, "%s_array", p->name)};
    e->array_used[a->array] = true;
    for (int i = 0; i < 2; i++) g.axes[i] = (gather_axis){.digits = {.count = 1}, .stride = "0L", .start = "0L"};
    if (d) {
        if (d->origin) g.pointer = arena_print(e->memory, "%s + %" PRId64 "L", g.pointer, d->origin);
        g.guard_count = d->guard_count;
        for (int i = 0; i < d->guard_count; i++) {
            g.first[i] = arena_print(e->memory, "%" PRId64, d->guard_first[i]);
            g.extent[i] = d->guard_extent[i];
        }
    }
    int operand = a->first_index;
    for (int axis = 0; axis < a->rank; axis++) {
        const char *start = emit_name(e, load->operands[operand]);
        if (a->kind[axis] == INDEX_SLICE) {
            bool first = (a->result_axis[axis] == 0) != swapped;
            gather_axis *to = &g.axes[first ? line_axis : 1 - line_axis];
            to->start = start;
            to->stride = d ? NULL : stride_text(e, a->array, axis);
            if (d) to->digits = d->axes[axis];
            operand += 2;
            continue;
        }
        operand++;
        const char *sum = d ? digits_sum(e, &d->axes[axis], d->axes[axis].stride, start)
                            : arena_print(e->memory, "%s * %s", start, stride_text(e, a->array, axis));
        if (sum) g.pointer = arena_print(e->memory, "%s + (%s)", g.pointer, sum);
        for (int i = 0; d && i < d->guard_count; i++) {
            sum = digits_sum(e, &d->axes[axis], d->axes[axis].guard[i], start);
            if (sum) g.first[i] = arena_print(e->memory, "%s + (int)(%s)", g.first[i], sum);
        }
    }
    return g;
}

/* Elements that lie side by side along an axis. */
static bool is_unit(const gather_axis *x)
{
    if (x->stride) return x->stride == words_one;
    return x->digits.stride[x->digits.count - 1] == 1;
}

/* What holds the distance between two of `lines` neighbouring lines. */
static const char *distance_type(const gather_axis *x, int lines)
{
    const axis_digits *d = &x->digits;
    if (x->stride) return "long";
    int64_t inner = 1, reach = 0;
    for (int i = d->count - 1; i > 0; i--) {
        if (__builtin_mul_overflow(inner, d->extent[i], &inner) || inner > (int64_t)1 << 31) return "long";
        int64_t part;
        if (__builtin_mul_overflow(llabs(d->stride[i]), d->extent[i], &part) || part > (int64_t)1 << 30) return "long";
        reach += part;
    }
    int64_t outer;
    if (__builtin_mul_overflow(llabs(d->stride[0]), lines / inner + 2, &outer)) return "long";
    return reach + outer < (int64_t)1 << 30 ? "int" : "long";
}

static const char *view_type(emitter *e, const gather *g)
{
    return arena_print(e->memory, "gather_view<%d, %d, %d>", g->axes[0].digits.count, g->axes[1].digits.count,
                       g->guard_count);
}

static void put_view(emitter *e, const char *name, const gather *g, const char *moved)
{
    text words = {0};
    text_print(&words, "const %s %s = {%s, %s%s, %s,", view_type(e, g), name, g->pointer, g->axes[0].start, moved,
               g->axes[1].start);
    put(e, "%s", text_get(&words));
    text_clear(&words);
    for (int i = 0; i < 2; i++) {
        const gather_axis *x = &g->axes[i];
        digits_numbers(&words, x->digits.extent, x->digits.count, "");
        text_add(&words, ", ");
        if (x->stride)
            text_print(&words, "{%s}", x->stride);
        else
            digits_numbers(&words, x->digits.stride, x->digits.count, "L");
        text_add(&words, ", ");
    }
    for (int i = 0; i < 2; i++) {
        text_add(&words, "{");
        for (int k = 0; k < g->guard_count; k++) {
            if (k) text_add(&words, ", ");
            digits_numbers(&words, g->axes[i].digits.guard[k], g->axes[i].digits.count, "");
        }
        text_add(&words, g->guard_count ? "}, " : "{0}}, ");
    }
    text_add(&words, "{");
    for (int k = 0; k < g->guard_count; k++) text_print(&words, "%s%s", k ? ", " : "", g->first[k]);
    text_add(&words, g->guard_count ? "}, " : "0}, ");
    if (g->guard_count)
        digits_numbers(&words, g->extent, g->guard_count, "");
    else
        text_add(&words, "{0}");
    text_add(&words, "};");
    put(e, "    %s", text_get(&words));
    text_free(&words);
}

/* ---- products ---- */

const char *gather_put(emitter *e, const loop_product *product)
{
    const tile_op *dot = product->dot;
    const gather_product *p = &product->gather;
    gather left = gather_of(e, dot->operands[0], 0), right = gather_of(e, dot->operands[1], 1);
    dtype elem = tile_type_of(e->k, dot->operands[0]).elem;
    bool fast[2] = {is_unit(&left.axes[1]) && !is_unit(&left.axes[0]),
                    is_unit(&right.axes[1]) && !is_unit(&right.axes[0])};
    put_view(e, "gather_a", &left, " + top");
    put_view(e, "gather_b", &right, " + left");
    const char *name = product->on_units ? "tf32" : memory_name(elem);
    return arena_print(e->memory, "%s<%d, %d, %d, %d, %s, %s, %s, %s, %s, %s>", need(e, "product_gather_%s", name),
                       p->rows, p->columns, p->down, p->across, distance_type(&left.axes[0], p->rows),
                       distance_type(&right.axes[0], p->columns), view_type(e, &left), view_type(e, &right),
                       fast[0] ? "true" : "false", fast[1] ? "true" : "false");
}
