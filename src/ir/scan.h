/*
 * Tokens of the text forms of the tile IR and of the tensor graph. `#` starts a comment that runs to the end of its line.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_SCAN_H
#define QUERN_IR_SCAN_H

#include "ir/tile.h"

typedef enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_VALUE, TOKEN_NUMBER, TOKEN_STRING, TOKEN_SIGN } token_kind;

typedef struct token {
    token_kind kind;
    const char *start; /* VALUE: the name after the point; STRING: without quotes, escapes as written */
    size_t length;
    int64_t integer; /* VALUE: its number */
    int line;
    bool first_of_line;
} token;

typedef struct scanner {
    const char *file, *next, *end;
    int line;
    token token; /* the next one to be read */
    bool failed;
    qn_error *error;
    char described[64];
} scanner;

/* scan.c: all return false once something failed, and the first failure is the one that is told. */
bool scan_next(scanner *s);
bool scan_is(const scanner *s, const char *word); /* the token is this name or sign */
bool scan_accept(scanner *s, const char *word);   /* and is passed over */
bool scan_expect(scanner *s, const char *word);
bool scan_fail(scanner *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool scan_fail_at(scanner *s, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *scan_describe(scanner *s); /* the token for a message; lives in the scanner until the next call */
const char *scan_unquote(scanner *s, arena *memory); /* of the STRING token; NULL after a failure */
/* What both forms write: read and passed over. */
bool scan_integer(scanner *s, int64_t low, int64_t high, int64_t *out);
bool scan_word(scanner *s, const char *const *words, int count, const char *what, int *out); /* its number in a list */
bool scan_elem(scanner *s, dtype *elem);
/* A constant stands before the type that tells what it is: its token is put aside, and understood later. */
bool scan_constant_token(scanner *s, token *t);
bool scan_constant(scanner *s, const token *t, dtype elem, number *out);

#endif
