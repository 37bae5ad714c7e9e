/*
 * Inside the `cuda` device: one GPU, opened step by step. A context of Quern costs nothing; asking about the device
 * opens libcuda and counts GPUs; the first allocation, load or launch makes the CUDA context (a fifth of a second).
 *
 * cuda/device.c finds and describes; cuda/error.c turns results into texts and keeps the lost device; cuda/memory.c is
 * the allocator; cuda/copy.c moves bytes; cuda/stream.c has streams, events and graphs; cuda/launch.c loads and
 * launches; cuda/report.c reads what a kernel left: failed asserts and printed lines.
 *
 * Locking: `lock` guards opening, the allocator, the lists of streams and launches. A lost device answers every request
 * with the same text; nothing of CUDA is called on it again.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_CUDA_H
#define QUERN_DEVICE_CUDA_CUDA_H

#include "device/cuda/api.h"
#include "device/cuda/frame.h"
#include "device/device.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/tensor_map.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CUDA_RECENT = 4, CUDA_STAGES = 3, CUDA_REPORTS = 4096, CUDA_TICKET_BYTES = 128 };

typedef struct cuda_device cuda_device;
typedef struct cuda_ways cuda_ways;

struct device_stream {
    cuda_device *device;
    device_stream *next; /* of the device's list */
    void *handle;
    bool owned;
    _Atomic bool capturing;                    /* read by whoever looks at all streams */
    _Atomic int64_t pending;                   /* launches since the last wait */
    _Atomic(const char *) recent[CUDA_RECENT]; /* names of the last kernels, [pending % CUDA_RECENT] the next */
    const char *recorded[CUDA_RECENT];         /* while capturing: of the last ones that a replay launches */
    int64_t recorded_count;
};

typedef struct cuda_block { /* of the allocator */
    uint64_t address;
    size_t size_bytes;
    enum { BLOCK_FREE, BLOCK_USED, BLOCK_PENDING } state; /* pending: free once all streams have come to rest */
} cuda_block;

struct cuda_device {
    const driver *driver;
    device_options options;
    cuda_api api;
    nvrtc *compiler;
    pthread_mutex_t lock, copy_lock;
    int number;
    char name[16]; /* "cuda", "cuda:1" */
    bool probed, absent, adopted, synchronous;
    _Atomic bool opened;  /* the last that is set of what a context needs */
    qn_error unavailable; /* status QN_OK: it is there */
    int count;            /* of GPUs */
    int handle;           /* CUdevice */
    char title[128], version[64];
    int driver_version, capability; /* 13000; 90 */
    size_t total_bytes;
    int threads_per_multiprocessor, shared_per_multiprocessor;
    bool cooperative;
    cuda_target target;
    void *context;
    void *health; /* NVML's handle of this GPU; NULL: none, or not asked yet */
    bool health_tried;
    _Atomic bool lost;
    char lost_words[600];
    device_stream *streams; /* all of them, `own` too */
    device_stream own;
    cuda_block *blocks; /* by address */
    int block_count, block_capacity;
    memory_statistics memory;
    void *fill_module, *fill_function; /* of small fills; NULL: there is none */
    bool fill_tried;
    char *stage[CUDA_STAGES]; /* pinned */
    void *stage_event[CUDA_STAGES];
    struct cuda_locked *locked; /* page-locked memory that was given out; under copy_lock */
    cuda_report *reports;       /* pinned and mapped: kernels write here when they fail */
    uint64_t reports_address;
    uint64_t tickets; /* by report, zero between launches: their blocks count themselves here; 0: not made yet */
    device_launch *launches[CUDA_REPORTS]; /* by report */
    int report_limit;                      /* reports from here on were never used */
    void *library;                         /* cuBLASLt's handle; NULL: not started */
    bool library_tried;
    qn_error library_missing; /* once tried: status QN_OK: it is there */
    int library_version[3];
    cuda_ways *ways;                  /* of products that the library was asked about */
    struct cuda_trace *_Atomic trace; /* of events around launches; NULL: nobody asked yet */
};

typedef struct cuda_program {
    const driver *driver;
    cuda_device *device;
    const tile_kernel *kernel;
    void *module;
    cuda_layout *layout; /* NULL for raw kernels */
    int phase_count;
    struct {
        void *function;
        int most_threads, static_shared, dynamic_shared; /* dynamic_shared: what the function may ask for now */
        bool any_cluster;
    } phases[MAX_PHASES];
    bool prints;
    const struct whole_product *whole; /* the library may compute it; NULL: nobody asked for that, or it is none */
    arena *whole_memory;
    const char *whole_why; /* why `whole` is NULL */
} cuda_program;

typedef struct cuda_phase {
    cuda_launch_config config;
    cuda_launch_attribute attributes[3];
    void *function;
    bool empty; /* no programs */
    bool ticket;
    int64_t sync_bytes;
    int64_t *frame;
    const cuda_map *maps; /* at the start of the frame */
    int map_count;
    map_numbers *mapped; /* what they were encoded from; a rank of 0: not yet */
    void *parameters[1];
} cuda_phase;

