/*
 * Values known from elsewhere, computed by the kernels of kernels/ and by small programs here, on every device that is
 * there: GELU(1), the trace of the online softmax, squares, permuted strides, Philox normal numbers, the fused
 * add-multiply-relu row and the LoRA epilogue, softmax with a large logit, modulus-hash rows of two lines of click data.
 * SPDX-License-Identifier: MIT
 */
#include <quern/quern.h>
#include <quern/workbench.h>
#include <math.h>
#include <stdlib.h>

#include "test.h"

static qn_context *context;
static qn_error error;

static bool good(qn_status status, int line)
{
    if (status == QN_OK) return true;
    test_failures_of_case++;
    printf("%s:%d: %s\n", __FILE__, line, error.message);
    return false;
}
#define GOOD(call) good((call), __LINE__)

static qn_module *kernels(const char *name)
{
    char path[512];
    qn_module *module = NULL;
    snprintf(path, sizeof(path), "%s/kernels/%s", QUERN_ROOT, name);
    GOOD(qn_module_load_file(context, path, &module, &error));
    return module;
}

static qn_module *program(const char *words)
{
    qn_module *module = NULL;
    GOOD(qn_module_load_text(context, "oracle.qn", words, &module, &error));
    return module;
}

/* Every device that is there, one after another; ref first. */
static const char *device(int number)
{
    static const char *const names[] = {"ref", "cpu"};
    qn_device_info info;
    for (int i = 0; number < 2 && i < qn_device_count(context); i++) {
        qn_device_get(context, i, &info);
        if (!strcmp(info.name, names[number])) return info.available ? names[number] : NULL;
    }
    return NULL;
}
#define EACH_DEVICE(name)                                           \
    for (int device_number = 0; device_number < 2; device_number++) \
        for (const char *name = device(device_number); name; name = NULL)

static void set_floats(qn_call *call, const char *name, float *data, int rank, const int64_t *extents)
{
    GOOD(qn_call_set_memory(call, name, data, QN_F32, rank, extents, NULL, &error));
}

TEST(gelu_of_one)
{
    static const char *const names[] = {"gelu_element", "gelu_tile", "gelu_sigmoid", "gelu_builtin", "gelu_c"};
    qn_module *module = kernels("gelu.qn");
    float x[5] = {1, 0, -1, 3, -10}, y[5];
    const int64_t n = 5;
    EACH_DEVICE(where)
    for (size_t k = 0; module && k < sizeof(names) / sizeof(names[0]); k++) {
        qn_call *call;
        if (!strcmp(names[k], "gelu_c") && strcmp(where, "cpu")) continue;
        if (!GOOD(qn_call_new(module, names[k], &call, &error))) continue;
        memset(y, 0, sizeof(y));
        set_floats(call, "x", x, 1, &n);
        set_floats(call, "y", y, 1, &n);
        GOOD(qn_call_run(call, where, &error));
        EXPECT_NEAR(y[0], 0.841192, 1e-6);
        EXPECT_NEAR(y[1], 0, 0);
        EXPECT_NEAR(y[2], -0.158808, 1e-6);
        EXPECT_NEAR(y[3], 2.996363, 1e-5);
        EXPECT_NEAR(y[4], 0, 1e-6);
        qn_call_free(call);
    }
    qn_module_free(module);
}

static const double softmax_1342[4] = {0.0320586, 0.2368828, 0.6439143, 0.0871443};

