/*
 * Memory in the CUDA prelude: the functions that move 32-bit words, which cuda/prelude_memory.c writes vectors of any
 * type on, and single elements.
 * No cache hints: they were measured and cost more than they gave (docs/decisions/008-no-cache-hints.md).
 * The plain ones are C, so that the compiler sees which memory a pointer is of; the others are for global memory only.
 * SPDX-License-Identifier: MIT
 */

//@ part words
#ifdef QUERN_EMU
#define WORDS(bytes) __attribute__((may_alias, aligned(bytes)))
#else
#define WORDS(bytes) __align__(bytes)
#endif
struct WORDS(16) words4 { unsigned w[4]; };
struct WORDS(8) words2 { unsigned w[2]; };
struct WORDS(4) words1 { unsigned w[1]; };

//@ part load_words4
//@ needs words
INLINE void load_words4(unsigned *w, const void *p)
{
    const words4 c = *(const words4 *)p;
    w[0] = c.w[0], w[1] = c.w[1], w[2] = c.w[2], w[3] = c.w[3];
}

//@ part load_words2
//@ needs words
INLINE void load_words2(unsigned *w, const void *p)
{
    const words2 c = *(const words2 *)p;
    w[0] = c.w[0], w[1] = c.w[1];
}

//@ part load_words1
//@ needs words
INLINE void load_words1(unsigned *w, const void *p) { *w = ((const words1 *)p)->w[0]; }

//@ part store_words4
//@ needs words
INLINE void store_words4(void *p, const unsigned *w)
{
    const words4 c = {{w[0], w[1], w[2], w[3]}};
    *(words4 *)p = c;
}

//@ part store_words2
//@ needs words
INLINE void store_words2(void *p, const unsigned *w)
{
    const words2 c = {{w[0], w[1]}};
    *(words2 *)p = c;
}

//@ part store_words1
//@ needs words
INLINE void store_words1(void *p, const unsigned *w) { ((words1 *)p)->w[0] = *w; }

/* Around the plain ones: what the instruction is called, for how the words are used. */

//@ part load_words4_constant
//@ needs load_words4
INLINE void load_words4_constant(unsigned *w, const void *p)
{
#ifdef QUERN_EMU
    load_words4(w, p);
#else
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p));
#endif
}

//@ part load_words2_constant
//@ needs load_words2
INLINE void load_words2_constant(unsigned *w, const void *p)
{
#ifdef QUERN_EMU
    load_words2(w, p);
#else
    asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(p));
#endif
}

//@ part load_words1_constant
//@ needs load_words1
INLINE void load_words1_constant(unsigned *w, const void *p)
{
#ifdef QUERN_EMU
    load_words1(w, p);
#else
    asm("ld.global.nc.u32 %0, [%1];" : "=r"(*w) : "l"(p));
#endif
}

/* Elements first .. of a row of `count` that begin anywhere: the two aligned vectors around them, put together. What is
 * not the row's may be anything; of a vector that is loaded some element is. */

/* Under a condition, without a branch: several of them are in flight together. Zeros where it does not hold. */

//@ part load_words4_if
//@ needs load_words4
INLINE void load_words4_if(unsigned *w, const void *p, int ok)
{
#ifdef QUERN_EMU
    w[0] = w[1] = w[2] = w[3] = 0;
    if (ok) load_words4(w, p);
#else
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
        "mov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"
        "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "=&r"(w[0]), "=&r"(w[1]), "=&r"(w[2]), "=&r"(w[3]) : "l"(p), "r"(ok) : "memory");
#endif
}

//@ part load_words2_if
//@ needs load_words2
INLINE void load_words2_if(unsigned *w, const void *p, int ok)
{
#ifdef QUERN_EMU
    w[0] = w[1] = 0;
    if (ok) load_words2(w, p);
#else
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n"
        "mov.u32 %0, 0;\nmov.u32 %1, 0;\n@p ld.global.v2.u32 {%0, %1}, [%2];\n}"
        : "=&r"(w[0]), "=&r"(w[1]) : "l"(p), "r"(ok) : "memory");
#endif
}

//@ part load_words1_if
//@ needs load_words1
INLINE void load_words1_if(unsigned *w, const void *p, int ok)
{
#ifdef QUERN_EMU
    *w = 0;
    if (ok) load_words1(w, p);
#else
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n"
        "mov.u32 %0, 0;\n@p ld.global.u32 %0, [%1];\n}"
        : "=&r"(*w) : "l"(p), "r"(ok) : "memory");
#endif
}

