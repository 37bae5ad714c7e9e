/*
 * Programs in a pipeline. In: the plan of a phase whose programs are a few passes over one row each, in a launch larger
 * than the caches. Out: one loop over positions that does the first pass of one program, the second of the program
 * before it, and so on.
 *
 * Passes one after another leave the memory idle while a row is computed, and the processor while it is read. In step,
 * every position reads one line from memory, computes, and writes one. Pass k is stage k: in step s it serves program
 * s - k, so a scalar that crosses stages is handed down (NAME_back1 is that of the program before). Stages are written
 * last to first, values before effects: a buffer written in one stage and read in the next needs no copy, and no load
 * waits for a store to the same place of another page. At the ends, where some stage has no program, the passes run
 * one by one.
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <string.h>

enum { MOST_STAGES = 4 };

typedef struct stage {
    const group *group;
    nest nest;
    accumulator *accumulators;
    const char **texts; /* names of values as this stage sees them */
    bool *named;        /* [value]: this stage names it so */
    text values, folds, effects, alone;
} stage;

typedef struct pipeline {
    emitter *e;
    const plan *plan;
    stage stages[MOST_STAGES];
    int count;
    int *stage_of; /* value to the stage that defines it, -1: another block, or the same for all programs */
} pipeline;

/* ---- may it? ---- */

static bool is_scalar(const emitter *e, value v)
{
    return !e->k->values[v].type.rank;
}

static const pass_nest *only_pass(const stage *s)
{
    return &s->group->passes[0];
}

/* Runs also where its stage has no program, on whatever was handed down: it must not trap. The first stage always has
 * one, if need be the last again; a store is guarded. */
static bool scalar_fits(const emitter *e, const tile_op *op, int stage)
{
    op_class class = ops[op->code].class;
    if (op->code == OP_LOAD) return !stage && !e->survey->written[op->attr.access.array];
    if (op->code == OP_STORE) return !e->survey->read[op->attr.access.array];
    if (op->code == OP_CONST || op->code == OP_ARG || op->code == OP_PROGRAM || op->code == OP_PROGRAMS ||
        op->code == OP_ASSUME || op->code == OP_YIELD)
        return true;
    if (class != CLASS_UNARY && class != CLASS_BINARY && class != CLASS_COMPARE && class != CLASS_TERNARY) return false;
    bool divides = op->code == OP_DIV || op->code == OP_MOD;
    return !divides || dtype_is_float(e->k->values[op->results[0]].type.elem);
}

static bool sink_fits(const emitter *e, const sink *s)
{
    switch (s->kind) {
    case SINK_STORE: return !e->survey->read[s->op->attr.access.array];
    case SINK_REDUCE: return !is_fold_in_buffer(s) && !is_position(s) && is_scalar(e, s->result);
    case SINK_KEEP: return true;
    default: return false;
    }
}

static bool group_fits(const emitter *e, const group *g, int64_t extent)
{
    if (g->outer || g->pass_count != 1 || g->passes[0].loop_count != 1 || g->passes[0].loops[0] != extent) return false;
    for (int i = 0; i < g->passes[0].sink_count; i++)
        if (!sink_fits(e, &g->passes[0].sinks[i])) return false;
    return true;
}

/* Walks what a stage uses. */
typedef struct demand {
    pipeline *p;
    int stage;
    bool fits;
    int *first_use; /* of loads and buffers: 1 + the stage from which on their rows are in cache; 0: not used */
} demand;

static void check_use(survey *e, value v, const place *at, void *context)
{
    demand *d = context;
    tile_type type = tile_type_of(e->k, v);
    const tile_op *op = tile_def(e->k, v);
    int home = d->p->stage_of[v];
    if (!type.rank) return;
    place own = place_own(&type);
    if (value_is_virtual(e, v)) {
        if (op->code == OP_MAP) d->fits = false;
        if (op->code != OP_LOAD) return;
        if (e->written[op->attr.access.array]) d->fits = false;
        if (!d->first_use[v]) d->first_use[v] = d->stage + 1;
        return;
    }
    /* A buffer lives from its stage to the next one, each position for itself. */
    if (home < 0 || d->stage > home + 1 || type.rank != 1 || !place_same(&own, at, type.rank)) d->fits = false;
    d->first_use[v] = d->p->count; /* one row */
}

