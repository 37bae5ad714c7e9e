/*
 * The layers that come with the library. In: sizes. Out: nodes with parameters, and their forwards, each a few calls of
 * <quern/nn.h>. Parameters have PyTorch's names and initial distributions; matrices lie as qn_linear takes them,
 * [in][out], and are turned only in files.
 * SPDX-License-Identifier: MIT
 */
#include "model/model.h"

#include <math.h>
#include <quern/lora.h>
#include <string.h>

typedef struct layer_facts {
    double number; /* epsilon, or a probability */
    int64_t width;
    int heads;
    bool causal;
    qn_bag bag;
    qn_tensor (*function)(qn_tensor);
} layer_facts;

static qn_model *layer(qn_model *parent, const char *name, const char *label, qn_forward *forward, layer_facts facts)
{
    return model_layer(parent, name, label, forward, &facts, sizeof(facts));
}

/* Between so many inputs; else the error is recorded. */
static bool counted(qn_model *self, int count, int least, int most)
{
    if (count >= least && count <= most) return true;
    graph_fail(self->tape->graph, self->label, "`%s` takes %d to %d inputs, not %d", self->path, least, most, count);
    return false;
}

static qn_model *finished(qn_model *self)
{
    return self && !self->tape->graph->status ? self : NULL;
}

/* A layer of sizes that must be positive. */
static bool positive(qn_model *parent, const char *label, int64_t a, int64_t b)
{
    if (!parent || !tape_enter(parent->tape, label)) return false;
    if (a > 0 && b > 0) return true;
    graph_fail(parent->tape->graph, label, "its sizes %lld and %lld must be positive", (long long)a, (long long)b);
    return false;
}

/* ---- linear ---- */

qn_tensor model_forward_linear(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    const layer_facts *facts = user;
    if (!counted(self, count, 1, 1)) return (qn_tensor){0};
    qn_tensor y = qn_linear(inputs[0], model_tensor_of(self, "weight"), model_tensor_of(self, "bias"));
    if (!tape_slot_of(y)) return y;
    y = model_lora_add(self, inputs[0], y);
    return facts->function ? facts->function(y) : y;
}

static void add_linear(qn_model *self, const char *weight, const char *bias, int64_t in, int64_t out, qn_init init)
{
    model_parameter(self, weight, QN_SHAPE(in, out), init, true);
    if (bias)
        model_parameter(self, bias, QN_SHAPE(out), qn_init_uniform(-1 / sqrt((double)in), 1 / sqrt((double)in)), false);
}

static qn_model *linear(qn_model *parent, const char *name, int64_t in, int64_t out, bool bias,
                        qn_tensor (*function)(qn_tensor))
{
    if (!positive(parent, "linear", in, out)) return NULL;
    layer_facts facts = {.width = in, .function = function};
    qn_model *self = layer(parent, name, "linear", model_forward_linear, facts);
    if (self) add_linear(self, "weight", bias ? "bias" : NULL, in, out, qn_init_kaiming_uniform(sqrt(5)));
    return finished(self);
}

qn_model *qn_model_linear(qn_model *parent, const char *name, int64_t in, int64_t out, bool bias)
{
    return linear(parent, name, in, out, bias, NULL);
}

qn_model *qn_lora_linear(qn_model *parent, const char *name, int64_t in, int64_t out, bool bias,
                         qn_tensor (*activation)(qn_tensor), const qn_lora_options *options)
{
    qn_model *self = linear(parent, name, in, out, bias, activation);
    if (self) qn_lora_add(self, "*", "default", options);
    return finished(self);
}

/* ---- embeddings ---- */

static qn_tensor forward_embedding(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    (void)user;
    if (!counted(self, count, 1, 1)) return (qn_tensor){0};
    return qn_embedding(model_tensor_of(self, "weight"), inputs[0]);
}

static qn_tensor forward_embedding_bag(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    const layer_facts *facts = user;
    if (!counted(self, count, 1, 2)) return (qn_tensor){0};
    return qn_embedding_bag(model_tensor_of(self, "weight"), inputs[0], count > 1 ? inputs[1] : (qn_tensor){0},
                            facts->bag);
}

static qn_model *add_table(qn_model *self, int64_t rows, int64_t width)
{
    qn_model_parameter(self, "weight", QN_SHAPE(rows, width), qn_init_normal(0, 1));
    return finished(self);
}

qn_model *qn_model_embedding(qn_model *parent, const char *name, int64_t rows, int64_t width)
{
    if (!positive(parent, "embedding", rows, width)) return NULL;
    return add_table(layer(parent, name, "embedding", forward_embedding, (layer_facts){0}), rows, width);
}

qn_model *qn_model_embedding_bag(qn_model *parent, const char *name, int64_t rows, int64_t width, qn_bag mode)
{
    if (!positive(parent, "embedding_bag", rows, width)) return NULL;
    return add_table(layer(parent, name, "embedding_bag", forward_embedding_bag, (layer_facts){.bag = mode}), rows,
                     width);
}

