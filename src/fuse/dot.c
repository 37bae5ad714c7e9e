/*
 * Products with what hangs on them. In: a group around a DOT. Out: a kernel of BM x BN sums a program, carried through a
 * loop over K, with an epilogue of arithmetic on the sums.
 *
 * The space has the axes of the result and then K. Axes of the batch, of M, N and K that do not become one kernel axis
 * stay apart: one of each of M, N and K runs along the tiles, the others are programs (M, N) or loops (K); so a
 * convolution over windows is a product whose operands are read in place.
 * Beside the sums a kernel may fold what lives on one operand's side over K (norms of rows, the gradient of a bias
 * beside that of its weights): each such fold is a loop over K of its own, run by all programs if their epilogue needs
 * it, else only by those that store it.
 * A product with few results and a deep K is split along K: each program sums a part, and a second phase joins them.
 * A product of two pairs of operands (dot_sum.c) has two such loops, the second going on with the sums of the first.
 * The order of additions depends on the sizes of the product alone, never on what is fused around it.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/dot_work.h"
#include "ir/whole.h"

#include <string.h>

#define SHORT_DEPTH 8
#define JOIN_PARTS 16   /* sums of parts of K that are added at once ... */
#define JOIN_COLUMNS 64 /* ... and how many side by side */
#define JOIN_FEW 4      /* the same of so few parts */
#define JOIN_FEW_COLUMNS 256

/* ---- lowering ---- */

/* Of the kernel axes of a class the one that runs along tiles: the last that is long enough, else the longest. */
static int pick_tile_axis(const lowering *l, const int *axes, int count, int64_t enough)
{
    int best = -1;
    for (int i = 0; i < count; i++)
        if (best < 0 || l->extents[axes[i]] >= enough ||
            (l->extents[axes[best]] < enough && l->extents[axes[i]] > l->extents[axes[best]]))
            best = i;
    return best < 0 ? -1 : axes[best];
}

static int axes_of_class(const dot_work *w, dot_class class, int *axes)
{
    unsigned of = w->classes[class];
    int count = 0;
    for (int i = 0; i < w->l->axis_count; i++)
        if (of >> w->l->innermost[i] & 1) axes[count++] = i;
    return count;
}

/* The axes of K of a pair of operands. */
static void choose_depth(dot_work *w, int pair)
{
    int axes[SPACE_AXES], all = axes_of_class(w, CLASS_DEPTH, axes), count = 0;
    for (int i = 0; i < all; i++) {
        bool second = w->top == w->dot && w->t->space.axes[w->l->innermost[axes[i]]].root > w->rank;
        if (second == (pair > 0)) axes[count++] = axes[i];
    }
    w->pair = pair;
    w->depth_count = 0;
    w->tile_axis[2] = pick_tile_axis(w->l, axes, count, 16);
    for (int i = 0; i < count; i++)
        if (axes[i] != w->tile_axis[2]) w->depth[w->depth_count++] = axes[i];
    if (w->tile_axis[2] >= 0) w->depth[w->depth_count++] = w->tile_axis[2];
}

static void choose_axes(dot_work *w)
{
    int axes[SPACE_AXES];
    for (int side = 0; side < 2; side++) {
        int count = axes_of_class(w, (dot_class)(CLASS_ROWS + side), axes);
        w->tile_axis[side] = pick_tile_axis(w->l, axes, count, 16);
    }
    choose_depth(w, 0);
}

/* Kernel axes, and those that run along tiles. */
void dot_begin_lowering(dot_work *w)
{
    int classes[SPACE_AXES];
    for (int class = CLASS_BATCH; class <= CLASS_DEPTH; class ++)
        for (int i = 0; i < w->t->space.axis_count; i++)
            if (w->classes[class] >> i & 1)
                classes[i] = class + (dot_pair_count(w) > 1 && w->t->space.axes[i].root > w->rank);
    w->l = lower_begin(w->t, w->b->leaves, w->b->options, classes, w->outputs, w->grp->write_count,
                       w->whole ? w->order : NULL);
    choose_axes(w);
}

