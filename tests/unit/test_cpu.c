/*
 * The cpu device through the public API: values, the host's floating-point state, asserts, prints, several threads,
 * compilers that are not there, long sums, and that a kernel from the cache starts no compiler.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "base/base.h"
#include "device/cpu/compiler.h"
#include "quiet.h"

#include <pthread.h>
#include <quern/device.h>
#include <quern/tensor.h>
#include <quern/workbench.h>
#include <stdlib.h>

static const char source[] =
    "kernel scaled(in float x[n], out float y[n], float a = 2, const int B = 64) launch (cdiv(n, B))\n"
    "{ int i = program(0) * B; y[i : B] = a * x[i : B]; }\n"
    "kernel checked(in float x[n], out float y[n], const int B = 4) launch (cdiv(n, B))\n"
    "{ int i = program(0) * B; assert(x[i : B] < 100, \"too large\"); y[i : B] = x[i : B]; }\n"
    "kernel loud(in float x[n], out float y[n]) launch (n)\n"
    "{ int i = program(0); print(\"value {}\", x[i]); y[i] = x[i]; }\n"
    "kernel two_phases(in float x[n], out float y[n], scratch float part[n]) launch (n)\n"
    "{ int i = program(0); part[i] = x[i] + 1; }\n"
    "then launch (n) { int i = program(0); y[i] = part[n - 1 - i]; }\n";

typedef struct fixture {
    qn_context *context;
    qn_module *module;
    qn_call *call;
    qn_error error;
} fixture;

static int lines;

static void count_line(void *user, const char *line)
{
    lines += strstr(line, "value") != NULL;
}

static bool open_fixture(fixture *f, const char *kernel, int threads)
{
    qn_context_options options = {.threads = threads, .no_cache = true, .print = count_line};
    *f = (fixture){0};
    bool good = !qn_context_open(&options, &f->context, &f->error) &&
                !qn_module_load_text(f->context, "test.qn", source, &f->module, &f->error) &&
                !qn_call_new(f->module, kernel, &f->call, &f->error);
    if (!good) printf("%s\n", f->error.message);
    return good;
}

static void close_fixture(fixture *f)
{
    qn_call_free(f->call);
    qn_module_free(f->module);
    qn_context_close(f->context);
}

static bool set(fixture *f, const char *name, float *data, int64_t count)
{
    return !qn_call_set_memory(f->call, name, data, QN_F32, 1, &count, NULL, &f->error);
}

static unsigned floating_point_state(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr();
#else
    return 0;
#endif
}

TEST(values_and_state)
{
    fixture f;
    EXPECT(open_fixture(&f, "scaled", 2));
    if (!f.call) return;
    float x[1000], y[1000] = {0};
    for (int i = 0; i < 1000; i++) x[i] = (float)i;
    x[7] = 0x1p-149f; /* a subnormal survives */
    unsigned before = floating_point_state();
    EXPECT(set(&f, "x", x, 1000) && set(&f, "y", y, 1000) && qn_call_run(f.call, "cpu", &f.error) == QN_OK);
    EXPECT((floating_point_state() & ~0x3fu) == (before & ~0x3fu)); /* all but the sticky exception flags */
    for (int i = 0; i < 1000; i++) EXPECT(y[i] == 2 * x[i]);
    volatile float tiny = 0x1p-126f, half = 0.5f;
    EXPECT(tiny * half == 0x1p-127f);
    EXPECT(y[7] == 0x1p-148f);
    close_fixture(&f);
}

TEST(asserts)
{
    fixture f;
    EXPECT(open_fixture(&f, "checked", 2));
    if (!f.call) return;
    float x[64] = {0}, y[64];
    x[41] = 1000;
    EXPECT(set(&f, "x", x, 64) && set(&f, "y", y, 64));
    EXPECT(qn_call_run(f.call, "cpu", &f.error) == QN_FAILED);
    EXPECT(strstr(f.error.message, "test.qn:4:") && strstr(f.error.message, "E507"));
    EXPECT(strstr(f.error.message, "program 10") && strstr(f.error.message, "too large"));
    x[41] = 1;
    EXPECT(qn_call_run(f.call, "cpu", &f.error) == QN_OK && y[41] == 1); /* the device stays usable */
    close_fixture(&f);
}

TEST(prints)
{
    fixture f;
    EXPECT(open_fixture(&f, "loud", 2));
    if (!f.call) return;
    float x[9] = {0}, y[9];
    lines = 0;
    EXPECT(set(&f, "x", x, 9) && set(&f, "y", y, 9) && qn_call_run(f.call, "cpu", &f.error) == QN_OK);
    EXPECT(lines == 9);
    close_fixture(&f);
}

