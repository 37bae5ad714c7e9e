/*
 * Comparing arrays, and laying them out in other ways. In: views. Out: how far they are apart; or a view with the same
 * extents over memory with gaps, so that a device that ignores strides or writes outside its array is seen.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GAP_BYTE 0xa5

void tolerance_default(dtype elem, double *relative, double *absolute)
{
    *relative = dtype_tolerance(elem);
    *absolute = *relative; /* generated inputs are of the order of one */
}

static void wrong_one(comparison *c, int64_t index, double actual, double expected, double allowed)
{
    double error = fabs(actual - expected);
    if (!isnan(error)) c->worst = MAXIMUM(c->worst, error);
    if (c->wrong++) return;
    c->first = index;
    c->actual = actual;
    c->expected = expected;
    c->allowed = allowed;
}

static void compare_one(comparison *c, int64_t index, double actual, double expected, double allowed)
{
    double error = fabs(actual - expected);
    if (actual == expected || (isnan(actual) && isnan(expected))) error = 0;
    if (error <= allowed) {
        c->worst = MAXIMUM(c->worst, error);
        return;
    }
    wrong_one(c, index, actual, expected, allowed);
}

/* Of the finite elements; 0 for integers. */
static double root_mean_square(const array_view *v, int64_t count)
{
    double sum = 0;
    int64_t finite = 0;
    for (int64_t i = 0; dtype_is_float(v->elem) && i < count; i++) {
        double x = element_read(v->elem, view_element(v, i)).f;
        if (!isfinite(x)) continue;
        sum += x * x;
        finite++;
    }
    return finite ? sqrt(sum / (double)finite) : 0;
}

comparison arrays_compare(const array_view *actual, const array_view *expected, double relative, double absolute)
{
    return arrays_compare_moved(actual, expected, NULL, relative, absolute);
}

void moved_note(double *moved, const array_view *expected, const array_view *shaken)
{
    int64_t count = view_count(expected);
    for (int64_t i = 0; i < count; i++) {
        double by = fabs(element_read(expected->elem, view_element(expected, i)).f -
                         element_read(shaken->elem, view_element(shaken, i)).f);
        if (isfinite(by)) moved[i] = MAXIMUM(moved[i], by); /* what is not finite says nothing */
    }
}

bool view_shake(const array_view *v, int seed)
{
    if (v->elem != DT_F32 && v->elem != DT_F64) return false;
    double last = v->elem == DT_F32 ? 0x1p-23 : 0x1p-52;
    int64_t count = view_count(v);
    for (int64_t i = 0; i < count; i++) {
        int64_t place[2] = {i, seed};
        number n = element_read(v->elem, view_element(v, i));
        n.f *= 1 + (hash_bytes(place, sizeof(place)).low & 1 ? last : -last); /* a regular change cancels in sums */
        element_write(v->elem, view_element(v, i), n);
    }
    return count > 0;
}

/* Every rounding inside a computation is a shake of its own, and the functions of a GPU miss by two of them. */
#define SHAKES 16

comparison arrays_compare_moved(const array_view *actual, const array_view *expected, const double *moved,
                                double relative, double absolute)
{
    comparison c = {.count = view_count(expected)};
    dtype elem = expected->elem;
    int64_t row = expected->rank ? expected->extents[expected->rank - 1] : 1;
    double typical = root_mean_square(expected, c.count), squares = 0;
    for (int64_t i = 0; moved && i < c.count; i++) squares += moved[i] * moved[i];
    double moved_typical = c.count ? sqrt(squares / (double)c.count) : 0;
    for (int64_t start = 0; start < c.count; start += row) {
        double scale = typical, far = moved_typical;
        for (int64_t i = start; dtype_is_float(elem) && i < start + row; i++) {
            double size = fabs(element_read(elem, view_element(expected, i)).f);
            if (isfinite(size)) scale = MAXIMUM(scale, size);
        }
        for (int64_t i = start; moved && i < start + row; i++) far = MAXIMUM(far, moved[i]);
        for (int64_t i = start; i < start + row; i++) {
            number a = element_read(elem, view_element(actual, i)), e = element_read(elem, view_element(expected, i));
            if (dtype_is_float(elem))
                compare_one(&c, i, a.f, e.f, MAXIMUM(absolute + relative * scale, SHAKES * far));
            else if (a.i != e.i)
                wrong_one(&c, i, (double)a.i, (double)e.i, 0);
        }
    }
    return c;
}

bool view_copy(const array_view *from, array_view *to)
{
    *to = view_row_major(NULL, from->elem, from->rank, from->extents);
    to->data = memory_allocate((size_t)(view_count(from) * dtypes[from->elem].size_bytes) + 1);
    if (to->data) view_assign(to, from);
    return to->data != NULL;
}

void view_assign(const array_view *to, const array_view *from)
{
    int64_t count = view_count(from);
    size_t size = (size_t)dtypes[from->elem].size_bytes;
    for (int64_t i = 0; i < count; i++) memcpy(view_element(to, i), view_element(from, i), size);
}

bool view_scatter(const array_view *like, int style, array_view *to, void **base, size_t *size_bytes)
{
    int order[MAX_RANK];
    for (int i = 0; i < like->rank; i++) order[i] = style % 2 ? i : like->rank - 1 - i; /* the fastest axis first */
    int64_t step = 1 + style % 3, origin = 0, size = dtypes[like->elem].size_bytes;
    *to = *like;
    for (int i = 0; i < like->rank; i++) {
        int axis = order[i];
        to->strides[axis] = step;
        if ((style + axis) % 3 == 2 && like->extents[axis] > 0) { /* this axis runs backwards */
            origin += step * (like->extents[axis] - 1);
            to->strides[axis] = -step;
        }
        step = step * MAXIMUM(like->extents[axis], 1) + 1 + style % 2;
    }
    int64_t margin = 16 + style; /* odd styles make unaligned bases as well */
    *size_bytes = (size_t)((step + 2 * margin) * size);
    *base = memory_allocate(*size_bytes);
    if (!*base) return false;
    memset(*base, GAP_BYTE, *size_bytes);
    to->data = (char *)*base + (origin + margin) * size;
    return true;
}

bool view_gaps_intact(const array_view *view, const void *base, size_t size_bytes)
{
    unsigned char *inside = calloc(1, size_bytes);
    if (!inside) return true;
    int64_t count = view_count(view);
    size_t size = (size_t)dtypes[view->elem].size_bytes;
    for (int64_t i = 0; i < count; i++)
        memset(inside + ((const char *)view_element(view, i) - (const char *)base), 1, size);
    bool intact = true;
    for (size_t i = 0; i < size_bytes; i++) intact &= inside[i] || ((const unsigned char *)base)[i] == GAP_BYTE;
    heap_free(inside);
    return intact;
}
