/*
 * Arithmetic on scores as statements of the language. In: a node of the shape of the scores. Out: declarations of tiles
 * [BM][BN] (or [BM][1], [1][BN], scalars), sorted by whether they depend on the rows i, the columns j or both, and the
 * arrays they read as parameters.
 *
 * A node is met with a map from its axes to those of the scores; views only change the map. What is no arithmetic and no
 * view is an array: it lies in memory when the kernel runs.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/scores.h"
#include "lang/ast.h"

#include <math.h>
#include <string.h>

void scores_begin(scores_text *t, arena *memory, const graph *g, const fuse_leaf *leaves, const bool *is_root,
                  const fuse_options *options, const shape *scores)
{
    *t = (scores_text){
        .memory = memory, .g = g, .leaves = leaves, .is_root = is_root, .options = options, .scores = *scores};
}

void scores_end(scores_text *t)
{
    text_free(&t->parameters);
    text_free(&t->constants);
    text_free(&t->neither);
    text_free(&t->rows);
    text_free(&t->columns);
    text_free(&t->both);
}

const char *scores_type(dtype elem)
{
    return dtypes[elem].text;
}

/* In registers: fused arithmetic does not round in between. */
static dtype register_type(const graph_node *x)
{
    return dtype_is_narrow(x->elem) && !(x->code == GRAPH_MAP && x->attr.map == OP_CONVERT) ? DT_F32 : x->elem;
}

static const char *refuse(scores_text *t, const char *why)
{
    if (!t->refused) t->refused = why;
    return "";
}

bool scores_swaps(const graph_node *x)
{
    int rank = x->shape.rank;
    if (x->code != GRAPH_PERMUTE || rank < 2) return false;
    for (int k = 0; k < rank - 2; k++)
        if (x->attr.axes[k] != k) return false;
    return x->attr.axes[rank - 2] == rank - 1 && x->attr.axes[rank - 1] == rank - 2;
}

/* ---- parameters ---- */

static bool is_given(const scores_text *t, node n)
{
    return t->leaves[n].given || graph_get(t->g, n)->code == GRAPH_LEAF;
}

void scores_one(scores_text *t)
{
    if (!t->one) text_add(&t->constants, ", const int ONE = 1");
    t->one = true;
}

/* The parameter of a node, with the names of its extents; whole: an axis that is taken whole, of `depth` elements, or -1. */
static const char *array_of(scores_text *t, node n, const signed char *axes, int whole, int64_t depth)
{
    const graph_node *x = graph_get(t->g, n);
    int rank = t->scores.rank;
    for (int i = 0; i < t->array_count; i++)
        if (t->arrays[i] == n && !memcmp(t->array_axes[i], axes, GRAPH_RANK)) return arena_print(t->memory, "x%d", i);
    if (t->array_count == SCORES_ARRAYS) return refuse(t, "it reads too many arrays");
    int number = t->array_count++;
    t->arrays[number] = n;
    memcpy(t->array_axes[number], axes, GRAPH_RANK);
    text_print(&t->parameters, "%sin %s x%d", number ? ", " : "", scores_type(x->elem), number);
    for (int k = 0; k < x->shape.rank; k++) {
        if (k == whole)
            text_print(&t->parameters, "[D%d]", number);
        else if (axes[k] == rank - 2)
            text_add(&t->parameters, "[L]");
        else if (axes[k] == rank - 1)
            text_add(&t->parameters, "[S]");
        else if (axes[k] >= 0)
            text_print(&t->parameters, "[B%d]", axes[k]);
        else if (x->shape.extents[k] == 1)
            text_add(&t->parameters, "[ONE]"), scores_one(t);
        else
            text_print(&t->parameters, "[U%d_%d]", number, k);
    }
    t->array_depth[number] = whole >= 0 ? depth : 0;
    if (whole >= 0) text_print(&t->constants, ", const int D%d = %lld", number, (long long)depth);
    return arena_print(t->memory, "x%d", number);
}

