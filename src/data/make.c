/*
 * Made click logs. In: a number of rows and a seed. Out: rows as Criteo's, with the true probability of each click.
 *
 * Each row is a function of the seed and its number, so any row can be made at any time and in any order. The world is
 * always the same, the seed only draws rows from it: category tokens follow Zipf's law over the cardinalities of the
 * talk's sample, counts are rounded log-normals, fields are missing as often as in click logs. The logit of a click is a
 * sum of effects of log-counts, of the most frequent tokens of each category (rare ones have none: what nobody can learn
 * from few rows is not part of the signal), of missing fields, and of pairs of categories. No function of the C library
 * is used and no product is fused with a sum (CMakeLists.txt), so bits agree between machines.
 * SPDX-License-Identifier: MIT
 */
#include "data/source.h"

#include <stdlib.h>
#include <string.h>

enum { DENSE_COUNT = 13, SPARSE_COUNT = 26, HEAD_TOKENS = 64, CALIBRATION_ROWS = 8192, PAIR_COUNT = 3 };
/* What a category's token is to the signal: its rank in the head, or one of the others, or missing. */
enum { ITEM_OTHER = HEAD_TOKENS, ITEM_MISSING, ITEM_COUNT };
#define BLOCK_ROWS ((int64_t)131072)
#define ROW_LIMIT ((int64_t)1 << 40)
#define GRAIN_ROWS 128
#define WORLD 0x517cc1b727220a95u
#define STRENGTH \
    1.3 /* of the signal: the true probabilities reach an AUC of about 0.80, as good models of such logs do */

static const int64_t cardinalities[SPARSE_COUNT] = {1234907, 19682,   13779,  6866,    18489, 3,    6263, 1234, 49,
                                                    854680,  114026,  75735,  10,      2159,  7532, 61,   4,    918,
                                                    14,      1307783, 404742, 1105613, 87714, 9031, 76,   33};
/* Percent of the rows without the field. */
static const uint8_t dense_missing[DENSE_COUNT] = {45, 0, 21, 22, 3, 22, 4, 0, 4, 45, 4, 76, 22};
static const uint8_t sparse_missing[SPARSE_COUNT] = {0, 0, 3, 3, 0, 12, 0,  0, 0,  0, 0, 3,  0,
                                                     0, 0, 3, 0, 0, 44, 44, 3, 76, 0, 3, 44, 44};
/* Mean and deviation of the logarithm of the counts. */
static const double dense_mean[DENSE_COUNT] = {0.9, 2.4, 1.9, 1.6, 7.0, 3.4, 1.8, 2.2, 3.9, 0.3, 0.9, 0.2, 1.6};
static const double dense_spread[DENSE_COUNT] = {1.0, 1.9, 1.3, 1.0, 1.9, 1.4, 1.2, 1.0, 1.3, 0.5, 0.7, 0.4, 1.0};
/* Effects of a deviation of the log-count. */
static const double dense_effect[DENSE_COUNT] = {0.30,  0.20, 0.0,  -0.15, -0.35, -0.10, 0.25,
                                                 -0.05, 0.10, 0.20, 0.15,  0.0,   -0.20};
/* How much the tokens of a category matter. */
static const double sparse_effect[SPARSE_COUNT] = {0.25, 0.15, 0.30, 0.10, 0.0,  0.35, 0.20, 0.15, 0.25,
                                                   0.10, 0.20, 0.15, 0.30, 0.25, 0.10, 0.25, 0.35, 0.20,
                                                   0.15, 0.10, 0.30, 0.20, 0.15, 0.20, 0.25, 0.30};
/* Pairs of categories that say more together than each alone. */
static const struct {
    int first, second;
    double effect;
} pairs[PAIR_COUNT] = {{5, 16, 0.30}, {12, 18, 0.25}, {8, 25, 0.25}};

