/*
 * The tensor graph: immutable, hash-consed nodes over whole tensors. A node is an index into graph->nodes; 0 is none.
 * Inputs come before their node. Shapes are numbers; whatever depends on them is decided again for other numbers, and
 * kernels that fusion writes are the same text for all sizes.
 *
 * Building never fails loudly: a wrong call returns 0, the first message is kept in graph->error, and a call with an
 * input of 0 returns 0 silently. Arithmetic wants equal shapes and element types (the tensor level broadcasts and
 * converts). Results have the element type of their operands; each op computes f16 and bf16 in f32.
 * Memory: everything of a graph lives in graph->memory.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_GRAPH_H
#define QUERN_IR_GRAPH_H

#include "base/range.h"
#include "ir/view.h"

#define GRAPH_RANK ARRAY_RANK

typedef uint32_t node;
typedef struct graph graph;

typedef enum graph_code {
    GRAPH_NONE,
#define GRAPH_OP(name, text, class, inputs) GRAPH_##name,
#include "ir/graph_ops.def"
#undef GRAPH_OP
    GRAPH_CODE_COUNT
} graph_code;

typedef enum graph_class {
    GRAPH_CLASS_LEAF,
    GRAPH_CLASS_MAP,
    GRAPH_CLASS_MOVE,
    GRAPH_CLASS_FOLD,
    GRAPH_CLASS_INDEX,
    GRAPH_CLASS_CALL
} graph_class;

typedef struct graph_op_info {
    const char *text;
    graph_class class;
    int inputs;
} graph_op_info;
extern const graph_op_info graph_ops[GRAPH_CODE_COUNT];

typedef struct shape {
    int rank;
    int64_t extents[GRAPH_RANK];
} shape;

/* What an op needs beside its inputs; fields that a code does not name are zero. */
typedef struct graph_attr {
    op_code map;
    fold_kind fold;
    int index, axis;
    unsigned axis_set;
    int axes[GRAPH_RANK];
    int64_t start[GRAPH_RANK], step[GRAPH_RANK];
    int64_t size, stride, dilation; /* WINDOW */
    number number;
    void *storage;                       /* LEAF: an identity; whose it is and where it lies, the owner knows */
    int64_t strides[GRAPH_RANK], offset; /* LEAF: in elements */
    const struct graph_kernel *kernel;   /* KERNEL */
} graph_attr;

/* A kernel as an op: what the tensor level knows of it without its module. Outputs (out and inout arrays, in order) have
 * their types and shapes already. Inputs of the node: in and inout arrays in order, then scalar parameters as rank 0. */
typedef struct graph_kernel {
    const char *name;
    void *entry;        /* the owner's: the kernel, its constants */
    const char *source; /* of a kernel that fusion itself calls: text of the language; then there is no entry */
    int output_count;
    dtype output_elem[16];
    shape output_shape[16];
    const char *note; /* ... why fusion calls it, or NULL */
    node *stands_for; /* ... nodes that it computes, where they are known: their ranges share its time */
    int stands_count;
    int64_t flops;     /* of a call, where fusion knows */
    uint64_t identity; /* equal for equal kernels with equal constants; outputs may differ */
    /* The gradients of the call's inputs into d_inputs (0: it has none), from those of its outputs (0: zero). NULL: the
     * kernel has no gradient. False: the error is recorded. */
    bool (*gradient)(graph *g, node call, const node *d_outputs, node *d_inputs);
} graph_kernel;

/* Where in the user's program a node was asked for: file and line of a C call or of a .qn file; file NULL: nowhere.
 * Passes hand a node's site on to what they make of it. */
typedef struct graph_site {
    const char *file; /* lives at least as long as the graph */
    int line;
    unsigned origin : 31;  /* of a tape's graph: graph->ranges; of a plan's: the node of the evaluation; 0: nobody's */
    unsigned gradient : 1; /* a gradient asked for it */
} graph_site;

/* A range (base/range.h) in which nodes were made. */
typedef struct graph_range {
    uint64_t number; /* of the push */
    unsigned parent; /* in graph->ranges; 0: none */
    int depth;       /* in its thread's stack, from 0 */
    int node_count;  /* of the graph when it was noted: later nodes may be of it */
    char name[RANGE_WORDS];
} graph_range;

typedef struct graph_node {
    graph_code code;
    dtype elem;
    shape shape;
    const node *inputs;
    int input_count;
    graph_attr attr;
    graph_site site;
    const char *label; /* what the user called: "softmax"; for reading only; NULL: the op itself */
    uint64_t hash;
} graph_node;

struct graph {
    arena *memory;
    graph_node *nodes; /* [0] is unused */
    int node_count, node_capacity;
    hash_index by_hash;
    graph_site site;     /* given to new nodes */
    const char *label;   /* given to new nodes */
    graph_range *ranges; /* [0] is none */
    int range_count, range_capacity;
    unsigned range;   /* the newest node's, most likely */
    qn_status status; /* of the first error */
    qn_error error;
};

graph *graph_new(arena *memory);
void graph_truncate(graph *g, int node_count); /* forgets newer nodes */
/* Forgets the nodes from `first` on whose renamed[n - first] is 0; of the others it is their new number, in the same order. Inputs
 * of what stays must stay. */
