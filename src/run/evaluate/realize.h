/*
 * Evaluation of tensors. A plan is what the compiler made of one canonical piece of a tape's graph: the steps (launches
 * and copies) in order, each with its program, its launch and its views. Where memory lies is left open: every array of
 * a step is a base (a number) and an offset, and a run gives the addresses of the bases. So a plan serves every
 * evaluation of the same structure, and a captured step is a list of plans with the addresses filled in once.
 *
 * Bases of a plan: 0 is the workspace; then the buffers that are read or assigned; then the results.
 * Lifetimes: kernels belong to the context (kernel_store), plans to the tape's realizer or to a captured plan.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_EVALUATE_REALIZE_H
#define QUERN_RUN_EVALUATE_REALIZE_H

#include "fuse/fuse.h"
#include "run/run.h"
#include "tensor/tape.h"

/* ---- kernel_store.c: kernels that fusion wrote, one for each text, for the context's life ---- */

/* The kernel of this text, kept from before or cloned now. Takes the context's lock. */
kernel_entry *store_kernel(qn_context *context, const tile_kernel *k);
void store_free(qn_context *context);

/* ---- plan.c, plan_step.c ---- */

typedef struct plan_place {
    int base;
    int64_t offset_bytes;
    node value; /* of the workspace: the node whose place it is; 0: scratch memory */
} plan_place;

typedef struct step_array {
    int param;
    plan_place at; /* of element 0 of the view */
} step_array;

typedef struct plan_step {
    const char *name;
    /* A launch. */
    instance *instance; /* NULL: a copy */
    variant *variant;
    launch_plan launch;
    array_view *views; /* by tile parameter; their addresses are those of the last run */
    step_array *arrays;
    int array_count;
    device_launch *ready;             /* of a driver with memory of its own */
    bool is_ready;                    /* it was prepared: only addresses change from now on */
    qn_call *call;                    /* a module's kernel: keeps it alive */
    bool has_initials;                /* an output is filled before each launch */
    const graph *graph;               /* of `fused` */
    const fuse_kernel *fused;         /* what fusion made it from; NULL: a module's kernel */
    const struct record_facts *facts; /* in records, once there was one */
    node called;                      /* a module's kernel: the node of `graph` that calls it */
    const struct step_share *shares;  /* whose its time is, once something was recorded (shares.h) */
    int share_count;
    const range_path *const *paths; /* of a captured step: by origin of nodes, the range each was called in */
    /* A copy. */
    plan_place from, to;
    char *copy_from, *copy_to; /* of the last run */
    int64_t size_bytes;
} plan_step;

typedef struct plan_again plan_again;

typedef struct plan {
    struct plan *next; /* of its hash chain */
    uint64_t hash;
    uint32_t *key;
    int key_words;
    arena *memory;
    graph *graph; /* canonical */
    fuse_plan *fused;
    plan_step *steps;
    int step_count, kernel_count;
    int buffer_count, result_count;
    int64_t *result_bytes;
    int *target_base; /* by wanted node of the request: the base of its result */
    node *roots;      /* wanted and assigned nodes */
    int root_count;
    int64_t workspace_bytes; /* with the scratch memory of kernels */
    int64_t values_bytes;    /* ... and without */
    int number;              /* in the order of making */
    int node_count;          /* of the piece, before its passes */
    int64_t last_used;       /* the evaluation */
    const char *words;       /* "f32[64, 10]": its results, in records; NULL before the first */
    int64_t loading_ns;      /* of the time that it took to make, the part that loaded compiled kernels */
    int compiled;            /* kernels of it that came from no cache */
    plan_again *again;       /* NULL before the first run that may repeat itself */
    int references;
} plan;

/* What is to be planned: a piece of a graph whose leaves have buffers 1, 2, ... (as storage pointers), what is wanted of it. */
typedef struct plan_request {
    qn_context *context;
    int slot;
    fuse_mode mode;
    int tile, library; /* fuse_options */
    bool check_indices;
    graph *graph;
    arena *memory;
    const node *wanted;
    int wanted_count;
    const fuse_assign *assigns;
    int assign_count;
    int buffer_count;
    const int *misalignment_bytes; /* of each buffer, from a multiple of 64 */
} plan_request;
qn_status plan_new(const plan_request *request, plan **out, qn_error *error); /* takes request->memory in any case */
void plan_release(plan *p, qn_context *context, int slot);                    /* NULL is fine */
plan *plan_retain(plan *p);
/* Runs all steps on a stream (NULL: the device's own); does not wait where the device need not be waited for. ranges: of
 * shares_ranges, or NULL. */
void step_count(plan_step *s, qn_context *context, int slot); /* where somebody counts; it has run */
qn_status plan_run(plan *p, qn_context *context, int slot, device_stream *stream, char *const *bases,
                   const int64_t *ranges, qn_error *error);
/* plan_again.c, asked for every run: on the device's own stream (NULL) by its recording; false: there is none, it does not
 * start, or somebody looks at launches: nothing has run. */
bool plan_again_run(plan *p, qn_context *context, int slot, const device_stream *stream, char *const *bases);
void plan_again_free(plan_again *a, const driver *d);
/* Puts the addresses into the views. */
void step_address(plan_step *s, char *const *bases);
/* One step whose views have their addresses. stream: of a driver with streams, or NULL. *identity, where one is
 * wanted: of its record, 0 where there is none. */
qn_status step_run(plan_step *step, qn_context *context, int slot, device_stream *stream, uint64_t *identity,
                   qn_error *error);
