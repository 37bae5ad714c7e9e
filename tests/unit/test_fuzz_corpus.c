/*
 * The fuzzer's corpus, replayed, and seeded changes of it: bytes changed, cut, doubled, and pieces of one file put into
 * another; the same tokens with other blanks and comments between them; tokens exchanged for others of their kind,
 * which often gives programs that parse and check, so these are lowered too. No fuzzer is needed; tools/fuzz runs the
 * same function for long. QUERN_FUZZ=PERCENT runs more or fewer of the changes.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"
#include "instance.h"
#include "share.h"

#include "fuzz/fuzz_parse.c"
#include "fuzz/tokens.h"

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

/* Of a number of changes, as many as were asked for. */
static int share(int count)
{
    const char *percent = environment_get("QUERN_FUZZ");
    return percent ? MAXIMUM(count * atoi(percent) / 100, 1) : count_from("QUERN_FUZZ", "changes", count);
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
    size_t at = tokens_below(size + 1), count = 1 + tokens_below(16);
    switch (tokens_below(6)) {
    case 0: /* change a byte */
        if (at < size) data[at] = (char)tokens_random();
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
        const seed *other = &seeds[tokens_below((size_t)seed_count)];
        size_t from = tokens_below(other->size_bytes);
        count = MINIMUM(1 + tokens_below(200), other->size_bytes - from);
        if (size + count > SIZE_LIMIT_BYTES || !other->size_bytes) return size;
        memmove(data + at + count, data + at, size - at);
        memcpy(data + at, other->data + from, count);
        return size + count;
    }
    default: { /* a word of the language */
        const char *word = words[tokens_below(COUNT(words))];
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
    int mutations = share(MUTATIONS);
    for (int i = 0; i < mutations; i++) {
        const seed *from = &seeds[tokens_below((size_t)seed_count)];
        size_t size = MINIMUM(from->size_bytes, SIZE_LIMIT_BYTES),
               start = from->size_bytes > size ? tokens_below(from->size_bytes - size) : 0;
        memcpy(data, from->data + start, size);
        for (size_t k = 1 + tokens_below(6); k > 0; k--) size = mutate(data, size);
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
    lex_start(&x, &file, 0, &d);
    size_t line_start = 0;
    int line = 1;
    unsigned rare = 1 + (unsigned)tokens_below(30);
    for (token t = lex_next(&x); t.kind != TOKEN_END; t = lex_next(&x)) {
        for (; line < t.at.line; line_start++) line += file.text[line_start] == '\n';
        text_add(out, tokens_below(rare) ? " " : gaps[tokens_below(COUNT(gaps))]);
        size_t start = line_start + (size_t)t.at.column - 1;
        text_add_bytes(out, file.text + start, x.at - start);
    }
    arena_free(memory);
}

TEST(layouts)
{
    read_folder();
    for (int i = 0, count = share(4000); i < count && seed_count; i++) {
        const seed *from = &seeds[tokens_below((size_t)seed_count)];
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
}

static bool lower_all(const char *data, size_t size)
{
    arena *memory = arena_new();
    diagnostics d = {.memory = memory};
    ast_file *file = lang_parse(memory, "fuzz.qn", data, size, &d);
    lang_check(file, &d);
    bool sound = !d.errors, lowered = false;
    for (int i = 0; i < file->items.count && sound; i++)
        if (file->items.items[i]->kind == AST_KERNEL) lowered |= instance_lower(file, file->items.items[i], memory, &d);
    text shown = {0};
    diagnostics_print(&d, file, false, &shown);
    text_free(&shown);
    arena_free(memory);
    return lowered;
}

TEST(swaps)
{
    read_folder();
    int lowered = 0, count = share(4000);
    for (int i = 0; i < count && seed_count; i++) {
        text changed = {0};
        const seed *from = &seeds[tokens_below((size_t)seed_count)];
        tokens_swap(from->data, from->size_bytes, &changed);
        LLVMFuzzerTestOneInput((const uint8_t *)text_get(&changed), changed.length);
        lowered += lower_all(text_get(&changed), changed.length);
        text_free(&changed);
    }
    EXPECT(lowered > count / 40); /* or the changes are too wild to test anything */
}

TEST(corpus_ends)
{
    for (int i = 0; i < seed_count; i++) free(seeds[i].data);
    free(seeds);
    seed_count = 0;
}

TEST_MAIN(CASE(corpus), CASE(mutations), CASE(layouts), CASE(swaps), CASE(corpus_ends))
