/*
 * The engine of `emu`: runs the blocks of one launch on the CPU. In: an entry function that runs one CUDA thread, the
 * geometry, and what the text was loaded from. Out: the threads have run, or the sentence that says why they cannot go
 * on, and findings in the checked mode.
 *
 * A CUDA thread is a coroutine with a stack of its own; the first words of emu_thread are also declared by the text's
 * header (text/words.h), which finds its thread from the stack pointer: stacks are aligned to their size, and the thread
 * lies at the upper end. A thread that never waits costs no switch: the next one runs on the same stack.
 * Shared memory is the thread-local memory of the loaded text, so host threads run blocks side by side. Blocks that
 * must live together (clusters, cooperative grids) run on one host thread, which exchanges that memory when it goes
 * from block to block; the address of another block's shared memory is its place in the copy that waits.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_EMU_ENGINE_H
#define QUERN_DEVICE_EMU_ENGINE_H

#include "base/base.h"
#include "device/emu/order.h"

#define EMU_STACK_BYTES ((size_t)256 << 10) /* also in the text's header */
#define EMU_THREAD_BYTES 512                /* the upper end of a stack, where its thread lies; also there */
#define EMU_WARP 32
#define EMU_MAX_THREADS 1024
#define EMU_BARRIERS 16

typedef enum emu_state {
    EMU_READY,
    EMU_AT_WARP,    /* waits for the lanes of its mask */
    EMU_AT_BARRIER, /* waits for the threads of its block */
    EMU_AT_CLUSTER,
    EMU_AT_GRID,
    EMU_AT_PHASE,  /* waits for the end of a phase */
    EMU_AT_MATRIX, /* waits for the other warps of its four to ask for their part of a product */
    EMU_DONE
} emu_state;

/* What a warp does together. The text's header has the same numbers. */
typedef enum emu_collective {
    EMU_SYNC,
    EMU_SHUFFLE, /* argument: the lane to read from */
    EMU_BALLOT,
    EMU_MATCH_ANY,
    EMU_MATCH_ALL, /* the mask, or 0 */
    EMU_GATHER,    /* value: address of the lane's bytes; argument: how many */
    EMU_REDUCE_ADD,
    EMU_REDUCE_MIN,
    EMU_REDUCE_MAX,
    EMU_REDUCE_UMIN,
    EMU_REDUCE_UMAX,
    EMU_REDUCE_AND,
    EMU_REDUCE_OR,
    EMU_REDUCE_XOR
} emu_collective;

enum { EMU_READ = 0, EMU_WRITE = 1, EMU_ATOMIC = 2 }; /* of an access */

typedef struct emu_place { /* in the text */
    const char *file;
    int line;
} emu_place;

typedef struct emu_worker emu_worker;
typedef struct emu_block emu_block;
typedef struct emu_warp emu_warp;

typedef struct emu_thread {
    uint32_t index[3], block_index[3], block_size[3], grid_size[3];
    uint32_t lane, number, cluster_rank, cluster_size;
    uint32_t atomics; /* since it last gave way; the text's header knows the fields up to here */
    emu_worker *worker;
    emu_block *block;
    emu_warp *warp;
    void *stack_pointer; /* while it is not running */
    struct emu_thread *next;
    emu_state state;
    emu_collective collective;
    uint32_t mask;
    int barrier;
    uint64_t value, argument, result;
    uint32_t phase_block, phase_offset; /* EMU_AT_PHASE: where the phase is: block of the group, byte of its memory */
    emu_place place;                    /* where it waits */
} emu_thread;

/* A product of four warps, as the text asks for it: rows of 64, n columns, 32 bytes of k. */
typedef enum emu_matrix_type { EMU_BF16, EMU_F16, EMU_TF32, EMU_E4M3, EMU_S8 } emu_matrix_type;
typedef struct emu_matrix_call {
    int type, n, add, turn_a, turn_b, line;
    const char *file;
    void *sums;
    uint64_t a, b;             /* descriptors */
    const uint32_t *registers; /* the left operand of all lanes of the warp, four each; NULL: a is its descriptor */
} emu_matrix_call;

enum {
    EMU_PHASE_INIT,
    EMU_PHASE_EXPECT,
    EMU_PHASE_ARRIVE,
    EMU_PHASE_WAIT,
    EMU_PHASE_READY
};                              /* also in the text's header */
enum { EMU_MATRIX_FENCE = -1 }; /* as the pending of a wait: registers are ready for products; in the header too */

