/*
 * The plan of a tensor function with its addresses open. In: a traced function, whose arrays are leaves of a tape. Out:
 * the plan of its steps, and which of the plan's buffers is which array of the call. Running it again with other arrays
 * of the same shapes puts the addresses in and launches: nothing is traced, looked up or allocated.
 *
 * The plan stays with the tape that made it and is kept from being forgotten by a reference. Buffers that are no array
 * of the call (the state of random numbers) are the tape's, held here.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "run/module/function.h"
#include "run/evaluate/realize.h"

#include <stdlib.h>

struct function_plan {
    plan *plan;
    qn_context *context;
    int slot;
    int *params;           /* by buffer: the tile parameter whose memory it is; -1: `kept` */
    int64_t *low_bytes;    /* by buffer: from the array's first element to the buffer's first byte */
    qn_buffer **kept;      /* by buffer; NULL: an array */
    char **bases;          /* workspace, then buffers */
    storage *workspace;    /* NULL before the first run without memory of the caller's */
    device_series *series; /* of a device whose launches wait: all steps at once; NULL: one by one */
    series_launch *launches;
    bool whole, has_indices; /* the steps are one series; values of arrays are indices */
};

void function_plan_free(function_plan *f)
{
    if (!f) return;
    const device_slot *s = &f->context->slots[f->slot];
    if (f->series) s->driver->series_close(f->series);
    for (int i = 0; i < f->plan->buffer_count; i++) qn_buffer_release(f->kept[i]);
    plan_release(f->plan, f->context, f->slot);
    storage_release(f->workspace);
    heap_free(f->params);
    heap_free(f->low_bytes);
    heap_free(f->kept);
    heap_free(f->bases);
    heap_free(f->launches);
    heap_free(f);
}

/* Which array of the call has this buffer. */
static int param_of(const qn_call *call, qn_buffer *const *by_param, const qn_buffer *buffer)
{
    for (int i = 0; i < call->instance->kernel->param_count; i++)
        if (by_param[i] == buffer) return i;
    return -1;
}

/* All launches as one series, where the device has that and there is nothing between them. */
static bool is_series(const function_plan *f)
{
    const plan *p = f->plan;
    bool whole = f->context->slots[f->slot].driver->series_open && p->step_count;
    for (int i = 0; i < p->step_count; i++) whole &= p->steps[i].instance && !p->steps[i].has_initials;
    return whole;
}

/* Does it read by indices that lie in memory of the host? Those are tested before they are used, at every launch. */
static bool find_indices(const function_plan *f)
{
    const graph *g = f->plan->graph;
    if (f->context->slots[f->slot].driver->memory) return false;
    for (int n = 1; n < g->node_count; n++)
        if (graph_ops[graph_get(g, (node)n)->code].class == GRAPH_CLASS_INDEX) return true;
    return false;
}

qn_status function_plan_take(qn_call *call, qn_tape *tape, qn_buffer *const *by_param, function_plan **out,
                             qn_error *error)
{
    plan *made = NULL;
    *out = NULL;
    QN_TRY(realize_plan(tape, &made, error));
    CHECK(made->result_count == 0); /* results are variables, whose memory is the call's */
    const realizer *r = tape->realizer;
    size_t count = (size_t)made->buffer_count;
    function_plan *f = heap_new(sizeof(*f));
    *f = (function_plan){.plan = plan_retain(made),
                         .context = call->context,
                         .slot = call->slot,
                         .params = heap_array(count + 1, sizeof(int)),
                         .low_bytes = heap_array(count + 1, sizeof(int64_t)),
                         .kept = heap_array(count + 1, sizeof(qn_buffer *)),
                         .bases = heap_array(count + 1, sizeof(char *))};
    for (size_t i = 0; i < count; i++) {
        int64_t low, high;
        f->params[i] = param_of(call, by_param, r->buffers[i]);
        if (f->params[i] < 0) {
            f->kept[i] = qn_buffer_retain(r->buffers[i]);
            f->bases[1 + i] = r->buffers[i]->data;
            continue;
        }
        const array_view *v = &call->views[f->params[i]];
        view_reach(v, &low, &high);
        f->low_bytes[i] = low * dtypes[v->elem].size_bytes;
    }
    f->whole = is_series(f);
    f->has_indices = find_indices(f);
    *out = f;
    return QN_OK;
}

int64_t function_plan_scratch(const function_plan *f)
{
    return f->plan->workspace_bytes;
}

bool function_plan_has_indices(const function_plan *f)
{
    return f->has_indices;
}

static qn_status run_series(function_plan *f, qn_error *error)
{
    const device_slot *s = &f->context->slots[f->slot];
    plan *p = f->plan;
    for (int i = 0; i < p->step_count; i++) step_address(&p->steps[i], f->bases);
    if (f->series) {
        s->driver->series_move(f->series, f->launches, p->step_count);
        return s->driver->series_run(f->series, NULL, error);
    }
    if (!f->launches) f->launches = heap_array((size_t)p->step_count, sizeof(series_launch));
    for (int i = 0; i < p->step_count; i++)
        f->launches[i] = (series_launch){
            .program = p->steps[i].variant->program, .arrays = p->steps[i].views, .plan = &p->steps[i].launch};
    QN_TRY(s->driver->series_open(s->device, f->launches, p->step_count, &f->series, error));
    return s->driver->series_run(f->series, NULL, error);
}

qn_status function_plan_run(function_plan *f, qn_call *call, qn_tape *tape, device_stream *stream, qn_error *error)
{
    int64_t need = f->plan->workspace_bytes;
    if (call->scratch && need > call->scratch_bytes)
        return error_set(error, QN_BAD_CALL, "`%s` needs %lld bytes of scratch memory here, and was given %lld",
                         call->kernel->name, (long long)need, (long long)call->scratch_bytes);
    if (!call->scratch) QN_TRY(realize_workspace(tape, need, &f->workspace, error));
    f->bases[0] = call->scratch ? call->scratch : storage_data(f->workspace);
    for (int i = 0; i < f->plan->buffer_count; i++)
        if (f->params[i] >= 0) f->bases[1 + i] = (char *)call->views[f->params[i]].data + f->low_bytes[i];
    /* What is told of each launch is told one by one. */
    if (f->whole && !record_is_on() && !f->context->log && !f->context->counter) return run_series(f, error);
    return plan_run(f->plan, f->context, f->slot, stream, f->bases, NULL, error);
}
