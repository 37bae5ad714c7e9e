/*
 * Operands that are taken. In: a value that a product takes, computed element by element from a slice of an f32 array (its
 * terms of bf16; the element rounded to tf32 where no bulk copy brings it along k). Out: the load, what is computed from it, and how the warps that fill the ring share it out.
 *
 * Nothing is asked of addresses and strides but that elements lie side by side along k or along the tile: where they are
 * multiples of 16 bytes is found out at run time. What is rounded may be multiplied with a number of its row or column first, which an outer loop
 * over k gives (an outer product of rows that is never in memory). Several operands of a side may come from one load: it is read once.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/fed.h"

enum { VECTOR = 4 /* elements */, MOST_VECTORS = 16 /* of a thread: registers */ };

/* A number of each line of the tile: the load of one slice, that begins where those of the elements do. */
static bool is_factor(const fed_work *w, const tile_op *load, const tile_op *factor, int side)
{
    const tile_kernel *k = w->s->kernel;
    const struct access *a = &load->attr.access, *b = &factor->attr.access;
    const tile_param *p = &k->params[b->array];
    tile_type whole = tile_type_of(k, load->results[0]), part = tile_type_of(k, factor->results[0]);
    int sliced = -1, operand = b->first_index, from = 0;
    if (p->elem != DT_F32 || p->digits || b->mask_count || part.rank != 2) return false;
    for (int axis = 0; axis < b->rank; axis++) {
        bool slice = b->kind[axis] == INDEX_SLICE;
        if (tile_type_of(k, factor->operands[operand]).rank || (slice && sliced >= 0)) return false;
        if (slice) sliced = axis, from = operand;
        operand += slice ? 2 : 1;
    }
    int along = sliced < 0 ? 0 : b->result_axis[sliced];
    if (sliced < 0 || along != side || !fed_is_number(w, factor->operands[from + 1], 1)) return false;
    if (part.dims[along] != whole.dims[along] || part.dims[1 - along] != 1) return false;
    for (int axis = 0, at = a->first_index; axis < a->rank; axis++) {
        bool slice = a->kind[axis] == INDEX_SLICE;
        if (slice && a->result_axis[axis] == along) return load->operands[at] == factor->operands[from];
        at += slice ? 2 : 1;
    }
    return false;
}

/* The load of a slice whose elements are multiplied with a number of their line and rounded; NULL: v is none. */
static const tile_op *multiplied_load(const fed_work *w, value v, int side, const tile_op **factor)
{
    const tile_kernel *k = w->s->kernel;
    const tile_op *op = tile_def(k, v), *mask = op && op->code == OP_SELECT ? op : NULL;
    if (mask) op = fed_is_zero_tile(w, mask->operands[2]) ? tile_def(k, mask->operands[1]) : NULL;
    if (op && op->code == OP_TF32) op = tile_def(k, op->operands[0]);
    if (!op || op->code != OP_MUL || k->fills <= 0) return NULL;
    for (int i = 0; i < 2; i++) {
        const tile_op *load = tile_def(k, op->operands[i]), *other = tile_def(k, op->operands[1 - i]);
        if (!load || !other || load->code != OP_LOAD || other->code != OP_LOAD || load->attr.access.mask_count)
            continue;
        const tile_param *p = &k->params[load->attr.access.array];
        if (p->elem != DT_F32 || p->digits || p->rank < 2 || !p->facts.last_unit) continue;
        if (!is_factor(w, load, other, side)) continue;
        if (mask && !fed_mask_is_own(w, mask->operands[0], load, false)) continue;
        *factor = other;
        return load;
    }
    return NULL;
}

const tile_op *fed_taken_load(const fed_work *w, value v, int side)
{
    const tile_op *factor, *multiplied = multiplied_load(w, v, side, &factor);
    if (multiplied) return multiplied;
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
    return rounds && k->fills >= 0 && (!along || (k->fills && !fed_array_is_bulk(p))) ? load : NULL;
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
        multiplied_load(w, o->source, o->side, &t->factor);
        t->rounds = o->rounds;
        t->needed = ARENA_ARRAY(w->memory, bool, k->value_count);
    }
    fed_need_values(k, t->load, o->source, t->needed);
    return true;
}

/* Is it computed before all loops? */
static bool is_outside(const fed_work *w, value v)
{
    const tile_block *block = w->s->kernel->phases[w->s->phase];
    const tile_op *op = tile_def(w->s->kernel, v);
    bool found = op && op->code == OP_CONST;
    for (int i = 0; i < block->op_count && !found; i++) found = block->ops[i] == op;
    return found;
}

static bool follows_loops(const fed_work *w, const tile_op *load)
{
    const sched_walk *walk = &w->s->walks[0];
    const struct access *a = &load->attr.access;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        value v = load->operands[operand];
        if (v != walk->loops[0]->regions[0]->args[0] && v != walk->loops[1]->regions[0]->args[0] && !is_outside(w, v))
            return false;
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return true;
}

bool fed_check_taken_loops(fed_work *w)
{
    const schedule *s = w->s;
    const sched_walk *walk = &s->walks[0];
    if (walk->loop_count < 2) return true;
    bool good = walk->loop_count == 2;
    for (int i = 0; good && i < 3; i++) good = is_outside(w, walk->loops[1]->operands[i]);
    for (int side = 0; side < 2 && good; side++) {
        const sched_take *t = &s->takes[side];
        if (!t->load) continue;
        good = t->rounds && follows_loops(w, t->load) && (!t->factor || follows_loops(w, t->factor));
    }
    return good || fed_refuse(w, "an operand is computed in several loops");
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
