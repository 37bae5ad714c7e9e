/*
 * What users meet with arrays of millions of elements, on arrays of some hundred: the sizes of src/fuse/sizes.h are made
 * small, random graphs are planned as for a GPU (and as for a processor), and every kernel of a plan runs in the checking
 * interpreter; the results agree with the meaning of the graph.
 * QUERN_GRAPHS=COUNT tries more, QUERN_GRAPH_SEED=N starts elsewhere, QUERN_GRAPH=FILE plans and runs one text instead.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/sizes.h"
#include "fuse_run.h"
#include "graph_run.h"
#include "ir/graph_simplify.h"
#include "share.h"
#include "test.h"

#include <setjmp.h>
#include <signal.h>

typedef struct way {
    fuse_options options;
    int root;
    int assigned; /* the last results of a case are so many pairs: a leaf, and what becomes its value */
} way;

static sigjmp_buf at_check;

static void at_abort(int signal_number)
{
    siglongjmp(at_check, signal_number);
}

typedef struct storages {
    arena *memory;
    void *by_number[RANDOM_STORAGES];
    int64_t reach[RANDOM_STORAGES];
} storages;

static node leaf_in_memory(void *context, graph *to, const graph_node *leaf)
{
    storages *s = context;
    int number = (int)(uintptr_t)leaf->attr.storage;
    if (!s->by_number[number]) s->by_number[number] = random_memory(number, leaf->elem, s->reach[number], s->memory);
    return graph_leaf(to, leaf->elem, &leaf->shape, leaf->attr.strides, leaf->attr.offset, s->by_number[number]);
}

static bool is_view_of_leaf(const graph *g, node n)
{
    const graph_node *at = graph_get(g, n);
    while (graph_ops[at->code].class == GRAPH_CLASS_MOVE && at->code != GRAPH_PAD && at->code != GRAPH_CONCAT)
        at = graph_get(g, at->inputs[0]);
    return at->code == GRAPH_LEAF;
}

/* The graph's results by a plan of it. */
static bool run_plan(const graph_case *c, const way *w, arena *memory, graph_tensor *out, text *words)
{
    storages *s = ARENA_NEW(memory, storages);
    graph *g = graph_new(memory);
    node roots[RANDOM_ROOTS];
    node *order = ARENA_ARRAY(memory, node, c->g->node_count);
    s->memory = memory;
    for (int i = graph_order(c->g, c->roots, c->root_count, order) - 1; i >= 0; i--) {
        const graph_node *n = graph_get(c->g, order[i]);
        if (n->code != GRAPH_LEAF) continue;
        int64_t *reach = &s->reach[(uintptr_t)n->attr.storage];
        *reach = MAXIMUM(*reach, random_reach(n));
    }
    case_copy(c, g, leaf_in_memory, s, roots);
    graph_simplify(g, roots, c->root_count, &(graph_rules){.relaxed = w->options.mode == FUSE_FUSED});
    for (int i = 0; i < c->root_count - 2 * w->assigned; i++)
        if (is_view_of_leaf(g, roots[i])) roots[i] = graph_same(g, GRAPH_KEEP, roots[i], 0);
    node unique[RANDOM_ROOTS];
    fuse_assign assigns[RANDOM_ROOTS];
    int count = 0, wanted = c->root_count - 2 * w->assigned;
    for (int i = 0; i < w->assigned; i++) {
        node home = roots[wanted + 2 * i], from = roots[wanted + 2 * i + 1];
        if (is_view_of_leaf(g, from)) from = graph_same(g, GRAPH_KEEP, from, i + 1);
        assigns[i] = (fuse_assign){home, from};
    }
    for (int i = 0; i < wanted; i++) {
        bool there = false;
        for (int k = 0; k < count; k++) there |= unique[k] == roots[i];
        if (!there) unique[count++] = roots[i];
    }
    fuse_run r = fuse_run_plan(memory, g, unique, count, assigns, w->assigned, &w->options);
    if (environment_get("QUERN_GRAPH") && r.plan) {
        text t = {0};
        fuse_print(r.plan, &t);
        fuse_print_memory(r.plan, &t);
        for (int i = 0; i < r.plan->kernel_count; i++) tile_print(r.plan->kernels[i].kernel, &t);
        printf("%s", text_get(&t));
        text_free(&t);
    }
    if (!r.good) {
        text_add(words, "the plan did not run\n");
        return false;
    }
    for (int i = 0; i < wanted; i++) {
        const graph_node *n = graph_get(g, roots[i]);
        out[i] = graph_tensor_read(n->elem, &n->shape, r.data[roots[i]], memory);
    }
    for (int i = wanted; i < c->root_count; i++) { /* both of a pair: what its leaf holds now */
        const graph_node *n = graph_get(g, roots[wanted + (i - wanted) / 2 * 2]);
        out[i] = graph_tensor_read(n->elem, &n->shape, n->attr.storage, memory);
    }
    return true;
}

