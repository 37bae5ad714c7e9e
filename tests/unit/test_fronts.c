/*
 * One language: the same expressions in a tensor function and in a kernel. Types of results, values and codes of errors
 * must agree; so must scalar functions, whose rules are those of kernels wherever they are applied. What section 15 of
 * the reference says otherwise of tensors (small types stay, scalars follow tensors) has a table of its own.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"
#include "traced.h"

#include <quern/quern.h>

enum { LENGTH = 3 }; /* the first extent of a traced function */

static const char head[] =
    "float twice(float x) { return 2 * x; }\n"
    "float leaky(float x, float s) { if (x >= 0) return x; return s * x; }\n"
    "T same(T x) { return x; }\n"
    "i32 shifted(i8 x) { return x << 9; }\n"
    "float picked(float x) { return x > 0 ? 0 : 0.5; }\n"
    "i32 turned(bool x) { return ~x; }\n"
    "int counted(float x) { int k = 0; for (int j = 0; j < 4; j++) if (x > j) k += j; return k; }\n"
    "float applied(float x, const float g(float)) { return g(x) + 1; }\n";

static const struct {
    const char *name, *type;
} arrays[] = {{"a", "float"}, {"b", "float"}, {"d", "double"}, {"i", "i32"}, {"l", "i64"},
              {"m", "u32"},   {"q", "u64"},   {"c", "bool"},   {"e", "bool"}};