/* Many short loops over K cost more than operands laid out anew. */
static bool check_depth(dot_work *w)
{
    unsigned axes = w->classes[CLASS_DEPTH];
    if (!(axes & (axes - 1)) || w->whole) return true;
    dot_begin_lowering(w);
    return w->depth_count < 2 || w->l->extents[w->tile_axis[2]] >= SHORT_DEPTH ||
           dot_refuse(w, "the depth of the product is cut into short pieces");
}

int64_t dot_tile_extent(const dot_work *w, int side)
{
    return w->tile_axis[side] < 0 ? 1 : w->l->extents[w->tile_axis[side]];
}

bool dot_is_program_axis(const dot_work *w, int axis)
{
    if (w->classes[CLASS_DEPTH] >> w->l->innermost[axis] & 1) return false;
    return axis != w->tile_axis[0] && axis != w->tile_axis[1];
}

static void launch(dot_work *w)
{
    lowering *l = w->l;
    tile_block *head = l->k->head;
    value counts[3] = {0};
    const int64_t sizes[2] = {w->tiles.rows, w->tiles.columns};
    for (int side = 0; side < 2; side++) {
        int axis = w->across ? 1 - side : side; /* of programs: the first counts fastest */
        counts[axis] =
            w->tile_axis[side] < 0 ? lower_integer(l, head, 1) : lower_head_parts(l, w->tile_axis[side], sizes[side]);
        value program = lower_program(l, axis), size = lower_integer(l, l->phase, sizes[side]);
        w->starts[side] = lower_op(l, l->phase, OP_MUL, DT_I64, (value[]){program, size}, 2, 0);
    }
    value rest = 0;
    w->part = w->others = 0;
    if (w->parts > 1) {
        value parts = lower_scalar_value(l, l->phase, w->part_param);
        counts[2] = lower_scalar_value(l, head, w->part_param);
        value program = lower_program(l, 2);
        w->part = lower_op(l, l->phase, OP_MOD, DT_I64, (value[]){program, parts}, 2, 0);
        rest = lower_op(l, l->phase, OP_DIV, DT_I64, (value[]){program, parts}, 2, 0);
    }
    for (int axis = l->axis_count - 1; axis >= 0; axis--) {
        if (!dot_is_program_axis(w, axis)) continue;
        bool first = true; /* the outermost of them takes what is left */
        for (int outer = 0; outer < axis; outer++) first &= !dot_is_program_axis(w, outer);
        value extent = lower_head_extent(l, axis);
        counts[2] = counts[2] ? lower_op(l, head, OP_MUL, DT_I64, (value[]){counts[2], extent}, 2, 0) : extent;
        if (!rest) rest = lower_program(l, 2);
        if (!w->others) w->others = rest;
        value length = lower_extent(l, axis);
        w->coordinates[axis] = first ? rest : lower_op(l, l->phase, OP_MOD, DT_I64, (value[]){rest, length}, 2, 0);
        if (!first) rest = lower_op(l, l->phase, OP_DIV, DT_I64, (value[]){rest, length}, 2, 0);
    }
    lower_phase_launch(l, l->k->phase_count - 1, counts, counts[2] ? 3 : 2);
}

/* A frame over two of M, N and K: which stand on tile axes 0 and 1. */
frame *dot_frame_over(dot_work *w, tile_block *block, int down, int across)
{
    lowering *l = w->l;
    frame *f = lower_frame(l, NULL, block);
    const int64_t sizes[3] = {w->tiles.rows, w->tiles.columns, w->step};
    const int sides[2] = {down, across};
    f->rank = 2;
    for (int axis = 0; axis < l->axis_count; axis++)
        if (w->coordinates[axis]) frame_scalar(f, axis, w->coordinates[axis]);
    for (int i = 0; i < 2; i++) {
        int axis = w->tile_axis[sides[i]];
        f->dims[i] = axis < 0 ? 1 : sizes[sides[i]];
        if (axis >= 0) frame_tile(f, axis, i, sides[i] < 2 ? w->starts[sides[i]] : w->coordinates[axis], true);
    }
    return f;
}

