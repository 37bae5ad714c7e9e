/*
 * Raw Criteo logs as a source. In: a text file, plain or gzip: a line for each row, fields separated by tabs: the label
 * (0 or 1; logs to predict have none), 13 whole numbers, 26 hexadecimal categories; fields may be empty. Out: rows, the
 * file being one block.
 *
 * Line ends are found first, by one thread; the lines are then parsed in parallel. A fault is told with the number of
 * its line and field. Going to a row in the middle means reading the text before it, without parsing it.
 * SPDX-License-Identifier: MIT
 */
#include "data/codec.h"
#include "data/stream.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { DENSE_COUNT = 13, SPARSE_COUNT = 26 };
#define PIECE_ROWS 8192
#define GRAIN_ROWS 256
#define TEXT_BYTES ((size_t)4 << 20)
#define LINE_LIMIT_BYTES ((size_t)64 << 10)
#define PADDING 16

typedef struct tsv_source {
    source base;
    data_file file;
    bool gzip, ended;
    stream *stream;
    const char *fault; /* of the stream, told when the lines before it are read */
    char *words;       /* TEXT_BYTES and PADDING */
    size_t at, end;    /* what is not read yet */
    int64_t row, line; /* rows and lines before `at` */
    /* The lines being parsed. */
    uint32_t starts[PIECE_ROWS], lengths[PIECE_ROWS];
    int64_t numbers[PIECE_ROWS]; /* of the lines, from 1 */
    const row_memory *to;
    _Atomic int64_t first_bad;
} tsv_source;

/* What is wrong with a field. */
typedef struct field_fault {
    int field; /* from 1; 0: the number of fields */
    const char *what;
    const char *at;
    size_t length;
} field_fault;

static const int8_t hex_digits[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16}; /* plus one: 0 is no digit */

static bool parse_whole(const char *at, const char *end, float *out)
{
    if (at == end) return *out = __builtin_nanf(""), true;
    bool negative = *at == '-';
    at += negative;
    if (at == end || end - at > 18) return false;
    int64_t value = 0;
    for (; at < end; at++) {
        unsigned digit = (unsigned)(*at - '0');
        if (digit > 9) return false;
        value = value * 10 + digit;
    }
    *out = (float)(negative ? -value : value);
    return true;
}

static bool parse_category(const char *at, const char *end, int64_t *out)
{
    uint64_t value = 0;
    if (at == end) return *out = MISSING_TOKEN, true;
    if (end - at > 16) return false;
    for (; at < end; at++) {
        int digit = hex_digits[(uint8_t)*at];
        if (!digit) return false;
        value = value << 4 | (uint64_t)(digit - 1);
    }
    *out = (int64_t)value;
    return true;
}

static const char *field_end(const char *at, const char *end)
{
    while (at < end && *at != '\t') at++;
    return at;
}

/* One line without its end. False: `fault` says what is wrong. */
static bool parse_line(const tsv_source *t, const char *at, const char *end, int64_t row, field_fault *fault)
{
    const row_memory *to = t->to;
    float *dense = to->dense + row * DENSE_COUNT;
    int64_t *sparse = to->sparse + row * SPARSE_COUNT;
    bool has_label = t->base.schema.has_labels, refused = false;
    qn_missing missing = t->base.missing;
    int field = 1;
    const char *stop;
    to->labels[row] = __builtin_nanf("");
    if (has_label) {
        stop = field_end(at, end);
        if (stop - at != 1 || (*at != '0' && *at != '1')) {
            *fault = (field_fault){field, "is not a label, 0 or 1", at, (size_t)(stop - at)};
            return false;
        }
        to->labels[row] = (float)(*at - '0');
        at = stop;
        field++;
    }
    for (int i = 0; i < DENSE_COUNT; i++, field++) {
        if (field > 1 && at++ == end) return *fault = (field_fault){.field = 0}, false;
        stop = field_end(at, end);
        if (!parse_whole(at, stop, &dense[i])) {
            *fault = (field_fault){field, "is not a whole number", at, (size_t)(stop - at)};
            return false;
        }
        dense[i] = settle_dense(dense[i], missing, &refused);
        if (refused) goto missing_field;
        at = stop;
    }
    for (int i = 0; i < SPARSE_COUNT; i++, field++) {
        if (at++ == end) return *fault = (field_fault){.field = 0}, false;
        stop = end - at >= 8 && (end - at == 8 || at[8] == '\t') ? at + 8 : field_end(at, end);
        if (!parse_category(at, stop, &sparse[i])) {
            *fault = (field_fault){field, "is not a hexadecimal category", at, (size_t)(stop - at)};
            return false;
        }
        sparse[i] = settle_sparse(sparse[i], missing, &refused);
        if (refused) goto missing_field;
        at = stop;
    }
    if (at != end) return *fault = (field_fault){.field = 0}, false;
    return true;
missing_field:
    *fault = (field_fault){field, "is empty, and missing values are refused: let them be filled", at, 0};
    return false;
}

