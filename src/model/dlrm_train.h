/*
 * A training run inside: dlrm_train.c opens it, steps and tells; dlrm_blame.c opens it a second time to find what made a NaN.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_MODEL_DLRM_TRAIN_H
#define QUERN_MODEL_DLRM_TRAIN_H

#include "data/tensorboard.h"
#include "model/dlrm.h"

#include <quern/profile.h>

enum { RUN_LABELS, RUN_COUNTS, RUN_TOKENS, RUN_INPUTS };

typedef struct run {
    qn_context *context;
    qn_dlrm_config config;
    qn_dlrm_options options;
    char device[64];
    qn_metadata *metadata; /* NULL: the run began from a checkpoint */
    qn_tape *tape;
    qn_dlrm *d;
    qn_optimizer *optimizer;
    dlrm_feed *feed;
    dlrm_judge *judge;
    qn_tensor inputs[RUN_INPUTS], logits;
    qn_tensor loss_sum; /* f64: since it was read last */
    qn_tensor bad_step; /* f64: the first whose loss was not finite; -1: none */
    qn_tensor unknown;  /* i64: tokens that had no row */
    qn_plan *plan;
    dlrm_state state;
    const qn_loaded *batch;                             /* that was fed last */
    float *labels;                                      /* of the last step */
    char start[QN_DLRM_PATH], checkpoint[QN_DLRM_PATH]; /* where it began, the last one that was written; "": none */
    qn_error damaged; /* why the newest checkpoint of the folder is left out; or no message */
} run;

/* From a checkpoint, or (path NULL) from the seed. The rest of *r is zero but context, config, options and device. */
qn_status run_open(run *r, const char *path, qn_error *error);
void run_close(run *r); /* all but the metadata */
/* The next batch into the inputs; *rows 0: the data ends. */
qn_status run_feed(run *r, int64_t *rows, qn_error *error);
qn_status run_step(run *r, qn_error *error); /* the recorded step on it */

/* dlrm_blame.c: QN_FINDING, with all that can be said about the step. Closes the run and opens another. */
qn_status run_blame(run *r, int64_t bad_step, qn_error *error);

#endif
