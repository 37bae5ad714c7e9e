/*
 * A kernel of a file as it is for one launch: instantiated, its head run, the facts of contiguous and aligned arrays
 * chosen for a GPU, and through the pipeline. For tests of the CUDA emitter, which needs no device.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_LAUNCH_OF_H
#define QUERN_TESTS_LAUNCH_OF_H

#include "emit/cuda/emit.h"
#include "lang/ast.h"
#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

typedef struct launch_of {
    arena *memory;
    tile_kernel *kernel; /* NULL: it failed, and said why */
    launch_plan plan;
    array_view arrays[64];
} launch_of;

/* settings: "T=f32 rows=8 cols=256 BLOCK=64". */
static inline launch_of launch_make(const char *path, const char *name, const char *settings, const cuda_target *target)
{
    launch_of l = {.memory = arena_new()};
    char *words, names[16][32], values[16][32];
    size_t length;
    qn_error error;
    int count = 0, used;
    while (count < 16 && sscanf(settings, " %31[^=]=%31s%n", names[count], values[count], &used) == 2) {
        settings += used;
        count++;
    }
    if (file_read(path, 1 << 24, &words, &length, &error) != QN_OK) {
        printf("%s\n", error.message);
        return l;
    }
    diagnostics found = {.memory = l.memory};
    ast_file *file = lang_parse(l.memory, path, words, length, &found);
    const ast *kernel = ast_find(file, name);
    lang_given given = {.units = 132};
    bool is_given[64] = {0};
    number numbers[64] = {{0}};
    for (int i = 0; i < count; i++) {
        binding b = {.name = names[i], .kind = BIND_INT, .untyped = true};
        if (dtype_from_text(values[i], &b.type)) b.kind = BIND_TYPE;
        b.number.i = strtoll(values[i], NULL, 0);
        b.number.f = (double)b.number.i;
        bool is_true = !strcmp(values[i], "true");
        if (is_true || !strcmp(values[i], "false")) b.kind = BIND_BOOL, b.number = (number){.i = is_true};
        bindings_set(l.memory, &given.settings, b);
    }
    bindings constants = {0}, extents = {0};
    tile_kernel *k = NULL;
    bool good = kernel && lang_instantiate(file, kernel, &given, &found, l.memory, &constants, &extents) &&
                lang_lower(file, kernel, &constants, l.memory, &found, &k);
    for (int p = 0; good && p < k->param_count; p++) {
        l.arrays[p].elem = k->params[p].elem;
        l.arrays[p].rank = k->params[p].rank;
        for (int i = 0; i < count; i++) {
            if (k->params[p].kind < PARAM_SCALAR || strcmp(k->params[p].name, names[i])) continue;
            is_given[p] = true;
            numbers[p] = (number){.i = strtoll(values[i], NULL, 0), .f = strtod(values[i], NULL)};
        }
    }
    if (good) l.plan = launch_plan_new(l.memory, k->param_count);
    good = good && interp_head(k, is_given, numbers, l.arrays, 132, &l.plan, &error) == QN_OK;
    for (int p = 0; good && p < k->param_count; p++) {
        int64_t step = 1;
        l.arrays[p].data = (void *)4096;
        for (int axis = k->params[p].rank - 1; axis >= 0; axis--) {
            l.arrays[p].extents[axis] = l.plan.extents[p][axis];
            l.arrays[p].strides[axis] = step;
            step *= l.plan.extents[p][axis];
        }
    }
    if (good) cuda_choose_facts(k, l.arrays, &l.plan);
    good = good && passes_run(k, NULL, NULL, NULL, &error) == QN_OK;
    free(words);
    if (good)
        l.kernel = k;
    else
        printf("%s %s does not lower\n", path, name);
    return l;
}

static inline void launch_free(launch_of *l)
{
    arena_free(l->memory);
}

#endif
