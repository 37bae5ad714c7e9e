/*
 * Arrays as text, for files that end in .csv, .tsv or .txt. In: lines of numbers between commas, semicolons, tabs or blanks;
 * `#` begins a remark, lines without a number are passed over. A parameter with one axis takes one line or one column, one
 * with two takes the lines as its rows. Out: a line for each row of the last axis, as many digits as bring the number back.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\r";
#define EXACT 0x1p53 /* numbers are read as doubles: whole ones below this are what was written */

static char separator_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return !dot ? 0 : !strcmp(dot, ".csv") ? ',' : !strcmp(dot, ".tsv") ? '\t' : !strcmp(dot, ".txt") ? ' ' : 0;
}

bool is_table(const char *path)
{
    return separator_of(path) != 0;
}

/* To where the next field begins; how many separators were on the way. Between blanks there is nothing. */
static int skip_separators(const char *path, char **at)
{
    int passed = 0;
    for (char *p = *at;; p++) {
        *at = p;
        if (*p == ',' || *p == ';' || (*p == '\t' && separator_of(path) == '\t'))
            passed++;
        else if (!*p || !strchr(blanks, *p))
            return passed;
    }
}

/* The numbers of one line go behind those before; how many, or -1 after a complaint. */
static int64_t read_line(const char *path, int number, char *line, qn_array *out, int64_t before, int64_t *room)
{
    int64_t count = 0;
    char *at = line;
    double *numbers = out->data;
    line[strcspn(line, "#")] = 0;
    int passed = skip_separators(path, &at);
    while (*at) {
        double value;
        char *field = at, *end = at + strcspn(at, ",; \t\r");
        if (passed > (count > 0)) break; /* told below */
        at = end;
        passed = skip_separators(path, &at);
        *end = 0;
        if (!read_real(field, &value)) {
            complain("%s:%d: `%.40s` is not a number%s", path, number, field,
                     number == 1 ? ": take the line of names away, or put # before it" : "");
            return -1;
        }
        bool whole = field[strspn(field, "+-0123456789")] == 0;
        if (whole && (value >= EXACT || value <= -EXACT)) {
            complain("%s:%d: `%.40s` is a whole number of 2^53 or beyond, which text does not keep: give the array as "
                     ".npy, or "
                     "write the number with an exponent if it need not be exact",
                     path, number, field);
            return -1;
        }
        if (before + count == *room) {
            *room = 2 * *room + 1024;
            out->data = numbers = memory_or_exit(numbers, (size_t)*room * sizeof(double));
        }
        numbers[before + count++] = value;
    }
    if (*at || (count && passed > 1)) { /* the numbers behind it would move to other places */
        complain("%s:%d: a field is empty: write nan for a number that is missing", path, number);
        return -1;
    }
    return count;
}

bool table_read(const char *path, int rank, qn_array *out)
{
    char *text = read_whole_file(path), *rest = text;
    if (!text) return complain("cannot open %s: %s", path, why_not_read()), false;
    int64_t room = 0, total = 0, lines = 0, columns = 0;
    bool good = true;
    *out = (qn_array){.type = QN_F64, .data = memory_or_exit(NULL, 1)};
    for (int number = 1; good && rest; number++) {
        char *line = rest, *end = strchr(rest, '\n');
        rest = end ? end + 1 : NULL;
        if (end) *end = 0;
        int64_t count = read_line(path, number, line, out, total, &room);
        good = count >= 0 && (!count || !lines || count == columns);
        if (count > 0 && !good)
            complain("%s:%d: %lld numbers, the lines before have %lld", path, number, (long long)count,
                     (long long)columns);
        if (!good || !count) continue;
        columns = count;
        lines++;
        total += count;
    }
    free(text);
    if (good && rank == 1 && lines > 1 && columns > 1) {
        complain("%s has %lld lines of %lld numbers: a parameter with one axis takes one line or one column", path,
                 (long long)lines, (long long)columns);
        good = false;
    } else if (good && (rank < 1 || rank > 2)) {
        complain("%s: text holds arrays with one or two axes, this parameter has %d: give it a .npy file", path, rank);
        good = false;
    }
    if (!good) {
        free(out->data);
        return false;
    }
    out->rank = rank;
    out->extents[0] = rank == 1 ? total : lines;
    out->extents[1] = columns;
    out->strides[0] = rank == 1 ? 1 : columns;
    out->strides[1] = 1;
    return true;
}

bool table_write(const char *path, const qn_array *array)
{
    int64_t count = 1, index[QN_MAX_RANK] = {0}, width = array->rank > 1 ? array->extents[array->rank - 1] : 1;
    whole_file all;
    FILE *to = whole_begin(&all, path);
    if (!to) return false;
    for (int axis = 0; axis < array->rank; axis++) count *= array->extents[axis];
    for (int64_t i = 0; i < count; i++) {
        print_element(array, index, array->type == QN_F64 ? 17 : 9, to);
        putc((i + 1) % width ? separator_of(path) : '\n', to);
        for (int axis = array->rank - 1; axis >= 0 && ++index[axis] == array->extents[axis]; axis--) index[axis] = 0;
    }
    return whole_end(&all, path);
}
