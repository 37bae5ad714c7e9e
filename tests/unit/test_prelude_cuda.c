/*
 * The functions of the CUDA prelude in their C++ form, compiled by the system's C++ compiler and compared with long
 * double: special values, every exponent, dense samples. Conversions to and from the 16-bit floats are compared bit for
 * bit with ref's. Vectors of memory go out and come back. Every name is known.
 * The limits are those of docs/accuracy.md without the hardware's own part (on a GPU the op matrix sees that).
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "emit/cuda/prelude.h"
#include "ir/tile.h"
#include "references.h"
#include "test.h"

#include <dlfcn.h>
#include <float.h>
#include <stdlib.h>

/* The error may be (ulp + slope * |x|) units of the last place, or `absolute`. */
static const struct function {
    const char *name;
    real (*reference)(real);
    double ulp, slope, absolute;
    double precise_ulp; /* of the precise form; 0: there is none */
    double ulp_f64;
} functions[] = {
    {"exp", expl, 2, 1.5, 0, 2, 2},
    {"exp2", exp2l, 2, 0, 0, 2, 2},
    {"expm1", expm1l, 2, 0, 0, 2, 2},
    {"log", logl, 3, 0, 0, 2, 2},
    {"log2", log2l, 2, 0, 0, 2, 2},
    {"log1p", log1pl, 2, 0, 0, 2, 2},
    {"sin", sinl, 2, 0, 0, 2, 2},
    {"cos", cosl, 2, 0, 0, 2, 2},
    {"tanh", tanhl, 4, 0, 0, 2.5, 2.5},
    {"erf", erfl, 3, 0, 0, 2, 2},
    {"sigmoid", ref_sigmoid, 4, 1.5, 0, 2, 3},
    {"gelu", ref_gelu, 8, 0, 0x1p-22, 2, 4},
    {"silu", ref_silu, 4, 1.5, 0x1p-118, 2, 4},
    {"softplus", ref_softplus, 4, 1.5, 0, 2, 3},
    {"gelu_tanh", ref_gelu_tanh, 8, 0, 0x1p-22, 2, 4},
    {"sqrt", sqrtl, 0.5, 0, 0, 0.5, 0.5},
    {"rsqrt", ref_rsqrt, 1.5, 0, 0, 1.5, 1.5},
    {"floor", floorl, 0, 0, 0, 0, 0},
    {"ceil", ceill, 0, 0, 0, 0, 0},
    {"round", rintl, 0, 0, 0, 0, 0},
    {"abs", fabsl, 0, 0, 0, 0, 0},
    {"relu", ref_relu, 0, 0, 0, 0, 0},
    {"sign", ref_sign, 0, 0, 0, 0, 0},
};

static char folder[] = "/tmp/quern-cuda-prelude-XXXXXX";
static void *library;

typedef void any_function(void);

static any_function *symbol(const char *name)
{
    void *address = dlsym(library, name);
    any_function *function;
    memcpy(&function, &address, sizeof(function));
    EXPECT(address);
    return function;
}

typedef struct name_list {
    const char *names[4000];
    int count;
    arena *memory;
} name_list;

static void add(name_list *l, const char *name)
{
    l->names[l->count++] = name;
}

static const char shim[] = "#define QUERN_EMU\n"
                           "#define __device__\n"
                           "#define __forceinline__ inline __attribute__((unused))\n"
                           "#define __noinline__ __attribute__((noinline, unused))\n";

/* The library stays loaded without its files. */
static bool build(const char *name, const char *source)
{
    char path[128], object[128];
    snprintf(path, sizeof(path), "%s/%s.cc", folder, name);
    snprintf(object, sizeof(object), "%s/%s.so", folder, name);
    qn_error error;
    if (file_write(path, source, strlen(source), &error) != QN_OK) return false;
    const char *compiler = environment_get("CXX");
    const char *arguments[] = {compiler ? compiler : "c++", "-std=c++17", "-w",   "-O2", "-fPIC", "-shared",
                               "-ffp-contract=off",         "-o",         object, path,  NULL};
    text output = {0};
    int code = 1;
    if (process_run(arguments, &output, &code, &error) != QN_OK || code) printf("%.3000s\n", text_get(&output));
    text_free(&output);
    if (!code) library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    remove(path);
    remove(object);
    remove(folder);
    return !code && library;
}

