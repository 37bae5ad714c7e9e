/*
 * Colours on a terminal. In: a line that a command says, already fit for a terminal. Out: the same with the code of a
 * diagnostic, its caret and the words of a verdict in colour. The library's texts know nothing of it.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <string.h>

#define PLAIN "\033[0m"

/* "error E301:", "warning W602:", "R704:" in front of a message: where it begins, and its length; NULL if there is none. */
static const char *code_of(const char *line, size_t length, size_t *code_length)
{
    for (size_t i = 0; i + 6 < length; i++) {
        if (line[i] != ':' || line[i + 1] != ' ') continue;
        const char *at = line + i + 2;
        size_t left = length - i - 2, word = 0;
        if (left > 6 && !strncmp(at, "error ", 6)) word = 6;
        if (left > 8 && !strncmp(at, "warning ", 8)) word = 8;
        if (left < word + 5 || !strchr("ERW", at[word]) || at[word + 4] != ':') continue;
        if (strspn(at + word + 1, "0123456789") != 3) continue;
        *code_length = word + 5;
        return at;
    }
    return NULL;
}

static bool is_caret(const char *line, size_t length)
{
    size_t blanks = strspn(line, " \t");
    return blanks < length && line[blanks] == '^' && blanks + strspn(line + blanks, "^~") == length;
}

static const struct {
    const char *word, *colour;
} words[] = {{"FASTER", "\033[32m"},   {"SLOWER", "\033[31m"},   {"AMBIGUOUS", "\033[33m"}, {": clean,", "\033[32m"},
             {" finding", "\033[31m"}, {" wrong: ", "\033[31m"}, {" failed: ", "\033[31m"}};

static void paint_line(FILE *to, const char *line, size_t length)
{
    size_t code_length;
    const char *code = code_of(line, length, &code_length);
    if (code) {
        fprintf(to, "\033[1m%.*s", (int)(code - line), line);
        fprintf(to, "%s%.*s" PLAIN "\033[1m", code[0] == 'w' ? "\033[35m" : "\033[31m", (int)code_length, code);
        fprintf(to, "%.*s" PLAIN, (int)(length - (size_t)(code - line) - code_length), code + code_length);
        return;
    }
    if (is_caret(line, length)) {
        fprintf(to, "\033[1;32m%.*s" PLAIN, (int)length, line);
        return;
    }
    for (size_t i = 0; i < length;) {
        size_t found = 0;
        for (size_t k = 0; k < sizeof(words) / sizeof(words[0]) && !found; k++) {
            size_t word = strlen(words[k].word);
            if (i + word > length || strncmp(line + i, words[k].word, word)) continue;
            fprintf(to, "%s%s" PLAIN, words[k].colour, words[k].word);
            found = word;
        }
        if (!found) fputc(line[i], to);
        i += found ? found : 1;
    }
}

void paint(FILE *to, const char *text, size_t length)
{
    while (length) {
        const char *end = memchr(text, '\n', length);
        size_t line = end ? (size_t)(end - text) : length;
        bool coloured = memchr(text, '\033', line) != NULL; /* a table's own colours */
        if (coloured)
            fwrite(text, 1, line, to);
        else
            paint_line(to, text, line);
        if (end) fputc('\n', to);
        text += line + (end != NULL);
        length -= line + (end != NULL);
    }
}
