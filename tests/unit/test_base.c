/*
 * base: arena, text, map, hash, suggestions, files, processes.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "quiet.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TEST(arena_gives_zeroed_aligned_memory)
{
    arena *a = arena_new();
    for (size_t size = 1; size < 200000; size = size * 3 + 1) {
        unsigned char *p = arena_alloc(a, size);
        EXPECT((uintptr_t)p % 16 == 0);
        int sum = 0;
        for (size_t i = 0; i < size; i++) sum += p[i];
        EXPECT(sum == 0);
        memset(p, 255, size);
    }
    int *items = NULL, count = 0, capacity = 0;
    for (int i = 0; i < 1000; i++) ARENA_PUSH(a, items, count, capacity, i);
    for (int i = 0; i < 1000; i++) EXPECT(items[i] == i);
    EXPECT_TEXT(arena_print(a, "%d-%s", 7, "x"), "7-x");
    arena_free(a);
}

TEST(text_grows_and_quotes)
{
    text t = {0};
    EXPECT_TEXT(text_get(&t), "");
    for (int i = 0; i < 1000; i++) text_print(&t, "%d,", i);
    EXPECT(t.length == 3890 && t.data[t.length] == 0);
    text_clear(&t);
    text_add_quoted(&t, "a\"b\\\n\x01", 6);
    EXPECT_TEXT(text_get(&t), "\"a\\\"b\\\\\\n\\x01\"");
    static const double numbers[] = {0.1, 1e300, 5e-324, -0.0, 1.0 / 3, 123456789.0};
    for (int i = 0; i < COUNT(numbers); i++) {
        text_clear(&t);
        text_add_double(&t, numbers[i]);
        EXPECT(strtod(text_get(&t), NULL) == numbers[i]);
    }
    text_clear(&t);
    text_add_double(&t, 0.5);
    EXPECT_TEXT(text_get(&t), "0.5");
    text_free(&t);
    text whole = {0};
    static const int64_t wholes[] = {0, 7, -10, INT64_MAX, INT64_MIN};
    for (int i = 0; i < COUNT(wholes); i++, text_add(&whole, " ")) text_add_whole(&whole, wholes[i]);
    EXPECT_TEXT(text_get(&whole), "0 7 -10 9223372036854775807 -9223372036854775808 ");
    text_free(&whole);
}

TEST(map_finds_what_was_set)
{
    arena *a = arena_new();
    map *m = map_new(a);
    for (int i = 0; i < 5000; i++) map_set(m, arena_print(a, "key%d", i), (void *)(intptr_t)(i + 1));
    EXPECT(map_count(m) == 5000);
    for (int i = 0; i < 5000; i++) EXPECT(map_get(m, arena_print(a, "key%d", i)) == (void *)(intptr_t)(i + 1));
    EXPECT(!map_get(m, "other"));
    arena_free(a);
}

TEST(hash_index_finds_all_of_a_hash)
{
    arena *a = arena_new();
    hash_index h = {.memory = a};
    int at = 0;
    EXPECT(hash_index_next(&h, 7, &at) < 0); /* empty */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3000; i++) hash_index_add(&h, (uint64_t)(i % 1000) << 32 | (unsigned)(i % 10), i);
        for (int i = 0; i < 1000; i++) {
            int found = 0, number;
            at = 0;
            while ((number = hash_index_next(&h, (uint64_t)i << 32 | (unsigned)(i % 10), &at)) >= 0) {
                EXPECT(number % 1000 == i);
                found++;
            }
            EXPECT(found == 3);
        }
        at = 0;
        EXPECT(hash_index_next(&h, 1001, &at) < 0);
        hash_index_clear(&h);
        at = 0;
        EXPECT(hash_index_next(&h, 3, &at) < 0);
    }
    arena_free(a);
}

/* Removed in any order, among others that begin at the same place and wrap around the end. */
TEST(hash_index_forgets_one)
{
    enum { COUNT_OF = 500 };
    arena *a = arena_new();
    hash_index h = {.memory = a};
    bool there[COUNT_OF] = {0};
    unsigned state = 7;
    for (int turn = 0; turn < 20000; turn++) {
        state = state * 1664525u + 1013904223u;
        int number = (int)(state >> 16) % COUNT_OF;
        uint64_t hash = (uint64_t)(number % 41) * 25u;
        if (there[number])
            hash_index_remove(&h, hash, number);
        else
            hash_index_add(&h, hash, number);
        there[number] = !there[number];
        int at = 0, found = 0, wanted = 0;
        for (int i; (i = hash_index_next(&h, hash, &at)) >= 0; found++) EXPECT(there[i] && i % 41 == number % 41);
        for (int i = number % 41; i < COUNT_OF; i += 41) wanted += there[i];
        if (found != wanted) printf("turn %d\n", turn);
        EXPECT(found == wanted);
    }
    arena_free(a);
}

