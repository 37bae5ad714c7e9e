/*
 * The bars of the tensor level as ratios of one run: work spelled from the operations of <quern/tensor.h>, recorded as a
 * plan and replayed, against the best copy of the same bytes; training steps of perceptrons; host costs; compile times.
 *
 * Usage: build/bench_tensor [--device cuda|cpu] [--quick] [--rows: those of tensor_rows.c instead] [--small: work below a megabyte] [--json FILE] [--only WORD]
 * [--bench FOLDER] [--once: each step once, for ncu] [--scale N: shapes divided by N, to see whether all works]. A sample is the time of enough replays in a row to
 * take 20 ms (quick: 8); a figure is the median (on the CPU: the best) of the samples, which a workload and its copies take in turns. A plan goes through several sets
 * of tensors where one would fit the L2. bench/tensor_peers.py measures PyTorch on the same work, bench/tensor_table.py joins both.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "ratios.h"
#include "tensor_workloads.h"

#include <math.h>
#include <quern/train.h>
#include <quern/nn.h>
#include <quern/workbench.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SETS = 8, MOST_SAMPLES = 31 };

static const char *device = "cuda", *only, *bench_folder = "bench";
static bool quick, gpu, rows, once, little;
static qn_context *context;
static FILE *json;
static int below, json_count;
static double last_cache_bytes = 60e6;
static int64_t scale = 1;

/* The median; on the CPU the best, since other work on the machine only ever makes things slower. */
static double typical(double *samples, int count)
{
    qsort(samples, (size_t)count, sizeof(*samples), by_value);
    if (!gpu) return samples[0];
    return count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
}

static void put_json(const char *name, double ns, double bytes, double ratio, double bar, int kernels)
{
    if (!json) return;
    fprintf(json,
            "%s\n  {\"name\": \"%s\", \"ns\": %.1f, \"bytes\": %.0f, \"ratio\": %.4f, \"bar\": %.3f, \"kernels\": %d}",
            json_count++ ? "," : "", name, ns, bytes, ratio, bar, kernels);
    fflush(json);
}

/* ---- copies of the same bytes ---- */

typedef struct copies {
    qn_buffer *from[MOST_SETS], *to[MOST_SETS];
    qn_call *calls[MOST_SETS];
    int sets;
    size_t half;
    qn_stream *stream;
    qn_module *module;
} copies;

static copies copies_new(double bytes)
{
    qn_error error;
    copies c = {.half = (size_t)(bytes / 2) / 64 * 64};
    if (!gpu) return c;
    c.sets = (int)fmin(fmax(ceil(4 * last_cache_bytes / (2.0 * (double)c.half)), 1), MOST_SETS);
    char path[1024];
    int64_t floats = (int64_t)(c.half / 4);
    snprintf(path, sizeof(path), "%s/gpu.qn", bench_folder);
    TRY(qn_stream_new(context, device, &c.stream, &error));
    TRY(qn_module_load_file(context, path, &c.module, &error));
    for (int s = 0; s < c.sets; s++) {
        TRY(qn_buffer_new_on(context, device, c.half, &c.from[s], &error));
        TRY(qn_buffer_new_on(context, device, c.half, &c.to[s], &error));
        TRY(qn_call_new(c.module, "copy_vector", &c.calls[s], &error));
        TRY(qn_call_set_buffer(c.calls[s], "x", c.from[s], 0, QN_F32, 1, &floats, NULL, &error));
        TRY(qn_call_set_buffer(c.calls[s], "y", c.to[s], 0, QN_F32, 1, &floats, NULL, &error));
    }
    return c;
}

static void copies_free(copies *c)
{
    qn_stream_free(c->stream);
    for (int s = 0; s < c->sets; s++) {
        qn_call_free(c->calls[s]);
        qn_buffer_release(c->from[s]);
        qn_buffer_release(c->to[s]);
    }
    qn_module_free(c->module);
}

