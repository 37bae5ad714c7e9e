/*
 * The profiler: what a program that uses Quern does, on its threads and on its devices, and how long it takes.
 *
 * Example:
 *     qn_error error;
 *     qn_context *context;
 *     qn_profile *profile;
 *     qn_module *module;
 *     qn_call *call;
 *     float x[5] = {1, 2, 3, 4, 5}, y[5];
 *     int64_t extent = 5;
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     if (qn_profile_start(context, NULL, &profile, &error)) return 1;
 *     QN_RANGE("load") {
 *         if (qn_module_load_text(context, "twice.qn",
 *                 "kernel twice(in T x[n], out T y[n], const int B = 64) launch (cdiv(n, B))"
 *                 "{ y[program(0) * B : B] = 2 * x[program(0) * B : B]; }", &module, &error)) return 1;
 *     }
 *     if (qn_call_new(module, "twice", &call, &error)) return 1;
 *     if (qn_call_set_memory(call, "x", x, QN_F32, 1, &extent, NULL, &error)) return 1;
 *     if (qn_call_set_memory(call, "y", y, QN_F32, 1, &extent, NULL, &error)) return 1;
 *     for (int i = 0; i < 10; i++) {
 *         if (qn_call_run(call, "ref", &error)) return 1;
 *         qn_profile_step(profile);
 *     }
 *     if (qn_profile_stop(profile, &error)) return 1;
 *     qn_profile_sum sum;
 *     if (!qn_profile_find(profile, "twice", &sum) || sum.calls != 10) return 1;
 *     qn_profile_free(profile);
 *     qn_call_free(call);
 *     qn_module_free(module);
 *     qn_context_close(context);
 *
 * One profile at a time in a process. Recording is off unless one is started; then a record costs about 30 ns.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_H
#define QUERN_PROFILE_H

#include <quern/workbench.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_profile qn_profile;

/* Zero-initialise; every zero means the default. */
typedef struct qn_profile_options {
    /* A schedule over steps (calls of qn_profile_step): `wait` steps unrecorded, `warmup` recorded and thrown away,
     * `active` kept; then ready is called, and all again `repeat` times. active 0: everything is kept. */
    int wait, warmup, active, repeat;
    void (*ready)(void *user, qn_profile *profile); /* after each cycle of the schedule */
    void *user;
    int64_t most_records; /* kept for timelines; 0: a million. More are counted and shown as dropped, sums go on */
    int ring_records;     /* a thread may be ahead of the collector; 0: 65,536 */
    bool nvtx;            /* ranges and launches are shown to other tools (nsys, ncu) too, kept steps are their focus */
    bool graph_nodes;     /* times of each kernel of a graph, at some cost; else a graph is one */
    /* Files to write, as in QUERN_PROFILE: "trace=run.json.gz,folded=run.folded,table=run.txt,rows=20"; see
     * docs/profile.md. Traces are written while the profile runs, the others when it stops. NULL: none. */
    const char *outputs;
} qn_profile_options;

/* context may be NULL: what happens on the host's threads alone. Else it stays open until the profile is stopped. */
QN_API QN_MUST_CHECK qn_status qn_profile_start(qn_context *context, const qn_profile_options *options,
                                                qn_profile **profile, qn_error *error);
/* NULL: of the profile that QUERN_PROFILE started, if it did. */
QN_API void qn_profile_step(qn_profile *profile);
/* Recording ends; what was recorded can be asked for until it is freed. Writes the files of options.outputs: where that
 * fails, nothing is left under that file's name and the others are written. */
QN_API QN_MUST_CHECK qn_status qn_profile_stop(qn_profile *profile, qn_error *error);
/* The run ended before its time (Ctrl-C): what is written says so. Before qn_profile_stop. */
QN_API void qn_profile_interrupted(qn_profile *profile);
QN_API void qn_profile_free(qn_profile *profile); /* one that was not stopped leaves no files; NULL is fine */

/* The user's own ranges, nested as they are on their thread. Nothing while no profile is on. The name is copied. */
QN_API void qn_range_push(const char *name);
QN_API void qn_range_pop(void);
/* QN_RANGE("load") { ... }: the block is a range. Leave it through its end (not by return, break or goto). */
#define QN_RANGE(name) QN_RANGE_NAMED(name, __LINE__)
#define QN_RANGE_NAMED(name, line) QN_RANGE_PASTE(name, line)
#define QN_RANGE_PASTE(name, line) QN_RANGE_WITH(name, qn_range_at_##line)
#define QN_RANGE_WITH(name, once) for (int once = (qn_range_push(name), 1); once; once = (qn_range_pop(), 0))

