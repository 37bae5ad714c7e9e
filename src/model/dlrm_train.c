/*
 * Training. In: a configuration and options. Out: a trained model as checkpoints, scalars for TensorBoard, lines about how
 * it goes. The step is recorded once and replayed; the next batches are prepared by a thread meanwhile. The host reads
 * back only when it tells something: the sum of losses, the first step with a loss that is no number (found on the
 * device, so that it is exact), and the logits of one batch for the AUC.
 *
 * What is saved is enough to go on to the very same numbers: the place in the data after the last step, not where the
 * reading thread is. After a loss that is no number nothing is saved. SPDX-License-Identifier: MIT
 */
#include "data/dataset.h"
#include "model/dlrm_train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define REPORT_SECONDS 0.5
#define CHECKPOINT_SECONDS 60.0
#define RECENT ((int64_t)32768) /* predictions that the AUC of training is of */
#define CONSTANT_SPREAD 1e-4
enum { TRACE_WAIT = 5, TRACE_WARMUP = 2, TRACE_ACTIVE = 10 };

/* ---- opening ---- */

static qn_tensor variable_of(qn_tape *tape, qn_dtype type, double value)
{
    qn_tensor initial = qn_full(tape, type, QN_SHAPE(1), value), v = qn_variable(initial);
    tape_forget(initial);
    return v;
}

static qn_status record_step(run *r, qn_error *error)
{
    qn_tape *tape = r->tape;
    qn_shape one = QN_SHAPE(1);
    QN_TRY(qn_capture_begin(tape, error));
    qn_scope_begin(tape);
    qn_tensor logits = qn_dlrm_logits(r->d, r->inputs[RUN_COUNTS], r->inputs[RUN_TOKENS]);
    qn_tensor loss = qn_bce_with_logits(logits, r->inputs[RUN_LABELS], QN_MEAN);
    qn_optimizer_minimize(r->optimizer, loss);
    qn_tensor wide = qn_reshape(qn_cast(qn_detach(loss), QN_F64), one);
    qn_tensor bad = qn_or(qn_isnan(wide), qn_isinf(wide));
    qn_tensor steps = qn_reshape(qn_optimizer_steps(r->optimizer), one); /* this one counted */
    qn_assign(r->bad_step, qn_where(qn_and(bad, qn_lt_scalar(r->bad_step, 0)), steps, r->bad_step));
    qn_assign(r->loss_sum, qn_add(r->loss_sum, wide));
    qn_tensor unknown = dlrm_unknown(r->d, r->inputs[RUN_TOKENS]);
    if (unknown.tape) qn_assign(r->unknown, qn_add(r->unknown, qn_reshape(unknown, one)));
    r->logits = qn_keep(logits);
    qn_status status = qn_eval(tape, &r->logits, 1, error);
    qn_scope_end(tape);
    qn_error other;
    qn_status ended = qn_capture_end(tape, &r->plan, status ? &other : error);
    return status ? status : ended;
}

static qn_status open_feed(run *r, qn_error *error)
{
    qn_dataset *data;
    QN_TRY(dlrm_open_data(&r->config, &r->options, DATA_TRAIN, &data, error));
    bool resumed = r->state.step > 0, over = resumed && r->state.place.after.epoch >= r->config.epochs;
    qn_status status = resumed && !over ? qn_dataset_seek(data, r->state.place.after, error) : QN_OK;
    if (status) {
        qn_dataset_close(data);
        return status;
    }
    return dlrm_feed_open(r->context, r->d, data, r->config.batch, r->state.step, r->config.batches_per_epoch,
                          r->config.epochs, resumed ? &r->state.place : NULL, &r->feed, error);
}

