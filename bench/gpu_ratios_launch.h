/*
 * How long starts, compilations and launches take; a part of gpu_ratios.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_BENCH_GPU_RATIOS_LAUNCH_H
#define QUERN_BENCH_GPU_RATIOS_LAUNCH_H

/* ---- starts, compiling, launching ---- */

static void judge(const char *title, const char *name, double value, double bar, const char *unit)
{
    printf("%-58s %9.3f %s (bar %.3g)%s\n", title, value, unit, bar, value > bar ? "  ABOVE" : "");
    below += value > bar;
    put_json(name, "", value, 0, value, bar);
    fflush(stdout);
}

/* From the start of a process to its first right result, with everything in the cache. */
static void measure_start(void)
{
    double best = 1e18;
    char path[1024];
    snprintf(path, sizeof(path), "%s/gelu.qn", kernels_folder);
    for (int run = 0; run < 4; run++) {
        fflush(NULL); /* or the child would write what waits here once more */
        double start = now_ns();
        pid_t child = fork();
        if (child < 0) return;
        if (child == 0) {
            if (!freopen("/dev/null", "w", stdout)) _exit(127);
            execl(quern_program, quern_program, "run", path, "gelu_tile", "--set", "n=100000", "--device", device,
                  (char *)NULL);
            _exit(127);
        }
        int status;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) {
            printf("    %s did not run\n", quern_program);
            return;
        }
        if (run) best = fmin(best, now_ns() - start); /* the first fills the cache */
    }
    judge("process start to first result, warm cache (s)", "startup", best * 1e-9, 0.5, "s");
}

/* A kernel of `file` under a name that nobody had before: NVRTC keeps what it compiled on the disk, too. */
static qn_module *load_afresh(const char *file, const char *kernel, char *name, size_t size)
{
    char path[1024];
    qn_error error;
    qn_module *module;
    snprintf(path, sizeof(path), "%s/%s", kernels_folder, file);
    snprintf(name, size, "%s_%llx", kernel, (unsigned long long)now_ns());
    FILE *from = fopen(path, "r");
    char *words = NULL, *text = NULL;
    size_t length = 0, used = 0;
    FILE *out = open_memstream(&text, &used);
    if (!from || !out || getdelim(&words, &length, 0, from) < 0) perror(path), exit(1);
    char *at = words, head[128];
    snprintf(head, sizeof(head), "kernel %s(", kernel);
    char *found = strstr(words, head);
    if (!found) fprintf(stderr, "%s: no %s\n", path, kernel), exit(1);
    fprintf(out, "%.*skernel %s(", (int)(found - at), at, name);
    char *end = strstr(found, "\n}"); /* what comes after it may name it again */
    fprintf(out, "%.*s\n}\n", (int)(end - found - (int)strlen(head)), found + strlen(head));
    fclose(out);
    fclose(from);
    TRY(qn_module_load_text(context, path, text, &module, &error));
    free(words);
    free(text);
    return module;
}

static void measure_compile(void)
{
    static const struct {
        const char *title, *name, *file, *kernel, *settings;
        double bar;
    } cases[] = {{NULL, NULL, "square.qn", "square_multiply", "n=1000", 0}, /* loads NVRTC */
                 {NULL, NULL, "layernorm.qn", "layer_norm", "T=f32 rows=64 cols=16384", 0},
                 {"cold compile, elementwise (ms)", "compile gelu", "gelu.qn", "gelu_tile", "n=100000", 60},
                 {"cold compile, row reduction (ms)", "compile softmax", "softmax.qn", "softmax_row",
                  "T=f32 rows=64 cols=16384", 120}};
    qn_error error;
    qn_context *kept = context;
    qn_context_options options = {.no_cache = true, .allow_raw = true};
    TRY(qn_context_open(&options, &context, &error));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double best = 1e18;
        for (int round = 0; round < (cases[i].title ? 5 : 1); round++) {
            char name[128];
            qn_module *module = load_afresh(cases[i].file, cases[i].kernel, name, sizeof(name));
            qn_call *call;
            qn_timing timing;
            TRY(qn_call_new(module, name, &call, &error));
            set_all(call, cases[i].settings);
            TRY(qn_call_generate(call, 1, &error));
            TRY(qn_call_run(call, device, &error));
            qn_call_timing(call, &timing);
            best = fmin(best, (double)(timing.compile_ns + timing.load_ns) * 1e-6);
            qn_call_free(call);
            qn_module_free(module);
        }
        if (cases[i].title) judge(cases[i].title, cases[i].name, best, cases[i].bar, "ms");
    }
    qn_context_close(context);
    context = kept;
}

typedef struct bare_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream, *attributes;
    unsigned attribute_count;
} bare_config;

