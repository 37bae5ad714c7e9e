/*
 * A trained model as ONNX. In: a checkpoint. Out: a file of opset 17 with inputs `counts` [N][dense] (NaN: missing) and
 * `tokens` [N][sparse] and the output `probability` [N]; large tensors lie beside it in FILE.data, copied from the checkpoint
 * one at a time. Weights in checkpoints have PyTorch's shapes already. Tokens become rows by Mod, or by the LabelEncoder of
 * ai.onnx.ml, which is a map. Nothing is computed here, so no device is needed. SPDX-License-Identifier: MIT
 */
#include "model/dlrm.h"

#include "data/protobuf.h"

#include <quern/safetensors.h>

#include <stdlib.h>
#include <string.h>

#define INLINE_BYTES ((size_t)1 << 16) /* larger tensors lie beside the model */
enum { ONNX_FLOAT = 1, ONNX_INT64 = 7, ONNX_BF16 = 16 };
enum { IR_VERSION = 8, OPSET = 17, OPSET_ML = 2 };
enum { ATTRIBUTE_INT = 2, ATTRIBUTE_INTS = 7 };

typedef struct onnx {
    const qn_safetensors *file;
    const qn_dlrm_config *config;
    const char *path; /* of the model */
    text nodes, initializers;
    file_aside *data; /* NULL: nothing is large */
    uint64_t data_bytes;
    int number; /* of nodes so far */
} onnx;

/* ---- nodes ---- */

typedef struct node_writer {
    onnx *to;
    text words;
} node_writer;

static node_writer node_begin(onnx *o, const char *op, const char *domain)
{
    node_writer n = {o, {0}};
    char name[64];
    snprintf(name, sizeof(name), "%s_%d", op, o->number++);
    proto_words(&n.words, 3, name);
    proto_words(&n.words, 4, op);
    if (domain) proto_words(&n.words, 7, domain);
    return n;
}

static void node_whole(node_writer *n, const char *name, int64_t value)
{
    text a = {0};
    proto_words(&a, 1, name);
    proto_whole(&a, 3, value);
    proto_whole(&a, 20, ATTRIBUTE_INT);
    proto_message(&n->words, 5, &a);
}

static void node_list(node_writer *n, const char *name, const int64_t *values, int64_t count)
{
    text a = {0};
    proto_words(&a, 1, name);
    for (int64_t i = 0; i < count; i++) proto_whole(&a, 8, values[i]);
    proto_whole(&a, 20, ATTRIBUTE_INTS);
    proto_message(&n->words, 5, &a);
}

static void node_end(node_writer *n, const char *const *inputs, int count, const char *output)
{
    for (int i = 0; i < count; i++) proto_words(&n->words, 1, inputs[i]);
    proto_words(&n->words, 2, output);
    proto_message(&n->to->nodes, 1, &n->words);
}

static void op1(onnx *o, const char *op, const char *a, const char *out)
{
    node_writer n = node_begin(o, op, NULL);
    node_end(&n, &a, 1, out);
}

static void op2(onnx *o, const char *op, const char *a, const char *b, const char *out)
{
    const char *both[] = {a, b};
    node_writer n = node_begin(o, op, NULL);
    node_end(&n, both, 2, out);
}

/* ---- tensors ---- */

static void tensor_head(text *t, const char *name, int type, int rank, const int64_t *extents)
{
    for (int i = 0; i < rank; i++) proto_whole(t, 1, extents[i]);
    proto_whole(t, 2, type);
    proto_words(t, 8, name);
}

static void constant(onnx *o, const char *name, const int64_t *values, int64_t count, bool scalar)
{
    text t = {0}, raw = {0};
    tensor_head(&t, name, ONNX_INT64, scalar ? 0 : 1, &count);
    for (int64_t i = 0; i < count; i++) proto_little(&raw, (uint64_t)values[i], 8);
    proto_message(&t, 9, &raw);
    proto_message(&o->initializers, 5, &t);
}

static void constant_float(onnx *o, const char *name, float value)
{
    text t = {0};
    tensor_head(&t, name, ONNX_FLOAT, 0, NULL);
    proto_bytes(&t, 9, &value, sizeof(value));
    proto_message(&o->initializers, 5, &t);
}

