/*
 * The space of a loop group, and where its ops lie in it. In: a group. Out: outer and inner axes, and a map for each op
 * that has one place.
 *
 * The space is that of the widest reduction's input, or of the widest result. From there maps go from inputs to results
 * and back until nothing changes; where a reshape needs an axis cut, that is asked for. Maps are only proposals: the
 * trace (loop.c) proves them.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/loop.h"

int loop_local(const loop *p, node n)
{
    return locals_find(&p->around, n);
}

static bool is_unrolled(const loop *p, node n)
{
    if (p->unroll == UNROLL_NONE || !fold_is_small(p->b->g, n)) return false;
    if (fold_is_window(p->b->g, p->b->in_memory, n)) return true;
    return p->unroll == UNROLL_ALL && fold_is_worth_a_text(p->b->g, p->b->in_memory, n);
}

bool loop_is_scan(const loop *p, node n)
{
    return graph_get(p->b->g, n)->code == GRAPH_SCAN && !p->b->in_memory[n];
}

bool loop_is_fold(const loop *p, node n)
{
    if (loop_is_scan(p, n)) return true;
    return graph_get(p->b->g, n)->code == GRAPH_REDUCE && !p->b->in_memory[n] && !is_unrolled(p, n);
}

/* Last axis with more than one element; -1: none. */
static int last_axis(const shape *s)
{
    int last = s->rank - 1;
    while (last >= 0 && s->extents[last] == 1) last--;
    return last;
}

bool loop_is_position(const graph_node *x)
{
    return x->attr.fold == FOLD_ARGMAX || x->attr.fold == FOLD_ARGMIN;
}

/* The fold whose input spans the space: of the widest, one that gives positions, or one over the last axis that leaves
 * something. */
node loop_main_fold(const loop *p)
{
    const graph *g = p->b->g;
    node best = 0;
    int64_t best_score = -1;
    for (int i = 0; i < p->grp->node_count; i++) {
        node n = p->grp->nodes[i];
        if (!loop_is_fold(p, n)) continue;
        if (loop_is_scan(p, n)) return n;
        const graph_node *x = graph_get(g, n);
        const shape *s = &graph_get(g, x->inputs[0])->shape;
        int last = last_axis(s);
        bool row = last >= 0 && x->attr.axis_set >> last & 1 && shape_count(&x->shape) > 1;
        bool folds = shape_count(s) != shape_count(&x->shape);
        int64_t score = shape_count(s) * 8 + 4 * folds + 2 * loop_is_position(x) + row;
        if (score <= best_score) continue;
        best = n;
        best_score = score;
    }
    return best;
}

node loop_widest_write(const loop *p)
{
    node best = p->grp->writes[0];
    for (int i = 1; i < p->grp->write_count; i++) {
        node n = p->grp->writes[i];
        if (shape_count(&graph_get(p->b->g, n)->shape) > shape_count(&graph_get(p->b->g, best)->shape)) best = n;
    }
    return best;
}

static void give_map(loop *p, int local, const index_map *m)
{
    index_map *copy = ARENA_NEW(p->b->memory, index_map);
    *copy = *m;
    for (int k = m->rank; k < GRAPH_RANK; k++) copy->axes[k] = affine_constant(0);
    p->maps[local] = copy;
}

static bool push_maps(loop *p)
{
    bool changed = false;
    for (int i = 0; i < p->around.count && p->t->cut_axis < 0; i++) {
        if (p->maps[i] || p->b->in_memory[p->around.nodes[i]]) continue;
        const graph_node *x = graph_get(p->b->g, p->around.nodes[i]);
        for (int k = 0; k < x->input_count && !p->maps[i]; k++) {
            int from = loop_local(p, x->inputs[k]);
            index_map m;
            if (from < 0 || !p->maps[from] || !trace_push(p->t, p->around.nodes[i], k, p->maps[from], &m)) continue;
            give_map(p, i, &m);
            changed = true;
        }
    }
    return changed;
}

static bool pull_maps(loop *p)
{
    bool changed = false;
    for (int i = p->around.count - 1; i >= 0 && p->t->cut_axis < 0; i--) {
        if (!p->maps[i] || p->b->in_memory[p->around.nodes[i]]) continue;
        const graph_node *x = graph_get(p->b->g, p->around.nodes[i]);
        if (graph_ops[x->code].class != GRAPH_CLASS_MAP && graph_ops[x->code].class != GRAPH_CLASS_MOVE) continue;
        if (x->code == GRAPH_PAD || x->code == GRAPH_CONCAT) continue;
        for (int k = 0; k < x->input_count; k++) {
            int to = loop_local(p, x->inputs[k]);
            index_map m;
            if (to < 0 || p->maps[to] || !trace_pull(p->t, p->around.nodes[i], k, p->maps[i], &m)) continue;
            give_map(p, to, &m);
            changed = true;
        }
    }
    return changed;
}

