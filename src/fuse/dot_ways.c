/*
 * Which way a product goes and in which tiles, seen with what hangs on it; dot_tiles.c has what its sizes alone speak for.
 * In: the terms of a product. Out: sizes with the ways taken, tiles, which operands are laid out anew.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/dot_work.h"

#define WAIT_DEPTH 20 /* steps of a tf32 product in the time in which its epilogue moves a byte, twice over */

/* What reads whole arrays behind a short product (an optimiser its moments) waits for memory: many small programs do that
 * better than the few that bulk copies feed. The order of a tf32 product's additions may depend on it. */
static bool waits_for_memory(const dot_work *w, const dot_sizes *size)
{
    const trace *t = w->t;
    int64_t loads = 0, stores = 0;
    for (int i = 1; i < t->term_count; i++) {
        const term *x = &t->terms[i];
        bool whole = x->axes & w->classes[CLASS_ROWS] && x->axes & w->classes[CLASS_COLUMNS];
        if (x->kind == TERM_ACCESS && whole) loads += dtypes[graph_get(t->g, x->n)->elem].size_bytes;
    }
    for (int i = 0; i < w->grp->write_count; i++) stores += dtypes[graph_get(t->g, w->grp->writes[i])->elem].size_bytes;
    return loads && (loads + stores) * WAIT_DEPTH > size->depth;
}

/* Is nearly all of its time the memory's? */
static bool is_short(const dot_work *w, const dot_sizes *size)
{
    enum { SHORT = 256 };
    return w->b->options->gpu && !size->fed && !w->whole && size->depth <= SHORT && waits_for_memory(w, size);
}

/* Where a block waits for memory behind its product another one multiplies: half of a large tile, so that two are there. (H200,
 * 186624 x 512 x 128 with Adam: 128 x 64 by four warps takes 0.17 ms less than 128 x 128 by eight.) */
dot_tiles dot_find_tiles(const dot_work *w, dtype elem, const dot_sizes *size)
{
    if (w->whole) return dot_choose_gathered_tiles(w->b->options, size);
    dot_tiles t = dot_choose_tiles(w->b->options, elem, size);
    if (t.rows == 128 && t.columns == 128 && is_short(w, size)) {
        t.columns = 64;
        t.warps = 4;
    }
    return t;
}

/* Bulk copies and terms take operands that lie in memory. */
static bool is_computed(const dot_work *w)
{
    for (int side = 0; side < 2 * dot_pair_count(w); side++)
        if (w->t->terms[w->terms[side]].kind != TERM_ACCESS) return true;
    return w->factors[0] || w->factors[1] || w->scales[0] || w->scales[1];
}

/* Arithmetic on whole results; what is rounded to 16 bits is computed no more precisely than that. */
static int count_behind(const dot_work *w)
{
    enum { COSTLY = 25, COSTLY_HALVES = 10 };
    int count = 0, costly = COSTLY_HALVES;
    for (int i = 0; i < w->grp->write_count; i++)
        if (dtypes[graph_get(w->t->g, w->grp->writes[i])->elem].size_bytes > 2) costly = COSTLY;
    for (int i = 1; i < w->t->term_count; i++) {
        const term *x = &w->t->terms[i];
        bool whole = x->axes & w->classes[CLASS_ROWS] && x->axes & w->classes[CLASS_COLUMNS];
        if (x->kind == TERM_OP && whole && w->needs[i]) count += x->n && ops[x->op].costly ? costly : 1;
    }
    return count;
}

/* The warps that fill the ring multiply what they read with a number of its line, and round it to tf32. */
static bool is_multiplied(const dot_work *w, const dot_sizes *size)
{
    enum { WIDE = 33 }; /* of fewer rows or columns most of a fed tile is empty (H200, 64 x 32 x 186624: 15 us more) */
    if (size->rows < WIDE || size->columns < WIDE) return false;
    if (!size->tf32 || w->whole || dot_pair_count(w) > 1 || w->fold_count || w->scales[0] || w->scales[1]) return false;
    for (int side = 0; side < 2; side++) {
        if (w->t->terms[w->terms[side]].kind != TERM_ACCESS) return false;
        if (w->factors[side] && w->t->terms[w->factors[side]].kind != TERM_ACCESS) return false;
    }
    return w->factors[0] || w->factors[1];
}

