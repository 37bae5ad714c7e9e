/*
 * Products of products through a softmax. In: the graph before it is prepared. Out: calls of kernels that fusion writes
 * in the language, so that nothing of the size of the scores [.., L, S] is stored.
 *
 * Found by structure alone: an output is a product one of whose operands is arithmetic over (1) products [.., L, S] of
 * short rows, (2) arrays, positions, constants, and (3) statistics of such arithmetic along S. It becomes a loop over
 * blocks of S (or of L, where it contracts rows) that computes its scores again. Statistics come from loops of their own;
 * a maximum and the sum of exponentials below it are carried together (an online softmax), and with them the product
 * that a softmax is usually for; they leave one number a row. So attention is one kernel, and its gradients are two:
 * outputs that contract rows share a loop, and the sum along S that a softmax's gradient needs is one over rows of the
 * output. No additions by several programs at one place: the same bits each time.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_build.h"
#include "fuse/scores_loops.h"

#include <math.h>
#include <string.h>

enum { BOTH_DEPTHS = 256 }; /* of two outputs of a loop: more would not fit into registers */

/* ROLE_ROWS: a sum along S that rows of an output give */
typedef enum scores_role {
    ROLE_NONE,
    ROLE_SOFTMAX,
    ROLE_PASS,
    ROLE_MAXIMUM,
    ROLE_NORM,
    ROLE_SUM,
    ROLE_ROWS
} scores_role;

struct score_loops {
    arena *memory;
    graph *g;
    score_graph in;
    const fuse_leaf *leaves;
    const fuse_options *options;
    bool *is_root;
    unsigned char *role; /* by node */
    node *partner;       /* by maximum: the sum of exponentials below it; by output: one that shares its loop, or 0 */
    node *together;      /* by maximum: the output that is computed with it, or 0 */
    node *made;          /* by node: what a call before gave */
    int64_t *bytes;      /* by output and statistic: of the scores, were they stored */
    bool *fast;          /* by output: its loop is one that the matrix units run at their speed (schedule/chained.h) */
    node *straight;      /* by output that is turned: what the kernel wrote */
    signed char *degree; /* by node: scores_keep_scale */
    int count;           /* nodes of the graph as it came */
};

static const graph_node *get(const score_loops *o, node n)
{
    return graph_get(o->g, n);
}

static void begin_text(const score_loops *o, scores_text *t, const shape *scores)
{
    scores_begin(t, o->memory, o->g, o->leaves, o->is_root, o->options, scores);
}

/* ---- finding ---- */

static int64_t scores_bytes(const shape *scores)
{
    return shape_count(scores) * (int64_t)sizeof(float);
}

static bool short_rows(const scores_text *t)
{
    for (int i = 0; i < t->value_count; i++) {
        const graph_node *x = graph_get(t->g, t->values[i].n);
        if (x->code != GRAPH_DOT || !t->values[i].rows || !t->values[i].columns) continue;
        const shape *a = &graph_get(t->g, x->inputs[0])->shape;
        int64_t depth = a->extents[a->rank - 1];
        if (depth < 2 || depth > SCORES_MOST_DEPTH) return false;
    }
    return true;
}

/* Can all statistics of a text be had? Marks them where `mark`. */
static bool resolve(score_loops *o, const scores_text *t, bool mark, int depth);

static void try_output(score_loops *o, node dot);

static node find_norm(const score_loops *o, node maximum)
{
    node found = 0;
    for (node n = maximum + 1; (int)n < o->count; n++) {
        if (scores_norm_maximum(&o->in, n) != maximum) continue;
        if (o->in.reached[n]) return n;
        found = found ? found : n;
    }
    return found;
}

