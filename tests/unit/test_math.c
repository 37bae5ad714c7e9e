/*
 * The prelude's functions, compiled by the system compiler and compared with long double references: dense samples of
 * every exponent, special values, edges of overflow and underflow; vector and scalar forms must give the same bits.
 * The limits here are the ones docs/accuracy.md states. Also: every name of the prelude compiles, with every compiler
 * that is there and for plain x86-64 too; and exp's cost in cycles.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "emit/prelude.h"
#include "references.h"
#include "quiet.h"

#include <dlfcn.h>
#include <float.h>
#include <stdlib.h>
#include <unistd.h>

static const struct function {
    const char *name;
    real (*reference)(real);
    double limit_f32, limit_f64; /* in units of the last place: docs/accuracy.md */
} functions[] = {
    {"exp", expl, 1.0, 1.0},
    {"exp2", exp2l, 1.0, 1.0},
    {"expm1", expm1l, 2.0, 2.0},
    {"log", logl, 1.0, 1.0},
    {"log2", log2l, 1.5, 1.5},
    {"log1p", log1pl, 2.0, 2.0},
    {"sin", sinl, 2.0, 1.0},
    {"cos", cosl, 2.0, 1.0},
    {"tanh", tanhl, 1.5, 1.5},
    {"erf", erfl, 1.5, 1.5},
    {"sigmoid", ref_sigmoid, 3.0, 3.0},
    {"gelu", ref_gelu, 4.0, 4.0},
    {"silu", ref_silu, 4.0, 4.0},
    {"softplus", ref_softplus, 2.5, 2.5},
    {"gelu_tanh", ref_gelu_tanh, 4.0, 4.0},
    {"sqrt", sqrtl, 0.5, 0.5},
    {"rsqrt", ref_rsqrt, 1.5, 1.5},
    {"floor", floorl, 0, 0},
    {"ceil", ceill, 0, 0},
    {"round", rintl, 0, 0},
    {"abs", fabsl, 0, 0},
    {"relu", ref_relu, 0, 0},
    {"sign", ref_sign, 0, 0},
};

static char folder[] = "/tmp/quern-math-XXXXXX";

static const char *compiler(void)
{
    const char *name = environment_get("CC");
    return name ? name : "cc";
}

/* Compiles text to a library and loads it; NULL with the compiler's words printed. */
static void *build(const char *name, const char *source, const char *cc, const char *const *flags)
{
    char c_path[128], so_path[128];
    snprintf(c_path, sizeof(c_path), "%s/%s.c", folder, name);
    snprintf(so_path, sizeof(so_path), "%s/%s.so", folder, name);
    qn_error error;
    if (file_write(c_path, source, strlen(source), &error) != QN_OK) return NULL;
    const char *arguments[32] = {
        cc,   "-std=gnu11", "-w",   "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast",
        "-o", so_path,      c_path, "-lm"};
    int count = 12;
    while (*flags) arguments[count++] = *flags++;
    text output = {0};
    int code = 1;
    if (process_run(arguments, &output, &code, &error) != QN_OK || code) {
        printf("%s: %.3000s\n", cc, text_get(&output));
        text_free(&output);
        return NULL;
    }
    text_free(&output);
    return dlopen(so_path, RTLD_NOW | RTLD_LOCAL);
}

static const char *const native[] = {"-O3", "-march=native", "-mprefer-vector-width=512", NULL};

typedef void unary_f32(float *y, const float *x, long count);
typedef void unary_f64(double *y, const double *x, long count);

static void *library;

typedef void any_function(void);

static any_function *symbol(const char *name)
{
    void *address = dlsym(library, name);
    any_function *function;
    memcpy(&function, &address, sizeof(function));
    return function;
}

