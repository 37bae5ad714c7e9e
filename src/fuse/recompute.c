/*
 * Recompute or keep. In: cells as grouping left them. Out: values that no cell writes any more, because every cell that
 * reads them computes them itself.
 *
 * A value that goes through memory is written once and read by each of its readers. Where it is a chain of arithmetic on
 * what is in memory anyway (leaves, and values that are kept for other reasons), a reader may hold a copy of the chain
 * instead; what that costs are the bytes it does not read already. The forward's values that a backward needs are of
 * this kind: masks of dropout, activations, casts. Bytes decide, and a few costly functions are the most that a value
 * may cost: the decision is one of ratios, so it is the same for every batch size.
 * Values are looked at newest first: then a chain ends at what is still written. Where a cell writes several values that
 * all come from one that it does not write (a product's sums, under an activation spelled out), writing that one instead
 * is tried, and kept if fewer bytes move.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/plan.h"

#include <string.h>

#define MOST_COSTLY 4  /* functions that one value may cost, in all its readers */
#define MOST_CHAIN 48  /* ops of one copied chain */
#define MOST_READERS 8 /* of one value */

/* One reader of the value in question, and what it would compute and read beside what it does. */
typedef struct reader {
    int cell;
    node chain[MOST_CHAIN];
    int chain_count, costly;
    int64_t extra_bytes, all_bytes; /* that it would read beside what it does; that the chain reads */
    bool multiplies;                /* the value is an operand of its product */
    bool moves;                     /* nothing is computed: what is padded is read where it lies */
    node extra[MOST_CHAIN];         /* what it would read */
    int extra_count;
} reader;

static bool listed(const node *list, int count, node n)
{
    for (int i = 0; i < count; i++)
        if (list[i] == n) return true;
    return false;
}

static bool is_kept(const planner *p, node n)
{
    if (!p->is_op[n]) return p->in_memory[n];
    const group *g = &p->cells[p->cell_of[n]].g;
    return cell_lists(g->writes, g->write_count, n);
}

/* Is it of those ops that a chain may have? */
static bool is_copied(const planner *p, node n)
{
    graph_code code = graph_get(p->g, n)->code;
    return p->is_op[n] && (code == GRAPH_MAP || code == GRAPH_PAD);
}

/* n and what it needs that is not kept, into the reader's chain. False: something on the way is no arithmetic. */
static bool follow_chain(const planner *p, reader *r, node n, bool top)
{
    const graph_node *x = graph_get(p->g, n);
    const cell *c = &p->cells[r->cell];
    if (cell_lists(c->g.nodes, c->g.node_count, n) || listed(r->chain, r->chain_count, n)) return true;
    if (!top && is_kept(p, n)) {
        r->all_bytes += graph_size_bytes(p->g, n);
        if (cell_lists(c->reads, c->read_count, n) || listed(r->extra, r->extra_count, n)) return true;
        if (r->extra_count == MOST_CHAIN) return false;
        r->extra[r->extra_count++] = n;
        r->extra_bytes += graph_size_bytes(p->g, n);
        return true;
    }
    if (!is_copied(p, n) || r->chain_count == MOST_CHAIN) return false;
    r->chain[r->chain_count++] = n;
    r->moves &= x->code == GRAPH_PAD;
    if (x->code == GRAPH_MAP) r->costly += ops[x->attr.map].costly;
    for (int i = 0; i < p->read_count[n]; i++)
        if (!follow_chain(p, r, p->reads[n][i], false)) return false;
    return true;
}

static bool add_reader(const planner *p, node n, int at, reader *readers, int *count)
{
    const cell *c = &p->cells[at];
    if (c->dead || !cell_lists(c->reads, c->read_count, n)) return true;
    int place = *count;
    while (place && readers[place - 1].cell > at) place--;
    if (place && readers[place - 1].cell == at) return true;
    if (group_is_barrier(p, c)) return false;
    if (*count == MOST_READERS) return false;
    for (int i = (*count)++; i > place; i--) readers[i].cell = readers[i - 1].cell;
    readers[place].cell = at;
    return true;
}