static void build_functions(void)
{
    if (library) return;
    EXPECT(mkdtemp(folder));
    name_list list = {.memory = arena_new()};
    text source = {0}, loops = {0};
    for (int i = 0; i < COUNT(functions); i++)
        for (int t = 0; t < 4; t++) {
            if (t >= 2 && functions[i].precise_ulp == 0) continue;
            const char *name =
                arena_print(list.memory, "%s%s_%s", t >= 2 ? "precise_" : "", functions[i].name, t & 1 ? "f64" : "f32");
            add(&list, name);
            const char *c = t & 1 ? "double" : "float";
            text_print(&loops,
                       "extern \"C\" void run_%s(%s *y, const %s *x, long n) { for (long i = 0; i < n; i++) y[i] = "
                       "%s(x[i]); }\n",
                       name, c, c, name);
        }
    static const char *const two[] = {"min", "max", "mod", "pow", "div"};
    for (int i = 0; i < COUNT(two); i++) {
        add(&list, arena_print(list.memory, "%s_f32", two[i]));
        text_print(&loops, "extern \"C\" float two_%s(float x, float y) { return %s_f32(x, y); }\n", two[i], two[i]);
    }
    static const char *const more[] = {
        "f32_to_f16",       "f32_to_bf16",     "f16_to_f32",     "bf16_to_f32",      "convert_f64_f16",
        "convert_f64_bf16", "convert_i64_f16", "convert_f32_i8", "convert_f64_u64",  "convert_f32_i64",
        "div_i32",          "mod_i32",         "div_i64",        "mod_i64",          "shl_i8",
        "shr_i8",           "tf32_f32",        "philox_u32",     "bitcast_bf16_i16", "bitcast_u16_f16",
        "abs_i8",           "pack_bf16",       "f32_to_f8e4m3",  "f8e4m3_to_f32",    "convert_f64_f8e4m3"};
    for (int i = 0; i < COUNT(more); i++) add(&list, more[i]);
    text_add(
        &loops,
        "extern \"C\" unsigned short to_f16(float x) { return f32_to_f16(x); }\n"
        "extern \"C\" unsigned short to_bf16(float x) { return f32_to_bf16(x); }\n"
        "extern \"C\" unsigned char to_f8e4m3(float x) { return f32_to_f8e4m3(x); }\n"
        "extern \"C\" float from_f8e4m3(unsigned char h) { return f8e4m3_to_f32(h); }\n"
        "extern \"C\" float wide_f8e4m3(double x) { return convert_f64_f8e4m3(x); }\n"
        "extern \"C\" float from_f16(unsigned short h) { return f16_to_f32(h); }\n"
        "extern \"C\" float from_bf16(unsigned short h) { return bf16_to_f32(h); }\n"
        "extern \"C\" float wide_f16(double x) { return convert_f64_f16(x); }\n"
        "extern \"C\" float wide_bf16(double x) { return convert_f64_bf16(x); }\n"
        "extern \"C\" int narrow_i8(float x) { return convert_f32_i8(x); }\n"
        "extern \"C\" long long_of(float x) { return convert_f32_i64(x); }\n"
        "extern \"C\" int divide(int x, int y) { return div_i32(x, y); }\n"
        "extern \"C\" int modulo(int x, int y) { return mod_i32(x, y); }\n"
        "extern \"C\" int left(int x, int y) { return shl_i8((signed char)x, (signed char)y); }\n"
        "extern \"C\" int right(int x, int y) { return shr_i8((signed char)x, (signed char)y); }\n"
        "extern \"C\" unsigned random_word(unsigned long s, unsigned long o, long i, int l) { return philox_u32(s, o, "
        "i, l); }\n"
        "extern \"C\" float tensor_float(float x) { return tf32_f32(x); }\n");
    const char *unknown = NULL;
    text_add(&source, shim);
    EXPECT(prelude_cuda_emit(list.names, list.count, &source, &unknown));
    if (unknown) printf("unknown: %s\n", unknown);
    text_add(&source, text_get(&loops));
    EXPECT(build("functions", text_get(&source)));
    text_free(&source);
    text_free(&loops);
    arena_free(list.memory);
}

