/*
 * A trained model on data: log-loss, AUC, probabilities. In: a model and a feed. Out: exact metrics over all rows (logits
 * are read back and sorted on the host), with those of the true probabilities where the data knows them, or the
 * probabilities themselves. The forward is recorded once; a last batch that is not full is cut on the host.
 * SPDX-License-Identifier: MIT
 */
#include "model/dlrm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONSTANT_SPREAD 1e-4 /* predictions that differ by less do not differ */

struct dlrm_judge {
    qn_dlrm *d;
    int64_t batch;
    qn_tensor counts, tokens, logits, unknown;
    qn_plan *plan;
    float *out;
    int64_t *unknown_out; /* of each row of a batch; NULL: no token is unknown */
};

qn_status dlrm_judge_new(qn_dlrm *d, int64_t batch, dlrm_judge **out, qn_error *error)
{
    dlrm_judge *j = heap_new(sizeof(*j));
    *out = j;
    j->d = d;
    j->batch = batch;
    j->out = malloc(sizeof(float) * (size_t)batch);
    j->counts = qn_empty(d->tape, QN_F32, QN_SHAPE(batch, d->dense_columns));
    j->tokens = qn_empty(d->tape, QN_I64, QN_SHAPE(batch, d->config.sparse_count));
    qn_status status = j->out ? qn_capture_begin(d->tape, error) : error_set(error, QN_NO_MEMORY, "no memory");
    if (!status) {
        j->logits = qn_dlrm_logits(d, j->counts, j->tokens);
        j->unknown = dlrm_unknown_rows(d, j->tokens);
        if (j->unknown.tape) j->unknown_out = heap_new(sizeof(int64_t) * (size_t)batch);
        status = qn_eval(d->tape, (qn_tensor[]){j->logits, j->unknown}, j->unknown.tape ? 2 : 1, error);
        qn_error other;
        qn_status ended = qn_capture_end(d->tape, &j->plan, status ? &other : error);
        if (!status) status = ended;
    }
    if (!status) return QN_OK;
    dlrm_judge_free(j);
    *out = NULL;
    return status;
}

void dlrm_judge_free(dlrm_judge *j)
{
    if (!j) return;
    qn_plan_free(j->plan);
    qn_release(j->logits);
    qn_release(j->counts);
    qn_release(j->tokens);
    qn_release(j->unknown);
    if (j->unknown_out) heap_free(j->unknown_out);
    free(j->out);
    heap_free(j);
}

/* Rows so far: growing arrays. */
typedef struct rows {
    float *logits, *labels, *truth;
    int64_t count, room, unknown_tokens;
} rows;

static bool rows_grow(rows *r, int64_t more)
{
    if (r->count + more <= r->room) return true;
    int64_t room = MAXIMUM(r->room * 2, r->count + more);
    float **all[] = {&r->logits, &r->labels, &r->truth};
    for (int i = 0; i < 3; i++) {
        float *grown = realloc(*all[i], sizeof(float) * (size_t)room);
        if (!grown) return false;
        *all[i] = grown;
    }
    r->room = room;
    return true;
}

static double entropy(double p)
{
    return p > 0 && p < 1 ? -p * log(p) - (1 - p) * log1p(-p) : 0;
}

static qn_status judge(const rows *r, bool truth, dlrm_valid *v, qn_error *error)
{
    double n = (double)r->count, loss = 0, right = 0, positive = 0, mean = 0, true_loss = 0;
    v->lowest = INFINITY;
    v->highest = -INFINITY;
    for (int64_t i = 0; i < r->count; i++) {
        double x = r->logits[i], y = r->labels[i], p = 1 / (1 + exp(-x));
        loss += fmax(x, 0) - x * y + log1p(exp(-fabs(x)));
        right += (x > 0) == (y > 0.5);
        positive += y;
        mean += p;
        v->lowest = fmin(v->lowest, p);
        v->highest = fmax(v->highest, p);
        if (truth) true_loss -= y > 0.5 ? log(r->truth[i]) : log1p(-(double)r->truth[i]);
    }
    v->metrics =
        (qn_metrics){.count = n, .loss = loss / n, .accuracy = right / n, .positives = positive / n, .mean = mean / n};
    v->base_entropy = entropy(positive / n);
    v->oracle_auc = NAN;
    v->oracle_loss = truth ? true_loss / n : (double)NAN;
    QN_TRY(metrics_auc(r->logits, r->labels, r->count, &v->metrics.auc, error));
    return truth ? metrics_auc(r->truth, r->labels, r->count, &v->oracle_auc, error) : QN_OK;
}

static qn_status judge_batch(dlrm_judge *j, const qn_loaded *batch, bool truth, qn_dlrm_take *take, void *user, rows *r,
                             qn_error *error)
{
    QN_TRY(qn_tensor_write(j->counts, batch->fields[FEED_COUNTS],
                           sizeof(float) * (size_t)(j->batch * j->d->dense_columns), error));
    QN_TRY(qn_tensor_write(j->tokens, batch->fields[FEED_TOKENS],
                           sizeof(int64_t) * (size_t)(j->batch * j->d->config.sparse_count), error));
    QN_TRY(qn_plan_replay(j->plan, error));
    QN_TRY(qn_tensor_read(j->logits, j->out, sizeof(float) * (size_t)j->batch, error));
    if (take) {
        for (int64_t i = 0; i < batch->rows; i++) j->out[i] = (float)(1 / (1 + exp(-(double)j->out[i])));
        return take(user, j->out, batch->rows) ? QN_OK : error_set(error, QN_FAILED, "stopped");
    }
    if (!rows_grow(r, batch->rows))
        return error_set(error, QN_NO_MEMORY, "no memory for %lld rows", (long long)r->count);
    if (j->unknown_out) QN_TRY(qn_tensor_read(j->unknown, j->unknown_out, sizeof(int64_t) * (size_t)j->batch, error));
    for (int64_t i = 0; i < batch->rows && j->unknown_out; i++) r->unknown_tokens += j->unknown_out[i];
    const double *known = batch->fields[FEED_TRUE];
    memcpy(r->logits + r->count, j->out, sizeof(float) * (size_t)batch->rows);
    memcpy(r->labels + r->count, batch->fields[FEED_LABELS], sizeof(float) * (size_t)batch->rows);
    for (int64_t i = 0; i < batch->rows; i++) r->truth[r->count + i] = truth ? (float)known[i] : 0;
    r->count += batch->rows;
    return QN_OK;
}

