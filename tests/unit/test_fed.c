/*
 * Products that are fed by bulk copies (schedule/fed.c): their schedules as text, their CUDA text on emu against ref,
 * what has none and says why, what NVRTC makes of it (no spills, no products in a row). Data are small whole numbers: exact sums.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cubin.h"
#include "device/cuda/nvrtc.h"
#include "fed_run.h"

TEST(every_residue)
{
    EXPECT(is_fed("plain", "M=65 N=72 K=136 T=bf16"));
    static const int64_t shapes[][3] = {{1, 8, 8}, {64, 64, 64}, {65, 72, 136}, {130, 200, 72}, {7, 64, 0}};
    for (int i = 0; i < COUNT(shapes); i += share_of_few("shapes"))
        run_plain("plain", DT_BF16, DT_BF16, false, false, shapes[i][0], shapes[i][1], shapes[i][2]);
    run_plain("plain", DT_F16, DT_F16, false, false, 65, 72, 136);
}

/* 1 - 2^-13 is nearest to 1 and would be cut off to 1 - 2^-11: sums are exact only where it is rounded. */
TEST(tf32_and_types_of_a_byte)
{
    static const int64_t shapes[][3] = {{1, 4, 4}, {64, 64, 32}, {65, 72, 68}, {130, 201, 36}, {7, 64, 0}};
    EXPECT(is_fed("rounded", "M=65 N=72 K=136"));
    scale = 1 - 0x1p-13;
    for (int i = 0; i < COUNT(shapes); i += share_of_few("shapes"))
        run_plain("rounded", DT_F32, DT_F32, false, true, shapes[i][0], shapes[i][1], shapes[i][2]);
    EXPECT(is_fed("turned_rounded", "M=65 N=72 K=136") && is_fed("turned_rounded", "M=65 N=71 K=136"));
    for (int i = 0; i < COUNT(shapes); i += share_of_few("shapes"))
        run_plain("turned_rounded", DT_F32, DT_F32, false, false, shapes[i][0], shapes[i][1], shapes[i][2]);
    scale = 1;
    EXPECT(is_fed("integers", "M=65 N=72 K=144"));
    run_plain("integers", DT_I8, DT_I32, false, true, 65, 72, 144);
    run_plain("integers", DT_I8, DT_I32, false, true, 130, 67, 16);
    EXPECT(is_fed("eighths", "M=65 N=72 K=144"));
    run_plain("eighths", DT_F8E4M3, DT_BF16, false, true, 65, 72, 144);
    run_plain("eighths", DT_F8E4M3, DT_BF16, false, true, 130, 67, 16);
}

/* Operands that the warps that fill compute, 16 bytes at a time, or element by element where rows are odd. */
TEST(what_is_taken)
{
    char *words = show(FILE_PATH, "converted", "schedule", "M=66 N=72 K=136");
    EXPECT(strstr(words, "take %34 from a, 8 times 16 bytes a thread > a_ring, along k"));
    EXPECT(strstr(words, "> b_ring, along columns"));
    free(words);
    static const int64_t shapes[][3] = {{1, 1, 1}, {66, 72, 136}, {65, 67, 131}, {130, 200, 64}, {64, 64, 0}};
    for (int i = 0; i < COUNT(shapes); i += share_of_few("shapes"))
        run_plain("converted", DT_F32, DT_F32, false, false, shapes[i][0], shapes[i][1], shapes[i][2]);
}

TEST(every_order)
{
    EXPECT(is_fed("turned", "M=136 N=70 K=72 T=f16"));
    EXPECT(is_fed("both_columns", "M=264 N=136 K=72 T=bf16"));
    run_plain("turned", DT_F16, DT_F32, true, true, 136, 70, 72);
    run_plain("both_columns", DT_BF16, DT_BF16, true, false, 264, 136, 72);
}

/* Groups of warps that take turns: an odd number of tiles, several of a block, steps that end in the middle of a ring
 * of two stages, so that who does not wait for its turn is two phases ahead. */
