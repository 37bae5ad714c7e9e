/*
 * Tensor functions and kernels on streams of the host program, on the driver in tests/fake: the default streams, no wait,
 * no lookup and one driver call a kernel when only addresses change, inside a recording of the host program's (whose
 * driver refuses whatever may wait), scratch memory from the caller.
 * SPDX-License-Identifier: MIT
 */
#include "fake/open.h"
#include "quiet.h"

#include <math.h>
#include <quern/device.h>
#include <quern/loader.h>
#include <quern/nn.h>
#include <quern/tensor.h>
#include <quern/train.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static qn_error error;
static char cache_folder[64];
static void (*fake_reset)(void);
static int64_t (*fake_count)(const char *function), (*fake_depth)(void);
static void (*fake_order)(const char *function, int result, int after);
static int (*make_stream)(void **, unsigned), (*begin)(void *, int), (*end)(void *, void **);
static int (*instantiate)(void **, void *, unsigned long long), (*replay)(void *, void *);
static qn_context *context;
static qn_module *module;

enum { M = 8, N = 96, COUNT_X = M * N };

static const char source[] = "kernel twice(in float x[n], out float y[n])\n"
                             "    launch (cdiv(n, 64))\n"
                             "{ y[program(0) * 64 : 64] = 2 * x[program(0) * 64 : 64]; }\n"
                             "kernel halves(in float x[n], out float y[n], scratch float part[n])\n"
                             "    launch (cdiv(n, 64))\n"
                             "{ part[program(0) * 64 : 64] = x[program(0) * 64 : 64]; }\n"
                             "    then launch (cdiv(n, 64))\n"
                             "{ y[program(0) * 64 : 64] = part[program(0) * 64 : 64] / 2; }\n"
                             "tensor norm(float x[m][n], float w[n][n]) {\n"
                             "  let y = matmul(x, w);\n"
                             "  let z = matmul(y, w);\n"
                             "  return z - mean(z, axis = 1);\n"
                             "}\n";

