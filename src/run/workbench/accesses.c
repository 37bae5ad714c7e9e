/*
 * How the text of a launch touches memory. In: a kernel that went through the pipeline, the arrays and the plan of a
 * launch. Out: its accesses as a warp sees them, with how many elements each touches; its products.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/accesses.h"

#include "emit/cuda/access_notes.h"
#include "run/compile/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what each op does in the whole launch ---- */

typedef struct op_count {
    const tile_op *op;
    double elements;
} op_count;

typedef struct looking {
    const tile_kernel *k;
    const array_view *views;
    arena *memory;
    launch_look *out;
    op_count *counts;
    int count, capacity;
} looking;

/* The load that an operand of a product comes from, or NULL. */
static const tile_op *load_of(const tile_kernel *k, value v, bool *rounds)
{
    for (const tile_op *op = tile_def(k, v); op; op = tile_def(k, op->operands[0])) {
        if (op->code == OP_LOAD) return op;
        *rounds |= op->code == OP_TF32;
        bool same = op->code == OP_TF32 || op->code == OP_PERMUTE || op->code == OP_RESHAPE || op->code == OP_SELECT;
        if (!same) return NULL;
        if (op->code == OP_SELECT) { /* where it is outside, zero */
            op = tile_def(k, op->operands[1]);
            if (!op || op->code == OP_LOAD) return op;
        }
    }
    return NULL;
}

static void look_at_operand(looking *l, const tile_op *dot, const tile_op *load)
{
    int array = load->attr.access.array, size = dtypes[l->k->params[array].elem].size_bytes;
    const array_view *v = &l->views[array];
    for (int axis = 0; axis < v->rank; axis++) {
        int64_t stride = llabs(v->strides[axis]) * size;
        if (v->extents[axis] <= 1 || llabs(v->strides[axis]) <= 1 || stride % 16 == 0 || l->out->rough_array) continue;
        l->out->rough_array = l->k->params[array].name;
        l->out->rough_line = load->line ? load->line : dot->line;
        l->out->rough_stride_bytes = stride;
    }
}

static void look_at_product(looking *l, const tile_op *op, double flops)
{
    launch_look *out = l->out;
    bool rounds[2] = {false, false};
    dtype elem = tile_type_of(l->k, op->operands[0]).elem;
    out->product_flops += flops;
    for (int i = 0; i < 2; i++) {
        const tile_op *load = load_of(l->k, op->operands[i], &rounds[i]);
        if (load) look_at_operand(l, op, load);
    }
    if (elem == DT_F32 && !(rounds[0] && rounds[1])) out->full_product_line = op->line ? op->line : 1;
}

static void visit(void *user, const tile_op *op, double elements, double flops)
{
    looking *l = user;
    if (op->code == OP_DOT) look_at_product(l, op, flops);
    for (int i = 0; i < l->count; i++)
        if (l->counts[i].op == op) {
            l->counts[i].elements += elements;
            return;
        }
    op_count new = {op, elements};
    if (ops[op->code].class == CLASS_MEMORY) ARENA_PUSH(l->memory, l->counts, l->count, l->capacity, new);
}

static double elements_of(const looking *l, const tile_op *op)
{
    for (int i = 0; i < l->count; i++)
        if (l->counts[i].op == op) return l->counts[i].elements;
    return 0;
}

/* ---- accesses ---- */

static void extents_of(const tile_kernel *k, const access_note *n, const launch_plan *plan, int64_t *extents,
                       double *positions)
{
    *positions = 1;
    for (int i = 0; i < n->loop_count; i++) {
        int64_t dim = n->loops[i];
        const tile_op *op = dim < 0 ? tile_def(k, (value)-dim) : NULL;
        extents[i] = dim >= 0 ? dim : op && op->code == OP_ARG ? plan->scalars_bits[op->attr.index] : 0;
        *positions *= (double)MAXIMUM(extents[i], 1);
    }
}

