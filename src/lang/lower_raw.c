/*
 * Raw kernels: parameters and a head as any kernel, and text in the place of phases. In: the tree and the constants of
 * one instance. Out: the text, whole (raw_include.c), its constants as macros or, of a template, as its arguments, the
 * compiler's options, and in the head what is launched: programs of a `c` kernel; blocks, threads and bytes of shared
 * memory of a `cuda` kernel, each once.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SOURCE_BYTES = 16 << 20 };

/* A float as C reads it, whole numbers too. */
static void add_float(text *out, const binding *b)
{
    char words[64];
    const char *suffix = b->type == DT_F64 ? "" : "f";
    if (isnan(b->number.f))
        snprintf(words, sizeof(words), "(0.0%s / 0.0%s)", suffix, suffix);
    else if (isinf(b->number.f))
        snprintf(words, sizeof(words), "(%s1.0%s / 0.0%s)", b->number.f < 0 ? "-" : "", suffix, suffix);
    else {
        int length = plain_print(words, sizeof(words), "%.17g", b->number.f);
        snprintf(words + length, sizeof(words) - (size_t)length, "%s%s", strpbrk(words, ".e") ? "" : ".0", suffix);
    }
    text_add(out, words);
}

static void add_constant(text *out, const binding *b)
{
    if (b->kind == BIND_TYPE)
        text_add(out, dtypes[b->type].c_name);
    else if (b->kind == BIND_FUNCTION)
        text_add(out, b->function);
    else if (b->kind == BIND_FLOAT)
        add_float(out, b);
    else if (b->type == DT_U64)
        text_print(out, "%lluull", (unsigned long long)b->number.i);
    else
        text_print(out, "%lld", (long long)b->number.i);
}

static const char *keep(walk *w, text *words)
{
    const char *copy = arena_copy_text(w->memory, text_get(words), words->length);
    text_free(words);
    return copy;
}

/* "#define NAME value" for every constant of a raw kernel. */
static const char *raw_constants(walk *w)
{
    text out = {0};
    for (int i = 0; i < w->constants->count; i++) {
        const binding *b = &w->constants->items[i];
        text_print(&out, "#define %s ", b->name);
        add_constant(&out, b);
        text_add(&out, "\n");
    }
    return keep(w, &out);
}

/* "gemm<float, 16>". */
static const char *raw_instance(walk *w)
{
    const ast_list *arguments = &w->kernel->left->list;
    text out = {0};
    text_print(&out, "%s<", w->kernel->name);
    for (int i = 0; i < arguments->count; i++) {
        const ast *argument = arguments->items[i];
        if (i) text_add(&out, ", ");
        dtype type;
        if (argument->kind == AST_STRING) {
            text_add_bytes(&out, argument->words, argument->length);
        } else if (argument->kind == AST_TYPE_NAME) {
            if (resolve_type(w, argument, &type)) text_add(&out, dtypes[type].c_name);
        } else {
            term t = lower_expression(w, argument);
            if (!is_error(&t) && t.kind != TERM_CONSTANT)
                diagnose(w->d, E217, argument->from, "use a number, a type or a `const` parameter",
                         "template argument %d of `%s` is not a compile-time constant", i + 1, w->kernel->name);
            else if (!is_error(&t))
                add_constant(&out, &t.constant);
        }
    }
    text_add(&out, ">");
    return keep(w, &out);
}

/* Options of a host compiler or of nvcc's own steps, which those who paste a build line bring along. */
bool raw_option_is_of_host(const char *option, size_t length)
{
    static const char *const beginnings[] = {"-O",
                                             "-W",
                                             "-Xcompiler",
                                             "-fPIC",
                                             "-fopenmp",
                                             "-march=",
                                             "-mtune=",
                                             "-gencode",
                                             "-arch",
                                             "--gpu-arch",
                                             "-ccbin",
                                             "-shared",
                                             "-l",
                                             "-L",
                                             "-pthread",
                                             "--expt-",
                                             "-pipe",
                                             "-m64",
                                             "--compiler-options",
                                             "-fvisibility",
                                             "-fno-"};
    static const char *const ours[] = {"-lineinfo"};
    for (int i = 0; i < COUNT(ours); i++)
        if (strlen(ours[i]) == length && !strncmp(option, ours[i], length)) return false;
    for (int i = 0; i < COUNT(beginnings); i++)
        if (length >= strlen(beginnings[i]) && !strncmp(option, beginnings[i], strlen(beginnings[i]))) return true;
    return (length == 2 && (!strncmp(option, "-g", 2) || !strncmp(option, "-c", 2)));
}

