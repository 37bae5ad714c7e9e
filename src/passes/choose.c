/*
 * A sum of which one element counts. In: a fold over sum(select(position == i, a[..., :], 0)). Out: a load of a[..., i].
 *
 * An index outside the array hits no position, and a load there reads 0, so the tests need not be repeated; what is
 * added to 0 is never -0, so 0 is added here too. Only for arrays that no program writes, and whole rows of them.
 * SPDX-License-Identifier: MIT
 */
#include "passes/fold.h"

static const tile_op *defined_by(const rewriter *r, value v, op_code code)
{
    const tile_op *op = tile_def(r->k, v);
    return op && op->code == code ? op : NULL;
}

/* The scalar that is compared with the positions along the only axis; 0: it is another condition. */
static value chosen_index(const rewriter *r, value condition)
{
    const tile_op *equal = defined_by(r, condition, OP_EQ);
    for (int side = 0; equal && side < 2; side++) {
        value at = equal->operands[1 - side];
        const tile_op *spread = defined_by(r, at, OP_BROADCAST);
        if (spread) at = spread->operands[0];
        if (defined_by(r, equal->operands[side], OP_IOTA) && !tile_type_of(r->k, at).rank) return at;
    }
    return 0;
}

/* Is it all of the last axis of an array that nothing writes? */
static bool is_whole_row(const rewriter *r, const tile_op *load)
{
    const tile_kernel *k = r->k;
    const struct access *access = &load->attr.access;
    const tile_param *p = &k->params[access->array];
    tile_type type = tile_type_of(k, load->results[0]);
    int last = access->rank - 1;
    number start, step;
    if (p->kind != PARAM_IN || access->mask_count || type.rank != 1 || last < 0 || type.dims[0] >= 0) return false;
    for (int i = 0; i < last; i++)
        if (access->kind[i] != INDEX_SCALAR) return false;
    const tile_op *extent = tile_def(k, (value)-type.dims[0]);
    int at = load->operand_count - 2;
    return access->kind[last] == INDEX_SLICE && extent && extent->code == OP_ARG &&
           p->extent_param[last] == extent->attr.index && tile_is_constant(k, load->operands[at], &start) && !start.i &&
           tile_is_constant(k, load->operands[at + 1], &step) && step.i == 1;
}

/* Moves the op that was emitted last up, behind the first fold after the row's load: there the row has come, the index
 * too, and much is left to do. */
static void raise_last(rewriter *r, const tile_op *load, const tile_op *index)
{
    tile_op *last = r->out.items[r->out.count - 1];
    int to = -1;
    bool loaded = false;
    for (int i = 0; i < r->out.count - 1; i++) {
        const tile_op *op = r->out.items[i];
        loaded |= op == load;
        if (op == index) to = -1;
        if (loaded && to < 0 && op->code == OP_REDUCE) to = i + 1;
    }
    if (to < 0) return;
    for (int i = r->out.count - 1; i > to; i--) r->out.items[i] = r->out.items[i - 1];
    r->out.items[to] = last;
}

value algebra_chosen(rewriter *r, const tile_op *op)
{
    tile_type result = tile_type_of(r->k, op->results[0]);
    const tile_op *select = defined_by(r, op->operands[0], OP_SELECT);
    number zero;
    if (op->attr.fold != FOLD_SUM || result.rank || !select || !dtype_is_float(result.elem)) return 0;
    if (!constant_of(r->k, select->operands[2], &zero) || zero.f != 0) return 0;
    value index = chosen_index(r, select->operands[0]);
    const tile_op *convert = defined_by(r, select->operands[1], OP_CONVERT);
    const tile_op *load = defined_by(r, convert ? convert->operands[0] : select->operands[1], OP_LOAD);
    if (!index || !load || !is_whole_row(r, load)) return 0;
    value operands[MAX_RANK];
    struct access access = load->attr.access;
    int last = access.rank - 1;
    for (int i = 0; i < last; i++) operands[i] = load->operands[access.first_index + i];
    operands[last] = index;
    access.kind[last] = INDEX_SCALAR;
    access.safe[last] = false;
    value one = rewrite_emit(r, OP_LOAD, operands, access.rank, scalar_type(r->k->params[access.array].elem));
    tile_def(r->k, one)->attr.access = access;
    raise_last(r, load, tile_def(r->k, index));
    if (convert) one = rewrite_emit(r, OP_CONVERT, &one, 1, result);
    value sum[2] = {one, rewrite_constant(r, result.elem, (number){0})};
    return rewrite_emit(r, OP_ADD, sum, 2, result);
}
