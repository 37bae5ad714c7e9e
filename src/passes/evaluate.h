/*
 * evaluate.c: elementwise ops on constants.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PASSES_EVALUATE_H
#define QUERN_PASSES_EVALUATE_H

#include "ir/tile.h"

/* One elementwise op with operands of type `from` (a shift's count aside) and a result of type `to`. False: not here.
 */
bool evaluate_op(op_code code, dtype from, dtype to, const number *in, number *out);

#endif
