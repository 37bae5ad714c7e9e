/*
 * A group of passes as CUDA text. In: a group from schedule/plan.c and the layouts. Out: one block of statements that all
 * threads of the team run together.
 *
 * Each pass evaluates all its sinks for one position before it writes anything, so a carried tile can be replaced by a
 * function of itself. Positions and guards are cuda/positions.c, the loops around chunks cuda/chunks.c.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <string.h>

void cput(cnest *n, int level, const char *format, ...)
{
    va_list list;
    emit_directive(n->e, n->line, &n->level[level]);
    va_start(list, format);
    text_print_list(&n->level[level], format, list);
    va_end(list);
    text_add(&n->level[level], "\n");
}

void add_lines(text *to, const char *lines, int depth)
{
    while (*lines) {
        size_t length = strcspn(lines, "\n");
        for (int i = 0; i < depth && length && *lines != '#'; i++) text_add(to, "    ");
        text_add_bytes(to, lines, length);
        text_add(to, "\n");
        lines += length + (lines[length] == '\n');
    }
}

/* ---- sinks ---- */

static bool is_kept_in_registers(const cnest *n, value v)
{
    int number = buffer_for(n->e->survey, v);
    return n->c->spread->kept[number].kind == HOME_REGISTERS;
}

/* The value of a sink; *done: it is already where it should be. */
static creg sink_value(cnest *n, const sink *s, place at, bool *done)
{
    emitter *e = n->e;
    *done = false;
    if (s->kind == SINK_KEEP) {
        const tile_op *op = tile_def(e->k, s->v);
        if (op->code == OP_LOAD && n->view.has_inner && is_kept_in_registers(n, s->v)) {
            caddress a = cuda_access(n, op, at);
            if (a.level == LEVEL_ELEMENT && a.early) {
                creg r = {NULL, LEVEL_ELEMENT, REG_NAME};
                if (!home_comes_ahead(e, s->v))
                    r = cuda_load(n, s->v, a, s->v);
                else
                    ARENA_PUSH(e->memory, n->c->ahead, n->c->ahead_count, n->c->ahead_capacity, s->v);
                *done = true;
                if (!home_is_opened(e, buffer_for(e->survey, s->v)))
                    cuda_remember(n, s->v, at, r); /* else it is read there */
                return r;
            }
            creg r = cuda_load(n, s->v, a, 0);
            cuda_remember(n, s->v, at, r);
            return r;
        }
        return cuda_compute(n, s->v, at);
    }
    creg r = cuda_value(n, sink_stored_value(e->survey, s), at);
    if (s->kind == SINK_COPY && r.form == REG_ELEMENT) /* another sink may write that register */
        r = cuda_define(n, 0, tile_type_of(e->k, s->v).elem, r.level, r.words);
    return r;
}

static void write_kept(cnest *n, value v, place at, creg r)
{
    emitter *e = n->e;
    int level;
    const char *home = home_element(n, v, at, true, &level);
    if (home) {
        cput(n, level, "%s = %s;", home, r.words);
        return;
    }
    caddress a = cuda_buffer(n, v, at);
    hazard_buffer(e, buffer_for(e->survey, v), true);
    cuda_store(n, a, r);
}

int cuda_sink_level(const cnest *n)
{
    return n->view.has_inner ? LEVEL_ELEMENT : LEVEL_ROW;
}

/* Does the pass write elements of this array more than once? Then element by element: a vector is stored after all elements. */
static bool writes_again(const cnest *n, const sink *s)
{
    for (int i = 0; i < n->view.pass->sink_count; i++) {
        const sink *o = &n->view.pass->sinks[i];
        if (o != s && (o->kind == SINK_STORE || o->kind == SINK_ATOMIC) &&
            o->op->attr.access.array == s->op->attr.access.array && !accesses_apart(n->e->survey, o->op, s->op))
            return true;
    }
    return false;
}

