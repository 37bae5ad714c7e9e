/*
 * Schedules: what was chosen for one phase of a kernel on one machine, before anything is written.
 *
 * A decision is a choice that could be otherwise with the same results; each is a field here. schedule_phase looks at the
 * tile IR and either fills a schedule or says why the phase has none (it is then chained, chained.h, or spread over threads, spread.h). loops/
 * builds exactly one program from a schedule, emit/ prints that program. The launch's shape comes from here, too.
 * There is one recipe, `fed`: a loop over k whose operands one warp fetches by bulk copies into rings of shared memory,
 * while groups of four warps multiply from there; what follows per element is done on the sums in registers. An operand
 * whose places are digits (windows, strides, padding: param_digits) is gathered instead: all warps of that role read it
 * element by element, compute what stands between the array and the product, and put that into the ring. One that is
 * computed from a slice of an array is taken: the same, 16 bytes at a time.
 * Memory: everything is in the arena that schedule_phase was given. docs/schedule.md explains the text form.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SCHEDULE_SCHEDULE_H
#define QUERN_SCHEDULE_SCHEDULE_H

#include "ir/interp.h"

enum {
    SCHED_MOST_LOOPS = 6,  /* around the product, all over k */
    SCHED_MOST_WALKS = 2,  /* products of other operands that go on with the same sums */
    SCHED_MOST_STORES = 4, /* of the epilogue */
    SCHED_MOST_OPERANDS = 8,
    SCHED_MOST_PRODUCTS = 12, /* of one step of k, all added up */
    SCHED_MOST_LOADS = 2,     /* of whole tiles, of the epilogue */
    SCHED_MOST_MAPS = SCHED_MOST_OPERANDS + SCHED_MOST_STORES + SCHED_MOST_LOADS,
    SCHED_MAP_RANK = 5,    /* axes of an array that a bulk copy can walk */
    SCHED_LINE_BYTES = 128 /* of a room: what the copy engine swizzles and a matrix instruction takes along k */
};

/* What the recipes ask about a machine. */
typedef struct sched_machine {
    int arch, units;
    int64_t shared_bytes; /* of a block */
    bool checked;         /* every access is tested */
} sched_machine;

/* The recipe's numbers: with kernel and machine enough to make the schedule again. */
typedef struct sched_choice {
    int tile[3]; /* rows, columns, elements of k that are multiplied at once */
    int stages;  /* steps of k that are there or on their way */
    int groups;  /* of four warps, each with its rows of the tile */
    bool turns;  /* ... or each with a tile of its own: one multiplies while the other stores */
    int order;   /* programs of axis 0 in runs of so many, each run over all of axis 1 */
    int blocks;  /* of a unit at once */
} sched_choice;

typedef struct sched_role {
    const char *name;
    int first_warp, warps;
    int registers;   /* 0: as many as the launch gives */
    bool one_thread; /* the others of its warps do nothing */
} sched_role;

/* Shared memory in lines of 128 bytes, swizzled. A ring has several stages. */
typedef struct sched_room {
    const char *name;
    int lines, stages;
    int64_t stage_bytes, offset;
} sched_room;

/* An array with digits as the copy engine walks it by itself: channels along memory, then axes of places, each of which a window's
 * element (a digit of k) moves along, then images. A copy is a column of places that goes on over lines and images, 128 bytes of
 * channels of each; which element of the window it is of is an offset. Axis 0 is the innermost. */
enum { SCHED_MOST_PLACES = 3 };
typedef struct sched_window_axis {
    int64_t extent, stride; /* of the array along it; elements from one to the next */
    int64_t count;          /* of places */
    int step;               /* from place to place */
    int64_t first;          /* where the first element of the first window lies */
    int digit, taps, apart; /* the digit of k, how many elements a window has, and how far apart (negative: backwards);
                               digit -1: one */
} sched_window_axis;
typedef struct sched_windows {
    int axis_count, k_axis, tile_axis;
    sched_window_axis axes[SCHED_MOST_PLACES];
    int64_t image_stride;
    int64_t channels; /* of a place, by the last digit of k */
    int group_axis;   /* the array's axis that shifts the channels; -1: none */
    int64_t group_stride;
    int64_t origin; /* from the array's address to its element 0, in elements */
    int64_t depth;  /* elements of k */
} sched_windows;

