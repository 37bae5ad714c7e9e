/*
 * Shared by the files that trace a tensor function: what an expression gives, and the state of the walk.
 *
 * An `operand` is a constant that the host knows, a tensor (with a mark on every axis that broadcasts), or several
 * results. A wrong expression gives an error operand, which spreads silently: one mistake is one message.
 * Inside a scalar function types follow the rules of kernels, and branches on tensors become selects over `path`.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_FUNCTION_TRACE_H
#define QUERN_TENSOR_FUNCTION_TRACE_H

#include "lang/lower.h"
#include "tensor/function.h"

typedef enum operand_kind { OPERAND_ERROR, OPERAND_CONSTANT, OPERAND_TENSOR, OPERAND_LIST, OPERAND_VOID } operand_kind;

typedef struct operand {
    operand_kind kind;
    binding constant;
    node tensor;
    unsigned units; /* axes that broadcast */
    struct operand *items;
    int count; /* LIST */
} operand;

typedef struct local {
    const char *name;
    operand now;
    bool is_type, is_function, is_typed; /* is_typed: assignments convert to `type` */
    dtype type;
    const char *function;
    const ast *item; /* is_function: the parameter with its types */
} local;

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE, FLOW_RETURN } flow;

typedef struct tracer {
    qn_tape *tape;
    graph *g;
    const ast_file *file;
    diagnostics *d;
    arena *memory;
    void *module;
    function_entry *entry;
    int units;
    local *locals;
    int local_count, local_capacity;
    int first;      /* of the locals that are visible */
    bool in_scalar; /* a scalar function: types as in kernels */
    bool sums;      /* grad of a result that is not one number: of its sum */
    int depth, expression_depth;
    int64_t steps; /* statements run: a limit on unrolling */
    int copies;    /* AGAIN nodes made */
    /* of the function being run */
    operand result;
    dtype result_type;
    bool has_result_type, returned_somewhere;
    node path;     /* of a scalar function: where this branch is taken; 0: everywhere */
    node returned; /* where it has returned already; 0: nowhere */
} tracer;

/* function_value.c */
operand operand_error(void);
operand operand_of_constant(binding b);
operand operand_of_node(tracer *t, node n, unsigned units, place at); /* 0: takes the graph's error as a diagnostic */
bool is_bad(const operand *x);
bool is_number(tracer *t, const operand *x, place at, int64_t *out); /* an integer that the host knows: E217 */
const shape *operand_shape(const tracer *t, const operand *x);       /* rank 0 for constants */
dtype operand_type(const tracer *t, const operand *x);
node operand_node(tracer *t, const operand *x, dtype type);                 /* of that type */
operand operand_cast(tracer *t, const operand *x, dtype type, place at);    /* explicit */
operand operand_convert(tracer *t, const operand *x, dtype type, place at); /* implicit: E205, E207, E103 */
operand operand_argument(tracer *t, const operand *x, dtype type, const char *name, place at); /* and E213 */
typed operand_typed(const tracer *t, const operand *x);
operand operand_condition(tracer *t, const operand *x, place at);                 /* to bool: E210 */
bool operands_type(tracer *t, const operand *x, int count, place at, dtype *out); /* the common one: E206 */
/* All to one shape: E301, E302. nodes[] get the type `type`; DT_COUNT: each keeps its own. */
bool operands_join(tracer *t, const operand *x, int count, dtype type, place at, node *nodes, unsigned *units);
/* The op over operands of a common type; as_float: integers become float. */
operand trace_map(tracer *t, op_code code, const operand *x, int count, bool as_float, place at);
/* A binary operator over operands that are not both constants. */
operand trace_operator(tracer *t, const char *word, const operand x[2], place at);
operand trace_select(tracer *t, const operand *condition, const operand *a, const operand *b, place at);
bool is_plain(tracer *t, const operand *x, place at); /* a constant or one tensor: E212 */

/* function_expression.c */
operand trace_expression(tracer *t, const ast *node);
operand trace_binary(tracer *t, const char *word, const operand *a, const operand *b, place at);
bool trace_type(tracer *t, const ast *type, dtype *out);
local *local_find(tracer *t, const char *name);
void local_push(tracer *t, local l);
void site_set(tracer *t, place at, const char *label);

/* function_access.c */
operand trace_access(tracer *t, const ast *node);

/* function_statement.c */
flow trace_block(tracer *t, const ast *block);

/* function_call.c: what is called by a name */
operand trace_call(tracer *t, const ast *node);
const ast *named_of(const ast *call, const char *name); /* or NULL */
bool trace_bind_known(tracer *t, const bindings *constants, const bindings *known);
operand trace_scalar_function(tracer *t, const ast *function, const operand *given, int count, const ast *call,
                              place at);

/* function.c: tensor functions and their gradients */
tracer tracer_new(qn_tape *tape, const ast_file *file, void *module, function_entry *entry, int units, diagnostics *d,
                  arena *memory);
operand *trace_arguments(tracer *t, const node *nodes, int count); /* by parameter; 0: VOID */
/* arguments: by parameter; VOID where none is given. */
operand trace_function(tracer *t, const ast *item, const operand *arguments, const bindings *constants,
                       const bindings *known, place at);
/* The item with the axes that these arguments have for `[...]`; NULL with diagnostics. */
const ast *trace_spread(tracer *t, const ast *item, const operand *arguments, place at);
operand trace_tensor_call(tracer *t, const ast *item, const ast *call);
operand trace_gradient_call(tracer *t, const ast *call);
operand trace_gradient(tracer *t, const ast *item, const operand *arguments, const bindings *constants,
                       const bindings *known, const bool *chosen, place at);

/* function_reduce.c */
operand trace_reduce(tracer *t, const ast *call, const builtin *b);
bool axes_of(tracer *t, const ast *call, int rank, unsigned *set, bool *given); /* `axis =`: E309 */

/* function_api.c: everything else that the tensor level knows by name. */
operand trace_api(tracer *t, const ast *call, const builtin *b);

/* function_kernel.c */
operand trace_kernel_call(tracer *t, const ast *item, const ast *call);
operand trace_kernel(tracer *t, const ast *item, const operand *arguments, const bindings *settings, place at);

#endif
