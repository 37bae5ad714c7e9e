/*
 * The C++ text in front of CUDA text that runs on the CPU: the words of the language, vector types, the thread and its
 * numbers, barriers, warps, memory and atomics. It is what CUDA's own
 * built-in names are on a GPU; a name of CUDA that is not here is an error of the compiler, which names it.
 * The structs and numbers at the start are those of emu/engine.h. Nothing is included, so it compiles quickly.
 * SPDX-License-Identifier: MIT
 */

// ---- words of the language ----
#define QUERN_EMU 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ 900
#define __global__
#define __device__
#define __host__
#define __managed__
#define __constant__ static
#if defined(__clang__)
#define EMU_CONSTANT __attribute__((require_constant_initialization))
#else
#define EMU_CONSTANT __constinit
#endif
#define __shared__ thread_local EMU_CONSTANT
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#if defined(__clang__)
#define EMU_QUIET __attribute__((no_sanitize("thread"), disable_sanitizer_instrumentation))
#else
#define EMU_QUIET __attribute__((no_sanitize("thread")))
#endif
#define EMU_WHERE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define warpSize 32
using size_t = __SIZE_TYPE__;
using ptrdiff_t = __PTRDIFF_TYPE__;
// ---- vector types ----
#define EMU_VECTOR(name, T, align2, align4) \
    struct name##1 { T x; }; \
    struct __attribute__((aligned(align2))) name##2 { T x, y; }; \
    struct name##3 { T x, y, z; }; \
    struct __attribute__((aligned(align4))) name##4 { T x, y, z, w; }; \
    inline name##1 make_##name##1(T x) { return name##1{x}; } \
    inline name##2 make_##name##2(T x, T y) { return name##2{x, y}; } \
    inline name##3 make_##name##3(T x, T y, T z) { return name##3{x, y, z}; } \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return name##4{x, y, z, w}; }
