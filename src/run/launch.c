/*
 * Launching a call. In: a call with its settings and a device. Out: the kernel has run. In the steady state (nothing
 * set since the last run, or only pointers) there is no compiling, no allocation and no lock: the bound plan is used as
 * it is. Outputs with an initial value are filled before every launch.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"

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
    int64_t step = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        if (v->extents[i] != 1 && v->strides[i] != step) return *v;
        step *= v->extents[i];
    }
    return (array_view){.data = v->data, .elem = v->elem, .rank = 1, .extents = {step}, .strides = {1}};
}

static void fill_initials(const qn_call *call)
{
    const tile_kernel *k = call->instance->kernel;
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        if (!p->has_initial || p->kind != PARAM_OUT) continue;
        char pattern[8] = {0};
        element_write(p->elem, pattern, p->initial);
        bool zero = true;
        for (int b = 0; b < dtypes[p->elem].size_bytes; b++) zero &= pattern[b] == 0;
        array_view v = flattened(&call->views[i]);
        fill(&v, 0, v.data, pattern, zero);
    }
}

/* On ref without options of the caller: every check, in program order, findings become the error. */
static qn_status launch_checked(qn_call *call, qn_error *error)
{
    qn_context *context = call->context;
    findings found = {0};
    interp_options interp = {.check = true,
                             .units = context->slots[call->slot].about.units,
                             .print = context->print,
                             .print_context = context->user};
    launch_options options = {.interp = &interp, .found = &found};
    qn_status status =
        context->slots[call->slot].driver->launch(call->variant->program, call->views, &call->plan, &options, error);
    if (status == QN_OK && found.count) {
        text words = {0};
        findings_print(&found, call->instance->kernel, &words);
        status = error_set(error, QN_FINDING, "%s", text_get(&words));
        text_free(&words);
    }
    findings_free(&found);
    return status;
}

qn_status call_launch(qn_call *call, int slot, const launch_options *options, qn_error *error)
{
    qn_context *context = call->context;
    call->timing = (qn_timing){0};
    if (!call->bound || call->slot != slot) {
        QN_TRY(call_bind(call, slot, false, error));
    } else if (call->pointers_changed) {
        QN_TRY(call_refresh(call, error));
        call->variant = NULL;
    }
    if (!call->variant) QN_TRY(variant_get(call, &call->variant, error));
    fill_initials(call);
    const driver *d = context->slots[slot].driver;
    int64_t start = clock_now_ns();
    qn_status status = d == &driver_ref && !options
                           ? launch_checked(call, error)
                           : d->launch(call->variant->program, call->views, &call->plan, options, error);
    call->timing.kernel_ns = clock_now_ns() - start;
    call->has_run = true;
    if (context->log & LOG_LAUNCH)
        context_log(context, LOG_LAUNCH, "launch: %s on %s, %lld x %lld x %lld programs, %.3f us", call->kernel->name,
                    d->name, (long long)call->plan.programs[0][0], (long long)call->plan.programs[0][1],
                    (long long)call->plan.programs[0][2], (double)call->timing.kernel_ns * 1e-3);
    return status;
}

qn_status qn_call_run(qn_call *call, const char *device, qn_error *error)
{
    if (!call) return error_set(error, QN_BAD_CALL, "qn_call_run: the call is NULL");
    int slot;
    QN_TRY(context_slot(call->context, device, &slot, error));
    return call_launch(call, slot, NULL, error);
}
