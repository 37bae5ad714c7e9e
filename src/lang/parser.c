/*
 * What every part of the parser stands on. In: tokens. Out: the next one, an error at its place and silence until the
 * statement is over, nodes of a tree of bounded depth, types.
 * SPDX-License-Identifier: MIT
 */
#include "lang/parse.h"

#include <ctype.h>
#include <string.h>

void parser_advance(parser *p)
{
    p->end_line = p->now.end_line;
    p->end_column = p->now.end_column;
    p->before = p->now.kind == TOKEN_NAME ? p->now.word : NULL;
    p->now = p->next;
    p->next = lex_next(&p->lex);
}

bool parser_is(const parser *p, const char *word)
{
    return (p->now.kind == TOKEN_OPERATOR || p->now.kind == TOKEN_KEYWORD) && !strcmp(p->now.word, word);
}

bool parser_is_name(const parser *p, const char *word)
{
    return p->now.kind == TOKEN_NAME && !strcmp(p->now.word, word);
}

bool parser_accept(parser *p, const char *word)
{
    if (p->panic || !parser_is(p, word)) return false;
    parser_advance(p);
    return true;
}

void parser_tell_comma(parser *p, const char *advice)
{
    diagnose(p->d, E110, p->now.at, advice, "a bracket holds one axis");
}

void parser_error(parser *p, error_code code, place at, const char *advice, const char *format, ...)
{
    bool silent = p->panic || p->lex.stopped; /* nothing after a stop is the user's */
    p->panic = true;
    if (silent) return;
    text words = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&words, format, list);
    va_end(list);
    diagnose(p->d, code, at, advice, "%s", text_get(&words));
    text_free(&words);
}

const char *token_describe(const parser *p, const token *t)
{
    switch (t->kind) {
    case TOKEN_END: return "the end of the file";
    case TOKEN_STRING: return "a string";
    case TOKEN_RAW: return "raw text";
    case TOKEN_BAD: return "an unknown character";
    case TOKEN_TYPE: return arena_print(p->file->memory, "the type `%s`", t->word);
    default: return arena_print(p->file->memory, "`%.60s%s`", t->word, strlen(t->word) > 60 ? "..." : "");
    }
}

/* Python's `n // 2` in the line that ended: a comment right behind an operand, and a number or a name in it. */
static bool has_quotient(const parser *p)
{
    const ast_file *f = p->file;
    if (p->end_line < 1 || p->end_line > f->line_count) return false;
    const char *c = f->lines[p->end_line - 1];
    if (p->end_column < 1 || strlen(c) < (size_t)p->end_column) return false;
    c += p->end_column - 1;
    c += strspn(c, " ");
    if (strncmp(c, "//", 2)) return false;
    c += 2 + strspn(c + 2, " ");
    size_t word = 0;
    while (isalnum((unsigned char)c[word]) || c[word] == '_') word++;
    c += word + strspn(c + word, " ");
    return word && *c && strchr(";)],}", *c);
}

/* What other languages mean by a sign where another one is expected. */
static const struct {
    const char *found, *expected, *advice;
} signs[] = {
    {"[", "an expression",
     "there are no lists: tensors are arguments, `concat(a, b, axis = 0)`, axes a set, `axis = {0, 1}`"},
    {"*", "an expression",
     "there are no pointers: an element is `x[i]`, as in `atomic_add(y[i], v)`; an array goes by its name"},
    {"&", "an expression",
     "there are no pointers: an element is `x[i]`, as in `atomic_add(y[i], v)`; an array goes by its name"},
    {"tile", "an expression", "a tensor several times along its axes is `repeat(x, 2, 1)`"},
    {"<<", "`(`", "a launch counts programs, their threads are the compiler's: `launch (cdiv(n, BLOCK))`"},
    {"<<", "a clause or `{`", "a launch counts programs, their threads are the compiler's: `launch (cdiv(n, BLOCK))`"},
    {"[", "`(`", "it is in parentheses: `launch (cdiv(n, BLOCK))`, `if (x > 0) { ... }`"},
    {":", "`=`", "the type comes first: `float v = ...;`; of tensors `let v = ...;` has none"},
    {"->", "`{`", "the type of the result comes first: `float name(float x) { return ...; }`"},
};

void parser_unexpected(parser *p, const char *expected, const char *advice)
{
    place at = p->now.at;
    if (p->now.kind == TOKEN_BAD) { /* the lexer has spoken */
        p->panic = true;
        return;
    }
    /* What is missing at the end of a line is missing there, not at the start of the next. */
    bool missing = expected[0] == '`' && strchr(";,)]", expected[1]) && p->now.at.line > p->end_line && p->end_line > 0;
    if (missing) at = (place){.line = p->end_line, .column = p->end_column};
    if (missing && !advice && has_quotient(p)) advice = "`//` begins a comment; `/` of integers rounds down";
    bool word = p->now.kind == TOKEN_NAME;
    const char *habit = word && !missing ? habit_advice(p->now.word) : NULL;
    if (!habit && !missing && p->before && (!strcmp(expected, "`;`") || !strcmp(expected, "`=`")))
        habit = habit_advice(p->before); /* `not x`, `try {`, `let mut y` */
    if (!habit && !advice && parser_is(p, "if") && expected[0] == '`') advice = "a choice is `condition ? a : b`";
    for (int i = 0; i < COUNT(signs) && !habit; i++)
        if (!strcmp(expected, signs[i].expected) && parser_is(p, signs[i].found)) habit = signs[i].advice;
    parser_error(p, E104, at, habit ? habit : advice, "expected %s, found %s", expected, token_describe(p, &p->now));
    if (missing && expected[1] == ';') p->panic = false; /* as if it were there: the next line is a statement */
}

