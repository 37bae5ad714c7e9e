/*
 * Attention at the tensor level: time of the forward pass, and of forward and gradients together, with the error against
 * the same function op by op in f32 on the same device, and whether the gradients have the same bits twice.
 *
 * Usage: build/bench_attention [--device cuda] [--only WORD] [--check]. --check: a small shape of each kind, errors only.
 * Figures are medians of replays of a recorded plan. bench/attention_peers.py measures PyTorch's cuDNN on the same work.
 * SPDX-License-Identifier: MIT
 */
#include "ratios.h"

#include <math.h>
#include <quern/device.h>
#include <quern/nn.h>
#include <quern/tensor.h>
#include <quern/train.h>
#include <stdbool.h>
#include <string.h>

enum { SAMPLES = 9, RESULTS = 4 };

typedef struct attention {
    const char *name;
    int64_t batch, heads, rows, columns, depth;
    bool causal;
} attention;

static const attention shapes[] = {
    {"head 128, 4096, full", 4, 16, 4096, 4096, 128, false},
    {"head 128, 4096, causal", 4, 16, 4096, 4096, 128, true},
    {"head 128, 16384, full", 1, 16, 16384, 16384, 128, false},
    {"head 128, 16384, causal", 1, 16, 16384, 16384, 128, true},
    {"head 64, 4096, full", 4, 32, 4096, 4096, 64, false},
    {"head 64, 4096, causal", 4, 32, 4096, 4096, 64, true},
    {"head 96, 4096, full", 4, 16, 4096, 4096, 96, false},
    {"head 192, 4096, full", 4, 16, 4096, 4096, 192, false},
    {"head 256, 4096, full", 4, 8, 4096, 4096, 256, false},
    {"head 256, 4096, causal", 4, 8, 4096, 4096, 256, true},
};

static const char *device = "cuda";
static qn_context *context;
static qn_error error;

static qn_tensor normal(qn_tape *tape, qn_dtype type, qn_shape shape)
{
    qn_tensor t = qn_randn(tape, type, shape);
    TRY(qn_eval(tape, &t, 1, &error));
    return t;
}

/* Results: the output alone (1), with the queries' gradient (2), or with those of keys and values, too (4). */
static void compute(const attention *a, const qn_tensor *in, int count, qn_tensor *out)
{
    out[0] = qn_scaled_dot_product_attention(in[0], in[1], in[2], QN_NONE, a->causal, 0);
    if (count > 1) qn_grad(qn_sum(qn_mul(out[0], in[3]), QN_ALL, false), in, count - 1, out + 1);
}

static void make(const attention *a, qn_tape *tape, qn_tensor *in)
{
    for (int i = 0; i < 4; i++)
        in[i] = normal(tape, QN_BF16, QN_SHAPE(a->batch, a->heads, i % 3 ? a->columns : a->rows, a->depth));
}

/* On a tape of its own: what another evaluation left would not be computed again. */
static double time_ns(const attention *a, int count)
{
    qn_tensor in[4], out[RESULTS];
    qn_tape *tape;
    qn_plan *plan;
    TRY(qn_tape_new(context, device, &tape, &error));
    make(a, tape, in);
    TRY(qn_capture_begin(tape, &error));
    compute(a, in, count, out);
    TRY(qn_eval(tape, out, count, &error));
    TRY(qn_capture_end(tape, &plan, &error));
    double samples[SAMPLES];
    int replays = 1;
    for (int i = -1; i < SAMPLES; i++) {
        double start = now_ns();
        for (int k = 0; k < replays; k++) TRY(qn_plan_replay(plan, &error));
        TRY(qn_device_wait(context, device, &error));
        double ns = (now_ns() - start) / replays;
        if (i >= 0)
            samples[i] = ns;
        else
            replays = (int)fmin(fmax(1.5e7 / ns, 1), 100);
    }
    qn_plan_free(plan);
    qn_tape_free(tape);
    qsort(samples, SAMPLES, sizeof(*samples), by_value);
    return samples[SAMPLES / 2];
}

