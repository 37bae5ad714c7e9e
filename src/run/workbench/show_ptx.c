/*
 * PTX under its source. In: PTX with line information. Out: the same instructions, in their order, each block headed by
 * the source line it came from.
 *
 * `.file N "name"` numbers the files, `.loc N line column` marks what follows; a function of the prelude that was inlined
 * says where: `inlined_at N line column`. The line that counts is the innermost one that stands in the user's own file.
 * The marks themselves and the sections for debuggers are left out.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/show.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_FILES = 64 };

typedef struct source_file {
    char name[512];
    char *words; /* NULL: cannot be read */
    const char *const *lines;
    int line_count;
} source_file;

typedef struct annotation {
    const tile_kernel *kernel;
    source_file files[MOST_FILES];
    arena *memory;
    int file, line; /* of the heading written last */
} annotation;

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Where the user's text stands: the .qn file, or the file that a raw kernel comes from. */
static bool is_users(const annotation *a, const char *name)
{
    const tile_kernel *k = a->kernel;
    return (k->file && !strcmp(base_name(name), base_name(k->file))) ||
           (k->raw_path && !strcmp(base_name(name), base_name(k->raw_path)));
}

static void open_file(annotation *a, int number, const char *name, size_t length)
{
    source_file *f = &a->files[number];
    const tile_kernel *k = a->kernel;
    snprintf(f->name, sizeof(f->name), "%.*s", (int)MINIMUM(length, sizeof(f->name) - 1), name);
    if (!is_users(a, f->name) || f->lines) return;
    if (k->source_lines && k->file && !strcmp(base_name(f->name), base_name(k->file))) {
        snprintf(f->name, sizeof(f->name), "%s", k->file); /* as the user wrote it */
        f->lines = (const char *const *)k->source_lines;
        f->line_count = k->source_line_count;
        return;
    }
    size_t size;
    if (file_read(f->name, (size_t)16 << 20, &f->words, &size, NULL) != QN_OK) return;
    const char **lines = NULL;
    int count = 0, capacity = 0;
    for (char *p = f->words, *end; *p; p = end) {
        end = p + strcspn(p, "\n");
        if (*end) *end++ = 0;
        ARENA_PUSH(a->memory, lines, count, capacity, (const char *)p);
    }
    f->lines = lines;
    f->line_count = count;
}

/* `.loc 2 33 5, function_name $x, inlined_at 1 19 3`: the first place in a file of the user. */
static bool read_place(const annotation *a, const char *line, size_t length, int *file, int *at)
{
    char words[600];
    snprintf(words, sizeof(words), "%.*s", (int)MINIMUM(length, sizeof(words) - 1), line);
    bool first = true;
    for (const char *p = words; p; first = false) {
        int number = 0, place = 0;
        p = strstr(p, first ? ".loc" : "inlined_at");
        if (!p) return false;
        p += first ? 4 : 10;
        if (sscanf(p, "%d %d", &number, &place) != 2 || number < 0 || number >= MOST_FILES) return false;
        if (!place || !is_users(a, a->files[number].name)) continue;
        *file = number;
        *at = place;
        return true;
    }
    return false;
}

static void put_heading(annotation *a, int file, int line, text *out)
{
    const source_file *f = &a->files[file];
    if (a->file == file && a->line == line) return;
    a->file = file;
    a->line = line;
    bool known = f->lines && line >= 1 && line <= f->line_count;
    const char *words = known ? f->lines[line - 1] : "";
    while (*words == ' ' || *words == '\t') words++;
    text_print(out, "// %s:%d: %s\n", f->name, line, words);
}

void show_annotated(const char *ptx, const tile_kernel *k, text *out)
{
    annotation *a = heap_new(sizeof(*a));
    a->kernel = k;
    a->memory = arena_new();
    /* The files are named at the end. */
    for (const char *p = ptx; (p = strstr(p, ".file")); p++) {
        int number;
        const char *open = strchr(p, '"'), *close = open ? strchr(open + 1, '"') : NULL;
        if (sscanf(p, ".file %d", &number) == 1 && number >= 0 && number < MOST_FILES && close &&
            close < p + strcspn(p, "\n"))
            open_file(a, number, open + 1, (size_t)(close - open - 1));
    }
    bool section = false;
    for (const char *line = ptx; *line;) {
        size_t length = strcspn(line, "\n");
        const char *words = line + strspn(line, " \t");
        int file, at;
        if (!strncmp(words, ".section", 8)) section = true;
        if (!section && !strncmp(words, ".loc", 4)) {
            if (read_place(a, words, length - (size_t)(words - line), &file, &at)) put_heading(a, file, at, out);
        } else if (!section && strncmp(words, ".file", 5) != 0) {
            text_print(out, "%.*s\n", (int)length, line);
            if (*words == '}') a->line = 0; /* the end of a function */
        }
        if (section && *words == '}') section = false;
        line += length + (line[length] == '\n');
    }
    for (int i = 0; i < MOST_FILES; i++) heap_free(a->files[i].words);
    arena_free(a->memory);
    heap_free(a);
}
