/*
 * Lines that a generated CUDA kernel printed, from the ring that its prelude fills; alike for `cuda` and `emu`.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_PRINT_H
#define QUERN_DEVICE_CUDA_PRINT_H

#include "ir/tile.h"

#define CUDA_PRINT_WORDS ((int64_t)1 << 17) /* of a ring, its head included */

bool cuda_prints(const tile_kernel *k); /* has it a print statement? */
void cuda_print_reset(int64_t *ring, int64_t words);
/* Every record as a line through `print`, a last line if some were lost; then the ring is empty again. */
void cuda_print_drain(int64_t *ring, int64_t words, const tile_kernel *k, void (*print)(void *user, const char *line),
                      void *user);

#endif