/* One loop over vectors and one over scalars for each function and type. */
static void build_functions(const char *const *flags)
{
    static const char *const *built;
    if (library && built == flags) return;
    if (library) dlclose(library);
    built = flags;
    text source = {0}, loops = {0}, names = {0};
    const char *list[4 * COUNT(functions) + 8];
    static char words[4 * COUNT(functions) + 8][32];
    int count = 0;
    for (int i = 0; i < COUNT(functions); i++)
        for (int t = 0; t < 4; t++) {
            static const char *const types[] = {"f32x16", "f32", "f64x16", "f64"};
            static const char *const c[] = {"float", "float", "double", "double"};
            snprintf(words[count], sizeof(words[count]), "%s_%s", functions[i].name, types[t]);
            text_print(&loops, "void run_%s(%s *y, const %s *x, long n) { for (long i = 0; i < n; i += %d) ",
                       words[count], c[t], c[t], t & 1 ? 1 : 16);
            if (t & 1)
                text_print(&loops, "y[i] = %s(x[i]); }\n", words[count]);
            else
                text_print(&loops, "*(%s_u *)(y + i) = %s(*(const %s_u *)(x + i)); }\n", types[t], words[count],
                           types[t]);
            list[count] = words[count];
            count++;
        }
    list[count++] = "pow_f32x16";
    list[count++] = "pow_f32";
    list[count++] = "fma_f32x16";
    list[count++] = "max_f32x16";
    list[count++] = "min_f32x16";
    list[count++] = "mod_f32x16";
    text_add(
        &loops,
        "void run_pow(float *z, const float *x, const float *y, long n) { for (long i = 0; i < n; i += 16) "
        "*(f32x16_u *)(z + i) = pow_f32x16(*(const f32x16_u *)(x + i), *(const f32x16_u *)(y + i)); }\n"
        "void run_max(float *z, const float *x, const float *y, long n) { for (long i = 0; i < n; i += 16) "
        "*(f32x16_u *)(z + i) = max_f32x16(*(const f32x16_u *)(x + i), *(const f32x16_u *)(y + i)); }\n"
        "void run_min(float *z, const float *x, const float *y, long n) { for (long i = 0; i < n; i += 16) "
        "*(f32x16_u *)(z + i) = min_f32x16(*(const f32x16_u *)(x + i), *(const f32x16_u *)(y + i)); }\n"
        "void run_mod(float *z, const float *x, const float *y, long n) { for (long i = 0; i < n; i += 16) "
        "*(f32x16_u *)(z + i) = mod_f32x16(*(const f32x16_u *)(x + i), *(const f32x16_u *)(y + i)); }\n"
        "float run_fma(float a, float b, float c) { f32x16 z = {0}; return fma_f32x16(z + a, z + b, z + c)[0]; }\n"
        "long chain(long n) { long x = 1, one = 1; for (long i = 0; i < n; i += 8) __asm__ volatile(\".rept 8\\n add "
        "%1, %0\\n .endr\" : \"+r\"(x) : \"r\"(one)); "
        "return x; }\n");
    const char *unknown = NULL;
    EXPECT(prelude_emit(list, count, &source, &unknown));
    if (unknown) printf("unknown: %s\n", unknown);
    text_add(&source, text_get(&loops));
    library = build(flags == native ? "native" : "portable", text_get(&source), compiler(), flags);
    EXPECT(library);
    text_free(&source);
    text_free(&loops);
    text_free(&names);
}

static double error_f32(float y, real reference)
{
    float rounded = (float)reference;
    if (isnan(rounded) || isnan(y)) return isnan(rounded) && isnan(y) ? 0 : 1e30;
    if (isinf(rounded) || isinf(y))
        return rounded == y || (fabsl(reference) > FLT_MAX && fabsf(y) == FLT_MAX) ? 0 : 1e30;
    int exponent = 0;
    if (rounded != 0) frexpf(rounded, &exponent);
    exponent = MAXIMUM(exponent - 24, -149);
    if (reference == 0) return y == 0 ? (signbit(y) != signbit(rounded) ? 1e29 : 0) : 1e30;
    return (double)(fabsl((real)y - reference) / ldexpl(1, exponent));
}