static void choose_by_size(const dot_work *w, dtype elem, dot_sizes *size)
{
    const graph_node *dot = graph_get(w->b->g, w->dot);
    size->behind = count_behind(w);
    size->by_chunk = w->by_chunk;
    size->windows = w->windows;
    (w->whole ? dot_choose_gathered_way : dot_choose_way)(w->b->options, elem, (product_way)dot->attr.index, size);
    if (size->fed && size->tf32 && !w->whole && waits_for_memory(w, size)) size->fed = false;
    if (!w->whole && is_computed(w)) size->fed = size->fed && is_multiplied(w, size), size->terms = 0;
}

dot_sizes dot_find_sizes(const dot_work *w)
{
    const space *s = &w->t->space;
    const graph_node *dot = graph_get(w->b->g, w->dot);
    dot_sizes size = {.rows = space_count(s, w->classes[CLASS_ROWS]),
                      .columns = space_count(s, w->classes[CLASS_COLUMNS]),
                      .depth = space_count(s, w->classes[CLASS_DEPTH]),
                      .products = space_count(s, w->classes[CLASS_BATCH])};
    choose_by_size(w, graph_get(w->b->g, dot->inputs[0])->elem, &size);
    return size;
}

int64_t dot_find_parts(const dot_work *w, const dot_sizes *size)
{
    if (dot_pair_count(w) > 1) return 1;
    const graph_node *dot = graph_get(w->b->g, w->dot);
    dot_tiles tiles = dot_find_tiles(w, graph_get(w->b->g, dot->inputs[0])->elem, size);
    return dot_choose_parts(w->b->options, &tiles, size);
}

void dot_find_way(const dot_work *w, dtype elem, dot_sizes *size, bool copies[2])
{
    choose_by_size(w, elem, size);
    bool can = dot_pair_count(w) == 1 && dot_has_terms(w);
    if ((size->terms || w->whole) && !can) size->fed = false, size->terms = 0;
    if (w->whole) copies[w->laid] = size->fed && !w->slice;
    if (!size->fed || size->terms || w->whole) return;
    if (is_computed(w)) {
        for (int side = 0; side < 2; side++) {
            bool bulk = !w->factors[side] && w->tile_axis[2] >= 0 && !dot_wants_copy(w, side, true);
            size->fed = size->fed && w->tile_axis[side] >= 0 && (bulk || dot_is_taken(w, side));
        }
        size->taken = size->fed;
        return;
    }
    int many = size->rows > size->columns ? 0 : 1; /* the few are laid out anew where need be: next to nothing */
    if (dot_pair_count(w) == 1 && w->depth_count == 1 && !w->fold_count && dot_lies_well(w, many) &&
        (can || dot_lies_well(w, !many)) && dot_take_thin(w->b->options, elem, !dot_wants_copy(w, many, true), size)) {
        copies[!many] = !dot_lies_well(w, !many);
        return;
    }
    for (int side = 0; side < 2; side++)
        copies[side] =
            w->tile_axis[side] < 0 || w->tile_axis[2] < 0 || dot_wants_copy(w, side, dot_takes_rows_of_k(size));
    if ((copies[0] || copies[1]) && !(can && dot_is_worth_copies(size, copies))) {
        bool takes = can && dot_is_worth_rough_terms(w->b->options, size), turns = takes;
        for (int side = 0; side < 2; side++) turns = turns && (!copies[side] || dot_is_taken(w, side));
        copies[0] = copies[1] = false;
        size->fed = turns || (!dot_takes_rows_of_k(size) && size->depth % 8 == 0);
        size->taken = turns;
        if (takes && !turns) dot_take_rough_terms(size);
    }
}

/* Programs that follow each other share what they read. Down the rows that is the right operand, and the left one is read
 * again for every column of tiles: once only, across the columns, where it is too long for the L2 and time is the memory's.
 * Of one that is computed from much less both are in the L2: across, what follows walks through whole rows of memory. */
bool dot_reads_rows_once(const dot_work *w, dtype elem, const dot_sizes *size)
{
    enum { CACHED_BYTES = 16 << 20 };
    bool longer = size->rows > 4 * size->columns && size->rows * size->depth * dtypes[elem].size_bytes > CACHED_BYTES;
    return (longer || w->scales[0]) && size->columns > w->tiles.columns && is_short(w, size);
}
