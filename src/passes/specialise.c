/*
 * specialise: what the launch promised becomes part of the code.
 * requires: nothing. keeps: everything. breaks: fold.
 *
 * In: a kernel whose parameters carry facts. Out: in the phases, a scalar or extent that can only have one value (it
 * equals one, or the host has checked an `assume` that fixes it) is that constant; tiles along it get a constant
 * extent. The head stays as it is: it binds and checks the arguments. Facts that leave a choice (multiples of 16,
 * alignment, size classes) stay on the parameters, where facts.c and the emitters find them.
 * SPDX-License-Identifier: MIT
 */
#include "passes/facts.h"
#include "passes/pass_list.h"
#include "passes/rewrite.h"

static void specialise_op(rewriter *r, tile_op *op, void *context)
{
    const facts *known = context;
    if (op->code == OP_ARG && dtype_is_integer(tile_type_of(r->k, op->results[0]).elem)) {
        integer_fact fact = known->params[op->attr.index];
        if (fact.low == fact.high) {
            rewrite_replace(r, op->results[0],
                            rewrite_constant(r, tile_type_of(r->k, op->results[0]).elem, (number){.i = fact.low}));
            return;
        }
    }
    for (int i = 0; i < op->region_count; i++) rewrite_block(r, op->regions[i], specialise_op, context);
    rewrite_keep(r, op);
}

bool pass_specialise(tile_kernel *k)
{
    rewriter r = rewrite_start(k);
    facts *known = facts_compute(k, r.scratch);
    for (int i = 0; i < k->phase_count; i++) rewrite_block(&r, k->phases[i], specialise_op, known);
    return rewrite_finish(&r);
}
