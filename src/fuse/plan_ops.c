/*
 * Which nodes are ops. In: a prepared graph. Out: by node, whether it is an op or followed wherever it is needed, what it
 * reads through what is followed, and who reads it.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/dot.h"
#include "fuse/order.h"
#include "fuse/plan.h"

#include <string.h>

static bool is_followed(const graph_node *x)
{
    switch (x->code) {
    case GRAPH_FULL:
    case GRAPH_IOTA:
    case GRAPH_DETACH:
    case GRAPH_AGAIN:
    case GRAPH_RESHAPE:
    case GRAPH_PERMUTE:
    case GRAPH_EXPAND:
    case GRAPH_SLICE:
    case GRAPH_WINDOW:
    case GRAPH_RESULT: return true;
    default: return false;
    }
}

bool plan_is_constant_scalar(const graph_node *x)
{
    return x->code == GRAPH_FULL && !x->shape.rank;
}

bool plan_is_zero_base(const graph_node *x, int i, const graph_node *input)
{
    return i == 0 && (x->code == GRAPH_TAKE_ADD || x->code == GRAPH_GATHER_ADD) && input->code == GRAPH_FULL &&
           !input->attr.number.i && !input->attr.number.f;
}

/* Follows a node at its own coordinates, cutting axes where reshapes ask for it. 0: it cannot be. */
static int trace_itself(const planner *p, node n, arena *memory, trace **out)
{
    const graph_node *x = graph_get(p->g, n);
    int axes[GRAPH_RANK];
    space s;
    space_init(&s, x->shape.extents, x->shape.rank);
    for (int k = 0; k < x->shape.rank; k++) axes[k] = k;
    for (;;) {
        trace *t = *out = trace_new(memory, p->g, p->in_memory, p->options, &s);
        index_map identity = index_map_root(&s, axes, x->shape.rank);
        int id = trace_node(t, n, &identity);
        if (id || t->why || t->cut_axis < 0 || !space_cut(&s, t->cut_axis, t->cut_inner)) return id;
    }
}

bool plan_view(const planner *p, node n, arena *memory, fuse_view *out)
{
    trace *t;
    int id = trace_itself(p, n, memory, &t);
    if (!id || t->terms[id].kind != TERM_ACCESS || t->terms[id].guarded) return false;
    const term *a = &t->terms[id];
    const graph_node *base = graph_get(p->g, a->n);
    affine place = index_linear(a->map, &base->shape, p->leaves[a->n].given ? p->leaves[a->n].strides : NULL);
    if (affine_has_atoms(&place) || base->elem != graph_get(p->g, n)->elem) return false;
    *out = (fuse_view){.base = a->n, .offset = place.constant + (p->leaves[a->n].given ? p->leaves[a->n].offset : 0)};
    for (int i = t->space.axis_count - 1; i >= 0; i--) { /* pieces of one axis have one stride; the last comes first */
        const space_axis *piece = &t->space.axes[i];
        if (piece->unit == 1) out->strides[piece->root] = place.factor[i];
        if (place.factor[i] != out->strides[piece->root] * piece->unit) return false;
    }
    return true;
}

/* Is input i of n, which stands alone, a view that its kernel can read? */
static bool is_view(const planner *p, node n, int i)
{
    const graph_node *x = graph_get(p->g, n);
    arena *scratch = arena_new();
    fuse_view view;
    bool yes = plan_view(p, x->inputs[i], scratch, &view);
    if (yes) yes = fuse_view_suits(p->g, n, i, &view);
    arena_free(scratch);
    return yes;
}

static bool is_costly(const graph_node *x)
{
    return x->code == GRAPH_MAP && ops[x->attr.map].costly;
}

/* Cheap arithmetic that reads no more than it gives is computed again wherever it is needed. */
static bool is_cheap(const planner *p, node n)
{
    const graph_node *x = graph_get(p->g, n);
    if (p->options->mode == FUSE_EAGER || x->code != GRAPH_MAP || is_costly(x) || p->wanted[n]) return false;
    int64_t bytes = 0;
    for (int i = 0; i < x->input_count; i++) {
        node from = x->inputs[i];
        for (int guard = 0; guard < 64; guard++) { /* an expanded input costs what it is, not what it looks like */
            const graph_node *y = graph_get(p->g, from);
            if (p->in_memory[from] || !is_followed(y) || y->input_count != 1) break;
            from = y->inputs[0];
        }
        const graph_node *y = graph_get(p->g, from);
        if (!p->in_memory[from] && (y->code == GRAPH_FULL || y->code == GRAPH_IOTA)) continue;
        if (!p->leaves[from].given && (y->code != GRAPH_MAP || p->is_op[from])) return false;
        bytes += graph_size_bytes(p->g, from);
    }
    return bytes <= graph_size_bytes(p->g, n);
}

static void push_node(planner *p, node **list, int *count, node n)
{
    if (!(*count & (*count - 1))) { /* powers of two: grow */
        node *grown = ARENA_ARRAY(p->memory, node, *count ? *count * 2 : 1);
        if (*count) memcpy(grown, *list, sizeof(node) * (size_t)*count);
        *list = grown;
    }
    (*list)[(*count)++] = n;
}

void plan_add_node(planner *p, node **list, int *count, node n)
{
    for (int i = 0; i < *count; i++)
        if ((*list)[i] == n) return;
    push_node(p, list, count, n);
}

/* Of users, which come in order. */
static void add_last(planner *p, node **list, int *count, node n)
{
    if (!*count || (*list)[*count - 1] != n) push_node(p, list, count, n);
}