EMU_VECTOR(char, signed char, 2, 4)
EMU_VECTOR(uchar, unsigned char, 2, 4)
EMU_VECTOR(short, short, 4, 8)
EMU_VECTOR(ushort, unsigned short, 4, 8)
EMU_VECTOR(int, int, 8, 16)
EMU_VECTOR(uint, unsigned int, 8, 16)
EMU_VECTOR(long, long, 16, 16)
EMU_VECTOR(ulong, unsigned long, 16, 16)
EMU_VECTOR(longlong, long long, 16, 16)
EMU_VECTOR(ulonglong, unsigned long long, 16, 16)
EMU_VECTOR(float, float, 8, 16)
EMU_VECTOR(double, double, 16, 16)
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};
// ---- the thread ----
struct emu_thread {
    uint3 index, block_index;
    dim3 block_size, grid_size;
    unsigned lane, number, cluster_rank, cluster_size, atomics;
};
struct emu_matrix_call {
    int type, n, add, turn_a, turn_b, line;
    const char *file;
    void *sums;
    unsigned long a, b;
    const unsigned *registers;
};
struct emu_calls_of {
    int (*barrier)(emu_thread *, int number, int count, int value, const char *, int);
    unsigned long (*warp)(emu_thread *, unsigned mask, int kind, unsigned long value, unsigned long argument, const char *, int);
    unsigned (*active)(emu_thread *);
    void (*together)(emu_thread *, int grid, const char *, int);
    void *(*map)(emu_thread *, void *, unsigned rank);
    void (*give_way)(emu_thread *);
    void (*access)(emu_thread *, const void *, size_t, int kind, const void *place);
    void (*print)(emu_thread *, const char *);
    void (*stop)(emu_thread *, const char *, const char *, int);
    unsigned (*address)(emu_thread *, const void *);
    void (*arrive)(emu_thread *, int number, int count, const char *, int);
    void (*phase)(emu_thread *, void *bar, int what, int number, const char *, int);
    void (*bulk_in)(emu_thread *, void *to, const void *map, void *bar, const int *place, int rank, unsigned mask, const char *, int);
    void (*bulk_out)(emu_thread *, const void *map, const void *from, const int *place, int rank, const char *, int);
    void (*bulk_commit)(emu_thread *);
    void (*bulk_wait)(emu_thread *, int pending, const char *, int);
    void (*fence_async)(emu_thread *);
    void (*matrix)(emu_thread *, const emu_matrix_call *);
    void (*matrix_commit)(emu_thread *);
    void (*matrix_wait)(emu_thread *, int pending, const char *, int);
};
static emu_calls_of emu_table;
#define emu_calls (&emu_table)
#define EMU_EXPORT extern "C" __attribute__((visibility("default"))) EMU_QUIET
EMU_EXPORT void emu_bind(const emu_calls_of *calls) { emu_table = *calls; }
EMU_EXPORT void *emu_touch() { static thread_local char mark; return &mark; }
static inline __attribute__((always_inline)) unsigned long emu_stack()
{
    unsigned long at;
#if defined(__x86_64__)
    __asm__("movq %%rsp, %0" : "=r"(at));
#elif defined(__aarch64__)
    __asm__("mov %0, sp" : "=r"(at));
#else
    at = (unsigned long)__builtin_frame_address(0);
#endif
    return at;
}
static inline __attribute__((always_inline)) emu_thread *emu_self()
{
    return (emu_thread *)((emu_stack() | (EMU_STACK_BYTES - 1)) + 1 - EMU_THREAD_BYTES);
}
#define threadIdx (((const emu_thread *)emu_self())->index)
#define blockIdx (((const emu_thread *)emu_self())->block_index)
#define blockDim (((const emu_thread *)emu_self())->block_size)
#define gridDim (((const emu_thread *)emu_self())->grid_size)
// ---- addresses ----
// What -fsanitize=alignment calls: a GPU stops at a vector that does not lie at a multiple of its size.
struct emu_misaligned { const char *file; unsigned line, column; const void *type; unsigned char size_log, kind; };
#define EMU_MISALIGNED(name) \
    extern "C" __attribute__((no_sanitize("alignment"), noinline)) EMU_QUIET void name(void *data, void *) \
    { \
        const emu_misaligned *m = (const emu_misaligned *)data; \
        emu_calls->stop(emu_self(), m->size_log > 3 ? "a misaligned address, of 16 bytes or more" : m->size_log == 3 ? "a misaligned address, of 8 bytes" : "a misaligned address", m->file, (int)m->line); \
    }
