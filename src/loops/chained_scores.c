/*
 * Arithmetic of chained products. In: values of the loop. Out: nodes of passes over a step's scores, in order: each value
 * once a pass, after what it is computed from; folds that can share a pass do.
 *
 * Exponentials of differences are powers of two, with factors folded into one multiplication; a maximum of x times a factor
 * is that of x, multiplied behind the fold, also where the factor is known only as the program runs, if it is positive then.
 * SPDX-License-Identifier: MIT
 */
#include "loops/chained_build.h"

#include <math.h>
#include <string.h>

enum { MOST_FOLDS = 8 }; /* of a pass */

static const double log2_of_e = 1.44269504088896340736;

void chained_begin_pass(chained_builder *b)
{
    memset(b->known, 0, sizeof(bool) * (size_t)b->c->kernel->value_count);
}

/* The conditions of a mask that this step has to ask about, as bits. */
static unsigned conditions_of(const chained_builder *b, value v)
{
    unsigned bits = 0;
    CHECK(chained_mask(b->c, v, &bits));
    return b->masked ? bits : 0;
}

static bool is_mask(const chained_builder *b, const tile_op *op)
{
    unsigned bits;
    return op->code == OP_SELECT && tile_type_of(b->c->kernel, op->operands[0]).rank &&
           !chained_is_row_test(b->c, op->operands[0]) && chained_mask(b->c, op->operands[0], &bits);
}

static bool is_product_of_scores(const chained_builder *b, value v)
{
    for (int i = 0; i < b->c->product_count; i++)
        if (b->c->products[i].dot->results[0] == v) return true;
    return false;
}

/* A number that is the same for all scores, and known only as the program runs; 0: it is something else. */
static value scalar_of(const chained_builder *b, value v)
{
    const tile_op *op = tile_def(b->c->kernel, v);
    for (; op && op->code == OP_BROADCAST; op = tile_def(b->c->kernel, v)) v = op->operands[0];
    tile_type t = tile_type_of(b->c->kernel, v);
    return t.rank || t.elem != DT_F32 ? 0 : v;
}

/* x * factor * scalar, as far as factors are constants, and one scalar. */
static value without_factor(const chained_builder *b, value v, double *factor, value *scalar)
{
    const tile_kernel *k = b->c->kernel;
    const tile_op *op = tile_def(k, v);
    number n;
    while (op && op->code == OP_MUL && !is_product_of_scores(b, v) && !(b->late && v == b->c->cut)) {
        int side = tile_is_constant(k, op->operands[1], &n) ? 0 : 1;
        if (!side || tile_is_constant(k, op->operands[0], &n)) {
            *factor *= n.f;
        } else {
            side = scalar_of(b, op->operands[1]) ? 0 : 1;
            if (!scalar || *scalar || !scalar_of(b, op->operands[!side])) break;
            *scalar = scalar_of(b, op->operands[!side]);
        }
        v = op->operands[side];
        op = tile_def(k, v);
    }
    return v;
}

/* What is -infinity where its mask leaves it out: what it is elsewhere; false: it is something else. */
static bool take_mask(const chained_builder *b, value *x, unsigned *conditions)
{
    const tile_op *masked = tile_def(b->c->kernel, *x);
    number other;
    *conditions = 0;
    if (!masked || !is_mask(b, masked)) return true;
    if (!tile_is_constant(b->c->kernel, masked->operands[2], &other) || other.f != -INFINITY) return false;
    *conditions = conditions_of(b, masked->operands[0]);
    *x = masked->operands[1];
    return true;
}

