/*
 * Effects in the CUDA prelude: the report of a failure, a loop that may not end, and records of `print` for
 * the host (see cuda/prelude.h).
 * SPDX-License-Identifier: MIT
 */

//@ part report_failure
INLINE void report_failure(void *report, long kind, long line, long p0, long p1, long p2)
{
    long *const words = (long *)report;
    if (atomicCAS((unsigned long long *)words, 0ull, (unsigned long long)kind)) return; /* not the first */
    words[1] = line;
    words[2] = p0, words[3] = p1, words[4] = p2;
}

//@ part go_on
INLINE void go_on()
{
#ifdef QUERN_EMU
    __asm__ volatile("");
#else
    asm volatile("");
#endif
}

//@ part print_open
/* Room for a record, its head filled; 0 if there is none. */
INLINE long *print_open(void *ring, long words, long op, long p0, long p1, long p2)
{
    long *const head = (long *)ring;
    const long at = (long)atomicAdd((unsigned long long *)(head + 1), (unsigned long long)words);
    if (at + words > head[0]) return 0;
    long *const to = head + 2 + at;
    to[0] = words, to[1] = op;
    to[2] = p0, to[3] = p1, to[4] = p2;
    return to + 5;
}

//@ part print_word_$t
//@ for f32 f64
//@ needs real_f64
INLINE long print_word_$t($v x) { return bits_f64((double)x); }

//@ part print_word_$t
//@ for i8 i16 i32 i64 u8 u16 u32 u64 bool
INLINE long print_word_$t($v x) { return (long)x; }

//@ part print_$t
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool
//@ needs print_word_$t read_$t
INLINE long *print_$t(long *to, const $m *from, long count)
{
    for (long i = 0; i < count; i++) to[i] = print_word_$t(read_$t(from + i));
    return to + count;
}

//@ part print_$t
//@ for f16 bf16 f8e4m3
//@ needs print_word_f32 read_$t
INLINE long *print_$t(long *to, const $m *from, long count)
{
    for (long i = 0; i < count; i++) to[i] = print_word_f32(read_$t(from + i));
    return to + count;
}
