/*
 * Evaluations that repeat themselves on the `cuda` device, with the fake driver: what is recorded of them, and for which
 * addresses. A part of test_cuda.c, which has what it stands on.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_RECORDINGS_H
#define QUERN_TESTS_RECORDINGS_H

/* Steps that find their memory where it was start a recording of what they launch, which knows its kernels' names; where memory
 * lies elsewhere they launch again, and numbers are right either way. */
TEST(a_step_that_repeats_is_one_call)
{
    enum { N = 64, STEPS = 40 };
    fake_reset();
    float numbers[N], out[N];
    for (int i = 0; i < N; i++) numbers[i] = (float)i;
    qn_context *context = open_context();
    qn_tape *tape = NULL;
    OK(qn_tape_new(context, "cuda", &tape, &error));
    qn_tensor x = qn_from_memory(tape, numbers, QN_F32, QN_SHAPE(N)), kept = QN_NONE;
    int64_t launches = 0, replays = 0;
    for (int step = 0; step < 2 * STEPS; step++) {
        if (step == STEPS / 2 || step == 3 * STEPS / 2) {
            launches = fake_count("cuLaunchKernelEx");
            replays = fake_count("cuGraphLaunch");
        }
        if (step == STEPS) { /* all since the half were replays; and now a result stays where the next one was to lie */
            EXPECT(fake_count("cuLaunchKernelEx") == launches);
            EXPECT(fake_count("cuGraphLaunch") == replays + STEPS / 2);
            for (int i = 0; i < N; i++) numbers[i] = (float)(2 * i);
            OK(qn_tensor_write(x, numbers, sizeof(numbers), &error));
            launches = fake_count("cuLaunchKernelEx");
            kept = qn_add_scalar(x, 1);
            OK(qn_eval(tape, &kept, 1, &error));
            EXPECT(fake_count("cuLaunchKernelEx") == launches + 1);
        }
        qn_scope_begin(tape);
        qn_tensor y = qn_add_scalar(qn_mul(x, x), 1), order = qn_flip(qn_cumsum(y, 0), QN_AXES(0));
        qn_tensor results[] = {y, order};
        OK(qn_eval(tape, results, 2, &error));
        if (step % 7 == 0 || step == STEPS + 1) {
            OK(qn_tensor_read(y, out, sizeof(out), &error));
            int wrong = 0;
            for (int i = 0; i < N; i++) wrong += out[i] != numbers[i] * numbers[i] + 1;
            EXPECT(!wrong);
        }
        qn_scope_end(tape);
    }
    EXPECT(fake_count("cuLaunchKernelEx") == launches && fake_count("cuGraphLaunch") == replays + STEPS / 2);
    OK(qn_tensor_read(kept, out, sizeof(out), &error));
    EXPECT(out[3] == 7);
    fake_order("cuStreamSynchronize", CUDA_MISALIGNED_ADDRESS, 0);
    qn_scope_begin(tape);
    qn_tensor y = qn_add_scalar(qn_mul(x, x), 1), order = qn_flip(qn_cumsum(y, 0), QN_AXES(0));
    OK(qn_eval(tape, (qn_tensor[]){y, order}, 2, &error));
    EXPECT(qn_tensor_read(y, out, sizeof(out), &error) != QN_OK && strstr(error.message, "`") &&
           strstr(error.message, "misaligned"));
    EXPECT(!strstr(error.message, "(a graph)"));
    qn_scope_end(tape);
    qn_tape_free(tape);
    qn_context_close(context);
}

/* A function that runs here and, on other arrays, on another stream in turn: a recording has the arrays of here. */
TEST(a_recording_has_the_addresses_of_its_own_stream)
{
    fake_reset();
    const int64_t n = 1;
    qn_context *context = open_context();
    qn_module *module = NULL;
    qn_call *call = NULL;
    qn_stream *other = NULL;
    qn_buffer *x[2] = {NULL}, *y[2] = {NULL};
    OK(qn_module_load_text(context, "more.qn", "tensor more(float x[n]) { return x + 1; }\n", &module, &error));
    OK(qn_call_new(module, "more", &call, &error));
    OK(qn_stream_new(context, "cuda", &other, &error));
    for (int i = 0; i < 4; i++)
        OK(qn_buffer_new_on(context, "cuda", sizeof(float), i / 2 ? &y[i % 2] : &x[i % 2], &error));
    for (int step = 0; step < 40; step++) {
        float number = (float)step, out;
        int side = step % 2;
        OK(qn_buffer_write(x[side], 0, &number, sizeof(number), NULL, &error));
        OK(qn_call_set_buffer(call, "x", x[side], 0, QN_F32, 1, &n, NULL, &error));
        OK(qn_call_set_buffer(call, "result0", y[side], 0, QN_F32, 1, &n, NULL, &error));
        OK(side ? qn_call_launch(call, other, &error) : qn_call_run(call, "cuda", &error));
        if (side) OK(qn_stream_wait(other, &error));
        OK(qn_buffer_read(y[side], 0, &out, sizeof(out), NULL, &error));
        EXPECT(out == number + 1);
    }
    for (int i = 0; i < 4; i++) qn_buffer_release(i / 2 ? y[i % 2] : x[i % 2]);
    qn_stream_free(other);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
}

