/*
 * The structure of products through a softmax: which nodes are a maximum, a sum of exponentials below it, their quotient,
 * a mask of positions, an output. Asks the graph alone; nothing is made here.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/scores_loops.h"

#include <math.h>

enum { FAR = SCORES_FAR };

static const graph_node *get(const score_graph *s, node n)
{
    return graph_get(s->g, n);
}

bool scores_is_map(const score_graph *s, node n, op_code code)
{
    return get(s, n)->code == GRAPH_MAP && get(s, n)->attr.map == code;
}

/* Through what only repeats or renames a value. */
node scores_behind(const score_graph *s, node n)
{
    for (;;) {
        const graph_node *x = get(s, n);
        bool same = x->code == GRAPH_DETACH || x->code == GRAPH_AGAIN || x->code == GRAPH_EXPAND;
        if (!same || s->leaves[n].given) return n;
        n = x->inputs[0];
    }
}

/* exp(x - m): the maximum m, where it is that of x along the last axis; else 0. */
node scores_maximum_of(const score_graph *s, node exponential)
{
    if (!scores_is_map(s, exponential, OP_EXP)) return 0;
    node below = get(s, exponential)->inputs[0];
    if (!scores_is_map(s, below, OP_SUB)) return 0;
    node x = get(s, below)->inputs[0], m = scores_behind(s, get(s, below)->inputs[1]);
    const graph_node *top = get(s, m);
    bool good = top->code == GRAPH_REDUCE && top->attr.fold == FOLD_MAX && top->inputs[0] == x;
    return good && top->attr.axis_set == 1u << (top->shape.rank - 1) ? m : 0;
}

/* A sum of exponentials below a maximum: the maximum, or 0. */
node scores_norm_maximum(const score_graph *s, node n)
{
    const graph_node *x = get(s, n);
    if (x->code != GRAPH_REDUCE || x->attr.fold != FOLD_SUM || s->leaves[n].given) return 0;
    node maximum = x->attr.axis_set == 1u << (x->shape.rank - 1) ? scores_maximum_of(s, x->inputs[0]) : 0;
    return maximum && !s->leaves[maximum].given ? maximum : 0;
}

static bool is_number(const score_graph *s, node n, double f)
{
    return get(s, n)->code == GRAPH_FULL && get(s, n)->attr.number.f == f;
}

score_weights scores_weights(const score_graph *s, node scores)
{
    score_weights w = {.factor = 1};
    for (;; scores = w.softmax) {
        const graph_node *x = get(s, scores);
        w.softmax = scores;
        if (x->code != GRAPH_MAP || s->leaves[scores].given) return w;
        if (x->attr.map == OP_CONVERT && dtype_is_float(x->elem)) {
            w.softmax = x->inputs[0];
        } else if (x->attr.map == OP_MUL && get(s, x->inputs[1])->code == GRAPH_FULL) {
            w.factor *= get(s, x->inputs[1])->attr.number.f;
            w.softmax = x->inputs[0];
        } else if (x->attr.map == OP_SELECT && !w.kept && is_number(s, x->inputs[2], 0)) {
            w.kept = x->inputs[0];
            w.softmax = x->inputs[1];
        } else {
            return w;
        }
    }
}

/* Is `from` computed from `to`? Inputs come before their nodes; too many ways count as yes. */
static bool depends_on(const score_graph *s, node from, node to, int *ways)
{
    if (from <= to || s->leaves[from].given) return from == to;
    if (--*ways < 0) return true;
    for (int i = 0; i < get(s, from)->input_count; i++)
        if (depends_on(s, get(s, from)->inputs[i], to, ways)) return true;
    return false;
}

/* Computed from random numbers, and from nothing that has more elements than one. */
static bool is_random(const score_graph *s, node n, bool *random, int *ways)
{
    const graph_node *x = get(s, n);
    if (s->leaves[n].given || --*ways < 0) return shape_count(&x->shape) == 1;
    *random |= x->code == GRAPH_MAP && x->attr.map == OP_PHILOX;
    for (int i = 0; i < x->input_count; i++)
        if (!is_random(s, x->inputs[i], random, ways)) return false;
    return true;
}

