/*
 * One walk over a phase for a GPU, without text. In: a phase of tile IR. Out: the plans of its blocks, a layout for each kind of
 * pass with what its accesses allow, who touches each kept tile where and when, loads that may come before their use, and
 * what only some teams can do (products, scans, prints, asserts).
 *
 * Values are met in the order in which they will be computed, each once at its level (no words), because what
 * is met again from memory counts again. Nothing here depends on what teams.c chooses afterwards.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/view.h"
#include "schedule/product.h"

static int meet(nest_view *n, value v, place at);

static int remember(nest_view *n, value v, place at, int level)
{
    view_remember(n, v, at, level, NULL);
    return level;
}

/* ---- accesses and kept tiles ---- */

/* Is the place of the first element known before the group that reads it? Indices of a tile are read inside. */
static bool begins_before_group(const tile_op *op)
{
    for (int axis = 0; axis < op->attr.access.rank; axis++)
        if (op->attr.access.kind[axis] == INDEX_TILE) return false;
    return true;
}

/* Whose vectors the rows are cut by, should they begin anywhere. */
static void note_row(nest_view *n, const tile_op *op)
{
    const struct access *access = &op->attr.access;
    const tile_param *p = &n->survey->k->params[access->array];
    pass_layout *l = n->layout;
    int most = 16 / dtypes[p->elem].size_bytes;
    if (!has_vectors(p)) l->want_shift = MAXIMUM(l->want_shift, most);
    if (l->first_group != n->spread->group || l->nested) return;
    if (has_vectors(p)) {
        l->even |= access->rank > 1;
        return;
    }
    if (!begins_before_group(op)) return;
    bool widest = !l->lead || most > 16 / dtypes[n->survey->k->params[l->lead->attr.access.array].elem].size_bytes;
    if (widest) l->lead = op;
}

/* Does an access differ from row to row, and along each? */
static bool moves_with_rows(const nest_view *n, const tile_op *op, const place *at)
{
    bool rows = false, inner = false;
    tile_type type = tile_type_of(n->survey->k, op->code == OP_LOAD ? op->results[0] : op->operands[0]);
    for (int axis = 0; axis < type.rank; axis++) {
        if (at->axis[axis] == NO_AXIS || type.dims[axis] == 1) continue;
        rows |= n->role[at->axis[axis]] == ROLE_ROW;
        inner |= n->role[at->axis[axis]] != ROLE_ROW;
    }
    return rows && inner;
}

static access_view meet_access(nest_view *n, const tile_op *op, place at)
{
    survey *e = n->survey;
    const struct access *access = &op->attr.access;
    bool digits = e->k->params[access->array].digits != NULL;
    for (int axis = 0, operand = access->first_index; axis < access->rank; axis++) {
        digit d;
        bool slice = access->kind[axis] == INDEX_SLICE;
        if (!slice && !digits && !access_is_digit(n, op, axis, operand, at, &d))
            meet(n, op->operands[operand], place_of_operand(e, op, operand, &at));
        operand += slice ? 2 : 1;
    }
    pass_layout *l = n->layout;
    if (l && access_is_row(n, op, at)) note_row(n, op);
    for (int i = op->operand_count - access->mask_count; i < op->operand_count; i++)
        meet(n, op->operands[i], place_of_operand(e, op, i, &at));
    access_view w = access_look(n, op, at);
    if (!l) return w;
    if (w.digits) l->digits = MINIMUM(l->digits ? l->digits : 64, w.digits);
    l->along_rows += w.along_rows;
    l->along_inner += w.along_inner;
    l->of_rows += moves_with_rows(n, op, &at);
    if (w.level != LEVEL_ELEMENT) return w;
    bool spreads = w.width == 1 && w.side_by_side && store_may_spread(n, op);
    int window = op->code == OP_LOAD && w.width == 1 ? window_vector(n, op, &at) : 0;
    l->want_vector = MAXIMUM(l->want_vector, w.width);
    l->want_window = MAXIMUM(l->want_window, window);
    if (!spreads) *(window > 1 ? &l->windows : w.width > 1 ? &l->wide : &l->narrow) += 1;
    if (op->code == OP_STORE && w.width == 1) *(spreads ? &l->spread_stores : &l->narrow_stores) += 1;
    return w;
}

