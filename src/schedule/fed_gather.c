/*
 * Operands that are gathered. In: a value that a product takes. Out: the load of an array with digits that it is computed
 * from, element by element; and how the warps that fill the ring go through it.
 *
 * Nothing is asked of what lies between the load and the product but that an element needs no other element. Several
 * operands may come from one load (the terms of an f32 operand): it is then read once.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/fed.h"

enum {
    MOST_OPS = 32,
    MOST_ROWS = 16,
    CHUNK_BYTES = 16,
    MOST_WORDS = 32, /* of a thread and a step */
    LEAST_LINES = 8,
    NEAR_LINES = 4 /* elements between lines that lanes may still stay at: places of k are handed round less often */
};

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
        const tile_op *load = sched_converted_load(k, op->operands[1]);
        if (load && fed_mask_is_own(w, op->operands[0], load, false)) return load;
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

const tile_op *fed_load_below(const fed_work *w, value v)
{
    int budget = MOST_OPS;
    bool good = true;
    const tile_op *load = load_below(w, v, &budget, &good);
    return good && load && !load->attr.access.mask_count ? load : NULL;
}

const tile_op *fed_gathered_load(const fed_work *w, value v)
{
    const tile_op *load = fed_load_below(w, v);
    if (!load) return NULL;
    const tile_param *p = &w->s->kernel->params[load->attr.access.array];
    return p->digits && (p->elem == DT_F32 || p->elem == DT_BF16 || p->elem == DT_F16) ? load : NULL;
}

void fed_need_values(const tile_kernel *k, const tile_op *load, value v, bool *needed)
{
    const tile_op *op = tile_def(k, v);
    if (needed[v]) return;
    needed[v] = true;
    if (op == load || !op || op->region_count) return;
    const tile_op *below = op->code == OP_SELECT ? sched_converted_load(k, op->operands[1]) : NULL;
    if (below == load) { /* by the load's own bounds: outside it gives zero by itself */
        fed_need_values(k, load, op->operands[1], needed);
        return;
    }
    for (int i = 0; i < op->operand_count; i++) fed_need_values(k, load, op->operands[i], needed);
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
    fed_need_values(k, g->load, o->source, g->needed);
    return true;
}

bool fed_gather_is_plain(const schedule *s)
{
    for (int i = 0; i < s->operand_count; i++) {
        const tile_op *op = tile_def(s->kernel, s->operands[i].source);
        if (op->code == OP_SELECT) op = tile_def(s->kernel, op->operands[1]);
        if (op->code == OP_TF32) op = tile_def(s->kernel, op->operands[0]);
        if (s->operands[i].gathered && op != s->gather.load) return false;
    }
    return true;
}

/* Are elements gathered as they are, and each 16 bytes of them along k in memory, too, at a multiple of 16 bytes? */
static bool goes_by_chunk(const schedule *s)
{
    const sched_gather *g = &s->gather;
    const tile_param *p = &s->kernel->params[g->load->attr.access.array];
    const param_digits *d = p->digits;
    const axis_digits *k = &d->axes[g->k_axis];
    int chunk = CHUNK_BYTES / dtypes[p->elem].size_bytes;
    int last = k->count - 1, extent = p->extent_param[g->k_axis];
    bool whole = last ? k->extent[last] % chunk == 0 : extent >= 0 && s->kernel->params[extent].facts.by16;
    if (!g->along_k || !p->facts.bulk || !whole || d->origin % chunk) return false;
    for (int axis = 0; axis < p->rank; axis++)
        for (int i = 0; i < d->axes[axis].count; i++)
            if (d->axes[axis].stride[i] % chunk && (axis != g->k_axis || i != last)) return false;
    for (int n = 0; n < d->guard_count; n++)
        if (k->guard[n][last]) return false;
    return k->stride[last] == 1;
}

/* Are the elements of neighbouring lines neighbours, or nearly? */
static bool lies_near(const tile_param *p, const sched_gather *g)
{
    const axis_digits *lines = &p->digits->axes[g->tile_axis];
    int64_t step = lines->stride[lines->count - 1];
    return step >= 1 && step <= NEAR_LINES && (lines->count == 1 || lines->extent[lines->count - 1] >= LEAST_LINES);
}

bool fed_choose_gather(fed_work *w)
{
    sched_gather *g = &w->s->gather;
    const tile_param *p = &w->s->kernel->params[g->load->attr.access.array];
    bool plain = fed_gather_is_plain(w->s);
    g->rounds = !w->s->turns;
    if (g->rounds && !plain) return fed_refuse(w, "an operand of other than 16 bits is gathered and computed");
    g->by_chunk = plain && (g->rounds || dtypes[p->elem].size_bytes == 2) && goes_by_chunk(w->s);
    if (g->rounds && !g->by_chunk && lies_near(p, g)) g->along_k = false;
    int size = w->s->choice.tile[g->side], lines = g->along_k ? size : w->s->choice.tile[2];
    g->warp_lines = lines / w->s->fill.warps;
    g->boxes = g->along_k ? 1 : size / (SCHED_LINE_BYTES / (g->rounds ? 4 : 2));
    g->rows = g->warp_lines * g->boxes / (g->by_chunk ? 4 : g->rounds ? 1 : 2);
    if (g->rows * (g->by_chunk && g->rounds ? 4 : 1) > (g->rounds ? MOST_WORDS : MOST_ROWS) || g->rows < 1)
        return fed_refuse(w, "its tile has more lines than the warps that gather can share out");
    return true;
}
