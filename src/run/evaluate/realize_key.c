/*
 * The canonical form of what is to be evaluated. In: nodes of a tape. Out: words that are equal for equal work: the
 * nodes that are reached in the order in which they are reached, with numbers for inputs, buffers as ordinals, and
 * nothing that changes from one step to the next (addresses, node numbers, lines of the source). What is computed
 * already counts as a leaf. The words are the key of the plan cache; on a miss the same walk gives the piece as a graph
 * of its own.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_build.h"
#include "run/evaluate/realize.h"

#include <stdlib.h>
#include <string.h>

#define GROW(items, count, capacity)                                           \
    do {                                                                       \
        if ((count) < (capacity)) break;                                       \
        (capacity) = MAXIMUM(2 * (capacity), 256);                             \
        (items) = heap_resize((items), sizeof(*(items)) * (size_t)(capacity)); \
    } while (0)

static inline void put(realizer *r, uint32_t word)
{
    GROW(r->key, r->key_count, r->key_capacity);
    r->key[r->key_count++] = word;
}

static inline void put_wide(realizer *r, int64_t number)
{
    put(r, (uint32_t)number);
    put(r, (uint32_t)((uint64_t)number >> 32));
}

static void put_extents(realizer *r, const shape *s)
{
    put(r, (uint32_t)s->rank);
    for (int k = 0; k < s->rank; k++) put_wide(r, s->extents[k]);
}

/* One of another epoch is a free place. */
typedef struct seen_buffer {
    const qn_buffer *buffer;
    uint32_t epoch;
    int number;
} seen_buffer;

static seen_buffer *seen_place(const realizer *r, const qn_buffer *b)
{
    unsigned mask = (unsigned)r->seen_capacity - 1;
    unsigned at = (unsigned)((uint64_t)(uintptr_t)b * 0x9e3779b97f4a7c15u >> 32) & mask;
    while (r->seen[at].epoch == r->epoch && r->seen[at].buffer != b) at = (at + 1) & mask;
    return &r->seen[at];
}

static void make_room_for_seen(realizer *r)
{
    if (2 * (r->buffer_count + 1) <= r->seen_capacity) return;
    heap_free(r->seen);
    r->seen_capacity = MAXIMUM(2 * r->seen_capacity, 64);
    r->seen = heap_array((size_t)r->seen_capacity, sizeof(*r->seen));
    for (int i = 0; i < r->buffer_count; i++)
        *seen_place(r, r->buffers[i]) = (seen_buffer){.buffer = r->buffers[i], .epoch = r->epoch, .number = i + 1};
}

int realize_buffer_number(realizer *r, qn_buffer *b)
{
    make_room_for_seen(r);
    seen_buffer *place = seen_place(r, b);
    if (place->epoch == r->epoch) return place->number;
    GROW(r->buffers, r->buffer_count, r->buffer_capacity);
    r->buffers[r->buffer_count++] = b;
    *place = (seen_buffer){.buffer = b, .epoch = r->epoch, .number = r->buffer_count};
    return r->buffer_count;
}

int buffer_misalignment(const qn_buffer *b)
{
    int bytes = (int)((uintptr_t)b->data % 64);
    /* Half an element: nothing that lies whole elements further is aligned, wherever the buffer will be. */
    return bytes && b->anywhere && b->element_bytes > 1 ? b->element_bytes / 2 : bytes;
}

static void put_leaf(realizer *r, const graph_node *n, const placed *p)
{
    put(r, (uint32_t)GRAPH_LEAF | (uint32_t)n->elem << 8);
    const qn_buffer *b = p->storage->buffer;
    put(r, (uint32_t)realize_buffer_number(r, p->storage->buffer) << 8 | (uint32_t)buffer_misalignment(b));
    put_wide(r, p->offset);
    put_extents(r, &n->shape);
    for (int k = 0; k < n->shape.rank; k++) put_wide(r, p->strides[k]);
}

static void put_double(realizer *r, double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    put_wide(r, bits);
}

static void put_node(realizer *r, const graph_node *n)
{
    const graph_attr *a = &n->attr;
    put(r, (uint32_t)n->code | (uint32_t)n->elem << 8 | (uint32_t)a->map << 16 | (uint32_t)a->fold << 28);
    put(r, (uint32_t)n->input_count);
    put(r, (uint32_t)a->axis << 8 | (uint32_t)a->axis_set << 16 | (uint32_t)a->index << 24);
    for (int i = 0; i < n->input_count; i++) put(r, (uint32_t)r->number[n->inputs[i]]);
    if (n->code == GRAPH_AGAIN || n->code == GRAPH_RESULT) put(r, (uint32_t)a->index);
    if (graph_ops[n->code].class == GRAPH_CLASS_MAP) return;
    put_extents(r, &n->shape);
    switch (n->code) {
    case GRAPH_PERMUTE:
        for (int k = 0; k < n->shape.rank; k++) put(r, (uint32_t)a->axes[k]);
        break;
    case GRAPH_PAD:
    case GRAPH_SLICE:
        for (int k = 0; k < n->shape.rank; k++) {
            put_wide(r, a->start[k]);
            put_wide(r, a->step[k]);
        }
        put_wide(r, a->number.i);
        put_double(r, a->number.f);
        break;
    case GRAPH_FULL:
        put_wide(r, a->number.i);
        put_double(r, a->number.f);
        break;
    case GRAPH_WINDOW:
        put_wide(r, a->size);
        put_wide(r, a->stride);
        put_wide(r, a->dilation);
        break;
    case GRAPH_KERNEL: put_wide(r, (int64_t)a->kernel->identity); break;
    default: break;
    }
}

