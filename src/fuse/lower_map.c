/*
 * Kernels without reductions. Everything that collapses to one axis runs in blocks of it; else a program takes a
 * rectangle: the last axis, and the one before it or, where an array runs along another axis in memory, that one.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/loop.h"
#include "fuse/sizes.h"

#define MAP_BLOCK FUSE_SIZE(1024)
#define MAP_COLUMNS FUSE_SIZE(512)
#define MAP_LEAST 256 /* elements of a program on a GPU */
#define STRIP_WIDE 32 /* columns from which a program of strips has one row of them */
#define STRIP_COLUMNS 256
#define MAP_TURN 64       /* sides of the square in which a transposing access is turned */
#define MAP_TURN_LEAST 32 /* from which a block of a GPU turns it in shared memory */

int64_t loop_width(int64_t extent, int64_t most)
{
    int64_t width = 8;
    while (width < extent && width < most) width *= 2;
    return width;
}

static void store_outputs(const loop *p, lowering *l, frame *f)
{
    for (int i = 0; i < p->output_count; i++) lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
    lower_checks(l, f);
}

/* Where each element reads many others the tests of their places cost more than the reading: a tile that has all of them
 * inside goes without. Of a row of strips those that are the same for all of it go (`rows`): the first and the last
 * columns of an image would keep the others from it. */
static void store_whole_and_rest(const loop *p, lowering *l, frame *f, bool rows)
{
    value whole = lower_whole(l, f, rows);
    tile_op *branch = tile_op_new(l->k, OP_IF, &whole, 1);
    branch->region_count = 2;
    for (int i = 0; i < 2; i++) {
        frame *g = lower_frame(l, f, branch->regions[i] = tile_block_new(l->k));
        g->rank = f->rank;
        for (int k = 0; k < f->rank; k++) g->dims[k] = f->dims[k];
        for (int k = 0; k < l->axis_count; k++) g->axes[k].outside &= i == 1 || rows;
        g->inside = i == 0 && !rows;
        g->rows_inside = i == 0 && rows;
        store_outputs(p, l, g);
        tile_append(l->k, g->block, tile_op_new(l->k, OP_YIELD, NULL, 0));
    }
    tile_append(l->k, f->block, branch);
}

/* The kernel axis that neighbours in memory of some array run along, where that is not the last one; -1: none. */
static int turned_axis(const loop *p, const lowering *l)
{
    int last = l->axis_count - 1;
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (x->kind != TERM_ACCESS || x->guarded) continue;
        const graph_node *n = graph_get(p->t->g, x->n);
        const fuse_leaf *leaf = &p->b->leaves[x->n];
        affine place = index_linear(x->map, &n->shape, leaf->given ? leaf->strides : NULL);
        if (place.factor[l->innermost[last]] == 1 || affine_has_atoms(&place)) continue;
        for (int a = 0; a < last; a++)
            if (place.factor[l->innermost[a]] == 1 && l->extents[a] >= 8 && place.factor[l->innermost[last]]) return a;
    }
    return -1;
}

/* Single elements of 16 bits are dear in shared memory: their lines begin at whole vectors, or threads read across them in
 * small squares. */
static bool turns_by_words(const loop *p, const lowering *l, int row)
{
    int last = l->axis_count - 1;
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (x->kind != TERM_ACCESS || x->guarded) continue;
        const graph_node *n = graph_get(p->t->g, x->n);
        const fuse_leaf *leaf = &p->b->leaves[x->n];
        affine place = index_linear(x->map, &n->shape, leaf->given ? leaf->strides : NULL);
        int size = dtypes[n->elem].size_bytes;
        if (place.factor[l->innermost[row]] == 1 && size < 4 && place.factor[l->innermost[last]] * size % 16)
            return false;
    }
    return true;
}

static int64_t turn_side(int64_t extent, int64_t most)
{
    int64_t side = 2;
    while (side < extent && side < most) side *= 2;
    return side;
}

