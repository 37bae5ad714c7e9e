/*
 * Reductions over outer axes. A program takes a block of columns and a chunk of the rows, and carries the partial
 * result of every fold through a loop over its rows; a second phase joins the chunks. Without inner axes everything is
 * folded, and a block of elements is what is carried. The order of additions depends on the extents alone.
 * With row reductions beside (LOOP_BOTH) a program takes whole rows, one after the other.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/loop.h"

#include <string.h>

#define COLUMN_BLOCK 4096 /* elements that a program carries */
#define JOIN_ROWS 16      /* parts that are joined at once */
#define JOIN_ROWS_MANY 64 /* ... where a GPU leaves some hundred */
#define JOIN_COLUMNS 64
#define JOIN_BLOCK 2048

/* The late folds and where their parts wait. */
typedef struct parts {
    int folds[LOWER_ARRAYS], count;
    fold_kind kinds[LOWER_ARRAYS];
    int scratch[LOWER_ARRAYS];   /* parameters [parts][the other kept axes ...] */
    unsigned kept[LOWER_ARRAYS]; /* inner axes of the space that the fold keeps: all or none */
    int part_param;
    int64_t part_count;
    int64_t join_rows;
} parts;

static void find_folds(const loop *p, lowering *l, parts *c)
{
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (x->kind != TERM_FOLD || !x->folded || (x->folded == p->inner && p->inner)) continue;
        if (c->count == LOWER_ARRAYS - 1 || x->fold == FOLD_ARGMAX || x->fold == FOLD_ARGMIN) {
            l->why = "a position along axes that do not lie together";
            return;
        }
        c->kept[c->count] = x->axes & p->inner;
        c->kinds[c->count] = x->fold;
        c->folds[c->count++] = i;
    }
}

/* Sums of a CPU's programs go in blocks of so many turns; a GPU has programs for all turns and no registers for more. */
#define SUM_BLOCK 256
static int sum_levels(const loop *p)
{
    return p->b->options->gpu ? 0 : 1;
}

/* So do a CPU's parts, of which there are more with every thread: a row of a tile for each program. */
#define JOIN_SUM_BLOCK 32
static int join_levels(const loop *p, const parts *c)
{
    int64_t turns = (c->part_count + c->join_rows - 1) / c->join_rows;
    if (!sum_levels(p) || turns <= JOIN_SUM_BLOCK) return 0;
    return turns <= JOIN_SUM_BLOCK * JOIN_SUM_BLOCK ? 1 : 2;
}

static dtype fold_elem(const loop *p, int fold)
{
    return p->t->terms[p->t->terms[fold].inputs[0]].elem;
}

static value identity(const loop *p, lowering *l, tile_block *b, int fold)
{
    dtype elem = fold_elem(p, fold);
    return lower_number(l, b, elem, fold_identity(p->t->terms[fold].fold, elem));
}

static void make_scratch(const loop *p, lowering *l, parts *c, const int *kept, int kept_count)
{
    c->part_param = lower_scalar(l, "parts", c->part_count);
    value head_parts = lower_scalar_value(l, l->k->head, c->part_param);
    for (int i = 0; i < c->count; i++) {
        value extents[MAX_RANK] = {head_parts};
        int rank = 1;
        for (int k = 0; k < kept_count && c->kept[i] && rank < MAX_RANK; k++)
            extents[rank++] = lower_head_extent(l, kept[k]);
        c->scratch[i] = lower_scratch(l, arena_print(l->memory, "part%d", i), fold_elem(p, c->folds[i]), extents, rank);
    }
}

static bool is_late_output(const loop *p, int i)
{
    return p->late[p->outputs[i].term];
}

static bool output_is_wide(const loop *p, int i)
{
    for (int k = 0; k < p->outputs[i].map.rank; k++)
        if (affine_axes(&p->outputs[i].map.axes[k], p->t->atom_axes) & p->inner) return true;
    return false;
}

/* ---- joining ---- */

