/*
 * Whose the time of devices is: ranges and operations have the time of the work that was called in them, wherever it is
 * evaluated: on the CPU and on the driver in tests/fake, op by op, fused, and replayed; and it adds up.
 * SPDX-License-Identifier: MIT
 */
#include "profile/session.h"
#include "tensor/tape.h"
#include "fake/open.h"
#include "quiet.h"

#include <math.h>
#include <quern/device.h>
#include <quern/tensor.h>
#include <quern/train.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, WIDTH = 48, BATCH = 16 };

static qn_error error;
static qn_context *context;
static char cache_folder[] = "/tmp/quern-test-ranges-XXXXXX";

#define OK(call)                           \
    do {                                   \
        if ((call) != QN_OK) {             \
            printf("%s\n", error.message); \
            EXPECT(!"success of " #call);  \
        }                                  \
    } while (0)

TEST(open_fake)
{
    fake_take();
    EXPECT(mkdtemp(cache_folder) != NULL);
    OK(qn_context_open(&(qn_context_options){.cache_folder = cache_folder, .threads = 2}, &context, &error));
}

/* ---- tables ---- */

static void keep_text(void *user, const char *words, size_t length)
{
    char **to = user;
    *to = malloc(length + 1);
    memcpy(*to, words, length);
    (*to)[length] = 0;
}

static char *table_of(qn_profile *p, qn_table_by by, qn_table_format format)
{
    char *words = NULL;
    OK(qn_profile_table(p, &(qn_table_options){.by = by, .format = format}, keep_text, &words, &error));
    return words;
}

static int column_of(const char *csv, const char *key)
{
    int column = 0;
    for (const char *at = csv; *at != '\n'; column++) {
        size_t length = strcspn(at, ",\n");
        if (length == strlen(key) && !strncmp(at, key, length)) return column;
        at += length + (at[length] == ',');
    }
    return -1;
}

static double number_in(const char *line, int column)
{
    for (bool quoted = false; column > 0; line++) {
        if (*line == '"') quoted = !quoted;
        if (*line == ',' && !quoted) column--;
    }
    return *line == ',' || *line == '\n' ? NAN : atof(line);
}

/* The number of a row; NAN: it has none, or there is no such row. `kind`: "op", "range", ... */
static double cell(const char *csv, const char *name, const char *key)
{
    char start[128];
    snprintf(start, sizeof(start), "\n%s,", name);
    const char *line = strstr(csv, start);
    return line ? number_in(line + 1, column_of(csv, key)) : NAN;
}

static double sum_of(const char *csv, const char *key)
{
    double sum = 0;
    int column = column_of(csv, key);
    for (const char *line = strchr(csv, '\n') + 1; *line; line = strchr(line, '\n') + 1) {
        double x = number_in(line, column);
        sum += isnan(x) ? 0 : x;
    }
    return sum;
}

/* ---- a step of training ---- */

typedef struct network {
    qn_tape *tape;
    qn_tensor x, weights[LAYERS], loss;
    qn_optimizer *optimizer;
} network;

static network network_of(const char *device, qn_mode mode)
{
    static float numbers[WIDTH * WIDTH];
    network n = {0};
    for (int i = 0; i < WIDTH * WIDTH; i++) numbers[i] = (float)((i * 37) % 101 - 50) / 500;
    OK(qn_tape_new(context, device, &n.tape, &error));
    qn_tape_set_mode(n.tape, mode);
    n.x = qn_from_memory(n.tape, numbers, QN_F32, QN_SHAPE(BATCH, WIDTH));
    for (int i = 0; i < LAYERS; i++)
        n.weights[i] = qn_variable(qn_from_memory(n.tape, numbers, QN_F32, QN_SHAPE(WIDTH, WIDTH)));
    qn_optimizer_options options = qn_optimizer_defaults(QN_SGD);
    n.optimizer = qn_optimizer_new(n.tape, QN_SGD, &options, n.weights, LAYERS);
    return n;
}

static void network_free(network *n)
{
    qn_optimizer_free(n->optimizer);
    qn_tape_free(n->tape);
}

/* Everything is evaluated in `backward`, where nothing of the forward pass was called. */
static void step(network *n)
{
    qn_tensor y = n->x;
    QN_RANGE("forward")
    {
        for (int i = 0; i < LAYERS; i++) {
            char name[16];
            snprintf(name, sizeof(name), "layer_%d", i);
            QN_RANGE(name) y = qn_relu(qn_matmul(y, n->weights[i]));
        }
        n->loss = qn_mean(qn_mul(y, y), QN_ALL, false);
    }
    QN_RANGE("backward")
    {
        qn_optimizer_minimize(n->optimizer, n->loss);
        OK(qn_eval(n->tape, &n->loss, 1, &error));
    }
}

static qn_profile *started(bool graph_nodes)
{
    qn_profile *p = NULL;
    OK(qn_profile_start(context, &(qn_profile_options){.graph_nodes = graph_nodes}, &p, &error));
    return p;
}

/* All kernels' time is somebody's, once. */
static void expect_sums(qn_profile *p)
{
    char *ranges = table_of(p, QN_BY_RANGE, QN_TABLE_CSV), *kernels = table_of(p, QN_BY_KERNEL, QN_TABLE_CSV);
    double of_ranges = sum_of(ranges, "self_device_ns"), of_kernels = sum_of(kernels, "self_device_ns");
    EXPECT(of_kernels > 0 && of_ranges == of_kernels);
    free(ranges);
    free(kernels);
}

static void expect_owners(qn_profile *p)
{
    char *ranges = table_of(p, QN_BY_RANGE, QN_TABLE_CSV);
    double layers = 0;
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "layer_%d", i);
        double own = cell(ranges, name, "self_device_ns");
        EXPECT(own > 0 && own == cell(ranges, name, "device_ns"));
        layers += own;
    }
    double forward = cell(ranges, "forward", "device_ns"), backward = cell(ranges, "backward", "device_ns");
    double own = cell(ranges, "forward", "self_device_ns"), sgd = cell(ranges, "optimizer", "device_ns");
    EXPECT(forward == layers + (isnan(own) ? 0 : own));
    EXPECT(backward > 0 && sgd > 0 && sgd < backward);
    free(ranges);
    char *ops = table_of(p, QN_BY_OP, QN_TABLE_CSV);
    EXPECT(cell(ops, "matmul", "self_device_ns") > 0 && cell(ops, "relu", "self_device_ns") > 0);
    EXPECT(cell(ops, "matmul backward", "self_device_ns") > 0 && cell(ops, "relu backward", "self_device_ns") > 0);
    EXPECT(cell(ops, "sgd", "self_device_ns") > 0);
    free(ops);
    expect_sums(p);
}

