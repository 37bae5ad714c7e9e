/*
 * Operands that are gathered. In: a value that a product takes. Out: the load of an array with digits that it is computed
 * from, element by element; and how the warps that fill the ring go through it.
 *
 * Nothing is asked of what lies between the load and the product but that an element needs no other element. Several
 * operands may come from one load (the terms of an f32 operand): it is then read once.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/fed.h"

enum { FILL_WARPS = 4, LANES = 32, MOST_OPS = 32 };

static bool op_is_arithmetic(const tile_op *op)
{
    switch (ops[op->code].class) {
    case CLASS_UNARY:
    case CLASS_BINARY:
    case CLASS_COMPARE:
    case CLASS_TERNARY: return op->code != OP_LOAD;
    default: return false;
    }
}

/* A scalar, or one scalar everywhere. */
static bool is_uniform(const fed_work *w, value v)
{
    const tile_op *op = tile_def(w->s->kernel, v);
    if (!tile_type_of(w->s->kernel, v).rank) return true;
    return op && op->code == OP_BROADCAST && is_uniform(w, op->operands[0]);
}

/* *budget: ops that may still be looked at, so that a tangle does not take for ever. */
static const tile_op *load_below(const fed_work *w, value v, int *budget, bool *good)
{
    const tile_kernel *k = w->s->kernel;
    const tile_op *op = tile_def(k, v), *found = NULL;
    if (!op || --*budget < 0) return *good = false, NULL;
    if (op->code == OP_LOAD) return op;
    if (op->code == OP_SELECT && fed_is_zero_tile(w, op->operands[2])) {
        const tile_op *load = tile_def(k, op->operands[1]);
        if (load && load->code == OP_LOAD && fed_mask_is_own(w, op->operands[0], load, false)) return load;
    }
    if (!op_is_arithmetic(op)) return *good = false, NULL;
    tile_type whole = tile_type_of(k, v);
    for (int i = 0; i < op->operand_count && *good; i++) {
        if (is_uniform(w, op->operands[i])) continue;
        tile_type part = tile_type_of(k, op->operands[i]);
        const tile_op *load = tile_shape_same(&whole, &part) ? load_below(w, op->operands[i], budget, good) : NULL;
        if (!load || (found && load != found)) return *good = false, NULL;
        found = load;
    }
    if (!found) *good = false;
    return found;
}

const tile_op *fed_gathered_load(const fed_work *w, value v)
{
    int budget = MOST_OPS;
    bool good = true;
    const tile_op *load = load_below(w, v, &budget, &good);
    if (!good || !load || load->attr.access.mask_count) return NULL;
    return w->s->kernel->params[load->attr.access.array].digits ? load : NULL;
}

static void need(sched_gather *g, const tile_kernel *k, value v)
{
    const tile_op *op = tile_def(k, v);
    if (g->needed[v]) return;
    g->needed[v] = true;
    if (op == g->load || !op || op->region_count) return;
    const tile_op *below = op->code == OP_SELECT ? tile_def(k, op->operands[1]) : NULL;
    if (below == g->load) { /* by the load's own bounds: outside it gives zero by itself */
        need(g, k, op->operands[1]);
        return;
    }
    for (int i = 0; i < op->operand_count; i++) need(g, k, op->operands[i]);
}

/* Along which axis elements lie side by side in memory: that one runs along the lines of the ring. */
static bool lies_along_k(const tile_param *p, const sched_operand *o)
{
    const axis_digits *k = &p->digits->axes[o->k_axis], *lines = &p->digits->axes[o->tile_axis];
    return k->stride[k->count - 1] == 1 && lines->stride[lines->count - 1] != 1;
}

bool fed_add_gather(fed_work *w, const sched_operand *o)
{
    sched_gather *g = &w->s->gather;
    const tile_kernel *k = w->s->kernel;
    const tile_param *p = &k->params[o->load->attr.access.array];
    if (g->load && (g->load != o->load || g->side != o->side)) return fed_refuse(w, "both operands are to be gathered");
    if (!g->load) {
        *g = (sched_gather){.load = o->load, .side = o->side, .k_axis = o->k_axis, .tile_axis = o->tile_axis};
        g->along_k = lies_along_k(p, o);
        g->needed = ARENA_ARRAY(w->memory, bool, k->value_count);
    }
    need(g, k, o->source);
    return true;
}

bool fed_choose_gather(fed_work *w)
{
    sched_gather *g = &w->s->gather;
    int size = w->s->choice.tile[g->side], lines = g->along_k ? size : w->s->choice.tile[2];
    if (!w->s->turns) return fed_refuse(w, "an operand of other than 16 bits is gathered");
    g->warp_lines = lines / FILL_WARPS;
    if (g->warp_lines % SCHED_GATHER_ROWS || g->warp_lines > LANES)
        return fed_refuse(w, "its tile has more lines than the warps that gather can share out");
    if (g->along_k)
        g->passes = g->warp_lines / SCHED_GATHER_ROWS;
    else
        g->passes = size / (SCHED_LINE_BYTES / 2);
    return true;
}
