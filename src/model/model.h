/*
 * What the files of models share: a node of the tree and its tensors. All of a tree lies in the root's arena; variables
 * belong to the outermost scope of the tape, whatever scope they were made in.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_MODEL_MODEL_H
#define QUERN_MODEL_MODEL_H

#include "tensor/tape.h"

#include <quern/model.h>

/* Rows of a tensor (its first axis) that files hold under a name of their own. */
typedef struct model_part {
    const char *path;
    int64_t rows;
} model_part;

/* A parameter or buffer. */
typedef struct model_tensor {
    const char *name, *path; /* path: from the root */
    qn_model *owner;
    qn_tensor value;
    qn_init init; /* of a parameter */
    bool buffer, frozen;
    bool turned;         /* a matrix [in][out] that files hold as [out][in] */
    const char *adapter; /* the name of the one that it is of; NULL: none */
    /* Its rows from the first on, as files hold them; rows after the last part are zeros and in no file. */
    const model_part *parts;
    int part_count; /* 0: it is one, under its path */
} model_tensor;

struct qn_model {
    qn_model *root, *parent;
    arena *memory;
    qn_tape *tape;
    uint64_t seed;
    const char *name, *path, *label;
    qn_dtype type;
    bool training;
    qn_forward *forward;
    void *user;
    qn_model **children;
    int child_count, child_capacity;
    model_tensor *tensors;
    int tensor_count, tensor_capacity;
    struct model_lora *lora; /* of a linear layer with adapters */
};

/* tree.c */
/* A child with a forward of the library's; NULL with the error recorded. facts are copied. */
qn_model *model_layer(qn_model *parent, const char *name, const char *label, qn_forward *forward, const void *facts,
                      size_t facts_bytes);
/* As qn_model_parameter; turned: files hold its transpose. */
qn_tensor model_parameter(qn_model *model, const char *name, qn_shape shape, qn_init init, bool turned);
/* Of a tensor of this very model. Paths are below the model; both are copied. */
void model_set_parts(qn_model *model, const char *name, const model_part *parts, int count);
qn_tensor model_tensor_of(const qn_model *model, const char *name); /* its own; the empty handle if there is none */
typedef void model_visit(void *user, model_tensor *tensor);
void model_each(qn_model *model, model_visit *visit, void *user);    /* its own, then those of its children, in order */
const char *model_relative(const qn_model *model, const char *path); /* as seen from the model */

/* layers.c */
qn_forward model_forward_linear;

/* lora.c: y, what a linear layer makes of x, with what its adapters in use add. */
qn_tensor model_lora_add(const qn_model *self, qn_tensor x, qn_tensor y);

/* state.c: the tensors of one adapter alone, under paths without its name. */
qn_status model_save_adapter(qn_model *model, const char *adapter, const char *const *metadata, const char *path,
                             qn_error *error);
qn_status model_load_adapter(qn_model *model, const char *adapter, const char *path, const qn_load_options *options,
                             qn_error *error);

/* init.c: the value that a parameter begins with. */
qn_tensor model_initial(qn_tape *tape, uint64_t seed, const char *path, qn_dtype type, qn_shape shape, qn_init init);

/* metrics.c: qn_auc; QN_NO_MEMORY. *auc: NAN where there is none. */
qn_status metrics_auc(const float *scores, const float *labels, int64_t count, double *auc, qn_error *error);

#endif
