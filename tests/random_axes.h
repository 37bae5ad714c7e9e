/*
 * Random programs over axes: windows, pads, reshapes, permutations, slices, expansions, flips, joins, folds and a little
 * arithmetic, of ranks 0 to 8 and of odd, tiny and empty extents. axes_draw(seed) writes a program together with its
 * values, which plain loops over doubles compute here; nothing of Quern's own interpreters is used. axes_build makes the
 * same program of tensors. Values are small integers, so that most results are exact; `exact` says which.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_RANDOM_AXES_H
#define QUERN_TESTS_RANDOM_AXES_H

#include <math.h>
#include <quern/tensor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AXES_STEPS = 24, AXES_RANK = 8, AXES_MOST_ELEMENTS = 12000, AXES_LARGEST = 1 << 20 };

typedef enum axes_kind {
    AXES_LEAF,
    AXES_WINDOW,
    AXES_PAD,
    AXES_RESHAPE,
    AXES_PERMUTE,
    AXES_EXPAND,
    AXES_SLICE,
    AXES_FLIP,
    AXES_CONCAT,
    AXES_FOLD,
    AXES_BINARY,
    AXES_UNARY,
    AXES_TAKE,
    AXES_CUMSUM,
    AXES_MATMUL
} axes_kind;

typedef enum axes_fold {
    AXES_SUM,
    AXES_MAX,
    AXES_MIN,
    AXES_MEAN,
    AXES_PROD,
    AXES_ARGMAX,
    AXES_ARGMIN,
    AXES_ANY,
    AXES_ALL
} axes_fold;

/* One step and its value, row-major. */
typedef struct axes_step {
    axes_kind kind;
    int a, b, axis, op; /* operands: earlier steps */
    unsigned set;       /* FLIP, FOLD: axes */
    bool keep;          /* FOLD */
    int times;          /* CONCAT: so often b behind a */
    int order[AXES_RANK];
    int64_t size, stride, dilation, start, stop;
    int64_t before[AXES_RANK], after[AXES_RANK];
    int64_t places[AXES_RANK]; /* TAKE */
    double number;             /* PAD, UNARY */
    int rank;
    int64_t extents[AXES_RANK], count;
    double *values;
    bool exact;
    bool is_bool;
} axes_step;

typedef struct axes_program {
    uint64_t state;
    qn_dtype type;
    bool deep;
    axes_step steps[AXES_STEPS];
    int count;
} axes_program;

static inline int axes_pick(axes_program *p, int count)
{
    p->state = p->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((p->state >> 33) % (uint64_t)count);
}

/* ---- values ---- */

static inline int64_t axes_count(const axes_step *s)
{
    int64_t count = 1;
    for (int k = 0; k < s->rank; k++) count *= s->extents[k];
    return count;
}

static inline void axes_unravel(const axes_step *s, int64_t at, int64_t *index)
{
    for (int k = s->rank - 1; k >= 0; k--) {
        index[k] = at % s->extents[k];
        at /= s->extents[k];
    }
}

static inline double axes_get(const axes_step *s, const int64_t *index)
{
    int64_t at = 0;
    for (int k = 0; k < s->rank; k++) at = at * s->extents[k] + index[k];
    return s->values[at];
}

static inline double axes_combine(axes_fold fold, double sum, double x, bool first)
{
    switch (fold) {
    case AXES_MAX: return first || x > sum ? x : sum;
    case AXES_MIN: return first || x < sum ? x : sum;
    case AXES_PROD: return first ? x : sum * x;
    case AXES_ANY: return first ? x != 0 : sum != 0 || x != 0;
    case AXES_ALL: return first ? x != 0 : sum != 0 && x != 0;
    default: return first ? x : sum + x;
    }
}

/* One element of a fold: all elements of x whose kept coordinates are those of the result. */
static inline double axes_fold_at(const axes_step *s, const axes_step *x, const int64_t *index)
{
    int64_t in[AXES_RANK] = {0}, position = 0, found = 0;
    double sum = s->op == AXES_PROD || s->op == AXES_ALL ? 1 : 0;
    bool first = true;
    for (int k = 0, at = 0; k < x->rank; k++) {
        bool folded = s->set >> k & 1;
        in[k] = folded ? 0 : index[at];
        at += !folded || s->keep;
    }
    int64_t folded_count = 1;
    for (int k = 0; k < x->rank; k++) folded_count *= s->set >> k & 1 ? x->extents[k] : 1;
    for (; position < folded_count; position++, first = false) {
        double value = axes_get(x, in);
        if (s->op == AXES_ARGMAX || s->op == AXES_ARGMIN) {
            bool better = s->op == AXES_ARGMAX ? value > sum : value < sum;
            if (first || better) found = position;
            if (first || better) sum = value;
        } else {
            sum = axes_combine((axes_fold)s->op, sum, value, first);
        }
        for (int k = x->rank - 1; k >= 0; k--) {
            if (!(s->set >> k & 1)) continue;
            if (++in[k] < x->extents[k]) break;
            in[k] = 0;
        }
    }
    if (s->op == AXES_ARGMAX || s->op == AXES_ARGMIN) return (double)found;
    return s->op == AXES_MEAN ? sum / (double)folded_count : sum;
}