bool scores_is_drawn(const score_graph *s, node condition)
{
    enum { MANY = 256 };
    const shape *of = &get(s, condition)->shape;
    int ways = GRAPH_MOST_WAYS;
    bool random = false;
    return of->extents[of->rank - 1] >= MANY && is_random(s, condition, &random, &ways) && random;
}

bool scores_is_softmax(const score_graph *s, node scores, node *maximum, node *norm)
{
    int ways = GRAPH_MOST_WAYS;
    score_weights w = scores_weights(s, scores);
    /* The loop has exponentials that are not divided yet: what is kept by the weights themselves is known behind it. */
    if (w.kept && depends_on(s, w.kept, w.softmax, &ways)) return false;
    scores = w.softmax;
    if (!scores_is_map(s, scores, OP_DIV)) return false;
    node e = get(s, scores)->inputs[0];
    *norm = scores_behind(s, get(s, scores)->inputs[1]);
    *maximum = scores_maximum_of(s, e);
    return *maximum && scores_norm_maximum(s, *norm) == *maximum && get(s, *norm)->inputs[0] == e;
}

/* select(condition, x, -inf) around scores: the conditions; the scores inside. What is rounded on the way is not: the loops
 * compute in f32. */
node scores_inside_masks(const score_graph *s, node x, node *conditions, int *count, int most)
{
    for (;;) {
        node y = x;
        while (scores_is_map(s, y, OP_CONVERT) && !s->leaves[y].given &&
               dtype_is_float(get(s, get(s, y)->inputs[0])->elem))
            y = get(s, y)->inputs[0];
        if (!scores_is_map(s, y, OP_SELECT) || s->leaves[y].given || *count == most ||
            !is_number(s, get(s, y)->inputs[2], -INFINITY))
            return x;
        conditions[(*count)++] = get(s, y)->inputs[0];
        x = get(s, y)->inputs[1];
    }
}

/* ---- bands ---- */

static const score_band everywhere = {.lower = -FAR, .upper = FAR};

static score_band both(score_band a, score_band b)
{
    return (score_band){MAXIMUM(a.lower, b.lower), MINIMUM(a.upper, b.upper)};
}

static bool is_integer_number(const score_graph *s, node n, int64_t *out)
{
    const graph_node *x = get(s, scores_behind(s, n));
    *out = x->attr.number.i;
    return x->code == GRAPH_FULL && dtype_is_integer(x->elem) && *out > -FAR && *out < FAR;
}

/* A position along S (*axis 1) or along L (0), plus a number: an iota under views and additions of numbers. */
static bool find_position(const score_graph *s, node n, int *axis, int64_t *more)
{
    *more = 0;
    for (int depth = 0; depth < 16; depth++) {
        const graph_node *x = get(s, n);
        int64_t number;
        if (s->leaves[n].given) return false;
        if (x->code == GRAPH_RESHAPE && get(s, x->inputs[0])->code == GRAPH_IOTA) {
            int rank = x->shape.rank;
            for (int k = 1; k < 3 && k <= rank; k++) {
                *axis = 2 - k;
                if (x->shape.extents[rank - k] == shape_count(&x->shape) && x->shape.extents[rank - k] > 1) return true;
            }
            return false;
        }
        bool adds = x->code == GRAPH_MAP && (x->attr.map == OP_ADD || x->attr.map == OP_SUB);
        if (adds && is_integer_number(s, x->inputs[1], &number)) {
            *more += x->attr.map == OP_ADD ? number : -number;
        } else if (x->code == GRAPH_RESHAPE) { /* axes of one element in front */
            const shape *from = &get(s, x->inputs[0])->shape;
            if (from->rank < 2 || from->extents[from->rank - 1] != x->shape.extents[x->shape.rank - 1]) return false;
        } else if (x->code != GRAPH_EXPAND) {
            return false;
        }
        n = x->inputs[0];
    }
    return false;
}

