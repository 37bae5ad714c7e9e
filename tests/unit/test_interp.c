/*
 * The reference interpreter, op by op: corner cases of every element type, control flow, memory, the head region.
 * Kernels are written as tile IR text. Findings have their own test (test_findings.c).
 * SPDX-License-Identifier: MIT
 */
#include "interp_text.h"

/* One op on scalars in memory: y[0] = op(a, b, c). */
static number apply(const char *op, dtype from, dtype to, int count, const number *given, bool exact)
{
    arena *memory = arena_new();
    char words[2000];
    int used = snprintf(words, sizeof(words), "kernel t file \"t.qn\"\n");
    for (int i = 0; i < count; i++)
        used += snprintf(words + used, sizeof(words) - (size_t)used, "  param x%d in %s [1]\n", i, dtypes[from].text);
    used += snprintf(words + used, sizeof(words) - (size_t)used,
                     "  param y out %s [1]\nhead {\n  %%1 = const 1 : i64\n", dtypes[to].text);
    used = (int)strlen(words);
    for (char *c = words; (c = strstr(c, "[1]")); c++) c[1] = '_';
    for (int i = 0; i <= count; i++)
        used += snprintf(words + used, sizeof(words) - (size_t)used, "  extent %s%c \"1\" %%1 axis 0\n",
                         i == count ? "y" : "x", i == count ? ' ' : '0' + i);
    used += snprintf(words + used, sizeof(words) - (size_t)used, "  launch 0 %%1\n}\nphase {\n  %%2 = const 0 : i64\n");
    for (int i = 0; i < count; i++)
        used += snprintf(words + used, sizeof(words) - (size_t)used, "  %%%d = load x%d[%%2] : %s\n", 3 + i, i,
                         dtypes[from].text);
    used += snprintf(words + used, sizeof(words) - (size_t)used, "  %%9 = %s %%3%s%s : %s\n  store y[%%2] = %%9\n}\n",
                     op, count > 1 ? ", %4" : "", count > 2 ? ", %5" : "", dtypes[to].text);
    tile_kernel *k = parse(memory, words);
    number result = {0, 0};
    if (k) {
        uint64_t bytes[4] = {0, 0, 0, 0};
        array_view arrays[4];
        for (int i = 0; i < count; i++) {
            element_write(from, &bytes[i], given[i]);
            arrays[i] = view(&bytes[i], from, 1, 1, 0);
        }
        arrays[count] = view(&bytes[3], to, 1, 1, 0);
        findings found = {0};
        EXPECT(launch(k, arrays, exact, &found, NULL) == QN_OK);
        findings_free(&found);
        result = element_read(to, &bytes[3]);
    }
    arena_free(memory);
    return result;
}

static double real(const char *op, dtype t, double x)
{
    return apply(op, t, t, 1, &(number){.f = x}, false).f;
}

static double real2(const char *op, dtype t, double x, double y)
{
    number n[2] = {{.f = x}, {.f = y}};
    return apply(op, t, t, 2, n, false).f;
}

static int64_t whole(const char *op, dtype t, int64_t x)
{
    return apply(op, t, t, 1, &(number){.i = x}, false).i;
}

static int64_t whole2(const char *op, dtype t, int64_t x, int64_t y)
{
    number n[2] = {{.i = x}, {.i = y}};
    return apply(op, t, t, 2, n, false).i;
}

