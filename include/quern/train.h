/*
 * Training: optimisers and clipping of gradients, as graph code over variables. A step records assignments to the
 * parameters and to the optimiser's own variables; the next evaluation computes them with all else that is wanted, and a
 * captured step contains them. The formulas are those of PyTorch's optimisers of the same names.
 *
 * Example (the minimum of (w - 3)^2):
 *     qn_error error;
 *     qn_context *context;
 *     qn_tape *tape;
 *     double at;
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     if (qn_tape_new(context, "cpu", &tape, &error)) return 1;
 *     qn_tensor w = qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(1)));
 *     qn_optimizer_options options = qn_optimizer_defaults(QN_SGD);
 *     options.rate = 0.25;
 *     qn_optimizer *optimizer = qn_optimizer_new(tape, QN_SGD, &options, &w, 1);
 *     for (int step = 0; step < 30; step++) {
 *         qn_scope_begin(tape);
 *         qn_optimizer_minimize(optimizer, qn_sum(qn_square(qn_add_scalar(w, -3)), QN_ALL, false));
 *         if (qn_eval(tape, &w, 1, &error)) return 1;
 *         qn_scope_end(tape);
 *     }
 *     if (qn_tensor_item(w, &at, &error) || at < 2.999 || at > 3.001) return 1;
 *     qn_optimizer_free(optimizer);
 *     qn_tape_free(tape);
 *     qn_context_close(context);
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TRAIN_H
#define QUERN_TRAIN_H

#include <quern/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum qn_optimizer_kind {
    QN_SGD,        /* state: momentum, if there is any */
    QN_ADAM,       /* state: mean, mean of squares; decay goes into the gradient */
    QN_ADAMW,      /* the same; decay goes straight to the parameters */
    QN_ADAGRAD,    /* state: sum of squares */
    QN_ROW_ADAGRAD /* state: one sum for each row (index of axis 0) of the means of its squares */
} qn_optimizer_kind;

typedef struct qn_optimizer_options {
    double rate; /* the learning rate; qn_optimizer_set_rate changes it */
    double weight_decay;
    double momentum, dampening; /* SGD */
    bool nesterov;              /* SGD */
    double beta1, beta2;        /* Adam, AdamW */
    double epsilon;             /* all but SGD */
    double rate_decay;          /* Adagrad: step t takes rate / (1 + (t - 1) * rate_decay) */
    double initial_sum;         /* Adagrad: what the sums start from */
    /* Where the gradient is made of few rows (of an embedding), rows that no index touches are left alone, their state
     * too: PyTorch's SparseAdam. Where leaving them alone changes nothing (SGD without momentum and decay, Adagrad
     * without decay) it is always so. */
    bool lazy_rows;
} qn_optimizer_options;

typedef struct qn_optimizer qn_optimizer;

/* Parameters with a kind and options of their own: `qn_tensor`s of one tape, in no other group. */
typedef struct qn_optimizer_group {
    qn_optimizer_kind kind;
    qn_optimizer_options options;
    const qn_tensor *parameters;
    int count;
} qn_optimizer_group;

/* What all rates are multiplied with, as a function of the number of steps taken, computed on the device: a captured step
 * follows it. During the first `warmup_steps` steps the factor rises from warmup_start towards 1 in a straight line
 * (step t, from 0, has warmup_start + (1 - warmup_start) t / warmup_steps); n below counts from there. */
typedef enum qn_schedule_kind {
    QN_CONSTANT,    /* 1 */
    QN_LINEAR,      /* from 1 to `end` within `steps`, then `end` */
    QN_COSINE,      /* end + (1 - end) (1 + cos(pi n / steps)) / 2, then `end` */
    QN_STEP,        /* gamma ^ floor(n / steps) */
    QN_EXPONENTIAL, /* gamma ^ (n / steps); steps 0: as 1 */
    QN_OWN_SCHEDULE /* own(n): from f64 of rank 0 to one number */
} qn_schedule_kind;
typedef struct qn_schedule {
    qn_schedule_kind kind;
    int64_t warmup_steps, steps;
    double warmup_start, end, gamma;
    qn_tensor (*own)(qn_tensor steps, void *user);
    void *user;
} qn_schedule;

QN_API qn_optimizer_options qn_optimizer_defaults(qn_optimizer_kind kind); /* PyTorch's */
/* For these variables of floats. State is f32 (of f64 parameters f64), and so is the arithmetic. options NULL: the
 * defaults. NULL: the tape has an error. Free it before its tape. */
