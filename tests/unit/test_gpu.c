/*
 * The `cuda` device through the C API: buffers, streams, events, graphs, host arrays of any strides, initial values,
 * failed asserts, printed lines, wrong uses, the allocator's steady state, a kernel that goes astray. Runs on a GPU with
 * QUERN_TEST_DEVICE=cuda; elsewhere on the driver in tests/fake, which executes kernels in emu.
 * SPDX-License-Identifier: MIT
 */
#include "fake/open.h"

#include "base/base.h"

#include <dlfcn.h>
#include <quern/device.h>
#include <quern/loader.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <unistd.h>

static qn_context *context;
static qn_module *module;
static qn_error error;
static const char *device = "cuda";
static bool real; /* a GPU, not the fake */
static text printed;

static void print_line(void *user, const char *line)
{
    (void)user;
    text_print(&printed, "%s\n", line);
}

static const char source[] = "kernel twice(in float x[n], out float y[n])\n"
                             "    launch (cdiv(n, 64))\n"
                             "{\n"
                             "    y[program(0) * 64 : 64] = 2 * x[program(0) * 64 : 64];\n"
                             "}\n"
                             "kernel count(inout float x[n])\n"
                             "    launch (1)\n"
                             "{\n"
                             "    x[:] = x[:] + 1;\n"
                             "}\n"
                             "kernel first(in T x[n], out T y[n][m] = 3, int m = 4)\n"
                             "    launch (1)\n"
                             "    types (T in {float, double, bf16, i8, i64, u16})\n"
                             "{\n"
                             "    y[0][0] = x[0];\n"
                             "}\n"
                             "kernel positive(in float x[n], out float y[n])\n"
                             "    launch (n)\n"
                             "{\n"
                             "    assert(x[program(0)] > 0, \"x is positive\");\n"
                             "    y[program(0)] = x[program(0)];\n"
                             "}\n"
                             "kernel says(in float x[n], out float y[n])\n"
                             "    launch (2)\n"
                             "{\n"
                             "    print(\"x is {}, twice {}\", x[:], 2 * x[program(0)]);\n"
                             "    y[program(0)] = x[program(0)];\n"
                             "}\n"
                             "kernel parts(in float x[n], out float y, scratch float part[P], const int P = 5)\n"
                             "    launch (P)\n"
                             "{\n"
                             "    part[program(0)] = sum(x[program(0) * 16 : 16]);\n"
                             "}\n"
                             "then launch (1)\n"
                             "{\n"
                             "    y = sum(part[:]);\n"
                             "}\n"
                             "kernel total(in float x[n], out float y, scratch float part[P], int P = cdiv(n, 64))\n"
                             "    launch (P)\n"
                             "{\n"
                             "    part[program(0)] = sum(x[program(0) * 64 : 64]);\n"
                             "}\n"
                             "then launch (1)\n"
                             "{\n"
                             "    assert(programs(0) == 1, \"one program\");\n"
                             "    y = sum(part[:]) + 1;\n"
                             "}\n"
                             "kernel around(in float x[n], out float y[n])\n"
                             "    launch (cdiv(n, 256))\n"
                             "{\n"
                             "    int i = program(0) * 256;\n"
                             "    y[i : 256] = x[(i + 7 + iota(256)) % n] + 1;\n"
                             "}\n"
                             "cuda astray(in float x[n], out float y[n])\n"
                             "    launch (1) block (32)\n"
                             "\"\"\"\n"
                             "extern \"C\" __global__ void astray(const float *x, float *y, long n)\n"
                             "{\n"
                             "    if (threadIdx.x == 0) *(volatile float *)(x[0] == 1 ? 64 : (long)y) = 1;\n"
                             "}\n"
                             "\"\"\"\n";