struct device_launch {
    cuda_program *program;
    device_stream *_Atomic stream; /* of the last submission; NULL: recorded in a graph */
    int report;
    int phase_count;
    cuda_phase phases[MAX_PHASES];
    uint64_t scratch, sync, workspace; /* workspace: of the library */
    int64_t scratch_bytes, sync_bytes, workspace_bytes;
    int64_t programs[3]; /* of the phase with most axes, to name a program */
    int64_t *print;      /* pinned and mapped, or NULL: what the kernel prints */
    uint64_t print_address;
    map_numbers *mapped;        /* of all phases; NULL: no maps */
    struct cuda_matmul *matmul; /* the library computes it; NULL: the kernel does, for this reason */
    const char *matmul_why;
    int64_t words[]; /* the frames */
};

/* cuda/device.c */
qn_status cuda_open(cuda_device *d, qn_error *error); /* probes, and makes the context, once */
/* Makes the context current for this thread; *pushed is what cuda_leave undoes. Fails if the device is lost. */
qn_status cuda_enter(cuda_device *d, bool *pushed, qn_error *error);
void cuda_leave(cuda_device *d, bool pushed);
/* While the host program records a graph of its own the driver refuses what may wait, such as asking for memory or loading
 * a program, on every thread; between these two it does not. *mode: for the second. */
void cuda_relax(cuda_device *d, int *mode);
void cuda_relaxed(cuda_device *d, int mode);

/* cuda/error.c */
/* A result of the driver as a status and a text; one that a CUDA context does not survive marks the device lost.
 * s: the stream whose kernels may be to blame, or NULL. */
qn_status cuda_failed(cuda_device *d, int result, const device_stream *s, const char *doing, qn_error *error);
qn_status cuda_is_lost(const cuda_device *d, qn_error *error);
#define CUDA_TRY(d, call, doing)                                                         \
    do {                                                                                 \
        int result_of_try = (call);                                                      \
        if (result_of_try) return cuda_failed((d), result_of_try, NULL, (doing), error); \
    } while (0)

/* cuda/memory.c: the lock must not be held */
extern const driver_memory cuda_memory;
qn_status cuda_allocate(device *base, size_t size_bytes, void **out, qn_error *error);
void cuda_release(device *base, void *memory);
void cuda_memory_close(cuda_device *d);
void cuda_memory_settled(cuda_device *d); /* nothing runs: pending blocks are free; the lock is held */

/* cuda/copy.c */
qn_status cuda_write(device *base, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error);
qn_status cuda_read(device *base, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error);
qn_status cuda_copy(device *base, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error);
void cuda_copy_close(cuda_device *d);
qn_status cuda_allocate_locked(device *base, size_t size_bytes, void **out, qn_error *error);
void cuda_settle_locked(device *base, void *memory);
void cuda_release_locked(device *base, void *memory);

/* cuda/fill.c */
qn_status cuda_fill(device *base, device_stream *s, const array_view *view, const void *pattern, qn_error *error);
void cuda_fill_close(cuda_device *d);

/* cuda/stream.c */
extern const driver_streams cuda_streams;
qn_status cuda_wait(device_stream *s, qn_error *error);
void cuda_settle(cuda_device *d); /* waits for everything; errors are kept for the next call */
void cuda_stream_note(device_stream *s, const char *kernel);

/* cuda/launch.c */
qn_status cuda_program_load(device *base, const tile_kernel *k, const char *binary_path, cuda_layout *layout,
                            program **out, qn_error *error);
void cuda_unload(program *base);
qn_status cuda_prepare(program *base, const array_view *arrays, const launch_plan *plan, device_launch **launch,
                       qn_error *error);
qn_status cuda_move(device_launch *l, const array_view *arrays, qn_error *error);
qn_status cuda_submit(device_launch *l, device_stream *s, qn_error *error);
qn_status cuda_finish(device_launch *l, qn_error *error);
void cuda_discard(device_launch *l);
const char *cuda_launch_library(const device_launch *l, const char **why);
qn_status cuda_launch_and_wait(program *base, const array_view *arrays, const launch_plan *plan,
                               const launch_options *options, qn_error *error);

/* cuda/trace.c */
extern const driver_trace cuda_tracing;
void cuda_trace_close(cuda_device *d); /* the context is current */

/* cuda/facts.c */
struct record_facts;
void cuda_facts(program *base, const launch_plan *plan, struct record_facts *out);

/* cuda/report.c */
qn_status cuda_report_open(cuda_device *d, qn_error *error); /* the lock is held, the context current */
void cuda_report_close(cuda_device *d);
qn_status cuda_tickets_open(cuda_device *d, qn_error *error); /* once; the context is current */
int cuda_report_take(cuda_device *d, device_launch *l);       /* a free report, or -1 */
void cuda_report_give(cuda_device *d, int report);
/* After a wait: the first failure of a launch on this stream as an error; printed lines go out. */
qn_status cuda_report_read(device_stream *s, qn_error *error);
qn_status cuda_report_read_one(device_launch *l, qn_error *error);

/* cuda/health.c */
bool cuda_health(device *base, device_health *out);
void cuda_health_close(cuda_device *d);

/* cuda/measure.c */
struct ceilings;
qn_status cuda_measure(device *base, size_t copy_bytes, struct ceilings *out, qn_error *error);

/* cuda/roofline.c */
bool cuda_roofline_source(int arch, int part,
                          text *out); /* its kernels, in several texts; false: there is no such part */
qn_status cuda_roofline(device *base, size_t bytes, struct qn_roofline *out, qn_error *error);

#endif
