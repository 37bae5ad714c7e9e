/*
 * Views of memory: every question of ir/view.h, at the places where answers used to differ: no elements, one element,
 * the strides of axes of one position, negative and zero strides, bases off the alignment, numbers beyond memory.
 * Counted by hand where that can be done.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "ir/view.h"

#include <stdlib.h>
#include <string.h>

static array_view view(char *base, dtype elem, int64_t origin, int64_t a, int64_t b, int64_t sa, int64_t sb)
{
    return (array_view){.data = base + origin * dtypes[elem].size_bytes,
                        .elem = elem,
                        .rank = 2,
                        .extents = {a, b},
                        .strides = {sa, sb}};
}

TEST(overlap)
{
    static char m[4096];
    array_view whole = view(m, DT_F32, 0, 8, 16, 16, 1), left = view(m, DT_F32, 0, 8, 8, 16, 1),
               right = view(m, DT_F32, 8, 8, 8, 16, 1), far = view(m, DT_F32, 128, 8, 16, 16, 1),
               even = view(m, DT_F32, 0, 8, 8, 16, 2), odd = view(m, DT_F32, 1, 8, 8, 16, 2),
               none = view(m, DT_F32, 0, 0, 8, 16, 1), back = view(m, DT_F32, 15, 8, 8, 16, -1),
               turned = view(m, DT_F32, 0, 8, 8, 1, 16), wide = view(m, DT_F64, 0, 4, 4, 4, 1),
               first_row = view(m, DT_F32, 0, 1, 16, 999, 1), last_row = view(m, DT_F32, 112, 1, 16, 7, 1);
    EXPECT(views_overlap(&whole, &whole) && views_overlap(&whole, &left) && views_overlap(&right, &whole));
    EXPECT(!views_overlap(&left, &right) && !views_overlap(&right, &left));
    EXPECT(!views_overlap(&whole, &far) && !views_overlap(&even, &odd));
    EXPECT(!views_overlap(&none, &whole));
    EXPECT(views_overlap(&back, &right)); /* other strides: by address range */
    EXPECT(views_overlap(&turned, &left) && views_overlap(&wide, &left));
    EXPECT(views_overlap(&whole, &first_row) && views_overlap(&whole, &last_row)); /* a unit axis has no stride */
    EXPECT(!views_overlap(&first_row, &last_row));
    array_view zero = view(m, DT_F32, 3, 8, 8, 0, 0), apart = view(m, DT_F32, 4, 8, 8, 0, 0);
    EXPECT(!views_overlap(&zero, &apart) && views_overlap(&zero, &zero));
    array_view byte = even;
    byte.data = m + 2;
    EXPECT(views_overlap(&byte, &odd)); /* half an element off */
}

/* Against a plain list of addresses, for random views of equal strides. */
TEST(overlap_by_counting)
{
    static char m[65536];
    unsigned state = 7;
    int met = 0;
    for (int round = 0; round < 3000; round++) {
        int64_t n[12];
        for (int i = 0; i < 12; i++) {
            state = state * 1664525 + 1013904223;
            n[i] = (state >> 16) % 7;
        }
        array_view a = {.data = m + 32768, .elem = DT_F32, .rank = 3, .extents = {n[0] % 4, n[1], n[2]}};
        array_view b = {.data = m + 32768 + 4 * (n[3] * 13 + n[4] * 2),
                        .elem = DT_F32,
                        .rank = 3,
                        .extents = {n[5] % 4, n[6], n[7]}};
        int64_t strides[3] = {n[8] * 5 - 9, n[9] * 2 - 4, n[10] % 3};
        memcpy(a.strides, strides, sizeof(strides));
        memcpy(b.strides, strides, sizeof(strides));
        static unsigned char seen[65536];
        memset(seen, 0, sizeof(seen));
        bool expected = false;
        for (int pass = 0; pass < 2; pass++) {
            const array_view *v = pass ? &b : &a;
            for (int64_t i = 0; i < v->extents[0]; i++)
                for (int64_t j = 0; j < v->extents[1]; j++)
                    for (int64_t k = 0; k < v->extents[2]; k++) {
                        int64_t at = (char *)v->data - m + 4 * (i * strides[0] + j * strides[1] + k * strides[2]);
                        if (pass)
                            expected |= seen[at];
                        else
                            seen[at] = 1;
                    }
        }
        met += expected;
        EXPECT(views_overlap(&a, &b) == expected);
    }
    EXPECT(met > 100);
}

