/*
 * Everything a GPU can do at best, for its roofline: writing, the L2, shared memory, double precision, exponentials, the
 * matrix units for each type, launches, copies to and from the host. cuda/measure.c has copying, reading and f32.
 *
 * The matrix units are fed by wgmma where there is one (on Hopper nothing else reaches their peak), by mma.sync
 * elsewhere; their operands are random numbers, since zeros cost less power and would run at a clock that no real
 * product has. What a GPU does not have stays 0.
 * SPDX-License-Identifier: MIT
 */
#include "device/ceilings.h"
#include "device/cuda/cuda.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static const char memory_source[] =
    "typedef unsigned long long word;\n"
    "extern \"C\" __global__ void write_all(const uint4 *from, uint4 *to, word count)\n"
    "{\n"
    "    word step = (word)gridDim.x * blockDim.x * 4;\n"
    "    uint4 v = make_uint4(threadIdx.x, blockIdx.x, 77777, 424242);\n"
    "    for (word at = (word)blockIdx.x * blockDim.x * 4 + threadIdx.x; at < count; at += step)\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < 4; k++)\n"
    "            if (at + k * blockDim.x < count) __stcs(to + at + k * blockDim.x, v);\n"
    "}\n"
    /* `count` words are read again and again; every block begins elsewhere, so that all slices of the L2 work. Volatile:
     * what another block of the same multiprocessor fetches at the same time is fetched again. */
    "extern \"C\" __global__ void read_cache(const uint4 *from, uint4 *to, word count)\n"
    "{\n"
    "    unsigned sum = 0, mask = (unsigned)count - 1, at = blockIdx.x * 4099u * 8 + threadIdx.x;\n"
    "    for (int i = 0; i < 256; i++) {\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < 8; k++) {\n"
    "            uint4 v;\n"
    "            const uint4 *place = from + ((at + k * blockDim.x) & mask);\n"
    "            asm volatile(\"ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];\"\n"
    "                         : \"=r\"(v.x), \"=r\"(v.y), \"=r\"(v.z), \"=r\"(v.w) : \"l\"(place));\n"
    "            sum += v.x ^ v.y ^ v.z ^ v.w;\n"
    "        }\n"
    "        at += gridDim.x * blockDim.x * 8;\n"
    "    }\n"
    "    if (sum == 0x12345678u) to->x = sum;\n"
    "}\n"
    "extern \"C\" __global__ void read_shared(const uint4 *from, uint4 *to, word count)\n"
    "{\n"
    "    __shared__ uint4 room[2048];\n"
    "    for (int i = threadIdx.x; i < 2048; i += blockDim.x) room[i] = make_uint4(i, 3 * i, 5 * i, 7 * i);\n"
    "    __syncthreads();\n"
    "    unsigned sum = 0, at = threadIdx.x;\n"
    "    for (word i = 0; i < count; i++) {\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < 8; k++) {\n"
    "            uint4 v = room[(at + 256 * k) & 2047];\n"
    "            sum ^= v.x ^ v.y ^ v.z ^ v.w;\n"
    "        }\n"
    "        at += sum & 32;\n" /* a whole warp moves together: no bank is asked twice */
    "    }\n"
    "    if (sum == 0x12345678u) to->x = sum;\n"
    "}\n"
    "extern \"C\" __global__ void multiply_add_f64(const uint4 *from, double *to, word count)\n"
    "{\n"
    "    double a[16], x = (double)threadIdx.x * 1e-6, y = 1.0 - x, sum = 0;\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < 16; k++) a[k] = k;\n"
    "    for (word i = 0; i < count; i++)\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < 16; k++) a[k] = a[k] * y + x;\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < 16; k++) sum += a[k];\n"
    "    if (sum == 1.234) *to = sum;\n"
    "}\n"
    "extern \"C\" __global__ void exponentials(const uint4 *from, float *to, word count)\n"
    "{\n"
    "    float a[8], sum = 0;\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < 8; k++) a[k] = (float)(threadIdx.x + k) * -1e-3f;\n"
    "    for (word i = 0; i < count; i++)\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < 8; k++) asm volatile(\"ex2.approx.ftz.f32 %0, %0;\" : \"+f\"(a[k]));\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < 8; k++) sum += a[k];\n"
    "    if (sum == 1.234f) *to = sum;\n"
    "}\n"
    "extern \"C\" __global__ void nothing(const uint4 *from, uint4 *to, word count) {}\n";

