/*
 * A Parquet file from row groups. In: encoded columns, group after group. Out: a file that appears when it is whole.
 *
 * Bytes go to a file aside (base/aside.c) as they come; what the footer must say of each column is kept (some 100 bytes each).
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "data/parquet_write.h"
#include "data/thrift.h"

#include <quern/quern.h>
#include <stdlib.h>
#include <string.h>

typedef struct written {
    int64_t offset, size, expanded, dictionary, values, nulls;
    bool has_bounds;
    uint8_t least[8], most[8];
} written;

struct parquet_writer {
    char *path;
    file_aside *file; /* NULL: it is finished */
    const write_column *columns;
    int column_count;
    codec codec;
    bool nulls;
    int64_t at;
    written *chunks; /* column_count for each group */
    int64_t *group_rows;
    size_t group_count, group_capacity;
};

static qn_status put(parquet_writer *w, const void *bytes, size_t size, qn_error *error)
{
    QN_TRY(file_append(w->file, bytes, size, error));
    w->at += (int64_t)size;
    return QN_OK;
}

qn_status writer_open(const char *path, const write_column *columns, int count, codec c, bool nulls,
                      parquet_writer **out, qn_error *error)
{
    file_aside *file;
    *out = NULL;
    QN_TRY(file_begin(path, &file, error));
    parquet_writer *w = calloc(1, sizeof(*w));
    if (!w) return file_finish(file, error_set(error, QN_NO_MEMORY, "no memory to write %s", path), NULL);
    *w = (parquet_writer){
        .path = strdup(path), .file = file, .columns = columns, .column_count = count, .codec = c, .nulls = nulls};
    qn_status status =
        w->path ? put(w, "PAR1", 4, error) : error_set(error, QN_NO_MEMORY, "no memory to write %s", path);
    if (status) return writer_free(w), status;
    *out = w;
    return QN_OK;
}

void writer_free(parquet_writer *w)
{
    if (!w) return;
    if (w->file) (void)!file_finish(w->file, QN_FAILED, NULL);
    free(w->path);
    free(w->chunks);
    free(w->group_rows);
    free(w);
}

static bool grow(parquet_writer *w)
{
    if (w->group_count < w->group_capacity) return true;
    size_t capacity = w->group_capacity ? w->group_capacity * 2 : 16;
    written *chunks = realloc(w->chunks, sizeof(*chunks) * capacity * (size_t)w->column_count);
    if (chunks) w->chunks = chunks;
    int64_t *rows = realloc(w->group_rows, sizeof(*rows) * capacity);
    if (rows) w->group_rows = rows;
    if (!chunks || !rows) return false;
    w->group_capacity = capacity;
    return true;
}

qn_status writer_add_group(parquet_writer *w, const encoded_column *columns, int64_t rows, qn_error *error)
{
    if (!grow(w)) return error_set(error, QN_NO_MEMORY, "no memory to write %s", w->path);
    written *chunks = w->chunks + w->group_count * (size_t)w->column_count;
    for (int i = 0; i < w->column_count; i++) {
        const encoded_column *c = &columns[i];
        if (c->failed)
            return error_set(error, QN_NO_MEMORY, "%s: column %s could not be encoded: no memory, or %s failed",
                             w->path, w->columns[i].name, codec_name(w->codec));
        chunks[i] = (written){w->at,
                              (int64_t)c->bytes.length,
                              c->expanded_bytes,
                              c->dictionary_bytes,
                              c->values,
                              c->nulls,
                              c->has_bounds,
                              {0},
                              {0}};
        memcpy(chunks[i].least, c->least, 8);
        memcpy(chunks[i].most, c->most, 8);
        QN_TRY(put(w, text_get(&c->bytes), c->bytes.length, error));
    }
    w->group_rows[w->group_count++] = rows;
    return QN_OK;
}

static void put_whole_field(text *out, int *last, int id, int type, int64_t value)
{
    thrift_put_field(out, last, id, type);
    thrift_put_whole(out, value);
}

static void put_words_field(text *out, int *last, int id, const char *words)
{
    thrift_put_field(out, last, id, THRIFT_BINARY);
    thrift_put_binary(out, words, strlen(words));
}

static void put_schema(const parquet_writer *w, text *out)
{
    thrift_put_list(out, (size_t)w->column_count + 1, THRIFT_STRUCT);
    int id = 0;
    put_words_field(out, &id, 4, "schema");
    put_whole_field(out, &id, 5, THRIFT_I32, w->column_count);
    thrift_put_stop(out);
    for (int i = 0; i < w->column_count; i++) {
        bool optional = w->nulls && (w->columns[i].role == ROLE_DENSE || w->columns[i].role == ROLE_SPARSE);
        id = 0;
        put_whole_field(out, &id, 1, THRIFT_I32, write_type(w->columns[i].role));
        put_whole_field(out, &id, 3, THRIFT_I32, optional);
        put_words_field(out, &id, 4, w->columns[i].name);
        thrift_put_stop(out);
    }
}

