/*
 * The `cuda` device where things go wrong, on the driver in tests/fake, which fails on demand: no driver, no GPU, too
 * old, no memory, a fault, a lost device, damaged binaries; and what a GPU machine may have besides: two GPUs, a context
 * and a stream of the host program, QUERN_SYNC. test_gpu.c has what works.
 * SPDX-License-Identifier: MIT
 */
#include "fake/open.h"
#include "quiet.h"

#include "device/cuda/api.h"

#include <dirent.h>
#include <pthread.h>
#include <quern/device.h>
#include <quern/nn.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <unistd.h>

static qn_error error;
static char cache_folder[64];
static void (*fake_reset)(void);
static void (*fake_order)(const char *function, int result, int after);
static int64_t (*fake_count)(const char *function);
static void (*fake_memory)(size_t limit_bytes);

static const char source[] = "kernel twice(in float x[n], out float y[n])\n"
                             "    launch (cdiv(n, 64))\n"
                             "{\n"
                             "    y[program(0) * 64 : 64] = 2 * x[program(0) * 64 : 64];\n"
                             "}\n"
                             "kernel thrice(in float x[n], out float y[n])\n"
                             "    launch (cdiv(n, 64))\n"
                             "{\n"
                             "    y[program(0) * 64 : 64] = 3 * x[program(0) * 64 : 64];\n"
                             "}\n"
                             "kernel product(in bf16 a[M][K], in bf16 b[K][N], out float c[M][N])\n"
                             "    launch (cdiv(M, 64), cdiv(N, 64))\n"
                             "{\n"
                             "    int i = program(0) * 64, j = program(1) * 64;\n"
                             "    tile float sums[64][64] = 0;\n"
                             "    for (int k = 0; k < K; k += 64) sums += dot(a[i : 64][k : 64], b[k : 64][j : 64]);\n"
                             "    c[i : 64][j : 64] = sums;\n"
                             "}\n"
                             "cuda shared_much(in float x[n], out float y[n])\n"
                             "    launch (1) block (32) shared (n)\n"
                             "\"\"\"\n"
                             "extern \"C\" __global__ void shared_much(const float *x, float *y, long n) {}\n"
                             "\"\"\"\n";

#define OK(call)                           \
    do {                                   \
        if ((call) != QN_OK) {             \
            printf("%s\n", error.message); \
            EXPECT(!"success of " #call);  \
        }                                  \
    } while (0)

static qn_context *open_context(void)
{
    qn_context *context = NULL;
    qn_context_options options = {.allow_raw = true, .cache_folder = cache_folder};
    OK(qn_context_open(&options, &context, &error));
    return context;
}

static qn_module *open_module(qn_context *context)
{
    qn_module *module = NULL;
    OK(qn_module_load_text(context, "fake.qn", source, &module, &error));
    return module;
}

static qn_call *new_call(qn_module *module, const char *kernel, float *x, float *y, const int64_t *n)
{
    qn_call *call = NULL;
    OK(qn_call_new(module, kernel, &call, &error));
    OK(qn_call_set_memory(call, "x", x, QN_F32, 1, n, NULL, &error));
    OK(qn_call_set_memory(call, "y", y, QN_F32, 1, n, NULL, &error));
    return call;
}

TEST(open_fake)
{
    void *library = fake_open();
    fake_find(library, "fake_reset", &fake_reset);
    fake_find(library, "fake_order", &fake_order);
    fake_find(library, "fake_count", &fake_count);
    fake_find(library, "fake_memory", &fake_memory);
    snprintf(cache_folder, sizeof(cache_folder), "/tmp/quern-test-cuda-XXXXXX");
    EXPECT(mkdtemp(cache_folder) != NULL);
}

/* A launch that is repeated with arrays elsewhere: its tensor maps are of the new ones. */
TEST(tensor_maps_follow_their_arrays)
{
    enum { SIZE = 64 };
    int64_t shape[2] = {SIZE, SIZE};
    fake_reset();
    qn_context *context = open_context();
    qn_module *module = open_module(context);
    qn_buffer *buffers[2][3];
    qn_stream *stream = NULL;
    qn_call *call = NULL;
    uint16_t operands[2] = {0x3f80, 0x4000}; /* 1, 2 */
    OK(qn_stream_new(context, "cuda", &stream, &error));
    OK(qn_call_new(module, "product", &call, &error));
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < 3; i++) {
            uint16_t numbers[SIZE * SIZE];
            for (int k = 0; k < SIZE * SIZE; k++) numbers[k] = operands[turn];
            OK(qn_buffer_new_on(context, "cuda", SIZE * SIZE * 4, &buffers[turn][i], &error));
            if (i < 2) OK(qn_buffer_write(buffers[turn][i], 0, numbers, sizeof(numbers), NULL, &error));
        }
    static const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++)
        OK(qn_call_set_memory(call, names[i], qn_buffer_data(buffers[0][i]), i < 2 ? QN_BF16 : QN_F32, 2, shape, NULL,
                              &error));
    for (int turn = 0; turn < 2; turn++) {
        float out[SIZE * SIZE] = {0};
        void *addresses[3];
        for (int i = 0; i < 3; i++) addresses[i] = qn_buffer_data(buffers[turn][i]);
        if (turn) OK(qn_call_move(call, (int[]){0, 1, 2}, addresses, 3, &error));
        OK(qn_call_launch(call, stream, &error));
        OK(qn_stream_wait(stream, &error));
        OK(qn_buffer_read(buffers[turn][2], 0, out, sizeof(out), NULL, &error));
        int bad = 0;
        for (int k = 0; k < SIZE * SIZE; k++) bad += out[k] != (turn ? 4 * SIZE : SIZE);
        EXPECT(!bad);
    }
    EXPECT(fake_count("cuTensorMapEncodeTiled") == 6);
    qn_call_free(call);
    qn_stream_free(stream);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < 3; i++) qn_buffer_release(buffers[turn][i]);
    qn_module_free(module);
    qn_context_close(context);
}

