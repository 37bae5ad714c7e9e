/*
 * Groups of passes as nodes. In: a group from schedule/plan.c, and what was chosen for its layouts and homes. Out: for each
 * pass the values that it computes, in order and each once at its level, then what it writes, then its folds over threads.
 *
 * Each pass evaluates all its sinks for one position before it writes anything, so a carried tile can be replaced by a
 * function of itself. A value is a node when it is first met at its place; a kept tile is read from its home. Whether
 * chunks and elements are tested, and how, is decided here, once for the pass.
 * SPDX-License-Identifier: MIT
 */
#include "loops/spread_build.h"

#include <string.h>

static int build_value(pass_builder *n, value v, place at);

static const place *keep_place(spread_builder *b, place at)
{
    place *kept = ARENA_NEW(b->memory, place);
    *kept = at;
    return kept;
}

static loop_node *add_value(pass_builder *n, loop_code code, value v, place at, int level)
{
    loop_node *node = spread_add(n->b, code, tile_def(n->b->survey->k, v));
    node->operand = v;
    node->at = keep_place(n->b, at);
    node->number[0] = level;
    return node;
}

static int remember(pass_builder *n, value v, place at, int level)
{
    view_remember(&n->view, v, at, level, NULL);
    return level;
}

/* ---- accesses ---- */

/* Indices and masks that are tiles. */
static void build_indices(pass_builder *n, const tile_op *op, place at)
{
    survey *e = n->b->survey;
    const struct access *access = &op->attr.access;
    bool digits = e->k->params[access->array].digits != NULL;
    for (int axis = 0, operand = access->first_index; axis < access->rank; axis++) {
        digit d;
        bool slice = access->kind[axis] == INDEX_SLICE;
        if (!slice && !digits && !access_is_digit(&n->view, op, axis, operand, at, &d))
            build_value(n, op->operands[operand], place_of_operand(e, op, operand, &at));
        operand += slice ? 2 : 1;
    }
    for (int i = op->operand_count - access->mask_count; i < op->operand_count; i++)
        build_value(n, op->operands[i], place_of_operand(e, op, i, &at));
}

bool loops_store_spreads(const nest_view *view, const loop_pass *pass, const tile_op *op)
{
    return pass && store_may_spread(view, op) && view->layout->spreads && !pass->tests_chunks &&
           !pass->tests_elements && view->spread->team.threads;
}

static access_view build_access(pass_builder *n, const tile_op *op, place at)
{
    build_indices(n, op, at);
    access_view w = access_look(&n->view, op, at);
    if (w.width == 1 && w.side_by_side && loops_store_spreads(&n->view, n->pass, op))
        touch_by_many(n->b, op);
    else
        touch_access(n, op, at);
    return w;
}

void spread_access(spread_builder *b, const tile_op *op)
{
    pass_builder n = {
        .b = b, .view = {.survey = b->survey, .spread = b->spread}, .leads = b->spread->team.threads != 1};
    loop_node *node = spread_add(b,
                                 op->code == OP_LOAD    ? LOOP_LOAD
                                 : op->code == OP_STORE ? LOOP_STORE
                                                        : LOOP_ATOMIC,
                                 op);
    loop_node **after = b->tail;
    build_access(&n, op, place_nowhere());
    CHECK(b->tail == after); /* its indices are scalars */
    touches_commit(b, node);
}

/* ---- values ---- */

static bool is_in_registers(const pass_builder *n, value v)
{
    return n->b->spread->kept[buffer_for(n->b->survey, v)].kind == HOME_REGISTERS;
}

/* A kept tile from its home, as it was written. */
static int read_kept(pass_builder *n, value v, place at)
{
    tile_type type = tile_type_of(n->b->survey->k, v);
    if (is_in_registers(n, v)) return LEVEL_ELEMENT;
    touch_buffer(n->b, buffer_for(n->b->survey, v), false);
    return tile_level(&n->view, &type, &at);
}

