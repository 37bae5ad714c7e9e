/*
 * What a product and what hangs on it compute, and whether one kernel can. In: a group around a DOT. Out: the terms of its
 * operands, of the folds beside it and of its outputs over one space; the classes of the axes.
 *
 * Maps go from the result down to the operands and up to what follows; where a reshape needs an axis cut, it is cut and
 * all begins again. What every tile would compute again, and what needs all results first, is refused.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/dot_work.h"

#include <string.h>

#define MOST_CUTS 16
#define MOST_ACCESSES 24
#define MOST_PROLOGUE_OPS 4
#define DEEPEST_FOLD 8192 /* on a GPU: longer ones are reduced by kernels of their own */

bool dot_refuse(dot_work *w, const char *why)
{
    if (!w->b->why) w->b->why = why;
    return false;
}

/* ---- where everything lies in the space ---- */

static bool follows(const dot_work *w, node n)
{
    int at = locals_find(&w->around, n);
    return at >= 0 && w->after[at];
}

static void find_after(dot_work *w)
{
    for (int i = 0; i < w->around.count; i++) { /* inputs are older than their node */
        node n = w->around.nodes[i];
        const graph_node *x = graph_get(w->b->g, n);
        w->after[i] = n == w->top;
        for (int k = 0; k < x->input_count && !w->b->in_memory[n]; k++) w->after[i] |= follows(w, x->inputs[k]);
    }
}

static void set_map(dot_work *w, node n, const index_map *m)
{
    index_map **to = &w->maps[locals_find(&w->around, n)];
    if (*to) return;
    *to = ARENA_NEW(w->b->memory, index_map);
    **to = *m;
}

/* The operands, and what they are computed from, as far as that is clear. */
static void set_operands(dot_work *w)
{
    for (int i = w->around.count - 1; i >= 0; i--) {
        node n = w->around.nodes[i];
        const graph_node *x = graph_get(w->b->g, n);
        index_map in;
        if (!w->maps[i] || w->after[i] || w->b->in_memory[n]) continue;
        for (int k = 0; k < x->input_count; k++)
            if (trace_pull(w->t, n, k, w->maps[i], &in)) set_map(w, x->inputs[k], &in);
    }
}

/* The map of a node from that of an input: along the product if it follows it. At most KERNEL_MOST_NODES deep. */
static const index_map *find_map(dot_work *w, node n)
{
    int at = locals_find(&w->around, n);
    const graph_node *x = graph_get(w->b->g, n);
    if (at < 0) return NULL;
    if (w->maps[at] || w->b->in_memory[n] || w->tried[at]) return w->maps[at];
    w->tried[at] = true;
    for (int i = 0; i < x->input_count; i++) {
        index_map m;
        if (w->after[at] && !follows(w, x->inputs[i])) continue;
        const index_map *in = find_map(w, x->inputs[i]);
        if (in && trace_push(w->t, n, i, in, &m)) {
            set_map(w, n, &m);
            return w->maps[at];
        }
    }
    return NULL;
}

/* ---- tracing ---- */

int dot_pair_count(const dot_work *w)
{
    return graph_get(w->b->g, w->dot)->input_count / 2;
}

void dot_classify(dot_work *w)
{
    const space *s = &w->t->space;
    memset(w->classes, 0, sizeof(w->classes));
    for (int i = 0; i < s->axis_count; i++) {
        int root = s->axes[i].root;
        if (w->top != w->dot) {
            w->classes[root < w->rank ? CLASS_BATCH : CLASS_DEPTH] |= 1u << i;
            continue;
        }
        int side = MINIMUM(root - (w->rank - 2), CLASS_DEPTH - CLASS_ROWS); /* each pair of operands has its own K */
        dot_class of = side < 0 ? CLASS_BATCH : (dot_class)(CLASS_ROWS + side);
        w->classes[of] |= 1u << i;
    }
}

unsigned dot_gathered_axes(const dot_work *w, int side)
{
    const dot_gathered *x = &w->gathered[side];
    unsigned axes = w->t->terms[x->access].axes;
    for (int g = 0; g < x->guard_count; g++) axes |= w->t->terms[x->guards[g]].axes;
    return axes;
}

