/*
 * Raw CUDA kernels run: from .qn files and from CUDA text alone, on `emu` or the device of $QUERN_TEST_DEVICE;
 * templates, options, included files that change, limits, and every refusal in its own words. Where no C++ compiler is
 * there for emu, all is skipped, and says so.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "run/run.h"
#include "test.h"

#include <quern/device.h>
#include <quern/raw.h>
#include <stdlib.h>

static qn_context *context;
static const char *where = "emu"; /* or $QUERN_TEST_DEVICE */

static bool ready(void)
{
    static bool told;
    if (environment_get("QUERN_TEST_DEVICE")) where = environment_get("QUERN_TEST_DEVICE");
    qn_error error;
    qn_device_info info = {0};
    if (!context)
        EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .allow_raw = true}, &context, &error) == QN_OK);
    if (qn_device_find(context, where, &info, &error) == QN_OK && info.available) return true;
    if (!told) printf("note: skipped raw CUDA kernels on %s: %s\n", where, info.description);
    told = true;
    return false;
}

static qn_status set_floats(qn_call *call, const char *name, float *data, int64_t count, qn_error *error)
{
    return qn_call_set_memory(call, name, data, QN_F32, 1, &count, NULL, error);
}

static const char text_of_three[] = "#include <cuda_runtime.h>\n"
                                    "__device__ float half_of(float x) { return x / 2; }\n"
                                    "extern \"C\" __global__ void halve(const float *x, float *y, unsigned int n)\n"
                                    "{\n"
                                    "    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                                    "    if (i < n) y[i] = half_of(x[i]);\n"
                                    "}\n"
                                    "__global__ void count(int *counter) { atomicAdd(counter, 1); }\n"
                                    "template <typename T, int N> __global__ void rotate(T *x)\n"
                                    "{\n"
                                    "    extern __shared__ char memory[];\n"
                                    "    T *kept = (T *)memory;\n"
                                    "    kept[threadIdx.x] = x[threadIdx.x];\n"
                                    "    __syncthreads();\n"
                                    "    x[threadIdx.x] = kept[(threadIdx.x + SHIFT) % N];\n"
                                    "}\n"
                                    "__global__ void odd(float4 *x) { }\n"
                                    "__global__ void nothing() { }\n";