/* exp(x - y), also of a masked x: 2^(x * f - y * log2 e); NULL: it is something else. */
static loop_element *power_of(const chained_builder *b, const tile_op *op)
{
    const tile_kernel *k = b->c->kernel;
    const tile_op *difference = op->code == OP_EXP ? tile_def(k, op->operands[0]) : NULL;
    if (!difference || difference->code != OP_SUB || chained_kind_of(b->c, difference->results[0]) != CHAINED_SCORE)
        return NULL;
    chained_kind kind = chained_kind_of(b->c, difference->operands[1]);
    if (kind != CHAINED_FIXED && kind != CHAINED_MOVING) return NULL;
    loop_element *out = ARENA_NEW(b->memory, loop_element);
    *out = (loop_element){.x = difference->operands[0], .below = difference->operands[1], .factor = log2_of_e};
    if (!take_mask(b, &out->x, &out->conditions)) return NULL;
    out->x = without_factor(b, out->x, &out->factor, &out->scalar);
    return out;
}

/* What a fold takes of a score; alone: a scalar may stay behind the fold, too. */
static loop_element *folded_element(const chained_builder *b, const tile_op *fold, bool alone)
{
    loop_element *out = ARENA_NEW(b->memory, loop_element);
    *out = (loop_element){.x = fold->operands[0], .factor = 1};
    if (fold->attr.fold != FOLD_MAX || !take_mask(b, &out->x, &out->conditions)) return out;
    double own = 1;
    value scalar = 0, inner = without_factor(b, out->x, &own, alone ? &scalar : NULL);
    if (own > 0 && isfinite(own)) {
        out->x = inner;
        out->factor = own;
        out->scalar = scalar;
    }
    return out;
}

/* ---- values ---- */

/* As far as its own op says. */
static bool is_even(const tile_kernel *k, value v)
{
    const tile_op *op = tile_def(k, v);
    number n;
    if (tile_is_constant(k, v, &n)) return n.i % 2 == 0;
    for (int i = 0; i < 2 && op && op->code == OP_MUL; i++)
        if (tile_is_constant(k, op->operands[i], &n) && n.i % 2 == 0) return true;
    return false;
}

/* Do the elements of a line fall into pairs that the loop's steps begin with? Of an odd line the last one has no neighbour. */
static bool has_pairs(const chained *c, const tile_param *p)
{
    int last = p->rank - 1, extent = p->extent_param[last];
    bool even = extent >= 0 ? facts_divisor(&c->kernel->params[extent].facts) > 1
                            : p->extents[last] && is_even(c->kernel, p->extents[last]);
    return even && p->facts.bulk && is_even(c->kernel, c->loop->operands[0]);
}

/* Numbers of an array for this score; of neighbours along memory both at once. */
static void add_table(chained_builder *b, const tile_op *op)
{
    const struct access *a = &op->attr.access;
    bool pairs = has_pairs(b->c, &b->c->kernel->params[a->array]);
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        bool slice = a->kind[axis] == INDEX_SLICE;
        if (axis == a->rank - 1) pairs &= slice && op->operands[operand] == b->c->loop->regions[0]->args[0];
        operand += slice ? 2 : 1;
    }
    chained_add(b, LOOP_LOAD, op, pairs ? LOOPS_TABLE_PAIR : LOOPS_TABLE, b->masked);
}

static void need_virtual(chained_builder *b, value v)
{
    const tile_kernel *k = b->c->kernel;
    const tile_op *op = tile_def(k, v);
    loop_element *element;
    if (b->known[v] || b->truths[v] || chained_is_place(b->c, v)) return;
    if (op->code == OP_BROADCAST || op->code == OP_RESHAPE) {
        chained_need(b, op->operands[0]);
        return;
    }
    b->known[v] = true;
    if (op->code == OP_LOAD) {
        add_table(b, op);
        return;
    }
    element = power_of(b, op);
    if (element) {
        chained_need(b, element->below);
        chained_need(b, element->x);
        chained_add(b, LOOP_LET, op, LOOPS_POWER, 0)->element = element;
        return;
    }
    if (is_mask(b, op)) {
        element = ARENA_NEW(b->memory, loop_element);
        *element = (loop_element){.x = op->operands[1], .below = op->operands[2]};
        element->conditions = conditions_of(b, op->operands[0]);
        chained_need(b, element->x);
        if (element->conditions) chained_need(b, element->below);
        chained_add(b, LOOP_LET, op, LOOPS_MASKED, 0)->element = element;
        return;
    }
    for (int i = 0; i < op->operand_count && i < 3; i++) chained_need(b, op->operands[i]);
    dtype elem = tile_type_of(k, v).elem;
    bool a_row = op->code == OP_DIV && dtype_is_float(elem) && chained_kind_of(b->c, op->operands[1]) == CHAINED_FIXED;
    bool narrows = op->code == OP_CONVERT && elem == b->c->elem;
    for (int i = 0; i < b->c->sum_count; i++)
        narrows |= v == b->c->sums[i].factored; /* the sum is multiplied instead */
    chained_add(b, LOOP_LET, op, a_row ? LOOPS_QUOTIENT : narrows ? LOOPS_SAME : LOOPS_ELEMENT, 0);
}

