/*
 * Kernels with row reductions: a program takes a row, `x[r][:]`, all reductions and what lies between and after them.
 * The compilers decide how a row is held. On few threads short rows go several to a program.
 * Inner axes that do not collapse to one are loops around the last of them: one for each reduction that waits for
 * another, and one for the results.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/loop.h"
#include "fuse/sizes.h"

#define ROW_SHORT FUSE_SIZE(512) /* rows up to here share a program where threads are few */
#define ROW_COLUMNS 64    /* where the row is not along memory: so many side by side */
#define COLUMNS_OF_FEW 16 /* ... where that leaves multiprocessors idle */
#define ROW_HELD 32768    /* ... so many elements of them at most */
#define SECTOR_BYTES 32
#define ROW_ACROSS \
    FUSE_SIZE(4096)             /* ... and up to here its length is a constant of the kernel, so that threads hold it */
#define LINE_ROWS FUSE_SIZE(64) /* rows of a line (loop_is_line) at least, and at most */
#define LINE_ROWS_MOST 512

/* Rows in one program. */
static int64_t rows_together(const loop *p, const lowering *l, int inner, int outer_count)
{
    if (p->b->options->gpu || !outer_count || l->extents[inner] > ROW_SHORT) return 1;
    return l->extents[inner] <= 64 ? 32 : 8;
}

/* Does a row have to wait for its reduction? Else it is read once, and nobody keeps it. */
static bool holds_rows(const loop *p)
{
    const int *depth = loop_fold_depths(p);
    bool holds = false;
    for (int i = 1; i < p->t->term_count; i++) holds |= depth[i] > 1;
    for (int i = 0; i < p->output_count; i++)
        for (int k = 0; k < p->outputs[i].map.rank; k++)
            holds |= (affine_axes(&p->outputs[i].map.axes[k], p->t->atom_axes) & p->inner) != 0;
    return holds;
}

/* Bytes between the elements of a row that lies across memory, of the first array that has one. */
static int64_t stride_bytes(const loop *p, const lowering *l, int inner)
{
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (x->kind != TERM_ACCESS || !(x->axes & p->inner)) continue;
        const graph_node *n = graph_get(p->t->g, x->n);
        const fuse_leaf *leaf = &p->b->leaves[x->n];
        affine place = index_linear(x->map, &n->shape, leaf->given ? leaf->strides : NULL);
        return place.factor[l->innermost[inner]] * dtypes[n->elem].size_bytes;
    }
    return 0;
}

/* Rows in one program that lie side by side across memory: as many as its threads hold, each with a part of a row. Small
 * programs load while others compute; where what lies side by side begins between two sectors of memory, narrow ones
 * would read much of their neighbours'. */
static int64_t columns_together(const loop *p, const lowering *l, int inner, int64_t all)
{
    int64_t row = l->extents[inner], few = 256;
    if (!p->b->options->gpu) return ROW_COLUMNS;
    while (few > COLUMNS_OF_FEW && loop_is_few(p, 2 * all / few)) few /= 2;
    if (row > 256 && !holds_rows(p)) return 2 * ROW_COLUMNS;
    if (row <= 256) return MINIMUM(few, row <= 32 ? 256 : row <= 64 ? 128 : 64);
    int64_t most = stride_bytes(p, l, inner) % SECTOR_BYTES ? ROW_HELD : ROW_HELD / 4, width = ROW_COLUMNS;
    while (width > 8 && width * row > most) width /= 2;
    return width;
}

/* Rows of a line: several vectors of it for each thread. */
static int64_t line_rows(int64_t length)
{
    int64_t rows = LINE_ROWS;
    while (rows < LINE_ROWS_MOST && rows * length < 2048) rows *= 2;
    return rows;
}

