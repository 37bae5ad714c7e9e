/*
 * Products whose operands are gathered, as the CPU runs them: convolutions, transposed ones and the gradients of both, with
 * rows of windows that vectors cross, strides, dilations, groups, padding wider than windows, one to three axes, more rows
 * and a deeper product than one block takes, in four types, against plain loops over the same numbers.
 * SPDX-License-Identifier: MIT
 */
#include <quern/nn.h>

#include "ir/tile.h"
#include "share.h"
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
    {2, 1, 64, 6, {5, 4}, {2, 2}, {.padding = {1, 1}}, false}, /* 256 deep: a whole block */
};

static qn_context *context;
static qn_error error;

/* Numbers as the type has them. */
static double rounded(double x, qn_dtype type)
{
    return type == QN_BF16  ? bf16_to_double(bf16_from_double(x))
           : type == QN_F16 ? f16_to_double(f16_from_double(x))
                            : x;
}

static double some_number(int64_t at, unsigned seed, qn_dtype type)
{
    unsigned bits = (seed * 77777u + (unsigned)at) * 2654435761u;
    bits = (bits ^ bits >> 15) * 2246822519u;
    return rounded((double)(bits >> 20) / 2048 - 1, type);
}

static qn_tensor numbers(qn_tape *tape, qn_dtype type, qn_shape shape, unsigned seed)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++) count *= shape.extents[i];
    float *values = malloc(sizeof(*values) * (size_t)count);
    for (int64_t i = 0; i < count; i++) values[i] = (float)some_number(i, seed, type);
    qn_tensor x = qn_cast(qn_from_memory(tape, values, QN_F32, shape), type);
    free(values);
    return x;
}

/* ---- what they should be, by loops ---- */

/* A convolution and a transposed one are the same pairs of a small image and a large one: small position * stride - padding +
 * tap * dilation is the large position. */
typedef struct sizes {
    int64_t stride[3], dilation[3], padding[3], taps[3], small[3], large[3], groups;
    int64_t small_channels, large_channels; /* of a group */
    int64_t tap_count, small_count, large_count;
} sizes;

static sizes sizes_of(const convolution *c)
{
    sizes s = {.groups = c->options.groups ? c->options.groups : 1, .tap_count = 1, .small_count = 1, .large_count = 1};
    s.small_channels = (c->transposed ? c->channels : c->outputs) / s.groups;
    s.large_channels = (c->transposed ? c->outputs : c->channels) / s.groups;
    for (int i = 0; i < 3; i++) {
        bool there = i < c->axes;
        s.stride[i] = there && c->options.stride[i] ? c->options.stride[i] : 1;
        s.dilation[i] = there && c->options.dilation[i] ? c->options.dilation[i] : 1;
        s.padding[i] = there ? c->options.padding[i] : 0;
        s.taps[i] = there ? c->size[i] : 1;
        int64_t given = there ? c->extent[i] : 1, reach = s.dilation[i] * (s.taps[i] - 1) + 1 - 2 * s.padding[i];
        s.small[i] = c->transposed ? given : (given - reach) / s.stride[i] + 1;
        s.large[i] = c->transposed ? (given - 1) * s.stride[i] + reach : given;
        s.tap_count *= s.taps[i];
        s.small_count *= s.small[i];
        s.large_count *= s.large[i];
    }
    return s;
}

static int64_t large_of(const sizes *s, int64_t small, int64_t tap)
{
    int64_t at[3], out = 0;
    for (int i = 2; i >= 0; i--) {
        at[i] = small % s->small[i] * s->stride[i] - s->padding[i] + tap % s->taps[i] * s->dilation[i];
        if (at[i] < 0 || at[i] >= s->large[i]) return -1;
        small /= s->small[i];
        tap /= s->taps[i];
    }
    for (int i = 0; i < 3; i++) out = out * s->large[i] + at[i];
    return out;
}

/* Of every pair of numbers that meet: to[t] += one[i] * other[k]. */
enum { RESULT, BY_IMAGE, BY_WEIGHT };

