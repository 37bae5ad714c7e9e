/*
 * Loop programs: what runs, built from a schedule and the tile IR without another decision. Printers read them.
 *
 * A program is a tree of nodes in order of execution. Values are the tile IR's: a register has the number of the value it
 * holds, in the epilogue the element at the thread's place. What all nodes share (rooms, roles, boxes, places) is in the
 * schedule, which a printer may read but not judge.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LOOPS_LOOPS_H
#define QUERN_LOOPS_LOOPS_H

#include "ir/interp.h"
#include "schedule/chained.h"
#include "schedule/schedule.h"

typedef enum loop_code {
#define LOOP(name, text) LOOP_##name,
#include "loops/loop_ops.def"
#undef LOOP
    LOOP_COUNT
} loop_code;
extern const char *const loop_names[LOOP_COUNT];

enum { LOOPS_FROM_ZERO, LOOPS_ADD, LOOPS_ADD_LATER }; /* MATRIX: what the first product of a step, of a tile, does */
enum { LOOPS_THIS, LOOPS_BEFORE, LOOPS_LAST };        /* RELEASE */

/* LOAD: one element; of a pair, or what both of it have: each by itself, both at once, both or none. */
/* ROOM: a pair of load number[1] from the room. AHEAD: all that a thread needs of a tile before its products, ASKED: of that, in the epilogue. */
typedef enum loop_load {
    LOOPS_ONE,
    LOOPS_EACH,
    LOOPS_PAIR,
    LOOPS_WHOLE,
    LOOPS_ROOM,
    LOOPS_AHEAD,
    LOOPS_ASKED
} loop_load;

/* ---- of chained products ---- */

enum {
    LOOPS_THREAD,
    LOOPS_WARP,
    LOOPS_LANE,
    LOOPS_GROUP
};                               /* ONE: one of the role, a warp, one of that; BARRIER: a warp, a group */
enum { LOOPS_SCORE, LOOPS_SUM }; /* MATRIX: number[1] of the products of scores, of the sums */
/* Registers. MATRIX_WAIT: what is read behind it; KEEP: what is written, or the weights of the sum of that number. */
enum { LOOPS_SUMS, LOOPS_SCORES = -1, LOOPS_MORE = -2, LOOPS_NOTHING = -3 };
enum { LOOPS_FIXED = -1 }; /* instead of a moving operand: the fixed ones; RELEASE, RING_NEXT: all rings */
/* STEPS: all; the first; before masks' lower edge; that no mask touches; the rest; that only other groups take. */
enum { LOOPS_ALL_STEPS, LOOPS_FIRST_STEP, LOOPS_LOWER_STEPS, LOOPS_WHOLE_STEPS, LOOPS_LAST_STEPS, LOOPS_OTHERS_STEPS };

/* LET, LOAD: a scalar; one number a fixed row; an element of the pass at hand: as the op says; 2^(x * factor - below * log2 e);
 * x where the conditions hold, else below; a quotient by one number a row; the operand, which is rounded when it is
 * packed; the carried operand unless the other exceeds it by CHAINED_SLACK; from an array, alone or with its neighbour. */
typedef enum loop_form {
    LOOPS_SCALAR,
    LOOPS_ROW,
    LOOPS_ELEMENT,
    LOOPS_POWER,
    LOOPS_MASKED,
    LOOPS_QUOTIENT,
    LOOPS_SAME,
    LOOPS_LAGGING,
    LOOPS_TABLE,
    LOOPS_TABLE_PAIR,
    /* of spreads, in number[1]: 1 + tanh(x) as a sigmoid; x with its running scale; a position beside a scalar; (x + below) / factor
     * or its remainder, x a scalar; the select of a window that has the other value outside already */
    LOOPS_ONE_PLUS_TANH,
    LOOPS_SCALED,
    LOOPS_PLACE_TEST,
    LOOPS_SPLIT_QUOTIENT,
    LOOPS_PADDED
} loop_form;

typedef struct
    loop_element { /* LET: above. FOLD: x where the conditions hold, else nothing; FOLD_END: times the factor */
    value x, below;
    const struct place *at; /* of below, in a spread */
    double factor;
    value scalar; /* another factor; 0: none. FOLD, FOLD_END of a maximum: only where it is positive and finite */
    unsigned conditions; /* bits of chained.conditions */
} loop_element;

struct loop_group;
struct loop_pass;
struct loop_product;

