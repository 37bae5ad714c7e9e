/*
 * For tests of products that a library may compute: the fake driver with its library, tests/data/products.qn, operands of any
 * layout with results by plain loops, and what `show --stage choices` says of the library.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_PRODUCTS_H
#define QUERN_TESTS_PRODUCTS_H

#include "device/cuda/api.h"
#include "fake/open.h"
#include "ir/whole.h"
#include "run/compile/facts.h"
#include "run/compile/tune.h"

#include <quern/device.h>
#include <quern/tensor.h>
#include <stdlib.h>

static qn_error error;
static void (*fake_reset)(void);
static void (*fake_order)(const char *function, int result, int after);
static int64_t (*fake_count)(const char *function);
static char folder[] = "/tmp/quern-library-XXXXXX";
static const char path[] = QUERN_ROOT "/tests/data/products.qn";
static qn_context *context;
static qn_module *module;

#define OK(call)                                             \
    do {                                                     \
        error.message[0] = 0;                                \
        EXPECT((call) == QN_OK);                             \
        if (error.message[0]) printf("%s\n", error.message); \
    } while (0)

static inline void open_with(const char *use)
{
    qn_module_free(module);
    qn_context_close(context);
    module = NULL;
    context = NULL;
    if (use)
        setenv("QUERN_LIBRARY", use, 1);
    else
        unsetenv("QUERN_LIBRARY");
    OK(qn_context_open(&(qn_context_options){.cache_folder = folder, .threads = 1}, &context, &error));
    OK(qn_module_load_file(context, path, &module, &error));
}

TEST(opening)
{
    void *driver = fake_open();
    fake_find(driver, "fake_reset", &fake_reset);
    fake_find(driver, "fake_order", &fake_order);
    fake_find(driver, "fake_count", &fake_count);
    EXPECT(mkdtemp(folder) != NULL);
    open_with(NULL);
}

/* ---- one product, by the device and by plain loops ---- */

typedef struct shape {
    int64_t batch, rows, columns, depth; /* batch 0: matrices alone */
} shape;

typedef struct operands {
    qn_dtype types[4]; /* a, b, c, the row */
    int64_t extents[4][3];
    int ranks[4];
    char *memory[4];
} operands;

static const char *const names[] = {"a", "b", "c", "r"};

static inline uint32_t next_word(void)
{
    static uint32_t state = 12345;
    return state = state * 1664525 + 1013904223;
}

static inline void make(const char *kernel, shape s, qn_dtype from, qn_dtype to, operands *o)
{
    bool a_turned = kernel[0] == 't' && kernel[1] && !kernel[2];
    bool b_turned = (kernel[1] == 't' && !kernel[2]) || !strcmp(kernel, "whole");
    bool shared = !strcmp(kernel, "shared_right");
    *o = (operands){.types = {from, from, to, to}};
    for (int i = 0; i < 4; i++) {
        int64_t *e = o->extents[i], rows = i == 1 ? s.depth : s.rows, columns = i == 0 ? s.depth : s.columns;
        bool turned = i == 0 ? a_turned : i == 1 && b_turned, one = !s.batch || (i == 1 && shared);
        bool vector = i == 3 || (i != 1 && !strcmp(kernel, "row"));
        o->ranks[i] = vector ? 1 : one ? 2 : 3;
        if (!one) *e++ = s.batch;
        e[0] = vector || turned ? columns : rows;
        e[1] = turned ? rows : columns;
        int64_t count = 1, size = dtypes[o->types[i]].size_bytes;
        for (int k = 0; k < o->ranks[i]; k++) count *= o->extents[i][k];
        o->memory[i] = aligned_alloc(64, (size_t)((count * size + 127) / 64 * 64));
        for (int64_t k = 0; k < count; k++) {
            double x = (double)(int)(next_word() >> 29) - 3;
            element_write((dtype)o->types[i], o->memory[i] + k * size, (number){.i = (int64_t)x, .f = x});
        }
    }
}

static inline void drop(operands *o)
{
    for (int i = 0; i < 4; i++) free(o->memory[i]);
}

