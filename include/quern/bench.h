/*
 * Honest timing from C: any function, two functions against each other, the results of `quern bench` as data, and the
 * measured ceilings of a device.
 *
 * Example:
 *     static void work(void *user) { volatile double *x = (volatile double *)user; for (int i = 0; i < 2000; i++) *x += 0.5; }
 *     static void more(void *user) { work(user); work(user); }
 *     qn_error error;
 *     double x = 0;
 *     qn_bench_time time;
 *     qn_bench_comparison against;
 *     qn_time_options options = {0};
 *     options.seconds = 0.2;
 *     if (qn_bench(work, &x, &options, &time, &error)) return 1;
 *     printf("%.0f ns, 95%% sure of %.0f to %.0f, %d samples\n", time.median_ns, time.interval_low_ns,
 *            time.interval_high_ns, time.sample_count);
 *     qn_bench_time_free(&time);
 *     if (qn_bench_compare(work, &x, more, &x, &options, &against, &error)) return 1;
 *     printf("%s: %.2f times as long\n", qn_verdict_name(against.verdict), against.ratio);
 *     if (against.verdict == QN_FASTER) return 1;
 *
 * What is measured and how it is judged stands in docs/bench.md.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_BENCH_H
#define QUERN_BENCH_H

#include <quern/device.h>
#include <quern/profile.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- times ---- */

/* Times of one thing. NAN: not known. */
typedef struct qn_bench_time {
    double *samples_ns;   /* time of one call, sample by sample as they were taken */
    int *sample_rounds;   /* the round that each sample belongs to: variants of one round meet the same machine */
    int sample_count;     /* all of them: outliers are counted, never dropped */
    int warmup_count;     /* samples before, thrown away */
    int calls_per_sample; /* of the last sample */
    double median_ns, interval_low_ns, interval_high_ns; /* the median and its 95 percent confidence interval */
    double least_ns, low_ns, high_ns, most_ns;           /* low and high: quantiles of 20 and 80 percent */
    double first_ns;                    /* the very first call, cold: it may have compiled, loaded, allocated */
    int mild_outliers, severe_outliers; /* beyond 1.5 and 3 times the distance of the quartiles, from them */
    bool first_was_slow;                /* only the first sample was an outlier */
    bool two_peaks;         /* two groups of times with little between them: the median may stand for neither */
    bool converged;         /* the interval became as narrow as was asked for before the time was spent */
    double autocorrelation; /* of neighbouring samples; far from 0: the machine changed while they were taken */
    double clock_mhz, clock_low_mhz, clock_high_mhz; /* of the processor or GPU between samples: median, range */
} qn_bench_time;

typedef enum qn_verdict { QN_NOT_COMPARED, QN_FASTER, QN_SLOWER, QN_SAME, QN_AMBIGUOUS } qn_verdict;
QN_API const char *qn_verdict_name(qn_verdict verdict); /* "FASTER", ...; "" where nothing was compared */

/* One thing's time over another's. FASTER and SLOWER: the whole interval lies beyond the margin; SAME: inside it; else
 * AMBIGUOUS. */
typedef struct qn_bench_comparison {
    qn_verdict verdict;
    double ratio, ratio_low, ratio_high; /* below 1: faster; low and high: 99.8 percent confidence */
    double margin;                       /* what counts as the same: 0.01 is one percent */
    int rounds;                          /* pairs that were compared; 0: medians of two runs */
    const char *against;                 /* the other's name; "" from qn_bench_compare */
} qn_bench_comparison;

/* Zero-initialise; every zero means the default. */
typedef struct qn_time_options {
    double seconds;    /* the most to spend on a function; 0: 1 */
    double precision;  /* half the width of the interval over the median that ends it early; 0: 0.005 */
    double margin;     /* of a comparison; 0: 0.01 */
    int calls;         /* in a sample; 0: as many as take long enough for the clock */
    uint64_t seed;     /* of the order of turns */
    qn_stream *stream; /* the function puts its work there and does not wait: times are those between two events there.
                          NULL: the wall clock around the calls; a function that starts work on a device must wait */
} qn_time_options;

typedef void qn_bench_function(void *user);
/* One function. Warms up until its time settles, then takes samples until the median is known well or the time is
 * spent. */
QN_API QN_MUST_CHECK qn_status qn_bench(qn_bench_function *function, void *user, const qn_time_options *options,
                                        qn_bench_time *time, qn_error *error);
QN_API void qn_bench_time_free(qn_bench_time *time); /* of qn_bench alone */
/* A function against a base, taking turns. */
QN_API QN_MUST_CHECK qn_status qn_bench_compare(qn_bench_function *base, void *base_user, qn_bench_function *function,
                                                void *user, const qn_time_options *options, qn_bench_comparison *out,
                                                qn_error *error);

/* ---- ceilings ---- */

