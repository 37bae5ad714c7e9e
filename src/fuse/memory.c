/*
 * Where everything lies that a plan's kernels write. In: kernels in an order that computes before it uses, the results
 * and the assignments. Out: the same kernels, perhaps in another order, a place for each written node, the size of the
 * workspace, and copies at the end for assignments whose value could not be computed in its home.
 *
 * A node lives from the kernel that writes it to the last that reads it. Two nodes that live at once do not overlap.
 * - A result has memory of its own.
 * - The value of an assignment is computed in its home if nothing later reads the old value there. So kernels that
 *   read the old value go first where the order allows it.
 * - A node may take the place of an input that nothing reads later, where the kernel reads it at the very elements
 *   that it writes (in_place.c); the two arrays become one parameter.
 * - Everything else lies in the workspace, the largest first, in the smallest gap that fits.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/memory.h"
#include "fuse/sizes.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT_BYTES 256
#define COPY_BLOCK 4096
#define PEAK_MATTERS FUSE_SIZE((int64_t)16 << 20) /* bytes below which another text for a lower peak is not worth it */

typedef struct memory_plan {
    fuse_plan *plan;
    const fuse_assign *assigns;
    int assign_count;
    bool *wanted;      /* by node */
    int *first, *last; /* by node: kernels of its life; first -1: no kernel writes it */
    node *root;        /* by node: whose place it shares; itself if it has one of its own */
} memory_plan;

static bool is_written(const fuse_kernel *k, node n)
{
    for (int i = 0; i < k->write_count; i++)
        if (k->writes[i] == n) return true;
    return false;
}

/* Calls of a module's kernel have no text here: their inputs are those of the node. */
static bool argument_reads(const fuse_kernel *k, int argument)
{
    return !is_written(k, k->arguments[argument].base) ||
           (k->kernel && fuse_argument_kind(k->kernel, argument) != PARAM_OUT);
}

static bool same_storage(const graph *g, node a, node b)
{
    const graph_node *x = graph_get(g, a), *y = graph_get(g, b);
    return a == b ||
           (x->code == GRAPH_LEAF && y->code == GRAPH_LEAF && x->attr.storage && x->attr.storage == y->attr.storage);
}

static bool reads_storage(const fuse_plan *plan, int kernel, node leaf)
{
    const fuse_kernel *k = &plan->kernels[kernel];
    for (int i = 0; i < k->argument_count; i++)
        if (argument_reads(k, i) && same_storage(plan->graph, k->arguments[i].base, leaf)) return true;
    return false;
}

/* ---- order ---- */

/* Which kernel runs before which, directly: lists of later kernels. */
typedef struct kernel_edges {
    int *first;     /* by kernel: an edge, or -1 */
    int *to, *next; /* by edge */
    int count, capacity, next_capacity;
    int *seen, *stack, seen_number;
    arena *memory;
} kernel_edges;

static void edge_add(kernel_edges *e, int from, int to)
{
    int next_count = e->count;
    ARENA_PUSH(e->memory, e->next, next_count, e->next_capacity, e->first[from]);
    ARENA_PUSH(e->memory, e->to, e->count, e->capacity, to);
    e->first[from] = e->count - 1;
}

static bool reaches(kernel_edges *e, int from, int to)
{
    int depth = 0, number = ++e->seen_number;
    e->stack[depth++] = from;
    e->seen[from] = number;
    while (depth) {
        int at = e->stack[--depth];
        if (at == to) return true;
        for (int i = e->first[at]; i >= 0; i = e->next[i]) {
            if (e->seen[e->to[i]] == number) continue;
            e->seen[e->to[i]] = number;
            e->stack[depth++] = e->to[i];
        }
    }
    return false;
}

