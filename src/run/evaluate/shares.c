/*
 * Shares of operations in the time of kernels. In: the nodes that fusion put into a kernel, with the nodes of the
 * evaluation that they come from (their sites' origin). Out: for each launch the operations in it, the range each was
 * called in, and what part of the time is taken for its own.
 *
 * The estimate: bytes of memory that a node reads or leaves there, and its FLOPs at some operations a byte, as on the
 * devices that there are; the nodes' parts are proportional to that. Names and parts are the plan's. Ranges are the
 * evaluation's: the next step of a loop has the same plan and other ranges.
 * SPDX-License-Identifier: MIT
 */
#include "run/evaluate/shares.h"

#include "base/record.h"

#include <string.h>

static const double flops_a_byte = 8;
enum { MOST_GROUPS = 64 };

/* ---- the parts of a step ---- */

static bool is_view(const graph_node *x)
{
    return graph_ops[x->code].class == GRAPH_CLASS_MOVE && x->code != GRAPH_PAD && x->code != GRAPH_CONCAT;
}

static double flops_of(const graph *g, const graph_node *x)
{
    double elements = (double)shape_count(&x->shape);
    if (x->code == GRAPH_DOT) return 2 * elements * (double)graph_dot_depth(g, x);
    switch (graph_ops[x->code].class) {
    case GRAPH_CLASS_MAP: return elements;
    case GRAPH_CLASS_FOLD: return (double)shape_count(&graph_get(g, x->inputs[0])->shape);
    case GRAPH_CLASS_INDEX: return elements;
    default: return 0;
    }
}

/* Bytes of its inputs that come from memory: through views, of nodes that are not in the kernel. */
static double bytes_read(const graph *g, const graph_node *x, const node *inside, int inside_count)
{
    double sum = 0;
    for (int i = 0; i < x->input_count; i++) {
        node n = x->inputs[i];
        double bytes = (double)graph_size_bytes(g, n);
        while (is_view(graph_get(g, n))) {
            n = graph_get(g, n)->inputs[0];
            bytes = MINIMUM(bytes, (double)graph_size_bytes(g, n));
        }
        const graph_node *from = graph_get(g, n);
        bool here = from->code == GRAPH_FULL || from->code == GRAPH_IOTA;
        for (int k = 0; k < inside_count && !here; k++) here = inside[k] == n;
        if (!here) sum += bytes;
    }
    return sum;
}

static double cost_of(const graph *g, const fuse_kernel *k, node n)
{
    const graph_node *x = graph_get(g, n);
    if (is_view(x) || graph_ops[x->code].class == GRAPH_CLASS_LEAF) return 0;
    double cost = bytes_read(g, x, k->nodes, k->node_count) + flops_of(g, x) / flops_a_byte;
    for (int i = 0; i < k->write_count; i++)
        if (k->writes[i] == n) cost += (double)graph_size_bytes(g, n);
    return cost;
}

static const char *op_name(const graph_node *x)
{
    const char *words = x->label ? x->label : fuse_op_text(x);
    if (!x->site.gradient) return record_name(words);
    text backward = {0};
    text_print(&backward, "%s backward", words);
    const char *name = record_name(text_get(&backward));
    text_free(&backward);
    return name;
}

static void add_share(step_share *list, int *count, step_share one)
{
    for (int i = 0; i < *count; i++)
        if (list[i].origin == one.origin && list[i].op == one.op) {
            list[i].weight += one.weight;
            return;
        }
    list[(*count)++] = one;
}

/* What the passes made of no node in particular has the owner of what stands beside it. */
static void shares_make(plan_step *s, arena *memory)
{
    const graph *g = s->graph;
    const fuse_kernel *k = s->fused;
    const node *nodes = k ? k->nodes : &s->called;
    int count = k ? k->node_count : 1;
    step_share *list = ARENA_ARRAY(memory, step_share, count + 1);
    double sum = 0;
    unsigned known = 0;
    s->share_count = 0;
    for (int i = 0; i < count; i++) {
        const graph_node *x = graph_get(g, nodes[i]);
        if (!known) known = x->site.origin;
    }
    for (int i = 0; i < count; i++) {
        const graph_node *x = graph_get(g, nodes[i]);
        double cost = k ? cost_of(g, k, nodes[i]) : 1;
        if (x->site.origin) known = x->site.origin;
        if (cost > 0) add_share(list, &s->share_count, (step_share){known, op_name(x), cost});
        sum += cost;
    }
    if (!s->share_count && count) { /* it only moves: whoever asked for the last of it */
        list[s->share_count++] = (step_share){known, op_name(graph_get(g, nodes[count - 1])), 1};
        sum = 1;
    }
    for (int i = 0; i < s->share_count; i++) list[i].weight /= sum;
    s->shares = list;
}

