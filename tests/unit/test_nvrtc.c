/*
 * NVRTC: compiling, its messages, several threads at once, and what a cubin says of itself. Where NVRTC is not installed
 * the cases that need it are skipped, and say so.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/cuda/cubin.h"
#include "device/cuda/nvrtc.h"
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static const char copy_text[] = "struct frame { const float4 *x; float4 *y; long long n; };\n"
                                "extern \"C\" __global__ void __launch_bounds__(256) copy(frame f)\n"
                                "{\n"
                                "    __shared__ float tile[100];\n"
                                "    long long i = blockIdx.x * 256ll + threadIdx.x;\n"
                                "    if (threadIdx.x < 100) tile[threadIdx.x] = f.x[0].x;\n"
                                "    __syncthreads();\n"
                                "    if (i < f.n) { float4 v = f.x[i]; v.x += tile[threadIdx.x % 100]; f.y[i] = v; }\n"
                                "}\n";

/* A library that is there, or NULL and one line that says what is not tested. */
static nvrtc *installed(const char *what)
{
    qn_error error;
    nvrtc *n = nvrtc_new();
    if (nvrtc_ready(n, &error) == QN_OK) return n;
    printf("note: skipped %s: %s\n", what, error.message);
    nvrtc_free(n);
    return NULL;
}

TEST(architectures_have_names)
{
    static const struct {
        const char *words;
        int arch;
    } good[] = {{"sm_90a", 90},  {"90", 90},  {"90a", 90},  {"compute_75", 75},
                {"sm_120", 120}, {"8.6", 86}, {"10.0", 100}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        int arch = 0;
        EXPECT(arch_from_words(good[i].words, &arch) && arch == good[i].arch);
    }
    static const char *const bad[] = {"", "sm_", "sm_9", "sm_90b", "hopper", "1234", "sm_90ax", "9..0"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int arch = 0;
        EXPECT(!arch_from_words(bad[i], &arch));
    }
    char name[16];
    arch_name(90, name);
    EXPECT_TEXT(name, "sm_90a");
    arch_name(86, name);
    EXPECT_TEXT(name, "sm_86");
}

TEST(messages_have_the_form_of_ours)
{
    text out = {0};
    nvrtc_messages("gelu.qn(12): error: identifier \"q\" is undefined\n      q = 1;\n      ^\n\n"
                   "a b(3).cu(4): warning #177-D: unused\n\n1 error detected in the compilation of \"gelu.qn\".\n",
                   &out);
    EXPECT_TEXT(text_get(&out), "gelu.qn:12: error: identifier \"q\" is undefined\n      q = 1;\n      ^\n"
                                "a b(3).cu:4: warning #177-D: unused\n");
    text_free(&out);
}

TEST(a_cubin_tells_its_usage)
{
    nvrtc *n = installed("a_cubin_tells_its_usage");
    if (!n) return;
    qn_error error;
    nvrtc_output o = {0};
    EXPECT(nvrtc_compile(n, copy_text, "copy.cu", &(nvrtc_options){.arch = 90, .usage = true}, &o, &error) == QN_OK);
    EXPECT(strstr(text_get(&o.ptx), "ld.global") && strstr(text_get(&o.ptx), ".v4.f32"));
    cubin_usage usage;
    EXPECT(cubin_read(o.cubin.data, o.cubin.length, "copy", &usage));
    EXPECT(usage.registers >= 8 && usage.registers <= 40);
    EXPECT(usage.shared_bytes == 400);
    EXPECT(usage.local_bytes == 0 && usage.spill_bytes == 0);
    EXPECT(usage.most_threads == 256);
    EXPECT(cubin_read_log(text_get(&o.log), "copy", &usage) && usage.spill_bytes == 0);
    EXPECT(!cubin_read_log(text_get(&o.log), "cop", &usage));
    EXPECT_TEXT(cubin_symbol(o.cubin.data, o.cubin.length, 0), "copy");
    EXPECT(!cubin_symbol(o.cubin.data, o.cubin.length, 1));
    EXPECT(!cubin_read(o.cubin.data, o.cubin.length, "other", &usage));
    for (size_t cut = 0; cut < o.cubin.length; cut += 97) /* a damaged file is refused, not read beyond its end */
        (void)cubin_read(o.cubin.data, cut, "copy", &usage);
    char *damaged = malloc(o.cubin.length);
    for (size_t i = 0; i < o.cubin.length; i += 5) {
        memcpy(damaged, o.cubin.data, o.cubin.length);
        damaged[i] = (char)0xff;
        (void)cubin_read(damaged, o.cubin.length, "copy", &usage);
    }
    free(damaged);
    nvrtc_output_free(&o);
    nvrtc_free(n);
}