#define OK(call)                           \
    do {                                   \
        if ((call) != QN_OK) {             \
            printf("%s\n", error.message); \
            EXPECT(!"success of " #call);  \
        }                                  \
    } while (0)

TEST(open_fake)
{
    void *library = fake_open();
    fake_find(library, "fake_reset", &fake_reset);
    fake_find(library, "fake_count", &fake_count);
    fake_find(library, "fake_depth", &fake_depth);
    fake_find(library, "fake_order", &fake_order);
    fake_find(library, "cuStreamCreate", &make_stream);
    fake_find(library, "cuStreamBeginCapture_v2", &begin);
    fake_find(library, "cuStreamEndCapture", &end);
    fake_find(library, "cuGraphInstantiateWithFlags", &instantiate);
    fake_find(library, "cuGraphLaunch", &replay);
    snprintf(cache_folder, sizeof(cache_folder), "/tmp/quern-test-streams-XXXXXX");
    EXPECT(mkdtemp(cache_folder) != NULL);
    fake_reset();
    qn_context_options options = {.cache_folder = cache_folder};
    OK(qn_context_open(&options, &context, &error));
    OK(qn_module_load_text(context, "streams.qn", source, &module, &error));
}

/* ---- recorded steps ---- */

enum { LAYERS = 3, WIDE = 32, BATCH = 24, STEPS = 4 };

/* The losses of some replayed steps; *nodes and *depth of the graph, where there is one. */
static void train(const char *device, float losses[STEPS], int *nodes, int64_t *depth)
{
    qn_tape *tape = NULL;
    OK(qn_tape_new(context, device, &tape, &error));
    qn_tensor parameters[2 * LAYERS], x = qn_randn(tape, QN_F32, QN_SHAPE(BATCH, WIDE));
    qn_tensor wanted = qn_randn(tape, QN_F32, QN_SHAPE(BATCH, WIDE));
    for (int i = 0; i < LAYERS; i++) {
        parameters[2 * i] = qn_variable(qn_mul_scalar(qn_randn(tape, QN_F32, QN_SHAPE(WIDE, WIDE)), 0.2));
        parameters[2 * i + 1] = qn_variable(qn_randn(tape, QN_F32, QN_SHAPE(WIDE)));
    }
    OK(qn_eval(tape, (qn_tensor[]){x, wanted}, 2, &error));
    qn_optimizer_options options = qn_optimizer_defaults(QN_ADAM);
    options.rate = 0.01;
    qn_optimizer *optimizer = qn_optimizer_new(tape, QN_ADAM, &options, parameters, 2 * LAYERS);
    OK(qn_eval(tape, NULL, 0, &error));
    qn_plan *plan = NULL;
    OK(qn_capture_begin(tape, &error));
    qn_tensor y = x;
    for (int i = 0; i < LAYERS; i++) y = qn_tanh(qn_linear(y, parameters[2 * i], parameters[2 * i + 1]));
    qn_tensor off = qn_sub(y, wanted), loss = qn_mean(qn_mul(off, off), QN_ALL, false);
    qn_optimizer_minimize(optimizer, loss);
    OK(qn_eval(tape, &loss, 1, &error));
    OK(qn_capture_end(tape, &plan, &error));
    for (int i = 0; i < STEPS; i++) {
        OK(qn_plan_replay(plan, &error));
        OK(qn_tensor_read(loss, &losses[i], sizeof(losses[i]), &error));
    }
    qn_plan_facts facts;
    qn_plan_info(plan, &facts);
    *nodes = facts.nodes;
    *depth = fake_depth();
    qn_plan_free(plan);
    qn_optimizer_free(optimizer);
    qn_tape_free(tape);
}

/* The fake runs of all nodes that may run the last one first: an edge that is missing shows in the losses. */
TEST(steps_side_by_side)
{
    float expected[STEPS], losses[STEPS];
    int nodes;
    int64_t depth;
    train("cpu", expected, &nodes, &depth);
    EXPECT(expected[STEPS - 1] < expected[0]);
    train("cuda", losses, &nodes, &depth);
    EXPECT(nodes > 4 && depth < nodes);
    for (int i = 0; i < STEPS; i++) EXPECT(fabsf(losses[i] - expected[i]) < 1e-4f);
    fake_order("cuStreamUpdateCaptureDependencies", 1, 0); /* a driver that does not do it: all in a row */
    train("cuda", losses, &nodes, &depth);
    EXPECT(depth == nodes);
    for (int i = 0; i < STEPS; i++) EXPECT(fabsf(losses[i] - expected[i]) < 1e-4f);
}

/* What has ended leaves its memory to others: they would wait for it, had it not memory enough. */
TEST(chains_do_not_wait_for_memory)
{
    enum { LINKS = 6, CHAINS = 3, COUNT = 64 };
    float from[COUNT], found[COUNT];
    double expected[COUNT] = {0};
    qn_tape *tape = NULL;
    qn_plan *plan = NULL;
    OK(qn_tape_new(context, "cuda", &tape, &error));
    qn_tensor x = qn_add_scalar(qn_rand(tape, QN_F32, QN_SHAPE(COUNT)), 0), sum = {0};
    OK(qn_eval(tape, &x, 1, &error));
    OK(qn_tensor_read(x, from, sizeof(from), &error));
    OK(qn_capture_begin(tape, &error));
    for (int c = 0; c < CHAINS; c++) {
        qn_tensor y = x;
        for (int i = 0; i < LINKS; i++) y = qn_cumsum(qn_mul_scalar(y, 0.1 * (c + 1)), 0);
        sum = c ? qn_add(sum, y) : y;
    }
    OK(qn_eval(tape, &sum, 1, &error));
    OK(qn_capture_end(tape, &plan, &error));
    OK(qn_plan_replay(plan, &error));
    OK(qn_tensor_read(sum, found, sizeof(found), &error));
    EXPECT(fake_depth() <= LINKS + 2);
    for (int c = 0; c < CHAINS; c++) {
        double y[COUNT];
        for (int k = 0; k < COUNT; k++) y[k] = from[k];
        for (int i = 0; i < LINKS; i++)
            for (int k = 0; k < COUNT; k++) y[k] = y[k] * 0.1 * (c + 1) + (k ? y[k - 1] : 0);
        for (int k = 0; k < COUNT; k++) expected[k] += y[k];
    }
    int wrong = 0;
    for (int k = 0; k < COUNT; k++) wrong += fabs(found[k] - expected[k]) > 1e-4 * (1 + fabs(expected[k]));
    EXPECT(wrong == 0);
    qn_plan_free(plan);
    qn_tape_free(tape);
}

/* ... and one row of kernels, in which each waits for the one before, has no more memory for it. */
TEST(a_row_of_kernels_keeps_its_places)
{
    enum { LINKS = 8, COUNT = 1024 };
    qn_tape *tape = NULL;
    qn_plan *plan = NULL;
    qn_plan_facts facts;
    OK(qn_tape_new(context, "cuda", &tape, &error));
    qn_tensor x = qn_add_scalar(qn_rand(tape, QN_F32, QN_SHAPE(COUNT)), 0);
    OK(qn_eval(tape, &x, 1, &error));
    OK(qn_capture_begin(tape, &error));
    for (int i = 0; i < LINKS; i++) x = qn_cumsum(qn_mul_scalar(x, 0.1), 0);
    OK(qn_eval(tape, &x, 1, &error));
    OK(qn_capture_end(tape, &plan, &error));
    qn_plan_info(plan, &facts);
    EXPECT(facts.kernels >= LINKS && facts.workspace_bytes <= 3 * 4 * COUNT);
    qn_plan_free(plan);
    qn_tape_free(tape);
}

/* The workspace of chains that could run side by side, recorded and never run. */
static int64_t chains_bytes(qn_mode mode, int64_t count)
{
    enum { LINKS = 3, CHAINS = 6 };
    qn_tape *tape = NULL;
    qn_plan *plan = NULL;
    qn_plan_facts facts;
    OK(qn_tape_new(context, "cuda", &tape, &error));
    qn_tape_set_mode(tape, mode);
    qn_tensor x = qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(count))), sum = {0};
    OK(qn_eval(tape, &x, 1, &error));
    OK(qn_capture_begin(tape, &error));
    for (int c = 0; c < CHAINS; c++) {
        qn_tensor y = x;
        for (int i = 0; i < LINKS; i++) y = qn_cumsum(qn_mul_scalar(y, 0.1 * (c + 1)), 0);
        y = qn_sum(y, QN_ALL, false);
        sum = c ? qn_add(sum, y) : y;
    }
    OK(qn_eval(tape, &sum, 1, &error));
    OK(qn_capture_end(tape, &plan, &error));
    qn_plan_info(plan, &facts);
    qn_plan_free(plan);
    qn_tape_free(tape);
    return facts.workspace_bytes;
}

