/*
 * A tape: the tensors of one line of work on one device. It holds the graph that the calls of <quern/tensor.h> build,
 * what has been computed of it, the variables, and the first error. One thread at a time.
 *
 * A handle is {tape, slot, stamp}. A slot names a node and keeps its memory alive once it is computed; a variable's slot
 * names its newest value. Releasing a slot (or leaving the scope that made it) raises its stamp, so that later use of
 * the handle is an error and not a crash.
 * Evaluation (run/evaluate/realize.c) computes the wanted nodes and the pending assignments of variables; a computed node has a
 * `placed` view of a storage, and counts as a leaf from then on.
 * Numbers of nodes are good until tape_collect, which any API call that releases something may run.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_TAPE_H
#define QUERN_TENSOR_TAPE_H

#include "ir/graph.h"

#define QN_NO_CALL_SITES
#include <quern/nn.h>

/* Memory of tensors. Counted: by leaves' slots, by computed nodes that a slot keeps, by plans. Writing to it gives it a
 * new storage over the same buffer and marks this one: nodes that read this one and are not computed can not be. */
struct storage;

/* Memory of devices. The folder that has it comes after this one, so a tape asks through calls that it is given. */
typedef struct tape_calls {
    /* Memory on the tape's device, not cleared, with one reference; contents from the host. */
    qn_status (*allocate)(qn_tape *tape, int64_t size_bytes, struct storage **out, qn_error *error);
    qn_status (*write)(qn_tape *tape, struct storage *s, int64_t offset_bytes, const void *host, int64_t size_bytes,
                       qn_error *error);
    qn_status (*write_tensor)(qn_tensor t, const void *host, size_t size_bytes, qn_error *error);
    qn_buffer *(*retain)(qn_buffer *buffer);
    void (*release)(qn_buffer *buffer);
} tape_calls;

typedef struct storage {
    const tape_calls *calls;
    _Atomic int references;
    qn_buffer *buffer; /* on the tape's device */
    int64_t size_bytes;
    bool written;     /* a variable: assignments change it */
    bool overwritten; /* what nodes read through this storage is not there any more */
} storage;
/* Takes over the reference; NULL: a storage of graphs that never run, which needs no calls. */
storage *storage_new(qn_buffer *buffer, int64_t size_bytes, const tape_calls *calls);
storage *storage_retain(storage *s);
void storage_release(storage *s); /* NULL is fine */

/* Where a computed node lies: elements of a storage. */
typedef struct placed {
    storage *storage; /* NULL: not computed */
    int64_t offset, strides[GRAPH_RANK];
} placed;

typedef struct tape_slot {
    node node;      /* 0: free */
    uint32_t stamp; /* of handles that are good */
    int scope;      /* the depth that made it */
    bool variable;
    storage *home;  /* a variable: where assignments go */
    node home_leaf; /* a variable: the leaf that reads `home` */
    uint32_t next_free;
} tape_slot;

typedef struct tape_scope {
    int first; /* nodes from here on are its own, or nobody's */
    int newly; /* where in the tape's list what was placed of those begins */
} tape_scope;

typedef struct tape_assign {
    uint32_t slot; /* of a variable */
    node from;
} tape_assign;

struct qn_tape {
    qn_context *context;
    const tape_calls *calls; /* NULL: there is no context */
    char device[16];
    qn_mode mode;
    product_way products; /* of f32 */
    int tile;             /* which tile of products is taken; 0: the one that is estimated to be the fastest */
    int library;          /* products of whole arrays by the maker's library (KNOB_LIBRARY); 0: as the context has it */
    bool check_indices;
    bool is_broken; /* a change of the graph was left in the middle for lack of memory */
    arena *memory;  /* as long as the tape; the graph's own goes with the graph */
    graph *graph;
    placed *placed; /* by node; as many as placed_capacity */
    int placed_capacity;
    tape_slot *slots; /* [0] is unused */
    int slot_count, slot_capacity;
    uint32_t free_slot;
    int scope;            /* depth; 0: outermost */
    struct tape_scope *scopes; /* by depth less 1 */
    int scope_capacity;
    int spare_from;       /* nodes from here on were made in scopes that have ended, and nothing needs them; INT_MAX: none */
    int spare_scope;      /* the depth that was left then */
    int spare_newly;      /* and how long the list was */
    node *newly;          /* nodes that were placed in the open scopes or are spare, oldest first */
    int newly_count, newly_capacity;
    int64_t renumbered;   /* how often nodes got other numbers, or numbers other nodes */
    struct known_gradient *gradients; /* grad_api.c: those that were asked for; NULL before the first */
    tape_assign *assigns; /* pending, oldest first */
    int assign_count, assign_capacity;
    qn_tensor random_state;    /* u64[2]: seed, offset; a variable, made at the first need */
    node random_base;          /* the state that `random_steps` counts from */
    int64_t random_steps;      /* calls since */
    int collect_at;            /* nodes */
    size_t collect_at_bytes;   /* of the graph's own memory, in which lists of forgotten nodes stay */
    int64_t dead_bytes;        /* of memory whose slot was released since the last collection */
    bool older_died;           /* some of it was there before the innermost scope */
    struct realizer *realizer; /* run's: plans, streams; NULL before the first evaluation */
    struct qn_plan *capturing; /* run's: NULL unless a step is being recorded */
};

