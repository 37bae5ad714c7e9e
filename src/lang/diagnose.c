/*
 * Diagnostics: collected in any order, shown in the order of the source.
 *
 *     file:line:column: error E201: what is wrong
 *     the source line
 *         ^~~~
 *       one sentence of advice
 *
 * SPDX-License-Identifier: MIT
 */
#include "lang/ast.h"

#include <stdlib.h>
#include <string.h>

#define SHOWN_LIMIT 20
#define LINE_LIMIT_BYTES 160

static bool same(const diagnostic *a, const diagnostic *b)
{
    return a->at.line == b->at.line && a->at.column == b->at.column && a->code == b->code &&
           !strcmp(a->message, b->message);
}

void diagnose(diagnostics *d, error_code code, place at, const char *advice, const char *format, ...)
{
    text words = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&words, format, list);
    va_end(list);
    diagnostic item = {.at = at, .code = code};
    item.message = arena_copy_text(d->memory, text_get(&words), words.length);
    item.advice = advice ? arena_copy_text(d->memory, advice, strlen(advice)) : NULL;
    text_free(&words);
    /* Instances and expanded functions repeat what was said; the last few are enough to look at. */
    for (int i = MAXIMUM(0, d->count - 64); i < d->count; i++)
        if (same(&d->items[i], &item)) return;
    ARENA_PUSH(d->memory, d->items, d->count, d->capacity, item);
    if (!error_code_is_warning(code)) d->errors++;
}

static int compare(const void *a, const void *b)
{
    const diagnostic *x = *(const diagnostic *const *)a, *y = *(const diagnostic *const *)b;
    if (x->at.line != y->at.line) return x->at.line < y->at.line ? -1 : 1;
    if (x->at.column != y->at.column) return x->at.column < y->at.column ? -1 : 1;
    return x < y ? -1 : x > y; /* as they came */
}

static bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80; /* inside a UTF-8 sequence */
}

static void print_source(const char *line, place at, bool colour, text *out)
{
    int length = (int)strlen(line), column = MINIMUM(at.column - 1, length);
    int end = at.end_column > at.column ? MINIMUM(at.end_column - 1, length) : column + 1;
    int first = 0, last = length;
    if (length > LINE_LIMIT_BYTES) { /* a window around the caret */
        first = MAXIMUM(0, column - LINE_LIMIT_BYTES / 2);
        last = MINIMUM(length, first + LINE_LIMIT_BYTES);
        while (first > 0 && continues(line[first])) first--;
        while (last < length && continues(line[last])) last++;
    }
    if (first > 0) text_add(out, "...");
    for (int i = first; i < last; i++) { /* control characters would confuse a terminal */
        unsigned char c = (unsigned char)line[i];
        text_add_bytes(out, c < 32 && c != '\t' ? "?" : line + i, 1);
    }
    text_add(out, last < length ? "...\n" : "\n");
    if (first > 0) text_add(out, "   ");
    for (int i = first; i < column; i++)
        if (!continues(line[i])) text_add(out, line[i] == '\t' ? "\t" : " ");
    text_add(out, colour ? "\033[1;32m^" : "^");
    for (int i = column + 1; i < MINIMUM(end, last); i++)
        if (!continues(line[i])) text_add(out, "~");
    text_add(out, colour ? "\033[0m\n" : "\n");
}

void diagnostics_print(const diagnostics *d, const ast_file *file, bool colour, text *out)
{
    if (!d->count) return;
    const diagnostic **order = heap_new(sizeof(*order) * (size_t)d->count);
    for (int i = 0; i < d->count; i++) order[i] = &d->items[i];
    qsort(order, (size_t)d->count, sizeof(*order), compare);
    for (int i = 0; i < MINIMUM(d->count, SHOWN_LIMIT); i++) {
        const diagnostic *item = order[i];
        bool warning = error_code_is_warning(item->code);
        if (colour) text_add(out, "\033[1m");
        const ast_file *source;
        int line = item->at.line;
        text_add(out, source_of_line(file, &line, &source));
        if (line > 0) text_print(out, ":%d:%d", line, item->at.column);
        text_add(out, ": ");
        if (colour) text_add(out, warning ? "\033[35m" : "\033[31m");
        text_add(out, warning ? "warning " : "error ");
        text_print(out, "%s:%s %s%s\n", error_code_text(item->code), colour ? "\033[0;1m" : "", item->message,
                   colour ? "\033[0m" : "");
        if (line > 0 && line <= source->line_count) print_source(source->lines[line - 1], item->at, colour, out);
        if (item->advice) text_print(out, "  %s\n", item->advice);
    }
    if (d->count > SHOWN_LIMIT) text_print(out, "... and %d more\n", d->count - SHOWN_LIMIT);
    heap_free(order);
}

qn_status diagnostics_error(const diagnostics *d, const ast_file *file, qn_status status, qn_error *error)
{
    const diagnostic *first = NULL;
    text words = {0};
    diagnostics_print(d, file, false, &words);
    error_set(error, status, "%s", text_get(&words));
    text_free(&words);
    for (int i = 0; i < d->count; i++) {
        const diagnostic *item = &d->items[i];
        if (!error_code_is_warning(item->code) && (!first || compare(&item, &first) < 0)) first = item;
    }
    if (!error || !first) return status;
    const ast_file *source;
    int line = first->at.line;
    source_of_line(file, &line, &source);
    error->code = (int)first->code;
    error->line = line;
    error->column = line ? first->at.column : 0;
    return status;
}
