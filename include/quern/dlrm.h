/*
 * DLRM, a recommender: counts through a perceptron, categories through tables, their interaction through another, one
 * logit. Its configuration as JSON, training with checkpoints, evaluation, prediction, ONNX. docs/train.md is the guide.
 *
 * Example (a small one, trained on made rows for a moment):
 *     qn_error error;
 *     qn_context *context;
 *     qn_dlrm_result result;
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     qn_dlrm_config config = qn_dlrm_defaults();
 *     config.batch = 128;
 *     qn_dlrm_options options = {};
 *     options.device = "cpu";
 *     options.made_rows = 4000;
 *     options.steps = 5;
 *     if (qn_dlrm_train(context, &config, &options, &result, &error)) { fprintf(stderr, "%s\n", error.message); return 1; }
 *     if (result.steps != 5) return 1;
 *     qn_context_close(context);
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DLRM_H
#define QUERN_DLRM_H

#include <quern/data.h>
#include <quern/metrics.h>
#include <quern/model.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QN_DLRM_LAYERS 16
#define QN_DLRM_PATH 1024

/* What becomes of the dense vector and the looked up rows, together E (F + 1) numbers c. */
typedef enum qn_interaction {
    QN_INTERACT_DOT,   /* Meta's: the dense vector and the products of all pairs of rows */
    QN_INTERACT_OUTER, /* the talk's: every number of c with every number of c */
    QN_INTERACT_CAT    /* c itself */
} qn_interaction;
/* From a token to a row of its table. */
typedef enum qn_index_map {
    QN_MAP_EXACT,  /* each token of the metadata has its own; all others share one more, and are counted */
    QN_MAP_MODULUS /* (token + 1) mod cardinality: no list of tokens, but different tokens meet */
} qn_index_map;

typedef struct qn_dlrm_config {
    int dense_count, sparse_count;
    int64_t width; /* of the rows of tables, and of the dense vector */
    int64_t dense_hidden[QN_DLRM_LAYERS], prediction_hidden[QN_DLRM_LAYERS];
    int dense_hidden_count, prediction_hidden_count;
    qn_interaction interaction;
    qn_index_map map;
    qn_dtype table_type;    /* f32 or bf16 */
    double table_deviation; /* of the tables at first; 0: 1 / sqrt(3 rows), as Meta's; the talk has 1 */
    qn_optimizer_kind optimizer;
    double rate;
    int64_t epochs, batch, validation_batch;
    int64_t batches_per_epoch; /* at most; 0: all */
    char train_path[QN_DLRM_PATH], validation_path[QN_DLRM_PATH], metadata_path[QN_DLRM_PATH];
    char model_path[QN_DLRM_PATH], tensorboard_path[QN_DLRM_PATH], device[64];
} qn_dlrm_config;

/* Criteo's columns, 13-64-16 and 64-32-1, dot, exact, Adagrad, batches of 2048, one epoch. */
QN_API qn_dlrm_config qn_dlrm_defaults(void);
/* JSON with the talk's keys and those of docs/train.md; keys that are not there keep what *config has. A key that is not
 * known is an error with a suggestion. "small", "main" and "meta" are configurations that the library has. */