static int meet_load(nest_view *n, value v, const tile_op *op, place at)
{
    survey *e = n->survey;
    access_view w = meet_access(n, op, at);
    if (w.level == LEVEL_ELEMENT) n->spread->loads[e->pass_number].places++;
    if (w.level != LEVEL_ELEMENT || w.late || !n->has_inner) return w.level;
    int words = MAXIMUM(dtypes[e->k->params[op->attr.access.array].elem].size_bytes / 4, 1);
    if (e->force[v]) {
        n->spread->loads[e->pass_number].direct += words;
        n->spread->kept[buffer_for(e, v)].loaded_in = e->pass_number;
    } else {
        n->spread->loads[e->pass_number].early += words;
    }
    return w.level;
}

/* A kept tile, at this place of the pass. */
static int meet_tile(nest_view *n, value v, place at)
{
    survey *e = n->survey;
    tile_type type = tile_type_of(e->k, v);
    int number = buffer_for(e, v);
    int64_t loops[MAX_RANK];
    int last = type.rank ? at.axis[type.rank - 1] : NO_AXIS;
    bool across = last != NO_AXIS && n->role[last] != ROLE_VECTOR && !(n->layout && n->layout->row_fast);
    layout_touch(e, number, home_is_here(n, v, &at) ? n->layout : NULL);
    n->spread->kept[number].across |= across && loops_of(&type, loops) > 1;
    n->spread->kept[number].plain |= home_is_alias(e, v);
    buffer_use(e, number);
    return tile_level(n, &type, &at);
}

static void touch_elsewhere(survey *e, int number, const char *why)
{
    layout_touch_elsewhere(e, number, why);
    buffer_use(e, number);
}

/* Is the scalar known before the loop's body runs, its count aside? */
static bool known_before(const survey *e, const tile_op *loop, value v)
{
    const tile_block *body = loop->regions[0];
    const tile_op *op = tile_def(e->k, v);
    if (op && op->code == OP_CONST) return true;
    for (int i = 1; i < body->arg_count; i++)
        if (body->args[i] == v) return false;
    for (int i = 0; op && i < body->op_count; i++)
        if (body->ops[i] == op) return false;
    return true;
}

/* A load to be kept whose address follows from the count of the loop around it may come a trip ahead. */
static void note_ahead(nest_view *n, value v, const tile_op *load, const access_view *w)
{
    survey *e = n->survey;
    const tile_op *loop = n->spread->loop;
    const struct access *access = &load->attr.access;
    if (!loop || loop->flags & F_DOWN || n->has_rows || access->mask_count) return;
    if (e->written[access->array] || w->tested || w->late || w->level != LEVEL_ELEMENT) return;
    for (int i = 0; i < access->rank; i++)
        if (access->kind[i] == INDEX_TILE) return;
    bool follows = false;
    for (int i = access->first_index; i < load->operand_count; i++) {
        if (!known_before(e, loop, load->operands[i])) return;
        follows |= load->operands[i] == loop->regions[0]->args[0];
    }
    if (follows) n->spread->kept[buffer_for(e, v)].ahead = w->back ? 1 : w->width;
}

/* ---- values ---- */

static void see_block(survey *e, tile_block *b, const value *targets);

static int meet_operands(nest_view *n, const tile_op *op, place at)
{
    int level = LEVEL_GROUP;
    for (int i = 0; i < op->operand_count; i++) {
        int of = meet(n, op->operands[i], place_of_operand(n->survey, op, i, &at));
        level = MAXIMUM(level, of);
    }
    return level;
}

static int meet_map(nest_view *n, const tile_op *op, place at)
{
    int level = meet_operands(n, op, at);
    for (int r = 0; r < op->result_count; r++) remember(n, op->results[r], at, level);
    see_block(n->survey, op->regions[0], NULL);
    return level;
}

/* exponent * factor or exponent / factor, where the exponent's own scale goes into the factor; -1: something else. */
static int meet_scaled(nest_view *n, value v, const tile_op *op, place at)
{
    if (!online_is_scaled(n, v, op)) return -1;
    if (meet(n, op->operands[1], place_of_operand(n->survey, op, 1, &at)) > LEVEL_ROW) return -1;
    return meet_tile(n, op->operands[0], place_of_operand(n->survey, op, 0, &at));
}

static int meet_elementwise(nest_view *n, value v, const tile_op *op, place at)
{
    int tanh, scaled;
    place_test test;
    if (is_one_plus_tanh(n->survey, op, &tanh)) {
        place inner = place_of_operand(n->survey, op, tanh, &at);
        const tile_op *of = tile_def(n->survey->k, op->operands[tanh]);
        return meet(n, of->operands[0], place_of_operand(n->survey, of, 0, &inner));
    }
    if ((scaled = meet_scaled(n, v, op, at)) >= 0) return scaled;
    if (place_test_look(n, op, at, &test)) return axis_level(n, test.axis);
    return meet_operands(n, op, at);
}

