/*
 * qn_bench and qn_bench_compare: a race of the caller's own functions. A sample is as many calls as take long enough for
 * the clock (half a millisecond); one call where that takes longer by itself.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/timing.h"
#include "run/run.h"

#include <string.h>

typedef struct function_race {
    struct {
        qn_bench_function *function;
        void *user;
    } arms[2];
    qn_stream *stream;
    qn_event *events[2];
    qn_error *error;
    qn_status status;
} function_race;

static qn_status sample_stream(function_race *f, int arm, int calls, double *ns)
{
    QN_TRY(qn_event_record(f->events[0], f->stream, f->error));
    for (int i = 0; i < calls; i++) f->arms[arm].function(f->arms[arm].user);
    QN_TRY(qn_event_record(f->events[1], f->stream, f->error));
    QN_TRY(qn_stream_wait(f->stream, f->error));
    return qn_event_elapsed(f->events[0], f->events[1], ns, f->error);
}

static bool sample(void *user, int arm, int calls, double *ns, double *spent_ns)
{
    function_race *f = user;
    int64_t start_ns = clock_now_ns();
    if (f->stream)
        f->status = sample_stream(f, arm, calls, ns);
    else
        for (int i = 0; i < calls; i++) f->arms[arm].function(f->arms[arm].user);
    *spent_ns = (double)(clock_now_ns() - start_ns);
    if (!f->stream) *ns = *spent_ns;
    *ns /= calls;
    return f->status == QN_OK;
}

static double clock_mhz(void *user)
{
    return processor_clock_mhz();
}

static qn_status run(function_race *f, race_arm *arms, int count, const qn_time_options *options, qn_error *error)
{
    static const qn_time_options defaults;
    race_arm *pointers[2] = {&arms[0], &arms[1]};
    const qn_time_options *o = options ? options : &defaults;
    race r = {.sample = sample,
              .user = f,
              .clock_mhz = o->stream ? NULL : clock_mhz,
              .arms = pointers,
              .count = count,
              .seconds = o->seconds,
              .precision = o->precision,
              .margin = o->margin,
              .sample_ns = o->stream ? 2e6 : 5e5,
              .fixed_calls = o->calls,
              .seed = o->seed};
    f->stream = o->stream;
    f->error = error;
    for (int i = 0; i < 2 && f->stream && f->status == QN_OK; i++)
        f->status = stream_event(f->stream, &f->events[i], error);
    if (f->status == QN_OK) race_run(&r);
    for (int i = 0; i < 2; i++) qn_event_free(f->events[i]);
    return f->status;
}

qn_status qn_bench(qn_bench_function *function, void *user, const qn_time_options *options, qn_bench_time *time,
                   qn_error *error)
{
    HEAP_ENTER(error);
    qn_error unread;
    race_arm arm = {0};
    if (!error) error = &unread;
    if (!function || !time) return error_set(error, QN_BAD_CALL, "qn_bench: an argument is NULL");
    function_race f = {.arms = {{function, user}}};
    qn_status status = run(&f, &arm, 1, options, error);
    *time = arm.time;
    if (status == QN_OK) return QN_OK;
    qn_bench_time_free(time);
    return status;
}

void qn_bench_time_free(qn_bench_time *time)
{
    if (!time) return;
    race_arm arm = {.time = *time};
    race_arm_free(&arm);
    *time = time_unknown();
}

qn_status qn_bench_compare(qn_bench_function *base, void *base_user, qn_bench_function *function, void *user,
                           const qn_time_options *options, qn_bench_comparison *out, qn_error *error)
{
    HEAP_ENTER(error);
    qn_error unread;
    race_arm arms[2] = {0};
    if (!error) error = &unread;
    if (!base || !function || !out) return error_set(error, QN_BAD_CALL, "qn_bench_compare: an argument is NULL");
    function_race f = {.arms = {{base, base_user}, {function, user}}};
    qn_status status = run(&f, arms, 2, options, error);
    double margin = options && options->margin > 0 ? options->margin : 0.01;
    if (status == QN_OK) *out = compare_rounds(&arms[0].time, &arms[1].time, margin);
    race_arm_free(&arms[0]);
    race_arm_free(&arms[1]);
    return status;
}
