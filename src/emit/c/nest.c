/*
 * A group of passes as C loops. In: a group from schedule/plan.c. Out: one block of C.
 *
 * Each pass evaluates all its sinks for one position before it writes anything, so a carried tile can be replaced by a
 * function of itself. Loops run only over positions where some sink does something: the bounds that all sinks share
 * become the limits of the loops.
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <string.h>

void put_at(nest *n, int level, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    text_print_list(&n->level[level], format, list);
    va_end(list);
    text_add(&n->level[level], "\n");
}

void add_indented(text *to, const char *lines, int depth)
{
    while (*lines) {
        size_t length = strcspn(lines, "\n");
        for (int i = 0; i < depth && length; i++) text_add(to, "    ");
        text_add_bytes(to, lines, length);
        text_add(to, "\n");
        lines += length + (lines[length] == '\n');
    }
}

/* A store rounds to the type of its array: the conversion before it that does nothing else is left to it. */
static const tile_op *rounding_of_store(const emitter *e, const sink *s)
{
    const tile_op *op = s->kind == SINK_STORE && value_is_virtual(e->survey, s->v) ? tile_def(e->k, s->v) : NULL;
    if (!op || op->code != OP_CONVERT || !dtype_is_narrow(tile_type_of(e->k, s->v).elem)) return NULL;
    dtype from = tile_type_of(e->k, op->operands[0]).elem;
    return from == DT_F32 || dtype_is_narrow(from) ? op : NULL;
}

static reg sink_value(nest *n, const sink *s, place at)
{
    if (s->kind == SINK_KEEP) return nest_compute(n, s->v, at);
    const tile_op *rounding = rounding_of_store(n->e, s);
    if (rounding) return nest_value(n, rounding->operands[0], place_of_operand(n->e->survey, rounding, 0, &at));
    return nest_value(n, s->v, at);
}

/* Around the caches: an output that this phase only writes, and that no cache would hold. */
static bool store_streams(const nest *n, const tile_op *store)
{
    const tile_param *p = &n->e->k->params[store->attr.access.array];
    return p->facts.streams && p->kind == PARAM_OUT && !n->e->survey->read[store->attr.access.array];
}

static void write_sink(nest *n, const sink *s, reg r, const accumulator *a)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, s->v);
    place at = place_own(&type);
    switch (s->kind) {
    case SINK_STORE: address_store(n, access_address(n, s->op, at), r, store_streams(n, s->op)); return;
    case SINK_KEEP:
    case SINK_COPY: address_store(n, buffer_address(n, s->result, at), r, false); return;
    case SINK_ATOMIC: {
        reg expected = {0};
        if (s->op->attr.atomic == ATOMIC_CAS)
            expected = nest_value(n, s->op->operands[1], place_of_operand(e->survey, s->op, 1, &at));
        bool kept = e->survey->uses[s->result] != 0;
        const char *old = fresh_name(e, s->result);
        if (kept)
            put_at(n, n->loops, n->vector ? "%s %s = {0};" : "%s %s = 0;",
                   n->vector ? vector_c_type(type.elem) : scalar_c_type(type.elem), old);
        address_atomic(n, access_address(n, s->op, at), s->op, r, expected, kept, old);
        if (kept) address_store(n, buffer_address(n, s->result, at), (reg){old, n->loops, false}, false);
        return;
    }
    case SINK_ASSERT: {
        int level = n->loops;
        const char *bad = n->vector ? arena_print(e->memory, "~%s", as_vector(n, DT_BOOL, r))
                                    : arena_print(e->memory, "!(%s)", r.truth ? "1" : r.words);
        for (int i = 1; i < s->op->operand_count; i++) {
            reg mask = nest_value(n, s->op->operands[i], place_of_operand(e->survey, s->op, i, &at));
            if (mask.truth) continue;
            bad = arena_print(e->memory, "(%s & %s)", bad, n->vector ? as_vector(n, DT_BOOL, mask) : mask.words);
        }
        if (n->vector && n->partial) bad = arena_print(e->memory, "(%s & %s(lanes))", bad, need(e, "first_mask"));
        if (n->vector)
            put_at(n, level, "%s |= %s(%s);", a->name, need(e, "any_mask"), bad);
        else
            put_at(n, level, "%s |= %s;", a->name, bad);
        return;
    }
    case SINK_REDUCE:
        if (is_fold_in_buffer(s))
            fold_into_buffer(n, s, r);
        else
            fold_in_loop(n, a, r);
        return;
    case SINK_SCALAR: return; /* never in a loop */
    }
}

