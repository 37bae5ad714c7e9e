/*
 * Quern: contexts, devices, buffers, modules, kernels, launches.
 *
 * Example (examples/first.c is this, compiled and run as a test):
 *     qn_error error;
 *     qn_context *context;
 *     qn_module *module;
 *     qn_call *call;
 *     float x[5] = {1, 2, 3, 4, 5}, y[5];
 *     int64_t extent = 5;
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     if (qn_module_load_text(context, "twice.qn",
 *             "kernel twice(in T x[n], out T y[n], const int B = 64) launch (cdiv(n, B))"
 *             "{ y[program(0) * B : B] = 2 * x[program(0) * B : B]; }", &module, &error)) return 1;
 *     if (qn_call_new(module, "twice", &call, &error)) return 1;
 *     if (qn_call_set_memory(call, "x", x, QN_F32, 1, &extent, NULL, &error)) return 1;
 *     if (qn_call_set_memory(call, "y", y, QN_F32, 1, &extent, NULL, &error)) return 1;
 *     if (qn_call_run(call, qn_device_best(context), &error)) return 1;
 *     if (y[4] != 10) return 1;
 *     qn_call_free(call);
 *     qn_module_free(module);
 *     qn_context_close(context);
 *
 * Ownership: `new`, `open`, `load` give an object, its `free`/`close` takes it back; everything else borrows. Objects
 * made from a context must be freed before it is closed. Several threads may use one context; one qn_call at a time
 * belongs to one thread. Nothing is printed and no global state is kept.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_QUERN_H
#define QUERN_QUERN_H

#include <quern/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QN_VERSION "0.1.0"
#define QN_MAX_RANK 8

typedef enum qn_dtype {
    QN_F32,
    QN_F64,
    QN_F16,
    QN_BF16,
    QN_I8,
    QN_I16,
    QN_I32,
    QN_I64,
    QN_U8,
    QN_U16,
    QN_U32,
    QN_U64,
    QN_BOOL,
    QN_F8E4M3 /* 8 bits: no infinity, the largest number is 448; what rounds beyond it is NaN */
} qn_dtype;

typedef struct qn_context qn_context;
typedef struct qn_module qn_module;
typedef struct qn_call qn_call;
typedef struct qn_buffer qn_buffer;

QN_API const char *qn_version(void);
QN_API const char *qn_dtype_name(qn_dtype type);                  /* "f32" */
QN_API bool qn_dtype_from_name(const char *name, qn_dtype *type); /* also "float", "double" */
QN_API size_t qn_dtype_size_bytes(qn_dtype type);

/* Zero-initialise; every zero means the default. */
typedef struct qn_context_options {
    int threads;              /* of the cpu device; 0: all cores this process may use */
    const char *cache_folder; /* NULL: $QUERN_CACHE, else $XDG_CACHE_HOME/quern, else ~/.cache/quern */
    bool no_cache;
    bool allow_raw; /* raw kernels run code as it is written: allow it for files you trust */
    void (*print)(void *user, const char *line); /* where `print` statements and logs go; NULL: nowhere */
    void *user;
    const char *keep_folder; /* keeps every stage of everything compiled, as files; NULL: $QUERN_DUMP_DIR, or none */
    bool verbose;            /* what is compiled, and its text, go to `print` */
} qn_context_options;
QN_API QN_MUST_CHECK qn_status qn_context_open(const qn_context_options *options, qn_context **context,
                                               qn_error *error);
QN_API void qn_context_close(qn_context *context); /* NULL is fine */

typedef struct qn_device_info {
    const char *name; /* "cpu", "ref", "cuda", "cuda:1"; borrowed from the context */
    bool available;
    bool absent;           /* not available, since there is no such hardware or no driver for it */
    char description[256]; /* processor, threads, compiler; or why it is not there and what to install */
    char note[256];        /* what the user should know, such as a $CC that was not used; or "" */
    int units;             /* threads or multiprocessors */
} qn_device_info;
/* Counting asks every driver, and so does looking for the best: the first time may take a while on a machine with a GPU
 * (opening its driver); naming a device asks that one alone. */
QN_API int qn_device_count(const qn_context *context);
QN_API void qn_device_get(const qn_context *context, int number, qn_device_info *info);
QN_API const char *qn_device_best(const qn_context *context); /* the fastest one that is there */

/* Buffers: owned memory, or the caller's with its deleter. Reference-counted. */
typedef void qn_deleter(void *user, void *data);
/* Zeroed, 64-byte aligned. */
QN_API QN_MUST_CHECK qn_status qn_buffer_new(qn_context *context, size_t size_bytes, qn_buffer **buffer,
                                             qn_error *error);
