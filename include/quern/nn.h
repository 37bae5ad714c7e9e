/*
 * Layers and losses on tensors. All are compositions of the operations of <quern/tensor.h>, so they fuse with what is
 * around them and have gradients of every order. f16 and bf16 are widened to f32 inside and rounded once at the end.
 *
 * Example (a linear layer and its loss):
 *     qn_error error;
 *     qn_context *context;
 *     qn_tape *tape;
 *     double loss;
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     if (qn_tape_new(context, "cpu", &tape, &error)) return 1;
 *     qn_tensor x = qn_ones(tape, QN_F32, QN_SHAPE(4, 3));
 *     qn_tensor w = qn_full(tape, QN_F32, QN_SHAPE(3, 2), 0.5);
 *     qn_tensor y = qn_linear(x, w, QN_NONE);
 *     qn_tensor target = qn_zeros(tape, QN_I64, QN_SHAPE(4));
 *     if (qn_tensor_item(qn_cross_entropy(y, target, QN_MEAN, -100), &loss, &error)) return 1;
 *     if (loss < 0.693 || loss > 0.694) return 1;
 *     qn_tape_free(tape);
 *     qn_context_close(context);
 *
 * Tensors that may be left out are QN_NONE.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_NN_H
#define QUERN_NN_H

#include <quern/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x @ weight + bias: weight [in][out], bias [out] or none; x of any rank, its last axis is `in`. */
QN_API qn_tensor qn_linear(qn_tensor x, qn_tensor weight, qn_tensor bias);
QN_API qn_tensor qn_embedding(qn_tensor table, qn_tensor index); /* rows of [rows][D] */

typedef enum qn_bag { QN_BAG_SUM, QN_BAG_MEAN } qn_bag;
/* Sums or means of rows of table: index [bags][n] and no offsets, or index [n] with the start of each bag in offsets
 * [bags], which begin at 0 and do not fall; an empty bag gives zeros. */
QN_API qn_tensor qn_embedding_bag(qn_tensor table, qn_tensor index, qn_tensor offsets, qn_bag mode);

QN_API qn_tensor qn_softmax(qn_tensor x, int axis);
QN_API qn_tensor qn_log_softmax(qn_tensor x, int axis);
/* Over the last axes, which have the extents `normalized`; weight and bias of that shape, or none. */
QN_API qn_tensor qn_layer_norm(qn_tensor x, qn_shape normalized, qn_tensor weight, qn_tensor bias, double epsilon);
QN_API qn_tensor qn_rms_norm(qn_tensor x, qn_shape normalized, qn_tensor weight, double epsilon);
/* Zero with probability p, else divided by 1 - p; advances the tape's random numbers. */
QN_API qn_tensor qn_dropout(qn_tensor x, double p);

/* Zeros are the defaults: stride 1, no padding, dilation 1, one group. [0]: rows, [1]: columns. */
typedef struct qn_conv2d_options {
    int64_t stride[2], padding[2], dilation[2], groups;
} qn_conv2d_options;
/* x [N][C][H][W], weight [O][C / groups][KH][KW], bias [O] or none; options may be NULL. */
QN_API qn_tensor qn_conv2d(qn_tensor x, qn_tensor weight, qn_tensor bias, const qn_conv2d_options *options);

/* Zeros are the defaults: stride as the size, no padding, dilation 1. */
typedef struct qn_pool2d_options {
    int64_t stride[2], padding[2], dilation[2];
    bool without_padding; /* average: over the elements of x alone */
} qn_pool2d_options;
/* x [..][H][W]; windows of rows x columns. */
QN_API qn_tensor qn_max_pool2d(qn_tensor x, int64_t rows, int64_t columns, const qn_pool2d_options *options);
QN_API qn_tensor qn_avg_pool2d(qn_tensor x, int64_t rows, int64_t columns, const qn_pool2d_options *options);

typedef enum qn_reduction { QN_MEAN, QN_SUM, QN_EACH } qn_reduction; /* EACH: no reduction */
QN_API qn_tensor qn_mse_loss(qn_tensor x, qn_tensor target, qn_reduction reduction);
/* logits [N][C], target integers [N]; or [C] and a scalar; or [N][C][..] and [N][..]. Targets equal to ignore_index (-100
 * in PyTorch) count for nothing; QN_NO_INDEX: all count. */
#define QN_NO_INDEX INT64_MIN
QN_API qn_tensor qn_cross_entropy(qn_tensor logits, qn_tensor target, qn_reduction reduction, int64_t ignore_index);
/* target: probabilities of the shape of logits. */
QN_API qn_tensor qn_bce_with_logits(qn_tensor logits, qn_tensor target, qn_reduction reduction);

/* softmax(q k^T * scale + mask) v: q [..][L][E], k [..][S][E], v [..][S][D]; batch axes broadcast. mask (or none)
 * broadcasts to [..][L][S]: bool, true where a query may look, or floats that are added. causal: position i looks at 0
 * to i. scale 0: 1 / sqrt(E). */
QN_API qn_tensor qn_scaled_dot_product_attention(qn_tensor q, qn_tensor k, qn_tensor v, qn_tensor mask, bool causal,
                                                 double scale);

#ifdef __cplusplus
}
#endif

#ifndef QN_NO_CALL_SITES
#define qn_linear(...) QN_AT(qn_linear(__VA_ARGS__))
#define qn_embedding(...) QN_AT(qn_embedding(__VA_ARGS__))
#define qn_embedding_bag(...) QN_AT(qn_embedding_bag(__VA_ARGS__))
#define qn_softmax(...) QN_AT(qn_softmax(__VA_ARGS__))
#define qn_log_softmax(...) QN_AT(qn_log_softmax(__VA_ARGS__))
#define qn_layer_norm(...) QN_AT(qn_layer_norm(__VA_ARGS__))
#define qn_rms_norm(...) QN_AT(qn_rms_norm(__VA_ARGS__))
#define qn_dropout(...) QN_AT(qn_dropout(__VA_ARGS__))
#define qn_conv2d(...) QN_AT(qn_conv2d(__VA_ARGS__))
#define qn_max_pool2d(...) QN_AT(qn_max_pool2d(__VA_ARGS__))
#define qn_avg_pool2d(...) QN_AT(qn_avg_pool2d(__VA_ARGS__))
#define qn_mse_loss(...) QN_AT(qn_mse_loss(__VA_ARGS__))
#define qn_cross_entropy(...) QN_AT(qn_cross_entropy(__VA_ARGS__))
#define qn_bce_with_logits(...) QN_AT(qn_bce_with_logits(__VA_ARGS__))
#define qn_scaled_dot_product_attention(...) QN_AT(qn_scaled_dot_product_attention(__VA_ARGS__))
#endif
#endif