static void external_entry(text *t, const char *key, const char *value)
{
    text entry = {0};
    proto_words(&entry, 1, key);
    proto_words(&entry, 2, value);
    proto_message(t, 13, &entry);
}

/* After the others, at a multiple of 4096, which readers that map the file want. */
static qn_status add_external(onnx *o, text *t, const char *bytes, size_t size, qn_error *error)
{
    static const char zeros[4096];
    char words[32];
    if (!o->data) {
        text beside = {0};
        text_print(&beside, "%s.data", o->path);
        qn_status status = file_begin(text_get(&beside), &o->data, error);
        text_free(&beside);
        QN_TRY(status);
    }
    size_t gap = (size_t)((4096 - o->data_bytes % 4096) % 4096);
    QN_TRY(file_append(o->data, zeros, gap, error));
    o->data_bytes += gap;
    const char *name = strrchr(o->path, '/');
    text location = {0};
    text_print(&location, "%s.data", name ? name + 1 : o->path);
    external_entry(t, "location", text_get(&location));
    text_free(&location);
    snprintf(words, sizeof(words), "%llu", (unsigned long long)o->data_bytes);
    external_entry(t, "offset", words);
    snprintf(words, sizeof(words), "%zu", size);
    external_entry(t, "length", words);
    proto_whole(t, 14, 1);
    o->data_bytes += size;
    return file_append(o->data, bytes, size, error);
}

/* A tensor of the checkpoint, cut to `most` elements if that is above 0, under its own name. */
static qn_status weight(onnx *o, const char *name, qn_error *error)
{
    int at = qn_safetensors_find(o->file, name);
    const qn_safetensor *f = at < 0 ? NULL : qn_safetensors_get(o->file, at);
    if (!f) return error_set(error, QN_BAD_FILE, "the checkpoint has no tensor `%s`", name);
    if (f->type != QN_F32 && f->type != QN_BF16)
        return error_set(error, QN_BAD_FILE, "`%s` is %s, which is not exported", name, qn_dtype_name(f->type));
    char *bytes = malloc(f->size_bytes + 1);
    if (!bytes) return error_set(error, QN_NO_MEMORY, "no memory for `%s`", name);
    qn_status status = qn_safetensors_read(o->file, at, bytes, f->size_bytes, error);
    text t = {0};
    /* What is filled up with zeros is not part of the exported model. */
    bool facts = !strcmp(name, "dense_arch.mean") || !strcmp(name, "dense_arch.scale");
    int64_t extents[QN_TENSOR_RANK] = {facts ? o->config->dense_count : f->extents[0], f->extents[1]};
    size_t size = facts ? sizeof(float) * (size_t)o->config->dense_count : f->size_bytes;
    tensor_head(&t, name, f->type == QN_F32 ? ONNX_FLOAT : ONNX_BF16, f->rank, extents);
    if (!status && size > INLINE_BYTES)
        status = add_external(o, &t, bytes, size, error);
    else if (!status)
        proto_bytes(&t, 9, bytes, size);
    proto_message(&o->initializers, 5, &t);
    free(bytes);
    return status;
}

/* ---- the model ---- */

static qn_status add_dense_input(onnx *o, qn_error *error)
{
    static const char *const facts[] = {"dense_arch.mean", "dense_arch.scale", "dense_arch.missing"};
    for (int i = 0; i < 3; i++) QN_TRY(weight(o, facts[i], error));
    constant_float(o, "zero", 0);
    constant_float(o, "one", 1);
    op2(o, "Max", "counts", "zero", "counts_from_zero");
    op2(o, "Add", "counts_from_zero", "one", "counts_and_one");
    op1(o, "Log", "counts_and_one", "log_counts");
    op2(o, "Sub", "log_counts", facts[0], "centred");
    op2(o, "Mul", "centred", facts[1], "scaled");
    op1(o, "IsNaN", "counts", "is_missing");
    const char *inputs[] = {"is_missing", facts[2], "scaled"};
    node_writer n = node_begin(o, "Where", NULL);
    node_end(&n, inputs, 3, "dense_input");
    return QN_OK;
}

