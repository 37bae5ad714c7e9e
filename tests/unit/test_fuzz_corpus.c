/*
 * The fuzzer's corpus, replayed, and 20,000 seeded mutations of it: bytes changed, cut, doubled, and pieces of one file
 * put into another; then the same tokens with other blanks and comments between them. No fuzzer is needed; tools/fuzz
 * runs the same function for long. SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "fuzz/fuzz_parse.c"

#include "lang/parse.h"

#include <dirent.h>
#include <stdlib.h>

#define FOLDER QUERN_ROOT "/tests/fuzz/corpus"
#define MUTATIONS 20000
#define SIZE_LIMIT_BYTES 4096 /* of a mutated file: many small ones find more than few large ones */

typedef struct seed {
    char *data;
    size_t size_bytes;
} seed;

static seed *seeds;
static int seed_count;

static void read_folder(void)
{
    if (seed_count) return;
    DIR *folder = opendir(FOLDER);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[1024];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof(path), FOLDER "/%s", entry->d_name);
        seed s;
        qn_error error;
        if (file_read(path, 1 << 24, &s.data, &s.size_bytes, &error) != QN_OK) {
            test_fail(path, 1, error.message);
            continue;
        }
        seeds = realloc(seeds, sizeof(*seeds) * (size_t)(seed_count + 1));
        seeds[seed_count++] = s;
    }
    if (folder) closedir(folder);
}

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t limit)
{
    return limit ? (size_t)(next_random() % limit) : 0;
}

static const char *const words[] = {"(",
                                    ")",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    ";",
                                    ",",
                                    ":",
                                    "?",
                                    "=",
                                    "+=",
                                    "++",
                                    "-",
                                    "//",
                                    "/*",
                                    "*/",
                                    "\"",
                                    "\"\"\"",
                                    "\n",
                                    " tile ",
                                    " in ",
                                    " out ",
                                    " const ",
                                    " int ",
                                    " T ",
                                    " if ",
                                    " else ",
                                    " for (int i = 0; i < n; i++) ",
                                    "kernel ",
                                    "then launch (1) ",
                                    "tensor ",
                                    "bench ",
                                    "c ",
                                    "\xc3\xa9",
                                    "\xff",
                                    "\0",
                                    "0x",
                                    "1e",
                                    ".5",
                                    "program(0)",
                                    "return ",
                                    "x[:]"};

static size_t mutate(char *data, size_t size)
{
    size_t at = below(size + 1), count = 1 + below(16);
    switch (below(6)) {
    case 0: /* change a byte */
        if (at < size) data[at] = (char)next_random();
        return size;
    case 1: /* cut */
        count = MINIMUM(count, size - at);
        memmove(data + at, data + at + count, size - at - count);
        return size - count;
    case 2: /* double a piece */
        count = MINIMUM(count, size - at);
        if (size + count > SIZE_LIMIT_BYTES) return size;
        memmove(data + at + count, data + at, size - at);
        return size + count;
    case 3: { /* a piece of another file */
        const seed *other = &seeds[below((size_t)seed_count)];
        size_t from = below(other->size_bytes);
        count = MINIMUM(1 + below(200), other->size_bytes - from);
        if (size + count > SIZE_LIMIT_BYTES || !other->size_bytes) return size;
        memmove(data + at + count, data + at, size - at);
        memcpy(data + at, other->data + from, count);
        return size + count;
    }
    default: { /* a word of the language */
        const char *word = words[below(COUNT(words))];
        count = strlen(word);
        if (size + count > SIZE_LIMIT_BYTES) return size;
        memmove(data + at + count, data + at, size - at);
        memcpy(data + at, word, count);
        return size + count;
    }
    }
}

TEST(corpus)
{
    read_folder();
    EXPECT(seed_count > 0);
    for (int i = 0; i < seed_count; i++) LLVMFuzzerTestOneInput((const uint8_t *)seeds[i].data, seeds[i].size_bytes);
}

TEST(mutations)
{
    read_folder();
    if (!seed_count) return;
    char *data = malloc(SIZE_LIMIT_BYTES);
    for (int i = 0; i < MUTATIONS; i++) {
        const seed *from = &seeds[below((size_t)seed_count)];
        size_t size = MINIMUM(from->size_bytes, SIZE_LIMIT_BYTES),
               start = from->size_bytes > size ? below(from->size_bytes - size) : 0;
        memcpy(data, from->data + start, size);
        for (size_t k = 1 + below(6); k > 0; k--) size = mutate(data, size);
        LLVMFuzzerTestOneInput((const uint8_t *)data, size);
    }
    free(data);
}

/* The same tokens with other blanks, line feeds and comments between them. */
static void lay_out_again(const seed *from, text *out)
{
    static const char *const gaps[] = {
        " ", "\n", "\n\n\n", "  /* a */ ", " // b\n", "\n    // c\n", "\n/* d\n e */\n", " /**/", "\t"};
    arena *memory = arena_new();
    diagnostics d = {.memory = memory};
    ast_file file = {
        .memory = memory, .text = arena_copy_text(memory, from->data, from->size_bytes), .length = from->size_bytes};
    lexer x;
    lex_start(&x, &file, &d);
    size_t line_start = 0;
    int line = 1;
    unsigned rare = 1 + (unsigned)below(30);
    for (token t = lex_next(&x); t.kind != TOKEN_END; t = lex_next(&x)) {
        for (; line < t.at.line; line_start++) line += file.text[line_start] == '\n';
        text_add(out, below(rare) ? " " : gaps[below(COUNT(gaps))]);
        size_t start = line_start + (size_t)t.at.column - 1;
        text_add_bytes(out, file.text + start, x.at - start);
    }
    arena_free(memory);
}

TEST(layouts)
{
    read_folder();
    for (int i = 0; i < 4000 && seed_count; i++) {
        const seed *from = &seeds[below((size_t)seed_count)];
        arena *memory = arena_new();
        diagnostics d = {.memory = memory}, again = {.memory = memory};
        lang_parse(memory, "seed.qn", from->data, from->size_bytes, &d);
        text changed = {0};
        lay_out_again(from, &changed);
        if (!d.errors) {
            lang_parse(memory, "again.qn", text_get(&changed), changed.length, &again);
            EXPECT(!again.errors);
            LLVMFuzzerTestOneInput((const uint8_t *)text_get(&changed), changed.length);
        }
        text_free(&changed);
        arena_free(memory);
    }
    for (int i = 0; i < seed_count; i++) free(seeds[i].data);
    free(seeds);
    seed_count = 0;
}

TEST_MAIN(CASE(corpus), CASE(mutations), CASE(layouts))