void graph_compact(graph *g, int first, node *renamed);

static inline const graph_node *graph_get(const graph *g, node n)
{
    return &g->nodes[n];
}
int64_t shape_count(const shape *s); /* elements */
bool shape_same(const shape *a, const shape *b);
void shape_print(const shape *s, text *out); /* "[3, 4]" */
int64_t graph_size_bytes(const graph *g, node n);
/* As TILE_MOST_WAYS: the steps after which a question about what a node is computed from gives up. */
enum { GRAPH_MOST_WAYS = 1024 };
/* Records the first error as "add (train.c:12): message" and returns 0. */
node graph_fail(graph *g, const char *op, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* graph.c: one function an op. */
node graph_leaf(graph *g, dtype elem, const shape *s, const int64_t *strides, int64_t offset, void *storage);
node graph_full(graph *g, dtype elem, const shape *s, number n);
node graph_full_double(graph *g, dtype elem, const shape *s, double x); /* converted to elem */
node graph_iota(graph *g, int64_t count);
/* Elementwise; elem: of the result where the op's is GIVEN (CONVERT, BITCAST, SELECT, PHILOX), else it is inferred. */
node graph_map(graph *g, op_code code, dtype elem, const node *inputs, int count);
node graph_map_index(graph *g, op_code code, int index, dtype elem, const node *inputs, int count); /* PHILOX */
node graph_unary(graph *g, op_code code, node x);
node graph_binary(graph *g, op_code code, node a, node b);
node graph_select(graph *g, node condition, node a, node b);
node graph_convert(graph *g, node x, dtype elem);              /* x itself if it has that type */
node graph_same(graph *g, graph_code code, node x, int index); /* DETACH, KEEP, AGAIN */
#define GRAPH_CHECKPOINT 1 /* index of the KEEP of a checkpoint */
node graph_reshape(graph *g, node x, const shape *s);
node graph_permute(graph *g, node x, const int *axes);
node graph_expand(graph *g, node x, const shape *s);
node graph_slice(graph *g, node x, const int64_t *start, const int64_t *step, const shape *s);
node graph_window(graph *g, node x, int axis, int64_t size, int64_t stride, int64_t dilation);
/* before[k] elements (negative: that many fewer), step[k] - 1 between each two; extents: of the result. */
node graph_pad(graph *g, node x, const int64_t *before, const int64_t *step, const shape *s, number fill);
node graph_concat(graph *g, const node *inputs, int count, int axis);
node graph_reduce(graph *g, fold_kind fold, node x, unsigned axis_set); /* argmax, argmin: one axis, i64 */
node graph_scan(graph *g, fold_kind fold, node x, int axis);
node graph_argsort(graph *g, node x, int axis, bool descending);
/* How a product of f32 may be computed. ANY: as accurately as by f32 multiplications and additions, however it is done;
 * TF32: its operands may be rounded to 10 bits of mantissa; FMA: by those multiplications and additions; TERMS: as sums of
 * products of bf16 wherever the device can, even if that takes longer. */
typedef enum product_way { PRODUCT_ANY, PRODUCT_TF32, PRODUCT_FMA, PRODUCT_TERMS, PRODUCT_WAYS } product_way;
extern const char *const product_way_words[PRODUCT_WAYS]; /* "", "tf32" ... */
node graph_dot(graph *g, node a, node b, dtype elem,
               product_way way); /* elem: of the operands, or f32 of f16 and bf16, i32 of i8 and u8 */
int64_t graph_dot_depth(const graph *g, const graph_node *dot); /* products that are added up for one element */
node graph_take(graph *g, node x, node index, int axis);
node graph_gather(graph *g, node x, node index, int axis);
node graph_take_add(graph *g, node base, node index, node updates, int axis);
/* index: equal ones are neighbours; of each run only the first row of updates is added. */
node graph_take_add_firsts(graph *g, node base, node index, node updates);
/* The index as i32, in the same order, with all that lies outside [0, limit) equal: sorts faster. */
node graph_short_index(graph *g, node index, int64_t limit);
node graph_run_sum(graph *g, node index, node updates, node order);
node graph_gather_add(graph *g, node base, node index, node updates, int axis);
node graph_kernel_call(graph *g, const graph_kernel *k, const node *inputs, int count);
node graph_result(graph *g, node call, int index);
/* The same op with other inputs of the same shapes and types. */
node graph_again(graph *g, node n, const node *inputs);

/* All nodes that `roots` need, each after its inputs; returns how many. order: room for node_count. */
int graph_order(const graph *g, const node *roots, int root_count, node *order);

/* graph_print.c, graph_read.c: docs/tensor-graph.md is the form; read(print(g)) prints the same. */
void graph_print(const graph *g, const node *roots, int root_count, text *out);
void graph_print_node(const graph *g, node n, text *out); /* one line without its end, with the graph's own numbers */
/* Adds the nodes of the text to g, which must have no error; roots: in g->memory. */
qn_status graph_read(graph *g, const char *file, const char *words, size_t length, node **roots, int *root_count,
                     qn_error *error);

#endif
