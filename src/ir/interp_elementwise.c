/*
 * Elementwise ops on tiles: operands are broadcast to the result's shape, arithmetic is interp_math.c's, and in a
 * checking run poison spreads, births are traced and integers are watched.
 *
 * Poison: an element has none if no operand's element has any, except that a false operand of AND and a true operand
 * of OR decide alone, and that SELECT takes the chosen arm only.
 * SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"

#include <math.h>
#include <string.h>

/* The operand as cells with a step of 0 or 1; expanded aside if it is neither a scalar nor of the full shape. */
static tile *operand_for(interp *s, value v, const tile_type *shape, int64_t n)
{
    tile *t = interp_get(s, v);
    if (t->count == n || t->count == 1) return tile_keep(t);
    return tile_expand(s, t, shape);
}

static inline int step_of(const tile *t, int64_t n)
{
    return t->count == n && n != 1;
}

static bool poison_at(const tile *t, int step, int64_t j)
{
    return t->poison && t->poison[j * step];
}

static void spread_poison(interp *s, const tile_op *op, tile *r, tile *const *operands)
{
    int64_t n = r->count;
    int count = op->operand_count;
    bool any = false;
    for (int k = 0; k < count; k++) any |= operands[k]->poison != NULL;
    if (!any) return;
    r->poison = buffer_take(s, (size_t)n + 1);
    const tile *a = operands[0], *b = operands[1], *c = operands[2]; /* the first again where there are fewer */
    int sa = step_of(a, n), sb = step_of(b, n), sc = step_of(c, n);
    bool decides = (op->code == OP_AND || op->code == OP_OR) && r->type.elem == DT_BOOL;
    int64_t deciding = op->code == OP_OR;
    bool left = false;
    for (int64_t j = 0; j < n; j++) {
        bool pa = poison_at(a, sa, j), pb = poison_at(b, sb, j), p;
        if (op->code == OP_SELECT)
            p = pa || (a->cells[j * sa].i ? pb : poison_at(c, sc, j));
        else if (decides)
            p = pa ? pb || b->cells[j * sb].i != deciding : pb && a->cells[j * sa].i != deciding;
        else
            p = pa || pb || poison_at(c, sc, j);
        if (decides && !p && (pa || pb)) r->cells[j].i = deciding;
        r->poison[j] = p;
        left |= p;
    }
    if (!left) {
        buffer_give(s, r->poison);
        r->poison = NULL;
    }
}

static void select_cells(const tile *c, const tile *a, const tile *b, tile *r)
{
    int64_t n = r->count;
    int sc = step_of(c, n), sa = step_of(a, n), sb = step_of(b, n);
    for (int64_t j = 0; j < n; j++) r->cells[j] = c->cells[j * sc].i ? a->cells[j * sa] : b->cells[j * sb];
}

static void fma_cells(dtype elem, bool exact, const tile *a, const tile *b, const tile *c, tile *r)
{
    int64_t n = r->count;
    int sa = step_of(a, n), sb = step_of(b, n), sc = step_of(c, n);
    if (elem == DT_F32 && !exact) {
        for (int64_t j = 0; j < n; j++)
            r->cells[j].f = fmaf((float)a->cells[j * sa].f, (float)b->cells[j * sb].f, (float)c->cells[j * sc].f);
        return;
    }
    for (int64_t j = 0; j < n; j++) r->cells[j].f = fma(a->cells[j * sa].f, b->cells[j * sb].f, c->cells[j * sc].f);
}

static void philox_cells(int lane, const tile *seed, const tile *offset, const tile *i, tile *r)
{
    int64_t n = r->count;
    int ss = step_of(seed, n), so = step_of(offset, n), si = step_of(i, n);
    for (int64_t j = 0; j < n; j++) {
        uint32_t words[4];
        philox_words((uint64_t)seed->cells[j * ss].i, (uint64_t)offset->cells[j * so].i, (uint64_t)i->cells[j * si].i,
                     words);
        r->cells[j].i = words[lane & 3];
    }
}

