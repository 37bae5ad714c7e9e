/*
 * Grouping. In: one cell an op. Out: fewer cells, by joining two at a time what a builder accepts as one kernel.
 *
 * Pairs that share a value come first by the bytes that stay out of memory: a producer and who reads it, then those who
 * read the same thing. Two may be joined if no third stands between them, and if the joined kernel does not do costly
 * work many times over. What was refused once is not asked again until one of the two has changed.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/plan.h"

#include "fuse/loop.h"

#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    int64_t bytes;
    int a, b; /* cells; a computes before b */
} candidate;

/* ---- refusals ---- */

static uint64_t pair_hash(int a, int b)
{
    return (unsigned)a * 2654435761u ^ (unsigned)b * 40503u;
}

static const refusal *refusal_find(const planner *p, int a, int b)
{
    for (int at = 0, i; (i = hash_index_next(&p->refusal_index, pair_hash(a, b), &at)) >= 0;)
        if (p->refusals[i].a == a && p->refusals[i].b == b) return &p->refusals[i];
    return NULL;
}

static void refusal_add(planner *p, int a, int b, const char *why)
{
    refusal new = {a, b, why};
    hash_index_add(&p->refusal_index, pair_hash(a, b), p->refusal_count);
    ARENA_PUSH(p->memory, p->refusals, p->refusal_count, p->refusal_capacity, new);
}

/* ---- order ---- */

/* A walk over cells along their edges, one edge a step. */
typedef struct cell_walk {
    int *stack, depth;
    int *seen, mark; /* by cell: the mark, where it was reached */
    int at;          /* whose edges are looked at; -1: the next of the stack */
    int node, edge;
} cell_walk;

static cell_walk walk_begin(planner *p, int *seen, int *stack, int from)
{
    cell_walk w = {.stack = stack, .seen = seen, .mark = ++p->seen_number, .at = -1};
    w.seen[from] = w.mark;
    w.stack[w.depth++] = from;
    return w;
}

/* The cell at the end of the next edge, towards users or towards what is read; -1: there is none, -2: no cell. */
static int walk_step(const planner *p, cell_walk *w, bool forward)
{
    for (;;) {
        if (w->at < 0) {
            if (!w->depth) return -1;
            w->at = w->stack[--w->depth];
            w->node = w->edge = 0;
        }
        const cell *c = &p->cells[w->at];
        if (!forward && w->edge < c->read_count) {
            node from = plan_writer(p, c->reads[w->edge++]);
            return p->is_op[from] ? p->cell_of[from] : -2;
        }
        for (; forward && w->node < c->g.node_count; w->node++, w->edge = 0)
            if (w->edge < p->user_count[c->g.nodes[w->node]])
                return p->cell_of[p->users[c->g.nodes[w->node]][w->edge++]];
        w->at = -1;
    }
}

static void walk_to(cell_walk *w, int next)
{
    if (w->seen[next] == w->mark) return;
    w->seen[next] = w->mark;
    w->stack[w->depth++] = next;
}

#define MOST_EDGES 8192 /* looked at for one pair, from each end: in a huge graph the two are then left apart */

/* Does a way lead from a to b or back, other than directly from a to b? Ways only lead from lower positions to higher
 * ones; they are looked for from both ends, so that one that is soon at its end decides. */
static bool between(planner *p, int a, int b)
{
    bool direct = p->position[a] < p->position[b];
    int from = direct ? a : b, to = direct ? b : a;
    cell_walk down = walk_begin(p, p->seen, p->stack, from), up = walk_begin(p, p->seen_back, p->stack_back, to);
    for (int edges = 0; edges < MOST_EDGES; edges++) {
        int next = walk_step(p, &down, true);
        if (next == -1) return false;
        if (next != down.at && !(direct && down.at == from && next == to)) {
            if (next == to || up.seen[next] == up.mark) return true;
            if (p->position[next] < p->position[to]) walk_to(&down, next);
        }
        next = walk_step(p, &up, false);
        if (next == -1) return false;
        if (next == -2 || next == up.at || (direct && up.at == to && next == from)) continue;
        if (next == from || down.seen[next] == down.mark) return true;
        if (p->position[next] > p->position[from]) walk_to(&up, next);
    }
    return true;
}

