/*
 * Data sets: made rows and their signal, files written and read back with every codec, shuffling and splits, positions
 * that are told and gone back to, ranges, folders and patterns, metadata, refusals by their words.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "base/base.h"
#include "data/codec.h"
#include "data/source.h"
#include <quern/data.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST 20000

typedef struct rows {
    int64_t count;
    float labels[MOST], dense[MOST][13];
    int64_t sparse[MOST][26], numbers[MOST];
    double probabilities[MOST];
} rows;

static char folder[64];
static rows first, second;

static const char *in_folder(const char *name)
{
    static char paths[8][160];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static qn_batch room_after(rows *to, int64_t capacity)
{
    int64_t at = to->count;
    return (qn_batch){.capacity = MINIMUM(capacity, MOST - at),
                      .labels = to->labels + at,
                      .dense = to->dense[at],
                      .sparse = to->sparse[at],
                      .probabilities = to->probabilities + at,
                      .row_numbers = to->numbers + at};
}

/* Rows to the end of the epochs, at most MOST. */
static bool take_all(qn_dataset *d, int64_t batch_rows, rows *to)
{
    qn_error error = {0};
    while (to->count < MOST) {
        qn_batch b = room_after(to, batch_rows);
        if (qn_dataset_next(d, &b, &error)) {
            test_fail("next", 0, error.message);
            return false;
        }
        if (!b.rows) break;
        to->count += b.rows;
    }
    return true;
}

static qn_dataset *make(int64_t count, uint64_t seed, const qn_dataset_options *options)
{
    qn_error error = {0};
    qn_dataset *d = NULL;
    qn_make_options make = {.rows = count, .seed = seed};
    if (qn_dataset_make(&make, options, &d, &error)) test_fail("make", 0, error.message);
    return d;
}

static qn_dataset *open_one(const char *path, const qn_dataset_options *options)
{
    qn_error error = {0};
    qn_dataset *d = NULL;
    if (qn_dataset_open(&path, 1, options, &d, &error)) test_fail(path, 0, error.message);
    return d;
}

static bool same_rows(const rows *a, const rows *b)
{
    size_t n = (size_t)a->count;
    return a->count == b->count && !memcmp(a->labels, b->labels, n * sizeof(float)) &&
           !memcmp(a->dense, b->dense, n * sizeof(a->dense[0])) &&
           !memcmp(a->sparse, b->sparse, n * sizeof(a->sparse[0])) &&
           !memcmp(a->numbers, b->numbers, n * sizeof(int64_t));
}

static uint64_t fingerprint(const rows *r)
{
    uint64_t sums[4] = {
        hash_bytes(r->labels, (size_t)r->count * 4).low, hash_bytes(r->dense, (size_t)r->count * 52).low,
        hash_bytes(r->sparse, (size_t)r->count * 208).low, hash_bytes(r->probabilities, (size_t)r->count * 8).low};
    return hash_bytes(sums, sizeof(sums)).low;
}

/* The same number on every machine. */
TEST(made_rows_are_fixed)
{
    qn_dataset *d = make(5000, 1, NULL);
    first.count = 0;
    EXPECT(take_all(d, 777, &first) && first.count == 5000);
    qn_dataset_close(d);
    uint64_t sum = fingerprint(&first);
    if (sum != 0xcf1d41b80fef196du) printf("made rows have the fingerprint 0x%016llx\n", (unsigned long long)sum);
    EXPECT(sum == 0xcf1d41b80fef196du);
    d = make(5000, 2, NULL);
    second.count = 0;
    EXPECT(take_all(d, 5000, &second));
    EXPECT(!same_rows(&first, &second));
    qn_dataset_close(d);
    qn_dataset_options one = {.threads = 1, .missing = QN_MISSING_NAN};
    d = make(5000, 1, &one);
    second.count = 0;
    EXPECT(take_all(d, 4096, &second));
    int missing = 0;
    for (int i = 0; i < 5000; i++) missing += isnan(second.dense[i][0]);
    EXPECT(missing > 2000 && missing < 2500);
    for (int i = 0; i < 5000; i++)
        for (int k = 0; k < 13; k++)
            if (isnan(second.dense[i][k])) second.dense[i][k] = 0;
    EXPECT(same_rows(&first, &second));
    qn_dataset_close(d);
}