static uint64_t random_state = 88172645463325252u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

enum { SAMPLES = 1 << 16 };

/* Special values, every exponent of both signs, and uniform samples where the functions are interesting. */
static void fill(double *x, int least, int most, const double *widths, int width_count)
{
    static const double special[] = {0,      -0.0,  INFINITY, -INFINITY, NAN,      1,    -1,        0.5,       -0.5,
                                     2.5,    -2.5,  88.72283, 88.73,     -87.3366, -104, 0.625,     65536,     65537,
                                     1e10,   -1e30, -13.5,    3.999999,  9.01,     10,   1.5707963, 3.1415927, 1e-40,
                                     -1e-40, 128,   -126,     -149,      -150.5,   15,   -15.0001,  1e5,       3e38};
    int count = 0;
    for (int i = 0; i < COUNT(special); i++) x[count++] = special[i];
    int each = SAMPLES / 2 / (most - least);
    for (int exponent = least; exponent < most; exponent++)
        for (int i = 0; i < each; i++) {
            double size = ldexp(1 + (double)(random_bits() >> 11) * 0x1p-53, exponent);
            x[count++] = i & 1 ? size : -size;
        }
    while (count < SAMPLES) {
        double unit = (double)(random_bits() >> 11) * 0x1p-53;
        x[count] = (2 * unit - 1) * widths[count % width_count];
        count++;
    }
}

/* In units of the last place; where the result is below the least normal number, in units of that number's. */
static double error_in_ulp(double y, real reference, bool wide, bool flushes)
{
    double rounded = wide ? (double)reference : (double)(float)reference, largest = wide ? DBL_MAX : FLT_MAX;
    if (isnan(rounded) || isnan(y)) return isnan(rounded) && isnan(y) ? 0 : 1e30;
    if (isinf(rounded) || isinf(y))
        return rounded == y || (fabsl(reference) > largest && fabs(y) == largest) ? 0 : 1e30;
    if (flushes && fabsl(reference) < 0x1.01p-126L && y == 0) return 0;
    int exponent = 0;
    if (rounded != 0) frexp(rounded, &exponent);
    exponent = wide ? MAXIMUM(exponent - 53, -1074) : MAXIMUM(exponent - 24, -149);
    return (double)(fabsl((real)y - reference) / ldexpl(1, exponent));
}

static void check(const char *prefix, bool wide)
{
    static const double widths_f32[] = {1, 4, 16, 110, 3, 150}, widths_f64[] = {1, 4, 16, 760, 3, 1080};
    double *x = malloc(SAMPLES * sizeof(double)), *y = malloc(SAMPLES * sizeof(double));
    float *x32 = malloc(SAMPLES * sizeof(float)), *y32 = malloc(SAMPLES * sizeof(float));
    fill(x, wide ? -1074 : -149, wide ? 1024 : 128, wide ? widths_f64 : widths_f32, 6);
    for (int i = 0; i < SAMPLES; i++) {
        x32[i] = (float)x[i];
        if (!wide) x[i] = x32[i];
    }
    bool fast = !*prefix && !wide;
    for (int f = 0; f < COUNT(functions); f++) {
        const struct function *fn = &functions[f];
        if (*prefix && fn->precise_ulp == 0) continue;
        char name[64];
        snprintf(name, sizeof(name), "run_%s%s_%s", prefix, fn->name, wide ? "f64" : "f32");
        any_function *run = symbol(name);
        if (!run) continue;
        if (wide)
            ((void (*)(double *, const double *, long))run)(y, x, SAMPLES);
        else
            ((void (*)(float *, const float *, long))run)(y32, x32, SAMPLES);
        double worst = 0, most = 0;
        int at = 0;
        for (int i = 0; i < SAMPLES; i++) {
            if (!wide) y[i] = y32[i];
            real reference = fn->reference(x[i]);
            double limit = wide ? fn->ulp_f64 : fast ? fn->ulp + fn->slope * fabs(x[i]) : fn->precise_ulp;
            double error = error_in_ulp(y[i], reference, wide, fast);
            if (wide && fabsl(reference) < 1e-300L) continue;                /* sigmoid and erfc are subnormal there */
            if (wide && !strcmp(fn->name, "gelu")) limit += 2 * x[i] * x[i]; /* the tail has the argument's rounding */
            if (wide && !strcmp(fn->name, "gelu_tanh"))
                limit += 4 * (1.6 * fabs(x[i]) + 0.072 * fabs(x[i] * x[i] * x[i]));
            if (fast && fabsl(y[i] - reference) <= fn->absolute) continue;
            if (error > worst) worst = error;
            if (error - limit > most) most = error - limit, at = i;
        }
        if (getenv("VERBOSE")) printf("%s: at most %.2f ulp\n", name, worst);
        if (most > 0)
            printf("%s at %a (%g): %a, not %La: %.2f ulp too far\n", name, x[at], x[at], y[at], fn->reference(x[at]),
                   most);
        EXPECT(most <= 0);
    }
    free(x);
    free(y);
    free(x32);
    free(y32);
}

