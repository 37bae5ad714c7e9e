/*
 * run: ties the parts together. A module holds kernels; a call binds one kernel to arguments; binding gives an instance
 * (types and constants fixed, lowered once) with complete arrays and a launch plan; a variant is an instance compiled
 * for one device under the facts of a launch; launching runs it.
 *
 * Locking: the context's mutex guards the instance lists and the variant tables; it is released while a variant is
 * compiled, so that several threads compile at once, and a variant that is being made is waited for, not made twice. A
 * call belongs to one thread; programs of a variant may be launched by several threads at once.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_RUN_H
#define QUERN_RUN_RUN_H

#include "device/device.h"
#include "lang/ast.h"

#include <pthread.h>
#define QN_NO_CALL_SITES
#include <quern/tensor.h>
#include <quern/workbench.h>

#define MAX_DEVICES 16
#define MAX_VARIANTS 8 /* per instance and device, twice with tests of every access; the last assumes nothing */

enum { LOG_COMPILE = 1, LOG_CACHE = 2, LOG_LAUNCH = 4, LOG_CODE = 8, LOG_GRAPH = 16, LOG_FUSION = 32, LOG_GUARDS = 64 };

/* Whether launches that are products of whole arrays may go to the library of the device's maker: never, where a setting or a
 * record of tuning says so, or all of them. */
typedef enum library_use { LIBRARY_TUNED, LIBRARY_NEVER, LIBRARY_ALWAYS } library_use;

struct cache;

typedef struct device_slot {
    const driver *driver;
    device *device;
    char name[16]; /* "cuda", "cuda:1" */
    bool checked;  /* compiles with tests of every access, for `check` */
    bool known;    /* `about` is filled: asking may cost time, so it is done when somebody wants to know */
    device_about about;
} device_slot;

/* Who counts launches: told of each right after it ran on the device's own stream; `again` runs it once more and waits. */
struct record_facts;
typedef qn_status launch_again(void *user, qn_error *error);
typedef struct launch_counter {
    uint64_t number; /* of its own in the process: what it has seen is known by that (record_identity) */
    void (*count)(struct launch_counter *counter, int slot, const struct record_facts *facts, const tile_kernel *k,
                  const array_view *views, launch_again *again, void *user);
} launch_counter;

struct qn_context {
    launch_counter *counter;          /* NULL: nobody counts */
    pthread_mutex_t lock, about_lock; /* about_lock: of asking devices about themselves, and of adding slots */
    int threads;                      /* as asked for */
    bool counted;                     /* all devices of every driver have their slots */
    pthread_cond_t compiled;          /* one of `pending` is done */
    struct pending_variant *pending;  /* variants that are being compiled */
    pthread_mutex_t log_lock;         /* lines of the log go out one at a time */
    device_slot slots[MAX_DEVICES];
    int slot_count;
    struct cache *cache;        /* opened at the first compile; NULL before */
    struct kernel_store *store; /* kernels that fusion wrote; NULL before the first */
    bool no_cache, allow_raw;
    struct raw_file *raw_files;     /* whose raw text was told about */
    bool closing;                   /* what goes now is asked for by nobody */
    char *cache_folder;             /* as asked for, or NULL */
    char *dump_folder;              /* of QUERN_DUMP_DIR, or NULL */
    bool no_tune;                   /* QUERN_TUNE=off: records of tuning are not used */
    library_use library;            /* of QUERN_LIBRARY */
    struct tune_book *book;         /* read at the first need; NULL before */
    struct edited_schedule *edited; /* what the user changed of schedules; NULL: nothing */
    void (*print)(void *user, const char *line);
    void *user;
    unsigned log;    /* LOG_... from QUERN_LOG */
    bool one_by_one; /* QUERN_SYNC: each launch is waited for, so that a failure has its name */
    char *input;     /* of the path `-`, once it was read */
    size_t input_bytes;
    _Atomic int64_t compiles, cache_hits; /* programs made by a compiler; programs found in the cache */
};

/* A parameter as it is written, before any type is bound. */
typedef struct parameter {
    const char *name, *type;          /* type as written */
    param_kind kind;                  /* SCALAR for constants too */
    bool constant, function, generic; /* generic: the type is T */
    bool result;                      /* of a tensor function: type and rank are known when it is bound */
    dtype elem;                       /* unless generic or function */
    int rank;                         /* -1: not an array */
    place at;
} parameter;

typedef struct instance instance;

