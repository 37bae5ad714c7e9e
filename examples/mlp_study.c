/*
 * The MLP of a lecture on profiling, studied: `layers` times a linear layer and GELU, a batch of random rows, the mean of
 * what comes out as the loss, its gradient, and Adam or no optimiser. In: sizes, by name or by number. Out: the time of
 * a run, sweeps over steps, layers, batch and width with the time of each and how it scales; ranges `define_model`,
 * `define_input`, `step_3`, `forward`, `layer_3`, `backward`, `optimizer` for a profile (docs/studies/mlp.md).
 * Build: cc mlp_study.c $(pkg-config --cflags --libs quern) -lm
 * SPDX-License-Identifier: MIT
 */
#include <math.h>
#include <quern/model.h>
#include <quern/profile.h>
#include <quern/try.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_TRIALS = 25, MOST_LAYERS = 1024 };

typedef struct study {
    int64_t dim, batch;
    int layers, steps, trials;
    bool adam, eager, captured, print_loss, tf32;
    const char *device;
} study;

static const struct {
    const char *name;
    study sizes;
} presets[] = {
    {"d128", {.dim = 128, .layers = 16, .batch = 128, .steps = 5}},
    {"d256", {.dim = 256, .layers = 4, .batch = 256, .steps = 2}},
    {"d2048", {.dim = 2048, .layers = 64, .batch = 1024, .steps = 2}},
    {"d4096", {.dim = 4096, .layers = 64, .batch = 1024, .steps = 15, .adam = true}},
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- the model ---- */

typedef struct mlp {
    const study *study;
    qn_tape *tape;
    qn_model *root;
    qn_optimizer *adam;
    qn_tensor x, loss;
    qn_tensor gradients[2 * MOST_LAYERS + 1], parameters[2 * MOST_LAYERS];
    int parameter_count;
    qn_plan *step; /* captured; NULL: every step is evaluated */
} mlp;

static int define(mlp *m, qn_error *error)
{
    const study *s = m->study;
    QN_RANGE("define_model")
    {
        m->root = qn_model_new(m->tape, 1);
        for (int i = 0; i < s->layers; i++) {
            char name[32];
            snprintf(name, sizeof(name), "layer_%d", i);
            qn_model *layer = qn_model_child(m->root, name);
            qn_model_linear(layer, "linear", s->dim, s->dim, true);
            qn_model_activation(layer, "gelu", qn_gelu);
        }
        qn_parameter list[2 * MOST_LAYERS];
        m->parameter_count = qn_model_list(m->root, list, 2 * MOST_LAYERS);
        for (int i = 0; i < m->parameter_count; i++) m->parameters[i] = list[i].value;
        if (s->adam) m->adam = qn_model_optimizer(m->root, QN_ADAM, NULL, NULL, 0);
    }
    QN_RANGE("define_input") m->x = qn_randn(m->tape, QN_F32, QN_SHAPE(s->batch, s->dim));
    return qn_eval(m->tape, &m->x, 1, error);
}

/* Forward, backward and, with Adam, the update: called here, computed by the evaluation at the end. */
static int take_step(mlp *m, qn_error *error)
{
    qn_tensor y = m->x;
    QN_RANGE("forward")
    {
        for (int i = 0; i < m->study->layers; i++) y = qn_model_forward(qn_model_child_at(m->root, i), y);
        m->loss = qn_mean(y, QN_ALL, false);
    }
    QN_RANGE("backward") qn_grad(m->loss, m->parameters, m->parameter_count, m->gradients);
    if (m->adam) {
        QN_RANGE("optimizer") qn_optimizer_step(m->adam, m->gradients);
        return qn_eval(m->tape, &m->loss, 1, error);
    }
    m->gradients[m->parameter_count] = m->loss; /* together: the forward pass is computed once */
    return qn_eval(m->tape, m->gradients, m->parameter_count + 1, error);
}

static int record_step(mlp *m, qn_error *error)
{
    QN_TRY(qn_capture_begin(m->tape, error));
    QN_TRY(take_step(m, error));
    return qn_capture_end(m->tape, &m->step, error);
}

/* `first`: the number of the first step, for its range. The value of the last loss ends the run: everything is done. */
static int run(mlp *m, int first, double *loss, qn_error *error)
{
    const study *s = m->study;
    for (int i = 0; i < s->steps; i++) {
        char name[32];
        int failed = 0;
        snprintf(name, sizeof(name), "step_%d", first + i);
        if (!m->step) qn_scope_begin(m->tape);
        QN_RANGE(name)
        {
            failed = m->step ? (int)qn_plan_replay(m->step, error) : take_step(m, error);
            bool reads = s->print_loss || i == s->steps - 1;
            if (!failed && reads) failed = (int)qn_tensor_item(m->loss, loss, error);
            if (!failed && s->print_loss) printf("step %d: loss %.6g\n", first + i, *loss);
        }
        if (!m->step) qn_scope_end(m->tape);
        qn_profile_step(NULL);
        QN_TRY(failed);
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* In milliseconds, after a run that is not counted. */
typedef struct times {
    double median_ms, least_ms;
} times;

static int measure(qn_context *context, const study *s, times *out, double *loss, qn_error *error)
{
    mlp *m = calloc(1, sizeof(*m));
    double trials[MOST_TRIALS];
    int failed = 1;
    if (!m) {
        snprintf(error->message, sizeof(error->message), "there is no memory");
        return 1;
    }
    m->study = s;
    if (!qn_tape_new(context, s->device, &m->tape, error)) {
        qn_tape_set_tf32(m->tape, s->tf32);
        qn_tape_set_mode(m->tape, s->eager ? QN_EAGER : QN_FUSED);
        failed = define(m, error) || (s->captured && record_step(m, error)) || run(m, 0, loss, error);
        for (int i = 0; i < s->trials && !failed; i++) {
            double from = now_ms();
            failed = run(m, (i + 1) * s->steps, loss, error);
            trials[i] = now_ms() - from;
        }
    }
    if (!failed) {
        qsort(trials, (size_t)s->trials, sizeof(double), compare);
        out->median_ms = (trials[(s->trials - 1) / 2] + trials[s->trials / 2]) / 2;
        out->least_ms = trials[0];
    }
    qn_plan_free(m->step);
    qn_optimizer_free(m->adam);
    qn_model_free(m->root);
    qn_tape_free(m->tape);
    free(m);
    return failed;
}

/* ---- sweeps ---- */

/* y = start + slope x by least squares, of points x = 1, 2, ...; of the logarithms: y = exp(start) x^slope. */
static void fit(const double *y, int count, bool logarithms, double *start, double *slope)
{
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < count; i++) {
        double x = logarithms ? log(i + 1) : i + 1, at = logarithms ? log(y[i]) : y[i];
        sx += x;
        sy += at;
        sxx += x * x;
        sxy += x * at;
    }
    *slope = (count * sxy - sx * sy) / (count * sxx - sx * sx);
    *start = (sy - *slope * sx) / count;
}

/* What a run costs before its first one, what each adds, how far from that line the worst point lies; and the power. */
static void print_scaling(const char *what, const double *times_ms, int count)
{
    double start, slope, ignored, power, worst = 0;
    fit(times_ms, count, false, &start, &slope);
    fit(times_ms, count, true, &ignored, &power);
    for (int i = 0; i < count; i++) worst = fmax(worst, fabs(times_ms[i] - start - slope * (i + 1)) / times_ms[i]);
    printf("%s: %.3f ms and %.3f ms for each, at most %.0f%% off that line; grows as the power %.2f\n\n", what, start,
           slope, 100 * worst, power);
}

static int sweep(qn_context *context, const study *base, const char *what, int most, qn_error *error)
{
    double times_ms[16], loss;
    if (most > 16) most = 16;
    printf("%-8s  %10s  %10s  %10s  %8s  %12s\n", what, "", "median ms", "least ms", "times", "ms for each");
    for (int k = 1; k <= most; k++) {
        study s = *base;
        times t;
        int64_t at = 0;
        if (!strcmp(what, "steps")) at = s.steps = base->steps * k;
        if (!strcmp(what, "layers")) at = s.layers = base->layers * k;
        if (!strcmp(what, "batch")) at = s.batch = base->batch * k;
        if (!strcmp(what, "dim")) at = s.dim = base->dim * k;
        QN_TRY(measure(context, &s, &t, &loss, error));
        times_ms[k - 1] = t.least_ms;
        printf("%7dx  %10lld  %10.3f  %10.3f  %8.2f  %12.3f\n", k, (long long)at, t.median_ms, t.least_ms,
               t.least_ms / times_ms[0], t.least_ms / k);
        fflush(stdout);
    }
    if (most > 1) print_scaling(what, times_ms, most);
    return 0;
}

/* ---- the command line ---- */

static const char help[] =
    "mlp_study: times of an MLP (linear and GELU, layer by layer), forward and backward\n"
    "  --size d128 | d256 | d2048 | d4096   the lecture's: 128 x 16 layers, 256 x 4, 2048 x 64, 4096 x 64 with Adam\n"
    "  --dim N --layers N --batch N --steps N --trials N\n"
    "  --scale N       width and batch divided by N (a multiple of 8 is kept), layers and steps too: for a quick look\n"
    "  --optimizer adam | none\n"
    "  --mode fused | eager | captured      fused is the default; captured: one step recorded, the others replayed\n"
    "  --sweep steps | layers | batch | dim | all   one to five times the size; --most N: to N times\n"
    "  --print-loss    read and print the loss of every step\n"
    "  --device NAME --tf32\n"
    "Where the time goes: quern profile --by range -- mlp_study ...\n";

static const char *const sweeps[] = {"steps", "layers", "batch", "dim", "all", NULL};

static int64_t scaled(int64_t size, int by, int64_t multiple)
{
    int64_t smaller = size / by / multiple * multiple;
    return smaller < multiple ? multiple : smaller;
}

static int wrong(const char *option, const char *value)
{
    fprintf(stderr, "mlp_study: `%s %s` makes no sense; see --help\n", option, value ? value : "");
    return 2;
}

static bool read_count(const char *words, int64_t most, int64_t *out)
{
    char *end;
    long long number = words ? strtoll(words, &end, 10) : 0;
    if (!words || *end || number < 1 || number > most) return false;
    *out = number;
    return true;
}

static int read_options(int count, char **words, study *s, const char **swept, int *most)
{
    int64_t scale = 1, number = 0;
    for (int i = 1; i < count; i++) {
        const char *option = words[i], *value = i + 1 < count ? words[i + 1] : NULL;
        if (!strcmp(option, "--help")) return printf("%s", help), -1;
        if (!strcmp(option, "--print-loss") || !strcmp(option, "--tf32")) {
            *(option[2] == 'p' ? &s->print_loss : &s->tf32) = true;
            continue;
        }
        i++;
        if (!value) return wrong(option, value);
        if (!strcmp(option, "--size")) {
            int k = 0, known = (int)(sizeof(presets) / sizeof(presets[0]));
            while (k < known && strcmp(presets[k].name, value) != 0) k++;
            if (k == known) return wrong(option, value);
            s->dim = presets[k].sizes.dim;
            s->batch = presets[k].sizes.batch;
            s->layers = presets[k].sizes.layers;
            s->steps = presets[k].sizes.steps;
            s->adam = presets[k].sizes.adam;
        } else if (!strcmp(option, "--optimizer")) {
            s->adam = !strcmp(value, "adam");
            if (!s->adam && strcmp(value, "none") != 0) return wrong(option, value);
        } else if (!strcmp(option, "--mode")) {
            s->eager = !strcmp(value, "eager");
            s->captured = !strcmp(value, "captured");
            if (!s->eager && !s->captured && strcmp(value, "fused") != 0) return wrong(option, value);
        } else if (!strcmp(option, "--sweep")) {
            int k = 0;
            while (sweeps[k] && strcmp(sweeps[k], value) != 0) k++;
            if (!(*swept = sweeps[k])) return wrong(option, value);
        } else if (!strcmp(option, "--device")) {
            s->device = value;
        } else if (!read_count(value, 1 << 20, &number)) {
            return wrong(option, value);
        } else if (!strcmp(option, "--dim")) {
            s->dim = number;
        } else if (!strcmp(option, "--batch")) {
            s->batch = number;
        } else if (!strcmp(option, "--layers") && number <= MOST_LAYERS) {
            s->layers = (int)number;
        } else if (!strcmp(option, "--steps")) {
            s->steps = (int)number;
        } else if (!strcmp(option, "--trials") && number <= MOST_TRIALS) {
            s->trials = (int)number;
        } else if (!strcmp(option, "--most")) {
            *most = (int)number;
        } else if (!strcmp(option, "--scale")) {
            scale = number;
        } else {
            return wrong(option, value);
        }
    }
    if (scale == 1) return 0;
    s->dim = scaled(s->dim, (int)scale, 8);
    s->batch = scaled(s->batch, (int)scale, 8);
    s->layers = (int)scaled(s->layers, (int)scale, 1);
    s->steps = (int)scaled(s->steps, (int)scale, 1);
    return 0;
}

int main(int count, char **words)
{
    study s = {.dim = 256, .layers = 4, .batch = 256, .steps = 2, .trials = 3};
    const char *swept = NULL;
    int most = 5, failed = read_options(count, words, &s, &swept, &most);
    qn_error error = {0};
    qn_context *context = NULL;
    times t = {0};
    double loss = 0;
    if (failed) return failed < 0 ? 0 : failed;
    if (s.layers * (swept ? most : 1) > MOST_LAYERS) return wrong("--layers", "(more than 1024 with the sweep)");
    if (qn_context_open(NULL, &context, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    printf("%lld wide, %d layers, batch %lld, %d steps, %s, %s%s on %s\n", (long long)s.dim, s.layers,
           (long long)s.batch, s.steps, s.adam ? "Adam" : "no optimiser",
           s.captured ? "captured"
           : s.eager  ? "eager"
                      : "fused",
           s.print_loss ? ", the loss printed" : "", s.device ? s.device : qn_device_best(context));
    if (!swept) {
        failed = measure(context, &s, &t, &loss, &error);
        if (!failed)
            printf("%.3f ms a run (the least %.3f), %.3f ms a step, loss %.6g\n", t.median_ms, t.least_ms,
                   t.median_ms / s.steps, loss);
    }
    for (int i = 0; i < 4 && swept && !failed; i++)
        if (!strcmp(swept, "all") || !strcmp(swept, sweeps[i])) failed = sweep(context, &s, sweeps[i], most, &error);
    if (failed) fprintf(stderr, "mlp_study: %s\n", error.message);
    qn_context_close(context);
    return failed;
}
