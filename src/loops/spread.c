/*
 * From a spread to a loop program. In: a phase as it was planned (schedule/plan.c), and what was chosen for it. Out: its
 * items in order, one node each: scalars, groups of passes, products, scans, prints; loops and branches with what is in
 * them.
 *
 * All threads of the team run the program. Scalars are computed by each, so conditions are the same in all; a scalar is
 * stored by one. What is open of memory that was touched goes through branches and around loops here; loops/barriers.c
 * says where the team meets.
 * SPDX-License-Identifier: MIT
 */
#include "loops/spread_build.h"

loop_node *spread_add(spread_builder *b, loop_code code, const tile_op *op)
{
    loop_node **at = b->tail;
    b->tail = loops_add(b->memory, at, code, op, 0, 0);
    return *at;
}

/* ---- scalars ---- */

bool spread_team_is_one(const spread_builder *b)
{
    return b->spread->team.kind == TEAM_LANES && b->spread->team.threads == 1;
}

static void build_scalar(spread_builder *b, const tile_op *op)
{
    bool access = op->code == OP_LOAD || op->code == OP_STORE || op->code == OP_ATOMIC;
    if (op->code == OP_CONST) return; /* in place, where it is used */
    if (access) {
        spread_access(b, op);
        if (op->code != OP_ATOMIC || !b->survey->uses[op->results[0]] || spread_team_is_one(b)) return;
        b->broadcasts = true; /* through shared memory, between two barriers */
        touches_stop(b);
        touches_stop(b);
        return;
    }
    loop_node *node = spread_add(b, op->code == OP_ASSERT ? LOOP_TEST : LOOP_LET, op);
    if (op->code == OP_ASSERT) {
        touches_join(b, &b->left, &b->open);
        touches_join(b, &b->left, &b->now);
    }
    if (op->code != OP_MAP) return;
    loop_node **after = b->tail;
    b->tail = &node->body;
    spread_block(b, op->regions[0]);
    b->tail = after;
}

/* ---- products ---- */

static void touch_slice(spread_builder *b, value v, const tile_op *load)
{
    const tile_op *const loads[2] = {load, b->survey->scales[v]};
    for (int i = 0; i < 2 && loads[i]; i++) touch_by_many(b, loads[i]);
}

/* The product that suits the team; from here on the phase has the room of its products. */
static const loop_product *choose_product(spread_builder *b, const tile_op *dot)
{
    survey *e = b->survey;
    int threads = b->spread->team.threads;
    loop_product *p = ARENA_NEW(b->memory, loop_product);
    *p = (loop_product){.dot = dot, .gathered = gather_is_wanted(e, dot)};
    p->has_product = product_choose(e, dot, threads, &p->product);
    if (!p->has_product) p->product.scaled = -1;
    if (p->gathered) p->gather = gather_choose(e, dot, threads);
    if (p->gathered) p->on_units = gather_is_on_units(e, dot);
    if ((p->gathered || p->has_product) && !e->dot_room) e->dot_room = b->spread->product_room;
    return p;
}

static void build_dot(spread_builder *b, const tile_op *op)
{
    survey *e = b->survey;
    for (int i = 0; i < 2; i++) {
        tile_op *load;
        bool swapped;
        value v = op->operands[i];
        if (dot_operand_is_direct(e, v, &load, &swapped)) {
            touch_slice(b, v, load);
            continue;
        }
        const tile_op *def = tile_def(e->k, v);
        if (def && def->code == OP_PERMUTE && value_is_virtual(e, v)) v = def->operands[0];
        touch_buffer(b, buffer_for(e, v), false);
    }
    if (!b->resident[op->results[0]]) touch_buffer(b, buffer_for(e, op->results[0]), true);
    loop_node *node = spread_add(b, LOOP_DOT, op);
    touches_commit(b, node);
    node->product = choose_product(b, op);
}

