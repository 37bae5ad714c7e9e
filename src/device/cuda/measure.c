/*
 * The GPU's ceilings: how fast it copies, reads and multiplies. The copy is the better of the driver's own and of
 * kernels that move 16 bytes an access, several of them in flight; buffers are rotated where they would fit the L2.
 * Times are those of events around several launches; the best of several rounds counts, since a ceiling is what the
 * machine can do.
 * SPDX-License-Identifier: MIT
 */
#include "device/ceilings.h"
#include "device/cuda/cuda.h"

#include <string.h>

static const char source[] =
    "typedef unsigned long long word;\n"
    "template <int N> __device__ void move(const uint4 *from, uint4 *to, word count)\n"
    "{\n"
    "    word step = (word)gridDim.x * blockDim.x * N;\n"
    "    for (word at = (word)blockIdx.x * blockDim.x * N + threadIdx.x; at < count; at += step) {\n"
    "        uint4 v[N];\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < N; k++)\n"
    "            if (at + k * blockDim.x < count) v[k] = __ldcs(from + at + k * blockDim.x);\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < N; k++)\n"
    "            if (at + k * blockDim.x < count) __stcs(to + at + k * blockDim.x, v[k]);\n"
    "    }\n"
    "}\n"
    "extern \"C\" __global__ void copy_1(const uint4 *from, uint4 *to, word count) { move<1>(from, to, count); }\n"
    "extern \"C\" __global__ void copy_4(const uint4 *from, uint4 *to, word count) { move<4>(from, to, count); }\n"
    "extern \"C\" __global__ void read_8(const uint4 *from, uint4 *to, word count)\n"
    "{\n"
    "    word step = (word)gridDim.x * blockDim.x * 8;\n"
    "    unsigned sum = 0;\n"
    "    for (word at = (word)blockIdx.x * blockDim.x * 8 + threadIdx.x; at < count; at += step)\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < 8; k++)\n"
    "            if (at + k * blockDim.x < count) {\n"
    "                uint4 v = __ldcs(from + at + k * blockDim.x);\n"
    "                sum += v.x + v.y + v.z + v.w;\n"
    "            }\n"
    "    if (sum == 0x12345678u) to->x = sum;\n"
    "}\n"
    "extern \"C\" __global__ void multiply_add(const uint4 *from, float *to, word count)\n"
    "{\n"
    "    float a[16], x = (float)threadIdx.x * 1e-6f, y = 1.0f - x;\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < 16; k++) a[k] = k;\n"
    "    for (word i = 0; i < count; i++)\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < 16; k++) a[k] = a[k] * y + x;\n"
    "    float sum = 0;\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < 16; k++) sum += a[k];\n"
    "    if (sum == 1.234f) *to = sum;\n"
    "}\n";

/* SLOW_MS: a round of more, where a usual one takes 10. Two of them are all that a device so slow is asked for. */
enum { MOST_PAIRS = 64, ROUNDS = 7, SLOW_MS = 100 };

typedef struct measuring {
    cuda_device *device;
    void *module, *events[2];
    uint64_t memory;
    size_t half_bytes; /* of one pair: what is read, and what is written */
    int pair_count;
} measuring;

static int start(measuring *m, void *function, int blocks, int threads, uint64_t from, uint64_t to, uint64_t count)
{
    void *parameters[] = {&from, &to, &count};
    return m->device->api.cuLaunchKernel(function, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1, 0,
                                         m->device->own.handle, parameters, NULL);
}

/* The shortest time of one launch, in ns. function NULL: the driver's copy. blocks 0: one launch's worth of threads. */
static qn_status shortest(measuring *m, void *function, int each, int blocks, uint64_t count, double *ns,
                          qn_error *error)
{
    cuda_device *d = m->device;
    int turns = 1, result = 0, slow = 0;
    *ns = 1e18;
    for (int round = -1; round < ROUNDS && slow < 2 && !result; round++) {
        float milliseconds = 0;
        result = d->api.cuEventRecord(m->events[0], d->own.handle);
        for (int i = 0; i < turns && !result; i++) {
            uint64_t from = m->memory + (uint64_t)(i % m->pair_count) * 2 * m->half_bytes, to = from + m->half_bytes;
            if (!function)
                result = d->api.cuMemcpyDtoDAsync_v2(to, from, m->half_bytes, d->own.handle);
            else
                result = start(m, function,
                               blocks ? blocks
                                      : (int)MINIMUM((count + 256ull * (unsigned)each - 1) / (256ull * (unsigned)each),
                                                     0x7fffffffull),
                               256, from, to, count);
        }
        if (!result) result = d->api.cuEventRecord(m->events[1], d->own.handle);
        if (!result) result = d->api.cuEventSynchronize(m->events[1]);
        if (!result) result = d->api.cuEventElapsedTime(&milliseconds, m->events[0], m->events[1]);
        bool long_one = milliseconds > SLOW_MS;
        if (round > 0 || long_one) *ns = MINIMUM(*ns, (double)milliseconds * 1e6 / turns); /* the first warm up */
        if (round < 0 && !long_one) turns = 4;
        if (!round && milliseconds > 0) turns = (int)MINIMUM(MAXIMUM(10 / (milliseconds / (float)turns), 4.0f), 400.0f);
        slow += long_one;
    }
    return result ? cuda_failed(d, result, NULL, "measuring", error) : QN_OK;
}