/* A sum that the loop carried, behind it. */
static bool is_sum(const chained *c, value v)
{
    for (int i = 0; i < c->sum_count; i++)
        if (v == c->loop->results[c->sums[i].carried]) return true;
    return false;
}

void chained_need(chained_builder *b, value v)
{
    const chained *c = b->c;
    const tile_op *op = tile_def(c->kernel, v);
    if (is_product_of_scores(b, v) || (b->late && v == c->cut) || is_sum(c, v)) return;
    for (int i = 0; i < c->vector_count; i++)
        if (v == c->vectors[i]->results[0]) return;
    switch (chained_kind_of(c, v)) {
    case CHAINED_SCALAR: return;
    case CHAINED_FIXED:
        if (chained_is_place(c, v)) return;
        if (chained_is_truth(c, v) || dtype_is_integer(tile_type_of(c->kernel, v).elem))
            need_virtual(b, v);
        else if (!b->rows[v] && op)
            chained_need(b, op->operands[0]); /* a broadcast scalar */
        return;
    default: need_virtual(b, v);
    }
}

void chained_row(chained_builder *b, const tile_op *op)
{
    chained_begin_pass(b);
    if (op->code == OP_BROADCAST && !b->after && !tile_def(b->c->kernel, op->operands[0])) return;
    for (int i = 0; i < op->operand_count && i < 3; i++) chained_need(b, op->operands[i]);
    chained_add(b, LOOP_LET, op, op->results[0] == b->c->slack ? LOOPS_LAGGING : LOOPS_ROW, 0);
    b->rows[op->results[0]] = true;
}

/* ---- passes over the scores ---- */

static bool rows_stand(const chained_builder *b, value v, bool *seen)
{
    const chained *c = b->c;
    const tile_op *op = tile_def(c->kernel, v);
    chained_kind kind = chained_kind_of(c, v);
    if (seen[v] || kind == CHAINED_SCALAR || v == c->products[0].dot->results[0]) return true;
    if (!dtype_is_float(tile_type_of(c->kernel, v).elem) && !chained_is_row_test(c, v)) return true;
    if (kind == CHAINED_FIXED) return b->rows[v] || !op || op->code == OP_BROADCAST;
    seen[v] = true; /* who does not stand ends the whole question */
    for (int i = 0; op && i < op->operand_count; i++)
        if (!rows_stand(b, op->operands[i], seen)) return false;
    return true;
}

/* Do all rows that a score is computed from stand already? */
static bool is_ready(const chained_builder *b, value v)
{
    return rows_stand(b, v, ARENA_ARRAY(b->memory, bool, b->c->kernel->value_count));
}

static void keep(chained_builder *b, value v, int where)
{
    chained_add(b, LOOP_KEEP, NULL, where, 0)->operand = v;
}