unsigned loop_map_axes(const loop *p, const index_map *m)
{
    unsigned axes = 0;
    for (int k = 0; k < m->rank; k++) axes |= affine_axes(&m->axes[k], p->t->atom_axes);
    return axes;
}

/* Axes of `s` with more than one element whose coordinate is 0 in m run along the inner axes, in order. */
static bool complete(const loop *p, const shape *s, index_map *m)
{
    const affine zero = {0};
    int next = 0;
    const space *sp = &p->space;
    unsigned used = loop_map_axes(p, m);
    for (int k = 0; k < s->rank; k++) {
        if (s->extents[k] == 1 || !affine_same(&m->axes[k], &zero)) continue;
        int64_t left = s->extents[k];
        int first = next;
        while (left > 1) {
            while (next < sp->axis_count && !(p->inner >> next & 1)) next++;
            if (next == sp->axis_count || used >> next & 1) return false;
            if (left % MAXIMUM(sp->axes[next].extent, 1)) return false;
            left /= MAXIMUM(sp->axes[next].extent, 1);
            next++;
        }
        int64_t unit = 1;
        for (int i = next - 1; i >= first; i--) {
            if (!(p->inner >> i & 1)) continue;
            m->axes[k].factor[i] = unit;
            unit *= sp->axes[i].extent;
        }
    }
    return true;
}

/* What only a fold connects: its result's rows and the inner axes give places to what is expanded from it, or to the
 * input of another fold. */
static bool guess_maps(loop *p)
{
    for (int i = 0; i < p->around.count; i++) {
        node n = p->around.nodes[i];
        const graph_node *x = graph_get(p->b->g, n);
        if (p->b->in_memory[n]) continue;
        int from = x->input_count ? loop_local(p, x->inputs[0]) : -1;
        if (x->code == GRAPH_EXPAND && !p->maps[i] && from >= 0 && p->maps[from]) {
            index_map m = *p->maps[from];
            if (!complete(p, &x->shape, &m)) continue;
            give_map(p, i, &m);
            return true;
        }
        if (x->code == GRAPH_REDUCE && p->maps[i] && from >= 0 && !p->maps[from]) {
            index_map m = *p->maps[i];
            if (!complete(p, &graph_get(p->b->g, x->inputs[0])->shape, &m)) continue;
            give_map(p, from, &m);
            return true;
        }
    }
    return false;
}

static bool is_window_fold(const loop *p, node n)
{
    return fold_is_small(p->b->g, n) && fold_is_window(p->b->g, p->b->in_memory, n);
}

/* A chain of terms hides what it is made of; the extreme of a window that is compared with each of its elements lies where
 * the chain's result does. */
static bool guess_beside_chains(loop *p)
{
    for (int i = 0; i < p->around.count; i++) {
        node n = p->around.nodes[i];
        if (p->b->in_memory[n] || !is_unrolled(p, n)) continue;
        const graph_node *x = graph_get(p->b->g, n);
        const shape *elements = &graph_get(p->b->g, x->inputs[0])->shape;
        for (int k = 0; k < p->around.count; k++) {
            const graph_node *y = graph_get(p->b->g, p->around.nodes[k]);
            if (y->code != GRAPH_EXPAND || !shape_same(&y->shape, elements)) continue;
            int from = loop_local(p, y->inputs[0]);
            if (from < 0 || !p->maps[i] == !p->maps[from] || !is_window_fold(p, y->inputs[0]) ||
                !shape_same(&graph_get(p->b->g, y->inputs[0])->shape, &x->shape))
                continue;
            give_map(p, p->maps[i] ? from : i, p->maps[i] ? p->maps[i] : p->maps[from]);
            return true;
        }
    }
    return false;
}

unsigned loop_folded_axes(const loop *p, node n)
{
    const graph_node *x = graph_get(p->b->g, n);
    int from = loop_local(p, x->inputs[0]);
    if (from < 0 || !p->maps[from]) return 0;
    unsigned axes = 0;
    for (int k = 0; k < p->maps[from]->rank; k++)
        if (trace_folded_axes(x) >> k & 1) axes |= affine_axes(&p->maps[from]->axes[k], p->t->atom_axes);
    return axes;
}

