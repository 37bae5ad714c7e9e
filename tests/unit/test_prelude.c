/*
 * The rest of the prelude, run: masks, comparisons, integer operations, folds, scans, conversions, loads and stores of
 * every kind, 16-bit floats, Philox, atomics. Vector forms are compared with scalar forms lane by lane inside the
 * compiled text, scalar forms with the library's own functions here; with every compiler that is there, for this
 * processor and for plain x86-64, so that the portable forms are run too.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "emit/prelude.h"
#include "ir/interp.h"
#include "test.h"

#include <dlfcn.h>
#include <stdlib.h>

static char folder[] = "/tmp/quern-prelude-XXXXXX";

static const char *const types[] = {"f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};
static const char *const c_types[] = {"float", "double",        "signed char",    "short",        "int",
                                      "long",  "unsigned char", "unsigned short", "unsigned int", "unsigned long"};

typedef struct unit {
    text body;
    char names[1200][40];
    int count;
} unit;

static void need(unit *u, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(u->names[u->count++], 40, format, list);
    va_end(list);
}

static const char common[] =
    "int printf(const char *, ...);\n"
    "static int failures;\n"
    "#define CHECK(c, ...) ((c) ? 0 : failures++ < 20 ? (printf(__VA_ARGS__), printf(\"\\n\")) : 0)\n"
    "#define SAME(x, y) ((x) == (y) || ((x) != (x) && (y) != (y)))\n"
    "static unsigned long state = 1;\n"
    "static unsigned long next(void) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return state; "
    "}\n"
    "static mask16 bits_mask(unsigned bits) { mask16 m; for (int k = 0; k < 16; k++) m[k] = -(int)(bits >> k & 1); "
    "return m; }\n";

/* Random elements with the special ones among them. */
static void put_fill(unit *u, int t)
{
    bool is_float = t < 2;
    text_print(&u->body, "static %s element_%s(void)\n{\n    unsigned long r = next();\n    switch (r >> 60) {\n",
               c_types[t], types[t]);
    if (is_float)
        text_print(&u->body,
                   "    case 0: return 0;\n    case 1: return -1;\n    case 2: return (%s)__builtin_inf();\n"
                   "    case 3: return -(%s)__builtin_inf();\n    case 4: return (%s)__builtin_nan(\"\");\n"
                   "    case 5: return (%s)(long)r;\n    case 6: return (%s)((long)r >> 32);\n"
                   "    default: return (%s)((long)(r & 0xfffff) - 0x80000) / 1024;\n    }\n}\n",
                   c_types[t], c_types[t], c_types[t], c_types[t], c_types[t], c_types[t]);
    else
        text_print(
            &u->body,
            "    case 0: return 0;\n    case 1: return (%s)-1;\n    case 2: return (%s)(1ul << (8 * sizeof(%s) - 1));\n"
            "    case 3: return 3;\n    case 4: return (%s)(r & 15);\n    default: return (%s)r;\n    }\n}\n",
            c_types[t], c_types[t], c_types[t], c_types[t], c_types[t]);
}