/* One pass: folds, and perhaps the weights. scaled: what is folded is multiplied with its scalar first. */
static void add_one_pass(chained_builder *b, const tile_op *const *folds, const loop_element *const *elements,
                         int count, bool scaled, bool weights)
{
    value own = b->c->sums[0].weights;
    chained_begin_pass(b);
    loop_node **behind = chained_open(b, chained_add(b, LOOP_PASS, NULL, 0, 0));
    for (int i = 0; i < count; i++) {
        chained_need(b, elements[i]->x);
        chained_add(b, LOOP_FOLD, folds[i], scaled, 0)->element = elements[i];
    }
    if (weights) {
        chained_need(b, own);
        keep(b, own, LOOPS_SCORES);
    }
    chained_close(b, behind);
}

/* The maximum of x times a scalar is that of x, times the scalar behind the fold, where that is positive. Constant factors stay
 * behind it either way, whether they were multiplied before the scalar or after it. (Not where masks are
 * tested: both arms have the same tests, and the compiler would keep what each of them says in registers.) */
static void add_scaled_pass(chained_builder *b, const tile_op *fold, const loop_element *element)
{
    loop_node *n = chained_add(b, LOOP_IF, NULL, 0, 0);
    n->operand = element->scalar;
    loop_node **behind = chained_open(b, n);
    add_one_pass(b, &fold, &element, 1, false, false);
    b->tail = &n->other;
    add_one_pass(b, &fold, &element, 1, true, false);
    chained_close(b, behind);
}

static void add_pass(chained_builder *b, int from, bool *weights_done)
{
    const chained *c = b->c;
    const tile_block *body = c->loop->regions[0];
    const tile_op *folds[MOST_FOLDS];
    const loop_element *elements[MOST_FOLDS] = {NULL};
    value own = c->sums[0].weights;
    int count = 0;
    for (int i = from; i < body->op_count && count < MOST_FOLDS; i++) {
        const tile_op *op = body->ops[i];
        if (op->code == OP_REDUCE && !b->folded[op->results[0]] && is_ready(b, op->operands[0])) folds[count++] = op;
    }
    bool weights = !*weights_done && is_ready(b, own);
    for (int i = 0; i < count; i++) chained_add(b, LOOP_FOLD_BEGIN, folds[i], 0, 0);
    for (int i = 0; i < count; i++) elements[i] = folded_element(b, folds[i], count == 1 && !weights && !b->masked);
    if (count == 1 && elements[0]->scalar)
        add_scaled_pass(b, folds[0], elements[0]);
    else
        add_one_pass(b, folds, elements, count, false, weights);
    *weights_done |= weights;
    for (int i = 0; i < count; i++) {
        value v = folds[i]->results[0];
        b->folded[v] = b->rows[v] = true;
        chained_add(b, LOOP_FOLD_JOIN, folds[i], 1, 0);
        if (v == c->lane_sum) continue; /* exchanged behind the loop */
        loop_node *n = chained_add(b, LOOP_FOLD_END, folds[i], folds[i]->attr.fold, 0);
        n->operand = v;
        n->element = elements[i];
    }
}

static void add_scalars(chained_builder *b)
{
    const tile_block *body = b->c->loop->regions[0];
    for (int i = 0; i + 1 < body->op_count; i++)
        if (!tile_type_of(b->c->kernel, body->ops[i]->results[0]).rank && body->ops[i]->code != OP_CONST)
            chained_add(b, LOOP_LET, body->ops[i], LOOPS_SCALAR, 0);
}

static void add_scalars_of_step(chained_builder *b)
{
    add_scalars(b);
    if (b->masked && b->c->condition_count) chained_add(b, LOOP_EDGES, NULL, 0, 0);
}

/* Is it made of random words? */
static bool is_drawn(const chained *c, value v, int *ways)
{
    const tile_op *op = tile_def(c->kernel, v);
    if (!op || --*ways < 0) return false;
    if (op->code == OP_PHILOX) return true;
    for (int i = 0; i < op->operand_count; i++)
        if (is_drawn(c, op->operands[i], ways)) return true;
    return false;
}

/* Does something else than another truth take it? */
static bool is_taken(const chained *c, value v)
{
    const tile_block *body = c->loop->regions[0];
    for (int i = 0; i + 1 < body->op_count; i++)
        for (int o = 0; o < body->ops[i]->operand_count; o++)
            if (body->ops[i]->operands[o] == v && !chained_is_truth(c, body->ops[i]->results[0])) return true;
    return false;
}

