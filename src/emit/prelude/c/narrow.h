/*
 * The floats of 16 and 8 bits of the prelude: u16 and u8 in memory, f32 in registers. Rounded once, to nearest even; NaN stays
 * NaN (of one kind for each sign).
 * SPDX-License-Identifier: MIT
 */

/* Between the width of memory and that of the registers: one instruction, where compilers take four to eight. */

//@ part widen_u16x16
INLINE u32x16 widen_u16x16(u16x16 h)
{
#ifdef __AVX512F__
    u32x16 x;
    __asm__("vpmovzxwd %1, %0" : "=v"(x) : "vm"(h));
    return x;
#else
    return __builtin_convertvector(h, u32x16);
#endif
}

//@ part narrow_u16x16
/* the low bits of each */
INLINE u16x16 narrow_u16x16(u32x16 x)
{
#ifdef __AVX512F__
    u16x16 h;
    __asm__("vpmovdw %1, %0" : "=v"(h) : "v"(x));
    return h;
#else
    return __builtin_convertvector(x, u16x16);
#endif
}

//@ part widen_u8x16
INLINE u32x16 widen_u8x16(u8x16 h)
{
#ifdef __AVX512F__
    u32x16 x;
    __asm__("vpmovzxbd %1, %0" : "=v"(x) : "vm"(h));
    return x;
#else
    return __builtin_convertvector(h, u32x16);
#endif
}

//@ part narrow_u8x16
/* the low bits of each */
INLINE u8x16 narrow_u8x16(u32x16 x)
{
#ifdef __AVX512F__
    u8x16 h;
    __asm__("vpmovdb %1, %0" : "=v"(h) : "v"(x));
    return h;
#else
    return __builtin_convertvector(x, u8x16);
#endif
}

//@ part f16_to_f32
//@ needs real_f32
INLINE float f16_to_f32(unsigned short h)
{
#ifdef __F16C__
    float x;
    __asm__("vcvtph2ps %1, %0" : "=x"(x) : "x"((i16x8){(short)h}));
    return x;
#else
    unsigned size = h & 0x7fff, sign = (unsigned)(h & 0x8000) << 16;
    /* Rebias by multiplying, which also makes subnormals normal; infinity and NaN get the largest exponent. */
    float x = real_f32((int)(size << 13)) * 0x1p112f;
    return real_f32((int)((size >= 0x7c00 ? 0x7f800000u | size << 13 : (unsigned)bits_f32(x)) | sign));
#endif
}

//@ part f16_to_f32x16
//@ needs real_f32x16 select_f32x16
INLINE f32x16 f16_to_f32x16(u16x16 h)
{
#ifdef __AVX512F__
    f32x16 x;
    __asm__("vcvtph2ps %1, %0" : "=v"(x) : "vm"(h));
    return x;
#else
    i32x16 w = __builtin_convertvector(h, i32x16), size = w & 0x7fff, sign = (w & 0x8000) << 16;
    f32x16 x = (f32x16)(size << 13) * 0x1p112f;
    i32x16 big = size >= 0x7c00;
    return (f32x16)((((size << 13) | 0x7f800000) & big) | ((i32x16)x & ~big) | sign);
#endif
}

