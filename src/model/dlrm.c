/*
 * The model. In: a configuration and facts of the columns. Out: a tree of parameters with PyTorch's names and shapes, and
 * logits of a batch.
 *
 * All tables are rows of one variable, so that all features are one lookup and one sparse update; files have one tensor
 * for each table. What products read is filled up with zeros to a multiple of 4 columns (13 counts to 16, 367 products to
 * 368): those rows of the weights are zero, stay zero and are in no file. Counts become log(1 + x), without what is below
 * 0, normalised by the data's own mean and deviation; a missing one becomes a number that is learnt, its column's own.
 * SPDX-License-Identifier: MIT
 */
#include "model/dlrm.h"

#include "data/safetensors.h"
#include "model/kernels.h"
#include "run/run.h"
#include "target/target.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GRAIN 4

static int64_t filled_up(int64_t columns)
{
    return (columns + GRAIN - 1) / GRAIN * GRAIN;
}

/* Numbers that the interaction makes of a sample. */
static int64_t interaction_columns(const qn_dlrm_config *c)
{
    int64_t all = (c->sparse_count + 1) * c->width, rows = c->sparse_count + 1;
    if (c->interaction == QN_INTERACT_OUTER) return all * all;
    return c->interaction == QN_INTERACT_CAT ? all : c->width + rows * (rows - 1) / 2;
}

/* ---- parameters ---- */

/* A linear layer; filled: its input is, and the rows after the first `in` are zeros. */
static void add_linear(qn_model *layers, int64_t in, int64_t out, bool filled)
{
    int64_t rows = filled ? filled_up(in) : in;
    qn_model *self = qn_model_child(layers, NULL);
    if (!self) return;
    qn_init init = qn_init_kaiming_uniform(sqrt(5));
    init.fan_in = in;
    double bound = 1 / sqrt((double)in);
    qn_tensor weight = model_parameter(self, "weight", QN_SHAPE(rows, out), init, true);
    qn_model_parameter(self, "bias", QN_SHAPE(out), qn_init_uniform(-bound, bound));
    self->label = "linear";
    if (rows == in || !weight.tape) return;
    qn_tensor own = qn_slice(weight, 0, 0, in, 1);
    qn_tensor padded = qn_pad(own, QN_SHAPE(0, 0), QN_SHAPE(rows - in, 0), 0);
    qn_assign(weight, padded);
    tape_forget(own);
    tape_forget(padded);
    model_set_parts(self, "weight", &(model_part){"weight", in}, 1);
}

static qn_model *add_layers(qn_dlrm *d, const char *name, int64_t in, const int64_t *hidden, int count, int64_t out)
{
    qn_model *layers = qn_model_child(qn_model_child(d->root, name), "layers");
    for (int i = 0; i < count; i++) {
        add_linear(layers, in, hidden[i], i == 0);
        in = hidden[i];
    }
    add_linear(layers, in, out, count == 0);
    return layers;
}

static qn_tensor buffer_of(qn_model *model, const char *name, const void *data, qn_dtype type, int64_t count)
{
    qn_tensor initial = qn_from_memory(model->tape, data, type, QN_SHAPE(count));
    qn_tensor buffer = qn_model_buffer(model, name, initial);
    tape_forget(initial);
    return buffer;
}

/* Facts of the counts: [dense columns], zeros where they are filled up. */
static void add_counts(qn_dlrm *d, const qn_metadata *m)
{
    int64_t columns = d->dense_columns;
    float *mean = heap_array((size_t)columns, sizeof(float)), *scale = heap_array((size_t)columns, sizeof(float));
    for (int i = 0; i < d->config.dense_count; i++) {
        double deviation = m->dense[i].log_deviation;
        mean[i] = isfinite(m->dense[i].log_mean) ? (float)m->dense[i].log_mean : 0;
        scale[i] = deviation > 1e-6 && isfinite(deviation) ? (float)(1 / deviation) : 1;
    }
    qn_model *dense = d->dense->parent;
    d->mean = buffer_of(dense, "mean", mean, QN_F32, columns);
    d->scale = buffer_of(dense, "scale", scale, QN_F32, columns);
    d->missing = qn_model_parameter(dense, "missing", QN_SHAPE(columns), qn_init_constant(0));
    model_set_parts(dense, "missing", &(model_part){"missing", d->config.dense_count}, 1);
    heap_free(mean);
    heap_free(scale);
}

