/*
 * Recorded steps: a replay gives, bit for bit, what evaluating the same step again gives: losses, parameters, optimiser
 * state, random numbers. It allocates nothing (every allocation of the process is counted), takes new inputs by writing
 * and by swapping buffers, and refuses what makes no sense.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "run/evaluate/realize.h"
#include "on_devices.h"
#include "test.h"

#include <quern/profile.h>
#include <quern/train.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- counting allocations; a sanitizer has its own functions ---- */

static _Atomic int64_t allocations;
static _Thread_local int64_t own_allocations; /* of this thread: a profile's collector has its own */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define COUNTS 1
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void *malloc(size_t size)
{
    allocations++;
    own_allocations++;
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size)
{
    allocations++;
    own_allocations++;
    return __libc_calloc(count, size);
}
void *realloc(void *old, size_t size)
{
    allocations++;
    own_allocations++;
    return __libc_realloc(old, size);
}
void *aligned_alloc(size_t alignment, size_t size)
{
    allocations++;
    own_allocations++;
    return __libc_memalign(alignment, size);
}
#else
#define COUNTS 0
#endif

static qn_error error;
static qn_context *context;
static const char *where; /* the device of the round */

static bool good(qn_status status)
{
    if (status != QN_OK) printf("%s: %s\n", where, error.message);
    return status == QN_OK;
}

enum { IN = 7, HIDDEN = 12, OUT = 5, BATCH = 9, STEPS = 4, PARAMETERS = 4 };

typedef struct model {
    qn_tape *tape;
    qn_tensor x, y, parameters[PARAMETERS];
    qn_optimizer *optimizer;
} model;

static void batch(int step, float *x, int64_t *y)
{
    for (int i = 0; i < BATCH * IN; i++) x[i] = (float)((i * 37 + step * 11) % 19) / 10 - 1;
    for (int i = 0; i < BATCH; i++) y[i] = (i + step) % OUT;
}

static model model_new(void)
{
    model m;
    float x[BATCH * IN];
    int64_t y[BATCH];
    batch(0, x, y);
    EXPECT(good(qn_tape_new(context, where, &m.tape, &error)));
    qn_seed(m.tape, 42);
    m.x = qn_from_memory(m.tape, x, QN_F32, QN_SHAPE(BATCH, IN));
    m.y = qn_from_memory(m.tape, y, QN_I64, QN_SHAPE(BATCH));
    m.parameters[0] = qn_variable(qn_randn(m.tape, QN_F32, QN_SHAPE(IN, HIDDEN)));
    m.parameters[1] = qn_variable(qn_zeros(m.tape, QN_F32, QN_SHAPE(HIDDEN)));
    m.parameters[2] = qn_variable(qn_randn(m.tape, QN_F32, QN_SHAPE(HIDDEN, OUT)));
    m.parameters[3] = qn_variable(qn_zeros(m.tape, QN_F32, QN_SHAPE(OUT)));
    m.optimizer = qn_optimizer_new(m.tape, QN_ADAMW, NULL, m.parameters, PARAMETERS);
    EXPECT(good(qn_eval(m.tape, NULL, 0, &error)));
    return m;
}

static qn_tensor model_step(model *m)
{
    qn_tensor hidden = qn_dropout(qn_gelu(qn_linear(m->x, m->parameters[0], m->parameters[1])), 0.25);
    qn_tensor logits = qn_linear(hidden, m->parameters[2], m->parameters[3]);
    qn_tensor loss = qn_cross_entropy(logits, m->y, QN_MEAN, -100);
    qn_optimizer_minimize(m->optimizer, loss);
    return loss;
}

static void model_free(model *m)
{
    qn_optimizer_free(m->optimizer);
    qn_tape_free(m->tape);
}

typedef struct state {
    float losses[STEPS], parameters[IN * HIDDEN + HIDDEN + HIDDEN * OUT + OUT], random[3];
} state;

static void read_state(model *m, state *s)
{
    float *at = s->parameters;
    for (int i = 0; i < PARAMETERS; i++) {
        int64_t count = qn_tensor_count(m->parameters[i]);
        EXPECT(good(qn_tensor_read(m->parameters[i], at, sizeof(float) * (size_t)count, &error)));
        at += count;
    }
    qn_tensor next = qn_rand(m->tape, QN_F32, QN_SHAPE(3));
    EXPECT(good(qn_tensor_read(next, s->random, sizeof(s->random), &error)));
}

static void write_batch(model *m, int step)
{
    float x[BATCH * IN];
    int64_t y[BATCH];
    batch(step, x, y);
    EXPECT(good(qn_tensor_write(m->x, x, sizeof(x), &error)));
    EXPECT(good(qn_tensor_write(m->y, y, sizeof(y), &error)));
}