TEST(in_turns)
{
    char *words = show(FILE_PATH, "taking_turns", "schedule", "M=65 N=72 K=136 T=bf16 turns=1");
    EXPECT(strstr(words, "fed tile=128x128x64 stages=6 groups=2 order=8 blocks=1 in turns"));
    free(words);
    static const int64_t shapes[][3] = {{1, 8, 8}, {130, 200, 456}, {1600, 1400, 136}, {256, 128, 0}};
    turns = 1;
    for (int i = 0; i < COUNT(shapes); i += share_of_few("shapes"))
        run_plain("taking_turns", DT_BF16, DT_BF16, false, false, shapes[i][0], shapes[i][1], shapes[i][2]);
    turns = 0;
}

TEST(batches_loops_and_terms)
{
    EXPECT(is_fed("batches", "B=2 M=66 N=200 K=136 T=bf16"));
    EXPECT(is_fed("nested", "R=3 M=66 N=72 K=72 T=bf16"));
    EXPECT(is_fed("terms", "M=66 N=72 K=136 T=bf16"));
    array batches[] = {{.name = "a", .elem = DT_BF16, .rank = 3, .extents = {2, 66, 136}},
                       {.name = "b", .elem = DT_BF16, .rank = 3, .extents = {2, 136, 200}},
                       {.name = "c", .elem = DT_BF16, .rank = 3, .extents = {2, 66, 200}}};
    compare("batches", batches, 3, 1, DT_BF16);
    for (int64_t r = 0; r < 4; r += 3) {
        array nested[] = {{.name = "a", .elem = DT_BF16, .rank = 3, .extents = {r, 66, 72}},
                          {.name = "b", .elem = DT_BF16, .rank = 3, .extents = {r, 72, 72}},
                          {.name = "c", .elem = DT_F32, .rank = 2, .extents = {66, 72}}};
        compare("nested", nested, 3, 1, DT_BF16);
    }
    array terms[] = {{.name = "a", .elem = DT_BF16, .rank = 3, .extents = {2, 66, 136}},
                     {.name = "b", .elem = DT_BF16, .rank = 3, .extents = {2, 136, 72}},
                     {.name = "c", .elem = DT_F32, .rank = 2, .extents = {66, 72}}};
    compare("terms", terms, 3, 1, DT_BF16);
}

/* A second product goes on with the sums of the first, whatever the lengths of both, and however its operands lie. */
TEST(a_second_product)
{
    EXPECT(is_fed("goes_on", "M=72 N=136 K=200 L=16 T=bf16"));
    static const int64_t depths[][2] = {{200, 16}, {64, 136}, {8, 0}, {0, 72}};
    for (int i = 0; i < COUNT(depths); i++) {
        const int64_t m = 72, n = 136, k = depths[i][0], l = depths[i][1];
        array arrays[] = {{.name = "a", .elem = DT_BF16, .rank = 2, .extents = {m, k}},
                          {.name = "b", .elem = DT_BF16, .rank = 2, .extents = {k, n}},
                          {.name = "u", .elem = DT_BF16, .rank = 2, .extents = {l, m}},
                          {.name = "v", .elem = DT_BF16, .rank = 2, .extents = {n, l}},
                          {.name = "c", .elem = DT_F32, .rank = 2, .extents = {m, n}}};
        compare("goes_on", arrays, 5, 1, DT_BF16);
    }
}

typedef qn_tensor sum_of_products(qn_tensor *x);

/* x[0] [m][k], x[1] [k][n], x[2] [m][l], x[3] [l][n], x[4] [n] */
static qn_tensor adapter(qn_tensor *x)
{
    qn_tensor low = qn_mul_scalar(qn_matmul(x[2], x[3]), 0.5);
    return qn_relu(qn_add(qn_add(qn_matmul(x[0], x[1]), x[4]), low));
}

static qn_tensor three(qn_tensor *x)
{
    qn_tensor both = qn_add(qn_matmul(x[2], x[3]), qn_matmul(x[0], x[1]));
    return qn_add(qn_matmul(qn_neg(x[2]), qn_mul_scalar(x[3], 2)), both);
}

static qn_tensor reshaped(qn_tensor *x)
{
    int64_t m = qn_tensor_extent(x[0], 0), n = qn_tensor_extent(x[1], 1);
    qn_tensor a = qn_reshape(qn_matmul(x[0], x[1]), QN_SHAPE(2, m / 2, n));
    return qn_add(a, qn_reshape(qn_matmul(x[2], x[3]), QN_SHAPE(2, m / 2, n)));
}