static int by_probability(const void *a, const void *b)
{
    double x = first.probabilities[*(const int *)a], y = first.probabilities[*(const int *)b];
    return (x > y) - (x < y);
}

static double auc_of(const double *scores, int *places)
{
    double clicks = 0, rank_sum = 0;
    for (int i = 0; i < MOST; i++) places[i] = i;
    for (int i = 0; i < MOST; i++) first.probabilities[i] = scores[i];
    qsort(places, MOST, sizeof(int), by_probability);
    for (int i = 0; i < MOST; i++)
        if (first.labels[places[i]] > 0) rank_sum += i + 1, clicks++;
    return (rank_sum - clicks * (clicks + 1) / 2) / (clicks * (MOST - clicks));
}

/* What the true probabilities reach: the bound of any model. */
TEST(oracle)
{
    qn_dataset *d = make(MOST, 3, NULL);
    first.count = 0;
    EXPECT(take_all(d, 4096, &first));
    qn_dataset_close(d);
    static int places[MOST];
    static double truth[MOST];
    double clicks = 0, expected = 0, loss = 0;
    for (int i = 0; i < MOST; i++) {
        double p = truth[i] = first.probabilities[i];
        clicks += (double)first.labels[i];
        expected += p;
        loss -= first.labels[i] > 0 ? log(p) : log(1 - p);
        EXPECT(p > 0 && p < 1);
    }
    double auc = auc_of(truth, places), rate = clicks / MOST;
    double entropy = -rate * log(rate) - (1 - rate) * log(1 - rate);
    EXPECT_NEAR(rate, 0.25, 0.015);
    EXPECT_NEAR(clicks, expected, 250);
    EXPECT_NEAR(auc, 0.80, 0.02);
    EXPECT(loss / MOST < entropy - 0.05);
    if (getenv("QUERN_VERBOSE")) printf("oracle: auc %.4f, log-loss %.4f, entropy %.4f\n", auc, loss / MOST, entropy);
}

enum { WEIGHTS = 1 << 18 };
static float weights[WEIGHTS], squares[WEIGHTS];

/* Places of a row's weights: a token each, and of each count its presence and its logarithm. */
static double logit_of(int row, uint32_t *at, float *input)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < 26; i++, n++) {
        at[n] = (uint32_t)(mix64((uint64_t)first.sparse[row][i] * 31 + (uint64_t)i) % (WEIGHTS - 64)) + 64;
        input[n] = 1;
    }
    for (int i = 0; i < 13; i++, n++) {
        bool missing = isnan(first.dense[row][i]);
        at[n] = (uint32_t)(2 * i + missing);
        input[n] = missing ? 1 : (log1pf(fmaxf(first.dense[row][i], 0)) - 2) / 2;
    }
    at[n] = 63;
    input[n] = 1;
    for (int i = 0; i <= n; i++) sum += (double)(weights[at[i]] * input[i]);
    return sum;
}

/* A logistic regression, fitted in one pass over rows of another seed, comes near the oracle: the signal is not noise. */
TEST(signal_can_be_learnt)
{
    enum { INPUTS = 40 };
    qn_dataset_options keep = {.missing = QN_MISSING_NAN};
    uint32_t at[INPUTS];
    float input[INPUTS];
    qn_dataset *d = make(15 * MOST, 21, &keep);
    for (int round = 0; round < 15; round++) {
        first.count = 0;
        EXPECT(take_all(d, MOST, &first) && first.count == MOST);
        for (int row = 0; row < MOST; row++) {
            double p = 1 / (1 + exp(-logit_of(row, at, input)));
            for (int i = 0; i < INPUTS; i++) {
                float slope = (float)(p - (double)first.labels[row]) * input[i];
                squares[at[i]] += slope * slope;
                weights[at[i]] -= 0.05f * slope / (sqrtf(squares[at[i]]) + 1e-6f);
            }
        }
    }
    qn_dataset_close(d);
    d = make(MOST, 22, &keep);
    first.count = 0;
    EXPECT(take_all(d, MOST, &first));
    qn_dataset_close(d);
    static double scores[MOST], truth[MOST];
    static int places[MOST];
    memcpy(truth, first.probabilities, sizeof(truth));
    for (int row = 0; row < MOST; row++) scores[row] = logit_of(row, at, input);
    double learnt = auc_of(scores, places), bound = auc_of(truth, places);
    if (getenv("QUERN_VERBOSE")) printf("auc of a logistic regression %.4f, of the oracle %.4f\n", learnt, bound);
    EXPECT(learnt > bound - 0.03 && learnt < bound);
}