static void write_sink(cnest *n, const sink *s, creg r, const cfold *fold)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, s->v);
    place at = place_own(&type);
    switch (s->kind) {
    case SINK_STORE: {
        caddress to = cuda_access(n, s->op, at);
        if (writes_again(n, s)) to.width = 1;
        cuda_store(n, to, r);
        return;
    }
    case SINK_KEEP:
    case SINK_COPY: write_kept(n, s->result, at, r); return;
    case SINK_ATOMIC: {
        creg expected = {0};
        if (s->op->attr.atomic == ATOMIC_CAS)
            expected = cuda_value(n, s->op->operands[1], place_of_operand(e->survey, s->op, 1, &at));
        const char *old = e->survey->uses[s->result] ? fresh_name(e, s->result) : NULL;
        if (old) cput(n, cuda_sink_level(n), "%s %s = 0;", cuda_register_type(type.elem), old);
        cuda_atomic(n, cuda_access(n, s->op, at), s->op, r, expected, old);
        if (old) write_kept(n, s->result, at, (creg){old, cuda_sink_level(n), REG_NAME});
        return;
    }
    case SINK_ASSERT: {
        const char *bad = arena_print(e->memory, "!(%s)", r.words);
        for (int i = 1; i < s->op->operand_count; i++) {
            creg mask = cuda_value(n, s->op->operands[i], place_of_operand(e->survey, s->op, i, &at));
            bad = arena_print(e->memory, "%s && %s", bad, mask.words);
        }
        bad = cjoin(e, n->view.has_inner ? element_in(n) : n->row_guard, "&&", bad);
        cput(n, cuda_sink_level(n), "%s |= %s;", fold->name, bad);
        return;
    }
    case SINK_REDUCE: cuda_fold_add(n, fold, r); return;
    case SINK_SCALAR: cput(n, cuda_sink_level(n), "%s = %s;", emit_name(e, s->result), r.words); return;
    }
}

/* ---- passes ---- */

/* Of chunks and elements, at the end of a pass. */
static void forget(cnest *n)
{
    view_forget(&n->view, LEVEL_ROW);
    names_forget(&n->names, LEVEL_ROW);
}

static void find_map(survey *e, value v, const place *at, void *context)
{
    const tile_op *op = tile_def(e->k, v);
    (void)at;
    if (op && op->code == OP_MAP) *(bool *)context = true;
}

/* Bodies that are worth a branch around them. Others run for positions that do not exist, and do nothing there. A `map`
 * always is: it may loop, and need not end for such positions. */
static bool is_heavy(const cnest *n)
{
    enum { HEAVY_BODY = 150 };
    int weight = 0;
    bool maps = false;
    for (int i = 0; i < n->view.pass->sink_count; i++) {
        weight += sink_weight(n->e->survey, &n->view.pass->sinks[i]);
        walk_sink(n->e->survey, &n->view.pass->sinks[i], find_map, &maps);
    }
    return maps || weight > HEAVY_BODY;
}

static void begin_chunks(cnest *n)
{
    const pass_layout *l = n->view.layout;
    n->unroll = layout_unroll(n->e->survey, l);
    bool several = n->unroll > 1 && l->repeats != 1;
    n->slot = several ? "u" : words_zero;
    n->repeat = l->repeats == 1 ? words_zero : l->repeats ? "r" : n->slot;
    n->early_used = n->copies = false;
    n->opened_count = n->split = 0;
    n->slotted = false;
    n->hit_count = 0;
    cuda_set_guards(n);
    n->in = n->chunk_guard && (!n->element_guard || l->shifted) && !is_heavy(n) ? "in" : NULL;
    n->loose = l->shifted && n->in;
    n->asks_inside = false;
    n->loads =
        n->c->spread->loads[n->e->survey->pass_number].early || n->c->spread->loads[n->e->survey->pass_number].direct;
}