/* The largest difference, in units of the largest number. */
static double difference(qn_tensor a, qn_tensor b)
{
    double numbers[2];
    qn_tensor far = qn_max(qn_abs(qn_sub(qn_cast(a, QN_F32), qn_cast(b, QN_F32))), QN_ALL, false);
    qn_tensor most = qn_max(qn_abs(qn_cast(b, QN_F32)), QN_ALL, false);
    TRY(qn_tensor_read(qn_cast(far, QN_F64), &numbers[0], sizeof(double), &error));
    TRY(qn_tensor_read(qn_cast(most, QN_F64), &numbers[1], sizeof(double), &error));
    return numbers[0] / numbers[1];
}

static void check(const attention *a)
{
    qn_tape *fast, *truth;
    TRY(qn_tape_new(context, device, &fast, &error));
    TRY(qn_tape_new(context, device, &truth, &error));
    qn_tape_set_mode(truth, QN_EAGER);
    attention small = *a;
    small.batch = 1;
    small.heads = 3;
    small.rows = 1000;
    small.columns = small.causal ? 1000 : 777;
    qn_tensor in[4], out[RESULTS], again[RESULTS], wide[4], same[4], expected[RESULTS];
    make(&small, fast, in);
    compute(&small, in, RESULTS, out);
    TRY(qn_eval(fast, out, RESULTS, &error));
    for (int i = 0; i < 4; i++) {
        int64_t count = small.heads * (i % 3 ? small.columns : small.rows) * small.depth;
        float *x = malloc(sizeof(float) * (size_t)count);
        TRY(qn_tensor_read(qn_cast(in[i], QN_F32), x, sizeof(float) * (size_t)count, &error));
        wide[i] = qn_from_memory(truth, x, QN_F32, qn_tensor_shape(in[i]));
        same[i] = qn_cast(qn_from_memory(fast, x, QN_F32, qn_tensor_shape(in[i])), QN_BF16);
        free(x);
    }
    TRY(qn_eval(fast, same, 4, &error));
    compute(&small, same, RESULTS, again);
    TRY(qn_eval(fast, again, RESULTS, &error));
    compute(&small, wide, RESULTS, expected);
    printf("%-26s errors", a->name);
    for (int i = 0; i < RESULTS; i++) {
        int64_t count = small.heads * (i > 1 ? small.columns : small.rows) * small.depth;
        float *x = malloc(sizeof(float) * (size_t)count);
        TRY(qn_tensor_read(expected[i], x, sizeof(float) * (size_t)count, &error));
        qn_tensor other = qn_from_memory(fast, x, QN_F32, qn_tensor_shape(out[i]));
        free(x);
        printf(" %.2e%s", difference(out[i], other), difference(out[i], again[i]) == 0 ? "" : " (other bits twice)");
    }
    printf("\n");
    qn_tape_free(fast);
    qn_tape_free(truth);
}

int main(int argc, char **argv)
{
    const char *only = "";
    bool checks = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--check")) checks = true;
        if (!strcmp(argv[i], "--device") && i + 1 < argc) device = argv[++i];
        if (!strcmp(argv[i], "--only") && i + 1 < argc) only = argv[++i];
    }
    TRY(qn_context_open(NULL, &context, &error));
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        const attention *a = &shapes[i];
        if (!strstr(a->name, only)) continue;
        if (checks) {
            check(a);
            continue;
        }
        double work = 4.0 * (double)(a->batch * a->heads * a->rows * a->columns * a->depth) / (a->causal ? 2 : 1);
        double forward = time_ns(a, 1), queries = time_ns(a, 2), both = time_ns(a, RESULTS);
        printf("%-26s forward %8.1f us %5.0f TFLOP/s   backward %8.1f us %5.0f TFLOP/s, of queries %8.1f us\n", a->name,
               forward / 1e3, work / forward / 1e3, (both - forward) / 1e3, 2.5 * work / (both - forward) / 1e3,
               (queries - forward) / 1e3);
        fflush(stdout);
    }
    qn_context_close(context);
    return 0;
}
