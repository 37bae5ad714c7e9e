/*
 * Atomics of the CUDA prelude: relaxed, giving the old value. Where there is no instruction, a loop of compare and swap
 * on the word that holds the element.
 * In and out: text templates, see prelude_cuda_parts.h.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_cuda_parts.h"

#define LOOP(kind, types, needs, next)                                \
    {                                                                 \
        "atomic_" kind "_$t", types, "swap_$t " needs,                \
            "INLINE $v atomic_" kind "_$t($m *p, $v v)\n"             \
            "{\n"                                                     \
            "    $u seen, old = *(volatile $u *)p;\n"                 \
            "    do {\n"                                              \
            "        seen = old;\n"                                   \
            "        const $v x = from_bits_$t(seen);\n"              \
            "        old = swap_$t(p, seen, to_bits_$t(" next "));\n" \
            "    } while (old != seen);\n"                            \
            "    return from_bits_$t(old);\n"                         \
            "}\n"                                                     \
    }
#define SMALL "i8 i16 u8 u16"

const prelude_part cuda_atomic_parts[] = {
    /* swap_<m>(p, seen, next): compare and swap of the bits; to_bits and from_bits between them and registers. */
    {"swap_$t", "f32 f64", "real_$t",
     "INLINE $u to_bits_$t($v x) { return ($u)bits_$t(x); }\n"
     "INLINE $v from_bits_$t($u x) { return real_$t(($i)x); }\n"
     "INLINE $u swap_$t($m *p, $u seen, $u next) { return ($u)atomicCAS(($w *)p, ($w)seen, ($w)next); }\n"},
    {"swap_$t", "i32 u32 i64 u64", "",
     "INLINE $u to_bits_$t($v x) { return ($u)x; }\n"
     "INLINE $v from_bits_$t($u x) { return ($v)x; }\n"
     "INLINE $u swap_$t($m *p, $u seen, $u next) { return ($u)atomicCAS(($w *)p, ($w)seen, ($w)next); }\n"},
    {"swap_$t", "f16 bf16", "$t_to_f32 f32_to_$t",
     "INLINE $u to_bits_$t($v x) { return f32_to_$t(x); }\n"
     "INLINE $v from_bits_$t($u x) { return $t_to_f32(x); }\n"
     "INLINE $u swap_$t($m *p, $u seen, $u next) { return atomicCAS(p, seen, next); }\n"},
    {"swap_$t", "i16 u16", "",
     "INLINE $u to_bits_$t($v x) { return ($u)x; }\n"
     "INLINE $v from_bits_$t($u x) { return ($v)x; }\n"
     "INLINE $u swap_$t($m *p, $u seen, $u next) { return atomicCAS(($u *)p, seen, next); }\n"},
    {"swap_$t", "i8 u8", "",
     "INLINE $u to_bits_$t($v x) { return ($u)x; }\n"
     "INLINE $v from_bits_$t($u x) { return ($v)x; }\n"
     "INLINE $u swap_$t($m *p, $u seen, $u next)\n"
     "{\n"
     "    unsigned long place = (unsigned long)p;\n"
     "    unsigned short *half = (unsigned short *)(place & ~1ul), old = *(volatile unsigned short *)half;\n"
     "    const int shift = (int)(place & 1) * 8;\n"
     "    for (;;) {\n"
     "        const $u now = ($u)(old >> shift);\n"
     "        if (now != seen) return now;\n"
     "        const unsigned short other = (unsigned short)((old & ~(0xff << shift)) | next << shift);\n"
     "        const unsigned short was = atomicCAS(half, old, other);\n"
     "        if (was == old) return seen;\n"
     "        old = was;\n"
     "    }\n"
     "}\n"},
    {"atomic_add_$t", "f32 f64", "", "INLINE $v atomic_add_$t($v *p, $v v) { return atomicAdd(p, v); }\n"},
    {"atomic_add_$t", "i32 u32 i64 u64", "",
     "INLINE $v atomic_add_$t($v *p, $v v) { return ($v)atomicAdd(($w *)p, ($w)v); }\n"},
    {"atomic_and_$t", "i32 u32 i64 u64", "",
     "INLINE $v atomic_and_$t($v *p, $v v) { return ($v)atomicAnd(($w *)p, ($w)v); }\n"},
    {"atomic_or_$t", "i32 u32 i64 u64", "",
     "INLINE $v atomic_or_$t($v *p, $v v) { return ($v)atomicOr(($w *)p, ($w)v); }\n"},
    {"atomic_xor_$t", "i32 u32 i64 u64", "",
     "INLINE $v atomic_xor_$t($v *p, $v v) { return ($v)atomicXor(($w *)p, ($w)v); }\n"},
    {"atomic_exchange_$t", "i32 u32 i64 u64", "",
     "INLINE $v atomic_exchange_$t($v *p, $v v) { return ($v)atomicExch(($w *)p, ($w)v); }\n"},
    {"atomic_exchange_$t", "f32 f64", "real_$t",
     "INLINE $v atomic_exchange_$t($v *p, $v v)\n"
     "{\n"
     "    return real_$t(($i)atomicExch(($w *)p, ($w)bits_$t(v)));\n"
     "}\n"},
    {"atomic_min_$t", "i32 u32", "", "INLINE $v atomic_min_$t($v *p, $v v) { return atomicMin(p, v); }\n"},
    {"atomic_max_$t", "i32 u32", "", "INLINE $v atomic_max_$t($v *p, $v v) { return atomicMax(p, v); }\n"},
    {"atomic_min_i64", "", "",
     "INLINE long atomic_min_i64(long *p, long v) { return atomicMin((long long *)p, v); }\n"},
    {"atomic_max_i64", "", "",
     "INLINE long atomic_max_i64(long *p, long v) { return atomicMax((long long *)p, v); }\n"},
    {"atomic_min_u64", "", "",
     "INLINE unsigned long atomic_min_u64(unsigned long *p, unsigned long v)\n"
     "{\n"
     "    return atomicMin((unsigned long long *)p, (unsigned long long)v);\n"
     "}\n"},
    {"atomic_max_u64", "", "",
     "INLINE unsigned long atomic_max_u64(unsigned long *p, unsigned long v)\n"
     "{\n"
     "    return atomicMax((unsigned long long *)p, (unsigned long long)v);\n"
     "}\n"},
    LOOP("add", "f16 bf16", "", "x + v"),
    LOOP("add", SMALL, "", "($v)(x + v)"),
    LOOP("min", "f32 f64 " SMALL, "min_$t", "min_$t(x, v)"),
    LOOP("max", "f32 f64 " SMALL, "max_$t", "max_$t(x, v)"),
    LOOP("min", "f16 bf16", "min_f32", "min_f32(x, v)"),
    LOOP("max", "f16 bf16", "max_f32", "max_f32(x, v)"),
    LOOP("and", SMALL, "", "($v)(x & v)"),
    LOOP("or", SMALL, "", "($v)(x | v)"),
    LOOP("xor", SMALL, "", "($v)(x ^ v)"),
    {"atomic_exchange_$t", "f16 bf16 " SMALL, "swap_$t",
     "INLINE $v atomic_exchange_$t($m *p, $v v)\n"
     "{\n"
     "    $u seen, old = *(volatile $u *)p;\n"
     "    do {\n"
     "        seen = old;\n"
     "        old = swap_$t(p, seen, to_bits_$t(v));\n"
     "    } while (old != seen);\n"
     "    return from_bits_$t(old);\n"
     "}\n"},
    /* Equal as numbers, so -0 is 0 and NaN equals nothing. */
    {"atomic_cas_$t", "f32 f64 f16 bf16 " CUDA_INTEGERS, "swap_$t",
     "INLINE $v atomic_cas_$t($m *p, $v expected, $v v)\n"
     "{\n"
     "    $u seen, old = *(volatile $u *)p;\n"
     "    do {\n"
     "        seen = old;\n"
     "        if (from_bits_$t(seen) != expected) break;\n"
     "        old = swap_$t(p, seen, to_bits_$t(v));\n"
     "    } while (old != seen);\n"
     "    return from_bits_$t(old);\n"
     "}\n"},
    {0},
};
