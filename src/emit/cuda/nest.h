/*
 * A group of passes of a loop program while it becomes CUDA text: shared by cuda/nest.c (passes), cuda/positions.c and
 * cuda/chunks.c (loops), cuda/value.c (values), cuda/access.c (addresses), cuda/memory.c (loads and
 * stores) and cuda/fold.c.
 *
 * Statements are gathered by level. A value is computed at the level of the axes it depends on: once a group, once a
 * row, once a chunk of `vector` elements, once an element. Loads whose addresses need nothing but positions go before
 * all else (`early`), for `unroll` chunks at once, so that several are in flight; whole vectors are written `late`.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_NEST_H
#define QUERN_EMIT_CUDA_NEST_H

#include "emit/c/nest.h"
#include "emit/cuda/text.h"
#include "loops/spread.h"

enum { FULL_CHUNK = 8 };    /* loads of one chunk that are enough to wait for */
typedef struct cuda_state { /* of one phase, as it is printed */
    const cuda_target *target;
    spread *spread;        /* what was chosen for it */
    const char **resident; /* by value: the class of a product whose sums stay in registers over a loop; NULL: none */
    loop_program program;  /* what is printed */
    bool fold_room, column_room, broadcast_room, online_room; /* shared memory that the text uses */
    int spread_bytes;                                         /* ... of a thread, for stores that are exchanged */
} cuda_state;

typedef enum creg_form { REG_NAME, REG_ELEMENT, REG_WORDS } creg_form;
typedef struct creg {
    const char *words; /* a name (or a number), an element of an array, or an expression */
    int level;
    creg_form form;
} creg;

typedef struct text_span {
    size_t first, length;
} text_span;

typedef struct cnest {
    emitter *e;
    cuda_state *c;
    nest_view view;        /* the pass: its layout, its axes, what was met of it */
    const loop_pass *pass; /* NULL: an access outside of any */
    text level[LEVEL_COUNT];
    text early, late; /* of a chunk: loads before, whole vectors stored after its elements */
    text arrays;      /* registers of early loads: declared for `unroll` chunks */
    level_names names;
    const char *row_guard;   /* a row of this thread may be none; NULL: all are */
    const char *chunk_guard; /* likewise for chunks */
    const char *in; /* the chunk's guard by name, when it is a part of each condition; NULL: a branch around all */
    const struct cfold *folds; /* of the pass, by sink */
    bool all_there;            /* while a loop is put in which all chunks are the row's: without tests */
    bool asks_inside;          /* ... and some condition has it */
    bool loose; /* elements that are not the row's are computed too: `inside` is a part of each condition */
    bool loads; /* from global memory, in this pass: no branch may stand between two of them */
    const char *element_guard;    /* likewise for elements of a vector */
    const char *lead;             /* one thread of those that hold the same row; NULL: there is only one */
    const char *repeat;           /* index of a chunk's registers in homes; words_zero: there is one chunk */
    const char *slot;             /* ... and in `arrays` */
    bool early_used, copies;      /* copies: some early load goes to slots in the background */
    int opened[32], opened_count; /* kept tiles, packed or with slots, whose vector of this chunk is in registers */
    bool opened_late[32];
    bool slotted;    /* some have slots */
    bool forgets;    /* positions are taken from `here` and `apart`, which are not known to be the same in each pass */
    int split;       /* ... of which so many repeats are in registers */
    text_span *hits; /* where tests of elements stand that hold for one position of a row, the same for all of them */
    int hit_count, hit_capacity;
    const char *hit_rest; /* ... from the chunk's first element to it */
    int unroll;           /* chunks whose loads are in flight together */
    int line;             /* of the source, of what is being computed; 0: not known */
    level_names guards;   /* of windows: tests of chunks */
} cnest;

