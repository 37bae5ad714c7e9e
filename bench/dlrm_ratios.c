/*
 * Training steps and forward passes of the talk's and of Meta's DLRM, recorded as a plan and replayed. Tables are rows of
 * one variable, so that all features are one lookup and one sparse update. Inputs of products are filled up with zeros
 * to rows of a multiple of 16 bytes; the rows of weights that they meet stay zero.
 *
 * Usage: build/bench_dlrm [--device cuda|cpu] [--only WORD; adapter: what one of low rank costs a linear layer] [--network WORDS: this one instead, such as
 * "cat adagrad b2048 bf16 tables"; again for more] [--rows DIVISOR: smaller tables] [--kernels FILE] [--eager: ten steps evaluated one by one, for a
 * profile of their kernels] [--unfused: each operation a kernel] [--evaluated: also the time of a step that is evaluated instead of replayed]
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "ratios.h"

#include <math.h>
#include <quern/dlrm.h>
#include <string.h>

enum { FEATURES = 26, WIDTH = 16, DENSE = 16 /* 13 and zeros: rows of 64 bytes */, MOST_LAYERS = 8 };

static const int64_t cardinality[FEATURES] = {1234907, 19682,   13779,  6866,    18489, 3,    6263, 1234, 49,
                                              854680,  114026,  75735,  10,      2159,  7532, 61,   4,    918,
                                              14,      1307783, 404742, 1105613, 87714, 9031, 76,   33};

/* What the words of its name say: layers of `small`, or of `main` and Meta's (all others); `outer`, `dot` or `cat`; an
 * optimiser (`row adagrad`: for each row of a table one sum); `b` and the batch; `forward`: no training; `lookup`: of the
 * tables alone, their gradient is given; `bf16`: the tables' type. */
typedef struct network {
    const char *name;
    int bottom[MOST_LAYERS], top[MOST_LAYERS]; /* widths behind the input, 0 ends them */
    qn_interaction interaction;
    qn_optimizer_kind optimizer;
    int64_t batch;
    bool forward, lookup, bf16;
} network;

static const char *const networks[] = {"small outer adam b64", "main outer adam b128", "dot sgd b128",
                                       "dot sgd b2048",        "dot sgd b8192",        "dot forward b128",
                                       "dot forward b8192",    "lookup forward b8192", "lookup row adagrad b8192"};

/* False: a word makes no sense. */
static bool network_read(const char *name, network *n)
{
    *n = (network){.name = name, .bottom = {512, 256, 64, 16}, .top = {512, 256, 1}, .batch = 128};
    bool good = true, row = false;
    char words[256], *rest = words;
    snprintf(words, sizeof(words), "%s", name);
    for (char *word; good && (word = strtok_r(rest, " ", &rest));) {
        if (!strcmp(word, "small"))
            memcpy(n->bottom, (int[MOST_LAYERS]){32, 16}, sizeof(n->bottom)),
                memcpy(n->top, (int[MOST_LAYERS]){32, 1}, sizeof(n->top));
        else if (!strcmp(word, "lookup"))
            n->lookup = true, n->optimizer = QN_ROW_ADAGRAD, n->bottom[0] = n->top[0] = 0;
        else if (!strcmp(word, "forward"))
            n->forward = true;
        else if (!strcmp(word, "bf16"))
            n->bf16 = true;
        else if (!strcmp(word, "row"))
            row = true;
        else if (*word == 'b' && atoll(word + 1) > 0)
            n->batch = atoll(word + 1);
        else if (strcmp(word, "main") && strcmp(word, "tables"))
            good = qn_interaction_from_name(word, &n->interaction) || qn_optimizer_from_name(word, &n->optimizer);
    }
    if (row && n->optimizer == QN_ADAGRAD) n->optimizer = QN_ROW_ADAGRAD;
    return good;
}

static const char *device = "cuda", *only;
static int64_t divisor = 1;
static bool one_by_one, unfused, evaluated, gpu;
static qn_context *context;
static qn_module *module;
static const char *kernels = "kernels/dlrm.qn";

