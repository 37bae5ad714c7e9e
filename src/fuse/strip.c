/*
 * Strips: one place of a map's space takes several results along an axis, or several axes. In: a loop group without folds, as
 * analysed. Out: the same over a space with fewer places along these axes, with an output for each result of a strip; or
 * the loop as it was.
 *
 * That saves work in two cases. Neighbouring results read the same elements (windows that overlap, stencils): what they
 * share is loaded once. Or results alternate (gradients of strided windows, interleaved parts): of every second place it
 * is known in the text which of two cases it is.
 * Result j of strip i lies at i * count + j. Equal elements are equal terms, so nothing has to be found. The last strip
 * may stick out: what it would read outside is guarded, what it would write is tested, and the text is the same for all
 * sizes.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/loop.h"
#include "fuse/sizes.h"

#include <string.h>

#define STRIP_MOST 8
#define STRIP_RESULTS 16                         /* of several axes together */
#define STRIP_LOADS 72                           /* what a thread has room for, with the sums */
#define STRIP_PLACES FUSE_SIZE((int64_t)1 << 16) /* below so many places threads would be missing */
#define STRIP_GAIN 0.9

typedef struct strip {
    int counts[SPACE_AXES]; /* results along each axis of the space */
    int results;            /* all of them */
} strip;

/* The map of result `number` of each strip. */
static index_map strip_map(const index_map *m, const strip *s, int axis_count, int number)
{
    index_map out = *m;
    for (int axis = axis_count - 1; axis >= 0; axis--) {
        int64_t j = number % s->counts[axis];
        number /= s->counts[axis];
        for (int k = 0; k < m->rank; k++) {
            out.axes[k].constant += j * m->axes[k].factor[axis];
            out.axes[k].factor[axis] *= s->counts[axis];
        }
    }
    return out;
}

static int accesses(const trace *t)
{
    int count = 0;
    for (int i = 1; i < t->term_count; i++) count += t->terms[i].kind == TERM_ACCESS;
    return count;
}

/* What all terms cost at one place, about: tests and divisions of places are dearer than numbers. */
static double effort(const trace *t)
{
    double sum = 0;
    for (int i = 1; i < t->term_count; i++) {
        const term *x = &t->terms[i];
        sum += x->kind == TERM_ACCESS ? (x->guarded ? 8 : 4) : x->kind == TERM_QUOTIENT ? 16 : 1;
    }
    return sum;
}

/* Does an axis of the array run along several of the space? Beyond the end of one of those it goes on. */
static bool is_merged(const index_map *m, const loop *p)
{
    for (int k = 0; k < m->rank; k++) {
        int along = 0;
        for (int axis = 0; axis < p->space.axis_count; axis++)
            along += m->axes[k].factor[axis] != 0 && p->space.axes[axis].extent > 1;
        if (along > 1) return true;
    }
    return false;
}

/* Is result `number` of a strip one? Strips may stick out along their axes, and the tiles of a program along others. */
static int within_space(trace *t, const strip *s, const space *whole, int number)
{
    int inside = 0;
    for (int axis = whole->axis_count - 1; axis >= 0; axis--) {
        affine at = {.constant = number % s->counts[axis]};
        at.factor[axis] = s->counts[axis];
        number /= s->counts[axis];
        if (whole->axes[axis].extent == 1) continue;
        int here = trace_inside(t, &at, 0, whole->axes[axis].extent);
        inside = inside ? trace_op(t, OP_AND, DT_BOOL, 0, (int[]){inside, here}, 2) : here;
    }
    return inside;
}

