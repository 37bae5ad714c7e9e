/*
 * Products of products through a softmax. In: the graph before it is prepared. Out: calls of kernels that fusion writes
 * in the language, so that nothing of the size of the scores [.., L, S] is stored.
 *
 * Found by structure alone: an output is a product one of whose operands is arithmetic over (1) products [.., L, S] of
 * short rows, (2) arrays, positions, constants, and (3) statistics of such arithmetic along S. It becomes a loop over
 * blocks of S (or of L, where it contracts rows) that computes its scores again. Statistics come from loops of their own;
 * a maximum and the sum of exponentials below it are carried together (an online softmax), and with them the product
 * that a softmax is usually for. So attention is one kernel, and its gradients are three: statistics are kept, not scores.
 * No additions by several programs at one place: the same bits each time.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/scores.h"
#include "ir/graph_build.h"

#include <math.h>
#include <string.h>

enum { MOST_DEPTH = 256, FAR_BELOW = 8 /* exp of it is small beside the largest f16 */ };

typedef enum scores_role { ROLE_NONE, ROLE_SOFTMAX, ROLE_PASS, ROLE_MAXIMUM, ROLE_NORM, ROLE_SUM } scores_role;

struct score_loops {
    arena *memory;
    graph *g;
    const fuse_leaf *leaves;
    const fuse_options *options;
    bool *is_root;
    unsigned char *role; /* by node */
    node *partner;       /* by maximum: the sum of exponentials below it */
    node *together;      /* by maximum: the output that is computed with it, or 0 */
    node *made;          /* by node: what a call before gave */
    int64_t *bytes;      /* by output and statistic: of the scores, were they stored */
    bool *fast;          /* by output: its loop is one that the matrix units run at their speed (schedule/chained.h) */
    node *straight;      /* by output that is turned: what the kernel wrote */
    int count;           /* nodes of the graph as it came */
};

/* How an output reads its scores. */
typedef struct output_form {
    node scores, other; /* the operands */
    bool columns;       /* it contracts L: [.., S, D] */
    bool turned;        /* it is [.., D, L] or [.., D, S]: a view of what the kernel writes */
} output_form;

/* ---- structure ---- */

static const graph_node *get(const score_loops *o, node n)
{
    return graph_get(o->g, n);
}

static bool is_map(const score_loops *o, node n, op_code code)
{
    return get(o, n)->code == GRAPH_MAP && get(o, n)->attr.map == code;
}

/* Through what only repeats or renames a value. */
static node behind(const score_loops *o, node n)
{
    for (;;) {
        const graph_node *x = get(o, n);
        bool same = x->code == GRAPH_DETACH || x->code == GRAPH_AGAIN || x->code == GRAPH_EXPAND;
        if (!same || o->leaves[n].given) return n;
        n = x->inputs[0];
    }
}

/* exp(x - m): the maximum m, where it is that of x along the last axis; else 0. */
static node maximum_of(const score_loops *o, node exponential)
{
    if (!is_map(o, exponential, OP_EXP)) return 0;
    node below = get(o, exponential)->inputs[0];
    if (!is_map(o, below, OP_SUB)) return 0;
    node x = get(o, below)->inputs[0], m = behind(o, get(o, below)->inputs[1]);
    const graph_node *top = get(o, m);
    bool good = top->code == GRAPH_REDUCE && top->attr.fold == FOLD_MAX && top->inputs[0] == x;
    return good && top->attr.axis_set == 1u << (top->shape.rank - 1) ? m : 0;
}

/* A sum of exponentials below a maximum: the maximum, or 0. */
static node norm_maximum(const score_loops *o, node n)
{
    const graph_node *x = get(o, n);
    if (x->code != GRAPH_REDUCE || x->attr.fold != FOLD_SUM) return 0;
    return x->attr.axis_set == 1u << (x->shape.rank - 1) ? maximum_of(o, x->inputs[0]) : 0;
}