/* One type of the matrix units. */
typedef struct matrix_kind {
    const char *kernel;
    const char *wgmma, *mma;    /* what follows the instruction's name; mma NULL: none before Hopper */
    int wgmma_depth, mma_depth; /* k of one instruction */
    bool whole, sides;          /* sums are s32; the instruction says how its operands lie */
    const char *random;         /* a word of operands from the random word h */
    int since, mma_since;       /* architecture */
    size_t place;               /* in qn_roofline */
} matrix_kind;

#define PLACE(field) offsetof(qn_roofline, field)
#define ONE_BF16 "((h & 0x80008000u) | 0x3f003f00u | (h & 0x007f007fu))"
#define ONE_F16 "((h & 0x80008000u) | 0x38003800u | (h & 0x03ff03ffu))"
static const matrix_kind kinds[] = {
    {"dot_bf16", "m64n256k16.f32.bf16.bf16", "m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, false, true, ONE_BF16, 90,
     80, PLACE(dot_bf16_gflop_per_s)},
    {"dot_f16", "m64n256k16.f32.f16.f16", "m16n8k16.row.col.f32.f16.f16.f32", 16, 16, false, true, ONE_F16, 90, 80,
     PLACE(dot_f16_gflop_per_s)},
    {"dot_tf32", "m64n256k8.f32.tf32.tf32", "m16n8k8.row.col.f32.tf32.tf32.f32", 8, 8, false, false,
     "((h & 0x80000000u) | 0x3f000000u | (h & 0x007fe000u))", 90, 80, PLACE(dot_tf32_gflop_per_s)},
    {"dot_f8", "m64n256k32.f32.e4m3.e4m3", "m16n8k32.row.col.f32.e4m3.e4m3.f32", 32, 32, false, false,
     "((h & 0x80808080u) | 0x30303030u | (h & 0x07070707u))", 90, 89, PLACE(dot_f8_gflop_per_s)},
    {"dot_i8", "m64n256k32.s32.s8.s8", "m16n8k32.row.col.s32.s8.s8.s32", 32, 32, true, false, "h", 90, 80,
     PLACE(dot_i8_gflop_per_s)},
};
enum { WGMMA_SUMS = 128, MMA_TILES = 8, MATRIX_STEPS = 8 };

/* 128 rows and 256 columns of operands in shared memory, in the swizzle of 128 bytes; two groups of four warps. */
static void wgmma_kernel(const matrix_kind *k, text *out)
{
    const char *type = k->whole ? "int" : "float";
    text_print(
        out,
        "extern \"C\" __global__ void __launch_bounds__(256, 1) %s(const uint4 *from, %s *to, word count)\n{\n"
        "    __shared__ __align__(1024) unsigned room[(128 + 256) * 32];\n"
        "    for (int i = threadIdx.x; i < (128 + 256) * 32; i += 256) {\n"
        "        unsigned h = i * 2654435761u; h ^= h >> 15; h *= 2246822519u; h ^= h >> 13; room[i] = %s;\n"
        "    }\n"
        "    asm volatile(\"fence.proxy.async;\" ::: \"memory\");\n    __syncthreads();\n"
        "    unsigned start = (unsigned)__cvta_generic_to_shared(room);\n"
        "    word fixed = (word)1 << 62 | (word)64 << 32 | (word)1 << 16;\n"
        "    word a = fixed | ((start + threadIdx.x / 128 * 8192) >> 4 & 0x3fff), b = fixed | ((start + 16384) >> 4 "
        "& 0x3fff);\n"
        "    %s d[%d];\n#pragma unroll\n    for (int i = 0; i < %d; i++) d[i] = 0;\n"
        "    for (word i = 0; i < count; i++) {\n"
        "        asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
        "#pragma unroll\n        for (int k = 0; k < %d; k++)\n"
        "            asm volatile(\"{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.%s {",
        k->kernel, type, k->random, type, WGMMA_SUMS, WGMMA_SUMS, MATRIX_STEPS, k->wgmma);
    for (int i = 0; i < WGMMA_SUMS; i++) text_print(out, "%s%%%d", i ? "," : "", i);
    text_print(out, "}, %%%d, %%%d, p%s%s; }\"\n                : ", WGMMA_SUMS, WGMMA_SUMS + 1,
               k->whole ? "" : ", 1, 1", k->sides ? ", 0, 0" : "");
    for (int i = 0; i < WGMMA_SUMS; i++) text_print(out, "%s\"+%s\"(d[%d])", i ? ", " : "", k->whole ? "r" : "f", i);
    text_print(out,
               "\n                : \"l\"(a + 2 * (k %% 4)), \"l\"(b + 2 * (k %% 4)));\n"
               "        asm volatile(\"wgmma.commit_group.sync.aligned;\\n wgmma.wait_group.sync.aligned 0;\" ::: "
               "\"memory\");\n    }\n"
               "    %s sum = 0;\n#pragma unroll\n    for (int i = 0; i < %d; i++) sum += d[i];\n"
               "    if (sum == (%s)1234.5f) *to = sum;\n}\n",
               type, WGMMA_SUMS, type);
}