/* The deleter (may be NULL) runs at the last release. */
QN_API QN_MUST_CHECK qn_status qn_buffer_wrap(qn_context *context, void *data, size_t size_bytes, qn_deleter *deleter,
                                              void *user, qn_buffer **buffer, qn_error *error);
QN_API qn_buffer *qn_buffer_retain(qn_buffer *buffer);
QN_API void qn_buffer_release(qn_buffer *buffer);
QN_API void *qn_buffer_data(qn_buffer *buffer);
QN_API size_t qn_buffer_size_bytes(const qn_buffer *buffer);

/* Modules. The message of a failure holds all diagnostics. */
QN_API QN_MUST_CHECK qn_status qn_module_load_file(qn_context *context, const char *path, qn_module **module,
                                                   qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_module_load_text(qn_context *context, const char *name, const char *text,
                                                   qn_module **module, qn_error *error);
QN_API void qn_module_free(qn_module *module);
QN_API int qn_module_kernel_count(const qn_module *module);
QN_API const char *qn_module_kernel_name(const qn_module *module, int number); /* borrowed */
QN_API const char *qn_module_warnings(const qn_module *module);                /* "" or diagnostics text; borrowed */
/* The warnings of one kernel and of the functions it uses. */
QN_API const char *qn_kernel_warnings(const qn_module *module, const char *kernel);

/* Parameters of a kernel, in order. */
typedef enum qn_param_kind { QN_PARAM_IN, QN_PARAM_OUT, QN_PARAM_INOUT, QN_PARAM_SCALAR, QN_PARAM_CONST } qn_param_kind;
typedef struct qn_param {
    const char *name, *type; /* type as written: "float", "T"; borrowed */
    qn_param_kind kind;
    int rank;      /* -1: not an array */
    bool any_rank; /* `[...]` is among its brackets: rank is what it is with one axis there */
} qn_param;
QN_API int qn_kernel_param_count(const qn_module *module, const char *kernel); /* -1: no such kernel */
QN_API QN_MUST_CHECK qn_status qn_kernel_param(const qn_module *module, const char *kernel, int number, qn_param *param,
                                               qn_error *error);

/* A call: arguments by name, then run. It may be run many times; settings stay until changed. */
QN_API QN_MUST_CHECK qn_status qn_call_new(qn_module *module, const char *kernel, qn_call **call, qn_error *error);
QN_API void qn_call_free(qn_call *call);
/* A scalar, an extent or a const. */
QN_API QN_MUST_CHECK qn_status qn_call_set_int(qn_call *call, const char *name, int64_t number, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_call_set_float(qn_call *call, const char *name, double number, qn_error *error);
/* T. */
QN_API QN_MUST_CHECK qn_status qn_call_set_type(qn_call *call, const char *name, qn_dtype type, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_call_set_function(qn_call *call, const char *name, const char *function,
                                                    qn_error *error);
/* As `--set`: "1 << 20", "bf16", "relu". */
QN_API QN_MUST_CHECK qn_status qn_call_set_text(qn_call *call, const char *name, const char *words, qn_error *error);
/* The caller's memory, borrowed until it is replaced or the call is freed. strides in elements, NULL: row-major. */
QN_API QN_MUST_CHECK qn_status qn_call_set_memory(qn_call *call, const char *name, void *data, qn_dtype type, int rank,
                                                  const int64_t *extents, const int64_t *strides, qn_error *error);
/* A buffer (retained): element offset and view as above. */
QN_API QN_MUST_CHECK qn_status qn_call_set_buffer(qn_call *call, const char *name, qn_buffer *buffer,
                                                  size_t offset_elements, qn_dtype type, int rank,
                                                  const int64_t *extents, const int64_t *strides, qn_error *error);
/* Binds, specialises, compiles if it must, launches, waits. Outputs that were not set are allocated. */
QN_API QN_MUST_CHECK qn_status qn_call_run(qn_call *call, const char *device, qn_error *error);
/* After a run: any array of the call, the allocated ones too. Borrowed until the next run. */
typedef struct qn_array {
    void *data;
    qn_dtype type;
    int rank;
    int64_t extents[QN_MAX_RANK], strides[QN_MAX_RANK];
} qn_array;
QN_API QN_MUST_CHECK qn_status qn_call_get(const qn_call *call, const char *name, qn_array *array, qn_error *error);
/* Of the last run, in nanoseconds: the compile (0 from memory), loading from the cache, the kernel; and on a device with
 * memory of its own (0 elsewhere) its allocation and the copies in and out. */
typedef struct qn_timing {
    int64_t compile_ns, load_ns, kernel_ns;
    int64_t allocate_ns, copy_in_ns, copy_out_ns;
    bool from_cache;
} qn_timing;
QN_API void qn_call_timing(const qn_call *call, qn_timing *timing);

#ifdef __cplusplus
}
#endif
#endif
