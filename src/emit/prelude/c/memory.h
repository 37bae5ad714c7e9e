/*
 * The memory part of the prelude: loads and stores of whole, partial, masked and scattered vectors.
 * SPDX-License-Identifier: MIT
 */

/* Memory: whole vectors, the first lanes, masked lanes. */

//@ part load_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE $tx16 load_$tx16(const $c *p) { return *(const $tx16_u *)p; }

//@ part store_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
INLINE void store_$tx16($c *p, $tx16 v) { *($tx16_u *)p = v; }

//@ part load_bits_$tx16
//@ for f32 i8 i16 i32 u8 u16 u32
INLINE $tx16 load_bits_$tx16(const $c *p, unsigned bits)
{
#ifdef MASK_REGISTERS
    $tx16 r;
    __asm__("vmovdqu$b %1, %0%{%2%}%{z%}" : "=v"(r) : "m"(*(const $tx16_u *)p), "Yk"((unsigned short)bits));
#else
    $tx16 r = {0};
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) r[k] = p[k];
#endif
    return r;
}

//@ part store_bits_$tx16
//@ for f32 i8 i16 i32 u8 u16 u32
INLINE void store_bits_$tx16($c *p, $tx16 v, unsigned bits)
{
#ifdef MASK_REGISTERS
    __asm__("vmovdqu$b %1, %0%{%2%}" : "+m"(*($tx16_u *)p) : "v"(v), "Yk"((unsigned short)bits));
#else
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) p[k] = v[k];
#endif
}

//@ part load_bits_$tx16
//@ for f64 i64 u64
INLINE $tx16 load_bits_$tx16(const $c *p, unsigned bits)
{
#ifdef MASK_REGISTERS
    union { $tx8 half[2]; $tx16 whole; } r;
    __asm__("vmovdqu64 %1, %0%{%2%}%{z%}" : "=v"(r.half[0]) : "m"(*(const $tx8_u *)p), "Yk"((unsigned char)bits));
    __asm__("vmovdqu64 %1, %0%{%2%}%{z%}"
            : "=v"(r.half[1])
            : "m"(*(const $tx8_u *)(p + 8)), "Yk"((unsigned char)(bits >> 8)));
    return r.whole;
#else
    $tx16 r = {0};
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) r[k] = p[k];
    return r;
#endif
}

//@ part store_bits_$tx16
//@ for f64 i64 u64
INLINE void store_bits_$tx16($c *p, $tx16 v, unsigned bits)
{
#ifdef MASK_REGISTERS
    union { $tx16 whole; $tx8 half[2]; } r = {v};
    __asm__("vmovdqu64 %1, %0%{%2%}" : "+m"(*($tx8_u *)p) : "v"(r.half[0]), "Yk"((unsigned char)bits));
    __asm__("vmovdqu64 %1, %0%{%2%}"
            : "+m"(*($tx8_u *)(p + 8))
            : "v"(r.half[1]), "Yk"((unsigned char)(bits >> 8)));
#else
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) p[k] = v[k];
#endif
}

//@ part load_part_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
//@ needs load_bits_$tx16
INLINE $tx16 load_part_$tx16(const $c *p, long count) { return load_bits_$tx16(p, (1u << count) - 1); }

//@ part store_part_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
//@ needs store_bits_$tx16
INLINE void store_part_$tx16($c *p, $tx16 v, long count) { store_bits_$tx16(p, v, (1u << count) - 1); }

//@ part load_mask_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
//@ needs load_bits_$tx16 mask_bits
INLINE $tx16 load_mask_$tx16(const $c *p, mask16 m) { return load_bits_$tx16(p, mask_bits(m)); }

//@ part store_mask_$tx16
//@ for f32 f64 i8 i16 i32 i64 u8 u16 u32 u64
//@ needs store_bits_$tx16 mask_bits
INLINE void store_mask_$tx16($c *p, $tx16 v, mask16 m) { store_bits_$tx16(p, v, mask_bits(m)); }

/* By lanes: where there are masks, numbers of 32 bits are gathered and scattered by one instruction, and those two
 * apart, the commonest, lie in two whole vectors. Sixteen tests of a lane are slow, and slower still to compile. */

//@ part spread_bits
#ifdef MASK_REGISTERS
INLINE unsigned spread_bits(unsigned bits) { return __builtin_ia32_pdep_si(bits, 0x55555555u); }
#define IS_NEAR(stride) ((stride) < 1L << 26 && (stride) > -(1L << 26))
#endif

//@ part backwards
#define BACKWARDS(v) __builtin_shufflevector(v, v, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)

