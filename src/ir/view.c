/*
 * Views of memory; view.h has what is asked and the meaning that all answers share.
 * Overlap: views with equal strides and element sizes are compared exactly: they meet when some whole number of steps
 * per axis leads from one base to the other. All others are compared by address range.
 * SPDX-License-Identifier: MIT
 */
#include "ir/view.h"

#include <stdlib.h>

enum { MOST_BITS = 58 }; /* an address of 64 bits, elements of 8 bytes, and room for a sum of all axes */

static bool is_empty(int rank, const int64_t *extents)
{
    for (int i = 0; i < rank; i++)
        if (extents[i] <= 0) return true;
    return false;
}

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX / 2 : product;
}

int64_t extents_count(int rank, const int64_t *extents)
{
    int64_t count = 1;
    if (is_empty(rank, extents)) return 0;
    for (int i = 0; i < rank; i++) count = times(count, extents[i]);
    return count;
}

void strides_set_row_major(int rank, const int64_t *extents, int64_t *strides)
{
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = step;
        step = times(step, MAXIMUM(extents[i], 1));
    }
}

bool strides_are_row_major(int rank, const int64_t *extents, const int64_t *strides)
{
    int64_t step = 1;
    if (is_empty(rank, extents)) return true;
    for (int i = rank - 1; i >= 0; i--) {
        if (extents[i] > 1 && strides[i] != step) return false;
        step = times(step, extents[i]);
    }
    return true;
}

bool strides_reach(int rank, const int64_t *extents, const int64_t *strides, int64_t *low, int64_t *high)
{
    *low = *high = 0;
    if (is_empty(rank, extents)) return true;
    *high = 1;
    for (int i = 0; i < rank; i++) {
        int64_t more, *end = strides[i] < 0 ? low : high;
        if (extents[i] == 1) continue;
        if (__builtin_mul_overflow(extents[i] - 1, strides[i], &more) || __builtin_add_overflow(*end, more, end) ||
            *low <= -((int64_t)1 << MOST_BITS) || *high >= (int64_t)1 << MOST_BITS)
            return false;
    }
    return true;
}

bool strides_join(int rank, const int64_t *extents, const int64_t *strides, int64_t *extent, int64_t *stride)
{
    *extent = extents_count(rank, extents);
    *stride = 0;
    int64_t inner = 1;
    for (int i = rank - 1; i >= 0; i--) {
        if (extents[i] == 1) continue;
        if (inner == 1)
            *stride = strides[i];
        else if (*extent && strides[i] != times(*stride, inner))
            return false;
        inner = times(inner, MAXIMUM(extents[i], 1));
    }
    return true;
}

bool strides_reshape(int rank, const int64_t *extents, const int64_t *strides, int to_rank, const int64_t *to_extents,
                     int64_t *out)
{
    if (is_empty(rank, extents)) {
        strides_set_row_major(to_rank, to_extents, out);
        return true;
    }
    int at = to_rank - 1;
    int64_t run = 1, base = rank ? strides[rank - 1] : 1, dealt = 1;
    for (int k = rank - 1; k >= 0; k--) {
        run *= extents[k];
        bool ends = k == 0 || (extents[k - 1] != 1 && strides[k - 1] != run * base);
        if (!ends) continue;
        for (; at >= 0 && (dealt < run || to_extents[at] == 1); at--) {
            out[at] = dealt * base;
            dealt *= to_extents[at];
        }
        if (dealt != run) return false;
        if (k > 0) base = strides[k - 1];
        run = dealt = 1;
    }
    for (; at >= 0; at--) out[at] = base;
    return true;
}

array_view view_row_major(void *data, dtype elem, int rank, const int64_t *extents)
{
    array_view v = {.data = data, .elem = elem, .rank = rank};
    for (int i = 0; i < rank; i++) v.extents[i] = extents[i];
    strides_set_row_major(rank, v.extents, v.strides);
    return v;
}