/* Which terms stand on the product or on another fold. */
static void find_needs(dot_work *w)
{
    const trace *t = w->t;
    w->needs = ARENA_ARRAY(w->b->memory, bool, t->term_count);
    for (int id = 1; id < t->term_count; id++) { /* inputs and atoms are older */
        const term *x = &t->terms[id];
        bool needs = x->kind == TERM_BOUND || x->kind == TERM_FOLD;
        for (int i = 0; i < x->input_count; i++) needs |= w->needs[x->inputs[i]];
        for (int i = 0; x->map && i < x->map->rank; i++)
            for (int a = 0; a < t->atom_count; a++)
                if (x->map->axes[i].factor[SPACE_AXES + a]) needs |= w->needs[t->atoms[a]];
        w->needs[id] = needs;
    }
}

static bool check_fold(dot_work *w, int id)
{
    const term *x = &w->t->terms[id];
    unsigned depth = w->classes[CLASS_DEPTH], rows = w->classes[CLASS_ROWS], columns = w->classes[CLASS_COLUMNS];
    if (x->fold == FOLD_ARGMAX || x->fold == FOLD_ARGMIN)
        return dot_refuse(w, "a position is not found beside a product");
    if (w->needs[x->inputs[0]]) return dot_refuse(w, "a reduction of a product's results needs all of them first");
    unsigned axes = w->t->terms[x->inputs[0]].axes;
    const dot_sizes size = dot_find_sizes(w);
    if (w->b->options->gpu && (space_count(&w->t->space, depth) > DEEPEST_FOLD || dot_find_parts(w, &size) > 1))
        return dot_refuse(w, "so long a fold wants more programs than one for each column of tiles");
    if (size.fed) return dot_refuse(w, "a product that bulk copies feed has no other sums beside its own");
    if (x->folded != depth || (axes & rows && axes & columns) || x->axes & depth)
        return dot_refuse(w, "it reduces other axes than the product");
    return true;
}

/* What an operand is made of beside conversions. */
typedef struct operand_work {
    int cheap, costly; /* arithmetic */
    bool gathered;     /* read at places that are no slice of an array */
} operand_work;

/* By term, each use of a value counted. */
static operand_work *count_work(const dot_work *w)
{
    const trace *t = w->t;
    operand_work *work = ARENA_ARRAY(w->b->memory, operand_work, t->term_count);
    for (int id = 1; id < t->term_count; id++) {
        const term *x = &t->terms[id];
        operand_work *sum = &work[id];
        if (x->kind == TERM_OP && x->op != OP_CONVERT) ++*(ops[x->op].costly ? &sum->costly : &sum->cheap);
        if (x->kind == TERM_ACCESS && x->guarded) sum->gathered = true;
        for (int k = 0; x->kind == TERM_ACCESS && k < x->map->rank; k++)
            sum->gathered |= affine_has_atoms(&x->map->axes[k]);
        for (int i = 0; i < x->input_count; i++) {
            const operand_work *from = &work[x->inputs[i]];
            sum->cheap = MINIMUM(sum->cheap + from->cheap, MOST_PROLOGUE_OPS + 1);
            sum->costly = MINIMUM(sum->costly + from->costly, 1);
            sum->gathered |= from->gathered;
        }
    }
    return work;
}

/* Arithmetic of arrays that have far fewer elements; its ops are few. */
static bool is_spread(const trace *t, int id, int64_t count)
{
    const term *x = &t->terms[id];
    bool yes = x->kind != TERM_ACCESS || space_count(&t->space, x->axes) <= count / SPREAD_SMALLER;
    for (int i = 0; i < x->input_count && yes; i++) yes = is_spread(t, x->inputs[i], count);
    return yes;
}

/* The innermost axis of a class: the last of the space's. */
static unsigned last_of(const dot_work *w, dot_class class)
{
    unsigned last = 0;
    for (int i = 0; i < w->t->space.axis_count; i++)
        if (w->classes[class] >> i & 1) last = 1u << i;
    return last;
}

