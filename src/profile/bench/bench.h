/*
 * Inside `bench`: one block at one point (a choice of its set-valued settings) with its variants.
 *
 * bench.c walks blocks and points; bench/plan.c makes settings and calls; bench/arrays.c the memory that all variants
 * of a point share; bench/verify.c decides which are right; bench/clock.c times those; bench/report.c writes them down.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_BENCH_BENCH_H
#define QUERN_PROFILE_BENCH_BENCH_H

#include "profile/measure/timing.h"
#include "run/compile/facts.h"
#include "run/run.h"

typedef enum variant_status { VARIANT_OK, VARIANT_WRONG, VARIANT_FAILED, VARIANT_SKIPPED } variant_status;

typedef struct bench_variant {
    const char *kernel;    /* name */
    const char *label;     /* "gelu_tile(BLOCK = 8192)" */
    ast_list settings;     /* AST_SETTING of the variant itself */
    bool has_ir;           /* raw kernels and tensor functions have none */
    bool is_function;      /* a tensor function; `kernel` has its mode in front */
    kernel_entry *renamed; /* a tensor function: with the names that the kernels' outputs have */
    bool asks_library;     /* by its settings: it is not timed where its kernel would run instead */
    bool peer;             /* not of the file: `--against cublas` */
    bool elsewhere;        /* raw text of other devices: skipped, in one line with all of its kind */
    variant_status status;
    const char *message;             /* why it is not ok; "" */
    qn_call *call;                   /* at the point's own size */
    qn_call **turns;                 /* on a device with memory of its own: one call for each copy of the arrays, */
    int turn_count;                  /* or for fewer of them: a function of many kernels */
    double max_error;                /* NAN: nothing was compared */
    double bytes, read_share, flops; /* of one launch; flops NAN if unknown */
    race_arm arm;                    /* kernel times */
    double hot_ns;                   /* of launches that find their arrays in the cache; NAN: not taken */
    qn_bench_comparison first;       /* against the first variant that is right */
    qn_bench_comparison baseline;    /* against an earlier run */
    double baseline_ns;
} bench_variant;

/* One setting with its value at this point, as text for qn_call_set_text and as a value where it has one. */
typedef struct point_setting {
    const char *name, *words;
    binding value;
} point_setting;

typedef struct point {
    point_setting items[64];
    int count;
} point;

/* An array that the variants share by name: contiguous, several copies so that every launch finds the caches cold. */
typedef struct bench_array {
    const char *name;
    dtype elem;
    int rank;
    int64_t extents[MAX_RANK], count;
    size_t size_bytes;
    bool reads, writes; /* by some variant */
    void *first;        /* copy 0 */
    char *others;       /* the copies after it, `stride_bytes` apart */
    size_t stride_bytes;
    char *device;   /* all copies, where the device has memory of its own; NULL before they are timed */
    void *before;   /* inputs that are also written: as they were */
    void *expected; /* outputs of the reference */
} bench_array;

typedef struct bench_arrays {
    bench_array items[TENSOR_PARAM_LIMIT + MAX_PARAMS];
    int count, copy_count;
    const device_slot *slot; /* of the copies on a device; NULL: they are in host memory */
    bool in_cache;           /* the copies together are too few for the caches: a launch may find its data there */
} bench_arrays;

/* The effective settings of the block on this device: settings, `on` clause, the caller's; sets still open. */
typedef struct plan_setting {
    const char *name;
    const ast *const *choices; /* expressions */
    int choice_count;
    const char *words;        /* the caller's value instead, or NULL */
    const char *const *swept; /* the caller's values, choice_count of them; or NULL */
    int leader;               /* 1 + the setting that this one is swept together with; 0: none */
} plan_setting;
typedef struct plan {
    plan_setting items[64];
    int count;
} plan;

typedef struct bench {
    qn_context *context;
    qn_module *module;
    const ast *block;
    const qn_bench_options *options;
    int slot, ref_slot; /* ref_slot -1: there is none */
    const char *device;
    qn_write *write, *progress;
    void *user;
    arena *memory; /* of this block and point */
    bench_variant *variants;
    bool against_library;                          /* a variant by the library of the device's maker beside those of the file */
    int variant_count, reference;                  /* the first variant that has IR and was not skipped; -1 if none */
    const plan *plan;                              /* of the block */
    int64_t step_count, step_total, step_start_ns; /* of what progress tells */
    point at;
    bench_arrays arrays; /* at the point's own size */
    device_event *events[2];
    int64_t turn;  /* which copy of the arrays comes next */
    unsigned held; /* what kept the clock down while samples were taken: HELD_BY_* */
    bool tolerance_given;
    double relative, absolute;
    qn_ceilings ceilings;
    qn_roofline roofline;      /* what is kept of the machine, for limits that `ceilings` has not; zeros: nothing */
    size_t ceilings_bytes;     /* the copy that was measured; 0: none yet */
    qn_bench_results *results; /* of the points so far */
    const struct baseline *baseline; /* NULL: none */
    int bad, slower, ambiguous;      /* variants so far: wrong or failed; by the baseline */
    int matched;                     /* those that the baseline has */
    struct bench_page *page;         /* of the report; NULL: none is wanted */
} bench;