/* ... however much time that would gain: memory that nobody waits for is never more than a kernel for each op has. */
TEST(a_recorded_step_needs_no_more_than_eager)
{
    int64_t fused = chains_bytes(QN_FUSED, 6 << 20), eager = chains_bytes(QN_EAGER, 6 << 20);
    if (fused > eager + 4096) printf("fused %lld bytes, eager %lld bytes\n", (long long)fused, (long long)eager);
    EXPECT(fused <= eager + 4096); /* places begin at multiples of 256 bytes */
}

static qn_status fill_batch(qn_loaded *batch, void *user, qn_error *e)
{
    const int64_t *count = user;
    (void)e;
    batch->rows = batch->number < 7 ? *count : 0;
    for (int64_t i = 0; i < batch->rows; i++) ((float *)batch->fields[0])[i] = (float)(batch->number * 1000 + i % 997);
    return QN_OK;
}

/* Batches are filled into page-locked memory, copied from there without a detour, and filled again only after that. */
TEST(batches_in_locked_memory)
{
    enum { SLOTS = 3, BATCHES = 7 };
    int64_t counts[] = {70000, 12}; /* beyond and below what goes by chunks */
    for (int c = 0; c < 2; c++) {
        qn_loader_options options = {.field_count = 1, .fill = fill_batch, .user = &counts[c], .slots = SLOTS};
        options.fields[0] = (qn_field){QN_F32, QN_SHAPE(counts[c])};
        options.device = "cuda";
        qn_loader *loader = NULL;
        qn_tape *tape = NULL;
        float *found = malloc((size_t)counts[c] * 4);
        OK(qn_tape_new(context, "cuda", &tape, &error));
        qn_tensor x = qn_empty(tape, QN_F32, QN_SHAPE(counts[c]));
        int64_t allocated = fake_count("cuMemHostAlloc"), waited = fake_count("cuEventSynchronize"), rows = 1;
        OK(qn_loader_new(context, &options, &loader, &error));
        EXPECT(fake_count("cuMemHostAlloc") == allocated + SLOTS);
        for (int b = 0; b < BATCHES; b++) {
            int64_t wrong = 0;
            OK(qn_loader_feed(loader, &x, &rows, &error));
            EXPECT(rows == counts[c]);
            OK(qn_tensor_read(x, found, (size_t)counts[c] * 4, &error));
            for (int64_t i = 0; i < counts[c]; i++) wrong += found[i] != (float)(b * 1000 + i % 997);
            EXPECT(!wrong);
        }
        OK(qn_loader_feed(loader, &x, &rows, &error));
        EXPECT(rows == 0 && fake_count("cuEventSynchronize") >= waited + BATCHES);
        int64_t freed = fake_count("cuMemFreeHost");
        qn_loader_free(loader);
        EXPECT(fake_count("cuMemFreeHost") == freed + SLOTS);
        qn_tape_free(tape);
        free(found);
    }
}

