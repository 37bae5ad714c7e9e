/*
 * A libcuda and a libnvrtc with no GPU: memory is the host's, work is done at once, kernels run in the engine of `emu`.
 * Quern finds it through QUERN_CUDA_PATH, so that everything of the `cuda` device but the GPU itself is tested anywhere.
 * It fails on demand (fake_order), counts what it was asked for (fake_count), and like the driver refuses everything
 * after a fault. A "cubin" is a word and the text it was made from. Here: orders, the device, memory; cuda_work.c: modules
 * and launches; cuda_graph.c: streams, graphs, events; nvrtc.c.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "fake/state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fake_state fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit_bytes = (size_t)256 << 20, .device_count = 1};

/* ---- orders and counts, for the tests ---- */

EXPORT void fake_reset(void);
EXPORT void fake_order(const char *function, int result, int after); /* the call after `after` more fails once */
EXPORT int64_t fake_count(const char *function);
EXPORT void fake_memory(size_t limit_bytes);
EXPORT void fake_devices(int count);
EXPORT void fake_listen(fake_listener *listener);

void fake_reset(void)
{
    fake.sticky = 0;
    fake.counter_count = fake.order_count = 0;
    fake.limit_bytes = (size_t)256 << 20;
    fake.device_count = 1;
}

void fake_order(const char *function, int result, int after)
{
    snprintf(fake.orders[fake.order_count].name, sizeof(fake.orders[0].name), "%s", function);
    fake.orders[fake.order_count].result = result;
    fake.orders[fake.order_count++].after = after;
}

int64_t fake_count(const char *function)
{
    for (int i = 0; i < fake.counter_count; i++)
        if (!strcmp(fake.counters[i].name, function)) return fake.counters[i].count;
    return 0;
}

void fake_memory(size_t limit_bytes)
{
    fake.limit_bytes = limit_bytes;
}

void fake_devices(int count)
{
    fake.device_count = count;
}

void fake_listen(fake_listener *listener)
{
    fake.listener = listener;
}

/* What the driver refuses while a graph is recorded, unless the thread says that it knows. */
_Thread_local int fake_capture_mode;