/* The tokens of all tables, one after the other. */
static qn_status add_tokens(qn_dlrm *d, qn_model *sparse, const qn_metadata *m, int64_t count, qn_error *error)
{
    int64_t *all = malloc(sizeof(int64_t) * (size_t)(count + 1)), at = 0;
    if (!all) return error_set(error, QN_NO_MEMORY, "no memory for %lld tokens", (long long)count);
    for (int f = 0; f < d->config.sparse_count; f++)
        for (int64_t i = 0; i < m->sparse[f].cardinality; i++) all[at++] = m->sparse[f].tokens[i];
    d->tokens = buffer_of(sparse, "tokens", all, QN_I64, count);
    free(all);
    return QN_OK;
}

/* Meta's: uniform within 1 / sqrt(rows) of each table. */
static qn_status scale_tables(qn_dlrm *d, const int64_t *rows, qn_error *error)
{
    float *scale = malloc(sizeof(float) * (size_t)d->row_count);
    if (!scale) return error_set(error, QN_NO_MEMORY, "no memory for %lld rows", (long long)d->row_count);
    int64_t at = 0;
    for (int f = 0; f < d->config.sparse_count; f++)
        for (int64_t i = 0; i < rows[f]; i++) scale[at++] = (float)(1 / sqrt((double)rows[f]));
    qn_scope_begin(d->tape);
    qn_tensor by_row = qn_from_memory(d->tape, scale, QN_F32, QN_SHAPE(d->row_count, 1));
    qn_assign(d->table, qn_cast(qn_mul(qn_cast(d->table, QN_F32), by_row), d->config.table_type));
    qn_scope_end(d->tape);
    free(scale);
    return QN_OK;
}

static qn_status add_tables(qn_dlrm *d, const qn_metadata *m, qn_error *error)
{
    const qn_dlrm_config *c = &d->config;
    int count = c->sparse_count, exact = c->map == QN_MAP_EXACT;
    int64_t *facts = heap_array(3 * (size_t)count, sizeof(int64_t)), *sizes = facts, *firsts = facts + count;
    int64_t *rows = firsts + count, tokens = 0;
    model_part *parts = heap_array((size_t)count, sizeof(*parts));
    text names = {0};
    for (int f = 0; f < count; f++) {
        sizes[f] = MAXIMUM(m->sparse[f].cardinality, exact ? 0 : 1);
        firsts[f] = tokens;
        rows[f] = sizes[f] + exact;
        tokens += sizes[f];
        d->row_count += rows[f];
    }
    size_t *places = heap_array((size_t)count, sizeof(size_t));
    for (int f = 0; f < count; f++) {
        places[f] = names.length;
        text_print(&names, "SPARSE_%d.weight", f);
        text_add_bytes(&names, "", 1);
    }
    for (int f = 0; f < count; f++) parts[f] = (model_part){names.data + places[f], rows[f]};
    qn_model *sparse = qn_model_child(d->root, "sparse_arch"), *tables = qn_model_child(sparse, "embeddings");
    d->sizes = buffer_of(sparse, "sizes", sizes, QN_I64, count);
    d->firsts = qn_from_memory(d->tape, firsts, QN_I64, QN_SHAPE(count));
    qn_status status = QN_OK;
    if (exact) status = add_tokens(d, sparse, m, tokens, error);
    qn_model_set_type(tables, c->table_type);
    qn_init init = c->table_deviation > 0 ? qn_init_normal(0, c->table_deviation) : qn_init_uniform(-1, 1);
    d->table = qn_model_parameter(tables, "weight", QN_SHAPE(d->row_count, c->width), init);
    if (tables) tables->label = "embedding";
    if (tables) model_set_parts(tables, "weight", parts, count);
    if (!status && !(c->table_deviation > 0) && d->table.tape) status = scale_tables(d, rows, error);
    heap_free(facts);
    heap_free(parts);
    heap_free(places);
    text_free(&names);
    return status;
}

static qn_status check_metadata(const qn_dlrm_config *c, const qn_metadata *m, qn_error *error)
{
    if (m->dense_count < c->dense_count || m->sparse_count < c->sparse_count)
        return error_set(error, QN_BAD_CALL,
                         "the model takes %d counts and %d categories, the metadata has %d and %d: gather it from the "
                         "training data (`quern data stats`)",
                         c->dense_count, c->sparse_count, m->dense_count, m->sparse_count);
    for (int i = 0; i < c->sparse_count && c->map == QN_MAP_EXACT; i++)
        if (m->sparse[i].cardinality > 0 && !m->sparse[i].tokens)
            return error_set(error, QN_BAD_CALL,
                             "the metadata has no tokens of SPARSE_%d: gather it again (`quern data stats`), or map by "
                             "modulus (\"use_modulus_hash\": true)",
                             i);
    return QN_OK;
}