/* tape.c */
/* The device's name is good; context NULL, and no calls: graphs only. */
qn_tape *tape_new(qn_context *context, const char *device, const tape_calls *calls);
void tape_free(qn_tape *tape);
/* The node of a handle: 0 with the error recorded if it is empty, released or of another tape. */
node tape_node(qn_tape *tape, const char *op, qn_tensor t);
/* The same for all operands of a call of `op`, with the call's site and label set. NULL: one is not good, or the tape
 * has an error already. */
qn_tape *tape_begin(const char *op, const qn_tensor *operands, int count, node *nodes);
/* Of what a call was given: a type that is none, an array of `count` things at NULL; false with the error recorded. */
bool tape_type(qn_tape *tape, const char *op, qn_dtype type);
bool tape_array(qn_tape *tape, const char *op, const void *array, int count);
qn_tensor tape_failed(void);                  /* what a call gives that fails: no tensor, but it knows the tape */
qn_tensor tape_handle(qn_tape *tape, node n); /* a new slot in this scope; the empty handle for 0 */
void tape_forget(qn_tensor t);                /* qn_release without a collection: nodes keep their numbers */
graph_site tape_site(void);                   /* of this thread's newest call, by qn_here */
/* Starts an API call that has no operands: takes the call site, sets the label; false if there is no tape. */
bool tape_enter(qn_tape *tape, const char *label);
tape_slot *tape_slot_of(qn_tensor t);                        /* NULL: the handle is empty, released or nonsense */
void tape_place(qn_tape *tape, node n, const placed *where); /* retains the storage */
const placed *tape_placed(const qn_tape *tape, node n);      /* NULL: not computed. A LEAF always is */
/* A leaf over the whole of a storage, which the node keeps. strides NULL: row-major. */
node tape_leaf(qn_tape *tape, dtype elem, const shape *s, const int64_t *strides, int64_t offset, storage *memory);
/* Memory on the tape's device, not cleared, with one reference; NULL with the error recorded. */
storage *tape_memory(qn_tape *tape, const char *op, int64_t size_bytes);
qn_tensor tape_variable(qn_tape *tape, node initial);           /* in this scope */
void tape_assign_slot(qn_tape *tape, uint32_t slot, node from); /* of the variable's shape and type */
/* create.c: a row-major leaf with new memory that holds the data. */
node tape_leaf_from(qn_tape *tape, dtype elem, const shape *s, const void *data);
/* The pending assignment of a variable has been stored: its handle reads its home, what read it before cannot. */
void tape_assigned(qn_tape *tape, uint32_t slot);
/* The memory of a leaf has new contents: handles of the leaf itself read them, what was made from it cannot. */
void tape_overwritten(qn_tape *tape, node leaf);

/* tape_collect.c: forgets nodes that no slot and no assignment needs, and releases their memory; nodes get new numbers.
 * Does nothing while a step is recorded. */
void tape_collect(qn_tape *tape);
/* The same for what a scope made alone, when it has ended: in the time that this takes, however many nodes there are before it.
 * Where nothing needs any of its nodes they stay as they are, without memory, so that the same calls find them. */
void tape_collect_scope(qn_tape *tape, tape_scope ended);

/* facts.c: strides as PyTorch would have them; *base: the node whose memory it shares, itself if none. */
/* From n down through views to what they are views of, into the list, as far as there is room; how many views. */
int tape_views(const graph *g, node n, node *list, int room);
void tape_strides(const qn_tape *tape, node n, int64_t *strides, node *base);
/* Movement as a view: strides of n and the offset of its first element, both over memory in which its input has the
 * strides `from`. False: it is no view of that. */
bool tape_view_step(const graph *g, node n, const int64_t *from, int64_t *strides, int64_t *offset);

static inline shape shape_from_public(qn_shape s)
{
    shape out = {.rank = s.rank};
    for (int k = 0; k < GRAPH_RANK; k++) out.extents[k] = k < s.rank ? s.extents[k] : 0;
    return out;
}
#endif