bool parser_expect(parser *p, const char *word, const char *advice)
{
    if (p->panic) return false;
    if (parser_accept(p, word)) return true;
    parser_unexpected(p, arena_print(p->file->memory, "`%s`", word), advice);
    return false;
}

const char *parser_expect_name(parser *p, const char *what, place *at)
{
    *at = p->now.at;
    if (p->panic) return "";
    if (p->now.kind != TOKEN_NAME) {
        bool reserved = p->now.kind == TOKEN_KEYWORD || p->now.kind == TOKEN_TYPE;
        parser_unexpected(p, what, reserved ? "this word is reserved: choose another name" : NULL);
        return "";
    }
    const char *name = p->now.word;
    parser_advance(p);
    return name;
}

bool parser_enter(parser *p)
{
    if (p->nesting++ < NESTING_LIMIT) return true;
    parser_error(p, E105, p->now.at, "split it", "nested deeper than %d", NESTING_LIMIT);
    p->lex.stopped = true; /* what follows is as deep: there is no sensible place to go on */
    return false;
}

void parser_leave(parser *p)
{
    p->nesting--;
}

ast *parser_node(parser *p, ast_kind kind, place from)
{
    ast *node = ARENA_NEW(p->file->memory, ast);
    if (p->node_count++ == NODE_LIMIT) {
        parser_error(p, E105, from, "split it", "the file has more than %d parts", NODE_LIMIT);
        p->lex.stopped = true;
    }
    node->kind = kind;
    node->from = node->at = from;
    node->end_line = from.line;
    node->word = node->name = "";
    return node;
}

static int list_height(const ast_list *list)
{
    int height = 0;
    for (int i = 0; i < list->count; i++) height = MAXIMUM(height, list->items[i]->height);
    return height;
}

ast *parser_done(parser *p, ast *node)
{
    const ast *children[] = {node->type, node->left, node->right, node->third, node->body, node->other};
    int height = MAXIMUM(list_height(&node->list), MAXIMUM(list_height(&node->clauses), list_height(&node->phases)));
    for (int i = 0; i < COUNT(children); i++)
        if (children[i]) height = MAXIMUM(height, children[i]->height);
    node->height = height + 1;
    node->end_line = MAXIMUM(p->end_line, node->from.line);
    node->end_column = p->end_column;
    if (node->height <= HEIGHT_LIMIT) return node;
    parser_error(p, E105, node->at, "split it", "this is a chain of more than %d parts", HEIGHT_LIMIT);
    p->lex.stopped = true;
    return parser_node(p, AST_EMPTY, node->from); /* the tall tree is dropped */
}

void parser_push(parser *p, ast_list *list, ast *item)
{
    ARENA_PUSH(p->file->memory, list->items, list->count, list->capacity, item);
}

bool word_is_generic(const char *word)
{
    if (word[0] < 'A' || word[0] > 'Z') return false;
    for (int i = 1; word[i]; i++)
        if (word[i] < '0' || word[i] > '9') return false;
    return true;
}

bool parser_at_type(const parser *p)
{
    return p->now.kind == TOKEN_TYPE || (p->now.kind == TOKEN_NAME && word_is_generic(p->now.word));
}

/* `half x`, `float32 x`: said once, and read on, so that the other types of the list are looked at too. A name alone,
 * `x_ptr,`, lacks its type. */
static bool foreign_type(parser *p)
{
    if (p->now.kind != TOKEN_NAME || parser_at_type(p)) return false;
    const char *habit = habit_advice(p->now.word), *after = p->next.kind == TOKEN_OPERATOR ? p->next.word : "";
    if (habit && (p->next.kind == TOKEN_NAME || after[0] == '*')) {
        diagnose(p->d, E104, p->now.at, habit, "expected a type, found `%.60s`", p->now.word);
        parser_advance(p);
        return true;
    }
    if (habit || !after[0] || !strchr(",):=", after[0])) return false;
    parser_error(p, E104, p->now.at, "a parameter has a type, and an array its extents: `in float x[n]`, `int k`",
                 "expected a type, found `%.60s`", p->now.word);
    return true;
}

ast *parse_type(parser *p)
{
    ast *node = parser_node(p, AST_TYPE, p->now.at);
    node->word = "float";
    if (p->panic) return node;
    if (foreign_type(p)) return node;
    if (!parser_at_type(p)) {
        parser_unexpected(p, "a type",
                          p->now.kind == TOKEN_NAME ? "types are float, i32, ..., or a generic one such as `T`" : NULL);
        return node;
    }
    node->word = p->now.word;
    node->is_generic = p->now.kind == TOKEN_NAME;
    if (!strcmp(node->word, "tf32"))
        parser_error(p, E104, p->now.at, "round operands where they are used: dot(tf32(a), tf32(b))",
                     "expected a type, found `tf32`, which is only a rounding");
    parser_advance(p);
    return parser_done(p, node);
}

void parser_no_pointer(parser *p)
{
    if (p->panic || (!parser_is(p, "*") && !parser_is(p, "&"))) return;
    diagnose(p->d, E110, p->now.at,
             "an array is a parameter with its extents, `in float x[n]` or `out float y[rows][cols]`",
             "there are no pointers");
    while (parser_is(p, "*") || parser_is(p, "&") || parser_is_name(p, "__restrict__")) parser_advance(p);
}
