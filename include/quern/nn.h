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
/* x [N][C][..], one mean and variance for each channel: those of x in training, else the given ones; weight and bias
 * [C], or none. In training new_mean and new_variance (or NULL) get the running ones moved by momentum towards those of x
 * (the variance of a sample): assign them to variables. */
QN_API qn_tensor qn_batch_norm(qn_tensor x, qn_tensor mean, qn_tensor variance, qn_tensor weight, qn_tensor bias,
                               bool training, double momentum, double epsilon, qn_tensor *new_mean,
                               qn_tensor *new_variance);
/* The same for each group of channels of each image; for each channel of each image. */
QN_API qn_tensor qn_group_norm(qn_tensor x, int64_t groups, qn_tensor weight, qn_tensor bias, double epsilon);
QN_API qn_tensor qn_instance_norm(qn_tensor x, qn_tensor weight, qn_tensor bias, double epsilon);
/* Zero with probability p, else divided by 1 - p; advances the tape's random numbers. */
QN_API qn_tensor qn_dropout(qn_tensor x, double p);

/* Activations with their numbers; what they are is PyTorch's. Those without: QN_UNARY_LIST has more. */
// clang-format off
#define QN_ACTIVATION_LIST(F0, F1, F2)                                                                                 \
    F0(selu) F0(mish) F0(hardswish) F0(hardsigmoid) F0(relu6) F0(softsign) F0(logsigmoid)                              \
    F1(leaky_relu, negative_slope) F1(elu, alpha) F1(celu, alpha) F2(hardtanh, low, high) F2(threshold, above, value)
// clang-format on
#define QN_DECLARE_0(name) QN_API qn_tensor qn_##name(qn_tensor x);
#define QN_DECLARE_1(name, first) QN_API qn_tensor qn_##name(qn_tensor x, double first);
#define QN_DECLARE_2(name, first, second) QN_API qn_tensor qn_##name(qn_tensor x, double first, double second);
QN_ACTIVATION_LIST(QN_DECLARE_0, QN_DECLARE_1, QN_DECLARE_2)
#undef QN_DECLARE_0
#undef QN_DECLARE_1
#undef QN_DECLARE_2
QN_API qn_tensor qn_prelu(qn_tensor x, qn_tensor weight); /* weight [1], or [C] for the second axis */
QN_API qn_tensor qn_glu(qn_tensor x, int axis);           /* the first half of the axis * sigmoid(the second) */
/* silu(x) * gate; without a gate: silu(the first half of the axis) * the second. */
QN_API qn_tensor qn_swiglu(qn_tensor x, qn_tensor gate, int axis);

/* Zeros are the defaults: stride 1, no padding, dilation 1, one group. One number for each axis after [N][C]. */
typedef struct qn_conv_options {
    int64_t stride[3], padding[3], dilation[3], groups;
    int64_t output_padding[3]; /* of a transposed one: more at the end, below the stride or the dilation */
} qn_conv_options;
/* x [N][C][..] with one to three more axes, weight [O][C / groups][K..], bias [O] or none; options may be NULL. */
QN_API qn_tensor qn_conv(qn_tensor x, qn_tensor weight, qn_tensor bias, const qn_conv_options *options);
/* Its transpose, which is the gradient of a convolution by its input: weight [C][O / groups][K..]. */
QN_API qn_tensor qn_conv_transpose(qn_tensor x, qn_tensor weight, qn_tensor bias, const qn_conv_options *options);

/* Zeros are the defaults: stride as the size, no padding, dilation 1. */
typedef struct qn_pool_options {
    int64_t stride[3], padding[3], dilation[3];
    bool ceil_mode;       /* a last window may stick out */
    bool without_padding; /* average: over the elements of x alone */
    int64_t divisor;      /* average: over this number */
} qn_pool_options;
/* x [..] and the one to three last axes that the windows have. */
QN_API qn_tensor qn_max_pool(qn_tensor x, qn_shape size, const qn_pool_options *options);
QN_API qn_tensor qn_avg_pool(qn_tensor x, qn_shape size, const qn_pool_options *options);
/* As many windows as are wanted, over the last axes. */
QN_API qn_tensor qn_adaptive_max_pool(qn_tensor x, qn_shape counts);
QN_API qn_tensor qn_adaptive_avg_pool(qn_tensor x, qn_shape counts);
/* The last one to three axes to these extents: the nearest element, or straight lines between elements. */
QN_API qn_tensor qn_upsample_nearest(qn_tensor x, qn_shape extents);
QN_API qn_tensor qn_upsample_linear(qn_tensor x, qn_shape extents, bool align_corners);

/* As qn_conv_options. [0]: rows, [1]: columns. */
typedef struct qn_conv2d_options {
    int64_t stride[2], padding[2], dilation[2], groups;
} qn_conv2d_options;
/* x [N][C][H][W], weight [O][C / groups][KH][KW], bias [O] or none; options may be NULL. */
QN_API qn_tensor qn_conv2d(qn_tensor x, qn_tensor weight, qn_tensor bias, const qn_conv2d_options *options);

/* As qn_pool_options. */
typedef struct qn_pool2d_options {
    int64_t stride[2], padding[2], dilation[2];
    bool without_padding; /* average: over the elements of x alone */
} qn_pool2d_options;
/* x [..][H][W]; windows of rows x columns. */
QN_API qn_tensor qn_max_pool2d(qn_tensor x, int64_t rows, int64_t columns, const qn_pool2d_options *options);
QN_API qn_tensor qn_avg_pool2d(qn_tensor x, int64_t rows, int64_t columns, const qn_pool2d_options *options);

