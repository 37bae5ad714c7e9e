/*
 * GELU of the prelude, x Phi(x), and its tanh form. Both are max(x, 0) - a f(a), a = |x|, f falling from 1/2 to nothing: with 32
 * vector registers of 16 floats f is a table of polynomials, as in tanh.h, in a third of the time.
 * Of negative x beyond the table, where the result is almost 0 and keeps its digits, and without such registers: an exponential.
 * Coefficients: tools/minimax.py. Errors: docs/accuracy.md, held by test_math.
 * SPDX-License-Identifier: MIT
 */

//@ part gelu_far_$t
//@ for f32x16 f32
//@ needs exp_parts_$t recip_$t abs_$t pick_$t scale_$t above_$t below_$t real_$t
INLINE $v gelu_far_$t($v x)
{
    /* Phi(-a) = exp(-a^2 / 2) h(a), h(a) (a + 4) a polynomial in u = (a - 4) / (a + 4). */
    $v a = below_$t(abs_$t(x), 15.0f), d = a + 4, t = recip_$t(d), u = (a - 4) * t;
    $v e = 1 - d * t; /* what is missing in t and d, given back to u and h */
    e = e - (a - (d - 4)) * t;
    u = u * e + u;
    $v h = u * -0x1.112da8p-13f + 0x1.92cd52p-13f;
    h = h * u + 0x1.9ef744p-10f;
    h = h * u - 0x1.cd4cd8p-9f;
    h = h * u - 0x1.edcebcp-8f;
    h = h * u + 0x1.eed722p-5f;
    h = h * u - 0x1.7dfeeep-3f;
    h = h * u + 0x1.8c6d8ep-2f;
    h = h * u - 0x1.373e3cp-1f;
    h = h * u + 0x1.82b4bcp-1f;
    h = h * t;
    h = h * e + h;
    $v top = real_$t(bits_$t(a) & ~0xfff), rest = (a - top) * (a + top); /* a^2 = top^2 + rest */
    $v n, p = exp_parts_$t(-0.5f * (top * top), -0.5f * rest, &n);
    p = p * h;
    $v far = pick_$t(x < 0, scale_$t(p * above_$t(x, -15.0f), n), x * (1 - scale_$t(p, n)));
    $v z = x * x; /* up to 1: Phi(x) = 1/2 + x G(x^2) */
    $v g = z * -0x1.212ff6p-17f + 0x1.e7403ap-14f;
    g = g * z - 0x1.37b412p-10f;
    g = g * z + 0x1.46d88p-7f;
    g = g * z - 0x1.10586ep-4f;
    g = g * z + 0x1.988454p-2f;
    g = g * x + 0.5f;
    return pick_$t(z < 1, x * g, far);
}

