/*
 * Plans a block: which tile values are kept, which sinks share loops, and the order of all that runs.
 *
 * In: a block. Out: items in order of execution. One walk over the ops adds sinks to the open group while that changes
 * nothing: equal loops, results of the group used only at their own place, no load moved past a store of its array.
 * What turns out to need a buffer (a load that a store would overtake, a costly value that two passes compute, a value
 * that a region needs) is forced and the walk starts again: it ends because values are only ever added.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/plan.h"

#include <string.h>

enum { DEEPEST_TREE = 1000 };

bool writes_memory(const tile_op *op)
{
    return op->code == OP_STORE || op->code == OP_ATOMIC;
}

void force_value(planner *p, value v)
{
    if (p->e->force[v]) return;
    p->e->force[v] = true;
    if (tile_def(p->e->k, v)->code != OP_REDUCE) p->again = true;
}

/* A value that ends up in memory: forced if it is virtual or the result of a fold. */
void require_buffer(planner *p, value v)
{
    const tile_op *op = tile_def(p->e->k, v);
    if (!p->e->k->values[v].type.rank) return;
    if (value_is_virtual(p->e, v) || (op && op->code == OP_REDUCE)) force_value(p, v);
}

void push_item(planner *p, item_kind kind, tile_op *op, group *g)
{
    item next = {kind, op, g};
    ARENA_PUSH(p->e->memory, p->plan.items, p->plan.count, p->plan.capacity, next);
}

void close_group(planner *p)
{
    if (!p->open) return;
    if (p->open->outer < 0) p->open->outer = 0;
    push_item(p, ITEM_GROUP, NULL, p->open);
    p->open = NULL;
    p->read_count = 0;
}

/* The value whose buffer v shares: reshapes are other views of the same elements. */
value alias_root(const survey *e, value v)
{
    while (e->k->values[v].type.rank && tile_def(e->k, v) && tile_def(e->k, v)->code == OP_RESHAPE &&
           tile_is_buffered(e, v))
        v = tile_def(e->k, v)->operands[0];
    return v;
}

/* Do both touch, position by position, the same elements and no others? Indices of a scatter may be equal where it is
 * masked off, so then another position may have the element. */
static bool in_place(const survey *e, const tile_op *a, const tile_op *b)
{
    bool masked = a->attr.access.mask_count || b->attr.access.mask_count;
    for (int axis = 0; axis < a->attr.access.rank && masked; axis++)
        if (a->attr.access.kind[axis] == INDEX_TILE) return false;
    return access_same(e, a, b);
}

/* In a pass of so many loops of the open group, is a position the business of one thread? On a GPU what stands outside
 * the innermost loops is loaded by all threads that share a row, and stored by one of them. */
static bool has_one_thread(const planner *p, int loop_count)
{
    return !p->e->spread || loop_count > (p->open ? MAXIMUM(p->open->outer, 0) : 0);
}

/* Does the sink that joins run the loops of this pass of the open group? On a GPU others fall to other threads. */
static bool joins_loops_of(const planner *p, int pass)
{
    const pass_nest *other = &p->open->passes[pass];
    tile_type type = tile_type_of(p->e->k, p->joining->v);
    int64_t loops[MAX_RANK];
    int count = loops_of(&type, loops);
    return count == other->loop_count && !memcmp(loops, other->loops, sizeof(int64_t) * (size_t)count);
}

