/*
 * The report: one HTML file that needs nothing else. In: a profile, or the results of a bench. Out: a page with tables
 * and plots that can be read and printed without a script, data as JSON inside it, and a script of our own that sorts
 * the tables and draws the timeline.
 *
 * The road: report/model.c turns a profile into rows of slices and a list of kernels; report/split.c says where the time
 * went; report/data.c writes the JSON; report/tables.c, report/roofline.c, report/plot.c and report/sources.c write the
 * parts of the page; report.c puts them together and the file in its place.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_REPORT_REPORT_H
#define QUERN_PROFILE_REPORT_REPORT_H

#include "profile/nesting.h"
#include "profile/profile.h"
#include "profile/measure/roofs.h"

/* ---- what a profile becomes ---- */

typedef enum slice_class { SLICE_KERNEL, SLICE_COPY, SLICE_RUNTIME, SLICE_LOADING, SLICE_OTHER } slice_class;
enum { SLICE_CLASSES = SLICE_OTHER + 1 };

typedef struct report_slice {
    int64_t start_ns, end_ns; /* from the model's start */
    const char *name;
    uint64_t identity;
    int row, kernel; /* kernel -1: not one */
    uint16_t lane;
    uint8_t class, kind; /* kind: of the record; RECORD_KINDS for what a device told */
} report_slice;

typedef struct report_row {
    const char *name, *group;
    int64_t first, count; /* of the slices */
    int lanes, order;     /* order: by which rows are sorted */
    uint32_t number;      /* of the thread, or the stream */
} report_row;

/* Launches of one kernel at one shape on one device. */
typedef struct report_kernel {
    const char *name, *shapes, *device, *file;
    const char
        *title; /* what it does and where that is asked for, `linear+gelu train.c:25`; of a kernel of a file its name */
    const record_facts *facts;       /* NULL: nobody knows them */
    int line, device_number, number; /* device_number: in the model's list; number: in the order of first launches */
    int64_t calls, total_ns, least_ns, most_ns, median_ns;
    int64_t blocks; /* of the grid; 0: not known */
    int registers, shared_bytes, spill_bytes;
    double bytes, flops; /* of one launch; NAN: not known */
    double roof_share;   /* of the ceiling it is nearest to; NAN: not known */
    const char *bound;   /* "memory", "compute"; NULL: not known */
    int source;          /* number of its text on the page; -1: it has none */
} report_kernel;

typedef struct report_device {
    const char *name;
    char description[256];
    int units; /* multiprocessors or threads; 0: not known */
    bool measured;
    qn_ceilings ceilings;
    qn_roofline roofline;              /* those, and what `quern devices --measure` has found besides */
    int64_t busy_ns;                   /* some kernel was running */
    double blocks_per_unit, occupancy; /* means over the kernels' time; NAN: not known */
} report_device;

typedef struct report_step {
    int64_t number, start_ns, end_ns;
    int64_t class_ns[SLICE_CLASSES];
} report_step;

typedef struct report_model {
    arena *memory;
    const qn_profile *profile;
    int64_t start_ns, span_ns; /* of what was kept */
    report_row *rows;
    int row_count, row_capacity;
    report_slice *slices; /* heap; by row, then by start */
    int64_t slice_count, left_out;
    int64_t left_out_below_ns; /* what is shorter is not in the file; 0: everything is */
    report_kernel *kernels;    /* the longest first */
    int kernel_count, kernel_capacity;
    report_device devices[16];
    int device_count;
    memory_timeline memories[MOST_PLACES]; /* times are the profile's */
    int memory_count;
    report_step *steps;
    int step_count, step_capacity;
    int64_t class_ns[SLICE_CLASSES];   /* of the whole span: what ran, the first of the list that did */
    int64_t kernel_ns, thread_busy_ns; /* thread_busy_ns: by the threads of the pool together */
    int worker_count;
    bool has_shares; /* kernels of graphs that were timed as a whole */
} report_model;