//@ part gelu_table
/* Phi(-a): the coefficients of u, 5.5 a = n + u, n up to 30. */
static const float gelu_table[7][32] __attribute__((aligned(64))) = {
    {0x1p-1f, 0x1.b621a4p-2f, 0x1.6ea888p-2f, 0x1.2bbeeap-2f, 0x1.de44bp-3f, 0x1.74057ap-3f, 0x1.19ebap-3f,
     0x1.9ffaacp-4f, 0x1.2a96a4p-4f, 0x1.a0d2c4p-5f, 0x1.1ac5dcp-5f, 0x1.74bcf8p-6f, 0x1.dd2686p-7f, 0x1.287e8p-7f,
     0x1.659d8ep-8f, 0x1.a283b2p-9f, 0x1.db1c96p-10f, 0x1.058c18p-10f, 0x1.173924p-11f, 0x1.20ffacp-12f,
     0x1.21f224p-13f, 0x1.19f04cp-14f, 0x1.09ad7ap-15f, 0x1.e52cf4p-17f, 0x1.ad38d8p-18f, 0x1.6fde98p-19f,
     0x1.316b7cp-20f, 0x1.eb3c08p-22f, 0x1.7ea0fap-23f, 0x1.20a55ap-24f, 0x1.a5c04p-26f, 0x0p+0f},
    {-0x1.291a6cp-4f, -0x1.243b96p-4f, -0x1.161864p-4f, -0x1.00094ap-4f, -0x1.c81fa6p-5f, -0x1.891384p-5f,
     -0x1.47ba7ep-5f, -0x1.085bfep-5f, -0x1.9c9e4p-6f, -0x1.378a7ep-6f, -0x1.c72694p-7f, -0x1.41ab1ap-7f,
     -0x1.b7e164p-8f, -0x1.22fcc4p-8f, -0x1.747752p-9f, -0x1.cd41aep-10f, -0x1.1451c8p-10f, -0x1.404c2ap-11f,
     -0x1.6733bap-12f, -0x1.85bbaap-13f, -0x1.991bdap-14f, -0x1.9f7bb6p-15f, -0x1.983c72p-16f, -0x1.841278p-17f,
     -0x1.64e886p-18f, -0x1.3d92c6p-19f, -0x1.116288p-20f, -0x1.c7626ap-22f, -0x1.6ef0a2p-23f, -0x1.1e0fp-24f,
     -0x1.af81e2p-26f, 0x0p+0f},
    {0x1.9b70c8p-24f, 0x1.35352p-10f, 0x1.264e2p-9f, 0x1.96469cp-9f, 0x1.e2880ap-9f, 0x1.03e246p-8f, 0x1.03fc46p-8f,
     0x1.e9633cp-9f, 0x1.b481ccp-9f, 0x1.72c5f8p-9f, 0x1.2ceb46p-9f, 0x1.d3e256p-10f, 0x1.5cfecep-10f,
     0x1.f4323ep-11f, 0x1.58c214p-11f, 0x1.c97022p-12f, 0x1.244e86p-12f, 0x1.680262p-13f, 0x1.ab7b08p-14f,
     0x1.e99396p-15f, 0x1.0e7bcep-15f, 0x1.206faap-16f, 0x1.28e57ap-17f, 0x1.27101cp-18f, 0x1.1b2b1cp-19f,
     0x1.0674b2p-20f, 0x1.d5f3fap-22f, 0x1.9675c2p-23f, 0x1.53a5a4p-24f, 0x1.123d34p-25f, 0x1.abf0dp-27f, 0x0p+0f},
    {0x1.a222fap-12f, 0x1.8e84aap-12f, 0x1.5437a2p-12f, 0x1.fb48cap-13f, 0x1.2ef8a4p-13f, 0x1.80cee4p-15f,
     -0x1.5e897ap-15f, -0x1.ce50eep-14f, -0x1.44bd38p-13f, -0x1.70a33ep-13f, -0x1.72061p-13f, -0x1.544632p-13f,
     -0x1.23a378p-13f, -0x1.d69e8cp-14f, -0x1.67d1eep-14f, -0x1.05c47p-14f, -0x1.6b931ep-15f, -0x1.e30c1p-16f,
     -0x1.337eccp-16f, -0x1.77a492p-17f, -0x1.b8d13ep-18f, -0x1.f157bp-19f, -0x1.0de7a8p-19f, -0x1.1a052p-20f,
     -0x1.1bd1eap-21f, -0x1.13352ap-22f, -0x1.013c44p-23f, -0x1.cfa5f4p-25f, -0x1.93000cp-26f, -0x1.51ee5p-27f,
     -0x1.116b24p-28f, 0x0p+0f},
    {0x1.d59cccp-19f, -0x1.9daafp-17f, -0x1.c8a178p-16f, -0x1.870edep-16f, -0x1.bea464p-16f, -0x1.8b10d2p-16f,
     -0x1.fb68bep-17f, -0x1.cf3946p-17f, -0x1.3ebf9ep-17f, -0x1.dfadaep-19f, 0x1.4982b8p-19f, 0x1.425b86p-18f,
     0x1.b3257ap-18f, 0x1.d968d2p-18f, 0x1.abee5ep-18f, 0x1.69d304p-18f, 0x1.18671cp-18f, 0x1.9c8d8ap-19f,
     0x1.227332p-19f, 0x1.833f42p-20f, 0x1.e87174p-21f, 0x1.25f78p-21f, 0x1.550cdep-22f, 0x1.78e5eep-23f,
     0x1.9006f6p-24f, 0x1.991328p-25f, 0x1.907d7ap-26f, 0x1.79dfep-27f, 0x1.57173p-28f, 0x1.2bac22p-29f,
     0x1.f8ad6ep-31f, 0x0p+0f},
    {-0x1.17c998p-17f, -0x1.be914p-20f, -0x1.8a369ap-21f, -0x1.3e2a0cp-21f, 0x1.31210cp-23f, 0x1.3b6502p-21f,
     0x1.f9fc76p-22f, 0x1.533d3ep-20f, 0x1.705238p-20f, 0x1.269ab8p-20f, 0x1.618b02p-21f, 0x1.dc0d9p-22f,
     0x1.97146ap-23f, -0x1.991528p-25f, -0x1.5a506ep-23f, -0x1.f47706p-23f, -0x1.e465b6p-23f, -0x1.b2f27ep-23f,
     -0x1.64d6fep-23f, -0x1.0eb70ap-23f, -0x1.79d952p-24f, -0x1.ee9ea6p-25f, -0x1.37a912p-25f, -0x1.71fa82p-26f,
     -0x1.a2250cp-27f, -0x1.c6edb6p-28f, -0x1.d60d7p-29f, -0x1.d37c12p-30f, -0x1.be2c4ep-31f, -0x1.97d702p-32f,
     -0x1.674ad4p-33f, 0x0p+0f},
    {0x1.20db0ap-18f, 0x1.d8827ap-18f, 0x1.9cb2ecp-16f, 0x1.634afap-21f, 0x1.0ff85ap-18f, -0x1.cd6adp-22f,
     -0x1.8827a6p-17f, -0x1.110068p-20f, 0x1.ce40e8p-19f, 0x1.66390ap-19f, -0x1.6478ccp-20f, 0x1.095d9ep-22f,
     -0x1.e2fd24p-24f, -0x1.6943cp-21f, -0x1.b336acp-23f, -0x1.34fe5cp-23f, 0x1.6a4d9ep-25f, 0x1.24dcb2p-24f,
     0x1.36b71ap-27f, -0x1.21e68cp-27f, 0x1.bbae04p-30f, 0x1.a6be02p-28f, 0x1.3ed256p-30f, 0x1.020d54p-29f,
     0x1.82bc04p-30f, 0x1.389fe6p-31f, 0x1.cd15d2p-32f, 0x1.d05ae6p-33f, 0x1.c21ae8p-34f, 0x1.c201dcp-35f,
     0x1.8c5458p-36f, 0x0p+0f},
};