static float *memory_of(qn_buffer *b)
{
    return qn_buffer_data(b);
}

static qn_buffer *new_buffer(int64_t count)
{
    qn_buffer *b = NULL;
    OK(qn_buffer_new_on(context, "cuda", (size_t)count * 4, &b, &error));
    return b;
}

static void put(qn_buffer *b, int64_t count, float scale)
{
    float *numbers = malloc((size_t)count * 4);
    for (int64_t i = 0; i < count; i++) numbers[i] = scale * (float)((i * 37) % 11 - 5);
    OK(qn_buffer_write(b, 0, numbers, (size_t)count * 4, NULL, &error));
    free(numbers);
}

/* What `norm` gives, in plain C. */
static bool is_norm(qn_buffer *x, qn_buffer *w, qn_buffer *out)
{
    static float a[COUNT_X], b[N * N], c[COUNT_X], y[COUNT_X], z[COUNT_X];
    OK(qn_buffer_read(x, 0, a, sizeof(a), NULL, &error));
    OK(qn_buffer_read(w, 0, b, sizeof(b), NULL, &error));
    OK(qn_buffer_read(out, 0, c, sizeof(c), NULL, &error));
    const float *from = a;
    for (int turn = 0; turn < 2; turn++, from = y)
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float sum = 0;
                for (int k = 0; k < N; k++) sum += from[i * N + k] * b[k * N + j];
                (turn ? z : y)[i * N + j] = sum;
            }
    for (int i = 0; i < M; i++) {
        double mean = 0;
        for (int j = 0; j < N; j++) mean += z[i * N + j] / N;
        for (int j = 0; j < N; j++) {
            double e = z[i * N + j] - mean;
            if (!(c[i * N + j] - e < 1e-3 && e - c[i * N + j] < 1e-3)) return false;
        }
    }
    return true;
}

static qn_call *norm_call(qn_buffer *x, qn_buffer *w, qn_buffer *out)
{
    qn_call *call = NULL;
    OK(qn_call_new(module, "norm", &call, &error));
    OK(qn_call_set_memory(call, "x", memory_of(x), QN_F32, 2, (int64_t[]){M, N}, NULL, &error));
    OK(qn_call_set_memory(call, "w", memory_of(w), QN_F32, 2, (int64_t[]){N, N}, NULL, &error));
    qn_array shape;
    OK(qn_call_expect(call, "cuda", "result0", &shape, &error));
    EXPECT(shape.rank == 2 && shape.extents[0] == M && shape.extents[1] == N && shape.type == QN_F32);
    EXPECT(shape.strides[0] == N && shape.strides[1] == 1);
    OK(qn_call_set_memory(call, "result0", memory_of(out), QN_F32, 2, shape.extents, NULL, &error));
    return call;
}

/* On each of the default streams and on one that the host program made. */
TEST(functions_on_streams_of_the_host_program)
{
    void *own = NULL;
    EXPECT(!make_stream(&own, 1));
    void *const handles[] = {NULL, (void *)1, (void *)2, own};
    qn_buffer *x = new_buffer(COUNT_X), *w = new_buffer(N * N), *out = new_buffer(COUNT_X);
    put(w, N * N, 0.01f);
    qn_call *call = norm_call(x, w, out);
    for (int i = 0; i < 4; i++) {
        qn_stream *stream = NULL;
        put(x, COUNT_X, (float)(i + 1));
        OK(qn_stream_wrap(context, "cuda", handles[i], &stream, &error));
        OK(qn_call_launch(call, stream, &error));
        OK(qn_stream_wait(stream, &error));
        EXPECT(is_norm(x, w, out));
        qn_stream_free(stream);
    }
    qn_call_free(call);
    qn_buffer_release(x);
    qn_buffer_release(w);
    qn_buffer_release(out);
}

