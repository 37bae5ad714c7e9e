/*
 * Kernels as tile IR text, run by the interpreter: shared by test_interp.c and test_interp_programs.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_INTERP_TEXT_H
#define QUERN_TESTS_INTERP_TEXT_H

#include "ir/interp.h"
#include "test.h"
#include <stdint.h>

static tile_kernel *parse(arena *memory, const char *words)
{
    tile_kernel *k = NULL;
    qn_error error = {0};
    if (tile_read(memory, "test.tile", words, strlen(words), &k, &error) != QN_OK) {
        printf("%s\n%s\n", error.message, words);
        test_fail(__FILE__, __LINE__, "tile_read");
        return NULL;
    }
    if (tile_verify(k, &error) != QN_OK) {
        printf("%s\n%s\n", error.message, words);
        test_fail(__FILE__, __LINE__, "tile_verify");
        return NULL;
    }
    return k;
}

static array_view view(void *data, dtype elem, int rank, int64_t a, int64_t b)
{
    array_view v = {.data = data, .elem = elem, .rank = rank};
    if (rank == 1) v.extents[0] = a, v.strides[0] = 1;
    if (rank == 2) v.extents[0] = a, v.extents[1] = b, v.strides[0] = b, v.strides[1] = 1;
    return v;
}

/* Runs a kernel on arrays (parameters in order; scalars last, none given). Returns the status; error may be NULL. */
static qn_status launch(const tile_kernel *k, const array_view *arrays, bool exact, findings *found, qn_error *error)
{
    bool given[64] = {0};
    number numbers[64] = {0};
    arena *memory = arena_new();
    launch_plan plan = launch_plan_new(memory, k->param_count);
    qn_error own = {0};
    qn_status status = interp_head(k, given, numbers, arrays, 4, &plan, error ? error : &own);
    if (status != QN_OK) {
        if (!error) printf("%s\n", own.message);
        arena_free(memory);
        return status;
    }
    interp_options options = {.check = true, .exact = exact, .units = 4};
    status = interp_run(k, arrays, &plan, &options, found, error ? error : &own);
    if (status != QN_OK && !error) printf("%s\n", own.message);
    arena_free(memory);
    return status;
}

#define HEAD_N                                                                                                         \
    "head {\n  %1 = const 1 : i64\n  launch 0 %1\n}\nphase {\n  %2 = const 0 : i64\n  %3 = const 1 : i64\n  %4 = arg " \
    "n : i64\n"

#endif
