/*
 * From a schedule to a loop program: two roles, each with the loops of the product, one walk along k after the other.
 *
 * fill      for each program: its scalars, the loops over k, and for each step: until the stage is empty; copies. One thread
 *           does that; where an operand is gathered or taken all do, and one of them asks for the copies of the other operand.
 * multiply  for each program: its scalars, the same loops, and for each step: until the stage is full; products, of which
 *           one group is always on its way, so the stage before is released; then the epilogue. In turns: each group of
 *           warps takes every other program, and begins when the other one has asked for its last products.
 * Scalars are computed by each role that needs them: starts of slices, limits of loops, what the epilogue asks for.
 * SPDX-License-Identifier: MIT
 */
#include "loops/loops.h"

#include <string.h>

const char *const loop_names[LOOP_COUNT] = {
#define LOOP(name, text) text,
#include "loops/loop_ops.def"
#undef LOOP
};

loop_node **loops_add(arena *memory, loop_node **tail, loop_code code, const tile_op *op, int first, int second)
{
    loop_node *n = ARENA_NEW(memory, loop_node);
    *n = (loop_node){.code = code, .op = op, .number = {first, second}};
    *tail = n;
    return &n->next;
}

loop_node **loops_open(arena *memory, loop_node **tail, loop_code code, const tile_op *op, int first, int second,
                       loop_node ***after)
{
    *after = loops_add(memory, tail, code, op, first, second);
    return &(*tail)->body;
}

loop_node **loops_scalars(const schedule *s, arena *memory, const tile_block *b, const bool *needed, loop_node **tail)
{
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        bool scalar = op->result_count == 1 && !op->region_count && !tile_type_of(s->kernel, op->results[0]).rank;
        if (scalar && op->code != OP_CONST && needed[op->results[0]])
            tail = loops_add(memory, tail, LOOP_LET, op, 0, 0);
    }
    return tail;
}

/* A scalar, and what it is computed from. */
static void need(const schedule *s, value v, bool *needed)
{
    const tile_op *op = tile_def(s->kernel, v);
    if (needed[v]) return;
    needed[v] = true;
    for (int i = 0; op && !op->region_count && i < op->operand_count; i++) need(s, op->operands[i], needed);
}

static void need_limits(const schedule *s, bool *needed)
{
    for (int n = 0; n < s->walk_count; n++)
        for (int i = 0; i < s->walks[n].loop_count; i++)
            for (int o = 0; o < 3; o++) need(s, s->walks[n].loops[i]->operands[o], needed);
}

/* The loops of a walk; the place inside the last of them, and of the steps of k. */
static loop_node **open_loops(const schedule *s, const sched_walk *walk, arena *memory, const bool *needed, bool fills,
                              loop_node **tail, loop_node ***after)
{
    loop_node **behind;
    if (fills && s->gather.load) tail = loops_add(memory, tail, LOOP_GATHER_BEGIN, walk->loops[0], 0, 0);
    int steps = walk->ends_with_k ? 0 : walk->step / s->choice.tile[2];
    const tile_op *inner = walk->loops[walk->loop_count - 1];
    if (fills && sched_takes(s)) tail = loops_add(memory, tail, LOOP_TAKE_BEGIN, inner, s->choice.tile[2], steps);
    *after = NULL;
    for (int i = 0; i < walk->loop_count; i++) {
        const tile_op *loop = walk->loops[i];
        bool last = i + 1 == walk->loop_count;
        if (s->choice.turns && !fills) tail = loops_add(memory, tail, LOOP_TURN, loop, s->choice.tile[2], steps);
        if (!fills && !i && walk == s->walks) tail = loops_ahead(s, memory, tail);
        if (s->choice.turns && !fills) tail = loops_add(memory, tail, LOOP_TURN_WAIT, NULL, 0, 0);
        tail = loops_open(memory, tail, last ? LOOP_STEPS : LOOP_FOR, loop, s->choice.tile[2], steps, &behind);
        if (!*after) *after = behind;
        tail = loops_scalars(s, memory, loop->regions[0], needed, tail);
    }
    return tail;
}

