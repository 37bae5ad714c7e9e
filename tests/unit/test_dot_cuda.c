/*
 * The products of the CUDA prelude, run on emu: every type, both orders of both operands, aligned and unaligned, sizes
 * that do not fill a tile, parts that exist only partly, against sums in double.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/emu/unit.h"
#include "emit/cuda/prelude.h"
#include "ir/tile.h"
#include "test.h"

#include <stdlib.h>

static compiler cpp;
static emu_engine *engine;
static emu_library library;

/* Configurations of one product: the class with its numbers, threads, and what it is of. */
static const struct configuration {
    const char *name, *product;
    dtype elem;
    int rows, columns, threads;
} configurations[] = {
    {"wide", "product_bf16<64, 64, 2, 2, 128, $a, $b, true, true, 3, 8>", DT_BF16, 64, 64, 128},
    {"flat", "product_f16<16, 128, 1, 4, 128, $a, $b, true, true, 2, 4>", DT_F16, 16, 128, 128},
    {"tall", "product_bf16<128, 16, 4, 1, 192, $a, $b, true, false, 3, 8>", DT_BF16, 128, 16, 192},
    {"single", "product_f16<16, 16, 1, 1, 32, $a, $b, false, false, 2, 4>", DT_F16, 16, 16, 32},
    {"tf32", "product_tf32<32, 64, 2, 2, 128, $a, $b, true, true, 3, 4>", DT_F32, 32, 64, 128},
    {"tf32_one", "product_tf32<16, 16, 1, 1, 64, $a, $b, false, true, 2, 8>", DT_F32, 16, 16, 64},
    {"turns", "product_tf32<16, 16, 1, 1, 128, $a, $b, true, true, 4, 8>", DT_F32, 16, 16, 128},
    {"turns_16", "product_bf16<32, 16, 2, 1, 128, $a, $b, true, true, 3, 8>", DT_BF16, 32, 16, 128},
    {"ring", "product_f32<64, 32, 8, 16, $a, $b, true, true, 3, 8>", DT_F32, 64, 32, 128},
    {"ring_wide", "product_f32<32, 128, 4, 16, $a, $b, true, false, 4, 4>", DT_F32, 32, 128, 64},
    {"ring_small", "product_f32<4, 16, 4, 8, $a, $b, true, true, 2, 8>", DT_F32, 4, 16, 32},
    {"f32", "product_fma_f32<64, 32, 8, 16, 4, 2>", DT_F32, 64, 32, 128},
    {"f32_small", "product_fma_f32<8, 16, 8, 16, 1, 1>", DT_F32, 8, 16, 128},
    {"f64", "product_fma_f64<32, 32, 8, 16, 1, 2>", DT_F64, 32, 32, 128},
    {"half", "product_fma_f16<32, 32, 4, 8, 4, 4>", DT_F16, 32, 32, 32},
    {"i8", "product_fma_i8<32, 32, 8, 8, 2, 4>", DT_I8, 32, 32, 64},
    {"u8", "product_fma_u8<16, 32, 8, 8, 1, 1>", DT_U8, 16, 32, 64},
};

static bool is_matrix_unit(const struct configuration *c)
{
    return strstr(c->product, "$a") != NULL;
}

static const char *memory_c(dtype t)
{
    return t == DT_F16 || t == DT_BF16 ? "unsigned short" : dtypes[t].c_name;
}

static const char *sum_c(dtype t)
{
    return t == DT_F64 ? "double" : dtype_is_float(t) ? "float" : "int";
}