/* What a device says of itself, with one thing about the machine changed. */
static void describe(const char *variable, const char *value, qn_device_info *info)
{
    const char *before = getenv(variable) ? strdup(getenv(variable)) : NULL;
    setenv(variable, value, 1);
    qn_context *context = open_context();
    OK(qn_device_find(context, "cuda", info, &error));
    qn_buffer *none = NULL;
    if (!info->available) {
        EXPECT(qn_buffer_new_on(context, "cuda", 8, &none, &error) == QN_NO_DEVICE);
        EXPECT(strstr(error.message, "the device cuda is not available: ") != NULL);
        EXPECT_TEXT(qn_device_best(context), "cpu");
    }
    qn_context_close(context);
    if (before)
        setenv(variable, before, 1);
    else
        unsetenv(variable);
    free((void *)before);
}

TEST(why_there_is_none)
{
    qn_device_info info;
    fake_reset();
    describe("FAKE_CUDA_DEVICES", "1", &info);
    EXPECT(info.available && !info.absent && strstr(info.description, "Fake GPU 0, compute capability 9.0"));
    EXPECT(strstr(info.description, "NVRTC 13.0") != NULL);
    describe("FAKE_CUDA_DEVICES", "0", &info);
    EXPECT(!info.available && info.absent && strstr(info.description, "the NVIDIA driver is there, but no GPU"));
    describe("FAKE_CUDA_CAPABILITY", "70", &info);
    EXPECT(!info.available && strstr(info.description, "has compute capability 7.0; Quern needs 7.5 or newer"));
    describe("FAKE_NVRTC_VERSION", "10", &info);
    EXPECT(!info.available && !info.absent && strstr(info.description, "NVRTC"));
    describe("FAKE_CUDA_INIT", "34", &info);
    EXPECT(!info.available && strstr(info.description, "is the toolkit's stub, not the driver"));
    describe("FAKE_CUDA_INIT", "999", &info);
    EXPECT(!info.available && strstr(info.description, "the NVIDIA driver does not start"));
    if (!dlopen("libcuda.so.1", RTLD_LAZY)) { /* a machine without the real one */
        describe("QUERN_CUDA_PATH", absent_path("lib"), &info);
        EXPECT(!info.available && info.absent && strstr(info.description, "install the NVIDIA driver"));
    }
}