/* Of a launch, for records; made once. NULL: a copy, or no memory. */
const struct record_facts *step_facts(plan_step *step, qn_context *context, int slot);
qn_status step_prepare(plan_step *step, qn_context *context, int slot, qn_error *error);

/* ---- realize_memory.c: memory of results ---- */

typedef struct block_pool block_pool; /* host memory that is kept for the next request */
block_pool *block_pool_new(void);
void block_pool_free(block_pool *p); /* blocks that are in use stay until they are released */

/* ---- realize.c ---- */

typedef struct realizer {
    int slot;
    block_pool *blocks;
    plan **table; /* hash chains */
    int table_size, plan_count;
    storage *workspace; /* shared by all plans: they run one after the other */
    /* Of one evaluation; kept to be reused. */
    uint32_t *visit; /* by node: the evaluation that saw it last */
    int *number;     /* by node: its number in the canonical order */
    int visit_capacity;
    uint32_t epoch;
    uint32_t *key;
    int key_count, key_capacity;
    node *order, *stack;
    int order_count, order_capacity, stack_capacity;
    qn_buffer **buffers; /* by ordinal less 1 */
    int buffer_count, buffer_capacity;
    struct seen_buffer *seen; /* their ordinals, by address: not in a buffer, which several tapes may read at once */
    int seen_capacity;
    node *targets, *roots;
    int *root_target; /* by root: which target it is a view of; -1: it was computed before */
    int target_count, root_count, root_capacity;
    storage **results;
    char **bases;
    int base_capacity;
    int64_t *ranges; /* by number of a node, plus 1; while something is recorded */
    int range_capacity;
    struct realize_again *again;                 /* NULL before the first evaluation */
    struct qn_plan *captured;                    /* all that are not freed */
    int64_t evaluations, plans_made, step_count; /* step_count: of all plans that are kept */
    int64_t known_count;                         /* evaluations whose plan was known by their nodes */
    int64_t making_ns, loading_ns; /* of plans, compiling and loading with it; the part that was loading */
    int64_t compiled;              /* kernels that came from no cache */
} realizer;

realizer *realize_open(qn_tape *tape); /* made at the first call */
/* Computes the slots' nodes and every pending assignment. */
qn_status realize_slots(qn_tape *tape, const uint32_t *slots, int count, qn_error *error);
/* The plan of every pending assignment, found or made and not run; the realizer has its buffers. The assignments count
 * as carried out: whoever runs the plan does that. */
qn_status realize_plan(qn_tape *tape, plan **out, qn_error *error);
void realize_close(qn_tape *tape);
/* Where a node lies without computing anything: placed, a leaf, or a view of one of those. False: it is not computed. */
bool realize_where(const qn_tape *tape, node n, placed *out);
char *storage_data(const storage *s);
storage *storage_of_buffer(qn_buffer *buffer); /* takes over the reference */
/* What a tape with a context asks for memory; and the first two calls of it by name. */
extern const tape_calls tape_of_devices;
qn_status tape_storage(qn_tape *tape, int64_t size_bytes, storage **out, qn_error *error);
qn_status tape_storage_write(qn_tape *tape, storage *s, int64_t offset_bytes, const void *host, int64_t size_bytes,
                             qn_error *error);
/* Of its first byte from a multiple of 64, as plans know it. */
int buffer_misalignment(const qn_buffer *b);
qn_status realize_workspace(qn_tape *tape, int64_t size_bytes, storage **kept, qn_error *error);

/* ---- realize_key.c: the canonical piece of the graph ---- */

typedef struct realize_work {
    const node *targets; /* to be computed, each once */
    int target_count;
    const tape_assign *assigns; /* the last one of each variable */
    int assign_count;
} realize_work;
/* Key, order of nodes and buffers into the realizer. Fails where the work needs memory that was written since. */
qn_status realize_key(qn_tape *tape, const realize_work *work, qn_error *error);
/* The piece as a graph of its own, for a plan. map: by number. */
graph *realize_piece(qn_tape *tape, arena *memory, node **map);
/* Nothing was seen yet; then buffers get numbers from 1 in the order in which they are asked for. */
void realize_begin(qn_tape *tape);
int realize_buffer_number(realizer *r, qn_buffer *b);

/* ---- realize_again.c ---- */

/* The plan of the same work as before, with the realizer's buffers as realize_key leaves them; NULL: it is not known. */
plan *realize_again_find(qn_tape *tape, const realize_work *work);
void realize_again_keep(qn_tape *tape, const realize_work *work, plan *p); /* after realize_key */
void realize_again_forget(realizer *r, const plan *p);
void realize_again_free(realizer *r);

/* ---- capture.c ---- */

/* Adds an evaluation, whose memory the realizer has, to the step that is being recorded. */
qn_status capture_add(qn_tape *tape, plan *p, qn_error *error);
void capture_placed(qn_tape *tape, node n);           /* a node that it computes: its handles become leaves */
void capture_failed(qn_tape *tape, qn_status status); /* an evaluation did; nothing if no step is recorded */
void capture_abandon(qn_tape *tape);                  /* the tape goes: its plans can not be replayed any more */

/* ---- realize_index.c: indices whose values the host has, tested before anything runs ---- */

qn_status realize_check_indices(const qn_tape *tape, qn_error *error);
/* Slots, new ones, of the indices that are to be computed before the others, so that they can be checked; heap_free. */
int realize_computed_indices(qn_tape *tape, uint32_t **slots);

/* ---- realize_log.c ---- */

void realize_log(qn_tape *tape, const plan *p); /* before it is kept with the others */

#endif
