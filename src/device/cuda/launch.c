/*
 * Loading and launching. A program is a loaded cubin with one function a phase. A prepared launch holds everything that
 * the driver needs (frames, shapes, scratch memory): submitting it again costs the driver's own calls and nothing else.
 * A launch that asks for more threads or shared memory than there are is refused here, with the numbers.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cuda.h"
#include "device/cuda/library.h"
#include "device/cuda/print.h"
#include "device/cuda/trace.h"
#include "emit/raw/raw.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_SHARED_BYTES 49152 /* what a block may ask for without being allowed more */

static qn_status find_phase(cuda_program *p, int number, const char *binary_path, qn_error *error)
{
    cuda_device *d = p->device;
    char name[512];
    snprintf(name, sizeof(name), "%.400s_phase%d", p->kernel->name, number);
    if (d->api.cuModuleGetFunction(&p->phases[number].function, p->module, name))
        return error_set(error, QN_FAILED, "%s is not the binary of kernel `%s`: it has no %s", binary_path,
                         p->kernel->name, name);
    void *f = p->phases[number].function;
    CUDA_TRY(d, d->api.cuFuncGetAttribute(&p->phases[number].most_threads, CUDA_FUNCTION_THREADS, f), "loading");
    CUDA_TRY(d, d->api.cuFuncGetAttribute(&p->phases[number].static_shared, CUDA_FUNCTION_STATIC_SHARED, f), "loading");
    p->phases[number].dynamic_shared = DEFAULT_SHARED_BYTES - p->phases[number].static_shared;
    return QN_OK;
}

/* The kernel as a product that the library may compute, where that is asked for. */
static void find_product(cuda_program *p)
{
    cuda_device *d = p->device;
    p->whole_why = d->target.checked ? "every access is to be tested" : "nobody asked for the library";
    if (p->kernel->knobs[KNOB_LIBRARY] <= 0 || d->target.checked) return;
    lock_take(&d->lock);
    bool there = cuda_library_open(d, NULL) == QN_OK;
    lock_give(&d->lock);
    p->whole_why = "cuBLASLt is not there";
    if (!there) return;
    p->whole_memory = arena_new();
    p->whole = whole_find(p->kernel, p->whole_memory, &p->whole_why);
}

qn_status cuda_program_load(device *base, const tile_kernel *k, const char *binary_path, cuda_layout *layout,
                            program **out, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    char *image = NULL;
    size_t size = 0;
    bool pushed;
    QN_TRY(file_read(binary_path, (size_t)1 << 30, &image, &size, error));
    if (cuda_enter(d, &pushed, error) != QN_OK) {
        heap_free(image);
        return error ? error->status : QN_NO_DEVICE;
    }
    cuda_program *p = heap_new(sizeof(*p));
    p->driver = d->driver;
    p->device = d;
    p->kernel = k;
    p->layout = layout;
    p->phase_count = k->raw_language ? 1 : k->phase_count;
    CHECK(p->phase_count <= MAX_PHASES);
    p->prints = cuda_prints(k);
    find_product(p);
    int mode;
    cuda_relax(d, &mode);
    int result = d->api.cuModuleLoadData(&p->module, image);
    cuda_relaxed(d, mode);
    qn_status status = QN_OK;
    if (result) status = cuda_failed(d, result, NULL, "loading a compiled kernel", error);
    for (int i = 0; i < p->phase_count && status == QN_OK; i++) status = find_phase(p, i, binary_path, error);
    if (status != QN_OK && p->module && !d->lost) d->api.cuModuleUnload(p->module);
    cuda_leave(d, pushed);
    heap_free(image);
    if (status != QN_OK) {
        arena_free(p->whole_memory);
        heap_free(p);
    } else {
        *out = (program *)p;
    }
    return status;
}

