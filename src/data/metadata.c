/*
 * What a model must know of its data. In: a data set, read once. Out: tokens of each category, sorted; mean and deviation
 * of each count and of its logarithm.
 *
 * Columns are looked at in parallel, a few ten thousand rows at a time; tokens are collected in hash sets that grow with
 * what they hold. metadata_json.c writes and reads the result. SPDX-License-Identifier: MIT
 */
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_ROWS 32768

/* Tokens seen so far; slots are empty where `full` is 0. */
typedef struct token_set {
    int64_t *slots;
    uint8_t *full;
    size_t capacity, count; /* a power of two; at most half of it is full */
    bool failed;
} token_set;

/* Mean and squared distances from it, so that long sums lose nothing. */
typedef struct moments {
    double count, mean, squares;
} moments;

typedef struct gathering {
    qn_dataset *d;
    qn_metadata *out;
    qn_batch rows;
    token_set *sets;
    moments *plain, *logs, labels;
} gathering;

static bool set_grow(token_set *set)
{
    token_set old = *set;
    set->capacity = old.capacity ? old.capacity * 2 : 1024;
    set->slots = malloc(sizeof(int64_t) * set->capacity);
    set->full = calloc(set->capacity, 1);
    if (!set->slots || !set->full) {
        free(set->slots);
        free(set->full);
        *set = old;
        return false;
    }
    for (size_t i = 0; i < old.capacity; i++) {
        if (!old.full[i]) continue;
        size_t slot = mix64((uint64_t)old.slots[i]) & (set->capacity - 1);
        while (set->full[slot]) slot = (slot + 1) & (set->capacity - 1);
        set->slots[slot] = old.slots[i];
        set->full[slot] = 1;
    }
    free(old.slots);
    free(old.full);
    return true;
}

static void set_add(token_set *set, int64_t token)
{
    if (set->failed || (set->count * 2 >= set->capacity && !set_grow(set))) {
        set->failed = true;
        return;
    }
    size_t slot = mix64((uint64_t)token) & (set->capacity - 1);
    while (set->full[slot]) {
        if (set->slots[slot] == token) return;
        slot = (slot + 1) & (set->capacity - 1);
    }
    set->slots[slot] = token;
    set->full[slot] = 1;
    set->count++;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The tokens, sorted, in memory of their own. */
static bool set_finish(token_set *set, qn_sparse_facts *facts)
{
    size_t count = 0;
    if (set->failed) return false;
    for (size_t i = 0; i < set->capacity; i++)
        if (set->full[i]) set->slots[count++] = set->slots[i];
    if (count) qsort(set->slots, count, sizeof(int64_t), by_value);
    facts->cardinality = (int64_t)count;
    facts->tokens = set->slots;
    free(set->full);
    *set = (token_set){0};
    if (!facts->tokens && !(facts->tokens = malloc(sizeof(int64_t)))) return false;
    int64_t *exact = realloc(facts->tokens, sizeof(int64_t) * MAXIMUM(count, (size_t)1));
    if (exact) facts->tokens = exact;
    return true;
}

/* Joins what was seen with a piece of `count` values. */
static void moments_join(moments *m, double count, double mean, double squares)
{
    if (count == 0) return;
    double all = m->count + count, apart = mean - m->mean;
    m->mean += apart * count / all;
    m->squares += squares + apart * apart * m->count * count / all;
    m->count = all;
}

static double deviation_of(const moments *m)
{
    return m->count > 1 ? sqrt(m->squares / (m->count - 1)) : 0;
}

static void moments_add(moments *m, const double *values, int64_t count)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) sum += values[i];
    double mean = count ? sum / (double)count : 0;
    for (int64_t i = 0; i < count; i++) squares += (values[i] - mean) * (values[i] - mean);
    moments_join(m, (double)count, mean, squares);
}

static void look_at_dense(gathering *g, int column)
{
    double values[256], logs[256];
    const float *from = g->rows.dense + column;
    int stride = g->d->schema.dense_count;
    for (int64_t at = 0; at < g->rows.rows;) {
        int64_t count = MINIMUM((int64_t)COUNT(values), g->rows.rows - at);
        for (int64_t i = 0; i < count; i++) {
            double value = (double)from[(at + i) * stride];
            if (value != value) {
                g->out->dense[column].missing++;
                value = 0;
            }
            values[i] = value;
            logs[i] = log1p(value > 0 ? value : 0);
        }
        moments_add(&g->plain[column], values, count);
        moments_add(&g->logs[column], logs, count);
        at += count;
    }
}

