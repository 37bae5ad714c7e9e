/*
 * Facts about integers, as facts.c (ranges and divisibility) and relate.c (linear relations) keep them.
 *
 * An atom is what a linear form is made of: a value, or parameter p as ATOM_PARAM + p, so that the head's `arg n` and
 * the body's are one thing. Extents and program numbers are at most LARGEST_EXTENT: the host refuses more.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PASSES_FACTS_H
#define QUERN_PASSES_FACTS_H

#include "passes/passes.h"
#include "passes/rewrite.h"

typedef uint32_t atom;
__extension__ typedef __int128 wide; /* sums of products of bounds */
#define ATOM_PARAM 0x80000000u
#define MOST_TERMS 8
#define MOST_CONDITIONS 32

/* constant + sum of factor * atom, for one element of a tile, or a scalar. */
typedef struct linear {
    int count;
    bool bad; /* too many terms, or an overflow: nothing is known */
    atom atoms[MOST_TERMS];
    int64_t factors[MOST_TERMS];
    int64_t constant;
} linear;

struct facts {
    const tile_kernel *k;
    int value_count; /* when the facts were computed; later values are unknown */
    integer_fact *values, *params;
    bool *exact;                        /* by value: its op cannot wrap, so it may be taken apart */
    const tile_op **loops;              /* by value: the `for` whose variable it is */
    value *counts;                      /* by value, for program and programs: the launch count in the head */
    linear conditions[MOST_CONDITIONS]; /* each >= 0 where the walk is now */
    int condition_count;
};

/* facts.c */
integer_fact facts_of_atom(const facts *f, atom a);

/* relate.c */
linear relate_value(const facts *f, value v);
linear relate_extent(const facts *f, int array, int axis);  /* of an array parameter */
linear relate_dimension(int64_t dimension, const facts *f); /* as in tile_type.dims */
linear relate_constant(int64_t c);
linear relate_add(linear a, linear b, int64_t factor);      /* a + factor * b */
int64_t relate_divisor(const facts *f, const linear *form); /* the form is a multiple of it; 0: it is 0 */
bool relate_not_negative(const facts *f, const linear *form);
/* Is 0 <= start + i * step < extent for all 0 <= i < length? */
bool relate_inside(const facts *f, linear start, linear step, linear length, linear extent);
/* Is the axis of an access (LOAD, STORE, ATOMIC) within its array wherever it is used? */
bool relate_access_inside(const facts *f, const tile_op *op, int axis);
/* From here on the scalar condition is known to be true (or false); undo with condition_count. */
void relate_assume(facts *f, value condition, bool truth);
void relate_assume_form(facts *f, linear not_negative);
/* Rewrites the phases and regions with what holds in each: a launch has programs, a trip of a loop is within its
 * bounds, a branch was taken, an assert has passed. `each` calls relate_regions for an op that it keeps. */
void relate_phases(rewriter *r, facts *f, rewrite_each *each, void *context);
void relate_regions(rewriter *r, facts *f, tile_op *op, rewrite_each *each, void *context);
bool relate_pass(tile_kernel *k, rewrite_each *each); /* all of it: true where something changed */

#endif