#define OK(call)                           \
    do {                                   \
        if ((call) != QN_OK) {             \
            printf("%s\n", error.message); \
            EXPECT(!"success of " #call);  \
        }                                  \
    } while (0)

static qn_call *new_call(const char *kernel)
{
    qn_call *call = NULL;
    OK(qn_call_new(module, kernel, &call, &error));
    return call;
}

static qn_buffer *buffer_of(const void *data, size_t size)
{
    qn_buffer *buffer = NULL;
    OK(qn_buffer_new_on(context, device, size, &buffer, &error));
    if (data) OK(qn_buffer_write(buffer, 0, data, size, NULL, &error));
    return buffer;
}

TEST(open_device)
{
    const char *wanted = environment_get("QUERN_TEST_DEVICE");
    real = wanted != NULL;
    if (wanted) device = wanted;
    if (!real) fake_take();
    qn_context_options options = {.allow_raw = true, .print = print_line};
    OK(qn_context_open(&options, &context, &error));
    qn_device_info info;
    OK(qn_device_find(context, device, &info, &error));
    if (!info.available) printf("%s\n", info.description);
    EXPECT(info.available && info.units > 0);
    OK(qn_module_load_text(context, "gpu.qn", source, &module, &error));
}

TEST(buffers_streams_events)
{
    enum { N = 100000 };
    static float x[N], y[N];
    int64_t extent = N;
    qn_stream *streams[2];
    qn_event *events[2];
    double ns = -1;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    qn_buffer *a = buffer_of(x, sizeof(x)), *b = buffer_of(NULL, sizeof(x)), *c = buffer_of(NULL, sizeof(x));
    EXPECT_TEXT(qn_buffer_device(a), device);
    qn_call *first = new_call("twice"), *second = new_call("twice");
    OK(qn_call_set_buffer(first, "x", a, 0, QN_F32, 1, &extent, NULL, &error));
    OK(qn_call_set_buffer(first, "y", b, 0, QN_F32, 1, &extent, NULL, &error));
    OK(qn_call_set_buffer(second, "x", b, 0, QN_F32, 1, &extent, NULL, &error));
    OK(qn_call_set_buffer(second, "y", c, 0, QN_F32, 1, &extent, NULL, &error));
    for (int i = 0; i < 2; i++) {
        OK(qn_stream_new(context, device, &streams[i], &error));
        OK(qn_event_new(context, device, &events[i], &error));
    }
    EXPECT(qn_event_elapsed(events[0], events[1], &ns, &error) == QN_BAD_CALL);
    OK(qn_event_record(events[0], streams[0], &error));
    OK(qn_call_launch(first, streams[0], &error));
    OK(qn_event_record(events[1], streams[0], &error));
    OK(qn_stream_wait_event(streams[1], events[1], &error));
    OK(qn_call_launch(second, streams[1], &error));
    OK(qn_stream_wait(streams[1], &error));
    OK(qn_event_elapsed(events[0], events[1], &ns, &error));
    EXPECT(ns >= 0 && ns < 1e10);
    OK(qn_buffer_read(c, 0, y, sizeof(y), NULL, &error));
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += y[i] != 4 * x[i];
    EXPECT(wrong == 0);
    OK(qn_buffer_copy(c, 4, a, 8, 4000, streams[0], &error));
    OK(qn_buffer_read(c, 0, y, 4004, streams[0], &error));
    EXPECT(y[0] == 0 && y[1] == 2 && y[1000] == 1001);
    qn_call_free(first);
    qn_call_free(second);
    for (int i = 0; i < 2; i++) {
        qn_stream_free(streams[i]);
        qn_event_free(events[i]);
    }
    qn_buffer_release(a);
    qn_buffer_release(b);
    qn_buffer_release(c);
}

TEST(host_arrays)
{
    enum { N = 1000 };
    float x[2 * N], y[3 * N];
    int64_t extent = N, back = -2, three = 3;
    for (int i = 0; i < 2 * N; i++) x[i] = (float)i;
    for (int i = 0; i < 3 * N; i++) y[i] = -1;
    qn_call *call = new_call("twice");
    /* Reversed in, every third out: what lies between stays. */
    OK(qn_call_set_memory(call, "x", x + 2 * N - 2, QN_F32, 1, &extent, &back, &error));
    OK(qn_call_set_memory(call, "y", y, QN_F32, 1, &extent, &three, &error));
    OK(qn_call_run(call, device, &error));
    int wrong = 0;
    for (int i = 0; i < 3 * N; i++) wrong += y[i] != (i % 3 ? -1 : 2 * x[2 * N - 2 - 2 * (i / 3)]);
    EXPECT(wrong == 0);
    /* New numbers in the same memory are taken. */
    for (int i = 0; i < 2 * N; i++) x[i] = 1;
    OK(qn_call_run(call, device, &error));
    EXPECT(y[0] == 2 && y[3 * N - 3] == 2);
    qn_timing timing;
    qn_call_timing(call, &timing);
    EXPECT(timing.copy_in_ns > 0 && timing.copy_out_ns > 0 && timing.kernel_ns >= 0);
    /* The same call on the CPU, and back. */
    y[0] = 0;
    OK(qn_call_run(call, "cpu", &error));
    EXPECT(y[0] == 2);
    y[0] = 0;
    OK(qn_call_run(call, device, &error));
    EXPECT(y[0] == 2);
    qn_call_free(call);
    /* Arrays large enough for several pinned chunks. */
    int64_t large = 5000001;
    float *p = malloc(4 * (size_t)large);
    for (int64_t i = 0; i < large; i++) p[i] = (float)(i % 1000);
    call = new_call("twice");
    qn_array out;
    OK(qn_call_set_memory(call, "x", p, QN_F32, 1, &large, NULL, &error));
    OK(qn_call_run(call, device, &error));
    OK(qn_call_get(call, "y", &out, &error));
    wrong = 0;
    for (int64_t i = 0; i < large; i++) wrong += ((float *)out.data)[i] != 2 * p[i];
    EXPECT(wrong == 0);
    free(p);
    qn_call_free(call);
}

/* An initial value fills outputs of every width and any strides, and nothing around them. */
TEST(initial_values)
{
    static const struct {
        qn_dtype type;
        uint64_t three;
    } types[] = {{QN_F32, 0x40400000}, {QN_F64, 0x4008000000000000}, {QN_BF16, 0x4040}, {QN_I8, 3}, {QN_I64, 3},
                 {QN_U16, 3}};
    static const int64_t strides[][2] = {{4, 1}, {9, 2}, {-5, 1}, {1, 5}};
    for (int t = 0; t < COUNT(types); t++)
        for (int s = 0; s < COUNT(strides); s++) {
            size_t size = qn_dtype_size_bytes(types[t].type);
            char x[5 * 8] = {0}, y[64 * 8];
            int64_t extents[] = {5, 4}, n = 5;
            memset(y, 0x55, sizeof(y));
            qn_call *call = new_call("first");
            OK(qn_call_set_memory(call, "x", x, types[t].type, 1, &n, NULL, &error));
            char *base = y + size * (strides[s][0] < 0 ? 25 : 1);
            OK(qn_call_set_memory(call, "y", base, types[t].type, 2, extents, strides[s], &error));
            OK(qn_call_run(call, device, &error));
            char expected[64 * 8];
            memset(expected, 0x55, sizeof(expected));
            for (int i = 0; i < 5; i++)
                for (int j = 0; j < 4; j++) {
                    uint64_t bits = i || j ? types[t].three : 0;
                    memcpy(expected + (base - y) + (i * strides[s][0] + j * strides[s][1]) * (int64_t)size, &bits,
                           size);
                }
            EXPECT(!memcmp(y, expected, sizeof(y)));
            qn_call_free(call);
        }
}

TEST(scratch_and_phases)
{
    float x[80];
    int64_t n = 80;
    qn_array y;
    for (int i = 0; i < 80; i++) x[i] = (float)i;
    qn_call *call = new_call("parts");
    OK(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error));
    for (int run = 0; run < 3; run++) {
        OK(qn_call_run(call, device, &error));
        OK(qn_call_get(call, "y", &y, &error));
        EXPECT(*(float *)y.data == 79 * 80 / 2);
    }
    qn_call_free(call);
}

