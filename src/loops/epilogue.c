/*
 * What follows a product, as nodes. In: a schedule. Out: for each chunk of the sums: loads of pairs, the arithmetic of
 * each element, the chunk to shared memory and from there to the arrays, or elements straight to them.
 *
 * A load that every element of a chunk can ask for beforehand stands before the arithmetic, so that all loads of a chunk
 * are on their way together; one whose place is computed, or masked, stands among it.
 * SPDX-License-Identifier: MIT
 */
#include "loops/loops.h"
#include "passes/facts.h"

/* Is where it reads known from the place alone? */
static bool load_is_early(const schedule *s, const tile_op *op)
{
    for (int i = 0; i < op->operand_count; i++)
        if (tile_type_of(s->kernel, op->operands[i]).rank) return false;
    return true;
}

/* May both of a pair be loaded at once? They are side by side and begin on a multiple of two. */
static bool load_is_pair(const schedule *s, const facts *f, const tile_op *op)
{
    const struct access *a = &op->attr.access;
    const tile_param *p = &s->kernel->params[a->array];
    int last = a->rank - 1, operand = op->operand_count - a->mask_count - 2;
    number step;
    if (last < 0 || a->kind[last] != INDEX_SLICE || a->result_axis[last] != s->places[op->results[0]].column)
        return false;
    if (!tile_is_constant(s->kernel, op->operands[operand + 1], &step) || step.i != 1) return false;
    return p->facts.last_unit && (p->facts.bulk || p->facts.aligned) && dtypes[p->elem].size_bytes <= 8 &&
           facts_of(f, op->operands[operand]).divisor % 2 == 0;
}

/* Is a pair inside of the array or outside of it, never half? */
static bool pair_is_whole(const schedule *s, const tile_op *op)
{
    const struct access *a = &op->attr.access;
    const tile_param *p = &s->kernel->params[a->array];
    int last = a->rank - 1;
    number n;
    if (a->safe[last]) return true;
    if (p->extent_param[last] >= 0) return s->kernel->params[p->extent_param[last]].facts.by16;
    return p->extents[last] && tile_is_constant(s->kernel, p->extents[last], &n) && n.i % 2 == 0;
}

static bool is_tile(const schedule *s, const bool *used, const tile_op *op)
{
    return op->result_count == 1 && used[op->results[0]] && op->results[0] != s->sums &&
           tile_type_of(s->kernel, op->results[0]).rank;
}

/* The load of the room that it is; -1: it is another one. */
static int room_of(const schedule *s, const tile_op *op)
{
    for (int i = 0; i < s->load_count; i++)
        if (s->loads[i].op == op) return i;
    return -1;
}

/* Registers for a load that is the same for every row, or every column, of the tile; 0: it is another one. */
static int registers_ahead(const schedule *s, const facts *f, const tile_op *op)
{
    dtype elem = s->kernel->params[op->attr.access.array].elem;
    sched_place at = s->places[op->results[0]];
    int rows = s->choice.tile[0] / (s->choice.turns ? 1 : s->choice.groups);
    if (!load_is_early(s, op) || room_of(s, op) >= 0 || op->attr.access.mask_count ||
        s->kernel->params[op->attr.access.array].digits)
        return 0;
    if (elem != DT_BF16 && elem != DT_F16 && elem != DT_F32) return 0;
    if (at.column < 0) return at.row < 0 ? 0 : rows / 32;
    bool pair = at.row < 0 && load_is_pair(s, f, op) && pair_is_whole(s, op);
    return pair ? s->choice.tile[1] / 8 * (dtypes[elem].size_bytes / 2) : 0;
}

/* By value of the phase: is it loaded before the products? */
static bool *find_ahead(const schedule *s, arena *memory, const bool *used, const facts *f)
{
    const tile_block *block = s->kernel->phases[s->phase];
    bool *ahead = ARENA_ARRAY(memory, bool, s->kernel->value_count);
    int left = s->ahead_registers;
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        if (op->code != OP_LOAD || !is_tile(s, used, op)) continue;
        int count = registers_ahead(s, f, op);
        if (!count || count > left) continue;
        left -= count;
        ahead[op->results[0]] = true;
    }
    return ahead;
}

/* What a store takes: rounding to the array's type is the store's own. */
static value stored_value(const schedule *s, const tile_op *store)
{
    value v = store->operands[0];
    const tile_op *op = tile_def(s->kernel, v);
    dtype elem = tile_type_of(s->kernel, v).elem;
    bool narrow = elem == DT_BF16 || elem == DT_F16;
    if (op && op->code == OP_CONVERT && narrow && tile_type_of(s->kernel, op->operands[0]).elem == DT_F32)
        return op->operands[0];
    return v;
}

