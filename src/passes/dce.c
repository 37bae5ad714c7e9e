/*
 * dce: what nobody needs goes.
 * requires: nothing. keeps: everything. breaks: nothing.
 *
 * In: any kernel. Out: only ops that write, print, assert, assume or launch, and those they need; counted loops and
 * branches that do neither are gone, and so are carried values and results that nothing reads. A `while` stays: it may
 * never end, and then nothing behind it happens. Liveness starts at the effects
 * and follows operands, extents, and for each carried value its initial and its yielded one.
 * SPDX-License-Identifier: MIT
 */
#include "passes/pass_list.h"
#include "passes/rewrite.h"

#include <string.h>

typedef struct marker {
    tile_kernel *k;
    bool *live;      /* by value */
    tile_op **owner; /* by value, for a region's argument: the op of the region */
    int *slot;       /* of an argument or result: its number among the carried values; -1 for a loop's variable */
    value *queue;
    int queue_count;
    bool changed;
} marker;

static void mark(marker *m, value v)
{
    if (m->live[v]) return;
    m->live[v] = true;
    m->queue[m->queue_count++] = v;
}

static void mark_operands(marker *m, const tile_op *op)
{
    for (int i = 0; i < op->operand_count; i++) mark(m, op->operands[i]);
}

static bool has_effect(const tile_op *op)
{
    if (op->code == OP_STORE || op->code == OP_ATOMIC) return true;
    return ops[op->code].class == CLASS_EFFECT || ops[op->code].class == CLASS_HEAD;
}

static bool is_endless(const tile_op *op)
{
    return op->code == OP_WHILE;
}

static bool block_has_effect(const tile_block *b)
{
    for (int i = 0; i < b->op_count; i++) {
        if (has_effect(b->ops[i]) || is_endless(b->ops[i])) return true;
        for (int r = 0; r < b->ops[i]->region_count; r++)
            if (block_has_effect(b->ops[i]->regions[r])) return true;
    }
    return false;
}

/* What an op that stays needs besides its carried values. */
static void mark_control(marker *m, const tile_op *op)
{
    if (op->code == OP_FOR)
        for (int i = 0; i < 3; i++) mark(m, op->operands[i]);
    if (op->code == OP_IF) mark(m, op->operands[0]);
    if (op->code == OP_WHILE) mark_operands(m, block_last(op->regions[0]));
}

/* Carried value number `slot` of an op is needed: where it starts, and what each trip makes of it. */
static void mark_slot(marker *m, const tile_op *op, int slot)
{
    int first = op->code == OP_FOR ? 3 : 0;
    if (op->code == OP_FOR || op->code == OP_WHILE) {
        mark(m, op->results[slot]);
        mark(m, op->operands[first + slot]);
        for (int r = 0; r < op->region_count; r++) mark(m, op->regions[r]->args[slot + (op->code == OP_FOR)]);
    }
    for (int r = 0; r < op->region_count; r++) {
        const tile_op *last = block_last(op->regions[r]);
        if (last->code == OP_YIELD) mark(m, last->operands[slot]);
    }
}

static void prepare(marker *m, tile_block *b)
{
    for (int i = 0; i < b->op_count; i++) {
        tile_op *op = b->ops[i];
        if (has_effect(op)) {
            mark_operands(m, op);
            for (int n = 0; n < op->result_count; n++) mark(m, op->results[n]);
        }
        for (int n = 0; n < op->result_count; n++) m->slot[op->results[n]] = n;
        for (int r = 0; r < op->region_count; r++) {
            for (int a = 0; a < op->regions[r]->arg_count; a++) {
                m->owner[op->regions[r]->args[a]] = op;
                m->slot[op->regions[r]->args[a]] = a - (op->code == OP_FOR);
            }
            prepare(m, op->regions[r]);
        }
        bool stays = is_endless(op);
        for (int r = 0; r < op->region_count; r++) stays |= block_has_effect(op->regions[r]);
        if (stays) mark_control(m, op);
        for (int n = 0; stays && op->code == OP_MAP && n < op->result_count; n++) mark(m, op->results[n]);
    }
}

