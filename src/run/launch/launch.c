/*
 * Launching a call. In: a call with its settings and a device. Out: the kernel has run. In the steady state (nothing
 * set since the last run, or only pointers) there is no compiling, no allocation and no lock: the bound plan is used as
 * it is. Outputs with an initial value are filled before every launch.
 * SPDX-License-Identifier: MIT
 */
#include "run/compile/facts.h"

#include <string.h>

/* Fills axis `axis` and later of a view, `at` its first element. */
static void fill(const array_view *v, int axis, char *at, const void *pattern, bool zero)
{
    size_t size = (size_t)dtypes[v->elem].size_bytes;
    if (axis == v->rank) {
        memcpy(at, pattern, size);
        return;
    }
    int64_t count = v->extents[axis], step = v->strides[axis] * (int64_t)size;
    if (axis == v->rank - 1 && v->strides[axis] == 1) {
        if (zero) {
            memset(at, 0, (size_t)count * size);
            return;
        }
        for (int64_t i = 0; i < count; i++) memcpy(at + (size_t)i * size, pattern, size);
        return;
    }
    for (int64_t i = 0; i < count; i++) fill(v, axis + 1, at + i * step, pattern, zero);
}

/* A row-major view without gaps is one long axis. */
static array_view flattened(const array_view *v)
{
    int64_t count = view_count(v);
    return view_is_row_major(v) ? view_row_major(v->data, v->elem, 1, &count) : *v;
}

qn_status views_fill_initials(const device_slot *s, const tile_kernel *k, const array_view *views,
                              device_stream *stream, qn_error *error)
{
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        if (!p->has_initial || p->kind != PARAM_OUT) continue;
        char pattern[8] = {0};
        element_write(p->elem, pattern, p->initial);
        if (s->driver->memory) {
            QN_TRY(s->driver->memory->fill(s->device, stream, &views[i], pattern, error));
            continue;
        }
        bool zero = true;
        for (int b = 0; b < dtypes[p->elem].size_bytes; b++) zero &= pattern[b] == 0;
        array_view v = flattened(&views[i]);
        fill(&v, 0, v.data, pattern, zero);
    }
    return QN_OK;
}

/* Every check of the interpreter, in program order; findings become the error. */
static qn_status launch_checked(qn_context *context, int slot, const tile_kernel *k, program *p,
                                const array_view *views, const launch_plan *plan, bool any_value, qn_error *error)
{
    findings found = {0};
    interp_options interp = {.check = true,
                             .any_value = any_value,
                             .units = slot_about(context, slot)->units,
                             .print = context->print,
                             .print_context = context->user};
    launch_options options = {.interp = &interp, .found = &found};
    qn_status status = context->slots[slot].driver->launch(p, views, plan, &options, error);
    if (status == QN_OK && found.count) {
        text words = {0};
        findings_print(&found, k, &words);
        status = error_set(error, QN_FINDING, "%s", text_get(&words));
        text_free(&words);
    }
    findings_free(&found);
    return status;
}

qn_status program_launch(qn_context *context, int slot, const tile_kernel *k, program *p, const array_view *views,
                         const launch_plan *plan, bool any_value, qn_error *error)
{
    const driver *d = context->slots[slot].driver;
    if (d == &driver_ref) return launch_checked(context, slot, k, p, views, plan, any_value, error);
    return d->launch(p, views, plan, NULL, error);
}

static void log_launch(qn_call *call)
{
    qn_context *context = call->context;
    if (context->log & LOG_LAUNCH)
        context_log(context, LOG_LAUNCH, "launch: %s on %s, %lld x %lld x %lld programs, %.3f us", call->kernel->name,
                    context->slots[call->slot].name, (long long)call->plan.programs[0][0],
                    (long long)call->plan.programs[0][1], (long long)call->plan.programs[0][2],
                    (double)call->timing.kernel_ns * 1e-3);
}

/* Everything that must be right before a launch: bound, staged, compiled, prepared. Nothing of it is done twice. */
static qn_status make_ready(qn_call *call, int slot, bool host_allowed, qn_error *error)
{
    const driver *d = call->context->slots[slot].driver;
    if (!call->bound || call->slot != slot) {
        QN_TRY(call_bind(call, slot, false, error));
    } else if (call->pointers_changed) {
        QN_TRY(call_refresh(call, error));
        call->variant = NULL;
        call->facts = NULL;
    } else if (call->moved) {
        QN_TRY(call_move(call, error));
        if (call->prepared) QN_TRY(d->move(call->ready, call->views, error));
    }
    if (!call->staged) {
        int64_t start = clock_now_ns();
        QN_TRY(call_stage(call, host_allowed, error));
        if (d->memory) call->timing.allocate_ns = clock_now_ns() - start;
    }
    if (!call->variant) QN_TRY(variant_get(call, &call->variant, error));
    if (!d->prepare || call->prepared) return QN_OK;
    call->ready_slot = slot;
    QN_TRY(d->prepare(call->variant->program, call->views, &call->plan, &call->ready, error));
    call->prepared = true;
    return QN_OK;
}

static qn_status make_events(qn_call *call, const device_slot *s, qn_error *error)
{
    for (int i = 0; i < 2; i++)
        if (!call->events[i]) QN_TRY(s->driver->streams->event_open(s->device, &call->events[i], error));
    return QN_OK;
}