static inline double axes_broadcast(const axes_step *x, const axes_step *result, const int64_t *index)
{
    int64_t in[AXES_RANK];
    for (int k = 0; k < x->rank; k++) in[k] = x->extents[k] == 1 ? 0 : index[result->rank - x->rank + k];
    return axes_get(x, in);
}

static inline double axes_arithmetic(int op, double x, double y)
{
    switch (op) {
    case 0: return x + y;
    case 1: return x - y;
    case 2: return x * y;
    default: return x > y ? x : y;
    }
}

static inline double axes_at(const axes_program *p, const axes_step *s, const int64_t *index, int64_t at)
{
    const axes_step *x = &p->steps[s->a], *y = &p->steps[s->b];
    int64_t in[AXES_RANK];
    for (int k = 0; k < AXES_RANK; k++) in[k] = k < s->rank ? index[k] : 0;
    switch (s->kind) {
    case AXES_LEAF: {
        uint64_t h = ((uint64_t)at + 17) * 0x9e3779b97f4a7c15u ^ (uint64_t)s->op * 0xbf58476d1ce4e5b9u;
        h = (h ^ h >> 29) * 0x94d049bb133111ebu;
        return (double)(int)((h >> 40) % 9) - 4;
    }
    case AXES_WINDOW: in[s->axis] = index[s->axis] * s->stride + index[s->rank - 1] * s->dilation; break;
    case AXES_PAD:
        for (int k = 0; k < s->rank; k++) {
            in[k] -= s->before[k];
            if (in[k] < 0 || in[k] >= x->extents[k]) return s->number;
        }
        break;
    case AXES_RESHAPE: return x->values[at];
    case AXES_PERMUTE:
        for (int k = 0; k < s->rank; k++) in[s->order[k]] = index[k];
        break;
    case AXES_EXPAND: return axes_broadcast(x, s, index);
    case AXES_SLICE: in[s->axis] = s->start + index[s->axis] * s->stride; break;
    case AXES_FLIP:
        for (int k = 0; k < s->rank; k++)
            if (s->set >> k & 1) in[k] = s->extents[k] - 1 - index[k];
        break;
    case AXES_CONCAT:
        if (in[s->axis] < x->extents[s->axis]) break;
        in[s->axis] = (in[s->axis] - x->extents[s->axis]) % y->extents[s->axis];
        return axes_get(y, in);
    case AXES_FOLD: return axes_fold_at(s, x, index);
    case AXES_BINARY: return axes_arithmetic(s->op, axes_broadcast(x, s, index), axes_broadcast(y, s, index));
    case AXES_UNARY: {
        double v = x->values[at];
        return s->op == 0 ? -v : s->op == 1 ? fabs(v) : s->op == 2 ? v + s->number : v * s->number;
    }
    case AXES_TAKE: in[s->axis] = s->places[index[s->axis]]; break;
    case AXES_CUMSUM: {
        double sum = 0;
        for (in [s->axis] = 0; in[s->axis] <= index[s->axis]; in[s->axis]++) sum += axes_get(x, in);
        return sum;
    }
    case AXES_MATMUL: { /* x with its own transpose */
        double sum = 0;
        int64_t other[AXES_RANK];
        memcpy(other, in, sizeof(other));
        other[s->rank - 2] = index[s->rank - 1];
        for (int64_t k = 0; k < x->extents[s->rank - 1]; k++) {
            in[s->rank - 1] = other[s->rank - 1] = k;
            sum += axes_get(x, in) * axes_get(x, other);
        }
        return sum;
    }
    }
    return axes_get(x, in);
}