static void append_yield(lowering *l, tile_block *block, const value *values, int count)
{
    tile_append(l->k, block, tile_op_new(l->k, OP_YIELD, values, count));
}

typedef value depth_body(dot_work *w, tile_block *block, value carried, int term);

/* Loops over the axes of K around `body`, which turns what is carried into its next value. */
static value loop_over(dot_work *w, tile_block *block, int level, int end, value carried, depth_body *body, int term)
{
    lowering *l = w->l;
    if (level == end) return body(w, block, carried, term);
    int axis = w->depth[level];
    tile_type type = tile_type_of(l->k, carried);
    value first = lower_integer(l, block, 0), limit = lower_extent(l, axis);
    value step = lower_integer(l, block, axis == w->tile_axis[2] ? w->step : 1);
    if (!level && w->part) {
        value chunk = lower_scalar_value(l, block, w->chunk_param);
        first = lower_op(l, block, OP_MUL, DT_I64, (value[]){w->part, chunk}, 2, 0);
        value behind = lower_op(l, block, OP_ADD, DT_I64, (value[]){first, chunk}, 2, 0);
        limit = lower_op(l, block, OP_MIN, DT_I64, (value[]){limit, behind}, 2, 0);
    }
    tile_op *op = tile_op_new(l->k, OP_FOR, (value[]){first, limit, step, carried}, 4);
    tile_block *inner = tile_block_new(l->k);
    op->regions[0] = inner;
    op->region_count = 1;
    w->coordinates[axis] = tile_block_arg(l->k, inner, scalar_type(DT_I64));
    value argument = tile_block_arg(l->k, inner, type);
    value next = loop_over(w, inner, level + 1, end, argument, body, term);
    w->coordinates[axis] = 0;
    append_yield(l, inner, &next, 1);
    value result = tile_result(l->k, op, type);
    tile_append(l->k, block, op);
    return result;
}

/* An operand as the product takes it: in its own element type, 0 where there is nothing. */
static value operand(dot_work *w, frame *f, int side)
{
    lowering *l = w->l;
    const graph_node *dot = graph_get(l->t->g, w->dot);
    dtype elem = graph_get(l->t->g, dot->inputs[side])->elem;
    const dot_gathered *from = &w->gathered[side];
    bool tf32 = dot->attr.index == PRODUCT_TF32 && l->options->gpu && elem == DT_F32;
    if (w->split[side].count) {
        value x = dot_load_term(w, f, side, 0);
        return tf32 ? lower_op(l, f->block, OP_TF32, elem, &x, 1, 0) : x;
    }
    value stored = w->whole && !(w->slice && side == w->laid)
                       ? lower_guarded(l, f, from->access, from->guards, from->guard_count)
                       : lower_stored(l, f, w->terms[2 * w->pair + side]);
    value x = lower_convert(l, f->block, stored, elem);
    if (w->scales[side]) {
        value scale = lower_convert(l, f->block, lower_term(l, f, w->scales[side]), elem);
        x = lower_op(l, f->block, OP_MUL, elem, (value[]){x, lower_broadcast(l, f, scale, 3)}, 2, 0);
    }
    if (tf32) x = lower_op(l, f->block, OP_TF32, elem, &x, 1, 0);
    return lower_fill(l, f, lower_broadcast(l, f, x, 3), FOLD_SUM);
}

