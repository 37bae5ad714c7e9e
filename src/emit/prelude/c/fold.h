/*
 * What crosses the lanes of a vector and what stands beside them: folds and prefixes, random numbers, atomics.
 * SPDX-License-Identifier: MIT
 */

/* Horizontal folds, by halves; and prefixes. */

//@ part rotate_$tx16
//@ for f32 i32 u32
#define ROTATE8_$t(v) __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
#define ROTATE4_$t(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)
#define ROTATE2_$t(v) __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)
#define ROTATE1_$t(v) __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)

//@ part fold_sum_$tx16
//@ for f32 i32 u32
//@ needs rotate_$tx16
INLINE $c fold_sum_$tx16($tx16 v)
{
    v += ROTATE8_$t(v);
    v += ROTATE4_$t(v);
    v += ROTATE2_$t(v);
    v += ROTATE1_$t(v);
    return v[0];
}

//@ part fold_prod_$tx16
//@ for f32 i32 u32
//@ needs rotate_$tx16
INLINE $c fold_prod_$tx16($tx16 v)
{
    v *= ROTATE8_$t(v);
    v *= ROTATE4_$t(v);
    v *= ROTATE2_$t(v);
    v *= ROTATE1_$t(v);
    return v[0];
}

//@ part fold_max_$tx16
//@ for f32 i32 u32
//@ needs rotate_$tx16 max_$tx16
INLINE $c fold_max_$tx16($tx16 v)
{
    v = max_$tx16(v, ROTATE8_$t(v));
    v = max_$tx16(v, ROTATE4_$t(v));
    v = max_$tx16(v, ROTATE2_$t(v));
    v = max_$tx16(v, ROTATE1_$t(v));
    return v[0];
}

//@ part fold_min_$tx16
//@ for f32 i32 u32
//@ needs rotate_$tx16 min_$tx16
INLINE $c fold_min_$tx16($tx16 v)
{
    v = min_$tx16(v, ROTATE8_$t(v));
    v = min_$tx16(v, ROTATE4_$t(v));
    v = min_$tx16(v, ROTATE2_$t(v));
    v = min_$tx16(v, ROTATE1_$t(v));
    return v[0];
}

//@ part fold_sum_$tx16
//@ for f64 i8 i16 i64 u8 u16 u64
INLINE $c fold_sum_$tx16($tx16 v)
{
    for (int w = 8; w; w /= 2)
        for (int k = 0; k < w; k++) v[k] = ($c)(v[k] + v[k + w]);
    return v[0];
}

//@ part fold_prod_$tx16
//@ for f64 i8 i16 i64 u8 u16 u64
INLINE $c fold_prod_$tx16($tx16 v)
{
    for (int w = 8; w; w /= 2)
        for (int k = 0; k < w; k++) v[k] = ($c)(v[k] * v[k + w]);
    return v[0];
}

//@ part fold_max_$tx16
//@ for f64 i8 i16 i64 u8 u16 u64
//@ needs max_$t
INLINE $c fold_max_$tx16($tx16 v)
{
    for (int w = 8; w; w /= 2)
        for (int k = 0; k < w; k++) v[k] = max_$t(v[k], v[k + w]);
    return v[0];
}

//@ part fold_min_$tx16
//@ for f64 i8 i16 i64 u8 u16 u64
//@ needs min_$t
INLINE $c fold_min_$tx16($tx16 v)
{
    for (int w = 8; w; w /= 2)
        for (int k = 0; k < w; k++) v[k] = min_$t(v[k], v[k + w]);
    return v[0];
}

/* Each lane with those one, two, four and eight before it. Where there are none it is the identity, or for the largest and the least the
 * first lane again. */

//@ part scan_shift
#define SCAN_FIRST(v) __builtin_shufflevector(v, v, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
#define SCAN_1(v, o) __builtin_shufflevector(v, o, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
#define SCAN_2(v, o) __builtin_shufflevector(v, o, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
#define SCAN_4(v, o) __builtin_shufflevector(v, o, 16, 16, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
#define SCAN_8(v, o) __builtin_shufflevector(v, o, 16, 16, 16, 16, 16, 16, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7)

