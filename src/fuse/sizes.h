/*
 * Sizes from which on arrays are treated as large ones: rows cut into lines, columns folded in parts, products fed in
 * bulk. Each is written as FUSE_SIZE(n), so that one knob makes all of them small and a test meets with arrays of some
 * hundred elements what users meet with millions (tests/unit/test_fuse_sizes.c). Nobody else turns it.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_SIZES_H
#define QUERN_FUSE_SIZES_H

#include "base/base.h"

extern int fuse_size_root; /* 1; 3: a size of 2^24 is one of 2^8, one of 2^10 is one of 2^3 */

static inline int64_t fuse_size(int64_t n)
{
    int bits = 0;
    while (n >> bits > 1) bits++;
    return (int64_t)1 << MAXIMUM(bits / fuse_size_root, 1);
}

#define FUSE_SIZE(n) (fuse_size_root == 1 ? (int64_t)(n) : fuse_size(n))

#endif
