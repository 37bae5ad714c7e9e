/*
 * Golden IR: every kernel of tests/text/lower/NAME.qn is lowered with its defaults (generic types are float) and must
 * print as NAME.expected. QUERN_BLESS=1 writes the files instead, for a person to read before committing them.
 * Then instances: types and constants from what a caller gives, and the faults of that, by their texts.
 * SPDX-License-Identifier: MIT
 */
#include "lang/ast.h"
#include "test.h"

#include <stdlib.h>

#define FOLDER QUERN_ROOT "/tests/text/lower/"

typedef struct source {
    arena *memory;
    ast_file *file;
    diagnostics d;
} source;

static source source_of(const char *name, const char *words)
{
    source s = {.memory = arena_new()};
    s.d.memory = s.memory;
    s.file = lang_parse(s.memory, name, words, strlen(words), &s.d);
    lang_check(s.file, &s.d);
    return s;
}

static void golden(const char *name)
{
    char path[512], expected_path[512], *words = NULL, *expected = NULL;
    size_t length = 0;
    qn_error error = {0};
    snprintf(path, sizeof(path), FOLDER "%s.qn", name);
    snprintf(expected_path, sizeof(expected_path), FOLDER "%s.expected", name);
    if (file_read(path, 1 << 20, &words, &length, &error) != QN_OK) {
        test_fail(path, 1, error.message);
        return;
    }
    source s = source_of(name, words);
    text out = {0};
    for (int i = 0; i < s.file->items.count; i++) {
        const ast *kernel = s.file->items.items[i];
        if (kernel->kind != AST_KERNEL && kernel->kind != AST_RAW) continue;
        bindings constants = {0}, extents = {0};
        lang_given given = {.units = 2};
        tile_kernel *k = NULL;
        if (lang_instantiate(s.file, kernel, &given, &s.d, s.memory, &constants, &extents) &&
            lang_lower(s.file, kernel, &constants, s.memory, &s.d, &k))
            tile_print(k, &out);
    }
    diagnostics_print(&s.d, s.file, false, &out);
    if (environment_get("QUERN_BLESS")) {
        EXPECT(file_write(expected_path, text_get(&out), out.length, &error) == QN_OK);
    } else if (file_read(expected_path, 1 << 20, &expected, &length, &error) != QN_OK) {
        test_fail(path, 1, error.message);
    } else {
        test_text(text_get(&out), expected, path, 1);
    }
    text_free(&out);
    free(words);
    free(expected);
    arena_free(s.memory);
}

TEST(golden_ir)
{
    static const char *const names[] = {"pointwise", "bounds", "dot", "jumps", "elements", "gather", "head", "raw"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) golden(names[i]);
}

/* What the caller gave, as a list. */
static const char *instance_of(const char *words, lang_given *given, text *out)
{
    source s = source_of("file.qn", words);
    bindings constants = {0}, extents = {0};
    const ast *kernel = s.file->items.count ? s.file->items.items[s.file->items.count - 1] : NULL;
    text_clear(out);
    if (s.d.errors)
        text_add(out, "does not check");
    else if (lang_instantiate(s.file, kernel, given, &s.d, s.memory, &constants, &extents)) {
        for (int pass = 0; pass < 2; pass++) {
            const bindings *list = pass ? &extents : &constants;
            for (int i = 0; i < list->count; i++) {
                const binding *b = &list->items[i];
                text_print(out, "%s%s=", out->length ? " " : "", b->name);
                if (b->kind == BIND_TYPE)
                    text_add(out, dtypes[b->type].text);
                else if (b->kind == BIND_FUNCTION)
                    text_add(out, b->function);
                else if (b->kind == BIND_FLOAT)
                    text_add_double(out, b->number.f);
                else
                    text_print(out, "%lld", (long long)b->number.i);
            }
        }
    } else {
        for (int i = 0; i < s.d.count; i++)
            if (!error_code_is_warning(s.d.items[i].code))
                text_print(out, "%s%s: %s", out->length ? "; " : "", error_code_text(s.d.items[i].code),
                           s.d.items[i].message);
    }
    arena_free(s.memory);
    return text_get(out);
}