static double error_f64(double y, real reference)
{
    double rounded = (double)reference;
    if (isnan(rounded) || isnan(y)) return isnan(rounded) && isnan(y) ? 0 : 1e30;
    if (isinf(rounded) || isinf(y))
        return rounded == y || (fabsl(reference) > DBL_MAX && fabs(y) == DBL_MAX) ? 0 : 1e30;
    int exponent = 0;
    if (rounded != 0) frexp(rounded, &exponent);
    exponent = MAXIMUM(exponent - 53, -1074);
    if (reference == 0) return y == 0 ? (signbit(y) != signbit(rounded) ? 1e29 : 0) : 1e30;
    return (double)(fabsl((real)y - reference) / ldexpl(1, exponent));
}

static uint64_t random_state = 88172645463325252u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

enum { SAMPLES = 1 << 18 };

/* Special values, every exponent of both signs, and uniform samples where the functions are interesting. */
static void fill_f32(float *x)
{
    static const float special[] = {0,
                                    -0.0f,
                                    INFINITY,
                                    -INFINITY,
                                    NAN,
                                    1,
                                    -1,
                                    0.5f,
                                    -0.5f,
                                    FLT_MIN,
                                    -FLT_MIN,
                                    FLT_MAX,
                                    -FLT_MAX,
                                    0x1p-149f,
                                    -0x1p-149f,
                                    0x1.fffffcp-127f,
                                    88.72283f,
                                    88.72284f,
                                    -87.33654f,
                                    -103.97207f,
                                    -103.97208f,
                                    -104.5f,
                                    127.99999f,
                                    128,
                                    -126,
                                    -149,
                                    -149.5f,
                                    -150.5f,
                                    0x1.fffffep-1f,
                                    0x1.000002p+0f,
                                    -0x1.fffffep-1f,
                                    0.625f,
                                    0.62499994f,
                                    9.01f,
                                    10,
                                    4,
                                    3.9999998f,
                                    65536,
                                    65537,
                                    1e10f,
                                    -1e30f,
                                    0x1.921fb6p+0f,
                                    0x1.921fb6p+1f,
                                    1.5f,
                                    2.5f,
                                    -2.5f,
                                    8388607.5f,
                                    8388608,
                                    -13.5f};
    int count = 0;
    for (int i = 0; i < COUNT(special); i++) x[count++] = special[i];
    for (int exponent = -149; exponent < 128; exponent++)
        for (int i = 0; i < 256; i++) {
            float size = ldexpf(1 + (float)(random_bits() >> 40) * 0x1p-24f, exponent);
            x[count++] = i & 1 ? size : -size;
        }
    while (count < SAMPLES) {
        float unit = (float)(random_bits() >> 40) * 0x1p-24f;
        static const float widths[] = {1, 4, 16, 110, 3, 150};
        int w = count % COUNT(widths);
        x[count++] = (2 * unit - 1) * widths[w];
    }
}

static void fill_f64(double *x)
{
    /* clang-format off */
    static const double special[] = {
        0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 0.5, -0.5, DBL_MIN, DBL_MAX, -DBL_MAX, 0x1p-1074, -0x1p-1074,
        709.782712893384, 709.7827128933841, -745.13, -745.14, -708.4, 1023.9999, 1024, -1074.5, -1075.5, 0.625, 2.5,
        4503599627370495.5, 1e22, 20, 19.9999999999};
    /* clang-format on */
    int count = 0;
    for (int i = 0; i < COUNT(special); i++) x[count++] = special[i];
    for (int i = 1; i < 6000; i++) /* where sine or cosine is almost 0 */
        x[count++] = (double)(1.5707963267948966192313216916397514L * i);
    for (int exponent = -1074; exponent < 1024; exponent++)
        for (int i = 0; i < 32; i++) {
            double size = ldexp(1 + (double)(random_bits() >> 11) * 0x1p-53, exponent);
            x[count++] = i & 1 ? size : -size;
        }
    while (count < SAMPLES) {
        double unit = (double)(random_bits() >> 11) * 0x1p-53;
        static const double widths[] = {1, 4, 16, 760, 3, 1080};
        int w = count % COUNT(widths);
        x[count++] = (2 * unit - 1) * widths[w];
    }
}

