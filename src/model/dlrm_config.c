/*
 * The configuration of a DLRM. In: JSON with the keys of the talk's files and a few more. Out: a qn_dlrm_config, or an
 * error that names the key, what it takes and the nearest key there is. Keys are one table, read and written by it, so that
 * what is written is read back. SPDX-License-Identifier: MIT
 */
#include "model/dlrm.h"
#include "model/kernels.h"
#include "base/json_read.h"
#include "profile/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT_BYTES ((size_t)1 << 20)

static const char *const interaction_names[] = {"dot", "outer", "cat"};
static const char *const optimizer_names[] = {"sgd", "adam", "adamw", "adagrad", "row_adagrad"};

static int name_in(const char *name, const char *const *list, int count)
{
    for (int i = 0; name && i < count; i++)
        if (!strcmp(name, list[i])) return i;
    return -1;
}

bool qn_interaction_from_name(const char *name, qn_interaction *out)
{
    int at = name_in(name, interaction_names, COUNT(interaction_names));
    if (at >= 0 && out) *out = (qn_interaction)at;
    return at >= 0;
}

const char *qn_interaction_name(qn_interaction interaction)
{
    return (unsigned)interaction < COUNT(interaction_names) ? interaction_names[interaction] : "?";
}

bool qn_optimizer_from_name(const char *name, qn_optimizer_kind *out)
{
    int at = name_in(name, optimizer_names, COUNT(optimizer_names));
    if (at >= 0 && out) *out = (qn_optimizer_kind)at;
    return at >= 0;
}

const char *qn_optimizer_name(qn_optimizer_kind kind)
{
    return (unsigned)kind < COUNT(optimizer_names) ? optimizer_names[kind] : "?";
}

qn_dlrm_config qn_dlrm_defaults(void)
{
    return (qn_dlrm_config){.dense_count = 13,
                            .sparse_count = 26,
                            .width = 16,
                            .dense_hidden = {64},
                            .dense_hidden_count = 1,
                            .prediction_hidden = {64, 32},
                            .prediction_hidden_count = 2,
                            .table_type = QN_F32,
                            .optimizer = QN_ADAGRAD,
                            .rate = 0.05,
                            .epochs = 1,
                            .batch = 2048};
}

/* ---- reading ---- */

typedef struct reading {
    const char *name; /* of the file */
    qn_dlrm_config *config;
    qn_error *error;
} reading;

static qn_status wrong(const reading *r, const char *key, const char *takes)
{
    return error_set(r->error, QN_BAD_FILE, "%s: `%s` takes %s", r->name, key, takes);
}

static qn_status unknown_key(const reading *r, const char *where, const char *key, const char *const *known, int count)
{
    const char *near = suggest_name(key, known, count);
    return error_set(r->error, QN_BAD_FILE, "%s: there is no key `%.100s`%s%s%s%s%s", r->name, key,
                     where ? " in `" : "", where ? where : "", where ? "`" : "", near ? "; did you mean " : "",
                     near ? near : "");
}

/* Which of two values counts nobody can know. */
static qn_status each_once(const reading *r, const json_node *v)
{
    for (int i = 0; i < v->count; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(v->keys[i], v->keys[k]))
                return error_set(r->error, QN_BAD_FILE, "%s: the key `%.100s` is there twice", r->name, v->keys[i]);
    return QN_OK;
}

static bool whole(const json_node *v, double least, double most, int64_t *out)
{
    if (v->kind != JSON_NUMBER || v->number != floor(v->number) || v->number < least || v->number > most) return false;
    *out = (int64_t)v->number;
    return true;
}

static qn_status take_whole(reading *r, const char *key, const json_node *v, int64_t least, int64_t *out)
{
    return whole(v, (double)least, 1e12, out)
               ? QN_OK
               : wrong(r, key, least ? "a whole number from 1" : "a whole number from 0");
}

static qn_status take_path(reading *r, const char *key, const json_node *v, char *out, size_t size)
{
    if (v->kind != JSON_TEXT || strlen(v->words) >= size) return wrong(r, key, "a path");
    memcpy(out, v->words, strlen(v->words) + 1);
    return QN_OK;
}

