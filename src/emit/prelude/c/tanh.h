/*
 * tanh of the prelude. With 32 vector registers of 16 floats a table of 32 is two of them and a look-up one instruction:
 * f32 takes piecewise polynomials, one quarter of the time of an exponential and a quotient. Elsewhere, and in f64: an odd
 * polynomial near 0, an exponential beyond. Coefficients: tools/minimax.py. Errors: docs/accuracy.md, held by test_math.
 * SPDX-License-Identifier: MIT
 */

//@ part look_f32x16
/* table[i % 32] */
INLINE f32x16 look_f32x16(const float *table, i32x16 i)
{
#ifdef __AVX512F__
    f32x16 r = (f32x16)i;
    const f32x16 *t = (const f32x16 *)table;
    __asm__("vpermi2ps %2, %1, %0" : "+v"(r) : "v"(t[0]), "v"(t[1]));
    return r;
#else
    f32x16 r;
    for (int k = 0; k < 16; k++) r[k] = table[i[k] & 31];
    return r;
#endif
}

//@ part look_f32
INLINE float look_f32(const float *table, int i) { return table[i & 31]; }

//@ part tanh_table
/* tanh(c + u) = t + u Q(u): c, t and the coefficients of Q for each piece. */
static const float tanh_table[7][32] __attribute__((aligned(64))) = {
    {0x1.21cbd8p+0f, 0x1.603728p+0f, 0x1.9f1d5ap+0f, 0x1.e1f8ap+0f, 0x1.0fc01ap+1f, 0x1.2f1758p+1f,
     0x1.4fc91ep+1f, 0x1.6f4a24p+1f, 0x1.9ec4e2p+1f, 0x1.e0f42p+1f, 0x1.104f76p+2f, 0x1.2fda52p+2f,
     0x1.4f4768p+2f, 0x1.6f3f38p+2f, 0x1.8f00f4p+2f, 0x1.af5026p+2f, 0x1.e0d58ap+2f, 0x1.1110ccp+3f,
     0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x1.817c1cp-3f, 0x1.3e18dap-2f,
     0x1.bd6c46p-2f, 0x1.1deb86p-1f, 0x1.61c31cp-1f, 0x1.a075f6p-1f, 0x1.e0a606p-1f},
    {0x1.9f983cp-1f, 0x1.c2918cp-1f, 0x1.d9859ep-1f, 0x1.e8d296p-1f, 0x1.f18b1ap-1f, 0x1.f71796p-1f,
     0x1.faa302p-1f, 0x1.fcb70cp-1f, 0x1.fe6ed8p-1f, 0x1.ff713cp-1f, 0x1.ffcb3p-1f, 0x1.ffec4ap-1f,
     0x1.fff89ep-1f, 0x1.fffd48p-1f, 0x1.fffefep-1f, 0x1.ffffa2p-1f, 0x1.ffffecp-1f, 0x1.fffffep-1f,
     0x1p+0f, 0x1p+0f, 0x1p+0f, 0x1p+0f, 0x1p+0f, 0x1p+0f, 0x0p+0f, 0x1.7cfefap-3f, 0x1.343ec8p-2f,
     0x1.a34e14p-2f, 0x1.037d8cp-1f, 0x1.3279f2p-1f, 0x1.57c9dp-1f, 0x1.7824b6p-1f},
    {0x1.5d511p-2f, 0x1.cdf7fap-3f, 0x1.2841fp-3f, 0x1.6a71dcp-4f, 0x1.c814ccp-5f, 0x1.1a9272p-5f,
     0x1.557344p-6f, 0x1.a320bp-7f, 0x1.908acp-8f, 0x1.1d604ep-9f, 0x1.a66a56p-11f, 0x1.3b59eep-12f,
     0x1.d87c6ap-14f, 0x1.5bfee4p-15f, 0x1.01ff8ap-16f, 0x1.77ffa4p-18f, 0x1.400656p-20f,
     0x1.4cb68p-23f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x1p+0f, 0x1.ee47dp-1f,
     0x1.d19b1cp-1f, 0x1.aa26eap-1f, 0x1.7c7c5cp-1f, 0x1.488c2p-1f, 0x1.1928cap-1f, 0x1.d75424p-2f},
    {-0x1.1b8b88p-2f, -0x1.968adcp-3f, -0x1.11fe6ep-3f, -0x1.5a09a4p-4f, -0x1.bb33fcp-5f,
     -0x1.15a7c4p-5f, -0x1.51df64p-6f, -0x1.a07p-7f, -0x1.8f4a4p-8f, -0x1.1d0b52p-9f, -0x1.a636c6p-11f,
     -0x1.3b4796p-12f, -0x1.d86c4ap-14f, -0x1.5bf54cp-15f, -0x1.01edp-16f, -0x1.77e428p-18f,
     -0x1.3fb2c4p-20f, -0x1.86d872p-21f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f,
     0x1.4edf42p-22f, -0x1.6fcf5ap-3f, -0x1.185048p-2f, -0x1.5cffc6p-2f, -0x1.81ac6cp-2f,
     -0x1.8953fcp-2f, -0x1.79935ap-2f, -0x1.5a439cp-2f},
    {0x1.c6ec36p-4f, 0x1.978d46p-4f, 0x1.354d28p-4f, 0x1.a31e26p-5f, 0x1.16a99cp-5f, 0x1.65474ep-6f,
     0x1.b90a4cp-7f, 0x1.120fb2p-7f, 0x1.089dfap-8f, 0x1.7b2a26p-10f, 0x1.19378cp-11f, 0x1.a44516p-13f,
     0x1.3afeeep-14f, 0x1.d00f56p-16f, 0x1.57f70ap-17f, 0x1.f5422ep-19f, 0x1.a9a3ap-21f,
     -0x1.78353ep-25f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, -0x1.555b2cp-2f,
     -0x1.274d96p-2f, -0x1.c40c7p-3f, -0x1.1a5f54p-3f, -0x1.d168c4p-5f, 0x1.06631cp-6f, 0x1.08705ap-4f,
     0x1.851b5cp-4f},
    {0x1.4ca39cp-9f, -0x1.5a9eacp-6f, -0x1.9c2888p-6f, -0x1.52b8fp-6f, -0x1.ec9f44p-7f, -0x1.4c647p-7f,
     -0x1.a7329p-8f, -0x1.0b8f9ep-8f, -0x1.08199cp-9f, -0x1.7dddfp-11f, -0x1.1c090cp-12f,
     -0x1.a8eeeap-14f, -0x1.3e8742p-15f, -0x1.d58232p-17f, -0x1.5f5786p-18f, -0x1.001aeap-19f,
     -0x1.bdaf72p-22f, 0x1.339dccp-19f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f,
     0x1.ef0b9p-12f, 0x1.cfe0a6p-4f, 0x1.42291cp-3f, 0x1.5bb7dp-3f, 0x1.3bdceap-3f, 0x1.e4f9e4p-4f,
     0x1.4646cep-4f, 0x1.605df6p-5f},
    {-0x1.07a202p-5f, -0x1.37e7dcp-7f, 0x1.607d8ap-10f, 0x1.2e7836p-8f, 0x1.25f792p-8f, 0x1.bf48bap-9f,
     0x1.3392b6p-9f, 0x1.921eeap-10f, 0x1.944526p-11f, 0x1.332b3p-12f, 0x1.c92e64p-14f, 0x1.51cbp-15f,
     0x1.f1fea4p-17f, 0x1.6eaf94p-18f, 0x1.18922ep-19f, 0x1.986292p-21f, 0x1.6e5ddcp-23f,
     0x1.53e52ap-20f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x1.0a380cp-3f,
     0x1.8967fp-4f, 0x1.7a5cdep-5f, -0x1.b13d64p-8f, -0x1.760198p-5f, -0x1.e99abcp-5f, -0x1.1139aap-4f,
     -0x1.b4949cp-5f},
};