/* scores = e / sum(e), perhaps rounded: its maximum and sum. */
static bool is_softmax(const score_loops *o, node scores, node *maximum, node *norm)
{
    while (is_map(o, scores, OP_CONVERT)) scores = get(o, scores)->inputs[0];
    if (!is_map(o, scores, OP_DIV)) return false;
    node e = get(o, scores)->inputs[0];
    *norm = behind(o, get(o, scores)->inputs[1]);
    *maximum = maximum_of(o, e);
    return *maximum && norm_maximum(o, *norm) == *maximum && get(o, *norm)->inputs[0] == e;
}

/* Is position j along S compared with position i along L so that only j <= i is left? */
static bool is_causal(const score_loops *o, node condition)
{
    for (;;) { /* [L, S] may have been given axes of one element in front */
        const graph_node *x = get(o, condition);
        if (x->code != GRAPH_EXPAND && x->code != GRAPH_RESHAPE) break;
        condition = x->inputs[0];
    }
    const graph_node *x = get(o, condition);
    if (x->code != GRAPH_MAP || x->input_count != 2 || x->shape.rank < 2) return false;
    int later = x->attr.map == OP_LE || x->attr.map == OP_LT ? 0 : 1; /* which operand is j */
    if (later && x->attr.map != OP_GE && x->attr.map != OP_GT) return false;
    for (int side = 0; side < 2; side++) {
        node n = x->inputs[side == 0 ? later : !later];
        const graph_node *y = get(o, n);
        int rank = x->shape.rank, axis = side == 0 ? rank - 1 : rank - 2;
        if (y->code == GRAPH_EXPAND) y = get(o, y->inputs[0]);
        if (y->code != GRAPH_RESHAPE || y->shape.rank != rank || y->shape.extents[axis] != x->shape.extents[axis])
            return false;
        if (get(o, y->inputs[0])->code != GRAPH_IOTA || shape_count(&y->shape) != y->shape.extents[axis]) return false;
    }
    return true;
}

static bool is_number(const score_loops *o, node n, double f)
{
    return get(o, n)->code == GRAPH_FULL && get(o, n)->attr.number.f == f;
}

/* select(condition, x, -inf) around scores: the conditions; the scores inside. */
static node inside_masks(const score_loops *o, node x, node *conditions, int *count, int most)
{
    while (is_map(o, x, OP_SELECT) && !o->leaves[x].given && *count < most &&
           is_number(o, get(o, x)->inputs[2], -INFINITY)) {
        conditions[(*count)++] = get(o, x)->inputs[0];
        x = get(o, x)->inputs[1];
    }
    return x;
}

static bool is_masked_causal(const score_loops *o, node x)
{
    node conditions[4];
    int count = 0;
    bool causal = false;
    (void)inside_masks(o, x, conditions, &count, COUNT(conditions));
    for (int i = 0; i < count; i++) causal |= is_causal(o, conditions[i]);
    return causal;
}

/* Are these scores 0 wherever j > i? */
static bool vanishes(const score_loops *o, node n, int depth)
{
    const graph_node *x = get(o, n);
    if (depth > 24 || o->leaves[n].given || x->code != GRAPH_MAP) return false;
    switch (x->attr.map) {
    case OP_MUL: return vanishes(o, x->inputs[0], depth + 1) || vanishes(o, x->inputs[1], depth + 1);
    case OP_DIV:
    case OP_CONVERT:
    case OP_NEG: return vanishes(o, x->inputs[0], depth + 1);
    case OP_ADD:
    case OP_SUB: return vanishes(o, x->inputs[0], depth + 1) && vanishes(o, x->inputs[1], depth + 1);
    case OP_SELECT:
        return is_number(o, x->inputs[2], 0) && (is_causal(o, x->inputs[0]) || vanishes(o, x->inputs[1], depth + 1));
    case OP_EXP: return maximum_of(o, n) && is_masked_causal(o, get(o, get(o, n)->inputs[0])->inputs[0]);
    default: return false;
    }
}

/* ---- text ---- */

typedef struct block_sizes {
    int rows, columns;
} block_sizes;

