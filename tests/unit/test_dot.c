/*
 * The prelude's matrix products: every element type against plain loops, at odd and even, small, thin and blocked
 * sizes, with transposed, strided and negative-stride operands, inside the scratch it asked for; and its speed against
 * the FMA peak.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "emit/prelude.h"
#include "ir/tile.h"
#include "quiet.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>

static char folder[] = "/tmp/quern-dot-XXXXXX";
static void *library;

typedef void dot_function(const void *a, long a_row, long a_column, const void *b, long b_row, long b_column, void *c,
                          long c_row, long m, long n, long k, char *scratch);
typedef void into_function(const void *a, long a_row, long a_column, const void *b, long b_row, long b_column, void *c,
                           long c_row, void *out, long out_row, long m, long n, long k, char *scratch);
typedef void any_function(void);

static any_function *symbol(const char *name)
{
    void *address = dlsym(library, name);
    any_function *function;
    memcpy(&function, &address, sizeof(function));
    return function;
}

static const struct type {
    const char *name, *c, *sum;
    dtype elem, sum_elem;
} types[] = {
    {"f32", "float", "float", DT_F32, DT_F32},          {"f64", "double", "double", DT_F64, DT_F64},
    {"f16", "unsigned short", "float", DT_F16, DT_F32}, {"bf16", "unsigned short", "float", DT_BF16, DT_F32},
    {"i8", "signed char", "int", DT_I8, DT_I32},        {"u8", "unsigned char", "int", DT_U8, DT_I32},
};

TEST(compile)
{
    EXPECT(mkdtemp(folder));
    const char *names[] = {"dot_f32",       "dot_f64",      "dot_f16",      "dot_bf16",
                           "dot_i8",        "dot_u8",       "dot_into_f32", "dot_into_f64",
                           "dot_into_bf16", "dot_into_f16", "dot_into_i8",  "dot_into_u8"};
    text source = {0}, output = {0};
    const char *unknown;
    EXPECT(prelude_emit(names, COUNT(names), &source, &unknown));
    for (int i = 0; i < COUNT(types); i++) {
        text_print(
            &source,
            "void into_%s(const %s *a, long a_row, long a_column, const %s *b, long b_row, long b_column, %s *c, "
            "long c_row, %s *out, long out_row, long m, long n, long k, char *scratch) { dot_into_%s(a, a_row, "
            "a_column, b, b_row, b_column, c, c_row, out, out_row, m, n, k, scratch); }\n",
            types[i].name, types[i].c, types[i].c, types[i].sum, types[i].sum, types[i].name);
        text_print(&source,
                   "void run_%s(const %s *a, long a_row, long a_column, const %s *b, long b_row, long b_column, %s *c, "
                   "long c_row, long m, long n, long k, char *scratch) { dot_%s(a, a_row, a_column, b, b_row, "
                   "b_column, c, c_row, m, n, k, scratch); }\n",
                   types[i].name, types[i].c, types[i].c, types[i].sum, types[i].name);
    }
    text_add(&source,
             "#define EACH(F) F(s0) F(s1) F(s2) F(s3) F(s4) F(s5) F(s6) F(s7) F(s8) F(s9) F(s10) F(s11)\n"
             "#define MAKE(s) dot_f32v s = {0};\n#define STEP(s) s += x * y; __asm__ volatile(\"\" : \"+x\"(s));\n"
             "#define SUM(s) r += s;\n"
             "float peak(long n) { dot_f32v x = {1}, y = {0.5f}, r = {0}; EACH(MAKE)\n"
             "__asm__ volatile(\"\" : \"+x\"(x), \"+x\"(y)); for (long i = 0; i < n; i++) { EACH(STEP) }\n"
             "EACH(SUM) return r[0]; }\n"
             "int lanes(void) { return DOT_f32_LANES; }\n");
    char c_path[64], so_path[64];
    snprintf(c_path, sizeof(c_path), "%s/dot.c", folder);
    snprintf(so_path, sizeof(so_path), "%s/dot.so", folder);
    EXPECT(file_write(c_path, text_get(&source), source.length, NULL) == QN_OK);
    const char *cc = environment_get("CC");
    const char *arguments[] = {cc ? cc : "cc",
                               "-std=gnu11",
                               "-w",
                               "-O3",
                               "-march=native",
                               "-mprefer-vector-width=512",
                               "-ffp-contract=fast",
                               "-fPIC",
                               "-shared",
                               "-o",
                               so_path,
                               c_path,
                               NULL};
    int code = 1;
    EXPECT(process_run(arguments, &output, &code, NULL) == QN_OK && code == 0);
    if (code) printf("%s\n", text_get(&output));
    library = dlopen(so_path, RTLD_NOW | RTLD_LOCAL);
    EXPECT(library);
    text_free(&source);
    text_free(&output);
}

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static int random_below(int n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)n);
}

/* Zeroed memory that ends where a page begins that nobody may touch. */
static char *guarded(size_t size_bytes)
{
    size_t whole = (size_bytes + 4095) / 4096 * 4096;
    char *memory = mmap(NULL, whole + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory != MAP_FAILED && mprotect(memory + whole, 4096, PROT_NONE) == 0);
    return memory + whole - size_bytes;
}

