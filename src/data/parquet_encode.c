/*
 * One column of a row group as pages. In: values in memory. Out: bytes for the file, sizes, bounds.
 *
 * A dictionary is tried first and given up when too many values differ; then values are stored as they are. Pages are of
 * version 1, which every reader knows, each with its checksum. SPDX-License-Identifier: MIT
 */
#include "data/parquet_write.h"
#include "data/thrift.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_ROWS 32768
#define MOST_ENTRIES 32768
#define SLOTS (4 * MOST_ENTRIES)
#define TRIED_ROWS 16384 /* after so many, half of them must have been seen before */

typedef struct encoder {
    encoded_column *out;
    codec codec;
    int width;        /* bytes of a stored value */
    uint64_t *values; /* those that are present, as bits */
    uint8_t *present; /* one for each row; NULL: all are */
    int64_t rows, count;
    uint32_t *indices;
    uint64_t *entries;
    int64_t entry_count;
    text page;
} encoder;

parquet_type write_type(column_role role)
{
    return role == ROLE_DENSE ? PARQUET_FLOAT : role == ROLE_SPARSE ? PARQUET_INT64 : PARQUET_DOUBLE;
}

/* Values as the bits that are stored. */
static bool gather(encoder *e, const column_values *v)
{
    e->values = malloc(sizeof(uint64_t) * (size_t)MAXIMUM(v->count, (int64_t)1));
    e->present = v->nulls ? malloc((size_t)MAXIMUM(v->count, (int64_t)1)) : NULL;
    if (!e->values || (v->nulls && !e->present)) return false;
    e->rows = v->count;
    for (int64_t i = 0; i < v->count; i++) {
        uint64_t bits = 0;
        bool present = true;
        if (v->role == ROLE_SPARSE) {
            int64_t value = ((const int64_t *)v->values)[i * v->stride];
            memcpy(&bits, &value, 8);
            present = value != -1;
        } else if (v->role == ROLE_DENSE) {
            float value = ((const float *)v->values)[i * v->stride];
            memcpy(&bits, &value, 4);
            present = value == value;
        } else {
            double value = v->role == ROLE_LABEL ? (double)((const float *)v->values)[i * v->stride]
                                                 : ((const double *)v->values)[i * v->stride];
            memcpy(&bits, &value, 8);
        }
        if (e->present) e->present[i] = present;
        if (present || !e->present) e->values[e->count++] = bits;
    }
    e->out->values = v->count;
    e->out->nulls = v->count - e->count;
    return true;
}

/* Indices of the values in a dictionary, or false: too many differ. */
static bool find_entries(encoder *e)
{
    uint32_t *slots = calloc(SLOTS, sizeof(*slots)); /* entry plus one */
    e->indices = malloc(sizeof(uint32_t) * (size_t)MAXIMUM(e->count, (int64_t)1));
    e->entries = malloc(sizeof(uint64_t) * MOST_ENTRIES);
    bool good = slots && e->indices && e->entries && e->count;
    for (int64_t i = 0; i < e->count && good; i++) {
        uint64_t bits = e->values[i], slot = mix64(bits) % SLOTS;
        while (slots[slot] && e->entries[slots[slot] - 1] != bits) slot = (slot + 1) % SLOTS;
        if (!slots[slot]) {
            if (e->entry_count == MOST_ENTRIES || (i > TRIED_ROWS && e->entry_count * 2 > i)) {
                good = false;
                break;
            }
            e->entries[e->entry_count++] = bits;
            slots[slot] = (uint32_t)e->entry_count;
        }
        e->indices[i] = slots[slot] - 1;
    }
    free(slots);
    return good && e->entry_count * 2 <= MAXIMUM(e->count, (int64_t)16);
}

