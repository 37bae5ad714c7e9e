/*
 * One walk over a phase, without text. In: a phase of tile IR. Out: the plans of its blocks, a layout for each kind of
 * pass with what its accesses allow, who touches each kept tile where and when, loads that may come before their use, and
 * what only some teams can do (products, scans, prints, asserts).
 *
 * Values are met in the order in which they will be computed, each once at its level (creg without words), because what
 * is met again from memory counts again. Nothing here depends on what layout.c chooses afterwards.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/survey.h"
#include "emit/cuda/gather.h"
#include "emit/cuda/product.h"

static int meet(cnest *n, value v, place at);

static int remember(cnest *n, value v, place at, int level)
{
    cuda_remember(n, v, at, (creg){NULL, level});
    return level;
}

/* ---- accesses and kept tiles ---- */

/* Whose vectors the rows are cut by, should they begin anywhere. */
static void note_row(cnest *n, const tile_op *op)
{
    const struct access *access = &op->attr.access;
    const tile_param *p = &n->e->k->params[access->array];
    pass_layout *l = n->layout;
    int most = 16 / dtypes[p->elem].size_bytes;
    if (!cuda_has_vectors(p)) l->want_shift = MAXIMUM(l->want_shift, most);
    if (l->first_group != n->c->group || l->nested) return;
    if (cuda_has_vectors(p)) {
        l->even |= access->rank > 1;
        return;
    }
    bool widest = !l->lead || most > 16 / dtypes[n->e->k->params[l->lead->attr.access.array].elem].size_bytes;
    if (widest) l->lead = op;
}

/* Does an access differ from row to row, and along each? */
static bool moves_with_rows(const cnest *n, const tile_op *op, const place *at)
{
    bool rows = false, inner = false;
    tile_type type = tile_type_of(n->e->k, op->code == OP_LOAD ? op->results[0] : op->operands[0]);
    for (int axis = 0; axis < type.rank; axis++) {
        if (at->axis[axis] == NO_AXIS || type.dims[axis] == 1) continue;
        rows |= n->role[at->axis[axis]] == ROLE_ROW;
        inner |= n->role[at->axis[axis]] != ROLE_ROW;
    }
    return rows && inner;
}

static access_view meet_access(cnest *n, const tile_op *op, place at)
{
    emitter *e = n->e;
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

static int meet_load(cnest *n, value v, const tile_op *op, place at)
{
    emitter *e = n->e;
    access_view w = meet_access(n, op, at);
    if (w.level != LEVEL_ELEMENT || w.late || !n->has_inner) return w.level;
    int words = MAXIMUM(dtypes[e->k->params[op->attr.access.array].elem].size_bytes / 4, 1);
    if (e->force[v]) {
        n->c->loads[e->pass_number].direct += words;
        n->c->kept[buffer_for(e, v)].loaded_in = e->pass_number;
    } else {
        n->c->loads[e->pass_number].early += words;
    }
    return w.level;
}

/* A kept tile, at this place of the pass. */
static int meet_tile(cnest *n, value v, place at)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, v);
    int number = buffer_for(e, v);
    int64_t loops[MAX_RANK];
    int last = type.rank ? at.axis[type.rank - 1] : NO_AXIS;
    bool across = last != NO_AXIS && n->role[last] != ROLE_VECTOR && !(n->layout && n->layout->row_fast);
    layout_touch(e, number, home_is_here(n, v, &at) ? n->layout : NULL);
    n->c->kept[number].across |= across && loops_of(&type, loops) > 1;
    n->c->kept[number].plain |= home_is_alias(e, v);
    buffer_touch(e, number);
    return tile_level(n, &type, &at);
}

static void touch_elsewhere(emitter *e, int number, const char *why)
{
    layout_touch_elsewhere(e, number, why);
    buffer_touch(e, number);
}

/* Is the scalar known before the loop's body runs, its count aside? */
static bool known_before(const emitter *e, const tile_op *loop, value v)
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
static void note_ahead(cnest *n, value v, const tile_op *load, const access_view *w)
{
    emitter *e = n->e;
    const tile_op *loop = n->c->loop;
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
    if (follows) n->c->kept[buffer_for(e, v)].ahead = w->back ? 1 : w->width;
}

/* ---- values ---- */

static void see_block(emitter *e, tile_block *b, const value *targets);

static int meet_operands(cnest *n, const tile_op *op, place at)
{
    int level = LEVEL_GROUP;
    for (int i = 0; i < op->operand_count; i++) {
        int of = meet(n, op->operands[i], place_of_operand(n->e, op, i, &at));
        level = MAXIMUM(level, of);
    }
    return level;
}

static int meet_map(cnest *n, const tile_op *op, place at)
{
    int level = meet_operands(n, op, at);
    for (int r = 0; r < op->result_count; r++) remember(n, op->results[r], at, level);
    see_block(n->e, op->regions[0], NULL);
    return level;
}

