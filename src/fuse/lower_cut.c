/*
 * Rows that are cut. In: row reductions over inner axes that do not collapse, the last of them a line of memory (a norm
 * over images and pixels of a channel). Out: a kernel of phases. For every reduction that waits for another, one phase in
 * which a program folds a line, and one that joins the lines of a row; then a phase of lines for the results.
 * Where the last axis is short (pixels of an image that lies in a larger one) a line has several: as many of the last ones
 * as make a long one, and its places in memory are computed.
 *
 * A line begins anywhere and is read in whole vectors, where a row that is taken as one would go element by element; and
 * lines of different rows run at once, where a row that nothing holds would have the whole chip wait for its sum.
 * A sum of squares of what is left when the mean is taken away waits for the mean, and is not worth another read: each line
 * gives it about its own mean, and joining adds how far that lies from the row's, line by line; likewise exponentials below
 * the maximum.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/loop.h"
#include "fuse/sizes.h"

#define CUT_ROW FUSE_SIZE(16384 - 16)         /* a block holds a row up to here */
#define CUT_LEAST FUSE_SIZE((int64_t)1 << 22) /* elements of all rows from which on joining is little beside reading */
#define CUT_JOIN FUSE_SIZE(1024)              /* lines that are joined at once */
#define CUT_PIECE FUSE_SIZE(2048)             /* of a line that begins at a vector, where nothing is folded */

typedef struct cut_fold {
    int term;
    int stage; /* how many reductions it waits for, and itself */
    int pair; /* of squares about a mean: the fold of the sum (index in folds); of exponentials: of the maximum; -1: it is none */
    loop_pair of;
    int parts, joined; /* scratch: [rows][lines], [rows] */
} cut_fold;

typedef struct cut {
    const loop *p;
    lowering *l;
    const int *outer, *lines, *line; /* kernel axes: of programs, of the lines of a row, of a line */
    int outer_count, line_count, length_count;
    int length; /* a parameter: the elements of a line of several axes */
    cut_fold folds[LOWER_ARRAYS];
    int count, stages;
} cut;

/* A fold that waits for another and need not (pair.c). */
static void find_pair(cut *c, cut_fold *f)
{
    if (!loop_find_pair(c->p, f->term, &f->of)) return;
    for (int i = 0; i < c->count; i++) {
        if (c->folds[i].term != f->of.first || c->folds[i].pair >= 0) continue;
        f->pair = i;
        f->stage = c->folds[i].stage;
    }
}

/* Stages by what each fold waits for, once squares wait for nothing more than their sum. */
static bool find_folds(cut *c)
{
    const trace *t = c->p->t;
    int *stage = ARENA_ARRAY(c->l->memory, int, t->term_count);
    for (int i = 1; i < t->term_count; i++) {
        const term *x = &t->terms[i];
        for (int k = 0; k < x->input_count; k++) stage[i] = MAXIMUM(stage[i], stage[x->inputs[k]]);
        if (!loop_is_row_fold(c->p, x)) continue;
        if (c->count == LOWER_ARRAYS || x->fold == FOLD_ARGMAX || x->fold == FOLD_ARGMIN) return false;
        cut_fold *f = &c->folds[c->count];
        *f = (cut_fold){.term = i, .stage = stage[i] + 1, .pair = -1};
        find_pair(c, f);
        stage[i] = f->stage;
        c->stages = MAXIMUM(c->stages, f->stage);
        c->count++;
    }
    return c->count > 0;
}

static int64_t extents_of(const lowering *l, const int *axes, int count)
{
    int64_t all = 1;
    for (int i = 0; i < count; i++) all *= l->extents[axes[i]];
    return all;
}

/* Do lines begin at vectors, one after the other? */
static bool lies_in_vectors(const loop *p, int64_t line)
{
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (x->kind != TERM_ACCESS || (x->axes & p->inner) != p->inner) continue;
        if (line * dtypes[graph_get(p->t->g, x->n)->elem].size_bytes % 16) return false;
    }
    return true;
}