/* ---- values ---- */

static scores_value *declare(scores_text *t, node n, const signed char *axes, bool rows, bool columns,
                             const char *expression)
{
    if (t->value_count == SCORES_STATEMENTS) {
        refuse(t, "the kernel would be too long");
        return NULL;
    }
    const graph_node *x = graph_get(t->g, n);
    scores_value *v = &t->values[t->value_count++];
    *v = (scores_value){.n = n, .rows = rows, .columns = columns};
    memcpy(v->axes, axes, sizeof(v->axes));
    v->name = arena_print(t->memory, "v%d", t->value_count);
    text *out = rows && columns ? &t->both : columns ? &t->columns : rows ? &t->rows : &t->neither;
    text_print(out, "        %s%s %s = %s;\n", rows || columns ? "tile " : "", scores_type(register_type(x)), v->name,
               expression);
    return v;
}

static const scores_value *find(const scores_text *t, node n, const signed char *axes)
{
    for (int i = 0; i < t->value_count; i++)
        if (t->values[i].n == n && !memcmp(t->values[i].axes, axes, sizeof(t->values[i].axes))) return &t->values[i];
    return NULL;
}

static const scores_value *value_of(scores_text *t, node n, const signed char *axes);

/* A sum of exponentials: those of a loop are below its logarithm instead of a maximum, so that it is 1. */
static bool is_norm(const scores_text *t, node n)
{
    score_graph s = {.g = t->g, .leaves = t->leaves};
    for (;;) {
        const graph_node *x = graph_get(t->g, n);
        bool same = x->code == GRAPH_DETACH || x->code == GRAPH_AGAIN || x->code == GRAPH_EXPAND;
        if (!same || is_given(t, n)) break;
        n = x->inputs[0];
    }
    return n != t->second && !is_given(t, n) && scores_norm_maximum(&s, n);
}

/* An array read at the block, as [BM or 1][BN or 1]. */
static const scores_value *load(scores_text *t, node n, const signed char *axes)
{
    const graph_node *x = graph_get(t->g, n);
    int rank = t->scores.rank, row = -1, column = -1;
    for (int k = 0; k < x->shape.rank; k++) {
        if (axes[k] == rank - 2) row = k;
        if (axes[k] == rank - 1) column = k;
    }
    const char *name = array_of(t, n, axes, -1, 0);
    text access = {0};
    text_add(&access, name);
    bool turned = row >= 0 && column >= 0 && row > column;
    for (int k = 0; k < x->shape.rank; k++) {
        if (k == column && row < 0) text_add(&access, "[]");
        if (k == row)
            text_add(&access, "[i : BM]");
        else if (k == column)
            text_add(&access, "[j : BN]");
        else if (axes[k] >= 0)
            text_print(&access, "[b%d]", axes[k]);
        else
            text_add(&access, "[0]");
        if (k == row && column < 0) text_add(&access, "[]");
    }
    const char *words = arena_print(t->memory, turned ? "transpose(%s)" : "%s", text_get(&access));
    text_free(&access);
    t->reads_scores |= column >= 0;
    return declare(t, n, axes, row >= 0, column >= 0, words);
}

/* Heads that share their keys: an expand of axes before the last two. */
static bool repeats_batches(const scores_text *t, const graph_node *x)
{
    if (x->code != GRAPH_EXPAND) return false;
    const shape *from = &graph_get(t->g, x->inputs[0])->shape;
    int rank = x->shape.rank;
    return from->rank == rank && from->extents[rank - 1] == x->shape.extents[rank - 1] &&
           from->extents[rank - 2] == x->shape.extents[rank - 2];
}