/* ns of one copy, by the device's own function or by a kernel. */
static double copy_sample(copies *c, bool kernel, int count)
{
    qn_error error;
    if (!gpu) {
        qn_ceilings measured;
        TRY(qn_measure(context, device, c->half, &measured, &error));
        return 2 * (double)c->half / measured.copy_gb_per_s;
    }
    double start = now_ns();
    for (int i = 0; i < count; i++) {
        int s = i % c->sets;
        if (kernel)
            TRY(qn_call_launch(c->calls[s], c->stream, &error));
        else
            TRY(qn_buffer_copy(c->to[s], 0, c->from[s], 0, c->half, c->stream, &error));
    }
    TRY(qn_stream_wait(c->stream, &error));
    return (now_ns() - start) / count;
}

/* ---- workloads ---- */

static qn_tensor normal(qn_tape *tape, qn_dtype type, qn_shape shape)
{
    qn_error error;
    qn_tensor t = qn_randn(tape, type, shape);
    TRY(qn_eval(tape, &t, 1, &error));
    return t;
}

void make_one(const workload *w, qn_tape *tape, inputs *in)
{
    in->tensors[in->count++] = normal(tape, w->type, QN_SHAPE(w->rows, w->columns));
}

void make_two(const workload *w, qn_tape *tape, inputs *in)
{
    make_one(w, tape, in);
    make_one(w, tape, in);
}

static void step_gelu(const workload *w, const inputs *in, built *out)
{
    qn_tensor x = in->tensors[0], cube = qn_mul(qn_mul(x, x), x);
    qn_tensor inner = qn_mul_scalar(qn_add(x, qn_mul_scalar(cube, 0.044715)), 0.7978845608);
    out->results[out->count++] = qn_mul(qn_mul_scalar(x, 0.5), qn_add_scalar(qn_tanh(inner), 1));
}

static void step_softmax(const workload *w, const inputs *in, built *out)
{
    qn_tensor x = in->tensors[0], e = qn_exp(qn_sub(x, qn_max(x, QN_AXES(-1), true)));
    out->results[out->count++] = qn_div(e, qn_sum(e, QN_AXES(-1), true));
}

/* Along axis 0 of [rows][columns]: rows that lie across memory. */
static void step_softmax_across(const workload *w, const inputs *in, built *out)
{
    (void)w;
    out->results[out->count++] = qn_softmax(in->tensors[0], 0);
}

static void step_cumsum(const workload *w, const inputs *in, built *out)
{
    (void)w;
    out->results[out->count++] = qn_cumsum(in->tensors[0], 1);
}

/* Pixels of channels: [64][rows][columns / 64] folded over the first axis and the last. */
static void step_channels(const workload *w, const inputs *in, built *out)
{
    qn_tensor x = qn_reshape(in->tensors[0], QN_SHAPE(64, w->rows, w->columns / 64));
    qn_tensor less = qn_sub(x, qn_mean(x, QN_AXES(0, 2), true));
    qn_tensor spread = qn_rsqrt(qn_add_scalar(qn_mean(qn_mul(less, less), QN_AXES(0, 2), true), 1e-5));
    out->results[out->count++] = qn_mul(less, spread);
}

static void step_chain(const workload *w, const inputs *in, built *out)
{
    qn_tensor x = in->tensors[0], y = in->tensors[in->count - 1];
    qn_tensor t = qn_mul_scalar(in->count > 1 ? qn_add(x, y) : qn_add_scalar(x, 1), 0.5);
    t = qn_relu(qn_sub_scalar(qn_mul(qn_tanh(t), x), 0.25));
    out->results[out->count++] = qn_mul_scalar(qn_add(t, y), 1.1);
}

void make_norm(const workload *w, qn_tape *tape, inputs *in)
{
    make_two(w, tape, in); /* x and the gradient of the output */
    in->tensors[in->count++] = normal(tape, w->type, QN_SHAPE(w->columns));
    in->tensors[in->count++] = normal(tape, w->type, QN_SHAPE(w->columns));
}

static void step_norm_forward(const workload *w, const inputs *in, built *out)
{
    const qn_tensor *t = in->tensors;
    out->results[out->count++] = qn_layer_norm(t[0], QN_SHAPE(w->columns), t[2], t[3], 1e-5);
}

static void step_norm(const workload *w, const inputs *in, built *out)
{
    const qn_tensor *t = in->tensors, wanted[] = {t[0], t[2], t[3]};
    qn_tensor y = qn_layer_norm(t[0], QN_SHAPE(w->columns), t[2], t[3], 1e-5);
    out->results[out->count++] = y;
    qn_grad_from(&y, &t[1], 1, wanted, 3, out->results + out->count);
    out->count += 3;
}

