/*
 * A libcuda and a libnvrtc with no GPU: memory is the host's, work is done at once, kernels run in the engine of `emu`.
 * Quern finds it through QUERN_CUDA_PATH, so that everything of the `cuda` device but the GPU itself is tested anywhere.
 * It fails on demand (fake_order), counts what it was asked for (fake_count), and like the driver refuses everything
 * after a fault. A "cubin" is a word and the text it was made from.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/cuda_api.h"
#include "device/emu_unit.h"
#include "fake/trace.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MARK "FAKECUBIN\n"

enum { CAPTURE_UNSUPPORTED = 900, MOST_BLOCKS = 4096, MOST_COUNTERS = 64, MOST_ORDERS = 16 };

static struct {
    pthread_mutex_t lock;
    struct {
        char *address;
        size_t size_bytes;
    } blocks[MOST_BLOCKS];
    int block_count;
    size_t used_bytes, limit_bytes;
    int sticky; /* the result of a fault: every later call gives it */
    struct {
        char name[64];
        int64_t count;
    } counters[MOST_COUNTERS];
    int counter_count;
    struct {
        char name[64];
        int result, after; /* after so many calls */
    } orders[MOST_ORDERS];
    int order_count;
    compiler compiler;
    emu_engine *engine;
    int serial, device_count;
    fake_listener *listener; /* the fake CUPTI */
    uint32_t calls, graphs;
    int strict; /* recordings that are not relaxed */
    int64_t depth;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit_bytes = (size_t)256 << 20, .device_count = 1};

/* ---- orders and counts, for the tests ---- */

EXPORT void fake_reset(void);
EXPORT void fake_order(const char *function, int result, int after); /* the call after `after` more fails once */
EXPORT int64_t fake_count(const char *function);
EXPORT int64_t fake_depth(void); /* of the graph that was launched last: nodes of its longest way */
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
static _Thread_local int capture_mode;

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
static int ask(const char *function)
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
    if (fake.strict && capture_mode != CUDA_CAPTURE_RELAXED && may_wait(function)) result = CAPTURE_UNSUPPORTED;
    if (fake.sticky) result = fake.sticky;
    if (result >= 700 && result < 720) fake.sticky = result;
    pthread_mutex_unlock(&fake.lock);
    return result;
}

#define ASK()                        \
    do {                             \
        int refused = ask(__func__); \
        if (refused) return refused; \
    } while (0)

/* ---- the device ---- */

#define FAKE(name, ...)           \
    EXPORT int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

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
    return ask(__func__);
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
    return ask(__func__);
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
    return ask(__func__);
}

