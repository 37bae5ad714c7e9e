/*
 * kernels/attention_block.qn and kernels/swiglu.qn as parts of a model: against formulas written out here, and their
 * gradients against central differences, in double.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"
#include "share.h"

#include <math.h>
#include <quern/tensor.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, L = 5, C = 6, H = 4, G = 2, D = 4, MOST = 8 };

static qn_error error;
static qn_context *context;
static qn_module *block, *swiglu;
static qn_tape *tape;

#define OK(call)                           \
    do {                                   \
        if ((call) != QN_OK) {             \
            printf("%s\n", error.message); \
            EXPECT(!"success of " #call);  \
        }                                  \
    } while (0)

TEST(open)
{
    OK(qn_context_open(&(qn_context_options){.no_cache = true, .threads = 2}, &context, &error));
    OK(qn_module_load_file(context, QUERN_ROOT "/kernels/attention_block.qn", &block, &error));
    OK(qn_module_load_file(context, QUERN_ROOT "/kernels/swiglu.qn", &swiglu, &error));
    OK(qn_tape_new(context, "ref", &tape, &error));
}

typedef struct array {
    double *data;
    qn_shape shape;
    int64_t count;
} array;

static array array_of(qn_shape shape, int seed)
{
    array a = {.shape = shape, .count = 1};
    for (int i = 0; i < shape.rank; i++) a.count *= shape.extents[i];
    a.data = malloc(sizeof(double) * (size_t)a.count);
    for (int64_t i = 0; i < a.count; i++) a.data[i] = sin(1.3 * (double)(i + 1) + seed) * 0.7;
    return a;
}

/* What the function gives, its elements weighted and summed; and the gradients of that for every input. */
static double value_of(qn_module *module, const char *name, const char *settings, const array *inputs, int count,
                       double *result, double *const *gradients)
{
    qn_tensor x[MOST], y = {0}, d[MOST];
    double value = NAN;
    qn_scope_begin(tape); /* the same plan each time */
    for (int i = 0; i < count; i++) x[i] = qn_from_memory(tape, inputs[i].data, QN_F64, inputs[i].shape);
    qn_call_kernel(module, name, settings, x, count, &y, 1);
    qn_tensor loss = qn_sum(qn_mul(qn_sin(y), y), QN_ALL, false);
    OK(qn_tensor_item(loss, &value, &error));
    if (result) OK(qn_tensor_read(y, result, sizeof(double) * (size_t)(B * L * C), &error));
    if (gradients) {
        qn_grad(loss, x, count, d);
        for (int i = 0; i < count; i++)
            OK(qn_tensor_read(d[i], gradients[i], sizeof(double) * (size_t)inputs[i].count, &error));
    }
    qn_scope_end(tape);
    return value;
}

static void compare_gradients(qn_module *module, const char *name, const char *settings, array *inputs, int count)
{
    double *gradients[MOST] = {0}, worst = 0;
    int few = share_of_few("differences") > 1 ? 4 : 1;
    for (int i = 0; i < count; i++) gradients[i] = malloc(sizeof(double) * (size_t)inputs[i].count);
    value_of(module, name, settings, inputs, count, NULL, gradients);
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < inputs[i].count; k += 1 + inputs[i].count / (4 / few)) { /* some of each */
            double *at = &inputs[i].data[k], old = *at, step = 1e-5;
            *at = old + step;
            double above = value_of(module, name, settings, inputs, count, NULL, NULL);
            *at = old - step;
            double below = value_of(module, name, settings, inputs, count, NULL, NULL);
            *at = old;
            worst = fmax(worst, fabs((above - below) / (2 * step) - gradients[i][k]) / (1 + fabs(gradients[i][k])));
        }
    printf("note: gradients of %s are at most %.1e off\n", name, worst);
    EXPECT(worst < 1e-7);
    for (int i = 0; i < count; i++) free(gradients[i]);
}