TEST(nothing_is_opened_before_it_is_asked_for)
{
    fake_reset();
    float x[4] = {1, 2, 3, 4}, y[4];
    int64_t n = 4;
    qn_context *context = open_context();
    qn_module *module = open_module(context);
    qn_call *call = new_call(module, "twice", x, y, &n);
    OK(qn_call_run(call, "cpu", &error));
    EXPECT(fake_count("cuInit") == 0);
    EXPECT_TEXT(qn_device_best(context), "cuda");
    EXPECT(fake_count("cuInit") == 1 && fake_count("cuDevicePrimaryCtxRetain") == 0);
    OK(qn_call_run(call, NULL, &error));
    EXPECT(fake_count("cuDevicePrimaryCtxRetain") == 1 && y[3] == 8);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
}

TEST(two_devices)
{
    fake_reset();
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    float x[4] = {1, 2, 3, 4}, y[4];
    int64_t n = 4;
    qn_device_info info;
    qn_context *context = open_context();
    qn_module *module = open_module(context);
    int cuda = 0;
    for (int i = 0; i < qn_device_count(context); i++) {
        qn_device_get(context, i, &info);
        cuda += !strncmp(info.name, "cuda", 4);
    }
    EXPECT(cuda == 2);
    OK(qn_device_find(context, "cuda:1", &info, &error));
    EXPECT(strstr(info.description, "Fake GPU 1") != NULL);
    OK(qn_device_find(context, "cuda:0", &info, &error));
    EXPECT_TEXT(info.name, "cuda");
    EXPECT(qn_device_find(context, "cuda:2", &info, &error) == QN_BAD_CALL);
    qn_call *call = new_call(module, "twice", x, y, &n);
    OK(qn_call_run(call, "cuda:1", &error));
    EXPECT(y[3] == 8);
    qn_buffer *buffer;
    OK(qn_buffer_new_on(context, "cuda:1", 16, &buffer, &error));
    EXPECT_TEXT(qn_buffer_device(buffer), "cuda:1");
    OK(qn_call_set_buffer(call, "y", buffer, 0, QN_F32, 1, &n, NULL, &error));
    EXPECT(qn_call_run(call, "cuda", &error) == QN_BAD_CALL && strstr(error.message, "is a buffer on cuda:1"));
    OK(qn_call_run(call, "cuda:1", &error));
    qn_buffer_release(buffer);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    unsetenv("FAKE_CUDA_DEVICES");
}

TEST(out_of_memory)
{
    fake_reset();
    fake_memory((size_t)16 << 20);
    qn_context *context = open_context();
    qn_buffer *buffers[8] = {0}, *large = NULL;
    qn_memory_statistics now;
    for (int i = 0; i < 3; i++) OK(qn_buffer_new_on(context, "cuda", (size_t)4 << 20, &buffers[i], &error));
    EXPECT(qn_buffer_new_on(context, "cuda", (size_t)8 << 20, &large, &error) == QN_NO_MEMORY);
    EXPECT_TEXT(error.message, "no memory on cuda for 0.008 GB: 0.004 of its 0.017 GB are free, 0.013 GB are in use by "
                               "this program's arrays");
    /* What was released is kept; when the GPU is full it is given back first. */
    qn_buffer_release(buffers[0]);
    qn_buffer_release(buffers[1]);
    OK(qn_device_memory(context, "cuda", &now, &error));
    EXPECT(now.kept_bytes == (int64_t)8 << 20 && now.used_bytes == (int64_t)4 << 20);
    OK(qn_buffer_new_on(context, "cuda", (size_t)10 << 20, &large, &error));
    OK(qn_device_memory(context, "cuda", &now, &error));
    EXPECT(now.kept_bytes == 0 && now.used_bytes == (int64_t)14 << 20);
    qn_buffer_release(large);
    qn_buffer_release(buffers[2]);
    /* An array of a call: the message names it. */
    qn_module *module = open_module(context);
    int64_t n = 3 << 20;
    float *x = calloc((size_t)n, 4), *y = calloc((size_t)n, 4);
    qn_call *call = new_call(module, "twice", x, y, &n);
    EXPECT(qn_call_run(call, "cuda", &error) == QN_NO_MEMORY && strstr(error.message, "array `y` of kernel `twice`: "));
    qn_call_free(call);
    n = 1000;
    call = new_call(module, "twice", x, y, &n);
    OK(qn_call_run(call, "cuda", &error));
    qn_call_free(call);
    free(x);
    free(y);
    qn_module_free(module);
    qn_context_close(context);
}