/* Cell b becomes part of cell a, with nothing between them: what needs the lower one goes behind both. */
static void settle_positions(planner *p, int a, int b)
{
    bool before = p->position[a] < p->position[b];
    int from = before ? a : b, to = before ? b : a, low = p->position[from], high = p->position[to], behind = 0;
    cell_walk needing = walk_begin(p, p->seen, p->stack, from);
    for (int next; (next = walk_step(p, &needing, true)) >= 0;)
        if (p->position[next] < high) walk_to(&needing, next);
    int at = low;
    for (int i = low; i <= high; i++) {
        int c = p->by_position[i];
        if (c < 0 || c == a || c == b) continue;
        if (p->seen[c] == needing.mark) {
            p->stack[behind++] = c;
            continue;
        }
        p->position[c] = at;
        p->by_position[at++] = c;
    }
    p->position[a] = at;
    p->by_position[at++] = a;
    for (int i = 0; i < behind; i++) {
        p->position[p->stack[i]] = at;
        p->by_position[at++] = p->stack[i];
    }
    while (at <= high) p->by_position[at++] = -1;
}

/* ---- joining ---- */

bool group_is_ordered(const graph_node *x)
{
    return x->code == GRAPH_DOT || (x->code == GRAPH_REDUCE && dtype_is_float(x->elem) &&
                                    (x->attr.fold == FOLD_SUM || x->attr.fold == FOLD_PROD));
}

bool group_is_barrier(const planner *p, const cell *c)
{
    if (c->g.kind != GROUP_LOOP && c->g.kind != GROUP_DOT) return true;
    if (p->options->mode != FUSE_STRICT) return false;
    /* The order of additions must be that of the op alone. */
    for (int i = 0; i < c->g.node_count; i++)
        if (group_is_ordered(graph_get(p->g, c->g.nodes[i]))) return true;
    return false;
}

static bool keeps(const planner *p, const cell *a, const cell *b)
{
    for (int i = 0; i < a->g.node_count; i++) {
        node n = a->g.nodes[i];
        if (graph_get(p->g, n)->code != GRAPH_KEEP) continue;
        for (int u = 0; u < p->user_count[n]; u++)
            if (p->cell_of[p->users[n][u]] == p->cell_of[b->g.nodes[0]]) return true;
    }
    return false;
}

static cell joined(planner *p, const cell *a, const cell *b)
{
    cell c = {.g = {.kind = a->g.kind == GROUP_DOT || b->g.kind == GROUP_DOT ? GROUP_DOT : GROUP_LOOP}};
    c.g.anchor = a->g.anchor ? a->g.anchor : b->g.anchor;
    c.g.nodes = ARENA_ARRAY(p->memory, node, a->g.node_count + b->g.node_count);
    memcpy(c.g.nodes, a->g.nodes, sizeof(node) * (size_t)a->g.node_count);
    memcpy(c.g.nodes + a->g.node_count, b->g.nodes, sizeof(node) * (size_t)b->g.node_count);
    c.g.node_count = a->g.node_count + b->g.node_count;
    cell_settle(p, &c);
    return c;
}

/* What a cell reads, and what it writes, beside leaves and results, which are in memory anyhow. */
static int64_t read_bytes(const planner *p, const cell *c)
{
    int64_t bytes = 0;
    for (int i = 0; i < c->read_count; i++)
        if (p->is_op[plan_writer(p, c->reads[i])] && !p->wanted[c->reads[i]])
            bytes += graph_size_bytes(p->g, c->reads[i]);
    return bytes;
}

static int64_t written_bytes(const planner *p, const cell *c)
{
    int64_t bytes = 0;
    for (int i = 0; i < c->g.write_count; i++)
        if (!p->wanted[c->g.writes[i]]) bytes += graph_size_bytes(p->g, c->g.writes[i]);
    return bytes;
}

/* Does the later of two cells wait for something that is made after the earlier one? */
static bool waits(const planner *p, int earlier, int later)
{
    const cell *c = &p->cells[later];
    for (int i = 0; i < c->read_count; i++) {
        node from = plan_writer(p, c->reads[i]);
        if (p->is_op[from] && p->position[p->cell_of[from]] > p->position[earlier]) return true;
    }
    return false;
}

/* Values that share an input are all there at once, a long sum waits for all that it adds, and what waits keeps what it reads. */
static bool holds_more(const planner *p, int a, int b, const cell *both)
{
    int earlier = p->position[a] < p->position[b] ? a : b, later = earlier == a ? b : a;
    const cell *x = &p->cells[earlier], *y = &p->cells[later];
    int64_t in = read_bytes(p, x), out = written_bytes(p, x), little = p->eager_bytes / 64;
    int64_t apart = MAXIMUM(in + out, read_bytes(p, y) + written_bytes(p, y));
    if (read_bytes(p, both) + written_bytes(p, both) > apart + little) return true;
    return in > out + little && waits(p, earlier, later);
}

#define LESS_BYTES 0.95
#define JOIN_MARGIN 1.2 /* estimates are no nearer; and what is nearly equal stays as it is for other batch sizes */