static void mma_kernel(const matrix_kind *k, text *out)
{
    const char *type = k->whole ? "int" : "float", *letter = k->whole ? "r" : "f";
    text_print(
        out,
        "extern \"C\" __global__ void %s(const uint4 *from, %s *to, word count)\n{\n"
        "    unsigned a[4], b[2 * %d];\n    %s d[%d][4];\n"
        "#pragma unroll\n    for (int i = 0; i < 4 + 2 * %d; i++) {\n"
        "        unsigned h = (threadIdx.x * 64 + i + 1) * 2654435761u; h ^= h >> 15; h *= 2246822519u; h ^= h >> 13;\n"
        "        unsigned v = %s; if (i < 4) a[i] = v; else b[i - 4] = v;\n    }\n"
        "#pragma unroll\n    for (int i = 0; i < %d; i++) for (int k = 0; k < 4; k++) d[i][k] = 0;\n"
        "    for (word i = 0; i < count; i++)\n"
        "#pragma unroll\n        for (int k = 0; k < %d; k++)\n"
        "            asm volatile(\"mma.sync.aligned.%s {%%0,%%1,%%2,%%3}, {%%4,%%5,%%6,%%7}, {%%8,%%9}, "
        "{%%0,%%1,%%2,%%3};\"\n"
        "                : \"+%s\"(d[k][0]), \"+%s\"(d[k][1]), \"+%s\"(d[k][2]), \"+%s\"(d[k][3])\n"
        "                : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[2 * k]), \"r\"(b[2 * k + "
        "1]));\n"
        "    %s sum = 0;\n#pragma unroll\n    for (int i = 0; i < %d; i++) sum += d[i][0] + d[i][1] + d[i][2] + "
        "d[i][3];\n"
        "    if (sum == (%s)1234.5f) *to = sum;\n}\n",
        k->kernel, type, MMA_TILES, type, MMA_TILES, MMA_TILES, k->random, MMA_TILES, MMA_TILES, k->mma, letter, letter,
        letter, letter, type, MMA_TILES, type);
}

static bool has_wgmma(int arch, const matrix_kind *k)
{
    return arch / 10 == 9 && arch >= k->since;
}

/* Texts of their own, since those of the matrix units take most of a second each to compile. */
enum { PARTS = 1 + COUNT(kinds) };

bool cuda_roofline_source(int arch, int part, text *out)
{
    if (part >= PARTS) return false;
    if (!part) {
        text_add(out, memory_source);
        return true;
    }
    const matrix_kind *k = &kinds[part - 1];
    text_add(out, "typedef unsigned long long word;\n");
    if (has_wgmma(arch, k))
        wgmma_kernel(k, out);
    else if (arch >= k->mma_since)
        mma_kernel(k, out);
    return true;
}

enum { ROUNDS = 5 };