static unary_f32 *find_f32(const char *name, const char *form)
{
    char words[64];
    snprintf(words, sizeof(words), "run_%s_%s", name, form);
    return (unary_f32 *)symbol(words);
}

static unary_f64 *find_f64(const char *name, const char *form)
{
    char words[64];
    snprintf(words, sizeof(words), "run_%s_%s", name, form);
    return (unary_f64 *)symbol(words);
}

/* Every function over every `step`-th sample, with its limit and `slack` more. */
static void check_f32(double slack, int step)
{
    float *x = malloc(SAMPLES * sizeof(float)), *y = malloc(SAMPLES * sizeof(float)),
          *s = malloc(SAMPLES * sizeof(float));
    fill_f32(x);
    int count = SAMPLES / step;
    for (int i = 0; i < count; i++) x[i] = x[i * step];
    for (int f = 0; f < COUNT(functions); f++) {
        find_f32(functions[f].name, "f32x16")(y, x, count);
        find_f32(functions[f].name, "f32")(s, x, count);
        double worst = 0;
        int at = 0, differ = 0;
        for (int i = 0; i < count; i++) {
            double error = error_f32(y[i], functions[f].reference(x[i]));
            if (error == 1e29 && strcmp(functions[f].name, "abs")) error = 0; /* the sign of zero is free */
            if (error > worst) worst = error, at = i;
            if (memcmp(&y[i], &s[i], 4) && !(isnan(y[i]) && isnan(s[i])) && !differ++)
                printf("%s_f32: scalar differs at %a: %a and %a\n", functions[f].name, (double)x[i], (double)s[i],
                       (double)y[i]);
        }
        if (getenv("VERBOSE") || worst > functions[f].limit_f32 + slack)
            printf("%s_f32: %.3f ulp at %a: %a, not %La\n", functions[f].name, worst, (double)x[at], (double)y[at],
                   functions[f].reference(x[at]));
        EXPECT(worst <= functions[f].limit_f32 + (functions[f].limit_f32 > 0.5 ? slack : 0));
        EXPECT(!differ);
    }
    free(x);
    free(y);
    free(s);
}

/* Every function over every `step`-th sample, with its limit and `slack` more. */
static void check_f64(double slack, int step)
{
    double *x = malloc(SAMPLES * sizeof(double)), *y = malloc(SAMPLES * sizeof(double)),
           *s = malloc(SAMPLES * sizeof(double));
    fill_f64(x);
    int count = SAMPLES / step;
    for (int i = 0; i < count; i++) x[i] = x[i * step];
    for (int f = 0; f < COUNT(functions); f++) {
        find_f64(functions[f].name, "f64x16")(y, x, count);
        find_f64(functions[f].name, "f64")(s, x, count);
        double worst = 0;
        int at = 0, differ = 0;
        for (int i = 0; i < count; i++) {
            double error = error_f64(y[i], functions[f].reference(x[i]));
            if (error == 1e29 && strcmp(functions[f].name, "abs")) error = 0;
            if (!strcmp(functions[f].name, "gelu") && x[i] < -37) error /= 5; /* erfc is subnormal there */
            if (error > worst) worst = error, at = i;
            if (memcmp(&y[i], &s[i], 8) && !(isnan(y[i]) && isnan(s[i])) && !differ++)
                printf("%s_f64: scalar differs at %a: %a and %a\n", functions[f].name, x[i], s[i], y[i]);
        }
        if (getenv("VERBOSE") || worst > functions[f].limit_f64 + slack)
            printf("%s_f64: %.3f ulp at %a: %a, not %La\n", functions[f].name, worst, x[at], y[at],
                   functions[f].reference(x[at]));
        EXPECT(worst <= functions[f].limit_f64 + (functions[f].limit_f64 > 0.5 ? slack : 0));
        EXPECT(!differ);
    }
    free(x);
    free(y);
    free(s);
}