typedef struct kernel_entry {
    struct qn_module *module;
    const char *name;
    const ast *item;   /* NULL for a tile IR dump; AST_KERNEL, AST_RAW or AST_TENSOR */
    bool gradient;     /* a tensor function's gradient: "grad(f)" */
    tile_kernel *dump; /* NULL for a kernel of a .qn file */
    parameter *params;
    int param_count;
    const char **names; /* every name that may be set: parameters, extents, generic types, knobs */
    int name_count, name_capacity;
    instance *instances;            /* newest first */
    text warnings;                  /* those of the file that concern this kernel */
    int spread;                     /* a tensor function with `[...]`: the axes that it stands for here; else -1 */
    struct kernel_entry *spread_of; /* the entry that this one is made of, with other axes; NULL: one of the file */
} kernel_entry;

struct qn_module {
    qn_context *context;
    arena *memory;
    ast_file *file; /* NULL for a dump */
    const char *path;
    kernel_entry *kernels; /* and tensor functions */
    int kernel_count;
    kernel_entry *gradients; /* grad(f) of each tensor function; not listed */
    int gradient_count;
    kernel_entry **renamed; /* tensor functions whose results have other names, or with other axes for `[...]` */
    int renamed_count, renamed_capacity;
    map *by_name;      /* kernels and gradients of a .qn file; NULL: a dump, or CUDA text */
    diagnostics found; /* warnings, in the order of the source */
    text warnings;     /* all of them, printed */
    /* Of CUDA text alone (cuda_module.c): instances of templates become kernels as they are asked for. */
    const char *cuda_source, *cuda_options;
    int kernel_capacity;
    bool is_trusted; /* its raw kernels may run whatever the context says */
};

/* A compiled variant. Never changes once it is in its table. */
typedef struct variant {
    arena *memory;
    tile_kernel *kernel; /* after the pipeline (as lowered for ref); its params' facts are what was promised */
    program *program;
    bool assumes_nothing;
    bool checked;      /* compiled while its slot was */
    char *facts_words; /* "x.contiguous n.by16" */
    char *why;         /* one sentence */
    char *binary_path; /* in the cache; NULL for ref */
    int64_t compile_ns, load_ns;
    bool from_cache;
} variant;

struct instance {
    instance *next;
    kernel_entry *owner;
    arena *memory;
    char *key; /* "T=f32 BLOCK=1024" */
    bindings constants;
    tile_kernel *kernel; /* as lowered; of a tensor function: its parameters, results and extents, with an empty body */
    bindings known;      /* of a tensor function: extents and integer scalars, which shapes depend on */
    dtype narrowest;     /* of a tensor function: the smallest float that it computes in, or f64 */
    bool *any;           /* of a tensor function, by declared parameter: graph_integers_may_be_any */
    uint8_t *uses;       /* by parameter: EXTENT_..., see extent_use.c */
    text warnings;       /* of lowering */
    variant *variants[MAX_DEVICES][2 * MAX_VARIANTS]; /* with and without tests of every access */
    int variant_count[MAX_DEVICES];
};

typedef struct argument {
    bool given;        /* by the caller */
    bool direct;       /* staging.c: it is on the device itself */
    bool generated;    /* by qn_call_generate */
    bool allocated;    /* by the last binding: an output or scratch */
    array_view view;   /* when one of the three */
    qn_buffer *buffer; /* retained, or NULL */
    void *owned;       /* memory of this call: outputs, scratch, generated inputs */
    size_t owned_bytes;
    void *mirror; /* memory of the device at mirror_slot that stands for host memory */
    size_t mirror_bytes;
    int mirror_slot;
} argument;

struct qn_call {
    kernel_entry *kernel;
    qn_context *context;
    arena *memory;
    bindings settings;
    argument *arguments; /* by declared parameter; NULL: a step of a plan */
    int argument_count;
    /* What binding made; valid while `bound`. */
    bool bound, pointers_changed;
    bool moved; /* addresses changed, and neither shapes nor on which side of the bus they are */
    int slot;   /* device it was bound for */
    instance *instance;
    variant *variant;  /* NULL until the first launch after a bind */
    int room;          /* tile parameters that the next three have place for */
    int *declared;     /* tile parameter to declared parameter; -1 for extents */
    array_view *views; /* by tile parameter, complete; on devices with memory of their own once staged */
    launch_plan plan;
    bool staged;          /* views are those of the device */
    device_launch *ready; /* of the slot's driver, or NULL; good while `prepared` */
    int ready_slot;
    bool prepared, all_direct; /* all_direct: no array is in host memory */
    bool has_initials;         /* an output is filled before each launch */
    device_event *events[2];   /* around a launch, of ready_slot */
    bool has_run;
    const struct record_facts *facts; /* in records, once there was one */
    qn_mode mode;                     /* of a tensor function */
    qn_products products;             /* how those of f32 are computed */
    struct function_run *run;         /* of a tensor function: its tape; NULL before the first launch */
    void *scratch;                    /* the caller's, for launches on a device with memory of its own; NULL: none */
    int64_t scratch_bytes;
    int assumed_units; /* `show` for a device that is not there: its units; 0: the device's own */
    qn_timing timing;
};