/* An operand that is a product u v, where v lies in memory and u is the same along an axis: u is taken from it. 0: it is none. */
static int split_operand(dot_work *w, int side, unsigned along)
{
    const trace *t = w->t;
    const term x = t->terms[w->terms[side]];
    if (x.kind != TERM_OP || x.op != OP_MUL || !dtype_is_float(x.elem)) return 0;
    for (int k = 0; k < 2; k++) {
        const term *u = &t->terms[x.inputs[k]], *v = &t->terms[x.inputs[1 - k]];
        if (u->axes & along || !(v->axes & along) || v->kind != TERM_ACCESS) continue;
        w->terms[side] = x.inputs[1 - k];
        return x.inputs[k];
    }
    return 0;
}

/* Products of f32 multiply an operand with numbers along k as it leaves shared memory, unless matrix units take its terms. */
static bool can_scale(const dot_work *w, int side)
{
    const graph_node *dot = graph_get(w->b->g, w->dot);
    dot_sizes size = dot_find_sizes(w);
    dtype elem = graph_get(w->b->g, dot->inputs[side])->elem;
    dot_choose_way(w->b->options, elem, (product_way)dot->attr.index, &size);
    return elem == DT_F32 && !size.terms && w->t->terms[w->terms[1 - side]].kind == TERM_ACCESS;
}

/* On a GPU an operand u v that comes from much less than itself (an outer product of rows) is not written out:
 * - the sum over (i, j) of u[i] v[j] w[i, j] is the sum over i of u[i] times a product along j that reads v where it lies;
 * - the sum over r of u[i, r] v[j, r] w[r] is, for each i, a product along r of v, scaled, and w, where can_scale holds. */
static bool can_compute(dot_work *w, int side)
{
    enum { LONG = 16 };
    const trace *t = w->t;
    int id = w->terms[side];
    if (w->top != w->dot || dot_pair_count(w) > 1 || !is_spread(t, id, space_count(&t->space, t->terms[id].axes)))
        return false;
    unsigned depth = last_of(w, CLASS_DEPTH), own = last_of(w, side ? CLASS_COLUMNS : CLASS_ROWS);
    if (space_count(&t->space, depth) >= LONG) w->factors[side] = split_operand(w, side, depth);
    if (w->factors[side]) return true;
    if (space_count(&t->space, own) < LONG || !can_scale(w, side)) return false;
    w->scales[side] = split_operand(w, side, own);
    return w->scales[side] && t->terms[w->scales[side]].kind == TERM_ACCESS;
}

/* What stands before an operand is computed again by every program that reads it, and it is not read straight from its
 * array. */
static bool check_operands(dot_work *w)
{
    const operand_work *counted = count_work(w);
    for (int side = 0; side < 2 * dot_pair_count(w); side++) {
        const operand_work work = counted[w->terms[side]];
        if (w->needs[w->terms[side]]) return dot_refuse(w, "an operand needs the result of a reduction first");
        if (w->whole) continue;
        if (work.gathered) return dot_refuse(w, "an operand is not a slice of an array");
        bool straight = w->t->terms[w->terms[side]].kind == TERM_ACCESS;
        if (work.costly || work.cheap > MOST_PROLOGUE_OPS || (!straight && w->b->options->gpu && !can_compute(w, side)))
            return dot_refuse(w, "every tile of the product would compute its operand again");
    }
    return true;
}

static bool check_outputs(dot_work *w)
{
    const trace *t = w->t;
    unsigned all = w->classes[CLASS_BATCH] | w->classes[CLASS_ROWS] | w->classes[CLASS_COLUMNS];
    for (int i = 0; i < w->grp->write_count; i++) {
        const lower_output *out = &w->outputs[i];
        const shape *s = &graph_get(t->g, out->n)->shape;
        affine linear = index_linear(&out->map, s, NULL);
        unsigned axes = affine_axes(&linear, t->atom_axes);
        if (affine_has_atoms(&linear) || axes & ~all || t->terms[out->term].axes & ~axes ||
            (shape_count(s) && !index_is_dense(&t->space, &linear, axes, shape_count(s))))
            return dot_refuse(w, "a result is not laid out along the product");
    }
    int accesses = 0;
    for (int i = 1; i < t->term_count; i++) accesses += t->terms[i].kind == TERM_ACCESS;
    return accesses + w->grp->write_count <= MOST_ACCESSES || dot_refuse(w, "it would touch too many arrays");
}

