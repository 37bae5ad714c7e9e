/*
 * Safetensors files: named arrays with types and shapes, as Hugging Face's library reads and writes them. Nothing in such
 * a file is code. A file is not trusted: its header is checked as a whole before anything is read.
 *
 * Example (two numbers out and in):
 *     qn_error error;
 *     float numbers[2] = {1, 2}, back[2];
 *     qn_safetensor one = {"pair", QN_F32, 1, {2}, numbers, sizeof(numbers)};
 *     qn_safetensors *file;
 *     if (qn_safetensors_write("/tmp/quern-pair.safetensors", &one, 1, NULL, &error)) return 1;
 *     if (qn_safetensors_open("/tmp/quern-pair.safetensors", &file, &error)) return 1;
 *     int at = qn_safetensors_find(file, "pair");
 *     if (qn_safetensors_read(file, at, back, sizeof(back), &error) || back[1] != 2) return 1;
 *     qn_safetensors_close(file);
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SAFETENSORS_H
#define QUERN_SAFETENSORS_H

#include <quern/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_safetensor {
    const char *name;
    qn_dtype type;
    int rank;
    int64_t extents[QN_TENSOR_RANK];
    const void *data; /* to be written; NULL of one in a file */
    size_t size_bytes;
} qn_safetensor;

typedef struct qn_safetensors qn_safetensors;

/* Reads and checks the header. QN_BAD_FILE names the file, the tensor and what is wrong with it. */
QN_API QN_MUST_CHECK qn_status qn_safetensors_open(const char *path, qn_safetensors **file, qn_error *error);
QN_API void qn_safetensors_close(qn_safetensors *file); /* NULL is fine */
QN_API int qn_safetensors_count(const qn_safetensors *file);
/* In the order of the data; borrowed from the file. NULL: there is no such number. */
QN_API const qn_safetensor *qn_safetensors_get(const qn_safetensors *file, int number);
QN_API int qn_safetensors_find(const qn_safetensors *file, const char *name); /* -1: it is not there */
/* The whole tensor, row-major; size_bytes must be its size. */
QN_API QN_MUST_CHECK qn_status qn_safetensors_read(const qn_safetensors *file, int number, void *host,
                                                   size_t size_bytes, qn_error *error);
/* A text of the file's metadata, or NULL; borrowed. */
QN_API const char *qn_safetensors_metadata(const qn_safetensors *file, const char *key);

/* Writes aside, flushes to the disk and renames: a reader sees the old file or the new one, whatever happens.
 * metadata: key, value, ..., NULL; or NULL. */
QN_API QN_MUST_CHECK qn_status qn_safetensors_write(const char *path, const qn_safetensor *tensors, int count,
                                                    const char *const *metadata, qn_error *error);

#ifdef __cplusplus
}
#endif
#endif
