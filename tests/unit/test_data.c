/*
 * Data sets: made rows and their signal, files written and read back with every codec, shuffling and splits, positions
 * that are told and gone back to, ranges, folders and patterns, metadata, refusals by their words.
 * SPDX-License-Identifier: MIT
 */
#include "data_sets.h"

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

TEST_MAIN(CASE(beginning), CASE(made_rows_are_fixed), CASE(oracle), CASE(signal_can_be_learnt), CASE(skew),
          CASE(codecs), CASE(nulls), CASE(shuffling), CASE(positions), CASE(splits), CASE(ranges), CASE(cleanup))