TEST(hash_tells_texts_apart)
{
    char first[33], second[33];
    hash_to_hex(hash_bytes("abc", 3), first);
    hash_to_hex(hash_bytes("abd", 3), second);
    EXPECT(strcmp(first, second));
    hash_to_hex(hash_bytes("abc\0", 4), second);
    EXPECT(strcmp(first, second));
    EXPECT(strlen(first) == 32);
}

TEST(suggestions_are_near)
{
    static const char *const names[] = {"BLOCK", "rows", "cols", "softmax_online"};
    EXPECT_TEXT(suggest_name("BLOK", names, 4), "BLOCK");
    EXPECT_TEXT(suggest_name("block", names, 4), "BLOCK");
    EXPECT_TEXT(suggest_name("softmax_onlin", names, 4), "softmax_online");
    EXPECT(!suggest_name("zzzzzz", names, 4));
}

TEST(files_are_written_whole)
{
    char folder[] = "/tmp/quern-base-XXXXXX", path[200];
    EXPECT(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/a/b/c", folder);
    qn_error error;
    EXPECT(folder_make(path, &error) == QN_OK);
    snprintf(path, sizeof(path), "%s/a/b/c/file", folder);
    EXPECT(file_write(path, "hello", 5, &error) == QN_OK);
    char *data;
    size_t size;
    EXPECT(file_read(path, 100, &data, &size, &error) == QN_OK);
    EXPECT(size == 5 && !strcmp(data, "hello"));
    free(data);
    EXPECT(file_read(path, 4, &data, &size, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "larger than 4 bytes"));
    EXPECT(file_read(folder, 100, &data, &size, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "is a folder"));
    EXPECT(file_read(absent_path("file"), 100, &data, &size, &error) == QN_BAD_FILE);
    unlink(path);
    snprintf(path, sizeof(path), "%s/a/b/c", folder);
    for (int i = 0; i < 4; i++) {
        rmdir(path);
        *strrchr(path, '/') = 0;
    }
}

TEST(processes_run)
{
    qn_error error;
    int code;
    text output = {0};
    const char *const echo[] = {"sh", "-c", "echo out; echo err >&2; exit 3", NULL};
    EXPECT(process_run(echo, &output, &code, &error) == QN_OK);
    EXPECT(code == 3);
    EXPECT_TEXT(text_get(&output), "out\nerr\n");
    const char *const killed[] = {"sh", "-c", "kill -9 $$", NULL};
    EXPECT(process_run(killed, NULL, &code, &error) == QN_OK && code == -1);
    const char *const absent[] = {"no-such-program-quern", NULL};
    EXPECT(process_run(absent, NULL, &code, &error) == QN_FAILED);
    void (*before)(int) = signal(SIGCHLD, SIG_IGN); /* nobody can wait then, and a failure is no success */
    EXPECT(process_run(echo, NULL, &code, &error) == QN_FAILED && code == -1 && strstr(error.message, "SIGCHLD"));
    signal(SIGCHLD, before);
    /* One that hangs is ended, with what it started; one that left something behind is over when it ends. */
    const char *const hangs[] = {"sh", "-c", "sleep 60 & echo begun; sleep 60", NULL};
    int64_t from = clock_now_ns();
    text_clear(&output);
    EXPECT(process_run_for(hangs, 0.5, &output, &code, &error) == QN_FAILED && code == -1);
    EXPECT_TEXT(text_get(&output), "begun\n");
    EXPECT(strstr(error.message, "after 0.5 s") && strstr(error.message, "QUERN_COMPILE_LIMIT"));
    const char *const leaves[] = {"sh", "-c", "sleep 20 & echo gone", NULL};
    text_clear(&output);
    EXPECT(process_run_for(leaves, 0, &output, &code, &error) == QN_OK && code == 0);
    EXPECT_TEXT(text_get(&output), "gone\n");
    EXPECT(clock_now_ns() - from < (int64_t)15e9);
    char path[300];
    EXPECT(program_find("sh", path, sizeof(path)));
    EXPECT(!program_find("no-such-program-quern", path, sizeof(path)));
    EXPECT(cpu_count() >= 1);
    text_free(&output);
}

TEST_MAIN(CASE(arena_gives_zeroed_aligned_memory), CASE(text_grows_and_quotes), CASE(map_finds_what_was_set),
          CASE(hash_index_finds_all_of_a_hash), CASE(hash_index_forgets_one), CASE(hash_tells_texts_apart), CASE(suggestions_are_near),
          CASE(files_are_written_whole), CASE(processes_run))