TEST(spills_are_seen)
{
    nvrtc *n = installed("spills_are_seen");
    if (!n) return;
    text source = {0};
    text_add(&source, "extern \"C\" __global__ void __launch_bounds__(1024) wide(const float *x, float *y)\n{\n");
    for (int i = 0; i < 120; i++) text_print(&source, "    float v%d = x[%d * 1024 + threadIdx.x];\n", i, i);
    text_add(&source, "    __syncthreads();\n");
    for (int i = 0; i < 120; i++) text_print(&source, "    y[%d * 1024 + threadIdx.x] = v%d;\n", i, (i * 7 + 1) % 120);
    text_add(&source, "}\n");
    qn_error error;
    nvrtc_output o = {0};
    EXPECT(nvrtc_compile(n, text_get(&source), "wide.cu", &(nvrtc_options){.arch = 90, .usage = true}, &o, &error) ==
           QN_OK);
    cubin_usage usage;
    EXPECT(cubin_read(o.cubin.data, o.cubin.length, "wide", &usage));
    EXPECT(usage.local_bytes > 0 && usage.spill_bytes == -1 && usage.registers == 64);
    EXPECT(cubin_read_log(text_get(&o.log), "wide", &usage) && usage.spill_bytes > 0);
    nvrtc_output_free(&o);
    text_free(&source);
    nvrtc_free(n);
}

TEST(a_refused_text_shows_the_users_line)
{
    nvrtc *n = installed("a_refused_text_shows_the_users_line");
    if (!n) return;
    qn_error error;
    nvrtc_output o = {0};
    static const char wrong[] = "static __device__ int never(int x) { return x; }\n" /* a warning, which is not told */
                                "#line 7 \"gelu.qn\"\nextern \"C\" __global__ void f(float *y) { y[0] = z; }\n";
    EXPECT(nvrtc_compile(n, wrong, "f.cu", &(nvrtc_options){.arch = 80}, &o, &error) == QN_FAILED);
    char expected[256];
    snprintf(expected, sizeof(expected),
             "NVRTC %d.%d refused the text:\ngelu.qn:7: error: identifier \"z\" is undefined\n", nvrtc_version(n) / 100,
             nvrtc_version(n) % 100);
    error.message[strlen(expected)] = 0;
    EXPECT_TEXT(error.message, expected);
    nvrtc_output_free(&o);

    EXPECT(nvrtc_compile(n, copy_text, "f.cu", &(nvrtc_options){.arch = 999}, &o, &error) == QN_NO_DEVICE);
    EXPECT(strstr(error.message, "does not know architecture 999, but "));
    EXPECT(strstr(error.message, ": install a newer NVRTC, or set QUERN_CUDA_PATH to a newer toolkit"));
    const char *option = "--no-such-option";
    EXPECT(nvrtc_compile(n, copy_text, "f.cu", &(nvrtc_options){.arch = 80, .flags = &option, .flag_count = 1}, &o,
                         &error) == QN_FAILED);
    EXPECT(strstr(error.message, "no-such-option"));
    nvrtc_output_free(&o);
    nvrtc_free(n);
}

TEST(templates_and_headers)
{
    nvrtc *n = installed("templates_and_headers");
    if (!n) return;
    static const char source[] =
        "#include \"scale.cuh\"\n"
        "template <typename T, int N> __global__ void scale(T *y) { y[threadIdx.x] *= N * FACTOR; }\n";
    const char *header_name = "scale.cuh", *header = "#define FACTOR 3\n", *name = "scale<float, 16>";
    const nvrtc_options options = {.arch = 80,
                                   .header_names = &header_name,
                                   .headers = &header,
                                   .header_count = 1,
                                   .names = &name,
                                   .name_count = 1};
    qn_error error;
    nvrtc_output o = {0};
    EXPECT(nvrtc_compile(n, source, "scale.cu", &options, &o, &error) == QN_OK);
    EXPECT(o.symbol_count == 1 && cubin_symbol(o.cubin.data, o.cubin.length, 0));
    EXPECT_TEXT(cubin_symbol(o.cubin.data, o.cubin.length, 0), text_get(&o.symbols[0]));
    nvrtc_output_free(&o);
    nvrtc_free(n);
}

typedef struct worker {
    nvrtc *n;
    int arch, good;
} worker;