typedef struct dlrm {
    qn_tape *tape;
    qn_tensor parameters[40];
    int parameter_count;
    qn_tensor table, sizes, bases, given; /* given: a gradient of what was looked up */
} dlrm;

static qn_tensor parameter(dlrm *d, qn_tensor initial)
{
    qn_tensor v = qn_variable(initial);
    d->parameters[d->parameter_count++] = v;
    return v;
}

static qn_tensor layer(dlrm *d, int *next, qn_tensor x, bool last)
{
    qn_tensor y = qn_linear(x, d->parameters[*next], d->parameters[*next + 1]);
    *next += 2;
    return last ? y : qn_relu(y);
}

static void add_layers(dlrm *d, int64_t in, const int *widths)
{
    for (int i = 0; widths[i]; i++) {
        double bound = 1 / sqrt((double)in);
        parameter(d, qn_mul_scalar(qn_sub_scalar(qn_rand(d->tape, QN_F32, QN_SHAPE(in, widths[i])), 0.5), 2 * bound));
        parameter(d, qn_mul_scalar(qn_sub_scalar(qn_rand(d->tape, QN_F32, QN_SHAPE(widths[i])), 0.5), 2 * bound));
        in = widths[i];
    }
}

static dlrm dlrm_new(const network *n)
{
    qn_error error;
    dlrm d = {.parameter_count = 0};
    TRY(qn_tape_new(context, device, &d.tape, &error));
    qn_tape_set_tf32(d.tape, true);
    if (unfused) qn_tape_set_mode(d.tape, QN_EAGER);
    int64_t sizes[FEATURES], bases[FEATURES], rows = 0, pairs = (FEATURES + 1) * FEATURES / 2 + 1; /* and a zero */
    for (int f = 0; f < FEATURES; f++) {
        bases[f] = rows;
        rows += sizes[f] = (cardinality[f] + divisor - 1) / divisor;
    }
    d.sizes = qn_from_memory(d.tape, sizes, QN_I64, QN_SHAPE(FEATURES));
    d.bases = qn_from_memory(d.tape, bases, QN_I64, QN_SHAPE(FEATURES));
    d.table = parameter(&d, qn_cast(qn_randn(d.tape, QN_F32, QN_SHAPE(rows, WIDTH)), n->bf16 ? QN_BF16 : QN_F32));
    d.given = qn_randn(d.tape, QN_F32, QN_SHAPE(n->batch, FEATURES, WIDTH));
    int64_t all = (FEATURES + 1) * WIDTH;
    add_layers(&d, DENSE, n->bottom);
    add_layers(&d,
               n->interaction == QN_INTERACT_OUTER ? all * all
               : n->interaction == QN_INTERACT_CAT ? all
                                                   : pairs + WIDTH,
               n->top);
    TRY(qn_eval(d.tape, &d.given, 1, &error));
    TRY(qn_eval(d.tape, NULL, 0, &error));
    return d;
}

static qn_tensor looked_up(dlrm *d, qn_tensor sparse)
{
    qn_tensor rows = qn_embedding(d->table, qn_add(qn_mod(qn_add_scalar(sparse, 1), d->sizes), d->bases));
    return qn_cast(rows, QN_F32); /* [B][26][16] */
}

