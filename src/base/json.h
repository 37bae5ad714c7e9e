/*
 * JSON out, the one writer of it. Nothing here can make an invalid file: text is escaped, bytes that are not UTF-8 are
 * replaced, and a number that JSON cannot hold becomes null.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_BASE_JSON_H
#define QUERN_BASE_JSON_H

#include "base/base.h"

void json_add_string(text *out, const char *words);         /* in quotes; NULL: null */
void json_add_number(text *out, double number, int digits); /* digits 0: as many as it takes to read it back */

/* A list of flat objects, written key by key. */
typedef struct json {
    text out;
    int objects, keys;
} json;
void json_open_object(json *j);
void json_text(json *j, const char *key, const char *words); /* NULL: null */
void json_number(json *j, const char *key, double number);
void json_whole(json *j, const char *key, int64_t number);
void json_truth(json *j, const char *key, bool truth);
void json_numbers(json *j, const char *key, const double *numbers, int count); /* a list */
void json_close_object(json *j);
const char *json_finish(json *j); /* the whole list; borrowed from j */
void json_free(json *j);

#endif