void cuda_unload(program *base)
{
    cuda_program *p = (cuda_program *)base;
    cuda_device *d = p->device;
    bool pushed, busy = false;
    qn_error ignored;
    lock_take(&d->lock);
    for (device_stream *s = d->streams; s; s = s->next) busy |= s->pending != 0;
    lock_give(&d->lock);
    if (busy) cuda_settle(d);
    if (cuda_enter(d, &pushed, &ignored) == QN_OK) {
        d->api.cuModuleUnload(p->module);
        cuda_leave(d, pushed);
    }
    cuda_layout_free(p->layout);
    arena_free(p->whole_memory);
    heap_free(p);
}

/* ---- preparing ---- */

/* May this function run with so many threads and so much shared memory? */
static qn_status check_limits(cuda_program *p, int phase, const cuda_shape *shape, qn_error *error)
{
    cuda_device *d = p->device;
    int most = p->phases[phase].most_threads, fixed = p->phases[phase].static_shared;
    if (shape->threads > most)
        return error_set(error, QN_FAILED,
                         "kernel `%s` asks for blocks of %d threads; with the registers it uses, %s runs at most %d",
                         p->kernel->name, shape->threads, d->name, most);
    if (shape->shared_bytes + fixed > d->target.shared_bytes)
        return error_set(error, QN_FAILED,
                         "kernel `%s` asks for %lld bytes of shared memory a block; %s has at most %d", p->kernel->name,
                         (long long)shape->shared_bytes + fixed, d->name, d->target.shared_bytes);
    void *f = p->phases[phase].function;
    if (shape->shared_bytes > p->phases[phase].dynamic_shared) {
        CUDA_TRY(d, d->api.cuFuncSetAttribute(f, CUDA_FUNCTION_DYNAMIC_SHARED, (int)shape->shared_bytes),
                 "asking for shared memory");
        p->phases[phase].dynamic_shared = (int)shape->shared_bytes;
    }
    if (shape->cluster > 8 && !p->phases[phase].any_cluster) {
        CUDA_TRY(d, d->api.cuFuncSetAttribute(f, CUDA_FUNCTION_ANY_CLUSTER, 1), "asking for a large cluster");
        p->phases[phase].any_cluster = true;
    }
    if (shape->cluster > 1 && !d->api.cuLaunchKernelEx)
        return error_set(error, QN_NO_DEVICE, "kernel `%s` uses clusters: they need a driver of CUDA 11.8 or newer",
                         p->kernel->name);
    return QN_OK;
}

/* All blocks of a cooperative launch must be there at once: fewer, if that is right, too. */
static qn_status fit_cooperative(cuda_program *p, int phase, cuda_shape *shape, qn_error *error)
{
    cuda_device *d = p->device;
    int each = 0;
    CUDA_TRY(d,
             d->api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, p->phases[phase].function, shape->threads,
                                                                (size_t)shape->shared_bytes),
             "counting blocks");
    int64_t wanted = shape->grid[0] * shape->grid[1] * shape->grid[2], most = (int64_t)each * d->target.multiprocessors;
    if (wanted <= most) return QN_OK;
    if (shape->fewer && most > 0) {
        shape->grid[0] = most;
        return QN_OK;
    }
    return error_set(
        error, QN_FAILED,
        "kernel `%s` asks for %lld blocks at once (%d threads, %lld bytes of shared memory each); %s holds "
        "%lld",
        p->kernel->name, (long long)wanted, shape->threads, (long long)shape->shared_bytes, d->name, (long long)most);
}

/* May its blocks come while the launch before it ends? Generated text waits for that end before it touches memory
 * (grid_begin in the prelude); a raw kernel does not. */
static bool may_overlap(const cuda_program *p, const cuda_shape *shape)
{
    const cuda_device *d = p->device;
    return p->layout && d->target.arch >= 90 && !shape->cooperative && d->api.cuLaunchKernelEx;
}

