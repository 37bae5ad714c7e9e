/*
 * Sorting on a GPU by kernels written in CUDA. In: an ARGSORT of keys of at most 32 bits, or its first k positions. Out:
 * other nodes: a kernel that makes of each key and its position one number of 64 bits and sorts runs of up to 8,192 of
 * them in shared memory (of short rows several a block by merging, long ones by digits), kernels that merge two runs into
 * one, the last of which leaves positions. The first k of many: a warp reads a row, or a part of it, and keeps the best 32 so far, one a lane; what
 * comes in is sorted into them only where something of it is better than the k-th.
 *
 * Numbers are distinct, so every order of comparisons gives the one stable result. The bits of a key rise with its
 * value: signed integers and floats have their sign bit turned; NaN is above all, whatever its bits, and -0 is 0.
 * A thread merges EACH results: where its part of either run begins is found by bisection (Green's merge path).
 * SPDX-License-Identifier: MIT
 */
#include "fuse/order.h"
#include "ir/graph_build.h"
#include "fuse/sizes.h"

#include <string.h>

#define EACH 8
#define SHORTEST_RUN 8
#define LONGEST_RUN 8192
#define BLOCK_SPAN 2048 /* elements of a block, of so many rows as that is */
#define SHORTEST_BY_DIGITS 2048
#define SHORTEST_OF_FEW \
    512 /* of rows that are sorted all at once: passes take as long however short a row, merges wait more often */
#define DIGIT_THREADS 256 /* one a digit; more elements a thread mean fewer counts to add up */
#define DIGIT_THREADS_OF_FEW 1024
#define MOST_KEPT 32
#define WARPS_WANTED 8192
#define SHORTEST_PART FUSE_SIZE(1024) /* of a warp */
#define BLOCKS_AT_ONCE 3   /* that sort by digits, of a multiprocessor */
#define BLOCK_WARPS 8
#define WARP_STEP 128 /* elements that a warp reads at once */

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

/* What is sorted: the bits of a key rise, its position breaks ties. */
static const char float_key[] = "__device__ __forceinline__ unsigned key_of(float v)\n"
                                "{\n"
                                "    unsigned bits = __float_as_uint(v == 0 ? 0.0f : v);\n"
                                "    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;\n"
                                "    return v != v ? 0xffffffffu : bits;\n"
                                "}\n";
static const char signed_key[] =
    "__device__ __forceinline__ unsigned key_of(int v) { return (unsigned)v ^ 0x80000000u; }\n";
static const char unsigned_key[] = "__device__ __forceinline__ unsigned key_of(unsigned v) { return v; }\n";

/* SPAN elements a block: one run of a row, or several rows that are shorter than a run. */
static const char runs_source[] =
    "cuda sort_runs(in %s x[rows][n], out %s y[rows][n], const int RUN = %d, const int SPAN = %d, const int EACH = "
    "%d)\n"
    "    launch (cdiv(rows * cdiv(n, RUN), SPAN / RUN)) block (SPAN / EACH) shared ((SPAN + SPAN / EACH) * 8)\n"
    "\"\"\"\n"
    "#define PLACE(i) ((int)(i) + (int)(i) / EACH)\n"
    "%s%s%s"
    "extern \"C\" __global__ void __launch_bounds__(SPAN / EACH)\n"
    "    sort_runs(const %s *x, %s *y, long rows, long n)\n"
    "{\n"
    "    extern __shared__ unsigned long line[];\n"
    "    const long runs = (n + RUN - 1) / RUN, run_first = (long)blockIdx.x * (SPAN / RUN);\n"
    "    const int me = threadIdx.x;\n"
    "    for (int i = me; i < SPAN; i += SPAN / EACH) {\n"
    "        const long number = run_first + i / RUN, row = number / runs, at = (number - row * runs) * RUN + i %% "
    "RUN;\n"
    "        line[PLACE(i)] = row < rows && at < n ? NUMBER(x[row * n + at], at) : ~0ul;\n"
    "    }\n"
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
    "    for (int i = me; i < SPAN; i += SPAN / EACH) {\n"
    "        const long number = run_first + i / RUN, row = number / runs, at = (number - row * runs) * RUN + i %% "
    "RUN;\n"
    "        if (row < rows && at < n) y[row * n + at] = LEFT(line[PLACE(i)]);\n"
    "    }\n"
    "}\n"
    "\"\"\"\n";

