/*
 * Evaluation of tensors on every device of this machine: values, views without copies, variables and their order,
 * plans that are found again, memory that is given back, errors that leave everything usable.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "run/evaluate/realize.h"
#include "on_devices.h"
#include "quiet.h"

#include <math.h>
#include <quern/train.h>
#include <stdlib.h>
#include <string.h>

static qn_error error;
static qn_context *context;
static qn_tape *tape;
static const char *where; /* of the round */

static bool good(qn_status status)
{
    if (status != QN_OK) printf("%s: %s\n", where, error.message);
    return status == QN_OK;
}

static void begin(void)
{
    EXPECT(good(qn_tape_new(context, where, &tape, &error)));
}

static void end(void)
{
    qn_tape_free(tape);
    tape = NULL;
}

static bool reads(qn_tensor t, const float *expected, int count)
{
    float got[64];
    if (!good(qn_tensor_read(t, got, sizeof(float) * (size_t)count, &error))) return false;
    for (int i = 0; i < count; i++)
        if (fabsf(got[i] - expected[i]) > 1e-5f * (1 + fabsf(expected[i]))) {
            printf("%s: element %d is %g, not %g\n", where, i, (double)got[i], (double)expected[i]);
            return false;
        }
    return true;
}
#define READS(t, ...) EXPECT(reads(t, (float[]){__VA_ARGS__}, (int)(sizeof((float[]){__VA_ARGS__}) / sizeof(float))))

static qn_tensor numbers(int64_t rows, int64_t columns)
{
    float values[64];
    for (int i = 0; i < 64; i++) values[i] = (float)i;
    return qn_from_memory(tape, values, QN_F32, QN_SHAPE(rows, columns));
}

static void values(void)
{
    begin();
    qn_tensor x = numbers(2, 3);
    READS(qn_add(x, x), 0, 2, 4, 6, 8, 10);
    READS(qn_sum(x, QN_AXES(1), false), 3, 12);
    READS(qn_sum(x, QN_AXES(0), false), 3, 5, 7);
    READS(qn_mean(x, QN_ALL, false), 2.5f);
    READS(qn_matmul(x, qn_transpose(x, 0, 1)), 5, 14, 14, 50);
    READS(qn_full(tape, QN_F32, QN_SHAPE(3), 7), 7, 7, 7);
    READS(qn_softmax(qn_zeros(tape, QN_F32, QN_SHAPE(1, 4)), 1), 0.25f, 0.25f, 0.25f, 0.25f);
    double item;
    EXPECT(good(qn_tensor_item(qn_max(x, QN_ALL, false), &item, &error)) && item == 5);
    READS(qn_reshape(x, QN_SHAPE(6)), 0, 1, 2, 3, 4, 5);
    end();
}

/* Views lie in the memory of what they look at. */
static void views(void)
{
    begin();
    qn_tensor x = numbers(3, 4);
    int64_t before = tape->realizer ? tape->realizer->plans_made : 0;
    READS(qn_transpose(x, 0, 1), 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11);
    READS(qn_slice(x, 1, 3, QN_BEGIN, -2), 3, 1, 7, 5, 11, 9);
    READS(qn_expand(qn_slice(x, 0, 1, 2, 1), QN_SHAPE(2, 4)), 4, 5, 6, 7, 4, 5, 6, 7);
    EXPECT(tape->realizer->plans_made == before);
    qn_tensor twice = qn_add(x, x), turned = qn_transpose(twice, 0, 1), flat = qn_reshape(twice, QN_SHAPE(12));
    qn_tensor both[] = {turned, flat, twice};
    EXPECT(good(qn_eval(tape, both, 3, &error)));
    placed a, b, c;
    EXPECT(realize_where(tape, tape_slot_of(turned)->node, &a) && realize_where(tape, tape_slot_of(flat)->node, &b) &&
           realize_where(tape, tape_slot_of(twice)->node, &c));
    EXPECT(a.storage == b.storage && b.storage == c.storage && a.strides[0] == 1 && a.strides[1] == 4);
    qn_release(twice);
    qn_release(flat);
    READS(turned, 0, 8, 16, 2, 10, 18, 4, 12, 20, 6, 14, 22);
    end();
}

