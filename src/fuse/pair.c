/*
 * Folds that wait for another fold of the same rows, and need not. In: sum((x - m) * (x - m)) with m = sum(x) * c, or
 * sum(exp(x - m)) with m = max(x). Out: what a program carries while it goes through rows, what it leaves of them, and how
 * that is joined once m is known, so that rows are read once.
 *
 * Squares are taken about the mean of the rows seen so far (Chan's way of joining two sets of numbers), exponentials below
 * their largest; joining moves each part to the mean or the maximum of all rows. The results differ by rounding alone,
 * so kernels that round as single ops do are left as they are.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/loop.h"

static bool is_op(const term *x, op_code op)
{
    return x->kind == TERM_OP && x->op == op;
}

/* The sum of x that a mean is a multiple of; 0: none. */
static int sum_of_mean(const term *terms, int mean, int x)
{
    if (!is_op(&terms[mean], OP_MUL)) return 0;
    for (int side = 0; side < 2; side++) {
        int sum = terms[mean].inputs[side];
        if (terms[terms[mean].inputs[1 - side]].kind == TERM_CONSTANT && terms[sum].kind == TERM_FOLD &&
            terms[sum].fold == FOLD_SUM && terms[sum].inputs[0] == x)
            return sum;
    }
    return 0;
}

bool loop_find_pair(const loop *p, int fold, loop_pair *out)
{
    const term *terms = p->t->terms, *x = &terms[fold];
    *out = (loop_pair){.kind = PAIR_NONE};
    if (p->b->options->mode != FUSE_FUSED || x->kind != TERM_FOLD || x->scan || x->fold != FOLD_SUM) return false;
    const term *inside = &terms[x->inputs[0]];
    bool squares = is_op(inside, OP_MUL) && inside->inputs[0] == inside->inputs[1], power = is_op(inside, OP_EXP);
    if (!squares && !power) return false;
    const term *less = &terms[inside->inputs[0]];
    if (!is_op(less, OP_SUB) || less->elem != DT_F32 || inside->elem != DT_F32) return false;
    int source = less->inputs[0], about = less->inputs[1], first = squares ? sum_of_mean(terms, about, source) : about;
    const term *y = &terms[first];
    if (!first || y->kind != TERM_FOLD || y->scan || y->folded != x->folded || y->inputs[0] != source ||
        y->fold != (squares ? FOLD_SUM : FOLD_MAX))
        return false;
    *out = (loop_pair){squares ? PAIR_SQUARES : PAIR_EXPONENTS, source, about, first, inside->inputs[0]};
    return true;
}

bool loop_carries_pairs(const loop *p)
{
    return p->b->options->gpu && p->shape == LOOP_COLUMN;
}

/* ---- arithmetic ---- */

static value arithmetic(lowering *l, frame *f, op_code code, value x, value y)
{
    return lower_op(l, f->block, code, DT_F32, (value[]){x, y}, 2, 0);
}

static value real(lowering *l, frame *f, double x)
{
    return lower_number(l, f->block, DT_F32, (number){.f = x});
}

/* exp(x - top), where a top of -inf, of which nothing is above, leaves exponentials of 0. */
static value exponent(lowering *l, frame *f, value x, value top)
{
    value less = arithmetic(l, f, OP_SUB, x, top);
    return lower_op(l, f->block, OP_EXP, DT_F32, &less, 1, 0);
}

static value highest_or_zero(lowering *l, frame *f, value top)
{
    value least = lower_number(l, f->block, DT_F32, fold_identity(FOLD_MAX, DT_F32));
    value none = lower_op(l, f->block, OP_EQ, DT_BOOL, (value[]){top, least}, 2, 0);
    return lower_op(l, f->block, OP_SELECT, DT_F32, (value[]){none, real(l, f, 0), top}, 3, 0);
}

static value square(lowering *l, frame *f, value x)
{
    return arithmetic(l, f, OP_MUL, x, x);
}