static loop_node **build_fill(const schedule *s, arena *memory, loop_node **tail)
{
    bool *needed = ARENA_ARRAY(memory, bool, s->kernel->value_count);
    loop_node **after_role, **after_one = NULL, **after_tiles;
    need_limits(s, needed);
    bool gathers = s->gather.load != NULL, by_warps = sched_warps_fill(s);
    for (int n = 0; n < s->operand_count; n++) {
        const tile_op *load = s->operands[n].load;
        for (int i = 0; i < load->operand_count; i++) need(s, load->operands[i], needed);
    }
    for (int v = 1; by_warps && v < s->kernel->value_count; v++) {
        bool wanted = gathers && s->gather.needed[v];
        for (int side = 0; side < 2; side++) wanted |= s->takes[side].load && s->takes[side].needed[v];
        if (wanted && !tile_type_of(s->kernel, (value)v).rank) need(s, (value)v, needed);
    }
    loop_node **in = loops_open(memory, tail, LOOP_ROLE, NULL, 0, 0, &after_role);
    if (!by_warps) in = loops_open(memory, in, LOOP_ONE, NULL, 0, 0, &after_one);
    in = loops_add(memory, in, LOOP_RING_BEGIN, NULL, 1, 0);
    in = loops_open(memory, in, LOOP_TILES, NULL, s->choice.order, 0, &after_tiles);
    in = loops_scalars(s, memory, s->kernel->phases[s->phase], needed, in);
    for (int walk = 0; walk < s->walk_count; walk++) {
        loop_node **after;
        int bytes = 0;
        for (int n = 0; n < s->operand_count; n++)
            if (s->operands[n].walk == walk && !sched_by_warps(&s->operands[n]))
                bytes += (int)s->operands[n].ring.stage_bytes;
        in = open_loops(s, &s->walks[walk], memory, needed, true, in, &after);
        if (gathers && !s->gather.rounds) in = loops_add(memory, in, LOOP_GATHER_NEXT, NULL, s->choice.tile[2], 0);
        in = loops_add(memory, in, LOOP_WAIT, NULL, 1, 0);
        loop_node **one = by_warps ? loops_open(memory, in, LOOP_ONE, NULL, 0, 0, &after_one) : in;
        one = loops_add(memory, one, LOOP_EXPECT, NULL, bytes, 0);
        for (int n = 0; n < s->operand_count; n++) {
            const sched_operand *o = &s->operands[n];
            for (int box = 0; o->walk == walk && !sched_by_warps(o) && box < o->boxes; box++)
                one = loops_add(memory, one, LOOP_BULK_IN, o->load, box, n);
        }
        in = by_warps ? after_one : one;
        if (gathers) in = loops_add(memory, in, LOOP_GATHER, NULL, 0, 0);
        if (sched_takes(s)) in = loops_add(memory, in, LOOP_TAKE, NULL, s->choice.tile[2], 0);
        if (by_warps) in = loops_add(memory, in, LOOP_FILLED, NULL, 0, 0);
        loops_add(memory, in, LOOP_RING_NEXT, NULL, s->choice.stages, 0);
        in = after;
    }
    if (sched_copies_ahead(s)) loops_add(memory, after_tiles, LOOP_FILLED_LAST, NULL, 0, 0);
    return after_role;
}

static loop_node **build_multiply(const schedule *s, arena *memory, loop_node **tail)
{
    bool *needed = ARENA_ARRAY(memory, bool, s->kernel->value_count);
    loop_node **after_role, **after_tiles;
    need_limits(s, needed);
    for (int v = 1; v < s->kernel->value_count; v++)
        if (s->needed[v] && !tile_type_of(s->kernel, (value)v).rank) needed[v] = true;
    loop_node **in = loops_open(memory, tail, LOOP_ROLE, NULL, 1, 0, &after_role);
    in = loops_add(memory, in, LOOP_RING_BEGIN, NULL, 0, 0);
    in = loops_open(memory, in, LOOP_TILES, NULL, s->choice.order, 0, &after_tiles);
    bool zero = s->walks[0].loop_count > 1; /* an outer loop may have no trip at all */
    in = loops_add(memory, in, LOOP_SUMS_BEGIN, NULL, zero || s->apart, s->apart);
    in = loops_scalars(s, memory, s->kernel->phases[s->phase], needed, in);
    for (int walk = 0; walk < s->walk_count; walk++) {
        loop_node **after;
        int how = s->apart ? LOOPS_FROM_ZERO : zero || walk ? LOOPS_ADD : LOOPS_ADD_LATER;
        in = open_loops(s, &s->walks[walk], memory, needed, false, in, &after);
        in = loops_add(memory, in, LOOP_WAIT, NULL, 0, 0);
        in = loops_add(memory, in, LOOP_MATRIX, NULL, how, walk);
        in = loops_add(memory, in, LOOP_RELEASE, NULL, s->apart ? LOOPS_THIS : LOOPS_BEFORE, 0);
        if (s->apart) in = loops_add(memory, in, LOOP_ADD_SUMS, NULL, 0, 0);
        loops_add(memory, in, LOOP_RING_NEXT, NULL, s->choice.stages, 0);
        in = after;
    }
    if (s->choice.turns) in = loops_add(memory, in, LOOP_TURN_END, NULL, 0, 0);
    if (!s->apart) in = loops_add(memory, in, LOOP_RELEASE, NULL, LOOPS_LAST, 0);
    loops_epilogue(s, memory, in);
    bool bulk = false;
    for (int n = 0; n < s->store_count; n++) bulk |= s->stores[n].map >= 0;
    if (bulk) loops_add(memory, after_tiles, LOOP_OUT_END, NULL, 0, 0);
    return after_role;
}

loop_program loops_build(const schedule *s, arena *memory)
{
    loop_program p = {.schedule = s, .phase = s->phase};
    loop_node **tail = build_fill(s, memory, &p.first);
    build_multiply(s, memory, tail);
    return p;
}

bool loops_roles(const tile_kernel *k, int phase, const sched_machine *machine, arena *memory, loop_program *out,
                 const char *why[2])
{
    why[0] = machine->checked ? "a checked build tests each access" : NULL; /* which the copy engine does not */
    why[1] = NULL;
    if (machine->checked) return false;
    const schedule *s = schedule_phase(k, phase, machine, memory, &why[0]);
    const chained *c = s ? NULL : chained_phase(k, phase, machine, memory, &why[1]);
    if (s) *out = loops_build(s, memory);
    if (c) *out = loops_chained(c, memory);
    return s || c;
}