static const char *const expressions[] = {
    /* numbers without types, and what they become */
    "where(a > 0, 0.5, 1)",
    "where(a > 0, 0, 1)",
    "where(c, 0, -inf)",
    "a + where(c, 0, -inf)",
    "c ? 1 : 2",
    "c ? 1 : 2.5",
    "d + where(c, 1, 2.5)",
    "where(c, a, 0)",
    "where(c, i, 0)",
    "where(c, i, 0.5)",
    "where(c, c, e)",
    "where(c, a, d)",
    "where(c, i, l)",
    "where(i, a, b)",
    "where(true, 0.5, a)",
    "where(a > 0, 1, 2) << 3",
    "i + 1",
    "i + 0.5",
    "l + 1",
    "m * 7",
    "q - 1",
    "a + 1",
    "d + 1",
    "a * 0x10",
    "i / 2",
    "i % 3",
    "-7 / 2 * i",
    "a + 1 / 3",
    "(1 << 4) + i",
    "i + 2147483647",
    "l + 3000000000",
    "m + 4294967295",
    "c + 1",
    "c * 0.5",
    "a + pi",
    "a < 1",
    "i == 1",
    "l != 2",
    /* two types */
    "a + d",
    "a + i",
    "d * l",
    "i + l",
    "a < d",
    "i < l",
    "i * a",
    "l - a",
    "m & 7",
    "m | m",
    "i ^ l",
    "c & e",
    "c | e",
    "c ^ e",
    "c & i",
    "c == e",
    "c < e",
    "c + e",
    "c * i",
    "c && e",
    "i && c",
    "a > 0 || c",
    "!c",
    "!i",
    "~i",
    "~c",
    "-c",
    "-i",
    "+i",
    "-a",
    "a / b",
    "i / l",
    "i % l",
    "a % 0.75",
    "l / (i - 1)",
    /* shifts: the count has a type of its own */
    "i << 3",
    "i >> 1",
    "i << l",
    "l << i",
    "l >> i",
    "m >> i",
    "q << i",
    "i << m",
    "1 << i",
    "1 << l",
    "c << i",
    "5 >> m",
    "i << c",
    /* functions */
    "exp(a)",
    "exp(i)",
    "exp(c)",
    "sqrt(abs(d))",
    "abs(i)",
    "abs(c)",
    "sign(a)",
    "sign(i)",
    "pow(i, 2)",
    "pow(a, 0.5)",
    "fma(a, b, 1)",
    "fma(i, i, i)",
    "min(a, 0)",
    "max(i, 1)",
    "min(i, l)",
    "max(a, i)",

    "clamp(a, 0, 1)",
    "clamp(i, 0, 1)",
    "clamp(i, 0, 1.5)",
    "clamp(a, 0, d)",
    "floor(a)",
    "floor(i)",
    "isnan(a)",
    "isinf(i)",
    "cdiv(i, 2)",
    "cdiv(l, i + 1)",
    "relu(a)",
    "gelu(i)",
    "sigmoid(c)",
    "round(d)",
    /* casts */
    "i32(a)",
    "u8(a * 300)",
    "bool(a)",
    "bool(i)",
    "float(i)",
    "double(a)",
    "i64(c)",
    "bitcast(i32, a)",
    "bitcast(u32, 0.5)",
    "bitcast(i64, d)",
    "bitcast(float, i)",
    "bitcast(u8, c)",
    "bitcast(i64, 1)",
    "u32(l)",
    "i8(i + 200)",
    /* reductions and scans */
    "sum(a)",
    "sum(i)",
    "sum(m)",
    "sum(c)",
    "sum(d)",
    "prod(i)",
    "mean(a)",
    "mean(i)",
    "mean(c)",
    "mean(d)",
    "max(a)",
    "max(i)",
    "min(l)",
    "any(c)",
    "all(i)",
    "any(a > 5)",
    "argmax(a)",
    "argmin(i)",
    "count(a)",
    "count(i, axis = 0)",
    "sum(a, axis = 0)",
    "max(i, axis = -1)",
    "a - mean(a, axis = 0)",
    "cumsum(a)",
    "cumsum(i)",
    "cummax(i)",
    "cumsum(c)",
    "cumprod(d)",
    "cummin(l, axis = 0)",
    "cummax(c)",
    /* scalars and constants of the call */
    "s * a",
    "k * l",
    "s + k",
    "a * k",
    "K * a",
    "K + k",
    "s / 2 + a",
    "k / 2 + l",
    "where(k > 2, a, b)",
    "k > 2 ? a : b",
    "s > 1 ? 1 : 2",
    "k > 2 && c",
    "iota(n) + l",
    "iota(n) * a",
    "a[:] + b",
    "sum(iota(4)[:][] * iota(3)[][:])",
    "max(iota(4)[:][] - iota(3)[][:]) + a",
    /* scalar functions: the rules of kernels wherever they are applied */
    "twice(a)",
    "twice(i)",
    "twice(3)",
    "leaky(a, 0.25)",
    "same(a)",
    "same(d)",
    "same(c)",
    "same(i) + 1",
    "picked(a)",
    "turned(c)",
    "counted(a)",
    "applied(a, twice)",
    "applied(a, exp)",
    "shifted(i8(i))",
    "leaky(s, 2) * a",
    /* what is refused, with the same code */
    "m + i",
    "q + l",
    "q < i",
    "m & i",
    "where(c, m, i)",
    "min(m, i)",
    "a & 1",
    "a << 1",
    "i << a",
    "~a",
    "1.5 & i",
    "a && c",
    "!a",
    "where(a, 1, 2)",
    "a ? 1 : 2",
    "i + 3000000000",
    "m + 4294967296",
    "m - 5 + -1",
    "i & 0xffffffff",
    "3000000000 << i",
    "q + -1",
    "cdiv(a, 2)",
    "bitcast(i16, a)",
    "bitcast(u64, 0.5)",
    "bitcast(a, a)",
    "sum(s)",
    "max(3)",
    "cumsum(s)",
    "argmax(iota(4)[:][] + iota(3)[][:])",
    "cumsum(iota(4)[:][] + iota(3)[][:])",
    "sum(a, axis = 1)",
    "sum(a, axis = -2)",
    "sum(a, axes = 0)",
    "a + a[:][]",
    "transpose(a)",
    "permute(a[:][], 0, 0)",
    "permute(a[:][], 1)",
    "reshape(iota(4), 3)",
    "twice(d)",
    "shifted(i)",
    "leaky(a)",
    "twice(a, b)",
    "exp(a, b)",
    "where(c, a)",
    "fma(a, b)",
    "float(a, b)",
    "philox(u64(1), u64(2), i, 4)",
    "philox(1.5, u64(2), i, 0)",
    "philox(u64(1), u64(2), i, l)",
    "rand(u64(1), a, i)",
    "1 / 0 + i",
    "l / (K - 4)",
    "iota(1.5)",
    "unknown + a",
    "unknown(a)",
    "applied(a, sum)",
    "applied(a, 3)",
    "same",
    "s[0] + a",
    "K[:] + a",
    "twice(x = a)",
    "exp(x = a)",
};

