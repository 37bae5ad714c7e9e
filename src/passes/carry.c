/*
 * carry: what a loop hands on to one carried tile as another shape of a second one is copied first.
 * requires: nothing. keeps: everything. breaks: nothing.
 *
 * In: any kernel. Out: no loop of several carried tiles yields a reshape that moves elements between axes, unless of the very
 * tile that it is handed on to. All yielded values take effect at once; a reshape is another view of memory that the copies of
 * other tiles overwrite, and tiles of different shapes are copied by loops of their own. A broadcast to its own shape
 * is a value of its own.
 * SPDX-License-Identifier: MIT
 */
#include "passes/pass_list.h"
#include "passes/rewrite.h"

static bool is_view(const tile_kernel *k, value v)
{
    const tile_op *op = tile_def(k, v);
    if (!op || op->code != OP_RESHAPE) return false;
    tile_type from = tile_type_of(k, op->operands[0]), to = tile_type_of(k, v);
    return to.rank && !tile_reshape_only_units(&from, &to);
}

static void carry_op(rewriter *r, tile_op *op, void *context)
{
    const tile_op *loop = context;
    if (op->code == OP_YIELD && loop) {
        const value *arguments = loop->code == OP_FOR ? loop->regions[0]->args + 1 : loop->regions[1]->args;
        int tiles = 0;
        for (int i = 0; i < op->operand_count; i++) tiles += tile_type_of(r->k, op->operands[i]).rank > 0;
        for (int i = 0; i < op->operand_count && tiles > 1; i++) {
            value v = op->operands[i], root = v;
            while (is_view(r->k, root)) root = tile_def(r->k, root)->operands[0];
            if (root != v && root != arguments[i])
                op->operands[i] = rewrite_emit(r, OP_BROADCAST, &v, 1, tile_type_of(r->k, v));
        }
    }
    bool is_loop = op->code == OP_FOR || op->code == OP_WHILE;
    for (int i = 0; i < op->region_count; i++) rewrite_block(r, op->regions[i], carry_op, is_loop ? op : NULL);
    rewrite_keep(r, op);
}

bool pass_carry(tile_kernel *k)
{
    rewriter r = rewrite_start(k);
    rewrite_kernel(&r, carry_op, NULL);
    return rewrite_finish(&r);
}
