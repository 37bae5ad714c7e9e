/*
 * Launches: views of every kind on every device, what overlaps and what does not, and the whole texts of the errors
 * that a launch can give. SPDX-License-Identifier: MIT
 */
#include "run/workbench/check.h"
#include "test.h"

#include <stdlib.h>

static const char source[] =
    "kernel move(in T x[r][c], out T y[r][c], const int B = 8) launch (r, cdiv(c, B))\n"
    "{ y[program(0)][program(1) * B : B] = x[program(0)][program(1) * B : B]; }\n"
    "kernel add(in float a[n], in float b[n], out float c[n]) launch (1)\n"
    "{ c[:] = a[:] + b[:]; }\n"
    "kernel grow(inout float x[n], float by) launch (1)\n"
    "{ x[:] = x[:] + by; }\n"
    "kernel pairs(in float x[2 * K], out float y[K], const int K) launch (1)\n"
    "{ y[:] = x[0 : K : 2] + x[1 : K : 2]; }\n"
    "kernel even(in float x[n], out float y[n]) launch (1)\n"
    "{\n"
    "    assume(n % 16 == 0);\n"
    "    y[:] = x[:];\n"
    "}\n"
    "kernel two_types(in T x[n], in T y[n], out T z[n]) launch (1)\n"
    "{ z[:] = x[:] + y[:]; }\n"
    "kernel race(in float x[n], out float y[n]) launch (2)\n"
    "{ y[:] = x[:]; }\n"
    "kernel rows(in float x[r][c], out float y[r], scratch float part[r][P], const int P = 3) launch (r)\n"
    "{ part[program(0)][:] = 1; y[program(0)] = sum(x[program(0)][:]) + sum(part[program(0)][:]); }\n"
    "c raw_copy(in float x[n], out float y[n])\n"
    "\"\"\"\n"
    "void raw_copy(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = x[i]; }\n"
    "\"\"\"\n";

static qn_error error;
static qn_context *context;
static qn_module *module;

static const char *device_name(int number)
{
    return number ? "cpu" : "ref";
}

static int device_count(void)
{
    return 1 + !strcmp(qn_device_best(context), "cpu");
}

static qn_call *new_call(const char *kernel)
{
    qn_call *call = NULL;
    EXPECT(qn_call_new(module, kernel, &call, &error) == QN_OK);
    return call;
}

static void set(qn_call *call, const char *name, float *data, int rank, int64_t a, int64_t b, int64_t sa, int64_t sb)
{
    qn_status status =
        qn_call_set_memory(call, name, data, QN_F32, rank, (int64_t[]){a, b}, (int64_t[]){sa, sb}, &error);
    EXPECT(status == QN_OK);
    if (status) printf("%s\n", error.message);
}

static void run(qn_call *call, int device)
{
    qn_status status = qn_call_run(call, device_name(device), &error);
    EXPECT(status == QN_OK);
    if (status) printf("%s\n", error.message);
}

TEST(opening)
{
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true}, &context, &error) == QN_OK);
    qn_status status = qn_module_load_text(context, "launch.qn", source, &module, &error);
    EXPECT(status == QN_OK);
    if (status) printf("%s\n", error.message);
}

/* Each pair of layouts: what is read must be what is written, and nothing else. */
TEST(views)
{
    const struct {
        int64_t origin, row, column;
    } layouts[] = {
        {0, 5, 1},    /* row-major */
        {0, 1, 3},    /* Fortran */
        {1, 11, 2},   /* strided, unaligned */
        {10, -5, 1},  /* rows backwards */
        {14, -5, -1}, /* both backwards */
        {3, 20, 3},
    };
    for (int device = 0; device < device_count(); device++)
        for (int from = 0; from < COUNT(layouts) + 3; from++)
            for (int to = 0; to < COUNT(layouts); to++) {
                float x[64], y[64];
                for (int i = 0; i < 64; i++) {
                    x[i] = (float)(i + 1);
                    y[i] = -1;
                }
                int64_t origin = 0, row = 0, column = 0; /* the last three are broadcasts */
                if (from < COUNT(layouts)) {
                    origin = layouts[from].origin;
                    row = layouts[from].row;
                    column = layouts[from].column;
                } else {
                    row = from == COUNT(layouts) + 1;
                    column = from == COUNT(layouts) + 2;
                }
                qn_call *call = new_call("move");
                set(call, "x", x + origin, 2, 3, 5, row, column);
                set(call, "y", y + layouts[to].origin, 2, 3, 5, layouts[to].row, layouts[to].column);
                run(call, device);
                int touched = 0;
                for (int r = 0; r < 3; r++)
                    for (int c = 0; c < 5; c++)
                        EXPECT(y[layouts[to].origin + r * layouts[to].row + c * layouts[to].column] ==
                               x[origin + r * row + c * column]);
                for (int i = 0; i < 64; i++) touched += y[i] != -1;
                EXPECT(touched == 15);
                qn_call_free(call);
            }
}