static bool output_is_wide(const loop *p, int i)
{
    for (int k = 0; k < p->outputs[i].map.rank; k++)
        if (affine_axes(&p->outputs[i].map.axes[k], p->t->atom_axes) & p->inner) return true;
    return false;
}

/* How many of the last inner axes make a line: all but one at most; 0: a line would be too short. */
static int axes_of_line(const lowering *l, const int *inner, int count)
{
    int64_t line = 1;
    for (int i = 1; i < count; i++)
        if ((line *= l->extents[inner[count - i]]) >= LOOP_CUT_LINE) return i;
    return 0;
}

bool cut_is_better(const loop *p, const lowering *l, const int *inner, int count, const int *outer, int outer_count)
{
    int of_line = axes_of_line(l, inner, count);
    int64_t line = extents_of(l, inner + count - of_line, of_line), lines = extents_of(l, inner, count - of_line);
    int64_t row = line * lines, rows = extents_of(l, outer, outer_count), units = p->b->options->units;
    cut c = {.p = p, .l = (lowering *)l};
    if (!p->b->options->gpu || !of_line || row <= CUT_ROW || lines * rows < units || !find_folds(&c)) return false;
    bool waits = c.stages > 1 || row * rows < CUT_LEAST; /* for its reduction: else a row is read once in any case */
    for (int i = 0; i < p->output_count; i++) waits |= output_is_wide(p, i);
    if (of_line > 1) return row > LOOP_CUT_CHIP && rows < units;
    return !waits || row > LOOP_CUT_CHIP || !lies_in_vectors(p, line);
}

/* ---- places ---- */

static value head_product(lowering *l, const int *axes, int count)
{
    value all = lower_integer(l, l->k->head, 1);
    for (int i = 0; i < count; i++)
        all = lower_op(l, l->k->head, OP_MUL, DT_I64, (value[]){all, lower_head_extent(l, axes[i])}, 2, 0);
    return all;
}

static value product(lowering *l, const int *axes, int count)
{
    value all = lower_integer(l, l->phase, 1);
    for (int i = 0; i < count; i++)
        all = lower_op(l, l->phase, OP_MUL, DT_I64, (value[]){all, lower_extent(l, axes[i])}, 2, 0);
    return all;
}

static value place_of(lowering *l, const int *axes, const value *at, int count)
{
    value place = lower_integer(l, l->phase, 0);
    for (int i = 0; i < count; i++) {
        place = lower_op(l, l->phase, OP_MUL, DT_I64, (value[]){place, lower_extent(l, axes[i])}, 2, 0);
        place = lower_op(l, l->phase, OP_ADD, DT_I64, (value[]){place, at[i]}, 2, 0);
    }
    return place;
}

static dtype elem_of(const cut *c, const cut_fold *f)
{
    const term *terms = c->p->t->terms;
    return terms[terms[f->term].inputs[0]].elem;
}

static void make_scratch(cut *c)
{
    lowering *l = c->l;
    value extents[2] = {head_product(l, c->outer, c->outer_count), head_product(l, c->lines, c->line_count)};
    for (int i = 0; i < c->count; i++) {
        cut_fold *f = &c->folds[i];
        f->parts = lower_scratch(l, arena_print(l->memory, "part%d", i), elem_of(c, f), extents, 2);
        f->joined = lower_scratch(l, arena_print(l->memory, "whole%d", i), elem_of(c, f), extents, 1);
    }
}

/* What phases before this one have joined. */
static void bind_joined(const cut *c, frame *f, value row, int stage)
{
    int along = -1;
    bool safe = true;
    for (int i = 0; i < c->count; i++)
        if (c->folds[i].stage < stage)
            lower_bind(f, c->folds[i].term, lower_load_array(c->l, f, c->folds[i].joined, &row, &along, &safe));
}

static value elements_of_line(const cut *c)
{
    return c->length_count == 1 ? lower_extent(c->l, c->line[0]) : lower_scalar_value(c->l, c->l->phase, c->length);
}

/* ---- phases ---- */