/* Infinities and what is undefined must come out, too. */
static bool any_number;

static bool agrees(const graph_case *c, const way *w, text *words)
{
    arena *memory = arena_new();
    graph_tensor exact[RANDOM_ROOTS], rounded[RANDOM_ROOTS], got[RANDOM_ROOTS];
    bool good = true;
    if (!case_interpret(c, true, memory, exact, NULL) && !case_interpret(c, false, memory, rounded, NULL)) {
        bool finite = true;
        for (int i = 0; i < c->root_count; i++)
            for (int64_t j = 0; j < rounded[i].count; j++)
                finite &= !dtype_is_float(rounded[i].elem) || isfinite(rounded[i].elements[j].f);
        if (finite || any_number) {
            good = run_plan(c, w, memory, got, words);
            for (int i = 0, pairs = c->root_count - 2 * w->assigned; i < c->root_count && good; i++)
                if (i < pairs || (i - pairs) % 2) good = case_near(c, i, &got[i], &exact[i], &rounded[i], 8, words);
        }
    }
    arena_free(memory);
    return good;
}

static bool passes(const graph_case *c, void *context, text *words)
{
    const way *w = context;
    fuse_size_root = w->root;
    kernel_of_any_graph = true;
    signal(SIGABRT, at_abort);
    bool good = false;
    if (sigsetjmp(at_check, 1))
        text_add(words, "an internal check failed\n");
    else
        good = agrees(c, w, words);
    fuse_size_root = 1;
    return good;
}

static void check(const graph_case *c, way *w, uint64_t seed)
{
    text words = {0}, smaller = {0};
    if (!passes(c, w, &words)) {
        printf("seed %llu, %s, %d units, root %d, mode %d: %s", (unsigned long long)seed,
               w->options.gpu ? "gpu" : "cpu", w->options.units, w->root, (int)w->options.mode, text_get(&words));
        fflush(stdout);
        text_clear(&words);
        if (w->assigned)
            graph_print(c->g, c->roots, c->root_count, &smaller);
        else
            case_shrink(c, passes, w, &smaller, &words);
        printf("%s%s", text_get(&smaller), text_get(&words));
        test_fail(__FILE__, __LINE__, "a random graph");
    }
    text_free(&words);
    text_free(&smaller);
}

static way draw_way(uint64_t seed)
{
    static const int roots[] = {3, 2, 3, 2, 1}, units[] = {132, 4, 16, 1};
    uint64_t h = random_hash(seed);
    way w = {.root = roots[h % COUNT(roots)]};
    w.options = (fuse_options){.mode = h >> 8 & 15 ? FUSE_FUSED : FUSE_STRICT,
                               .gpu = (h >> 12 & 7) != 0,
                               .units = units[h >> 16 & 3],
                               .arch = h >> 18 & 3 ? 90 : 80,
                               .memory_bytes = h >> 20 & 3 ? (int64_t)1 << 32 : (int64_t)1 << 20,
                               .scores_bytes = h >> 22 & 3 ? 1 : 0};
    return w;
}

/* One text, with sizes as they are (QUERN_GRAPH_SIZES=1) and made small. */
static void replay(const char *path)
{
    char *data = NULL;
    size_t size = 0;
    qn_error error;
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    node *roots;
    int count;
    if (file_read(path, 1 << 24, &data, &size, &error) || graph_read(g, path, data, size, &roots, &count, &error))
        printf("%s\n", error.message);
    for (int root = number_from("QUERN_GRAPH_SIZES", 1); g && roots && root <= number_from("QUERN_GRAPH_SIZES", 6);
         root++) {
        way w = {
            .root = root,
            .options = {.mode = FUSE_FUSED, .gpu = true, .units = number_from("QUERN_GRAPH_UNITS", 132), .arch = 90}};
        text words = {0};
        bool good = passes(&(graph_case){g, roots, count}, &w, &words);
        printf("root %d: %s%s\n", root, good ? "good" : "", text_get(&words));
        text_free(&words);
    }
    free(data);
    arena_free(memory);
}

