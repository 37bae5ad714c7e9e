/*
 * DLRM inside: dlrm.c builds the model, dlrm_config.c reads its configuration, dlrm_data.c feeds it, dlrm_save.c keeps
 * checkpoints, dlrm_train.c is the loop, dlrm_blame.c finds what made a NaN, dlrm_use.c evaluates and predicts.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_MODEL_DLRM_H
#define QUERN_MODEL_DLRM_H

#include "model/model.h"

#include <quern/dlrm.h>
#include <quern/loader.h>

struct qn_dlrm {
    qn_dlrm_config config;
    qn_tape *tape;
    qn_module *module;
    qn_model *root;
    qn_model *dense, *prediction; /* their layers are children */
    qn_tensor mean, scale;        /* of log-counts, [dense columns] */
    qn_tensor missing;            /* what stands for a missing one, [dense columns] */
    qn_tensor sizes, firsts;      /* i64 [F]: cardinalities; the first row of each table (modulus) or token (exact) */
    qn_tensor tokens;             /* i64: of all tables; exact */
    qn_tensor table;              /* [rows of all tables][width] */
    int64_t dense_columns, row_count;
    const char *interact;
};

/* A tensor of the model with its name, as the forward makes them one after the other. */
typedef void dlrm_seen(void *user, const char *name, qn_tensor t);
qn_tensor dlrm_logits(qn_dlrm *d, qn_tensor counts, qn_tensor tokens, dlrm_seen *seen, void *user);
qn_tensor dlrm_unknown_rows(qn_dlrm *d, qn_tensor tokens); /* the same of each row of the batch */
qn_tensor dlrm_unknown(qn_dlrm *d, qn_tensor tokens);      /* i64, rank 0: tokens that no row is for; empty: modulus */
qn_optimizer *dlrm_optimizer(qn_dlrm *d);

/* dlrm_data.c: rows of a data set as batches of one size, made ahead of time. */
enum { FEED_RING = 64 };
typedef struct dlrm_place {
    qn_position after;       /* a batch: where the data set stood */
    int64_t epoch, in_epoch; /* that the batch is of; batches of it so far */
} dlrm_place;
typedef struct dlrm_feed {
    qn_dataset *data;
    qn_loader *loader;
    int64_t batch, dense_count, sparse_count, dense_columns;
    int64_t rows;                       /* of an epoch; -1: not known before they were read */
    int64_t epoch_batches, epoch_count; /* the most of an epoch (0: all); epochs */
    int64_t epoch, in_epoch;            /* where the thread is */
    float *narrow;                      /* counts as the data set has them */
    bool probabilities, over;           /* over: no epoch is left */
    dlrm_place places[FEED_RING];       /* by the number of the batch */
} dlrm_feed;
enum { FEED_LABELS, FEED_COUNTS, FEED_TOKENS, FEED_TRUE, FEED_FIELDS };
/* Takes the data set over, whatever it returns. first: the number of the first batch; at: where the data set was put, NULL:
 * at its beginning. */
qn_status dlrm_feed_open(qn_context *context, const qn_dlrm *d, qn_dataset *data, int64_t batch, int64_t first,
                         int64_t epoch_batches, int64_t epoch_count, const dlrm_place *at, dlrm_feed **out,
                         qn_error *error);
void dlrm_feed_close(dlrm_feed *feed); /* NULL is fine */
/* The data that the options ask for. held_out: the rows of it that are not trained on. */
typedef enum dlrm_purpose { DATA_TRAIN, DATA_SURVEY, DATA_VALID } dlrm_purpose; /* survey: the rows of training, once */
qn_status dlrm_open_data(const qn_dlrm_config *config, const qn_dlrm_options *options, dlrm_purpose purpose,
                         qn_dataset **out, qn_error *error);
/* Tells how many rows something has gone through, now and then. `dlrm_tell_rows` is a qn_data_progress with this as `user`;
 * false: the run is to stop. */
typedef struct dlrm_telling {
    const qn_dlrm_options *options;
    const char *doing;
    int64_t begun_ns, told_ns;
} dlrm_telling;
dlrm_telling dlrm_telling_of(const qn_dlrm_options *options, const char *doing); /* told at once, then twice a second */
bool dlrm_tell_rows(void *telling, int64_t rows, int64_t rows_of_all);
/* Of the rows of training (*gathered), or of a file. */
qn_status dlrm_open_metadata(const qn_dlrm_config *config, const qn_dlrm_options *options, qn_metadata **out,
                             bool *gathered, qn_error *error);

/* dlrm_save.c */
typedef struct dlrm_state {
    int64_t step;
    dlrm_place place;
    uint64_t seed;
} dlrm_state;
qn_status dlrm_save(qn_dlrm *d, qn_optimizer *optimizer, const dlrm_state *state, const char *folder, char *path,
                    size_t path_size, qn_error *error);
/* The newest checkpoint of a folder that can be opened, or the file itself; false: there is none. *damaged: what is wrong
 * with the newest one where it is left out; its message is empty otherwise. */
bool dlrm_find_checkpoint(const char *place, char *path, size_t size, qn_error *damaged);
/* The same where one is needed. */
qn_status dlrm_need_checkpoint(const char *place, char *path, size_t size, qn_error *error);
/* Of a checkpoint: the configuration and the state; not its tensors. */
qn_status dlrm_read_state(const char *path, qn_dlrm_config *config, dlrm_state *state, qn_error *error);
/* A model of the shape that the checkpoint has, without its values. */
qn_status dlrm_new_like(qn_tape *tape, const char *path, const qn_dlrm_config *config, uint64_t seed, qn_dlrm **out,
                        qn_error *error);

/* dlrm_use.c: the model on all rows of a feed. */
typedef struct dlrm_valid {
    qn_metrics metrics;
    double base_entropy, oracle_auc, oracle_loss, lowest, highest; /* of the probabilities */
    int64_t unknown_tokens;
} dlrm_valid;
typedef struct dlrm_judge dlrm_judge;
qn_status dlrm_judge_new(qn_dlrm *d, int64_t batch, dlrm_judge **out, qn_error *error);
void dlrm_judge_free(dlrm_judge *j);
qn_status dlrm_judge_run(dlrm_judge *j, dlrm_feed *feed, dlrm_telling *telling, qn_dlrm_take *take, void *user,
                         dlrm_valid *out, qn_error *error);
#endif