/* x through `count` layers; the last one gives `out`. */
static qn_status add_layers(onnx *o, const char *arch, int count, const char *x, const char *out, qn_error *error)
{
    char names[5][128];
    snprintf(names[4], sizeof(names[4]), "%s", x);
    for (int i = 0; i < count; i++) {
        snprintf(names[0], sizeof(names[0]), "%s.layers.%d.weight", arch, i);
        snprintf(names[1], sizeof(names[1]), "%s.layers.%d.bias", arch, i);
        snprintf(names[2], sizeof(names[2]), i + 1 < count ? "%s_linear_%d" : "%s", i + 1 < count ? arch : out, i);
        snprintf(names[3], sizeof(names[3]), "%s_relu_%d", arch, i);
        QN_TRY(weight(o, names[0], error));
        QN_TRY(weight(o, names[1], error));
        const char *inputs[] = {names[4], names[0], names[1]};
        node_writer n = node_begin(o, "Gemm", NULL);
        node_whole(&n, "transB", 1);
        node_end(&n, inputs, 3, names[2]);
        if (i + 1 < count) op1(o, "Relu", names[2], names[3]);
        memcpy(names[4], names[3], sizeof(names[4]));
    }
    return QN_OK;
}

/* Row numbers of feature f from its column of tokens. */
static qn_status add_index(onnx *o, int f, const int64_t *sizes, const int64_t *tokens, const char *column,
                           const char *out, qn_error *error)
{
    char name[64];
    if (o->config->map == QN_MAP_MODULUS) {
        char more[64];
        snprintf(name, sizeof(name), "size_%d", f);
        snprintf(more, sizeof(more), "token_and_one_%d", f);
        constant(o, name, &sizes[f], 1, true);
        op2(o, "Add", column, "whole_one", more);
        op2(o, "Mod", more, name, out);
        return QN_OK;
    }
    int64_t *rows = malloc(sizeof(int64_t) * (size_t)(sizes[f] + 1));
    if (!rows) return error_set(error, QN_NO_MEMORY, "no memory for %lld tokens", (long long)sizes[f]);
    for (int64_t i = 0; i < sizes[f]; i++) rows[i] = i;
    node_writer n = node_begin(o, "LabelEncoder", "ai.onnx.ml");
    node_list(&n, "keys_int64s", tokens, sizes[f]);
    node_list(&n, "values_int64s", rows, sizes[f]);
    node_whole(&n, "default_int64", sizes[f]); /* the row of tokens that are not known */
    node_end(&n, &column, 1, out);
    free(rows);
    return QN_OK;
}

static qn_status add_tables(onnx *o, const int64_t *sizes, const int64_t *tokens, qn_error *error)
{
    int count = o->config->sparse_count;
    char(*looked)[64] = heap_array((size_t)count + 1, sizeof(*looked));
    const char **parts = heap_array((size_t)count + 1, sizeof(*parts));
    qn_status status = QN_OK;
    const int64_t one = 1;
    constant(o, "whole_one", &one, 1, true);
    constant(o, "axis_one", &one, 1, false);
    op2(o, "Unsqueeze", "dense_out", "axis_one", "dense_row");
    parts[0] = "dense_row";
    for (int f = 0; f < count && !status; tokens = tokens ? tokens + sizes[f] : NULL, f++) {
        char number[32], column[32], row[32], found[32], table[96];
        snprintf(number, sizeof(number), "feature_%d", f);
        snprintf(column, sizeof(column), "token_%d", f);
        snprintf(row, sizeof(row), "row_%d", f);
        snprintf(found, sizeof(found), "found_%d", f);
        snprintf(looked[f], sizeof(looked[f]), "embedding_%d", f);
        snprintf(table, sizeof(table), "sparse_arch.embeddings.SPARSE_%d.weight", f);
        constant(o, number, &(int64_t){f}, 1, true);
        const char *inputs[] = {"tokens", number};
        node_writer n = node_begin(o, "Gather", NULL);
        node_whole(&n, "axis", 1);
        node_end(&n, inputs, 2, column);
        status = add_index(o, f, sizes, tokens, column, row, error);
        if (!status) status = weight(o, table, error);
        op2(o, "Gather", table, row, found);
        if (o->config->table_type == QN_BF16) {
            char wide[32];
            snprintf(wide, sizeof(wide), "wide_%d", f);
            const char *narrow = found;
            n = node_begin(o, "Cast", NULL);
            node_whole(&n, "to", ONNX_FLOAT);
            node_end(&n, &narrow, 1, wide);
            memcpy(found, wide, sizeof(found));
        }
        op2(o, "Unsqueeze", found, "axis_one", looked[f]);
        parts[f + 1] = looked[f];
    }
    node_writer n = node_begin(o, "Concat", NULL);
    node_whole(&n, "axis", 1);
    node_end(&n, parts, count + 1, "rows"); /* [N][F + 1][E] */
    heap_free(looked);
    heap_free((void *)parts);
    return status;
}

