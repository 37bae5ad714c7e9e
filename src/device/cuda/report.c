/*
 * What kernels leave behind: failed asserts, accesses outside of arrays (checked builds), printed lines. Each prepared
 * launch has a report and, if it prints, a ring, in pinned memory that the GPU writes over the bus: nothing has to be
 * copied, and a launch that went well costs nothing. They are read when somebody waits for the stream.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cuda.h"
#include "device/cuda/print.h"
#include "device/failure.h"

#include <string.h>

qn_status cuda_report_open(cuda_device *d, qn_error *error)
{
    void *memory = NULL;
    size_t size = sizeof(cuda_report) * CUDA_REPORTS;
    CUDA_TRY(d, d->api.cuMemHostAlloc(&memory, size, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED),
             "allocating pinned memory");
    memset(memory, 0, size);
    d->reports = memory;
    CUDA_TRY(d, d->api.cuMemHostGetDevicePointer_v2(&d->reports_address, memory, 0), "mapping pinned memory");
    return QN_OK;
}

qn_status cuda_tickets_open(cuda_device *d, qn_error *error)
{
    const size_t size = (size_t)CUDA_TICKET_BYTES * CUDA_REPORTS;
    uint64_t memory = 0;
    int result = 0;
    lock_take(&d->lock);
    if (!d->tickets) {
        result = d->api.cuMemAlloc_v2(&memory, size);
        if (!result) result = d->api.cuMemsetD8Async(memory, 0, size, d->own.handle);
        if (!result) result = d->api.cuStreamSynchronize(d->own.handle);
        if (!result) d->tickets = memory;
    }
    lock_give(&d->lock);
    return result ? cuda_failed(d, result, NULL, "allocating tickets", error) : QN_OK;
}

void cuda_report_close(cuda_device *d)
{
    if (d->tickets && !d->lost) d->api.cuMemFree_v2(d->tickets);
    d->tickets = 0;
    if (d->reports && !d->lost) d->api.cuMemFreeHost(d->reports);
    d->reports = NULL;
}

int cuda_report_take(cuda_device *d, device_launch *l)
{
    int found = 0;
    lock_take(&d->lock);
    while (found < CUDA_REPORTS && d->launches[found]) found++;
    if (found < CUDA_REPORTS) {
        memset(&d->reports[found], 0, sizeof(cuda_report));
        d->launches[found] = l;
        d->report_limit = MAXIMUM(d->report_limit, found + 1);
    }
    lock_give(&d->lock);
    return found < CUDA_REPORTS ? found : -1;
}

void cuda_report_give(cuda_device *d, int report)
{
    if (report < 0) return;
    lock_take(&d->lock);
    d->launches[report] = NULL;
    lock_give(&d->lock);
}

static qn_status tell(const device_launch *l, const cuda_report *r, qn_error *error)
{
    const tile_kernel *k = l->program->kernel;
    if (r->failed == CUDA_FAILED_BOUNDS)
        return failure_bounds(k, (int)r->line, r->program, l->programs, r->array, r->index, error);
    return failure_assert(k, (int)r->line, r->program, l->programs, error);
}

/* The lock is held. */
static qn_status read_one(cuda_device *d, device_launch *l, qn_error *error)
{
    volatile cuda_report *r = &d->reports[l->report];
    if (l->print && l->print[1])
        cuda_print_drain(l->print, CUDA_PRINT_WORDS, l->program->kernel, d->options.print, d->options.print_user);
    if (!r->failed) return QN_OK;
    qn_status status = tell(l, &d->reports[l->report], error);
    memset(&d->reports[l->report], 0, sizeof(cuda_report));
    return status;
}

qn_status cuda_report_read(device_stream *s, qn_error *error)
{
    cuda_device *d = s->device;
    qn_status status = QN_OK;
    qn_error unread;
    lock_take(&d->lock);
    for (int i = 0; i < d->report_limit; i++) {
        device_launch *l = d->launches[i];
        if (!l || (l->stream && l->stream != s)) continue;
        qn_status one = read_one(d, l, status == QN_OK ? error : &unread);
        if (status == QN_OK) status = one;
    }
    lock_give(&d->lock);
    return status;
}

qn_status cuda_report_read_one(device_launch *l, qn_error *error)
{
    cuda_device *d = l->program->device;
    if (!d->reports[l->report].failed && !l->print) return QN_OK;
    lock_take(&d->lock);
    qn_status status = read_one(d, l, error);
    lock_give(&d->lock);
    return status;
}