/* Registers of deeper levels are out of scope. */
void forget_below(nest *n, int level)
{
    int kept = 0;
    for (int i = 0; i < n->memo_count; i++) {
        const memo *m = &n->memos[i];
        int rank = n->e->k->values[m->v].type.rank;
        if (!m->result.truth && m->result.level <= level && place_level(&m->at, rank) <= level) n->memos[kept++] = *m;
    }
    n->memo_count = kept;
    kept = 0;
    names_forget(&n->names, level);
}

reg *pass_values(nest *n)
{
    emitter *e = n->e;
    const pass_nest *pass = n->pass;
    reg *values = ARENA_ARRAY(e->memory, reg, pass->sink_count);
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        tile_type type = tile_type_of(e->k, s->v);
        values[i] = sink_value(n, s, place_own(&type));
    }
    return values;
}

void pass_effects(nest *n, const reg *values, const accumulator *accumulators, bool folds, bool others)
{
    for (int i = 0; i < n->pass->sink_count; i++) {
        const sink *s = &n->pass->sinks[i];
        if (s->kind == SINK_REDUCE ? folds : others) write_sink(n, s, values[i], &accumulators[i]);
    }
}

/* Statements for one position, or 16 of them: all values, then all effects. */
static void put_body(nest *n, const accumulator *accumulators)
{
    reg *values = pass_values(n);
    for (int i = 0; i < n->pass->sink_count; i++) write_sink(n, &n->pass->sinks[i], values[i], &accumulators[i]);
}

static void at_part(nest *n, int part)
{
    n->part = part;
    n->position = part ? arena_print(n->e->memory, "(j + %d)", 16 * part) : "j";
}

/* Several bodies. Those that overlap compute everything first and write then, which leaves the compiler free to mix
 * their instructions. */
static void put_bodies(nest *n, const accumulator *accumulators, int count, bool overlap)
{
    reg *values[UNROLL];
    for (int part = 0; part < count; part++) {
        at_part(n, part);
        if (overlap)
            values[part] = pass_values(n);
        else
            put_body(n, accumulators);
        forget_below(n, n->loops - 1);
    }
    for (int part = 0; part < count && overlap; part++) {
        at_part(n, part);
        pass_effects(n, values[part], accumulators, true, true);
        forget_below(n, n->loops - 1);
    }
    at_part(n, 0);
}

/* The texts of one vector loop. */
typedef struct vector_loop {
    const char *first, *last;
    text whole; /* 16 positions (16 * unroll of them), all inside; empty: not needed */
    text part;  /* `lanes` positions with every test; when even: 16 positions after the unrolled ones; empty: not needed
                 */
    text limits; /* declares inside_first and inside_last; empty: all that runs is inside */
    int unroll;
    text blocks;             /* after some whole vectors: empties accumulators; empty: not needed */
    const char *filled;      /* counts additions for it */
    bool even;               /* there are no parts of vectors */
    bool single;             /* one body for whole vectors and parts: it is long */
    const char *stream_head; /* how many positions until the streaming store is aligned, or NULL */
} vector_loop;

