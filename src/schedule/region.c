/*
 * Plans what reaches beyond one pass: regions and the tiles they carry, products, and the values a block hands on.
 *
 * In: an op and the planner of its block. Out: sinks and items, and buffers shared where a value may take over the
 * buffer of another that nothing reads afterwards, so that carried tiles and accumulators are updated in place.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/plan.h"

#include <string.h>

enum { LIGHT_FOR_REGIONS = 8, SMALL_FOR_LOOPS = 4096 };

static bool loads_are_safe(const survey *e, value v)
{
    if (!value_is_virtual(e, v)) return true;
    const tile_op *op = tile_def(e->k, v);
    if (op->code == OP_LOAD && e->written[op->attr.access.array]) return false;
    for (int i = 0; i < op->operand_count; i++)
        if (!loads_are_safe(e, op->operands[i])) return false;
    return true;
}

static void require_folds(survey *e, value v, const place *at, void *context)
{
    const tile_op *op = tile_def(e->k, alias_root(e, v));
    if (op && op->code == OP_REDUCE) require_buffer(context, alias_root(e, v));
}

static bool has_load(const survey *e, value v)
{
    if (!value_is_virtual(e, v)) return false;
    const tile_op *op = tile_def(e->k, v);
    if (op->code == OP_LOAD) return true;
    for (int i = 0; i < op->operand_count; i++)
        if (has_load(e, op->operands[i])) return true;
    return false;
}

/* On a GPU a small tile from memory that each trip of a loop needs, element by element, waits in registers. */
static bool waits_in_registers(const planner *p, const tile_op *op, value v)
{
    const survey *e = p->e;
    op_class class = ops[op->code].class;
    if (!e->spread || !p->in_loop || class < CLASS_UNARY || class > CLASS_TERNARY || !has_load(e, v)) return false;
    tile_type type = tile_type_of(e->k, v), result = tile_type_of(e->k, op->results[0]);
    int64_t count = 1;
    for (int i = 0; i < type.rank; i++) {
        if (type.dims[i] < 0 || type.dims[i] > SMALL_FOR_LOOPS) return false;
        count *= type.dims[i];
    }
    return count <= SMALL_FOR_LOOPS && tile_shape_same(&type, &result);
}

static void plan_region(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    planner *p = context;
    for (int i = 0; i < op->operand_count; i++) {
        value v = op->operands[i], whole = operand_in_memory(p->e, op, i);
        if (whole && p->defined_at[whole] >= 0) require_buffer(p, whole); /* nobody keeps it later: this block does */
        if (p->defined_at[v] < 0 || !p->e->k->values[v].type.rank) continue;
        if (value_is_virtual(p->e, v) && value_weight(p->e, v) <= LIGHT_FOR_REGIONS && loads_are_safe(p->e, v) &&
            !waits_in_registers(p, op, v))
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
    const survey *e = p->e;
    if (e->uses[v] != 1 || value_is_virtual(e, v)) return false;
    const tile_op *op = tile_def(e->k, v);
    if (!op && owns_arguments(p->block))
        for (int i = 0; i < p->block->arg_count; i++)
            if (p->block->args[i] == v) return true;
    return op && p->defined_at[v] >= 0 && op->code != OP_RESHAPE && op->code != OP_REDUCE;
}

void copy_to(planner *p, tile_op *op, value v, value target)
{
    add_sink(p, (sink){.kind = SINK_COPY, .op = op, .v = v, .result = target});
}

void plan_control(planner *p, tile_op *op)
{
    survey *e = p->e;
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
    p->in_loop = op->code != OP_IF;
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

static void collect_tree(survey *e, value v, const place *at, void *context)
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
    survey *e = p->e;
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

void plan_dot(planner *p, tile_op *op)
{
    survey *e = p->e;
    value result = op->results[0];
    require_operands(p, op);
    for (int i = 0; i < 2; i++) {
        tile_op *load;
        bool swapped;
        if (!dot_operand_is_direct(e, op->operands[i], &load, &swapped)) continue;
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

static void check_yield(survey *e, value v, const place *at, void *context)
{
    yield_check *y = context;
    tile_type type = tile_type_of(e->k, v);
    if (!type.rank || value_is_virtual(e, v) || e->buffer_of[alias_root(e, v)] != y->buffer) return;
    place own = place_own(&type);
    y->reads = true;
    if (!place_same(&own, at, type.rank)) y->off_place = true;
}

/* May the yielded values join the pass that is open? All of them must, since they take effect at once, and what the pass
 * stores may read a target only at the place where it is written. */
static bool yield_joins(planner *p, tile_op *op, const value *targets, const bool *done)
{
    survey *e = p->e;
    if (!p->open || p->open->outer > 0) return false;
    const pass_nest *last = &p->open->passes[p->open->pass_count - 1];
    for (int i = 0; i < op->operand_count; i++) {
        if (done[i]) continue;
        tile_type type = tile_type_of(e->k, op->operands[i]);
        int64_t loops[MAX_RANK];
        int count = loops_of(&type, loops);
        if (count != last->loop_count || memcmp(loops, last->loops, sizeof(int64_t) * (size_t)count)) return false;
        sink s = {.kind = SINK_COPY, .op = op, .v = op->operands[i], .result = targets[i]};
        p->must_close = p->same_pass_only = false;
        p->joining = &s;
        walk_sink(e, &s, check_demand, p);
        if (p->must_close || p->same_pass_only) return false;
        for (int n = 0; n < last->sink_count; n++) {
            yield_check check = {.buffer = e->buffer_of[targets[i]]};
            if (last->sinks[n].kind != SINK_STORE) return false;
            walk_sink(e, &last->sinks[n], check_yield, &check);
            if (check.off_place) return false;
        }
    }
    return true;
}

/* The yielded values take effect at once. Those of one shape share a pass, which reads all before it writes one; a
 * value that reads a target in another way is kept first. */
void plan_yield(planner *p, tile_op *op, const value *targets)
{
    survey *e = p->e;
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
    if (!yield_joins(p, op, targets, done)) close_group(p);
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
