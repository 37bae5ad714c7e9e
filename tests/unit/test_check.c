/*
 * `check`: a clean kernel is clean, wrong ones are found and told once, refusals are explained, raw kernels are
 * compared with the first variant of their bench; and its parts: comparison of arrays, layouts with gaps.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "run/workbench/check.h"
#include "test.h"

#include <stdlib.h>

static qn_error error;
static qn_context *context;
static text output;
static char path[] = "/tmp/quern-check-XXXXXX";

static void keep(void *user, const char *words, size_t length)
{
    (void)user;
    text_add_bytes(&output, words, length);
}

static qn_status check(const char *source, const qn_check_options *options)
{
    text_clear(&output);
    EXPECT(file_write(path, source, strlen(source), &error) == QN_OK);
    return qn_check_file(context, path, options, keep, NULL, &error);
}

static bool says(const char *words)
{
    bool found = strstr(text_get(&output), words) != NULL;
    if (!found) printf("`%s` is not in:\n%s\n%s\n", words, text_get(&output), error.message);
    return found;
}

TEST(opening)
{
    int file = mkstemp(path);
    EXPECT(file >= 0);
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .allow_raw = true}, &context, &error) == QN_OK);
}

TEST(clean)
{
    EXPECT(check("kernel add(in T a[n], in T b[n], out T c[n], const int BLOCK = 64) launch (cdiv(n, BLOCK))\n"
                 "{\n"
                 "    int i = program(0) * BLOCK;\n"
                 "    c[i : BLOCK] = a[i : BLOCK] + b[i : BLOCK];\n"
                 "}\n",
                 NULL) == QN_OK);
    EXPECT(says("add: clean, "));
}

TEST(findings_are_told_once)
{
    EXPECT(check("kernel half(in float x[n], out float y[n]) launch (1)\n"
                 "{\n"
                 "    y[0 : n / 2] = x[0 : n / 2];\n"
                 "}\n"
                 "kernel every(in float x[n], out float y[n]) launch (n)\n"
                 "{\n"
                 "    y[:] = x[:];\n"
                 "}\n",
                 NULL) == QN_FINDING);
    EXPECT(says("R703") && says("half: 1 finding in ") && says("R704") && says("every: "));
    const char *first = strstr(text_get(&output), "R703");
    EXPECT(first && !strstr(first + 1, "R703")); /* once, not once a size */
    EXPECT(strstr(error.message, " findings") != NULL);
}

/* How often the words are there. */
static int times(const char *words)
{
    int count = 0;
    for (const char *at = text_get(&output); (at = strstr(at, words)); at++) count++;
    return count;
}

TEST(failures_are_told_once)
{
    EXPECT(check("kernel spin(in float x[n], out float y[n]) launch (n)\n"
                 "{\n"
                 "    int i = 0;\n"
                 "    while (i >= 0) i = i & 1;\n"
                 "    y[program(0)] = x[program(0)] + i;\n"
                 "}\n",
                 &(qn_check_options){.step_limit = 5000}) == QN_FINDING);
    EXPECT(times("R709") == 1 && says("ran 5000 operations") && says("spin: 1 finding in 1 cases"));
    EXPECT(check("kernel less(in float x[n], out float y[n] = 0) launch (n - 50)\n"
                 "{\n"
                 "    y[program(0)] = x[program(0)];\n"
                 "}\n",
                 NULL) == QN_FINDING);
    EXPECT(times("E505") == 1 && says("less: 1 finding in "));
    EXPECT(check("kernel large(in float x[n], out float y[n]) launch (n)\n"
                 "{\n"
                 "    assert(x[program(0)] > 100.0, \"small\");\n"
                 "    y[program(0)] = x[program(0)];\n"
                 "}\n",
                 NULL) == QN_FINDING);
    EXPECT(times("E507") == 1);
    EXPECT(check("kernel wrong(in float x[n], out i32 y[n]) launch (n)\n"
                 "{\n"
                 "    y[program(0)] = x[program(0)];\n"
                 "}\n",
                 NULL) == QN_FINDING);
    EXPECT(times("E205") == 1 && says("wrong: does not compile\n") && !times("refused") && !times("--set"));
}