QN_API QN_MUST_CHECK qn_status qn_dlrm_config_read(const char *path, qn_dlrm_config *config, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_dlrm_config_parse(const char *name, const char *words, qn_dlrm_config *config,
                                                    qn_error *error);
QN_API char *qn_dlrm_config_text(const qn_dlrm_config *config); /* JSON, malloc'd */
QN_API QN_MUST_CHECK qn_status qn_dlrm_config_check(const qn_dlrm_config *config, qn_error *error);
QN_API bool qn_interaction_from_name(const char *name, qn_interaction *out);
QN_API const char *qn_interaction_name(qn_interaction interaction);
QN_API bool qn_optimizer_from_name(const char *name, qn_optimizer_kind *out); /* "sgd", ..., "row_adagrad" */
QN_API const char *qn_optimizer_name(qn_optimizer_kind kind);

/* ---- the model ---- */

typedef struct qn_dlrm qn_dlrm;

/* Facts of columns come from the metadata, which is not needed any more when the call returns. */
QN_API QN_MUST_CHECK qn_status qn_dlrm_new(qn_tape *tape, const qn_dlrm_config *config, const qn_metadata *metadata,
                                           uint64_t seed, qn_dlrm **model, qn_error *error);
/* From a checkpoint file or a folder of them (the last one); config (may be NULL) is what it was trained with. */
QN_API QN_MUST_CHECK qn_status qn_dlrm_open(qn_tape *tape, const char *checkpoint, qn_dlrm_config *config,
                                            qn_dlrm **model, qn_error *error);
QN_API void qn_dlrm_free(qn_dlrm *model); /* before its tape; NULL is fine */
QN_API qn_model *qn_dlrm_model(qn_dlrm *model);
QN_API int64_t qn_dlrm_dense_columns(const qn_dlrm *model); /* dense_count, and zeros to a multiple of 4 */
/* counts f32 [B][dense columns] as they are in the data, NaN where one is missing; tokens i64 [B][sparse count]. Logits
 * f32 [B]. */
QN_API qn_tensor qn_dlrm_logits(qn_dlrm *model, qn_tensor counts, qn_tensor tokens);
QN_API qn_tensor qn_dlrm_rows(qn_dlrm *model, qn_tensor tokens); /* i64 [B][sparse count]: rows of all tables as one */

/* ---- training ---- */

/* What a run tells while it goes on. */
typedef struct qn_dlrm_progress {
    int64_t step, steps;                  /* taken; of the whole run, -1: not known */
    int64_t epoch, samples;               /* samples: of this process */
    double seconds;                       /* of this process, without compiling */
    double samples_per_second, loss, auc; /* lately; NAN: not known yet */
    double eta_seconds;                   /* NAN: not known */
    bool validated;                       /* this is about held-out data: what follows, too */
    qn_metrics valid;
    double base_entropy; /* log-loss of the share of clicks as a constant prediction */
    const char *note;    /* a line to be shown: a checkpoint, a warning; or NULL */
    bool warning;
    const char *doing; /* what goes on while no steps are taken: "compiling the step"; or NULL */
    double done;       /* its share; NAN: not known */
} qn_dlrm_progress;

typedef struct qn_dlrm_options {
    const char *device;       /* NULL: the configuration's, or the best one */
    const char *const *paths; /* files of training data; none: the configuration's, if it has a path, or made rows */
    int path_count;
    const char *const *validation_paths; /* none: the configuration's, or rows held out of the training data */
    int validation_path_count;
    double held_out;      /* the share of rows; 0: 0.1 where there is no validation data; negative: none */
    int64_t made_rows;    /* 0: a million */
    int64_t made_limit;   /* of cardinalities of made rows; 0: 10,000 */
    const char *metadata; /* a file; NULL: the configuration's, if it exists, or gathered from the training data */
    int64_t steps;        /* the run ends after so many, in all; 0: by epochs */
    uint64_t seed;
    const char *out;          /* a folder for checkpoints and event files; NULL: none are written */
    bool resume;              /* from the last checkpoint in `out`, if there is any */
    int64_t checkpoint_steps; /* 0: by time, every 60 s */
    int64_t report_steps;     /* 0: by time, twice a second */
    bool trace;               /* a few steps are profiled, the timeline beside the event files */
    bool no_shuffle;
    const volatile int *stop; /* not 0: the run saves and ends, after the step it is at */
    void (*progress)(void *user, const qn_dlrm_progress *progress);
    void *user;
} qn_dlrm_options;

typedef struct qn_dlrm_result {
    int64_t steps, epochs, samples, unknown_tokens; /* steps: in all, those before a resumed run too */
    double loss;                                    /* of training, lately */
    double samples_per_second;
    qn_metrics valid; /* at the end; count 0: there was no validation */
    double base_entropy;
    double oracle_auc, oracle_loss; /* of the true probabilities of made rows, on the validation data; else NAN */
    bool stopped;                   /* by options.stop */
    bool constant;                  /* predictions do not differ: it did not learn */
    char checkpoint[QN_DLRM_PATH];  /* the last one; "": none */
    bool unsaved;                   /* the last save failed, and with it the steps after `checkpoint` are lost */
    int64_t parameters;
    double compile_seconds;
} qn_dlrm_result;

/* QN_FINDING: the loss became NaN; the message tells the step, the first operation and the last good checkpoint. Errors in
 * the data end the run after a checkpoint; what was reached is in *result. */
QN_API QN_MUST_CHECK qn_status qn_dlrm_train(qn_context *context, const qn_dlrm_config *config,
                                             const qn_dlrm_options *options, qn_dlrm_result *result, qn_error *error);

/* ---- using it ---- */

/* Log-loss and AUC on data; of options: device, paths, made_rows, made_limit, held_out (only those rows), seed, stop,
 * progress (`doing` and `done` alone). */
QN_API QN_MUST_CHECK qn_status qn_dlrm_eval(qn_context *context, const char *checkpoint, const qn_dlrm_options *options,
                                            qn_dlrm_result *result, qn_error *error);
/* The probability of a click of each row, in the order of the files; take is called with one batch after the other. */
typedef bool qn_dlrm_take(void *user, const float *probabilities, int64_t count);
QN_API QN_MUST_CHECK qn_status qn_dlrm_predict(qn_context *context, const char *checkpoint,
                                               const qn_dlrm_options *options, qn_dlrm_take *take, void *user,
                                               qn_error *error);

/* As ONNX, opset 17: counts [N][dense] (NaN: missing) and tokens [N][sparse] to probability [N]. Large tensors go to
 * PATH.data. */
QN_API QN_MUST_CHECK qn_status qn_dlrm_export(const char *checkpoint, const char *path, qn_error *error);

#ifdef __cplusplus
}
#endif
#endif