static value add_product(dot_work *w, tile_block *block, value carried, int term)
{
    lowering *l = w->l;
    (void)term;
    if (w->term_count) return dot_add_terms(w, block, carried);
    frame *left = dot_frame_over(w, block, 0, 2), *right = dot_frame_over(w, block, 2, 1);
    value a = operand(w, left, 0), b = operand(w, right, 1);
    tile_op *op = tile_op_new(l->k, OP_DOT, (value[]){a, b, carried}, 3);
    op->line = lower_line(l, w->dot);
    op->column = 1;
    value sum = tile_result(l->k, op, tile_type_of(l->k, carried));
    tile_append(l->k, block, op);
    return sum;
}

/* The products along the innermost axis of K, times what is the same along it. */
static value add_multiple(dot_work *w, tile_block *block, value carried, int term)
{
    lowering *l = w->l;
    dtype elem = tile_type_of(l->k, carried).elem;
    frame *f = dot_frame_over(w, block, 0, 1);
    value zero = lower_broadcast(l, f, lower_number(l, block, elem, (number){0}), 3);
    value sums = loop_over(w, block, w->depth_count - 1, w->depth_count, zero, add_product, term);
    for (int side = 0; side < 2; side++) {
        if (!w->factors[side]) continue;
        value factor = lower_convert(l, block, lower_term(l, f, w->factors[side]), elem);
        sums = lower_op(l, block, OP_MUL, elem, (value[]){sums, lower_broadcast(l, f, factor, 3)}, 2, 0);
    }
    return lower_op(l, block, OP_ADD, elem, (value[]){carried, sums}, 2, 0);
}

static value sum_products(dot_work *w, value carried)
{
    if (w->factors[0] || w->factors[1])
        return loop_over(w, w->l->phase, 0, w->depth_count - 1, carried, add_multiple, 0);
    return loop_over(w, w->l->phase, 0, w->depth_count, carried, add_product, 0);
}

static bool is_columns_fold(const dot_work *w, int term)
{
    return w->t->terms[w->t->terms[term].inputs[0]].axes & w->classes[CLASS_COLUMNS];
}

static value add_fold(dot_work *w, tile_block *block, value carried, int term)
{
    frame *f = is_columns_fold(w, term) ? dot_frame_over(w, block, 2, 1) : dot_frame_over(w, block, 0, 2);
    return lower_combine(w->l, f, w->t->terms[term].fold, carried, lower_fold(w->l, f, term), w->t->terms[term].n);
}

static void bind_fold(dot_work *w, frame *f, int term)
{
    lowering *l = w->l;
    const struct term *x = &w->t->terms[term];
    frame *like = is_columns_fold(w, term) ? dot_frame_over(w, f->block, 2, 1) : dot_frame_over(w, f->block, 0, 2);
    unsigned kept = frame_axes(l, like, x->axes);
    value start = lower_number(l, f->block, x->elem, fold_identity(x->fold, x->elem));
    if (kept) start = lower_broadcast(l, like, start, kept);
    lower_bind(f, term, loop_over(w, f->block, 0, w->depth_count, start, add_fold, term));
}

bool dot_uses(const dot_work *w, int id, int wanted)
{
    bool *used = ARENA_ARRAY(w->b->memory, bool, w->t->term_count);
    used[id] = true;
    for (int at = id; at > wanted; at--) /* inputs are older */
        for (int i = 0; used[at] && i < w->t->terms[at].input_count; i++) used[w->t->terms[at].inputs[i]] = true;
    return used[wanted];
}

/* Axes of M, N and the batch that an output lacks: only the first program along them stores it. */
static unsigned missing_axes(const dot_work *w, const lower_output *out)
{
    affine linear = index_linear(&out->map, &graph_get(w->t->g, out->n)->shape, NULL);
    unsigned there = affine_axes(&linear, w->t->atom_axes), missing = 0;
    for (int axis = 0; axis < w->l->axis_count; axis++) {
        bool depth = w->classes[CLASS_DEPTH] >> w->l->innermost[axis] & 1;
        if (!depth && !(there >> w->l->innermost[axis] & 1)) missing |= 1u << axis;
    }
    return missing;
}

