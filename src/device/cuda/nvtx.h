/*
 * Marks of Quern for tools that listen to NVTX. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_NVTX_H
#define QUERN_DEVICE_CUDA_NVTX_H

#include "base/base.h"

/* From now on ranges and launches are marks of the tool that is attached, for the life of the process. False: there is
 * none. */
bool nvtx_open(void);

#endif
