/*
 * The footer of a Parquet file. In: a file. Out: the columns that make up a row (label, counts, categories), and for each
 * row group where their pages lie.
 *
 * Only what is asked for is kept, so that memory follows what the footer really holds and not what it claims: offsets
 * and sizes are compared with the file before anything is believed. SPDX-License-Identifier: MIT
 */
#include "data/parquet.h"
#include "data/thrift.h"

#include <stdlib.h>
#include <string.h>

/* A leaf of the schema. */
typedef struct leaf {
    const char *name;
    size_t name_length;
    int type, repetition, converted;
    bool flat; /* a child of the root */
} leaf;

typedef struct footer_reader {
    const data_file *file;
    const qn_dataset_options *options;
    parquet_footer *out;
    qn_error *error;
    leaf *leaves;
    int leaf_count, leaf_capacity;
    int *chunk_of_leaf; /* the selected column, or -1 */
    int group_capacity;
} footer_reader;

static qn_status damaged(const footer_reader *r, const char *what)
{
    return error_set(r->error, QN_BAD_FILE,
                     "%s: %s; the file is damaged or was not written to its end: write or fetch "
                     "it again",
                     r->file->path, what);
}

typedef struct element {
    leaf leaf;
    int64_t children;
    bool has_type;
} element;

static element read_element(thrift *t)
{
    element e = {.leaf = {.type = -1, .converted = -1}};
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        switch (id) {
        case 1:
            e.leaf.type = (int)thrift_whole(t, type);
            e.has_type = true;
            break;
        case 3: e.leaf.repetition = (int)thrift_whole(t, type); break;
        case 4: e.leaf.name = thrift_binary(t, type, &e.leaf.name_length); break;
        case 5: e.children = thrift_whole(t, type); break;
        case 6: e.leaf.converted = (int)thrift_whole(t, type); break;
        default: thrift_skip(t, type);
        }
    }
    return e;
}

#define MOST_LEVELS 64

static qn_status read_schema(footer_reader *r, thrift *t, int list_type)
{
    int item, level = 0;
    int64_t open[MOST_LEVELS] = {1}; /* elements still to come, of each group around */
    size_t count = list_type == THRIFT_LIST ? thrift_list(t, &item) : (t->bad = true, 0);
    if (t->bad || item != THRIFT_STRUCT || !count) return damaged(r, "its schema cannot be read");
    for (size_t i = 0; i < count; i++) {
        element e = read_element(t);
        while (level > 0 && !open[level]) level--;
        if (t->bad || open[level]-- <= 0) return damaged(r, "its schema cannot be read");
        if (e.children > 0 || (!e.has_type && i > 0) || i == 0) { /* a group */
            if (e.children < 0 || e.children > (int64_t)count || ++level == MOST_LEVELS)
                return damaged(r, "its schema cannot be read");
            open[level] = e.children;
            continue;
        }
        e.leaf.flat = level == 1;
        ARENA_PUSH(r->out->memory, r->leaves, r->leaf_count, r->leaf_capacity, e.leaf);
    }
    return QN_OK;
}

static bool begins(const leaf *l, const char *prefix)
{
    size_t length = strlen(prefix);
    return l->flat && l->name_length >= length && !memcmp(l->name, prefix, length);
}

static bool is_name(const leaf *l, const char *name)
{
    return begins(l, name) && l->name_length == strlen(name);
}

static qn_status add_column(footer_reader *r, int index, column_role role)
{
    static const char *const refused[PARQUET_TYPE_COUNT] = {
        [PARQUET_INT96] = "INT96 (a time stamp)", [PARQUET_FIXED] = "FIXED_LEN_BYTE_ARRAY"};
    parquet_footer *f = r->out;
    const leaf *l = &r->leaves[index];
    char *name = arena_copy_text(f->memory, l->name, l->name_length);
    if (r->chunk_of_leaf[index] >= 0)
        return error_set(r->error, QN_BAD_CALL, "%s: the column %s is taken twice; give other names or prefixes",
                         r->file->path, name);
    if (l->type < 0 || l->type >= PARQUET_TYPE_COUNT) return damaged(r, "a column has a type that does not exist");
    const char *bad = refused[l->type];
    if (l->type == PARQUET_BYTE_ARRAY && role != ROLE_SPARSE) bad = "text";
    if (bad)
        return error_set(r->error, QN_BAD_FILE,
                         "%s: column %s is of type %s; labels and counts are float, double or integers, categories "
                         "integers or hexadecimal text: write the file again with such a column",
                         r->file->path, name, bad);
    if (l->repetition == 2)
        return error_set(r->error, QN_BAD_FILE, "%s: column %s is a list; Quern reads one value for each row",
                         r->file->path, name);
    if (f->column_count == MOST_COLUMNS)
        return error_set(r->error, QN_BAD_FILE, "%s: more than %d columns of counts and categories", r->file->path,
                         MOST_COLUMNS);
    r->chunk_of_leaf[index] = f->column_count;
    f->columns[f->column_count++] =
        (parquet_column){.name = name,
                         .role = role,
                         .type = (parquet_type)l->type,
                         .optional = l->repetition == 1,
                         .is_unsigned = l->converted >= CONVERTED_UINT_8 && l->converted <= CONVERTED_UINT_32,
                         .leaf = index};
    return QN_OK;
}

