/*
 * The functions of the prelude, second part: exponentials and logarithms. Coefficients: tools/minimax.py. Errors:
 * docs/accuracy.md, held by test_math.
 * SPDX-License-Identifier: MIT
 */

/* exp and its kin: x = n ln 2 + r, |r| <= ln 2 / 2. exp_parts gives p and n with exp(x + low) = p 2^n for a small
       low. */

//@ part exp_parts_$t
//@ for f32x16 f32
//@ needs below_$t above_$t
INLINE $v exp_parts_$t($v x, $v low, $v *n)
{
    x = above_$t(below_$t(x, 89.0f), -126.0f);
    *n = (x * 0x1.715476p+0f + 0x1.8p23f) - 0x1.8p23f;
    $v r = x - *n * 0x1.63p-1f;
    r = r - *n * -0x1.bd0106p-13f;
    r = r + low;
    $v p = r * 0x1.6a4f5ep-10f + 0x1.123974p-7f;
    p = p * r + 0x1.5558aep-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * r + 1;
    return p * r + 1;
}

//@ part exp_$t
//@ for f32x16 f32
//@ needs below_$t above_$t scale_$t
INLINE $v exp_$t($v x)
{
    x = above_$t(below_$t(x, 89.0f), -126.0f);
    $v n = (x * 0x1.715476p+0f + 0x1.8p23f) - 0x1.8p23f;
    $v r = x - n * 0x1.63p-1f;
    r = r - n * -0x1.bd0106p-13f;
    $v p = r * 0x1.6a4f5ep-10f + 0x1.123974p-7f;
    p = p * r + 0x1.5558aep-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * r + 1;
    p = p * r + 1;
    return scale_$t(p, n);
}

//@ part exp_parts_$t
//@ for f64x8 f64
//@ needs below_$t above_$t
INLINE $v exp_parts_$t($v x, $v low, $v *n)
{
    x = above_$t(below_$t(x, 710.0), -1400.0);
    *n = (x * 0x1.71547652b82fep+0 + 0x1.8p52) - 0x1.8p52;
    $v r = x - *n * 0x1.62e42feep-1;
    r = r - *n * 0x1.a39ef35793c76p-33;
    r = r + low;
    $v p = r * 0x1.adadd911742bep-26 + 0x1.28aded7374ed9p-22;
    p = p * r + 0x1.71df06c545bfbp-19;
    p = p * r + 0x1.a019996c2ae62p-16;
    p = p * r + 0x1.a01a0138afe20p-13;
    p = p * r + 0x1.6c16c18473b2ep-10;
    p = p * r + 0x1.1111111124eefp-7;
    p = p * r + 0x1.55555555506c3p-5;
    p = p * r + 0x1.5555555555506p-3;
    p = p * r + 0x1.000000000000ap-1;
    p = p * r + 1;
    return p * r + 1;
}

//@ part exp_$t
//@ for f64x8 f64
//@ needs exp_parts_$t scale_$t fill_$t
INLINE $v exp_$t($v x)
{
    $v n, p = exp_parts_$t(x, fill_$t(0), &n);
    return scale_$t(p, n);
}

//@ part exp2_$t
//@ for f32x16 f32
//@ needs below_$t above_$t scale_$t
INLINE $v exp2_$t($v x)
{
    x = above_$t(below_$t(x, 129.0f), -180.0f);
    $v n = (x + 0x1.8p23f) - 0x1.8p23f, r = x - n;
    $v p = r * 0x1.417bdcp-13f + 0x1.5f0938p-10f;
    p = p * r + 0x1.3b2dd0p-7f;
    p = p * r + 0x1.c6af7ap-5f;
    p = p * r + 0x1.ebfbdcp-3f;
    p = p * r + 0x1.62e430p-1f;
    p = p * r + 1;
    return scale_$t(p, n);
}

//@ part exp2_$t
//@ for f64x8 f64
//@ needs below_$t above_$t scale_$t
INLINE $v exp2_$t($v x)
{
    x = above_$t(below_$t(x, 1025.0), -2000.0);
    $v n = (x + 0x1.8p52) - 0x1.8p52, r = x - n;
    $v p = r * 0x1.e831e24e41cdcp-32 + 0x1.e612dea202e63p-28;
    p = p * r + 0x1.b525f6cbc9585p-24;
    p = p * r + 0x1.62bfcd1254081p-20;
    p = p * r + 0x1.ffcbfc034b27bp-17;
    p = p * r + 0x1.4309130c5cf1dp-13;
    p = p * r + 0x1.5d87fe78b1bdep-10;
    p = p * r + 0x1.3b2ab6fba0fddp-7;
    p = p * r + 0x1.c6b08d704a0dcp-5;
    p = p * r + 0x1.ebfbdff82c59dp-3;
    p = p * r + 0x1.62e42fefa39efp-1;
    p = p * r + 1;
    return scale_$t(p, n);
}

