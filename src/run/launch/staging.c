/*
 * Calls on devices with memory of their own. In: a bound call whose arrays are anywhere. Out: views of the device's
 * memory. A buffer on that device, or an address that the device knows, is used as it is; host memory gets a mirror,
 * kept from run to run, filled before a launch and read back after it. An element that no program writes keeps its
 * value, so outputs are copied in as well, except those that an initial value fills or that belong to the call. Only
 * elements of an array are written back, never what lies between them.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"

#include <stdlib.h>
#include <string.h>

static bool is_array(const tile_param *p)
{
    return p->kind < PARAM_SCALAR;
}

static const device_slot *slot_of(const qn_call *call)
{
    return &call->context->slots[call->slot];
}

void call_release_device(qn_call *call)
{
    for (int i = 0; i < call->argument_count; i++) {
        argument *a = &call->arguments[i];
        if (!a->mirror) continue;
        const device_slot *s = &call->context->slots[a->mirror_slot];
        s->driver->memory->release(s->device, a->mirror);
        a->mirror = NULL;
        a->mirror_bytes = 0;
    }
    const device_slot *s = &call->context->slots[call->ready_slot];
    if (call->ready) s->driver->discard(call->ready);
    for (int i = 0; i < 2; i++) {
        if (call->events[i]) s->driver->streams->event_close(call->events[i]);
        call->events[i] = NULL;
    }
    call->ready = NULL;
    call->prepared = false;
}

/* A mirror of at least so many bytes; *fresh: it is a new one. */
static qn_status mirror(qn_call *call, int declared, size_t size_bytes, bool *fresh, qn_error *error)
{
    const device_slot *s = slot_of(call);
    argument *a = &call->arguments[declared];
    *fresh = false;
    if (a->mirror && a->mirror_bytes >= size_bytes) return QN_OK;
    if (a->mirror) s->driver->memory->release(s->device, a->mirror);
    a->mirror = NULL;
    qn_error inner;
    if (s->driver->memory->allocate(s->device, size_bytes, &a->mirror, &inner) != QN_OK)
        return error_set(error, inner.status, "array `%s` of kernel `%s`: %s", call->kernel->params[declared].name,
                         call->kernel->name, inner.message);
    a->mirror_bytes = size_bytes;
    a->mirror_slot = call->slot;
    *fresh = true;
    return QN_OK;
}

/* Is this argument's memory on the device of the call? An error if it is on another one. */
static qn_status find_place(qn_call *call, int declared, bool *direct, qn_error *error)
{
    const device_slot *s = slot_of(call);
    const argument *a = &call->arguments[declared];
    *direct = false;
    if (a->buffer && a->buffer->slot >= 0) {
        *direct = a->buffer->slot == call->slot;
        if (*direct) return QN_OK;
        return error_set(error, QN_BAD_CALL,
                         "array `%s` of kernel `%s` is a buffer on %s, and the call runs on %s; copy it there first",
                         call->kernel->params[declared].name, call->kernel->name,
                         call->context->slots[a->buffer->slot].name, s->name);
    }
    int64_t low, high;
    view_reach(&a->view, &low, &high);
    *direct = a->given && !a->buffer && s->driver->memory &&
              (low == high || s->driver->memory->owns(s->device, a->view.data)); /* nothing is everywhere */
    return QN_OK;
}

static qn_status stage_one(qn_call *call, int number, bool host_allowed, qn_error *error)
{
    const device_slot *s = slot_of(call);
    const tile_param *p = &call->instance->kernel->params[number];
    int declared = call->declared[number];
    argument *a = &call->arguments[declared];
    QN_TRY(find_place(call, declared, &a->direct, error));
    if (!s->driver->memory || a->direct) return QN_OK;
    if (!host_allowed && p->kind != PARAM_SCRATCH)
        return error_set(error, QN_BAD_CALL,
                         "array `%s` of kernel `%s` is in host memory%s; a launch on a stream takes buffers on its "
                         "device (qn_buffer_new_on)",
                         p->name, call->kernel->name, a->given ? "" : ", since it was not given");
    int64_t low, high, size = dtypes[p->elem].size_bytes;
    array_view *v = &call->views[number];
    bool fresh;
    if (p->kind == PARAM_SCRATCH && call->scratch) {
        int64_t offsets[MAX_PARAMS], need = call_scratch_bytes(call, offsets);
        if (need > call->scratch_bytes)
            return error_set(error, QN_BAD_CALL, "`%s` needs %lld bytes of scratch memory here, and was given %lld",
                             call->kernel->name, (long long)need, (long long)call->scratch_bytes);
        v->data = (char *)call->scratch + offsets[number];
        return QN_OK;
    }
    view_reach(v, &low, &high);
    QN_TRY(mirror(call, declared, (size_t)((high - low) * size) + 1, &fresh, error));
    if (fresh && a->allocated) { /* the call's own memory begins with zeros, here as on the host */
        array_view whole = {
            .data = a->mirror, .elem = DT_U8, .rank = 1, .extents = {(int64_t)a->mirror_bytes}, .strides = {1}};
        QN_TRY(s->driver->memory->fill(s->device, NULL, &whole, &(uint64_t){0}, error));
    }
    v->data = (char *)a->mirror - low * size;
    return QN_OK;
}

