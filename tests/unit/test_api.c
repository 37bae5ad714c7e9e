/*
 * The public interface, call by call: what it gives, what it refuses and in which words, and that several threads may
 * share one context. Devices: ref always, cpu where there is a compiler.
 * SPDX-License-Identifier: MIT
 */
#include "quiet.h"

#include <pthread.h>
#include <quern/tensor.h>
#include <quern/workbench.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static const char source[] =
    "kernel twice(in T x[n], out T y[n], const int B = 64) launch (cdiv(n, B))\n"
    "{ y[program(0) * B : B] = 2 * x[program(0) * B : B]; }\n"
    "kernel scale(in float x[n], out float y[n], float by, const int B = 64) launch (cdiv(n, B))\n"
    "{ y[program(0) * B : B] = by * x[program(0) * B : B]; }\n"
    "float cube(float x) { return x * x * x; }\n"
    "kernel apply(in float x[n], out float y[n], const float act(float) = relu, const int B = 64) launch (cdiv(n, B))\n"
    "{ y[program(0) * B : B] = act(x[program(0) * B : B]); }\n"
    "kernel total(in float x[n], out float y = 0, const int B = 64) launch (cdiv(n, B))\n"
    "{ atomic_add(y, sum(x[program(0) * B : B])); }\n"
    "kernel speak(in float x[n], out float y[n]) launch (1)\n"
    "{ y[:] = x[:]; print(\"n is {}\", n); }\n"
    "kernel fail(in float x[n], out float y[n]) launch (1)\n"
    "{ y[:] = x[:]; assert(n < 3, \"too many\"); }\n";

static qn_error error;
static qn_context *context;
static qn_module *module;

static bool has_cpu(void)
{
    return !strcmp(qn_device_best(context), "cpu");
}

static qn_call *new_call(const char *kernel)
{
    qn_call *call = NULL;
    EXPECT(qn_call_new(module, kernel, &call, &error) == QN_OK);
    return call;
}

static void set_floats(qn_call *call, const char *name, float *data, int64_t count)
{
    EXPECT(qn_call_set_memory(call, name, data, QN_F32, 1, &count, NULL, &error) == QN_OK);
}

TEST(names)
{
    EXPECT_TEXT(qn_version(), QN_VERSION);
    EXPECT_TEXT(qn_dtype_name(QN_BF16), "bf16");
    EXPECT_TEXT(qn_dtype_name((qn_dtype)99), "unknown type");
    qn_dtype type;
    EXPECT(qn_dtype_from_name("double", &type) && type == QN_F64);
    EXPECT(qn_dtype_from_name("u16", &type) && type == QN_U16);
    EXPECT(!qn_dtype_from_name("quad", &type) && !qn_dtype_from_name(NULL, &type));
    EXPECT(qn_dtype_size_bytes(QN_F16) == 2 && qn_dtype_size_bytes(QN_BOOL) == 1 &&
           qn_dtype_size_bytes((qn_dtype)-1) == 0);
    EXPECT_TEXT(qn_status_name(QN_FINDING), "finding");
}

TEST(opening)
{
    qn_context *other;
    EXPECT(qn_context_open(&(qn_context_options){.threads = -1}, &other, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "qn_context_open: -1 threads; give 0 for all cores");
    EXPECT(other == NULL);
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true}, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "api.qn", source, &module, &error) == QN_OK);
    if (!module) printf("%s\n", error.message);
    qn_context_close(NULL);
    qn_module_free(NULL);
    qn_call_free(NULL);
    qn_buffer_release(NULL);
}

TEST(devices)
{
    bool ref = false;
    for (int i = 0; i < qn_device_count(context); i++) {
        qn_device_info info;
        qn_device_get(context, i, &info);
        EXPECT(info.name[0] && info.description[0]);
        if (!strcmp(info.name, "ref")) ref = info.available;
    }
    EXPECT(ref);
    qn_device_info none;
    qn_device_get(context, 99, &none);
    EXPECT_TEXT(none.name, "");
}

