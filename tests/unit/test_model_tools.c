/*
 * What stands around a model: tensors printed and compared, batches made ahead of time, metrics on host and device.
 * SPDX-License-Identifier: MIT
 */
#include <quern/loader.h>
#include <quern/metrics.h>
#include <quern/model.h>

#include "tensor.h"

#include <pthread.h>
#include <time.h>

#include <quern/sites.h>

/* ---- printing ---- */

static void expect_text(qn_tensor t, const qn_print_options *options, const char *expected, int line)
{
    qn_error error;
    char *words = NULL;
    if (qn_tensor_text(t, options, &words, &error))
        test_fail(__FILE__, line, error.message);
    else
        test_text(words, expected, __FILE__, line);
    free(words);
}
#define EXPECT_PRINTED(t, options, expected) expect_text((t), (options), (expected), __LINE__)

TEST(tensors_are_printed)
{
    tape_open();
    EXPECT_PRINTED(F32(QN_SHAPE(2, 3), 1, 2.5, -3, 4, 5.25, 6), NULL,
                   "[[ 1.    2.5  -3.  ]\n [ 4.    5.25  6.  ]]\nf32 [2, 3]\n");
    EXPECT_PRINTED(F32(QN_SHAPE(2), 1, 1e-6), NULL, "[1.0000e+00 1.0000e-06]\nf32 [2]\n");
    EXPECT_PRINTED(F32(QN_SHAPE(3), 1.0 / 3, NAN, -INFINITY), NULL, "[0.3333    nan   -inf]\nf32 [3]\n");
    EXPECT_PRINTED(F32(QN_SHAPE(1), 1.0 / 3), &(qn_print_options){.precision = 7}, "[0.3333333]\nf32 [1]\n");
    EXPECT_PRINTED(I64(QN_SHAPE(2, 2), 1, -20, 300, 4), NULL, "[[  1 -20]\n [300   4]]\ni64 [2, 2]\n");
    EXPECT_PRINTED(qn_gt_scalar(F32(QN_SHAPE(2), 1, -1), 0), NULL, "[ true false]\nbool [2]\n");
    EXPECT_PRINTED(qn_scalar(tape, QN_F64, 0.5), NULL, "0.5\nf64 []\n");
    EXPECT_PRINTED(qn_zeros(tape, QN_F32, QN_SHAPE(0, 3)), NULL, "[]\nf32 [0, 3]\n");
    EXPECT_PRINTED(qn_bitcast(I64(QN_SHAPE(1), -1), QN_U64), NULL, "[18446744073709551615]\nu64 [1]\n");
    EXPECT_PRINTED(TENSOR(QN_BF16, QN_SHAPE(2), 1, 1.5), NULL, "[1.  1.5]\nbf16 [2]\n");
    EXPECT_PRINTED(qn_reshape(qn_arange(tape, QN_I32, 0, 8, 1), QN_SHAPE(2, 2, 2)), NULL,
                   "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]\ni32 [2, 2, 2]\n");
    EXPECT_PRINTED(qn_arange(tape, QN_I32, 0, 2000, 1), NULL, "[   0    1    2 ... 1997 1998 1999]\ni32 [2000]\n");
    EXPECT_PRINTED(qn_reshape(qn_arange(tape, QN_I32, 0, 100, 1), QN_SHAPE(10, 10)),
                   (&(qn_print_options){.threshold = 10, .edge = 1}),
                   "[[ 0 ...  9]\n ...\n [90 ... 99]]\ni32 [10, 10]\n");
    EXPECT_PRINTED(qn_arange(tape, QN_I32, 0, 7, 1), &(qn_print_options){.width = 8}, "[0 1 2 3\n 4 5 6]\ni32 [7]\n");
    qn_error error;
    char *words;
    EXPECT(qn_tensor_text(QN_NONE, NULL, &words, &error) == QN_BAD_CALL && !words);
    tape_close();
}

/* ---- comparing ---- */