/* Longer runs by the digits of the key, 8 bits a pass, the lowest first. Element i of a run is kept by warp i / (32 EACH),
 * in its register i / 32 % EACH, by lane i % 32: a warp counts its own digits in that order, so every pass is stable and
 * positions need no comparing. LOWEST: bits below it are the same in all keys. */
static const char digits_source[] =
    "cuda sort_digits(in %s x[rows][n], out %s y[rows][n], const int RUN = %d, const int EACH = %d, const int LOWEST = "
    "%d)\n"
    "    launch (rows * cdiv(n, RUN)) block (RUN / EACH) shared (RUN * 8 + RUN / EACH * 32)\n"
    "\"\"\"\n"
    "%s%s"
    "extern \"C\" __global__ void __launch_bounds__(RUN / EACH, EACH > 16 || RUN / EACH > 256 ? 1 : 3) /* others count "
    "while one exchanges "
    "*/\n"
    "    sort_digits(const %s *x, %s *y, long rows, long n)\n"
    "{\n"
    "    extern __shared__ unsigned long line[];\n"
    "    constexpr int THREADS = RUN / EACH, WARPS = THREADS / 32;\n"
    "    unsigned *const counts = (unsigned *)(line + RUN); /* [WARPS][256] */\n"
    "    __shared__ unsigned sums[8];\n"
    "    const long runs = (n + RUN - 1) / RUN, row = blockIdx.x / runs, from = (blockIdx.x - row * runs) * RUN;\n"
    "    const int me = threadIdx.x, lane = me %% 32, warp = me / 32, first = warp * 32 * EACH + lane;\n"
    "    unsigned *const mine = counts + warp * 256;\n"
    "    unsigned long own[EACH];\n"
    "    unsigned rank[EACH];\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < EACH; k++) {\n"
    "        const long at = from + first + k * 32;\n"
    "        own[k] = at < n ? NUMBER(x[row * n + at], at) : ~0ul;\n"
    "    }\n"
    "    for (int shift = 32 + LOWEST; shift < 64; shift += 8) {\n"
    "        for (int i = lane; i < 256; i += 32) mine[i] = 0;\n"
    "        __syncwarp();\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < EACH; k++) {\n"
    "            const unsigned digit = (unsigned)(own[k] >> shift) & 255u;\n"
    "            unsigned same = 0xffffffffu; /* lanes with this digit: votes, which are faster than a match */\n"
    "#pragma unroll\n"
    "            for (int bit = 0; bit < 8; bit++) {\n"
    "                const unsigned set = __ballot_sync(0xffffffffu, digit >> bit & 1);\n"
    "                same &= digit >> bit & 1 ? set : ~set;\n"
    "            }\n"
    "            const unsigned before = same & ((1u << lane) - 1);\n"
    "            const unsigned old = mine[digit];\n"
    "            rank[k] = old + __popc(before);\n"
    "            __syncwarp();\n"
    "            if (!before) mine[digit] = old + __popc(same);\n"
    "            __syncwarp();\n"
    "        }\n"
    "        __syncthreads();\n"
    "        unsigned total = 0, sum = 0;\n"
    "        if (me < 256) {\n"
    "            for (int w = 0; w < WARPS; w++) {\n"
    "                const unsigned here = counts[w * 256 + me];\n"
    "                counts[w * 256 + me] = total;\n"
    "                total += here;\n"
    "            }\n"
    "            sum = total;\n"
    "#pragma unroll\n"
    "            for (int d = 1; d < 32; d *= 2) {\n"
    "                const unsigned other = __shfl_up_sync(0xffffffffu, sum, d);\n"
    "                if (lane >= d) sum += other;\n"
    "            }\n"
    "            if (lane == 31) sums[warp] = sum;\n"
    "        }\n"
    "        __syncthreads();\n"
    "        if (me < 256) {\n"
    "            unsigned start = sum - total;\n"
    "            for (int w = 0; w < warp; w++) start += sums[w];\n"
    "            for (int w = 0; w < WARPS; w++) counts[w * 256 + me] += start;\n"
    "        }\n"
    "        __syncthreads();\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < EACH; k++) line[mine[(unsigned)(own[k] >> shift) & 255u] + rank[k]] = own[k];\n"
    "        __syncthreads();\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < EACH; k++) own[k] = line[first + k * 32];\n"
    "        __syncthreads();\n"
    "    }\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < EACH; k++) {\n"
    "        const long at = from + first + k * 32;\n"
    "        if (at < n) y[row * n + at] = LEFT(own[k]);\n"
    "    }\n"
    "}\n"
    "\"\"\"\n";