//@ part expm1_$t
//@ for f32x16 f32
//@ needs below_$t above_$t real_$t to_int_$t abs_$t pick_$t
INLINE $v expm1_$t($v x)
{
    $v y = above_$t(below_$t(x, 89.0f), -18.0f);
    $v n = (y * 0x1.715476p+0f + 0x1.8p23f) - 0x1.8p23f;
    $v r = y - n * 0x1.63p-1f;
    r = r - n * -0x1.bd0106p-13f;
    $v p = r * 0x1.a2477ap-13f + 0x1.6d3c82p-10f;
    p = p * r + 0x1.111002p-7f;
    p = p * r + 0x1.5554f6p-5f;
    p = p * r + 0x1.555556p-3f;
    p = p * r + 0.5f;
    p = (r * r) * p + r;
    $v s = real_$t((to_int_$t(n) + 126) << 23); /* 2^(n-1), so that n = 128 does not overflow too early */
    p = 2 * (s * p + (s - 0.5f));
    return pick_$t(abs_$t(x) < 0x1p-25f, x, pick_$t(x == x, p, x));
}

//@ part expm1_$t
//@ for f64x8 f64
//@ needs below_$t above_$t real_$t to_int_$t abs_$t pick_$t
INLINE $v expm1_$t($v x)
{
    $v y = above_$t(below_$t(x, 710.0), -38.0);
    $v n = (y * 0x1.71547652b82fep+0 + 0x1.8p52) - 0x1.8p52;
    $v r = y - n * 0x1.62e42feep-1;
    r = r - n * 0x1.a39ef35793c76p-33;
    $v p = r * 0x1.1f7b4e75eea1bp-29 + 0x1.af5f5cca0081fp-26;
    p = p * r + 0x1.27e4d6cf7d15fp-22;
    p = p * r + 0x1.71ddf7f403aa6p-19;
    p = p * r + 0x1.a01a01a887720p-16;
    p = p * r + 0x1.a01a01b00d5aap-13;
    p = p * r + 0x1.6c16c16c15f3ep-10;
    p = p * r + 0x1.111111110f643p-7;
    p = p * r + 0x1.5555555555556p-5;
    p = p * r + 0x1.5555555555559p-3;
    p = p * r + 0.5;
    p = (r * r) * p + r;
    $v s = real_$t((to_int_$t(n) + 1022) << 52);
    p = 2 * (s * p + (s - 0.5));
    return pick_$t(abs_$t(x) < 0x1p-54, x, pick_$t(x == x, p, x));
}

/* log and its kin: x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2). */

//@ part log_end_$t
//@ for f32x16 f32 f64x8 f64
//@ needs pick_$t fill_$t
/* The value r for 0 < x < infinity; -infinity at 0, NaN below. */
INLINE $v log_end_$t($v x, $v r)
{
    $v other = pick_$t(x == 0, fill_$t(-__builtin_inff()), pick_$t(x > 0, x, fill_$t(__builtin_nanf(""))));
    return pick_$t((x > 0) & (x < __builtin_inff()), r, other);
}

//@ part log_tail_$t
//@ for f32x16 f32
//@ needs mad_$t
/* log(1 + f) - f + start */
INLINE $v log_tail_$t($v f, $v start)
{
    $v q = f * -0x1.41ecdep-4f + 0x1.07d2a6p-3f;
    q = q * f - 0x1.0ce080p-3f;
    q = q * f + 0x1.226da0p-3f;
    q = q * f - 0x1.547886p-3f;
    q = q * f + 0x1.99a5a6p-3f;
    q = q * f - 0x1.000220p-2f;
    q = q * f + 0x1.55554ap-2f;
    q = q * f - 0.5f;
    return mad_$t(f * f, q, start);
}

//@ part log_tail_$t
//@ for f64x8 f64
INLINE $v log_tail_$t($v f, $v start)
{
    $v s = f / (f + 2), z = s * s, h = 0.5 * f * f;
    $v q = z * 0x1.2f048769c2a1ep-3 + 0x1.39a1d99ca7472p-3;
    q = q * z + 0x1.74663d4830b60p-3;
    q = q * z + 0x1.c71c5213dfc68p-3;
    q = q * z + 0x1.24924941e03ffp-2;
    q = q * z + 0x1.999999997ff40p-2;
    q = q * z + 0x1.5555555555592p-1;
    q = q * z + h;
    q = s * q - h;
    return q + start;
}

//@ part log_$t
//@ for f32x16 f32
//@ needs real_$t pick_$t fill_$t to_real_$t log_tail_$t log_end_$t
INLINE $v log_$t($v x)
{
    $i small = x < 0x1p-126f;
    $i b = bits_$t(pick_$t(small, x * 0x1p25f, x)) - 0x3f3504f3;
    $v n = to_real_$t(b >> 23) - pick_$t(small, fill_$t(25), fill_$t(0));
    $v f = real_$t((b & 0x7fffff) + 0x3f3504f3) - 1;
    $v r = log_tail_$t(f, n * -0x1.bd0106p-13f);
    r = f + r;
    return log_end_$t(x, n * 0x1.63p-1f + r);
}