//@ part tanh_$t
//@ for f32x16 f32
//@ needs exp_$t recip_$t abs_$t with_sign_$t pick_$t below_$t mad_$t real_$t look_$t tanh_table
INLINE $v tanh_$t($v x)
{
#ifdef __AVX512F__
    /* Three bits of 1 + |x| and its exponent choose a piece: fine steps near 0, coarse ones far out. */
    $v size = below_$t(abs_$t(x), 10.0f);
    $i i = bits_$t(size + 1) >> 20;
    $v u = size - look_$t(tanh_table[0], i);
    $v p = mad_$t(look_$t(tanh_table[6], i), u, look_$t(tanh_table[5], i));
    p = mad_$t(p, u, look_$t(tanh_table[4], i));
    p = mad_$t(p, u, look_$t(tanh_table[3], i));
    p = mad_$t(p, u, look_$t(tanh_table[2], i));
    p = mad_$t(p, u, look_$t(tanh_table[1], i));
    return with_sign_$t(p, x);
#else
    $v size = abs_$t(x), z = x * x;
    $v s = z * -0x1.76917ap-8f + 0x1.525078p-6f;
    s = s * z - 0x1.b8433cp-5f;
    s = s * z + 0x1.110760p-3f;
    s = s * z - 0x1.555534p-2f;
    s = (z * x) * s + x;
    $v b = 1 - 2 * recip_$t(exp_$t(2 * below_$t(size, 10.0f)) + 1);
    return pick_$t(size < 0.625f, s, with_sign_$t(b, x));
#endif
}

//@ part tanh_$t
//@ for f64x8 f64
//@ needs exp_$t recip_$t abs_$t with_sign_$t pick_$t below_$t
INLINE $v tanh_$t($v x)
{
    $v size = abs_$t(x), z = x * x;
    $v s = z * -0x1.1b42663bb30f6p-19 + 0x1.7e4c940c59081p-17;
    s = s * z - 0x1.2f8ad72ff8b0cp-15;
    s = s * z + 0x1.906e49a69eb6dp-14;
    s = s * z - 0x1.f47f3aff95de1p-13;
    s = s * z + 0x1.35495ff2fbb8bp-11;
    s = s * z - 0x1.7da22d6afdd50p-10;
    s = s * z + 0x1.d6d3bf0a9928ep-9;
    s = s * z - 0x1.226e3505aecb1p-7;
    s = s * z + 0x1.664f488088b73p-6;
    s = s * z - 0x1.ba1ba1ba133c1p-5;
    s = s * z + 0x1.1111111111091p-3;
    s = s * z - 0x1.5555555555555p-2;
    s = (z * x) * s + x;
    $v b = 1 - 2 * recip_$t(exp_$t(2 * below_$t(size, 20.0)) + 1);
    return pick_$t(size < 0.625, s, with_sign_$t(b, x));
}
