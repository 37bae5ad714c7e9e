/*
 * The binary layout of DLPack 1.x, as far as Quern exchanges tensors by it: tensors, managed tensors (the unversioned and
 * the versioned kind) and the table of C functions that a tensor type offers as `__dlpack_c_exchange_api__` from 1.3 on.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PYTHON_DLPACK_H
#define QUERN_PYTHON_DLPACK_H

#include <stdint.h>

enum { DLPACK_MAJOR = 1 };
enum { DEVICE_HOST = 1, DEVICE_CUDA = 2, DEVICE_CUDA_HOST = 3, DEVICE_CUDA_MANAGED = 13 };
enum { CODE_INT, CODE_UINT, CODE_FLOAT, CODE_HANDLE, CODE_BFLOAT, CODE_COMPLEX, CODE_BOOL, CODE_F8E4M3 = 10 };
enum { DLPACK_READ_ONLY = 1 };

typedef struct dlpack_version {
    uint32_t major, minor;
} dlpack_version;

typedef struct dlpack_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t rank;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } type;
    int64_t *extents;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t offset_bytes;
} dlpack_tensor;

typedef struct dlpack_managed {
    dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *self);
} dlpack_managed;

typedef struct dlpack_versioned {
    dlpack_version version;
    void *context;
    void (*deleter)(struct dlpack_versioned *self);
    uint64_t flags;
    dlpack_tensor tensor;
} dlpack_versioned;

typedef struct dlpack_header {
    dlpack_version version;
    struct dlpack_header *previous; /* an older table, or NULL */
} dlpack_header;

typedef struct dlpack_exchange {
    dlpack_header header;
    int (*allocate)(dlpack_tensor *like, dlpack_versioned **out, void *context,
                    void (*fail)(void *context, const char *kind, const char *message));
    int (*managed_from_object)(void *object, dlpack_versioned **out);
    int (*managed_to_object)(dlpack_versioned *tensor, void **object);
    int (*borrow)(void *object, dlpack_tensor *out); /* may be NULL */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} dlpack_exchange;

#endif
