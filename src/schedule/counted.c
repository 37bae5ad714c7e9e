/*
 * Arrays that a phase only counts in. In: a phase whose uses are counted. Out: by parameter, the one atomic that all of its
 * accesses are, and how many elements a program has for it at least.
 *
 * Of whole numbers such atomics have one result in any order, and nobody sees the array before the phase ends: a worker may
 * count in a copy of its own and add that at its end. Not those that give what was there before, nor those that order the
 * programs (F_ORDERED), nor arrays whose elements do not lie side by side.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/survey.h"

typedef struct counting {
    survey *e;
    counted *all;
    bool *other;
} counting;

static bool is_plain(const survey *e, const tile_op *op)
{
    return op->attr.atomic < ATOMIC_EXCHANGE && !(op->flags & F_ORDERED) && !e->uses[op->results[0]];
}

static void look(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    const counting *c = context;
    if (op->code != OP_LOAD && op->code != OP_STORE && op->code != OP_ATOMIC) return;
    int array = op->attr.access.array;
    counted *of = &c->all[array];
    if (op->code != OP_ATOMIC || !is_plain(c->e, op) || (of->elements && of->kind != op->attr.atomic)) {
        c->other[array] = true;
        return;
    }
    tile_type type = tile_type_of(k, op->operands[0]);
    int64_t elements = 1;
    for (int i = 0; i < type.rank; i++) elements *= MAXIMUM(type.dims[i], 1);
    of->kind = op->attr.atomic;
    of->elements += elements;
}

counted *counted_arrays(survey *e, int phase)
{
    int count = e->k->param_count;
    counting c = {e, ARENA_ARRAY(e->memory, counted, count + 1), ARENA_ARRAY(e->memory, bool, count + 1)};
    tile_walk((tile_kernel *)e->k, e->k->phases[phase], look, &c);
    for (int i = 0; i < count; i++) {
        const tile_param *p = &e->k->params[i];
        bool side_by_side = p->facts.contiguous || !p->rank || (p->rank == 1 && p->facts.last_unit);
        bool whole = p->elem == DT_I32 || p->elem == DT_U32 || p->elem == DT_I64 || p->elem == DT_U64;
        if (c.other[i] || !side_by_side || !whole) c.all[i].elements = 0;
    }
    return c.all;
}