static qn_status shape_phase(device_launch *l, int number, const launch_plan *plan, cuda_shape *shape, qn_error *error)
{
    cuda_program *p = l->program;
    cuda_phase *phase = &l->phases[number];
    phase->function = p->phases[number].function;
    phase->empty = true;
    phase->sync_bytes = 0;
    phase->ticket = false;
    QN_TRY(p->layout ? cuda_shape_of(p->layout, number, plan, shape, error)
                     : raw_cuda_shape(p->kernel, plan, &p->device->target, shape, error));
    phase->empty = !shape->grid[0] || !shape->grid[1] || !shape->grid[2];
    if (phase->empty) return QN_OK;
    QN_TRY(check_limits(p, number, shape, error));
    if (shape->cooperative) QN_TRY(fit_cooperative(p, number, shape, error));
    cuda_launch_config *c = &phase->config;
    *c = (cuda_launch_config){.block = {(unsigned)shape->threads, 1, 1},
                              .shared_bytes = (unsigned)shape->shared_bytes,
                              .attributes = phase->attributes};
    for (int axis = 0; axis < 3; axis++) {
        c->grid[axis] = (unsigned)shape->grid[axis];
        if (shape->block[0]) c->block[axis] = (unsigned)shape->block[axis];
    }
    if (shape->cooperative)
        phase->attributes[c->attribute_count++] =
            (cuda_launch_attribute){.id = CUDA_LAUNCH_COOPERATIVE, .value.number = 1};
    if (shape->cluster > 1)
        phase->attributes[c->attribute_count++] =
            (cuda_launch_attribute){.id = CUDA_LAUNCH_CLUSTER, .value.dimensions = {(unsigned)shape->cluster, 1, 1}};
    if (may_overlap(p, shape))
        phase->attributes[c->attribute_count++] = (cuda_launch_attribute){.id = CUDA_LAUNCH_OVERLAP, .value.number = 1};
    phase->ticket = shape->ticket;
    phase->sync_bytes = shape->ticket ? 0 : shape->sync_bytes;
    return QN_OK;
}

/* Memory that grows and never shrinks. */
static qn_status grow(cuda_device *d, uint64_t *memory, int64_t *have, int64_t want, qn_error *error)
{
    void *fresh = NULL;
    if (want <= *have) return QN_OK;
    QN_TRY(cuda_allocate((device *)d, (size_t)want, &fresh, error));
    cuda_release((device *)d, (void *)(uintptr_t)*memory);
    *memory = (uint64_t)(uintptr_t)fresh;
    *have = want;
    return QN_OK;
}

static qn_status open_print(device_launch *l, qn_error *error)
{
    cuda_device *d = l->program->device;
    void *memory = NULL;
    if (!l->program->prints || l->print || !d->options.print) return QN_OK;
    size_t size = sizeof(int64_t) * (size_t)CUDA_PRINT_WORDS;
    int mode;
    cuda_relax(d, &mode);
    int result = d->api.cuMemHostAlloc(&memory, size, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED);
    cuda_relaxed(d, mode);
    CUDA_TRY(d, result, "allocating pinned memory");
    memset(memory, 0, size);
    l->print = memory;
    cuda_print_reset(l->print, CUDA_PRINT_WORDS);
    CUDA_TRY(d, d->api.cuMemHostGetDevicePointer_v2(&l->print_address, memory, 0), "mapping pinned memory");
    return QN_OK;
}

/* Only those whose array is not the one of the last time. */
static qn_status encode_maps(cuda_device *d, cuda_phase *phase, const array_view *arrays, qn_error *error)
{
    if (phase->map_count && !d->api.cuTensorMapEncodeTiled)
        return error_set(error, QN_NO_DEVICE, "the copy engine needs a driver of CUDA 12.0 or newer");
    for (int i = 0; i < phase->map_count && !phase->empty; i++) {
        map_numbers numbers;
        QN_TRY(map_numbers_of(&phase->maps[i], &arrays[phase->maps[i].param], &numbers, error));
        if (!memcmp(&numbers, &phase->mapped[i], sizeof(numbers))) continue;
        bool pushed; /* who only moves arrays is not in the context */
        QN_TRY(cuda_enter(d, &pushed, error));
        int result = map_for_driver(&d->api, &numbers, phase->frame + i * CUDA_MAP_WORDS);
        cuda_leave(d, pushed);
        CUDA_TRY(d, result, "encoding a tensor map");
        phase->mapped[i] = numbers;
    }
    return QN_OK;
}