TEST(every_type_moves)
{
    for (int device = 0; device < device_count(); device++)
        for (int t = QN_F32; t <= QN_BF16; t++) {
            unsigned char x[200], y[200] = {0};
            for (int i = 0; i < 200; i++) x[i] = (unsigned char)(i % 64); /* no NaN in any type */
            int64_t shape[] = {3, 7};
            qn_call *call = new_call("move");
            EXPECT(qn_call_set_memory(call, "x", x, (qn_dtype)t, 2, shape, NULL, &error) == QN_OK);
            EXPECT(qn_call_set_memory(call, "y", y, (qn_dtype)t, 2, shape, NULL, &error) == QN_OK);
            run(call, device);
            EXPECT(!memcmp(x, y, 21 * qn_dtype_size_bytes((qn_dtype)t)));
            qn_call_free(call);
        }
}

TEST(inout_and_scratch)
{
    for (int device = 0; device < device_count(); device++) {
        float x[6] = {1, 2, 3, 4, 5, 6};
        qn_call *call = new_call("grow");
        set(call, "x", x + 5, 1, 3, 0, -2, 0);
        EXPECT(qn_call_set_float(call, "by", 10, &error) == QN_OK);
        run(call, device);
        run(call, device);
        const float expected[] = {1, 22, 3, 24, 5, 26};
        EXPECT(!memcmp(x, expected, sizeof(x)));
        qn_call_free(call);
        call = new_call("rows");
        set(call, "x", x, 2, 2, 3, 3, 1);
        for (int i = 0; i < 2; i++) run(call, device);
        qn_array y = {0};
        EXPECT(qn_call_get(call, "y", &y, &error) == QN_OK);
        EXPECT(((float *)y.data)[0] == 29 && ((float *)y.data)[1] == 58);
        EXPECT(qn_call_get(call, "part", &y, &error) == QN_BAD_CALL);
        qn_call_free(call);
    }
}

static void refuse(qn_call *call, const char *expected)
{
    for (int device = 0; device < device_count(); device++) {
        EXPECT(qn_call_run(call, device_name(device), &error) == QN_BAD_CALL);
        EXPECT_TEXT(error.message, expected);
        const char *code = strstr(expected, "error E"), *place = strstr(expected, ".qn:");
        EXPECT(error.code == (code ? atoi(code + 7) : 0));
        EXPECT(error.line == (code && place && place < code ? atoi(place + 4) : 0));
    }
    qn_call_free(call);
}

TEST(errors)
{
    float x[64] = {0}, y[64] = {0};
    qn_call *call = new_call("add");
    set(call, "a", x, 1, 5, 0, 1, 0);
    set(call, "b", x, 1, 6, 0, 1, 0);
    refuse(call, "launch.qn:3:36: error E502: `n` is 5 in `a` and 6 in `b`\n"
                 "kernel add(in float a[n], in float b[n], out float c[n]) launch (1)\n"
                 "                                   ^\n"
                 "  give arrays whose shapes agree\n");
    call = new_call("add");
    set(call, "a", x, 1, 5, 0, 1, 0);
    set(call, "b", x, 1, 5, 0, 1, 0); /* two `in` may overlap */
    set(call, "c", x + 4, 1, 5, 0, 1, 0);
    refuse(call, "launch.qn:3:52: error E504: arrays `a` and `c` overlap\n"
                 "kernel add(in float a[n], in float b[n], out float c[n]) launch (1)\n"
                 "                                                   ^\n"
                 "  declare one `inout`, or give separate memory\n");
    call = new_call("pairs");
    set(call, "x", x, 1, 7, 0, 1, 0);
    EXPECT(qn_call_set_int(call, "K", 4, &error) == QN_OK);
    refuse(call, "launch.qn:7:8: error E502: axis 0 of `x` has extent 7, expected `2 * K` = 8\n"
                 "kernel pairs(in float x[2 * K], out float y[K], const int K) launch (1)\n"
                 "       ^~~~~\n"
                 "  give arrays whose shapes agree\n");
    call = new_call("even");
    set(call, "x", x, 1, 20, 0, 1, 0);
    refuse(call, "launch.qn:11:5: error E503: assume is false: n % 16 == 0 with n = 20\n"
                 "    assume(n % 16 == 0);\n"
                 "    ^\n"
                 "  call it with arguments for which this holds\n");
    call = new_call("grow");
    set(call, "x", x, 1, 20, 0, 1, 0);
    refuse(call, "launch.qn:5:8: error E505: scalar `by` is not given\n"
                 "kernel grow(inout float x[n], float by) launch (1)\n"
                 "       ^~~~\n"
                 "  set it by name, such as n = 1000\n");
    call = new_call("two_types");
    double wide[4] = {0};
    int64_t four = 4;
    set(call, "x", x, 1, 4, 0, 1, 0);
    EXPECT(qn_call_set_memory(call, "y", wide, QN_F64, 1, &four, NULL, &error) == QN_OK);
    EXPECT(qn_call_run(call, "ref", &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "E215") != NULL);
    qn_call_free(call);
    (void)y;
}