int64_t view_count(const array_view *v)
{
    return extents_count(v->rank, v->extents);
}

bool view_is_row_major(const array_view *v)
{
    return strides_are_row_major(v->rank, v->extents, v->strides);
}

bool view_has_unit_lines(const array_view *v)
{
    return !v->rank || v->extents[v->rank - 1] <= 1 || v->strides[v->rank - 1] == 1 || is_empty(v->rank, v->extents);
}

bool view_is_aligned(const array_view *v, int bytes)
{
    if ((uintptr_t)v->data % (uintptr_t)bytes) return false;
    for (int i = 0; i + 1 < v->rank; i++)
        if (v->extents[i] > 1 && v->strides[i] % bytes * dtypes[v->elem].size_bytes % bytes) return false;
    return true;
}

bool view_is_bulk(const array_view *v)
{
    if (!v->rank || !view_is_aligned(v, 16) || !view_has_unit_lines(v)) return false;
    for (int i = 0; i + 1 < v->rank; i++)
        if (v->extents[i] > 1 && v->strides[i] <= 0) return false;
    return true;
}

bool view_is_backwards(const array_view *v)
{
    int size = dtypes[v->elem].size_bytes;
    if (!v->rank || v->extents[v->rank - 1] <= 1 || v->strides[v->rank - 1] != -1 || is_empty(v->rank, v->extents))
        return false;
    array_view behind = *v;
    behind.data = (char *)v->data + size;
    return view_is_aligned(&behind, 16);
}

bool view_is_dense(const array_view *v)
{
    /* As many positions as elements is not enough: some may be touched twice and others never. In order of their
     * strides each axis has to begin where those before it end. */
    int64_t step = 1;
    bool done[MAX_RANK] = {false};
    if (is_empty(v->rank, v->extents)) return true;
    for (int round = 0; round < v->rank; round++) {
        int next = -1;
        for (int i = 0; i < v->rank; i++)
            if (!done[i] && v->extents[i] > 1 && llabs(v->strides[i]) == step) next = i;
        if (next < 0) break;
        done[next] = true;
        step = times(step, v->extents[next]);
    }
    for (int i = 0; i < v->rank; i++)
        if (!done[i] && v->extents[i] > 1) return false;
    return true;
}

void view_reach(const array_view *v, int64_t *low, int64_t *high)
{
    if (strides_reach(v->rank, v->extents, v->strides, low, high)) return;
    *low = 0;
    *high = (int64_t)1 << MOST_BITS; /* nobody has so much memory: what asks for it says so */
}

int64_t view_span(const array_view *v)
{
    int64_t low, high;
    view_reach(v, &low, &high);
    return high - low;
}

void *view_element(const array_view *v, int64_t number)
{
    int64_t offset = 0;
    for (int i = v->rank - 1; i >= 0; i--) {
        offset += number % v->extents[i] * v->strides[i];
        number /= v->extents[i];
    }
    return (char *)v->data + offset * dtypes[v->elem].size_bytes;
}

/* ---- overlap ---- */

/* First byte and one past the last. */
static void byte_range(const array_view *v, int64_t *low, int64_t *high)
{
    int64_t size = dtypes[v->elem].size_bytes;
    view_reach(v, low, high);
    *low = (intptr_t)v->data + *low * size;
    *high = (intptr_t)v->data + *high * size;
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
    int64_t a_low, a_high, b_low, b_high;
    if (is_empty(a->rank, a->extents) || is_empty(b->rank, b->extents)) return false;
    byte_range(a, &a_low, &a_high);
    byte_range(b, &b_low, &b_high);
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

bool facts_of_number(tile_param *p, int64_t number)
{
    p->facts = (tile_facts){.size_class = -1};
    if (dtype_is_float(p->elem)) return false;
    p->facts.one = number == 1;
    p->facts.by16 = number % 16 == 0;
    return true;
}