/* Where the library can, it computes the launch, with a workspace of the launch. Without memory for that the kernel does. */
static qn_status ask_library(device_launch *l, const array_view *arrays, const launch_plan *plan, qn_error *error)
{
    cuda_program *p = l->program;
    cuda_device *d = p->device;
    l->matmul_why = p->whole_why;
    if (!p->whole) return QN_OK;
    QN_TRY(cuda_matmul_prepare(d, p->whole, p->kernel->knobs[KNOB_LIBRARY], arrays, plan, &l->matmul, &l->matmul_why,
                               error));
    qn_error unread;
    if (l->matmul && grow(d, &l->workspace, &l->workspace_bytes, (int64_t)cuda_matmul_workspace(l->matmul), &unread)) {
        if (unread.status != QN_NO_MEMORY) {
            if (error) *error = unread;
            return unread.status;
        }
        cuda_matmul_free(d, l->matmul);
        l->matmul = NULL;
        l->matmul_why = "there is no memory for its workspace";
    }
    return QN_OK;
}

static qn_status refresh(device_launch *l, const array_view *arrays, const launch_plan *plan, qn_error *error)
{
    cuda_program *p = l->program;
    cuda_device *d = p->device;
    QN_TRY(ask_library(l, arrays, plan, error));
    int64_t scratch = 0, sync = 0;
    bool tickets = false;
    int axes = 0;
    for (int i = 0; i < l->phase_count; i++) {
        cuda_shape shape = {0};
        QN_TRY(shape_phase(l, i, plan, &shape, error));
        scratch = MAXIMUM(scratch, shape.scratch_bytes);
        sync = MAXIMUM(sync, l->phases[i].sync_bytes);
        tickets |= l->phases[i].ticket;
        int own = plan->programs[i][2] > 1 ? 3 : plan->programs[i][1] > 1 ? 2 : 1;
        if (own > axes) memcpy(l->programs, plan->programs[i], sizeof(l->programs));
        axes = MAXIMUM(axes, own);
    }
    QN_TRY(grow(d, &l->scratch, &l->scratch_bytes, scratch, error));
    QN_TRY(grow(d, &l->sync, &l->sync_bytes, sync, error));
    QN_TRY(open_print(l, error));
    if (tickets) QN_TRY(cuda_tickets_open(d, error));
    uint64_t report = d->reports_address + sizeof(cuda_report) * (uint64_t)l->report;
    cuda_tail tail = {.report = (cuda_report *)(uintptr_t)report,
                      .scratch = (void *)(uintptr_t)l->scratch,
                      .print = (void *)(uintptr_t)l->print_address,
                      .units = d->target.multiprocessors};
    for (int i = 0; i < l->phase_count; i++) {
        int64_t *frame = l->phases[i].frame + l->phases[i].map_count * CUDA_MAP_WORDS;
        QN_TRY(encode_maps(d, &l->phases[i], arrays, error));
        cuda_frame_arguments(p->kernel, arrays, plan, frame);
        uint64_t words = l->phases[i].ticket       ? d->tickets + CUDA_TICKET_BYTES * (uint64_t)l->report
                         : l->phases[i].sync_bytes ? l->sync
                                                   : 0;
        tail.sync = (void *)(uintptr_t)words;
        cuda_frame_tail(p->kernel, plan, i, &tail, frame);
    }
    return QN_OK;
}