/* Which j - i a condition leaves; everywhere where it is no comparison of positions. */
static score_band band_of(const score_graph *s, node condition, int *ways)
{
    if (--*ways < 0) return everywhere;
    for (;;) { /* [L, S] may have been given axes of one element in front */
        const graph_node *x = get(s, condition);
        if ((x->code != GRAPH_EXPAND && x->code != GRAPH_RESHAPE) || s->leaves[condition].given) break;
        condition = x->inputs[0];
    }
    const graph_node *x = get(s, condition);
    if (x->code != GRAPH_MAP || x->input_count != 2 || s->leaves[condition].given) return everywhere;
    op_code code = x->attr.map;
    if (code == OP_AND && x->elem == DT_BOOL)
        return both(band_of(s, x->inputs[0], ways), band_of(s, x->inputs[1], ways));
    if (code != OP_LE && code != OP_LT && code != OP_GE && code != OP_GT) return everywhere;
    int axis[2];
    int64_t more[2], number;
    const graph_node *difference = get(s, x->inputs[0]);
    node sides[2] = {x->inputs[0], x->inputs[1]};
    int64_t apart = 0; /* side 0 compare side 1 + apart */
    if (scores_is_map(s, x->inputs[0], OP_SUB) && is_integer_number(s, x->inputs[1], &number)) {
        sides[0] = difference->inputs[0];
        sides[1] = difference->inputs[1];
        apart = number;
    }
    for (int i = 0; i < 2; i++)
        if (!find_position(s, sides[i], &axis[i], &more[i])) return everywhere;
    if (axis[0] == axis[1]) return everywhere;
    apart += more[1] - more[0];
    bool below = code == OP_LE || code == OP_LT, strict = code == OP_LT || code == OP_GT;
    if (axis[0] == 0) { /* i compare j + apart: j reversed compare i - apart */
        below = !below;
        apart = -apart;
    }
    return below ? (score_band){-FAR, apart - strict} : (score_band){apart + strict, FAR};
}

score_band scores_band(const score_graph *s, node condition)
{
    int ways = GRAPH_MOST_WAYS;
    return band_of(s, condition, &ways);
}

static bool is_band(const score_graph *s, node condition, int *ways)
{
    const graph_node *x = get(s, condition);
    if (s->leaves[condition].given || --*ways < 0) return false;
    if (x->code == GRAPH_EXPAND || x->code == GRAPH_RESHAPE) return is_band(s, x->inputs[0], ways);
    if (x->code == GRAPH_MAP && x->attr.map == OP_AND)
        return is_band(s, x->inputs[0], ways) && is_band(s, x->inputs[1], ways);
    score_band band = band_of(s, condition, ways);
    return band.lower > -FAR || band.upper < FAR;
}

bool scores_is_band(const score_graph *s, node condition)
{
    int ways = GRAPH_MOST_WAYS;
    return is_band(s, condition, &ways);
}

static score_band band_of_masks(const score_graph *s, node x)
{
    node conditions[4];
    int count = 0;
    score_band band = everywhere;
    (void)scores_inside_masks(s, x, conditions, &count, COUNT(conditions));
    for (int i = 0; i < count; i++) band = both(band, scores_band(s, conditions[i]));
    return band;
}

static score_band band_at(const score_graph *s, node n, int *ways)
{
    const graph_node *x = get(s, n);
    if (--*ways < 0 || s->leaves[n].given || x->code != GRAPH_MAP) return everywhere;
    switch (x->attr.map) {
    case OP_MUL: return both(band_at(s, x->inputs[0], ways), band_at(s, x->inputs[1], ways));
    case OP_DIV:
    case OP_CONVERT:
    case OP_NEG: return band_at(s, x->inputs[0], ways);
    case OP_ADD:
    case OP_SUB: {
        score_band a = band_at(s, x->inputs[0], ways), b = band_at(s, x->inputs[1], ways);
        return (score_band){MINIMUM(a.lower, b.lower), MAXIMUM(a.upper, b.upper)};
    }
    case OP_SELECT:
        if (!is_number(s, x->inputs[2], 0)) return everywhere;
        return both(scores_band(s, x->inputs[0]), band_at(s, x->inputs[1], ways));
    case OP_EXP:
        return scores_maximum_of(s, n) ? band_of_masks(s, get(s, get(s, n)->inputs[0])->inputs[0]) : everywhere;
    default: return everywhere;
    }
}