TEST(errors)
{
    build_functions(native);
    if (!library) return;
    check_f32(0, 1);
    check_f64(0, 1);
}

/* Without fused multiply-add: one rounding more at every step, and every portable form is run. */
TEST(errors_portable)
{
    static const char *const portable[] = {"-O2", "-march=x86-64", NULL};
    build_functions(portable);
    if (!library) return;
    check_f32(1, 4);
    check_f64(1, 4);
}

typedef void binary_f32(float *z, const float *x, const float *y, long count);

TEST(two_operands)
{
    build_functions(native);
    if (!library) return;
    static const float special[] = {0,  -0.0f,    1,         -1,  2,     -2,     0.5f,   -0.5f, 3,
                                    -3, INFINITY, -INFINITY, NAN, 1e30f, -1e30f, 1e-30f, 7.5f,  1e-45f};
    enum { N = COUNT(special) * COUNT(special), COUNT_ALL = 65536 };
    float *x = calloc(COUNT_ALL, 4), *y = calloc(COUNT_ALL, 4), *z = calloc(COUNT_ALL, 4);
    for (int i = 0; i < COUNT_ALL; i++) {
        x[i] =
            i < N ? special[i / COUNT(special)] : ldexpf((float)(random_bits() >> 40), (int)(random_bits() % 60) - 54);
        y[i] = i < N ? special[i % COUNT(special)] : ((float)(random_bits() >> 40) * 0x1p-23f - 1) * (i & 1 ? 5 : 40);
    }
    ((binary_f32 *)symbol("run_pow"))(z, x, y, COUNT_ALL);
    double worst = 0;
    for (int i = 0; i < COUNT_ALL; i++) {
        double error = error_f32(z[i], powl(x[i], y[i]));
        if (error > 0.6) printf("pow(%g, %g) = %g, not %g: %.3f ulp\n", x[i], y[i], z[i], pow(x[i], y[i]), error);
        if (error > worst) worst = error;
        if (worst > 1) break;
    }
    EXPECT(worst <= 0.6);
    ((binary_f32 *)symbol("run_max"))(z, x, y, COUNT_ALL);
    for (int i = 0; i < COUNT_ALL; i++) {
        float wanted = isnan(x[i]) || isnan(y[i]) ? NAN : fmaxf(x[i], y[i]);
        EXPECT(z[i] == wanted || (isnan(z[i]) && isnan(wanted)));
    }
    ((binary_f32 *)symbol("run_min"))(z, x, y, COUNT_ALL);
    for (int i = 0; i < COUNT_ALL; i++) {
        float wanted = isnan(x[i]) || isnan(y[i]) ? NAN : fminf(x[i], y[i]);
        EXPECT(z[i] == wanted || (isnan(z[i]) && isnan(wanted)));
    }
    ((binary_f32 *)symbol("run_mod"))(z, x, y, COUNT_ALL);
    for (int i = 0; i < COUNT_ALL; i++) {
        volatile double product = y[i] * floor((double)x[i] / y[i]);
        float wanted = (float)(x[i] - product);
        EXPECT(z[i] == wanted || (isnan(z[i]) && isnan(wanted)));
    }
    float (*fused)(float, float, float) = (float (*)(float, float, float))symbol("run_fma");
    EXPECT(fused(0x1.000002p0f, 0x1.000002p0f, -0x1.000004p0f) == 0x1p-46f);
    free(x);
    free(y);
    free(z);
}