/* Of a run-time extent: the usual one of its class. */
static int64_t usual_extent(const emitter *e, int64_t extent)
{
    if (extent >= 0) return extent;
    const tile_op *op = tile_def(e->k, (value)-extent);
    if (!op || op->code != OP_ARG) return INT32_MAX;
    static const int64_t usual[] = {64, 1024, 4096, 16384};
    int class = e->k->params[op->attr.index].facts.size_class;
    return class >= 0 && class < COUNT(usual) ? usual[class] : INT32_MAX;
}

/* Everything that some stage will read again has to stay in the second-level cache. */
static bool stays_in_cache(const demand *d, const emitter *e, int64_t extent)
{
    int64_t bytes = 0, most = e->options->l2_bytes ? e->options->l2_bytes : 1 << 20;
    for (value v = 1; v < (value)e->k->value_count; v++) {
        int rows = d->first_use[v] ? d->p->count - d->first_use[v] + 1 : 0;
        bytes += rows * dtypes[e->k->values[v].type.elem].size_bytes;
    }
    return bytes * usual_extent(e, extent) <= most;
}

/* Sorts the items into stages; false: the phase is not of this kind. */
static bool find_stages(pipeline *p)
{
    emitter *e = p->e;
    int64_t extent = 0;
    for (int i = 0; i < p->plan->count; i++) {
        const item *it = &p->plan->items[i];
        if (it->kind == ITEM_GROUP) {
            if (!p->count) extent = it->group->passes[0].loops[0];
            if (p->count == MOST_STAGES || !group_fits(e, it->group, extent)) return false;
            const pass_nest *pass = &it->group->passes[0];
            for (int s = 0; s < pass->sink_count; s++)
                if (pass->sinks[s].kind != SINK_STORE) p->stage_of[pass->sinks[s].result] = p->count;
            p->stages[p->count++].group = it->group;
        } else if (it->kind == ITEM_SCALAR && scalar_fits(e, it->op, MAXIMUM(p->count - 1, 0))) {
            for (int r = 0; r < it->op->result_count; r++)
                if (!extent_at_launch(e->survey, it->op->results[r]))
                    p->stage_of[it->op->results[r]] = MAXIMUM(p->count - 1, 0);
        } else if (it->kind != ITEM_CONTROL || it->op->code != OP_YIELD) {
            return false;
        }
    }
    if (p->count < 2) return false;
    if (extent < 0 && !extent_at_launch(e->survey, (value)-extent)) return false;
    constraints none = {0};
    if (!limits_are_even(e, &none, extent)) return false;
    demand d = {.p = p, .fits = true, .first_use = ARENA_ARRAY(e->memory, int, e->k->value_count)};
    for (; d.stage < p->count; d.stage++) {
        const pass_nest *pass = only_pass(&p->stages[d.stage]);
        for (int s = 0; s < pass->sink_count; s++) walk_sink(e->survey, &pass->sinks[s], check_use, &d);
    }
    return d.fits && stays_in_cache(&d, e, extent);
}

/* ---- text ---- */

/* The name of a scalar as another stage sees it. */
static const char *name_back(emitter *e, value v, int back)
{
    return back ? arena_print(e->memory, "%s_back%d", emit_name(e, v), back) : emit_name(e, v);
}

static void name_values(pipeline *p, int number)
{
    emitter *e = p->e;
    const char **texts = ARENA_ARRAY(e->memory, const char *, e->k->value_count);
    for (value v = 1; v < (value)e->k->value_count; v++)
        if (is_scalar(e, v) && p->stage_of[v] >= 0 && p->stage_of[v] < number)
            texts[v] = name_back(e, v, number - p->stage_of[v]);
    p->stages[number].texts = texts;
    p->stages[number].named = ARENA_ARRAY(e->memory, bool, e->k->value_count);
}

