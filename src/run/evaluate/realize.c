/*
 * Evaluation: tapes on devices, and what qn_eval does. In: handles. Out: their nodes are computed and lie in memory of
 * the device; pending assignments of variables are stored.
 *
 * What is wanted is reduced to targets: a view of a node that must be computed wants that node, and is placed over its
 * memory. Targets and assignments give a key (realize_key.c); the plan of that key is found or made (plan.c); it is run
 * with the addresses of this evaluation's memory. Nothing changes in the tape before the run has been asked for, so an
 * evaluation that finds no memory can be tried again when some has been given back.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "run/evaluate/shares.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PLANS = 256, MOST_STEPS = 2048, PRESERVED_BYTES = 64 };

/* ---- tapes ---- */

qn_status qn_tape_new(qn_context *context, const char *device, qn_tape **tape, qn_error *error)
{
    HEAP_ENTER(error);
    int slot = 0;
    if (!context || !tape) return error_set(error, QN_BAD_CALL, "qn_tape_new: an argument is NULL");
    *tape = NULL;
    QN_TRY(context_slot(context, device, &slot, error));
    *tape = tape_new(context, context->slots[slot].name, &tape_of_devices);
    return QN_OK;
}

void qn_tape_free(qn_tape *tape)
{
    if (!tape || heap_is_stopped()) return;
    capture_abandon(tape);
    if (tape->realizer) realize_close(tape);
    block_pool *blocks = tape->realizer ? tape->realizer->blocks : NULL;
    heap_free(tape->realizer);
    tape_free(tape);
    block_pool_free(blocks);
}

realizer *realize_open(qn_tape *tape)
{
    if (tape->realizer) return tape->realizer;
    realizer *r = heap_new(sizeof(*r));
    qn_error ignored;
    qn_status status = context_slot(tape->context, tape->device, &r->slot, &ignored);
    CHECK(status == QN_OK); /* it was when the tape was made */
    r->blocks = block_pool_new();
    r->table_size = 64;
    r->table = heap_array((size_t)r->table_size, sizeof(plan *));
    tape->realizer = r;
    return r;
}

void realize_close(qn_tape *tape)
{
    realizer *r = tape->realizer;
    const device_slot *s = &tape->context->slots[r->slot];
    qn_error ignored;
    if (s->driver->memory) (void)!s->driver->memory->settle(s->device, &ignored);
    for (int i = 0; i < r->table_size; i++)
        for (plan *p = r->table[i], *next; p; p = next) {
            next = p->next;
            plan_release(p, tape->context, r->slot);
        }
    storage_release(r->workspace);
    realize_again_free(r);
    heap_free(r->table);
    heap_free(r->visit);
    heap_free(r->number);
    heap_free(r->key);
    heap_free(r->order);
    heap_free(r->stack);
    heap_free(r->buffers);
    heap_free(r->seen);
    heap_free(r->targets);
    heap_free(r->roots);
    heap_free(r->root_target);
    heap_free(r->results);
    heap_free(r->bases);
    heap_free(r->ranges);
}

/* ---- where things lie ---- */

/* The node below n that n is a view of, or the same values; 0: it is computed. */
static node looks_at(const graph *g, node n)
{
    const graph_node *at = graph_get(g, n);
    bool moves = graph_ops[at->code].class == GRAPH_CLASS_MOVE && at->code != GRAPH_PAD && at->code != GRAPH_CONCAT;
    return moves || at->code == GRAPH_DETACH ? at->inputs[0] : 0;
}

bool realize_where(const qn_tape *tape, node n, placed *out)
{
    const graph *g = tape->graph;
    int count = 0, at = 0;
    node below = n;
    for (; below && !tape_placed(tape, below); below = looks_at(g, below)) count++;
    if (!below) return false;
    *out = *tape_placed(tape, below);
    if (!count) return true;
    node few[32], *list = count > COUNT(few) ? heap_resize(NULL, sizeof(node) * (size_t)count) : few;
    for (node v = n; v != below; v = looks_at(g, v)) list[at++] = v;
    bool good = true;
    while (good && at > 0) { /* from what lies in memory, upwards */
        placed from = *out;
        int64_t offset;
        node v = list[--at];
        if (graph_get(g, v)->code == GRAPH_DETACH) continue;
        good = tape_view_step(g, v, from.strides, out->strides, &offset);
        out->offset = from.offset + offset;
    }
    if (list != few) heap_free(list);
    return good;
}