/* Sums over records of one name and kind. Times in nanoseconds; self: without what is nested in it. */
typedef struct qn_profile_sum {
    const char *name, *kind, *detail; /* borrowed from the profile */
    int64_t calls, total_ns, self_ns, least_ns, most_ns;
    int64_t device_ns; /* of the kernels and copies that it started; 0 where no device told */
    int64_t bytes, flops;
} qn_profile_sum;
QN_API int qn_profile_sum_count(const qn_profile *profile);
QN_API void qn_profile_sum_get(const qn_profile *profile, int number, qn_profile_sum *sum);
QN_API bool qn_profile_find(const qn_profile *profile, const char *name, qn_profile_sum *sum); /* the longest of it */

typedef struct qn_profile_totals {
    int64_t start_ns, end_ns; /* of the realtime clock */
    int64_t records, kept, dropped, steps;
    int threads;
    int64_t device_records, device_dropped;
    const char *device_source;    /* where times of a GPU come from: "CUPTI activity", "CUDA events"; NULL: none */
    const char *device_reason;    /* why there is no better source, and what to do; NULL: there is none better */
    double device_overhead_share; /* of the run, that tracing the GPU says it took; NAN: not known */
} qn_profile_totals;
QN_API void qn_profile_get_totals(const qn_profile *profile, qn_profile_totals *totals);

/* What the hardware counts in one launch: on a GPU DRAM and L2 bytes, occupancy, the tensor pipe, stalls by reason (CUPTI's
 * range profiler, which may need rights: the error says which); on the CPU cycles, instructions, misses (the kernel's
 * performance events). The call is run as often as the counters need, so it must not depend on how often. */
enum { QN_MOST_COUNTERS = 64 };
typedef struct qn_counter {
    const char *name, *unit; /* "DRAM read", "bytes" */
    double value;            /* NAN: not counted */
    const char *why;         /* not; NULL: it was */
} qn_counter;
typedef struct qn_counters {
    const char *source;
    int count, launches; /* launches: that were counted */
    qn_counter items[QN_MOST_COUNTERS];
} qn_counters;
QN_API QN_MUST_CHECK qn_status qn_call_count(qn_call *call, const char *device, qn_counters *counters, qn_error *error);
QN_API double qn_counters_find(const qn_counters *counters, const char *name); /* NAN: there is none */

/* The same of every kernel that Quern launches in a context from now on, of tensor functions, captured steps and calls, each
 * kernel with its shapes once: right after it ran it runs again as often as its counters need, and what it wrote is put
 * back, so that the program computes what it always does. Times of such a run mean nothing. What runs on streams of the
 * caller is not counted. Stop it before the context closes; stop gives the first refusal (rights, no counters). */