/* What it is computed from; even if it is kept. */
static int meet_inside(nest_view *n, value v, place at)
{
    const tile_op *op = tile_def(n->survey->k, v);
    int axis;
    switch (op->code) {
    case OP_IOTA:
    case OP_BOUND:
        axis = at.axis[op->attr.index];
        return remember(n, v, at, axis == NO_AXIS ? LEVEL_GROUP : axis_level(n, axis));
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE: return remember(n, v, at, meet(n, op->operands[0], place_of_operand(n->survey, op, 0, &at)));
    case OP_LOAD: return remember(n, v, at, meet_load(n, v, op, at));
    case OP_MAP: return meet_map(n, op, at);
    default: return remember(n, v, at, meet_elementwise(n, v, op, at));
    }
}

static int meet(nest_view *n, value v, place at)
{
    if (!n->survey->k->values[v].type.rank) return LEVEL_GROUP;
    const met_value *met = view_met(n, v, &at);
    if (met) return met->level;
    return value_is_virtual(n->survey, v) ? meet_inside(n, v, at) : remember(n, v, at, meet_tile(n, v, at));
}

/* ---- passes ---- */

static void meet_sink(nest_view *n, const sink *s)
{
    tile_type type = tile_type_of(n->survey->k, s->v);
    place at = place_own(&type);
    if (s->kind != SINK_KEEP) {
        meet(n, sink_stored_value(n->survey, s), at);
        return;
    }
    const tile_op *op = tile_def(n->survey->k, s->v);
    if (op->code == OP_LOAD) {
        access_view w = meet_access(n, op, at);
        note_ahead(n, s->v, op, &w);
    }
    meet_inside(n, s->v, at);
}

static void leave_sink(nest_view *n, const sink *s)
{
    survey *e = n->survey;
    tile_type type = tile_type_of(e->k, s->v);
    place at = place_own(&type);
    switch (s->kind) {
    case SINK_STORE:
        meet_access(n, s->op, at);
        n->spread->stores_rows |= n->has_inner;
        return;
    case SINK_KEEP:
    case SINK_COPY: meet_tile(n, s->result, at); return;
    case SINK_ATOMIC:
        if (s->op->attr.atomic == ATOMIC_CAS) meet(n, s->op->operands[1], place_of_operand(e, s->op, 1, &at));
        meet_access(n, s->op, at);
        if (e->uses[s->result]) meet_tile(n, s->result, at);
        return;
    case SINK_ASSERT:
        for (int i = 1; i < s->op->operand_count; i++) meet(n, s->op->operands[i], place_of_operand(e, s->op, i, &at));
        return;
    case SINK_REDUCE:
    case SINK_SCALAR: return;
    }
}

static void end_sink(nest_view *n, const sink *s)
{
    survey *e = n->survey;
    if (s->kind == SINK_ASSERT) e->has_assert = true;
    if (s->kind != SINK_REDUCE || !tile_type_of(e->k, s->result).rank) return;
    place at = fold_result_place(e, s);
    remember(n, s->result, at, LEVEL_ROW);
    if (!e->force[s->result]) return;
    bool inner = n->has_inner;
    n->has_inner = false;
    meet_tile(n, s->result, at);
    n->has_inner = inner;
}

static void see_pass(nest_view *n, unsigned rows, bool fast)
{
    spread *c = n->spread;
    const pass_nest *pass = n->pass;
    view_take_layout(n, layout_note(n->survey, pass->loops, pass->loop_count, rows, fast));
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        c->weight = MAXIMUM(c->weight, sink_weight(n->survey, s));
        c->any_fold |= n->has_inner && (s->kind == SINK_REDUCE || s->kind == SINK_ASSERT);
    }
    n->survey->pass_number++;
    windows_find(n);
    for (int i = 0; i < pass->sink_count; i++) meet_sink(n, &pass->sinks[i]);
    for (int i = 0; i < pass->sink_count; i++) leave_sink(n, &pass->sinks[i]);
    view_forget(n, LEVEL_ROW);
    for (int i = 0; i < pass->sink_count; i++) end_sink(n, &pass->sinks[i]);
}