static void add_interaction(onnx *o)
{
    int64_t rows = o->config->sparse_count + 1, all = rows * o->config->width, flat[2] = {0, all};
    if (o->config->interaction != QN_INTERACT_DOT) {
        bool cat = o->config->interaction == QN_INTERACT_CAT;
        constant(o, "flat", flat, 2, false);
        op2(o, "Reshape", "rows", "flat", cat ? "interaction" : "numbers");
        if (cat) return;
        int64_t square[2] = {0, all * all}, two = 2;
        constant(o, "square", square, 2, false);
        constant(o, "axis_two", &two, 1, false);
        op2(o, "Unsqueeze", "numbers", "axis_two", "upright");
        op2(o, "Unsqueeze", "numbers", "axis_one", "lying");
        op2(o, "MatMul", "upright", "lying", "products");
        op2(o, "Reshape", "products", "square", "interaction");
        return;
    }
    int64_t pairs = rows * (rows - 1) / 2, at = 0, square[2] = {0, rows * rows};
    int64_t *places = heap_array((size_t)pairs, sizeof(int64_t)), turned[3] = {0, 2, 1};
    for (int64_t i = 1; i < rows; i++)
        for (int64_t j = 0; j < i; j++) places[at++] = i * rows + j;
    constant(o, "pairs", places, pairs, false);
    constant(o, "square", square, 2, false);
    const char *in = "rows";
    node_writer n = node_begin(o, "Transpose", NULL);
    node_list(&n, "perm", turned, 3);
    node_end(&n, &in, 1, "columns");
    op2(o, "MatMul", "rows", "columns", "products");
    op2(o, "Reshape", "products", "square", "all_pairs");
    const char *chosen[] = {"all_pairs", "pairs"}, *both[] = {"dense_out", "lower"};
    n = node_begin(o, "Gather", NULL);
    node_whole(&n, "axis", 1);
    node_end(&n, chosen, 2, "lower");
    n = node_begin(o, "Concat", NULL);
    node_whole(&n, "axis", 1);
    node_end(&n, both, 2, "interaction");
    heap_free(places);
}

static void add_value(text *graph, int field, const char *name, int type, int64_t columns)
{
    text dim = {0}, shape = {0}, tensor = {0}, kind = {0}, value = {0};
    proto_words(&dim, 2, "N");
    proto_message(&shape, 1, &dim);
    if (columns) {
        proto_whole(&dim, 1, columns);
        proto_message(&shape, 1, &dim);
    }
    proto_whole(&tensor, 1, type);
    proto_message(&tensor, 2, &shape);
    proto_message(&kind, 1, &tensor);
    proto_words(&value, 1, name);
    proto_message(&value, 2, &kind);
    proto_message(graph, field, &value);
}

static void add_opset(text *model, const char *domain, int version)
{
    text t = {0};
    proto_words(&t, 1, domain);
    proto_whole(&t, 2, version);
    proto_message(model, 8, &t);
}

static qn_status build(onnx *o, const int64_t *sizes, const int64_t *tokens, qn_error *error)
{
    const qn_dlrm_config *c = o->config;
    QN_TRY(add_dense_input(o, error));
    QN_TRY(add_layers(o, "dense_arch", c->dense_hidden_count + 1, "dense_input", "dense_out", error));
    QN_TRY(add_tables(o, sizes, tokens, error));
    add_interaction(o);
    QN_TRY(add_layers(o, "prediction_arch", c->prediction_hidden_count + 1, "interaction", "logit", error));
    op2(o, "Squeeze", "logit", "axis_one", "logits");
    op1(o, "Sigmoid", "logits", "probability");
    return QN_OK;
}