static void put_lanes(unit *u, int t)
{
    const char *n = types[t], *c = c_types[t];
    static const char *const binary[] = {"min", "max", "div", "mod", "shl", "shr"};
    static const char *const compare[] = {"lt", "le", "gt", "ge", "eq", "ne"};
    static const char *const folds[] = {"sum", "prod", "max", "min"};
    text_print(&u->body, "static void lanes_%s(void)\n{\n    %s x[16], y[16];\n", n, c);
    text_print(&u->body, "    for (int k = 0; k < 16; k++) x[k] = element_%s(), y[k] = element_%s();\n", n, n);
    text_print(&u->body, "    unsigned bits = (unsigned)next() & 0xffff;\n    mask16 m = bits_mask(bits);\n");
    text_print(&u->body, "    %sx16 a = load_%sx16(x), b = load_%sx16(y), v;\n", n, n, n);
    need(u, "load_%sx16", n);
    for (int i = 0; i < COUNT(binary); i++) {
        if (t < 2 && i == 2) continue;
        if (t < 2 && i > 3) continue;
        need(u, "%s_%sx16", binary[i], n);
        need(u, "%s_%s", binary[i], n);
        text_print(&u->body,
                   "    v = %s_%sx16(a, b);\n    for (int k = 0; k < 16; k++) CHECK(SAME(v[k], %s_%s(x[k], y[k])), "
                   "\"%s_%s lane %%d: %%g %%g -> %%g\", k, (double)x[k], (double)y[k], (double)v[k]);\n",
                   binary[i], n, binary[i], n, binary[i], n);
    }
    for (int i = 0; i < 2; i++) {
        static const char *const unary[] = {"abs", "sign"};
        need(u, "%s_%sx16", unary[i], n);
        need(u, "%s_%s", unary[i], n);
        text_print(&u->body,
                   "    v = %s_%sx16(a);\n    for (int k = 0; k < 16; k++) CHECK(SAME(v[k], %s_%s(x[k])), \"%s_%s "
                   "lane %%d\", k);\n",
                   unary[i], n, unary[i], n, unary[i], n);
    }
    for (int i = 0; i < COUNT(compare); i++) {
        need(u, "%s_%sx16", compare[i], n);
        need(u, "%s_%s", compare[i], n);
        text_print(&u->body,
                   "    { mask16 r = %s_%sx16(a, b);\n    for (int k = 0; k < 16; k++) CHECK(r[k] == -%s_%s(x[k], "
                   "y[k]), \"%s_%s lane %%d\", k); }\n",
                   compare[i], n, compare[i], n, compare[i], n);
    }
    need(u, "select_%sx16", n);
    need(u, "splat_%sx16", n);
    need(u, "iota_%sx16", n);
    text_print(&u->body,
               "    v = select_%sx16(m, a, b);\n    for (int k = 0; k < 16; k++) CHECK(SAME(v[k], (bits >> k & 1 ? "
               "x[k] : y[k])), \"select_%s lane %%d\", k);\n"
               "    v = splat_%sx16(x[3]);\n    for (int k = 0; k < 16; k++) CHECK(SAME(v[k], x[3]), \"splat_%s\");\n"
               "    v = iota_%sx16();\n    for (int k = 0; k < 16; k++) CHECK(v[k] == k, \"iota_%s\");\n",
               n, n, n, n, n, n);
    for (int i = 0; i < COUNT(folds); i++) {
        char expression[64];
        if (i < 2)
            snprintf(expression, sizeof(expression), "(%s)(w[k] %c w[k + h])", c, i ? '*' : '+');
        else
            snprintf(expression, sizeof(expression), "%s_%s(w[k], w[k + h])", folds[i], n);
        need(u, "fold_%s_%sx16", folds[i], n);
        need(u, "scan_%s_%sx16", folds[i], n);
        text_print(&u->body,
                   "    { %s w[16]; for (int k = 0; k < 16; k++) w[k] = x[k];\n"
                   "    for (int h = 8; h; h /= 2) for (int k = 0; k < h; k++) w[k] = %s;\n"
                   "    CHECK(SAME(fold_%s_%sx16(a), w[0]), \"fold_%s_%s\"); }\n",
                   c, expression, folds[i], n, folds[i], n);
        if (i < 2) /* small whole numbers, so that any order gives the same sum */
            snprintf(expression, sizeof(expression), "(%s)(w[k] %c w[k - 1])", c, i ? '*' : '+');
        else
            snprintf(expression, sizeof(expression), "%s_%s(w[k], w[k - 1])", folds[i], n);
        text_print(&u->body,
                   "    { %s w[16]; for (int k = 0; k < 16; k++) w[k] = (%s)(next() %% 3);\n    v = "
                   "scan_%s_%sx16(load_%sx16(w));\n"
                   "    for (int k = 1; k < 16; k++) w[k] = %s;\n"
                   "    for (int k = 0; k < 16; k++) CHECK(v[k] == w[k], \"scan_%s_%s lane %%d\", k); }\n",
                   c, c, folds[i], n, n, expression, folds[i], n);
    }
    text_add(&u->body, "}\n");
}

