/*
 * The metadata file. In: facts of columns, or a JSON file of the talk's form: an object with a key for each column. Out:
 * the other.
 *
 * The file has a number for each token, millions of them, so it is read in one pass straight into arrays, without a tree;
 * what is claimed is never allocated, only what is there. Keys that are not known are skipped. Faults are told with their
 * line. SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "base/json.h"
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT_BYTES ((size_t)8 << 30)
#define MOST_LEVELS 32

static void add_dense(text *t, int index, const qn_dense_facts *f)
{
    text_print(t, "\"DENSE_%d\": {\"mean\": ", index);
    json_add_number(t, f->mean, 0);
    text_add(t, ", \"std\": ");
    json_add_number(t, f->deviation, 0);
    text_add(t, ", \"log_mean\": ");
    json_add_number(t, f->log_mean, 0);
    text_add(t, ", \"log_std\": ");
    json_add_number(t, f->log_deviation, 0);
    text_print(t, ", \"missing\": %lld}", (long long)f->missing);
}

static qn_status flush(text *t, file_aside *file, size_t at_least, qn_error *error)
{
    if (t->length < at_least) return QN_OK;
    qn_status status = file_append(file, text_get(t), t->length, error);
    text_clear(t);
    return status;
}

static qn_status write_all(const qn_metadata *m, file_aside *file, qn_error *error)
{
    text t = {0};
    qn_status status = QN_OK;
    text_add(&t, "{\n");
    for (int i = 0; i < m->sparse_count && !status; i++) {
        const qn_sparse_facts *f = &m->sparse[i];
        text_print(&t, "\"SPARSE_%d\": {\"cardinality\": %lld, \"missing\": %lld", i, (long long)f->cardinality,
                   (long long)f->missing);
        for (int64_t k = 0; f->tokens && k < f->cardinality && !status; k++) {
            text_add(&t, k ? ", " : ", \"tokenizer_values\": [");
            text_add_whole(&t, f->tokens[k]);
            status = flush(&t, file, 1 << 16, error);
        }
        text_add(&t, f->tokens ? f->cardinality ? "]},\n" : ", \"tokenizer_values\": []},\n" : "},\n");
    }
    for (int i = 0; i < m->dense_count; i++) {
        add_dense(&t, i, &m->dense[i]);
        text_add(&t, ",\n");
    }
    text_add(&t, "\"labels\": {\"mean\": ");
    json_add_number(&t, m->click_rate, 0);
    text_add(&t, ", \"std\": ");
    json_add_number(&t,
                    m->rows > 1 ? sqrt(m->click_rate * (1 - m->click_rate) * (double)m->rows / (double)(m->rows - 1))
                                : (double)NAN,
                    0);
    text_print(&t, ", \"rows\": %lld}\n}\n", (long long)m->rows);
    if (!status) status = flush(&t, file, 0, error);
    text_free(&t);
    return status;
}

qn_status qn_metadata_write(const qn_metadata *m, const char *path, qn_error *error)
{
    HEAP_ENTER(error);
    if (!m || !path) return error_set(error, QN_BAD_CALL, "qn_metadata_write: an argument is NULL");
    file_aside *file;
    QN_TRY(file_begin(path, &file, error));
    return file_finish(file, write_all(m, file, error), error);
}

typedef struct json_file {
    const char *start, *at, *end;
    const char *fault;
    qn_metadata *out;
    bool has_dense[MOST_COLUMNS], has_sparse[MOST_COLUMNS];
} json_file;

static bool fail(json_file *j, const char *what)
{
    if (!j->fault) j->fault = what;
    return false;
}

static bool peek(json_file *j, char c)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t')) j->at++;
    return j->at < j->end && *j->at == c;
}

static bool take(json_file *j, char c)
{
    if (!peek(j, c)) return false;
    j->at++;
    return true;
}

/* A string without its quotes; escapes stay as they are. */
static bool take_string(json_file *j, char *out, size_t size)
{
    if (!take(j, '"')) return fail(j, "a name in quotes is missing here");
    const char *from = j->at;
    while (j->at < j->end && *j->at != '"') j->at += 1 + (*j->at == '\\' && j->at + 1 < j->end);
    if (j->at >= j->end) return fail(j, "a text does not end");
    snprintf(out, size, "%.*s", (int)MINIMUM((size_t)(j->at - from), size - 1), from);
    j->at++;
    return true;
}