typedef struct made_row {
    float dense[DENSE_COUNT];
    int64_t sparse[SPARSE_COUNT];
    double logit; /* without the constant */
    double draw;  /* 0 to 1: a click if below the probability */
} made_row;

typedef struct make_source {
    source base;
    qn_make_options options;
    uint64_t key;
    double constant;                          /* of the logit, for the click rate */
    int64_t limits[SPARSE_COUNT];             /* the cardinalities */
    double log_limit[SPARSE_COUNT];           /* of the cardinality plus one */
    double effects[SPARSE_COUNT][ITEM_COUNT]; /* of tokens, scaled */
    double pair_effects[2][PAIR_COUNT][ITEM_COUNT];
    double missing_effects[DENSE_COUNT];
    int64_t at, end; /* rows */
    const row_memory *to;
} make_source;

static double to_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

/* e^x for |x| < 700, to about 1e-11: near enough, and the same everywhere. */
static double exp_of(double x)
{
    static const double terms[] = {1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                                   1.0 / 24,     1.0 / 6,     1.0 / 2,    1.0,       1.0};
    double k = (double)(int64_t)(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
    double r = x - k * 0.693147180369123816490 - k * 1.90821492927058770002e-10, sum = 0;
    for (int i = 0; i < COUNT(terms); i++) sum = sum * r + terms[i];
    uint64_t bits = (uint64_t)((int64_t)k + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, 8);
    return sum * scale;
}

/* The natural logarithm of a normal x > 0, to about 1e-11. */
static double log_of(double x)
{
    static const double terms[] = {2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2.0};
    uint64_t bits;
    memcpy(&bits, &x, 8);
    double k = (double)((int64_t)(bits >> 52) - 1023);
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&x, &bits, 8);
    if (x > 1.4142135623730951) x *= 0.5, k += 1;
    double s = (x - 1) / (x + 1), s2 = s * s, sum = 0;
    for (int i = 0; i < COUNT(terms); i++) sum = sum * s2 + terms[i];
    return s * sum + k * 0.6931471805599453;
}

/* Sums of eight even numbers, scaled: near enough to a normal one. */
static double normal_of(uint64_t a, uint64_t b)
{
    int64_t sum = 0;
    for (int i = 0; i < 4; i++, a >>= 16, b >>= 16) sum += (int64_t)(a & 0xffff) + (int64_t)(b & 0xffff);
    return ((double)sum - 8 * 32767.5) * (1.0 / 53509.9); /* 65536 * sqrt(8 / 12) */
}

/* Of mean 0 and deviation 1, fixed for a place in the world. */
static double effect_of(uint64_t kind, uint64_t column, uint64_t item)
{
    return (to_unit(mix_two(WORLD + kind, column << 32 ^ item)) * 2 - 1) * 1.7320508075688772;
}

/* A bijection of 32 bits: no two ranks of a column share a token. */
static int64_t token_of(int column, uint32_t rank)
{
    uint32_t x = rank + (uint32_t)column * 0x9e3779b9u;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return (int64_t)(x ^ x >> 16);
}

static void make_dense(const make_source *m, uint64_t row_key, made_row *out)
{
    for (int i = 0; i < DENSE_COUNT; i++) {
        uint64_t a = mix64(row_key + (uint64_t)(2 * i + 1) * 0x9e3779b97f4a7c15u);
        uint64_t b = mix64(row_key + (uint64_t)(2 * i + 2) * 0x9e3779b97f4a7c15u);
        if (!m->options.no_missing && mix_below(mix64(a ^ b), 100) < dense_missing[i]) {
            out->dense[i] = __builtin_nanf("");
            out->logit += m->missing_effects[i];
            continue;
        }
        double count = (double)(int64_t)exp_of(dense_mean[i] + dense_spread[i] * normal_of(a, b));
        if (i == 1) count -= 1; /* this one has -1 in the logs, too */
        out->dense[i] = (float)count;
        if (dense_effect[i] == 0) continue;
        double about = (log_of(1 + (count < 0 ? 0 : count)) - dense_mean[i]) / dense_spread[i];
        out->logit += dense_effect[i] * about;
        if (i == 4) out->logit += 0.1 * (about * about - 1); /* what a straight line does not see */
    }
}

