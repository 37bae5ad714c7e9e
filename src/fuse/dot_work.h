/*
 * What the files of the builder of products share: dot_trace.c (what it computes), dot_ways.c (how), dot_whole.c (operands
 * that are gathered), dot.c (the kernel), dot_terms.c (operands laid out anew, f32 ones also as sums of bf16 ones).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_DOT_WORK_H
#define QUERN_FUSE_DOT_WORK_H

#include "fuse/dot.h"

typedef enum dot_class { CLASS_BATCH, CLASS_ROWS, CLASS_COLUMNS, CLASS_DEPTH } dot_class;

/* The terms of one operand in scratch memory: [term][others][outer][inner]. */
typedef struct dot_terms {
    int count;         /* 0: the operand is read where it is; 1: it is only laid out anew */
    dtype elem;        /* of the terms */
    int param, padded; /* the array; the scalar that holds the inner extent, a multiple of 16 bytes */
    int outer, inner;  /* kernel axes: of K and of M or N */
    unsigned others;   /* kernel axes of programs that it depends on */
} dot_terms;

typedef struct dot_work {
    builder *b;
    const group *grp;
    trace *t;
    node dot, top; /* top: whose value the sums are; the product itself, or a sum of its elements (dot_find_top) */
    int rank;      /* of top */
    node added[SPACE_ROOTS]; /* the sums from the product up to top */
    int added_count;
    int guard; /* the term under which an element of the product is one of the sum; 0: each is */
    locals around;
    index_map **maps;         /* by local */
    bool *tried;              /* by local: its map was looked for */
    bool *after;              /* by local: it comes after the product */
    int terms[4], sums;       /* operands, by pair and side; the product */
    int factors[2];           /* by side: a term that the sums along the innermost axis of K are multiplied with */
    int scales[2];            /* by side: a term that the operand is multiplied with as it is read */
    int pair;                 /* of operands: whose axes of K are in `depth` and `tile_axis` */
    dot_gathered gathered[2]; /* operands, where `whole` */
    bool whole;               /* M, N and K are one kernel axis each, and operands are gathered */
    int order[SPACE_AXES];    /* whole: axes of the space, outermost first */
    bool by_chunk, windows;   /* whole: see dot_sizes */
    unsigned classes[CLASS_DEPTH + 1]; /* axes of the space */
    bool *needs;                       /* by term: it stands on the product or on another fold */
    lower_output *outputs;
    int *folds, fold_count; /* terms */
    /* lowering */
    lowering *l;
    dot_tiles tiles;
    int step;                           /* of the loop over K that is being built */
    int tile_axis[3];                   /* kernel axes of M, N and K that run along tiles; -1: none, extent 1 */
    int depth[SPACE_AXES], depth_count; /* kernel axes of K, the tile's last */
    value coordinates[SPACE_AXES];      /* by kernel axis: of programs and loops */
    value starts[2];                    /* of the tile in M and N */
    bool across;                        /* programs follow each other along N, not along M */
    int64_t parts;                      /* of the outermost axis of K; 1: it is not split */
    int part_param, chunk_param;        /* how many parts there are, and how long one is; while K is split */
    value part, others;                 /* the program's part (0: it takes all of K), its number on the other axes */
    int term_count;                     /* f32 operands are split into so many terms first; 0: they are not */
    int laid;                           /* whole: the one operand that may be laid out anew */
    bool plain; /* one phase that reads its operands where they are, for a library that computes the whole product */
    bool slice;                         /* ... is read by slices as it is instead */
    dot_terms split[2];                 /* operands that are split or laid out anew */
} dot_work;

/* dot_trace.c */
bool dot_refuse(dot_work *w, const char *why);
bool dot_trace(dot_work *w);           /* terms, outputs, folds and classes; false: b->why says why not */
int dot_pair_count(const dot_work *w); /* pairs of operands */
void dot_classify(dot_work *w);        /* classes of axes, of a product that is not gathered */
unsigned dot_gathered_axes(const dot_work *w, int side);

/* dot_ways.c. By the sizes of the product and of what follows it: a builder asks before its axes are known. */
dot_sizes dot_find_sizes(const dot_work *w);
dot_tiles dot_find_tiles(const dot_work *w, dtype elem, const dot_sizes *size);
int64_t dot_find_parts(const dot_work *w, const dot_sizes *size); /* of K */
/* Axes are known: the ways in `size`, and the operands that are to be laid out anew for a fed product, only where it is
 * worth while and the axes allow it; else the product is none. */
void dot_find_way(const dot_work *w, dtype elem, dot_sizes *size, bool copies[2]);
bool dot_reads_rows_once(const dot_work *w, dtype elem, const dot_sizes *size);

/* dot.c */
void dot_begin_lowering(dot_work *w); /* kernel axes, and those that run along tiles */
int64_t dot_tile_extent(const dot_work *w, int side);
bool dot_uses(const dot_work *w, int id, int wanted); /* is a term one of those that another is made of? */
bool dot_is_program_axis(const dot_work *w, int axis);
frame *dot_frame_over(dot_work *w, tile_block *block, int down,
                      int across); /* two of M, N and K on tile axes 0 and 1 */

/* dot_whole.c: sets `whole`, `gathered`, `order` and the classes. */
void dot_choose_whole(dot_work *w);

/* dot_terms.c */
bool dot_has_terms(const dot_work *w); /* axes are known: may operands be split or laid out anew? */
/* Axes are known, whole: is an operand a slice along K after all, which bulk copies walk as it is? */
bool dot_is_slice(const dot_work *w, int side);
/* Axes are known: can the warps that fill the ring split an operand as they read it? */
bool dot_is_taken(const dot_work *w, int side);
/* Axes are known: is an operand to be laid out anew, so that bulk copies walk it and the matrix units take it? */
bool dot_wants_copy(const dot_work *w, int side, bool along_k);
bool dot_lies_well(const dot_work *w, int side); /* along K or its own axis, in multiples of 16 bytes */
void dot_make_terms(dot_work *w, int side, int count, dtype elem);  /* a phase of its own; count: of terms, or 1 */
value dot_load_term(dot_work *w, frame *f, int side, int which);    /* of one step, 0 where there is nothing */
value dot_add_terms(dot_work *w, tile_block *block, value carried); /* the products of one step, added to the sums */

#endif
