/*
 * From a schedule of chained products (schedule/chained.h) to a loop program of two roles.
 *
 * fill      one warp: the fixed operands' rows, then for each step the moving ones, each into its ring; numbers of a step's
 *           rows by all lanes.
 * multiply  each group for its rows. With folds (a softmax): the next step's scores are asked for together with this step's
 *           sum, and the arithmetic runs under the latter; steps that no mask touches run without tests; a group whose last
 *           rows' mask ends before the program's gives stages back that others still take. Without: functions of the first
 *           product of scores run under the second one, the rest under the early sums, the late sums under the next step's
 *           scores.
 * Work of the matrix units ends in the order in which it was asked for: a wait counts what may still run.
 * SPDX-License-Identifier: MIT
 */
#include "loops/chained_build.h"

loop_node *chained_add(chained_builder *b, loop_code code, const tile_op *op, int first, int second)
{
    loop_node **at = b->tail;
    b->tail = loops_add(b->memory, at, code, op, first, second);
    return *at;
}

loop_node **chained_open(chained_builder *b, loop_node *n)
{
    loop_node **behind = b->tail;
    b->tail = &n->body;
    return behind;
}

void chained_close(chained_builder *b, loop_node **behind)
{
    b->tail = behind;
}

static int operand_bytes(const chained *c, int operand)
{
    const chained_operand *o = &c->operands[operand];
    return (o->moves ? c->columns : c->rows) * chained_boxes(o->depth) * SCHED_LINE_BYTES;
}

static bool is_carried_sum(const chained *c, int carried)
{
    for (int s = 0; s < c->sum_count; s++)
        if (c->sums[s].carried == carried) return true;
    return false;
}

/* ---- fill ---- */

static void add_scalars(chained_builder *b)
{
    const tile_block *block = b->c->kernel->phases[b->c->phase];
    for (int i = 0; i < block->op_count && block->ops[i] != b->c->loop; i++) {
        const tile_op *op = block->ops[i];
        if (op->result_count == 1 && !tile_type_of(b->c->kernel, op->results[0]).rank && op->code != OP_CONST)
            chained_add(b, op->code == OP_LOAD ? LOOP_LOAD : LOOP_LET, op, LOOPS_SCALAR, 0);
    }
}

static void add_copies(chained_builder *b, int operand)
{
    const chained_operand *o = &b->c->operands[operand];
    for (int box = 0; box < chained_boxes(o->depth); box++) chained_add(b, LOOP_BULK_IN, o->load, box, operand);
}

static void build_fill(chained_builder *b)
{
    const chained *c = b->c;
    int fixed_bytes = 0, first = c->products[0].moving;
    bool lanes = c->vector_count;
    loop_node **after_role = chained_open(b, chained_add(b, LOOP_ROLE, NULL, 0, 0)), **after_one = NULL;
    loop_node **after = chained_open(b, chained_add(b, LOOP_ONE, NULL, lanes ? LOOPS_WARP : LOOPS_THREAD, 0));
    add_scalars(b);
    for (int i = 0; i < c->operand_count; i++)
        if (!c->operands[i].moves) fixed_bytes += operand_bytes(c, i);
    if (lanes) after_one = chained_open(b, chained_add(b, LOOP_ONE, NULL, LOOPS_LANE, 0));
    chained_add(b, LOOP_EXPECT, NULL, fixed_bytes, LOOPS_FIXED);
    for (int i = 0; i < c->operand_count; i++)
        if (!c->operands[i].moves) add_copies(b, i);
    if (lanes) chained_close(b, after_one);
    chained_add(b, LOOP_RING_BEGIN, NULL, 1, 0);
    loop_node **after_steps = chained_open(b, chained_add(b, LOOP_STEPS, c->loop, c->columns, LOOPS_ALL_STEPS));
    if (lanes) { /* asked for before the stage is free */
        chained_add(b, LOOP_VECTORS_ASK, NULL, 0, 0);
        chained_add(b, LOOP_WAIT, NULL, 1, first);
        chained_add(b, LOOP_VECTORS, NULL, 0, 0);
        chained_add(b, LOOP_BARRIER, NULL, LOOPS_WARP, 0);
        after_one = chained_open(b, chained_add(b, LOOP_ONE, NULL, LOOPS_LANE, 0));
    }
    for (int turn = 0; turn < c->operand_count; turn++) {
        int i = (first + turn) % c->operand_count; /* what a step needs first, first */
        if (!c->operands[i].moves) continue;
        if (turn || !lanes) chained_add(b, LOOP_WAIT, NULL, 1, i);
        chained_add(b, LOOP_EXPECT, NULL, operand_bytes(c, i), i);
        add_copies(b, i);
    }
    if (lanes) chained_close(b, after_one);
    chained_add(b, LOOP_RING_NEXT, NULL, c->stages, LOOPS_FIXED);
    chained_close(b, after_steps);
    chained_close(b, after);
    chained_close(b, after_role);
}