static value combined(lowering *l, frame *f, fold_kind fold, value *some, int count)
{
    for (int s = 1; s < count; s *= 2)
        for (int k = 0; k + s < count; k += 2 * s) some[k] = lower_combine(l, f, fold, some[k], some[k + s], 0);
    return some[0];
}

/* ---- what is carried ---- */

void pair_turn(lowering *l, frame *f, pair_kind kind, const value *rows, int row_count, value count, pair_state *s)
{
    value some[PAIR_ROWS];
    CHECK(row_count <= PAIR_ROWS);
    for (int i = 0; i < row_count; i++) some[i] = rows[i];
    if (kind == PAIR_EXPONENTS) {
        value top = arithmetic(l, f, OP_MAX, s->beside, combined(l, f, FOLD_MAX, some, row_count));
        value from = highest_or_zero(l, f, top);
        for (int i = 0; i < row_count; i++) some[i] = exponent(l, f, rows[i], from);
        value before = arithmetic(l, f, OP_MUL, s->fold, exponent(l, f, s->beside, from));
        *s = (pair_state){arithmetic(l, f, OP_ADD, before, combined(l, f, FOLD_SUM, some, row_count)), top};
        return;
    }
    value many = real(l, f, row_count), part = arithmetic(l, f, OP_DIV, many, arithmetic(l, f, OP_ADD, count, many));
    value mean = combined(l, f, FOLD_SUM, some, row_count);
    if (row_count > 1) mean = arithmetic(l, f, OP_MUL, mean, real(l, f, 1.0 / row_count));
    value far = arithmetic(l, f, OP_SUB, mean, s->beside);
    value between = arithmetic(l, f, OP_MUL, square(l, f, far), arithmetic(l, f, OP_MUL, count, part));
    if (row_count > 1) {
        for (int i = 0; i < row_count; i++) some[i] = square(l, f, arithmetic(l, f, OP_SUB, rows[i], mean));
        between = arithmetic(l, f, OP_ADD, between, combined(l, f, FOLD_SUM, some, row_count));
    }
    s->fold = arithmetic(l, f, OP_ADD, s->fold, between);
    s->beside = arithmetic(l, f, OP_ADD, s->beside, arithmetic(l, f, OP_MUL, far, part));
}

void pair_leave(lowering *l, frame *f, pair_kind kind, value count, value all, bool to_scalar, pair_state *s)
{
    if (kind == PAIR_EXPONENTS) {
        value top = lower_reduce(l, f, s->beside, FOLD_MAX, 0, 1, to_scalar);
        value scaled = arithmetic(l, f, OP_MUL, s->fold, exponent(l, f, s->beside, highest_or_zero(l, f, top)));
        *s = (pair_state){lower_reduce(l, f, scaled, FOLD_SUM, 0, 1, to_scalar), top};
        return;
    }
    value sum = lower_reduce(l, f, arithmetic(l, f, OP_MUL, s->beside, count), FOLD_SUM, 0, 1, to_scalar);
    value mean = arithmetic(l, f, OP_DIV, sum, arithmetic(l, f, OP_MAX, all, real(l, f, 1)));
    value far = square(l, f, arithmetic(l, f, OP_SUB, s->beside, mean));
    value squares = arithmetic(l, f, OP_ADD, s->fold, arithmetic(l, f, OP_MUL, far, count));
    *s = (pair_state){lower_reduce(l, f, squares, FOLD_SUM, 0, 1, to_scalar), mean};
}

value pair_join(lowering *l, frame *f, pair_kind kind, value about, value count, const pair_state *part)
{
    if (kind == PAIR_EXPONENTS) return arithmetic(l, f, OP_MUL, part->fold, exponent(l, f, part->beside, about));
    value far = square(l, f, arithmetic(l, f, OP_SUB, part->beside, about));
    return arithmetic(l, f, OP_ADD, part->fold, arithmetic(l, f, OP_MUL, far, count));
}
