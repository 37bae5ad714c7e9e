/*
 * Arrays that a phase only counts in (schedule/counted.c): each call of the phase's function has a copy of its own at the
 * beginning of its scratch memory, counts there without atomics, and adds what it counted at its end.
 *
 * Whether it does is decided when it runs: the array has few elements, and the programs of the call count more than those.
 * Else NAME_array is the array, and own_ADD... of the prelude are the atomics.
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <inttypes.h>

#define OWN_COUNTS 4096 /* elements of an array, at most */

static const char *count_identity(emitter *e, int array)
{
    static const fold_kind folds[] = {FOLD_SUM, FOLD_MIN, FOLD_MAX};
    dtype t = e->k->params[array].elem;
    atomic_kind kind = e->counted[array].kind;
    if (kind == ATOMIC_AND) return arena_print(e->memory, "(%s)-1", memory_type(t));
    return number_text(e, t, kind <= ATOMIC_MAX ? fold_identity(folds[kind], t) : (number){0});
}

void counts_begin(emitter *e, int array, const char **own)
{
    const tile_param *param = &e->k->params[array];
    const char *name = param->name, *type = memory_type(param->elem);
    put(e, "%s *const restrict %s_whole = launch->arrays[%d].data;", type, name, array);
    text all = {0};
    text_add(&all, "1");
    for (int i = 0; i < param->rank; i++) text_print(&all, " * launch->arrays[%d].extents[%d]", array, i);
    put(e, "const long %s_count = %s;", name, text_get(&all));
    text_free(&all);
    put(e, "const int %s_own = %s_count <= %d && %s_count <= (last - first) * %" PRId64 "L;", name, name, OWN_COUNTS,
        name, e->counted[array].elements);
    put(e, "%s *const restrict %s_array = %s_own ? (%s *)((char *)scratch + %s) : %s_whole;", type, name, name, type,
        *own, name);
    put(e, "for (long i = 0; %s_own && i < %s_count; i++) %s_array[i] = %s;", name, name, name,
        count_identity(e, array));
    *own = arena_print(e->memory, "%s + %dL * sizeof(%s)", *own, OWN_COUNTS, type);
}

void counts_end(emitter *e)
{
    for (int p = 0; p < e->k->param_count; p++) {
        if (!e->array_used[p] || !e->counted[p].elements) continue;
        const char *name = e->k->params[p].name;
        put(e, "for (long i = 0; %s_own && i < %s_count; i++)", name, name);
        put(e, "    if (%s_array[i] != %s) %s(%s_whole + i, %s_array[i]);", name, count_identity(e, p),
            need(e, "atomic_%s_%s", atomic_names[e->counted[p].kind], memory_name(e->k->params[p].elem)), name, name);
    }
}

const char *counts_bytes(emitter *e)
{
    int64_t bytes = 0;
    for (int p = 0; p < e->k->param_count; p++)
        if (e->counted[p].elements) bytes += OWN_COUNTS * dtypes[e->k->params[p].elem].size_bytes;
    return bytes ? arena_print(e->memory, "%" PRId64 "L", bytes) : NULL;
}
