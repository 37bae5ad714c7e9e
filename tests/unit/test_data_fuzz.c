/*
 * The readers of data files under seeded damage: the fuzzer's corpus and the files of other programs, replayed and with
 * bytes changed, cut, doubled and exchanged. No fuzzer is needed; tools/fuzz runs the same function for long.
 * QUERN_FUZZ=PERCENT runs more or fewer of the changes, QUERN_FUZZ_SEED=NUMBER others. SPDX-License-Identifier: MIT
 */
#include "share.h"
#include "test.h"

#include "fuzz/fuzz_data.c"

#include <dirent.h>

#define MUTATIONS 6000
#define SIZE_LIMIT_BYTES 32768

typedef struct seed {
    char *data;
    size_t size_bytes;
} seed;
static seed seeds[256];
static int seed_count;

static void read_folder(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char name[1024];
        qn_error error;
        if (entry->d_name[0] == '.' || strstr(entry->d_name, ".py") || seed_count == COUNT(seeds)) continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        seed *s = &seeds[seed_count];
        if (file_read(name, SIZE_LIMIT_BYTES, &s->data, &s->size_bytes, &error) == QN_OK)
            seed_count++;
        else
            test_fail(name, 1, error.message);
    }
    if (folder) closedir(folder);
}

static uint64_t state = 0x9e3779b97f4a7c15;

static size_t below(size_t limit)
{
    state += 0x9e3779b97f4a7c15u;
    return limit ? (size_t)(mix64(state) % limit) : 0;
}

static size_t mutate(char *data, size_t size)
{
    size_t at = below(size + 1), count = 1 + below(24);
    count = MINIMUM(count, size - at);
    const seed *other = &seeds[below((size_t)seed_count)];
    switch (below(6)) {
    case 0: /* cut a piece out */ memmove(data + at, data + at + count, size - at - count); return size - count;
    case 1: /* double it */
        if (size + count > SIZE_LIMIT_BYTES) return size;
        memmove(data + at + count, data + at, size - at);
        return size + count;
    case 2: /* a piece of another file over it */
        for (size_t i = 0; i < count && i < other->size_bytes; i++)
            data[at + i] = other->data[(at + i) % other->size_bytes];
        return size;
    case 3: /* a number that is on an edge */
        if (at < size) data[at] = (char)(below(2) ? 0xff : below(2) ? 0x7f : 0);
        return size;
    default: /* a bit of it, or a byte */
        if (at < size) data[at] = (char)(below(2) ? data[at] ^ 1 << below(8) : (int)below(256));
        return size;
    }
}

TEST(corpus)
{
    read_folder(QUERN_ROOT "/tests/fuzz/data");
    read_folder(QUERN_ROOT "/tests/data");
    EXPECT(seed_count > 20);
    for (int i = 0; i < seed_count; i++) {
        char *copy = malloc(seeds[i].size_bytes + 1); /* exactly as long, so that a sanitizer sees its end */
        memcpy(copy, seeds[i].data, seeds[i].size_bytes);
        LLVMFuzzerTestOneInput((const uint8_t *)copy, seeds[i].size_bytes);
        free(copy);
    }
}

TEST(mutations)
{
    const char *percent = getenv("QUERN_FUZZ"), *other = getenv("QUERN_FUZZ_SEED");
    if (other) state ^= mix64(strtoull(other, NULL, 10));
    int count = percent ? MAXIMUM(MUTATIONS * atoi(percent) / 100, 1) : count_from("QUERN_FUZZ", "changes", MUTATIONS);
    char *data = malloc(SIZE_LIMIT_BYTES + 64);
    for (int i = 0; i < count && seed_count; i++) {
        const seed *from = &seeds[below((size_t)seed_count)];
        size_t size = from->size_bytes;
        memcpy(data, from->data, size);
        for (size_t k = 1 + below(4); k > 0; k--) size = mutate(data, size);
        LLVMFuzzerTestOneInput((const uint8_t *)data, size);
    }
    free(data);
}

TEST(corpus_ends)
{
    for (int i = 0; i < seed_count; i++) free(seeds[i].data);
    seed_count = 0;
}

TEST_MAIN(CASE(corpus), CASE(mutations), CASE(corpus_ends))
