/*
 * Quern: modules from CUDA text alone. Every `__global__` function of the text is a kernel that qn_call_new finds by its
 * name, a template by its instance: "scale<float>". Its pointers are arrays of one axis, `const` ones are read, others
 * read and written, so all must be given; its other parameters are scalars. Names are those of the text.
 *
 * Example (examples/raw.c is this as a whole program; both are compiled and run as tests):
 *     qn_error error;
 *     qn_context *context;
 *     qn_module *module;
 *     qn_call *call;
 *     float x[5] = {1, 2, 3, 4, 5};
 *     int64_t extent = 5, blocks = 1, threads = 32;
 *     const char *text = "template <typename T> __global__ void twice(T *x, int n)\n"
 *                        "{ if (threadIdx.x < n) x[threadIdx.x] *= 2; }\n";
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     if (qn_compile_cuda(context, text, NULL, &module, &error)) return error.status != QN_NO_DEVICE;
 *     if (qn_call_new(module, "twice<float>", &call, &error)) return 1;
 *     if (qn_call_set_memory(call, "x", x, QN_F32, 1, &extent, NULL, &error)) return 1;
 *     if (qn_call_set_int(call, "n", extent, &error)) return 1;
 *     if (qn_call_set_launch(call, &blocks, &threads, 1, 0, &error)) return 1;
 *     if (qn_call_run(call, qn_device_for_cuda(context), &error)) return 1;
 *     if (x[4] != 10) return 1;
 *     qn_call_free(call);
 *     qn_module_free(module);
 *     qn_context_close(context);
 *
 * The text may do anything: compiling it says that it is trusted. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RAW_H
#define QUERN_RAW_H

#include <quern/quern.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise; every zero means the default. */
typedef struct qn_cuda_options {
    const char *name; /* of the text in messages; where it is a path, `#include "file"` is looked for beside it */
    const char *const *flags; /* of the compiler, such as "-DN=16" or "--use_fast_math" */
    int flag_count;
    const char *device; /* what it is compiled for now, so that its mistakes come now; NULL: qn_device_for_cuda */
} qn_cuda_options;
/* Kernels are compiled for other devices when they are first run there; templates always when they are first run. */
QN_API QN_MUST_CHECK qn_status qn_compile_cuda(qn_context *context, const char *source, const qn_cuda_options *options,
                                               qn_module **module, qn_error *error);
/* Blocks and threads of a block on 1 to 3 axes, and bytes of dynamic shared memory. */
QN_API QN_MUST_CHECK qn_status qn_call_set_launch(qn_call *call, const int64_t *blocks, const int64_t *threads,
                                                  int axes, int64_t shared_bytes, qn_error *error);
/* The device that runs CUDA text here: "cuda" where there is a GPU, else "emu". */
QN_API const char *qn_device_for_cuda(const qn_context *context);

#ifdef __cplusplus
}
#endif
#endif