static bool skip_value(json_file *j, int level)
{
    char words[4];
    if (level > MOST_LEVELS) return fail(j, "values are nested too deeply");
    if (peek(j, '"')) return take_string(j, words, sizeof(words));
    if (take(j, '{')) {
        if (take(j, '}')) return true;
        do {
            if (!take_string(j, words, sizeof(words))) return false;
            if (!take(j, ':')) return fail(j, "`:` is missing here");
            if (!skip_value(j, level + 1)) return false;
        } while (take(j, ','));
        return take(j, '}') || fail(j, "`}` or `,` is missing here");
    }
    if (take(j, '[')) {
        if (take(j, ']')) return true;
        do {
            if (!skip_value(j, level + 1)) return false;
        } while (take(j, ','));
        return take(j, ']') || fail(j, "`]` or `,` is missing here");
    }
    const char *from = j->at;
    while (j->at < j->end &&
           (strchr("+-.", *j->at) || (*j->at >= '0' && *j->at <= '9') || (*j->at >= 'a' && *j->at <= 'z') ||
            (*j->at >= 'A' && *j->at <= 'Z')) &&
           *j->at)
        j->at++;
    return j->at > from || fail(j, "a value is missing here");
}

static bool take_whole(json_file *j, int64_t *out)
{
    int64_t value = 0;
    bool negative = take(j, '-');
    const char *from = j->at;
    for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_sub_overflow(value, *j->at - '0', &value))
            return fail(j, "a number has too many digits");
    if (j->at == from || (j->at < j->end && strchr(".eE", *j->at) && *j->at))
        return fail(j, "this is not a whole number");
    if (!negative && value == INT64_MIN) return fail(j, "a number has too many digits");
    *out = negative ? value : -value;
    return true;
}

static bool take_real(json_file *j, double *out)
{
    char words[64];
    peek(j, ' ');
    const char *from = j->at;
    if (!skip_value(j, MOST_LEVELS)) return false;
    size_t length = (size_t)(j->at - from);
    if (length >= sizeof(words)) return fail(j, "this is not a number");
    memcpy(words, from, length);
    words[length] = 0;
    char *end;
    *out = number_parse(words, &end);
    if (!strcmp(words, "null") || !strcmp(words, "NaN")) return *out = (double)NAN, true;
    return !*end || fail(j, "this is not a number");
}

static bool take_tokens(json_file *j, qn_sparse_facts *f, int64_t *count)
{
    int64_t capacity = 0;
    free(f->tokens);
    f->tokens = malloc(sizeof(int64_t));
    *count = 0;
    if (!f->tokens) return fail(j, "no memory for the tokens");
    if (!take(j, '[')) return fail(j, "a list of tokens is missing here");
    if (take(j, ']')) return true;
    do {
        int64_t token;
        if (!take_whole(j, &token)) return false;
        if (*count && f->tokens[*count - 1] >= token) return fail(j, "the tokens are not in ascending order");
        if (*count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            int64_t *more = realloc(f->tokens, sizeof(int64_t) * (size_t)capacity);
            if (!more) return fail(j, "no memory for the tokens");
            f->tokens = more;
        }
        f->tokens[(*count)++] = token;
    } while (take(j, ','));
    return take(j, ']') || fail(j, "`]` or `,` is missing here");
}

typedef bool take_field(json_file *j, void *facts, const char *key);

static bool take_object(json_file *j, void *facts, take_field *field)
{
    char key[64];
    if (!take(j, '{')) return fail(j, "an object is missing here");
    if (take(j, '}')) return true;
    do {
        if (!take_string(j, key, sizeof(key))) return false;
        if (!take(j, ':')) return fail(j, "`:` is missing here");
        if (!field(j, facts, key)) return false;
    } while (take(j, ','));
    return take(j, '}') || fail(j, "`}` or `,` is missing here");
}

typedef struct sparse_reading {
    qn_sparse_facts *facts;
    int64_t tokens; /* -1: none were there */
    bool has_cardinality;
} sparse_reading;

static bool take_sparse(json_file *j, void *context, const char *key)
{
    sparse_reading *r = context;
    if (!strcmp(key, "cardinality")) {
        r->has_cardinality = true;
        return take_whole(j, &r->facts->cardinality) &&
               (r->facts->cardinality >= 0 || fail(j, "the cardinality is negative"));
    }
    if (!strcmp(key, "tokenizer_values")) return take_tokens(j, r->facts, &r->tokens);
    if (!strcmp(key, "missing")) return take_whole(j, &r->facts->missing);
    return skip_value(j, 0);
}

static bool take_dense(json_file *j, void *context, const char *key)
{
    qn_dense_facts *f = context;
    double *to = !strcmp(key, "mean")       ? &f->mean
                 : !strcmp(key, "std")      ? &f->deviation
                 : !strcmp(key, "log_mean") ? &f->log_mean
                 : !strcmp(key, "log_std")  ? &f->log_deviation
                                            : NULL;
    if (to) return take_real(j, to);
    if (!strcmp(key, "missing")) return take_whole(j, &f->missing);
    return skip_value(j, 0);
}