static int build_operands(pass_builder *n, const tile_op *op, place at)
{
    int level = LEVEL_GROUP;
    for (int i = 0; i < op->operand_count; i++) {
        int of = build_value(n, op->operands[i], place_of_operand(n->b->survey, op, i, &at));
        level = MAXIMUM(level, of);
    }
    return level;
}

/* A region of scalars, run for each element. What the team has open is neither waited for inside it nor forgotten. */
static int build_map(pass_builder *n, value v, const tile_op *op, place at)
{
    spread_builder *b = n->b;
    int level = build_operands(n, op, at);
    for (int r = 0; r < op->result_count; r++) remember(n, op->results[r], at, level);
    loop_node *node = add_value(n, LOOP_MAP, v, at, level), **after = b->tail;
    const touches open = b->open, now = b->now;
    const bool around = b->in_map;
    b->open = b->now = (touches){0};
    b->in_map = true;
    b->tail = &node->body;
    spread_block(b, op->regions[0]);
    CHECK(!b->open.count && !b->now.count);
    b->open = open;
    b->now = now;
    b->in_map = around;
    b->tail = after;
    return level;
}

static int build_load(pass_builder *n, const tile_op *op, place at)
{
    int64_t offset;
    if (!n->pass || !n->pass->windows || !window_of(&n->view, op, &at, &offset)) return build_access(n, op, at).level;
    touch_access(n, op, at);
    return LEVEL_ELEMENT;
}

/* The load whose elements outside have the other value of this select already. */
static bool window_fills(const pass_builder *n, const tile_op *select, place at)
{
    survey *e = n->b->survey;
    const tile_op *load = n->pass && n->pass->windows ? window_padded_load(e, select) : NULL;
    int64_t offset;
    if (!load) return false;
    place of = place_of_operand(e, select, 1, &at);
    return window_of(&n->view, load, &of, &offset) != NULL;
}

/* (scalar + small) / constant and its remainder, which places behind reshapes are made of: those of 64 bits once for all, of
 * what is left of the scalar and the small numbers those of 32. NULL: it is something else, or the sum alone is kept. */
static const loop_element *split_quotient(const pass_builder *n, value v, const tile_op *op, place at)
{
    const int64_t small = 1 << 30, large = (int64_t)1 << 60;
    const survey *e = n->b->survey;
    if ((op->code != OP_DIV && op->code != OP_MOD) || tile_type_of(e->k, v).elem != DT_I64 || !e->facts) return NULL;
    const tile_op *sum = tile_def(e->k, op->operands[0]);
    integer_fact by = facts_of(e->facts, op->operands[1]), of = facts_of(e->facts, op->operands[0]);
    if (!sum || sum->code != OP_ADD || by.low != by.high || by.low <= 0 || by.low >= small || of.high <= INT32_MAX)
        return NULL;
    for (int side = 0; side < 2; side++) {
        value whole = sum->operands[side], part = sum->operands[!side];
        const tile_op *spread = tile_def(e->k, whole);
        if (spread && spread->code == OP_BROADCAST) whole = spread->operands[0];
        integer_fact x = facts_of(e->facts, whole), rest = facts_of(e->facts, part);
        if (tile_type_of(e->k, whole).rank || x.low < 0 || x.high > large || rest.low < 0 || rest.high >= small)
            continue;
        place inner = place_of_operand(e, op, 0, &at), own = place_of_operand(e, sum, !side, &inner);
        if (tile_type_of(e->k, part).rank && !view_met(&n->view, part, &own)) continue;
        loop_element *out = ARENA_NEW(n->b->memory, loop_element);
        *out = (loop_element){.x = whole, .below = part, .at = keep_place(n->b, own), .factor = (double)by.low};
        return out;
    }
    return NULL;
}