/* A fault under several kernels, and with QUERN_SYNC under the guilty one. */
TEST(faults)
{
    float x[64] = {0};
    int64_t n = 64;
    for (int sync = 0; sync < 2; sync++) {
        fake_reset();
        if (sync) setenv("QUERN_SYNC", "1", 1);
        qn_context *context = open_context();
        qn_module *module = open_module(context);
        qn_stream *stream = NULL;
        qn_buffer *a = NULL, *b = NULL;
        OK(qn_buffer_new_on(context, "cuda", sizeof(x), &a, &error));
        OK(qn_buffer_new_on(context, "cuda", sizeof(x), &b, &error));
        OK(qn_stream_new(context, "cuda", &stream, &error));
        qn_call *calls[2];
        static const char *const names[] = {"twice", "thrice"};
        for (int i = 0; i < 2; i++) {
            OK(qn_call_new(module, names[i], &calls[i], &error));
            OK(qn_call_set_buffer(calls[i], "x", a, 0, QN_F32, 1, &n, NULL, &error));
            OK(qn_call_set_buffer(calls[i], "y", b, 0, QN_F32, 1, &n, NULL, &error));
            OK(qn_call_launch(calls[i], stream, &error));
        }
        OK(qn_stream_wait(stream, &error));
        fake_order("cuStreamSynchronize", CUDA_MISALIGNED_ADDRESS, sync); /* with sync: under the second launch */
        qn_status status = qn_call_launch(calls[0], stream, &error);
        if (status == QN_OK) status = qn_call_launch(calls[1], stream, &error);
        EXPECT(status == (sync ? QN_FAILED : QN_OK));
        if (!sync) status = qn_stream_wait(stream, &error);
        EXPECT(status == QN_FAILED);
        EXPECT(strstr(error.message, "a misaligned address was read or written (CUDA_ERROR_MISALIGNED_ADDRESS)"));
        if (sync)
            EXPECT(strstr(error.message, "kernel `thrice` failed on cuda") != NULL);
        else
            EXPECT(strstr(error.message, "one of the kernels in flight, the last of which are `thrice`, `twice` "
                                         "(QUERN_SYNC=1 tells which) failed on cuda") != NULL);
        /* Lost: at once and with the reason, and everything can still be freed. */
        EXPECT(qn_call_launch(calls[0], stream, &error) == QN_NO_DEVICE && strstr(error.message, "was lost"));
        EXPECT(qn_stream_wait(stream, &error) == QN_NO_DEVICE);
        EXPECT(qn_device_wait(context, "cuda", &error) == QN_NO_DEVICE);
        EXPECT(qn_device_trim(context, "cuda", &error) == QN_OK);
        for (int i = 0; i < 2; i++) qn_call_free(calls[i]);
        qn_stream_free(stream);
        qn_buffer_release(a);
        qn_buffer_release(b);
        qn_module_free(module);
        qn_context_close(context);
        unsetenv("QUERN_SYNC");
    }
    fake_reset();
}