void check_demand(survey *e, value v, const place *at, void *context)
{
    planner *p = context;
    tile_type type = tile_type_of(e->k, v);
    value root = alias_root(e, v);
    const tile_op *op = tile_def(e->k, root);
    if (p->open && p->home[root] == p->open) {
        place own = place_own(&type);
        bool is_fold = op->code == OP_REDUCE;
        if (root != v || !type.rank || !place_same(&own, at, type.rank))
            p->must_close = true;
        else if (is_fold && place_level(&own, type.rank) > p->open->outer)
            p->must_close = true;
        else if (e->spread && !is_fold && place_level(&own, type.rank) > MAXIMUM(p->open->outer, 0) &&
                 !joins_loops_of(p, p->home_pass[root]))
            p->must_close = true; /* no barrier stands inside a group */
        else
            p->least_pass = MAXIMUM(p->least_pass, p->home_pass[root] + (is_fold ? 1 : 0));
    }
    if (!op || op->code != OP_LOAD || !type.rank || (e->force[v] && v != p->joining->v)) return;
    if (e->force[v] && p->joining->kind != SINK_KEEP) return;
    if (p->defined_at[v] < 0) return;
    for (int i = 0; i < p->write_count; i++) {
        const memory_event *w = &p->writes[i];
        if (w->op->attr.access.array != op->attr.access.array) continue;
        if (w->position < p->defined_at[v]) {
            if (w->group && w->group == p->open) p->must_close = true;
            continue;
        }
        place own = place_own(&type);
        bool in_step = w->group && w->group == p->open && w->pass == p->open->pass_count - 1 &&
                       in_place(e, w->op, op) && place_same(&own, at, type.rank) &&
                       has_one_thread(p, p->open->passes[w->pass].loop_count);
        if (in_step)
            p->same_pass_only = true;
        else
            force_value(p, v);
    }
}

static void note_demand(survey *e, value v, const place *at, void *context)
{
    planner *p = context;
    tile_type type = tile_type_of(e->k, v);
    tile_op *op = tile_def(e->k, alias_root(e, v));
    if (op && op->code == OP_REDUCE && type.rank && p->home[alias_root(e, v)] != p->open)
        force_value(p, alias_root(e, v));
    if (!op || op->code != OP_LOAD || !type.rank) return;
    if (e->force[v] && !(p->joining->kind == SINK_KEEP && p->joining->v == v)) return;
    place own = place_own(&type);
    memory_event event = {op, p->position, p->open, p->open->pass_count - 1, place_same(&own, at, type.rank)};
    ARENA_PUSH(e->memory, p->reads, p->read_count, p->read_capacity, event);
}

/* May the store, of a pass of so many loops, come after what the open group reads and writes? */
static bool store_fits(const planner *p, const tile_op *store, int loop_count)
{
    if (p->reads_own && !has_one_thread(p, loop_count)) return false;
    for (int i = 0; i < p->read_count; i++) {
        const memory_event *r = &p->reads[i];
        if (r->op->attr.access.array != store->attr.access.array) continue;
        if (!r->own_place || !in_place(p->e, r->op, store)) return false;
        bool apart = p->open->passes[r->pass].loop_count != loop_count || !has_one_thread(p, loop_count);
        if (p->e->spread && apart) return false;
    }
    for (int i = 0; i < p->write_count; i++) {
        const memory_event *w = &p->writes[i];
        if (w->group == p->open && w->op->attr.access.array == store->attr.access.array &&
            !in_place(p->e, w->op, store) && !accesses_apart(p->e, w->op, store))
            return false;
    }
    return true;
}

/* A store that computes from its own array at other places must not see what it has written: such loads come first. */
static void check_own_loads(survey *e, value v, const place *at, void *context)
{
    planner *p = context;
    const tile_op *op = tile_def(e->k, v), *store = p->joining->op;
    if (!value_is_virtual(e, v) || op->code != OP_LOAD || op->attr.access.array != store->attr.access.array) return;
    tile_type type = tile_type_of(e->k, v);
    place own = place_own(&type);
    if (p->defined_at[v] < 0) return;
    int64_t loops[MAX_RANK];
    bool same = place_same(&own, at, type.rank) && in_place(e, op, store);
    if (!same || (e->spread && !loops_of(&type, loops))) force_value(p, v);
    p->reads_own = true;
}

static pass_nest *add_pass(planner *p, const int64_t *loops, int count)
{
    pass_nest next = {.loop_count = count};
    memcpy(next.loops, loops, sizeof(int64_t) * (size_t)count);
    ARENA_PUSH(p->e->memory, p->open->passes, p->open->pass_count, p->open->pass_capacity, next);
    return &p->open->passes[p->open->pass_count - 1];
}

static bool group_writes(const planner *p)
{
    for (int i = 0; i < p->write_count; i++)
        if (p->writes[i].group && p->writes[i].group == p->open) return true;
    return false;
}

