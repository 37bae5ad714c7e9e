/*
 * What is computed twice, and is kept instead. In: a plan of a block. Out: values that are forced to be kept, upon which the
 * block is planned again.
 *
 * A value that two passes compute costs its weight once more; a kept one costs registers or shared memory. On a GPU loads
 * that several passes need stay too, and a tile that is read along one axis and used along another.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/plan.h"

enum {
    LARGEST_KEPT = 1 << 22,
    HEAVY = 10,
    HEAVY_IN_LONG_ROWS = 40,
    HEAVY_ARITHMETIC = 30, /* on a GPU, of plain arithmetic: registers are dearer */
    LONG_ON_GPU = 10,
    LONGER_THAN_CHIP = 13,
    ROW_OF_LANES = 8,
    MOST_OF_LANES = 256
};

/* A run-time extent of this class or a larger one. On a GPU what is not bounded counts as the largest. */
static bool row_reaches(const survey *e, const tile_type *type, int class)
{
    for (int i = 0; i < type->rank; i++) {
        if (type->dims[i] >= 0) continue;
        const tile_op *op = tile_def(e->k, (value)-type->dims[i]);
        if (op && op->code == OP_ARG && e->k->params[op->attr.index].facts.size_class >= class) return true;
        if (e->spread && facts_of(e->facts, (value)-type->dims[i]).high > LARGEST_KEPT) return true;
    }
    return false;
}

static bool row_is_long(const survey *e, const tile_type *type)
{
    return row_reaches(e, type, e->spread ? LONG_ON_GPU : 4);
}

/* A load whose neighbours in memory are not neighbours in the pass. */
static void force_crossing(survey *e, value v, const place *at, void *context)
{
    planner *p = context;
    const tile_op *op = value_is_virtual(e, v) && p->defined_at[v] >= 0 ? tile_def(e->k, v) : NULL;
    if (!op || op->code != OP_LOAD) return;
    const struct access *access = &op->attr.access;
    const tile_facts *facts = &e->k->params[access->array].facts;
    int last = p->demand_pass->loop_count - 1;
    if (!access->rank || access->kind[access->rank - 1] != INDEX_SLICE || !(facts->last_unit || facts->contiguous))
        return;
    int along = at->axis[access->result_axis[access->rank - 1]];
    bool follows = false;
    tile_type type = tile_type_of(e->k, v);
    for (int i = 0; i < type.rank; i++) follows |= at->axis[i] == last;
    if (along == NO_AXIS || along == last || !follows) return;
    for (int i = 0; i < 2; i++) {
        int64_t extent = p->demand_pass->loops[i ? last : along];
        if (extent >= 0 && extent < 8) return;
    }
    force_value(p, v);
}

static void find_load(survey *e, value v, const place *at, void *context)
{
    bool *found = context;
    (void)at;
    *found |= !value_is_virtual(e, v) ? e->k->values[v].type.rank != 0 : tile_def(e->k, v)->code == OP_LOAD;
}

static void find_division(survey *e, value v, const place *at, void *context)
{
    bool *found = context;
    (void)at;
    if (!value_is_virtual(e, v)) return;
    op_code code = tile_def(e->k, v)->code;
    *found |= code == OP_DIV || code == OP_MOD;
}

/* Rows of some elements beside each other: several lanes have one, unless a thread is given all of it. */
static bool lanes_share_row(const pass_nest *pass, int level)
{
    int64_t row = 1;
    for (int i = level; i < pass->loop_count; i++) {
        if (pass->loops[i] < 0) return false;
        row *= pass->loops[i];
    }
    return level > 0 && level < pass->loop_count && row >= ROW_OF_LANES && row <= MOST_OF_LANES;
}

/* A remainder or a quotient of integers that were loaded: the index of a row in a table. */
static bool is_divided_load(survey *e, value v)
{
    if (!dtype_is_integer(tile_type_of(e->k, v).elem)) return false;
    bool found[2] = {false, false};
    walk_tree(e, v, place_own(&e->k->values[v].type), find_division, &found[0]);
    walk_tree(e, v, place_own(&e->k->values[v].type), find_load, &found[1]);
    return found[0] && found[1];
}

static void count_demand(survey *e, value v, const place *at, void *context)
{
    planner *p = context;
    if (p->defined_at[v] < 0 || !value_is_virtual(e, v)) return;
    tile_type type = tile_type_of(e->k, v);
    int level = place_level(at, type.rank);
    int key = level <= p->key_outer ? -p->group_key : p->key; /* computed once for all passes in the outer loops */
    if (p->demand_key[v] != key) {
        p->demand_key[v] = key;
        p->demand_count[v]++;
    }
    place own = place_own(&type);
    int64_t loops[MAX_RANK];
    if (loops_of(&type, loops) != p->demand_pass->loop_count || !place_same(&own, at, type.rank))
        p->demand_off[v] = true;
    unsigned along = 0;
    for (int i = 0; i < type.rank; i++)
        if (at->axis[i] != NO_AXIS) along |= 1u << at->axis[i];
    if (level && along != (1u << level) - 1)
        p->demand_count[v]++; /* again for each step of a loop it does not follow */
    else if (e->spread && lanes_share_row(p->demand_pass, level) && is_divided_load(e, v))
        p->demand_count[v]++; /* again by each lane of a row */
}