static void see_group(survey *e, const group *g)
{
    nest_view n = {.survey = e, .spread = e->spread, .group = g};
    bool column_fold;
    unsigned rows = group_rows(e, g, &column_fold);
    n.spread->group++;
    for (int p = 0; p < g->pass_count; p++) {
        pass_layout *before = n.layout;
        n.pass = &g->passes[p];
        see_pass(&n, rows, pass_is_fast(n.pass, rows, column_fold));
        if (before && rows) layout_same_rows(before, n.layout);
    }
}

/* ---- items ---- */

static void see_scalar(survey *e, const tile_op *op)
{
    if (op->code == OP_MAP) see_block(e, op->regions[0], NULL);
    if (op->code == OP_ATOMIC && e->uses[op->results[0]]) e->spread->needs_broadcast = true;
    if (op->code == OP_ASSERT) e->has_assert = true;
}

/* The room of all products of a phase is as large as the largest of them needs. */
static void see_room(survey *e, const tile_op *dot)
{
    if (gather_is_wanted(e, dot)) {
        e->spread->gathers = true;
        product_room(e, gather_choose(e, dot, ASSUMED_THREADS).room_bytes);
    } else {
        product p;
        if (product_choose(e, dot, ASSUMED_THREADS, &p)) product_room(e, p.room_bytes);
    }
    if (!e->dot_room) return;
    touch_elsewhere(e, e->dot_room, "the room of dot");
    e->spread->kept[e->dot_room].pinned = true;
}

static void see_dot(survey *e, const tile_op *op)
{
    value result = op->results[0];
    for (int i = 0; i < 2; i++) {
        tile_op *load;
        bool swapped;
        value v = op->operands[i];
        if (dot_operand_is_direct(e, v, &load, &swapped)) continue;
        const tile_op *def = tile_def(e->k, v);
        if (def && def->code == OP_PERMUTE && value_is_virtual(e, v)) v = def->operands[0];
        touch_elsewhere(e, buffer_for(e, v), "dot");
    }
    if (!e->spread->stays[result]) touch_elsewhere(e, buffer_for(e, result), "dot");
    e->spread->has_dot = true;
    see_room(e, op);
}

static void see_loop_of_products(survey *e, const tile_op *loop, const tile_op *dot)
{
    int number = buffer_for(e, loop->regions[0]->args[1]);
    e->buffer_of[dot->results[0]] = number;
    touch_elsewhere(e, number, "dot");
    e->spread->has_dot = true;
    see_room(e, dot);
}

static void see_sums(void *context, value result, value argument, dtype t)
{
    survey *e = context;
    e->spread->stays[result] = true;
    touch_elsewhere(e, buffer_for(e, argument), "dot");
}

static void see_for(survey *e, const tile_op *op)
{
    spread *c = e->spread;
    const tile_op *around = c->loop;
    product_each_resident(e, op, ASSUMED_THREADS, see_sums, e);
    int begin = e->time;
    c->loop = op;
    see_block(e, op->regions[0], op->regions[0]->args + 1);
    buffer_loop_ends(e, begin);
    c->loop = around;
    product_each_resident(e, op, ASSUMED_THREADS, see_sums, e);
}

static void see_while(survey *e, const tile_op *op)
{
    spread *c = e->spread;
    const tile_op *around = c->loop;
    int begin = e->time;
    c->loop = NULL;
    see_block(e, op->regions[0], NULL);
    see_block(e, op->regions[1], op->regions[1]->args);
    buffer_loop_ends(e, begin);
    c->loop = around;
}

static void see_if(survey *e, const tile_op *op)
{
    spread *c = e->spread;
    const tile_op *around = c->loop;
    c->loop = NULL;
    for (int r = 0; r < op->region_count; r++) {
        bool empty = op->regions[r]->op_count == 1 && !op->result_count;
        if (r && empty) break;
        see_block(e, op->regions[r], op->results);
    }
    c->loop = around;
}

static void see_scan(survey *e, const tile_op *op)
{
    tile_type type = tile_type_of(e->k, op->results[0]);
    int number = buffer_for(e, op->results[0]);
    int64_t loops[MAX_RANK];
    e->spread->has_scan = true;
    if (!scan_is_row(e, op, loops)) {
        touch_elsewhere(e, number, "scan");
        return;
    }
    layout_touch(e, number, layout_note(e, loops, loops_of(&type, loops), 0, false));
    buffer_use(e, number);
}

static void see_print(survey *e, const tile_op *op)
{
    for (int i = 0; i < op->operand_count; i++)
        if (tile_type_of(e->k, op->operands[i]).rank) touch_elsewhere(e, buffer_for(e, op->operands[i]), "print");
    e->prints = true;
}