/* Loads and stores; elements of memory and of registers may differ (bool, f16, bf16). */
static void put_memory(unit *u, const char *n, const char *c, const char *element, const char *value,
                       const char *vector)
{
    static const char *const forms[] = {"load",      "store",      "load_part",   "store_part",
                                        "load_mask", "store_mask", "load_stride", "store_stride",
                                        "gather",    "scatter",    "stream"};
    for (int i = 0; i < COUNT(forms); i++) need(u, "%s_%sx16", forms[i], n);
    text_print(&u->body, "static void memory_%s(void)\n{\n    _Alignas(64) %s x[64], y[64];\n    %s v;\n", n, c,
               vector);
    text_print(&u->body, "    for (int k = 0; k < 64; k++) x[k] = %s, y[k] = 1;\n", element);
    text_print(&u->body, "    unsigned bits = (unsigned)next() & 0xffff;\n    mask16 m = bits_mask(bits);\n"
                         "    long count = (long)(next() %% 17), at = (long)(next() %% 8);\n    i64x16 index;\n"
                         "    for (int k = 0; k < 16; k++) index[k] = 4 * k + (long)(next() & 3);\n");
    static const struct {
        const char *load, *store, *place, *lane;
    } rows[] = {
        {"load_%sx16(x + at)", "store_%sx16(y + at, v)", "at + k", "1"},
        {"load_part_%sx16(x + at, count)", "store_part_%sx16(y + at, v, count)", "at + k", "k < count"},
        {"load_mask_%sx16(x + at, m)", "store_mask_%sx16(y + at, v, m)", "at + k", "bits >> k & 1"},
        {"load_stride_%sx16(x + 1, 3, m)", "store_stride_%sx16(y + 1, 3, v, m)", "1 + 3 * k", "bits >> k & 1"},
        {"load_stride_%sx16(x + 60, -2, m)", "store_stride_%sx16(y + 60, -2, v, m)", "60 - 2 * k", "bits >> k & 1"},
        {"gather_%sx16(x, index, m)", "scatter_%sx16(y, index, v, m)", "index[k]", "bits >> k & 1"},
        {"load_%sx16(x + 16)", "stream_%sx16(y + 16, v)", "16 + k", "1"},
        {"load_%sx16(x + 17)", "stream_%sx16(y + 17, v)", "17 + k", "1"},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        char load[80], store[80];
        snprintf(load, sizeof(load), rows[i].load, n);
        snprintf(store, sizeof(store), rows[i].store, n);
        char in_lane[80];
        snprintf(in_lane, sizeof(in_lane), value, rows[i].place);
        text_print(
            &u->body,
            "    v = %s;\n    for (int k = 0; k < 16; k++) CHECK(SAME(v[k], (%s ? %s : 0)), \"%s lane %%d\", k);\n"
            "    { char used[64] = {0}; for (int k = 0; k < 64; k++) y[k] = 1;\n    %s;\n"
            "    for (int k = 0; k < 16; k++) if (%s) used[%s] = 1, CHECK(!__builtin_memcmp(&y[%s], &x[%s], "
            "sizeof(x[0])) || x[%s] != x[%s], \"%s lane %%d\", k);\n"
            "    for (int k = 0; k < 64; k++) CHECK(used[k] || y[k] == 1, \"%s touched %%d\", k); }\n",
            load, rows[i].lane, in_lane, load, store, rows[i].lane, rows[i].place, rows[i].place, rows[i].place,
            rows[i].place, rows[i].place, store, store);
    }
    text_add(&u->body, "}\n");
}

