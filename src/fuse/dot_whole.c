/*
 * Is a product gathered? In: a traced product, its axes by class. Out: `whole`, with M, N and K as one kernel axis each and
 * the conditions under which operands exist as their guards, or the classes as they were.
 *
 * An axis that only one operand has runs along that one's side. A GPU takes every such product and orders it for its matrix
 * units; a CPU leaves axes to programs that its vectors could not go along, and gathers nothing that is read beside.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/dot_work.h"
#include "fuse/lower_parts.h"

#include <stdlib.h>
#include <string.h>

#define DENSE_ENOUGH 0.875 /* of what guards ask for */
#define MOST_COUNTED 4096  /* positions that are counted for it */
#define FEW_PLACES 8       /* along an axis that is left to programs because of them */
#define LEAST_LINES 16     /* that must be left to a tile */
#define LEAST_RUN 8        /* elements along an axis that make it worth to store along it */

/* Where operands are gathered, an axis that only one of them has runs along that one's side of the tiles. */
static void classify_gathered(dot_work *w)
{
    unsigned left = dot_gathered_axes(w, 0), right = dot_gathered_axes(w, 1), depth = w->classes[CLASS_DEPTH];
    unsigned all = (1u << w->t->space.axis_count) - 1;
    w->classes[CLASS_ROWS] = left & ~right & ~depth;
    w->classes[CLASS_COLUMNS] = right & ~left & ~depth;
    w->classes[CLASS_BATCH] = all & ~depth & ~w->classes[CLASS_ROWS] & ~w->classes[CLASS_COLUMNS];
}

/* On a CPU what lies beside the operands is read and written in vectors: axes that the results do not go through as one
 * with those inside them are programs. True: fewer than `enough` are left of more. */
static bool keep_joined(dot_work *w, dot_class class, int64_t enough)
{
    const space *s = &w->t->space;
    unsigned *axes = &w->classes[class];
    int inner = -1;
    for (int i = s->axis_count - 1; i >= 0; i--) {
        bool joins = *axes >> i & 1;
        if (!joins) continue;
        for (int o = 0; o < w->grp->write_count && inner >= 0; o++) {
            affine place = index_linear(&w->outputs[o].map, &graph_get(w->t->g, w->outputs[o].n)->shape, NULL);
            joins &= place.factor[i] == place.factor[inner] * s->axes[inner].extent;
        }
        if (joins) {
            inner = i;
            continue;
        }
        unsigned outer = *axes & ((2u << i) - 1);
        *axes &= ~outer;
        w->classes[CLASS_BATCH] |= outer;
        return space_count(s, *axes) < enough && space_count(s, outer) > 1;
    }
    return false;
}

/* How much of what a guard asks for is inside, along its axes of a side and of K. */
static double inside_of(const dot_work *w, const term *guard)
{
    const space *s = &w->t->space;
    int64_t total = 1, inside = 0, digits[SPACE_AXES] = {0};
    for (int i = 0; i < s->axis_count; i++)
        if (guard->index.factor[i]) total *= s->axes[i].extent;
    if (total < 1 || total > MOST_COUNTED) return 1;
    for (int64_t n = 0; n < total; n++) {
        int64_t sum = guard->index.constant;
        for (int i = 0; i < s->axis_count; i++) sum += guard->index.factor[i] * digits[i];
        inside += sum >= guard->low && sum < guard->high;
        for (int i = 0; i < s->axis_count; i++) {
            if (!guard->index.factor[i]) continue;
            if (++digits[i] < s->axes[i].extent) break;
            digits[i] = 0;
        }
    }
    return (double)inside / (double)total;
}

/* Places that share their steps of depth go to programs of their own where others would multiply by zero at them: what is
 * left by a stride, whose elements of a window are not those of the next one. */
static void part_sparse(dot_work *w)
{
    const space *s = &w->t->space;
    for (int side = 0; side < 2; side++) {
        unsigned *axes = &w->classes[CLASS_ROWS + side], depth = w->classes[CLASS_DEPTH];
        const dot_gathered *x = &w->gathered[side];
        for (int g = 0; g < x->guard_count; g++) {
            const term *guard = &w->t->terms[x->guards[g]];
            if (!(guard->axes & depth) || inside_of(w, guard) > DENSE_ENOUGH) continue;
            for (int i = 0; i < s->axis_count; i++) {
                bool parts = guard->index.factor[i] && *axes >> i & 1 && s->axes[i].extent <= FEW_PLACES;
                if (!parts || space_count(s, *axes & ~(1u << i)) < LEAST_LINES) continue;
                *axes &= ~(1u << i);
                w->classes[CLASS_BATCH] |= 1u << i;
            }
        }
    }
}

