/*
 * Thrift's compact protocol, as much of it as Parquet uses: see thrift.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_THRIFT_H
#define QUERN_DATA_THRIFT_H

#include "base/base.h"

enum {
    THRIFT_STOP,
    THRIFT_TRUE,
    THRIFT_FALSE,
    THRIFT_BYTE,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT
};

/* After the first fault every answer is zero and `bad` stays true. `short_of_bytes`: it would have gone on. */
typedef struct thrift {
    const uint8_t *at, *end;
    bool bad, short_of_bytes;
} thrift;

/* Fields of a struct: `id` begins at 0; false at its end. */
bool thrift_field(thrift *t, int *id, int *type);
int64_t thrift_whole(thrift *t, int type);     /* of I16, I32, I64, BYTE; of a bool its value */
size_t thrift_list(thrift *t, int *item_type); /* the count; never more than bytes are left */
/* The bytes stay where they are. */
const char *thrift_binary(thrift *t, int type, size_t *length);
void thrift_skip(thrift *t, int type);

/* Writing into a text. */
void thrift_put_field(text *out, int *last_id, int id, int type);
void thrift_put_whole(text *out, int64_t value); /* zigzag */
void thrift_put_varint(text *out, uint64_t value);
void thrift_put_list(text *out, size_t count, int item_type);
void thrift_put_binary(text *out, const void *bytes, size_t length);
void thrift_put_stop(text *out);

#endif
