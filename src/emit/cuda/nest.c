/*
 * A group of passes as CUDA text. In: its node (loops/pass.c). Out: one block of statements that all threads of the team
 * run together.
 *
 * Nodes are printed in order, each to the statements of its level. Positions and guards are cuda/positions.c, the loops
 * around chunks cuda/chunks.c.
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

/* A load that is where it should be at once: in the registers of its home. */
static void print_fetch(cnest *n, const loop_node *node)
{
    emitter *e = n->e;
    value v = node->sink->v;
    caddress a = cuda_access(n, tile_def(e->k, v), *node->at);
    creg r = {NULL, LEVEL_ELEMENT, REG_NAME};
    if (!node->number[1]) r = cuda_load(n, v, a, v);
    if (!home_is_opened(e->survey, buffer_for(e->survey, v)))
        cuda_remember(n, v, *node->at, r); /* else it is read there */
}

static creg sink_value(cnest *n, const sink *s)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, s->v);
    creg r = cuda_value(n, sink_stored_value(e->survey, s), place_own(&type));
    if (s->kind == SINK_COPY && r.form == REG_ELEMENT) /* another sink may write that register */
        r = cuda_define(n, 0, type.elem, r.level, r.words);
    return r;
}

static void write_kept(cnest *n, value v, place at, creg r)
{
    int level;
    const char *home = home_element(n, v, at, true, &level);
    if (home) {
        cput(n, level, "%s = %s;", home, r.words);
        return;
    }
    caddress a = cuda_buffer(n, v, at);
    cuda_store(n, a, r);
}

int cuda_sink_level(const cnest *n)
{
    return n->view.has_inner ? LEVEL_ELEMENT : LEVEL_ROW;
}

static void write_sink(cnest *n, const loop_node *node, creg r, const cfold *fold)
{
    const sink *s = node->sink;
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, s->v);
    place at = place_own(&type);
    switch (s->kind) {
    case SINK_STORE: {
        caddress to = cuda_access(n, s->op, at);
        if (node->number[0]) to.width = 1; /* a vector is stored after all elements */
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

static void begin_chunks(cnest *n)
{
    const pass_layout *l = n->view.layout;
    const loop_pass *p = n->pass;
    n->unroll = p->unroll;
    bool several = n->unroll > 1 && l->repeats != 1;
    n->slot = several ? "u" : words_zero;
    n->repeat = l->repeats == 1 ? words_zero : l->repeats ? "r" : n->slot;
    n->early_used = n->copies = false;
    n->opened_count = n->split = 0;
    n->slotted = false;
    n->hit_count = 0;
    cuda_set_guards(n);
    n->in = p->predicates ? "in" : NULL;
    n->loose = p->loose;
    n->asks_inside = false;
    n->loads = p->loads;
}

/* What stands behind the positions: nothing of chunks and elements is known there. */
static void end_positions(cnest *n)
{
    if (n->view.has_inner) cuda_chunks(n);
    text_clear(&n->level[LEVEL_CHUNK]);
    text_clear(&n->level[LEVEL_ELEMENT]);
    text_clear(&n->early);
    text_clear(&n->late);
    text_clear(&n->arrays);
    forget(n);
}

static void print_pass(cnest *n, const loop_node *node)
{
    emitter *e = n->e;
    const pass_nest *pass = n->view.pass;
    cfold *folds = ARENA_ARRAY(e->memory, cfold, pass->sink_count);
    creg *values = ARENA_ARRAY(e->memory, creg, pass->sink_count);
    bool begun = false, ended = false;
    n->in = NULL;
    n->loose = false;
    n->folds = folds;
    n->view.windows = n->pass->windows;
    n->guards = (level_names){0};
    for (const loop_node *in = node->body; in; in = in->next) {
        int i = in->sink ? (int)(in->sink - pass->sinks) : 0;
        if (in->code != LOOP_FOLD_BEGIN && !begun && n->view.has_inner) begin_chunks(n);
        begun |= in->code != LOOP_FOLD_BEGIN;
        bool ends = in->code == LOOP_FOLD_END || in->code == LOOP_FOLD_JOIN;
        if (ends && !ended) end_positions(n);
        ended |= ends;
        n->line = in->op ? in->op->line : 0;
        switch (in->code) {
        case LOOP_FOLD_BEGIN: folds[i] = cuda_fold_begin(n, in->sink); break;
        case LOOP_FOLD_PAIRS: cuda_fold_pairs(n, &folds[i]); break;
        case LOOP_FOLD_JOIN: cuda_folds_join(n, folds, in->sinks, in->number[0]); break;
        case LOOP_FOLD_END: cuda_fold_end(n, &folds[i]); break;
        case LOOP_FETCH: print_fetch(n, in); break;
        case LOOP_HOLD: values[i] = sink_value(n, in->sink); break;
        case LOOP_LET:
        case LOOP_LOAD:
        case LOOP_READ:
        case LOOP_MAP: print_value(n, in); break;
        default: write_sink(n, in, values[i], &folds[i]); break;
        }
    }
    if (!ended) end_positions(n);
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

void print_group(emitter *e, const loop_node *node)
{
    const group *g = node->group->group;
    cnest n = {.e = e, .c = e->cuda, .view = view_of(e, g), .slot = words_zero, .repeat = words_zero};
    e->cuda->spread->online = node->group->online;
    e->cuda->spread->online_count = node->group->online_count;
    declare_results(e, g);
    for (const loop_node *p = node->body; p; p = p->next) {
        n.view.pass = p->pass->pass;
        n.pass = p->pass;
        view_take_layout(&n.view, p->pass->layout);
        if (p == node->body) cuda_rows_begin(&n, node->group);
        print_pass(&n, p);
    }
    text body = cuda_rows_end(&n);
    if (node->waits) put_barrier(e);
    for (const loop_node *p = node->body; p; p = p->next) put_shift(e, p->pass->layout);
    put(e, node->group->lead == LEAD_ALONE ? "if (thread == 0) {" : "{");
    add_lines(e->out, text_get(&body), e->depth + 1);
    put(e, "}");
    text_free(&body);
    for (int i = 0; i < LEVEL_COUNT; i++) text_free(&n.level[i]);
    text_free(&n.early);
    text_free(&n.late);
    text_free(&n.arrays);
}