qn_status dlrm_judge_run(dlrm_judge *j, dlrm_feed *feed, dlrm_telling *telling, qn_dlrm_take *take, void *user,
                         dlrm_valid *out, qn_error *error)
{
    rows r = {0};
    qn_status status = QN_OK;
    int64_t done = 0;
    memset(out, 0, sizeof(*out));
    for (const qn_loaded *batch; !status && dlrm_tell_rows(telling, done, feed->rows); done += batch->rows) {
        status = qn_loader_next(feed->loader, &batch, error);
        if (status || !batch->rows) break;
        status = judge_batch(j, batch, feed->probabilities, take, user, &r, error);
    }
    for (int64_t i = 0; i < r.count && !status; i++)
        if (isnan(r.labels[i])) status = error_set(error, QN_BAD_FILE, "the data has no labels to compare with");
    if (!status && r.count) status = judge(&r, feed->probabilities, out, error);
    out->unknown_tokens = r.unknown_tokens;
    free(r.logits);
    free(r.labels);
    free(r.truth);
    return status;
}

/* ---- from a checkpoint ---- */

typedef struct use {
    qn_tape *tape;
    qn_dlrm_config config;
    qn_dlrm *d;
    dlrm_judge *judge;
    dlrm_feed *feed;
} use;

static qn_status use_open(qn_context *context, const char *checkpoint, const qn_dlrm_options *o, bool held_out, use *u,
                          qn_error *error)
{
    QN_TRY(qn_tape_new(context, o->device, &u->tape, error));
    QN_TRY(qn_dlrm_open(u->tape, checkpoint, &u->config, &u->d, error));
    int64_t batch = u->config.validation_batch ? u->config.validation_batch : u->config.batch;
    batch = MAXIMUM(batch, 2048);
    QN_TRY(dlrm_judge_new(u->d, batch, &u->judge, error));
    qn_dlrm_options plain = *o;
    if (!held_out) plain.held_out = -1;
    plain.no_shuffle = true;
    *u->config.validation_path = 0; /* the data is what the options say */
    qn_dataset *data;
    QN_TRY(dlrm_open_data(&u->config, &plain, DATA_VALID, &data, error));
    return dlrm_feed_open(context, u->d, data, batch, 0, 0, 0, NULL, &u->feed, error);
}

static void use_close(use *u)
{
    dlrm_feed_close(u->feed);
    dlrm_judge_free(u->judge);
    qn_dlrm_free(u->d);
    qn_tape_free(u->tape);
}

qn_status qn_dlrm_eval(qn_context *context, const char *checkpoint, const qn_dlrm_options *options,
                       qn_dlrm_result *result, qn_error *error)
{
    HEAP_ENTER(error);
    if (!context || !checkpoint || !options || !result)
        return error_set(error, QN_BAD_CALL, "qn_dlrm_eval: an argument is NULL");
    memset(result, 0, sizeof(*result));
    use u = {0};
    dlrm_valid v = {0};
    int64_t begun = clock_now_ns();
    qn_status status = use_open(context, checkpoint, options, options->held_out > 0, &u, error);
    dlrm_telling telling = dlrm_telling_of(options, "evaluating");
    if (!status) status = dlrm_judge_run(u.judge, u.feed, &telling, NULL, NULL, &v, error);
    if (!status && !(v.metrics.count > 0)) status = error_set(error, QN_BAD_FILE, "the data has no rows to evaluate");
    if (!status) {
        *result = (qn_dlrm_result){.valid = v.metrics,
                                   .samples = (int64_t)v.metrics.count,
                                   .unknown_tokens = v.unknown_tokens,
                                   .base_entropy = v.base_entropy,
                                   .oracle_auc = v.oracle_auc,
                                   .oracle_loss = v.oracle_loss,
                                   .constant = v.highest - v.lowest < CONSTANT_SPREAD,
                                   .parameters = qn_model_count(u.d->root, false)};
        result->samples_per_second = v.metrics.count / (1e-9 * (double)(clock_now_ns() - begun));
    }
    use_close(&u);
    return status;
}

qn_status qn_dlrm_predict(qn_context *context, const char *checkpoint, const qn_dlrm_options *options,
                          qn_dlrm_take *take, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    if (!context || !checkpoint || !options || !take)
        return error_set(error, QN_BAD_CALL, "qn_dlrm_predict: an argument is NULL");
    use u = {0};
    dlrm_valid v;
    qn_status status = use_open(context, checkpoint, options, false, &u, error);
    dlrm_telling telling = dlrm_telling_of(options, "predicting");
    if (!status) status = dlrm_judge_run(u.judge, u.feed, &telling, take, user, &v, error);
    use_close(&u);
    return status;
}