/* The last block of the first phase does the second one: also where the first has nothing to do, and again and again. */
TEST(a_phase_for_the_last_block)
{
    enum { N = 100000, TIMES = 3 };
    static float x[N];
    static const int64_t counts[] = {0, 1, 64, 4097, N};
    qn_stream *stream;
    OK(qn_stream_new(context, device, &stream, &error));
    for (int i = 0; i < N; i++) x[i] = (float)(i % 8);
    qn_buffer *a = buffer_of(x, sizeof(x)), *b = buffer_of(NULL, 4);
    for (int k = 0; k < COUNT(counts); k++) {
        qn_call *call = new_call("total");
        double expected = 1;
        float y = -1;
        for (int i = 0; i < counts[k]; i++) expected += x[i];
        OK(qn_call_set_buffer(call, "x", a, 0, QN_F32, 1, &counts[k], NULL, &error));
        OK(qn_call_set_buffer(call, "y", b, 0, QN_F32, 0, NULL, NULL, &error));
        for (int i = 0; i < TIMES; i++) OK(qn_call_launch(call, stream, &error));
        OK(qn_stream_wait(stream, &error));
        OK(qn_buffer_read(b, 0, &y, 4, NULL, &error));
        EXPECT(y == (float)expected);
        qn_call_free(call);
    }
    qn_stream_free(stream);
    qn_buffer_release(a);
    qn_buffer_release(b);
}