static void parse_lines(void *context, int64_t first, int64_t last, int worker)
{
    tsv_source *t = context;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        field_fault fault;
        const char *at = t->words + t->starts[i];
        if (parse_line(t, at, at + t->lengths[i], i, &fault)) continue;
        for (int64_t seen = t->first_bad; i < seen && !atomic_compare_exchange_weak(&t->first_bad, &seen, i);) {
        }
        return;
    }
}

/* Moves what is left to the front and reads more. */
static void refill(tsv_source *t)
{
    memmove(t->words, t->words + t->at, t->end - t->at);
    t->end -= t->at;
    t->at = 0;
    while (!t->ended && t->end < TEXT_BYTES) {
        int64_t got = stream_read(t->stream, t->words + t->end, TEXT_BYTES - t->end, &t->fault);
        if (got <= 0) t->ended = true;
        if (got > 0) t->end += (size_t)got;
    }
    memset(t->words + t->end, 0, PADDING);
}

static qn_status tell(const tsv_source *t, int64_t line, const char *what, qn_error *error)
{
    return error_set(error, QN_BAD_FILE, "%s: line %lld: %s", t->file.path, (long long)line, what);
}

/* The next lines that are not blank, at most `most`, as starts and lengths; 0 at the end. */
static qn_status find_lines(tsv_source *t, int64_t most, int64_t *found, qn_error *error)
{
    int64_t count = 0;
    *found = 0;
    while (count < most) {
        char *start = t->words + t->at;
        char *stop = t->end > t->at ? memchr(start, '\n', t->end - t->at) : NULL;
        if (!stop) {
            if (count) break; /* moving the text would move these lines */
            if (!t->ended) {
                if (t->end - t->at > LINE_LIMIT_BYTES)
                    return tell(t, t->line + 1, "no line end in 64 KiB; this is no log of tab-separated lines", error);
                refill(t);
                continue;
            }
            if (t->fault) return tell(t, t->line + 1, t->fault, error);
            if (t->at == t->end) break;
            stop = t->words + t->end; /* the last line has no end */
        }
        size_t length = (size_t)(stop - start), used = length + (stop < t->words + t->end);
        if (length > LINE_LIMIT_BYTES)
            return tell(t, t->line + 1, "it is longer than 64 KiB; this is no log of tab-separated lines", error);
        if (length && start[length - 1] == '\r') length--;
        t->line++;
        if (length) {
            t->starts[count] = (uint32_t)t->at;
            t->lengths[count] = (uint32_t)length;
            t->numbers[count++] = t->line;
            t->row++;
        }
        t->at += used;
    }
    *found = count;
    return QN_OK;
}

static qn_status tsv_read(source *s, const row_memory *to, int64_t most, int64_t *got, qn_error *error)
{
    tsv_source *t = (tsv_source *)s;
    QN_TRY(find_lines(t, MINIMUM(most, (int64_t)PIECE_ROWS), got, error));
    if (!*got) {
        if (most) s->block_rows[0] = t->row;
        return QN_OK;
    }
    t->to = to;
    t->first_bad = INT64_MAX;
    pool_run(s->workers, *got, GRAIN_ROWS, parse_lines, t);
    int64_t bad = t->first_bad;
    if (bad == INT64_MAX) return QN_OK;
    field_fault fault;
    const char *at = t->words + t->starts[bad];
    parse_line(t, at, at + t->lengths[bad], bad, &fault);
    char words[160];
    if (fault.field)
        snprintf(words, sizeof(words), "field %d `%.*s` %s", fault.field, (int)MINIMUM(fault.length, (size_t)40),
                 fault.at, fault.what);
    else
        snprintf(words, sizeof(words), "it does not have %d fields separated by tabs",
                 DENSE_COUNT + SPARSE_COUNT + s->schema.has_labels);
    return tell(t, t->numbers[bad], words, error);
}

