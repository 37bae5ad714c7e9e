/*
 * `import "file.qn";`: the functions, kernels, tensor functions and constants of another file, under a name space.
 *
 * The file is read beside the one that says so, parsed by itself, and its items join this file's with `space__` before
 * their names, here and wherever they name each other; `space.name` in the source is that name. Its benches stay behind.
 * Lines of imported files count from FOREIGN_LINES * number, so that a place tells its file; diagnostics translate them
 * back. An item may be imported over several files; a file that imports itself, however far around, is an error.
 * SPDX-License-Identifier: MIT
 */
#include "lang/parse.h"

#include <stdlib.h>

enum { MOST_DEPTH = 16 };

/* Names that an item declares itself: they hide the file's. */
static void gather_locals(const ast *node, map *locals)
{
    if (!node) return;
    bool declares = node->kind == AST_PARAM || node->kind == AST_DECLARATOR || node->kind == AST_FOR;
    if (declares && node->name && *node->name) map_set(locals, node->name, (void *)node);
    for (int i = 0; node->kind == AST_LET && i < node->list.count; i++)
        map_set(locals, node->list.items[i]->name, (void *)node);
    const ast *children[] = {node->left, node->right, node->third, node->body, node->other};
    const ast_list *lists[] = {&node->list, &node->clauses, &node->phases};
    for (int i = 0; i < COUNT(children); i++) gather_locals(children[i], locals);
    for (int l = 0; l < COUNT(lists); l++)
        for (int i = 0; i < lists[l]->count; i++) gather_locals(lists[l]->items[i], locals);
}

typedef struct renaming {
    arena *memory;
    const char *space;
    map *items, *locals;
} renaming;

static const char *spaced(arena *memory, const char *space, const char *name)
{
    return arena_print(memory, "%s__%s", space, name);
}

static void rename_uses(const renaming *r, ast *node)
{
    if (!node) return;
    bool names = node->kind == AST_NAME || (node->kind == AST_CLAUSE && node->word && !strcmp(node->word, "gradient"));
    if (names && map_get(r->items, node->name) && !map_get(r->locals, node->name))
        node->name = spaced(r->memory, r->space, node->name);
    ast *children[] = {node->left, node->right, node->third, node->body, node->other};
    const ast_list *lists[] = {&node->list, &node->clauses, &node->phases};
    for (int i = 0; i < COUNT(children); i++) rename_uses(r, children[i]);
    for (int l = 0; l < COUNT(lists); l++)
        for (int i = 0; i < lists[l]->count; i++) rename_uses(r, lists[l]->items[i]);
}

/* Raw text names its function as it is written there: the item goes on under its own name for the compiler. */
static bool may_be_imported(const ast *item)
{
    return item->kind != AST_BENCH && item->kind != AST_RAW;
}

static bool imports_itself(const ast_file *file, const char *path, int *depth)
{
    for (*depth = 0; file; file = file->importer, (*depth)++)
        if (!strcmp(file->path, path)) return true;
    return *depth > MOST_DEPTH;
}

static const char *path_beside(arena *memory, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return *name == '/' || !slash ? name : arena_print(memory, "%.*s/%s", (int)(slash - path), path, name);
}

void import_file(parser *p, const ast *import)
{
    ast_file *file = p->file, *root = file;
    arena *memory = file->memory;
    char *words = NULL;
    size_t length = 0;
    qn_error error;
    int depth;
    const char *path = path_beside(memory, file->path, arena_copy_text(memory, import->words, import->length));
    while (root->importer) root = root->importer;
    size_t end = strlen(path);
    if (end < 3 || strcmp(path + end - 3, ".qn") != 0) { /* a file from elsewhere reads no others of this machine */
        diagnose(p->d, E111, import->at, "name a file whose name ends so", "`%.200s` is not a .qn file", path);
        return;
    }
    if (imports_itself(file, path, &depth)) {
        diagnose(p->d, E111, import->at, "take out what both need into a file of its own",
                 "`%.200s` imports itself, or more than %d files import each other", path, MOST_DEPTH);
        return;
    }
    if (!file_may_be_read(path)) { /* it could wait for ever */
        diagnose(p->d, E111, import->at, "name a file", "`%.200s` is a pipe or a device, not a file", path);
        return;
    }
    if (file_read(path, FILE_LIMIT_BYTES, &words, &length, &error) != QN_OK) {
        diagnose(p->d, E111, import->at, "a path is looked up beside the file that imports it", "%s", error.message);
        return;
    }
    int before = p->d->errors;
    ast_file *other = lang_parse_imported(root, file, path, words, length, p->d);
    heap_free(words);
    if (p->d->errors > before) return;
    renaming r = {.memory = memory, .space = import->name, .items = map_new(memory)};
    for (int i = 0; i < other->items.count; i++)
        if (may_be_imported(other->items.items[i]))
            map_set(r.items, other->items.items[i]->name, other->items.items[i]);
    for (int i = 0; i < other->items.count; i++) {
        ast *item = other->items.items[i];
        if (!may_be_imported(item)) continue;
        r.locals = map_new(memory);
        gather_locals(item, r.locals);
        rename_uses(&r, item->left);
        rename_uses(&r, item->body);
        const ast_list *lists[] = {&item->list, &item->clauses, &item->phases};
        for (int l = 0; l < COUNT(lists); l++)
            for (int k = 0; k < lists[l]->count; k++) rename_uses(&r, lists[l]->items[k]);
        item->name = spaced(memory, import->name, item->name);
        parser_add_item(p, item);
    }
}

bool name_space_known(const ast_file *file, const char *name, size_t length)
{
    for (int i = 0; i < file->space_count; i++)
        if (strlen(file->spaces[i]) == length && !memcmp(file->spaces[i], name, length)) return true;
    return false;
}

const char *source_of_line(const ast_file *file, int *line, const ast_file **source)
{
    int number = *line / FOREIGN_LINES;
    *source = file;
    if (!number || number > file->source_count) return file->path;
    *line %= FOREIGN_LINES;
    *source = file->sources[number - 1];
    return (*source)->path;
}