typedef struct loop_node {
    loop_code code;
    const tile_op *op; /* FOR, STEPS, LET, LOAD, STORE */
    value operand;     /* KEEP, STORE; of spreads: the value that it is */
    int number[2];
    struct loop_node *body, *next;
    /* of spreads (loops/spread.h) */
    const struct place *at;  /* LET, LOAD, READ, MAP, FETCH: where in the loops of its pass */
    const struct sink *sink; /* what a pass writes or folds */
    bool waits;              /* all threads of the team meet before it */
    union {
        const struct loop_group *group;     /* GROUP */
        const struct loop_pass *pass;       /* PASS */
        const value *ahead;                 /* FOR: number[0] loads of its body that come a trip ahead */
        const struct loop_product *product; /* DOT, PRODUCTS */
        const int *sinks;                   /* FOLD_JOIN: numbers of the pass's sinks */
        const struct item *items;           /* of a worker (loops/worker.h): what was planned */
        const loop_element *element;        /* LET; of chained products FOLD, FOLD_END; or NULL */
    };
    struct loop_node *other;          /* IF: the other arm; WHILE: its body, behind the test */
    struct loop_node *before, *after; /* FOR: sums of products to registers, and back */
} loop_node;

typedef struct loop_program {
    const schedule *schedule; /* of a product with roles, or NULL */
    const chained *chained;   /* of chained products, or NULL; neither: of a spread */
    struct spread *spread;
    struct survey *survey;
    int phase;
    int barriers;     /* of a spread: how often its team meets, loops aside */
    bool broadcasts;  /* ... one thread speaks for all */
    bool meets_again; /* ... before its next program, whose tiles lie in the same place */
    loop_node *first;
} loop_program;

loop_program loops_build(const schedule *s, arena *memory);
loop_program loops_chained(const chained *c, arena *memory);
/* The program of a phase whose warps have roles: a product that is fed, or chained ones. False: it is spread over threads;
 * why[0] says what stands against feeding its product, why[1] against chaining them, each NULL where there are none. */
bool loops_roles(const tile_kernel *k, int phase, const sched_machine *machine, arena *memory, loop_program *out,
                 const char *why[2]);
/* run_control.c: a phase that is spread, run on numbers by teams of threads, and what is written compared with nothing: that
 * is the caller's. without: the barrier that is left out, in order; -1: none. Gives how many it has; *why, empty before,
 * says what is wrong with it. */
int loops_sim(const tile_kernel *k, int phase, const sched_machine *machine, const array_view *arrays,
              const launch_plan *plan, int without, arena *memory, text *why);
void loops_print(const loop_program *p, text *out); /* `show --stage loops` */

/* check.c: are its waits and releases enough, whoever runs first? False: *why, empty before, says what goes wrong. */
bool loops_check(const loop_program *p, arena *memory, text *why);

/* The same with numbers: the roles' loops as they count, who is `preferred` first, and what each node does once its order is
 * right. All of it for loops/run_roles.c. */
typedef struct loop_numbers {
    void *context;
    int preferred;
    void (*role)(void *context, bool fills, int group); /* whose loops are now unrolled; or NULL */
    int (*tiles)(void *context);
    void (*begin)(void *context, int tile);
    int (*round)(void *context, const loop_node *n, int round);   /* of a loop: -1: how many it has; else one begins */
    void (*scalar)(void *context, const loop_node *n);            /* a node is met */
    bool (*happens)(void *context, const loop_node *n, int step); /* or NULL: each does */
    void *(*note)(void *context, const loop_node *n, bool first); /* what a node takes along; first: of its tile */
    void (*run)(void *context, const loop_node *n, int group, int stage, void *noted);
} loop_numbers;
bool loops_check_on(const loop_program *p, const loop_numbers *numbers, arena *memory, text *why);
/* run_roles.c, run_chained.c: a program with roles on numbers. False: one of those that are not run (gathered, taken). */
bool loops_sim_roles(const loop_program *p, const array_view *arrays, const launch_plan *plan, int preferred,
                     arena *memory, text *why);
bool loops_sim_chained(const loop_program *p, const array_view *arrays, const launch_plan *plan, int preferred,
                       arena *memory, text *why);

/* epilogue.c: chunks of the finished sums, appended after *tail. */
loop_node **loops_epilogue(const schedule *s, arena *memory, loop_node **tail);
loop_node **loops_ahead(const schedule *s, arena *memory, loop_node **tail); /* what it loads before the products */
/* A node at *tail; the place after it. */
loop_node **loops_add(arena *memory, loop_node **tail, loop_code code, const tile_op *op, int first, int second);
loop_node **loops_open(arena *memory, loop_node **tail, loop_code code, const tile_op *op, int first, int second,
                       loop_node ***after); /* the place inside it; *after: behind it */
/* `let` nodes for the scalars of a block that are needed, in order. */
loop_node **loops_scalars(const schedule *s, arena *memory, const tile_block *b, const bool *needed, loop_node **tail);

#endif