static qn_status whole_rows(const loop *p, lowering *l, int inner, const int *outer, int outer_count, fuse_kernel *out,
                            qn_error *error)
{
    bool turned = outer_count && p->outer >> (p->space.axis_count - 1) & 1, gpu = p->b->options->gpu;
    int64_t blocks[SPACE_AXES], all = 1, rows;
    for (int i = 0; i < outer_count; i++) all *= l->extents[outer[i]];
    rows = turned ? columns_together(p, l, inner, all) : rows_together(p, l, inner, outer_count);
    value starts[SPACE_AXES];
    frame *f = lower_frame(l, NULL, NULL);
    f->lines = loop_is_line(p) && l->extents[outer[outer_count - 1]] >= LINE_ROWS;
    if (f->lines)
        rows = line_rows(l->extents[inner]);
    else
        loop_wish_of_few(p, l, (all + rows - 1) / rows);
    for (int i = 0; i < outer_count; i++) blocks[i] = 1;
    if (rows > 1) blocks[outer_count - 1] = rows;
    loop_programs(l, f, outer, blocks, outer_count, 0, 0, starts);
    f->rank = rows > 1 ? 2 : 1;
    int along = turned && !gpu ? 0 : f->rank - 1; /* the tile's axis of the row */
    f->dims[0] = f->dims[1] = rows;
    f->dims[along] = -(int64_t)lower_extent(l, inner);
    bool constant = l->extents[inner] <= (holds_rows(p) ? ROW_ACROSS : 256);
    if ((turned && gpu && constant) || f->lines) f->dims[along] = l->extents[inner];
    if (p->short_columns) f->dims[along] = LOOP_SHORT_COLUMNS; /* a batch of another size needs no other text */
    if (rows > 1) frame_tile(f, outer[outer_count - 1], 1 - along, starts[outer_count - 1], true);
    frame_tile(f, inner, along, p->short_columns ? lower_integer(l, f->block, 0) : 0, p->short_columns);
    const bool *needed = loop_needed(p);
    for (int i = 1; i < p->t->term_count && f->lines; i++) /* all lines are on their way before the first is used */
        if (p->t->terms[i].kind == TERM_ACCESS && needed[i]) lower_term(l, f, i);
    loop_lower_folds(p, l, f);
    for (int i = 0; i < p->output_count && f->lines; i++) /* all rows are done before the first line is stored */
        lower_term(l, f, p->outputs[i].term);
    for (int i = 0; i < p->output_count; i++) lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
    lower_checks(l, f);
    return lower_finish(l, out, error);
}

/* ---- inner axes that do not collapse ---- */

/* A loop over the leading inner axes; its frame sees the last one as a tile. */
static frame *inner_frame(lowering *l, frame *row, lower_for *loop, const int *inner, int count)
{
    frame *f = lower_frame(l, row, loop->body);
    value left = loop->index;
    f->rank = 1;
    f->dims[0] = -(int64_t)lower_extent(l, inner[count - 1]);
    for (int i = count - 2; i > 0; i--) {
        value n = lower_extent(l, inner[i]);
        frame_scalar(f, inner[i], lower_op(l, f->block, OP_MOD, DT_I64, (value[]){left, n}, 2, 0));
        left = lower_op(l, f->block, OP_DIV, DT_I64, (value[]){left, n}, 2, 0);
    }
    frame_scalar(f, inner[0], left);
    frame_tile(f, inner[count - 1], 0, 0, false);
    return f;
}

static void fold_stage(const loop *p, lowering *l, frame *row, const int *inner, int count, value turns,
                       const int *depth, int stage)
{
    int folds[LOWER_ARRAYS], fold_count = 0;
    value carried[LOWER_ARRAYS], next[LOWER_ARRAYS], results[LOWER_ARRAYS];
    fold_kind kinds[LOWER_ARRAYS];
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (!loop_is_row_fold(p, x) || depth[i] != stage) continue;
        if (x->fold == FOLD_ARGMAX || x->fold == FOLD_ARGMIN || fold_count == LOWER_ARRAYS) {
            l->why = "a position along axes that do not lie together";
            return;
        }
        dtype elem = p->t->terms[x->inputs[0]].elem;
        carried[fold_count] = lower_number(l, row->block, elem, fold_identity(x->fold, elem));
        kinds[fold_count] = x->fold;
        folds[fold_count++] = i;
    }
    lower_sums loop = lower_sums_begin(l, row->block, lower_integer(l, row->block, 0), turns,
                                       lower_integer(l, row->block, 1), 2, 64, carried, kinds, fold_count);
    frame *f = inner_frame(l, row, &loop.in, inner, count);
    for (int i = 0; i < fold_count; i++)
        next[i] = lower_combine(l, f, kinds[i], loop.in.carried[i], lower_fold(l, f, folds[i]), 0);
    lower_sums_end(l, row->block, &loop, next, results);
    for (int i = 0; i < fold_count; i++) lower_bind(row, folds[i], results[i]);
}