static const char merge_source[] =
    "cuda merge_runs(in u64 x[rows][n], out %s y[rows][n], i64 run, const int EACH = %d)\n"
    "    launch (rows * cdiv(n, 256 * EACH)) block (256)\n"
    "\"\"\"\n"
    "#define PLACE(i) (i)\n"
    "%s%s"
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "    merge_runs(const unsigned long *x, %s *y, long run, long rows, long n)\n"
    "{\n"
    "    const long blocks = (n + 256 * EACH - 1) / (256 * EACH), row = blockIdx.x / blocks;\n"
    "    const long at = ((blockIdx.x - row * blocks) * 256 + threadIdx.x) * EACH;\n"
    "    if (at >= n) return;\n"
    "    x += row * n;\n"
    "    y += row * n;\n"
    "    long base = at / (2 * run) * (2 * run), left = n - base;\n"
    "    int a_count = (int)(left < run ? left : run), b_count = (int)(left - a_count < run ? left - a_count : run);\n"
    "    unsigned long own[EACH];\n"
    "    merge(x, base, a_count, b_count, (int)(at - base), own);\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < EACH; k++)\n"
    "        if (at + k < n) y[at + k] = LEFT(own[k]);\n"
    "}\n"
    "\"\"\"\n";

/* TEAM warps of a block for each part of a row; the parts' best follow one another in y. Nothing is better at first, so what a
 * warp reads first is sorted side by side; of the rest what has nothing better is passed over. */
