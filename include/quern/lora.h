/*
 * Adapters of low rank (LoRA) on the linear layers of a model: y = x W + b + alpha (x A) B. A and B are trained, all else is
 * frozen: its gradients are never computed. A layer may have several adapters; one is used for all rows, or an index
 * chooses one for each. docs/lora.md is the guide.
 *
 * Example (a frozen layer, its adapter trained by a step, saved alone, merged and taken out again):
 *     qn_error error;
 *     qn_context *context;
 *     qn_tape *tape;
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     if (qn_tape_new(context, "cpu", &tape, &error)) return 1;
 *     qn_model *net = qn_model_new(tape, 42);
 *     qn_model_linear(net, "in", 4, 8, true);
 *     qn_model_linear(net, "out", 8, 2, true);
 *     qn_lora_options options = {2, 0.5, 0};
 *     if (qn_lora_add(net, "*", "mine", &options) != 2) return 1;
 *     qn_optimizer *adam = qn_model_optimizer(net, QN_ADAM, NULL, NULL, 0);
 *     qn_tensor x = qn_ones(tape, QN_F32, QN_SHAPE(3, 4)), target = qn_zeros(tape, QN_F32, QN_SHAPE(3, 2));
 *     qn_optimizer_minimize(adam, qn_mse_loss(qn_model_forward(net, x), target, QN_MEAN));
 *     if (qn_eval(tape, NULL, 0, &error)) return 1;
 *     if (qn_lora_save(net, "mine", NULL, "/tmp/quern-example-lora.safetensors", &error)) return 1;
 *     if (qn_lora_load(net, "mine", "/tmp/quern-example-lora.safetensors", NULL, &error)) return 1;
 *     qn_lora_merge(net, true);
 *     qn_lora_merge(net, false);
 *     if (qn_tape_error(tape, &error)) return 1;
 *     qn_optimizer_free(adam);
 *     qn_model_free(net);
 *     qn_tape_free(tape);
 *     qn_context_close(context);
 *
 * Errors are those of <quern/model.h>: the tape keeps the first message.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LORA_H
#define QUERN_LORA_H

#include <quern/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zeros are the defaults. */
typedef struct qn_lora_options {
    int64_t rank;   /* 8 */
    double alpha;   /* what the adapter is multiplied by, and not divided by the rank; 1 */
    double dropout; /* of what the adapter reads, in training; none */
} qn_lora_options;

/* Every linear layer below (or the model itself) whose path matches gets an adapter of this name and uses it: parameters
 * `lora_A.NAME.weight` [in][rank], normal of deviation 1 / sqrt(rank), and `lora_B.NAME.weight` [rank][out], zeros, so
 * that nothing changes at first. All other parameters below are frozen, adapters apart (qn_model_freeze undoes it). How
 * many layers there were; none is an error, as is a name that a layer has. options may be NULL. */
QN_API int qn_lora_add(qn_model *model, const char *pattern, const char *name, const qn_lora_options *options);
/* A linear layer with an adapter `default` and an activation (NULL: none): act(x W + b + alpha (x A) B). Its weight and
 * bias are frozen. */
QN_API qn_model *qn_lora_linear(qn_model *parent, const char *name, int64_t in, int64_t out, bool bias,
                                qn_tensor (*activation)(qn_tensor), const qn_lora_options *options);

/* What the layers below do from here on (recorded steps stay as they are): all rows through one adapter, or with NULL
 * through none. How many layers have it; a name that no layer has is an error. */
QN_API int qn_lora_use(qn_model *model, const char *name);
/* Each row through the adapter names[index]; an index outside them, as -1: through none. index: integers, for the leading
 * axes of x: of x [batch][length][in] it is [batch] or [batch][length]. It must live as long as it is used. Each layer
 * that has adapters must have all of these, with one rate of dropout. */
QN_API int qn_lora_choose(qn_model *model, const char *const *names, int count, qn_tensor index);

/* The adapter in use into the weights, W + alpha A B, after which a layer costs what it did without; or out of them
 * again, which leaves the rounding of one sum and one difference. How many layers changed. A merged layer keeps its
 * adapter in use. */
QN_API int qn_lora_merge(qn_model *model, bool merged);

/* One adapter of all layers below, alone: `in.lora_A.weight` [rank][in] and `in.lora_B.weight` [out][rank], without its
 * name, so that it may be loaded under another; alpha of each layer is in the metadata (`in.alpha`) and loaded with it.
 * Otherwise as qn_model_save and qn_model_load. */
QN_API QN_MUST_CHECK qn_status qn_lora_save(qn_model *model, const char *name, const char *const *metadata,
                                            const char *path, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_lora_load(qn_model *model, const char *name, const char *path,
                                            const qn_load_options *options, qn_error *error);

#ifdef __cplusplus
}
#endif

#ifndef QN_NO_CALL_SITES
#define qn_lora_add(...) QN_AT(qn_lora_add(__VA_ARGS__))
#define qn_lora_linear(...) QN_AT(qn_lora_linear(__VA_ARGS__))
#define qn_lora_use(...) QN_AT(qn_lora_use(__VA_ARGS__))
#define qn_lora_choose(...) QN_AT(qn_lora_choose(__VA_ARGS__))
#define qn_lora_merge(...) QN_AT(qn_lora_merge(__VA_ARGS__))
#endif
#endif