/* Where the first element that any window needs lies, and how far the last place's first is from the array's last element. */
static inline int64_t sched_window_lower(const sched_window_axis *a)
{
    return a->first + (a->apart < 0 ? (int64_t)(a->taps - 1) * a->apart : 0);
}
static inline int64_t sched_window_upper(const sched_window_axis *a)
{
    return sched_window_lower(a) + (a->count - 1) * a->step + 1 - a->extent;
}

/* A part of an array that the copy engine moves at once. */
typedef struct sched_map {
    int array;
    dtype elem;
    int rank, box[SCHED_MAP_RANK]; /* by axis of the array, outermost first */
    bool rounds;                   /* f32 is rounded to tf32 on its way */
    const sched_windows *windows;  /* not NULL: so many places (box[0]) of so many channels (box[1]) */
} sched_map;

typedef struct sched_operand {
    const tile_op *load;
    value source;             /* what goes into the ring; of a gathered operand perhaps computed from what was loaded */
    bool gathered, taken;     /* by warps, not by bulk copies */
    int walk;                 /* whose it is; that of a later walk has the ring of its side in the first */
    int side;                 /* 0: left, of rows; 1: right, of columns */
    bool along_k;             /* its elements lie side by side along k; else along the rows or columns of the tile */
    bool rounds;              /* tf32 */
    int k_axis, tile_axis;    /* of the array */
    int map, boxes, box_size; /* copies of a step, and how many rows or columns one brings */
    const sched_windows *windows; /* ... where the copy engine gathers it */
    sched_room ring;
} sched_operand;

/* The load that is gathered: a warp takes a line of the ring at a time, each lane the two elements beside each other that
 * are its 4 bytes of the line. So a lane stays at places of one axis (fixed), and the warp walks along the other.
 * Rounded to tf32 an element has 4 bytes, and lines are of k however it lies: where neighbours are rows or columns, a lane
 * stays at one of those and puts four k of it side by side. */
typedef struct sched_gather {
    const tile_op *load; /* NULL: nothing is gathered */
    int side;
    bool rounds;  /* f32 to tf32: the elements of two steps are on their way */
    bool along_k; /* elements are neighbours along k: a lane stays at k of a step and walks along rows or columns */
    int k_axis, tile_axis; /* of the array */
    int warp_lines;        /* of a warp, in each box */
    int boxes;             /* of the ring, rounds: of 32 rows or columns; along k 1 */
    int rows; /* lines of half a step of a warp, which are asked for together; by_chunk, rounds: of all its lines */
    bool by_chunk; /* along k, 16 bytes at once, of every fourth line, by copies in the background unless it rounds */
    int lag;       /* ... steps on their way before the first of them is waited for */
    bool *needed;  /* by value of the loop: what the operands are computed from */
} sched_gather;

/* The slice that an operand of a side is computed from. A thread of the fill role takes 16 bytes of some lines of the ring,
 * and has those of the next step on their way while it puts those of this one into the ring. */
typedef struct sched_take {
    const tile_op *load; /* NULL: nothing of this side is taken */
    const tile_op *factor; /* rounds: a number of each line that elements are multiplied with first; or NULL */
    bool rounds; /* f32 to tf32, in lines of k: where elements lie along the tile a thread turns 4 x 4 of them */
    bool along_k;
    int k_axis, tile_axis; /* of the array */
    int vectors;           /* of 16 bytes, of a thread and a step */
    bool whole;            /* all of them aligned, and inside or outside of the array */
    bool *needed;          /* by value of the loop: what the operands are computed from */
} sched_take;

typedef struct sched_product {
    const tile_op *dot;
    int left, right; /* operands */
} sched_product;

/* A way along k: loops, and the products of each step of the last of them. */
typedef struct sched_walk {
    const tile_op *loops[SCHED_MOST_LOOPS]; /* outermost first; the products are in the last */
    int loop_count;
    int first_product, product_count;
    bool ends_with_k; /* the last loop ends where the operands do: what is fetched beyond is zero */
    int step;         /* of the last loop as it was written */
} sched_walk;