/* Where much of a window is outside, channels are counted through inside of it: steps at one element of it are outside
 * together, and are left out. */
static void order_sparse(dot_work *w)
{
    const space *s = &w->t->space;
    unsigned depth = w->classes[CLASS_DEPTH], guarded = 0;
    double inside = 1;
    for (int side = 0; side < 2; side++)
        for (int g = 0; g < w->gathered[side].guard_count; g++) {
            const term *guard = &w->t->terms[w->gathered[side].guards[g]];
            guarded |= guard->axes & depth;
            inside *= inside_of(w, guard);
        }
    if (inside > DENSE_ENOUGH) return;
    int sorted[SPACE_AXES], count = 0;
    for (unsigned turn = 0; turn < 2; turn++)
        for (int i = 0; i < s->axis_count; i++)
            if (depth >> i & 1 && (guarded >> i & 1) != turn) sorted[count++] = i;
    count = 0;
    for (int i = 0; i < s->axis_count; i++)
        if (depth >> w->order[i] & 1) w->order[i] = sorted[count++];
}

/* Is everything but the operands read and written with strides? A fold beside the product would read an operand, too.
 * apart: results need not be. */
static bool others_are_slices(const dot_work *w, bool apart)
{
    const trace *t = w->t;
    for (int id = 1; id < t->term_count; id++) {
        const term *x = &t->terms[id];
        if (x->kind == TERM_FOLD) return false;
        if (x->kind != TERM_ACCESS || id == w->gathered[0].access || id == w->gathered[1].access) continue;
        if (x->guarded) return false;
        affine place = lower_place(w->l, x->n, x->map);
        if (affine_has_atoms(&place)) return false;
        for (int axis = 0; axis < w->l->axis_count; axis++)
            if (!lower_is_linear(w->l, &place, axis)) return false;
    }
    for (int o = 0; o < w->grp->write_count; o++) {
        affine place = index_linear(&w->outputs[o].map, &graph_get(t->g, w->outputs[o].n)->shape, NULL);
        for (int axis = 0; axis < w->l->axis_count && !apart; axis++)
            if (!lower_is_linear(w->l, &place, axis)) return false;
        for (int side = 0; side < 2; side++)
            if (dot_uses(w, w->outputs[o].term, w->gathered[side].access)) return false;
    }
    return true;
}

/* Would the operand be asked for an element that its array does not have? */
static bool reaches_outside(const dot_work *w, const dot_gathered *operand)
{
    const term *x = &w->t->terms[operand->access];
    if (operand->guard_count) return false;
    const shape *of = &graph_get(w->b->g, x->n)->shape;
    for (int k = 0; k < x->map->rank; k++) {
        int64_t low = x->map->axes[k].constant, high = low;
        for (int i = 0; i < w->t->space.axis_count; i++) {
            int64_t reach = x->map->axes[k].factor[i] * (w->t->space.axes[i].extent - 1);
            low += MINIMUM(reach, 0);
            high += MAXIMUM(reach, 0);
        }
        if (low < 0 || high >= of->extents[k]) return true;
    }
    return false;
}

/* What guards the product guards the operand that has the axes of the guard: one factor that is 0 is enough. But where both
 * go along such an axis (of batches), the other one is not there either: it may lie outside of its array, or be NaN. */
static bool share_guard(dot_work *w, int id)
{
    const term *x = &w->t->terms[id];
    if (!id) return true;
    if (x->kind == TERM_OP && x->op == OP_AND) return share_guard(w, x->inputs[0]) && share_guard(w, x->inputs[1]);
    unsigned depth = w->classes[CLASS_DEPTH];
    int side = !(x->axes & ~(dot_gathered_axes(w, 0) | depth)) ? 0 : 1;
    unsigned others = dot_gathered_axes(w, 1 - side);
    if (x->axes & ~(dot_gathered_axes(w, side) | depth) || !dot_add_guards(w->t, id, &w->gathered[side])) return false;
    bool both = x->axes & others & ~depth && !(x->axes & ~(others | depth));
    return !both || dot_add_guards(w->t, id, &w->gathered[1 - side]);
}

/* Does the first result have its elements near each other along an axis of M, rather than of N? */
static bool lies_along_rows(const dot_work *w)
{
    const lower_output *out = &w->outputs[0];
    const space *s = &w->t->space;
    affine place = index_linear(&out->map, &graph_get(w->t->g, out->n)->shape, NULL);
    int near = -1;
    for (int i = 0; i < s->axis_count; i++)
        if (place.factor[i] && s->axes[i].extent >= LEAST_RUN && (near < 0 || place.factor[i] < place.factor[near]))
            near = i;
    return near >= 0 && w->classes[CLASS_ROWS] >> near & 1;
}

