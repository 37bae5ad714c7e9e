/*
 * From a canonical piece of a graph to a plan. In: the graph, what is wanted, the assignments. Out: steps with compiled
 * programs. The graph goes through its passes and through fusion; each kernel that fusion wrote finds or becomes an
 * entry of the kernel store, is bound to views whose addresses are open, and all of them are compiled at once, by as
 * many threads as there are cores.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_simplify.h"
#include "run/compile/facts.h"
#include "run/evaluate/plan.h"
#include "run/evaluate/shares.h"

#include <stdlib.h>
#include <string.h>

/* A result has memory of its own: what the passes made a view of a leaf is copied. */
static bool is_view_of_leaf(const graph *g, node n)
{
    const graph_node *at = graph_get(g, n);
    while (graph_ops[at->code].class == GRAPH_CLASS_MOVE && at->code != GRAPH_PAD && at->code != GRAPH_CONCAT)
        at = graph_get(g, at->inputs[0]);
    return at->code == GRAPH_LEAF;
}

static void describe_leaves(plan_build *b)
{
    const graph *g = b->plan->graph;
    b->leaves = ARENA_ARRAY(b->plan->memory, fuse_leaf, g->node_count);
    for (int n = 1; n < g->node_count; n++) {
        const graph_node *at = graph_get(g, (node)n);
        if (at->code != GRAPH_LEAF) continue;
        b->leaves[n].given = true;
        b->leaves[n].offset = at->attr.offset;
        memcpy(b->leaves[n].strides, at->attr.strides, sizeof(b->leaves[n].strides));
    }
}

/* The graph's passes, on what is wanted and assigned. */
static qn_status simplify(void *context, qn_error *error)
{
    plan_build *b = context;
    const plan_request *q = b->request;
    graph *g = q->graph;
    node *roots = ARENA_ARRAY(b->plan->memory, node, q->wanted_count + q->assign_count + 1);
    const graph_rules rules = {.relaxed = q->mode == FUSE_FUSED};
    for (int i = 0; i < q->wanted_count; i++) roots[i] = q->wanted[i];
    for (int i = 0; i < q->assign_count; i++) roots[q->wanted_count + i] = q->assigns[i].from;
    graph_simplify(g, roots, q->wanted_count + q->assign_count, &rules);
    for (int i = 0; i < q->wanted_count; i++) b->wanted[i] = roots[i];
    for (int i = 0; i < q->assign_count; i++)
        b->assigns[i] = (fuse_assign){.home = q->assigns[i].home, .from = roots[q->wanted_count + i]};
    for (int i = 0; i < q->wanted_count; i++)
        if (is_view_of_leaf(g, b->wanted[i])) b->wanted[i] = graph_same(g, GRAPH_KEEP, b->wanted[i], 0);
    for (int i = 0; i < q->assign_count; i++)
        if (is_view_of_leaf(g, b->assigns[i].from))
            b->assigns[i].from = graph_same(g, GRAPH_KEEP, b->assigns[i].from, i + 1);
    if (g->status != QN_OK) return error_set(error, g->status, "%s", g->error.message);
    return QN_OK;
}

/* Every wanted node once. */
static void number_results(plan_build *b)
{
    plan *p = b->plan;
    p->target_base = ARENA_ARRAY(p->memory, int, b->request->wanted_count + 1);
    p->result_bytes = ARENA_ARRAY(p->memory, int64_t, b->request->wanted_count + 1);
    b->result_limit = p->graph->node_count;
    b->result_of = ARENA_ARRAY(p->memory, int, b->result_limit);
    b->unique = ARENA_ARRAY(p->memory, node, b->request->wanted_count + 1);
    for (int i = 0; i < b->request->wanted_count; i++) {
        node n = b->wanted[i];
        if (!b->result_of[n]) {
            p->result_bytes[p->result_count] = graph_size_bytes(p->graph, n);
            b->unique[p->result_count] = n;
            b->result_of[n] = 1 + p->buffer_count + p->result_count++;
        }
        p->target_base[i] = b->result_of[n];
    }
}

enum { MOST_CALLS = 512 }; /* that wait for the compiler at once: each is some ten kilobytes */

static qn_status compile(plan_build *b, qn_error *error)
{
    int64_t from = record_begin();
    qn_status status = steps_compile(b, error);
    record_end(from, RECORD_OP, "compile kernels", NULL, 0, b->plan->kernel_count, 0);
    return status;
}

typedef struct fusion {
    plan_build *build;
    const fuse_options *options;
} fusion;

static qn_status fuse(void *context, qn_error *error)
{
    const fusion *f = context;
    const plan_build *b = f->build;
    plan *p = b->plan;
    return fuse_plan_make(p->graph, b->leaves, b->unique, p->result_count, b->assigns, b->request->assign_count,
                          f->options, p->memory, &p->fused, error);
}