/* The joined value of a fold that keeps nothing, in any frame: a block of parts at a time. */
static value join_scalar(const loop *p, lowering *l, frame *f, const parts *c, int i, value part_count)
{
    const term *x = &p->t->terms[c->folds[i]];
    frame *whole = lower_frame(l, f, f->block);
    whole->rank = 1;
    whole->dims[0] = JOIN_BLOCK;
    value carried = lower_broadcast(l, whole, identity(p, l, f->block, c->folds[i]), 1), sum;
    lower_for loop = lower_for_begin(l, lower_integer(l, f->block, 0), part_count,
                                     lower_integer(l, f->block, JOIN_BLOCK), &carried, 1);
    frame *g = lower_frame(l, whole, loop.body);
    g->rank = 1;
    g->dims[0] = JOIN_BLOCK;
    int axis = 0;
    bool safe = false;
    value some = lower_load_array(l, g, c->scratch[i], &loop.index, &axis, &safe);
    value next = lower_combine(l, g, x->fold, loop.carried[0], some, 0);
    next = lower_keep_beyond(l, g, loop.index, part_count, next, loop.carried[0]);
    lower_for_end(l, f->block, &loop, &next, &sum);
    return lower_reduce(l, whole, sum, x->fold, x->n, 1, true);
}

static void join_scalars(const loop *p, lowering *l, frame *f, const parts *c, value part_count)
{
    for (int i = 0; i < c->count; i++)
        if (!c->kept[i]) lower_bind(f, c->folds[i], join_scalar(p, l, f, c, i, part_count));
}

static void join_phase_scalars(const loop *p, lowering *l, const parts *c)
{
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    value one = lower_integer(l, l->k->head, 1);
    lower_phase_launch(l, l->k->phase_count - 1, &one, 1);
    join_scalars(p, l, f, c, lower_scalar_value(l, l->phase, c->part_param));
    for (int i = 0; i < p->output_count; i++)
        if (is_late_output(p, i) && !output_is_wide(p, i))
            lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
}

/* Columns: every program joins the parts of its block of the last kept axis. */
static void join_phase_columns(const loop *p, lowering *l, const parts *c, const int *kept, int kept_count)
{
    int64_t blocks[SPACE_AXES];
    value starts[SPACE_AXES], carried[LOWER_ARRAYS], next[LOWER_ARRAYS], results[LOWER_ARRAYS];
    int which[LOWER_ARRAYS], count = 0, last = kept[kept_count - 1];
    fold_kind kinds[LOWER_ARRAYS];
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    for (int i = 0; i < kept_count; i++) blocks[i] = 1;
    blocks[kept_count - 1] = JOIN_COLUMNS;
    loop_programs(l, f, kept, blocks, kept_count, l->k->phase_count - 1, 0, starts);
    value part_count = lower_scalar_value(l, l->phase, c->part_param);
    f->rank = 2;
    f->dims[0] = 1;
    f->dims[1] = JOIN_COLUMNS;
    frame_tile(f, last, 1, starts[kept_count - 1], true);
    join_scalars(p, l, f, c, part_count);
    for (int i = 0; i < c->count; i++) {
        if (!c->kept[i]) continue;
        frame wide = *f;
        wide.dims[0] = c->join_rows;
        carried[count] = lower_broadcast(l, &wide, identity(p, l, f->block, c->folds[i]), 3);
        kinds[count] = c->kinds[i];
        which[count++] = i;
    }
    lower_sums loop = lower_sums_begin(l, f->block, lower_integer(l, f->block, 0), part_count,
                                       lower_integer(l, f->block, c->join_rows), join_levels(p, c), JOIN_SUM_BLOCK,
                                       carried, kinds, count);
    frame *g = lower_frame(l, f, loop.in.body);
    g->rank = 2;
    g->dims[0] = c->join_rows;
    g->dims[1] = JOIN_COLUMNS;
    frame_tile(g, last, 1, starts[kept_count - 1], true);
    for (int i = 0; i < count; i++) {
        value at[MAX_RANK] = {loop.in.index};
        int axis[MAX_RANK] = {0}, rank = 1;
        bool safe[MAX_RANK] = {false};
        for (int k = 0; k < kept_count; k++, rank++) {
            axis[rank] = k == kept_count - 1 ? 1 : -1;
            safe[rank] = k != kept_count - 1;
            at[rank] = starts[k];
        }
        value v = lower_load_array(l, g, c->scratch[which[i]], at, axis, safe);
        fold_kind fold = p->t->terms[c->folds[which[i]]].fold;
        value sum = lower_combine(l, g, fold, loop.in.carried[i], v, 0);
        next[i] = lower_keep_beyond(l, g, loop.in.index, part_count, sum, loop.in.carried[i]);
    }
    lower_sums_end(l, f->block, &loop, next, results);
    for (int i = 0; i < count; i++) {
        /* Columns beyond the end hold nothing that exists; no result of theirs is stored. */
        frame wide = *f;
        wide.dims[0] = c->join_rows;
        const term *x = &p->t->terms[c->folds[which[i]]];
        lower_bind(f, c->folds[which[i]],
                   lower_reduce(l, f, lower_fill(l, &wide, results[i], x->fold), x->fold, x->n, 1, false));
    }
    for (int i = 0; i < p->output_count; i++)
        if (is_late_output(p, i) && output_is_wide(p, i))
            lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
}