/* The pass of the open group that can take the sink; NULL: it needs a group of its own. */
static pass_nest *pass_for(planner *p, sink *s, const int64_t *loops, int count)
{
    const survey *e = p->e;
    group *g = p->open;
    if (!g) return NULL;
    pass_nest *last = &g->passes[g->pass_count - 1];
    bool equal = last->loop_count == count && !memcmp(last->loops, loops, sizeof(int64_t) * (size_t)count);
    if (s->kind == SINK_REDUCE) {
        if (s->fold_axis == NO_AXIS) return NULL;
        if (e->spread && s->fold_axis == count && g->outer < 0 && group_writes(p))
            return NULL; /* it has no inner loops */
        if (g->outer < 0 && equal) g->outer = s->fold_axis;
        if (g->outer != s->fold_axis) return NULL;
    }
    if (g->outer < 0 && !equal) return NULL;
    p->must_close = p->same_pass_only = false;
    p->least_pass = 0;
    p->joining = s;
    walk_sink(p->e, s, check_demand, p);
    if (p->must_close) return NULL;
    if ((s->kind == SINK_STORE || s->kind == SINK_ATOMIC) && !store_fits(p, s->op, count)) return NULL;
    if (equal && p->least_pass < g->pass_count) return last;
    if (p->same_pass_only) return NULL;
    int outer = MAXIMUM(g->outer, 0);
    if (count < outer || memcmp(g->passes[0].loops, loops, sizeof(int64_t) * (size_t)outer)) return NULL;
    if (g->passes[0].loop_count < outer) return NULL;
    return add_pass(p, loops, count);
}

void add_sink(planner *p, sink s)
{
    survey *e = p->e;
    tile_type type = tile_type_of(e->k, s.v);
    int64_t loops[MAX_RANK];
    int count = loops_of(&type, loops);
    p->joining = &s;
    p->reads_own = false;
    if (s.kind == SINK_STORE || s.kind == SINK_ATOMIC) walk_sink(e, &s, check_own_loads, p);
    pass_nest *pass = pass_for(p, &s, loops, count);
    if (!pass) {
        close_group(p);
        p->joining = &s;
        p->must_close = p->same_pass_only = false;
        walk_sink(e, &s, check_demand, p); /* loads that an earlier store has overtaken */
        p->open = ARENA_NEW(e->memory, group);
        p->open->outer = s.kind == SINK_REDUCE ? MAXIMUM(s.fold_axis, 0) : -1;
        pass = add_pass(p, loops, count);
    }
    ARENA_PUSH(e->memory, pass->sinks, pass->sink_count, pass->sink_capacity, s);
    int number = (int)(pass - p->open->passes);
    if (s.kind == SINK_KEEP || s.kind == SINK_REDUCE) {
        p->home[s.result] = p->open;
        p->home_pass[s.result] = number;
    }
    if (s.kind == SINK_REDUCE && s.fold_axis == NO_AXIS) force_value(p, s.result);
    walk_sink(e, &s, note_demand, p);
    if (s.kind == SINK_STORE || s.kind == SINK_ATOMIC) {
        memory_event event = {s.op, p->position, p->open, number, true};
        ARENA_PUSH(e->memory, p->writes, p->write_count, p->write_capacity, event);
    }
    /* A fold over axes that are not the innermost, and an atomic, end their group: their results need all of it. */
    if ((s.kind == SINK_REDUCE && s.fold_axis == NO_AXIS) || s.kind == SINK_ATOMIC || s.kind == SINK_ASSERT)
        close_group(p);
}

/* The first folded loop axis, if from there on all are folded. */
static int innermost_fold(const survey *e, const tile_op *op)
{
    tile_type type = tile_type_of(e->k, op->operands[0]);
    int loop = 0, first = NO_AXIS, count = 0;
    for (int i = 0; i < type.rank; i++) {
        if (type.dims[i] == 1) continue;
        bool folded = op->attr.axis_set >> i & 1;
        if (folded && first == NO_AXIS) first = loop;
        if (!folded && first != NO_AXIS) return NO_AXIS;
        loop++;
        count += folded;
    }
    bool position = op->attr.fold == FOLD_ARGMAX || op->attr.fold == FOLD_ARGMIN;
    if (position && count > 1) return NO_AXIS;
    return first == NO_AXIS ? loop : first;
}

