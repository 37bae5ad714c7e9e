/*
 * Tensor functions of .qn files. In: the tree of a function, its constants and extents, nodes for its tensors. Out: the
 * nodes of its results in the tape's graph, or diagnostics. Shapes are numbers here: a call with other shapes traces
 * the function again.
 *
 * Tensors are nodes; scalars are numbers that the host knows, unless a caller passes a tensor of rank 0 for one.
 * Needs no device: a tape without one is enough.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_FUNCTION_H
#define QUERN_TENSOR_FUNCTION_H

#include "lang/ast.h"
#include "tensor/tape.h"

#define FUNCTION_PARAMS TENSOR_PARAM_LIMIT
#define FUNCTION_RESULTS TENSOR_PARAM_LIMIT /* a gradient has one for each float parameter */

/* Gives what evaluation needs of a kernel with these constants (graph_kernel.entry), or NULL with diagnostics. */
typedef void *function_entry(void *module, const ast *item, const bindings *constants, diagnostics *d);

typedef struct function_request {
    const ast_file *file;
    const ast *item;                   /* AST_TENSOR */
    const bindings *constants, *known; /* as lang_instantiate gives them; known: extents and scalars */
    const node *arguments;             /* by parameter: tensors; else 0 */
    void *module;                      /* of kernels that it calls */
    function_entry *entry;
    int units;     /* of the device */
    bool gradient; /* results are those of grad(item) */
    bool sums;     /* grad of a first result that is not one number: of its sum */
} function_request;

/* False: diagnostics say why. Results of an error are 0. */
bool function_trace(qn_tape *tape, const function_request *request, diagnostics *d, node *results, int *count);

/* How many results the function has: as many as its `return` names, or as what it returns has. */
int function_result_count(const ast_file *file, const ast *item);
bool function_api_has(const char *name); /* can the tensor API be called by this name? */
/* Does grad differentiate by this parameter: a tensor or a scalar of a floating type? */
bool function_differentiates(const ast *param, const bindings *constants);

/* A kernel as an op: its outputs into results. inputs: by parameter; settings: constants, scalars and extents by name. */
typedef struct function_kernel_request {
    const ast_file *file;
    const ast *item; /* AST_KERNEL or AST_RAW */
    const node *inputs;
    const bindings *settings;
    void *module;
    function_entry *entry;
    int units;
} function_kernel_request;
bool function_kernel(qn_tape *tape, const function_kernel_request *request, diagnostics *d, node *results, int *count);

#endif