/* Operands that are no strided views; if all are and it is not enough, all of them. */
static void store_operands(planner *p, node n)
{
    const graph_node *x = graph_get(p->g, n);
    bool stored = false;
    for (int round = 0; round < 2 && !stored; round++)
        for (int i = 0; i < x->input_count; i++) {
            arena *scratch = arena_new();
            fuse_view view;
            node from = x->inputs[i];
            if (!p->in_memory[from] && (round || !plan_view(p, from, scratch, &view)))
                p->is_op[from] = p->in_memory[from] = stored = true;
            arena_free(scratch);
        }
}

/* Can a product be built with its operands where they are? */
static bool reads_slices(planner *p, node n)
{
    const graph_node *x = graph_get(p->g, n);
    bool plain = true;
    for (int i = 0; i < x->input_count; i++) {
        const graph_node *y = graph_get(p->g, x->inputs[i]);
        plain &= p->in_memory[x->inputs[i]] || (y->code == GRAPH_PERMUTE && p->in_memory[y->inputs[0]]);
    }
    if (plain) return true;
    arena *scratch = arena_new();
    builder b = {.memory = scratch, .g = p->g, .in_memory = p->in_memory, .leaves = p->leaves, .options = p->options};
    group alone = {.kind = GROUP_DOT, .anchor = n, .nodes = &n, .node_count = 1, .writes = &n, .write_count = 1};
    p->in_memory[n] = false;
    bool fine = dot_build(&b, &alone, NULL, NULL);
    p->in_memory[n] = true;
    arena_free(scratch);
    return fine;
}

node plan_writer(const planner *p, node n)
{
    const graph_node *x = graph_get(p->g, n);
    return x->code == GRAPH_RESULT ? x->inputs[0] : n;
}

void plan_find_ops(planner *p)
{
    /* Products, sorts and calls read memory: what feeds them is not computed again. */
    bool *feeds = ARENA_ARRAY(p->memory, bool, p->node_count);
    for (node n = (node)p->node_count - 1; n > 0; n--) {
        if (!p->reached[n] || p->leaves[n].given) continue;
        const graph_node *x = graph_get(p->g, n);
        bool hungry = plan_is_alone(p->g, p->options, n) || x->code == GRAPH_DOT || (is_followed(x) && feeds[n]);
        hungry |= p->options->mode == FUSE_STRICT && group_is_ordered(x);
        for (int i = 0; i < x->input_count; i++) feeds[x->inputs[i]] |= hungry;
    }
    int *depth = ARENA_ARRAY(p->memory, int, p->node_count); /* of what is followed */
    for (node n = 1; (int)n < p->node_count; n++) {
        if (!p->reached[n]) continue;
        const graph_node *x = graph_get(p->g, n);
        if (x->code == GRAPH_RESULT) {
            p->next_result[n] = p->first_result[x->inputs[0]];
            p->first_result[x->inputs[0]] = n;
        }
        p->in_memory[n] = p->leaves[n].given || x->code == GRAPH_LEAF || x->code == GRAPH_RESULT;
        if (p->in_memory[n]) continue;
        for (int i = 0; i < x->input_count; i++)
            if (!p->in_memory[x->inputs[i]]) depth[n] = MAXIMUM(depth[n], depth[x->inputs[i]] + 1);
        bool followed = is_followed(x) || (!feeds[n] && is_cheap(p, n));
        p->is_op[n] = !followed || p->wanted[n] || p->stored[n] || depth[n] > FOLLOW_MOST;
        p->in_memory[n] = p->is_op[n];
    }
    /* What stands alone wants views of memory. */
    for (node n = 1; (int)n < p->node_count; n++) {
        const graph_node *x = graph_get(p->g, n);
        if (!p->reached[n] || !p->is_op[n] || !plan_is_alone(p->g, p->options, n)) continue;
        for (int i = 0; i < x->input_count; i++) {
            const graph_node *input = graph_get(p->g, x->inputs[i]);
            if (x->code == GRAPH_KERNEL && plan_is_constant_scalar(input)) continue;
            if (p->in_memory[x->inputs[i]] || plan_is_zero_base(x, i, input) || is_view(p, n, i)) continue;
            p->is_op[x->inputs[i]] = p->in_memory[x->inputs[i]] = true;
        }
    }
    /* A product reads slices of arrays; an operand that is none is put into memory first. */
    for (node n = 1; (int)n < p->node_count; n++)
        if (p->reached[n] && p->is_op[n] && graph_get(p->g, n)->code == GRAPH_DOT && !reads_slices(p, n))
            store_operands(p, n);
    /* Who reads what. */
    for (node n = 1; (int)n < p->node_count; n++) {
        if (!p->reached[n] || p->leaves[n].given) continue;
        const graph_node *x = graph_get(p->g, n);
        for (int i = 0; i < x->input_count; i++) {
            node from = x->inputs[i];
            if (p->in_memory[from])
                plan_add_node(p, &p->reads[n], &p->read_count[n], from);
            else
                for (int k = 0; k < p->read_count[from]; k++)
                    plan_add_node(p, &p->reads[n], &p->read_count[n], p->reads[from][k]);
        }
        for (int k = 0; p->is_op[n] && k < p->read_count[n]; k++) {
            node read = p->reads[n][k], writer = plan_writer(p, read);
            add_last(p, &p->users[read], &p->user_count[read], n);
            if (writer != read) add_last(p, &p->users[writer], &p->user_count[writer], n);
        }
    }
}
