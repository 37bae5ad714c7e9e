/*
 * Products whose operands are gathered, as the CPU runs them: convolutions, transposed ones and the gradients of both, with
 * rows of windows that vectors cross, strides, dilations, groups, padding wider than windows, one to three axes, more rows
 * and a deeper product than one block takes, in four types, against `ref` on the same numbers.
 * SPDX-License-Identifier: MIT
 */
#include <quern/nn.h>

#include "base/base.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

typedef struct convolution {
    int axes;
    int64_t images, channels, outputs, extent[3], size[3];
    qn_conv_options options;
    bool transposed;
} convolution;

static const convolution cases[] = {
    {2, 2, 5, 7, {19, 23}, {3, 3}, {.padding = {1, 1}}, false},
    {2, 1, 3, 70, {9, 40}, {5, 2}, {.padding = {7, 3}, .dilation = {2, 1}}, false},
    {2, 2, 8, 6, {17, 33}, {3, 3}, {.stride = {2, 3}, .padding = {1, 0}, .groups = 2}, false},
    {1, 1, 8, 270, {90}, {7}, {.padding = {3}}, false}, /* more rows than are packed at once */
    {3, 1, 13, 9, {6, 5, 18}, {3, 2, 3}, {.padding = {1, 1, 1}}, false},
    {2, 1, 70, 12, {7, 7}, {3, 3}, {.padding = {1, 1}}, false}, /* 630 deep, rows of 7 */
    {2, 2, 6, 5, {14, 21}, {3, 3}, {.padding = {1, 1}}, true},
    {3, 1, 20, 17, {3, 4, 5}, {3, 2, 5}, {.groups = 1}, true}, /* much is outside: lines as they lie */
    {2, 2, 16, 40, {2, 1}, {4, 3}, {.groups = 1}, true},
    {1, 2, 6, 4, {29}, {5}, {.stride = {3}, .dilation = {2}, .groups = 2}, true},
    {2, 2, 6, 40, {9, 7}, {4, 5}, {.stride = {3, 2}, .groups = 2}, true}, /* remainders are programs of their own */
    {3, 1, 5, 18, {4, 3, 5}, {3, 3, 3}, {.stride = {2, 2, 2}, .padding = {1, 1, 1}}, true},
};

static qn_context *context;
static qn_error error;

static qn_tensor numbers(qn_tape *tape, qn_dtype type, qn_shape shape, unsigned seed)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++) count *= shape.extents[i];
    float *values = malloc(sizeof(*values) * (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 20) / 2048 - 1;
    }
    qn_tensor x = qn_cast(qn_from_memory(tape, values, QN_F32, shape), type);
    free(values);
    return x;
}

/* The result and both gradients, one after the other; *count of them. */
static float *compute(const char *device, const convolution *c, qn_dtype type, int64_t *count)
{
    qn_tape *tape;
    if (qn_tape_new(context, device, &tape, &error)) {
        printf("%s\n", error.message);
        return NULL;
    }
    int64_t groups = c->options.groups ? c->options.groups : 1;
    qn_shape image = {.rank = 2 + c->axes, .extents = {c->images, c->channels}}, weight = image;
    weight.extents[0] = c->transposed ? c->channels : c->outputs;
    weight.extents[1] = (c->transposed ? c->outputs : c->channels) / groups;
    for (int i = 0; i < c->axes; i++) {
        image.extents[2 + i] = c->extent[i];
        weight.extents[2 + i] = c->size[i];
    }
    qn_tensor x = qn_variable(numbers(tape, type, image, 1)), w = qn_variable(numbers(tape, type, weight, 2));
    qn_tensor b = numbers(tape, type, QN_SHAPE(c->outputs), 3);
    qn_tensor y = qn_relu(c->transposed ? qn_conv_transpose(x, w, b, &c->options) : qn_conv(x, w, b, &c->options));
    qn_tensor results[3] = {y}, leaves[2] = {x, w};
    qn_tensor loss = qn_sum(qn_mul(y, y), QN_ALL, false);
    float *out = NULL;
    qn_status status = QN_OK;
    qn_grad(loss, leaves, 2, results + 1);
    *count = 0;
    for (int i = 0; i < 3 && !status; i++) {
        qn_tensor as_float = qn_cast(results[i], QN_F32);
        int64_t size = qn_tensor_count(as_float);
        out = realloc(out, sizeof(*out) * (size_t)(*count + size));
        status = qn_tensor_read(as_float, out + *count, sizeof(*out) * (size_t)size, &error);
        *count += size;
    }
    if (status) printf("%s: %s\n", device, error.message);
    EXPECT(!status);
    qn_tape_free(tape);
    return out;
}

static void compare(const convolution *c, qn_dtype type, double within)
{
    int64_t count, wanted_count;
    float *got = compute("cpu", c, type, &count), *wanted = compute("ref", c, type, &wanted_count);
    double largest = 0, worst = 0;
    EXPECT(got && wanted && count == wanted_count && count > 0);
    for (int64_t i = 0; got && wanted && i < count; i++) {
        largest = fmax(largest, fabs(wanted[i]));
        double off = fabs((double)got[i] - wanted[i]);
        if (!(off <= worst)) worst = off;
    }
    if (!(worst <= within * largest)) printf("case %d: %g of %g\n", (int)(c - cases), worst, largest);
    EXPECT(worst <= within * largest && largest > 0);
    free(got);
    free(wanted);
}

TEST(floats)
{
    for (int i = 0; i < COUNT(cases); i++) compare(&cases[i], QN_F32, 1e-5);
}

TEST(other_types)
{
    compare(&cases[0], QN_F64, 1e-6);
    compare(&cases[0], QN_BF16, 2e-2);
    compare(&cases[6], QN_F16, 3e-3);
}

TEST(opening)
{
    EXPECT(!qn_context_open(NULL, &context, &error));
}
TEST(closing)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(opening), CASE(floats), CASE(other_types), CASE(closing))