/* Launches come while the one before ends, and see all it wrote: from neighbours, too. */
TEST(each_sees_the_one_before)
{
    enum { N = 20000, STEPS = 20 };
    static float x[N], y[N];
    int64_t extent = N;
    qn_stream *stream;
    qn_graph *graph;
    for (int i = 0; i < N; i++) x[i] = (float)(i % 10);
    qn_buffer *buffers[2] = {buffer_of(x, sizeof(x)), buffer_of(NULL, sizeof(x))};
    qn_call *calls[2];
    for (int i = 0; i < 2; i++) {
        calls[i] = new_call("around");
        OK(qn_call_set_buffer(calls[i], "x", buffers[i], 0, QN_F32, 1, &extent, NULL, &error));
        OK(qn_call_set_buffer(calls[i], "y", buffers[1 - i], 0, QN_F32, 1, &extent, NULL, &error));
    }
    OK(qn_stream_new(context, device, &stream, &error));
    for (int i = 0; i < 2; i++) OK(qn_call_launch(calls[i], stream, &error)); /* compiled before it is recorded */
    OK(qn_stream_wait(stream, &error));
    OK(qn_buffer_write(buffers[0], 0, x, sizeof(x), NULL, &error));
    OK(qn_graph_begin(stream, &error));
    for (int i = 0; i < STEPS; i++) OK(qn_call_launch(calls[i % 2], stream, &error));
    OK(qn_graph_end(stream, &graph, &error));
    OK(qn_graph_launch(graph, stream, &error));
    OK(qn_stream_wait(stream, &error));
    OK(qn_buffer_read(buffers[0], 0, y, sizeof(y), NULL, &error));
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += y[i] != x[(i + STEPS * 7) % N] + STEPS;
    EXPECT(wrong == 0);
    qn_graph_free(graph);
    for (int i = 0; i < 2; i++) qn_call_free(calls[i]), qn_buffer_release(buffers[i]);
    qn_stream_free(stream);
}

TEST(graphs)
{
    float x[64] = {0};
    int64_t n = 64;
    qn_stream *stream;
    qn_graph *graph = NULL, *none = NULL;
    qn_buffer *buffer = buffer_of(x, sizeof(x));
    qn_call *call = new_call("count");
    OK(qn_stream_new(context, device, &stream, &error));
    OK(qn_call_set_buffer(call, "x", buffer, 0, QN_F32, 1, &n, NULL, &error));
    EXPECT(qn_graph_end(stream, &none, &error) == QN_BAD_CALL);
    OK(qn_call_launch(call, stream, &error)); /* compiled before it is recorded */
    OK(qn_graph_begin(stream, &error));
    EXPECT(qn_graph_begin(stream, &error) == QN_BAD_CALL);
    for (int i = 0; i < 100; i++) OK(qn_call_launch(call, stream, &error));
    EXPECT(qn_stream_wait(stream, &error) == QN_BAD_CALL);
    EXPECT(qn_buffer_read(buffer, 0, x, sizeof(x), stream, &error) == QN_BAD_CALL);
    OK(qn_graph_end(stream, &graph, &error));
    OK(qn_buffer_read(buffer, 0, x, sizeof(x), stream, &error));
    EXPECT(x[0] == 1 && x[63] == 1); /* recorded, not run */
    EXPECT(qn_graph_node_count(graph) == 100);
    for (int i = 0; i < 3; i++) OK(qn_graph_launch(graph, stream, &error));
    OK(qn_stream_wait(stream, &error));
    OK(qn_buffer_read(buffer, 0, x, sizeof(x), stream, &error));
    EXPECT(x[0] == 301 && x[63] == 301);
    qn_graph_free(graph);
    qn_call_free(call);
    qn_buffer_release(buffer);
    qn_stream_free(stream);
}

