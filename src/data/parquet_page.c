/*
 * Pages of one column. In: a column chunk of a file. Out: values of the next rows, nulls as missing.
 *
 * A window of the file moves over the chunk; a page is expanded into memory of the reader, its levels and values are
 * decoded from there as rows are asked for, so that memory is a window, a page and a dictionary for each column, however
 * long the row group. Sizes in a page's header are compared with the chunk and with what the codec can reach before
 * anything is allocated. Every fault says the page. SPDX-License-Identifier: MIT
 */
#include "data/parquet.h"
#include "data/thrift.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES ((int64_t)256 << 10)
#define HEADER_LIMIT_BYTES ((int64_t)16 << 20)

typedef struct page_header {
    int64_t type, expanded, compressed, values, encoding, level_encoding, nulls, level_bytes, repeat_bytes;
    uint32_t crc;
    bool has_crc, is_compressed, has_data, has_dictionary, has_v2;
} page_header;

bool column_fault(column_reader *c, qn_status status, const char *format, ...)
{
    va_list list;
    if (c->status) return false; /* the first fault is the cause */
    c->status = status;
    int length = snprintf(c->fault, sizeof(c->fault), "page %lld: ", (long long)c->page_number);
    va_start(list, format);
    plain_print_list(c->fault + length, sizeof(c->fault) - (size_t)length, format, list);
    va_end(list);
    return false;
}

static bool damaged(column_reader *c, const char *what)
{
    return column_fault(c, QN_BAD_FILE, "%s; the file is damaged: write or fetch it again", what);
}

size_t column_size_bytes(const parquet_column *column)
{
    return column->role == ROLE_SPARSE || column->role == ROLE_PROBABILITY ? 8 : 4;
}

void column_begin(column_reader *c, const data_file *file, const parquet_column *column, const parquet_chunk *chunk,
                  int64_t rows)
{
    c->file = file;
    c->column = column;
    c->chunk = chunk;
    c->rows = c->rows_left = rows;
    c->window_bytes = 0;
    c->at = chunk->offset;
    c->end = chunk->offset + chunk->size_bytes;
    c->page_number = -1;
    c->values_left = 0;
    c->has_dictionary = false;
    c->dictionary_count = 0;
    c->status = QN_OK;
    c->fault[0] = 0;
}

void column_free(column_reader *c)
{
    free(c->window);
    free(c->page);
    free(c->dictionary);
    free(c->present);
    memset(c, 0, sizeof(*c));
}

/* `size` bytes of the file at `offset`, within the chunk; PAGE_PADDING bytes after them may be read. NULL: a fault. */
static const uint8_t *window_get(column_reader *c, int64_t offset, int64_t size)
{
    if (offset >= c->window_offset && offset + size <= c->window_offset + c->window_bytes)
        return c->window + (offset - c->window_offset);
    int64_t take = MINIMUM(MAXIMUM(size, WINDOW_BYTES), c->end - offset);
    if (c->window_capacity < (size_t)take + PAGE_PADDING) {
        free(c->window);
        c->window_capacity = (size_t)take + PAGE_PADDING;
        c->window_bytes = 0;
        c->window = malloc(c->window_capacity);
        if (!c->window) {
            c->window_capacity = 0;
            column_fault(c, QN_NO_MEMORY, "no memory for %lld bytes", (long long)take);
            return NULL;
        }
    }
    c->window_offset = offset;
    c->window_bytes = take;
    if (file_take(c->file, offset, c->window, (size_t)take)) {
        memset(c->window + take, 0, PAGE_PADDING);
        return c->window;
    }
    c->window_bytes = 0;
    damaged(c, "the file became shorter while it was read, or cannot be read");
    return NULL;
}

static void read_data_header(thrift *t, page_header *h)
{
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        switch (id) {
        case 1: h->values = thrift_whole(t, type); break;
        case 2: h->encoding = thrift_whole(t, type); break;
        case 3: h->level_encoding = thrift_whole(t, type); break;
        default: thrift_skip(t, type);
        }
    }
}

static void read_data_header_v2(thrift *t, page_header *h)
{
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        switch (id) {
        case 1: h->values = thrift_whole(t, type); break;
        case 2: h->nulls = thrift_whole(t, type); break;
        case 4: h->encoding = thrift_whole(t, type); break;
        case 5: h->level_bytes = thrift_whole(t, type); break;
        case 6: h->repeat_bytes = thrift_whole(t, type); break;
        case 7: h->is_compressed = thrift_whole(t, type); break;
        default: thrift_skip(t, type);
        }
    }
}

