/*
 * The workbench: what the `quern` command is made of, callable from C. Text results go to a `qn_write` callback.
 *
 * Example:
 *     static void to_stdout(void *user, const char *text, size_t size) { (void)user, fwrite(text, 1, size, stdout); }
 *     qn_error error;
 *     qn_context *context;
 *     qn_check_options options = {0};
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     qn_status status = qn_check_file(context, "kernels/square.qn", &options, to_stdout, NULL, &error);
 *     qn_context_close(context);
 *     if (status == QN_FINDING) return 1; // the text says what was found
 *     if (status != QN_OK) { fprintf(stderr, "%s\n", error.message); return 1; }
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_WORKBENCH_H
#define QUERN_WORKBENCH_H

#include <quern/quern.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void qn_write(void *user, const char *text, size_t length);

/* A list of "name=value" settings, as on the command line. */
typedef struct qn_settings {
    const char *const *items; /* "n=1000", "T=bf16" */
    int count;
} qn_settings;

/* Text with words of others (paths, names, lines of files) made fit for a terminal, which would obey control bytes and
 * changes of direction in it: they come out as \xNN. colour: the colours that Quern's own tables use stay. */
QN_API void qn_write_safe(const char *text, size_t length, bool colour, qn_write *write, void *user);

/* fmt: canonical text. */
QN_API QN_MUST_CHECK qn_status qn_format_text(const char *name, const char *source, qn_write *write, void *user,
                                              qn_error *error);

/* show: any stage of one kernel: ast, tile, a pass's name, c, asm; layout, schedule, loops, cuda, ptx, sass for a GPU, which
 * need not be there; `why`: the variants compiled so far for it in this cache and why. Of a tensor function (its name may say a mode:
 * "eager f"): graph, fusion, memory, and the stages of the kernels that it becomes. */
typedef struct qn_show_options {
    const char *stage;  /* NULL: "c"; of a tensor function "fusion" */
    const char *device; /* NULL: "cpu", or "cuda" where the stage is one of a GPU */
    const char *arch;   /* "sm_80"; NULL: of the GPU there is, else sm_90a */
    bool annotate;      /* ptx, sass: instructions under the source lines they came from */
    qn_settings settings;
    bool why;
    bool times;    /* the time of each pass */
    bool backward; /* of a tensor function: the gradient of its first result by its float parameters */
    bool dot;      /* of a tensor function: a picture of the graph with its kernels as boxes, as SVG */
    /* Of a kernel: sizes that are not set are those of its bench (of a function they always are), so that the stage is
     * that of such a launch; what was taken is told ("n = 1024, m = 8"). Without: a stage for all sizes. */
    bool bench_sizes;
    qn_write *told;
    void *told_user;
} qn_show_options;
QN_API QN_MUST_CHECK qn_status qn_show(qn_context *context, const char *path, const char *kernel,
                                       const qn_show_options *options, qn_write *write, void *user, qn_error *error);
/* An ONNX model, whoever wrote it: a table of its nodes, or (`picture`) its graph as SVG. No tensor's bytes are looked at. */
QN_API QN_MUST_CHECK qn_status qn_show_onnx(const char *path, bool picture, qn_write *write, void *user,
                                            qn_error *error);
QN_API int qn_stage_count(void);
QN_API const char *qn_stage_name(int number, const char **summary);

/* Inputs: fills every in and inout array that is not set, as the kernel's bench `input` clauses say (else by type),
 * from the seed and the parameter's name. Extents must be known by then. */
QN_API QN_MUST_CHECK qn_status qn_call_generate(qn_call *call, uint64_t seed, qn_error *error);

/* Everything that has a value when the call runs on this device as it is set now, in lines "name=value" that are settings:
 * extents, types, constants, scalars. Outputs need not be set. */
QN_API QN_MUST_CHECK qn_status qn_call_known(qn_call *call, const char *device, qn_write *write, void *user,
                                             qn_error *error);
/* Extents, constants and scalars that are not set as the kernel's bench has them on this device (not on ref and emu, which
 * would not end at such sizes). `told` gets "n = 1024, m = 8", what was taken; it may be NULL. */
QN_API QN_MUST_CHECK qn_status qn_call_take_bench(qn_call *call, const char *device, qn_write *told, void *user,
                                                  qn_error *error);

/* check: every kernel of a file under the checking interpreter at odd and even sizes, then the other devices against
 * it. */
typedef struct qn_check_options {
    const char *kernel;   /* NULL: all */
    const char *device;   /* NULL: every device there is */
    qn_settings settings; /* fixes extents and constants */
    uint64_t seed;
    bool verbose;       /* a line per case */
    int64_t step_limit; /* ops that one program may run before R709; 0: 20 million */
    bool no_emu;        /* do not run the CUDA text of kernels on `emu`, unless device says so */
    qn_write *each;     /* called with a JSON object for each kernel as it is done; NULL: not wanted */
    void *each_user;
    qn_write *progress; /* called with a line as the cases of a kernel go by; NULL: not wanted */
    void *progress_user;
} qn_check_options;
QN_API QN_MUST_CHECK qn_status qn_check_file(qn_context *context, const char *path, const qn_check_options *options,
                                             qn_write *write, void *user, qn_error *error);

