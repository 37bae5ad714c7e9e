/*
 * Strips: where neighbouring results of a map read the same elements (windows that overlap, stencils), one place of its
 * space takes several results along an axis, and what they share is loaded once. In: a loop group without folds, as
 * analysed. Out: the same over a space with fewer places along that axis, with an output for each result of a strip;
 * or the loop as it was.
 *
 * Result j of strip i lies at i * count + j. Equal elements are equal terms, so nothing has to be found. The last strip
 * may stick out: what it would read outside is guarded, what it would write is tested, and the text is the same for all
 * sizes.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/loop.h"

#define STRIP_MOST 8
#define STRIP_LOADS 64                  /* what a thread has room for, with the sums */
#define STRIP_PLACES ((int64_t)1 << 16) /* below so many places threads would be missing */
#define STRIP_GAIN 0.9

static index_map strip_map(const index_map *m, int axis, int count, int64_t j)
{
    index_map out = *m;
    for (int k = 0; k < m->rank; k++) {
        out.axes[k].constant += j * m->axes[k].factor[axis];
        out.axes[k].factor[axis] *= count;
    }
    return out;
}

static int accesses(const trace *t)
{
    int count = 0;
    for (int i = 1; i < t->term_count; i++) count += t->terms[i].kind == TERM_ACCESS;
    return count;
}

/* The loop with strips; false: it cannot be. */
static bool in_strips(const loop *p, int axis, int count, loop *out)
{
    *out = *p;
    int64_t extent = p->space.axes[axis].extent;
    out->space.axes[axis].extent = (extent + count - 1) / count;
    out->t = trace_new(p->b->memory, p->b->g, p->b->in_memory, p->b->options, &out->space);
    out->t->uncut = true;
    out->t->leaves = p->b->leaves;
    out->t->unroll = p->unroll;
    out->t->strip_axis = axis;
    out->strip = count;
    out->outputs = ARENA_ARRAY(p->b->memory, lower_output, p->output_count * count);
    out->output_count = 0;
    for (int i = 0; i < p->output_count; i++) {
        for (int j = 0; j < count; j++) {
            lower_output *now = &out->outputs[out->output_count++];
            *now = (lower_output){.n = p->outputs[i].n, .map = strip_map(&p->outputs[i].map, axis, count, j)};
            now->term = trace_node(out->t, now->n, &now->map);
            if (!now->term) return false;
        }
    }
    affine last = {.constant = count - 1};
    last.factor[axis] = count;
    trace_inside(out->t, &last, 0, extent); /* asked for where a tile goes without tests */
    return !out->t->atom_count && out->t->term_count <= TRACE_MOST_TERMS / 4;
}

loop *loop_strip(const loop *p)
{
    int last = p->space.axis_count - 1, whole = accesses(p->t);
    loop *best = NULL;
    double least = STRIP_GAIN * whole;
    if (p->shape != LOOP_MAP || p->unroll == UNROLL_NONE || !p->b->options->gpu || p->t->atom_count) return NULL;
    for (int axis = 0; axis < last; axis++) {
        for (int count = STRIP_MOST; count > 1; count /= 2) {
            loop *out = ARENA_NEW(p->b->memory, loop);
            if (p->space.axes[axis].extent < 2 * count) continue;
            if (space_count(&p->space, p->outer) / count < STRIP_PLACES) continue;
            if (!in_strips(p, axis, count, out)) break;
            double each = (double)accesses(out->t) / count;
            if (accesses(out->t) > STRIP_LOADS || each >= least) continue;
            least = each;
            best = out;
        }
    }
    return best;
}
