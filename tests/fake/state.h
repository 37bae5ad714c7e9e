/*
 * What the files of the fake libcuda share: its state, the calls' first lines, and work that is done at once or recorded.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_FAKE_STATE_H
#define QUERN_TESTS_FAKE_STATE_H

#include "device/cuda/api.h"
#include "device/emu/unit.h"
#include "fake/trace.h"

#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))
#define MARK "FAKECUBIN\n"

enum { CAPTURE_UNSUPPORTED = 900, MOST_BLOCKS = 4096, MOST_COUNTERS = 64, MOST_ORDERS = 16 };

typedef struct fake_state {
    pthread_mutex_t lock;
    struct {
        char *address;
        size_t size_bytes;
    } blocks[MOST_BLOCKS];
    int block_count;
    size_t used_bytes, limit_bytes;
    int sticky; /* the result of a fault: every later call gives it */
    struct {
        char name[64];
        int64_t count;
    } counters[MOST_COUNTERS];
    int counter_count;
    struct {
        char name[64];
        int result, after; /* after so many calls */
    } orders[MOST_ORDERS];
    int order_count;
    compiler compiler;
    emu_engine *engine;
    int serial, device_count;
    fake_listener *listener; /* the fake CUPTI */
    uint32_t calls;
    _Atomic uint32_t graphs;
    _Atomic int strict; /* recordings that are not relaxed */
    _Atomic int64_t depth;
} fake_state;
extern fake_state fake;
extern _Thread_local int fake_capture_mode;

EXPORT int fake_ask(const char *function); /* counts the call; its result if it is to fail */

#define ASK()                             \
    do {                                  \
        int refused = fake_ask(__func__); \
        if (refused) return refused;      \
    } while (0)

#define FAKE(name, ...)           \
    EXPORT int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

typedef struct work {
    enum { WORK_KERNEL, WORK_COPY, WORK_FILL, WORK_TASK } kind;
    int (*task)(const void *state); /* of another library, with `parameters` as its state */
    const char *name;
    void *function;
    cuda_launch_config config;
    bool cooperative;
    int cluster;
    char *parameters; /* a copy */
    int direction;
    uint64_t to, from, bits;
    size_t size, pitch, width, height; /* fill: element bytes */
    void **waits;                      /* of a graph: for these nodes, which are numbers of items from 1 on */
    size_t wait_count;
} work;

typedef struct graph {
    work *items;
    size_t count, capacity;
    int owners; /* the graph and what was made ready of it */
    uint32_t number;
} graph;

typedef struct stream {
    graph *recording;
    bool is_strict; /* the recording refuses what may wait */
    void **after;   /* nodes that what is recorded next waits for */
    size_t after_count;
} stream;

typedef struct module {
    emu_library library;
    char path[128];
} module;

typedef struct function {
    module *module;
    emu_entry *entry;
    size_t parameter_bytes; /* 0: several, or not known */
    char name[256];
} function;

/* cuda_work.c */
int64_t fake_now_ns(void);
/* Work of another library: the state is copied where it is recorded. */
EXPORT int fake_submit(void *handle, const char *name, int (*task)(const void *state), const void *state,
                       size_t size_bytes);
uint32_t fake_next_call(void);
/* Runs it, and tells who listens. */
int fake_run(const work *w, void *const *parameters, uint32_t call, uint32_t graph, uint32_t node);
stream *fake_stream(void *handle); /* NULL: a default stream, also by its handles 1 (legacy) and 2 (per thread) */
void fake_set_after(stream *s, void *const *nodes, size_t count);

#endif