TEST(integers_wrap_at_their_width)
{
    static const dtype types[] = {DT_I8, DT_I16, DT_I32, DT_I64, DT_U8, DT_U16, DT_U32, DT_U64};
    for (int i = 0; i < COUNT(types); i++) {
        dtype t = types[i];
        int bits = dtypes[t].size_bytes * 8;
        bool is_signed = dtype_is_signed(t);
        int64_t high = is_signed ? (int64_t)(~(uint64_t)0 >> (65 - bits)) : (int64_t)(~(uint64_t)0 >> (64 - bits));
        int64_t low = is_signed ? -high - 1 : 0;
        EXPECT(whole2("add", t, high, 1) == low);
        EXPECT(whole2("sub", t, low, 1) == high);
        EXPECT(whole2("mul", t, high, 2) == integer_wrap(t, (int64_t)((uint64_t)high * 2)));
        EXPECT(whole("neg", t, low) == integer_wrap(t, (int64_t) - (uint64_t)low));
        EXPECT(whole("not", t, 0) == (is_signed ? -1 : high));
        EXPECT(whole2("div", t, high, 0) == 0);
        EXPECT(whole2("mod", t, high, 0) == 0);
        EXPECT(whole2("div", t, 7, 2) == 3);
        EXPECT(whole2("mod", t, 7, 3) == 1);
        EXPECT(whole2("shl", t, 1, bits) == 1); /* the count counts modulo the width */
        EXPECT(whole2("shl", t, 1, bits - 1) ==
               (is_signed ? low : integer_wrap(t, (int64_t)((uint64_t)1 << (bits - 1)))));
        EXPECT(whole2("shr", t, high, bits - 2) == (is_signed ? 1 : 3));
        EXPECT(whole2("max", t, low, high) == high);
        EXPECT(whole2("min", t, low, high) == low);
        EXPECT(whole2("and", t, 12, 10) == 8);
        EXPECT(whole2("or", t, 12, 10) == 14);
        EXPECT(whole2("xor", t, 12, 10) == 6);
        EXPECT(whole("abs", t, 5) == 5);
        EXPECT(whole("sign", t, high) == 1);
        EXPECT(whole("sign", t, 0) == 0);
        number pair[2] = {{.i = low}, {.i = high}};
        EXPECT(apply("lt", t, DT_BOOL, 2, pair, false).i == 1);
        EXPECT(apply("ge", t, DT_BOOL, 2, pair, false).i == 0);
        EXPECT(apply("eq", t, DT_BOOL, 2, pair, false).i == 0);
        EXPECT(apply("ne", t, DT_BOOL, 2, pair, false).i == 1);
        if (!is_signed) continue;
        EXPECT(whole2("div", t, -7, 2) == -4);
        EXPECT(whole2("mod", t, -7, 3) == 2);
        EXPECT(whole2("mod", t, 7, -3) == -2);
        EXPECT(whole2("div", t, low, -1) == low);
        EXPECT(whole2("mod", t, low, -1) == 0);
        EXPECT(whole2("shr", t, -8, 1) == -4);
        EXPECT(whole("abs", t, low) == low);
        EXPECT(whole("sign", t, -9) == -1);
    }
    EXPECT(whole2("div", DT_U64, -1, 3) == (int64_t)(UINT64_MAX / 3));
    EXPECT(whole2("shr", DT_U64, -1, 63) == 1);
}