static qn_status write_model(onnx *o, qn_error *error)
{
    text graph = {0}, model = {0};
    text_add_bytes(&graph, o->nodes.data, o->nodes.length);
    proto_words(&graph, 2, "dlrm");
    text_add_bytes(&graph, o->initializers.data, o->initializers.length);
    add_value(&graph, 11, "counts", ONNX_FLOAT, o->config->dense_count);
    add_value(&graph, 11, "tokens", ONNX_INT64, o->config->sparse_count);
    add_value(&graph, 12, "probability", ONNX_FLOAT, 0);
    proto_whole(&model, 1, IR_VERSION);
    proto_words(&model, 2, "quern");
    proto_words(&model, 3, QN_VERSION);
    proto_message(&model, 7, &graph);
    add_opset(&model, "", OPSET);
    if (o->config->map == QN_MAP_EXACT) add_opset(&model, "ai.onnx.ml", OPSET_ML);
    qn_status status = model.length < (size_t)INT32_MAX
                           ? file_write(o->path, model.data, model.length, error)
                           : error_set(error, QN_FAILED, "the model without its tables is larger than 2 GB");
    text_free(&model);
    return status;
}

/* i64 of the checkpoint, malloc'd. */
static qn_status whole_numbers(const qn_safetensors *file, const char *name, int64_t **out, int64_t *count,
                               qn_error *error)
{
    int at = qn_safetensors_find(file, name);
    const qn_safetensor *t = at < 0 ? NULL : qn_safetensors_get(file, at);
    if (!t || t->type != QN_I64) return error_set(error, QN_BAD_FILE, "the checkpoint has no tensor `%s`", name);
    *count = (int64_t)(t->size_bytes / sizeof(int64_t));
    *out = malloc(t->size_bytes + 1);
    if (!*out) return error_set(error, QN_NO_MEMORY, "no memory for `%s`", name);
    return qn_safetensors_read(file, at, *out, t->size_bytes, error);
}

static qn_status export_file(const qn_safetensors *file, const qn_dlrm_config *c, const char *path, int64_t **sizes,
                             int64_t **tokens, qn_error *error)
{
    int64_t count = 0, token_count = 0, all = 0;
    QN_TRY(whole_numbers(file, "sparse_arch.sizes", sizes, &count, error));
    if (c->map == QN_MAP_EXACT) QN_TRY(whole_numbers(file, "sparse_arch.tokens", tokens, &token_count, error));
    for (int64_t i = 0; i < count; i++) {
        if ((*sizes)[i] < 0 || (*sizes)[i] > (int64_t)1 << 40) count = -1;
        if (count > 0) all += (*sizes)[i];
    }
    if (count != c->sparse_count || (*tokens && all != token_count))
        return error_set(error, QN_BAD_FILE, "the sizes of the checkpoint's tables do not fit");
    onnx o = {.file = file, .config = c, .path = path};
    qn_status status = build(&o, *sizes, *tokens, error);
    if (o.data) status = file_finish(o.data, status, error);
    if (!status) status = write_model(&o, error);
    text_free(&o.nodes);
    text_free(&o.initializers);
    return status;
}

qn_status qn_dlrm_export(const char *checkpoint, const char *path, qn_error *error)
{
    HEAP_ENTER(error);
    if (!checkpoint || !path) return error_set(error, QN_BAD_CALL, "qn_dlrm_export: an argument is NULL");
    char from[QN_DLRM_PATH];
    qn_dlrm_config c;
    dlrm_state state;
    qn_safetensors *file;
    int64_t *sizes = NULL, *tokens = NULL;
    QN_TRY(dlrm_need_checkpoint(checkpoint, from, sizeof(from), error));
    QN_TRY(dlrm_read_state(from, &c, &state, error));
    QN_TRY(qn_safetensors_open(from, &file, error));
    qn_status status = export_file(file, &c, path, &sizes, &tokens, error);
    qn_safetensors_close(file);
    free(sizes);
    free(tokens);
    return status;
}