/* half: its operands have 16 bits. Two groups of four warps share what they read. */
static block_sizes choose_blocks(const score_loops *o, int64_t depth, bool half)
{
    if (!o->options->gpu) return (block_sizes){64, 64};
    return depth > 128 ? (block_sizes){32, 32} : half ? (block_sizes){128, 64} : (block_sizes){64, 64};
}

static void put_head(const score_loops *o, const scores_text *t, bool over_columns, const char *outputs, int64_t depth,
                     text *out)
{
    bool half = false;
    for (int i = 0; i < t->array_count; i++) half |= dtypes[get(o, t->arrays[i])->elem].size_bytes == 2;
    block_sizes size = choose_blocks(o, depth, half && !over_columns && t->first);
    int batch = t->scores.rank - 2;
    text_print(out, "kernel %s(%s%s%s, const int BM = %d, const int BN = %d)\n    launch (cdiv(%s, %s)",
               over_columns ? "online_columns" : "online_rows", text_get(&t->parameters), outputs,
               text_get(&t->constants), size.rows, size.columns, over_columns ? "S" : "L", over_columns ? "BN" : "BM");
    /* The last axis of the batch is an axis of the launch, and those before it are one: of a launch's own axis it is
     * known that it stays inside. */
    if (batch) text_print(out, ", B%d", batch - 1);
    for (int k = 0; k < batch - 1; k++) text_print(out, "%sB%d", k ? " * " : ", ", k);
    text_print(out, ")\n{\n    int %s = program(0) * %s;\n", over_columns ? "j" : "i", over_columns ? "BN" : "BM");
    if (batch) text_print(out, "    int b%d = program(1);\n", batch - 1);
    if (batch > 1) text_print(out, "    int z%d = program(2);\n", batch - 2);
    for (int k = batch - 2; k > 0; k--)
        text_print(out, "    int b%d = z%d %% B%d, z%d = z%d / B%d;\n", k, k, k, k - 1, k, k);
    if (batch > 1) text_add(out, "    int b0 = z0;\n");
}

static const char *batch_words(const scores_text *t)
{
    text words = {0};
    for (int k = 0; k < t->scores.rank - 2; k++) text_print(&words, "[b%d]", k);
    const char *out = arena_copy_text(t->memory, text_get(&words), words.length);
    text_free(&words);
    return out;
}

static const char *batch_extents(const scores_text *t)
{
    text words = {0};
    for (int k = 0; k < t->scores.rank - 2; k++) text_print(&words, "[B%d]", k);
    const char *out = arena_copy_text(t->memory, text_get(&words), words.length);
    text_free(&words);
    return out;
}

static dtype sum_type(dtype elem)
{
    return elem == DT_F64 ? DT_F64 : DT_F32;
}

static const char *rounded(const score_loops *o, const scores_text *t, node dot, const char *name, node operand)
{
    const graph_node *x = get(o, dot);
    dtype elem = get(o, operand)->elem;
    bool narrow = x->attr.index && elem == DT_F32;
    return arena_print(t->memory, "%s(%s)", narrow ? "tf32" : scores_type(elem), name);
}

static int64_t output_depth(const graph_node *x, const output_form *f)
{
    return x->shape.extents[x->shape.rank - (f->turned ? 2 : 1)];
}

/* acc += dot(scores, other), or of the scores turned. */
static const char *product_words(const score_loops *o, scores_text *t, node dot, const output_form *f,
                                 const char *scores)
{
    bool turned, narrow = get(o, dot)->attr.index && get(o, f->other)->elem == DT_F32;
    bool contracted_first = !f->turned; /* [.., S, D] x: S is contracted; turned: [.., D, S] */
    const char *other = scores_operand(t, f->other, f->columns ? 0 : 1, !contracted_first, &turned);
    const char *right = arena_print(t->memory, turned ? "transpose(%s)" : "%s", other);
    if (narrow) right = arena_print(t->memory, "tf32(%s)", right);
    const char *left = rounded(o, t, dot, scores, f->scores);
    t->depth += output_depth(get(o, dot), f);
    return arena_print(t->memory, f->columns ? "dot(transpose(%s), %s)" : "dot(%s, %s)", left, right);
}

