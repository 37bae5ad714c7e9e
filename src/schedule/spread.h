/*
 * Spreads: how the positions of a pass lie over the threads of a team of a GPU, and where kept tiles live.
 *
 * A pass has loop axes. Some of them are its *rows* (the axes that a fold keeps); the others, flattened in order, are
 * its *inner* index, the last of them the vector axis. Rows go over parts of the team, the inner index
 * over the `inner_threads` of a part, `vector` neighbouring elements each, `repeats` times:
 *     inner = (repeat * inner_threads + thread of the part) * vector + element
 * A row that may begin between two vectors is *shifted*: its positions begin at the vector in memory that has its first
 * element, the first and the last vector have elements that are not the row's.
 * The result of a fold over the inner axes is a slice: one value a row, the same in all threads of the part.
 * All passes of one phase with the same loops and rows have one layout, so that a kept tile that is only touched at its
 * own place can stay in registers. Anything else goes through shared memory, or scratch in global memory.
 *
 * spread_survey.c sees passes, accesses and touches of kept tiles, then spread_decide chooses, then the text is written.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SCHEDULE_SPREAD_H
#define QUERN_SCHEDULE_SPREAD_H

#include "schedule/schedule.h"
#include "schedule/survey.h"

typedef enum team_kind { TEAM_LANES, TEAM_BLOCK, TEAM_CLUSTER, TEAM_GRID } team_kind;

enum { MOST_THREADS = 1024, MOST_CLUSTER = 8, ROW_REGISTERS = 32, SHARED_FOR_FOLDS = 6144, SHARED_FOR_SCANS = 16384 };

typedef struct team {
    team_kind kind;
    int threads; /* of a team, when constant; 0: from row_param when launched */
    int block;   /* LANES: threads of a block; others: the most that a block has (launch bounds) */
    /* Run-time sizes: a thread takes `share` elements of a row whose length is parameter row_param. */
    int row_param; /* -1: none */
    int share;
    int over;           /* positions before a row that begins between two vectors: they count as its own */
    int64_t bound;      /* the longest row that this text serves */
    int cluster;        /* CLUSTER: so many blocks; 0: as many as the row needs when launched */
    bool one_team;      /* GRID: all blocks on one program; else as many blocks as hold a row */
    const char *reason; /* for show --stage layout */
} team;

typedef struct pass_layout { /* of all passes with these loops and rows */
    int loop_count;
    int64_t loops[MAX_RANK];
    unsigned row_axes; /* bit k: loop axis k is a row */
    bool row_fast;     /* neighbouring threads take neighbouring rows: a fold of columns, or rows across memory */
    /* what the survey saw */
    int want_vector;                  /* the widest access that is aligned, in elements; 1: none */
    int wide, narrow;                 /* accesses of elements that are aligned for vectors, and others */
    int want_window, windows;         /* of loads that windows take by vectors: the widest, how many */
    int narrow_stores, spread_stores; /* of single elements; those of them that threads can exchange */
    int want_shift;                   /* ... of those that may begin anywhere, side by side; 1: none */
    int first_group;                  /* that has it */
    int along_rows, along_inner;      /* accesses whose neighbours in memory are neighbouring rows, or of one row */
    int of_rows;                      /* accesses of arrays that differ from row to row and along it */
    const tile_op *lead;              /* the access of that group whose vectors are aligned by a shift; NULL: none */
    bool nested, even;                /* that group is inside a loop or a branch; has rows that are aligned */
    int number;
    int digits; /* positions are taken apart: vectors of at most so many elements are not; 0: they are not */
    struct pass_layout *leader; /* of the layouts that share a loop over rows; itself, or another */
    int weight;                 /* of its sinks */
    /* what was decided */
    int vector;
    bool turned;       /* row_fast was decided here */
    bool shifted;      /* positions begin before the row, at a whole vector of `lead` */
    bool spreads;      /* threads exchange single elements before they are stored */
    bool shift_put;    /* while emitting: `shift` is declared */
    int inner_threads; /* constant; 0: all threads of the team */
    int repeats;       /* constant; 0: a loop with a run-time end */
} pass_layout;

typedef enum home_kind { HOME_SHARED, HOME_REGISTERS, HOME_SCRATCH } home_kind;

typedef struct kept { /* by buffer number */
    home_kind kind;
    /* what the survey saw */
    bool touched, elsewhere; /* elsewhere: not at its own place in one layout, or by dot, scan, print ... */
    bool across;             /* read or written along another axis than its last: rows are padded */
    bool plain;              /* something needs it row-major without gaps */
    bool pinned;             /* it has to be in shared memory */
    bool many_groups;        /* touched by more than one group */
    int ahead; /* a load whose address follows from the count of the loop around it: elements side by side; 0: no */
    const pass_layout *layout; /* of the touches at the own place */
    int group;
    int loaded_in;   /* the pass that loads it before its other work; 0: none */
    const char *why; /* of `elsewhere` */
    /* what was decided */
    int64_t bytes;    /* constant size; 0: from extents */
    int64_t offset;   /* in shared memory, when everything before it is constant */
    int pad;          /* elements added to each row */
    int in_registers; /* REGISTERS: so many repeats; the rest in slots of shared memory, each thread its own */
    int slots_before; /* bytes of a thread's slots before this tile's; all slots follow the constant part */
    bool comes_ahead; /* all of it in slots, twice: the next trip's comes while this one's is used */
} kept;