static void join_phases(const loop *p, lowering *l, const parts *c, const int *kept, int kept_count)
{
    bool scalars = false, columns = false;
    for (int i = 0; i < p->output_count; i++) {
        if (!is_late_output(p, i)) continue;
        if (output_is_wide(p, i))
            columns = true;
        else
            scalars = true;
    }
    if (columns) join_phase_columns(p, l, c, kept, kept_count);
    if (scalars) join_phase_scalars(p, l, c);
}

/* ---- chunks of rows ---- */

static void scalars_of(lowering *l, frame *f, value index, const int *axes, int count)
{
    for (int i = count - 1; i > 0; i--) {
        value n = lower_extent(l, axes[i]);
        frame_scalar(f, axes[i], lower_op(l, f->block, OP_MOD, DT_I64, (value[]){index, n}, 2, 0));
        index = lower_op(l, f->block, OP_DIV, DT_I64, (value[]){index, n}, 2, 0);
    }
    if (count) frame_scalar(f, axes[0], index);
}

static value product(lowering *l, tile_block *b, const int *axes, int count)
{
    if (!count) return lower_integer(l, b, 1);
    value all = lower_extent(l, axes[0]);
    for (int i = 1; i < count; i++)
        all = lower_op(l, b, OP_MUL, DT_I64, (value[]){all, lower_extent(l, axes[i])}, 2, 0);
    return all;
}

static int64_t extents_product(const lowering *l, const int *axes, int count)
{
    int64_t all = 1;
    for (int i = 0; i < count; i++) all *= l->extents[axes[i]];
    return all;
}

/* How many chunks: enough programs for the device, chunks that are worth it. It must not depend on anything but the
 * extents and the device. */
static int64_t chunk_count(const loop *p, int64_t turns, int64_t others, int64_t least_turns)
{
    int64_t wanted = (int64_t)MAXIMUM(p->b->options->units, 1) * 4;
    int64_t count = wanted / MAXIMUM(others, 1);
    count = MINIMUM(count, turns / least_turns);
    return MAXIMUM(count, 1);
}

/* One step of each fold in the frame of a turn. */
static value step(const loop *p, lowering *l, frame *f, int fold, value carried)
{
    const term *x = &p->t->terms[fold];
    value v = lower_term(l, f, x->inputs[0]), mask = lower_mask(l, f);
    value sum = lower_combine(l, f, x->fold, carried, v, x->n);
    if (!mask) return sum;
    tile_type type = tile_type_of(l->k, carried);
    value next = lower_op(l, f->block, OP_SELECT, type.elem, (value[]){mask, sum, carried}, 3, 0);
    tile_def(l->k, next)->flags |= F_ASSIGN;
    return next;
}

static void store_part(lowering *l, frame *f, const parts *c, int i, value chunk, const value *starts, const int *axis,
                       const bool *safe, int kept_count, value v)
{
    value at[MAX_RANK] = {chunk};
    int along[MAX_RANK] = {-1};
    bool inside[MAX_RANK] = {true};
    for (int k = 0; k < kept_count; k++) {
        at[k + 1] = starts[k];
        along[k + 1] = axis[k];
        inside[k + 1] = safe[k];
    }
    lower_store_array(l, f, c->scratch[i], at, along, inside, v);
}

/* Wide columns on a GPU: a program carries one value a column in registers, and asks for several rows at once. */
#define WIDE_COLUMNS 256
#define WIDE_BLOCK 1024
#define WIDE_ROWS 8
#define WIDE_OPS 48     /* of the rows of a turn together: more are text for the compiler, and registers */
#define WIDE_FUNCTION 8 /* ops of a costly function */

/* So many rows that as much is asked for at once as eight rows of one array are. */
static int wide_rows(const loop *p)
{
    int arrays = 0, count = 0, rows = WIDE_ROWS;
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (!(x->axes & p->outer)) continue;
        arrays += x->kind == TERM_ACCESS;
        if (x->kind == TERM_OP) count += ops[x->op].costly ? WIDE_FUNCTION : 1;
    }
    while (rows > 2 && (rows * arrays > WIDE_ROWS || rows * count > WIDE_OPS)) rows /= 2;
    return rows;
}