/* Outer and inner axes from the fold that spans the space. */
static void part_axes(loop *p, node fold)
{
    unsigned all = (1u << p->space.axis_count) - 1;
    p->outer = all;
    p->inner = 0;
    if (!fold) return;
    unsigned folded = loop_folded_axes(p, fold);
    bool last = p->space.axis_count && folded >> (p->space.axis_count - 1) & 1;
    bool position =
        loop_is_position(graph_get(p->b->g, fold)) || loop_is_scan(p, fold); /* along one axis, seen at once */
    if (!folded || (folded == all && !position)) return;
    /* A few elements here and there (a window) are folded one after the other, for many results at once. */
    int64_t kept = space_count(&p->space, all & ~folded), gone = space_count(&p->space, folded);
    bool scattered = gone <= 64 && kept > gone && folded & (folded - 1);
    if (position || p->turned || (last && !scattered)) {
        p->inner = folded;
        p->outer = all & ~folded;
    } else {
        p->outer = folded;
        p->inner = all & ~folded;
    }
}

/* Both are tried, whatever the first one found. */
static bool move_maps(loop *p)
{
    bool pushed = push_maps(p), pulled = pull_maps(p);
    return pushed || pulled;
}

/* Maps of everything that has one; false: an axis has to be cut first. */
bool loop_spread_maps(loop *p)
{
    node fold = loop_main_fold(p), root = fold ? graph_get(p->b->g, fold)->inputs[0] : loop_widest_write(p);
    int rank = graph_get(p->b->g, root)->shape.rank, axes[GRAPH_RANK];
    for (int k = 0; k < rank; k++) axes[k] = k;
    index_map identity = index_map_root(&p->space, axes, rank);
    give_map(p, loop_local(p, root), &identity);
    part_axes(p, fold);
    do {
        while (move_maps(p))
            if (p->t->cut_axis >= 0) return false;
    } while (p->t->cut_axis < 0 && (guess_maps(p) || guess_beside_chains(p)));
    return p->t->cut_axis < 0;
}

/* Does a place follow the row element by element, and row after row, or not along one of both? */
static bool lies_in_line(const affine *place, int row, int inner, int64_t length)
{
    int64_t down = place->factor[row], along = place->factor[inner];
    return !affine_has_atoms(place) && (!down || !along || (along == 1 && down == length));
}

bool loop_is_line(const loop *p)
{
    enum { LINE_MOST = 63 };
    int inner = p->space.axis_count - 1, row = inner - 1;
    if (p->shape != LOOP_ROW || !p->b->options->gpu || p->turned || p->inner != 1u << inner || row < 0) return false;
    int64_t length = p->space.axes[inner].extent;
    if (length < 2 || length > LINE_MOST || length % 4 == 0) return false;
    if (space_count(&p->space, p->outer) < SMALL_FOLD_RESULTS) return false;
    while (row > 0 && p->space.axes[row].extent == 1) row--;
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (x->kind != TERM_ACCESS) continue;
        const fuse_leaf *leaf = &p->b->leaves[x->n];
        affine place = index_linear(x->map, &graph_get(p->t->g, x->n)->shape, leaf->given ? leaf->strides : NULL);
        if (x->guarded || !lies_in_line(&place, row, inner, length)) return false;
    }
    for (int i = 0; i < p->output_count; i++) {
        affine place = index_linear(&p->outputs[i].map, &graph_get(p->t->g, p->outputs[i].n)->shape, NULL);
        if (!lies_in_line(&place, row, inner, length)) return false;
    }
    return true;
}

bool loop_writes_rows(const loop *p)
{
    int inner = p->space.axis_count - 1;
    bool wide = false;
    if (p->shape != LOOP_ROW || !p->b->options->gpu || p->turned || inner < 0 || p->inner != 1u << inner) return false;
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (x->kind != TERM_ACCESS) continue;
        const fuse_leaf *leaf = &p->b->leaves[x->n];
        affine place = index_linear(x->map, &graph_get(p->t->g, x->n)->shape, leaf->given ? leaf->strides : NULL);
        if (x->guarded || affine_has_atoms(&place) || place.factor[inner] > 1 || place.factor[inner] < 0) return false;
    }
    for (int i = 0; i < p->output_count; i++) {
        affine place = index_linear(&p->outputs[i].map, &graph_get(p->t->g, p->outputs[i].n)->shape, NULL);
        if (affine_has_atoms(&place)) return false;
        wide |= place.factor[inner] == 1;
    }
    return wide;
}

bool loop_begins_between(const loop *p)
{
    enum { VECTOR_BYTES = 16 };
    int64_t row = space_count(&p->space, p->inner);
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (x->kind == TERM_ACCESS && x->axes & p->inner && x->axes & p->outer &&
            row * dtypes[graph_get(p->t->g, x->n)->elem].size_bytes % VECTOR_BYTES)
            return true;
    }
    return false;
}
