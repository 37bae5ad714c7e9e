/*
 * The texts of failed kernels. In: what the kernel left in its report. Out: an error with the line of the source.
 * SPDX-License-Identifier: MIT
 */
#include "device/failure.h"

#include <dlfcn.h>

typedef struct assert_search {
    int line;
    const tile_op *found;
} assert_search;

static void find_assert(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    assert_search *s = context;
    if (op->code == OP_ASSERT && op->line == s->line && !s->found) s->found = op;
}

static void name_program(const int64_t program[3], const int64_t programs[3], char *words, size_t size)
{
    int used = snprintf(words, size, "%lld", (long long)program[0]);
    int axes = programs[2] > 1 ? 3 : programs[1] > 1 ? 2 : 1;
    for (int i = 1; i < axes; i++) used += snprintf(words + used, size - (size_t)used, ", %lld", (long long)program[i]);
}

qn_status failure_assert(const tile_kernel *k, int line, const int64_t program[3], const int64_t programs[3],
                         qn_error *error)
{
    assert_search search = {.line = line};
    for (int i = 0; i < k->phase_count; i++) tile_walk((tile_kernel *)k, k->phases[i], find_assert, &search);
    char name[80];
    name_program(program, programs, name, sizeof(name));
    const char *path = tile_place(k, &line);
    return error_diagnose(error, QN_FAILED, E507, path, line, search.found ? search.found->column : 0,
                          "assert failed in program %s: %s", name,
                          search.found && search.found->attr.words ? search.found->attr.words : "");
}

qn_status failure_bounds(const tile_kernel *k, int line, const int64_t program[3], const int64_t programs[3],
                         int64_t array, int64_t index, qn_error *error)
{
    char name[80];
    name_program(program, programs, name, sizeof(name));
    const char *path = tile_place(k, &line);
    return error_set(
        error, QN_FAILED, "%s:%d: error: kernel `%s` touches element %lld of array `%s`, outside of it, in program %s",
        path, line, k->name, (long long)index, array >= 0 && array < k->param_count ? k->params[array].name : "", name);
}

qn_status failure_load(const char *path, qn_error *error)
{
    const char *why = dlerror();
    return error_set(error, QN_FAILED, "cannot load %s: %s", path, why ? why : "the loader gives no reason");
}