static void add_kernel(text *out, const struct configuration *c, bool a_inner, bool b_inner)
{
    text product = {0};
    for (const char *p = c->product; *p; p++) {
        if (*p == '$')
            text_add(&product, *++p == 'a' ? (a_inner ? "true" : "false") : (b_inner ? "true" : "false"));
        else
            text_add_bytes(&product, p, 1);
    }
    const char *m = memory_c(c->elem), *s = sum_c(c->elem);
    text_print(
        out,
        "extern \"C\" __global__ void %s_%d%d(const %s *a, long a_row, long a_column, const %s *b, long b_row, long "
        "b_column, %s *c, long m, long n, dot_range of_a, dot_range of_b)\n"
        "{\n"
        "    extern __shared__ unsigned char room[];\n"
        "    typedef %s product;\n"
        "    %s sums[product::COUNT];\n"
        "    dot_resume<product>(sums, c, n, m, n, threadIdx.x);\n"
        "    product::add(sums, a, a_row, a_column, b, b_row, b_column, of_a, of_b, room, threadIdx.x);\n"
        "    dot_finish<product>(sums, c, n, 0, 0, m, n, true, threadIdx.x);\n"
        "}\n",
        c->name, a_inner, b_inner, m, m, s, text_get(&product), s);
    text_free(&product);
}

