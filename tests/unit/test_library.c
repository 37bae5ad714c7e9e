/*
 * Products of whole arrays by the library: layouts, types, batches, rows that are added and views, each compared with plain
 * loops; what is none, and why; recording, addresses that move, failures, no memory. The library is the one in tests/fake,
 * which is as strict as the real one.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "products.h"

/* Runs it with library=1: right, and by the library (or by the kernel)? */
static void expect(const char *kernel, shape s, qn_dtype from, qn_dtype to, const char *by, const char *reason)
{
    operands o;
    const char *why = "";
    make(kernel, s, from, to, &o);
    qn_call *call = call_of(kernel, &o, 1);
    int64_t products = fake_count("cublasLtMatmul"), kernels = fake_count("cuLaunchKernelEx");
    OK(qn_call_run(call, "cuda", &error));
    EXPECT((fake_count("cublasLtMatmul") - products == 1) == (by != NULL));
    EXPECT((fake_count("cuLaunchKernelEx") - kernels == 0) == (by != NULL));
    const char *name = call_library(call, &why);
    if (by)
        EXPECT_TEXT(name, by);
    else
        EXPECT(!name);
    if (reason) EXPECT_TEXT(why, reason);
    if (strcmp(kernel, "half") && strcmp(kernel, "shorter") && strcmp(kernel, "active") && strcmp(kernel, "gaps"))
        EXPECT(wrong(kernel, s, &o) == 0);
    qn_call_free(call);
    drop(&o);
}

TEST(layouts)
{
    const shape s = {0, 40, 24, 56}, odd = {0, 37, 23, 19}, thin = {0, 1, 24, 16}, one = {0, 33, 1, 16};
    expect("nn", s, QN_F32, QN_F32, "cublaslt f32 40x24x56", NULL);
    expect("nt", s, QN_F32, QN_F32, "cublaslt f32 40x24x56", NULL);
    expect("tn", s, QN_F32, QN_F32, "cublaslt f32 40x24x56", NULL);
    expect("tt", s, QN_F32, QN_F32, "cublaslt f32 40x24x56", NULL);
    expect("nn", odd, QN_F32, QN_F32, "cublaslt f32 37x23x19", NULL);
    expect("tt", odd, QN_F32, QN_F32, "cublaslt f32 37x23x19", NULL);
    expect("nn", thin, QN_F32, QN_F32, "cublaslt f32 1x24x16", NULL);
    expect("tn", thin, QN_F32, QN_F32, "cublaslt f32 1x24x16", NULL);
    expect("nt", one, QN_F32, QN_F32, "cublaslt f32 33x1x16", NULL);
    expect("nn", one, QN_F32, QN_F32, "cublaslt f32 33x1x16", NULL);
    expect("row", (shape){0, 1, 72, 40}, QN_F32, QN_F32, "cublaslt f32 1x72x40", NULL);
    expect("ordered", s, QN_F32, QN_F32, "cublaslt f32 40x24x56", NULL);
    expect("ordered", (shape){0, 130, 100, 8}, QN_F32, QN_F32, "cublaslt f32 130x100x8", NULL);
}

TEST(types)
{
    const shape s = {0, 40, 24, 32};
    expect("nn", s, QN_BF16, QN_BF16, "cublaslt bf16 40x24x32", NULL);
    expect("nn", (shape){0, 8, 8, 3000}, QN_BF16, QN_BF16, "cublaslt bf16 8x8x3000", NULL); /* rounded once */
    expect("nt", s, QN_BF16, QN_F32, "cublaslt bf16 40x24x32 to f32", NULL);
    expect("nn", s, QN_F16, QN_F16, "cublaslt f16 40x24x32", NULL);
    expect("rounded", s, QN_F32, QN_F32, "cublaslt tf32 40x24x32", NULL);
    expect("wide", s, QN_F64, QN_F64, "cublaslt f64 40x24x32", NULL);
    expect("whole", s, QN_I8, QN_I32, "cublaslt i8 40x24x32 to i32", NULL);
    expect("nt", s, QN_F8E4M3, QN_F32, "cublaslt f8e4m3 40x24x32 to f32", NULL);
    expect("nn", s, QN_F8E4M3, QN_F32, NULL, "cuBLASLt does not know this product");
    expect("nt", s, QN_F8E4M3, QN_F8E4M3, NULL,
           "the library stores the largest f8e4m3 where a result overflows, not NaN");
    expect("nn", s, QN_BF16, QN_F16, NULL, "cuBLASLt does not know this product");
    expect("nn", s, QN_F32, QN_BF16, NULL, "its types are not the library's");
}