static void make_sparse(const make_source *m, uint64_t row_key, made_row *out)
{
    uint32_t items[SPARSE_COUNT];
    for (int i = 0; i < SPARSE_COUNT; i++) {
        uint64_t bits = mix64(row_key + (uint64_t)(64 + i) * 0x9e3779b97f4a7c15u);
        if (!m->options.no_missing && mix_below(mix64(bits + 1), 100) < sparse_missing[i]) {
            out->sparse[i] = MISSING_TOKEN;
            items[i] = ITEM_MISSING;
        } else {
            double even = to_unit(bits);
            if (i & 1) even *= __builtin_sqrt(even); /* every second category is still more skewed */
            int64_t drawn = (int64_t)exp_of(even * m->log_limit[i]) - 1;
            uint32_t rank = (uint32_t)MINIMUM(drawn, m->limits[i] - 1);
            out->sparse[i] = token_of(i, rank);
            items[i] = rank < HEAD_TOKENS ? rank : ITEM_OTHER;
        }
        out->logit += m->effects[i][items[i]];
    }
    for (int i = 0; i < PAIR_COUNT; i++)
        out->logit += m->pair_effects[0][i][items[pairs[i].first]] * m->pair_effects[1][i][items[pairs[i].second]];
}

/* The world: what each token, missing field and pair does to the logit. */
static void make_effects(make_source *m)
{
    for (int i = 0; i < DENSE_COUNT; i++) m->missing_effects[i] = 0.15 * effect_of(1, (uint64_t)i, 0);
    for (uint32_t item = 0; item < ITEM_COUNT; item++) {
        for (int i = 0; i < SPARSE_COUNT; i++)
            m->effects[i][item] = item == ITEM_OTHER ? 0 : sparse_effect[i] * effect_of(2, (uint64_t)i, item);
        for (int i = 0; i < PAIR_COUNT; i++) {
            m->pair_effects[0][i][item] = pairs[i].effect * effect_of(3, (uint64_t)(2 * i), item);
            m->pair_effects[1][i][item] = effect_of(3, (uint64_t)(2 * i + 1), item);
        }
    }
}

static void make_row(const make_source *m, uint64_t key, int64_t row, made_row *out)
{
    uint64_t row_key = mix_two(key, (uint64_t)row);
    out->logit = 0;
    make_dense(m, row_key, out);
    make_sparse(m, row_key, out);
    out->logit *= STRENGTH;
    out->draw = to_unit(mix64(row_key + 128 * 0x9e3779b97f4a7c15u));
}

static double probability_of(double logit)
{
    return 1 / (1 + exp_of(logit < -500 ? 500 : logit > 500 ? -500 : -logit));
}

/* The constant with which as many rows click as are asked for, on rows of its own. */
static bool calibrate(make_source *m)
{
    double *logits = malloc(sizeof(double) * CALIBRATION_ROWS), low = -40, high = 40;
    if (!logits) return false;
    for (int64_t i = 0; i < CALIBRATION_ROWS; i++) {
        made_row row;
        make_row(m, WORLD, i, &row);
        logits[i] = row.logit;
    }
    for (int k = 0; k < 40; k++) {
        double middle = (low + high) / 2, sum = 0;
        for (int i = 0; i < CALIBRATION_ROWS; i++) sum += probability_of(logits[i] + middle);
        *(sum < m->options.click_rate * CALIBRATION_ROWS ? &low : &high) = middle;
    }
    m->constant = (low + high) / 2;
    free(logits);
    return true;
}