const char *scores_operand(scores_text *t, node n, int kept, bool contracted_first, bool *turned)
{
    for (;;) { /* one array, however often and by however many heads it is read */
        const graph_node *y = graph_get(t->g, n);
        if (is_given(t, n) || (!scores_swaps(y) && !repeats_batches(t, y))) break;
        if (scores_swaps(y)) contracted_first = !contracted_first;
        n = y->inputs[0];
    }
    const graph_node *x = graph_get(t->g, n);
    signed char axes[GRAPH_RANK];
    memset(axes, -1, sizeof(axes));
    /* Turned so that its last axis is the one that neighbours in memory lie along, as far as that is known. */
    bool swapped = x->code == GRAPH_PERMUTE && x->attr.axes[x->shape.rank - 2] == x->shape.rank - 1 && !is_given(t, n);
    int rank = x->shape.rank, whole = contracted_first != swapped ? rank - 2 : rank - 1, block = 2 * rank - 3 - whole;
    for (int k = 0; k < rank - 2; k++) axes[k] = (signed char)(x->shape.extents[k] == t->scores.extents[k] ? k : -1);
    axes[block] = (signed char)(t->scores.rank - 2 + kept);
    *turned = whole < block;                /* the tile is [whole][block] */
    axes[whole] = (signed char)(-2 - kept); /* told apart from other uses of the same array */
    const scores_value *known = find(t, n, axes);
    if (known) return known->name;
    const char *name = array_of(t, n, axes, whole, x->shape.extents[swapped ? block : whole]);
    if (!t->refused) t->array_turned[t->array_count - 1] |= swapped;
    text access = {0};
    text_add(&access, name);
    for (int k = 0; k < rank; k++) {
        if (k < rank - 2 && axes[k] < 0)
            text_add(&access, "[0]");
        else if (k < rank - 2)
            text_print(&access, "[b%d]", k);
        else
            text_add(&access, k == whole ? "[:]" : kept ? "[j : BN]" : "[i : BM]");
    }
    if (t->value_count == SCORES_STATEMENTS) {
        text_free(&access);
        return refuse(t, "the kernel would be too long");
    }
    scores_value *v = &t->values[t->value_count++];
    *v = (scores_value){.n = n, .rows = !kept, .columns = kept};
    memcpy(v->axes, axes, sizeof(axes));
    v->name = arena_print(t->memory, "v%d", t->value_count);
    text_print(kept ? &t->columns : &t->rows, "        tile %s %s = %s;\n", scores_type(x->elem), v->name,
               text_get(&access));
    text_free(&access);
    return v->name;
}

/* A product of scores: rows of one operand times columns of the other. */
static const scores_value *score_product(scores_text *t, node n, const signed char *axes)
{
    const graph_node *x = graph_get(t->g, n);
    bool left_turned, right_turned;
    int rank = t->scores.rank;
    for (int k = 0; k < rank; k++)
        if (axes[k] != k) return refuse(t, "a product of scores is turned"), NULL;
    const char *left = scores_operand(t, x->inputs[0], 0, false, &left_turned);
    const char *right = scores_operand(t, x->inputs[1], 1, true, &right_turned);
    bool narrow = x->attr.index && graph_get(t->g, x->inputs[0])->elem == DT_F32;
    const char *form[2] = {left_turned ? "transpose(%s)" : "%s", right_turned ? "%s" : "transpose(%s)"};
    const char *words[2] = {arena_print(t->memory, form[0], left), arena_print(t->memory, form[1], right)};
    for (int i = 0; i < 2 && narrow; i++) words[i] = arena_print(t->memory, "tf32(%s)", words[i]);
    t->products++;
    t->depth += graph_get(t->g, x->inputs[0])->shape.extents[rank - 1];
    return declare(t, n, axes, true, true, arena_print(t->memory, "dot(%s, %s)", words[0], words[1]));
}

static const char *constant_words(scores_text *t, const graph_node *x)
{
    double f = x->attr.number.f;
    if (x->elem == DT_BOOL) return x->attr.number.i ? "true" : "false";
    if (!dtype_is_float(x->elem)) return arena_print(t->memory, "(%lld)", (long long)x->attr.number.i);
    if (isnan(f)) return refuse(t, "a constant is no number");
    t->infinite |= isinf(f);
    if (isinf(f)) return f < 0 ? "(-inf)" : "inf";
    text words = {0};
    text_print(&words, "%.17g", f);
    const char *digits = text_get(&words);
    const char *out = arena_print(t->memory, strpbrk(digits, ".e") ? "(%s)" : "(%s.0)", digits);
    text_free(&words);
    return out;
}

