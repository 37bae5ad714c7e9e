/*
 * Statements and expressions of `quern fmt`. In: nodes. Out: words on the printer's line.
 * SPDX-License-Identifier: MIT
 */
#include "lang/format.h"

static void statement(printer *p, const ast *node);

void print_list(printer *p, const ast_list *list)
{
    for (int i = 0; i < list->count; i++) {
        if (i) {
            print_word(p, ", ");
            print_break(p, 0, false);
        }
        print_expression(p, list->items[i]);
    }
}

void print_bracketed(printer *p, const char *open, const ast_list *list, const char *close)
{
    saved_group saved = print_open(p, open);
    print_list(p, list);
    print_close(p, saved, close);
}

static void subscript(printer *p, const ast *node)
{
    print_inline_comments(p, node->from);
    saved_group saved = print_open(p, "[");
    if (node->is_spread) print_word(p, "...");
    if (node->left) print_expression(p, node->left);
    if (node->is_slice && !node->is_spread) {
        print_word(p, node->left ? " : " : ":");
        if (node->right) print_expression(p, node->right);
        if (node->third) {
            print_word(p, " : ");
            print_expression(p, node->third);
        }
    }
    print_close(p, saved, "]");
}

/* Where a long expression breaks first. */
static int operator_weight(const char *word)
{
    static const char *const levels[] = {"||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %"};
    for (int i = 0; i < COUNT(levels); i++) {
        const char *found = strstr(levels[i], word);
        size_t length = strlen(word);
        for (; found; found = strstr(found + 1, word)) {
            bool starts = found == levels[i] || found[-1] == ' ';
            if (starts && (found[length] == ' ' || !found[length])) return i + 3;
        }
    }
    return 31;
}

static void expression_inside(printer *p, const ast *node)
{
    switch (node->kind) {
    case AST_NUMBER:
    case AST_BOOL:
    case AST_TYPE_NAME:
    case AST_TYPE:
        print_inline_comments(p, node->at);
        print_word(p, node->word);
        break;
    case AST_NAME:
        print_inline_comments(p, node->at);
        print_name(p, node->name);
        break;
    case AST_STRING:
        print_inline_comments(p, node->at);
        text_add_quoted(&p->line, node->words, node->length);
        break;
    case AST_UNARY:
        print_inline_comments(p, node->at);
        print_word(p, node->word);
        /* `- -x` must not become `--x` */
        if (node->left->kind == AST_UNARY && !node->left->parenthesised && !strcmp(node->left->word, node->word))
            print_word(p, " ");
        print_expression(p, node->left);
        break;
    case AST_BINARY:
        print_expression(p, node->left);
        print_inline_comments(p, node->at);
        if (p->line.length && p->line.data[p->line.length - 1] != ' ') print_word(p, " ");
        print_word(p, node->word);
        print_word(p, " ");
        print_break(p, operator_weight(node->word), false);
        print_expression(p, node->right);
        break;
    case AST_CONDITIONAL:
        print_expression(p, node->left);
        print_word(p, " ? ");
        print_break(p, 2, false);
        print_expression(p, node->right);
        print_word(p, " : ");
        print_break(p, 2, false);
        print_expression(p, node->third);
        break;
    case AST_CALL:
        if (node->left->kind == AST_NAME && node->left->name[0] == '@') {
            print_expression(p, node->list.items[0]);
            print_inline_comments(p, node->at);
            if (p->line.length && p->line.data[p->line.length - 1] != ' ') print_word(p, " ");
            print_word(p, "@ ");
            print_break(p, operator_weight("*"), false);
            print_expression(p, node->list.items[1]);
            break;
        }
        print_expression(p, node->left);
        print_bracketed(p, "(", &node->list, ")");
        break;
    case AST_NAMED:
        print_inline_comments(p, node->at);
        print_word(p, node->name);
        print_word(p, " = ");
        if (node->is_set)
            print_bracketed(p, "{", &node->list, "}");
        else
            print_expression(p, node->left);
        break;
    case AST_INDEX:
        print_expression(p, node->left);
        for (int i = 0; i < node->list.count; i++) subscript(p, node->list.items[i]);
        break;
    default: CHECK(!"an expression");
    }
}

