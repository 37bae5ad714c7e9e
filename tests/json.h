/*
 * A reader of JSON for tests of what writes it: nothing in it is shared with the writers. Values are a tree on the heap,
 * freed with json_drop; an error ends the reading with `bad` set.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_JSON_H
#define QUERN_TESTS_JSON_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct value_of_json {
    char kind; /* '{', '[', '"', '0' for a number, 'w' for true, false and null */
    double number;
    char *words;
    struct value_of_json *items;
    char **keys;
    int count;
} json_value;

typedef struct json_text_in {
    const char *at;
    bool bad;
} json_text_in;

static inline void json_blanks(json_text_in *in)
{
    while (isspace((unsigned char)*in->at)) in->at++;
}

static inline char *json_words(json_text_in *in)
{
    char *out = malloc(strlen(in->at) < 4096 ? strlen(in->at) + 1 : 4096), *to = out;
    for (in->at++; *in->at && *in->at != '"' && to < out + 4000; in->at++) {
        if ((unsigned char)*in->at < 0x20) in->bad = true;
        if (*in->at == '\\') {
            in->at++;
            if (*in->at == 'u') {
                unsigned code = 0;
                if (sscanf(in->at + 1, "%4x", &code) != 1) in->bad = true;
                in->at += 4;
                *to++ = code < 128 ? (char)code : '?';
                continue;
            }
            const char *place = *in->at ? strchr("\"\\/bfnrt", *in->at) : NULL;
            if (!place) {
                in->bad = true;
                break;
            }
            *to++ = "\"\\/\b\f\n\r\t"[place - "\"\\/bfnrt"];
            continue;
        }
        *to++ = *in->at;
    }
    if (*in->at == '"')
        in->at++;
    else
        in->bad = true;
    *to = 0;
    return realloc(out, (size_t)(to - out) + 1);
}

static inline json_value json_value_in(json_text_in *in)
{
    json_value v = {0};
    json_blanks(in);
    v.kind = *in->at;
    if (v.kind == '{' || v.kind == '[') {
        int capacity = 0;
        char end = v.kind == '{' ? '}' : ']';
        in->at++;
        for (json_blanks(in); *in->at != end && !in->bad; json_blanks(in)) {
            if (v.count == capacity) {
                capacity = capacity ? 2 * capacity : 4;
                v.items = realloc(v.items, sizeof(json_value) * (size_t)capacity);
                v.keys = realloc(v.keys, sizeof(char *) * (size_t)capacity);
            }
            if (v.kind == '{') {
                if (*in->at != '"') {
                    in->bad = true;
                    break;
                }
                v.keys[v.count] = json_words(in);
                json_blanks(in);
                in->bad |= *in->at != ':';
                in->at++;
            }
            v.items[v.count] = json_value_in(in);
            v.count++;
            json_blanks(in);
            if (*in->at == ',')
                in->at++;
            else if (*in->at != end)
                in->bad = true;
        }
        if (!in->bad) in->at++;
    } else if (v.kind == '"') {
        v.words = json_words(in);
    } else if (v.kind == '-' || isdigit((unsigned char)v.kind)) {
        char *end;
        v.kind = '0';
        v.number = strtod(in->at, &end);
        in->at = end;
    } else {
        size_t length = strspn(in->at, "truefalsn");
        v.kind = 'w';
        in->bad |=
            strncmp(in->at, "true", length) && strncmp(in->at, "false", length) && strncmp(in->at, "null", length);
        in->bad |= !length;
        in->at += length;
    }
    return v;
}

/* The whole text; *good: it was JSON and nothing else. */
static inline json_value json_parse(const char *text, bool *good)
{
    json_text_in in = {.at = text};
    json_value v = json_value_in(&in);
    json_blanks(&in);
    *good = !in.bad && !*in.at;
    return v;
}

static inline void json_drop(json_value *v)
{
    for (int i = 0; i < v->count; i++) {
        if (v->kind == '{') free(v->keys[i]);
        json_drop(&v->items[i]);
    }
    free(v->items);
    free(v->keys);
    free(v->words);
    *v = (json_value){0};
}

static inline const json_value *json_get(const json_value *v, const char *key)
{
    for (int i = 0; v && v->kind == '{' && i < v->count; i++)
        if (!strcmp(v->keys[i], key)) return &v->items[i];
    return NULL;
}

static inline const char *json_get_words(const json_value *v, const char *key)
{
    const json_value *found = json_get(v, key);
    return found && found->words ? found->words : "";
}

static inline double json_get_number(const json_value *v, const char *key)
{
    const json_value *found = json_get(v, key);
    return found && found->kind == '0' ? found->number : -1e300;
}

#endif
