/*
 * JSON in: the text of one value to a tree in an arena. Whatever the text is, it ends with a tree or with a message that
 * names the line; depth is limited, so no text can exhaust the stack.
 * SPDX-License-Identifier: MIT
 */
#include "base/json_read.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_JSON_DEPTH = 64 };

typedef struct reader {
    arena *memory;
    const char *start, *at;
    const char *problem; /* NULL: none yet */
} reader;

static bool fail(reader *r, const char *problem)
{
    if (!r->problem) r->problem = problem;
    return false;
}

static void skip_blanks(reader *r)
{
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r') r->at++;
}

static bool take(reader *r, char c)
{
    skip_blanks(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static void add_code_point(text *out, unsigned c)
{
    char bytes[4];
    int count = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (count == 1) {
        bytes[0] = (char)c;
    } else {
        for (int i = count - 1; i > 0; i--, c >>= 6) bytes[i] = (char)(0x80 | (c & 0x3f));
        bytes[0] = (char)((count == 2 ? 0xc0 : count == 3 ? 0xe0 : 0xf0) | c);
    }
    text_add_bytes(out, bytes, (size_t)count);
}

static bool read_digits(reader *r, unsigned *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        char digit = *r->at;
        if (!isxdigit((unsigned char)digit)) return fail(r, "\\u without four digits");
        *code = *code * 16 + (unsigned)(isdigit((unsigned char)digit) ? digit - '0' : (digit | 32) - 'a' + 10);
        r->at++;
    }
    return true;
}

static bool read_escape(reader *r, text *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = *r->at++;
    const char *place = c ? strchr(from, c) : NULL;
    if (place) {
        text_add_bytes(out, &to[place - from], 1);
        return true;
    }
    if (c != 'u') return fail(r, "an unknown escape");
    unsigned code, low;
    if (!read_digits(r, &code)) return false;
    if ((code & 0xfc00) == 0xd800 && r->at[0] == '\\' && r->at[1] == 'u') { /* the first half of a pair */
        r->at += 2;
        if (!read_digits(r, &low)) return false;
        code = (low & 0xfc00) == 0xdc00 ? 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff) : 0xfffd;
    }
    if ((code & 0xf800) == 0xd800) code = 0; /* half a pair is no character */
    add_code_point(out, code ? code : 0xfffd);
    return true;
}

static bool read_words(reader *r, const char **out)
{
    text words = {0};
    bool good = true;
    if (!take(r, '"')) return fail(r, "a text was expected");
    while (good && *r->at != '"') {
        size_t plain = strcspn(r->at, "\"\\");
        for (size_t i = 0, length = 1; good && i < plain; i += length) {
            length = (size_t)utf8_length(r->at + i, plain - i);
            if (!length) good = fail(r, "bytes that are not UTF-8");
        }
        if (!good) break;
        text_add_bytes(&words, r->at, plain);
        r->at += plain;
        if (*r->at == '\\') {
            r->at++;
            good = read_escape(r, &words);
        } else if (!*r->at) {
            good = fail(r, "a text without its end");
        }
    }
    if (good) {
        r->at++;
        *out = arena_copy_text(r->memory, text_get(&words), words.length);
    }
    text_free(&words);
    return good;
}

static bool read_value(reader *r, json_node *out, int depth);

static bool read_list(reader *r, json_node *out, int depth, bool keyed)
{
    int capacity = 0, key_capacity = 0, key_count = 0;
    char end = keyed ? '}' : ']';
    out->kind = keyed ? JSON_OBJECT : JSON_LIST;
    r->at++;
    if (take(r, end)) return true;
    do {
        json_node item = {0};
        const char *key = NULL;
        if (keyed) {
            skip_blanks(r);
            if (!read_words(r, &key)) return false;
            if (!take(r, ':')) return fail(r, "`:` was expected after a key");
            ARENA_PUSH(r->memory, out->keys, key_count, key_capacity, key);
        }
        if (!read_value(r, &item, depth + 1)) return false;
        ARENA_PUSH(r->memory, out->items, out->count, capacity, item);
    } while (take(r, ','));
    return take(r, end) || fail(r, keyed ? "`,` or `}` was expected" : "`,` or `]` was expected");
}

static bool read_word(reader *r, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(r->at, word, length) != 0) return false;
    r->at += length;
    return true;
}

static bool read_value(reader *r, json_node *out, int depth)
{
    if (depth > MOST_JSON_DEPTH) return fail(r, "values nested too deep");
    skip_blanks(r);
    if (*r->at == '{' || *r->at == '[') return read_list(r, out, depth, *r->at == '{');
    out->number = NAN;
    if (*r->at == '"') {
        out->kind = JSON_TEXT;
        return read_words(r, &out->words);
    }
    out->kind = JSON_NULL;
    if (read_word(r, "null")) return true;
    out->kind = JSON_BOOL;
    if (read_word(r, "true")) return out->number = 1, true;
    if (read_word(r, "false")) return out->number = 0, true;
    if (*r->at != '-' && !isdigit((unsigned char)*r->at)) return fail(r, "a value was expected");
    char *end;
    out->kind = JSON_NUMBER;
    out->number = number_parse(r->at, &end);
    if (!isfinite(out->number)) return fail(r, "a number beyond what a double holds");
    r->at = end;
    return true;
}

qn_status json_read(arena *memory, const char *name, const char *words, json_node *out, qn_error *error)
{
    reader r = {.memory = memory, .start = words, .at = words};
    *out = (json_node){0};
    if (read_value(&r, out, 0)) {
        skip_blanks(&r);
        if (!*r.at) return QN_OK;
        fail(&r, "more text after the value");
    }
    int line = 1;
    for (const char *at = r.start; at < r.at; at++) line += *at == '\n';
    return error_set(error, QN_BAD_FILE, "%s:%d: this is not JSON: %s", name, line, r.problem);
}

const json_node *json_find(const json_node *object, const char *key)
{
    if (object->kind != JSON_OBJECT) return NULL;
    for (int i = 0; i < object->count; i++)
        if (!strcmp(object->keys[i], key)) return &object->items[i];
    return NULL;
}

const char *json_find_words(const json_node *object, const char *key)
{
    const json_node *value = json_find(object, key);
    return value && value->kind == JSON_TEXT ? value->words : NULL;
}

double json_find_number(const json_node *object, const char *key)
{
    const json_node *value = json_find(object, key);
    return value && value->kind == JSON_NUMBER ? value->number : NAN;
}
