/*
 * Data sets in a folder of their own: shared by test_data.c and test_data_logs.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_DATA_SETS_H
#define QUERN_TESTS_DATA_SETS_H

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

#endif
