/*
 * The functions of the prelude, third part: trigonometry, erf, the activations of neural networks, pow.
 * Coefficients: tools/minimax.py. Errors: docs/accuracy.md, held by test_math.
 * SPDX-License-Identifier: MIT
 */

/* sin and cos: r = x - n pi/2 in three parts, exact in the first (f64: in two, what r lacks is kept); beyond 2^16 (f64: 2^13)
 * the C library. */

//@ part trig_libm
extern double sin(double), cos(double), erf(double), erfc(double), pow(double, double), exp(double);

//@ part trig_$t
//@ for f32x16 f32
//@ needs real_$t pick_$t to_int_$t fill_$t
/* sin(x + quarter * pi/2) for |x| <= 2^16 */
INLINE $v trig_$t($v x, int quarter)
{
    $v n = (x * 0x1.45f306p-1f + 0x1.8p23f) - 0x1.8p23f;
    $v r = x - n * 0x1.921fb6p+0f;
    r = r - n * -0x1.777a5cp-25f;
    r = r - n * -0x1.ee59dap-50f;
    $i k = to_int_$t(n) + quarter;
    $v z = r * r;
    $v s = z * 0x1.7bf2ecp-19f - 0x1.a058e6p-13f;
    s = s * z + 0x1.111174p-7f;
    s = s * z - 0x1.555556p-3f;
    s = (z * r) * s + r;
    $v c = z * 0x1.99e1e4p-16f - 0x1.6c0c1cp-10f;
    c = c * z + 0x1.55554ap-5f;
    c = c * z - 0.5f;
    c = c * z + 1;
    return real_$t(bits_$t(pick_$t((k & 1) != 0, c, s)) ^ ((k & 2) << 30));
}

//@ part trig_$t
//@ for f64x8 f64
//@ needs real_$t pick_$t mad_$t
/* sin(x + quarter * pi/2) for |x| <= 2^13 */
INLINE $v trig_$t($v x, int quarter)
{
    $v t = x * 0x1.45f306dc9c883p-1 + 0x1.8p52, n = t - 0x1.8p52;
    $i k = bits_$t(t) + quarter;
    $v a = x - n * 0x1.921fb544p+0, w = n * 0x1.0b4611a6p-34; /* both exact */
    $v b = a - w, back = a - b, low = (a - (b + back)) + (back - w);
    low = low - n * 0x1.3198a2e037073p-69;
    $v r = pick_$t(n == 0, x, b + low); /* a zero keeps its sign */
    low = (b - r) + low;
    $v z = r * r, v = z * r;
    $v s = z * 0x1.5d92d92748af3p-33 - 0x1.ae5e661a8b681p-26;
    s = s * z + 0x1.71de357843228p-19;
    s = s * z - 0x1.a01a019c136a2p-13;
    s = s * z + 0x1.111111110f898p-7;
    s = r - ((z * mad_$t(-v, s, 0.5 * low) - low) - v * -0x1.5555555555549p-3);
    $v c = z * -0x1.8fb0d21fc1edep-37 + 0x1.1ee9f0c005912p-29;
    c = c * z - 0x1.27e4f812194ebp-22;
    c = c * z + 0x1.a01a019cbede7p-16;
    c = c * z - 0x1.6c16c16c1521dp-10;
    c = c * z + 0x1.555555555554cp-5;
    $v half = 0.5 * z, most = 1 - half;
    c = most + (((1 - most) - half) + mad_$t(z, z * c, -(r * low)));
    return real_$t(bits_$t(pick_$t((k & 1) != 0, c, s)) ^ ((k & 2) << 62));
}

//@ part $t_f64
//@ for sin cos
//@ needs trig_libm trig_f64 abs_f64 quarter_$t
INLINE double $t_f64(double x)
{
#ifdef __FMA__
    if (abs_f64(x) <= 8192) return trig_f64(x, quarter_$t);
#endif
    return $t(x);
}

//@ part $t_f64x8
//@ for sin cos
//@ needs trig_libm trig_f64x8 abs_f64x8 quarter_$t
OUTLINE f64x8 $t_double_lanes(f64x8 x)
{
    for (int k = 0; k < 8; k++) x[k] = $t(x[k]);
    return x;
}
INLINE f64x8 $t_f64x8(f64x8 x)
{
#ifdef __FMA__
    i64x8 far = ~(abs_f64x8(x) <= 8192);
    f64x8 r = trig_f64x8(x, quarter_$t);
    long any = 0;
    for (int k = 0; k < 8; k++) any |= far[k];
    if (__builtin_expect(any != 0, 0)) r = pick_f64x8(far, $t_double_lanes(x), r);
    return r;
#else
    return $t_double_lanes(x);
#endif
}