/* ---- steps with folds ---- */

static void free_stage(chained_builder *b, int operand)
{
    chained_add(b, LOOP_RELEASE, NULL, LOOPS_THIS, operand);
    chained_add(b, LOOP_RING_NEXT, NULL, b->c->stages, operand);
}

static void multiply_values(chained_builder *b)
{
    chained_add(b, LOOP_WAIT, NULL, 0, b->c->sums[0].moving);
    chained_add(b, LOOP_MATRIX, NULL, LOOPS_SUM, 0);
}

static void softmax_steps(chained_builder *b, bool masked, int which)
{
    const chained *c = b->c;
    b->masked = masked;
    loop_node **behind = chained_open(b, chained_add(b, LOOP_STEPS, c->loop, c->columns, which));
    chained_add(b, LOOP_MATRIX, NULL, LOOPS_SCORE, 0);
    multiply_values(b);
    chained_add(b, LOOP_SUMS_ADD, NULL, 0, 0);
    chained_truths(b);
    chained_add(b, LOOP_MATRIX_WAIT, NULL, 1, LOOPS_SCORES);
    free_stage(b, c->products[0].moving);
    chained_softmax(b);
    chained_add(b, LOOP_WAIT_AHEAD, c->loop, c->lane_sum != 0, c->products[0].moving); /* a product runs */
    chained_add(b, LOOP_MATRIX_WAIT, NULL, 0, 0);
    free_stage(b, c->sums[0].moving);
    chained_add(b, LOOP_PACK, NULL, 0, 0);
    if (c->sums[0].scale) chained_add(b, LOOP_SCALE, NULL, 0, 0)->operand = c->sums[0].scale;
    chained_close(b, behind);
}

static bool has_lower(const chained *c)
{
    for (int i = 0; i < c->condition_count; i++)
        if (!c->conditions[i].limit && c->conditions[i].compare != OP_LT && c->conditions[i].compare != OP_LE)
            return true;
    return false;
}

/* Where the steps of a group's rows end: behind its last row's mask, or at once where it has no row. */
static bool add_ends(chained_builder *b)
{
    const chained *c = b->c;
    bool early = false;
    for (int i = 0; i < c->condition_count && c->groups > 1; i++) {
        const chained_condition *q = &c->conditions[i];
        if (q->limit || (q->compare != OP_LT && q->compare != OP_LE)) continue;
        if (!chained_adds_nothing(c, i, b->memory)) continue;
        chained_add(b, LOOP_RANGE_END, c->loop, i, 0);
        early = true;
    }
    if (!c->fixed_limit || c->groups == 1) return early;
    chained_add(b, LOOP_RANGE_END, c->loop, LOOPS_FIXED, 0);
    return true;
}

/* Does the loop read a number, or a truth, for each score from an array? */
static bool reads_tables(const chained *c)
{
    const tile_block *body = c->loop->regions[0];
    for (int i = 0; i < body->op_count; i++) {
        bool operand = false;
        for (int o = 0; o < c->operand_count; o++) operand |= c->operands[o].load == body->ops[i];
        if (!operand && chained_is_table(c, body->ops[i])) return true;
    }
    return false;
}

/* With tests only where a mask touches the step. The assembler would join what both arms read from arrays, which wants more
 * registers than there are. */
static void first_softmax(chained_builder *b)
{
    b->masked = b->c->condition_count;
    if (!b->masked || reads_tables(b->c)) {
        chained_softmax(b);
        return;
    }
    loop_node *n = chained_add(b, LOOP_IF, NULL, 0, 0);
    loop_node **behind = chained_open(b, n);
    chained_softmax(b);
    b->tail = &n->other;
    b->masked = false;
    chained_softmax(b);
    chained_close(b, behind);
}