/* What was wrong once. */
static const char *const texts[] = {
    /* A value in memory, read through a reshape that no axis follows: its elements are counted, and a row that is added to
     * every one of its own rows must not be. */
    "%1 = leaf 1 : f32[130, 9]\n"
    "%2 = leaf 2 : i32[5, 9]\n"
    "%3 = full 130 : i32[5, 9]\n"
    "%4 = mod %2, %3 : i32[5, 9]\n"
    "%5 = leaf 3 : f32[5, 9]\n"
    "%6 = gather_add %1, %4, %5 axis 0 : f32[130, 9]\n"
    "%7 = reshape %6 : f32[9, 130]\n"
    "%8 = relu %7 : f32[9, 130]\n"
    "%9 = abs %8 : f32[9, 130]\n"
    "%10 = leaf 4 : f32[1, 9]\n"
    "%11 = expand %10 : f32[130, 9]\n"
    "%12 = leaf 5 : f32[130, 9]\n"
    "%13 = add %11, %12 : f32[130, 9]\n"
    "%14 = mul %6, %13 : f32[130, 9]\n"
    "%15 = mul %6, %1 : f32[130, 9]\n"
    "return %9, %14, %15\n",
    /* ... nor one whose memory is not dense. */
    "%1 = leaf 1 : f32[130, 9]\n"
    "%2 = leaf 2 : i32[5, 9]\n"
    "%3 = full 130 : i32[5, 9]\n"
    "%4 = mod %2, %3 : i32[5, 9]\n"
    "%5 = leaf 3 : f32[5, 9]\n"
    "%6 = gather_add %1, %4, %5 axis 0 : f32[130, 9]\n"
    "%7 = reshape %6 : f32[9, 130]\n"
    "%8 = relu %7 : f32[9, 130]\n"
    "%9 = abs %8 : f32[9, 130]\n"
    "%10 = leaf 4 strides (1, 130) : f32[130, 9]\n"
    "%11 = mul %6, %10 : f32[130, 9]\n"
    "%12 = mul %6, %1 : f32[130, 9]\n"
    "return %9, %11, %12\n",
    /* Places of strips are tested along the array's axes: there elements are not counted. */
    "%1 = leaf 1 : f32[4, 16, 4]\n"
    "%2 = argsort %1 axis 2 : i64[4, 16, 4]\n"
    "%3 = reshape %2 : i64[4, 4, 8, 2]\n"
    "%4 = reduce argmax %3 axes (1) : i64[4, 1, 8, 2]\n"
    "%5 = expand %4 : i64[4, 4, 8, 2]\n"
    "return %5\n",
    "%1 = leaf 1 : f32[3, 16]\n"
    "%2 = scan sum %1 axis 1 : f32[3, 16]\n"
    "%3 = reshape %2 : f32[6, 8]\n"
    "%4 = full 0.5 : f32[6, 8]\n"
    "%5 = mul %3, %3 : f32[6, 8]\n"
    "%6 = add %5, %4 : f32[6, 8]\n"
    "%7 = sqrt %6 : f32[6, 8]\n"
    "%8 = relu %7 : f32[6, 8]\n"
    "%9 = pad %8 start (-1, 0) step (2, 1) fill 0.5 : f32[10, 8]\n"
    "return %9\n",
    /* A reduction that is read once more under a guard, at the same places. */
    "%1 = leaf 1 : f32[8, 9, 4]\n"
    "%2 = reduce prod %1 axes (2) : f32[8, 9, 1]\n"
    "%3 = expand %2 : f32[8, 9, 4]\n"
    "%4 = full 0.5 : f32[8, 9, 4]\n"
    "%5 = mul %3, %3 : f32[8, 9, 4]\n"
    "%6 = add %5, %4 : f32[8, 9, 4]\n"
    "%7 = leaf 2 : f32[8, 9, 4]\n"
    "%8 = slice %2 start (1, 0, 0) step (1, 1, 1) : f32[1, 9, 1]\n"
    "%9 = gelu_tanh %8 : f32[1, 9, 1]\n"
    "%10 = permute %7 order (1, 2, 0) : f32[9, 4, 8]\n"
    "%11 = leaf 3 : f32[1, 9, 1]\n"
    "%12 = leaf 4 : f32[8, 9, 4]\n"
    "%13 = mul %8, %8 : f32[1, 9, 1]\n"
    "%14 = full 1 : f32[1, 9, 1]\n"
    "%15 = full 0.7978845834732056 : f32[1, 9, 1]\n"
    "%16 = full 0.13414500653743744 : f32[1, 9, 1]\n"
    "%17 = mul %13, %16 : f32[1, 9, 1]\n"
    "%18 = add %17, %14 : f32[1, 9, 1]\n"
    "%19 = mul %18, %15 : f32[1, 9, 1]\n"
    "%20 = leaf 5 : f32[1, 9, 1]\n"
    "%21 = mul %20, %19 : f32[1, 9, 1]\n"
    "%22 = leaf 6 : f32[1, 9, 1]\n"
    "%23 = add %22, %21 : f32[1, 9, 1]\n"
    "%24 = leaf 7 : f32[1, 9, 1]\n"
    "%25 = mul %23, %24 : f32[1, 9, 1]\n"
    "%26 = mul %11, %25 : f32[1, 9, 1]\n"
    "%27 = pad %26 start (1, 0, 0) step (1, 1, 1) fill 0 : f32[8, 9, 1]\n"
    "%28 = div %12, %6 : f32[8, 9, 4]\n"
    "%29 = leaf 8 : f32[8, 9, 1]\n"
    "%30 = add %27, %29 : f32[8, 9, 1]\n"
    "%31 = leaf 9 : bool[8, 9, 4]\n"
    "%32 = leaf 10 : f32[8, 9, 1]\n"
    "%33 = leaf 11 : f32[8, 9, 1]\n"
    "%34 = leaf 12 : bool[8, 9, 1]\n"
    "%35 = mul %30, %32 : f32[8, 9, 1]\n"
    "%36 = select %34, %35, %33 : f32[8, 9, 1]\n"
    "%37 = expand %36 : f32[8, 9, 4]\n"
    "%38 = leaf 13 : f32[8, 9, 4]\n"
    "%39 = select %31, %37, %38 : f32[8, 9, 4]\n"
    "%40 = add %28, %39 : f32[8, 9, 4]\n"
    "return %10, %9, %40\n",
    /* A product of a part of what is reduced beside it. */
    "%1 = leaf 1 : f32[1, 3, 9]\n"
    "%2 = reshape %1 : f32[3, 1, 1, 9]\n"
    "%3 = slice %1 start (0, 0, 3) step (1, 1, 1) : f32[1, 3, 6]\n"
    "%4 = leaf 2 : f32[1, 6, 19]\n"
    "%5 = dot %3, %4 : f32[1, 3, 19]\n"
    "%6 = leaf 3 : f32[1, 3, 19]\n"
    "%7 = mul %5, %6 : f32[1, 3, 19]\n"
    "%8 = mul %2, %2 : f32[3, 1, 1, 9]\n"
    "%9 = reduce sum %8 axes (3) : f32[3, 1, 1, 1]\n"
    "return %7, %9\n",
};