/* The cells that read n from memory, in order; -1: one of them has to, or there are too many. */
static int find_readers(const planner *p, node n, reader *readers)
{
    int count = 0;
    for (int i = 0; i < p->user_count[n]; i++) {
        node u = p->users[n][i];
        bool good = add_reader(p, n, p->cell_of[u], readers, &count);
        for (int k = 0; k < p->copier_count[u] && good; k++)
            good = add_reader(p, n, (int)p->copiers[u][k], readers, &count);
        if (!good) return -1;
    }
    for (int i = 0; i < count; i++) {
        node anchor = p->cells[readers[i].cell].g.anchor;
        readers[i] = (reader){.cell = readers[i].cell, .moves = true};
        readers[i].multiplies = anchor && listed(p->reads[anchor], p->read_count[anchor], n);
    }
    return count;
}

/* The reader's cell with the chain in it. */
static cell with_chain(planner *p, const reader *r)
{
    cell c = p->cells[r->cell];
    int count = c.g.node_count;
    node *nodes = ARENA_ARRAY(p->memory, node, count + r->chain_count);
    node *copies = ARENA_ARRAY(p->memory, node, c.copy_count + r->chain_count);
    memcpy(nodes, c.g.nodes, sizeof(node) * (size_t)count);
    memcpy(nodes + count, r->chain, sizeof(node) * (size_t)r->chain_count);
    if (c.copy_count) memcpy(copies, c.copies, sizeof(node) * (size_t)c.copy_count);
    memcpy(copies + c.copy_count, r->chain, sizeof(node) * (size_t)r->chain_count);
    c.g.nodes = nodes;
    c.g.node_count += r->chain_count;
    c.copies = copies;
    for (int i = 0; i < r->chain_count; i++)
        plan_add_node(p, &p->copiers[r->chain[i]], &p->copier_count[r->chain[i]], (node)r->cell);
    c.copy_count += r->chain_count;
    cell_settle(p, &c);
    return c;
}

static bool fits(planner *p, const cell *c)
{
    if (c->g.node_count > GROUP_MOST_NODES || c->g.write_count + c->read_count > LOWER_ARRAYS - 4) return false;
    arena *scratch = arena_new();
    const char *why = NULL;
    qn_error error = {0};
    bool yes = cell_build(p, c, scratch, NULL, &why, &error);
    arena_free(scratch);
    return yes;
}

static void settle_owner(planner *p, node n)
{
    cell *owner = &p->cells[p->cell_of[n]];
    if (owner->dead) return;
    cell_settle(p, owner);
    owner->dead = !owner->g.write_count;
}

static void consider(planner *p, node n)
{
    reader readers[MOST_READERS];
    int count = find_readers(p, n, readers), costly = 0;
    int64_t cost = 0;
    for (int i = 0; i < count; i++) {
        if (!follow_chain(p, &readers[i], n, true)) return;
        /* A product reads its operands many times: only what comes from arrays much smaller than itself. */
        if (readers[i].multiplies && !readers[i].moves &&
            readers[i].all_bytes > graph_size_bytes(p->g, n) / SPREAD_SMALLER)
            return;
        cost += readers[i].extra_bytes;
        costly += readers[i].costly;
    }
    if (count < 1 || costly > MOST_COSTLY || cost >= graph_size_bytes(p->g, n) * (1 + count)) return;
    cell changed[MOST_READERS];
    for (int i = 0; i < count; i++) {
        changed[i] = with_chain(p, &readers[i]);
        if (!fits(p, &changed[i])) return;
    }
    p->copying = true;
    for (int i = 0; i < count; i++) p->cells[readers[i].cell] = changed[i];
    for (int i = 0; i < count; i++)
        for (int k = 0; k < readers[i].chain_count; k++) settle_owner(p, readers[i].chain[k]);
}