static qn_tensor dlrm_logits(dlrm *d, const network *n, qn_tensor dense, qn_tensor sparse)
{
    int next = 1;
    int64_t batch = n->batch, all = (FEATURES + 1) * WIDTH;
    qn_tensor x = dense;
    for (int i = 0; n->bottom[i]; i++) x = layer(d, &next, x, !n->bottom[i + 1]);
    qn_tensor looked = looked_up(d, sparse);
    qn_tensor z;
    if (n->interaction != QN_INTERACT_DOT) {
        qn_tensor both[] = {qn_reshape(x, QN_SHAPE(batch, 1, WIDTH)), looked};
        z = qn_reshape(qn_concat(both, 2, 1), QN_SHAPE(batch, all));
        if (n->interaction == QN_INTERACT_OUTER)
            z = qn_reshape(qn_mul(qn_unsqueeze(z, 2), qn_unsqueeze(z, 1)), QN_SHAPE(batch, all * all));
    } else {
        qn_call_kernel(module, gpu ? "interact_warp" : "interact", NULL, (qn_tensor[]){x, looked}, 2, &z, 1);
    }
    for (int i = 0; n->top[i]; i++) z = layer(d, &next, z, !n->top[i + 1]);
    return qn_reshape(z, QN_SHAPE(batch));
}

static qn_tensor step(dlrm *d, const network *n, qn_optimizer *optimizer, qn_tensor dense, qn_tensor sparse,
                      qn_tensor labels)
{
    if (n->lookup && n->forward) return looked_up(d, sparse);
    if (n->lookup) {
        qn_tensor sum = qn_sum(qn_mul(looked_up(d, sparse), d->given), QN_ALL, false);
        qn_optimizer_minimize(optimizer, sum);
        return qn_full(d->tape, QN_F32, QN_SHAPE(1), 0);
    }
    qn_tensor logits = dlrm_logits(d, n, dense, sparse);
    if (n->forward) return qn_sigmoid(logits);
    qn_tensor loss = qn_bce_with_logits(logits, labels, QN_MEAN);
    qn_optimizer_minimize(optimizer, loss);
    return loss;
}

/* Nanoseconds of a replay, the median of 15 samples of 20 replays, or of as many as take 50 ms. */
static double replay_ns(qn_plan *plan)
{
    qn_error error;
    double samples[15], start = now_ns();
    TRY(qn_plan_replay(plan, &error));
    TRY(qn_device_wait(context, device, &error));
    int replays = (int)fmax(1, fmin(20, 5e7 / (now_ns() - start)));
    for (int s = 0; s < 15; s++) {
        start = now_ns();
        for (int i = 0; i < replays; i++) TRY(qn_plan_replay(plan, &error));
        TRY(qn_device_wait(context, device, &error));
        samples[s] = (now_ns() - start) / replays;
    }
    qsort(samples, 15, sizeof(*samples), by_value);
    return samples[7];
}

/* ... of a kernel that reads and writes as many bytes one after the other. */
static double copy_ns(int64_t bytes)
{
    qn_error error;
    qn_tape *tape;
    qn_plan *plan;
    TRY(qn_tape_new(context, device, &tape, &error));
    qn_tensor x = qn_rand(tape, QN_F32, QN_SHAPE(bytes / 8));
    TRY(qn_eval(tape, &x, 1, &error));
    TRY(qn_capture_begin(tape, &error));
    qn_tensor y = qn_add_scalar(x, 1);
    TRY(qn_eval(tape, &y, 1, &error));
    TRY(qn_capture_end(tape, &plan, &error));
    TRY(qn_plan_replay(plan, &error));
    double ns = replay_ns(plan);
    qn_plan_free(plan);
    qn_tape_free(tape);
    return ns;
}

