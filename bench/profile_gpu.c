/*
 * The profiler on a GPU: times of kernels, and what profiling costs. In: nothing but a GPU and kernels/. Out: with
 * `kernels`, the mean device time of each kernel as the profile has it; with `plain`, the same launches without a profile
 * (for ncu and for PyTorch's profiler: bench/profile_gpu.py compares all three); with `overhead`, the step time of a
 * captured perceptron (16 layers of 128) unprofiled, with graphs as one, kernel by kernel, and with events; with
 * `counters`, what the hardware counts in each kernel; with `stalls`, where its warps wait.
 *
 * Usage: build/bench_profile kernels|plain|overhead|counters|stalls [FOLDER of kernels]. As a shared library, profile_gpu_plain makes the
 * launches inside of another program.
 * SPDX-License-Identifier: MIT
 */
#include "ratios.h"

#include <math.h>
#include <quern/device.h>
#include <quern/nn.h>
#include <quern/profile.h>
#include <quern/tensor.h>
#include <string.h>

enum { LAUNCHES = 20, LAYERS = 16, WIDTH = 128, ROUNDS = 41 };

typedef struct kernel_case {
    const char *file, *kernel;
    int rank;
    int64_t extents[2];
    bool gain; /* and bias: of layer norm */
} kernel_case;

static const kernel_case cases[] = {{"gelu.qn", "gelu_tile", 1, {1 << 26}, false},
                                    {"softmax.qn", "softmax_row", 2, {8192, 8192}, false},
                                    {"softmax.qn", "softmax_online", 2, {8192, 8192}, false},
                                    {"layernorm.qn", "layer_norm", 2, {16384, 4096}, true},
                                    {"gelu.qn", "gelu_builtin", 1, {1 << 22}, false}};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static qn_context *context;
static qn_stream *stream;
static qn_call *calls[CASES];
static qn_buffer *buffers[4];

static void open_case(const kernel_case *c, const char *folder, qn_call **call)
{
    qn_error error;
    qn_module *module;
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, c->file);
    TRY(qn_module_load_file(context, path, &module, &error));
    TRY(qn_call_new(module, c->kernel, call, &error));
    TRY(qn_call_set_buffer(*call, "x", buffers[0], 0, QN_F32, c->rank, c->extents, NULL, &error));
    TRY(qn_call_set_buffer(*call, "y", buffers[1], 0, QN_F32, c->rank, c->extents, NULL, &error));
    if (!c->gain) return;
    TRY(qn_call_set_buffer(*call, "gain", buffers[2], 0, QN_F32, 1, &c->extents[1], NULL, &error));
    TRY(qn_call_set_buffer(*call, "bias", buffers[3], 0, QN_F32, 1, &c->extents[1], NULL, &error));
}

static void open_all(const char *folder)
{
    qn_error error;
    if (context) return;
    TRY(qn_context_open(NULL, &context, &error));
    TRY(qn_stream_new(context, "cuda", &stream, &error));
    const size_t large = sizeof(float) << 26, small = sizeof(float) << 13;
    for (int i = 0; i < 4; i++) TRY(qn_buffer_new_on(context, "cuda", i < 2 ? large : small, &buffers[i], &error));
    float *values = malloc(large);
    if (!values) exit(1);
    for (size_t i = 0; i < large / sizeof(float); i++) values[i] = (float)(i * 2654435761u % 1000) / 500 - 1;
    for (int i = 0; i < 4; i++) TRY(qn_buffer_write(buffers[i], 0, values, i < 2 ? large : small, NULL, &error));
    free(values);
    for (int i = 0; i < CASES; i++) open_case(&cases[i], folder, &calls[i]);
}

/* One at a time: a kernel that comes while the one before it ends is there for longer, which ncu does not let happen. */
static void launch_all(int launches)
{
    qn_error error;
    for (int i = 0; i < CASES; i++)
        for (int l = 0; l < launches; l++) {
            TRY(qn_call_launch(calls[i], stream, &error));
            TRY(qn_stream_wait(stream, &error));
        }
}

/* The launches alone, for other profilers. */
__attribute__((visibility("default"))) int profile_gpu_plain(const char *folder, int launches);
int profile_gpu_plain(const char *folder, int launches)
{
    open_all(folder);
    launch_all(launches);
    return 0;
}

static void print_source(qn_profile *p)
{
    qn_profile_totals totals;
    qn_profile_get_totals(p, &totals);
    printf("source %s, %lld records, %lld dropped", totals.device_source ? totals.device_source : "none",
           (long long)totals.device_records, (long long)totals.device_dropped);
    if (!isnan(totals.device_overhead_share)) printf(", overhead %.2f %%", 100 * totals.device_overhead_share);
    printf("\n");
    if (totals.device_reason) printf("%s\n", totals.device_reason);
}

static void time_kernels(const char *folder)
{
    qn_error error;
    qn_profile *p;
    open_all(folder);
    launch_all(5);
    TRY(qn_profile_start(context, NULL, &p, &error));
    launch_all(LAUNCHES);
    TRY(qn_profile_stop(p, &error));
    print_source(p);
    for (int i = 0; i < CASES; i++) {
        qn_profile_sum sum;
        if (qn_profile_find(p, cases[i].kernel, &sum) && sum.calls)
            printf("kernel %s %.3f us %lld launches\n", cases[i].kernel,
                   (double)sum.device_ns / (double)sum.calls * 1e-3, (long long)sum.calls);
    }
    qn_profile_free(p);
}

