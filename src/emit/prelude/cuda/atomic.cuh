/*
 * Atomics of the CUDA prelude: relaxed, giving the old value. Where there is no instruction, a loop of compare and swap
 * on the word that holds the element.
 * SPDX-License-Identifier: MIT
 */

/* swap_<m>(p, seen, next): compare and swap of the bits; to_bits and from_bits between them and registers. seen_<m>(p): the
 * bits to begin with. On a GPU a volatile read is one that may meet atomics of others; `emu` is told so. */

//@ part seen_$t
//@ for f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64
INLINE $u seen_$t(const $m *p)
{
#ifdef QUERN_EMU
    return __atomic_load_n((const $u *)p, __ATOMIC_RELAXED);
#else
    return *(const volatile $u *)p;
#endif
}

//@ part swap_$t
//@ for f32 f64
//@ needs real_$t
INLINE $u to_bits_$t($v x) { return ($u)bits_$t(x); }
INLINE $v from_bits_$t($u x) { return real_$t(($i)x); }
INLINE $u swap_$t($m *p, $u seen, $u next) { return ($u)atomicCAS(($w *)p, ($w)seen, ($w)next); }

//@ part swap_$t
//@ for i32 u32 i64 u64
INLINE $u to_bits_$t($v x) { return ($u)x; }
INLINE $v from_bits_$t($u x) { return ($v)x; }
INLINE $u swap_$t($m *p, $u seen, $u next) { return ($u)atomicCAS(($w *)p, ($w)seen, ($w)next); }

//@ part swap_$t
//@ for f16 bf16
//@ needs $t_to_f32 f32_to_$t
INLINE $u to_bits_$t($v x) { return f32_to_$t(x); }
INLINE $v from_bits_$t($u x) { return $t_to_f32(x); }
INLINE $u swap_$t($m *p, $u seen, $u next) { return atomicCAS(p, seen, next); }

//@ part swap_$t
//@ for i16 u16
INLINE $u to_bits_$t($v x) { return ($u)x; }
INLINE $v from_bits_$t($u x) { return ($v)x; }
INLINE $u swap_$t($m *p, $u seen, $u next) { return atomicCAS(($u *)p, seen, next); }

//@ part swap_$t
//@ for i8 u8
//@ needs seen_u16
INLINE $u to_bits_$t($v x) { return ($u)x; }
INLINE $v from_bits_$t($u x) { return ($v)x; }
INLINE $u swap_$t($m *p, $u seen, $u next)
{
    unsigned long place = (unsigned long)p;
    unsigned short *half = (unsigned short *)(place & ~1ul), old = seen_u16(half);
    const int shift = (int)(place & 1) * 8;
    for (;;) {
        const $u now = ($u)(old >> shift);
        if (now != seen) return now;
        const unsigned short other = (unsigned short)((old & ~(0xff << shift)) | next << shift);
        const unsigned short was = atomicCAS(half, old, other);
        if (was == old) return seen;
        old = was;
    }
}

//@ part atomic_add_$t
//@ for f32 f64
INLINE $v atomic_add_$t($v *p, $v v) { return atomicAdd(p, v); }

//@ part atomic_add_$t
//@ for i32 u32 i64 u64
INLINE $v atomic_add_$t($v *p, $v v) { return ($v)atomicAdd(($w *)p, ($w)v); }

//@ part atomic_and_$t
//@ for i32 u32 i64 u64
INLINE $v atomic_and_$t($v *p, $v v) { return ($v)atomicAnd(($w *)p, ($w)v); }

//@ part atomic_or_$t
//@ for i32 u32 i64 u64
INLINE $v atomic_or_$t($v *p, $v v) { return ($v)atomicOr(($w *)p, ($w)v); }

//@ part atomic_xor_$t
//@ for i32 u32 i64 u64
INLINE $v atomic_xor_$t($v *p, $v v) { return ($v)atomicXor(($w *)p, ($w)v); }

//@ part atomic_exchange_$t
//@ for i32 u32 i64 u64
INLINE $v atomic_exchange_$t($v *p, $v v) { return ($v)atomicExch(($w *)p, ($w)v); }

//@ part atomic_exchange_$t
//@ for f32 f64
//@ needs real_$t
INLINE $v atomic_exchange_$t($v *p, $v v)
{
    return real_$t(($i)atomicExch(($w *)p, ($w)bits_$t(v)));
}

//@ part atomic_min_$t
//@ for i32 u32
INLINE $v atomic_min_$t($v *p, $v v) { return atomicMin(p, v); }

//@ part atomic_max_$t
//@ for i32 u32
INLINE $v atomic_max_$t($v *p, $v v) { return atomicMax(p, v); }

//@ part atomic_min_i64
INLINE long atomic_min_i64(long *p, long v) { return atomicMin((long long *)p, v); }

//@ part atomic_max_i64
INLINE long atomic_max_i64(long *p, long v) { return atomicMax((long long *)p, v); }

//@ part atomic_min_u64
INLINE unsigned long atomic_min_u64(unsigned long *p, unsigned long v)
{
    return atomicMin((unsigned long long *)p, (unsigned long long)v);
}