/* By value: what the stores take, and what that is computed from. */
static bool *find_used(const schedule *s, arena *memory, const tile_block *block)
{
    bool *used = ARENA_ARRAY(memory, bool, s->kernel->value_count);
    for (int i = block->op_count - 1; i >= 0; i--) {
        const tile_op *op = block->ops[i];
        bool store = op->code == OP_STORE;
        if (store) used[stored_value(s, op)] = true;
        if (!store && (op->result_count != 1 || !used[op->results[0]] || op->region_count)) continue;
        for (int o = store ? 1 : 0; o < op->operand_count; o++) used[op->operands[o]] = true;
    }
    return used;
}

static loop_node **add_stores(const schedule *s, arena *memory, loop_node **in)
{
    for (int n = 0; n < s->store_count; n++) {
        const sched_store *store = &s->stores[n];
        loop_node **at = in;
        in = loops_add(memory, in, store->map < 0 && !store->by_row ? LOOP_STORE : LOOP_KEEP, store->op, n, 0);
        (*at)->operand = stored_value(s, store->op);
    }
    return in;
}

loop_node **loops_ahead(const schedule *s, arena *memory, loop_node **tail)
{
    const tile_block *block = s->kernel->phases[s->phase];
    const bool *ahead = find_ahead(s, memory, find_used(s, memory, block), facts_compute(s->kernel, memory));
    for (int i = 0; i < block->op_count; i++)
        if (block->ops[i]->code == OP_LOAD && ahead[block->ops[i]->results[0]])
            tail = loops_add(memory, tail, LOOP_LOAD, block->ops[i], LOOPS_AHEAD, 0);
    return s->load_count ? loops_add(memory, tail, LOOP_IN_ASK, NULL, 0, 0) : tail;
}

loop_node **loops_epilogue(const schedule *s, arena *memory, loop_node **tail)
{
    const tile_block *block = s->kernel->phases[s->phase];
    const bool *used = find_used(s, memory, block);
    const facts *known = facts_compute(s->kernel, memory);
    const bool *ahead = find_ahead(s, memory, used, known);
    loop_node **after_chunks, **after_pairs, **after_elements;
    if (s->load_count) tail = loops_add(memory, tail, LOOP_IN_WAIT, NULL, 0, 0);
    loop_node **in = loops_open(memory, tail, LOOP_CHUNKS, NULL, 0, 0, &after_chunks);
    loop_node **pair = loops_open(memory, in, LOOP_PAIRS, NULL, 0, 0, &after_pairs);
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        if (op->code != OP_LOAD || !is_tile(s, used, op) || !load_is_early(s, op)) continue;
        loop_load how = room_of(s, op) >= 0           ? LOOPS_ROOM
                        : ahead[op->results[0]]       ? LOOPS_ASKED
                        : !load_is_pair(s, known, op) ? LOOPS_EACH
                        : pair_is_whole(s, op)        ? LOOPS_WHOLE
                                                      : LOOPS_PAIR;
        pair = loops_add(memory, pair, LOOP_LOAD, op, how, room_of(s, op));
    }
    loop_node **each = loops_open(memory, pair, LOOP_ELEMENTS, NULL, 0, 0, &after_elements);
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        if (!is_tile(s, used, op) || (op->code == OP_LOAD && load_is_early(s, op))) continue;
        bool load = op->code == OP_LOAD;
        each = loops_add(memory, each, load ? LOOP_LOAD : LOOP_LET, op, load ? LOOPS_ONE : s->near[op->results[0]], 0);
    }
    add_stores(s, memory, each);
    in = after_pairs;
    if (s->out.stage_bytes) {
        bool bulk = false;
        for (int n = 0; n < s->store_count; n++) bulk |= s->stores[n].map >= 0;
        in = loops_add(memory, in, LOOP_OUT_WAIT, NULL, s->out_buffers - 1, bulk);
        for (int n = 0; n < s->store_count; n++)
            if (s->stores[n].map >= 0 || s->stores[n].by_row)
                in = loops_add(memory, in, LOOP_OUT, s->stores[n].op, n, 0);
        for (int n = 0; n < s->store_count; n++)
            if (s->stores[n].by_row) in = loops_add(memory, in, LOOP_OUT_ROWS, s->stores[n].op, n, 0);
        loops_add(memory, in, LOOP_OUT_SEND, NULL, 0, bulk);
    }
    return after_chunks;
}
