/*
 * What several loads go through. In: a block, and in how many passes each of its values is computed. Out: for each load
 * the last value that all of its uses go through, if several passes compute that too.
 *
 * A pool's window, a residual or a chain of additions reads several tiles that nobody needs but for their sum: kept in
 * registers the sum is one tile and the loads are many. The value is the last common dominator of the uses; the walk is
 * from the last op to the first, so that all users of a value are known when it is met.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/plan.h"

typedef struct uses_of {
    value up;  /* the first value that all uses met so far go through; 0: they go several ways */
    int depth; /* of that way */
    int seen;  /* uses met so far */
} uses_of;

static value common(const uses_of *u, value a, value b)
{
    while (a != b) {
        if (!a || !b) return 0;
        if (u[a].depth >= u[b].depth)
            a = u[a].up;
        else
            b = u[b].up;
    }
    return a;
}

static void meet(const planner *p, uses_of *u, value v, value by)
{
    if (p->defined_at[v] < 0 || !value_is_virtual(p->e, v)) return;
    u[v].up = u[v].seen++ ? common(u, u[v].up, by) : by;
    u[v].depth = u[v].up ? u[u[v].up].depth + 1 : 0;
}

/* Uses inside regions are not met here: they are a way of their own. */
static void finish(const planner *p, uses_of *u, value v)
{
    if (u[v].seen == p->e->uses[v]) return;
    u[v].up = 0;
    u[v].depth = 0;
}

static bool is_kept_for(const planner *p, value v, const tile_type *type)
{
    tile_type own = tile_type_of(p->e->k, v);
    return value_is_virtual(p->e, v) && p->demand_count[v] > 1 && !p->demand_off[v] && tile_shape_same(&own, type);
}

value *gather_loads(planner *p)
{
    const tile_kernel *k = p->e->k;
    uses_of *u = ARENA_ARRAY(p->e->memory, uses_of, k->value_count);
    value *through = ARENA_ARRAY(p->e->memory, value, k->value_count);
    int *loads = ARENA_ARRAY(p->e->memory, int, k->value_count);
    for (int i = p->block->op_count - 1; i >= 0; i--) {
        const tile_op *op = p->block->ops[i];
        value result = op->result_count == 1 ? op->results[0] : 0;
        if (result && !value_is_virtual(p->e, result)) result = 0;
        for (int r = 0; r < op->result_count; r++) finish(p, u, op->results[r]);
        for (int n = 0; n < op->operand_count; n++) meet(p, u, op->operands[n], result);
    }
    for (int i = 0; i < p->block->op_count; i++) {
        const tile_op *op = p->block->ops[i];
        if (op->code != OP_LOAD || p->demand_count[op->results[0]] < 2) continue;
        tile_type type = tile_type_of(k, op->results[0]);
        for (value v = u[op->results[0]].up; v; v = u[v].up)
            if (is_kept_for(p, v, &type)) through[op->results[0]] = v;
        loads[through[op->results[0]]]++;
    }
    for (int i = 0; i < p->block->op_count; i++) {
        const tile_op *op = p->block->ops[i];
        if (op->code == OP_LOAD && loads[through[op->results[0]]] < 2) through[op->results[0]] = 0;
    }
    return through;
}