/* The text of an elementwise op, with %s for its operands; NULL: the language has none. */
static const char *op_form(const graph_node *x)
{
    static const struct {
        op_code code;
        const char *form;
    } forms[] = {{OP_ADD, "%s + %s"},     {OP_SUB, "%s - %s"},     {OP_MUL, "%s * %s"},
                 {OP_DIV, "%s / %s"},     {OP_LT, "%s < %s"},      {OP_LE, "%s <= %s"},
                 {OP_GT, "%s > %s"},      {OP_GE, "%s >= %s"},     {OP_EQ, "%s == %s"},
                 {OP_NE, "%s != %s"},     {OP_AND, "%s & %s"},     {OP_OR, "%s | %s"},
                 {OP_XOR, "%s ^ %s"},     {OP_NEG, "-%s"},         {OP_MOD, "%s %% %s"},
                 {OP_MIN, "min(%s, %s)"}, {OP_MAX, "max(%s, %s)"}, {OP_SELECT, "where(%s, %s, %s)"}};
    for (int i = 0; i < COUNT(forms); i++)
        if (forms[i].code == x->attr.map) return forms[i].form;
    if (x->attr.map == OP_NOT) return x->elem == DT_BOOL ? "!%s" : "~%s";
    const builtin *b = builtin_find(ops[x->attr.map].text);
    bool known = b && b->op == x->attr.map && x->input_count == 1;
    return known ? "call" : NULL;
}

static const char *op_words(scores_text *t, const graph_node *x, const char *const *in)
{
    const char *form = op_form(x);
    if (x->attr.map == OP_CONVERT) return arena_print(t->memory, "%s(%s)", scores_type(x->elem), in[0]);
    if (x->attr.map == OP_PHILOX)
        return arena_print(t->memory, "philox(%s, %s, %s, %d)", in[0], in[1], in[2], x->attr.index);
    if (!form) return refuse(t, "the language has no such op");
    if (!strcmp(form, "call")) return arena_print(t->memory, "%s(%s)", ops[x->attr.map].text, in[0]);
    return x->input_count == 1   ? arena_print(t->memory, form, in[0])
           : x->input_count == 2 ? arena_print(t->memory, form, in[0], in[1])
                                 : arena_print(t->memory, form, in[0], in[1], in[2]);
}

static const scores_value *arithmetic(scores_text *t, node n, const signed char *axes)
{
    const graph_node *x = graph_get(t->g, n);
    const char *in[3] = {"", "", ""};
    bool rows = false, columns = false;
    if (x->attr.map == OP_DIV && is_norm(t, x->inputs[1])) return value_of(t, x->inputs[0], axes);
    if (x->input_count > 3) return refuse(t, "the language has no such op"), NULL;
    for (int i = 0; i < x->input_count; i++) {
        const graph_node *y = graph_get(t->g, x->inputs[i]);
        if (y->code == GRAPH_FULL) {
            in[i] = constant_words(t, y);
            if (y->elem == DT_F64) in[i] = arena_print(t->memory, "f64(%s)", in[i]);
            continue;
        }
        const scores_value *v = value_of(t, x->inputs[i], axes);
        if (!v) return NULL;
        in[i] = v->name;
        rows |= v->rows;
        columns |= v->columns;
    }
    const char *words = op_words(t, x, in);
    return t->refused ? NULL : declare(t, n, axes, rows, columns, words);
}