TEST(failed_assert)
{
    float x[100];
    int64_t n = 100;
    for (int i = 0; i < 100; i++) x[i] = i == 37 ? -1 : 1;
    qn_call *call = new_call("positive");
    OK(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error));
    for (int run = 0; run < 2; run++) {
        EXPECT(qn_call_run(call, device, &error) == QN_FAILED);
        EXPECT(strstr(error.message, "gpu.qn:20:5: error E507: assert failed in program 37: x is positive") != NULL);
    }
    x[37] = 1;
    OK(qn_call_run(call, device, &error)); /* the device goes on */
    qn_call_free(call);
    /* On a stream it shows at the wait, once. */
    x[5] = 0;
    qn_stream *stream;
    qn_buffer *a = buffer_of(x, sizeof(x)), *b = buffer_of(NULL, sizeof(x));
    call = new_call("positive");
    OK(qn_stream_new(context, device, &stream, &error));
    OK(qn_call_set_buffer(call, "x", a, 0, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_set_buffer(call, "y", b, 0, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_launch(call, stream, &error));
    EXPECT(qn_stream_wait(stream, &error) == QN_FAILED && strstr(error.message, "in program 5: "));
    OK(qn_stream_wait(stream, &error));
    qn_call_free(call);
    qn_stream_free(stream);
    qn_buffer_release(a);
    qn_buffer_release(b);
}

static int by_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lines sorted: programs print in any order. */
static void sort_lines(const char *words, text *out)
{
    char *copy = strdup(words), *lines[16];
    int count = 0;
    for (char *line = strtok(copy, "\n"); line && count < 16; line = strtok(NULL, "\n")) lines[count++] = line;
    qsort(lines, (size_t)count, sizeof(lines[0]), by_words);
    for (int i = 0; i < count; i++) text_print(out, "%s\n", lines[i]);
    free(copy);
}

TEST(prints)
{
    float x[2] = {1, 2.5};
    int64_t n = 2;
    text there = {0}, here = {0};
    qn_call *call = new_call("says");
    OK(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error));
    text_clear(&printed);
    OK(qn_call_run(call, "ref", &error));
    sort_lines(text_get(&printed), &there);
    for (int run = 0; run < 2; run++) {
        text_clear(&printed);
        text_clear(&here);
        OK(qn_call_run(call, device, &error));
        sort_lines(text_get(&printed), &here);
        EXPECT_TEXT(text_get(&here), text_get(&there));
    }
    EXPECT(strstr(text_get(&here), "x is [1 2.5], twice 2"));
    text_free(&there);
    text_free(&here);
    qn_call_free(call);
}