/* Where an access goes: base + the offsets of each level. */
typedef struct caddress {
    dtype elem;
    bool global;         /* an array; else a kept tile */
    bool read_only;      /* ... that this phase never writes */
    const char *pointer; /* named, of the levels up to the row */
    const char *chunk;   /* offset, or NULL */
    const char *element; /* offset that differs within a vector, or NULL; "v": side by side */
    const char *ok;      /* tests of levels up to the chunk, or NULL */
    const char *element_ok;
    const char *whole; /* all elements of the vector are inside; NULL: no test is needed */
    const char *even;  /* of a shifted row: this access is aligned as its lead is (words_one); NULL: it is not one */
    int level;         /* the deepest it depends on */
    int width;         /* elements side by side and aligned: what one instruction may move, at most a vector */
    bool early;        /* depends on positions, scalars and rows alone */
    bool spreads;      /* a store of single elements side by side, which threads exchange: store_spread */
    bool back;         /* neighbours lie before each other: a vector is turned round in registers */
} caddress;

void cput(cnest *n, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *cjoin(emitter *e, const char *a, const char *sign, const char *b); /* either may be NULL */
void add_lines(text *to, const char *lines, int depth);

/* cuda/nest.c */
void print_group(emitter *e, const loop_node *node);
/* A nest over the chunks of a layout, for text beside any pass: its guards are set, nothing is put. */
cnest cuda_nest_of(emitter *e, pass_layout *l);
int cuda_sink_level(const cnest *n); /* where a pass writes */

/* cuda/positions.c */
void cuda_positions(cnest *n, text *to);       /* of one chunk, inside the loops over c and u */
void cuda_set_guards(cnest *n);                /* of chunks and elements */
const char *position_text(cnest *n, int axis); /* of a loop axis, at its own level */
unsigned cuda_inner_axes(const cnest *n);      /* those that are no rows */
/* The product of the extents of those of the axes that come after one: a constant, or text. */
const char *cuda_product_text(cnest *n, unsigned axes, int after);
bool cuda_index_is_int(cnest *n, unsigned axes);      /* all positions fit into one */
const char *cuda_index_type(cnest *n, unsigned axes); /* int, or long */
const char *cuda_inner_threads(const cnest *n);
/* Declares part (which row this thread takes of those done together) and part_thread, when there are rows. */
void cuda_rows_begin(cnest *n, const loop_group *g);
text cuda_rows_end(cnest *n); /* the loops over rows around what stands on their level */

/* cuda/chunks.c */
void cuda_chunks(cnest *n);           /* the loops around the chunks of a pass, appended to the row */
bool fold_is_guarded(const cnest *n); /* the elements of a chunk are inside `if (in)` */

/* cuda/value.c */
creg cuda_value(cnest *n, value v, place at);      /* that was printed at its place */
void print_value(cnest *n, const loop_node *node); /* LET, LOAD, READ, MAP */
void cuda_remember(cnest *n, value v, place at, creg r);
creg cuda_define(cnest *n, value named, dtype t, int level, const char *words);
const char *cuda_share(cnest *n, int level, const char *type, const char *words);

/* cuda/access.c */
caddress cuda_access(cnest *n, const tile_op *op, place at);
/* Of position 0 of a window along the last axis of its array: no test along it, and none of the mask. */
caddress cuda_window_address(cnest *n, const tile_op *op, place at, value base);
caddress cuda_buffer(cnest *n, value v, place at);
creg cuda_constraint(cnest *n, int axis, const constraint *c, value step);
const char *cuda_lead_pointer(emitter *e, const tile_op *op); /* of the first element of the row */

/* cuda/memory.c */
creg cuda_load(cnest *n, value named, caddress a, value into); /* into: its registers take the load; 0: none */
void cuda_store(cnest *n, caddress a, creg r);
void cuda_atomic(cnest *n, caddress a, const tile_op *op, creg r, creg expected, const char *old);
const char *edge_text(emitter *e, const caddress *a); /* when vectors of a shifted row are loaded whole */
const char *element_in(cnest *n); /* what must hold for an element to exist; NULL: nothing, or a branch asks */
const char *cuda_effect_guard(cnest *n, int level); /* what must hold for an effect there; NULL: nothing */
const char *element_pointer(emitter *e, const caddress *a, bool element); /* of the element, or of the chunk */
const char *address_fetch(emitter *e, const caddress *a, const char *pointer);
const char *or_zero(emitter *e, const char *condition, const char *words); /* condition: or NULL */

/* cuda/home.c */
/* A register of a home, or NULL: it is in memory. */
const char *home_element(cnest *n, value v, place at, bool writes, int *level);
creg home_load(cnest *n, const caddress *a,
               value into); /* a vector to its registers, or in the background to its slot */
/* The words of this chunk of a tile of 16-bit floats: the name of an array. */
const char *home_words(cnest *n, int number);
/* Statements that bring a chunk to an array of its elements, and back. */
void home_take(cnest *n, text *to, int number, const char *into);
void home_keep(cnest *n, text *to, int number, const char *from);
void home_declare(emitter *e, int number, const char *title);
/* A loop whose kept loads of the next trip go on while this one computes; body: without its head. */
void home_put_loop(emitter *e, const tile_op *loop, text *body, const value *ahead, int count);

/* cuda/window.c */
bool window_load(cnest *n, const tile_op *load, place at, creg *out); /* false: it is of no window */
void store_spread(cnest *n, const caddress *a, const char *words);

/* access_notes.c: what hints are made of; nothing where nobody asks */
void note_access(cnest *n, const tile_op *op, place at, const caddress *a);
void note_tile(cnest *n, value v, place at);

/* cuda/fold.c */
typedef struct cfold {
    const sink *sink;
    dtype elem;
    const char *name, *position;
    const char *pairs; /* the fold of 16-bit elements two by two; NULL: each is folded into `name` */
    bool joined;       /* its exchange was made with that of others */
} cfold;
cfold cuda_fold_begin(cnest *n, const sink *s);
void cuda_fold_pairs(cnest *n, cfold *f); /* by whole words of a kept tile, all of it done */
void cuda_folds_join(cnest *n, cfold *folds, const int *members, int found); /* one exchange for several */
void cuda_fold_add(cnest *n, const cfold *f, creg r);
void cuda_fold_end(cnest *n, const cfold *f);

/* cuda/online.c */
void online_declare(emitter *e, value top);    /* beside the results of a group */
bool online_end(cnest *n, const cfold *f);     /* instead of the fold over the team; false: not its business */
creg online_scaled(cnest *n, value v, creg r); /* of a kept tile that was read */

/* cuda/control.c */
void print_spread_nodes(emitter *e, const loop_node *n);
void cuda_scalar_op(emitter *e, const tile_op *op);
const char *barrier_text(emitter *e); /* where all threads of the team meet */
void put_barrier(emitter *e);

/* cuda/dot.c: a DOT. Operands: slices of arrays (dot_operand_is_direct) or kept tiles in shared
 * memory or scratch, row-major, named by buffer_name; the result is added into its own buffer (already holding the third
 * operand; else the op clears it). All threads of the team call it at once; barriers around it are the caller's. */
void emit_cuda_dot(emitter *e, const loop_node *n);
void cuda_loop_of_products(emitter *e, const loop_node *n); /* a FOR that is one deeper product */
/* Sums that only products of a loop add to: from their buffer to registers before it, and back. The type of them, which
 * is known once the loop is printed, goes before both. */
void cuda_sums(emitter *e, value result, value argument, bool load);
void cuda_sums_type(emitter *e, value result);
void cuda_ask_ahead(emitter *e, const tile_op *loop); /* what is loaded behind a loop of such products */

/* cuda/scan.c */
void print_scan(emitter *e, const loop_node *n);

/* cuda/effect.c */
void cuda_print(emitter *e, const tile_op *op);
const char *cuda_leave_label(const emitter *e); /* where a program that failed goes */
void cuda_failure(emitter *e, text *to, int line, const char *bad, bool uniform);

#endif
