/*
 * Operands of products that are scaled on their way. In: a DOT whose operand is a slice times numbers of another array, one
 * for each k. Out: the load of these numbers. They go through the ring beside the operands, and each element is multiplied
 * with its own before it is rounded: an outer product of rows with rows is never in memory.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/product.h"

/* Is it a load of an array that nothing here writes, by scalars and slices of neighbours? */
static bool is_plain_load(const survey *e, const tile_op *op)
{
    if (!op || op->code != OP_LOAD || op->attr.access.mask_count || e->written[op->attr.access.array]) return false;
    const struct access *a = &op->attr.access;
    number step;
    for (int i = 0, operand = a->first_index; i < a->rank; i++) {
        bool slice = a->kind[i] == INDEX_SLICE;
        if (!slice && e->k->values[op->operands[operand]].type.rank) return false;
        if (slice && (!tile_is_constant(e->k, op->operands[operand + 1], &step) || step.i != 1)) return false;
        operand += slice ? 2 : 1;
    }
    return !e->k->params[a->array].digits;
}

/* The product that makes an operand of f32, behind what cuts and rounds it; NULL: there is none. One that is turned is put
 * into memory first: the numbers are read along the operand's own axis of k. */
static const tile_op *find_multiple(const survey *e, value v)
{
    const tile_op *op = tile_def(e->k, v);
    while (op && (op->code == OP_SELECT || op->code == OP_TF32))
        op = tile_def(e->k, op->operands[op->code == OP_SELECT ? 1 : 0]);
    if (!op || op->code != OP_MUL) return NULL;
    tile_type whole = tile_type_of(e->k, op->results[0]);
    bool known = whole.rank == 2 && whole.elem == DT_F32 && whole.dims[0] > 0 && whole.dims[1] > 0;
    return known ? op : NULL;
}

/* Which of its factors is a load that is the same along `axis`, the other being one, too; NULL: none. */
static tile_op *find_factor(const survey *e, const tile_op *op, int axis)
{
    tile_type whole = tile_type_of(e->k, op->results[0]);
    for (int i = 0; i < 2; i++) {
        tile_op *scale = tile_def(e->k, op->operands[i]);
        if (scale && scale->code == OP_BROADCAST) scale = tile_def(e->k, scale->operands[0]);
        if (!is_plain_load(e, scale) || !is_plain_load(e, tile_def(e->k, op->operands[1 - i]))) continue;
        tile_type type = tile_type_of(e->k, scale->results[0]);
        if (type.rank == 2 && type.elem == DT_F32 && type.dims[axis] == 1 &&
            type.dims[1 - axis] == whole.dims[1 - axis])
            return scale;
    }
    return NULL;
}

tile_op *scale_find(const survey *e, value v, int side)
{
    const tile_op *op = find_multiple(e, v);
    return op ? find_factor(e, op, side) : NULL; /* k is the left operand's second axis */
}