TEST(findings_are_told)
{
    float x[2] = {1, 2}, y[2];
    qn_call *call = new_call("race");
    set(call, "x", x, 1, 2, 0, 1, 0);
    set(call, "y", y, 1, 2, 0, 1, 0);
    EXPECT(qn_call_run(call, "ref", &error) == QN_FINDING);
    EXPECT(strstr(error.message, "R704") != NULL);
    qn_call_free(call);
}

TEST(raw_kernels)
{
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {0};
    qn_call *call = new_call("raw_copy");
    set(call, "x", x, 1, 8, 0, 1, 0);
    set(call, "y", y, 1, 8, 0, 1, 0);
    EXPECT(qn_call_run(call, "ref", &error) == QN_NO_DEVICE);
    EXPECT_TEXT(error.message, "raw kernel `raw_copy` is c text and runs on the device cpu, not on ref");
    if (device_count() == 2) {
        EXPECT(qn_call_run(call, "cpu", &error) == QN_BAD_CALL);
        EXPECT_TEXT(error.message, "raw kernel `raw_copy` would run its text as it is written; allow raw kernels for "
                                   "files you trust");
    }
    qn_call_free(call);
    qn_context *open;
    qn_module *own;
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .allow_raw = true}, &open, &error) == QN_OK);
    EXPECT(qn_module_load_text(open, "launch.qn", source, &own, &error) == QN_OK);
    if (device_count() == 2) {
        EXPECT(qn_call_new(own, "raw_copy", &call, &error) == QN_OK);
        set(call, "x", x, 1, 8, 0, 1, 0);
        set(call, "y", y, 1, 8, 0, 1, 0);
        run(call, 1);
        EXPECT(!memcmp(x, y, sizeof(x)));
        set(call, "x", x + 7, 1, 8, 0, -1, 0);
        EXPECT(qn_call_run(call, "cpu", &error) == QN_BAD_CALL);
        EXPECT(strstr(error.message, "error E501: array `x` of raw kernel `raw_copy` is not contiguous\n") != NULL);
        qn_call_free(call);
    }
    qn_module_free(own);
    qn_context_close(open);
}

/* A dump is a module too, and gives what the source gives. */
TEST(dumps_run)
{
    instance *found;
    qn_call *call = new_call("move");
    float x[15], y[15] = {0};
    for (int i = 0; i < 15; i++) x[i] = (float)i;
    set(call, "x", x, 2, 3, 5, 5, 1);
    EXPECT(call_instance(call, 1, &found, &error) == QN_OK);
    text dump = {0};
    tile_print(found->kernel, &dump);
    qn_module *again;
    qn_status status = qn_module_load_text(context, "move.tile", text_get(&dump), &again, &error);
    EXPECT(status == QN_OK);
    if (status) printf("%s\n%s\n", error.message, text_get(&dump));
    qn_call_free(call);
    if (status == QN_OK)
        for (int device = 0; device < device_count(); device++) {
            memset(y, 0, sizeof(y));
            EXPECT(qn_call_new(again, "move", &call, &error) == QN_OK);
            set(call, "x", x, 2, 3, 5, 5, 1);
            set(call, "y", y, 2, 3, 5, 5, 1);
            run(call, device);
            EXPECT(!memcmp(x, y, sizeof(x)));
            EXPECT(qn_call_set_int(call, "B", 4, &error) == QN_BAD_CALL);
            qn_call_free(call);
        }
    if (status == QN_OK) qn_module_free(again);
    text_free(&dump);
    EXPECT(qn_module_load_text(context, "broken.tile", "kernel f\nhead {\n  nonsense\n}\n", &again, &error) != QN_OK);
}

