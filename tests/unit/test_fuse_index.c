/*
 * Scans, sorting and additions by index: each kernel runs in the checking interpreter and agrees with the meaning of its
 * node, for axes of all places, sizes around the blocks, ties, NaN and indices that repeat or lie outside.
 * SPDX-License-Identifier: MIT
 */
#include "../fuse_kernel.h"
#include "../share.h"
#include "fuse/memory.h"
#include "fuse/order.h"

static const shape shapes[] = {{1, {5}},     {1, {1}},       {1, {200}},       {2, {3, 70}},
                               {2, {70, 3}}, {3, {2, 9, 5}}, {3, {4, 130, 2}}, {2, {0, 5}},
                               {2, {5, 0}},  {1, {1000}},    {4, {2, 3, 4, 5}}};

TEST(scans)
{
    static const dtype types[] = {DT_F32, DT_BF16, DT_I32, DT_F64, DT_U8};
    static const fold_kind folds[] = {FOLD_SUM, FOLD_PROD, FOLD_MAX, FOLD_MIN};
    for (int s = 0; s < COUNT(shapes); s += share_of_few("shapes"))
        for (int axis = 0; axis < shapes[s].rank; axis++)
            for (int t = (s + axis) % 2; t < COUNT(types); t += 2) {
                arena *memory = arena_new();
                graph *g = graph_new(memory);
                fold_kind fold = folds[(s + axis + t) % 4];
                node x = kernel_leaf(memory, g, types[t], shapes[s],
                                     fold == FOLD_PROD   ? 0.9
                                     : types[t] == DT_U8 ? 0
                                                         : -4,
                                     fold == FOLD_PROD ? 1.1 : 4);
                node n = graph_scan(g, fold, x, axis);
                fuse_view view = fuse_view_row_major(g, x);
                fuse_kernel k;
                EXPECT(fuse_scan_kernel(memory, g, n, &view, &(fuse_options){.gpu = t & 1}, &k));
                void *data[64] = {0};
                kernel_allocate(memory, g, &k, data);
                EXPECT(kernel_run(memory, g, &k, data));
                kernel_expect(memory, g, n, data[n], types[t] == DT_BF16 ? 1e-2 : 1e-5);
                arena_free(memory);
            }
}