static void put_converts(unit *u)
{
    text_add(&u->body, "static void converts(void)\n{\n");
    for (int from = 0; from <= COUNT(types); from++)
        for (int to = 0; to < COUNT(types) + 4; to++) {
            static const char *const other[] = {"bool", "f16", "bf16", "f8e4m3"};
            bool from_bool = from == COUNT(types);
            const char *a = from_bool ? "bool" : types[from],
                       *b = to < COUNT(types) ? types[to] : other[to - COUNT(types)];
            need(u, "convert_%s_%sx16", a, b);
            need(u, "convert_%s_%s", a, b);
            if (from_bool)
                text_add(
                    &u->body,
                    "    { int x[16]; mask16 in; for (int k = 0; k < 16; k++) x[k] = next() & 1, in[k] = -x[k];\n");
            else
                text_print(
                    &u->body,
                    "    { %s x[16]; for (int k = 0; k < 16; k++) x[k] = element_%s(); %sx16 in = load_%sx16(x);\n",
                    c_types[from], a, a, a);
            text_print(&u->body, "    %s%s v = convert_%s_%sx16(in);\n",
                       to < COUNT(types)    ? b
                       : to == COUNT(types) ? "mask16"
                                            : "f32x16",
                       to < COUNT(types) ? "x16" : "", a, b);
            text_print(&u->body,
                       "    for (int k = 0; k < 16; k++) CHECK(SAME(v[k], %sconvert_%s_%s(x[k])), \"convert_%s_%s lane "
                       "%%d: %%g -> %%g\", k, (double)x[k], (double)v[k]); }\n",
                       to == COUNT(types) ? "-" : "", a, b, a, b);
        }
    text_add(&u->body, "}\n");
}