static void put_whole(text *to, const vector_loop *l, const char *last, int depth)
{
    text lines = {0};
    int step = 16 * l->unroll, inner = l->blocks.length ? 1 : 0;
    if (inner) {
        text_print(&lines, "while (j + %d <= %s) {\n", step, last);
        text_print(&lines, "    const long from = j, stop = %s - j > %d ? j + %d : %s;\n", last, SUM_CHAIN * step,
                   SUM_CHAIN * step, last);
        last = "stop";
    }
    text loop = {0};
    text_print(&loop, "for (; j + %d <= %s; j += %d) {\n", step, last, step);
    add_indented(&loop, text_get(&l->whole), 1);
    text_add(&loop, "}\n");
    if (inner) text_print(&loop, "%s += (j - from) / %d;\n%s", l->filled, step, text_get(&l->blocks));
    add_indented(&lines, text_get(&loop), inner);
    text_free(&loop);
    if (inner) text_add(&lines, "}\n");
    add_indented(to, text_get(&lines), depth);
    text_free(&lines);
}

static void put_parts(text *to, const vector_loop *l)
{
    text_print(to, "    for (; j < %s; j += 16) {\n", l->last);
    if (!l->even) text_print(to, "        const long lanes = %s - j < 16 ? %s - j : 16;\n", l->last, l->last);
    add_indented(to, text_get(&l->part), 2);
    text_add(to, "    }\n");
}

static void put_vector_loop(text *to, const vector_loop *l)
{
    text_add(to, "{\n");
    if (l->limits.length) { /* whole vectors where all bounds hold, others around them */
        add_indented(to, text_get(&l->limits), 1);
        text_print(to, "    for (long j = %s; j < %s;) {\n        if (j >= inside_first) {\n", l->first, l->last);
        put_whole(to, l, "inside_last", 3);
        text_print(to, "        }\n        if (j >= %s) break;\n", l->last);
        text_print(to, "        const long lanes = %s - j < 16 ? %s - j : 16;\n", l->last, l->last);
        add_indented(to, text_get(&l->part), 2);
        text_add(to, "        j += 16;\n    }\n");
    } else if (l->single && l->stream_head) {
        text_print(to, "    const long head = %s;\n", l->stream_head);
        text_print(to, "    long lanes = head ? head : 16;\n    for (long j = %s; j < %s; j += lanes, lanes = 16) {\n",
                   l->first, l->last);
        text_print(to, "        if (%s - j < lanes) lanes = %s - j;\n", l->last, l->last);
        add_indented(to, text_get(&l->part), 2);
        text_add(to, "    }\n");
    } else if (l->single) {
        text_print(to, "    long j = %s;\n", l->first);
        put_parts(to, l);
    } else if (l->stream_head) { /* up to the first aligned place, whole vectors, the rest */
        text_print(to, "    long j = %s, lanes = %s;\n    for (;;) {\n        if (!lanes) {\n", l->first,
                   l->stream_head);
        put_whole(to, l, l->last, 3);
        text_print(to, "            lanes = %s - j < 16 ? %s - j : 16;\n        }\n", l->last, l->last);
        text_print(to, "        if (lanes > %s - j) lanes = %s - j;\n        if (lanes <= 0) break;\n", l->last,
                   l->last);
        add_indented(to, text_get(&l->part), 2);
        text_add(to, "        j += lanes;\n        lanes = 0;\n    }\n");
    } else if (!l->whole.length) {
        text_print(to, "    const long j = 0, lanes = %s;\n", l->last);
        add_indented(to, text_get(&l->part), 1);
    } else {
        text_print(to, "    long j = %s;\n", l->first);
        put_whole(to, l, l->last, 1);
        if (l->part.length && l->unroll > 1) {
            put_parts(to, l);
        } else if (l->part.length) {
            text_print(to, "    if (j < %s) {\n        const long lanes = %s - j;\n", l->last, l->last);
            add_indented(to, text_get(&l->part), 2);
            text_add(to, "    }\n");
        }
    }
    text_add(to, "}\n");
}

