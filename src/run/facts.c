/*
 * What is known of a launch before it runs. In: a bound call. Out: its facts, interned, for the records of its launches.
 * SPDX-License-Identifier: MIT
 */
#include "run/facts.h"

#include <math.h>

static bool is_array(const tile_param *p)
{
    return p->kind == PARAM_IN || p->kind == PARAM_OUT || p->kind == PARAM_INOUT;
}

void views_print(const tile_kernel *k, const array_view *views, text *out)
{
    const char *between = "";
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        if (!is_array(p)) continue;
        text_print(out, "%s%s %s[", between, p->name, dtypes[p->elem].text);
        for (int axis = 0; axis < p->rank; axis++)
            text_print(out, "%s%lld", axis ? ", " : "", (long long)views[i].extents[axis]);
        text_add(out, "]");
        between = ", ";
    }
}

void views_bytes(const tile_kernel *k, const array_view *views, double *read, double *written)
{
    *read = *written = 0;
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        double bytes = dtypes[p->elem].size_bytes;
        if (!is_array(p)) continue;
        for (int axis = 0; axis < p->rank; axis++) bytes *= (double)views[i].extents[axis];
        if (p->kind != PARAM_OUT) *read += bytes;
        if (p->kind != PARAM_IN) *written += bytes;
    }
}

const record_facts *call_facts(qn_call *call)
{
    if (call->facts) return call->facts;
    const tile_kernel *k = call->instance->kernel;
    const int64_t *programs = call->plan.programs[0];
    text shapes = {0};
    launch_counts counts = {.flops = NAN};
    record_facts f = {.kernel = call->kernel->name,
                      .device = call->context->slots[call->slot].name,
                      .file = k->file,
                      .line = call->kernel->item ? call->kernel->item->at.line : 0,
                      .programs = programs[0] * programs[1] * programs[2],
                      .unfused_bytes = NAN,
                      .occupancy = NAN,
                      .waves = NAN,
                      .variant = call->variant};
    if (!k->raw_language) launch_count(k, &call->plan, slot_about(call->context, call->slot)->units, &counts);
    f.flops = counts.flops;
    views_print(k, call->views, &shapes);
    views_bytes(k, call->views, &f.read_bytes, &f.written_bytes);
    f.shapes = text_get(&shapes);
    call->facts = record_facts_keep(&f);
    text_free(&shapes);
    return call->facts;
}