/* Every binary of the cache is damaged: it is made again, once. */
TEST(damaged_binary)
{
    fake_reset();
    float x[4] = {1, 2, 3, 4}, y[4];
    int64_t n = 4;
    for (int round = 0; round < 3; round++) {
        qn_context *context = open_context();
        qn_module *module = open_module(context);
        qn_call *call = new_call(module, "twice", x, y, &n);
        fake_reset();
        memset(y, 0, sizeof(y));
        OK(qn_call_run(call, "cuda", &error));
        EXPECT(y[3] == 8);
        qn_timing timing;
        qn_call_timing(call, &timing);
        if (round == 1) EXPECT(fake_count("nvrtcCompileProgram") == 1); /* damaged before: compiled again */
        if (round == 2) EXPECT(fake_count("nvrtcCompileProgram") == 0 && timing.from_cache);
        qn_call_free(call);
        qn_module_free(module);
        qn_context_close(context);
        if (round) continue;
        DIR *folder = opendir(cache_folder);
        EXPECT(folder != NULL);
        int damaged = 0;
        for (struct dirent *e; folder && (e = readdir(folder));) {
            char path[512];
            size_t length = strlen(e->d_name);
            if (length < 4 || strcmp(e->d_name + length - 3, ".so") != 0) continue;
            snprintf(path, sizeof(path), "%s/%s", cache_folder, e->d_name);
            FILE *file = fopen(path, "r+");
            if (!file) continue;
            fputs("garbage", file);
            fclose(file);
            damaged++;
        }
        if (folder) closedir(folder);
        EXPECT(damaged > 0);
    }
}

TEST(too_much_shared_memory)
{
    fake_reset();
    int64_t n = 300000;
    float *x = calloc((size_t)n, 4), *y = calloc((size_t)n, 4);
    qn_context *context = open_context();
    qn_module *module = open_module(context);
    qn_call *call = new_call(module, "shared_much", x, y, &n);
    EXPECT(qn_call_run(call, "cuda", &error) != QN_OK);
    EXPECT(strstr(error.message, "300000") && strstr(error.message, "232448"));
    qn_call_free(call);
    n = 100000; /* more than a block has without asking */
    call = new_call(module, "shared_much", x, y, &n);
    OK(qn_call_run(call, "cuda", &error));
    EXPECT(fake_count("cuFuncSetAttribute") == 1);
    qn_call_free(call);
    free(x);
    free(y);
    qn_module_free(module);
    qn_context_close(context);
}