/* Short bodies that fold: several accumulators hide the latency of the folding operation. */
static bool pays_to_unroll(const nest *n, bool part_only)
{
    int weight = 0, folds = 0;
    for (int i = 0; i < n->pass->sink_count; i++) {
        const sink *s = &n->pass->sinks[i];
        if (is_position(s) || is_fold_in_buffer(s) || s->kind == SINK_ATOMIC || s->kind == SINK_ASSERT) return false;
        weight += sink_weight(n->e->survey, s);
        folds += s->kind == SINK_REDUCE;
    }
    int64_t extent = n->pass->loops[n->loops - 1];
    return folds && weight <= LIGHT_BODY && !part_only && (extent < 0 || extent >= 16 * UNROLL);
}

/* Bodies that only stream and compute long chains: several in step keep the processor busy while each of them waits. */
static bool pays_to_overlap(const nest *n, bool part_only)
{
    int weight = 0;
    for (int i = 0; i < n->pass->sink_count; i++) {
        const sink *s = &n->pass->sinks[i];
        if (s->kind != SINK_STORE || !store_streams(n, s->op)) return false;
        weight += sink_weight(n->e->survey, s);
    }
    int64_t extent = n->pass->loops[n->loops - 1];
    return weight >= CHAIN && weight <= CHAIN_TOO_LONG && !part_only && (extent < 0 || extent >= 16 * UNROLL);
}

/* Long bodies are written once: compiling them takes longer than the tests of the lanes. */
static bool body_is_long(const nest *n)
{
    int weight = 0;
    for (int i = 0; i < n->pass->sink_count; i++) weight += sink_weight(n->e->survey, &n->pass->sinks[i]);
    return weight >= LONG_BODY;
}

static text take_level(nest *n)
{
    text taken = n->level[n->loops];
    n->level[n->loops] = (text){0};
    forget_below(n, n->loops - 1);
    return taken;
}

static void put_failure(nest *n, const sink *s, const accumulator *a)
{
    emitter *e = n->e;
    text *out = e->out;
    int depth = e->depth;
    e->out = &n->level[n->outer];
    e->depth = 0;
    put(e, "if (%s) {", a->name);
    e->depth++;
    emit_failure(e, CPU_FAILED_ASSERT, s->op->line);
    e->depth--;
    put(e, "}");
    e->out = out;
    e->depth = depth;
}