static qn_status take_widths(reading *r, const char *key, const json_node *v, int64_t *out, int *count)
{
    bool good = v->kind == JSON_LIST && v->count <= QN_DLRM_LAYERS;
    for (int i = 0; good && i < v->count; i++) good = whole(&v->items[i], 1, 1 << 20, &out[i]);
    if (!good) return wrong(r, key, "a list of at most 16 widths, such as [512, 256, 64]");
    *count = v->count;
    return QN_OK;
}

/* An object of exactly such keys; NULL where it lacks one. */
static qn_status take_object(reading *r, const char *key, const json_node *v, const char *const *keys, int count,
                             const json_node **out)
{
    if (v->kind != JSON_OBJECT) return wrong(r, key, "an object");
    for (int i = 0; i < v->count; i++)
        if (name_in(v->keys[i], keys, count) < 0) return unknown_key(r, key, v->keys[i], keys, count);
    for (int i = 0; i < count; i++) out[i] = json_find(v, keys[i]);
    return each_once(r, v);
}

static qn_status read_data_path(reading *r, const json_node *v)
{
    static const char *const keys[] = {"train", "validation"};
    const json_node *at[2];
    QN_TRY(take_object(r, "data_path", v, keys, 2, at));
    if (at[0]) QN_TRY(take_path(r, "data_path.train", at[0], r->config->train_path, QN_DLRM_PATH));
    if (at[1]) QN_TRY(take_path(r, "data_path.validation", at[1], r->config->validation_path, QN_DLRM_PATH));
    return QN_OK;
}

static qn_status read_metadata_path(reading *r, const json_node *v)
{
    return take_path(r, "metadata_path", v, r->config->metadata_path, QN_DLRM_PATH);
}

static qn_status read_model_path(reading *r, const json_node *v)
{
    return take_path(r, "model_path", v, r->config->model_path, QN_DLRM_PATH);
}

static qn_status read_tensorboard(reading *r, const json_node *v)
{
    return take_path(r, "tensorboard_dir", v, r->config->tensorboard_path, QN_DLRM_PATH);
}

static qn_status read_device(reading *r, const json_node *v)
{
    return take_path(r, "device", v, r->config->device, sizeof(r->config->device));
}

static qn_status read_dense_size(reading *r, const json_node *v)
{
    int64_t count;
    if (!whole(v, 1, 512, &count)) return wrong(r, "dense_input_feature_size", "a whole number from 1 to 512");
    r->config->dense_count = (int)count;
    return QN_OK;
}

static qn_status read_sparse_sizes(reading *r, const json_node *v)
{
    if (v->kind != JSON_OBJECT || !v->count || v->count > 512)
        return wrong(r, "sparse_embedding_sizes", "an object of 1 to 512 features, such as {\"SPARSE_0\": 16}");
    QN_TRY(each_once(r, v));
    for (int i = 0; i < v->count; i++) {
        int64_t width;
        if (!whole(&v->items[i], 1, 4096, &width)) return wrong(r, "sparse_embedding_sizes", "widths from 1 to 4096");
        if (i && width != r->config->width)
            return error_set(r->error, QN_BAD_FILE,
                             "%s: `%s` is %lld wide and `%s` %lld: all tables of a model have one width", r->name,
                             v->keys[0], (long long)r->config->width, v->keys[i], (long long)width);
        r->config->width = width;
    }
    r->config->sparse_count = v->count;
    return QN_OK;
}

static qn_status read_dense_mlp(reading *r, const json_node *v)
{
    static const char *const keys[] = {"hidden_layer_sizes", "output_size"};
    const json_node *at[2];
    int64_t width;
    QN_TRY(take_object(r, "dense_mlp", v, keys, 2, at));
    if (at[0])
        QN_TRY(take_widths(r, "dense_mlp.hidden_layer_sizes", at[0], r->config->dense_hidden,
                           &r->config->dense_hidden_count));
    if (at[1] && !whole(at[1], 1, 4096, &width)) return wrong(r, "dense_mlp.output_size", "a width from 1 to 4096");
    if (at[1]) r->config->width = width; /* the tables, if they are said, are compared with it at the end */
    return QN_OK;
}

