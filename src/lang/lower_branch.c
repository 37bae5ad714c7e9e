/*
 * Branches. In: a condition and two sides. Out: the variables as they are after them.
 *
 * All variables are noted, both sides lowered, and what differs is merged: as results of an `if`, or inside a scalar
 * function that is applied to tiles as selects, where every element takes its own path. A function's result may be
 * unset on one side (the jump flags see to it that nobody looks), and only it may have other bounds on either side.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

/* Variables before a branch. A file may have thousands of both: a term is copied once for all snapshots between two
 * changes of it, and the lists go when the branch is done. */
typedef struct snapshot {
    arena *memory;
    const term **terms;
    bool *set;
    int count;
} snapshot;

static snapshot snapshot_take(walk *w)
{
    snapshot s = {.memory = arena_new(), .count = w->variable_count};
    s.terms = ARENA_ARRAY(s.memory, const term *, s.count + 1);
    s.set = ARENA_ARRAY(s.memory, bool, s.count + 1);
    for (int i = 0; i < s.count; i++) {
        variable *v = w->variables[i];
        if (!v->kept || memcmp(v->kept, &v->now, sizeof(v->now)) != 0) {
            term *copy = ARENA_NEW(w->memory, term);
            memcpy(copy, &v->now, sizeof(*copy));
            v->kept = copy;
        }
        s.terms[i] = v->kept;
        s.set[i] = v->is_set;
    }
    return s;
}

static void snapshot_restore(walk *w, const snapshot *s)
{
    for (int i = 0; i < s->count; i++) {
        variable *v = w->variables[i];
        if (v->kept != s->terms[i] || memcmp(&v->now, s->terms[i], sizeof(v->now)) != 0)
            memcpy(&v->now, s->terms[i], sizeof(v->now));
        v->kept = s->terms[i];
        v->is_set = s->set[i];
    }
}

/* One side of a branch. The rest of a list is guarded by `live`, which is known on either side. */
static void lower_side(walk *w, const ast *body, const ast_list *rest, int first, bool taken)
{
    int symbols = w->symbol_count, variables = w->variable_count;
    if (rest) w->target->live->now = term_of_value(w, build_bool(w, taken));
    if (rest && taken)
        lower_list(w, rest, first);
    else if (body)
        lower_statement(w, body);
    w->symbol_count = symbols;
    w->variable_count = variables;
}

static bool same_bounds(const walk *w, const bound_list *a, const bound_list *b)
{
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (!bounds_have(w, b, &a->items[i])) return false;
    return true;
}

/* Inside an elementwise function: both sides in one block, merged by selects. */
static void branch_by_element(walk *w, value condition, const ast *then_body, const ast *else_body,
                              const ast_list *rest, int first)
{
    value path = w->path, other = build(w, OP_NOT, &condition, 1);
    snapshot before = snapshot_take(w);
    w->path = path ? build2(w, OP_AND, path, condition) : condition;
    lower_side(w, then_body, rest, first, true);
    snapshot yes = snapshot_take(w);
    snapshot_restore(w, &before);
    w->path = path ? build2(w, OP_AND, path, other) : other;
    lower_side(w, else_body, rest, first, false);
    w->path = path;
    for (int i = 0; i < before.count; i++) {
        variable *v = w->variables[i];
        const term *a = yes.terms[i];
        if (!yes.set[i] || (v->is_set && v->now.value == a->value)) continue;
        if (!v->is_set) {
            v->now = *a;
            v->is_set = true;
            continue;
        }
        bool yes_true, no_true;
        if (v->elem == DT_BOOL && bool_known(w, a->value, &yes_true) && bool_known(w, v->now.value, &no_true) &&
            yes_true != no_true) {
            v->now = term_of_value(w, yes_true ? condition : other);
            continue;
        }
        term c = term_of_value(w, condition), out = {.kind = TERM_VALUE, .elem = v->elem};
        if (!shape_join(w, a, &v->now, &out, w->at) || !shape_join(w, &out, &c, &out, w->at)) continue;
        out.value = build_select(w, condition, a->value, v->now.value, 0);
        v->now = out;
    }
    arena_free(before.memory);
    arena_free(yes.memory);
}

typedef struct merge {
    walk *w;
    value condition;
    tile_block *blocks[2];
    value *yields[2];
    int yield_count;
    tile_op *op;
} merge;

static value in_block(walk *w, tile_block *block, const term *t, bool mask, bool filler, dtype elem)
{
    int mark;
    tile_block *outer = block_enter(w, block, &mark);
    value v;
    if (mask)
        v = mask_full(w, t);
    else if (filler) {
        v = build_number(w, (number){0}, elem);
        if (t->rank) v = build_shape(w, OP_BROADCAST, v, term_type(t, elem));
    } else
        v = t->value;
    block_leave(w, outer, mark);
    return v;
}

static value merged(merge *m, value yes, value no)
{
    m->yields[0][m->yield_count] = yes;
    m->yields[1][m->yield_count++] = no;
    value v = tile_result(m->w->k, m->op, tile_type_of(m->w->k, yes));
    value_set_depth(m->w, v, m->w->loop_depth);
    return v;
}

static bool defined_in(const tile_block *b, value v)
{
    for (int i = 0; i < b->arg_count; i++)
        if (b->args[i] == v) return true;
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        for (int k = 0; k < op->result_count; k++)
            if (op->results[k] == v) return true;
        for (int k = 0; k < op->region_count; k++)
            if (defined_in(op->regions[k], v)) return true;
    }
    return false;
}

