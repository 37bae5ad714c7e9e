/*
 * Programs of test_semantics.c and test_semantics_types.c, over a few sizes.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_SEMANTICS_H
#define QUERN_TESTS_SEMANTICS_H

#include "program.h"

static const int sizes[] = {1, 2, 5, 8, 13};

#define EACH_SIZE(n) for (int n##_index = 0, n; n##_index < COUNT(sizes) && ((n = sizes[n##_index]), 1); n##_index++)

#define EACH(i, n) for (int i = 0; i < (n); i++)

static program *start(const char *file, const char *kernel)
{
    return program_new(file, kernel, DT_F32);
}

static void finish(program *p, const grid *g, const double *want)
{
    if (program_run(p)) expect_array(p, g, want);
    program_free(p);
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}

#endif