static const char *output_access(const scores_text *t, const output_form *f)
{
    return arena_print(t->memory, "o%s%s[:]", batch_words(t), f->columns ? "[j : BN]" : "[i : BM]");
}

static const char *output_parameter(const scores_text *t, const output_form *f, const graph_node *x)
{
    return arena_print(t->memory, ", out %s o%s%s[DO]", scores_type(x->elem), batch_extents(t),
                       f->columns ? "[S]" : "[L]");
}

/* The loop of an output or a sum whose statistics are there already. */
static bool write_pass(const score_loops *o, scores_text *t, node n, const output_form *f, text *out)
{
    const graph_node *x = get(o, n);
    bool sums = x->code == GRAPH_REDUCE;
    node wanted = sums ? x->inputs[0] : f->scores;
    const char *name = scores_put(t, wanted);
    int64_t depth = sums ? 0 : output_depth(x, f);
    const char *step = sums || t->refused ? "" : product_words(o, t, n, f, name);
    if (t->refused || !t->products) return false;
    bool causal = vanishes(o, wanted, 0);
    bool columns = !sums && f->columns;
    const char *type = scores_type(sum_type(x->elem)), *batch = batch_words(t);
    if (!sums) text_print(&t->constants, ", const int DO = %lld", (long long)depth);
    const char *outputs = sums ? arena_print(t->memory, ", out %s o%s[L][one]", scores_type(x->elem), batch_extents(t))
                               : output_parameter(t, f, x);
    put_head(o, t, columns, outputs, depth, out);
    text_add(out, text_get(columns ? &t->columns : &t->rows));
    if (sums)
        text_print(out, "    tile %s acc = like(o%s[i : BM][0][], 0);\n", type, batch);
    else
        text_print(out, "    tile %s acc = like(%s, 0);\n", type, output_access(t, f));
    if (columns)
        text_print(out, "    int first = %s;\n    for (int i = first; i < L; i += BM) {\n",
                   causal ? "j / BM * BM" : "0");
    else
        text_print(out, "    int end = %s;\n    for (int j = 0; j < end; j += BN) {\n",
                   causal ? "min(S, i + BM)" : "S");
    text_add(out, text_get(columns ? &t->rows : &t->columns));
    text_add(out, text_get(&t->both));
    if (sums)
        text_print(out, "        acc += sum(%s, axis = 1);\n    }\n    o%s[i : BM][0] = acc;\n}\n", name, batch);
    else
        text_print(out, "        acc += %s;\n    }\n    %s = acc;\n}\n", step, output_access(t, f));
    return true;
}