static int64_t waits(void)
{
    return fake_count("cuStreamSynchronize") + fake_count("cuCtxSynchronize") + fake_count("cuEventSynchronize") +
           fake_count("cuEventQuery");
}

static int64_t launches(void)
{
    return fake_count("cuLaunchKernelEx") + fake_count("cuLaunchKernel");
}

/* New addresses of the same shapes: kernels are launched, and the driver is asked for nothing else. */
TEST(moving_arrays_costs_launches_alone)
{
    qn_stream *stream = NULL;
    qn_buffer *x[2] = {new_buffer(COUNT_X), new_buffer(COUNT_X)}, *w = new_buffer(N * N);
    qn_buffer *out[2] = {new_buffer(COUNT_X), new_buffer(COUNT_X)};
    put(x[0], COUNT_X, 1);
    put(x[1], COUNT_X, 3);
    put(w, N * N, 0.01f);
    OK(qn_stream_wrap(context, "cuda", NULL, &stream, &error));
    qn_call *call = norm_call(x[0], w, out[0]);
    OK(qn_call_launch(call, stream, &error));
    int64_t each = launches();
    OK(qn_call_launch(call, stream, &error));
    each = launches() - each;
    const int params[] = {0, 2};
    int64_t waited = waits(), allocated = fake_count("cuMemAlloc_v2"), launched = launches();
    int64_t asked = fake_count("cuPointerGetAttribute");
    for (int turn = 1; turn <= 9; turn++) {
        void *const addresses[] = {memory_of(x[turn % 2]), memory_of(out[turn % 2])};
        OK(qn_call_move(call, params, addresses, 2, &error));
        OK(qn_call_launch(call, stream, &error));
    }
    EXPECT(waits() == waited && fake_count("cuMemAlloc_v2") == allocated);
    EXPECT(fake_count("cuPointerGetAttribute") == asked);
    EXPECT(launches() == launched + 9 * each);
    EXPECT(is_norm(x[0], w, out[0]) && is_norm(x[1], w, out[1]));
    struct timespec from, to;
    enum { TURNS = 2000 };
    void *const addresses[] = {memory_of(x[0]), memory_of(out[0])};
    void *const others[] = {memory_of(x[1]), memory_of(out[1])};
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int turn = 0; turn < TURNS; turn++) OK(qn_call_move(call, params, turn % 2 ? others : addresses, 2, &error));
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("note: moving two arrays takes %.0f ns\n",
           ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / TURNS);
    /* What may not be moved. */
    EXPECT(qn_call_move(call, (int[]){2, 0}, addresses, 2, &error) == QN_BAD_CALL);
    EXPECT(qn_call_move(call, (int[]){3}, addresses, 1, &error) == QN_BAD_CALL);
    EXPECT(qn_call_move(call, (int[]){0}, (void *[]){(char *)memory_of(x[0]) + 2}, 1, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "array `x` of f32 does not begin at a multiple of 4 bytes");
    /* Overlap is seen after a move too. */
    OK(qn_call_move(call, params, (void *[]){memory_of(x[0]), memory_of(x[0])}, 2, &error));
    EXPECT(qn_call_launch(call, stream, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "`x` and `result0` overlap") != NULL);
    qn_call_free(call);
    for (int i = 0; i < 2; i++) {
        qn_buffer_release(x[i]);
        qn_buffer_release(out[i]);
    }
    qn_buffer_release(w);
    qn_stream_free(stream);
}

