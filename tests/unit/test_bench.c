/*
 * The parts of bench that decide: comparing arrays, and counting what a launch does.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"
#include "profile/measure/roofs.h"
#include "test.h"

TEST(floats_may_differ_a_little)
{
    float expected[4] = {1, -2, 0, 1000}, actual[4] = {1, -2, 0, 1000};
    comparison c;
    compare_elements(DT_F32, actual, expected, NULL, 0, 4, 1e-5, 0, &c);
    EXPECT(c.wrong == 0 && c.compared == 4 && c.max_error == 0 && c.first_wrong == -1);
    actual[2] = 1e-3f; /* small against the root mean square of the array, about 500 */
    compare_elements(DT_F32, actual, expected, NULL, 0, 4, 1e-5, 0, &c);
    EXPECT(c.wrong == 0);
    EXPECT_NEAR(c.max_error, 2e-6, 1e-8);
    actual[3] = 1000.1f;
    compare_elements(DT_F32, actual, expected, NULL, 0, 4, 1e-5, 0, &c);
    EXPECT(c.wrong == 1 && c.first_wrong == 3);
    EXPECT_NEAR(c.first_actual, 1000.1, 1e-3);
    EXPECT_NEAR(c.first_expected, 1000, 0);
    compare_elements(DT_F32, actual, expected, NULL, 0, 4, 1e-5, 0.2, &c);
    EXPECT(c.wrong == 0);
}

TEST(what_is_not_finite_must_agree)
{
    double expected[4] = {NAN, INFINITY, -INFINITY, 1}, actual[4] = {NAN, INFINITY, -INFINITY, 1};
    comparison c;
    compare_elements(DT_F64, actual, expected, NULL, 0, 4, 1, 1, &c);
    EXPECT(c.wrong == 0);
    actual[0] = 0;
    actual[1] = -INFINITY;
    actual[3] = NAN;
    compare_elements(DT_F64, actual, expected, NULL, 0, 4, 1, 1, &c);
    EXPECT(c.wrong == 3 && c.first_wrong == 0 && isinf(c.max_error));
}

TEST(integers_must_be_equal)
{
    int64_t expected[2] = {(int64_t)1 << 60, 5}, actual[2] = {((int64_t)1 << 60) + 1, 5};
    comparison c;
    compare_elements(DT_I64, actual, expected, NULL, 0, 2, 1, 1, &c);
    EXPECT(c.wrong == 1 && c.max_error >= 1); /* a double cannot tell these apart */
}

TEST(only_what_was_written_counts)
{
    enum { N = 3000 };
    static float expected[N], actual[N];
    float unwritten;
    comparison c;
    memset(&unwritten, UNWRITTEN, sizeof(unwritten));
    memset(expected, UNWRITTEN, sizeof(expected));
    expected[5] = 1;
    expected[2500] = 2;
    actual[5] = 1;
    actual[2500] = 3;
    compare_elements(DT_F32, actual, expected, &unwritten, 0, N, 1e-5, 0, &c);
    EXPECT(c.compared == 2 && c.wrong == 1 && c.first_wrong == 2500);
    float before[3] = {1, 2, 3}, changed[3] = {1, 20, 3}, mine[3] = {7, 20, 7};
    compare_elements(DT_F32, mine, changed, before, 1, 3, 1e-5, 0, &c);
    EXPECT(c.compared == 1 && c.wrong == 0);
}

/* Counts of a kernel at the given settings; the plan comes from the library's own binding. */
static launch_counts counts_of(const char *source, const char *kernel, const char *const *settings, int count)
{
    qn_context *context;
    qn_module *module = NULL;
    qn_call *call = NULL;
    qn_error error;
    launch_counts out = {.flops = -1};
    int slot = 0;
    if (qn_context_open(NULL, &context, &error) != QN_OK) return out;
    qn_status status = qn_module_load_text(context, "counts.qn", source, &module, &error);
    if (status == QN_OK) status = qn_call_new(module, kernel, &call, &error);
    qn_settings items = {settings, count};
    if (status == QN_OK) status = call_apply(call, &items, &error);
    if (status == QN_OK) status = context_slot(context, "ref", &slot, &error);
    if (status == QN_OK) status = call_bind(call, slot, true, &error);
    if (status == QN_OK)
        launch_count(call->instance->kernel, &call->plan, 2, &out);
    else
        printf("%s\n", error.message);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    return out;
}