static void make_room(realizer *r, int node_count)
{
    if (node_count <= r->visit_capacity) return;
    int capacity = MAXIMUM(2 * r->visit_capacity, MAXIMUM(node_count, 1024));
    r->visit = heap_resize(r->visit, sizeof(*r->visit) * (size_t)capacity);
    r->number = heap_resize(r->number, sizeof(*r->number) * (size_t)capacity);
    memset(r->visit + r->visit_capacity, 0, sizeof(*r->visit) * (size_t)(capacity - r->visit_capacity));
    r->visit_capacity = capacity;
}

/* What a node was made of is not there any more. */
static qn_status overwritten(const qn_tape *tape, node root, qn_error *error)
{
    const graph_node *n = graph_get(tape->graph, root);
    char site[300] = "";
    if (n->site.file) snprintf(site, sizeof(site), " (%.250s:%d)", n->site.file, n->site.line);
    return error_set(error, QN_BAD_CALL,
                     "%s%s: it was not computed before memory that it depends on was written (qn_assign or "
                     "qn_tensor_write); evaluate it together with the step, or before the write",
                     n->label ? n->label : graph_ops[n->code].text, site);
}

/* Numbers a node after its inputs. */
static qn_status visit(qn_tape *tape, node root, qn_error *error)
{
    realizer *r = tape->realizer;
    const graph *g = tape->graph;
    int top = 0;
    GROW(r->stack, top, r->stack_capacity);
    r->stack[top++] = root;
    while (top) {
        node n = r->stack[top - 1];
        if (r->visit[n] == r->epoch) {
            top--;
            continue;
        }
        const graph_node *at = graph_get(g, n);
        const placed *p = tape_placed(tape, n);
        bool ready = true;
        for (int i = at->input_count - 1; i >= 0 && !p; i--) {
            if (r->visit[at->inputs[i]] == r->epoch) continue;
            GROW(r->stack, top, r->stack_capacity);
            r->stack[top++] = at->inputs[i];
            ready = false;
        }
        if (!ready) continue;
        top--;
        GROW(r->order, r->order_count, r->order_capacity);
        r->visit[n] = r->epoch;
        r->number[n] = r->order_count;
        r->order[r->order_count++] = n;
        if (p && p->storage->overwritten) return overwritten(tape, root, error);
        if (p)
            put_leaf(r, at, p);
        else
            put_node(r, at);
    }
    return QN_OK;
}

void realize_begin(qn_tape *tape)
{
    realizer *r = realize_open(tape);
    make_room(r, tape->graph->node_count);
    if (!++r->epoch) { /* after 2^32 evaluations */
        memset(r->visit, 0, sizeof(*r->visit) * (size_t)r->visit_capacity);
        if (r->seen) memset(r->seen, 0, sizeof(*r->seen) * (size_t)r->seen_capacity);
        r->epoch = 1;
    }
    r->key_count = r->order_count = r->buffer_count = 0;
}

qn_status realize_key(qn_tape *tape, const realize_work *work, qn_error *error)
{
    realize_begin(tape);
    realizer *r = tape->realizer;
    put(r, (uint32_t)tape->mode | (uint32_t)tape->check_indices << 8 | (uint32_t)tape->tile << 16 | (uint32_t)tape->library << 24);
    put(r, (uint32_t)work->target_count);
    put(r, (uint32_t)work->assign_count);
    for (int i = 0; i < work->target_count; i++) QN_TRY(visit(tape, work->targets[i], error));
    for (int i = 0; i < work->assign_count; i++) {
        QN_TRY(visit(tape, tape->slots[work->assigns[i].slot].home_leaf, error));
        QN_TRY(visit(tape, work->assigns[i].from, error));
    }
    for (int i = 0; i < work->target_count; i++) put(r, (uint32_t)r->number[work->targets[i]]);
    for (int i = 0; i < work->assign_count; i++) {
        put(r, (uint32_t)r->number[tape->slots[work->assigns[i].slot].home_leaf]);
        put(r, (uint32_t)r->number[work->assigns[i].from]);
    }
    return QN_OK;
}

graph *realize_piece(qn_tape *tape, arena *memory, node **map)
{
    realizer *r = tape->realizer;
    graph *piece = graph_new(memory);
    node *made = ARENA_ARRAY(memory, node, r->order_count + 1);
    node *inputs = NULL;
    int capacity = 0;
    for (int i = 0; i < r->order_count; i++) {
        const graph_node *from = graph_get(tape->graph, r->order[i]);
        const placed *p = tape_placed(tape, r->order[i]);
        piece->site = from->site;
        piece->site.origin = (unsigned)i + 1;
        piece->label = from->label;
        if (p) {
            made[i] = graph_leaf(piece, from->elem, &from->shape, p->strides, p->offset,
                                 (void *)(uintptr_t)realize_buffer_number(r, p->storage->buffer));
            continue;
        }
        if (from->input_count > capacity) {
            capacity = 2 * from->input_count;
            inputs = ARENA_ARRAY(memory, node, capacity);
        }
        for (int k = 0; k < from->input_count; k++) inputs[k] = made[r->number[from->inputs[k]]];
        graph_node copy = *from;
        copy.inputs = inputs;
        made[i] = graph_intern(piece, &copy);
    }
    piece->site = (graph_site){0};
    piece->label = NULL;
    *map = made;
    return piece;
}