/* The axis whose elements stand one below the other in a program: the last but one. Where both are short (the elements of
 * windows) most of a GPU's program would be empty: then the longest of the others. */
static int row_axis(const loop *p, const lowering *l, int count)
{
    int row = count - 2;
    if (!p->b->options->gpu || l->extents[row] * l->extents[count - 1] >= MAP_LEAST) return row;
    for (int i = row - 1; i >= 0; i--)
        if (l->extents[i] > l->extents[row]) row = i;
    return row;
}

/* Are there fewer programs of this size than multiprocessors? Then what one thread does after another is the time of all: it
 * gets as little as possible. One smaller size alone, so that a kernel has two texts, whatever its extents. */
static bool leaves_units_idle(const loop *p, const lowering *l, int count, int row, const int64_t *dims)
{
    int64_t programs = 1;
    for (int i = 0; i < count; i++) {
        int64_t side = i == row ? dims[0] : i == count - 1 ? dims[1] : 1;
        programs *= (l->extents[i] + side - 1) / side;
    }
    return p->b->options->gpu && programs < p->b->options->units;
}

qn_status map_kernel(const loop *p, fuse_kernel *out, qn_error *error)
{
    lowering *l = loop_begin(p);
    int axes[SPACE_AXES], count = loop_axes(p, l, p->outer, axes);
    int64_t blocks[SPACE_AXES];
    value starts[SPACE_AXES];
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    for (int i = 0; i < count; i++) blocks[i] = 1;
    int row = -1;
    if (count == 1) {
        f->rank = 1;
        f->dims[0] = blocks[0] = MAP_BLOCK;
    } else if (count > 1) {
        row = p->strip ? -1 : turned_axis(p, l);
        f->rank = 2;
        if (p->strip && l->extents[count - 1] >= STRIP_WIDE) { /* tests of rows are the same for all of a program */
            f->rank = 1;
            f->dims[0] = loop_width(l->extents[count - 1], STRIP_COLUMNS);
        } else if (row >= 0) { /* no wider along either axis than that is; the other takes what is left of a square */
            int64_t last = l->extents[count - 1];
            bool square = p->b->options->gpu && last >= MAP_TURN_LEAST && l->extents[row] >= MAP_TURN_LEAST;
            f->turns = square && turns_by_words(p, l, row);
            int64_t side = square && !f->turns ? MAP_TURN_LEAST : MAP_TURN;
            f->dims[1] = turn_side(last, side);
            f->dims[0] = turn_side(l->extents[row], side * side / f->dims[1]);
            if (f->dims[0] < side) f->dims[1] = turn_side(last, side * side / f->dims[0]);
        } else {
            row = row_axis(p, l, count);
            f->dims[1] = loop_width(l->extents[count - 1], MAP_COLUMNS);
            f->dims[0] = (p->strip ? MAP_LEAST : 4 * MAP_COLUMNS) / f->dims[1];
            /* Threads of rows beyond the end of a short axis would do nothing. Not of the first axis, which batches are: each
             * size would get a text of its own. */
            int64_t rows = turn_side(l->extents[row], f->dims[0]);
            if (p->b->options->gpu && row > 0 && rows * f->dims[1] >= MAP_LEAST) f->dims[0] = rows;
            if (leaves_units_idle(p, l, count, row, f->dims)) {
                f->dims[0] = MAXIMUM(MAP_LEAST / f->dims[1], 1);
                loop_wish_of_few(p, l, 1);
            }
        }
        if (row >= 0) blocks[row] = f->dims[0];
        blocks[count - 1] = f->dims[f->rank - 1];
    }
    loop_programs(l, f, axes, blocks, count, 0, 0, starts);
    if (row >= 0) frame_tile(f, axes[row], 0, starts[row], true);
    if (count) frame_tile(f, axes[count - 1], f->rank - 1, starts[count - 1], true);
    if ((p->unroll != UNROLL_NONE || p->strip) && count)
        store_whole_and_rest(p, l, f, p->strip && f->rank == 1);
    else
        store_outputs(p, l, f);
    return lower_finish(l, out, error);
}