static void variables(void)
{
    begin();
    qn_tensor x = numbers(1, 3), w = qn_variable(qn_full(tape, QN_F32, QN_SHAPE(1, 3), 10));
    READS(w, 10, 10, 10);
    for (int step = 0; step < 3; step++) {
        qn_tensor old = qn_add(w, x);
        qn_assign(w, qn_add(w, x)); /* the old value is read on both sides */
        READS(old, (float)(10), (float)(11 + step), (float)(12 + 2 * step));
    }
    READS(w, 10, 13, 16);
    /* Two variables change places. */
    qn_tensor a = qn_variable(numbers(1, 2)), b = qn_variable(qn_full(tape, QN_F32, QN_SHAPE(1, 2), 5));
    EXPECT(good(qn_eval(tape, NULL, 0, &error)));
    qn_tensor was_a = qn_add_scalar(a, 0), was_b = qn_add_scalar(b, 0);
    qn_assign(a, was_b);
    qn_assign(b, was_a);
    READS(a, 5, 5);
    READS(b, 0, 1);
    /* What was not computed before the write can not be any more; what was keeps its value. */
    qn_tensor kept = qn_mul_scalar(w, 2), lost = qn_mul_scalar(w, 3);
    READS(kept, 20, 26, 32);
    float fresh[] = {1, 2, 3};
    EXPECT(good(qn_tensor_write(w, fresh, sizeof(fresh), &error)));
    READS(kept, 20, 26, 32);
    EXPECT(qn_tensor_read(lost, fresh, sizeof(fresh), &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "mul") &&
           strstr(error.message, "not computed before memory that it depends on was written"));
    if (test_failures_of_case) printf("%s\n", error.message);
    READS(qn_mul_scalar(w, 2), 2, 4, 6);
    READS(w, 1, 2, 3);
    end();
}

static void random_numbers(void)
{
    begin();
    float first[4], second[4], again[4];
    qn_seed(tape, 7);
    qn_tensor a = qn_rand(tape, QN_F32, QN_SHAPE(4)), b = qn_rand(tape, QN_F32, QN_SHAPE(4));
    EXPECT(good(qn_tensor_read(a, first, sizeof(first), &error))); /* the state goes on before b is computed */
    EXPECT(good(qn_tensor_read(b, second, sizeof(second), &error)));
    EXPECT(memcmp(first, second, sizeof(first)) != 0);
    qn_seed(tape, 7);
    a = qn_rand(tape, QN_F32, QN_SHAPE(4));
    b = qn_rand(tape, QN_F32, QN_SHAPE(4));
    EXPECT(good(qn_tensor_read(b, again, sizeof(again), &error)) && !memcmp(again, second, sizeof(again)));
    EXPECT(good(qn_tensor_read(a, again, sizeof(again), &error)) && !memcmp(again, first, sizeof(again)));
    end();
}

/* The same structure with other memory and other contents finds its plan. */
static void plans_are_found(void)
{
    begin();
    for (int step = 0; step < 5; step++) {
        qn_scope_begin(tape);
        qn_tensor x = qn_full(tape, QN_F32, QN_SHAPE(2, 3), step);
        float values[6] = {1, 2, 3, 4, 5, (float)step};
        qn_tensor y = qn_from_memory(tape, values, QN_F32, QN_SHAPE(2, 3));
        READS(qn_sum(qn_exp(qn_sub(y, y)), QN_ALL, false), 6);
        READS(qn_mul(y, y), 1, 4, 9, 16, 25, (float)(step * step));
        (void)x;
        qn_scope_end(tape);
    }
    EXPECT(tape->realizer->plans_made == 2);
    /* Another batch size: another plan of the same kernels. */
    int64_t compiles = context->compiles + context->cache_hits;
    for (int64_t rows = 2; rows < 40; rows += 7) {
        qn_scope_begin(tape);
        qn_tensor y = qn_softmax(qn_empty(tape, QN_F32, QN_SHAPE(rows, 5)), 1);
        qn_tensor total = qn_sum(y, QN_ALL, false);
        READS(total, (float)rows);
        if (rows == 2) compiles = context->compiles + context->cache_hits;
        qn_scope_end(tape);
    }
    EXPECT(context->compiles + context->cache_hits == compiles);
    /* Sums of as many as a block takes, whole vectors or not. */
    static const int64_t counts[] = {16384, 12800, 12807};
    for (int i = 0; i < COUNT(counts); i++) {
        qn_scope_begin(tape);
        READS(qn_mean(qn_ones(tape, QN_F32, QN_SHAPE(counts[i])), QN_ALL, false), 1);
        qn_tensor y = qn_empty(tape, QN_F32, QN_SHAPE(counts[i]));
        qn_tensor total = qn_sum(y, QN_ALL, false);
        EXPECT(good(qn_eval(tape, &total, 1, &error)));
        if (i) EXPECT(context->compiles + context->cache_hits == compiles);
        compiles = context->compiles + context->cache_hits;
        qn_scope_end(tape);
    }
    end();
}