static void build_softmax(chained_builder *b)
{
    const chained *c = b->c;
    int keys = c->products[0].moving, values = c->sums[0].moving;
    bool lower = has_lower(c);
    chained_add(b, LOOP_RING_BEGIN, NULL, 0, 0);
    chained_add(b, LOOP_RANGE, c->loop, 0, 0);
    bool early = add_ends(b);
    loop_node *first = chained_add(b, LOOP_STEPS, c->loop, c->columns, LOOPS_FIRST_STEP);
    loop_node **behind = chained_open(b, first);
    chained_add(b, LOOP_WAIT, NULL, 0, keys);
    chained_add(b, LOOP_MATRIX, NULL, LOOPS_SCORE, 0);
    b->masked = true;
    chained_truths(b);
    chained_add(b, LOOP_MATRIX_WAIT, NULL, 0, LOOPS_SCORES);
    free_stage(b, keys);
    first_softmax(b);
    chained_add(b, LOOP_WAIT_AHEAD, c->loop, 0, keys);
    chained_add(b, LOOP_PACK, NULL, 0, 0);
    chained_close(b, behind);
    if (lower) softmax_steps(b, true, LOOPS_LOWER_STEPS);
    softmax_steps(b, false, LOOPS_WHOLE_STEPS);
    softmax_steps(b, true, LOOPS_LAST_STEPS);
    multiply_values(b);
    chained_add(b, LOOP_MATRIX_WAIT, NULL, 0, 0);
    if (!early) return;
    behind = chained_open(b, chained_add(b, LOOP_STEPS, c->loop, c->columns, LOOPS_OTHERS_STEPS));
    free_stage(b, values);
    chained_add(b, LOOP_WAIT, NULL, 0, keys);
    free_stage(b, keys);
    chained_add(b, LOOP_WAIT, NULL, 0, values);
    chained_close(b, behind);
}

/* ---- steps without folds ---- */

static void add_weights(chained_builder *b, bool late)
{
    b->masked = true;
    if (!b->c->condition_count) {
        chained_weights(b, late);
        return;
    }
    loop_node *n = chained_add(b, LOOP_IF, NULL, 0, 0);
    loop_node **behind = chained_open(b, n);
    chained_weights(b, late);
    b->tail = &n->other;
    b->masked = false;
    chained_weights(b, late);
    chained_close(b, behind);
}

/* The sums of this kind, each a group of work of its own; how many. */
static int add_sums(chained_builder *b, bool late)
{
    int count = 0;
    for (int i = 0; i < b->c->sum_count; i++) {
        if (b->c->sums[i].late != late) continue;
        chained_add(b, LOOP_MATRIX, NULL, LOOPS_SUM, i);
        count++;
    }
    return count;
}

static void build_plain(chained_builder *b)
{
    const chained *c = b->c;
    bool waited[CHAINED_MOST_OPERANDS] = {0};
    chained_add(b, LOOP_RING_BEGIN, NULL, 0, 0);
    if (c->condition_count) chained_add(b, LOOP_RANGE, c->loop, 0, 0);
    loop_node **behind = chained_open(b, chained_add(b, LOOP_STEPS, c->loop, c->columns, LOOPS_ALL_STEPS));
    for (int i = 0; i < c->product_count; i++) {
        int moving = c->products[i].moving;
        if (!waited[moving]) chained_add(b, LOOP_WAIT, NULL, 0, moving);
        waited[moving] = true;
        chained_add(b, LOOP_MATRIX, NULL, LOOPS_SCORE, i);
    }
    b->masked = true; /* for every step, as they stand before its test */
    chained_truths(b);
    chained_add(b, LOOP_MATRIX_WAIT, NULL, c->product_count - 1, LOOPS_SCORES);
    if (!c->drained) chained_add(b, LOOP_RELEASE, NULL, LOOPS_BEFORE, LOOPS_FIXED);
    add_weights(b, false);
    for (int i = 0; i < c->sum_count; i++) {
        if (!waited[c->sums[i].moving]) chained_add(b, LOOP_WAIT, NULL, 0, c->sums[i].moving);
        waited[c->sums[i].moving] = true;
    }
    int early = add_sums(b, false);
    if (c->product_count > 1) {
        if (!early) chained_add(b, LOOP_APART, NULL, 0, c->products[0].moving);
        chained_add(b, LOOP_MATRIX_WAIT, NULL, early, LOOPS_MORE);
        add_weights(b, true);
        (void)add_sums(b, true);
    }
    if (c->drained) {
        chained_add(b, LOOP_MATRIX_WAIT, NULL, 0, LOOPS_NOTHING);
        chained_add(b, LOOP_RELEASE, NULL, LOOPS_THIS, LOOPS_FIXED);
    }
    chained_add(b, LOOP_SUMS_ADD, NULL, 0, 0);
    chained_add(b, LOOP_RING_NEXT, NULL, c->stages, LOOPS_FIXED);
    chained_close(b, behind);
    chained_add(b, LOOP_MATRIX_WAIT, NULL, 0, 0);
}

/* ---- multiply ---- */