static void read_header(thrift *t, page_header *h)
{
    *h = (page_header){.type = -1, .is_compressed = true, .level_encoding = ENCODING_RLE};
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        if (id == 1) {
            h->type = thrift_whole(t, type);
        } else if (id == 2) {
            h->expanded = thrift_whole(t, type);
        } else if (id == 3) {
            h->compressed = thrift_whole(t, type);
        } else if (id == 4) {
            h->crc = (uint32_t)thrift_whole(t, type);
            h->has_crc = true;
        } else if ((id == 5 || id == 7) && type == THRIFT_STRUCT) {
            read_data_header(t, h); /* a dictionary's begins in the same way */
            *(id == 5 ? &h->has_data : &h->has_dictionary) = true;
        } else if (id == 8 && type == THRIFT_STRUCT) {
            read_data_header_v2(t, h);
            h->has_v2 = true;
        } else {
            thrift_skip(t, type);
        }
    }
}

/* The header at c->at, which then points behind it. */
static bool next_header(column_reader *c, page_header *h)
{
    c->page_number++;
    for (int64_t size = MINIMUM((int64_t)256, c->end - c->at);;) {
        const uint8_t *bytes = window_get(c, c->at, size);
        if (!bytes) return false;
        thrift t = {.at = bytes, .end = bytes + size};
        read_header(&t, h);
        if (!t.bad) {
            c->at += t.at - bytes;
            break;
        }
        if (!t.short_of_bytes || size == c->end - c->at || size >= HEADER_LIMIT_BYTES)
            return damaged(c, "its header cannot be read");
        size = MINIMUM(size * 8, c->end - c->at);
    }
    if (h->compressed < 0 || h->compressed > c->end - c->at) return damaged(c, "it would be longer than its column");
    if (h->expanded < 0 || h->expanded > PAGE_LIMIT_BYTES)
        return column_fault(c, QN_BAD_FILE, "it claims %lld bytes expanded; Quern reads pages of at most %lld",
                            (long long)h->expanded, (long long)PAGE_LIMIT_BYTES);
    return true;
}

static bool page_room(column_reader *c, size_t size)
{
    if (c->page_capacity >= size + PAGE_PADDING) return true;
    free(c->page);
    c->page_capacity = size + size / 4 + PAGE_PADDING;
    c->page = malloc(c->page_capacity);
    if (c->page) return true;
    c->page_capacity = 0;
    return column_fault(c, QN_NO_MEMORY, "no memory for %zu bytes", size);
}

/* The page's bytes, its first `plain` of them as they are and the rest expanded. */
static const uint8_t *page_body(column_reader *c, const page_header *h, int64_t plain)
{
    const uint8_t *bytes = window_get(c, c->at, h->compressed);
    if (!bytes) return NULL;
    c->at += h->compressed;
    if (h->has_crc && crc32_of(bytes, (size_t)h->compressed) != h->crc)
        return damaged(c, "its checksum is wrong"), NULL;
    if (plain > h->compressed || plain > h->expanded) return damaged(c, "its levels are longer than it"), NULL;
    size_t size = (size_t)(h->compressed - plain), expanded = (size_t)(h->expanded - plain);
    if (c->chunk->codec == CODEC_NONE || !h->is_compressed) {
        if (size != expanded) return damaged(c, "its sizes contradict each other"), NULL;
        return bytes;
    }
    const char *missing = codec_missing(c->chunk->codec);
    if (missing) return column_fault(c, QN_BAD_FILE, "it is compressed with %s", missing), NULL;
    if (expanded && !codec_plausible(c->chunk->codec, bytes + plain, size, expanded))
        return damaged(c, "it cannot become as long as it claims"), NULL;
    if (!page_room(c, (size_t)h->expanded)) return NULL;
    if (plain) memcpy(c->page, bytes, (size_t)plain);
    if (expanded && !codec_expand(c->chunk->codec, bytes + plain, size, c->page + plain, expanded))
        return damaged(c, "it cannot be expanded"), NULL;
    memset(c->page + h->expanded, 0, PAGE_PADDING);
    return c->page;
}

static bool begin_dictionary(column_reader *c, const page_header *h)
{
    if (c->has_dictionary) return damaged(c, "a second dictionary");
    if (h->encoding != ENCODING_PLAIN && h->encoding != ENCODING_PLAIN_DICTIONARY)
        return column_fault(c, QN_BAD_FILE, "a dictionary in encoding %lld, which Quern does not read",
                            (long long)h->encoding);
    const uint8_t *body = page_body(c, h, 0);
    if (!body) return false;
    c->has_dictionary = true;
    return values_load_dictionary(c, body, body + h->expanded, h->values);
}