/* A reshape that only puts in or takes out axes of one element. */
static bool map_reshape(const scores_text *t, const graph_node *x, const signed char *axes, signed char *inner)
{
    const shape *to = &x->shape, *from = &graph_get(t->g, x->inputs[0])->shape;
    int at = 0;
    memset(inner, -1, GRAPH_RANK);
    for (int k = 0; k < from->rank; k++) {
        if (from->extents[k] == 1) continue;
        while (at < to->rank && to->extents[at] == 1) at++;
        if (at == to->rank || to->extents[at] != from->extents[k]) return false;
        inner[k] = axes[at++];
    }
    while (at < to->rank && to->extents[at] == 1) at++;
    return at == to->rank;
}

/* Does every element of it lie in memory already, where a view finds it? */
static bool is_view_of_memory(const scores_text *t, node n)
{
    for (int guard = 0; guard < 32; guard++) {
        if (is_given(t, n)) return true;
        const graph_node *x = graph_get(t->g, n);
        if (x->input_count != 1 || graph_ops[x->code].class != GRAPH_CLASS_MOVE) return false;
        n = x->inputs[0];
    }
    return false;
}

/* One number a row of scores: a maximum or a sum along S. */
static bool is_statistic(const scores_text *t, node n, const signed char *axes)
{
    const graph_node *x = graph_get(t->g, n);
    int rank = t->scores.rank;
    if (x->code != GRAPH_REDUCE || x->shape.rank != rank || x->attr.axis_set != 1u << (rank - 1)) return false;
    if (x->attr.fold != FOLD_MAX && x->attr.fold != FOLD_SUM) return false;
    for (int k = 0; k < rank - 1; k++)
        if (axes[k] != k && t->scores.extents[k] != 1) return false;
    return shape_same(&graph_get(t->g, x->inputs[0])->shape, &t->scores);
}

static bool has_positions(const scores_text *t, node n, int *ways)
{
    const graph_node *x = graph_get(t->g, n);
    if (is_given(t, n)) return false;
    if (x->code == GRAPH_IOTA || x->code == GRAPH_DOT || --*ways < 0) return true;
    for (int i = 0; i < x->input_count; i++)
        if (has_positions(t, x->inputs[i], ways)) return true;
    return false;
}

/* Truths that are computed from other arrays lie in memory before the matrix units' loop runs, where they are few beside
 * the scores: a mask of tokens, for all heads and rows. */
static bool is_mask_beside(const scores_text *t, node n)
{
    enum { FEW = 2 };
    const graph_node *x = graph_get(t->g, n);
    int ways = GRAPH_MOST_WAYS;
    return x->elem == DT_BOOL && t->options->gpu && t->options->arch == 90 &&
           shape_count(&x->shape) <= shape_count(&t->scores) / FEW && !has_positions(t, n, &ways);
}

/* The row-major number of an element of the scores. */
static const scores_value *element_number(scores_text *t, node n, const signed char *axes)
{
    const graph_node *x = graph_get(t->g, n);
    const char *words = NULL;
    int rank = t->scores.rank;
    bool rows = false, columns = false;
    for (int k = 0; k < x->shape.rank; k++) {
        if (x->shape.extents[k] == 1) continue;
        if (axes[k] < 0) return refuse(t, "elements are counted along other axes"), NULL;
        const char *at = axes[k] == rank - 2   ? "(i + iota(BM))[:][]"
                         : axes[k] == rank - 1 ? "(j + iota(BN))[][:]"
                                               : arena_print(t->memory, "b%d", axes[k]);
        rows |= axes[k] == rank - 2;
        columns |= axes[k] == rank - 1;
        const char *extent = axes[k] == rank - 2   ? "L"
                             : axes[k] == rank - 1 ? "S"
                                                   : arena_print(t->memory, "B%d", axes[k]);
        words = words ? arena_print(t->memory, "(%s) * %s + %s", words, extent, at) : at;
    }
    return declare(t, n, axes, rows, columns, words ? words : "0");
}