TEST(tensors_are_compared)
{
    tape_open();
    qn_error error;
    qn_comparison c;
    qn_tensor a = F32(QN_SHAPE(2, 2), 1, 2, 3, 4), b = F32(QN_SHAPE(2, 2), 1, 2, 3.5, 4);
    EXPECT(!qn_tensor_compare(a, a, 0, 0, &c, &error));
    EXPECT(c.count == 4 && c.beyond == 0 && c.absolute == 0 && c.worst_ulp == 0);
    EXPECT(!qn_tensor_compare(a, b, 1e-3, 1e-3, &c, &error));
    EXPECT(c.beyond == 1 && c.worst[0] == 1 && c.worst[1] == 0 && c.a == 3 && c.b == 3.5 && c.absolute == 0.5);
    EXPECT_NEAR(c.relative, 1.0 / 7, 1e-12);
    EXPECT_NEAR(c.worst_ulp, 0.5 / 0x1p-22, 0);
    char *words = qn_comparison_text(&c);
    EXPECT_TEXT(
        words,
        "1 of 4 elements differ beyond the tolerance; worst [1, 0]: 3 and 3.5, apart 0.5, relative 0.143, 2.1e+06 ulp");
    free(words);
    /* one ulp; the narrower type counts */
    EXPECT(!qn_tensor_compare(F32(QN_SHAPE(1), 1 + 0x1p-23), F32(QN_SHAPE(1), 1), 1e-5, 0, &c, &error));
    EXPECT(c.beyond == 0 && c.worst_ulp == 1);
    EXPECT(
        !qn_tensor_compare(TENSOR(QN_BF16, QN_SHAPE(1), 1.0078125), TENSOR(QN_F64, QN_SHAPE(1), 1), 0, 0, &c, &error));
    EXPECT(c.beyond == 1 && c.worst_ulp == 1);
    qn_tensor odd = F32(QN_SHAPE(4), NAN, INFINITY, INFINITY, 1),
              even = F32(QN_SHAPE(4), NAN, INFINITY, -INFINITY, NAN);
    EXPECT(!qn_tensor_compare(odd, even, 1, 1, &c, &error));
    EXPECT(c.beyond == 2 && c.nan_mismatches == 1 && c.infinity_mismatches == 1 && c.worst[0] == 2);
    /* integers that are one double */
    EXPECT(!qn_tensor_compare(I64(QN_SHAPE(1), 9007199254740992.0),
                              qn_add_scalar(I64(QN_SHAPE(1), 9007199254740992.0), 1), 0, 0, &c, &error));
    EXPECT(c.beyond == 1 && c.absolute == 1 && isnan(c.worst_ulp));
    EXPECT(qn_tensor_compare(a, F32(QN_SHAPE(4), 1, 2, 3, 4), 0, 0, &c, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "the shapes differ"));
    EXPECT(
        !qn_tensor_compare(qn_zeros(tape, QN_F32, QN_SHAPE(0)), qn_zeros(tape, QN_F32, QN_SHAPE(0)), 0, 0, &c, &error));
    EXPECT(c.count == 0 && c.beyond == 0);
    tape_close();
}

/* ---- batches ---- */

typedef struct source {
    int64_t length, fails_at;
    int delay_us;
    _Atomic int calls, running, most;
} source;

static qn_status fill(qn_loaded *batch, void *user, qn_error *error)
{
    source *s = user;
    int now = ++s->running;
    if (now > s->most) s->most = now;
    s->calls++;
    /* the later of two neighbours is ready first */
    struct timespec wait = {0, s->delay_us * 1000L * (batch->number % 2 ? 1 : 3)};
    if (s->delay_us) nanosleep(&wait, NULL);
    s->running--;
    if (batch->number == s->fails_at)
        return error_set(error, QN_BAD_FILE, "batch %lld is broken", (long long)batch->number);
    if (batch->number >= s->length) return QN_OK;
    float *x = batch->fields[0];
    int64_t *y = batch->fields[1];
    for (int i = 0; i < 4; i++) x[i] = (float)(batch->number * 4 + i);
    y[0] = batch->number;
    batch->rows = 4;
    return QN_OK;
}

static qn_loader_options options_of(source *s, int threads)
{
    return (qn_loader_options){.fields = {{QN_F32, {1, {4}}}, {QN_I64, {1, {1}}}},
                               .field_count = 2,
                               .fill = fill,
                               .user = s,
                               .threads = threads};
}