static void see_item(survey *e, const item *it, bool last)
{
    const tile_op *dot;
    switch (it->kind) {
    case ITEM_SCALAR: see_scalar(e, it->op); break;
    case ITEM_GROUP:
        if (last || !loop_starts_at_zero(e, it)) see_group(e, it->group);
        break;
    case ITEM_DOT: see_dot(e, it->op); break;
    case ITEM_SCAN: see_scan(e, it->op); break;
    case ITEM_FOLD: {
        fold_group f;
        see_group(e, fold_group_of(e, it->op, &f));
        break;
    }
    case ITEM_EFFECT: see_print(e, it->op); break;
    case ITEM_CONTROL:
        dot = loop_is_product(e, it->op);
        if (dot)
            see_loop_of_products(e, it->op, dot);
        else if (it->op->code == OP_FOR)
            see_for(e, it->op);
        else if (it->op->code == OP_WHILE)
            see_while(e, it->op);
        else if (it->op->code == OP_IF)
            see_if(e, it->op);
        break;
    }
}

const block_plan *spread_plan(const spread *c, const tile_block *b)
{
    for (int i = 0; i < c->plan_count; i++)
        if (c->plans[i]->block == b) return c->plans[i];
    return NULL;
}

/* A region that is run for elements of several places is planned once. */
static const block_plan *plan_of(survey *e, tile_block *b, const value *targets)
{
    spread *c = e->spread;
    const block_plan *known = spread_plan(c, b);
    if (known) return known;
    block_plan *p = ARENA_NEW(e->memory, block_plan);
    p->block = b;
    online_mark(e, b);
    p->plan = plan_block(e, b, targets);
    if (!online_check(e, &p->plan)) p->plan = plan_block(e, b, targets);
    p->online = c->online;
    p->online_count = c->online_count;
    ARENA_PUSH(e->memory, c->plans, c->plan_count, c->plan_capacity, p);
    layout_know_buffers(e);
    return p;
}

static void see_block(survey *e, tile_block *b, const value *targets)
{
    spread *c = e->spread;
    online *outer = c->online;
    int outer_count = c->online_count;
    c->nesting++;
    const block_plan *p = plan_of(e, b, targets);
    c->online = p->online;
    c->online_count = p->online_count;
    for (int i = 0; i < p->plan.count; i++) {
        e->time++;
        see_item(e, &p->plan.items[i], i + 1 == p->plan.count);
    }
    c->nesting--;
    c->online = outer;
    c->online_count = outer_count;
}

static void find_positions(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    spread *c = context;
    bool position = op->code == OP_REDUCE && (op->attr.fold == FOLD_ARGMAX || op->attr.fold == FOLD_ARGMIN);
    if (position) c->has_position = true;
}

static void count_writes(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    survey *e = context;
    if (op->code == OP_STORE || op->code == OP_ATOMIC) e->written[op->attr.access.array] = true;
}

static void mark_products(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    if (op->code == OP_DOT) product_mark(context, op);
}

static int count_ops(const tile_block *b)
{
    int count = b->op_count;
    for (int i = 0; i < b->op_count; i++)
        for (int r = 0; r < b->ops[i]->region_count; r++) count += count_ops(b->ops[i]->regions[r]);
    return count;
}

spread *survey_spread(survey *e, int phase, const sched_machine *machine, const spread *before)
{
    tile_kernel *k = (tile_kernel *)e->k;
    tile_block *body = k->phases[phase];
    spread *c = ARENA_NEW(e->memory, spread);
    *c = (spread){.machine = *machine, .before = before, .team = {.kind = TEAM_BLOCK, .row_param = -1}};
    c->kept = ARENA_ARRAY(e->memory, kept, k->value_count + 16);
    c->stays = ARENA_ARRAY(e->memory, bool, k->value_count);
    /* Passes: at most one for each op, and again for each value that is kept. */
    c->loads = arena_alloc(e->memory, sizeof(*c->loads) * (size_t)(2 * count_ops(body) + 2 * k->value_count));
    e->spread = c;
    survey_open(e, phase);
    tile_walk(k, body, find_positions, c);
    if (before) tile_walk(k, k->phases[phase - 1], count_writes, e); /* in this launch */
    tile_walk(k, body, mark_products, e);
    see_block(e, body, NULL);
    c->product_room = e->dot_room;
    return c;
}