/* Elements of small whole numbers: every order of additions gives the same. */
static inline double element(const operands *o, int i, int64_t batch, int64_t row, int64_t column, bool turned)
{
    const int64_t *e = o->extents[i] + (o->ranks[i] == 3);
    int64_t at = (o->ranks[i] == 3 ? batch * e[0] * e[1] : 0) + (turned ? column * e[1] + row : row * e[1] + column);
    dtype t = (dtype)o->types[i];
    number n = element_read(t, o->memory[i] + at * dtypes[t].size_bytes);
    return dtype_is_float(t) ? n.f : (double)n.i;
}

static inline int wrong(const char *kernel, shape s, const operands *o)
{
    bool a_turned = kernel[0] == 't' && kernel[1] && !kernel[2];
    bool b_turned = (kernel[1] == 't' && !kernel[2]) || !strcmp(kernel, "whole");
    int count = 0;
    for (int64_t z = 0; z < (s.batch ? s.batch : 1); z++)
        for (int64_t i = 0; i < s.rows; i++)
            for (int64_t j = 0; j < s.columns; j++) {
                double sum = 0;
                for (int64_t k = 0; k < s.depth; k++)
                    sum += element(o, 0, z, i, k, a_turned) * element(o, 1, z, k, j, b_turned);
                if (!strncmp(kernel, "biased", 6))
                    sum += element_read((dtype)o->types[3], o->memory[3] + j * dtypes[o->types[3]].size_bytes).f;
                count += element(o, 2, z, i, j, false) != round_to_dtype((dtype)o->types[2], sum);
            }
    return count;
}

static inline qn_call *call_of(const char *kernel, const operands *o, int way)
{
    qn_call *call;
    OK(qn_call_new(module, kernel, &call, &error));
    bool function = !strcmp(kernel, "product");
    for (int i = 0; i < (strncmp(kernel, "biased", 6) ? 3 : 4); i++)
        OK(qn_call_set_memory(call, i == 2 && function ? "result0" : names[i], o->memory[i], o->types[i], o->ranks[i],
                              o->extents[i], NULL, &error));
    if (way) OK(qn_call_set_int(call, "library", way, &error));
    return call;
}

static inline int64_t products_of(const char *kernel, int way)
{
    operands o;
    const shape s = {0, 40, 24, 56};
    make("nn", s, QN_F32, QN_F32, &o);
    qn_call *call = call_of(kernel, &o, way);
    int64_t before = fake_count("cublasLtMatmul");
    OK(qn_call_run(call, "cuda", &error));
    EXPECT(wrong("nn", s, &o) == 0);
    qn_call_free(call);
    drop(&o);
    return fake_count("cublasLtMatmul") - before;
}

static inline void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static inline const char *chosen(const char *kernel, const char *library)
{
    static text out;
    const char *settings[] = {"M=40", "N=24", "K=56", "T=float", "U=float", library};
    qn_show_options options = {.stage = "choices", .device = "cuda", .settings = {settings, library ? 6 : 5}};
    if (!strcmp(kernel, "product") || !strcmp(kernel, "active_product")) {
        settings[4] = library;
        options.settings.count--;
    }
    text_clear(&out);
    OK(qn_show(context, path, kernel, &options, collect, &out, &error));
    char *line = strstr(out.data ? out.data : "", "library: ");
    if (!line) return "";
    line[strcspn(line, "\n")] = 0;
    return line;
}

/* What was made is given back. */
TEST(closing)
{
    static const char *const made[] = {"cublasLt", "cublasLtMatmulDesc", "cublasLtMatrixLayout",
                                       "cublasLtMatmulPreference"};
    char command[100];
    open_with("always");
    fake_reset();
    EXPECT(products_of("nn", 0) == 1);
    EXPECT(products_of("product", 0) == 1);
    qn_module_free(module);
    qn_context_close(context);
    for (int i = 0; i < COUNT(made); i++) {
        char create[60], destroy[60];
        snprintf(create, sizeof(create), "%sCreate", made[i]);
        snprintf(destroy, sizeof(destroy), "%sDestroy", made[i]);
        EXPECT(fake_count(create) > 0 && fake_count(create) == fake_count(destroy));
    }
    snprintf(command, sizeof(command), "rm -r %s", folder);
    EXPECT(system(command) == 0);
}

#endif