//@ part load_stride_$tx16
//@ for f32 i32 u32
//@ needs backwards mask_bits spread_bits load_bits_$tx16 iota_i32x16 splat_i32x16
OUTLINE $tx16 load_lanes_$tx16(const $c *p, long stride, unsigned bits)
{
    $tx16 r = {0};
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) r[k] = p[k * stride];
    return r;
}
INLINE $tx16 load_stride_$tx16(const $c *p, long stride, mask16 m)
{
    unsigned bits = mask_bits(m);
    if (stride == -1 && bits == 0xffff) /* an axis that was turned round */
        return BACKWARDS(*(const $tx16_u *)(p - 15));
#ifdef MASK_REGISTERS
    if (stride == 2) {
        unsigned both = spread_bits(bits);
        return __builtin_shufflevector(load_bits_$tx16(p, both & 0xffff), load_bits_$tx16(p + 16, both >> 16),
                                       0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    }
    if (__builtin_expect(IS_NEAR(stride), 1))
        return ($tx16)__builtin_ia32_gathersiv16sf((f32x16){0}, p, iota_i32x16() * splat_i32x16((int)stride),
                                                   (unsigned short)bits, 4);
#else
    if (__builtin_constant_p(bits) && bits == 0xffff) {
        $tx16 r;
        for (int k = 0; k < 16; k++) r[k] = p[k * stride];
        return r;
    }
#endif
    return load_lanes_$tx16(p, stride, bits);
}

//@ part load_stride_$tx16
//@ for f64 i8 i16 i64 u8 u16 u64
//@ needs backwards mask_bits
INLINE $tx16 load_stride_$tx16(const $c *p, long stride, mask16 m)
{
    $tx16 r = {0};
    unsigned bits = mask_bits(m);
    if (stride == -1 && bits == 0xffff) return BACKWARDS(*(const $tx16_u *)(p - 15));
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) r[k] = p[k * stride];
    return r;
}

//@ part store_stride_$tx16
//@ for f32 i32 u32
//@ needs mask_bits spread_bits store_bits_$tx16 iota_i32x16 splat_i32x16
OUTLINE void store_lanes_$tx16($c *p, long stride, $tx16 v, unsigned bits)
{
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) p[k * stride] = v[k];
}
INLINE void store_stride_$tx16($c *p, long stride, $tx16 v, mask16 m)
{
    unsigned bits = mask_bits(m);
#ifdef MASK_REGISTERS
    if (stride == 2) {
        unsigned both = spread_bits(bits);
        store_bits_$tx16(p, __builtin_shufflevector(v, v, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                         both & 0xffff);
        store_bits_$tx16(p + 16, __builtin_shufflevector(v, v, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14,
                                                         15, 15), both >> 16);
        return;
    }
    if (stride && __builtin_expect(IS_NEAR(stride), 1)) {
        __builtin_ia32_scattersiv16sf(p, (unsigned short)bits, iota_i32x16() * splat_i32x16((int)stride), (f32x16)v, 4);
        return;
    }
#else
    if (__builtin_constant_p(bits) && bits == 0xffff) {
        for (int k = 0; k < 16; k++) p[k * stride] = v[k];
        return;
    }
#endif
    store_lanes_$tx16(p, stride, v, bits);
}

//@ part store_stride_$tx16
//@ for f64 i8 i16 i64 u8 u16 u64
//@ needs mask_bits
INLINE void store_stride_$tx16($c *p, long stride, $tx16 v, mask16 m)
{
    unsigned bits = mask_bits(m);
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) p[k * stride] = v[k];
}

//@ part gather_$tx16
//@ for f32 i32 u32
//@ needs mask_bits
INLINE $tx16 gather_$tx16(const $c *p, i64x16 index, mask16 m)
{
    unsigned bits = mask_bits(m);
#ifdef MASK_REGISTERS
    typedef long long places __attribute__((vector_size(64)));
    i64x8 low = __builtin_shufflevector(index, index, 0, 1, 2, 3, 4, 5, 6, 7);
    i64x8 high = __builtin_shufflevector(index, index, 8, 9, 10, 11, 12, 13, 14, 15);
    f32x8 a = __builtin_ia32_gatherdiv16sf((f32x8){0}, p, (places)low, (unsigned char)bits, 4);
    f32x8 b = __builtin_ia32_gatherdiv16sf((f32x8){0}, p, (places)high, (unsigned char)(bits >> 8), 4);
    return ($tx16)__builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    $tx16 r = {0};
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) r[k] = p[index[k]];
    return r;
#endif
}

//@ part gather_$tx16
//@ for f64 i8 i16 i64 u8 u16 u64
//@ needs mask_bits
INLINE $tx16 gather_$tx16(const $c *p, i64x16 index, mask16 m)
{
    $tx16 r = {0};
    unsigned bits = mask_bits(m);
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) r[k] = p[index[k]];
    return r;
}