EMU_MISALIGNED(__ubsan_handle_type_mismatch_v1)
EMU_MISALIGNED(__ubsan_handle_type_mismatch_v1_abort)
template <int... I> struct emu_numbers {};
template <int N, int... I> struct emu_count : emu_count<N - 1, N - 1, I...> {};
template <int... I> struct emu_count<0, I...> { typedef emu_numbers<I...> type; };
template <class... A, int... I> EMU_QUIET void emu_call(void (*f)(A...), void *const *p, emu_numbers<I...>) { f(*(A *)p[I]...); }
template <class... A> EMU_QUIET void emu_start(void (*f)(A...), void *const *p) { emu_call(f, p, typename emu_count<sizeof...(A)>::type()); }
#define QUERN_EMU_ENTRY(name, ...) EMU_EXPORT void emu_entry_##name(void *const *p) { emu_start(__VA_ARGS__, p); }
// ---- barriers ----
static inline void __syncthreads(EMU_WHERE) { emu_calls->barrier(emu_self(), 0, 0, 0, file, line); }
static inline int __syncthreads_count(int p, EMU_WHERE) { return emu_calls->barrier(emu_self(), 0, 0, p != 0, file, line); }
static inline int __syncthreads_or(int p, EMU_WHERE) { return emu_calls->barrier(emu_self(), 0, 0, p != 0, file, line) != 0; }
static inline int __syncthreads_and(int p, EMU_WHERE) { return emu_calls->barrier(emu_self(), 0, 0, p == 0, file, line) == 0; }
static inline void emu_barrier(int number, int count, EMU_WHERE) { emu_calls->barrier(emu_self(), number, count, 0, file, line); }
static inline void emu_cluster_sync(EMU_WHERE) { emu_calls->together(emu_self(), 0, file, line); }
static inline void emu_grid_sync(EMU_WHERE) { emu_calls->together(emu_self(), 1, file, line); }
static inline unsigned emu_cluster_rank() { return emu_self()->cluster_rank; }
static inline unsigned emu_cluster_size() { return emu_self()->cluster_size; }
template <class T> static inline T *emu_cluster_map(T *p, unsigned rank) { return (T *)emu_calls->map(emu_self(), (void *)p, rank); }
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __nanosleep(unsigned) { emu_calls->give_way(emu_self()); }
// ---- warps ----
enum { EMU_SYNC, EMU_SHUFFLE, EMU_BALLOT, EMU_MATCH_ANY, EMU_MATCH_ALL, EMU_GATHER, EMU_REDUCE_ADD, EMU_REDUCE_MIN, EMU_REDUCE_MAX,
       EMU_REDUCE_UMIN, EMU_REDUCE_UMAX, EMU_REDUCE_AND, EMU_REDUCE_OR, EMU_REDUCE_XOR };
