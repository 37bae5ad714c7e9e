/*
 * Scans, sorting and additions by index: each kernel runs in the checking interpreter and agrees with the meaning of its
 * node, for axes of all places, sizes around the blocks, ties, NaN and indices that repeat or lie outside.
 * SPDX-License-Identifier: MIT
 */
#include "../test.h"
#include "fuse/order.h"
#include "ir/graph_interp.h"
#include "ir/interp.h"

#include <stdlib.h>

static uint64_t state = 1;
static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 40) / 16777216.0;
}

static node leaf_of(arena *memory, graph *g, dtype elem, shape s, double low, double high)
{
    int64_t count = shape_count(&s);
    char *data = arena_alloc(memory, (size_t)(count + 1) * (size_t)dtypes[elem].size_bytes);
    for (int64_t i = 0; i < count; i++) {
        double x = low + (high - low) * uniform();
        if (dtype_is_float(elem) && uniform() < 0.3) x = (double)(int64_t)x; /* ties */
        element_write(elem, data + i * dtypes[elem].size_bytes, (number){.f = x, .i = (int64_t)x});
    }
    return graph_leaf(g, elem, &s, NULL, 0, data);
}

/* Runs one kernel whose inputs are leaves, or nodes with their elements in `data`. */
static bool run_kernel(arena *memory, const graph *g, const fuse_kernel *k, void *const *data, void *result)
{
    array_view arrays[64] = {0};
    bool given[64] = {false};
    number numbers[64] = {{0}};
    int argument = 0;
    for (int p = 0; p < k->kernel->param_count; p++) {
        const tile_param *param = &k->kernel->params[p];
        arrays[p].elem = param->elem;
        arrays[p].rank = param->rank;
        if (param->kind > PARAM_INOUT) continue;
        const fuse_argument *a = &k->arguments[argument++];
        void *base = a->base == k->writes[0] ? result
                     : data[a->base]         ? data[a->base]
                                             : graph_get(g, a->base)->attr.storage;
        arrays[p].data = (char *)base + a->offset * dtypes[param->elem].size_bytes;
        EXPECT(a->rank == param->rank);
        for (int axis = 0; axis < a->rank; axis++) {
            arrays[p].extents[axis] = a->extents[axis];
            arrays[p].strides[axis] = a->strides[axis];
        }
    }
    EXPECT(argument == k->argument_count);
    launch_plan plan = {0};
    qn_error error = {0};
    if (interp_head(k->kernel, given, numbers, arrays, 2, &plan, &error) != QN_OK) {
        printf("%s\n", error.message);
        return false;
    }
    for (int p = 0; p < k->kernel->param_count; p++) {
        if (k->kernel->params[p].kind != PARAM_SCRATCH) continue;
        int64_t count = 1;
        for (int axis = arrays[p].rank - 1; axis >= 0; axis--) {
            arrays[p].extents[axis] = plan.extents[p][axis];
            arrays[p].strides[axis] = count;
            count *= plan.extents[p][axis];
        }
        arrays[p].data = arena_alloc(memory, (size_t)(count + 1) * 8);
    }
    findings found = {0};
    interp_options options = {.check = true, .units = 2, .order_seed = 7};
    bool good = interp_run(k->kernel, arrays, &plan, &options, &found, &error) == QN_OK && !found.count;
    if (!good) {
        text t = {0};
        findings_print(&found, k->kernel, &t);
        printf("%s %s\n", error.message, text_get(&t));
        text_free(&t);
    }
    findings_free(&found);
    return good;
}

static void expect_same(arena *memory, const graph *g, node n, const void *result, double tolerance)
{
    graph_tensor expected;
    qn_error error = {0};
    if (graph_interpret(g, &n, 1, NULL, false, memory, &expected, &error) != QN_OK) {
        printf("%s\n", error.message);
        EXPECT(false);
        return;
    }
    int wrong = 0;
    for (int64_t i = 0; i < expected.count && wrong < 3; i++) {
        number x = element_read(expected.elem, (const char *)result + i * dtypes[expected.elem].size_bytes);
        bool same = dtype_is_float(expected.elem)
                        ? fabs(x.f - expected.elements[i].f) <= tolerance * (1 + fabs(expected.elements[i].f)) ||
                              (isnan(x.f) && isnan(expected.elements[i].f))
                        : x.i == expected.elements[i].i;
        if (!same)
            printf("element %lld: %g %lld instead of %g %lld (%d)\n", (long long)i, x.f, (long long)x.i,
                   expected.elements[i].f, (long long)expected.elements[i].i, ++wrong);
        EXPECT(same);
    }
}

