/*
 * What the vendor's headers of fragments and of groups are to raw kernels on emu: fragments and groups by their
 * own names, in plain C++. A GPU has the vendor's headers for them.
 *
 * A fragment of emu holds the whole matrix in every lane, and every lane computes the whole product: what a program may
 * know of a fragment (x, num_elements, that all of them are treated alike) holds for it too. Of a store each lane
 * writes its part.
 * SPDX-License-Identifier: MIT
 */

//@ part fragments
namespace nvcuda { namespace wmma {
struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision { struct tf32 {}; }
template <class T> struct quern_element { typedef T type; };
template <> struct quern_element<precision::tf32> { typedef float type; };
template <class U, int M, int N, int K> struct quern_extents { enum { rows = M, columns = N }; };
template <int M, int N, int K> struct quern_extents<matrix_a, M, N, K> { enum { rows = M, columns = K }; };
template <int M, int N, int K> struct quern_extents<matrix_b, M, N, K> { enum { rows = K, columns = N }; };
template <class L> struct quern_turned { enum { value = 0 }; };
template <> struct quern_turned<col_major> { enum { value = 1 }; };
template <class U, int M, int N, int K, class T, class L = void> struct fragment {
    enum { rows = quern_extents<U, M, N, K>::rows, columns = quern_extents<U, M, N, K>::columns };
    enum { num_elements = rows * columns };
    typedef typename quern_element<T>::type element_type;
    element_type x[num_elements];
};
template <class F, class T> inline void quern_load(F &f, const T *p, unsigned stride, bool turned)
{
    for (int r = 0; r < F::rows; r++)
        for (int c = 0; c < F::columns; c++)
            f.x[r * F::columns + c] = turned ? p[c * stride + r] : p[r * stride + c];
}
template <class U, int M, int N, int K, class T, class L, class P>
inline void load_matrix_sync(fragment<U, M, N, K, T, L> &f, const P *p, unsigned stride)
{
    quern_load(f, p, stride, quern_turned<L>::value);
}
template <int M, int N, int K, class T, class P>
inline void load_matrix_sync(fragment<accumulator, M, N, K, T> &f, const P *p, unsigned stride, layout_t layout)
{
    quern_load(f, p, stride, layout == mem_col_major);
}
template <int M, int N, int K, class T>
inline void store_matrix_sync(T *p, const fragment<accumulator, M, N, K, T> &f, unsigned stride, layout_t layout)
{
    __syncwarp();
    unsigned lane = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
    for (unsigned i = lane; i < M * N; i += 32)
        p[layout == mem_col_major ? i % N * stride + i / N : i / N * stride + i % N] = f.x[i];
    __syncwarp();
}
template <class F, class V> inline void fill_fragment(F &f, V value)
{
    for (int i = 0; i < F::num_elements; i++) f.x[i] = typename F::element_type(value);
}
template <class D, int M, int N, int K, class T, class LA, class LB, class C>
inline void mma_sync(fragment<accumulator, M, N, K, D> &d, const fragment<matrix_a, M, N, K, T, LA> &a,
                     const fragment<matrix_b, M, N, K, T, LB> &b, const fragment<accumulator, M, N, K, C> &c)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            auto sum = c.x[i * N + j] + a.x[i * K] * b.x[j];
            for (int k = 1; k < K; k++) sum += a.x[i * K + k] * b.x[k * N + j];
            d.x[i * N + j] = D(sum);
        }
}
inline float __float_to_tf32(float x) { return quern_float((quern_bits(x) + 0x1000) & 0xffffe000u); }
} }

//@ part groups
namespace cooperative_groups {
struct thread_block {
    static unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
    static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned num_threads() { return size(); }
    static void sync() { __syncthreads(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
struct grid_group {
    static unsigned long block_rank() { return blockIdx.x + gridDim.x * (blockIdx.y + (unsigned long)gridDim.y * blockIdx.z); }
    static unsigned long num_blocks() { return gridDim.x * (unsigned long)gridDim.y * gridDim.z; }
    static unsigned long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
    static unsigned long size() { return num_blocks() * thread_block::size(); }
    static unsigned long num_threads() { return size(); }
};
struct cluster_group {
    static unsigned block_rank() { return emu_cluster_rank(); }
    static unsigned num_blocks() { return emu_cluster_size(); }
    static unsigned thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
    static unsigned size() { return num_blocks() * thread_block::size(); }
    static void sync() { emu_cluster_sync(); }
    template <class T> static T *map_shared_rank(T *at, int rank) { return (T *)emu_cluster_map((void *)at, rank); }
};
inline cluster_group this_cluster() { return cluster_group(); }
inline thread_block this_thread_block() { return thread_block(); }
inline grid_group this_grid() { return grid_group(); }
template <unsigned N, class P = thread_block> struct thread_block_tile {
    static unsigned thread_rank() { return thread_block::thread_rank() % N; }
    static unsigned meta_group_rank() { return thread_block::thread_rank() / N; }
    static unsigned meta_group_size() { return (thread_block::size() + N - 1) / N; }
    static constexpr unsigned size() { return N; }
    static constexpr unsigned num_threads() { return N; }
    static unsigned quern_mask()
    {
        return N >= 32 ? 0xffffffffu : ((1u << N % 32) - 1) << thread_block::thread_rank() % 32 / N * N;
    }
    static void sync() { __syncwarp(quern_mask()); }
    template <class T> static T shfl(T v, int from) { return __shfl_sync(quern_mask(), v, from, N); }
    template <class T> static T shfl_up(T v, unsigned by) { return __shfl_up_sync(quern_mask(), v, by, N); }
    template <class T> static T shfl_down(T v, unsigned by) { return __shfl_down_sync(quern_mask(), v, by, N); }
    template <class T> static T shfl_xor(T v, unsigned by) { return __shfl_xor_sync(quern_mask(), v, by, N); }
    static int any(int v) { return __ballot_sync(quern_mask(), v) != 0; }
    static int all(int v) { return __ballot_sync(quern_mask(), v) == quern_mask(); }
    static unsigned ballot(int v) { return __ballot_sync(quern_mask(), v) >> thread_block::thread_rank() % 32 / N * N; }
};
template <unsigned N, class P> inline thread_block_tile<N, P> tiled_partition(const P &) { return thread_block_tile<N, P>(); }
template <class G> inline void sync(const G &g) { g.sync(); }
template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };
template <class G, class T, class O> inline T reduce(const G &g, T v, O op)
{
    for (unsigned by = g.size() / 2; by; by /= 2) v = op(v, g.shfl_xor(v, by));
    return v;
}
}
