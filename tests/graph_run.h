/*
 * Running graphs of random_graph.h: by the interpreter, and on a device through a tape, with everything that lies
 * between: canonical pieces, plans, fusion, compiling, memory. The comparison allows for rounding as the interpreter
 * itself shows it: where exact and rounded values of a tensor lie far apart, so may a device's.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_GRAPH_RUN_H
#define QUERN_TESTS_GRAPH_RUN_H

#include "random_graph.h"
#include "tensor/tape.h"

/* A graph with what is wanted of it; memory of its leaves is random_memory's. */
typedef struct graph_case {
    const graph *g;
    const node *roots;
    int root_count;
} graph_case;

static inline qn_status case_interpret(const graph_case *c, bool exact, arena *memory, graph_tensor *out,
                                       qn_error *error)
{
    arena *leaves = arena_new();
    graph_memory where = {.find = random_find, .context = leaves};
    qn_status status = graph_interpret(c->g, c->roots, c->root_count, &where, exact, memory, out, error);
    arena_free(leaves);
    return status;
}

/* Copies what the roots need into another graph, with the leaf that `leaf` gives for each leaf. */
typedef node case_leaf(void *context, graph *to, const graph_node *leaf);

static inline void case_copy(const graph_case *c, graph *to, case_leaf *leaf, void *context, node *roots)
{
    arena *scratch = arena_new();
    node *order = ARENA_ARRAY(scratch, node, c->g->node_count), *now = ARENA_ARRAY(scratch, node, c->g->node_count);
    int count = graph_order(c->g, c->roots, c->root_count, order);
    for (int i = 0; i < count; i++) {
        graph_node n = *graph_get(c->g, order[i]);
        if (n.code == GRAPH_LEAF && leaf) {
            now[order[i]] = leaf(context, to, &n);
            continue;
        }
        node *inputs = ARENA_ARRAY(scratch, node, n.input_count + 1);
        for (int k = 0; k < n.input_count; k++) inputs[k] = now[n.inputs[k]];
        n.inputs = inputs;
        now[order[i]] = graph_intern(to, &n);
    }
    for (int i = 0; i < c->root_count; i++) roots[i] = now[c->roots[i]];
    arena_free(scratch);
}

/* ---- on a device ---- */

typedef struct case_storages {
    qn_tape *tape;
    arena *memory;
    storage *by_number[RANDOM_STORAGES];
    int64_t reach[RANDOM_STORAGES];
} case_storages;

static inline node case_tape_leaf(void *context, graph *to, const graph_node *leaf)
{
    case_storages *s = context;
    int number = (int)(uintptr_t)leaf->attr.storage;
    if (!s->by_number[number]) {
        int64_t count = s->reach[number];
        void *data = random_memory(number, leaf->elem, count, s->memory);
        node whole = tape_leaf_from(s->tape, leaf->elem, &(shape){1, {count}}, data);
        if (!whole) return 0;
        tape_handle(s->tape, whole); /* keeps it */
        s->by_number[number] = graph_get(s->tape->graph, whole)->attr.storage;
    }
    (void)to;
    return tape_leaf(s->tape, leaf->elem, &leaf->shape, leaf->attr.strides, leaf->attr.offset, s->by_number[number]);
}

static inline qn_status case_run(const graph_case *c, qn_context *context, const char *device, qn_mode mode,
                                 arena *memory, graph_tensor *out, qn_error *error)
{
    arena *scratch = arena_new();
    case_storages *storages = ARENA_NEW(scratch, case_storages);
    storages->memory = scratch;
    qn_status status = qn_tape_new(context, device, &storages->tape, error);
    if (status) {
        arena_free(scratch);
        return status;
    }
    qn_tape *tape = storages->tape;
    node *order = ARENA_ARRAY(scratch, node, c->g->node_count), roots[RANDOM_ROOTS];
    for (int i = graph_order(c->g, c->roots, c->root_count, order) - 1; i >= 0; i--) {
        const graph_node *n = graph_get(c->g, order[i]);
        if (n->code != GRAPH_LEAF) continue;
        int64_t *reach = &storages->reach[(uintptr_t)n->attr.storage];
        *reach = MAXIMUM(*reach, random_reach(n));
    }
    qn_tape_set_mode(tape, mode);
    case_copy(c, tape->graph, case_tape_leaf, storages, roots);
    qn_tensor tensors[RANDOM_ROOTS];
    for (int i = 0; i < c->root_count; i++) tensors[i] = tape_handle(tape, roots[i]);
    status = qn_eval(tape, tensors, c->root_count, error);
    for (int i = 0; i < c->root_count && !status; i++) {
        const graph_node *n = graph_get(c->g, c->roots[i]);
        size_t size_bytes = (size_t)graph_size_bytes(c->g, c->roots[i]);
        void *host = arena_alloc(scratch, size_bytes + 1);
        status = qn_tensor_read(tensors[i], host, size_bytes, error);
        if (!status) out[i] = graph_tensor_read(n->elem, &n->shape, host, memory);
    }
    qn_tape_free(tape);
    arena_free(scratch);
    return status;
}