static const shape shapes[] = {{1, {5}},     {1, {1}},       {1, {200}},       {2, {3, 70}},
                               {2, {70, 3}}, {3, {2, 9, 5}}, {3, {4, 130, 2}}, {2, {0, 5}},
                               {2, {5, 0}},  {1, {1000}},    {4, {2, 3, 4, 5}}};

TEST(scans)
{
    static const dtype types[] = {DT_F32, DT_BF16, DT_I32, DT_F64};
    static const fold_kind folds[] = {FOLD_SUM, FOLD_PROD, FOLD_MAX, FOLD_MIN};
    for (int s = 0; s < COUNT(shapes); s++)
        for (int axis = 0; axis < shapes[s].rank; axis++)
            for (int t = (s + axis) % 2; t < COUNT(types); t += 2) {
                arena *memory = arena_new();
                graph *g = graph_new(memory);
                fold_kind fold = folds[(s + axis + t) % 4];
                node x =
                    leaf_of(memory, g, types[t], shapes[s], fold == FOLD_PROD ? 0.9 : -4, fold == FOLD_PROD ? 1.1 : 4);
                node n = graph_scan(g, fold, x, axis);
                fuse_view view = fuse_view_row_major(g, x);
                fuse_kernel k;
                EXPECT(fuse_scan_kernel(memory, g, n, &view, &(fuse_options){.gpu = t & 1}, &k));
                void *none[64] = {0}, *result = arena_alloc(memory, (size_t)graph_size_bytes(g, n) + 8);
                EXPECT(run_kernel(memory, g, &k, none, result));
                expect_same(memory, g, n, result, types[t] == DT_BF16 ? 1e-2 : 1e-5);
                arena_free(memory);
            }
}

TEST(sorting)
{
    static const dtype types[] = {DT_F32, DT_BF16, DT_I32, DT_U8, DT_BOOL, DT_I64};
    for (int s = 0; s < COUNT(shapes); s++)
        for (int axis = 0; axis < shapes[s].rank; axis++)
            for (int t = (s + axis) % 2; t < COUNT(types); t += 2) {
                arena *memory = arena_new();
                graph *g = graph_new(memory);
                node x = leaf_of(memory, g, types[t], shapes[s], types[t] == DT_U8 || types[t] == DT_BOOL ? 0 : -6,
                                 types[t] == DT_BOOL ? 2 : 6);
                if (types[t] == DT_F32 && shape_count(&shapes[s]) > 4) {
                    float *data = graph_get(g, x)->attr.storage;
                    data[1] = data[3] = NAN;
                    data[0] = -INFINITY;
                    data[2] = INFINITY;
                }
                node n = graph_argsort(g, x, axis, (s + t) & 1);
                fuse_view view = fuse_view_row_major(g, x);
                fuse_kernel k;
                EXPECT(fuse_argsort_kernel(memory, g, n, &view, &(fuse_options){.gpu = t == 2}, &k));
                void *none[64] = {0}, *result = arena_alloc(memory, (size_t)graph_size_bytes(g, n) + 8);
                EXPECT(run_kernel(memory, g, &k, none, result));
                expect_same(memory, g, n, result, 0);
                arena_free(memory);
            }
}

/* A long row has at most 16 phases, and needs no more scratch than four arrays of its size. */
TEST(long_rows)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    node x = graph_leaf(g, DT_F32, &(shape){1, {1 << 24}}, NULL, 0, memory);
    node n = graph_argsort(g, x, 0, false);
    fuse_view view = fuse_view_row_major(g, x);
    fuse_kernel k;
    EXPECT(fuse_argsort_kernel(memory, g, n, &view, &(fuse_options){0}, &k));
    EXPECT(k.kernel->phase_count == 16);
    EXPECT(tile_verify(k.kernel, NULL) == QN_OK);
    arena_free(memory);
}

