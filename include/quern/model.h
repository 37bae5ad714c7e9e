/*
 * Models: layers with named parameters in a tree, as a PyTorch user knows them. A `qn_model` is a node of the tree (what
 * PyTorch calls a module): it has children, parameters, buffers and a forward. docs/model.md is the guide; optimisers:
 * <quern/train.h>; batches: <quern/loader.h>; metrics: <quern/metrics.h>; files: <quern/safetensors.h>.
 *
 * Example (a perceptron learns one point; saved and loaded again):
 *     qn_error error;
 *     qn_context *context;
 *     qn_tape *tape;
 *     double loss;
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     if (qn_tape_new(context, "cpu", &tape, &error)) return 1;
 *     qn_model *net = qn_model_new(tape, 42);
 *     qn_model_linear(net, NULL, 2, 8, true);
 *     qn_model_activation(net, NULL, qn_gelu);
 *     qn_model_linear(net, NULL, 8, 1, true);
 *     qn_optimizer *adam = qn_model_optimizer(net, QN_ADAM, NULL, NULL, 0);
 *     qn_tensor x = qn_ones(tape, QN_F32, QN_SHAPE(1, 2)), y = qn_full(tape, QN_F32, QN_SHAPE(1, 1), 0.5);
 *     for (int i = 0; i < 3; i++) {
 *         qn_scope_begin(tape);
 *         qn_tensor error_now = qn_mse_loss(qn_model_forward(net, x), y, QN_MEAN);
 *         qn_optimizer_minimize(adam, error_now);
 *         if (qn_tensor_item(error_now, &loss, &error)) return 1;
 *         qn_scope_end(tape);
 *     }
 *     if (qn_model_save(net, adam, NULL, "/tmp/quern-example.safetensors", &error)) return 1;
 *     if (qn_model_load(net, adam, "/tmp/quern-example.safetensors", NULL, &error)) return 1;
 *     qn_optimizer_free(adam);
 *     qn_model_free(net);
 *     qn_tape_free(tape);
 *     qn_context_close(context);
 *
 * Errors are as in <quern/tensor.h>: a wrong call gives NULL or the empty handle, calls with those give the same, and the
 * tape keeps the first message. A model belongs to its tape, and to one thread at a time; free it before the tape.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_MODEL_H
#define QUERN_MODEL_H

#include <quern/nn.h>
#include <quern/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_model qn_model;

/* ---- the tree ---- */

/* The root. Parameters start from the seed and their own path alone: neither the order of calls nor other layers matter,
 * and the tape's random numbers are left alone. */
QN_API qn_model *qn_model_new(qn_tape *tape, uint64_t seed);
QN_API void qn_model_free(qn_model *root); /* with all below and their variables; NULL is fine */
/* A child that runs its own children in order, each on the result of the one before, unless it gets a forward of its
 * own. Names are of letters, digits, `_` and `-`; NULL: the number of the child, as in PyTorch's Sequential. */
QN_API qn_model *qn_model_child(qn_model *parent, const char *name);
/* What the model computes; inputs are those of the call of qn_model_forward_many. label: its kind in tables, or NULL. */
typedef qn_tensor qn_forward(qn_model *self, const qn_tensor *inputs, int count, void *user);
QN_API void qn_model_set_forward(qn_model *model, const char *label, qn_forward *forward, void *user);
/* The type of the parameters that are made from here on, in this model and its children to come; f32. */
QN_API void qn_model_set_type(qn_model *model, qn_dtype type);
QN_API qn_model *qn_model_find(qn_model *model, const char *path); /* "encoder.0"; NULL: none, which is no error */
QN_API const char *qn_model_path(const qn_model *model);           /* from the root; "" for it; borrowed */
QN_API qn_tape *qn_model_tape(const qn_model *model);
QN_API int qn_model_child_count(const qn_model *model);
QN_API qn_model *qn_model_child_at(qn_model *model, int number);

QN_API qn_tensor qn_model_forward(qn_model *model, qn_tensor x);
QN_API qn_tensor qn_model_forward_many(qn_model *model, const qn_tensor *inputs, int count);
/* Whether dropout drops and batch_norm takes the batch's own statistics; for the whole tree below. Models begin in
 * training. What was built or recorded before stays as it is. */
