/*
 * Safetensors files: what is written comes back, every dtype, with the alignment and the header the format asks for; hostile
 * headers are refused with the tensor's name; the fuzzer's corpus and seeded changes of it. Files of the Python package are
 * read in test_model_layers.c, and ours by it in tests/scripts/safetensors.sh.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "fuzz/fuzz_safetensors.c"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/quern_test_safetensors_XXXXXX";

static const char *place(const char *name)
{
    static char path[256];
    static bool made;
    if (!made) made = mkdtemp(folder) != NULL;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

TEST(every_type_comes_back)
{
    qn_error error;
    unsigned char bytes[QN_BOOL + 1][64], back[64];
    char names[QN_BOOL + 1][16];
    qn_safetensor all[QN_BOOL + 3];
    for (int t = 0; t <= QN_BOOL; t++) {
        size_t size = qn_dtype_size_bytes((qn_dtype)t) * 6;
        for (size_t i = 0; i < size; i++) bytes[t][i] = (unsigned char)(t == QN_BOOL ? i % 2 : i * 7 + (size_t)t);
        snprintf(names[t], sizeof(names[t]), "t.%d", t);
        all[t] = (qn_safetensor){names[t], (qn_dtype)t, 2, {2, 3}, bytes[t], size};
    }
    all[QN_BOOL + 1] = (qn_safetensor){"none", QN_F32, 2, {0, 5}, NULL, 0};
    all[QN_BOOL + 2] = (qn_safetensor){"one \"quoted\" \xc3\xa9", QN_F64, 0, {0}, bytes[QN_F64], 8};
    EXPECT(!qn_safetensors_write(place("all"), all, QN_BOOL + 3, NULL, &error));
    qn_safetensors *file = NULL;
    EXPECT(!qn_safetensors_open(place("all"), &file, &error));
    EXPECT(qn_safetensors_count(file) == QN_BOOL + 3);
    for (int i = 0; i < QN_BOOL + 3; i++) {
        int at = qn_safetensors_find(file, all[i].name);
        const qn_safetensor *t = qn_safetensors_get(file, at);
        EXPECT(t && t->type == all[i].type && t->rank == all[i].rank && t->size_bytes == all[i].size_bytes);
        EXPECT(!memcmp(t->extents, all[i].extents, sizeof(int64_t) * (size_t)t->rank));
        EXPECT(!qn_safetensors_read(file, at, back, t->size_bytes, &error));
        EXPECT(!t->size_bytes || !memcmp(back, all[i].data, t->size_bytes));
        EXPECT(qn_safetensors_read(file, at, back, t->size_bytes + 1, &error) == QN_BAD_CALL);
    }
    qn_safetensors_close(file);
    /* data begins at a multiple of 8, and wide types come first: every tensor is aligned */
    char *words;
    size_t size;
    EXPECT(!file_read(place("all"), 1 << 20, &words, &size, &error));
    uint64_t length;
    memcpy(&length, words, 8);
    EXPECT(length % 8 == 0 && words[8] == '{');
    const char *narrow = strstr(words + 8, "\"U8\""), *wide = strstr(words + 8, "\"I64\"");
    EXPECT(narrow && wide && wide < narrow);
    free(words);
}

TEST(wrong_writes)
{
    qn_error error;
    float x[2] = {1, 2};
    qn_safetensor two[2] = {{"a", QN_F32, 1, {2}, x, 8}, {"a", QN_F32, 1, {2}, x, 8}};
    EXPECT(qn_safetensors_write(place("wrong"), two, 2, NULL, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "two tensors are named `a`"));
    two[1] = (qn_safetensor){"b", QN_F32, 1, {3}, x, 8};
    EXPECT(qn_safetensors_write(place("wrong"), two, 2, NULL, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "tensor `b`: 8 bytes do not fit its type and shape"));
    EXPECT(access(place("wrong"), F_OK) != 0);
    EXPECT(qn_safetensors_write(place("no/folder"), two, 1, NULL, &error) == QN_BAD_FILE);
}

static void expect_refused(const char *header, uint64_t data_bytes, const char *words, int line)
{
    qn_error error = {0};
    if (safetensors_check("x", header, strlen(header), data_bytes, &error) != QN_BAD_FILE)
        test_fail(__FILE__, line, "it should be refused");
    test_text(error.message, words, __FILE__, line);
}
#define EXPECT_REFUSED(header, data_bytes, words) expect_refused((header), (data_bytes), (words), __LINE__)
#define ONE(dtype, shape, offsets) "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