/* One number a fixed row, before the loop. */
static void add_fixed(chained_builder *b)
{
    const tile_block *block = b->c->kernel->phases[b->c->phase];
    for (int i = 0; i < block->op_count && block->ops[i] != b->c->loop; i++) {
        const tile_op *op = block->ops[i];
        value v = op->result_count ? op->results[0] : 0;
        if (!v || chained_kind_of(b->c, v) != CHAINED_FIXED || tile_type_of(b->c->kernel, v).elem != DT_F32) continue;
        if (op->code == OP_LOAD) chained_add(b, LOOP_LOAD, op, LOOPS_ROW, 0);
        if (op->code == OP_LOAD) b->rows[v] = true;
        if (op->code != OP_LOAD && op->code != OP_BROADCAST) chained_row(b, op);
    }
}

static void build_results(chained_builder *b)
{
    const chained *c = b->c;
    const tile_block *block = c->kernel->phases[c->phase];
    bool after = false;
    b->after = true;
    for (int i = 0; i < c->loop->result_count; i++) {
        if (is_carried_sum(c, i)) continue;
        chained_add(b, LOOP_RESULT, c->loop, i, 0);
        b->rows[c->loop->results[i]] = true;
        if (!c->lane_sum || c->lane_carried != i) continue;
        chained_add(b, LOOP_FOLD_END, NULL, FOLD_SUM, 0)->operand = c->loop->results[i];
    }
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        after |= op == c->loop;
        if (!after || op == c->loop || !op->result_count) continue;
        chained_kind kind = chained_kind_of(c, op->results[0]);
        if (kind == CHAINED_SCALAR && op->code != OP_CONST) chained_add(b, LOOP_LET, op, LOOPS_SCALAR, 0);
        if (kind == CHAINED_FIXED) chained_row(b, op);
    }
    for (int i = 0; i < c->store_count; i++) {
        bool sum = false;
        for (int s = 0; s < c->sum_count; s++) sum |= c->sums[s].store == i;
        if (sum) continue;
        chained_begin_pass(b);
        chained_need(b, c->stores[i]->operands[0]);
        chained_add(b, LOOP_STORE, c->stores[i], 0, 0)->operand = c->stores[i]->operands[0];
    }
    chained_add(b, LOOP_BARRIER, NULL, LOOPS_GROUP, 0); /* nobody reads the fixed operands' rooms any more */
    for (int i = 0, operand = 0; i < c->sum_count; i++, operand++) {
        const tile_op *store = c->stores[c->sums[i].store];
        while (c->operands[operand].moves) operand++;
        chained_begin_pass(b);
        loop_node *out = chained_add(b, LOOP_OUT, store, i, operand);
        loop_node **behind = chained_open(b, out);
        chained_need(b, store->operands[0]);
        out->operand = store->operands[0];
        chained_close(b, behind);
        chained_add(b, LOOP_OUT_SEND, store, i, operand);
    }
    chained_add(b, LOOP_OUT_END, NULL, 0, 0);
}

static void build_multiply(chained_builder *b)
{
    const chained *c = b->c;
    loop_node **behind = chained_open(b, chained_add(b, LOOP_ROLE, NULL, 1, 0));
    add_scalars(b);
    chained_add(b, LOOP_PLACES, NULL, 0, 0);
    add_fixed(b);
    chained_add(b, LOOP_WAIT, NULL, 0, LOOPS_FIXED);
    if (c->held) chained_add(b, LOOP_HELD, NULL, 0, c->products[0].fixed);
    for (int i = 0; i < c->loop->result_count; i++) {
        if (is_carried_sum(c, i)) continue;
        chained_begin_pass(b);
        chained_need(b, c->loop->operands[3 + i]);
        chained_add(b, LOOP_CARRY, c->loop, i, 0);
        b->rows[c->loop->regions[0]->args[1 + i]] = true;
    }
    chained_add(b, LOOP_SUMS_BEGIN, NULL, 0, 0);
    loop_node *steps = chained_add(b, LOOP_IF, c->loop, 0, 0);
    loop_node **after = chained_open(b, steps);
    chained_add(b, LOOP_SCORES_BEGIN, NULL, 0, 0);
    if (c->folds)
        build_softmax(b);
    else
        build_plain(b);
    chained_close(b, after);
    loops_add(b->memory, &steps->other, LOOP_SUMS_ZERO, NULL, 0, 0);
    build_results(b);
    chained_close(b, behind);
}

loop_program loops_chained(const chained *c, arena *memory)
{
    loop_program p = {.chained = c, .phase = c->phase};
    chained_builder b = {.c = c, .memory = memory, .tail = &p.first};
    int count = c->kernel->value_count;
    b.known = ARENA_ARRAY(memory, bool, count);
    b.rows = ARENA_ARRAY(memory, bool, count);
    b.folded = ARENA_ARRAY(memory, bool, count);
    b.truths = ARENA_ARRAY(memory, bool, count);
    build_fill(&b);
    build_multiply(&b);
    return p;
}