QN_API void qn_model_train(qn_model *model, bool training);
QN_API bool qn_model_training(const qn_model *model);

/* ---- parameters and buffers ---- */

typedef enum qn_init_kind {
    QN_INIT_CONSTANT,        /* a */
    QN_INIT_UNIFORM,         /* from a to b */
    QN_INIT_NORMAL,          /* mean a, deviation b */
    QN_INIT_XAVIER_UNIFORM,  /* gain a */
    QN_INIT_XAVIER_NORMAL,   /* gain a */
    QN_INIT_KAIMING_UNIFORM, /* negative slope a of a leaky ReLU; 0: ReLU */
    QN_INIT_KAIMING_NORMAL   /* likewise */
} qn_init_kind;
/* fan_in, fan_out: 0 takes them from the shape: [in][out] of a matrix, [out][in][...] of more axes. */
typedef struct qn_init {
    qn_init_kind kind;
    double a, b;
    int64_t fan_in, fan_out;
} qn_init;
QN_API qn_init qn_init_constant(double value);
QN_API qn_init qn_init_uniform(double low, double high);
QN_API qn_init qn_init_normal(double mean, double deviation);
QN_API qn_init qn_init_xavier_uniform(double gain);
QN_API qn_init qn_init_xavier_normal(double gain);
QN_API qn_init qn_init_kaiming_uniform(double slope); /* PyTorch's default for linear layers: sqrt(5) */
QN_API qn_init qn_init_kaiming_normal(double slope);

/* A variable of this model's type that is trained, saved and loaded; and one that is only saved and loaded. */
QN_API qn_tensor qn_model_parameter(qn_model *model, const char *name, qn_shape shape, qn_init init);
QN_API qn_tensor qn_model_buffer(qn_model *model, const char *name, qn_tensor initial);
/* Patterns in what follows are of paths below the model, with `*`, `?` and `[abc]`: "*.bias", "tables.*". One that
 * matches nothing is an error. Each returns how many it met. */
QN_API int qn_model_init(qn_model *model, const char *pattern, qn_init init); /* from the seed again */
/* Frozen parameters are in no optimiser made from here on, and their gradients are never computed. */
QN_API int qn_model_freeze(qn_model *model, const char *pattern, bool frozen);

QN_API qn_tensor qn_model_get(qn_model *model, const char *path); /* a parameter or buffer; empty: none, no error */
typedef struct qn_parameter {
    const char *path;  /* from the model that was asked; borrowed until the tree grows */
    const char *layer; /* "linear" */
    qn_tensor value;
    bool trained; /* a parameter that is not frozen */
    bool buffer;
} qn_parameter;
/* All parameters and buffers below, in the order they were made, as many as there is room for; returns how many there
 * are. */
QN_API int qn_model_list(qn_model *model, qn_parameter *out, int room);
QN_API int64_t qn_model_count(qn_model *model, bool trained_only); /* numbers in all parameters */
/* A table of the parameters, with totals: malloc'd text; or to standard output. */
QN_API char *qn_model_text(qn_model *model);
QN_API void qn_model_print(qn_model *model);

/* ---- layers: PyTorch's, with its names of parameters and its initial distributions ---- */

/* weight [in][out] (files have PyTorch's [out][in]), bias [out]: kaiming_uniform(sqrt(5)), uniform(+-1/sqrt(in)). */
QN_API qn_model *qn_model_linear(qn_model *parent, const char *name, int64_t in, int64_t out, bool bias);
QN_API qn_model *qn_model_embedding(qn_model *parent, const char *name, int64_t rows, int64_t width); /* N(0, 1) */
/* Inputs: index, or index and offsets (qn_embedding_bag). */
QN_API qn_model *qn_model_embedding_bag(qn_model *parent, const char *name, int64_t rows, int64_t width, qn_bag mode);
QN_API qn_model *qn_model_layer_norm(qn_model *parent, const char *name, int64_t width); /* of the last axis; 1e-5 */
QN_API qn_model *qn_model_rms_norm(qn_model *parent, const char *name, int64_t width);   /* 1e-6 */
/* Of axis 1 of [N][C] or [N][C][...]; epsilon 1e-5, momentum 0.1; running_mean, running_var, num_batches_tracked. */
QN_API qn_model *qn_model_batch_norm(qn_model *parent, const char *name, int64_t channels);
/* nn.MultiheadAttention with the batch first: in_proj_weight, in_proj_bias, out_proj. Inputs: x [..][L][width], or query,
 * key, value, or these and a mask (qn_scaled_dot_product_attention). */