static void compute(interp *s, const tile_op *op, tile *r, tile *const *operands)
{
    const tile *a = operands[0], *b = operands[1];
    int64_t n = r->count;
    dtype elem = a->type.elem, to = r->type.elem;
    int sa = step_of(a, n), sb = step_of(b, n);
    switch (op->code) {
    case OP_CONVERT: math_convert(elem, to, s->exact, n, a->cells, sa, r->cells); return;
    case OP_BITCAST: math_bitcast(elem, to, n, a->cells, sa, r->cells); return;
    case OP_SELECT: select_cells(a, b, operands[2], r); return;
    case OP_PHILOX: philox_cells(op->attr.index, a, b, operands[2], r); return;
    case OP_FMA: fma_cells(elem, s->exact, a, b, operands[2], r); break;
    default:
        if (ops[op->code].class == CLASS_UNARY)
            math_unary(op->code, elem, n, a->cells, sa, r->cells);
        else if (ops[op->code].class == CLASS_BINARY)
            math_binary(op->code, elem, n, a->cells, sa, b->cells, sb, r->cells);
        else
            math_compare(op->code, elem, n, a->cells, sa, b->cells, sb, r->cells);
    }
    if (to != DT_BOOL && !(s->exact && dtype_is_float(to))) math_round(to, n, r->cells);
}

bool interp_scalar(interp *s, const tile_op *op)
{
    value v = op->results[0];
    dtype to = s->kernel->values[v].type.elem;
    const tile *first = interp_get(s, op->operands[0]), *t[3] = {first, first, first};
    if (s->kernel->values[v].type.rank || op->flags & (F_INDEX | F_IMPLICIT | F_ASSIGN)) return false;
    for (int k = 0; k < op->operand_count; k++) {
        t[k] = interp_get(s, op->operands[k]);
        if (t[k]->poison || t[k]->type.rank) return false;
    }
    dtype from = t[0]->type.elem;
    bool is_float = dtype_is_float(to);
    cell r;
    switch (ops[op->code].class) {
    case CLASS_UNARY:
        if (op->code == OP_BITCAST) return false;
        if (op->code == OP_CONVERT)
            math_convert(from, to, s->exact, 1, &t[0]->one, 0, &r);
        else
            math_unary(op->code, from, 1, &t[0]->one, 0, &r);
        break;
    case CLASS_BINARY:
        if ((op->code == OP_DIV || op->code == OP_MOD) && !is_float && !t[1]->one.i) return false;
        math_binary(op->code, from, 1, &t[0]->one, 0, &t[1]->one, 0, &r);
        break;
    case CLASS_COMPARE: math_compare(op->code, from, 1, &t[0]->one, 0, &t[1]->one, 0, &r); break;
    default:
        if (op->code != OP_SELECT) return false;
        r = t[0]->one.i ? t[1]->one : t[2]->one;
    }
    if (to != DT_BOOL && !(s->exact && is_float)) math_round(to, 1, &r);
    if (s->check && is_float && !isfinite(r.f)) return false; /* it has a birth */
    tile *old = s->slots[v];
    if (old && old->uses == 1 && !old->birth && !s->set_at)
        old->one = r;
    else
        interp_set(s, v, tile_scalar(s, to, r));
    return true;
}

tile *interp_elementwise(interp *s, const tile_op *op)
{
    tile_type type = interp_resolve(s, op->results[0]);
    tile *r = tile_make(s, &type);
    CHECK(op->operand_count >= 1 && op->operand_count <= 3);
    tile *first = operand_for(s, op->operands[0], &type, r->count), *operands[3] = {first, first, first};
    for (int k = 1; k < op->operand_count; k++) operands[k] = operand_for(s, op->operands[k], &type, r->count);
    compute(s, op, r, operands);
    if (s->check) {
        spread_poison(s, op, r, operands);
        if (dtype_is_float(type.elem)) {
            if (has_nonfinite(r)) check_births(s, op, r, operands);
        } else {
            check_integers(s, op, r, operands);
        }
        if (op->flags & F_ASSIGN) check_assignment(s, op, r, operands);
    }
    for (int k = 0; k < op->operand_count; k++) tile_drop(s, operands[k]);
    return r;
}