/* ---- comparing ---- */

static inline double case_step(dtype elem)
{
    return elem == DT_F64    ? 0x1p-53
           : elem == DT_F32  ? 0x1p-24
           : elem == DT_F16  ? 0x1p-11
           : elem == DT_BF16 ? 0x1p-8
                             : 0;
}

/* The widest rounding step of any float that the root depends on. */
static inline double case_worst_step(const graph *g, node root)
{
    arena *scratch = arena_new();
    node *order = ARENA_ARRAY(scratch, node, g->node_count);
    double worst = 0;
    for (int i = graph_order(g, &root, 1, order) - 1; i >= 0; i--)
        worst = MAXIMUM(worst, case_step(graph_get(g, order[i])->elem));
    arena_free(scratch);
    return worst;
}

static inline bool case_same_bits(const graph_tensor *a, const graph_tensor *b, int64_t *at)
{
    for (*at = 0; *at < a->count; ++*at) {
        number x = a->elements[*at], y = b->elements[*at];
        if (dtype_is_float(a->elem) ? x.f != y.f && !(isnan(x.f) && isnan(y.f)) : x.i != y.i) return false;
        if (dtype_is_float(a->elem) && !isnan(x.f) && signbit(x.f) != signbit(y.f)) return false;
    }
    return true;
}

/* What a result may differ by: rounding of the values on the way, as far as the interpreter shows how they grow. */
static inline double case_tolerance(const graph *g, node root, const graph_tensor *exact, const graph_tensor *rounded)
{
    double largest = 0, apart = 0;
    if (!dtype_is_float(exact->elem)) return 0;
    for (int64_t j = 0; j < exact->count; j++) {
        largest = fmax(largest, fabs(exact->elements[j].f));
        apart = fmax(apart, fabs(exact->elements[j].f - rounded->elements[j].f));
    }
    return 16 * apart + case_worst_step(g, root) * 32 * fmax(largest, 1);
}

/* Compares one result with the interpreter's; false with words. `wide`: so many times what it may differ by, where sums are
 * added up in another order than the interpreter's (in pieces, or one by one). */
static inline bool case_near(const graph_case *c, int root, const graph_tensor *got, const graph_tensor *exact,
                             const graph_tensor *rounded, double wide, text *words)
{
    double tolerance = wide * case_tolerance(c->g, c->roots[root], exact, rounded);
    for (int64_t j = 0; j < got->count; j++) {
        number x = got->elements[j], want = rounded->elements[j];
        bool equal = x.f == want.f || (isnan(x.f) && isnan(want.f));
        bool good = dtype_is_float(got->elem) ? equal || fabs(x.f - want.f) <= tolerance : x.i == want.i;
        if (good) continue;
        if (dtype_is_float(got->elem))
            text_print(words, "result %d, element %lld: %.9g, should be %.9g within %.3g\n", root, (long long)j, x.f,
                       want.f, tolerance);
        else
            text_print(words, "result %d, element %lld: %lld, should be %lld\n", root, (long long)j, (long long)x.i,
                       (long long)want.i);
        return false;
    }
    return true;
}

static inline bool case_close(const graph_case *c, int root, const graph_tensor *got, const graph_tensor *exact,
                              const graph_tensor *rounded, text *words)
{
    return case_near(c, root, got, exact, rounded, 1, words);
}

/* Values far from the interpreter's, or a failure to run: the words say which. True where the interpreter itself fails
 * or gives what is not finite: then there is nothing to compare with. */
static inline bool case_agrees(const graph_case *c, qn_context *context, const char *device, qn_mode mode, text *words)
{
    arena *memory = arena_new();
    graph_tensor exact[RANDOM_ROOTS], rounded[RANDOM_ROOTS], got[RANDOM_ROOTS];
    qn_error error;
    bool good = true;
    if (!case_interpret(c, true, memory, exact, NULL) && !case_interpret(c, false, memory, rounded, NULL)) {
        for (int i = 0; i < c->root_count && good; i++)
            for (int64_t j = 0; j < rounded[i].count && good; j++)
                good = !dtype_is_float(rounded[i].elem) || isfinite(rounded[i].elements[j].f);
        if (!good) {
            good = true;
        } else if (case_run(c, context, device, mode, memory, got, &error)) {
            text_print(words, "%s\n", error.message);
            good = false;
        } else {
            for (int i = 0; i < c->root_count && good; i++)
                good = case_close(c, i, &got[i], &exact[i], &rounded[i], words);
        }
    }
    arena_free(memory);
    return good;
}