TEST(floats_round_after_each_op)
{
    EXPECT(real2("add", DT_F32, 16777216, 1) == 16777216);
    EXPECT(real2("add", DT_F64, 16777216, 1) == 16777217);
    EXPECT(real2("add", DT_F16, 2048, 1) == 2048);
    EXPECT(real2("add", DT_BF16, 256, 1) == 256);
    EXPECT(real2("mul", DT_F16, 300, 300) == INFINITY);
    EXPECT(real2("div", DT_F32, 1, 3) == (double)(1.0f / 3.0f));
    EXPECT(real2("mod", DT_F32, -7, 3) == 2);
    EXPECT(real2("mod", DT_F32, 7, -3) == -2);
    EXPECT(isnan(real2("max", DT_F32, NAN, 1)));
    EXPECT(isnan(real2("max", DT_F32, 1, NAN)));
    EXPECT(isnan(real2("min", DT_F32, NAN, 1)));
    EXPECT(real2("pow", DT_F32, 2, 10) == 1024);
    EXPECT(real("round", DT_F32, 2.5) == 2);
    EXPECT(real("round", DT_F32, 3.5) == 4);
    EXPECT(real("floor", DT_F32, -0.5) == -1);
    EXPECT(real("ceil", DT_F32, -0.5) == 0);
    EXPECT(isnan(real("sign", DT_F32, NAN)));
    EXPECT(real("sign", DT_F64, -3) == -1);
    EXPECT(isnan(real("relu", DT_F32, NAN)));
    EXPECT(real("relu", DT_F32, -2) == 0);
    EXPECT(real("rsqrt", DT_F32, 4) == 0.5);
    EXPECT(real("exp", DT_F32, 1) == (double)(float)exp(1));
    EXPECT(real("exp", DT_F64, 1) == exp(1));
    EXPECT(real("sigmoid", DT_F32, -1000) == 0);
    EXPECT(real("sigmoid", DT_F32, 1000) == 1);
    EXPECT(real("softplus", DT_F32, 1000) == 1000);
    EXPECT_NEAR(real("softplus", DT_F64, -40), exp(-40), 1e-30);
    EXPECT_NEAR(real("gelu_tanh", DT_F64, 1), 0.8411919906082768, 1e-15);
    EXPECT_NEAR(real("gelu", DT_F64, 1), 0.8413447460685429, 1e-15);
    EXPECT(real("gelu", DT_F64, -10) < 0); /* the tail is not lost */
    EXPECT_NEAR(real("silu", DT_F64, 1), 0.7310585786300049, 1e-15);
    EXPECT(real("tf32", DT_F32, 1 + 0x1p-11) == 1); /* a tie goes to even */
    EXPECT(real("tf32", DT_F32, 1 + 0x1p-10 + 0x1p-11) == 1 + 0x1p-9);
    EXPECT(real("tf32", DT_F32, INFINITY) == INFINITY);
    number three[3] = {{.f = 1 + 0x1p-12}, {.f = 1 - 0x1p-12}, {.f = -1}};
    EXPECT(apply("fma", DT_F32, DT_F32, 3, three, false).f == -0x1p-24); /* the product is not rounded */
    EXPECT(apply("isnan", DT_F32, DT_BOOL, 1, &(number){.f = NAN}, false).i == 1);
    EXPECT(apply("isinf", DT_F32, DT_BOOL, 1, &(number){.f = -INFINITY}, false).i == 1);
    number nan_pair[2] = {{.f = NAN}, {.f = NAN}};
    EXPECT(apply("eq", DT_F32, DT_BOOL, 2, nan_pair, false).i == 0);
    EXPECT(apply("ne", DT_F32, DT_BOOL, 2, nan_pair, false).i == 1);
}

TEST(every_unary_function_agrees_with_libm)
{
    static const struct {
        const char *op;
        double (*f)(double);
    } functions[] = {{"sqrt", sqrt}, {"exp", exp},     {"exp2", exp2},   {"expm1", expm1}, {"log", log},
                     {"log2", log2}, {"log1p", log1p}, {"sin", sin},     {"cos", cos},     {"tanh", tanh},
                     {"erf", erf},   {"abs", fabs},    {"floor", floor}, {"ceil", ceil},   {"round", nearbyint}};
    static const dtype types[] = {DT_F32, DT_F64, DT_F16, DT_BF16};
    for (int i = 0; i < COUNT(functions); i++)
        for (int t = 0; t < COUNT(types); t++)
            for (double x = 0.25; x < 4; x += 1.25)
                EXPECT(real(functions[i].op, types[t], x) == round_to_dtype(types[t], functions[i].f(x)));
}