//@ part scatter_f32x16
//@ needs mask_bits
INLINE void scatter_f32x16(float *p, i64x16 index, f32x16 v, mask16 m)
{
    unsigned bits = mask_bits(m);
#ifdef MASK_REGISTERS
    typedef long long places __attribute__((vector_size(64)));
    i64x8 low = __builtin_shufflevector(index, index, 0, 1, 2, 3, 4, 5, 6, 7);
    i64x8 high = __builtin_shufflevector(index, index, 8, 9, 10, 11, 12, 13, 14, 15);
    f32x8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
    f32x8 b = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    __builtin_ia32_scatterdiv16sf(p, (unsigned char)bits, (places)low, a, 4);
    __builtin_ia32_scatterdiv16sf(p, (unsigned char)(bits >> 8), (places)high, b, 4);
#else
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) p[index[k]] = v[k];
#endif
}

//@ part scatter_$tx16
//@ for f64 i8 i16 i32 i64 u8 u16 u32 u64
//@ needs mask_bits
INLINE void scatter_$tx16($c *p, i64x16 index, $tx16 v, mask16 m)
{
    unsigned bits = mask_bits(m);
    for (int k = 0; k < 16; k++)
        if (bits >> k & 1) p[index[k]] = v[k];
}

//@ part stream_$tx16
//@ for f32 i32 u32
INLINE void stream_$tx16($c *p, $tx16 v)
{
#ifdef __AVX512F__
    if (!((unsigned long)p & 63)) {
        __asm__ volatile("vmovntps %1, %0" : "=m"(*($tx16_u *)p) : "v"(v));
        return;
    }
#endif
    *($tx16_u *)p = v;
}

//@ part stream_$tx16
//@ for i16 u16
INLINE void stream_$tx16($c *p, $tx16 v)
{
#ifdef __AVX__
    if (!((unsigned long)p & 31)) {
        __asm__ volatile("vmovntps %1, %0" : "=m"(*($tx16_u *)p) : "x"(v));
        return;
    }
#endif
    *($tx16_u *)p = v;
}

//@ part stream_$tx16
//@ for f64 i64 u64
INLINE void stream_$tx16($c *p, $tx16 v)
{
#ifdef __AVX512F__
    union { $tx16 whole; $tx8 half[2]; } r = {v};
    if (!((unsigned long)p & 63)) {
        __asm__ volatile("vmovntpd %1, %0" : "=m"(*($tx8_u *)p) : "v"(r.half[0]));
        __asm__ volatile("vmovntpd %1, %0" : "=m"(*($tx8_u *)(p + 8)) : "v"(r.half[1]));
        return;
    }
#endif
    *($tx16_u *)p = v;
}

//@ part stream_$tx16
//@ for i8 u8
INLINE void stream_$tx16($c *p, $tx16 v) { *($tx16_u *)p = v; }