/* The driver's own call with a frame as large as ours, in this process and context. NAN: it cannot be made. */
static double bare_launch_us(int count)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *nvrtc = dlopen("libnvrtc.so.13", RTLD_NOW);
    const char
        *folder = getenv("QUERN_CUDA_PATH"),
        *text = "struct frame { long words[11]; }; extern \"C\" __global__ void bare(const __grid_constant__ frame f) "
                "{ float *x = (float *)f.words[0]; if (threadIdx.x < 64) x[threadIdx.x] += 1; }";
    char path[1024];
    static const char *const folders[] = {"/usr/local/cuda/lib64/libnvrtc.so.13",
                                          "/usr/local/cuda/lib64/libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"};
    if (!nvrtc && folder) {
        snprintf(path, sizeof(path), "%s/libnvrtc.so.13", folder);
        nvrtc = dlopen(path, RTLD_NOW);
    }
    for (int i = 0; i < 3 && !nvrtc; i++) nvrtc = dlopen(folders[i], RTLD_NOW);
    if (!cuda || !nvrtc) return NAN;
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(void *, int, const char *const *), (*size_of)(void *, size_t *), (*get)(void *, char *);
    int (*load_module)(void **, const void *), (*find)(void **, void *, const char *), (*make)(void **, unsigned);
    int (*launch)(const bare_config *, void *, void **, void **), (*wait)(void *), (*retain)(void **, int);
    int (*set)(void *), (*allocate)(uint64_t *, size_t), (*attribute)(int *, int, int);
    int (*end)(void *), (*unload)(void *), (*release)(uint64_t);
    *(void **)&create = dlsym(nvrtc, "nvrtcCreateProgram");
    *(void **)&compile = dlsym(nvrtc, "nvrtcCompileProgram");
    *(void **)&size_of = dlsym(nvrtc, "nvrtcGetCUBINSize");
    *(void **)&get = dlsym(nvrtc, "nvrtcGetCUBIN");
    *(void **)&load_module = dlsym(cuda, "cuModuleLoadData");
    *(void **)&find = dlsym(cuda, "cuModuleGetFunction");
    *(void **)&make = dlsym(cuda, "cuStreamCreate");
    *(void **)&launch = dlsym(cuda, "cuLaunchKernelEx");
    *(void **)&wait = dlsym(cuda, "cuStreamSynchronize");
    *(void **)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(cuda, "cuCtxSetCurrent");
    *(void **)&allocate = dlsym(cuda, "cuMemAlloc_v2");
    *(void **)&attribute = dlsym(cuda, "cuDeviceGetAttribute");
    *(void **)&end = dlsym(cuda, "cuStreamDestroy_v2");
    *(void **)&unload = dlsym(cuda, "cuModuleUnload");
    *(void **)&release = dlsym(cuda, "cuMemFree_v2");
    if (!create || !compile || !size_of || !get || !load_module || !find || !make || !launch || !wait || !retain ||
        !set || !allocate || !attribute || !end || !unload || !release)
        return NAN;
    void *program, *module, *function, *own, *handle;
    size_t size;
    int major = 9, minor = 0;
    char option[64];
    attribute(&major, 75, 0);
    attribute(&minor, 76, 0);
    snprintf(option, sizeof(option), "--gpu-architecture=sm_%d%d", major, minor);
    const char *const flags[] = {option};
    if (create(&program, text, "bare.cu", 0, NULL, NULL) || compile(program, 1, flags) || size_of(program, &size))
        return NAN;
    char *cubin = malloc(size);
    uint64_t frame[11] = {0};
    if (!cubin || get(program, cubin) || retain(&own, 0) || set(own) || load_module(&module, cubin) ||
        find(&function, module, "bare") || make(&handle, 1) || allocate(&frame[0], 4096))
        return NAN;
    free(cubin);
    bare_config config = {.grid = {1, 1, 1}, .block = {64, 1, 1}, .stream = handle};
    void *parameters[] = {frame};
    double best = 1e18;
    for (int round = 0; round < 7; round++) {
        double start = now_ns();
        for (int i = 0; i < count; i++) launch(&config, function, parameters, NULL);
        best = fmin(best, (now_ns() - start) / count);
        wait(handle);
    }
    end(handle); /* with a fourth stream in the process a node of a graph takes 0.12 us more */
    unload(module);
    release(frame[0]);
    return best * 1e-3;
}

/* The time of a node in a replayed graph of 1000 launches, each of which waits for the one before. */
static double node_us(qn_call *call)
{
    qn_error error;
    qn_graph *graph;
    const int nodes = 1000; /* fewer than the driver queues before it makes the host wait */
    double node = 1e18;
    TRY(qn_graph_begin(stream, &error));
    for (int i = 0; i < nodes; i++) TRY(qn_call_launch(call, stream, &error));
    TRY(qn_graph_end(stream, &graph, &error));
    for (int round = 0; round < 12; round++) {
        double ns;
        TRY(qn_event_record(events[0], stream, &error));
        TRY(qn_graph_launch(graph, stream, &error));
        TRY(qn_event_record(events[1], stream, &error));
        TRY(qn_event_elapsed(events[0], events[1], &ns, &error));
        if (round) node = fmin(node, ns / nodes);
    }
    qn_graph_free(graph);
    return node * 1e-3;
}

static void measure_launch(void)
{
    qn_error error;
    qn_call *call;
    qn_buffer *buffer;
    int64_t extent = 64;
    const int count = 500; /* fewer than the driver queues before it makes the host wait */
    TRY(qn_buffer_new_on(context, device, 4096, &buffer, &error));
    TRY(qn_call_new(helpers, "tiny", &call, &error));
    TRY(qn_call_set_buffer(call, "x", buffer, 0, QN_F32, 1, &extent, NULL, &error));
    TRY(qn_call_launch(call, stream, &error));
    TRY(qn_stream_wait(stream, &error));
    judge("a node of a replayed graph of 1000 (us)", "graph node", node_us(call), 0.6, "us");
    double best = 1e18, bare = 1e18;
    for (int turn = 0; turn < 3; turn++) {
        for (int round = 0; round < 7; round++) {
            double start = now_ns();
            for (int i = 0; i < count; i++) TRY(qn_call_launch(call, stream, &error));
            best = fmin(best, (now_ns() - start) / count);
            TRY(qn_stream_wait(stream, &error));
        }
        bare = fmin(bare, bare_launch_us(count));
    }
    printf("    launch from C %.2f us, bare driver call %.2f us\n", best * 1e-3, bare);
    if (bare < 1e6)
        judge("launch from C, of the bare driver call", "launch", best * 1e-3 / bare, 1.2, "times");
    else
        printf("    the bare driver call could not be made: nothing to compare with\n");
    qn_call_free(call);
    qn_buffer_release(buffer);
}

#endif