TEST(batches_and_rows)
{
    const shape s = {3, 40, 24, 16};
    expect("batched", s, QN_F32, QN_F32, "cublaslt 3 x f32 40x24x16", NULL);
    expect("shared_right", s, QN_BF16, QN_F32, "cublaslt 3 x bf16 40x24x16 to f32", NULL);
    expect("biased", (shape){0, 40, 24, 16}, QN_BF16, QN_BF16, "cublaslt bf16 40x24x16, with a bias", NULL);
    expect("biased", (shape){0, 37, 23, 19}, QN_F32, QN_F32, "cublaslt f32 37x23x19, with a bias", NULL);
}

TEST(what_is_no_product)
{
    const shape s = {0, 64, 64, 64};
    expect("biased_whole", s, QN_F32, QN_F32, NULL, "something is added to the product");
    expect("half", s, QN_F32, QN_F32, NULL, "its programs are not the whole result");
    expect("shorter", s, QN_F32, QN_F32, NULL, "it leaves out a part of k");
    expect("active", s, QN_F32, QN_F32, NULL, "something is computed between the product and its store");
    expect("gaps", s, QN_F32, QN_F32, NULL, "its tiles do not lie side by side");
    static const char *const refused[][2] = {
        {"doubled", "an operand is computed as it is read"},
        {"from_one", "its loop does not begin with nothing at 0"},
        {"twice", "it does more than one product"},
        {"mixed", "its operands and its result are not cut into the same tiles"},
    };
    for (int i = 0; i < COUNT(refused); i++) {
        operands o;
        const char *why = "";
        make("nn", s, QN_F32, QN_F32, &o);
        qn_call *call = call_of(refused[i][0], &o, 1);
        OK(qn_call_run(call, "cuda", &error));
        EXPECT(!call_library(call, &why));
        EXPECT_TEXT(why, refused[i][1]);
        qn_call_free(call);
        drop(&o);
    }
}

/* A place that is none at all: nothing is stored there, and the host that looks does not overflow. */
TEST(places_of_the_caller)
{
    static const int64_t places[] = {0, 1, 2, -1, INT64_MAX, INT64_MIN};
    const int64_t extents[4][3] = {{64, 16}, {16, 64}, {2, 64, 64}, {1, 64, 64}};
    static float a[64 * 16], b[16 * 64], c[2 * 64 * 64];
    for (int i = 0; i < COUNT(a); i++) a[i] = b[i] = 1;
    for (int n = 0; n < COUNT(places); n++)
        for (int matrices = 2; matrices > 0; matrices--) {
            qn_call *call;
            const char *why = "";
            bool whole = matrices == 1 && !places[n];
            memset(c, 0, sizeof(c));
            OK(qn_call_new(module, "picked", &call, &error));
            OK(qn_call_set_memory(call, "a", a, QN_F32, 2, extents[0], NULL, &error));
            OK(qn_call_set_memory(call, "b", b, QN_F32, 2, extents[1], NULL, &error));
            OK(qn_call_set_memory(call, "c", c, QN_F32, 3, extents[4 - matrices], NULL, &error));
            OK(qn_call_set_int(call, "z", places[n], &error));
            OK(qn_call_set_int(call, "library", 1, &error));
            OK(qn_call_run(call, "cuda", &error));
            EXPECT((call_library(call, &why) != NULL) == whole);
            for (int i = 0; i < matrices; i++) EXPECT(c[i * 64 * 64 + 5] == (i == places[n] ? 16 : 0));
            qn_call_free(call);
        }
}

/* Views with gaps, turned ones, ones that go backwards; matrices of a batch that lie in another order. */
TEST(views)
{
    static const struct {
        int64_t strides[2];
        bool by_library;
    } lefts[] = {{{16, 1}, true}, {{20, 1}, true}, {{1, 40}, true}, {{1, 48}, true}, {{40, 2}, false}, {{0, 1}, false}};
    float a[2000], b[16 * 24], c[40 * 24];
    int64_t shapes[3][2] = {{40, 16}, {16, 24}, {40, 24}};
    for (int i = 0; i < 2000; i++) a[i] = (float)(i * 7 % 13) - 6;
    for (int i = 0; i < 16 * 24; i++) b[i] = (float)(i * 5 % 11) - 5;
    for (int n = 0; n < COUNT(lefts); n++) {
        qn_call *call;
        const char *why;
        int bad = 0;
        OK(qn_call_new(module, "nn", &call, &error));
        OK(qn_call_set_memory(call, "a", a, QN_F32, 2, shapes[0], lefts[n].strides, &error));
        OK(qn_call_set_memory(call, "b", b, QN_F32, 2, shapes[1], NULL, &error));
        OK(qn_call_set_memory(call, "c", c, QN_F32, 2, shapes[2], NULL, &error));
        OK(qn_call_set_int(call, "library", 1, &error));
        OK(qn_call_run(call, "cuda", &error));
        EXPECT((call_library(call, &why) != NULL) == lefts[n].by_library);
        for (int i = 0; i < 40; i++)
            for (int j = 0; j < 24; j++) {
                float sum = 0;
                for (int k = 0; k < 16; k++)
                    sum += a[i * lefts[n].strides[0] + k * lefts[n].strides[1]] * b[k * 24 + j];
                bad += c[i * 24 + j] != sum;
            }
        EXPECT(bad == 0);
        qn_call_free(call);
    }
}