/* For matrix units and vectors rows and columns change places where results lie along rows; for matrix units K counts
 * through its axes as the operand that is gathered lies in memory. */
static void choose_order(dot_work *w)
{
    const space *s = &w->t->space;
    for (int i = 0; i < s->axis_count; i++) w->order[i] = i;
    w->by_chunk = w->windows = false;
    dot_sizes size = dot_find_sizes(w);
    if (!size.fed && w->b->options->gpu) return;
    if (lies_along_rows(w)) {
        unsigned rows = w->classes[CLASS_ROWS];
        w->classes[CLASS_ROWS] = w->classes[CLASS_COLUMNS];
        w->classes[CLASS_COLUMNS] = rows;
        dot_gathered left = w->gathered[0];
        int term = w->terms[0];
        w->gathered[0] = w->gathered[1];
        w->gathered[1] = left;
        w->terms[0] = w->terms[1];
        w->terms[1] = term;
        size = dot_find_sizes(w);
    }
    if (!size.fed) return;
    const term *x = &w->t->terms[w->gathered[size.rows <= size.columns].access];
    const fuse_leaf *leaf = &w->b->leaves[x->n];
    affine place = index_linear(x->map, &graph_get(w->b->g, x->n)->shape, leaf->given ? leaf->strides : NULL);
    unsigned depth = w->classes[CLASS_DEPTH];
    for (int i = 0; i < s->axis_count; i++) /* few axes */
        for (int k = i + 1; k < s->axis_count; k++)
            if (depth >> w->order[i] & depth >> w->order[k] & 1 &&
                llabs(place.factor[w->order[i]]) < llabs(place.factor[w->order[k]])) {
                int other = w->order[i];
                w->order[i] = w->order[k];
                w->order[k] = other;
            }
    for (int i = 0; i < s->axis_count; i++) {
        if (!(depth >> w->order[i] & 1)) continue;
        int64_t extent = s->axes[w->order[i]].extent;
        w->by_chunk = place.factor[w->order[i]] == 1 && extent % (size.line / 8) == 0 && !size.terms;
        w->windows = w->by_chunk && extent % size.line == 0;
    }
}

/* An operand is gathered where it is not a slice, where the depth is in pieces, and on a GPU where no piece of a side is
 * long enough for its tiles. */
void dot_choose_whole(dot_work *w)
{
    const space *s = &w->t->space;
    memset(w->gathered, 0, sizeof(w->gathered));
    w->whole = false;
    if (w->b->options->mode == FUSE_EAGER || dot_pair_count(w) > 1) return;
    bool gpu = w->b->options->gpu;
    dtype elem = graph_get(w->b->g, graph_get(w->b->g, w->dot)->inputs[0])->elem;
    bool wanted = false;
    for (int side = 0; side < 2; side++) {
        if (!dot_gather_operand(w->t, w->terms[side], &w->gathered[side])) return;
        wanted |= w->gathered[side].guard_count > 0;
    }
    if (elem == DT_I8 || elem == DT_U8 || !share_guard(w, w->guard)) return;
    if (reaches_outside(w, &w->gathered[0]) || reaches_outside(w, &w->gathered[1])) return;
    if (w->top == w->dot) {
        dot_begin_lowering(w);
        wanted |= w->depth_count > 1;
        for (int side = 0; side < 2 && gpu; side++)
            wanted |= dot_tile_extent(w, side) < 64 &&
                      dot_tile_extent(w, side) < space_count(s, w->classes[CLASS_ROWS + side]);
        if (!wanted) return;
    } else {
        for (int i = 0; i < s->axis_count; i++)
            if (s->axes[i].root > w->rank && !(dot_gathered_axes(w, 0) & dot_gathered_axes(w, 1) & 1u << i)) return;
    }
    int terms[2] = {w->terms[0], w->terms[1]};
    w->whole = true;
    classify_gathered(w);
    choose_order(w);
    if (gpu) return;
    part_sparse(w);
    order_sparse(w);
    unsigned classes[COUNT(w->classes)];
    memcpy(classes, w->classes, sizeof(classes));
    bool thin_rows = keep_joined(w, CLASS_ROWS, 8), thin_columns = keep_joined(w, CLASS_COLUMNS, 32);
    bool thin = thin_rows || thin_columns;
    if (thin) memcpy(w->classes, classes, sizeof(classes));
    dot_begin_lowering(w);
    w->whole = others_are_slices(w, thin);
    if (w->whole) return;
    memcpy(w->terms, terms, sizeof(terms));
    dot_classify(w);
}
