/*
 * What happened, when: the lowest part of the profiler. Whoever does something worth seeing records a span or an
 * instant; whoever wants to see it turns recording on and drains the rings. Off, a call is one load and a branch. On, it
 * is two readings of the clock and a store of 64 bytes: no lock, no allocation after a thread's first record, no text.
 *
 * Recording is of the process, as the clock and the GPU's own tracing are: contexts, threads and libraries all write
 * into it, and one reader at a time drains it. This is the only state of Quern that belongs to no object
 * (docs/decisions/010).
 * Names are borrowed: literals, or interned with record_name.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_BASE_RECORD_H
#define QUERN_BASE_RECORD_H

#include "base/base.h"

#include <stdatomic.h>

typedef enum record_kind {
#define RECORD(name, text, category, a, b) RECORD_##name,
#include "base/record.def"
#undef RECORD
    RECORD_KINDS
} record_kind;

typedef struct record_kind_info {
    const char *text, *category, *a, *b;
} record_kind_info;
extern const record_kind_info record_kinds[RECORD_KINDS];

typedef struct record {
    int64_t start_ns, end_ns; /* of record_clock_ns; equal: an instant */
    const char *name;
    const char *detail;   /* "f32[3, 4]", a file and line, or NULL; interned or a literal */
    uint64_t identity;    /* the same in all records of one thing (an op and its launches), 0: none */
    int64_t a, b;         /* see record.def */
    uint16_t kind, depth; /* depth: spans of this thread that are open around it */
    uint32_t thread;      /* small numbers, in the order of first records */
} record;

enum { RECORD_WRITES = 1, RECORD_MARKS = 2 };
extern _Atomic unsigned char record_switches; /* of these; read it through the functions */

static inline bool record_is_on(void)
{
    return atomic_load_explicit(&record_switches, memory_order_relaxed) & RECORD_WRITES;
}

int64_t record_clock_ns(void); /* the realtime clock: that of the GPU's tracing */

/* A span: `int64_t from = record_begin(); ...; record_end(from, RECORD_LAUNCH, name, NULL, identity, a, b);`
 * begin gives 0 while recording is off, and end does nothing then; else a time in units of its own. */
int64_t record_begin_slow(void);
void record_end_slow(int64_t from_ns, record_kind kind, const char *name, const char *detail, uint64_t identity,
                     int64_t a, int64_t b);
static inline int64_t record_begin(void)
{
    return record_is_on() ? record_begin_slow() : 0;
}
static inline void record_end(int64_t from_ns, record_kind kind, const char *name, const char *detail,
                              uint64_t identity, int64_t a, int64_t b)
{
    if (from_ns) record_end_slow(from_ns, kind, name, detail, identity, a, b);
}
/* A span that is over, of times that record_now gave: of what other threads did for this one. It is nested in what is
 * open here, and must come before what ends later. */
int64_t record_now(void);
void record_span(int64_t from, int64_t to, record_kind kind, const char *name, const char *detail, int64_t a,
                 int64_t b);
void record_instant_slow(record_kind kind, const char *name, int64_t a, int64_t b);
static inline void record_instant(record_kind kind, const char *name, int64_t a, int64_t b)
{
    if (record_is_on()) record_instant_slow(kind, name, a, b);
}
/* Names of ALLOCATE and FREE records: equal names have one address, whoever writes them. */
extern const char record_host_memory[], record_device_memory[];
/* Whose the time of a launch is: the operation `op` (interned), called in range `range` (its number; 0: in none), has
 * the part `weight` of it, of 1. After the launch's own record, on its thread. */
enum { RECORD_WHERE_IT_RAN = -1 }; /* for a range: the one that the launch itself is in */
void record_share(uint64_t identity, const char *op, int64_t range, double weight);
double record_share_weight(const record *r);
uint64_t record_identity(void);             /* a new one */
const char *record_name(const char *words); /* interned: lives as long as the process */

/* What an operation has of a launch that is made again and again: as record_share tells it of one launch. */
struct range_path;
typedef struct record_part {
    const char *op;                 /* interned */
    const struct range_path *range; /* inside the range that starts the launch; NULL: that itself */
    double weight;                  /* all of a launch: 1 */
} record_part;