static qn_status build(qn_dlrm *d, const qn_metadata *m, qn_error *error)
{
    const qn_dlrm_config *c = &d->config;
    d->dense_columns = filled_up(c->dense_count);
    d->dense = add_layers(d, "dense_arch", c->dense_count, c->dense_hidden, c->dense_hidden_count, c->width);
    if (d->dense) add_counts(d, m);
    QN_TRY(add_tables(d, m, error));
    d->prediction =
        add_layers(d, "prediction_arch", interaction_columns(c), c->prediction_hidden, c->prediction_hidden_count, 1);
    return qn_eval(d->tape, NULL, 0, error);
}

qn_status qn_dlrm_new(qn_tape *tape, const qn_dlrm_config *config, const qn_metadata *metadata, uint64_t seed,
                      qn_dlrm **model, qn_error *error)
{
    HEAP_ENTER(error);
    if (!tape || !config || !metadata || !model)
        return error_set(error, QN_BAD_CALL, "qn_dlrm_new: an argument is NULL");
    *model = NULL;
    QN_TRY(qn_tape_error(tape, error));
    QN_TRY(qn_dlrm_config_check(config, error));
    QN_TRY(check_metadata(config, metadata, error));
    qn_dlrm *d = heap_new(sizeof(*d));
    d->config = *config;
    d->tape = tape;
    d->root = qn_model_new(tape, seed);
    /* By hand where there are warps; it takes whole groups of four columns. */
    bool warps = target_find(tape->device)->threads && config->width % GRAIN == 0;
    d->interact = warps ? "interact_warp" : "interact";
    qn_status status =
        qn_module_load_text(tape->context, "kernels of models", (const char *)model_kernels, &d->module, error);
    if (!status) d->module->is_trusted = true; /* it is the library's own text */
    if (!status) status = build(d, metadata, error);
    if (status) {
        qn_dlrm_free(d);
        return status;
    }
    *model = d;
    return QN_OK;
}

void qn_dlrm_free(qn_dlrm *d)
{
    if (!d) return;
    tape_forget(d->firsts);
    qn_model_free(d->root);
    qn_module_free(d->module);
    heap_free(d);
}

qn_model *qn_dlrm_model(qn_dlrm *d)
{
    return d ? d->root : NULL;
}

int64_t qn_dlrm_dense_columns(const qn_dlrm *d)
{
    return d ? d->dense_columns : 0;
}

/* ---- forward ---- */

typedef struct forward {
    qn_dlrm *d;
    dlrm_seen *seen;
    void *user;
} forward;

static qn_tensor see(const forward *f, const char *name, qn_tensor t)
{
    if (f->seen) f->seen(f->user, name, t);
    return t;
}

static qn_tensor run_layers(const forward *f, const char *name, qn_model *layers, qn_tensor x)
{
    char words[64];
    for (int i = 0; i < layers->child_count; i++) {
        qn_model *layer = layers->children[i];
        snprintf(words, sizeof(words), "%s.layers.%d (linear)", name, i);
        x = see(f, words, qn_linear(x, model_tensor_of(layer, "weight"), model_tensor_of(layer, "bias")));
        snprintf(words, sizeof(words), "%s.layers.%d (relu)", name, i);
        if (i + 1 < layers->child_count) x = see(f, words, qn_relu(x));
    }
    return x;
}

/* NaN is a missing count. Zeros that fill up have scale 0. */
static qn_tensor normalised(qn_dlrm *d, qn_tensor counts)
{
    qn_tensor x = qn_mul(qn_sub(qn_log1p(qn_maximum_scalar(counts, 0)), d->mean), d->scale);
    return qn_where(qn_isnan(counts), d->missing, x);
}

qn_tensor qn_dlrm_rows(qn_dlrm *d, qn_tensor tokens)
{
    if (!d) return (qn_tensor){0};
    if (d->config.map == QN_MAP_MODULUS) return qn_add(qn_mod(qn_add_scalar(tokens, 1), d->sizes), d->firsts);
    qn_tensor inputs[] = {tokens, d->tokens, d->firsts, d->sizes}, rows = {0};
    qn_call_kernel(d->module, "embed_rows", NULL, inputs, 4, &rows, 1);
    return rows;
}

