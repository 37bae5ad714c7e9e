/*
 * Reductions, scans and dot. Float sums and products are kept in double and rounded once at the end: the truth that
 * devices approximate. Integers wrap. Poison must not get here: lowering selects identities first.
 * SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"

#include <math.h>
#include <string.h>

static bool has_poison(const tile *t)
{
    return t->poison && memchr(t->poison, 1, (size_t)t->count);
}

cell math_identity(fold_kind fold, dtype elem)
{
    cell c = {.i = 0};
    bool is_float = dtype_is_float(elem);
    int bits = dtypes[elem].size_bytes * 8;
    switch (fold) {
    case FOLD_SUM:
        if (is_float) c.f = 0;
        break;
    case FOLD_PROD:
        if (is_float)
            c.f = 1;
        else
            c.i = 1;
        break;
    case FOLD_MAX:
        if (is_float)
            c.f = -INFINITY;
        else if (dtypes[elem].kind == KIND_INT)
            c.i = (int64_t)(-(uint64_t)1 << (bits - 1));
        break;
    case FOLD_MIN:
        if (is_float)
            c.f = INFINITY;
        else if (elem == DT_BOOL)
            c.i = 1;
        else
            c.i = (int64_t)(~(uint64_t)0 >> (dtypes[elem].kind == KIND_INT ? 65 - bits : 64 - bits));
        break;
    case FOLD_ALL: c.i = 1; break;
    default: break;
    }
    return c;
}

/* Folds one more element in. Argmax and argmin: `best` is kept by the caller. */
cell math_fold(fold_kind fold, dtype elem, cell r, cell x)
{
    if (dtype_is_float(elem)) {
        switch (fold) {
        case FOLD_SUM: r.f += x.f; break;
        case FOLD_PROD: r.f *= x.f; break;
        case FOLD_MAX: r.f = isnan(r.f) || r.f >= x.f ? r.f : x.f; break;
        case FOLD_MIN: r.f = isnan(r.f) || r.f <= x.f ? r.f : x.f; break;
        default: break;
        }
        return r;
    }
    switch (fold) {
    case FOLD_SUM: r.i = (int64_t)((uint64_t)r.i + (uint64_t)x.i); break;
    case FOLD_PROD: r.i = (int64_t)((uint64_t)r.i * (uint64_t)x.i); break;
    case FOLD_MAX: r = math_less(elem, r, x) ? x : r; break;
    case FOLD_MIN: r = math_less(elem, x, r) ? x : r; break;
    case FOLD_ANY: r.i |= x.i != 0; break;
    case FOLD_ALL: r.i &= x.i != 0; break;
    default: break;
    }
    return r;
}

/* Whether x at a later position beats the best so far; NaN is the extreme. */
bool math_beats(fold_kind fold, dtype elem, cell x, cell best)
{
    if (dtype_is_float(elem)) {
        if (isnan(best.f)) return false;
        if (isnan(x.f)) return true;
    }
    return fold == FOLD_ARGMAX ? math_less(elem, best, x) : math_less(elem, x, best);
}

/* For each element of t, the position in the result of the reduction over the axes of the set. */
static int64_t *fold_targets(interp *s, const tile *t, unsigned axis_set)
{
    const tile_type *type = &t->type;
    int64_t steps[MAX_RANK] = {0}, step = 1, index[MAX_RANK] = {0}, at = 0;
    for (int axis = type->rank - 1; axis >= 0; axis--) {
        bool folds = axis_set >> axis & 1;
        steps[axis] = folds ? 0 : step;
        if (!folds) step *= type->dims[axis];
    }
    int64_t *to = buffer_take(s, sizeof(int64_t) * (size_t)t->count);
    for (int64_t j = 0; j < t->count; j++) {
        to[j] = at;
        for (int axis = type->rank - 1; axis >= 0; axis--) {
            at += steps[axis];
            if (++index[axis] < type->dims[axis]) break;
            at -= steps[axis] * type->dims[axis];
            index[axis] = 0;
        }
    }
    return to;
}

