/*
 * unmask: tests that always hold go.
 * requires: cse, licm. keeps: everything. breaks: fold, cse.
 *
 * In: any kernel. Out: a `bound` that holds for all of its elements is the constant true, and an axis of an access that
 * is always inside its array is marked safe; fold then takes away the masks and the selects of assignments that were
 * made of them. Slices start at a multiple of the block below the launch count, loops step towards their limit, extents
 * are multiples of what the launch promised: relate.c puts these together.
 * SPDX-License-Identifier: MIT
 */
#include "passes/facts.h"
#include "passes/pass_list.h"

static bool bound_holds(const facts *f, const tile_op *op)
{
    tile_type type = tile_type_of(f->k, op->results[0]);
    linear start = relate_value(f, op->operands[0]), extent = relate_value(f, op->operands[2]);
    if (!type.rank) return relate_inside(f, start, relate_constant(0), relate_constant(1), extent);
    return relate_inside(f, start, relate_value(f, op->operands[1]), relate_dimension(type.dims[op->attr.index], f),
                         extent);
}

static void mark_safe(rewriter *r, const facts *f, tile_op *op)
{
    access *a = &op->attr.access;
    for (int i = 0; i < a->rank; i++) {
        if (a->safe[i] || !relate_access_inside(f, op, i)) continue;
        a->safe[i] = true;
        r->changed = true;
    }
}

static void unmask_op(rewriter *r, tile_op *op, void *context)
{
    facts *f = context;
    if (op->code == OP_BOUND && bound_holds(f, op)) {
        rewrite_replace(r, op->results[0], rewrite_bool(r, true, tile_type_of(r->k, op->results[0])));
        return;
    }
    if (ops[op->code].class == CLASS_MEMORY) mark_safe(r, f, op);
    relate_regions(r, f, op, unmask_op, context);
    rewrite_keep(r, op);
}

bool pass_unmask(tile_kernel *k)
{
    return relate_pass(k, unmask_op);
}