qn_tensor dlrm_unknown_rows(qn_dlrm *d, qn_tensor tokens)
{
    if (d->config.map == QN_MAP_MODULUS) return (qn_tensor){0};
    qn_tensor feature = qn_arange(d->tape, QN_I64, 0, d->config.sparse_count, 1);
    qn_tensor last = qn_add(qn_add(d->firsts, d->sizes), feature); /* each table's row of unknown ones */
    return qn_sum(qn_cast(qn_eq(qn_dlrm_rows(d, tokens), last), QN_I64), QN_AXES(1), false);
}

qn_tensor dlrm_unknown(qn_dlrm *d, qn_tensor tokens)
{
    qn_tensor rows = dlrm_unknown_rows(d, tokens);
    return rows.tape ? qn_sum(rows, QN_ALL, false) : rows;
}

static qn_tensor interaction(const forward *f, qn_tensor dense, qn_tensor looked)
{
    qn_dlrm *d = f->d;
    int64_t batch = qn_tensor_extent(dense, 0), width = d->config.width, all = (d->config.sparse_count + 1) * width;
    qn_tensor z = {0};
    if (d->config.interaction == QN_INTERACT_DOT) {
        qn_call_kernel(d->module, d->interact, NULL, (qn_tensor[]){dense, looked}, 2, &z, 1);
        return z;
    }
    qn_tensor both[] = {qn_reshape(dense, QN_SHAPE(batch, 1, width)), looked};
    qn_tensor c = qn_reshape(qn_concat(both, 2, 1), QN_SHAPE(batch, all));
    int64_t columns = interaction_columns(&d->config), more = filled_up(columns) - columns;
    z = d->config.interaction == QN_INTERACT_CAT
            ? c
            : qn_reshape(qn_mul(qn_unsqueeze(c, 2), qn_unsqueeze(c, 1)), QN_SHAPE(batch, all * all));
    return more ? qn_pad(z, QN_SHAPE(0, 0), QN_SHAPE(0, more), 0) : z;
}

qn_tensor dlrm_logits(qn_dlrm *d, qn_tensor counts, qn_tensor tokens, dlrm_seen *seen, void *user)
{
    forward f = {d, seen, user};
    qn_tensor x = see(&f, "the counts, log(1 + x) and normalised", normalised(d, counts));
    qn_tensor dense = run_layers(&f, "dense_arch", d->dense, x);
    qn_tensor looked = see(&f, "the rows looked up in the tables", qn_embedding(d->table, qn_dlrm_rows(d, tokens)));
    if (d->config.table_type != QN_F32) looked = qn_cast(looked, QN_F32);
    qn_tensor z = see(&f, "the interaction", interaction(&f, dense, looked));
    qn_tensor y = run_layers(&f, "prediction_arch", d->prediction, z);
    return qn_reshape(y, QN_SHAPE(qn_tensor_extent(y, 0)));
}

qn_tensor qn_dlrm_logits(qn_dlrm *d, qn_tensor counts, qn_tensor tokens)
{
    if (!d || !tape_enter(d->tape, "dlrm") || d->tape->graph->status) return tape_failed();
    if (!qn_tensor_valid(counts) || !qn_tensor_valid(tokens) || qn_tensor_rank(counts) != 2 ||
        qn_tensor_rank(tokens) != 2 || qn_tensor_extent(counts, 1) != d->dense_columns ||
        qn_tensor_extent(tokens, 1) != d->config.sparse_count ||
        qn_tensor_extent(counts, 0) != qn_tensor_extent(tokens, 0)) {
        graph_fail(d->tape->graph, "dlrm", "takes counts f32 [B][%lld] and tokens i64 [B][%d]",
                   (long long)d->dense_columns, d->config.sparse_count);
        return tape_failed();
    }
    return dlrm_logits(d, counts, tokens, NULL, NULL);
}

qn_optimizer *dlrm_optimizer(qn_dlrm *d)
{
    qn_optimizer_kind kind = d->config.optimizer;
    qn_optimizer_kind of_layers = kind == QN_ROW_ADAGRAD ? QN_ADAGRAD : kind;
    qn_optimizer_options tables = qn_optimizer_defaults(kind), layers = qn_optimizer_defaults(of_layers);
    tables.rate = layers.rate = d->config.rate;
    tables.lazy_rows = true;
    if (kind == QN_ADAMW) tables.weight_decay = 0; /* rows that no batch touches are left alone */
    qn_model_group groups[] = {{"sparse_arch.*", kind, tables}};
    return qn_model_optimizer(d->root, of_layers, &layers, groups, 1);
}
