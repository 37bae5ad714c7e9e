/*
 * Teams in the CUDA prelude: folds, positions and prefixes over the lanes of a warp, a block, a cluster, a grid, and
 * their barriers. Every thread of the team calls, every thread gets the result; the order is fixed. A block has whole
 * warps: a case for fewer threads would cost NVRTC a tenth of its time for a row kernel.
 * A template's type is a fold and an element type (max_f32).
 * SPDX-License-Identifier: MIT
 */

//@ part step_$t
//@ for sum_f32 sum_f64
INLINE $v step_$t($v a, $v b) { return a + b; }

//@ part step_$t
//@ for prod_f32 prod_f64
INLINE $v step_$t($v a, $v b) { return a * b; }

//@ part step_$t
//@ for sum_i8 sum_i16 sum_i32 sum_i64 sum_u8 sum_u16 sum_u32 sum_u64
INLINE $v step_$t($v a, $v b) { return ($v)(($u)a + ($u)b); }

//@ part step_$t
//@ for prod_i8 prod_i16 prod_i32 prod_i64 prod_u8 prod_u16 prod_u32 prod_u64
INLINE $v step_$t($v a, $v b) { return ($v)((unsigned long)a * ($u)b); }

//@ part step_$t
//@ for max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8 max_u16 max_u32 max_u64
//@ needs max_$y real_f32 real_f64
INLINE $v step_$t($v a, $v b) { return max_$y(a, b); }

//@ part step_$t
//@ for min_f32 min_f64 min_i8 min_i16 min_i32 min_i64 min_u8 min_u16 min_u32 min_u64
//@ needs min_$y real_f32 real_f64
INLINE $v step_$t($v a, $v b) { return min_$y(a, b); }

//@ part step_any_bool
INLINE bool step_any_bool(bool a, bool b) { return a || b; }

//@ part step_all_bool
INLINE bool step_all_bool(bool a, bool b) { return a && b; }

//@ part lanes_fold_$t
//@ for sum_f32 sum_f64 sum_i8 sum_i16 sum_i32 sum_i64 sum_u8 sum_u16 sum_u32 sum_u64 prod_f32 prod_f64 prod_i8 prod_i16
//@ for prod_i32 prod_i64 prod_u8 prod_u16 prod_u32 prod_u64 max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8
//@ for max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16 min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 any_bool
//@ for all_bool
//@ needs step_$t
INLINE $v lanes_fold_$t($v x, int lanes, unsigned mask)
{
#pragma unroll
    for (int s = lanes / 2; s; s /= 2) x = step_$t(x, ($v)__shfl_xor_sync(mask, ($s)x, s));
    return x;
}

//@ part block_fold_$t
//@ for sum_f32 sum_f64 sum_i8 sum_i16 sum_i32 sum_i64 sum_u8 sum_u16 sum_u32 sum_u64 prod_f32 prod_f64 prod_i8 prod_i16
//@ for prod_i32 prod_i64 prod_u8 prod_u16 prod_u32 prod_u64 max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8
//@ for max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16 min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 any_bool
//@ for all_bool
//@ needs lanes_fold_$t
INLINE $v block_fold_$t($v x, void *room, int threads)
{
    $v *const slots = ($v *)room;
    x = lanes_fold_$t(x, 32, 0xffffffff);
    if (threads == 32) return x;
    const int lane = threadIdx.x & 31;
    if (lane == 0) slots[threadIdx.x >> 5] = x;
    __syncthreads();
    x = lane < threads >> 5 ? slots[lane] : ($v)$o;
    return lanes_fold_$t(x, 32, 0xffffffff);
}

//@ part block_folds_$t
//@ for sum_f32 sum_f64 sum_i8 sum_i16 sum_i32 sum_i64 sum_u8 sum_u16 sum_u32 sum_u64 prod_f32 prod_f64 prod_i8 prod_i16
//@ for prod_i32 prod_i64 prod_u8 prod_u16 prod_u32 prod_u64 max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8
//@ for max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16 min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 any_bool
//@ for all_bool
//@ needs lanes_fold_$t
/* Several at once, in one exchange: 16 bytes of each warp. */
template <int N> INLINE void block_folds_$t($v *x, void *room, int threads)
{
    $v *const slots = ($v *)room;
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int k = 0; k < N; k++) x[k] = lanes_fold_$t(x[k], 32, 0xffffffff);
    if (threads == 32) return;
