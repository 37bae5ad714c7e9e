/*
 * Numbers in text, the same whatever the host program has set. In: formats with numbers, or digits. Out: text with a
 * decimal point, or a number.
 *
 * A program that calls setlocale changes what printf and strtod do in every library it uses: with a decimal comma `0.5`
 * in a kernel's text would become another constant. So every number that is printed or read goes through this file, in
 * the locale "C" of the calling thread alone (tests/scripts/style.sh holds that), and work runs in it (pool.c).
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "base/base.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The C library has this one ready: it allocates nothing, and nothing frees it. */
static locale_t plain(void)
{
    static _Atomic(locale_t) kept;
    locale_t found = kept;
    if (!found) kept = found = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return found;
}

number_words number_words_begin(void)
{
    return (number_words){uselocale(plain())};
}

void number_words_end(number_words before)
{
    if (before.locale) uselocale((locale_t)before.locale);
}

int plain_print_list(char *to, size_t size, const char *format, va_list list)
{
    number_words before = number_words_begin();
    int length = vsnprintf(to, size, format, list);
    number_words_end(before);
    return length;
}

void plain_literal(char *to, size_t size, double x, bool wide)
{
    plain_print(to, size, "%.6g", x);
    double again = number_parse(to, NULL);
    if (wide ? again != x : (float)again != (float)x) plain_print(to, size, wide ? "%.17g" : "%.9g", x);
    size_t length = strlen(to);
    plain_print(to + length, size - length, "%s%s", strpbrk(to, ".e") ? "" : ".0", wide ? "" : "f");
}

int plain_print(char *to, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = plain_print_list(to, size, format, list);
    va_end(list);
    return length;
}

double number_parse(const char *words, char **end)
{
    return strtod_l(words, end, plain());
}

bool number_amount(const char *words, const char *units, double *number, char *unit)
{
    char *end;
    *number = number_parse(words, &end);
    *unit = 0;
    if (end == words || !isfinite(*number) || *number < 0) return false;
    if (*end && strchr(units, *end)) *unit = *end++;
    return !*end;
}