static void time_network(const network *n)
{
    qn_error error;
    double before = now_ns();
    dlrm d = dlrm_new(n);
    qn_tensor dense = qn_mul_scalar(qn_rand(d.tape, QN_F32, QN_SHAPE(n->batch, DENSE)), 10);
    int64_t *ids = malloc(sizeof(*ids) * (size_t)(n->batch * FEATURES));
    float *clicks = malloc(sizeof(*clicks) * (size_t)n->batch);
    uint64_t state = 1;
    for (int64_t i = 0; i < n->batch * FEATURES; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int64_t)(state >> 33);
    }
    for (int64_t i = 0; i < n->batch; i++) clicks[i] = (float)(ids[i] & 1);
    qn_tensor sparse = qn_from_memory(d.tape, ids, QN_I64, QN_SHAPE(n->batch, FEATURES));
    qn_tensor labels = qn_from_memory(d.tape, clicks, QN_F32, QN_SHAPE(n->batch));
    TRY(qn_eval(d.tape, &dense, 1, &error));
    qn_optimizer_options options = qn_optimizer_defaults(n->optimizer);
    options.rate = n->optimizer == QN_ADAM || n->optimizer == QN_ADAMW ? 1e-3 : 0.1;
    if (n->optimizer == QN_ADAMW) options.weight_decay = 0; /* rows that no index touches are left alone */
    options.lazy_rows = true;
    qn_optimizer *optimizer =
        n->forward ? NULL : qn_optimizer_new(d.tape, n->optimizer, &options, d.parameters, d.parameter_count);
    TRY(qn_eval(d.tape, NULL, 0, &error));
    double made = now_ns();
    qn_plan *plan;
    TRY(qn_capture_begin(d.tape, &error));
    qn_tensor result = step(&d, n, optimizer, dense, sparse, labels);
    TRY(qn_eval(d.tape, &result, 1, &error));
    TRY(qn_capture_end(d.tape, &plan, &error));
    double compiled = now_ns();
    qn_plan_facts facts;
    qn_plan_info(plan, &facts);
    for (int i = 0; i < 3; i++) TRY(qn_plan_replay(plan, &error));
    TRY(qn_device_wait(context, device, &error));
    if (one_by_one) {
        for (int i = 0; i < 10; i++) {
            qn_scope_begin(d.tape);
            result = step(&d, n, optimizer, dense, sparse, labels);
            TRY(qn_eval(d.tape, &result, 1, &error));
            qn_scope_end(d.tape);
        }
        TRY(qn_device_wait(context, device, &error));
        return;
    }
    double step_ns = 0;
    for (int i = 0; evaluated && i < 30; i++) { /* the first ten warm up */
        if (i == 10) step_ns = now_ns();
        qn_scope_begin(d.tape);
        result = step(&d, n, optimizer, dense, sparse, labels);
        TRY(qn_eval(d.tape, &result, 1, &error));
        qn_scope_end(d.tape);
        if (i == 29) TRY(qn_device_wait(context, device, &error));
        if (i == 29) step_ns = (now_ns() - step_ns) / 20;
    }
    double replayed_ns = replay_ns(plan);
    printf("%-24s %9.1f us  %d kernels  workspace %.1f MB peak %.1f MB  make %.0f ms compile %.0f ms\n", n->name,
           replayed_ns * 1e-3, facts.kernels, (double)facts.workspace_bytes * 1e-6, (double)facts.peak_bytes * 1e-6,
           (made - before) * 1e-6, (compiled - made) * 1e-6);
    if (evaluated) printf("%-24s %9.1f us a step that is evaluated\n", n->name, step_ns * 1e-3);
    if (n->lookup && n->forward) { /* tokens, and rows that are read and written */
        int64_t bytes = n->batch * FEATURES * (8 + 2 * 4 * WIDTH);
        printf("%-24s %9.2f of the rate of a kernel that moves its %.1f MB in order\n", n->name,
               copy_ns(bytes) / replayed_ns, (double)bytes * 1e-6);
    }
    fflush(stdout);
    free(ids);
    free(clicks);
    qn_plan_free(plan);
    qn_optimizer_free(optimizer);
    qn_tape_free(d.tape);
}