TEST(converts)
{
    static const struct {
        dtype from, to;
        double f;
        int64_t i;
        double expect_f;
        int64_t expect_i;
    } cases[] = {
        {DT_F32, DT_I32, 2.9, 0, 0, 2},
        {DT_F32, DT_I32, -2.9, 0, 0, -2},
        {DT_F32, DT_I32, 1e20, 0, 0, INT32_MAX},
        {DT_F32, DT_I32, -1e20, 0, 0, INT32_MIN},
        {DT_F32, DT_I32, NAN, 0, 0, 0},
        {DT_F32, DT_I8, 200, 0, 0, 127},
        {DT_F32, DT_U8, 300, 0, 0, 255},
        {DT_F32, DT_U8, -3, 0, 0, 0},
        {DT_F64, DT_U64, 1.8e19, 0, 0, (int64_t)18000000000000000000u},
        {DT_F64, DT_U64, 1e30, 0, 0, -1},
        {DT_F64, DT_I64, 1e30, 0, 0, INT64_MAX},
        {DT_F64, DT_I64, -INFINITY, 0, 0, INT64_MIN},
        {DT_F32, DT_BOOL, 0.5, 0, 0, 1},
        {DT_F32, DT_BOOL, NAN, 0, 0, 1},
        {DT_F32, DT_BOOL, 0, 0, 0, 0},
        {DT_F64, DT_F32, 0.1, 0, 0.1f, 0},
        {DT_F64, DT_F16, 1e6, 0, INFINITY, 0},
        {DT_F32, DT_BF16, 1.00390625, 0, 1, 0},
        {DT_I64, DT_F32, 0, 16777217, 16777216, 0},
        {DT_I64, DT_F32, 0, 0x20000020000001, 0x1.000002p53, 0}, /* through double it would round to even */
        {DT_U64, DT_F64, 0, -1, 18446744073709551616.0, 0},
        {DT_BOOL, DT_F32, 0, 1, 1, 0},
        {DT_I32, DT_I8, 0, 300, 0, 44},
        {DT_I32, DT_U32, 0, -1, 0, 4294967295},
        {DT_I64, DT_BOOL, 0, 256, 0, 1},
        {DT_U32, DT_I64, 0, 4294967295, 0, 4294967295},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        number in = {.i = cases[i].i, .f = cases[i].f};
        number out = apply("convert", cases[i].from, cases[i].to, 1, &in, false);
        if (dtype_is_float(cases[i].to))
            EXPECT_NEAR(out.f, cases[i].expect_f, 0);
        else
            EXPECT(out.i == cases[i].expect_i);
    }
    EXPECT(apply("bitcast", DT_F32, DT_I32, 1, &(number){.f = 1}, false).i == 0x3f800000);
    EXPECT(apply("bitcast", DT_U16, DT_BF16, 1, &(number){.i = 0x3f80}, false).f == 1);
    EXPECT(apply("bitcast", DT_I64, DT_F64, 1, &(number){.i = 0x3ff0000000000000}, false).f == 1);
    EXPECT(apply("bitcast", DT_F16, DT_U16, 1, &(number){.f = -2}, false).i == 0xc000);
}

TEST(exact_keeps_double_precision_between_ops)
{
    number n[2] = {{.f = 1}, {.f = 3}};
    EXPECT(apply("div", DT_F32, DT_F32, 2, n, true).f == (double)(1.0f / 3.0f)); /* rounded at the store alone */
}

TEST(philox_known_answers)
{
    uint32_t out[4];
    philox_words(0, 0, 0, out);
    EXPECT(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c && out[3] == 0x9b00dbd8);
    philox_words(UINT64_MAX, UINT64_MAX, UINT64_MAX, out);
    EXPECT(out[0] == 0x408f276d && out[1] == 0x41c83b0e && out[2] == 0xa20bc7c6 && out[3] == 0x6d5451fd);
    philox_words(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, out);
    EXPECT(out[0] == 0xd16cfe09 && out[1] == 0x94fdcceb && out[2] == 0x5001e420 && out[3] == 0x24126ea1);
}

TEST(philox_gives_the_normals_of_the_sources)
{
    static const double x[] = {-0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797, -0.6229, -0.3284};
    static const double bias[] = {0.1808, -0.5523, 0.9238, -0.7350, 1.3800, 0.8676, 0.1297, -0.9406, 0.8109, 0.8821};
    for (int call = 0; call < 2; call++) {
        const double *expected = call ? bias : x;
        for (int i = 0; i < (call ? COUNT(bias) : COUNT(x)); i++) {
            uint32_t o[4];
            philox_words(0, (uint64_t)call, (uint64_t)i, o);
            double u = o[0] * 0x1p-32 + 0x1p-33, v = (o[1] * 0x1p-32 + 0x1p-33) * 2 * 3.14159265358979323846;
            EXPECT_NEAR(sqrt(-2 * log(u)) * sin(v), expected[i], 6e-5);
        }
    }
}