static void make_entropy(const workload *w, qn_tape *tape, inputs *in)
{
    qn_error error;
    make_one(w, tape, in);
    int64_t *targets = malloc(sizeof(*targets) * (size_t)w->rows);
    for (int64_t i = 0; i < w->rows; i++) targets[i] = i * 7919 % w->columns;
    in->tensors[in->count++] = qn_from_memory(tape, targets, QN_I64, QN_SHAPE(w->rows));
    free(targets);
    TRY(qn_tape_error(tape, &error));
}

static void step_entropy_forward(const workload *w, const inputs *in, built *out)
{
    out->results[out->count++] = qn_cross_entropy(in->tensors[0], in->tensors[1], QN_MEAN, QN_NO_INDEX);
}

static void step_entropy(const workload *w, const inputs *in, built *out)
{
    step_entropy_forward(w, in, out);
    qn_grad(out->results[0], in->tensors, 1, out->results + out->count++);
}

/* ---- one row of the table ---- */

static void time_workload(const workload *full)
{
    if (only && !strstr(full->name, only)) return;
    workload own = *full;
    const workload *w = &own;
    own.rows /= scale;
    own.columns /= scale;
    own.bytes /= (double)(scale * scale);
    qn_error error;
    qn_tape *tape;
    qn_plan *plan;
    int sets = (int)fmin(fmax(ceil(4 * last_cache_bytes / w->bytes), 1), MOST_SETS);
    TRY(qn_tape_new(context, device, &tape, &error));
    inputs in[MOST_SETS] = {{.count = 0}};
    if (once) sets = 1;
    for (int s = 0; s < sets; s++) w->make(w, tape, &in[s]);
    if (once) {
        built out = {.count = 0};
        w->step(w, &in[0], &out);
        TRY(qn_eval(tape, out.results, out.count, &error));
        TRY(qn_device_wait(context, device, &error));
        qn_tape_free(tape);
        return;
    }
    TRY(qn_capture_begin(tape, &error));
    for (int s = 0; s < sets; s++) {
        built out = {.count = 0};
        w->step(w, &in[s], &out);
        TRY(qn_eval(tape, out.results, out.count, &error));
    }
    TRY(qn_capture_end(tape, &plan, &error));
    qn_plan_facts facts;
    qn_plan_info(plan, &facts);
    copies c = copies_new(w->bytes);
    int rounds = !gpu ? 3 : quick ? 5 : 15, replays = 1, count[2] = {1, 1};
    double samples[3][MOST_SAMPLES], sample_ns = quick ? 8e6 : 2e7;
    for (int round = -1; round < rounds; round++) {
        double ns = 1e18, start;
        for (int repeat = 0; repeat < (gpu ? 1 : 5); repeat++) {
            start = now_ns();
            for (int i = 0; i < replays; i++) TRY(qn_plan_replay(plan, &error));
            TRY(qn_device_wait(context, device, &error));
            ns = fmin(ns, (now_ns() - start) / replays / sets);
        }
        double copy[2] = {copy_sample(&c, false, count[0]), gpu ? copy_sample(&c, true, count[1]) : 1e18};
        if (round < 0) { /* compiled and warm: again, for how long it takes */
            start = now_ns();
            TRY(qn_plan_replay(plan, &error));
            TRY(qn_device_wait(context, device, &error));
            replays = (int)fmin(fmax(sample_ns / (now_ns() - start), 1), 1000);
            for (int i = 0; i < 2 && gpu; i++)
                count[i] = (int)fmin(fmax(sample_ns / copy_sample(&c, i, c.sets), c.sets), 2000);
            continue;
        }
        samples[0][round] = ns;
        samples[1][round] = copy[0];
        samples[2][round] = copy[1];
    }
    double ns = typical(samples[0], rounds), copy = fmin(typical(samples[1], rounds), typical(samples[2], rounds));
    double ratio = copy / ns;
    printf("  %-44s %10.1f us %7.0f GB/s  of copy %5.3f%s  %d kernel%s\n", w->name, ns * 1e-3, w->bytes / ns, ratio,
           w->bar == 0      ? ""
           : ratio < w->bar ? " BELOW"
                            : " (bar)",
           facts.kernels / sets, facts.kernels == sets ? "" : "s");
    below += w->bar > 0 && ratio < w->bar;
    put_json(w->name, ns, w->bytes, ratio, w->bar, facts.kernels / sets);
    fflush(stdout);
    copies_free(&c);
    qn_plan_free(plan);
    qn_tape_free(tape);
}