TEST(batches_come_in_order)
{
    qn_error error;
    tape_open();
    for (int threads = 0; threads <= 4; threads += 2) {
        source s = {.length = 40, .fails_at = -1, .delay_us = 200};
        qn_loader_options options = options_of(&s, threads);
        qn_loader *loader = NULL;
        EXPECT(!qn_loader_new(tensor_context, &options, &loader, &error));
        qn_tensor tensors[2] = {qn_empty(tape, QN_F32, QN_SHAPE(4)), qn_empty(tape, QN_I64, QN_SHAPE(1))};
        int64_t rows, seen = 0;
        for (;; seen++) {
            double x[4] = {0}, y = -1;
            EXPECT(qn_loader_position(loader) == seen);
            EXPECT(!qn_loader_feed(loader, tensors, &rows, &error));
            if (!rows) break;
            tensor_values(tensors[0], x, 4);
            tensor_values(tensors[1], &y, 1);
            EXPECT(rows == 4 && x[3] == (double)(seen * 4 + 3) && y == (double)seen);
        }
        EXPECT(seen == 40 && !qn_loader_feed(loader, tensors, &rows, &error) && rows == 0);
        EXPECT(s.most <= (threads ? threads : 1) && s.calls <= 40 + (threads ? threads : 1) + 2);
        EXPECT(qn_loader_statistics(loader).batches == 40);
        qn_loader_free(loader);
    }
    tape_close();
}

TEST(loaders_are_bounded_resume_and_stop)
{
    qn_error error;
    const qn_loaded *batch;
    tape_open();
    source s = {.length = 1000000, .fails_at = -1};
    qn_loader_options options = options_of(&s, 3);
    options.slots = 5;
    options.first = 17;
    qn_loader *loader = NULL;
    EXPECT(!qn_loader_new(tensor_context, &options, &loader, &error));
    EXPECT(!qn_loader_next(loader, &batch, &error) && batch->number == 17);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    EXPECT(s.calls <= 5); /* the one in hand, and four ahead */
    EXPECT(!qn_loader_next(loader, &batch, &error) && batch->number == 18);
    qn_loader_free(loader); /* in the middle of it all */
    qn_loader_free(NULL);
    tape_close();
}

TEST(errors_come_at_their_place)
{
    qn_error error;
    const qn_loaded *batch;
    tape_open();
    source s = {.length = 100, .fails_at = 6, .delay_us = 100};
    qn_loader_options options = options_of(&s, 4);
    qn_loader *loader = NULL;
    EXPECT(!qn_loader_new(tensor_context, &options, &loader, &error));
    for (int i = 0; i < 6; i++) EXPECT(!qn_loader_next(loader, &batch, &error) && batch->number == i);
    for (int i = 0; i < 2; i++) {
        EXPECT(qn_loader_next(loader, &batch, &error) == QN_BAD_FILE);
        EXPECT_TEXT(error.message, "batch 6 is broken");
    }
    qn_loader_free(loader);
    loader = NULL;
    options = options_of(&s, 0);
    options.fields[1].type = QN_F8E4M3; /* the last type there is, and none */
    EXPECT(!qn_loader_new(tensor_context, &options, &loader, &error));
    qn_loader_free(loader);
    loader = NULL;
    options.fields[1].type = (qn_dtype)(QN_F8E4M3 + 1);
    EXPECT(qn_loader_new(tensor_context, &options, &loader, &error) == QN_BAD_CALL && !loader);
    EXPECT_TEXT(error.message, "qn_loader_new: field 1 has no type or shape");
    options.fill = NULL;
    EXPECT(qn_loader_new(tensor_context, &options, &loader, &error) == QN_BAD_CALL && !loader);
    tape_close();
}

/* ---- metrics ---- */

TEST(metrics_on_the_host)
{
    /* scikit-learn: roc_auc_score 0.75; with ties 0.6875 */
    const float scores[4] = {0.1f, 0.4f, 0.35f, 0.8f}, labels[4] = {0, 0, 1, 1};
    EXPECT_NEAR(qn_auc(scores, labels, 4), 0.75, 1e-12);
    const float tied[6] = {0.5f, 0.5f, 0.2f, 0.9f, 0.2f, 0.7f}, of[6] = {1, 0, 0, 1, 1, 0};
    EXPECT_NEAR(qn_auc(tied, of, 6), (0.5 + 1 + 3 + 0 + 0.5 + 0 + 0) / 9, 1e-12);
    EXPECT(isnan(qn_auc(scores, (const float[4]){1, 1, 1, 1}, 4)) && isnan(qn_auc(NULL, NULL, 0)));
    EXPECT(isnan(qn_auc((const float[2]){NAN, 1}, labels + 1, 2)));
    EXPECT_NEAR(qn_log_loss((const float[2]){0.9f, 0.2f}, (const float[2]){1, 0}, 2), -(log(0.9) + log(0.8)) / 2, 1e-7);
    EXPECT_NEAR(qn_log_loss((const float[1]){0}, (const float[1]){1}, 1), -log(1e-7), 1e-9);
}

