/*
 * Files of other programs: those of tests/data hold the rows of tests/data/rows.tsv as pandas, pyarrow, DuckDB, Spark and
 * fastparquet write them (make_fixtures.py made them). Each is read and compared, value by value; the first two rows are
 * those that the talk prints, down to the indices its model looked up.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "base/base.h"
#include "data/codec.h"
#include <quern/data.h>
#include <stdlib.h>
#include <unistd.h>

#define FOLDER QUERN_ROOT "/tests/data/"
#define ROWS 48

typedef struct rows {
    int64_t count;
    float labels[ROWS], dense[ROWS][13];
    int64_t sparse[ROWS][26], numbers[ROWS];
} rows;

static const char *const files[] = {
    "pandas", "arrow_v2_zstd",  "arrow_lz4_plain", "arrow_gzip_delta", "arrow_small_pages", "arrow_other_types",
    "duckdb", "duckdb_v2_zstd", "spark",           "spark_lz4",        "spark_lz4_raw",     "fastparquet"};

static bool read_rows(const char *path, const qn_dataset_options *options, int64_t batch_rows, rows *to)
{
    qn_error error = {0};
    qn_dataset *d;
    to->count = 0;
    if (qn_dataset_open(&path, 1, options, &d, &error)) {
        test_fail(path, 0, error.message);
        return false;
    }
    qn_schema schema = qn_dataset_schema(d);
    bool sound = schema.dense_count == 13 && schema.sparse_count == 26;
    for (qn_batch b = {.rows = 1}; sound && b.rows && to->count < ROWS;) {
        b.capacity = MINIMUM(batch_rows, ROWS - to->count);
        b.labels = to->labels + to->count;
        b.dense = to->dense[to->count];
        b.sparse = to->sparse[to->count];
        b.row_numbers = to->numbers + to->count;
        if (qn_dataset_next(d, &b, &error)) {
            test_fail(path, 0, error.message);
            sound = false;
        }
        to->count += b.rows;
    }
    qn_dataset_close(d);
    return sound;
}

/* The fixtures need what their writers compress with. */
static bool codecs_missing(void)
{
    static const codec needed[] = {CODEC_SNAPPY, CODEC_ZSTD, CODEC_GZIP, CODEC_LZ4};
    for (int i = 0; i < COUNT(needed); i++) {
        if (!codec_missing(needed[i])) continue;
        printf("note: skipped files of other programs: they are compressed with %s\n", codec_missing(needed[i]));
        return true;
    }
    return false;
}

TEST(every_writer)
{
    rows log, file;
    if (codecs_missing()) return;
    EXPECT(read_rows(FOLDER "rows.tsv", NULL, ROWS, &log));
    EXPECT(log.count == ROWS);
    for (int i = 0; i < COUNT(files); i++)
        for (int batch = 1; batch <= ROWS; batch += 47) {
            char path[512];
            snprintf(path, sizeof(path), FOLDER "%s.parquet", files[i]);
            if (!read_rows(path, NULL, batch, &file)) continue;
            bool same = file.count == ROWS && !memcmp(file.labels, log.labels, sizeof(log.labels)) &&
                        !memcmp(file.dense, log.dense, sizeof(log.dense)) &&
                        !memcmp(file.sparse, log.sparse, sizeof(log.sparse));
            if (!same) test_fail(path, batch, "other rows than rows.tsv");
        }
}

TEST(missing_fields)
{
    rows log, file;
    if (codecs_missing()) return;
    qn_dataset_options keep = {.missing = QN_MISSING_NAN}, refuse = {.missing = QN_MISSING_REFUSE};
    EXPECT(read_rows(FOLDER "rows.tsv", &keep, 7, &log));
    EXPECT(read_rows(FOLDER "duckdb.parquet", &keep, 7, &file));
    int missing = 0;
    for (int r = 0; r < ROWS; r++) {
        EXPECT(file.numbers[r] == r);
        for (int i = 0; i < 13; i++) {
            missing += isnan(log.dense[r][i]);
            EXPECT(isnan(log.dense[r][i]) == isnan(file.dense[r][i]));
        }
    }
    EXPECT(missing > 20);
    const char *paths[] = {FOLDER "rows.tsv", FOLDER "duckdb.parquet"};
    const char *words[] = {"rows.tsv: line 3: field ", "duckdb.parquet: row group 0, column "};
    for (int i = 0; i < 2; i++) {
        qn_error error;
        qn_dataset *d;
        float labels[ROWS];
        qn_batch b = {.capacity = ROWS, .labels = labels};
        EXPECT(!qn_dataset_open(&paths[i], 1, &refuse, &d, &error));
        EXPECT(qn_dataset_next(d, &b, &error) == QN_BAD_FILE);
        EXPECT(strstr(error.message, words[i]) != NULL);
        qn_dataset_close(d);
    }
}