/* The map of the product from that of top: each sum's axes are further roots. */
static bool pull_product(dot_work *w, const space *s, const index_map *result, index_map *out)
{
    int root = w->rank + 1;
    index_map in;
    *out = *result;
    w->added_count = 0;
    for (node n = w->top; n != w->dot; n = graph_get(w->b->g, n)->inputs[0]) {
        const graph_node *x = graph_get(w->b->g, n);
        if (x->code == GRAPH_REDUCE) {
            w->added[w->added_count++] = n;
            for (int k = 0; k < x->shape.rank; k++)
                if (x->attr.axis_set >> k & 1) out->axes[k] = space_coordinate(s, root++);
            continue;
        }
        if (x->code == GRAPH_KEEP) continue;
        if (!trace_pull_guarded(w->t, n, out, &in)) return false;
        *out = in;
    }
    return true;
}

static bool is_added(const dot_work *w, node n)
{
    for (int i = 0; i < w->added_count; i++)
        if (w->added[i] == n) return true;
    return false;
}

/* Maps of the operands and of the result. */
static bool map_operands(dot_work *w, const space *s, index_map operands[4])
{
    const graph_node *dot = graph_get(w->b->g, w->dot);
    int roots[GRAPH_RANK], m = dot->shape.rank - 2, n = dot->shape.rank - 1;
    for (int i = 0; i < w->rank; i++) roots[i] = i;
    index_map result = index_map_root(s, roots, w->rank), left;
    set_map(w, w->top, &result);
    if (!pull_product(w, s, &result, &left)) return false;
    w->guard = w->t->guard;
    w->t->guard = 0;
    for (int side = 0; side < dot->input_count; side++) {
        operands[side] = left;
        operands[side].axes[side % 2 ? m : n] = space_coordinate(s, w->rank + side / 2);
        if (w->top == w->dot) set_map(w, dot->inputs[side], &operands[side]);
    }
    if (w->top == w->dot) set_operands(w);
    trace_know(w->t, w->top, &result);
    w->sums = trace_node(w->t, w->top, &result);
    return true;
}

/* All elements, each once: an operand may be a part of what is reduced. */
static bool spans_space(const trace *t, const shape *s, const index_map *m)
{
    affine linear = index_linear(m, s, NULL);
    return index_is_turned_dense(&t->space, &linear, affine_axes(&linear, t->atom_axes), shape_count(s));
}