static placed row_major(const shape *s)
{
    placed p = {0};
    strides_set_row_major(s->rank, s->extents, p.strides);
    return p;
}

/* The view that n is of the row-major memory of `base`, from which it was reached. */
static bool view_over(const graph *g, node n, node base, placed *out)
{
    if (n == base) {
        *out = row_major(&graph_get(g, n)->shape);
        return true;
    }
    placed from;
    int64_t offset = 0;
    const graph_node *at = graph_get(g, n);
    if (!view_over(g, at->inputs[0], base, &from)) return false;
    if (at->code == GRAPH_DETACH) {
        *out = from;
        return true;
    }
    *out = (placed){0};
    if (!tape_view_step(g, n, from.strides, out->strides, &offset)) return false;
    out->offset = from.offset + offset;
    return true;
}

enum { MOST_VIEWS = 64 }; /* one upon the other; more are computed */

/* The node whose memory holds n: below it while it is only looked at in another way. A slice is computed for itself:
 * the rest would be for nothing. */
static node target_of(const graph *g, node n)
{
    node base = n;
    for (int views = 0;; views++) {
        const graph_node *at = graph_get(g, base);
        placed ignored;
        if (at->code != GRAPH_RESHAPE && at->code != GRAPH_PERMUTE && at->code != GRAPH_EXPAND &&
            at->code != GRAPH_WINDOW && at->code != GRAPH_DETACH)
            return base;
        if (views == MOST_VIEWS) return base;
        node below = at->inputs[0];
        if (!view_over(g, n, below, &ignored)) return base;
        base = below;
    }
}

/* ---- one evaluation ---- */

static void add_target(qn_tape *tape, node n)
{
    realizer *r = tape->realizer;
    int target = -1;
    placed there;
    if (!realize_where(tape, n, &there)) {
        node base = target_of(tape->graph, n);
        for (target = 0; target < r->target_count && r->targets[target] != base; target++) continue;
        if (target == r->target_count) r->targets[r->target_count++] = base;
    }
    r->roots[r->root_count] = n;
    r->root_target[r->root_count++] = target;
}

static bool is_assigned(const qn_tape *tape, uint32_t slot)
{
    for (int i = 0; i < tape->assign_count; i++)
        if (tape->assigns[i].slot == slot) return true;
    return false;
}

static void collect_targets(qn_tape *tape, const uint32_t *slots, int count)
{
    realizer *r = realize_open(tape);
    if (count > r->root_capacity || !r->root_capacity) {
        r->root_capacity = MAXIMUM(2 * count, 16);
        r->targets = heap_resize(r->targets, sizeof(node) * (size_t)r->root_capacity);
        r->roots = heap_resize(r->roots, sizeof(node) * (size_t)r->root_capacity);
        r->root_target = heap_resize(r->root_target, sizeof(int) * (size_t)r->root_capacity);
        r->results = heap_resize(r->results, sizeof(storage *) * (size_t)r->root_capacity);
    }
    r->target_count = r->root_count = 0;
    for (int i = 0; i < count; i++) {
        const tape_slot *s = &tape->slots[slots[i]];
        if (s->variable && is_assigned(tape, slots[i])) continue; /* its home gets the value */
        add_target(tape, s->node);
    }
}

static plan **find_plan(realizer *r, uint64_t hash)
{
    plan **at = &r->table[hash & (uint64_t)(r->table_size - 1)];
    size_t bytes = sizeof(uint32_t) * (size_t)r->key_count;
    while (*at && ((*at)->hash != hash || (*at)->key_words != r->key_count || memcmp((*at)->key, r->key, bytes)))
        at = &(*at)->next;
    return at;
}

/* Forgets the plan that was not used for the longest time. */
static void evict(qn_tape *tape)
{
    realizer *r = tape->realizer;
    plan **oldest = NULL;
    for (int i = 0; i < r->table_size; i++)
        for (plan **at = &r->table[i]; *at; at = &(*at)->next)
            if (!oldest || (*at)->last_used < (*oldest)->last_used) oldest = at;
    plan *p = *oldest;
    *oldest = p->next;
    r->plan_count--;
    r->step_count -= p->step_count;
    realize_again_forget(r, p);
    plan_release(p, tape->context, r->slot);
}

typedef struct copying {
    qn_tape *tape;
    arena *memory;
    node *map;
    graph *piece;
} copying;