static void renumber(fuse_plan *plan, const int *order, arena *scratch)
{
    int count = plan->kernel_count;
    int *place = ARENA_ARRAY(scratch, int, count);
    fuse_kernel *old = ARENA_ARRAY(scratch, fuse_kernel, count);
    memcpy(old, plan->kernels, sizeof(fuse_kernel) * (size_t)count);
    for (int i = 0; i < count; i++) {
        plan->kernels[i] = old[order[i]];
        place[order[i]] = i;
    }
    for (int i = 0; i < plan->boundary_count; i++) {
        fuse_boundary *b = &plan->boundaries[i];
        if (b->producer >= 0) b->producer = place[b->producer];
        if (b->consumer >= 0) b->consumer = place[b->consumer];
    }
}

/* By node: the kernel that writes it, or -1. */
static int *find_writers(const fuse_plan *plan, arena *scratch)
{
    int *writer = ARENA_ARRAY(scratch, int, plan->graph->node_count);
    for (int n = 0; n < plan->graph->node_count; n++) writer[n] = -1;
    for (int i = 0; i < plan->kernel_count; i++)
        for (int w = 0; w < plan->kernels[i].write_count; w++) writer[plan->kernels[i].writes[w]] = i;
    return writer;
}

static kernel_edges find_edges(const fuse_plan *plan, const fuse_assign *assigns, int assign_count, arena *scratch)
{
    int count = plan->kernel_count, *writer = find_writers(plan, scratch);
    kernel_edges e = {.memory = scratch};
    e.first = ARENA_ARRAY(scratch, int, count + 1);
    e.seen = ARENA_ARRAY(scratch, int, count + 1);
    e.stack = ARENA_ARRAY(scratch, int, count + 1);
    for (int i = 0; i < count; i++) e.first[i] = -1;
    for (int i = 0; i < count; i++)
        for (int a = 0; a < plan->kernels[i].argument_count; a++) {
            node base = plan->kernels[i].arguments[a].base;
            if (writer[base] >= 0 && writer[base] != i) edge_add(&e, writer[base], i);
        }
    for (int a = 0; a < assign_count; a++) {
        int to = writer[assigns[a].from];
        for (int i = 0; i < count && to >= 0; i++)
            if (i != to && reads_storage(plan, i, assigns[a].home) && !reaches(&e, to, i)) edge_add(&e, i, to);
    }
    return e;
}

bool *fuse_before(const fuse_plan *plan, const fuse_assign *assigns, int assign_count, arena *scratch)
{
    int count = plan->kernel_count;
    const kernel_edges e = find_edges(plan, assigns, assign_count, scratch);
    bool *before = ARENA_ARRAY(scratch, bool, (size_t)count *(size_t)count);
    for (int i = 0; i < count; i++)
        for (int edge = e.first[i]; edge >= 0; edge = e.next[edge])
            before[(size_t)i * (size_t)count + (size_t)e.to[edge]] = true;
    return before;
}