static void look_at_note(looking *l, const access_note *n, const launch_plan *plan)
{
    const tile_kernel *k = l->k;
    int64_t extents[MAX_RANK] = {0}, strides[MAX_RANK] = {0};
    const int64_t *programs = plan->programs[n->phase];
    double positions, launched = (double)programs[0] * (double)programs[1] * (double)programs[2];
    int array = n->tile ? -1 : n->op->attr.access.array, size = dtypes[n->elem].size_bytes;
    warp_access warp;
    extents_of(k, n, plan, extents, &positions);
    if (n->tile)
        strides[0] = 1;
    else
        memcpy(strides, l->views[array].strides, sizeof(int64_t) * (size_t)l->views[array].rank);
    note_measure(n, extents, strides, &warp);
    const char *name = n->tile ? k->values[n->tile].name : k->params[array].name;
    launch_access a = {.kind = n->tile                   ? ACCESS_TILE
                               : n->op->code == OP_LOAD  ? ACCESS_LOAD
                               : n->op->code == OP_STORE ? ACCESS_STORE
                                                         : ACCESS_ATOMIC,
                       .array = name ? name : "",
                       .line = n->line,
                       .bytes = n->width * size,
                       .possible_bytes = warp.possible_width * size,
                       .stride_bytes = warp.stride * size,
                       .at_once = 32 * n->vector,
                       .sectors = n->gathers ? 0 : warp.sectors,
                       .least_sectors = n->gathers ? 0 : warp.least,
                       .ways = warp.ways,
                       .elements = launched * positions};
    if (!n->tile) {
        double counted = elements_of(l, n->op);
        if (counted > 0) a.elements = counted;
        a.per_address = a.elements / fmax((double)view_count(&l->views[array]), 1);
    }
    /* One element for a whole team: a warp is not what does it. */
    if (!n->loop_count && !(n->lanes && n->team_threads == 1)) a.sectors = a.least_sectors = 0;
    ARENA_PUSH(l->memory, l->out->accesses, l->out->access_count, l->out->access_capacity, a);
}

/* Of each array what its accesses touch, and no more than it has: a kernel may use a part of what it is given. */
static double touched_bytes(const looking *l)
{
    double bytes = 0;
    if (l->out->product_flops != 0) return NAN; /* their operands are loaded in ways of their own */
    for (int array = 0; array < l->k->param_count; array++) {
        double loaded = 0, stored = 0, size = dtypes[l->k->params[array].elem].size_bytes;
        if (l->k->params[array].kind >= PARAM_SCRATCH) continue;
        for (int i = 0; i < l->count; i++) {
            const tile_op *op = l->counts[i].op;
            if (op->attr.access.array != array) continue;
            if (op->code != OP_STORE) loaded += l->counts[i].elements;
            if (op->code != OP_LOAD) stored += l->counts[i].elements;
        }
        double most = (double)view_count(&l->views[array]);
        bytes += size * (fmin(loaded, most) + fmin(stored, most));
    }
    return bytes;
}

void launch_look_make(const tile_kernel *k, const cuda_target *target, const array_view *views, const launch_plan *plan,
                      arena *memory, launch_look *out)
{
    looking l = {.k = k, .views = views, .memory = memory, .out = out};
    access_notes notes = {.memory = memory};
    launch_counts counts;
    qn_error ignored;
    *out = (launch_look){0};
    if (k->raw_language || emit_access_notes(k, target, &notes, &ignored) != QN_OK) return;
    launch_count_each(k, plan, target->multiprocessors, visit, &l, &counts);
    for (int i = 0; i < notes.count; i++) look_at_note(&l, &notes.items[i], plan);
    out->touched_bytes = touched_bytes(&l);
    out->team = notes.team;
    for (int i = 0; i < l.count; i++)
        if (l.counts[i].op->code == OP_LOAD)
            out->loaded_bytes +=
                l.counts[i].elements * dtypes[k->params[l.counts[i].op->attr.access.array].elem].size_bytes;
}