TEST(phases)
{
    fixture f;
    EXPECT(open_fixture(&f, "two_phases", 2));
    if (!f.call) return;
    float x[333], y[333];
    for (int i = 0; i < 333; i++) x[i] = (float)i;
    EXPECT(set(&f, "x", x, 333) && set(&f, "y", y, 333) && qn_call_run(f.call, "cpu", &f.error) == QN_OK);
    for (int i = 0; i < 333; i++) EXPECT(y[i] == (float)(333 - i));
    close_fixture(&f);
}

typedef struct runner {
    qn_module *module;
    float factor;
    bool good;
} runner;

static void *run_many(void *argument)
{
    runner *r = argument;
    qn_error error;
    qn_call *call;
    float x[5000], y[5000];
    int64_t extent = 5000;
    r->good = !qn_call_new(r->module, "scaled", &call, &error) &&
              !qn_call_set_memory(call, "x", x, QN_F32, 1, &extent, NULL, &error) &&
              !qn_call_set_memory(call, "y", y, QN_F32, 1, &extent, NULL, &error) &&
              !qn_call_set_float(call, "a", r->factor, &error);
    for (int round = 0; round < 50 && r->good; round++) {
        for (int i = 0; i < 5000; i++) x[i] = (float)(i + round);
        r->good = !qn_call_run(call, "cpu", &error);
        for (int i = 0; i < 5000; i++) r->good &= y[i] == r->factor * x[i];
    }
    if (!r->good) printf("%s\n", error.message);
    qn_call_free(call);
    return NULL;
}