void print_expression(printer *p, const ast *node)
{
    if (!node->parenthesised) {
        expression_inside(p, node);
        return;
    }
    print_inline_comments(p, node->from);
    saved_group saved = print_open(p, "(");
    expression_inside(p, node);
    print_close(p, saved, ")");
}

void print_type(printer *p, const ast *type)
{
    print_inline_comments(p, type->at);
    print_word(p, type->word);
}

void print_extents(printer *p, const ast_list *list)
{
    for (int i = 0; i < list->count; i++) {
        saved_group saved = print_open(p, "[");
        print_expression(p, list->items[i]);
        print_close(p, saved, "]");
    }
}

void print_statements(printer *p, const ast *block)
{
    p->indent += INDENT;
    for (int i = 0; i < block->list.count; i++) {
        const ast *node = block->list.items[i];
        int behind = p->next_comment;
        print_comments(p, node->from, i == 0);
        bool moved = p->next_comment > behind && p->code_end < 0;
        if (node->blank_before && (i || moved)) text_add(p->out, "\n");
        statement(p, node);
    }
    print_comments(p, (place){.line = block->end_line, .column = block->end_column - 1}, !block->list.count);
    p->indent -= INDENT;
}

/* The line so far gets the brace, then the statements, then the closing brace, which begins the next line. */
static void brace_block(printer *p, const ast *block)
{
    print_inline_comments(p, block->from);
    if (p->line.length && p->line.data[p->line.length - 1] != ' ') print_word(p, " ");
    print_word(p, "{");
    print_finish(p);
    print_statements(p, block);
    print_word(p, "}");
}

bool statement_is_simple(const ast *node)
{
    return node->kind == AST_ASSIGN || node->kind == AST_CALL_STATEMENT || node->kind == AST_BREAK ||
           node->kind == AST_CONTINUE || node->kind == AST_RETURN || node->kind == AST_DECLARE ||
           node->kind == AST_EMPTY || node->kind == AST_LET || node->kind == AST_CONSTANT;
}

void print_simple(printer *p, const ast *node)
{
    print_inline_comments(p, node->from);
    switch (node->kind) {
    case AST_EMPTY: break;
    case AST_BREAK: print_word(p, "break"); break;
    case AST_CONTINUE: print_word(p, "continue"); break;
    case AST_CALL_STATEMENT: print_expression(p, node->left); break;
    case AST_ASSIGN:
        print_expression(p, node->left);
        print_inline_comments(p, node->at);
        if (node->right) {
            if (p->line.data[p->line.length - 1] != ' ') print_word(p, " ");
            print_word(p, node->word);
            print_word(p, " ");
            print_expression(p, node->right);
        } else {
            print_word(p, node->word);
        }
        break;
    case AST_DECLARE:
        if (node->is_tile) print_word(p, "tile ");
        print_type(p, node->type);
        print_word(p, " ");
        for (int i = 0; i < node->list.count; i++) {
            const ast *declarator = node->list.items[i];
            if (i) {
                print_word(p, ", ");
                print_break(p, 0, false);
            }
            print_inline_comments(p, declarator->at);
            print_word(p, declarator->name);
            print_extents(p, &declarator->list);
            print_word(p, " = ");
            p->nesting++; /* a list breaks between declarators first */
            print_expression(p, declarator->left);
            p->nesting--;
        }
        break;
    case AST_CONSTANT:
        print_word(p, "const ");
        print_type(p, node->type);
        print_word(p, " ");
        print_inline_comments(p, node->at);
        print_word(p, node->name);
        print_word(p, " = ");
        print_expression(p, node->left);
        break;
    case AST_RETURN:
        print_word(p, "return");
        if (node->list.count) print_word(p, " ");
        print_list(p, &node->list);
        break;
    case AST_LET:
        print_word(p, "let ");
        if (node->is_set)
            print_bracketed(p, "(", &node->list, ")");
        else
            print_expression(p, node->list.items[0]);
        print_word(p, " = ");
        print_expression(p, node->left);
        break;
    default: CHECK(!"a simple statement");
    }
    print_word(p, ";");
}