//@ part load_words4_constant_if
//@ needs load_words4
INLINE void load_words4_constant_if(unsigned *w, const void *p, int ok)
{
#ifdef QUERN_EMU
    w[0] = w[1] = w[2] = w[3] = 0;
    if (ok) load_words4(w, p);
#else
    asm("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
        "mov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"
        "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "=&r"(w[0]), "=&r"(w[1]), "=&r"(w[2]), "=&r"(w[3]) : "l"(p), "r"(ok));
#endif
}

//@ part load_words2_constant_if
//@ needs load_words2
INLINE void load_words2_constant_if(unsigned *w, const void *p, int ok)
{
#ifdef QUERN_EMU
    w[0] = w[1] = 0;
    if (ok) load_words2(w, p);
#else
    asm("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n"
        "mov.u32 %0, 0;\nmov.u32 %1, 0;\n@p ld.global.nc.v2.u32 {%0, %1}, [%2];\n}"
        : "=&r"(w[0]), "=&r"(w[1]) : "l"(p), "r"(ok));
#endif
}

//@ part load_words1_constant_if
//@ needs load_words1
INLINE void load_words1_constant_if(unsigned *w, const void *p, int ok)
{
#ifdef QUERN_EMU
    *w = 0;
    if (ok) load_words1(w, p);
#else
    asm("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n"
        "mov.u32 %0, 0;\n@p ld.global.nc.u32 %0, [%1];\n}"
        : "=&r"(*w) : "l"(p), "r"(ok));
#endif
}

//@ part load_words4_uneven
//@ needs load_words4_if
INLINE void load_words4_uneven(unsigned *w, const void *p, int first, int count, int ok, int size)
{
    const unsigned at = (unsigned)(unsigned long)p & 15;
    const char *const from = (const char *)p - at;
    const int begin = first - (int)at / size, each = 16 / size;
    unsigned c[9], d[5];
    load_words4_if(c, from, ok && begin > -each);
    load_words4_if(c + 4, from + 16, ok && at != 0 && begin + each < count);
    c[8] = 0;
    for (int k = 0; k < 7; k++) c[k] = at & 8 ? c[k + 2] : c[k];
    for (int k = 0; k < 5; k++) d[k] = at & 4 ? c[k + 1] : c[k];
    for (int k = 0; k < 4; k++) w[k] = size >= 4 ? d[k] : __funnelshift_r(d[k], d[k + 1], (at & 3) * 8);
}

//@ part load_words4_constant_uneven
//@ needs load_words4_constant_if
INLINE void load_words4_constant_uneven(unsigned *w, const void *p, int first, int count, int ok, int size)
{
    const unsigned at = (unsigned)(unsigned long)p & 15;
    const char *const from = (const char *)p - at;
    const int begin = first - (int)at / size, each = 16 / size;
    unsigned c[9], d[5];
    load_words4_constant_if(c, from, ok && begin > -each);
    load_words4_constant_if(c + 4, from + 16, ok && at != 0 && begin + each < count);
    c[8] = 0;
    for (int k = 0; k < 7; k++) c[k] = at & 8 ? c[k + 2] : c[k];
    for (int k = 0; k < 5; k++) d[k] = at & 4 ? c[k + 1] : c[k];
    for (int k = 0; k < 4; k++) w[k] = size >= 4 ? d[k] : __funnelshift_r(d[k], d[k + 1], (at & 3) * 8);
}

//@ part store_words4_if
//@ needs store_words4
INLINE void store_words4_if(void *p, const unsigned *w, int ok)
{
#ifdef QUERN_EMU
    if (ok) store_words4(p, w);
#else
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n@p st.global.v4.u32 [%0], {%1, %2, %3, %4};\n}"
        :: "l"(p), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(ok) : "memory");
#endif
}

//@ part store_words2_if
//@ needs store_words2
INLINE void store_words2_if(void *p, const unsigned *w, int ok)
{
#ifdef QUERN_EMU
    if (ok) store_words2(p, w);
#else
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n@p st.global.v2.u32 [%0], {%1, %2};\n}"
        :: "l"(p), "r"(w[0]), "r"(w[1]), "r"(ok) : "memory");
#endif
}

//@ part store_words1_if
//@ needs store_words1
INLINE void store_words1_if(void *p, const unsigned *w, int ok)
{
#ifdef QUERN_EMU
    if (ok) store_words1(p, w);
#else
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n@p st.global.u32 [%0], %1;\n}"
        :: "l"(p), "r"(*w), "r"(ok) : "memory");
#endif
}

/* A vector that a row's edge goes through may be loaded whole: it is in one piece of memory with the row's own. Not
 * where somebody watches memory. */

//@ part at_edge
#ifdef QUERN_EMU
INLINE int at_edge(int whole) { return whole; }
#else
INLINE int at_edge(int) { return 1; }
#endif