/* The rows `row`, row + 1 ... of one turn, joined two by two and then with what is carried. */
static void wide_turn(const loop *p, lowering *l, frame *f, const lower_for *turns, const parts *c, const int *rows,
                      int row_count, value row, value others, int count, value *next)
{
    value parts[LOWER_ARRAYS][WIDE_ROWS];
    frame *g = NULL;
    for (int k = 0; k < count; k++) {
        g = lower_frame(l, f, turns->body);
        g->rank = 1;
        g->dims[0] = f->dims[0];
        value at =
            k ? lower_op(l, turns->body, OP_ADD, DT_I64, (value[]){row, lower_integer(l, turns->body, k)}, 2, 0) : row;
        frame_scalar(g, rows[row_count - 1], at);
        if (row_count > 1) scalars_of(l, g, others, rows, row_count - 1);
        for (int i = 0; i < c->count; i++)
            parts[i][k] = lower_broadcast(l, g, lower_term(l, g, p->t->terms[c->folds[i]].inputs[0]), 1);
        for (int i = 0; i < p->output_count; i++)
            if (!is_late_output(p, i)) lower_store(l, g, &p->outputs[i], lower_term(l, g, p->outputs[i].term));
        lower_checks(l, g);
    }
    for (int i = 0; i < c->count; i++) {
        const term *x = &p->t->terms[c->folds[i]];
        for (int s = 1; s < count; s *= 2)
            for (int k = 0; k + s < count; k += 2 * s)
                parts[i][k] = lower_combine(l, g, x->fold, parts[i][k], parts[i][k + s], x->n);
        /* Columns beyond the end are carried too, and never stored. */
        next[i] = lower_combine(l, g, x->fold, turns->carried[i], parts[i][0], x->n);
    }
}

static qn_status wide_columns(const loop *p, lowering *l, parts *c, const int *rows, int row_count, const int *kept,
                              int kept_count, fuse_kernel *out, qn_error *error)
{
    int last = kept[kept_count - 1], tiled = rows[row_count - 1];
    int64_t width = loop_width(l->extents[last], WIDE_BLOCK), blocks[SPACE_AXES], others = 1;
    for (int i = 0; i < kept_count; i++) blocks[i] = i == kept_count - 1 ? width : 1;
    for (int i = 0; i < kept_count; i++) others *= (l->extents[kept[i]] + blocks[i] - 1) / blocks[i];
    int at_once = wide_rows(p);
    int64_t turns = (l->extents[tiled] + at_once - 1) / at_once * extents_product(l, rows, row_count - 1);
    /* Programs that run all at once, eight of 128 threads on a multiprocessor: of a few more half would wait. */
    c->part_count = chunk_count(p, turns, MAXIMUM(others / 2, 1), 1);
    int chunk_param = lower_scalar(l, "chunks", c->part_count);
    make_scratch(p, l, c, kept, kept_count);
    value starts[SPACE_AXES], carried[LOWER_ARRAYS], next[LOWER_ARRAYS], results[LOWER_ARRAYS];
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    tile_block *b = f->block;
    value chunk = lower_program(l, 0);
    loop_programs(l, f, kept, blocks, kept_count, 0, lower_scalar_value(l, l->k->head, chunk_param), starts);
    f->rank = 1;
    f->dims[0] = width;
    frame_tile(f, last, 0, starts[kept_count - 1], true);
    for (int i = 0; i < c->count; i++) carried[i] = lower_broadcast(l, f, identity(p, l, b, c->folds[i]), 1);
    value by = lower_scalar_value(l, l->phase, chunk_param), many = lower_integer(l, b, at_once);
    value extent = lower_extent(l, tiled);
    value whole = lower_op(l, b, OP_DIV, DT_I64, (value[]){extent, many}, 2, 0);
    value done = lower_op(l, b, OP_MUL, DT_I64, (value[]){whole, many}, 2, 0);
    value rest = lower_op(l, b, OP_SUB, DT_I64, (value[]){extent, done}, 2, 0);
    value around = row_count > 1 ? product(l, b, rows, row_count - 1) : 0;
    for (int tail = 0; tail < 2; tail++) { /* turns of several rows, then the rows that are left, one by one */
        value each = tail ? rest : whole, limit = each;
        if (around) limit = lower_op(l, b, OP_MUL, DT_I64, (value[]){each, around}, 2, 0);
        lower_for loop = lower_for_begin(l, chunk, limit, by, carried, c->count);
        value at = loop.index, other = 0;
        if (around) {
            at = lower_op(l, loop.body, OP_MOD, DT_I64, (value[]){loop.index, each}, 2, 0);
            other = lower_op(l, loop.body, OP_DIV, DT_I64, (value[]){loop.index, each}, 2, 0);
        }
        value row = tail ? lower_op(l, loop.body, OP_ADD, DT_I64, (value[]){done, at}, 2, 0)
                         : lower_op(l, loop.body, OP_MUL, DT_I64, (value[]){at, many}, 2, 0);
        wide_turn(p, l, f, &loop, c, rows, row_count, row, other, tail ? 1 : at_once, next);
        lower_for_end(l, b, &loop, next, results);
        memcpy(carried, results, sizeof(carried));
    }
    for (int i = 0; i < c->count; i++) {
        int axis[SPACE_AXES];
        bool safe[SPACE_AXES];
        for (int k = 0; k < kept_count; k++) {
            axis[k] = k == kept_count - 1 ? 0 : -1;
            safe[k] = k != kept_count - 1;
        }
        store_part(l, f, c, i, chunk, starts, axis, safe, kept_count, results[i]);
    }
    join_phases(p, l, c, kept, kept_count);
    return lower_finish(l, out, error);
}