/* ---- launches ---- */

TEST(streams_and_graphs)
{
    operands o;
    qn_stream *stream;
    qn_graph *graph = NULL;
    qn_buffer *buffers[3];
    qn_call *calls[2];
    const shape s = {0, 40, 24, 56};
    make("nn", s, QN_F32, QN_F32, &o);
    for (int i = 0; i < 3; i++) {
        size_t size = (size_t)(o.extents[i][0] * o.extents[i][1]) * 4;
        OK(qn_buffer_new_on(context, "cuda", size, &buffers[i], &error));
        OK(qn_buffer_write(buffers[i], 0, o.memory[i], size, NULL, &error));
    }
    for (int c = 0; c < 2; c++) {
        OK(qn_call_new(module, "nn", &calls[c], &error));
        for (int i = 0; i < 3; i++)
            OK(qn_call_set_buffer(calls[c], names[i], buffers[i], 0, QN_F32, 2, o.extents[i], NULL, &error));
        OK(qn_call_set_int(calls[c], "library", 1, &error));
    }
    OK(qn_stream_new(context, "cuda", &stream, &error));
    OK(qn_call_launch(calls[0], stream, &error));
    int64_t asked = fake_count("cublasLtMatmulAlgoGetHeuristic");
    /* The first launch of a call, inside of a recording: nothing of it waits, and nobody is asked again. */
    OK(qn_graph_begin(stream, &error));
    OK(qn_call_launch(calls[1], stream, &error));
    int64_t memory = fake_count("cuMemAlloc_v2");
    OK(qn_call_launch(calls[1], stream, &error));
    OK(qn_call_launch(calls[0], stream, &error));
    EXPECT(fake_count("cuMemAlloc_v2") == memory);
    OK(qn_graph_end(stream, &graph, &error));
    EXPECT(fake_count("cublasLtMatmulAlgoGetHeuristic") == asked);
    EXPECT(qn_graph_node_count(graph) == 3);
    memset(o.memory[2], 0, 40 * 24 * 4);
    OK(qn_buffer_write(buffers[2], 0, o.memory[2], 40 * 24 * 4, NULL, &error));
    OK(qn_graph_launch(graph, stream, &error));
    OK(qn_stream_wait(stream, &error));
    OK(qn_buffer_read(buffers[2], 0, o.memory[2], 40 * 24 * 4, NULL, &error));
    EXPECT(wrong("nn", s, &o) == 0);
    const record_facts *facts = call_facts(calls[0]); /* what profiles and traces show */
    EXPECT(facts != NULL);
    if (facts) {
        EXPECT_TEXT(facts->kernel, "cublaslt f32 40x24x56");
        EXPECT(facts->flops >= 2 * 40 * 24 * 56 && facts->registers == 0 && !facts->variant);
    }
    qn_graph_free(graph);
    for (int c = 0; c < 2; c++) qn_call_free(calls[c]);
    for (int i = 0; i < 3; i++) qn_buffer_release(buffers[i]);
    qn_stream_free(stream);
    drop(&o);
}