static const char *raw_options(walk *w, const ast *clause, bool *has_folder)
{
    text out = {0};
    for (int i = 0; i < clause->list.count; i++) {
        const ast *option = clause->list.items[i];
        if (memchr(option->words, '\n', option->length)) {
            diagnose(w->d, E104, option->from, "one option, one line", "an option with a line break");
            continue;
        }
        if (raw_option_is_of_host(option->words, option->length)) continue; /* the check told it */
        *has_folder |= !strncmp(option->words, "-I", 2) || !strncmp(option->words, "--include-path", 14);
        text_add_bytes(&out, option->words, option->length);
        text_add(&out, "\n");
    }
    return keep(w, &out);
}

/* Headers that the prelude does not stand in for, or types of them that it has not: then the toolkit's own are used, where
 * there is one. */
static const char *toolkit_folder(arena *memory, const char *source)
{
    static const char *const signs[] = {"<mma.h>", "half2",  "__nv_bfloat162", "<cuda_fp8.h>", "<cooperative_groups",
                                        "<cub/",   "<cuda/", "<cuda_pipeline"};
    const char *roots[] = {environment_get("CUDA_HOME"), environment_get("CUDA_PATH"), "/usr/local/cuda"};
    bool wanted = false;
    for (int i = 0; i < COUNT(signs); i++) wanted |= strstr(source, signs[i]) != NULL;
    for (int i = 0; wanted && i < COUNT(roots); i++) {
        if (!roots[i] || !*roots[i] || strchr(roots[i], '\n')) continue;
        const char *folder = arena_print(memory, "%s/include", roots[i]);
        FILE *header = fopen(arena_print(memory, "%s/cuda_fp16.h", folder), "rb");
        if (!header) continue;
        fclose(header);
        return folder;
    }
    return NULL;
}

/* The text of `from "file"`, found beside the .qn file. */
static const char *raw_file(walk *w)
{
    const char *path = w->kernel->words, *slash = w->file->path ? strrchr(w->file->path, '/') : NULL;
    if (path[0] != '/' && slash)
        path = arena_print(w->memory, "%.*s/%s", (int)(slash - w->file->path), w->file->path, path);
    w->k->raw_path = path;
    w->k->raw_line = 1;
    char *data = NULL;
    size_t size = 0;
    qn_error error = {0};
    if (file_read(path, MAX_SOURCE_BYTES, &data, &size, &error) != QN_OK) {
        diagnose(w->d, E508, w->kernel->at, "give a path relative to this file", "cannot read the source `%s`",
                 w->kernel->words);
        return "";
    }
    const char *copy = arena_copy_text(w->memory, data, size);
    heap_free(data);
    return copy;
}

static void lower_clause(walk *w, const char *word, int number, bool *found)
{
    for (int i = 0; i < w->kernel->clauses.count; i++) {
        const ast *clause = w->kernel->clauses.items[i];
        launch l = {0};
        if (strcmp(clause->word, word)) continue;
        if (lower_counts(w, &clause->list, clause->at, &l)) lower_launch(w, &l, number);
        *found = true;
    }
}

void lower_raw(walk *w)
{
    const ast *kernel = w->kernel;
    bool cuda = !strcmp(kernel->word, "cuda"), has_folder = false, has_launch = false, has_shared = false;
    w->k->raw_language = kernel->word;
    w->k->raw_path = w->file->path;
    w->k->raw_line = kernel->text_line;
    for (int i = 0; i < kernel->clauses.count; i++)
        if (!strcmp(kernel->clauses.items[i]->word, "options"))
            w->k->raw_options = raw_options(w, kernel->clauses.items[i], &has_folder);
    const char *source = kernel->is_path ? raw_file(w) : arena_copy_text(w->memory, kernel->words, kernel->length);
    const char *toolkit = cuda && !has_folder ? toolkit_folder(w->memory, source) : NULL;
    if (toolkit) {
        w->k->raw_options =
            arena_print(w->memory, "%s-I%s\n-I%s/cccl\n", w->k->raw_options ? w->k->raw_options : "", toolkit, toolkit);
        has_folder = true;
    }
    w->k->raw_source = raw_expand(w->memory, source, w->k->raw_path, w->k->raw_line, cuda, !has_folder);
    w->k->raw_instance = kernel->left ? raw_instance(w) : NULL;
    w->k->raw_constants = kernel->left ? "" : raw_constants(w); /* a template may call its own parameter T */
    lower_clause(w, "launch", RAW_GRID, &has_launch);
    w->k->raw_once = !has_launch;
    if (!cuda) return;
    bool has_block = false;
    lower_clause(w, "block", RAW_BLOCK, &has_block);
    lower_clause(w, "shared", RAW_SHARED, &has_shared);
    if (has_shared) return;
    launch none = {.count = 1, .at = kernel->at};
    none.counts[0] = term_of_constant((binding){.kind = BIND_INT, .type = DT_I64});
    lower_launch(w, &none, RAW_SHARED);
}