TEST(reductions)
{
    static const char *const words =
        "kernel t file \"t.qn\"\n  param x in f32 [n, m]\n  param rows out f32 [n]\n"
        "  param columns out f32 [m]\n  param all out f32 []\n  param at out i64 [n]\n"
        "  param n extent i64\n  param m extent i64\n" HEAD_N "  %10 = load x[%2:%3 @0, %2:%3 @1] : f32[3, 4]\n"
        "  %11 = reduce sum %10 axes (1) : f32[3, 1]\n"
        "  %12 = reshape %11 : f32[3]\n"
        "  store rows[%2:%3 @0] = %12\n"
        "  %13 = reduce max %10 axes (0) : f32[1, 4]\n"
        "  %14 = reshape %13 : f32[4]\n"
        "  store columns[%2:%3 @0] = %14\n"
        "  %15 = reduce prod %10 axes (0, 1) : f32\n"
        "  store all[] = %15\n"
        "  %16 = reduce argmax %10 axes (1) : i64[3, 1]\n"
        "  %17 = reshape %16 : i64[3]\n"
        "  store at[%2:%3 @0] = %17\n}\n";
    arena *memory = arena_new();
    tile_kernel *k = parse(memory, words);
    float x[12] = {1, 2, 2, 1, -1, 0.5f, 3, 4, 1, NAN, 8, NAN}, rows[3], columns[4], all;
    int64_t at[3];
    array_view arrays[] = {view(x, DT_F32, 2, 3, 4),
                           view(rows, DT_F32, 1, 3, 0),
                           view(columns, DT_F32, 1, 4, 0),
                           view(&all, DT_F32, 0, 0, 0),
                           view(at, DT_I64, 1, 3, 0),
                           {0},
                           {0}};
    findings found = {0};
    EXPECT(k && launch(k, arrays, false, &found, NULL) == QN_OK);
    EXPECT(rows[0] == 6 && rows[1] == 6.5f && isnan(rows[2]));
    EXPECT(columns[0] == 1 && isnan(columns[1]) && columns[2] == 8 && isnan(columns[3]));
    EXPECT(isnan(all));
    EXPECT(at[0] == 1 && at[1] == 3 && at[2] == 1); /* the lowest position; NaN is the extreme */
    EXPECT(found.count == 0);                       /* the NaN came with the input */
    findings_free(&found);
    arena_free(memory);
}

TEST(reductions_of_nothing_give_the_identity)
{
    static const struct {
        const char *fold;
        dtype elem, result;
        number expected;
    } cases[] = {
        {"sum", DT_F32, DT_F32, {.f = 0}},         {"prod", DT_F32, DT_F32, {.f = 1}},
        {"max", DT_F32, DT_F32, {.f = -INFINITY}}, {"min", DT_F32, DT_F32, {.f = INFINITY}},
        {"sum", DT_I64, DT_I64, {.i = 0}},         {"prod", DT_U64, DT_U64, {.i = 1}},
        {"max", DT_I32, DT_I32, {.i = INT32_MIN}}, {"min", DT_I32, DT_I32, {.i = INT32_MAX}},
        {"max", DT_U8, DT_U8, {.i = 0}},           {"min", DT_U8, DT_U8, {.i = 255}},
        {"min", DT_U64, DT_U64, {.i = -1}},        {"max", DT_I64, DT_I64, {.i = INT64_MIN}},
        {"any", DT_BOOL, DT_BOOL, {.i = 0}},       {"all", DT_BOOL, DT_BOOL, {.i = 1}},
        {"argmax", DT_F32, DT_I64, {.i = -1}},     {"argmin", DT_I16, DT_I64, {.i = -1}},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        arena *memory = arena_new();
        char words[1000];
        snprintf(words, sizeof(words),
                 "kernel t file \"t.qn\"\n  param x in %s [n]\n  param y out %s []\n  param n extent i64\n%s"
                 "  %%5 = load x[%%2:%%3 @0] : %s[%%4]\n  %%6 = reduce %s %%5 axes (0) : %s\n  store y[] = %%6\n}\n",
                 dtypes[cases[i].elem].text, dtypes[cases[i].result].text, HEAD_N, dtypes[cases[i].elem].text,
                 cases[i].fold, dtypes[cases[i].result].text);
        tile_kernel *k = parse(memory, words);
        uint64_t x = 0, y = 0;
        array_view arrays[] = {view(&x, cases[i].elem, 1, 0, 0), view(&y, cases[i].result, 0, 0, 0), {0}};
        findings found = {0};
        EXPECT(k && launch(k, arrays, false, &found, NULL) == QN_OK);
        number out = element_read(cases[i].result, &y);
        EXPECT(out.i == cases[i].expected.i && out.f == cases[i].expected.f);
        findings_free(&found);
        arena_free(memory);
    }
}

