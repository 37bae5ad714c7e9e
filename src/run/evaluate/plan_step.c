/*
 * Steps of a plan. In: a kernel of fusion with the views it is called with. Out: a launch whose extents, scalars and
 * program counts are known and whose addresses are open; its program compiled. Views are bound to addresses that are as
 * well aligned as the real ones will be, far apart and never followed, so that the facts of the launch are those of
 * every run of the plan.
 * SPDX-License-Identifier: MIT
 */
#include "run/evaluate/plan.h"

#include <stdlib.h>
#include <string.h>

static bool is_array(const tile_param *p)
{
    return p->kind < PARAM_SCALAR;
}

void *plan_stand_in(const plan_build *b, plan_place place)
{
    uintptr_t address = (uintptr_t)(place.base + 1) << 42;
    bool is_buffer = place.base >= 1 && place.base <= b->plan->buffer_count;
    if (is_buffer) address += (uintptr_t)b->request->misalignment_bytes[place.base - 1];
    return (void *)(address + (uintptr_t)place.offset_bytes);
}

plan_place plan_place_of(const plan_build *b, node n)
{
    const fuse_plan *f = b->plan->fused;
    const graph_node *at = graph_get(b->plan->graph, n);
    int64_t size = dtypes[at->elem].size_bytes;
    if (at->code == GRAPH_LEAF) return (plan_place){.base = (int)(uintptr_t)at->attr.storage};
    if (f->places[n].root) n = f->places[n].root;
    const graph_node *home = graph_get(b->plan->graph, n);
    if (home->code == GRAPH_LEAF)
        return (plan_place){.base = (int)(uintptr_t)home->attr.storage, .offset_bytes = home->attr.offset * size};
    if (f->places[n].offset_bytes >= 0) return (plan_place){.offset_bytes = f->places[n].offset_bytes, .value = n};
    CHECK((int)n < b->result_limit && b->result_of[n]);
    return (plan_place){.base = b->result_of[n]};
}

static array_view view_of(const plan_build *b, const tile_param *p, const fuse_argument *a, plan_place *at)
{
    array_view v = {.elem = p->elem, .rank = p->rank};
    CHECK(a->rank == p->rank);
    memcpy(v.extents, a->extents, sizeof(v.extents));
    memcpy(v.strides, a->strides, sizeof(v.strides));
    *at = plan_place_of(b, a->base);
    at->offset_bytes += a->offset * dtypes[p->elem].size_bytes;
    v.data = plan_stand_in(b, *at);
    return v;
}

void step_place_scratch(plan_build *b, plan_step *s, const tile_kernel *k, int64_t end)
{
    end = (end + 255) / 256 * 256;
    for (int i = 0; i < k->param_count; i++) {
        array_view *v = &s->views[i];
        if (k->params[i].kind != PARAM_SCRATCH) continue;
        memcpy(v->extents, s->launch.extents[i], sizeof(v->extents));
        strides_set_row_major(v->rank, v->extents, v->strides);
        step_array *a = &s->arrays[s->array_count++];
        *a = (step_array){.param = i, .at.offset_bytes = end};
        v->data = plan_stand_in(b, a->at);
        end += (MAXIMUM(view_count(v), 1) * dtypes[v->elem].size_bytes + 255) / 256 * 256;
    }
    b->plan->workspace_bytes = MAXIMUM(b->plan->workspace_bytes, end);
}

plan_step *step_add(plan_build *b, const char *name, qn_call *call)
{
    plan_step *s = &b->plan->steps[b->plan->step_count++];
    s->name = name;
    ARENA_PUSH(b->plan->memory, b->calls, b->call_count, b->call_capacity, call);
    return s;
}

void step_use(plan_build *b, plan_step *s, const tile_kernel *k)
{
    arena *memory = b->plan->memory;
    s->views = ARENA_ARRAY(memory, array_view, k->param_count + 1);
    s->arrays = ARENA_ARRAY(memory, step_array, k->param_count + 1);
    s->launch = launch_plan_new(memory, k->param_count);
    for (int i = 0; i < k->param_count; i++)
        s->has_initials |= k->params[i].has_initial && k->params[i].kind == PARAM_OUT;
    b->plan->kernel_count++;
}