/* Work below a megabyte: kernels, the time of a replay behind others, and the host's for a call of known shapes (its graph
 * built again, nothing waited for). */
static void time_small(const workload *w)
{
    enum { CALLS = 300, ROUNDS = 7 };
    if (only && !strstr(w->name, only)) return;
    qn_error error;
    qn_tape *tape;
    qn_plan *plan;
    inputs in = {.count = 0};
    double replays[ROUNDS], calls[ROUNDS];
    TRY(qn_tape_new(context, device, &tape, &error));
    w->make(w, tape, &in);
    TRY(qn_capture_begin(tape, &error));
    built out = {.count = 0};
    w->step(w, &in, &out);
    TRY(qn_eval(tape, out.results, out.count, &error));
    TRY(qn_capture_end(tape, &plan, &error));
    qn_plan_facts facts;
    qn_plan_info(plan, &facts);
    for (int round = -1; round < ROUNDS; round++) {
        double start = now_ns();
        for (int i = 0; i < CALLS; i++) TRY(qn_plan_replay(plan, &error));
        TRY(qn_device_wait(context, device, &error));
        double replay = (now_ns() - start) / CALLS, spent = 0;
        for (int i = 0; i < CALLS; i++) {
            start = now_ns();
            qn_scope_begin(tape);
            built again = {.count = 0};
            w->step(w, &in, &again);
            TRY(qn_eval(tape, again.results, again.count, &error));
            qn_scope_end(tape);
            spent += now_ns() - start;
            if (i % 32 == 31) TRY(qn_device_wait(context, device, &error)); /* a full queue makes the host wait */
        }
        TRY(qn_device_wait(context, device, &error));
        if (round < 0) continue;
        replays[round] = replay;
        calls[round] = spent / CALLS;
    }
    double replay = typical(replays, ROUNDS), call = typical(calls, ROUNDS);
    printf("  small: %-48s %8.2f us a replay (3)%s  %8.2f us of the host a call (5)%s  %d kernel%s\n", w->name,
           replay * 1e-3, replay > 3e3 ? " ABOVE" : "", call * 1e-3, call > 5e3 ? " ABOVE" : "", facts.kernels,
           facts.kernels == 1 ? "" : "s");
    put_json(w->name, replay, 0, call, 3e3, facts.kernels);
    fflush(stdout);
    qn_plan_free(plan);
    qn_tape_free(tape);
}

/* ---- perceptrons: layers of linear and GELU, the mean of the output, backward ---- */

typedef struct perceptron {
    qn_tape *tape;
    qn_tensor x, parameters[MOST_RESULTS];
    int layers;
} perceptron;

static perceptron perceptron_new(qn_context *where, int64_t width, int layers, int64_t batch, bool tf32)
{
    qn_error error;
    perceptron p = {.layers = layers};
    TRY(qn_tape_new(where, device, &p.tape, &error));
    qn_tape_set_tf32(p.tape, tf32);
    p.x = normal(p.tape, QN_F32, QN_SHAPE(batch, width));
    for (int i = 0; i < layers; i++) {
        double scale = 1 / sqrt((double)width);
        p.parameters[2 * i] = qn_variable(qn_mul_scalar(qn_randn(p.tape, QN_F32, QN_SHAPE(width, width)), scale));
        p.parameters[2 * i + 1] = qn_variable(qn_mul_scalar(qn_randn(p.tape, QN_F32, QN_SHAPE(width)), scale));
    }
    TRY(qn_eval(p.tape, NULL, 0, &error));
    return p;
}

