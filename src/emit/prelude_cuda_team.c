/*
 * Teams in the CUDA prelude: folds, positions and prefixes over the lanes of a warp, a block, a cluster, a grid, and
 * their barriers. Every thread of the team calls, every thread gets the result; the order is fixed. A block has whole
 * warps: a case for fewer threads would cost NVRTC a tenth of its time for a row kernel.
 * A template's type is a fold and an element type (max_f32). In and out: text templates, see prelude_cuda_parts.h.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_cuda_parts.h"

#define OF_FLOATS(f) f "_f32 " f "_f64 "
#define OF_INTEGERS(f) f "_i8 " f "_i16 " f "_i32 " f "_i64 " f "_u8 " f "_u16 " f "_u32 " f "_u64 "
#define OF_FOLD(f) OF_FLOATS(f) OF_INTEGERS(f)
#define FOLDS OF_FOLD("sum") OF_FOLD("prod") OF_FOLD("max") OF_FOLD("min") "any_bool all_bool"
#define ORDERED OF_FOLD("max") OF_FOLD("min") "max_bool min_bool"

const prelude_part cuda_team_parts[] = {
    {"step_$t", OF_FLOATS("sum"), "", "INLINE $v step_$t($v a, $v b) { return a + b; }\n"},
    {"step_$t", OF_FLOATS("prod"), "", "INLINE $v step_$t($v a, $v b) { return a * b; }\n"},
    {"step_$t", OF_INTEGERS("sum"), "", "INLINE $v step_$t($v a, $v b) { return ($v)(($u)a + ($u)b); }\n"},
    {"step_$t", OF_INTEGERS("prod"), "", "INLINE $v step_$t($v a, $v b) { return ($v)((unsigned long)a * ($u)b); }\n"},
    {"step_$t", OF_FOLD("max"), "max_$y real_f32 real_f64", "INLINE $v step_$t($v a, $v b) { return max_$y(a, b); }\n"},
    {"step_$t", OF_FOLD("min"), "min_$y real_f32 real_f64", "INLINE $v step_$t($v a, $v b) { return min_$y(a, b); }\n"},
    {"step_any_bool", "", "", "INLINE bool step_any_bool(bool a, bool b) { return a || b; }\n"},
    {"step_all_bool", "", "", "INLINE bool step_all_bool(bool a, bool b) { return a && b; }\n"},
    {"lanes_fold_$t", FOLDS, "step_$t",
     "INLINE $v lanes_fold_$t($v x, int lanes, unsigned mask)\n"
     "{\n"
     "#pragma unroll\n"
     "    for (int s = lanes / 2; s; s /= 2) x = step_$t(x, ($v)__shfl_xor_sync(mask, ($s)x, s));\n"
     "    return x;\n"
     "}\n"},
    {"block_fold_$t", FOLDS, "lanes_fold_$t",
     "INLINE $v block_fold_$t($v x, void *room, int threads)\n"
     "{\n"
     "    $v *const slots = ($v *)room;\n"
     "    x = lanes_fold_$t(x, 32, 0xffffffff);\n"
     "    if (threads == 32) return x;\n"
     "    const int lane = threadIdx.x & 31;\n"
     "    if (lane == 0) slots[threadIdx.x >> 5] = x;\n"
     "    __syncthreads();\n"
     "    x = lane < threads >> 5 ? slots[lane] : ($v)$o;\n"
     "    return lanes_fold_$t(x, 32, 0xffffffff);\n"
     "}\n"},
    {"block_folds_$t", FOLDS, "lanes_fold_$t",
     "/* Several at once, in one exchange: 16 bytes of each warp. */\n"
     "template <int N> INLINE void block_folds_$t($v *x, void *room, int threads)\n"
     "{\n"
     "    $v *const slots = ($v *)room;\n"
     "    const int lane = threadIdx.x & 31;\n"
     "#pragma unroll\n"
     "    for (int k = 0; k < N; k++) x[k] = lanes_fold_$t(x[k], 32, 0xffffffff);\n"
     "    if (threads == 32) return;\n"
     "#pragma unroll\n"
     "    for (int k = 0; k < N; k++)\n"
     "        if (lane == 0) slots[k * 32 + (threadIdx.x >> 5)] = x[k];\n"
     "    __syncthreads();\n"
     "#pragma unroll\n"
     "    for (int k = 0; k < N; k++) x[k] = lane < threads >> 5 ? slots[k * 32 + lane] : ($v)$o;\n"
     "#pragma unroll\n"
     "    for (int k = 0; k < N; k++) x[k] = lanes_fold_$t(x[k], 32, 0xffffffff);\n"
     "}\n"},
    {"cluster_fold_$t", FOLDS, "step_$t cluster_barrier",
     "INLINE $v cluster_fold_$t($v x, void *room)\n"
     "{\n"
     "    $v *const slots = ($v *)room;\n"
     "    const unsigned size = cluster_size();\n"
     "    if (threadIdx.x < size) *($v *)cluster_map(slots + cluster_rank(), threadIdx.x) = x;\n"
     "    cluster_barrier();\n"
     "    x = slots[0];\n"
     "    for (unsigned k = 1; k < size; k++) x = step_$t(x, slots[k]);\n"
     "    return x;\n"
     "}\n"},
    {"grid_fold_$t", FOLDS, "block_fold_$t grid_barrier",
     "INLINE $v grid_fold_$t($v x, void *parts, unsigned *sync, unsigned block, unsigned blocks, void *room)\n"
     "{\n"
     "    volatile $v *const all = (volatile $v *)parts;\n"
     "    if (threadIdx.x == 0) all[block] = x;\n"
     "    grid_barrier(sync, blocks);\n"
     "    x = ($v)$o;\n"
     "    for (unsigned k = threadIdx.x; k < blocks; k += blockDim.x) x = step_$t(x, all[k]);\n"
     "    return block_fold_$t(x, room, (int)blockDim.x);\n"
     "}\n"},