/* Marks of a dump are not believed: what was proved of another text may be false of this one. */
TEST(dumps_are_not_trusted)
{
    static const char words[] = "kernel peek file \"peek.qn\"\n"
                                "  param x in f32 [n]\n"
                                "  param y out f32 [n] initial 0\n"
                                "  param n extent i64\n"
                                "head {\n"
                                "  %1 = const 1 : i64\n"
                                "  launch 0 %1\n"
                                "}\n"
                                "phase {\n"
                                "  %2 = const 1000000000000 : i64\n"
                                "  %3 = const 1 : i64\n"
                                "  %4 = program 2 : i64\n"
                                "  %5 = load x[%2:%3 @0 safe] : f32[16]\n"
                                "  %6 = convert %4 : f32\n"
                                "  %7 = add %5, %6 : f32[16]\n"
                                "  store y[%4:%3 @0 safe] = %7\n"
                                "}\n";
    qn_module *again = NULL;
    qn_status status = qn_module_load_text(context, "peek.tile", words, &again, &error);
    EXPECT(status == QN_OK);
    if (status) printf("%s\n", error.message);
    for (int device = 1; device < device_count() && status == QN_OK; device++) {
        float x[5] = {1, 2, 3, 4, 5}, y[7] = {9, 9, 9, 9, 9, 9, 9};
        qn_call *call;
        EXPECT(qn_call_new(again, "peek", &call, &error) == QN_OK);
        set(call, "x", x, 1, 5, 0, 1, 0);
        set(call, "y", y, 1, 5, 0, 1, 0);
        run(call, device);
        for (int i = 0; i < 7; i++) EXPECT(y[i] == (i < 5 ? 0 : 9));
        qn_call_free(call);
    }
    if (again) qn_module_free(again);
}

