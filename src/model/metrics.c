/*
 * Metrics. On the host: the area under the ROC curve by sorting, log-loss. On the device: sums and two histograms of
 * probabilities (of negatives and positives) in variables that each update adds to, so that a recorded step collects and
 * the host reads a few thousand numbers at the end. Sums and histograms are f64: counts stay exact to 2^53.
 * SPDX-License-Identifier: MIT
 */
#include "model/model.h"

#include <quern/metrics.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLIP 1e-7
enum { SUM_COUNT, SUM_LOSS, SUM_RIGHT, SUM_POSITIVE, SUM_PROBABILITY, SUMS };

/* ---- on the host ---- */

typedef struct scored {
    float score;
    bool positive;
} scored;

static int by_score(const void *a, const void *b)
{
    float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x > y) - (x < y);
}

qn_status metrics_auc(const float *scores, const float *labels, int64_t count, double *auc, qn_error *error)
{
    *auc = NAN;
    if (!scores || !labels || count < 1) return QN_OK;
    scored *all = malloc(sizeof(*all) * (size_t)count);
    if (!all) return error_set(error, QN_NO_MEMORY, "no memory for the order of %lld scores", (long long)count);
    bool good = true;
    for (int64_t i = 0; i < count; i++) {
        all[i] = (scored){scores[i], labels[i] > 0.5f};
        good &= !isnan(scores[i]);
    }
    double below = 0, positives = 0, ordered = 0; /* negatives, positives so far; pairs in order */
    if (good) qsort(all, (size_t)count, sizeof(*all), by_score);
    for (int64_t i = 0; i < count && good;) {
        double negatives_here = 0, positives_here = 0;
        int64_t from = i;
        for (; i < count && all[i].score == all[from].score; i++)
            *(all[i].positive ? &positives_here : &negatives_here) += 1;
        ordered += positives_here * (below + negatives_here / 2);
        below += negatives_here;
        positives += positives_here;
    }
    free(all);
    if (good && below > 0 && positives > 0) *auc = ordered / (below * positives);
    return QN_OK;
}

double qn_auc(const float *scores, const float *labels, int64_t count)
{
    double auc;
    qn_error unread;
    (void)metrics_auc(scores, labels, count, &auc, &unread); /* NAN where it fails */
    return auc;
}

double qn_log_loss(const float *probabilities, const float *labels, int64_t count)
{
    double sum = 0;
    if (!probabilities || !labels || count < 1) return NAN;
    for (int64_t i = 0; i < count; i++) {
        double p = fmin(fmax(probabilities[i], CLIP), 1 - CLIP);
        if (isnan(probabilities[i])) return NAN;
        sum -= labels[i] * log(p) + (1 - labels[i]) * log1p(-p);
    }
    return sum / (double)count;
}

/* ---- as tensors ---- */

qn_tensor qn_accuracy(qn_tensor logits, qn_tensor target)
{
    qn_tensor best = qn_argmax(logits, QN_AXES(-1), false);
    return qn_mean(qn_cast(qn_eq(best, target), QN_F32), QN_ALL, false);
}

/* ---- collected ---- */

struct qn_meter {
    qn_tape *tape;
    int64_t bins;
    qn_tensor sums, counts; /* f64 [SUMS]; f64 [2 * bins]: negatives, then positives */
};

qn_meter *qn_meter_new(qn_tape *tape, int bins)
{
    if (!tape_enter(tape, "meter") || tape->graph->status) return NULL;
    if (bins < 0 || bins > 1 << 24) return graph_fail(tape->graph, "meter", "%d bins", bins), NULL;
    qn_meter *self = heap_new(sizeof(*self));
    self->tape = tape;
    self->bins = bins ? bins : 4096;
    int scope = tape->scope;
    tape->scope = 0; /* it lives as long as it is not freed */
    qn_tensor sums = qn_zeros(tape, QN_F64, QN_SHAPE(SUMS)), counts = qn_zeros(tape, QN_F64, QN_SHAPE(2 * self->bins));
    self->sums = qn_variable(sums);
    self->counts = qn_variable(counts);
    tape_forget(sums);
    tape_forget(counts);
    tape->scope = scope;
    if (!tape->graph->status) return self;
    qn_meter_free(self);
    return NULL;
}

void qn_meter_free(qn_meter *self)
{
    if (!self) return;
    tape_forget(self->sums);
    tape_forget(self->counts);
    heap_free(self);
}