static bool may_wait(const char *function)
{
    static const char *const names[] = {"cuMemAlloc_v2",    "cuMemFree_v2",        "cuMemHostAlloc",
                                        "cuModuleLoadData", "cuModuleUnload",      "cuEventQuery",
                                        "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strcmp(function, names[i])) return true;
    return false;
}

/* Counts the call; its result if it is to fail. */
int fake_ask(const char *function)
{
    int result = 0, at = 0;
    pthread_mutex_lock(&fake.lock);
    while (at < fake.counter_count && strcmp(fake.counters[at].name, function) != 0) at++;
    if (at == fake.counter_count && at < MOST_COUNTERS) {
        snprintf(fake.counters[at].name, sizeof(fake.counters[at].name), "%s", function);
        fake.counters[at].count = 0;
        fake.counter_count++;
    }
    if (at < MOST_COUNTERS) fake.counters[at].count++;
    for (int i = 0; i < fake.order_count; i++)
        if (!strcmp(fake.orders[i].name, function) && fake.orders[i].after-- == 0) result = fake.orders[i].result;
    if (fake.strict && fake_capture_mode != CUDA_CAPTURE_RELAXED && may_wait(function)) result = CAPTURE_UNSUPPORTED;
    if (fake.sticky) result = fake.sticky;
    if (result >= 700 && result < 720) fake.sticky = result;
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* ---- the device ---- */

FAKE(cuInit, unsigned flags)
{
    (void)flags;
    ASK();
    const char *devices = getenv("FAKE_CUDA_DEVICES"), *refusal = getenv("FAKE_CUDA_INIT");
    fake.device_count = devices ? atoi(devices) : 1;
    if (refusal) return atoi(refusal);
    return fake.device_count ? 0 : CUDA_NO_DEVICE;
}

FAKE(cuDriverGetVersion, int *version)
{
    *version = 13000;
    return 0;
}

FAKE(cuGetErrorName, int result, const char **words)
{
    *words = result == CUDA_OUT_OF_MEMORY        ? "CUDA_ERROR_OUT_OF_MEMORY"
             : result == CUDA_ILLEGAL_ADDRESS    ? "CUDA_ERROR_ILLEGAL_ADDRESS"
             : result == CUDA_MISALIGNED_ADDRESS ? "CUDA_ERROR_MISALIGNED_ADDRESS"
             : result == CUDA_INVALID_IMAGE      ? "CUDA_ERROR_INVALID_IMAGE"
             : result == CUDA_NO_DEVICE          ? "CUDA_ERROR_NO_DEVICE"
                                                 : "CUDA_ERROR_OF_THE_FAKE";
    return 0;
}

FAKE(cuGetErrorString, int result, const char **words)
{
    (void)result;
    *words = "an error of the fake";
    return 0;
}

FAKE(cuDeviceGetCount, int *count)
{
    *count = fake.device_count;
    return 0;
}

FAKE(cuDeviceGet, int *device, int number)
{
    *device = number;
    return number < fake.device_count ? 0 : 101;
}

FAKE(cuDeviceGetName, char *name, int size, int device)
{
    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return 0;
}

FAKE(cuDeviceTotalMem_v2, size_t *bytes, int device)
{
    (void)device;
    *bytes = fake.limit_bytes;
    return 0;
}

FAKE(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    (void)device;
    const char *capability = getenv("FAKE_CUDA_CAPABILITY");
    int number = capability ? atoi(capability) : 90;
    switch (attribute) {
    case CUDA_DEVICE_MULTIPROCESSORS: *value = 4; break;
    case CUDA_DEVICE_L2_BYTES: *value = 1 << 20; break;
    case CUDA_DEVICE_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    case CUDA_DEVICE_MAJOR: *value = number / 10; break;
    case CUDA_DEVICE_MINOR: *value = number % 10; break;
    case CUDA_DEVICE_SHARED_PER_MULTIPROCESSOR: *value = 233472; break;
    case CUDA_DEVICE_REGISTERS_PER_MULTIPROCESSOR: *value = 65536; break;
    case CUDA_DEVICE_COOPERATIVE: *value = 1; break;
    case CUDA_DEVICE_SHARED_OPT_IN: *value = 232448; break;
    default: *value = 0;
    }
    return 0;
}

static int contexts[16];
static _Thread_local void *current[16];
static _Thread_local int depth;

FAKE(cuDevicePrimaryCtxRetain, void **context, int device)
{
    ASK();
    *context = &contexts[device];
    return 0;
}

FAKE(cuDevicePrimaryCtxRelease_v2, int device)
{
    (void)device;
    return fake_ask(__func__);
}

FAKE(cuCtxGetCurrent, void **context)
{
    *context = depth ? current[depth - 1] : NULL;
    return 0;
}

FAKE(cuCtxPushCurrent_v2, void *context)
{
    if (depth == 16) return CUDA_INVALID_VALUE;
    current[depth++] = context;
    return 0;
}

FAKE(cuCtxPopCurrent_v2, void **context)
{
    if (!depth) return CUDA_INVALID_VALUE;
    *context = current[--depth];
    return 0;
}

FAKE(cuCtxGetDevice, int *device)
{
    if (!depth) return CUDA_INVALID_VALUE;
    *device = (int)((int *)current[depth - 1] - contexts);
    return *device >= 0 && *device < 16 ? 0 : CUDA_INVALID_VALUE;
}

FAKE(cuCtxSynchronize, void)
{
    return fake_ask(__func__);
}

/* As emu's engine reads a map; the numbers of element types are the driver's. */
FAKE(cuTensorMapEncodeTiled, void *map, int type, unsigned rank, void *address, const uint64_t *extents,
     const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion,
     int fill)
{
    static const uint16_t sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
    static const uint8_t swizzles[] = {0, 32, 64, 128};
    (void)steps, (void)interleave, (void)promotion, (void)fill;
    ASK();
    if (!depth) return 201; /* CUDA_ERROR_INVALID_CONTEXT, as the driver does */
    if (type < 0 || type >= COUNT(sizes) || rank < 1 || rank > 5) return CUDA_INVALID_VALUE;
    emu_map m = {.address = (uint64_t)(uintptr_t)address,
                 .mark = EMU_MAP_MARK,
                 .elem_bytes = sizes[type],
                 .rank = (uint8_t)rank,
                 .swizzle = swizzles[swizzle & 3]};
    for (unsigned i = 0; i < rank; i++) {
        m.extents[i] = (int64_t)extents[i];
        if (i) m.strides[i - 1] = (int64_t)strides[i - 1];
        m.box[i] = box[i];
    }
    memset(map, 0, 128);
    memcpy(map, &m, sizeof(m));
    return 0;
}

FAKE(cuTensorMapEncodeIm2col, void *map, int type, unsigned rank, void *address, const uint64_t *extents,
     const uint64_t *strides, const int *lower, const int *upper, uint32_t channels, uint32_t places,
     const uint32_t *steps, int interleave, int swizzle, int promotion, int fill)
{
    uint32_t box[5] = {channels, places, 1, 1, 1};
    if (rank < 3) return CUDA_INVALID_VALUE;
    int result = cuTensorMapEncodeTiled(map, type, rank, address, extents, strides, box, steps, interleave, swizzle,
                                        promotion, fill);
    emu_map *m = map;
    for (unsigned i = 0; !result && i < rank - 2; i++) {
        m->windows = true;
        m->box[2 + i] = steps[1 + i];
        m->lower[i] = (int16_t)lower[i];
        m->upper[i] = (int16_t)upper[i];
    }
    return result;
}

FAKE(cuProfilerStart, void)
{
    return fake_ask(__func__);
}

FAKE(cuProfilerStop, void)
{
    return fake_ask(__func__);
}

/* ---- memory ---- */

FAKE(cuMemGetInfo_v2, size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = fake.limit_bytes - fake.used_bytes;
    *total_bytes = fake.limit_bytes;
    return 0;
}

FAKE(cuMemAlloc_v2, uint64_t *address, size_t size_bytes)
{
    ASK();
    pthread_mutex_lock(&fake.lock);
    int result = CUDA_OUT_OF_MEMORY;
    char *memory = NULL;
    if (fake.block_count < MOST_BLOCKS && size_bytes <= fake.limit_bytes - fake.used_bytes)
        memory = aligned_alloc(512, (size_bytes + 511) / 512 * 512);
    if (memory) {
        memset(memory, 0xa5, size_bytes);
        fake.blocks[fake.block_count].address = memory;
        fake.blocks[fake.block_count++].size_bytes = size_bytes;
        fake.used_bytes += size_bytes;
        *address = (uint64_t)(uintptr_t)memory;
        result = 0;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static int find_block(uint64_t address)
{
    for (int i = 0; i < fake.block_count; i++) {
        uint64_t first = (uint64_t)(uintptr_t)fake.blocks[i].address;
        if (address >= first && address < first + fake.blocks[i].size_bytes) return i;
    }
    return -1;
}

FAKE(cuMemFree_v2, uint64_t address)
{
    ASK();
    pthread_mutex_lock(&fake.lock);
    int at = find_block(address);
    if (at >= 0) {
        fake.used_bytes -= fake.blocks[at].size_bytes;
        free(fake.blocks[at].address);
        fake.blocks[at] = fake.blocks[--fake.block_count];
    }
    pthread_mutex_unlock(&fake.lock);
    return at >= 0 ? 0 : CUDA_INVALID_VALUE;
}

FAKE(cuMemHostAlloc, void **memory, size_t size_bytes, unsigned flags)
{
    (void)flags;
    ASK();
    *memory = aligned_alloc(64, (size_bytes + 63) / 64 * 64);
    return *memory ? 0 : CUDA_OUT_OF_MEMORY;
}

FAKE(cuMemFreeHost, void *memory)
{
    ASK();
    free(memory);
    return 0;
}

FAKE(cuMemHostGetDevicePointer_v2, uint64_t *address, void *memory, unsigned flags)
{
    (void)flags;
    *address = (uint64_t)(uintptr_t)memory;
    return 0;
}

FAKE(cuPointerGetAttribute, void *value, int attribute, uint64_t address)
{
    int type = CUDA_MEMORY_DEVICE;
    pthread_mutex_lock(&fake.lock);
    int at = find_block(address);
    pthread_mutex_unlock(&fake.lock);
    if (at < 0 || attribute != CUDA_POINTER_MEMORY_TYPE) return CUDA_INVALID_VALUE;
    memcpy(value, &type, sizeof(type));
    return 0;
}