static qn_status build(plan_build *b, qn_error *error)
{
    const plan_request *q = b->request;
    plan *p = b->plan;
    const device_about *about = slot_about(q->context, q->slot);
    const char *device = q->context->slots[q->slot].driver->name;
    b->wanted = ARENA_ARRAY(p->memory, node, q->wanted_count + 1);
    b->assigns = ARENA_ARRAY(p->memory, fuse_assign, q->assign_count + 1);
    int64_t from = record_begin();
    qn_status status = heap_try(simplify, b, error);
    record_end(from, RECORD_OP, "simplify", NULL, 0, p->graph->node_count, 0);
    QN_TRY(status);
    number_results(b);
    describe_leaves(b);
    p->roots = ARENA_ARRAY(p->memory, node, p->result_count + q->assign_count + 1);
    for (int i = 0; i < p->result_count; i++) p->roots[p->root_count++] = b->unique[i];
    for (int i = 0; i < q->assign_count; i++) p->roots[p->root_count++] = b->assigns[i].from;
    const char *scores = getenv("QUERN_SCORES_BYTES");
    const fuse_options options = {.mode = q->mode,
                                  .gpu = target_find(device)->threads,
                                  .cuda_text = target_runs_cuda(device),
                                  .c_text = target_find(device)->language == TARGET_C,
                                  .check_indices = q->check_indices,
                                  .units = about->units,
                                  .arch = about->arch,
                                  .memory_bytes = (int64_t)about->memory_bytes,
                                  .scores_bytes = scores ? strtoll(scores, NULL, 10) : 0,
                                  .tile = q->tile,
                                  .library = context_library(q->context, q->slot, q->library)};
    from = record_begin();
    status = heap_try(fuse, &(fusion){b, &options}, error);
    record_end(from, RECORD_OP, "fuse", NULL, 0, p->graph->node_count, 0);
    QN_TRY(status);
    p->workspace_bytes = p->values_bytes = p->fused->workspace_bytes;
    int steps = p->fused->kernel_count;
    for (int i = 0; i < p->fused->kernel_count; i++)
        if (!p->fused->kernels[i].kernel) steps += p->fused->kernels[i].argument_count; /* copies of what is inout */
    p->steps = ARENA_ARRAY(p->memory, plan_step, steps + 1);
    for (int i = 0; i < p->fused->kernel_count; i++) {
        QN_TRY(heap_status(error));
        QN_TRY(step_make(b, &p->fused->kernels[i], error));
        if (b->call_count < MOST_CALLS) continue;
        QN_TRY(compile(b, error));
        steps_compiled(b);
    }
    return compile(b, error);
}

qn_status plan_new(const plan_request *request, plan **out, qn_error *error)
{
    plan *p = heap_new(sizeof(*p));
    p->memory = request->memory;
    p->graph = request->graph;
    p->buffer_count = request->buffer_count;
    p->references = 1;
    plan_build b = {.request = request, .plan = p};
    qn_status status = build(&b, error);
    steps_compiled(&b);
    if (status != QN_OK) {
        plan_release(p, request->context, request->slot);
        return status;
    }
    *out = p;
    return QN_OK;
}

plan *plan_retain(plan *p)
{
    p->references++;
    return p;
}

void plan_release(plan *p, qn_context *context, int slot)
{
    if (!p || --p->references) return;
    const driver *d = context->slots[slot].driver;
    plan_again_free(p->again, d);
    for (int i = 0; i < p->step_count; i++) {
        if (p->steps[i].ready) d->discard(p->steps[i].ready);
        qn_call_free(p->steps[i].call);
    }
    arena_free(p->memory);
    heap_free(p->key);
    heap_free(p);
}

/* ---- running ---- */

void step_address(plan_step *s, char *const *bases)
{
    for (int a = 0; a < s->array_count; a++)
        s->views[s->arrays[a].param].data = bases[s->arrays[a].at.base] + s->arrays[a].at.offset_bytes;
    if (s->instance) return;
    s->copy_to = bases[s->to.base] + s->to.offset_bytes;
    s->copy_from = bases[s->from.base] + s->from.offset_bytes;
}

qn_status step_prepare(plan_step *s, qn_context *context, int slot, qn_error *error)
{
    const driver *d = context->slots[slot].driver;
    if (!s->instance || !d->prepare) return QN_OK;
    if (s->is_ready) return d->move(s->ready, s->views, error); /* the rest of a step never changes */
    QN_TRY(d->prepare(s->variant->program, s->views, &s->launch, &s->ready, error));
    s->is_ready = true;
    return QN_OK;
}

