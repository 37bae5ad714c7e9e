/*
 * The parts of `check`: which cases to run, how arrays are compared, and how a view is laid out differently.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_WORKBENCH_CHECK_H
#define QUERN_RUN_WORKBENCH_CHECK_H

#include "run/run.h"

/* One case: words for qn_call_set_text, in order. */
typedef struct check_case {
    const char *names[MAX_PARAMS];
    const char *values[MAX_PARAMS];
    int count;
    const char *empty; /* an extent that is zero, or NULL */
    bool on_devices;   /* compared on the other devices too; else ref alone */
    bool strided;      /* also with arrays that are not contiguous */
    bool whole;        /* integers of their whole range where they are not indices; else 0 and 1 */
    bool again;        /* at a size of other cases, with another element type */
    bool as_cuda;      /* its CUDA text on `emu` even if nobody asks for that device */
} check_case;

typedef struct check_cases {
    check_case *items;
    int count, capacity;
} check_cases;

/* check_cases.c: the cases of a kernel; names that `fixed` sets are left alone. */
void check_choose(const kernel_entry *entry, const qn_settings *fixed, int units, arena *memory, check_cases *out);
void check_describe(const check_case *c, text *out); /* "rows=3 cols=5 T=f32" */
/* The value of a setting of the bench that names this kernel, as words; NULL if there is none. */
const char *check_bench_words(const ast_file *file, const char *kernel, const char *name, int units, arena *memory);
/* The same where the bench says something else `on` this device. */
const char *check_bench_words_on(const ast_file *file, const char *kernel, const char *name, const char *device,
                                 int units, arena *memory);

/* check_compare.c */
typedef struct comparison {
    int64_t count, wrong;
    double worst, allowed; /* error and allowance of the first wrong element; worst: the largest error of all */
    int64_t first;         /* row-major number of the first wrong element */
    double actual, expected;
} comparison;
/* |a - e| <= absolute + relative * max(largest |e| of the row, root mean square of all); NaN equals NaN; integers
 * exactly. */
comparison arrays_compare(const array_view *actual, const array_view *expected, double relative, double absolute);
/* The same where a row may also be as far off as the reference itself moves, some times over, when its inputs move by their
 * last bit. moved: how far each element did, row-major; NULL: not known. */
comparison arrays_compare_moved(const array_view *actual, const array_view *expected, const double *moved,
                                double relative, double absolute);
void moved_note(double *moved, const array_view *expected, const array_view *shaken); /* the farthest so far stays */
/* Floats of 32 and 64 bits by one last bit up or down, by chance; false: there are none. */
bool view_shake(const array_view *v, int seed);
void tolerance_default(dtype elem, double *relative, double *absolute);
/* A copy, row-major, in memory of its own (free with memory_free(view.data)). */
bool view_copy(const array_view *from, array_view *to);
void view_assign(const array_view *to, const array_view *from); /* element by element, equal extents */
/* Memory for a view of these extents laid out unlike row-major: reversed, padded, permuted by turns of `style`. The
 * gaps hold a pattern. base: what to free; size_bytes: all of it. */
bool view_scatter(const array_view *like, int style, array_view *to, void **base, size_t *size_bytes);
bool view_gaps_intact(const array_view *view, const void *base, size_t size_bytes);

#endif
