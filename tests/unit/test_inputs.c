/*
 * Generated inputs: each generator's numbers, that they depend on seed, name and element alone, and what a wrong clause
 * is told.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"
#include "test.h"

#include <stdlib.h>

static qn_error error;

/* Fills with the generator that the words give. */
static qn_status fill(const char *generator, const char *name, uint64_t seed, const array_view *view)
{
    if (!generator) return input_fill(NULL, NULL, NULL, 1, name, seed, view, &error);
    arena *memory = arena_new();
    char source[300];
    snprintf(source, sizeof(source), "bench b (n = 1) input (x = %s) { k }\n", generator);
    diagnostics d = {.memory = memory};
    ast_file *file = lang_parse(memory, "inputs.qn", source, strlen(source), &d);
    EXPECT(d.errors == 0);
    bindings known = {0};
    bindings_set(memory, &known, (binding){.name = "V", .kind = BIND_INT, .type = DT_I64, .number = {.i = 10}});
    const ast *clause = clause_of(bench_of(file, "k"), "input");
    qn_status status = QN_FAILED;
    if (clause) status = input_fill(file, clause->list.items[0]->left, &known, 1, name, seed, view, &error);
    arena_free(memory);
    return status;
}

static array_view flat(void *data, dtype elem, int64_t count)
{
    return (array_view){.data = data, .elem = elem, .rank = 1, .extents = {count}, .strides = {1}};
}

TEST(floats)
{
    static float x[100000], y[100000];
    array_view vx = flat(x, DT_F32, 100000), vy = flat(y, DT_F32, 100000);
    EXPECT(fill(NULL, "x", 1, &vx) == QN_OK && fill("normal(3, 0.5)", "x", 1, &vy) == QN_OK);
    double sum = 0, squares = 0, fourth = 0;
    int outside = 0;
    for (int i = 0; i < 100000; i++) {
        sum += x[i];
        squares += x[i] * x[i];
        fourth += x[i] * x[i] * x[i] * x[i];
        outside += fabsf(x[i]) > 1;
        EXPECT(fabs(y[i] - (3 + 0.5 * x[i])) < 1e-6);
    }
    EXPECT_NEAR(sum / 1e5, 0, 0.02);
    EXPECT_NEAR(squares / 1e5, 1, 0.03);
    EXPECT_NEAR(fourth / 1e5, 3, 0.2);
    EXPECT_NEAR(outside / 1e5, 0.3173, 0.01);
    EXPECT(fill("uniform(-1, 3)", "x", 1, &vx) == QN_OK);
    sum = 0;
    for (int i = 0; i < 100000; i++) {
        EXPECT(x[i] >= -1 && x[i] <= 3);
        sum += x[i];
    }
    EXPECT_NEAR(sum / 1e5, 1, 0.02);
    EXPECT(fill("constant(2.5)", "x", 1, &vx) == QN_OK && x[0] == 2.5f && x[99999] == 2.5f);
    EXPECT(fill("7", "x", 1, &vx) == QN_OK && x[5] == 7);
    EXPECT(fill("ramp()", "x", 1, &vx) == QN_OK && x[0] == 0 && x[12345] == 12345);
}

TEST(integers)
{
    static int64_t x[20000];
    static unsigned char b[20000];
    array_view vx = flat(x, DT_I64, 20000), vb = flat(b, DT_BOOL, 20000);
    int counts[10] = {0};
    EXPECT(fill("integers(0, V)", "x", 1, &vx) == QN_OK);
    for (int i = 0; i < 20000; i++) {
        EXPECT(x[i] >= 0 && x[i] < 10);
        if (x[i] >= 0 && x[i] < 10) counts[x[i]]++;
    }
    for (int i = 0; i < 10; i++) EXPECT(counts[i] > 1700 && counts[i] < 2300);
    EXPECT(fill("integers(-5, 1 << 40)", "x", 1, &vx) == QN_OK);
    int64_t largest = 0;
    for (int i = 0; i < 20000; i++) {
        EXPECT(x[i] >= -5 && x[i] < (int64_t)1 << 40);
        largest = MAXIMUM(largest, x[i]);
    }
    EXPECT(largest > (int64_t)1 << 39);
    EXPECT(fill(NULL, "x", 1, &vb) == QN_OK);
    int ones = 0;
    for (int i = 0; i < 20000; i++) ones += b[i] == 1;
    EXPECT(ones > 9500 && ones < 10500);
    EXPECT(fill("permutation()", "x", 1, &vx) == QN_OK);
    static unsigned char seen[20000];
    int moved = 0;
    for (int i = 0; i < 20000; i++) {
        EXPECT(x[i] >= 0 && x[i] < 20000 && !seen[x[i]]);
        seen[x[i]] = 1;
        moved += x[i] != i;
    }
    EXPECT(moved > 19000);
}

/* The same element gets the same number for any strides, size and type of integer; another name or seed, others. */
TEST(what_numbers_depend_on)
{
    float x[60], y[600], z[30];
    array_view vx = {.data = x, .elem = DT_F32, .rank = 2, .extents = {6, 10}, .strides = {10, 1}};
    array_view vy = {.data = y + 599, .elem = DT_F32, .rank = 2, .extents = {6, 10}, .strides = {-3, -40}};
    array_view vz = flat(z, DT_F32, 30);
    EXPECT(fill(NULL, "x", 1, &vx) == QN_OK && fill(NULL, "x", 1, &vy) == QN_OK && fill(NULL, "x", 1, &vz) == QN_OK);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 10; j++) EXPECT(x[10 * i + j] == y[599 - 3 * i - 40 * j]);
    EXPECT(!memcmp(x, z, sizeof(z)));
    EXPECT(fill(NULL, "w", 1, &vz) == QN_OK && memcmp(x, z, sizeof(z)));
    EXPECT(fill(NULL, "x", 2, &vz) == QN_OK && memcmp(x, z, sizeof(z)));
}

/* Large enough for threads: the same as one small piece of it, and fast. */
TEST(large)
{
    int64_t count = (int64_t)1 << 24;
    float *x = memory_allocate((size_t)count * 4), *y = memory_allocate(400000);
    array_view vx = flat(x, DT_F32, count), vy = flat(y, DT_F32, 100000);
    int64_t start = clock_now_ns();
    EXPECT(fill(NULL, "x", 9, &vx) == QN_OK);
    double seconds = (double)(clock_now_ns() - start) * 1e-9;
    EXPECT(fill(NULL, "x", 9, &vy) == QN_OK);
    EXPECT(!memcmp(x, y, 400000));
    printf("note: inputs: 2^24 normal numbers in %.3f s\n", seconds);
    memory_free(x);
    memory_free(y);
}

static void refused(const char *generator, const char *expected)
{
    float x[4];
    array_view v = flat(x, DT_F32, 4);
    EXPECT(fill(generator, "x", 1, &v) == QN_BAD_CALL);
    char line[300];
    snprintf(line, sizeof(line), "%.*s", (int)strcspn(error.message, "\n"), error.message);
    EXPECT(strstr(line, expected) != NULL);
    if (!strstr(line, expected)) printf("%s\n", error.message);
}

TEST(wrong_clauses)
{
    refused("gaussian(0, 1)", "error E218: unknown generator `gaussian`");
    refused("normal(1)", "error E213: `normal` takes 2 arguments, got 1");
    refused("integers(5, 5)", "error E510: integers(5, 5) is empty: the upper bound is excluded");
    refused("integers(0, W)", "error E505: the input needs `W`, which is not known here");
}

TEST_MAIN(CASE(floats), CASE(integers), CASE(what_numbers_depend_on), CASE(large), CASE(wrong_clauses))
