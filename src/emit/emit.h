/*
 * Tile IR to text. Pure: needs no device and no compiler.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_EMIT_H
#define QUERN_EMIT_EMIT_H

#include "ir/interp.h"

/* What the generated C and the host agree on. The generated text declares the same structs itself (it has no headers);
 * a change here is a change of CPU_ABI_VERSION, which is part of the cache key. */
#define CPU_ABI_VERSION 2
typedef struct cpu_array {
    void *data;
    int64_t extents[MAX_RANK], strides[MAX_RANK]; /* strides in elements */
} cpu_array;
enum { CPU_FAILED_ASSERT = 1, CPU_FAILED_MEMORY };
typedef struct cpu_report { /* filled by the first failing program; zero before the launch */
    int64_t failed;         /* set with an atomic exchange: one of these */
    int64_t line, program[3];
} cpu_report;
typedef struct cpu_launch {
    const cpu_array *arrays; /* by parameter number (unused slots for scalars) */
    const int64_t *scalars;  /* by parameter number: integers as they are, f32 and f64 as the bits of a double */
    int64_t programs[3];     /* of this phase */
    cpu_report *report;
    void (*print)(void *context, const char *line); /* NULL: nothing is printed */
    void *print_context;
} cpu_launch;
/* Each phase N of a kernel: programs first .. last-1 by linear number, axis 0 fastest; scratch is 64-byte aligned and
 * holds what `NAME_scratch_bytes` asked for. Returns 0. */
typedef int cpu_phase(const cpu_launch *launch, int64_t first, int64_t last, void *scratch); /* symbol NAME_phaseN */
typedef uint64_t cpu_scratch(const cpu_launch *launch); /* symbol NAME_scratch_bytes: for one worker, all phases */

typedef struct emit_options {
    bool line_directives;      /* #line to the .qn file */
    int l1_bytes, l2_bytes;    /* of the target, for blocking; 0: 32 K, 1 M */
    int near_bytes, far_bytes; /* how far ahead of loads is asked for more; 0: 512, 8192 */
    int bodies;                /* of loops with long chains, in step; 0: 4 */
    int vector_bytes;          /* register width: 64 for AVX-512, 32 for AVX2, 16 */
    int vector_registers;      /* 32 or 16 */
} emit_options;

/* c/emit.c: the whole translation unit. k has been through the pipeline. */
qn_status emit_c(const tile_kernel *k, const emit_options *options, text *out, qn_error *error);
/* Words of others in generated text, escaped: a comment "WHAT name of file END.", and #line. */
void emit_add_title(const tile_kernel *k, const char *what, const char *end, text *out);
void emit_add_line(int line, const char *file, text *out);
/* prelude.c: the parts of the prelude that `needs` asks for (vector types, math functions, dot micro-kernel). */

#endif
