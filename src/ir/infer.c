/*
 * Result types of the ops whose result ops.def does not leave open.
 * In: an op code and operands. Out: the element type by the table, the shape by broadcasting.
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"

tile_type tile_infer(const tile_kernel *k, op_code code, const value *operands, int count)
{
    tile_type result = count ? tile_type_of(k, operands[0]) : scalar_type(DT_I64);
    for (int i = 1; i < count; i++) {
        tile_type other = tile_type_of(k, operands[i]);
        CHECK(tile_broadcast(&result, &other, &result));
    }
    if (ops[code].result == RESULT_BOOL) result.elem = DT_BOOL;
    if (ops[code].result == RESULT_I64) result.elem = DT_I64;
    return result;
}