qn_status column_kernel(const loop *p, fuse_kernel *out, qn_error *error)
{
    lowering *l = loop_begin(p);
    int rows[SPACE_AXES], kept[SPACE_AXES];
    int row_count = loop_axes(p, l, p->outer, rows), kept_count = loop_axes(p, l, p->inner, kept);
    bool gpu = p->b->options->gpu;
    parts c = {.join_rows = gpu ? JOIN_ROWS_MANY : JOIN_ROWS};
    find_folds(p, l, &c);
    if (kept_count >= MAX_RANK) l->why = "a result has more axes than an array can have";
    if (l->why) return lower_finish(l, out, error);
    if (gpu && kept_count && l->extents[kept[kept_count - 1]] >= WIDE_COLUMNS)
        return wide_columns(p, l, &c, rows, row_count, kept, kept_count, out, error);
    /* The tile: rows x columns where there are columns, else a block of the last folded axis. */
    int64_t dims[2] = {0}, blocks[SPACE_AXES];
    int rank, tiled = rows[row_count - 1], looped = row_count - 1; /* looped: folded axes taken one by one */
    if (kept_count) {
        dims[1] = loop_width(l->extents[kept[kept_count - 1]], 512);
        dims[0] = COLUMN_BLOCK / dims[1];
        rank = 2;
    } else {
        dims[0] = COLUMN_BLOCK;
        rank = 1;
    }
    for (int i = 0; i < kept_count; i++) blocks[i] = 1;
    if (kept_count) blocks[kept_count - 1] = dims[1];
    int64_t tiles = (l->extents[tiled] + dims[0] - 1) / dims[0], turns = tiles * extents_product(l, rows, looped);
    int64_t others = 1;
    for (int i = 0; i < kept_count; i++) others *= (l->extents[kept[i]] + blocks[i] - 1) / blocks[i];
    /* A CPU leaves each row of the tile as a part, since folding them is no more than joining them; on a GPU few programs
     * join, and many parts would keep them waiting. */
    int64_t chunks = chunk_count(p, turns, others, 4), rows_each = kept_count && !gpu ? dims[0] : 1;
    int chunk_param = lower_scalar(l, "chunks", chunks);
    c.part_count = chunks * rows_each;
    make_scratch(p, l, &c, kept, kept_count);

    value starts[SPACE_AXES], carried[LOWER_ARRAYS], next[LOWER_ARRAYS], results[LOWER_ARRAYS];
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    value chunk = lower_program(l, 0);
    loop_programs(l, f, kept, blocks, kept_count, 0, lower_scalar_value(l, l->k->head, chunk_param), starts);
    f->rank = rank;
    f->dims[0] = dims[0];
    f->dims[1] = dims[1];
    if (kept_count) frame_tile(f, kept[kept_count - 1], 1, starts[kept_count - 1], true);
    for (int i = 0; i < c.count; i++)
        carried[i] = lower_broadcast(l, f, identity(p, l, f->block, c.folds[i]), (1u << rank) - 1);
    /* Turn t is tile t % tiles of looped coordinate t / tiles; a chunk takes every so manyth. */
    value block = lower_integer(l, f->block, dims[0]);
    value tile_count = lower_op(l, f->block, OP_ADD, DT_I64,
                                (value[]){lower_extent(l, tiled), lower_integer(l, f->block, dims[0] - 1)}, 2, 0);
    tile_count = lower_op(l, f->block, OP_DIV, DT_I64, (value[]){tile_count, block}, 2, 0);
    value limit = tile_count;
    if (looped)
        limit = lower_op(l, f->block, OP_MUL, DT_I64, (value[]){tile_count, product(l, f->block, rows, looped)}, 2, 0);
    value by = lower_scalar_value(l, l->phase, chunk_param);
    lower_sums loop =
        lower_sums_begin(l, f->block, chunk, limit, by, sum_levels(p), SUM_BLOCK, carried, c.kinds, c.count);
    tile_block *body = loop.in.body;
    frame *g = lower_frame(l, f, body);
    g->rank = rank;
    memcpy(g->dims, f->dims, sizeof(g->dims));
    value tile = loop.in.index;
    if (looped) {
        tile = lower_op(l, body, OP_MOD, DT_I64, (value[]){loop.in.index, tile_count}, 2, 0);
        scalars_of(l, g, lower_op(l, body, OP_DIV, DT_I64, (value[]){loop.in.index, tile_count}, 2, 0), rows, looped);
    }
    value start = lower_op(l, body, OP_MUL, DT_I64, (value[]){tile, block}, 2, 0);
    frame_tile(g, tiled, 0, start, true);
    for (int i = 0; i < c.count; i++) next[i] = step(p, l, g, c.folds[i], loop.in.carried[i]);
    for (int i = 0; i < p->output_count; i++)
        if (!is_late_output(p, i)) lower_store(l, g, &p->outputs[i], lower_term(l, g, p->outputs[i].term));
    lower_checks(l, g);
    lower_sums_end(l, f->block, &loop, next, results);
    value first_part = rows_each > 1 ? lower_op(l, f->block, OP_MUL, DT_I64, (value[]){chunk, block}, 2, 0) : chunk;
    frame *left = lower_frame(l, f, f->block);
    left->rank = rank;
    left->dims[0] = rows_each;
    left->dims[1] = dims[1];
    for (int i = 0; i < c.count; i++) {
        const term *x = &p->t->terms[c.folds[i]];
        value at[MAX_RANK] = {first_part}, part = results[i];
        int axis[MAX_RANK] = {rows_each > 1 ? 0 : -1};
        bool safe[MAX_RANK] = {true};
        for (int k = 0; k < kept_count; k++) {
            at[k + 1] = starts[k];
            axis[k + 1] = k == kept_count - 1 ? 1 : -1;
            safe[k + 1] = k != kept_count - 1;
        }
        if (rows_each == 1) part = lower_reduce(l, f, part, x->fold, x->n, 1, !kept_count);
        lower_store_array(l, left, c.scratch[i], at, axis, safe, part);
    }
    join_phases(p, l, &c, kept, kept_count);
    return lower_finish(l, out, error);
}