/* What it is computed from; how is left in `how`. */
static int build_elementwise(pass_builder *n, value v, const tile_op *op, place at, loop_node *how)
{
    survey *e = n->b->survey;
    int tanh;
    place_test test;
    if (is_one_plus_tanh(e, op, &tanh)) {
        place inner = place_of_operand(e, op, tanh, &at);
        const tile_op *of = tile_def(e->k, op->operands[tanh]);
        how->number[1] = LOOPS_ONE_PLUS_TANH;
        return build_value(n, of->operands[0], place_of_operand(e, of, 0, &inner));
    }
    if (online_is_scaled(&n->view, v, op) &&
        build_value(n, op->operands[1], place_of_operand(e, op, 1, &at)) <= LEVEL_ROW) {
        how->number[1] = LOOPS_SCALED;
        return read_kept(n, op->operands[0], place_of_operand(e, op, 0, &at));
    }
    if (place_test_look(&n->view, op, at, &test)) {
        how->number[1] = LOOPS_PLACE_TEST;
        return axis_level(&n->view, test.axis);
    }
    if (window_fills(n, op, at)) {
        how->number[1] = LOOPS_PADDED;
        return build_value(n, op->operands[1], place_of_operand(e, op, 1, &at));
    }
    int level = build_operands(n, op, at);
    how->element = split_quotient(n, v, op, at);
    if (how->element) how->number[1] = LOOPS_SPLIT_QUOTIENT;
    return level;
}

/* What it is computed from, then itself; even if it is kept. */
static int build_inside(pass_builder *n, value v, place at)
{
    survey *e = n->b->survey;
    const tile_op *op = tile_def(e->k, v);
    int axis, level;
    loop_node how = {.number = {0, LOOPS_ELEMENT}};
    switch (op->code) {
    case OP_IOTA:
    case OP_BOUND:
        axis = at.axis[op->attr.index];
        level = axis == NO_AXIS ? LEVEL_GROUP : axis_level(&n->view, axis);
        break;
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE: level = build_value(n, op->operands[0], place_of_operand(e, op, 0, &at)); break;
    case OP_LOAD: level = build_load(n, op, at); break;
    case OP_MAP: return build_map(n, v, op, at);
    default: level = build_elementwise(n, v, op, at, &how); break;
    }
    loop_node *node = add_value(n, op->code == OP_LOAD ? LOOP_LOAD : LOOP_LET, v, at, level);
    node->number[1] = how.number[1];
    node->element = how.element;
    return remember(n, v, at, level);
}

static int build_value(pass_builder *n, value v, place at)
{
    survey *e = n->b->survey;
    if (!e->k->values[v].type.rank) return LEVEL_GROUP;
    const met_value *met = view_met(&n->view, v, &at);
    if (met) return met->level;
    if (value_is_virtual(e, v)) return build_inside(n, v, at);
    int level = read_kept(n, v, at);
    add_value(n, LOOP_READ, v, at, level);
    return remember(n, v, at, level);
}

/* ---- sinks ---- */

static loop_node *add_sink(pass_builder *n, loop_code code, const sink *s)
{
    loop_node *node = spread_add(n->b, code, s->op);
    node->sink = s;
    node->operand = s->result;
    return node;
}

/* Is a fold taken by whole words of a kept tile of 16-bit floats? */
static bool goes_by_pairs(const pass_builder *n, const sink *s)
{
    survey *e = n->b->survey;
    if (s->kind != SINK_REDUCE) return false;
    const tile_op *op = tile_def(e->k, s->v);
    value v = op && op->code == OP_CONVERT && value_is_virtual(e, s->v) ? op->operands[0] : s->v;
    tile_type type = tile_type_of(e->k, v);
    fold_kind fold = s->op->attr.fold;
    if ((fold != FOLD_MAX && fold != FOLD_MIN) || n->b->spread->machine.arch < 80) return false;
    if ((type.elem != DT_F16 && type.elem != DT_BF16) || !type.rank || value_is_virtual(e, v)) return false;
    if (!n->view.has_inner || n->pass->tests_elements || (n->pass->tests_chunks && !n->pass->predicates)) return false;
    int number = buffer_for(e, v);
    return home_is_opened(e, number) && n->b->spread->kept[number].layout == n->view.layout &&
           n->view.layout->vector > 1;
}