static void *compile_some(void *context)
{
    worker *w = context;
    for (int i = 0; i < 3; i++) {
        qn_error error;
        nvrtc_output o = {0};
        cubin_usage usage;
        w->good += nvrtc_compile(w->n, copy_text, "copy.cu", &(nvrtc_options){.arch = w->arch}, &o, &error) == QN_OK &&
                   cubin_read(o.cubin.data, o.cubin.length, "copy", &usage);
        nvrtc_output_free(&o);
    }
    return NULL;
}

TEST(several_threads_compile)
{
    nvrtc *n = installed("several_threads_compile");
    if (!n) return;
    nvrtc_free(n);
    n = nvrtc_new(); /* opened by whichever thread is first */
    static const int archs[] = {75, 80, 90, 89};
    worker workers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.n = n, .arch = archs[i]};
        EXPECT(pthread_create(&threads[i], NULL, compile_some, &workers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) EXPECT(workers[i].good == (nvrtc_knows(n, archs[i]) ? 3 : 0));
    nvrtc_free(n);
}

/* A library of that name which knows less than it must. */
static bool make_fake(const char *folder, const char *source)
{
    char path[256], library[256];
    int code = 1;
    snprintf(path, sizeof(path), "%s/fake.c", folder);
    snprintf(library, sizeof(library), "%s/libnvrtc.so.13", folder);
    const char *arguments[] = {"cc", "-shared", "-fPIC", "-o", library, path, NULL};
    return file_write(path, source, strlen(source), NULL) == QN_OK &&
           process_run(arguments, NULL, &code, NULL) == QN_OK && code == 0;
}

TEST(missing_or_too_old)
{
    char folder[] = "/tmp/quern-nvrtc-XXXXXX";
    qn_error error;
    EXPECT(mkdtemp(folder) != NULL);
    setenv("QUERN_CUDA_PATH", "none", 1);
    nvrtc *n = nvrtc_new();
    EXPECT(nvrtc_ready(n, &error) == QN_NO_DEVICE);
    EXPECT_TEXT(
        error.message,
        "NVRTC, the CUDA run-time compiler is not there (QUERN_CUDA_PATH is `none`): install it (Debian and "
        "Ubuntu: cuda-nvrtc of NVIDIA's repository, or pip install nvidia-cuda-nvrtc) and point QUERN_CUDA_PATH "
        "at its folder if it is not found");
    nvrtc_free(n);

    setenv("QUERN_CUDA_PATH", folder, 1);
    EXPECT(make_fake(folder, "int nvrtcVersion(int *a, int *b) { *a = 10; *b = 2; return 0; }\n"));
    n = nvrtc_new();
    EXPECT(nvrtc_ready(n, &error) == QN_NO_DEVICE);
    EXPECT(strstr(error.message, "is too old: ") && strstr(error.message, "has no nvrtcGetNumSupportedArchs"));
    nvrtc_free(n);
    unsetenv("QUERN_CUDA_PATH");
    const char *arguments[] = {"rm", "-rf", folder, NULL};
    int code;
    EXPECT(process_run(arguments, NULL, &code, NULL) == QN_OK);
}

TEST(occupancy_is_limited_by_what_runs_out)
{
    cubin_usage usage = {.registers = 32};
    occupancy o = occupancy_of(90, &usage, 256, 0);
    EXPECT(o.blocks == 8 && o.warps == 64 && o.most_warps == 64);
    EXPECT_TEXT(o.limit, "threads");
    usage.registers = 128;
    o = occupancy_of(90, &usage, 256, 0);
    EXPECT(o.blocks == 2 && o.warps == 16);
    EXPECT_TEXT(o.limit, "registers");
    o = occupancy_of(90, &usage, 256, 200 * 1024);
    EXPECT(o.blocks == 1);
    EXPECT_TEXT(o.limit, "shared memory");
    usage.registers = 16;
    o = occupancy_of(86, &usage, 32, 0);
    EXPECT(o.blocks == 16 && o.most_warps == 48);
    EXPECT_TEXT(o.limit, "blocks");
}

TEST_MAIN(CASE(architectures_have_names), CASE(messages_have_the_form_of_ours), CASE(a_cubin_tells_its_usage),
          CASE(spills_are_seen), CASE(a_refused_text_shows_the_users_line), CASE(templates_and_headers),
          CASE(several_threads_compile), CASE(missing_or_too_old), CASE(occupancy_is_limited_by_what_runs_out))
