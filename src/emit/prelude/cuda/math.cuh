/*
 * Fast functions of the CUDA prelude, f32: a handful of instructions each, within the bounds of docs/accuracy.md.
 * Where the exponential or logarithm of the hardware is good enough relative to the result it is used; near zeros of
 * a function (expm1, log1p, tanh, erf, sin) there is a polynomial. Coefficients: tools/minimax.py.
 * SPDX-License-Identifier: MIT
 */

//@ part exp_f32
//@ needs ex2_approx
INLINE float exp_f32(float x) { return ex2_approx(x * 0x1.715476p+0f); }

//@ part exp2_f32
//@ needs ex2_approx
INLINE float exp2_f32(float x) { return ex2_approx(x); }

//@ part log2_f32
//@ needs lg2_approx
INLINE float log2_f32(float x) { return lg2_approx(x); }

//@ part log_f32
//@ needs lg2_approx
INLINE float log_f32(float x) { return lg2_approx(x) * 0x1.62e430p-1f; }

//@ part expm1_f32
//@ needs mad_f32 real_f32 abs_f32
INLINE float expm1_f32(float x)
{
    /* x = n ln 2 + r: 2^n (r + r^2 P(r)) + (2^n - 1) */
    float y = x > 89.0f ? 89.0f : x < -18.0f ? -18.0f : x;
    float n = mad_f32(y, 0x1.715476p+0f, 0x1.8p23f) - 0x1.8p23f;
    float r = mad_f32(n, 0x1.bd0106p-13f, mad_f32(n, -0x1.63p-1f, y));
    float p = mad_f32(r, 0x1.a2477ap-13f, 0x1.6d3c82p-10f);
    p = mad_f32(p, r, 0x1.111002p-7f);
    p = mad_f32(p, r, 0x1.5554f6p-5f);
    p = mad_f32(p, r, 0x1.555556p-3f);
    p = mad_f32(p, r, 0.5f);
    p = mad_f32(r * r, p, r);
    float s = x == x ? real_f32(((int)n + 126) << 23) : x; /* 2^(n-1): n = 128 must not overflow too early */
    const float far = 2 * mad_f32(s, p, s - 0.5f);
    return abs_f32(x) < 0x1p-25f ? x : far;
}

//@ part log1p_f32
//@ needs mad_f32 real_f32 abs_f32
INLINE float log1p_f32(float x)
{
    /* 1 + x = u + c exactly = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2) */
    float u = 1 + x, v = u - 1, c = (1 - (u - v)) + (x - v);
    int b = bits_f32(u) - 0x3f3504f3, e = b >> 23;
    float n = (float)e, f = real_f32((b & 0x7fffff) + 0x3f3504f3) - 1;
    const float g = mad_f32(c, real_f32((int)((127u - (unsigned)e) << 23)), f);
    f = x < 0x1p40f ? g : f;
    float q = mad_f32(f, -0x1.41ecdep-4f, 0x1.07d2a6p-3f);
    q = mad_f32(q, f, -0x1.0ce080p-3f);
    q = mad_f32(q, f, 0x1.226da0p-3f);
    q = mad_f32(q, f, -0x1.547886p-3f);
    q = mad_f32(q, f, 0x1.99a5a6p-3f);
    q = mad_f32(q, f, -0x1.000220p-2f);
    q = mad_f32(q, f, 0x1.55554ap-2f);
    q = mad_f32(q, f, -0.5f);
    float r = mad_f32(n, 0x1.63p-1f, f + mad_f32(f * f, q, n * -0x1.bd0106p-13f));
    if (!(u > 0)) r = u == 0 ? real_f32((int)0xff800000) : real_f32(0x7fc00000); /* as a choice of two values NVRTC 13.0
     * dropped it behind exp: softplus of NaN was 89.4 on a GPU */
    return abs_f32(x) < 0x1p-25f || u > 0x1.fffffep127f ? x : r;
}

//@ part tanh_f32
//@ needs ex2_approx rcp_approx mad_f32 abs_f32 with_sign_f32
INLINE float tanh_f32(float x)
{
    float size = abs_f32(x), z = x * x;
    float s = mad_f32(z, -0x1.76917ap-8f, 0x1.525078p-6f);
    s = mad_f32(s, z, -0x1.b8433cp-5f);
    s = mad_f32(s, z, 0x1.110760p-3f);
    s = mad_f32(s, z, -0x1.555534p-2f);
    s = mad_f32(z * x, s, x);
    float b = mad_f32(-2.0f, rcp_approx(ex2_approx(size * 0x1.715476p+1f) + 1), 1.0f);
    return size < 0.625f ? s : with_sign_f32(b, x);
}