TEST(what_was_wrong)
{
    for (int i = 0; i < COUNT(texts) && !environment_get("QUERN_GRAPH"); i++) {
        for (int k = 0; k < 6; k++) {
            arena *memory = arena_new();
            graph *g = graph_new(memory);
            node *roots;
            int count;
            qn_error error;
            way w = {.root = 1 + k / 2, .options = {.gpu = k % 2, .units = 4, .arch = 90}};
            text words = {0};
            EXPECT(graph_read(g, "text", texts[i], strlen(texts[i]), &roots, &count, &error) == QN_OK);
            if (!passes(&(graph_case){g, roots, count}, &w, &words)) {
                printf("text %d, way %d: %s", i, k, text_get(&words));
                test_fail(__FILE__, __LINE__, "a graph that was wrong once");
            }
            text_free(&words);
            arena_free(memory);
        }
    }
}

static bool is_home(const random_graph *r, node n)
{
    const graph_node *x = random_at(r, n);
    return x->code == GRAPH_LEAF && !x->attr.offset &&
           strides_are_row_major(x->shape.rank, x->shape.extents, x->attr.strides);
}

/* A step of a loop: leaves get values that are computed from them and from others, as they were before. */
static int assign_some(random_graph *r)
{
    int count = 0, wanted = r->root_count;
    node pairs[RANDOM_ROOTS];
    for (int i = 0; i < r->leaf_count && r->root_count + 2 * count + 2 <= RANDOM_ROOTS; i++) {
        node home = r->leaves[i], from = 0;
        if (!is_home(r, home)) continue;
        for (int k = 0; k < wanted + r->pool_count && !from; k++) {
            node n = k < wanted ? r->roots[k] : r->pool[r->pool_count - 1 - (k - wanted)];
            bool fits = n != home && random_at(r, n)->elem == r->type;
            if (fits && shape_same(&random_at(r, n)->shape, &random_at(r, home)->shape)) from = n;
        }
        if (!from) continue;
        if (random_pick(r, 3)) from = graph_binary(r->g, OP_SUB, home, from);
        if (random_pick(r, 4) == 0 && count) from = pairs[2 * count - 2]; /* what another leaf was */
        if (!shape_same(&random_at(r, from)->shape, &random_at(r, home)->shape) || from == home) continue;
        pairs[2 * count] = home;
        pairs[2 * count++ + 1] = from;
    }
    for (int i = 0; i < 2 * count; i++) r->roots[r->root_count++] = pairs[i];
    return count;
}