/* Can cells a and b be one kernel, c, and does it pay? */
static const char *build_joined(planner *p, int a, int b, cell *c, arena *scratch)
{
    if (c->g.write_count + c->read_count > LOWER_ARRAYS - 4) return "it would touch too many arrays";
    if (p->frugal && holds_more(p, a, b, c)) return "together they would have more in memory at once";
    const char *why = NULL;
    qn_error error = {0};
    if (!cell_build(p, c, scratch, NULL, &why, &error)) return why ? why : "they do not go over the same elements";
    if (c->g.kind != GROUP_LOOP) return NULL;
    c->cost = p->built;
    c->costed = c->stamp;
    const fuse_cost one = *cell_cost(p, &p->cells[a]), other = *cell_cost(p, &p->cells[b]);
    double apart = one.time_ns + other.time_ns;
    bool saves = c->cost.bytes < LESS_BYTES * (one.bytes + other.bytes); /* else together they must be faster */
    if (one.time_ns > 0 && other.time_ns > 0 && c->cost.time_ns > (saves ? JOIN_MARGIN : 1) * apart)
        return "computing it again where it is needed would take longer than its way through memory";
    return NULL;
}

static void take_over(planner *p, int a, int b, const cell *c)
{
    p->cells[b].dead = true;
    p->cells[a] = *c;
    for (int i = 0; i < c->g.node_count; i++) p->cell_of[c->g.nodes[i]] = a;
}

static const char handed_down[] = "a part of it is computed where it is read";

static const char *join(planner *p, int a, int b, arena *scratch)
{
    const cell *x = &p->cells[a], *y = &p->cells[b];
    if (group_is_barrier(p, x) || group_is_barrier(p, y)) return "its kernel stands alone";
    if (x->g.kind == GROUP_DOT && y->g.kind == GROUP_DOT) return "two products";
    if (keeps(p, x, y)) return "it was asked to be kept";
    if (x->g.node_count + y->g.node_count > GROUP_MOST_NODES) return "the kernel would be too long";
    if (between(p, a, b)) return "another kernel stands between them";
    cell c = joined(p, x, y);
    const char *why = build_joined(p, a, b, &c, scratch);
    double apart = cell_cost(p, &p->cells[a])->time_ns + cell_cost(p, &p->cells[b])->time_ns;
    if (group_hand_down(p, a, b, why ? apart : MINIMUM(apart, c.cost.time_ns))) return handed_down;
    if (why) return why;
    settle_positions(p, a, b);
    take_over(p, a, b, &c);
    return NULL;
}

static bool try_join(planner *p, int a, int b)
{
    int stamp_a = p->cells[a].stamp, stamp_b = p->cells[b].stamp;
    if (refusal_find(p, stamp_a, stamp_b)) return false;
    arena *scratch = arena_new();
    const char *why = join(p, a, b, scratch);
    arena_free(scratch);
    if (why) refusal_add(p, stamp_a, stamp_b, why);
    return !why || why == handed_down;
}

/* ---- candidates ---- */

static int by_bytes(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a->a != b->a ? a->a - b->a : a->b - b->b;
}

typedef struct candidates {
    candidate *items;
    int count, capacity;
} candidates;

static void add_candidate(const planner *p, candidates *list, arena *scratch, int64_t bytes, int a, int b)
{
    if (a == b || p->cells[a].dead || p->cells[b].dead) return;
    if (refusal_find(p, p->cells[a].stamp, p->cells[b].stamp)) return;
    candidate c = {bytes, a, b};
    ARENA_PUSH(scratch, list->items, list->count, list->capacity, c);
}

/* Which pairs a round looks at. */
typedef enum round_kind {
    ROUND_PRODUCTS, /* a product and who reads it: its epilogue, before the reader finds other company */
    ROUND_READERS,  /* a producer and a reader */
    ROUND_SIBLINGS  /* two that read the same */
} round_kind;

static bool join_round(planner *p, round_kind kind)
{
    bool siblings = kind == ROUND_SIBLINGS;
    arena *scratch = arena_new();
    candidates list = {0};
    for (node n = 1; (int)n < p->node_count; n++) {
        if (!p->reached[n] || !p->in_memory[n]) continue;
        int64_t bytes = graph_size_bytes(p->g, n);
        if (!siblings && !p->is_op[n]) continue;
        if (kind == ROUND_PRODUCTS && p->cells[p->cell_of[n]].g.kind != GROUP_DOT) continue;
        for (int u = 0; u < p->user_count[n]; u++) {
            int b = p->cell_of[p->users[n][u]];
            if (!siblings) {
                add_candidate(p, &list, scratch, bytes, p->cell_of[n], b);
                continue;
            }
            for (int v = 0; v < u && v < 16; v++) {
                int a = p->cell_of[p->users[n][v]];
                add_candidate(p, &list, scratch, bytes, MINIMUM(a, b), MAXIMUM(a, b));
            }
        }
    }
    if (list.count) qsort(list.items, (size_t)list.count, sizeof(candidate), by_bytes);
    bool any = false;
    for (int i = 0; i < list.count; i++) {
        const candidate *c = &list.items[i];
        if (p->cells[c->a].dead || p->cells[c->b].dead) continue;
        any |= try_join(p, c->a, c->b);
    }
    arena_free(scratch);
    return any;
}