/* Under a condition, with `fill` in each word where it does not hold: nothing is asked of what was loaded, which would let
 * the next load wait for this one. */

//@ part load_words4_constant_or
//@ needs load_words4
INLINE void load_words4_constant_or(unsigned *w, const void *p, int ok, unsigned fill)
{
#ifdef QUERN_EMU
    w[0] = w[1] = w[2] = w[3] = fill;
    if (ok) load_words4(w, p);
#else
    asm("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
        "mov.u32 %0, %6;\nmov.u32 %1, %6;\nmov.u32 %2, %6;\nmov.u32 %3, %6;\n"
        "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "=&r"(w[0]), "=&r"(w[1]), "=&r"(w[2]), "=&r"(w[3]) : "l"(p), "r"(ok), "r"(fill));
#endif
}

//@ part load_words2_constant_or
//@ needs load_words2
INLINE void load_words2_constant_or(unsigned *w, const void *p, int ok, unsigned fill)
{
#ifdef QUERN_EMU
    w[0] = w[1] = fill;
    if (ok) load_words2(w, p);
#else
    asm("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n"
        "mov.u32 %0, %4;\nmov.u32 %1, %4;\n@p ld.global.nc.v2.u32 {%0, %1}, [%2];\n}"
        : "=&r"(w[0]), "=&r"(w[1]) : "l"(p), "r"(ok), "r"(fill));
#endif
}

//@ part load_words1_constant_or
//@ needs load_words1
INLINE void load_words1_constant_or(unsigned *w, const void *p, int ok, unsigned fill)
{
#ifdef QUERN_EMU
    *w = fill;
    if (ok) load_words1(w, p);
#else
    asm("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n"
        "mov.u32 %0, %3;\n@p ld.global.nc.u32 %0, [%1];\n}"
        : "=&r"(*w) : "l"(p), "r"(ok), "r"(fill));
#endif
}

/* One element. */

//@ part read_$t
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE $v read_$t(const $m *p) { return *p; }

/* Of what nobody writes, under a condition and without a branch. */

//@ part read_if_$t
//@ for f32 i32 u32
//@ needs load_words1_constant_if
INLINE $v read_if_$t(const $m *p, int ok)
{
    union { unsigned word; $v number; } x;
    load_words1_constant_if(&x.word, p, ok);
    return x.number;
}

//@ part read_or_f32
//@ needs load_words1_constant_or
INLINE float read_or_f32(const float *p, int ok, unsigned fill)
{
    union { unsigned word; float number; } x;
    load_words1_constant_or(&x.word, p, ok, fill);
    return x.number;
}

//@ part read_if_$t
//@ for f64 i64 u64
//@ needs load_words2_constant_if
INLINE $v read_if_$t(const $m *p, int ok)
{
    union { unsigned words[2]; $v number; } x;
    load_words2_constant_if(x.words, p, ok);
    return x.number;
}

//@ part read_if_$t
//@ for f16 bf16
//@ needs $t_to_f32
INLINE float read_if_$t(const $m *p, int ok)
{
#ifdef QUERN_EMU
    return ok ? $t_to_f32(*p) : 0;
#else
    unsigned short half;
    asm("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n"
        "mov.u16 %0, 0;\n@p ld.global.nc.u16 %0, [%1];\n}"
        : "=&h"(half) : "l"(p), "r"(ok));
    return $t_to_f32(half);
#endif
}

//@ part read_or_$t
//@ for f16 bf16
//@ needs $t_to_f32
INLINE float read_or_$t(const $m *p, int ok, unsigned fill)
{
#ifdef QUERN_EMU
    return $t_to_f32(ok ? *p : (unsigned short)fill);
#else
    unsigned short half;
    asm("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n"
        "mov.u16 %0, %3;\n@p ld.global.nc.u16 %0, [%1];\n}"
        : "=&h"(half) : "l"(p), "r"(ok), "h"((unsigned short)fill));
    return $t_to_f32(half);
#endif
}

//@ part write_$t
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE void write_$t($m *p, $v x) { *p = x; }

//@ part read_$t
//@ for f16 bf16 f8e4m3
//@ needs $t_to_f32
INLINE float read_$t(const $m *p) { return $t_to_f32(*p); }

//@ part write_$t
//@ for f16 bf16 f8e4m3
//@ needs f32_to_$t
INLINE void write_$t($m *p, float x) { *p = f32_to_$t(x); }

//@ part read_bool
INLINE bool read_bool(const unsigned char *p) { return *p != 0; }

//@ part write_bool
INLINE void write_bool(unsigned char *p, bool x) { *p = x; }