static void evaluated(const char *device, qn_mode mode)
{
    network n = network_of(device, mode);
    step(&n); /* compiled before */
    qn_profile *p = started(false);
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof(name), "step_%d", i);
        QN_RANGE(name) step(&n);
    }
    OK(qn_profile_stop(p, &error));
    expect_owners(p);
    /* Both steps ran the plan of the one before the profile: the ranges are theirs all the same. */
    char *ranges = table_of(p, QN_BY_RANGE, QN_TABLE_CSV);
    double first = cell(ranges, "step_0", "device_ns"), second = cell(ranges, "step_1", "device_ns");
    EXPECT(first > 0 && second > 0);
    EXPECT(first + second == cell(ranges, "forward", "device_ns") + cell(ranges, "backward", "device_ns"));
    free(ranges);
    qn_profile_free(p);
    network_free(&n);
}

TEST(eager)
{
    evaluated("cpu", QN_EAGER);
    evaluated("cuda", QN_EAGER);
}

TEST(fused)
{
    evaluated("cpu", QN_FUSED);
    evaluated("cuda", QN_FUSED);
}

/* The profile starts when the step was captured long ago; its ranges stand inside the one that replays it. */
static void replayed(const char *device, bool graph_nodes)
{
    network n = network_of(device, QN_FUSED);
    qn_plan *plan = NULL;
    QN_RANGE("while_capturing")
    {
        OK(qn_capture_begin(n.tape, &error));
        step(&n);
        OK(qn_capture_end(n.tape, &plan, &error));
    }
    OK(qn_plan_replay(plan, &error));
    qn_profile *p = started(graph_nodes);
    for (int i = 0; i < 3; i++) QN_RANGE("train") OK(qn_plan_replay(plan, &error));
    OK(qn_profile_stop(p, &error));
    expect_owners(p);
    char *ranges = table_of(p, QN_BY_RANGE, QN_TABLE_CSV), *kernels = table_of(p, QN_BY_KERNEL, QN_TABLE_CSV);
    EXPECT(cell(ranges, "train", "device_ns") == sum_of(kernels, "self_device_ns"));
    EXPECT(isnan(cell(ranges, "while_capturing", "device_ns")));
    free(ranges);
    free(kernels);
    qn_profile_free(p);
    qn_plan_free(plan);
    network_free(&n);
}