/* Pieces that meet: no step back where one ends, never beyond 1, and 1 from 9.1 on. */
TEST(tanh_rises_to_one)
{
    build_functions(native);
    if (!library) return;
    enum { N = 1 << 18 };
    float *x = aligned_alloc(64, N * sizeof(float)), *y = aligned_alloc(64, N * sizeof(float));
    for (int i = 0; i < N; i++) x[i] = (float)i * (12.0f / N);
    find_f32("tanh", "f32x16")(y, x, N);
    int back = 0, beyond = 0, short_of = 0;
    for (int i = 1; i < N; i++) {
        back += y[i] < y[i - 1] - 0x1.8p-23f * y[i];
        beyond += !(y[i] <= 1);
        short_of += x[i] > 9.1f && y[i] != 1;
    }
    EXPECT(!back);
    EXPECT(!beyond);
    EXPECT(!short_of);
    free(x);
    free(y);
}

TEST(exp_cycles)
{
    build_functions(native);
    if (!library) return;
    enum { N = 2048 };
    _Alignas(64) static float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)(random_bits() >> 40) * 0x1p-20f - 8;
    unary_f32 *run = find_f32("exp", "f32x16");
    long (*chain)(long) = (long (*)(long))symbol("chain");
    double best = 1e9, clock_ghz = 0;
    for (int round = 0; round < 60; round++) {
        int64_t start_ns = clock_now_ns();
        chain(100000); /* one cycle a step */
        double ghz = 100000.0 / (double)(clock_now_ns() - start_ns);
        start_ns = clock_now_ns();
        for (int i = 0; i < 20; i++) run(y, x, N);
        double ns = (double)(clock_now_ns() - start_ns) / (20.0 * N);
        if (ghz > clock_ghz) clock_ghz = ghz;
        if (ns < best) best = ns;
    }
    printf("note: exp takes %.2f cycles an element in L1 (%.2f GHz measured)\n", best * clock_ghz, clock_ghz);
    EXPECT_QUICK(best * clock_ghz < 8);
}