/* What the text calls. The header declares the same struct; a change is a change of EMU_ABI_VERSION. */
#define EMU_ABI_VERSION 2
typedef struct emu_calls {
    int (*barrier)(emu_thread *self, int number, int count, int value, const char *file, int line);
    uint64_t (*warp)(emu_thread *self, uint32_t mask, int collective, uint64_t value, uint64_t argument,
                     const char *file, int line);
    uint32_t (*active)(emu_thread *self);
    void (*together)(emu_thread *self, int grid, const char *file, int line); /* cluster (0) or grid (1) barrier */
    void *(*map)(emu_thread *self, void *pointer, uint32_t rank);
    void (*give_way)(emu_thread *self);
    void (*access)(emu_thread *self, const void *address, size_t size_bytes, int kind, const void *place);
    void (*print)(emu_thread *self, const char *words);
    void (*stop)(emu_thread *self, const char *words, const char *file, int line); /* does not return */
    uint32_t (*address)(emu_thread *self, const void *pointer);                    /* in shared memory */
    void (*arrive)(emu_thread *self, int number, int count, const char *file,
                   int line); /* a barrier, without waiting */
    void (*phase)(emu_thread *self, void *bar, int what, int number, const char *file, int line);
    void (*bulk_in)(emu_thread *self, void *to, const void *map, void *bar, const int *place, int rank, uint32_t mask,
                    const char *file, int line); /* mask 0: to this block */
    void (*bulk_out)(emu_thread *self, const void *map, const void *from, const int *place, int rank, const char *file,
                     int line);
    void (*bulk_commit)(emu_thread *self);
    void (*bulk_wait)(emu_thread *self, int pending, const char *file, int line);
    void (*fence_async)(emu_thread *self);
    void (*matrix)(emu_thread *self, const emu_matrix_call *call);
    void (*matrix_commit)(emu_thread *self);
    void (*matrix_wait)(emu_thread *self, int pending, const char *file, int line);
} emu_calls;

/* The 128 bytes of a tensor map, as this engine reads them; device/cuda/tensor_map.c writes them. Axis 0 is the innermost. */
#define EMU_MAP_MARK 0x70616d75 /* "umap" */
typedef struct emu_map {
    uint64_t address;
    uint32_t mark;
    uint16_t elem_bytes;
    uint8_t rank, swizzle; /* swizzle: bytes of a line, 0 for none */
    bool rounds;           /* f32 to tf32 on the way in */
    bool windows;          /* box: channels, places, then the steps of axes 1 ..; lower, upper: corners of axes 1 .. */
    int16_t lower[3];
    int64_t extents[5];
    int64_t strides[4]; /* bytes, of axes 1 .. */
    uint32_t box[5];
    int16_t upper[3];
} emu_map;

typedef void emu_entry(void *const *arguments); /* one thread of a kernel; arguments as cuLaunchKernel has them */

/* One global array, or another piece of memory that a kernel may touch. */
typedef enum emu_range_kind {
    EMU_RANGE_OTHER,
    EMU_RANGE_WATCHED, /* races are looked for */
    EMU_RANGE_SYNC     /* by which blocks wait for each other */
} emu_range_kind;

typedef struct emu_range {
    const char *name; /* NULL: not an array of the kernel */
    uintptr_t first, end;
    int elem_bytes;
    bool read_only;
    emu_range_kind kind;
} emu_range;
#define EMU_MAX_RANGES 80

typedef struct emu_finding {
    char words[600];           /* without file and line */
    const void *place, *other; /* code addresses, or NULL: then `at` */
    emu_place at;
    int64_t times;
} emu_finding;
#define EMU_MAX_FINDINGS 16

typedef struct emu_launch {
    emu_entry *entry;
    void *const *arguments;
    uint32_t grid[3], block[3];
    int cluster_blocks; /* 1: none */
    bool cooperative;
    size_t shared_bytes;         /* dynamic */
    void *(*touch)(void);        /* of the text: makes the host thread's shared memory exist */
    void *(*dynamic)(void);      /* of the text: where dynamic shared memory starts; NULL: there is none */
    const void *library_address; /* any address inside the loaded text */
    void (*print)(void *context, const char *words);
    void *print_context;
    /* The checked mode. */
    bool checked;
    emu_order order; /* who runs first, when a block begins and when a wait is over */
    const emu_range *ranges;
    int range_count;
    /* Out. */
    emu_finding findings[EMU_MAX_FINDINGS];
    int finding_count;
    bool stopped; /* the launch did not run to its end: the last finding says why */
} emu_launch;

typedef struct emu_engine emu_engine;
emu_engine *emu_engine_new(int threads);
void emu_engine_free(emu_engine *e);
const emu_calls *emu_engine_calls(void);
/* Runs all blocks and waits. One launch at a time; callers queue. QN_NO_MEMORY: no room for stacks. */
qn_status emu_engine_run(emu_engine *e, emu_launch *launch, qn_error *error);

/* emu/check.c: the memory of the checked mode. */
typedef struct emu_shadow emu_shadow;
emu_shadow *emu_shadow_new(size_t count); /* cells; NULL: no memory */
void emu_shadow_free(emu_shadow *s);

#endif