/* The step's values, and whether the program may have it. */
static inline bool axes_add(axes_program *p, axes_step s)
{
    s.count = axes_count(&s);
    if (p->count == AXES_STEPS || s.rank > AXES_RANK || s.count > AXES_MOST_ELEMENTS) return false;
    s.values = calloc((size_t)s.count + 1, sizeof(double));
    bool fine = true;
    for (int64_t at = 0; at < s.count && fine; at++) {
        int64_t index[AXES_RANK];
        axes_unravel(&s, at, index);
        s.values[at] = axes_at(p, &s, index, at);
        fine = fabs(s.values[at]) < AXES_LARGEST;
    }
    if (fine)
        p->steps[p->count++] = s;
    else
        free(s.values);
    return fine;
}

/* ---- drawing ---- */

static inline int64_t axes_extent(axes_program *p)
{
    static const int extents[] = {1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 17};
    return axes_pick(p, 50) ? extents[axes_pick(p, (int)(sizeof(extents) / sizeof(extents[0])))] : 0;
}

static inline void axes_leaf(axes_program *p)
{
    axes_step s;
    do {
        s = (axes_step){.kind = AXES_LEAF, .exact = true, .op = p->count + 1, .rank = axes_pick(p, 8)};
        s.rank = p->deep ? 3 + axes_pick(p, 3) : s.rank == 7 ? 1 + axes_pick(p, 8) : s.rank;
        for (int k = 0; k < s.rank; k++) s.extents[k] = p->deep ? 1 + axes_pick(p, 6) : axes_extent(p);
    } while (axes_count(&s) > 1500 || !axes_add(p, s));
}

static inline axes_step axes_like(const axes_program *p, axes_kind kind, int a)
{
    axes_step s = {.kind = kind, .a = a, .b = a, .exact = p->steps[a].exact, .is_bool = p->steps[a].is_bool};
    s.rank = p->steps[a].rank;
    memcpy(s.extents, p->steps[a].extents, sizeof(s.extents));
    return s;
}

static inline void axes_draw_reshape(axes_program *p, axes_step *s)
{
    int64_t left = axes_count(s);
    if (!left) { /* any shape with a 0 in it */
        s->rank = 1 + axes_pick(p, 4);
        for (int k = 0; k < s->rank; k++) s->extents[k] = axes_extent(p);
        s->extents[axes_pick(p, s->rank)] = 0;
        return;
    }
    if (s->rank && axes_pick(p, 3) == 0) { /* neighbours become one */
        for (int k = s->rank - 1; k > 0; k--) {
            if (axes_pick(p, 2)) continue;
            s->extents[k - 1] *= s->extents[k];
            for (int i = k; i < s->rank - 1; i++) s->extents[i] = s->extents[i + 1];
            s->rank--;
        }
        return;
    }
    s->rank = 0;
    int most = 1 + axes_pick(p, AXES_RANK);
    while (left > 1 && s->rank < most) {
        int64_t factor = left;
        if (s->rank < most - 1)
            for (int64_t f = 2 + axes_pick(p, 5), tries = 0; tries < 12; tries++, f++)
                if (left % f == 0) {
                    factor = f;
                    break;
                }
        s->extents[s->rank++] = factor;
        left /= factor;
        if (s->rank < most && !axes_pick(p, 5)) s->extents[s->rank++] = 1;
    }
    if (left > 1) s->extents[s->rank - 1] *= left;
}

static inline bool axes_draw_slice(axes_program *p, axes_step *s)
{
    if (!s->rank) return false;
    s->axis = axes_pick(p, s->rank);
    int64_t extent = s->extents[s->axis];
    if (!extent) return false;
    int64_t by = 1 + axes_pick(p, 3), length = 1 + axes_pick(p, (int)((extent - 1) / by + 1));
    int64_t room = extent - ((length - 1) * by + 1), low = axes_pick(p, (int)room + 1);
    bool back = axes_pick(p, 3) == 0;
    s->start = back ? low + (length - 1) * by : low;
    s->stride = back ? -by : by;
    s->stop = s->start + s->stride * (length - 1) + (back ? -1 : 1);
    s->extents[s->axis] = length;
    return true;
}