struct qn_buffer {
    _Atomic int references;
    qn_context *context;
    int slot; /* the device it is on; -1: host memory */
    void *data;
    size_t size_bytes;
    qn_deleter *deleter;
    void *user;
    bool owned;
    bool
        anywhere; /* plans do not count on where it begins, but for elements of two bytes and more on a multiple of 64 */
    uint8_t element_bytes; /* of the array that it is, where `anywhere` */
};

/* context.c */
const device_about *slot_about(qn_context *context, int slot); /* asks the device, once */
int context_slots(qn_context *context); /* how many there are, with every GPU: asks the drivers that may have several */
int context_cheap_slot(qn_context *context); /* an available device that need not be asked for first */
/* On a device with memory of its own; not cleared. */
qn_status buffer_of_device(qn_context *context, int slot, size_t size_bytes, qn_buffer **buffer, qn_error *error);
/* Memory of the host that the device copies from by itself, page-locked where it has memory of its own; zero. What was
 * written from it may change after buffer_settle. */
qn_status buffer_new_locked(qn_context *context, const char *device, size_t size_bytes, qn_buffer **buffer,
                            qn_error *error);
void buffer_settle(const qn_buffer *buffer);
qn_status context_slot(const qn_context *context, const char *device, int *slot,
                       qn_error *error); /* device NULL: the best */
