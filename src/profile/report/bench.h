/*
 * The report of a bench: see report/bench.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_REPORT_BENCH_H
#define QUERN_PROFILE_REPORT_BENCH_H

#include "profile/report/sources.h"

#include <quern/bench.h>

typedef struct bench_hint {
    double gain;       /* share of the kernel's time */
    int rule;          /* of hints.def */
    const char *label; /* the variant */
    const char *words; /* HTML */
} bench_hint;
/* What the results themselves do not have. */
typedef struct bench_extras {
    const source_list *sources;
    const bench_hint *hints;
    int hint_count;
} bench_extras;
qn_status bench_report_write(const qn_bench_results *results, const bench_extras *extras, const char *path,
                             const qn_report_options *options, qn_error *error); /* extras may be NULL */

void bench_hints_put(const bench_extras *extras, text *out); /* hints.c: a section of the page */

#endif