static void scatter(dtype elem, const shape *base_shape, const shape *index_shape, int axis, bool takes, bool zero)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    node base = zero ? graph_full_double(g, elem, base_shape, 0) : leaf_of(memory, g, elem, *base_shape, -2, 2);
    node index = leaf_of(memory, g, axis ? DT_I64 : DT_I32, *index_shape, 0, (double)base_shape->extents[axis] - 0.01);
    shape updates_shape = *index_shape;
    if (takes) {
        updates_shape.rank = 0;
        for (int k = 0; k < axis; k++) updates_shape.extents[updates_shape.rank++] = base_shape->extents[k];
        for (int k = 0; k < index_shape->rank; k++)
            updates_shape.extents[updates_shape.rank++] = index_shape->extents[k];
        for (int k = axis + 1; k < base_shape->rank; k++)
            updates_shape.extents[updates_shape.rank++] = base_shape->extents[k];
    }
    node updates = leaf_of(memory, g, elem, updates_shape, -2, 2);
    node n = takes ? graph_take_add(g, base, index, updates, axis) : graph_gather_add(g, base, index, updates, axis);
    EXPECT(n);
    if (!n) printf("%s\n", g->error.message);
    node made = fuse_scatter_prepare(g, n);
    EXPECT(made && fuse_scatter_prepare(g, made) == made);
    if (graph_get(g, made)->code == GRAPH_MAP) { /* one update a place */
        graph_tensor both[2];
        EXPECT(graph_interpret(g, (node[]){n, made}, 2, NULL, false, memory, both, NULL) == QN_OK);
        for (int64_t i = 0; i < both[0].count; i++) EXPECT(both[0].elements[i].f == both[1].elements[i].f);
        arena_free(memory);
        return;
    }
    node order = graph_get(g, made)->inputs[3];
    graph_tensor sorted;
    EXPECT(graph_interpret(g, &order, 1, NULL, false, memory, &sorted, NULL) == QN_OK);
    void *data[64] = {0}, *result = arena_alloc(memory, (size_t)graph_size_bytes(g, n) + 8);
    data[order] = arena_alloc(memory, (size_t)graph_size_bytes(g, order) + 8);
    graph_tensor_write(&sorted, data[order]);
    fuse_view views[4];
    for (int i = 0; i < 4; i++) views[i] = fuse_view_row_major(g, graph_get(g, made)->inputs[i]);
    if (zero) views[0].base = 0;
    fuse_kernel k;
    EXPECT(fuse_scatter_kernel(memory, g, made, views, &(fuse_options){0}, &k));
    EXPECT(run_kernel(memory, g, &k, data, result));
    expect_same(memory, g, n, result, elem == DT_BF16 ? 2e-2 : 1e-5);
    arena_free(memory);
}

TEST(additions_by_index)
{
    static const dtype types[] = {DT_F32, DT_BF16, DT_I32};
    for (int t = 0; t < COUNT(types); t++)
        for (int zero = 0; zero < 2; zero++) {
            scatter(types[t], &(shape){2, {10, 20}}, &(shape){1, {33}}, 0, true, zero);
            scatter(types[t], &(shape){2, {10, 20}}, &(shape){2, {3, 7}}, 0, true, zero);
            scatter(types[t], &(shape){2, {4, 10}}, &(shape){2, {3, 7}}, 1, true, zero);
            scatter(types[t], &(shape){3, {3, 4, 18}}, &(shape){1, {9}}, 1, true, zero);
            scatter(types[t], &(shape){1, {7}}, &(shape){1, {300}}, 0, true, zero);
            scatter(types[t], &(shape){1, {7}}, &(shape){1, {0}}, 0, true, zero);
            scatter(types[t], &(shape){2, {4, 10}}, &(shape){2, {4, 23}}, 1, false, zero);
            scatter(types[t], &(shape){2, {4, 10}}, &(shape){2, {8, 10}}, 0, false, zero);
            scatter(types[t], &(shape){3, {2, 5, 3}}, &(shape){3, {2, 6, 3}}, 1, false, zero);
            scatter(types[t], &(shape){2, {4, 10}}, &(shape){2, {4, 1}}, 1, false, zero);
            scatter(types[t], &(shape){1, {600}}, &(shape){1, {700}}, 0, false, zero);
        }
}

TEST_MAIN(CASE(scans), CASE(sorting), CASE(long_rows), CASE(additions_by_index))