static void add_pairs(const convolution *c, int what, const double *y, const double *x, const double *w, double *to)
{
    const sizes s = sizes_of(c);
    for (int64_t n = 0; n < c->images; n++)
        for (int64_t group = 0; group < s.groups; group++)
            for (int64_t a = group * s.small_channels; a < (group + 1) * s.small_channels; a++)
                for (int64_t in_group = 0; in_group < s.large_channels; in_group++)
                    for (int64_t place = 0; place < s.small_count * s.tap_count; place++) {
                        int64_t p = place / s.tap_count, tap = place % s.tap_count, q = large_of(&s, p, tap);
                        if (q < 0) continue;
                        int64_t b = group * s.large_channels + in_group;
                        int64_t small = (n * s.groups * s.small_channels + a) * s.small_count + p;
                        int64_t large = (n * s.groups * s.large_channels + b) * s.large_count + q;
                        int64_t weight = (a * s.large_channels + in_group) * s.tap_count + tap;
                        int64_t of_y = c->transposed ? large : small, of_x = c->transposed ? small : large;
                        if (what == RESULT) to[of_y] += x[of_x] * w[weight];
                        if (what == BY_IMAGE) to[of_x] += y[of_y] * w[weight];
                        if (what == BY_WEIGHT) to[weight] += y[of_y] * x[of_x];
                    }
}

/* relu(y), and the gradients of the sum of its squares. */
static double *by_loops(const convolution *c, qn_dtype type, int64_t *count)
{
    const sizes s = sizes_of(c);
    int64_t of_small = c->images * s.groups * s.small_channels * s.small_count;
    int64_t of_large = c->images * s.groups * s.large_channels * s.large_count;
    int64_t y_count = c->transposed ? of_large : of_small, x_count = c->transposed ? of_small : of_large;
    int64_t w_count = s.groups * s.small_channels * s.large_channels * s.tap_count;
    double *out = calloc((size_t)(2 * (y_count + x_count + w_count)), sizeof(*out));
    double *x = out + y_count + x_count + w_count, *w = x + x_count, *by_y = w + w_count;
    for (int64_t i = 0; i < x_count; i++) x[i] = some_number(i, 1, type);
    for (int64_t i = 0; i < w_count; i++) w[i] = some_number(i, 2, type);
    add_pairs(c, RESULT, NULL, x, w, out);
    for (int64_t i = 0; i < y_count; i++) {
        out[i] += some_number(i / (y_count / c->images / c->outputs) % c->outputs, 3, type);
        out[i] = out[i] > 0 ? rounded(out[i], type) : 0;
        by_y[i] = 2 * out[i];
    }
    add_pairs(c, BY_IMAGE, by_y, x, w, out + y_count);
    add_pairs(c, BY_WEIGHT, by_y, x, w, out + y_count + x_count);
    *count = y_count + x_count + w_count;
    return out;
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
    float *got = compute("cpu", c, type, &count);
    double *wanted = by_loops(c, type, &wanted_count);
    double largest = 0, worst = 0;
    EXPECT(got && wanted && count == wanted_count && count > 0);
    for (int64_t i = 0; got && wanted && i < count; i++) {
        largest = fmax(largest, fabs(wanted[i]));
        double off = fabs(got[i] - wanted[i]);
        if (!(off <= worst)) worst = off;
    }
    if (!(worst <= within * largest)) printf("case %d: %g of %g\n", (int)(c - cases), worst, largest);
    EXPECT(worst <= within * largest && largest > 0);
    free(got);
    free(wanted);
}

TEST(floats)
{
    for (int i = 0; i < COUNT(cases); i += share_of_few("convolutions")) compare(&cases[i], QN_F32, 1e-5);
}

TEST(other_types)
{
    for (int i = 0; i < COUNT(cases);
         i += share_of_few("convolutions")) { /* by pairs of bf16: odd depths, guards within a pair */
        compare(&cases[i], QN_BF16, 2e-2);
        if (i % 4 == 0) compare(&cases[i], QN_F64, 1e-6);
    }
    compare(&cases[6], QN_F16, 3e-3);
}

/* A vector of f64 has four lanes there, and a panel eight columns: less than is packed at once. */
TEST(narrow_vectors)
{
#ifdef __x86_64__
    const char *ours = getenv("QUERN_CC");
    text compiler = {0};
    qn_context *wide = context;
    text_print(&compiler, "%s -march=x86-64-v3", ours ? ours : "cc");
    char *kept = ours ? strdup(ours) : NULL;
    setenv("QUERN_CC", text_get(&compiler), 1);
    EXPECT(!qn_context_open(NULL, &context, &error));
    compare(&cases[COUNT(cases) - 1], QN_F64, 1e-6);
    compare(&cases[COUNT(cases) - 1], QN_BF16, 2e-2);
    qn_context_close(context);
    context = wide;
    if (kept)
        setenv("QUERN_CC", kept, 1);
    else
        unsetenv("QUERN_CC");
    free(kept);
    text_free(&compiler);
#endif
}

TEST(opening)
{
    EXPECT(!qn_context_open(NULL, &context, &error));
}
TEST(closing)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(opening), CASE(floats), CASE(other_types), CASE(narrow_vectors), CASE(closing))