//@ part erf_f32
//@ needs exp_f32 mad_f32 abs_f32 with_sign_f32
INLINE float erf_f32(float x)
{
    float size = abs_f32(x), z = x * x;
    float s = mad_f32(z, 0x1.4c37fcp-14f, -0x1.a50c28p-11f);
    s = mad_f32(s, z, 0x1.542e2cp-8f);
    s = mad_f32(s, z, -0x1.b7fe92p-6f);
    s = mad_f32(s, z, 0x1.ce2d50p-4f);
    s = mad_f32(s, z, -0x1.812740p-2f);
    s = mad_f32(s, z, 0x1.06eba8p-3f);
    s = mad_f32(s, x, x);
    float t = (size > 4.0f ? 4.0f : size) - 2; /* the logarithm of erfc */
    float b = mad_f32(t, 0x1.60dfbcp-20f, -0x1.02bf28p-17f);
    b = mad_f32(b, t, 0x1.5a2b56p-13f);
    b = mad_f32(b, t, -0x1.7979f8p-11f);
    b = mad_f32(b, t, 0x1.d201d8p-9f);
    b = mad_f32(b, t, -0x1.0dfd7ep-6f);
    b = mad_f32(b, t, -0x1.d8f61cp-1f);
    b = mad_f32(b, t, -0x1.1ac322p+2f);
    b = mad_f32(b, t, -0x1.575b32p+2f);
    const float far = with_sign_f32(1 - exp_f32(b), x);
    return size < 1 ? s : far;
}

//@ part sigmoid_f32
//@ needs ex2_approx rcp_approx
INLINE float sigmoid_f32(float x) { return rcp_approx(1 + ex2_approx(x * -0x1.715476p+0f)); }

//@ part silu_f32
//@ needs sigmoid_f32
INLINE float silu_f32(float x) { return (x < -1500.0f ? -1500.0f : x) * sigmoid_f32(x); }

//@ part gelu_tanh_f32
//@ needs ex2_approx rcp_approx mad_f32
INLINE float gelu_tanh_f32(float x)
{
    /* x sigmoid(v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3); the factors are those of v times -log2(e) */
    float t = x * mad_f32(x * x, -0x1.a5a7d0p-4f, -0x1.26aec2p+1f);
    return (x < -20.0f ? -20.0f : x) * rcp_approx(1 + ex2_approx(t));
}

//@ part gelu_f32
//@ needs ex2_approx rcp_approx mad_f32 abs_f32
INLINE float gelu_f32(float x)
{
    /* Phi(-a) = exp(-a^2 / 2) h(a), h(a) (a + 4) a polynomial in u = (a - 4) / (a + 4). */
    float a = abs_f32(x);
    a = a > 15.0f ? 15.0f : a;
    float t = rcp_approx(a + 4), u = (a - 4) * t;
    float h = mad_f32(u, -0x1.112da8p-13f, 0x1.92cd52p-13f);
    h = mad_f32(h, u, 0x1.9ef744p-10f);
    h = mad_f32(h, u, -0x1.cd4cd8p-9f);
    h = mad_f32(h, u, -0x1.edcebcp-8f);
    h = mad_f32(h, u, 0x1.eed722p-5f);
    h = mad_f32(h, u, -0x1.7dfeeep-3f);
    h = mad_f32(h, u, 0x1.8c6d8ep-2f);
    h = mad_f32(h, u, -0x1.373e3cp-1f);
    h = mad_f32(h, u, 0x1.82b4bcp-1f);
    float tail = h * t * ex2_approx(a * a * -0x1.715476p-1f);
    return mad_f32(-a, tail, x < 0 ? -0.0f : x); /* without a branch: neighbours overlap */
}

//@ part near_gelu_f32
//@ needs ex2_approx mad_f32 abs_f32 min_f32 max_f32
/* For a result that is rounded to bf16: Phi(-a) = 2^p(a), p of degree 5. A relative error of 2^-11.9 up to 5.5, where the
 * tail is 1e-7; beyond, p falls a little faster than it should. */