static void unguard(char *memory, size_t size_bytes)
{
    size_t whole = (size_bytes + 4095) / 4096 * 4096;
    munmap(memory + size_bytes - whole, whole + 4096);
}

/* One product with small whole numbers, so that every sum is exact; and with the result's surroundings watched. Adds to
 * what is there, or, with `into`, overwrites it. */
static bool product(const struct type *type, dot_function *run, into_function *into, long m, long n, long k, int form)
{
    long size = dtypes[type->elem].size_bytes, sum_size = dtypes[type->sum_elem].size_bytes;
    long a_row = form & 1 ? 1 : k + form % 3, a_column = form & 1 ? m + 1 : 1;
    long b_row = form & 2 ? 1 : n + form % 5, b_column = form & 2 ? k + 2 : 1;
    if (form == 8) a_column = 2, a_row = 2 * k, b_column = 3, b_row = 3 * n + 1;
    long a_count = (m - 1) * a_row + (k - 1) * a_column + 1, b_count = (k - 1) * b_row + (n - 1) * b_column + 1;
    if (m < 1 || k < 1) a_count = 1;
    if (n < 1 || k < 1) b_count = 1;
    char *a = guarded((size_t)(a_count * size)), *b = guarded((size_t)(b_count * size));
    long c_row = n + 3;
    char *c = guarded((size_t)((m * c_row + 16) * sum_size));
    int low = -3, range = 7; /* every sum is exact; of 8 bits all there are, whose pairs must not saturate */
    if (dtypes[type->elem].size_bytes == 1) low = type->elem == DT_U8 ? 0 : -128, range = 256;
    for (long i = 0; i < a_count; i++) {
        int x = low + random_below(range);
        element_write(type->elem, a + i * size, (number){x, x});
    }
    for (long i = 0; i < b_count; i++) {
        int x = low + random_below(range);
        element_write(type->elem, b + i * size, (number){x, x});
    }
    for (long i = 0; i < m * c_row + 16; i++)
        element_write(type->sum_elem, c + i * sum_size, (number){i % 11, (double)(i % 11)});
    uint64_t scratch_bytes = prelude_dot_scratch_bytes(m, n);
    char *scratch = aligned_alloc(64, (scratch_bytes + 127) / 64 * 64);
    memset(scratch, 0x7f, (scratch_bytes + 127) / 64 * 64);
    const char *a_start = a, *b_start = b;
    if (form == 9) { /* rows from the last to the first */
        a_start = a + (m > 0 ? (m - 1) * a_row : 0) * size;
        a_row = -a_row;
    }
    if (into) {
        char *rest = guarded((size_t)(m * n * sum_size));
        memset(rest, 0x7f, (size_t)(m * n * sum_size));
        into(a_start, a_row, a_column, b_start, b_row, b_column, rest, n, c, c_row, m, n, k, scratch);
        unguard(rest, (size_t)(m * n * sum_size));
    } else {
        run(a_start, a_row, a_column, b_start, b_row, b_column, c, c_row, m, n, k, scratch);
    }
    bool good = true;
    for (uint64_t i = scratch_bytes; i < (scratch_bytes + 127) / 64 * 64; i++) good &= scratch[i] == 0x7f;
    for (long i = 0; i < m * c_row + 16 && good; i++) {
        long row = i / c_row, column = i % c_row;
        double wanted = (double)(i % 11);
        if (into && row < m && column < n) wanted = 0;
        if (row < m && column < n)
            for (long p = 0; p < k; p++) {
                number x = element_read(type->elem, a_start + (row * a_row + p * a_column) * size);
                number y = element_read(type->elem, b_start + (p * b_row + column * b_column) * size);
                wanted += dtype_is_float(type->elem) ? x.f * y.f : (double)(x.i * y.i);
            }
        number got = element_read(type->sum_elem, c + i * sum_size);
        good = (dtype_is_float(type->sum_elem) ? got.f : (double)got.i) == wanted;
        if (!good)
            printf("%s %ld x %ld x %ld form %d: (%ld, %ld) is %g, not %g\n", type->name, m, n, k, form, row, column,
                   dtype_is_float(type->sum_elem) ? got.f : (double)got.i, wanted);
    }
    unguard(a, (size_t)(a_count * size));
    unguard(b, (size_t)(b_count * size));
    unguard(c, (size_t)((m * c_row + 16) * sum_size));
    free(scratch);
    return good;
}

