/*
 * Numbers of a processor that its text is made with: measured once for a machine, kept beside the compiled kernels.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CPU_NUMBERS_H
#define QUERN_DEVICE_CPU_NUMBERS_H

#include "base/base.h"

typedef struct cpu_numbers {
    int near_bytes, far_bytes; /* how far ahead of a load the first and the second cache are asked for more */
    int bodies;                /* of a loop with long chains that are computed in step: 1, 2 or 4 */
    int64_t stream_bytes;      /* launches with more bytes write around the caches */
    bool measured;             /* on this machine; else they are the usual ones */
} cpu_numbers;

cpu_numbers cpu_numbers_usual(void);
/* Those that are kept in a folder, else the usual ones. folder: NULL: nothing is kept. A damaged file counts as none. */
cpu_numbers cpu_numbers_find(const char *folder);
void cpu_numbers_keep(const char *folder, const cpu_numbers *n);

#endif
