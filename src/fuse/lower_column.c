/*
 * Reductions over outer axes. A program takes a block of columns and a chunk of the rows, and carries the partial
 * result of every fold through a loop over its rows; a second phase joins the chunks. Without inner axes everything is
 * folded, and a block of elements is what is carried. The order of additions depends on the extents alone.
 * With row reductions beside (LOOP_BOTH) a program takes whole rows, one after the other.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/column_parts.h"
#include "fuse/sizes.h"

#include <string.h>

#define COLUMN_BLOCK FUSE_SIZE(4096) /* elements that a program carries */
#define COLUMN_WIDTH FUSE_SIZE(512)
#define CARRIED_BLOCK FUSE_SIZE(1024) /* elements of the rows that a CPU carries */
#define CARRIED_ROWS 8                /* ... and rows, of wide ones */
#define JOIN_ROWS 16                  /* parts that are joined at once */
#define JOIN_ROWS_MANY 64             /* ... where a GPU leaves some hundred */
#define SUM_BLOCK FUSE_SIZE(256)      /* turns of a loop that adds up in blocks */

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
static int64_t chunk_count(const loop *p, int64_t turns, int64_t others, int64_t least_turns, int64_t tile)
{
    int64_t wanted = (int64_t)MAXIMUM(p->b->options->units, 1) * 4 * (COLUMN_BLOCK / MINIMUM(tile, COLUMN_BLOCK));
    int64_t count = wanted / MAXIMUM(others, 1);
    count = MINIMUM(count, turns / least_turns);
    return MAXIMUM(count, 1);
}

/* What is carried before the first row: one value a place of the frame. */
static void begin_carried(const loop *p, lowering *l, const parts *c, frame *f, value *carried)
{
    unsigned all = (1u << f->rank) - 1;
    for (int i = 0; i < c->count; i++) {
        carried[i] = lower_broadcast(l, f, parts_identity(p, l, f->block, c->folds[i]), all);
        if (!c->pairs[i].kind) continue;
        value beside = parts_identity_beside(l, f->block, c->pairs[i].kind);
        carried[c->beside_at[i]] = lower_broadcast(l, f, beside, all);
    }
}

/* now, but where there is no row what was carried before. */
static value where_rows(lowering *l, frame *f, value mask, value now, value carried)
{
    if (!mask) return now;
    value next =
        lower_op(l, f->block, OP_SELECT, tile_type_of(l->k, carried).elem, (value[]){mask, now, carried}, 3, 0);
    tile_def(l->k, next)->flags |= F_ASSIGN;
    return next;
}

/* One step of each fold in the frame of a turn; first, end: of the rows of its first axis. */
static void step(const loop *p, lowering *l, frame *f, const parts *c, const value *carried, value first, value end,
                 value *next)
{
    for (int i = 0; i < c->count; i++) {
        const term *x = &p->t->terms[c->folds[i]];
        value row = lower_term(l, f, c->pairs[i].kind ? c->pairs[i].source : x->inputs[0]), mask = lower_mask(l, f);
        if (!c->pairs[i].kind) {
            next[i] = where_rows(l, f, mask, lower_combine(l, f, x->fold, carried[i], row, x->n), carried[i]);
            continue;
        }
        pair_state both = {carried[i], carried[c->beside_at[i]]};
        row = lower_broadcast(l, f, row, (1u << f->rank) - 1);
        pair_turn(l, f, c->pairs[i].kind, &row, 1, c->count_at ? carried[c->count_at] : 0, &both);
        next[i] = where_rows(l, f, mask, both.fold, carried[i]);
        next[c->beside_at[i]] = where_rows(l, f, mask, both.beside, carried[c->beside_at[i]]);
    }
    if (!c->count_at) return;
    value so_far = carried[c->count_at], one = lower_number(l, f->block, DT_F32, (number){.f = 1});
    value more = lower_op(l, f->block, OP_ADD, DT_F32, (value[]){so_far, one}, 2, 0);
    next[c->count_at] = lower_keep_beyond(l, f, first, end, more, so_far);
}

static void store_part(lowering *l, frame *f, int scratch, value chunk, const value *starts, const int *axis,
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
    lower_store_array(l, f, scratch, at, along, inside, v);
}