static void put_rest(unit *u)
{
    static const char *const names[] = {"any_mask",        "all_mask",       "count_mask",          "first_mask",
                                        "select_boolx16",  "splat_boolx16",  "philox_u32",          "philox_u32x16",
                                        "f16_to_f32",      "f16_to_f32x16",  "bf16_to_f32",         "bf16_to_f32x16",
                                        "f32_to_f16",      "f32_to_f16x16",  "f32_to_bf16",         "f32_to_bf16x16",
                                        "div_i8",          "mod_i8",         "atomic_add_f32",      "atomic_min_i32",
                                        "atomic_max_f64",  "atomic_cas_i64", "atomic_exchange_f32", "atomic_add_f16",
                                        "atomic_add_bf16", "atomic_xor_u32", "stream_fence",        "exact_f32x16",
                                        "exact_f64x16",    "exact_f32"};
    for (int i = 0; i < COUNT(names); i++) need(u, "%s", names[i]);
    text_add(
        &u->body,
        "static void masks(void)\n{\n"
        "    unsigned bits = (unsigned)next() & 0xffff & (unsigned)next(); mask16 m = bits_mask(bits);\n"
        "    CHECK(any_mask(m) == (bits != 0) && all_mask(m) == (bits == 0xffff), \"any, all\");\n"
        "    CHECK(count_mask(m) == __builtin_popcount(bits) && !any_mask(bits_mask(0)) && "
        "all_mask(bits_mask(0xffff)), \"count\");\n"
        "    for (long n = 0; n <= 16; n++) { mask16 f = first_mask(n); for (int k = 0; k < 16; k++) CHECK(f[k] == -(k "
        "< n), \"first_mask\"); }\n"
        "    mask16 s = select_boolx16(m, splat_boolx16(1), splat_boolx16(0));\n"
        "    for (int k = 0; k < 16; k++) CHECK(s[k] == m[k], \"select_bool\");\n"
        "    f32x16 e = exact_f32x16(splat_f32x16(3)); f64x16 d = exact_f64x16(splat_f64x16(4));\n"
        "    CHECK(e[5] == 3 && d[9] == 4 && exact_f32(2) == 2, \"exact\");\n"
        "}\n"
        "static void philox(void)\n{\n"
        "    unsigned long seed = next(), offset = next(); long x[16]; for (int k = 0; k < 16; k++) x[k] = "
        "(long)next();\n"
        "    for (int lane = 0; lane < 4; lane++) { u32x16 v = philox_u32x16(seed, offset, load_i64x16(x), lane);\n"
        "    for (int k = 0; k < 16; k++) CHECK(v[k] == philox_u32(seed, offset, x[k], lane), \"philox lane %d\", k); "
        "}\n"
        "}\n"
        "static void halves(void)\n{\n"
        "    for (unsigned i = 0; i < 65536; i += 16) {\n"
        "        unsigned short h[16]; for (int k = 0; k < 16; k++) h[k] = (unsigned short)(i + k);\n"
        "        f32x16 a = f16_to_f32x16(load_u16x16(h)), b = bf16_to_f32x16(load_u16x16(h));\n"
        "        u16x16 c = f32_to_f16x16(a), d = f32_to_bf16x16(b);\n"
        "        for (int k = 0; k < 16; k++) {\n"
        "            CHECK(SAME(a[k], f16_to_f32(h[k])) && SAME(b[k], bf16_to_f32(h[k])), \"16-bit float %x\", i + "
        "k);\n"
        "            CHECK((c[k] == h[k] || a[k] != a[k]) && (d[k] == h[k] || b[k] != b[k]), \"16-bit float back %x\", "
        "i + k);\n"
        "        }\n"
        "    }\n"
        "    float x[16]; for (int k = 0; k < 16; k++) { union { int i; float f; } u = {(int)next()}; x[k] = u.f; }\n"
        "    u16x16 c = f32_to_f16x16(load_f32x16(x)), d = f32_to_bf16x16(load_f32x16(x));\n"
        "    for (int k = 0; k < 16; k++) CHECK(x[k] != x[k] || (c[k] == f32_to_f16(x[k]) && d[k] == "
        "f32_to_bf16(x[k])), \"to 16 bits %a\", (double)x[k]);\n"
        "}\n"
        "static void atomics(void)\n{\n"
        "    float f = 1; double d = 2; int i = 5; long l = 7; unsigned u = 12; unsigned short h = f32_to_f16(1.5f), g "
        "= f32_to_bf16(1.5f);\n"
        "    CHECK(atomic_add_f32(&f, 2) == 1 && f == 3 && atomic_exchange_f32(&f, 9) == 3 && f == 9, \"atomic "
        "f32\");\n"
        "    CHECK(atomic_min_i32(&i, -4) == 5 && i == -4 && atomic_min_i32(&i, 3) == -4 && i == -4, \"atomic_min\");\n"
        "    CHECK(atomic_max_f64(&d, 8) == 2 && d == 8 && atomic_max_f64(&d, __builtin_nan(\"\")) == 8 && d != d, "
        "\"atomic_max\");\n"
        "    CHECK(atomic_cas_i64(&l, 6, 1) == 7 && l == 7 && atomic_cas_i64(&l, 7, 1) == 7 && l == 1, "
        "\"atomic_cas\");\n"
        "    CHECK(atomic_xor_u32(&u, 5) == 12 && u == 9, \"atomic_xor\");\n"
        "    CHECK(atomic_add_f16(&h, 2) == 1.5f && f16_to_f32(h) == 3.5f && atomic_add_bf16(&g, 2) == 1.5f && "
        "bf16_to_f32(g) == 3.5f, \"atomic 16\");\n"
        "    stream_fence();\n"
        "}\n"
        "float half_to_float(unsigned short x) { return f16_to_f32(x); }\n"
        "unsigned short float_to_half(float x) { return f32_to_f16(x); }\n"
        "unsigned short float_to_bfloat(float x) { return f32_to_bf16(x); }\n"
        "float double_to_half(double x) { return convert_f64_f16(x); }\n"
        "float long_to_bfloat(long x) { return convert_i64_bf16(x); }\n"
        "long double_to_long(double x) { return convert_f64_i64(x); }\n"
        "unsigned char float_to_byte(float x) { return convert_f32_u8(x); }\n"
        "int divide(int a, int b) { return div_i8((signed char)a, (signed char)b); }\n"
        "int modulo(int a, int b) { return mod_i8((signed char)a, (signed char)b); }\n"
        "unsigned random_word(unsigned long seed, unsigned long offset, long i, int lane) { return philox_u32(seed, "
        "offset, i, lane); }\n");
}

