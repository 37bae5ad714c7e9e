/*
 * What the builder of products asks: how large its tiles are.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_DOT_H
#define QUERN_FUSE_DOT_H

#include "fuse/group.h"

typedef struct dot_tiles {
    int rows, columns, depth; /* of the sums; of one step of the loop */
    int warps;                /* of a program on a GPU; 0: no wish */
    int fold_depth;           /* of one step of a fold beside the product */
    int64_t parts;            /* of K; 0: as dot_choose_parts says */
    int stages;               /* steps of K that are on their way; 0: no wish */
    bool turns;               /* groups of warps take turns, each with a tile of its own (schedule/) */
    int blocks;               /* of a multiprocessor at once; 0: no wish */
} dot_tiles;

/* The axes that run along tiles, and how many such products there are side by side. */
typedef struct dot_sizes {
    int64_t rows, columns, depth, products;
    int terms;     /* f32 operands are sums of so many bf16 ones; 0: they are taken whole */
    bool taken;    /* ... split, or rounded and turned, for every tile again as they are read, not once before */
    bool tf32;     /* ... or may be rounded */
    int thin;      /* few rows or columns, by eight warps that read the rest once, straight into registers: so many lines a tile */
    bool fed;      /* tiles for bulk copies and Hopper's matrix units */
    int line;      /* elements of 128 bytes along K: a step of a fed product */
    bool by_chunk; /* what is gathered lies side by side along K, 16 bytes and more */
    bool windows;  /* ... 128 and more: the copy engine gathers */
    int behind;    /* instructions for each result, once the product is there */
} dot_sizes;

enum { DOT_TERMS = 3, DOT_ROUGH_TERMS = 2 }; /* of bf16: as f32; as tf32 or better */

/* Products of bf16 that one product of such sums is. */
static inline int dot_term_products(int terms)
{
    return terms ? terms * (terms + 1) / 2 : 1;
}

/* The matrix units turn elements of 16 bits alone: are both operands to lie along K? */
enum { DOT_HALVES_LINE = 64 };
static inline bool dot_takes_rows_of_k(const dot_sizes *size)
{
    return size->line != DOT_HALVES_LINE;
}

/* dot_tiles.c: the ways that the sizes of a product speak for, set in `size`. */
void dot_choose_way(const fuse_options *options, dtype elem, product_way way, dot_sizes *size);
/* The same of a product whose operands are gathered: where it is fed, one of them is laid out anew, as terms if it is of
 * f32, and the other is read where it lies. */
void dot_choose_gathered_way(const fuse_options *options, dtype elem, product_way way, dot_sizes *size);
/* Does it take longer than to lay an operand out anew, so that bulk copies walk it? */
bool dot_is_worth_copies(const dot_sizes *size, const bool copies[2]);
/* ... of one that may be rounded to tf32: is it taken as it is read, or as two terms of bf16, instead? */
bool dot_is_worth_rough_terms(const fuse_options *options, const dot_sizes *size);
void dot_take_rough_terms(dot_sizes *size);

/* Of 16 bits with few rows or columns, and tiles of the others for all units: it is reading that counts. Sets size->thin instead of
 * fed. along: what is read lies along K. */
bool dot_take_thin(const fuse_options *options, dtype elem, bool along, dot_sizes *size);

/* dot_tiles.c. Few sizes, so that few texts arise; a batch (the number of rows) changes them only when it becomes
 * large. */
dot_tiles dot_choose_tiles(const fuse_options *options, dtype elem, const dot_sizes *size);

/* dot_tiles.c: the tiles of a fed product, each with the parts of K that suit it best and what that takes by estimate. */
enum { DOT_CANDIDATES = FUSE_TILES };
typedef struct dot_candidate {
    dot_tiles tiles;
    double time_ns;
} dot_candidate;
int dot_fed_candidates(const fuse_options *options, const dot_sizes *size, dot_candidate *out);
/* dot_tiles.c: why bulk copies do not feed it; NULL: they do. */
const char *dot_why_not_fed(const fuse_options *options, dtype elem, const dot_sizes *size);

/* What was chosen for a product, and from what; kept with its kernel for whoever asks (fuse_print_choices). */
struct dot_choice {
    dtype elem;
    dot_sizes size;
    dot_tiles tiles;
    int64_t parts;
    bool gathered;
};

/* dot_tiles.c: parts of K that are summed by programs of their own; 1: it is not split. */
int64_t dot_choose_parts(const fuse_options *options, const dot_tiles *tiles, const dot_sizes *size);

/* An operand that is read element by element, 0 where one of the guards (INSIDE terms) does not hold. */
typedef struct dot_gathered {
    int access; /* the ACCESS term */
    int guards[GUARDS_MOST], guard_count;
} dot_gathered;

/* dot_gather.c; false: the operand is computed, or read at places that are no sums over axes. `out` is zero before. */
bool dot_gather_operand(const trace *t, int term, dot_gathered *out);

/* The conditions of a bool term (0: none), each an INSIDE; false: one is of another kind. */
bool dot_add_guards(const trace *t, int term, dot_gathered *out);
/* The product of a group, or the last of the sums (and paddings, on the way to one) above it that reach it through
 * movements alone: elements of one product that are added up can be added by the product itself. */
node dot_find_top(const graph *g, const bool *in_memory, const group *grp);

/* dot_tiles.c: tiles of a product whose operands are gathered, on a GPU. */
dot_tiles dot_choose_gathered_tiles(const fuse_options *options, const dot_sizes *size);

#endif