static bool is_place_across(const survey *e, const tile_op *op)
{
    return (op->attr.fold == FOLD_ARGMAX || op->attr.fold == FOLD_ARGMIN) && innermost_fold(e, op) == NO_AXIS;
}

value operand_in_memory(const survey *e, const tile_op *op, int operand)
{
    value v = op->operands[operand];
    tile_op *load;
    bool swapped;
    switch (op->code) {
    case OP_PRINT: return v;
    case OP_RESHAPE: return tile_is_buffered(e, op->results[0]) ? v : 0;
    case OP_REDUCE: return is_place_across(e, op) ? v : 0;
    case OP_DOT: {
        if (operand > 1 || dot_operand_is_direct(e, v, &load, &swapped)) return 0;
        const tile_op *def = tile_def(e->k, v);
        return def && def->code == OP_PERMUTE && value_is_virtual(e, v) ? def->operands[0] : v; /* read across */
    }
    default: return 0;
    }
}

void require_operands(planner *p, const tile_op *op)
{
    for (int i = 0; i < op->operand_count; i++) {
        value v = operand_in_memory(p->e, op, i);
        if (v) require_buffer(p, v);
    }
}

/* ---- one op ---- */

static bool depends_on_open(const planner *p, const tile_op *op)
{
    if (!p->open) return false;
    for (int i = 0; i < op->operand_count; i++)
        if (p->home[op->operands[i]] == p->open) return true;
    return false;
}

static bool all_scalars(const survey *e, const tile_op *op)
{
    for (int i = 0; i < op->operand_count; i++)
        if (e->k->values[op->operands[i]].type.rank) return false;
    for (int i = 0; i < op->result_count; i++)
        if (e->k->values[op->results[i]].type.rank) return false;
    return true;
}

static void plan_scalar(planner *p, tile_op *op)
{
    bool effect = writes_memory(op) || op->code == OP_ASSERT || op->code == OP_PRINT;
    if (effect || depends_on_open(p, op)) close_group(p);
    if (op->code == OP_LOAD)
        for (int i = 0; i < p->write_count; i++)
            if (p->writes[i].group && p->writes[i].group == p->open &&
                p->writes[i].op->attr.access.array == op->attr.access.array)
                close_group(p);
    if (writes_memory(op)) {
        memory_event event = {op, p->position, NULL, 0, false};
        ARENA_PUSH(p->e->memory, p->writes, p->write_count, p->write_capacity, event);
    }
    push_item(p, op->code == OP_PRINT ? ITEM_EFFECT : ITEM_SCALAR, op, NULL);
}

static void plan_op(planner *p, tile_op *op, const value *targets)
{
    survey *e = p->e;
    value result = op->result_count ? op->results[0] : 0;
    switch (op->code) {
    case OP_FOR:
    case OP_WHILE:
    case OP_IF: plan_control(p, op); return;
    case OP_YIELD: plan_yield(p, op, targets); return;
    case OP_CONDITION:
        close_group(p);
        push_item(p, ITEM_CONTROL, op, NULL);
        return;
    default: break;
    }
    if (all_scalars(e, op)) {
        plan_scalar(p, op);
        return;
    }
    switch (op->code) {
    case OP_STORE: add_sink(p, (sink){.kind = SINK_STORE, .op = op, .v = op->operands[0]}); return;
    case OP_ATOMIC:
        close_group(p);
        if (e->uses[result]) buffer_for(e, result);
        add_sink(p, (sink){.kind = SINK_ATOMIC, .op = op, .v = op->operands[0], .result = result});
        return;
    case OP_ASSERT: add_sink(p, (sink){.kind = SINK_ASSERT, .op = op, .v = op->operands[0]}); return;
    case OP_ASSUME: return; /* states what ref checks; nothing to run */
    case OP_PRINT:
        require_operands(p, op);
        close_group(p);
        push_item(p, ITEM_EFFECT, op, NULL);
        return;
    case OP_REDUCE: {
        int axis = innermost_fold(e, op);
        if (is_place_across(e, op)) {
            require_operands(p, op);
            close_group(p);
            buffer_for(e, result);
            push_item(p, ITEM_FOLD, op, NULL);
            return;
        }
        add_sink(p, (sink){.kind = SINK_REDUCE, .op = op, .v = op->operands[0], .result = result, .fold_axis = axis});
        return;
    }
    case OP_SCAN:
        buffer_for(e, result);
        copy_to(p, op, op->operands[0], result);
        close_group(p);
        push_item(p, ITEM_SCAN, op, NULL);
        return;
    case OP_DOT: plan_dot(p, op); return;
    default: break;
    }
    if (!tile_type_of(e->k, result).rank) {
        add_sink(p, (sink){.kind = SINK_SCALAR, .op = op, .v = op->operands[0], .result = result});
        close_group(p);
        return;
    }
    require_operands(p, op); /* of a reshape */
    for (int r = 0; r < op->result_count; r++)
        if (e->force[op->results[r]] && !tile_is_buffered(e, result))
            add_sink(p, (sink){.kind = SINK_KEEP, .op = op, .v = op->results[r], .result = op->results[r]});
}

