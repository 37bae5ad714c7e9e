/*
 * How far verdicts can be trusted: comparisons of a kernel with itself, and with itself at 3 percent more work, many
 * times over. At most 2 percent of the first may be called FASTER or SLOWER, at least 95 percent of the second SLOWER.
 *
 * Usage: build/bench_trials [--device NAME] [--trials N] [--seconds S] [--planted PERCENT] [--threads N]
 * [--only same|planted] [--samples FILE]. --samples keeps the times of the kernel as text, a line for each sample:
 * recorded noise.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "ratios.h"

#include <quern/bench.h>
#include <stdint.h>
#include <string.h>

static const char source[] = "kernel work(in float x[n], out float y[n], const int B = 256) launch (cdiv(n, B))\n"
                             "{\n"
                             "    int i = program(0) * B;\n"
                             "    y[i : B] = exp(x[i : B]) * 0.5 + x[i : B];\n"
                             "}\n";

/* Both sides work on the same arrays, as the variants of a bench do: where an array lies in memory is no property of a
 * kernel, and can make several percent. */
typedef struct side {
    qn_call *call;
    qn_stream *stream;
    const char *device;
} side;

static qn_context *context;
static qn_buffer *x, *y;

static void make_side(side *s, qn_module *module, const char *device, int64_t n, qn_stream *stream)
{
    qn_error error;
    *s = (side){.stream = stream, .device = device};
    TRY(qn_call_new(module, "work", &s->call, &error));
    TRY(qn_call_set_buffer(s->call, "x", x, 0, QN_F32, 1, &n, NULL, &error));
    TRY(qn_call_set_buffer(s->call, "y", y, 0, QN_F32, 1, &n, NULL, &error));
}

static void launch(void *user)
{
    side *s = user;
    qn_error error;
    if (s->stream)
        TRY(qn_call_launch(s->call, s->stream, &error));
    else
        TRY(qn_call_run(s->call, s->device, &error));
}

typedef struct tally {
    int counts[5];
    double worst; /* of the ratios, how far from what they should be */
    double seconds;
} tally;

static tally run_trials(qn_module *module, const char *device, int64_t n, double planted, int trials, double seconds)
{
    tally t = {0};
    qn_error error;
    double start_ns = now_ns();
    qn_stream *stream = NULL;
    if (strncmp(device, "cpu", 3) != 0) TRY(qn_stream_new(context, device, &stream, &error));
    for (int trial = 0; trial < trials; trial++) {
        side base, other;
        qn_bench_comparison c;
        qn_time_options options = {.seconds = seconds, .seed = (uint64_t)trial + 1, .stream = stream};
        make_side(&base, module, device, n, stream);
        make_side(&other, module, device, (int64_t)((double)n * (1 + planted)), stream);
        TRY(qn_bench_compare(launch, &base, launch, &other, &options, &c, &error));
        t.counts[c.verdict]++;
        double off = c.ratio / (1 + planted) - 1;
        if (off < 0) off = -off;
        if (off > t.worst) t.worst = off;
        qn_call_free(base.call);
        qn_call_free(other.call);
    }
    qn_stream_free(stream);
    t.seconds = (now_ns() - start_ns) * 1e-9;
    return t;
}

static void print(const char *name, const tally *t, int trials)
{
    printf("%-22s %d trials in %.0f s: %d FASTER, %d SLOWER, %d SAME, %d AMBIGUOUS; ratios at most %.1f%% off\n", name,
           trials, t->seconds, t->counts[QN_FASTER], t->counts[QN_SLOWER], t->counts[QN_SAME], t->counts[QN_AMBIGUOUS],
           t->worst * 100);
    fflush(stdout);
}

/* Recorded noise: samples of one function, as they were taken. */
static void record(qn_module *module, const char *device, int64_t n, double seconds, const char *path)
{
    side s;
    qn_error error;
    qn_bench_time time;
    qn_time_options options = {.seconds = seconds, .precision = 1e-9};
    make_side(&s, module, device, n, NULL);
    TRY(qn_bench(launch, &s, &options, &time, &error));
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "cannot write %s\n", path);
        exit(2);
    }
    for (int i = 0; i < time.sample_count; i++) fprintf(file, "%.0f\n", time.samples_ns[i]);
    fclose(file);
    qn_bench_time_free(&time);
    qn_call_free(s.call);
}

int main(int count, char **words)
{
    const char *device = NULL, *samples = NULL, *only = "";
    int trials = 200, threads = 1, bad = 0;
    double seconds = 0.25, planted = 3;
    qn_error error;
    qn_module *module;
    for (int i = 1; i + 1 < count; i += 2) {
        if (!strcmp(words[i], "--device")) device = words[i + 1];
        if (!strcmp(words[i], "--trials")) trials = atoi(words[i + 1]);
        if (!strcmp(words[i], "--only")) only = words[i + 1];
        if (!strcmp(words[i], "--threads")) threads = atoi(words[i + 1]);
        if (!strcmp(words[i], "--seconds")) seconds = atof(words[i + 1]);
        if (!strcmp(words[i], "--planted")) planted = atof(words[i + 1]);
        if (!strcmp(words[i], "--samples")) samples = words[i + 1];
    }
    qn_context_options options = {.threads = threads};
    TRY(qn_context_open(&options, &context, &error));
    if (!device) device = qn_device_best(context);
    TRY(qn_module_load_text(context, "work.qn", source, &module, &error));
    int64_t n = strncmp(device, "cuda", 4) ? 1 << 14 : 1 << 24;
    TRY(qn_buffer_new_on(context, device, (size_t)n * 8, &x, &error)); /* twice as large, for what is planted */
    TRY(qn_buffer_new_on(context, device, (size_t)n * 8, &y, &error));
    if (samples) {
        record(module, device, n, seconds, samples);
    } else {
        if (strcmp(only, "planted") != 0) {
            tally t = run_trials(module, device, n, 0, trials, seconds);
            print("the same", &t, trials);
            bad |= (t.counts[QN_FASTER] + t.counts[QN_SLOWER]) * 50 > trials;
        }
        if (strcmp(only, "same") != 0) {
            tally t = run_trials(module, device, n, planted * 0.01, trials, seconds);
            print("planted slowdown", &t, trials);
            bad |= t.counts[QN_SLOWER] * 100 < 95 * trials;
        }
        printf("%s\n", bad ? "BELOW the bar" : "within the bar");
    }
    qn_buffer_release(x);
    qn_buffer_release(y);
    qn_module_free(module);
    qn_context_close(context);
    return bad;
}
