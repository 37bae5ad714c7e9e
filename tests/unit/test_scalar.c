/*
 * One arithmetic of integers: ir/scalar.h against 128-bit integers, then everything that computes with integers against
 * ir/scalar.h, on the numbers where such things go wrong: constants of the language, folding, the interpreter, the CPU,
 * and CUDA's text in emu.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "ir/scalar.h"
#include "passes/evaluate.h"
#include "quern/quern.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 wide;

static const op_code codes[] = {OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MOD, OP_MIN, OP_MAX, OP_AND,
                                OP_OR,  OP_XOR, OP_SHL, OP_SHR, OP_LT,  OP_LE,  OP_GT,  OP_GE,
                                OP_EQ,  OP_NE,  OP_NEG, OP_NOT, OP_ABS, OP_SIGN};
static const char *const words[] = {
    "a + b",  "a - b", "a * b",  "a / b", "a % b",  "min(a, b)", "max(a, b)", "a & b", "a | b", "a ^ b",  "a << b",
    "a >> b", "a < b", "a <= b", "a > b", "a >= b", "a == b",    "a != b",    "-a",    "~a",    "abs(a)", "sign(a)"};
static const dtype types[] = {DT_I8, DT_U8, DT_I16, DT_U16, DT_I32, DT_U32, DT_I64, DT_U64};

/* Numbers at the ends of a type, near zero, and with the top bit alone; canonical. */
static int edges_of(dtype t, int64_t *out)
{
    int bits = dtypes[t].size_bytes * 8, count = 0;
    const int64_t least = (int64_t)(~(uint64_t)0 << (bits - 1));
    const int64_t all[] = {0,  1,  2,  3,  7,    31,    33,        63,     65,        100,
                           -1, -2, -3, -7, -100, least, least + 1, ~least, ~least - 1};
    for (int i = 0; i < COUNT(all); i++) out[count++] = integer_wrap(t, all[i]);
    return count;
}

static wide meant(dtype t, int64_t x)
{
    return t == DT_U64 ? (wide)(uint64_t)x : x;
}

static int64_t narrow(dtype t, wide x)
{
    return integer_wrap(t, (int64_t)(uint64_t)x);
}

/* The language's words, in arithmetic that nothing here overflows. */
static int64_t expected(op_code code, dtype t, int64_t x, int64_t y)
{
    wide a = meant(t, x), b = meant(t, y), q;
    int bits = dtypes[t].size_bytes * 8, count = (int)((uint64_t)y % (uint64_t)bits);
    switch (code) {
    case OP_ADD: return narrow(t, a + b);
    case OP_SUB: return narrow(t, a - b);
    case OP_MUL: return narrow(t, (wide)(int64_t)((uint64_t)x * (uint64_t)y));
    case OP_DIV:
    case OP_MOD:
        if (!b) return 0;
        q = a / b;
        if (q * b != a && (a < 0) != (b < 0)) q--;
        return narrow(t, code == OP_DIV ? q : a - q * b);
    case OP_MIN: return narrow(t, a < b ? a : b);
    case OP_MAX: return narrow(t, a > b ? a : b);
    case OP_AND: return narrow(t, a & b);
    case OP_OR: return narrow(t, a | b);
    case OP_XOR: return narrow(t, a ^ b);
    case OP_SHL: return narrow(t, (wide)(int64_t)((uint64_t)x << count));
    case OP_SHR: return narrow(t, a >> count);
    case OP_LT: return a < b;
    case OP_LE: return a <= b;
    case OP_GT: return a > b;
    case OP_GE: return a >= b;
    case OP_EQ: return a == b;
    case OP_NE: return a != b;
    case OP_NEG: return narrow(t, -a);
    case OP_NOT: return narrow(t, ~a);
    case OP_ABS: return narrow(t, a < 0 ? -a : a);
    default: return narrow(t, (a > 0) - (a < 0));
    }
}