static bool may_recompute(const planner *p, node n)
{
    return is_copied(p, n) && !p->wanted[n] && is_kept(p, n);
}

static int64_t bytes_moved(const planner *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->cell_count; i++) {
        const cell *c = &p->cells[i];
        for (int k = 0; !c->dead && k < c->g.write_count; k++) bytes += graph_size_bytes(p->g, c->g.writes[k]);
        for (int k = 0; !c->dead && k < c->read_count; k++) bytes += graph_size_bytes(p->g, c->reads[k]);
    }
    return bytes;
}

/* Writes `base`, which its cell computes and does not write, for what that makes unnecessary. */
static void consider_base(planner *p, node base)
{
    int at = p->cell_of[base], candidates = 0;
    const group g = p->cells[at].g;
    reader readers[MOST_READERS];
    for (int i = 0; i < g.write_count; i++)
        candidates += may_recompute(p, g.writes[i]) && find_readers(p, g.writes[i], readers) > 0;
    if (candidates < 2) return;
    int64_t before = bytes_moved(p);
    bool copying = p->copying;
    cell *saved = ARENA_ARRAY(p->memory, cell, p->cell_count);
    memcpy(saved, p->cells, sizeof(cell) * (size_t)p->cell_count);
    p->forced[base] = true;
    cell_settle(p, &p->cells[at]);
    bool good = fits(p, &p->cells[at]);
    for (int i = g.write_count - 1; good && i >= 0; i--)
        if (may_recompute(p, g.writes[i])) consider(p, g.writes[i]);
    if (good && bytes_moved(p) < before) return;
    memcpy(p->cells, saved, sizeof(cell) * (size_t)p->cell_count);
    p->forced[base] = false;
    p->copying = copying;
}

/* A value that its own cell computed for others alone belongs to one that has a copy. */
static void hand_over(planner *p, node n)
{
    cell *owner = &p->cells[p->cell_of[n]];
    if (!owner->dead && cell_lists(owner->g.writes, owner->g.write_count, n)) return;
    for (int u = 0; u < p->user_count[n] && !owner->dead; u++)
        if (cell_lists(owner->g.nodes, owner->g.node_count, p->users[n][u])) return;
    int heir = -1; /* the first */
    for (int i = 0; i < p->copier_count[n]; i++) {
        int at = (int)p->copiers[n][i];
        const cell *c = &p->cells[at];
        if (!c->dead && c != owner && listed(c->copies, c->copy_count, n) && (heir < 0 || at < heir)) heir = at;
    }
    if (heir < 0) return;
    cell *c = &p->cells[heir];
    int kept = 0;
    for (int k = 0; k < owner->g.node_count; k++)
        if (owner->g.nodes[k] != n) owner->g.nodes[kept++] = owner->g.nodes[k];
    owner->g.node_count--;
    kept = 0;
    for (int k = 0; k < c->copy_count; k++)
        if (c->copies[k] != n) c->copies[kept++] = c->copies[k];
    c->copy_count = kept;
    p->cell_of[n] = heir;
}

void group_recompute(planner *p)
{
    for (node n = (node)p->node_count - 1; n > 0; n--)
        if (p->reached[n] && may_recompute(p, n)) consider(p, n);
    for (node n = (node)p->node_count - 1; n > 0; n--) {
        graph_code code = graph_get(p->g, n)->code;
        bool fold = code == GRAPH_DOT || code == GRAPH_REDUCE;
        if (p->reached[n] && fold && p->is_op[n] && !is_kept(p, n)) consider_base(p, n);
    }
    for (node n = (node)p->node_count - 1; n > 0 && p->copying; n--)
        if (p->reached[n] && is_copied(p, n)) hand_over(p, n);
    if (p->copying) cells_settle(p);
}
