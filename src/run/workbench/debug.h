/*
 * What the two files of the debugger share: debug.c (the session and its commands) and debug_show.c (words).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_WORKBENCH_DEBUG_H
#define QUERN_RUN_WORKBENCH_DEBUG_H

#include "run/run.h"

#define MAX_BREAKS 64
#define MAX_WATCHES 16

typedef enum debug_mode { MODE_STEP_LINE, MODE_STEP_OP, MODE_CONTINUE } debug_mode;

typedef struct debug_break {
    int number; /* as shown; from 1 */
    int line;   /* 0: at a program */
    int64_t program[3];
    int axes; /* how many program numbers were given */
} debug_break;

typedef struct debug_watch {
    char name[64];
    text last; /* the value when it was last shown */
} debug_watch;

/* The place of an op in the order of the text: an op that does not come after the last one begins a loop's next turn.
 */
typedef struct debug_place {
    const tile_op *op;
    int order;
} debug_place;

typedef struct debugger {
    qn_call *call;
    const tile_kernel *kernel;
    qn_read_line *read_line;
    qn_write *write;
    void *user;

    debug_mode mode;
    bool memory, quit;
    debug_break breaks[MAX_BREAKS];
    int break_count, break_last;
    debug_watch watches[MAX_WATCHES];
    int watch_count;
    char repeat[16]; /* what an empty line does again */

    /* Where it stands. */
    const interp *state;
    const tile_op *op, *previous;
    int64_t program[3];
    int phase, line;     /* line: the last source line that an op had; 0 at the start of a program */
    bool fresh;          /* the program has not reached its first line */
    debug_place *places; /* sorted by op */
    int place_count, place_capacity;
    int order;     /* of the last op that has a line */
    int list_from; /* where `list` goes on; 0: around the line */
} debugger;

void say(const debugger *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
void show_place(debugger *d);                            /* program, file and line, the source line */
void show_op(const debugger *d);                         /* the op that runs next, as IR */
void show_results(const debugger *d, const tile_op *op); /* what an op gave */
void show_list(debugger *d, int line);
void show_where(const debugger *d);
void show_info(const debugger *d);
void show_memory(const debugger *d, const tile_op *op); /* what a load or store is about to touch */
/* A variable, a scalar parameter, an array or a part of one: "v", "eps", "x", "x[3]". False: no such name (said so). */
bool show_value(const debugger *d, const char *words);
bool value_words(const debugger *d, const char *name, text *out); /* a variable's value as words; false: it has none */
void program_words(const debugger *d, const int64_t program[3], text *out);

#endif