static qn_status read_sparse_mlp(reading *r, const json_node *v)
{
    (void)r, (void)v; /* files of the talk have it, no model of theirs or ours does */
    return QN_OK;
}

static qn_status read_prediction(reading *r, const json_node *v)
{
    return take_widths(r, "prediction_hidden_sizes", v, r->config->prediction_hidden,
                       &r->config->prediction_hidden_count);
}

static qn_status read_epochs(reading *r, const json_node *v)
{
    return take_whole(r, "num_epochs", v, 1, &r->config->epochs);
}

static qn_status read_rate(reading *r, const json_node *v)
{
    if (v->kind != JSON_NUMBER || !(v->number > 0)) return wrong(r, "learning_rate", "a number above 0");
    r->config->rate = v->number;
    return QN_OK;
}

static qn_status read_batch(reading *r, const json_node *v)
{
    static const char *const keys[] = {"train", "validation"};
    const json_node *at[2];
    if (v->kind == JSON_NUMBER) return take_whole(r, "batch_size", v, 1, &r->config->batch);
    QN_TRY(take_object(r, "batch_size", v, keys, 2, at));
    if (at[0]) QN_TRY(take_whole(r, "batch_size.train", at[0], 1, &r->config->batch));
    if (at[1]) QN_TRY(take_whole(r, "batch_size.validation", at[1], 1, &r->config->validation_batch));
    return QN_OK;
}

static qn_status read_batches_per_epoch(reading *r, const json_node *v)
{
    return take_whole(r, "batches_per_epoch", v, 0, &r->config->batches_per_epoch);
}

static qn_status read_modulus(reading *r, const json_node *v)
{
    if (v->kind != JSON_BOOL) return wrong(r, "use_modulus_hash", "true or false");
    r->config->map = v->number != 0 ? QN_MAP_MODULUS : QN_MAP_EXACT;
    return QN_OK;
}

static qn_status read_interaction(reading *r, const json_node *v)
{
    if (v->kind == JSON_TEXT && qn_interaction_from_name(v->words, &r->config->interaction)) return QN_OK;
    return wrong(r, "interaction", "\"dot\", \"outer\" or \"cat\"");
}

static qn_status read_optimizer(reading *r, const json_node *v)
{
    if (v->kind == JSON_TEXT && qn_optimizer_from_name(v->words, &r->config->optimizer)) return QN_OK;
    return wrong(r, "optimizer", "\"sgd\", \"adam\", \"adamw\", \"adagrad\" or \"row_adagrad\"");
}

static qn_status read_tables(reading *r, const json_node *v)
{
    if (v->kind != JSON_TEXT || (strcmp(v->words, "f32") && strcmp(v->words, "bf16")))
        return wrong(r, "tables", "\"f32\" or \"bf16\"");
    r->config->table_type = strcmp(v->words, "f32") ? QN_BF16 : QN_F32;
    return QN_OK;
}

static qn_status read_deviation(reading *r, const json_node *v)
{
    if (v->kind != JSON_NUMBER || !(v->number >= 0 && v->number < 1e6))
        return wrong(r, "table_deviation", "a number from 0");
    r->config->table_deviation = v->number;
    return QN_OK;
}

static const struct {
    const char *key;
    qn_status (*read)(reading *r, const json_node *v);
} keys[] = {{"data_path", read_data_path},
            {"metadata_path", read_metadata_path},
            {"model_path", read_model_path},
            {"tensorboard_dir", read_tensorboard},
            {"dense_input_feature_size", read_dense_size},
            {"dense_mlp", read_dense_mlp},
            {"sparse_embedding_sizes", read_sparse_sizes},
            {"sparse_mlp", read_sparse_mlp},
            {"prediction_hidden_sizes", read_prediction},
            {"num_epochs", read_epochs},
            {"learning_rate", read_rate},
            {"device", read_device},
            {"batch_size", read_batch},
            {"batches_per_epoch", read_batches_per_epoch},
            {"use_modulus_hash", read_modulus},
            {"interaction", read_interaction},
            {"optimizer", read_optimizer},
            {"tables", read_tables},
            {"table_deviation", read_deviation}};