TEST(several_threads)
{
    fixture f;
    EXPECT(open_fixture(&f, "scaled", 3));
    if (!f.call) return;
    pthread_t threads[4];
    runner runners[4];
    for (int i = 0; i < 4; i++) {
        runners[i] = (runner){.module = f.module, .factor = (float)(i + 1)};
        pthread_create(&threads[i], NULL, run_many, &runners[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        EXPECT(runners[i].good);
    }
    close_fixture(&f);
}

TEST(no_compiler)
{
    char *path = strdup(getenv("PATH"));
    char *named = getenv("CC") ? strdup(getenv("CC")) : NULL;
    char *ours = getenv("QUERN_CC") ? strdup(getenv("QUERN_CC")) : NULL;
    setenv("PATH", absent_path("bin"), 1);
    unsetenv("CC"); /* which may be a whole path */
    unsetenv("QUERN_CC");
    fixture f;
    qn_context_options options = {.no_cache = true};
    EXPECT(qn_context_open(&options, &f.context, &f.error) == QN_OK);
    qn_device_info info = {0};
    for (int i = 0; i < qn_device_count(f.context) && (!info.name || strcmp(info.name, "cpu")); i++)
        qn_device_get(f.context, i, &info);
    EXPECT(!info.available && strstr(info.description, "install gcc") && strstr(info.description, "ref"));
    qn_device_info gpu;
    bool has_gpu = !qn_device_find(f.context, "cuda", &gpu, &f.error) && gpu.available;
    EXPECT_TEXT(qn_device_best(f.context), has_gpu ? "cuda" : "ref");
    EXPECT(!qn_module_load_text(f.context, "test.qn", source, &f.module, &f.error));
    EXPECT(!qn_call_new(f.module, "scaled", &f.call, &f.error));
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    EXPECT(set(&f, "x", x, 4) && set(&f, "y", y, 4));
    EXPECT(qn_call_run(f.call, "cpu", &f.error) == QN_NO_DEVICE && strstr(f.error.message, "install gcc"));
    EXPECT(qn_call_run(f.call, "ref", &f.error) == QN_OK && y[3] == 8);
    close_fixture(&f);
    setenv("PATH", path, 1);
    free(path);
    setenv("QUERN_CC", "no-such-compiler", 1);
    compiler c;
    compiler_find(&c);
    EXPECT(c.path[0]); /* another one serves */
    unsetenv("QUERN_CC");
    setenv("CC", "cc -DEXTRA=1 -DMORE=2", 1);
    compiler_find(&c);
    EXPECT(c.path[0] && !strcmp(c.words, "-DEXTRA=1") && !strcmp(c.words + 10, "-DMORE=2"));
    unsetenv("CC");
    if (named) setenv("CC", named, 1);
    if (ours) setenv("QUERN_CC", ours, 1);
    free(named);
    free(ours);
}

TEST(bad_text)
{
    compiler c;
    compiler_find(&c);
    qn_error error;
    EXPECT(compiler_run(&c, "int f(void) { return no_such_name; }\n", "/tmp/quern-test-bad.so", &error) == QN_FAILED);
    EXPECT(strstr(error.message, "no_such_name") && strstr(error.message, "generated C"));
    text words = {0};
    EXPECT(compiler_show(&c, "int forty_two(void) { return 42; }\n", &words, &error) == QN_OK);
    EXPECT(strstr(text_get(&words), "forty_two") && strstr(text_get(&words), "ret"));
    text_free(&words);
}

TEST(ceilings)
{
    fixture f;
    EXPECT(open_fixture(&f, "scaled", 0));
    if (!f.call) return;
    qn_ceilings c;
    EXPECT(qn_measure(f.context, "cpu", 4 << 20, &c, &f.error) == QN_OK);
    EXPECT(c.copy_gb_per_s > 0.1 && c.read_gb_per_s > 0.1 && c.fma_one_gflop_per_s > 1 && c.fma_all_gflop_per_s > 1);
    EXPECT(c.threads == cpu_count());
    close_fixture(&f);
}

/* Sums of long rows: the error grows with the longest chain of additions, which is short however long the row. */
TEST(long_sums)
{
    static const char words[] =
        "kernel rows(in float x[m][n], out float s[m], out float d[m], out float e[m], out float a[m]) launch (m)\n"
        "{ int r = program(0); s[r] = sum(x[r][:]); d[r] = sum(x[r][:] * x[r][:]); a[r] = mean(x[r][:]);\n"
        "  e[r] = sum(exp(sin(x[r][:]) * tanh(x[r][:])) + sqrt(x[r][:])); }\n";
    enum { LENGTH = (1 << 22) + 7 };
    float *x = malloc(sizeof(float) * LENGTH), results[4];
    static const char *const names[] = {"s", "d", "e", "a"};
    double wants[4] = {0};
    qn_error error;
    qn_context *context;
    qn_module *module;
    qn_call *call;
    for (int i = 0; i < LENGTH; i++) x[i] = 0.1f;
    double one = (double)0.1f;
    wants[0] = one * LENGTH;
    wants[1] = (double)(0.1f * 0.1f) * LENGTH;
    wants[2] = (exp(sin(one) * tanh(one)) + sqrt(one)) * LENGTH;
    wants[3] = one;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "sums.qn", words, &module, &error) == QN_OK);
    EXPECT(qn_call_new(module, "rows", &call, &error) == QN_OK);
    int64_t shape[2] = {1, LENGTH};
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 2, shape, NULL, &error) == QN_OK);
    for (int i = 0; i < 4; i++)
        EXPECT(qn_call_set_memory(call, names[i], &results[i], QN_F32, 1, shape, NULL, &error) == QN_OK);
    EXPECT(qn_call_run(call, "cpu", &error) == QN_OK);
    for (int i = 0; i < 4; i++) EXPECT_NEAR(results[i] / wants[i], 1, 1e-6);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    free(x);
}

