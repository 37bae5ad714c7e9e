/*
 * Included files of raw kernels. In: raw text and where it stands. Out: the text with every `#include "file"` that is
 * found beside it replaced by the file, recursively, with #line directives, so that what a compiler gets is whole: the
 * cache sees a change of an included file, a dump carries it, and no compiler needs a search path for it.
 *
 * A file that is being included, or that says `#pragma once` and was included, is not included again. Files that are
 * not there, and `<file>`, are left to the compiler, except in CUDA text for headers that the prelude stands in for.
 * SPDX-License-Identifier: MIT
 */
#include "lang/ast.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_BYTES = 16 << 20 };

/* Their names are in the prelude, built into every CUDA compiler, or of no use in a kernel. */
static const char *const known_headers[] = {
    "cuda.h",
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "device_launch_parameters.h",
    "stdint.h",
    "cstdint",
    "stddef.h",
    "cstddef",
    "math.h",
    "cmath",
    "float.h",
    "cfloat",
    "limits.h",
    "climits",
    "math_constants.h",
    "stdio.h",
    "cstdio",
    "stdlib.h",
    "cstdlib",
    "string.h",
    "cstring",
    "assert.h",
    "cassert",
    "iostream",
    "iomanip",
    "sstream",
    "fstream",
    "vector",
    "string",
    "chrono",
    "random",
    "memory",
    "algorithm",
    "functional",
    "map",
    "stdexcept",
    "time.h",
    "ctime",
    "unistd.h",
    "sys/time.h",
    "cuda_fp16.h",
    "cuda_bf16.h",
};
enum { VENDOR_HEADERS = 2 }; /* the last ones, whose types the vendor's own folder has */

typedef struct expansion {
    arena *memory;
    bool cuda, knows_types; /* knows_types: the vendor's folder is not there */
    text out;
    const char *stack[MAX_DEPTH]; /* being included */
    int depth;
    const char **once;
    int once_count, once_capacity;
} expansion;

static void add_line(text *out, int line, const char *path)
{
    text_print(out, "#line %d \"", line);
    text_add_escaped(out, ESCAPE_STRING, path, strlen(path));
    text_add(out, "\"\n");
}

static const char *beside(arena *memory, const char *path, const char *name, size_t length)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (*name == '/' || !slash) return arena_copy_text(memory, name, length);
    return arena_print(memory, "%.*s/%.*s", (int)(slash - path), path, (int)length, name);
}

static bool listed(const char *const *list, int count, const char *path)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i], path)) return true;
    return false;
}

static void expand(expansion *e, const char *words, const char *path, int line);

/* True: the directive was replaced. `rest` stands behind the word `include`. */
static bool include(expansion *e, const char *rest, const char *path, int line)
{
    rest += strspn(rest, " \t");
    char close = *rest == '<' ? '>' : '"';
    if (*rest != '"' && *rest != '<') return false;
    const char *name = rest + 1, *end = name;
    while (*end && *end != close && *end != '\n') end++;
    if (*end != close || end == name) return false;
    size_t length = (size_t)(end - name);
    int known = e->cuda ? COUNT(known_headers) - (e->knows_types ? 0 : VENDOR_HEADERS) : 0;
    for (int i = 0; close == '>' && i < known; i++)
        if (strlen(known_headers[i]) == length && !memcmp(name, known_headers[i], length)) {
            text_print(&e->out, "/* %.*s */\n", (int)length, name);
            return true;
        }
    if (close == '>') return false;
    const char *file = beside(e->memory, path, name, length);
    char *data = NULL;
    size_t size = 0;
    if (e->depth == MAX_DEPTH || e->out.length > MAX_BYTES) return false;
    bool again = listed(e->stack, e->depth, file) || listed(e->once, e->once_count, file);
    if (!again && file_read(file, MAX_BYTES, &data, &size, NULL) != QN_OK) return false;
    if (!again && !memchr(data, 0, size)) {
        e->stack[e->depth++] = file;
        add_line(&e->out, 1, file);
        expand(e, data, file, 1);
        if (e->out.length && e->out.data[e->out.length - 1] != '\n') text_add(&e->out, "\n");
        e->depth--;
    }
    heap_free(data);
    add_line(&e->out, line + 1, path ? path : "text");
    return true;
}

/* `c` stands at the # of a directive; the end of its line, or NULL if it stays as it is. */
static const char *directive(expansion *e, const char *c, const char *path, int line)
{
    const char *word = c + 1 + strspn(c + 1, " \t"), *end = word + strcspn(word, "\n");
    if (!strncmp(word, "include", 7) && !isalnum((unsigned char)word[7]) && word[7] != '_')
        return include(e, word + 7, path, line) ? end : NULL;
    const char *once = word + 6;
    if (strncmp(word, "pragma", 6)) return NULL;
    once += strspn(once, " \t");
    if (strncmp(once, "once", 4) || (once[4] && !isspace((unsigned char)once[4]))) return NULL;
    if (e->depth) ARENA_PUSH(e->memory, e->once, e->once_count, e->once_capacity, e->stack[e->depth - 1]);
    text_add(&e->out, "\n");
    return end;
}

/* One past a comment, a quoted text or a single character. */
static const char *token_end(const char *c)
{
    if (c[0] == '/' && c[1] == '/') return c + strcspn(c, "\n");
    if (c[0] == '/' && c[1] == '*') {
        const char *end = strstr(c + 2, "*/");
        return end ? end + 2 : c + strlen(c);
    }
    if (*c != '"' && *c != '\'') return c + 1;
    char quote = *c++;
    while (*c && *c != quote && *c != '\n') c += c[0] == '\\' && c[1] ? 2 : 1;
    return *c == quote ? c + 1 : c;
}

static void expand(expansion *e, const char *words, const char *path, int line)
{
    bool at_start = true;
    for (const char *c = words; *c;) {
        if (at_start && *c == '#') {
            const char *end = directive(e, c, path, line);
            if (end) {
                c = *end ? end + 1 : end;
                line++;
                continue;
            }
        }
        const char *end = token_end(c);
        for (const char *at = c; at < end; at++) line += *at == '\n';
        at_start = *c == '\n' || (at_start && (*c == ' ' || *c == '\t'));
        text_add_bytes(&e->out, c, (size_t)(end - c));
        c = end;
    }
}

const char *raw_expand(arena *memory, const char *words, const char *path, int line, bool cuda, bool knows_types)
{
    if (!strstr(words, "include")) return words;
    expansion e = {.memory = memory, .cuda = cuda, .knows_types = knows_types};
    if (path) e.stack[e.depth++] = path;
    expand(&e, words, path, line);
    const char *copy = arena_copy_text(memory, text_get(&e.out), e.out.length);
    text_free(&e.out);
    return copy;
}