TEST(large_sizes_made_small)
{
    if (environment_get("QUERN_GRAPH")) {
        replay(environment_get("QUERN_GRAPH"));
        return;
    }
    int count = count_from("QUERN_GRAPHS", "random graphs", 600), first = number_from("QUERN_GRAPH_SEED", 1);
    int most = number_from("QUERN_GRAPH_OPS", 14);
    for (int i = 0; i < count && test_failures_of_case < 3; i++) {
        uint64_t seed = (uint64_t)(first + i);
        random_options options = {3, 3 + (int)(seed % (uint64_t)most), DT_COUNT, seed % 5 == 0, true};
        random_graph *r = random_graph_make(seed, &options);
        way w = draw_way(seed);
        w.assigned = seed % 3 ? 0 : assign_some(r);
        graph_case c = case_reread(&(graph_case){r->g, r->roots, r->root_count}, r->memory);
        check(&c, &w, seed);
        random_graph_free(r);
    }
}

/* ---- attention ---- */

static node attention_leaf(graph *g, dtype elem, shape s, int storage)
{
    return graph_leaf(g, elem, &s, NULL, 0, (void *)(uintptr_t)storage);
}

/* A coordinate of the scores as numbers of their shape. */
static node attention_index(graph *g, const shape *s, int axis)
{
    shape one = {.rank = s->rank};
    for (int k = 0; k < s->rank; k++) one.extents[k] = k == axis ? s->extents[k] : 1;
    return graph_expand(g, graph_reshape(g, graph_iota(g, s->extents[axis]), &one), s);
}

static node attention_scaled(graph *g, op_code code, node x, double by)
{
    return graph_binary(g, code, x, graph_full_double(g, graph_get(g, x)->elem, &graph_get(g, x)->shape, by));
}

