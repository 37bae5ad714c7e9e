/*
 * Batches ahead of time: threads in the background call the user's function, which fills the memory of one batch after the
 * other, while the device works on those before. Order is kept, memory is bounded, errors come where their batch would.
 *
 * Example (ten batches of four numbers, made by two threads):
 *     static qn_status fill(qn_loaded *b, void *u, qn_error *e) { (void)u, (void)e; b->rows = b->number < 10 ? 4 : 0; return QN_OK; }
 *     qn_error error;
 *     qn_context *context;
 *     qn_loader *loader;
 *     int64_t rows, batches = 0;
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     qn_loader_options options = {};
 *     options.fill = fill;
 *     options.threads = 2;
 *     options.field_count = 1;
 *     options.fields[0].type = QN_F32;
 *     options.fields[0].shape.rank = 1;
 *     options.fields[0].shape.extents[0] = 4;
 *     if (qn_loader_new(context, &options, &loader, &error)) return 1;
 *     for (const qn_loaded *batch; ; batches++) {
 *         if (qn_loader_next(loader, &batch, &error)) return 1;
 *         if (!(rows = batch->rows)) break;
 *     }
 *     if (batches != 10) return 1;
 *     qn_loader_free(loader);
 *     qn_context_close(context);
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LOADER_H
#define QUERN_LOADER_H

#include <quern/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QN_LOADER_FIELDS 8

/* One array of every batch: its type and shape. */
typedef struct qn_field {
    qn_dtype type;
    qn_shape shape;
} qn_field;

typedef struct qn_loaded {
    int64_t number;                 /* of the batch, from options.first on */
    int64_t rows;                   /* set by the function; 0: the data ends before this batch */
    void *fields[QN_LOADER_FIELDS]; /* memory of each field's whole size; it holds what an earlier batch left there */
} qn_loaded;

/* Fills a batch; runs on a thread of the loader. A failure ends the data: qn_loader_next gives it after the batches before. */
typedef qn_status qn_loader_fill(qn_loaded *batch, void *user, qn_error *error);

typedef struct qn_loader_options {
    qn_field fields[QN_LOADER_FIELDS];
    int field_count;
    qn_loader_fill *fill;
    void *user;
    /* 0: one, and the function is called for one batch after the other: a stream will do. With more it is called for
     * several at once, and must make batch `number` from that number alone. */
    int threads;
    int slots;     /* batches in memory; 0: two more than threads */
    int64_t first; /* the number of the first batch: where an interrupted run goes on */
    /* Where batches go, or NULL: for a GPU they are filled into page-locked memory that it copies from by itself, while the host
     * goes on. Free the loader before the context. */
    const char *device;
} qn_loader_options;

typedef struct qn_loader qn_loader;

QN_API QN_MUST_CHECK qn_status qn_loader_new(qn_context *context, const qn_loader_options *options, qn_loader **loader,
                                             qn_error *error);
QN_API void qn_loader_free(qn_loader *loader); /* waits for calls of the function that run; NULL is fine */
/* The next batch, good until the next call; at the end one of 0 rows, again and again. */
QN_API QN_MUST_CHECK qn_status qn_loader_next(qn_loader *loader, const qn_loaded **batch, qn_error *error);
/* The next batch, written into tensors with memory (qn_empty), one for each field; *rows as in the batch. On a GPU the bytes
 * go out of page-locked memory (that of the batches with options.device, else the device's own), in the order of its work: the host
 * does not wait for the step before. */
QN_API QN_MUST_CHECK qn_status qn_loader_feed(qn_loader *loader, const qn_tensor *tensors, int64_t *rows,
                                              qn_error *error);
QN_API int64_t qn_loader_position(const qn_loader *loader); /* the number of the batch that comes next */
/* How often qn_loader_next had to wait, and for how long: 0 where loading is never the slower part. */
typedef struct qn_loader_waits {
    int64_t batches, waits, wait_ns;
} qn_loader_waits;
QN_API qn_loader_waits qn_loader_statistics(const qn_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