/* ---- norms ---- */

static qn_tensor forward_layer_norm(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    const layer_facts *facts = user;
    if (!counted(self, count, 1, 1)) return (qn_tensor){0};
    return qn_layer_norm(inputs[0], QN_SHAPE(facts->width), model_tensor_of(self, "weight"),
                         model_tensor_of(self, "bias"), facts->number);
}

qn_model *qn_model_layer_norm(qn_model *parent, const char *name, int64_t width)
{
    if (!positive(parent, "layer_norm", width, 1)) return NULL;
    qn_model *self =
        layer(parent, name, "layer_norm", forward_layer_norm, (layer_facts){.number = 1e-5, .width = width});
    qn_model_parameter(self, "weight", QN_SHAPE(width), qn_init_constant(1));
    qn_model_parameter(self, "bias", QN_SHAPE(width), qn_init_constant(0));
    return finished(self);
}

static qn_tensor forward_rms_norm(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    const layer_facts *facts = user;
    if (!counted(self, count, 1, 1)) return (qn_tensor){0};
    return qn_rms_norm(inputs[0], QN_SHAPE(facts->width), model_tensor_of(self, "weight"), facts->number);
}

qn_model *qn_model_rms_norm(qn_model *parent, const char *name, int64_t width)
{
    if (!positive(parent, "rms_norm", width, 1)) return NULL;
    qn_model *self = layer(parent, name, "rms_norm", forward_rms_norm, (layer_facts){.number = 1e-6, .width = width});
    qn_model_parameter(self, "weight", QN_SHAPE(width), qn_init_constant(1));
    return finished(self);
}

#define RUNNING 0.1 /* share of the batch in the running statistics */

/* A tensor by channel, for every element of x: [C] as [1][C][1]... */
static qn_tensor by_channel(qn_tensor t, int rank)
{
    qn_shape s = {.rank = rank};
    for (int k = 0; k < rank; k++) s.extents[k] = k == 1 ? -1 : 1;
    return qn_reshape(t, s);
}

static void move_towards(qn_tensor running, qn_tensor batch)
{
    qn_tensor now = qn_detach(qn_reshape(batch, qn_tensor_shape(running)));
    qn_assign(running, qn_add(qn_mul_scalar(running, 1 - RUNNING), qn_mul_scalar(now, RUNNING)));
}

static qn_tensor forward_batch_norm(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    const layer_facts *facts = user;
    if (!counted(self, count, 1, 1)) return (qn_tensor){0};
    qn_tensor x = inputs[0], mean, variance;
    int rank = qn_tensor_rank(x);
    if (rank < 2 || qn_tensor_extent(x, 1) != facts->width)
        return graph_fail(self->tape->graph, self->label, "`%s` takes [N][%lld] or [N][%lld][...]", self->path,
                          (long long)facts->width, (long long)facts->width),
               (qn_tensor){0};
    if (self->training) {
        qn_axes others = {.count = rank - 1};
        for (int k = 0; k < others.count; k++) others.axes[k] = k ? k + 1 : 0;
        int64_t samples = qn_tensor_count(x) / facts->width;
        mean = qn_mean(x, others, true);
        variance = qn_var(x, others, 0, true);
        move_towards(model_tensor_of(self, "running_mean"), mean);
        double correction = (double)samples / fmax((double)samples - 1, 1);
        move_towards(model_tensor_of(self, "running_var"), qn_mul_scalar(variance, correction));
        qn_tensor batches = model_tensor_of(self, "num_batches_tracked");
        qn_assign(batches, qn_add_scalar(batches, 1));
    } else {
        mean = by_channel(model_tensor_of(self, "running_mean"), rank);
        variance = by_channel(model_tensor_of(self, "running_var"), rank);
    }
    qn_tensor y = qn_mul(qn_sub(x, mean), qn_rsqrt(qn_add_scalar(variance, facts->number)));
    qn_tensor weight = by_channel(model_tensor_of(self, "weight"), rank);
    return qn_add(qn_mul(y, weight), by_channel(model_tensor_of(self, "bias"), rank));
}

static void add_buffer(qn_model *self, const char *name, qn_tensor initial)
{
    qn_model_buffer(self, name, initial);
    tape_forget(initial);
}

qn_model *qn_model_batch_norm(qn_model *parent, const char *name, int64_t channels)
{
    if (!positive(parent, "batch_norm", channels, 1)) return NULL;
    qn_model *self =
        layer(parent, name, "batch_norm", forward_batch_norm, (layer_facts){.number = 1e-5, .width = channels});
    if (!self) return NULL;
    qn_model_parameter(self, "weight", QN_SHAPE(channels), qn_init_constant(1));
    qn_model_parameter(self, "bias", QN_SHAPE(channels), qn_init_constant(0));
    add_buffer(self, "running_mean", qn_zeros(self->tape, QN_F32, QN_SHAPE(channels)));
    add_buffer(self, "running_var", qn_ones(self->tape, QN_F32, QN_SHAPE(channels)));
    add_buffer(self, "num_batches_tracked", qn_scalar(self->tape, QN_I64, 0));
    return finished(self);
}