//@ part quarter_sin
enum { quarter_sin };

//@ part quarter_cos
enum { quarter_cos = 1 };

//@ part sin_f32
//@ needs trig_libm trig_f32 abs_f32
INLINE float sin_f32(float x)
{
#ifdef __FMA__
    if (abs_f32(x) <= 65536) return trig_f32(x, 0);
#endif
    return (float)sin(x);
}

//@ part cos_f32
//@ needs trig_libm trig_f32 abs_f32
INLINE float cos_f32(float x)
{
#ifdef __FMA__
    if (abs_f32(x) <= 65536) return trig_f32(x, 1);
#endif
    return (float)cos(x);
}

//@ part sin_f32x16
//@ needs trig_libm trig_f32x16 abs_f32x16 all_mask
OUTLINE f32x16 sin_lanes(f32x16 x)
{
    for (int k = 0; k < 16; k++) x[k] = (float)sin(x[k]);
    return x;
}
INLINE f32x16 sin_f32x16(f32x16 x)
{
#ifdef __FMA__
    mask16 near = abs_f32x16(x) <= 65536;
    if (__builtin_expect(all_mask(near), 1)) return trig_f32x16(x, 0);
    f32x16 far = sin_lanes(x), r = trig_f32x16(x, 0);
    return pick_f32x16(near, r, far);
#else
    return sin_lanes(x);
#endif
}

//@ part cos_f32x16
//@ needs trig_libm trig_f32x16 abs_f32x16 all_mask
OUTLINE f32x16 cos_lanes(f32x16 x)
{
    for (int k = 0; k < 16; k++) x[k] = (float)cos(x[k]);
    return x;
}
INLINE f32x16 cos_f32x16(f32x16 x)
{
#ifdef __FMA__
    mask16 near = abs_f32x16(x) <= 65536;
    if (__builtin_expect(all_mask(near), 1)) return trig_f32x16(x, 1);
    f32x16 far = cos_lanes(x), r = trig_f32x16(x, 1);
    return pick_f32x16(near, r, far);
#else
    return cos_lanes(x);
#endif
}

//@ part erf_f64
//@ needs trig_libm
INLINE double erf_f64(double x) { return erf(x); }

//@ part pow_f64
//@ needs trig_libm
INLINE double pow_f64(double x, double y) { return pow(x, y); }

//@ part gelu_f64
//@ needs trig_libm
INLINE double gelu_f64(double x)
{
    double z = x * -0x1.6a09e667f3bcdp-1, rest = __builtin_fma(x, -0x1.6a09e667f3bcdp-1, -z);
    rest = x * 0x1.bdd3413b26456p-55 + rest; /* -x / sqrt(2) = z + rest */
    if (!(z < 40)) return x == x ? -0.0 : x;
    if (z < -30) return x;
    return 0.5 * x * (erfc(z) - rest * (0x1.20dd750429b6dp+0 * exp(-z * z)));
}

//@ part $t_f64x8
//@ for erf gelu
//@ needs $t_f64
INLINE f64x8 $t_f64x8(f64x8 x)
{
    for (int k = 0; k < 8; k++) x[k] = $t_f64(x[k]);
    return x;
}

//@ part pow_f64x8
//@ needs pow_f64
INLINE f64x8 pow_f64x8(f64x8 x, f64x8 y)
{
    for (int k = 0; k < 8; k++) x[k] = pow_f64(x[k], y[k]);
    return x;
}

/* sigmoid and what neural networks make of it. exp(-|x|) never overflows. */

/* 2^-40 / (2^-40 + 2^-40 exp(-x)): exp(-x) neither overflows nor loses the tail, and no side needs a choice. */

//@ part sigmoid_$t
//@ for f32x16 f32
//@ needs below_$t above_$t scale_$t
INLINE $v sigmoid_$t($v x)
{
    x = above_$t(below_$t(x, 126.0f), -105.0f);
    $v n = (x * -0x1.715476p+0f + 0x1.8p23f) - 0x1.8p23f;
    $v r = -x - n * 0x1.63p-1f;
    r = r - n * -0x1.bd0106p-13f;
    $v p = r * 0x1.6a4f5ep-50f + 0x1.123974p-47f;
    p = p * r + 0x1.5558aep-45f;
    p = p * r + 0x1.555492p-43f;
    p = p * r + 0x1.fffffcp-42f;
    p = p * r + 0x1p-40f;
    p = p * r + 0x1p-40f;
    return 0x1p-40f / (0x1p-40f + scale_$t(p, n));
}

//@ part sigmoid_$t
//@ for f64x8 f64
//@ needs exp_$t recip_$t abs_$t pick_$t fill_$t
INLINE $v sigmoid_$t($v x)
{
    $v e = exp_$t(-abs_$t(x));
    return pick_$t(x < 0, e, fill_$t(1)) * recip_$t(1 + e);
}