static void put_packed(text *out, const uint32_t *values, int64_t count, int width)
{
    uint64_t bits = 0;
    int held = 0, filled = 0;
    char bytes[512];
    thrift_put_varint(out, (uint64_t)((count + 7) / 8) << 1 | 1);
    for (int64_t i = 0; i < (count + 7) / 8 * 8; i++) {
        bits |= (uint64_t)(i < count ? values[i] : 0) << held;
        held += width;
        for (; held >= 8; bits >>= 8, held -= 8) bytes[filled++] = (char)bits;
        if (filled <= COUNT(bytes) - 8) continue;
        text_add_bytes(out, bytes, (size_t)filled);
        filled = 0;
    }
    text_add_bytes(out, bytes, (size_t)filled);
}

/* Runs of 16 and more as such, the rest packed in groups of eight. */
static void put_runs(text *out, const uint32_t *values, int64_t count, int width)
{
    int64_t packed = 0, at = 0; /* [packed, at) waits to be packed */
    while (at < count) {
        int64_t run = 1;
        while (at + run < count && values[at + run] == values[at]) run++;
        if (run < 16) {
            at += MINIMUM((int64_t)8, count - at);
            continue;
        }
        if (at > packed) put_packed(out, values + packed, at - packed, width);
        thrift_put_varint(out, (uint64_t)run << 1);
        for (int i = 0; i < (width + 7) / 8; i++) {
            char byte = (char)(values[at] >> 8 * i);
            text_add_bytes(out, &byte, 1);
        }
        packed = at += run;
    }
    if (at > packed) put_packed(out, values + packed, at - packed, width);
}

static void put_plain(encoder *e, text *out, const uint64_t *values, int64_t count)
{
    if (e->width == 8) {
        text_add_bytes(out, (const char *)values, (size_t)count * 8);
        return;
    }
    for (int64_t i = 0; i < count;) {
        uint32_t narrow[256];
        int64_t piece = MINIMUM(count - i, (int64_t)COUNT(narrow));
        for (int64_t k = 0; k < piece; k++) narrow[k] = (uint32_t)values[i + k];
        text_add_bytes(out, (const char *)narrow, (size_t)piece * 4);
        i += piece;
    }
}

/* e->page, shrunk, behind its header. */
static bool add_page(encoder *e, int type, int64_t values, int encoding)
{
    size_t size = e->page.length, bound = codec_bound_bytes(e->codec, size);
    uint8_t *shrunk = malloc(bound + 1);
    if (!shrunk) return false;
    size_t length = e->codec == CODEC_NONE ? (memcpy(shrunk, text_get(&e->page), size), size)
                                           : codec_shrink(e->codec, text_get(&e->page), size, shrunk);
    if (!length && size) return free(shrunk), false;
    text head = {0};
    int id = 0, inner = 0;
    thrift_put_field(&head, &id, 1, THRIFT_I32), thrift_put_whole(&head, type);
    thrift_put_field(&head, &id, 2, THRIFT_I32), thrift_put_whole(&head, (int64_t)size);
    thrift_put_field(&head, &id, 3, THRIFT_I32), thrift_put_whole(&head, (int64_t)length);
    thrift_put_field(&head, &id, 4, THRIFT_I32), thrift_put_whole(&head, (int32_t)crc32_of(shrunk, length));
    thrift_put_field(&head, &id, type == PAGE_DICTIONARY ? 7 : 5, THRIFT_STRUCT);
    thrift_put_field(&head, &inner, 1, THRIFT_I32), thrift_put_whole(&head, values);
    thrift_put_field(&head, &inner, 2, THRIFT_I32), thrift_put_whole(&head, encoding);
    if (type == PAGE_DATA) {
        thrift_put_field(&head, &inner, 3, THRIFT_I32), thrift_put_whole(&head, ENCODING_RLE);
        thrift_put_field(&head, &inner, 4, THRIFT_I32), thrift_put_whole(&head, ENCODING_RLE);
    }
    thrift_put_stop(&head);
    thrift_put_stop(&head);
    text_add_bytes(&e->out->bytes, head.data, head.length);
    text_add_bytes(&e->out->bytes, (const char *)shrunk, length);
    e->out->expanded_bytes += (int64_t)(head.length + size);
    text_free(&head);
    free(shrunk);
    return true;
}

