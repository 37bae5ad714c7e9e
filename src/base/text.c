/*
 * Growable text. In: words and numbers. Out: one NUL-terminated string on the heap.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void reserve(text *t, size_t more)
{
    if (t->length + more + 1 <= t->capacity) return;
    size_t capacity = t->capacity ? t->capacity : 256;
    while (capacity < t->length + more + 1) capacity *= 2;
    t->data = heap_resize(t->data, capacity);
    t->capacity = capacity;
}

void text_add_bytes(text *t, const char *bytes, size_t count)
{
    reserve(t, count);
    if (count) memcpy(t->data + t->length, bytes, count);
    t->length += count;
    t->data[t->length] = 0;
}

void text_add_whole(text *t, int64_t number)
{
    char digits[24];
    int at = (int)sizeof(digits);
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (number < 0) digits[--at] = '-';
    text_add_bytes(t, digits + at, sizeof(digits) - (size_t)at);
}

void text_add(text *t, const char *words)
{
    text_add_bytes(t, words, strlen(words));
}

void text_print_list(text *t, const char *format, va_list list)
{
    va_list again;
    va_copy(again, list);
    int length = plain_print_list(NULL, 0, format, again);
    va_end(again);
    CHECK(length >= 0);
    reserve(t, (size_t)length);
    plain_print_list(t->data + t->length, (size_t)length + 1, format, list);
    t->length += (size_t)length;
}

void text_print(text *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    text_print_list(t, format, list);
    va_end(list);
}

void text_clear(text *t)
{
    t->length = 0;
    if (t->data) t->data[0] = 0;
}

void text_repeat(text *t, size_t from, const char *mark)
{
    text all = {0}, last = {0};
    size_t mark_length = strlen(mark);
    for (const char *at = text_get(t) + from; *at;) {
        size_t length = strcspn(at, "\n");
        if (!strncmp(at, mark, mark_length)) {
            text_clear(&last);
            text_add_bytes(&last, at, length);
        } else {
            if (last.length) text_print(&all, "%s\n", text_get(&last));
            text_add_bytes(&all, at, length);
            text_add(&all, "\n");
        }
        at += length + (at[length] == '\n');
    }
    t->length = from;
    t->data[from] = 0;
    text_add(t, text_get(&all));
    text_free(&all);
    text_free(&last);
}

void text_free(text *t)
{
    heap_free(t->data);
    *t = (text){0};
}

char *text_hand_over(text *t)
{
    size_t size_bytes = t->length + 1;
    char *copy = malloc(size_bytes);
    if (copy) memcpy(copy, text_get(t), size_bytes);
    text_free(t);
    return copy;
}

const char *text_get(const text *t)
{
    return t->data ? t->data : "";
}

void text_add_quoted(text *t, const char *bytes, size_t count)
{
    text_add(t, "\"");
    for (size_t i = 0; i < count; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '\n')
            text_add(t, "\\n");
        else if (c == '\t')
            text_add(t, "\\t");
        else if (c == '\\' || c == '"')
            text_print(t, "\\%c", c);
        else if (c < 32 || c == 127)
            text_print(t, "\\x%02x", c);
        else
            text_add_bytes(t, bytes + i, 1);
    }
    text_add(t, "\"");
}

void text_add_double(text *t, double value)
{
    if (isnan(value)) {
        text_add(t, "nan");
    } else if (isinf(value)) {
        text_add(t, value < 0 ? "-inf" : "inf");
    } else {
        char words[40];
        for (int digits = 1; digits <= 17; digits++) {
            plain_print(words, sizeof(words), "%.*g", digits, value);
            if (number_parse(words, NULL) == value) break;
        }
        text_add(t, words);
    }
}
