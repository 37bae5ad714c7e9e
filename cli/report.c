/*
 * What every command says in the same way: errors on stderr, colours only on a terminal, suggestions for names that
 * nearly fit, and the exit status that belongs to a library status.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

int terminal_width(FILE *to)
{
    struct winsize size;
    const char *given = getenv("COLUMNS");
    if (isatty(fileno(to)) && !ioctl(fileno(to), TIOCGWINSZ, &size) && size.ws_col > 0) return size.ws_col;
    int width = given ? atoi(given) : 0;
    return width >= 20 && width < 100000 ? width : 0;
}

static const double QUIET_S = 5;

bool colours_wanted(FILE *to)
{
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (no_color && *no_color) return false;
    return isatty(fileno(to)) && terminal && strcmp(terminal, "dumb") != 0;
}

static void write_to_file(void *user, const char *text, size_t length)
{
    if (colours_wanted(user))
        paint(user, text, length);
    else
        fwrite(text, 1, length, user);
}

void write_safely(FILE *to, const char *text, size_t length)
{
    qn_write_safe(text, length, colours_wanted(to), write_to_file, to);
}

void print_safely(FILE *to, const char *format, ...)
{
    char words[8192];
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof(words), format, list);
    va_end(list);
    write_safely(to, words, strlen(words));
}

static void write_list(const char *format, va_list list)
{
    char words[8192];
    vsnprintf(words, sizeof(words), format, list);
    qn_write_safe(words, strlen(words), false, write_to_file, stderr);
    fputc('\n', stderr);
}

static void write_error_head(void)
{
    fputs(colours_wanted(stderr) ? "quern: \033[1;31merror:\033[0m " : "quern: error: ", stderr);
}

void complain(const char *format, ...)
{
    va_list list;
    fflush(stdout);
    write_error_head();
    va_start(list, format);
    write_list(format, list);
    va_end(list);
}

void remark(const char *format, ...)
{
    va_list list;
    fflush(stdout);
    fputs("quern: note: ", stderr);
    va_start(list, format);
    write_list(format, list);
    va_end(list);
}

void *memory_or_exit(void *memory, size_t size_bytes)
{
    void *grown = memory ? realloc(memory, size_bytes) : calloc(1, size_bytes);
    if (grown) return grown;
    complain("no memory: %zu bytes more are needed", size_bytes);
    exit(EXIT_FINDING);
}

int report_error(const qn_error *error)
{
    size_t length = strlen(error->message);
    fflush(stdout);
    /* Diagnostics and findings carry their own place and word "error". */
    if (error->status != QN_BAD_SOURCE && error->status != QN_FINDING) write_error_head();
    const char *words = length ? error->message : qn_status_name(error->status);
    qn_write_safe(words, strlen(words), false, write_to_file, stderr);
    if (!length || error->message[length - 1] != '\n') fputc('\n', stderr);
    return error->status == QN_BAD_CALL || error->status == QN_BAD_FILE ? EXIT_WRONG_CALL : EXIT_FINDING;
}

const char *typed_words(const command *c, const arguments *given, char *room, size_t size)
{
    int length = snprintf(room, size, "quern %s", c->name);
    for (int i = 0; i < given->typed_count && length < (int)size; i++) {
        bool plain = given->typed[i][0] && !strpbrk(given->typed[i], " \t\n\"'$`\\*?<>|&;()");
        length += snprintf(room + length, size - (size_t)length, plain ? " %s" : " '%s'", given->typed[i]);
    }
    return room;
}

void write_to_stdout(void *user, const char *text, size_t length)
{
    (void)user;
    write_safely(stdout, text, length);
}

void write_data(void *user, const char *text, size_t length)
{
    (void)user;
    if (isatty(STDOUT_FILENO))
        write_safely(stdout, text, length);
    else
        fwrite(text, 1, length, stdout);
}

void end_progress(progress_line *line)
{
    if (line->shown) fputs("\r\033[K", stderr);
    line->shown = false;
}

void write_result(void *user, const char *text, size_t length)
{
    end_progress(user);
    write_safely(stdout, text, length);
    fflush(stdout);
}

void write_progress(void *user, const char *text, size_t length)
{
    progress_line *line = user;
    if (!line->terminal) { /* a log of a build or a job: enough to see that it lives */
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        double now_s = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
        if (!line->told_s) line->told_s = now_s;
        if (now_s < line->told_s + QUIET_S) return;
        line->told_s = now_s;
        write_safely(stderr, text, length);
        return;
    }
    size_t shown = strcspn(text, "\n");
    if (shown > length) shown = length;
    fputs("\r\033[K", stderr);
    size_t room = terminal_width(stderr) > 1 ? (size_t)terminal_width(stderr) - 1 : 79;
    write_safely(stderr, text, shown > room ? room : shown);
    fflush(stderr);
    line->shown = true;
}

/* Edit distance over words of at most 63 bytes: 2 for a letter too many, too few or swapped, 3 for a wrong one. */
static int distance(const char *a, const char *b)
{
    int rows[3][64];
    int length_a = (int)strlen(a), length_b = (int)strlen(b);
    if (length_a > 63 || length_b > 63) return 1000;
    for (int j = 0; j <= length_b; j++) rows[0][j] = 2 * j;
    for (int i = 1; i <= length_a; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *higher = rows[(i + 1) % 3];
        row[0] = 2 * i;
        for (int j = 1; j <= length_b; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1] ? 3 : 0);
            if (above[j] + 2 < best) best = above[j] + 2;
            if (row[j - 1] + 2 < best) best = row[j - 1] + 2;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && higher[j - 2] + 2 < best)
                best = higher[j - 2] + 2;
            row[j] = best;
        }
    }
    return rows[length_a % 3][length_b];
}

const char *nearest_word(const char *word, const char *const *list, int count)
{
    const char *best = NULL;
    int length = (int)strlen(word), limit = length < 3 ? 3 : length < 6 ? 5 : 8, best_distance = limit + 1;
    for (int i = 0; i < count; i++) {
        int d = distance(word, list[i]);
        if (length >= 3 && !strncmp(word, list[i], (size_t)length)) d = 2; /* a beginning of it counts as near */
        if (d < best_distance) {
            best_distance = d;
            best = list[i];
        }
    }
    return best;
}