const record_facts *step_facts(plan_step *s, qn_context *context, int slot)
{
    if (s->facts || !s->instance) return s->facts;
    const kernel_entry *entry = s->instance->owner;
    graph_site site = {.file = s->instance->kernel->file, .line = entry->item ? entry->item->at.line : 0};
    if (s->fused && s->fused->write_count) site = graph_get(s->graph, s->fused->writes[0])->site;
    arena *memory = s->paths ? arena_new() : NULL;
    const record_part *owners = NULL;
    int owner_count = s->paths ? shares_owners(s, memory, &owners) : 0;
    s->facts = launch_facts_keep(&(launch_seen){.context = context,
                                                .slot = slot,
                                                .name = s->name,
                                                .file = site.file,
                                                .line = site.line,
                                                .kernel = s->instance->kernel,
                                                .views = s->views,
                                                .plan = &s->launch,
                                                .variant = s->variant,
                                                .ready = s->is_ready ? s->ready : NULL,
                                                .graph = s->graph,
                                                .fused = s->fused,
                                                .owners = owners,
                                                .owner_count = owner_count});
    if (memory) {
        arena_free(memory);
        s->shares = NULL;
    }
    return s->facts;
}

static qn_status run(plan_step *s, qn_context *context, int slot, device_stream *stream, qn_error *error)
{
    const device_slot *at = &context->slots[slot];
    if (!s->instance) {
        if (at->driver->memory)
            return at->driver->memory->copy(at->device, stream, s->copy_to, s->copy_from, (size_t)s->size_bytes, error);
        memmove(s->copy_to, s->copy_from, (size_t)s->size_bytes);
        return QN_OK;
    }
    const tile_kernel *k = s->instance->kernel;
    if (s->has_initials) QN_TRY(views_fill_initials(at, k, s->views, stream, error));
    if (at->driver->submit) return at->driver->submit(s->ready, stream, error);
    /* What a tensor's arithmetic gives is the user's to judge; a module's kernel is checked as its author meant. */
    return program_launch(context, slot, k, s->variant->program, s->views, &s->launch, !s->call, error);
}

qn_status step_run(plan_step *s, qn_context *context, int slot, device_stream *stream, uint64_t *seen, qn_error *error)
{
    const driver *d = context->slots[slot].driver;
    bool copies = !s->instance;
    int64_t from = copies && d->memory ? 0 : record_begin(); /* a device records its own copies */
    uint64_t identity = from || s->instance ? record_enter(s->name) : 0;
    qn_status status = run(s, context, slot, stream, error);
    record_leave(identity);
    if (seen) *seen = from && !copies ? identity : 0;
    if (!from) return status;
    const record_facts *f = step_facts(s, context, slot);
    if (copies)
        record_end(from, RECORD_COPY, "copy of an array", NULL, 0, s->size_bytes, 2);
    else
        record_end(from, d->submit ? RECORD_LAUNCH : RECORD_KERNEL, f ? f->kernel : s->name, f ? f->shapes : NULL,
                   identity, (intptr_t)f, slot);
    return status;
}

typedef struct step_of {
    plan_step *step;
    qn_context *context;
    int slot;
} step_of;

static qn_status run_again(void *user, qn_error *error)
{
    const step_of *o = user;
    const driver *d = o->context->slots[o->slot].driver;
    QN_TRY(run(o->step, o->context, o->slot, NULL, error));
    return d->finish && o->step->ready ? d->finish(o->step->ready, error) : QN_OK;
}

void step_count(plan_step *s, qn_context *context, int slot)
{
    if (!context->counter || !s->instance) return;
    step_of user = {s, context, slot};
    context->counter->count(context->counter, slot, step_facts(s, context, slot), s->instance->kernel, s->views,
                            run_again, &user);
}

qn_status plan_run(plan *p, qn_context *context, int slot, device_stream *stream, char *const *bases,
                   const int64_t *ranges, qn_error *error)
{
    if (plan_again_run(p, context, slot, stream, bases)) return QN_OK;
    for (int i = 0; i < p->step_count; i++) {
        step_address(&p->steps[i], bases);
        int64_t start = context->log & LOG_LAUNCH ? clock_now_ns() : 0;
        QN_TRY(step_prepare(&p->steps[i], context, slot, error));
        uint64_t seen;
        QN_TRY(step_run(&p->steps[i], context, slot, stream, &seen, error));
        if (!stream) step_count(&p->steps[i], context, slot);
        if (seen && ranges) shares_record(&p->steps[i], p->memory, seen, ranges);
        if (context->log & LOG_LAUNCH)
            context_log(context, LOG_LAUNCH, "launch: %s on %s, %lld x %lld x %lld programs, %.3f us", p->steps[i].name,
                        context->slots[slot].name, (long long)p->steps[i].launch.programs[0][0],
                        (long long)p->steps[i].launch.programs[0][1], (long long)p->steps[i].launch.programs[0][2],
                        (double)(clock_now_ns() - start) * 1e-3);
    }
    return QN_OK;
}