#pragma unroll
    for (int k = 0; k < N; k++)
        if (lane == 0) slots[k * 32 + (threadIdx.x >> 5)] = x[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) x[k] = lane < threads >> 5 ? slots[k * 32 + lane] : ($v)$o;
#pragma unroll
    for (int k = 0; k < N; k++) x[k] = lanes_fold_$t(x[k], 32, 0xffffffff);
}

//@ part cluster_fold_$t
//@ for sum_f32 sum_f64 sum_i8 sum_i16 sum_i32 sum_i64 sum_u8 sum_u16 sum_u32 sum_u64 prod_f32 prod_f64 prod_i8 prod_i16
//@ for prod_i32 prod_i64 prod_u8 prod_u16 prod_u32 prod_u64 max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8
//@ for max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16 min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 any_bool
//@ for all_bool
//@ needs step_$t cluster_barrier
INLINE $v cluster_fold_$t($v x, void *room)
{
    $v *const slots = ($v *)room;
    const unsigned size = cluster_size();
    if (threadIdx.x < size) *($v *)cluster_map(slots + cluster_rank(), threadIdx.x) = x;
    cluster_barrier();
    x = slots[0];
    for (unsigned k = 1; k < size; k++) x = step_$t(x, slots[k]);
    return x;
}

//@ part grid_fold_$t
//@ for sum_f32 sum_f64 sum_i8 sum_i16 sum_i32 sum_i64 sum_u8 sum_u16 sum_u32 sum_u64 prod_f32 prod_f64 prod_i8 prod_i16
//@ for prod_i32 prod_i64 prod_u8 prod_u16 prod_u32 prod_u64 max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8
//@ for max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16 min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 any_bool
//@ for all_bool
//@ needs block_fold_$t grid_barrier
INLINE $v grid_fold_$t($v x, void *parts, unsigned *sync, unsigned block, unsigned blocks, void *room)
{
    volatile $v *const all = (volatile $v *)parts;
    if (threadIdx.x == 0) all[block] = x;
    grid_barrier(sync, blocks);
    x = ($v)$o;
    for (unsigned k = threadIdx.x; k < blocks; k += blockDim.x) x = step_$t(x, all[k]);
    return block_fold_$t(x, room, (int)blockDim.x);
}

/* Two 16-bit floats in a word, each with each; the fold of the two. Exact, a NaN wins. */

