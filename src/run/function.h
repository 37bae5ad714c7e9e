/*
 * Tensor functions inside run: what launching, showing and calling them from C share.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_FUNCTION_H
#define QUERN_RUN_FUNCTION_H

#include "run/run.h"
#include "tensor/function.h"

/* The function in a tape's graph. arguments: nodes by parameter, 0 for scalars, which are among the settings. */
bool function_in_tape(const kernel_entry *entry, const instance *i, const bindings *settings, qn_tape *tape,
                      const node *arguments, int units, diagnostics *d, node *results, int *count);
/* What graph_kernel.entry is: the instance of a module's kernel. */
void *function_kernel_entry(void *module, const ast *item, const bindings *constants, diagnostics *d);

#endif