/* Section 15: types of tensors stay, scalars and tensors of rank 0 follow a tensor of their kind. */
static const struct {
    const char *expression;
    dtype type;
} tensors[] = {
    {"h + 1", DT_BF16},
    {"h * s", DT_BF16},
    {"h + a", DT_F32},
    {"f16(a) + h", DT_F32},
    {"h + i", DT_BF16},
    {"u + 1", DT_U8},
    {"u + u", DT_U8},
    {"u + i", DT_I32},
    {"u << i", DT_U8},
    {"-u", DT_U8},
    {"~u", DT_U8},
    {"i + k", DT_I32},
    {"i * s", DT_F32},
    {"i + sum(d)", DT_F64},
    {"a + sum(d)", DT_F32},
    {"a * mean(h)", DT_F32},
    {"h * sum(a)", DT_BF16},
    {"sum(h)", DT_BF16},
    {"sum(u)", DT_U64},
    {"where(c, h, 0)", DT_BF16},
    {"where(c, 0, 1)", DT_I64},
    {"where(c, 0, 0.5)", DT_F32},
    {"c + 1", DT_I32},
    {"c + k", DT_I64},
    {"min(c, e)", DT_BOOL},
    {"twice(h)", DT_F32},
    {"same(h)", DT_BF16},
    {"exp(h)", DT_BF16},
    {"exp(u)", DT_F32},
    {"max(h, 0)", DT_BF16},
    {"cumsum(u)", DT_U64},
    {"cumsum(h)", DT_BF16},
};

static qn_context *context;

typedef struct outcome {
    char code[8]; /* of the first error, or empty */
    dtype elem;
    int64_t count;
    double values[64];
    char words[4200]; /* what was said */
} outcome;

static void note_error(outcome *o, const diagnostics *d)
{
    for (int i = 0; i < d->count && !o->code[0]; i++) {
        if (error_code_is_warning(d->items[i].code)) continue;
        snprintf(o->code, sizeof(o->code), "%s", error_code_text(d->items[i].code));
        snprintf(o->words, sizeof(o->words), "%s (%s)", d->items[i].message, d->items[i].advice);
    }
}

/* Elements of the array number `which`: with zeros, negative ones and all the bits of a bool. */
static number element(int which, dtype t, int64_t i)
{
    static const double values[][LENGTH] = {{-1.5, 0, 2.25}, {3, 0.5, -1}, {0.5, -4, 2}, {1, 2, -3}, {2, 1, 3}};
    double x = values[which % COUNT(values)][i];
    if (t == DT_BOOL) return (number){.i = (i + which) % 2};
    if (dtypes[t].kind == KIND_UINT) x = fabs(x) + 1;
    return (number){.i = (int64_t)x, .f = x};
}

static void parameters(text *out, bool kernel)
{
    for (int p = 0; p < COUNT(arrays); p++)
        text_print(out, kernel ? "%sin %s %s_[n]" : "%s%s %s[n]", p ? ", " : "", arrays[p].type, arrays[p].name);
}

static outcome as_tensor(const char *expression)
{
    outcome o = {.elem = DT_COUNT};
    text words = {0};
    text_print(&words, "%stensor f(", head);
    parameters(&words, false);
    text_print(&words, ", bf16 h[n], u8 u[n], float s = 1.5, int k = 3, const int K = 4) { return %s; }\n", expression);
    traced *t = traced_open("fronts.qn", text_get(&words));
    if (traced_bind(t, "f")) {
        for (int p = 0; p < t->item->list.count; p++)
            for (int64_t i = 0; i < t->counts[p]; i++) {
                dtype elem = graph_get(t->tape->graph, t->arguments[p])->elem;
                element_write(elem, (char *)t->data[p] + i * dtypes[elem].size_bytes, element(p, elem, i));
            }
        if (traced_run(t, false)) {
            qn_error error;
            graph_tensor r[FUNCTION_RESULTS] = {0};
            EXPECT(graph_interpret(t->tape->graph, t->results, t->count, NULL, true, t->memory, r, &error) == QN_OK);
            o.elem = r[0].elem;
            o.count = shape_count(&r[0].shape);
            for (int64_t i = 0; r[0].elements && i < o.count && i < COUNT(o.values); i++)
                o.values[i] = dtype_is_float(o.elem) ? r[0].elements[i].f
                              : o.elem == DT_U64     ? (double)(uint64_t)r[0].elements[i].i
                                                     : (double)r[0].elements[i].i;
        }
    }
    note_error(&o, &t->d);
    traced_close(t);
    text_free(&words);
    return o;
}

