/*
 * What bench_tensor times beside the copy of its bytes: tensors made once, and a step that is recorded and replayed.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_BENCH_TENSOR_WORKLOADS_H
#define QUERN_BENCH_TENSOR_WORKLOADS_H

#include <quern/nn.h>

enum { MOST_RESULTS = 80 };

typedef struct built {
    qn_tensor results[MOST_RESULTS];
    int count;
} built;

/* Makes its tensors on the tape, outside of what is recorded. */
typedef struct inputs {
    qn_tensor tensors[MOST_RESULTS];
    int count;
} inputs;

typedef struct workload workload;
struct workload {
    const char *name;
    qn_dtype type;
    int64_t rows, columns;
    double bytes, bar; /* bytes: what it reads and writes at least */
    void (*make)(const workload *w, qn_tape *tape, inputs *in);
    void (*step)(const workload *w, const inputs *in, built *out);
};

void make_one(const workload *w, qn_tape *tape, inputs *in);  /* [rows][columns] */
void make_two(const workload *w, qn_tape *tape, inputs *in);
void make_norm(const workload *w, qn_tape *tape, inputs *in); /* two of those, two of [columns] */

/* tensor_rows.c: norms over planes, folds of columns, odd rows, scans, permutations, pools, order. */
extern const workload row_workloads[];
extern const int row_workload_count;
extern const workload small_workloads[]; /* the same below a megabyte */
extern const int small_workload_count;

#endif