void context_log(qn_context *context, unsigned kind, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* KNOB_LIBRARY as it is followed: a wish of the user, of a record of tuning, or 0; on the device of a slot, if that has one. */
int context_library_wish(const qn_context *context, int wish);
int context_library(const qn_context *context, int slot, int wish);
/* A line for the user whatever the log's switches are. */
/* Once for a file: its raw text runs as it is. */
void context_tell_raw(qn_context *context, const char *path);
void context_say(qn_context *context, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *
memory_allocate(size_t size_bytes); /* 64-byte aligned, large ones on huge pages; NULL if there is none; not zeroed */
void memory_free(void *memory);

/* context.c: qn_context_open and qn_context_close but for the profile that QUERN_PROFILE asks for (profile/). */
qn_status context_open(const qn_context_options *options, qn_context **out, qn_error *error);
void context_close(qn_context *context);

/* module.c */
void entry_from_dump(kernel_entry *e, tile_kernel *k);
void entry_add_name(kernel_entry *e, const char *name); /* one that a call may set */
/* By a name, which may say a mode first: "eager f". NULL: E505 with a suggestion. */
kernel_entry *module_find(const qn_module *module, const char *spelled, qn_error *error);
/* One diagnostic of a launch, with its place in the source where there is one. Returns the status. */
qn_status entry_error(const kernel_entry *entry, qn_status status, error_code code, place at, const char *advice,
                      qn_error *error, const char *format, ...) __attribute__((format(printf, 7, 8)));
const parameter *entry_param(const kernel_entry *entry, const char *name, int *number); /* NULL if none */
/* The kernel's name, then the source lines of the kernel and of all it uses. */
void entry_source(const kernel_entry *entry, text *out);

/* cuda_module.c: the kernel "twice<float>", made now if it is new; NULL: there is no such template. */
kernel_entry *cuda_module_instance(qn_module *module, const char *name, qn_error *error);

/* bind.c: instance, complete arrays and plan. `inputs_too`: in and inout arrays that are not set are computed as well
 * (extents only; their views have no data), for the generator. Nothing is compiled. */
qn_status call_bind(qn_call *call, int slot, bool inputs_too, qn_error *error);
/* Row-major memory of the call for a declared array of v's extents, into v and the argument's view. */
qn_status call_allocate(qn_call *call, int declared, array_view *v, qn_error *error);
void argument_free_owned(argument *a);
bool raw_runs_on(const char *language, const char *device); /* "cuda" on cuda and emu, "c" on cpu */
void call_unbind(qn_call *call);                            /* something other than a pointer changed */
qn_status call_refresh(qn_call *call, qn_error *error);     /* only pointers changed: new views, overlap again */
void call_make_room(qn_call *call, int param_count); /* for what binding makes: views, scalars, extents; all zero */
/* After qn_call_move: new addresses in the views, overlap again. What was staged, and the variant where every address is
 * as well aligned as before, stays. */
qn_status call_move(qn_call *call, qn_error *error);
/* The instance for what is given so far: types and constants bound, open ones as the record of tuning says. */
qn_status call_instance(qn_call *call, int slot, instance **out, qn_error *error);
/* Types, constants and extents of the call's arrays under these settings. */
qn_status call_constants(const qn_call *call, const bindings *settings, int units, arena *memory, bindings *constants,
                         bindings *extents, qn_error *error);
/* The instance of constants, lowered now if it is new. Takes the context's lock. */
qn_status entry_instance(kernel_entry *entry, const bindings *constants, instance **out, qn_error *error);

/* function.c: tensor functions as calls */
void function_results(kernel_entry *e, bool gradient); /* adds them to the entry's parameters */
bool call_is_function(const qn_call *call);
const char *function_name(const char *spelled, qn_mode *mode,
                          qn_products *products); /* "eager f", "strict tf32 f": f */
/* The same function with results of these names; others than those given keep theirs. */
kernel_entry *function_renamed(kernel_entry *e, const char *const *names, int count);
/* The same function with so many axes for `[...]`; the entry itself where it has none. */
kernel_entry *function_spread(kernel_entry *e, int axes);
/* Axes that `[...]` stands for when parameter `number` has this rank; -1: it says nothing, -2: it does not fit. */
int function_spread_axes(const kernel_entry *e, int number, int rank);
/* The entry of grad(f), or NULL. */
kernel_entry *function_gradient(const kernel_entry *e);
/* Extents and scalars of the call that make its instance, under names of two words. */
void function_key(const qn_call *call, arena *memory, const bindings *extents, bindings *constants);
/* The parameters and results of one instance as a kernel with an empty body. False: diagnostics say why. */
bool function_signature(const kernel_entry *entry, instance *i, const bindings *constants, diagnostics *d);
qn_status function_launch(qn_call *call, int slot, qn_error *error);
qn_status function_compile(qn_call *call, int slot, qn_error *error); /* all of a launch but the launch */
/* Without waiting, on a device with streams; arrays must be on the device. */
qn_status function_submit(qn_call *call, int slot, device_stream *stream, qn_error *error);
/* Bytes of scratch memory of a launch; plans it. Arrays must be on the device. */
qn_status function_scratch(qn_call *call, int slot, int64_t *size_bytes, qn_error *error);
void function_run_free(qn_call *call);
double function_flops(const qn_call *call); /* of its last run; NAN if nobody knows */
int function_kernels(const qn_call *call);  /* of its last run; 0: it has not run */
const char *function_library(const qn_call *call, const char **why); /* call_library of its last run */

/* extent_use.c */
enum {
    EXTENT_OF_TILE = 1,
    EXTENT_BOUNDS = 2,
    EXTENT_OF_ARRAY = 4,
    EXTENT_OF_MATRIX = 8,
    ARRAY_OF_PRODUCT = 16,
    EXTENT_OF_MASK = 32 /* along the last axis of a tile: whole vectors are inside or outside */
};
void extent_uses(tile_kernel *k, uint8_t *uses); /* changes nothing in k */
/* Drops what the code does not depend on. */
void extent_facts(const tile_kernel *k, const uint8_t *uses, const launch_plan *plan, tile_facts *facts);

/* variants.c */
void instance_free(instance *i, qn_context *context);
/* The facts of this launch into facts[], one per tile parameter. */
void launch_facts(const qn_call *call, tile_facts *facts);
void drop_numbers(const qn_call *call, tile_facts *facts); /* of a fused kernel: what no text depends on */
/* The variant for these facts, compiled now if it must be. Takes the context's lock. */
qn_status variant_get(qn_call *call, variant **out, qn_error *error);
void facts_print(const tile_kernel *k, const tile_facts *facts, text *out); /* "x.contiguous n.by16 n.class=3" */
/* A dump may have been specialised: E503 if what it assumes does not hold for the bound arrays and plan. */
qn_status facts_check(const qn_call *call, const tile_kernel *k, qn_error *error);

/* why.c: the record of variants, kept beside the cache. */
/* In what `facts` differs from `earlier`, as words: "n.class is 4 instead of 3, without x.aligned". */
void facts_differ(const char *facts, const char *earlier, text *out);
int facts_distance(const char *facts, const char *earlier);
void why_record(qn_context *context, const kernel_entry *entry, const char *device, const char *constants,
                const char *facts);
void why_print(qn_context *context, const kernel_entry *entry, text *out); /* show --why */
void why_forget(qn_context *context, int64_t *removed_files, int64_t *removed_bytes);

/* compile.c: passes, text, binary, program. The lock is held. */
qn_status variant_compile(qn_context *context, int slot, const instance *from, const tile_facts *facts, variant **out,
                          qn_error *error);
struct cache *context_cache(qn_context *context); /* opened at the first use; the lock is held */

/* compile_many.c */
typedef struct compile_job {
    qn_call *call; /* with every input set; */
    bool usual;    /* or only sizes: for row-major, aligned arrays of these */
    int slot;
    qn_status status;
    qn_error error;
    variant *variant; /* what was made, or found; NULL: a tensor function's are many */
} compile_job;
/* A call that was bound with inputs_too gets views as those of row-major, aligned arrays. */
void call_usual_views(qn_call *call);
/* Binds and compiles each call in up to `threads` threads; the status of each is in its job. */
void calls_compile(compile_job *jobs, int count, int threads);

/* staging.c: devices with memory of their own. */
/* Views become the device's: buffers on it as they are, mirrors for host memory. `host_allowed` false: host memory is
 * an error. */
qn_status call_stage(qn_call *call, bool host_allowed, qn_error *error);
/* Scratch arrays of a bound kernel, one behind the other, and where each begins; 0 without any. */
int64_t call_scratch_bytes(const qn_call *call, int64_t *offsets);
qn_status call_copy_in(qn_call *call, device_stream *s, qn_error *error);
qn_status call_copy_out(qn_call *call, device_stream *s, qn_error *error);
void call_release_device(qn_call *call); /* mirrors, the prepared launch */

/* stream.c */
struct qn_stream;
device_stream *stream_own(const struct qn_stream *stream, int *slot); /* NULL: of a driver without streams */
struct qn_event;
qn_status stream_event(const struct qn_stream *stream, struct qn_event **event, qn_error *error); /* of its device */

/* measure.c */
struct qn_roofline;
/* Everything but when it was and at which clock; some seconds. */
qn_status roofline_measure(qn_context *context, int slot, struct qn_roofline *out, qn_error *error);

/* launch.c */
/* As qn_call_run; options (may be NULL) go to the driver. found: with ref, findings are added and are not a failure. */
qn_status call_launch(qn_call *call, int slot, const launch_options *options, qn_error *error);
/* A program with complete views on a device whose launches wait; on ref every check is made, findings are the error.
 * any_value: as interp_options has it. */
qn_status program_launch(qn_context *context, int slot, const tile_kernel *k, program *p, const array_view *views,
                         const launch_plan *plan, bool any_value, qn_error *error);
/* Fills the outputs that have an initial value. */
qn_status views_fill_initials(const device_slot *s, const tile_kernel *k, const array_view *views,
                              device_stream *stream, qn_error *error);
/* What a library computed of the call's last launch, by name (driver.launch_library); NULL: nothing, *why says why. */
const char *call_library(const qn_call *call, const char **why);
/* Puts a launch on a stream of a driver that has streams, and does not wait. */
qn_status call_submit(qn_call *call, int slot, device_stream *stream, qn_error *error);

/* call.c */
qn_call *call_new(kernel_entry *entry, qn_context *context);
void call_forget_setting(qn_call *call, const char *name); /* as if it had never been set */

/* workbench.c */
/* "name=value" items into the call; unknown names are E505. */
qn_status call_apply(qn_call *call, const qn_settings *settings, qn_error *error);

/* inputs.c */
const ast *bench_of(const ast_file *file, const char *kernel); /* the first bench that names it, or NULL */
const ast *clause_of(const ast *item, const char *word);       /* or NULL */
/* Inputs as qn_call_generate makes them; `whole`: integers without an input clause are of the whole range of their type,
 * the extremes often, wherever integers_may_be_any. */
qn_status call_generate(qn_call *call, uint64_t seed, bool whole, qn_error *error);
/* integer_use.c: do the integers of this array reach no index, bound or condition? */
bool integers_may_be_any(const tile_kernel *k, int array);
/* Fills one array; a view with any strides. generator: the expression of the input clause, or NULL for the default. */
qn_status input_fill(const ast_file *file, const ast *generator, const bindings *known, int units, const char *name,
                     uint64_t seed, const array_view *view, qn_error *error);
/* Everything that has a value in a bound call: constants, types, extents, scalars. */
void call_known(const qn_call *call, arena *memory, bindings *known);

/* check_assume.c: moves sizes (bindings of integers; those that are movable) so that the `assume`s of the item hold, as far
 * as they speak of sizes and of constants with defaults. */
void assume_fit(const ast_file *file, const ast *item, bindings *sizes, const bool *movable, int units, arena *memory);

#endif