TEST(replays)
{
    replayed("cpu", false);
    replayed("cuda", false);
    replayed("cuda", true);
}

/* A kernel of several operations: each has a part, and the table says that it is an estimate. */
TEST(estimates)
{
    network n = network_of("cpu", QN_FUSED);
    qn_tensor a = {0}, b = {0};
    qn_profile *p = started(false);
    QN_RANGE("one") a = qn_exp(n.x);
    QN_RANGE("two") b = qn_mul(qn_tanh(a), a);
    OK(qn_eval(n.tape, &b, 1, &error));
    OK(qn_profile_stop(p, &error));
    char *ranges = table_of(p, QN_BY_RANGE, QN_TABLE_CSV), *ops = table_of(p, QN_BY_OP, QN_TABLE_CSV);
    EXPECT(cell(ranges, "one", "device_ns") > 0 && cell(ranges, "two", "device_ns") > 0);
    EXPECT(cell(ranges, "one", "estimated_percent") == 100 && cell(ops, "tanh", "estimated_percent") == 100);
    EXPECT(cell(ops, "exp", "self_device_ns") > 0 && cell(ops, "mul", "self_device_ns") > 0);
    free(ranges);
    free(ops);
    char *words = table_of(p, QN_BY_RANGE, QN_TABLE_TEXT);
    EXPECT(strstr(words, "Estimated") && strstr(words, "is shared out by their bytes and FLOPs"));
    free(words);
    expect_sums(p);
    qn_profile_free(p);
    network_free(&n);
}

/* What encloses all of a kernel knows its time, though what is inside it does not. */
TEST(enclosing)
{
    network n = network_of("cpu", QN_FUSED);
    qn_tensor a = {0}, b = {0};
    qn_profile *p = started(false);
    QN_RANGE("layer")
    {
        QN_RANGE("one") a = qn_exp(n.x);
        QN_RANGE("two") b = qn_mul(qn_tanh(a), a);
        OK(qn_eval(n.tape, &b, 1, &error));
    }
    OK(qn_profile_stop(p, &error));
    char *ranges = table_of(p, QN_BY_RANGE, QN_TABLE_CSV);
    EXPECT(isnan(cell(ranges, "layer", "estimated_percent")) && cell(ranges, "one", "estimated_percent") == 100);
    EXPECT(cell(ranges, "layer", "device_ns") == cell(ranges, "one", "device_ns") + cell(ranges, "two", "device_ns"));
    free(ranges);
    qn_profile_free(p);
    network_free(&n);
}

/* One kernel, one operation, one range: nothing is estimated, and no word of it. */
TEST(measured)
{
    network n = network_of("cpu", QN_FUSED);
    qn_tensor a = {0};
    OK(qn_eval(n.tape, NULL, 0, &error)); /* the variables */
    qn_profile *p = started(false);
    QN_RANGE("only") a = qn_exp(n.x);
    OK(qn_eval(n.tape, &a, 1, &error));
    OK(qn_profile_stop(p, &error));
    char *words = table_of(p, QN_BY_RANGE, QN_TABLE_TEXT);
    EXPECT(strstr(words, "only") && !strstr(words, "Estimated") && !strstr(words, "(outside ranges)"));
    free(words);
    expect_sums(p);
    qn_profile_free(p);
    network_free(&n);
}

/* Called in no range: it counts where it is evaluated, unless that evaluation has work of other ranges. */
TEST(called_outside)
{
    network n = network_of("cpu", QN_EAGER);
    qn_tensor a = qn_exp(n.x), b, c = {0};
    qn_profile *p = started(false);
    QN_RANGE("evaluates") OK(qn_eval(n.tape, &a, 1, &error));
    b = qn_tanh(n.x);
    QN_RANGE("both")
    {
        c = qn_mul(b, b);
        OK(qn_eval(n.tape, &c, 1, &error));
    }
    OK(qn_profile_stop(p, &error));
    char *ranges = table_of(p, QN_BY_RANGE, QN_TABLE_CSV);
    EXPECT(cell(ranges, "evaluates", "device_ns") > 0 && cell(ranges, "both", "device_ns") > 0);
    EXPECT(cell(ranges, "(outside ranges)", "device_ns") > 0);
    free(ranges);
    expect_sums(p);
    qn_profile_free(p);
    network_free(&n);
}

