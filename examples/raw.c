/*
 * A kernel in CUDA C, compiled in place: a template that scales numbers, on a GPU if there is one, else on the emulator.
 * Build: cc raw.c $(pkg-config --cflags --libs quern)
 * SPDX-License-Identifier: MIT
 */
#include <quern/raw.h>
#include <stdio.h>

static const char text[] = "template <typename T, int PER> __global__ void scale(const T *x, T *y, T by, int n)\n"
                           "{\n"
                           "    int i = PER * (blockIdx.x * blockDim.x + threadIdx.x);\n"
                           "    for (int k = 0; k < PER; k++)\n"
                           "        if (i + k < n) y[i + k] = by * x[i + k];\n"
                           "}\n";

static int fail(const qn_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

int main(void)
{
    qn_error error;
    qn_context *context;
    qn_module *module;
    qn_call *call;
    double x[5] = {1, 2, 3, 4, 5}, y[5] = {0};
    int64_t extent = 5, blocks = 1, threads = 32;
    if (qn_context_open(NULL, &context, &error)) return fail(&error);
    const char *device = qn_device_for_cuda(context);
    qn_cuda_options options = {.name = "scale.cu", .device = device};
    if (qn_compile_cuda(context, text, &options, &module, &error)) return fail(&error);
    if (qn_call_new(module, "scale<double, 2>", &call, &error)) return fail(&error);
    if (qn_call_set_memory(call, "x", x, QN_F64, 1, &extent, NULL, &error)) return fail(&error);
    if (qn_call_set_memory(call, "y", y, QN_F64, 1, &extent, NULL, &error)) return fail(&error);
    if (qn_call_set_float(call, "by", 1.5, &error)) return fail(&error);
    if (qn_call_set_int(call, "n", extent, &error)) return fail(&error);
    if (qn_call_set_launch(call, &blocks, &threads, 1, 0, &error)) return fail(&error);
    if (qn_call_run(call, device, &error)) return fail(&error);
    printf("on %s: %g %g %g %g %g\n", device, y[0], y[1], y[2], y[3], y[4]);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    return 0;
}