/* Findings with an empty array are named; they count where the size was asked for. */
TEST(empty_arrays)
{
    static const char mean[] = "kernel mean(in float x[n], out float y) launch (1)\n{\n    y = sum(x[:]) / n;\n}\n";
    EXPECT(check(mean, &(qn_check_options){.verbose = true}) == QN_OK);
    EXPECT(says("mean: clean, ") && says("  empty ") && says("not counted: n=0: R706 on line 3"));
    const char *zero = "n=0";
    EXPECT(check(mean, &(qn_check_options){.settings = {&zero, 1}}) == QN_FINDING && says("R706: NaN stored in `y`"));
}

TEST(no_kernel)
{
    EXPECT(check("float same(float x) { return x; }\n", NULL) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "has no kernel to check") != NULL);
}

TEST(refusals)
{
    EXPECT(check("kernel odd(in float x[n], out float y[n]) launch (1)\n"
                 "{\n"
                 "    assume(n % 16 == 0);\n"
                 "    y[:] = x[:];\n"
                 "}\n",
                 NULL) == QN_OK);
    EXPECT(says("odd: clean, ") && !says(" refused by"));
    EXPECT(check("kernel large(in float x[n], out float y[n]) launch (1)\n"
                 "{\n"
                 "    assume(n > 1000000);\n"
                 "    y[:] = x[:];\n"
                 "}\n",
                 NULL) == QN_FINDING);
    EXPECT(says("large: no size that was tried satisfies `assume(n > 1000000)` on line 3; give sizes with --set"));
    const char *items[] = {"n=48"};
    EXPECT(check("kernel fixed(in float x[n], out float y[n]) launch (1)\n{ assume(n == 48); y[:] = x[:]; }\n",
                 &(qn_check_options){.settings = {items, 1}, .verbose = true}) == QN_OK);
    EXPECT(says("fixed: clean, "));
}

TEST(wrong_calls)
{
    EXPECT(check("kernel add(in float x[n], out float y[n]) launch (1) { y[:] = x[:]; }\n",
                 &(qn_check_options){.kernel = "ad"}) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "has no kernel `ad`; did you mean `add`?") != NULL);
    EXPECT(check("kernel add(in float x[n], out float y[n]) launch (1) { y[:] = x[:]; }\n",
                 &(qn_check_options){.device = "rif"}) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "unknown device `rif`; did you mean `ref`?") != NULL);
    EXPECT(check("kernel add(", NULL) == QN_BAD_SOURCE);
}

TEST(inputs_of_the_bench)
{
    const char source[] = "kernel look(in i64 id[n], in float table[V][4], out float y[n][4], float scale) launch (n)\n"
                          "{\n"
                          "    y[program(0)][:] = scale * table[id[program(0)] + 4][:];\n"
                          "}\n";
    char with_bench[1000];
    EXPECT(check(source, NULL) == QN_FINDING); /* the default numbers 0 and 1 do not fit a small table */
    EXPECT(says("R701"));
    snprintf(with_bench, sizeof(with_bench),
             "%sbench look (n = 1000, V = 10, scale = 3) input (id = integers(-4, V - 4)) { look }\n", source);
    EXPECT(check(with_bench, NULL) == QN_OK);
}

/* Bugs that zeros and ones do not show. */
TEST(planted_integers)
{
    static const struct {
        const char *name, *source;
    } bugs[] = {
        {"bump", "(in i8 x[n], out i8 y[n]) launch (1) { y[0 : n] = x[0 : n] + 1; }"},
        {"square", "(in i16 x[n], out i16 y[n]) launch (1) { y[0 : n] = x[0 : n] * x[0 : n]; }"},
        {"less", "(in u8 x[n], out u8 y[n]) launch (1) { y[0 : n] = 5 - x[0 : n]; }"},
        {"narrow", "(in i32 x[n], out i16 y[n]) launch (1) { y[0 : n] = x[0 : n]; }"},
        {"negative", "(in i8 x[n], out u8 y[n]) launch (1) { y[0 : n] = x[0 : n]; }"},
        {"total", "(in i8 x[n], out i8 y[1]) launch (1) { y[0] = sum(x[0 : n]); }"},
        {"step", "(inout i8 x[n]) launch (1) { x[0 : n] = x[0 : n] - 1; }"},
        {"fixed", "(in i8 x[4], out i8 y[4]) launch (1) { y[0 : 4] = x[0 : 4] + 1; }"},
    };
    for (int i = 0; i < COUNT(bugs); i++) {
        char source[300];
        snprintf(source, sizeof(source), "kernel %s%s\n", bugs[i].name, bugs[i].source);
        EXPECT(check(source, &(qn_check_options){.device = "ref", .no_emu = true}) == QN_FINDING);
        EXPECT(says("R707") && says("integers of any size"));
    }
}

