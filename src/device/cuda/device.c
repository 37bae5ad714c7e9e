/*
 * The `cuda` device: finding GPUs, saying what they are or why there is none, and the driver's table. Nothing happens
 * when a context of Quern is opened; the libraries are looked for when somebody asks about the device, and the CUDA
 * context is made when something is to run.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cuda.h"
#include "device/cuda/library.h"
#include "emit/raw/raw.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST_CAPABILITY = 75 };

static device *open_device(const device_options *options)
{
    cuda_device *d = heap_new(sizeof(*d));
    d->driver = &driver_cuda;
    if (options) d->options = *options;
    d->number = d->options.number;
    snprintf(d->name, sizeof(d->name), d->number ? "cuda:%d" : "cuda", d->number);
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->copy_lock, NULL);
    const char *sync = environment_get("QUERN_SYNC");
    d->synchronous = sync && strcmp(sync, "0") != 0;
    return (device *)d;
}

static void close_device(device *base)
{
    cuda_device *d = (cuda_device *)base;
    bool pushed;
    qn_error ignored;
    if (d->opened && cuda_enter(d, &pushed, &ignored) == QN_OK) {
        d->api.cuCtxSynchronize();
        cuda_trace_close(d);
        cuda_library_close(d);
        cuda_copy_close(d);
        cuda_fill_close(d);
        cuda_report_close(d);
        cuda_memory_close(d);
        d->api.cuStreamDestroy_v2(d->own.handle);
        cuda_leave(d, pushed);
    }
    heap_free(d->trace);
    heap_free(d->blocks);
    cuda_health_close(d);
    if (d->opened && !d->adopted) d->api.cuDevicePrimaryCtxRelease_v2(d->handle);
    nvrtc_free(d->compiler);
    cuda_api_close(&d->api);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->copy_lock);
    heap_free(d);
}

/* ---- finding it ---- */