/* Folds over other axes than the last, which add to a buffer. */
TEST(long_sums_of_columns)
{
    static const char words[] =
        "kernel columns(in float x[m][n], out float s[n], const int B = 5) launch (cdiv(n, B))\n"
        "{ int c = program(0) * B; s[c : B] = sum(x[:][c : B], axis = 0); }\n"
        "kernel block(in float x[m][n], out float s[n]) launch (cdiv(n, 8))\n"
        "{ int c = program(0) * 8; s[c : 8] = sum(x[0 : 131072][c : 8], axis = 0); }\n"
        "kernel middle(in float x[k][m][n], out float s[k][n], const int B = 2, const int C = 3)\n"
        "    launch (cdiv(k, B), cdiv(n, C))\n"
        "{ int a = program(0) * B, c = program(1) * C; s[a : B][c : C] = sum(x[a : B][:][c : C], axis = 1)[:][0][:]; "
        "}\n"
        "kernel two(in float x[m][n][k], out float s[n]) launch (cdiv(n, 4))\n"
        "{ int c = program(0) * 4; s[c : 4] = sum(x[:][c : 4][0 : 3], axis = {0, 2})[0][:][0]; }\n";
    enum { LONG = 131072 + 3 };
    static const struct {
        const char *name;
        int rank, result_rank;
        int64_t shape[3], results[2];
        double terms;
    } cases[] = {{"columns", 2, 1, {LONG, 7}, {7}, LONG},
                 {"block", 2, 1, {131072, 9}, {9}, 131072},
                 {"middle", 3, 2, {3, LONG, 4}, {3, 4}, LONG},
                 {"two", 3, 1, {LONG, 5, 3}, {5}, 3.0 * LONG}};
    qn_error error;
    qn_context *context;
    qn_module *module;
    qn_call *call;
    float *x = malloc(sizeof(float) * LONG * 15), results[12];
    for (int i = 0; i < LONG * 15; i++) x[i] = 0.1f;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "sums.qn", words, &module, &error) == QN_OK);
    for (int i = 0; i < COUNT(cases); i++) {
        int64_t count = cases[i].results[0] * (cases[i].result_rank == 2 ? cases[i].results[1] : 1);
        EXPECT(qn_call_new(module, cases[i].name, &call, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "x", x, QN_F32, cases[i].rank, cases[i].shape, NULL, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "s", results, QN_F32, cases[i].result_rank, cases[i].results, NULL, &error) ==
               QN_OK);
        EXPECT(qn_call_run(call, "cpu", &error) == QN_OK);
        for (int k = 0; k < count; k++) EXPECT_NEAR(results[k] / ((double)0.1f * cases[i].terms), 1, 3e-6);
        qn_call_free(call);
    }
    qn_module_free(module);
    qn_context_close(context);
    free(x);
}

/* Each of so many sums has a buffer, and room in it for the sums of whole blocks: also where one more buffer moves them all. */
TEST(many_sums_of_columns)
{
    enum { SUMS = 40, ROWS = 200, COLUMNS = 32 };
    static float x[ROWS * COLUMNS], results[SUMS * COLUMNS];
    static const int64_t shape[2] = {ROWS, COLUMNS}, result_shape[2] = {SUMS, COLUMNS};
    text words = {0};
    text_add(&words, "kernel columns(in float x[m][n], out float s[40][n], const int B = 8) launch (cdiv(n, B))\n"
                     "{ int c = program(0) * B;\n");
    for (int i = 0; i < SUMS; i++) text_print(&words, "s[%d][c : B] = sum(%d * x[:][c : B], axis = 0);\n", i, i + 1);
    text_add(&words, "}\n");
    for (int i = 0; i < COUNT(x); i++) x[i] = 0.5f;
    qn_context_options options = {.threads = 1, .no_cache = true};
    qn_error error;
    qn_context *context;
    qn_module *module;
    qn_call *call;
    EXPECT(qn_context_open(&options, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "sums.qn", text_get(&words), &module, &error) == QN_OK);
    EXPECT(qn_call_new(module, "columns", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 2, shape, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "s", results, QN_F32, 2, result_shape, NULL, &error) == QN_OK);
    EXPECT(qn_call_run(call, "cpu", &error) == QN_OK);
    for (int i = 0; i < COUNT(results); i++) EXPECT_NEAR(results[i], 0.5 * ROWS * (1 + i / COLUMNS), 1e-3);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    text_free(&words);
}

/* Sums that the loops of fused kernels carry: as near with any number of threads, each of which leaves parts. */
TEST(long_sums_of_tensors)
{
    enum { LONG = 131072 + 3 };
    float *x = malloc(sizeof(float) * LONG * 40), results[40];
    qn_error error;
    qn_context *context;
    qn_tape *tape;
    for (int i = 0; i < LONG * 40; i++) x[i] = 0.1f;
    typedef struct shape_case {
        qn_shape shape;
        qn_axes axes;
        int results;
    } shape_case;
    const shape_case cases[] = {{QN_SHAPE(LONG, 7), QN_AXES(0), 7},
                                {QN_SHAPE(LONG, 40), QN_AXES(0), 40},
                                {QN_SHAPE(LONG, 3, 2), QN_AXES(0, 2), 3},
                                {QN_SHAPE(2, LONG, 5), QN_AXES(1), 10}};
    static const int threads[] = {1, 2, 16, 100};
    for (int i = 0; i < COUNT(cases) * COUNT(threads); i++) {
        const shape_case *c = &cases[i % COUNT(cases)];
        qn_context_options options = {.threads = threads[i / COUNT(cases)]};
        EXPECT(qn_context_open(&options, &context, &error) == QN_OK);
        EXPECT(qn_tape_new(context, "cpu", &tape, &error) == QN_OK);
        qn_tensor sum = qn_sum(qn_from_memory(tape, x, QN_F32, c->shape), c->axes, false);
        double terms = 1;
        for (int k = 0; k < c->shape.rank; k++) terms *= (double)c->shape.extents[k];
        EXPECT(qn_tensor_read(sum, results, sizeof(float) * (size_t)c->results, &error) == QN_OK);
        for (int k = 0; k < c->results; k++) EXPECT_NEAR(results[k] / ((double)0.1f * terms / c->results), 1, 3e-6);
        qn_tape_free(tape);
        qn_context_close(context);
    }
    free(x);
}