/* Names are those of a stage; NULL: of no one. */
static void see_as(emitter *e, stage *s)
{
    e->value_text = s ? s->texts : NULL;
    e->value_named = s ? s->named : NULL;
}

static text take(text *from)
{
    text taken = *from;
    *from = (text){0};
    return taken;
}

/* Declarations stay in level 0 of the stage's nest. False: some bound or alignment is known only at run time. */
static bool emit_stage(pipeline *p, int number)
{
    emitter *e = p->e;
    stage *s = &p->stages[number];
    const pass_nest *pass = only_pass(s);
    s->nest =
        (nest){.e = e, .group = s->group, .pass = pass, .loops = 1, .vector = true, .position = "j", .from_zero = true};
    nest *n = &s->nest;
    n->known[0] = common_constraints(n, pass, 1, 0);
    if (n->known[0].count) return false;
    see_as(e, s);
    e->survey->pass_number = number + 1;
    s->accumulators = ARENA_ARRAY(e->memory, accumulator, pass->sink_count);
    for (int i = 0; i < pass->sink_count; i++)
        if (pass->sinks[i].kind == SINK_REDUCE) s->accumulators[i] = declare_accumulator(n, &pass->sinks[i], 1);
    for (int again = 0; again < 2; again++) {
        reg *values = pass_values(n);
        if (!again) s->values = take(&n->level[1]);
        pass_effects(n, values, s->accumulators, true, false);
        if (!again) s->folds = take(&n->level[1]);
        pass_effects(n, values, s->accumulators, false, true);
        *(again ? &s->alone : &s->effects) = take(&n->level[1]);
        forget_below(n, 0);
    }
    see_as(e, NULL);
    return !n->inside.count && !n->stream_base;
}

/* A condition of the step. */
static const char *has_program(emitter *e, int stage)
{
    return stage ? arena_print(e->memory, "step >= first + %d && step < last + %d", stage, stage) : "step < last";
}

static void put_loop(emitter *e, const char *last, const text *const *bodies, int count)
{
    put(e, "for (long j = 0; j < %s; j += 16) {", last);
    for (int i = 0; i < count; i++) add_indented(e->out, text_get(bodies[i]), e->depth + 1);
    put(e, "}");
}

static void put_loops(pipeline *p, const char *last)
{
    emitter *e = p->e;
    const text *bodies[3 * MOST_STAGES];
    int count = 0, stages = p->count;
    for (int s = stages - 1; s >= 0; s--) bodies[count++] = &p->stages[s].values;
    for (int s = stages - 1; s >= 0; s--) bodies[count++] = &p->stages[s].folds;
    for (int s = stages - 1; s >= 0; s--) bodies[count++] = &p->stages[s].effects;
    put(e, "if (step >= first + %d && step < last) {", stages - 1);
    e->depth++;
    put_loop(e, last, bodies, count);
    e->depth--;
    put(e, "} else {");
    e->depth++;
    for (int s = stages - 1; s >= 0; s--) {
        const text *alone[] = {&p->stages[s].alone};
        put(e, "if (%s)", has_program(e, s));
        e->depth++;
        put_loop(e, last, alone, 1);
        e->depth--;
    }
    e->depth--;
    put(e, "}");
}

/* What comes after pass `number`: its folds, and the scalars made of them. */
static void put_after(pipeline *p, int number, int *next_item)
{
    emitter *e = p->e;
    const plan *plan = p->plan;
    see_as(e, &p->stages[number]);
    for (; *next_item < plan->count && plan->items[*next_item].kind != ITEM_GROUP; ++*next_item) {
        const item *it = &plan->items[*next_item];
        bool store = it->kind == ITEM_SCALAR && it->op->code == OP_STORE;
        if (it->kind != ITEM_SCALAR || (!store && extent_at_launch(e->survey, it->op->results[0]))) continue;
        put_line_comment(e, it->op);
        if (store) put(e, "if (%s) {", has_program(e, number));
        e->depth += store;
        emit_scalar_op(e, it->op);
        e->depth -= store;
        if (store) put(e, "}");
    }
    see_as(e, NULL);
}