/* A whole number that this process counts on the device: it starts from what the checkpoint has. */
qn_status run_open(run *r, const char *path, qn_error *error)
{
    qn_dlrm_config saved;
    QN_TRY(qn_tape_new(r->context, r->device, &r->tape, error));
    qn_tape_set_tf32(r->tape, true);
    if (path) {
        QN_TRY(dlrm_read_state(path, &saved, &r->state, error));
        QN_TRY(dlrm_new_like(r->tape, path, &r->config, r->state.seed, &r->d, error));
        snprintf(r->start, sizeof(r->start), "%s", path);
    } else {
        r->state = (dlrm_state){.seed = r->options.seed};
        QN_TRY(qn_dlrm_new(r->tape, &r->config, r->metadata, r->options.seed, &r->d, error));
    }
    r->optimizer = dlrm_optimizer(r->d);
    int64_t batch = r->config.batch;
    r->labels = malloc(sizeof(float) * (size_t)batch);
    if (!r->labels) return error_set(error, QN_NO_MEMORY, "no memory for a batch");
    r->inputs[RUN_LABELS] = qn_empty(r->tape, QN_F32, QN_SHAPE(batch));
    r->inputs[RUN_COUNTS] = qn_empty(r->tape, QN_F32, QN_SHAPE(batch, r->d->dense_columns));
    r->inputs[RUN_TOKENS] = qn_empty(r->tape, QN_I64, QN_SHAPE(batch, r->config.sparse_count));
    r->loss_sum = variable_of(r->tape, QN_F64, 0);
    r->bad_step = variable_of(r->tape, QN_F64, -1);
    r->unknown = variable_of(r->tape, QN_I64, 0);
    QN_TRY(qn_eval(r->tape, NULL, 0, error));
    if (path) QN_TRY(qn_model_load(r->d->root, r->optimizer, path, NULL, error));
    QN_TRY(record_step(r, error));
    return open_feed(r, error);
}

void run_close(run *r)
{
    dlrm_feed_close(r->feed);
    dlrm_judge_free(r->judge);
    qn_plan_free(r->plan);
    qn_optimizer_free(r->optimizer);
    qn_dlrm_free(r->d);
    qn_tape_free(r->tape);
    free(r->labels);
    r->labels = NULL;
    r->feed = NULL;
    r->judge = NULL;
    r->plan = NULL;
    r->optimizer = NULL;
    r->d = NULL;
    r->tape = NULL;
}

qn_status run_feed(run *r, int64_t *rows, qn_error *error)
{
    static const int fields[RUN_INPUTS] = {FEED_LABELS, FEED_COUNTS, FEED_TOKENS};
    *rows = 0;
    QN_TRY(qn_loader_next(r->feed->loader, &r->batch, error));
    if (!r->batch->rows) return QN_OK;
    for (int i = 0; i < RUN_INPUTS; i++) {
        size_t size = (size_t)qn_tensor_count(r->inputs[i]) * qn_dtype_size_bytes(qn_tensor_dtype(r->inputs[i]));
        QN_TRY(qn_tensor_write(r->inputs[i], r->batch->fields[fields[i]], size, error));
    }
    *rows = r->batch->rows;
    return QN_OK;
}

qn_status run_step(run *r, qn_error *error)
{
    QN_TRY(qn_plan_replay(r->plan, error));
    memcpy(r->labels, r->batch->fields[FEED_LABELS], sizeof(float) * (size_t)r->config.batch);
    r->state.step++;
    r->state.place = r->feed->places[r->batch->number % FEED_RING];
    return QN_OK;
}

/* ---- telling ---- */

typedef struct teller {
    run *r;
    qn_dlrm_result *result;
    event_file *events;
    qn_profile *profile;
    int64_t begun_ns, told_ns, saved_ns, told_step, saved_step, total, first_step;
    int64_t outside_ns; /* validation and checkpoints, which are no training */
    float *scores, *labels;
    int64_t recent;
    double loss, auc, rate;
    char note[2 * QN_DLRM_PATH];
} teller;

static double seconds(int64_t ns)
{
    return 1e-9 * (double)ns;
}

static qn_dlrm_progress progress_now(const teller *t)
{
    const run *r = t->r;
    int64_t done = r->state.step - t->first_step;
    double took = seconds(clock_now_ns() - t->begun_ns - t->outside_ns), mean = (double)done / fmax(took, 1e-9);
    return (qn_dlrm_progress){.step = r->state.step,
                              .steps = t->total,
                              .epoch = r->state.place.epoch,
                              .samples = done * r->config.batch,
                              .seconds = took,
                              .samples_per_second = t->rate,
                              .loss = t->loss,
                              .auc = t->auc,
                              .done = NAN,
                              .eta_seconds =
                                  t->total > 0 && done ? (double)(t->total - r->state.step) / mean : (double)NAN};
}

