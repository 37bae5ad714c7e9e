/*
 * The cost model of fusion. In: the terms of a loop group, or a product with what hangs on it. Out: bytes, arithmetic,
 * loads, and a time: launches and the longest of the three.
 *
 * A term costs as often as it is evaluated: for every place of the axes that it depends on, and in a kernel of rows for
 * every row, whatever it depends on. So work that a fused kernel does many times over (a chain inside a window, a row
 * of functions under many rows) stands in its time, and is weighed against the bytes that it saves.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/cost.h"

#include <stdlib.h>
#include <string.h>

/* A large GPU as a whole, and a core of a CPU; what counts is how they compare. */
typedef struct machine {
    double bytes_ns, ops_ns, loads_ns, dots_ns, launch_ns; /* so much each nanosecond; of a launch: nanoseconds */
    double function;                                       /* ops of a costly function */
    int sector;                                            /* elements side by side that one load touches anyway */
} machine;

static machine machine_of(const fuse_options *o)
{
    if (o->gpu) return (machine){4000, 25000, 3600, 40000, 3000, 8, 8};
    double cores = MAXIMUM(o->units, 1);
    return (machine){MINIMUM(10 * cores, 200), 24 * cores, 16 * cores, 60 * cores, 1500, 12, 16};
}

static fuse_cost finish(const machine *m, fuse_cost c)
{
    double memory = c.bytes / m->bytes_ns, ops = c.ops / m->ops_ns, loads = c.loads / m->loads_ns;
    double longest = MAXIMUM(memory, MAXIMUM(ops, loads)), launches = c.launches * m->launch_ns;
    c.bound = longest < launches ? "launches" : longest == memory ? "memory" : longest == ops ? "arithmetic" : "loads";
    c.time_ns = longest + launches;
    return c;
}

fuse_cost cost_of_bytes(const fuse_options *options, double bytes, double ops, int launches)
{
    machine m = machine_of(options);
    return finish(&m, (fuse_cost){.bytes = bytes, .ops = ops, .launches = launches});
}

/* Elements between neighbours along the space's last axis: what is far apart takes more of the load units. */
static double apart(const loop *p, const machine *m, const term *x)
{
    int last = p->space.axis_count - 1;
    if (p->shape == LOOP_ROW && !p->turned) /* along the row */
        for (last = p->space.axis_count - 1; last >= 0 && !(p->inner >> last & 1);) last--;
    if (last < 0) return 1;
    const fuse_leaf *leaf = &p->b->leaves[x->n];
    affine place = index_linear(x->map, &graph_get(p->t->g, x->n)->shape, leaf->given ? leaf->strides : NULL);
    double step = (double)llabs(place.factor[last]);
    return step > m->sector ? m->sector : step > 1 ? step : 1;
}

/* How often a term is computed. In a map of a GPU each thread has what its elements need: a number of a row (what a chain of
 * the row's elements gives, a weight) is computed for every vector of it. */
static double times(const loop *p, const term *x)
{
    enum { VECTOR = 4 };
    unsigned all = p->outer | p->inner, axes = x->axes | x->folded;
    bool row = p->shape == LOOP_ROW || p->shape == LOOP_BOTH;
    int last = p->space.axis_count - 1;
    double often = (double)space_count(&p->space, row && axes & p->inner ? all : axes);
    if (!p->b->options->gpu || p->shape != LOOP_MAP || !axes || last < 0 || axes >> last & 1) return often;
    return MAXIMUM(often, (double)space_count(&p->space, axes | 1u << last) / VECTOR);
}

/* Does everything go through an axis and the next one as through one? */
static bool is_one_axis(const loop *p, int axis, int next)
{
    const trace *t = p->t;
    for (int i = 1; i < t->term_count; i++) {
        const term *x = &t->terms[i];
        if ((x->kind == TERM_INSIDE || x->kind == TERM_QUOTIENT) && x->axes & (1u << axis | 1u << next)) return false;
        if (x->kind != TERM_ACCESS) continue;
        const fuse_leaf *leaf = &p->b->leaves[x->n];
        affine place = index_linear(x->map, &graph_get(t->g, x->n)->shape, leaf->given ? leaf->strides : NULL);
        if (place.factor[axis] != place.factor[next] * p->space.axes[next].extent) return false;
    }
    return true;
}

/* A CPU goes along the last axis of a row, and what is one with it: that has to fill its vectors. */
static double short_waste(const loop *p)
{
    enum { LANES = 16, EACH = 64 }; /* EACH: elements in the time that a pass over one of them takes */
    if ((p->shape != LOOP_ROW && p->shape != LOOP_BOTH) || p->turned) return 1;
    int64_t along = 0;
    for (int i = p->space.axis_count - 1, next = -1; i >= 0; i--) {
        if (!(p->inner >> i & 1)) continue;
        if (next >= 0 && !is_one_axis(p, i, next)) return along < LANES ? (double)EACH / (double)MAXIMUM(along, 1) : 1;
        along = MAXIMUM(along, 1) * p->space.axes[i].extent;
        next = i;
    }
    return 1;
}

