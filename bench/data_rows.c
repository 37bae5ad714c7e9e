/*
 * How fast data sets are read. Usage: bench_data [--threads N] [--shuffle] [--batch N] FILES... (none: made rows)
 * Reads the files into batches three times and prints the rows per second of each round, with the time of all threads.
 * SPDX-License-Identifier: MIT
 */
#include <quern/data.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int count, char **words)
{
    qn_dataset_options options = {0};
    int at = 1;
    int64_t batch_rows = 2048;
    for (; at < count && words[at][0] == '-'; at++) {
        if (!strcmp(words[at], "--shuffle"))
            options.shuffle = true;
        else if (!strcmp(words[at], "--threads") && at + 1 < count)
            options.threads = atoi(words[++at]);
        else if (!strcmp(words[at], "--batch") && at + 1 < count)
            batch_rows = atoll(words[++at]);
        else
            return fprintf(stderr, "usage: bench_data [--threads N] [--shuffle] [--batch N] FILES...\n"), 2;
    }
    qn_error error;
    qn_dataset *data;
    qn_make_options make = {.rows = 1000000, .seed = 1};
    qn_status status = at < count
                           ? qn_dataset_open((const char *const *)words + at, count - at, &options, &data, &error)
                           : qn_dataset_make(&make, &options, &data, &error);
    if (status) return fprintf(stderr, "%s\n", error.message), 1;
    qn_schema schema = qn_dataset_schema(data);
    qn_batch batch = {.capacity = batch_rows,
                      .labels = malloc((size_t)batch_rows * 4),
                      .dense = malloc((size_t)batch_rows * 4 * (size_t)schema.dense_count + 1),
                      .sparse = malloc((size_t)batch_rows * 8 * (size_t)schema.sparse_count + 1)};
    for (int round = 0; round < 3; round++) {
        double start = seconds(CLOCK_MONOTONIC), work = seconds(CLOCK_PROCESS_CPUTIME_ID);
        int64_t rows = 0;
        double sum = 0;
        do {
            if (qn_dataset_next(data, &batch, &error)) return fprintf(stderr, "%s\n", error.message), 1;
            rows += batch.rows;
            for (int64_t i = 0; i < batch.rows; i++) sum += (double)batch.labels[i];
        } while (batch.rows);
        double took = seconds(CLOCK_MONOTONIC) - start;
        work = seconds(CLOCK_PROCESS_CPUTIME_ID) - work;
        printf("%lld rows in %.3f s: %.2f million rows/s; %.3f s of all threads: %.2f million rows/s of one; %.0f "
               "clicks\n",
               (long long)rows, took, (double)rows / took * 1e-6, work, (double)rows / work * 1e-6, sum);
        if (qn_dataset_rewind(data, &error)) return fprintf(stderr, "%s\n", error.message), 1;
    }
    free(batch.labels);
    free(batch.dense);
    free(batch.sparse);
    qn_dataset_close(data);
    return 0;
}
