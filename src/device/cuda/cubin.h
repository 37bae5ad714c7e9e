/*
 * What a cubin costs: registers, shared memory, spills, and how many blocks a multiprocessor holds.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_CUBIN_H
#define QUERN_DEVICE_CUDA_CUBIN_H

#include "base/base.h"

typedef struct cubin_usage {
    int registers;        /* of a thread */
    int most_threads;     /* of a block, as __launch_bounds__ says; 0: no bound */
    int64_t shared_bytes; /* static, of a block */
    int64_t local_bytes;  /* of a thread: spills and arrays that are not in registers */
    int64_t code_bytes;
    int64_t spill_bytes; /* stored and loaded; -1: only the log knows */
} cubin_usage;

/* The usage of one kernel, from the cubin itself. False: not a cubin, or no such kernel in it. */
bool cubin_read(const void *bytes, size_t size_bytes, const char *symbol, cubin_usage *out);
/* The kernels of a cubin: the number-th symbol, borrowed from the bytes; NULL after the last. */
const char *cubin_symbol(const void *bytes, size_t size_bytes, int number);
/* Adds what the assembler's report (nvrtc_options.usage) says of spills. False: it does not name the kernel. */
bool cubin_read_log(const char *log, const char *symbol, cubin_usage *usage);

/* sass.c: the instructions, with the source lines they came from if asked. QN_NO_DEVICE: no disassembler is installed. */
qn_status cubin_disassemble(const void *bytes, size_t size_bytes, bool lines, text *out, qn_error *error);

/* The theoretical occupancy: blocks that a multiprocessor of the architecture holds at once. */
typedef struct occupancy {
    int blocks, warps, most_warps;
    const char *limit; /* what runs out first: "registers", "shared memory", "threads", "blocks" */
} occupancy;
occupancy occupancy_of(int arch, const cubin_usage *usage, int threads, int64_t dynamic_shared_bytes);

#endif