static void build_products(spread_builder *b, const tile_op *loop, const tile_op *dot, bool from_zero)
{
    survey *e = b->survey;
    for (int i = 0; i < 2; i++) {
        tile_op *load;
        bool swapped;
        CHECK(dot_operand_is_direct(e, dot->operands[i], &load, &swapped));
        touch_slice(b, dot->operands[i], load);
    }
    touch_buffer(b, buffer_for(e, loop->regions[0]->args[1]), true);
    loop_node *node = spread_add(b, LOOP_PRODUCTS, loop);
    node->number[0] = from_zero;
    touches_commit(b, node);
    node->product = choose_product(b, dot);
}

static void build_sums(spread_builder *b, loop_code code, value result, value argument)
{
    loop_node *node = spread_add(b, code, NULL);
    node->operand = result;
    node->number[0] = (int)argument;
    touch_buffer(b, buffer_for(b->survey, argument), code == LOOP_SUMS_STORE);
    touches_commit(b, node);
    b->resident[result] = true;
}

static void build_resume(void *context, value result, value argument, dtype t)
{
    (void)t;
    build_sums(context, LOOP_SUMS_LOAD, result, argument);
}

static void build_finish(void *context, value result, value argument, dtype t)
{
    (void)t;
    build_sums(context, LOOP_SUMS_STORE, result, argument);
}

/* ---- control flow ---- */

/* A list of its own: nodes that `build` adds. */
static loop_node *build_list(spread_builder *b, const tile_op *loop, product_visit *visit)
{
    loop_node *list = NULL, **after = b->tail;
    b->tail = &list;
    product_each_resident(b->survey, loop, b->spread->team.threads, visit, b);
    b->tail = after;
    return list;
}

static void build_for(spread_builder *b, const tile_op *op)
{
    loop_node *before = build_list(b, op, build_resume);
    int barriers = b->loop_barriers, logged = b->log.count;
    const touches outside = touches_copy(b, &b->open); /* counts where the loop makes no trip */
    const spread_builder around = *b;
    b->loop_barriers = b->barriers;
    loop_node *node = spread_add(b, LOOP_FOR, op), **after = b->tail;
    node->before = before;
    b->ahead = NULL;
    b->ahead_count = b->ahead_capacity = 0;
    b->tail = &node->body;
    spread_block(b, op->regions[0]);
    spread_add(b, LOOP_YIELD, op);
    touches_loop_ends(b, op, logged);
    touches_join(b, &b->open, &outside);
    b->tail = after;
    node->ahead = b->ahead;
    node->number[0] = b->ahead_count;
    b->ahead = around.ahead;
    b->ahead_count = around.ahead_count;
    b->ahead_capacity = around.ahead_capacity;
    b->loop_barriers = barriers;
    node->after = build_list(b, op, build_finish);
}

static void build_while(spread_builder *b, const tile_op *op)
{
    int barriers = b->loop_barriers, logged = b->log.count;
    const touches outside = touches_copy(b, &b->open); /* counts where the loop makes no trip */
    loop_node *node = spread_add(b, LOOP_WHILE, op), **after = b->tail;
    b->loop_barriers = b->barriers;
    b->tail = &node->body;
    spread_block(b, op->regions[0]);
    const touches tested = touches_copy(b, &b->open);
    b->tail = &node->other;
    spread_block(b, op->regions[1]);
    spread_add(b, LOOP_YIELD, op);
    touches_loop_ends(b, op, logged);
    touches_join(b, &b->open, &outside);
    touches_join(b, &b->open, &tested);
    b->loop_barriers = barriers;
    b->tail = after;
}

static void build_if(spread_builder *b, const tile_op *op)
{
    const touches before = touches_copy(b, &b->open);
    touches behind = {0};
    loop_node *node = spread_add(b, LOOP_IF, op), **after = b->tail;
    for (int r = 0; r < op->region_count; r++) {
        const tile_block *arm = op->regions[r];
        bool empty = arm->op_count == 1 && !op->result_count;
        b->open.count = 0;
        touches_join(b, &b->open, &before);
        if (r && empty) break;
        b->tail = r ? &node->other : &node->body;
        spread_block(b, arm);
        spread_add(b, LOOP_YIELD, op)->number[0] = r;
        touches_join(b, &behind, &b->open);
    }
    touches_join(b, &b->open, &behind);
    b->tail = after;
}