/* A kernel that fusion wrote. */
static qn_status make_launch(plan_build *b, const fuse_kernel *from, qn_error *error)
{
    qn_context *context = b->request->context;
    kernel_entry *entry = store_kernel(context, from->kernel);
    bindings none = {0};
    qn_call *call = heap_new(sizeof(*call));
    plan_step *s = step_add(b, from->name, call);
    s->graph = b->plan->graph;
    s->fused = from;
    QN_TRY(entry_instance(entry, &none, &s->instance, error));
    const tile_kernel *k = s->instance->kernel;
    CHECK(k->param_count <= MAX_PARAMS);
    step_use(b, s, k);
    bool given[MAX_PARAMS] = {0};
    number numbers[MAX_PARAMS];
    memset(numbers, 0, sizeof(numbers));
    int argument = 0, scalar = 0;
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        if (p->kind == PARAM_SCRATCH) {
            s->views[i] = (array_view){.elem = p->elem, .rank = p->rank};
        } else if (is_array(p)) {
            step_array *a = &s->arrays[s->array_count++];
            CHECK(argument < from->argument_count);
            a->param = i;
            s->views[i] = view_of(b, p, &from->arguments[argument++], &a->at);
        } else if (p->kind == PARAM_SCALAR) {
            CHECK(scalar < from->scalar_count);
            numbers[i] = from->scalars[scalar++];
            given[i] = true;
        }
    }
    int units = slot_about(context, b->request->slot)->units;
    QN_TRY(interp_head(k, given, numbers, s->views, units, &s->launch, error));
    step_place_scratch(b, s, k, b->plan->fused->workspace_bytes);
    call->context = context;
    call->kernel = entry;
    call->instance = s->instance;
    call->slot = b->request->slot;
    call->bound = true;
    call->views = ARENA_ARRAY(b->plan->memory, array_view, k->param_count + 1);
    memcpy(call->views, s->views, sizeof(array_view) * (size_t)k->param_count);
    call->plan = s->launch;
    return QN_OK;
}

qn_status step_make(plan_build *b, const fuse_kernel *k, qn_error *error)
{
    if (k->kernel) return make_launch(b, k, error);
    return step_make_call(b, k, error);
}

/* ---- compiling ---- */

static int first_of_entry(const plan_build *b, int number)
{
    int first = 0;
    while (b->calls[first] == NULL || b->calls[first]->instance != b->calls[number]->instance) first++;
    return first;
}

qn_status steps_compile(plan_build *b, qn_error *error)
{
    compile_job *jobs = heap_array((size_t)b->call_count + 1, sizeof(*jobs));
    int *steps = ARENA_ARRAY(b->plan->memory, int, b->call_count + 1);
    qn_status status = QN_OK;
    int64_t start_ns = clock_now_ns(), compiling_ns = 0, loading_ns = 0;
    /* First each kernel once, so that no thread waits for another; then those that differ in facts only. */
    for (int round = 0; round < 2 && status == QN_OK; round++) {
        int count = 0;
        for (int i = 0; i < b->call_count; i++) {
            if (!b->calls[i] || (first_of_entry(b, i) == i) != (round == 0)) continue;
            steps[count] = i;
            jobs[count++] = (compile_job){.call = b->calls[i], .slot = b->request->slot};
        }
        calls_compile(jobs, count, cpu_count());
        for (int i = 0; i < count && status == QN_OK; i++) {
            status = jobs[i].status;
            if (status != QN_OK)
                error_set(error, status, "%s", jobs[i].error.message);
            else
                b->plan->steps[b->first_step + steps[i]].variant = jobs[i].variant;
            if (status != QN_OK) continue;
            compiling_ns += jobs[i].variant->compile_ns;
            loading_ns += jobs[i].variant->load_ns;
            b->plan->compiled += !jobs[i].variant->from_cache && jobs[i].variant->compile_ns;
        }
    }
    /* They ran side by side: the time that passed is shared out as theirs is. */
    double share = loading_ns ? (double)loading_ns / (double)(compiling_ns + loading_ns) : 0;
    b->plan->loading_ns += (int64_t)(share * (double)(clock_now_ns() - start_ns));
    heap_free(jobs);
    return status;
}

void steps_compiled(plan_build *b)
{
    for (int i = 0; i < b->call_count; i++)
        if (b->calls[i] != b->plan->steps[b->first_step + i].call) heap_free(b->calls[i]);
    b->call_count = 0;
    b->first_step = b->plan->step_count;
}
