/*
 * The tensor level on nodes: what the calls of <quern/tensor.h> do once their handles are nodes. Shapes broadcast, types
 * meet, named operations become primitives of the graph, so that fusion and gradients know none of their names.
 * As in ir/graph.h: a failed call returns 0 with the error recorded, an input of 0 returns 0 silently.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_OPS_H
#define QUERN_TENSOR_OPS_H

#include "tensor/tape.h"

/* promote.c */
/* The type in which tensors meet, PyTorch's; DT_COUNT with the error recorded if there is none. */
dtype tensor_promote(graph *g, const char *op, const node *x, int count);
bool tensor_shapes_meet(graph *g, const char *op, const node *x, int count, shape *out);
node tensor_broadcast(graph *g, const char *op, node x, const shape *s); /* new axes in front, axes of 1 repeat */
bool tensor_meet(graph *g, const char *op, node *x, int count);          /* all of one type and one shape */
node tensor_convert(graph *g, node x, dtype elem);                       /* constants stay constants */
node tensor_number(graph *g, node like, double value); /* everywhere, of the type and shape of `like` */
node tensor_float(graph *g, node x);                   /* integers and bools as f32 */
node tensor_wide(graph *g, node x);                    /* f32, or f64 if it is */
static inline dtype tensor_elem(const graph *g, node x)
{
    return graph_get(g, x)->elem;
}
static inline const shape *tensor_shape(const graph *g, node x)
{
    return &graph_get(g, x)->shape;
}
const char *tensor_words(graph *g, node x); /* "[2, 3]" */

/* arithmetic.c */
node tensor_unary(graph *g, op_code code, node x);
node tensor_binary(graph *g, op_code code, node a, node b); /* DIV of integers: f32 */
node tensor_scalar(graph *g, op_code code, node x, double s, bool reversed);
node tensor_where(graph *g, node condition, node a, node b);

/* movement.c */
int tensor_axis(graph *g, const char *op, node x, int axis); /* from 0; -1: there is none such */
bool tensor_axis_set(graph *g, const char *op, node x, qn_axes axes, unsigned *set);
node tensor_reshape(graph *g, node x, const shape *s); /* one extent may be -1 */
node tensor_drop(graph *g, node x, unsigned set);      /* axes of extent 1 go away */
node tensor_insert(graph *g, node x, int axis);        /* an axis of extent 1 */
node tensor_swap(graph *g, node x, int a, int b);
node tensor_slice(graph *g, node x, int axis, int64_t start, int64_t stop, int64_t step);
node tensor_pad(graph *g, node x, const int64_t *before, const int64_t *after, double value);
node tensor_turn(graph *g, node x, unsigned set); /* those axes backwards */

/* triangle.c */
node tensor_diagonal(graph *g, node x, int64_t offset, int a, int b); /* axes a and b become a last one */

/* reduce.c: axes of `set` become 1 */
node tensor_sum(graph *g, node x, unsigned set);  /* integers: i64 or u64 */
node tensor_mean(graph *g, node x, unsigned set); /* integers: f32 */
node tensor_max(graph *g, node x, unsigned set);
node tensor_logsumexp(graph *g, node x, unsigned set);
node tensor_norm(graph *g, node x, unsigned set, double p); /* wide */
node tensor_scan(graph *g, fold_kind fold, node x, int axis, bool reverse, bool exclusive);
node tensor_root(graph *g, node x); /* sqrt whose gradient at 0 is 0 */

/* index.c */
node tensor_take(graph *g, node x, node index, int axis);
node tensor_one_hot(graph *g, node index, int64_t classes); /* bool, one more last axis */

/* product.c */
node tensor_matmul(graph *g, node a, node b, product_way way);

/* nn.c */
node tensor_softmax(graph *g, node x, int axis);
node tensor_log_softmax(graph *g, node x, int axis);
/* scaled_dot_product_attention with weights of which a share is dropped. */
qn_tensor tensor_attention(qn_tensor q, qn_tensor k, qn_tensor v, qn_tensor mask, bool causal, double scale,
                           double dropout);

/* random.c: words of random bits, u32, one for each element; advances the tape's state. */
bool tensor_random(qn_tape *tape, const shape *s, int count, node *words);
node tensor_uniform(qn_tape *tape, const shape *s); /* f32 in [0, 1) */
node tensor_kept(qn_tape *tape, const shape *s, double p); /* truths: such a number is at least p; compared as whole numbers */

/* create.c: starts a call that makes a tensor of this shape; false with the error recorded. */
bool tape_begin_new(qn_tape *tape, const char *op, qn_dtype type, qn_shape extents, shape *s);

#endif