//@ part near_gelu_$t
//@ for f32x16 f32
//@ needs abs_$t below_$t above_$t mad_$t fill_$t look_$t gelu_table
/* For x of at least -5.54. */
INLINE $v near_gelu_$t($v x)
{
    $v size = below_$t(abs_$t(x), 5.54f), t = mad_$t(size, fill_$t(5.5f), fill_$t(0x1.8p23f));
    $i i = bits_$t(t);
    $v u = mad_$t(size, fill_$t(5.5f), 0x1.8p23f - t);
    $v p = mad_$t(look_$t(gelu_table[6], i), u, look_$t(gelu_table[5], i));
    p = mad_$t(p, u, look_$t(gelu_table[4], i));
    p = mad_$t(p, u, look_$t(gelu_table[3], i));
    p = mad_$t(p, u, look_$t(gelu_table[2], i));
    p = mad_$t(p, u, look_$t(gelu_table[1], i));
    p = mad_$t(p, u, look_$t(gelu_table[0], i));
    return mad_$t(-size, p, above_$t(x, 0));
}

//@ part gelu_f32
//@ needs near_gelu_f32 gelu_far_f32
INLINE float gelu_f32(float x)
{
#ifdef __AVX512F__
    if (!(x < -5.54f)) return near_gelu_f32(x);
#endif
    return gelu_far_f32(x);
}

//@ part gelu_f32x16
//@ needs near_gelu_f32x16 gelu_far_f32x16 any_mask pick_f32x16
OUTLINE f32x16 gelu_lanes(f32x16 x) { return gelu_far_f32x16(x); }
INLINE f32x16 gelu_f32x16(f32x16 x)
{
#ifdef __AVX512F__
    mask16 far = x < -5.54f;
    f32x16 y = near_gelu_f32x16(x);
    if (__builtin_expect(any_mask(far), 0)) y = pick_f32x16(far, gelu_lanes(x), y);
    return y;
#else
    return gelu_far_f32x16(x);
#endif
}

