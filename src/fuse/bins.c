/*
 * Additions to few places of a GPU, in bins that lie in shared memory. In: TAKE_ADD. Out: graphs with kernels in which each
 * block, or each warp of it, has bins of its own; they are added up like any array. No atomic addition of a real number: sums
 * do not depend on what runs at once.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/order.h"
#include "ir/graph_build.h"

#define MOST_BINS 8192   /* of a block, in shared memory */
#define WARP_BINS 1536   /* of a warp */
#define COUNT_SPAN 16384 /* indices of a block, as long as there are few blocks */
#define MOST_COUNTERS 528

/* Each block has bins of its own; they are added up like any array. */
static const char bins_source[] =
    "cuda count_bins(in i32 index[n], out i32 y[parts][bins])\n"
    "    launch (parts) block (512) shared (bins * 4)\n"
    "\"\"\"\n"
    "extern \"C\" __global__ void __launch_bounds__(512) count_bins(const int *index, int *y, long n, long parts, long "
    "bins)\n"
    "{\n"
    "    extern __shared__ int line[];\n"
    "    const long each = (n + parts - 1) / parts, first = blockIdx.x * each, end = first + each < n ? first + each : "
    "n;\n"
    "    for (int i = threadIdx.x; i < bins; i += 512) line[i] = 0;\n"
    "    __syncthreads();\n"
    "    for (long i = first + threadIdx.x; i < end; i += 512) {\n"
    "        const int at = index[i];\n"
    "        if (at >= 0 && at < bins) atomicAdd(&line[at], 1);\n"
    "    }\n"
    "    __syncthreads();\n"
    "    for (int i = threadIdx.x; i < bins; i += 512) y[blockIdx.x * bins + i] = line[i];\n"
    "}\n"
    "\"\"\"\n";

/* base + how often each place is meant, times the one number that is added. 0: the updates are no one number. */
node fuse_bins_count(graph *g, const graph_node *n)
{
    const graph_node *updates = graph_get(g, n->inputs[2]);
    while (updates->code == GRAPH_EXPAND || updates->code == GRAPH_RESHAPE) updates = graph_get(g, updates->inputs[0]);
    int64_t bins = n->shape.extents[n->attr.axis], count = shape_count(&graph_get(g, n->inputs[1])->shape);
    if (updates->code != GRAPH_FULL || bins > MOST_BINS || count > INT32_MAX) return 0;
    dtype inside = dtype_is_narrow(n->elem) ? DT_F32 : n->elem;
    node one = graph_convert(g, graph_full(g, n->elem, &n->shape, updates->attr.number), inside);
    node index = graph_short_index(g, graph_reshape(g, n->inputs[1], &(shape){1, {count}}), bins);
    int64_t parts = MAXIMUM(MINIMUM(count / COUNT_SPAN, MOST_COUNTERS), 1);
    node counts = fuse_source_call(g, "count_bins", bins_source, DT_I32, &(shape){2, {parts, bins}}, &index, 1);
    shape line = {.rank = n->shape.rank};
    for (int k = 0; k < line.rank; k++) line.extents[k] = k == n->attr.axis ? bins : 1;
    counts = graph_reshape(g, graph_reduce(g, FOLD_SUM, counts, 1), &line);
    node times = graph_binary(g, OP_MUL, graph_expand(g, graph_convert(g, counts, inside), &n->shape), one);
    node sum = graph_convert(g, graph_binary(g, OP_ADD, graph_convert(g, n->inputs[0], inside), times), n->elem);
    node meant = graph_binary(g, OP_NE, counts, graph_full(g, DT_I32, &line, (number){0}));
    return graph_select(g, graph_expand(g, meant, &n->shape), sum, n->inputs[0]); /* none times infinity is no number */
}

/* Each warp has bins of its own. Lanes that mean one bin are added in pairs by their place among them, and one of them adds
 * the sum: the order is that of the indices, whatever runs at once. */
static const char sums_source[] =
    "cuda add_bins(in i32 index[n], in %s updates[n], out %s y[parts][bins])\n"
    "    launch (parts) block (256) shared (bins * 32)\n"
    "\"\"\"\n"
    "extern \"C\" __global__ void __launch_bounds__(256) add_bins(const int *index, const %s *updates, %s *y, long n, "
    "long parts, long bins)\n"
    "{\n"
    "    extern __shared__ %s line[];\n"
    "    %s *const mine = line + threadIdx.x / 32 * bins;\n"
    "    const int lane = threadIdx.x %% 32;\n"
    "    const long each = (n + parts - 1) / parts, first = blockIdx.x * each, end = first + each < n ? first + each : "
    "n;\n"
    "    for (int i = threadIdx.x; i < 8 * bins; i += 256) line[i] = 0;\n"
    "    __syncthreads();\n"
    "    for (long i = first + threadIdx.x; i - lane < end; i += 256) {\n"
    "        int at = i < end ? index[i] : -1;\n"
    "        %s x = i < end ? updates[i] : 0;\n"
    "        if (at >= bins) at = -1;\n"
    "        const unsigned same = __match_any_sync(0xffffffffu, at);\n"
    "        unsigned rank = __popc(same & ((1u << lane) - 1)), after = same & (0xfffffffeu << lane);\n"
    "        const bool leads = rank == 0 && at >= 0;\n"
    "        while (__any_sync(0xffffffffu, after != 0)) {\n"
    "            const int next = __ffs((int)after);\n"
    "            const %s other = __shfl_sync(0xffffffffu, x, next ? next - 1 : lane);\n"
    "            if (next) x += other;\n"
    "            after &= ~__ballot_sync(0xffffffffu, rank & 1);\n"
    "            rank >>= 1;\n"
    "        }\n"
    "        if (leads) mine[at] += x;\n"
    "        __syncwarp();\n"
    "    }\n"
    "    __syncthreads();\n"
    "    for (int i = threadIdx.x; i < bins; i += 256) {\n"
    "        %s sum = 0;\n"
    "        for (int w = 0; w < 8; w++) sum += line[w * bins + i];\n"
    "        y[blockIdx.x * bins + i] = sum;\n"
    "    }\n"
    "}\n"
    "\"\"\"\n";

/* base + the sums of many numbers for few places. 0: they are rows, few, or for many places. */
node fuse_bins_sum(graph *g, const graph_node *n)
{
    int64_t bins = n->shape.extents[n->attr.axis], count = shape_count(&graph_get(g, n->inputs[1])->shape);
    dtype inside = dtype_is_narrow(n->elem) ? DT_F32 : n->elem;
    if (shape_count(&n->shape) != bins || bins > WARP_BINS || count < 4 * bins || count < COUNT_SPAN) return 0;
    if (inside != DT_F32 && inside != DT_I32) return 0;
    const char *type = dtypes[inside].text, *c_type = inside == DT_F32 ? "float" : "int";
    shape all = {1, {count}};
    int64_t parts = MINIMUM(count / COUNT_SPAN, MOST_COUNTERS);
    node inputs[] = {graph_short_index(g, graph_reshape(g, n->inputs[1], &all), bins),
                     graph_convert(g, graph_reshape(g, n->inputs[2], &all), inside)};
    const char *source =
        arena_print(g->memory, sums_source, type, type, c_type, c_type, c_type, c_type, c_type, c_type, c_type);
    node sums = fuse_source_call(g, "add_bins", source, inside, &(shape){2, {parts, bins}}, inputs, 2);
    sums = graph_reshape(g, graph_reduce(g, FOLD_SUM, sums, 1), &n->shape);
    return graph_convert(g, graph_binary(g, OP_ADD, graph_convert(g, n->inputs[0], inside), sums), n->elem);
}