static qn_status tsv_begin(source *s, int64_t block, int64_t skip, qn_error *error)
{
    tsv_source *t = (tsv_source *)s;
    (void)block;
    if (!t->stream || t->row > skip) {
        if (!file_wake(&t->file))
            return error_set(error, QN_BAD_FILE, "%s: the file is gone, or is another one than when it was opened",
                             t->file.path);
        stream_close(t->stream);
        t->stream = stream_open(&t->file, t->gzip);
        if (!t->words) t->words = malloc(TEXT_BYTES + PADDING);
        t->at = t->end = 0;
        t->row = t->line = 0;
        t->ended = false;
        t->fault = NULL;
        if (!t->stream || !t->words) return error_set(error, QN_NO_MEMORY, "no memory to read %s", t->file.path);
    }
    while (t->row < skip) {
        int64_t found;
        QN_TRY(find_lines(t, MINIMUM(skip - t->row, (int64_t)PIECE_ROWS), &found, error));
        if (found) continue;
        s->block_rows[0] = t->row;
        break;
    }
    return QN_OK;
}

static void tsv_rest(source *s)
{
    tsv_source *t = (tsv_source *)s;
    stream_close(t->stream);
    free(t->words);
    t->stream = NULL;
    t->words = NULL;
    file_close(&t->file);
}

static void tsv_close(source *s)
{
    tsv_rest(s);
    free(s);
}

/* Whether there are labels: from the number of fields of the first line. */
static qn_status look_at_first_line(tsv_source *t, qn_error *error)
{
    int64_t found;
    QN_TRY(tsv_begin(&t->base, 0, 0, error));
    QN_TRY(find_lines(t, 1, &found, error));
    if (!found) return error_set(error, QN_BAD_FILE, "%s has no lines", t->file.path);
    int fields = 1;
    for (uint32_t i = 0; i < t->lengths[0]; i++) fields += t->words[t->starts[0] + i] == '\t';
    t->base.schema = (qn_schema){.dense_count = DENSE_COUNT,
                                 .sparse_count = SPARSE_COUNT,
                                 .has_labels = fields == 1 + DENSE_COUNT + SPARSE_COUNT};
    if (fields != DENSE_COUNT + SPARSE_COUNT && !t->base.schema.has_labels)
        return error_set(error, QN_BAD_FILE,
                         "%s: line %lld: %d field%s; a Criteo log has 40 on a line (39 without labels), separated by "
                         "tabs: label, 13 whole numbers, 26 hexadecimal categories. It is no Parquet file, either",
                         t->file.path, (long long)t->numbers[0], fields, fields == 1 ? "" : "s");
    return QN_OK;
}

qn_status tsv_open(data_file file, bool gzip, const qn_dataset_options *options, pool *workers, source **out,
                   qn_error *error)
{
    static const source_kind kind = {tsv_begin, tsv_read, tsv_rest, tsv_close};
    *out = NULL;
    tsv_source *t = calloc(1, sizeof(*t));
    int64_t *block_rows = malloc(sizeof(int64_t));
    if (!t || !block_rows) {
        free(t);
        free(block_rows);
        file_close(&file);
        return error_set(error, QN_NO_MEMORY, "no memory to open %s", file.path);
    }
    *block_rows = -1;
    t->base = (source){.kind = &kind,
                       .path = strdup(file.path),
                       .block_count = 1,
                       .block_rows = block_rows,
                       .workers = workers,
                       .missing = options->missing};
    t->file = file;
    t->file.path = t->base.path;
    t->gzip = gzip;
    const char *lacks = gzip ? codec_missing(CODEC_GZIP) : NULL;
    qn_status status = lacks ? error_set(error, QN_BAD_FILE, "%s: it is compressed with %s", file.path, lacks)
                             : look_at_first_line(t, error);
    if (status) return source_close(&t->base), status;
    stream_close(t->stream); /* the first reading begins afresh */
    t->stream = NULL;
    *out = &t->base;
    return QN_OK;
}