static void emit_vector_pass(nest *n)
{
    emitter *e = n->e;
    const pass_nest *pass = n->pass;
    int vector_axis = n->loops - 1;
    const char *first[MAX_RANK] = {0}, *last[MAX_RANK] = {0};
    for (int axis = n->outer; axis < n->loops; axis++) {
        n->known[axis] = (constraints){0};
        n->known[axis] = common_constraints(n, pass, 1, axis);
        put_limits(n, n->outer, &n->known[axis], extent_text(e, pass->loops[axis]), &first[axis], &last[axis]);
    }
    n->firsts = first;
    n->lasts = last;
    int64_t extent = pass->loops[vector_axis];
    bool bounded = n->known[vector_axis].count > 0, part_only = !bounded && extent >= 0 && extent < 16;
    bool even = limits_are_even(e, &n->known[vector_axis], extent);
    bool overlap = even && pays_to_overlap(n, part_only), unroll = overlap || pays_to_unroll(n, part_only);
    int bodies = !unroll ? 1 : overlap && e->options->bodies ? MINIMUM(e->options->bodies, UNROLL) : UNROLL;
    overlap &= bodies > 1;
    accumulator *accumulators = ARENA_ARRAY(e->memory, accumulator, pass->sink_count);
    n->in_blocks = true;
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        if (is_fold_in_buffer(s))
            put_fill(n, s);
        else if (s->kind == SINK_REDUCE || s->kind == SINK_ASSERT)
            accumulators[i] = declare_accumulator(n, s, bodies);
    }
    n->in_blocks = false;
    n->inside = (constraints){0};
    n->stream_base = NULL;
    text blocks = {0};
    const char *filled = arena_print(e->memory, "filled%d", e->serial);
    put_sum_blocks(n, accumulators, pass->sink_count, filled, &blocks);
    if (blocks.length) put_at(n, n->outer, "long %s = 0, %s_blocks = 0;", filled, filled);
    vector_loop l = {
        .blocks = blocks, .filled = filled, .first = first[vector_axis], .last = last[vector_axis], .unroll = bodies};
    n->partial = false;
    at_part(n, 0);
    n->from_zero = l.first == words_zero;
    if (!part_only) put_bodies(n, accumulators, l.unroll, overlap);
    l.whole = take_level(n);
    if (n->stream_base && !n->inside.count)
        l.stream_head = arena_print(e->memory, "-((long)(%s + %s) / (long)sizeof(*%s)) & 15", n->stream_base, l.first,
                                    n->stream_base);
    l.even = even && !n->inside.count && !l.stream_head && !part_only;
    if (!l.even) {
        l.single = !part_only && !n->inside.count && body_is_long(n);
        n->partial = true;
        n->single = l.single;
        put_body(n, accumulators);
        l.part = take_level(n);
        if (l.single && blocks.length) text_print(&l.part, "%s++;\n%s", filled, text_get(&blocks));
        n->partial = n->single = false;
        if (l.single) text_clear(&l.whole);
        if (l.single) overlap = false;
    } else if (unroll) {
        put_body(n, accumulators);
        l.part = take_level(n);
    }
    if (n->inside.count) {
        text_print(&l.limits, "long inside_first = %s, inside_last = %s;\n", l.first, l.last);
        for (int i = 0; i < n->inside.count; i++) {
            const constraint *c = &n->inside.items[i];
            const char *start = emit_name(e, c->start);
            text_print(&l.limits, "if (-%s > inside_first) inside_first = -%s;\n", start, start);
            text_print(&l.limits, "if (%s - %s < inside_last) inside_last = %s - %s;\n", constraint_extent(e, c), start,
                       constraint_extent(e, c), start);
        }
    }
    e->overlaps |= overlap;
    text loop = {0};
    put_vector_loop(&loop, &l);
    text_free(&l.whole);
    text_free(&l.part);
    text_free(&l.limits);
    text_free(&l.blocks);
    for (int axis = vector_axis - 1; axis >= n->outer; axis--) {
        text around = {0};
        text_print(&around, "for (long i%d = %s; i%d < %s; i%d++) {\n", axis, first[axis], axis, last[axis], axis);
        add_indented(&around, text_get(&n->level[axis + 1]), 1);
        add_indented(&around, text_get(&loop), 1);
        for (int i = 0; i < pass->sink_count; i++) {
            if (block_axis(e, pass, &pass->sinks[i], n->outer) != axis) continue;
            text emptying = {0};
            put_buffer_blocks(n, &pass->sinks[i], axis, first[axis], &emptying);
            add_indented(&around, text_get(&emptying), 1);
            text_free(&emptying);
        }
        text_add(&around, "}\n");
        text_free(&n->level[axis + 1]);
        n->level[axis + 1] = (text){0};
        text_free(&loop);
        loop = around;
    }
    text_add(&n->level[n->outer], text_get(&loop));
    text_free(&loop);
    forget_below(n, n->outer);
    n->firsts = n->lasts = NULL;
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        if (s->kind == SINK_ASSERT) {
            put_failure(n, s, &accumulators[i]);
        } else if (block_axis(e, pass, s, n->outer) != NO_AXIS) {
            put_buffer_sum(n, s);
        } else if (s->kind == SINK_REDUCE && !is_fold_in_buffer(s)) {
            finish_fold(n, &accumulators[i]);
            if (tile_type_of(e->k, s->result).rank) keep_fold(n, s);
        }
    }
}