typedef struct bench_gpu {
    cuda_device *device;
    void *modules[PARTS], *events[2];
    uint64_t memory;
    size_t bytes;
} bench_gpu;

static qn_status find_kernel(bench_gpu *g, const char *kernel, void **function, qn_error *error)
{
    int result = 0;
    for (int i = 0; i < PARTS; i++)
        if (!(result = g->device->api.cuModuleGetFunction(function, g->modules[i], kernel))) return QN_OK;
    return cuda_failed(g->device, result, NULL, "measuring", error);
}

/* The shortest time of one launch; several in a row make some milliseconds. */
static qn_status shortest(bench_gpu *g, const char *kernel, int blocks, int threads, uint64_t count, double *ns,
                          qn_error *error)
{
    cuda_device *d = g->device;
    void *function;
    uint64_t from = g->memory, to = g->memory;
    void *parameters[] = {&from, &to, &count};
    int turns = 1, result = 0;
    QN_TRY(find_kernel(g, kernel, &function, error));
    *ns = 1e18;
    for (int round = 0; round < ROUNDS && !result; round++) {
        float milliseconds = 0;
        result = d->api.cuEventRecord(g->events[0], d->own.handle);
        for (int i = 0; i < turns && !result; i++)
            result = d->api.cuLaunchKernel(function, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1, 0, d->own.handle,
                                           parameters, NULL);
        if (!result) result = d->api.cuEventRecord(g->events[1], d->own.handle);
        if (!result) result = d->api.cuEventSynchronize(g->events[1]);
        if (!result) result = d->api.cuEventElapsedTime(&milliseconds, g->events[0], g->events[1]);
        if (round) *ns = MINIMUM(*ns, (double)milliseconds * 1e6 / turns); /* the first warms up */
        if (!round) turns = (int)MINIMUM(MAXIMUM(8 / MAXIMUM(milliseconds, 1e-3f), 1.0f), 1000.0f);
    }
    return result ? cuda_failed(d, result, NULL, "measuring", error) : QN_OK;
}

static qn_status measure_memory(bench_gpu *g, qn_roofline *out, qn_error *error)
{
    const cuda_target *t = &g->device->target;
    double ns = NAN;
    int full = 8 * t->multiprocessors;
    uint64_t words = g->bytes / 16;
    QN_TRY(shortest(g, "write_all", full, 256, words, &ns, error));
    out->write_gb_per_s = (double)g->bytes / ns;
    QN_TRY(shortest(g, "write_all", (int)((words + 1023) / 1024), 256, words, &ns, error));
    out->write_gb_per_s = MAXIMUM(out->write_gb_per_s, (double)g->bytes / ns);
    uint64_t set = 1; /* a power of two of 16-byte words, a quarter of the L2 at most */
    while (set * 2 * 16 <= (uint64_t)t->l2_bytes / 4) set *= 2;
    for (int k = 1; k <= 2; k++) {
        QN_TRY(shortest(g, "read_cache", full / k, 256, set, &ns, error));
        double rate = 16.0 * 8 * 256 * 256 * (double)(full / k) / ns;
        out->cache_gb_per_s = MAXIMUM(out->cache_gb_per_s, rate);
    }
    const uint64_t steps = 512;
    for (int k = 1; k <= 4; k *= 2) {
        QN_TRY(shortest(g, "read_shared", k * t->multiprocessors, 512, steps, &ns, error));
        double rate = 16.0 * 8 * (double)steps * 512 * k * t->multiprocessors / ns;
        out->inner_gb_per_s = MAXIMUM(out->inner_gb_per_s, rate);
    }
    return QN_OK;
}