/* All that a sink takes; true: it is already where it should be. */
static bool build_sink_value(pass_builder *n, const sink *s)
{
    spread_builder *b = n->b;
    survey *e = b->survey;
    tile_type type = tile_type_of(e->k, s->v);
    place at = place_own(&type);
    const tile_op *op = tile_def(e->k, s->v);
    if (goes_by_pairs(n, s)) {
        add_sink(n, LOOP_FOLD_PAIRS, s);
        return true;
    }
    if (s->kind == SINK_KEEP && op->code == OP_LOAD && n->view.has_inner && is_in_registers(n, s->v)) {
        access_view w = build_access(n, op, at);
        bool direct = w.level == LEVEL_ELEMENT && !w.late, ahead = direct && home_comes_ahead(e, s->v);
        if (direct) {
            loop_node *node = add_sink(n, LOOP_FETCH, s);
            node->at = keep_place(b, at);
            node->number[1] = ahead;
            if (ahead) ARENA_PUSH(b->memory, b->ahead, b->ahead_count, b->ahead_capacity, s->v);
            if (!home_is_opened(e, buffer_for(e, s->v))) remember(n, s->v, at, LEVEL_ELEMENT);
            return true;
        }
        add_value(n, LOOP_LOAD, s->v, at, w.level);
        remember(n, s->v, at, w.level);
    } else if (s->kind == SINK_KEEP) {
        build_inside(n, s->v, at);
    } else {
        build_value(n, sink_stored_value(e, s), at);
    }
    add_sink(n, LOOP_HOLD, s);
    return false;
}

/* Does the pass write elements of this array more than once? Then element by element: a vector is stored after all elements. */
static bool writes_again(const pass_builder *n, const sink *s)
{
    for (int i = 0; i < n->view.pass->sink_count; i++) {
        const sink *o = &n->view.pass->sinks[i];
        if (o != s && (o->kind == SINK_STORE || o->kind == SINK_ATOMIC) &&
            o->op->attr.access.array == s->op->attr.access.array && !accesses_apart(n->b->survey, o->op, s->op))
            return true;
    }
    return false;
}

static void build_write(pass_builder *n, const sink *s)
{
    survey *e = n->b->survey;
    tile_type type = tile_type_of(e->k, s->v);
    place at = place_own(&type);
    switch (s->kind) {
    case SINK_STORE:
        build_access(n, s->op, at);
        add_sink(n, LOOP_STORE, s)->number[0] = writes_again(n, s);
        return;
    case SINK_KEEP:
    case SINK_COPY:
        touch_buffer(n->b, buffer_for(e, s->result), true);
        add_sink(n, LOOP_HOME, s);
        return;
    case SINK_ATOMIC:
        if (s->op->attr.atomic == ATOMIC_CAS) build_value(n, s->op->operands[1], place_of_operand(e, s->op, 1, &at));
        build_access(n, s->op, at);
        if (e->uses[s->result]) touch_buffer(n->b, buffer_for(e, s->result), true);
        add_sink(n, LOOP_ATOMIC, s);
        return;
    case SINK_ASSERT:
        for (int i = 1; i < s->op->operand_count; i++)
            build_value(n, s->op->operands[i], place_of_operand(e, s->op, i, &at));
        add_sink(n, LOOP_TEST, s);
        return;
    case SINK_REDUCE: add_sink(n, LOOP_FOLD, s); return;
    case SINK_SCALAR: add_sink(n, LOOP_SCALAR, s); return;
    }
}

static void end_fold(pass_builder *n, const sink *s, bool joined)
{
    spread_builder *b = n->b;
    add_sink(n, LOOP_FOLD_END, s)->number[0] = joined;
    if (s->kind == SINK_ASSERT) {
        touches_join(b, &b->left, &b->open);
        touches_join(b, &b->left, &b->now);
        return;
    }
    if (!tile_type_of(b->survey->k, s->result).rank) return;
    remember(n, s->result, fold_result_place(b->survey, s), LEVEL_ROW);
    if (b->survey->force[s->result]) touch_buffer(b, buffer_for(b->survey, s->result), true);
}