static qn_tensor read_twice(qn_tensor *x)
{
    qn_tensor low = qn_matmul(x[2], x[3]);
    return qn_mul(qn_add(qn_matmul(x[0], x[1]), low), low);
}

/* The kernels of one evaluation, whose results go to `out`. */
static int count_kernels(sum_of_products *build, const char *device, float *out, int64_t m, int64_t n)
{
    const int64_t k = 72, l = 16;
    const int64_t shapes[5][2] = {{m, k}, {k, n}, {m, l}, {l, n}, {1, n}};
    qn_tape *tape;
    qn_error error;
    qn_tensor x[5];
    array arrays[5];
    EXPECT(qn_tape_new(context, device, &tape, &error) == QN_OK);
    for (int i = 0; i < 5; i++) {
        arrays[i] = (array){.elem = DT_F32, .rank = 2, .extents = {shapes[i][0], shapes[i][1]}};
        fill(&arrays[i], i);
        x[i] = qn_cast(qn_from_memory(tape, arrays[i].data, QN_F32, QN_SHAPE(shapes[i][0], shapes[i][1])), QN_BF16);
    }
    EXPECT(qn_eval(tape, x, 5, &error) == QN_OK);
    for (int i = 0; i < 5; i++) free(arrays[i].data);
    qn_plan *plan;
    qn_plan_facts facts = {0};
    EXPECT(qn_capture_begin(tape, &error) == QN_OK);
    qn_tensor y = build(x);
    EXPECT(qn_eval(tape, &y, 1, &error) == QN_OK);
    EXPECT(qn_capture_end(tape, &plan, &error) == QN_OK);
    qn_plan_info(plan, &facts);
    EXPECT(qn_plan_replay(plan, &error) == QN_OK);
    bool good = qn_tensor_read(qn_cast(y, QN_F32), out, sizeof(float) * (size_t)(m * n), &error) == QN_OK;
    if (!good) printf("%s\n", error.message);
    EXPECT(good);
    qn_plan_free(plan);
    qn_tape_free(tape);
    return facts.kernels;
}

TEST(products_that_are_added_up)
{
    static const struct {
        const char *name;
        sum_of_products *build;
        int kernels;
    } cases[] = {
        {"adapter", adapter, 2}, {"three", three, 4}, {"reshaped", reshaped, 1}, {"read_twice", read_twice, 2}};
    enum { M = 66, N = 72 };
    static float want[M * N], got[M * N];
    for (int i = 0; i < COUNT(cases); i++) {
        count_kernels(cases[i].build, "ref", want, M, N);
        int kernels = count_kernels(cases[i].build, "emu", got, M, N), bad = 0;
        if (kernels != cases[i].kernels) printf("%s: %d kernels\n", cases[i].name, kernels);
        EXPECT(kernels == cases[i].kernels);
        for (int e = 0; e < M * N; e++) bad += fabsf(got[e] - want[e]) > 0.02f * fabsf(want[e]) + 1;
        if (bad) printf("%s: %d of %d elements differ\n", cases[i].name, bad, M * N);
        EXPECT(!bad);
    }
}

/* No map walks rows of 65 elements: it is printed from its spread, and the schedule says why. */
TEST(what_is_not_fed_says_why)
{
    static const struct {
        const char *kernel, *settings, *why;
    } cases[] = {{"plain", "M=64 N=64 K=65 T=bf16", "no bulk copy walks `a`"},
                 {"plain", "M=64 N=64 K=64 T=float", "its operands are f32 that are not to be rounded to tf32"},
                 {"plain", "M=64 N=64 K=64 T=bf16 BM=32", "its tile is not of 64, 128 or 256 rows"},
                 {"plain", "M=64 N=64 K=64 T=bf16 BM=256 BN=256", "more sums than two groups have registers for"}};
    for (int i = 0; i < COUNT(cases); i++) {
        char *words = show(FILE_PATH, cases[i].kernel, "schedule", cases[i].settings);
        EXPECT(strstr(words, "its product is not fed: "));
        EXPECT(strstr(words, cases[i].why));
        if (!strstr(words, cases[i].why)) printf("%s\n", words);
        free(words);
    }
    run_plain("plain", DT_BF16, DT_BF16, false, false, 64, 64, 65);
}

