/*
 * DLRM: configurations (the talk's read unchanged, faults by their words), tokens to rows as the talk printed them, the
 * model against plain loops on each device and each interaction, files with PyTorch's names, runs that go on to the very
 * same numbers, what is told of a NaN and of a model that does not learn.
 * SPDX-License-Identifier: MIT
 */
#include "data/tensorboard.h"
#include "model/dlrm.h"
#include "test.h"

#include <quern/safetensors.h>

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

static qn_context *context;
static qn_error error;
static char folder[] = "/tmp/quern_test_dlrm_XXXXXX";

static const char *path_of(const char *name)
{
    static char paths[4][256];
    static int turn;
    static bool made;
    if (!made) made = mkdtemp(folder) != NULL;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void open_context(void)
{
    if (!context && qn_context_open(NULL, &context, &error)) printf("%s\n", error.message);
}

#define EXPECT_OK(call) EXPECT_TEXT((call) ? error.message : "", "")

#include "dlrm_config.h"

/* ---- models ---- */

static qn_metadata *metadata_of(const int64_t *sizes, int sparse_count, int dense_count)
{
    static int64_t tokens[64];
    static qn_sparse_facts sparse[64];
    static qn_dense_facts dense[64];
    static qn_metadata m;
    for (int i = 0; i < 64; i++) tokens[i] = i * 10;
    for (int i = 0; i < sparse_count; i++) sparse[i] = (qn_sparse_facts){sizes[i], sizes[i] < 64 ? tokens : NULL, 0};
    for (int i = 0; i < dense_count; i++) dense[i] = (qn_dense_facts){.log_mean = 0.5 * i, .log_deviation = 1 + i};
    m = (qn_metadata){.dense_count = dense_count, .sparse_count = sparse_count, .dense = dense, .sparse = sparse};
    return &m;
}

TEST(rows_of_the_talk)
{
    static const int64_t sizes[26] = {1234907, 19682,   13779,  6866,    18489, 3,    6263, 1234, 49,
                                      854680,  114026,  75735,  10,      2159,  7532, 61,   4,    918,
                                      14,      1307783, 404742, 1105613, 87714, 9031, 76,   33};
    static const int64_t ids[2][26] = {
        {0x62770d79, 0xe21f5d58, 0xafea442f, 0x945c7fcf, 0x38b02748, 0x6fcd6dcb, 0x3580aa21, 0x28808903, 0x46dedfa6,
         0x2e027dc1, 0x0c7c4231, 0x95981d1f, 0x00c5ffb7, 0xbe4ee537, 0x8a0b74cc, 0x4cdc3efa, 0xd20856aa, 0xb8170bba,
         0x9512c20b, 0xc38e2f28, 0x14f65a5d, 0x25b1b089, 0xd7c1fc0b, 0x7caf609c, 0x30436bfc, 0xed10571d},
        {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
    static const int64_t rows[26] = {898743, 829,    333,    216,     12818, 2,    5187, 352, 5,
                                     139162, 4240,   67682,  6,       60,    6989, 35,   3,   711,
                                     0,      955541, 373254, 1097035, 33060, 8756, 25,   25};
    open_context();
    qn_tape *tape;
    qn_dlrm *d;
    qn_dlrm_config c = qn_dlrm_defaults();
    c.width = 1;
    c.map = QN_MAP_MODULUS;
    EXPECT_OK(qn_tape_new(context, "cpu", &tape, &error));
    EXPECT_OK(qn_dlrm_new(tape, &c, metadata_of(sizes, 26, 13), 1, &d, &error));
    int64_t got[2][26], base = 0;
    qn_tensor out = qn_dlrm_rows(d, qn_from_memory(tape, ids, QN_I64, QN_SHAPE(2, 26)));
    EXPECT_OK(qn_tensor_read(out, got, sizeof(got), &error));
    for (int f = 0; f < 26; f++) {
        EXPECT(got[0][f] == base + rows[f] && got[1][f] == base); /* a missing one is row 0 */
        base += sizes[f];
    }
    EXPECT(qn_model_count(d->root, true) ==
           5271403 + 16 + 16 * 64 + 64 + 64 + 1 + 352 * 64 + 64 + 64 * 32 + 32 + 32 + 1);
    qn_dlrm_free(d);
    c.map = QN_MAP_EXACT;
    EXPECT(qn_dlrm_new(tape, &c, metadata_of(sizes, 26, 13), 1, &d, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message,
                "the metadata has no tokens of SPARSE_0: gather it again (`quern data stats`), or map by "
                "modulus (\"use_modulus_hash\": true)");
    qn_tape_free(tape);
}

enum { B = 5, D = 3, F = 4, E = 4, H = 6 };

static qn_dlrm_config tiny(qn_interaction interaction)
{
    qn_dlrm_config c = qn_dlrm_defaults();
    c.dense_count = D;
    c.sparse_count = F;
    c.width = E;
    c.dense_hidden[0] = H;
    c.prediction_hidden[0] = H;
    c.prediction_hidden_count = 1;
    c.interaction = interaction;
    c.batch = B;
    c.table_deviation = 0.5;
    return c;
}

static void read_parameter(qn_dlrm *d, const char *path, float *out)
{
    qn_tensor t = qn_model_get(d->root, path);
    EXPECT_OK(qn_tensor_read(t, out, sizeof(float) * (size_t)qn_tensor_count(t), &error));
}

/* y = x w + b over the first `in` rows of a weight [rows][out]. */
static void linear(const double *x, int in, const float *w, const float *b, int out, bool relu, double *y)
{
    for (int o = 0; o < out; o++) {
        double sum = b[o];
        for (int i = 0; i < in; i++) sum += x[i] * w[i * out + o];
        y[o] = relu && sum < 0 ? 0 : sum;
    }
}

static void check_logits(const char *device, qn_interaction interaction)
{
    static float w0[64], b0[16], w1[64], b1[16], table[400], p0[4000], q0[16], p1[16], q1[4];
    static const int64_t sizes[F] = {3, 7, 1, 5};
    float counts[B][4] = {{0, 5, -1, 0}, {NAN, 100, 2, 0}, {1, 1, 1, 0}, {7, NAN, NAN, 0}, {0, 0, 3000, 0}};
    int64_t ids[B][F] = {{0, 10, 0, 40}, {20, 60, 10, 41}, {-1, 0, 0, 0}, {10, 30, 0, 20}, {21, 50, 5, 10}};
    float got[B];
    double unknown = 0;
    qn_tape *tape;
    qn_dlrm *d;
    qn_dlrm_config c = tiny(interaction);
    EXPECT_OK(qn_tape_new(context, device, &tape, &error));
    EXPECT_OK(qn_dlrm_new(tape, &c, metadata_of(sizes, F, D), 5, &d, &error));
    qn_model_init(d->root, "dense_arch.missing", qn_init_constant(0.25));
    qn_tensor tokens = qn_from_memory(tape, ids, QN_I64, QN_SHAPE(B, F));
    qn_tensor logits = qn_dlrm_logits(d, qn_from_memory(tape, counts, QN_F32, QN_SHAPE(B, 4)), tokens);
    EXPECT_OK(qn_tensor_read(logits, got, sizeof(got), &error));
    EXPECT_OK(qn_tensor_item(dlrm_unknown(d, tokens), &unknown, &error));
    read_parameter(d, "dense_arch.layers.0.weight", w0);
    read_parameter(d, "dense_arch.layers.0.bias", b0);
    read_parameter(d, "dense_arch.layers.1.weight", w1);
    read_parameter(d, "dense_arch.layers.1.bias", b1);
    read_parameter(d, "sparse_arch.embeddings.weight", table);
    read_parameter(d, "prediction_arch.layers.0.weight", p0);
    read_parameter(d, "prediction_arch.layers.0.bias", q0);
    read_parameter(d, "prediction_arch.layers.1.weight", p1);
    read_parameter(d, "prediction_arch.layers.1.bias", q1);
    int missed = 0;
    for (int b = 0; b < B; b++) {
        double x[D], h[H], t[F + 1][E], z[400], y;
        for (int i = 0; i < D; i++)
            x[i] = isnan(counts[b][i]) ? 0.25 : (log1p(fmax(counts[b][i], 0)) - 0.5 * i) / (1 + i);
        linear(x, D, w0, b0, H, true, h);
        linear(h, H, w1, b1, E, false, t[0]);
        int base = 0, width = 0;
        for (int f = 0; f < F; base += (int)sizes[f++] + 1) {
            bool known = ids[b][f] >= 0 && ids[b][f] % 10 == 0 && ids[b][f] / 10 < sizes[f];
            missed += !known;
            for (int e = 0; e < E; e++) t[f + 1][e] = table[(base + (known ? ids[b][f] / 10 : sizes[f])) * E + e];
        }
        const double *all = t[0];
        if (interaction == QN_INTERACT_DOT) {
            for (int e = 0; e < E; e++) z[width++] = t[0][e];
            for (int i = 1; i <= F; i++)
                for (int j = 0; j < i; j++, width++) {
                    z[width] = 0;
                    for (int e = 0; e < E; e++) z[width] += t[i][e] * t[j][e];
                }
        } else if (interaction == QN_INTERACT_CAT) {
            for (int e = 0; e < (F + 1) * E; e++) z[width++] = all[e];
        } else {
            for (int i = 0; i < (F + 1) * E; i++)
                for (int j = 0; j < (F + 1) * E; j++) z[width++] = all[i] * all[j];
        }
        linear(z, width, p0, q0, H, true, h);
        linear(h, H, p1, q1, 1, false, &y);
        EXPECT_NEAR(got[b], y, 1e-4);
    }
    EXPECT(unknown == missed);
    qn_dlrm_free(d);
    qn_tape_free(tape);
}

TEST(logits_are_those_of_plain_loops)
{
    open_context();
    static const char *const devices[] = {"ref", "cpu", "emu"};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 3; i++)
            if (k < 2 || i == QN_INTERACT_DOT) check_logits(devices[k], (qn_interaction)i);
}

/* ---- files ---- */

static bool has(qn_safetensors *file, const char *name, int64_t rows, int64_t columns)
{
    int at = qn_safetensors_find(file, name);
    const qn_safetensor *t = at < 0 ? NULL : qn_safetensors_get(file, at);
    return t && t->extents[0] == rows && (t->rank == 1 || t->extents[1] == columns);
}

TEST(files_have_the_names_and_shapes_of_pytorch)
{
    open_context();
    static const int64_t sizes[F] = {3, 7, 1, 5};
    qn_tape *tape;
    qn_dlrm *d, *back;
    qn_safetensors *file;
    qn_dlrm_config c = tiny(QN_INTERACT_DOT), read;
    c.table_type = QN_BF16;
    c.optimizer = QN_ROW_ADAGRAD;
    char path[QN_DLRM_PATH];
    EXPECT_OK(qn_tape_new(context, "ref", &tape, &error));
    EXPECT_OK(qn_dlrm_new(tape, &c, metadata_of(sizes, F, D), 5, &d, &error));
    qn_optimizer *optimizer = dlrm_optimizer(d);
    dlrm_state state = {7, {{1, 35, 0xfedcba9876543210u}, 1, 3}, 99}, place_read;
    EXPECT_OK(dlrm_save(d, optimizer, &state, path_of("files"), path, sizeof(path), &error));
    EXPECT_OK(qn_safetensors_open(path, &file, &error));
    EXPECT(has(file, "dense_arch.layers.0.weight", H, D)); /* not the 4 columns that products read */
    EXPECT(has(file, "dense_arch.layers.1.weight", E, H) && has(file, "dense_arch.layers.1.bias", E, 0));
    EXPECT(has(file, "sparse_arch.embeddings.SPARSE_0.weight", 4, E)); /* and one row for unknown tokens */
    EXPECT(has(file, "sparse_arch.embeddings.SPARSE_3.weight", 6, E));
    EXPECT(has(file, "prediction_arch.layers.0.weight", H, E + (F + 1) * F / 2));
    EXPECT(has(file, "optimizer/sparse_arch.embeddings.SPARSE_1.weight/sum", 8, 1));
    EXPECT(has(file, "optimizer/dense_arch.layers.0.weight/sum", H, D));
    EXPECT(qn_safetensors_find(file, "sparse_arch.embeddings.weight") < 0);
    EXPECT(qn_safetensors_get(file, qn_safetensors_find(file, "sparse_arch.embeddings.SPARSE_2.weight"))->type ==
           QN_BF16);
    qn_safetensors_close(file);
    EXPECT_OK(dlrm_read_state(path, &read, &place_read, &error));
    EXPECT(!memcmp(&state, &place_read, sizeof(state)));
    EXPECT_OK(qn_dlrm_open(tape, path_of("files"), &read, &back, &error));
    EXPECT(read.interaction == QN_INTERACT_DOT && read.table_type == QN_BF16 && read.width == E);
    qn_parameter a[32], b[32];
    int count = qn_model_list(d->root, a, 32);
    EXPECT(count == qn_model_list(back->root, b, 32));
    for (int i = 0; i < count; i++) {
        static char x[4096], y[4096];
        size_t size = (size_t)qn_tensor_count(a[i].value) * qn_dtype_size_bytes(qn_tensor_dtype(a[i].value));
        EXPECT_OK(qn_tensor_read(a[i].value, x, size, &error));
        EXPECT_OK(qn_tensor_read(b[i].value, y, size, &error));
        EXPECT(!memcmp(x, y, size));
    }
    qn_dlrm_free(back);
    EXPECT(qn_dlrm_open(tape, path_of("nowhere"), &read, &back, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "there is no checkpoint in "));
    qn_optimizer_free(optimizer);
    qn_dlrm_free(d);
    qn_tape_free(tape);
}

/* ---- training ---- */

static qn_dlrm_config quick(void)
{
    qn_dlrm_config c = qn_dlrm_defaults();
    c.width = 4;
    c.dense_hidden[0] = 16;
    c.prediction_hidden[0] = 16;
    c.prediction_hidden_count = 1;
    c.batch = 64;
    c.optimizer = QN_ADAM;
    c.rate = 0.01;
    return c;
}

static bool same_files(const char *a, const char *b)
{
    char *x, *y;
    size_t n, m;
    if (file_read(a, 1 << 28, &x, &n, &error)) return false;
    if (file_read(b, 1 << 28, &y, &m, &error)) return free(x), false;
    bool same = n == m && !memcmp(x, y, n);
    free(x);
    free(y);
    return same;
}

static int checkpoints_in(const char *path)
{
    int count = 0;
    DIR *open = opendir(path);
    for (struct dirent *e; open && (e = readdir(open));) count += !strncmp(e->d_name, "step_", 5);
    if (open) closedir(open);
    return count;
}

static void check_resume(qn_optimizer_kind kind, qn_dtype tables, int64_t batches_per_epoch)
{
    static int turn;
    char a[64], b[64], whole[QN_DLRM_PATH];
    qn_dlrm_result r;
    qn_dlrm_config c = quick();
    c.optimizer = kind;
    c.table_type = tables;
    c.epochs = batches_per_epoch ? 8 : 4;
    c.batches_per_epoch = batches_per_epoch;
    qn_dlrm_options o = {.device = "cpu",
                         .made_rows = 1000,
                         .made_limit = 30,
                         .seed = 3,
                         .checkpoint_steps = 7,
                         .steps = 40,
                         .report_steps = 5};
    snprintf(a, sizeof(a), "whole%d", turn);
    snprintf(b, sizeof(b), "parts%d", turn++);
    o.out = path_of(a);
    EXPECT_OK(qn_dlrm_train(context, &c, &o, &r, &error));
    EXPECT(r.steps == 40 && checkpoints_in(o.out) == 2);
    snprintf(whole, sizeof(whole), "%s", r.checkpoint);
    o.out = path_of(b);
    o.steps = 23; /* in the middle of an epoch, of a window and between two checkpoints */
    EXPECT_OK(qn_dlrm_train(context, &c, &o, &r, &error));
    o.steps = 40;
    o.resume = true;
    EXPECT_OK(qn_dlrm_train(context, &c, &o, &r, &error));
    EXPECT(r.steps == 40 && r.samples == 17 * 64);
    EXPECT(strstr(r.checkpoint, "parts") && same_files(whole, r.checkpoint));
    o.steps = 0; /* to the end, and once more: there is nothing left to do */
    EXPECT_OK(qn_dlrm_train(context, &c, &o, &r, &error));
    int64_t all = r.steps;
    EXPECT_OK(qn_dlrm_train(context, &c, &o, &r, &error));
    EXPECT(r.steps == all && r.samples == 0 && all == (batches_per_epoch ? 48 : 56));
}

TEST(resumed_runs_come_to_the_same_bits)
{
    open_context();
    check_resume(QN_ADAM, QN_F32, 0);
    check_resume(QN_ROW_ADAGRAD, QN_BF16, 6);
}

typedef struct told {
    int validations, notes, warnings, progress;
    int64_t steps; /* of the whole run */
    char note[2048], doing[256];
} told;

static void listen(void *user, const qn_dlrm_progress *p)
{
    told *t = user;
    if (p->doing) {
        if (!strstr(t->doing, p->doing)) strcat(strcat(t->doing, p->doing), "; ");
        EXPECT(isnan(p->done) || (p->done > 0 && p->done <= 1));
        return;
    }
    t->steps = p->steps;
    t->validations += p->validated;
    t->progress += !p->validated && !p->note;
    t->notes += p->note && !p->warning;
    t->warnings += p->note && p->warning;
    if (p->note && p->warning) snprintf(t->note, sizeof(t->note), "%s", p->note);
}

typedef struct scalars {
    int train_loss, valid_loss, valid_auc, speed;
    double last_auc;
    int64_t last_step;
} scalars;

static void count_scalar(void *user, const char *tag, int64_t step, double value, double wall)
{
    scalars *s = user;
    s->train_loss += !strcmp(tag, "Loss/train");
    s->valid_loss += !strcmp(tag, "LogLoss/valid");
    s->speed += !strcmp(tag, "samples/s");
    if (!strcmp(tag, "AUC/valid")) {
        s->valid_auc++;
        s->last_auc = value;
        s->last_step = step;
    }
    EXPECT(wall > 1e9);
}

static void path_in(const char *dir, const char *start, char *out, size_t size)
{
    DIR *open = opendir(dir);
    *out = 0;
    for (struct dirent *e; open && (e = readdir(open));)
        if (strstr(e->d_name, start)) snprintf(out, size, "%s/%s", dir, e->d_name);
    if (open) closedir(open);
}

TEST(progress_and_event_files)
{
    open_context();
    told t = {0};
    scalars s = {0};
    bool whole;
    char path[1024];
    qn_dlrm_result r;
    qn_dlrm_config c = quick();
    c.epochs = 2;
    qn_dlrm_options o = {.device = "cpu",
                         .made_rows = 2000,
                         .made_limit = 30,
                         .out = path_of("events"),
                         .report_steps = 10,
                         .progress = listen,
                         .user = &t,
                         .trace = true};
    EXPECT_OK(qn_dlrm_train(context, &c, &o, &r, &error));
    EXPECT(t.validations == 2 && t.progress >= 5 && t.notes >= 2 && t.warnings == 0);
    EXPECT_TEXT(t.doing, "gathering facts of the columns; compiling the step; validating; ");
    path_in(path_of("events/tensorboard"), "events.out.tfevents.", path, sizeof(path));
    EXPECT_OK(events_read(path, count_scalar, &s, &whole, &error));
    EXPECT(whole && s.train_loss == t.progress && s.speed == s.train_loss && s.valid_loss == 2 && s.valid_auc == 2);
    EXPECT_NEAR(s.last_auc, r.valid.auc, 1e-6);
    EXPECT(s.last_step == r.steps);
    path_in(path_of("events/tensorboard"), ".pt.trace.json", path, sizeof(path));
    EXPECT(*path);
    EXPECT(crc32c_of("123456789", 9) == 0xe3069283u);
    EXPECT_TEXT(events_read(path_of("absent"), count_scalar, &s, &whole, &error) ? "fault" : "", "fault");
}

/* The steps of a run on a log are known where its rows were read before the first; a log is not read for that alone. */
TEST(steps_of_logs)
{
    open_context();
    text log = {0};
    qn_dlrm_result r;
    qn_metadata *m;
    qn_dataset *data;
    const char *path = path_of("clicks.tsv"), *facts = path_of("clicks.json");
    for (int i = 0; i < 200; i++) {
        text_print(&log, "%d", i % 3 == 0);
        for (int c = 0; c < 39; c++) text_print(&log, c < 13 ? "\t%d" : "\t%08x", i % (c + 2));
        text_add(&log, "\n");
    }
    EXPECT_OK(file_write(path, log.data, log.length, &error));
    text_free(&log);
    EXPECT_OK(qn_dataset_open(&path, 1, NULL, &data, &error));
    EXPECT_OK(qn_metadata_gather(data, NULL, NULL, &m, &error));
    EXPECT_OK(qn_metadata_write(m, facts, &error));
    qn_metadata_free(m);
    qn_dataset_close(data);
    for (int known = 0; known < 2; known++) {
        told t = {0};
        qn_dlrm_config c = quick();
        c.epochs = 2;
        qn_dlrm_options o = {.device = "cpu", .paths = &path, .path_count = 1, .held_out = -1, .report_steps = 1};
        o.metadata = known ? facts : NULL;
        o.progress = listen;
        o.user = &t;
        EXPECT_OK(qn_dlrm_train(context, &c, &o, &r, &error));
        EXPECT(r.steps == 6 && t.steps == (known ? -1 : 6));
    }
}

TEST(damaged_event_files)
{
    event_file *f;
    scalars s = {0};
    bool whole;
    char *data, path[512];
    size_t size;
    EXPECT_OK(events_open(path_of("damaged"), &f, &error));
    snprintf(path, sizeof(path), "%s", events_path(f));
    events_scalar(f, "Loss/train", 0, 1.5);
    events_scalar(f, "AUC/valid", 1 << 20, 0.75);
    EXPECT_OK(events_close(f, &error));
    EXPECT_OK(events_read(path, count_scalar, &s, &whole, &error));
    EXPECT(whole && s.train_loss == 1 && s.last_auc == 0.75 && s.last_step == 1 << 20);
    EXPECT_OK(file_read(path, 1 << 20, &data, &size, &error));
    EXPECT_OK(file_write(path, data, size - 3, &error)); /* cut off: what is whole is read */
    EXPECT_OK(events_read(path, count_scalar, &s, &whole, &error));
    EXPECT(!whole && s.train_loss == 2 && s.valid_auc == 1);
    data[size - 10] ^= 1;
    EXPECT_OK(file_write(path, data, size, &error));
    EXPECT(events_read(path, count_scalar, &s, &whole, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "the data of a record is damaged at byte "));
    free(data);
}

TEST(not_a_number)
{
    open_context();
    told t = {0};
    qn_dlrm_result r;
    qn_dlrm_config c = quick();
    c.optimizer = QN_SGD;
    c.rate = 1e25;
    qn_dlrm_options o = {
        .device = "cpu", .made_rows = 2000, .made_limit = 30, .report_steps = 8, .progress = listen, .user = &t};
    EXPECT(qn_dlrm_train(context, &c, &o, &r, &error) == QN_FINDING);
    EXPECT(strstr(error.message, "the loss of step 2 is not a number. First: ") ||
           strstr(error.message, "the loss of step 3 is not a number. First: "));
    EXPECT(strstr(error.message, "are NaN") && !strstr(error.message, "not found"));
    EXPECT(strstr(error.message, "There is no checkpoint to go back to (--out)"));
    EXPECT(t.warnings == 1);
    /* With checkpoints: the one before the step is the last good one, stays there, and the step is repeated from it. */
    o.out = path_of("good");
    o.checkpoint_steps = 1;
    EXPECT(qn_dlrm_train(context, &c, &o, &r, &error) == QN_FINDING);
    EXPECT(strstr(error.message, "The last good checkpoint is ") && strstr(error.message, "/good/step_00000000"));
    EXPECT(strstr(error.message, "are NaN") && !strstr(error.message, "not found"));
    struct stat about;
    EXPECT(*r.checkpoint && !stat(r.checkpoint, &about) && strstr(error.message, r.checkpoint));
}

TEST(a_model_that_does_not_learn_is_told)
{
    open_context();
    static const int64_t sizes[26] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
    qn_tape *tape;
    qn_dlrm *d;
    qn_dlrm_result r;
    qn_dlrm_config c = quick();
    char path[QN_DLRM_PATH];
    EXPECT_OK(qn_tape_new(context, "cpu", &tape, &error));
    EXPECT_OK(qn_dlrm_new(tape, &c, metadata_of(sizes, 26, 13), 5, &d, &error));
    qn_model_init(d->root, "prediction_arch.*", qn_init_constant(0));
    qn_optimizer *optimizer = dlrm_optimizer(d);
    EXPECT_OK(dlrm_save(d, optimizer, &(dlrm_state){0}, path_of("constant"), path, sizeof(path), &error));
    qn_dlrm_options o = {.device = "cpu", .made_rows = 3000};
    EXPECT_OK(qn_dlrm_eval(context, path, &o, &r, &error));
    EXPECT(r.constant && r.valid.loss > r.base_entropy && r.valid.count == 3000);
    EXPECT_NEAR(r.valid.loss, log(2), 1e-6);
    EXPECT_NEAR(r.valid.auc, 0.5, 1e-9);
    qn_optimizer_free(optimizer);
    qn_dlrm_free(d);
    qn_tape_free(tape);
}

TEST(wrong_calls)
{
    open_context();
    qn_dlrm_result r;
    qn_dlrm_config c = quick();
    const char *absent = "/nowhere/day_0.parquet";
    qn_dlrm_options o = {.device = "cpu", .made_rows = 50};
    EXPECT(qn_dlrm_train(context, &c, &o, &r, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "less than a batch of 64: take a smaller one (--batch)"));
    o.paths = &absent;
    o.path_count = 1;
    EXPECT(qn_dlrm_train(context, &c, &o, &r, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, absent));
    o.path_count = 0;
    snprintf(c.train_path, sizeof(c.train_path), "%s", absent);
    EXPECT(qn_dlrm_train(context, &c, &o, &r, &error) == QN_BAD_FILE);
    EXPECT_TEXT(error.message,
                "the configuration's data /nowhere/day_0.parquet cannot be read: name files with --data, or "
                "`--data made` to train on made rows");
    c = quick();
    c.dense_count = 5;
    EXPECT(qn_dlrm_train(context, &c, &o, &r, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "made has 13 counts and 26 categories, the model takes 5 and 26"));
    c = quick();
    c.rate = -1;
    EXPECT(qn_dlrm_train(context, &c, &o, &r, &error) == QN_BAD_CALL);
    EXPECT(qn_dlrm_train(NULL, &c, &o, &r, &error) == QN_BAD_CALL);
    EXPECT(qn_dlrm_eval(context, absent, &o, &r, &error) == QN_BAD_FILE);
}

#include "dlrm_kernels.h"

TEST_MAIN(CASE(configurations), CASE(faults_of_configurations), CASE(rows_of_the_talk),
          CASE(logits_are_those_of_plain_loops), CASE(files_have_the_names_and_shapes_of_pytorch),
          CASE(resumed_runs_come_to_the_same_bits), CASE(progress_and_event_files), CASE(steps_of_logs),
          CASE(damaged_event_files), CASE(not_a_number), CASE(a_model_that_does_not_learn_is_told), CASE(wrong_calls),
          CASE(gradients_of_the_interaction), CASE(sums_of_outer_products), CASE(an_infinite_row_of_an_outer_product),
          CASE(the_outer_product_is_never_there))
