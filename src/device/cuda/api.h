/*
 * NVIDIA's libraries, opened at run time. In: which library. Out: pointers to the functions of cuda/api.def, or a text
 * that says what is missing and what to install. Nothing of CUDA is needed to build Quern: the few types and numbers
 * that the calls take are declared here.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_API_H
#define QUERN_DEVICE_CUDA_API_H

#include "base/base.h"

/* As the driver lays them out. */
typedef struct cuda_launch_attribute {
    int id, padding;
    union {
        char bytes[64];
        int number;
        unsigned dimensions[3];
    } value;
} cuda_launch_attribute;
typedef struct cuda_launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    cuda_launch_attribute *attributes;
    unsigned attribute_count;
} cuda_launch_config;
enum { CUDA_LAUNCH_COOPERATIVE = 2, CUDA_LAUNCH_CLUSTER = 4, CUDA_LAUNCH_OVERLAP = 6 };

/* Results that are looked at. */
enum {
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_STUB_LIBRARY = 34,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_IMAGE = 200,
    CUDA_NO_BINARY_FOR_GPU = 209,
    CUDA_NOT_READY = 600,
    CUDA_ILLEGAL_ADDRESS = 700,
    CUDA_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_LAUNCH_TIMEOUT = 702,
    CUDA_ASSERT = 710,
    CUDA_MISALIGNED_ADDRESS = 716,
    CUDA_LAUNCH_FAILED = 719,
    CUDA_COOPERATIVE_TOO_LARGE = 720
};

/* Attributes of devices and functions. */
enum {
    CUDA_DEVICE_THREADS_PER_BLOCK = 1,
    CUDA_DEVICE_CLOCK_KHZ = 13,
    CUDA_DEVICE_MULTIPROCESSORS = 16,
    CUDA_DEVICE_COMPUTE_MODE = 20,
    CUDA_DEVICE_L2_BYTES = 38,
    CUDA_DEVICE_THREADS_PER_MULTIPROCESSOR = 39,
    CUDA_DEVICE_MAJOR = 75,
    CUDA_DEVICE_MINOR = 76,
    CUDA_DEVICE_SHARED_PER_MULTIPROCESSOR = 81,
    CUDA_DEVICE_REGISTERS_PER_MULTIPROCESSOR = 82,
    CUDA_DEVICE_COOPERATIVE = 95,
    CUDA_DEVICE_SHARED_OPT_IN = 97,
    CUDA_FUNCTION_THREADS = 0,
    CUDA_FUNCTION_STATIC_SHARED = 1,
    CUDA_FUNCTION_LOCAL_BYTES = 3,
    CUDA_FUNCTION_REGISTERS = 4,
    CUDA_FUNCTION_DYNAMIC_SHARED = 8,
    CUDA_FUNCTION_ANY_CLUSTER = 14,
    CUDA_POINTER_MEMORY_TYPE = 2,
    CUDA_MEMORY_DEVICE = 2,
    CUDA_STREAM_OWN = 1, /* does not wait for the null stream */
    CUDA_EVENT_NO_TIMING = 2,
    CUDA_HOST_PORTABLE = 1,
    CUDA_HOST_MAPPED = 2,
    CUDA_CAPTURE_RELAXED = 2,
    CUDA_CAPTURE_SET = 1 /* of dependencies, instead of adding to them */
};

/* Of cuBLASLt: one way to compute a product, as it suggests it; attributes of products, matrices and wishes; types. */
typedef struct cublas_way {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} cublas_way;
enum {
    CUBLAS_PRODUCT_TURN_A = 3,
    CUBLAS_PRODUCT_TURN_B = 4,
    CUBLAS_PRODUCT_EPILOGUE = 7,
    CUBLAS_PRODUCT_BIAS = 8,
    CUBLAS_PRODUCT_BIAS_TYPE = 26,
    CUBLAS_LAYOUT_BATCH = 5,
    CUBLAS_LAYOUT_NEXT = 6,
    CUBLAS_WISH_WORKSPACE = 1,
    CUBLAS_WISH_REDUCTIONS = 3,
    CUBLAS_WISH_ALIGNED_A = 5,
    CUBLAS_WISH_ALIGNED_B = 6,
    CUBLAS_WISH_ALIGNED_C = 7,
    CUBLAS_WISH_ALIGNED_D = 8,
    CUBLAS_EPILOGUE_BIAS = 4,
    CUBLAS_REDUCE_IN_PLACE = 1, /* parts of k are added in the type of the result, ... */
    CUBLAS_REDUCE_SUMS = 2,     /* ... in that of the sums, */
    CUBLAS_REDUCE_RESULTS = 4,  /* ... in that of the result again */
    CUBLAS_F32 = 0,
    CUBLAS_F64 = 1,
    CUBLAS_F16 = 2,
    CUBLAS_I8 = 3,
    CUBLAS_I32 = 10,
    CUBLAS_BF16 = 14,
    CUBLAS_F8E4M3 = 28,
    CUBLAS_COMPUTE_F32 = 68,
    CUBLAS_COMPUTE_F64 = 70,
    CUBLAS_COMPUTE_I32 = 72,
    CUBLAS_COMPUTE_TF32 = 77
};

typedef enum cuda_library {
    CUDA_LIBRARY_DRIVER,
    CUDA_LIBRARY_NVRTC,
    CUDA_LIBRARY_NVML,
    CUDA_LIBRARY_CUPTI,
    CUDA_LIBRARY_CUBLASLT,
    CUDA_LIBRARY_COUNT
} cuda_library;

/* Zero-initialise. A library that was not opened has NULL pointers. */
typedef struct cuda_api {
    void *libraries[CUDA_LIBRARY_COUNT];
    char paths[CUDA_LIBRARY_COUNT][512]; /* what was opened */
#define CUDA_FUNCTION(library, name, needed, parameters) int(*name) parameters;
#define CUDA_WORDS(library, name, needed, parameters) const char *(*name)parameters;
#include "device/cuda/api.def"
} cuda_api;

/* Opens a library unless it is open: $QUERN_CUDA_PATH (a folder or the library itself), then the loader's own places,
 * then the usual install folders. Not thread-safe for one api. QN_NO_DEVICE with what to install. */
qn_status cuda_api_open(cuda_api *api, cuda_library library, qn_error *error);
void cuda_api_close(cuda_api *api); /* all that are open */

#endif