/* The outputs that lack exactly these axes, stored in a frame. */
static void store_outputs(dot_work *w, frame *f, unsigned missing)
{
    for (int i = 0; i < w->fold_count; i++) {
        bool needed = false;
        for (int o = 0; o < w->grp->write_count; o++)
            needed |= missing_axes(w, &w->outputs[o]) == missing && dot_uses(w, w->outputs[o].term, w->folds[i]);
        bool known = f->values[w->folds[i]] || (f->outer && f->outer->values[w->folds[i]]);
        if (needed && !known) bind_fold(w, f, w->folds[i]);
    }
    if (!missing) lower_checks(w->l, f);
    for (int o = 0; o < w->grp->write_count; o++)
        if (missing_axes(w, &w->outputs[o]) == missing)
            lower_store(w->l, f, &w->outputs[o], lower_term(w->l, f, w->outputs[o].term));
}

static void store_by_first(dot_work *w, frame *f, unsigned missing)
{
    lowering *l = w->l;
    value zero = lower_integer(l, f->block, 0), first = 0;
    for (int axis = 0; axis < l->axis_count; axis++) {
        if (!(missing >> axis & 1)) continue;
        int side = axis == w->tile_axis[0] ? 0 : axis == w->tile_axis[1] ? 1 : -1;
        value at = side >= 0 ? w->starts[side] : w->coordinates[axis];
        value here = lower_op(l, f->block, OP_EQ, DT_BOOL, (value[]){at, zero}, 2, 0);
        first = first ? lower_op(l, f->block, OP_AND, DT_BOOL, (value[]){first, here}, 2, 0) : here;
    }
    tile_op *op = tile_op_new(l->k, OP_IF, &first, 1);
    op->region_count = 2;
    for (int r = 0; r < 2; r++) op->regions[r] = tile_block_new(l->k);
    frame *inner = lower_frame(l, f, op->regions[0]);
    inner->rank = f->rank;
    memcpy(inner->dims, f->dims, sizeof(f->dims));
    store_outputs(w, inner, missing);
    for (int r = 0; r < 2; r++) append_yield(l, op->regions[r], NULL, 0);
    tile_append(l->k, f->block, op);
}

/* ---- parts of K ---- */

/* A part is whole steps of the outermost loop over K. */
static void begin_split(dot_work *w, const dot_sizes *size)
{
    lowering *l = w->l;
    int axis = w->depth[0];
    int64_t unit = axis == w->tile_axis[2] ? w->tiles.depth : 1, units = (l->extents[axis] + unit - 1) / unit;
    w->parts = dot_pair_count(w) > 1 || w->plain ? 1 : dot_choose_parts(w->b->options, &w->tiles, size);
    int64_t each = (units + w->parts - 1) / MAXIMUM(w->parts, 1);
    w->parts = each ? (units + each - 1) / each : 1;
    if (w->parts < 2) return;
    w->part_param = lower_scalar(l, "parts", w->parts);
    w->chunk_param = lower_scalar(l, "chunk", each * unit);
}

/* Every program leaves the sums of its part of K; the second phase adds them up in order, some columns of a row at a
 * time, and goes on with the epilogue. Returns the joined sums; *f is the frame they are in. */
