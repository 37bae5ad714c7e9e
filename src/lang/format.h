/*
 * The printer of `quern fmt`, shared by format.c (items), format_body.c (statements and expressions) and format_line.c
 * (lines and comments).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LANG_FORMAT_H
#define QUERN_LANG_FORMAT_H

#include "lang/ast.h"

#include <string.h>

#define WIDTH 120
#define INDENT 4

typedef struct breakpoint {
    int at;      /* offset in the line */
    int weight;  /* the smallest is broken first */
    int group;   /* offset behind the open bracket, -1: none */
    bool forced; /* after a comment to the end of the line */
} breakpoint;

typedef struct printer {
    const ast_file *file;
    text *out;
    text line;    /* the logical line being built */
    text hoisted; /* comments that cannot stay inside it */
    breakpoint *breaks;
    int break_count, break_capacity;
    arena *memory;      /* of the breakpoints */
    int indent;         /* of the line being built */
    int group, nesting; /* the innermost open bracket */
    int next_comment;
    int code_end; /* length of out behind the last code or comment that more can be appended to */
} printer;

typedef struct saved_group {
    int group, nesting;
} saved_group;

/* format_line.c */
void print_word(printer *p, const char *words);
void print_name(printer *p, const char *name);        /* to the line */
void print_break(printer *p, int weight, bool forced); /* the line may break here */
saved_group print_open(printer *p, const char *bracket);
void print_close(printer *p, saved_group saved, const char *bracket);
void print_spaces(text *t, int count);
void print_finish(printer *p); /* lays the line out and writes it; a comment may follow on it */
bool place_before(place a, place b);
const ast_comment *comment_before(const printer *p, place at); /* the next comment, if it stands before */
bool comment_between(const printer *p, place from, int line, int column);
void print_inline_comments(printer *p, place at); /* inside a line: in front of the token at this place */
/* Between lines: behind the line before if they stood there, else on lines of their own. first: nothing is above. */
void print_comments(printer *p, place at, bool first);

/* format_body.c */
void print_expression(printer *p, const ast *node);
void print_list(printer *p, const ast_list *list);
void print_bracketed(printer *p, const char *open, const ast_list *list, const char *close);
void print_type(printer *p, const ast *type);
void print_extents(printer *p, const ast_list *list);
bool statement_is_simple(const ast *node);      /* one line, no statement inside */
void print_simple(printer *p, const ast *node); /* to the line, with its `;` */
int print_width(printer *p, const ast *node);   /* how far the line would reach with this simple statement behind it */
void print_statements(printer *p, const ast *block); /* one level deeper, without the braces */

#endif
