/*
 * Options that a raw kernel's text carries for its compiler, one `//option WORDS` a line at its start. Apart from raw.h,
 * for those who compile text and know nothing of tile IR.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_RAW_OPTION_H
#define QUERN_EMIT_RAW_OPTION_H

#include "base/base.h"

typedef struct raw_span { /* of a text; length 0: it is not there */
    const char *start;
    size_t length;
} raw_span;

const char *raw_skip_blank(const char *c); /* and comments */
/* The next option at the start of a text; false: there are no more. *at is the text at first. */
bool raw_next_option(const char **at, raw_span *option);

#endif
