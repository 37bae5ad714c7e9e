/*
 * Tensors: array code without kernels. Calls build a graph and compute nothing; reading a tensor (or qn_eval) compiles
 * what is needed into a few fused kernels and runs them.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_H
#define QUERN_TENSOR_H

#include <quern/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_tape qn_tape;

/* A handle, passed by value; {0} is the empty one. It is good until it is released or its scope ends. */
typedef struct qn_tensor {
    qn_tape *tape;
    uint32_t slot, stamp;
} qn_tensor;

typedef enum qn_mode {
    QN_FUSED, /* as few kernels as pay; values between operations keep the wider type */
    QN_EAGER, /* one kernel for each operation */
    QN_STRICT /* fused, rounding as eager */
} qn_mode;

#ifdef __cplusplus
}
#endif
#endif