static void join_all(planner *p)
{
    p->refusals = NULL;
    p->refusal_count = p->refusal_capacity = 0;
    p->refusal_index = (hash_index){.memory = p->memory};
    while (join_round(p, ROUND_PRODUCTS)) continue;
    do {
        while (join_round(p, ROUND_READERS)) continue;
    } while (join_round(p, ROUND_SIBLINGS));
}

/* Does a way lead from cell a to cell b other than directly? A copy is not among its value's users, so ways over it are found
 * from their end alone. */
static bool leads_around(planner *p, int a, int b)
{
    cell_walk up = walk_begin(p, p->seen_back, p->stack_back, b);
    for (int edges = 0; edges < MOST_EDGES; edges++) {
        int next = walk_step(p, &up, false);
        if (next == -1) return false;
        if (next == -2 || next == up.at || (up.at == b && next == a)) continue;
        if (next == a) return true;
        walk_to(&up, next);
    }
    return true;
}

static bool joins_fold(planner *p, int a, int b)
{
    cell *x = &p->cells[a], *y = &p->cells[b];
    if (x->g.kind != GROUP_LOOP || y->g.kind != GROUP_LOOP || x->copy_count || y->copy_count ||
        group_is_barrier(p, x) || group_is_barrier(p, y) || keeps(p, x, y) ||
        x->g.node_count + y->g.node_count > GROUP_MOST_NODES || leads_around(p, a, b))
        return false;
    arena *scratch = arena_new();
    cell c = joined(p, x, y);
    bool good = c.read_count && !build_joined(p, a, b, &c, scratch) &&
                c.cost.bytes < LESS_BYTES * (cell_cost(p, x)->bytes + cell_cost(p, y)->bytes);
    arena_free(scratch);
    if (good) take_over(p, a, b, &c);
    return good;
}

/* A fold, and one that waited for it and wrote what its readers compute again now: if both go through the same array, they
 * may go together. */
static void join_folds(planner *p)
{
    for (node n = 1; (int)n < p->node_count; n++) {
        if (!p->reached[n] || !p->is_op[n] || graph_get(p->g, n)->code != GRAPH_REDUCE) continue;
        int b = p->cell_of[n];
        for (int k = 0; k < p->cells[b].read_count && !p->cells[b].dead; k++) {
            node from = plan_writer(p, p->cells[b].reads[k]);
            int a = p->is_op[from] ? p->cell_of[from] : b;
            if (a != b && !p->cells[a].dead && joins_fold(p, a, b)) break;
        }
    }
}

void group_nodes(planner *p)
{
    int count = p->cell_count;
    p->position = ARENA_ARRAY(p->memory, int, count + 1);
    p->by_position = ARENA_ARRAY(p->memory, int, count + 1);
    p->seen = ARENA_ARRAY(p->memory, int, count + 1);
    p->seen_back = ARENA_ARRAY(p->memory, int, count + 1);
    p->stack = ARENA_ARRAY(p->memory, int, count + 1);
    p->stack_back = ARENA_ARRAY(p->memory, int, count + 1);
    for (int i = 0; i < count; i++) p->position[i] = p->by_position[i] = i; /* cells are in the order of their ops */
    p->early = true;
    join_all(p);
    p->early = false;
    join_all(p);
    group_recompute(p);
    if (p->copying) join_folds(p);
}

const char *group_boundary(const planner *p, node n, const cell *producer, const cell *consumer)
{
    if (p->options->mode == FUSE_EAGER) return "each op has its own kernel";
    const refusal *r = refusal_find(p, producer->stamp, consumer->stamp);
    if (!r) r = refusal_find(p, consumer->stamp, producer->stamp);
    if (r) return r->why;
    if (graph_get(p->g, n)->code == GRAPH_RESULT) return "it comes from a kernel of a module";
    if (group_is_barrier(p, producer) || group_is_barrier(p, consumer)) return "its kernel stands alone";
    return "reading it costs less than computing it again";
}