//@ part atomic_max_u64
INLINE unsigned long atomic_max_u64(unsigned long *p, unsigned long v)
{
    return atomicMax((unsigned long long *)p, (unsigned long long)v);
}

//@ part atomic_add_$t
//@ for f16 bf16
//@ needs seen_$t swap_$t
INLINE $v atomic_add_$t($m *p, $v v)
{
    $u seen, old = seen_$t(p);
    do {
        seen = old;
        const $v x = from_bits_$t(seen);
        old = swap_$t(p, seen, to_bits_$t(x + v));
    } while (old != seen);
    return from_bits_$t(old);
}

//@ part atomic_add_$t
//@ for i8 i16 u8 u16
//@ needs seen_$t swap_$t
INLINE $v atomic_add_$t($m *p, $v v)
{
    $u seen, old = seen_$t(p);
    do {
        seen = old;
        const $v x = from_bits_$t(seen);
        old = swap_$t(p, seen, to_bits_$t(($v)(x + v)));
    } while (old != seen);
    return from_bits_$t(old);
}

//@ part atomic_min_$t
//@ for f32 f64 i8 i16 u8 u16
//@ needs seen_$t swap_$t min_$t
INLINE $v atomic_min_$t($m *p, $v v)
{
    $u seen, old = seen_$t(p);
    do {
        seen = old;
        const $v x = from_bits_$t(seen);
        old = swap_$t(p, seen, to_bits_$t(min_$t(x, v)));
    } while (old != seen);
    return from_bits_$t(old);
}

//@ part atomic_max_$t
//@ for f32 f64 i8 i16 u8 u16
//@ needs seen_$t swap_$t max_$t
INLINE $v atomic_max_$t($m *p, $v v)
{
    $u seen, old = seen_$t(p);
    do {
        seen = old;
        const $v x = from_bits_$t(seen);
        old = swap_$t(p, seen, to_bits_$t(max_$t(x, v)));
    } while (old != seen);
    return from_bits_$t(old);
}

//@ part atomic_min_$t
//@ for f16 bf16
//@ needs seen_$t swap_$t min_f32
INLINE $v atomic_min_$t($m *p, $v v)
{
    $u seen, old = seen_$t(p);
    do {
        seen = old;
        const $v x = from_bits_$t(seen);
        old = swap_$t(p, seen, to_bits_$t(min_f32(x, v)));
    } while (old != seen);
    return from_bits_$t(old);
}

//@ part atomic_max_$t
//@ for f16 bf16
//@ needs seen_$t swap_$t max_f32
INLINE $v atomic_max_$t($m *p, $v v)
{
    $u seen, old = seen_$t(p);
    do {
        seen = old;
        const $v x = from_bits_$t(seen);
        old = swap_$t(p, seen, to_bits_$t(max_f32(x, v)));
    } while (old != seen);
    return from_bits_$t(old);
}

//@ part atomic_and_$t
//@ for i8 i16 u8 u16
//@ needs seen_$t swap_$t
INLINE $v atomic_and_$t($m *p, $v v)
{
    $u seen, old = seen_$t(p);
    do {
        seen = old;
        const $v x = from_bits_$t(seen);
        old = swap_$t(p, seen, to_bits_$t(($v)(x & v)));
    } while (old != seen);
    return from_bits_$t(old);
}

//@ part atomic_or_$t
//@ for i8 i16 u8 u16
//@ needs seen_$t swap_$t
INLINE $v atomic_or_$t($m *p, $v v)
{
    $u seen, old = seen_$t(p);
    do {
        seen = old;
        const $v x = from_bits_$t(seen);
        old = swap_$t(p, seen, to_bits_$t(($v)(x | v)));
    } while (old != seen);
    return from_bits_$t(old);
}

//@ part atomic_xor_$t
//@ for i8 i16 u8 u16
//@ needs seen_$t swap_$t
INLINE $v atomic_xor_$t($m *p, $v v)
{
    $u seen, old = seen_$t(p);
    do {
        seen = old;
        const $v x = from_bits_$t(seen);
        old = swap_$t(p, seen, to_bits_$t(($v)(x ^ v)));
    } while (old != seen);
    return from_bits_$t(old);
}

//@ part atomic_exchange_$t
//@ for f16 bf16 i8 i16 u8 u16
//@ needs seen_$t swap_$t
INLINE $v atomic_exchange_$t($m *p, $v v)
{
    $u seen, old = seen_$t(p);
    do {
        seen = old;
        old = swap_$t(p, seen, to_bits_$t(v));
    } while (old != seen);
    return from_bits_$t(old);
}

/* Equal as numbers, so -0 is 0 and NaN equals nothing. */

//@ part atomic_cas_$t
//@ for f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64
//@ needs seen_$t swap_$t
INLINE $v atomic_cas_$t($m *p, $v expected, $v v)
{
    $u seen, old = seen_$t(p);
    do {
        seen = old;
        if (from_bits_$t(seen) != expected) break;
        old = swap_$t(p, seen, to_bits_$t(v));
    } while (old != seen);
    return from_bits_$t(old);
}