INLINE float near_gelu_f32(float x)
{
    float a = min_f32(abs_f32(x), 15.0f);
    float p = mad_f32(a, -0x1.e929d6p-13f, 0x1.3f253cp-8f);
    p = mad_f32(p, a, -0x1.6d5ae4p-5f);
    p = mad_f32(p, a, -0x1.e0f416p-2f);
    p = mad_f32(p, a, -0x1.257158p+0f);
    p = mad_f32(p, a, -0x1.001788p+0f);
    return mad_f32(-a, ex2_approx(p), max_f32(x, 0));
}

//@ part softplus_f32
//@ needs exp_f32 log1p_f32 abs_f32
INLINE float softplus_f32(float x) { return (x > 0 ? x : 0) + log1p_f32(exp_f32(-abs_f32(x))); }

//@ part pow_f32
//@ needs library
INLINE float pow_f32(float x, float y) { return MATH(powf)(x, y); }

/* sin and cos: r = x - n pi/2 in three parts up to 2^16; beyond, the bits of 2/pi that matter. */

//@ part trig_far
//@ needs real_f32
static __device__ __noinline__ float trig_far(float x, int *quarter)
{
    const unsigned digits[8] = {0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
    unsigned size = (unsigned)bits_f32(x) & 0x7fffffff, m = (size & 0x7fffff) | 0x800000;
    int shift = (int)(size >> 23) - 150 - 2 + 32; /* m 2^(shift - 32) is |x| / 4: higher bits of 2/pi give turns */
    int word = shift >> 5, bit = shift & 31;
    unsigned w0 = 0, w1 = 0, w2 = 0, w3 = 0;
    for (int k = 0; k < 8; k++) {
        if (k == word) w0 = digits[k];
        if (k == word + 1) w1 = digits[k];
        if (k == word + 2) w2 = digits[k];
        if (k == word + 3) w3 = digits[k];
    }
    if (bit) {
        w0 = w0 << bit | w1 >> (32 - bit);
        w1 = w1 << bit | w2 >> (32 - bit);
        w2 = w2 << bit | w3 >> (32 - bit);
    }
    /* m * 0.w0 w1 w2 in units of 2^-64, the whole turns dropped; the top two bits are the quarter. */
    unsigned long p = ((unsigned long)m * w0 << 32) + (unsigned long)m * w1 + ((unsigned long)m * w2 >> 32);
    int q = (int)(p >> 62);
    long rest = (long)(p << 2);
    q += rest < 0;
    float r = (float)((double)rest * 0x1.921fb54442d18p-64);
    *quarter = x < 0 ? -q : q;
    return x < 0 ? -r : r;
}

//@ part trig_f32
//@ needs trig_far mad_f32 abs_f32
/* sin(x + quarter * pi/2) */
INLINE float trig_f32(float x, int quarter)
{
    float n = mad_f32(x, 0x1.45f306p-1f, 0x1.8p23f) - 0x1.8p23f;
    float r = mad_f32(n, 0x1.ee59dap-50f, mad_f32(n, 0x1.777a5cp-25f, mad_f32(n, -0x1.921fb6p+0f, x)));
    int k = (int)n;
    if (!(abs_f32(x) <= 65536)) r = x - x == 0 ? trig_far(x, &k) : x - x;
    k += quarter;
    float z = r * r;
    float s = mad_f32(z, 0x1.7bf2ecp-19f, -0x1.a058e6p-13f);
    s = mad_f32(s, z, 0x1.111174p-7f);
    s = mad_f32(s, z, -0x1.555556p-3f);
    s = mad_f32(z * r, s, r);
    float c = mad_f32(z, 0x1.99e1e4p-16f, -0x1.6c0c1cp-10f);
    c = mad_f32(c, z, 0x1.55554ap-5f);
    c = mad_f32(c, z, -0.5f);
    c = mad_f32(c, z, 1);
    float y = k & 1 ? c : s;
    return k & 2 ? -y : y;
}

//@ part sin_f32
//@ needs trig_f32
INLINE float sin_f32(float x) { return trig_f32(x, 0); }

//@ part cos_f32
//@ needs trig_f32
INLINE float cos_f32(float x) { return trig_f32(x, 1); }
