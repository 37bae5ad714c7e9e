/*
 * JSON read into a tree: see json_read.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_BASE_JSON_READ_H
#define QUERN_BASE_JSON_READ_H

#include "base/base.h"

typedef enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_TEXT, JSON_LIST, JSON_OBJECT } json_kind;
typedef struct json_node {
    json_kind kind;
    double number; /* of a number; 1 and 0 of a bool */
    const char *words;
    struct json_node *items; /* of a list or an object */
    const char **keys;       /* of an object */
    int count;
} json_node;

/* name: of the file, for the message. */
qn_status json_read(arena *memory, const char *name, const char *words, json_node *out, qn_error *error);
const json_node *json_find(const json_node *object, const char *key);  /* NULL: it has no such key */
const char *json_find_words(const json_node *object, const char *key); /* NULL: none, or not a text */
double json_find_number(const json_node *object, const char *key);     /* NAN: none, or not a number */

#endif