/* EACH: no reduction. BATCH_MEAN: of kl_div, the sum over the number of rows. */
typedef enum qn_reduction { QN_MEAN, QN_SUM, QN_EACH, QN_BATCH_MEAN } qn_reduction;
QN_API qn_tensor qn_l1_loss(qn_tensor x, qn_tensor target, qn_reduction reduction);
QN_API qn_tensor qn_mse_loss(qn_tensor x, qn_tensor target, qn_reduction reduction);
/* Squares near 0, straight lines from beta or delta on. */
QN_API qn_tensor qn_smooth_l1_loss(qn_tensor x, qn_tensor target, double beta, qn_reduction reduction);
QN_API qn_tensor qn_huber_loss(qn_tensor x, qn_tensor target, double delta, qn_reduction reduction);
/* x: logarithms; target: probabilities, or their logarithms. */
QN_API qn_tensor qn_kl_div(qn_tensor x, qn_tensor target, bool log_target, qn_reduction reduction);
QN_API qn_tensor qn_hinge_embedding_loss(qn_tensor x, qn_tensor target, double margin, qn_reduction reduction);
/* max(|anchor - positive| - |anchor - negative| + margin, 0) with p-norms over the last axis. */
QN_API qn_tensor qn_triplet_margin_loss(qn_tensor anchor, qn_tensor positive, qn_tensor negative, double margin,
                                        double p, double epsilon, qn_reduction reduction);
QN_API qn_tensor qn_cosine_similarity(qn_tensor a, qn_tensor b, int axis, double epsilon);
/* logits [N][C], target integers [N]; or [C] and a scalar; or [N][C][..] and [N][..]. Targets equal to ignore_index (-100
 * in PyTorch) count for nothing; QN_NO_INDEX: all count. */
#define QN_NO_INDEX INT64_MIN
QN_API qn_tensor qn_cross_entropy(qn_tensor logits, qn_tensor target, qn_reduction reduction, int64_t ignore_index);
/* The same of logarithms of probabilities. */
QN_API qn_tensor qn_nll_loss(qn_tensor logs, qn_tensor target, qn_reduction reduction, int64_t ignore_index);
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
#define qn_batch_norm(...) QN_AT(qn_batch_norm(__VA_ARGS__))
#define qn_group_norm(...) QN_AT(qn_group_norm(__VA_ARGS__))
#define qn_instance_norm(...) QN_AT(qn_instance_norm(__VA_ARGS__))
#define qn_selu(...) QN_AT(qn_selu(__VA_ARGS__))
#define qn_mish(...) QN_AT(qn_mish(__VA_ARGS__))
#define qn_hardswish(...) QN_AT(qn_hardswish(__VA_ARGS__))
#define qn_hardsigmoid(...) QN_AT(qn_hardsigmoid(__VA_ARGS__))
#define qn_relu6(...) QN_AT(qn_relu6(__VA_ARGS__))
#define qn_softsign(...) QN_AT(qn_softsign(__VA_ARGS__))
#define qn_logsigmoid(...) QN_AT(qn_logsigmoid(__VA_ARGS__))
#define qn_leaky_relu(...) QN_AT(qn_leaky_relu(__VA_ARGS__))
#define qn_elu(...) QN_AT(qn_elu(__VA_ARGS__))
#define qn_celu(...) QN_AT(qn_celu(__VA_ARGS__))
#define qn_hardtanh(...) QN_AT(qn_hardtanh(__VA_ARGS__))
#define qn_threshold(...) QN_AT(qn_threshold(__VA_ARGS__))
#define qn_prelu(...) QN_AT(qn_prelu(__VA_ARGS__))
#define qn_glu(...) QN_AT(qn_glu(__VA_ARGS__))
#define qn_swiglu(...) QN_AT(qn_swiglu(__VA_ARGS__))
#define qn_conv(...) QN_AT(qn_conv(__VA_ARGS__))
#define qn_conv_transpose(...) QN_AT(qn_conv_transpose(__VA_ARGS__))
#define qn_max_pool(...) QN_AT(qn_max_pool(__VA_ARGS__))
#define qn_avg_pool(...) QN_AT(qn_avg_pool(__VA_ARGS__))
#define qn_adaptive_max_pool(...) QN_AT(qn_adaptive_max_pool(__VA_ARGS__))
#define qn_adaptive_avg_pool(...) QN_AT(qn_adaptive_avg_pool(__VA_ARGS__))
#define qn_upsample_nearest(...) QN_AT(qn_upsample_nearest(__VA_ARGS__))
#define qn_upsample_linear(...) QN_AT(qn_upsample_linear(__VA_ARGS__))
#define qn_l1_loss(...) QN_AT(qn_l1_loss(__VA_ARGS__))
#define qn_smooth_l1_loss(...) QN_AT(qn_smooth_l1_loss(__VA_ARGS__))
#define qn_huber_loss(...) QN_AT(qn_huber_loss(__VA_ARGS__))
#define qn_kl_div(...) QN_AT(qn_kl_div(__VA_ARGS__))
#define qn_hinge_embedding_loss(...) QN_AT(qn_hinge_embedding_loss(__VA_ARGS__))
#define qn_triplet_margin_loss(...) QN_AT(qn_triplet_margin_loss(__VA_ARGS__))
#define qn_cosine_similarity(...) QN_AT(qn_cosine_similarity(__VA_ARGS__))
#define qn_nll_loss(...) QN_AT(qn_nll_loss(__VA_ARGS__))
#define qn_mse_loss(...) QN_AT(qn_mse_loss(__VA_ARGS__))
#define qn_cross_entropy(...) QN_AT(qn_cross_entropy(__VA_ARGS__))
#define qn_bce_with_logits(...) QN_AT(qn_bce_with_logits(__VA_ARGS__))
#define qn_scaled_dot_product_attention(...) QN_AT(qn_scaled_dot_product_attention(__VA_ARGS__))
#endif
#endif