TEST(schedules_as_text)
{
    char *words = show(QUERN_ROOT "/kernels/matmul.qn", "matmul_tiled", "schedule", "M=4096 N=4096 K=4096 T=bf16");
    EXPECT_TEXT(words, "schedule matmul_tiled\n"
                       "launch of phase 0: fed tile=128x256x64 stages=4 groups=2 order=8 blocks=1\n"
                       "  role fill     warps 4 registers 24 one thread\n"
                       "  role multiply warps 8 registers 240\n"
                       "  room a_ring   128 lines of 128 bytes, 4 stages ; 65536 bytes at 0\n"
                       "  room b_ring   256 lines of 128 bytes, 4 stages ; 131072 bytes at 65536\n"
                       "  room out      32 lines of 128 bytes, 8 warps ; 32768 bytes at 196608\n"
                       "  copy %27 bulk a[128, 64] x 1 > a_ring, along k\n"
                       "  copy %29 bulk b[64, 64] x 4 > b_ring, along columns\n"
                       "  dot %39 wgmma_bf16 n 256 a_ring b_ring\n"
                       "  loops 1, the last to the end of the operands\n"
                       "  home %40 registers 128\n"
                       "  store c bulk c[16, 64] x 1, 2 buffers\n"
                       "  shape grid min(programs, 1 a unit), threads 384, shared 229440, maps 3\n");
    free(words);
}

/* Products of f32 as six products of bf16 terms, against sums in double: every order of the operands, sizes that no bulk
 * copy could walk, batches, one operand for all of them, parts of k. */
static void run_products(qn_products how, int64_t batch, bool one, int64_t m, int64_t n, int64_t k, bool turn_a,
                         bool turn_b)
{
    double most = how == QN_PRODUCTS_TF32 ? 5e-4 : how == QN_PRODUCTS_FMA ? 4e-7 : 2e-7;
    int64_t right = one ? 1 : batch;
    float *a = malloc(sizeof(float) * (size_t)(batch * m * k)), *b = malloc(sizeof(float) * (size_t)(right * k * n));
    float *c = malloc(sizeof(float) * (size_t)(batch * m * n));
    uint32_t state = 7;
    for (int64_t i = 0; i < batch * m * k + right * k * n; i++) {
        state = state * 1664525u + 1013904223u;
        float x = (float)(state >> 8) / (float)(1 << 23) - 1;
        *(i < batch * m * k ? &a[i] : &b[i - batch * m * k]) = x;
    }
    qn_tape *tape;
    qn_error error;
    EXPECT(qn_tape_new(context, "emu", &tape, &error) == QN_OK);
    qn_tape_set_products(tape, how);
    qn_tensor x = qn_from_memory(tape, a, QN_F32, turn_a ? QN_SHAPE(batch, k, m) : QN_SHAPE(batch, m, k));
    qn_tensor y = qn_from_memory(tape, b, QN_F32, turn_b ? QN_SHAPE(right, n, k) : QN_SHAPE(right, k, n));
    if (turn_a) x = qn_transpose(x, 1, 2);
    if (turn_b) y = qn_transpose(y, 1, 2);
    bool good = qn_tensor_read(qn_matmul(x, y), c, sizeof(float) * (size_t)(batch * m * n), &error) == QN_OK;
    if (!good) printf("%s\n", error.message);
    EXPECT(good);
    double wrong = 0, all = 0;
    for (int64_t z = 0; z < batch && good; z++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                const float *p = a + z * m * k, *q = b + (one ? 0 : z * k * n);
                double sum = 0;
                for (int64_t h = 0; h < k; h++)
                    sum += (double)p[turn_a ? h * m + i : i * k + h] * (double)q[turn_b ? j * k + h : h * n + j];
                wrong += (sum - c[(z * m + i) * n + j]) * (sum - c[(z * m + i) * n + j]);
                all += sum * sum;
            }
    EXPECT(sqrt(wrong / all) < most);
    if (!(sqrt(wrong / all) < most)) printf("%d x %d x %d: error %g\n", (int)m, (int)n, (int)k, sqrt(wrong / all));
    qn_tape_free(tape);
    free(a);
    free(b);
    free(c);
}