//@ part f32_to_f16
//@ needs real_f32
INLINE unsigned short f32_to_f16(float x)
{
#ifdef __F16C__
    i16x8 h;
    __asm__("vcvtps2ph $0, %1, %0" : "=x"(h) : "x"((f32x4){x}));
    return (unsigned short)h[0];
#else
    unsigned bits = (unsigned)bits_f32(x), size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    if (size > 0x7f800000) return (unsigned short)(sign | 0x7e00);
    if (size >= 0x477ff000) return (unsigned short)(sign | 0x7c00);
    if (size < 0x38800000) { /* subnormal: adding a power of two rounds at the right bit */
        float y = real_f32((int)size) + 0.5f;
        return (unsigned short)(sign | (bits_f32(y) - 0x3f000000));
    }
    return (unsigned short)(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
#endif
}

//@ part f32_to_f16x16
//@ needs f32_to_f16
INLINE u16x16 f32_to_f16x16(f32x16 x)
{
    u16x16 h;
#ifdef __AVX512F__
    __asm__("vcvtps2ph $0, %1, %0" : "=v"(h) : "v"(x));
#else
    for (int k = 0; k < 16; k++) h[k] = f32_to_f16(x[k]);
#endif
    return h;
}

//@ part bf16_to_f32
//@ needs real_f32
INLINE float bf16_to_f32(unsigned short h) { return real_f32((int)((unsigned)h << 16)); }

//@ part bf16_to_f32x16
//@ needs widen_u16x16
INLINE f32x16 bf16_to_f32x16(u16x16 h) { return (f32x16)(widen_u16x16(h) << 16); }

//@ part f32_to_bf16
//@ needs real_f32
INLINE unsigned short f32_to_bf16(float x)
{
    unsigned bits = (unsigned)bits_f32(x);
    unsigned rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (unsigned short)(x != x ? (bits >> 16 & 0x8000) | 0x7fc0 : rounded);
}

//@ part f32_to_bf16x16
//@ needs narrow_u16x16
INLINE u16x16 f32_to_bf16x16(f32x16 x)
{
    u32x16 bits = (u32x16)x, nan = (u32x16)(x != x), quiet = (bits & 0x80000000u) | 0x7fc00000;
    u32x16 rounded = bits + 0x7fff + (bits >> 16 & 1);
    return narrow_u16x16(((quiet & nan) | (rounded & ~nan)) >> 16);
}

//@ part f8e4m3_to_f32
//@ needs real_f32
INLINE float f8e4m3_to_f32(unsigned char h)
{
    unsigned sign = (unsigned)(h & 0x80) << 24, size = h & 0x7f;
    unsigned bits = size == 0x7f ? 0x7fc00000u : size >= 8 ? (size << 20) + 0x3c000000u : (unsigned)bits_f32((float)size * 0x1p-9f);
    return real_f32((int)(sign | bits));
}

//@ part f8e4m3_to_f32x16
//@ needs widen_u8x16
INLINE f32x16 f8e4m3_to_f32x16(u8x16 h)
{
    u32x16 x = widen_u8x16(h), sign = (x & 0x80) << 24, size = x & 0x7f;
    u32x16 nan = (u32x16)(size == 0x7f), small = (u32x16)(size < 8);
    u32x16 least = (u32x16)(__builtin_convertvector(size & small, f32x16) * 0x1p-9f), other = (size << 20) + 0x3c000000u;
    return (f32x16)(sign | (nan & 0x7fc00000u) | (small & least) | (other & ~nan & ~small));
}

//@ part f32_to_f8e4m3
//@ needs real_f32
INLINE unsigned char f32_to_f8e4m3(float x)
{
    unsigned bits = (unsigned)bits_f32(x), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    unsigned least = (unsigned)bits_f32(real_f32((int)size) + 0x1p14f) - 0x46800000u; /* rounds to 2^-9 */
    unsigned rounded = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - 960;
    return (unsigned char)(sign | (size > 0x43e80000u ? 0x7f : size < 0x3c800000u ? least : rounded));
}

//@ part f32_to_f8e4m3x16
//@ needs narrow_u8x16
INLINE u8x16 f32_to_f8e4m3x16(f32x16 x)
{
    u32x16 bits = (u32x16)x, sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    u32x16 nan = (u32x16)(size > 0x43e80000u), small = (u32x16)(size < 0x3c800000u);
    u32x16 least = (u32x16)((f32x16)size + 0x1p14f) - 0x46800000u;
    u32x16 rounded = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - 960;
    return narrow_u8x16(sign | (nan & 0x7f) | (small & least) | (rounded & ~nan & ~small));
}