static void tell(const teller *t, qn_dlrm_progress p)
{
    if (t->r->options.progress) t->r->options.progress(t->r->options.user, &p);
}

static void tell_note(teller *t, bool warning, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void tell_note(teller *t, bool warning, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    plain_print_list(t->note, sizeof(t->note), format, list);
    va_end(list);
    qn_dlrm_progress p = progress_now(t);
    p.note = t->note;
    p.warning = warning;
    tell(t, p);
}

/* Scores of the last batch go to the recent ones. */
static qn_status collect_scores(teller *t, qn_error *error)
{
    run *r = t->r;
    int64_t batch = r->config.batch, count = MINIMUM(batch, RECENT);
    float *logits = malloc(sizeof(float) * (size_t)batch);
    if (!logits) return error_set(error, QN_NO_MEMORY, "no memory for a batch");
    qn_status status = qn_tensor_read(r->logits, logits, sizeof(float) * (size_t)batch, error);
    for (int64_t i = 0; i < count && !status; i++, t->recent++) {
        t->scores[t->recent % RECENT] = logits[i];
        t->labels[t->recent % RECENT] = r->labels[i];
    }
    free(logits);
    return status ? status : metrics_auc(t->scores, t->labels, MINIMUM(t->recent, RECENT), &t->auc, error);
}

/* Reads what the device collected. QN_FINDING: a loss was not finite. */
static qn_status look(teller *t, int64_t *bad_step, qn_error *error)
{
    run *r = t->r;
    double sum, bad, zero = 0;
    int64_t now, steps = r->state.step - t->told_step;
    *bad_step = -1;
    if (!steps) return QN_OK;
    QN_TRY(qn_tensor_item(r->bad_step, &bad, error));
    if (bad >= 0) {
        *bad_step = (int64_t)bad;
        return QN_FINDING;
    }
    QN_TRY(qn_tensor_item(r->loss_sum, &sum, error));
    QN_TRY(qn_tensor_write(r->loss_sum, &zero, sizeof(zero), error));
    QN_TRY(collect_scores(t, error));
    now = clock_now_ns();
    t->loss = sum / (double)steps;
    t->rate = (double)(steps * r->config.batch) / fmax(seconds(now - t->told_ns), 1e-9);
    t->told_ns = now;
    t->told_step = r->state.step;
    int64_t at = r->state.step;
    events_scalar(t->events, "Loss/train", at, t->loss);
    if (!isnan(t->auc)) events_scalar(t->events, "AUC/train", at, t->auc);
    events_scalar(t->events, "samples/s", at, t->rate);
    tell(t, progress_now(t));
    return QN_OK;
}

/* ---- validation and checkpoints ---- */

static qn_status validate(teller *t, qn_error *error)
{
    run *r = t->r;
    int64_t begun = clock_now_ns();
    if (r->options.held_out < 0 && !r->options.validation_path_count) return QN_OK;
    int64_t batch = r->config.validation_batch ? r->config.validation_batch : r->config.batch;
    dlrm_telling telling = dlrm_telling_of(&r->options, "validating");
    if (!r->judge) QN_TRY(dlrm_judge_new(r->d, batch, &r->judge, error));
    qn_dataset *data;
    dlrm_feed *feed;
    dlrm_valid v;
    QN_TRY(dlrm_open_data(&r->config, &r->options, DATA_VALID, &data, error));
    QN_TRY(dlrm_feed_open(r->context, r->d, data, batch, 0, 0, 0, NULL, &feed, error));
    qn_status status = dlrm_judge_run(r->judge, feed, &telling, NULL, NULL, &v, error);
    dlrm_feed_close(feed);
    t->outside_ns += clock_now_ns() - begun;
    t->told_ns += clock_now_ns() - begun;
    if (status || !(v.metrics.count > 0)) return status;
    t->result->valid = v.metrics;
    t->result->base_entropy = v.base_entropy;
    t->result->oracle_auc = v.oracle_auc;
    t->result->oracle_loss = v.oracle_loss;
    t->result->constant = v.highest - v.lowest < CONSTANT_SPREAD;
    events_scalar(t->events, "LogLoss/valid", r->state.step, v.metrics.loss);
    if (!isnan(v.metrics.auc)) events_scalar(t->events, "AUC/valid", r->state.step, v.metrics.auc);
    qn_dlrm_progress p = progress_now(t);
    p.validated = true;
    p.valid = v.metrics;
    p.base_entropy = v.base_entropy;
    tell(t, p);
    return QN_OK;
}

/* A failure to save (a full disk) is told and does not end the run: the last good one is still there. That of the last save
 * is a failure of the run, which has done what is nowhere now. */
static void save(teller *t)
{
    run *r = t->r;
    qn_error error;
    int64_t begun = clock_now_ns();
    if (!r->options.out || !r->state.step || r->state.step == t->saved_step) return; /* of no step: nothing is learnt */
    qn_status status =
        dlrm_save(r->d, r->optimizer, &r->state, r->options.out, r->checkpoint, sizeof(r->checkpoint), &error);
    t->outside_ns += clock_now_ns() - begun;
    t->told_ns += clock_now_ns() - begun;
    t->saved_ns = clock_now_ns();
    if (!status) t->saved_step = r->state.step;
    t->result->unsaved = status != QN_OK;
    if (status)
        tell_note(t, true, "no checkpoint at step %lld: %s; training goes on, %s%s", (long long)r->state.step,
                  error.message, *r->checkpoint ? "the last good one is " : "and there is none yet", r->checkpoint);
    else
        tell_note(t, false, "checkpoint %s", r->checkpoint);
}

/* ---- the loop ---- */

static bool due(int64_t every_steps, double every_seconds, int64_t steps, int64_t since_ns)
{
    return every_steps > 0 ? steps >= every_steps : seconds(clock_now_ns() - since_ns) >= every_seconds;
}

static qn_status blame(teller *t, int64_t bad_step, qn_error *error)
{
    tell_note(t, true, "the loss of step %lld is not a number: looking for the operation that made it",
              (long long)bad_step);
    return run_blame(t->r, bad_step, error);
}

/* An error while rows were read: what was learnt so far is kept. */
static qn_status save_and_fail(teller *t, qn_status status, qn_error *error)
{
    int64_t bad;
    qn_error other;
    if (look(t, &bad, &other)) return status;
    save(t);
    size_t length = strlen(error->message);
    if (t->r->options.out && *t->r->checkpoint && length < sizeof(error->message))
        snprintf(error->message + length, sizeof(error->message) - length,
                 "\nthe run was saved at step %lld: %s; --resume goes on from there", (long long)t->saved_step,
                 t->r->checkpoint);
    return status;
}

/* rows: -1 of a log, which ended. */
static qn_status too_few(int64_t rows, int64_t batch, qn_error *error)
{
    char words[32] = "few";
    if (rows >= 0) snprintf(words, sizeof(words), "%lld", (long long)rows);
    return error_set(error, QN_BAD_CALL,
                     "the training data has %s rows, less than a batch of %lld: take a smaller one (--batch)", words,
                     (long long)batch);
}

static qn_status loop(teller *t, qn_error *error)
{
    run *r = t->r;
    const qn_dlrm_options *o = &r->options;
    qn_status status;
    for (int64_t bad, rows, epoch = r->state.place.epoch;;) {
        bool stop = o->stop && *o->stop, over = o->steps && r->state.step >= o->steps;
        if (!over && !stop) {
            status = run_feed(r, &rows, error);
            if (status) return save_and_fail(t, status, error);
            over = !rows;
        }
        if (over || stop) {
            t->result->stopped = stop;
            break;
        }
        int64_t of = r->feed->places[r->batch->number % FEED_RING].epoch;
        if (of != epoch) { /* the batch at hand is of the next epoch: this one is over */
            if ((status = look(t, &bad, error)))
                return status == QN_FINDING && bad >= 0 ? blame(t, bad, error) : status;
            if ((status = validate(t, error))) return save_and_fail(t, status, error);
            epoch = of;
        }
        QN_TRY(run_step(r, error));
        if (t->profile) qn_profile_step(t->profile);
        bool save_now =
            o->out && due(o->checkpoint_steps, CHECKPOINT_SECONDS, r->state.step - t->saved_step, t->saved_ns);
        if (!save_now && !due(o->report_steps, REPORT_SECONDS, r->state.step - t->told_step, t->told_ns)) continue;
        if ((status = look(t, &bad, error))) return status == QN_FINDING && bad >= 0 ? blame(t, bad, error) : status;
        if (save_now) save(t);
    }
    int64_t bad;
    if (!r->state.step && !t->result->stopped)
        return too_few(-1, r->config.batch, error); /* nothing to keep or to judge */
    if ((status = look(t, &bad, error))) return status == QN_FINDING && bad >= 0 ? blame(t, bad, error) : status;
    save(t);
    if (!t->result->stopped && (status = validate(t, error))) return save_and_fail(t, status, error);
    return QN_OK;
}

/* Steps of the whole run; -1: not known: logs are not read to their end for that alone. */
static qn_status count_steps(run *r, bool gathered, int64_t *total, qn_error *error)
{
    qn_dataset *data;
    int64_t rows = gathered ? r->metadata->rows : -1;
    QN_TRY(dlrm_open_data(&r->config, &r->options, DATA_TRAIN, &data, error));
    qn_status status = dataset_counted(data) ? qn_dataset_rows(data, &rows, error) : QN_OK;
    qn_dataset_close(data);
    *total = r->options.steps ? r->options.steps : -1;
    if (status || rows < 0) return status;
    int64_t batches = rows / r->config.batch;
    if (!batches) return too_few(rows, r->config.batch, error);
    if (r->config.batches_per_epoch) batches = MINIMUM(batches, r->config.batches_per_epoch);
    *total = batches * r->config.epochs;
    if (r->options.steps) *total = MINIMUM(*total, r->options.steps);
    return QN_OK;
}

/* What the end of the run needs is asked for before it begins: hours of training are not lost to a name. */
static qn_status look_ahead(run *r, qn_error *error)
{
    qn_dataset *data;
    if (r->options.out) QN_TRY(folder_open(r->options.out, error));
    if (!r->options.validation_path_count) return QN_OK;
    QN_TRY(dlrm_open_data(&r->config, &r->options, DATA_VALID, &data, error));
    qn_dataset_close(data);
    return QN_OK;
}

static qn_status begin_telling(teller *t, qn_error *error)
{
    run *r = t->r;
    t->scores = malloc(sizeof(float) * RECENT);
    t->labels = malloc(sizeof(float) * RECENT);
    if (!t->scores || !t->labels) return error_set(error, QN_NO_MEMORY, "no memory to keep predictions");
    t->loss = t->auc = t->rate = NAN;
    if (r->options.out) {
        qn_error why;
        char folder[2 * QN_DLRM_PATH];
        snprintf(folder, sizeof(folder), "%s/tensorboard", r->options.out);
        if (events_open(folder, &t->events, &why)) tell_note(t, true, "no event file: %s", why.message);
        char outputs[3 * QN_DLRM_PATH];
        snprintf(outputs, sizeof(outputs), "tensorboard=%s", folder);
        qn_profile_options p = {.wait = TRACE_WAIT,
                                .warmup = TRACE_WARMUP,
                                .active = TRACE_ACTIVE,
                                .repeat = 1,
                                .graph_nodes = true,
                                .outputs = outputs};
        if (r->options.trace && qn_profile_start(r->context, &p, &t->profile, &why)) {
            t->profile = NULL;
            tell_note(t, true, "no trace: %s", why.message);
        }
    }
    return QN_OK;
}

static void end_telling(teller *t)
{
    qn_error why;
    if (t->profile && qn_profile_stop(t->profile, &why)) tell_note(t, true, "no trace: %s", why.message);
    qn_profile_free(t->profile);
    if (events_close(t->events, &why)) tell_note(t, true, "%s", why.message);
    free(t->scores);
    free(t->labels);
}

static qn_status train(run *r, const char *from, qn_dlrm_result *result, qn_error *error)
{
    teller t = {.r = r, .result = result, .total = -1};
    int64_t begun = clock_now_ns();
    QN_TRY(look_ahead(r, error));
    bool gathered = false;
    if (!from) QN_TRY(dlrm_open_metadata(&r->config, &r->options, &r->metadata, &gathered, error));
    QN_TRY(count_steps(r, gathered, &t.total, error));
    dlrm_telling_of(&r->options, "compiling the step");
    QN_TRY(run_open(r, from, error));
    if (from) snprintf(r->checkpoint, sizeof(r->checkpoint), "%s", from);
    result->parameters = qn_model_count(r->d->root, true);
    t.begun_ns = t.told_ns = t.saved_ns = clock_now_ns();
    t.first_step = t.told_step = r->state.step;
    t.saved_step = from ? r->state.step : -1;
    result->compile_seconds = seconds(t.begun_ns - begun);
    qn_status status = begin_telling(&t, error);
    if (!status && from && r->damaged.message[0])
        tell_note(&t, true, "the newest checkpoint is left out: %s", r->damaged.message);
    if (!status && from)
        tell_note(&t, false, "going on from %s, step %lld: batches of %lld, %s, rate %g", from,
                  (long long)r->state.step, (long long)r->config.batch, qn_optimizer_name(r->config.optimizer),
                  r->config.rate);
    else if (!status)
        tell_note(&t, false, "%lld parameters, %.1f s to prepare", (long long)result->parameters,
                  result->compile_seconds);
    if (!status) status = loop(&t, error);
    result->steps = r->state.step;
    result->epochs = r->state.place.epoch + (r->state.step > 0);
    result->samples = (r->state.step - t.first_step) * r->config.batch;
    result->samples_per_second =
        (double)result->samples / fmax(seconds(clock_now_ns() - t.begun_ns - t.outside_ns), 1e-9);
    result->loss = t.loss;
    snprintf(result->checkpoint, sizeof(result->checkpoint), "%s", r->checkpoint);
    double unknown = 0;
    if (!status && r->tape) status = qn_tensor_item(r->unknown, &unknown, error);
    result->unknown_tokens = (int64_t)unknown;
    end_telling(&t);
    return status;
}

qn_status qn_dlrm_train(qn_context *context, const qn_dlrm_config *config, const qn_dlrm_options *options,
                        qn_dlrm_result *result, qn_error *error)
{
    HEAP_ENTER(error);
    if (!context || !config || !options || !result)
        return error_set(error, QN_BAD_CALL, "qn_dlrm_train: an argument is NULL");
    *result = (qn_dlrm_result){.loss = NAN, .oracle_auc = NAN, .oracle_loss = NAN};
    QN_TRY(qn_dlrm_config_check(config, error));
    run *r = heap_new(sizeof(*r));
    *r = (run){.context = context, .config = *config, .options = *options};
    qn_device_info info;
    qn_error none;
    bool of_config =
        !options->device && *config->device && !qn_device_find(context, config->device, &info, &none) && info.available;
    snprintf(r->device, sizeof(r->device), "%s",
             options->device ? options->device
             : of_config     ? config->device
                             : qn_device_best(context));
    char from[QN_DLRM_PATH];
    bool resumed =
        options->resume && options->out && dlrm_find_checkpoint(options->out, from, sizeof(from), &r->damaged);
    qn_status status = QN_OK;
    if (!resumed && r->damaged.message[0]) { /* to begin anew would write over what can perhaps be saved */
        status = error_set(error, QN_BAD_FILE,
                           "no checkpoint in %s can be opened: %s\n"
                           "remove it to begin anew, or name another folder with --out",
                           options->out, r->damaged.message);
    } else if (resumed) { /* shapes and rate are the checkpoint's; the data and how long, the caller says */
        dlrm_state state;
        qn_dlrm_config saved;
        status = dlrm_read_state(from, &saved, &state, error);
        saved.epochs = config->epochs;
        memcpy(saved.train_path, config->train_path, sizeof(saved.train_path));
        memcpy(saved.validation_path, config->validation_path, sizeof(saved.validation_path));
        if (!status) {
            r->config = saved;
            r->options.seed = state.seed;
        }
    }
    if (!status) status = train(r, resumed ? from : NULL, result, error);
    run_close(r);
    qn_metadata_free(r->metadata);
    heap_free(r);
    return status;
}