static void meter_on(const char *device)
{
    qn_error error;
    EXPECT(!qn_tape_new(tensor_context, device, &tape, &error));
    enum { N = 512, BATCHES = 3 };
    static float logits[BATCHES][N], labels[BATCHES][N], all[BATCHES * N];
    uint64_t state = 88172645463325252u;
    double loss = 0, right = 0;
    for (int b = 0; b < BATCHES; b++)
        for (int i = 0; i < N; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            labels[b][i] = state % 3 == 0;
            logits[b][i] = (float)((double)(state >> 20 & 0xffff) / 0x1p15 - 1) * 2 + labels[b][i];
            double p = 1 / (1 + exp(-logits[b][i]));
            loss -= labels[b][i] ? log(p) : log1p(-p);
            right += (logits[b][i] > 0) == (labels[b][i] > 0);
            all[b * N + i] = (float)p;
        }
    qn_meter *meter = qn_meter_new(tape, 0);
    qn_tensor x = qn_empty(tape, QN_F32, QN_SHAPE(N, 1)), y = qn_empty(tape, QN_F32, QN_SHAPE(N));
    qn_plan *plan = NULL;
    EXPECT(!qn_capture_begin(tape, &error));
    qn_meter_update(meter, x, y, QN_NONE);
    EXPECT(!qn_eval(tape, NULL, 0, &error) && !qn_capture_end(tape, &plan, &error));
    qn_metrics m;
    for (int again = 0; again < 2; again++) {
        EXPECT(!qn_meter_reset(meter, &error));
        for (int b = 0; b < BATCHES; b++) {
            EXPECT(!qn_tensor_write(x, logits[b], sizeof(logits[b]), &error) &&
                   !qn_tensor_write(y, labels[b], sizeof(labels[b]), &error) && !qn_plan_replay(plan, &error));
        }
        EXPECT(!qn_meter_read(meter, &m, &error));
        EXPECT(m.count == BATCHES * N);
        EXPECT_NEAR(m.loss, loss / m.count, 1e-6);
        EXPECT_NEAR(m.accuracy, right / m.count, 1e-12);
        double exact = qn_auc(all, labels[0], BATCHES * N);
        EXPECT_NEAR(m.auc, exact, m.auc_error + 1e-7);
        EXPECT(m.auc_error < 1e-3 && m.auc > 0.6 && m.positives > 0.2 && m.mean > 0.3);
    }
    qn_plan_free(plan);
    qn_meter_free(meter);
    qn_tape_free(tape);
}

TEST(metrics_on_the_device)
{
    tape_open();
    /* weights leave rows out */
    qn_error error;
    qn_metrics m;
    qn_meter *meter = qn_meter_new(tape, 16);
    qn_meter_update(meter, F32(QN_SHAPE(3), 2, -2, 5), F32(QN_SHAPE(3), 1, 1, 1), F32(QN_SHAPE(3), 1, 1, 0));
    EXPECT(!qn_meter_read(meter, &m, &error));
    EXPECT(m.count == 2 && m.accuracy == 0.5 && m.positives == 1 && isnan(m.auc));
    EXPECT_NEAR(m.loss, (log1p(exp(-2.0)) + log1p(exp(2.0))) / 2, 1e-6);
    qn_meter_update(meter, F32(QN_SHAPE(2), 1, 2), F32(QN_SHAPE(1), 1), QN_NONE);
    EXPECT(qn_tape_error(tape, &error) && strstr(error.message, "2 logits, 1 labels and 2 weights"));
    EXPECT_TENSOR(qn_accuracy(F32(QN_SHAPE(2, 3), 1, 5, 2, 9, 0, 1), I64(QN_SHAPE(2), 1, 2)), QN_RANK_0, 0.5);
    qn_meter_free(meter);
    tape_close();
    meter_on("ref");
    meter_on("cpu");
}

TEST_MAIN(CASE(tensors_are_printed), CASE(tensors_are_compared), CASE(batches_come_in_order),
          CASE(loaders_are_bounded_resume_and_stop), CASE(errors_come_at_their_place), CASE(metrics_on_the_host),
          CASE(metrics_on_the_device))
