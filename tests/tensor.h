/*
 * What the tests of tensors share: a tape, and the value of a tensor by the graph interpreter. With tensor_on_device
 * set the tape's device ($QUERN_TEST_DEVICE, else ref, which needs no compiler) computes it too, in the mode
 * $QUERN_TEST_MODE (else fused), and must agree; this stores pending assignments, which the interpreter alone does not.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_TENSOR_H
#define QUERN_TESTS_TENSOR_H

/* First, and so with call sites, which the library itself leaves out. */
#include <quern/nn.h>

#include "ir/graph_interp.h"
#include "tensor/tape.h"
#include "test.h"

#include <stdlib.h>

static qn_context *tensor_context;
static qn_tape *tape;
static bool tensor_on_device;

static inline void tape_open(void)
{
    qn_error error;
    const char *device = getenv("QUERN_TEST_DEVICE"), *mode = getenv("QUERN_TEST_MODE");
    if ((!tensor_context && qn_context_open(NULL, &tensor_context, &error)) ||
        qn_tape_new(tensor_context, device ? device : "ref", &tape, &error)) {
        printf("%s\n", error.message);
        exit(1);
    }
    if (mode)
        qn_tape_set_mode(tape, !strcmp(mode, "eager") ? QN_EAGER : !strcmp(mode, "strict") ? QN_STRICT : QN_FUSED);
}

/* Every case leaves its tape without an error. */
static inline void tape_close(void)
{
    qn_error error;
    if (qn_tape_error(tape, &error)) test_fail(__FILE__, __LINE__, error.message);
    qn_tape_free(tape);
    tape = NULL;
}

/* Where the interpreter reads a leaf: its memory, or a copy (in the arena `context`) of what a device has of its own. */
static inline const void *tensor_memory(void *context, const graph_node *leaf)
{
    qn_buffer *buffer = ((const storage *)leaf->attr.storage)->buffer;
    qn_error error;
    if (strncmp(qn_buffer_device(buffer), "cuda", 4) != 0) return qn_buffer_data(buffer);
    size_t size_bytes = qn_buffer_size_bytes(buffer);
    void *copy = arena_alloc(context, size_bytes + 1);
    if (qn_buffer_read(buffer, 0, copy, size_bytes, NULL, &error)) test_fail(__FILE__, __LINE__, error.message);
    return copy;
}

/* What the tape's device computes is what the interpreter says. */
static inline void tensor_agree(qn_tensor t, const graph_tensor *truth, arena *scratch)
{
    qn_error error;
    size_t size_bytes = (size_t)truth->count * (size_t)dtypes[truth->elem].size_bytes;
    void *data = arena_alloc(scratch, size_bytes + 1);
    if (qn_tensor_read(t, data, size_bytes, &error)) {
        test_fail(__FILE__, __LINE__, error.message);
        return;
    }
    graph_tensor got = graph_tensor_read(truth->elem, &truth->shape, data, scratch);
    dtype elem = truth->elem;
    double tolerance = elem == DT_F64 ? 1e-12 : elem == DT_BF16 ? 2e-2 : elem == DT_F16 ? 2e-3 : 1e-5;
    for (int64_t i = 0; i < truth->count; i++) {
        number a = got.elements[i], b = truth->elements[i];
        bool near = a.f == b.f || (isnan(a.f) && isnan(b.f)) || fabs(a.f - b.f) <= tolerance * (1 + fabs(b.f));
        if (dtype_is_float(elem) ? near : a.i == b.i) continue;
        char words[160];
        snprintf(words, sizeof(words), "element %lld: the device gives %.9g (%lld), the interpreter %.9g (%lld)",
                 (long long)i, a.f, (long long)a.i, b.f, (long long)b.i);
        test_fail(__FILE__, __LINE__, words);
        return;
    }
}

/* The elements as doubles; returns how many, or -1 with the failure printed. */
static inline int64_t tensor_values(qn_tensor t, double *out, int64_t room)
{
    qn_error error;
    tape_slot *slot = tape_slot_of(t);
    if (!slot) {
        if (qn_tape_error(t.tape ? t.tape : tape, &error)) printf("%s\n", error.message);
        return -1;
    }
    arena *scratch = arena_new();
    graph_memory where = {.find = tensor_memory, .context = scratch};
    graph_tensor result;
    int64_t count = -1;
    if (graph_interpret(t.tape->graph, &slot->node, 1, &where, false, scratch, &result, &error)) {
        printf("%s\n", error.message);
    } else {
        count = result.count;
        for (int64_t i = 0; i < count && i < room; i++) {
            number n = result.elements[i];
            out[i] = dtype_is_float(result.elem) ? n.f : result.elem == DT_U64 ? (double)(uint64_t)n.i : (double)n.i;
        }
    }
    if (count >= 0 && tensor_on_device) tensor_agree(t, &result, scratch);
    arena_free(scratch);
    return count;
}

/* Shape and elements within a tolerance. */
static inline void tensor_expect(qn_tensor t, qn_shape s, const double *expected, double tolerance, const char *file,
                                 int line)
{
    double actual[4096];
    int64_t count = 1, got = tensor_values(t, actual, 4096);
    for (int k = 0; k < s.rank; k++) count *= s.extents[k];
    qn_shape is = qn_tensor_shape(t);
    bool same = got == count && is.rank == s.rank;
    for (int k = 0; k < s.rank && same; k++) same = is.extents[k] == s.extents[k];
    if (!same) {
        text words = {0};
        shape own = shape_from_public(is), wanted = shape_from_public(s);
        text_add(&words, "shape ");
        shape_print(&own, &words);
        text_add(&words, " is not ");
        shape_print(&wanted, &words);
        test_fail(file, line, text_get(&words));
        text_free(&words);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        test_near(actual[i], expected[i], tolerance * (1 + fabs(expected[i])), file, line);
}

/* EXPECT_TENSOR(t, QN_SHAPE(2, 2), 1, 2, 3, 4) */
#define EXPECT_TENSOR(t, shape, ...) \
    tensor_expect((t), (shape), (const double[]){__VA_ARGS__}, 2e-6, __FILE__, __LINE__)

/* A tensor of these numbers. */
static inline qn_tensor tensor_of(qn_dtype type, qn_shape s, const double *numbers)
{
    shape inside = shape_from_public(s);
    int64_t count = shape_count(&inside);
    arena *scratch = arena_new();
    graph_tensor values = {.elem = (dtype)type, .shape = inside, .count = count};
    values.elements = ARENA_ARRAY(scratch, number, count + 1);
    for (int64_t i = 0; i < count; i++) {
        values.elements[i].f = numbers[i];
        values.elements[i].i = dtype_is_float((dtype)type) ? 0 : (int64_t)numbers[i];
    }
    void *data = arena_alloc(scratch, (size_t)count * 8 + 8);
    graph_tensor_write(&values, data);
    qn_tensor t = qn_from_memory(tape, data, type, s);
    arena_free(scratch);
    return t;
}
#define TENSOR(type, shape, ...) tensor_of((type), (shape), (const double[]){__VA_ARGS__})
#define F32(shape, ...) TENSOR(QN_F32, shape, __VA_ARGS__)
#define I64(shape, ...) TENSOR(QN_I64, shape, __VA_ARGS__)

#endif
