/*
 * Data sets in files: folders and patterns, metadata, logs that are wrong or cut, what codecs shrink, compressed logs.
 * SPDX-License-Identifier: MIT
 */
#include "data_sets.h"

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

TEST_MAIN(CASE(beginning), CASE(many_files), CASE(metadata_file), CASE(bad_logs), CASE(cut_files), CASE(snappy_shrinks),
          CASE(gzip_logs), CASE(cleanup))