typedef struct sched_store {
    const tile_op *op;
    int map;             /* -1: element by element */
    int64_t offset;      /* of its buffers within a warp's part of the room */
    int64_t box_bytes;   /* 16 lines */
    int boxes, box_size; /* of a chunk of 64 columns */
    bool by_row;         /* through the room, too, and from there a row at a time by ordinary stores */
} sched_store;

/* A tile as large as the sums that the epilogue reads: a warp asks for its part of it before the products. */
typedef struct sched_load {
    const tile_op *op;
    int map;
    int64_t offset; /* of its chunks within a warp's part of the room */
} sched_load;

/* How a value of the epilogue lies along the sums: which of its axes are rows and columns; -1: none. */
typedef struct sched_place {
    signed char row, column;
} sched_place;

typedef struct schedule {
    const tile_kernel *kernel;
    int phase;
    sched_choice choice;
    sched_walk walks[SCHED_MOST_WALKS]; /* one after the other */
    int walk_count;
    sched_product products[SCHED_MOST_PRODUCTS]; /* in order */
    int product_count;
    /* The matrix units cut off what does not fit into a sum, ordinary addition rounds. Apart: the products of a step are
     * summed up by themselves, and that sum is then added to the tile's. */
    bool apart;
    value sums;         /* of the last walk's outermost loop: the finished tile */
    const char *matrix; /* the instruction's operands: bf16, f16, tf32, s8 */
    bool turns;         /* ... may lie along the tile, too */
    sched_role fill, multiply;
    sched_operand operands[SCHED_MOST_OPERANDS];
    int operand_count;
    sched_gather gather;
    sched_take takes[2]; /* by side */
    sched_store stores[SCHED_MOST_STORES];
    int store_count;
    sched_load loads[SCHED_MOST_LOADS];
    int load_count;
    sched_room in;   /* all chunks of a warp's loads: stage_bytes; stages: warps */
    sched_room out;  /* a warp's part of it: stage_bytes; stages: warps */
    int out_buffers; /* of each store, taken in turns */
    sched_map maps[SCHED_MOST_MAPS];
    int map_count;
    sched_place *places; /* by value; of what the stores need */
    bool *needed;        /* by value: some store needs it */
    bool *near;          /* by value: all that comes of it is rounded to bf16, so a few more bits than that will do */
    bool rolled;         /* what follows is too long to stand once for each part of the sums: they come to the first's place in turn */
    int ahead_registers; /* for what the epilogue loads before the products: the same for every row, or every column */
    int64_t phases_offset, shared_bytes; /* phases: full and empty of each stage, then one a warp for what it loads */
    int threads;
} schedule;

/* Do warps put an operand into its ring, or all of those that fill something? */
static inline bool sched_by_warps(const sched_operand *o)
{
    return o->gathered || o->taken;
}
/* ... by copies in the background, which are waited for steps later? */
static inline bool sched_copies_ahead(const schedule *s)
{
    return s->gather.by_chunk && !s->gather.rounds;
}
static inline bool sched_takes(const schedule *s)
{
    return s->takes[0].load || s->takes[1].load;
}
static inline bool sched_warps_fill(const schedule *s)
{
    return s->gather.load || sched_takes(s);
}

/* The load that a value is but for conversions, which leave zero what it is; NULL: it is another one. */
static inline const tile_op *sched_converted_load(const tile_kernel *k, value v)
{
    const tile_op *op = tile_def(k, v);
    while (op && (op->code == OP_CONVERT || op->code == OP_TF32)) op = tile_def(k, op->operands[0]);
    return op && op->code == OP_LOAD ? op : NULL;
}

/* NULL: the phase has no recipe; *why then says what stands against it, or is NULL where there is no product at all. */
const schedule *schedule_phase(const tile_kernel *k, int phase, const sched_machine *machine, arena *memory,
                               const char **why);
void schedule_print(const schedule *s, text *out);
/* Phase and choice of the first line of a launch as schedule_print writes it; false: it is another line. */
bool schedule_read_choice(const char *line, int *phase, sched_choice *out);

#endif