TEST(kernels_of_a_text)
{
    if (!ready()) return;
    qn_error error;
    qn_module *module;
    qn_call *call;
    const char *flags[] = {"-DSHIFT=1"};
    qn_cuda_options options = {.name = "three.cu", .flags = flags, .flag_count = 1, .device = where};
    qn_status status = qn_compile_cuda(context, text_of_three, &options, &module, &error);
    if (status) printf("%s\n", error.message);
    EXPECT(status == QN_OK);
    if (status) return;
    EXPECT(qn_module_kernel_count(module) == 3);
    EXPECT_TEXT(qn_module_kernel_name(module, 0), "halve");
    EXPECT_TEXT(qn_module_warnings(module), "three.cu: warning: kernel `odd` cannot be called: its parameter 1 is "
                                            "`float4 *`: pointers to numbers and numbers can be passed\n");
    qn_param param;
    EXPECT(qn_kernel_param(module, "halve", 0, &param, &error) == QN_OK && param.kind == QN_PARAM_IN &&
           param.rank == 1);
    EXPECT(qn_kernel_param(module, "halve", 1, &param, &error) == QN_OK && param.kind == QN_PARAM_INOUT);
    EXPECT(qn_kernel_param(module, "halve", 2, &param, &error) == QN_OK && param.kind == QN_PARAM_SCALAR);
    EXPECT_TEXT(param.type, "u32");

    float x[70], y[70] = {0};
    for (int i = 0; i < 70; i++) x[i] = (float)i;
    EXPECT(qn_call_new(module, "halve", &call, &error) == QN_OK);
    EXPECT(set_floats(call, "x", x, 70, &error) == QN_OK && set_floats(call, "y", y, 70, &error) == QN_OK);
    EXPECT(qn_call_set_int(call, "n", 69, &error) == QN_OK);
    EXPECT(qn_call_run(call, where, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message,
                "three.cu: error E505: `grid.x` is not given: set it by name\n  set it by name, such as n = "
                "1000\n");
    EXPECT(qn_call_set_launch(call, (int64_t[]){2}, (int64_t[]){2048}, 1, 0, &error) == QN_OK);
    EXPECT(qn_call_run(call, where, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "E506: `halve` wants blocks of 2048 x 1 x 1 = 2048 threads; a block has 1 to 1024\n"));
    EXPECT(qn_call_set_launch(call, (int64_t[]){3}, (int64_t[]){32}, 1, 300000, &error) == QN_OK);
    EXPECT(qn_call_run(call, where, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "E506: `halve` wants 300000 bytes of shared memory; a block can have 232448\n"));
    EXPECT(qn_call_set_launch(call, (int64_t[]){3}, (int64_t[]){32}, 1, 0, &error) == QN_OK);
    EXPECT(qn_call_run(call, where, &error) == QN_OK);
    EXPECT(y[3] == 1.5f && y[68] == 34 && y[69] == 0);
    EXPECT(qn_call_run(call, "cpu", &error) == QN_NO_DEVICE);
    qn_call_free(call);

    int32_t counter = 0;
    int64_t one = 1;
    EXPECT(qn_call_new(module, "count", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "counter", &counter, QN_I32, 1, &one, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_launch(call, (int64_t[]){2, 3, 4}, (int64_t[]){5, 6, 7}, 3, 0, &error) == QN_OK);
    EXPECT(qn_call_run(call, where, &error) == QN_OK && counter == 2 * 3 * 4 * 5 * 6 * 7);
    qn_call_free(call);

    EXPECT(qn_call_new(module, "nothing", &call, &error) == QN_OK);
    EXPECT(qn_call_set_launch(call, (int64_t[]){1}, (int64_t[]){1}, 1, 0, &error) == QN_OK);
    EXPECT(qn_call_run(call, where, &error) == QN_OK);
    qn_call_free(call);
    qn_module_free(module);
}

TEST(templates_by_their_instance)
{
    if (!ready()) return;
    qn_error error;
    qn_module *module;
    qn_call *call, *other;
    const char *flags[] = {"-DSHIFT=1"};
    qn_cuda_options options = {.flags = flags, .flag_count = 1, .device = where};
    EXPECT(qn_compile_cuda(context, text_of_three, &options, &module, &error) == QN_OK);
    double x[4] = {1, 2, 3, 4};
    float z[2] = {1, 2};
    int64_t four = 4;
    EXPECT(qn_call_new(module, "rotate<double, 4>", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F64, 1, &four, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_launch(call, (int64_t[]){1}, (int64_t[]){4}, 1, 32, &error) == QN_OK);
    EXPECT(qn_call_run(call, where, &error) == QN_OK && x[0] == 2 && x[3] == 1);
    EXPECT(qn_call_new(module, "rotate<float, 2>", &other, &error) == QN_OK);
    EXPECT(set_floats(other, "x", z, 2, &error) == QN_OK);
    EXPECT(qn_call_set_launch(other, (int64_t[]){1}, (int64_t[]){2}, 1, 8, &error) == QN_OK);
    EXPECT(qn_call_run(other, where, &error) == QN_OK && z[0] == 2 && z[1] == 1);
    qn_call_free(call);
    qn_call_free(other);
    EXPECT(qn_call_new(module, "rotate<pair, 2>", &call, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "cuda text: kernel `rotate<pair, 2>` cannot be called: its parameter 1 is `pair *`: "
                               "pointers to numbers and numbers can be passed");
    EXPECT(qn_call_new(module, "turn<float>", &call, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "cuda text has no template `turn` that is a kernel");
    EXPECT(qn_call_new(module, "halv", &call, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "cuda text has no kernel `halv`; did you mean `halve`?");
    qn_module_free(module);
}

TEST(refusals)
{
    qn_error error;
    qn_module *module;
    if (!ready()) return;
    qn_cuda_options options = {.name = "a.cu", .device = where};
    EXPECT(qn_compile_cuda(context, "__device__ int f(int x);", &options, &module, &error) == QN_BAD_SOURCE && !module);
    EXPECT_TEXT(error.message, "a.cu: the text has no `__global__` function that can be called");
    EXPECT(qn_compile_cuda(context, "__global__ void f(int *x)\n{\n    x[0] = nowhere;\n}\n", &options, &module,
                           &error) == QN_FAILED);
    bool emu = !strcmp(where, "emu");
    EXPECT(strstr(error.message, emu ? "a.cu:3:12: error:" : "a.cu:3: error:") && strstr(error.message, "nowhere"));
    EXPECT(qn_compile_cuda(context, "__global__ void f(int *x)\n{\n    x[0] = 1\n}\n", &options, &module, &error) ==
           QN_FAILED);
    EXPECT(strstr(error.message, emu ? "a.cu:3:13: error: expected" : "error: expected a \";\""));
    options.device = "cpu";
    EXPECT(qn_compile_cuda(context, "__global__ void f(int *x) {}", &options, &module, &error) == QN_NO_DEVICE);
    EXPECT_TEXT(error.message, "CUDA text runs on the devices cuda and emu, not on cpu");
    options.flag_count = 1;
    EXPECT(qn_compile_cuda(context, "", &options, &module, &error) == QN_BAD_CALL);
    EXPECT(qn_compile_cuda(context, NULL, NULL, &module, &error) == QN_BAD_CALL);
    qn_call *call;
    EXPECT(qn_module_load_text(context, "k.qn", "kernel k(out float y[n]) launch (n) { y[program(0)] = 1; }", &module,
                               &error) == QN_OK);
    EXPECT(qn_call_new(module, "k", &call, &error) == QN_OK);
    EXPECT(qn_call_set_launch(call, (int64_t[]){1}, (int64_t[]){1}, 1, 0, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "kernel `k` says itself what it launches: qn_call_set_launch is for kernels of "
                               "qn_compile_cuda");
    qn_call_free(call);
    qn_module_free(module);
}

static void write_text(const char *folder, const char *name, const char *words)
{
    char path[300];
    qn_error error;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    EXPECT(file_write(path, words, strlen(words), &error) == QN_OK);
}

/* y[0] of the kernel f of the file, with what was compiled for it. */
static float run_once(qn_context *own, const char *folder, int64_t *compiles)
{
    char path[300];
    qn_error error;
    qn_module *module;
    qn_call *call;
    float y[2] = {0};
    snprintf(path, sizeof(path), "%s/f.qn", folder);
    int64_t before = own->compiles;
    EXPECT(qn_module_load_file(own, path, &module, &error) == QN_OK);
    EXPECT(qn_call_new(module, "f", &call, &error) == QN_OK);
    EXPECT(set_floats(call, "y", y, 2, &error) == QN_OK);
    qn_status status = qn_call_run(call, where, &error);
    if (status) printf("%s\n", error.message);
    EXPECT(status == QN_OK);
    qn_call_free(call);
    qn_module_free(module);
    *compiles = own->compiles - before;
    return y[0];
}

TEST(a_changed_file_is_compiled_again)
{
    if (!ready()) return;
    char folder[] = "/tmp/quern-raw-XXXXXX", cache[64], command[100];
    EXPECT(mkdtemp(folder) != NULL);
    snprintf(cache, sizeof(cache), "%s/cache", folder);
    qn_context *own;
    qn_error error;
    int64_t compiles;
    EXPECT(qn_context_open(&(qn_context_options){.cache_folder = cache, .allow_raw = true}, &own, &error) == QN_OK);
    write_text(folder, "f.qn", "cuda f(out float y[n]) launch (1) block (32) from \"f.cu\";\n");
    write_text(folder, "f.cu",
               "#include \"value.cuh\"\nextern \"C\" __global__ void f(float *y, long n) { y[0] = VALUE; }\n");
    write_text(folder, "value.cuh", "#define VALUE 3\n");
    EXPECT(run_once(own, folder, &compiles) == 3 && compiles == 1);
    EXPECT(run_once(own, folder, &compiles) == 3 && compiles == 0);
    write_text(folder, "value.cuh", "#define VALUE 4\n");
    EXPECT(run_once(own, folder, &compiles) == 4 && compiles == 1);
    write_text(folder, "f.cu",
               "#include \"value.cuh\"\nextern \"C\" __global__ void f(float *y, long n) { y[0] = 2 * VALUE; }\n");
    EXPECT(run_once(own, folder, &compiles) == 8 && compiles == 1);
    qn_context_close(own);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    EXPECT(system(command) == 0);
}

TEST(kernels_of_a_file)
{
    if (!ready()) return;
    qn_error error;
    qn_module *module;
    qn_call *call;
    float x[6 * 5], y[6 * 5] = {0}, sums[6] = {0};
    int64_t shape[2] = {6, 5}, turned[2] = {5, 6};
    for (int i = 0; i < 30; i++) x[i] = (float)i;
    EXPECT(qn_module_load_file(context, QUERN_ROOT "/tests/text/raw/kernels.qn", &module, &error) == QN_OK);
    EXPECT(qn_call_new(module, "transpose", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 2, shape, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "y", y, QN_F32, 2, turned, NULL, &error) == QN_OK);
    for (int tile = 4; tile <= 16; tile *= 2) {
        memset(y, 0, sizeof(y));
        EXPECT(qn_call_set_int(call, "TILE", tile, &error) == QN_OK);
        EXPECT(qn_call_run(call, where, &error) == QN_OK);
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < 5; j++) EXPECT(y[j * 6 + i] == x[i * 5 + j]);
    }
    EXPECT(qn_call_set_int(call, "TILE", 33, &error) == QN_OK);
    EXPECT(qn_call_run(call, where, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message,
                  "kernels.qn:32:49: error E506: `transpose` wants blocks of 33 x 33 x 1 = 1089 threads; a "
                  "block has 1 to 1024\n"));
    int64_t gap[2] = {1, 5};
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 2, turned, gap, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "y", y, QN_F32, 2, shape, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_int(call, "TILE", 16, &error) == QN_OK);
    EXPECT(qn_call_run(call, where, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "error E501: array `x` of raw kernel `transpose` is not contiguous\n"));
    qn_call_free(call);
    EXPECT(qn_call_new(module, "row_sum", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 2, shape, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "y", sums, QN_F32, 1, shape, NULL, &error) == QN_OK);
    EXPECT(qn_call_run(call, where, &error) == QN_OK && sums[0] == 10 && sums[5] == 135);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    context = NULL;
}

TEST_MAIN(CASE(kernels_of_a_text), CASE(templates_by_their_instance), CASE(refusals),
          CASE(a_changed_file_is_compiled_again), CASE(kernels_of_a_file))
