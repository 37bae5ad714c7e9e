/*
 * Plans a block: which tile values are kept, which sinks share loops, and the order of all that runs.
 *
 * In: a block. Out: items in order of execution. One walk over the ops adds sinks to the open group while that changes
 * nothing: equal loops, results of the group used only at their own place, no load moved past a store of its array.
 * What turns out to need a buffer (a load that a store would overtake, a costly value that two passes compute, a value
 * that a region needs) is forced and the walk starts again: it ends because values are only ever added.
 * SPDX-License-Identifier: MIT
 */
#include "emit/nest.h"

#include <string.h>

enum { HEAVY = 10, HEAVY_IN_LONG_ROWS = 40, LIGHT_FOR_REGIONS = 8 };

typedef struct memory_event {
    tile_op *op; /* a LOAD, STORE or ATOMIC */
    int position;
    group *group; /* NULL: inside a region or a scalar op */
    int pass;
    bool own_place; /* loads: asked for at its own place */
} memory_event;

typedef struct planner {
    emitter *e;
    tile_block *block;
    plan plan;
    group *open;
    int position;
    bool again;
    int *defined_at; /* value to position in this block, -1 elsewhere */
    group **home;    /* value to the group that computes it (folds, kept values) */
    int *home_pass;
    memory_event *writes, *reads; /* reads: of the open group */
    int write_count, write_capacity, read_count, read_capacity;
    int *demand_key, *demand_count; /* in how many passes a virtual value is computed */
    sink *joining;
    int least_pass;
    bool must_close, same_pass_only;
    int key, group_key, key_outer;
} planner;

static bool writes_memory(const tile_op *op)
{
    return op->code == OP_STORE || op->code == OP_ATOMIC;
}

static void force_value(planner *p, value v)
{
    if (p->e->force[v]) return;
    p->e->force[v] = true;
    if (tile_def(p->e->k, v)->code != OP_REDUCE) p->again = true;
}

/* A value that ends up in memory: forced if it is virtual or the result of a fold. */
static void require_buffer(planner *p, value v)
{
    const tile_op *op = tile_def(p->e->k, v);
    if (!p->e->k->values[v].type.rank) return;
    if (value_is_virtual(p->e, v) || (op && op->code == OP_REDUCE)) force_value(p, v);
}

static void push_item(planner *p, item_kind kind, tile_op *op, group *g)
{
    item next = {kind, op, g};
    ARENA_PUSH(p->e->memory, p->plan.items, p->plan.count, p->plan.capacity, next);
}

static void close_group(planner *p)
{
    if (!p->open) return;
    if (p->open->outer < 0) p->open->outer = 0;
    push_item(p, ITEM_GROUP, NULL, p->open);
    p->open = NULL;
    p->read_count = 0;
}

/* The value whose buffer v shares: reshapes are other views of the same elements. */
static value alias_root(const emitter *e, value v)
{
    while (e->k->values[v].type.rank && tile_def(e->k, v) && tile_def(e->k, v)->code == OP_RESHAPE &&
           tile_is_buffered(e, v))
        v = tile_def(e->k, v)->operands[0];
    return v;
}

/* What joining the open group would break. */
static void check_demand(emitter *e, value v, const place *at, void *context)
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
                       access_same(e, w->op, op) && place_same(&own, at, type.rank);
        if (in_step)
            p->same_pass_only = true;
        else
            force_value(p, v);
    }
}

static void note_demand(emitter *e, value v, const place *at, void *context)
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

/* May the store come after what the open group reads and writes? */
static bool store_fits(const planner *p, const tile_op *store)
{
    for (int i = 0; i < p->read_count; i++) {
        const memory_event *r = &p->reads[i];
        if (r->op->attr.access.array == store->attr.access.array && !(r->own_place && access_same(p->e, r->op, store)))
            return false;
    }
    for (int i = 0; i < p->write_count; i++) {
        const memory_event *w = &p->writes[i];
        if (w->group == p->open && w->op->attr.access.array == store->attr.access.array &&
            !access_same(p->e, w->op, store))
            return false;
    }
    return true;
}