static const scores_value *value_of(scores_text *t, node n, const signed char *axes)
{
    const graph_node *x = graph_get(t->g, n);
    const scores_value *known = find(t, n, axes);
    signed char inner[GRAPH_RANK];
    int rank = t->scores.rank;
    if (known || t->refused) return known;
    memset(inner, -1, sizeof(inner));
    if (t->is_root[n] && shape_same(&x->shape, &t->scores)) return refuse(t, "the scores are wanted themselves"), NULL;
    if (is_given(t, n)) return load(t, n, axes);
    switch (x->code) {
    case GRAPH_MAP: return is_mask_beside(t, n) ? load(t, n, axes) : arithmetic(t, n, axes);
    case GRAPH_FULL: return declare(t, n, axes, false, false, constant_words(t, x));
    case GRAPH_DETACH:
    case GRAPH_AGAIN: memcpy(inner, axes, sizeof(inner)); return value_of(t, x->inputs[0], inner);
    case GRAPH_EXPAND:
        for (int k = 0; k < x->shape.rank; k++)
            inner[k] = graph_get(t->g, x->inputs[0])->shape.extents[k] == x->shape.extents[k] ? axes[k] : -1;
        return value_of(t, x->inputs[0], inner);
    case GRAPH_PERMUTE:
        for (int k = 0; k < x->shape.rank; k++) inner[x->attr.axes[k]] = axes[k];
        return value_of(t, x->inputs[0], inner);
    case GRAPH_RESHAPE:
        if (map_reshape(t, x, axes, inner)) return value_of(t, x->inputs[0], inner);
        if (graph_get(t->g, x->inputs[0])->code == GRAPH_IOTA) return element_number(t, n, axes);
        break;
    case GRAPH_IOTA:
        if (axes[0] == rank - 2) return declare(t, n, axes, true, false, "(i + iota(BM))[:][]");
        if (axes[0] == rank - 1) return declare(t, n, axes, false, true, "(j + iota(BN))[][:]");
        return declare(t, n, axes, false, false, axes[0] < 0 ? "0" : arena_print(t->memory, "b%d", axes[0]));
    case GRAPH_DOT:
        if (shape_same(&x->shape, &t->scores)) return score_product(t, n, axes);
        break;
    case GRAPH_REDUCE:
        if (!is_statistic(t, n, axes)) break;
        if (n == t->first || n == t->second) return refuse(t, "a statistic depends on itself"), NULL;
        if (is_norm(t, n)) return declare(t, n, axes, false, false, "1.0");
        if (t->statistic_count == SCORES_STATISTICS) return refuse(t, "it has too many statistics"), NULL;
        t->statistics[t->statistic_count++] = n;
        return load(t, n, axes);
    default: break;
    }
    bool rows = false, columns = false;
    for (int k = 0; k < x->shape.rank; k++) {
        rows |= axes[k] == rank - 2;
        columns |= axes[k] == rank - 1;
    }
    if (rows && columns && !is_view_of_memory(t, n)) return refuse(t, "scores are no arithmetic"), NULL;
    return load(t, n, axes);
}

static const scores_value *at_scores(scores_text *t, node n)
{
    signed char axes[GRAPH_RANK];
    memset(axes, -1, sizeof(axes));
    for (int k = 0; k < t->scores.rank; k++) axes[k] = (signed char)k;
    return value_of(t, n, axes);
}

void scores_name(scores_text *t, node n, const char *name)
{
    scores_value v = {.n = n, .name = name, .rows = true, .columns = true};
    if (t->value_count == SCORES_STATEMENTS) {
        refuse(t, "the kernel would be too long");
        return;
    }
    memset(v.axes, -1, sizeof(v.axes));
    for (int k = 0; k < t->scores.rank; k++) v.axes[k] = (signed char)k;
    t->values[t->value_count++] = v;
}

const char *scores_put(scores_text *t, node n)
{
    const scores_value *v = at_scores(t, n);
    if (v && !(v->rows && v->columns)) return refuse(t, "the operand is no scores");
    return v ? v->name : "";
}

const char *scores_condition(scores_text *t, node n)
{
    const scores_value *v = at_scores(t, n);
    return v ? v->name : "";
}