TEST(fast_functions)
{
    build_functions();
    check("", false);
}

TEST(precise_functions)
{
    build_functions();
    check("precise_", false);
}

TEST(double_functions)
{
    build_functions();
    check("", true);
    check("precise_", true);
}

typedef float two_floats(float, float);

TEST(two_operands)
{
    build_functions();
    two_floats *least = (two_floats *)symbol("two_min"), *most = (two_floats *)symbol("two_max");
    two_floats *modulo = (two_floats *)symbol("two_mod"), *power = (two_floats *)symbol("two_pow");
    two_floats *divide = (two_floats *)symbol("two_div");
    EXPECT(isnan(least(NAN, 1)) && isnan(least(1, NAN)) && isnan(most(NAN, 1)) && isnan(most(1, NAN)));
    EXPECT(least(1, 2) == 1 && most(1, 2) == 2 && least(-INFINITY, 0) == -INFINITY);
    EXPECT(modulo(-7, 3) == 2 && modulo(7, -3) == -2 && modulo(7.5f, 2) == 1.5f && isnan(modulo(1, 0)));
    EXPECT(power(2, 10) == 1024 && power(NAN, 0) == 1 && power(1, NAN) == 1 && power(-2, 3) == -8);
    EXPECT(isnan(power(-2, 0.5f)) && power(0, -1) == INFINITY && power(-INFINITY, 3) == -INFINITY);
    EXPECT(divide(1e-40f, 1e-40f) == 1 && divide(1, 0) == INFINITY && isnan(divide(0, 0)));
    for (int i = 0; i < 10000; i++) {
        float x = (float)(random_bits() >> 40) * 0x1p-20f, y = (float)(random_bits() >> 40) * 0x1p-21f - 4;
        double expected = pow(x, y);
        EXPECT(fabs(power(x, y) - expected) <= 1e-6 * fabs(expected));
    }
}

