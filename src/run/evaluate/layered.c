/*
 * Layered drawings. In: nodes with their ranks and widths, and values that go from node to node. Out: the order of every
 * rank, and every node's x.
 *
 * A value that passes ranks gets a node without anything in it in each of them, so every link joins neighbours and lines
 * never run through what stands in a rank. Orders come from sweeps up and down that sort a rank by the middle of what
 * its nodes are linked to, each followed by taking every node to the place of its rank where it crosses least; the best
 * of all is kept. Places are least squares: every node is drawn to the middle of its neighbours, and in a rank the order
 * and the gaps hold (pooling neighbours that would overlap).
 * SPDX-License-Identifier: MIT
 */
#include "run/evaluate/layered.h"

#include <stdlib.h>
#include <string.h>

enum { SWEEPS = 10, PLACINGS = 24, NEAR = 24 };  /* NEAR: how far a node is taken in a rank to find its place */
enum { MOST_LINKS = 3000, MOST_NODES = 200000 }; /* beyond it a drawing is no drawing */
#define PASS_WIDTH 2.0

/* ---- what there is ---- */

int layered_add(layered *l, int rank, double width)
{
    layered_node added = {.rank = rank, .order = l->node_count, .width = width};
    ARENA_PUSH(l->memory, l->nodes, l->node_count, l->node_room, added);
    l->rank_count = MAXIMUM(l->rank_count, rank + 1);
    return l->node_count - 1;
}

static void add_link(layered *l, layered_link link)
{
    link.before = l->nodes[link.from].links;
    ARENA_PUSH(l->memory, l->links, l->link_count, l->link_room, link);
    l->nodes[link.from].links = l->link_count;
}

/* Where the value goes on from a node to the next rank's empty place; -1: nowhere yet. */
static int next_pass(const layered *l, int value, int from, double from_at)
{
    for (int i = l->nodes[from].links; i; i = l->links[i - 1].before) {
        const layered_link *k = &l->links[i - 1];
        if (k->value == value && k->from_at == from_at && l->nodes[k->to].passes) return k->to;
    }
    return -1;
}

void layered_join(layered *l, int value, int from, double from_at, int to, double to_at)
{
    /* Beyond that many nodes (a file made to be large) a line goes straight. */
    while (l->nodes[from].rank + 1 < l->nodes[to].rank && l->node_count < MOST_NODES) {
        int next = next_pass(l, value, from, from_at);
        if (next < 0) {
            next = layered_add(l, l->nodes[from].rank + 1, PASS_WIDTH);
            l->nodes[next].passes = true;
            add_link(l, (layered_link){
                            .value = value, .from = from, .to = next, .from_at = from_at, .to_at = PASS_WIDTH / 2});
        }
        from = next;
        from_at = PASS_WIDTH / 2;
    }
    for (int i = l->nodes[from].links; i; i = l->links[i - 1].before) {
        const layered_link *k = &l->links[i - 1];
        if (k->value == value && k->from_at == from_at && k->to == to && k->to_at == to_at) return;
    }
    add_link(l, (layered_link){.value = value, .from = from, .to = to, .from_at = from_at, .to_at = to_at});
}

/* ---- order ---- */

static void index_links(layered *l)
{
    l->above = ARENA_ARRAY(l->memory, int, l->link_count + 1);
    l->below = ARENA_ARRAY(l->memory, int, l->link_count + 1);
    l->above_start = ARENA_ARRAY(l->memory, int, l->node_count + 2);
    l->below_start = ARENA_ARRAY(l->memory, int, l->node_count + 2);
    for (int i = 0; i < l->link_count; i++) {
        l->above_start[l->links[i].to + 1]++;
        l->below_start[l->links[i].from + 1]++;
    }
    for (int i = 0; i < l->node_count; i++) {
        l->above_start[i + 1] += l->above_start[i];
        l->below_start[i + 1] += l->below_start[i];
    }
    int *above_at = ARENA_ARRAY(l->memory, int, l->node_count + 1);
    int *below_at = ARENA_ARRAY(l->memory, int, l->node_count + 1);
    for (int i = 0; i < l->link_count; i++) {
        int to = l->links[i].to, from = l->links[i].from;
        l->above[l->above_start[to] + above_at[to]++] = i;
        l->below[l->below_start[from] + below_at[from]++] = i;
    }
}