static void count_kernels(const char *folder)
{
    qn_error error;
    open_all(folder);
    for (int i = 0; i < CASES; i++) {
        qn_counters c;
        TRY(qn_call_count(calls[i], "cuda", &c, &error));
        printf("%s: %s, %d launches\n", cases[i].kernel, c.source, c.launches);
        for (int k = 0; k < c.count; k++)
            if (c.items[k].why)
                printf("  %-30s %s\n", c.items[k].name, c.items[k].why);
            else
                printf("  %-30s %.6g %s\n", c.items[k].name, c.items[k].value, c.items[k].unit);
    }
}

static void sample_kernels(const char *folder)
{
    qn_error error;
    open_all(folder);
    for (int i = 1; i < 2; i++) { /* CUPTI samples one in a process */
        qn_samples s;
        TRY(qn_call_sample(calls[i], "cuda", &s, &error));
        printf("%s: %lld samples, %lld dropped\n", cases[i].kernel, (long long)s.total, (long long)s.dropped);
        for (int k = 0; k < s.count && k < 8; k++)
            printf("  %5.1f %%  line %-4d %s (%lld of %lld)\n", 100.0 * (double)s.items[k].samples / (double)s.total,
                   s.items[k].line, s.items[k].reason, (long long)s.items[k].reason_samples,
                   (long long)s.items[k].samples);
    }
}

/* ---- what it costs ---- */

static qn_plan *capture_perceptron(qn_tape **out)
{
    qn_error error;
    qn_tape *tape;
    qn_plan *plan;
    qn_tensor parameters[2 * LAYERS], results[1 + 2 * LAYERS];
    TRY(qn_tape_new(context, "cuda", &tape, &error));
    qn_tape_set_tf32(tape, true);
    qn_tensor x = qn_variable(qn_randn(tape, QN_F32, QN_SHAPE(WIDTH, WIDTH)));
    for (int i = 0; i < LAYERS; i++) {
        const double scale = 1 / sqrt((double)WIDTH);
        parameters[2 * i] = qn_variable(qn_mul_scalar(qn_randn(tape, QN_F32, QN_SHAPE(WIDTH, WIDTH)), scale));
        parameters[2 * i + 1] = qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(WIDTH)));
    }
    TRY(qn_eval(tape, NULL, 0, &error));
    TRY(qn_capture_begin(tape, &error));
    qn_tensor y = x;
    for (int i = 0; i < LAYERS; i++) y = qn_gelu(qn_linear(y, parameters[2 * i], parameters[2 * i + 1]));
    results[0] = qn_mean(y, QN_ALL, false);
    qn_grad(results[0], parameters, 2 * LAYERS, results + 1);
    TRY(qn_eval(tape, results, 1 + 2 * LAYERS, &error));
    TRY(qn_capture_end(tape, &plan, &error));
    *out = tape;
    return plan;
}

static double step_us(qn_plan *plan, int steps)
{
    qn_error error;
    TRY(qn_device_wait(context, "cuda", &error));
    double start = now_ns();
    for (int i = 0; i < steps; i++) TRY(qn_plan_replay(plan, &error));
    TRY(qn_device_wait(context, "cuda", &error));
    return (now_ns() - start) * 1e-3 / steps;
}

typedef struct mode {
    const char *name, *source;
    bool on, nodes;
} mode;

static void time_overhead(void)
{
    static const mode modes[] = {{"not profiled", "", false, false},
                                 {"graphs as one", "cupti", true, false},
                                 {"kernel by kernel", "cupti", true, true},
                                 {"events", "events", true, false}};
    enum { MODES = sizeof(modes) / sizeof(modes[0]), STEPS = 100 };
    static double samples[MODES][ROUNDS];
    qn_error error;
    qn_tape *tape;
    TRY(qn_context_open(NULL, &context, &error));
    qn_plan *plan = capture_perceptron(&tape);
    step_us(plan, STEPS);
    for (int round = 0; round < ROUNDS; round++) /* in turns, so that clocks are the same for all */
        for (int m = 0; m < MODES; m++) {
            qn_profile *p = NULL;
            qn_profile_options options = {.graph_nodes = modes[m].nodes};
            setenv("QUERN_PROFILE_DEVICE", modes[m].source, 1);
            if (modes[m].on) TRY(qn_profile_start(context, &options, &p, &error));
            step_us(plan, 5);
            samples[m][round] = step_us(plan, STEPS);
            if (!p) continue;
            TRY(qn_profile_stop(p, &error));
            if (round == ROUNDS - 1) print_source(p);
            qn_profile_free(p);
        }
    for (int m = 0; m < MODES; m++) {
        qsort(samples[m], ROUNDS, sizeof(double), by_value);
        printf("step, %-18s %8.2f us  %+.2f %%\n", modes[m].name, samples[m][ROUNDS / 2],
               100 * (samples[m][ROUNDS / 2] / samples[0][ROUNDS / 2] - 1));
    }
    qn_plan_free(plan);
    qn_tape_free(tape);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "", *folder = count > 2 ? words[2] : "kernels";
    if (!strcmp(what, "kernels")) {
        time_kernels(folder);
    } else if (!strcmp(what, "plain")) {
        profile_gpu_plain(folder, 5);
        profile_gpu_plain(folder, LAUNCHES);
    } else if (!strcmp(what, "counters")) {
        count_kernels(folder);
    } else if (!strcmp(what, "stalls")) {
        sample_kernels(folder);
    } else if (!strcmp(what, "overhead")) {
        time_overhead();
    } else {
        fprintf(stderr, "usage: bench_profile kernels|plain|overhead|counters|stalls [FOLDER]\n");
        return 2;
    }
    return 0;
}