static bool take_labels(json_file *j, void *context, const char *key)
{
    qn_metadata *m = context;
    if (!strcmp(key, "mean")) return take_real(j, &m->click_rate);
    if (!strcmp(key, "rows")) return take_whole(j, &m->rows);
    return skip_value(j, 0);
}

/* "SPARSE_12": 12; -1: not such a name. */
static int index_of(const char *key, const char *prefix)
{
    size_t length = strlen(prefix);
    if (strncmp(key, prefix, length) || key[length] < '0' || key[length] > '9') return -1;
    char *end;
    long index = strtol(key + length, &end, 10);
    return *end || index >= MOST_COLUMNS ? -1 : (int)index;
}

static bool take_column(json_file *j, void *context, const char *key)
{
    qn_metadata *m = context;
    int sparse = index_of(key, "SPARSE_"), dense = index_of(key, "DENSE_");
    if (sparse >= 0) {
        if (j->has_sparse[sparse]) return fail(j, "a column stands here a second time");
        j->has_sparse[sparse] = true;
        m->sparse_count = MAXIMUM(m->sparse_count, sparse + 1);
        sparse_reading r = {.facts = &m->sparse[sparse], .tokens = -1};
        if (!take_object(j, &r, take_sparse)) return false;
        if (!r.has_cardinality && r.tokens >= 0) r.facts->cardinality = r.tokens;
        if (!r.has_cardinality && r.tokens < 0) return fail(j, "a category has neither cardinality nor tokens");
        if (r.tokens >= 0 && r.tokens != r.facts->cardinality)
            return fail(j, "there are not as many tokens as the cardinality says");
        return true;
    }
    if (dense >= 0) {
        if (j->has_dense[dense]) return fail(j, "a column stands here a second time");
        j->has_dense[dense] = true;
        m->dense_count = MAXIMUM(m->dense_count, dense + 1);
        qn_dense_facts *f = &m->dense[dense];
        *f = (qn_dense_facts){(double)NAN, (double)NAN, (double)NAN, (double)NAN, 0};
        return take_object(j, f, take_dense);
    }
    if (!strcmp(key, "labels")) return take_object(j, m, take_labels);
    return skip_value(j, 0);
}

static bool read_all(json_file *j)
{
    if (!take_object(j, j->out, take_column)) return false;
    peek(j, ' ');
    if (j->at != j->end) return fail(j, "text after the end");
    for (int i = 0; i < j->out->sparse_count; i++)
        if (!j->has_sparse[i]) return fail(j, "a category between the others is missing");
    for (int i = 0; i < j->out->dense_count; i++)
        if (!j->has_dense[i]) return fail(j, "a count between the others is missing");
    return j->out->sparse_count + j->out->dense_count > 0 ||
           fail(j, "it names no column SPARSE_0, ... or DENSE_0, ...");
}

qn_status metadata_parse(const char *name, const char *bytes, size_t size, qn_metadata **metadata, qn_error *error)
{
    *metadata = NULL;
    json_file *j = calloc(1, sizeof(*j));
    qn_metadata *m = calloc(1, sizeof(*m));
    qn_status status = QN_OK;
    if (m) {
        m->click_rate = (double)NAN;
        m->dense = calloc(MOST_COLUMNS, sizeof(*m->dense));
        m->sparse = calloc(MOST_COLUMNS, sizeof(*m->sparse));
    }
    if (!j || !m || !m->dense || !m->sparse) {
        status = error_set(error, QN_NO_MEMORY, "no memory to read %s", name);
    } else {
        *j = (json_file){.start = bytes, .at = bytes, .end = bytes + size, .out = m};
        if (!read_all(j)) {
            int64_t line = 1, column = 1;
            for (const char *at = j->start; at < j->at && at < j->end; at++) {
                line += *at == '\n';
                column = *at == '\n' ? 1 : column + 1;
            }
            status =
                error_set(error, QN_BAD_FILE,
                          "%s:%lld:%lld: not metadata that Quern can read: %s; `quern data stats` writes such a file",
                          name, (long long)line, (long long)column, j->fault);
        }
    }
    free(j);
    if (status) {
        if (m) m->sparse_count = m->sparse ? MOST_COLUMNS : 0; /* tokens of columns that were only begun, too */
        qn_metadata_free(m);
        return status;
    }
    *metadata = m;
    return QN_OK;
}

qn_status qn_metadata_read(const char *path, qn_metadata **metadata, qn_error *error)
{
    if (!path || !metadata) return error_set(error, QN_BAD_CALL, "qn_metadata_read: an argument is NULL");
    char *bytes;
    size_t size;
    *metadata = NULL;
    QN_TRY(file_read(path, FILE_LIMIT_BYTES, &bytes, &size, error));
    qn_status status = metadata_parse(path, bytes, size, metadata, error);
    free(bytes);
    return status;
}