static const float first_dense[2][13] = {{5, 110, 0, 16, 0, 1, 0, 14, 7, 1, 0, 306, 0},
                                         {32, 3, 5, 0, 1, 0, 0, 61, 5, 0, 1, 3157, 5}};
static const int64_t first_sparse[2][26] = {
    {0x62770d79, 0xe21f5d58, 0xafea442f, 0x945c7fcf, 0x38b02748, 0x6fcd6dcb, 0x3580aa21, 0x28808903, 0x46dedfa6,
     0x2e027dc1, 0x0c7c4231, 0x95981d1f, 0x00c5ffb7, 0xbe4ee537, 0x8a0b74cc, 0x4cdc3efa, 0xd20856aa, 0xb8170bba,
     0x9512c20b, 0xc38e2f28, 0x14f65a5d, 0x25b1b089, 0xd7c1fc0b, 0x7caf609c, 0x30436bfc, 0xed10571d},
    {0xe5f3fd8d, 0xa0aaffa6, 0x6faa15d5, 0xda8a3421, 0x3cd69f23, 0x6fcd6dcb, 0xab16ed81, 0x43426c29, 0x1df5e154,
     0x7de9c0a9, 0x6652dc64, 0x99eb4e27, 0x00c5ffb7, 0xbe4ee537, 0xf3bbfe99, 0x4cdc3efa, 0xd20856aa, 0xa1eb1511,
     0x9512c20b, 0xfebfd863, 0xa3323ca1, 0xc8e1ee56, 0x1752e9e8, 0x75350c8a, 0x991321ea, 0xb757e957}};
static const int64_t cardinalities[26] = {1234907, 19682,   13779,  6866,    18489, 3,    6263, 1234, 49,
                                          854680,  114026,  75735,  10,      2159,  7532, 61,   4,    918,
                                          14,      1307783, 404742, 1105613, 87714, 9031, 76,   33};
static const int64_t indices[2][26] = {
    {898743, 829,  333, 216, 12818, 2, 5187,   352,    5,       139162, 4240, 67682, 6,
     60,     6989, 35,  3,   711,   0, 955541, 373254, 1097035, 33060,  8756, 25,    25},
    {123154, 12817, 11067, 5206, 13159, 2, 4737,   174,    48,     556930, 44975, 74456, 6,
     60,     842,   35,    3,    792,   0, 150792, 303642, 341391, 17647,  951,   7,     21}};

TEST(rows_of_the_talk)
{
    rows file;
    if (codecs_missing()) return;
    EXPECT(read_rows(FOLDER "pandas.parquet", NULL, 2, &file));
    for (int r = 0; r < 2; r++) {
        EXPECT(file.labels[r] == 0);
        for (int i = 0; i < 13; i++) EXPECT(file.dense[r][i] == first_dense[r][i]);
        for (int i = 0; i < 26; i++) {
            EXPECT(file.sparse[r][i] == first_sparse[r][i]);
            EXPECT((file.sparse[r][i] + 1) % cardinalities[i] == indices[r][i]);
        }
    }
}

/* What Quern does not read it names. */
TEST(refusals)
{
    static const char *const bad[][2] = {
        {"brotli.parquet",
         "row group 0, column DENSE_0, page 0: it is compressed with Brotli, which Quern does not read: "
         "write it with zstd or snappy"},
        {"metadata.json", "line 1: 1 field; a Criteo log has 40 on a line"}};
    for (int i = 0; i < COUNT(bad); i++) {
        char path[512];
        snprintf(path, sizeof(path), QUERN_ROOT "/tests/fuzz/data/%s", bad[i][0]);
        const char *paths[] = {path};
        qn_error error = {0};
        qn_dataset *d = NULL;
        qn_batch b = {.capacity = 8};
        qn_status status = qn_dataset_open(paths, 1, NULL, &d, &error);
        if (!status) status = qn_dataset_next(d, &b, &error);
        EXPECT(status == QN_BAD_FILE);
        if (!strstr(error.message, bad[i][1])) test_text(error.message, bad[i][1], __FILE__, __LINE__);
        qn_dataset_close(d);
    }
    qn_dataset_options other = {.dense_prefix = "I", .label_column = "clicked"};
    const char *path = FOLDER "pandas.parquet";
    qn_error error;
    qn_dataset *d;
    EXPECT(qn_dataset_open(&path, 1, &other, &d, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "there is no column clicked"));
    other = (qn_dataset_options){.dense_prefix = "I", .sparse_prefix = "C"};
    EXPECT(qn_dataset_open(&path, 1, &other, &d, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "no column begins with I or C; its columns are labels, DENSE_0, DENSE_1"));
}

TEST_MAIN(CASE(every_writer), CASE(missing_fields), CASE(rows_of_the_talk), CASE(refusals))