//@ part silu_far_$t
//@ for f32x16 f32 f64x8 f64
//@ needs exp_parts_$t recip_$t abs_$t pick_$t fill_$t scale_$t above_$t
INLINE $v silu_far_$t($v x)
{
    /* Scaled last, so that the far negative tail loses nothing to subnormal steps. */
    $v n, p = exp_parts_$t(-abs_$t(x), fill_$t(0), &n), r = recip_$t(1 + scale_$t(p, n));
    $v y = pick_$t(x < 0, p, fill_$t(1)) * r;
    return scale_$t(y * above_$t(x, -1500), pick_$t(x < 0, n, fill_$t(0)));
}

//@ part silu_$t
//@ for f64x8 f64
//@ needs silu_far_$t
INLINE $v silu_$t($v x) { return silu_far_$t(x); }

/* f32: the sigmoid is a normal number down to -87. */

//@ part silu_f32
//@ needs silu_far_f32 sigmoid_f32
INLINE float silu_f32(float x) { return x < -87.0f ? silu_far_f32(x) : x * sigmoid_f32(x); }

//@ part silu_f32x16
//@ needs silu_far_f32x16 sigmoid_f32x16 any_mask pick_f32x16
OUTLINE f32x16 silu_lanes(f32x16 x) { return silu_far_f32x16(x); }
INLINE f32x16 silu_f32x16(f32x16 x)
{
    mask16 far = x < -87.0f;
    f32x16 y = x * sigmoid_f32x16(x);
    if (__builtin_expect(any_mask(far), 0)) y = pick_f32x16(far, silu_lanes(x), y);
    return y;
}

//@ part softplus_$t
//@ for f32x16 f32 f64x8 f64
//@ needs exp_$t log1p_$t abs_$t above_$t
INLINE $v softplus_$t($v x) { return above_$t(x, 0) + log1p_$t(exp_$t(-abs_$t(x))); }

//@ part erf_$t
//@ for f32x16 f32
//@ needs exp_$t abs_$t with_sign_$t pick_$t below_$t
INLINE $v erf_$t($v x)
{
    $v size = abs_$t(x), z = x * x;
    $v s = z * 0x1.4c37fcp-14f - 0x1.a50c28p-11f;
    s = s * z + 0x1.542e2cp-8f;
    s = s * z - 0x1.b7fe92p-6f;
    s = s * z + 0x1.ce2d50p-4f;
    s = s * z - 0x1.812740p-2f;
    s = s * z + 0x1.06eba8p-3f;
    s = s * x + x;
    $v t = below_$t(size, 4.0f) - 2; /* the logarithm of erfc */
    $v b = t * 0x1.60dfbcp-20f - 0x1.02bf28p-17f;
    b = b * t + 0x1.5a2b56p-13f;
    b = b * t - 0x1.7979f8p-11f;
    b = b * t + 0x1.d201d8p-9f;
    b = b * t - 0x1.0dfd7ep-6f;
    b = b * t - 0x1.d8f61cp-1f;
    b = b * t - 0x1.1ac322p+2f;
    b = b * t - 0x1.575b32p+2f;
    return pick_$t(size < 1, s, with_sign_$t(1 - exp_$t(b), x));
}

/* pow in float goes through double. */

//@ part pow_wide_$t
//@ for f64x8 f64
//@ needs exp2_$t log2_$t abs_$t pick_$t fill_$t floor_$t with_sign_$t
INLINE $v pow_wide_$t($v x, $v y)
{
    $v size = abs_$t(x), whole = floor_$t(y), half = 0.5 * y;
    $v r = exp2_$t(pick_$t(size == 1, fill_$t(0), y * log2_$t(size)));
    $i odd = (whole == y) & (floor_$t(half) != half);
    r = pick_$t(odd, with_sign_$t(r, x), r);
    r = pick_$t((x < 0) & (whole != y) & (x > -__builtin_inf()), fill_$t(__builtin_nan("")), r);
    r = pick_$t((x != x) | (y != y), x + y, r);
    return pick_$t((y == 0) | (x == 1), fill_$t(1), r);
}

//@ part pow_f32
//@ needs pow_wide_f64
INLINE float pow_f32(float x, float y) { return (float)pow_wide_f64(x, y); }

//@ part pow_f32x16
//@ needs pow_wide_f64x8 split_f32
INLINE f32x16 pow_f32x16(f32x16 x, f32x16 y)
{
    return join_f32(pow_wide_f64x8(half_f32(x, 0), half_f32(y, 0)), pow_wide_f64x8(half_f32(x, 1), half_f32(y, 1)));
}