/* Wide columns on a GPU: a program carries one value a column in registers, and asks for several rows at once. */
#define WIDE_COLUMNS FUSE_SIZE(16)
#define WIDE_BLOCK FUSE_SIZE(1024)
#define WIDE_PROGRAMS 6 /* of a multiprocessor, of so many columns: others are as many more as they are narrower */
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
        for (int i = 0; i < c->count; i++) {
            int of = c->pairs[i].kind ? c->pairs[i].source : p->t->terms[c->folds[i]].inputs[0];
            parts[i][k] = lower_broadcast(l, g, lower_term(l, g, of), 1);
        }
        for (int i = 0; i < p->output_count; i++)
            if (!parts_is_late(p, i)) lower_store(l, g, &p->outputs[i], lower_term(l, g, p->outputs[i].term));
        lower_checks(l, g);
    }
    value so_far = c->count_at ? turns->carried[c->count_at] : 0;
    for (int i = 0; i < c->count; i++) { /* columns beyond the end are carried too, and never stored */
        const term *x = &p->t->terms[c->folds[i]];
        if (c->pairs[i].kind) {
            pair_state both = {turns->carried[i], turns->carried[c->beside_at[i]]};
            pair_turn(l, g, c->pairs[i].kind, parts[i], count, so_far, &both);
            next[i] = both.fold;
            next[c->beside_at[i]] = both.beside;
            continue;
        }
        for (int s = 1; s < count; s *= 2)
            for (int k = 0; k + s < count; k += 2 * s)
                parts[i][k] = lower_combine(l, g, x->fold, parts[i][k], parts[i][k + s], x->n);
        next[i] = lower_combine(l, g, x->fold, turns->carried[i], parts[i][0], x->n);
    }
    if (so_far) {
        value more = lower_number(l, g->block, DT_F32, (number){.f = count});
        next[c->count_at] = lower_op(l, g->block, OP_ADD, DT_F32, (value[]){so_far, more}, 2, 0);
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
    c->part_count = chunk_count(p, turns, MAXIMUM(others / 2, 1), 1, COLUMN_BLOCK);
    if (width < WIDE_BLOCK) {
        int64_t wanted = MAXIMUM(p->b->options->units, 1) * WIDE_PROGRAMS * (WIDE_BLOCK / width) / others;
        c->part_count = MAXIMUM(MINIMUM(wanted, turns), 1);
    }
    int chunk_param = lower_scalar(l, "chunks", c->part_count);
    parts_make_scratch(p, l, c, kept, kept_count);
    value starts[SPACE_AXES], carried[LOWER_ARRAYS], next[LOWER_ARRAYS], results[LOWER_ARRAYS];
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    tile_block *b = f->block;
    value chunk = lower_program(l, 0);
    loop_programs(l, f, kept, blocks, kept_count, 0, lower_scalar_value(l, l->k->head, chunk_param), starts);
    f->rank = 1;
    f->dims[0] = width;
    frame_tile(f, last, 0, starts[kept_count - 1], true);
    begin_carried(p, l, c, f, carried);
    if (c->count_at) carried[c->count_at] = parts_identity_beside(l, b, PAIR_SQUARES); /* the same for all columns */
    value by = lower_scalar_value(l, l->phase, chunk_param), many = lower_integer(l, b, at_once);
    value extent = lower_extent(l, tiled);
    value whole = lower_op(l, b, OP_DIV, DT_I64, (value[]){extent, many}, 2, 0);
    value done = lower_op(l, b, OP_MUL, DT_I64, (value[]){whole, many}, 2, 0);
    value rest = lower_op(l, b, OP_SUB, DT_I64, (value[]){extent, done}, 2, 0);
    value around = row_count > 1 ? product(l, b, rows, row_count - 1) : 0;
    for (int tail = 0; tail < 2; tail++) { /* turns of several rows, then the rows that are left, one by one */
        value each = tail ? rest : whole, limit = each;
        if (around) limit = lower_op(l, b, OP_MUL, DT_I64, (value[]){each, around}, 2, 0);
        lower_for loop = lower_for_begin(l, chunk, limit, by, carried, c->carried);
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
    bool counted = false;
    for (int i = 0; i < c->count; i++) {
        int axis[SPACE_AXES];
        bool safe[SPACE_AXES];
        for (int k = 0; k < kept_count; k++) {
            axis[k] = k == kept_count - 1 ? 0 : -1;
            safe[k] = k != kept_count - 1;
        }
        store_part(l, f, c->scratch[i], chunk, starts, axis, safe, kept_count, results[i]);
        if (c->pairs[i].kind)
            store_part(l, f, c->beside[i], chunk, starts, axis, safe, kept_count, results[c->beside_at[i]]);
        if (c->pairs[i].kind == PAIR_SQUARES && !counted) {
            value rows_done = lower_broadcast(l, f, results[c->count_at], 1);
            store_part(l, f, c->counts, chunk, starts, axis, safe, kept_count, rows_done);
            counted = true;
        }
    }
    parts_join(p, l, c, kept, kept_count);
    return lower_finish(l, out, error);
}

qn_status column_kernel(const loop *p, fuse_kernel *out, qn_error *error)
{
    lowering *l = loop_begin(p);
    int rows[SPACE_AXES], kept[SPACE_AXES];
    int row_count = loop_axes(p, l, p->outer, rows), kept_count = loop_axes(p, l, p->inner, kept);
    bool gpu = p->b->options->gpu;
    parts c = {.join_rows = gpu ? JOIN_ROWS_MANY : JOIN_ROWS};
    parts_find(p, l, &c);
    if (kept_count >= MAX_RANK) l->why = "a result has more axes than an array can have";
    if (l->why) return lower_finish(l, out, error);
    if (gpu && kept_count && l->extents[kept[kept_count - 1]] >= WIDE_COLUMNS)
        return wide_columns(p, l, &c, rows, row_count, kept, kept_count, out, error);
    /* The tile: rows x columns where there are columns, else a block of the last folded axis. */
    int64_t dims[2] = {0}, blocks[SPACE_AXES];
    int rank, tiled = rows[row_count - 1], looped = row_count - 1; /* looped: folded axes taken one by one */
    if (kept_count) {
        dims[1] = loop_width(l->extents[kept[kept_count - 1]], COLUMN_WIDTH);
        dims[0] = COLUMN_BLOCK / dims[1];
        rank = 2;
    } else {
        dims[0] = COLUMN_BLOCK;
        rank = 1;
    }
    /* No wider than the axis: threads beyond its end would do all of the work for nothing. On a CPU the rows that are carried are
     * begun, joined and left once a program: a few, whatever the extents are, since a new size compiles nothing. */
    if (gpu)
        dims[0] = loop_width(l->extents[tiled], dims[0]);
    else if (kept_count)
        dims[0] = MAXIMUM(CARRIED_BLOCK / dims[1], MINIMUM(dims[0], CARRIED_ROWS));
    for (int i = 0; i < kept_count; i++) blocks[i] = 1;
    if (kept_count) blocks[kept_count - 1] = dims[1];
    int64_t tiles = (l->extents[tiled] + dims[0] - 1) / dims[0], turns = tiles * extents_product(l, rows, looped);
    int64_t others = 1;
    for (int i = 0; i < kept_count; i++) others *= (l->extents[kept[i]] + blocks[i] - 1) / blocks[i];
    /* A CPU leaves each row of the tile as a part, since folding them is no more than joining them; on a GPU few programs
     * join, and many parts would keep them waiting. */
    int64_t chunks = chunk_count(p, turns, others, 4, dims[0] * MAXIMUM(dims[1], 1)),
            rows_each = kept_count && !gpu ? dims[0] : 1;
    int chunk_param = lower_scalar(l, "chunks", chunks);
    c.part_count = chunks * rows_each;
    parts_make_scratch(p, l, &c, kept, kept_count);

    value starts[SPACE_AXES], carried[LOWER_ARRAYS], next[LOWER_ARRAYS], results[LOWER_ARRAYS];
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    value chunk = lower_program(l, 0);
    loop_programs(l, f, kept, blocks, kept_count, 0, lower_scalar_value(l, l->k->head, chunk_param), starts);
    f->rank = rank;
    f->dims[0] = dims[0];
    f->dims[1] = dims[1];
    if (kept_count) frame_tile(f, kept[kept_count - 1], 1, starts[kept_count - 1], true);
    begin_carried(p, l, &c, f, carried);
    if (c.count_at) /* of each row of the tile */
        carried[c.count_at] = lower_broadcast(l, f, parts_identity_beside(l, f->block, PAIR_SQUARES), 1);
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
        lower_sums_begin(l, f->block, chunk, limit, by, parts_sum_levels(p), SUM_BLOCK, carried, c.kinds, c.carried);
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
    step(p, l, g, &c, loop.in.carried, start, lower_extent(l, tiled), next);
    for (int i = 0; i < p->output_count; i++)
        if (!parts_is_late(p, i)) lower_store(l, g, &p->outputs[i], lower_term(l, g, p->outputs[i].term));
    lower_checks(l, g);
    lower_sums_end(l, f->block, &loop, next, results);
    value first_part = rows_each > 1 ? lower_op(l, f->block, OP_MUL, DT_I64, (value[]){chunk, block}, 2, 0) : chunk;
    frame *left = lower_frame(l, f, f->block);
    left->rank = rank;
    left->dims[0] = rows_each;
    left->dims[1] = dims[1];
    value all = 0; /* rows of this program, of squares */
    bool counted = false;
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
        pair_state both = {part, c.pairs[i].kind ? results[c.beside_at[i]] : 0};
        if (c.pairs[i].kind) {
            if (c.count_at && !all) all = lower_reduce(l, f, results[c.count_at], FOLD_SUM, 0, (1u << rank) - 1, true);
            pair_leave(l, f, c.pairs[i].kind, c.count_at ? results[c.count_at] : 0, all, !kept_count, &both);
            lower_store_array(l, left, c.beside[i], at, axis, safe, both.beside);
            part = both.fold;
        } else if (rows_each == 1) {
            part = lower_reduce(l, f, part, x->fold, x->n, 1, !kept_count);
        }
        lower_store_array(l, left, c.scratch[i], at, axis, safe, part);
        if (c.pairs[i].kind != PAIR_SQUARES || counted) continue;
        value rows_done = kept_count ? lower_broadcast(l, left, all, 2) : all;
        lower_store_array(l, left, c.counts, at, axis, safe, rows_done);
        counted = true;
    }
    parts_join(p, l, &c, kept, kept_count);
    return lower_finish(l, out, error);
}

