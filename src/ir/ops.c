/*
 * The tables that ops.def and dtype.def describe.
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"

#include <math.h>
#include <string.h>

const dtype_info dtypes[DT_COUNT] = {
#define DTYPE(name, text, bytes, kind, digits, c, npy) [DT_##name] = {text, bytes, KIND_##kind, digits, c, npy},
#include "ir/dtype.def"
#undef DTYPE
};

/* Whether the letter is among the first four of a literal; a constant expression, so strchr will not do. */
#define LETTER(flags, at) ((flags)[sizeof(flags) > (at) + 1 ? (at) : 0])
#define HAS(flags, letter)                                                                          \
    (LETTER(flags, 0) == (letter) || LETTER(flags, 1) == (letter) || LETTER(flags, 2) == (letter) || \
     LETTER(flags, 3) == (letter))
const op_info ops[OP_COUNT] = {
    [OP_NONE] = {"none", CLASS_LEAF, 0, "", RESULT_NONE, false, false, false, false, false, false},
#define LETTERS(flags) \
    HAS(flags, 'P'), HAS(flags, 'C'), HAS(flags, 'A'), HAS(flags, 'L'), HAS(flags, 'N'), HAS(flags, 'D')
#define OP(name, text, class, count, types, result, flags) \
    [OP_##name] = {text, CLASS_##class, count, types, RESULT_##result, LETTERS(flags)},
#include "ir/ops.def"
#undef OP
};

const char *const fold_names[FOLD_COUNT] = {"sum", "prod", "max", "min", "any", "all", "argmax", "argmin"};
const char *const tile_knobs[KNOB_COUNT] = {"warps", "group", "stages", "cluster", "turns", "blocks", "library", "tile"};
const char *const atomic_names[ATOMIC_COUNT] = {"add", "min", "max", "and", "or", "xor", "exchange", "cas"};

number fold_identity(fold_kind fold, dtype t)
{
    int bits = dtypes[t].size_bytes * 8;
    bool low = fold == FOLD_MAX || fold == FOLD_ARGMAX, high = fold == FOLD_MIN || fold == FOLD_ARGMIN;
    if (!low && !high) {
        bool one = fold == FOLD_PROD || fold == FOLD_ALL;
        return dtype_is_float(t) ? (number){.f = one} : (number){.i = one};
    }
    switch (dtypes[t].kind) {
    case KIND_FLOAT: {
        double far = t == DT_F8E4M3 ? F8E4M3_LARGEST : INFINITY;
        return (number){.f = low ? -far : far};
    }
    case KIND_INT: return (number){.i = low ? INT64_MIN >> (64 - bits) : INT64_MAX >> (64 - bits)};
    case KIND_UINT: return (number){.i = low ? 0 : (int64_t)(~(uint64_t)0 >> (64 - bits))};
    default: return (number){.i = high};
    }
}

bool op_rounds_correctly(op_code code, dtype elem)
{
    return !ops[code].near && (code != OP_MOD || !dtype_is_float(elem));
}

tile_knob tile_knob_find(const char *name)
{
    int i = 0;
    while (i < KNOB_COUNT && strcmp(tile_knobs[i], name) != 0) i++;
    return (tile_knob)i;
}
