/*
 * The reference interpreter's interface: arrays in, findings out. See interp.c for the meaning of every op.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_INTERP_H
#define QUERN_IR_INTERP_H

#include "ir/view.h"

/* Where a position on an axis of an array with digits lies, before its origin; adds what it is to the guards. */
int64_t digits_place(const param_digits *d, int axis, int64_t at, int64_t *guards);

/* R701 .. R709, E507 (assert). One entry per kind and source line; `times` counts the rest. */
typedef struct finding {
    int code;                     /* 701 ..., 507 */
    int line, column, other_line; /* other_line: the second line of a race, the birth of a NaN; 0 if none */
    int64_t programs[2][3];       /* of the first occurrence; second: the other program of a race */
    int64_t times;
    char message[400]; /* whole sentence with element, index, extent; no file and line */
} finding;

typedef struct findings {
    finding *items; /* heap */
    int count, capacity;
} findings;
void findings_free(findings *f);
/* "file:line:column: R701: message (program 3, 0; 17 times)", then the source line, caret and advice. */
void findings_print(const findings *f, const tile_kernel *k, text *out);

/* A value of the interpreter, as the debugger and print see it. */
typedef struct interp_tile {
    tile_type type; /* all dims constant here */
    int64_t count;
    number *elements; /* floats in f, others in i */
    uint8_t *valid;   /* NULL: all are valid */
} interp_tile;

typedef struct interp interp;

/* Called before each op of a body; return false to stop the launch. See run/workbench/debug.c. */
typedef bool interp_hook(void *context, interp *state, const tile_op *op, const int64_t program[3]);
/* Called for each line that `print` writes; NULL: nowhere. */
typedef void interp_print(void *context, const char *line);

typedef struct interp_options {
    bool exact;          /* keep double precision: no rounding to the element type between ops (still at a store) */
    bool check;          /* all findings; off: only what would be unsafe or an assert */
    bool any_value;      /* NaN, infinities and divisions by 0 are no findings: what arithmetic on tensors may give */
    uint64_t order_seed; /* 0: programs in order; else a random order from this seed */
    int64_t step_limit;  /* ops a program may run; 0: 1e9 */
    const int64_t *only_programs; /* linear ids to run, or NULL for all */
    int64_t only_count;
    int units;
    interp_hook *hook;
    void *hook_context;
    interp_print *print;
    void *print_context;
} interp_options;

/* What the head region decides. */
typedef struct launch_plan {
    int room;              /* parameters that there is place for */
    int64_t *scalars_bits; /* every parameter that is a scalar or an extent, by parameter number: i, or the bits of the
                              double f */
    int64_t (*extents)[MAX_RANK]; /* of every array parameter */
    int64_t programs[MAX_PHASES][3];
} launch_plan;
/* An empty plan for a kernel of so many parameters; its arrays live in the arena. */
launch_plan launch_plan_new(arena *memory, int param_count);

/* given[p]: whether scalar p was given, numbers[p] its value; arrays[p].data may be NULL (outputs, scratch, inputs to
 * be made): the extents are then computed (rank and elem must be set); an empty array that was given has an address.
 * Fails with E501, E502, E503, E505 texts. */
qn_status interp_head(const tile_kernel *k, const bool *given, const number *numbers, const array_view *arrays,
                      int units, launch_plan *plan, qn_error *error);

/* Runs all phases. arrays[p] must be complete for every array parameter; scratch too (the caller allocates). Out
 * arrays with an initial value are filled here. Findings are appended. QN_FAILED: an assert or the step limit. */
qn_status interp_run(const tile_kernel *k, const array_view *arrays, const launch_plan *plan,
                     const interp_options *options, findings *found, qn_error *error);

/* For the hook: the current value of v in the running program, or false if it has none yet. Borrowed until the next op.
 */
bool interp_value(const interp *state, value v, interp_tile *out);

/* For the hook: when v was set, in ticks from the start of the launch, or 0 if it has no value in this program. */
int64_t interp_set_time(const interp *state, value v);
int interp_phase(const interp *state);

/* For the hook: what the load, store or atomic that is about to run will touch. False: it is another op, or touches
 * nothing. low and high: the indices per axis of the array; untouched: elements masked off or outside. */
typedef struct interp_touch {
    int64_t low[MAX_RANK], high[MAX_RANK], touched, untouched;
} interp_touch;
bool interp_touches(const interp *state, const tile_op *op, interp_touch *out);

/* For the hook: does the element of an array (a parameter) have a value: was it written, or has it one from the start?
 */
bool interp_written(const interp *state, int array, const int64_t *index);

/* A tile as words, shortened: [1 2 3 ... 9]; an element that is not shown is a middle dot. shown may be NULL. */
void interp_show_tile(const interp_tile *t, const uint8_t *shown, text *out);

/* random.c: Philox4x32-10; counter words (offset low, offset high, i low, i high). */
void philox_words(uint64_t seed, uint64_t offset, uint64_t i, uint32_t out[4]);

#endif