/* Arrays at other addresses; where they are aligned less well the library is asked for a way again. */
TEST(moving)
{
    enum { SIDE = 32, COUNT_OF = SIDE * SIDE, BYTES = COUNT_OF * 4 };
    qn_buffer *buffer;
    qn_stream *stream;
    qn_call *call;
    const int64_t extents[] = {SIDE, SIDE};
    float all[4 * COUNT_OF], back[COUNT_OF];
    const char *why;
    for (int i = 0; i < COUNT(all); i++) all[i] = (float)(i * 7 % 5);
    OK(qn_buffer_new_on(context, "cuda", sizeof(all), &buffer, &error));
    OK(qn_buffer_write(buffer, 0, all, sizeof(all), NULL, &error));
    char *base = qn_buffer_data(buffer), *at[3] = {base, base, base + 3 * BYTES};
    OK(qn_call_new(module, "nn", &call, &error));
    for (int i = 0; i < 3; i++) OK(qn_call_set_memory(call, names[i], at[i], QN_F32, 2, extents, NULL, &error));
    OK(qn_call_set_int(call, "library", 1, &error));
    OK(qn_stream_new(context, "cuda", &stream, &error));
    OK(qn_call_launch(call, stream, &error));
    static const int moves[] = {0, COUNT_OF, 16, 17, 1, 16}; /* by so many elements */
    for (int m = 0; m < COUNT(moves); m++) {
        char *moved = base + moves[m] * 4;
        const float *x = all + moves[m];
        int bad = 0;
        int64_t before = fake_count("cublasLtMatmul");
        OK(qn_call_move(call, (const int[]){0, 1}, (void *const[]){moved, moved}, 2, &error));
        OK(qn_call_launch(call, stream, &error));
        OK(qn_stream_wait(stream, &error));
        EXPECT(fake_count("cublasLtMatmul") == before + 1 && call_library(call, &why));
        OK(qn_buffer_read(buffer, 3 * BYTES, back, BYTES, NULL, &error));
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                float sum = 0;
                for (int k = 0; k < SIDE; k++) sum += x[i * SIDE + k] * x[k * SIDE + j];
                bad += back[i * SIDE + j] != sum;
            }
        EXPECT(bad == 0);
    }
    qn_call_free(call);
    qn_stream_free(stream);
    qn_buffer_release(buffer);
}

/* A row that is added, at any address: ways that want aligned memory want that of it, too. */
TEST(rows_anywhere)
{
    enum { SIDE = 32, COUNT_OF = SIDE * SIDE };
    qn_buffer *buffers[4];
    qn_stream *stream;
    qn_call *call;
    const int64_t extents[] = {SIDE, SIDE};
    float all[2 * COUNT_OF], back[COUNT_OF];
    const char *why;
    for (int i = 0; i < COUNT(all); i++) all[i] = (float)(i * 7 % 5);
    OK(qn_call_new(module, "biased", &call, &error));
    for (int i = 0; i < 4; i++) {
        OK(qn_buffer_new_on(context, "cuda", sizeof(all), &buffers[i], &error));
        OK(qn_buffer_write(buffers[i], 0, all, sizeof(all), NULL, &error));
        OK(qn_call_set_buffer(call, names[i], buffers[i], 0, QN_F32, i < 3 ? 2 : 1, extents, NULL, &error));
    }
    OK(qn_call_set_int(call, "library", 1, &error));
    OK(qn_stream_new(context, "cuda", &stream, &error));
    for (int move = 5; move >= 0; move--) { /* by so many elements */
        int bad = 0;
        float *row = (float *)qn_buffer_data(buffers[3]) + move;
        if (move % 2)
            OK(qn_call_set_memory(call, names[3], row, QN_F32, 1, extents, NULL, &error));
        else
            OK(qn_call_move(call, (const int[]){2}, (void *const[]){row}, 1, &error));
        OK(qn_call_launch(call, stream, &error));
        OK(qn_stream_wait(stream, &error));
        EXPECT(call_library(call, &why) != NULL);
        OK(qn_buffer_read(buffers[2], 0, back, sizeof(back), NULL, &error));
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                float sum = all[j + move];
                for (int k = 0; k < SIDE; k++) sum += all[i * SIDE + k] * all[k * SIDE + j];
                bad += back[i * SIDE + j] != sum;
            }
        EXPECT(bad == 0);
    }
    qn_call_free(call);
    qn_stream_free(stream);
    for (int i = 0; i < 4; i++) qn_buffer_release(buffers[i]);
}

/* A recorded step of tensors, where every product may go to the library. */
TEST(plans)
{
    qn_tape *tape;
    float x[16 * 32], w[32 * 24], y[16 * 24];
    for (int i = 0; i < COUNT(x); i++) x[i] = (float)(i % 5) - 2;
    for (int i = 0; i < COUNT(w); i++) w[i] = (float)(i % 3) - 1;
    open_with("always");
    OK(qn_tape_new(context, "cuda", &tape, &error));
    int64_t before = fake_count("cublasLtMatmul");
    qn_tensor a = qn_from_memory(tape, x, QN_F32, QN_SHAPE(16, 32)),
              b = qn_from_memory(tape, w, QN_F32, QN_SHAPE(32, 24));
    qn_tensor product = qn_matmul(a, b);
    OK(qn_tensor_read(product, y, sizeof(y), &error));
    EXPECT(fake_count("cublasLtMatmul") == before + 1);
    int bad = 0;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 24; j++) {
            float sum = 0;
            for (int k = 0; k < 32; k++) sum += x[i * 32 + k] * w[k * 24 + j];
            bad += y[i * 24 + j] != sum;
        }
    EXPECT(bad == 0);
    qn_tape_free(tape);
    open_with(NULL);
}