typedef struct keyed {
    double key;
    int node;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void number_rank(layered *l, int rank)
{
    for (int i = 0; i < l->in_rank[rank]; i++) l->nodes[l->ranks[rank][i]].order = i;
}

static void sort_rank(layered *l, int rank, keyed *keys)
{
    int count = l->in_rank[rank];
    qsort(keys, (size_t)count, sizeof(*keys), by_key);
    for (int i = 0; i < count; i++) l->ranks[rank][i] = keys[i].node;
    number_rank(l, rank);
}

static void fill_ranks(layered *l)
{
    l->ranks = ARENA_ARRAY(l->memory, int *, l->rank_count + 1);
    l->in_rank = ARENA_ARRAY(l->memory, int, l->rank_count + 1);
    for (int i = 0; i < l->node_count; i++) l->in_rank[l->nodes[i].rank]++;
    keyed *keys = ARENA_ARRAY(l->memory, keyed, l->node_count + 1);
    for (int r = 0; r < l->rank_count; r++) {
        int count = 0;
        l->ranks[r] = ARENA_ARRAY(l->memory, int, l->in_rank[r] + 1);
        for (int i = 0; i < l->node_count; i++)
            if (l->nodes[i].rank == r) keys[count++] = (keyed){l->nodes[i].order, i};
        sort_rank(l, r, keys);
    }
}

/* Where a link ends in the rank above, or below: order first, then the place at the node. */
static double end_key(const layered *l, int link, bool above)
{
    const layered_link *k = &l->links[link];
    const layered_node *n = &l->nodes[above ? k->from : k->to];
    return n->order + (above ? k->from_at : k->to_at) / (n->width + 1);
}

static double start_key(const layered *l, int link, bool above)
{
    const layered_link *k = &l->links[link];
    return above ? k->to_at : k->from_at;
}

static const int *links_of(const layered *l, int node, bool above, int *count)
{
    const int *start = above ? l->above_start : l->below_start;
    *count = start[node + 1] - start[node];
    return (above ? l->above : l->below) + start[node];
}

/* Crossings of the links of two nodes of one rank, if the first stands left of the second. */
static int64_t pair_crossings(const layered *l, int left, int right)
{
    int64_t count = 0;
    for (int above = 0; above < 2; above++) {
        int left_count, right_count;
        const int *a = links_of(l, left, above, &left_count), *b = links_of(l, right, above, &right_count);
        for (int i = 0; i < left_count; i++)
            for (int k = 0; k < right_count; k++) count += end_key(l, a[i], above) > end_key(l, b[k], above);
    }
    return count;
}

static int64_t rank_crossings(const layered *l, int rank)
{
    int64_t count = 0;
    for (int i = 0; i < l->in_rank[rank]; i++) {
        int left_count, right_count;
        const int *a = links_of(l, l->ranks[rank][i], false, &left_count);
        for (int x = 0; x < left_count; x++)
            for (int y = x + 1; y < left_count; y++) { /* of one node, from two places */
                double gap = start_key(l, a[x], false) - start_key(l, a[y], false);
                double ends = end_key(l, a[x], false) - end_key(l, a[y], false);
                count += gap * ends < 0;
            }
        for (int k = i + 1; k < l->in_rank[rank]; k++) {
            const int *b = links_of(l, l->ranks[rank][k], false, &right_count);
            for (int x = 0; x < left_count; x++)
                for (int y = 0; y < right_count; y++) count += end_key(l, a[x], false) > end_key(l, b[y], false);
        }
    }
    return count;
}

bool layered_is_large(const layered *l)
{
    return l->link_count > MOST_LINKS;
}

int64_t layered_crossings(const layered *l)
{
    int64_t count = 0;
    for (int r = 0; r + 1 < l->rank_count; r++) count += rank_crossings(l, r);
    return count;
}

static void sort_by_middle(layered *l, int rank, bool above, keyed *keys)
{
    for (int i = 0; i < l->in_rank[rank]; i++) {
        int count, node = l->ranks[rank][i];
        const int *links = links_of(l, node, above, &count);
        double sum = 0;
        for (int k = 0; k < count; k++) sum += end_key(l, links[k], above);
        keys[i] = (keyed){count ? sum / count : i, node};
    }
    sort_rank(l, rank, keys);
}

/* Takes every node of a rank to where it crosses least. */
static bool sift_rank(layered *l, int rank)
{
    int count = l->in_rank[rank], *row = l->ranks[rank];
    bool moved = false;
    for (int i = 0; i < count; i++) {
        int node = row[i], best = i;
        int64_t change = 0, least = 0;
        for (int k = i - 1; k >= 0 && i - k <= NEAR; k--) {
            change += pair_crossings(l, node, row[k]) - pair_crossings(l, row[k], node);
            if (change < least) least = change, best = k;
        }
        change = 0;
        for (int k = i + 1; k < count && k - i <= NEAR; k++) {
            change += pair_crossings(l, row[k], node) - pair_crossings(l, node, row[k]);
            if (change < least) least = change, best = k;
        }
        if (best == i) continue;
        for (int k = i; k != best; k += best < i ? -1 : 1) row[k] = row[k + (best < i ? -1 : 1)];
        row[best] = node;
        number_rank(l, rank);
        moved = true;
    }
    return moved;
}

/* Depth first from every node of the first rank: what belongs together stands together. */
static void visit(layered *l, int node, bool *seen, int *next)
{
    if (seen[node]) return;
    seen[node] = true;
    l->nodes[node].order = (*next)++;
    for (int above = 0; above < 2; above++) {
        int count;
        const int *links = links_of(l, node, above, &count);
        for (int i = 0; i < count; i++) visit(l, above ? l->links[links[i]].from : l->links[links[i]].to, seen, next);
    }
}

int *layered_keep(const layered *l)
{
    int *kept = ARENA_ARRAY(l->memory, int, l->node_count + 1);
    for (int i = 0; i < l->node_count; i++) kept[i] = l->nodes[i].order;
    return kept;
}

void layered_take(layered *l, const int *kept)
{
    for (int i = 0; i < l->node_count; i++) {
        l->nodes[i].order = kept[i];
        l->ranks[l->nodes[i].rank][kept[i]] = i;
    }
}

void layered_sift(layered *l, int first, int last)
{
    bool moved = true;
    for (int turn = 0; turn < 4 && moved; turn++) {
        moved = false;
        for (int r = MAXIMUM(first, 0); r <= MINIMUM(last, l->rank_count - 1); r++) moved |= sift_rank(l, r);
    }
}

void layered_order(layered *l, bool keep_first, bool keep_last)
{
    if (!l->node_count) return;
    index_links(l);
    fill_ranks(l);
    if (layered_is_large(l)) {
        keyed *keys = ARENA_ARRAY(l->memory, keyed, l->node_count + 1);
        for (int r = 1; r < l->rank_count; r++) sort_by_middle(l, r, true, keys);
        return;
    }
    int *best = layered_keep(l), first = keep_first, last = l->rank_count - keep_last;
    keyed *keys = ARENA_ARRAY(l->memory, keyed, l->node_count + 1);
    int64_t least = layered_crossings(l);
    bool deep = !keep_first && !keep_last && l->node_count < 5000; /* a visit is a call for each node */
    for (int start = 0; start < (deep ? 2 : 1) && least; start++) {
        if (start) {
            int next = 0;
            bool *seen = ARENA_ARRAY(l->memory, bool, l->node_count + 1);
            for (int i = 0; i < l->node_count; i++) visit(l, i, seen, &next);
            fill_ranks(l);
        }
        for (int sweep = 0; sweep < SWEEPS && least; sweep++) {
            bool down = sweep % 2 == 0;
            for (int i = first; i < last; i++) sort_by_middle(l, down ? i : first + last - 1 - i, down, keys);
            layered_sift(l, first, last - 1);
            int64_t crossings = layered_crossings(l);
            if (crossings >= least) continue;
            least = crossings;
            best = layered_keep(l);
        }
    }
    layered_take(l, best);
}

/* ---- places ---- */

/* Blocks of nodes that touch and move together: the least squares of a rank whose order and gaps hold. */
typedef struct block {
    double sum, weight; /* of where its nodes want to be, less the room before them */
    int count;
} block;

static void settle_rank(layered *l, int rank, double gap, const double *wanted, const double *weights, block *blocks)
{
    int count = l->in_rank[rank], *row = l->ranks[rank], used = 0;
    double before = 0;
    for (int i = 0; i < count; i++) {
        blocks[used++] = (block){(wanted[i] - before) * weights[i], weights[i], 1};
        before += l->nodes[row[i]].width + gap;
        while (used > 1 &&
               blocks[used - 1].sum * blocks[used - 2].weight < blocks[used - 2].sum * blocks[used - 1].weight) {
            block *b = &blocks[used - 2], *c = &blocks[used - 1];
            *b = (block){b->sum + c->sum, b->weight + c->weight, b->count + c->count};
            used--;
        }
    }
    before = 0;
    for (int b = 0, i = 0; b < used; b++)
        for (int k = 0; k < blocks[b].count; k++, i++) {
            l->nodes[row[i]].x = blocks[b].sum / blocks[b].weight + before;
            before += l->nodes[row[i]].width + gap;
        }
}

static void want_rank(const layered *l, int rank, int directions, double *wanted, double *weights)
{
    static const double pull[] = {1, 2, 8}; /* by how many ends only pass: long lines are straight first */
    for (int i = 0; i < l->in_rank[rank]; i++) {
        int node = l->ranks[rank][i];
        double sum = 0, all = 0;
        for (int above = 0; above < 2; above++) {
            int count;
            const int *links = links_of(l, node, above, &count);
            if (!(directions & 1 << above)) continue;
            for (int k = 0; k < count; k++) {
                const layered_link *a = &l->links[links[k]];
                double x =
                    above ? l->nodes[a->from].x + a->from_at - a->to_at : l->nodes[a->to].x + a->to_at - a->from_at;
                double straight = pull[l->nodes[a->from].passes + l->nodes[a->to].passes];
                sum += x * straight;
                all += straight;
            }
        }
        wanted[i] = all ? sum / all : l->nodes[node].x;
        weights[i] = all ? all : 0.05;
    }
}

double layered_place(layered *l, double gap)
{
    if (!l->node_count) return 0;
    block *blocks = ARENA_ARRAY(l->memory, block, l->node_count + 1);
    double *wanted = ARENA_ARRAY(l->memory, double, l->node_count + 1);
    double *weights = ARENA_ARRAY(l->memory, double, l->node_count + 1);
    for (int r = 0; r < l->rank_count; r++) {
        double x = 0;
        for (int i = 0; i < l->in_rank[r]; i++) {
            l->nodes[l->ranks[r][i]].x = x;
            x += l->nodes[l->ranks[r][i]].width + gap;
        }
    }
    int turns = PLACINGS + MINIMUM(8 * l->rank_count, 10 * PLACINGS); /* a line straightens from rank to rank */
    for (int turn = 0; turn < turns; turn++)
        for (int i = 0; i < l->rank_count; i++) {
            int rank = turn % 2 ? l->rank_count - 1 - i : i;
            want_rank(l, rank, turn < PLACINGS / 2 ? (turn % 2 ? 1 : 2) : 3, wanted, weights);
            settle_rank(l, rank, gap, wanted, weights, blocks);
        }
    double least = l->nodes[0].x, most = 0;
    for (int i = 0; i < l->node_count; i++) least = MINIMUM(least, l->nodes[i].x);
    for (int i = 0; i < l->node_count; i++) {
        l->nodes[i].x -= least;
        most = MAXIMUM(most, l->nodes[i].x + l->nodes[i].width);
    }
    return most;
}