static const char matmul[] =
    "float leaky(float x) { return x > 0 ? x : 0.1 * x; }\n"
    "kernel matmul(in T a[M][K], in T b[K][R], out T c[M][R], const int R, const float act(float) = leaky, const int "
    "BM = 2 * BK, const int BK = 8, int s = 3)\n"
    "    launch (M) tune (BM in {16, 32}) types (T in {float, bf16, i32})\n"
    "{ c[program(0)][:] = act(float(sum(a[program(0)][:][] * b[:][:], axis = 0)) * BM * s)[0][:]; }\n";

static given_array array_of(const char *name, dtype elem, int64_t a, int64_t b)
{
    return (given_array){.name = name, .elem = elem, .rank = 2, .extents = {a, b}, .has_extents = true};
}

TEST(instances)
{
    text out = {0};
    arena *memory = arena_new();
    given_array arrays[2] = {array_of("a", DT_BF16, 5, 6), array_of("b", DT_BF16, 6, 7)};
    lang_given given = {.arrays = arrays, .array_count = 2, .units = 4};
    EXPECT_TEXT(instance_of(matmul, &given, &out), "T=bf16 R=7 act=leaky BK=8 BM=16 M=5 K=6");
    bindings_set(memory, &given.settings,
                 (binding){.name = "BK", .kind = BIND_INT, .type = DT_I64, .number = {.i = 4}, .untyped = true});
    bindings_set(memory, &given.settings, (binding){.name = "act", .kind = BIND_FUNCTION, .function = "relu"});
    EXPECT_TEXT(instance_of(matmul, &given, &out), "T=bf16 BK=4 act=relu R=7 BM=8 M=5 K=6");
    given.array_count = 0;
    EXPECT_TEXT(instance_of(matmul, &given, &out), "E505: the constant `R` is not given and has no default");
    bindings_set(memory, &given.settings,
                 (binding){.name = "R", .kind = BIND_INT, .type = DT_I64, .number = {.i = 9}, .untyped = true});
    EXPECT_TEXT(instance_of(matmul, &given, &out), "T=f32 BK=4 act=relu R=9 BM=8");
    bindings_set(memory, &given.settings, (binding){.name = "T", .kind = BIND_TYPE, .type = DT_I32});
    EXPECT_TEXT(instance_of(matmul, &given, &out), "T=i32 BK=4 act=relu R=9 BM=8");
    arena_free(memory);
    text_free(&out);
}

TEST(instance_faults)
{
    text out = {0};
    arena *memory = arena_new();
    given_array arrays[2] = {array_of("a", DT_F32, 5, 6), array_of("b", DT_BF16, 6, 7)};
    lang_given given = {.arrays = arrays, .array_count = 2, .units = 4};
    EXPECT_TEXT(instance_of(matmul, &given, &out), "E215: `T` is both `float` (in `a`) and `bf16` (in `b`)");
    arrays[1] = array_of("b", DT_F32, 8, 7);
    EXPECT_TEXT(instance_of(matmul, &given, &out), "E502: `K` is 6 in `a` and 8 in `b`");
    arrays[1] = array_of("b", DT_F32, 6, 7);
    arrays[1].rank = 3;
    EXPECT_TEXT(instance_of(matmul, &given, &out), "E501: array `b` has 3 axes, the parameter 2");
    arrays[0].elem = arrays[1].elem = DT_F64;
    arrays[1].rank = 2;
    EXPECT_TEXT(instance_of(matmul, &given, &out), "E215: `T` = `double` is not in `types`");
    arrays[0].elem = arrays[1].elem = DT_F32;
    bindings_set(memory, &given.settings,
                 (binding){.name = "BN", .kind = BIND_INT, .type = DT_I64, .number = {.i = 4}, .untyped = true});
    EXPECT_TEXT(instance_of(matmul, &given, &out), "E505: unknown setting `BN`");
    given.settings = (bindings){0};
    bindings_set(memory, &given.settings, (binding){.name = "act", .kind = BIND_FUNCTION, .function = "matmul"});
    EXPECT_TEXT(instance_of(matmul, &given, &out), "E505: `act` needs the name of a function");
    given.settings = (bindings){0};
    bindings_set(memory, &given.settings,
                 (binding){.name = "BM", .kind = BIND_FLOAT, .type = DT_F64, .number = {.f = 1.5}, .untyped = true});
    EXPECT_TEXT(instance_of(matmul, &given, &out), "E205: `BM`: float to integer needs a cast");
    given = (lang_given){.units = 4};
    EXPECT_TEXT(instance_of("kernel k(in float x[n], out float y[n], const int B = n)  launch (B) { y[:] = x[:] + B; }",
                            &given, &out),
                "E505: the extent `n` is not given");
    EXPECT_TEXT(
        instance_of(
            "kernel k(in float x[n], out float y[n], const int B = 2 * units())  launch (B) { y[:] = x[:] + B; }",
            &given, &out),
        "B=8");
    arena_free(memory);
    text_free(&out);
}