static inline unsigned long emu_warp(unsigned mask, int kind, unsigned long value, unsigned long argument, const char *file, int line)
{
    return emu_calls->warp(emu_self(), mask, kind, value, argument, file, line);
}
static inline void __syncwarp(unsigned mask = ~0u, EMU_WHERE) { emu_warp(mask, EMU_SYNC, 0, 0, file, line); }
static inline unsigned __activemask() { return emu_calls->active(emu_self()); }
template <class T> static inline T emu_shuffle(unsigned mask, T value, int from, const char *file, int line)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    unsigned long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = emu_warp(mask, EMU_SHUFFLE, bits, from, file, line);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, EMU_WHERE)
{
    int lane = emu_self()->lane;
    return emu_shuffle(mask, value, (lane & ~(width - 1)) | (from & (width - 1)), file, line);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_WHERE)
{
    int lane = emu_self()->lane, from = lane - (int)delta;
    return emu_shuffle(mask, value, from < (lane & ~(width - 1)) ? lane : from, file, line);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_WHERE)
{
    int lane = emu_self()->lane, from = lane + (int)delta;
    return emu_shuffle(mask, value, from > (lane | (width - 1)) ? lane : from, file, line);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMU_WHERE)
{
    int lane = emu_self()->lane, from = lane ^ bits;
    return emu_shuffle(mask, value, from > (lane | (width - 1)) ? lane : from, file, line);
}
static inline unsigned __ballot_sync(unsigned mask, int p, EMU_WHERE) { return emu_warp(mask, EMU_BALLOT, p != 0, 0, file, line); }
static inline int __any_sync(unsigned mask, int p, EMU_WHERE) { return emu_warp(mask, EMU_BALLOT, p != 0, 0, file, line) != 0; }
static inline int __all_sync(unsigned mask, int p, EMU_WHERE) { return emu_warp(mask, EMU_BALLOT, p == 0, 0, file, line) == 0; }
template <class T> static inline unsigned __match_any_sync(unsigned mask, T value, EMU_WHERE)
{
    unsigned long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return emu_warp(mask, EMU_MATCH_ANY, bits, 0, file, line);
}
template <class T> static inline unsigned __match_all_sync(unsigned mask, T value, int *all, EMU_WHERE)
{
    unsigned long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    unsigned same = emu_warp(mask, EMU_MATCH_ALL, bits, 0, file, line);
    *all = same != 0;
    return same;
}
static inline int __reduce_add_sync(unsigned mask, int v, EMU_WHERE) { return emu_warp(mask, EMU_REDUCE_ADD, (unsigned)v, 0, file, line); }
static inline int __reduce_min_sync(unsigned mask, int v, EMU_WHERE) { return emu_warp(mask, EMU_REDUCE_MIN, (unsigned)v, 0, file, line); }
static inline int __reduce_max_sync(unsigned mask, int v, EMU_WHERE) { return emu_warp(mask, EMU_REDUCE_MAX, (unsigned)v, 0, file, line); }
static inline unsigned __reduce_add_sync(unsigned mask, unsigned v, EMU_WHERE) { return emu_warp(mask, EMU_REDUCE_ADD, v, 0, file, line); }
static inline unsigned __reduce_min_sync(unsigned mask, unsigned v, EMU_WHERE) { return emu_warp(mask, EMU_REDUCE_UMIN, v, 0, file, line); }
static inline unsigned __reduce_max_sync(unsigned mask, unsigned v, EMU_WHERE) { return emu_warp(mask, EMU_REDUCE_UMAX, v, 0, file, line); }
static inline unsigned __reduce_and_sync(unsigned mask, unsigned v, EMU_WHERE) { return emu_warp(mask, EMU_REDUCE_AND, v, 0, file, line); }
static inline unsigned __reduce_or_sync(unsigned mask, unsigned v, EMU_WHERE) { return emu_warp(mask, EMU_REDUCE_OR, v, 0, file, line); }
static inline unsigned __reduce_xor_sync(unsigned mask, unsigned v, EMU_WHERE) { return emu_warp(mask, EMU_REDUCE_XOR, v, 0, file, line); }
// The bytes of all 32 lanes, one after another; for matrix instructions. All lanes of the warp must call it; at most 64 bytes a lane.
static inline const void *emu_warp_gather(const void *mine, int size_bytes, EMU_WHERE)
{
    return (const void *)emu_warp(~0u, EMU_GATHER, (unsigned long)mine, size_bytes, file, line);
}
// ---- memory ----
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldca(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldlu(const T *p) { return *p; }
template <class T> static inline T __ldcv(const T *p) { return *p; }
template <class T> static inline void __stwb(T *p, T v) { *p = v; }
template <class T> static inline void __stcg(T *p, T v) { *p = v; }
template <class T> static inline void __stcs(T *p, T v) { *p = v; }
template <class T> static inline void __stwt(T *p, T v) { *p = v; }
EMU_QUIET __attribute__((noinline)) static void emu_atomic(const void *p, size_t size_bytes, const void *place)
{
    emu_thread *self = emu_self();
    if (!(++self->atomics & 1023)) emu_calls->give_way(self);
#ifdef QUERN_EMU_CHECKED
    emu_calls->access(self, p, size_bytes, 2, place);
#endif
}
template <int N> struct emu_bits;
template <> struct emu_bits<2> { typedef unsigned short type; };
template <> struct emu_bits<4> { typedef unsigned int type; };
template <> struct emu_bits<8> { typedef unsigned long type; };
#ifdef QUERN_EMU_CHECKED
#define EMU_ATOMIC EMU_QUIET __attribute__((noinline)) static
#else
#define EMU_ATOMIC static inline
#endif
template <class T> EMU_ATOMIC T emu_cas(T *p, T expected, T value)
{
    typedef typename emu_bits<sizeof(T)>::type bits;
    bits e, v;
    T old;
    __builtin_memcpy(&e, &expected, sizeof(T));
    __builtin_memcpy(&v, &value, sizeof(T));
    __atomic_compare_exchange_n((bits *)p, &e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    __builtin_memcpy(&old, &e, sizeof(T));
    return old;
}
template <class T> EMU_ATOMIC T emu_peek(T *p)
{
    typedef typename emu_bits<sizeof(T)>::type bits;
    bits b = __atomic_load_n((bits *)p, __ATOMIC_SEQ_CST);
    T v;
    __builtin_memcpy(&v, &b, sizeof(T));
    return v;
}
template <class T, class F> EMU_ATOMIC T emu_update(T *p, F next)
{
    T old = emu_peek(p);
    for (;;) {
        T seen = emu_cas(p, old, next(old));
        if (!__builtin_memcmp(&seen, &old, sizeof(T))) return old;
        old = seen;
    }
}
#define EMU_UPDATE_ONE(name, T, expression) \
    EMU_ATOMIC T name(T *p, T v) \
    { \
        emu_atomic(p, sizeof(T), __builtin_return_address(0)); \
        return emu_update(p, [v](T old) -> T { return expression; }); \
    }
#define EMU_UPDATE(name, T, expression) \
    EMU_UPDATE_ONE(name, T, expression) \
    EMU_UPDATE_ONE(name##_block, T, expression) \
    EMU_UPDATE_ONE(name##_system, T, expression)
#define EMU_INTEGERS(name, expression) EMU_UPDATE(name, int, expression) EMU_UPDATE(name, unsigned, expression) EMU_UPDATE(name, unsigned long long, expression)
EMU_INTEGERS(atomicAdd, old + v)
EMU_UPDATE(atomicAdd, float, old + v)
EMU_UPDATE(atomicAdd, double, old + v)
EMU_UPDATE(atomicSub, int, old - v)
EMU_UPDATE(atomicSub, unsigned, old - v)
EMU_INTEGERS(atomicExch, v)
EMU_UPDATE(atomicExch, float, v)
EMU_INTEGERS(atomicMin, old < v ? old : v)
EMU_UPDATE(atomicMin, long long, old < v ? old : v)
EMU_INTEGERS(atomicMax, old > v ? old : v)
EMU_UPDATE(atomicMax, long long, old > v ? old : v)
EMU_INTEGERS(atomicAnd, old & v)
EMU_INTEGERS(atomicOr, old | v)
EMU_INTEGERS(atomicXor, old ^ v)
EMU_UPDATE(atomicInc, unsigned, old >= v ? 0 : old + 1)
EMU_UPDATE(atomicDec, unsigned, old == 0 || old > v ? v : old - 1)
#define EMU_CAS_ONE(name, T) \
    EMU_ATOMIC T name(T *p, T expected, T v) \
    { \
        emu_atomic(p, sizeof(T), __builtin_return_address(0)); \
        return emu_cas(p, expected, v); \
    }
#define EMU_CAS(T) EMU_CAS_ONE(atomicCAS, T) EMU_CAS_ONE(atomicCAS_block, T) EMU_CAS_ONE(atomicCAS_system, T)
EMU_CAS(unsigned short) EMU_CAS(int) EMU_CAS(unsigned) EMU_CAS(unsigned long long)
// ---- printing, failing, time ----
static inline int printf(const char *format, ...)
{
    char words[1024];
    __builtin_va_list list;
    __builtin_va_start(list, format);
    int count = __builtin_vsnprintf(words, sizeof(words), format, list);
    __builtin_va_end(list);
    emu_calls->print(emu_self(), words);
    return count;
}
static inline void emu_print(const char *words) { emu_calls->print(emu_self(), words); }
static inline void __trap(EMU_WHERE) { emu_calls->stop(emu_self(), "the kernel stopped itself (__trap)", file, line); }
#define assert(condition) ((condition) ? (void)0 : emu_calls->stop(emu_self(), "assert failed: " #condition, __FILE__, __LINE__))
static inline long long clock64() { static long long ticks; return __atomic_add_fetch(&ticks, 16, __ATOMIC_RELAXED); }
static inline int clock() { return (int)clock64(); }
#define asm static_assert(false, "emu has no inline PTX: give the text a plain C++ form under #ifdef QUERN_EMU"); __asm__