static void run_terms(int64_t batch, bool one, int64_t m, int64_t n, int64_t k, bool turn_a, bool turn_b)
{
    run_products(QN_PRODUCTS_TERMS, batch, one, m, n, k, turn_a, turn_b);
}

/* Operands that lie along m and n are turned first, where the product is long enough. */
TEST(f32_as_tf32)
{
    char *words = show(FILE_PATH, "rounded_columns", "schedule", "M=512 N=512 K=2048");
    EXPECT(strstr(words, "bulk left_terms[1, 1, ") && strstr(words, "bulk right_terms[1, 1, "));
    EXPECT(strstr(words, "wgmma_tf32"));
    free(words);
    words = show(FILE_PATH, "tf32 allowed", "schedule", "M=512 N=512 K=2048");
    EXPECT(strstr(words, "wgmma_tf32"));
    free(words);
    words = show(FILE_PATH, "strict allowed", "schedule", "M=512 N=512 K=2048");
    EXPECT(!strstr(words, "wgmma_tf32"));
    free(words);
    run_products(QN_PRODUCTS_TF32, 1, false, 2050, 2050, 33, true, false); /* both turned */
    run_products(QN_PRODUCTS_TF32, 1, false, 2050, 2050, 33, false, true); /* rows that no bulk copy walks */
    words = show(FILE_PATH, "tf32 allowed", "choices", "M=197 N=197 K=1001"); /* nor are they worth a copy */
    EXPECT(strstr(words, "rounded to tf32 as they are read\ntaken: fed"));
    free(words);
    run_products(QN_PRODUCTS_TF32, 14, true, 67, 197, 203, false, true);
    run_products(QN_PRODUCTS_TF32, 14, false, 67, 197, 203, true, false); /* turned by the warps that fill */
}

/* One row or column: a matrix that was turned is added up along its own rows, where neighbours lie side by side. */
TEST(one_row)
{
    char *words = show(FILE_PATH, "one_row_by_rows", "layout", "N=8192 K=4096");
    EXPECT(strstr(words, "vectors of 8, all threads along a row") && !strstr(words, "phase 1"));
    free(words);
    words = show(FILE_PATH, "few_rows", "cuda", "N=8192 K=4096"); /* read once, into registers */
    EXPECT(strstr(words, "product_thin_bf16<16, 16, 256, 4, false, true, true>"));
    free(words);
    words = show(FILE_PATH, "few_columns", "cuda", "M=8192 K=4096"); /* the rows are what is read once, the columns stay near */
    EXPECT(strstr(words, "product_thin_bf16<16, 32, 256, 2, true, false, true>"));
    free(words);
    words = show(FILE_PATH, "columns_by_one", "layout", "M=8192 K=4096");
    EXPECT(!strstr(words, "vectors of 1, all threads along a row"));
    free(words);
    words = show(FILE_PATH, "allowed", "cuda", "M=1048576 N=32 K=16"); /* many rows: several blocks wait at once */
    EXPECT(strstr(words, "__launch_bounds__(128, 4)"));
    free(words);
    words = show(FILE_PATH, "allowed", "choices", "M=16 N=4096 K=4096"); /* no tile of eight times as many rows */
    EXPECT(strstr(words, "loads, tile 16x128x32"));
    free(words);
    run_products(QN_PRODUCTS_TF32, 1, false, 4, 8200, 260, false, true);
    run_products(QN_PRODUCTS_ANY, 1, false, 4100, 20, 13, false, false); /* short steps */
    for (int turned = 0; turned < 2; turned++) {
        run_products(QN_PRODUCTS_FMA, 1, false, 130, 1153, 37, turned, turned);
        run_products(QN_PRODUCTS_FMA, 1, false, 128, 1152, 24, turned, !turned);
        run_products(QN_PRODUCTS_ANY, 2, false, 1, 70, 130, false, turned);
        run_products(QN_PRODUCTS_ANY, 2, false, 70, 1, 130, turned, false);
    }
}

