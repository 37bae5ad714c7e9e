/*
 * Kernels of score loops in the language. In: an output, a sum or a maximum with its norm. Out: the kernel's source, its
 * parameters and statements from scores_text.c around the loop that is written here.
 *
 * What a softmax leaves for its gradients is one number a row, the logarithm of its sum of exponentials: exponentials
 * below that instead of below the maximum are the weights, divided already.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/scores_loops.h"

#include <string.h>

enum { FAR_BELOW = 8 /* exp of it is small beside the largest f16 */ };

typedef struct score_blocks {
    int rows, columns;
} score_blocks;

static const graph_node *get(const scores_text *t, node n)
{
    return graph_get(t->g, n);
}

static score_graph graph_of(const scores_text *t)
{
    return (score_graph){.g = t->g, .leaves = t->leaves};
}

/* Does an array run along the rows or the columns (axis: 2, 1) of the scores? */
static bool runs_along(const scores_text *t, int array, int axis)
{
    for (int k = 0; k < get(t, t->arrays[array])->shape.rank; k++)
        if (t->array_axes[array][k] == t->scores.rank - axis) return true;
    return false;
}

/* A loop that the matrix units of sm_90 run at their speed (schedule/chained.h): 16-bit operands, no masks but positions, perhaps
 * numbers for each score (a bias). */
static bool is_fast(const scores_text *t, bool softmax)
{
    const fuse_options *options = t->options;
    bool good = options->gpu && options->arch == 90 && t->scores.rank <= 5;
    int operands = 0;
    dtype elem = DT_COUNT;
    for (int i = 0; i < t->array_count && good; i++) {
        dtype own = get(t, t->arrays[i])->elem;
        if (!t->array_depth[i]) {
            bool columns = runs_along(t, i, 1),
                 table = columns && runs_along(t, i, 2); /* table: a number for each score */
            bool mask = own == DT_BOOL && columns, scalar = !columns && !runs_along(t, i, 2);
            good = mask || (scalar && !dtype_is_float(own)) ||
                   (table ? own == DT_F32 || own == DT_BF16 || own == DT_F16 : own == DT_F32 && !columns && !softmax);
            continue;
        }
        operands++;
        good = (own == DT_BF16 || own == DT_F16) && (elem == DT_COUNT || own == elem);
        good &= t->array_depth[i] % 16 == 0;
        elem = own;
    }
    return good && (!softmax || (t->positions && operands == 3 && t->products == 1));
}

/* Heads of up to 64 have as many exponentials as products, which three groups overlap better than two, by a tenth: worth it
 * where the last block of rows is not much emptier. What else is read, or masked on both sides, wants the registers. */
static bool wants_three_groups(const scores_text *t, int64_t most)
{
    int64_t rows = t->scores.extents[t->scores.rank - 2], three = (rows + 191) / 192 * 192,
            two = (rows + 127) / 128 * 128;
    return most <= 64 && t->array_count == 3 && !t->windowed && three * 9 <= two * 10;
}

static score_blocks choose_blocks(const scores_text *t, int64_t depth, bool columns, bool softmax)
{
    int64_t most = depth; /* of any rows: what a block needs of shared memory and registers */
    for (int i = 0; i < t->array_count; i++) most = MAXIMUM(most, t->array_depth[i]);
    if (!t->options->gpu) return (score_blocks){64, 64};
    if (t->fast && softmax && wants_three_groups(t, most)) return (score_blocks){192, 128};
    if (t->fast && softmax) return (score_blocks){128, most > 192 ? 80 : most > 128 ? 112 : 128};
    if (t->fast)
        return most > 128 ? (score_blocks){64, 64} : columns ? (score_blocks){64, 128} : (score_blocks){128, 128};
    return depth > 128 ? (score_blocks){32, 32} : (score_blocks){64, 64};
}