qn_status cuda_prepare(program *base, const array_view *arrays, const launch_plan *plan, device_launch **launch,
                       qn_error *error)
{
    cuda_program *p = (cuda_program *)base;
    cuda_device *d = p->device;
    bool pushed;
    QN_TRY(cuda_enter(d, &pushed, error));
    device_launch *l = *launch;
    if (l && l->program != p) {
        cuda_discard(l);
        l = NULL;
    }
    if (!l) {
        size_t words = 0;
        int maps = 0;
        const cuda_map *list[MAX_PHASES] = {0};
        int counts[MAX_PHASES] = {0};
        for (int i = 0; i < p->phase_count; i++) {
            maps += counts[i] = cuda_layout_maps(p->layout, i, &list[i]);
            words += (size_t)cuda_frame_words(p->kernel, counts[i]);
        }
        l = heap_new(sizeof(*l) + sizeof(int64_t) * words);
        l->mapped = maps ? heap_array((size_t)maps, sizeof(map_numbers)) : NULL;
        l->program = p;
        l->phase_count = p->phase_count;
        l->report = cuda_report_take(d, l);
        if (l->report < 0) {
            heap_free(l->mapped);
            heap_free(l);
            cuda_leave(d, pushed);
            *launch = NULL;
            return error_set(error, QN_FAILED, "%d calls are ready on %s at once; free some", CUDA_REPORTS, d->name);
        }
        words = 0;
        maps = 0;
        for (int i = 0; i < p->phase_count; i++) {
            cuda_phase *phase = &l->phases[i];
            phase->frame = l->words + words;
            phase->parameters[0] = phase->frame;
            phase->maps = list[i];
            phase->map_count = counts[i];
            phase->mapped = l->mapped + maps;
            maps += counts[i];
            words += (size_t)cuda_frame_words(p->kernel, counts[i]);
        }
    }
    *launch = l;
    qn_status status = refresh(l, arrays, plan, error);
    cuda_leave(d, pushed);
    return status;
}

/* The library with arrays that have moved; where it can not go on the kernel does from now on. */
static qn_status move_library(device_launch *l, const array_view *arrays, qn_error *error)
{
    cuda_device *d = l->program->device;
    bool pushed;
    QN_TRY(cuda_enter(d, &pushed, error));
    bool moved = cuda_matmul_move(d, l->matmul, arrays) &&
                 grow(d, &l->workspace, &l->workspace_bytes, (int64_t)cuda_matmul_workspace(l->matmul), NULL) == QN_OK;
    if (!moved) {
        cuda_matmul_free(d, l->matmul);
        l->matmul = NULL;
        l->matmul_why = "its arrays have moved to where the library does not take them";
    }
    cuda_leave(d, pushed);
    return QN_OK;
}

/* Where the word of an array's address is, it is again: only the addresses are written, and the maps of moved arrays. */
qn_status cuda_move(device_launch *l, const array_view *arrays, qn_error *error)
{
    const tile_kernel *k = l->program->kernel;
    if (l->matmul) QN_TRY(move_library(l, arrays, error));
    for (int i = 0; i < l->phase_count; i++) {
        cuda_phase *phase = &l->phases[i];
        int64_t *word = phase->frame + phase->map_count * CUDA_MAP_WORDS;
        QN_TRY(encode_maps(l->program->device, phase, arrays, error));
        for (int p = 0; p < k->param_count; p++) {
            bool array = k->params[p].kind < PARAM_SCALAR;
            if (array) *word = (int64_t)(intptr_t)arrays[p].data;
            word += array ? 1 + 2 * k->params[p].rank : 1;
        }
    }
    return QN_OK;
}

void cuda_discard(device_launch *l)
{
    if (!l) return;
    cuda_device *d = l->program->device;
    cuda_report_give(d, l->report);
    cuda_release((device *)d, (void *)(uintptr_t)l->scratch);
    cuda_release((device *)d, (void *)(uintptr_t)l->sync);
    cuda_release((device *)d, (void *)(uintptr_t)l->workspace);
    bool pushed;
    qn_error ignored;
    if (l->print && cuda_enter(d, &pushed, &ignored) == QN_OK) {
        cuda_settle(d);
        d->api.cuMemFreeHost(l->print);
        cuda_leave(d, pushed);
    }
    cuda_matmul_free(d, l->matmul);
    heap_free(l->mapped);
    heap_free(l);
}

