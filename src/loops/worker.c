/*
 * Plans the blocks of a phase for a worker of the CPU; worker.h has the idea. In: a phase of tile IR. Out: its blocks as
 * lists of nodes, those of loops, branches and regions of single elements included.
 * SPDX-License-Identifier: MIT
 */
#include "loops/worker.h"

void loops_survey(const tile_kernel *k, arena *memory, survey *out)
{
    *out = (survey){.k = k, .memory = memory, .facts = facts_compute(k, memory)};
}

const worker_block *worker_find(const loop_worker *w, const tile_block *block)
{
    for (int i = 0; i < w->count; i++)
        if (w->blocks[i]->block == block) return w->blocks[i];
    CHECK(!"a block that was not planned");
    return NULL;
}

/* Three items: sums set to zero, a loop of products, the sums stored as they are and not used again. */
static bool is_stored(const survey *e, const item *items)
{
    const sink *store = item_only_sink(&items[2]);
    if (!store || !loop_starts_at_zero(e, items)) return false;
    value sums = items[1].op->results[0];
    if (store->kind != SINK_STORE || store->op->operands[0] != sums || e->uses[sums] != 1) return false;
    const struct access *a = &store->op->attr.access;
    if (a->mask_count || e->read[a->array] || e->k->params[a->array].elem != tile_type_of(e->k, sums).elem)
        return false;
    bool used[2] = {0};
    for (int i = 0, operand = a->first_index; i < a->rank; i++) {
        bool slice = a->kind[i] == INDEX_SLICE;
        if (!slice && e->k->values[store->op->operands[operand]].type.rank) return false;
        if (slice && !is_one(e, store->op->operands[operand + 1])) return false;
        if (slice) used[a->result_axis[i]] = true;
        operand += slice ? 2 : 1;
    }
    return used[0] && used[1];
}

static void plan_of(loop_worker *w, tile_block *block, const value *targets);

static void plan_control(loop_worker *w, const tile_op *op)
{
    switch (op->code) {
    case OP_FOR: plan_of(w, op->regions[0], op->regions[0]->args + 1); break;
    case OP_WHILE:
        plan_of(w, op->regions[0], NULL);
        plan_of(w, op->regions[1], op->regions[1]->args);
        break;
    case OP_IF:
        for (int r = 0; r < op->region_count; r++) {
            bool empty = op->regions[r]->op_count == 1 && !op->result_count;
            if (!r || !empty) plan_of(w, op->regions[r], op->results);
        }
        break;
    default: break;
    }
}

static loop_node **add_item(loop_worker *w, const item *it, loop_node **tail)
{
    static const loop_code codes[] = {[ITEM_SCALAR] = LOOP_LET, [ITEM_GROUP] = LOOP_GROUP, [ITEM_DOT] = LOOP_DOT,
                                      [ITEM_SCAN] = LOOP_SCAN,  [ITEM_FOLD] = LOOP_FOLD,   [ITEM_EFFECT] = LOOP_PRINT};
    if (it->kind != ITEM_CONTROL) return loops_add(w->memory, tail, codes[it->kind], it->op, 0, 0);
    loop_code code = loop_is_product(w->survey, it->op) ? LOOP_PRODUCTS
                     : it->op->code == OP_FOR           ? LOOP_FOR
                     : it->op->code == OP_WHILE         ? LOOP_WHILE
                     : it->op->code == OP_IF            ? LOOP_IF
                                                        : LOOP_YIELD;
    if (code != LOOP_PRODUCTS) plan_control(w, it->op);
    return loops_add(w->memory, tail, code, it->op, 0, 0);
}

static void plan_of(loop_worker *w, tile_block *block, const value *targets)
{
    worker_block *b = ARENA_NEW(w->memory, worker_block);
    *b = (worker_block){.block = block, .plan = plan_block(w->survey, block, targets)};
    ARENA_PUSH(w->memory, w->blocks, w->count, w->capacity, b);
    loop_node **tail = &b->first;
    for (int i = 0; i < b->plan.count; i++) {
        const item *it = &b->plan.items[i];
        bool stored = i + 2 < b->plan.count && is_stored(w->survey, it);
        loop_node **at = tail;
        tail = stored ? loops_add(w->memory, at, LOOP_PRODUCTS, it[1].op, true, 0) : add_item(w, it, at);
        (*at)->items = it;
        if (stored) i += 2;
    }
    for (int i = 0; i < block->op_count; i++)
        if (block->ops[i]->code == OP_MAP) plan_of(w, block->ops[i]->regions[0], NULL);
}

loop_worker *loops_worker(survey *e, int phase, arena *memory)
{
    loop_worker *w = ARENA_NEW(memory, loop_worker);
    *w = (loop_worker){.survey = e, .memory = memory};
    survey_open(e, phase);
    plan_of(w, e->k->phases[phase], NULL);
    return w;
}