TEST(online_softmax_trace)
{
    static const double top[4] = {1, 3, 4, 4}, norm[4] = {1, 1.135335, 1.417667, 1.553002};
    qn_module *module = program("kernel trace(in float x[n], out float m[n], out float z[n]) launch (1)\n"
                                "{\n"
                                "    float top = -inf, norm = 0;\n"
                                "    for (int i = 0; i < n; i++) {\n"
                                "        float old = top;\n"
                                "        top = max(top, x[i]);\n"
                                "        norm = norm * exp(old - top) + exp(x[i] - top);\n"
                                "        m[i] = top;\n"
                                "        z[i] = norm;\n"
                                "    }\n"
                                "}\n");
    float x[4] = {1, 3, 4, 2}, m[4], z[4];
    const int64_t n = 4;
    EACH_DEVICE(where)
    {
        qn_call *call;
        if (!module || !GOOD(qn_call_new(module, "trace", &call, &error))) continue;
        set_floats(call, "x", x, 1, &n);
        set_floats(call, "m", m, 1, &n);
        set_floats(call, "z", z, 1, &n);
        GOOD(qn_call_run(call, where, &error));
        for (int i = 0; i < 4; i++) {
            EXPECT_NEAR(m[i], top[i], 0);
            EXPECT_NEAR(z[i], norm[i], 1e-6);
        }
        qn_call_free(call);
    }
    qn_module_free(module);
}

static void softmax_rows(const char *kernel, const char *block, float *x, int64_t rows, int64_t cols,
                         const double *expected)
{
    qn_module *module = kernels("softmax.qn");
    float *y = malloc(sizeof(float) * (size_t)(rows * cols));
    const int64_t extents[2] = {rows, cols};
    EACH_DEVICE(where)
    {
        qn_call *call;
        if (!module || !GOOD(qn_call_new(module, kernel, &call, &error))) continue;
        if (block) GOOD(qn_call_set_text(call, "BLOCK", block, &error));
        set_floats(call, "x", x, 2, extents);
        set_floats(call, "y", y, 2, extents);
        GOOD(qn_call_run(call, where, &error));
        for (int64_t i = 0; i < rows * cols; i++) EXPECT_NEAR(y[i], expected[i], 1e-6);
        qn_call_free(call);
    }
    free(y);
    qn_module_free(module);
}

TEST(softmax_of_1342)
{
    float x[4] = {1, 3, 4, 2};
    softmax_rows("softmax_online", "1", x, 1, 4, softmax_1342);
    softmax_rows("softmax_online", "3", x, 1, 4, softmax_1342);
    softmax_rows("softmax_three", NULL, x, 1, 4, softmax_1342);
    softmax_rows("softmax_row", NULL, x, 1, 4, softmax_1342);
    softmax_rows("softmax_short", NULL, x, 1, 4, softmax_1342);
}

TEST(softmax_with_a_large_logit)
{
    static const double expected[6] = {1. / 3, 1. / 3, 1. / 3, 0, 0, 1};
    float x[6] = {5, 5, 5, 0, 0, 100};
    softmax_rows("softmax_online", NULL, x, 2, 3, expected);
    softmax_rows("softmax_three", NULL, x, 2, 3, expected);
    softmax_rows("softmax_row", NULL, x, 2, 3, expected);
}

TEST(squares)
{
    qn_module *module = kernels("square.qn");
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6];
    const int64_t extents[2] = {2, 3}, n = 6;
    static const char *const names[] = {"square_matrix", "square_element", "square_multiply",
                                        "square_power",  "square_fma",     "square_c"};
    EACH_DEVICE(where)
    for (int k = 0; k < 6; k++) {
        qn_call *call;
        if (!strcmp(names[k], "square_c") && strcmp(where, "cpu")) continue;
        if (!module || !GOOD(qn_call_new(module, names[k], &call, &error))) continue;
        set_floats(call, "x", x, k ? 1 : 2, k ? &n : extents);
        set_floats(call, "y", y, k ? 1 : 2, k ? &n : extents);
        GOOD(qn_call_run(call, where, &error));
        for (int i = 0; i < 6; i++) EXPECT_NEAR(y[i], (i + 1) * (i + 1), 0);
        qn_call_free(call);
    }
    qn_module_free(module);
}

static void print_list(char *out, const char *head, const int64_t *list)
{
    sprintf(out + strlen(out), "%s %d %d %d %d\n", head, (int)list[0], (int)list[1], (int)list[2], (int)list[3]);
}