/* The dense vector is one more row of the interaction. */
static qn_status compare_widths(reading *r, const json_node *root)
{
    const json_node *mlp = json_find(root, "dense_mlp"), *out = mlp ? json_find(mlp, "output_size") : NULL;
    const json_node *tables = json_find(root, "sparse_embedding_sizes");
    if (!out || !tables || out->number == tables->items[0].number) return QN_OK;
    return error_set(
        r->error, QN_BAD_FILE,
        "%s: `dense_mlp.output_size` is %lld and the tables are %lld wide: they interact, and must be equal", r->name,
        (long long)out->number, (long long)tables->items[0].number);
}

qn_status qn_dlrm_config_parse(const char *name, const char *words, qn_dlrm_config *config, qn_error *error)
{
    HEAP_ENTER(error);
    if (!name || !words || !config) return error_set(error, QN_BAD_CALL, "qn_dlrm_config_parse: an argument is NULL");
    const char *known[COUNT(keys)];
    for (int i = 0; i < COUNT(keys); i++) known[i] = keys[i].key;
    arena *memory = arena_new();
    json_node root;
    qn_dlrm_config made = *config;
    reading r = {name, &made, error};
    qn_status status = json_read(memory, name, words, &root, error);
    if (!status && root.kind != JSON_OBJECT)
        status = error_set(error, QN_BAD_FILE, "%s: a configuration is a JSON object", name);
    for (int i = 0; !status && i < root.count; i++)
        if (name_in(root.keys[i], known, COUNT(keys)) < 0)
            status = unknown_key(&r, NULL, root.keys[i], known, COUNT(keys));
    if (!status) status = each_once(&r, &root);
    for (int i = 0; !status && i < COUNT(keys); i++) {
        const json_node *v = json_find(&root, keys[i].key);
        if (v) status = keys[i].read(&r, v);
    }
    /* A rate alone is the talk's 0.1, which is one of SGD: with it Adam and Adagrad begin by losing their way. */
    if (!status && json_find(&root, "learning_rate") && !json_find(&root, "optimizer")) made.optimizer = QN_SGD;
    if (!status) status = compare_widths(&r, &root);
    if (!status) *config = made;
    arena_free(memory);
    return status;
}

qn_status qn_dlrm_config_read(const char *path, qn_dlrm_config *config, qn_error *error)
{
    HEAP_ENTER(error);
    static const struct {
        const char *name;
        const unsigned char *words;
    } own[] = {{"small", model_small_json}, {"main", model_main_json}, {"meta", model_meta_json}};
    if (!path || !config) return error_set(error, QN_BAD_CALL, "qn_dlrm_config_read: an argument is NULL");
    for (int i = 0; i < COUNT(own); i++)
        if (!strcmp(path, own[i].name)) return qn_dlrm_config_parse(path, (const char *)own[i].words, config, error);
    char *words;
    size_t size;
    QN_TRY(file_read(path, FILE_LIMIT_BYTES, &words, &size, error));
    qn_status status = strlen(words) == size
                           ? qn_dlrm_config_parse(path, words, config, error)
                           : error_set(error, QN_BAD_FILE, "%s: a configuration is JSON, this file is not text", path);
    free(words);
    return status;
}