static bool begin_data(column_reader *c, const page_header *h)
{
    bool v2 = h->type == PAGE_DATA_V2;
    if (h->values < 0 || h->values > c->rows_left)
        return column_fault(c, QN_BAD_FILE, "%lld values where %lld rows are left; the file is damaged",
                            (long long)h->values, (long long)c->rows_left);
    if (h->level_bytes < 0 || h->repeat_bytes != 0 || h->level_bytes > h->compressed)
        return damaged(c, "its levels are wrong");
    const uint8_t *body = page_body(c, h, v2 ? h->level_bytes : 0);
    if (!body) return false;
    const uint8_t *at = body, *end = body + h->expanded;
    c->all_present = !c->column->optional;
    if (c->column->optional) {
        int64_t length = h->level_bytes;
        if (!v2) {
            if (h->level_encoding != ENCODING_RLE)
                return column_fault(c, QN_BAD_FILE, "levels in encoding %lld, which Quern does not read",
                                    (long long)h->level_encoding);
            if (end - at < 4) return damaged(c, "it is cut short");
            length = (int64_t)at[0] | (int64_t)at[1] << 8 | (int64_t)at[2] << 16 | (int64_t)at[3] << 24;
            at += 4;
        }
        if (length > end - at) return damaged(c, "its levels are longer than it");
        runs_begin(&c->levels, at, at + length, 1);
        at += length;
        if (v2 && !h->nulls && !length) c->all_present = true;
    } else {
        at += h->level_bytes;
    }
    c->values_left = h->values;
    return values_begin(c, (int)h->encoding, at, end, h->values);
}

/* Until there is a page with values. */
static bool next_page(column_reader *c)
{
    while (!c->values_left) {
        page_header h;
        if (c->at >= c->end) return damaged(c, "its column ends before its rows do");
        if (!next_header(c, &h)) return false;
        if (h.type == PAGE_DICTIONARY && h.has_dictionary) {
            if (!begin_dictionary(c, &h)) return false;
        } else if ((h.type == PAGE_DATA && h.has_data) || (h.type == PAGE_DATA_V2 && h.has_v2)) {
            if (!begin_data(c, &h)) return false;
        } else if (h.type >= 0 && h.type <= PAGE_DATA_V2 && h.type != PAGE_INDEX) {
            return damaged(c, "its header cannot be read");
        } else {
            c->at += h.compressed; /* kinds that carry no values */
        }
    }
    return true;
}

/* Values stand at the front of `out`; moves them to the places of the rows that have one. */
static void spread(column_reader *c, int64_t count, int64_t ones, void *out)
{
    int64_t from = ones;
    if (c->column->role == ROLE_SPARSE) {
        int64_t *values = out;
        for (int64_t i = count; i-- > 0;) values[i] = c->present[i] ? values[--from] : MISSING_TOKEN;
    } else if (c->column->role == ROLE_PROBABILITY) {
        double *values = out;
        for (int64_t i = count; i-- > 0;) values[i] = c->present[i] ? values[--from] : (double)__builtin_nanf("");
    } else {
        float *values = out;
        for (int64_t i = count; i-- > 0;) values[i] = c->present[i] ? values[--from] : __builtin_nanf("");
    }
}

#define PIECE_ROWS 8192

bool column_read(column_reader *c, int64_t count, void *out)
{
    CHECK(count <= c->rows_left);
    if (c->status) return false;
    if (c->column->optional && !c->present && !(c->present = malloc(PIECE_ROWS)))
        return column_fault(c, QN_NO_MEMORY, "no memory");
    size_t size = column_size_bytes(c->column);
    while (count) {
        if (!c->values_left && !next_page(c)) return false;
        int64_t piece = MINIMUM(count, c->values_left), ones = piece;
        if (!c->all_present) {
            piece = MINIMUM(piece, (int64_t)PIECE_ROWS);
            if (!runs_read_levels(&c->levels, c->present, piece, &ones)) return damaged(c, "its levels are wrong");
        }
        if (ones && !values_read(c, ones, out)) return false;
        if (ones < piece) spread(c, piece, ones, out);
        c->values_left -= piece;
        c->rows_left -= piece;
        count -= piece;
        out = (char *)out + (size_t)piece * size;
    }
    return true;
}

bool column_skip(column_reader *c, int64_t count, void *scratch, int64_t scratch_rows)
{
    while (count && !c->status) {
        if (!c->values_left) { /* whole pages are passed over without being expanded */
            int64_t start = c->at;
            page_header h;
            if (c->at >= c->end) return damaged(c, "its column ends before its rows do");
            if (!next_header(c, &h)) return false;
            if ((h.type == PAGE_DATA && h.has_data) || (h.type == PAGE_DATA_V2 && h.has_v2)) {
                if (h.values >= 0 && h.values <= MINIMUM(count, c->rows_left)) {
                    c->at += h.compressed;
                    c->rows_left -= h.values;
                    count -= h.values;
                    continue;
                }
            }
            c->at = start;
            c->page_number--;
            if (!next_page(c)) return false;
        }
        int64_t piece = MINIMUM(MINIMUM(count, c->values_left), scratch_rows);
        if (!column_read(c, piece, scratch)) return false;
        count -= piece;
    }
    return !c->status;
}