/* exponent * factor or exponent / factor, where the exponent's own scale goes into the factor; -1: something else. */
static int meet_scaled(cnest *n, value v, const tile_op *op, place at)
{
    if (!online_is_scaled(n, v, op)) return -1;
    if (meet(n, op->operands[1], place_of_operand(n->e, op, 1, &at)) > LEVEL_ROW) return -1;
    return meet_tile(n, op->operands[0], place_of_operand(n->e, op, 0, &at));
}

static int meet_elementwise(cnest *n, value v, const tile_op *op, place at)
{
    int tanh, scaled;
    place_test test;
    if (is_one_plus_tanh(n->e, op, &tanh)) {
        place inner = place_of_operand(n->e, op, tanh, &at);
        const tile_op *of = tile_def(n->e->k, op->operands[tanh]);
        return meet(n, of->operands[0], place_of_operand(n->e, of, 0, &inner));
    }
    if ((scaled = meet_scaled(n, v, op, at)) >= 0) return scaled;
    if (place_test_look(n, op, at, &test)) return axis_level(n, test.axis);
    return meet_operands(n, op, at);
}

/* What it is computed from; even if it is kept. */
static int meet_inside(cnest *n, value v, place at)
{
    const tile_op *op = tile_def(n->e->k, v);
    int axis;
    switch (op->code) {
    case OP_IOTA:
    case OP_BOUND:
        axis = at.axis[op->attr.index];
        return remember(n, v, at, axis == NO_AXIS ? LEVEL_GROUP : axis_level(n, axis));
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE: return remember(n, v, at, meet(n, op->operands[0], place_of_operand(n->e, op, 0, &at)));
    case OP_LOAD: return remember(n, v, at, meet_load(n, v, op, at));
    case OP_MAP: return meet_map(n, op, at);
    default: return remember(n, v, at, meet_elementwise(n, v, op, at));
    }
}

static int meet(cnest *n, value v, place at)
{
    if (!n->e->k->values[v].type.rank) return LEVEL_GROUP;
    const cmemo *met = cuda_met(n, v, &at);
    if (met) return met->result.level;
    return value_is_virtual(n->e, v) ? meet_inside(n, v, at) : remember(n, v, at, meet_tile(n, v, at));
}

/* ---- passes ---- */

static void meet_sink(cnest *n, const sink *s)
{
    tile_type type = tile_type_of(n->e->k, s->v);
    place at = place_own(&type);
    if (s->kind != SINK_KEEP) {
        meet(n, cuda_stored_value(n->e, s), at);
        return;
    }
    const tile_op *op = tile_def(n->e->k, s->v);
    if (op->code == OP_LOAD) {
        access_view w = meet_access(n, op, at);
        note_ahead(n, s->v, op, &w);
    }
    meet_inside(n, s->v, at);
}

static void leave_sink(cnest *n, const sink *s)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, s->v);
    place at = place_own(&type);
    switch (s->kind) {
    case SINK_STORE:
        meet_access(n, s->op, at);
        n->c->stores_rows |= n->has_inner;
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

static void end_sink(cnest *n, const sink *s)
{
    emitter *e = n->e;
    if (s->kind == SINK_ASSERT) e->has_assert = true;
    if (s->kind != SINK_REDUCE || !tile_type_of(e->k, s->result).rank) return;
    place at = cuda_result_place(e, s);
    remember(n, s->result, at, LEVEL_ROW);
    if (!e->force[s->result]) return;
    bool inner = n->has_inner;
    n->has_inner = false;
    meet_tile(n, s->result, at);
    n->has_inner = inner;
}

static void see_pass(cnest *n, unsigned rows, bool fast)
{
    cuda_state *c = n->c;
    const pass_nest *pass = n->pass;
    cuda_take_layout(n, layout_note(n->e, pass->loops, pass->loop_count, rows, fast));
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        c->weight = MAXIMUM(c->weight, sink_weight(n->e, s));
        c->any_fold |= n->has_inner && (s->kind == SINK_REDUCE || s->kind == SINK_ASSERT);
    }
    n->e->pass_number++;
    windows_find(n);
    for (int i = 0; i < pass->sink_count; i++) meet_sink(n, &pass->sinks[i]);
    for (int i = 0; i < pass->sink_count; i++) leave_sink(n, &pass->sinks[i]);
    cuda_forget(n, LEVEL_ROW);
    for (int i = 0; i < pass->sink_count; i++) end_sink(n, &pass->sinks[i]);
}

static void see_group(emitter *e, const group *g)
{
    cnest n = {.e = e, .c = e->cuda, .group = g};
    bool column_fold;
    unsigned rows = cuda_rows_of(e, g, &column_fold);
    n.c->group++;
    for (int p = 0; p < g->pass_count; p++) {
        pass_layout *before = n.layout;
        n.pass = &g->passes[p];
        see_pass(&n, rows, cuda_is_fast(n.pass, rows, column_fold));
        if (before && rows) layout_same_rows(before, n.layout);
    }
}