static void make_rows(void *context, int64_t first, int64_t last, int worker)
{
    make_source *m = context;
    const row_memory *to = m->to;
    (void)worker;
    for (int64_t r = first; r < last; r++) {
        made_row row;
        bool refused = false;
        make_row(m, m->key, m->at + r, &row);
        double probability = probability_of(row.logit + m->constant);
        to->labels[r] = row.draw < probability ? 1 : 0;
        if (to->probabilities) to->probabilities[r] = probability;
        for (int i = 0; i < DENSE_COUNT; i++)
            to->dense[r * DENSE_COUNT + i] = settle_dense(row.dense[i], m->base.missing, &refused);
        for (int i = 0; i < SPARSE_COUNT; i++)
            to->sparse[r * SPARSE_COUNT + i] = settle_sparse(row.sparse[i], m->base.missing, &refused);
    }
}

static qn_status make_begin(source *s, int64_t block, int64_t skip, qn_error *error)
{
    make_source *m = (make_source *)s;
    (void)error;
    m->at = block * BLOCK_ROWS;
    m->end = m->at + s->block_rows[block];
    m->at += MINIMUM(skip, s->block_rows[block]);
    return QN_OK;
}

static qn_status make_read(source *s, const row_memory *to, int64_t most, int64_t *got, qn_error *error)
{
    make_source *m = (make_source *)s;
    (void)error;
    *got = MINIMUM(most, m->end - m->at);
    m->to = to;
    pool_run(s->workers, *got, GRAIN_ROWS, make_rows, m);
    m->at += *got;
    return QN_OK;
}

static void make_rest(source *s)
{
    (void)s;
}

static void make_close(source *s)
{
    free(s);
}

qn_status make_open(const qn_make_options *make, const qn_dataset_options *options, pool *workers, source **out,
                    qn_error *error)
{
    static const source_kind kind = {make_begin, make_read, make_rest, make_close};
    *out = NULL;
    if (make->rows < 1 || make->rows > ROW_LIMIT)
        return error_set(error, QN_BAD_CALL, "a made data set has 1 to %lld rows, not %lld", (long long)ROW_LIMIT,
                         (long long)make->rows);
    if (make->click_rate != 0 && !(make->click_rate > 0 && make->click_rate < 1))
        return error_set(error, QN_BAD_CALL, "the click rate is between 0 and 1");
    if (make->cardinality_limit < 0) return error_set(error, QN_BAD_CALL, "the limit of cardinalities is negative");
    if (options->missing == QN_MISSING_REFUSE && !make->no_missing)
        return error_set(error, QN_BAD_CALL, "made data has missing fields: let them be filled, or set no_missing");
    int64_t blocks = (make->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    make_source *m = calloc(1, sizeof(*m));
    int64_t *block_rows = malloc(sizeof(int64_t) * (size_t)blocks);
    char *path = strdup("made");
    if (m) {
        m->options = *make;
        if (make->click_rate == 0) m->options.click_rate = 0.25;
        m->key = mix_two(make->seed, WORLD);
        make_effects(m);
        for (int i = 0; i < SPARSE_COUNT; i++) {
            int64_t limit = make->cardinality_limit ? make->cardinality_limit : INT64_MAX;
            m->limits[i] = MINIMUM(cardinalities[i], limit);
            m->log_limit[i] = log_of((double)m->limits[i] + 1);
        }
    }
    if (!m || !block_rows || !path || !calibrate(m)) {
        free(m);
        free(block_rows);
        free(path);
        return error_set(error, QN_NO_MEMORY, "no memory to make rows");
    }
    for (int64_t i = 0; i < blocks; i++) block_rows[i] = MINIMUM(BLOCK_ROWS, make->rows - i * BLOCK_ROWS);
    m->base = (source){.kind = &kind,
                       .path = path,
                       .schema = {DENSE_COUNT, SPARSE_COUNT, true, true},
                       .block_count = blocks,
                       .block_rows = block_rows,
                       .workers = workers,
                       .missing = options->missing};
    *out = &m->base;
    return QN_OK;
}