static void emit_pass(cnest *n)
{
    emitter *e = n->e;
    const pass_nest *pass = n->view.pass;
    cfold *folds = ARENA_ARRAY(e->memory, cfold, pass->sink_count);
    creg *values = ARENA_ARRAY(e->memory, creg, pass->sink_count);
    bool *done = ARENA_ARRAY(e->memory, bool, pass->sink_count);
    for (int i = 0; i < pass->sink_count; i++)
        if (pass->sinks[i].kind == SINK_REDUCE || pass->sinks[i].kind == SINK_ASSERT)
            folds[i] = cuda_fold_begin(n, &pass->sinks[i]);
    n->in = NULL;
    n->loose = false;
    n->folds = folds;
    windows_find(&n->view);
    n->guards = (level_names){0};
    if (n->view.has_inner) begin_chunks(n);
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        tile_type type = tile_type_of(e->k, s->v);
        n->line = s->op->line;
        done[i] = cuda_fold_pairs(n, &folds[i]);
        if (!done[i]) values[i] = sink_value(n, s, place_own(&type), &done[i]);
    }
    for (int i = 0; i < pass->sink_count; i++) {
        n->line = pass->sinks[i].op->line;
        if (!done[i]) write_sink(n, &pass->sinks[i], values[i], &folds[i]);
    }
    if (n->view.has_inner) cuda_chunks(n);
    text_clear(&n->level[LEVEL_CHUNK]);
    text_clear(&n->level[LEVEL_ELEMENT]);
    text_clear(&n->early);
    text_clear(&n->late);
    text_clear(&n->arrays);
    forget(n);
    cuda_folds_join(n, folds, pass->sink_count);
    for (int i = 0; i < pass->sink_count; i++) {
        n->line = pass->sinks[i].op->line;
        if (pass->sinks[i].kind == SINK_REDUCE || pass->sinks[i].kind == SINK_ASSERT) cuda_fold_end(n, &folds[i]);
    }
}

static nest_view view_of(emitter *e, const group *g)
{
    return (nest_view){.survey = e->survey, .spread = e->cuda->spread, .group = g};
}

cnest cuda_nest_of(emitter *e, pass_layout *l)
{
    cnest n = {.e = e,
               .c = e->cuda,
               .view = view_of(e, NULL),
               .slot = words_zero,
               .repeat = l->repeats == 1 ? words_zero : "r"};
    view_take_layout(&n.view, l);
    cuda_set_guards(&n);
    n.in = n.chunk_guard ? "in" : NULL;
    return n;
}

static void declare_results(emitter *e, const group *g)
{
    for (int p = 0; p < g->pass_count; p++) {
        for (int i = 0; i < g->passes[p].sink_count; i++) {
            const sink *s = &g->passes[p].sinks[i];
            put_line_comment(e, s->op);
            if (s->kind != SINK_SCALAR && s->kind != SINK_REDUCE) continue;
            tile_type type = tile_type_of(e->k, s->result);
            if (!type.rank) put(e, "%s %s;", cuda_register_type(type.elem), emit_name(e, s->result));
            online_declare(e, s->result);
        }
    }
}

/* How far the first element of the row lies behind a vector of its lead, before the first group that goes by it. */
static void put_shift(emitter *e, pass_layout *l)
{
    if (!l || !l->shifted || l->shift_put) return;
    l->shift_put = true;
    /* A row without elements is not shifted: nothing of its first vector is its own, and it may lie nowhere. */
    put(e, "const int shift%d = %s > 0 ? (int)((unsigned long)(%s) / %d %% %d) : 0; /* behind a whole vector */",
        l->number, extent_text(e, l->loops[0]), cuda_lead_pointer(e, l->lead),
        dtypes[e->k->params[l->lead->attr.access.array].elem].size_bytes, l->vector);
}

void cuda_group(emitter *e, const group *g)
{
    cnest n = {.e = e, .c = e->cuda, .view = view_of(e, g), .slot = words_zero, .repeat = words_zero};
    bool column_fold;
    unsigned rows = group_rows(e->survey, g, &column_fold);
    declare_results(e, g);
    pass_layout **layouts = ARENA_ARRAY(e->memory, pass_layout *, g->pass_count + 1);
    for (int p = 0; p < g->pass_count; p++) {
        n.view.pass = &g->passes[p];
        bool fast = pass_is_fast(n.view.pass, rows, column_fold);
        view_take_layout(&n.view,
                         layout_find(e->cuda->spread, n.view.pass->loops, n.view.pass->loop_count, rows, fast));
        layouts[p] = n.view.layout;
        if (!p) cuda_rows_begin(&n);
        e->survey->pass_number++;
        emit_pass(&n);
    }
    text body = cuda_rows_end(&n);
    hazard_commit(e);
    for (int p = 0; p < g->pass_count; p++) put_shift(e, layouts[p]);
    put(e, "{");
    add_lines(e->out, text_get(&body), e->depth + 1);
    put(e, "}");
    text_free(&body);
    for (int i = 0; i < LEVEL_COUNT; i++) text_free(&n.level[i]);
    text_free(&n.early);
    text_free(&n.late);
    text_free(&n.arrays);
}