/* A step that is called again finds its nodes, its gradient and its plan, whatever happened between: other contents, other
 * memory at the same address, a part of it computed before, results that are kept, one that was thrown away. */
static void steps_again(void)
{
    begin();
    float contents[3] = {1, 2, 3};
    qn_tensor x = qn_from_memory(tape, contents, QN_F32, QN_SHAPE(3)), kept[12];
    int nodes = 0;
    for (int step = 0; step < 12; step++) {
        qn_scope_begin(tape);
        float own[3] = {(float)step, 1, 0};
        qn_tensor y = qn_from_memory(tape, own, QN_F32, QN_SHAPE(3)), product = qn_mul(x, y), gradient;
        qn_tensor loss = qn_sum(qn_mul(product, product), QN_ALL, false);
        if (step % 4 == 3) EXPECT(good(qn_eval(tape, &product, 1, &error))); /* now a leaf of what follows */
        qn_grad(loss, &x, 1, &gradient);
        float a = contents[0], b = contents[1], s = (float)step;
        qn_tensor both[2] = {loss, gradient};
        EXPECT(good(qn_eval(tape, both, 2, &error)));
        READS(loss, a * a * s * s + b * b);
        READS(gradient, 2 * a * s * s, 2 * b, 0);
        kept[step] = qn_keep(qn_add(x, x));
        if (step % 2) EXPECT(good(qn_eval(tape, &kept[step], 1, &error)));
        qn_scope_end(tape);
        if (step % 5 == 4) {
            EXPECT(good(qn_eval(tape, kept, step + 1, &error)));
            contents[0] += 10;
            EXPECT(good(qn_tensor_write(x, contents, sizeof(contents), &error)));
        }
    }
    for (int step = 0; step < 12; step++) READS(kept[step], step < 5 ? 2 : step < 10 ? 22 : 42, 4, 6);
    int64_t known = tape->realizer->known_count, plans = tape->realizer->plans_made;
    for (int step = 0; step < 10; step++) { /* nothing is kept: the graph stays as it is */
        qn_scope_begin(tape);
        qn_tensor z = qn_softmax(qn_mul_scalar(x, 0), 0), gradient;
        qn_tensor total = qn_sum(qn_exp(x), QN_ALL, false);
        if (step % 2) qn_grad(total, &x, 1, &gradient);
        EXPECT(good(qn_eval(tape, &z, 1, &error)));
        READS(z, 1.f / 3, 1.f / 3, 1.f / 3);
        EXPECT(!step || step == 1 || tape->graph->node_count == nodes);
        nodes = tape->graph->node_count;
        qn_scope_end(tape);
        EXPECT(!tape_placed(tape, (node)nodes - 1)); /* its memory went */
    }
    EXPECT(tape->realizer->known_count >= known + 8 && tape->realizer->plans_made == plans + 1);
    end();
}

/* Nodes that are forgotten take with them where they lay, whoever placed them: an inner scope that computed a tensor of the
 * outer one, a write between two steps, a tensor of the outer scope that was released before the inner one began. */
static void scopes_in_scopes(void)
{
    begin();
    float contents[2] = {1, 2};
    qn_tensor x = qn_from_memory(tape, contents, QN_F32, QN_SHAPE(2));
    qn_tensor y = qn_from_memory(tape, contents, QN_F32, QN_SHAPE(2));
    for (int step = 0; step < 3; step++) {
        float own[2] = {(float)step, 3};
        qn_scope_begin(tape);
        qn_tensor outer = qn_neg(qn_from_memory(tape, own, QN_F32, QN_SHAPE(2)));
        qn_scope_begin(tape);
        READS(outer, -(float)step, -3);
        qn_scope_end(tape);
        node n = tape_slot_of(outer)->node;
        EXPECT(tape_placed(tape, n));
        qn_scope_end(tape);
        EXPECT(!tape_placed(tape, n));
    }
    for (int turn = 0; turn < 2; turn++) {
        if (!turn) {
            contents[0] = 7;
            EXPECT(good(qn_tensor_write(y, contents, sizeof(contents), &error)));
        }
        qn_scope_begin(tape);
        if (turn) {
            qn_tensor early = qn_mul_scalar(x, 5);
            READS(early, 5, 10);
            qn_release(early);
            qn_scope_begin(tape);
        } else {
            qn_release(y);
        }
        qn_tensor many = x;
        for (int i = 1; i < 1030; i++) many = qn_add_scalar(many, i); /* too many nodes to keep */
        qn_scope_end(tape);
        for (int i = tape->graph->node_count; i < tape->placed_capacity; i++) EXPECT(!tape->placed[i].storage);
        if (!turn) qn_scope_begin(tape);
        for (int i = 2; i < 8; i++) READS(qn_mul_scalar(x, i), (float)i, 2 * (float)i);
        qn_scope_end(tape);
    }
    end();
}