static dtype printed_type(const tile_kernel *k)
{
    for (int i = 0; i < k->phases[0]->op_count; i++)
        if (k->phases[0]->ops[i]->code == OP_PRINT) return tile_type_of(k, k->phases[0]->ops[i]->operands[0]).elem;
    return DT_COUNT;
}

static outcome as_kernel(const char *expression)
{
    outcome o = {.elem = DT_COUNT};
    arena *memory = arena_new();
    for (int runs = 0; runs < 2 && !o.code[0]; runs++) {
        text words = {0};
        text_print(&words, "%skernel f(", head);
        parameters(&words, true);
        text_add(&words, ", out double y[n], float s = 1.5, int k = 3, const int K = 4) launch (1)\n{\n");
        for (int p = 0; p < COUNT(arrays); p++)
            text_print(&words, "    tile %s %s = %s_[:];\n", arrays[p].type, arrays[p].name, arrays[p].name);
        if (runs)
            text_print(&words, "    y[:] = double(%s);\n}\n", expression);
        else
            text_print(&words, "    print(\"{}\", %s);\n    y[:] = 0;\n}\n", expression);
        if (!runs) {
            diagnostics d = {.memory = memory};
            ast_file *file = lang_parse(memory, "fronts.qn", text_get(&words), words.length, &d);
            if (!d.errors) lang_check(file, &d);
            bindings constants = {0}, extents = {0};
            lang_given given = {.units = 2};
            tile_kernel *k = NULL;
            if (!d.errors && lang_instantiate(file, ast_find(file, "f"), &given, &d, memory, &constants, &extents) &&
                lang_lower(file, ast_find(file, "f"), &constants, memory, &d, &k))
                o.elem = printed_type(k);
            note_error(&o, &d);
        } else {
            qn_error error;
            qn_module *module = NULL;
            qn_call *call = NULL;
            char data[COUNT(arrays)][8 * LENGTH];
            int64_t n = LENGTH;
            bool good = qn_module_load_text(context, "fronts.qn", text_get(&words), &module, &error) == QN_OK &&
                        qn_call_new(module, "f", &call, &error) == QN_OK;
            for (int p = 0; p < COUNT(arrays) && good; p++) {
                dtype t = DT_F32;
                char name[8];
                snprintf(name, sizeof(name), "%s_", arrays[p].name);
                CHECK(dtype_from_text(arrays[p].type, &t));
                for (int64_t i = 0; i < n; i++) element_write(t, data[p] + i * dtypes[t].size_bytes, element(p, t, i));
                good = qn_call_set_memory(call, name, data[p], (qn_dtype)t, 1, &n, NULL, &error) == QN_OK;
            }
            good = good && qn_call_set_memory(call, "y", o.values, QN_F64, 1, &n, NULL, &error) == QN_OK;
            qn_status status = good ? qn_call_run(call, "ref", &error) : QN_FAILED;
            o.count = status == QN_OK || status == QN_FINDING ? n : 0;
            if (!o.count) snprintf(o.words, sizeof(o.words), "%s", error.message);
            qn_call_free(call);
            qn_module_free(module);
        }
        text_free(&words);
    }
    arena_free(memory);
    return o;
}

static bool same_value(double x, double y)
{
    return x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= 1e-6 * fabs(y);
}

TEST(agree)
{
    int wrong = 0, refused = 0;
    for (int i = 0; i < COUNT(expressions); i++) {
        outcome t = as_tensor(expressions[i]), k = as_kernel(expressions[i]);
        bool good = !strcmp(t.code, k.code) && t.elem == k.elem && (k.code[0] || k.count);
        for (int64_t n = 0; n < LENGTH && good && !k.code[0]; n++) /* one number stands for all */
            good = t.count > 0 && same_value(t.values[t.count == 1 ? 0 : n], k.values[n]);
        refused += k.code[0] != 0;
        if (good) continue;
        wrong++;
        printf("%s:\n", expressions[i]);
        for (int f = 0; f < 2; f++) {
            const outcome *o = f ? &k : &t;
            printf("    %s: %s %s", f ? "kernel" : "tensor", o->elem < DT_COUNT ? dtypes[o->elem].text : "no type",
                   o->code);
            for (int64_t n = 0; n < o->count && n < LENGTH; n++) printf(" %.9g", o->values[n]);
            printf(" %s\n", o->words);
        }
    }
    printf("note: %d expressions in both, %d of them refused\n", COUNT(expressions), refused);
    EXPECT(!wrong);
    EXPECT(refused > 50);
}