TEST(meaning)
{
    int64_t edges[32], out;
    for (int t = 0; t < COUNT(types); t++) {
        int count = edges_of(types[t], edges);
        for (int c = 0; c < COUNT(codes); c++)
            for (int i = 0; i < count * count; i++) {
                int64_t x = edges[i / count], y = edges[i % count];
                EXPECT(scalar_apply(codes[c], types[t], x, y, &out));
                EXPECT(out == expected(codes[c], types[t], x, y));
                number folded, in[2] = {{.i = x}, {.i = y}};
                EXPECT(evaluate_op(codes[c], types[t], ops[codes[c]].class == CLASS_COMPARE ? DT_BOOL : types[t], in,
                                   &folded));
                EXPECT(folded.i == out);
            }
    }
    EXPECT(!scalar_apply(OP_EXP, DT_I32, 1, 0, &out) && !scalar_apply(OP_LOAD, DT_I32, 1, 0, &out));
}

TEST(what_wraps)
{
    int64_t edges[32];
    for (int t = 0; t < COUNT(types); t++) {
        int count = edges_of(types[t], edges);
        for (int i = 0; i < count * count; i++) {
            wide a = meant(types[t], edges[i / count]), b = meant(types[t], edges[i % count]);
            const wide results[] = {a + b, a - b, -a, b ? a / b : 0};
            const op_code of[] = {OP_ADD, OP_SUB, OP_NEG, OP_DIV};
            for (int k = 0; k < COUNT(of); k++)
                EXPECT(scalar_overflows(of[k], types[t], edges[i / count], edges[i % count]) ==
                       (meant(types[t], narrow(types[t], results[k])) != results[k]));
        }
        for (int other = 0; other < COUNT(types); other++)
            for (int i = 0; i < count; i++)
                EXPECT(scalar_fits(types[t], types[other], edges[i]) ==
                       (meant(types[other], integer_wrap(types[other], edges[i])) == meant(types[t], edges[i])));
    }
}

static const double doubles[] = {
    0,        -0.0,       0.5,          -0.5,          1.5,           -1.5,         127.99,
    128,      -128.99,    -129,         255.99,        256,           32768,        -32769,
    65536,    2147483647, 2147483648.0, -2147483648.0, -2147483649.0, 4294967295.0, 4294967296.0,
    0x1p62,   0x1p63,     -0x1p63,      0x1p64,        -0x1p64,       1e300,        -1e300,
    INFINITY, -INFINITY,  NAN};

TEST(from_floats)
{
    for (int t = 0; t < COUNT(types); t++) {
        int bits = dtypes[types[t]].size_bytes * 8;
        bool is_signed = dtype_is_signed(types[t]);
        double low = is_signed ? -ldexp(1, bits - 1) : 0, high = ldexp(1, is_signed ? bits - 1 : bits);
        for (int i = 0; i < COUNT(doubles); i++) {
            double x = doubles[i];
            wide want = isnan(x) ? 0 : x <= low ? (wide)low : x >= high ? (wide)high - 1 : (wide)x;
            EXPECT(meant(types[t], scalar_truncate(types[t], x)) == want);
        }
    }
    EXPECT(scalar_from_double(DT_U8, -1).i == 255 && scalar_from_double(DT_U64, 0x1p63).i == INT64_MIN);
    EXPECT(scalar_from_double(DT_I32, NAN).i == 0 && scalar_from_double(DT_BOOL, NAN).i == 1);
    EXPECT(scalar_from_double(DT_I64, 1e300).i == INT64_MAX && scalar_from_double(DT_F16, 1e300).f == INFINITY);
}

/* ---- on devices ---- */

static qn_error error;
static qn_context *context;

static const char *const devices[] = {"ref", "cpu", "emu"};

static qn_module *load(const char *source)
{
    qn_module *module = NULL;
    qn_status status = qn_module_load_text(context, "scalar.qn", source, &module, &error);
    EXPECT(status == QN_OK);
    if (status) printf("%s\n%s\n", error.message, source);
    return module;
}

/* Dividing by zero is a finding of `ref`, which has its result all the same. */
static bool run_on(qn_call *call, const char *device)
{
    qn_status status = qn_call_run(call, device, &error);
    if (!strcmp(device, "ref") && strstr(error.message, "divided by zero; the result is 0")) status = QN_OK;
    EXPECT(status == QN_OK);
    if (status) printf("%s: %s\n", device, error.message);
    return status == QN_OK;
}