static value join_parts(dot_work *w, frame **f, value sums)
{
    lowering *l = w->l;
    tile_block *head = l->k->head;
    dtype elem = tile_type_of(l->k, sums).elem;
    value none = lower_integer(l, head, 1), extents[4] = {lower_scalar_value(l, head, w->part_param), none, none, none};
    for (int axis = 0; axis < l->axis_count; axis++)
        if (dot_is_program_axis(w, axis))
            extents[1] = lower_op(l, head, OP_MUL, DT_I64, (value[]){extents[1], lower_head_extent(l, axis)}, 2, 0);
    for (int side = 0; side < 2; side++)
        if (w->tile_axis[side] >= 0) extents[2 + side] = lower_head_extent(l, w->tile_axis[side]);
    int scratch = lower_scratch(l, "part_sums", elem, extents, 4);
    value others = w->others ? w->others : lower_integer(l, l->phase, 0);
    value at[4] = {w->part, others, w->starts[0], w->starts[1]};
    lower_store_array(l, *f, scratch, at, (int[]){-1, -1, 0, 1}, (bool[]){true, true, false, false}, sums);

    const int at_once = w->parts <= JOIN_FEW ? JOIN_FEW : JOIN_PARTS;
    w->tiles.rows = 1;
    w->tiles.columns = w->parts <= JOIN_FEW ? JOIN_FEW_COLUMNS : JOIN_COLUMNS;
    w->parts = 1;
    lower_phase(l);
    launch(w);
    *f = dot_frame_over(w, l->phase, 0, 1);
    if (w->tile_axis[0] >= 0) frame_scalar(*f, w->tile_axis[0], w->starts[0]);
    frame *wide = lower_frame(l, *f, l->phase);
    wide->rank = 2;
    wide->dims[0] = at_once;
    wide->dims[1] = (*f)->dims[1];
    value parts = lower_scalar_value(l, l->phase, w->part_param), joined;
    value start = lower_broadcast(l, wide, lower_number(l, l->phase, elem, (number){0}), 3);
    lower_for loop =
        lower_for_begin(l, lower_integer(l, l->phase, 0), parts, lower_integer(l, l->phase, at_once), &start, 1);
    frame *turn = lower_frame(l, wide, loop.body);
    turn->rank = 2;
    memcpy(turn->dims, wide->dims, sizeof(turn->dims));
    others = w->others ? w->others : lower_integer(l, loop.body, 0);
    value from[4] = {loop.index, others, w->starts[0], w->starts[1]};
    value some = lower_load_array(l, turn, scratch, from, (int[]){0, -1, -1, 1}, (bool[]){false, true, true, false});
    value next = lower_combine(l, turn, FOLD_SUM, loop.carried[0], some, 0);
    next = lower_keep_beyond(l, turn, loop.index, parts, next, loop.carried[0]);
    lower_for_end(l, l->phase, &loop, &next, &joined);
    return lower_reduce(l, *f, lower_fill(l, wide, joined, FOLD_SUM), FOLD_SUM, w->dot, 1, false);
}

static dtype sum_elem(dtype elem)
{
    return elem == DT_F64 ? DT_F64 : elem == DT_I8 || elem == DT_U8 ? DT_I32 : DT_F32;
}