static text make_source(void)
{
    static unit u;
    for (int t = 0; t < COUNT(types); t++) put_fill(&u, t);
    for (int t = 0; t < COUNT(types); t++) {
        put_lanes(&u, t);
        char element[32], vector[16];
        snprintf(element, sizeof(element), "element_%s()", types[t]);
        snprintf(vector, sizeof(vector), "%sx16", types[t]);
        put_memory(&u, types[t], c_types[t], element, "x[%s]", vector);
    }
    put_memory(&u, "f16", "unsigned short", "f32_to_f16((float)(next() % 1000))", "f16_to_f32(x[%s])", "f32x16");
    put_memory(&u, "bf16", "unsigned short", "f32_to_bf16((float)(next() % 100))", "bf16_to_f32(x[%s])", "f32x16");
    put_memory(&u, "f8e4m3", "unsigned char", "f32_to_f8e4m3((float)(next() % 16))", "f8e4m3_to_f32(x[%s])", "f32x16");
    put_memory(&u, "bool", "unsigned char", "next() & 1", "-x[%s]", "mask16");
    put_rest(&u);
    put_converts(&u);
    text_add(&u.body, "int check_all(void)\n{\n    for (int round = 0; round < 50; round++) {\n");
    for (int t = 0; t < COUNT(types); t++)
        text_print(&u.body, "        lanes_%s(), memory_%s();\n", types[t], types[t]);
    text_add(
        &u.body,
        "        memory_f16(), memory_bf16(), memory_f8e4m3(), memory_bool(), masks(), philox(), converts();\n    }\n"
        "    halves(), atomics();\n    return failures;\n}\n");
    const char *names[COUNT(u.names)];
    for (int i = 0; i < u.count; i++) names[i] = u.names[i];
    text source = {0};
    const char *unknown = NULL;
    EXPECT(prelude_emit(names, u.count, &source, &unknown));
    if (unknown) printf("unknown: %s\n", unknown);
    text_add(&source, common);
    text_add(&source, text_get(&u.body));
    text_free(&u.body);
    return source;
}

typedef void any_function(void);

static any_function *symbol(void *library, const char *name)
{
    void *address = dlsym(library, name);
    any_function *function;
    memcpy(&function, &address, sizeof(function));
    return function;
}

#define CALL(type, name, parameters) ((type(*) parameters)symbol(library, name))

