/*
 * Metrics of classifiers. A meter collects on the device: each update is part of the step (recorded steps too), and the host
 * reads a few numbers when it wants to know. The functions on host memory are exact.
 *
 * Example (two of three right):
 *     const float scores[3] = {0.9f, 0.2f, 0.6f};
 *     const float labels[3] = {1, 0, 0};
 *     if (qn_auc(scores, labels, 3) != 1) return 1;
 *     double loss = qn_log_loss(scores, labels, 3);
 *     if (loss < 0.41 || loss > 0.42) return 1;
 *     printf("%g\n", loss);
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_METRICS_H
#define QUERN_METRICS_H

#include <quern/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- on host memory, exact ---- */

/* The area under the ROC curve: the share of pairs of a positive (label above 0.5) and a negative one whose scores are in
 * order, ties counting half. NAN: there are not both kinds, a score is NaN, or there is no memory for their order. */
QN_API double qn_auc(const float *scores, const float *labels, int64_t count);
/* The mean of -log of the probability of what was so; probabilities are kept within 1e-7 of 0 and 1. NAN of none. */
QN_API double qn_log_loss(const float *probabilities, const float *labels, int64_t count);

/* ---- as tensors ---- */

/* The share of rows of logits [N][C] whose largest is at the target [N]; f32, rank 0. */
QN_API qn_tensor qn_accuracy(qn_tensor logits, qn_tensor target);

/* ---- collected on the device ---- */

typedef struct qn_meter qn_meter;
typedef struct qn_metrics {
    double count;     /* samples */
    double loss;      /* mean of -log of the probability of what was so */
    double accuracy;  /* share on the right side of 0.5 */
    double auc;       /* by histograms: pairs in one bin count half; at most the share of such pairs off */
    double auc_error; /* half that share: how far it can be off */
    double positives; /* share of labels */
    double mean;      /* of the probabilities: equal to `positives` where a model is calibrated */
} qn_metrics;

/* bins: of the histograms of probabilities, 0: 4096. NULL: the tape has an error. Free it before its tape. */
QN_API qn_meter *qn_meter_new(qn_tape *tape, int bins);
/* Adds a batch: logits and labels (0 or 1) of equal count; weights of the same count, or none: 0 leaves a row out (of a
 * last, partial batch). Part of the step that is being built. */
QN_API void qn_meter_update(qn_meter *meter, qn_tensor logits, qn_tensor labels, qn_tensor weights);
QN_API QN_MUST_CHECK qn_status qn_meter_read(qn_meter *meter, qn_metrics *out, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_meter_reset(qn_meter *meter, qn_error *error);
QN_API void qn_meter_free(qn_meter *meter); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#ifndef QN_NO_CALL_SITES
#define qn_accuracy(...) QN_AT(qn_accuracy(__VA_ARGS__))
#define qn_meter_new(...) QN_AT(qn_meter_new(__VA_ARGS__))
#define qn_meter_update(...) QN_AT(qn_meter_update(__VA_ARGS__))
#endif
#endif