/* Tapes that come after one another may have the same address; what an evaluation of the last noted is not this one's. */
static void buffers_of_several_tapes(void)
{
    qn_buffer *buffers[3];
    for (int i = 0; i < 3; i++) {
        float contents[2] = {(float)i + 2, 1};
        EXPECT(good(qn_buffer_new_on(context, where, sizeof(contents), &buffers[i], &error)));
        EXPECT(good(qn_buffer_write(buffers[i], 0, contents, sizeof(contents), NULL, &error)));
    }
    for (int turn = 0; turn < 300; turn++) {
        float wanted[3];
        qn_tensor x[3];
        begin();
        for (int i = 0; i < 3; i++) {
            wanted[i] = (float)((i + turn) % 3 + 2);
            x[i] = qn_from_buffer(tape, buffers[(i + turn) % 3], 0, QN_F32, QN_SHAPE(2), NULL);
        }
        READS(qn_sub(qn_mul_scalar(x[0], 100), qn_mul(x[1], x[2])), wanted[0] * 100 - wanted[1] * wanted[2], 99);
        end();
    }
    for (int i = 0; i < 3; i++) qn_buffer_release(buffers[i]);
}

/* A whole training step at other batch sizes: new plans, the same kernels. */
static void batch_sizes(void)
{
    enum { WIDTH = 16, CLASSES = 10, LAYERS = 2 };
    begin();
    qn_tensor p[2 * LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        int64_t to = i == LAYERS - 1 ? CLASSES : WIDTH;
        p[2 * i] = qn_variable(qn_randn(tape, QN_F32, QN_SHAPE(WIDTH, to)));
        p[2 * i + 1] = qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(to)));
    }
    qn_optimizer *adam = qn_optimizer_new(tape, QN_ADAM, NULL, p, 2 * LAYERS);
    EXPECT(good(qn_eval(tape, NULL, 0, &error)));
    static const int64_t sizes[] = {64, 48, 33, 100, 250};
    int64_t compiles = 0;
    for (int i = 0; i < COUNT(sizes); i++) {
        qn_scope_begin(tape);
        qn_tensor x = qn_empty(tape, QN_F32, QN_SHAPE(sizes[i], WIDTH)), y = qn_empty(tape, QN_I64, QN_SHAPE(sizes[i]));
        for (int l = 0; l < LAYERS; l++) {
            x = qn_linear(x, p[2 * l], p[2 * l + 1]);
            if (l < LAYERS - 1) x = qn_gelu(x);
        }
        qn_tensor loss = qn_cross_entropy(x, y, QN_MEAN, QN_NO_INDEX);
        qn_optimizer_minimize(adam, loss);
        EXPECT(good(qn_eval(tape, &loss, 1, &error)));
        qn_scope_end(tape);
        int64_t now = context->compiles + context->cache_hits;
        if (i && now != compiles)
            printf("%s: batch %lld compiled %lld\n", where, (long long)sizes[i], (long long)(now - compiles));
        EXPECT(!i || now == compiles);
        compiles = now;
    }
    qn_optimizer_free(adam);
    end();
}

