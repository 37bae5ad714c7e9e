/*
 * What the files of the engine share: a host thread that runs blocks (worker), a block, a warp, a barrier.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_EMU_WORKER_H
#define QUERN_DEVICE_EMU_WORKER_H

#include "device/emu/engine.h"

#define EMU_DYNAMIC_BYTES 232448 /* the most dynamic shared memory; also in emu/unit.c's text */
#define EMU_GATHER_BYTES 64      /* the most that a lane shows to its warp */

/* Functions that run on a coroutine's stack, which may be left in the middle for good. */
#define EMU_ON_STACK __attribute__((no_sanitize("address"), no_sanitize("thread")))

struct emu_warp {
    uint32_t waiting;   /* lanes at a collective */
    uint32_t time;      /* counts __syncwarp */
    uint32_t *together; /* checked: [lane][lane], the time of the last __syncwarp of both */
    unsigned char gathered[EMU_WARP * EMU_GATHER_BYTES] __attribute__((aligned(64)));
};

typedef struct emu_barrier {
    int arrived, expected, sum; /* expected 0: all live threads */
    emu_place first;
    uint32_t first_thread;
} emu_barrier;

/* Work in the background. A copy in lands when its phase ends, one out happens when its thread waits for it, a product
 * likewise: as late as the hardware may be. */
typedef struct emu_copy {
    emu_map map;
    int place[8];                /* of windows: the offsets of axes 1 .. behind the coordinates */
    uint32_t offset, size_bytes; /* of the block's shared memory */
    uint32_t bar;                /* in: the phase it reports to, as an offset likewise */
    uint16_t thread;             /* out: who asked */
    uint32_t group;              /* out: of that thread; 0: not committed yet */
    emu_place at;
} emu_copy;

typedef struct emu_product {
    emu_matrix_call call;
    uint32_t left[16]; /* the registers of the thread's four lanes, where the left operand is in registers */
    uint32_t group;    /* 0: not committed yet */
    uint32_t *saved;   /* checked: the sums as they were before, which nobody may look at meanwhile; or NULL */
    bool ran;
    uint32_t
        *result; /* the sums since, which the thread gets when it waits; NULL: a later product of the group has them */
} emu_product;

typedef struct emu_products { /* of a thread, in order */
    emu_product *list;
    int count, capacity;
    uint32_t groups, awaited; /* committed; EMU_AT_MATRIX: the one that the thread waits for */
    bool fenced; /* the registers of sums are ready; not after a wait, when the thread may have touched them */
} emu_products;

typedef struct emu_background { /* of a block; made when it first asks for something */
    emu_copy *in, *out;
    int in_count, in_capacity, out_count, out_capacity;
    uint32_t out_groups[EMU_MAX_THREADS];
    uint32_t fences[EMU_MAX_THREADS]; /* of each thread, between ordinary writes and the background */
    emu_products products[EMU_MAX_THREADS];
    bool unready; /* phases were made, and nobody has said phases_ready() since */
} emu_background;

struct emu_block {
    emu_worker *worker;
    uint32_t index[3];
    int number; /* in its group */
    int cluster, cluster_rank;
    int thread_count, started, live;
    emu_thread *threads[EMU_MAX_THREADS]; /* NULL: not started, or ended */
    emu_thread *ready, *ready_last;
    uint32_t ended_lanes[EMU_MAX_THREADS / EMU_WARP];
    emu_barrier barriers[EMU_BARRIERS];
    int waiting[2]; /* threads at the cluster's and at the grid's barrier */
    uint32_t epoch; /* of the worker: changes at every barrier */
    emu_warp *warps;
    char *image; /* its shared memory while another block runs; NULL: it is alone */
    uint32_t *together;
    emu_shadow *shadow;
    uint32_t first_epoch;       /* when it began */
    emu_background *background; /* NULL: it has asked for nothing */
};

typedef struct emu_piece {
    char *data;
    size_t size_bytes;
} emu_piece;

typedef struct emu_chunk {
    struct emu_chunk *next;
    char *memory;
    size_t size_bytes;
} emu_chunk;

struct emu_worker {
    emu_engine *engine;
    emu_launch *launch;
    void *stack_pointer; /* of the host thread, while a CUDA thread runs */
    emu_thread *free_stacks;
    emu_chunk *chunks;
    int chunk_count;
    emu_block *blocks; /* of the group at hand */
    int block_count, block_capacity;
    size_t blocks_shared_size;
    emu_block *inside; /* whose shared memory is in place */
    char *shared;      /* this host thread's shared memory */
    size_t shared_size;
    char *dynamic;
    emu_piece pieces[3];
    int piece_count;
    uint32_t epochs;
    uint32_t together; /* counts groups, and barriers of all blocks of one */
    int64_t spins;
    bool stopping, no_memory;
    bool gave_way;  /* a thread wants other blocks to run */
    int last_range; /* where the last global access was */
    /* Checked, of one launch: made when a range is first touched. */
    emu_shadow *range_shadows[EMU_MAX_RANGES];
    bool range_tried[EMU_MAX_RANGES];
};