static void build_scan(spread_builder *b, const tile_op *op)
{
    survey *e = b->survey;
    int number = buffer_for(e, op->results[0]);
    int64_t loops[MAX_RANK];
    bool registers = scan_is_row(e, op, loops) && b->spread->kept[number].kind == HOME_REGISTERS;
    loop_node *node = spread_add(b, LOOP_SCAN, op);
    node->number[0] = registers;
    if (registers) { /* no thread may still read what a scan before this one left there */
        node->number[1] = b->spread->team.kind == TEAM_BLOCK &&
                          (b->scans++ || b->spread->nesting > 1 || spread_loops_over_programs(b->spread));
        return;
    }
    touch_buffer(b, number, true);
    touches_commit(b, node);
}

static void build_print(spread_builder *b, const tile_op *op)
{
    for (int i = 0; i < op->operand_count; i++)
        if (tile_type_of(b->survey->k, op->operands[i]).rank)
            touch_buffer(b, buffer_for(b->survey, op->operands[i]), false);
    touches_commit(b, spread_add(b, LOOP_PRINT, op));
}

static void build_item(spread_builder *b, const item *it, bool first, bool last)
{
    const tile_op *dot;
    switch (it->kind) {
    case ITEM_SCALAR: build_scalar(b, it->op); break;
    case ITEM_GROUP:
        if (last || !loop_starts_at_zero(b->survey, it)) spread_group(b, it->group);
        break;
    case ITEM_DOT: build_dot(b, it->op); break;
    case ITEM_SCAN: build_scan(b, it->op); break;
    case ITEM_FOLD: {
        fold_group *f = ARENA_NEW(b->memory, fold_group);
        spread_group(b, fold_group_of(b->survey, it->op, f));
        break;
    }
    case ITEM_EFFECT: build_print(b, it->op); break;
    case ITEM_CONTROL:
        dot = loop_is_product(b->survey, it->op);
        if (dot)
            build_products(b, it->op, dot, !first && loop_starts_at_zero(b->survey, it - 1));
        else if (it->op->code == OP_FOR)
            build_for(b, it->op);
        else if (it->op->code == OP_WHILE)
            build_while(b, it->op);
        else if (it->op->code == OP_IF)
            build_if(b, it->op);
        break;
    }
}

void spread_block(spread_builder *b, const tile_block *block)
{
    spread *c = b->spread;
    online *outer = c->online;
    int outer_count = c->online_count;
    const block_plan *known = spread_plan(c, block);
    CHECK(known);
    const plan p = known->plan;
    c->nesting++;
    c->online = known->online;
    c->online_count = known->online_count;
    for (int i = 0; i < p.count; i++) build_item(b, &p.items[i], !i, i + 1 == p.count);
    c->nesting--;
    c->online = outer;
    c->online_count = outer_count;
}

static loop_program build_spread(survey *e, int phase, arena *memory)
{
    spread *c = e->spread;
    loop_program p = {.spread = c, .survey = e, .phase = phase};
    spread_builder b = {.survey = e, .spread = c, .memory = memory};
    e->pass_number = e->dot_room = 0;
    c->online_count = 0;
    b.resident = ARENA_ARRAY(memory, bool, e->k->value_count);
    b.tail = &p.first;
    spread_block(&b, e->k->phases[phase]);
    /* The next program has its tiles in the same place. */
    touches_join(&b, &b.open, &b.left);
    bool touched = false;
    for (int i = 0; i < b.open.count; i++) touched |= b.open.items[i].buffer != 0;
    p.meets_again = touched && spread_loops_over_programs(c);
    p.barriers = b.barriers;
    p.broadcasts = b.broadcasts;
    return p;
}

qn_status loops_spread(survey *e, int phase, const sched_machine *machine, const spread *before, arena *memory,
                       loop_program *out, qn_error *error)
{
    spread *c = survey_spread(e, phase, machine, before);
    for (;;) {
        QN_TRY(spread_decide(e, error));
        *out = build_spread(e, phase, memory);
        bool wide = c->team.kind == TEAM_LANES && c->team.threads > 32; /* which cannot meet by themselves */
        if (!wide || (!out->barriers && !e->has_assert && !out->broadcasts)) return QN_OK;
        c->no_wide = true;
    }
}