/* The smallest of a heap of numbers, taken out. */
static int take_smallest(int *heap, int *count)
{
    int smallest = heap[0], last = heap[--*count], at = 0;
    for (int child; (child = 2 * at + 1) < *count; at = child) {
        if (child + 1 < *count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return smallest;
}

static void put_number(int *heap, int *count, int number)
{
    int at = (*count)++;
    for (; at && heap[(at - 1) / 2] > number; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = number;
}

/* Kernels that read the old value of an assigned leaf go before the one that computes the new value, unless they need
 * it. Otherwise the order stays. */
static void order_kernels(memory_plan *m, arena *scratch)
{
    fuse_plan *plan = m->plan;
    int count = plan->kernel_count, *writer = find_writers(plan, scratch);
    bool needed = false;
    for (int a = 0; a < m->assign_count && !needed; a++)
        for (int i = writer[m->assigns[a].from] + 1; i < count && writer[m->assigns[a].from] >= 0 && !needed; i++)
            needed = reads_storage(plan, i, m->assigns[a].home);
    if (!needed) return;
    const kernel_edges e = find_edges(plan, m->assigns, m->assign_count, scratch);
    int *order = ARENA_ARRAY(scratch, int, count), *waits = ARENA_ARRAY(scratch, int, count), at = 0, ready_count = 0;
    int *ready = ARENA_ARRAY(scratch, int, count + 1);
    for (int i = 0; i < e.count; i++) waits[e.to[i]]++;
    for (int i = 0; i < count; i++)
        if (!waits[i]) put_number(ready, &ready_count, i);
    while (ready_count) { /* of those that are ready, the first in the old order */
        int next = order[at++] = take_smallest(ready, &ready_count);
        for (int edge = e.first[next]; edge >= 0; edge = e.next[edge])
            if (!--waits[e.to[edge]]) put_number(ready, &ready_count, e.to[edge]);
    }
    CHECK(at == count);
    renumber(plan, order, scratch);
}

/* ---- lives ---- */

static void find_lives(memory_plan *m)
{
    fuse_plan *plan = m->plan;
    for (int n = 0; n < plan->graph->node_count; n++) m->first[n] = m->last[n] = -1;
    for (int i = 0; i < plan->kernel_count; i++) {
        const fuse_kernel *k = &plan->kernels[i];
        for (int w = 0; w < k->write_count; w++) {
            m->first[k->writes[w]] = i;
            m->last[k->writes[w]] = MAXIMUM(m->last[k->writes[w]], i);
        }
        for (int a = 0; a < k->argument_count; a++) m->last[k->arguments[a].base] = i;
        if (!k->kernel)
            for (int a = 0; a < graph_get(plan->graph, k->call)->input_count; a++)
                m->last[graph_get(plan->graph, k->call)->inputs[a]] = i;
    }
}

/* The argument that alone writes n, or -1. */
static int writing_argument(const fuse_kernel *k, node n)
{
    int found = -1;
    for (int i = 0; i < k->argument_count; i++) {
        if (k->arguments[i].base != n) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

/* ---- assignments ---- */

static bool take_home(memory_plan *m, const fuse_assign *a)
{
    fuse_plan *plan = m->plan;
    const graph_node *home = graph_get(plan->graph, a->home), *from = graph_get(plan->graph, a->from);
    int at = m->first[a->from];
    if (at < 0 || m->wanted[a->from] || m->root[a->from] != a->from ||
        !strides_are_row_major(home->shape.rank, home->shape.extents, home->attr.strides) || home->attr.offset ||
        home->elem != from->elem || shape_count(&home->shape) != shape_count(&from->shape))
        return false;
    for (int i = at + 1; i < plan->kernel_count; i++)
        if (reads_storage(plan, i, a->home)) return false;
    fuse_kernel *k = &plan->kernels[at];
    if (reads_storage(plan, at, a->home)) {
        int read = writing_argument(k, a->home), write = writing_argument(k, a->from);
        for (int i = 0; i < k->argument_count; i++)
            if (i != read && same_storage(plan->graph, k->arguments[i].base, a->home)) return false;
        if (read < 0 || write < 0 || !k->kernel) return false;
        if (!fuse_in_place(plan->memory, k, read, write)) return false;
    }
    m->root[a->from] = a->home;
    plan->places[a->from] = (fuse_place){.same_as = a->home};
    return true;
}

/* A kernel that copies a node, row-major, to a leaf. */
static fuse_kernel copy_kernel(fuse_plan *plan, node from, node home)
{
    arena *memory = plan->memory;
    const graph_node *target = graph_get(plan->graph, home);
    int64_t count = shape_count(&target->shape);
    fuse_kernel k = {.name = "copy", .argument_count = 2, .node_count = 1, .write_count = 0};
    k.arguments = ARENA_ARRAY(memory, fuse_argument, 2);
    k.nodes = ARENA_ARRAY(memory, node, 1);
    k.nodes[0] = from;
    k.read_bytes = k.written_bytes = graph_size_bytes(plan->graph, home);
    int rank = 1;
    k.arguments[0] = (fuse_argument){.base = from, .rank = 1, .extents = {count}, .strides = {1}};
    k.arguments[1] =
        (fuse_argument){.base = home, .rank = 1, .offset = target->attr.offset, .extents = {count}, .strides = {1}};
    if (!strides_are_row_major(target->shape.rank, target->shape.extents, target->attr.strides)) {
        rank = target->shape.rank;
        for (int axis = 0; axis < rank; axis++) {
            k.arguments[0].extents[axis] = k.arguments[1].extents[axis] = target->shape.extents[axis];
            k.arguments[1].strides[axis] = target->attr.strides[axis];
        }
        strides_set_row_major(rank, target->shape.extents, k.arguments[0].strides);
        k.arguments[0].rank = k.arguments[1].rank = rank;
    }
    k.kernel = fuse_copy_text(memory, target->elem, rank, COPY_BLOCK);
    return k;
}

static void assign_rest(memory_plan *m, const bool *done)
{
    fuse_plan *plan = m->plan;
    int more = 0;
    for (int a = 0; a < m->assign_count; a++) more += !done[a];
    if (!more) return;
    fuse_kernel *grown = ARENA_ARRAY(plan->memory, fuse_kernel, plan->kernel_count + more);
    if (plan->kernel_count) memcpy(grown, plan->kernels, sizeof(fuse_kernel) * (size_t)plan->kernel_count);
    plan->kernels = grown;
    for (int a = 0; a < m->assign_count; a++) {
        if (done[a] || m->assigns[a].from == m->assigns[a].home) continue;
        plan->kernels[plan->kernel_count] = copy_kernel(plan, m->assigns[a].from, m->assigns[a].home);
        m->last[m->assigns[a].from] = plan->kernel_count++;
    }
}

/* ---- places ---- */

/* What a kernel of arithmetic alone reads for the last time may give its place to what it writes there. folds: a kernel of
 * row reductions too, which then has to hold its rows, and a product's epilogue. */
static void reuse_inputs(memory_plan *m, bool folds)
{
    fuse_plan *plan = m->plan;
    for (int i = 0; i < plan->kernel_count; i++) {
        fuse_kernel *k = &plan->kernels[i];
        if (!k->kernel || (!k->over && !fuse_is_pointwise(k->kernel, folds))) continue;
        for (int w = 0; w < k->write_count; w++) {
            node to = k->writes[w];
            if (m->wanted[to] || m->root[to] != to || !graph_size_bytes(plan->graph, to)) continue;
            int write = writing_argument(k, to);
            for (int r = 0; write >= 0 && r < k->argument_count; r++) {
                node from = k->arguments[r].base;
                if (m->first[from] < 0 || m->first[from] >= i || m->last[from] != i || m->wanted[from]) continue;
                if (graph_get(plan->graph, m->root[from])->code == GRAPH_LEAF || writing_argument(k, from) != r ||
                    graph_size_bytes(plan->graph, from) != graph_size_bytes(plan->graph, to) ||
                    !fuse_in_place(plan->memory, k, r, write))
                    continue;
                m->root[to] = m->root[from];
                plan->places[to] = (fuse_place){.same_as = from};
                m->last[m->root[to]] = m->last[to];
                break;
            }
        }
    }
}

/* What lives at once at most, with the results. */
static int64_t live_bytes(const memory_plan *m, arena *scratch)
{
    const fuse_plan *plan = m->plan;
    int64_t *change = ARENA_ARRAY(scratch, int64_t, plan->kernel_count + 2), live = 0, peak = 0, results = 0;
    for (int n = 1; n < plan->graph->node_count; n++) {
        int64_t bytes = m->first[n] >= 0 ? graph_size_bytes(plan->graph, (node)n) : 0;
        if (m->wanted[n]) results += bytes;
        if (!bytes || m->wanted[n] || m->root[n] != (node)n) continue;
        change[m->first[n]] += bytes;
        change[m->last[n] + 1] -= bytes;
    }
    for (int i = 0; i <= plan->kernel_count; i++) {
        live += change[i];
        peak = MAXIMUM(peak, live);
    }
    return peak + results;
}

bool fuse_peak_matters(const fuse_plan *plan, int64_t live)
{
    int64_t gaps = (int64_t)plan->kernel_count * ALIGNMENT_BYTES; /* eager_bytes is without them */
    return plan->eager_bytes && live > plan->eager_bytes + gaps && live > PEAK_MATTERS;
}

/* Nothing lies anywhere yet. */
static memory_plan plan_of(fuse_plan *plan, const node *wanted, int wanted_count, arena *scratch)
{
    int nodes = plan->graph->node_count;
    memory_plan m = {.plan = plan};
    m.wanted = ARENA_ARRAY(scratch, bool, nodes);
    m.first = ARENA_ARRAY(scratch, int, nodes);
    m.last = ARENA_ARRAY(scratch, int, nodes);
    m.root = ARENA_ARRAY(scratch, node, nodes);
    for (int i = 0; i < wanted_count; i++) m.wanted[wanted[i]] = true;
    for (int n = 0; n < nodes; n++) m.root[n] = (node)n;
    return m;
}

int64_t fuse_live_bytes(const fuse_plan *plan, const node *wanted, int wanted_count)
{
    arena *scratch = arena_new();
    memory_plan m = plan_of((fuse_plan *)plan, wanted, wanted_count, scratch);
    find_lives(&m);
    int64_t live = live_bytes(&m, scratch);
    arena_free(scratch);
    return live;
}

typedef struct block {
    node n;
    int64_t size, offset;
    int first, last;
} block;

static int larger_first(const void *left, const void *right)
{
    const block *a = left, *b = right;
    if (a->size != b->size) return a->size < b->size ? 1 : -1;
    return (a->n > b->n) - (a->n < b->n);
}

/* The smallest gap between placed blocks that live at the same time, or the end. */
static int64_t best_offset(const block *b, block *const *placed, int count)
{
    int64_t best = -1, best_size = INT64_MAX, end = 0;
    for (int i = 0; i < count; i++) {
        const block *p = placed[i];
        if (p->last < b->first || p->first > b->last) continue;
        int64_t gap = p->offset - end;
        if (gap >= b->size && gap < best_size) {
            best = end;
            best_size = gap;
        }
        end = MAXIMUM(end, p->offset + p->size);
    }
    return best >= 0 ? best : end;
}

static int earlier_first(const void *left, const void *right)
{
    const block *a = left, *b = right;
    return a->first != b->first ? (a->first > b->first) - (a->first < b->first) : larger_first(left, right);
}

/* Into a list that is ordered by offset. */
static void insert_block(block **placed, int count, block *b)
{
    int at = count;
    for (; at && placed[at - 1]->offset > b->offset; at--) placed[at] = placed[at - 1];
    placed[at] = b;
}

#define BLOCKS_BY_SIZE 2048 /* up to here all are looked at for each; more are placed as they come to life */

static void place_workspace(memory_plan *m, arena *scratch)
{
    fuse_plan *plan = m->plan;
    int count = 0, nodes = plan->graph->node_count, placed_count = 0;
    block *blocks = ARENA_ARRAY(scratch, block, nodes);
    for (int n = 1; n < nodes; n++) {
        if (m->first[n] < 0 || m->wanted[n] || m->root[n] != (node)n) continue;
        int64_t size = (graph_size_bytes(plan->graph, (node)n) + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES;
        blocks[count++] =
            (block){.n = (node)n, .size = size * ALIGNMENT_BYTES, .first = m->first[n], .last = m->last[n]};
    }
    bool by_time = count > BLOCKS_BY_SIZE;
    if (count) qsort(blocks, (size_t)count, sizeof(block), by_time ? earlier_first : larger_first);
    block **placed = ARENA_ARRAY(scratch, block *, count + 1);
    for (int i = 0; i < count; i++) {
        block *b = &blocks[i];
        if (by_time) { /* what has ended is in nobody's way any more */
            int alive = 0;
            for (int k = 0; k < placed_count; k++)
                if (placed[k]->last >= b->first) placed[alive++] = placed[k];
            placed_count = alive;
        }
        b->offset = best_offset(b, placed, placed_count);
        insert_block(placed, placed_count++, b);
        plan->places[b->n] = (fuse_place){.offset_bytes = b->offset};
        plan->workspace_bytes = MAXIMUM(plan->workspace_bytes, b->offset + b->size);
    }
}

void fuse_memory(fuse_plan *plan, const node *wanted, int wanted_count, const fuse_assign *assigns, int assign_count)
{
    arena *scratch = arena_new();
    int nodes = plan->graph->node_count;
    memory_plan m = plan_of(plan, wanted, wanted_count, scratch);
    m.assigns = assigns;
    m.assign_count = assign_count;
    bool *done = ARENA_ARRAY(scratch, bool, assign_count + 1);
    plan->places = ARENA_ARRAY(plan->memory, fuse_place, nodes);
    plan->workspace_bytes = 0;
    order_kernels(&m, scratch);
    find_lives(&m);
    for (int a = 0; a < assign_count; a++) done[a] = take_home(&m, &assigns[a]);
    assign_rest(&m, done);
    reuse_inputs(&m, false);
    int64_t live = live_bytes(&m, scratch);
    if (fuse_peak_matters(plan, live)) reuse_inputs(&m, true);
    place_workspace(&m, scratch);
    for (int n = 1; n < nodes; n++)
        if (m.root[n] != (node)n) plan->places[n].root = m.root[n];
    plan->peak_bytes = plan->workspace_bytes;
    for (int n = 1; n < nodes; n++)
        if (m.wanted[n] && m.first[n] >= 0) {
            plan->places[n] = (fuse_place){.offset_bytes = -1};
            plan->peak_bytes += graph_size_bytes(plan->graph, (node)n);
        }
    arena_free(scratch);
}

void fuse_print_memory(const fuse_plan *plan, text *out)
{
    const graph *g = plan->graph;
    arena *scratch = arena_new();
    int *first = ARENA_ARRAY(scratch, int, g->node_count), *last = ARENA_ARRAY(scratch, int, g->node_count);
    for (int i = plan->kernel_count - 1; i >= 0; i--)
        for (int w = 0; w < plan->kernels[i].write_count; w++) first[plan->kernels[i].writes[w]] = i + 1;
    for (int i = 0; i < plan->kernel_count; i++) {
        const fuse_kernel *k = &plan->kernels[i];
        for (int w = 0; w < k->write_count; w++) last[k->writes[w]] = MAXIMUM(last[k->writes[w]], i + 1);
        for (int a = 0; a < k->argument_count; a++) last[k->arguments[a].base] = i + 1;
    }
    text_print(out, "workspace %lld bytes, peak %lld bytes; a kernel for each op would need %lld bytes\n",
               (long long)plan->workspace_bytes, (long long)plan->peak_bytes, (long long)plan->eager_bytes);
    text_print(out, "%-8s %-24s %12s %12s  %s\n", "node", "value", "bytes", "offset", "kernels");
    for (int n = 1; n < g->node_count; n++) {
        if (!first[n]) continue;
        const fuse_place *p = &plan->places[n];
        text value = {0};
        text_print(&value, "%s", dtypes[g->nodes[n].elem].text);
        shape_print(&g->nodes[n].shape, &value);
        text_print(out, "%%%-7d %-24s %12lld ", n, text_get(&value), (long long)graph_size_bytes(g, (node)n));
        text_free(&value);
        if (p->same_as)
            text_print(out, "%12s  %d to %d, in place of %%%u\n", "", first[n] - 1, last[n] - 1, p->same_as);
        else if (p->offset_bytes < 0)
            text_print(out, "%12s  %d to the end, a result\n", "own", first[n] - 1);
        else
            text_print(out, "%12lld  %d to %d\n", (long long)p->offset_bytes, first[n] - 1, last[n] - 1);
    }
    arena_free(scratch);
}