static void put_head(scores_text *t, bool over_columns, const char *outputs, int64_t depth, text *out)
{
    t->fast = is_fast(t, t->first != 0);
    score_blocks size = choose_blocks(t, depth, over_columns, t->first != 0);
    int batch = t->scores.rank - 2;
    for (int k = 0; k < batch - 1 && batch > 2; k++) /* what comes of dividing programs is then known to be inside */
        text_print(&t->constants, ", const int B%d = %lld", k, (long long)t->scores.extents[k]);
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

static const char *rounded(const scores_text *t, node dot, const char *name, node operand)
{
    const graph_node *x = get(t, dot);
    dtype elem = get(t, operand)->elem;
    bool narrow = x->attr.index && elem == DT_F32;
    return arena_print(t->memory, "%s(%s)", narrow ? "tf32" : scores_type(elem), name);
}

/* acc += dot(scores, other), or of the scores turned. */
static const char *product_words(scores_text *t, node dot, const output_form *f, const char *scores)
{
    bool turned, narrow = get(t, dot)->attr.index && get(t, f->other)->elem == DT_F32;
    bool contracted_first = !f->turned; /* [.., S, D] x: S is contracted; turned: [.., D, S] */
    const char *other = scores_operand(t, f->other, f->columns ? 0 : 1, !contracted_first, &turned);
    const char *right = arena_print(t->memory, turned ? "transpose(%s)" : "%s", other);
    if (narrow) right = arena_print(t->memory, "tf32(%s)", right);
    const char *left = rounded(t, dot, scores, f->scores);
    t->depth += scores_output_depth(get(t, dot), f);
    return arena_print(t->memory, f->columns ? "dot(transpose(%s), %s)" : "dot(%s, %s)", left, right);
}

static const char *output_access(const scores_text *t, const output_form *f, int number)
{
    return arena_print(t->memory, "o%d%s%s[:]", number, batch_words(t), f->columns ? "[j : BN]" : "[i : BM]");
}

static const char *output_parameter(const scores_text *t, const output_form *f, const graph_node *x, int number)
{
    return arena_print(t->memory, ", out %s o%d%s%s[DO%d]", scores_type(x->elem), number, batch_extents(t),
                       f->columns ? "[S]" : "[L]", number);
}

/* The loop over blocks that a band touches. */
static void put_loop(const scores_text *t, bool columns, score_band band, text *out)
{
    const char *own = columns ? "j" : "i", *step = columns ? "BM" : "BN", *size = columns ? "BN" : "BM";
    /* Of columns j the rows j - upper to j - lower. */
    int64_t lower = columns ? -band.upper : band.lower, upper = columns ? -band.lower : band.upper;
    const char *first = "0", *end = columns ? "L" : "S";
    if (lower > -SCORES_FAR)
        first = lower ? arena_print(t->memory, "max(0, %s + (%lld)) / %s * %s", own, (long long)lower, step, step)
                      : arena_print(t->memory, "%s / %s * %s", own, step, step);
    if (upper < SCORES_FAR)
        end = upper ? arena_print(t->memory, "min(%s, %s + %s + (%lld))", end, own, size, (long long)upper)
                    : arena_print(t->memory, "min(%s, %s + %s)", end, own, size);
    text_print(out, "    int first = %s, end = %s;\n    for (int %s = first; %s < end; %s += %s) {\n", first, end,
               columns ? "i" : "j", columns ? "i" : "j", columns ? "i" : "j", step);
}

bool scores_write_pass(scores_text *t, const node *outputs, const output_form *forms, int count, text *out)
{
    score_graph s = graph_of(t);
    bool sums = !forms, columns = !sums && forms[0].columns;
    score_band band = {SCORES_FAR, -SCORES_FAR};
    const char *names[SCORES_OUTPUTS], *steps[SCORES_OUTPUTS], *batch = batch_words(t);
    int64_t depth = 0;
    text parameters = {0};
    for (int i = 0; i < count; i++) {
        const graph_node *x = get(t, outputs[i]);
        node wanted = sums ? x->inputs[0] : forms[i].scores;
        names[i] = scores_put(t, wanted);
        steps[i] = sums || t->refused ? "" : product_words(t, outputs[i], &forms[i], names[i]);
        score_band own = scores_vanish_outside(&s, wanted);
        band = (score_band){MINIMUM(band.lower, own.lower), MAXIMUM(band.upper, own.upper)};
        if (t->refused || !t->products) return text_free(&parameters), false;
        if (sums) {
            text_print(&parameters, ", out %s o%d%s[L][ONE]", scores_type(x->elem), i, batch_extents(t));
            scores_one(t);
        } else {
            depth = MAXIMUM(depth, scores_output_depth(x, &forms[i]));
            text_print(&t->constants, ", const int DO%d = %lld", i, (long long)scores_output_depth(x, &forms[i]));
            text_add(&parameters, output_parameter(t, &forms[i], x, i));
        }
    }
    put_head(t, columns, text_get(&parameters), depth, out);
    text_free(&parameters);
    text_add(out, text_get(&t->neither));
    text_add(out, text_get(columns ? &t->columns : &t->rows));
    for (int i = 0; i < count; i++) {
        const char *type = scores_type(sum_type(get(t, outputs[i])->elem));
        if (sums)
            text_print(out, "    tile %s acc%d = like(o%d%s[i : BM][0][], 0);\n", type, i, i, batch);
        else
            text_print(out, "    tile %s acc%d = like(%s, 0);\n", type, i, output_access(t, &forms[i], i));
    }
    put_loop(t, columns, band, out);
    text_add(out, text_get(columns ? &t->rows : &t->columns));
    text_add(out, text_get(&t->both));
    for (int i = 0; i < count; i++)
        if (sums)
            text_print(out, "        acc%d += sum(%s, axis = 1);\n", i, names[i]);
        else
            text_print(out, "        acc%d += %s;\n", i, steps[i]);
    text_add(out, "    }\n");
    for (int i = 0; i < count; i++)
        if (sums)
            text_print(out, "    o%d%s[i : BM][0] = acc%d;\n", i, batch, i);
        else
            text_print(out, "    %s = acc%d;\n", output_access(t, &forms[i], i), i);
    text_add(out, "}\n");
    return true;
}

/* What is multiplied by: `p`, or what is computed from it, by statements that come behind it. */
static const char *weights_text(scores_text *t, const score_graph *s, node scores, text *after)
{
    score_weights w = scores_weights(s, scores);
    if (!w.kept && w.factor == 1) return "p";
    text before = t->both;
    t->both = (text){0};
    scores_name(t, w.softmax, "p");
    const char *name = scores_put(t, scores);
    *after = t->both;
    t->both = before;
    return name;
}

bool scores_write_softmax(scores_text *t, node maximum, node norm, node dot, const output_form *f, bool keeps,
                          text *out)
{
    score_graph s = graph_of(t);
    node conditions[4], x = get(t, maximum)->inputs[0];
    int count = 0;
    t->first = maximum;
    t->second = norm;
    node inner = scores_inside_masks(&s, x, conditions, &count, COUNT(conditions));
    const char *name = scores_put(t, inner);
    score_band band = {-SCORES_FAR, SCORES_FAR};
    bool positions = true, always = true; /* positions: masks compare nothing else; always: every row has a score */
    text masked = {0};
    text_add(&masked, name);
    for (int i = count - 1; i >= 0 && !t->refused; i--) {
        score_band own = scores_band(&s, conditions[i]);
        band = (score_band){MAXIMUM(band.lower, own.lower), MINIMUM(band.upper, own.upper)};
        bool is_band = scores_is_band(&s, conditions[i]),
             chosen = !is_band && t->options->gpu && t->options->arch == 90;
        positions &= is_band || chosen;
        always &= is_band;
        always &= own.lower == -SCORES_FAR && own.upper >= 0 && positions;
        const char *before = arena_copy_text(t->memory, text_get(&masked), masked.length);
        const char *condition = scores_condition(t, conditions[i]);
        text_clear(&masked);
        /* What is no comparison of positions is chosen score by score: the matrix units' loops take that, too. */
        text_print(&masked, chosen ? "where(%s, %s, -inf)" : "keep(%s, %s)", chosen ? condition : before,
                   chosen ? before : condition);
    }
    always &= !t->reads_scores && !t->infinite;
    t->empty_rows = !always;
    t->positions = positions;
    t->windowed = band.lower > -SCORES_FAR;
    const char *kept = arena_copy_text(t->memory, text_get(&masked), masked.length);
    text_free(&masked);
    int64_t depth = f ? scores_output_depth(get(t, dot), f) : 0;
    dtype elem = sum_type(get(t, maximum)->elem);
    const char *type = scores_type(elem), *batch = batch_words(t), *extents = batch_extents(t);
    const char *step = "";
    text after = {0};
    if (f && !t->refused) step = product_words(t, dot, f, weights_text(t, &s, f->scores, &after));
    const char *weights = arena_copy_text(t->memory, text_get(&after), after.length);
    text_free(&after);
    if (t->refused || !t->products || t->statistic_count) return false;
    if (f) text_print(&t->constants, ", const int DO0 = %lld", (long long)depth);
    text outputs = {0};
    if (f) text_add(&outputs, output_parameter(t, f, get(t, dot), 0));
    if (keeps) text_print(&outputs, ", out %s top%s[L][ONE]", type, extents);
    if (keeps) scores_one(t);
    put_head(t, false, text_get(&outputs), depth, out);
    text_free(&outputs);
    text_add(out, text_get(&t->neither));
    text_add(out, text_get(&t->rows));
    const char *row =
        f ? arena_print(t->memory, "o0%s[i : BM][0][]", batch) : arena_print(t->memory, "top%s[i : BM][0][]", batch);
    text_print(out, "    tile %s m = like(%s, -inf), l = like(m, 0);\n", type, row);
    if (f) text_print(out, "    tile %s acc = like(%s, 0);\n", type, output_access(t, f, 0));
    put_loop(t, false, band, out);
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
    text_add(out, weights);
    if (f) text_print(out, "        acc *= shrink;\n        acc += %s;\n", step);
    text_add(out, "    }\n");
    if (f) text_print(out, "    %s = acc / l;\n", output_access(t, f, 0));
    if (keeps) text_print(out, "    top%s[i : BM][0] = m + log(l);\n", batch);
    text_add(out, "}\n");
    return true;
}