static void set(qn_call *call, const char *name, void *data, dtype t, int64_t n)
{
    EXPECT(qn_call_set_memory(call, name, data, (qn_dtype)t, 1, &n, NULL, &error) == QN_OK);
}

/* Every op of a type in one kernel, over all pairs of edges. Small types meet as i32, so they are left out here. */
static void ops_of_type(dtype t)
{
    int64_t edges[32];
    int count = edges_of(t, edges), n = count * count, size = dtypes[t].size_bytes;
    text source = {0};
    text_print(&source, "kernel all(in %s x[n], in %s y[n]", dtypes[t].text, dtypes[t].text);
    for (int c = 0; c < COUNT(codes); c++) text_print(&source, ", out %s r%d[n]", dtypes[t].text, c);
    text_add(&source, ", const int B = 32) launch (cdiv(n, B))\n{\n");
    text_print(&source, "    tile %s a = x[program(0) * B : B];\n    tile %s b = y[program(0) * B : B];\n",
               dtypes[t].text, dtypes[t].text);
    for (int c = 0; c < COUNT(codes); c++) {
        bool truth = ops[codes[c]].class == CLASS_COMPARE;
        text_print(&source, "    r%d[program(0) * B : B] = %s%s%s;\n", c, truth ? dtypes[t].text : "", truth ? "(" : "",
                   words[c]);
        if (truth) source.length -= 2, text_add(&source, ");\n");
    }
    text_add(&source, "}\n");
    qn_module *module = load(text_get(&source));
    char *memory = calloc((size_t)(COUNT(codes) + 2) * (size_t)n, (size_t)size);
    for (int i = 0; i < n && memory; i++) {
        element_write(t, memory + i * size, (number){.i = edges[i / count]});
        element_write(t, memory + (n + i) * size, (number){.i = edges[i % count]});
    }
    for (int d = 0; module && memory && d < COUNT(devices); d++) {
        qn_call *call = NULL;
        EXPECT(qn_call_new(module, "all", &call, &error) == QN_OK);
        set(call, "x", memory, t, n);
        set(call, "y", memory + n * size, t, n);
        for (int c = 0; c < COUNT(codes); c++) {
            char name[8];
            snprintf(name, sizeof(name), "r%d", c);
            memset(memory + (c + 2) * n * size, 0x55, (size_t)(n * size));
            set(call, name, memory + (c + 2) * n * size, t, n);
        }
        if (run_on(call, devices[d]))
            for (int c = 0; c < COUNT(codes); c++)
                for (int i = 0; i < n; i++) {
                    int64_t x = edges[i / count], y = edges[i % count], want = expected(codes[c], t, x, y);
                    int64_t got = element_read(t, memory + ((c + 2) * n + i) * size).i;
                    EXPECT(got == want);
                    if (got != want)
                        printf("%s: %s %s of %lld, %lld is %lld, not %lld\n", devices[d], dtypes[t].text, words[c],
                               (long long)x, (long long)y, (long long)got, (long long)want);
                }
        qn_call_free(call);
    }
    free(memory);
    qn_module_free(module);
    text_free(&source);
}

TEST(on_devices)
{
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true}, &context, &error) == QN_OK);
    ops_of_type(DT_I32);
    ops_of_type(DT_U32);
    ops_of_type(DT_I64);
    ops_of_type(DT_U64);
}