/* How far the line would reach with this statement behind it; the line itself stays as it is. */
int print_width(printer *p, const ast *node)
{
    size_t length = p->line.length;
    int break_count = p->break_count, next_comment = p->next_comment, group = p->group;
    print_word(p, " ");
    print_simple(p, node);
    int width = p->indent + (int)p->line.length;
    p->line.length = length;
    p->line.data[length] = 0;
    p->break_count = break_count;
    p->next_comment = next_comment;
    p->group = group;
    return width;
}

/* The statement under an if, for or while; afterwards a line is open if it was a block. */
static bool governed(printer *p, const ast *node, int header_line)
{
    if (node->kind == AST_BLOCK) {
        brace_block(p, node);
        return true;
    }
    bool comments = comment_between(p, (place){0}, node->end_line, node->end_column);
    if (statement_is_simple(node) && node->from.line == header_line && !comments && print_width(p, node) <= WIDTH) {
        print_word(p, " ");
        print_simple(p, node);
        print_finish(p);
        return false;
    }
    print_finish(p);
    p->indent += INDENT;
    print_comments(p, node->from, true);
    statement(p, node);
    p->indent -= INDENT;
    return false;
}

static void if_statement(printer *p, const ast *node)
{
    for (;;) {
        print_inline_comments(p, node->from);
        print_word(p, "if ");
        saved_group saved = print_open(p, "(");
        print_expression(p, node->left);
        print_close(p, saved, ")");
        bool open = governed(p, node->body, node->left->end_line);
        if (!node->other) {
            if (open) print_finish(p);
            return;
        }
        if (open && comment_before(p, node->other->from)) {
            print_finish(p);
            open = false;
        }
        if (!open) print_comments(p, node->other->from, true);
        print_word(p, open ? " else" : "else");
        if (node->other->kind != AST_IF) {
            if (governed(p, node->other, node->other->from.line)) print_finish(p);
            return;
        }
        print_word(p, " ");
        node = node->other;
    }
}

static void statement(printer *p, const ast *node)
{
    if (statement_is_simple(node)) {
        print_simple(p, node);
        print_finish(p);
        return;
    }
    bool open = false;
    switch (node->kind) {
    case AST_BLOCK: brace_block(p, node), open = true; break;
    case AST_IF: if_statement(p, node); break;
    case AST_WHILE: {
        print_word(p, "while ");
        saved_group saved = print_open(p, "(");
        print_expression(p, node->left);
        print_close(p, saved, ")");
        open = governed(p, node->body, node->left->end_line);
        break;
    }
    case AST_FOR: {
        print_word(p, "for ");
        saved_group saved = print_open(p, "(");
        print_word(p, "int ");
        print_inline_comments(p, node->at);
        print_word(p, node->name);
        print_word(p, " = ");
        print_expression(p, node->left);
        print_word(p, "; ");
        print_break(p, 0, false);
        text_print(&p->line, "%s %s ", node->name, node->word);
        print_expression(p, node->right);
        print_word(p, "; ");
        print_break(p, 0, false);
        text_print(&p->line, "%s%s%.2s", node->name, node->third ? " " : "", node->words);
        if (node->third) {
            print_word(p, " ");
            print_expression(p, node->third);
        }
        print_close(p, saved, ")");
        const ast *last = node->third ? node->third : node->right;
        open = governed(p, node->body, last->end_line);
        break;
    }
    default: CHECK(!"a statement");
    }
    if (open) print_finish(p);
}