/* ---- what goes wrong ---- */

TEST(failures)
{
    operands o;
    const shape s = {0, 40, 24, 57};
    make("nn", s, QN_F32, QN_F32, &o);
    qn_call *call = call_of("nn", &o, 1);
    fake_order("cublasLtMatmul", 13, (int)0);
    EXPECT(qn_call_run(call, "cuda", &error) == QN_FAILED);
    EXPECT_TEXT(error.message, "cublaslt f32 40x24x57: the library says: CUBLAS_STATUS_EXECUTION_FAILED");
    fake_reset();
    OK(qn_call_run(call, "cuda", &error)); /* and goes on */
    EXPECT(wrong("nn", s, &o) == 0);
    qn_call_free(call);
    drop(&o);
    open_with(NULL);
    make("nn", s, QN_F32, QN_F32, &o);
    call = call_of("nn", &o, 1);
    fake_order("cublasLtCreate", 1, 0);
    EXPECT(qn_call_run(call, "cuda", &error) == QN_FAILED);
    EXPECT_TEXT(error.message, "cuBLASLt does not start on cuda: CUBLAS_STATUS_EXECUTION_FAILED; with "
                               "QUERN_LIBRARY=never Quern does without it");
    fake_reset();
    qn_call_free(call);
    static const char *const refusing[] = {"cublasLtMatmulDescCreate", "cublasLtMatrixLayoutCreate",
                                           "cublasLtMatmulDescSetAttribute"};
    for (int i = 0; i < COUNT(refusing); i++) {
        const char *why = "";
        call = call_of("nn", &o, 1);
        fake_order(refusing[i], 3, 0);
        OK(qn_call_run(call, "cuda", &error));
        EXPECT(!call_library(call, &why) && !strcmp(why, "cuBLASLt does not know these matrices"));
        EXPECT(wrong("nn", s, &o) == 0);
        fake_reset();
        qn_call_free(call);
    }
    drop(&o);
}

/* Without memory for its workspace the kernel does it. */
TEST(no_workspace)
{
    operands o;
    const char *why = "";
    const shape s = {0, 32, 32, 16};
    open_with(NULL);
    make("nn", s, QN_F32, QN_F32, &o);
    qn_buffer *buffers[3];
    qn_call *call;
    OK(qn_call_new(module, "nn", &call, &error));
    for (int i = 0; i < 3; i++) {
        size_t size = (size_t)(o.extents[i][0] * o.extents[i][1]) * 4;
        OK(qn_buffer_new_on(context, "cuda", size, &buffers[i], &error));
        OK(qn_buffer_write(buffers[i], 0, o.memory[i], size, NULL, &error));
        OK(qn_call_set_buffer(call, names[i], buffers[i], 0, QN_F32, 2, o.extents[i], NULL, &error));
    }
    OK(qn_call_set_int(call, "library", 3, &error)); /* the way with the largest one */
    OK(qn_device_trim(context, "cuda", &error));
    for (int i = 0; i < 2; i++) fake_order("cuMemAlloc_v2", CUDA_OUT_OF_MEMORY, i); /* it tries again */
    OK(qn_call_run(call, "cuda", &error));
    fake_reset();
    EXPECT(!call_library(call, &why));
    EXPECT_TEXT(why, "there is no memory for its workspace");
    OK(qn_buffer_read(buffers[2], 0, o.memory[2], 32 * 32 * 4, NULL, &error));
    EXPECT(wrong("nn", s, &o) == 0);
    qn_call_free(call);
    for (int i = 0; i < 3; i++) qn_buffer_release(buffers[i]);
    drop(&o);
}

TEST_MAIN(CASE(opening), CASE(layouts), CASE(types), CASE(batches_and_rows), CASE(what_is_no_product),
          CASE(places_of_the_caller), CASE(views), CASE(streams_and_graphs), CASE(moving), CASE(rows_anywhere),
          CASE(plans), CASE(failures), CASE(no_workspace), CASE(closing))
