/*
 * Values of a page. In: the page's bytes and their encoding. Out: float, double or int64, as the column's role asks.
 *
 * Encodings: plain, dictionary (the dictionary is converted once, its indices are runs and bit-packed groups), runs of
 * booleans, differences (DELTA_BINARY_PACKED), and bytes split by place (BYTE_STREAM_SPLIT). Each is read from where it
 * stopped, `count` values at a time. Words are loaded eight bytes at once: a page has PAGE_PADDING bytes behind it.
 * SPDX-License-Identifier: MIT
 */
#include "data/parquet.h"

#include <stdlib.h>
#include <string.h>

static bool damaged(column_reader *c, const char *what)
{
    return column_fault(c, QN_BAD_FILE, "%s; the file is damaged: write or fetch it again", what);
}

static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (*at == end) return false;
        uint8_t byte = *(*at)++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

static inline uint64_t load64(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

static inline uint32_t unpack(const uint8_t *from, uint64_t bit, uint64_t mask)
{
    return (uint32_t)(load64(from + (bit >> 3)) >> (bit & 7) & mask);
}

void runs_begin(run_reader *r, const uint8_t *data, const uint8_t *end, int width)
{
    *r = (run_reader){.at = data, .end = end, .width = width};
}

static bool next_run(run_reader *r)
{
    uint64_t head;
    if (!read_varint(&r->at, r->end, &head)) return false;
    uint64_t left = (uint64_t)(r->end - r->at);
    if (head & 1) {
        uint64_t groups = head >> 1;
        if (!groups) return false;
        uint64_t bytes = r->width ? MINIMUM(groups, left + 1) * (uint64_t)r->width : 0;
        if (bytes > left) { /* a last group may be cut at the last whole byte */
            bytes = left;
            if (!left) return false;
        }
        r->packed = true;
        r->packed_at = r->at;
        r->bit_at = 0;
        r->left = r->width ? MINIMUM(groups * 8, bytes * 8 / (uint64_t)r->width) : groups * 8;
        r->at += bytes;
        return r->left > 0;
    }
    uint64_t bytes = (uint64_t)(r->width + 7) / 8;
    r->left = head >> 1;
    if (!r->left || bytes > left) return false;
    r->packed = false;
    r->value = 0;
    for (uint64_t i = 0; i < bytes; i++) r->value |= (uint32_t)r->at[i] << 8 * i;
    r->at += bytes;
    return true;
}

bool runs_read_levels(run_reader *r, uint8_t *out, int64_t count, int64_t *ones)
{
    *ones = 0;
    while (count) {
        if (!r->left && !next_run(r)) return false;
        int64_t piece = (int64_t)MINIMUM((uint64_t)count, r->left);
        if (!r->packed) {
            if (r->value > 1) return false;
            memset(out, (int)r->value, (size_t)piece);
            *ones += r->value ? piece : 0;
        } else {
            for (int64_t i = 0; i < piece; i++) {
                uint64_t bit = r->bit_at + (uint64_t)i;
                out[i] = r->packed_at[bit >> 3] >> (bit & 7) & 1;
                *ones += out[i];
            }
            r->bit_at += (uint64_t)piece;
        }
        r->left -= (uint64_t)piece;
        out += piece;
        count -= piece;
    }
    return true;
}

/* Indices into the dictionary, looked up at once. */
#define READ_INDICES(name, type)                                                                         \
    static bool name(run_reader *r, const type *dictionary, uint64_t entries, int64_t count, type *out)  \
    {                                                                                                    \
        while (count) {                                                                                  \
            if (!r->left && !next_run(r)) return false;                                                  \
            int64_t piece = (int64_t)MINIMUM((uint64_t)count, r->left);                                  \
            if (!r->packed) {                                                                            \
                if (r->value >= entries) return false;                                                   \
                type value = dictionary[r->value];                                                       \
                for (int64_t i = 0; i < piece; i++) out[i] = value;                                      \
            } else {                                                                                     \
                uint64_t bit = r->bit_at, width = (uint64_t)r->width, mask = ((uint64_t)1 << width) - 1; \
                const uint8_t *from = r->packed_at;                                                      \
                uint32_t most = 0;                                                                       \
                uint32_t last = (uint32_t)entries - 1;                                                   \
                for (int64_t i = 0; i < piece; i++, bit += width) {                                      \
                    uint32_t index = unpack(from, bit, mask);                                            \
                    most = MAXIMUM(most, index);                                                         \
                    out[i] = dictionary[MINIMUM(index, last)];                                           \
                }                                                                                        \
                if (most > last) return false;                                                           \
                r->bit_at = bit;                                                                         \
            }                                                                                            \
            r->left -= (uint64_t)piece;                                                                  \
            out += piece;                                                                                \
            count -= piece;                                                                              \
        }                                                                                                \
        return true;                                                                                     \
    }
READ_INDICES(read_float_indices, float)
READ_INDICES(read_double_indices, double)
READ_INDICES(read_whole_indices, int64_t)

static bool delta_begin(delta_reader *d, const uint8_t *data, const uint8_t *end, int64_t count)
{
    uint64_t block, minis, total, first;
    *d = (delta_reader){.at = data, .end = end, .first = true};
    if (!read_varint(&d->at, end, &block) || !read_varint(&d->at, end, &minis) || !read_varint(&d->at, end, &total) ||
        !read_varint(&d->at, end, &first))
        return false;
    if (!minis || minis > 1024 || !block || block > (1 << 24) || block % minis || block / minis % 8 ||
        total > (uint64_t)count)
        return false;
    d->mini_count = d->mini = (uint32_t)minis;
    d->mini_values = block / minis;
    d->left = total;
    d->last = first >> 1 ^ (0 - (first & 1));
    return true;
}

static bool delta_next_mini(delta_reader *d)
{
    if (d->mini == d->mini_count) {
        uint64_t least;
        if (!read_varint(&d->at, d->end, &least) || (uint64_t)(d->end - d->at) < d->mini_count) return false;
        d->least = least >> 1 ^ (0 - (least & 1));
        d->widths = d->at;
        d->at += d->mini_count;
        d->mini = 0;
    }
    uint8_t width = d->widths[d->mini++];
    if (width > 64) return false;
    uint64_t bytes = d->mini_values / 8 * width;
    if (bytes > (uint64_t)(d->end - d->at)) return false;
    d->packed_at = d->at;
    d->bit_at = 0;
    d->mini_left = d->mini_values;
    d->at += bytes;
    return true;
}

static bool delta_read(delta_reader *d, int64_t *out, int64_t count)
{
    for (; count; count--) {
        if (!d->left) return false;
        d->left--;
        if (d->first) {
            d->first = false;
            *out++ = (int64_t)d->last;
            continue;
        }
        if (!d->mini_left && !delta_next_mini(d)) return false;
        int width = d->widths[d->mini - 1], shift = (int)(d->bit_at & 7);
        const uint8_t *from = d->packed_at + (d->bit_at >> 3);
        uint64_t difference = 0;
        if (width) {
            difference = load64(from) >> shift;
            if (shift + width > 64) difference |= (uint64_t)from[8] << (64 - shift);
            if (width < 64) difference &= ((uint64_t)1 << width) - 1;
        }
        d->bit_at += (uint64_t)width;
        d->mini_left--;
        d->last += d->least + difference;
        *out++ = (int64_t)d->last;
    }
    return true;
}

/* Hexadecimal text, as Criteo's categories are: up to 16 digits; empty is missing. */
static bool parse_hex(const uint8_t *at, size_t length, int64_t *out)
{
    uint64_t value = 0;
    if (!length) return *out = MISSING_TOKEN, true;
    if (length > 16) return false;
    for (size_t i = 0; i < length; i++) {
        uint8_t c = at[i], low = c | 32;
        int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (digit < 0) return false;
        value = value << 4 | (uint64_t)digit;
    }
    *out = (int64_t)value;
    return true;
}

static bool to_whole(double value, int64_t *out)
{
    if (value != value) return *out = MISSING_TOKEN, true;
    if (!(value >= -0x1p63 && value < 0x1p63)) return false;
    *out = (int64_t)value;
    return (double)*out == value;
}

/* One pass for each pair of stored and wanted type. */
#define CONVERT(count, stored, out, wanted)                               \
    for (int64_t i = 0; i < (count); i++) {                               \
        stored value;                                                     \
        memcpy(&value, from + i * (int64_t)sizeof(value), sizeof(value)); \
        (out)[i] = (wanted)value;                                         \
    }

static size_t width_of(parquet_type type)
{
    return type == PARQUET_INT32 || type == PARQUET_FLOAT ? 4 : 8;
}

static bool convert_to_whole(column_reader *c, const uint8_t *from, int64_t count, int64_t *out)
{
    bool sound = true;
    switch (c->column->type) {
    case PARQUET_INT64: memcpy(out, from, (size_t)count * 8); break;
    case PARQUET_INT32:
        if (c->column->is_unsigned)
            CONVERT(count, uint32_t, out, int64_t)
        else
            CONVERT(count, int32_t, out, int64_t)
        break;
    case PARQUET_FLOAT:
        for (int64_t i = 0; i < count; i++) {
            float value;
            memcpy(&value, from + i * 4, 4);
            sound &= to_whole((double)value, &out[i]);
        }
        break;
    case PARQUET_DOUBLE:
        for (int64_t i = 0; i < count; i++) {
            double value;
            memcpy(&value, from + i * 8, 8);
            sound &= to_whole(value, &out[i]);
        }
        break;
    default: sound = false;
    }
    return sound || column_fault(c, QN_BAD_FILE, "a category that is not a whole number: categories are integers");
}

/* `number`, the wanted type, is float or double. */
#define CONVERT_ALL(name, number)                                                       \
    static bool name(column_reader *c, const uint8_t *from, int64_t count, number *out) \
    {                                                                                   \
        switch (c->column->type) {                                                      \
        case PARQUET_FLOAT: CONVERT(count, float, out, number) break;                   \
        case PARQUET_DOUBLE: CONVERT(count, double, out, number) break;                 \
        case PARQUET_INT64: CONVERT(count, int64_t, out, number) break;                 \
        case PARQUET_INT32:                                                             \
            if (c->column->is_unsigned)                                                 \
                CONVERT(count, uint32_t, out, number)                                   \
            else                                                                        \
                CONVERT(count, int32_t, out, number)                                    \
            break;                                                                      \
        default: return damaged(c, "a type that it cannot have");                       \
        }                                                                               \
        return true;                                                                    \
    }
CONVERT_ALL(convert_to_float, float)
CONVERT_ALL(convert_to_double, double)

static bool convert(column_reader *c, const uint8_t *from, int64_t count, void *out)
{
    if (c->column->role == ROLE_SPARSE) return convert_to_whole(c, from, count, out);
    if (c->column->role == ROLE_PROBABILITY) return convert_to_double(c, from, count, out);
    if (c->column->type == PARQUET_FLOAT) return memcpy(out, from, (size_t)count * 4), true;
    return convert_to_float(c, from, count, out);
}

static bool read_text(column_reader *c, int64_t count, int64_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        if (c->values_end - c->values < 4) return damaged(c, "its values end before its rows do");
        size_t length =
            (size_t)c->values[0] | (size_t)c->values[1] << 8 | (size_t)c->values[2] << 16 | (size_t)c->values[3] << 24;
        if (length > (size_t)(c->values_end - c->values) - 4) return damaged(c, "a text is longer than it");
        if (!parse_hex(c->values + 4, length, &out[i]))
            return column_fault(c, QN_BAD_FILE, "a category `%.*s` that is not a hexadecimal number of up to 16 digits",
                                (int)MINIMUM(length, (size_t)20), (const char *)c->values + 4);
        c->values += 4 + length;
    }
    return true;
}