void model_build(report_model *m, const qn_profile *p, int64_t most_slices);
void model_measure(report_model *m, qn_context *context); /* ceilings of the devices, and what follows from them */
void model_free(report_model *m);

/* report/split.c: busy times and the split, from slices before any were left out. */
void model_split(report_model *m);
extern const char *const slice_class_names[SLICE_CLASSES];

/* ---- the page ---- */

void html_text(text *out, const char *words); /* with & < > " as entities; NULL is nothing */
void html_name(text *out, const char *words); /* likewise; a line may end behind _ ( and , */
void html_print(text *out, const char *format, ...) __attribute__((format(printf, 2, 3))); /* likewise, formatted */
void html_open_section(text *out, const char *id, const char *title, const char *about);
void html_close_section(text *out);
void text_add_bytes_count(text *t, double bytes); /* "12.3 MB" */
void text_add_count(text *t, double count);       /* "1.5", "20", "3k", "1.2G" */

/* report.c: what every report has. */
void page_open(text *out, const char *title);
void page_note(text *out, const char *class, const char *words); /* a paragraph; nothing without words */
void page_environment(text *out, qn_context *context, const char *const *devices, int device_count,
                      const char *command);
void page_close(text *out, const text *data); /* data: JSON */

/* A table that the page's script can sort: cells have the number they are sorted by. */
void html_table_open(text *out, const char *id, const char *const *heads, int count);
/* report/counters.c: sections of what a run under counters, or the sampler, left; NULL or no file: nothing. */
void report_counters(const char *path, text *out);
void report_stalls(const char *path, text *out);

void html_table_close(text *out);
void html_cell_text(text *out, const char *words);
void html_cell_number(text *out, double value, const char *format); /* "-" if it is not finite */
void html_cell_duration(text *out, double time_ns);
void html_cell_bytes(text *out, double bytes);
void html_cell_count(text *out, double count); /* "4.19 G" */

void report_kernel_table(const report_model *m, text *out);
void report_range_table(const report_model *m, text *out); /* profile_table.c; nothing where there are no ranges */
void report_sum_table(const report_model *m, text *out);   /* nothing where nothing was recorded */
void report_cards(const report_model *m, text *out);       /* utilisation, split, memory */
void report_roofline(const report_model *m, text *out);
void report_memory(const report_model *m, text *out);
void report_hints(const report_model *m, text *out);
struct hint;
void html_hint(text *out, const struct hint *h, const char *label, int source);
void report_data(const report_model *m, text *out); /* JSON */

/* report/plot.c: axes and marks as SVG. */
typedef struct plot {
    text *out;
    double left, top, width, height; /* of the field, in the units of the picture */
    double x_low, x_high, y_low, y_high;
    bool x_log, y_log;
    bool no_y; /* rows of other things instead of an axis */
} plot;
void plot_open(plot *p, text *out, const char *title, double width, double height);
void plot_axes(plot *p, const char *x_name, const char *y_name);
double plot_x(const plot *p, double value);
double plot_y(const plot *p, double value);
void plot_close(plot *p);

/* report/roofline.c */
typedef struct roof {
    const char *name;
    double value; /* GB/s of a memory, else GFLOP/s */
    bool is_memory, dashed;
} roof;
typedef struct roof_dot {
    const char *name, *about; /* about may be NULL */
    double flops, bytes, time_ns;
    double share;      /* of the time; NAN: not said */
    double roof_share; /* of the ceiling it is nearest to, named by bound; NAN: not known */
    const char *bound;
    int kernel; /* its row in the table of kernels; -1: none */
} roof_dot;
enum { MOST_ROOFS = 12 };
int roofs_of(const qn_roofline *r, roof *out); /* how many */
/* Nothing where no dot has a place. */
void roofline_draw(const char *device, const roof *roofs, int roof_count, const roof_dot *dots, int count, text *out);

#endif