TEST(steady_state)
{
    enum { N = 4096 };
    static float x[N];
    int64_t n = N;
    qn_memory_statistics before, after;
    qn_stream *stream;
    qn_buffer *a = buffer_of(x, sizeof(x)), *b = buffer_of(NULL, sizeof(x));
    qn_call *call = new_call("twice");
    OK(qn_stream_new(context, device, &stream, &error));
    OK(qn_call_set_buffer(call, "x", a, 0, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_set_buffer(call, "y", b, 0, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_launch(call, stream, &error));
    OK(qn_device_memory(context, device, &before, &error));
    for (int i = 0; i < 100; i++) OK(qn_call_launch(call, stream, &error));
    OK(qn_stream_wait(stream, &error));
    OK(qn_device_memory(context, device, &after, &error));
    EXPECT(after.allocations == before.allocations);
    /* Buffers come and go; the system is asked once. */
    for (int i = 0; i < 50; i++) qn_buffer_release(buffer_of(x, sizeof(x)));
    OK(qn_device_memory(context, device, &after, &error));
    EXPECT(after.system_allocations <= before.system_allocations + 1);
    EXPECT(after.used_bytes == before.used_bytes && after.kept_bytes > 0 && after.peak_bytes >= after.used_bytes);
    OK(qn_device_trim(context, device, &error));
    OK(qn_device_memory(context, device, &after, &error));
    EXPECT(after.kept_bytes == 0 && after.used_bytes == before.used_bytes);
    qn_call_free(call);
    qn_stream_free(stream);
    qn_buffer_release(a);
    qn_buffer_release(b);
}

TEST(wrong_uses)
{
    float x[8] = {0};
    int64_t n = 8;
    qn_stream *stream, *other;
    qn_buffer *a = buffer_of(x, sizeof(x)), *none = NULL;
    qn_call *call = new_call("count");
    OK(qn_stream_new(context, device, &stream, &error));
    OK(qn_stream_new(context, "cpu", &other, &error));
    OK(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error));
    EXPECT(qn_call_launch(call, stream, &error) == QN_BAD_CALL && strstr(error.message, "`x`") &&
           strstr(error.message, "is in host memory"));
    OK(qn_call_run(call, device, &error)); /* a run may */
    EXPECT(x[0] == 1);
    OK(qn_call_set_buffer(call, "x", a, 0, QN_F32, 1, &n, NULL, &error));
    EXPECT(qn_call_run(call, "cpu", &error) == QN_BAD_CALL && strstr(error.message, "and the call runs on cpu"));
    OK(qn_call_run(call, device, &error));
    EXPECT(qn_buffer_write(a, 20, x, 16, NULL, &error) == QN_BAD_CALL && strstr(error.message, "bytes 20 to 36"));
    EXPECT(qn_buffer_read(a, 0, x, 8, other, &error) == QN_BAD_CALL);
    EXPECT(qn_buffer_new_on(context, "cudaa", 8, &none, &error) == QN_BAD_CALL &&
           strstr(error.message, "did you mean"));
    EXPECT(qn_buffer_new_on(context, "cuda:9", 8, &none, &error) == QN_BAD_CALL);
    EXPECT(qn_buffer_new_on(context, device, (size_t)1 << 46, &none, &error) == QN_NO_MEMORY &&
           strstr(error.message, "no memory on") && strstr(error.message, "GB are free"));
    OK(qn_call_run(call, device, &error)); /* and goes on */
    /* A plain address of the device is taken as it is. */
    OK(qn_call_set_memory(call, "x", qn_buffer_data(a), QN_F32, 1, &n, NULL, &error));
    OK(qn_call_launch(call, stream, &error));
    OK(qn_stream_wait(stream, &error));
    OK(qn_buffer_read(a, 0, x, sizeof(x), NULL, &error));
    EXPECT(x[0] == 3 && x[7] == 3);
    qn_call_free(call);
    qn_stream_free(stream);
    qn_stream_free(other);
    qn_buffer_release(a);
}

/* Last: after it the device is gone, and everything else is not. */
TEST(a_kernel_goes_astray)
{
    float x[4] = {1, 1, 1, 1}, y[4] = {0};
    int64_t n = 4;
    qn_buffer *kept = buffer_of(x, sizeof(x)), *none = NULL;
    qn_call *call = new_call("astray");
    OK(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &error));
    if (!real) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        char path[4200];
        snprintf(path, sizeof(path), "%s/libcuda.so.1", getenv("QUERN_CUDA_PATH"));
        if (!library) library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
        EXPECT(library != NULL);
        void (*order)(const char *, int, int);
        void *address = library ? dlsym(library, "fake_order") : NULL;
        memcpy(&order, &address, sizeof(order));
        x[0] = 2; /* where the fake would really go astray */
        order("cuStreamSynchronize", 700, 0);
    }
    EXPECT(qn_call_run(call, device, &error) == QN_FAILED);
    EXPECT(strstr(error.message, "kernel `astray` failed on") && strstr(error.message, "illegal address") &&
           strstr(error.message, "is lost"));
    EXPECT(qn_call_run(call, device, &error) == QN_NO_DEVICE && strstr(error.message, "was lost") &&
           strstr(error.message, "astray"));
    EXPECT(qn_buffer_new_on(context, device, 8, &none, &error) == QN_NO_DEVICE);
    EXPECT(qn_buffer_read(kept, 0, y, sizeof(y), NULL, &error) == QN_NO_DEVICE);
    qn_call_free(call);
    call = new_call("twice");
    OK(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_run(call, "cpu", &error));
    EXPECT(y[3] == 2);
    qn_call_free(call);
    qn_buffer_release(kept);
}