/* GPUs that the kernel module sees, whether this process may use them or not. */
static int known_to_system(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/driver/nvidia/gpus");
    if (!folder) return 0;
    for (struct dirent *e; (e = readdir(folder));) count += e->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* May this process open the driver's own file? */
static bool may_open(void)
{
    FILE *file = fopen("/dev/nvidiactl", "r+");
    if (file) fclose(file);
    return file != NULL;
}

static qn_status explain_init(cuda_device *d, int result, qn_error *error)
{
    const char *name = NULL, *words = NULL;
    int seen = known_to_system();
    if (seen && !may_open())
        return error_set(
            error, QN_NO_DEVICE,
            "no permission: there %s %d NVIDIA GPU%s, but /dev/nvidiactl cannot be opened; add the user to "
            "its group, or pass the devices on to the container",
            seen == 1 ? "is" : "are", seen, seen == 1 ? "" : "s");
    if (result == CUDA_STUB_LIBRARY)
        return error_set(error, QN_NO_DEVICE,
                         "%s is the toolkit's stub, not the driver; install the NVIDIA driver, or take the stub out of "
                         "the library path",
                         d->api.paths[CUDA_LIBRARY_DRIVER]);
    d->absent = result == CUDA_NO_DEVICE;
    if (d->absent)
        return error_set(error, QN_NO_DEVICE,
                         "the NVIDIA driver is there, but no GPU; is one hidden by CUDA_VISIBLE_DEVICES, or not passed "
                         "on to the container?");
    d->api.cuGetErrorName(result, &name);
    d->api.cuGetErrorString(result, &words);
    return error_set(error, QN_NO_DEVICE, "the NVIDIA driver does not start: %s (%s); does `nvidia-smi` work?",
                     words ? words : "unknown", name ? name : "unknown result");
}

static int attribute(const cuda_device *d, int which)
{
    int value = 0;
    d->api.cuDeviceGetAttribute(&value, which, d->handle);
    return value;
}

/* "580.65.06": of the kernel module where the system tells it, else of NVML. */
static void find_version(cuda_device *d)
{
    qn_error ignored;
    FILE *file = fopen("/sys/module/nvidia/version", "r");
    if (file) {
        if (fgets(d->version, sizeof(d->version), file)) d->version[strcspn(d->version, "\n")] = 0;
        fclose(file);
    }
    if (d->version[0] || cuda_api_open(&d->api, CUDA_LIBRARY_NVML, &ignored) != QN_OK) return;
    if (d->api.nvmlInit_v2()) return;
    if (d->api.nvmlSystemGetDriverVersion(d->version, sizeof(d->version))) d->version[0] = 0;
    d->api.nvmlShutdown();
}

static qn_status look(cuda_device *d, qn_error *error)
{
    d->absent = true;
    QN_TRY(cuda_api_open(&d->api, CUDA_LIBRARY_DRIVER, error));
    d->absent = false;
    int result = d->api.cuInit(0);
    if (!result) result = d->api.cuDeviceGetCount(&d->count);
    if (!result && !d->count) result = CUDA_NO_DEVICE;
    if (result) return explain_init(d, result, error);
    if (d->number >= d->count)
        return error_set(error, QN_NO_DEVICE, "there %s %d NVIDIA GPU%s, counted from 0", d->count == 1 ? "is" : "are",
                         d->count, d->count == 1 ? "" : "s");
    result = d->api.cuDeviceGet(&d->handle, d->number);
    if (!result) result = d->api.cuDeviceGetName(d->title, sizeof(d->title), d->handle);
    if (!result) result = d->api.cuDeviceTotalMem_v2(&d->total_bytes, d->handle);
    if (!result) result = d->api.cuDriverGetVersion(&d->driver_version);
    if (result) return cuda_failed(d, result, NULL, "asking about the GPU", error);
    find_version(d);
    d->capability = 10 * attribute(d, CUDA_DEVICE_MAJOR) + attribute(d, CUDA_DEVICE_MINOR);
    d->cooperative = attribute(d, CUDA_DEVICE_COOPERATIVE) != 0;
    d->threads_per_multiprocessor = attribute(d, CUDA_DEVICE_THREADS_PER_MULTIPROCESSOR);
    d->shared_per_multiprocessor = attribute(d, CUDA_DEVICE_SHARED_PER_MULTIPROCESSOR);
    if (d->capability < OLDEST_CAPABILITY)
        return error_set(error, QN_NO_DEVICE, "%s has compute capability %d.%d; Quern needs %d.%d or newer", d->title,
                         d->capability / 10, d->capability % 10, OLDEST_CAPABILITY / 10, OLDEST_CAPABILITY % 10);
    if (attribute(d, CUDA_DEVICE_COMPUTE_MODE) == 2)
        return error_set(error, QN_NO_DEVICE, "%s is in compute mode `prohibited`; change that with nvidia-smi -c",
                         d->title);
    d->target = cuda_target_default(d->capability);
    d->target.arch = d->capability;
    d->target.multiprocessors = attribute(d, CUDA_DEVICE_MULTIPROCESSORS);
    d->target.shared_bytes = attribute(d, CUDA_DEVICE_SHARED_OPT_IN);
    d->target.registers = attribute(d, CUDA_DEVICE_REGISTERS_PER_MULTIPROCESSOR);
    d->target.l2_bytes = attribute(d, CUDA_DEVICE_L2_BYTES);
    d->compiler = nvrtc_new();
    return nvrtc_ready(d->compiler, error);
}

/* Once; the lock is held. */
static void probe(cuda_device *d)
{
    if (d->probed) return;
    d->probed = true;
    d->unavailable.status = look(d, &d->unavailable);
}

static void about(const device *base, device_about *out)
{
    cuda_device *d = (cuda_device *)base;
    lock_take(&d->lock);
    probe(d);
    lock_give(&d->lock);
    *out = (device_about){.available = d->unavailable.status == QN_OK,
                          .absent = d->absent,
                          .units = d->target.multiprocessors,
                          .arch = d->target.arch,
                          .memory_bytes = d->total_bytes};
    out->cache_bytes = (size_t)d->target.l2_bytes;
    if (!out->available) {
        snprintf(out->description, sizeof(out->description), "%.250s", d->unavailable.message);
        return;
    }
    plain_print(out->description, sizeof(out->description),
                "%.80s, compute capability %d.%d, %d multiprocessors, %.1f GB, driver %.40s (CUDA %d.%d), NVRTC %d.%d",
                d->title, d->capability / 10, d->capability % 10, d->target.multiprocessors,
                (double)d->total_bytes * 1e-9, d->version[0] ? d->version : "unknown", d->driver_version / 1000,
                d->driver_version % 1000 / 10, nvrtc_version(d->compiler) / 100, nvrtc_version(d->compiler) % 100);
}

static int count(device *base)
{
    device_about unread;
    about(base, &unread);
    return MAXIMUM(((cuda_device *)base)->count, 1);
}

static bool library(device *base, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    lock_take(&d->lock);
    qn_status status = cuda_library_open(d, error);
    lock_give(&d->lock);
    return status == QN_OK;
}

static void describe(device *base, text *out)
{
    const cuda_device *d = (const cuda_device *)base;
    qn_error missing;
    if (d->unavailable.status) return;
    text_print(out, "L2 %.0f MB, %d KB of shared memory a block, %s, %s\n", (double)d->target.l2_bytes / 1048576,
               d->target.shared_bytes >> 10, d->api.paths[CUDA_LIBRARY_DRIVER], nvrtc_path(d->compiler));
    if (library(base, &missing))
        text_print(out, "products may go to cuBLASLt %d.%d.%d, %s\n", d->library_version[0], d->library_version[1],
                   d->library_version[2], d->api.paths[CUDA_LIBRARY_CUBLASLT]);
    else
        text_print(out, "%s\n", missing.message);
}

/* ---- opening it ---- */

static qn_status make_context(cuda_device *d, qn_error *error)
{
    if (!d->adopted) CUDA_TRY(d, d->api.cuDevicePrimaryCtxRetain(&d->context, d->handle), "making a CUDA context");
    CUDA_TRY(d, d->api.cuCtxPushCurrent_v2(d->context), "making a CUDA context");
    void *popped;
    d->own.device = d;
    int result = d->api.cuStreamCreate(&d->own.handle, CUDA_STREAM_OWN);
    qn_status status = QN_OK;
    if (result)
        status = cuda_failed(d, result, NULL, "making a stream", error);
    else
        status = cuda_report_open(d, error);
    d->api.cuCtxPopCurrent_v2(&popped);
    if (status != QN_OK) return status;
    d->streams = &d->own;
    d->opened = true;
    return QN_OK;
}

qn_status cuda_open(cuda_device *d, qn_error *error)
{
    QN_TRY(cuda_is_lost(d, error));
    lock_take(&d->lock);
    probe(d);
    qn_status status = QN_OK;
    if (d->unavailable.status)
        status = error_set(error, QN_NO_DEVICE, "the device %s is not available: %s", d->name, d->unavailable.message);
    else if (!d->opened)
        status = make_context(d, error);
    lock_give(&d->lock);
    return status;
}

qn_status cuda_enter(cuda_device *d, bool *pushed, qn_error *error)
{
    void *current = NULL;
    *pushed = false;
    if (!d->opened)
        QN_TRY(cuda_open(d, error));
    else
        QN_TRY(cuda_is_lost(d, error));
    if (!d->api.cuCtxGetCurrent(&current) && current == d->context) return QN_OK;
    CUDA_TRY(d, d->api.cuCtxPushCurrent_v2(d->context), "entering the CUDA context");
    *pushed = true;
    return QN_OK;
}

void cuda_leave(cuda_device *d, bool pushed)
{
    void *popped;
    if (pushed) d->api.cuCtxPopCurrent_v2(&popped);
}

void cuda_relax(cuda_device *d, int *mode)
{
    *mode = CUDA_CAPTURE_RELAXED;
    if (d->api.cuThreadExchangeStreamCaptureMode) d->api.cuThreadExchangeStreamCaptureMode(mode);
}

void cuda_relaxed(cuda_device *d, int mode)
{
    if (d->api.cuThreadExchangeStreamCaptureMode) d->api.cuThreadExchangeStreamCaptureMode(&mode);
}

static qn_status adopt(device *base, void *native, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    int handle = -1;
    void *popped;
    if (!native) return error_set(error, QN_BAD_CALL, "the CUDA context of the host program is NULL");
    lock_take(&d->lock);
    probe(d);
    qn_status status = QN_OK;
    if (d->unavailable.status)
        status = error_set(error, QN_NO_DEVICE, "the device %s is not available: %s", d->name, d->unavailable.message);
    else if (d->opened)
        status = error_set(error, QN_BAD_CALL, "%s has been used already: give its CUDA context before that", d->name);
    else if (d->api.cuCtxPushCurrent_v2(native) || d->api.cuCtxGetDevice(&handle) ||
             d->api.cuCtxPopCurrent_v2(&popped) || handle != d->handle)
        status = error_set(error, QN_BAD_CALL, "that is not a CUDA context of %s", d->name);
    if (status == QN_OK) {
        d->context = native;
        d->adopted = true;
    }
    lock_give(&d->lock);
    return status;
}

/* ---- compiling ---- */

static void set_checked(device *base, bool checked)
{
    ((cuda_device *)base)->target.checked = checked;
}

static void choose_facts(const device *base, tile_kernel *k, const array_view *arrays, const launch_plan *plan)
{
    cuda_choose_facts(k, arrays, plan);
}

static qn_status emit(const device *base, const tile_kernel *k, text *out, cuda_layout **layout, qn_error *error)
{
    return emit_cuda(k, &((const cuda_device *)base)->target, out, layout, error);
}

static qn_status print_schedule(const device *base, const tile_kernel *k, text *out, qn_error *error)
{
    return emit_schedule_print(k, &((const cuda_device *)base)->target, false, out, error);
}

static void tool(const device *base, text *out)
{
    const cuda_device *d = (const cuda_device *)base;
    text_print(out, "cuda ABI %d, ", CUDA_ABI_VERSION);
    nvrtc_describe(d->compiler, d->target.arch, out);
}

static qn_status compile(const cuda_device *d, const char *source, bool ptx_only, nvrtc_output *output, qn_error *error)
{
    nvrtc_options options = {.arch = d->target.arch, .ptx_only = ptx_only};
    return nvrtc_compile(d->compiler, source, "kernel.cu", &options, output, error);
}

static qn_status assemble(const device *base, const char *source, const char *binary_path, qn_error *error)
{
    nvrtc_output output = {0};
    qn_status status = compile((const cuda_device *)base, source, false, &output, error);
    if (status == QN_OK) status = file_write(binary_path, text_get(&output.cubin), output.cubin.length, error);
    nvrtc_output_free(&output);
    return status;
}

static qn_status disassemble(const device *base, const char *source, text *out, qn_error *error)
{
    nvrtc_output output = {0};
    qn_status status = compile((const cuda_device *)base, source, true, &output, error);
    if (status == QN_OK) text_add_bytes(out, text_get(&output.ptx), output.ptx.length);
    nvrtc_output_free(&output);
    return status;
}

const driver driver_cuda = {
    .name = "cuda",
    .open = open_device,
    .close = close_device,
    .about = about,
    .count = count,
    .describe = describe,
    .measure = cuda_measure,
    .roofline = cuda_roofline,
    .health = cuda_health,
    .adopt = adopt,
    .set_checked = set_checked,
    .choose_facts = choose_facts,
    .emit = emit,
    .schedule = print_schedule,
    .tool = tool,
    .assemble = assemble,
    .disassemble = disassemble,
    .load = cuda_program_load,
    .unload = cuda_unload,
    .launch = cuda_launch_and_wait,
    .prepare = cuda_prepare,
    .move = cuda_move,
    .submit = cuda_submit,
    .finish = cuda_finish,
    .discard = cuda_discard,
    .library = library,
    .launch_library = cuda_launch_library,
    .facts = cuda_facts,
    .memory = &cuda_memory,
    .streams = &cuda_streams,
    .trace = &cuda_tracing,
};