static const char select_source[] =
    "cuda select_first(in %s x[rows][n]%s, const int KEPT = %d, const int TEAM = %d)\n"
    "    launch (cdiv(rows * (m / KEPT), 8 / TEAM)) block (256)\n"
    "\"\"\"\n"
    "%s"
    "__device__ __forceinline__ unsigned long exchange(unsigned long v, int distance, bool smaller)\n"
    "{\n"
    "    const unsigned long other = __shfl_xor_sync(0xffffffffu, v, distance);\n"
    "    return (other < v) == smaller ? other : v;\n"
    "}\n"
    "/* One number a lane, in order: up, or down. */\n"
    "__device__ __forceinline__ unsigned long sorted(unsigned long v, int lane, bool up)\n"
    "{\n"
    "#pragma unroll\n"
    "    for (int size = 2; size <= 32; size *= 2)\n"
    "#pragma unroll\n"
    "        for (int distance = size / 2; distance; distance /= 2)\n"
    "            v = exchange(v, distance, (!(lane & distance) == !(lane & size)) == (up || size < 32));\n"
    "    return v;\n"
    "}\n"
    "/* The 32 smallest of numbers that go up and others that go down, in order. */\n"
    "__device__ __forceinline__ unsigned long best_of(unsigned long rising, unsigned long falling, int lane, bool up)\n"
    "{\n"
    "    unsigned long v = falling < rising ? falling : rising;\n"
    "#pragma unroll\n"
    "    for (int distance = 16; distance; distance /= 2) v = exchange(v, distance, !(lane & distance) == up);\n"
    "    return v;\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "    select_first(const %s *x%s, long rows, long n, long m)\n"
    "{\n"
    "    __shared__ unsigned long kept[8][32];\n"
    "    const int lane = threadIdx.x %% 32, warp = threadIdx.x / 32, member = warp %% TEAM;\n"
    "    const long parts = m / KEPT, me = (long)blockIdx.x * (8 / TEAM) + warp / TEAM, row = me / parts,\n"
    "               part = me %% parts;\n"
    "    const bool there = row < rows;\n"
    "    if (TEAM == 1 && !there) return;\n"
    "    const long each = (n + parts - 1) / parts, end = (part + 1) * each < n ? (part + 1) * each : n;\n"
    "    unsigned long best = ~0ul, worst = ~0ul;\n"
    "    for (long first = part * each + member * 128; there && first < end; first += TEAM * 128) {\n"
    "        unsigned long own[4];\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < 4; k++) {\n"
    "            const long at = first + k * 32 + lane;\n"
    "            own[k] = at < end ? NUMBER(x[row * n + at], at) : ~0ul;\n"
    "        }\n"
    "        if (first == part * each + member * 128) {\n"
    "#pragma unroll\n"
    "            for (int k = 0; k < 4; k++) own[k] = sorted(own[k], lane, k %% 2 == 0);\n"
    "            best = best_of(best_of(own[0], own[1], lane, true), best_of(own[2], own[3], lane, false), lane, "
    "true);\n"
    "            worst = __shfl_sync(0xffffffffu, best, KEPT - 1);\n"
    "            continue;\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < 4; k++) {\n"
    "            if (!__any_sync(0xffffffffu, own[k] < worst)) continue;\n"
    "            best = best_of(best, sorted(own[k], lane, false), lane, true);\n"
    "            worst = __shfl_sync(0xffffffffu, best, KEPT - 1);\n"
    "        }\n"
    "    }\n"
    "    for (int half = TEAM / 2; half; half /= 2) {\n"
    "        kept[warp][lane] = best;\n"
    "        __syncthreads();\n"
    "        if (member < half) best = best_of(best, kept[warp + half][31 - lane], lane, true);\n"
    "        __syncthreads();\n"
    "    }\n"
    "    if (!there || member || lane >= KEPT) return;\n"
    "    const long to = row * m + part * KEPT + lane;\n"
    "%s"
    "}\n"
    "\"\"\"\n";

node fuse_source_call(graph *g, const char *name, const char *source, dtype elem, const shape *s, const node *inputs,
                      int count)
{
    graph_kernel *k = ARENA_NEW(g->memory, graph_kernel);
    *k = (graph_kernel){.name = name, .source = source, .output_count = 1, .output_elem = {elem}};
    k->output_shape[0] = *s;
    hash128 hash = hash_bytes(source, strlen(source));
    k->identity = hash.low;
    return graph_result(g, graph_kernel_call(g, k, inputs, count), 0);
}

/* ---- keys ---- */

static node constant(graph *g, dtype elem, const shape *s, int64_t n)
{
    return graph_full(g, elem, s, (number){.i = n});
}

node fuse_axis_last(graph *g, node x, int axis, int *back)
{
    int order[GRAPH_RANK], used = 0, rank = graph_get(g, x)->shape.rank;
    for (int k = 0; k < rank; k++)
        if (k != axis) order[used++] = k;
    order[used] = axis;
    for (int k = 0; k < rank; k++) back[order[k]] = k;
    return graph_permute(g, x, order);
}

/* The axis last and all others as one: what the kernels read. Types of 32 bits have keys in the kernels. */
typedef struct sorting {
    node x;       /* [rows][n] */
    shape turned; /* of the operand, its axis last */
    int back[GRAPH_RANK];
    const char *type, *c_type, *key; /* key: a function and NUMBER */
    int lowest;                      /* bit of the key that may differ */
} sorting;