/* A program for each line of each row, or for each piece of one, in the order in which they lie in memory. */
static frame *line_phase(const cut *c, bool pieces, value *row, value *line)
{
    lowering *l = c->l;
    int axes[SPACE_AXES], count = 0;
    int64_t blocks[SPACE_AXES];
    value starts[SPACE_AXES], of_row[SPACE_AXES], of_line[SPACE_AXES], first = 0;
    int last = c->line[c->length_count - 1];
    for (int a = 0; a < l->axis_count; a++) {
        bool is_program = pieces && a == last;
        for (int i = 0; i < c->outer_count; i++) is_program |= c->outer[i] == a;
        for (int i = 0; i < c->line_count; i++) is_program |= c->lines[i] == a;
        if (is_program) axes[count++] = a;
    }
    for (int i = 0; i < count; i++) blocks[i] = axes[i] == last ? CUT_PIECE : 1;
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    loop_programs(l, f, axes, blocks, count, l->k->phase_count - 1, 0, starts);
    for (int a = 0; a < count; a++) {
        for (int i = 0; i < c->outer_count; i++)
            if (c->outer[i] == axes[a]) of_row[i] = starts[a];
        for (int i = 0; i < c->line_count; i++)
            if (c->lines[i] == axes[a]) of_line[i] = starts[a];
        if (axes[a] == last) first = starts[a];
    }
    *row = place_of(l, c->outer, of_row, c->outer_count);
    *line = place_of(l, c->lines, of_line, c->line_count);
    f->rank = 1;
    f->dims[0] = pieces ? CUT_PIECE : -(int64_t)elements_of_line(c);
    if (c->length_count == 1)
        frame_tile(f, last, 0, first, pieces);
    else
        lower_digits(l, f, c->line, c->length_count);
    return f;
}

static value line_length(const cut *c, tile_block *b)
{
    return lower_convert(c->l, b, elements_of_line(c), DT_F32);
}

static value arithmetic(lowering *l, tile_block *b, op_code code, value x, value y)
{
    return lower_op(l, b, code, DT_F32, (value[]){x, y}, 2, 0);
}

/* The squares of a line about its own mean, its exponentials below its own maximum. first: the fold it waits for. */
static value line_pair(const cut *c, frame *f, const cut_fold *x, value first)
{
    lowering *l = c->l;
    value some = lower_broadcast(l, f, lower_term(l, f, x->of.source), 1);
    if (x->of.kind == PAIR_EXPONENTS) {
        pair_state both = {lower_broadcast(l, f, lower_number(l, f->block, DT_F32, (number){.f = 1}), 1), some};
        pair_leave(l, f, PAIR_EXPONENTS, 0, 0, true, &both);
        return both.fold;
    }
    value mean = arithmetic(l, f->block, OP_DIV, first, line_length(c, f->block));
    value left = arithmetic(l, f->block, OP_SUB, some, mean);
    value square = arithmetic(l, f->block, OP_MUL, left, left);
    return lower_reduce(l, f, square, FOLD_SUM, c->p->t->terms[x->term].n, 1, true);
}

static void fold_lines(const cut *c, int stage)
{
    value at[2], part[LOWER_ARRAYS];
    int along[2] = {-1, -1};
    bool safe[2] = {true, true};
    frame *f = line_phase(c, false, &at[0], &at[1]);
    bind_joined(c, f, at[0], stage);
    for (int i = 0; i < c->count; i++) {
        const cut_fold *x = &c->folds[i];
        if (x->stage != stage) continue;
        part[i] = x->pair < 0 ? lower_fold(c->l, f, x->term) : line_pair(c, f, x, part[x->pair]);
        lower_store_array(c->l, f, x->parts, at, along, safe, part[i]);
    }
    lower_checks(c->l, f);
}