score_band scores_vanish_outside(const score_graph *s, node n)
{
    int ways = GRAPH_MOST_WAYS;
    return band_at(s, n, &ways);
}

/* ---- outputs ---- */

int64_t scores_output_depth(const graph_node *x, const output_form *f)
{
    return x->shape.extents[x->shape.rank - (f->turned ? 2 : 1)];
}

static bool is_score_shape(const shape *s)
{
    return s->rank >= 2 && s->extents[s->rank - 1] > 1 && s->extents[s->rank - 2] > 1 && shape_count(s) > 0;
}

bool scores_form_of(const score_graph *s, node dot, int way, output_form *f)
{
    const graph_node *x = get(s, dot);
    int side = way / 2;
    bool swapped = way % 2;
    node operand = x->inputs[side];
    if (swapped) {
        if (!scores_swaps(get(s, operand)) || s->leaves[operand].given) return false;
        operand = get(s, operand)->inputs[0];
    }
    *f = (output_form){
        .scores = operand, .other = x->inputs[!side], .turned = side == 1, .columns = swapped != (side == 1)};
    int64_t depth = scores_output_depth(x, f);
    return get(s, operand)->code == GRAPH_MAP && !s->leaves[operand].given && is_score_shape(&get(s, operand)->shape) &&
           depth > 1 && depth <= SCORES_MOST_DEPTH;
}

/* ---- sums of rows ---- */

typedef struct row_factors {
    node dot, maximum, kept; /* kept: the condition outside of which it is 0, or 0 */
    double factor;
    bool good;
} row_factors;

static void find_factors(const score_graph *s, node n, int depth, row_factors *f)
{
    const graph_node *x = get(s, n);
    f->good &= depth < 24;
    if (!f->good) return;
    if (x->code == GRAPH_FULL) {
        f->factor *= x->attr.number.f;
    } else if (x->code == GRAPH_DOT && !f->dot && !s->leaves[n].given) {
        f->dot = n;
    } else if (x->code != GRAPH_MAP || s->leaves[n].given) {
        f->good = false;
    } else if (x->attr.map == OP_NEG || (x->attr.map == OP_CONVERT && dtype_is_float(x->elem))) {
        if (x->attr.map == OP_NEG) f->factor = -f->factor;
        find_factors(s, x->inputs[0], depth + 1, f);
    } else if (x->attr.map == OP_MUL) {
        find_factors(s, x->inputs[0], depth + 1, f);
        find_factors(s, x->inputs[1], depth + 1, f);
    } else if (x->attr.map == OP_SELECT && is_number(s, x->inputs[2], 0) && !f->kept) {
        f->kept = x->inputs[0];
        find_factors(s, x->inputs[1], depth + 1, f);
    } else if (x->attr.map == OP_DIV) { /* by the norm: a loop's exponentials are divided already */
        f->good &= scores_norm_maximum(s, scores_behind(s, x->inputs[1])) != 0;
        find_factors(s, x->inputs[0], depth + 1, f);
    } else {
        node maximum = scores_maximum_of(s, n);
        f->good &= maximum && !f->maximum;
        f->maximum = maximum;
    }
}