/* The loop that carries a maximum and a norm, with the output that they are for (f) or without (NULL). */
static bool write_softmax(const score_loops *o, scores_text *t, node maximum, node dot, const output_form *f,
                          bool keeps, text *out)
{
    node conditions[4], x = get(o, maximum)->inputs[0];
    int count = 0;
    t->first = maximum;
    t->second = o->partner[maximum];
    node inner = inside_masks(o, x, conditions, &count, COUNT(conditions));
    const char *name = scores_put(t, inner);
    bool causal = false, always = true; /* always: every row has a score */
    text masked = {0};
    text_add(&masked, name);
    for (int i = count - 1; i >= 0 && !t->refused; i--) {
        bool own = is_causal(o, conditions[i]);
        causal |= own;
        always &= own;
        const char *before = arena_copy_text(t->memory, text_get(&masked), masked.length);
        const char *condition = scores_condition(t, conditions[i]);
        text_clear(&masked);
        text_print(&masked, "keep(%s, %s)", before, condition);
    }
    always &= !t->reads_scores;
    t->whole_rows = always;
    const char *kept = arena_copy_text(t->memory, text_get(&masked), masked.length);
    text_free(&masked);
    int64_t depth = f ? output_depth(get(o, dot), f) : 0;
    dtype elem = sum_type(get(o, maximum)->elem);
    const char *type = scores_type(elem), *batch = batch_words(t), *extents = batch_extents(t);
    const char *step = "";
    if (f && !t->refused) {
        output_form plain = *f;
        step = product_words(o, t, dot, &plain, "p");
    }
    if (t->refused || !t->products || t->statistic_count) return false;
    if (f) text_print(&t->constants, ", const int DO = %lld", (long long)depth);
    text outputs = {0};
    if (f) text_add(&outputs, output_parameter(t, f, get(o, dot)));
    if (keeps) text_print(&outputs, ", out %s top%s[L][one], out %s norm%s[L][one]", type, extents, type, extents);
    put_head(o, t, false, text_get(&outputs), depth, out);
    text_free(&outputs);
    text_add(out, text_get(&t->rows));
    const char *row =
        f ? arena_print(t->memory, "o%s[i : BM][0][]", batch) : arena_print(t->memory, "top%s[i : BM][0][]", batch);
    text_print(out, "    tile %s m = like(%s, -inf), l = like(m, 0);\n", type, row);
    if (f) text_print(out, "    tile %s acc = like(%s, 0);\n", type, output_access(t, f));
    text_print(out, "    int end = %s;\n    for (int j = 0; j < end; j += BN) {\n", causal ? "min(S, i + BM)" : "S");
    text_add(out, text_get(&t->columns));
    text_add(out, text_get(&t->both));
    /* Any number near the maximum will do: it follows only a growth that exponentials would feel, so that what was summed
     * up is seldom scaled. */
    text_print(out,
               "        tile %s s = %s;\n        tile %s old = m, most = max(s, axis = 1);\n"
               "        m = where(most > m + %d, most, m);\n",
               type, kept, type, FAR_BELOW);
    if (!always) /* rows without a score so far */
        text_print(out, "        tile %s safe = where(m == (-inf), 0, m);\n", type);
    text_print(out, "        tile %s p = exp(s - %s), shrink = exp(old - %s);\n", type, always ? "m" : "safe",
               always ? "m" : "safe");
    text_add(out, "        l = l * shrink + sum(p, axis = 1);\n");
    if (f) text_print(out, "        acc *= shrink;\n        acc += %s;\n", step);
    text_add(out, "    }\n");
    if (f) text_print(out, "    %s = acc / l;\n", output_access(t, f));
    if (keeps) text_print(out, "    top%s[i : BM][0] = m;\n    norm%s[i : BM][0] = l;\n", batch, batch);
    text_add(out, "}\n");
    return true;
}

/* ---- finding ---- */

static int64_t scores_bytes(const shape *scores)
{
    return shape_count(scores) * (int64_t)sizeof(float);
}

static bool is_score_shape(const score_loops *o, node n)
{
    const shape *s = &get(o, n)->shape;
    return s->rank >= 2 && s->extents[s->rank - 1] > 1 && s->extents[s->rank - 2] > 1 && shape_count(s) > 0;
}

/* The ways in which a product may contract scores: which operand, and whether turned. */
static bool form_of(const score_loops *o, node dot, int way, output_form *f)
{
    const graph_node *x = get(o, dot);
    int side = way / 2;
    bool swapped = way % 2;
    node operand = x->inputs[side];
    if (swapped) {
        if (!scores_swaps(get(o, operand)) || o->leaves[operand].given) return false;
        operand = get(o, operand)->inputs[0];
    }
    *f = (output_form){
        .scores = operand, .other = x->inputs[!side], .turned = side == 1, .columns = swapped != (side == 1)};
    int64_t depth = output_depth(x, f);
    return get(o, operand)->code == GRAPH_MAP && !o->leaves[operand].given && is_score_shape(o, operand) && depth > 1 &&
           depth <= MOST_DEPTH;
}