/* Tensor functions see them too; an index into an empty tensor is named, and not counted. */
TEST(integers_of_functions)
{
    const qn_check_options options = {.device = "ref", .no_emu = true, .verbose = true};
    EXPECT(check("tensor bump(i8 x[n]) { return x + 1; }\n", &options) == QN_OK);
    EXPECT(says("integers of any size") && says("bump: clean"));
    EXPECT(check("tensor take(float w[v][d], i32 at[n]) { return w[at][:]; }\n", &options) == QN_OK);
    EXPECT(says("take: clean") && says("with an empty array ref finds, not counted: v=0: ") && says("R701: index "));
    EXPECT(check("tensor logs(i32 x[n]) { return log(float(x)); }\n", &options) == QN_OK);
    EXPECT(check("tensor order(i32 x[n][m]) { return sort(x, axis = 1); }\n", &options) == QN_OK);
}

/* What is an index, a bound or a condition stays small: no finding is made up. */
TEST(indices_stay_small)
{
    static const char *const clean[] = {
        "(in float x[n], in i32 at[m], out float y[m]) launch (1) { y[0 : m] = x[at[0 : m]]; }",
        "(in float x[n], in i32 at[m], out float y[m]) launch (1) { y[0 : m] = x[(at[0 : m] + 3) % 2]; }",
        "(in float x[n], in i32 c[1], out float y[1]) launch (1)\n"
        "{ float s = 0; for (int i = 0; i < c[0]; i++) s += x[i]; y[0] = s; }",
        "(in float x[n], in i32 at[2], out float y[1]) launch (1)\n"
        "{ int a = at[0]; for (int i = 0; i < 2; i++) a = at[i] + 0 * a; y[0] = x[a]; }",
        "(in float x[n], in i32 at[2], out float y[1]) launch (1)\n"
        "{ int a = 0; if (n > 1) a = at[1]; y[0] = x[a]; }",
        "(in float x[n], in i32 at[1], scratch i32 s[1], out float y[1]) launch (1)\n"
        "{ s[0] = at[0]; y[0] = x[s[0]]; }",
        "(in i32 x[1], out i32 y[1]) launch (1) { int a = x[0]; while (a > 0) a = a - 1; y[0] = a; }",
        "(in i32 x[n], out float y[n]) launch (1) { y[0 : n] = exp(float(x[0 : n])); }",
        "(in i32 x[n], out i64 y[1]) launch (1) { y[0] = sum(x[0 : n]); }",
        "(in i8 x[n], out i8 y[n]) launch (1) { y[0 : n] = i8(x[0 : n] + 1); }",
    };
    for (int i = 0; i < COUNT(clean); i++) {
        char source[300];
        snprintf(source, sizeof(source), "kernel k%s\n", clean[i]);
        EXPECT(check(source, &(qn_check_options){.device = "ref", .no_emu = true}) == QN_OK);
        EXPECT(says("k: clean"));
    }
}

TEST(raw_kernels)
{
    if (strcmp(qn_device_best(context), "cpu")) return;
    const char source[] =
        "kernel good(in T x[n], out T y[n]) launch (1) { y[:] = 2 * x[:]; }\n"
        "c fine(in float x[n], out float y[n])\n\"\"\"\n"
        "void fine(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = 2 * x[i]; }\n\"\"\"\n"
        "c wrong(in float x[n], out float y[n])\n\"\"\"\n"
        "void wrong(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = 3 * x[i]; }\n\"\"\"\n"
        "c alone(in float x[n], out float y[n])\n\"\"\"\n"
        "void alone(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = x[i]; }\n\"\"\"\n"
        "bench twice (n = 1000) { good, fine, wrong }\n";
    EXPECT(check(source, NULL) == QN_FINDING);
    EXPECT(says("good: clean, ") && says("fine: clean, ") && says("wrong on cpu with n=1:\n`y[0]` is "));
    EXPECT(says("alone: skipped, ") && says(" cases on cpu against the bench's first variant `good`\n"));
}