TEST(modules)
{
    qn_module *bad = (qn_module *)1;
    EXPECT(qn_module_load_text(context, "bad.qn", "kernel f(in float x[n], out float y[n])\n{ y[:] = z; }\n", &bad,
                               &error) == QN_BAD_SOURCE);
    EXPECT(bad == NULL && strstr(error.message, "bad.qn:") && strstr(error.message, "E109"));
    const char *absent = absent_path("file.qn");
    char expected[200];
    snprintf(expected, sizeof(expected), "cannot open %s: No such file or directory", absent);
    EXPECT(qn_module_load_file(context, absent, &bad, &error) == QN_BAD_FILE);
    EXPECT_TEXT(error.message, expected);
    EXPECT(qn_module_load_text(context, "none.qn", NULL, &bad, &error) == QN_BAD_CALL);
    EXPECT(qn_module_kernel_count(module) == 6);
    EXPECT_TEXT(qn_module_kernel_name(module, 1), "scale");
    EXPECT_TEXT(qn_module_kernel_name(module, 6), "");
    EXPECT_TEXT(qn_module_warnings(module), "");
    EXPECT(qn_kernel_param_count(module, "scale") == 4 && qn_kernel_param_count(module, "scales") == -1);
    qn_param p;
    EXPECT(qn_kernel_param(module, "scale", 2, &p, &error) == QN_OK);
    EXPECT(!strcmp(p.name, "by") && !strcmp(p.type, "float") && p.kind == QN_PARAM_SCALAR && p.rank == -1);
    EXPECT(qn_kernel_param(module, "twice", 0, &p, &error) == QN_OK);
    EXPECT(!strcmp(p.type, "T") && p.kind == QN_PARAM_IN && p.rank == 1);
    EXPECT(qn_kernel_param(module, "twice", 2, &p, &error) == QN_OK);
    EXPECT(p.kind == QN_PARAM_CONST);
    EXPECT(qn_kernel_param(module, "twice", 3, &p, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "kernel `twice` has no parameter number 3");
    qn_call *call;
    EXPECT(qn_call_new(module, "twise", &call, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "api.qn has no kernel `twise`; did you mean `twice`?");
    EXPECT(qn_call_new(module, "cube", &call, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "api.qn: `cube` is not a kernel");
    EXPECT(qn_call_new(module, "something_else", &call, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "api.qn has no kernel `something_else`");
}

/* The first line of the last message. */
static const char *first_line(void)
{
    static char line[600];
    snprintf(line, sizeof(line), "%.*s", (int)strcspn(error.message, "\n"), error.message);
    return line;
}

TEST(settings)
{
    qn_call *call = new_call("scale");
    float x[4] = {0};
    int64_t n = 4, shape[2] = {2, 2}, negative = -1;
    EXPECT(qn_call_set_int(call, "m", 3, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "error E505: kernel `scale` has no setting `m`\n") != NULL);
    EXPECT(qn_call_set_int(call, "bye", 3, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "\n  did you mean `by`?\n") != NULL);
    EXPECT(qn_call_set_int(call, "n", -2, &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E505: extent `n` is -2") != NULL);
    EXPECT(qn_call_set_int(call, "x", 3, &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E505: `x` of kernel `scale` is an array, not a number") != NULL);
    EXPECT(qn_call_set_float(call, "n", 2.5, &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E505: `n` of kernel `scale` is an extent, not a float") != NULL);
    EXPECT(qn_call_set_float(call, "n", 2, &error) == QN_OK);
    EXPECT(qn_call_set_type(call, "by", QN_F32, &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E505: `by` of kernel `scale` is a float, not a type") != NULL);
    EXPECT(qn_call_set_function(call, "by", "relu", &error) == QN_BAD_CALL);
    EXPECT(qn_call_set_text(call, "by", "1 +", &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E505: `1 +` of `by` is not a number") != NULL);
    EXPECT(qn_call_set_text(call, "by", "q * 2", &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E505: `by = q * 2` needs `q`, which is not set") != NULL);
    EXPECT(qn_call_set_text(call, "by", " ", &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "setting `by` has no value; write by=VALUE");
    EXPECT(qn_call_set_text(call, "B", "1 << 4", &error) == QN_OK);
    EXPECT(qn_call_set_text(call, "by", "1.0 / 4", &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 2, shape, NULL, &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E501: array `x` has 2 axes, the parameter has 1") != NULL);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F64, 1, &n, NULL, &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E501: array `x` has elements of type f64, the parameter is f32") != NULL);
    EXPECT(qn_call_set_memory(call, "x", NULL, QN_F32, 1, &n, NULL, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "array `x` has elements but its memory is NULL");
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 1, &negative, NULL, &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E502: axis 0 of `x` has extent -1") != NULL);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 9, &n, NULL, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "array `x`: 9 axes; give 0 to 8 with their extents");
    EXPECT(qn_call_set_memory(call, "by", x, QN_F32, 1, &n, NULL, &error) == QN_BAD_CALL);
    int64_t huge = INT64_MAX / 2, stride = INT64_MAX / 2;
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 1, &huge, &stride, &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E502: the extents and strides of `x` do not fit in memory") != NULL);
    qn_array array;
    EXPECT(qn_call_get(call, "y", &array, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "array `y` is there after a run, or once it is set");
    qn_call_free(call);

    call = new_call("twice");
    EXPECT(qn_call_set_text(call, "T", "flot", &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "did you mean `float`?") != NULL);
    EXPECT(qn_call_set_int(call, "T", 1, &error) == QN_BAD_CALL);
    EXPECT(qn_call_set_text(call, "T", "bf16", &error) == QN_OK);
    qn_call_free(call);
}

static void run_twice(const char *device)
{
    float x[5] = {1, 2, 3, 4, 5}, y[5] = {0};
    qn_call *call = new_call("twice");
    set_floats(call, "x", x, 5);
    set_floats(call, "y", y, 5);
    EXPECT(qn_call_run(call, device, &error) == QN_OK);
    for (int i = 0; i < 5; i++) EXPECT(y[i] == 2 * x[i]);
    qn_call_free(call);
}

TEST(running)
{
    run_twice("ref");
    if (has_cpu()) run_twice("cpu");
    run_twice(NULL);
    qn_call *call = new_call("twice");
    EXPECT(qn_call_run(call, "cpo", &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "unknown device `cpo`; did you mean `cpu`?");
    EXPECT(qn_call_run(call, "ref", &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E505: array `x` of kernel `twice` is not given") != NULL);
    qn_call_free(call);
}

/* Outputs that were not given are allocated, and read back with qn_call_get. */
TEST(allocated_outputs)
{
    for (int d = 0; d < 1 + has_cpu(); d++) {
        float x[7] = {1, 2, 3, 4, 5, 6, 7};
        qn_call *call = new_call("scale");
        set_floats(call, "x", x, 7);
        EXPECT(qn_call_run(call, d ? "cpu" : "ref", &error) == QN_BAD_CALL);
        EXPECT(strstr(error.message, "E505") && strstr(error.message, "`by`"));
        EXPECT(qn_call_set_float(call, "by", 0.5, &error) == QN_OK);
        EXPECT(qn_call_run(call, d ? "cpu" : "ref", &error) == QN_OK);
        qn_array y = {0};
        EXPECT(qn_call_get(call, "y", &y, &error) == QN_OK);
        EXPECT(y.rank == 1 && y.extents[0] == 7 && y.strides[0] == 1 && y.type == QN_F32);
        EXPECT(y.data && ((float *)y.data)[6] == 3.5f);
        set_floats(call, "x", x, 3); /* a new size, the same call */
        EXPECT(qn_call_run(call, d ? "cpu" : "ref", &error) == QN_OK);
        EXPECT(qn_call_get(call, "y", &y, &error) == QN_OK && y.extents[0] == 3);
        int64_t none = 0;
        EXPECT(qn_call_set_memory(call, "x", NULL, QN_F32, 1, &none, NULL, &error) == QN_OK);
        EXPECT(qn_call_run(call, d ? "cpu" : "ref", &error) == QN_OK);
        EXPECT(qn_call_get(call, "y", &y, &error) == QN_OK && y.extents[0] == 0 && y.data);
        qn_timing timing;
        qn_call_timing(call, &timing);
        EXPECT(timing.kernel_ns > 0 && timing.compile_ns >= 0);
        qn_call_free(call);
    }
}

/* Initial values are there again at every run. */
TEST(initial_values)
{
    for (int d = 0; d < 1 + has_cpu(); d++) {
        float x[100];
        for (int i = 0; i < 100; i++) x[i] = 1;
        qn_call *call = new_call("total");
        set_floats(call, "x", x, 100);
        for (int run = 0; run < 3; run++) {
            EXPECT(qn_call_run(call, d ? "cpu" : "ref", &error) == QN_OK);
            qn_array y = {0};
            EXPECT(qn_call_get(call, "y", &y, &error) == QN_OK);
            EXPECT(y.rank == 0 && *(float *)y.data == 100);
        }
        qn_call_free(call);
    }
}

TEST(function_constants)
{
    float x[3] = {-2, 0, 3}, y[3];
    qn_call *call = new_call("apply");
    set_floats(call, "x", x, 3);
    set_floats(call, "y", y, 3);
    EXPECT(qn_call_run(call, NULL, &error) == QN_OK && y[0] == 0 && y[2] == 3);
    EXPECT(qn_call_set_function(call, "act", "cube", &error) == QN_OK);
    EXPECT(qn_call_run(call, NULL, &error) == QN_OK && y[0] == -8 && y[2] == 27);
    EXPECT(qn_call_set_text(call, "act", "abs", &error) == QN_OK);
    EXPECT(qn_call_run(call, NULL, &error) == QN_OK && y[0] == 2 && y[2] == 3);
    EXPECT(qn_call_set_function(call, "act", "cubes", &error) == QN_OK);
    EXPECT(qn_call_run(call, NULL, &error) != QN_OK && strstr(error.message, "`act` needs the name of a function"));
    qn_call_free(call);
}

static int deleted;
static void count_deletes(void *user, void *data)
{
    deleted += *(int *)user;
    (void)data;
}

TEST(buffers)
{
    qn_buffer *own, *wrapped;
    int step = 7;
    EXPECT(qn_buffer_new(context, 64, &own, &error) == QN_OK);
    EXPECT((uintptr_t)qn_buffer_data(own) % 64 == 0 && qn_buffer_size_bytes(own) == 64);
    EXPECT(((float *)qn_buffer_data(own))[15] == 0);
    float memory[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    EXPECT(qn_buffer_wrap(context, memory, sizeof(memory), count_deletes, &step, &wrapped, &error) == QN_OK);
    qn_buffer *none;
    EXPECT(qn_buffer_wrap(context, NULL, 4, NULL, NULL, &none, &error) == QN_BAD_CALL && none == NULL);
    EXPECT_TEXT(error.message, "qn_buffer_wrap: 4 bytes at NULL");
    qn_call *call = new_call("twice");
    int64_t n = 4, minus = -1;
    EXPECT(qn_call_set_buffer(call, "x", wrapped, 7, QN_F32, 1, &n, &minus, &error) == QN_OK);
    EXPECT(qn_call_set_buffer(call, "y", own, 1, QN_F32, 1, &n, NULL, &error) == QN_OK);
    qn_buffer_release(wrapped); /* the call still holds it */
    EXPECT(deleted == 0);
    EXPECT(qn_call_run(call, "ref", &error) == QN_OK);
    const float *y = qn_buffer_data(own);
    EXPECT(y[0] == 0 && y[1] == 16 && y[4] == 10 && y[5] == 0);
    EXPECT(qn_call_set_buffer(call, "y", own, 13, QN_F32, 1, &n, NULL, &error) == QN_BAD_CALL);
    EXPECT(strstr(first_line(), "error E502: array `y` needs bytes 52 to 68 of a buffer of 64") != NULL);
    EXPECT(qn_call_set_buffer(call, "y", own, 2, QN_F32, 1, &n, &minus, &error) == QN_BAD_CALL);
    EXPECT(qn_call_set_buffer(call, "y", own, 100, QN_F32, 1, &n, NULL, &error) == QN_BAD_CALL);
    qn_call_free(call);
    EXPECT(deleted == 7);
    qn_buffer_release(own);
}

static char printed[400];
static void keep_line(void *user, const char *line)
{
    (void)user;
    snprintf(printed, sizeof(printed), "%s", line);
}

TEST(printing_and_asserting)
{
    qn_context *loud;
    qn_module *own;
    qn_call *call;
    EXPECT(qn_context_open(&(qn_context_options){.print = keep_line, .no_cache = true}, &loud, &error) == QN_OK);
    EXPECT(qn_module_load_text(loud, "api.qn", source, &own, &error) == QN_OK);
    for (int d = 0; d < 1 + has_cpu(); d++) {
        float x[4] = {0};
        printed[0] = 0;
        EXPECT(qn_call_new(own, "speak", &call, &error) == QN_OK);
        set_floats(call, "x", x, 4);
        EXPECT(qn_call_run(call, d ? "cpu" : "ref", &error) == QN_OK);
        EXPECT(strstr(printed, "n is 4") != NULL);
        qn_call_free(call);
        EXPECT(qn_call_new(own, "fail", &call, &error) == QN_OK);
        set_floats(call, "x", x, 2);
        EXPECT(qn_call_run(call, d ? "cpu" : "ref", &error) == QN_OK);
        set_floats(call, "x", x, 4);
        EXPECT(qn_call_run(call, d ? "cpu" : "ref", &error) == QN_FAILED);
        EXPECT(strstr(error.message, "E507") && strstr(error.message, "too many"));
        set_floats(call, "x", x, 2); /* the device stays usable */
        EXPECT(qn_call_run(call, d ? "cpu" : "ref", &error) == QN_OK);
        qn_call_free(call);
    }
    qn_module_free(own);
    qn_context_close(loud);
}

TEST(generated_inputs)
{
    float first[1000];
    qn_call *call = new_call("twice");
    EXPECT(qn_call_set_int(call, "n", 1000, &error) == QN_OK);
    EXPECT(qn_call_generate(call, 7, &error) == QN_OK);
    qn_array x = {0}, y = {0};
    EXPECT(qn_call_get(call, "x", &x, &error) == QN_OK && x.extents[0] == 1000);
    if (!x.data) {
        printf("%s\n", error.message);
        return;
    }
    memcpy(first, x.data, sizeof(first));
    double sum = 0, squares = 0;
    for (int i = 0; i < 1000; i++) {
        sum += first[i];
        squares += first[i] * first[i];
    }
    EXPECT_NEAR(sum / 1000, 0, 0.1);
    EXPECT_NEAR(squares / 1000, 1, 0.15);
    EXPECT(qn_call_run(call, NULL, &error) == QN_OK);
    EXPECT(qn_call_get(call, "y", &y, &error) == QN_OK);
    EXPECT(((float *)y.data)[999] == 2 * first[999]);
    EXPECT(qn_call_set_int(call, "n", 500, &error) == QN_OK); /* another size: the same numbers, as far as they go */
    EXPECT(qn_call_generate(call, 7, &error) == QN_OK);
    EXPECT(qn_call_get(call, "x", &x, &error) == QN_OK && x.extents[0] == 500);
    EXPECT(!memcmp(x.data, first, 500 * sizeof(float)));
    EXPECT(qn_call_generate(call, 8, &error) == QN_OK);
    EXPECT(qn_call_get(call, "x", &x, &error) == QN_OK && memcmp(x.data, first, 500 * sizeof(float)));
    qn_call_free(call);
    call = new_call("twice");
    EXPECT(qn_call_generate(call, 7, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "E505") && strstr(error.message, "`n`"));
    qn_call_free(call);
}

/* Four threads, fifty launches each, of several kernels and sizes on one context. */
typedef struct worker {
    int number, wrong;
    const char *device;
} worker;

static void *work(void *context_of_thread)
{
    worker *w = context_of_thread;
    qn_error own;
    float x[300], y[300];
    qn_call *twice, *scale;
    if (qn_call_new(module, "twice", &twice, &own) || qn_call_new(module, "scale", &scale, &own)) {
        w->wrong = 1000;
        return NULL;
    }
    for (int run = 0; run < 50; run++) {
        int64_t n = 1 + (run * 37 + w->number * 11) % 300;
        qn_call *call = run % 2 ? twice : scale;
        float by = run % 2 ? 2 : (float)run;
        for (int i = 0; i < n; i++) x[i] = (float)(i + w->number);
        if (!(run % 2) && qn_call_set_float(call, "by", by, &own)) w->wrong++;
        if (qn_call_set_int(call, "B", run % 3 ? 64 : 16, &own)) w->wrong++;
        if (qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &own)) w->wrong++;
        if (qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &own)) w->wrong++;
        if (qn_call_run(call, w->device, &own)) w->wrong++;
        for (int i = 0; i < n; i++) w->wrong += y[i] != by * x[i];
    }
    qn_call_free(twice);
    qn_call_free(scale);
    return NULL;
}

TEST(threads)
{
    pthread_t threads[4];
    worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.number = i, .device = i == 3 || !has_cpu() ? "ref" : "cpu"};
        EXPECT(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        EXPECT(workers[i].wrong == 0);
    }
}

TEST(closing)
{
    qn_module_free(module);
    qn_context_close(context);
}

/* Memory that no element of its type can begin at: refused, at every place where memory comes in. */
TEST(misaligned_memory)
{
    static _Alignas(16) char bytes[64];
    int64_t n = 4;
    qn_context *own;
    qn_module *mine = NULL;
    qn_call *call = NULL;
    qn_buffer *buffer = NULL;
    qn_tape *tape = NULL;
    EXPECT(qn_context_open(NULL, &own, &error) == QN_OK);
    EXPECT(qn_module_load_text(own, "a.qn", source, &mine, &error) == QN_OK);
    EXPECT(qn_call_new(mine, "scale", &call, &error) == QN_OK);
    for (int offset = 1; offset < 4; offset++) {
        EXPECT(qn_call_set_memory(call, "x", bytes + offset, QN_F32, 1, &n, NULL, &error) == QN_BAD_CALL);
        EXPECT(strstr(error.message, "array `x` of f32 does not begin at a multiple of 4 bytes"));
        EXPECT(qn_buffer_wrap(own, bytes + offset, 32, NULL, NULL, &buffer, &error) == QN_OK);
        EXPECT(qn_call_set_buffer(call, "x", buffer, 0, QN_F32, 1, &n, NULL, &error) == QN_BAD_CALL);
        EXPECT(strstr(error.message, "does not begin at a multiple of 4 bytes"));
        EXPECT(qn_tape_new(own, "ref", &tape, &error) == QN_OK);
        EXPECT(!qn_tensor_valid(qn_wrap_memory(tape, bytes + offset, QN_F32, QN_SHAPE(4), NULL, NULL, NULL)));
        EXPECT(qn_tape_error(tape, &error) == QN_BAD_CALL);
        EXPECT(strstr(error.message, "the data does not begin at a multiple of 4 bytes, the size of f32"));
        EXPECT(!qn_tensor_valid(qn_from_buffer(tape, buffer, 0, QN_F32, QN_SHAPE(4), NULL)));
        EXPECT(qn_tape_error(tape, &error) == QN_BAD_CALL);
        EXPECT(strstr(error.message, "the buffer does not begin at a multiple of 4 bytes, the size of f32"));
        EXPECT(qn_tensor_valid(qn_from_buffer(tape, buffer, 0, QN_I8, QN_SHAPE(4), NULL))); /* bytes begin anywhere */
        qn_tape_free(tape);
        qn_buffer_release(buffer);
    }
    EXPECT(qn_call_set_memory(call, "x", bytes + 4, QN_F32, 1, &n, NULL, &error) == QN_OK);
    qn_call_free(call);
    qn_module_free(mine);
    qn_context_close(own);
}

TEST_MAIN(CASE(names), CASE(opening), CASE(devices), CASE(modules), CASE(settings), CASE(running),
          CASE(allocated_outputs), CASE(initial_values), CASE(function_constants), CASE(buffers),
          CASE(printing_and_asserting), CASE(generated_inputs), CASE(threads), CASE(misaligned_memory), CASE(closing))
