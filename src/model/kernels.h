/*
 * Files that models need, as the build embeds them, each ended by a NUL: the kernels (kernels/embedding.qn and those of the
 * interaction), the configurations (models/).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_MODEL_KERNELS_H
#define QUERN_MODEL_KERNELS_H

#include <stddef.h>

extern const unsigned char model_kernels[], model_small_json[], model_main_json[], model_meta_json[];
extern const size_t model_kernels_bytes, model_small_json_bytes, model_main_json_bytes, model_meta_json_bytes;

#endif