//@ part scan_sum_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
//@ needs scan_shift
INLINE $tx16 scan_sum_$tx16($tx16 v)
{
    $tx16 o = {0};
    v += SCAN_1(v, o);
    v += SCAN_2(v, o);
    v += SCAN_4(v, o);
    v += SCAN_8(v, o);
    return v;
}

//@ part scan_prod_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
//@ needs scan_shift
INLINE $tx16 scan_prod_$tx16($tx16 v)
{
    $tx16 o = ($tx16){0} + 1;
    v *= SCAN_1(v, o);
    v *= SCAN_2(v, o);
    v *= SCAN_4(v, o);
    v *= SCAN_8(v, o);
    return v;
}

//@ part scan_max_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
//@ needs scan_shift max_$tx16
INLINE $tx16 scan_max_$tx16($tx16 v)
{
    $tx16 o = SCAN_FIRST(v);
    v = max_$tx16(v, SCAN_1(v, o));
    v = max_$tx16(v, SCAN_2(v, o));
    v = max_$tx16(v, SCAN_4(v, o));
    return max_$tx16(v, SCAN_8(v, o));
}

//@ part scan_min_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
//@ needs scan_shift min_$tx16
INLINE $tx16 scan_min_$tx16($tx16 v)
{
    $tx16 o = SCAN_FIRST(v);
    v = min_$tx16(v, SCAN_1(v, o));
    v = min_$tx16(v, SCAN_2(v, o));
    v = min_$tx16(v, SCAN_4(v, o));
    return min_$tx16(v, SCAN_8(v, o));
}

/* Philox4x32-10: the counter is (offset low, offset high, i low, i high). */