TEST(operations_of_a_launch)
{
    static const char source[] = "kernel twice(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))\n"
                                 "{ int i = program(0) * B; y[i : B] = 2 * x[i : B] + 1; }\n"
                                 "kernel mm(in float a[M][K], in float b[K][N], out float c[M][N], const int B = 16)\n"
                                 "launch (cdiv(M, B), cdiv(N, B))\n"
                                 "{ int i = program(0) * B, j = program(1) * B; tile float s[B][B] = 0;\n"
                                 "  for (int k = 0; k < K; k += B) s += dot(a[i : B][k : B], b[k : B][j : B]);\n"
                                 "  c[i : B][j : B] = s; }\n"
                                 "kernel triangle(out float y[n]) launch (n)\n"
                                 "{ float s = 0; for (int i = 0; i < program(0); i++) s += 0.5; y[program(0)] = s; }\n"
                                 "kernel halve(in float x[n], out float y[n]) launch (n)\n"
                                 "{ float v = x[program(0)]; while (v > 1) v = v / 2; y[program(0)] = v; }\n"
                                 "kernel total(in float x[n], out float y = 0, const int B = 8) launch (cdiv(n, B))\n"
                                 "{ atomic_add(y, sum(x[program(0) * B : B])); }\n";
    const char *n[] = {"n=640"}, *mnk[] = {"M=32", "N=48", "K=64"}, *n33[] = {"n=33"};
    launch_counts c = counts_of(source, "twice", n, 1);
    EXPECT_NEAR(c.flops, 2 * 640, 0);
    EXPECT_NEAR(c.programs, 10, 0);
    EXPECT(c.separable);
    c = counts_of(source, "mm", mnk, 3);
    EXPECT_NEAR(c.flops, 2.0 * 32 * 48 * 64, 0);
    EXPECT_NEAR(c.programs, 6, 0);
    c = counts_of(source, "triangle", n33, 1);
    EXPECT_NEAR(c.flops, 33 * 32 / 2, 0); /* every program has its own trip count */
    c = counts_of(source, "halve", n, 1);
    EXPECT(isnan(c.flops)); /* depends on data */
    c = counts_of(source, "total", n, 1);
    EXPECT_NEAR(c.flops, 640, 0);
    EXPECT(!c.separable);
}

/* What is asked for: no tile counts for what stands over an edge, in programs, in trips, under masks, in gathers. */
TEST(operations_of_tiles_over_an_edge)
{
    static const char source[] =
        "kernel twice(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))\n"
        "{ int i = program(0) * B; y[i : B] = 2 * x[i : B] + 1; }\n"
        "kernel mm(in float a[M][K], in float b[K][N], out float c[M][N], const int B = 16)\n"
        "launch (cdiv(M, B), cdiv(N, B))\n"
        "{ int i = program(0) * B, j = program(1) * B; tile float s[B][B] = 0;\n"
        "  for (int k = 0; k < K; k += B) s += dot(a[i : B][k : B], b[k : B][j : B]);\n"
        "  c[i : B][j : B] = s; }\n"
        "kernel kept(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))\n"
        "{ tile int i = program(0) * B + iota(B); tile int k = keep(i, i < n); y[k] = 2 * x[k]; }\n"
        "kernel rows(in float x[M][N], out float y[M], const int B = 32, const int R = 8) launch (cdiv(M, R))\n"
        "{ int i = program(0) * R; tile float s[R][1] = 0;\n"
        "  for (int j = 0; j < N; j += B) s += sum(x[i : R][j : B] * 2, axis = 1);\n"
        "  y[i : R] = reshape(s / 9, R); }\n"
        "kernel running(in float x[n], out float y[n], const int B = 16) launch (1)\n"
        "{ float carry = 0;\n"
        "  for (int i = 0; i < n; i += B) { y[i : B] = x[i : B] + carry; carry = carry + 1; } }\n"
        "kernel late(in float x[n], out float y[n], const int B = 16) launch (1)\n"
        "{ tile float last[B] = 0;\n"
        "  for (int i = 0; i < n; i += B) { y[i : B] = last; last = exp(x[0 : B]); } }\n"
        "kernel half(in float x[n], out float y[m], const int B = 64) launch (1)\n"
        "{ tile float t = x[0 : B] * 3; y[0 : B] = t + 1; }\n"
        "kernel first(in float x[n], out float y[n], const int B = 64) launch (1)\n"
        "{ tile int i = iota(B); y[0 : B] = x[0 : B] + where(i == 0, 1.0f, 0.0f); }\n";
    const char *n[] = {"n=650"}, *large[] = {"n=64001"}, *mnk[] = {"M=33", "N=47", "K=70"}, *mn[] = {"M=1001", "N=70"};
    const char *nm[] = {"n=64", "m=10"}, *small[] = {"n=50"};
    EXPECT_NEAR(counts_of(source, "twice", n, 1).flops, 2 * 650, 0);
    EXPECT_NEAR(counts_of(source, "twice", large, 1).flops, 2 * 64001, 0);
    EXPECT_NEAR(counts_of(source, "mm", mnk, 3).flops, 2.0 * 33 * 47 * 70, 0);
    EXPECT_NEAR(counts_of(source, "kept", n, 1).flops, 650, 0);
    EXPECT_NEAR(counts_of(source, "rows", mn, 2).flops, 1001 * (70 + 70 + 3 + 1), 0);
    EXPECT_NEAR(counts_of(source, "running", n, 1).flops, 650 + 41, 0);
    EXPECT_NEAR(counts_of(source, "late", n, 1).flops, 41 * 16, 0); /* the last one too: one cannot know of trips */
    EXPECT_NEAR(counts_of(source, "half", nm, 2).flops, 2 * 10, 0); /* nobody wants the others */
    EXPECT_NEAR(counts_of(source, "first", small, 1).flops, 50, 0); /* zero is a number like others */
}

