/*
 * Additions by index on a GPU, by a kernel written in CUDA. In: types, the length of a row. Out: the kernel; it wants
 * everything row-major, and indices that are sorted.
 *
 * Some lanes have one position each, with a vector of its row a lane: where a run of equal indices begins there they add
 * it up, if it is short. Most are. Longer runs wait until the block has done its positions and are then added up by all
 * of its lanes at once, each every so manyth row, joined in a fixed order. So a run costs what it is long, and the result
 * does not depend on what runs at once. One run of very many rows would be work for one block alone:
 * fuse_scatter_cuda_suits.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/order.h"

enum { THREADS = 256, SHORT_RUN = 16, MOST_POSITIONS = 1 << 18, MOST_ROW = 128, VECTOR = 4 };

static const char source[] =
    "cuda %s(%sin %s index[n], in f32 updates[%sn][E], in i64 order[n]%s,\n"
    "     const int LANES = %d, const int WIDTH = %d, const int SHORT = %d)\n"
    "    launch (cdiv(n, %d / LANES)) block (%d)\n"
    "\"\"\"\n"
    "typedef struct __align__(4 * WIDTH) piece { float x[WIDTH]; } piece;\n"
    "#define GROUPS (%d / LANES)\n"
    "__device__ __forceinline__ piece piece_at(const float *x)\n"
    "{\n"
    "    piece some;\n"
    "    if ((unsigned long)x %% (4 * WIDTH) == 0) return *(const piece *)x;\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < WIDTH; k++) some.x[k] = x[k];\n"
    "    return some;\n"
    "}\n"
    "/* Every `by`th row of a run, four on their way at once. */\n"
    "__device__ __forceinline__ piece add_rows(const float *updates, const long *order, long from, long end, long by,\n"
    "                                          long E)\n"
    "{\n"
    "    piece sum = {};\n"
    "    for (long q = from; q < end; q += 4 * by) {\n"
    "        piece some[4] = {};\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < 4; i++)\n"
    "            if (q + i * by < end) some[i] = piece_at(updates + order[q + i * by] * E);\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < 4; i++)\n"
    "#pragma unroll\n"
    "            for (int k = 0; k < WIDTH; k++) sum.x[k] += some[i].x[k];\n"
    "    }\n"
    "    return sum;\n"
    "}\n"
    "__device__ __forceinline__ void leave(float *to, piece sum)\n"
    "{\n"
    "%s"
    "    if ((unsigned long)to %% (4 * WIDTH) == 0) {\n"
    "        *(piece *)to = sum;\n"
    "        return;\n"
    "    }\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < WIDTH; k++) to[k] = sum.x[k];\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(%d)\n"
    "    %s(%s)\n"
    "{\n"
    "    __shared__ piece parts[%d];\n"
    "    __shared__ long runs[GROUPS];\n"
    "    __shared__ int run_count;\n"
    "    const int group = threadIdx.x / LANES, column = threadIdx.x %% LANES * WIDTH;\n"
    "    const long p = (long)blockIdx.x * GROUPS + group;\n"
    "    const bool mine = p < n && column < E;\n"
    "    if (threadIdx.x == 0) run_count = 0;\n"
    "    __syncthreads();\n"
    "    const long here = p < n ? (long)index[p] : -1;\n"
    "    const bool first = p < n && (p == 0 || index[p - 1] != here);\n"
    "    if (first%s) {\n"
    "        if (p + SHORT < n && index[p + SHORT] == here) {\n"
    "            if (column == 0) runs[atomicAdd(&run_count, 1)] = p;\n"
    "        } else if (mine) {\n"
    "            long end = p + 1;\n"
    "            while (end < n && index[end] == here) end++;\n"
    "            leave(y + %s * E + column, add_rows(updates + column, order, p, end, 1, E));\n"
    "        }\n"
    "    }%s\n"
    "    __syncthreads();\n"
    "    const int count = run_count;\n"
    "    for (int r = 0; r < count; r++) {\n"
    "        const long start = runs[r], which = index[start];\n"
    "        long low = start + SHORT, high = n; /* index[low] is of the run, index[high] is not */\n"
    "        while (high - low > 1) {\n"
    "            const long step = (high - low + %d) / %d, at = low + step * (threadIdx.x + 1);\n"
    "            const int inside = __syncthreads_count(at < high && index[at < high ? at : low] == which);\n"
    "            low += step * inside;\n"
    "            high = low + step < high ? low + step : high;\n"
    "        }\n"
    "        parts[threadIdx.x] = add_rows(updates + (column < E ? column : 0), order, start + group, high, GROUPS, "
    "E);\n"
    "        for (int s = GROUPS / 2; s; s /= 2) {\n"
    "            __syncthreads();\n"
    "            if (group < s)\n"
    "#pragma unroll\n"
    "                for (int k = 0; k < WIDTH; k++) parts[threadIdx.x].x[k] += parts[threadIdx.x + s * LANES].x[k];\n"
    "        }\n"
    "        if (group == 0 && column < E) leave(y + %s * E + column, parts[threadIdx.x]);\n"
    "        __syncthreads();\n"
    "    }\n"
    "}\n"
    "\"\"\"\n";

bool fuse_scatter_cuda_suits(const fuse_options *options, dtype elem, int64_t positions, int64_t row)
{
    return options->cuda_text && elem == DT_F32 && positions <= MOST_POSITIONS && row <= MOST_ROW;
}

tile_kernel *fuse_scatter_cuda(arena *memory, scatter_cuda_kind kind, dtype index, int64_t row)
{
    bool adds = kind == SCATTER_ADD_ROWS;
    int width = row % VECTOR ? 1 : VECTOR, lanes = 1;
    while (lanes * width < row) lanes *= 2;
    const char *name = adds ? "take_add" : "run_sum", *type = index == DT_I32 ? "const int *" : "const long *";
    const char *parameters =
        arena_print(memory,
                    adds ? "float *y, %sindex, const float *updates, const long *order, long O, long V, long E, long n"
                         : "%sindex, const float *updates, const long *order, float *y, long n, long E",
                    type);
    return fuse_from_source(
        memory, name,
        arena_print(memory, source, name, adds ? "inout f32 y[O][V][E], " : "", dtypes[index].text, adds ? "O][" : "",
                    adds ? "" : ", out f32 y[n][E]", lanes, width, SHORT_RUN, THREADS, THREADS, THREADS,
                    adds ? "    const piece before = piece_at(to);\n"
                           "#pragma unroll\n"
                           "    for (int k = 0; k < WIDTH; k++) sum.x[k] += before.x[k];\n"
                         : "",
                    THREADS, name, parameters, THREADS, adds ? " && here >= 0 && here < V" : "", adds ? "here" : "p",
                    adds ? "" : " else if (mine) leave(y + p * E + column, piece{});", THREADS - 1, THREADS,
                    adds ? "which" : "start"));
}