FAKE(cuProfilerStop, void)
{
    return ask(__func__);
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

/* ---- work: done at once, or recorded ---- */

typedef struct work {
    enum { WORK_KERNEL, WORK_COPY, WORK_FILL } kind;
    void *function;
    cuda_launch_config config;
    bool cooperative;
    int cluster;
    char *parameters; /* a copy */
    int direction;
    uint64_t to, from, bits;
    size_t size, pitch, width, height; /* fill: element bytes */
    void **waits;                      /* of a graph: for these nodes, which are numbers of items from 1 on */
    size_t wait_count;
} work;

typedef struct graph {
    work *items;
    size_t count, capacity;
    int owners; /* the graph and what was made ready of it */
    uint32_t number;
} graph;

typedef struct stream {
    graph *recording;
    bool is_strict; /* the recording refuses what may wait */
    void **after;   /* nodes that what is recorded next waits for */
    size_t after_count;
} stream;

typedef struct module {
    emu_library library;
    char path[128];
} module;

typedef struct function {
    module *module;
    emu_entry *entry;
    size_t parameter_bytes; /* 0: several, or not known */
    char name[256];
} function;

static int run_kernel(const work *w, void *const *parameters)
{
    const function *f = w->function;
    qn_error error;
    emu_launch launch = {.entry = f->entry,
                         .arguments = parameters,
                         .cluster_blocks = w->cluster ? w->cluster : 1,
                         .cooperative = w->cooperative,
                         .shared_bytes = w->config.shared_bytes,
                         .touch = f->module->library.touch,
                         .dynamic = f->module->library.dynamic,
                         .library_address = (const void *)f->module->library.first};
    for (int i = 0; i < 3; i++) {
        launch.grid[i] = w->config.grid[i];
        launch.block[i] = w->config.block[i];
    }
    pthread_mutex_lock(&fake.lock);
    if (!fake.engine) fake.engine = emu_engine_new(2);
    pthread_mutex_unlock(&fake.lock);
    if (emu_engine_run(fake.engine, &launch, &error) != QN_OK) return CUDA_OUT_OF_MEMORY;
    if (launch.stopped) fprintf(stderr, "the fake GPU stopped: %s\n", launch.findings[0].words);
    return launch.stopped ? CUDA_LAUNCH_FAILED : 0;
}

static int run_work(const work *w)
{
    switch (w->kind) {
    case WORK_COPY: memmove((void *)(uintptr_t)w->to, (const void *)(uintptr_t)w->from, w->size); return 0;
    case WORK_FILL:
        for (size_t row = 0; row < w->height; row++)
            for (size_t i = 0; i < w->width; i++)
                memcpy((char *)(uintptr_t)w->to + row * w->pitch + i * w->size, &w->bits, w->size);
        return 0;
    default: return run_kernel(w, (void *const[]){w->parameters});
    }
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Runs it, and tells who listens. */
static int run_told(const work *w, void *const *parameters, uint32_t call, uint32_t graph, uint32_t node)
{
    int64_t start_ns = now_ns();
    int result = w->kind == WORK_KERNEL && parameters ? run_kernel(w, parameters) : run_work(w);
    if (!fake.listener) return result;
    fake_span span = {.kind = w->kind == WORK_KERNEL ? FAKE_KERNEL
                              : w->kind == WORK_COPY ? FAKE_COPY
                                                     : FAKE_FILL,
                      .name = w->kind == WORK_KERNEL ? ((const function *)w->function)->name : NULL,
                      .shared_bytes = w->config.shared_bytes,
                      .bytes = w->kind == WORK_COPY ? w->size : w->size * w->width * w->height,
                      .direction = w->direction,
                      .correlation = call,
                      .graph = graph,
                      .node = node,
                      .start_ns = start_ns,
                      .end_ns = now_ns()};
    memcpy(span.grid, w->config.grid, sizeof(span.grid));
    memcpy(span.block, w->config.block, sizeof(span.block));
    fake.listener(&span);
    return result;
}

static uint32_t next_call(void)
{
    pthread_mutex_lock(&fake.lock);
    uint32_t call = ++fake.calls;
    pthread_mutex_unlock(&fake.lock);
    return call;
}

/* NULL: a default stream, also by its handles 1 (legacy) and 2 (per thread). */
static stream *stream_of(void *handle)
{
    return (uintptr_t)handle <= 2 ? NULL : handle;
}

/* A kernel's parameter as the driver has it: a copy, aligned as its type may ask for, wherever the caller's lies. */
static void *copy_parameter(const work *w, void *const *parameters)
{
    size_t size = ((const function *)w->function)->parameter_bytes;
    size_t kept = size ? size : 8;
    void *copy = aligned_alloc(64, (kept + 63) / 64 * 64);
    if (!copy) abort();
    return memcpy(copy, parameters[0], kept);
}

static void set_after(stream *s, void *const *nodes, size_t count)
{
    void **copy = malloc((count + 1) * sizeof(*copy));
    if (!copy) abort();
    if (count) memcpy(copy, nodes, count * sizeof(*copy));
    free(s->after);
    s->after = copy;
    s->after_count = count;
}

static int put(void *handle, const work *w, void *const *parameters)
{
    stream *s = stream_of(handle);
    if (!s || !s->recording) {
        bool framed = parameters && ((const function *)w->function)->parameter_bytes;
        void *copy = framed ? copy_parameter(w, parameters) : NULL;
        int result = run_told(w, framed ? &copy : parameters, next_call(), 0, 0);
        free(copy);
        return result;
    }
    graph *g = s->recording;
    if (g->count == g->capacity) {
        g->capacity = g->capacity ? 2 * g->capacity : 64;
        g->items = realloc(g->items, g->capacity * sizeof(*g->items));
        if (!g->items) abort();
    }
    work *item = &g->items[g->count++];
    *item = *w;
    item->waits = s->after; /* the graph's now */
    item->wait_count = s->after_count;
    s->after = NULL;
    set_after(s, &(void *){(void *)(uintptr_t)g->count}, 1);
    if (w->kind != WORK_KERNEL) return 0;
    item->parameters = copy_parameter(w, parameters);
    return 0;
}

#define COPY(name, to_type, from_type, way)                                 \
    FAKE(name, to_type to, from_type from, size_t size_bytes, void *handle) \
    {                                                                       \
        ASK();                                                              \
        work w = {.kind = WORK_COPY,                                        \
                  .to = (uint64_t)(uintptr_t)to,                            \
                  .from = (uint64_t)(uintptr_t)from,                        \
                  .size = size_bytes,                                       \
                  .direction = way};                                        \
        return put(handle, &w, NULL);                                       \
    }
COPY(cuMemcpyHtoDAsync_v2, uint64_t, const void *, 1)
COPY(cuMemcpyDtoHAsync_v2, void *, uint64_t, 2)
COPY(cuMemcpyDtoDAsync_v2, uint64_t, uint64_t, 8)

#define FILL(name, type)                                                                                            \
    FAKE(cuMemset##name##Async, uint64_t to, type value, size_t count, void *handle)                                \
    {                                                                                                               \
        ASK();                                                                                                      \
        work w = {.kind = WORK_FILL, .to = to, .bits = value, .size = sizeof(type), .width = count, .height = 1};   \
        return put(handle, &w, NULL);                                                                               \
    }                                                                                                               \
    FAKE(cuMemsetD2##name##Async, uint64_t to, size_t pitch, type value, size_t width, size_t height, void *handle) \
    {                                                                                                               \
        ASK();                                                                                                      \
        work w = {.kind = WORK_FILL,                                                                                \
                  .to = to,                                                                                         \
                  .bits = value,                                                                                    \
                  .size = sizeof(type),                                                                             \
                  .pitch = pitch,                                                                                   \
                  .width = width,                                                                                   \
                  .height = height};                                                                                \
        return put(handle, &w, NULL);                                                                               \
    }
FILL(D8, unsigned char)
FILL(D16, unsigned short)
FILL(D32, unsigned)

/* ---- modules and launches ---- */

/* The text, and of each structure NAME_frame a function that tells how large it is: of a kernel's parameter the driver
 * knows that from the cubin. */
static void with_sizes(const char *source, text *out)
{
    text_add(out, source);
    for (const char *end = strstr(source, "_frame {"), *start = end; end; start = end = strstr(end + 1, "_frame {")) {
        while (start > source && start[-1] != ' ') start--;
        int length = (int)(end - start);
        text_print(
            out,
            "\nextern \"C\" __attribute__((visibility(\"default\"))) unsigned long fake_bytes_%.*s(void) { return "
            "sizeof(%.*s_frame); }\n",
            length, start, length, start);
    }
}

/* Of the phase's own frame, or of the kernel's; 0: a kernel that has parameters of its own. */
static size_t find_size(const module *m, const char *name)
{
    char symbol[300];
    unsigned long (*size)(void) = NULL;
    snprintf(symbol, sizeof(symbol), "fake_bytes_%s", name);
    void *address = dlsym(m->library.handle, symbol);
    char *end = strrchr(symbol, '_');
    if (!address && !strncmp(end, "_phase", 6)) {
        *end = 0;
        address = dlsym(m->library.handle, symbol);
    }
    memcpy(&size, &address, sizeof(size));
    return size ? size() : 0;
}

FAKE(cuModuleLoadData, void **out, const void *image)
{
    ASK();
    qn_error error;
    if (strncmp(image, MARK, strlen(MARK)) != 0) return CUDA_INVALID_IMAGE;
    module *m = calloc(1, sizeof(*m));
    if (!m) return CUDA_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake.lock);
    snprintf(m->path, sizeof(m->path), "/tmp/quern-fake-%d-%d.so", (int)getpid(), fake.serial++);
    if (!fake.compiler.path[0]) compiler_find_cpp(&fake.compiler);
    pthread_mutex_unlock(&fake.lock);
    text source = {0};
    with_sizes((const char *)image + strlen(MARK), &source);
    qn_status status = emu_unit_compile(&fake.compiler, text_get(&source), false, m->path, &error);
    text_free(&source);
    if (status == QN_OK) status = emu_library_open(m->path, &m->library, &error);
    unlink(m->path);
    if (status != QN_OK) {
        fprintf(stderr, "%s\n", error.message);
        free(m);
        return CUDA_INVALID_IMAGE;
    }
    *out = m;
    return 0;
}

FAKE(cuModuleUnload, void *handle)
{
    ASK();
    module *m = handle;
    emu_library_close(&m->library);
    free(m);
    return 0;
}

FAKE(cuModuleGetFunction, void **out, void *handle, const char *name)
{
    ASK();
    module *m = handle;
    emu_entry *entry = emu_library_find(&m->library, name);
    if (!entry) return 500;
    function *f = calloc(1, sizeof(*f)); /* lives as long as the process */
    if (!f) return CUDA_OUT_OF_MEMORY;
    *f = (function){.module = m, .entry = entry};
    snprintf(f->name, sizeof(f->name), "%s", name);
    f->parameter_bytes = find_size(m, name);
    *out = f;
    return 0;
}

FAKE(cuFuncGetAttribute, int *value, int attribute, void *handle)
{
    (void)handle;
    *value = attribute == CUDA_FUNCTION_THREADS ? 1024 : attribute == CUDA_FUNCTION_REGISTERS ? 32 : 0;
    return 0;
}

FAKE(cuFuncSetAttribute, void *handle, int attribute, int value)
{
    (void)handle, (void)attribute;
    ASK();
    return value <= 232448 ? 0 : CUDA_INVALID_VALUE;
}

FAKE(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, void *handle, int threads, size_t shared_bytes)
{
    (void)handle, (void)threads, (void)shared_bytes;
    *blocks = 2;
    return 0;
}

FAKE(cuLaunchKernelEx, const cuda_launch_config *config, void *handle, void **parameters, void **extra)
{
    (void)extra;
    ASK();
    work w = {.kind = WORK_KERNEL, .function = handle, .config = *config, .cluster = 1};
    for (unsigned i = 0; i < config->attribute_count; i++) {
        const cuda_launch_attribute *a = &config->attributes[i];
        if (a->id == CUDA_LAUNCH_COOPERATIVE) w.cooperative = a->value.number != 0;
        if (a->id == CUDA_LAUNCH_CLUSTER) w.cluster = (int)a->value.dimensions[0];
    }
    return put(config->stream, &w, parameters);
}

FAKE(cuLaunchKernel, void *handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
     unsigned shared_bytes, void *stream_handle, void **parameters, void **extra)
{
    cuda_launch_config config = {
        .grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared_bytes = shared_bytes, .stream = stream_handle};
    return cuLaunchKernelEx(&config, handle, parameters, extra);
}

FAKE(cuLaunchCooperativeKernel, void *handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
     unsigned bz, unsigned shared_bytes, void *stream_handle, void **parameters)
{
    return cuLaunchKernel(handle, gx, gy, gz, bx, by, bz, shared_bytes, stream_handle, parameters, NULL);
}

/* ---- streams, graphs, events ---- */

FAKE(cuStreamCreate, void **handle, unsigned flags)
{
    (void)flags;
    ASK();
    *handle = calloc(1, sizeof(stream));
    return *handle ? 0 : CUDA_OUT_OF_MEMORY;
}

FAKE(cuStreamDestroy_v2, void *handle)
{
    ASK();
    free(((stream *)handle)->after);
    free(handle);
    return 0;
}

FAKE(cuStreamSynchronize, void *handle)
{
    (void)handle;
    return ask(__func__);
}

FAKE(cuStreamWaitEvent, void *handle, void *event, unsigned flags)
{
    (void)handle, (void)event, (void)flags;
    return ask(__func__);
}

FAKE(cuStreamIsCapturing, void *handle, int *status)
{
    const stream *s = stream_of(handle);
    *status = s && s->recording != NULL;
    return 0;
}

FAKE(cuThreadExchangeStreamCaptureMode, int *mode)
{
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return 0;
}

FAKE(cuStreamBeginCapture_v2, void *handle, int mode)
{
    ASK();
    stream *s = handle;
    s->is_strict = mode != CUDA_CAPTURE_RELAXED;
    fake.strict += s->is_strict;
    s->recording = calloc(1, sizeof(graph));
    if (!s->recording) return CUDA_OUT_OF_MEMORY;
    s->recording->owners = 1;
    set_after(s, NULL, 0);
    s->recording->number = ++fake.graphs;
    return 0;
}

FAKE(cuStreamGetCaptureInfo_v2, void *handle, int *status, uint64_t *number, void **out, void *const **nodes,
     size_t *count)
{
    const stream *s = handle;
    *status = s->recording != NULL;
    *number = s->recording ? s->recording->number : 0;
    *out = s->recording;
    *nodes = s->after;
    *count = s->after_count;
    return 0;
}

FAKE(cuStreamUpdateCaptureDependencies, void *handle, void *const *nodes, size_t count, unsigned flags)
{
    ASK();
    stream *s = handle;
    if (!s->recording || flags != 1) return CUDA_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!nodes[i] || (uintptr_t)nodes[i] > s->recording->count) return CUDA_INVALID_VALUE;
    set_after(s, nodes, count);
    return 0;
}

FAKE(cuStreamEndCapture, void *handle, void **out)
{
    ASK();
    stream *s = handle;
    *out = s->recording;
    s->recording = NULL;
    fake.strict -= s->is_strict;
    return *out ? 0 : CUDA_INVALID_VALUE;
}

FAKE(cuGraphGetNodes, void *handle, void **nodes, size_t *count)
{
    (void)nodes;
    *count = ((graph *)handle)->count;
    return 0;
}

FAKE(cuGraphInstantiateWithFlags, void **ready, void *handle, unsigned long long flags)
{
    (void)flags;
    ASK();
    ((graph *)handle)->owners++;
    *ready = handle;
    return 0;
}

static int drop_graph(graph *g)
{
    if (--g->owners) return 0;
    for (size_t i = 0; i < g->count; i++) {
        free(g->items[i].parameters);
        free(g->items[i].waits);
    }
    free(g->items);
    free(g);
    return 0;
}

FAKE(cuGraphDestroy, void *handle)
{
    return drop_graph(handle);
}

FAKE(cuGraphExecDestroy, void *handle)
{
    return drop_graph(handle);
}

/* Of what may run now the last that was recorded: whatever lacks an edge runs too early. */
static size_t last_ready(const graph *g, const bool *done)
{
    for (size_t i = g->count; i-- > 0;) {
        bool ready = !done[i];
        for (size_t k = 0; k < g->items[i].wait_count && ready; k++) ready = done[(uintptr_t)g->items[i].waits[k] - 1];
        if (ready) return i;
    }
    return g->count;
}

static int64_t depth_of(const graph *g)
{
    int64_t most = 0, *depth = calloc(g->count + 1, sizeof(*depth)); /* a node waits for earlier ones */
    if (!depth) abort();
    for (size_t i = 0; i < g->count; i++) {
        depth[i] = 1;
        for (size_t k = 0; k < g->items[i].wait_count; k++) {
            int64_t before = depth[(uintptr_t)g->items[i].waits[k] - 1];
            if (before >= depth[i]) depth[i] = before + 1;
        }
        if (depth[i] > most) most = depth[i];
    }
    free(depth);
    return most;
}

int64_t fake_depth(void)
{
    return fake.depth;
}

FAKE(cuGraphLaunch, void *handle, void *stream_handle)
{
    (void)stream_handle;
    ASK();
    const graph *g = handle;
    int result = 0;
    uint32_t call = next_call();
    int64_t start_ns = now_ns();
    fake.depth = depth_of(g);
    bool *done = calloc(g->count + 1, sizeof(*done));
    if (!done) return CUDA_OUT_OF_MEMORY;
    for (size_t i = 0; i < g->count && !result; i++) {
        size_t next = last_ready(g, done);
        if (next == g->count) abort(); /* it waits for itself */
        result = run_told(&g->items[next], NULL, call, g->number, (uint32_t)next + 1);
        done[next] = true;
    }
    free(done);
    if (fake.listener)
        fake.listener(&(fake_span){
            .kind = FAKE_GRAPH, .correlation = call, .graph = g->number, .start_ns = start_ns, .end_ns = now_ns()});
    return result;
}

FAKE(cuEventCreate, void **event, unsigned flags)
{
    (void)flags;
    ASK();
    *event = calloc(1, sizeof(int64_t));
    return *event ? 0 : CUDA_OUT_OF_MEMORY;
}

FAKE(cuEventDestroy_v2, void *event)
{
    free(event);
    return 0;
}

FAKE(cuEventRecord, void *event, void *handle)
{
    (void)handle;
    ASK();
    *(int64_t *)event = clock_now_ns();
    return 0;
}

FAKE(cuEventQuery, void *event)
{
    (void)event;
    return ask(__func__);
}

FAKE(cuEventSynchronize, void *event)
{
    (void)event;
    return ask(__func__);
}

FAKE(cuEventElapsedTime, float *milliseconds, void *from, void *to)
{
    *milliseconds = (float)((double)(*(int64_t *)to - *(int64_t *)from) * 1e-6);
    return 0;
}

/* ---- NVRTC ---- */

FAKE(nvrtcVersion, int *major, int *minor)
{
    const char *old = getenv("FAKE_NVRTC_VERSION");
    *major = old ? atoi(old) : 13;
    *minor = 0;
    return 0;
}

FAKE(nvrtcGetNumSupportedArchs, int *count)
{
    *count = 3;
    return 0;
}

FAKE(nvrtcGetSupportedArchs, int *archs)
{
    archs[0] = 75;
    archs[1] = 80;
    archs[2] = 90;
    return 0;
}

FAKE(nvrtcCreateProgram, void **program, const char *source, const char *name, int header_count,
     const char *const *headers, const char *const *include_names)
{
    (void)name, (void)header_count, (void)headers, (void)include_names;
    ASK();
    *program = malloc(strlen(source) + sizeof(MARK));
    if (!*program) return 1;
    sprintf(*program, "%s%s", MARK, source);
    return 0;
}

FAKE(nvrtcDestroyProgram, void **program)
{
    free(*program);
    *program = NULL;
    return 0;
}

FAKE(nvrtcCompileProgram, void *program, int option_count, const char *const *options)
{
    (void)program, (void)option_count, (void)options;
    return ask(__func__);
}

FAKE(nvrtcAddNameExpression, void *program, const char *expression)
{
    (void)program, (void)expression;
    return 0;
}

FAKE(nvrtcGetLoweredName, void *program, const char *expression, const char **name)
{
    (void)program;
    *name = expression;
    return 0;
}

#define SIZE_AND_BYTES(what)                                \
    FAKE(nvrtcGet##what##Size, void *program, size_t *size) \
    {                                                       \
        *size = strlen(program) + 1;                        \
        return 0;                                           \
    }                                                       \
    FAKE(nvrtcGet##what, void *program, char *bytes)        \
    {                                                       \
        memcpy(bytes, program, strlen(program) + 1);        \
        return 0;                                           \
    }
SIZE_AND_BYTES(PTX)
SIZE_AND_BYTES(CUBIN)

FAKE(nvrtcGetProgramLogSize, void *program, size_t *size)
{
    (void)program;
    *size = 1;
    return 0;
}

FAKE(nvrtcGetProgramLog, void *program, char *words)
{
    (void)program;
    *words = 0;
    return 0;
}

EXPORT const char *nvrtcGetErrorString(int result);
const char *nvrtcGetErrorString(int result)
{
    return result ? "NVRTC_ERROR_OF_THE_FAKE" : "NVRTC_SUCCESS";
}
