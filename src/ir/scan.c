/*
 * Text to tokens for read.c and graph_read.c. In: bytes, not trusted. Out: one token at a time, or a failure with its line.
 * SPDX-License-Identifier: MIT
 */
#include "ir/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool fail_list(scanner *s, int line, const char *format, va_list list)
{
    if (s->failed) return false;
    char words[512];
    plain_print_list(words, sizeof(words), format, list);
    error_set(s->error, QN_BAD_FILE, "%s:%d: %s", s->file, line, words);
    s->failed = true;
    s->token = (token){.kind = TOKEN_END, .line = line};
    return false;
}

bool scan_fail(scanner *s, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fail_list(s, s->token.line ? s->token.line : s->line, format, list);
    va_end(list);
    return false;
}

bool scan_fail_at(scanner *s, int line, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fail_list(s, line, format, list);
    va_end(list);
    return false;
}

static size_t word_length(const scanner *s, const char *from)
{
    const char *p = from;
    while (p < s->end && (is_letter(*p) || is_digit(*p))) p++;
    return (size_t)(p - from);
}

static bool scan_value(scanner *s)
{
    const char *p = s->next + 1;
    if (p == s->end || !is_digit(*p)) return scan_fail_at(s, s->line, "a value is %% and a number");
    for (; p < s->end && is_digit(*p); p++)
        if (s->token.integer < INT32_MAX) s->token.integer = s->token.integer * 10 + (*p - '0');
    s->token.kind = TOKEN_VALUE;
    s->token.start = p;
    if (p + 1 < s->end && *p == '.' && is_letter(p[1])) {
        s->token.start = p + 1;
        s->token.length = word_length(s, p + 1);
    }
    s->next = s->token.start + s->token.length;
    return true;
}

static bool scan_number(scanner *s)
{
    const char *p = s->next + 1;
    while (p < s->end &&
           (is_digit(*p) || is_letter(*p) || *p == '.' || ((*p == '-' || *p == '+') && (p[-1] == 'e' || p[-1] == 'E'))))
        p++;
    s->token.kind = TOKEN_NUMBER;
    s->token.start = s->next;
    s->token.length = (size_t)(p - s->next);
    s->next = p;
    return true;
}

static bool scan_string(scanner *s)
{
    const char *p = s->next + 1;
    s->token.start = p;
    for (; p < s->end && *p != '"' && *p != '\n'; p++)
        if (*p == '\\' && p + 1 < s->end) p++;
    if (p >= s->end || *p != '"') return scan_fail_at(s, s->line, "a text is not closed on its line");
    s->token.kind = TOKEN_STRING;
    s->token.length = (size_t)(p - s->token.start);
    s->next = p + 1;
    return true;
}

bool scan_next(scanner *s)
{
    if (s->failed) return false;
    bool first = s->token.line == 0;
    for (; s->next < s->end; s->next++) {
        char c = *s->next;
        if (c == '#') {
            while (s->next < s->end && *s->next != '\n') s->next++;
            if (s->next == s->end) break;
            c = '\n';
        }
        if (c == '\n') {
            s->line++;
            first = true;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            break;
        }
    }
    s->token = (token){.kind = TOKEN_END, .line = s->line, .first_of_line = first};
    if (s->next == s->end) return true;
    char c = *s->next;
    if (c == '%') return scan_value(s);
    if (c == '"') return scan_string(s);
    if (is_digit(c) || c == '-') return scan_number(s);
    s->token.start = s->next;
    if (is_letter(c)) {
        s->token.kind = TOKEN_NAME;
        s->token.length = word_length(s, s->next);
    } else if (c && strchr("=,:;@.()[]{}", c)) {
        s->token.kind = TOKEN_SIGN;
        s->token.length = 1;
    } else {
        return scan_fail_at(s, s->line, "unexpected character (byte %d)", (unsigned char)c);
    }
    s->next += s->token.length;
    return true;
}

bool scan_is(const scanner *s, const char *word)
{
    const token *t = &s->token;
    return (t->kind == TOKEN_NAME || t->kind == TOKEN_SIGN) && t->length == strlen(word) &&
           !memcmp(t->start, word, t->length);
}

bool scan_accept(scanner *s, const char *word)
{
    return !s->failed && scan_is(s, word) && scan_next(s);
}

bool scan_expect(scanner *s, const char *word)
{
    if (s->failed) return false;
    if (!scan_is(s, word)) return scan_fail(s, "expected %s, found %s", word, scan_describe(s));
    return scan_next(s);
}

