/*
 * Random programs over axes (random_axes.h) on the devices, in every mode, against loops over doubles. What failed once
 * is kept by name. QUERN_AXES=COUNT tries more, QUERN_AXES_SEED=N starts elsewhere, QUERN_AXES_DEVICE=NAME takes one
 * device only; a program that fails is printed with its seed, and its first wrong tensor.
 * SPDX-License-Identifier: MIT
 */
#include "random_axes.h"
#include "share.h"
#include "test.h"

#include <quern/nn.h>

#include <signal.h>
#include <unistd.h>

static qn_context *context;
static char running[96]; /* what is being run, for one of our own checks */

static void at_abort(int signal_number)
{
    ssize_t unused = write(1, running, strlen(running));
    (void)unused;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static const char *const modes[] = {"fused", "eager", "strict"};

/* The last step alone, or (at >= 0) that step; and one in the middle beside it. */
static bool run_program(const axes_program *p, const char *device, qn_mode mode, int at, int beside)
{
    qn_error error;
    qn_tape *tape;
    qn_tensor t[AXES_STEPS] = {0}, wanted[2];
    if (qn_tape_new(context, device, &tape, &error)) return false;
    qn_tape_set_mode(tape, mode);
    for (int i = 0; i <= at; i++) t[i] = axes_tensor(p, i, tape, t);
    wanted[0] = t[at];
    wanted[1] = t[beside];
    bool fine = !qn_eval(tape, wanted, beside < at ? 2 : 1, &error);
    if (!fine) printf("t%d: %s\n", at, error.message);
    fine = fine && axes_agrees(&p->steps[at], t[at], at) &&
           (beside == at || axes_agrees(&p->steps[beside], t[beside], beside));
    qn_tape_free(tape);
    return fine;
}

static void run_seeds(const char *device, qn_mode mode, int count)
{
    const char *only = getenv("QUERN_AXES_DEVICE");
    qn_error error;
    qn_tape *tape;
    if (only && strcmp(only, device)) return;
    if (!context && qn_context_open(NULL, &context, &error)) {
        test_fail(__FILE__, __LINE__, error.message);
        return;
    }
    if (qn_tape_new(context, device, &tape, &error)) {
        printf("note: skipped: programs over axes on %s, which is not there\n", device);
        return;
    }
    qn_tape_free(tape);
    signal(SIGABRT, at_abort);
    signal(SIGSEGV, at_abort);
    int first = number_from("QUERN_AXES_SEED", 1);
    for (int seed = first; seed < first + count && test_failures_of_case < 5; seed++) {
        if (seed % 500 == 0) { /* a context keeps every kernel it has seen */
            qn_context_close(context);
            if (qn_context_open(NULL, &context, &error)) break;
        }
        snprintf(running, sizeof(running), "seed %d, %s %s\n", seed, device, modes[mode]);
        axes_program *p = axes_draw((uint64_t)seed);
        int last = p->count - 1, beside = seed % 3 ? last : seed / 3 % p->count;
        if (!run_program(p, device, mode, last, beside)) {
            printf("seed %d, %s %s\n", seed, device, modes[mode]);
            axes_print(p);
            for (int at = 0; at < p->count; at++)
                if (!run_program(p, device, mode, at, at)) {
                    printf("t%d is the first that is wrong alone\n", at);
                    break;
                }
            test_fail(__FILE__, __LINE__, "a random program over axes");
            fflush(stdout);
        }
        axes_free(p);
    }
}

/* ---- what failed once ---- */

static const char *const everywhere[] = {"ref", "cpu", "emu"};

/* A tape on the device, or NULL where it is not there. */
static qn_tape *tape_on(const char *device, qn_mode mode)
{
    qn_error error;
    qn_tape *tape;
    if (!context) EXPECT(!qn_context_open(NULL, &context, &error));
    if (!context || qn_tape_new(context, device, &tape, &error)) return NULL;
    qn_tape_set_mode(tape, mode);
    return tape;
}

static qn_tensor counted(qn_tape *tape, qn_shape shape)
{
    int64_t count = 1;
    for (int k = 0; k < shape.rank; k++) count *= shape.extents[k];
    return qn_reshape(
        qn_mod(qn_mul_scalar(qn_arange(tape, QN_F32, 0, (double)count, 1), 7), qn_scalar(tape, QN_F32, 23)), shape);
}

static void expect_zero(qn_tensor difference, const char *file, int line)
{
    qn_error error = {0};
    double value = 1;
    qn_status status = qn_tensor_item(qn_max(qn_abs(difference), QN_ALL, false), &value, &error);
    if (status || value != 0) {
        printf("%s: largest difference %g\n", error.message, value);
        test_fail(file, line, "two ways to one result");
    }
}

/* Windows of three axes beside five others: elements were found by an index of collapsed axes. */
TEST(windows_of_three_axes)
{
    for (int d = 0; d < 3; d++) {
        qn_tape *tape = tape_on(everywhere[d], QN_FUSED);
        if (!tape) continue;
        qn_tensor x = counted(tape, QN_SHAPE(2, 3, 4, 4, 4)), all = x, one = x;
        for (int axis = 2; axis < 5; axis++) all = qn_window(all, axis, 2, 1, 1);
        for (int axis = 2; axis < 5; axis++) one = qn_max(qn_window(one, axis, 2, 1, 1), QN_AXES(5), false);
        expect_zero(qn_sub(qn_max(all, QN_AXES(5, 6, 7), false), one), __FILE__, __LINE__);
        qn_tape_free(tape);
    }
}

/* A fold of eight axes of which none lie together in memory. */
TEST(folds_of_many_axes)
{
    for (int d = 0; d < 3; d++) {
        qn_tape *tape = tape_on(everywhere[d], QN_FUSED);
        if (!tape) continue;
        qn_tensor x = counted(tape, QN_SHAPE(6, 4, 4, 4));
        qn_tensor t = qn_window(qn_window(qn_window(x, 3, 3, 1, 1), 0, 2, 1, 1), 0, 2, 1, 1);
        qn_tensor y = qn_sum(t, QN_AXES(4), false), other = QN_NONE;
        for (int i = 0; i < 3; i++) { /* the same, place by place */
            qn_tensor part = qn_slice(x, 3, i, i + 2, 1);
            part = qn_window(qn_window(part, 0, 2, 1, 1), 0, 2, 1, 1);
            other = i ? qn_add(other, part) : part;
        }
        expect_zero(qn_sub(y, other), __FILE__, __LINE__);
        qn_tape_free(tape);
    }
}

/* A convolution of three axes as a window, a reshape and a convolution of two. */
TEST(convolution_of_three_axes)
{
    for (int d = 0; d < 3; d++) {
        qn_tape *tape = tape_on(everywhere[d], QN_FUSED);
        if (!tape) continue;
        qn_tensor x = counted(tape, QN_SHAPE(3, 2, 5, 5, 5)), w = counted(tape, QN_SHAPE(4, 2, 3, 3, 3));
        qn_tensor t = qn_permute(qn_window(x, 2, 3, 1, 1), QN_AXES(0, 2, 1, 5, 3, 4));
        qn_tensor u = qn_reshape(t, QN_SHAPE(9, 6, 5, 5));
        qn_tensor y = qn_conv2d(u, qn_reshape(w, QN_SHAPE(4, 6, 3, 3)), QN_NONE, NULL);
        y = qn_permute(qn_reshape(y, QN_SHAPE(3, 3, 4, 3, 3)), QN_AXES(0, 2, 1, 3, 4));
        qn_tensor sum = QN_NONE;
        for (int i = 0; i < 27; i++) { /* the same, place by place of the weights */
            int at[3] = {i / 9, i / 3 % 3, i % 3};
            qn_tensor part = x, weight = w;
            for (int k = 0; k < 3; k++) part = qn_slice(part, 2 + k, at[k], at[k] + 3, 1);
            for (int k = 0; k < 3; k++) weight = qn_index(weight, 2, at[k]);
            part = qn_reshape(part, QN_SHAPE(3, 2, 27));
            part = qn_reshape(qn_matmul(weight, part), QN_SHAPE(3, 4, 3, 3, 3));
            sum = i ? qn_add(sum, part) : part;
        }
        expect_zero(qn_sub(y, sum), __FILE__, __LINE__);
        qn_tape_free(tape);
    }
}

/* Integers are multiplied as a sum of products, which has one axis more. */
TEST(product_of_eight_axes)
{
    qn_tape *tape = tape_on("ref", QN_FUSED);
    qn_tensor x = qn_cast(counted(tape, QN_SHAPE(3, 1, 2, 2, 1, 3, 4, 5)), QN_I32), turned = qn_transpose(x, -2, -1);
    qn_tensor y = qn_matmul(x, turned), wide = qn_matmul(qn_cast(x, QN_F64), qn_cast(turned, QN_F64));
    EXPECT(qn_tensor_rank(y) == 8 && qn_tensor_dtype(y) == QN_I32);
    expect_zero(qn_sub(wide, qn_cast(y, QN_F64)), __FILE__, __LINE__);
    qn_tape_free(tape);
}

/* What a function makes (a result, its gradients by two inputs) on each device, fused and eager, beside the interpreter's eager. */
enum { MADE = 3 };
typedef void made(qn_tape *tape, qn_tensor *out);

static void expect_agreement(made *make, double tolerance, int line)
{
    qn_error error;
    qn_tensor should[MADE], is[MADE];
    qn_tape *eager = tape_on("ref", QN_EAGER);
    make(eager, should);
    EXPECT(!qn_eval(eager, should, MADE, &error));
    for (int i = 0; i < 5; i++) { /* not eager on emu: a compiler for each op */
        qn_tape *tape = tape_on(everywhere[i / 2], i % 2 ? QN_EAGER : QN_FUSED);
        if (!tape) continue;
        make(tape, is);
        error = (qn_error){0};
        bool fine = !qn_eval(tape, is, MADE, &error);
        for (int k = 0; k < MADE && fine; k++) {
            qn_comparison c;
            fine = !qn_tensor_compare(is[k], should[k], tolerance, tolerance, &c, &error) && !c.beyond;
            if (!fine) printf("result %d: %lld of %lld\n", k, (long long)c.beyond, (long long)c.count);
        }
        if (!fine) {
            printf("%s %s: %s\n", everywhere[i / 2], modes[i % 2], error.message);
            test_fail(__FILE__, line, "a function on a device");
        }
        qn_tape_free(tape);
    }
    qn_tape_free(eager);
}

/* An input in memory. */
static qn_tensor input(qn_tape *tape, qn_dtype type, qn_shape shape)
{
    qn_error error;
    qn_tensor x = qn_cast(counted(tape, shape), type);
    EXPECT(!qn_eval(tape, &x, 1, &error));
    return x;
}

static void with_gradients(qn_tensor y, qn_tensor a, qn_tensor b, qn_tensor *out)
{
    qn_tensor ones = qn_add_scalar(qn_mul_scalar(y, 0), 1);
    out[0] = y;
    qn_grad_from(&y, &ones, 1, (qn_tensor[]){a, b}, 2, out + 1);
}

/* The slice at the end of this gradient has rows that are found by quotients and columns that are not: its array was read by
 * its own axes, of which the last was left, and the gradient was 0 everywhere. */
static void strides_and_dilations(qn_tape *tape, qn_tensor *out)
{
    qn_tensor x = input(tape, QN_F32, QN_SHAPE(4, 4, 9, 22)), w = input(tape, QN_F32, QN_SHAPE(6, 2, 2, 2));
    qn_conv_options options = {.stride = {2, 2}, .padding = {2, 2}, .dilation = {1, 2}, .groups = 2};
    with_gradients(qn_conv(x, w, QN_NONE, &options), x, w, out);
}

/* The largest of a window went through memory as bf16, and what was compared with it was computed once more in f32: nearly
 * nothing was equal, and the gradient was 0. */
static void slope_of_pool(qn_tape *tape, qn_dtype type, qn_tensor *out)
{
    qn_pool_options options = {.stride = {1, 1}, .padding = {1, 1}};
    qn_tensor x = input(tape, type, QN_SHAPE(2, 40, 40));
    with_gradients(qn_max_pool(qn_mul_scalar(x, 1.1), QN_SHAPE(3, 3), &options), x, x, out);
}

static void slope_of_pool_bf16(qn_tape *tape, qn_tensor *out)
{
    slope_of_pool(tape, QN_BF16, out);
}

static void slope_of_pool_f16(qn_tape *tape, qn_tensor *out)
{
    slope_of_pool(tape, QN_F16, out);
}

/* A pad that readers had copies of, and whose own kernel was gone: when a reader fell apart nothing computed it any more. */
static void pads_of_readers(qn_tape *tape, qn_tensor *out)
{
    qn_tensor x = input(tape, QN_F32, QN_SHAPE(2, 1, 12)), w = input(tape, QN_F32, QN_SHAPE(1, 1, 2));
    qn_conv_options options = {.stride = {3}, .output_padding = {1}, .groups = 1, .dilation = {1}};
    qn_tensor y = qn_mean(qn_window(qn_window(x, 2, 1, 4, 2), 2, 2, 1, 2), QN_AXES(3, 4), false);
    y = qn_mul_scalar(qn_conv_transpose(qn_add(y, y), w, QN_NONE, &options), 0.25);
    y = qn_pad(y, QN_SHAPE(0, 1, 1), QN_SHAPE(0, 1, 5), 0);
    y = qn_max(qn_window(qn_window(y, 1, 3, 4, 1), 0, 2, 3, 1), QN_AXES(3, 4), true);
    with_gradients(qn_max(y, QN_AXES(2), true), x, w, out);
}

TEST(gradients_of_windows)
{
    expect_agreement(strides_and_dilations, 1e-5, __LINE__);
    expect_agreement(slope_of_pool_bf16, 0.02, __LINE__);
    expect_agreement(slope_of_pool_f16, 0.02, __LINE__);
    expect_agreement(pads_of_readers, 1e-5, __LINE__);
}

/* A pad of batches behind a product: one operand alone had zeros there, the other one was read beyond its end, where NaN
 * lies here. */
TEST(pads_of_batches)
{
    enum { EACH = 4 * 5 * 4 };
    float around[6 * EACH], padded[4 * 4 * 25], apart[3 * 4 * 25];
    for (int i = 0; i < 6 * EACH; i++) around[i] = i < 3 * EACH ? (float)(i * 7 % 23) : NAN;
    for (int d = 0; d < 3; d++) {
        qn_tape *tape = tape_on(everywhere[d], QN_FUSED);
        qn_error error;
        if (!tape) continue;
        qn_tensor x = qn_slice(qn_from_memory(tape, around, QN_F32, QN_SHAPE(6, 4, 5, 4)), 0, 0, 3, 1);
        qn_tensor product = qn_matmul(x, qn_transpose(x, -2, -1));
        qn_tensor pad = qn_pad(product, QN_SHAPE(-1, 0, 0, 0), QN_SHAPE(2, 0, 0, 0), 0);
        EXPECT(!qn_tensor_read(pad, padded, sizeof(padded), &error));
        EXPECT(!qn_tensor_read(product, apart, sizeof(apart), &error));
        int wrong = 0;
        for (int i = 0; i < 4 * 100; i++) wrong += padded[i] != (i < 200 ? apart[i + 100] : 0);
        if (wrong) printf("%s: %d elements\n", everywhere[d], wrong);
        EXPECT(!wrong);
        qn_tape_free(tape);
    }
}

TEST(on_ref)
{
    int count = count_from("QUERN_AXES", "programs over axes", 120);
    run_seeds("ref", QN_FUSED, count);
    run_seeds("ref", QN_EAGER, count);
    run_seeds("ref", QN_STRICT, count);
}

TEST(on_cpu)
{
    int count = count_from("QUERN_AXES", "programs over axes", 12);
    run_seeds("cpu", QN_FUSED, count);
    run_seeds("cpu", QN_EAGER, count);
    run_seeds("cpu", QN_STRICT, count);
}

TEST(on_emu)
{
    run_seeds("emu", QN_FUSED, count_from("QUERN_AXES", "programs over axes", 3));
}

TEST_MAIN(CASE(windows_of_three_axes), CASE(folds_of_many_axes), CASE(convolution_of_three_axes),
          CASE(product_of_eight_axes), CASE(gradients_of_windows), CASE(pads_of_batches), CASE(on_ref), CASE(on_cpu),
          CASE(on_emu))
