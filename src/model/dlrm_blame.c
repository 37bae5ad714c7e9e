/*
 * What made a loss that is no number. In: a run and the number of its first bad step. Out: QN_FINDING with the step, the first
 * operation whose result is not finite, and the last good checkpoint.
 *
 * Runs are the same when they are repeated: a second one starts where the first did (the last checkpoint, or the seed),
 * goes to the step before, and then takes the bad step one operation at a time, looking at each result in the order of the
 * computation: parameters, inputs, forward, loss, gradients, updates. SPDX-License-Identifier: MIT
 */
#include "model/dlrm_train.h"

#include <math.h>
#include <string.h>

enum { MOST_SEEN = 128 };

typedef struct seen {
    struct {
        char name[96];
        qn_tensor value;
    } items[MOST_SEEN];
    int count;
} seen;

static void remember(void *user, const char *name, qn_tensor t)
{
    seen *s = user;
    if (s->count == MOST_SEEN) return;
    snprintf(s->items[s->count].name, sizeof(s->items[0].name), "%s", name);
    s->items[s->count++].value = t;
}

/* How many elements are not finite, and how many are NaN. */
static qn_status count_bad(qn_tensor t, double *nan, double *infinite, qn_error *error)
{
    qn_tensor a = qn_sum(qn_cast(qn_isnan(t), QN_I64), QN_ALL, false);
    qn_tensor b = qn_sum(qn_cast(qn_isinf(t), QN_I64), QN_ALL, false);
    QN_TRY(qn_tensor_item(a, nan, error));
    return qn_tensor_item(b, infinite, error);
}

/* The first of them with a bad element, as words; "": none. */
static qn_status first_bad(const seen *s, text *words, qn_error *error)
{
    for (int i = 0; i < s->count; i++) {
        double nan, infinite;
        if (!qn_tensor_valid(s->items[i].value)) continue;
        QN_TRY(count_bad(s->items[i].value, &nan, &infinite, error));
        if (nan + infinite == 0) continue;
        text_print(words, "%s: %.0f of %lld numbers are NaN, %.0f infinite", s->items[i].name, nan,
                   (long long)qn_tensor_count(s->items[i].value), infinite);
        return QN_OK;
    }
    return QN_OK;
}

static qn_status look_at_parameters(run *r, text *words, qn_error *error)
{
    qn_parameter all[MOST_SEEN];
    seen s = {0};
    int count = MINIMUM(qn_model_list(r->d->root, all, MOST_SEEN), MOST_SEEN);
    for (int i = 0; i < count; i++)
        if (all[i].trained) remember(&s, all[i].path, all[i].value);
    QN_TRY(first_bad(&s, words, error));
    if (words->length)
        text_print(words, ", after the update of step %lld at a rate of %g: take a smaller one (--rate)",
                   (long long)r->state.step, r->config.rate);
    return QN_OK;
}

static qn_status look_at_step(run *r, text *words, qn_error *error)
{
    seen s = {0};
    qn_tape_set_mode(r->tape, QN_EAGER);
    remember(&s, "the labels", r->inputs[RUN_LABELS]);
    qn_tensor logits = dlrm_logits(r->d, r->inputs[RUN_COUNTS], r->inputs[RUN_TOKENS], remember, &s);
    qn_tensor loss = qn_bce_with_logits(logits, r->inputs[RUN_LABELS], QN_MEAN);
    remember(&s, "the loss (bce_with_logits)", loss);
    return first_bad(&s, words, error);
}

/* The run again, up to the step before the bad one. */
static qn_status repeat(run *r, int64_t bad_step, text *words, qn_error *error)
{
    char from[QN_DLRM_PATH];
    bool saved = *r->checkpoint != 0;
    snprintf(from, sizeof(from), "%s", r->checkpoint);
    if (!saved && !r->metadata) return QN_OK;
    run_close(r);
    QN_TRY(run_open(r, saved ? from : NULL, error));
    int64_t rows = 1;
    while (r->state.step < bad_step - 1 && rows) {
        QN_TRY(run_feed(r, &rows, error));
        if (rows) QN_TRY(run_step(r, error));
    }
    if (rows) QN_TRY(run_feed(r, &rows, error));
    if (!rows) return QN_OK;
    QN_TRY(look_at_parameters(r, words, error));
    return words->length ? QN_OK : look_at_step(r, words, error);
}

qn_status run_blame(run *r, int64_t bad_step, qn_error *error)
{
    text words = {0};
    qn_error why = {0};
    char last[QN_DLRM_PATH];
    snprintf(last, sizeof(last), "%s", r->checkpoint);
    qn_status status = repeat(r, bad_step, &words, &why);
    if (status) text_print(&words, "not found, since the run could not be repeated: %s", why.message);
    if (!words.length) text_add(&words, "not found: repeated step by step, every result is finite");
    error_set(error, QN_FINDING, "the loss of step %lld is not a number. First: %s.\n%s%s", (long long)bad_step,
              text_get(&words), *last ? "The last good checkpoint is " : "There is no checkpoint to go back to (--out)",
              last);
    text_free(&words);
    snprintf(r->checkpoint, sizeof(r->checkpoint), "%s", last);
    return QN_FINDING;
}