//@ part pairs_max_$t
//@ for f16 bf16
//@ needs step_max_f32 unpack_$tx2 pack_$t
INLINE unsigned pairs_max_$t(unsigned a, unsigned b)
{
#ifdef QUERN_EMU
    float x[2], y[2];
    unpack_$tx2(x, &a);
    unpack_$tx2(y, &b);
    return pack_$t(step_max_f32(x[0], y[0]), step_max_f32(x[1], y[1]));
#else
    unsigned r;
    asm("max.NaN.$tx2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
#endif
}
INLINE float pairs_last_max_$t(unsigned a)
{
    float x[2];
    unpack_$tx2(x, &a);
    return step_max_f32(x[0], x[1]);
}

//@ part pairs_min_$t
//@ for f16 bf16
//@ needs step_min_f32 unpack_$tx2 pack_$t
INLINE unsigned pairs_min_$t(unsigned a, unsigned b)
{
#ifdef QUERN_EMU
    float x[2], y[2];
    unpack_$tx2(x, &a);
    unpack_$tx2(y, &b);
    return pack_$t(step_min_f32(x[0], y[0]), step_min_f32(x[1], y[1]));
#else
    unsigned r;
    asm("min.NaN.$tx2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
#endif
}
INLINE float pairs_last_min_$t(unsigned a)
{
    float x[2];
    unpack_$tx2(x, &a);
    return step_min_f32(x[0], x[1]);
}

/* Pairs of a maximum and a sum of exponentials relative to it. *top is the warp's, *sum the thread's; then the team's.
 * An empty sum counts nothing, however small its maximum. */

//@ part online_scale
//@ needs exp_f32 real_f32
INLINE float online_scale(float top, float all)
{
    return top == all && top != real_f32((int)0xff800000) ? 1 : exp_f32(top - all);
}
INLINE long online_pair(float top, float sum)
{
    return (long)((unsigned long)(unsigned)bits_f32(sum) << 32 | (unsigned)bits_f32(top));
}
INLINE float online_top(long pair) { return real_f32((int)(unsigned)pair); }
INLINE float online_sum(long pair, float all)
{
    const float sum = real_f32((int)(unsigned)((unsigned long)pair >> 32));
    return sum == 0 ? 0 : sum * online_scale(online_top(pair), all);
}

//@ part block_online
//@ needs online_scale lanes_fold_sum_f32 lanes_fold_max_f32
INLINE void block_online(float *top, float *sum, long *room, int threads)
{
    const int lane = threadIdx.x & 31;
    const float all_lanes = lanes_fold_sum_f32(*sum, 32, 0xffffffff);
    if (lane == 0) room[threadIdx.x >> 5] = online_pair(*top, all_lanes);
    __syncthreads();
    const long pair = lane < threads >> 5 ? room[lane] : online_pair(real_f32((int)0xff800000), 0);
    *top = lanes_fold_max_f32(online_top(pair), 32, 0xffffffff);
    *sum = lanes_fold_sum_f32(online_sum(pair, *top), 32, 0xffffffff);
}

//@ part cluster_online
//@ needs online_scale lanes_fold_sum_f32 lanes_fold_max_f32 cluster_barrier
INLINE void cluster_online(float *top, float *sum, long *room)
{
    const int lane = threadIdx.x & 31, warps = blockDim.x >> 5, count = (int)cluster_size() * warps;
    const float all_lanes = lanes_fold_sum_f32(*sum, 32, 0xffffffff);
    long *const own = room + cluster_rank() * warps + (threadIdx.x >> 5);
    if (lane < (int)cluster_size()) *(long *)cluster_map(own, lane) = online_pair(*top, all_lanes);
    cluster_barrier();
    float most = real_f32((int)0xff800000), part = 0;
    for (int k = lane; k < count; k += 32) most = step_max_f32(most, online_top(room[k]));
    most = lanes_fold_max_f32(most, 32, 0xffffffff);
    for (int k = lane; k < count; k += 32) part += online_sum(room[k], most);
    *top = most;
    *sum = lanes_fold_sum_f32(part, 32, 0xffffffff);
}

//@ part grid_online
//@ needs block_online grid_barrier
/* After block_online, of the blocks. */
INLINE void grid_online(float *top, float *sum, long *parts, unsigned *sync, unsigned block, unsigned blocks,
                        long *room)
{
    volatile long *const all = parts;
    if (threadIdx.x == 0) all[block] = online_pair(*top, *sum);
    grid_barrier(sync, blocks);
    float most = real_f32((int)0xff800000), part = 0;
    for (unsigned k = threadIdx.x; k < blocks; k += blockDim.x) most = step_max_f32(most, online_top(all[k]));
    most = lanes_fold_max_f32(most, 32, 0xffffffff);
    for (unsigned k = threadIdx.x; k < blocks; k += blockDim.x) part += online_sum(all[k], most);
    *top = most;
    *sum = part;
    block_online(top, sum, room, (int)blockDim.x);
}

/* Positions: a place below 0 is none; of equal values the lower place; NaN comes before all. */

//@ part beats_$t
//@ for max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8 max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16
//@ for min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 max_bool min_bool
INLINE bool beats_$t($v x, long place, $v best, long best_place)
{
    if (place < 0 || best_place < 0) return place >= 0;
    if (x != x || best != best) return x != x && (best == best || place < best_place);
    return x $g best || (x == best && place < best_place);
}

//@ part lanes_best_$t
//@ for max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8 max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16
//@ for min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 max_bool min_bool
//@ needs beats_$t
INLINE void lanes_best_$t($v *x, long *place, int lanes, unsigned mask)
{
#pragma unroll
    for (int s = lanes / 2; s; s /= 2) {
        const $v other = ($v)__shfl_xor_sync(mask, ($s)*x, s);
        const long at = __shfl_xor_sync(mask, (long long)*place, s);
        if (beats_$t(other, at, *x, *place)) *x = other, *place = at;
    }
}

//@ part block_best_$t
//@ for max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8 max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16
//@ for min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 max_bool min_bool
//@ needs lanes_best_$t
INLINE void block_best_$t($v *x, long *place, void *room, int threads)
{
    long *const places = (long *)room;
    $v *const slots = ($v *)(places + 32);
    lanes_best_$t(x, place, 32, 0xffffffff);
    if (threads == 32) return;
    const int lane = threadIdx.x & 31;
    if (lane == 0) slots[threadIdx.x >> 5] = *x, places[threadIdx.x >> 5] = *place;
    __syncthreads();
    const bool there = lane < threads >> 5;
    *x = there ? slots[lane] : ($v)0;
    *place = there ? places[lane] : -1;
    lanes_best_$t(x, place, 32, 0xffffffff);
}

/* Prefixes, inclusive. block_scan: *total is the fold of all. */

//@ part lanes_scan_$t
//@ for sum_f32 sum_f64 sum_i8 sum_i16 sum_i32 sum_i64 sum_u8 sum_u16 sum_u32 sum_u64 prod_f32 prod_f64 prod_i8 prod_i16
//@ for prod_i32 prod_i64 prod_u8 prod_u16 prod_u32 prod_u64 max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8
//@ for max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16 min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 any_bool
//@ for all_bool
//@ needs step_$t
INLINE $v lanes_scan_$t($v x, int lanes, unsigned mask)
{
    const int lane = threadIdx.x & (lanes - 1);
#pragma unroll
    for (int s = 1; s < lanes; s *= 2) {
        const $v before = ($v)__shfl_up_sync(mask, ($s)x, s, lanes);
        if (lane >= s) x = step_$t(before, x);
    }
    return x;
}

//@ part block_scan_$t
//@ for sum_f32 sum_f64 sum_i8 sum_i16 sum_i32 sum_i64 sum_u8 sum_u16 sum_u32 sum_u64 prod_f32 prod_f64 prod_i8 prod_i16
//@ for prod_i32 prod_i64 prod_u8 prod_u16 prod_u32 prod_u64 max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8
//@ for max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16 min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 any_bool
//@ for all_bool
//@ needs lanes_scan_$t
INLINE $v block_scan_$t($v x, void *room, int threads, $v *total)
{
    $v *const slots = ($v *)room;
    const int lanes = threads < 32 ? threads : 32, lane = threadIdx.x & (lanes - 1), warp = threadIdx.x / lanes;
    const unsigned mask = lanes < 32 ? (1u << lanes) - 1 : 0xffffffff;
    x = lanes_scan_$t(x, lanes, mask);
    if (threads <= 32) {
        *total = ($v)__shfl_sync(mask, ($s)x, lanes - 1);
        return x;
    }
    if (lane == 31) slots[warp] = x;
    __syncthreads();
    $v sums = lane < threads >> 5 ? slots[lane] : ($v)$o;
    sums = lanes_scan_$t(sums, 32, 0xffffffff);
    const $v before = ($v)__shfl_sync(0xffffffff, ($s)sums, warp ? warp - 1 : 0);
    *total = ($v)__shfl_sync(0xffffffff, ($s)sums, 31);
    return warp ? step_$t(before, x) : x;
}

/* Over the threads of a warp that are `rows` apart. */

//@ part rows_fold_$t
//@ for sum_f32 sum_f64 sum_i8 sum_i16 sum_i32 sum_i64 sum_u8 sum_u16 sum_u32 sum_u64 prod_f32 prod_f64 prod_i8 prod_i16
//@ for prod_i32 prod_i64 prod_u8 prod_u16 prod_u32 prod_u64 max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8
//@ for max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16 min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 any_bool
//@ for all_bool
//@ needs step_$t
INLINE $v rows_fold_$t($v x, int rows)
{
#pragma unroll
    for (int s = rows; s < 32; s *= 2) x = step_$t(x, ($v)__shfl_xor_sync(0xffffffff, ($s)x, s));
    return x;
}

//@ part rows_best_$t
//@ for max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8 max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16
//@ for min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 max_bool min_bool
//@ needs beats_$t
INLINE void rows_best_$t($v *x, long *place, int rows)
{
#pragma unroll
    for (int s = rows; s < 32; s *= 2) {
        const $v other = ($v)__shfl_xor_sync(0xffffffff, ($s)*x, s);
        const long at = __shfl_xor_sync(0xffffffff, (long long)*place, s);
        if (beats_$t(other, at, *x, *place)) *x = other, *place = at;
    }
}

//@ part lanes_before_$t
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE $v lanes_before_$t($v x, int lanes, unsigned mask) { return ($v)__shfl_up_sync(mask, ($s)x, 1, lanes); }

//@ part lanes_last_$t
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE $v lanes_last_$t($v x, int lanes, unsigned mask)
{
    return ($v)__shfl_sync(mask, ($s)x, lanes - 1, lanes);
}

//@ part scan_parts_$t
//@ for sum_f32 sum_f64 sum_i8 sum_i16 sum_i32 sum_i64 sum_u8 sum_u16 sum_u32 sum_u64 prod_f32 prod_f64 prod_i8 prod_i16
//@ for prod_i32 prod_i64 prod_u8 prod_u16 prod_u32 prod_u64 max_f32 max_f64 max_i8 max_i16 max_i32 max_i64 max_u8
//@ for max_u16 max_u32 max_u64 min_f32 min_f64 min_i8 min_i16 min_i32 min_i64 min_u8 min_u16 min_u32 min_u64 any_bool
//@ for all_bool
//@ needs lanes_scan_$t
/* What warps left becomes what comes before each of them: by the first warp, between two barriers. */
INLINE void scan_parts_$t($v *parts, int count)
{
    if (threadIdx.x >= 32) return;
    const int each = (count + 31) / 32, first = threadIdx.x * each;
    $v sum = ($v)$o;
    for (int k = first; k < first + each && k < count; k++) sum = step_$t(sum, parts[k]);
    const $v all = lanes_scan_$t(sum, 32, 0xffffffff);
    $v before = ($v)__shfl_up_sync(0xffffffff, ($s)all, 1);
    if (threadIdx.x == 0) before = ($v)$o;
    for (int k = first; k < first + each && k < count; k++) {
        const $v own = parts[k];
        parts[k] = before;
        before = step_$t(before, own);
    }
}

/* Clusters and grids. */

//@ part cluster_barrier
#ifdef QUERN_EMU
INLINE unsigned cluster_rank() { return emu_cluster_rank(); }
INLINE unsigned cluster_size() { return emu_cluster_size(); }
INLINE void cluster_arrive() {}
INLINE void cluster_appear() {}
INLINE void cluster_wait() { emu_cluster_sync(); }
INLINE void *cluster_map(void *p, unsigned rank) { return emu_cluster_map(p, rank); }
#else
INLINE unsigned cluster_rank()
{
    unsigned r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
INLINE unsigned cluster_size()
{
    unsigned r;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
    return r;
}
INLINE void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
INLINE void cluster_appear() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" :::); }
INLINE void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
INLINE void *cluster_map(void *p, unsigned rank) /* the same place in the shared memory of another block */
{
    void *q;
    asm("mapa.u64 %0, %1, %2;" : "=l"(q) : "l"(p), "r"(rank));
    return q;
}
#endif
INLINE void cluster_barrier()
{
    cluster_arrive();
    cluster_wait();
}
/* Once, before another block's shared memory is touched: all blocks are there. Each appeared when it began. */
INLINE void cluster_meet(bool &met)
{
    if (!met) cluster_wait();
    met = true;
}

/* Blocks of the next grid may come as soon as all of this one have called; they wait for its end in grid_begin.
 * Nothing moves in front of that: all that touches memory is under a condition with its result, of which the
 * compiler cannot know that it is 0. */

//@ part grid_begin
#if !defined(QUERN_EMU) && __CUDA_ARCH__ >= 900
INLINE void grid_call() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
INLINE int grid_begin()
{
    int zero;
    asm volatile("griddepcontrol.wait;\n\tmov.u32 %0, 0;" : "=r"(zero)::"memory");
    return zero;
}
#else
INLINE void grid_call() {}
INLINE int grid_begin() { return 0; }
#endif

//@ part grid_last
/* Is this the block that comes last? Then it sees all that the others wrote. The ticket is 0 again afterwards. */
INLINE bool grid_last(unsigned *ticket)
{
    __shared__ unsigned last;
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned most = gridDim.x * gridDim.y - 1;
        __threadfence();
        last = atomicInc(ticket, most) == most;
        __threadfence();
    }
    __syncthreads();
    return last != 0;
}

//@ part grid_barrier
INLINE void grid_barrier(unsigned *sync, unsigned blocks)
{
#ifdef QUERN_EMU
    if (blocks == gridDim.x) {
        emu_grid_sync();
        return;
    }
#endif
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        const unsigned ticket = atomicAdd(sync, 1u), last = ticket - ticket % blocks + blocks;
        unsigned seen;
        do {
#ifdef QUERN_EMU
            seen = atomicAdd(sync, 0u);
#else
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(sync) : "memory");
#endif
        } while ((int)(seen - last) < 0);
    }
    __syncthreads();
}