static const char *value_of(const char *expression, text *out)
{
    char words[512];
    snprintf(words, sizeof(words),
             "const int N = 3 * M; const int M = 4; const float THIRD = 1.0 / 3; const double D = %s;", expression);
    source s = source_of("file.qn", words);
    binding b;
    const char *unbound = NULL;
    bindings known = {0};
    bindings_set(s.memory, &known, (binding){.name = "k", .kind = BIND_INT, .type = DT_I32, .number = {.i = 7}});
    text_clear(out);
    const ast *item = s.file->items.count == 4 ? s.file->items.items[3] : NULL;
    int errors = s.d.errors;
    if (!item || !lang_evaluate(s.file, item->left, &known, 6, &s.d, &b, &unbound)) {
        if (unbound)
            text_print(out, "unbound %s", unbound);
        else
            text_print(out, "%s", s.d.errors > errors ? error_code_text(s.d.items[s.d.count - 1].code) : "?");
    } else {
        if (!b.untyped) text_print(out, "%s ", dtypes[b.type].text);
        if (b.kind == BIND_FLOAT)
            text_add_double(out, b.number.f);
        else
            text_print(out, "%lld", (long long)b.number.i);
    }
    arena_free(s.memory);
    return text_get(out);
}

TEST(constants)
{
    static const char *const cases[][2] = {
        {"1 + 2 * 3", "7"},
        {"-7 / 2", "-4"},
        {"-7 % 3", "2"},
        {"7 % -3", "-2"},
        {"1 / 3", "0"},
        {"1.0 / 3", "0.3333333333333333"},
        {"1 << 4 | 1", "17"},
        {"-16 >> 2", "-4"},
        {"cdiv(10, 4)", "3"},
        {"min(3, 2.5)", "2.5"},
        {"max(1, 2)", "2"},
        {"abs(-5)", "5"},
        {"3 < 4 ? 10 : 1 / 0", "10"},
        {"N", "i64 12"},
        {"N / 5", "i64 2"},
        {"THIRD", "f32 0.3333333432674408"},
        {"k * 2", "i32 14"},
        {"k * 0.5", "f32 3.5"},
        {"k + N", "i64 19"},
        {"units() + 1", "i64 7"},
        {"float(k) / 2", "f32 3.5"},
        {"i8(300)", "i8 44"},
        {"u8(-1.5)", "u8 0"},
        {"sqrt(16)", "4"},
        {"!(k == 7)", "bool 0"},
        {"missing + 1", "unbound missing"},
        {"9223372036854775807 + 1", "E103"},
        {"1.5 << 1", "E211"},
        {"u32(1) + k", "E206"},
        {"sum(3)", "E217"},
        {"inf > 1", "bool 1"},
        {"false && missing", "bool 0"},
        {"~k", "i32 -8"},
        {"7 / 0", "E219"},
        {"k % (k - 7)", "E219"},
        {"k == 7 ? 1 : 3 / 0", "1"},
    };
    text out = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) EXPECT_TEXT(value_of(cases[i][0], &out), cases[i][1]);
    text_free(&out);
}

TEST_MAIN(CASE(golden_ir), CASE(instances), CASE(instance_faults), CASE(constants))