/* The most frequent token has many rows, most tokens few. */
TEST(skew)
{
    qn_dataset *d = make(MOST, 4, NULL);
    qn_metadata *m;
    qn_error error;
    EXPECT(!qn_metadata_gather(d, NULL, NULL, &m, &error));
    qn_dataset_close(d);
    EXPECT(m->rows == MOST && m->sparse_count == 26 && m->dense_count == 13);
    EXPECT(m->sparse[0].cardinality > 2000 && m->sparse[0].cardinality < MOST * 3 / 4);
    EXPECT(m->sparse[5].cardinality == 4 && m->sparse[5].tokens[0] == -1); /* 3 and missing */
    EXPECT(m->sparse[16].cardinality == 4);
    EXPECT(m->dense[11].missing > MOST * 0.72 && m->dense[11].missing < MOST * 0.8);
    EXPECT_NEAR(m->click_rate, 0.25, 0.02);
    qn_metadata_free(m);
}

TEST(codecs)
{
    static const char *const names[] = {"none", "snappy", "zstd", "gzip", "lz4"};
    static const codec codecs[] = {CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD, CODEC_GZIP, CODEC_LZ4};
    qn_error error = {0};
    qn_dataset *d = make(15000, 5, NULL);
    first.count = 0;
    EXPECT(take_all(d, 4096, &first));
    for (int i = 0; i < COUNT(names); i++)
        for (int nulls = 0; nulls < 2; nulls++) {
            if (codec_missing(codecs[i])) {
                printf("note: skipped %s, which is %s\n", names[i], codec_missing(codecs[i]));
                continue;
            }
            qn_write_options w = {.codec = names[i], .nulls = nulls, .row_group_rows = 4000, .probabilities = nulls};
            const char *path = in_folder("made.parquet");
            if (qn_dataset_write(d, path, &w, &error)) test_fail(names[i], nulls, error.message);
            qn_dataset *back = open_one(path, NULL);
            second.count = 0;
            EXPECT(back && take_all(back, 1000, &second) && same_rows(&first, &second));
            EXPECT(qn_dataset_schema(back).has_probabilities == nulls);
            EXPECT(nulls ? !memcmp(first.probabilities, second.probabilities, sizeof(double) * 15000)
                         : isnan(second.probabilities[0]));
            qn_dataset_close(back);
        }
    qn_write_options bad = {.codec = "brotly"};
    EXPECT(qn_dataset_write(d, in_folder("x"), &bad, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "there is no codec `brotly`: it is none, snappy, zstd, gzip or lz4");
    EXPECT(qn_dataset_write(d, "/nowhere/x.parquet", NULL, &error) == QN_BAD_FILE);
    EXPECT_TEXT(error.message, "cannot write /nowhere/x.parquet: No such file or directory");
    EXPECT(access(in_folder("x"), F_OK)); /* what lies beside it, half written, is looked for by data.sh */
    qn_dataset_close(d);
}

/* Nulls stay nulls: read as NaN they are where the made data had none. */
TEST(nulls)
{
    qn_dataset_options nan = {.missing = QN_MISSING_NAN};
    qn_error error = {0};
    qn_dataset *d = make(3000, 6, &nan);
    first.count = second.count = 0;
    EXPECT(take_all(d, 500, &first));
    qn_write_options w = {.nulls = true, .codec = "none"};
    EXPECT(!qn_dataset_write(d, in_folder("nulls.parquet"), &w, &error));
    qn_dataset_close(d);
    d = open_one(in_folder("nulls.parquet"), &nan);
    EXPECT(take_all(d, 499, &second) && same_rows(&first, &second));
    qn_dataset_close(d);
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Every row once, in another order each epoch; and the rows belong to their numbers. */
TEST(shuffling)
{
    qn_error error = {0};
    qn_dataset *d = make(9000, 7, NULL);
    EXPECT(!qn_dataset_write(d, in_folder("s.parquet"), &(qn_write_options){.row_group_rows = 700}, &error));
    qn_dataset_close(d);
    d = open_one(in_folder("s.parquet"), NULL);
    second.count = 0;
    EXPECT(take_all(d, 9000, &second));
    qn_dataset_close(d);
    qn_dataset_options o = {.shuffle = true, .seed = 3, .window_rows = 2000, .epochs = 2};
    d = open_one(in_folder("s.parquet"), &o);
    first.count = 0;
    EXPECT(take_all(d, 128, &first) && first.count == 18000);
    int64_t moved = 0;
    for (int64_t i = 0; i < 9000; i++) {
        int64_t n = first.numbers[i];
        EXPECT(!memcmp(first.sparse[i], second.sparse[n], sizeof(first.sparse[0])));
        EXPECT(first.labels[i] == second.labels[n]);
        moved += labs((long)(n - i)) > 700;
    }
    EXPECT(moved > 5000);
    EXPECT(memcmp(first.numbers, first.numbers + 9000, 9000 * sizeof(int64_t)));
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t *numbers = first.numbers + epoch * 9000;
        qsort(numbers, 9000, sizeof(int64_t), by_number);
        for (int64_t i = 0; i < 9000; i++) EXPECT(numbers[i] == i);
    }
    qn_dataset_close(d);
}

/* From any position the same batches follow, in a data set that was opened anew. */
static void go_back(const char *path, qn_dataset_options o)
{
    qn_error error = {0};
    for (int stop = 0; stop < 5; stop++) {
        qn_dataset *d = path ? open_one(path, &o) : make(4000, 9, &o);
        first.count = second.count = 0;
        for (int i = 0; i < stop * 17; i++) {
            qn_batch b = room_after(&second, 100);
            EXPECT(!qn_dataset_next(d, &b, &error));
        }
        qn_position here = qn_dataset_tell(d);
        EXPECT(take_all(d, 100, &first));
        qn_dataset_close(d);
        d = path ? open_one(path, &o) : make(4000, 9, &o);
        if (qn_dataset_seek(d, here, &error)) test_fail(path ? path : "made", stop, error.message);
        qn_position there = qn_dataset_tell(d);
        EXPECT(there.row == here.row && there.epoch == here.epoch);
        EXPECT(take_all(d, 100, &second));
        EXPECT(same_rows(&first, &second) && (first.count > 0 || stop > 1));
        EXPECT(!qn_dataset_rewind(d, &error) && !qn_dataset_tell(d).row);
        qn_dataset_close(d);
    }
}

TEST(positions)
{
    qn_error error = {0};
    qn_dataset *d = make(4000, 9, NULL);
    EXPECT(!qn_dataset_write(d, in_folder("p.parquet"), &(qn_write_options){.row_group_rows = 333}, &error));
    qn_dataset_close(d);
    char file[100];
    snprintf(file, sizeof(file), "%s/p.parquet", folder);
    const char *log = QUERN_ROOT "/tests/data/rows.tsv";
    for (int shuffle = 0; shuffle < 2; shuffle++)
        for (int split = 0; split < 3; split++)
            for (int drop = 0; drop < 2; drop++) {
                qn_dataset_options o = {.shuffle = shuffle,
                                        .split = (qn_data_split)split,
                                        .held_out = 0.3,
                                        .seed = 5,
                                        .window_rows = 1000,
                                        .epochs = 2,
                                        .drop_last = drop};
                go_back(file, o);
                go_back(NULL, o);
                o.epochs = 90;
                o.drop_last = false;
                go_back(log, o);
            }
    d = open_one(file, NULL);
    qn_dataset *other = open_one(file, &(qn_dataset_options){.shuffle = true});
    EXPECT(qn_dataset_seek(other, qn_dataset_tell(d), &error) == QN_BAD_CALL);
    qn_position far = qn_dataset_tell(d);
    far.row = 4001;
    EXPECT(qn_dataset_seek(d, far, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "row 4001 is behind the end of the data set");
    qn_dataset_close(d);
    qn_dataset_close(other);
}

TEST(splits)
{
    qn_error error = {0};
    int64_t counts[2], seen[2];
    static bool held[MOST];
    memset(held, 0, sizeof(held));
    for (int i = 0; i < 2; i++) {
        qn_dataset_options o = {
            .split = i ? QN_SPLIT_HELD_OUT : QN_SPLIT_TRAIN, .held_out = 0.1, .shuffle = !i, .seed = 2};
        qn_dataset *d = make(MOST, 10, &o);
        EXPECT(!qn_dataset_rows(d, &counts[i], &error));
        first.count = 0;
        EXPECT(take_all(d, 1000, &first));
        seen[i] = first.count;
        for (int64_t r = 0; r < first.count; r++) {
            EXPECT(!held[first.numbers[r]]);
            held[first.numbers[r]] = true;
        }
        qn_dataset_close(d);
    }
    EXPECT(counts[0] == seen[0] && counts[1] == seen[1] && seen[0] + seen[1] == MOST);
    EXPECT(seen[1] > MOST * 0.09 && seen[1] < MOST * 0.11);
    qn_dataset *d = make(100, 1, &(qn_dataset_options){.split = QN_SPLIT_HELD_OUT, .epochs = -1});
    qn_batch b = {.capacity = 10};
    EXPECT(qn_dataset_next(d, &b, &error) == QN_BAD_CALL); /* and does not look for ever */
    qn_dataset_close(d);
    d = make(100, 1, &(qn_dataset_options){.drop_last = true, .epochs = -1});
    b.capacity = 64;
    for (int i = 0; i < 5; i++) EXPECT(!qn_dataset_next(d, &b, &error) && b.rows == 64 && b.epoch == i);
    b.capacity = 101;
    EXPECT(!qn_dataset_rewind(d, &error));
    EXPECT(qn_dataset_next(d, &b, &error) == QN_BAD_CALL);
    qn_dataset_close(d);
}

TEST(ranges)
{
    qn_error error = {0};
    qn_dataset *d = make(4000, 9, NULL);
    second.count = 0;
    EXPECT(take_all(d, 4000, &second));
    qn_dataset_close(d);
    for (int file = 0; file < 2; file++) {
        qn_dataset_options o = {.first_row = 650, .row_count = 1400};
        d = file ? open_one(in_folder("p.parquet"), &o) : make(4000, 9, &o);
        first.count = 0;
        int64_t count;
        EXPECT(!qn_dataset_rows(d, &count, &error) && count == 1400);
        EXPECT(take_all(d, 256, &first) && first.count == 1400);
        for (int64_t i = 0; i < 1400; i++)
            EXPECT(first.numbers[i] == 650 + i && !memcmp(first.dense[i], second.dense[650 + i], 52));
        qn_dataset_close(d);
    }
    qn_dataset_options far = {.first_row = 4000};
    EXPECT(qn_dataset_open((const char *[]){in_folder("p.parquet")}, 1, &far, &d, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "first_row is 4000, behind the end of the data set");
}

/* A folder, a pattern and a list give the same rows; day_2 comes before day_10; others are left alone. */
TEST(many_files)
{
    qn_error error = {0};
    char sub[100];
    snprintf(sub, sizeof(sub), "%s/many", folder);
    mkdir(sub, 0700);
    static const int numbers[] = {2, 10, 1};
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof(name), "many/day_%d.parquet", numbers[i]);
        qn_dataset *d = make(100 + numbers[i], (uint64_t)numbers[i], NULL);
        EXPECT(!qn_dataset_write(d, in_folder(name), NULL, &error));
        qn_dataset_close(d);
    }
    FILE *note = fopen(in_folder("many/_SUCCESS"), "w");
    fclose(note);
    char pattern[160], one[3][160];
    snprintf(pattern, sizeof(pattern), "%s/day_*.parquet", sub);
    const char *list[3];
    for (int i = 0; i < 3; i++) {
        snprintf(one[i], sizeof(one[i]), "%s/day_%d.parquet", sub, i == 2 ? 10 : i + 1);
        list[i] = one[i];
    }
    for (int way = 0; way < 3; way++) {
        qn_dataset *d;
        const char *word = way ? pattern : sub;
        if (qn_dataset_open(way == 2 ? list : &word, way == 2 ? 3 : 1, NULL, &d, &error))
            test_fail(word, way, error.message);
        EXPECT(qn_dataset_files(d) == 3 && strstr(qn_dataset_file(d, 2), "day_10"));
        rows *to = way ? &second : &first;
        to->count = 0;
        EXPECT(take_all(d, 64, to) && to->count == 313 && to->numbers[312] == 312);
        if (way) EXPECT(same_rows(&first, &second));
        qn_dataset_close(d);
    }
    const char *mixed[] = {one[0], QUERN_ROOT "/tests/data/rows.tsv"};
    qn_dataset *d;
    EXPECT(!qn_dataset_open(mixed, 2, &(qn_dataset_options){.shuffle = true}, &d, &error));
    int64_t count;
    EXPECT(!qn_dataset_rows(d, &count, &error) && count == 101 + 48);
    first.count = 0;
    EXPECT(take_all(d, 10, &first) && first.count == count);
    qn_dataset_close(d);
    const char *none = "/nowhere/day_*.gz";
    EXPECT(qn_dataset_open(&none, 1, NULL, &d, &error) == QN_BAD_FILE);
    EXPECT_TEXT(error.message, "no file is called /nowhere/day_*.gz");
}

TEST(metadata_file)
{
    qn_error error = {0};
    qn_dataset *d = make(3000, 11, NULL);
    qn_metadata *m, *back;
    EXPECT(!qn_metadata_gather(d, NULL, NULL, &m, &error));
    qn_dataset_close(d);
    const char *path = in_folder("metadata.json");
    EXPECT(!qn_metadata_write(m, path, &error));
    if (qn_metadata_read(path, &back, &error)) test_fail(path, 0, error.message);
    EXPECT(back->rows == 3000 && back->sparse_count == 26 && back->dense_count == 13);
    EXPECT(back->click_rate == m->click_rate);
    for (int i = 0; i < 26; i++) {
        EXPECT(back->sparse[i].cardinality == m->sparse[i].cardinality &&
               back->sparse[i].missing == m->sparse[i].missing);
        EXPECT(
            !memcmp(back->sparse[i].tokens, m->sparse[i].tokens, sizeof(int64_t) * (size_t)m->sparse[i].cardinality));
    }
    EXPECT(!memcmp(back->dense, m->dense, sizeof(qn_dense_facts) * 13));
    qn_metadata_free(back);
    qn_metadata_free(m);
    static const char *const texts[][2] = {
        {"{\"SPARSE_0\": {\"cardinality\": 2, \"tokenizer_values\": [5, 4]}}", "not in ascending order"},
        {"{\"SPARSE_0\": {\"cardinality\": 3, \"tokenizer_values\": [4, 5]}}", "not as many tokens"},
        {"{\"SPARSE_1\": {\"cardinality\": 3}}", "between the others is missing"},
        {"{\"SPARSE_0\": {\"cardinality\": 1.5}}", "not a whole number"},
        {"{\"SPARSE_0\": {\"cardinality\": 99999999999999999999}}", "too many digits"},
        {"{\"SPARSE_0\": {}}", "neither cardinality nor tokens"},
        {"{}", "names no column"},
        {"{\"DENSE_0\": {\"mean\": x y}}", "not a number"},
        {"{\"DENSE_0\": {\"mean\": 1}} 2", "text after the end"},
        {"[1]", "an object is missing"},
        {"{\"a\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "too deeply"}};
    for (int i = 0; i < COUNT(texts); i++) {
        EXPECT(!file_write(path, texts[i][0], strlen(texts[i][0]), &error));
        EXPECT(qn_metadata_read(path, &back, &error) == QN_BAD_FILE && !back);
        if (!strstr(error.message, texts[i][1])) test_text(error.message, texts[i][1], __FILE__, i);
    }
    const char *talk =
        "{\"SPARSE_0\": {\"cardinality\": 3, \"tokenizer_values\": [-1, 4, 4294967295]},\n\"other\": [{}, null]}";
    EXPECT(!file_write(path, talk, strlen(talk), &error));
    EXPECT(!qn_metadata_read(path, &back, &error));
    EXPECT(back->sparse_count == 1 && !back->dense_count && back->sparse[0].tokens[2] == 4294967295);
    qn_metadata_free(back);
}

/* Every refusal by its words. */
TEST(bad_logs)
{
    static char line[600], words[2000];
    int at = sprintf(line, "0");
    for (int i = 0; i < 13; i++) at += sprintf(line + at, "\t%d", i);
    for (int i = 0; i < 26; i++) at += sprintf(line + at, "\t%08x", i * 77);
    static const char *const bad[][2] = {
        {"", " is empty"},
        {"hello\n", "line 1: 1 field; a Criteo log has 40 on a line"},
        {"LINE\n2LINE\n", "line 2: field 1 `20` is not a label, 0 or 1"},
        {"LINE\nLINE\t1\n", "line 2: it does not have 40 fields separated by tabs"},
        {"LINE\n0\t1\t2\n", "line 2: it does not have 40 fields separated by tabs"},
        {"LINE\n\n\n0\tx\t2\n", "line 4: field 2 `x` is not a whole number"},
        {"LINE\nLINEg\n", "line 2: field 40 `00000785g` is not a hexadecimal category"}};
    qn_error error = {0};
    const char *path = in_folder("bad.tsv");
    for (int i = 0; i < COUNT(bad); i++) {
        words[0] = 0;
        for (const char *p = bad[i][0]; *p;) {
            bool whole = !strncmp(p, "LINE", 4);
            strncat(words, whole ? line : p, whole ? sizeof(line) : 1);
            p += whole ? 4 : 1;
        }
        EXPECT(!file_write(path, words, strlen(words), &error));
        qn_dataset *d = NULL;
        qn_status status = qn_dataset_open(&path, 1, NULL, &d, &error);
        qn_batch b = {.capacity = 10};
        if (!status) status = qn_dataset_next(d, &b, &error);
        EXPECT(status == QN_BAD_FILE);
        if (!strstr(error.message, bad[i][1])) test_text(error.message, bad[i][1], __FILE__, __LINE__);
        qn_dataset_close(d);
    }
    snprintf(words, sizeof(words), "%s\r\n\r\n%s", line + 2, line + 2); /* no labels, ends of DOS, no last end */
    EXPECT(!file_write(path, words, strlen(words), &error));
    qn_dataset *d = open_one(path, NULL);
    EXPECT(!qn_dataset_schema(d).has_labels);
    first.count = 0;
    EXPECT(take_all(d, 10, &first) && first.count == 2 && isnan(first.labels[1]) && first.sparse[1][25] == 25 * 77);
    qn_dataset_close(d);
}

/* Files that are cut anywhere give an error with the place, or the rows that came before. */
TEST(cut_files)
{
    qn_error error = {0};
    char *bytes;
    size_t size;
    const char *path = in_folder("cut.parquet");
    EXPECT(!file_read(QUERN_ROOT "/tests/data/spark.parquet", 1 << 20, &bytes, &size, &error));
    for (size_t cut = 0; cut < size; cut += 97) {
        EXPECT(!file_write(path, bytes, cut, &error));
        qn_dataset *d = NULL;
        EXPECT(qn_dataset_open(&path, 1, NULL, &d, &error) == QN_BAD_FILE);
    }
    int told = 0, wrong = 0;
    for (size_t at = 4; at < size - 9000; at += 37) { /* within pages */
        char keep = bytes[at];
        bytes[at] = (char)(bytes[at] ^ 0x55);
        EXPECT(!file_write(path, bytes, size, &error));
        qn_dataset *d = NULL;
        first.count = 0;
        qn_batch b = room_after(&first, 100);
        if (!qn_dataset_open(&path, 1, NULL, &d, &error) && qn_dataset_next(d, &b, &error)) {
            wrong++;
            told += strstr(error.message, "row group 0, column ") && strstr(error.message, ", page ");
        }
        qn_dataset_close(d);
        bytes[at] = keep;
    }
    EXPECT(wrong > 50 && told == wrong);
    free(bytes);
}

/* Bytes of few and of many kinds, around the lengths where the format changes, come back from the library's expander. */
TEST(snappy_shrinks)
{
    enum { MOST_BYTES = 200000 };
    if (codec_missing(CODEC_SNAPPY)) {
        printf("note: skipped Snappy: %s\n", codec_missing(CODEC_SNAPPY));
        return;
    }
    static const size_t around[] = {1, 4, 60, 61, 64, 68, 256, 257, 2048, 4096, 65536, 65540, 131072, MOST_BYTES - 3};
    uint8_t *data = malloc(MOST_BYTES), *back = malloc(MOST_BYTES);
    uint8_t *shrunk = malloc(codec_bound_bytes(CODEC_SNAPPY, MOST_BYTES));
    uint32_t state = 1;
    for (int kind = 0; kind < 8; kind++) {
        for (size_t i = 0; i < MOST_BYTES; i++) {
            state = state * 1664525u + 1013904223u;
            bool repeats = kind & 4 && i > 3000 && state >> 20 & 255;
            data[i] =
                repeats ? data[i - 3000 + 2990 * (size_t)(kind & 1)] : (uint8_t)((state >> 24) % (1u << 2 * kind % 9));
        }
        for (int n = 0; n < COUNT(around); n++)
            for (size_t size = around[n] - 1; size <= around[n] + 2; size++) {
                size_t length = codec_shrink(CODEC_SNAPPY, data, size, shrunk);
                EXPECT(length && length <= codec_bound_bytes(CODEC_SNAPPY, size));
                EXPECT(codec_expand(CODEC_SNAPPY, shrunk, length, back, size) && !memcmp(data, back, size));
            }
    }
    memset(data, 7, MOST_BYTES);
    EXPECT(codec_shrink(CODEC_SNAPPY, data, MOST_BYTES, shrunk) < MOST_BYTES / 15);
    free(data);
    free(back);
    free(shrunk);
}

TEST(gzip_logs)
{
    if (codec_missing(CODEC_GZIP)) {
        printf("note: skipped gzip logs: %s\n", codec_missing(CODEC_GZIP));
        return;
    }
    qn_error error = {0};
    char *bytes;
    size_t size;
    EXPECT(!file_read(QUERN_ROOT "/tests/data/rows.tsv", 1 << 20, &bytes, &size, &error));
    size_t times = 300, all = size * times;
    char *words = malloc(all), *shrunk = malloc(codec_bound_bytes(CODEC_GZIP, all) * 2);
    for (size_t i = 0; i < times; i++) memcpy(words + i * size, bytes, size);
    /* Two members, one after the other, as `cat a.gz b.gz` makes them. */
    size_t half = size * (times / 2), length = codec_shrink(CODEC_GZIP, words, half, shrunk);
    length += codec_shrink(CODEC_GZIP, words + half, all - half, shrunk + length);
    const char *path = in_folder("log.gz"), *plain = in_folder("log.tsv");
    EXPECT(!file_write(path, shrunk, length, &error) && !file_write(plain, words, all, &error));
    qn_dataset *d = open_one(path, NULL);
    first.count = second.count = 0;
    EXPECT(take_all(d, 1000, &first) && first.count == 48 * 300);
    qn_dataset_close(d);
    d = open_one(plain, NULL);
    EXPECT(take_all(d, 1000, &second) && same_rows(&first, &second));
    qn_dataset_close(d);
    EXPECT(!file_write(path, shrunk, length - 5000, &error));
    d = open_one(path, NULL);
    qn_status status = QN_OK;
    first.count = 0;
    for (qn_batch b = room_after(&first, 100); !status && first.count < MOST; first.count += b.rows) {
        b = room_after(&first, 100);
        status = qn_dataset_next(d, &b, &error);
        if (!b.rows) break;
    }
    EXPECT(status == QN_BAD_FILE && first.count > 7000);
    EXPECT(strstr(error.message, "the gzip file is cut short: fetch it again") && strstr(error.message, ": line "));
    qn_dataset_close(d);
    free(bytes);
    free(words);
    free(shrunk);
}

TEST(cleanup)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    EXPECT(!system(command));
}

TEST(beginning)
{
    snprintf(folder, sizeof(folder), "/tmp/quern-data-XXXXXX");
    EXPECT(mkdtemp(folder) != NULL);
}

TEST_MAIN(CASE(beginning), CASE(made_rows_are_fixed), CASE(oracle), CASE(signal_can_be_learnt), CASE(skew),
          CASE(codecs), CASE(nulls), CASE(shuffling), CASE(positions), CASE(splits), CASE(ranges), CASE(many_files),
          CASE(metadata_file), CASE(bad_logs), CASE(cut_files), CASE(snappy_shrinks), CASE(gzip_logs), CASE(cleanup))