static bool begin(graph *g, node x, int axis, bool descending, sorting *s)
{
    const shape whole = graph_get(g, x)->shape;
    dtype elem = graph_get(g, x)->elem, wide;
    int64_t length = whole.extents[axis], count = shape_count(&whole);
    if (dtypes[elem].size_bytes > 4 || count < 2 || length > INT32_MAX || count / SHORTEST_RUN > INT32_MAX)
        return false;
    x = fuse_axis_last(g, x, axis, s->back);
    s->turned = graph_get(g, x)->shape;
    wide = dtype_is_float(elem) ? DT_F32 : elem == DT_I8 || elem == DT_I16 || elem == DT_I32 ? DT_I32 : DT_U32;
    s->x = graph_convert(g, graph_reshape(g, x, &(shape){2, {count / length, length}}), wide);
    s->type = dtypes[wide].text;
    s->lowest = elem == DT_BF16 ? 16 : 0;
    s->c_type = wide == DT_F32 ? "float" : wide == DT_I32 ? "int" : "unsigned";
    s->key =
        arena_print(g->memory, "%s#define NUMBER(v, at) ((unsigned long)%skey_of(v) << 32 | (unsigned long)(at))\n",
                    wide == DT_F32   ? float_key
                    : wide == DT_I32 ? signed_key
                                     : unsigned_key,
                    descending ? "~" : "");
    return true;
}

static node positions_of(graph *g, node numbers)
{
    const shape s = graph_get(g, numbers)->shape;
    return graph_convert(g, graph_binary(g, OP_AND, numbers, constant(g, DT_U64, &s, 0xffffffff)), DT_I64);
}

static node finish(graph *g, const sorting *s, node positions, int64_t count)
{
    shape turned = s->turned;
    turned.extents[turned.rank - 1] = count;
    return graph_permute(g, graph_reshape(g, positions, &turned), s->back);
}

node fuse_sort_prepare(graph *g, node n, const fuse_options *options, node *sorted)
{
    static const char whole[] = "#define LEFT(v) (v)\n", places[] = "#define LEFT(v) (long)((v) & 0xffffffff)\n";
    const graph_node of = *graph_get(g, n);
    sorting s;
    if (!begin(g, of.inputs[0], of.attr.axis, of.attr.index, &s)) return n;
    shape rows = graph_get(g, s.x)->shape;
    int64_t length = rows.extents[1], run = SHORTEST_RUN;
    while (run < length && run < LONGEST_RUN) run *= 2;
    bool digits =
        run >= (rows.extents[0] <= (int64_t)BLOCKS_AT_ONCE * options->units ? SHORTEST_OF_FEW : SHORTEST_BY_DIGITS);
    bool gives_keys = sorted && graph_get(g, of.inputs[0])->elem == DT_I32 && !of.attr.index, ends = run >= length;
    bool ends_here = ends && !gives_keys;
    const char *left = ends_here ? places : whole, *c_type = ends_here ? "long" : "unsigned long", *source;
    dtype elem = ends_here ? DT_I64 : DT_U64;
    /* Where all rows are sorted at once, what a thread does one after the other is the time of all. */
    int threads = rows.extents[0] <= options->units ? (int)MINIMUM(run, DIGIT_THREADS_OF_FEW) : DIGIT_THREADS;
    if (digits)
        source = arena_print(g->memory, digits_source, s.type, dtypes[elem].text, (int)run, (int)run / threads,
                             s.lowest, s.key, left, s.c_type, c_type);
    else
        source = arena_print(g->memory, runs_source, s.type, dtypes[elem].text, (int)run, (int)MAXIMUM(run, BLOCK_SPAN),
                             EACH, merge_text, s.key, left, s.c_type, c_type);
    node both = fuse_source_call(g, digits ? "sort_digits" : "sort_runs", source, elem, &rows, &s.x, 1);
    for (; run < length; run *= 2) {
        bool last = 2 * run >= length && !gives_keys;
        source = arena_print(g->memory, merge_source, last ? "i64" : "u64", EACH, merge_text, last ? places : whole,
                             last ? "long" : "unsigned long");
        both = fuse_source_call(g, "merge_runs", source, last ? DT_I64 : DT_U64, &rows,
                                (node[]){both, constant(g, DT_I64, &(shape){0}, run)}, 2);
    }
    if (!gives_keys) return finish(g, &s, both, length);
    node bits = graph_convert(g, graph_binary(g, OP_SHR, both, constant(g, DT_U64, &rows, 32)), DT_U32);
    bits = graph_binary(g, OP_XOR, bits, constant(g, DT_U32, &rows, 0x80000000)); /* the keys are there already */
    *sorted = finish(g, &s, graph_map(g, OP_BITCAST, DT_I32, &bits, 1), length);
    return finish(g, &s, positions_of(g, both), length);
}

