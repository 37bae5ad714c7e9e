/*
 * The machine's ceilings, measured: what no kernel on the CPU can be faster than.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CEILINGS_H
#define QUERN_DEVICE_CEILINGS_H

#include "base/base.h"
#include "device/cpu/numbers.h"

#include <quern/bench.h>

typedef struct ceilings {
    double copy_gb_per_s; /* read and written bytes, by the best method and number of threads */
    double read_gb_per_s;
    double fma_one_gflop_per_s, fma_all_gflop_per_s; /* f32 */
} ceilings;

/* The C text of the measuring loops; the same compiler makes them that makes the kernels. */
void ceilings_source(text *out);
/* Runs the loops of that library: copies `copy_bytes` from one array to another, and so on; takes about a second. */
qn_status ceilings_measure(const char *binary_path, int threads, size_t copy_bytes, ceilings *out, qn_error *error);
/* Writing, the caches, doubles, exponentials and the cost of handing work to threads, besides; some seconds. */
qn_status ceilings_roofline(const char *binary_path, int threads, size_t bytes, qn_roofline *out, qn_error *error);
/* How text for this processor is made best; about a second. */
qn_status ceilings_numbers(const char *binary_path, int threads, cpu_numbers *out, qn_error *error);

#endif