static qn_tensor perceptron_loss(const perceptron *p, qn_tensor x)
{
    for (int i = 0; i < p->layers; i++) x = qn_gelu(qn_linear(x, p->parameters[2 * i], p->parameters[2 * i + 1]));
    return qn_mean(x, QN_ALL, false);
}

static void time_perceptron(int64_t width, int layers, int64_t batch, int steps, bool tf32)
{
    char name[100];
    snprintf(name, sizeof(name), "mlp d%lld x %d batch %lld, %d steps, %s", (long long)width, layers, (long long)batch,
             steps, tf32 ? "tf32" : "f32");
    if (only && !strstr(name, only)) return;
    qn_error error;
    qn_plan *plan;
    perceptron p = perceptron_new(context, width, layers, batch, tf32);
    TRY(qn_capture_begin(p.tape, &error));
    qn_tensor results[MOST_RESULTS];
    results[0] = perceptron_loss(&p, p.x);
    qn_grad(results[0], p.parameters, 2 * layers, results + 1);
    TRY(qn_eval(p.tape, results, 1 + 2 * layers, &error));
    TRY(qn_capture_end(p.tape, &plan, &error));
    qn_plan_facts facts;
    qn_plan_info(plan, &facts);
    double samples[MOST_SAMPLES], host[MOST_SAMPLES];
    int repeat = 1;
    for (int round = -2; round < (quick ? 11 : 31); round++) {
        TRY(qn_device_wait(context, device, &error));
        double start = now_ns();
        for (int r = 0; r < repeat; r++)
            for (int i = 0; i < steps; i++) TRY(qn_plan_replay(plan, &error));
        double handed = now_ns();
        TRY(qn_device_wait(context, device, &error));
        double ns = (now_ns() - start) / repeat;
        if (round == -1) repeat = (int)fmin(fmax(1e7 / ns, 1), 200);
        if (round < 0) continue;
        samples[round] = ns;
        host[round] = (handed - start) / repeat / steps;
    }
    int rounds = quick ? 11 : 31;
    double ns = typical(samples, rounds), host_ns = typical(host, rounds);
    printf("  %-44s %10.1f us  %d kernels in %d nodes, workspace %.1f MB\n", name, ns * 1e-3, facts.kernels,
           facts.nodes, (double)facts.workspace_bytes * 1e-6);
    put_json(name, ns, 0, 0, 0, facts.kernels);
    if (strcmp(device, "cpu") != 0) {
        /* An idle queue: one replay at a time. */
        for (int i = 0; i < MOST_SAMPLES; i++) {
            TRY(qn_device_wait(context, device, &error));
            double start = now_ns();
            TRY(qn_plan_replay(plan, &error));
            host[i] = now_ns() - start;
        }
        host_ns = typical(host, MOST_SAMPLES);
        snprintf(name, sizeof(name), "host cost of a replayed step, d%lld x %d", (long long)width, layers);
        printf("  %-44s %10.2f us (bar 10)%s\n", name, host_ns * 1e-3, host_ns > 1e4 ? " ABOVE" : "");
        below += host_ns > 1e4;
        put_json(name, host_ns, 0, 0, 1e4, 0);
    }
    qn_plan_free(plan);
    qn_tape_free(p.tape);
}

/* ---- host costs and compile times ---- */

static void time_building(void)
{
    if (only && !strstr("host building", only)) return;
    qn_error error;
    qn_tape *tape;
    enum { OPS = 100000 };
    double best = 1e18;
    TRY(qn_tape_new(context, device, &tape, &error));
    qn_tensor x = qn_empty(tape, QN_F32, QN_SHAPE(64, 64));
    for (int round = 0; round < 5; round++) {
        double start = now_ns();
        qn_scope_begin(tape);
        qn_tensor y = x;
        for (int i = 0; i < OPS; i++) y = qn_add(y, x);
        double ns = (now_ns() - start) / OPS;
        if (ns < best) best = ns;
        qn_scope_end(tape);
    }
    printf("  %-44s %10.3f us (bar 1)%s\n", "host cost of an op while building", best * 1e-3,
           best > 1e3 ? " ABOVE" : "");
    below += best > 1e3;
    put_json("host cost of an op while building", best, 0, 0, 1e3, 0);
    qn_tape_free(tape);
}