/* ---- the timeline ---- */

static char *read_whole(const char *path)
{
    FILE *f = fopen(path, "rb");
    EXPECT(f != NULL);
    if (!f) return NULL;
    char *words = calloc(1, 1 << 22);
    EXPECT(fread(words, 1, (1 << 22) - 1, f) > 0);
    fclose(f);
    return words;
}

typedef struct found {
    double from, to;
    int row;
} found;

static bool next_slice(const char **at, const char *name, found *out)
{
    char start[128];
    snprintf(start, sizeof(start), "{\"ph\":\"X\",\"cat\":\"gpu_user_annotation\",\"name\":\"%s\",", name);
    const char *slice = strstr(*at, start);
    if (!slice) return false;
    *at = slice + 1;
    out->row = atoi(strstr(slice, "\"tid\":") + 6);
    out->from = atof(strstr(slice, "\"ts\":") + 5);
    out->to = out->from + atof(strstr(slice, "\"dur\":") + 6);
    return true;
}

static bool inside(const char *trace, const char *inner, const char *outer)
{
    found in, out;
    for (const char *at = trace; next_slice(&at, inner, &in);)
        for (const char *round = trace; next_slice(&round, outer, &out);)
            if (out.row == in.row && out.from <= in.from + 0.002 && out.to >= in.to - 0.002) return true;
    return false;
}

static void drawn(const char *device)
{
    char path[80];
    snprintf(path, sizeof(path), "%s/trace.json", cache_folder);
    network n = network_of(device, QN_FUSED);
    qn_profile *p = started(true);
    step(&n);
    OK(qn_profile_stop(p, &error));
    OK(qn_profile_write_trace(p, path, &error));
    char *trace = read_whole(path);
    EXPECT(inside(trace, "layer_1", "forward") && inside(trace, "matmul", "layer_1"));
    EXPECT(inside(trace, "matmul backward", "backward") && inside(trace, "sgd", "optimizer"));
    EXPECT(!inside(trace, "layer_1", "backward"));
    EXPECT(strstr(trace, "\"time\":\"estimate: a share of its kernel\""));
    free(trace);
    qn_profile_free(p);
    network_free(&n);
    remove(path);
}

TEST(timeline)
{
    drawn("cpu");
    drawn("cuda");
}

/* ---- what it costs ---- */

/* Ranges in which no node is made leave nothing behind, and a collection keeps those of what it keeps. */
TEST(ranges_are_forgotten)
{
    network n = network_of("cpu", QN_FUSED);
    qn_tensor kept = {0};
    int before = n.tape->graph->range_count;
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof(name), "step_%d", i);
        QN_RANGE(name)
        QN_RANGE("write") tape_enter(n.tape, "nothing");
    }
    EXPECT(n.tape->graph->range_count <= before + 2);
    for (int i = 0; i < 100; i++) QN_RANGE("made") qn_release(qn_mul_scalar(n.x, i));
    QN_RANGE("outer")
    QN_RANGE("kept") kept = qn_exp(n.x);
    tape_collect(n.tape);
    const graph *g = n.tape->graph;
    EXPECT(g->range_count <= before + 8);
    unsigned at = graph_get(g, tape_slot_of(kept)->node)->site.origin;
    EXPECT(at && !strcmp(g->ranges[at].name, "kept") && !strcmp(g->ranges[g->ranges[at].parent].name, "outer"));
    network_free(&n);
}

TEST(cost)
{
    double off = 1e9;
    for (int k = 0; k < 100; k++) {
        int64_t from = record_clock_ns();
        for (int i = 0; i < 2000; i++) {
            qn_range_push("a range");
            qn_range_pop();
        }
        off = MINIMUM(off, (double)(record_clock_ns() - from) / 2000);
    }
    printf("note: a range that nobody records takes %.1f ns\n", off);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_QUICK(off < 25);
#endif
}

TEST(close_fake)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(open_fake), CASE(eager), CASE(fused), CASE(replays), CASE(estimates), CASE(enclosing), CASE(measured),
          CASE(called_outside), CASE(timeline), CASE(ranges_are_forgotten), CASE(cost), CASE(close_fake))