/* Two 16-bit floats in a word, each with each; the fold of the two. Exact, a NaN wins. */
#define PAIRS(fold)                                                                               \
    {                                                                                             \
        "pairs_" fold "_$t", "f16 bf16", "step_" fold "_f32 unpack_$tx2 pack_$t",                 \
            "INLINE unsigned pairs_" fold "_$t(unsigned a, unsigned b)\n"                         \
            "{\n"                                                                                 \
            "#ifdef QUERN_EMU\n"                                                                  \
            "    float x[2], y[2];\n"                                                             \
            "    unpack_$tx2(x, &a);\n"                                                           \
            "    unpack_$tx2(y, &b);\n"                                                           \
            "    return pack_$t(step_" fold "_f32(x[0], y[0]), step_" fold "_f32(x[1], y[1]));\n" \
            "#else\n"                                                                             \
            "    unsigned r;\n"                                                                   \
            "    asm(\"" fold ".NaN.$tx2 %0, %1, %2;\" : \"=r\"(r) : \"r\"(a), \"r\"(b));\n"      \
            "    return r;\n"                                                                     \
            "#endif\n"                                                                            \
            "}\n"                                                                                 \
            "INLINE float pairs_last_" fold "_$t(unsigned a)\n"                                   \
            "{\n"                                                                                 \
            "    float x[2];\n"                                                                   \
            "    unpack_$tx2(x, &a);\n"                                                           \
            "    return step_" fold "_f32(x[0], x[1]);\n"                                         \
            "}\n"                                                                                 \
    }
    PAIRS("max"),
    PAIRS("min"),
    /* Pairs of a maximum and a sum of exponentials relative to it. *top is the warp's, *sum the thread's; then the team's.
     * An empty sum counts nothing, however small its maximum. */
    {"online_scale", "", "exp_f32 real_f32",
     "INLINE float online_scale(float top, float all)\n"
     "{\n"
     "    return top == all && top != real_f32((int)0xff800000) ? 1 : exp_f32(top - all);\n"
     "}\n"
     "INLINE long online_pair(float top, float sum)\n"
     "{\n"
     "    return (long)((unsigned long)(unsigned)bits_f32(sum) << 32 | (unsigned)bits_f32(top));\n"
     "}\n"
     "INLINE float online_top(long pair) { return real_f32((int)(unsigned)pair); }\n"
     "INLINE float online_sum(long pair, float all)\n"
     "{\n"
     "    const float sum = real_f32((int)(unsigned)((unsigned long)pair >> 32));\n"
     "    return sum == 0 ? 0 : sum * online_scale(online_top(pair), all);\n"
     "}\n"},
    {"block_online", "", "online_scale lanes_fold_sum_f32 lanes_fold_max_f32",
     "INLINE void block_online(float *top, float *sum, long *room, int threads)\n"
     "{\n"
     "    const int lane = threadIdx.x & 31;\n"
     "    const float all_lanes = lanes_fold_sum_f32(*sum, 32, 0xffffffff);\n"
     "    if (lane == 0) room[threadIdx.x >> 5] = online_pair(*top, all_lanes);\n"
     "    __syncthreads();\n"
     "    const long pair = lane < threads >> 5 ? room[lane] : online_pair(real_f32((int)0xff800000), 0);\n"
     "    *top = lanes_fold_max_f32(online_top(pair), 32, 0xffffffff);\n"
     "    *sum = lanes_fold_sum_f32(online_sum(pair, *top), 32, 0xffffffff);\n"
     "}\n"},
    {"cluster_online", "", "online_scale lanes_fold_sum_f32 lanes_fold_max_f32 cluster_barrier",
     "INLINE void cluster_online(float *top, float *sum, long *room)\n"
     "{\n"
     "    const int lane = threadIdx.x & 31, warps = blockDim.x >> 5, count = (int)cluster_size() * warps;\n"
     "    const float all_lanes = lanes_fold_sum_f32(*sum, 32, 0xffffffff);\n"
     "    long *const own = room + cluster_rank() * warps + (threadIdx.x >> 5);\n"
     "    if (lane < (int)cluster_size()) *(long *)cluster_map(own, lane) = online_pair(*top, all_lanes);\n"
     "    cluster_barrier();\n"
     "    float most = real_f32((int)0xff800000), part = 0;\n"
     "    for (int k = lane; k < count; k += 32) most = step_max_f32(most, online_top(room[k]));\n"
     "    most = lanes_fold_max_f32(most, 32, 0xffffffff);\n"
     "    for (int k = lane; k < count; k += 32) part += online_sum(room[k], most);\n"
     "    *top = most;\n"
     "    *sum = lanes_fold_sum_f32(part, 32, 0xffffffff);\n"
     "}\n"},
    {"grid_online", "", "block_online grid_barrier",
     "/* After block_online, of the blocks. */\n"
     "INLINE void grid_online(float *top, float *sum, long *parts, unsigned *sync, unsigned block, unsigned blocks,\n"
     "                        long *room)\n"
     "{\n"
     "    volatile long *const all = parts;\n"
     "    if (threadIdx.x == 0) all[block] = online_pair(*top, *sum);\n"
     "    grid_barrier(sync, blocks);\n"
     "    float most = real_f32((int)0xff800000), part = 0;\n"
     "    for (unsigned k = threadIdx.x; k < blocks; k += blockDim.x) most = step_max_f32(most, online_top(all[k]));\n"
     "    most = lanes_fold_max_f32(most, 32, 0xffffffff);\n"
     "    for (unsigned k = threadIdx.x; k < blocks; k += blockDim.x) part += online_sum(all[k], most);\n"
     "    *top = most;\n"
     "    *sum = part;\n"
     "    block_online(top, sum, room, (int)blockDim.x);\n"
     "}\n"},
    /* Positions: a place below 0 is none; of equal values the lower place; NaN comes before all. */
    {"beats_$t", ORDERED, "",
     "INLINE bool beats_$t($v x, long place, $v best, long best_place)\n"
     "{\n"
     "    if (place < 0 || best_place < 0) return place >= 0;\n"
     "    if (x != x || best != best) return x != x && (best == best || place < best_place);\n"
     "    return x $g best || (x == best && place < best_place);\n"
     "}\n"},
    {"lanes_best_$t", ORDERED, "beats_$t",
     "INLINE void lanes_best_$t($v *x, long *place, int lanes, unsigned mask)\n"
     "{\n"
     "#pragma unroll\n"
     "    for (int s = lanes / 2; s; s /= 2) {\n"
     "        const $v other = ($v)__shfl_xor_sync(mask, ($s)*x, s);\n"
     "        const long at = __shfl_xor_sync(mask, (long long)*place, s);\n"
     "        if (beats_$t(other, at, *x, *place)) *x = other, *place = at;\n"
     "    }\n"
     "}\n"},
    {"block_best_$t", ORDERED, "lanes_best_$t",
     "INLINE void block_best_$t($v *x, long *place, void *room, int threads)\n"
     "{\n"
     "    long *const places = (long *)room;\n"
     "    $v *const slots = ($v *)(places + 32);\n"
     "    lanes_best_$t(x, place, 32, 0xffffffff);\n"
     "    if (threads == 32) return;\n"
     "    const int lane = threadIdx.x & 31;\n"
     "    if (lane == 0) slots[threadIdx.x >> 5] = *x, places[threadIdx.x >> 5] = *place;\n"
     "    __syncthreads();\n"
     "    const bool there = lane < threads >> 5;\n"
     "    *x = there ? slots[lane] : ($v)0;\n"
     "    *place = there ? places[lane] : -1;\n"
     "    lanes_best_$t(x, place, 32, 0xffffffff);\n"
     "}\n"},
    /* Prefixes, inclusive. block_scan: *total is the fold of all. */
    {"lanes_scan_$t", FOLDS, "step_$t",
     "INLINE $v lanes_scan_$t($v x, int lanes, unsigned mask)\n"
     "{\n"
     "    const int lane = threadIdx.x & (lanes - 1);\n"
     "#pragma unroll\n"
     "    for (int s = 1; s < lanes; s *= 2) {\n"
     "        const $v before = ($v)__shfl_up_sync(mask, ($s)x, s, lanes);\n"
     "        if (lane >= s) x = step_$t(before, x);\n"
     "    }\n"
     "    return x;\n"
     "}\n"},
    {"block_scan_$t", FOLDS, "lanes_scan_$t",
     "INLINE $v block_scan_$t($v x, void *room, int threads, $v *total)\n"
     "{\n"
     "    $v *const slots = ($v *)room;\n"
     "    const int lanes = threads < 32 ? threads : 32, lane = threadIdx.x & (lanes - 1), warp = threadIdx.x / "
     "lanes;\n"
     "    const unsigned mask = lanes < 32 ? (1u << lanes) - 1 : 0xffffffff;\n"
     "    x = lanes_scan_$t(x, lanes, mask);\n"
     "    if (threads <= 32) {\n"
     "        *total = ($v)__shfl_sync(mask, ($s)x, lanes - 1);\n"
     "        return x;\n"
     "    }\n"
     "    if (lane == 31) slots[warp] = x;\n"
     "    __syncthreads();\n"
     "    $v sums = lane < threads >> 5 ? slots[lane] : ($v)$o;\n"
     "    sums = lanes_scan_$t(sums, 32, 0xffffffff);\n"
     "    const $v before = ($v)__shfl_sync(0xffffffff, ($s)sums, warp ? warp - 1 : 0);\n"
     "    *total = ($v)__shfl_sync(0xffffffff, ($s)sums, 31);\n"
     "    return warp ? step_$t(before, x) : x;\n"
     "}\n"},
    /* Over the threads of a warp that are `rows` apart. */
    {"rows_fold_$t", FOLDS, "step_$t",
     "INLINE $v rows_fold_$t($v x, int rows)\n"
     "{\n"
     "#pragma unroll\n"
     "    for (int s = rows; s < 32; s *= 2) x = step_$t(x, ($v)__shfl_xor_sync(0xffffffff, ($s)x, s));\n"
     "    return x;\n"
     "}\n"},
    {"rows_best_$t", ORDERED, "beats_$t",
     "INLINE void rows_best_$t($v *x, long *place, int rows)\n"
     "{\n"
     "#pragma unroll\n"
     "    for (int s = rows; s < 32; s *= 2) {\n"
     "        const $v other = ($v)__shfl_xor_sync(0xffffffff, ($s)*x, s);\n"
     "        const long at = __shfl_xor_sync(0xffffffff, (long long)*place, s);\n"
     "        if (beats_$t(other, at, *x, *place)) *x = other, *place = at;\n"
     "    }\n"
     "}\n"},
    {"lanes_before_$t", CUDA_NUMBERS, "",
     "INLINE $v lanes_before_$t($v x, int lanes, unsigned mask) { return ($v)__shfl_up_sync(mask, ($s)x, 1, lanes); "
     "}\n"},
    {"lanes_last_$t", CUDA_NUMBERS, "",
     "INLINE $v lanes_last_$t($v x, int lanes, unsigned mask)\n"
     "{\n"
     "    return ($v)__shfl_sync(mask, ($s)x, lanes - 1, lanes);\n"
     "}\n"},
    {"scan_parts_$t", FOLDS, "lanes_scan_$t",
     "/* What warps left becomes what comes before each of them: by the first warp, between two barriers. */\n"
     "INLINE void scan_parts_$t($v *parts, int count)\n"
     "{\n"
     "    if (threadIdx.x >= 32) return;\n"
     "    const int each = (count + 31) / 32, first = threadIdx.x * each;\n"
     "    $v sum = ($v)$o;\n"
     "    for (int k = first; k < first + each && k < count; k++) sum = step_$t(sum, parts[k]);\n"
     "    const $v all = lanes_scan_$t(sum, 32, 0xffffffff);\n"
     "    $v before = ($v)__shfl_up_sync(0xffffffff, ($s)all, 1);\n"
     "    if (threadIdx.x == 0) before = ($v)$o;\n"
     "    for (int k = first; k < first + each && k < count; k++) {\n"
     "        const $v own = parts[k];\n"
     "        parts[k] = before;\n"
     "        before = step_$t(before, own);\n"
     "    }\n"
     "}\n"},
    /* Clusters and grids. */
    {"cluster_barrier", "", "",
     "#ifdef QUERN_EMU\n"
     "INLINE unsigned cluster_rank() { return emu_cluster_rank(); }\n"
     "INLINE unsigned cluster_size() { return emu_cluster_size(); }\n"
     "INLINE void cluster_arrive() {}\n"
     "INLINE void cluster_appear() {}\n"
     "INLINE void cluster_wait() { emu_cluster_sync(); }\n"
     "INLINE void *cluster_map(void *p, unsigned rank) { return emu_cluster_map(p, rank); }\n"
     "#else\n"
     "INLINE unsigned cluster_rank()\n"
     "{\n"
     "    unsigned r;\n"
     "    asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(r));\n"
     "    return r;\n"
     "}\n"
     "INLINE unsigned cluster_size()\n"
     "{\n"
     "    unsigned r;\n"
     "    asm(\"mov.u32 %0, %%cluster_nctarank;\" : \"=r\"(r));\n"
     "    return r;\n"
     "}\n"
     "INLINE void cluster_arrive() { asm volatile(\"barrier.cluster.arrive.aligned;\" ::: \"memory\"); }\n"
     "INLINE void cluster_appear() { asm volatile(\"barrier.cluster.arrive.relaxed.aligned;\" :::); }\n"
     "INLINE void cluster_wait() { asm volatile(\"barrier.cluster.wait.aligned;\" ::: \"memory\"); }\n"
     "INLINE void *cluster_map(void *p, unsigned rank) /* the same place in the shared memory of another block */\n"
     "{\n"
     "    void *q;\n"
     "    asm(\"mapa.u64 %0, %1, %2;\" : \"=l\"(q) : \"l\"(p), \"r\"(rank));\n"
     "    return q;\n"
     "}\n"
     "#endif\n"
     "INLINE void cluster_barrier()\n"
     "{\n"
     "    cluster_arrive();\n"
     "    cluster_wait();\n"
     "}\n"
     "/* Once, before another block's shared memory is touched: all blocks are there. Each appeared when it began. */\n"
     "INLINE void cluster_meet(bool &met)\n"
     "{\n"
     "    if (!met) cluster_wait();\n"
     "    met = true;\n"
     "}\n"},
    /* Blocks of the next grid may come as soon as all of this one have called; they wait for its end in grid_begin.
     * Nothing moves in front of that: all that touches memory is under a condition with its result, of which the
     * compiler cannot know that it is 0. */
    {"grid_begin", "", "",
     "#if !defined(QUERN_EMU) && __CUDA_ARCH__ >= 900\n"
     "INLINE void grid_call() { asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\"); }\n"
     "INLINE int grid_begin()\n"
     "{\n"
     "    int zero;\n"
     "    asm volatile(\"griddepcontrol.wait;\\n\\tmov.u32 %0, 0;\" : \"=r\"(zero)::\"memory\");\n"
     "    return zero;\n"
     "}\n"
     "#else\n"
     "INLINE void grid_call() {}\n"
     "INLINE int grid_begin() { return 0; }\n"
     "#endif\n"},
    {"grid_last", "", "",
     "/* Is this the block that comes last? Then it sees all that the others wrote. The ticket is 0 again afterwards. "
     "*/\n"
     "INLINE bool grid_last(unsigned *ticket)\n"
     "{\n"
     "    __shared__ unsigned last;\n"
     "    __syncthreads();\n"
     "    if (threadIdx.x == 0) {\n"
     "        const unsigned most = gridDim.x * gridDim.y - 1;\n"
     "        __threadfence();\n"
     "        last = atomicInc(ticket, most) == most;\n"
     "        __threadfence();\n"
     "    }\n"
     "    __syncthreads();\n"
     "    return last != 0;\n"
     "}\n"},
    {"grid_barrier", "", "",
     "INLINE void grid_barrier(unsigned *sync, unsigned blocks)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    if (blocks == gridDim.x) {\n"
     "        emu_grid_sync();\n"
     "        return;\n"
     "    }\n"
     "#endif\n"
     "    __syncthreads();\n"
     "    if (threadIdx.x == 0) {\n"
     "        __threadfence();\n"
     "        const unsigned ticket = atomicAdd(sync, 1u), last = ticket - ticket % blocks + blocks;\n"
     "        unsigned seen;\n"
     "        do {\n"
     "#ifdef QUERN_EMU\n"
     "            seen = atomicAdd(sync, 0u);\n"
     "#else\n"
     "            asm volatile(\"ld.acquire.gpu.global.u32 %0, [%1];\" : \"=r\"(seen) : \"l\"(sync) : \"memory\");\n"
     "#endif\n"
     "        } while ((int)(seen - last) < 0);\n"
     "    }\n"
     "    __syncthreads();\n"
     "}\n"},
    {0},
};