/* The loop with strips; NULL: it cannot be. */
static loop *in_strips(const loop *p, const strip *s)
{
    loop *out = ARENA_NEW(p->b->memory, loop);
    *out = *p;
    for (int axis = 0; axis < p->space.axis_count; axis++) {
        int64_t extent = p->space.axes[axis].extent, count = s->counts[axis];
        if (count > 1 && extent < 2 * count) return NULL;
        out->space.axes[axis].extent = (extent + count - 1) / count;
    }
    if (space_count(&out->space, p->outer) < STRIP_PLACES) return NULL;
    out->t = trace_new(p->b->memory, p->b->g, p->b->in_memory, p->b->options, &out->space);
    out->t->uncut = true;
    out->t->leaves = p->b->leaves;
    out->t->unroll = p->unroll;
    for (int axis = 0; axis < p->space.axis_count; axis++)
        if (s->counts[axis] > 1) out->t->strip_axes |= 1u << axis;
    out->strip = s->results;
    out->outputs = ARENA_ARRAY(p->b->memory, lower_output, p->output_count * s->results);
    out->output_count = 0;
    for (int i = 0; i < p->output_count; i++) {
        for (int j = 0; j < s->results; j++) {
            lower_output *now = &out->outputs[out->output_count++];
            *now =
                (lower_output){.n = p->outputs[i].n, .map = strip_map(&p->outputs[i].map, s, p->space.axis_count, j)};
            now->term = trace_node(out->t, now->n, &now->map);
            if (!now->term) return NULL;
            if (is_merged(&p->outputs[i].map, p)) now->within = within_space(out->t, s, &p->space, j);
        }
    }
    for (int axis = 0; axis < p->space.axis_count; axis++) { /* asked for where a tile goes without tests */
        if (s->counts[axis] == 1) continue;
        affine last = {.constant = s->counts[axis] - 1};
        last.factor[axis] = s->counts[axis];
        trace_inside(out->t, &last, 0, p->space.axes[axis].extent);
    }
    return out->t->atom_count || out->t->term_count > TRACE_MOST_TERMS / 4 ? NULL : out;
}

/* Results that take turns: after so many along each axis it begins again. */
static bool find_turns(const loop *p, strip *s)
{
    const trace *t = p->t;
    for (int axis = 0; axis < p->space.axis_count; axis++) s->counts[axis] = 1;
    s->results = 1;
    for (int i = 1; i < t->term_count; i++) {
        const term *x = &t->terms[i];
        unsigned axes = x->kind == TERM_QUOTIENT ? affine_axes(&x->index, t->atom_axes) : 0;
        if (!axes || axes & (axes - 1) || affine_has_atoms(&x->index) || x->low != 1 || x->high < 2) continue;
        int axis = __builtin_ctz(axes);
        if (x->high > STRIP_MOST || (s->counts[axis] > 1 && s->counts[axis] != x->high)) return false;
        if (s->counts[axis] == 1) s->results *= (int)x->high;
        s->counts[axis] = (int)x->high;
    }
    return s->results > 1 && s->results <= STRIP_RESULTS;
}

/* Along which axis, or which two, neighbours share most. */
static loop *share_loads(const loop *p)
{
    int last = p->space.axis_count - 1;
    double least = STRIP_GAIN * accesses(p->t);
    loop *best = NULL;
    for (int axis = 0; axis < last; axis++) {
        for (int other = axis; other < last; other++) { /* axis itself: along that one alone */
            for (int all = STRIP_MOST; all > 1; all /= 2) {
                for (int count = all; count >= 1; count /= 2) {
                    strip s = {.results = all};
                    if (other == axis ? count != all : count == all || count == 1) continue;
                    for (int k = 0; k <= last; k++) s.counts[k] = k == axis ? count : k == other ? all / count : 1;
                    loop *out = in_strips(p, &s);
                    if (!out || accesses(out->t) > STRIP_LOADS || (double)accesses(out->t) / all >= least) continue;
                    least = (double)accesses(out->t) / all;
                    best = out;
                }
            }
        }
    }
    return best;
}

/* Is something read at several places around each one, as by a window or a stencil? */
static bool reads_around(const trace *t)
{
    enum { AROUND_LEAST = 3 };
    for (int i = 1; i < t->term_count; i++) {
        int places = 0;
        for (int k = i; k < t->term_count && t->terms[i].kind == TERM_ACCESS; k++)
            places += t->terms[k].kind == TERM_ACCESS && t->terms[k].n == t->terms[i].n;
        if (places >= AROUND_LEAST) return true;
    }
    return false;
}

loop *loop_strip(const loop *p)
{
    strip turns;
    if (p->shape != LOOP_MAP || !p->b->options->gpu) return NULL;
    if (find_turns(p, &turns)) {
        loop *out = in_strips(p, &turns);
        bool good =
            out && accesses(out->t) <= STRIP_LOADS && effort(out->t) / turns.results < effort(p->t) * STRIP_GAIN;
        return good ? out : NULL;
    }
    return p->t->atom_count || !reads_around(p->t) ? NULL : share_loads(p);
}