/* Is it a fold of numbers over all threads of a block? */
static bool is_exchange(const pass_builder *n, const sink *s)
{
    const pass_layout *l = n->view.layout;
    if (s->kind != SINK_REDUCE || s->op->attr.fold == FOLD_ARGMAX || s->op->attr.fold == FOLD_ARGMIN) return false;
    return n->view.has_inner && n->b->spread->team.kind == TEAM_BLOCK && !l->row_fast && !l->inner_threads &&
           !online_find(n->b->spread, s->result);
}

static dtype register_type(const pass_builder *n, const sink *s)
{
    dtype t = tile_type_of(n->b->survey->k, s->v).elem;
    return dtype_is_narrow(t) ? DT_F32 : t;
}

/* Folds of one kind share an exchange: as many as a warp has room for. joined: by sink. */
static void join_folds(pass_builder *n, bool *joined)
{
    enum { ROOM_OF_WARP = 16 };
    const pass_nest *pass = n->view.pass;
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        if (joined[i] || !is_exchange(n, s)) continue;
        int most = ROOM_OF_WARP / MAXIMUM(dtypes[tile_type_of(n->b->survey->k, s->v).elem].size_bytes, 4), found = 0;
        int *members = ARENA_ARRAY(n->b->memory, int, ROOM_OF_WARP);
        for (int k = i; k < pass->sink_count && found < most; k++) {
            const sink *o = &pass->sinks[k];
            if (!joined[k] && is_exchange(n, o) && register_type(n, o) == register_type(n, s) &&
                o->op->attr.fold == s->op->attr.fold)
                members[found++] = k;
        }
        if (found < 2) continue;
        loop_node *node = spread_add(n->b, LOOP_FOLD_JOIN, NULL);
        node->number[0] = found;
        node->sinks = members;
        for (int k = 0; k < found; k++) joined[members[k]] = true;
    }
}

/* ---- passes ---- */

static void find_map(survey *e, value v, const place *at, void *context)
{
    const tile_op *op = tile_def(e->k, v);
    (void)at;
    if (op && op->code == OP_MAP) *(bool *)context = true;
}

/* Bodies that are worth a branch around them. Others run for positions that do not exist, and do nothing there. A `map`
 * always is: it may loop, and need not end for such positions. */
static bool is_heavy(const pass_builder *n)
{
    enum { HEAVY_BODY = 150 };
    int weight = 0;
    bool maps = false;
    for (int i = 0; i < n->view.pass->sink_count; i++) {
        weight += sink_weight(n->b->survey, &n->view.pass->sinks[i]);
        walk_sink(n->b->survey, &n->view.pass->sinks[i], find_map, &maps);
    }
    return maps || weight > HEAVY_BODY;
}

static void choose_tests(pass_builder *n)
{
    survey *e = n->b->survey;
    const pass_layout *l = n->view.layout;
    loop_pass *p = n->pass;
    layout_tests(e, l, n->group->tests_rows, &p->tests_chunks, &p->tests_elements);
    p->unroll = layout_unroll(e, l);
    p->predicates = p->tests_chunks && (!p->tests_elements || l->shifted) && !is_heavy(n);
    p->loose = l->shifted && p->predicates;
    p->loads = n->b->spread->loads[e->pass_number].early || n->b->spread->loads[e->pass_number].direct;
    if (l->vector == 1 || p->tests_elements || l->shifted) p->windows = NULL; /* they are taken by vectors */
}