TEST(f32_as_terms)
{
    EXPECT(is_fed("some_rows", "M=192 K=480 N=10 P=12544")); /* tiles of 64 x 256 would save rows and have no room */
    run_terms(1, false, 65, 67, 131, false, false);
    run_terms(1, false, 66, 130, 72, true, false);
    run_terms(1, false, 130, 66, 70, false, true);
    run_terms(2, false, 40, 72, 64, true, true);
    run_terms(3, true, 40, 72, 9, false, false);
    run_terms(1, false, 64, 64, 2048, false, false); /* in parts */
    char *words = show(FILE_PATH, "allowed", "schedule", "M=512 N=512 K=2048");
    EXPECT(strstr(words, "launch of phase 0: fed") && strstr(words, "take ")); /* split as they are read */
    free(words);
}

/* Products that wait for each other, or registers that spill, are many times slower, and only the assembler tells. */
TEST(the_assembler_is_content)
{
    static const struct {
        const char *kernel, *settings, *symbol;
        int local_bytes; /* at most: an epilogue with many loads may put some away while they are on their way */
        int branches; /* at most: one around a load, or in a function, would make each element wait for the one before */
    } cases[] = {{"plain", "M=4096 N=4096 K=4096 T=bf16 BM=128 BN=256", "plain_phase0", 0, 40},
                 {"both_columns", "M=4096 N=4096 K=4096 T=bf16", "both_columns_phase0", 0, 40},
                 {"epilogue", "M=4096 N=4096 K=4096 T=bf16", "epilogue_phase0", 256, 64},
                 {"curved", "M=4096 N=4096 K=4096 T=bf16", "curved_phase0", 64, 40},
                 {"terms", "M=4096 N=4096 K=4096 T=bf16", "terms_phase0", 0, 40},
                 {"allowed", "M=512 N=512 K=4096", "dot_kernel_phase0", 64, 80}, /* with the joining of parts */
                 {"allowed", "M=205 N=821 K=349", "dot_kernel_phase0", 64, 80},  /* no array has a map */
                 {"goes_on", "M=4096 N=4096 K=4096 L=16 T=bf16 BM=128 BN=256", "goes_on_phase0", 0, 40}};
    nvrtc *n = nvrtc_new();
    qn_error error;
    if (nvrtc_ready(n, &error) != QN_OK) {
        printf("note: skipped the_assembler_is_content: %s\n", error.message);
        nvrtc_free(n);
        return;
    }
    for (int i = 0; i < COUNT(cases); i++) {
        char *source = show(FILE_PATH, cases[i].kernel, "cuda", cases[i].settings);
        nvrtc_output o = {0};
        cubin_usage usage = {0};
        bool good =
            nvrtc_compile(n, source, "fed.cu", &(nvrtc_options){.arch = 90, .usage = true}, &o, &error) == QN_OK;
        EXPECT(good);
        if (!good) printf("%s: %s\n", cases[i].kernel, error.message);
        EXPECT(good && cubin_read(o.cubin.data, o.cubin.length, cases[i].symbol, &usage));
        EXPECT(usage.local_bytes <= cases[i].local_bytes);
        EXPECT(!strstr(text_get(&o.log), "(C75"));
        int branches = 0;
        for (const char *at = text_get(&o.ptx); (at = strstr(at, "bra")); at++) branches++;
        EXPECT(branches <= cases[i].branches);
        if (branches > cases[i].branches) printf("%s: %d branches\n", cases[i].kernel, branches);
        EXPECT(strstr(text_get(&o.ptx), "wgmma.mma_async"));
        EXPECT(!strstr(source, "tensor_map maps[") || strstr(text_get(&o.ptx), "cp.async.bulk.tensor"));
        nvrtc_output_free(&o);
        free(source);
    }
    nvrtc_free(n);
}

TEST_MAIN(CASE(open_module), CASE(schedules_as_text), CASE(every_residue), CASE(tf32_and_types_of_a_byte),
          CASE(what_is_taken), CASE(every_order), CASE(in_turns), CASE(batches_loops_and_terms), CASE(a_second_product),
          CASE(products_that_are_added_up), CASE(what_is_not_fed_says_why), CASE(f32_as_terms), CASE(f32_as_tf32), CASE(one_row),
          CASE(the_assembler_is_content), CASE(close_module))