/* ---- whole rows ---- */

#define ROW_OF_QUARTER FUSE_SIZE(4096) /* elements of a row of which a multiprocessor runs four programs at once */
#define ROWS_APART \
    FUSE_SIZE((int64_t)1 << 18) /* up to here each row leaves a part of its own where no columns are kept */

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
        if (!parts_is_late(p, i)) lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
}

/* Folds that keep nothing: a program a row, which leaves its part; nothing is carried. */
static qn_status rows_apart(const loop *p, lowering *l, parts *c, const int *rows, int row_count, int inner,
                            fuse_kernel *out, qn_error *error)
{
    int64_t blocks[SPACE_AXES];
    value starts[SPACE_AXES];
    for (int i = 0; i < row_count; i++) blocks[i] = 1;
    parts_make_scratch(p, l, c, NULL, 0);
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
        store_part(l, f, c->scratch[i], row, NULL, NULL, NULL, 0, row_value(p, l, f, c->folds[i]));
    lower_checks(l, f);
    parts_join(p, l, c, &inner, 1);
    return lower_finish(l, out, error);
}

qn_status both_kernel(const loop *p, fuse_kernel *out, qn_error *error)
{
    lowering *l = loop_begin(p);
    int rows[SPACE_AXES], inner[SPACE_AXES];
    int row_count = loop_axes(p, l, p->outer, rows), inner_count = loop_axes(p, l, p->inner, inner);
    parts c = {.join_rows = p->b->options->gpu ? JOIN_ROWS_MANY : JOIN_ROWS};
    parts_find(p, l, &c);
    if (inner_count != 1) l->why = "rows whose axes do not lie together";
    if (l->why) return lower_finish(l, out, error);
    bool columns = false;
    int64_t all_rows = extents_product(l, rows, row_count);
    for (int i = 0; i < c.count; i++) columns |= c.kept[i] != 0;
    c.part_count = all_rows;
    if (!columns && all_rows <= ROWS_APART) return rows_apart(p, l, &c, rows, row_count, inner[0], out, error);
    /* A multiprocessor holds fewer programs of long rows; each leaves a part as long as a row. */
    int64_t longer = p->b->options->gpu ? MINIMUM(MAXIMUM(l->extents[inner[0]] / ROW_OF_QUARTER, 1), 4) : 1;
    c.part_count = chunk_count(p, all_rows, longer, 1, COLUMN_BLOCK);
    loop_wish_of_few(p, l, c.part_count);
    parts_make_scratch(p, l, &c, inner, inner_count);
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
        carried[i] = parts_identity(p, l, f->block, c.folds[i]);
        if (c.kept[i]) carried[i] = lower_broadcast(l, f, carried[i], 1);
    }
    lower_sums loop = lower_sums_begin(l, f->block, chunk, product(l, f->block, rows, row_count), part_count,
                                       parts_sum_levels(p), SUM_BLOCK, carried, c.kinds, c.count);
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
        store_part(l, f, c.scratch[i], chunk, &zero, &axis, &safe, c.kept[i] ? 1 : 0, results[i]);
    }
    parts_join(p, l, &c, inner, inner_count);
    return lower_finish(l, out, error);
}