TEST(half_floats)
{
    build_functions();
    unsigned short (*to_f16)(float) = (unsigned short (*)(float))symbol("to_f16");
    unsigned short (*to_bf16)(float) = (unsigned short (*)(float))symbol("to_bf16");
    float (*from_f16)(unsigned short) = (float (*)(unsigned short))symbol("from_f16");
    float (*from_bf16)(unsigned short) = (float (*)(unsigned short))symbol("from_bf16");
    float (*wide_f16)(double) = (float (*)(double))symbol("wide_f16");
    float (*wide_bf16)(double) = (float (*)(double))symbol("wide_bf16");
    unsigned char (*to_f8)(float) = (unsigned char (*)(float))symbol("to_f8e4m3");
    float (*from_f8)(unsigned char) = (float (*)(unsigned char))symbol("from_f8e4m3");
    float (*wide_f8)(double) = (float (*)(double))symbol("wide_f8e4m3");
    for (int h = 0; h < 256; h++) {
        float x = from_f8((unsigned char)h);
        double want = f8e4m3_to_double((uint8_t)h);
        EXPECT(x == want ? to_f8(x) == h : isnan(x) && isnan(want));
    }
    for (int h = 0; h < 65536; h++) {
        float x = from_f16((unsigned short)h), y = from_bf16((unsigned short)h);
        double want_x = f16_to_double((uint16_t)h), want_y = bf16_to_double((uint16_t)h);
        EXPECT(x == want_x || (isnan(x) && isnan(want_x)));
        EXPECT(y == want_y || (isnan(y) && isnan(want_y)));
        if (!isnan(x)) EXPECT(to_f16(x) == h);
        if (!isnan(y)) EXPECT(to_bf16(y) == h);
    }
    for (int i = 0; i < 400000; i++) {
        uint32_t bits = (uint32_t)random_bits();
        if (i & 1) bits = (bits & 0x8fffffff) | 0x38000000u; /* the range of f16, its halves and their neighbours */
        if (i & 2) bits = (bits & ~0x1fffu) | 0x1000u | (i & 4 ? 1 : 0);
        float x;
        memcpy(&x, &bits, 4);
        if (isnan(x)) continue;
        EXPECT(to_f16(x) == f16_from_double(x));
        EXPECT(to_bf16(x) == bf16_from_double(x));
        EXPECT(to_f8(x) == f8e4m3_from_double(x));
        double wide = (double)x * (1 + ((i & 8) ? 0x1p-40 : -0x1p-40));
        EXPECT(wide_f16(wide) == f16_to_double(f16_from_double(wide)));
        double eighth = f8e4m3_to_double(f8e4m3_from_double(wide));
        EXPECT(isnan(eighth) ? isnan(wide_f8(wide)) : wide_f8(wide) == eighth);
        EXPECT(wide_bf16(wide) == bf16_to_double(bf16_from_double(wide)));
    }
}

TEST(integers)
{
    build_functions();
    int (*divide)(int, int) = (int (*)(int, int))symbol("divide");
    int (*modulo)(int, int) = (int (*)(int, int))symbol("modulo");
    int (*left)(int, int) = (int (*)(int, int))symbol("left");
    int (*right)(int, int) = (int (*)(int, int))symbol("right");
    int (*narrow)(float) = (int (*)(float))symbol("narrow_i8");
    long (*long_of)(float) = (long (*)(float))symbol("long_of");
    EXPECT(divide(-7, 2) == -4 && divide(7, -2) == -4 && divide(-7, -2) == 3 && divide(5, 0) == 0);
    EXPECT(divide(INT32_MIN, -1) == INT32_MIN && modulo(INT32_MIN, -1) == 0 && modulo(5, 0) == 0);
    EXPECT(modulo(-7, 2) == 1 && modulo(7, -2) == -1 && modulo(-6, 3) == 0);
    EXPECT(left(1, 9) == 2 && left(64, 1) == -128 && right(-128, 1) == -64 && right(-1, 8) == -1);
    EXPECT(narrow(1e9f) == 127 && narrow(-1e9f) == -128 && narrow(NAN) == 0 && narrow(-3.9f) == -3);
    EXPECT(long_of(INFINITY) == INT64_MAX && long_of(-INFINITY) == INT64_MIN);
    unsigned (*random_word)(unsigned long, unsigned long, long, int) =
        (unsigned (*)(unsigned long, unsigned long, long, int))symbol("random_word");
    /* Philox4x32-10, known answers: counter and key all zeros; all ones. */
    static const unsigned zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const unsigned ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    for (int lane = 0; lane < 4; lane++) {
        EXPECT(random_word(0, 0, 0, lane) == zeros[lane]);
        EXPECT(random_word(~0ul, ~0ul, -1, lane) == ones[lane]);
    }
    float (*tensor_float)(float) = (float (*)(float))symbol("tensor_float");
    EXPECT(tensor_float(1.0f + 0x1p-11f) == 1.0f && tensor_float(1.0f + 0x1.8p-10f) == 1.0f + 0x1p-9f);
    EXPECT(tensor_float(INFINITY) == INFINITY && isnan(tensor_float(NAN)));
}

TEST_MAIN(CASE(fast_functions), CASE(precise_functions), CASE(double_functions), CASE(two_operands), CASE(half_floats),
          CASE(integers))