static bool trace_all(dot_work *w, const space *s)
{
    builder *b = w->b;
    trace *t = w->t = trace_new(b->memory, b->g, b->in_memory, b->options, s);
    w->maps = ARENA_ARRAY(b->memory, index_map *, w->around.count);
    w->tried = ARENA_ARRAY(b->memory, bool, w->around.count);
    memset(w->factors, 0, sizeof(w->factors));
    memset(w->scales, 0, sizeof(w->scales));
    const graph_node *dot = graph_get(b->g, w->dot);
    index_map operands[4];
    if (!map_operands(w, s, operands))
        return t->cut_axis < 0 && dot_refuse(w, t->why ? t->why : "it cannot be followed");
    for (int i = 0; i < w->grp->node_count; i++) {
        node x = w->grp->nodes[i];
        const graph_node *of = graph_get(b->g, x);
        if (of->code != GRAPH_REDUCE || is_added(w, x)) continue;
        const index_map *in = follows(w, x) ? NULL : find_map(w, of->inputs[0]), *out = find_map(w, x);
        if (!in || !out)
            return t->cut_axis < 0 && dot_refuse(w, "a reduction of a product's results needs all of them first");
        if (!spans_space(t, &graph_get(b->g, of->inputs[0])->shape, in))
            return dot_refuse(w, "a reduction goes over more than the product does");
        trace_know_fold(t, x, out, in);
    }
    t->guard = w->guard;
    for (int i = 0; i < dot->input_count; i++) w->terms[i] = trace_node(t, dot->inputs[i], &operands[i]);
    t->guard = 0;
    for (int i = 0; i < w->grp->write_count; i++) {
        node x = w->grp->writes[i];
        const index_map *map = find_map(w, x);
        if (!map && t->cut_axis < 0) return dot_refuse(w, "it is not computed element by element from the product");
        if (!map) return false;
        w->outputs[i] = (lower_output){.n = x, .map = *map, .term = trace_node(t, x, map)};
        if (!w->outputs[i].term) return t->cut_axis < 0 && dot_refuse(w, t->why ? t->why : "it cannot be followed");
    }
    for (int i = 0; i < dot->input_count; i++)
        if (!w->terms[i]) return t->cut_axis < 0 && dot_refuse(w, t->why ? t->why : "it cannot be followed");
    find_needs(w);
    dot_classify(w);
    dot_choose_whole(w);
    if (w->top != w->dot && !w->whole)
        return dot_refuse(w, "a reduction of a product's results needs all of them first");
    w->folds = ARENA_ARRAY(b->memory, int, t->term_count);
    for (int i = 1; i < t->term_count; i++) {
        if (t->terms[i].kind != TERM_FOLD) continue;
        if (!check_fold(w, i)) return false;
        w->folds[w->fold_count++] = i;
    }
    return check_operands(w) && check_outputs(w);
}

/* Extents of the space: of top, of K, of what is added up between the product and top; 0: there are too many. */
static int find_roots(dot_work *w, int64_t *extents)
{
    const graph *g = w->b->g;
    const graph_node *top = graph_get(g, w->top), *left = graph_get(g, graph_get(g, w->dot)->inputs[0]);
    w->rank = top->shape.rank;
    if (w->rank + 1 > SPACE_ROOTS) return 0;
    for (int i = 0; i < w->rank; i++) extents[i] = top->shape.extents[i];
    int count = w->rank;
    extents[count++] = left->shape.extents[left->shape.rank - 1];
    for (int i = 2; i < graph_get(g, w->dot)->input_count; i += 2) {
        const graph_node *next = graph_get(g, graph_get(g, w->dot)->inputs[i]);
        if (count == SPACE_ROOTS) return 0;
        extents[count++] = next->shape.extents[next->shape.rank - 1];
    }
    for (node n = w->top; n != w->dot; n = graph_get(g, n)->inputs[0]) {
        const graph_node *x = graph_get(g, n);
        for (int k = 0; x->code == GRAPH_REDUCE && k < x->shape.rank; k++) {
            if (!(x->attr.axis_set >> k & 1)) continue;
            if (count == SPACE_ROOTS) return 0;
            extents[count++] = graph_get(g, x->inputs[0])->shape.extents[k];
        }
    }
    return count;
}

bool dot_trace(dot_work *w)
{
    builder *b = w->b;
    const group *grp = w->grp;
    int64_t extents[SPACE_ROOTS];
    w->top = dot_find_top(b->g, b->in_memory, grp);
    int count = find_roots(w, extents);
    if (!count) return dot_refuse(w, "a reduction of a product's results needs all of them first");
    space s;
    space_init(&s, extents, count);
    w->outputs = ARENA_ARRAY(b->memory, lower_output, grp->write_count + 1);
    if (!locals_gather(b, grp, &w->around)) return dot_refuse(w, "the kernel would be too long");
    w->after = ARENA_ARRAY(b->memory, bool, w->around.count);
    find_after(w);
    if (!shape_count(&graph_get(b->g, w->dot)->shape) && grp->node_count > 1)
        return dot_refuse(w, "the product has no elements");
    for (int cuts = 0; !trace_all(w, &s); cuts++) {
        if (b->why || w->t->cut_axis < 0) return false;
        if (cuts == MOST_CUTS || !space_cut(&s, w->t->cut_axis, w->t->cut_inner))
            return dot_refuse(w, "a reshape mixes the axes of the product");
        w->fold_count = 0;
    }
    return true;
}