//@ part gelu_tanh_far_$t
//@ for f32x16 f32
//@ needs exp_parts_$t recip_$t abs_$t pick_$t fill_$t scale_$t above_$t below_$t fma_$t
INLINE $v gelu_tanh_far_$t($v x)
{
    /* x sigmoid(v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3) in two parts: its error would be the tail's. */
    $v a = below_$t(abs_$t(x), 20.0f), s = a * a, s_low = fma_$t(a, a, -s);
    $v q = s * 0x1.2444f2p-4f + 0x1.98844p+0f;
    $v q_low = fma_$t(s, fill_$t(0x1.2444f2p-4f), 0x1.98844p+0f - q);
    q_low = s_low * 0x1.2444f2p-4f + q_low;
    q_low = s * 0x1.49b16ap-29f + q_low;
    q_low = q_low + 0x1.33d436p-20f;
    $v v = a * q, v_low = fma_$t(a, q, -v);
    v_low = a * q_low + v_low;
    $v n, p = exp_parts_$t(-v, -v_low, &n), r = recip_$t(1 + scale_$t(p, n));
    $v y = pick_$t(x < 0, p, fill_$t(1)) * r;
    return scale_$t(y * above_$t(x, -20.0f), pick_$t(x < 0, n, fill_$t(0)));
}