/* What is known of a launch before it runs: `a` of records of kinds LAUNCH and KERNEL points at it (record_facts_of).
 * Interned like names: the same facts have one address, so a loop of launches adds nothing. Numbers that nobody knows
 * are NAN, whole ones 0, words NULL. */
typedef struct record_facts {
    const char *kernel, *device; /* "softmax", "cuda:0" */
    const char *shapes;          /* "x f32[16384, 16384], y f32[16384, 16384]" */
    const char *ops;             /* a fused kernel: the operations in it, "mul add gelu" */
    const char *file;            /* where it was written */
    int line;
    bool product; /* it has a `dot`: it cannot simply join its neighbour */
    int64_t programs;
    double read_bytes, written_bytes, unfused_bytes, flops; /* unfused: what its operations would move one by one */
    int threads, registers, shared_bytes, spill_bytes;      /* of a block; of a thread; of a block; of a thread */
    int blocks_per_unit;                                    /* a multiprocessor holds so many at once */
    double occupancy, waves;
    const char *limit;   /* of the occupancy: "registers", "shared memory", "threads", "blocks" */
    const void *variant; /* the compiled kernel, for its texts; NULL when it is gone */
    const void *texts;   /* then: what was kept of its texts (run/workbench/texts.h); NULL: nothing */
    const struct record_facts *const *parts; /* of a graph or a captured step: its launches in order */
    int part_count;
    const record_part *owners; /* whose its time is; NULL: records of kind SHARE tell */
    int owner_count;
} record_facts;
const record_facts *record_facts_keep(const record_facts *facts); /* interned; NULL without memory */
/* Before a compiled kernel goes: do any facts name it? Then they get its texts instead, which stay for good. */
bool record_facts_know(const void *variant);
void record_facts_retire(const void *variant, const void *texts);
static inline const record_facts *record_facts_of(const record *r)
{
    return r->kind <= RECORD_KERNEL && r->kind >= RECORD_LAUNCH ? (const record_facts *)(intptr_t)r->a : NULL;
}

/* What the calling thread hands to devices between enter and leave belongs to one identity. Whoever traces devices is
 * told (on this thread), so that the device's own records find their launch. Pairs nest; the innermost counts. */
typedef struct record_tracer {
    void (*enter)(uint64_t identity);
    void (*leave)(void);
} record_tracer;
uint64_t record_enter_slow(const char *name);
void record_leave_slow(uint64_t identity);
static inline uint64_t record_enter(const char *name) /* 0: nobody wants to know */
{
    return atomic_load_explicit(&record_switches, memory_order_relaxed) ? record_enter_slow(name) : 0;
}
static inline void record_leave(uint64_t identity)
{
    if (identity) record_leave_slow(identity);
}
uint64_t record_inside(void);                      /* the identity that this thread is inside of; 0: none */
void record_trace_by(const record_tracer *tracer); /* borrowed until the next call; NULL: nobody */
/* Which trace of devices is on: another number for each; 0: none. A tracer may know only what was made since it began, so
 * that a device makes again what it hands over as a whole. */
uint64_t record_trace_number(void);

/* Marks for other tools (NVTX), that show what the calling thread is at: pairs that nest, with names. They need no
 * recording. record_enter and record_leave make them too. */
typedef struct record_marks {
    void (*push)(const char *name);
    void (*pop)(void);
} record_marks;
void record_mark_by(const record_marks *marks); /* borrowed for the life of the process; NULL: nobody */
void record_mark_slow(const char *name);        /* NULL: pop */
static inline void record_mark(const char *name)
{
    if (atomic_load_explicit(&record_switches, memory_order_relaxed) & RECORD_MARKS) record_mark_slow(name);
}

/* The reader's side. start fails (QN_BAD_CALL) while another reader has it on. */
qn_status record_start(int ring_records, qn_error *error); /* records a thread may be ahead of the reader; 0: 65,536 */
void record_stop(void);                                    /* rings keep what they hold */
/* Takes out what the rings hold, thread by thread, each in order of end; returns how many. May run while recording. */
typedef void record_take(void *user, const record *r);
int64_t record_drain(record_take *take, void *user);
int64_t record_dropped(void); /* since the start: a ring was full */
int record_thread_count(void);
const char *record_thread_name(uint32_t thread); /* "main", "worker 3"; borrowed */
void record_name_thread(const char *name);       /* of the calling thread, recorded or not; interned */

#endif