TEST(products)
{
    if (!library) return;
    static const long sizes[][3] = {
        {1, 1, 1},     {0, 4, 4},      {4, 0, 4},     {4, 4, 0},      {1, 100, 37},  {100, 1, 37},  {2, 64, 300},
        {17, 7, 9},    {3, 8, 1},      {14, 32, 5},   {16, 48, 16},   {15, 33, 17},  {13, 31, 64},  {28, 64, 64},
        {29, 65, 65},  {9, 40, 12},    {10, 70, 255}, {128, 96, 64},  {40, 40, 257}, {45, 37, 520}, {293, 35, 20},
        {20, 545, 30}, {50, 130, 300}, {7, 192, 513}, {536, 65, 129}, {9, 8, 8},     {5, 12, 20},   {3, 3, 3},
        {13, 16, 300}, {90, 5, 64},    {1, 12, 30},   {2, 3, 131},    {21, 6, 65},   {35, 49, 140}};
    for (int t = 0; t < COUNT(types); t++) {
        char name[32];
        snprintf(name, sizeof(name), "run_%s", types[t].name);
        dot_function *run = (dot_function *)symbol(name);
        snprintf(name, sizeof(name), "into_%s", types[t].name);
        into_function *into = (into_function *)symbol(name);
        for (int s = 0; s < COUNT(sizes); s++)
            for (int form = 0; form < 10; form++) {
                if (sizes[s][0] * sizes[s][1] * sizes[s][2] > 200000 && form % 3) continue;
                EXPECT(product(&types[t], run, NULL, sizes[s][0], sizes[s][1], sizes[s][2], form));
                if (sizes[s][0] && sizes[s][1] && sizes[s][2])
                    EXPECT(product(&types[t], run, into, sizes[s][0], sizes[s][1], sizes[s][2], form));
            }
        for (int i = 0; i < 20; i++)
            EXPECT(product(&types[t], run, i % 2 ? into : NULL, 1 + random_below(50), 1 + random_below(90),
                           1 + random_below(80), i % 10));
    }
}

/* A matrix product tile by tile, as a kernel does it. */
static double tile_gflops(const struct type *type, long size, long rows, long columns, long depth, const char *a,
                          const char *b, float *c, char *scratch)
{
    char name[32];
    snprintf(name, sizeof(name), "run_%s", type->name);
    dot_function *run = (dot_function *)symbol(name);
    long bytes = dtypes[type->elem].size_bytes;
    double best_ns = 1e18;
    for (int round = 0; round < 40; round++) {
        long i = rows * (round % (size / rows)), j = columns * (round % (size / columns));
        int64_t start_ns = clock_now_ns();
        memset(c, 0, (size_t)(rows * columns) * sizeof(float));
        for (long k = 0; k < size; k += depth)
            run(a + (i * size + k) * bytes, size, 1, b + (k * size + j) * bytes, size, 1, c, columns, rows, columns,
                depth, scratch);
        double ns = (double)(clock_now_ns() - start_ns);
        if (ns < best_ns) best_ns = ns;
    }
    return 2.0 * (double)(rows * columns * size) / best_ns;
}

TEST(speed)
{
    if (!library) return;
    float (*peak)(long) = (float (*)(long))symbol("peak");
    int (*lanes)(void) = (int (*)(void))symbol("lanes");
    double best = 0;
    for (int i = 0; i < 200; i++) {
        int64_t start_ns = clock_now_ns();
        peak(10000);
        double gflops = 10000.0 * 12 * 2 * lanes() / (double)(clock_now_ns() - start_ns);
        if (gflops > best) best = gflops;
    }
    enum { SIZE = 1024 };
    char *a = aligned_alloc(64, SIZE * SIZE * 4), *b = aligned_alloc(64, SIZE * SIZE * 4);
    float *c = aligned_alloc(64, 256 * 512 * 4);
    char *scratch = aligned_alloc(64, (prelude_dot_scratch_bytes(256, 512) + 63) / 64 * 64);
    for (int t = 0; t < COUNT(types); t++) {
        const struct type *type = &types[t];
        if (type->sum_elem == DT_F64) continue;
        long bytes = dtypes[type->elem].size_bytes;
        for (int i = 0; i < SIZE * SIZE; i++) {
            element_write(type->elem, a + i * bytes, (number){i % 7, i % 7});
            element_write(type->elem, b + i * bytes, (number){i % 5, i % 5});
        }
        double small = tile_gflops(type, SIZE, 128, 256, 64, a, b, c, scratch);
        double middle = tile_gflops(type, SIZE, 128, 256, 256, a, b, c, scratch);
        double large = tile_gflops(type, SIZE, 256, 512, 256, a, b, c, scratch);
        printf("note: dot_%s reaches %.2f, %.2f, %.2f of the FMA peak (%.0f GFLOP/s) with tiles 128x256x64, "
               "128x256x256, 256x512x256\n",
               type->name, small / best, middle / best, large / best, best);
        if (type->elem == DT_F32) EXPECT_QUICK(middle / best > 0.2);
    }
    free(a);
    free(b);
    free(c);
    free(scratch);
}

TEST(remove_folder)
{
    if (library) dlclose(library);
    const char *arguments[] = {"rm", "-r", folder, NULL};
    int code = 1;
    EXPECT(process_run(arguments, NULL, &code, NULL) == QN_OK && !code);
}

TEST_MAIN(CASE(compile), CASE(products), CASE(speed), CASE(remove_folder))