/* On a GPU rows of a few elements keep few of the lanes busy that they get. */
static double row_waste(const loop *p)
{
    if (!p->b->options->gpu) return short_waste(p);
    if (p->shape != LOOP_ROW || p->turned)
        return p->shape == LOOP_COLUMN && space_count(&p->space, p->outer) <= 64 ? 3 : 1;
    if (loop_is_line(p)) return 1;
    int last = p->space.axis_count - 1;
    while (last > 0 && !(p->inner >> last & 1)) last--;
    int64_t row = p->space.axis_count ? p->space.axes[last].extent : 1;
    if (row % 4 == 0 && loop_writes_rows(p)) return 1; /* a lane has a vector of one */
    return row <= 16 ? 4 : row < 32 ? 2 : 1;
}

/* How much of a GPU a kernel of rows keeps busy: a row of several axes, the last ones short, belongs to one block, unless it
 * is cut into lines (lower_cut.c). */
static double share_of_chip(const loop *p)
{
    const space *s = &p->space;
    int64_t units = p->b->options->units, rows = space_count(s, p->outer), line = 0;
    if (!p->b->options->gpu || p->shape != LOOP_ROW || p->turned || rows >= units) return 1;
    int next = -1;
    for (int i = s->axis_count - 1; i >= 0; i--) {
        if (!(p->inner >> i & 1)) continue;
        if (next >= 0 && !is_one_axis(p, i, next)) {
            bool cut = line >= LOOP_CUT_LINE || space_count(s, p->inner) > LOOP_CUT_CHIP;
            return cut ? 1 : (double)rows / (double)units;
        }
        line = MAXIMUM(line, 1) * s->axes[i].extent;
        next = i;
    }
    return 1;
}

fuse_cost cost_of_loop(const loop *p)
{
    const trace *t = p->t;
    machine m = machine_of(p->b->options);
    fuse_cost c = {.launches = p->shape == LOOP_COLUMN || p->shape == LOOP_BOTH ? 2 : 1};
    double waste = row_waste(p);
    double *read = ARENA_ARRAY(p->b->memory, double, p->around.count + 1); /* by local: bytes */
    for (int i = 1; i < t->term_count; i++) {
        const term *x = &t->terms[i];
        double often = times(p, x);
        switch (x->kind) {
        case TERM_ACCESS: {
            int at = locals_find(&p->around, x->n);
            c.loads += often * waste * apart(p, &m, x);
            if (x->guarded) c.ops += 4 * often;
            if (at >= 0)
                read[at] += (double)space_count(&p->space, x->axes) * dtypes[graph_get(t->g, x->n)->elem].size_bytes;
            break;
        }
        case TERM_OP: c.ops += often * waste * (x->n && ops[x->op].costly ? m.function : 1); break;
        case TERM_FOLD:
        case TERM_INSIDE: c.ops += often * waste; break;
        case TERM_QUOTIENT: c.ops += 8 * often; break;
        default: break;
        }
    }
    for (int i = 0; i < p->around.count; i++) {
        double whole = (double)graph_size_bytes(t->g, p->around.nodes[i]);
        c.bytes += MINIMUM(read[i], whole);
    }
    for (int i = 0; i < p->output_count; i += MAXIMUM(p->strip, 1))
        c.bytes += (double)graph_size_bytes(t->g, p->outputs[i].n);
    c = finish(&m, c);
    c.time_ns /= share_of_chip(p);
    return c;
}

fuse_cost cost_of_product(const graph *g, const fuse_options *options, const node *nodes, int count, double bytes)
{
    machine m = machine_of(options);
    fuse_cost c = {.bytes = bytes, .launches = 1};
    double dots = 0;
    for (int i = 0; i < count; i++) {
        const graph_node *x = graph_get(g, nodes[i]);
        double elements = (double)shape_count(&x->shape);
        if (x->code == GRAPH_DOT) {
            dots += 2 * elements * (double)graph_dot_depth(g, x);
        } else if (x->code == GRAPH_MAP) {
            c.ops += elements * (ops[x->attr.map].costly ? m.function : 1);
        }
    }
    double product_ns = dots / m.dots_ns;
    c = finish(&m, c);
    if (product_ns > c.time_ns) {
        c.time_ns = product_ns + m.launch_ns;
        c.bound = "arithmetic";
    }
    c.ops += dots;
    return c;
}
