/*
 * An ONNX model as far as a picture needs it: what is computed of what, with types and shapes, no numbers.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_ONNX_H
#define QUERN_DATA_ONNX_H

#include "base/base.h"

enum { ONNX_MOST_AXES = 12 };

typedef struct onnx_value {
    const char *name;
    int elem;                         /* TensorProto's number; 0: not said */
    int rank;                         /* -1: not said */
    const char *axes[ONNX_MOST_AXES]; /* numbers or names */
    int64_t count;                    /* of an initializer: its elements */
    bool is_initializer, is_outside;  /* outside: its bytes lie in another file */
    int producer;                     /* the node that makes it; -1: none */
} onnx_value;

typedef struct onnx_node {
    const char *name, *op, *domain;
    onnx_value **inputs, **outputs; /* NULL: left out */
    int input_count, input_capacity, output_count, output_capacity;
} onnx_node;

typedef struct onnx_graph {
    arena *memory;
    const char *name, *producer;
    int64_t opset;
    onnx_node *nodes;
    onnx_value **inputs, **outputs; /* of the graph; initializers are no inputs */
    int node_count, node_capacity, input_count, input_capacity, output_count, output_capacity;
    int64_t parameter_count; /* elements of all initializers */
    map *values;
} onnx_graph;

/* Everything lies in `memory`; `size` bytes of a file. */
qn_status onnx_read(arena *memory, const char *path, const char *bytes, size_t size, onnx_graph *out, qn_error *error);
const char *onnx_elem_name(int elem);
void onnx_print(const onnx_graph *g, text *out);   /* a table */
void onnx_picture(const onnx_graph *g, text *out); /* SVG */

#endif