/* ---- attention ---- */

/* [..][L][heads * d] as [..][heads][L][d] */
static qn_tensor to_heads(qn_tensor x, int heads)
{
    qn_shape s = qn_tensor_shape(x);
    s.extents[s.rank] = s.extents[s.rank - 1] / heads;
    s.extents[s.rank - 1] = heads;
    s.rank++;
    return qn_transpose(qn_reshape(x, s), -3, -2);
}

static qn_tensor from_heads(qn_tensor x)
{
    qn_tensor turned = qn_transpose(x, -3, -2);
    return qn_flatten(turned, -2, -1);
}

static qn_tensor forward_attention(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    const layer_facts *facts = user;
    qn_tensor weight = model_tensor_of(self, "in_proj_weight"), bias = model_tensor_of(self, "in_proj_bias");
    qn_tensor parts[3];
    if (count == 2 || !counted(self, count, 1, 4)) {
        if (count == 2) graph_fail(self->tape->graph, self->label, "`%s` takes 1, 3 or 4 inputs, not 2", self->path);
        return (qn_tensor){0};
    }
    if (qn_tensor_rank(inputs[0]) < 2 || qn_tensor_rank(inputs[0]) >= QN_TENSOR_RANK)
        return graph_fail(self->tape->graph, self->label, "`%s` takes [..][length][%lld]", self->path,
                          (long long)facts->width),
               (qn_tensor){0};
    if (count == 1) {
        qn_chunk(qn_linear(inputs[0], weight, bias), -1, 3, parts);
    } else {
        for (int i = 0; i < 3; i++) {
            int64_t from = i * facts->width;
            parts[i] = qn_linear(inputs[i], qn_slice(weight, 1, from, from + facts->width, 1),
                                 qn_slice(bias, 0, from, from + facts->width, 1));
        }
    }
    for (int i = 0; i < 3; i++) {
        if (!tape_slot_of(parts[i])) return (qn_tensor){0};
        parts[i] = to_heads(parts[i], facts->heads);
    }
    qn_tensor y = qn_scaled_dot_product_attention(parts[0], parts[1], parts[2], count > 3 ? inputs[3] : (qn_tensor){0},
                                                  facts->causal, 0);
    return qn_model_forward(self->children[0], from_heads(y));
}

qn_model *qn_model_attention(qn_model *parent, const char *name, int64_t width, int heads, bool causal)
{
    if (!positive(parent, "attention", width, heads)) return NULL;
    if (width % heads) {
        graph_fail(parent->tape->graph, "attention", "a width of %lld is not divided by %d heads", (long long)width,
                   heads);
        return NULL;
    }
    layer_facts facts = {.width = width, .heads = heads, .causal = causal};
    qn_model *self = layer(parent, name, "attention", forward_attention, facts);
    if (!self) return NULL;
    model_parameter(self, "in_proj_weight", QN_SHAPE(width, 3 * width), qn_init_xavier_uniform(1), true);
    qn_model_parameter(self, "in_proj_bias", QN_SHAPE(3 * width), qn_init_constant(0));
    qn_model *out = qn_model_linear(self, "out_proj", width, width, true);
    qn_model_init(out, "bias", qn_init_constant(0));
    return finished(self);
}

/* ---- without parameters ---- */

static qn_tensor forward_dropout(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    const layer_facts *facts = user;
    if (!counted(self, count, 1, 1)) return (qn_tensor){0};
    return self->training && facts->number > 0 ? qn_dropout(inputs[0], facts->number) : inputs[0];
}

qn_model *qn_model_dropout(qn_model *parent, const char *name, double p)
{
    if (!positive(parent, "dropout", 1, 1)) return NULL;
    if (!(p >= 0 && p < 1)) {
        graph_fail(parent->tape->graph, "dropout", "the probability %g is not at least 0 and below 1", p);
        return NULL;
    }
    return finished(layer(parent, name, "dropout", forward_dropout, (layer_facts){.number = p}));
}

static qn_tensor forward_activation(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    const layer_facts *facts = user;
    return counted(self, count, 1, 1) ? facts->function(inputs[0]) : (qn_tensor){0};
}

#define NAMED(name) {qn_##name, #name},
static const struct {
    qn_tensor (*function)(qn_tensor);
    const char *name;
} functions[] = {QN_UNARY_LIST(NAMED)};

qn_model *qn_model_activation(qn_model *parent, const char *name, qn_tensor (*function)(qn_tensor))
{
    const char *label = "activation";
    for (int i = 0; i < COUNT(functions); i++)
        if (functions[i].function == function) label = functions[i].name;
    if (!function || !positive(parent, label, 1, 1)) return NULL;
    return finished(layer(parent, name, label, forward_activation, (layer_facts){.function = function}));
}
