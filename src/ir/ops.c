/*
 * The tables that ops.def and dtype.def describe.
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"

#include <string.h>

const dtype_info dtypes[DT_COUNT] = {
#define DTYPE(name, text, bytes, kind, c, npy) [DT_##name] = {text, bytes, KIND_##kind, c, npy},
#include "ir/dtype.def"
#undef DTYPE
};

#define HAS(flags, letter) (sizeof(flags) > 1 && (flags[0] == letter || flags[1] == letter || (sizeof(flags) > 3 && flags[2] == letter)))
const op_info ops[OP_COUNT] = {
    [OP_NONE] = {"none", CLASS_LEAF, 0, "", RESULT_NONE, false, false, false, false},
#define OP(name, text, class, count, types, result, flags)                                                             \
    [OP_##name] = {text, CLASS_##class, count, types, RESULT_##result, HAS(flags, 'P'), HAS(flags, 'C'), HAS(flags, 'A'), HAS(flags, 'L')},
#include "ir/ops.def"
#undef OP
};

const char *const fold_names[FOLD_COUNT] = {"sum", "prod", "max", "min", "any", "all", "argmax", "argmin"};
const char *const atomic_names[ATOMIC_COUNT] = {"add", "min", "max", "and", "or", "xor", "exchange", "cas"};