/* A driver that has no memory for a recording's start: its launches are made one by one, once, and from then on. */
TEST(a_recording_that_does_not_start_is_launched)
{
    enum { N = 64, STEPS = 60 };
    fake_reset();
    float numbers[N] = {0}, out[N];
    qn_context *context = open_context();
    qn_tape *tape = NULL;
    OK(qn_tape_new(context, "cuda", &tape, &error));
    qn_tensor x = qn_variable(qn_from_memory(tape, numbers, QN_F32, QN_SHAPE(N)));
    OK(qn_eval(tape, NULL, 0, &error));
    int failures = 0;
    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS / 2) {
            EXPECT(fake_count("cuGraphLaunch") > 0);
            fake_order("cuGraphLaunch", CUDA_OUT_OF_MEMORY, 0);
        }
        qn_scope_begin(tape);
        qn_assign(x, qn_add_scalar(x, 1));
        failures += qn_eval(tape, NULL, 0, &error) != QN_OK;
        qn_scope_end(tape);
    }
    EXPECT(!failures);
    OK(qn_tensor_read(x, out, sizeof(out), &error));
    EXPECT(out[0] == STEPS && out[N - 1] == STEPS);
    qn_tape_free(tape);
    qn_context_close(context);
}

/* Tapes of several threads on one device, each with recordings of its own, while another thread looks at all streams. */
static _Atomic bool steps_are_over;

static void *run_steps(void *user)
{
    enum { N = 32, STEPS = 80 };
    qn_context *context = user;
    qn_tape *tape = NULL;
    qn_error own;
    float numbers[N], out[N];
    int wrong = qn_tape_new(context, "cuda", &tape, &own) != QN_OK;
    for (int i = 0; i < N; i++) numbers[i] = (float)i;
    qn_tensor x = qn_from_memory(tape, numbers, QN_F32, QN_SHAPE(N)),
              total = qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(N)));
    for (int step = 0; step < STEPS; step++) {
        qn_scope_begin(tape);
        qn_assign(total, qn_add(total, qn_mul(x, x)));
        wrong += qn_eval(tape, NULL, 0, &own) != QN_OK;
        qn_scope_end(tape);
    }
    wrong += qn_tensor_read(total, out, sizeof(out), &own) != QN_OK;
    for (int i = 0; i < N; i++) wrong += out[i] != (float)(STEPS * i * i);
    qn_tape_free(tape);
    return (void *)(intptr_t)wrong;
}

static void *look_at_streams(void *user)
{
    qn_context *context = user;
    qn_error own;
    intptr_t wrong = 0;
    while (!steps_are_over) {
        wrong += qn_device_trim(context, "cuda", &own) != QN_OK;
        usleep(20);
    }
    return (void *)wrong;
}

TEST(threads_record_beside_each_other)
{
    fake_reset();
    qn_context *context = open_context();
    pthread_t threads[3], looker;
    void *wrong;
    steps_are_over = false;
    EXPECT(!pthread_create(&looker, NULL, look_at_streams, context));
    for (int i = 0; i < COUNT(threads); i++) EXPECT(!pthread_create(&threads[i], NULL, run_steps, context));
    for (int i = 0; i < COUNT(threads); i++) {
        pthread_join(threads[i], &wrong);
        EXPECT(!wrong);
    }
    steps_are_over = true;
    pthread_join(looker, &wrong);
    EXPECT(!wrong);
    EXPECT(fake_count("cuGraphLaunch") > 0);
    qn_context_close(context);
}

#endif