static void equals_evaluation(void)
{
    state fresh = {.losses = {0}}, replayed = {.losses = {0}};
    model m = model_new();
    for (int step = 0; step < STEPS; step++) {
        write_batch(&m, step);
        qn_scope_begin(m.tape);
        qn_tensor loss = model_step(&m);
        EXPECT(good(qn_tensor_read(loss, &fresh.losses[step], sizeof(float), &error)));
        qn_scope_end(m.tape);
    }
    EXPECT(m.tape->realizer->plans_made <= 3); /* the initial values, the step */
    read_state(&m, &fresh);
    model_free(&m);

    m = model_new();
    qn_plan *plan = NULL;
    EXPECT(good(qn_capture_begin(m.tape, &error)));
    qn_tensor loss = model_step(&m);
    EXPECT(good(qn_eval(m.tape, &loss, 1, &error)));
    EXPECT(good(qn_capture_end(m.tape, &plan, &error)));
    if (!plan) return;
    for (int step = 0; step < STEPS; step++) {
        write_batch(&m, step);
        EXPECT(good(qn_plan_replay(plan, &error)));
        EXPECT(good(qn_tensor_read(loss, &replayed.losses[step], sizeof(float), &error)));
    }
    read_state(&m, &replayed);
    EXPECT(!memcmp(&fresh, &replayed, sizeof(fresh)));
    qn_plan_facts facts;
    qn_plan_info(plan, &facts);
    EXPECT(facts.kernels > 0 && facts.nodes >= facts.kernels && facts.peak_bytes >= facts.workspace_bytes);
    qn_plan_free(plan);
    model_free(&m);
}

/* The first random numbers of a tape are drawn inside a step: each replay draws others, as evaluations do. */
static void random_numbers_go_on(void)
{
    qn_tape *tape;
    qn_plan *plan = NULL;
    double fresh[3], replayed[3];
    for (int recorded = 0; recorded < 2; recorded++) {
        EXPECT(good(qn_tape_new(context, where, &tape, &error)));
        qn_tensor sum = {0};
        if (recorded) {
            EXPECT(good(qn_capture_begin(tape, &error)));
            sum = qn_sum(qn_randn(tape, QN_F32, QN_SHAPE(4)), QN_ALL, false);
            EXPECT(good(qn_eval(tape, &sum, 1, &error)) && good(qn_capture_end(tape, &plan, &error)));
        }
        for (int i = 0; i < 3; i++) {
            if (recorded)
                EXPECT(good(qn_plan_replay(plan, &error)));
            else
                sum = qn_sum(qn_randn(tape, QN_F32, QN_SHAPE(4)), QN_ALL, false);
            EXPECT(good(qn_tensor_item(sum, recorded ? &replayed[i] : &fresh[i], &error)));
        }
        qn_plan_free(plan);
        qn_tape_free(tape);
    }
    EXPECT(fresh[0] != fresh[1] && !memcmp(fresh, replayed, sizeof(fresh)));
}

/* Inputs by buffers, results that follow, what was made from them. */
static void inputs_and_results(void)
{
    qn_tape *tape;
    qn_plan *plan = NULL;
    float first[4] = {1, 2, 3, 4}, second[4] = {10, 20, 30, 40}, got[4];
    double item = 0;
    EXPECT(good(qn_tape_new(context, where, &tape, &error)));
    qn_tensor x = qn_from_memory(tape, first, QN_F32, QN_SHAPE(4)),
              total = qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(1)));
    EXPECT(good(qn_capture_begin(tape, &error)));
    qn_tensor twice = qn_add(x, x), sum = qn_sum(twice, QN_ALL, true);
    EXPECT(good(qn_eval(tape, &twice, 1, &error)));
    qn_assign(total, qn_add(total, qn_reshape(sum, QN_SHAPE(1))));
    EXPECT(good(qn_eval(tape, &sum, 1, &error)));
    EXPECT(qn_tensor_read(sum, got, sizeof(float), &error) == QN_BAD_CALL &&
           strstr(error.message, "while a step is recorded"));
    EXPECT(good(qn_capture_end(tape, &plan, &error)));
    if (!plan) return;
    EXPECT(good(qn_tensor_item(total, &item, &error)) && item == 0); /* nothing has run */
    EXPECT(good(qn_plan_replay(plan, &error)));
    EXPECT(good(qn_tensor_read(twice, got, sizeof(got), &error)) && got[3] == 8);
    EXPECT(good(qn_tensor_item(total, &item, &error)) && item == 20);
    qn_tensor kept = qn_mul_scalar(twice, 10), late = qn_mul_scalar(twice, 100);
    EXPECT(good(qn_tensor_read(kept, got, sizeof(got), &error)) && got[3] == 80);

    qn_buffer *other;
    EXPECT(good(qn_buffer_new_on(context, where, 4096, &other, &error)));
    EXPECT(good(qn_buffer_write(other, 0, second, sizeof(second), NULL, &error)));
    EXPECT(good(qn_plan_swap(plan, x, other, &error)));
    qn_buffer_release(other);
    EXPECT(good(qn_plan_replay(plan, &error)) && good(qn_plan_replay(plan, &error)));
    EXPECT(good(qn_tensor_item(total, &item, &error)) && item == 420);
    EXPECT(good(qn_tensor_read(twice, got, sizeof(got), &error)) && got[3] == 80);
    EXPECT(good(qn_tensor_read(kept, got, sizeof(got), &error)) && got[3] == 80);
    EXPECT(qn_tensor_read(late, got, sizeof(got), &error) == QN_BAD_CALL);
    EXPECT(good(qn_tensor_read(qn_mul_scalar(twice, 100), got, sizeof(got), &error)) && got[3] == 8000);
    qn_plan_free(plan);
    EXPECT(good(qn_tensor_read(twice, got, sizeof(got), &error)) && got[3] == 80);
    qn_tape_free(tape);
}