/* softmax(scores) values with masks that may leave rows without a score, and dropout that may leave none of a row's. */
static graph_case attention_draw(uint64_t seed, arena *memory)
{
    static const int lengths[] = {1, 2, 3, 5, 8, 17, 33, 64, 65, 100}, depths[] = {1, 2, 4, 8, 16};
    random_graph r = {.state = random_hash(seed)};
    graph *g = graph_new(memory);
    bool narrow = !random_pick(&r, 4);
    dtype elem = narrow ? DT_BF16 : DT_F32;
    int64_t batch = 1 + random_pick(&r, 3), rows = lengths[random_pick(&r, 10)], columns = lengths[random_pick(&r, 10)],
            depth = depths[random_pick(&r, 5)], width = depths[random_pick(&r, 5)];
    shape s = {3, {batch, rows, columns}};
    node q = attention_leaf(g, elem, (shape){3, {batch, rows, depth}}, 1),
         k = attention_leaf(g, elem, (shape){3, {batch, columns, depth}}, 2),
         v = attention_leaf(g, elem, (shape){3, {batch, columns, width}}, 3);
    node scores = graph_dot(g, q, graph_permute(g, k, (int[]){0, 2, 1}), DT_F32, false);
    scores = attention_scaled(g, OP_MUL, scores, 1 / sqrt((double)depth));
    if (!random_pick(&r, 4)) scores = attention_scaled(g, OP_MUL, graph_unary(g, OP_TANH, scores), 3);
    /* Gradients know of a row the logarithm of its sum of exponentials: beside -1e9 that of how many they are is lost. */
    bool gradients = !narrow && !random_pick(&r, 3);
    node least = graph_full_double(g, DT_F32, &s, gradients || random_pick(&r, 6) ? -INFINITY : -1e9);
    node i = attention_index(g, &s, 1), j = attention_index(g, &s, 2);
    for (int masks = random_pick(&r, 3); masks >= 0; masks--) {
        node allowed = 0;
        /* Blocks that masks of positions leave out are left out: what is undefined in a row does not reach them. */
        switch (gradients ? 2 + random_pick(&r, 4) : random_pick(&r, 6)) {
        case 0: allowed = graph_binary(g, OP_LE, attention_scaled(g, OP_ADD, j, random_pick(&r, 7) - 3), i); break;
        case 1: allowed = graph_binary(g, OP_GT, attention_scaled(g, OP_ADD, j, 1 + random_pick(&r, 20)), i); break;
        case 2: allowed = attention_leaf(g, DT_BOOL, s, 4); break;
        case 3: {
            node keys = attention_leaf(g, DT_BOOL, (shape){3, {batch, 1, columns}}, 5);
            allowed = graph_expand(g, keys, &s);
            break;
        }
        case 4: {
            node all = graph_expand(g, attention_leaf(g, DT_BOOL, (shape){3, {batch, rows, 1}}, 6), &s);
            allowed = all;
            break;
        }
        default: {
            node bias = attention_leaf(g, DT_F32, (shape){3, {1, rows, columns}}, 7);
            scores = graph_binary(g, OP_ADD, scores, graph_expand(g, bias, &s));
        }
        }
        if (allowed) scores = graph_select(g, allowed, scores, least);
    }
    shape one = s;
    one.extents[2] = 1;
    node most = graph_reduce(g, FOLD_MAX, scores, 4);
    node power = graph_unary(g, OP_EXP, graph_binary(g, OP_SUB, scores, graph_expand(g, most, &s)));
    node weights = graph_binary(g, OP_DIV, power, graph_expand(g, graph_reduce(g, FOLD_SUM, power, 4), &s));
    if (!random_pick(&r, 3)) {
        node kept = random_pick(&r, 2) ? attention_leaf(g, DT_BOOL, s, 8)
                                       : graph_expand(g, attention_leaf(g, DT_BOOL, one, 9), &s);
        weights = graph_select(g, kept, attention_scaled(g, OP_MUL, weights, 2), graph_full_double(g, DT_F32, &s, 0));
    }
    node y = graph_dot(g, graph_convert(g, weights, elem), v, elem, false);
    node *roots = ARENA_ARRAY(memory, node, 4);
    int count = 0;
    roots[count++] = y;
    if (gradients) {
        node loss = graph_reshape(g, graph_reduce(g, FOLD_SUM, graph_binary(g, OP_MUL, y, y), 7), &(shape){0});
        if (graph_gradient(g, loss, (node[]){q, k, v}, 3, roots + count)) count += 3;
    }
    return case_reread(&(graph_case){g, roots, count}, memory);
}

TEST(attention_with_nothing_to_look_at)
{
    int count = count_from("QUERN_GRAPHS", "attentions", 150), first = number_from("QUERN_GRAPH_SEED", 1);
    if (environment_get("QUERN_GRAPH")) return;
    any_number = true;
    for (int i = 0; i < count && test_failures_of_case < 3; i++) {
        uint64_t seed = (uint64_t)(first + i);
        arena *memory = arena_new();
        graph_case c = attention_draw(seed, memory);
        way w = draw_way(seed);
        w.options.scores_bytes = 1;
        check(&c, &w, seed);
        arena_free(memory);
    }
    any_number = false;
}

TEST_MAIN(CASE(what_was_wrong), CASE(large_sizes_made_small), CASE(attention_with_nothing_to_look_at))
