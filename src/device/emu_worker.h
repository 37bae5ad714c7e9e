/*
 * What the files of the engine share: a host thread that runs blocks (worker), a block, a warp, a barrier.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_EMU_WORKER_H
#define QUERN_DEVICE_EMU_WORKER_H

#include "device/emu_engine.h"

#define EMU_DYNAMIC_BYTES 232448 /* the most dynamic shared memory; also in emu_unit.c's text */
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

/* emu_thread.c */
void emu_stacks_free(emu_worker *w);
void emu_push_ready(emu_thread *t);
emu_thread *emu_pop_ready(emu_block *b);  /* NULL: nobody */
emu_thread *emu_thread_new(emu_block *b); /* the block's next thread, on a stack; NULL: no memory */
void emu_wait(emu_thread *self);          /* leaves the running thread, whose state says what it waits for */
void emu_stop(emu_thread *self);          /* ends the launch; does not return */
void emu_thread_words(const emu_thread *t, text *out); /* "thread 3 of block 0" */
const char *emu_file_name(const char *path);
void emu_report_stuck(emu_worker *w); /* nobody can go on: one thread that waits, and one that is elsewhere */
/* emu_wait.c */
void emu_thread_end(emu_thread *self);
/* emu_engine.c */
void emu_finding_add(emu_worker *w, const emu_finding *found);
/* emu_check.c */
void emu_check_access(emu_thread *self, const void *address, size_t size_bytes, int kind, const void *place);

#endif
