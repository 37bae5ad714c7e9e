/*
 * Filling arrays. Small ones that lie in one piece are filled by a kernel, which begins while the launch before it ends
 * and lets the next one begin: a fill by the driver stands between launches for longer than it takes. It is PTX, which
 * the driver compiles once; where it cannot, and for all else, the driver's own fills do it.
 * In: a view of any strides and the bits of an element. Out: work on the stream.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cuda.h"

#include <string.h>

enum { SMALL_WORDS = 1 << 16, FILL_THREADS = 128 };

static const char fill_ptx[] = ".version 7.8\n"
                               ".target sm_90\n"
                               ".address_size 64\n"
                               ".visible .entry quern_fill(.param .u64 to, .param .u64 count, .param .u32 word)\n"
                               "{\n"
                               "    .reg .pred %outside;\n"
                               "    .reg .b32 %block, %threads, %thread, %word;\n"
                               "    .reg .b64 %at, %count, %index, %place;\n"
                               "    griddepcontrol.launch_dependents;\n"
                               "    ld.param.u64 %at, [to];\n"
                               "    ld.param.u64 %count, [count];\n"
                               "    ld.param.u32 %word, [word];\n"
                               "    mov.u32 %block, %ctaid.x;\n"
                               "    mov.u32 %threads, %ntid.x;\n"
                               "    mov.u32 %thread, %tid.x;\n"
                               "    mul.wide.u32 %index, %block, %threads;\n"
                               "    cvt.u64.u32 %place, %thread;\n"
                               "    add.u64 %index, %index, %place;\n"
                               "    setp.ge.u64 %outside, %index, %count;\n"
                               "    shl.b64 %place, %index, 2;\n"
                               "    add.u64 %place, %at, %place;\n"
                               "    griddepcontrol.wait;\n"
                               "    @%outside bra done;\n"
                               "    st.global.u32 [%place], %word;\n"
                               "done:\n"
                               "    ret;\n"
                               "}\n";

typedef struct filling {
    cuda_device *device;
    void *stream;
    bool capturing;
    size_t size; /* of an element */
    uint64_t bits;
    int64_t counts[MAX_RANK], steps[MAX_RANK]; /* steps in bytes, positive, largest first */
    int rank;
} filling;

/* The kernel, or NULL: there is none, or not now. A recording does not begin with compiling. */
static void *fill_kernel(const filling *f)
{
    cuda_device *d = f->device;
    lock_take(&d->lock);
    if (!d->fill_tried && !f->capturing) {
        d->fill_tried = true;
        bool able =
            d->target.arch >= 90 && d->api.cuLaunchKernelEx && !d->api.cuModuleLoadData(&d->fill_module, fill_ptx);
        if (able && d->api.cuModuleGetFunction(&d->fill_function, d->fill_module, "quern_fill"))
            d->fill_function = NULL;
    }
    void *function = d->fill_function;
    lock_give(&d->lock);
    return function;
}

/* `count` elements side by side, by the kernel; false: that is not for it. */
static bool fill_small(const filling *f, uint64_t at, int64_t count, int *result)
{
    uint64_t bytes = (uint64_t)count * f->size, bits = f->bits;
    if (at % 4 || bytes % 4 || bytes / 4 > SMALL_WORDS) return false;
    if (f->size == 1) bits = (bits & 0xff) * 0x01010101u;
    if (f->size == 2) bits = (bits & 0xffff) * 0x00010001u;
    unsigned word = (unsigned)bits;
    if (f->size == 8 && word != (unsigned)(bits >> 32)) return false;
    void *function = fill_kernel(f);
    if (!function) return false;
    uint64_t words = bytes / 4;
    void *parameters[] = {&at, &words, &word};
    cuda_launch_attribute overlap = {.id = CUDA_LAUNCH_OVERLAP, .value.number = 1};
    cuda_launch_config config = {
        .grid = {(unsigned)((words + FILL_THREADS - 1) / FILL_THREADS), 1, 1},
        .block = {words < FILL_THREADS ? (unsigned)(words + 31) / 32 * 32 : FILL_THREADS, 1, 1},
        .stream = f->stream,
        .attributes = &overlap,
        .attribute_count = 1};
    *result = f->device->api.cuLaunchKernelEx(&config, function, parameters, NULL);
    return true;
}

/* `count` elements `step` bytes apart. */
static int fill_line(const filling *f, uint64_t at, int64_t count, int64_t step)
{
    const cuda_api *api = &f->device->api;
    size_t n = (size_t)count, pitch = (size_t)step;
    bool dense = pitch == f->size;
    int result;
    if (dense && fill_small(f, at, count, &result)) return result;
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
    result = api->cuMemsetD2D32Async(at, pitch, low, 1, n, f->stream);
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
    filling f = {.device = d, .stream = s ? s->handle : d->own.handle, .size = (size_t)dtypes[view->elem].size_bytes};
    bool pushed;
    for (int i = 0; i < view->rank; i++)
        if (!view->extents[i]) return QN_OK;
    f.capturing = s && s->capturing;
    memcpy(&f.bits, pattern, f.size);
    uint64_t at = normalise(view, &f);
    QN_TRY(cuda_enter(d, &pushed, error));
    int result = fill_axes(&f, 0, at);
    qn_status status = result ? cuda_failed(d, result, NULL, "filling an array", error) : QN_OK;
    cuda_leave(d, pushed);
    return status;
}

void cuda_fill_close(cuda_device *d)
{
    if (d->fill_module && !d->lost) d->api.cuModuleUnload(d->fill_module);
    d->fill_module = d->fill_function = NULL;
}
