/*
 * What a kernel that failed says, alike on every device.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_FAILURE_H
#define QUERN_DEVICE_FAILURE_H

#include "ir/tile.h"

/* "softmax.qn:12:5: error E507: assert failed in program 3, 0: text", with the words of the assert on that line.
 * programs: how many there are, which decides how many numbers name one. */
qn_status failure_assert(const tile_kernel *k, int line, const int64_t program[3], const int64_t programs[3],
                         qn_error *error);
/* An access outside an array that a checked build found: parameter number and element offset. */
qn_status failure_bounds(const tile_kernel *k, int line, const int64_t program[3], const int64_t programs[3],
                         int64_t array, int64_t index, qn_error *error);
/* A library that dlopen did not load. */
qn_status failure_load(const char *path, qn_error *error);

#endif
