/*
 * Operands of a product that are no slices. In: the term of an operand. Out: the array it reads, and the guards under
 * which it does: windows, padding, shifts, strides and permutations are sums over the axes of the space, so such an
 * operand is gathered through its digits (param_digits) while the product is fed, and never written out.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/dot.h"
#include "fuse/order.h"

enum { FEW_CUT = 8 }; /* of so many elements one: not worth a kernel of its own that leaves it out */

static bool is_affine(const index_map *m)
{
    for (int k = 0; k < m->rank; k++)
        if (affine_has_atoms(&m->axes[k])) return false;
    return true;
}

/* The conditions under which something exists, one INSIDE each; false: there is one of another kind. */
static bool add_guards(const trace *t, int id, dot_gathered *out)
{
    const term *x = &t->terms[id];
    if (x->kind == TERM_OP && x->op == OP_AND)
        return add_guards(t, x->inputs[0], out) && add_guards(t, x->inputs[1], out);
    if (x->kind != TERM_INSIDE || affine_has_atoms(&x->index)) return false;
    for (int g = 0; g < out->guard_count; g++)
        if (out->guards[g] == id) return true;
    if (out->guard_count == GUARDS_MOST) return false;
    out->guards[out->guard_count++] = id;
    return true;
}

bool dot_add_guards(const trace *t, int id, dot_gathered *out)
{
    return !id || add_guards(t, id, out);
}

/* Is `top` below n, behind movements alone? */
static bool is_above(const graph *g, const bool *in_memory, node n, node top)
{
    while (n != top && !in_memory[n] && graph_ops[graph_get(g, n)->code].class == GRAPH_CLASS_MOVE &&
           graph_get(g, n)->code != GRAPH_CONCAT)
        n = graph_get(g, n)->inputs[0];
    return n == top;
}

/* Between a node and one below it something is cut away. */
static bool is_part(const graph *g, node n, node from)
{
    for (; n != from; n = graph_get(g, n)->inputs[0]) {
        const graph_node *x = graph_get(g, n);
        if (x->code == GRAPH_SLICE && shape_count(&x->shape) < shape_count(&graph_get(g, x->inputs[0])->shape))
            return true;
    }
    return false;
}

static bool is_sum(const graph_node *x)
{
    return x->code == GRAPH_REDUCE && x->attr.fold == FOLD_SUM && dtype_is_float(x->elem);
}

node dot_find_top(const graph *g, const bool *in_memory, const group *grp)
{
    node top = grp->anchor;
    if (graph_get(g, top)->input_count > 2) return top;
    for (int i = 0; i < grp->node_count; i++) { /* oldest first */
        const graph_node *x = graph_get(g, grp->nodes[i]);
        bool kept = x->code == GRAPH_KEEP, pad = x->code == GRAPH_PAD;
        if ((!is_sum(x) && !kept && !pad) || x->elem != graph_get(g, grp->anchor)->elem) continue;
        if (is_above(g, in_memory, x->inputs[0], top) && (!kept || is_part(g, x->inputs[0], top))) top = grp->nodes[i];
    }
    return top;
}

/* ---- parts of products ---- */

/* The product below movements and sums; 0: there is none. *part: above the last sum something is cut away; *all: the elements that
 * there are below it. */
static node product_below(const graph *g, node n, bool *part, int64_t *all)
{
    bool sums = false;
    *part = false;
    for (;;) {
        const graph_node *x = graph_get(g, n);
        if (!sums) *all = shape_count(&x->shape);
        if (x->code == GRAPH_DOT) return x->input_count == 2 ? n : 0;
        sums |= is_sum(x);
        if ((graph_ops[x->code].class != GRAPH_CLASS_MOVE || x->code == GRAPH_CONCAT) && !is_sum(x)) return 0;
        *part |= !sums && is_part(g, n, x->inputs[0]);
        n = x->inputs[0];
    }
}

/* The same from a product of its own. */
static node apart(graph *g, node n, int number)
{
    const graph_node x = *graph_get(g, n);
    node inputs[2] = {x.code == GRAPH_DOT ? graph_same(g, GRAPH_AGAIN, x.inputs[0], number)
                                          : apart(g, x.inputs[0], number),
                      x.input_count > 1 ? x.inputs[1] : 0};
    return graph_again(g, n, inputs);
}

node fuse_parts_prepare(graph *g, node n)
{
    const graph_node x = *graph_get(g, n);
    bool part;
    int64_t all;
    if (is_sum(&x)) {
        node product = product_below(g, x.inputs[0], &part, &all);
        if (!product || !part) return n;
        node input = apart(g, x.inputs[0], (int)n);
        return graph_again(g, n, &input);
    }
    if (x.code != GRAPH_CONCAT || x.input_count > 16) return n;
    node inputs[16];
    for (int i = 0; i < x.input_count; i++) {
        inputs[i] = x.inputs[i];
        if (!product_below(g, inputs[i], &part, &all) || !part) continue;
        bool most = shape_count(&graph_get(g, inputs[i])->shape) >= all - all / FEW_CUT; /* as well read from the whole */
        inputs[i] = apart(g, inputs[i], (int)n * 16 + i);
        if (!most) inputs[i] = graph_same(g, GRAPH_KEEP, inputs[i], 4000);
    }
    return graph_concat(g, inputs, x.input_count, x.attr.axis);
}

bool dot_gather_operand(const trace *t, int id, dot_gathered *out)
{
    const term *x = &t->terms[id];
    while (x->kind == TERM_OP && x->op == OP_SELECT) {
        const term *other = &t->terms[x->inputs[2]];
        if (other->kind != TERM_CONSTANT || !dtype_is_float(other->elem) || other->number.f != 0) return false;
        if (!add_guards(t, x->inputs[0], out)) return false;
        id = x->inputs[1];
        x = &t->terms[id];
    }
    out->access = id;
    return x->kind == TERM_ACCESS && is_affine(x->map);
}