static bool lower_all(dot_work *w, fuse_kernel *out, qn_error *error)
{
    builder *b = w->b;
    const graph_node *dot = graph_get(b->g, w->dot);
    dtype elem = graph_get(b->g, dot->inputs[0])->elem, sum = sum_elem(elem);
    dot_begin_lowering(w);
    lowering *l = w->l;
    dot_sizes size = {
        .rows = dot_tile_extent(w, 0), .columns = dot_tile_extent(w, 1), .depth = dot_tile_extent(w, 2), .products = 1};
    for (int axis = 0; axis < l->axis_count; axis++)
        if (dot_is_program_axis(w, axis)) size.products *= l->extents[axis];
    for (int i = 0; (w->factors[0] || w->factors[1]) && i < w->depth_count - 1; i++)
        size.depth *= l->extents[w->depth[i]];
    bool copies[2] = {false, false};
    w->laid = size.rows <= size.columns ? 0 : 1;
    bool as_it_is = elem != DT_F32 || dot->attr.index == PRODUCT_TF32;
    w->slice = w->whole && as_it_is && dot_has_terms(w) && dot_is_slice(w, w->laid);
    dot_find_way(w, elem, &size, copies);
    if (w->plain && (copies[0] || copies[1] || size.terms || size.taken)) {
        copies[0] = copies[1] = size.fed = size.taken = false;
        size.terms = 0;
    }
    if (size.fed && !w->whole) { /* as it is read */
        for (int side = 0; side < 2; side++)
            if (w->factors[side]) w->scales[side] = w->factors[side];
        memset(w->factors, 0, sizeof(w->factors));
    }
    w->term_count = size.terms;
    w->tiles = dot_find_tiles(w, elem, &size);
    w->across = dot_reads_rows_once(w, elem, &size);
    l->k->knobs[KNOB_WARPS] = w->tiles.warps;
    l->k->knobs[KNOB_TURNS] = w->tiles.turns;
    l->k->knobs[KNOB_STAGES] = w->tiles.stages;
    l->k->knobs[KNOB_BLOCKS] = w->tiles.blocks;
    l->k->fills = size.fed ? 1 : -1;
    begin_split(w, &size);
    const dot_tiles tiles = w->tiles;
    const int64_t parts = w->parts;
    for (int side = 0; side < 2; side++)
        if (copies[side] || (w->term_count && !w->whole && !(size.taken && dot_is_taken(w, side))))
            dot_make_terms(w, side, w->term_count ? w->term_count : 1, w->term_count ? DT_BF16 : elem);
    lower_phase(l);
    launch(w);
    w->step = w->tiles.depth;
    frame *f = dot_frame_over(w, l->phase, 0, 1);
    value zero = lower_number(l, l->phase, sum, (number){0});
    value start = lower_broadcast(l, f, zero, 3);
    value product = sum_products(w, start);
    for (int pair = 1; pair < dot_pair_count(w); pair++) {
        choose_depth(w, pair);
        product = sum_products(w, product);
    }
    if (w->parts > 1) product = join_parts(w, &f, product);
    if (dot->elem != sum && b->options->mode != FUSE_FUSED)
        product = lower_convert(l, l->phase, lower_convert(l, l->phase, product, dot->elem), sum);
    w->step = w->tiles.fold_depth;
    lower_bind(f, w->sums, product);
    store_outputs(w, f, 0);
    for (int o = 0; o < w->grp->write_count; o++) {
        unsigned missing = missing_axes(w, &w->outputs[o]);
        bool done = !missing;
        for (int before = 0; before < o; before++) done |= missing_axes(w, &w->outputs[before]) == missing;
        if (!done) store_by_first(w, f, missing);
    }
    if (l->why) return dot_refuse(w, l->why);
    if (lower_finish(l, out, error) != QN_OK) return false;
    struct dot_choice *choice = ARENA_NEW(b->memory, struct dot_choice);
    *choice = (struct dot_choice){.elem = elem, .size = size, .tiles = tiles, .parts = parts, .gathered = w->whole};
    out->choice = choice;
    return true;
}

/* A kernel that a library may compute as a whole: only where nothing but one product comes of the group. */
static bool build_plain(builder *b, const group *grp, fuse_kernel *out)
{
    dot_work work = {.b = b, .grp = grp, .dot = grp->anchor, .plain = true};
    const fuse_kernel before = *out;
    qn_error unread;
    b->why = NULL;
    if (dot_trace(&work) && check_depth(&work) && lower_all(&work, out, &unread) &&
        whole_find(out->kernel, b->memory, NULL)) {
        out->kernel->knobs[KNOB_LIBRARY] = b->options->library;
        return true;
    }
    *out = before;
    return false;
}

bool dot_build(builder *b, const group *grp, fuse_kernel *out, qn_error *error)
{
    if (out && b->options->library && build_plain(b, grp, out)) return true;
    dot_work work = {.b = b, .grp = grp, .dot = grp->anchor};
    b->why = NULL;
    return dot_trace(&work) && check_depth(&work) && (!out || lower_all(&work, out, error));
}
