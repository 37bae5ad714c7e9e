/*
 * A syntax tree as text, everything but places: two sources mean the same if their trees print the same.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_TREE_H
#define QUERN_TESTS_TREE_H

#include "lang/ast.h"

static void tree_print(const ast *node, text *out);

static void tree_print_list(const char *name, const ast_list *list, text *out)
{
    if (!list->count) return;
    text_print(out, " %s[", name);
    for (int i = 0; i < list->count; i++) tree_print(list->items[i], out);
    text_add(out, "]");
}

static void tree_print(const ast *node, text *out)
{
    if (!node) return;
    text_print(out, "(%d", (int)node->kind);
    if (node->name && node->name[0]) text_print(out, " %s", node->name);
    if (node->word && node->word[0]) text_print(out, " '%s'", node->word);
    if (node->words) text_add_quoted(out, node->words, node->length);
    if (node->kind == AST_NUMBER || node->kind == AST_BOOL)
        text_print(out, " %lld %.17g", (long long)node->number.i, node->number.f);
    const bool flags[] = {node->is_tile,    node->is_float,    node->is_typed, node->is_set,       node->is_slice,
                          node->is_generic, node->is_function, node->is_path,  node->parenthesised};
    text_add(out, " ");
    for (int i = 0; i < COUNT(flags); i++) text_add(out, flags[i] ? "1" : "0");
    const ast *const children[] = {node->type, node->left, node->right, node->third, node->body, node->other};
    for (int i = 0; i < COUNT(children); i++) {
        if (!children[i]) continue;
        text_print(out, " %d:", i);
        tree_print(children[i], out);
    }
    tree_print_list("list", &node->list, out);
    tree_print_list("clauses", &node->clauses, out);
    tree_print_list("phases", &node->phases, out);
    text_add(out, ")");
}

static inline void tree_print_file(const ast_file *file, text *out)
{
    for (int i = 0; i < file->items.count; i++) {
        tree_print(file->items.items[i], out);
        text_add(out, "\n");
    }
}

#endif