TEST(sorting)
{
    static const dtype types[] = {DT_F32, DT_BF16, DT_I32, DT_U8, DT_BOOL, DT_I64};
    for (int s = 0; s < COUNT(shapes); s += share_of_few("shapes"))
        for (int axis = 0; axis < shapes[s].rank; axis++)
            for (int t = (s + axis) % 2; t < COUNT(types); t += 2) {
                arena *memory = arena_new();
                graph *g = graph_new(memory);
                node x = kernel_leaf(memory, g, types[t], shapes[s], types[t] == DT_U8 || types[t] == DT_BOOL ? 0 : -6,
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
                void *data[64] = {0};
                kernel_allocate(memory, g, &k, data);
                EXPECT(kernel_run(memory, g, &k, data));
                kernel_expect(memory, g, n, data[n], 0);
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
    static const fold_kind folds[] = {FOLD_SUM, FOLD_PROD, FOLD_MAX, FOLD_MIN};
    for (int f = 0; f < 4; f += share_of_few("folds")) {
        x = kernel_leaf(memory, g, f == 1 ? DT_F64 : DT_F32, (shape){2, {70000, 1 + (f == 2)}}, f == 1 ? 0.999 : -1,
                        f == 1 ? 1.001 : 1);
        n = graph_scan(g, folds[f], x, 0);
        view = fuse_view_row_major(g, x);
        EXPECT(fuse_scan_kernel(memory, g, n, &view, &(fuse_options){0}, &k));
        EXPECT(k.kernel->phase_count == 3);
        void *data[64] = {0};
        kernel_allocate(memory, g, &k, data);
        EXPECT(kernel_run(memory, g, &k, data));
        kernel_expect(memory, g, n, data[n], 1e-4);
    }
    arena_free(memory);
}

/* The order, and an index that was sorted, as their kernels would leave them. */
static void write_computed(arena *memory, graph *g, node n, void **data)
{
    for (int i = 1; i < graph_get(g, n)->input_count; i += 2) {
        node from = graph_get(g, n)->inputs[i];
        graph_tensor values;
        if (graph_get(g, from)->code == GRAPH_LEAF) continue;
        EXPECT(graph_interpret(g, &from, 1, NULL, false, memory, &values, NULL) == QN_OK);
        data[from] = arena_alloc(memory, (size_t)graph_size_bytes(g, from) + 8);
        graph_tensor_write(&values, data[from]);
    }
}

static void scatter(dtype elem, const shape *base_shape, const shape *index_shape, int axis, bool takes, bool zero,
                    bool gpu)
{
    fuse_options options = {.gpu = gpu};
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    node base = zero ? graph_full_double(g, elem, base_shape, 0) : kernel_leaf(memory, g, elem, *base_shape, -2, 2);
    node index =
        kernel_leaf(memory, g, axis ? DT_I64 : DT_I32, *index_shape, 0, (double)base_shape->extents[axis] - 0.01);
    shape updates_shape = *index_shape;
    if (takes) {
        updates_shape.rank = 0;
        for (int k = 0; k < axis; k++) updates_shape.extents[updates_shape.rank++] = base_shape->extents[k];
        for (int k = 0; k < index_shape->rank; k++)
            updates_shape.extents[updates_shape.rank++] = index_shape->extents[k];
        for (int k = axis + 1; k < base_shape->rank; k++)
            updates_shape.extents[updates_shape.rank++] = base_shape->extents[k];
    }
    node updates = kernel_leaf(memory, g, elem, updates_shape, -2, elem == DT_I8 ? 120 : 2);
    node n = takes ? graph_take_add(g, base, index, updates, axis) : graph_gather_add(g, base, index, updates, axis);
    EXPECT(n);
    if (!n) printf("%s\n", g->error.message);
    node made = fuse_scatter_prepare(g, n, &options);
    EXPECT(made && fuse_scatter_prepare(g, made, &options) == made);
    bool few = !takes && index_shape->extents[axis] <= 4 && index_shape->extents[axis];
    EXPECT((graph_get(g, made)->code == GRAPH_MAP) == few);
    if (few) { /* updates of a line: selected, not sorted */
        graph_tensor both[2];
        EXPECT(graph_interpret(g, (node[]){n, made}, 2, NULL, false, memory, both, NULL) == QN_OK);
        for (int64_t i = 0; i < both[0].count; i++) EXPECT(both[0].elements[i].f == both[1].elements[i].f);
        arena_free(memory);
        return;
    }
    void *data[64] = {0};
    write_computed(memory, g, made, data);
    fuse_view views[4];
    for (int i = 0; i < 4; i++) views[i] = fuse_view_row_major(g, graph_get(g, made)->inputs[i]);
    if (zero) views[0].base = 0;
    fuse_kernel k;
    EXPECT(fuse_scatter_kernel(memory, g, made, views, &options, &k));
    kernel_allocate(memory, g, &k, data);
    EXPECT(kernel_run(memory, g, &k, data));
    kernel_expect(memory, g, n, data[made], elem == DT_BF16 ? 2e-2 : 1e-5);
    EXPECT(!k.over == zero);
    if (!zero) { /* over the base itself */
        void *result = data[made];
        data[made] = arena_alloc(memory, (size_t)graph_size_bytes(g, base) + 8);
        memcpy(data[made], graph_get(g, base)->attr.storage, (size_t)graph_size_bytes(g, base));
        EXPECT(fuse_in_place(memory, &k, 0, 4));
        EXPECT(k.argument_count == 4 && k.arguments[0].base == made);
        EXPECT(kernel_run(memory, g, &k, data));
        EXPECT(!memcmp(result, data[made], (size_t)graph_size_bytes(g, base)));
    }
    arena_free(memory);
}

TEST(additions_by_index)
{
    static const dtype types[] = {DT_F32, DT_BF16, DT_I32, DT_I8, DT_F64, DT_U8};
    for (int t = 0; t < COUNT(types); t++)
        for (int zero = 0; zero < 2; zero++) {
            scatter(types[t], &(shape){2, {10, 20}}, &(shape){1, {33}}, 0, true, zero, t & 1);
            scatter(types[t], &(shape){2, {10, 20}}, &(shape){2, {3, 7}}, 0, true, zero, t & 1);
            scatter(types[t], &(shape){2, {4, 10}}, &(shape){2, {3, 7}}, 1, true, zero, t & 1);
            scatter(types[t], &(shape){3, {3, 4, 18}}, &(shape){1, {9}}, 1, true, zero, t & 1);
            scatter(types[t], &(shape){1, {7}}, &(shape){1, {300}}, 0, true, zero, t & 1);
            scatter(types[t], &(shape){1, {7}}, &(shape){1, {0}}, 0, true, zero, t & 1);
            scatter(types[t], &(shape){2, {4, 10}}, &(shape){2, {4, 23}}, 1, false, zero, t & 1);
            scatter(types[t], &(shape){2, {40, 5}}, &(shape){2, {40, 3}}, 1, false, zero, t & 1);
            scatter(types[t], &(shape){2, {4, 10}}, &(shape){2, {8, 10}}, 0, false, zero, t & 1);
            scatter(types[t], &(shape){3, {2, 5, 3}}, &(shape){3, {2, 6, 3}}, 1, false, zero, t & 1);
            scatter(types[t], &(shape){2, {4, 10}}, &(shape){2, {4, 1}}, 1, false, zero, t & 1);
            scatter(types[t], &(shape){1, {600}}, &(shape){1, {700}}, 0, false, zero, t & 1);
        }
}

/* The same texts through the compilers. */
static void on_devices(qn_context *context, arena *memory, graph *g, node n, const fuse_kernel *k, void **data)
{
    static const char *const devices[] = {"cpu", "emu"};
    for (int d = 0; d < COUNT(devices); d++) {
        memset(data[n], 0, (size_t)graph_size_bytes(g, n));
        EXPECT(kernel_run_on(context, devices[d], g, k, data));
        kernel_expect(memory, g, n, data[n], 1e-5);
    }
}

TEST(devices)
{
    qn_context *context = NULL;
    EXPECT(qn_context_open(NULL, &context, NULL) == QN_OK);
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    fuse_kernel k;
    void *data[64] = {0};
    fuse_options options = {0};
    node x = kernel_leaf(memory, g, DT_F32, (shape){3, {2, 150, 3}}, -4, 4), n = graph_argsort(g, x, 1, true);
    fuse_view view = fuse_view_row_major(g, x);
    EXPECT(fuse_argsort_kernel(memory, g, n, &view, &options, &k));
    kernel_allocate(memory, g, &k, data);
    on_devices(context, memory, g, n, &k, data);

    n = graph_scan(g, FOLD_SUM, x, 1);
    EXPECT(fuse_scan_kernel(memory, g, n, &view, &options, &k));
    kernel_allocate(memory, g, &k, data);
    on_devices(context, memory, g, n, &k, data);

    for (int kind = 0; kind < 2; kind++) { /* rows, lanes */
        shape s = {2, {7, kind ? 5 : 40}}, line = {1, {60}};
        node base = kernel_leaf(memory, g, DT_F32, s, -1, 1), index = kernel_leaf(memory, g, DT_I64, line, 0, 6.9);
        node updates = kernel_leaf(memory, g, DT_F32, (shape){2, {60, s.extents[1]}}, -1, 1);
        n = fuse_scatter_prepare(g, graph_take_add(g, base, index, updates, 0), &options);
        write_computed(memory, g, n, data);
        fuse_view views[4];
        for (int i = 0; i < 4; i++) views[i] = fuse_view_row_major(g, graph_get(g, n)->inputs[i]);
        EXPECT(fuse_scatter_kernel(memory, g, n, views, &options, &k));
        kernel_allocate(memory, g, &k, data);
        on_devices(context, memory, g, n, &k, data);
    }
    arena_free(memory);
    qn_context_close(context);
}

/* Runs of all lengths around the pieces they are cut into; only the first of a run counts where firsts are added. */
/* Whether what an addition by index becomes on a GPU sorts its indices. */
static bool sorts(const graph *g, node n)
{
    const graph_node *x = graph_get(g, n);
    if (x->code == GRAPH_KERNEL && strstr(x->attr.kernel->name, "sort")) return true;
    for (int i = 0; i < x->input_count; i++)
        if (sorts(g, x->inputs[i])) return true;
    return false;
}

/* Numbers for few places need no order, however the addition is written; rows with one index each are added as rows. */
TEST(few_places)
{
    enum { COUNT_OF = 40000, BINS = 100 };
    fuse_options options = {.gpu = true, .cuda_text = true};
    for (int k = 0; k < 6; k++) {
        arena *memory = arena_new();
        graph *g = graph_new(memory);
        bool counts = k % 2, rows = k > 3;
        shape from = rows ? (shape){2, {COUNT_OF, 20}} : (shape){1, {COUNT_OF}}, to = from;
        to.extents[0] = BINS;
        shape line = {from.rank, {COUNT_OF, 1}};
        node index = graph_expand(g, kernel_leaf(memory, g, DT_I64, line, 0, BINS), &from);
        node updates =
            counts ? graph_full(g, DT_F32, &from, (number){.f = 1}) : kernel_leaf(memory, g, DT_F32, from, 0, 1);
        node base = kernel_leaf(memory, g, DT_F32, to, 0, 1);
        node n = k < 2 ? graph_take_add(g, base, index, updates, 0) : graph_gather_add(g, base, index, updates, 0);
        node made = fuse_scatter_prepare(g, n, &options);
        EXPECT(made && sorts(g, made) == (rows && !counts));
        if (rows && !counts) EXPECT(graph_get(g, made)->code == GRAPH_TAKE_ADD);
        arena_free(memory);
    }
}

TEST(sums_of_runs)
{
    static const int64_t lengths[] = {1, 15, 16, 17, 3, 64, 200, 1, 1, 1100, 33, 2};
    static const int rows[] = {1, 5, 40, 200};
    for (int c = 0; c < 2 * COUNT(rows); c += share_of_few("rows")) {
        arena *memory = arena_new();
        graph *g = graph_new(memory);
        int64_t count = 0, row = rows[c / 2];
        for (int i = 0; i < COUNT(lengths); i++) count += lengths[i];
        shape line = {1, {count}}, s = {2, {count, row}};
        node index = kernel_leaf(memory, g, DT_I64, line, 0, 1), updates = kernel_leaf(memory, g, DT_F32, s, -4, 4);
        node order = kernel_leaf(memory, g, DT_I64, line, 0, 1);
        int64_t *to = graph_get(g, index)->attr.storage, *by = graph_get(g, order)->attr.storage;
        for (int64_t i = 0, p = 0; i < COUNT(lengths); i++)
            for (int64_t k = 0; k < lengths[i]; k++, p++) to[p] = 3 * i;
        for (int64_t p = 0; p < count; p++) by[p] = (p * 7 + 3) % count;
        fuse_options options = {.gpu = c & 1};
        fuse_view views[3];
        fuse_kernel k;
        void *data[64] = {0};
        node n = graph_run_sum(g, index, updates, order);
        for (int i = 0; i < 3; i++) views[i] = fuse_view_row_major(g, graph_get(g, n)->inputs[i]);
        EXPECT(fuse_run_sum_kernel(memory, g, n, views, &options, &k));
        kernel_allocate(memory, g, &k, data);
        EXPECT(kernel_run(memory, g, &k, data));
        kernel_expect(memory, g, n, data[n], 1e-4); /* of up to 1,100, in another order */
        node base = kernel_leaf(memory, g, DT_F32, (shape){2, {40, row}}, -1, 1);
        n = graph_take_add_firsts(g, base, index, updates);
        EXPECT(fuse_scatter_prepare(g, n, &options) == n);
        for (int i = 0; i < 3; i++) views[i] = fuse_view_row_major(g, graph_get(g, n)->inputs[i]);
        EXPECT(fuse_scatter_kernel(memory, g, n, views, &options, &k));
        kernel_allocate(memory, g, &k, data);
        EXPECT(kernel_run(memory, g, &k, data));
        kernel_expect(memory, g, n, data[n], 1e-5);
        arena_free(memory);
    }
}

TEST_MAIN(CASE(few_places), CASE(sums_of_runs), CASE(devices), CASE(scans), CASE(sorting), CASE(long_rows),
          CASE(additions_by_index))
