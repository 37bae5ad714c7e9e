/*
 * Protobuf's wire format, as far as files are written in it: TensorBoard's events, ONNX models.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_PROTOBUF_H
#define QUERN_DATA_PROTOBUF_H

#include "base/base.h"

#include <string.h>

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static inline void proto_varint(text *t, uint64_t value)
{
    for (; value > 127; value >>= 7) text_add_bytes(t, &(char){(char)(value | 128)}, 1);
    text_add_bytes(t, &(char){(char)value}, 1);
}

static inline void proto_little(text *t, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) text_add_bytes(t, &(char){(char)(value >> (8 * i))}, 1);
}

static inline void proto_key(text *t, int field, int wire)
{
    proto_varint(t, (uint64_t)field << 3 | (uint64_t)wire);
}

static inline void proto_bytes(text *t, int field, const void *bytes, size_t count)
{
    proto_key(t, field, WIRE_BYTES);
    proto_varint(t, count);
    text_add_bytes(t, bytes, count);
}

static inline void proto_words(text *t, int field, const char *words)
{
    proto_bytes(t, field, words, strlen(words));
}

static inline void proto_whole(text *t, int field, int64_t value)
{
    proto_key(t, field, WIRE_VARINT);
    proto_varint(t, (uint64_t)value);
}

/* A message inside: its bytes are taken over, and `inside` is empty afterwards. */
static inline void proto_message(text *t, int field, text *inside)
{
    proto_bytes(t, field, inside->data, inside->length);
    text_free(inside);
    *inside = (text){0};
}

#endif