static void look_at_columns(void *context, int64_t first, int64_t last, int worker)
{
    gathering *g = context;
    int sparse = g->d->schema.sparse_count;
    (void)worker;
    for (int64_t c = first; c < last; c++) {
        if (c >= sparse) {
            look_at_dense(g, (int)c - sparse);
            continue;
        }
        for (int64_t i = 0; i < g->rows.rows; i++) {
            int64_t token = g->rows.sparse[i * sparse + c];
            g->out->sparse[c].missing += token == -1;
            set_add(&g->sets[c], token);
        }
    }
}

static qn_status no_memory(qn_error *error)
{
    return error_set(error, QN_NO_MEMORY, "no memory for the tokens of this data set: gather them from fewer rows");
}

static qn_status gather_rows(gathering *g, qn_data_progress *progress, void *user, qn_error *error)
{
    const qn_schema *schema = &g->d->schema;
    int64_t total = -1;
    if (dataset_counted(g->d)) QN_TRY(qn_dataset_rows(g->d, &total, error));
    QN_TRY(qn_dataset_rewind(g->d, error));
    for (;;) {
        QN_TRY(qn_dataset_next(g->d, &g->rows, error));
        if (!g->rows.rows || g->rows.epoch) break;
        pool_run(g->d->workers, schema->sparse_count + schema->dense_count, 1, look_at_columns, g);
        for (int64_t i = 0; i < g->rows.rows && schema->has_labels; i++) {
            double label = (double)g->rows.labels[i];
            moments_add(&g->labels, &label, 1);
        }
        g->out->rows += g->rows.rows;
        if (progress && !progress(user, g->out->rows, total))
            return error_set(error, QN_FAILED, "stopped after %lld rows", (long long)g->out->rows);
    }
    for (int i = 0; i < schema->sparse_count; i++)
        if (!set_finish(&g->sets[i], &g->out->sparse[i])) return no_memory(error);
    for (int i = 0; i < schema->dense_count; i++) {
        qn_dense_facts *f = &g->out->dense[i];
        f->mean = g->plain[i].mean;
        f->deviation = deviation_of(&g->plain[i]);
        f->log_mean = g->logs[i].mean;
        f->log_deviation = deviation_of(&g->logs[i]);
    }
    g->out->click_rate = schema->has_labels ? g->labels.mean : NAN;
    return QN_OK;
}

qn_status qn_metadata_gather(qn_dataset *d, qn_data_progress *progress, void *user, qn_metadata **metadata,
                             qn_error *error)
{
    HEAP_ENTER(error);
    if (!d || !metadata) return error_set(error, QN_BAD_CALL, "qn_metadata_gather: an argument is NULL");
    *metadata = NULL;
    size_t dense = (size_t)d->schema.dense_count, sparse = (size_t)d->schema.sparse_count;
    gathering g = {.d = d, .out = calloc(1, sizeof(qn_metadata))};
    g.sets = calloc(sparse + 1, sizeof(*g.sets));
    g.plain = calloc(dense + 1, sizeof(*g.plain));
    g.logs = calloc(dense + 1, sizeof(*g.logs));
    g.rows = (qn_batch){.capacity = PIECE_ROWS,
                        .labels = malloc(sizeof(float) * PIECE_ROWS),
                        .dense = malloc(sizeof(float) * PIECE_ROWS * (dense + 1)),
                        .sparse = malloc(sizeof(int64_t) * PIECE_ROWS * (sparse + 1))};
    if (g.out) {
        g.out->dense_count = d->schema.dense_count;
        g.out->sparse_count = d->schema.sparse_count;
        g.out->dense = calloc(dense + 1, sizeof(*g.out->dense));
        g.out->sparse = calloc(sparse + 1, sizeof(*g.out->sparse));
    }
    qn_status status = QN_OK;
    if (!g.out || !g.out->dense || !g.out->sparse || !g.sets || !g.plain || !g.logs || !g.rows.labels ||
        !g.rows.dense || !g.rows.sparse)
        status = no_memory(error);
    for (int i = 0; i < d->source_count; i++)
        if (d->options.missing == QN_MISSING_FILL) d->sources[i]->missing = QN_MISSING_NAN; /* to be counted */
    if (!status) status = gather_rows(&g, progress, user, error);
    for (int i = 0; i < d->source_count; i++) d->sources[i]->missing = d->options.missing;
    for (size_t i = 0; i < sparse && g.sets; i++) {
        free(g.sets[i].slots);
        free(g.sets[i].full);
    }
    free(g.sets);
    free(g.plain);
    free(g.logs);
    free(g.rows.labels);
    free(g.rows.dense);
    free(g.rows.sparse);
    if (!status) status = qn_dataset_rewind(d, error);
    if (status) return qn_metadata_free(g.out), status;
    *metadata = g.out;
    return QN_OK;
}

void qn_metadata_free(qn_metadata *m)
{
    if (!m) return;
    for (int i = 0; i < m->sparse_count && m->sparse; i++) free(m->sparse[i].tokens);
    free(m->sparse);
    free(m->dense);
    free(m);
}