static qn_status copy_piece(void *context, qn_error *error)
{
    copying *c = context;
    (void)error;
    c->piece = realize_piece(c->tape, c->memory, &c->map);
    return QN_OK;
}

static qn_status make_plan(qn_tape *tape, const realize_work *work, plan **out, qn_error *error)
{
    realizer *r = tape->realizer;
    static const fuse_mode modes[] = {[QN_FUSED] = FUSE_FUSED, [QN_EAGER] = FUSE_EAGER, [QN_STRICT] = FUSE_STRICT};
    arena *memory = arena_new();
    copying copied = {.tape = tape, .memory = memory};
    qn_status status = heap_try(copy_piece, &copied, error);
    if (status) {
        arena_free(memory);
        return status;
    }
    const node *map = copied.map;
    node *wanted = ARENA_ARRAY(memory, node, work->target_count + 1);
    fuse_assign *assigns = ARENA_ARRAY(memory, fuse_assign, work->assign_count + 1);
    int *misalignment = ARENA_ARRAY(memory, int, r->buffer_count + 1);
    for (int i = 0; i < work->target_count; i++) wanted[i] = map[r->number[work->targets[i]]];
    for (int i = 0; i < work->assign_count; i++)
        assigns[i] = (fuse_assign){.home = map[r->number[tape->slots[work->assigns[i].slot].home_leaf]],
                                   .from = map[r->number[work->assigns[i].from]]};
    for (int i = 0; i < r->buffer_count; i++) misalignment[i] = buffer_misalignment(r->buffers[i]);
    const plan_request request = {.context = tape->context,
                                  .slot = r->slot,
                                  .mode = modes[tape->mode],
                                  .tile = tape->tile,
                                  .library = tape->library,
                                  .check_indices = tape->check_indices,
                                  .graph = copied.piece,
                                  .memory = memory,
                                  .wanted = wanted,
                                  .wanted_count = work->target_count,
                                  .assigns = assigns,
                                  .assign_count = work->assign_count,
                                  .buffer_count = r->buffer_count,
                                  .misalignment_bytes = misalignment};
    int64_t from = record_begin(), start_ns = clock_now_ns();
    status = plan_new(&request, out, error);
    record_end(from, RECORD_OP, "plan", NULL, 0, r->order_count, 0);
    QN_TRY(status);
    plan *p = *out;
    r->making_ns += clock_now_ns() - start_ns;
    r->loading_ns += p->loading_ns;
    r->compiled += p->compiled;
    p->key = heap_new(sizeof(uint32_t) * (size_t)r->key_count);
    memcpy(p->key, r->key, sizeof(uint32_t) * (size_t)r->key_count);
    p->key_words = r->key_count;
    p->number = (int)++r->plans_made;
    p->node_count = r->order_count;
    return QN_OK;
}

static qn_status get_plan(qn_tape *tape, const realize_work *work, plan **out, qn_error *error)
{
    realizer *r = tape->realizer;
    uint64_t hash = hash_bytes(r->key, sizeof(uint32_t) * (size_t)r->key_count).low;
    plan **at = find_plan(r, hash);
    if (!*at) {
        plan *made = NULL;
        QN_TRY(make_plan(tape, work, &made, error));
        CHECK(made);
        made->hash = hash;
        realize_log(tape, made);
        while (r->plan_count && (r->plan_count >= MOST_PLANS || r->step_count + made->step_count > MOST_STEPS))
            evict(tape);
        at = find_plan(r, hash);
        *at = made;
        r->plan_count++;
        r->step_count += made->step_count;
    }
    (*at)->last_used = r->evaluations;
    *out = *at;
    return QN_OK;
}

static qn_status take_memory(qn_tape *tape, const plan *p, qn_error *error)
{
    realizer *r = tape->realizer;
    int bases = 1 + p->buffer_count + p->result_count;
    if (bases > r->base_capacity) {
        r->base_capacity = 2 * bases;
        r->bases = heap_resize(r->bases, sizeof(char *) * (size_t)r->base_capacity);
    }
    if (!tape->capturing) {
        QN_TRY(realize_workspace(tape, p->workspace_bytes, &r->workspace, error));
        r->bases[0] = storage_data(r->workspace);
    }
    for (int i = 0; i < p->buffer_count; i++) r->bases[1 + i] = r->buffers[i]->data;
    for (int i = 0; i < p->result_count; i++) {
        QN_TRY(tape_storage(tape, p->result_bytes[i], &r->results[i], error));
        r->bases[1 + p->buffer_count + i] = storage_data(r->results[i]);
    }
    return QN_OK;
}