/* Of each kernel of a file at sizes that fit no tile: the textbook's count, by whatever tiles. */
TEST(operations_of_a_convolution)
{
    const char *sizes[] = {"B=2", "C=3", "H=40", "W=70", "O=5", "R=3", "S=3", "T=float"};
    double textbook = 2.0 * 2 * 5 * 38 * 68 * 3 * 9;
    char *source = NULL;
    size_t size_bytes;
    qn_error error;
    EXPECT(file_read(QUERN_ROOT "/kernels/conv2d.qn", 1 << 20, &source, &size_bytes, &error) == QN_OK);
    EXPECT_NEAR(counts_of(source, "conv2d", sizes, 8).flops, textbook, textbook * 0.001);
    EXPECT_NEAR(counts_of(source, "conv2d_gather", sizes, 8).flops, textbook, textbook * 0.001);
    heap_free(source);
}

/* A product that is faster than all multiply-adds of a GPU could be has the tensor cores as its limit, in a bench too. */
TEST(products_beside_the_tensor_cores)
{
    const char *limit;
    bench b = {.ceilings = {.copy_gb_per_s = 10, .read_gb_per_s = 10, .fma_all_gflop_per_s = 100}};
    bench_variant v = {.flops = 5e8, .bytes = 1e6, .arm.time = {.median_ns = 1e6, .sample_count = 9}};
    EXPECT_NEAR(share_of_limit(&b, &v, &limit), 5, 1e-9); /* nothing else is known: marked where it is shown */
    EXPECT(!strcmp(limit, "fma") && strchr(limit_words(5, limit), '('));
    b.roofline.dot_tf32_gflop_per_s = 800;
    EXPECT_NEAR(share_of_limit(&b, &v, &limit), 0.625, 1e-9);
    EXPECT_TEXT(limit, "tensor cores");
    const qn_bench_variant kept = {
        .flops = v.flops, .bytes = v.bytes, .limit = limit, .share_of_limit = 0.625, .time = v.arm.time};
    const qn_bench_point point = {.variants = &kept, .variant_count = 1, .ceilings = b.ceilings};
    EXPECT_NEAR(variant_peak(&point, &kept), 800, 1e-9);
    EXPECT_NEAR(variant_roof(&point, &kept, true), 0.8, 1e-9);
    EXPECT(bench_counts_flops(&point));
    v.flops = 5e7; /* slower than multiply-adds: those are the limit */
    EXPECT_NEAR(share_of_limit(&b, &v, &limit), 0.5, 1e-9);
    EXPECT_TEXT(limit, "fma");
    b.roofline =
        (qn_roofline){.dot_bf16_gflop_per_s = 200}; /* of a CPU: only narrow types have products of their own */
    v.flops = 1.5e8;
    EXPECT_NEAR(share_of_limit(&b, &v, &limit), 1.5, 1e-9);
    b.roofline.fma_f32_gflop_per_s = 100;
    EXPECT_NEAR(compute_share(&b.roofline, "a bf16[8]", 150, &limit), 0.75, 1e-9);
    EXPECT(!strcmp(limit, "products") && limit_is_products(limit));
}

TEST_MAIN(CASE(products_beside_the_tensor_cores), CASE(floats_may_differ_a_little), CASE(what_is_not_finite_must_agree),
          CASE(integers_must_be_equal), CASE(only_what_was_written_counts), CASE(operations_of_a_launch),
          CASE(operations_of_tiles_over_an_edge), CASE(operations_of_a_convolution))