TEST(hostile_headers)
{
    qn_error error;
    const char *good = ONE("F32", "[2]", "[0,8]");
    EXPECT(!safetensors_check("x", good, strlen(good), 8, &error));
    EXPECT(!safetensors_check("x", "{}", 2, 0, &error));
    EXPECT_REFUSED("", 0, "x: not a safetensors file: its header is not a JSON object");
    EXPECT_REFUSED("[]", 0, "x: not a safetensors file: its header is not a JSON object");
    EXPECT_REFUSED("{} x", 0, "x: not a safetensors file: its header has text after the object");
    EXPECT_REFUSED("{\"a", 0, "x: not a safetensors file: its header ends within a text");
    EXPECT_REFUSED("{\"a\":1}", 0, "x: tensor `a`: its entry is not an object");
    EXPECT_REFUSED("{\"a\":{}}", 0, "x: tensor `a`: its header lacks a text where one must be");
    EXPECT_REFUSED("{\"a\":{\"dtype\":\"F32\"}}", 0, "x: tensor `a`: its entry lacks dtype, shape or data_offsets");
    EXPECT_REFUSED(ONE("F8_E5M2", "[2]", "[0,2]"), 2, "x: tensor `a`: its type `F8_E5M2` is none that Quern has");
    EXPECT_REFUSED(ONE("F32", "[2]", "[0,4]"), 4, "x: tensor `a`: its data_offsets do not fit its type and shape");
    EXPECT_REFUSED(ONE("F32", "[2]", "[8,0]"), 8, "x: tensor `a`: its data_offsets do not fit its type and shape");
    EXPECT_REFUSED(ONE("F32", "[2]", "[8,16]"), 16, "x: tensor `a`: there is a hole before its data");
    EXPECT_REFUSED(ONE("F32", "[2]", "[0,8]"), 9, "x: not a safetensors file: there is data after the last tensor");
    EXPECT_REFUSED(ONE("F32", "[2]", "[0,8]"), 4, "x: tensor `a`: its data is beyond the end of the file");
    EXPECT_REFUSED(ONE("F32", "[-2]", "[0,8]"), 8, "x: tensor `a`: a whole number was expected");
    EXPECT_REFUSED(ONE("F32", "[2.0]", "[0,8]"), 8, "x: tensor `a`: a whole number was expected");
    EXPECT_REFUSED(ONE("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "x: tensor `a`: it has more than 8 axes");
    EXPECT_REFUSED(ONE("F32", "[99999999999999999999]", "[0,8]"), 8,
                   "x: tensor `a`: a number of its header is too large");
    EXPECT_REFUSED(ONE("F64", "[4294967296,4294967296]", "[0,0]"), 0, "x: tensor `a`: its shape is too large");
    EXPECT_REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
                   6, "x: tensor `b`: its data overlaps that of another tensor");
    EXPECT_REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                   "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                   8, "x: tensor `a`: it is in the header twice");
    EXPECT_REFUSED("{\"__metadata__\":{\"a\":1}}", 0,
                   "x: not a safetensors file: its header lacks a text where one must be");
    EXPECT_REFUSED("{\"__metadata__\":{},\"__metadata__\":{}}", 0,
                   "x: not a safetensors file: it has __metadata__ twice");
    EXPECT_REFUSED("{\"\\ud800\":{}}", 0, "x: not a safetensors file: its header has half a surrogate pair");
}

TEST(hostile_files)
{
    qn_error error;
    qn_safetensors *file = NULL;
    const struct {
        unsigned char bytes[16];
        size_t count;
        const char *words;
    } files[] = {{{0}, 0, "it is shorter than 8 bytes"},
                 {{255, 255, 255, 255, 255, 255, 255, 255, '{', '}'}, 10, "its header would be longer than 100 MB"},
                 {{200, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, 10, "its header is longer than the file"}};
    for (int i = 0; i < COUNT(files); i++) {
        EXPECT(!file_write(place("hostile"), files[i].bytes, files[i].count, &error));
        EXPECT(qn_safetensors_open(place("hostile"), &file, &error) == QN_BAD_FILE && !file);
        if (!strstr(error.message, files[i].words)) test_text(error.message, files[i].words, __FILE__, __LINE__);
    }
    EXPECT(qn_safetensors_open("/tmp", &file, &error) == QN_BAD_FILE);
    EXPECT(qn_safetensors_open(place("missing"), &file, &error) == QN_BAD_FILE && strstr(error.message, "cannot open"));
    EXPECT(qn_safetensors_count(NULL) == 0 && qn_safetensors_find(NULL, "a") == -1);
    /* nobody writes to it: it is not waited for */
    EXPECT(mkfifo(place("pipe"), 0600) == 0);
    EXPECT(qn_safetensors_open(place("pipe"), &file, &error) == QN_BAD_FILE &&
           strstr(error.message, "not a plain file"));
    /* cut short after it was opened */
    float x[2] = {1, 2};
    EXPECT(!qn_safetensors_write(place("cut"), &(qn_safetensor){"a", QN_F32, 1, {2}, x, 8}, 1, NULL, &error));
    EXPECT(!qn_safetensors_open(place("cut"), &file, &error) && truncate(place("cut"), 70) == 0);
    EXPECT(qn_safetensors_read(file, 0, x, 8, &error) == QN_BAD_FILE);
    qn_safetensors_close(file);
}

/* What is written over keeps its rights, a link stays a link, and a device is written to and not replaced. */
TEST(places_stay_what_they_are)
{
    qn_error error;
    float x[2] = {1, 2};
    struct stat about;
    const qn_safetensor one = {"a", QN_F32, 1, {2}, x, 8};
    EXPECT(!qn_safetensors_write(place("real"), &one, 1, NULL, &error) && !chmod(place("real"), 0600));
    EXPECT(!symlink("real", place("link")) && !qn_safetensors_write(place("link"), &one, 1, NULL, &error));
    EXPECT(!lstat(place("link"), &about) && S_ISLNK(about.st_mode));
    EXPECT(!lstat(place("real"), &about) && (about.st_mode & 0777) == 0600);
    EXPECT(!symlink("/dev/full", place("full")));
    EXPECT(qn_safetensors_write(place("full"), &one, 1, NULL, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "No space left on device"));
    EXPECT(!lstat(place("full"), &about) && S_ISLNK(about.st_mode));
    EXPECT(qn_safetensors_write("/tmp", &one, 1, NULL, &error) == QN_BAD_FILE && strstr(error.message, "directory"));
}

/* ---- the corpus, and seeded changes of it ---- */

static uint64_t state = 0x9e3779b97f4a7c15;

static size_t below(size_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (size_t)(state % limit) : 0;
}

TEST(corpus_and_mutations)
{
    static const char *const words[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "\\u",
                                        "\"F32\"",
                                        "\"shape\":",
                                        "\"dtype\":",
                                        "\"data_offsets\":",
                                        "__metadata__",
                                        "0",
                                        "18446744073709551615",
                                        "-1",
                                        "1e9",
                                        "\n"};
    qn_error error;
    DIR *corpus = opendir(QUERN_ROOT "/tests/fuzz/safetensors");
    int seeds = 0;
    EXPECT(corpus != NULL);
    for (struct dirent *entry; corpus && (entry = readdir(corpus));) {
        char path[600], *data, changed[2048];
        size_t size;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof(path), QUERN_ROOT "/tests/fuzz/safetensors/%s", entry->d_name);
        if (file_read(path, 1024, &data, &size, &error)) {
            test_fail(__FILE__, __LINE__, error.message);
            continue;
        }
        seeds++;
        LLVMFuzzerTestOneInput((const uint8_t *)data, size);
        for (int i = 0; i < 4000; i++) {
            size_t length = size;
            memcpy(changed, data, size);
            for (size_t k = 1 + below(5); k > 0; k--) {
                const char *word = words[below(COUNT(words))];
                size_t at = below(length), more = strlen(word);
                if (below(2) && length + more < sizeof(changed)) {
                    memmove(changed + at + more, changed + at, length - at);
                    memcpy(changed + at, word, more);
                    length += more;
                } else if (below(2)) {
                    changed[at] = (char)below(256);
                } else {
                    length = at + 1;
                }
            }
            LLVMFuzzerTestOneInput((const uint8_t *)changed, length);
        }
        free(data);
    }
    if (corpus) closedir(corpus);
    EXPECT(seeds >= 5);
}

TEST(cases_end)
{
    char command[300];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    EXPECT(system(command) == 0);
}

TEST_MAIN(CASE(every_type_comes_back), CASE(wrong_writes), CASE(hostile_headers), CASE(hostile_files),
          CASE(places_stay_what_they_are), CASE(corpus_and_mutations), CASE(cases_end))