//@ part philox_u32
INLINE unsigned philox_u32(unsigned long seed, unsigned long offset, long i, int lane)
{
    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
    unsigned c[4] = {(unsigned)offset, (unsigned)(offset >> 32), (unsigned)i, (unsigned)((unsigned long)i >> 32)};
    for (int round = 0; round < 10; round++) {
        unsigned long p = 0xD2511F53ul * c[0], q = 0xCD9E8D57ul * c[2];
        c[0] = (unsigned)(q >> 32) ^ c[1] ^ k0;
        c[2] = (unsigned)(p >> 32) ^ c[3] ^ k1;
        c[1] = (unsigned)q;
        c[3] = (unsigned)p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c[lane];
}

//@ part philox_u32x16
//@ needs splat_u32x16
INLINE u32x16 philox_high(u32x16 v, unsigned long m)
{
    union { u32x16 narrow; u64x8 wide; } even = {v}, odd = {v};
    even.wide = ((even.wide & 0xffffffff) * m) >> 32;
    odd.wide = ((odd.wide >> 32) * m) & 0xffffffff00000000;
    return even.narrow | odd.narrow;
}
INLINE u32x16 philox_u32x16(unsigned long seed, unsigned long offset, i64x16 i, int lane)
{
    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
    u32x16 c0 = splat_u32x16((unsigned)offset), c1 = splat_u32x16((unsigned)(offset >> 32));
    u32x16 c2 = __builtin_convertvector(i, u32x16), c3 = __builtin_convertvector((u64x16)i >> 32, u32x16);
    for (int round = 0; round < 10; round++) {
        u32x16 p = philox_high(c0, 0xD2511F53), q = philox_high(c2, 0xCD9E8D57);
        u32x16 p_low = c0 * 0xD2511F53u, q_low = c2 * 0xCD9E8D57u;
        c0 = q ^ c1 ^ k0;
        c2 = p ^ c3 ^ k1;
        c1 = q_low;
        c3 = p_low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3;
}

/* Atomics: relaxed, giving the old value. */

//@ part atomic_add_$t
//@ for i32 u32 i64 u64
INLINE $c atomic_add_$t($c *p, $c v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }

//@ part atomic_and_$t
//@ for i32 u32 i64 u64
INLINE $c atomic_and_$t($c *p, $c v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }

//@ part atomic_or_$t
//@ for i32 u32 i64 u64
INLINE $c atomic_or_$t($c *p, $c v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }

//@ part atomic_xor_$t
//@ for i32 u32 i64 u64
INLINE $c atomic_xor_$t($c *p, $c v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }

//@ part atomic_exchange_$t
//@ for i32 u32 i64 u64 f32 f64
INLINE $c atomic_exchange_$t($c *p, $c v)
{
    $c old;
    __atomic_exchange(p, &v, &old, __ATOMIC_RELAXED);
    return old;
}

//@ part atomic_cas_$t
//@ for i32 u32 i64 u64 f32 f64
INLINE $c atomic_cas_$t($c *p, $c expected, $c v)
{
    $c old;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    while (old == expected && !__atomic_compare_exchange(p, &old, &v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}

//@ part atomic_min_$t
//@ for i32 u32 i64 u64 f32 f64
//@ needs min_$t
INLINE $c atomic_min_$t($c *p, $c v)
{
    $c old, new;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
        new = min_$t(old, v);
    } while (!__atomic_compare_exchange(p, &old, &new, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

//@ part atomic_max_$t
//@ for i32 u32 i64 u64 f32 f64
//@ needs max_$t
INLINE $c atomic_max_$t($c *p, $c v)
{
    $c old, new;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
        new = max_$t(old, v);
    } while (!__atomic_compare_exchange(p, &old, &new, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

//@ part atomic_add_$t
//@ for f32 f64
INLINE $c atomic_add_$t($c *p, $c v)
{
    $c old, new;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
        new = old + v;
    } while (!__atomic_compare_exchange(p, &old, &new, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

//@ part atomic_add_$t
//@ for f16 bf16
//@ needs $t_to_f32 f32_to_$t
INLINE float atomic_add_$t(unsigned short *p, float v)
{
    unsigned short old = __atomic_load_n(p, __ATOMIC_RELAXED), new;
    do {
        new = f32_to_$t($t_to_f32(old) + v);
    } while (!__atomic_compare_exchange(p, &old, &new, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return $t_to_f32(old);
}

/* In a copy of a worker's own (c/counts.c), or in the array. */

//@ part own_add_$t
//@ for i32 u32 i64 u64
//@ needs atomic_add_$t
INLINE void own_add_$t(int own, $c *p, $c v)
{
    if (own)
        *p = *p + v;
    else
        atomic_add_$t(p, v);
}

//@ part own_and_$t
//@ for i32 u32 i64 u64
//@ needs atomic_and_$t
INLINE void own_and_$t(int own, $c *p, $c v)
{
    if (own)
        *p = *p & v;
    else
        atomic_and_$t(p, v);
}

//@ part own_or_$t
//@ for i32 u32 i64 u64
//@ needs atomic_or_$t
INLINE void own_or_$t(int own, $c *p, $c v)
{
    if (own)
        *p = *p | v;
    else
        atomic_or_$t(p, v);
}

//@ part own_xor_$t
//@ for i32 u32 i64 u64
//@ needs atomic_xor_$t
INLINE void own_xor_$t(int own, $c *p, $c v)
{
    if (own)
        *p = *p ^ v;
    else
        atomic_xor_$t(p, v);
}

//@ part own_min_$t
//@ for i32 u32 i64 u64
//@ needs atomic_min_$t min_$t
INLINE void own_min_$t(int own, $c *p, $c v)
{
    if (own)
        *p = min_$t(*p, v);
    else
        atomic_min_$t(p, v);
}

//@ part own_max_$t
//@ for i32 u32 i64 u64
//@ needs atomic_max_$t max_$t
INLINE void own_max_$t(int own, $c *p, $c v)
{
    if (own)
        *p = max_$t(*p, v);
    else
        atomic_max_$t(p, v);
}

//@ part raw_types
typedef struct half { unsigned short bits; } half;
typedef struct bfloat { unsigned short bits; } bfloat;