TEST(comparing)
{
    float a[6] = {1, 2, 3, 4, 5, 300}, b[6] = {1, 2, 3, 4, 5, 300};
    array_view va = {.data = a, .elem = DT_F32, .rank = 2, .extents = {2, 3}, .strides = {3, 1}}, vb = va;
    vb.data = b;
    EXPECT(arrays_compare(&va, &vb, 0, 0).wrong == 0);
    b[0] = 1.002f;
    EXPECT(arrays_compare(&va, &vb, 1e-4, 0).wrong == 0); /* all together are about 122 */
    EXPECT(arrays_compare(&va, &vb, 1e-5, 0).wrong == 1);
    EXPECT(arrays_compare(&va, &vb, 0, 1e-2).wrong == 0);
    b[0] = 1;
    b[4] = 5.02f;
    EXPECT(arrays_compare(&va, &vb, 1e-4, 0).wrong == 0); /* the row's largest is 300 */
    EXPECT(arrays_compare(&va, &vb, 5e-5, 0).wrong == 1);
    b[4] = 5;
    b[0] = NAN;
    comparison c = arrays_compare(&va, &vb, 1, 1);
    EXPECT(c.wrong == 1 && c.first == 0 && c.count == 6);
    a[0] = NAN;
    EXPECT(arrays_compare(&va, &vb, 0, 0).wrong == 0);
    a[5] = INFINITY;
    c = arrays_compare(&va, &vb, 1e-5, 1e-5);
    EXPECT(c.wrong == 1 && c.first == 5 && isinf(c.actual) && c.expected == 300);
    b[5] = INFINITY;
    EXPECT(arrays_compare(&va, &vb, 0, 0).wrong == 0);
    int64_t x[2] = {INT64_MAX, 5}, y[2] = {INT64_MAX - 1, 5};
    array_view vx = {.data = x, .elem = DT_I64, .rank = 1, .extents = {2}, .strides = {1}}, vy = vx;
    vy.data = y;
    EXPECT(arrays_compare(&vx, &vy, 1, 1).wrong == 1);
}

/* One number is checked with its gradient, unless it is a constant: that has none, and is right. */
TEST(constants_have_no_gradient)
{
    EXPECT(check("tensor one(float x[n]) { return 2 * pi; }\n", &(qn_check_options){.no_emu = true}) == QN_OK);
    EXPECT(says("one: clean, "));
}

/* The compiler's remarks about a kernel that is right: `max(x, 1)` where an axis may be meant, told once. */
TEST(remarks)
{
    const qn_check_options options = {.no_emu = true};
    EXPECT(check("tensor f(float x[N][M]) { return x - max(x, 1); }\n", &options) == QN_OK);
    EXPECT(says("warning W603: `max(x, 1)` compares each element with 1") && times("W603") == 1);
    EXPECT(says("of an axis it is `max(x, axis = 1)`; the number is written `1.0`"));
    EXPECT(check("kernel k(in float x[n][8], out float y[n][8]) launch (n)\n"
                 "{\n"
                 "    tile float v = x[program(0) : 1][:];\n"
                 "    y[program(0) : 1][:] = max(v, -1);\n"
                 "}\n",
                 &options) == QN_OK);
    EXPECT(times("W603") == 1);
    EXPECT(check("tensor f(float x[N][M], i32 i[N][M]) { return max(x, 0) + max(x, 1.0) + max(x, 2) + max(i, 1); }\n",
                 &options) == QN_OK);
    EXPECT(times("W603") == 0);
}

/* A result that moves far where its inputs move by their last bit says nothing about who is right; an error that is larger
 * than that is one. */