TEST(types_of_tensors)
{
    for (int i = 0; i < COUNT(tensors); i++) {
        outcome o = as_tensor(tensors[i].expression);
        if (o.elem == tensors[i].type) continue;
        printf("%s: %s %s %s, not %s\n", tensors[i].expression, o.elem < DT_COUNT ? dtypes[o.elem].text : "no type",
               o.code, o.words, dtypes[tensors[i].type].text);
        test_fail(__FILE__, __LINE__, "the type of a tensor");
    }
    EXPECT(!strcmp(as_tensor("u + 300").code, "E103"));
    EXPECT(!strcmp(as_tensor("u + -1").code, "E103"));
    EXPECT(!strcmp(as_tensor("i + 3000000000").code, "E103"));
}

/* A literal 1 among the extents of a parameter broadcasts, whoever calls; an extent that is 1 by chance does not. */
TEST(units_of_parameters)
{
    static const struct {
        const char *words, *code;
    } cases[] = {
        {"tensor f(float x[n][m], float b[n][1]) { return x + b; }", ""},
        {"tensor g(float x[n][m], float b[n][1]) { return x + b; } tensor f(float x[n][m], float b[n]) { return g(x, "
         "b[:][]); }",
         ""},
        {"tensor g(float x[n][m], float b[n][k]) { return x + b; } tensor f(float x[n][m], float b[n]) { return g(x, "
         "b[:][]); }",
         "E302"},
        {"tensor f(float x[n][m], float b[n]) { return x + reshape(b, n, 1); }", ""},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        outcome o = {0};
        traced *t = traced_open("units.qn", cases[i].words);
        EXPECT(traced_bind(t, "f"));
        traced_run(t, false);
        note_error(&o, &t->d);
        if (strcmp(o.code, cases[i].code) != 0) printf("%s\n", cases[i].words);
        EXPECT_TEXT(o.code, cases[i].code);
        traced_close(t);
    }
}

/* An unsigned number's negative is not the same number's negative: its size is itself. */
TEST(sizes_of_unsigned_negatives)
{
    static const char words[] = "tensor f(u8 x[n]) { return abs(-x); }\n"
                                "kernel k(in u32 x[n], out u32 y[n], const int B = 16) launch (cdiv(n, B)) { int i = "
                                "program(0) * B; y[i : B] = "
                                "abs(-x[i : B]); }\n";
    static const char *const devices[] = {"ref", "cpu"};
    qn_error error;
    qn_module *module;
    EXPECT(qn_module_load_text(context, "sizes.qn", words, &module, &error) == QN_OK);
    for (int i = 0; i < COUNT(devices); i++) {
        uint8_t small[3] = {6, 0, 200}, small_out[3] = {0};
        uint32_t x[3] = {6, 0, 4000000000u}, y[3] = {0};
        int64_t n = 3;
        qn_device_info about;
        qn_call *call;
        if (qn_device_find(context, devices[i], &about, &error) || !about.available) continue;
        EXPECT(qn_call_new(module, "f", &call, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "x", small, QN_U8, 1, &n, NULL, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "result0", small_out, QN_U8, 1, &n, NULL, &error) == QN_OK);
        EXPECT(qn_call_run(call, devices[i], &error) == QN_OK);
        EXPECT(small_out[0] == 250 && small_out[1] == 0 && small_out[2] == 56);
        qn_call_free(call);
        EXPECT(qn_call_new(module, "k", &call, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "x", x, QN_U32, 1, &n, NULL, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "y", y, QN_U32, 1, &n, NULL, &error) == QN_OK);
        EXPECT(qn_call_run(call, devices[i], &error) == QN_OK);
        EXPECT(y[0] == 4294967290u && y[1] == 0 && y[2] == 294967296u);
        qn_call_free(call);
    }
    qn_module_free(module);
}

TEST(open_context)
{
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
}

TEST(close_context)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(open_context), CASE(agree), CASE(types_of_tensors), CASE(units_of_parameters),
          CASE(sizes_of_unsigned_negatives), CASE(close_context))
