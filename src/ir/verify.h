/*
 * Shared by verify.c (the walk, scopes, elementwise ops) and verify_ops.c (the ops with rules of their own).
 * Every rule returns false after verify_fail has told the first fault.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_VERIFY_H
#define QUERN_IR_VERIFY_H

#include "ir/tile.h"

typedef struct verifier {
    const tile_kernel *k;
    qn_error *error;
    const tile_op *op;           /* being looked at, for the message; NULL between blocks */
    uint8_t *in_scope, *defined; /* by value */
    value *scope;                /* those in scope, in order of definition */
    int scope_count;
    int map_depth;
    bool in_head, failed;
} verifier;

/* verify.c */
bool verify_fail(verifier *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool verify_elem_in(dtype elem, const char *kinds); /* letters F, I, B */
bool verify_is_scalar(const verifier *v, value x, const char *kinds);
bool verify_fits(const tile_type *from, const tile_type *to);                /* a scalar, or every axis equal or 1 */
bool verify_one_axis(verifier *v, const tile_op *op, const tile_type *type); /* all but attr.index are 1 */

/* verify_ops.c */
bool verify_shape_op(verifier *v, const tile_op *op);
bool verify_fold_op(verifier *v, const tile_op *op);
bool verify_memory_op(verifier *v, const tile_op *op);
bool verify_control_op(verifier *v, const tile_op *op);
bool verify_yield(verifier *v, const tile_op *op, int region); /* the end of a region against its op */
bool verify_effect_op(verifier *v, const tile_op *op);
bool verify_head_op(verifier *v, const tile_op *op);

#endif