TEST(what_rounding_does_is_no_finding)
{
    EXPECT(check("tensor waves(float x[r][n]) { return sin(1000 * sum(x, 1)); }\n",
                 &(qn_check_options){.no_emu = true}) == QN_OK);
    EXPECT(says("waves: clean, "));
    float a[6] = {1, 2, 3, 4, 5, 6}, b[6], near[6];
    double moved[6] = {0};
    memcpy(b, a, sizeof(a));
    memcpy(near, a, sizeof(a));
    array_view va = {.data = a, .elem = DT_F32, .rank = 2, .extents = {2, 3}, .strides = {3, 1}}, vb = va, vn = va;
    vb.data = b;
    vn.data = near;
    EXPECT(view_shake(&vn, 0));
    for (int i = 0; i < 6; i++) EXPECT(fabsf(near[i] - a[i]) <= 2.4e-7f * a[i] && near[i] != a[i]);
    memcpy(near, a, sizeof(a));
    near[1] += 0.01f;
    moved_note(moved, &va, &vn);
    EXPECT(moved[0] == 0 && moved[1] > 0.009);
    b[0] += 0.1f;
    EXPECT(arrays_compare_moved(&vb, &va, moved, 1e-5, 1e-5).wrong == 0);
    b[0] += 0.1f; /* further than rounding takes that row */
    EXPECT(arrays_compare_moved(&vb, &va, moved, 1e-5, 1e-5).wrong == 1);
    b[0] = 1;
    b[4] += 0.1f; /* in a row that did not move */
    EXPECT(arrays_compare_moved(&vb, &va, moved, 1e-5, 1e-5).wrong == 1);
}

/* Every layout has its elements apart, inside its memory, and any write between them is seen. */
TEST(layouts)
{
    for (int style = 0; style < 12; style++) {
        int16_t numbers[24];
        for (int i = 0; i < 24; i++) numbers[i] = (int16_t)(i + 1);
        array_view like = {.data = numbers, .elem = DT_I16, .rank = 3, .extents = {2, 3, 4}, .strides = {12, 4, 1}},
                   view, back;
        void *base;
        size_t size_bytes;
        EXPECT(view_scatter(&like, style, &view, &base, &size_bytes));
        view_assign(&view, &like);
        EXPECT(view_gaps_intact(&view, base, size_bytes));
        EXPECT(view_copy(&view, &back) && !memcmp(back.data, numbers, sizeof(numbers)));
        ((unsigned char *)base)[size_bytes - 1] ^= 1;
        EXPECT(!view_gaps_intact(&view, base, size_bytes));
        memory_free(base);
        memory_free(back.data);
    }
}

static int64_t compiles[3][2]; /* before the first and after the last case of each kernel */

static void note_progress(void *user, const char *line, size_t length)
{
    int number, done;
    qn_context *own = user;
    (void)length;
    if (sscanf(line, "[%d/3] %*[a-z]: %d of", &number, &done) == 2 && number >= 1 && number <= 3)
        compiles[number - 1][done > 0] = own->compiles;
}

/* What the kernels after the first one run is compiled before the first of their cases runs. */
TEST(kernels_are_compiled_ahead)
{
    qn_context *own;
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true}, &own, &error) == QN_OK);
    text source = {0};
    for (int i = 0; i < 3; i++)
        text_print(&source,
                   "kernel %c(in float x[n], out float y[n]) launch (n) { y[program(0)] = x[program(0)] + %d; }\n",
                   'a' + i, i);
    EXPECT(file_write(path, text_get(&source), source.length, &error) == QN_OK);
    text_free(&source);
    const qn_check_options options = {.device = "cpu", .progress = note_progress, .progress_user = own};
    EXPECT(qn_check_file(own, path, &options, keep, NULL, &error) == QN_OK);
    EXPECT(compiles[0][0] == 0 && compiles[0][1] > 0); /* the first is found right before */
    EXPECT(compiles[1][0] > compiles[0][1] && compiles[1][1] == compiles[1][0]);
    EXPECT(compiles[2][0] > compiles[0][1] && compiles[2][1] == compiles[2][0]);
    qn_context_close(own);
}

TEST(closing)
{
    text_free(&output);
    remove(path);
    qn_context_close(context);
}

TEST_MAIN(CASE(opening), CASE(clean), CASE(findings_are_told_once), CASE(failures_are_told_once), CASE(empty_arrays),
          CASE(no_kernel), CASE(refusals), CASE(wrong_calls), CASE(inputs_of_the_bench), CASE(planted_integers),
          CASE(integers_of_functions), CASE(indices_stay_small), CASE(raw_kernels), CASE(comparing),
          CASE(constants_have_no_gradient), CASE(remarks), CASE(what_rounding_does_is_no_finding), CASE(layouts),
          CASE(kernels_are_compiled_ahead), CASE(closing))