/* ---- items ---- */

static void see_scalar(emitter *e, const tile_op *op)
{
    if (op->code == OP_MAP) see_block(e, op->regions[0], NULL);
    if (op->code == OP_ATOMIC && e->uses[op->results[0]]) e->cuda->needs_broadcast = true;
    if (op->code == OP_ASSERT) e->has_assert = true;
}

/* The room of all products of a phase is as large as the largest of them needs. */
static void see_room(emitter *e, const tile_op *dot)
{
    if (gather_is_wanted(e, dot)) {
        e->cuda->gathers = true;
        product_room(e, gather_choose(e, dot, ASSUMED_THREADS).room_bytes);
    } else {
        product p;
        if (product_choose(e, dot, ASSUMED_THREADS, &p)) product_room(e, p.room_bytes);
    }
    if (!e->dot_room) return;
    touch_elsewhere(e, e->dot_room, "the room of dot");
    e->cuda->kept[e->dot_room].pinned = true;
}

static void see_dot(emitter *e, const tile_op *op)
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
    if (!e->cuda->resident[result]) touch_elsewhere(e, buffer_for(e, result), "dot");
    e->cuda->has_dot = true;
    see_room(e, op);
}

static void see_loop_of_products(emitter *e, const tile_op *loop, const tile_op *dot)
{
    int number = buffer_for(e, loop->regions[0]->args[1]);
    e->buffer_of[dot->results[0]] = number;
    touch_elsewhere(e, number, "dot");
    e->cuda->has_dot = true;
    see_room(e, dot);
}

static void see_sums(emitter *e, value result, value argument, dtype t)
{
    e->cuda->resident[result] = "";
    touch_elsewhere(e, buffer_for(e, argument), "dot");
}

static void see_for(emitter *e, const tile_op *op)
{
    cuda_state *c = e->cuda;
    const tile_op *around = c->loop;
    product_each_resident(e, op, ASSUMED_THREADS, see_sums);
    int begin = e->time;
    c->loop = op;
    see_block(e, op->regions[0], op->regions[0]->args + 1);
    buffer_loop_ends(e, begin);
    c->loop = around;
    product_each_resident(e, op, ASSUMED_THREADS, see_sums);
}

static void see_while(emitter *e, const tile_op *op)
{
    cuda_state *c = e->cuda;
    const tile_op *around = c->loop;
    int begin = e->time;
    c->loop = NULL;
    see_block(e, op->regions[0], NULL);
    see_block(e, op->regions[1], op->regions[1]->args);
    buffer_loop_ends(e, begin);
    c->loop = around;
}

static void see_if(emitter *e, const tile_op *op)
{
    cuda_state *c = e->cuda;
    const tile_op *around = c->loop;
    c->loop = NULL;
    for (int r = 0; r < op->region_count; r++) {
        bool empty = op->regions[r]->op_count == 1 && !op->result_count;
        if (r && empty) break;
        see_block(e, op->regions[r], op->results);
    }
    c->loop = around;
}

static void see_scan(emitter *e, const tile_op *op)
{
    tile_type type = tile_type_of(e->k, op->results[0]);
    int number = buffer_for(e, op->results[0]);
    int64_t loops[MAX_RANK];
    e->cuda->has_scan = true;
    if (!cuda_scans_row(e, op, loops)) {
        touch_elsewhere(e, number, "scan");
        return;
    }
    layout_touch(e, number, layout_note(e, loops, loops_of(&type, loops), 0, false));
    buffer_touch(e, number);
}

static void see_print(emitter *e, const tile_op *op)
{
    for (int i = 0; i < op->operand_count; i++)
        if (tile_type_of(e->k, op->operands[i]).rank) touch_elsewhere(e, buffer_for(e, op->operands[i]), "print");
    e->prints = true;
}

static void see_item(emitter *e, const item *it, bool last)
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
        see_group(e, cuda_fold_group(e, it->op, &f));
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

const block_plan *survey_plan(const cuda_state *c, const tile_block *b)
{
    for (int i = 0; i < c->plan_count; i++)
        if (c->plans[i]->block == b) return c->plans[i];
    return NULL;
}

/* A region that is run for elements of several places is planned once. */
static const block_plan *plan_of(emitter *e, tile_block *b, const value *targets)
{
    cuda_state *c = e->cuda;
    const block_plan *known = survey_plan(c, b);
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

static void see_block(emitter *e, tile_block *b, const value *targets)
{
    cuda_state *c = e->cuda;
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

void survey_phase(emitter *e, tile_block *b)
{
    see_block(e, b, NULL);
}