/* What a device can do at best, by kernels made for that. 0: it has no such thing, or it was not measured. */
typedef struct qn_roofline {
    double read_gb_per_s, write_gb_per_s, copy_gb_per_s; /* main memory; a copy counts both ways */
    double cache_gb_per_s;                               /* reads of what is in the last cache (GPU: L2) */
    double inner_gb_per_s;                               /* reads of shared memory, or of the first cache */
    double fma_f32_gflop_per_s, fma_f64_gflop_per_s;     /* multiply-adds, two operations each */
    double fma_one_gflop_per_s;                          /* f32 on one core or multiprocessor */
    double dot_f16_gflop_per_s, dot_bf16_gflop_per_s, dot_tf32_gflop_per_s, dot_f8_gflop_per_s, dot_i8_gflop_per_s;
    double exp_g_per_s;                /* billions of f32 exponentials a second */
    double launch_ns, graph_launch_ns; /* of an empty kernel: one by one; in a recorded sequence */
    double host_to_device_gb_per_s, device_to_host_gb_per_s; /* pinned memory */
    double clock_mhz;                                        /* while it was measured */
    int units;                                               /* threads or multiprocessors */
    char device[256];                                        /* what was measured, in words */
    char measured[32];                                       /* when: 2026-01-31T12:00:00Z */
} qn_roofline;
/* Measured once for a machine and kept in the cache's folder; `again`: measured now in any case (some seconds). */
QN_API QN_MUST_CHECK qn_status qn_roofline_get(qn_context *context, const char *device, bool again, qn_roofline *out,
                                               qn_error *error);
/* What is kept; false: nothing was measured on this machine yet. Measures nothing. */
QN_API bool qn_roofline_find(qn_context *context, const char *device, qn_roofline *out);
/* The devices (or only one) as a JSON list: what each is, and its ceilings where they are kept. */
QN_API void qn_devices_json(qn_context *context, const char *device, qn_write *write, void *user);

/* ---- results of bench blocks ---- */

typedef enum qn_variant_status {
    QN_VARIANT_OK,
    QN_VARIANT_WRONG,
    QN_VARIANT_FAILED,
    QN_VARIANT_SKIPPED
} qn_variant_status;

typedef struct qn_bench_variant {
    const char *label;  /* "gelu_tile(BLOCK = 8192)" */
    const char *kernel; /* its name in the file */
    qn_variant_status status;
    const char *message;             /* why it is not ok; "" */
    double max_error;                /* NAN: nothing was compared */
    double bytes, read_share, flops; /* of one launch; flops NAN if unknown */
    double share_of_limit;           /* 0.93; NAN: unknown */
    const char *limit;               /* "copy", "read", "fma": the ceiling that it is nearest to; "" */
    qn_bench_time time;              /* sample_count 0: not timed */
    double hot_ns;                   /* median of a few launches that find their arrays in the cache; NAN: not taken */
    qn_bench_comparison first;       /* against the first variant of the point, in turns */
    qn_bench_comparison baseline;    /* against the same variant of the baseline file */
    double baseline_ns;              /* its median there; NAN */
} qn_bench_variant;

typedef struct qn_bench_setting {
    const char *name, *value;
    double number; /* NAN: a type or a name */
    bool swept;    /* of a sweep, or of a set in the block */
} qn_bench_setting;

/* One table: a block at one choice of its settings. */
typedef struct qn_bench_point {
    const char *file, *bench, *device;
    const char *arguments; /* "n = 1024, T = f32" */
    const qn_bench_setting *settings;
    int setting_count;
    const qn_bench_variant *variants;
    int variant_count;
    qn_ceilings ceilings; /* measured beside it, for as many bytes */
    int copies;           /* of the arrays, taken in turn so that caches are cold */
    double copies_bytes, cache_bytes;
    bool in_cache; /* the copies are too few for that */
} qn_bench_point;

/* What the numbers depend on. Texts are "" where unknown. */
typedef struct qn_environment {
    const char *machine; /* a name for this machine and device that another one does not share */
    const char *processor, *system, *governor, *memory;
    int cores;
    const char *gpu, *driver, *power_limit; /* of the device that was measured; "" for a processor */
    const char *version;                    /* of Quern */
    const char *started;                    /* 2026-01-31T12:00:00Z */
    double load;                            /* processes ready to run when it began */
    const char *throttling;                 /* what held the clock back meanwhile: "power limit", "heat", ...; "" */
    const char *warnings;                   /* whole lines: what makes these numbers less certain; "" */
} qn_environment;

typedef struct qn_bench_results {
    const qn_bench_point *points;
    int point_count;
    qn_environment environment;
    const char *sweep; /* the first name that takes several numbers, or NULL */
    void *memory;      /* all of the above */
} qn_bench_results;
QN_API void qn_bench_results_free(qn_bench_results *results); /* NULL is fine */

/* One HTML file with tables, sweeps, distributions and roofline, written aside and renamed (docs/report.md). */
QN_API QN_MUST_CHECK qn_status qn_bench_report(const qn_bench_results *results, const char *path,
                                               const qn_report_options *options, qn_error *error);

/* A picture of a sweep, an SVG document: GB/s, or TFLOP/s where `flops`, of every variant against the swept setting, with
 * the ceiling drawn in. bench NULL: the first. */
QN_API QN_MUST_CHECK qn_status qn_bench_plot(const qn_bench_results *results, const char *bench, bool flops,
                                             qn_write *write, void *user, qn_error *error);

#ifdef __cplusplus
}
#endif
#endif
