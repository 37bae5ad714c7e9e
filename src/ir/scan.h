/*
 * Tokens of the tile IR's text form. `#` starts a comment that runs to the end of its line.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_SCAN_H
#define QUERN_IR_SCAN_H

#include "base/base.h"

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

#endif