/* A number as the role wants it. */
static void put_whole(const column_reader *c, void *out, int64_t at, int64_t value)
{
    if (c->column->role == ROLE_SPARSE)
        ((int64_t *)out)[at] = value;
    else if (c->column->role == ROLE_PROBABILITY)
        ((double *)out)[at] = (double)value;
    else
        ((float *)out)[at] = (float)value;
}

static bool read_plain(column_reader *c, int64_t count, void *out)
{
    if (c->column->type == PARQUET_BYTE_ARRAY) return read_text(c, count, out);
    if (c->column->type == PARQUET_BOOLEAN) {
        if (c->value_at + count > (c->values_end - c->values) * 8)
            return damaged(c, "its values end before its rows do");
        for (int64_t i = 0; i < count; i++, c->value_at++)
            put_whole(c, out, i, c->values[c->value_at >> 3] >> (c->value_at & 7) & 1);
        return true;
    }
    size_t width = width_of(c->column->type);
    if ((size_t)(c->values_end - c->values) / width < (size_t)count)
        return damaged(c, "its values end before its rows do");
    const uint8_t *from = c->values;
    c->values += (size_t)count * width;
    return convert(c, from, count, out);
}

static bool read_booleans(column_reader *c, int64_t count, void *out)
{
    for (int64_t done = 0; done < count;) {
        uint8_t bits[256];
        int64_t piece = MINIMUM(count - done, (int64_t)sizeof(bits)), ones;
        if (!runs_read_levels(&c->indices, bits, piece, &ones)) return damaged(c, "its values end before its rows do");
        for (int64_t i = 0; i < piece; i++) put_whole(c, out, done + i, bits[i]);
        done += piece;
    }
    return true;
}

