/*
 * Errors and suggestions: a status with its words, and the nearest known name.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"

#include <ctype.h>
#include <string.h>

qn_status error_set(qn_error *error, qn_status status, const char *format, ...)
{
    if (error) {
        va_list list;
        va_start(list, format);
        error->status = status;
        error->code = error->line = error->column = 0;
        plain_print_list(error->message, sizeof(error->message), format, list);
        va_end(list);
        /* Messages are for a screen, and carry names, paths and lines of files that anybody wrote. */
        escape_in_place(error->message, sizeof(error->message));
    }
    return status;
}

qn_status error_diagnose(qn_error *error, qn_status status, error_code code, const char *file, int line, int column,
                         const char *format, ...)
{
    if (!error) return status;
    char place[32] = "", words[sizeof(error->message)];
    va_list list;
    va_start(list, format);
    plain_print_list(words, sizeof(words), format, list);
    va_end(list);
    if (line) snprintf(place, sizeof(place), column ? ":%d:%d" : ":%d", line, column);
    error_set(error, status, "%s%s%serror %s: %s", file ? file : "", file ? place : "", file ? ": " : "",
              error_code_text(code), words);
    error->code = (int)code;
    error->line = line;
    error->column = column;
    return status;
}

const char *error_words(const qn_error *error)
{
    char head[16];
    snprintf(head, sizeof(head), "error %s: ", error_code_text((error_code)error->code));
    const char *at = error->code ? strstr(error->message, head) : NULL;
    return at ? at + strlen(head) : error->message;
}

const char *error_code_text(error_code code)
{
    switch (code) {
#define ERROR(letter, number, what, advice) \
    case letter##number:                    \
        return #letter #number;
#include "base/errors.def"
#undef ERROR
    default: return "?";
    }
}

bool error_code_is_warning(error_code code)
{
    return error_code_text(code)[0] == 'W';
}

const char *qn_status_name(qn_status status)
{
    static const char *const names[] = {"ok",       "finding",   "bad call",  "bad source",
                                        "bad file", "no device", "no memory", "failed"};
    return (int)status >= 0 && (int)status < COUNT(names) ? names[status] : "unknown status";
}

/* Edit distance with case changes at half price; both are cut at 63 characters. */
static int distance(const char *a, const char *b)
{
    int rows[2][64], m = (int)strnlen(a, 63), n = (int)strnlen(b, 63);
    for (int j = 0; j <= n; j++) rows[0][j] = 2 * j;
    for (int i = 1; i <= m; i++) {
        int *now = rows[i & 1], *before = rows[(i - 1) & 1];
        now[0] = 2 * i;
        for (int j = 1; j <= n; j++) {
            int same = a[i - 1] == b[j - 1]                                                   ? 0
                       : tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]) ? 1
                                                                                              : 2;
            int best = before[j - 1] + same;
            best = MINIMUM(best, before[j] + 2);
            now[j] = MINIMUM(best, now[j - 1] + 2);
        }
    }
    return rows[m & 1][n];
}

const char *suggest_name(const char *name, const char *const *list, int count)
{
    const char *best = NULL;
    int limit = 2 * (int)(strlen(name) + 2) / 3 + 2, least = limit;
    for (int i = 0; i < count; i++) {
        int d = distance(name, list[i]);
        /* One letter is near to every other: only its other case is meant, or a name that has it doubled. */
        if (d > (!name[0] || !name[1] ? 1 : !list[i][0] || !list[i][1] ? 2 : least)) continue;
        if (d < least) {
            least = d;
            best = list[i];
        }
    }
    return best;
}