static qn_status looped_rows(const loop *p, lowering *l, const int *inner, int count, const int *outer, int outer_count,
                             fuse_kernel *out, qn_error *error)
{
    int64_t blocks[SPACE_AXES];
    value starts[SPACE_AXES];
    const int *depth = loop_fold_depths(p);
    int deepest = 0;
    frame *row = lower_frame(l, NULL, NULL);
    for (int i = 0; i < outer_count; i++) blocks[i] = 1;
    loop_programs(l, row, outer, blocks, outer_count, 0, 0, starts);
    value turns = lower_extent(l, inner[0]);
    for (int i = 1; i < count - 1; i++)
        turns = lower_op(l, row->block, OP_MUL, DT_I64, (value[]){turns, lower_extent(l, inner[i])}, 2, 0);
    for (int i = 1; i < p->t->term_count; i++) deepest = MAXIMUM(deepest, depth[i]);
    for (int stage = 1; stage <= deepest && !l->why; stage++) fold_stage(p, l, row, inner, count, turns, depth, stage);
    bool wide = false;
    for (int i = 0; i < p->output_count && !l->why; i++) {
        bool full = p->t->terms[p->outputs[i].term].axes & p->inner;
        for (int k = 0; k < p->outputs[i].map.rank; k++)
            full |= (affine_axes(&p->outputs[i].map.axes[k], p->t->atom_axes) & p->inner) != 0;
        wide |= full;
        if (!full) lower_store(l, row, &p->outputs[i], lower_term(l, row, p->outputs[i].term));
    }
    if (wide) {
        lower_for loop =
            lower_for_begin(l, lower_integer(l, row->block, 0), turns, lower_integer(l, row->block, 1), NULL, 0);
        frame *f = inner_frame(l, row, &loop, inner, count);
        for (int i = 0; i < p->output_count; i++) {
            bool full = false;
            for (int k = 0; k < p->outputs[i].map.rank; k++)
                full |= (affine_axes(&p->outputs[i].map.axes[k], p->t->atom_axes) & p->inner) != 0;
            if (full) lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
        }
        lower_for_end(l, row->block, &loop, NULL, NULL);
    }
    lower_checks(l, row);
    return lower_finish(l, out, error);
}

/* All inner axes as one row, whose places in memory are computed: a GPU holds it, or reads it with all that it has. */
static qn_status joined_rows(const loop *p, lowering *l, const int *inner, int count, const int *outer, int outer_count,
                             fuse_kernel *out, qn_error *error)
{
    int64_t blocks[SPACE_AXES], length = 1;
    value starts[SPACE_AXES];
    for (int i = 0; i < count; i++) length *= l->extents[inner[i]];
    int64_t programs = 1;
    for (int i = 0; i < outer_count; i++) {
        blocks[i] = 1;
        programs *= l->extents[outer[i]];
    }
    loop_wish_of_few(p, l, programs);
    int row = lower_scalar(l, "row", length);
    frame *f = lower_frame(l, NULL, NULL);
    loop_programs(l, f, outer, blocks, outer_count, 0, 0, starts);
    f->rank = 1;
    f->dims[0] = -(int64_t)lower_scalar_value(l, l->phase, row);
    lower_digits(l, f, inner, count);
    loop_lower_folds(p, l, f);
    for (int i = 0; i < p->output_count; i++) lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
    lower_checks(l, f);
    return lower_finish(l, out, error);
}

qn_status row_kernel(const loop *p, fuse_kernel *out, qn_error *error)
{
    lowering *l = loop_begin(p);
    int outer[SPACE_AXES], inner[SPACE_AXES];
    int outer_count = loop_axes(p, l, p->outer, outer), inner_count = loop_axes(p, l, p->inner, inner);
    if (inner_count > 1 && cut_is_better(p, l, inner, inner_count, outer, outer_count))
        return cut_rows(p, l, inner, inner_count, outer, outer_count, out, error);
    lower_phase(l);
    if (inner_count == 1) return whole_rows(p, l, inner[0], outer, outer_count, out, error);
    if (p->b->options->gpu) return joined_rows(p, l, inner, inner_count, outer, outer_count, out, error);
    return looped_rows(p, l, inner, inner_count, outer, outer_count, out, error);
}