static bool resolve_maximum(score_loops *o, const scores_text *t, node maximum, bool mark)
{
    node norm = o->leaves[maximum].given ? 0 : find_norm(o, maximum);
    if (!norm || o->is_root[maximum] || o->is_root[norm]) return false;
    scores_text own;
    text ignored = {0};
    o->partner[maximum] = norm;
    begin_text(o, &own, &t->scores);
    bool good = scores_write_softmax(&own, maximum, norm, 0, NULL, true, &ignored) && short_rows(&own);
    if (good && mark) {
        o->role[maximum] = ROLE_MAXIMUM;
        o->role[norm] = ROLE_NORM;
        o->bytes[maximum] = o->bytes[norm] = scores_bytes(&t->scores);
    }
    scores_end(&own);
    text_free(&ignored);
    return good;
}

static bool resolve_one(score_loops *o, const scores_text *t, node n, bool mark, int depth)
{
    row_product rows;
    if (o->role[n]) return true;
    if (depth > 4) return false;
    if (get(o, n)->attr.fold == FOLD_MAX) return resolve_maximum(o, t, n, mark);
    if (o->is_root[n]) return false;
    if (scores_row_product(&o->in, n, &rows)) {
        if (!o->leaves[rows.output].given && !o->role[rows.output]) try_output(o, rows.output);
        if (mark) o->role[n] = ROLE_ROWS;
        if (mark) o->bytes[n] = scores_bytes(&t->scores);
        return true;
    }
    scores_text own;
    text ignored = {0};
    begin_text(o, &own, &t->scores);
    bool good = scores_write_pass(&own, &n, NULL, 1, &ignored) && short_rows(&own) && resolve(o, &own, mark, depth + 1);
    if (good && mark) o->role[n] = ROLE_SUM;
    if (good && mark) o->bytes[n] = scores_bytes(&t->scores);
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

/* Loops compute scores again, and but for the fast ones they are slower than products that store them: they are for
 * scores that do not fit. Gradients of scores that fit need the stored ones of the forward pass. */
static void choose(score_loops *o)
{
    enum { USUAL_MEMORY_GB = 16, CPU_CACHES_MB = 16 };
    const fuse_options *options = o->options;
    int64_t memory = options->memory_bytes ? options->memory_bytes : (int64_t)USUAL_MEMORY_GB << 30;
    int64_t fits = options->scores_bytes ? options->scores_bytes : memory / 4;
    int64_t alone = options->scores_bytes || options->gpu ? fits : (int64_t)CPU_CACHES_MB << 20;
    bool gradients = false, fast = false;
    for (node n = 1; (int)n < o->count; n++) {
        gradients |= o->role[n] == ROLE_PASS && !o->fast[n] && o->bytes[n] < fits;
        fast |= o->role[n] == ROLE_PASS && o->fast[n];
    }
    for (node n = 1; (int)n < o->count; n++) {
        if (!o->role[n] || o->fast[n]) continue;
        bool statistic = o->role[n] != ROLE_SOFTMAX && o->role[n] != ROLE_PASS;
        if (statistic && fast) continue; /* of fast loops, and as good for others */
        bool stored = gradients ? o->bytes[n] < fits : o->role[n] == ROLE_SOFTMAX && o->bytes[n] < alone;
        if (stored) o->role[n] = ROLE_NONE;
    }
}

static void try_output(score_loops *o, node dot)
{
    for (int way = 0; way < 4; way++) {
        output_form f;
        node maximum, norm;
        if (!scores_form_of(&o->in, dot, way, &f)) continue;
        const shape *scores = &get(o, f.scores)->shape;
        scores_text t;
        text ignored = {0};
        begin_text(o, &t, scores);
        scores_role role = ROLE_NONE;
        if (!f.columns && scores_is_softmax(&o->in, f.scores, &maximum, &norm)) {
            o->partner[maximum] = norm;
            if (scores_write_softmax(&t, maximum, norm, dot, &f, false, &ignored) && short_rows(&t))
                role = ROLE_SOFTMAX;
        } else if (scores_write_pass(&t, &dot, &f, 1, &ignored) && t.statistic_count && short_rows(&t) &&
                   scores_keep_scale(&o->in, f.scores, o->degree) && resolve(o, &t, false, 0)) {
            role = ROLE_PASS;
            (void)resolve(o, &t, true, 0);
        }
        o->fast[dot] = role && t.fast;
        scores_end(&t);
        text_free(&ignored);
        o->role[dot] = (unsigned char)role;
        o->bytes[dot] = scores_bytes(scores);
        if (role) return;
    }
}

/* Is `from` computed from `to`, or the same? Only nodes that are not in memory count. */
static bool reaches(const score_loops *o, node from, node to, bool *seen)
{
    if (from == to) return true;
    if (from < to || seen[from] || o->leaves[from].given) return false;
    seen[from] = true;
    for (int i = 0; i < get(o, from)->input_count; i++)
        if (reaches(o, get(o, from)->inputs[i], to, seen)) return true;
    return false;
}

/* An output that may be computed where its statistics are: nothing that it reads is computed from them. */
static void join(score_loops *o, node dot)
{
    output_form f = {0};
    node maximum = 0, norm = 0;
    for (int way = 0; way < 4 && !maximum; way++)
        if (scores_form_of(&o->in, dot, way, &f) && !f.columns && !scores_is_softmax(&o->in, f.scores, &maximum, &norm))
            maximum = 0;
    if (!maximum || o->role[maximum] != ROLE_MAXIMUM || o->together[maximum]) return;
    bool *seen = ARENA_ARRAY(o->memory, bool, o->count);
    if (!reaches(o, f.other, maximum, seen)) o->together[maximum] = dot;
}

/* The way in which a pass was found. */
static output_form pass_form(score_loops *o, node n)
{
    output_form f = {0};
    bool good = false;
    for (int way = 0; way < 4 && !good; way++) {
        good = scores_form_of(&o->in, n, way, &f);
        if (!good) continue;
        scores_text t;
        text ignored = {0};
        begin_text(o, &t, &get(o, f.scores)->shape);
        good = scores_write_pass(&t, &n, &f, 1, &ignored) && t.statistic_count && short_rows(&t);
        text_free(&ignored);
        scores_end(&t);
    }
    CHECK(good);
    return f;
}

/* Fast outputs that contract the same rows share a loop, and so its scores. */
static void pair(score_loops *o, node n)
{
    if (o->role[n] != ROLE_PASS || !o->fast[n] || o->partner[n]) return;
    output_form f[2] = {pass_form(o, n)};
    if (!f[0].columns) return;
    for (node other = n + 1; (int)other < o->count; other++) {
        if (o->role[other] != ROLE_PASS || !o->fast[other] || o->partner[other]) continue;
        f[1] = pass_form(o, other);
        if (!f[1].columns || !shape_same(&get(o, f[0].scores)->shape, &get(o, f[1].scores)->shape)) continue;
        bool *seen = ARENA_ARRAY(o->memory, bool, o->count);
        if (reaches(o, other, n, seen)) continue;
        scores_text t;
        text ignored = {0};
        begin_text(o, &t, &get(o, f[0].scores)->shape);
        bool good = scores_write_pass(&t, (node[]){n, other}, f, 2, &ignored) && t.fast && t.products <= 2;
        good &= scores_output_depth(get(o, n), &f[0]) + scores_output_depth(get(o, other), &f[1]) <= BOTH_DEPTHS;
        text_free(&ignored);
        scores_end(&t);
        if (!good) continue;
        o->partner[n] = other;
        o->partner[other] = n;
        return;
    }
}

score_loops *scores_find(graph *g, const fuse_leaf *leaves, const bool *reached, const node *roots, int root_count,
                         const fuse_options *options, arena *memory)
{
    if (options->mode != FUSE_FUSED) return NULL;
    score_loops *o = ARENA_NEW(memory, score_loops);
    *o = (score_loops){
        .memory = memory, .g = g, .in = {g, leaves, reached, g->node_count}, .leaves = leaves, .options = options};
    o->count = g->node_count;
    o->is_root = ARENA_ARRAY(memory, bool, g->node_count);
    o->role = ARENA_ARRAY(memory, unsigned char, g->node_count);
    o->partner = ARENA_ARRAY(memory, node, g->node_count);
    o->together = ARENA_ARRAY(memory, node, g->node_count);
    o->made = ARENA_ARRAY(memory, node, g->node_count);
    o->straight = ARENA_ARRAY(memory, node, g->node_count);
    o->bytes = ARENA_ARRAY(memory, int64_t, g->node_count);
    o->fast = ARENA_ARRAY(memory, bool, g->node_count);
    o->degree = ARENA_ARRAY(memory, signed char, g->node_count);
    bool any = false;
    for (int i = 0; i < root_count; i++) o->is_root[roots[i]] = true;
    for (node n = 1; (int)n < o->count; n++) {
        if (!reached[n] || leaves[n].given || get(o, n)->code != GRAPH_DOT) continue;
        if (!o->role[n]) try_output(o, n);
        any |= o->role[n] != ROLE_NONE;
    }
    if (any) choose(o);
    for (node n = 1; (int)n < o->count && any; n++) {
        if (o->role[n] == ROLE_SOFTMAX) join(o, n);
        pair(o, n);
    }
    return any ? o : NULL;
}

/* ---- making ---- */

typedef struct making {
    score_loops *o;
    scores_prepared *prepared;
    void *context;
} making;

/* turned: by output, whether it is the other way round than the kernel writes it. */
static node call(const making *m, const scores_text *t, const char *source, const node *outputs, int count,
                 const bool *turned)
{
    score_loops *o = m->o;
    graph *g = o->g;
    node inputs[SCORES_ARRAYS];
    for (int i = 0; i < t->array_count; i++) {
        const graph_node x = *get(o, t->arrays[i]);
        if (!t->array_turned[i]) {
            inputs[i] = m->prepared(m->context, t->arrays[i]);
            continue;
        }
        int axes[GRAPH_RANK], rank = x.shape.rank; /* one view instead of two */
        memcpy(axes, x.attr.axes, sizeof(axes));
        axes[rank - 2] = x.attr.axes[rank - 1];
        axes[rank - 1] = x.attr.axes[rank - 2];
        inputs[i] = graph_permute(g, m->prepared(m->context, x.inputs[0]), axes);
    }
    graph_kernel *k = ARENA_NEW(g->memory, graph_kernel);
    const char *start = source + strlen("kernel ");
    *k = (graph_kernel){.name = arena_copy_text(g->memory, start, strcspn(start, "(")),
                        .source = arena_copy_text(g->memory, source, strlen(source)),
                        .output_count = count};
    for (int i = 0; i < count; i++) {
        k->output_elem[i] = get(o, outputs[i])->elem;
        k->output_shape[i] = get(o, outputs[i])->shape;
        int64_t *last = &k->output_shape[i].extents[k->output_shape[i].rank - 2];
        if (!turned[i]) continue;
        int64_t depth = last[0];
        last[0] = last[1];
        last[1] = depth;
    }
    k->flops = 2 * shape_count(&t->scores) * t->depth;
    k->identity = hash_bytes(source, strlen(source)).low;
    return graph_kernel_call(g, k, inputs, t->array_count);
}

/* A sum along S as one over rows of an output: factor * sum(left * output). */
static node make_rows(const making *m, node n)
{
    graph *g = m->o->g;
    row_product rows;
    CHECK(scores_row_product(&m->o->in, n, &rows));
    const graph_node x = *get(m->o, n);
    node left = graph_convert(g, m->prepared(m->context, rows.left), x.elem);
    node output = graph_convert(g, m->prepared(m->context, rows.output), x.elem);
    node both = graph_binary(g, OP_MUL, left, output);
    both = graph_reduce(g, FOLD_SUM, both, 1u << (x.shape.rank - 1));
    return graph_binary(g, OP_MUL, both, graph_full_double(g, x.elem, &x.shape, rows.factor));
}

/* A row without a score has weights that are no numbers, and the output is none either; but 0 where each of them was left
 * out: of what is kept nothing is left, and 0 is what was put there. */
static node zero_where_nothing_is_kept(const making *m, node scores, node own)
{
    graph *g = m->o->g;
    node kept = scores_weights(&m->o->in, scores).kept;
    if (!kept || scores_is_drawn(&m->o->in, kept)) return own;
    shape s = graph_get(g, own)->shape;
    node some = graph_reduce(g, FOLD_ANY, m->prepared(m->context, kept), 1u << (s.rank - 1));
    node zero = graph_full_double(g, graph_get(g, own)->elem, &s, 0);
    return graph_select(g, graph_expand(g, some, &s), own, zero);
}

static void make_loop(const making *m, node n)
{
    score_loops *o = m->o;
    scores_role role = (scores_role)o->role[n];
    text source = {0};
    scores_text t;
    output_form f[SCORES_OUTPUTS] = {0};
    node outputs[SCORES_OUTPUTS], maximum = n, norm = 0, dot = 0;
    bool turned[SCORES_OUTPUTS] = {0}, good = false;
    int count = 0;
    const shape *scores = &get(o, get(o, n)->inputs[0])->shape;
    if (role == ROLE_PASS) {
        outputs[count++] = n;
        if (o->partner[n]) outputs[count++] = o->partner[n];
        for (int i = 0; i < count; i++) f[i] = pass_form(o, outputs[i]);
    } else if (role == ROLE_SUM) {
        outputs[count++] = n;
    } else {
        dot = role == ROLE_SOFTMAX ? n : o->together[n];
        for (int way = 0; way < 4 && dot && !good; way++)
            good = scores_form_of(&o->in, dot, way, &f[0]) && !f[0].columns &&
                   scores_is_softmax(&o->in, f[0].scores, &maximum, &norm);
        CHECK(good || !dot);
        norm = o->partner[maximum];
        if (dot) outputs[count++] = dot;
        if (role == ROLE_MAXIMUM) outputs[count++] = n;
    }
    if (dot || role == ROLE_PASS) scores = &get(o, f[0].scores)->shape;
    for (int i = 0; i < count; i++) turned[i] = f[i].turned;
    begin_text(o, &t, scores);
    if (role == ROLE_PASS || role == ROLE_SUM)
        good = scores_write_pass(&t, outputs, role == ROLE_SUM ? NULL : f, count, &source);
    else
        good = scores_write_softmax(&t, maximum, norm, dot, dot ? f : NULL, role == ROLE_MAXIMUM, &source);
    CHECK(good);
    node made = call(m, &t, text_get(&source), outputs, count, turned);
    for (int i = 0; i < count; i++) {
        node own = graph_result(o->g, made, i);
        if (outputs[i] == dot && t.empty_rows) own = zero_where_nothing_is_kept(m, f[i].scores, own);
        o->made[outputs[i]] = own;
        if (!turned[i]) continue;
        int axes[GRAPH_RANK], rank = scores->rank; /* a view of it; whoever turns it back reads it as it is */
        for (int k = 0; k < rank; k++) axes[k] = k < rank - 2 ? k : 2 * rank - 3 - k;
        o->straight[outputs[i]] = own;
        o->made[outputs[i]] = graph_permute(o->g, own, axes);
    }
    if (role == ROLE_MAXIMUM) {
        const graph_node x = *get(o, norm);
        o->made[norm] = graph_full_double(o->g, x.elem, &x.shape, 1);
    }
    scores_end(&t);
    text_free(&source);
}

node scores_make(score_loops *o, node n, scores_prepared *prepared, void *context)
{
    const making m = {o, prepared, context};
    if ((int)n >= o->count) return 0;
    if (!o->role[n]) return scores_swaps(get(o, n)) ? o->straight[get(o, n)->inputs[0]] : 0;
    if (o->made[n]) return o->made[n];
    CHECK(o->role[n] != ROLE_NORM); /* made with its maximum, which is older */
    if (o->role[n] == ROLE_ROWS)
        o->made[n] = make_rows(&m, n);
    else
        make_loop(&m, n);
    return o->made[n];
}