/* One number of all lines of a row. about: of a pair, the mean or the maximum of the row; 0: it is none. */
static value join_lines(const cut *c, frame *f, const cut_fold *x, value row, value about)
{
    lowering *l = c->l;
    const term *t = &c->p->t->terms[x->term];
    value lines = product(l, c->lines, c->line_count), block = lower_integer(l, f->block, CUT_JOIN);
    value length = about ? line_length(c, f->block) : 0;
    frame *whole = lower_frame(l, f, f->block);
    whole->rank = 1;
    whole->dims[0] = CUT_JOIN;
    value none = lower_number(l, f->block, elem_of(c, x), fold_identity(t->fold, elem_of(c, x)));
    value carried = lower_broadcast(l, whole, none, 1), result;
    lower_for loop = lower_for_begin(l, lower_integer(l, f->block, 0), lines, block, &carried, 1);
    frame *g = lower_frame(l, whole, loop.body);
    g->rank = 1;
    g->dims[0] = CUT_JOIN;
    value at[2] = {row, loop.index};
    int along[2] = {-1, 0};
    bool safe[2] = {true, false};
    value some = lower_load_array(l, g, x->parts, at, along, safe);
    if (about) { /* how far the line's mean lies from the row's, as often as it has elements; its maximum below the row's */
        pair_state part = {some, lower_load_array(l, g, c->folds[x->pair].parts, at, along, safe)};
        if (x->of.kind == PAIR_SQUARES) part.beside = arithmetic(l, g->block, OP_DIV, part.beside, length);
        some = pair_join(l, g, x->of.kind, about, length, &part);
    }
    value next = lower_combine(l, g, t->fold, loop.carried[0], some, 0);
    next = lower_keep_beyond(l, g, loop.index, lines, next, loop.carried[0]);
    lower_for_end(l, f->block, &loop, &next, &result);
    return lower_reduce(l, whole, result, t->fold, t->n, 1, true);
}

static void join_phase(const cut *c, int stage)
{
    lowering *l = c->l;
    const loop *p = c->p;
    int64_t blocks[SPACE_AXES];
    value starts[SPACE_AXES];
    int along = -1;
    bool safe = true;
    for (int i = 0; i < c->outer_count; i++) blocks[i] = 1;
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    loop_programs(l, f, c->outer, blocks, c->outer_count, l->k->phase_count - 1, 0, starts);
    value row = place_of(l, c->outer, starts, c->outer_count);
    bind_joined(c, f, row, stage);
    for (int i = 0; i < c->count; i++) {
        const cut_fold *x = &c->folds[i];
        if (x->stage != stage) continue;
        value all = join_lines(c, f, x, row, x->pair < 0 ? 0 : lower_term(l, f, x->of.about));
        lower_bind(f, x->term, all);
        lower_store_array(l, f, x->joined, &row, &along, &safe, all);
    }
    for (int i = 0; i < p->output_count && stage == c->stages; i++)
        if (!output_is_wide(p, i)) lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
}

qn_status cut_rows(const loop *p, lowering *l, const int *inner, int count, const int *outer, int outer_count,
                   fuse_kernel *out, qn_error *error)
{
    cut c = {.p = p, .l = l, .outer = outer, .lines = inner, .outer_count = outer_count};
    bool wide = false;
    c.length_count = axes_of_line(l, inner, count);
    c.line_count = count - c.length_count;
    c.line = inner + c.line_count;
    int64_t length = extents_of(l, c.line, c.length_count);
    if (c.length_count > 1) c.length = lower_scalar(l, "line", length);
    CHECK(find_folds(&c));
    make_scratch(&c);
    for (int stage = 1; stage <= c.stages; stage++) {
        fold_lines(&c, stage);
        join_phase(&c, stage);
    }
    for (int i = 0; i < p->output_count; i++) wide |= output_is_wide(p, i);
    if (wide) {
        value row, line;
        bool pieces = c.length_count == 1 && lies_in_vectors(p, length);
        frame *f = line_phase(&c, pieces, &row, &line);
        bind_joined(&c, f, row, c.stages + 1);
        for (int i = 0; i < p->output_count; i++)
            if (output_is_wide(p, i)) lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
    }
    return lower_finish(l, out, error);
}