int64_t call_scratch_bytes(const qn_call *call, int64_t *offsets)
{
    const tile_kernel *k = call->instance->kernel;
    int64_t end = 0;
    for (int i = 0; i < k->param_count; i++) {
        if (k->params[i].kind != PARAM_SCRATCH) continue;
        int64_t count = 1;
        for (int axis = 0; axis < k->params[i].rank; axis++) count *= call->plan.extents[i][axis];
        offsets[i] = end;
        end += (count * dtypes[k->params[i].elem].size_bytes + 255) / 256 * 256;
    }
    return end;
}

qn_status call_stage(qn_call *call, bool host_allowed, qn_error *error)
{
    const tile_kernel *k = call->instance->kernel;
    for (int i = 0; i < call->argument_count; i++) /* mirrors on another device, from a run before */
        if (call->arguments[i].mirror && call->arguments[i].mirror_slot != call->slot) {
            call_release_device(call);
            break;
        }
    if (call->ready && call->ready_slot != call->slot) call_release_device(call);
    for (int i = 0; i < k->param_count; i++)
        if (is_array(&k->params[i])) QN_TRY(stage_one(call, i, host_allowed, error));
    call->staged = true;
    call->prepared = false;
    return QN_OK;
}

/* Only the elements of a view, from one memory to another of the same layout. */
static void assign(const array_view *v, int axis, char *to, const char *from)
{
    int64_t size = dtypes[v->elem].size_bytes;
    if (axis == v->rank) {
        memcpy(to, from, (size_t)size);
        return;
    }
    if (axis == v->rank - 1 && v->strides[axis] == 1) {
        memcpy(to, from, (size_t)(v->extents[axis] * size));
        return;
    }
    for (int64_t i = 0; i < v->extents[axis]; i++)
        assign(v, axis + 1, to + i * v->strides[axis] * size, from + i * v->strides[axis] * size);
}

static bool is_staged(const qn_call *call, int number)
{
    const tile_param *p = &call->instance->kernel->params[number];
    return is_array(p) && p->kind != PARAM_SCRATCH && !call->arguments[call->declared[number]].direct;
}

qn_status call_copy_in(qn_call *call, device_stream *stream, qn_error *error)
{
    const device_slot *s = slot_of(call);
    const tile_kernel *k = call->instance->kernel;
    for (int i = 0; i < k->param_count; i++) {
        if (!is_staged(call, i)) continue;
        const tile_param *p = &k->params[i];
        const argument *a = &call->arguments[call->declared[i]];
        const array_view *host = &a->view;
        if (p->kind == PARAM_OUT && (a->allocated || (p->has_initial && view_is_dense(host)))) continue;
        int64_t low, high, size = dtypes[p->elem].size_bytes;
        view_reach(host, &low, &high);
        QN_TRY(s->driver->memory->write(s->device, stream, a->mirror, (const char *)host->data + low * size,
                                        (size_t)((high - low) * size), error));
    }
    return QN_OK;
}

static qn_status copy_out_one(qn_call *call, int number, device_stream *stream, qn_error *error)
{
    const device_slot *s = slot_of(call);
    const argument *a = &call->arguments[call->declared[number]];
    const array_view *host = &a->view;
    int64_t low, high, size = dtypes[host->elem].size_bytes;
    view_reach(host, &low, &high);
    size_t bytes = (size_t)((high - low) * size);
    if (!bytes) return QN_OK;
    if (view_is_dense(host))
        return s->driver->memory->read(s->device, stream, (char *)host->data + low * size, a->mirror, bytes, error);
    char *aside = malloc(bytes);
    if (!aside) return error_set(error, QN_NO_MEMORY, "no memory to read an array of %zu bytes back", bytes);
    qn_status status = s->driver->memory->read(s->device, stream, aside, a->mirror, bytes, error);
    if (status == QN_OK) assign(host, 0, host->data, aside - low * size);
    heap_free(aside);
    return status;
}

qn_status call_copy_out(qn_call *call, device_stream *stream, qn_error *error)
{
    const tile_kernel *k = call->instance->kernel;
    for (int i = 0; i < k->param_count; i++)
        if (is_staged(call, i) && k->params[i].kind != PARAM_IN) QN_TRY(copy_out_one(call, i, stream, error));
    return QN_OK;
}