/* bench */
struct qn_bench_results;
typedef struct qn_bench_options {
    const char *bench;  /* NULL: all of the file */
    const char *device; /* NULL: the best */
    qn_settings settings;
    const char *json_path; /* NULL: none */
    double seconds;        /* per variant; 0: 1, at each point of a sweep 0.2 */
    uint64_t seed;
    bool progress; /* lines of progress through `write` with user; the command sends them to stderr */
    bool colour;
    qn_settings sweeps;                /* "n=2^10..2^28": the same at every value; see docs/bench.md */
    const char *csv_path;              /* NULL: none */
    const char *plot_path;             /* an SVG picture of a sweep; NULL: none */
    const char *report_path;           /* an HTML report, written again after every point; NULL: none */
    const char *command;               /* what the report says was run; NULL: nothing */
    const char *against_path;          /* JSON of an earlier run to compare with; "cublas": a variant by cuBLASLt beside
                                          those of the file; NULL: none */
    bool force;                        /* compare even if that was another machine, GPU or driver */
    bool strict;                       /* AMBIGUOUS against the baseline is a finding, like SLOWER */
    double margin;                     /* of comparisons, relative; 0: 0.01, against a baseline 0.03 */
    int width;                         /* of the terminal: tables leave out columns to fit; 0: all columns */
    bool hints;                        /* after each table: what bounds each variant, and what to try */
    struct qn_bench_results **results; /* NULL: not wanted; see bench.h. Filled even where variants were wrong */
} qn_bench_options;
QN_API QN_MUST_CHECK qn_status qn_bench_file(qn_context *context, const char *path, const qn_bench_options *options,
                                             qn_write *write, qn_write *progress, void *user, qn_error *error);
/* Schedules as `show --stage schedule` prints them, with other numbers in the lines of launches: kernels of these names that
 * are compiled from now on follow them, on cuda and emu; one that cannot be is an error of the call. Again: instead of
 * those; NULL: none. */
QN_API QN_MUST_CHECK qn_status qn_schedule_use(qn_context *context, const char *text, qn_error *error);
/* A kernel with such a schedule that none was compiled for; NULL: there is none. */
QN_API const char *qn_schedule_unused(const qn_context *context);
/* tune: times the candidates of a kernel's `tune` clauses at one size and keeps every timing in the cache; later calls at
 * sizes like it take the fastest for what they leave open. Sizes come from the settings, else from the kernel's bench. */
typedef struct qn_tune_options {
    const char *device;    /* NULL: the best */
    qn_settings settings;  /* fixes extents, types, and constants that are not to be tuned */
    const char *effort;    /* "quick" (NULL): a sample of the candidates; "full": all */
    double budget_s;       /* 0: 30 */
    const char *json_path; /* NULL: none */
    uint64_t seed;
    bool progress, colour;
} qn_tune_options;
QN_API QN_MUST_CHECK qn_status qn_tune(qn_context *context, const char *path, const char *kernel,
                                       const qn_tune_options *options, qn_write *write, qn_write *progress, void *user,
                                       qn_error *error);
/* The machine's ceilings, measured now (about a second): best copy bandwidth counting read and write, FMA peak. */
typedef struct qn_ceilings {
    double copy_gb_per_s, read_gb_per_s;
    double fma_one_gflop_per_s, fma_all_gflop_per_s;
    int threads;
} qn_ceilings;
QN_API QN_MUST_CHECK qn_status qn_measure(qn_context *context, const char *device, size_t copy_bytes,
                                          qn_ceilings *ceilings, qn_error *error);

/* debug: steps a kernel under the interpreter. Commands come from `read_line` (false: end), output goes to `write`. */
typedef bool qn_read_line(void *user, const char *prompt, char *line, size_t size);
QN_API QN_MUST_CHECK qn_status qn_debug(qn_call *call, qn_read_line *read_line, qn_write *write, void *user,
                                        qn_error *error);

/* cache */
/* After a run: "", or one line saying that the folder cannot be written and nothing is kept. Borrowed. */
QN_API const char *qn_cache_note(qn_context *context);
QN_API QN_MUST_CHECK qn_status qn_cache_list(qn_context *context, qn_write *write, void *user, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_cache_clear(qn_context *context, int64_t *removed_files, int64_t *removed_bytes,
                                              qn_error *error);

/* .npy files, versions 1 to 3, either byte order of storage (Fortran order gives strides). */
typedef struct qn_npy {
    qn_array array; /* data is owned by this struct: release with qn_npy_free */
    void *memory;
} qn_npy;
QN_API QN_MUST_CHECK qn_status qn_npy_read(const char *path, qn_npy *npy, qn_error *error);
/* Row-major; bf16 as f4. */
QN_API QN_MUST_CHECK qn_status qn_npy_write(const char *path, const qn_array *array, qn_error *error);
QN_API void qn_npy_free(qn_npy *npy);

/* Any file, whole under its name or, where something fails, the old one: a link stays a link, rights stay, a device or pipe is
 * written to. */
QN_API QN_MUST_CHECK qn_status qn_file_write(const char *path, const void *data, size_t size_bytes, qn_error *error);

/* For the handler of a signal that is about to end the process: ends the compilers that run for it, removes its private folders
 * and the files that it was writing aside. Takes no lock and no memory. Contexts can do nothing more afterwards. */
QN_API void qn_clear_up(void);

#ifdef __cplusplus
}
#endif
#endif