static bool build(void)
{
    static const char *const names[] = {"product_bf16",    "product_f16",     "product_tf32",    "product_f32",
                                        "product_fma_f32", "product_fma_f64", "product_fma_f16", "product_fma_i8",
                                        "product_fma_u8",  "dot_finish"};
    text source = {0};
    const char *unknown = NULL;
    EXPECT(prelude_cuda_emit(names, COUNT(names), &source, &unknown));
    for (int i = 0; i < COUNT(configurations); i++)
        for (int order = 0; order < (is_matrix_unit(&configurations[i]) ? 4 : 1); order++)
            add_kernel(&source, &configurations[i], order & 1, order >> 1);
    char folder[] = "/tmp/quern-dot-XXXXXX", path[64];
    EXPECT(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/products.so", folder);
    qn_error error;
    qn_status status = emu_unit_compile(&cpp, text_get(&source), false, path, &error);
    if (status == QN_OK) status = emu_library_open(path, &library, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    remove(path);
    remove(folder);
    text_free(&source);
    return status == QN_OK;
}

static uint64_t random_state = 12345;

static double random_small(dtype t)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    int64_t x = (int64_t)(random_state >> 60) - (t == DT_U8 ? 0 : 8);
    return dtype_is_float(t) ? (double)x / 4 : (double)x; /* products and their sums are exact */
}

typedef struct dot_range {
    long first, last, k_first, k_last;
} dot_range;

static void run_one(const struct configuration *c, bool a_inner, bool b_inner, int m, int n, int k, int shift,
                    dot_range of_a, dot_range of_b)
{
    char kernel[64];
    snprintf(kernel, sizeof(kernel), "%s_%d%d", c->name, is_matrix_unit(c) ? a_inner : 0,
             is_matrix_unit(c) ? b_inner : 0);
    size_t size = (size_t)dtypes[c->elem].size_bytes, wide = c->elem == DT_F64 ? 8 : 4;
    long a_line = (a_inner ? k : m) + shift, b_line = (b_inner ? k : n) + shift;
    if (!shift) a_line = (a_line + 7) & ~7l, b_line = (b_line + 7) & ~7l;
    long a_row = a_inner ? a_line : 1, a_column = a_inner ? 1 : a_line;
    long b_row = b_inner ? 1 : b_line, b_column = b_inner ? b_line : 1;
    size_t a_bytes = size * (size_t)((a_inner ? m : k) * a_line + 16);
    size_t b_bytes = size * (size_t)((b_inner ? n : k) * b_line + 16);
    unsigned char *a_data = aligned_alloc(64, (a_bytes + 127) & ~(size_t)63),
                  *b_data = aligned_alloc(64, (b_bytes + 127) & ~(size_t)63), *sums = calloc((size_t)(m * n) + 1, 8);
    unsigned char *a = a_data + (size_t)shift * size, *b = b_data + (size_t)shift * size;
    double *x = calloc((size_t)(m * k), 8), *y = calloc((size_t)(k * n), 8);
    for (int i = 0; i < m * k; i++) {
        x[i] = random_small(c->elem);
        element_write(c->elem, a + size * (size_t)(i / k * a_row + i % k * a_column),
                      (number){.f = x[i], .i = (int64_t)x[i]});
    }
    for (int i = 0; i < k * n; i++) {
        y[i] = random_small(c->elem);
        element_write(c->elem, b + size * (size_t)(i / n * b_row + i % n * b_column),
                      (number){.f = y[i], .i = (int64_t)y[i]});
    }
    dtype of_sum = c->elem == DT_F64 ? DT_F64 : dtype_is_float(c->elem) ? DT_F32 : DT_I32;
    for (int i = 0; i < m * n; i++) element_write(of_sum, sums + wide * (size_t)i, (number){.f = i % 5, .i = i % 5});
    long rows = m, columns = n;
    void *arguments[] = {&a, &a_row, &a_column, &b, &b_row, &b_column, &sums, &rows, &columns, &of_a, &of_b};
    emu_launch launch = {.entry = emu_library_find(&library, kernel),
                         .grid = {1, 1, 1},
                         .block = {(unsigned)c->threads, 1, 1},
                         .arguments = arguments,
                         .cluster_blocks = 1,
                         .shared_bytes = 100 * 1024,
                         .touch = library.touch,
                         .dynamic = library.dynamic,
                         .library_address = (const void *)library.first};
    qn_error error;
    EXPECT(launch.entry);
    if (!launch.entry) return;
    qn_status status = emu_engine_run(engine, &launch, &error);
    if (status != QN_OK) printf("%s: %s\n", kernel, error.message);
    if (launch.stopped) printf("%s: %s\n", kernel, launch.findings[0].words);
    EXPECT(status == QN_OK && !launch.stopped);
    long k_first = MAXIMUM(of_a.k_first, of_b.k_first), k_last = MINIMUM(of_a.k_last, of_b.k_last);
    int bad = 0;
    for (int i = 0; i < m * n; i++) {
        int row = i / n, column = i % n;
        double want = i % 5;
        bool there = row >= of_a.first && row < of_a.last && column >= of_b.first && column < of_b.last;
        for (long p = k_first; there && p < k_last; p++) want += x[row * k + p] * y[p * n + column];
        number got = element_read(of_sum, sums + wide * (size_t)i);
        double value = dtype_is_float(of_sum) ? got.f : (double)got.i;
        if (value != want && !bad++)
            printf("%s, %d x %d x %d, shift %d: [%d][%d] is %g, not %g\n", kernel, m, n, k, shift, row, column, value,
                   want);
    }
    EXPECT(!bad);
    free(a_data);
    free(b_data);
    free(sums);
    free(x);
    free(y);
}

TEST(every_order_and_size)
{
    EXPECT(build());
    if (!library.handle) return;
    for (int i = 0; i < COUNT(configurations); i++) {
        const struct configuration *c = &configurations[i];
        for (int order = 0; order < 4; order++) {
            bool a = order & 1, b = order >> 1;
            int m = c->rows, n = c->columns;
            run_one(c, a, b, m, n, 64, 0, (dot_range){0, m, 0, 64}, (dot_range){0, n, 0, 64});
            run_one(c, a, b, m - 3, n - 5, 37, 1, (dot_range){0, m - 3, 0, 37}, (dot_range){0, n - 5, 0, 37});
            run_one(c, a, b, m, n, 50, 0, (dot_range){2, m - 1, 3, 49}, (dot_range){1, n - 2, 0, 47});
            run_one(c, a, b, m, n, 8, 0, (dot_range){0, m, 8, 8}, (dot_range){0, n, 0, 8});
        }
    }
}

TEST(open_engine)
{
    compiler_find_cpp(&cpp);
    engine = emu_engine_new(2);
    EXPECT(engine);
}

TEST(close_engine)
{
    emu_library_close(&library);
    emu_engine_free(engine);
}

TEST_MAIN(CASE(open_engine), CASE(every_order_and_size), CASE(close_engine))
