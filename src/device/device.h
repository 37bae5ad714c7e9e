/*
 * Devices: memory and launch. A driver turns IR into text, text into a binary file, a binary into a loaded program,
 * and runs it; run/compile/compile.c puts the cache between these steps. Drivers are a static list in drivers.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_DEVICE_H
#define QUERN_DEVICE_DEVICE_H

#include "device/emu/order.h"
#include "emit/emit.h"
#include "ir/interp.h"
#include "target/target.h"

struct ceilings;
struct qn_roofline;
struct record_facts;
typedef struct device device;   /* each driver has its own struct that begins with `const driver *driver` */
typedef struct program program; /* likewise */

typedef struct device_options {
    int threads;                                 /* 0: all */
    int number;                                  /* which one of the driver's devices */
    void (*print)(void *user, const char *line); /* may be NULL */
    void *print_user;
    const char *folder; /* where what was measured of the machine is kept; NULL: nowhere */
} device_options;

typedef struct device_about {
    bool available;
    bool absent;           /* no such hardware, or no driver for it: nothing that anybody would miss */
    char description[256]; /* or why not, and what to install */
    char note[256];        /* a wish of the environment that was not followed; or empty */
    int units;
    size_t cache_bytes;  /* of its last cache; 0: the processor's */
    int arch;            /* of a GPU: 90 for sm_90; else 0 */
    size_t memory_bytes; /* of its own; 0: the host's, or not known */
} device_about;

/* How a device is doing while it works. NAN: not known. */
enum { HELD_BY_POWER = 1, HELD_BY_HEAT = 2, HELD_BY_HARDWARE = 4 };
typedef struct device_health {
    double clock_mhz, most_clock_mhz, memory_clock_mhz, temperature_c, power_w, power_limit_w;
    unsigned held;     /* what keeps the clock down now */
    char identity[96]; /* of this very device; or empty */
} device_health;

typedef struct launch_options { /* for ref; others ignore it */
    const interp_options *interp;
    findings *found;
} launch_options;

typedef struct device_stream device_stream; /* of a driver with streams: work in order, which the host need not await */
typedef struct device_event device_event;
typedef struct device_graph device_graph;
typedef struct device_launch device_launch; /* a launch with everything computed beforehand */

typedef struct memory_statistics {
    int64_t used_bytes, kept_bytes;          /* handed out; free but kept for the next request */
    int64_t peak_bytes;                      /* most that was handed out at once */
    int64_t allocations, system_allocations; /* requests; those that went to the system */
    int64_t free_bytes, total_bytes;         /* of the device, as the system sees it */
} memory_statistics;

/* Memory that the host cannot touch. Requests are served from kept blocks. stream NULL: the device's own. */
typedef struct driver_memory {
    qn_status (*allocate)(device *d, size_t size_bytes, void **out,
                          qn_error *error);       /* 512-byte aligned, not cleared */
    void (*release)(device *d, void *memory);     /* NULL is fine; work already submitted may still use it */
    void (*trim)(device *d);                      /* gives what is kept back to the system */
    bool (*owns)(device *d, const void *address); /* an address of this device's memory, whoever allocated it? */
    /* Host memory may be changed or freed as soon as `write` returns; `read` returns when the data is there. */
    qn_status (*write)(device *d, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error);
    qn_status (*read)(device *d, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error);
    /* Page-locked memory of the host, or NULL: there is none. `write` from it does not wait and takes no detour; it may
     * change only after `settle_locked`. Releasing it waits, too. */
    qn_status (*allocate_locked)(device *d, size_t size_bytes, void **out, qn_error *error);
    void (*settle_locked)(device *d, void *memory);
    void (*release_locked)(device *d, void *memory);
    qn_status (*copy)(device *d, device_stream *s, void *to, const void *from, size_t size_bytes, qn_error *error);
    qn_status (*fill)(device *d, device_stream *s, const array_view *view, const void *pattern, qn_error *error);
    qn_status (*settle)(device *d, qn_error *error);     /* waits for the device's own stream */
    qn_status (*settle_all)(device *d, qn_error *error); /* for everything */
    void (*statistics)(device *d, memory_statistics *out);
} driver_memory;