/* The host program's own context and stream. */
TEST(own_context)
{
    fake_reset();
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *native = NULL, *native_stream = NULL;
    char path[4200];
    snprintf(path, sizeof(path), "%s/libcuda.so.1", fake_take());
    if (!library) library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    int (*retain)(void **, int), (*make)(void **, unsigned), (*allocate)(uint64_t *, size_t), (*destroy)(void *);
    fake_find(library, "cuDevicePrimaryCtxRetain", &retain);
    fake_find(library, "cuStreamCreate", &make);
    fake_find(library, "cuMemAlloc_v2", &allocate);
    fake_find(library, "cuStreamDestroy_v2", &destroy);
    uint64_t memory = 0;
    EXPECT(!retain(&native, 0) && !make(&native_stream, 1) && !allocate(&memory, 4096));
    qn_context *context = open_context();
    qn_module *module = open_module(context);
    EXPECT(qn_device_adopt(context, "cuda", NULL, &error) == QN_BAD_CALL);
    EXPECT(qn_device_adopt(context, "cpu", native, &error) == QN_BAD_CALL);
    OK(qn_device_adopt(context, "cuda", native, &error));
    qn_stream *stream = NULL;
    OK(qn_stream_wrap(context, "cuda", native_stream, &stream, &error));
    EXPECT(fake_count("cuDevicePrimaryCtxRetain") == 1);                     /* only ours above */
    EXPECT(qn_device_adopt(context, "cuda", native, &error) == QN_BAD_CALL); /* too late */
    qn_buffer *a = NULL, *b = NULL;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int64_t n = 8;
    OK(qn_buffer_wrap_on(context, "cuda", (void *)(uintptr_t)memory, 32, NULL, NULL, &a, &error));
    OK(qn_buffer_wrap_on(context, "cuda", (void *)(uintptr_t)(memory + 2048), 32, NULL, NULL, &b, &error));
    OK(qn_buffer_write(a, 0, x, sizeof(x), stream, &error));
    qn_call *call = NULL;
    OK(qn_call_new(module, "twice", &call, &error));
    OK(qn_call_set_buffer(call, "x", a, 0, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_set_buffer(call, "y", b, 0, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_launch(call, stream, &error));
    OK(qn_buffer_read(b, 0, x, sizeof(x), stream, &error));
    EXPECT(x[7] == 16);
    qn_call_free(call);
    qn_buffer_release(a);
    qn_buffer_release(b);
    qn_stream_free(stream);
    EXPECT(!destroy(native_stream)); /* it stayed the host program's */
    qn_module_free(module);
    qn_context_close(context);
    EXPECT(fake_count("cuDevicePrimaryCtxRelease_v2") == 0);
}

/* Repeated launches ask the driver for the launch and nothing else. */
TEST(a_launch_is_one_call)
{
    fake_reset();
    int64_t n = 64;
    qn_context *context = open_context();
    qn_module *module = open_module(context);
    qn_stream *stream = NULL;
    qn_buffer *a = NULL, *b = NULL;
    OK(qn_buffer_new_on(context, "cuda", 256, &a, &error));
    OK(qn_buffer_new_on(context, "cuda", 256, &b, &error));
    OK(qn_stream_new(context, "cuda", &stream, &error));
    qn_call *call = NULL;
    OK(qn_call_new(module, "twice", &call, &error));
    OK(qn_call_set_buffer(call, "x", a, 0, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_set_buffer(call, "y", b, 0, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_launch(call, stream, &error));
    fake_reset();
    for (int i = 0; i < 100; i++) OK(qn_call_launch(call, stream, &error));
    EXPECT(fake_count("cuLaunchKernelEx") == 100);
    static const char *const others[] = {"cuMemAlloc_v2", "cuMemsetD8Async",     "cuMemHostAlloc",
                                         "cuEventRecord", "cuStreamSynchronize", "cuFuncSetAttribute"};
    for (int i = 0; i < COUNT(others); i++) EXPECT(fake_count(others[i]) == 0);
    OK(qn_stream_wait(stream, &error));
    qn_call_free(call);
    qn_stream_free(stream);
    qn_buffer_release(a);
    qn_buffer_release(b);
    qn_module_free(module);
    qn_context_close(context);
}

#include "recordings.h"

typedef struct thread_work {
    qn_module *module;
    float factor;
    const char *kernel;
    int wrong;
} thread_work;

static void *run_thread(void *user)
{
    thread_work *w = user;
    qn_error own;
    float x[100], y[100];
    int64_t n = 100;
    qn_call *call = NULL;
    if (qn_call_new(w->module, w->kernel, &call, &own) != QN_OK) w->wrong++;
    for (int run = 0; run < 20 && !w->wrong; run++) {
        for (int i = 0; i < 100; i++) x[i] = (float)(i + run);
        bool good = qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &own) == QN_OK &&
                    qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &own) == QN_OK &&
                    qn_call_run(call, "cuda", &own) == QN_OK;
        for (int i = 0; i < 100 && good; i++) w->wrong += y[i] != w->factor * x[i];
        w->wrong += !good;
    }
    qn_call_free(call);
    return NULL;
}

TEST(several_threads)
{
    fake_reset();
    qn_context *context = open_context();
    qn_module *module = open_module(context);
    pthread_t threads[4];
    thread_work work[4];
    for (int i = 0; i < 4; i++) {
        work[i] = (thread_work){module, i % 2 ? 3 : 2, i % 2 ? "thrice" : "twice", 0};
        EXPECT(!pthread_create(&threads[i], NULL, run_thread, &work[i]));
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        EXPECT(work[i].wrong == 0);
    }
    qn_module_free(module);
    qn_context_close(context);
}

TEST(close_fake)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", cache_folder);
    EXPECT(system(command) == 0);
}

TEST_MAIN(CASE(open_fake), CASE(tensor_maps_follow_their_arrays), CASE(why_there_is_none),
          CASE(nothing_is_opened_before_it_is_asked_for), CASE(two_devices), CASE(out_of_memory), CASE(faults),
          CASE(damaged_binary), CASE(too_much_shared_memory), CASE(own_context), CASE(a_launch_is_one_call),
          CASE(a_step_that_repeats_is_one_call), CASE(a_recording_has_the_addresses_of_its_own_stream),
          CASE(a_recording_that_does_not_start_is_launched), CASE(threads_record_beside_each_other),
          CASE(several_threads), CASE(close_fake))
