/*
 * Arrays that are moved, as the CPU does it: axes exchanged in blocks, axes turned round, every other element, and both
 * fused with arithmetic, for elements of 1 to 8 bytes at sizes around those of blocks, against plain loops. What moves is exact.
 * SPDX-License-Identifier: MIT
 */
#include <quern/nn.h>

#include "ir/tile.h"
#include "share.h"
#include "test.h"

#include <stdlib.h>

static qn_context *context;
static qn_error error;

typedef struct movement {
    int rank, axes[4]; /* result axis i is the array's axes[i] */
    int64_t extents[4];
    bool back[4]; /* of the array's axes */
} movement;

static const movement movements[] = {
    {2, {1, 0}, {64, 64}, {0}},
    {2, {1, 0}, {37, 131}, {0}},
    {2, {1, 0}, {3, 1025}, {0}}, /* few lines: rows of three */
    {2, {1, 0}, {1025, 3}, {0}},
    {2, {1, 0}, {16, 17}, {0}},
    {2, {1, 0}, {70, 90}, {false, true}}, /* not turned: its neighbours go backwards */
    {2, {1, 0}, {70, 90}, {true, false}},
    {3, {0, 2, 1}, {3, 40, 81}, {0}},
    {3, {2, 1, 0}, {33, 5, 66}, {0}},
    {3, {1, 2, 0}, {35, 7, 50}, {0}},
    {4, {0, 2, 3, 1}, {2, 3, 19, 23}, {0}},
    {4, {3, 2, 1, 0}, {17, 4, 9, 33}, {0}},
    {2, {0, 1}, {9, 203}, {false, true}},
    {2, {0, 1}, {5, 16}, {true, true}},
    {1, {0}, {1000}, {true}},
};

static void compare(const movement *m, dtype elem)
{
    int64_t count = 1, place[4] = {0}, size = (int64_t)dtypes[elem].size_bytes;
    qn_shape shape = {.rank = m->rank};
    for (int i = 0; i < m->rank; i++) count *= shape.extents[i] = m->extents[i];
    char *values = malloc((size_t)(count * size)), *got = malloc((size_t)(count * size));
    char *wanted = malloc((size_t)(count * size));
    for (int64_t i = 0; i < count; i++)
        element_write(elem, values + i * size, (number){elem == DT_BOOL ? i % 3 == 0 : i % 50, (double)(i % 50)});
    qn_tape *tape;
    EXPECT(!qn_tape_new(context, "cpu", &tape, &error));
    qn_tensor x = qn_from_memory(tape, values, (qn_dtype)elem, shape), y;
    qn_axes back = {0}, order = {.count = m->rank};
    for (int i = 0; i < m->rank; i++) {
        order.axes[i] = m->axes[i];
        if (m->back[i]) back.axes[back.count++] = i;
    }
    y = back.count ? qn_flip(x, back) : x;
    bool doubled = elem != DT_BOOL; /* so that a kernel moves it */
    y = qn_permute(y, order);
    if (doubled) y = qn_add(y, y);
    if (qn_tensor_read(y, got, (size_t)(count * size), &error)) printf("%s\n", error.message);
    for (int64_t i = 0; i < count; i++) { /* counts through the result */
        int64_t at = 0, rest = i;
        for (int r = m->rank - 1; r >= 0; r--) {
            place[m->axes[r]] = rest % m->extents[m->axes[r]];
            rest /= m->extents[m->axes[r]];
        }
        for (int r = 0; r < m->rank; r++)
            at = at * m->extents[r] + (m->back[r] ? m->extents[r] - 1 - place[r] : place[r]);
        number v = element_read(elem, values + at * size);
        if (doubled) v.i *= 2, v.f *= 2;
        element_write(elem, wanted + i * size, v);
    }
    if (memcmp(got, wanted, (size_t)(count * size)))
        printf("movement %d of %s is wrong\n", (int)(m - movements), dtypes[elem].c_name);
    EXPECT(!memcmp(got, wanted, (size_t)(count * size)));
    qn_tape_free(tape);
    free(values);
    free(got);
    free(wanted);
}

TEST(floats)
{
    for (int i = 0; i < COUNT(movements); i++) compare(&movements[i], DT_F32);
}

TEST(other_types)
{
    static const dtype types[] = {DT_F64, DT_BF16, DT_U8, DT_I16, DT_I64, DT_BOOL};
    for (int t = 0; t < COUNT(types); t++)
        for (int i = t; i < COUNT(movements); i += 1 + share_of_few("movements")) compare(&movements[i], types[t]);
}

/* Tiles of other axes that begin at one place of an array, in one program. */
TEST(other_axes_of_one_place)
{
    enum { A = 16, C = 32, ALL = A * A * C };
    static const char source[] =
        "kernel both(in float x[a][a][c], out float y[n][m]) launch (a)\n"
        "{\n"
        "    int p = program(0);\n"
        "    assume(a == 16 && c == 32);\n"
        "    y[p * 32 : 32][0 : 16] = transpose(x[0 : 16][p][0 : 32]) + 2 * "
        "transpose(x[p][0 : 16][0 : 32]);\n"
        "}\n"
        "kernel first(in float x[a][a][c], out float y[32][16]) launch (1)\n"
        "{\n"
        "    assume(a == 16 && c == 32);\n"
        "    y[:][:] = transpose(x[0 : 16][0][0 : 32]) + 2 * transpose(x[0][0 : 16][0 : 32]);\n"
        "}\n";
    float *x = malloc(ALL * sizeof(float)), *y = malloc(ALL * sizeof(float));
    for (int i = 0; i < ALL; i++) x[i] = (float)i;
    qn_module *module;
    qn_call *call;
    const int64_t from[] = {A, A, C};
    EXPECT(!qn_module_load_text(context, "axes.qn", source, &module, &error));
    for (int one = 0; one < 2; one++) {
        int programs = one ? 1 : A, wrong = 0;
        const int64_t to[] = {programs * C, A};
        memset(y, 0, ALL * sizeof(float));
        EXPECT(!qn_call_new(module, one ? "first" : "both", &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", x, QN_F32, 3, from, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "y", y, QN_F32, 2, to, NULL, &error));
        if (qn_call_run(call, "cpu", &error)) printf("%s\n", error.message);
        for (int i = 0; i < programs * C * A; i++) {
            int p = i / A / C, c = i / A % C, a = i % A;
            wrong += y[i] != x[(a * A + p) * C + c] + 2 * x[(p * A + a) * C + c];
        }
        EXPECT(!wrong);
        qn_call_free(call);
    }
    qn_module_free(module);
    free(x);
    free(y);
}

TEST(opening)
{
    EXPECT(!qn_context_open(NULL, &context, &error));
}
TEST(closing)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(opening), CASE(floats), CASE(other_types), CASE(other_axes_of_one_place), CASE(closing))