/* On a device with memory of its own: copies in, the kernel between two events, copies out. */
static qn_status launch_staged(qn_call *call, qn_error *error)
{
    const device_slot *s = &call->context->slots[call->slot];
    const driver *d = s->driver;
    double kernel_ns = 0;
    int64_t start = clock_now_ns();
    QN_TRY(make_events(call, s, error));
    QN_TRY(call_copy_in(call, NULL, error));
    QN_TRY(views_fill_initials(s, call->instance->kernel, call->views, NULL, error));
    call->timing.copy_in_ns = clock_now_ns() - start;
    QN_TRY(d->streams->event_record(call->events[0], NULL, error));
    QN_TRY(d->submit(call->ready, NULL, error));
    QN_TRY(d->streams->event_record(call->events[1], NULL, error));
    QN_TRY(d->finish(call->ready, error));
    QN_TRY(d->streams->event_elapsed(call->events[0], call->events[1], &kernel_ns, error));
    call->timing.kernel_ns = (int64_t)kernel_ns;
    start = clock_now_ns();
    QN_TRY(call_copy_out(call, NULL, error));
    call->timing.copy_out_ns = clock_now_ns() - start;
    return QN_OK;
}

/* A launch in the record, under the kernel's name. */
static void end_record(qn_call *call, int64_t from, uint64_t identity, record_kind kind)
{
    record_leave(identity);
    if (!from) return;
    const record_facts *f = call_facts(call);
    if (f) record_end(from, kind, f->kernel, f->shapes, identity, (intptr_t)f, call->slot);
}

static qn_status launch_once_more(void *user, qn_error *error)
{
    const qn_call *call = user;
    const driver *d = call->context->slots[call->slot].driver;
    if (!d->prepare)
        return program_launch(call->context, call->slot, call->instance->kernel, call->variant->program, call->views,
                              &call->plan, false, error);
    QN_TRY(d->submit(call->ready, NULL, error));
    return d->finish(call->ready, error);
}

static void count_call(qn_call *call)
{
    launch_counter *c = call->context->counter;
    if (c) c->count(c, call->slot, call_facts(call), call->instance->kernel, call->views, launch_once_more, call);
}

const char *call_library(const qn_call *call, const char **why)
{
    const driver *d = call->context->slots[call->slot].driver;
    if (call_is_function(call)) return function_library(call, why);
    *why = "the device has none";
    return d->launch_library && call->prepared ? d->launch_library(call->ready, why) : NULL;
}

qn_status call_launch(qn_call *call, int slot, const launch_options *options, qn_error *error)
{
    const driver *d = call->context->slots[slot].driver;
    call->timing = (qn_timing){0};
    if (call_is_function(call)) return function_launch(call, slot, error);
    QN_TRY(make_ready(call, slot, true, error));
    qn_status status;
    int64_t from = record_begin();
    uint64_t identity = record_enter(call->kernel->name);
    if (d->prepare) {
        status = launch_staged(call, error);
    } else {
        const tile_kernel *k = call->instance->kernel;
        status = views_fill_initials(&call->context->slots[slot], k, call->views, NULL, error);
        int64_t start = clock_now_ns();
        if (status == QN_OK)
            status = options ? d->launch(call->variant->program, call->views, &call->plan, options, error)
                             : program_launch(call->context, slot, k, call->variant->program, call->views, &call->plan,
                                              false, error);
        call->timing.kernel_ns = clock_now_ns() - start;
    }
    call->has_run = true;
    end_record(call, from, identity, d->prepare ? RECORD_LAUNCH : RECORD_KERNEL);
    log_launch(call);
    if (status == QN_OK && !options) count_call(call);
    return status;
}

qn_status call_submit(qn_call *call, int slot, device_stream *stream, qn_error *error)
{
    const driver *d = call->context->slots[slot].driver;
    if (call_is_function(call)) return function_submit(call, slot, stream, error);
    if (!call->bound || call->slot != slot || call->pointers_changed || !call->staged || !call->prepared ||
        !call->all_direct) {
        call->timing = (qn_timing){0};
        call->staged = false; /* host memory that an earlier run was allowed */
        QN_TRY(make_ready(call, slot, false, error));
        call->all_direct = true;
    } else if (call->moved) {
        QN_TRY(make_ready(call, slot, false, error));
    }
    int64_t from = record_begin();
    uint64_t identity = record_enter(call->kernel->name);
    qn_status status = QN_OK;
    if (call->has_initials)
        status = views_fill_initials(&call->context->slots[slot], call->instance->kernel, call->views, stream, error);
    if (status == QN_OK) status = d->submit(call->ready, stream, error);
    end_record(call, from, identity, RECORD_LAUNCH);
    QN_TRY(status);
    call->has_run = true;
    if (call->context->log & LOG_LAUNCH) log_launch(call);
    if (!stream) count_call(call);
    return QN_OK;
}

qn_status qn_call_run(qn_call *call, const char *device, qn_error *error)
{
    HEAP_ENTER(error);
    if (!call) return error_set(error, QN_BAD_CALL, "qn_call_run: the call is NULL");
    int slot;
    QN_TRY(context_slot(call->context, device, &slot, error));
    return call_launch(call, slot, NULL, error);
}
