/*
 * What a producer computes for one reader alone, handed down to it. In: two cells, one of which reads the other. Out: the same two,
 * with the arithmetic that follows the first one's folds in the second, where both take less time so.
 *
 * Joining goes pair by pair, so what spreads a fold's value over a window (the gradient of a pool: each element against the largest
 * of its windows) lies with the fold before its readers have come together, and then there is only all of it or nothing:
 * a way through memory that is as many times larger as a window has elements, or each fold again for every element that reads it.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/plan.h"

#include <string.h>

#define GAIN 0.8 /* of the time: estimates are no nearer */

/* Elements of the largest fold; 0: there is none. */
static int64_t largest_fold(const planner *p, const group *g)
{
    int64_t most = 0;
    for (int i = 0; i < g->node_count; i++) {
        const graph_node *x = graph_get(p->g, g->nodes[i]);
        if (x->code == GRAPH_REDUCE) most = MAXIMUM(most, shape_count(&x->shape));
    }
    return most;
}

static bool only_there(const planner *p, node n, int reader)
{
    for (int i = 0; i < p->user_count[n]; i++)
        if (p->cell_of[p->users[n][i]] != reader) return false;
    return p->user_count[n] > 0;
}

/* Takes the nodes that go from cell a to cell b, newest first, so that cell_of says b of what follows. */
static int hand_nodes(planner *p, int a, int b, int64_t larger_than, node *handed)
{
    const group *g = &p->cells[a].g;
    int count = 0;
    for (int i = g->node_count - 1; i >= 0; i--) {
        node n = g->nodes[i];
        const graph_node *x = graph_get(p->g, n);
        bool spreads = x->code == GRAPH_MAP && shape_count(&x->shape) > larger_than;
        bool moves = x->code == GRAPH_PAD || x->code == GRAPH_AGAIN; /* what it reads lies elsewhere */
        if (!(spreads || moves) || p->wanted[n] || p->forced[n] || !only_there(p, n, b)) continue;
        p->cell_of[n] = b;
        handed[count++] = n;
    }
    return count;
}

static cell cell_of_nodes(planner *p, node *nodes, int count)
{
    cell c = {.g = {.kind = GROUP_LOOP, .nodes = nodes, .node_count = count}};
    cell_settle(p, &c);
    return c;
}

static bool is_quicker(planner *p, cell *from, cell *to, double least_ns)
{
    if (from->g.write_count + from->read_count > LOWER_ARRAYS - 4 ||
        to->g.write_count + to->read_count > LOWER_ARRAYS - 4)
        return false;
    double one = cell_cost(p, from)->time_ns, other = cell_cost(p, to)->time_ns;
    return one > 0 && other > 0 && one + other < GAIN * least_ns;
}

bool group_hand_down(planner *p, int a, int b, double least_ns)
{
    const cell *x = &p->cells[a], *y = &p->cells[b];
    if (x->g.kind != GROUP_LOOP || y->g.kind != GROUP_LOOP || x->copy_count || y->copy_count) return false;
    int64_t folded = largest_fold(p, &x->g);
    int all = x->g.node_count + y->g.node_count;
    if (!folded || all > GROUP_MOST_NODES) return false;
    node *handed = ARENA_ARRAY(p->memory, node, x->g.node_count), *kept = ARENA_ARRAY(p->memory, node, x->g.node_count);
    int count = hand_nodes(p, a, b, folded, handed), kept_count = 0;
    if (!count) return false;
    for (int i = 0; i < x->g.node_count; i++)
        if (p->cell_of[x->g.nodes[i]] == a) kept[kept_count++] = x->g.nodes[i];
    node *together = ARENA_ARRAY(p->memory, node, count + y->g.node_count);
    memcpy(together, handed, sizeof(node) * (size_t)count);
    memcpy(together + count, y->g.nodes, sizeof(node) * (size_t)y->g.node_count);
    cell from = cell_of_nodes(p, kept, kept_count), to = cell_of_nodes(p, together, count + y->g.node_count);
    if (is_quicker(p, &from, &to, least_ns)) {
        p->cells[a] = from;
        p->cells[b] = to;
        return true;
    }
    for (int i = 0; i < count; i++) p->cell_of[handed[i]] = a;
    return false;
}