static bool short_rows(const scores_text *t)
{
    for (int i = 0; i < t->value_count; i++) {
        const graph_node *x = graph_get(t->g, t->values[i].n);
        if (x->code != GRAPH_DOT || !t->values[i].rows || !t->values[i].columns) continue;
        const shape *a = &graph_get(t->g, x->inputs[0])->shape;
        int64_t depth = a->extents[a->rank - 1];
        if (depth < 2 || depth > MOST_DEPTH) return false;
    }
    return true;
}

/* Can all statistics of a text be had? Marks them where `mark`. */
static bool resolve(score_loops *o, const scores_text *t, bool mark, int depth);

static bool resolve_one(score_loops *o, const scores_text *t, node n, bool mark, int depth)
{
    node maximum = get(o, n)->attr.fold == FOLD_MAX ? n : norm_maximum(o, n);
    scores_text own;
    text ignored = {0};
    bool good;
    if (o->role[n]) return true;
    if (depth > 4) return false;
    if (maximum) {
        node norm = n == maximum ? 0 : n;
        for (int i = 0; i < t->statistic_count && !norm; i++)
            if (norm_maximum(o, t->statistics[i]) == maximum) norm = t->statistics[i];
        if (!norm) return false;
        o->partner[maximum] = norm;
        scores_begin(&own, o->memory, o->g, o->leaves, o->is_root, &t->scores);
        good = write_softmax(o, &own, maximum, 0, NULL, true, &ignored) && short_rows(&own);
        if (good && mark) {
            o->role[maximum] = ROLE_MAXIMUM;
            o->role[norm] = ROLE_NORM;
            o->bytes[maximum] = o->bytes[norm] = scores_bytes(&t->scores);
        }
    } else {
        scores_begin(&own, o->memory, o->g, o->leaves, o->is_root, &t->scores);
        good = write_pass(o, &own, n, NULL, &ignored) && short_rows(&own) && resolve(o, &own, mark, depth + 1);
        if (good && mark) o->role[n] = ROLE_SUM;
        if (good && mark) o->bytes[n] = scores_bytes(&t->scores);
    }
    scores_end(&own);
    text_free(&ignored);
    return good;
}

static bool resolve(score_loops *o, const scores_text *t, bool mark, int depth)
{
    bool good = true;
    for (int i = 0; i < t->statistic_count && good; i++) good = resolve_one(o, t, t->statistics[i], mark, depth);
    return good;
}

/* A plain or causal softmax of 16-bit operands on Hopper. */
static bool is_fast(const score_loops *o, const scores_text *t, node dot, const output_form *f)
{
    bool good = o->options->gpu && o->options->arch == 90 && t->array_count == 3 && t->products == 1 && t->whole_rows;
    int64_t width = output_depth(get(o, dot), f), depth = t->depth - width;
    good &= (depth == 64 || depth == 128) && (width == 64 || width == 128) && t->scores.rank <= 4;
    for (int i = 0; i < t->array_count && good; i++) good = dtypes[get(o, t->arrays[i])->elem].size_bytes == 2;
    return good;
}

/* Loops compute scores again, and but for the fast ones they are slower than products that store them: they are for
 * scores that do not fit. Gradients of scores that fit need the stored ones of the forward pass. */
static void choose(score_loops *o)
{
    enum { USUAL_MEMORY_GB = 16, CPU_CACHES_MB = 16 };
    const fuse_options *options = o->options;
    int64_t memory = options->memory_bytes ? options->memory_bytes : (int64_t)USUAL_MEMORY_GB << 30;
    int64_t fits = options->scores_bytes ? options->scores_bytes : memory / 4;
    int64_t alone = options->scores_bytes || options->gpu ? fits : (int64_t)CPU_CACHES_MB << 20;
    bool gradients = false;
    for (node n = 1; (int)n < o->count; n++) gradients |= o->role[n] == ROLE_PASS && o->bytes[n] < fits;
    for (node n = 1; (int)n < o->count; n++) {
        if (!o->role[n]) continue;
        bool stored = gradients ? o->bytes[n] < fits : o->role[n] == ROLE_SOFTMAX && !o->fast[n] && o->bytes[n] < alone;
        if (stored) o->role[n] = ROLE_NONE;
    }
}

