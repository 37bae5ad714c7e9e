/*
 * licm: what does not change in a loop is computed before it.
 * requires: cse (so that equal operands are one value). keeps: everything. breaks: cse, and `safe` marks of loads that
 * move.
 *
 * In: any kernel. Out: out of `for`, `while` and `map` regions go scalars, costly tile ops (with the cheap ones they
 * need) and loads whose operands come from outside. Cheap tile ops stay: to compute them again costs less than to keep
 * a tile. A load goes if the loop does not write its array, and if nothing could notice a read that a loop of no trips
 * would not have made: the loop runs, or all its indices are slices or proved inside. Inner loops first.
 * SPDX-License-Identifier: MIT
 */
#include "passes/facts.h"
#include "passes/pass_list.h"
#include "passes/rewrite.h"

#include <string.h>

typedef struct walker {
    tile_kernel *k;
    const facts *known;
    arena *scratch;
    int *level;   /* by value: how many regions are around its definition */
    bool *wanted; /* by value: has to move because something that moves needs it */
    bool changed;
} walker;

static void set_levels(walker *w, const tile_block *b, int level)
{
    for (int i = 0; i < b->arg_count; i++) w->level[b->args[i]] = level;
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        for (int n = 0; n < op->result_count; n++) w->level[op->results[n]] = level;
        for (int n = 0; n < op->region_count; n++) set_levels(w, op->regions[n], level + 1);
    }
}

static bool runs_at_least_once(const walker *w, const tile_op *loop)
{
    if (loop->code == OP_MAP) return true;
    if (loop->code != OP_FOR) return false;
    bool down = loop->flags & F_DOWN;
    linear first = relate_value(w->known, loop->operands[0]), limit = relate_value(w->known, loop->operands[1]);
    linear room =
        relate_add(down ? relate_add(first, limit, -1) : relate_add(limit, first, -1), relate_constant(1), -1);
    return relate_not_negative(w->known, &room);
}

static bool load_may_move(const walker *w, const tile_op *op, const tile_op *loop)
{
    const access *a = &op->attr.access;
    for (int i = 0; i < loop->region_count; i++)
        if (block_writes(loop->regions[i], a->array)) return false;
    bool silent = true;
    for (int i = 0; i < a->rank; i++) silent &= a->safe[i] || a->kind[i] == INDEX_SLICE;
    return silent || runs_at_least_once(w, loop);
}

/* Is the op the same in every trip? All that it needs is defined outside, or is the same too. */
static bool is_invariant(const walker *w, const tile_op *op, const tile_op *loop, int level, const bool *same)
{
    if (op->region_count || !op->result_count || !(ops[op->code].pure || op->code == OP_LOAD)) return false;
    for (int i = 0; i < op->operand_count; i++)
        if (w->level[op->operands[i]] >= level && !same[op->operands[i]]) return false;
    tile_type type = tile_type_of(w->k, op->results[0]);
    for (int i = 0; i < type.rank; i++)
        if (type.dims[i] < 0 && w->level[-type.dims[i]] >= level && !same[-type.dims[i]]) return false;
    return op->code != OP_LOAD || load_may_move(w, op, loop);
}

static void want(walker *w, const tile_op *op)
{
    for (int i = 0; i < op->operand_count; i++) w->wanted[op->operands[i]] = true;
    tile_type type = tile_type_of(w->k, op->results[0]);
    for (int i = 0; i < type.rank; i++)
        if (type.dims[i] < 0) w->wanted[-type.dims[i]] = true;
}

/* Takes what may move out of a region at `level` and adds it to `out`, which goes before the loop. */
static void hoist(walker *w, tile_block *b, const tile_op *loop, int level, op_list *out)
{
    bool *same = ARENA_ARRAY(w->scratch, bool, w->k->value_count), any = false;
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        if (!is_invariant(w, op, loop, level, same)) continue;
        same[op->results[0]] = any = true;
    }
    if (!any) return;
    for (int i = b->op_count - 1; i >= 0; i--) { /* users before what they use */
        const tile_op *op = b->ops[i];
        if (op->result_count != 1 || !same[op->results[0]]) continue;
        bool scalar = !tile_type_of(w->k, op->results[0]).rank;
        if (!scalar && !ops[op->code].costly && op->code != OP_LOAD && !w->wanted[op->results[0]]) continue;
        w->wanted[op->results[0]] = true;
        want(w, op);
    }
    int kept = 0;
    for (int i = 0; i < b->op_count; i++) {
        tile_op *op = b->ops[i];
        bool moves = op->result_count == 1 && same[op->results[0]] && w->wanted[op->results[0]];
        if (!moves) {
            b->ops[kept++] = op;
            continue;
        }
        /* a proof may rest on the loop or on an assert in it: unmask proves again what still holds */
        if (op->code == OP_LOAD) memset(op->attr.access.safe, 0, sizeof(op->attr.access.safe));
        ARENA_PUSH(w->k->memory, out->items, out->count, out->capacity, op);
        w->level[op->results[0]] = level - 1;
        w->changed = true;
    }
    b->op_count = kept;
}

static void walk(walker *w, tile_block *b, int level)
{
    op_list list = {0};
    bool moved = false;
    for (int i = 0; i < b->op_count; i++) {
        tile_op *op = b->ops[i];
        int before = list.count;
        for (int n = 0; n < op->region_count; n++) walk(w, op->regions[n], level + 1);
        if (op->code == OP_FOR || op->code == OP_WHILE || op->code == OP_MAP)
            for (int n = 0; n < op->region_count; n++) hoist(w, op->regions[n], op, level + 1, &list);
        moved |= list.count != before;
        ARENA_PUSH(w->k->memory, list.items, list.count, list.capacity, op);
    }
    if (!moved) return;
    b->ops = list.items;
    b->op_count = list.count;
    b->op_capacity = list.capacity;
}

bool pass_licm(tile_kernel *k)
{
    arena *scratch = arena_new();
    walker w = {.k = k, .known = facts_compute(k, scratch), .scratch = scratch};
    w.level = ARENA_ARRAY(scratch, int, k->value_count);
    w.wanted = ARENA_ARRAY(scratch, bool, k->value_count);
    for (int i = 0; i < k->phase_count; i++) {
        set_levels(&w, k->phases[i], 0);
        walk(&w, k->phases[i], 0);
    }
    arena_free(scratch);
    return w.changed;
}