/* A linear layer and the same with a low-rank adapter, in turns: what the adapter costs. */
static void time_adapter(void)
{
    enum { M = 8192, N = 4096, K = 4096, R = 16, TURNS = 9 };
    qn_error error;
    qn_tape *tape;
    qn_plan *plans[2];
    double samples[2][TURNS];
    TRY(qn_tape_new(context, device, &tape, &error));
    int64_t share = divisor;
    qn_tensor x = qn_cast(qn_randn(tape, QN_F32, QN_SHAPE(M / share, K / share)), QN_BF16);
    qn_tensor w = qn_cast(qn_mul_scalar(qn_randn(tape, QN_F32, QN_SHAPE(K / share, N / share)), 0.02), QN_BF16);
    qn_tensor bias = qn_cast(qn_randn(tape, QN_F32, QN_SHAPE(N / share)), QN_BF16);
    qn_tensor a = qn_cast(qn_mul_scalar(qn_randn(tape, QN_F32, QN_SHAPE(K / share, R)), 0.02), QN_BF16);
    qn_tensor b = qn_cast(qn_randn(tape, QN_F32, QN_SHAPE(R, N / share)), QN_BF16);
    TRY(qn_eval(tape, (qn_tensor[]){x, w, bias, a, b}, 5, &error));
    for (int with = 0; with < 2; with++) {
        TRY(qn_capture_begin(tape, &error));
        qn_tensor sum = qn_linear(x, w, bias);
        if (with) sum = qn_add(sum, qn_mul_scalar(qn_matmul(qn_matmul(x, a), b), 0.5));
        qn_tensor y = qn_relu(sum);
        TRY(qn_eval(tape, &y, 1, &error));
        TRY(qn_capture_end(tape, &plans[with], &error));
        TRY(qn_plan_replay(plans[with], &error));
    }
    for (int turn = 0; turn < TURNS; turn++)
        for (int with = 0; with < 2; with++) samples[with][turn] = replay_ns(plans[with]);
    for (int with = 0; with < 2; with++) qsort(samples[with], TURNS, sizeof(double), by_value);
    printf("linear bf16 %d x %d x %d   %9.1f us, with an adapter of rank %d %9.1f us: %.3f\n", (int)(M / share),
           (int)(N / share), (int)(K / share), samples[0][TURNS / 2] * 1e-3, R, samples[1][TURNS / 2] * 1e-3,
           samples[1][TURNS / 2] / samples[0][TURNS / 2]);
    for (int with = 0; with < 2; with++) qn_plan_free(plans[with]);
    qn_tape_free(tape);
}

int main(int argc, char **argv)
{
    qn_error error;
    const char *wanted[16];
    int wanted_count = 0;
    network n;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--device") && i + 1 < argc)
            device = argv[++i];
        else if (!strcmp(argv[i], "--only") && i + 1 < argc)
            only = argv[++i];
        else if (!strcmp(argv[i], "--network") && i + 1 < argc && wanted_count < 16 && network_read(argv[i + 1], &n))
            wanted[wanted_count++] = argv[++i];
        else if (!strcmp(argv[i], "--rows") && i + 1 < argc)
            divisor = atoll(argv[++i]);
        else if (!strcmp(argv[i], "--kernels") && i + 1 < argc)
            kernels = argv[++i];
        else if (!strcmp(argv[i], "--eager"))
            one_by_one = true;
        else if (!strcmp(argv[i], "--unfused"))
            unfused = true;
        else if (!strcmp(argv[i], "--evaluated"))
            evaluated = true;
        else {
            fprintf(stderr, "usage: bench_dlrm [--device NAME] [--only WORD] [--network \"cat adagrad b2048\"] [--rows "
                            "DIVISOR] [--kernels FILE] [--eager] "
                            "[--unfused] [--evaluated]\n");
            return 2;
        }
    }
    gpu = strcmp(device, "cpu") && strcmp(device, "ref");
    qn_context_options options = {.allow_raw = true};
    TRY(qn_context_open(&options, &context, &error));
    TRY(qn_module_load_file(context, kernels, &module, &error));
    for (int i = 0; i < wanted_count; i++)
        if (network_read(wanted[i], &n)) time_network(&n);
    for (int i = 0; i < (int)(sizeof(networks) / sizeof(networks[0])) && !wanted_count; i++)
        if ((!only || strstr(networks[i], only)) && network_read(networks[i], &n)) time_network(&n);
    if (gpu && only && strstr("adapter", only)) time_adapter();
    qn_context_close(context);
    return 0;
}