/* bench/plan.c */
qn_status plan_check_caller(const bench *b, qn_error *error); /* every name the caller sets is known to some block */
qn_status bench_plan_make(bench *b, plan *out, qn_error *error);
int64_t plan_points(const plan *p); /* how many combinations */
qn_status plan_point(bench *b, const plan *p, int64_t number, point *out, qn_error *error);
void plan_variants(bench *b); /* fills b->variants from the block; those that cannot run are skipped */
/* A call of a variant at a point. */
qn_status plan_call(bench *b, const bench_variant *v, const point *at, qn_call **out, qn_error *error);
void point_print(const point *at, text *out); /* "n = 1024, T = f32" */
/* The point with small extents in place of large ones; attempt 0, 1, ... tries other sizes; false: no more. */
bool point_shrink(const bench *b, const point *from, bool odd, int attempt, point *out);

/* bench/arrays.c */
/* Adds the arrays of a call that call_bind(inputs_too) looked at. False: an array differs from another variant's. */
bool arrays_add(bench_arrays *a, const qn_call *call, char *why, size_t why_size);
qn_status arrays_allocate(bench_arrays *a, int copies, qn_error *error);
qn_status arrays_fill(bench *b, bench_arrays *a, const qn_call *call, qn_error *error); /* inputs, every copy */
void arrays_reset(bench_arrays *a); /* copy 0: inputs as they were, outputs as bytes of UNWRITTEN */
qn_status arrays_attach(const bench_arrays *a, qn_call *call, int copy, qn_error *error);
/* Copies on a device with memory of its own, inputs as copy 0 of the host has them; from here on arrays_attach takes
 * those. */
qn_status arrays_upload(bench_arrays *a, const device_slot *slot, int copies, qn_error *error);
void arrays_free(bench_arrays *a);
enum { UNWRITTEN = 0xA5 };
void *array_copy(const bench_array *array, int copy);

/* compare.c */
typedef struct comparison {
    double max_error; /* relative to the larger of the element and the array's root mean square; integers: absolute */
    int64_t compared, wrong, first_wrong;
    double first_actual, first_expected;
} comparison;
/* Elements of `expected` whose bits equal those of `before` are skipped (before_step 0: one element for all; NULL:
 * none). */
void compare_elements(dtype elem, const void *actual, const void *expected, const void *before, int64_t before_step,
                      int64_t count, double relative, double absolute, comparison *out);

/* bench/verify.c: sets status, message and max_error of every variant; leaves b->arrays filled. */
qn_status verify_small(bench *b, qn_error *error);
qn_status verify_full(bench *b, qn_error *error);

/* bench/clock.c */
qn_status clock_prepare(bench *b, qn_error *error); /* arrays, bytes and operations */
void clock_variants(bench *b);
void clock_close(bench *b); /* what clock_prepare made on a device */

size_t bench_cache_bytes(const bench *b); /* of the device */

/* bench/results.c */
qn_bench_results *results_new(void);
void results_add(qn_bench_results *r, const bench *b, const char *path);

/* hints/bench.c: what bounds each variant and what to try; nothing where nothing is worth saying */
void bench_hints(const bench *b, text *out);
struct hint_list;
/* Of one variant, in the memory; none where it was not timed. */
void variant_hints(const bench *b, const bench_variant *v, arena *memory, struct hint_list *list);

/* bench/page.c: the report, written again after every point; all of them nothing where none is wanted */
qn_status page_begin(bench *b, qn_error *error); /* a path that cannot be written is told here */
qn_status page_add_point(bench *b, qn_error *error);
qn_status page_end(bench *b, qn_error *error);
void page_free(bench *b);

/* bench/rows.c */
extern const char *const variant_status_names[]; /* "ok", "wrong", "failed", "skipped" */
void results_json(const qn_bench_results *r, json *out);
void results_csv(const qn_bench_results *r, text *out);

/* bench/baseline.c */
typedef struct baseline baseline;
qn_status baseline_open(const char *path, const qn_environment *here, bool force, baseline **out, qn_error *error);
void baseline_free(baseline *b);                      /* NULL is fine */
void baseline_compare(const baseline *b, bench *now); /* fills what the variants of a point have of it */
qn_status baseline_unmatched(const baseline *b, const bench *now, qn_error *error); /* it had no variant of this run */

/* bench/sweep.c */
/* The values of "n=2^10..2^28" as words. */
bool sweep_has(const char *item, const char *name); /* of "rows,cols=1..8": is it one of the names? */
qn_status sweep_read(arena *memory, const char *item, const char *const **words, int *count, qn_error *error);
void sweep_table(const qn_bench_results *r, const char *bench, bool colour, text *out);
double variant_rate(const qn_bench_variant *v, bool flops); /* GB/s or TFLOP/s; NAN: not timed, or unknown */
/* The most arithmetic that it could do, in GFLOP/s: by multiply-adds, or by the tensor cores where those are its limit. */
double variant_peak(const qn_bench_point *p, const qn_bench_variant *v);
/* The most that memory and arithmetic allow it, in the unit of its rate. */
double variant_roof(const qn_bench_point *p, const qn_bench_variant *v, bool flops);
bool bench_counts_flops(const qn_bench_point *p); /* are most variants bound by arithmetic? */

/* plot.c */
bool plot_sweep(const qn_bench_results *r, const char *bench, int which, text *out);

/* bench/report.c */
/* NAN where the caches may have helped; else the share of the ceiling that the variant is nearest to. */
double share_of_limit(const bench *b, const bench_variant *v, const char **limit);
void report_table(const bench *b, text *out);
void report_messages(const bench *b, text *out); /* why variants are not ok */
void bench_say(const bench *b, const char *format, ...) __attribute__((format(printf, 2, 3))); /* a line of progress */
void variant_end(bench *b, bench_variant *v, variant_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