static inline bool axes_draw_fold(axes_program *p, axes_step *s, const axes_step *x)
{
    if (!x->rank) return false;
    s->op = axes_pick(p, 9);
    s->keep = axes_pick(p, 2);
    bool position = s->op == AXES_ARGMAX || s->op == AXES_ARGMIN;
    if (position && (!x->exact || x->is_bool)) return false;
    if (x->is_bool && s->op != AXES_ANY && s->op != AXES_ALL) return false;
    if (position)
        s->set = axes_pick(p, 4) ? 1u << axes_pick(p, x->rank) : (1u << x->rank) - 1;
    else
        s->set = axes_pick(p, 6) ? (unsigned)(1 + axes_pick(p, (1 << x->rank) - 1)) : (1u << x->rank) - 1;
    int64_t folded = 1;
    int at = 0;
    for (int k = 0; k < x->rank; k++) {
        bool is_folded = s->set >> k & 1;
        folded *= is_folded ? x->extents[k] : 1;
        if (is_folded && !s->keep) continue;
        s->extents[at++] = is_folded ? 1 : x->extents[k];
    }
    s->rank = at;
    if (!folded && s->op != AXES_SUM && s->op != AXES_PROD && s->op != AXES_ANY && s->op != AXES_ALL) return false;
    if (s->op == AXES_PROD && folded > 6) return false;
    s->exact = x->exact && s->op != AXES_MEAN;
    s->is_bool = s->op == AXES_ANY || s->op == AXES_ALL;
    return true;
}

/* The shape of x with y, by NumPy's rules; false: there is none. */
static inline bool axes_meet(const axes_step *x, const axes_step *y, axes_step *s)
{
    s->rank = x->rank > y->rank ? x->rank : y->rank;
    for (int k = 0; k < s->rank; k++) {
        int i = k - (s->rank - x->rank), j = k - (s->rank - y->rank);
        int64_t a = i < 0 ? 1 : x->extents[i], b = j < 0 ? 1 : y->extents[j];
        if (a != b && a != 1 && b != 1) return false;
        s->extents[k] = a == 1 ? b : a;
    }
    return true;
}