TEST(permuting_moves_strides_only)
{
    static const int order[4] = {1, 0, 3, 2};
    const int64_t shape[4] = {2, 4, 3, 2};
    int64_t strides[4], new_shape[4], new_strides[4];
    char words[256] = "";
    float data[48], y[48];
    for (int i = 0; i < 48; i++) data[i] = (float)i;
    for (int axis = 3, step = 1; axis >= 0; step *= (int)shape[axis--]) strides[axis] = step;
    for (int axis = 0; axis < 4; axis++) {
        new_shape[axis] = shape[order[axis]];
        new_strides[axis] = strides[order[axis]];
    }
    print_list(words, "Old Shape", shape);
    print_list(words, "Old Strides", strides);
    print_list(words, "New Shape", new_shape);
    print_list(words, "New Strides", new_strides);
    EXPECT_TEXT(words, "Old Shape 2 4 3 2\nOld Strides 24 6 2 1\nNew Shape 4 2 2 3\nNew Strides 6 24 1 2\n");
    qn_module *module = kernels("transpose.qn");
    EACH_DEVICE(where)
    {
        qn_call *call;
        if (!module || !GOOD(qn_call_new(module, "permute_copy", &call, &error))) continue;
        GOOD(qn_call_set_memory(call, "x", data, QN_F32, 4, new_shape, new_strides, &error));
        set_floats(call, "y", y, 4, new_shape);
        GOOD(qn_call_run(call, where, &error));
        int at = 0;
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 2; b++)
                for (int c = 0; c < 2; c++)
                    for (int d = 0; d < 3; d++) EXPECT_NEAR(y[at++], b * 24 + a * 6 + d * 2 + c, 0);
        qn_call_free(call);
    }
    qn_module_free(module);
}

static bool normal_numbers(const char *where, int64_t offset, int64_t count, float *out)
{
    qn_module *module = program("kernel normals(out float y[n], u64 offset, const int B = 16) launch (cdiv(n, B))\n"
                                "{ int i = program(0) * B; y[i : B] = randn(0, offset, i + iota(B)); }\n");
    qn_call *call = NULL;
    bool made = module && GOOD(qn_call_new(module, "normals", &call, &error));
    if (made) {
        GOOD(qn_call_set_int(call, "offset", offset, &error));
        set_floats(call, "y", out, 1, &count);
        made = GOOD(qn_call_run(call, where, &error));
    }
    qn_call_free(call);
    qn_module_free(module);
    return made;
}

TEST(philox_normal_numbers)
{
    static const double x[8] = {-0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797, -0.6229, -0.3284};
    static const double bias[10] = {0.1808, -0.5523, 0.9238, -0.7350, 1.3800, 0.8676, 0.1297, -0.9406, 0.8109, 0.8821};
    float y[80];
    EACH_DEVICE(where)
    {
        if (!normal_numbers(where, 0, 80, y)) continue;
        for (int i = 0; i < 8; i++) EXPECT_NEAR(y[i], x[i], 6e-5);
        if (!normal_numbers(where, 4, 10, y)) continue;
        for (int i = 0; i < 10; i++) EXPECT_NEAR(y[i], bias[i], 6e-5);
    }
}

TEST(fused_add_multiply_relu)
{
    static const double row[8] = {1.7098, 0, 0, 0, 0.67049, 0, 0.34424, 0.011223};
    static const char *const names[] = {"bias_act", "bias_act_row"};
    const int64_t extents[2] = {8, 8}, columns = 8;
    qn_module *module = kernels("bias_act.qn");
    EACH_DEVICE(where)
    for (int k = 0; k < 2; k++) {
        float x[64], y[64], bias[8];
        qn_call *call;
        if (!normal_numbers(where, 0, 64, x) || !normal_numbers(where, 4, 64, y) || !normal_numbers(where, 8, 8, bias))
            continue;
        if (!module || !GOOD(qn_call_new(module, names[k], &call, &error))) continue;
        GOOD(qn_call_set_float(call, "m", 0.5, &error));
        GOOD(qn_call_set_function(call, "act", "relu", &error));
        set_floats(call, "x", x, 2, extents);
        set_floats(call, "y", y, 2, extents);
        set_floats(call, "bias", bias, 1, &columns);
        GOOD(qn_call_run(call, where, &error));
        for (int i = 0; i < 8; i++) EXPECT_NEAR(x[i], row[i], 6e-5);
        qn_call_free(call);
    }
    qn_module_free(module);
}

