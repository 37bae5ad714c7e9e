/*
 * Do two array views share memory? Views with equal strides and element sizes are compared exactly: they meet when some
 * whole number of steps per axis leads from one base to the other. All others are compared by address range.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"

#include <stdlib.h>

static bool is_empty(const array_view *v)
{
    for (int i = 0; i < v->rank; i++)
        if (v->extents[i] <= 0) return true;
    return false;
}

/* First byte and one past the last. */
static void range(const array_view *v, intptr_t *low, intptr_t *high)
{
    intptr_t size = dtypes[v->elem].size_bytes, from = (intptr_t)v->data, to = from + size;
    for (int i = 0; i < v->rank; i++) {
        intptr_t reach = (intptr_t)((v->extents[i] - 1) * v->strides[i]) * size;
        if (reach < 0)
            from += reach;
        else
            to += reach;
    }
    *low = from;
    *high = to;
}

typedef struct search {
    int rank;
    int64_t stride[MAX_RANK], low[MAX_RANK], high[MAX_RANK]; /* steps d on an axis: low <= d <= high; strides descend */
    int64_t reach[MAX_RANK + 1]; /* the most that axes k and later can cover, in either direction */
    int budget;                  /* steps left before we give up and say that they may meet */
} search;

static bool meets(search *s, int axis, int64_t distance)
{
    if (axis == s->rank) return distance == 0;
    if (--s->budget < 0) return true;
    int64_t stride = s->stride[axis];
    if (stride == 0) return meets(s, axis + 1, distance);
    /* |distance - d * stride| must be within the reach of the later axes. */
    int64_t first = (distance - s->reach[axis + 1]) / stride - 1, last = (distance + s->reach[axis + 1]) / stride + 1;
    first = MAXIMUM(first, s->low[axis]);
    last = MINIMUM(last, s->high[axis]);
    for (int64_t d = first; d <= last; d++) {
        if (llabs(distance - d * stride) > s->reach[axis + 1]) continue;
        if (meets(s, axis + 1, distance - d * stride)) return true;
    }
    return false;
}

bool views_overlap(const array_view *a, const array_view *b)
{
    if (is_empty(a) || is_empty(b)) return false;
    intptr_t a_low, a_high, b_low, b_high;
    range(a, &a_low, &a_high);
    range(b, &b_low, &b_high);
    if (a_high <= b_low || b_high <= a_low) return false;

    int64_t size = dtypes[a->elem].size_bytes, bytes = (intptr_t)b->data - (intptr_t)a->data;
    if (a->rank != b->rank || dtypes[b->elem].size_bytes != size || bytes % size) return true;
    search s = {.rank = a->rank, .budget = 100000};
    for (int i = 0; i < a->rank; i++) {
        if (a->strides[i] != b->strides[i] && a->extents[i] > 1 && b->extents[i] > 1) return true;
        int64_t stride = a->extents[i] > 1 ? a->strides[i] : b->strides[i];
        int64_t low = -(b->extents[i] - 1), high = a->extents[i] - 1; /* index in a less index in b */
        if (stride < 0) {
            int64_t swap = low;
            stride = -stride;
            low = -high;
            high = -swap;
        }
        int at = i;
        for (; at > 0 && s.stride[at - 1] < stride; at--) {
            s.stride[at] = s.stride[at - 1];
            s.low[at] = s.low[at - 1];
            s.high[at] = s.high[at - 1];
        }
        s.stride[at] = stride;
        s.low[at] = low;
        s.high[at] = high;
    }
    for (int i = s.rank - 1; i >= 0; i--) s.reach[i] = s.reach[i + 1] + s.stride[i] * MAXIMUM(-s.low[i], s.high[i]);
    return meets(&s, 0, bytes / size);
}