/* The columns of a row, in the order label, dense, sparse, probability. */
static qn_status choose_columns(footer_reader *r)
{
    parquet_footer *f = r->out;
    const qn_dataset_options *o = r->options;
    f->columns = ARENA_ARRAY(f->memory, parquet_column, MINIMUM(r->leaf_count, MOST_COLUMNS));
    r->chunk_of_leaf = ARENA_ARRAY(f->memory, int, r->leaf_count);
    for (int i = 0; i < r->leaf_count; i++) r->chunk_of_leaf[i] = -1;
    for (int i = 0; i < r->leaf_count && !f->schema.has_labels; i++)
        if (o->label_column ? is_name(&r->leaves[i], o->label_column)
                            : is_name(&r->leaves[i], "labels") || is_name(&r->leaves[i], "label")) {
            QN_TRY(add_column(r, i, ROLE_LABEL));
            f->schema.has_labels = true;
        }
    const char *dense = o->dense_prefix ? o->dense_prefix : "DENSE";
    const char *sparse = o->sparse_prefix ? o->sparse_prefix : "SPARSE";
    for (int i = 0; i < r->leaf_count; i++)
        if (begins(&r->leaves[i], dense)) {
            QN_TRY(add_column(r, i, ROLE_DENSE));
            f->schema.dense_count++;
        }
    for (int i = 0; i < r->leaf_count; i++)
        if (begins(&r->leaves[i], sparse)) {
            QN_TRY(add_column(r, i, ROLE_SPARSE));
            f->schema.sparse_count++;
        }
    for (int i = 0; i < r->leaf_count && !f->schema.has_probabilities; i++)
        if (is_name(&r->leaves[i], "PROBABILITY")) {
            QN_TRY(add_column(r, i, ROLE_PROBABILITY));
            f->schema.has_probabilities = true;
        }
    if (o->label_column && !f->schema.has_labels)
        return error_set(r->error, QN_BAD_CALL, "%s: there is no column %s", r->file->path, o->label_column);
    if (!f->schema.dense_count && !f->schema.sparse_count) {
        text names = {0};
        for (int i = 0; i < r->leaf_count && i < 12; i++)
            text_print(&names, "%s%.*s", i ? ", " : "", (int)MINIMUM(r->leaves[i].name_length, (size_t)64),
                       r->leaves[i].name ? r->leaves[i].name : "");
        error_set(r->error, QN_BAD_FILE,
                  "%s: no column begins with %s or %s; its columns are %s%s. Rename them, or set the prefixes",
                  r->file->path, dense, sparse, text_get(&names), r->leaf_count > 12 ? ", ..." : "");
        text_free(&names);
        return QN_BAD_FILE;
    }
    return QN_OK;
}

typedef struct chunk_facts {
    int64_t type, codec, values, size, data_offset, dictionary_offset;
    bool has_data, elsewhere, encrypted, has_meta;
} chunk_facts;

static void read_chunk_meta(thrift *t, chunk_facts *c)
{
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        switch (id) {
        case 1: c->type = thrift_whole(t, type); break;
        case 4: c->codec = thrift_whole(t, type); break;
        case 5: c->values = thrift_whole(t, type); break;
        case 7: c->size = thrift_whole(t, type); break;
        case 9:
            c->data_offset = thrift_whole(t, type);
            c->has_data = true;
            break;
        case 11: c->dictionary_offset = thrift_whole(t, type); break;
        default: thrift_skip(t, type);
        }
    }
}

static chunk_facts read_chunk(thrift *t)
{
    chunk_facts c = {0};
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        if (id == 3 && type == THRIFT_STRUCT) {
            read_chunk_meta(t, &c);
            c.has_meta = true;
            continue;
        }
        c.elsewhere |= id == 1;
        c.encrypted |= id == 8;
        thrift_skip(t, type);
    }
    return c;
}

static qn_status keep_chunk(footer_reader *r, const chunk_facts *c, int column, parquet_chunk *to)
{
    const parquet_column *about = &r->out->columns[column];
    int group = r->out->group_count;
    int64_t start =
        c->dictionary_offset > 0 && c->dictionary_offset < c->data_offset ? c->dictionary_offset : c->data_offset;
    const char *wrong = c->encrypted                      ? "it is encrypted; Quern reads plain files"
                        : c->elsewhere                    ? "its pages are in another file; Quern reads whole files"
                        : !c->has_meta || !c->has_data    ? "the footer does not say where its pages are"
                        : c->type != (int64_t)about->type ? "its type is not that of the schema"
                        : c->codec < 0 || c->codec > INT32_MAX || c->values < 0 || c->size < 0 || start < 4 ||
                                c->size > r->file->size_bytes || start > r->file->size_bytes - c->size
                            ? "its pages would lie outside the file"
                            : NULL;
    if (wrong)
        return error_set(r->error, QN_BAD_FILE, "%s: row group %d, column %s: %s", r->file->path, group, about->name,
                         wrong);
    *to = (parquet_chunk){.offset = start, .size_bytes = c->size, .values = c->values, .codec = (codec)c->codec};
    return QN_OK;
}