/* What was made from a variable is told apart from what the next replay leaves there, however many nodes a scope's end
 * leaves. */
static void replays_between_scopes(void)
{
    enum { COUNT_OF = 32 }; /* more than is preserved */
    for (int before = 0; before < 4; before++) {
        qn_tape *tape;
        qn_plan *plan = NULL;
        float got[COUNT_OF];
        EXPECT(good(qn_tape_new(context, where, &tape, &error)));
        qn_tensor w = qn_variable(qn_ones(tape, QN_F32, QN_SHAPE(COUNT_OF)));
        EXPECT(good(qn_capture_begin(tape, &error)));
        qn_assign(w, qn_mul_scalar(w, 2));
        EXPECT(good(qn_eval(tape, NULL, 0, &error)) && good(qn_capture_end(tape, &plan, &error)));
        if (!plan) return;
        EXPECT(good(qn_plan_replay(plan, &error)));
        qn_scope_begin(tape);
        qn_tensor inside = w;
        for (int i = 0; i < before; i++) inside = qn_neg(inside);
        EXPECT(good(qn_eval(tape, &inside, 1, &error)));
        qn_scope_end(tape);
        EXPECT(good(qn_plan_replay(plan, &error)));
        qn_scope_begin(tape);
        qn_tensor late = qn_keep(qn_neg(w));
        qn_scope_end(tape);
        EXPECT(good(qn_plan_replay(plan, &error)));
        EXPECT(qn_tensor_read(late, got, sizeof(got), &error) == QN_BAD_CALL);
        EXPECT(good(qn_tensor_read(w, got, sizeof(got), &error)) && got[0] == 8);
        qn_plan_free(plan);
        qn_tape_free(tape);
    }
}

