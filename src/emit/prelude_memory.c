/*
 * The memory part of the prelude: 16-bit floats, and loads and stores of whole, partial, masked and scattered vectors.
 * In and out: text templates, see prelude_parts.h.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_parts.h"

const prelude_part prelude_memory_parts[] = {
    /* 16-bit floats: u16 in memory, f32 in registers. */
    {"f16_to_f32", "", "real_f32",
     "INLINE float f16_to_f32(unsigned short h)\n"
     "{\n"
     "#ifdef __F16C__\n"
     "    float x;\n"
     "    __asm__(\"vcvtph2ps %1, %0\" : \"=x\"(x) : \"x\"((i16x8){(short)h}));\n"
     "    return x;\n"
     "#else\n"
     "    unsigned size = h & 0x7fff, sign = (unsigned)(h & 0x8000) << 16;\n"
     "    /* Rebias by multiplying, which also makes subnormals normal; infinity and NaN get the largest exponent. */\n"
     "    float x = real_f32((int)(size << 13)) * 0x1p112f;\n"
     "    return real_f32((int)((size >= 0x7c00 ? 0x7f800000u | size << 13 : (unsigned)bits_f32(x)) | sign));\n"
     "#endif\n"
     "}\n"},
    {"f16_to_f32x16", "", "real_f32x16 select_f32x16",
     "INLINE f32x16 f16_to_f32x16(u16x16 h)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    f32x16 x;\n"
     "    __asm__(\"vcvtph2ps %1, %0\" : \"=v\"(x) : \"vm\"(h));\n"
     "    return x;\n"
     "#else\n"
     "    i32x16 w = __builtin_convertvector(h, i32x16), size = w & 0x7fff, sign = (w & 0x8000) << 16;\n"
     "    f32x16 x = (f32x16)(size << 13) * 0x1p112f;\n"
     "    i32x16 big = size >= 0x7c00;\n"
     "    return (f32x16)((((size << 13) | 0x7f800000) & big) | ((i32x16)x & ~big) | sign);\n"
     "#endif\n"
     "}\n"},
    {"f32_to_f16", "", "real_f32",
     "INLINE unsigned short f32_to_f16(float x)\n"
     "{\n"
     "#ifdef __F16C__\n"
     "    i16x8 h;\n"
     "    __asm__(\"vcvtps2ph $0, %1, %0\" : \"=x\"(h) : \"x\"((f32x4){x}));\n"
     "    return (unsigned short)h[0];\n"
     "#else\n"
     "    unsigned bits = (unsigned)bits_f32(x), size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;\n"
     "    if (size > 0x7f800000) return (unsigned short)(sign | 0x7e00);\n"
     "    if (size >= 0x477ff000) return (unsigned short)(sign | 0x7c00);\n"
     "    if (size < 0x38800000) { /* subnormal: adding a power of two rounds at the right bit */\n"
     "        float y = real_f32((int)size) + 0.5f;\n"
     "        return (unsigned short)(sign | (bits_f32(y) - 0x3f000000));\n"
     "    }\n"
     "    return (unsigned short)(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));\n"
     "#endif\n"
     "}\n"},
    {"f32_to_f16x16", "", "f32_to_f16",
     "INLINE u16x16 f32_to_f16x16(f32x16 x)\n"
     "{\n"
     "    u16x16 h;\n"
     "#ifdef __AVX512F__\n"
     "    __asm__(\"vcvtps2ph $0, %1, %0\" : \"=v\"(h) : \"v\"(x));\n"
     "#else\n"
     "    for (int k = 0; k < 16; k++) h[k] = f32_to_f16(x[k]);\n"
     "#endif\n"
     "    return h;\n"
     "}\n"},
    {"bf16_to_f32", "", "real_f32",
     "INLINE float bf16_to_f32(unsigned short h) { return real_f32((int)((unsigned)h << 16)); }\n"},
    {"bf16_to_f32x16", "", "",
     "INLINE f32x16 bf16_to_f32x16(u16x16 h) { return (f32x16)(__builtin_convertvector(h, u32x16) << 16); }\n"},
    {"f32_to_bf16", "", "real_f32",
     "INLINE unsigned short f32_to_bf16(float x)\n"
     "{\n"
     "    unsigned bits = (unsigned)bits_f32(x);\n"
     "    unsigned rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;\n"
     "    return (unsigned short)(x != x ? (bits >> 16 & 0x8000) | 0x7fc0 : rounded);\n"
     "}\n"},
    {"f32_to_bf16x16", "", "",
     "INLINE u16x16 f32_to_bf16x16(f32x16 x)\n"
     "{\n"
     "    u32x16 bits = (u32x16)x, nan = (u32x16)(x != x);\n"
     "    u32x16 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;\n"
     "    return __builtin_convertvector((((bits >> 16 & 0x8000) | 0x7fc0) & nan) | (rounded & ~nan), u16x16);\n"
     "}\n"},
    /* Memory: whole vectors, the first lanes, masked lanes. */
    {"load_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "",
     "INLINE $tx16 load_$tx16(const $c *p) { return *(const $tx16_u *)p; }\n"},
    {"store_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "",
     "INLINE void store_$tx16($c *p, $tx16 v) { *($tx16_u *)p = v; }\n"},
    {"load_bits_$tx16", "f32 i8 i16 i32 u8 u16 u32", "",
     "INLINE $tx16 load_bits_$tx16(const $c *p, unsigned bits)\n"
     "{\n"
     "#ifdef MASK_REGISTERS\n"
     "    $tx16 r;\n"
     "    __asm__(\"vmovdqu$b %1, %0%{%2%}%{z%}\" : \"=v\"(r) : \"m\"(*(const $tx16_u *)p), \"Yk\"((unsigned "
     "short)bits));\n"
     "#else\n"
     "    $tx16 r = {0};\n"
     "    for (int k = 0; k < 16; k++)\n"
     "        if (bits >> k & 1) r[k] = p[k];\n"
     "#endif\n"
     "    return r;\n"
     "}\n"},
    {"store_bits_$tx16", "f32 i8 i16 i32 u8 u16 u32", "",
     "INLINE void store_bits_$tx16($c *p, $tx16 v, unsigned bits)\n"
     "{\n"
     "#ifdef MASK_REGISTERS\n"
     "    __asm__(\"vmovdqu$b %1, %0%{%2%}\" : \"+m\"(*($tx16_u *)p) : \"v\"(v), \"Yk\"((unsigned short)bits));\n"
     "#else\n"
     "    for (int k = 0; k < 16; k++)\n"
     "        if (bits >> k & 1) p[k] = v[k];\n"
     "#endif\n"
     "}\n"},
    {"load_bits_$tx16", "f64 i64 u64", "",
     "INLINE $tx16 load_bits_$tx16(const $c *p, unsigned bits)\n"
     "{\n"
     "#ifdef MASK_REGISTERS\n"
     "    union { $tx8 half[2]; $tx16 whole; } r;\n"
     "    __asm__(\"vmovdqu64 %1, %0%{%2%}%{z%}\" : \"=v\"(r.half[0]) : \"m\"(*(const $tx8_u *)p), \"Yk\"((unsigned "
     "char)bits));\n"
     "    __asm__(\"vmovdqu64 %1, %0%{%2%}%{z%}\"\n"
     "            : \"=v\"(r.half[1])\n"
     "            : \"m\"(*(const $tx8_u *)(p + 8)), \"Yk\"((unsigned char)(bits >> 8)));\n"
     "    return r.whole;\n"
     "#else\n"
     "    $tx16 r = {0};\n"
     "    for (int k = 0; k < 16; k++)\n"
     "        if (bits >> k & 1) r[k] = p[k];\n"
     "    return r;\n"
     "#endif\n"
     "}\n"},
    {"store_bits_$tx16", "f64 i64 u64", "",
     "INLINE void store_bits_$tx16($c *p, $tx16 v, unsigned bits)\n"
     "{\n"
     "#ifdef MASK_REGISTERS\n"
     "    union { $tx16 whole; $tx8 half[2]; } r = {v};\n"
     "    __asm__(\"vmovdqu64 %1, %0%{%2%}\" : \"+m\"(*($tx8_u *)p) : \"v\"(r.half[0]), \"Yk\"((unsigned char)bits));\n"
     "    __asm__(\"vmovdqu64 %1, %0%{%2%}\"\n"
     "            : \"+m\"(*($tx8_u *)(p + 8))\n"
     "            : \"v\"(r.half[1]), \"Yk\"((unsigned char)(bits >> 8)));\n"
     "#else\n"
     "    for (int k = 0; k < 16; k++)\n"
     "        if (bits >> k & 1) p[k] = v[k];\n"
     "#endif\n"
     "}\n"},
    {"load_part_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "load_bits_$tx16",
     "INLINE $tx16 load_part_$tx16(const $c *p, long count) { return load_bits_$tx16(p, (1u << count) - 1); }\n"},
    {"store_part_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "store_bits_$tx16",
     "INLINE void store_part_$tx16($c *p, $tx16 v, long count) { store_bits_$tx16(p, v, (1u << count) - 1); }\n"},
    {"load_mask_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "load_bits_$tx16 mask_bits",
     "INLINE $tx16 load_mask_$tx16(const $c *p, mask16 m) { return load_bits_$tx16(p, mask_bits(m)); }\n"},
    {"store_mask_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "store_bits_$tx16 mask_bits",
     "INLINE void store_mask_$tx16($c *p, $tx16 v, mask16 m) { store_bits_$tx16(p, v, mask_bits(m)); }\n"},
    /* By lanes: where there are masks, numbers of 32 bits are gathered and scattered by one instruction, and those two
     * apart, the commonest, lie in two whole vectors. Sixteen tests of a lane are slow, and slower still to compile. */
    {"spread_bits", "", "",
     "#ifdef MASK_REGISTERS\n"
     "INLINE unsigned spread_bits(unsigned bits) { return __builtin_ia32_pdep_si(bits, 0x55555555u); }\n"
     "#define IS_NEAR(stride) ((stride) < 1L << 26 && (stride) > -(1L << 26))\n"
     "#endif\n"},
    {"load_stride_$tx16", "f32 i32 u32", "mask_bits spread_bits load_bits_$tx16 iota_i32x16 splat_i32x16",
     "OUTLINE $tx16 load_lanes_$tx16(const $c *p, long stride, unsigned bits)\n"
     "{\n"
     "    $tx16 r = {0};\n"
     "    for (int k = 0; k < 16; k++)\n"
     "        if (bits >> k & 1) r[k] = p[k * stride];\n"
     "    return r;\n"
     "}\n"
     "INLINE $tx16 load_stride_$tx16(const $c *p, long stride, mask16 m)\n"
     "{\n"
     "    unsigned bits = mask_bits(m);\n"
     "#ifdef MASK_REGISTERS\n"
     "    if (stride == 2) {\n"
     "        unsigned both = spread_bits(bits);\n"
     "        return __builtin_shufflevector(load_bits_$tx16(p, both & 0xffff), load_bits_$tx16(p + 16, both >> 16),\n"
     "                                       0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);\n"
     "    }\n"
     "    if (__builtin_expect(IS_NEAR(stride), 1))\n"
     "        return ($tx16)__builtin_ia32_gathersiv16sf((f32x16){0}, p, iota_i32x16() * splat_i32x16((int)stride),\n"
     "                                                   (unsigned short)bits, 4);\n"
     "#else\n"
     "    if (__builtin_constant_p(bits) && bits == 0xffff) {\n"
     "        $tx16 r;\n"
     "        for (int k = 0; k < 16; k++) r[k] = p[k * stride];\n"
     "        return r;\n"
     "    }\n"
     "#endif\n"
     "    return load_lanes_$tx16(p, stride, bits);\n"
     "}\n"},
    {"load_stride_$tx16", "f64 i8 i16 i64 u8 u16 u64", "mask_bits",
     "INLINE $tx16 load_stride_$tx16(const $c *p, long stride, mask16 m)\n"
     "{\n"
     "    $tx16 r = {0};\n"
     "    unsigned bits = mask_bits(m);\n"
     "    for (int k = 0; k < 16; k++)\n"
     "        if (bits >> k & 1) r[k] = p[k * stride];\n"
     "    return r;\n"
     "}\n"},
    {"store_stride_$tx16", "f32 i32 u32", "mask_bits spread_bits store_bits_$tx16 iota_i32x16 splat_i32x16",
     "OUTLINE void store_lanes_$tx16($c *p, long stride, $tx16 v, unsigned bits)\n"
     "{\n"
     "    for (int k = 0; k < 16; k++)\n"
     "        if (bits >> k & 1) p[k * stride] = v[k];\n"
     "}\n"
     "INLINE void store_stride_$tx16($c *p, long stride, $tx16 v, mask16 m)\n"
     "{\n"
     "    unsigned bits = mask_bits(m);\n"
     "#ifdef MASK_REGISTERS\n"
     "    if (stride == 2) {\n"
     "        unsigned both = spread_bits(bits);\n"
     "        store_bits_$tx16(p, __builtin_shufflevector(v, v, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),\n"
     "                         both & 0xffff);\n"
     "        store_bits_$tx16(p + 16, __builtin_shufflevector(v, v, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, "
     "14,\n"
     "                                                         15, 15), both >> 16);\n"
     "        return;\n"
     "    }\n"
     "    if (stride && __builtin_expect(IS_NEAR(stride), 1)) {\n"
     "        __builtin_ia32_scattersiv16sf(p, (unsigned short)bits, iota_i32x16() * splat_i32x16((int)stride), "
     "(f32x16)v, 4);\n"
     "        return;\n"
     "    }\n"
     "#else\n"
     "    if (__builtin_constant_p(bits) && bits == 0xffff) {\n"
     "        for (int k = 0; k < 16; k++) p[k * stride] = v[k];\n"
     "        return;\n"
     "    }\n"
     "#endif\n"
     "    store_lanes_$tx16(p, stride, v, bits);\n"
     "}\n"},
    {"store_stride_$tx16", "f64 i8 i16 i64 u8 u16 u64", "mask_bits",
     "INLINE void store_stride_$tx16($c *p, long stride, $tx16 v, mask16 m)\n"
     "{\n"
     "    unsigned bits = mask_bits(m);\n"
     "    for (int k = 0; k < 16; k++)\n"
     "        if (bits >> k & 1) p[k * stride] = v[k];\n"
     "}\n"},
    {"gather_$tx16", "f32 i32 u32", "mask_bits",
     "INLINE $tx16 gather_$tx16(const $c *p, i64x16 index, mask16 m)\n"
     "{\n"
     "    unsigned bits = mask_bits(m);\n"
     "#ifdef MASK_REGISTERS\n"
     "    typedef long long places __attribute__((vector_size(64)));\n"
     "    i64x8 low = __builtin_shufflevector(index, index, 0, 1, 2, 3, 4, 5, 6, 7);\n"
     "    i64x8 high = __builtin_shufflevector(index, index, 8, 9, 10, 11, 12, 13, 14, 15);\n"
     "    f32x8 a = __builtin_ia32_gatherdiv16sf((f32x8){0}, p, (places)low, (unsigned char)bits, 4);\n"
     "    f32x8 b = __builtin_ia32_gatherdiv16sf((f32x8){0}, p, (places)high, (unsigned char)(bits >> 8), 4);\n"
     "    return ($tx16)__builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);\n"
     "#else\n"
     "    $tx16 r = {0};\n"
     "    for (int k = 0; k < 16; k++)\n"
     "        if (bits >> k & 1) r[k] = p[index[k]];\n"
     "    return r;\n"
     "#endif\n"
     "}\n"},
    {"gather_$tx16", "f64 i8 i16 i64 u8 u16 u64", "mask_bits",
     "INLINE $tx16 gather_$tx16(const $c *p, i64x16 index, mask16 m)\n"
     "{\n"
     "    $tx16 r = {0};\n"
     "    unsigned bits = mask_bits(m);\n"
     "    for (int k = 0; k < 16; k++)\n"
     "        if (bits >> k & 1) r[k] = p[index[k]];\n"
     "    return r;\n"
     "}\n"},
    {"scatter_$tx16", "f32 f64 i8 i16 i32 i64 u8 u16 u32 u64", "mask_bits",
     "INLINE void scatter_$tx16($c *p, i64x16 index, $tx16 v, mask16 m)\n"
     "{\n"
     "    unsigned bits = mask_bits(m);\n"
     "    for (int k = 0; k < 16; k++)\n"
     "        if (bits >> k & 1) p[index[k]] = v[k];\n"
     "}\n"},
    {"stream_$tx16", "f32 i32 u32", "",
     "INLINE void stream_$tx16($c *p, $tx16 v)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    if (!((unsigned long)p & 63)) {\n"
     "        __asm__ volatile(\"vmovntps %1, %0\" : \"=m\"(*($tx16_u *)p) : \"v\"(v));\n"
     "        return;\n"
     "    }\n"
     "#endif\n"
     "    *($tx16_u *)p = v;\n"
     "}\n"},
    {"stream_$tx16", "i16 u16", "",
     "INLINE void stream_$tx16($c *p, $tx16 v)\n"
     "{\n"
     "#ifdef __AVX__\n"
     "    if (!((unsigned long)p & 31)) {\n"
     "        __asm__ volatile(\"vmovntps %1, %0\" : \"=m\"(*($tx16_u *)p) : \"x\"(v));\n"
     "        return;\n"
     "    }\n"
     "#endif\n"
     "    *($tx16_u *)p = v;\n"
     "}\n"},
    {"stream_$tx16", "f64 i64 u64", "",
     "INLINE void stream_$tx16($c *p, $tx16 v)\n"
     "{\n"
     "#ifdef __AVX512F__\n"
     "    union { $tx16 whole; $tx8 half[2]; } r = {v};\n"
     "    if (!((unsigned long)p & 63)) {\n"
     "        __asm__ volatile(\"vmovntpd %1, %0\" : \"=m\"(*($tx8_u *)p) : \"v\"(r.half[0]));\n"
     "        __asm__ volatile(\"vmovntpd %1, %0\" : \"=m\"(*($tx8_u *)(p + 8)) : \"v\"(r.half[1]));\n"
     "        return;\n"
     "    }\n"
     "#endif\n"
     "    *($tx16_u *)p = v;\n"
     "}\n"},
    {"stream_$tx16", "i8 u8", "", "INLINE void stream_$tx16($c *p, $tx16 v) { *($tx16_u *)p = v; }\n"},
    {"stream_fence", "", "",
     "INLINE void stream_fence(void)\n"
     "{\n"
     "#ifdef __SSE2__\n"
     "    __asm__ volatile(\"sfence\" ::: \"memory\");\n"
     "#else\n"
     "    __atomic_thread_fence(__ATOMIC_SEQ_CST);\n"
     "#endif\n"
     "}\n"},
    /* The same for f16 and bf16 through u16, and for bool through u8. */
    {"load_$tx16", "f16 bf16", "load_u16x16 $t_to_f32x16",
     "INLINE f32x16 load_$tx16(const unsigned short *p) { return $t_to_f32x16(load_u16x16(p)); }\n"},
    {"store_$tx16", "f16 bf16", "store_u16x16 f32_to_$tx16",
     "INLINE void store_$tx16(unsigned short *p, f32x16 v) { store_u16x16(p, f32_to_$tx16(v)); }\n"},
    {"load_part_$tx16", "f16 bf16", "load_part_u16x16 $t_to_f32x16",
     "INLINE f32x16 load_part_$tx16(const unsigned short *p, long count) { return $t_to_f32x16(load_part_u16x16(p, "
     "count)); }\n"},
    {"store_part_$tx16", "f16 bf16", "store_part_u16x16 f32_to_$tx16",
     "INLINE void store_part_$tx16(unsigned short *p, f32x16 v, long count) { store_part_u16x16(p, f32_to_$tx16(v), "
     "count); }\n"},
    {"load_mask_$tx16", "f16 bf16", "load_mask_u16x16 $t_to_f32x16",
     "INLINE f32x16 load_mask_$tx16(const unsigned short *p, mask16 m) { return $t_to_f32x16(load_mask_u16x16(p, m)); "
     "}\n"},
    {"store_mask_$tx16", "f16 bf16", "store_mask_u16x16 f32_to_$tx16",
     "INLINE void store_mask_$tx16(unsigned short *p, f32x16 v, mask16 m) { store_mask_u16x16(p, f32_to_$tx16(v), m); "
     "}\n"},
    {"load_stride_$tx16", "f16 bf16", "load_stride_u16x16 $t_to_f32x16",
     "INLINE f32x16 load_stride_$tx16(const unsigned short *p, long stride, mask16 m)\n"
     "{\n"
     "    return $t_to_f32x16(load_stride_u16x16(p, stride, m));\n"
     "}\n"},
    {"store_stride_$tx16", "f16 bf16", "store_stride_u16x16 f32_to_$tx16",
     "INLINE void store_stride_$tx16(unsigned short *p, long stride, f32x16 v, mask16 m)\n"
     "{\n"
     "    store_stride_u16x16(p, stride, f32_to_$tx16(v), m);\n"
     "}\n"},
    {"gather_$tx16", "f16 bf16", "gather_u16x16 $t_to_f32x16",
     "INLINE f32x16 gather_$tx16(const unsigned short *p, i64x16 index, mask16 m)\n"
     "{\n"
     "    return $t_to_f32x16(gather_u16x16(p, index, m));\n"
     "}\n"},
    {"scatter_$tx16", "f16 bf16", "scatter_u16x16 f32_to_$tx16",
     "INLINE void scatter_$tx16(unsigned short *p, i64x16 index, f32x16 v, mask16 m)\n"
     "{\n"
     "    scatter_u16x16(p, index, f32_to_$tx16(v), m);\n"
     "}\n"},
    {"stream_$tx16", "f16 bf16", "stream_u16x16 f32_to_$tx16",
     "INLINE void stream_$tx16(unsigned short *p, f32x16 v) { stream_u16x16(p, f32_to_$tx16(v)); }\n"},
    {"bool_bytes", "", "",
     "INLINE mask16 mask_of_bytes(u8x16 v) { return __builtin_convertvector(v != 0, i32x16); }\n"
     "INLINE u8x16 bytes_of_mask(mask16 m) { return (u8x16)(__builtin_convertvector(m, i8x16) & 1); }\n"},
    {"load_boolx16", "", "load_u8x16 bool_bytes",
     "INLINE mask16 load_boolx16(const unsigned char *p) { return mask_of_bytes(load_u8x16(p)); }\n"},
    {"store_boolx16", "", "store_u8x16 bool_bytes",
     "INLINE void store_boolx16(unsigned char *p, mask16 v) { store_u8x16(p, bytes_of_mask(v)); }\n"},
    {"load_part_boolx16", "", "load_part_u8x16 bool_bytes",
     "INLINE mask16 load_part_boolx16(const unsigned char *p, long count) { return mask_of_bytes(load_part_u8x16(p, "
     "count)); }\n"},
    {"store_part_boolx16", "", "store_part_u8x16 bool_bytes",
     "INLINE void store_part_boolx16(unsigned char *p, mask16 v, long count) { store_part_u8x16(p, bytes_of_mask(v), "
     "count); }\n"},
    {"load_mask_boolx16", "", "load_mask_u8x16 bool_bytes",
     "INLINE mask16 load_mask_boolx16(const unsigned char *p, mask16 m) { return mask_of_bytes(load_mask_u8x16(p, m)); "
     "}\n"},
    {"store_mask_boolx16", "", "store_mask_u8x16 bool_bytes",
     "INLINE void store_mask_boolx16(unsigned char *p, mask16 v, mask16 m) { store_mask_u8x16(p, bytes_of_mask(v), m); "
     "}\n"},
    {"load_stride_boolx16", "", "load_stride_u8x16 bool_bytes",
     "INLINE mask16 load_stride_boolx16(const unsigned char *p, long stride, mask16 m)\n"
     "{\n"
     "    return mask_of_bytes(load_stride_u8x16(p, stride, m));\n"
     "}\n"},
    {"store_stride_boolx16", "", "store_stride_u8x16 bool_bytes",
     "INLINE void store_stride_boolx16(unsigned char *p, long stride, mask16 v, mask16 m)\n"
     "{\n"
     "    store_stride_u8x16(p, stride, bytes_of_mask(v), m);\n"
     "}\n"},
    {"gather_boolx16", "", "gather_u8x16 bool_bytes",
     "INLINE mask16 gather_boolx16(const unsigned char *p, i64x16 index, mask16 m)\n"
     "{\n"
     "    return mask_of_bytes(gather_u8x16(p, index, m));\n"
     "}\n"},
    {"scatter_boolx16", "", "scatter_u8x16 bool_bytes",
     "INLINE void scatter_boolx16(unsigned char *p, i64x16 index, mask16 v, mask16 m)\n"
     "{\n"
     "    scatter_u8x16(p, index, bytes_of_mask(v), m);\n"
     "}\n"},
    {"stream_boolx16", "", "stream_u8x16 bool_bytes",
     "INLINE void stream_boolx16(unsigned char *p, mask16 v) { stream_u8x16(p, bytes_of_mask(v)); }\n"},
    {0},
};
