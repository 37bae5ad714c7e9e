/*
 * The public names of element types, and the version. They follow dtype.def in order.
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"

#include <quern/quern.h>

const char *qn_version(void)
{
    return QN_VERSION;
}

_Static_assert((int)QN_F32 == DT_F32 && (int)QN_BF16 == DT_BF16 && (int)QN_I64 == DT_I64 && (int)QN_BOOL == DT_BOOL &&
                   (int)QN_F8E4M3 == DT_F8E4M3,
               "the public types follow dtype.def");
_Static_assert(QN_MAX_RANK == ARRAY_RANK && ARRAY_RANK <= MAX_RANK, "one limit on ranks");

const char *qn_dtype_name(qn_dtype type)
{
    return (int)type >= 0 && (int)type < DT_COUNT ? dtypes[type].text : "unknown type";
}

bool qn_dtype_from_name(const char *name, qn_dtype *type)
{
    dtype found;
    if (!name || !dtype_from_text(name, &found)) return false;
    *type = (qn_dtype)found;
    return true;
}

size_t qn_dtype_size_bytes(qn_dtype type)
{
    return (int)type >= 0 && (int)type < DT_COUNT ? (size_t)dtypes[type].size_bytes : 0;
}
