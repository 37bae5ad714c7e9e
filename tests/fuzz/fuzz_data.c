/*
 * Reads bytes as a data file: Parquet, a log (plain or gzip), or metadata. Whatever they are, opening and reading must end
 * in rows or in an error with words. Built by tools/fuzz for long runs (`tools/fuzz data`), and included by
 * tests/unit/test_data_fuzz.c. SPDX-License-Identifier: MIT
 */
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_block(source *s, int64_t block, int64_t skip, const row_memory *to, int64_t rows)
{
    qn_error error = {0};
    int64_t got = 1;
    if (s->kind->begin(s, block, skip, &error)) {
        CHECK(strlen(error.message) > 0);
        return;
    }
    for (int i = 0; i < 8 && got; i++) {
        if (s->kind->read(s, to, rows, &got, &error)) {
            CHECK(strlen(error.message) > 0);
            return;
        }
        CHECK(got >= 0 && got <= rows);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pool *workers; /* one for all inputs */
    if (!workers) workers = pool_new(1);
    qn_error error = {0};
    if (size && data[0] == '{') {
        qn_metadata *m;
        if (metadata_parse("fuzz", (const char *)data, size, &m, &error)) CHECK(strlen(error.message) > 0);
        qn_metadata_free(m);
        return 0;
    }
    qn_dataset_options options = {.missing = (qn_missing)(size % 3)};
    data_file file = {.path = "fuzz", .descriptor = -1, .bytes = data, .size_bytes = (int64_t)size};
    source *s;
    if (source_open_file(file, &options, workers, &s, &error)) {
        CHECK(strlen(error.message) > 0 && !s);
        return 0;
    }
    size_t rows = 300;
    row_memory to = {.labels = malloc(rows * 4),
                     .dense = malloc(rows * 4 * (size_t)s->schema.dense_count + 1),
                     .sparse = malloc(rows * 8 * (size_t)s->schema.sparse_count + 1),
                     .probabilities = malloc(rows * 8)};
    for (int64_t b = 0; b < MINIMUM(s->block_count, (int64_t)3); b++) {
        read_block(s, b, 0, &to, (int64_t)rows);
        if (b == 1) s->kind->rest(s);
        read_block(s, b, (int64_t)(size % 40), &to, (int64_t)rows);
    }
    free(to.labels);
    free(to.dense);
    free(to.sparse);
    free(to.probabilities);
    source_close(s);
    return 0;
}
