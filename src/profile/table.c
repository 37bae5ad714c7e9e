/*
 * Tables: cells come in row by row, widths are found at the end, text comes out aligned. Widths count characters, not
 * bytes, so that UTF-8 in a cell does not shift its neighbours.
 * SPDX-License-Identifier: MIT
 */
#include "profile/profile.h"

#include <stdarg.h>
#include <string.h>

void table_open(table *t, int columns)
{
    CHECK(columns > 0 && columns <= TABLE_MOST_COLUMNS);
    *t = (table){.memory = arena_new(), .columns = columns};
    t->left[0] = true;
}

void table_cell(table *t, const char *format, ...)
{
    text words = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&words, format, list);
    va_end(list);
    const char *cell = arena_copy_text(t->memory, text_get(&words), words.length);
    text_free(&words);
    ARENA_PUSH(t->memory, t->cells, t->cell_count, t->cell_capacity, cell);
}

static int width_of(const char *words)
{
    int width = 0;
    for (; *words; words++) width += ((unsigned char)*words & 0xc0) != 0x80;
    return width;
}

void table_print(const table *t, bool colour, text *out)
{
    int widths[TABLE_MOST_COLUMNS] = {0}, rows = t->cell_count / t->columns;
    for (int i = 0; i < t->cell_count; i++) {
        int width = width_of(t->cells[i]);
        if (width > widths[i % t->columns]) widths[i % t->columns] = width;
    }
    for (int row = 0; row < rows; row++) {
        const char *const *cells = t->cells + (size_t)row * (size_t)t->columns;
        bool marked = colour && row && strncmp(cells[t->columns - 1], "ok", 2) != 0;
        if (colour && !row) text_add(out, "\033[1m");
        if (marked) text_add(out, "\033[31m");
        for (int column = 0; column < t->columns; column++) {
            int pad = widths[column] - width_of(cells[column]);
            if (column) text_add(out, "  ");
            if (!t->left[column]) text_print(out, "%*s", pad, "");
            text_add(out, cells[column]);
            if (t->left[column] && column + 1 < t->columns) text_print(out, "%*s", pad, "");
        }
        if (marked || (colour && !row)) text_add(out, "\033[0m");
        text_add(out, "\n");
    }
}

static int width_of_all(const table *t)
{
    int total = 0;
    for (int column = 0; column < t->columns; column++) {
        int widest = 0;
        for (int i = column; i < t->cell_count; i += t->columns) {
            int width = width_of(t->cells[i]);
            widest = MAXIMUM(widest, width);
        }
        total += widest + (column ? 2 : 0);
    }
    return total;
}

static void drop_column(table *t, int column)
{
    int kept = 0;
    for (int i = 0; i < t->cell_count; i++)
        if (i % t->columns != column) t->cells[kept++] = t->cells[i];
    for (int i = column; i + 1 < t->columns; i++) t->left[i] = t->left[i + 1];
    t->cell_count = kept;
    t->columns--;
}

int table_fit(table *t, int width, const char *const *least, int count)
{
    int dropped = 0;
    for (int i = 0; width > 0 && i < count && width_of_all(t) > width; i++)
        for (int column = 1; column < t->columns; column++) {
            if (strcmp(t->cells[column], least[i]) != 0) continue;
            drop_column(t, column);
            dropped++;
            break;
        }
    return dropped;
}

void table_close(table *t)
{
    arena_free(t->memory);
    *t = (table){0};
}

void text_add_duration(text *t, double time_ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    int unit = 0;
    while (time_ns >= 999.5 && unit < 3) {
        time_ns /= 1000;
        unit++;
    }
    text_print(t, "%.*f %s", time_ns >= 99.95 ? 0 : time_ns >= 9.995 ? 1 : 2, time_ns, units[unit]);
}

void text_add_size(text *t, double bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    int unit = 0;
    double size = bytes < 0 ? -bytes : bytes;
    while (size >= 999.5 && unit < 4) {
        size /= 1000;
        unit++;
    }
    int digits = !unit || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    text_print(t, "%s%.*f %s", bytes < 0 ? "-" : "", digits, size, units[unit]);
}