static qn_status fill_slot(qn_loaded *batch, void *user, qn_error *e)
{
    (void)e;
    batch->rows = batch->number < 2 ? 5 : 0;
    if (batch->rows) ((void **)user)[batch->number] = batch->fields[0];
    for (int i = 0; i < batch->rows; i++) ((float *)batch->fields[0])[i] = (float)(batch->number * 10 + i);
    return QN_OK;
}

/* The driver itself says of a loader's slots that they are memory it locked; of other memory of the host it does not. */
TEST(slots_are_page_locked)
{
    bool gpu = real && strncmp(device, "cuda", 4) == 0;
    void *slots[2] = {NULL}, *driver = gpu ? dlopen("libcuda.so.1", RTLD_NOW) : NULL, *primary = NULL;
    qn_loader_options options = {.field_count = 1, .fill = fill_slot, .user = slots, .slots = 2, .device = device};
    options.fields[0] = (qn_field){QN_F32, QN_SHAPE(5)};
    qn_loader *loader = NULL;
    qn_tape *tape = NULL;
    int64_t rows = 0;
    float found[5] = {0};
    OK(qn_tape_new(context, device, &tape, &error));
    qn_tensor x = qn_empty(tape, QN_F32, QN_SHAPE(5));
    OK(qn_loader_new(context, &options, &loader, &error));
    for (int b = 0; b < 2; b++) {
        OK(qn_loader_feed(loader, &x, &rows, &error));
        OK(qn_tensor_read(x, found, sizeof(found), &error));
        EXPECT(rows == 5 && found[0] == 10 * b && found[4] == 10 * b + 4 && slots[b]);
    }
    EXPECT(driver || !gpu);
    if (driver) {
        unsigned flags = 0;
        int number = 0, (*get)(int *, int), (*retain)(void **, int), (*push)(void *), (*pop)(void **), (*release)(int),
            (*get_flags)(unsigned *, void *);
        const struct { const char *name; void *to; } calls[] = {
            {"cuDeviceGet", &get}, {"cuDevicePrimaryCtxRetain", &retain}, {"cuCtxPushCurrent_v2", &push},
            {"cuCtxPopCurrent_v2", &pop}, {"cuDevicePrimaryCtxRelease_v2", &release}, {"cuMemHostGetFlags", &get_flags}};
        for (int i = 0; i < 6; i++) fake_find(driver, calls[i].name, calls[i].to);
        EXPECT(!get(&number, strchr(device, ':') ? atoi(strchr(device, ':') + 1) : 0));
        EXPECT(!retain(&primary, number) && !push(primary));
        EXPECT(!get_flags(&flags, slots[0]) && !get_flags(&flags, slots[1]) && get_flags(&flags, found));
        EXPECT(!pop(&primary) && !release(number));
        dlclose(driver);
    }
    qn_loader_free(loader);
    qn_tape_free(tape);
}

TEST(close_device)
{
    qn_module_free(module);
    qn_context_close(context);
    text_free(&printed);
}

TEST_MAIN(CASE(open_device), CASE(buffers_streams_events), CASE(host_arrays), CASE(initial_values),
          CASE(scratch_and_phases), CASE(a_phase_for_the_last_block), CASE(each_sees_the_one_before), CASE(graphs),
          CASE(failed_assert), CASE(prints), CASE(steady_state), CASE(wrong_uses), CASE(slots_are_page_locked), CASE(a_kernel_goes_astray),
          CASE(close_device))