QN_API qn_model *qn_model_attention(qn_model *parent, const char *name, int64_t width, int heads, bool causal);
QN_API qn_model *qn_model_dropout(qn_model *parent, const char *name, double p);
/* A function of one tensor: qn_relu, qn_gelu, qn_sigmoid, one's own. */
QN_API qn_model *qn_model_activation(qn_model *parent, const char *name, qn_tensor (*function)(qn_tensor));

/* ---- training ---- */

typedef struct qn_model_group {
    const char *pattern;
    qn_optimizer_kind kind;
    qn_optimizer_options options;
} qn_model_group;
/* For all parameters that are not frozen. One goes into the first group whose pattern it matches (the optimiser's groups
 * 1, 2, ...), the others into group 0, which has this kind and options (NULL: the defaults). Free it before the model. */
QN_API qn_optimizer *qn_model_optimizer(qn_model *model, qn_optimizer_kind kind, const qn_optimizer_options *options,
                                        const qn_model_group *groups, int group_count);

/* ---- state, as safetensors ---- */

/* Parameters and buffers by their paths, matrices of linear layers as PyTorch has them; with an optimiser its state, steps
 * and rates, and the tape's random numbers. metadata: key, value, ..., NULL; or NULL. The file is complete or not there:
 * it is written aside, flushed to the disk and renamed. */
QN_API QN_MUST_CHECK qn_status qn_model_save(qn_model *model, qn_optimizer *optimizer, const char *const *metadata,
                                             const char *path, qn_error *error);
typedef struct qn_load_options {
    bool allow_missing;    /* tensors that the file lacks keep their values */
    bool allow_unexpected; /* tensors that only the file has are passed over */
    bool convert;          /* other types of floats are converted */
} qn_load_options;
/* All or nothing: names, types and shapes are compared first, and the message names each tensor that does not fit.
 * options NULL: none of the above. Without an optimiser the state of one in the file is passed over. */
QN_API QN_MUST_CHECK qn_status qn_model_load(qn_model *model, qn_optimizer *optimizer, const char *path,
                                             const qn_load_options *options, qn_error *error);

#ifdef __cplusplus
}
#endif

#ifndef QN_NO_CALL_SITES
#define qn_model_new(...) QN_AT(qn_model_new(__VA_ARGS__))
#define qn_model_child(...) QN_AT(qn_model_child(__VA_ARGS__))
#define qn_model_forward(...) QN_AT(qn_model_forward(__VA_ARGS__))
#define qn_model_forward_many(...) QN_AT(qn_model_forward_many(__VA_ARGS__))
#define qn_model_parameter(...) QN_AT(qn_model_parameter(__VA_ARGS__))
#define qn_model_buffer(...) QN_AT(qn_model_buffer(__VA_ARGS__))
#define qn_model_init(...) QN_AT(qn_model_init(__VA_ARGS__))
#define qn_model_freeze(...) QN_AT(qn_model_freeze(__VA_ARGS__))
#define qn_model_linear(...) QN_AT(qn_model_linear(__VA_ARGS__))
#define qn_model_embedding(...) QN_AT(qn_model_embedding(__VA_ARGS__))
#define qn_model_embedding_bag(...) QN_AT(qn_model_embedding_bag(__VA_ARGS__))
#define qn_model_layer_norm(...) QN_AT(qn_model_layer_norm(__VA_ARGS__))
#define qn_model_rms_norm(...) QN_AT(qn_model_rms_norm(__VA_ARGS__))
#define qn_model_batch_norm(...) QN_AT(qn_model_batch_norm(__VA_ARGS__))
#define qn_model_attention(...) QN_AT(qn_model_attention(__VA_ARGS__))
#define qn_model_dropout(...) QN_AT(qn_model_dropout(__VA_ARGS__))
#define qn_model_activation(...) QN_AT(qn_model_activation(__VA_ARGS__))
#define qn_model_optimizer(...) QN_AT(qn_model_optimizer(__VA_ARGS__))
#endif
#endif
