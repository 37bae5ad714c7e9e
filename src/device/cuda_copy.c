/*
 * Moving bytes between host and GPU, and filling arrays. Large copies go through pinned chunks in turn, so that the
 * host's copy of one overlaps the GPU's copy of another; small ones the driver takes as they are. `write` returns when
 * the host's memory may change, `read` when it is filled. A fill of any view is made of memsets, so that it can be
 * recorded in a graph.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "device/cuda.h"

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
    if (size_bytes > SMALL_BYTES) {
        pthread_mutex_lock(&d->copy_lock);
        staged = stages_ready(d);
        if (staged) status = write_staged(d, stream_of(d, s), address, from, size_bytes, error);
        pthread_mutex_unlock(&d->copy_lock);
    }
    if (!staged) {
        int result = d->api.cuMemcpyHtoDAsync_v2(address, from, size_bytes, stream_of(d, s));
        /* Pageable memory is free again here, except where the driver took it as pinned: the caller's. */
        if (!result && size_bytes > SMALL_BYTES) result = d->api.cuStreamSynchronize(stream_of(d, s));
        if (result) status = cuda_failed(d, result, s ? s : &d->own, "copying to the device", error);
    }
    record_end(begun, RECORD_COPY, "copy to the device", NULL, 0, (int64_t)size_bytes, 0);
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
    if (size_bytes > SMALL_BYTES) {
        pthread_mutex_lock(&d->copy_lock);
        staged = stages_ready(d);
        if (staged) status = read_staged(d, stream_of(d, s), to, address, size_bytes, error);
        pthread_mutex_unlock(&d->copy_lock);
    }
    if (!staged) {
        int result = d->api.cuMemcpyDtoHAsync_v2(to, address, size_bytes, stream_of(d, s));
        if (!result) result = d->api.cuStreamSynchronize(stream_of(d, s));
        if (result) status = cuda_failed(d, result, s ? s : &d->own, "copying from the device", error);
    }
    record_end(begun, RECORD_COPY, "copy from the device", NULL, 0, (int64_t)size_bytes, 1);
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
    int result =
        d->api.cuMemcpyDtoDAsync_v2((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, size_bytes, stream_of(d, s));
    record_end(begun, RECORD_COPY, "copy on the device", NULL, 0, (int64_t)size_bytes, 2);
    qn_status status = result ? cuda_failed(d, result, NULL, "copying on the device", error) : QN_OK;
    cuda_leave(d, pushed);
    return status;
}

/* ---- fills ---- */

typedef struct filling {
    cuda_device *device;
    void *stream;
    size_t size; /* of an element */
    uint64_t bits;
    int64_t counts[MAX_RANK], steps[MAX_RANK]; /* steps in bytes, positive, largest first */
    int rank;
} filling;

/* `count` elements `step` bytes apart. */
static int fill_line(const filling *f, uint64_t at, int64_t count, int64_t step)
{
    const cuda_api *api = &f->device->api;
    size_t n = (size_t)count, pitch = (size_t)step;
    bool dense = pitch == f->size;
    switch (f->size) {
    case 1:
        return dense ? api->cuMemsetD8Async(at, (unsigned char)f->bits, n, f->stream)
                     : api->cuMemsetD2D8Async(at, pitch, (unsigned char)f->bits, 1, n, f->stream);
    case 2:
        return dense ? api->cuMemsetD16Async(at, (unsigned short)f->bits, n, f->stream)
                     : api->cuMemsetD2D16Async(at, pitch, (unsigned short)f->bits, 1, n, f->stream);
    case 4:
        return dense ? api->cuMemsetD32Async(at, (unsigned)f->bits, n, f->stream)
                     : api->cuMemsetD2D32Async(at, pitch, (unsigned)f->bits, 1, n, f->stream);
    default: break;
    }
    unsigned low = (unsigned)f->bits, high = (unsigned)(f->bits >> 32);
    if (dense && low == high) return api->cuMemsetD32Async(at, low, 2 * n, f->stream);
    int result = api->cuMemsetD2D32Async(at, pitch, low, 1, n, f->stream);
    return result ? result : api->cuMemsetD2D32Async(at + 4, pitch, high, 1, n, f->stream);
}

static int fill_axes(const filling *f, int axis, uint64_t at)
{
    if (axis >= f->rank - 1)
        return fill_line(f, at, f->rank ? f->counts[f->rank - 1] : 1,
                         f->rank ? f->steps[f->rank - 1] : (int64_t)f->size);
    int result = 0;
    for (int64_t i = 0; i < f->counts[axis] && !result; i++)
        result = fill_axes(f, axis + 1, at + (uint64_t)(i * f->steps[axis]));
    return result;
}

/* Axes with positive steps, in order, neighbours joined where one continues the other. Returns the lowest address. */
static uint64_t normalise(const array_view *v, filling *f)
{
    uint64_t at = (uint64_t)(uintptr_t)v->data;
    for (int i = 0; i < v->rank; i++) {
        int64_t count = v->extents[i], step = v->strides[i] * (int64_t)f->size;
        if (step < 0) {
            at += (uint64_t)((count - 1) * step);
            step = -step;
        }
        if (count == 1 || step == 0) continue; /* the same element again and again */
        int place = f->rank++;
        for (; place > 0 && f->steps[place - 1] < step; place--) {
            f->counts[place] = f->counts[place - 1];
            f->steps[place] = f->steps[place - 1];
        }
        f->counts[place] = count;
        f->steps[place] = step;
    }
    for (int i = f->rank - 2; i >= 0; i--) {
        if (f->steps[i] != f->counts[i + 1] * f->steps[i + 1]) continue;
        f->counts[i] *= f->counts[i + 1];
        f->steps[i] = f->steps[i + 1];
        for (int k = i + 1; k + 1 < f->rank; k++) {
            f->counts[k] = f->counts[k + 1];
            f->steps[k] = f->steps[k + 1];
        }
        f->rank--;
    }
    return at;
}

qn_status cuda_fill(device *base, device_stream *s, const array_view *view, const void *pattern, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    filling f = {.device = d, .stream = stream_of(d, s), .size = (size_t)dtypes[view->elem].size_bytes};
    bool pushed;
    for (int i = 0; i < view->rank; i++)
        if (!view->extents[i]) return QN_OK;
    memcpy(&f.bits, pattern, f.size);
    uint64_t at = normalise(view, &f);
    QN_TRY(cuda_enter(d, &pushed, error));
    int result = fill_axes(&f, 0, at);
    qn_status status = result ? cuda_failed(d, result, NULL, "filling an array", error) : QN_OK;
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