static void fold_arguments(interp *s, const tile_op *op, const tile *t, const int64_t *to, tile *r)
{
    dtype elem = t->type.elem;
    int64_t n = r->count, inner = 1, extent = t->count;
    if (t->type.rank) { /* the position counts along the one folded axis, or over everything in order */
        int folded = 0, axis = 0;
        for (int k = 0; k < t->type.rank; k++)
            if (op->attr.axis_set >> k & 1) folded++, axis = k;
        if (folded == 1) {
            for (int k = axis + 1; k < t->type.rank; k++) inner *= t->type.dims[k];
            extent = t->type.dims[axis];
        }
    }
    cell *best = buffer_take(s, sizeof(cell) * (size_t)n);
    for (int64_t j = 0; j < n; j++) r->cells[j].i = -1;
    for (int64_t j = 0; j < t->count; j++) {
        cell *position = &r->cells[to[j]];
        if (position->i >= 0 && !math_beats(op->attr.fold, elem, t->cells[j], best[to[j]])) continue;
        position->i = j / inner % extent;
        best[to[j]] = t->cells[j];
    }
    buffer_give(s, best);
}

/* A result that is not finite has the birth of the first element that explains it, or is born here. */
static void fold_births(interp *s, const tile_op *op, const tile *t, const int64_t *to, tile *r)
{
    int32_t *birth = birth_table(s, r);
    int32_t here = (int32_t)op->results[0];
    for (int64_t j = 0; j < r->count; j++)
        if (!isfinite(r->cells[j].f)) birth[j] = here;
    if (!t->birth) return;
    for (int64_t j = t->count - 1; j >= 0; j--) { /* backwards: the first one stays */
        double x = t->cells[j].f, result = r->cells[to[j]].f;
        if (isfinite(x) || isfinite(result)) continue;
        if (isnan(x) || isinf(result)) birth[to[j]] = t->birth[j];
    }
}

tile *interp_reduce(interp *s, const tile_op *op)
{
    tile *t = interp_get(s, op->operands[0]);
    tile_type type = interp_resolve(s, op->results[0]);
    fold_kind fold = op->attr.fold;
    if (has_poison(t)) {
        interp_poisoned(s, "a reduction");
        return NULL;
    }
    tile *r = tile_make(s, &type);
    dtype elem = t->type.elem;
    int64_t n = t->count;
    int64_t *to = r->count == 1 ? NULL : fold_targets(s, t, op->attr.axis_set);
    int64_t *zeros = NULL;
    if (fold == FOLD_ARGMAX || fold == FOLD_ARGMIN || (!to && s->check)) {
        if (!to) {
            zeros = buffer_take(s, sizeof(int64_t) * (size_t)n);
            memset(zeros, 0, sizeof(int64_t) * (size_t)n);
        }
    }
    if (fold == FOLD_ARGMAX || fold == FOLD_ARGMIN) {
        fold_arguments(s, op, t, to ? to : zeros, r);
    } else {
        cell start = math_identity(fold, elem);
        for (int64_t j = 0; j < r->count; j++) r->cells[j] = start;
        if (!to && fold == FOLD_SUM && dtype_is_float(elem)) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++) sum += t->cells[j].f;
            r->one.f = sum;
        } else if (!to) {
            cell all = start;
            for (int64_t j = 0; j < n; j++) all = math_fold(fold, elem, all, t->cells[j]);
            r->one = all;
        } else {
            for (int64_t j = 0; j < n; j++) r->cells[to[j]] = math_fold(fold, elem, r->cells[to[j]], t->cells[j]);
        }
        if (!(s->exact && dtype_is_float(type.elem))) math_round(type.elem, r->count, r->cells);
        if (s->check && dtype_is_float(type.elem) && has_nonfinite(r)) fold_births(s, op, t, to ? to : zeros, r);
    }
    buffer_give(s, to);
    buffer_give(s, zeros);
    return r;
}

static void scan_births(interp *s, const tile_op *op, const tile *t, int64_t extent, int64_t inner, tile *r)
{
    int32_t *birth = birth_table(s, r);
    for (int64_t j = 0; j < r->count; j++) {
        if (isfinite(r->cells[j].f)) continue;
        const tile *tiles[2] = {t, r};
        int64_t at[2] = {j, j - inner};
        birth[j] = birth_pick(r->cells[j].f, (int32_t)op->results[0], j / inner % extent ? 2 : 1, tiles, at);
    }
}