/* Accesses whose neighbours in memory are neighbouring rows of the group, less those along a row: a layout follows most
 * of them (choose_turned). */
static void count_along(const survey *e, planner *p, const tile_op *op, const place *at)
{
    const struct access *access = &op->attr.access;
    const tile_facts *facts = &e->k->params[access->array].facts;
    if (!access->rank || access->kind[access->rank - 1] != INDEX_SLICE || !(facts->last_unit || facts->contiguous))
        return;
    int along = at->axis[access->result_axis[access->rank - 1]];
    if (along != NO_AXIS) p->across += along < p->key_outer ? 1 : -1;
}

static void count_load(survey *e, value v, const place *at, void *context)
{
    const tile_op *op = tile_def(e->k, v);
    if (op && op->code == OP_LOAD) count_along(e, context, op, at);
}

static bool is_turned(planner *p, const group *g)
{
    survey *e = p->e;
    p->across = 0;
    p->key_outer = g->outer;
    for (int n = 0; g->outer > 0 && n < g->pass_count; n++) {
        for (int i = 0; i < g->passes[n].sink_count; i++) {
            const sink *s = &g->passes[n].sinks[i];
            walk_sink(e, s, count_load, p);
            place own = place_own(&e->k->values[s->v].type);
            if (s->kind == SINK_STORE) count_along(e, p, s->op, &own);
        }
    }
    return p->across > 0;
}

/* On a GPU: what several passes load at their own place stays in registers, or what they make of several loads, and a
 * tile that is read along one axis and used along another goes through shared memory. */
static void force_loads(planner *p)
{
    survey *e = p->e;
    const value *through = NULL; /* a table by value: only for a block that asks for it, of thousands */
    for (int i = 0; i < p->block->op_count; i++) {
        const tile_op *op = p->block->ops[i];
        value v = op->result_count ? op->results[0] : 0;
        if (op->code != OP_LOAD || !tile_type_of(e->k, v).rank || p->demand_count[v] < 2 || p->demand_off[v]) continue;
        if (!through) through = gather_loads(p);
        if (!row_reaches(e, &e->k->values[v].type, LONGER_THAN_CHIP)) force_value(p, through[v] ? through[v] : v);
    }
    for (int i = 0; i < p->plan.count && !p->again; i++) {
        group *g = p->plan.items[i].group;
        if (g && is_turned(p, g)) continue;
        for (int n = 0; g && n < g->pass_count; n++) {
            p->demand_pass = &g->passes[n];
            for (int s = 0; s < g->passes[n].sink_count; s++) walk_sink(e, &g->passes[n].sinks[s], force_crossing, p);
        }
    }
}

/* Is a function (exp, a division) among what would be computed again? */
static void find_function(survey *e, value v, const place *at, void *context)
{
    bool *found = context;
    (void)at;
    if (!value_is_virtual(e, v)) return;
    op_code code = tile_def(e->k, v)->code;
    *found |= ops[code].costly || code == OP_MAP || code == OP_DIV || code == OP_MOD;
}

static bool has_function(survey *e, value v)
{
    bool found = false;
    walk_tree(e, v, place_own(&e->k->values[v].type), find_function, &found);
    return found;
}

/* A place in the row, from its positions alone: two registers for each are dearer than some integer arithmetic. */
static bool is_place(survey *e, value v)
{
    bool found = false;
    if (!dtype_is_integer(tile_type_of(e->k, v).elem)) return false;
    walk_tree(e, v, place_own(&e->k->values[v].type), find_load, &found);
    return !found;
}

/* From which weight on a value is kept rather than computed again. */
static int heavy(survey *e, value v)
{
    if (row_is_long(e, &e->k->values[v].type)) return HEAVY_IN_LONG_ROWS;
    return e->spread && !has_function(e, v) ? HEAVY_ARITHMETIC : HEAVY;
}

void force_repeated(planner *p)
{
    survey *e = p->e;
    int key = 0;
    for (int i = 0; i < p->plan.count; i++) {
        group *g = p->plan.items[i].group;
        if (!g) continue;
        for (int n = 0; n < g->pass_count; n++) {
            p->key = ++key;
            p->group_key = i + 1;
            p->key_outer = g->outer;
            p->demand_pass = &g->passes[n];
            for (int s = 0; s < g->passes[n].sink_count; s++) walk_sink(e, &g->passes[n].sinks[s], count_demand, p);
        }
    }
    if (e->spread) force_loads(p);
    if (p->again) return;
    for (int i = p->block->op_count - 1; i >= 0; i--) {
        const tile_op *op = p->block->ops[i];
        value v = op->result_count ? op->results[0] : 0;
        if (!v || p->demand_count[v] < 2) continue;
        if (value_weight(e, v) < heavy(e, v) || (e->spread && is_place(e, v))) continue;
        force_value(p, v);
        return; /* what it is made of may no longer be computed twice */
    }
}