/* A kernel: the same; and an address that is less aligned gets the variant it needs. */
TEST(moving_arrays_of_a_kernel)
{
    int64_t n = COUNT_X - 16;
    static float got[COUNT_X];
    qn_stream *stream = NULL;
    qn_call *call = NULL;
    qn_buffer *x = new_buffer(COUNT_X), *y = new_buffer(COUNT_X);
    put(x, COUNT_X, 1);
    OK(qn_stream_wrap(context, "cuda", NULL, &stream, &error));
    OK(qn_call_new(module, "twice", &call, &error));
    OK(qn_call_set_memory(call, "x", memory_of(x), QN_F32, 1, &n, NULL, &error));
    OK(qn_call_set_memory(call, "y", memory_of(y), QN_F32, 1, &n, NULL, &error));
    OK(qn_call_launch(call, stream, &error));
    for (int shift = 0; shift < 3; shift++) {
        OK(qn_call_move(call, (int[]){0, 1}, (void *[]){memory_of(x) + shift, memory_of(y) + shift}, 2, &error));
        OK(qn_call_launch(call, stream, &error));
        OK(qn_buffer_read(y, 0, got, sizeof(got), NULL, &error));
        for (int i = shift; i < n + shift; i++) EXPECT(got[i] == 2 * (float)((i * 37) % 11 - 5));
    }
    qn_call_free(call);
    qn_buffer_release(x);
    qn_buffer_release(y);
    qn_stream_free(stream);
}

/* The host program records: a function that was never run, with its scratch memory, becomes part of its graph. */
TEST(inside_a_recording_of_the_host_program)
{
    void *native = NULL, *graph = NULL, *ready = NULL;
    qn_stream *stream = NULL;
    EXPECT(!make_stream(&native, 1));
    OK(qn_stream_wrap(context, "cuda", native, &stream, &error));
    qn_buffer *x = new_buffer(COUNT_X), *w = new_buffer(N * N), *out = new_buffer(COUNT_X);
    put(x, COUNT_X, 1);
    put(w, N * N, 0.01f);
    qn_buffer *scratch = new_buffer(COUNT_X * 64);
    qn_call *call = norm_call(x, w, out), *other = NULL;
    int64_t size_bytes = 0, none = 0, n = COUNT_X;
    EXPECT(!begin(native, 0)); /* global: nothing that may wait, on no thread */
    OK(qn_call_scratch(call, "cuda", &size_bytes, &error));
    EXPECT(size_bytes >= COUNT_X * 4 && size_bytes <= COUNT_X * 256);
    EXPECT(qn_call_set_scratch(call, (char *)memory_of(scratch) + 4, size_bytes, &error) == QN_BAD_CALL);
    OK(qn_call_set_scratch(call, memory_of(scratch), 16, &error));
    EXPECT(qn_call_launch(call, stream, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "bytes of scratch memory here, and was given 16") != NULL);
    OK(qn_call_set_scratch(call, memory_of(scratch), size_bytes, &error));
    OK(qn_call_launch(call, stream, &error));
    /* A kernel with scratch memory of its own. */
    OK(qn_call_new(module, "halves", &other, &error));
    OK(qn_call_set_memory(other, "x", memory_of(out), QN_F32, 1, &n, NULL, &error));
    OK(qn_call_set_memory(other, "y", memory_of(x), QN_F32, 1, &n, NULL, &error));
    OK(qn_call_scratch(other, "cuda", &none, &error));
    EXPECT(none >= COUNT_X * 4 && none < COUNT_X * 4 + 256);
    OK(qn_call_launch(other, stream, &error));
    EXPECT(qn_stream_wait(stream, &error) == QN_BAD_CALL);
    EXPECT(!end(native, &graph) && !instantiate(&ready, graph, 0));
    static float before[COUNT_X], after[COUNT_X];
    OK(qn_buffer_read(x, 0, before, sizeof(before), NULL, &error));
    EXPECT(before[0] == -5); /* nothing ran yet */
    EXPECT(!replay(ready, native));
    OK(qn_buffer_read(x, 0, after, sizeof(after), NULL, &error));
    OK(qn_buffer_read(out, 0, before, sizeof(before), NULL, &error));
    for (int i = 0; i < COUNT_X; i++) EXPECT(after[i] == before[i] / 2);
    put(x, COUNT_X, 1);
    EXPECT(!replay(ready, native)); /* again, with what was put in */
    put(x, COUNT_X, 1);
    EXPECT(is_norm(x, w, out));
    qn_call_free(call);
    qn_call_free(other);
    qn_buffer_release(scratch);
    qn_buffer_release(x);
    qn_buffer_release(w);
    qn_buffer_release(out);
    qn_stream_free(stream);
}