/* Work that the host does not wait for. */
typedef struct driver_streams {
    qn_status (*open)(device *d, device_stream **out, qn_error *error);
    /* The host program's own, which stays its own; NULL: its default stream. */
    qn_status (*wrap)(device *d, void *native, device_stream **out, qn_error *error);
    /* The device's own, on which everything runs that names no stream; it is not closed. */
    qn_status (*own)(device *d, device_stream **out, qn_error *error);
    void *(*native)(const device_stream *s); /* a CUstream */
    void (*close)(device_stream *s);
    qn_status (*wait)(device_stream *s, qn_error *error); /* until all is done; tells what failed since the last wait */
    qn_status (*wait_event)(device_stream *s, device_event *e, qn_error *error); /* later work only */
    qn_status (*capture)(device_stream *s, qn_error *error);                     /* what follows is recorded, not run */
    /* While a stream is recorded: what comes next waits for these nodes of the graph and for no others. capture_ends: the
     * nodes that it would wait for now, at most `most`; returns their number, -1: the driver can not tell, and records
     * launches in a row. */
    qn_status (*capture_after)(device_stream *s, void *const *nodes, int count, qn_error *error);
    int (*capture_ends)(device_stream *s, void **nodes, int most, qn_error *error);
    qn_status (*capture_end)(device_stream *s, device_graph **out, qn_error *error);
    qn_status (*replay)(device_graph *g, device_stream *s, qn_error *error);
    void (*graph_close)(device_graph *g);
    int64_t (*graph_nodes)(const device_graph *g);
    qn_status (*event_open)(device *d, device_event **out, qn_error *error);
    void (*event_close)(device_event *e);
    qn_status (*event_record)(device_event *e, device_stream *s, qn_error *error);
    qn_status (*event_wait)(device_event *e, qn_error *error);
    qn_status (*event_elapsed)(device_event *from, device_event *to, double *ns, qn_error *error);
} driver_streams;

/* When launches ran, by the device's own events; for profiles. Times are of the realtime clock. */
typedef struct trace_span {
    int64_t start_ns, end_ns;
    uint64_t identity; /* of the record that the launch was made in */
    const void *stream;
} trace_span;
typedef void trace_take(void *user, const trace_span *span);
typedef struct driver_trace {
    qn_status (*start)(device *d, qn_error *error);
    int64_t (*read)(device *d, trace_take *take, void *user); /* what is over; returns how many were lost */
    void (*stop)(device *d);
    void (*focus)(device *d, bool on); /* tells other tools that what follows is of interest (cuProfilerStart) */
} driver_trace;

/* Launches that are repeated together, one after the other. */
typedef struct device_series device_series;
typedef struct series_launch {
    program *program;
    const array_view *arrays; /* complete; copied */
    const launch_plan *plan;  /* borrowed for the series' life */
} series_launch;

struct cuda_layout; /* emit/cuda/emit.h */