TEST(from_floats_on_devices)
{
    text source = {0};
    int64_t n = COUNT(doubles);
    text_add(&source, "kernel all(in f64 x[n]");
    for (int t = 0; t < COUNT(types); t++) text_print(&source, ", out %s y%d[n]", dtypes[types[t]].text, t);
    text_add(&source, ", const int B = 32) launch (cdiv(n, B))\n{\n    tile f64 a = x[program(0) * B : B];\n");
    for (int t = 0; t < COUNT(types); t++)
        text_print(&source, "    y%d[program(0) * B : B] = %s(a);\n", t, dtypes[types[t]].text);
    text_add(&source, "}\n");
    qn_module *module = load(text_get(&source));
    double x[COUNT(doubles)];
    static char results[COUNT(types)][COUNT(doubles) * 8];
    memcpy(x, doubles, sizeof(x));
    for (int d = 0; module && d < COUNT(devices); d++) {
        qn_call *call = NULL;
        EXPECT(qn_call_new(module, "all", &call, &error) == QN_OK);
        set(call, "x", x, DT_F64, n);
        for (int t = 0; t < COUNT(types); t++) {
            char name[8];
            snprintf(name, sizeof(name), "y%d", t);
            set(call, name, results[t], types[t], n);
        }
        if (run_on(call, devices[d]))
            for (int t = 0; t < COUNT(types); t++)
                for (int i = 0; i < n; i++) {
                    int64_t got = element_read(types[t], results[t] + i * dtypes[types[t]].size_bytes).i;
                    EXPECT(got == scalar_truncate(types[t], doubles[i]));
                    if (got != scalar_truncate(types[t], doubles[i]))
                        printf("%s: %s(%g) is %lld\n", devices[d], dtypes[types[t]].text, doubles[i], (long long)got);
                }
        qn_call_free(call);
    }
    qn_module_free(module);
    text_free(&source);
}

/* Constant expressions of the language: typed ones wrap as the rest does, untyped ones are exact or refused. */
TEST(as_constants)
{
    static const dtype kinds[] = {DT_I32, DT_U32, DT_I64, DT_U64};
    for (int k = 0; k < COUNT(kinds); k++) {
        dtype t = kinds[k];
        int64_t edges[32], out[32 * 32];
        int count = edges_of(t, edges), binary = 0;
        for (int c = 0; codes[c] != OP_LT; c++) binary++;
        for (int c = 0; c < binary; c++) {
            text source = {0};
            text_print(&source, "kernel all(out %s y[n], const int N = 1) launch (1)\n{\n", dtypes[t].text);
            int n = 0;
            for (int i = 0; i < count * count; i += 7) {
                int64_t x = edges[i / count], y = edges[i % count];
                if ((codes[c] == OP_DIV || codes[c] == OP_MOD) && !y) continue;
                text_print(&source, "    const %s a%d = %s(0x%llx);\n    const %s b%d = %s(0x%llx);\n", dtypes[t].text,
                           n, dtypes[t].text, (unsigned long long)x, dtypes[t].text, n, dtypes[t].text,
                           (unsigned long long)y);
                char line[64] = {0};
                for (const char *at = words[c]; *at; at++) {
                    size_t length = strlen(line);
                    bool name = (*at == 'a' || *at == 'b') && (at == words[c] || strchr(" (-~", at[-1]));
                    snprintf(line + length, sizeof(line) - length, name ? "%c%d" : "%c", *at, n);
                }
                text_print(&source, "    y[%d] = %s;\n", n, line);
                out[n++] = expected(codes[c], t, x, y);
            }
            text_add(&source, "}\n");
            qn_module *module = load(text_get(&source));
            qn_call *call = NULL;
            char got[32 * 32 * 8];
            EXPECT(module && qn_call_new(module, "all", &call, &error) == QN_OK);
            set(call, "y", got, t, n);
            if (run_on(call, "ref"))
                for (int i = 0; i < n; i++) EXPECT(element_read(t, got + i * dtypes[t].size_bytes).i == out[i]);
            qn_call_free(call);
            qn_module_free(module);
            text_free(&source);
        }
    }
    qn_module *module = NULL;
    static const char least[] = "kernel k(out i64 y[n]) launch (1)\n{ y[0] = (-9223372036854775807 - 1) / -1; }\n";
    EXPECT(qn_module_load_text(context, "least.qn", least, &module, &error) == QN_OK);
    qn_call *call = NULL;
    int64_t y[1];
    EXPECT(module && qn_call_new(module, "k", &call, &error) == QN_OK);
    set(call, "y", y, DT_I64, 1);
    EXPECT(qn_call_run(call, "ref", &error) != QN_OK && strstr(error.message, "E103"));
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
}

TEST_MAIN(CASE(meaning), CASE(what_wraps), CASE(from_floats), CASE(on_devices), CASE(from_floats_on_devices),
          CASE(as_constants))