//@ part stream_fence
INLINE void stream_fence(void)
{
#ifdef __SSE2__
    __asm__ volatile("sfence" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* The same for f16, bf16 and f8e4m3 through integers, and for bool through u8. */

//@ part load_$tx16
//@ for f16 bf16 f8e4m3
//@ needs load_$ux16 $t_to_f32x16
INLINE f32x16 load_$tx16(const $c *p) { return $t_to_f32x16(load_$ux16(p)); }

//@ part store_$tx16
//@ for f16 bf16 f8e4m3
//@ needs store_$ux16 f32_to_$tx16
INLINE void store_$tx16($c *p, f32x16 v) { store_$ux16(p, f32_to_$tx16(v)); }

//@ part load_part_$tx16
//@ for f16 bf16 f8e4m3
//@ needs load_part_$ux16 $t_to_f32x16
INLINE f32x16 load_part_$tx16(const $c *p, long count) { return $t_to_f32x16(load_part_$ux16(p, count)); }

//@ part store_part_$tx16
//@ for f16 bf16 f8e4m3
//@ needs store_part_$ux16 f32_to_$tx16
INLINE void store_part_$tx16($c *p, f32x16 v, long count) { store_part_$ux16(p, f32_to_$tx16(v), count); }

//@ part load_mask_$tx16
//@ for f16 bf16 f8e4m3
//@ needs load_mask_$ux16 $t_to_f32x16
INLINE f32x16 load_mask_$tx16(const $c *p, mask16 m) { return $t_to_f32x16(load_mask_$ux16(p, m)); }

//@ part store_mask_$tx16
//@ for f16 bf16 f8e4m3
//@ needs store_mask_$ux16 f32_to_$tx16
INLINE void store_mask_$tx16($c *p, f32x16 v, mask16 m) { store_mask_$ux16(p, f32_to_$tx16(v), m); }

//@ part load_stride_$tx16
//@ for f16 bf16 f8e4m3
//@ needs load_stride_$ux16 $t_to_f32x16
INLINE f32x16 load_stride_$tx16(const $c *p, long stride, mask16 m)
{
    return $t_to_f32x16(load_stride_$ux16(p, stride, m));
}

//@ part store_stride_$tx16
//@ for f16 bf16 f8e4m3
//@ needs store_stride_$ux16 f32_to_$tx16
INLINE void store_stride_$tx16($c *p, long stride, f32x16 v, mask16 m)
{
    store_stride_$ux16(p, stride, f32_to_$tx16(v), m);
}

//@ part gather_$tx16
//@ for f16 bf16 f8e4m3
//@ needs gather_$ux16 $t_to_f32x16
INLINE f32x16 gather_$tx16(const $c *p, i64x16 index, mask16 m)
{
    return $t_to_f32x16(gather_$ux16(p, index, m));
}

//@ part scatter_$tx16
//@ for f16 bf16 f8e4m3
//@ needs scatter_$ux16 f32_to_$tx16
INLINE void scatter_$tx16($c *p, i64x16 index, f32x16 v, mask16 m)
{
    scatter_$ux16(p, index, f32_to_$tx16(v), m);
}

//@ part stream_$tx16
//@ for f16 bf16 f8e4m3
//@ needs stream_$ux16 f32_to_$tx16
INLINE void stream_$tx16($c *p, f32x16 v) { stream_$ux16(p, f32_to_$tx16(v)); }

//@ part bool_bytes
INLINE mask16 mask_of_bytes(u8x16 v) { return __builtin_convertvector(v != 0, i32x16); }
INLINE u8x16 bytes_of_mask(mask16 m) { return (u8x16)(__builtin_convertvector(m, i8x16) & 1); }

//@ part load_boolx16
//@ needs load_u8x16 bool_bytes
INLINE mask16 load_boolx16(const unsigned char *p) { return mask_of_bytes(load_u8x16(p)); }

//@ part store_boolx16
//@ needs store_u8x16 bool_bytes
INLINE void store_boolx16(unsigned char *p, mask16 v) { store_u8x16(p, bytes_of_mask(v)); }

//@ part load_part_boolx16
//@ needs load_part_u8x16 bool_bytes
INLINE mask16 load_part_boolx16(const unsigned char *p, long count) { return mask_of_bytes(load_part_u8x16(p, count)); }

//@ part store_part_boolx16
//@ needs store_part_u8x16 bool_bytes
INLINE void store_part_boolx16(unsigned char *p, mask16 v, long count) { store_part_u8x16(p, bytes_of_mask(v), count); }

//@ part load_mask_boolx16
//@ needs load_mask_u8x16 bool_bytes
INLINE mask16 load_mask_boolx16(const unsigned char *p, mask16 m) { return mask_of_bytes(load_mask_u8x16(p, m)); }

//@ part store_mask_boolx16
//@ needs store_mask_u8x16 bool_bytes
INLINE void store_mask_boolx16(unsigned char *p, mask16 v, mask16 m) { store_mask_u8x16(p, bytes_of_mask(v), m); }

//@ part load_stride_boolx16
//@ needs load_stride_u8x16 bool_bytes
INLINE mask16 load_stride_boolx16(const unsigned char *p, long stride, mask16 m)
{
    return mask_of_bytes(load_stride_u8x16(p, stride, m));
}

//@ part store_stride_boolx16
//@ needs store_stride_u8x16 bool_bytes
INLINE void store_stride_boolx16(unsigned char *p, long stride, mask16 v, mask16 m)
{
    store_stride_u8x16(p, stride, bytes_of_mask(v), m);
}

//@ part gather_boolx16
//@ needs gather_u8x16 bool_bytes
INLINE mask16 gather_boolx16(const unsigned char *p, i64x16 index, mask16 m)
{
    return mask_of_bytes(gather_u8x16(p, index, m));
}

//@ part scatter_boolx16
//@ needs scatter_u8x16 bool_bytes
INLINE void scatter_boolx16(unsigned char *p, i64x16 index, mask16 v, mask16 m)
{
    scatter_u8x16(p, index, bytes_of_mask(v), m);
}

//@ part stream_boolx16
//@ needs stream_u8x16 bool_bytes
INLINE void stream_boolx16(unsigned char *p, mask16 v) { stream_u8x16(p, bytes_of_mask(v)); }