/* A pass with no loops of its own: scalars at the level of the outer loops. */
static void emit_scalar_pass(nest *n)
{
    emitter *e = n->e;
    const pass_nest *pass = n->pass;
    accumulator *accumulators = ARENA_ARRAY(e->memory, accumulator, pass->sink_count);
    reg *values = ARENA_ARRAY(e->memory, reg, pass->sink_count);
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        tile_type type = tile_type_of(e->k, s->v);
        values[i] = sink_value(n, s, place_own(&type));
    }
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        if (s->kind == SINK_REDUCE) { /* of one element */
            const char *words = is_position(s) ? "0" : values[i].truth ? "1" : values[i].words;
            if (!tile_type_of(e->k, s->result).rank) {
                put_at(n, n->outer, "%s = %s;", emit_name(e, s->result), words);
            } else {
                place at = place_of_result(n, s);
                reg r = nest_define(n, s->result, tile_type_of(e->k, s->result).elem, n->outer, words);
                nest_remember(n, s->result, at, r);
                keep_fold(n, s);
            }
            continue;
        }
        if (s->kind == SINK_SCALAR) {
            put_at(n, n->outer, "%s = %s;", emit_name(e, s->result), values[i].truth ? "1" : values[i].words);
            continue;
        }
        if (s->kind == SINK_ASSERT) accumulators[i] = declare_accumulator(n, s, 1);
        write_sink(n, s, values[i], &accumulators[i]);
        if (s->kind == SINK_ASSERT) put_failure(n, s, &accumulators[i]);
    }
}

void emit_group(emitter *e, const group *g)
{
    nest n = {.e = e, .group = g, .outer = g->outer, .position = "j"};
    for (int p = 0; p < g->pass_count; p++) {
        for (int i = 0; i < g->passes[p].sink_count; i++) {
            const sink *s = &g->passes[p].sinks[i];
            bool fold = s->kind == SINK_REDUCE;
            put_line_comment(e, s->op);
            if (s->kind == SINK_SCALAR || (fold && !tile_type_of(e->k, s->result).rank))
                put(e, "%s %s;", scalar_c_type(tile_type_of(e->k, s->result).elem), emit_name(e, s->result));
            bool buffered = s->kind == SINK_KEEP || s->kind == SINK_COPY || (fold && e->survey->force[s->result]) ||
                            (s->kind == SINK_ATOMIC && e->survey->uses[s->result]);
            if (!buffered) continue;
            int number = buffer_for(e->survey, s->result); /* which may move the array of buffers */
            if (fold && block_axis(e, &g->passes[p], s, g->outer) != NO_AXIS) e->survey->buffers[number].more = 2;
            buffer_prepare(e, number);
        }
    }
    const char *first[MAX_RANK] = {0}, *last[MAX_RANK] = {0};
    for (int axis = 0; axis < g->outer; axis++) {
        n.known[axis] = common_constraints(&n, g->passes, g->pass_count, axis);
        put_limits(&n, 0, &n.known[axis], extent_text(e, g->passes[0].loops[axis]), &first[axis], &last[axis]);
    }
    for (int p = 0; p < g->pass_count; p++) {
        n.pass = &g->passes[p];
        n.loops = n.pass->loop_count;
        n.vector = n.loops > n.outer;
        e->survey->pass_number++;
        if (n.vector)
            emit_vector_pass(&n);
        else
            emit_scalar_pass(&n);
    }
    text body = n.level[n.outer];
    for (int axis = n.outer - 1; axis >= 0; axis--) {
        text around = n.level[axis];
        text_print(&around, "for (long i%d = %s; i%d < %s; i%d++) {\n", axis, first[axis], axis, last[axis], axis);
        add_indented(&around, text_get(&body), 1);
        text_add(&around, "}\n");
        text_free(&body);
        body = around;
    }
    put(e, "{");
    add_indented(e->out, text_get(&body), e->depth + 1);
    put(e, "}");
    text_free(&body);
}
