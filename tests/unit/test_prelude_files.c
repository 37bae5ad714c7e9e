/*
 * The files of src/emit/prelude: every part, for every type that it names, can be had by its name with all that it needs,
 * and all of them together are C that the compiler takes (those of CUDA behind emu's header, as C++). A line that begins
 * as an instruction to the reader of parts is one that it knows.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/emu/unit.h"
#include "emit/cuda/prelude_parts.h"
#include "test.h"

#include <stdlib.h>

static prelude_part parts[PRELUDE_PARTS_MOST];

/* The names of all parts; the $t of a name is each of its types in turn. */
static int all_names(const char *files, arena *memory, const char **names, int most)
{
    int count = 0, part_count = prelude_read(files, parts, COUNT(parts));
    for (int i = 0; i < part_count; i++) {
        const prelude_part *p = &parts[i];
        const char *hole = memmem(p->name.start, p->name.length, "$t", 2), *at = p->types.start;
        EXPECT(p->text.length || p->needs.length);
        EXPECT(!hole == !p->types.length);
        if (!hole && count < most) names[count++] = arena_copy_text(memory, p->name.start, p->name.length);
        int before = hole ? (int)(hole - p->name.start) : 0;
        for (prelude_span word; hole && count < most && prelude_word(&at, p->types.start + p->types.length, &word);)
            names[count++] = arena_print(memory, "%.*s%.*s%.*s", before, p->name.start, (int)word.length, word.start,
                                         (int)p->name.length - before - 2, hole + 2);
    }
    EXPECT(part_count > 10 && count < most);
    return count;
}

static void compiles(const char *compiler, const char *language, const text *source)
{
    char path[] = "/tmp/quern-parts-XXXXXX";
    int file = mkstemp(path);
    EXPECT(file >= 0 && file_write(path, text_get(source), source->length, NULL) == QN_OK);
    const char *arguments[] = {compiler, "-x", language, "-w", "-fsyntax-only", "-fwrapv", "-march=native", path, NULL};
    text output = {0};
    int code = 1;
    EXPECT(process_run(arguments, &output, &code, NULL) == QN_OK && code == 0);
    if (code) printf("%.2000s\n", text_get(&output));
    text_free(&output);
    remove(path);
}

static void check_files(const char *files, bool cuda)
{
    arena *memory = arena_new();
    const char *names[4000], *unknown = NULL;
    int count = all_names(files, memory, names, COUNT(names));
    text source = {0}, unit = {0};
    EXPECT((cuda ? prelude_cuda_emit : prelude_emit)(names, count, &source, &unknown));
    if (unknown) printf("this part cannot be had: %s\n", unknown);
    if (cuda) emu_unit_write(text_get(&source), &unit);
    compiles(cuda ? "c++" : "cc", cuda ? "c++" : "c", cuda ? &unit : &source);
    for (const char *at = files; (at = strstr(at, "//@")); at += 3)
        EXPECT(!strncmp(at, "//@ part ", 9) || !strncmp(at, "//@ for ", 8) || !strncmp(at, "//@ needs ", 10));
    text_free(&source);
    text_free(&unit);
    arena_free(memory);
}

TEST(parts_of_c)
{
    check_files((const char *)prelude_c_files, false);
}

TEST(parts_of_cuda)
{
    check_files((const char *)prelude_cuda_files, true);
}

TEST(form)
{
    static const char text[] = "/* head */\n\n//@ part one_$t\n//@ for a b\n//@ needs x\n//@ needs y z\nline\n\n"
                               "a note\n\n//@ part two\n//@ needs x\n\n//@ part three\nlast\n";
    EXPECT(prelude_read(text, parts, COUNT(parts)) == 3);
    const char *at = parts[0].needs.start, *end = at + parts[0].needs.length;
    prelude_span word;
    char words[16] = "";
    while (prelude_word(&at, end, &word)) strncat(words, word.start, word.length);
    EXPECT(!strcmp(words, "xyz"));
    EXPECT(parts[0].text.length == 5 && !memcmp(parts[0].text.start, "line\n", 5));
    EXPECT(parts[1].text.length == 0 && parts[1].needs.length && parts[2].text.length == 5);
    EXPECT(prelude_find(parts, 3, "two") == &parts[1] && !prelude_find(parts, 3, "tw"));
}

TEST_MAIN(CASE(form), CASE(parts_of_c), CASE(parts_of_cuda))