static void follow(marker *m)
{
    while (m->queue_count) {
        value v = m->queue[--m->queue_count];
        tile_type type = tile_type_of(m->k, v);
        for (int i = 0; i < type.rank; i++)
            if (type.dims[i] < 0) mark(m, (value)-type.dims[i]);
        const tile_op *op = tile_def(m->k, v);
        if (!op) op = m->owner[v];
        if (!op) continue;
        if (!op->region_count) {
            mark_operands(m, op);
        } else if (op->code == OP_MAP) { /* its arguments follow its operands, so they all stay */
            mark_operands(m, op);
            if (tile_def(m->k, v)) mark_slot(m, op, m->slot[v]);
        } else {
            mark_control(m, op);
            if (m->slot[v] >= 0) mark_slot(m, op, m->slot[v]);
        }
    }
}

static bool any_live(const marker *m, const value *values, int count)
{
    for (int i = 0; i < count; i++)
        if (m->live[values[i]]) return true;
    return false;
}

static void drop(value *list, int *count, int at)
{
    memmove(list + at, list + at + 1, sizeof(value) * (size_t)(*count - at - 1));
    --*count;
}

static void drop_dead_slots(marker *m, tile_op *op)
{
    int first = op->code == OP_FOR ? 3 : 0, skip = op->code == OP_FOR;
    for (int s = op->result_count - 1; s >= 0; s--) {
        if (m->live[op->results[s]]) continue;
        drop(op->results, &op->result_count, s);
        m->changed = true;
        for (int r = 0; r < op->region_count; r++) {
            tile_op *last = block_last(op->regions[r]);
            if (last->code == OP_YIELD) drop(last->operands, &last->operand_count, s);
            if (op->code == OP_FOR || op->code == OP_WHILE)
                drop(op->regions[r]->args, &op->regions[r]->arg_count, s + skip);
        }
        if (op->code == OP_FOR || op->code == OP_WHILE) drop(op->operands, &op->operand_count, s + first);
    }
}

static void sweep(marker *m, tile_block *b)
{
    int kept = 0;
    for (int i = 0; i < b->op_count; i++) {
        tile_op *op = b->ops[i];
        bool stays = has_effect(op) || is_endless(op) || op->code == OP_YIELD || op->code == OP_CONDITION ||
                     any_live(m, op->results, op->result_count);
        for (int r = 0; r < op->region_count && !stays; r++) stays = block_has_effect(op->regions[r]);
        if (!stays) {
            m->changed = true;
            continue;
        }
        if (op->region_count) drop_dead_slots(m, op);
        for (int r = 0; r < op->region_count; r++) sweep(m, op->regions[r]);
        b->ops[kept++] = op;
    }
    b->op_count = kept;
}

bool pass_dce(tile_kernel *k)
{
    arena *scratch = arena_new();
    marker m = {.k = k};
    m.live = ARENA_ARRAY(scratch, bool, k->value_count);
    m.owner = ARENA_ARRAY(scratch, tile_op *, k->value_count);
    m.slot = ARENA_ARRAY(scratch, int, k->value_count);
    m.queue = ARENA_ARRAY(scratch, value, k->value_count);
    for (int p = 0; p < k->param_count; p++)
        for (int a = 0; a < k->params[p].rank; a++)
            if (k->params[p].extents[a]) mark(&m, k->params[p].extents[a]);
    prepare(&m, k->head);
    for (int i = 0; i < k->phase_count; i++) prepare(&m, k->phases[i]);
    follow(&m);
    sweep(&m, k->head);
    for (int i = 0; i < k->phase_count; i++) sweep(&m, k->phases[i]);
    arena_free(scratch);
    return m.changed;
}