/* Advice that fits the mistake; 64-bit patterns; division by zero in a setting. */
TEST(advice)
{
    static const char words[] = "kernel swap(inout float a[n], inout float b[n]) launch (n)\n"
                                "{\n    float x = a[program(0)];\n    a[program(0)] = b[program(0)];\n"
                                "    b[program(0)] = x;\n}\n"
                                "kernel less(out T y[n], int k) launch (n - k)\n{\n    y[program(0)] = 1;\n}\n"
                                "kernel hash(in u64 x[n], out u64 y[n], out u64 z[n]) launch (n)\n{\n"
                                "    y[program(0)] = x[program(0)] * 0x9E3779B97F4A7C15;\n"
                                "    z[program(0)] = 0xFFFFFFFFFFFFFFFF;\n}\n";
    qn_module *own = NULL;
    qn_call *call;
    float x[64] = {0};
    EXPECT(qn_module_load_text(context, "advice.qn", words, &own, &error) == QN_OK);
    EXPECT(qn_call_new(own, "swap", &call, &error) == QN_OK);
    set(call, "a", x, 1, 5, 0, 1, 0);
    set(call, "b", x, 1, 5, 0, 1, 0);
    EXPECT(qn_call_run(call, "ref", &error) == QN_BAD_CALL && strstr(error.message, "E504"));
    EXPECT(strstr(error.message, "\n  give separate memory\n") != NULL);
    qn_call_free(call);

    EXPECT(qn_call_new(own, "less", &call, &error) == QN_OK);
    EXPECT(qn_call_set_text(call, "n", "10 / 0", &error) == QN_BAD_CALL && strstr(error.message, "division by zero"));
    EXPECT(qn_call_set_text(call, "T", "bfloat16", &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "the types are f32, f64, f16, bf16,") && !strstr(error.message, "did you mean"));
    EXPECT(qn_call_set_text(call, "T", "f8e5m2", &error) == QN_BAD_CALL && strstr(error.message, "no device supports"));
    EXPECT(qn_call_set_int(call, "m", 5, &error) == QN_BAD_CALL && strstr(error.message, "its names are"));
    EXPECT(qn_call_set_int(call, "n", 5, &error) == QN_OK && qn_call_set_int(call, "k", 7, &error) == QN_OK);
    EXPECT(qn_call_run(call, "ref", &error) == QN_BAD_CALL && strstr(error.message, "launch of -2 programs"));
    EXPECT(strstr(error.message, "\n  check the sizes that the launch is computed from\n") != NULL);
    EXPECT(qn_call_set_int(call, "k", -((int64_t)1 << 40), &error) == QN_OK);
    EXPECT(qn_call_run(call, "ref", &error) == QN_BAD_CALL && strstr(error.message, "E505"));
    EXPECT(qn_call_set_int(call, "k", -1000000000000, &error) == QN_OK);
    EXPECT(qn_call_run(call, "ref", &error) == QN_FAILED &&
           strstr(error.message, "advice.qn:7:32: a launch of 1000000"));
    qn_call_free(call);

    for (int device = 0; device < device_count(); device++) {
        uint64_t from[3] = {1, 5, UINT64_MAX}, to[3] = {0}, ones[3] = {0};
        int64_t three = 3;
        EXPECT(qn_call_new(own, "hash", &call, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "x", from, QN_U64, 1, &three, NULL, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "y", to, QN_U64, 1, &three, NULL, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "z", ones, QN_U64, 1, &three, NULL, &error) == QN_OK);
        run(call, device);
        for (int i = 0; i < 3; i++) EXPECT(to[i] == from[i] * UINT64_C(0x9E3779B97F4A7C15) && ones[i] == UINT64_MAX);
        qn_call_free(call);
    }
    qn_module_free(own);
}

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* The dump after every pass can be fed back and gives the same; one that was specialised says what it assumes. */
TEST(every_stage_runs)
{
    const char *const settings[] = {"rows=6", "cols=48", "T=f32"};
    static _Alignas(64) float x[6 * 64], y[6 * 64], expected[6 * 64];
    for (int i = 0; i < 6 * 64; i++) x[i] = (float)(i % 17) - 8;
    int refused_dumps = 0, first = 0;
    while (strcmp(qn_stage_name(first, NULL), "tile") != 0) first++;
    for (int stage = first; strcmp(qn_stage_name(stage, NULL), "c") != 0; stage++) { /* what follows is no tile IR */
        text dump = {0};
        qn_show_options options = {.stage = qn_stage_name(stage, NULL), .settings = {settings, 3}};
        qn_status status =
            qn_show(context, QUERN_ROOT "/kernels/softmax.qn", "softmax_row", &options, collect, &dump, &error);
        EXPECT(status == QN_OK);
        qn_module *again = NULL;
        if (status == QN_OK) status = qn_module_load_text(context, "dump.tile", text_get(&dump), &again, &error);
        EXPECT(status == QN_OK);
        if (status) printf("%s: %s\n", qn_stage_name(stage, NULL), error.message);
        for (int device = 0; status == QN_OK && device < device_count(); device++) {
            qn_call *call;
            EXPECT(qn_call_new(again, "softmax_row", &call, &error) == QN_OK);
            set(call, "x", x, 2, 6, 48, 48, 1);
            set(call, "y", y, 2, 6, 48, 48, 1);
            memset(y, 0, sizeof(y));
            run(call, device);
            if (stage == first && !device) memcpy(expected, y, sizeof(y));
            for (int i = 0; i < 6 * 48; i++) EXPECT_NEAR(y[i], expected[i], 1e-6);
            set(call, "x", x, 2, 6, 48, 64, 1); /* not what the dump was specialised for */
            if (qn_call_run(call, device_name(device), &error) == QN_BAD_CALL) {
                refused_dumps++;
                EXPECT(strstr(error.message, "error E503: this dump was specialised: it assumes that `x` is ") != NULL);
            }
            qn_call_free(call);
        }
        qn_module_free(again);
        text_free(&dump);
    }
    EXPECT(device_count() == 1 || refused_dumps > 0);
}

TEST(closing)
{
    qn_module_free(module);
    qn_context_close(context);
}

TEST_MAIN(CASE(opening), CASE(views), CASE(every_type_moves), CASE(inout_and_scratch), CASE(errors),
          CASE(findings_are_told), CASE(raw_kernels), CASE(dumps_run), CASE(dumps_are_not_trusted), CASE(advice),
          CASE(every_stage_runs), CASE(closing))