static void wrong_calls(void)
{
    qn_tape *tape, *other;
    qn_plan *plan = NULL;
    EXPECT(good(qn_tape_new(context, where, &tape, &error)));
    EXPECT(good(qn_tape_new(context, where, &other, &error)));
    qn_tensor x = qn_empty(tape, QN_F32, QN_SHAPE(4)), y = qn_add(x, x), strange = qn_empty(tape, QN_F32, QN_SHAPE(4));
    EXPECT(qn_capture_end(tape, &plan, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "qn_capture_end: no recording was begun on this tape");
    EXPECT(good(qn_capture_begin(tape, &error)));
    EXPECT(qn_capture_begin(tape, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "qn_capture_begin: a step of this tape is being recorded already");
    EXPECT(good(qn_eval(tape, &y, 1, &error)));
    EXPECT(good(qn_capture_end(tape, &plan, &error)));
    qn_buffer *small, *large;
    EXPECT(good(qn_buffer_new_on(context, where, 8, &small, &error)));
    EXPECT(good(qn_buffer_new_on(context, where, 4096, &large, &error)));
    EXPECT(qn_plan_swap(plan, x, small, &error) == QN_BAD_CALL && strstr(error.message, "has 8 bytes"));
    EXPECT(qn_plan_swap(plan, strange, large, &error) == QN_BAD_CALL && strstr(error.message, "does not read"));
    EXPECT(qn_plan_swap(plan, qn_empty(other, QN_F32, QN_SHAPE(4)), large, &error) == QN_BAD_CALL);
    qn_buffer_release(small);
    qn_buffer_release(large);
    qn_release(x);
    float four[4] = {0};
    EXPECT(qn_tensor_write(x, four, sizeof(four), &error) == QN_BAD_CALL && strstr(error.message, "released"));
    EXPECT(good(qn_plan_replay(plan, &error))); /* the plan keeps what it reads */

    /* A step with an error in it gives no plan, and the tape goes on. */
    qn_plan *none = NULL;
    EXPECT(good(qn_capture_begin(tape, &error)));
    qn_tensor bad = qn_add(y, qn_empty(tape, QN_F32, QN_SHAPE(3)));
    EXPECT(qn_eval(tape, &bad, 1, &error) == QN_BAD_CALL);
    EXPECT(qn_capture_end(tape, &none, &error) == QN_OK || !none); /* what was wrong has been told */
    qn_plan_free(none);
    EXPECT(good(qn_plan_replay(plan, &error)));

    EXPECT(good(qn_capture_begin(tape, &error))); /* the tape goes while a step is recorded */
    qn_tape_free(tape);
    EXPECT(qn_plan_replay(plan, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "qn_plan_replay: the tape that recorded the plan was freed");
    qn_plan_free(plan);
    qn_tape_free(other);
    EXPECT(qn_plan_replay(NULL, &error) == QN_BAD_CALL);
}

ON_EVERY_DEVICE(equals_evaluation)
ON_EVERY_DEVICE(random_numbers_go_on)
ON_EVERY_DEVICE(inputs_and_results)
ON_EVERY_DEVICE(replays_between_scopes)
ON_EVERY_DEVICE(wrong_calls)

TEST(opening)
{
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
}

/* Nor does a replay that is recorded, once the first has named its kernels. */
static void replays_recorded(qn_plan *plan)
{
    qn_profile *profile;
    qn_profile_sum sum;
    EXPECT(good(qn_profile_start(context, NULL, &profile, &error)));
    for (int i = 0; i < 3; i++) EXPECT(good(qn_plan_replay(plan, &error)));
    int64_t before = own_allocations;
    for (int i = 0; i < 200; i++) EXPECT(qn_plan_replay(plan, &error) == QN_OK);
    if (COUNTS && !strcmp(where, "cpu")) EXPECT(own_allocations == before);
    EXPECT(good(qn_profile_stop(profile, &error)));
    EXPECT(qn_profile_find(profile, "replay", &sum) && sum.calls == 203);
    qn_profile_free(profile);
}

/* Writing inputs and replaying: no allocation at all, and the host's part is short. */
TEST(nothing_is_allocated)
{
    static const char *const names[] = {"cpu", "cuda"};
    for (int d = 0; d < COUNT(names); d++) {
        qn_device_info info;
        where = names[d];
        if (qn_device_find(context, where, &info, &error) || !info.available) continue;
        model m = model_new();
        qn_plan *plan = NULL;
        EXPECT(good(qn_capture_begin(m.tape, &error)));
        qn_tensor loss = model_step(&m);
        EXPECT(good(qn_eval(m.tape, &loss, 1, &error)));
        EXPECT(good(qn_capture_end(m.tape, &plan, &error)));
        if (!plan) return;
        for (int i = 0; i < 3; i++) { /* scratch memory of the workers grows */
            write_batch(&m, i);
            EXPECT(good(qn_plan_replay(plan, &error)));
        }
        int nodes = m.tape->graph->node_count;
        int64_t before = allocations;
        double best_ns = 1e18;
        for (int i = 0; i < 200; i++) {
            write_batch(&m, i);
            int64_t start_ns = clock_now_ns();
            EXPECT(qn_plan_replay(plan, &error) == QN_OK);
            double ns = (double)(clock_now_ns() - start_ns);
            if (ns < best_ns) best_ns = ns;
        }
        if (COUNTS && !strcmp(where, "cpu")) EXPECT(allocations == before);
        replays_recorded(plan);
        EXPECT(m.tape->graph->node_count == nodes);
        qn_plan_facts facts;
        qn_plan_info(plan, &facts);
        printf("note: %s: a replayed step of %d kernels on tiny tensors takes %.1f us\n", where, facts.kernels,
               best_ns * 1e-3);
        qn_plan_free(plan);
        model_free(&m);
    }
}

TEST(closing)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(opening), CASE(on_devices_equals_evaluation), CASE(on_devices_random_numbers_go_on),
          CASE(on_devices_inputs_and_results), CASE(on_devices_replays_between_scopes), CASE(on_devices_wrong_calls),
          CASE(nothing_is_allocated), CASE(closing))