/* A store that computes from its own array at other places must not see what it has written: such loads come first. */
static void check_own_loads(emitter *e, value v, const place *at, void *context)
{
    planner *p = context;
    const tile_op *op = tile_def(e->k, v), *store = p->joining->op;
    if (!value_is_virtual(e, v) || op->code != OP_LOAD || op->attr.access.array != store->attr.access.array) return;
    tile_type type = tile_type_of(e->k, v);
    place own = place_own(&type);
    if (p->defined_at[v] >= 0 && !(place_same(&own, at, type.rank) && access_same(e, op, store))) force_value(p, v);
}

static pass_nest *add_pass(planner *p, const int64_t *loops, int count)
{
    pass_nest next = {.loop_count = count};
    memcpy(next.loops, loops, sizeof(int64_t) * (size_t)count);
    ARENA_PUSH(p->e->memory, p->open->passes, p->open->pass_count, p->open->pass_capacity, next);
    return &p->open->passes[p->open->pass_count - 1];
}

/* The pass of the open group that can take the sink; NULL: it needs a group of its own. */
static pass_nest *pass_for(planner *p, sink *s, const int64_t *loops, int count)
{
    group *g = p->open;
    if (!g) return NULL;
    pass_nest *last = &g->passes[g->pass_count - 1];
    bool equal = last->loop_count == count && !memcmp(last->loops, loops, sizeof(int64_t) * (size_t)count);
    if (s->kind == SINK_REDUCE) {
        if (s->fold_axis == NO_AXIS) return NULL;
        if (g->outer < 0 && equal) g->outer = s->fold_axis;
        if (g->outer != s->fold_axis) return NULL;
    }
    if (g->outer < 0 && !equal) return NULL;
    p->must_close = p->same_pass_only = false;
    p->least_pass = 0;
    p->joining = s;
    walk_sink(p->e, s, check_demand, p);
    if (p->must_close) return NULL;
    if ((s->kind == SINK_STORE || s->kind == SINK_ATOMIC) && !store_fits(p, s->op)) return NULL;
    if (equal && p->least_pass < g->pass_count) return last;
    if (p->same_pass_only) return NULL;
    int outer = MAXIMUM(g->outer, 0);
    if (count < outer || memcmp(g->passes[0].loops, loops, sizeof(int64_t) * (size_t)outer)) return NULL;
    if (g->passes[0].loop_count < outer) return NULL;
    return add_pass(p, loops, count);
}