/* Of [rows][length] the first `count` of each row: numbers, for another selection, or positions, or elements, or both. */
typedef struct selection {
    const sorting *s;
    int count, team;
    bool numbers, positions, values;
} selection;

static node select_call(graph *g, const selection *c, bool of_numbers, node from, int64_t rows, int64_t parts)
{
    const char *type = of_numbers ? "u64" : c->s->type, *c_type = of_numbers ? "unsigned long" : c->s->c_type;
    text outputs = {0}, parameters = {0}, stores = {0};
    graph_kernel *k = ARENA_NEW(g->memory, graph_kernel);
    *k = (graph_kernel){.name = "select_first"};
    if (c->numbers || c->positions) {
        text_print(&outputs, ", out %s y[rows][m]", c->numbers ? "u64" : "i64");
        text_print(&parameters, ", %s *y", c->numbers ? "unsigned long" : "long");
        text_print(&stores, "    y[to] = %s;\n", c->numbers ? "best" : "(long)(best & 0xffffffff)");
        k->output_elem[k->output_count++] = c->numbers ? DT_U64 : DT_I64;
    }
    if (c->values) {
        text_print(&outputs, ", out %s v[rows][m]", c->s->type);
        text_print(&parameters, ", %s *v", c->s->c_type);
        text_add(&stores, "    v[to] = x[row * n + (long)(best & 0xffffffff)];\n");
        k->output_elem[k->output_count++] = graph_get(g, c->s->x)->elem;
    }
    for (int i = 0; i < k->output_count; i++) k->output_shape[i] = (shape){2, {rows, parts * c->count}};
    k->source = arena_print(g->memory, select_source, type, text_get(&outputs), c->count, c->team,
                            of_numbers ? "#define NUMBER(v, at) (v)\n" : c->s->key, c_type, text_get(&parameters),
                            text_get(&stores));
    k->identity = hash_bytes(k->source, strlen(k->source)).low;
    text_free(&outputs);
    text_free(&parameters);
    text_free(&stores);
    return graph_kernel_call(g, k, &from, 1);
}

node fuse_select_prepare(graph *g, node x, int axis, bool descending, int64_t count, bool positions, node *values)
{
    sorting s;
    dtype elem = graph_get(g, x)->elem;
    int64_t length = graph_get(g, x)->shape.extents[axis];
    if (count < 1 || count > MOST_KEPT || length <= 2 * count || !begin(g, x, axis, descending, &s)) return 0;
    int64_t rows = graph_get(g, s.x)->shape.extents[0];
    selection c = {.s = &s, .count = (int)count, .team = 1};
    while (c.team < BLOCK_WARPS && rows * c.team < WARPS_WANTED && length >= 2 * c.team * WARP_STEP) c.team *= 2;
    int64_t wanted = (WARPS_WANTED + rows * c.team - 1) / (rows * c.team);
    int64_t parts = MAXIMUM(MINIMUM(wanted, length / (SHORTEST_PART * c.team)), 1);
    node from = s.x;
    if (parts > 1) {
        c.numbers = true;
        from = graph_result(g, select_call(g, &c, false, from, rows, parts), 0);
        c.numbers = false;
    }
    c.values = values && parts == 1;
    c.positions = !c.values || positions;
    node call = select_call(g, &c, parts > 1, from, rows, 1);
    if (c.values) *values = graph_convert(g, finish(g, &s, graph_result(g, call, c.positions), count), elem);
    return c.positions ? finish(g, &s, graph_result(g, call, 0), count) : 0;
}
