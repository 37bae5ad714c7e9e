/*
 * Wrong CUDA kernels, as people wrote them, under the checked mode of `emu`: every file of tests/wrong/raw says in its
 * first line which kernel to check, with which sizes, and what must be said of it:
 *     // check NAME with n=10 m=20: WORDS
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "test.h"

#include <dirent.h>
#include <quern/device.h>
#include <quern/workbench.h>
#include <stdlib.h>

#define FOLDER QUERN_ROOT "/tests/wrong/raw"

static qn_context *context;

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static void check_file(const char *path)
{
    char *words = NULL, *rest = NULL;
    size_t length;
    qn_error error;
    const char *items[8];
    int count = 0;
    if (file_read(path, 1 << 20, &words, &length, &error) != QN_OK) {
        test_fail(path, 1, error.message);
        return;
    }
    words[strcspn(words, "\n")] = 0;
    char *with = strstr(words, " with "), *expected = with ? strstr(with, ": ") : NULL;
    if (strncmp(words, "// check ", 9) || !expected) {
        free(words);
        test_fail(path, 1, "the first line says what to check");
        return;
    }
    *with = *expected = 0;
    expected += 2;
    for (char *item = strtok_r(with + 6, " ", &rest); item && count < COUNT(items); item = strtok_r(NULL, " ", &rest))
        items[count++] = item;
    qn_check_options options = {.kernel = words + 9, .device = "emu", .settings = {.items = items, .count = count}};
    text said = {0};
    EXPECT(qn_check_file(context, path, &options, collect, &said, &error) == QN_FINDING);
    bool there = strstr(text_get(&said), expected) != NULL;
    if (!there) printf("%s: expected: %s\nsaid: %s%s\n", path, expected, text_get(&said), error.message);
    EXPECT(there);
    text_free(&said);
    free(words);
}

TEST(every_file)
{
    qn_error error;
    qn_device_info info;
    EXPECT(qn_context_open(&(qn_context_options){.allow_raw = true}, &context, &error) == QN_OK);
    if (qn_device_find(context, "emu", &info, &error) != QN_OK || !info.available) {
        printf("note: skipped wrong raw kernels: %s\n", info.description);
    } else {
        DIR *entries = opendir(FOLDER);
        int count = 0;
        for (struct dirent *entry; entries && (entry = readdir(entries));) {
            const char *dot = strrchr(entry->d_name, '.');
            char path[1024];
            if (!dot || strcmp(dot, ".qn")) continue;
            snprintf(path, sizeof(path), FOLDER "/%s", entry->d_name);
            check_file(path);
            count++;
        }
        if (entries) closedir(entries);
        EXPECT(count >= 7);
    }
    qn_context_close(context);
}

TEST_MAIN(CASE(every_file))