static void put_chunk(const parquet_writer *w, const written *c, int column, text *out)
{
    int id = 0, meta = 0, bounds = 0;
    size_t width = w->columns[column].role == ROLE_DENSE ? 4 : 8;
    put_whole_field(out, &id, 2, THRIFT_I64, c->offset);
    thrift_put_field(out, &id, 3, THRIFT_STRUCT);
    put_whole_field(out, &meta, 1, THRIFT_I32, write_type(w->columns[column].role));
    thrift_put_field(out, &meta, 2, THRIFT_LIST);
    thrift_put_list(out, 3, THRIFT_I32);
    thrift_put_whole(out, ENCODING_PLAIN);
    thrift_put_whole(out, ENCODING_RLE);
    thrift_put_whole(out, c->dictionary ? ENCODING_DICTIONARY : ENCODING_PLAIN);
    thrift_put_field(out, &meta, 3, THRIFT_LIST);
    thrift_put_list(out, 1, THRIFT_BINARY);
    thrift_put_binary(out, w->columns[column].name, strlen(w->columns[column].name));
    put_whole_field(out, &meta, 4, THRIFT_I32, w->codec);
    put_whole_field(out, &meta, 5, THRIFT_I64, c->values);
    put_whole_field(out, &meta, 6, THRIFT_I64, c->expanded);
    put_whole_field(out, &meta, 7, THRIFT_I64, c->size);
    put_whole_field(out, &meta, 9, THRIFT_I64, c->offset + c->dictionary);
    if (c->dictionary) put_whole_field(out, &meta, 11, THRIFT_I64, c->offset);
    thrift_put_field(out, &meta, 12, THRIFT_STRUCT);
    put_whole_field(out, &bounds, 3, THRIFT_I64, c->nulls);
    if (c->has_bounds) {
        thrift_put_field(out, &bounds, 5, THRIFT_BINARY), thrift_put_binary(out, c->most, width);
        thrift_put_field(out, &bounds, 6, THRIFT_BINARY), thrift_put_binary(out, c->least, width);
    }
    for (int i = 0; i < 3; i++) thrift_put_stop(out);
}

static void put_groups(const parquet_writer *w, text *out)
{
    thrift_put_list(out, w->group_count, THRIFT_STRUCT);
    for (size_t g = 0; g < w->group_count; g++) {
        const written *chunks = w->chunks + g * (size_t)w->column_count;
        int64_t expanded = 0, size = 0;
        int id = 0;
        thrift_put_field(out, &id, 1, THRIFT_LIST);
        thrift_put_list(out, (size_t)w->column_count, THRIFT_STRUCT);
        for (int i = 0; i < w->column_count; i++) {
            put_chunk(w, &chunks[i], i, out);
            expanded += chunks[i].expanded;
            size += chunks[i].size;
        }
        put_whole_field(out, &id, 2, THRIFT_I64, expanded);
        put_whole_field(out, &id, 3, THRIFT_I64, w->group_rows[g]);
        put_whole_field(out, &id, 5, THRIFT_I64, chunks[0].offset);
        put_whole_field(out, &id, 6, THRIFT_I64, size);
        thrift_put_stop(out);
    }
}

static void put_footer(const parquet_writer *w, text *out)
{
    int64_t rows = 0;
    int id = 0;
    for (size_t g = 0; g < w->group_count; g++) rows += w->group_rows[g];
    put_whole_field(out, &id, 1, THRIFT_I32, 2);
    thrift_put_field(out, &id, 2, THRIFT_LIST);
    put_schema(w, out);
    put_whole_field(out, &id, 3, THRIFT_I64, rows);
    thrift_put_field(out, &id, 4, THRIFT_LIST);
    put_groups(w, out);
    text creator = {0};
    text_print(&creator, "quern version %s", qn_version());
    put_words_field(out, &id, 6, text_get(&creator));
    text_free(&creator);
    thrift_put_field(out, &id, 7, THRIFT_LIST); /* bounds are in the order of the types */
    thrift_put_list(out, (size_t)w->column_count, THRIFT_STRUCT);
    for (int i = 0; i < w->column_count; i++) {
        int inner = 0;
        thrift_put_field(out, &inner, 1, THRIFT_STRUCT);
        thrift_put_stop(out);
        thrift_put_stop(out);
    }
    thrift_put_stop(out);
}

qn_status writer_finish(parquet_writer *w, qn_error *error)
{
    text footer = {0};
    put_footer(w, &footer);
    char tail[8];
    for (int i = 0; i < 4; i++) tail[i] = (char)(footer.length >> 8 * i);
    memcpy(tail + 4, "PAR1", 4);
    qn_status status = put(w, text_get(&footer), footer.length, error);
    text_free(&footer);
    if (!status) status = put(w, tail, sizeof(tail), error);
    status = file_finish(w->file, status, error);
    w->file = NULL;
    return status;
}