static qn_status measure_arithmetic(bench_gpu *g, qn_roofline *out, qn_error *error)
{
    const cuda_target *t = &g->device->target;
    double ns = NAN;
    const uint64_t steps = 1024;
    int full = 8 * t->multiprocessors;
    QN_TRY(shortest(g, "multiply_add_f64", full, 256, steps, &ns, error));
    out->fma_f64_gflop_per_s = 2.0 * 16 * (double)steps * 256 * full / ns;
    QN_TRY(shortest(g, "exponentials", full, 256, steps, &ns, error));
    out->exp_g_per_s = 8.0 * (double)steps * 256 * full / ns;
    for (int i = 0; i < COUNT(kinds); i++) {
        const matrix_kind *k = &kinds[i];
        double *place = (double *)((char *)out + k->place);
        bool wgmma = has_wgmma(t->arch, k);
        if (!wgmma && t->arch < k->mma_since) continue;
        const uint64_t loops = wgmma ? 2048 : 4096;
        int blocks = wgmma ? t->multiprocessors : 2 * t->multiprocessors;
        QN_TRY(shortest(g, k->kernel, blocks, 256, loops, &ns, error));
        double products = wgmma ? 2.0 * MATRIX_STEPS * 64 * 256 * k->wgmma_depth
                                : 8.0 * MMA_TILES * 16 * 8 * k->mma_depth; /* of a block, a turn of the loop */
        *place = 2 * products * (double)loops * blocks / ns;
    }
    return QN_OK;
}

/* How often an empty kernel can be launched, one by one and from a graph of many. */
static qn_status measure_launches(bench_gpu *g, qn_roofline *out, qn_error *error)
{
    enum { NODES = 256, REPLAYS = 8 };
    cuda_device *d = g->device;
    void *function, *graph = NULL, *ready = NULL;
    uint64_t zero = 0;
    void *parameters[] = {&zero, &zero, &zero};
    QN_TRY(shortest(g, "nothing", 1, 32, 0, &out->launch_ns, error));
    QN_TRY(find_kernel(g, "nothing", &function, error));
    int result = d->api.cuStreamBeginCapture_v2(d->own.handle, 2);
    for (int i = 0; i < NODES && !result; i++)
        result = d->api.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, d->own.handle, parameters, NULL);
    int ended = d->api.cuStreamEndCapture(d->own.handle, &graph);
    if (!result) result = ended;
    if (!result) result = d->api.cuGraphInstantiateWithFlags(&ready, graph, 0);
    double best = 1e18;
    for (int round = 0; round < ROUNDS && !result; round++) {
        float milliseconds = 0;
        result = d->api.cuEventRecord(g->events[0], d->own.handle);
        for (int i = 0; i < REPLAYS && !result; i++) result = d->api.cuGraphLaunch(ready, d->own.handle);
        if (!result) result = d->api.cuEventRecord(g->events[1], d->own.handle);
        if (!result) result = d->api.cuEventSynchronize(g->events[1]);
        if (!result) result = d->api.cuEventElapsedTime(&milliseconds, g->events[0], g->events[1]);
        best = MINIMUM(best, (double)milliseconds * 1e6 / (NODES * REPLAYS));
    }
    if (ready) d->api.cuGraphExecDestroy(ready);
    if (graph) d->api.cuGraphDestroy(graph);
    if (result) return cuda_failed(d, result, NULL, "measuring launches", error);
    out->graph_launch_ns = best;
    return QN_OK;
}

static qn_status measure_host(bench_gpu *g, qn_roofline *out, qn_error *error)
{
    cuda_device *d = g->device;
    void *host = NULL;
    size_t bytes = MINIMUM(g->bytes, (size_t)64 << 20);
    CUDA_TRY(d, d->api.cuMemHostAlloc(&host, bytes, 0), "measuring");
    int result = 0;
    double best[2] = {1e18, 1e18};
    memset(host, 1, bytes);
    for (int i = 0; i < 2 * ROUNDS && !result; i++) {
        float milliseconds = 0;
        result = d->api.cuEventRecord(g->events[0], d->own.handle);
        if (!result)
            result = i % 2 ? d->api.cuMemcpyDtoHAsync_v2(host, g->memory, bytes, d->own.handle)
                           : d->api.cuMemcpyHtoDAsync_v2(g->memory, host, bytes, d->own.handle);
        if (!result) result = d->api.cuEventRecord(g->events[1], d->own.handle);
        if (!result) result = d->api.cuEventSynchronize(g->events[1]);
        if (!result) result = d->api.cuEventElapsedTime(&milliseconds, g->events[0], g->events[1]);
        best[i % 2] = MINIMUM(best[i % 2], (double)milliseconds * 1e6);
    }
    d->api.cuMemFreeHost(host);
    if (result) return cuda_failed(d, result, NULL, "measuring copies", error);
    out->host_to_device_gb_per_s = (double)bytes / best[0];
    out->device_to_host_gb_per_s = (double)bytes / best[1];
    return QN_OK;
}