static qn_status run(measuring *m, ceilings *out, qn_error *error)
{
    cuda_device *d = m->device;
    static const struct {
        const char *name;
        int each;
        bool persistent;
    } copies[] = {{"copy_1", 1, false}, {"copy_4", 4, false}, {"copy_4", 4, true}};
    double ns, bytes = 2.0 * (double)m->half_bytes;
    uint64_t count = m->half_bytes / 16;
    QN_TRY(shortest(m, NULL, 1, 0, count, &ns, error));
    out->copy_gb_per_s = bytes / ns;
    for (int i = 0; i < COUNT(copies); i++) {
        void *function;
        CUDA_TRY(d, d->api.cuModuleGetFunction(&function, m->module, copies[i].name), "measuring");
        QN_TRY(shortest(m, function, copies[i].each, copies[i].persistent ? 8 * d->target.multiprocessors : 0, count,
                        &ns, error));
        out->copy_gb_per_s = MAXIMUM(out->copy_gb_per_s, bytes / ns);
    }
    void *function;
    CUDA_TRY(d, d->api.cuModuleGetFunction(&function, m->module, "read_8"), "measuring");
    for (int persistent = 0; persistent < 2; persistent++) {
        QN_TRY(shortest(m, function, 8, persistent ? 8 * d->target.multiprocessors : 0, count, &ns, error));
        out->read_gb_per_s = MAXIMUM(out->read_gb_per_s, bytes / 2 / ns);
    }
    CUDA_TRY(d, d->api.cuModuleGetFunction(&function, m->module, "multiply_add"), "measuring");
    const uint64_t steps = 4096;
    QN_TRY(shortest(m, function, 1, 8 * d->target.multiprocessors, steps, &ns, error));
    out->fma_all_gflop_per_s = 2.0 * 16 * (double)steps * 256 * 8 * d->target.multiprocessors / ns;
    out->fma_one_gflop_per_s = out->fma_all_gflop_per_s / d->target.multiprocessors;
    return QN_OK;
}

qn_status cuda_measure(device *base, size_t copy_bytes, ceilings *out, qn_error *error)
{
    cuda_device *d = (cuda_device *)base;
    measuring m = {.device = d, .half_bytes = (MAXIMUM(copy_bytes, (size_t)4096) + 511) / 512 * 512};
    nvrtc_output output = {0};
    void *memory = NULL;
    bool pushed;
    memset(out, 0, sizeof(*out));
    QN_TRY(cuda_enter(d, &pushed, error));
    size_t pair = 2 * m.half_bytes, wanted = 4 * (size_t)d->target.l2_bytes;
    m.pair_count = (int)MINIMUM(MAXIMUM((wanted + pair - 1) / pair, (size_t)1), (size_t)MOST_PAIRS);
    nvrtc_options options = {.arch = d->target.arch};
    qn_status status = nvrtc_compile(d->compiler, source, "ceilings.cu", &options, &output, error);
    int result = status == QN_OK ? d->api.cuModuleLoadData(&m.module, text_get(&output.cubin)) : 0;
    for (int i = 0; i < 2 && !result; i++) result = d->api.cuEventCreate(&m.events[i], 0);
    if (result) status = cuda_failed(d, result, NULL, "measuring", error);
    if (status == QN_OK) status = cuda_allocate(base, pair * (size_t)m.pair_count, &memory, error);
    m.memory = (uint64_t)(uintptr_t)memory;
    if (status == QN_OK &&
        (result = d->api.cuMemsetD32Async(m.memory, 0x3f8ccccd, pair * (size_t)m.pair_count / 4, d->own.handle)))
        status = cuda_failed(d, result, NULL, "measuring", error);
    if (status == QN_OK) status = run(&m, out, error);
    if (!d->lost) {
        for (int i = 0; i < 2; i++)
            if (m.events[i]) d->api.cuEventDestroy_v2(m.events[i]);
        if (m.module) d->api.cuModuleUnload(m.module);
    }
    cuda_release(base, memory);
    nvrtc_output_free(&output);
    cuda_leave(d, pushed);
    return status;
}