static void try_output(score_loops *o, node dot)
{
    for (int way = 0; way < 4; way++) {
        output_form f;
        node maximum, norm;
        if (!form_of(o, dot, way, &f)) continue;
        const shape *scores = &get(o, f.scores)->shape;
        scores_text t;
        text ignored = {0};
        scores_begin(&t, o->memory, o->g, o->leaves, o->is_root, scores);
        scores_role role = ROLE_NONE;
        if (!f.columns && is_softmax(o, f.scores, &maximum, &norm)) {
            o->partner[maximum] = norm;
            if (write_softmax(o, &t, maximum, dot, &f, false, &ignored) && short_rows(&t)) role = ROLE_SOFTMAX;
            o->fast[dot] = is_fast(o, &t, dot, &f);
        } else if (write_pass(o, &t, dot, &f, &ignored) && t.statistic_count && short_rows(&t) &&
                   resolve(o, &t, false, 0)) {
            role = ROLE_PASS;
            (void)resolve(o, &t, true, 0);
        }
        scores_end(&t);
        text_free(&ignored);
        o->role[dot] = (unsigned char)role;
        o->bytes[dot] = scores_bytes(scores);
        if (role) return;
    }
}

/* An output that may be computed where its statistics are: everything it reads is older than they. */
static void join(score_loops *o, node dot)
{
    output_form f = {0};
    node maximum = 0, norm = 0;
    for (int way = 0; way < 4 && !maximum; way++)
        if (form_of(o, dot, way, &f) && !f.columns && !is_softmax(o, f.scores, &maximum, &norm)) maximum = 0;
    if (!maximum || o->role[maximum] != ROLE_MAXIMUM || o->together[maximum] || f.other >= maximum) return;
    o->together[maximum] = dot;
}

score_loops *scores_find(graph *g, const fuse_leaf *leaves, const bool *reached, const node *roots, int root_count,
                         const fuse_options *options, arena *memory)
{
    if (options->mode != FUSE_FUSED) return NULL;
    score_loops *o = ARENA_NEW(memory, score_loops);
    *o = (score_loops){.memory = memory, .g = g, .leaves = leaves, .options = options, .count = g->node_count};
    o->is_root = ARENA_ARRAY(memory, bool, g->node_count);
    o->role = ARENA_ARRAY(memory, unsigned char, g->node_count);
    o->partner = ARENA_ARRAY(memory, node, g->node_count);
    o->together = ARENA_ARRAY(memory, node, g->node_count);
    o->made = ARENA_ARRAY(memory, node, g->node_count);
    o->straight = ARENA_ARRAY(memory, node, g->node_count);
    o->bytes = ARENA_ARRAY(memory, int64_t, g->node_count);
    o->fast = ARENA_ARRAY(memory, bool, g->node_count);
    bool any = false;
    for (int i = 0; i < root_count; i++) o->is_root[roots[i]] = true;
    for (node n = 1; (int)n < o->count; n++) {
        if (!reached[n] || leaves[n].given || get(o, n)->code != GRAPH_DOT) continue;
        try_output(o, n);
        any |= o->role[n] != ROLE_NONE;
    }
    if (any) choose(o);
    for (node n = 1; (int)n < o->count && any; n++)
        if (o->role[n] == ROLE_SOFTMAX) join(o, n);
    return any ? o : NULL;
}

/* ---- making ---- */