bool scores_row_product(const score_graph *s, node sum, row_product *out)
{
    const graph_node *x = get(s, sum);
    row_factors f = {.factor = 1, .good = true};
    find_factors(s, x->inputs[0], 0, &f);
    if (!f.good || !f.dot || !f.maximum) return false;
    node left = get(s, f.dot)->inputs[0], right = get(s, f.dot)->inputs[1];
    if (!scores_swaps(get(s, right)) || !is_score_shape(&get(s, f.dot)->shape)) return false;
    node values = get(s, right)->inputs[0];
    for (int turn = 0; turn < 2; turn++) /* best one that is computed anyway */
        for (node n = 1; (int)n < s->count; n++) {
            output_form form;
            node maximum, norm;
            const graph_node *y = get(s, n);
            if (!turn && !s->reached[n]) continue;
            if (y->code != GRAPH_DOT || y->inputs[1] != values || !scores_form_of(s, n, 0, &form)) continue;
            if (!scores_is_softmax(s, form.scores, &maximum, &norm) || maximum != f.maximum) continue;
            if (!shape_same(&y->shape, &get(s, left)->shape)) continue;
            score_weights w = scores_weights(s, form.scores);
            if (w.kept != f.kept || w.factor == 0) continue;
            *out = (row_product){.left = left, .output = n, .factor = f.factor / w.factor};
            return true;
        }
    return false;
}

/* ---- degrees ---- */

enum { ANY_DEGREE = 100, NO_DEGREE = 101, DEGREE_DEPTH = 48 };

static int joined(int a, int b)
{
    return a == ANY_DEGREE ? b : b == ANY_DEGREE || a == b ? a : NO_DEGREE;
}

static int degree_at(const score_graph *s, node n, int depth, signed char *known);

static int degree_of_map(const score_graph *s, node n, int depth, signed char *known)
{
    const graph_node *x = get(s, n);
    int degrees[3] = {0};
    if (x->attr.map == OP_EXP && scores_maximum_of(s, n)) return 1;
    for (int i = 0; i < x->input_count && i < 3; i++) {
        degrees[i] = degree_at(s, x->inputs[i], depth + 1, known);
        if (degrees[i] == NO_DEGREE) return NO_DEGREE;
    }
    bool any = degrees[0] == ANY_DEGREE || (x->input_count > 1 && degrees[1] == ANY_DEGREE);
    switch (x->attr.map) {
    case OP_MUL: return any ? ANY_DEGREE : degrees[0] + degrees[1];
    case OP_DIV: return any ? degrees[0] : degrees[0] - degrees[1];
    case OP_ADD:
    case OP_SUB: return joined(degrees[0], degrees[1]);
    case OP_NEG:
    case OP_CONVERT: return degrees[0];
    case OP_SELECT: return joined(degrees[0], 0) == 0 ? joined(degrees[1], degrees[2]) : NO_DEGREE;
    default: break;
    }
    for (int i = 0; i < x->input_count && i < 3; i++)
        if (joined(degrees[i], 0)) return NO_DEGREE;
    return 0;
}

static int degree_at(const score_graph *s, node n, int depth, signed char *known)
{
    const graph_node *x = get(s, n);
    if (known[n]) return known[n] - 1;
    if (s->leaves[n].given) return 0;
    if (depth > DEGREE_DEPTH) return NO_DEGREE;
    int degree = 0;
    if (x->code == GRAPH_FULL)
        degree = is_number(s, n, 0) ? ANY_DEGREE : 0;
    else if (x->code == GRAPH_MAP)
        degree = degree_of_map(s, n, depth, known);
    else if (x->code == GRAPH_REDUCE && x->attr.fold == FOLD_SUM)
        degree = degree_at(s, x->inputs[0], depth + 1, known);
    else if (x->code == GRAPH_DETACH || x->code == GRAPH_AGAIN || graph_ops[x->code].class == GRAPH_CLASS_MOVE)
        degree = degree_at(s, x->inputs[0], depth + 1, known);
    if (degree < -20 || degree > NO_DEGREE) degree = NO_DEGREE;
    if (degree >= 0) known[n] = (signed char)(degree + 1);
    return degree;
}

bool scores_keep_scale(const score_graph *s, node n, signed char *known)
{
    return joined(degree_at(s, n, 0, known), 0) == 0;
}