/* The scalar forms against the library's own. */
static void check_scalars(void *library)
{
    for (int a = -128; a < 128; a++)
        for (int b = -128; b < 128; b++) {
            int quotient = b ? (int)floor((double)a / b) : 0;
            EXPECT(CALL(int, "divide", (int, int))(a, b) == (signed char)quotient);
            EXPECT(CALL(int, "modulo", (int, int))(a, b) == (signed char)(b ? a - b * quotient : 0));
        }
    for (int i = 0; i < 65536; i++) {
        float x = CALL(float, "half_to_float", (unsigned short))((unsigned short)i);
        EXPECT((double)x == f16_to_double((uint16_t)i) || isnan(x));
    }
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < 200000; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        uint32_t bits = (uint32_t)(state >> 32);
        float x;
        memcpy(&x, &bits, 4);
        if (i & 1) x = (float)ldexp((double)(bits & 0xffffff), -24 - (i / 2) % 18); /* the range of f16 */
        if (isnan(x)) continue;
        EXPECT(CALL(unsigned short, "float_to_half", (float))(x) == f16_from_double(x));
        EXPECT(CALL(unsigned short, "float_to_bfloat", (float))(x) == bf16_from_double(x));
        double y =
            (double)(bits & 0xfffff) * 0x1p-20 + (double)(state & 3) * 0x1p-40; /* near halves: double rounding shows */
        EXPECT((double)CALL(float, "double_to_half", (double))(y) == f16_to_double(f16_from_double(y)));
        EXPECT((double)CALL(float, "long_to_bfloat", (long))((long)state) ==
               bf16_to_double(bf16_from_double((double)(int64_t)state)));
    }
    EXPECT(CALL(long, "double_to_long", (double))(1e300) == INT64_MAX &&
           CALL(long, "double_to_long", (double))(-1e300) == INT64_MIN);
    EXPECT(CALL(long, "double_to_long", (double))(NAN) == 0 && CALL(long, "double_to_long", (double))(-2.9) == -2);
    EXPECT(CALL(unsigned char, "float_to_byte", (float))(300) == 255 &&
           CALL(unsigned char, "float_to_byte", (float))(-1) == 0);
    for (int i = 0; i < 100; i++) {
        uint32_t words[4];
        philox_words(0x123456789abcdefu * (uint64_t)i, (uint64_t)i << 33, (uint64_t)-i, words);
        for (int lane = 0; lane < 4; lane++)
            EXPECT(CALL(unsigned, "random_word", (unsigned long, unsigned long, long, int))(
                       0x123456789abcdefu * (uint64_t)i, (uint64_t)i << 33, -i, lane) == words[lane]);
    }
}

TEST(every_way)
{
    EXPECT(mkdtemp(folder));
    text source = make_source();
    char c_path[64], so_path[80];
    snprintf(c_path, sizeof(c_path), "%s/all.c", folder);
    EXPECT(file_write(c_path, text_get(&source), source.length, NULL) == QN_OK);
    static const char *const ways[][3] = {{"gcc", "-march=native", "-O1"},
                                          {"gcc", "-march=x86-64", "-O0"},
                                          {"clang", "-march=native", "-O0"},
                                          {"clang", "-march=x86-64", "-O0"}};
    for (int w = 0; w < COUNT(ways); w++) {
        char found[1024];
        if (!program_find(ways[w][0], found, sizeof(found))) continue;
        snprintf(so_path, sizeof(so_path), "%s/all%d.so", folder, w);
        const char *arguments[] = {ways[w][0],
                                   "-std=gnu11",
                                   "-w",
                                   "-fPIC",
                                   "-shared",
                                   "-fno-math-errno",
                                   "-fno-trapping-math",
                                   "-ffp-contract=fast",
                                   ways[w][1],
                                   ways[w][2],
                                   "-o",
                                   so_path,
                                   c_path,
                                   "-lm",
                                   NULL};
        text output = {0};
        int code = 1;
        EXPECT(process_run(arguments, &output, &code, NULL) == QN_OK && code == 0);
        if (code) printf("%.2000s\n", text_get(&output));
        text_free(&output);
        void *library = dlopen(so_path, RTLD_NOW | RTLD_LOCAL);
        EXPECT(library);
        if (!library) continue;
        int failures = CALL(int, "check_all", (void))();
        EXPECT(failures == 0);
        if (failures) printf("%d failures with %s %s\n", failures, ways[w][0], ways[w][1]);
        check_scalars(library);
        dlclose(library);
    }
    text_free(&source);
    const char *arguments[] = {"rm", "-r", folder, NULL};
    int code = 1;
    EXPECT(process_run(arguments, NULL, &code, NULL) == QN_OK && !code);
}

TEST_MAIN(CASE(every_way))