static void drop_results(realizer *r, int count)
{
    for (int i = 0; i < count; i++) {
        storage_release(r->results[i]);
        r->results[i] = NULL;
    }
}

/* A copy of a small variable's old value, for tensors that were made from it and are not computed yet (random numbers
 * of the tape's state): the old identity of the memory moves there. */
static qn_status preserve(qn_tape *tape, storage *home, storage **copy, qn_error *error)
{
    const device_slot *s = &tape->context->slots[tape->realizer->slot];
    *copy = NULL;
    if (home->size_bytes > PRESERVED_BYTES) return QN_OK;
    QN_TRY(tape_storage(tape, home->size_bytes, copy, error));
    char *to = storage_data(*copy), *from = storage_data(home);
    if (s->driver->memory) return s->driver->memory->copy(s->device, NULL, to, from, (size_t)home->size_bytes, error);
    memcpy(to, from, (size_t)home->size_bytes);
    return QN_OK;
}

static void store_assigns(qn_tape *tape, storage **copies)
{
    for (int i = 0; tape->assign_count; i++) {
        uint32_t slot = tape->assigns[0].slot;
        storage *old = storage_retain(tape->slots[slot].home);
        tape_assigned(tape, slot);
        if (copies[i]) {
            qn_buffer *buffer = old->buffer;
            old->buffer = qn_buffer_retain(copies[i]->buffer);
            old->overwritten = false;
            qn_buffer_release(buffer);
            storage_release(copies[i]);
        }
        storage_release(old);
    }
}

static void place_roots(qn_tape *tape, const plan *p)
{
    const realizer *r = tape->realizer;
    for (int i = 0; i < r->root_count; i++) {
        if (r->root_target[i] < 0) continue;
        placed where = {0};
        node base = r->targets[r->root_target[i]];
        bool good = view_over(tape->graph, r->roots[i], base, &where);
        CHECK(good);
        where.storage = r->results[p->target_base[r->root_target[i]] - 1 - p->buffer_count];
        tape_place(tape, r->roots[i], &where);
        if (tape->capturing) capture_placed(tape, r->roots[i]);
    }
}

/* "f32[64, 10], f32[]": the first results of a plan. */
static const char *words_of(plan *p)
{
    enum { MOST = 4 };
    if (p->words) return p->words;
    text words = {0};
    for (int i = 0; i < MINIMUM(p->root_count, MOST); i++) {
        const graph_node *x = graph_get(p->graph, p->roots[i]);
        text_print(&words, "%s%s", i ? ", " : "", dtypes[x->elem].text);
        shape_print(&x->shape, &words);
    }
    if (p->root_count > MOST) text_print(&words, " and %d more", p->root_count - MOST);
    p->words = record_name(text_get(&words));
    text_free(&words);
    return p->words;
}

static qn_status evaluate(qn_tape *tape, const uint32_t *slots, int count, plan **made, bool *stored, qn_error *error);

/* Indices that have to be known before what they point into is read. Pending assignments wait: what is computed here reads
 * what variables held before them. *any: what was collected for the evaluation is not there any more. */
static qn_status compute_indices(qn_tape *tape, bool *any, qn_error *error)
{
    uint32_t *slots;
    int count = realize_computed_indices(tape, &slots), pending = tape->assign_count;
    plan *made = NULL;
    bool stored = false;
    *any = count > 0;
    if (!count) return QN_OK;
    tape->assign_count = 0;
    qn_status status = evaluate(tape, slots, count, &made, &stored, error);
    tape->assign_count = pending;
    for (int i = 0; i < count; i++)
        tape_forget((qn_tensor){tape, slots[i], tape->slots[slots[i]].stamp}); /* the values stay with their nodes */
    heap_free(slots);
    return status;
}