/* A launch with other arrays on a stream in between: what was recorded for the first ones is not replayed for others. */
TEST(streams_and_runs_take_turns)
{
    qn_stream *stream = NULL;
    qn_buffer *x[2] = {new_buffer(COUNT_X), new_buffer(COUNT_X)}, *w = new_buffer(N * N), *out = new_buffer(COUNT_X);
    put(w, N * N, 0.01f);
    OK(qn_stream_wrap(context, "cuda", NULL, &stream, &error));
    qn_call *call = norm_call(x[0], w, out);
    for (int turn = 0; turn < 12; turn++) {
        qn_buffer *now = x[turn / 3 % 2];
        put(now, COUNT_X, (float)(turn + 1));
        OK(qn_call_set_memory(call, "x", memory_of(now), QN_F32, 2, (int64_t[]){M, N}, NULL, &error));
        if (turn % 3 == 0)
            OK(qn_call_launch(call, stream, &error));
        else
            OK(qn_call_run(call, "cuda", &error));
        EXPECT(is_norm(now, w, out));
    }
    qn_call_free(call);
    qn_buffer_release(x[0]);
    qn_buffer_release(x[1]);
    qn_buffer_release(w);
    qn_buffer_release(out);
    qn_stream_free(stream);
}

static void take_known(void *user, const char *text, size_t length)
{
    snprintf(user, 200, "%.*s", (int)length, text);
}

/* Arrays without elements have no address, and are on every device; what a call knows of itself is said as settings. */
TEST(nothing_is_everywhere)
{
    qn_stream *stream = NULL;
    qn_call *call = NULL;
    int64_t none = 0;
    char known[200] = "";
    OK(qn_stream_wrap(context, "cuda", NULL, &stream, &error));
    OK(qn_call_new(module, "twice", &call, &error));
    OK(qn_call_set_memory(call, "x", NULL, QN_F32, 1, &none, NULL, &error));
    OK(qn_call_set_memory(call, "y", NULL, QN_F32, 1, &none, NULL, &error));
    OK(qn_call_known(call, "cuda", take_known, known, &error));
    EXPECT_TEXT(known, "n=0\n");
    OK(qn_call_launch(call, stream, &error));
    OK(qn_stream_wait(stream, &error));
    qn_call_free(call);
    qn_stream_free(stream);
}

/* A tape's own stream: an event on it comes behind what was evaluated, and a launch on it behind that. */
TEST(stream_of_a_tape)
{
    static const char *const devices[] = {"cuda", "cpu"};
    for (int d = 0; d < 2; d++) {
        qn_tape *tape = NULL;
        qn_stream *stream = NULL;
        qn_event *done = NULL;
        float out[4] = {0};
        OK(qn_tape_new(context, devices[d], &tape, &error));
        OK(qn_tape_stream(tape, &stream, &error));
        EXPECT(!d == (qn_stream_native(stream) != NULL));
        OK(qn_event_new(context, devices[d], &done, &error));
        qn_tensor y = qn_exp(qn_zeros(tape, QN_F32, QN_SHAPE(4)));
        OK(qn_eval(tape, &y, 1, &error));
        OK(qn_event_record(done, stream, &error));
        OK(qn_event_wait(done, &error));
        OK(qn_stream_wait(stream, &error));
        OK(qn_tensor_read(y, out, sizeof(out), &error));
        EXPECT(out[3] == 1);
        qn_event_free(done);
        qn_stream_free(stream);
        qn_tensor z = qn_add(y, y); /* the device's own stream is still there */
        OK(qn_tensor_read(z, out, sizeof(out), &error));
        EXPECT(out[3] == 2);
        qn_tape_free(tape);
    }
    EXPECT(qn_tape_stream(NULL, NULL, &error) == QN_BAD_CALL && !qn_stream_native(NULL));
}

TEST(close_fake)
{
    char command[128];
    qn_module_free(module);
    qn_context_close(context);
    snprintf(command, sizeof(command), "rm -rf %s", cache_folder);
    EXPECT(system(command) == 0);
}

TEST_MAIN(CASE(open_fake), CASE(functions_on_streams_of_the_host_program), CASE(moving_arrays_costs_launches_alone),
          CASE(moving_arrays_of_a_kernel), CASE(inside_a_recording_of_the_host_program),
          CASE(streams_and_runs_take_turns), CASE(nothing_is_everywhere), CASE(stream_of_a_tape),
          CASE(steps_side_by_side), CASE(chains_do_not_wait_for_memory), CASE(a_row_of_kernels_keeps_its_places),
          CASE(a_recorded_step_needs_no_more_than_eager), CASE(batches_in_locked_memory), CASE(close_fake))