static void build_pass(pass_builder *n)
{
    const pass_nest *pass = n->view.pass;
    bool *done = ARENA_ARRAY(n->b->memory, bool, pass->sink_count + 1);
    for (int i = 0; i < pass->sink_count; i++)
        if (pass->sinks[i].kind == SINK_REDUCE || pass->sinks[i].kind == SINK_ASSERT)
            add_sink(n, LOOP_FOLD_BEGIN, &pass->sinks[i]);
    windows_find(&n->view);
    n->pass->windows = n->view.windows;
    if (n->view.has_inner)
        choose_tests(n);
    else
        n->pass->windows = NULL;
    for (int i = 0; i < pass->sink_count; i++) done[i] = build_sink_value(n, &pass->sinks[i]);
    for (int i = 0; i < pass->sink_count; i++)
        if (!done[i]) build_write(n, &pass->sinks[i]);
    view_forget(&n->view, LEVEL_ROW);
    memset(done, 0, sizeof(bool) * (size_t)pass->sink_count);
    join_folds(n, done);
    for (int i = 0; i < pass->sink_count; i++)
        if (pass->sinks[i].kind == SINK_REDUCE || pass->sinks[i].kind == SINK_ASSERT)
            end_fold(n, &pass->sinks[i], done[i]);
}

/* Does a group only leave single elements, some of them in memory of the team? What it reads there thread 0 may have
 * overwritten before another thread comes to it, and no other thread needs it. */
static bool is_for_one(const spread_builder *b, const group *g)
{
    bool keeps = false;
    for (int p = 0; p < g->pass_count; p++) {
        if (g->passes[p].loop_count) return false;
        for (int i = 0; i < g->passes[p].sink_count; i++) {
            const sink *s = &g->passes[p].sinks[i];
            bool kept = s->kind == SINK_KEEP || s->kind == SINK_COPY;
            if (!kept && s->kind != SINK_STORE) return false;
            if (kept && b->spread->kept[buffer_for(b->survey, s->result)].kind == HOME_REGISTERS) return false;
            keeps |= kept;
        }
    }
    return keeps;
}

/* Which threads have a row, and which of those that hold the same writes it. */
static void choose_rows(const spread_builder *b, const pass_layout *l, loop_group *g)
{
    const spread *c = b->spread;
    g->lead = c->team.threads == 1 ? LEAD_EACH : is_for_one(b, g->group) ? LEAD_ALONE : LEAD_THREAD;
    if (!l->row_axes || (!l->inner_threads && !l->row_fast)) return;
    int64_t rows = layout_count_of(l, l->row_axes);
    g->lead = l->row_fast || l->inner_threads > 1 ? LEAD_PART : LEAD_EACH;
    if (l->row_fast)
        g->tests_rows = rows < 0 || rows % l->inner_threads;
    else
        g->tests_rows = rows < 0 || !c->team.threads || rows % (c->team.threads / l->inner_threads);
}

void spread_group(spread_builder *b, const group *g)
{
    loop_group *of = ARENA_NEW(b->memory, loop_group);
    *of = (loop_group){.group = g, .online = b->spread->online, .online_count = b->spread->online_count};
    pass_builder n = {.b = b, .view = {.survey = b->survey, .spread = b->spread, .group = g}, .group = of};
    loop_node *node = spread_add(b, LOOP_GROUP, NULL), **after = b->tail;
    bool column_fold;
    unsigned rows = group_rows(b->survey, g, &column_fold);
    node->group = of;
    b->tail = &node->body;
    for (int p = 0; p < g->pass_count; p++) {
        const pass_nest *pass = &g->passes[p];
        n.view.pass = pass;
        view_take_layout(&n.view, layout_find(b->spread, pass->loops, pass->loop_count, rows,
                                              pass_is_fast(pass, rows, column_fold)));
        if (!p) choose_rows(b, n.view.layout, of);
        n.leads = of->lead != LEAD_EACH;
        n.pass = ARENA_NEW(b->memory, loop_pass);
        b->survey->pass_number++;
        *n.pass = (loop_pass){.pass = pass, .layout = n.view.layout, .unroll = 1};
        loop_node *in = spread_add(b, LOOP_PASS, NULL), **behind = b->tail;
        in->pass = n.pass;
        b->tail = &in->body;
        build_pass(&n);
        b->tail = behind;
    }
    b->tail = after;
    touches_commit(b, node);
}
