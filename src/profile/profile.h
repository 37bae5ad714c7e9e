/*
 * Measuring: statistics of samples, counts of bytes and operations, bench blocks run and reported.
 *
 * The road of a bench block: plan (which calls: every combination of its set-valued settings, every variant), check
 * (each variant against `ref`), time (interleaved rounds), report (table and JSON).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_PROFILE_H
#define QUERN_PROFILE_PROFILE_H

#include "base/base.h"
#include "base/json.h"

/* statistics.c */
void sort_samples(double *samples, int count);
/* Of sorted samples: between the two nearest to q * (count - 1), by weight; q from 0 to 1. NaN when there are none. */
double sorted_quantile(const double *samples, int count, double q);
/* Sorts the samples and interpolates between neighbours; q from 0 to 1. NaN when there are none. */
double quantile(double *samples, int count, double q);

/* machine.c */
/* The clock of the core that this runs on, by counting a chain of instructions against time: some 20 microseconds, and
 * nobody's rights are asked for. NAN where the chain is not known. */
double processor_clock_mhz(void);
double machine_memory_bytes(void);

/* table.c: columns of text, aligned; the first column to the left, the others to the right unless told. */
enum { TABLE_MOST_COLUMNS = 32 };
typedef struct table {
    arena *memory;
    const char **cells; /* row by row; row 0 is the head */
    int columns, cell_count, cell_capacity;
    bool left[TABLE_MOST_COLUMNS];
} table;
void table_open(table *t, int columns); /* call table_close when done */
void table_cell(table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(const table *t, bool colour, text *out); /* rows whose last cell is not "ok" stand out in colour */
/* Leaves out columns, by their heads, those that matter least first, until the table is at most so wide (0: any width).
 * How many went. */
int table_fit(table *t, int width, const char *const *least, int count);
void table_close(table *t);
/* "3.21 ms", "812 us", "45 ns": three digits and a unit. */
void text_add_duration(text *t, double time_ns);
void text_add_size(text *t, double bytes); /* "3.21 MB": powers of ten, below 0 too */

#endif