const char *scan_describe(scanner *s)
{
    const token *t = &s->token;
    int length = (int)MINIMUM(t->length, 40);
    switch (t->kind) {
    case TOKEN_END: snprintf(s->described, sizeof(s->described), "the end of the text"); break;
    case TOKEN_VALUE: snprintf(s->described, sizeof(s->described), "%%%d", (int)t->integer); break;
    case TOKEN_STRING: snprintf(s->described, sizeof(s->described), "\"%.*s\"", length, t->start); break;
    default: snprintf(s->described, sizeof(s->described), "%.*s", length, t->start);
    }
    return s->described;
}

static int hex_digit(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

const char *scan_unquote(scanner *s, arena *memory)
{
    const char *p = s->token.start, *end = p + s->token.length;
    char *words = arena_alloc(memory, s->token.length + 1), *to = words;
    while (p < end) {
        char c = *p++;
        if (c == '\\' && p < end) {
            char escape = *p++;
            if (escape == 'n')
                c = '\n';
            else if (escape == 't')
                c = '\t';
            else if (escape == '\\' || escape == '"')
                c = escape;
            else if (escape == 'x' && end - p >= 2 && hex_digit(p[0]) >= 0 && hex_digit(p[1]) >= 0) {
                c = (char)(hex_digit(p[0]) * 16 + hex_digit(p[1]));
                p += 2;
            } else {
                scan_fail(s, "unknown escape in a text");
                return NULL;
            }
        }
        if (!c) {
            scan_fail(s, "a text holds a NUL byte");
            return NULL;
        }
        *to++ = c;
    }
    return words;
}

bool scan_integer(scanner *s, int64_t low, int64_t high, int64_t *out)
{
    char digits[32];
    char *end;
    if (s->token.kind != TOKEN_NUMBER || s->token.length >= sizeof(digits))
        return scan_fail(s, "expected a whole number, found %s", scan_describe(s));
    memcpy(digits, s->token.start, s->token.length);
    digits[s->token.length] = 0;
    errno = 0;
    *out = strtoll(digits, &end, 10);
    if (*end || errno || *out < low || *out > high) return scan_fail(s, "the number %s is not allowed here", digits);
    return scan_next(s);
}

/* The number of the word in a list of words. */
bool scan_word(scanner *s, const char *const *words, int count, const char *what, int *out)
{
    for (int i = 0; i < count; i++) {
        if (!scan_is(s, words[i])) continue;
        *out = i;
        return scan_next(s);
    }
    return scan_fail(s, "expected %s, found %s", what, scan_describe(s));
}

bool scan_elem(scanner *s, dtype *elem)
{
    for (int i = 0; i < DT_COUNT; i++) {
        if (!scan_is(s, dtypes[i].text)) continue;
        *elem = (dtype)i;
        return scan_next(s);
    }
    return scan_fail(s, "expected an element type, found %s", scan_describe(s));
}

bool scan_constant_token(scanner *s, token *t)
{
    *t = s->token;
    if (t->kind != TOKEN_NUMBER && t->kind != TOKEN_NAME)
        return scan_fail(s, "expected a constant, found %s", scan_describe(s));
    return scan_next(s);
}

/* A constant of a known type, from the token that was put aside. */
bool scan_constant(scanner *s, const token *t, dtype elem, number *out)
{
    char words[64];
    char *end = words;
    *out = (number){0};
    if (t->length >= sizeof(words)) return scan_fail(s, "a constant is too long");
    memcpy(words, t->start, t->length);
    words[t->length] = 0;
    errno = 0;
    if (elem == DT_BOOL) {
        out->i = !strcmp(words, "true");
        if (!out->i && strcmp(words, "false") != 0)
            return scan_fail_at(s, t->line, "a bool is true or false, not %s", words);
        return true;
    }
    if (dtype_is_float(elem)) {
        out->f = number_parse(words, &end);
    } else if (elem == DT_U64) {
        out->i = (int64_t)strtoull(words, &end, 10);
        if (words[0] == '-') end = words;
    } else {
        out->i = strtoll(words, &end, 10);
        if (integer_wrap(elem, out->i) != out->i) end = words;
    }
    bool whole = end != words && !*end && (!errno || dtype_is_float(elem));
    return whole || scan_fail_at(s, t->line, "%s is no constant of type %s", words, dtypes[elem].text);
}