typedef struct online { /* top = max(from), sum = sum(exponent), exponent = exp(from - top): cuda/online.c */
    value top, sum, exponent, from;
    int64_t length;  /* of the row, like tile_type.dims */
    bool takes_home; /* exponent goes where `from` was */
    bool was_kept;   /* exponent, before that was decided */
} online;

typedef struct block_plan { /* of a block of the phase, and what is folded with one exchange in it */
    const tile_block *block;
    plan plan;
    online *online;
    int online_count;
} block_plan;

/* How a phase is spread over the threads of a GPU: first what survey_spread saw of it, then what spread_decide chose. */
typedef struct spread {
    sched_machine machine;
    const struct spread *before; /* of the phase whose last block goes on with this one; NULL: a launch of its own */
    /* what was seen */
    block_plan **plans;
    int plan_count, plan_capacity;
    pass_layout **layouts; /* and what was decided of them */
    int layout_count, layout_capacity;
    kept *kept; /* by buffer number */
    int kept_count;
    int group;             /* number of the group that is looked at */
    struct {               /* by pass_number: 4-byte registers of one position that loads before the others take */
        int early, direct; /* direct: into the registers of a kept tile */
        int places;        /* loads of elements, each with an address of its own */
    } * loads;
    bool needs_broadcast;            /* a scalar atomic whose result is used, a print: thread 0 speaks for all */
    bool has_dot, has_scan, gathers; /* gathers: a product with operands that are gathered */
    int product_room;                /* the buffer that all products share; 0: none */
    bool *stays;                     /* by value: sums of products that stay in registers over a loop */
    bool any_fold, has_position;     /* has_position: argmax, argmin */
    bool stores_rows;                /* some pass writes elements of its rows */
    const tile_op *loop;             /* whose body is being looked at; NULL: none, or a branch of it */
    int nesting;                     /* loops and branches around what is being looked at or printed */
    online *online;                  /* of the block that is being looked at or printed */
    int online_count;
    int weight;    /* of the heaviest sink */
    bool no_wide;  /* teams beyond a warp were tried, and need barriers */
    bool no_large; /* likewise clusters and grids */
    /* what was chosen */
    team team;
    int live_registers;   /* of kept tiles, at most at once */
    int least_blocks;     /* blocks of a multiprocessor that the registers are cut for */
    bool has_many_places; /* ... and no more: addresses of its loads alone take most of them */
    int64_t shared_bytes; /* of a team, constant part */
    int slot_bytes;       /* of a thread, in shared memory */
} spread;

/* spread_survey.c: all that is seen of a phase. before: of the phase whose last block goes on with it, or NULL. */
spread *survey_spread(survey *e, int phase, const sched_machine *machine, const spread *before);
const block_plan *spread_plan(const spread *c, const tile_block *b); /* as it was planned */

/* teams.c */
pass_layout *layout_note(survey *e, const int64_t *loops, int count, unsigned row_axes, bool row_fast);
pass_layout *layout_find(const spread *c, const int64_t *loops, int count, unsigned row_axes, bool row_fast);
void layout_touch(survey *e, int buffer, const pass_layout *own); /* own: at its own place in it; NULL: otherwise */
void layout_touch_elsewhere(survey *e, int buffer, const char *why);
void layout_know_buffers(survey *e);
qn_status spread_decide(survey *e, qn_error *error); /* the team, layouts, homes */
int layout_unroll(const survey *e, const pass_layout *l);
void layout_same_rows(pass_layout *a, pass_layout *b);
int64_t layout_positions(const survey *e, const pass_layout *l, bool rows); /* the most; INT64_MAX: unbounded */
int64_t dimension_bound(const survey *e, int64_t dim);
bool row_parameter(const survey *e, int64_t dim, int *param); /* a run-time extent that is an argument */
int64_t layout_count_of(const pass_layout *l, unsigned axes); /* positions of these axes; -1: known at launch */
/* Which positions are tested: chunks that may be beyond the pass, elements of a vector. rows: a thread may have no row. */
void layout_tests(const survey *e, const pass_layout *l, bool rows, bool *chunks, bool *elements);
/* homes.c */
bool spread_loops_over_programs(const spread *c); /* fewer teams than programs, perhaps */
bool home_is_opened(const survey *e, int number); /* a chunk of it is taken out before its elements are used */
bool home_comes_ahead(const survey *e, value v);  /* it is loaded a trip of the loop before */
bool home_has_slots(const spread *c, int number);
bool home_is_packed(const survey *e, int number); /* two elements of a 16-bit float in each register */
/* online.c: before a block is planned, and after (false: plan it again) */
void online_mark(survey *e, const tile_block *b);
bool online_check(survey *e, const plan *p);
const online *online_find(const spread *c, value v);

/* spread_print.c: what was chosen, in words. */
void spread_print(const survey *e, text *out);

#endif