/* ---- whole rows ---- */

#define ROW_OF_QUARTER 4096           /* elements of a row of which a multiprocessor runs four programs at once */
#define ROWS_APART ((int64_t)1 << 18) /* up to here each row leaves a part of its own where no columns are kept */

/* What a row adds to a late fold. */
static value row_value(const loop *p, lowering *l, frame *f, int fold)
{
    const term *x = &p->t->terms[fold];
    value v = lower_term(l, f, x->inputs[0]);
    if (!(x->folded & p->inner) || !p->inner) return v;
    return lower_reduce(l, f, lower_broadcast(l, f, v, 1), x->fold, x->n, 1, true);
}

static void store_row_outputs(const loop *p, lowering *l, frame *f)
{
    loop_lower_folds(p, l, f);
    for (int i = 0; i < p->output_count; i++)
        if (!is_late_output(p, i)) lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
}

/* Folds that keep nothing: a program a row, which leaves its part; nothing is carried. */
static qn_status rows_apart(const loop *p, lowering *l, parts *c, const int *rows, int row_count, int inner,
                            fuse_kernel *out, qn_error *error)
{
    int64_t blocks[SPACE_AXES];
    value starts[SPACE_AXES];
    for (int i = 0; i < row_count; i++) blocks[i] = 1;
    make_scratch(p, l, c, NULL, 0);
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    loop_programs(l, f, rows, blocks, row_count, 0, 0, starts);
    f->rank = 1;
    f->dims[0] = -(int64_t)lower_extent(l, inner);
    frame_tile(f, inner, 0, 0, false);
    value row = row_count ? starts[0] : lower_integer(l, f->block, 0);
    for (int i = 1; i < row_count; i++) {
        row = lower_op(l, f->block, OP_MUL, DT_I64, (value[]){row, lower_extent(l, rows[i])}, 2, 0);
        row = lower_op(l, f->block, OP_ADD, DT_I64, (value[]){row, starts[i]}, 2, 0);
    }
    store_row_outputs(p, l, f);
    for (int i = 0; i < c->count; i++)
        store_part(l, f, c, i, row, NULL, NULL, NULL, 0, row_value(p, l, f, c->folds[i]));
    lower_checks(l, f);
    join_phases(p, l, c, &inner, 1);
    return lower_finish(l, out, error);
}