static qn_status run(bench_gpu *g, qn_roofline *out, qn_error *error)
{
    QN_TRY(measure_memory(g, out, error));
    QN_TRY(measure_arithmetic(g, out, error));
    QN_TRY(measure_launches(g, out, error));
    return measure_host(g, out, error);
}

/* ---- compiling, all at once ---- */

typedef struct compile_part {
    cuda_device *device;
    int number;
    pthread_t thread;
    bool started;
    nvrtc_output output;
    qn_status status;
    qn_error error;
} compile_part;

static void *compile_one(void *context)
{
    compile_part *p = context;
    text source = {0};
    nvrtc_options options = {.arch = p->device->target.arch};
    cuda_roofline_source(options.arch, p->number, &source);
    p->status = nvrtc_compile(p->device->compiler, text_get(&source), "roofline.cu", &options, &p->output, &p->error);
    text_free(&source);
    return NULL;
}

static qn_status load_parts(bench_gpu *g, qn_error *error)
{
    cuda_device *d = g->device;
    compile_part *parts = heap_array(PARTS, sizeof(*parts));
    qn_status status = QN_OK;
    for (int i = 0; i < PARTS; i++) {
        parts[i].device = d;
        parts[i].number = i;
        parts[i].started = i && !pthread_create(&parts[i].thread, NULL, compile_one, &parts[i]);
        if (i && !parts[i].started) compile_one(&parts[i]);
    }
    compile_one(&parts[0]); /* this thread's own */
    for (int i = 0; i < PARTS; i++) {
        if (parts[i].started) pthread_join(parts[i].thread, NULL);
        int result = 0;
        if (status == QN_OK && parts[i].status != QN_OK)
            status = error_set(error, parts[i].status, "%s", parts[i].error.message);
        if (status == QN_OK) result = d->api.cuModuleLoadData(&g->modules[i], text_get(&parts[i].output.cubin));
        if (result) status = cuda_failed(d, result, NULL, "measuring", error);
        nvrtc_output_free(&parts[i].output);
    }
    heap_free(parts);
    return status;
}

qn_status cuda_roofline(device *base, size_t bytes, qn_roofline *out, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    ceilings basic;
    void *memory = NULL;
    bool pushed;
    QN_TRY(cuda_measure(base, bytes, &basic, error));
    out->copy_gb_per_s = basic.copy_gb_per_s;
    out->read_gb_per_s = basic.read_gb_per_s;
    out->fma_f32_gflop_per_s = basic.fma_all_gflop_per_s;
    out->fma_one_gflop_per_s = basic.fma_one_gflop_per_s;
    QN_TRY(cuda_enter(d, &pushed, error));
    bench_gpu g = {.device = d, .bytes = bytes / 512 * 512};
    qn_status status = load_parts(&g, error);
    int result = 0;
    for (int i = 0; i < 2 && status == QN_OK && !result; i++) result = d->api.cuEventCreate(&g.events[i], 0);
    if (result) status = cuda_failed(d, result, NULL, "measuring", error);
    if (status == QN_OK) status = cuda_allocate(base, g.bytes, &memory, error);
    g.memory = (uint64_t)(uintptr_t)memory;
    if (status == QN_OK && (result = d->api.cuMemsetD32Async(g.memory, 0x3f8ccccd, g.bytes / 4, d->own.handle)))
        status = cuda_failed(d, result, NULL, "measuring", error);
    if (status == QN_OK) status = run(&g, out, error);
    if (!d->lost) {
        for (int i = 0; i < 2; i++)
            if (g.events[i]) d->api.cuEventDestroy_v2(g.events[i]);
        for (int i = 0; i < PARTS; i++)
            if (g.modules[i]) d->api.cuModuleUnload(g.modules[i]);
    }
    cuda_release(base, memory);
    cuda_leave(d, pushed);
    return status;
}