/* kernels/lora.qn: every version and activation, on the same numbers; the first row of relu is known from elsewhere. At
 * 8 x 8 with m = 0.5, and at 8 x 10 with m = 2.3, where bias is drawn before y. */
static double activated(const char *name, double v)
{
    if (!strcmp(name, "relu")) return v > 0 ? v : 0;
    if (!strcmp(name, "sigmoid")) return 1 / (1 + exp(-v));
    if (!strcmp(name, "gelu")) return 0.5 * v * (1 + erf(v / sqrt(2)));
    return strcmp(name, "silu") ? v : v / (1 + exp(-v));
}

static void check_lora(qn_module *module, const char *where, const char *kernel, const char *act, int64_t columns)
{
    static const double row[8] = {1.7098, 0, 0, 0, 0.67049, 0, 0.34424, 0.011223};
    const int64_t extents[2] = {8, columns}, count = 8 * columns;
    double m = columns == 8 ? 0.5 : 2.3;
    float x[80], y[80], z[80], bias[10];
    qn_call *call;
    if (!normal_numbers(where, 0, count, x) || !normal_numbers(where, columns == 8 ? 4 : 8, count, y) ||
        !normal_numbers(where, columns == 8 ? 8 : 4, columns, bias))
        return;
    if (!module || !GOOD(qn_call_new(module, kernel, &call, &error))) return;
    GOOD(qn_call_set_float(call, "m", m, &error));
    GOOD(qn_call_set_function(call, "act", act, &error));
    set_floats(call, "x", x, 2, extents);
    set_floats(call, "y", y, 2, extents);
    set_floats(call, "bias", bias, 1, &columns);
    set_floats(call, strstr(kernel, "fused") ? "result0" : "z", z, 2, extents);
    GOOD(qn_call_run(call, where, &error));
    for (int i = 0; i < count; i++) {
        double v = (double)x[i] + (double)bias[i % columns] + m * (double)y[i];
        EXPECT_NEAR(z[i], activated(act, v), 2e-6);
    }
    for (int i = 0; i < 8 && columns == 8 && !strcmp(act, "relu"); i++) EXPECT_NEAR(z[i], row[i], 6e-5);
    qn_call_free(call);
}

TEST(lora_epilogue)
{
    static const char *const names[] = {"lora_element", "lora_row", "lora_tile", "lora_fused", "eager lora_fused"};
    static const char *const acts[] = {"relu", "sigmoid", "gelu", "silu", "none"};
    qn_module *module = kernels("lora.qn");
    EACH_DEVICE(where)
    for (int k = 0; k < 5; k++)
        for (int a = 0; a < 5; a++) check_lora(module, where, names[k], acts[a], a % 2 ? 10 : 8);
    EACH_DEVICE(again) check_lora(module, again, "lora_tile", "relu", 10);
    qn_module_free(module);
}

TEST(ones_and_ones)
{
    static const char *const names[] = {"bias_relu", "bias_relu_row"};
    const int64_t extents[2] = {128, 512}, columns = 512;
    float *x = malloc(sizeof(float) * 128 * 512), bias[512];
    qn_module *module = kernels("bias_act.qn");
    EACH_DEVICE(where)
    for (int k = 0; k < 2; k++) {
        qn_call *call;
        int wrong = 0;
        for (int i = 0; i < 128 * 512; i++) x[i] = 1;
        for (int i = 0; i < 512; i++) bias[i] = 1;
        if (!module || !GOOD(qn_call_new(module, names[k], &call, &error))) continue;
        set_floats(call, "x", x, 2, extents);
        set_floats(call, "bias", bias, 1, &columns);
        GOOD(qn_call_run(call, where, &error));
        for (int i = 0; i < 128 * 512; i++) wrong += x[i] != 2;
        EXPECT(wrong == 0);
        qn_call_free(call);
    }
    free(x);
    qn_module_free(module);
}