/* *stored: assignments were carried out, or failed in the middle, and are not pending any more. */
static qn_status evaluate(qn_tape *tape, const uint32_t *slots, int count, plan **made, bool *stored, qn_error *error)
{
    realizer *r = tape->realizer;
    realize_work work;
    plan *p = NULL;
    for (bool again = true; again;) {
        collect_targets(tape, slots, count);
        work = (realize_work){.targets = r->targets,
                              .target_count = r->target_count,
                              .assigns = tape->assigns,
                              .assign_count = tape->assign_count};
        if (!work.target_count && !work.assign_count) return QN_OK;
        if ((p = realize_again_find(tape, &work))) break;
        QN_TRY(realize_key(tape, &work, error));
        QN_TRY(compute_indices(tape, &again, error));
    }
    if (!p) {
        QN_TRY(realize_check_indices(tape, error));
        QN_TRY(get_plan(tape, &work, &p, error));
        realize_again_keep(tape, &work, p);
    }
    *made = p;
    memset(r->results, 0, sizeof(storage *) * (size_t)p->result_count);
    storage *few[8] = {0}, **copies = few;
    if (work.assign_count > COUNT(few)) copies = heap_array((size_t)work.assign_count, sizeof(storage *));
    qn_status status = take_memory(tape, p, error);
    for (int i = 0; i < work.assign_count && status == QN_OK; i++)
        status = preserve(tape, tape->slots[work.assigns[i].slot].home, &copies[i], error);
    if (status != QN_OK) {
        for (int i = 0; i < work.assign_count; i++) storage_release(copies[i]);
    } else {
        status = tape->capturing ? capture_add(tape, p, error)
                                 : plan_run(p, tape->context, r->slot, NULL, r->bases, shares_ranges(tape), error);
        if (status == QN_OK) place_roots(tape, p);
        *stored = work.assign_count > 0;
        store_assigns(tape, copies); /* after a failed run too: a step is not done twice */
    }
    if (copies != few) heap_free(copies);
    drop_results(r, p->result_count);
    return status;
}

qn_status realize_plan(qn_tape *tape, plan **out, qn_error *error)
{
    realizer *r = realize_open(tape);
    const realize_work work = {.assigns = tape->assigns, .assign_count = tape->assign_count};
    r->evaluations++;
    collect_targets(tape, NULL, 0);
    QN_TRY(realize_key(tape, &work, error));
    QN_TRY(get_plan(tape, &work, out, error));
    storage **none = heap_array((size_t)work.assign_count + 1, sizeof(storage *));
    store_assigns(tape, none);
    heap_free(none);
    return QN_OK;
}

/* An evaluation in the record. */
static qn_status evaluate_seen(qn_tape *tape, const uint32_t *slots, int count, bool *stored, qn_error *error)
{
    plan *p = NULL;
    int64_t from = record_begin();
    qn_status status = evaluate(tape, slots, count, &p, stored, error);
    if (from)
        record_end(from, RECORD_OP, "eval", p ? words_of(p) : NULL, 0, p ? p->node_count : 0, tape->realizer->slot);
    return status;
}

qn_status realize_slots(qn_tape *tape, const uint32_t *slots, int count, qn_error *error)
{
    realizer *r = realize_open(tape);
    const device_slot *s = &tape->context->slots[r->slot];
    r->evaluations++;
    bool stored = false;
    qn_status status = evaluate_seen(tape, slots, count, &stored, error);
    if (status != QN_OK) capture_failed(tape, status);
    /* Once more with what can be freed; where assignments went with the first, there is nothing left to do again. */
    if (status != QN_NO_MEMORY || tape->capturing || stored) return status;
    storage_release(r->workspace);
    r->workspace = NULL;
    tape_collect(tape);
    if (s->driver->memory) s->driver->memory->trim(s->device);
    (void)heap_take_short(); /* there may be enough now */
    return evaluate_seen(tape, slots, count, &stored, error);
}

qn_status qn_eval(qn_tape *tape, const qn_tensor *tensors, int count, qn_error *error)
{
    HEAP_ENTER(error);
    if (!tape_enter(tape, "eval")) return error_set(error, QN_BAD_CALL, "qn_eval: the tape is NULL");
    if (count < 0 || (count && !tensors)) return error_set(error, QN_BAD_CALL, "qn_eval: %d tensors at NULL", count);
    uint32_t few[16], *slots = count > COUNT(few) ? heap_array((size_t)count, sizeof(*slots)) : few;
    for (int i = 0; i < count; i++) {
        (void)tape_node(tape, "eval", tensors[i]); /* records what is wrong with a handle */
        slots[i] = tensors[i].slot;
    }
    qn_status status = qn_tape_error(tape, error);
    if (status == QN_OK) status = realize_slots(tape, slots, count, error);
    if (slots != few) heap_free(slots);
    return status;
}