/* turned: the first output is the other way round than the kernel writes it. */
static node call(score_loops *o, const scores_text *t, const char *source, const node *now, const node *outputs,
                 int count, bool turned)
{
    graph *g = o->g;
    graph_kernel *k = ARENA_NEW(g->memory, graph_kernel);
    const char *start = source + strlen("kernel ");
    *k = (graph_kernel){.name = arena_copy_text(g->memory, start, strcspn(start, "(")),
                        .source = arena_copy_text(g->memory, source, strlen(source)),
                        .output_count = count};
    for (int i = 0; i < count; i++) {
        k->output_elem[i] = get(o, outputs[i])->elem;
        k->output_shape[i] = get(o, outputs[i])->shape;
    }
    int64_t *last = &k->output_shape[0].extents[k->output_shape[0].rank - 2];
    if (turned) {
        int64_t depth = last[0];
        last[0] = last[1];
        last[1] = depth;
    }
    k->flops = 2 * shape_count(&t->scores) * t->depth;
    k->identity = hash_bytes(source, strlen(source)).low;
    node inputs[SCORES_ARRAYS];
    for (int i = 0; i < t->array_count; i++) {
        const graph_node x = *get(o, t->arrays[i]);
        inputs[i] = now[t->arrays[i]];
        if (!t->array_turned[i]) continue;
        int axes[GRAPH_RANK], rank = x.shape.rank; /* one view instead of two */
        memcpy(axes, x.attr.axes, sizeof(axes));
        axes[rank - 2] = x.attr.axes[rank - 1];
        axes[rank - 1] = x.attr.axes[rank - 2];
        inputs[i] = graph_permute(g, now[x.inputs[0]], axes);
    }
    return graph_kernel_call(g, k, inputs, t->array_count);
}

node scores_make(score_loops *o, node n, const node *now)
{
    if ((int)n >= o->count) return 0;
    if (!o->role[n]) return scores_swaps(get(o, n)) ? o->straight[get(o, n)->inputs[0]] : 0;
    if (o->made[n]) return o->made[n];
    scores_role role = (scores_role)o->role[n];
    text source = {0};
    scores_text t;
    output_form f = {0};
    node dot = role == ROLE_MAXIMUM ? o->together[n] : role == ROLE_SUM || role == ROLE_NORM ? 0 : n, maximum = n, norm;
    CHECK(role != ROLE_NORM); /* made with its maximum, which is older */
    bool good = !dot;
    for (int way = 0; way < 4 && !good; way++) {
        good = form_of(o, dot, way, &f);
        if (good && role != ROLE_PASS) good = !f.columns && is_softmax(o, f.scores, &maximum, &norm);
        if (!good) continue;
        /* Of several ways the one that was found before. */
        scores_begin(&t, o->memory, o->g, o->leaves, o->is_root, &get(o, f.scores)->shape);
        text ignored = {0};
        if (role == ROLE_PASS) good = write_pass(o, &t, n, &f, &ignored) && t.statistic_count && short_rows(&t);
        text_free(&ignored);
        scores_end(&t);
    }
    CHECK(good);
    const shape *scores = dot ? &get(o, f.scores)->shape : &get(o, get(o, n)->inputs[0])->shape;
    scores_begin(&t, o->memory, o->g, o->leaves, o->is_root, scores);
    node outputs[3];
    int count = 0;
    if (dot) outputs[count++] = dot;
    if (role == ROLE_MAXIMUM) {
        outputs[count++] = n;
        outputs[count++] = o->partner[n];
    }
    if (role == ROLE_SUM) outputs[count++] = n;
    if (role == ROLE_PASS || role == ROLE_SUM)
        good = write_pass(o, &t, n, role == ROLE_SUM ? NULL : &f, &source);
    else
        good = write_softmax(o, &t, maximum, dot, dot ? &f : NULL, role == ROLE_MAXIMUM, &source);
    CHECK(good);
    node made = call(o, &t, text_get(&source), now, outputs, count, dot && f.turned);
    for (int i = 0; i < count; i++) o->made[outputs[i]] = graph_result(o->g, made, i);
    if (dot && f.turned) { /* a view of it; whoever turns it back reads it as it is */
        int axes[GRAPH_RANK], rank = scores->rank;
        for (int k = 0; k < rank; k++) axes[k] = k < rank - 2 ? k : 2 * rank - 3 - k;
        o->straight[dot] = o->made[dot];
        o->made[dot] = graph_permute(o->g, o->made[dot], axes);
    }
    scores_end(&t);
    text_free(&source);
    return o->made[n];
}