/* Pairs of bf16 that one instruction multiplies: what is not finite stays in its own row and column, at the odd end of k too; a
 * precise kernel keeps subnormal numbers. */
TEST(products_in_pairs)
{
    static const char words[] = "kernel fast(in bf16 a[M][K], in bf16 b[K][N], out float c[M][N]) launch (1)\n"
                                "{ c[0 : 16][0 : 16] = dot(a[0 : 16][0 : 35], b[0 : 35][0 : 16]); }\n"
                                "kernel exact(in bf16 a[M][K], in bf16 b[K][N], out float c[M][N]) launch (1) precise\n"
                                "{ c[0 : 16][0 : 16] = dot(a[0 : 16][0 : 35], b[0 : 35][0 : 16]); }\n";
    enum { M = 16, K = 35, N = 16, ONE = 0x3f80, HUGE_BF16 = 0x7e80, TINY = 0x0001, INF = 0x7f80, NO = 0x7fc0 };
    static const char *const names[] = {"fast", "exact"};
    uint16_t a[M * K], b[K * N];
    float c[M * N];
    int64_t shape_a[] = {M, K}, shape_b[] = {K, N}, shape_c[] = {M, N};
    qn_error error;
    qn_context *context;
    qn_module *module;
    qn_call *call;
    for (int i = 0; i < M * K; i++) a[i] = ONE;
    for (int i = 0; i < K * N; i++) b[i] = ONE;
    a[2 * K + 34] = INF;
    b[34 * N + 3] = NO;
    for (int k = 0; k < K; k++) a[5 * K + k] = TINY;
    for (int k = 0; k < K; k++) b[k * N + 7] = HUGE_BF16; /* 2^126: a sum of 35 * 2^-7 where subnormal numbers count */
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "pairs.qn", words, &module, &error) == QN_OK);
    for (int which = 0; which < 2; which++) {
        EXPECT(qn_call_new(module, names[which], &call, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "a", a, QN_BF16, 2, shape_a, NULL, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "b", b, QN_BF16, 2, shape_b, NULL, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "c", c, QN_F32, 2, shape_c, NULL, &error) == QN_OK);
        EXPECT(qn_call_run(call, "cpu", &error) == QN_OK);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float got = c[i * N + j];
                if (j == 3)
                    EXPECT(isnan(got));
                else if (i == 2)
                    EXPECT(got == INFINITY);
                else if (i == 5 && j == 7)
                    EXPECT(got == 35 * 0x1p-7f || (!which && got == 0));
                else if (i != 5 && j != 7)
                    EXPECT(got == 35);
            }
        qn_call_free(call);
    }
    qn_module_free(module);
    qn_context_close(context);
}

static void print_out(void *user, const char *words, size_t size)
{
    (void)user;
    fwrite(words, 1, size, stdout);
}

/* Files of tests/hazards, whose CUDA text test_programs_emu runs. */
static void check_hazards(const char *path)
{
    qn_context *context;
    qn_error error;
    qn_check_options options = {.no_emu = true};
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(qn_check_file(context, path, &options, print_out, NULL, &error) == QN_OK);
    qn_context_close(context);
}

TEST(kept_for_regions) /* what regions read from memory was made before them */
{
    check_hazards(QUERN_ROOT "/tests/hazards/kept.qn");
}

TEST(arrays_that_are_counted_in)
{
    check_hazards(QUERN_ROOT "/tests/hazards/counts.qn");
}

TEST_MAIN(CASE(values_and_state), CASE(asserts), CASE(prints), CASE(phases), CASE(several_threads), CASE(no_compiler),
          CASE(bad_text), CASE(ceilings), CASE(long_sums), CASE(long_sums_of_columns), CASE(many_sums_of_columns),
          CASE(long_sums_of_tensors), CASE(products_in_pairs), CASE(kept_for_regions), CASE(arrays_that_are_counted_in))