static array_view shaped(void *data, int rank, const int64_t *extents, const int64_t *strides)
{
    array_view v = {.data = data, .elem = DT_F32, .rank = rank};
    memcpy(v.extents, extents, sizeof(int64_t) * (size_t)rank);
    memcpy(v.strides, strides, sizeof(int64_t) * (size_t)rank);
    return v;
}
#define SHAPED(data, rank, extents, strides) shaped(data, rank, (const int64_t[])extents, (const int64_t[])strides)
#define LIST(...)   \
    {               \
        __VA_ARGS__ \
    }

TEST(nothing_and_one)
{
    static _Alignas(64) float m[64];
    array_view none = SHAPED(m, 2, LIST(3, 0), LIST(7, 5)), outer = SHAPED(m, 3, LIST(0, 4, 4), LIST(9, 9, 9));
    EXPECT(view_is_row_major(&none) && view_is_row_major(&outer));
    EXPECT(view_is_dense(&none) && view_span(&none) == 0 && view_count(&outer) == 0);
    EXPECT(view_has_unit_lines(&outer) && view_is_aligned(&none, 64) == false); /* lines of 28 bytes */
    array_view one = SHAPED(m, 2, LIST(1, 1), LIST(999, -3)), number = {.data = m, .elem = DT_F32};
    EXPECT(view_is_row_major(&one) && view_is_dense(&one) && view_span(&one) == 1 && view_count(&one) == 1);
    EXPECT(view_is_aligned(&one, 64) && view_is_bulk(&one) && view_has_unit_lines(&one));
    EXPECT(view_is_row_major(&number) && view_span(&number) == 1 && view_has_unit_lines(&number));
    EXPECT(!view_is_bulk(&number)); /* a map has an axis */
    number.data = m + 1;
    EXPECT(!view_is_aligned(&number, 64) && view_is_aligned(&number, 4));
}

TEST(strides_of_one_position_say_nothing)
{
    static _Alignas(64) float m[256];
    array_view row = SHAPED(m, 3, LIST(1, 4, 16), LIST(13, 16, 1)), column = SHAPED(m, 2, LIST(16, 1), LIST(1, 5));
    EXPECT(view_is_row_major(&row) && view_is_aligned(&row, 64) && view_is_bulk(&row) && view_span(&row) == 64);
    EXPECT(view_is_row_major(&column) && view_has_unit_lines(&column));
    row.strides[0] = -13;
    EXPECT(view_is_bulk(&row) && view_span(&row) == 64);
    row.extents[0] = 2;
    EXPECT(!view_is_bulk(&row) && !view_is_aligned(&row, 64) && view_span(&row) == 77);
}

TEST(directions)
{
    static float m[64];
    int64_t low, high;
    array_view back = SHAPED(m + 32, 2, LIST(4, 8), LIST(8, -1)), same = SHAPED(m, 2, LIST(4, 8), LIST(0, 1));
    view_reach(&back, &low, &high);
    EXPECT(low == -7 && high == 25);
    EXPECT(view_is_dense(&back) && !view_is_row_major(&back) && !view_has_unit_lines(&back));
    EXPECT(view_span(&same) == 8 && !view_is_dense(&same) && !view_is_row_major(&same) && !view_is_bulk(&same));
    EXPECT(view_element(&back, 9) == m + 32 + 8 - 1);
    /* As many places as elements, and yet two are never touched: what lies there is somebody else's. */
    array_view holes = SHAPED(m, 3, LIST(2, 2, 2), LIST(1, 1, 5));
    EXPECT(view_span(&holes) == view_count(&holes) && !view_is_dense(&holes));
}

TEST(beyond_memory)
{
    int64_t low, high, strides[3];
    const int64_t wide[] = {(int64_t)1 << 40, (int64_t)1 << 40, 3}, least[] = {INT64_MIN, 1, 1}, two[] = {2, 2, 2};
    strides_set_row_major(3, wide, strides);
    EXPECT(strides[2] == 1 && strides[1] == 3 && strides[0] > 0);
    EXPECT(!strides_reach(3, wide, strides, &low, &high));
    EXPECT(!strides_reach(3, two, least, &low, &high));
    EXPECT(extents_count(3, wide) > (int64_t)1 << 60);
    const int64_t none[] = {(int64_t)1 << 62, 0, (int64_t)1 << 62};
    strides_set_row_major(3, none, strides);
    EXPECT(strides_reach(3, none, strides, &low, &high) && low == 0 && high == 0 && extents_count(3, none) == 0);
}