typedef struct driver {
    const char *name;
    device *(*open)(const device_options *options); /* never fails: an absent device says so in `about` */
    void (*close)(device *d);
    void (*about)(const device *d, device_about *about);
    int (*count)(device *d); /* how many devices this driver has; NULL: one */
    /* More about it, a few lines for `quern devices`: libraries, versions. NULL: nothing. */
    void (*describe)(device *d, text *out);
    /* The machine's ceilings; NULL: those of the CPU. */
    qn_status (*measure)(device *d, size_t copy_bytes, struct ceilings *out, qn_error *error);
    /* More of them, for a roofline; fills what it has. NULL: those of the CPU. */
    qn_status (*roofline)(device *d, size_t bytes, struct qn_roofline *out, qn_error *error);
    /* Measures the numbers that its text is made with by the measuring loops (ceilings_source), uses and keeps them. NULL: it
     * has none. */
    qn_status (*adapt)(device *d, const char *loops_path, qn_error *error);
    /* Clocks, heat, power; false: nobody tells. NULL: a processor. */
    bool (*health)(device *d, device_health *out);
    /* A context, or other handle, of the host program to be used instead of the driver's own. NULL: there is none. */
    qn_status (*adopt)(device *d, void *native, qn_error *error);
    /* From now on kernels are made so that they tell accesses out of bounds and the like, with lines. NULL: they never
     * do. */
    void (*set_checked)(device *d, bool checked);
    /* Facts of a launch that this device specialises on, into k->params[].facts. NULL: none. */
    void (*choose_facts)(const device *d, tile_kernel *k, const array_view *arrays, const launch_plan *plan);
    /* Text of a kernel that went through the pipeline, and what the binary depends on besides (compiler, flags, cpu).
     * NULL: no text. layout: NULL, or gets what was decided of its launches (NULL where there is nothing); `load` keeps
     * it when it succeeds. */
    qn_status (*emit)(const device *d, const tile_kernel *k, text *out, struct cuda_layout **layout, qn_error *error);
    /* What is chosen for its launches, as text (schedule/print.c). NULL: nothing is. */
    qn_status (*schedule)(const device *d, const tile_kernel *k, text *out, qn_error *error);
    void (*tool)(const device *d, text *out); /* identifies compiler, flags and instruction set, for the cache key */
    qn_status (*assemble)(const device *d, const char *source, const char *binary_path, qn_error *error);
    qn_status (*disassemble)(const device *d, const char *source, text *out, qn_error *error); /* show --stage asm */
    /* k is borrowed for the program's life. binary_path: NULL for ref. */
    qn_status (*load)(device *d, const tile_kernel *k, const char *binary_path, struct cuda_layout *layout,
                      program **out, qn_error *error);
    void (*unload)(program *p);
    /* Runs all phases and waits. arrays complete, scratch allocated and initial values filled by the caller. Thread-
     * safe. */
    qn_status (*launch)(program *p, const array_view *arrays, const launch_plan *plan, const launch_options *options,
                        qn_error *error);
    /* Instead of `launch`, for drivers with memory of their own (NULL otherwise): arrays are on the device; `prepare`
     * makes or refreshes *launch, `submit` puts all phases on a stream (NULL: the device's own). */
    qn_status (*prepare)(program *p, const array_view *arrays, const launch_plan *plan, device_launch **launch,
                         qn_error *error);
    /* A prepared launch with the same plan and arrays of the same shapes at other addresses. */
    qn_status (*move)(device_launch *launch, const array_view *arrays, qn_error *error);
    qn_status (*submit)(device_launch *launch, device_stream *s, qn_error *error);
    qn_status (*finish)(device_launch *launch, qn_error *error); /* waits, and tells how this launch went */
    void (*discard)(device_launch *launch);                      /* NULL is fine */
    /* A library that may compute kernels that ask for it (KNOB_LIBRARY): false with what to install; and whether it computes a
     * launch that was prepared, by what name ("cublaslt bf16 4096x4096x4096"; NULL: the kernel does, *why says why). NULL: it
     * has none. */
    bool (*library)(device *d, qn_error *error);
    const char *(*launch_library)(const device_launch *launch, const char **why);
    /* What the device knows of a launch before it runs (threads, registers, occupancy), for records. NULL: nothing. */
    void (*facts)(program *p, const launch_plan *plan, struct record_facts *out);
    /* For drivers whose launches wait, where many in a row cost less than one by one (NULL: they do not). Running
     * allocates nothing once the memory of the kernels has grown. */
    qn_status (*series_open)(device *d, const series_launch *launches, int count, device_series **out, qn_error *error);
    /* facts: by launch, for records, or NULL. */
    qn_status (*series_run)(device_series *s, const struct record_facts *const *facts, qn_error *error);
    /* The same launches with arrays at other addresses. */
    void (*series_move)(device_series *s, const series_launch *launches, int count);
    void (*series_close)(device_series *s); /* NULL is fine */
    const driver_memory *memory;            /* NULL: the host's */
    const driver_streams *streams;          /* NULL: launches wait */
    const driver_trace *trace;              /* NULL: launches wait, and the host's clock tells their time */
} driver;

extern const driver driver_ref, driver_cpu, driver_cuda, driver_emu;
/* emu as another machine, for tests: so many multiprocessors (1: a block takes all tiles, one after the other), and who runs
 * first: threads in turn, the last of them first, or always the lowest or the highest one that can go on (warps that fill
 * are behind those that multiply). Nothing that is computed depends on either. */
void emu_vary(device *emu, int units, emu_order order);
extern const driver *const drivers[]; /* in order of preference, best first; NULL-terminated */

#endif
