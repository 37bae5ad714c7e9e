/*
 * State in files: what is saved comes back bit for bit, the names and shapes are PyTorch's, a file that does not fit names
 * each tensor and changes nothing, and a run that was saved, ended and loaded goes on to the very numbers of one that was
 * not: dropout, schedule, clipping, Adam's moments and rows of a table included, on ref and cpu (and $QUERN_TEST_DEVICE),
 * recorded and not.
 * SPDX-License-Identifier: MIT
 */
#include <quern/model.h>

#include "model/model.h"
#include "tensor.h"

#include <quern/safetensors.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <quern/sites.h>

static char folder[] = "/tmp/quern_test_state_XXXXXX";

static const char *place(const char *name)
{
    static char paths[4][256];
    static int turn;
    static bool made;
    if (!made) made = mkdtemp(folder) != NULL;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void on(const char *device)
{
    qn_error error;
    if ((!tensor_context && qn_context_open(NULL, &tensor_context, &error)) ||
        qn_tape_new(tensor_context, device, &tape, &error)) {
        printf("%s\n", error.message);
        exit(1);
    }
}

enum { ROWS = 7, WIDTH = 4, BATCH = 6 };

typedef struct run {
    qn_model *net;
    qn_optimizer *optimizer;
    qn_tensor x, labels, loss;
    qn_plan *plan;
} run;

static qn_tensor build(run *r)
{
    qn_tensor rows = qn_flatten(qn_model_forward(qn_model_find(r->net, "table"), r->x), 1, 2);
    qn_tensor logits = qn_model_forward(qn_model_find(r->net, "body"), rows);
    return qn_bce_with_logits(logits, r->labels, QN_MEAN);
}

static run run_new(void)
{
    run r = {.net = qn_model_new(tape, 11)};
    qn_model_embedding(r.net, "table", ROWS, WIDTH);
    qn_model *body = qn_model_child(r.net, "body");
    qn_model_linear(body, NULL, 2 * WIDTH, 5, true);
    qn_model_batch_norm(body, NULL, 5);
    qn_model_activation(body, NULL, qn_gelu);
    qn_model_dropout(body, NULL, 0.3);
    qn_model_linear(body, NULL, 5, 1, true);
    qn_optimizer_options rows = qn_optimizer_defaults(QN_ADAM), decayed = qn_optimizer_defaults(QN_ADAMW);
    rows.lazy_rows = true;
    decayed.rate = rows.rate = 0.05;
    qn_model_group groups[] = {{"table.*", QN_ADAM, rows}, {"*.bias", QN_SGD, qn_optimizer_defaults(QN_SGD)}};
    groups[1].options.momentum = 0.9;
    r.optimizer = qn_model_optimizer(r.net, QN_ADAMW, &decayed, groups, 2);
    qn_optimizer_set_schedule(r.optimizer,
                              &(qn_schedule){.kind = QN_COSINE, .warmup_steps = 3, .steps = 9, .end = 0.1});
    qn_optimizer_set_clip_norm(r.optimizer, 0.5);
    qn_seed(tape, 99);
    r.x = qn_empty(tape, QN_I64, QN_SHAPE(BATCH, 2));
    r.labels = qn_empty(tape, QN_F32, QN_SHAPE(BATCH, 1));
    return r;
}

static void run_free(run *r)
{
    qn_plan_free(r->plan);
    qn_optimizer_free(r->optimizer);
    qn_model_free(r->net);
}

/* Step t of the data; the loss. */
static double run_step(run *r, int t, bool recorded)
{
    qn_error error = {0};
    int64_t index[BATCH * 2];
    float labels[BATCH];
    double value = 0;
    for (int i = 0; i < BATCH * 2; i++) index[i] = (i * 5 + t * 3) % ROWS;
    for (int i = 0; i < BATCH; i++) labels[i] = (float)((i + t) % 2);
    EXPECT(!qn_tensor_write(r->x, index, sizeof(index), &error));
    EXPECT(!qn_tensor_write(r->labels, labels, sizeof(labels), &error));
    if (!recorded) {
        qn_scope_begin(tape);
        qn_tensor loss = build(r);
        qn_optimizer_minimize(r->optimizer, loss);
        EXPECT(!qn_eval(tape, &loss, 1, &error) && !qn_tensor_item(loss, &value, &error));
        qn_scope_end(tape);
        return value;
    }
    if (!r->plan) {
        EXPECT(!qn_capture_begin(tape, &error));
        r->loss = build(r);
        qn_optimizer_minimize(r->optimizer, r->loss);
        EXPECT(!qn_eval(tape, &r->loss, 1, &error) && !qn_capture_end(tape, &r->plan, &error));
    }
    EXPECT(!qn_plan_replay(r->plan, &error) && !qn_tensor_item(r->loss, &value, &error));
    return value;
}

/* Which steps' losses differ, and by what. */
static void expect_same_losses(const char *device, const double *whole, const double *resumed, int count)
{
    for (int t = 0; t < count; t++) {
        if (!memcmp(whole + t, resumed + t, sizeof(*whole))) continue;
        char words[160];
        snprintf(words, sizeof(words), "on %s, loss of step %d: %.9g unbroken, %.9g resumed", device, t, whole[t],
                 resumed[t]);
        test_fail(__FILE__, __LINE__, words);
    }
}

/* Each tensor that differs, with the first of its elements that does. */
static void tell_difference(const char *device, qn_safetensors *whole, qn_safetensors *resumed)
{
    qn_error error;
    for (int i = 0; i < qn_safetensors_count(whole); i++) {
        const qn_safetensor *tensor = qn_safetensors_get(whole, i);
        unsigned char a[4096], b[4096];
        size_t size_bytes = tensor->size_bytes;
        int at = qn_safetensors_find(resumed, tensor->name);
        if (size_bytes > sizeof(a) || at < 0 || qn_safetensors_read(whole, i, a, size_bytes, &error) ||
            qn_safetensors_read(resumed, at, b, size_bytes, &error)) {
            printf("on %s, `%s` is of another size\n", device, tensor->name);
            continue;
        }
        size_t byte = 0, differ = 0, width = qn_dtype_size_bytes(tensor->type);
        for (size_t k = size_bytes; k-- > 0;)
            if (a[k] != b[k]) byte = k, differ++;
        if (!differ) continue;
        char bits[2][20] = {{0}};
        byte -= byte % width;
        for (size_t k = 0; k < width; k++) {
            snprintf(bits[0] + 2 * k, 3, "%02x", a[byte + width - 1 - k]);
            snprintf(bits[1] + 2 * k, 3, "%02x", b[byte + width - 1 - k]);
        }
        printf("on %s, `%s` differs in %zu of %zu bytes, first at element %zu: %s unbroken, %s resumed\n", device,
               tensor->name, differ, size_bytes, byte / width, bits[0], bits[1]);
    }
}

/* Byte for byte; if not, which tensor and element is the first to differ. */
static void expect_same_files(const char *device, const char *whole_path, const char *resumed_path)
{
    const char *paths[] = {whole_path, resumed_path};
    qn_safetensors *files[2] = {0};
    char *bytes[2] = {0};
    size_t sizes[2] = {0};
    qn_error error;
    for (int i = 0; i < 2; i++) {
        EXPECT(!file_read(paths[i], 1 << 24, &bytes[i], &sizes[i], &error));
        EXPECT(!qn_safetensors_open(paths[i], &files[i], &error));
    }
    bool same = bytes[0] && bytes[1] && sizes[0] == sizes[1] && !memcmp(bytes[0], bytes[1], sizes[0]);
    EXPECT(same);
    if (!same && files[0] && files[1]) tell_difference(device, files[0], files[1]);
    for (int i = 0; i < 2; i++) {
        qn_safetensors_close(files[i]);
        free(bytes[i]);
    }
}

static void resume_on(const char *device, bool recorded)
{
    enum { ALL = 10, SAVED = 4 };
    double whole[ALL], resumed[ALL];
    qn_error error;
    on(device);
    run r = run_new();
    for (int t = 0; t < ALL; t++) whole[t] = run_step(&r, t, recorded);
    EXPECT(!qn_model_save(r.net, r.optimizer, NULL, place("whole.safetensors"), &error));
    run_free(&r);
    tape_close();

    on(device);
    r = run_new();
    for (int t = 0; t < SAVED; t++) resumed[t] = run_step(&r, t, recorded);
    const char *metadata[] = {"position", "4", NULL};
    EXPECT(!qn_model_save(r.net, r.optimizer, metadata, place("half.safetensors"), &error));
    run_free(&r);
    tape_close();

    on(device); /* as another process would */
    r = run_new();
    run_step(&r, 1, recorded); /* a recorded step reads what is loaded later too */
    if (qn_model_load(r.net, r.optimizer, place("half.safetensors"), NULL, &error))
        test_fail(__FILE__, __LINE__, error.message);
    for (int t = SAVED; t < ALL; t++) resumed[t] = run_step(&r, t, recorded);
    expect_same_losses(device, whole, resumed, ALL);
    EXPECT(whole[0] != whole[2] && isfinite(whole[ALL - 1]));
    EXPECT(!qn_model_save(r.net, r.optimizer, NULL, place("resumed.safetensors"), &error));
    run_free(&r);
    tape_close();
    expect_same_files(device, place("whole.safetensors"), place("resumed.safetensors"));
}

TEST(a_resumed_run_is_the_same_run)
{
    resume_on("ref", false);
    resume_on("ref", true);
    resume_on("cpu", true);
    if (getenv("QUERN_TEST_DEVICE")) resume_on(getenv("QUERN_TEST_DEVICE"), true);
}

TEST(files_have_pytorch_names_and_shapes)
{
    qn_error error;
    on("ref");
    qn_model *net = qn_model_new(tape, 1);
    qn_model_linear(net, "fc", 2, 3, true);
    qn_optimizer *adam = qn_model_optimizer(net, QN_ADAM, NULL, NULL, 0);
    qn_model_init(net, "fc.bias", qn_init_constant(0.5));
    float weight[6] = {1, 2, 3, 4, 5, 6}, stored[6];
    EXPECT(!qn_tensor_write(qn_model_get(net, "fc.weight"), weight, sizeof(weight), &error));
    const char *metadata[] = {"epoch", "3", "note", "a \"quoted\" one", NULL};
    EXPECT(!qn_model_save(net, adam, metadata, place("fc.safetensors"), &error));
    qn_safetensors *file = NULL;
    EXPECT(!qn_safetensors_open(place("fc.safetensors"), &file, &error));
    int at = qn_safetensors_find(file, "fc.weight");
    const qn_safetensor *t = qn_safetensors_get(file, at);
    EXPECT(t && t->rank == 2 && t->extents[0] == 3 && t->extents[1] == 2 && t->type == QN_F32);
    EXPECT(!qn_safetensors_read(file, at, stored, sizeof(stored), &error));
    const float turned[6] = {1, 4, 2, 5, 3, 6};
    EXPECT(!memcmp(stored, turned, sizeof(turned)));
    EXPECT_TEXT(qn_safetensors_metadata(file, "epoch"), "3");
    EXPECT_TEXT(qn_safetensors_metadata(file, "note"), "a \"quoted\" one");
    EXPECT(!qn_safetensors_metadata(file, "other"));
    const char *const names[] = {"fc.bias",
                                 "optimizer/steps",
                                 "optimizer/rate/0",
                                 "optimizer/fc.weight/exp_avg",
                                 "optimizer/fc.weight/exp_avg_sq",
                                 "optimizer/fc.bias/exp_avg",
                                 "random/state"};
    for (int i = 0; i < COUNT(names); i++) EXPECT(qn_safetensors_find(file, names[i]) >= 0);
    EXPECT(qn_safetensors_count(file) == 9);
    qn_safetensors_close(file);
    /* and back, without the optimiser, into another model */
    qn_model *other = qn_model_new(tape, 2);
    qn_model_linear(other, "fc", 2, 3, true);
    EXPECT(!qn_model_load(other, NULL, place("fc.safetensors"), NULL, &error));
    EXPECT_TENSOR(qn_model_get(other, "fc.weight"), QN_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    EXPECT_TENSOR(qn_model_get(other, "fc.bias"), QN_SHAPE(3), 0.5, 0.5, 0.5);
    qn_model_free(other);
    qn_optimizer_free(adam);
    qn_model_free(net);
    tape_close();
}

TEST(a_file_that_does_not_fit_says_where)
{
    qn_error error;
    on("ref");
    qn_model *saved = qn_model_new(tape, 1), *net = qn_model_new(tape, 2);
    qn_model_linear(saved, "a", 2, 3, true);
    qn_model_linear(saved, "only", 1, 1, false);
    qn_model_linear(saved, "c", 2, 2, false);
    qn_model_linear(net, "a", 3, 3, true);
    qn_model_linear(net, "b", 1, 1, false);
    qn_model_set_type(net, QN_BF16);
    qn_model_linear(net, "c", 2, 2, false);
    const char *path = place("fit.safetensors");
    EXPECT(!qn_model_save(saved, NULL, NULL, path, &error));
    double before[3], after[3];
    tensor_values(qn_model_get(net, "a.bias"), before, 3);
    EXPECT(qn_model_load(net, NULL, path, NULL, &error) == QN_BAD_FILE);
    char expected[600];
    snprintf(expected, sizeof(expected),
             "%s does not fit the model, and nothing was loaded:\n"
             "  `a.weight` is f32 [3, 2] in the file and f32 [3, 3] in the model\n"
             "  `b.weight` is missing\n"
             "  `c.weight` is f32 [2, 2] in the file and bf16 [2, 2] in the model\n"
             "  `only.weight` is unexpected: the model has no such tensor",
             path);
    EXPECT_TEXT(error.message, expected);
    tensor_values(qn_model_get(net, "a.bias"), after, 3);
    EXPECT(!memcmp(before, after, sizeof(before)));
    /* each of these is allowed on request */
    qn_model *part = qn_model_new(tape, 3);
    qn_model_set_type(part, QN_BF16);
    qn_model_linear(part, "c", 2, 2, false);
    qn_model_linear(part, "new", 2, 2, false);
    qn_load_options all = {.allow_missing = true, .allow_unexpected = true, .convert = true};
    EXPECT(!qn_model_load(part, NULL, path, &all, &error));
    double c[4], from[4];
    tensor_values(qn_model_get(part, "c.weight"), c, 4);
    tensor_values(qn_model_get(saved, "c.weight"), from, 4);
    for (int i = 0; i < 4; i++) EXPECT(c[i] == bf16_to_double(bf16_from_double(from[i])));
    qn_optimizer *sgd = qn_model_optimizer(saved, QN_SGD, NULL, NULL, 0);
    EXPECT(qn_model_load(saved, sgd, path, NULL, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "`optimizer/steps` is missing"));
    EXPECT(qn_model_save(net, sgd, NULL, path, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "parameter 0 of the optimizer is none of the model's");
    EXPECT(qn_model_load(saved, NULL, place("none"), NULL, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "cannot open"));
    EXPECT(qn_model_save(saved, NULL, NULL, place("no/such/folder"), &error) == QN_BAD_FILE);
    qn_optimizer_free(sgd);
    qn_model_free(saved);
    qn_model_free(net);
    qn_model_free(part);
    tape_close();
}

/* The disk is full: the old file stays whole, and nothing lies beside it. */
TEST(a_full_disk_loses_nothing)
{
    qn_error error;
    on("ref");
    qn_model *net = qn_model_new(tape, 1);
    qn_model_linear(net, "fc", 64, 64, true);
    const char *path = place("old.safetensors");
    EXPECT(!qn_model_save(net, NULL, NULL, path, &error));
    /* a file may not grow to its size: what a full disk says, at the same place */
    struct rlimit before, small;
    EXPECT(!getrlimit(RLIMIT_FSIZE, &before));
    small = (struct rlimit){1000, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    EXPECT(!setrlimit(RLIMIT_FSIZE, &small));
    qn_status status = qn_model_save(net, NULL, NULL, path, &error);
    EXPECT(!setrlimit(RLIMIT_FSIZE, &before));
    signal(SIGXFSZ, SIG_DFL);
    EXPECT(status == QN_BAD_FILE && strstr(error.message, "File too large"));
    char command[700];
    snprintf(command, sizeof(command), "test -z \"$(ls %s.* 2>/dev/null)\"", path);
    EXPECT(system(command) == 0);
    EXPECT(!qn_model_load(net, NULL, path, NULL, &error));
    qn_model_free(net);
    tape_close();
}

TEST(cases_end)
{
    char command[300];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    EXPECT(system(command) == 0);
}

TEST_MAIN(CASE(a_resumed_run_is_the_same_run), CASE(files_have_pytorch_names_and_shapes),
          CASE(a_file_that_does_not_fit_says_where), CASE(a_full_disk_loses_nothing), CASE(cases_end))