static unsigned state = 11;
static int64_t any(int64_t most)
{
    state = state * 1664525 + 1013904223;
    return (state >> 16) % (unsigned)most;
}

/* Every answer against the list of places that the elements have. */
TEST(by_counting)
{
    static _Alignas(64) char m[4096];
    int row_major = 0, dense = 0, joined = 0, aligned = 0;
    for (int round = 0; round < 20000; round++) {
        array_view v = {.data = m + 2048 + 4 * any(2) * any(16), .elem = DT_F32, .rank = (int)any(4)};
        for (int i = 0; i < v.rank; i++) v.extents[i] = any(12) ? 1 + any(4) : 0;
        strides_set_row_major(v.rank, v.extents, v.strides);
        for (int i = 0; i < v.rank; i++)
            if (!any(3)) v.strides[i] = any(21) - 8;
        for (int i = 0; i + 1 < v.rank; i++)
            if (!any(5)) v.strides[i] = 16 * any(3);
        int64_t count = view_count(&v), low, high, extent, stride, lowest = 0, highest = -1;
        bool in_order = true, lines = true, once = true, even = true;
        unsigned char seen[1024] = {0};
        float *previous = NULL;
        for (int64_t i = 0; i < count; i++) {
            float *at = view_element(&v, i);
            int64_t place = at - (float *)v.data, last = v.rank ? v.extents[v.rank - 1] : 1;
            in_order &= place == i;
            if (i % last) lines &= at == previous + 1;
            if (i % last == 0) even &= (uintptr_t)at % 64 == 0;
            once &= !seen[place + 512]++;
            lowest = i && lowest < place ? lowest : place;
            highest = i && highest > place ? highest : place;
            previous = at;
        }
        view_reach(&v, &low, &high);
        EXPECT(low == (count ? lowest : 0) && high == (count ? highest + 1 : 0));
        EXPECT(view_is_row_major(&v) == in_order && view_has_unit_lines(&v) == lines);
        EXPECT(view_is_dense(&v) == (once && highest - lowest + 1 == count));
        if (count) EXPECT(view_is_aligned(&v, 64) == even);
        bool one_step = true;
        int64_t step = count > 1 ? (float *)view_element(&v, 1) - (float *)v.data : 0;
        for (int64_t i = 0; i < count; i++) one_step &= (float *)view_element(&v, i) - (float *)v.data == i * step;
        EXPECT(strides_join(v.rank, v.extents, v.strides, &extent, &stride) == one_step);
        EXPECT(!one_step || (extent == count && (count < 2 || stride == step)));
        row_major += in_order && count > 1;
        dense += view_is_dense(&v) && !in_order;
        joined += one_step && count > 1 && !in_order;
        aligned += view_is_aligned(&v, 64) && v.rank > 1;
    }
    EXPECT(row_major > 1000 && dense > 100 && joined > 100 && aligned > 100);
}

/* Another shape over the same memory: the same places in the same order, wherever strides can tell it. */
TEST(reshapes)
{
    static const int64_t shapes[][4] = {{12, 1, 1, 1}, {3, 4, 1, 1}, {4, 3, 1, 1}, {2, 2, 3, 1},
                                        {1, 12, 1, 1}, {2, 1, 6, 1}, {2, 3, 1, 2}, {6, 1, 2, 1}};
    static float m[4096];
    int done = 0;
    for (int round = 0; round < 4000; round++) {
        array_view v = {.data = m + 2048, .elem = DT_F32, .rank = 4}, to = v;
        memcpy(v.extents, shapes[any(COUNT(shapes))], sizeof(shapes[0]));
        memcpy(to.extents, shapes[any(COUNT(shapes))], sizeof(shapes[0]));
        strides_set_row_major(4, v.extents, v.strides);
        for (int i = 0; i < 4; i++)
            if (!any(3)) v.strides[i] = any(9) - 3;
        if (!strides_reshape(4, v.extents, v.strides, 4, to.extents, to.strides)) continue;
        for (int64_t i = 0; i < 12; i++) EXPECT(view_element(&v, i) == view_element(&to, i));
        done++;
    }
    EXPECT(done > 1000);
}

TEST_MAIN(CASE(overlap), CASE(overlap_by_counting), CASE(nothing_and_one), CASE(strides_of_one_position_say_nothing),
          CASE(directions), CASE(beyond_memory), CASE(by_counting), CASE(reshapes))