const char *cuda_launch_library(const device_launch *l, const char **why)
{
    *why = l ? l->matmul_why : "it was not prepared";
    return l && l->matmul ? cuda_matmul_name(l->matmul) : NULL;
}

/* ---- submitting ---- */

static int start(cuda_device *d, cuda_phase *phase)
{
    cuda_launch_config *c = &phase->config;
    if (d->api.cuLaunchKernelEx) return d->api.cuLaunchKernelEx(c, phase->function, phase->parameters, NULL);
    if (c->attribute_count)
        return d->api.cuLaunchCooperativeKernel(phase->function, c->grid[0], c->grid[1], c->grid[2], c->block[0],
                                                c->block[1], c->block[2], c->shared_bytes, c->stream,
                                                phase->parameters);
    return d->api.cuLaunchKernel(phase->function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1],
                                 c->block[2], c->shared_bytes, c->stream, phase->parameters, NULL);
}

qn_status cuda_submit(device_launch *l, device_stream *s, qn_error *error)
{
    cuda_device *d = l->program->device;
    bool pushed;
    if (!s) s = &d->own;
    QN_TRY(cuda_enter(d, &pushed, error));
    int result = 0;
    int64_t span = cuda_trace_begin(d, s);
    const char *name = l->matmul ? cuda_matmul_name(l->matmul) : l->program->kernel->name;
    const char *refused = l->matmul ? cuda_matmul_submit(d, l->matmul, l->workspace, s->handle) : NULL;
    for (int i = 0; i < l->phase_count && !result && !l->matmul; i++) {
        cuda_phase *phase = &l->phases[i];
        if (phase->empty) continue;
        phase->config.stream = s->handle;
        if (phase->sync_bytes) result = d->api.cuMemsetD8Async(l->sync, 0, (size_t)phase->sync_bytes, s->handle);
        if (!result) result = start(d, phase);
    }
    cuda_trace_end(d, s, span);
    cuda_leave(d, pushed);
    l->stream = s->capturing ? NULL : s;
    if (s->capturing)
        s->recorded[s->recorded_count++ % CUDA_RECENT] = name;
    else
        cuda_stream_note(s, name);
    if (refused) return error_set(error, QN_FAILED, "%s: the library says: %s", name, refused);
    if (result) {
        char doing[300];
        snprintf(doing, sizeof(doing), "launching kernel `%.200s`", l->program->kernel->name);
        return cuda_failed(d, result, NULL, doing, error);
    }
    return d->synchronous && !s->capturing ? cuda_finish(l, error) : QN_OK;
}

qn_status cuda_finish(device_launch *l, qn_error *error)
{
    cuda_device *d = l->program->device;
    device_stream *s = l->stream;
    bool pushed;
    if (!s) return QN_OK;
    QN_TRY(cuda_enter(d, &pushed, error));
    int result = d->api.cuStreamSynchronize(s->handle);
    qn_status status = result ? cuda_failed(d, result, s, "waiting for the device", error) : QN_OK;
    cuda_leave(d, pushed);
    atomic_store(&s->pending, 0);
    return status == QN_OK ? cuda_report_read_one(l, error) : status;
}

qn_status cuda_launch_and_wait(program *base, const array_view *arrays, const launch_plan *plan,
                               const launch_options *options, qn_error *error)
{
    device_launch *l = NULL;
    (void)options;
    qn_status status = cuda_prepare(base, arrays, plan, &l, error);
    CHECK(l || status != QN_OK);
    if (status == QN_OK) status = cuda_submit(l, NULL, error);
    if (status == QN_OK) status = cuda_finish(l, error);
    cuda_discard(l);
    return status;
}