static int compiled;
static void count_compiled(void *user, const char *line)
{
    (void)user;
    compiled += strstr(line, " variant ") != NULL;
}

/* One training step of 16 layers: the first evaluation in a context of its own. */
static double first_step_ns(const qn_context_options *options, bool other_batch)
{
    qn_error error;
    qn_context *own;
    TRY(qn_context_open(options, &own, &error));
    perceptron p = perceptron_new(own, 128, 16, 128, true);
    qn_optimizer *optimizer = qn_optimizer_new(p.tape, QN_ADAM, NULL, p.parameters, 2 * p.layers);
    TRY(qn_eval(p.tape, NULL, 0, &error));
    qn_tensor larger = normal(p.tape, QN_F32, QN_SHAPE(100, 128));
    double start = now_ns(), value;
    qn_tensor loss = perceptron_loss(&p, p.x);
    qn_optimizer_minimize(optimizer, loss);
    TRY(qn_tensor_item(loss, &value, &error));
    double ns = now_ns() - start;
    if (other_batch) {
        int before = compiled;
        loss = perceptron_loss(&p, larger);
        qn_optimizer_minimize(optimizer, loss);
        TRY(qn_tensor_item(loss, &value, &error));
        compiled -= before;
    }
    qn_optimizer_free(optimizer);
    qn_tape_free(p.tape);
    qn_context_close(own);
    return ns;
}

static void time_compiling(void)
{
    if (only && !strstr("compile", only)) return;
    char folder[] = "/tmp/quern-bench-XXXXXX";
    if (!mkdtemp(folder)) return;
    qn_context_options options = {.cache_folder = folder, .print = count_compiled};
    setenv("QUERN_LOG", "compile", 1);
    double cold = first_step_ns(&options, false);
    double warm = first_step_ns(&options, false);
    compiled = 0;
    (void)first_step_ns(&options, true);
    unsetenv("QUERN_LOG");
    printf("  %-44s %10.3f s, warm %.3f s (bars 1.5 on 16 cores, 0.1)\n", "compile a step of 16 layers with Adam, cold",
           cold * 1e-9, warm * 1e-9);
    printf("  %-44s %10d compiled (bar 0)%s\n", "another batch size", compiled, compiled ? " ABOVE" : "");
    below += compiled > 0;
    put_json("compile mlp cold", cold, 0, 0, 1.5e9, 0);
    put_json("compile mlp warm", warm, 0, 0, 1e8, 0);
    put_json("compiled for another batch size", compiled, 0, 0, 0, 0);
    char command[200];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command)) fprintf(stderr, "cannot remove %s\n", folder);
}

/* ---- the tables ---- */

static const workload on_gpu[] = {
    {"gelu by hand 16384^2 f32", QN_F32, 16384, 16384, 8.0 * (1 << 28), 0.97, make_one, step_gelu},
    {"softmax by hand 16384^2 f32", QN_F32, 16384, 16384, 8.0 * (1 << 28), 0.97, make_one, step_softmax},
    {"softmax by hand 8192x16381 f32", QN_F32, 8192, 16381, 8.0 * 8192 * 16381, 0.9, make_one, step_softmax},
    {"softmax by hand 256x393216 f32", QN_F32, 256, 393216, 8.0 * 256 * 393216, 0.85, make_one, step_softmax},
    {"softmax across 21x4194304 f32", QN_F32, 21, 1 << 22, 8.0 * 21 * (1 << 22), 0.85, make_one, step_softmax_across},
    {"cumsum 8192x16384 f32", QN_F32, 8192, 16384, 8.0 * 8192 * 16384, 0.9, make_one, step_cumsum},
    {"norm of channels 64x64x16384 f32", QN_F32, 64, 64 * 16384, 8.0 * 64 * 64 * 16384, 0.75, make_one, step_channels},
    {"chain of 8 16384^2 f32", QN_F32, 16384, 16384, 12.0 * (1 << 28), 0, make_two, step_chain},
    {"layer norm and gradient 65536x4096 bf16", QN_BF16, 65536, 4096, 8.0 * (1 << 28), 0, make_norm, step_norm},
    {"layer norm and gradient 16384^2 bf16", QN_BF16, 16384, 16384, 8.0 * (1 << 28), 0, make_norm, step_norm},
    {"cross-entropy and gradient 8192x128256 bf16", QN_BF16, 8192, 128256, 4.0 * 8192 * 128256, 0, make_entropy,
     step_entropy},
};

