/*
 * Sorting on a GPU by kernels written in CUDA. In: an ARGSORT of keys of at most 32 bits. Out: other nodes: each key and
 * its position as one number of 64 bits (arithmetic, which fuses with what computes the keys), a kernel that sorts runs
 * of up to 8,192 in shared memory, kernels that merge two runs into one, and the positions out of the numbers again.
 *
 * Numbers are distinct, so every order of comparisons gives the one stable result. The bits of a key rise with its
 * value: signed integers and floats have their sign bit turned; NaN is above all, whatever its bits, and -0 is 0.
 * A thread merges EACH results: where its part of either run begins is found by bisection (Green's merge path).
 * SPDX-License-Identifier: MIT
 */
#include "fuse/order.h"
#include "ir/graph_build.h"

#include <string.h>

#define EACH 8
#define SHORTEST_RUN 256
#define LONGEST_RUN 8192

/* ---- the kernels ---- */

/* PLACE says where element i lies: lines of shared memory have gaps, so that neighbouring threads meet other banks. */
static const char merge_text[] =
    "/* EACH results from place `at` on of two sorted runs that lie together from `first` on. */\n"
    "__device__ __forceinline__ void merge(const unsigned long *x, long first, int a_count, int b_count, int at,\n"
    "                                      unsigned long *to)\n"
    "{\n"
    "    long second = first + a_count;\n"
    "    int low = at > b_count ? at - b_count : 0, high = at < a_count ? at : a_count;\n"
    "    while (low < high) {\n"
    "        int middle = (low + high) / 2;\n"
    "        if (x[PLACE(first + middle)] < x[PLACE(second + at - 1 - middle)]) low = middle + 1;\n"
    "        else high = middle;\n"
    "    }\n"
    "    int i = low, j = at - low;\n"
    "    unsigned long a = i < a_count ? x[PLACE(first + i)] : ~0ul, b = j < b_count ? x[PLACE(second + j)] : ~0ul;\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < EACH; k++) {\n"
    "        if (a < b) {\n"
    "            to[k] = a;\n"
    "            i++;\n"
    "            a = i < a_count ? x[PLACE(first + i)] : ~0ul;\n"
    "        } else {\n"
    "            to[k] = b;\n"
    "            j++;\n"
    "            b = j < b_count ? x[PLACE(second + j)] : ~0ul;\n"
    "        }\n"
    "    }\n"
    "}\n";

static const char runs_source[] =
    "cuda sort_runs(in u64 x[rows][n], out u64 y[rows][n], const int RUN = %d, const int EACH = %d)\n"
    "    launch (cdiv(n, RUN), rows) block (RUN / EACH) shared ((RUN + RUN / EACH) * 8)\n"
    "\"\"\"\n"
    "#define PLACE(i) ((int)(i) + (int)(i) / EACH)\n"
    "%s"
    "extern \"C\" __global__ void __launch_bounds__(RUN / EACH)\n"
    "    sort_runs(const unsigned long *x, unsigned long *y, long rows, long n)\n"
    "{\n"
    "    extern __shared__ unsigned long line[];\n"
    "    long first = (long)blockIdx.x * RUN;\n"
    "    int count = n - first < RUN ? (int)(n - first) : RUN, me = threadIdx.x;\n"
    "    x += blockIdx.y * n + first;\n"
    "    y += blockIdx.y * n + first;\n"
    "    for (int i = me; i < RUN; i += RUN / EACH) line[PLACE(i)] = i < count ? x[i] : ~0ul;\n"
    "    __syncthreads();\n"
    "    unsigned long own[EACH];\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < EACH; k++) own[k] = line[PLACE(me * EACH + k)];\n"
    "#pragma unroll\n"
    "    for (int turn = 0; turn < EACH; turn++)\n"
    "#pragma unroll\n"
    "        for (int k = turn & 1; k + 1 < EACH; k += 2)\n"
    "            if (own[k] > own[k + 1]) {\n"
    "                unsigned long other = own[k];\n"
    "                own[k] = own[k + 1];\n"
    "                own[k + 1] = other;\n"
    "            }\n"
    "    for (int run = EACH; run < RUN; run *= 2) {\n"
    "        __syncthreads();\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < EACH; k++) line[PLACE(me * EACH + k)] = own[k];\n"
    "        __syncthreads();\n"
    "        int base = me * EACH / (2 * run) * (2 * run);\n"
    "        merge(line, base, run, run, me * EACH - base, own);\n"
    "    }\n"
    "    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < EACH; k++) line[PLACE(me * EACH + k)] = own[k];\n"
    "    __syncthreads();\n"
    "    for (int i = me; i < count; i += RUN / EACH) y[i] = line[PLACE(i)];\n"
    "}\n"
    "\"\"\"\n";