/* ---- a block ---- */

/* By value, for one block after the other: a planner leaves `defined_at` at -1, and the others are read only for values
 * of its own block. */
typedef struct plan_space {
    int count;
    int *defined_at, *home_pass, *demand_key, *demand_count, *buffer_of, *tree_depth;
    group **home;
    bool *demand_off;
} plan_space;

static plan_space *space_of(survey *e)
{
    int count = e->k->value_count;
    if (e->plan_space && e->plan_space->count == count) return e->plan_space;
    plan_space *s = ARENA_NEW(e->memory, plan_space);
    s->count = count;
    s->defined_at = ARENA_ARRAY(e->memory, int, count);
    s->home_pass = ARENA_ARRAY(e->memory, int, count);
    s->demand_key = ARENA_ARRAY(e->memory, int, count);
    s->demand_count = ARENA_ARRAY(e->memory, int, count);
    s->buffer_of = ARENA_ARRAY(e->memory, int, count);
    s->tree_depth = ARENA_ARRAY(e->memory, int, count);
    s->home = ARENA_ARRAY(e->memory, group *, count);
    s->demand_off = ARENA_ARRAY(e->memory, bool, count);
    for (int v = 0; v < count; v++) s->defined_at[v] = -1;
    return e->plan_space = s;
}

/* Trees of virtual values are walked by recursion and become one loop body: a value on top of too many others is kept.
 */
static void force_deep(survey *e, const tile_block *b, int *tree_depth)
{
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        int depth = 0;
        for (int k = 0; k < op->operand_count; k++) depth = MAXIMUM(depth, tree_depth[op->operands[k]]);
        for (int r = 0; r < op->result_count; r++) {
            value v = op->results[r];
            bool is_virtual = value_is_virtual(e, v);
            if (is_virtual && depth >= DEEPEST_TREE) e->force[v] = true;
            tree_depth[v] = is_virtual && !e->force[v] ? depth + 1 : 0;
        }
    }
}

plan plan_block(survey *e, tile_block *b, const value *targets)
{
    plan_space *s = space_of(e);
    int count = s->count, buffer_count = e->buffer_count;
    memcpy(s->buffer_of, e->buffer_of, sizeof(int) * (size_t)count);
    force_deep(e, b, s->tree_depth);
    for (;;) {
        planner p = {.e = e, .block = b, .defined_at = s->defined_at, .home = s->home, .home_pass = s->home_pass};
        p.demand_key = s->demand_key;
        p.demand_count = s->demand_count;
        p.demand_off = s->demand_off;
        for (int i = 0; i < b->op_count; i++)
            for (int r = 0; r < b->ops[i]->result_count; r++) {
                value v = b->ops[i]->results[r];
                p.defined_at[v] = i;
                p.home[v] = NULL;
                p.demand_key[v] = p.demand_count[v] = 0;
                p.demand_off[v] = false;
            }
        for (p.position = 0; p.position < b->op_count; p.position++) plan_op(&p, b->ops[p.position], targets);
        close_group(&p);
        if (!p.again) force_repeated(&p);
        for (int i = 0; i < b->op_count; i++)
            for (int r = 0; r < b->ops[i]->result_count; r++) p.defined_at[b->ops[i]->results[r]] = -1;
        if (!p.again) return p.plan;
        memcpy(e->buffer_of, s->buffer_of, sizeof(int) * (size_t)count);
        e->buffer_count = buffer_count;
    }
}