/* Who comes at place n of `count` threads or lanes: nothing may depend on it. */
static inline uint32_t emu_turn(const emu_block *b, int n, int count)
{
    return (uint32_t)(b->worker->launch->order == EMU_BACKWARDS ? count - 1 - n : n);
}

/* emu/thread.c */
void emu_stacks_free(emu_worker *w);
void emu_push_ready(emu_thread *t);
emu_thread *emu_pop_ready(emu_block *b);  /* NULL: nobody */
emu_thread *emu_thread_new(emu_block *b); /* the block's next thread, on a stack; NULL: no memory */
void emu_wait(emu_thread *self);          /* leaves the running thread, whose state says what it waits for */
void emu_stop(emu_thread *self);          /* ends the launch; does not return */
void emu_thread_words(const emu_thread *t, text *out); /* "thread 3 of block 0" */
const char *emu_file_name(const char *path);
void emu_report_stuck(emu_worker *w); /* nobody can go on: one thread that waits, and one that is elsewhere */
/* emu/wait.c */
void emu_thread_end(emu_thread *self);
/* emu/engine.c */
void emu_finding_add(emu_worker *w, const emu_finding *found);
/* emu/check.c */
void emu_check_access(emu_thread *self, const void *address, size_t size_bytes, int kind, const void *place);
/* Checked: bytes of the block's shared memory that were written by a thread that has not fenced since are read by
 * `what` ("a copy", "a product"); the bytes themselves are as if never written. */
void emu_check_fenced(emu_thread *self, uint32_t offset, uint32_t size_bytes, const char *what, emu_place at);
/* A copy out of these bytes is over, as the thread has waited to see: for the others it is when they have met that thread. */
void emu_check_waited(emu_thread *self, uint32_t offset, uint32_t size_bytes, const void *place);
void emu_check_forget(emu_block *b, uint32_t offset, uint32_t size_bytes); /* the copy engine wrote them */
/* emu/wait.c */
void emu_call_arrive(emu_thread *self, int number, int count, const char *file, int line);
/* emu/phase.c */
char *emu_block_memory(const emu_block *b);
emu_background *emu_background_of(emu_block *b); /* makes it; ends the launch where there is no memory */
bool emu_background_reset(emu_block *b, bool free_all);
void emu_background_end(emu_thread *self); /* a thread ends */
uint32_t emu_call_address(emu_thread *self, const void *pointer);
void emu_call_phase(emu_thread *self, void *bar, int what, int number, const char *file, int line);
void emu_call_fence_async(emu_thread *self);
bool emu_phase_is_ready(emu_block *b, uint32_t bar); /* its phase can end */
void emu_phase_asked(emu_block *b, uint32_t bar);    /* something changed: end it if somebody waits */
void emu_failed(emu_thread *self, emu_place at, bool stop, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* emu/bulk.c */
void emu_call_bulk_in(emu_thread *self, void *to, const void *map, void *bar, const int *place, int rank, uint32_t mask,
                      const char *file, int line);
void emu_call_bulk_out(emu_thread *self, const void *map, const void *from, const int *place, int rank,
                       const char *file, int line);
void emu_call_bulk_commit(emu_thread *self);
void emu_call_bulk_wait(emu_thread *self, int pending, const char *file, int line);
void emu_bulk_land(emu_block *b, uint32_t bar); /* the copies in of a phase that ends */
void emu_bulk_finish(emu_thread *self, uint32_t last,
                     const void *place); /* copies out of groups up to this one; 0: all */
/* Is somebody filling, or still reading, these bytes? Findings of an ordinary access. */
void emu_bulk_check(emu_thread *self, uint32_t offset, size_t size_bytes, int kind, const void *place);
/* emu/matrix.c */
void emu_call_matrix(emu_thread *self, const emu_matrix_call *call);
void emu_call_matrix_commit(emu_thread *self);
void emu_call_matrix_wait(emu_thread *self, int pending, const char *file, int line);
/* A product that is not awaited reads these bytes: its line, or 0. */
int emu_matrix_reads(const emu_block *b, uint32_t offset, uint32_t size_bytes);

#endif