static const char merge_source[] =
    "cuda merge_runs(in u64 x[rows][n], out u64 y[rows][n], i64 run, const int EACH = %d)\n"
    "    launch (cdiv(n, 256 * EACH), rows) block (256)\n"
    "\"\"\"\n"
    "#define PLACE(i) (i)\n"
    "%s"
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "    merge_runs(const unsigned long *x, unsigned long *y, long run, long rows, long n)\n"
    "{\n"
    "    long at = ((long)blockIdx.x * 256 + threadIdx.x) * EACH;\n"
    "    if (at >= n) return;\n"
    "    x += blockIdx.y * n;\n"
    "    y += blockIdx.y * n;\n"
    "    long base = at / (2 * run) * (2 * run), left = n - base;\n"
    "    int a_count = (int)(left < run ? left : run), b_count = (int)(left - a_count < run ? left - a_count : run);\n"
    "    unsigned long own[EACH];\n"
    "    merge(x, base, a_count, b_count, (int)(at - base), own);\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < EACH; k++)\n"
    "        if (at + k < n) y[at + k] = own[k];\n"
    "}\n"
    "\"\"\"\n";

static node call(graph *g, const char *name, const char *source, const node *inputs, int count)
{
    graph_kernel *k = ARENA_NEW(g->memory, graph_kernel);
    *k = (graph_kernel){.name = name, .source = source, .output_count = 1, .output_elem = {DT_U64}};
    k->output_shape[0] = graph_get(g, inputs[0])->shape;
    hash128 hash = hash_bytes(source, strlen(source));
    k->identity = hash.low;
    return graph_result(g, graph_kernel_call(g, k, inputs, count), 0);
}

/* ---- keys ---- */

static node constant(graph *g, dtype elem, const shape *s, int64_t n)
{
    return graph_full(g, elem, s, (number){.i = n});
}

/* Bits that rise with the value, as u32. */
static node rising_bits(graph *g, node x)
{
    dtype elem = graph_get(g, x)->elem;
    shape s = graph_get(g, x)->shape;
    node top = constant(g, DT_U32, &s, 0x80000000);
    if (elem == DT_BOOL || elem == DT_U8 || elem == DT_U16 || elem == DT_U32) return graph_convert(g, x, DT_U32);
    if (!dtype_is_float(elem))
        return graph_binary(g, OP_XOR, graph_map(g, OP_BITCAST, DT_U32, (node[]){graph_convert(g, x, DT_I32)}, 1), top);
    x = graph_convert(g, x, DT_F32);
    node zero = graph_full_double(g, DT_F32, &s, 0);
    x = graph_select(g, graph_binary(g, OP_EQ, x, zero), zero, x);
    node bits = graph_map(g, OP_BITCAST, DT_U32, &x, 1);
    node positive = graph_binary(g, OP_XOR, bits, top), negative = graph_unary(g, OP_NOT, bits);
    node key = graph_select(g, graph_binary(g, OP_LT, x, zero), negative, positive);
    return graph_select(g, graph_unary(g, OP_ISNAN, x), constant(g, DT_U32, &s, 0xffffffff), key);
}

node fuse_sort_prepare(graph *g, node n, node *sorted)
{
    const graph_node of = *graph_get(g, n);
    int rank = of.shape.rank, axis = of.attr.axis, order[GRAPH_RANK], back[GRAPH_RANK], used = 0;
    dtype elem = graph_get(g, of.inputs[0])->elem;
    int64_t length = of.shape.extents[axis], count = shape_count(&of.shape);
    if (dtypes[elem].size_bytes > 4 || count < 2 || length > INT32_MAX || count / length > 65535) return n;
    for (int k = 0; k < rank; k++)
        if (k != axis) order[used++] = k;
    order[used] = axis;
    for (int k = 0; k < rank; k++) back[order[k]] = k;
    node x = graph_permute(g, of.inputs[0], order);
    shape turned = graph_get(g, x)->shape, rows = {2, {count / length, length}};
    node key = rising_bits(g, graph_reshape(g, x, &rows));
    if (of.attr.index) key = graph_unary(g, OP_NOT, key);
    node place = graph_expand(g, graph_reshape(g, graph_iota(g, length), &(shape){2, {1, length}}), &rows);
    node high = graph_binary(g, OP_SHL, graph_convert(g, key, DT_U64), constant(g, DT_U64, &rows, 32));
    node both = graph_binary(g, OP_OR, high, graph_convert(g, place, DT_U64));
    int64_t run = SHORTEST_RUN;
    while (run < length && run < LONGEST_RUN) run *= 2;
    both = call(g, "sort_runs", arena_print(g->memory, runs_source, (int)run, EACH, merge_text), &both, 1);
    const char *merging = arena_print(g->memory, merge_source, EACH, merge_text);
    for (; run < length; run *= 2)
        both = call(g, "merge_runs", merging, (node[]){both, constant(g, DT_I64, &(shape){0}, run)}, 2);
    node positions = graph_convert(g, graph_binary(g, OP_AND, both, constant(g, DT_U64, &rows, 0xffffffff)), DT_I64);
    if (sorted && elem == DT_I32 && !of.attr.index) { /* their bits are there already */
        node bits = graph_convert(g, graph_binary(g, OP_SHR, both, constant(g, DT_U64, &rows, 32)), DT_U32);
        bits = graph_binary(g, OP_XOR, bits, constant(g, DT_U32, &rows, 0x80000000));
        *sorted = graph_permute(g, graph_reshape(g, graph_map(g, OP_BITCAST, DT_I32, &bits, 1), &turned), back);
    }
    return graph_permute(g, graph_reshape(g, positions, &turned), back);
}