//@ part log_$t
//@ for f64x8 f64
//@ needs real_$t pick_$t fill_$t to_real_$t log_tail_$t log_end_$t
INLINE $v log_$t($v x)
{
    $i small = x < 0x1p-1022;
    $i b = bits_$t(pick_$t(small, x * 0x1p54, x)) - 0x3fe6a09e667f3bcd;
    $v n = to_real_$t(b >> 52) - pick_$t(small, fill_$t(54), fill_$t(0));
    $v f = real_$t((b & 0xfffffffffffff) + 0x3fe6a09e667f3bcd) - 1;
    $v r = log_tail_$t(f, n * 0x1.a39ef35793c76p-33);
    r = f + r;
    return log_end_$t(x, n * 0x1.62e42feep-1 + r);
}

//@ part log2_$t
//@ for f32x16 f32
//@ needs mad_$t real_$t pick_$t fill_$t to_real_$t log_end_$t
INLINE $v log2_$t($v x)
{
    $i small = x < 0x1p-126f;
    $i b = bits_$t(pick_$t(small, x * 0x1p25f, x)) - 0x3f3504f3;
    $v n = to_real_$t(b >> 23) - pick_$t(small, fill_$t(25), fill_$t(0));
    $v f = real_$t((b & 0x7fffff) + 0x3f3504f3) - 1;
    $v q = f * -0x1.cea0b0p-4f + 0x1.7fa184p-3f;
    q = q * f - 0x1.85decap-3f;
    q = q * f + 0x1.a29010p-3f;
    q = q * f - 0x1.eaddf4p-3f;
    q = q * f + 0x1.2781cep-2f;
    q = q * f - 0x1.7159c2p-2f;
    q = q * f + 0x1.ec7086p-2f;
    q = q * f - 0x1.715472p-1f;
    $v r = mad_$t(f * f, q, f * 0x1.4ae0c0p-26f); /* log2(e) in two parts */
    r = f * 0x1.715476p+0f + r;
    return log_end_$t(x, n + r);
}

//@ part log2_$t
//@ for f64x8 f64
//@ needs real_$t pick_$t fill_$t to_real_$t log_tail_$t log_end_$t
INLINE $v log2_$t($v x)
{
    $i small = x < 0x1p-1022;
    $i b = bits_$t(pick_$t(small, x * 0x1p54, x)) - 0x3fe6a09e667f3bcd;
    $v n = to_real_$t(b >> 52) - pick_$t(small, fill_$t(54), fill_$t(0));
    $v f = real_$t((b & 0xfffffffffffff) + 0x3fe6a09e667f3bcd) - 1;
    $v t = log_tail_$t(f, fill_$t(0));
    /* log(1 + f) = high + low, high with few bits so that its product with log2(e)'s high part is exact. */
    $v high = real_$t(bits_$t(f + t) & ~0xffffffffl), low = (f - high) + t;
    $v r = low * 0x1.71547652b82fep+0;
    r = high * 0x1.94ae0bf85ddf4p-22 + r;
    $v h = high * 0x1.71547p+0, s = n + h;
    return log_end_$t(x, s + (((n - s) + h) + r));
}

//@ part log1p_$t
//@ for f32x16 f32
//@ needs real_$t pick_$t fill_$t to_real_$t log_tail_$t log_end_$t abs_$t
INLINE $v log1p_$t($v x)
{
    $v u = 1 + x, v = u - 1, c = (1 - (u - v)) + (x - v); /* 1 + x = u + c exactly */
    $i b = bits_$t(u) - 0x3f3504f3, e = b >> 23;
    $v n = to_real_$t(e);
    $v f = real_$t((b & 0x7fffff) + 0x3f3504f3) - 1;
    f = f + pick_$t(x < 0x1p40f, c * real_$t((127 - e) << 23), fill_$t(0));
    $v r = log_tail_$t(f, n * -0x1.bd0106p-13f);
    r = f + r;
    r = log_end_$t(u, n * 0x1.63p-1f + r);
    return pick_$t(abs_$t(x) < 0x1p-25f, x, r);
}

//@ part log1p_$t
//@ for f64x8 f64
//@ needs real_$t pick_$t fill_$t to_real_$t log_tail_$t log_end_$t abs_$t
INLINE $v log1p_$t($v x)
{
    $v u = 1 + x, v = u - 1, c = (1 - (u - v)) + (x - v);
    $i b = bits_$t(u) - 0x3fe6a09e667f3bcd, e = b >> 52;
    $v n = to_real_$t(e);
    $v f = real_$t((b & 0xfffffffffffff) + 0x3fe6a09e667f3bcd) - 1;
    f = f + pick_$t(x < 0x1p70, c * real_$t((1023 - e) << 52), fill_$t(0));
    $v r = log_tail_$t(f, n * 0x1.a39ef35793c76p-33);
    r = f + r;
    r = log_end_$t(u, n * 0x1.62e42feep-1 + r);
    return pick_$t(abs_$t(x) < 0x1p-54, x, r);
}