static bool is_inside(const merge *m, value v)
{
    return v && (defined_in(m->blocks[0], v) || defined_in(m->blocks[1], v));
}

/* Bounds that differ, or that use values which end with the branch, become a mask that is yielded. */
static bool bounds_need_mask(const merge *m, const term *yes, bool yes_set, const term *no, bool no_set)
{
    if (yes_set && no_set && !same_bounds(m->w, &yes->bounds, &no->bounds)) return true;
    const bound_list *list = yes_set ? &yes->bounds : &no->bounds;
    for (int i = 0; i < list->count; i++) {
        const bound *b = &list->items[i];
        if (is_inside(m, b->start) || is_inside(m, b->step) || is_inside(m, b->extent)) return true;
    }
    return false;
}

static bool shape_is_inside(const merge *m, const term *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->axes[i].extent < 0 && is_inside(m, (value)-t->axes[i].extent)) return true;
    return false;
}

static bool same_shape(const term *a, const term *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (!axis_same(&a->axes[i], &b->axes[i])) return false;
    return true;
}

static void merge_variable(merge *m, variable *v, const term *yes, bool yes_set)
{
    walk *w = m->w;
    if (!yes_set && !v->is_set) return;
    bool yes_true, no_true;
    if (yes_set && v->is_set && yes->value == v->now.value) return;
    if (yes_set && v->is_set && v->elem == DT_BOOL && !yes->rank && bool_known(w, yes->value, &yes_true) &&
        bool_known(w, v->now.value, &no_true)) {
        value c = m->condition;
        v->now = term_of_value(w, yes_true == no_true ? build_bool(w, yes_true)
                                  : yes_true          ? c
                                                      : build(w, OP_NOT, &c, 1));
        return;
    }
    const term *full = yes_set ? yes : &v->now;
    term no = v->now, joint = *full;
    bool no_set = v->is_set;
    if (yes_set && no_set && !same_shape(yes, &no)) {
        diagnose(w->d, E303, w->at, "return tiles of one shape", "results of different shapes: %s and %s",
                 shape_text(w, yes), shape_text(w, &no));
        return;
    }
    if (shape_is_inside(m, full)) {
        diagnose(w->d, E310, w->at, "compute the extent before the branch",
                 "a tile of a run-time extent that is known only inside a branch");
        v->is_set = false;
        return;
    }
    value a = in_block(w, m->blocks[0], full, false, !yes_set, v->elem),
          b = in_block(w, m->blocks[1], no_set ? &no : full, false, !no_set, v->elem);
    if (bounds_need_mask(m, yes, yes_set, &no, no_set)) {
        term free = *full; /* a side without a result: anything goes */
        free.bounds = (bound_list){0};
        value mask = merged(m, in_block(w, m->blocks[0], yes_set ? yes : &free, true, false, DT_BOOL),
                            in_block(w, m->blocks[1], no_set ? &no : &free, true, false, DT_BOOL));
        joint.bounds = (bound_list){0};
        bounds_add(w, &joint.bounds, (bound){.kind = BOUND_MASK, .axes = (1u << joint.rank) - 1, .start = mask});
    }
    joint.value = merged(m, a, b);
    v->now = joint;
    v->is_set = true;
    if (v->name) value_name(w, joint.value, v->name);
}

/* Only values that nobody sees. */
static bool does_nothing(const tile_block *b)
{
    for (int i = 0; i < b->op_count; i++)
        if (!ops[b->ops[i]->code].pure) return false;
    return true;
}

void lower_branch(walk *w, value condition, const ast *then_body, const ast *else_body, const ast_list *rest, int first)
{
    bool at_top = w->at_top;
    place at = w->at;
    w->at_top = false;
    if (w->elementwise) {
        branch_by_element(w, condition, then_body, else_body, rest, first);
        w->at_top = at_top;
        return;
    }
    merge m = {.w = w, .condition = condition, .blocks = {tile_block_new(w->k), tile_block_new(w->k)}};
    snapshot before = snapshot_take(w);
    int mark;
    tile_block *outer = block_enter(w, m.blocks[0], &mark);
    lower_side(w, then_body, rest, first, true);
    block_leave(w, outer, mark);
    snapshot yes = snapshot_take(w);
    snapshot_restore(w, &before);
    block_enter(w, m.blocks[1], &mark);
    lower_side(w, else_body, rest, first, false);
    block_leave(w, outer, mark);
    w->at = at;
    w->at_top = at_top;
    m.op = op_make(w, OP_IF, &condition, 1);
    for (int side = 0; side < 2; side++) m.yields[side] = ARENA_ARRAY(before.memory, value, 2 * before.count + 1);
    for (int i = 0; i < before.count; i++) merge_variable(&m, w->variables[i], yes.terms[i], yes.set[i]);
    bool nothing = !m.op->result_count && does_nothing(m.blocks[0]) && does_nothing(m.blocks[1]);
    for (int side = 0; side < 2 && !nothing; side++)
        tile_append(w->k, m.blocks[side], op_make(w, OP_YIELD, m.yields[side], m.yield_count));
    arena_free(before.memory);
    arena_free(yes.memory);
    if (nothing) return;
    m.op->regions[0] = m.blocks[0];
    m.op->regions[1] = m.blocks[1];
    m.op->region_count = 2;
    op_append(w, m.op);
}
