/*
 * Operands that are taken. In: a value that a product takes, computed element by element from a slice of an f32 array (its
 * terms of bf16; the element rounded to tf32 where no bulk copy brings it along k). Out: the load, what is computed from it, and how the warps that fill the ring share it out.
 *
 * Nothing is asked of addresses and strides but that elements lie side by side along k or along the tile: where they are
 * multiples of 16 bytes is found out at run time. Several operands of a side may come from one load: it is read once.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/fed.h"

enum { VECTOR = 4 /* elements */, MOST_VECTORS = 16 /* of a thread: registers */ };

const tile_op *fed_taken_load(const fed_work *w, value v, int side)
{
    const tile_kernel *k = w->s->kernel;
    const tile_op *load = fed_load_below(w, v), *op = tile_def(k, v);
    if (!load) return NULL;
    const struct access *a = &load->attr.access;
    const tile_param *p = &k->params[a->array];
    if (p->elem != DT_F32 || p->digits || p->rank < 2 || !p->facts.last_unit) return NULL;
    if (tile_type_of(k, v).elem != DT_F32) return load;
    if (op->code == OP_SELECT) op = tile_def(k, op->operands[1]);
    bool along = a->kind[a->rank - 1] == INDEX_SLICE && a->result_axis[a->rank - 1] == (side ? 0 : 1);
    bool rounds = op && op->code == OP_TF32 && tile_def(k, op->operands[0]) == load;
    return rounds && (!along || (k->fills && !fed_array_is_bulk(p))) ? load : NULL;
}

/* Is every 16 bytes of a line aligned, and inside of the array or outside? */
static bool is_whole(const tile_kernel *k, const sched_operand *o)
{
    const tile_param *p = &k->params[o->load->attr.access.array];
    int inner = p->rank - 1, extent = p->extent_param[inner];
    number n;
    if (!p->facts.bulk) return false;
    if (extent >= 0) return k->params[extent].facts.by16;
    return p->extents[inner] && tile_is_constant(k, p->extents[inner], &n) && n.i % VECTOR == 0;
}

bool fed_add_take(fed_work *w, const sched_operand *o)
{
    sched_take *t = &w->s->takes[o->side];
    const tile_kernel *k = w->s->kernel;
    if (t->load && t->load != o->load) return fed_refuse(w, "an operand is computed from several slices");
    if (!t->load) {
        *t = (sched_take){.load = o->load, .along_k = o->along_k, .k_axis = o->k_axis, .tile_axis = o->tile_axis};
        t->whole = is_whole(k, o);
        t->rounds = o->rounds;
        t->needed = ARENA_ARRAY(w->memory, bool, k->value_count);
    }
    fed_need_values(k, t->load, o->source, t->needed);
    return true;
}

bool fed_choose_takes(fed_work *w)
{
    schedule *s = w->s;
    int all = 0;
    for (int side = 0; side < 2; side++) {
        sched_take *t = &s->takes[side];
        if (!t->load) continue;
        t->vectors = s->choice.tile[side] * s->choice.tile[2] / VECTOR / (32 * s->fill.warps);
        all += t->vectors;
    }
    return all <= MOST_VECTORS ||
           fed_refuse(w, "its tile has more elements than the warps that fill have registers for");
}
