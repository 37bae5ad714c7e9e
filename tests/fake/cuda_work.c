/*
 * The fake driver's work: copies, fills and kernels, done at once or put into the graph that a stream records; modules.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "fake/state.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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
    case WORK_TASK: return w->task(w->parameters);
    default: return run_kernel(w, (void *const[]){w->parameters});
    }
}

int64_t fake_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Runs it, and tells who listens. */
int fake_run(const work *w, void *const *parameters, uint32_t call, uint32_t graph, uint32_t node)
{
    int64_t start_ns = fake_now_ns();
    int result = w->kind == WORK_KERNEL && parameters ? run_kernel(w, parameters) : run_work(w);
    if (!fake.listener) return result;
    fake_span span = {.kind = w->kind == WORK_KERNEL || w->kind == WORK_TASK ? FAKE_KERNEL
                              : w->kind == WORK_COPY                         ? FAKE_COPY
                                                                             : FAKE_FILL,
                      .name = w->kind == WORK_KERNEL ? ((const function *)w->function)->name : w->name,
                      .shared_bytes = w->config.shared_bytes,
                      .bytes = w->kind == WORK_COPY ? w->size : w->size * w->width * w->height,
                      .direction = w->direction,
                      .correlation = call,
                      .graph = graph,
                      .node = node,
                      .start_ns = start_ns,
                      .end_ns = fake_now_ns()};
    memcpy(span.grid, w->config.grid, sizeof(span.grid));
    memcpy(span.block, w->config.block, sizeof(span.block));
    fake.listener(&span);
    return result;
}

uint32_t fake_next_call(void)
{
    pthread_mutex_lock(&fake.lock);
    uint32_t call = ++fake.calls;
    pthread_mutex_unlock(&fake.lock);
    return call;
}

/* NULL: a default stream, also by its handles 1 (legacy) and 2 (per thread). */
stream *fake_stream(void *handle)
{
    return (uintptr_t)handle <= 2 ? NULL : handle;
}

/* A kernel's parameter as the driver has it: a copy, aligned as its type may fake_ask for, wherever the caller's lies. */
static void *copy_parameter(const work *w, void *const *parameters)
{
    size_t size = ((const function *)w->function)->parameter_bytes;
    size_t kept = size ? size : 8;
    void *copy = aligned_alloc(64, (kept + 63) / 64 * 64);
    if (!copy) abort();
    return memcpy(copy, parameters[0], kept);
}

void fake_set_after(stream *s, void *const *nodes, size_t count)
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
    stream *s = fake_stream(handle);
    if (!s || !s->recording) {
        bool framed = parameters && ((const function *)w->function)->parameter_bytes;
        void *copy = framed ? copy_parameter(w, parameters) : NULL;
        int result = fake_run(w, framed ? &copy : parameters, fake_next_call(), 0, 0);
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
    fake_set_after(s, &(void *){(void *)(uintptr_t)g->count}, 1);
    if (w->kind != WORK_KERNEL) return 0;
    item->parameters = copy_parameter(w, parameters);
    return 0;
}

int fake_submit(void *handle, const char *name, int (*task)(const void *state), const void *state, size_t size_bytes)
{
    const stream *s = fake_stream(handle);
    work w = {.kind = WORK_TASK, .task = task, .name = name, .parameters = malloc(size_bytes)};
    if (!w.parameters) abort();
    memcpy(w.parameters, state, size_bytes);
    bool recorded = s && s->recording; /* then the graph has the copy */
    int result = put(handle, &w, NULL);
    if (!recorded) free(w.parameters);
    return result;
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
