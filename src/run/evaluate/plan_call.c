/*
 * A module's kernel as a step. In: a KERNEL node with where its inputs lie. Out: a launch of the instance that the node
 * names, its outputs at the places of the node's results. An inout array is copied to the output's place first, so that
 * the input stays as it was; an output that nobody reads lies in the workspace for the length of the step.
 * SPDX-License-Identifier: MIT
 */
#include "run/evaluate/plan.h"

#include <stdlib.h>
#include <string.h>

/* Where output `index` of the call goes. */
static plan_place output_place(plan_build *b, const fuse_kernel *from, int index, int64_t size_bytes, int64_t *spare)
{
    for (int w = 0; w < from->write_count; w++) {
        const graph_node *x = graph_get(b->plan->graph, from->writes[w]);
        if (x->code == GRAPH_RESULT && x->attr.index == index) return plan_place_of(b, from->writes[w]);
    }
    plan_place at = {.offset_bytes = *spare};
    *spare += (size_bytes + 255) / 256 * 256;
    return at;
}

static qn_status allowed(const plan_build *b, const instance *i, qn_error *error)
{
    qn_context *context = b->request->context;
    const char *device = context->slots[b->request->slot].driver->name;
    if (!i->kernel->raw_language) return QN_OK;
    if (!raw_runs_on(i->kernel->raw_language, device))
        return error_set(error, QN_NO_DEVICE, "raw kernel `%s` is %s text, which does not run on %s", i->kernel->name,
                         i->kernel->raw_language, device);
    if (i->owner->module->is_trusted) return QN_OK;
    if (context->allow_raw) return context_tell_raw(context, i->owner->module->path), QN_OK;
    return error_set(error, QN_BAD_CALL,
                     "raw kernel `%s` would run its text as it is written; allow raw kernels for files you trust",
                     i->kernel->name);
}

static qn_status scalar_of(const plan_build *b, const fuse_kernel *from, int input, const tile_param *p, number *out,
                           qn_error *error)
{
    const graph_node *x = graph_get(b->plan->graph, graph_get(b->plan->graph, from->call)->inputs[input]);
    while (x->code == GRAPH_RESHAPE || x->code == GRAPH_DETACH || x->code == GRAPH_AGAIN)
        x = graph_get(b->plan->graph, x->inputs[0]);
    *out = x->attr.number;
    if (x->code == GRAPH_FULL) return QN_OK;
    return error_set(error, QN_BAD_CALL,
                     "the scalar `%s` of the kernel `%s` is computed by other kernels: give it a number that the host "
                     "knows, or make it an array",
                     p->name, from->name);
}

/* The copy that lets a kernel change its own. */
static qn_status copy_input(plan_build *b, const fuse_kernel *from, const fuse_argument *a, const tile_param *p,
                            plan_place to, qn_error *error)
{
    int64_t size = dtypes[p->elem].size_bytes, count = 1;
    for (int k = 0; k < a->rank; k++) count *= a->extents[k];
    if (!strides_are_row_major(a->rank, a->extents, a->strides))
        return error_set(error, QN_FAILED, "the inout array `%s` of the kernel `%s` is not row-major", p->name,
                         from->name);
    plan_step *s = step_add(b, "copy", NULL);
    s->from = plan_place_of(b, a->base);
    s->from.offset_bytes += a->offset * size;
    s->to = to;
    s->size_bytes = count * size;
    return QN_OK;
}

qn_status step_make_call(plan_build *b, const fuse_kernel *from, qn_error *error)
{
    qn_context *context = b->request->context;
    const graph_kernel *op = graph_get(b->plan->graph, from->call)->attr.kernel;
    instance *i = op->entry;
    if (!i) return error_set(error, QN_FAILED, "the kernel `%s` has no module to come from", op->name);
    QN_TRY(allowed(b, i, error));
    const tile_kernel *k = i->kernel;
    array_view views[MAX_PARAMS] = {0};
    step_array arrays[MAX_PARAMS];
    bool given[MAX_PARAMS] = {0};
    number numbers[MAX_PARAMS];
    memset(numbers, 0, sizeof(numbers));
    int array_count = 0, input = 0, output = 0;
    int64_t spare = (b->plan->fused->workspace_bytes + 255) / 256 * 256;
    for (int p = 0; p < k->param_count; p++) {
        const tile_param *param = &k->params[p];
        if (param->kind == PARAM_SCRATCH) views[p] = (array_view){.elem = param->elem, .rank = param->rank};
        if (param->kind > PARAM_INOUT) continue;
        const fuse_argument *a = param->kind == PARAM_OUT ? NULL : &from->arguments[input++];
        step_array *array = &arrays[array_count++];
        array->param = p;
        if (param->kind == PARAM_IN) {
            views[p] = (array_view){.elem = param->elem, .rank = a->rank};
            memcpy(views[p].extents, a->extents, sizeof(views[p].extents));
            memcpy(views[p].strides, a->strides, sizeof(views[p].strides));
            array->at = plan_place_of(b, a->base);
            array->at.offset_bytes += a->offset * dtypes[param->elem].size_bytes;
            if (k->raw_language && !strides_are_row_major(a->rank, a->extents, a->strides))
                return error_set(error, QN_FAILED, "the array `%s` of the raw kernel `%s` is not row-major",
                                 param->name, from->name);
        } else {
            const shape *s = &op->output_shape[output];
            int64_t size_bytes = shape_count(s) * dtypes[param->elem].size_bytes;
            views[p] = view_row_major(NULL, param->elem, s->rank, s->extents);
            array->at = output_place(b, from, output++, size_bytes, &spare);
            if (a) QN_TRY(copy_input(b, from, a, param, array->at, error));
        }
        views[p].data = plan_stand_in(b, array->at);
    }
    for (int p = 0; p < k->param_count; p++) {
        if (k->params[p].kind != PARAM_SCALAR) continue;
        QN_TRY(scalar_of(b, from, input++, &k->params[p], &numbers[p], error));
        given[p] = true;
    }
    qn_call *call = heap_new(sizeof(*call));
    plan_step *s = step_add(b, from->name, call);
    s->instance = i;
    s->graph = b->plan->graph;
    s->called = from->call;
    step_use(b, s, k);
    memcpy(s->views, views, sizeof(array_view) * (size_t)k->param_count);
    memcpy(s->arrays, arrays, sizeof(step_array) * (size_t)array_count);
    s->array_count = array_count;
    int units = slot_about(context, b->request->slot)->units;
    QN_TRY(interp_head(k, given, numbers, s->views, units, &s->launch, error));
    b->plan->workspace_bytes = MAXIMUM(b->plan->workspace_bytes, spare);
    b->plan->values_bytes = MAXIMUM(b->plan->values_bytes, spare);
    step_place_scratch(b, s, k, spare);
    call->context = context;
    call->kernel = i->owner;
    call->instance = i;
    call->slot = b->request->slot;
    call->bound = true;
    call->views = ARENA_ARRAY(b->plan->memory, array_view, k->param_count + 1);
    memcpy(call->views, s->views, sizeof(array_view) * (size_t)k->param_count);
    call->plan = s->launch;
    return QN_OK;
}
