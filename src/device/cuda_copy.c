/*
 * Moving bytes between host and GPU. Large copies go through pinned chunks in turn, so that the
 * host's copy of one overlaps the GPU's copy of another; small ones the driver takes as they are. `write` returns when
 * the host's memory may change, `read` when it is filled.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "device/cuda_trace.h"

#include <stdlib.h>
#include <string.h>

#define STAGE_BYTES ((size_t)4 << 20)
#define SMALL_BYTES ((size_t)64 << 10) /* not worth a chunk */

static void *stream_of(cuda_device *d, const device_stream *s)
{
    return s ? s->handle : d->own.handle;
}

/* The chunks; the copy lock is held. False: no pinned memory, the driver's own way must do. */
static bool stages_ready(cuda_device *d)
{
    for (int i = 0; i < CUDA_STAGES && !d->stage[i]; i++) {
        void *memory = NULL;
        if (d->api.cuMemHostAlloc(&memory, STAGE_BYTES, CUDA_HOST_PORTABLE)) return false;
        if (d->api.cuEventCreate(&d->stage_event[i], CUDA_EVENT_NO_TIMING)) {
            d->api.cuMemFreeHost(memory);
            return false;
        }
        d->stage[i] = memory;
    }
    return d->stage[CUDA_STAGES - 1] != NULL;
}

static qn_status write_staged(cuda_device *d, void *stream, uint64_t to, const char *from, size_t size, qn_error *error)
{
    int turn = 0;
    for (size_t done = 0; done < size; turn = (turn + 1) % CUDA_STAGES) {
        size_t part = MINIMUM(size - done, STAGE_BYTES);
        CUDA_TRY(d, d->api.cuEventSynchronize(d->stage_event[turn]), "copying to the device");
        memcpy(d->stage[turn], from + done, part);
        CUDA_TRY(d, d->api.cuMemcpyHtoDAsync_v2(to + done, d->stage[turn], part, stream), "copying to the device");
        CUDA_TRY(d, d->api.cuEventRecord(d->stage_event[turn], stream), "copying to the device");
        done += part;
    }
    return QN_OK;
}

/* Chunk n is asked for before chunk n - 1 is taken out. */
static qn_status read_staged(cuda_device *d, void *stream, char *to, uint64_t from, size_t size, qn_error *error)
{
    size_t asked = 0, taken = 0;
    for (int turn = 0; taken < size;) {
        while (asked < size && asked - taken < CUDA_STAGES * STAGE_BYTES) {
            int chunk = (int)(asked / STAGE_BYTES % CUDA_STAGES);
            size_t part = MINIMUM(size - asked, STAGE_BYTES);
            CUDA_TRY(d, d->api.cuEventSynchronize(d->stage_event[chunk]), "copying from the device");
            CUDA_TRY(d, d->api.cuMemcpyDtoHAsync_v2(d->stage[chunk], from + asked, part, stream),
                     "copying from the device");
            CUDA_TRY(d, d->api.cuEventRecord(d->stage_event[chunk], stream), "copying from the device");
            asked += part;
        }
        size_t part = MINIMUM(size - taken, STAGE_BYTES);
        CUDA_TRY(d, d->api.cuEventSynchronize(d->stage_event[turn]), "copying from the device");
        memcpy(to + taken, d->stage[turn], part);
        taken += part;
        turn = (turn + 1) % CUDA_STAGES;
    }
    return QN_OK;
}

static qn_status check_capture(const device_stream *s, qn_error *error)
{
    if (!s || !s->capturing) return QN_OK;
    return error_set(error, QN_BAD_CALL,
                     "a copy between host and device cannot be recorded in a graph; copy before the recording begins");
}

qn_status cuda_write(device *base, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    if (!size_bytes) return QN_OK;
    QN_TRY(check_capture(s, error));
    QN_TRY(cuda_enter(d, &pushed, error));
    uint64_t address = (uint64_t)(uintptr_t)to;
    qn_status status = QN_OK;
    bool staged = false;
    int64_t begun = record_begin();
    uint64_t identity = record_enter("copy to the device");
    int64_t span = cuda_trace_begin(d, s ? s : &d->own);
    if (size_bytes > SMALL_BYTES) {
        lock_take(&d->copy_lock);
        staged = stages_ready(d);
        if (staged) status = write_staged(d, stream_of(d, s), address, from, size_bytes, error);
        lock_give(&d->copy_lock);
    }
    if (!staged) {
        int result = d->api.cuMemcpyHtoDAsync_v2(address, from, size_bytes, stream_of(d, s));
        /* Pageable memory is free again here, except where the driver took it as pinned: the caller's. */
        if (!result && size_bytes > SMALL_BYTES) result = d->api.cuStreamSynchronize(stream_of(d, s));
        if (result) status = cuda_failed(d, result, s ? s : &d->own, "copying to the device", error);
    }
    cuda_trace_end(d, s ? s : &d->own, span);
    record_leave(identity);
    record_end(begun, RECORD_COPY, "copy to the device", NULL, identity, (int64_t)size_bytes, 0);
    cuda_leave(d, pushed);
    return status;
}

qn_status cuda_read(device *base, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    if (!size_bytes) return QN_OK;
    QN_TRY(check_capture(s, error));
    QN_TRY(cuda_enter(d, &pushed, error));
    uint64_t address = (uint64_t)(uintptr_t)from;
    qn_status status = QN_OK;
    bool staged = false;
    int64_t begun = record_begin();
    uint64_t identity = record_enter("copy from the device");
    int64_t span = cuda_trace_begin(d, s ? s : &d->own);
    if (size_bytes > SMALL_BYTES) {
        lock_take(&d->copy_lock);
        staged = stages_ready(d);
        if (staged) status = read_staged(d, stream_of(d, s), to, address, size_bytes, error);
        lock_give(&d->copy_lock);
    }
    if (!staged) {
        int result = d->api.cuMemcpyDtoHAsync_v2(to, address, size_bytes, stream_of(d, s));
        if (!result) result = d->api.cuStreamSynchronize(stream_of(d, s));
        if (result) status = cuda_failed(d, result, s ? s : &d->own, "copying from the device", error);
    }
    cuda_trace_end(d, s ? s : &d->own, span);
    record_leave(identity);
    record_end(begun, RECORD_COPY, "copy from the device", NULL, identity, (int64_t)size_bytes, 1);
    cuda_leave(d, pushed);
    return status;
}

qn_status cuda_copy(device *base, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    if (!size_bytes) return QN_OK;
    QN_TRY(cuda_enter(d, &pushed, error));
    int64_t begun = record_begin();
    uint64_t identity = record_enter("copy on the device");
    int64_t span = cuda_trace_begin(d, s ? s : &d->own);
    int result =
        d->api.cuMemcpyDtoDAsync_v2((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, size_bytes, stream_of(d, s));
    cuda_trace_end(d, s ? s : &d->own, span);
    record_leave(identity);
    record_end(begun, RECORD_COPY, "copy on the device", NULL, identity, (int64_t)size_bytes, 2);
    qn_status status = result ? cuda_failed(d, result, NULL, "copying on the device", error) : QN_OK;
    cuda_leave(d, pushed);
    return status;
}

void cuda_copy_close(cuda_device *d)
{
    for (int i = 0; i < CUDA_STAGES && d->stage[i] && !d->lost; i++) {
        d->api.cuEventDestroy_v2(d->stage_event[i]);
        d->api.cuMemFreeHost(d->stage[i]);
    }
}