//@ part gelu_tanh_table
/* sigmoid(-2 sqrt(2 / pi) (a + 0.044715 a^3)), 6 a = n + u. */
static const float gelu_tanh_table[7][32] __attribute__((aligned(64))) = {
    {0x1p-1f, 0x1.bc3ab2p-2f, 0x1.7a51cap-2f, 0x1.3bfa4cp-2f, 0x1.029feep-2f, 0x1.9e99eep-3f, 0x1.453d22p-3f,
     0x1.f3178cp-4f, 0x1.76510ap-4f, 0x1.123c8ep-4f, 0x1.883eaap-5f, 0x1.119a3ep-5f, 0x1.73ef8ap-6f, 0x1.ec28eap-7f,
     0x1.3c93d2p-7f, 0x1.8b6cccp-8f, 0x1.ded622p-9f, 0x1.18a024p-9f, 0x1.3dd716p-10f, 0x1.5b3db6p-11f,
     0x1.6d411ap-12f, 0x1.71379ap-13f, 0x1.65fa52p-14f, 0x1.4c4194p-15f, 0x1.26a204p-16f, 0x1.f24234p-18f,
     0x1.90efcap-19f, 0x1.326b18p-20f, 0x1.bbf52p-22f, 0x1.3040dcp-23f, 0x1.89ba44p-25f, 0x0p+0f},
    {-0x1.105838p-4f, -0x1.0c91eep-4f, -0x1.018fb2p-4f, -0x1.e0704cp-5f, -0x1.b3d0f8p-5f, -0x1.808d0ep-5f,
     -0x1.4a1978p-5f, -0x1.13b25cp-5f, -0x1.c01c9ap-6f, -0x1.625f92p-6f, -0x1.10ad6p-6f, -0x1.98341p-7f,
     -0x1.2919p-7f, -0x1.a43e1p-8f, -0x1.2090eap-8f, -0x1.80596ap-9f, -0x1.efda7ap-10f, -0x1.355b04p-10f,
     -0x1.74ba98p-11f, -0x1.b0e14ep-12f, -0x1.e3b424p-13f, -0x1.038482p-13f, -0x1.0ae4ecp-14f, -0x1.068ba4p-15f,
     -0x1.ed16c6p-17f, -0x1.b922acp-18f, -0x1.773cb2p-19f, -0x1.2edf58p-20f, -0x1.cf04eap-22f, -0x1.4e80fap-23f,
     -0x1.c7e558p-25f, 0x0p+0f},
    {0x1.c774ecp-25f, 0x1.dffbdcp-11f, 0x1.cba64ep-10f, 0x1.413914p-9f, 0x1.8411eap-9f, 0x1.ab72c8p-9f, 0x1.b7762p-9f,
     0x1.ab5edcp-9f, 0x1.8c3afap-9f, 0x1.600c48p-9f, 0x1.2cd15ep-9f, 0x1.efbcd6p-10f, 0x1.8a6f8ep-10f,
     0x1.2f6626p-10f, 0x1.c355c6p-11f, 0x1.449292p-11f, 0x1.c310eep-12f, 0x1.2e8d12p-12f, 0x1.8741d2p-13f,
     0x1.e7035cp-14f, 0x1.23392ap-14f, 0x1.4e0676p-15f, 0x1.6eb86ep-16f, 0x1.809d52p-17f, 0x1.809192p-18f,
     0x1.6ddep-19f, 0x1.4a85fcp-20f, 0x1.1af79ep-21f, 0x1.ca4298p-23f, 0x1.5e456ep-24f, 0x1.f877a4p-26f, 0x0p+0f},
    {0x1.43de36p-12f, 0x1.36addap-12f, 0x1.0fe746p-12f, 0x1.aa542ap-13f, 0x1.1c0c0cp-13f, 0x1.0e146ep-14f,
     -0x1.04489p-19f, -0x1.e1ea9ep-15f, -0x1.9cd9dep-14f, -0x1.03735ep-13f, -0x1.1a0104p-13f, -0x1.17657ap-13f,
     -0x1.025014p-13f, -0x1.c3d30cp-14f, -0x1.786d9ap-14f, -0x1.2c187cp-14f, -0x1.cadf86p-15f, -0x1.50cf5cp-15f,
     -0x1.da938ap-16f, -0x1.40bb64p-16f, -0x1.9f4ffcp-17f, -0x1.0138b6p-17f, -0x1.3048eap-18f, -0x1.571a3cp-19f,
     -0x1.700c92p-20f, -0x1.76e966p-21f, -0x1.69f0f4p-22f, -0x1.4a8168p-23f, -0x1.1cf17cp-24f, -0x1.cefd5p-26f,
     -0x1.61c808p-27f, 0x0p+0f},
    {0x1.042ab2p-19f, -0x1.79acd6p-17f, -0x1.59eb44p-18f, -0x1.9a0952p-18f, -0x1.5f00a4p-17f, -0x1.4722a6p-16f,
     -0x1.141d52p-16f, -0x1.c111a6p-17f, -0x1.43b3p-17f, -0x1.676878p-18f, -0x1.f52f0ap-25f, 0x1.0006bap-20f,
     0x1.f06d7ep-19f, 0x1.1dfb1ap-18f, 0x1.353c6cp-18f, 0x1.2b205cp-18f, 0x1.0d0264p-18f, 0x1.becb38p-19f,
     0x1.6319e8p-19f, 0x1.07d80ap-19f, 0x1.7addb6p-20f, 0x1.02c6e4p-20f, 0x1.4e137ep-21f, 0x1.99987p-22f,
     0x1.de33a2p-23f, 0x1.07242cp-23f, 0x1.1164e6p-24f, 0x1.0cc3d2p-25f, 0x1.f054a6p-27f, 0x1.af7c48p-28f,
     0x1.5f89f4p-29f, 0x0p+0f},
    {-0x1.44739p-18f, -0x1.c3a6dcp-21f, -0x1.0b85cp-20f, -0x1.2685a6p-20f, -0x1.21db62p-22f, 0x1.af7a98p-22f,
     0x1.782e6cp-21f, 0x1.e186acp-21f, 0x1.03c92p-20f, 0x1.825ac2p-21f, 0x1.37610cp-21f, 0x1.23687cp-21f,
     0x1.052f78p-22f, 0x1.18ba0cp-23f, -0x1.1178eap-30f, -0x1.4c26cap-24f, -0x1.1669a4p-23f, -0x1.23827ep-23f,
     -0x1.27e4d2p-23f, -0x1.014de2p-23f, -0x1.b33cf2p-24f, -0x1.567d06p-24f, -0x1.ed0d5ap-25f, -0x1.50ba3p-25f,
     -0x1.b5029ep-26f, -0x1.078a3p-26f, -0x1.2aab6p-27f, -0x1.401f2ap-28f, -0x1.4017bep-29f, -0x1.2be4dep-30f,
     -0x1.07046ep-31f, 0x0p+0f},
    {0x1.4042bap-19f, 0x1.a65e66p-17f, -0x1.298b56p-16f, -0x1.a5a012p-16f, -0x1.3d19cep-16f, 0x1.6163a2p-18f,
     0x1.5c444ep-19f, 0x1.9ea626p-19f, 0x1.c9dd1ep-19f, 0x1.43a94ep-19f, -0x1.5f51a6p-19f, 0x1.841aa6p-20f,
     -0x1.0badb8p-20f, 0x1.6c8428p-25f, -0x1.ede668p-26f, -0x1.2c3a0cp-24f, -0x1.3099cap-23f, -0x1.b82982p-25f,
     -0x1.db6ddcp-25f, 0x1.81255ap-26f, 0x1.f5978p-28f, -0x1.afa3b6p-30f, 0x1.8d7424p-29f, 0x1.084e4p-28f,
     0x1.2883fap-30f, 0x1.297d28p-30f, 0x1.05d558p-30f, 0x1.e4156cp-32f, 0x1.320412p-32f, 0x1.1fd1d4p-33f,
     0x1.265f8ep-34f, 0x0p+0f},
};