/* Edges stand before the first of these nodes, if one asks about them. */
static void need_edges(chained_builder *b, loop_node **first)
{
    loop_node *rest = *first;
    bool asks = false;
    for (const loop_node *n = rest; n; n = n->next) asks |= n->element && n->element->conditions;
    if (asks) *loops_add(b->memory, first, LOOP_EDGES, NULL, 0, 0) = rest;
}

/* A random word takes as long as a step's whole softmax does for a score, and many at once more registers than there are: a few
 * after the other while the products run, of which a bit each is left. */
void chained_truths(chained_builder *b)
{
    const chained *c = b->c;
    const tile_block *body = c->loop->regions[0];
    for (int i = 0; i + 1 < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        value v = op->result_count ? op->results[0] : 0;
        int ways = TILE_MOST_WAYS;
        if (!v || !chained_is_truth(c, v) || chained_kind_of(c, v) != CHAINED_SCORE || !is_drawn(c, v, &ways) ||
            !is_taken(c, v))
            continue;
        b->truths[v] = false;
        loop_node **behind = chained_open(b, chained_add(b, LOOP_TRUTHS, op, 0, 0));
        add_scalars(b);
        loop_node **first = b->tail;
        chained_begin_pass(b);
        chained_need(b, v);
        need_edges(b, first);
        chained_close(b, behind);
        b->truths[v] = true;
    }
}

void chained_softmax(chained_builder *b)
{
    const chained *c = b->c;
    const tile_block *body = c->loop->regions[0];
    const tile_op *yield = body->ops[body->op_count - 1];
    bool weights = false;
    for (int i = 0; i + 1 < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        value v = op->result_count ? op->results[0] : 0;
        if (!v || chained_is_product(c, op)) continue;
        b->rows[v] = b->folded[v] = false;
    }
    add_scalars_of_step(b);
    for (int i = 0; i + 1 < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        value v = op->results[0];
        tile_type type = tile_type_of(c->kernel, v);
        if (chained_is_product(c, op) || op->code == OP_LOAD || !type.rank) continue;
        if ((!dtype_is_float(type.elem) && !chained_is_row_test(c, v)) || chained_kind_of(c, v) != CHAINED_FIXED)
            continue;
        if (op->code != OP_REDUCE)
            chained_row(b, op);
        else if (!b->folded[v])
            add_pass(b, i, &weights);
    }
    if (!weights) add_pass(b, body->op_count, &weights);
    for (int i = 0; i < yield->operand_count; i++)
        if (i != c->sums[0].carried && yield->operands[i] != body->args[1 + i]) chained_add(b, LOOP_YIELD, yield, i, 0);
}

/* Two neighbours at once: they share their vectors' pair and become one register. */
void chained_weights(chained_builder *b, bool late)
{
    const chained *c = b->c;
    const tile_block *body = c->loop->regions[0];
    b->late = late;
    add_scalars_of_step(b);
    for (int i = 0; i + 1 < body->op_count && !late; i++) {
        const tile_op *op = body->ops[i];
        if (chained_kind_of(c, op->results[0]) == CHAINED_FIXED && op->code != OP_LOAD &&
            dtype_is_float(tile_type_of(c->kernel, op->results[0]).elem))
            chained_row(b, op);
    }
    chained_begin_pass(b);
    loop_node **behind = chained_open(b, chained_add(b, LOOP_PAIRS, NULL, late, 0));
    if (!late && c->cut) chained_need(b, c->cut);
    for (int i = 0; i < c->sum_count; i++) {
        if (c->sums[i].late != late) continue;
        chained_need(b, c->sums[i].weights);
        keep(b, c->sums[i].weights, i);
    }
    if (!late && c->cut) keep(b, c->cut, LOOPS_SCORES);
    chained_close(b, behind);
    b->late = false;
}