static qn_status read_group(footer_reader *r, thrift *t)
{
    parquet_footer *f = r->out;
    parquet_group g = {.rows = -1};
    int found = 0;
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        if (id == 1 && type == THRIFT_LIST && !g.chunks) {
            int item;
            size_t count = thrift_list(t, &item);
            if (item != THRIFT_STRUCT || count != (size_t)r->leaf_count)
                return damaged(r, "a row group has other columns than the schema");
            g.chunks = ARENA_ARRAY(f->memory, parquet_chunk, f->column_count);
            for (size_t i = 0; i < count && !t->bad; i++) {
                chunk_facts c = read_chunk(t);
                if (t->bad || r->chunk_of_leaf[i] < 0) continue;
                QN_TRY(keep_chunk(r, &c, r->chunk_of_leaf[i], &g.chunks[r->chunk_of_leaf[i]]));
                found++;
            }
        } else if (id == 3) {
            g.rows = thrift_whole(t, type);
        } else {
            thrift_skip(t, type);
        }
    }
    if (t->bad || found != f->column_count || g.rows < 0) return damaged(r, "its list of row groups cannot be read");
    for (int i = 0; i < f->column_count; i++)
        if (g.chunks[i].values != g.rows)
            return error_set(r->error, QN_BAD_FILE, "%s: row group %d, column %s: %lld values for %lld rows",
                             r->file->path, f->group_count, f->columns[i].name, (long long)g.chunks[i].values,
                             (long long)g.rows);
    if (__builtin_add_overflow(f->rows, g.rows, &f->rows) || f->rows > INT64_MAX / 4096)
        return damaged(r, "it claims more rows than can be");
    ARENA_PUSH(f->memory, f->groups, f->group_count, r->group_capacity, g);
    return QN_OK;
}

static qn_status read_all(footer_reader *r, thrift *t)
{
    for (int id = 0, type, item; thrift_field(t, &id, &type);) {
        if (id == 2) {
            if (r->leaf_count) return damaged(r, "it has two schemas");
            QN_TRY(read_schema(r, t, type));
            QN_TRY(choose_columns(r));
        } else if (id == 4 && type == THRIFT_LIST) {
            size_t count = thrift_list(t, &item);
            if (item != THRIFT_STRUCT || !r->chunk_of_leaf) return damaged(r, "its list of row groups cannot be read");
            for (size_t i = 0; i < count; i++) QN_TRY(read_group(r, t));
        } else if (id == 8) {
            return error_set(r->error, QN_BAD_FILE, "%s: it is encrypted; Quern reads plain files", r->file->path);
        } else {
            thrift_skip(t, type);
        }
    }
    if (t->bad || !r->chunk_of_leaf) return damaged(r, "its footer cannot be read");
    return QN_OK;
}

qn_status parquet_read_footer(const data_file *file, const qn_dataset_options *options, parquet_footer *footer,
                              qn_error *error)
{
    uint8_t tail[8];
    memset(footer, 0, sizeof(*footer));
    footer_reader r = {.file = file, .options = options, .out = footer, .error = error};
    if (file->size_bytes < 12 || !file_take(file, file->size_bytes - 8, tail, 8)) return damaged(&r, "it is cut short");
    if (!memcmp(tail + 4, "PARE", 4))
        return error_set(error, QN_BAD_FILE, "%s: its footer is encrypted; Quern reads plain files", file->path);
    if (memcmp(tail + 4, "PAR1", 4)) return damaged(&r, "it begins as a Parquet file and does not end as one");
    int64_t length = (int64_t)tail[0] | (int64_t)tail[1] << 8 | (int64_t)tail[2] << 16 | (int64_t)tail[3] << 24;
    if (length > file->size_bytes - 12 || length > FOOTER_LIMIT_BYTES)
        return damaged(&r, "its footer would be longer than the file");
    uint8_t *bytes = malloc((size_t)length + 1);
    if (!bytes) return error_set(error, QN_NO_MEMORY, "no memory for the footer of %s", file->path);
    qn_status status = QN_OK;
    footer->memory = arena_new();
    if (!file_take(file, file->size_bytes - 8 - length, bytes, (size_t)length)) {
        status = damaged(&r, "its footer cannot be read");
    } else {
        thrift t = {.at = bytes, .end = bytes + length};
        status = read_all(&r, &t);
    }
    free(bytes);
    if (status) parquet_free_footer(footer);
    return status;
}

void parquet_free_footer(parquet_footer *footer)
{
    arena_free(footer->memory);
    memset(footer, 0, sizeof(*footer));
}