void qn_meter_update(qn_meter *self, qn_tensor logits, qn_tensor labels, qn_tensor weights)
{
    if (!self || !tape_enter(self->tape, "meter")) return;
    if (!qn_tensor_valid(logits) || !qn_tensor_valid(labels)) return;
    int64_t count = qn_tensor_count(logits);
    if (qn_tensor_count(labels) != count || (weights.tape && qn_tensor_count(weights) != count)) {
        graph_fail(self->tape->graph, "meter", "%lld logits, %lld labels and %lld weights", (long long)count,
                   (long long)qn_tensor_count(labels), (long long)(weights.tape ? qn_tensor_count(weights) : count));
        return;
    }
    qn_scope_begin(self->tape);
    qn_shape flat = QN_SHAPE(count);
    qn_tensor x = qn_detach(qn_reshape(qn_cast(logits, QN_F32), flat)), y = qn_reshape(qn_cast(labels, QN_F32), flat);
    qn_tensor w = weights.tape ? qn_reshape(qn_cast(weights, QN_F64), flat) : qn_ones(self->tape, QN_F64, flat);
    qn_tensor p = qn_sigmoid(x), positive = qn_gt_scalar(y, 0.5);
    qn_tensor right = qn_eq(qn_gt_scalar(x, 0), positive);
    qn_tensor parts[SUMS] = {[SUM_COUNT] = qn_ones(self->tape, QN_F64, flat),
                             [SUM_LOSS] = qn_cast(qn_bce_with_logits(x, y, QN_EACH), QN_F64),
                             [SUM_RIGHT] = qn_cast(right, QN_F64),
                             [SUM_POSITIVE] = qn_cast(y, QN_F64),
                             [SUM_PROBABILITY] = qn_cast(p, QN_F64)};
    qn_tensor sums[SUMS];
    for (int i = 0; i < SUMS; i++) sums[i] = qn_sum(qn_mul(parts[i], w), QN_ALL, false);
    qn_assign(self->sums, qn_add(self->sums, qn_stack(sums, SUMS, 0)));
    qn_tensor bin =
        qn_cast(qn_clamp(qn_floor(qn_mul_scalar(p, (double)self->bins)), 0, (double)self->bins - 1), QN_I64);
    bin = qn_add(bin, qn_mul_scalar(qn_cast(positive, QN_I64), (double)self->bins));
    qn_assign(self->counts, qn_index_add(self->counts, 0, bin, w));
    qn_scope_end(self->tape);
}

/* Pairs of a negative and a positive one in order, and those in one bin. */
static void areas(const double *counts, int64_t bins, double *auc, double *error)
{
    double below = 0, positives = 0, ordered = 0, together = 0;
    for (int64_t i = 0; i < bins; i++) {
        double n = counts[i], p = counts[bins + i];
        ordered += p * (below + n / 2);
        together += p * n;
        below += n;
        positives += p;
    }
    double pairs = below * positives;
    *auc = pairs > 0 ? ordered / pairs : NAN;
    *error = pairs > 0 ? together / pairs / 2 : NAN;
}

static qn_status no_memory(const qn_meter *self, qn_error *error)
{
    return error_set(error, QN_NO_MEMORY, "no memory for %lld bins of a meter", (long long)self->bins);
}

qn_status qn_meter_read(qn_meter *self, qn_metrics *out, qn_error *error)
{
    if (!self || !out) return error_set(error, QN_BAD_CALL, "qn_meter_read: an argument is NULL");
    double sums[SUMS], *counts = malloc(sizeof(double) * 2 * (size_t)self->bins);
    if (!counts) return no_memory(self, error);
    qn_status status = qn_tensor_read(self->sums, sums, sizeof(sums), error);
    if (!status) status = qn_tensor_read(self->counts, counts, sizeof(double) * 2 * (size_t)self->bins, error);
    if (!status) {
        double n = sums[SUM_COUNT];
        *out = (qn_metrics){.count = n,
                            .loss = sums[SUM_LOSS] / n,
                            .accuracy = sums[SUM_RIGHT] / n,
                            .positives = sums[SUM_POSITIVE] / n,
                            .mean = sums[SUM_PROBABILITY] / n};
        areas(counts, self->bins, &out->auc, &out->auc_error);
    }
    free(counts);
    return status;
}

qn_status qn_meter_reset(qn_meter *self, qn_error *error)
{
    if (!self) return error_set(error, QN_BAD_CALL, "qn_meter_reset: the meter is NULL");
    double sums[SUMS] = {0}, *counts = calloc(2 * (size_t)self->bins, sizeof(double));
    if (!counts) return no_memory(self, error);
    qn_status status = qn_tensor_write(self->sums, sums, sizeof(sums), error);
    if (!status) status = qn_tensor_write(self->counts, counts, sizeof(double) * 2 * (size_t)self->bins, error);
    free(counts);
    return status;
}