/* Strict gives the bits of eager. */
static inline bool case_strict(const graph_case *c, qn_context *context, const char *device, text *words)
{
    arena *memory = arena_new();
    graph_tensor eager[RANDOM_ROOTS], strict[RANDOM_ROOTS];
    qn_error error;
    bool good = true;
    if (case_run(c, context, device, QN_EAGER, memory, eager, &error) ||
        case_run(c, context, device, QN_STRICT, memory, strict, &error)) {
        text_print(words, "%s\n", error.message);
        good = false;
    }
    for (int i = 0; i < c->root_count && good; i++) {
        int64_t at;
        good = case_same_bits(&eager[i], &strict[i], &at);
        if (!good)
            text_print(words, "result %d, element %lld: strict %.17g, eager %.17g (integers %lld, %lld)\n", i,
                       (long long)at, strict[i].elements[at].f, eager[i].elements[at].f,
                       (long long)strict[i].elements[at].i, (long long)eager[i].elements[at].i);
    }
    arena_free(memory);
    return good;
}

/* ---- shrinking ---- */

/* The same case as its text reads: storages numbered in the order of the text, so that what fails here fails there. */
static inline graph_case case_reread(const graph_case *c, arena *memory)
{
    text words = {0};
    graph *g = graph_new(memory);
    node *roots;
    int count;
    qn_error error;
    graph_print(c->g, c->roots, c->root_count, &words);
    qn_status status = graph_read(g, "case", text_get(&words), words.length, &roots, &count, &error);
    if (status) printf("%s\n%s", error.message, text_get(&words));
    CHECK(!status);
    text_free(&words);
    return (graph_case){g, roots, count};
}

typedef bool case_test(const graph_case *c, void *context, text *words); /* false: it fails */

/* The case with one node replaced by a leaf. */
static inline void case_replace(const graph_case *c, node replaced, int storage, graph *to, node *roots)
{
    arena *scratch = arena_new();
    node *order = ARENA_ARRAY(scratch, node, c->g->node_count), *now = ARENA_ARRAY(scratch, node, c->g->node_count);
    int count = graph_order(c->g, c->roots, c->root_count, order);
    for (int i = 0; i < count; i++) {
        graph_node n = *graph_get(c->g, order[i]);
        if (order[i] == replaced) {
            now[replaced] = graph_leaf(to, n.elem, &n.shape, NULL, 0, (void *)(uintptr_t)storage);
            continue;
        }
        node *inputs = ARENA_ARRAY(scratch, node, n.input_count + 1);
        for (int k = 0; k < n.input_count; k++) inputs[k] = now[n.inputs[k]];
        n.inputs = inputs;
        now[order[i]] = graph_intern(to, &n);
    }
    for (int i = 0; i < c->root_count; i++) roots[i] = now[c->roots[i]];
    arena_free(scratch);
}

/* A smaller case that fails too: one result, as early a one as there is, and leaves in the place of what does not
 * matter. Gives its text in `out` and what it fails with in `words`. */
static inline void case_shrink(const graph_case *failing, case_test *passes, void *context, text *out, text *words)
{
    arena *memory = arena_new();
    graph_case c = *failing;
    node *order = ARENA_ARRAY(memory, node, c.g->node_count);
    text ignored = {0};
    int count = graph_order(c.g, c.roots, c.root_count, order), runs = 0;
    for (int i = 0; i < count && runs < 200; i++) { /* the first node that fails alone */
        graph_code code = graph_get(c.g, order[i])->code;
        if (code == GRAPH_LEAF || code == GRAPH_KERNEL) continue;
        graph_case one = case_reread(&(graph_case){c.g, &order[i], 1}, memory);
        runs++;
        if (passes(&one, context, &ignored)) continue;
        c = one;
        break;
    }
    for (bool changed = true; changed && runs < 400;) {
        changed = false;
        node *now = ARENA_ARRAY(memory, node, c.g->node_count);
        count = graph_order(c.g, c.roots, c.root_count, now);
        for (int i = count - 1; i >= 0 && runs < 400; i--) {
            const graph_node *n = graph_get(c.g, now[i]);
            bool wanted = false;
            for (int k = 0; k < c.root_count; k++) wanted |= now[i] == c.roots[k];
            if (wanted || n->code == GRAPH_LEAF || n->code == GRAPH_KERNEL) continue;
            graph *smaller = graph_new(memory);
            node kept[RANDOM_ROOTS];
            case_replace(&c, now[i], RANDOM_STORAGES - 1, smaller, kept);
            graph_case next = case_reread(&(graph_case){smaller, kept, c.root_count}, memory);
            runs++;
            if (passes(&next, context, &ignored)) continue;
            c = next;
            changed = true;
            break;
        }
    }
    (void)passes(&c, context, words);
    graph_print(c.g, c.roots, c.root_count, out);
    text_free(&ignored);
    arena_free(memory);
}

#endif