/* ---- one evaluation ---- */

const int64_t *shares_ranges(qn_tape *tape)
{
    realizer *r = tape->realizer;
    const graph *g = tape->graph;
    if (!record_is_on()) return NULL;
    if (r->order_count + 1 > r->range_capacity) {
        r->range_capacity = 2 * (r->order_count + 1);
        r->ranges = heap_resize(r->ranges, sizeof(*r->ranges) * (size_t)r->range_capacity);
    }
    bool any = false;
    r->ranges[0] = RECORD_WHERE_IT_RAN;
    for (int i = 0; i < r->order_count; i++) {
        unsigned origin = graph_get(g, r->order[i])->site.origin;
        r->ranges[i + 1] = (int64_t)g->ranges[origin].number;
        any |= origin && !tape_placed(tape, r->order[i]);
    }
    /* Nothing was called in a range: what evaluates it is all that is known. */
    for (int i = 0; i < r->order_count && !any; i++) r->ranges[i + 1] = RECORD_WHERE_IT_RAN;
    return r->ranges;
}

void shares_record(plan_step *s, arena *memory, uint64_t identity, const int64_t *ranges)
{
    struct {
        const char *op;
        int64_t range;
        double weight;
    } groups[MOST_GROUPS];
    int count = 0;
    if (!s->shares) shares_make(s, memory);
    for (int i = 0; i < s->share_count; i++) {
        const step_share *one = &s->shares[i];
        int64_t range = ranges[one->origin];
        int at = 0;
        while (at < count && (groups[at].op != one->op || groups[at].range != range)) at++;
        if (at == MOST_GROUPS) at--; /* the last takes what finds no room */
        if (at == count) {
            groups[count].op = one->op;
            groups[count].range = range;
            groups[count++].weight = 0;
        }
        groups[at].weight += one->weight;
    }
    for (int i = 0; i < count; i++) record_share(identity, groups[i].op, groups[i].range, groups[i].weight);
}

/* ---- captured steps ---- */

static const range_path *path_of(const graph *g, unsigned range, const uint64_t *outside, int outside_count)
{
    if (!range) return NULL;
    const graph_range *r = &g->ranges[range];
    if (r->depth < outside_count && outside[r->depth] == r->number) return NULL;
    return range_path_keep(path_of(g, r->parent, outside, outside_count), r->name);
}

const range_path *const *shares_paths(const qn_tape *tape, const uint64_t *outside, int outside_count, arena *memory)
{
    const realizer *r = tape->realizer;
    const graph *g = tape->graph;
    const range_path **paths = ARENA_ARRAY(memory, const range_path *, r->order_count + 1);
    unsigned last = 0;
    for (int i = 0; i < r->order_count; i++) { /* neighbours are of one range, mostly */
        unsigned range = graph_get(g, r->order[i])->site.origin;
        paths[i + 1] = i && range == last ? paths[i] : path_of(g, range, outside, outside_count);
        last = range;
    }
    return paths;
}

int shares_owners(plan_step *s, arena *memory, const record_part **out)
{
    if (!s->shares) shares_make(s, memory);
    record_part *list = ARENA_ARRAY(memory, record_part, s->share_count + 1);
    int count = 0;
    for (int i = 0; i < s->share_count; i++) {
        const step_share *one = &s->shares[i];
        const range_path *path = s->paths[one->origin];
        int at = 0;
        while (at < count && (list[at].op != one->op || list[at].range != path)) at++;
        if (at == count) list[count++] = (record_part){one->op, path, 0};
        list[at].weight += one->weight;
    }
    *out = list;
    return count;
}