static bool read_delta(column_reader *c, int64_t count, void *out)
{
    int64_t values[256];
    for (int64_t done = 0; done < count;) {
        int64_t piece = MINIMUM(count - done, (int64_t)COUNT(values));
        if (!delta_read(&c->delta, values, piece)) return damaged(c, "its differences are wrong");
        for (int64_t i = 0; i < piece; i++) {
            int64_t value = values[i];
            if (c->column->type == PARQUET_INT32)
                value = c->column->is_unsigned ? (int64_t)(uint32_t)value : (int64_t)(int32_t)value;
            put_whole(c, out, done + i, value);
        }
        done += piece;
    }
    return true;
}

static bool read_split(column_reader *c, int64_t count, void *out)
{
    uint8_t bytes[256 * 8];
    int64_t width = (int64_t)width_of(c->column->type);
    if (c->value_at + count > c->value_count) return damaged(c, "its values end before its rows do");
    for (int64_t done = 0; done < count;) {
        int64_t piece = MINIMUM(count - done, (int64_t)256);
        for (int64_t k = 0; k < width; k++) {
            const uint8_t *from = c->values + k * c->value_count + c->value_at;
            for (int64_t i = 0; i < piece; i++) bytes[i * width + k] = from[i];
        }
        if (!convert(c, bytes, piece, (char *)out + (size_t)done * column_size_bytes(c->column))) return false;
        c->value_at += piece;
        done += piece;
    }
    return true;
}