QN_API qn_optimizer *qn_optimizer_new(qn_tape *tape, qn_optimizer_kind kind, const qn_optimizer_options *options,
                                      const qn_tensor *parameters, int count);
/* Groups of parameters, numbered one after the other from 0 on. */
QN_API qn_optimizer *qn_optimizer_new_groups(qn_tape *tape, const qn_optimizer_group *groups, int count);
/* For the steps that are built from here on; NULL: constant. */
QN_API void qn_optimizer_set_schedule(qn_optimizer *optimizer, const qn_schedule *schedule);
/* qn_optimizer_minimize clips the gradients of all parameters together to this norm; 0: it does not. */
QN_API void qn_optimizer_set_clip_norm(qn_optimizer *optimizer, double max_norm);
/* One step: gradients in the order of the parameters; an empty one leaves its parameter as it is. A gradient that adds
 * rows to zeros (of an embedding's table, or made by qn_index_add on zeros) is never a tensor of the table's size: only
 * the rows it names are read and written. Equal indices count once, with the sum of their rows. */
QN_API void qn_optimizer_step(qn_optimizer *optimizer, const qn_tensor *gradients);
QN_API void qn_optimizer_minimize(qn_optimizer *optimizer, qn_tensor loss); /* its gradients, and a step */
/* Of all groups, or of one. From the next step on, captured steps too. What was built before and reads the old rate must
 * be evaluated first. */
QN_API QN_MUST_CHECK qn_status qn_optimizer_set_rate(qn_optimizer *optimizer, double rate, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_optimizer_set_group_rate(qn_optimizer *optimizer, int group, double rate,
                                                           qn_error *error);
/* Its variables, to save and restore: steps taken (f64, rank 0), the rate of the first or of any group (f64, rank 0; the
 * schedule is not in it), a parameter, its state `which` (0, 1); the empty tensor if there is none. */
QN_API qn_tensor qn_optimizer_steps(const qn_optimizer *optimizer);
QN_API qn_tensor qn_optimizer_rate(const qn_optimizer *optimizer);
QN_API qn_tensor qn_optimizer_group_rate(const qn_optimizer *optimizer, int group);
QN_API qn_tensor qn_optimizer_parameter(const qn_optimizer *optimizer, int parameter);
QN_API qn_tensor qn_optimizer_state(const qn_optimizer *optimizer, int parameter, int which);
/* "momentum_buffer", "exp_avg", "exp_avg_sq", "sum": PyTorch's names; NULL: there is no such state. */
QN_API const char *qn_optimizer_state_name(const qn_optimizer *optimizer, int parameter, int which);
QN_API int qn_optimizer_count(const qn_optimizer *optimizer); /* parameters */
QN_API int qn_optimizer_group_count(const qn_optimizer *optimizer);
/* The rate of a group with which the next step that is built will go, by its schedule: a new tensor (f64, rank 0). */
QN_API qn_tensor qn_optimizer_rate_now(qn_optimizer *optimizer, int group);
QN_API void qn_optimizer_free(qn_optimizer *optimizer); /* NULL is fine */

/* Scales the gradients so that the norm of all their elements together is at most max_norm; returns the norm from
 * before (f32, rank 0). Empty gradients stay empty; gradients of rows stay gradients of rows. */
QN_API qn_tensor qn_clip_grad_norm(qn_tensor *gradients, int count, double max_norm);
/* Every element between -limit and limit. */
QN_API void qn_clip_grad_value(qn_tensor *gradients, int count, double limit);

#ifdef __cplusplus
}
#endif

#ifndef QN_NO_CALL_SITES
#define qn_optimizer_new(...) QN_AT(qn_optimizer_new(__VA_ARGS__))
#define qn_optimizer_new_groups(...) QN_AT(qn_optimizer_new_groups(__VA_ARGS__))
#define qn_optimizer_set_schedule(...) QN_AT(qn_optimizer_set_schedule(__VA_ARGS__))
#define qn_optimizer_set_clip_norm(...) QN_AT(qn_optimizer_set_clip_norm(__VA_ARGS__))
#define qn_optimizer_rate_now(...) QN_AT(qn_optimizer_rate_now(__VA_ARGS__))
#define qn_optimizer_step(...) QN_AT(qn_optimizer_step(__VA_ARGS__))
#define qn_optimizer_minimize(...) QN_AT(qn_optimizer_minimize(__VA_ARGS__))
#define qn_clip_grad_norm(...) QN_AT(qn_clip_grad_norm(__VA_ARGS__))
#define qn_clip_grad_value(...) QN_AT(qn_clip_grad_value(__VA_ARGS__))
#endif
#endif
