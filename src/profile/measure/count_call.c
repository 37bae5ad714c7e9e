/*
 * qn_call_count: counters of one launch of a call, on a GPU or on the CPU. In: a call and a device. Out: a list of counters,
 * those that cannot be read with the reason. A tensor function has several kernels: counting.c counts them. The call has run once before it is counted, so that nothing is compiled or
 * allocated in between.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cuda.h"
#include "profile/measure/counters.h"
#include "run/run.h"

#include <math.h>
#include <string.h>

typedef struct counted {
    qn_call *call;
    int slot;
} counted;

/* The kernel alone, without copies in and out. */
static qn_status run_gpu(void *user, qn_error *error)
{
    const counted *c = user;
    const device_slot *s = &c->call->context->slots[c->slot];
    QN_TRY(s->driver->submit(c->call->ready, NULL, error));
    return s->driver->finish(c->call->ready, error);
}

static qn_status run_cpu(void *user, qn_error *error)
{
    const counted *c = user;
    return call_launch(c->call, c->slot, NULL, error);
}

qn_status qn_call_count(qn_call *call, const char *device, qn_counters *counters, qn_error *error)
{
    HEAP_ENTER(error);
    if (!call || !counters) return error_set(error, QN_BAD_CALL, "qn_call_count: an argument is NULL");
    *counters = (qn_counters){0};
    counted c = {.call = call};
    QN_TRY(context_slot(call->context, device, &c.slot, error));
    const device_slot *s = &call->context->slots[c.slot];
    if (call_is_function(call))
        return error_set(error, QN_BAD_CALL,
                         "these counters are of one kernel, and `%s` is a function of tensors: count its kernels with "
                         "qn_counting_start",
                         call->kernel->name);
    QN_TRY(call_launch(call, c.slot, NULL, error));
    if (s->driver != &driver_cuda) return counters_cpu(run_cpu, &c, counters, error);
    cuda_device *d = (cuda_device *)s->device;
    bool pushed;
    QN_TRY(cuda_enter(d, &pushed, error));
    counters_session *session = counters_session_new(d->context, d->handle);
    qn_status status = counters_session_count(session, run_gpu, &c, counters, error);
    counters_session_free(session);
    cuda_leave(d, pushed);
    return status;
}

double qn_counters_find(const qn_counters *counters, const char *name)
{
    for (int i = 0; counters && i < counters->count; i++)
        if (!strcmp(counters->items[i].name, name)) return counters->items[i].value;
    return NAN;
}