/* Bars are for work that reads as much as it writes, as a copy does: reading alone is slower here than copying. */
static const workload on_cpu[] = {
    {"gelu by hand 4096^2 f32", QN_F32, 4096, 4096, 8.0 * (1 << 24), 0.85, make_one, step_gelu},
    {"chain of 8 on one tensor 4096^2 f32", QN_F32, 4096, 4096, 8.0 * (1 << 24), 0.85, make_one, step_chain},
    {"chain of 8 4096^2 f32", QN_F32, 4096, 4096, 12.0 * (1 << 24), 0, make_two, step_chain},
    {"softmax by hand 4096^2 f32", QN_F32, 4096, 4096, 8.0 * (1 << 24), 0.7, make_one, step_softmax},
    {"layer norm 16384x1024 f32", QN_F32, 16384, 1024, 8.0 * (1 << 24), 0.7, make_norm, step_norm_forward},
    {"cross-entropy and gradient 4096^2 f32", QN_F32, 4096, 4096, 8.0 * (1 << 24), 0.7, make_entropy, step_entropy},
    {"cross-entropy 4096^2 f32", QN_F32, 4096, 4096, 4.0 * (1 << 24), 0, make_entropy, step_entropy_forward},
    {"layer norm and gradient 16384x1024 f32", QN_F32, 16384, 1024, 16.0 * (1 << 24), 0.7, make_norm, step_norm},
};

int main(int count, char **arguments)
{
    qn_error error;
    const char *json_path = NULL;
    for (int i = 1; i < count; i++) {
        const char *a = arguments[i], *value = i + 1 < count ? arguments[i + 1] : "";
        if (!strcmp(a, "--quick"))
            quick = true;
        else if (!strcmp(a, "--rows"))
            rows = true;
        else if (!strcmp(a, "--small"))
            little = true;
        else if (!strcmp(a, "--once"))
            once = true;
        else if (!strcmp(a, "--device"))
            device = value, i++;
        else if (!strcmp(a, "--json"))
            json_path = value, i++;
        else if (!strcmp(a, "--only"))
            only = value, i++;
        else if (!strcmp(a, "--bench"))
            bench_folder = value, i++;
        else if (!strcmp(a, "--scale"))
            scale = atoll(value), i++;
        else
            return fprintf(stderr, "unknown argument %s\n", a), 2;
    }
    gpu = strcmp(device, "cpu") != 0;
    if (json_path && !(json = fopen(json_path, "w"))) return fprintf(stderr, "cannot write %s\n", json_path), 1;
    TRY(qn_context_open(&(qn_context_options){.allow_raw = true}, &context, &error));
    qn_device_info info;
    TRY(qn_device_find(context, device, &info, &error));
    if (!info.available) return fprintf(stderr, "%s: %s\n", device, info.description), 1;
    printf("%s: %s\n", device, info.description);
    if (json) fprintf(json, "[\n  {\"device\": \"%s\"}", info.description), json_count++;
    const workload *list = gpu ? on_gpu : on_cpu;
    int workloads = gpu ? (int)(sizeof(on_gpu) / sizeof(on_gpu[0])) : (int)(sizeof(on_cpu) / sizeof(on_cpu[0]));
    if (!gpu) last_cache_bytes = 32e6;
    for (int i = 0; i < small_workload_count && little; i++) time_small(&small_workloads[i]);
    for (int i = 0; i < workloads && !rows && !little; i++) time_workload(&list[i]);
    for (int i = 0; i < row_workload_count && rows; i++) time_workload(&row_workloads[i]);
    if (rows || once || little) only = "nothing else";
    for (int full = 0; full <= gpu; full++) /* then without tf32 */
        time_perceptron(128, 16, 128, 5, !full), time_perceptron(256, 4, 256, 2, !full);
    time_building();
    time_compiling();
    if (json) fprintf(json, "\n]\n"), fclose(json);
    printf(below ? "%d below their bars\n" : "all that have bars here reach them\n", below);
    qn_context_close(context);
    return 0;
}