static void errors(void)
{
    begin();
    float out[6];
    double item;
    qn_tensor x = numbers(2, 3);
    EXPECT(qn_tensor_read(x, out, 5, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "qn_tensor_read: 5 bytes are given; a tensor of shape [2, 3] and type f32 has 24");
    EXPECT(qn_tensor_item(x, &item, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "qn_tensor_item: the tensor has 6 elements, not one");
    EXPECT(qn_tensor_write(qn_add(x, x), out, sizeof(out), &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "has no memory of its own") != NULL);
    EXPECT(qn_tensor_read(QN_NONE, out, 4, &error) == QN_BAD_CALL);
    qn_tensor wrong = qn_add(x, numbers(2, 2));
    EXPECT(qn_eval(tape, &wrong, 1, &error) == QN_BAD_CALL && strstr(error.message, "[2, 3]") != NULL);
    READS(qn_add(x, x), 0, 2, 4, 6, 8, 10); /* the error is told and forgotten */
    qn_tensor gone = qn_add(x, x);
    qn_release(gone);
    EXPECT(qn_tensor_read(gone, out, sizeof(out), &error) == QN_BAD_CALL && strstr(error.message, "released") != NULL);
    qn_tape *other;
    EXPECT(good(qn_tape_new(context, where, &other, &error)));
    EXPECT(qn_eval(other, &x, 1, &error) == QN_BAD_CALL && strstr(error.message, "different tapes") != NULL);
    qn_tape_free(other);
    int64_t far[] = {0, 7};
    qn_tensor index = qn_from_memory(tape, far, QN_I64, QN_SHAPE(2)), picked = qn_index_select(x, 0, index);
    if (strcmp(where, "cuda")) { /* whose indices the host does not have */
        EXPECT(qn_eval(tape, &picked, 1, &error) == QN_BAD_CALL);
        EXPECT(strstr(error.message, "index 7 is outside axis 0 of a tensor of shape [2, 3]: it must be from 0 to 1") !=
               NULL);
    }
    end();
    EXPECT(qn_tape_new(context, "nothing", &tape, &error) == QN_BAD_CALL);
}

/* Indices that are computed, by reading and by adding: found on ref, and where the tape asks for it; on a device with memory
 * of its own kernels look at what they read. Elsewhere they read and write nothing. */
static void computed_indices(void)
{
    bool is_ref = !strcmp(where, "ref"), far = !strcmp(where, "cuda");
    int64_t some[] = {0, 2, 1};
    for (int checks = 0; checks < 2; checks++) {
        begin();
        qn_tape_set_check_indices(tape, checks);
        qn_tensor x = numbers(3, 2), v = qn_variable(x), updates = qn_ones(tape, QN_F32, QN_SHAPE(3, 2));
        qn_tensor index = qn_add_scalar(qn_from_memory(tape, some, QN_I64, QN_SHAPE(3)), 1);
        qn_assign(v, qn_add_scalar(v, 1)); /* waits for what is computed before it */
        READS(qn_index_select(v, 0, qn_sub_scalar(index, 1)), 1, 2, 5, 6, 3, 4);
        qn_assign(v, qn_add_scalar(v, 1));
        qn_tensor read = qn_index_select(x, 0, index), added = qn_index_add(x, 0, index, updates);
        if (is_ref || (checks && !far)) {
            EXPECT(qn_eval(tape, &read, 1, &error) == QN_FINDING && strstr(error.message, "index_select"));
            EXPECT(
                strstr(error.message, "index 3 is outside axis 0 of a tensor of shape [3, 2]: it must be from 0 to 2"));
            EXPECT(strstr(error.message, " (element 1 of the indices)") != NULL);
            EXPECT(qn_eval(tape, &added, 1, &error) == QN_FINDING && strstr(error.message, "index_add"));
        } else if (!checks) {
            READS(read, 2, 3, 0, 0, 4, 5);
            READS(added, 0, 1, 3, 4, 5, 6);
        }
        READS(v, 2, 3, 4, 5, 6, 7); /* each assignment was carried out once */
        /* Two of three lie outside the second axis: the places that they name with the first one are inside. */
        qn_tensor pairs[2] = {qn_from_memory(tape, (int64_t[]){1, 0, 2}, QN_I64, QN_SHAPE(3)),
                              qn_from_memory(tape, (int64_t[]){-1, 2, 1}, QN_I64, QN_SHAPE(3))};
        qn_tensor put = qn_index_put(x, pairs, 2, qn_full(tape, QN_F32, QN_RANK_0, 9), false);
        if (is_ref) EXPECT(qn_eval(tape, &put, 1, &error) == QN_FINDING && strstr(error.message, "index_put"));
        if (!is_ref && !checks) READS(put, 0, 1, 2, 3, 4, 9);
        end();
    }
}

/* A tensor that no machine holds: an error, and everything goes on. */
static void no_memory(void)
{
    begin();
    qn_tensor x = numbers(2, 3);
#ifndef __SANITIZE_ADDRESS__ /* which ends the process instead */
    qn_tensor huge = qn_add_scalar(qn_full(tape, QN_F32, QN_SHAPE(1 << 20, 1 << 26), 1), 1);
    EXPECT(qn_eval(tape, &huge, 1, &error) == QN_NO_MEMORY);
#endif
    READS(qn_add(x, x), 0, 2, 4, 6, 8, 10);
    end();
}

static void empty_tensors(void)
{
    begin();
    qn_tensor none = qn_empty(tape, QN_F32, QN_SHAPE(0, 3)), sums = qn_sum(none, QN_AXES(0), false);
    READS(sums, 0, 0, 0);
    qn_tensor twice = qn_add(none, none);
    EXPECT(good(qn_eval(tape, &twice, 1, &error)) && good(qn_tensor_read(twice, NULL, 0, &error)));
    end();
}

/* Kernels of a module as ops: outputs, inout as a new tensor, an output that nobody wants, scalars. */
static void kernels_of_modules(void)
{
    static const char source[] =
        "kernel scale(in float x[n], out float y[n], out float z[n], float by, const int B = 4) launch (cdiv(n, B))\n"
        "{ int i = program(0) * B; y[i:B] = by * x[i:B]; z[i:B] = x[i:B] + 1; }\n"
        "kernel bump(inout float x[n], in float y[n], const int B = 4) launch (cdiv(n, B))\n"
        "{ int i = program(0) * B; x[i:B] = x[i:B] + y[i:B]; }\n";
    qn_module *module = NULL;
    EXPECT(good(qn_module_load_text(context, "ops.qn", source, &module, &error)));
    begin();
    qn_tensor x = qn_reshape(numbers(2, 3), QN_SHAPE(6)), by = qn_scalar(tape, QN_F32, 3), out[2], bumped;
    qn_call_kernel(module, "scale", NULL, (qn_tensor[]){qn_add(x, x), by}, 2, out, 2);
    READS(qn_add_scalar(out[0], 1), 1, 7, 13, 19, 25, 31);
    READS(out[1], 1, 3, 5, 7, 9, 11);
    qn_call_kernel(module, "bump", NULL, (qn_tensor[]){x, out[1]}, 2, &bumped, 1);
    READS(bumped, 1, 4, 7, 10, 13, 16);
    READS(x, 0, 1, 2, 3, 4, 5); /* functional: the input stays */
    qn_call_kernel(module, "bump", NULL, (qn_tensor[]){qn_flip(x, QN_AXES(0)), x}, 2, &bumped, 1);
    READS(bumped, 5, 5, 5, 5, 5, 5);
    end();
    qn_module_free(module);
}

ON_EVERY_DEVICE(values)
ON_EVERY_DEVICE(views)
ON_EVERY_DEVICE(variables)
ON_EVERY_DEVICE(random_numbers)
ON_EVERY_DEVICE(plans_are_found)
ON_EVERY_DEVICE(steps_again)
ON_EVERY_DEVICE(scopes_in_scopes)
ON_EVERY_DEVICE(buffers_of_several_tapes)
ON_EVERY_DEVICE(batch_sizes)
ON_EVERY_DEVICE(errors)
ON_EVERY_DEVICE(computed_indices)
ON_EVERY_DEVICE(no_memory)
ON_EVERY_DEVICE(empty_tensors)
ON_EVERY_DEVICE(kernels_of_modules)

TEST(opening)
{
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
}

static text heard;

static void hear(void *user, const char *line)
{
    (void)user;
    text_print(&heard, "%s\n", line);
}

static bool has_file(const char *folder, const char *pattern)
{
    text out = {0};
    int code = 1;
    char command[400];
    snprintf(command, sizeof(command), "ls %s/%s", folder, pattern);
    qn_status status = process_run((const char *const[]){"sh", "-c", command, NULL}, &out, &code, &error);
    text_free(&out);
    return status == QN_OK && code == 0;
}

/* What the environment asks to see of captured graphs, fusion, plans and kernels. */
TEST(logs_and_dumps)
{
    char folder[] = "/tmp/quern-dump-XXXXXX";
    EXPECT(mkdtemp(folder) != NULL);
    setenv("QUERN_LOG", "graph,fusion,guards,compile,code", 1);
    setenv("QUERN_DUMP_DIR", folder, 1);
    qn_context *kept = context;
    EXPECT(qn_context_open(&(qn_context_options){.print = hear}, &context, &error) == QN_OK);
    unsetenv("QUERN_LOG");
    unsetenv("QUERN_DUMP_DIR");
    where = "cpu";
    begin();
    for (int64_t rows = 2; rows < 4; rows++) {
        qn_tensor y = qn_softmax(qn_mul_scalar(qn_empty(tape, QN_F32, QN_SHAPE(rows, 6)), 2), 1);
        EXPECT(good(qn_eval(tape, &y, 1, &error)));
    }
    end();
    static const char *const expected[] = {"graph: plan 1\n",
                                           "= exp %",
                                           "fusion: plan 1\nkernel 0: ",
                                           "boundary %",
                                           "memory: plan 1\nworkspace ",
                                           "guards: plan 1 (",
                                           "the first evaluation of this tape",
                                           "guards: plan 2 (",
                                           "unlike plan 1: node 1 is leaf f32[3, 6] instead of leaf f32[2, 6]",
                                           "compile: ",
                                           "code: "};
    for (int i = 0; i < COUNT(expected); i++) {
        EXPECT(strstr(text_get(&heard), expected[i]) != NULL);
        if (!strstr(text_get(&heard), expected[i])) printf("not said: %s\n", expected[i]);
    }
    EXPECT(has_file(folder, "plan1-*/graph.txt") && has_file(folder, "plan1-*/fusion.txt") &&
           has_file(folder, "plan2-*/memory.txt") && has_file(folder, "*exp*/kernel.c") &&
           has_file(folder, "*exp*/00-*.tile"));
    qn_context_close(context);
    context = kept;
    text_free(&heard);
    char command[100];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    EXPECT(system(command) == 0);
}

/* Blocks of host memory are kept and found again. */
TEST(memory_is_kept)
{
    where = "cpu";
    begin();
    qn_tensor x = qn_empty(tape, QN_F32, QN_SHAPE(1000, 1000));
    char *before = NULL;
    for (int step = 0; step < 4; step++) {
        qn_scope_begin(tape);
        qn_tensor y = qn_add_scalar(x, 1);
        if (!good(qn_eval(tape, &y, 1, &error))) break;
        placed there;
        EXPECT(realize_where(tape, tape_slot_of(y)->node, &there));
        if (step > 1) EXPECT(storage_data(there.storage) == before);
        before = storage_data(there.storage);
        qn_scope_end(tape);
    }
    end();
}

/* Ours: a known plan again, host time by kernel. */
TEST(host_cost)
{
    where = "cpu";
    begin();
    float values[64] = {0};
    double best_ns = 1e18;
    qn_tensor x = qn_from_memory(tape, values, QN_F32, QN_SHAPE(8, 8));
    int steps = 0;
    for (int round = 0; round < 50; round++) {
        qn_scope_begin(tape);
        qn_tensor y = x;
        for (int i = 0; i < 10; i++) y = qn_cumsum(qn_mul_scalar(qn_add(y, x), 0.5), 1);
        int64_t start_ns = clock_now_ns();
        EXPECT(qn_eval(tape, &y, 1, &error) == QN_OK);
        double ns = (double)(clock_now_ns() - start_ns);
        if (ns < best_ns) best_ns = ns;
        steps = (int)tape->realizer->step_count;
        qn_scope_end(tape);
    }
    EXPECT(tape->realizer->plans_made == 1);
    printf("note: evaluating a known plan of %d kernels on 8 x 8 takes %.1f us\n", steps, best_ns * 1e-3);
    EXPECT_QUICK(best_ns < 1e6);
    end();
}

TEST(closing)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(opening), CASE(on_devices_values), CASE(on_devices_views), CASE(on_devices_variables),
          CASE(on_devices_random_numbers), CASE(on_devices_plans_are_found), CASE(on_devices_steps_again),
          CASE(on_devices_scopes_in_scopes), CASE(on_devices_buffers_of_several_tapes), CASE(on_devices_batch_sizes),
          CASE(on_devices_errors), CASE(on_devices_computed_indices), CASE(on_devices_no_memory),
          CASE(on_devices_empty_tensors), CASE(on_devices_kernels_of_modules), CASE(logs_and_dumps),
          CASE(memory_is_kept), CASE(host_cost), CASE(closing))