//@ part near_gelu_tanh_$t
//@ for f32x16 f32
//@ needs abs_$t below_$t above_$t mad_$t fill_$t look_$t gelu_tanh_table
/* For x of at least -5.08. */
INLINE $v near_gelu_tanh_$t($v x)
{
    $v size = below_$t(abs_$t(x), 5.08f), t = mad_$t(size, fill_$t(6.0f), fill_$t(0x1.8p23f));
    $i i = bits_$t(t);
    $v u = mad_$t(size, fill_$t(6.0f), 0x1.8p23f - t);
    $v p = mad_$t(look_$t(gelu_tanh_table[6], i), u, look_$t(gelu_tanh_table[5], i));
    p = mad_$t(p, u, look_$t(gelu_tanh_table[4], i));
    p = mad_$t(p, u, look_$t(gelu_tanh_table[3], i));
    p = mad_$t(p, u, look_$t(gelu_tanh_table[2], i));
    p = mad_$t(p, u, look_$t(gelu_tanh_table[1], i));
    p = mad_$t(p, u, look_$t(gelu_tanh_table[0], i));
    return mad_$t(-size, p, above_$t(x, 0));
}

//@ part gelu_tanh_f32
//@ needs near_gelu_tanh_f32 gelu_tanh_far_f32
INLINE float gelu_tanh_f32(float x)
{
#ifdef __AVX512F__
    if (!(x < -5.08f)) return near_gelu_tanh_f32(x);
#endif
    return gelu_tanh_far_f32(x);
}

//@ part gelu_tanh_f32x16
//@ needs near_gelu_tanh_f32x16 gelu_tanh_far_f32x16 any_mask pick_f32x16
OUTLINE f32x16 gelu_tanh_lanes(f32x16 x) { return gelu_tanh_far_f32x16(x); }
INLINE f32x16 gelu_tanh_f32x16(f32x16 x)
{
#ifdef __AVX512F__
    mask16 far = x < -5.08f;
    f32x16 y = near_gelu_tanh_f32x16(x);
    if (__builtin_expect(any_mask(far), 0)) y = pick_f32x16(far, gelu_tanh_lanes(x), y);
    return y;
#else
    return gelu_tanh_far_f32x16(x);
#endif
}

//@ part gelu_tanh_$t
//@ for f64x8 f64
//@ needs exp_parts_$t recip_$t abs_$t pick_$t fill_$t scale_$t above_$t below_$t fma_$t
INLINE $v gelu_tanh_$t($v x)
{
    $v a = below_$t(abs_$t(x), 40.0), s = a * a, s_low = fma_$t(a, a, -s);
    $v q = s * 0x1.2444f2a4d8b4bp-4 + 0x1.9884533d4364p+0;
    $v q_low = fma_$t(s, fill_$t(0x1.2444f2a4d8b4bp-4), 0x1.9884533d4364p+0 - q);
    q_low = s_low * 0x1.2444f2a4d8b4bp-4 + q_low;
    q_low = s * -0x1.6c843a29d1c70p-61 + q_low;
    q_low = q_low + 0x1.08d0fcb3c500cp-48;
    $v v = a * q, v_low = fma_$t(a, q, -v);
    v_low = a * q_low + v_low;
    $v n, p = exp_parts_$t(-v, -v_low, &n), r = recip_$t(1 + scale_$t(p, n));
    $v y = pick_$t(x < 0, p, fill_$t(1)) * r;
    return scale_$t(y * above_$t(x, -40.0), pick_$t(x < 0, n, fill_$t(0)));
}