TEST(modulus_hash_rows)
{
    int64_t id[52] = {0x62770d79, 0xe21f5d58, 0xafea442f, 0x945c7fcf, 0x38b02748, 0x6fcd6dcb, 0x3580aa21, 0x28808903,
                      0x46dedfa6, 0x2e027dc1, 0x0c7c4231, 0x95981d1f, 0x00c5ffb7, 0xbe4ee537, 0x8a0b74cc, 0x4cdc3efa,
                      0xd20856aa, 0xb8170bba, 0x9512c20b, 0xc38e2f28, 0x14f65a5d, 0x25b1b089, 0xd7c1fc0b, 0x7caf609c,
                      0x30436bfc, 0xed10571d, 0xe5f3fd8d, 0xa0aaffa6, 0x6faa15d5, 0xda8a3421, 0x3cd69f23, 0x6fcd6dcb,
                      0xab16ed81, 0x43426c29, 0x1df5e154, 0x7de9c0a9, 0x6652dc64, 0x99eb4e27, 0x00c5ffb7, 0xbe4ee537,
                      0xf3bbfe99, 0x4cdc3efa, 0xd20856aa, 0xa1eb1511, 0x9512c20b, 0xfebfd863, 0xa3323ca1, 0xc8e1ee56,
                      0x1752e9e8, 0x75350c8a, 0x991321ea, 0xb757e957};
    int64_t size[26] = {1234907, 19682, 13779, 6866, 18489, 3,  6263,    1234,   49,      854680, 114026, 75735, 10,
                        2159,    7532,  61,    4,    918,   14, 1307783, 404742, 1105613, 87714,  9031,   76,    33};
    static const int64_t rows[52] = {
        898743, 829,   333,   216,  12818, 2, 5187,   352,    5,       139162, 4240,  67682, 6,
        60,     6989,  35,    3,    711,   0, 955541, 373254, 1097035, 33060,  8756,  25,    25,
        123154, 12817, 11067, 5206, 13159, 2, 4737,   174,    48,      556930, 44975, 74456, 6,
        60,     842,   35,    3,    792,   0, 150792, 303642, 341391,  17647,  951,   7,     21};
    const int64_t extents[2] = {2, 26}, features = 26;
    int64_t row[52];
    qn_module *module = kernels("embedding.qn");
    EACH_DEVICE(where)
    {
        qn_call *call;
        if (!module || !GOOD(qn_call_new(module, "hash", &call, &error))) continue;
        GOOD(qn_call_set_memory(call, "id", id, QN_I64, 2, extents, NULL, &error));
        GOOD(qn_call_set_memory(call, "size", size, QN_I64, 1, &features, NULL, &error));
        GOOD(qn_call_set_memory(call, "row", row, QN_I64, 2, extents, NULL, &error));
        GOOD(qn_call_run(call, where, &error));
        for (int i = 0; i < 52; i++) EXPECT(row[i] == rows[i]);
        int64_t missing = -1, one_size = 7;
        const int64_t one[2] = {1, 1};
        GOOD(qn_call_set_memory(call, "id", &missing, QN_I64, 2, one, NULL, &error));
        GOOD(qn_call_set_memory(call, "size", &one_size, QN_I64, 1, one, NULL, &error));
        GOOD(qn_call_set_memory(call, "row", row, QN_I64, 2, one, NULL, &error));
        GOOD(qn_call_run(call, where, &error));
        EXPECT(row[0] == 0);
        qn_call_free(call);
    }
    qn_module_free(module);
}

TEST(open_first)
{
    qn_context_options options = {.allow_raw = true};
    GOOD(qn_context_open(&options, &context, &error));
    EXPECT(device(0) != NULL);
}

TEST(close_last)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(open_first), CASE(gelu_of_one), CASE(online_softmax_trace), CASE(softmax_of_1342),
          CASE(softmax_with_a_large_logit), CASE(squares), CASE(permuting_moves_strides_only),
          CASE(philox_normal_numbers), CASE(fused_add_multiply_relu), CASE(lora_epilogue), CASE(ones_and_ones),
          CASE(modulus_hash_rows), CASE(close_last))