static void add_sink(planner *p, sink s)
{
    emitter *e = p->e;
    tile_type type = tile_type_of(e->k, s.v);
    int64_t loops[MAX_RANK];
    int count = loops_of(&type, loops);
    p->joining = &s;
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
static int innermost_fold(const emitter *e, const tile_op *op)
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

/* ---- regions ---- */

static bool loads_are_safe(const emitter *e, value v)
{
    if (!value_is_virtual(e, v)) return true;
    const tile_op *op = tile_def(e->k, v);
    if (op->code == OP_LOAD && e->written[op->attr.access.array]) return false;
    for (int i = 0; i < op->operand_count; i++)
        if (!loads_are_safe(e, op->operands[i])) return false;
    return true;
}

static void require_folds(emitter *e, value v, const place *at, void *context)
{
    const tile_op *op = tile_def(e->k, alias_root(e, v));
    if (op && op->code == OP_REDUCE) require_buffer(context, alias_root(e, v));
}

static void plan_region(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    planner *p = context;
    for (int i = 0; i < op->operand_count; i++) {
        value v = op->operands[i];
        if (p->defined_at[v] < 0 || !p->e->k->values[v].type.rank) continue;
        if (value_is_virtual(p->e, v) && value_weight(p->e, v) <= LIGHT_FOR_REGIONS && loads_are_safe(p->e, v))
            walk_tree(p->e, v, place_own(&p->e->k->values[v].type), require_folds, p);
        else
            require_buffer(p, v);
    }
    if (writes_memory(op)) {
        memory_event event = {op, p->position, NULL, 0, false};
        ARENA_PUSH(p->e->memory, p->writes, p->write_count, p->write_capacity, event);
    }
}

/* The condition of a `while` sees the same buffers as its body: they are not its own to overwrite. */
static bool owns_arguments(const tile_block *b)
{
    return b->op_count && b->ops[b->op_count - 1]->code != OP_CONDITION;
}

/* May another value take over the buffer of v, because nothing reads it afterwards? */
static bool buffer_is_free(const planner *p, value v)
{
    const emitter *e = p->e;
    if (e->uses[v] != 1 || value_is_virtual(e, v)) return false;
    const tile_op *op = tile_def(e->k, v);
    if (!op && owns_arguments(p->block))
        for (int i = 0; i < p->block->arg_count; i++)
            if (p->block->args[i] == v) return true;
    return op && p->defined_at[v] >= 0 && op->code != OP_RESHAPE && op->code != OP_REDUCE;
}

static void copy_to(planner *p, tile_op *op, value v, value target)
{
    add_sink(p, (sink){.kind = SINK_COPY, .op = op, .v = v, .result = target});
}

static void plan_control(planner *p, tile_op *op)
{
    emitter *e = p->e;
    int first = op->code == OP_FOR ? 3 : 0;
    for (int r = 0; r < op->result_count; r++) {
        value result = op->results[r];
        if (!tile_type_of(e->k, result).rank) continue;
        if (op->code == OP_IF) {
            buffer_for(e, result);
            continue;
        }
        value start = op->operands[first + r];
        int argument = op->code == OP_FOR ? r + 1 : r;
        value inside = op->regions[0]->args[argument];
        bool taken = buffer_is_free(p, start);
        if (taken) {
            if (p->open && p->home[start] == p->open) close_group(p);
            e->buffer_of[inside] = buffer_for(e, start);
        } else {
            buffer_for(e, inside);
        }
        e->buffer_of[result] = e->buffer_of[inside];
        if (op->code == OP_WHILE) e->buffer_of[op->regions[1]->args[argument]] = e->buffer_of[inside];
        if (!taken) copy_to(p, op, start, inside);
    }
    close_group(p);
    for (int r = 0; r < op->region_count; r++) tile_walk((tile_kernel *)e->k, op->regions[r], plan_region, p);
    push_item(p, ITEM_CONTROL, op, NULL);
}

/* ---- dot: the accumulator in place ---- */

typedef struct tree_uses {
    planner *p;
    value target;
    const tile_op **users;
    int count, capacity;
    bool off_place;
} tree_uses;

static void collect_tree(emitter *e, value v, const place *at, void *context)
{
    tree_uses *t = context;
    if (v == t->target) {
        tile_type type = tile_type_of(e->k, v);
        place own = place_own(&type);
        if (!place_same(&own, at, type.rank)) t->off_place = true;
    }
    if (value_is_virtual(e, v)) ARENA_PUSH(e->memory, t->users, t->count, t->capacity, tile_def(e->k, v));
}

static int uses_in_tree(const tree_uses *t, value v)
{
    int count = 0;
    for (int i = 0; i < t->count; i++)
        for (int j = 0; j < t->users[i]->operand_count; j++) count += t->users[i]->operands[j] == v;
    return count;
}

/* The argument of this block whose buffer `v`, computed element by element, may overwrite; 0 if there is none. */
static value overwritten_by(planner *p, value v)
{
    emitter *e = p->e;
    tile_type type = tile_type_of(e->k, v);
    for (int i = 0; i < p->block->arg_count && owns_arguments(p->block); i++) {
        value argument = p->block->args[i];
        tile_type of_argument = tile_type_of(e->k, argument);
        if (!type.rank || !tile_type_same(&type, &of_argument)) continue;
        tree_uses tree = {.p = p, .target = argument};
        walk_tree(e, v, place_own(&type), collect_tree, &tree);
        if (tree.off_place || !uses_in_tree(&tree, argument) || uses_in_tree(&tree, argument) != e->uses[argument])
            continue;
        bool closed = e->uses[v] == 1;
        for (int n = 0; n < tree.count && closed; n++) {
            value of_tree = tree.users[n]->results[0];
            /* Trees that do not hold the argument may be used elsewhere; asking for all is simpler and loses little. */
            if (of_tree != v && uses_in_tree(&tree, of_tree) != e->uses[of_tree] && uses_in_tree(&tree, argument))
                closed = !value_weight(e, of_tree) || tile_def(e->k, of_tree)->code == OP_BOUND;
        }
        if (closed) return argument;
    }
    return 0;
}

static void plan_dot(planner *p, tile_op *op)
{
    emitter *e = p->e;
    value result = op->results[0];
    for (int i = 0; i < 2; i++) {
        tile_op *load;
        bool swapped;
        value v = op->operands[i];
        if (!dot_operand_is_direct(e, v, &load, &swapped)) {
            tile_op *def = tile_def(e->k, v);
            if (def && def->code == OP_PERMUTE && value_is_virtual(e, v)) v = def->operands[0]; /* read across */
            require_buffer(p, v);
            continue;
        }
        for (int w = 0; w < p->write_count; w++)
            if (p->defined_at[load->results[0]] >= 0 && p->writes[w].position > p->defined_at[load->results[0]] &&
                p->writes[w].op->attr.access.array == load->attr.access.array)
                force_value(p, load->results[0]);
    }
    if (op->operand_count > 2) {
        value sum = op->operands[2], over = value_is_virtual(e, sum) ? overwritten_by(p, sum) : 0;
        if (buffer_is_free(p, sum)) {
            e->buffer_of[result] = buffer_for(e, sum);
        } else {
            if (over && e->buffer_of[over])
                e->buffer_of[result] = e->buffer_of[over];
            else
                buffer_for(e, result);
            copy_to(p, op, sum, result);
        }
    } else {
        buffer_for(e, result);
    }
    close_group(p);
    push_item(p, ITEM_DOT, op, NULL);
}

/* ---- the values that a block hands on ---- */

typedef struct yield_check {
    int buffer;
    bool reads, off_place;
} yield_check;

static void check_yield(emitter *e, value v, const place *at, void *context)
{
    yield_check *y = context;
    tile_type type = tile_type_of(e->k, v);
    if (!type.rank || value_is_virtual(e, v) || e->buffer_of[v] != y->buffer) return;
    place own = place_own(&type);
    y->reads = true;
    if (!place_same(&own, at, type.rank)) y->off_place = true;
}

/* The yielded values take effect at once. Those of one shape share a pass, which reads all before it writes one; a
 * value that reads a target in another way is kept first. */
static void plan_yield(planner *p, tile_op *op, const value *targets)
{
    emitter *e = p->e;
    close_group(p);
    bool *done = ARENA_ARRAY(e->memory, bool, op->operand_count + 1);
    for (int i = 0; i < op->operand_count; i++) {
        value v = op->operands[i];
        tile_type type = tile_type_of(e->k, v);
        done[i] = !type.rank || (e->buffer_of[v] && e->buffer_of[v] == e->buffer_of[targets[i]]);
        for (int j = 0; j < op->operand_count && !done[i]; j++) {
            tile_type other = tile_type_of(e->k, targets[j]);
            if (!other.rank) continue;
            yield_check check = {.buffer = e->buffer_of[targets[j]]};
            walk_tree(e, v, place_own(&type), check_yield, &check);
            if (check.reads && (check.off_place || !tile_shape_same(&type, &other))) require_buffer(p, v);
        }
    }
    for (int i = 0; i < op->operand_count; i++) {
        if (done[i]) continue;
        tile_type type = tile_type_of(e->k, op->operands[i]);
        for (int j = i; j < op->operand_count;
             j++) { /* those of one shape together: all are read before one is written */
            tile_type other = tile_type_of(e->k, op->operands[j]);
            if (done[j] || !tile_shape_same(&type, &other)) continue;
            done[j] = true;
            copy_to(p, op, op->operands[j], targets[j]);
        }
        close_group(p);
    }
    push_item(p, ITEM_CONTROL, op, NULL);
}

/* ---- one op ---- */

static bool depends_on_open(const planner *p, const tile_op *op)
{
    if (!p->open) return false;
    for (int i = 0; i < op->operand_count; i++)
        if (p->home[op->operands[i]] == p->open) return true;
    return false;
}

static bool all_scalars(const emitter *e, const tile_op *op)
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
    emitter *e = p->e;
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
        for (int i = 0; i < op->operand_count; i++) require_buffer(p, op->operands[i]);
        close_group(p);
        push_item(p, ITEM_EFFECT, op, NULL);
        return;
    case OP_REDUCE: {
        int axis = innermost_fold(e, op);
        bool position = op->attr.fold == FOLD_ARGMAX || op->attr.fold == FOLD_ARGMIN;
        if (position && axis == NO_AXIS) {
            require_buffer(p, op->operands[0]);
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
    if (tile_is_buffered(e, result)) require_buffer(p, op->operands[0]); /* a reshape */
    for (int r = 0; r < op->result_count; r++)
        if (e->force[op->results[r]] && !tile_is_buffered(e, result))
            add_sink(p, (sink){.kind = SINK_KEEP, .op = op, .v = op->results[r], .result = op->results[r]});
}

/* ---- what is computed twice ---- */

static bool row_is_long(const emitter *e, const tile_type *type)
{
    for (int i = 0; i < type->rank; i++) {
        const tile_op *op = type->dims[i] < 0 ? tile_def(e->k, (value)-type->dims[i]) : NULL;
        if (op && op->code == OP_ARG && e->k->params[op->attr.index].facts.size_class >= 4) return true;
    }
    return false;
}

static void count_demand(emitter *e, value v, const place *at, void *context)
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
    unsigned along = 0;
    for (int i = 0; i < type.rank; i++)
        if (at->axis[i] != NO_AXIS) along |= 1u << at->axis[i];
    if (level && along != (1u << level) - 1)
        p->demand_count[v]++; /* again for each step of a loop it does not follow */
}

static void force_repeated(planner *p)
{
    emitter *e = p->e;
    int key = 0;
    for (int i = 0; i < p->plan.count; i++) {
        group *g = p->plan.items[i].group;
        if (!g) continue;
        for (int n = 0; n < g->pass_count; n++) {
            p->key = ++key;
            p->group_key = i + 1;
            p->key_outer = g->outer;
            for (int s = 0; s < g->passes[n].sink_count; s++) walk_sink(e, &g->passes[n].sinks[s], count_demand, p);
        }
    }
    for (int i = p->block->op_count - 1; i >= 0; i--) {
        const tile_op *op = p->block->ops[i];
        value v = op->result_count ? op->results[0] : 0;
        if (!v || p->demand_count[v] < 2) continue;
        int weight = value_weight(e, v);
        if (weight < (row_is_long(e, &e->k->values[v].type) ? HEAVY_IN_LONG_ROWS : HEAVY)) continue;
        force_value(p, v);
        return; /* what it is made of may no longer be computed twice */
    }
}

plan plan_block(emitter *e, tile_block *b, const value *targets)
{
    int count = e->k->value_count;
    int *buffer_of = ARENA_ARRAY(e->memory, int, count);
    memcpy(buffer_of, e->buffer_of, sizeof(int) * (size_t)count);
    int buffer_count = e->buffer_count;
    for (;;) {
        planner p = {.e = e, .block = b};
        p.defined_at = ARENA_ARRAY(e->memory, int, count);
        p.home = ARENA_ARRAY(e->memory, group *, count);
        p.home_pass = ARENA_ARRAY(e->memory, int, count);
        p.demand_key = ARENA_ARRAY(e->memory, int, count);
        p.demand_count = ARENA_ARRAY(e->memory, int, count);
        for (int v = 0; v < count; v++) p.defined_at[v] = -1;
        for (int i = 0; i < b->op_count; i++)
            for (int r = 0; r < b->ops[i]->result_count; r++) p.defined_at[b->ops[i]->results[r]] = i;
        for (p.position = 0; p.position < b->op_count; p.position++) plan_op(&p, b->ops[p.position], targets);
        close_group(&p);
        if (!p.again) force_repeated(&p);
        if (!p.again) return p.plan;
        memcpy(e->buffer_of, buffer_of, sizeof(int) * (size_t)count);
        e->buffer_count = buffer_count;
    }
}
