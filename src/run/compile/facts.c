/*
 * What is known of a launch before it runs. In: a bound call, or a step of a plan. Out: its facts, interned, for the
 * records of its launches.
 * SPDX-License-Identifier: MIT
 */
#include "run/compile/facts.h"

#include "fuse/fuse.h"

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
        if (!view_is_row_major(&views[i])) {
            for (int axis = 0; axis < p->rank; axis++)
                text_print(out, "%s%lld", axis ? ", " : " by [", (long long)views[i].strides[axis]);
            text_add(out, "]");
        }
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

static void find_product(tile_kernel *k, tile_block *block, tile_op *op, void *context)
{
    *(bool *)context |= op->code == OP_DOT;
    (void)k, (void)block;
}

const record_facts *launch_facts_keep(const launch_seen *l)
{
    const tile_kernel *k = l->kernel;
    const int64_t *programs = l->plan->programs[0];
    text shapes = {0}, words = {0};
    launch_counts counts = {.flops = NAN};
    record_facts f = {.kernel = l->name,
                      .device = l->context->slots[l->slot].name,
                      .file = l->file,
                      .line = l->line,
                      .programs = programs[0] * programs[1] * programs[2],
                      .unfused_bytes = NAN,
                      .occupancy = NAN,
                      .waves = NAN,
                      .variant = l->variant,
                      .owners = l->owners,
                      .owner_count = l->owner_count};
    if (!k->raw_language) launch_count(k, l->plan, slot_about(l->context, l->slot)->units, &counts);
    f.flops = counts.flops;
    for (int i = 0; i < k->phase_count; i++) tile_walk((tile_kernel *)k, k->phases[i], find_product, &f.product);
    views_print(k, l->views, &shapes);
    views_bytes(k, l->views, &f.read_bytes, &f.written_bytes);
    if (l->fused) { /* it knows which elements are read once though the view repeats them */
        f.read_bytes = (double)l->fused->read_bytes;
        f.written_bytes = (double)l->fused->written_bytes;
        f.flops = (double)l->fused->flops; /* those that are asked for: tiles do more at their edges */
        f.unfused_bytes = (double)(l->fused->read_bytes + l->fused->written_bytes + l->fused->saved_bytes);
        fuse_print_ops(l->graph, l->fused, &words);
        f.ops = text_get(&words);
    }
    f.shapes = text_get(&shapes);
    const driver *d = l->context->slots[l->slot].driver;
    const char *unread, *library = d->launch_library && l->ready ? d->launch_library(l->ready, &unread) : NULL;
    if (library) { /* whose threads, registers and texts nobody tells */
        f.kernel = library;
        f.variant = NULL;
    }
    if (d->facts && l->variant && !library) d->facts(l->variant->program, l->plan, &f);
    const record_facts *kept = record_facts_keep(&f);
    text_free(&shapes);
    text_free(&words);
    return kept;
}

const record_facts *facts_of_parts(const record_facts *const *parts, int count, const char *name, const char *device)
{
    record_facts f = {.kernel = name,
                      .device = device,
                      .unfused_bytes = NAN,
                      .occupancy = NAN,
                      .waves = NAN,
                      .parts = parts,
                      .part_count = count};
    for (int i = 0; i < count; i++) {
        f.programs += parts[i]->programs;
        f.read_bytes += parts[i]->read_bytes;
        f.written_bytes += parts[i]->written_bytes;
        f.flops += parts[i]->flops;
    }
    return record_facts_keep(&f);
}

const record_facts *call_facts(qn_call *call)
{
    if (!call->facts)
        call->facts = launch_facts_keep(&(launch_seen){.context = call->context,
                                                       .slot = call->slot,
                                                       .name = call->kernel->name,
                                                       .file = call->instance->kernel->file,
                                                       .line = call->kernel->item ? call->kernel->item->at.line : 0,
                                                       .kernel = call->instance->kernel,
                                                       .views = call->views,
                                                       .plan = &call->plan,
                                                       .variant = call->variant,
                                                       .ready = call->prepared ? call->ready : NULL});
    return call->facts;
}