static inline bool axes_draw_step(axes_program *p)
{
    /* Of everything; and movement upon movement before a fold, where one kernel has to follow all of it. */
    static const axes_kind any[] = {AXES_WINDOW,  AXES_WINDOW,  AXES_PAD,     AXES_PAD,    AXES_RESHAPE, AXES_RESHAPE,
                                    AXES_RESHAPE, AXES_PERMUTE, AXES_PERMUTE, AXES_EXPAND, AXES_SLICE,   AXES_SLICE,
                                    AXES_FLIP,    AXES_CONCAT,  AXES_FOLD,    AXES_FOLD,   AXES_FOLD,    AXES_BINARY,
                                    AXES_BINARY,  AXES_UNARY,   AXES_TAKE,    AXES_CUMSUM, AXES_MATMUL};
    static const axes_kind moves[] = {AXES_WINDOW,  AXES_WINDOW,  AXES_WINDOW,  AXES_WINDOW,  AXES_WINDOW,  AXES_PAD,
                                      AXES_RESHAPE, AXES_RESHAPE, AXES_RESHAPE, AXES_PERMUTE, AXES_PERMUTE, AXES_EXPAND,
                                      AXES_SLICE,   AXES_FLIP,    AXES_FOLD,    AXES_FOLD,    AXES_UNARY};
    int a = axes_pick(p, p->deep ? 12 : 3) ? p->count - 1 : axes_pick(p, p->count);
    axes_kind kind = p->deep ? moves[axes_pick(p, (int)(sizeof(moves) / sizeof(moves[0])))]
                             : any[axes_pick(p, (int)(sizeof(any) / sizeof(any[0])))];
    axes_step s = axes_like(p, kind, a);
    const axes_step *x = &p->steps[a];
    switch (s.kind) {
    case AXES_WINDOW: {
        if (!s.rank || s.rank == AXES_RANK) return false;
        s.axis = axes_pick(p, s.rank);
        s.size = 1 + axes_pick(p, 4);
        s.stride = 1 + axes_pick(p, 3);
        s.dilation = 1 + (axes_pick(p, 4) == 0);
        int64_t reach = (s.size - 1) * s.dilation + 1;
        if (reach > s.extents[s.axis]) return false;
        s.extents[s.axis] = (s.extents[s.axis] - reach) / s.stride + 1;
        s.extents[s.rank++] = s.size;
        break;
    }
    case AXES_PAD:
        if (s.is_bool) return false;
        s.number = axes_pick(p, 3) ? 0 : axes_pick(p, 5) - 2;
        for (int k = 0; k < s.rank; k++) {
            if (axes_pick(p, 2)) continue;
            s.before[k] = axes_pick(p, 4) - (s.extents[k] > 2);
            s.after[k] = axes_pick(p, 4) - (s.extents[k] > 2);
            s.extents[k] += s.before[k] + s.after[k];
            if (s.extents[k] < 0) return false;
        }
        break;
    case AXES_RESHAPE: axes_draw_reshape(p, &s); break;
    case AXES_PERMUTE:
        for (int k = 0; k < s.rank; k++) s.order[k] = k;
        for (int k = s.rank - 1; k > 0; k--) {
            int other = axes_pick(p, k + 1), swapped = s.order[k];
            s.order[k] = s.order[other];
            s.order[other] = swapped;
        }
        for (int k = 0; k < s.rank; k++) s.extents[k] = x->extents[s.order[k]];
        break;
    case AXES_EXPAND: {
        int front = s.rank < AXES_RANK ? axes_pick(p, 2) : 0;
        s.rank += front;
        for (int k = s.rank - 1; k >= 0; k--) {
            int64_t extent = k < front ? 1 : x->extents[k - front];
            s.extents[k] = extent == 1 && axes_pick(p, 3) ? axes_extent(p) : extent;
        }
        break;
    }
    case AXES_SLICE:
        if (!axes_draw_slice(p, &s)) return false;
        break;
    case AXES_FLIP:
        if (!s.rank) return false;
        s.set = (unsigned)(1 + axes_pick(p, (1 << s.rank) - 1));
        break;
    case AXES_CONCAT:
        if (!s.rank || s.is_bool) return false;
        s.axis = axes_pick(p, s.rank);
        s.b = axes_pick(p, 2) ? a : axes_pick(p, p->count);
        if (p->steps[s.b].rank != s.rank || p->steps[s.b].is_bool) return false;
        for (int k = 0; k < s.rank; k++)
            if (k != s.axis && p->steps[s.b].extents[k] != s.extents[k]) return false;
        s.times = 1 + (axes_pick(p, 4) ? 0 : axes_pick(p, 12));
        s.extents[s.axis] += s.times * p->steps[s.b].extents[s.axis];
        s.exact &= p->steps[s.b].exact;
        break;
    case AXES_FOLD:
        if (!axes_draw_fold(p, &s, x)) return false;
        break;
    case AXES_BINARY:
        s.b = axes_pick(p, p->count);
        s.op = axes_pick(p, 4);
        if (s.is_bool || p->steps[s.b].is_bool || !axes_meet(x, &p->steps[s.b], &s)) return false;
        s.exact &= p->steps[s.b].exact;
        break;
    case AXES_UNARY:
        s.op = axes_pick(p, 4);
        s.number = axes_pick(p, 5) - 2;
        if (s.is_bool) return false;
        break;
    case AXES_TAKE:
        if (!s.rank) return false;
        s.axis = axes_pick(p, s.rank);
        if (!s.extents[s.axis]) return false;
        s.size = 1 + axes_pick(p, AXES_RANK);
        for (int i = 0; i < s.size; i++) s.places[i] = axes_pick(p, (int)s.extents[s.axis]);
        s.extents[s.axis] = s.size;
        break;
    case AXES_CUMSUM:
        if (!s.rank || s.is_bool) return false;
        s.axis = axes_pick(p, s.rank);
        break;
    case AXES_MATMUL:
        if (s.rank < 2 || s.is_bool) return false;
        s.extents[s.rank - 1] = s.extents[s.rank - 2];
        break;
    default: return false;
    }
    return axes_add(p, s);
}

static inline axes_program *axes_draw(uint64_t seed)
{
    static const qn_dtype types[] = {QN_F32, QN_F32, QN_F32, QN_F64, QN_I32, QN_I64};
    axes_program *p = calloc(1, sizeof(*p));
    p->state = seed * 0x9e3779b97f4a7c15u + 12345;
    axes_pick(p, 2);
    p->type = types[axes_pick(p, 6)];
    p->deep = axes_pick(p, 2);
    for (int leaves = p->deep ? 1 : 1 + axes_pick(p, 2); leaves > 0; leaves--) axes_leaf(p);
    int wanted = p->count + 1 + axes_pick(p, 10);
    for (int tries = 0; p->count < wanted && tries < 400; tries++) axes_draw_step(p);
    bool folds = !p->deep; /* movement ends in a fold */
    for (int tries = 0; !folds && tries < 400; tries++)
        folds = axes_draw_step(p) && p->steps[p->count - 1].kind == AXES_FOLD;
    return p;
}

static inline void axes_free(axes_program *p)
{
    for (int i = 0; i < p->count; i++) free(p->steps[i].values);
    free(p);
}

#include "random_axes_tensors.h"

#endif
