/*
 * Extents and strides of arrays as text. In: an array and an axis. Out: a name, noted, so that the function declares what
 * its body names and nothing else.
 * SPDX-License-Identifier: MIT
 */
#include "emit/nest.h"

const char words_zero[] = "0", words_one[] = "1";

void arrays_forget(emitter *e)
{
    e->array_used = ARENA_ARRAY(e->memory, bool, e->k->param_count + 1);
    e->array_named = (array_names *)arena_alloc(e->memory, sizeof(array_names) * (size_t)(e->k->param_count + 1));
}

static const char *name(emitter *e, int array, int axis, int what)
{
    static const char *const words[NAMED_COUNT] = {"extent", "stride"};
    e->array_named[array][axis][what] = true;
    return arena_print(e->memory, "%s_%s%d", e->k->params[array].name, words[what], axis);
}

const char *stride_text(emitter *e, int array, int axis)
{
    const tile_param *p = &e->k->params[array];
    if (axis == p->rank - 1 && (p->facts.last_unit || p->facts.contiguous)) return words_one;
    if (axis == p->rank - 1 && p->facts.backwards) return "-1";
    return name(e, array, axis, NAMED_STRIDE);
}

const char *array_extent(emitter *e, int array, int axis)
{
    return name(e, array, axis, NAMED_EXTENT);
}
