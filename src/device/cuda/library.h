/*
 * Products by NVIDIA's own library instead of a generated kernel, for launches that are products of whole arrays (ir/whole.h)
 * and ask for it (KNOB_LIBRARY). Nothing needs it: where it is not there, or does not know the product, the kernel runs.
 *
 * What it needs is decided when a launch is prepared: the shapes of its matrices, which of its ways is taken (asked once for
 * each shape and kept with the device), and its workspace, which is the launch's own memory. Submitting is one call that
 * allocates nothing and works on any stream, recorded or not.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_LIBRARY_H
#define QUERN_DEVICE_CUDA_LIBRARY_H

#include "device/cuda/cuda.h"
#include "ir/whole.h"

typedef struct cuda_matmul cuda_matmul; /* of one launch */

/* Opens the library once; the device's lock is held. QN_NO_DEVICE: it is not there, with what to install. */
qn_status cuda_library_open(cuda_device *d, qn_error *error);
void cuda_library_close(cuda_device *d); /* the context is current */
/* *m for a launch with these arrays, kept where it still fits. NULL with *why: the kernel has to do it. `way`: the one of
 * those that the library suggests, from 1 on. An error: memory or the driver failed. The context is current. */
qn_status cuda_matmul_prepare(cuda_device *d, const whole_product *w, int way, const array_view *arrays,
                              const launch_plan *plan, cuda_matmul **m, const char **why, qn_error *error);
/* The same arrays at other addresses; where the way does not allow them, by another one. false: there is none. The context
 * is current. */
bool cuda_matmul_move(cuda_device *d, cuda_matmul *m, const array_view *arrays);
size_t cuda_matmul_workspace(const cuda_matmul *m);
const char *cuda_matmul_name(const cuda_matmul *m); /* "cublaslt bf16 4096x4096x4096"; lives as long as the process */
/* The library's result: 0, or what is wrong in words. */
const char *cuda_matmul_submit(cuda_device *d, const cuda_matmul *m, uint64_t workspace, void *stream);
void cuda_matmul_free(cuda_device *d, cuda_matmul *m); /* NULL is fine */

#endif
