/*
 * Thrift's compact protocol. In: bytes of a Parquet footer or page header. Out: fields, one after another, and back.
 *
 * Nothing is trusted: varints end after ten bytes, nesting after 32 levels, a list never has more items than bytes are
 * left. One flag carries the fault, so that a reader looks at it once at its end. SPDX-License-Identifier: MIT
 */
#include "data/thrift.h"

#define MOST_LEVELS 32

static void fail(thrift *t, bool short_of_bytes)
{
    if (!t->bad) t->short_of_bytes = short_of_bytes;
    t->bad = true;
    t->at = t->end;
}

static uint8_t take_byte(thrift *t)
{
    if (t->at == t->end) return fail(t, true), (uint8_t)0;
    return *t->at++;
}

static uint64_t take_varint(thrift *t)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        uint8_t byte = take_byte(t);
        value |= shift < 64 ? (uint64_t)(byte & 127) << shift : 0;
        if (byte < 128) return value;
    }
    fail(t, false);
    return 0;
}

static int64_t take_zigzag(thrift *t)
{
    uint64_t value = take_varint(t);
    return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

bool thrift_field(thrift *t, int *id, int *type)
{
    uint8_t byte = take_byte(t);
    *type = byte & 15;
    if (t->bad || !byte) return false;
    if (*type == THRIFT_STOP || *type > THRIFT_STRUCT) return fail(t, false), false;
    int64_t next = byte >> 4 ? *id + (byte >> 4) : take_zigzag(t);
    if (next < 0 || next > 32767) return fail(t, false), false;
    *id = (int)next;
    return !t->bad;
}

int64_t thrift_whole(thrift *t, int type)
{
    switch (type) {
    case THRIFT_TRUE: return 1;
    case THRIFT_FALSE: return 0;
    case THRIFT_BYTE: return (int8_t)take_byte(t);
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: return take_zigzag(t);
    default: fail(t, false); return 0;
    }
}

size_t thrift_list(thrift *t, int *item_type)
{
    uint8_t byte = take_byte(t);
    *item_type = byte & 15;
    uint64_t count = byte >> 4 == 15 ? take_varint(t) : byte >> 4;
    if (count > (uint64_t)(t->end - t->at)) fail(t, true);
    return t->bad ? 0 : (size_t)count;
}

const char *thrift_binary(thrift *t, int type, size_t *length)
{
    uint64_t count = type == THRIFT_BINARY ? take_varint(t) : (fail(t, false), 0);
    if (count > (uint64_t)(t->end - t->at)) fail(t, true);
    *length = t->bad ? 0 : (size_t)count;
    const char *bytes = (const char *)t->at;
    t->at += *length;
    return bytes;
}

static void skip_bytes(thrift *t, uint64_t count)
{
    if (count > (uint64_t)(t->end - t->at))
        fail(t, true);
    else
        t->at += count;
}

static void skip_value(thrift *t, int type, bool in_list, int level)
{
    if (t->bad) return;
    if (level > MOST_LEVELS) {
        fail(t, false);
        return;
    }
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        if (in_list) take_byte(t);
        break;
    case THRIFT_BYTE: take_byte(t); break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: take_varint(t); break;
    case THRIFT_DOUBLE: skip_bytes(t, 8); break;
    case THRIFT_BINARY: skip_bytes(t, take_varint(t)); break;
    case THRIFT_LIST:
    case THRIFT_SET: {
        int item;
        for (size_t count = thrift_list(t, &item); count && !t->bad; count--) skip_value(t, item, true, level + 1);
        break;
    }
    case THRIFT_MAP: {
        uint64_t count = take_varint(t);
        uint8_t types = count ? take_byte(t) : 0;
        if (count > (uint64_t)(t->end - t->at)) fail(t, true);
        for (; count && !t->bad; count--) {
            skip_value(t, types >> 4, true, level + 1);
            skip_value(t, types & 15, true, level + 1);
        }
        break;
    }
    case THRIFT_STRUCT:
        for (int id = 0, field; thrift_field(t, &id, &field);) skip_value(t, field, false, level + 1);
        break;
    default: fail(t, false);
    }
}

void thrift_skip(thrift *t, int type)
{
    skip_value(t, type, false, 0);
}

void thrift_put_varint(text *out, uint64_t value)
{
    char bytes[10];
    int count = 0;
    for (; value >= 128; value >>= 7) bytes[count++] = (char)(value | 128);
    bytes[count++] = (char)value;
    text_add_bytes(out, bytes, (size_t)count);
}

void thrift_put_whole(text *out, int64_t value)
{
    thrift_put_varint(out, (uint64_t)value << 1 ^ (0 - ((uint64_t)value >> 63)));
}

void thrift_put_field(text *out, int *last_id, int id, int type)
{
    CHECK(id > *last_id && id - *last_id < 16);
    char byte = (char)((id - *last_id) << 4 | type);
    text_add_bytes(out, &byte, 1);
    *last_id = id;
}

void thrift_put_list(text *out, size_t count, int item_type)
{
    char byte = (char)((count < 15 ? count : 15) << 4 | (size_t)item_type);
    text_add_bytes(out, &byte, 1);
    if (count >= 15) thrift_put_varint(out, count);
}

void thrift_put_binary(text *out, const void *bytes, size_t length)
{
    thrift_put_varint(out, length);
    text_add_bytes(out, bytes, length);
}

void thrift_put_stop(text *out)
{
    text_add_bytes(out, "", 1);
}