tile *interp_scan(interp *s, const tile_op *op)
{
    tile *t = interp_get(s, op->operands[0]);
    if (has_poison(t)) {
        interp_poisoned(s, "a scan");
        return NULL;
    }
    tile_type type = interp_resolve(s, op->results[0]);
    tile *r = tile_make(s, &type);
    int64_t inner = 1, extent = type.dims[op->attr.index];
    for (int axis = op->attr.index + 1; axis < type.rank; axis++) inner *= type.dims[axis];
    int64_t slab = extent * inner, outer = slab ? r->count / slab : 0;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < inner; i++) {
            cell sum = math_identity(op->attr.fold, type.elem);
            for (int64_t e = 0; e < extent; e++) {
                int64_t at = (o * extent + e) * inner + i;
                r->cells[at] = sum = math_fold(op->attr.fold, type.elem, sum, t->cells[at]);
            }
        }
    }
    if (!(s->exact && dtype_is_float(type.elem))) math_round(type.elem, r->count, r->cells);
    if (s->check && outer && dtype_is_float(type.elem) && has_nonfinite(r)) scan_births(s, op, t, extent, inner, r);
    return r;
}

static void dot_births(interp *s, const tile_op *op, const tile *a, const tile *b, const tile *c, int64_t m, int64_t n,
                       int64_t k, tile *r)
{
    int32_t *birth = birth_table(s, r);
    for (int64_t j = 0; j < r->count; j++) {
        double x = r->cells[j].f;
        if (isfinite(x)) continue;
        int64_t column = j % n, row = j / n % m, batch = j / (m * n);
        int32_t here = (int32_t)op->results[0], found = here;
        if (c) {
            const tile *tiles[1] = {c};
            found = birth_pick(x, here, 1, tiles, &j);
        }
        for (int64_t i = 0; i < k && found == here; i++) {
            const tile *tiles[2] = {a, b};
            int64_t at[2] = {(batch * m + row) * k + i, (batch * k + i) * n + column};
            found = birth_pick(x, here, 2, tiles, at);
        }
        birth[j] = found;
    }
}

tile *interp_dot(interp *s, const tile_op *op)
{
    const tile *a = interp_get(s, op->operands[0]), *b = interp_get(s, op->operands[1]);
    const tile *c = op->operand_count > 2 ? interp_get(s, op->operands[2]) : NULL;
    if (has_poison(a) || has_poison(b)) {
        interp_poisoned(s, "an operand of dot");
        return NULL;
    }
    tile_type type = interp_resolve(s, op->results[0]);
    tile *r = tile_make(s, &type);
    int last = type.rank - 1;
    int64_t m = type.dims[last - 1], n = type.dims[last], k = a->type.dims[last];
    int64_t batches = r->count && m && n ? r->count / (m * n) : 0;
    bool is_float = dtype_is_float(type.elem);
    for (int64_t j = 0; j < r->count; j++) {
        if (c)
            r->cells[j] = c->cells[j];
        else if (is_float)
            r->cells[j].f = 0;
        else
            r->cells[j].i = 0;
    }
    for (int64_t batch = 0; batch < batches; batch++) {
        for (int64_t row = 0; row < m; row++) {
            cell *to = r->cells + (batch * m + row) * n;
            for (int64_t i = 0; i < k; i++) {
                cell x = a->cells[(batch * m + row) * k + i];
                const cell *y = b->cells + (batch * k + i) * n;
                if (is_float)
                    for (int64_t j = 0; j < n; j++) to[j].f += x.f * y[j].f;
                else
                    for (int64_t j = 0; j < n; j++)
                        to[j].i = (int64_t)((uint64_t)to[j].i + (uint64_t)x.i * (uint64_t)y[j].i);
            }
        }
    }
    if (!(s->exact && is_float)) math_round(type.elem, r->count, r->cells);
    if (s->check && c && c->poison) {
        r->poison = buffer_take(s, (size_t)r->count);
        memcpy(r->poison, c->poison, (size_t)r->count);
    }
    if (s->check && is_float && has_nonfinite(r)) dot_births(s, op, a, b, c, m, n, k, r);
    return r;
}