/* One element of x W: of row (b, l). */
static double projected(const array *x, const array *w, int row, int column)
{
    double sum = 0;
    for (int c = 0; c < C; c++) sum += x->data[row * C + c] * w->data[c * (int)w->shape.extents[1] + column];
    return sum;
}

static double turned(const array *x, const array *w, const array *cosine, const array *sine, int b, int l, int head,
                     int at)
{
    int pair = at / 2, row = b * L + l;
    double even = projected(x, w, row, head * D + 2 * pair), odd = projected(x, w, row, head * D + 2 * pair + 1);
    double c = cosine->data[l * (D / 2) + pair], s = sine->data[l * (D / 2) + pair];
    return at % 2 ? even * s + odd * c : even * c - odd * s;
}

TEST(attention)
{
    array in[] = {array_of(QN_SHAPE(B, L, C), 1),  array_of(QN_SHAPE(C, H * D), 2), array_of(QN_SHAPE(C, G * D), 3),
                  array_of(QN_SHAPE(C, G * D), 4), array_of(QN_SHAPE(H * D, C), 5), array_of(QN_SHAPE(L, D / 2), 6),
                  array_of(QN_SHAPE(L, D / 2), 7)};
    static double got[B * L * C], inner[B * L * H * D];
    const char *settings = "H = 4, G = 2, D = 4";
    for (int b = 0; b < B; b++)
        for (int l = 0; l < L; l++)
            for (int h = 0; h < H; h++) {
                double p[L], sum = 0;
                int group = h / (H / G);
                for (int s = 0; s <= l; s++) {
                    double dot = 0;
                    for (int e = 0; e < D; e++)
                        dot += turned(&in[0], &in[1], &in[5], &in[6], b, l, h, e) *
                               turned(&in[0], &in[2], &in[5], &in[6], b, s, group, e);
                    sum += p[s] = exp(dot / sqrt(D));
                }
                for (int e = 0; e < D; e++) {
                    double o = 0;
                    for (int s = 0; s <= l; s++) o += p[s] / sum * projected(&in[0], &in[3], b * L + s, group * D + e);
                    inner[((b * L + l) * H + h) * D + e] = o;
                }
            }
    value_of(block, "attention_block", settings, in, 7, got, NULL);
    double worst = 0;
    for (int row = 0; row < B * L; row++)
        for (int c = 0; c < C; c++) {
            double want = 0;
            for (int e = 0; e < H * D; e++) want += inner[row * H * D + e] * in[4].data[e * C + c];
            worst = fmax(worst, fabs(got[row * C + c] - want));
        }
    EXPECT(worst < 1e-12);
    compare_gradients(block, "attention_block", settings, in, 7);
    for (int i = 0; i < 7; i++) free(in[i].data);
}

TEST(gated)
{
    array in[] = {array_of(QN_SHAPE(B * L, C), 1), array_of(QN_SHAPE(C, 7), 2), array_of(QN_SHAPE(C, 7), 3),
                  array_of(QN_SHAPE(7, C), 4)};
    static double got[B * L * C];
    value_of(swiglu, "swiglu", NULL, in, 4, got, NULL);
    double worst = 0;
    for (int row = 0; row < B * L; row++)
        for (int c = 0; c < C; c++) {
            double want = 0;
            for (int f = 0; f < 7; f++) {
                double gate = projected(&in[0], &in[1], row, f), up = projected(&in[0], &in[2], row, f);
                want += gate / (1 + exp(-gate)) * up * in[3].data[f * C + c];
            }
            worst = fmax(worst, fabs(got[row * C + c] - want));
        }
    EXPECT(worst < 1e-12);
    compare_gradients(swiglu, "swiglu", NULL, in, 4);
    for (int i = 0; i < 4; i++) free(in[i].data);
}

TEST(close)
{
    qn_tape_free(tape);
    qn_module_free(block);
    qn_module_free(swiglu);
    qn_context_close(context);
}

TEST_MAIN(CASE(open), CASE(attention), CASE(gated), CASE(close))