static void put_levels(encoder *e, int64_t first, int64_t rows, uint32_t *scratch)
{
    size_t at = e->page.length;
    for (int64_t i = 0; i < rows; i++) scratch[i] = e->present[first + i];
    text_add_bytes(&e->page, "\0\0\0\0", 4);
    put_runs(&e->page, scratch, rows, 1);
    uint32_t length = (uint32_t)(e->page.length - at - 4);
    for (int i = 0; i < 4; i++) e->page.data[at + (size_t)i] = (char)(length >> 8 * i);
}

static bool add_pages(encoder *e)
{
    int bits = 0; /* of an index */
    uint32_t *scratch = malloc(sizeof(*scratch) * PAGE_ROWS);
    bool sound = scratch != NULL;
    while (e->out->has_dictionary && ((int64_t)1 << bits) < e->entry_count) bits++;
    for (int64_t row = 0, at = 0; row < e->rows && sound; row += PAGE_ROWS) {
        int64_t rows = MINIMUM(e->rows - row, (int64_t)PAGE_ROWS), count = rows;
        text_clear(&e->page);
        if (e->present) {
            count = 0;
            for (int64_t i = 0; i < rows; i++) count += e->present[row + i];
            put_levels(e, row, rows, scratch);
        }
        if (e->out->has_dictionary) {
            char width = (char)bits;
            text_add_bytes(&e->page, &width, 1);
            put_runs(&e->page, e->indices + at, count, bits);
        } else {
            put_plain(e, &e->page, e->values + at, count);
        }
        at += count;
        sound = add_page(e, PAGE_DATA, rows, e->out->has_dictionary ? ENCODING_DICTIONARY : ENCODING_PLAIN);
    }
    free(scratch);
    return sound;
}

static double as_double(column_role role, uint64_t bits)
{
    double wide;
    float narrow;
    memcpy(&wide, &bits, 8);
    memcpy(&narrow, &bits, 4);
    return role == ROLE_DENSE ? (double)narrow : wide;
}

static void find_bounds(encoder *e, column_role role)
{
    uint64_t least = 0, most = 0;
    for (int64_t i = 0; i < e->count; i++) {
        uint64_t bits = e->values[i];
        if (role != ROLE_SPARSE && as_double(role, bits) != as_double(role, bits)) continue; /* bounds leave out NaN */
        bool less =
            role == ROLE_SPARSE ? (int64_t)bits < (int64_t)least : as_double(role, bits) < as_double(role, least);
        bool more = role == ROLE_SPARSE ? (int64_t)bits > (int64_t)most : as_double(role, bits) > as_double(role, most);
        if (!e->out->has_bounds || less) least = bits;
        if (!e->out->has_bounds || more) most = bits;
        e->out->has_bounds = true;
    }
    memcpy(e->out->least, &least, 8);
    memcpy(e->out->most, &most, 8);
}

void encode_column(const column_values *v, codec c, encoded_column *out)
{
    encoder e = {.out = out, .codec = c, .width = v->role == ROLE_DENSE ? 4 : 8};
    text bytes = out->bytes;
    text_clear(&bytes);
    *out = (encoded_column){.bytes = bytes};
    bool sound = gather(&e, v);
    if (sound) {
        find_bounds(&e, v->role);
        out->has_dictionary = find_entries(&e);
    }
    if (sound && out->has_dictionary) {
        put_plain(&e, &e.page, e.entries, e.entry_count);
        sound = add_page(&e, PAGE_DICTIONARY, e.entry_count, ENCODING_PLAIN);
        out->dictionary_bytes = (int64_t)out->bytes.length;
    }
    out->failed = !sound || !add_pages(&e);
    free(e.values);
    free(e.present);
    free(e.indices);
    free(e.entries);
    text_free(&e.page);
}