/* Scalars move on one stage; the variables are declared before the loop. */
static void put_hand_down(pipeline *p, text *declarations)
{
    emitter *e = p->e;
    for (value v = 1; v < (value)e->k->value_count; v++) {
        if (!is_scalar(e, v) || p->stage_of[v] < 0) continue;
        int most = p->count - 1 - p->stage_of[v];
        while (most && !p->stages[p->stage_of[v] + most].named[v]) most--;
        for (int back = most; back; back--) {
            text_print(declarations, "    %s %s = 0;\n", scalar_c_type(tile_type_of(e->k, v).elem),
                       name_back(e, v, back));
            put(e, "%s = %s;", name_back(e, v, back), name_back(e, v, back - 1));
        }
    }
}

static void put_steps(pipeline *p, text *declarations)
{
    emitter *e = p->e;
    const plan *plan = p->plan;
    for (int i = 0; i < plan->count; i++) { /* what is the same for all programs */
        const item *it = &plan->items[i];
        bool scalar = it->kind == ITEM_SCALAR && it->op->result_count;
        if (scalar && extent_at_launch(e->survey, it->op->results[0])) emit_scalar_op(e, it->op);
    }
    int item = 0;
    put_after(p, 0, &item); /* before the first pass */
    for (int s = 0; s < p->count; s++) {
        const pass_nest *pass = only_pass(&p->stages[s]);
        for (int i = 0; i < pass->sink_count; i++) {
            const sink *sink = &pass->sinks[i];
            put_line_comment(e, sink->op);
            if (sink->kind == SINK_REDUCE)
                put(e, "%s %s;", scalar_c_type(tile_type_of(e->k, sink->result).elem), emit_name(e, sink->result));
        }
    }
    put(e, "{");
    e->depth++;
    for (int s = 0; s < p->count; s++) {
        add_indented(e->out, text_get(&p->stages[s].nest.level[0]), e->depth);
        text_clear(&p->stages[s].nest.level[0]);
    }
    put_loops(p, extent_text(e, only_pass(&p->stages[0])->loops[0]));
    for (int s = 0; s < p->count; s++) {
        stage *stage = &p->stages[s];
        for (int i = 0; i < only_pass(stage)->sink_count; i++)
            if (only_pass(stage)->sinks[i].kind == SINK_REDUCE) finish_fold(&stage->nest, &stage->accumulators[i]);
        add_indented(e->out, text_get(&stage->nest.level[0]), e->depth);
    }
    e->depth--;
    put(e, "}");
    for (int s = 0; s < p->count; s++) {
        item++;
        put_after(p, s, &item);
    }
    put_hand_down(p, declarations);
}

int emit_pipeline(emitter *e, const plan *plan, text *declarations)
{
    if (!e->prefetches) return 0;
    pipeline p = {.e = e, .plan = plan, .stage_of = ARENA_ARRAY(e->memory, int, e->k->value_count)};
    for (int v = 0; v < e->k->value_count; v++) p.stage_of[v] = -1;
    if (!find_stages(&p)) return 0;
    int serial = e->serial;
    e->survey->time++; /* one time for all: no two buffers share a place */
    e->pipelined = true;
    bool fits = true;
    for (int s = 0; s < p.count; s++) name_values(&p, s);
    for (int s = 0; s < p.count && fits; s++) fits = emit_stage(&p, s);
    if (fits) {
        put_steps(&p, declarations);
    } else { /* as if nothing had been tried */
        e->serial = serial;
        e->survey->pass_number = 0;
        memset(e->loaded_in, 0, sizeof(*e->loaded_in) * (size_t)e->k->value_count);
        for (int i = 1; i < e->survey->buffer_count; i++) e->survey->buffers[i].first = e->survey->buffers[i].last = 0;
    }
    e->pipelined = false;
    see_as(e, NULL);
    for (int s = 0; s < p.count; s++) {
        text_free(&p.stages[s].values);
        text_free(&p.stages[s].folds);
        text_free(&p.stages[s].effects);
        text_free(&p.stages[s].alone);
        text_free(&p.stages[s].nest.level[0]);
        text_free(&p.stages[s].nest.level[1]);
    }
    return fits ? p.count : 0;
}
