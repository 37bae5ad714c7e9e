/*
 * Between lex and parse: tokens, the lexer's state, the parser's state. Private to these files.
 *
 * The lexer streams: the parser holds two tokens. Words of operators, keywords and types are static strings, names are
 * copies in the file's arena. After too many errors, or nesting too deep to go on, the lexer gives only the end.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LANG_PARSE_H
#define QUERN_LANG_PARSE_H

#include "lang/ast.h"

#include <string.h>

#define FILE_LIMIT_BYTES (16u << 20)
#define HEIGHT_LIMIT 1000
#define NODE_LIMIT 4000000 /* of the tree: what 16 MiB of ordinary source need; bounds the memory */
#define ERROR_LIMIT 200    /* a file that is junk is not read to its end */

typedef enum token_kind {
    TOKEN_END,
    TOKEN_NAME,
    TOKEN_KEYWORD,
    TOKEN_TYPE,
    TOKEN_NUMBER,
    TOKEN_STRING, /* word: decoded, length */
    TOKEN_RAW,    /* word: verbatim, length */
    TOKEN_OPERATOR,
    TOKEN_BAD /* already diagnosed */
} token_kind;

typedef struct token {
    token_kind kind;
    const char *word;
    size_t length; /* of strings and raw text */
    place at;
    int end_line, end_column; /* one past the last byte */
    number number;
    bool is_float, is_typed, blank_before;
} token;

typedef struct lexer {
    ast_file *file;
    diagnostics *d;
    size_t at;         /* offset into file->text */
    size_t line_start; /* offset of the first byte of the line */
    int line;
    int last_line; /* line where the last token or comment ended */
    bool stopped;  /* nothing but TOKEN_END from now on */
} lexer;

/* lex.c */
/* Checks the encoding, fills file->lines. first_line: of the lines before this file's, where it is imported; else 0. */
void lex_start(lexer *x, ast_file *file, int first_line, diagnostics *d);
token lex_next(lexer *x);

typedef struct parser {
    ast_file *file;
    diagnostics *d;
    lexer lex;
    token now, next;
    int end_line, end_column; /* of the token consumed last */
    const char *before;       /* its word, where it was a name */
    int nesting, node_count;
    bool panic;                           /* an error was reported; silent until the next statement or item */
    const char *generics[MAX_PARAMS + 1]; /* types of this item that are generic */
    int generic_count;
    ast_list axis_calls; /* calls whose axis may stand by position, until all names are known */
} parser;

/* parse.c */
void parser_advance(parser *p);
bool parser_is(const parser *p, const char *word);      /* an operator or keyword */
bool parser_is_name(const parser *p, const char *word); /* a plain name with a meaning here */
bool parser_accept(parser *p, const char *word);
bool parser_expect(parser *p, const char *word, const char *advice);
const char *parser_expect_name(parser *p, const char *what, place *at);
void parser_tell_comma(parser *p, const char *advice); /* `x[i, j]` */
void parser_error(parser *p, error_code code, place at, const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void parser_unexpected(parser *p, const char *expected, const char *advice); /* E104 at the token that is there */
const char *token_describe(const parser *p, const token *t);
bool parser_enter(parser *p); /* one level deeper; false, with E105, past the limit. Always paired with leave. */
void parser_leave(parser *p);
void parser_recover_body(parser *p); /* after an error in a header: on to its `{`, if there is one, and speak again */
ast *parser_node(parser *p, ast_kind kind, place from);
ast *parser_done(parser *p, ast *node); /* end line and height */
void parser_push(parser *p, ast_list *list, ast *item);
bool word_is_generic(const char *word); /* a capital letter and digits */
bool parser_at_type(const parser *p);   /* a type stands here, by its look */
ast *parse_type(parser *p);
void parser_no_pointer(parser *p); /* E110 for `*` behind a type, which is skipped */

/* parse_expression.c */
ast *parse_expression(parser *p);
ast *parse_template_argument(parser *p); /* an expression without comparisons and shifts: `>` ends the list */
ast *parse_postfix(parser *p);
ast *parse_binary_rest(parser *p, ast *left); /* after an operand that was read already: operators and `?:` */
void parse_set(parser *p, ast_list *list);
void parse_expressions(parser *p, ast_list *list); /* "(" expr { "," expr } ")" */
void parse_extents(parser *p, ast_list *list);     /* { "[" expr "]" } */

/* habits.c: what people write who come from elsewhere */
void habit_dotted(diagnostics *d, arena *memory, place at, const char *word); /* E110, each piece of advice once */
const char *habit_axis(const char *name); /* a second argument of this builtin by position is its `axis`; or NULL */
void habit_slice(parser *p, const ast *subscript); /* W603: `[i : i + B]`, `[-1]` */

/* import.c */
void import_file(parser *p, const ast *import); /* E111, or what is wrong in the file */
bool name_space_known(const ast_file *file, const char *name, size_t length);
ast_file *lang_parse_imported(ast_file *root, ast_file *importer, const char *path, const char *words, size_t length,
                              diagnostics *d); /* parse.c */
void parser_add_item(parser *p, ast *item);    /* parse.c */

/* parse_statement.c */
ast *parse_block(parser *p);
ast *parse_constant(parser *p);

#endif
