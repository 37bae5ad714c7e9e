/*
 * What the fake driver tells the fake CUPTI of the work it does. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FAKE_TRACE_H
#define QUERN_FAKE_TRACE_H

#include <stdint.h>

enum { FAKE_KERNEL, FAKE_COPY, FAKE_FILL, FAKE_GRAPH };

typedef struct fake_span {
    int kind;
    const char *name; /* of a kernel */
    uint32_t grid[3], block[3], shared_bytes;
    uint64_t bytes;
    int direction;        /* of a copy: 1 to the device, 2 to the host, 8 inside */
    uint32_t correlation; /* of the driver's call: the same for all of a graph */
    uint32_t graph, node; /* 0: of no graph */
    int64_t start_ns, end_ns;
} fake_span;

typedef void fake_listener(const fake_span *span); /* on the thread that made the call */

#endif