qn_status qn_dlrm_config_check(const qn_dlrm_config *c, qn_error *error)
{
    if (!c) return error_set(error, QN_BAD_CALL, "the configuration is NULL");
    bool good = c->dense_count >= 1 && c->dense_count <= 512 && c->sparse_count >= 1 && c->sparse_count <= 512 &&
                c->width >= 1 && c->width <= 4096 && c->dense_hidden_count >= 0 &&
                c->dense_hidden_count <= QN_DLRM_LAYERS && c->prediction_hidden_count >= 0 &&
                c->prediction_hidden_count <= QN_DLRM_LAYERS && (unsigned)c->interaction <= QN_INTERACT_CAT &&
                (unsigned)c->map <= QN_MAP_MODULUS && (unsigned)c->optimizer <= QN_ROW_ADAGRAD;
    for (int i = 0; good && i < c->dense_hidden_count; i++) good = c->dense_hidden[i] >= 1;
    for (int i = 0; good && i < c->prediction_hidden_count; i++) good = c->prediction_hidden[i] >= 1;
    if (!good) return error_set(error, QN_BAD_CALL, "the configuration has a size or choice that does not exist");
    if (c->table_type != QN_F32 && c->table_type != QN_BF16)
        return error_set(error, QN_BAD_CALL, "tables are f32 or bf16");
    if (c->batch < 1 || c->batch > 1 << 24 || c->validation_batch < 0 || c->validation_batch > 1 << 24 || c->epochs < 1)
        return error_set(error, QN_BAD_CALL, "batches have 1 to %d rows, and there is at least one epoch", 1 << 24);
    if (!(c->rate > 0)) return error_set(error, QN_BAD_CALL, "the learning rate is above 0");
    if (c->interaction == QN_INTERACT_DOT && c->sparse_count > 127)
        return error_set(error, QN_BAD_CALL, "the interaction `dot` takes at most 127 categories, not %d: take `cat`",
                         c->sparse_count);
    return QN_OK;
}

/* ---- writing ---- */

static void add_widths(text *t, const int64_t *widths, int count)
{
    text_add(t, "[");
    for (int i = 0; i < count; i++) text_print(t, "%s%lld", i ? ", " : "", (long long)widths[i]);
    text_add(t, "]");
}

static void add_path(text *t, const char *key, const char *path)
{
    if (!*path) return;
    text_print(t, "  \"%s\": ", key);
    json_add_string(t, path);
    text_add(t, ",\n");
}

char *qn_dlrm_config_text(const qn_dlrm_config *c)
{
    text t = {0};
    if (!c) return NULL;
    text_add(&t, "{\n");
    if (*c->train_path || *c->validation_path) {
        text_add(&t, "  \"data_path\": {");
        if (*c->train_path) {
            text_add(&t, "\"train\": ");
            json_add_string(&t, c->train_path);
        }
        if (*c->validation_path) {
            text_add(&t, *c->train_path ? ", \"validation\": " : "\"validation\": ");
            json_add_string(&t, c->validation_path);
        }
        text_add(&t, "},\n");
    }
    add_path(&t, "metadata_path", c->metadata_path);
    add_path(&t, "model_path", c->model_path);
    add_path(&t, "tensorboard_dir", c->tensorboard_path);
    add_path(&t, "device", c->device);
    text_print(&t, "  \"dense_input_feature_size\": %d,\n  \"sparse_embedding_sizes\": {", c->dense_count);
    for (int i = 0; i < c->sparse_count; i++)
        text_print(&t, "%s\"SPARSE_%d\": %lld", i ? ", " : "", i, (long long)c->width);
    text_add(&t, "},\n  \"dense_mlp\": {\"hidden_layer_sizes\": ");
    add_widths(&t, c->dense_hidden, c->dense_hidden_count);
    text_print(&t, ", \"output_size\": %lld},\n  \"prediction_hidden_sizes\": ", (long long)c->width);
    add_widths(&t, c->prediction_hidden, c->prediction_hidden_count);
    text_print(&t, ",\n  \"num_epochs\": %lld,\n  \"learning_rate\": ", (long long)c->epochs);
    text_add_double(&t, c->rate);
    text_print(&t, ",\n  \"batch_size\": {\"train\": %lld", (long long)c->batch);
    if (c->validation_batch) text_print(&t, ", \"validation\": %lld", (long long)c->validation_batch);
    text_print(&t, "},\n  \"batches_per_epoch\": %lld,\n  \"use_modulus_hash\": %s,\n  \"interaction\": \"%s\",\n",
               (long long)c->batches_per_epoch, c->map == QN_MAP_MODULUS ? "true" : "false",
               qn_interaction_name(c->interaction));
    text_print(&t, "  \"optimizer\": \"%s\",\n  \"tables\": \"%s\",\n  \"table_deviation\": ",
               qn_optimizer_name(c->optimizer), c->table_type == QN_BF16 ? "bf16" : "f32");
    text_add_double(&t, c->table_deviation);
    text_add(&t, "\n}\n");
    return text_hand_over(&t);
}
