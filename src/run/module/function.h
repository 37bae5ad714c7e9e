/*
 * Tensor functions inside run: what launching, showing and calling them from C share.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_MODULE_FUNCTION_H
#define QUERN_RUN_MODULE_FUNCTION_H

#include "run/run.h"
#include "tensor/function.h"

/* The function in a tape's graph. arguments: nodes by parameter, 0 for scalars, which are among the settings. */
bool function_in_tape(const kernel_entry *entry, const instance *i, const bindings *settings, qn_tape *tape,
                      const node *arguments, int units, diagnostics *d, node *results, int *count);
/* integer_use.c: may the integers of this leaf be any number? */
bool graph_integers_may_be_any(const graph *g, node array);
/* What graph_kernel.entry is: the instance of a module's kernel. */
void *function_kernel_entry(void *module, const ast *item, const bindings *constants, diagnostics *d);

/* function_plan.c: the plan of a traced function with its addresses open. by_param: buffers of its arrays in the tape,
 * by tile parameter. */
typedef struct function_plan function_plan;
qn_status function_plan_take(qn_call *call, qn_tape *tape, qn_buffer *const *by_param, function_plan **out,
                             qn_error *error);
/* With the call's arrays as they lie now, on a stream (NULL: the device's own); does not wait. */
qn_status function_plan_run(function_plan *f, qn_call *call, qn_tape *tape, device_stream *stream, qn_error *error);
int64_t function_plan_scratch(const function_plan *f); /* bytes */
bool function_plan_has_indices(const function_plan *f);
void function_plan_free(function_plan *f); /* NULL is fine */

#endif