bool values_begin(column_reader *c, int encoding, const uint8_t *data, const uint8_t *end, int64_t count)
{
    parquet_type type = c->column->type;
    bool fixed = type == PARQUET_INT32 || type == PARQUET_INT64 || type == PARQUET_FLOAT || type == PARQUET_DOUBLE;
    c->encoding = encoding;
    c->values = data;
    c->values_end = end;
    c->value_at = 0;
    switch (encoding) {
    case ENCODING_PLAIN: return true;
    case ENCODING_PLAIN_DICTIONARY:
    case ENCODING_DICTIONARY:
        if (!c->has_dictionary) return damaged(c, "a page of indices without a dictionary");
        if (data != end && *data > 32) return damaged(c, "its indices are wider than 32 bits");
        runs_begin(&c->indices, data == end ? end : data + 1, end, data == end ? 0 : *data); /* none: all are null */
        return true;
    case ENCODING_RLE:
        if (type != PARQUET_BOOLEAN) break;
        if (end - data < 4) return damaged(c, "it is cut short");
        runs_begin(&c->indices, data + 4, end, 1); /* its length stands before it */
        return true;
    case ENCODING_DELTA:
        if (type != PARQUET_INT32 && type != PARQUET_INT64) break;
        return delta_begin(&c->delta, data, end, count) || damaged(c, "its differences are wrong");
    case ENCODING_BYTE_STREAM_SPLIT:
        if (!fixed) break;
        c->value_count = (end - data) / (int64_t)width_of(type);
        return true;
    default: break;
    }
    return column_fault(c, QN_BAD_FILE,
                        "encoding %d, which Quern does not read for this type; write the file with plain or dictionary "
                        "encoding",
                        encoding);
}

bool values_read(column_reader *c, int64_t count, void *out)
{
    switch (c->encoding) {
    case ENCODING_PLAIN: return read_plain(c, count, out);
    case ENCODING_RLE: return read_booleans(c, count, out);
    case ENCODING_DELTA: return read_delta(c, count, out);
    case ENCODING_BYTE_STREAM_SPLIT: return read_split(c, count, out);
    default: break;
    }
    uint64_t entries = (uint64_t)c->dictionary_count;
    bool sound = entries > 0;
    if (sound && c->column->role == ROLE_SPARSE)
        sound = read_whole_indices(&c->indices, c->dictionary, entries, count, out);
    else if (sound && c->column->role == ROLE_PROBABILITY)
        sound = read_double_indices(&c->indices, c->dictionary, entries, count, out);
    else if (sound)
        sound = read_float_indices(&c->indices, c->dictionary, entries, count, out);
    return sound || damaged(c, "its indices do not fit the dictionary");
}

bool values_load_dictionary(column_reader *c, const uint8_t *data, const uint8_t *end, int64_t count)
{
    parquet_type type = c->column->type;
    size_t least = type == PARQUET_BYTE_ARRAY ? 4 : width_of(type);
    if (type == PARQUET_BOOLEAN) return damaged(c, "a dictionary of booleans");
    if (count < 0 || (size_t)count > (size_t)(end - data) / least) return damaged(c, "its dictionary is cut short");
    size_t bytes = (size_t)count * column_size_bytes(c->column);
    if (c->dictionary_capacity < bytes) {
        free(c->dictionary);
        c->dictionary = malloc(bytes);
        c->dictionary_capacity = c->dictionary ? bytes : 0;
        if (!c->dictionary) return column_fault(c, QN_NO_MEMORY, "no memory for a dictionary of %zu bytes", bytes);
    }
    c->values = data;
    c->values_end = end;
    c->value_at = 0;
    c->dictionary_count = count;
    return !count || read_plain(c, count, c->dictionary);
}