TEST(scans_and_dots)
{
    static const char *const words = "kernel t file \"t.qn\"\n  param a in f32 [n, m]\n  param c out f32 [n, n]\n"
                                     "  param s out f32 [n, m]\n  param n extent i64\n  param m extent i64\n" HEAD_N
                                     "  %10 = load a[%2:%3 @0, %2:%3 @1] : f32[2, 3]\n"
                                     "  %11 = permute %10 order (1, 0) : f32[3, 2]\n"
                                     "  %12 = const 10 : f32\n"
                                     "  %13 = broadcast %12 : f32[2, 2]\n"
                                     "  %14 = dot %10, %11, %13 : f32[2, 2]\n"
                                     "  store c[%2:%3 @0, %2:%3 @1] = %14\n"
                                     "  %15 = scan sum %10 axis 0 : f32[2, 3]\n"
                                     "  %16 = scan max %15 axis 1 : f32[2, 3]\n"
                                     "  store s[%2:%3 @0, %2:%3 @1] = %16\n}\n";
    arena *memory = arena_new();
    tile_kernel *k = parse(memory, words);
    float a[6] = {1, 2, 3, 4, -5, 6}, c[4], s[6];
    array_view arrays[] = {view(a, DT_F32, 2, 2, 3), view(c, DT_F32, 2, 2, 2), view(s, DT_F32, 2, 2, 3), {0}, {0}};
    findings found = {0};
    EXPECT(k && launch(k, arrays, false, &found, NULL) == QN_OK);
    EXPECT(c[0] == 24 && c[1] == 22 && c[2] == 22 && c[3] == 87);
    EXPECT(s[0] == 1 && s[1] == 2 && s[2] == 3 && s[3] == 5 && s[4] == 5 && s[5] == 9);
    EXPECT(found.count == 0);
    findings_free(&found);
    arena_free(memory);
}

TEST(small_integers_dot_to_i32)
{
    static const char *const words =
        "kernel t file \"t.qn\"\n  param a in u8 [n, m]\n  param c out i32 [n, n]\n"
        "  param n extent i64\n  param m extent i64\n" HEAD_N "  %10 = load a[%2:%3 @0, %2:%3 @1] : u8[1, 3]\n"
        "  %11 = permute %10 order (1, 0) : u8[3, 1]\n"
        "  %14 = dot %10, %11 : i32[1, 1]\n"
        "  store c[%2:%3 @0, %2:%3 @1] = %14\n}\n";
    arena *memory = arena_new();
    tile_kernel *k = parse(memory, words);
    uint8_t a[3] = {255, 255, 255};
    int32_t c[1];
    array_view arrays[] = {view(a, DT_U8, 2, 1, 3), view(c, DT_I32, 2, 1, 1), {0}, {0}};
    EXPECT(k && launch(k, arrays, false, NULL, NULL) == QN_OK);
    EXPECT(c[0] == 3 * 65025);
    arena_free(memory);
}

TEST_MAIN(CASE(integers_wrap_at_their_width), CASE(floats_round_after_each_op),
          CASE(every_unary_function_agrees_with_libm), CASE(converts), CASE(exact_keeps_double_precision_between_ops),
          CASE(philox_known_answers), CASE(philox_gives_the_normals_of_the_sources), CASE(reductions),
          CASE(reductions_of_nothing_give_the_identity), CASE(scans_and_dots), CASE(small_integers_dot_to_i32))