qn_status both_kernel(const loop *p, fuse_kernel *out, qn_error *error)
{
    lowering *l = loop_begin(p);
    int rows[SPACE_AXES], inner[SPACE_AXES];
    int row_count = loop_axes(p, l, p->outer, rows), inner_count = loop_axes(p, l, p->inner, inner);
    parts c = {.join_rows = p->b->options->gpu ? JOIN_ROWS_MANY : JOIN_ROWS};
    find_folds(p, l, &c);
    if (inner_count != 1) l->why = "rows whose axes do not lie together";
    if (l->why) return lower_finish(l, out, error);
    bool columns = false;
    int64_t all_rows = extents_product(l, rows, row_count);
    for (int i = 0; i < c.count; i++) columns |= c.kept[i] != 0;
    c.part_count = all_rows;
    if (!columns && all_rows <= ROWS_APART) return rows_apart(p, l, &c, rows, row_count, inner[0], out, error);
    /* A multiprocessor holds fewer programs of long rows; each leaves a part as long as a row. */
    int64_t longer = p->b->options->gpu ? MINIMUM(MAXIMUM(l->extents[inner[0]] / ROW_OF_QUARTER, 1), 4) : 1;
    c.part_count = chunk_count(p, all_rows, longer, 1);
    make_scratch(p, l, &c, inner, inner_count);
    value carried[LOWER_ARRAYS], next[LOWER_ARRAYS], results[LOWER_ARRAYS];
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    value chunk = lower_program(l, 0), head_parts = lower_scalar_value(l, l->k->head, c.part_param);
    lower_phase_launch(l, 0, &head_parts, 1);
    value part_count = lower_scalar_value(l, l->phase, c.part_param);
    f->rank = 1;
    f->dims[0] = -(int64_t)lower_extent(l, inner[0]);
    frame_tile(f, inner[0], 0, 0, false);
    for (int i = 0; i < c.count; i++) {
        carried[i] = identity(p, l, f->block, c.folds[i]);
        if (c.kept[i]) carried[i] = lower_broadcast(l, f, carried[i], 1);
    }
    lower_sums loop = lower_sums_begin(l, f->block, chunk, product(l, f->block, rows, row_count), part_count,
                                       sum_levels(p), SUM_BLOCK, carried, c.kinds, c.count);
    frame *g = lower_frame(l, f, loop.in.body);
    g->rank = 1;
    g->dims[0] = f->dims[0];
    scalars_of(l, g, loop.in.index, rows, row_count);
    store_row_outputs(p, l, g);
    for (int i = 0; i < c.count; i++) {
        const term *x = &p->t->terms[c.folds[i]];
        next[i] = lower_combine(l, g, x->fold, loop.in.carried[i], row_value(p, l, g, c.folds[i]), x->n);
    }
    lower_checks(l, g);
    lower_sums_end(l, f->block, &loop, next, results);
    for (int i = 0; i < c.count; i++) {
        int axis = 0;
        bool safe = true;
        value zero = lower_integer(l, f->block, 0);
        store_part(l, f, &c, i, chunk, &zero, &axis, &safe, c.kept[i] ? 1 : 0, results[i]);
    }
    join_phases(p, l, &c, inner, inner_count);
    return lower_finish(l, out, error);
}