typedef struct qn_counting qn_counting;
typedef struct qn_counted {
    const char *kernel, *shapes, *device;
    const char *source; /* what it is made of and where that was written: "linear+gelu train.c:25"; NULL: not known */
    qn_counters counters;
} qn_counted;
QN_API QN_MUST_CHECK qn_status qn_counting_start(qn_context *context, qn_counting **counting, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_counting_stop(qn_counting *counting, qn_error *error);
QN_API int qn_counting_count(const qn_counting *counting);
QN_API const qn_counted *qn_counting_get(const qn_counting *counting, int number); /* borrowed; NULL: there is none */
/* As text for people (one kernel in full, several as a table), or as a JSON list with an object for each counter. */
QN_API void qn_counting_print(const qn_counting *counting, bool json, qn_write *write, void *user);
QN_API void qn_counting_free(qn_counting *counting); /* NULL is fine */

/* Where the warps of a kernel wait, by lines of its source, most samples first: CUPTI's sampler looks at what each
 * multiprocessor does every few thousand cycles. It may need rights, as counters do; and CUPTI (13.0) samples only in a process in which it did nothing
 * before: no profile of a GPU, no counters, no other samples. Borrowed from the call. */
enum { QN_MOST_LINES = 64 };
typedef struct qn_line_samples {
    const char
        *file; /* NULL: not of a line that was written; of a tensor function: one of its kernels, what it is made of */
    int line;  /* 0: the whole kernel */
    int64_t samples;
    const char *reason; /* what was waited for most there: "memory", "barrier", "none: issued" */
    int64_t reason_samples;
} qn_line_samples;
typedef struct qn_samples {
    int count;
    int64_t total, dropped; /* dropped: the hardware had no room for them */
    qn_line_samples items[QN_MOST_LINES];
} qn_samples;
QN_API QN_MUST_CHECK qn_status qn_call_sample(qn_call *call, const char *device, qn_samples *samples, qn_error *error);
/* As a JSON list with an object for each line. */
QN_API void qn_samples_json(const qn_samples *samples, qn_write *write, void *user);

/* Tables, with the columns of PyTorch's profiler: own and total time on the host and on devices, averages, calls,
 * memory, FLOPs; and GB/s, TFLOP/s, percent of the roofline and what bounds it, where `quern devices --measure` has
 * measured the device. */
typedef enum qn_table_by { QN_BY_OP, QN_BY_OP_AND_SHAPE, QN_BY_KERNEL, QN_BY_RANGE } qn_table_by;
typedef enum qn_table_format { QN_TABLE_TEXT, QN_TABLE_CSV, QN_TABLE_JSON, QN_TABLE_MARKDOWN } qn_table_format;
typedef struct qn_table_options {
    qn_table_by by;
    qn_table_format format;
    const char *sort; /* "self_cpu", "cpu", "self_device", "device", "calls", "memory", "flops", "name", or PyTorch's
                         name of it ("self_cpu_time_total"); NULL: "self_cpu", of kernels "self_device" */
    int rows;         /* of text and Markdown: so many, and a line that counts the others; 0: 30; below 0: all */
    int width;        /* of text: columns are left out to fit; 0: all of them */
} qn_table_options;
QN_API QN_MUST_CHECK qn_status qn_profile_table(const qn_profile *profile, const qn_table_options *options,
                                                qn_write *write, void *user, qn_error *error);
/* The kept records as a Chrome trace (a name that ends in .gz is compressed), as stacks for flame graphs
 * ("main;train;eval;softmax 1234": nanoseconds), and the peak of memory with what was alive then. */
QN_API QN_MUST_CHECK qn_status qn_profile_write_trace(const qn_profile *profile, const char *path, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_profile_write_folded(const qn_profile *profile, const char *path, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_profile_memory(const qn_profile *profile, qn_write *write, void *user,
                                                 qn_error *error);

/* Hints: what bounds the kernels and the run, what each costs at most, where, and what to try; the best first, nothing
 * where nothing is worth saying (docs/hints.md). Ask before the profile's context is closed. options NULL: all, as
 * text. */
typedef struct qn_hint_options {
    bool json;   /* a list of objects instead of text */
    int most;    /* of text: so many, and a line that counts the others; 0: all */
    bool colour; /* of text: for a terminal */
    /* Of the GPU if one did anything, else of the CPU; NULL: those that were measured before, if any were. */
    const qn_ceilings *ceilings;
    const qn_counters *counters; /* of a launch of the profile's only kernel: they replace theory; NULL: none */
} qn_hint_options;
QN_API QN_MUST_CHECK qn_status qn_profile_hints(const qn_profile *profile, const qn_hint_options *options,
                                                qn_write *write, void *user, qn_error *error);
/* Hints of a kernel, or of the kernels of a tensor function, that is only compiled for a GPU, which need not be there:
 * what its launch, its registers and its accesses say. The settings must give all sizes. */
QN_API QN_MUST_CHECK qn_status qn_show_hints(qn_context *context, const char *path, const char *kernel,
                                             const qn_show_options *options, const qn_hint_options *format,
                                             qn_write *write, void *user, qn_error *error);

/* The report: one HTML file with tables, timeline, roofline and sources that needs no network (docs/report.md). Written
 * aside and renamed: a file of that name is whole or the one from before. Zero-initialise the options. */
typedef struct qn_report_options {
    const char *title, *command; /* command: what ran, as the user typed it; NULL: not said */
    const char *note;            /* shown at the top: why the report is not of all; NULL: none */
    const char *trace_path;      /* a file that has all slices, named where the report cannot; NULL: none */
    int64_t most_slices;         /* of the timeline; 0: 200,000. The shortest are left out and counted */
    bool no_ceilings;            /* do not measure what the devices can do (it takes a second for each) */
    bool no_sources;             /* leave the kernels' texts out */
    /* Files with what qn_counting_print gave as JSON, and with stalls as `quern profile --stalls` keeps them; NULL: none */
    const char *counters_path, *stalls_path;
} qn_report_options;
/* Of a profile that was stopped, while its context is open. */
QN_API QN_MUST_CHECK qn_status qn_profile_report(const qn_profile *profile, const char *path,
                                                 const qn_report_options *options, qn_error *error);

#ifdef __cplusplus
}
#endif
#endif