/* All names there are. */
static int all_names(char (*names)[40], int capacity)
{
    static const char *const types[] = {"f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};
    static const char *const both[] = {"abs", "sign", "min", "max", "lt", "le", "gt", "ge", "eq", "ne", "exact", "mod"};
    static const char *const integer[] = {"div", "shl", "shr"};
    static const char *const vector[] = {
        "select",     "splat",       "iota",         "fold_sum", "fold_prod", "fold_max",  "fold_min",   "scan_sum",
        "scan_prod",  "scan_max",    "scan_min",     "load",     "store",     "load_part", "store_part", "load_mask",
        "store_mask", "load_stride", "store_stride", "gather",   "scatter",   "stream"};
    static const char *const memory[] = {"load",      "store",      "load_part",   "store_part",
                                         "load_mask", "store_mask", "load_stride", "store_stride",
                                         "gather",    "scatter",    "stream"};
    static const char *const atomic[] = {"add", "min", "max", "exchange", "cas"};
    static const char *const bits[] = {"and", "or", "xor"};
    static const char *const single[] = {
        "any_mask",      "all_mask",       "count_mask",     "first_mask",      "select_boolx16", "splat_boolx16",
        "philox_u32x16", "philox_u32",     "atomic_add_f16", "atomic_add_bf16", "raw_types",      "stream_fence",
        "f16_to_f32x16", "bf16_to_f32x16", "f32_to_f16x16",  "f32_to_bf16x16",  "f16_to_f32",     "bf16_to_f32",
        "f32_to_f16",    "f32_to_bf16",    "tf32_f32",       "tf32_f32x16",     "pow_f32",        "pow_f32x16",
        "pow_f64",       "pow_f64x16",     "fma_f32",        "fma_f32x16",      "fma_f64",        "fma_f64x16",
        "isnan_f32",     "isnan_f32x16",   "isnan_f64",      "isnan_f64x16",    "isinf_f32",      "isinf_f32x16",
        "isinf_f64",     "isinf_f64x16"};
    int count = 0;
#define ADD(...) snprintf(names[count < capacity ? count++ : 0], 40, __VA_ARGS__)
    for (int i = 0; i < COUNT(single); i++) ADD("%s", single[i]);
    for (int i = 0; i < COUNT(functions); i++)
        for (int t = 0; t < 2; t++) {
            ADD("%s_%s", functions[i].name, types[t]);
            ADD("%s_%sx16", functions[i].name, types[t]);
        }
    for (int t = 0; t < COUNT(types); t++) {
        for (int i = 0; i < COUNT(both); i++) {
            ADD("%s_%s", both[i], types[t]);
            ADD("%s_%sx16", both[i], types[t]);
        }
        for (int i = 0; i < COUNT(integer) && t > 1; i++) {
            ADD("%s_%s", integer[i], types[t]);
            ADD("%s_%sx16", integer[i], types[t]);
        }
        for (int i = 0; i < COUNT(vector); i++) ADD("%s_%sx16", vector[i], types[t]);
        bool wide = strchr("36", types[t][1]);
        for (int i = 0; i < COUNT(atomic) && wide; i++) ADD("atomic_%s_%s", atomic[i], types[t]);
        for (int i = 0; i < COUNT(bits) && wide && t > 1; i++) ADD("atomic_%s_%s", bits[i], types[t]);
    }
    for (int i = 0; i < COUNT(memory); i++) {
        ADD("%s_f16x16", memory[i]);
        ADD("%s_bf16x16", memory[i]);
        ADD("%s_boolx16", memory[i]);
    }
    for (int from = 0; from <= COUNT(types); from++)
        for (int to = 0; to <= COUNT(types) + 2; to++) {
            static const char *const other[] = {"bool", "f16", "bf16"};
            const char *a = from < COUNT(types) ? types[from] : "bool",
                       *b = to < COUNT(types) ? types[to] : other[to - COUNT(types)];
            ADD("convert_%s_%s", a, b);
            ADD("convert_%s_%sx16", a, b);
        }
#undef ADD
    return count;
}

TEST(every_name_compiles)
{
    static char names[1400][40];
    const char *list[1400];
    int count = all_names(names, 1400);
    for (int i = 0; i < count; i++) list[i] = names[i];
    text source = {0};
    const char *unknown = NULL;
    EXPECT(prelude_emit(list, count, &source, &unknown));
    if (unknown) printf("unknown: %s\n", unknown);
    static const char *const lists[][4] = {
        {"-O0", "-march=native", NULL}, {"-O0", NULL}, {"-O0", "-march=x86-64-v3", NULL}};
    static const char *const compilers[] = {"gcc", "clang"};
    int built = 0;
    for (int c = 0; c < 2; c++) {
        char path[1024];
        if (!program_find(compilers[c], path, sizeof(path))) continue;
        for (int i = 0; i < COUNT(lists); i++) {
            void *loaded = build("all", text_get(&source), compilers[c], lists[i]);
            EXPECT(loaded);
            if (loaded) built++, dlclose(loaded);
        }
    }
    printf("note: %d names of the prelude compile in %d ways\n", count, built);
    const char *bad[] = {"exp_f32x16", "expp_f32"};
    EXPECT(!prelude_emit(bad, 2, &source, &unknown));
    EXPECT_TEXT(unknown, "expp_f32");
    text_free(&source);
}

TEST(make_folder)
{
    EXPECT(mkdtemp(folder));
}

TEST(remove_folder)
{
    if (library) dlclose(library);
    const char *arguments[] = {"rm", "-r", folder, NULL};
    int code = 1;
    EXPECT(process_run(arguments, NULL, &code, NULL) == QN_OK && !code);
}

TEST_MAIN(CASE(make_folder), CASE(every_name_compiles), CASE(errors), CASE(two_operands), CASE(tanh_rises_to_one),
          CASE(exp_cycles), CASE(errors_portable), CASE(remove_folder))
