#!/usr/bin/env python3
"""Derives the polynomial coefficients of the prelude's functions (src/emit/prelude).

A polynomial is fitted in high precision to minimise the largest weighted error over an interval. The first coefficients
are rounded to the target format one at a time and the rest is fitted again, so that rounding costs nothing. Needs mpmath. Usage: tools/minimax.py [name ...]
SPDX-License-Identifier: MIT
"""
import re
import struct
import sys

from mpmath import cos, erf, erfc, exp, expm1, linspace, log, log1p, lu_solve, matrix, mp, mpf, pi, sin, sqrt, tanh

mp.prec = 200


def nearest(x, bits):
    """x rounded to a float (32) or a double (64)."""
    if bits == 64:
        return mpf(float(x))
    return mpf(struct.unpack("f", struct.pack("f", float(x)))[0])


def minimax(f, weight, low, high, powers, fixed, rounds=40):
    """Coefficients of `powers` that minimise max |weight * (f - fixed - poly)|, by Lawson's reweighted least squares
    (unlike the exchange it does not mind a weight or a basis that vanishes at 0); fixed: {power: coefficient}."""
    count, n = 24 + 6 * len(powers), len(powers)
    points = [(low + high) / 2 - (high - low) / 2 * cos(pi * (k + mpf(1) / 2) / count) for k in range(count)]
    rows = [[weight(x) * x**p for p in powers] for x in points]
    wanted = [weight(x) * (f(x) - sum(c * x**p for p, c in fixed.items())) for x in points]
    importance = [mpf(1)] * count
    best, best_size = None, None
    for _ in range(rounds):
        a, b = matrix(n), matrix(n, 1)
        for row, y, w in zip(rows, wanted, importance):
            for i in range(n):
                wi = w * row[i]
                b[i] += wi * y
                for j in range(i, n):
                    a[i, j] += wi * row[j]
        for i in range(n):
            for j in range(i):
                a[i, j] = a[j, i]
        solved = lu_solve(a, b)
        c = [solved[j] for j in range(n)]
        errors = [abs(y - sum(v * r for v, r in zip(c, row))) for row, y in zip(rows, wanted)]
        size = max(errors)
        if best is None or size < best_size:
            best, best_size = c, size
        importance = [w * e for w, e in zip(importance, errors)]
        total = sum(importance)
        if total == 0:
            break
        importance = [w / total for w in importance]
    return best


def fit(name, f, weight, low, high, powers, bits, fixed=None, one_by_one=3):
    """Prints the coefficients; the first few are rounded one at a time, the others together."""
    low, high, fixed = mpf(low), mpf(high), dict(fixed or {})
    left = list(powers)
    for _ in range(min(one_by_one, len(left))):
        fixed[left[0]] = nearest(minimax(f, weight, low, high, left, fixed)[0], bits)
        left.pop(0)
    if left:
        for p, c in zip(left, minimax(f, weight, low, high, left, fixed)):
            fixed[p] = nearest(c, bits)
    error = max(abs(weight(x) * (f(x) - sum(v * x**p for p, v in fixed.items()))) for x in linspace(low, high, 500))
    print("%s: error 2^%.2f" % (name, log(error, 2)))
    for p in powers:
        print("    x^%-2d %s %.10g" % (p, float(fixed[p]).hex(), fixed[p]), flush=True)


half = log(mpf(2)) / 2
one = lambda x: mpf(1)


def series(f, x, terms):
    """f near its removable singularity at 0."""
    return f(x) if abs(x) > mpf("1e-12") else terms


def fit_one_by_one(f, weight, low, high, powers, fixed):
    """Coefficients from power 0 on, each rounded to a float before the rest is fitted."""
    left, fixed = list(powers), dict(fixed)
    while left:
        fixed[left[0]] = nearest(minimax(f, weight, low, high, left, fixed, rounds=25)[0], 32)
        left.pop(0)
    return [fixed[p] for p in sorted(fixed)]


def tanh_pieces(degree=5):
    """tanh(a) = t + u Q(u), u = a - c, for 0 <= a < 15, in pieces that the exponent and three bits of 1 + a choose. c is a
    float whose tanh is almost one; from 9 on tanh is 1. Prints c, t and Q, each for all pieces, in the order of
    (bits of 1 + a) >> 20 modulo 32."""
    table = [None] * 32
    for piece in range(32):
        size = mpf(2)**(piece // 8)
        low = size * (1 + mpf(piece % 8) / 8) - 1
        high = low + size / 8
        if low >= 9:
            row = [mpf(0), mpf(1)] + [mpf(0)] * degree
        elif low == 0:
            row = [mpf(0), mpf(0)] + fit_one_by_one(lambda u: series(lambda t: tanh(t) / t, u, mpf(1)),
                                                    lambda u: series(lambda t: t / tanh(t), u, mpf(1)), low, high,
                                                    range(1, degree), {0: mpf(1)})
        else:
            near = [nearest((low + high) / 2 + k * (high - low) / 30000, 32) for k in range(-1000, 1000)]
            c = min(near, key=lambda x: abs(nearest(tanh(x), 32) / tanh(x) - 1))
            t = nearest(tanh(c), 32)
            row = [c, t] + fit_one_by_one(lambda u: series(lambda v: (tanh(c + v) - t) / v, u, 1 - t * t),
                                          lambda u: u / tanh(c + u), low - c, high - c, range(0, degree), {})
        table[(piece + 127 * 8) % 32] = row
    print("tanh_f32_pieces:")
    for k in range(degree + 2):
        words = [re.sub(r"\.?0*p", "p", float(row[k]).hex()) + "f" for row in table]
        print("    {" + ", ".join(words) + "}", flush=True)


def tail_pieces(name, f, scale, degree=6):
    """f(a) for a >= 0, small beside 1, relative: polynomials in u = scale * a - n, n the nearest whole number, for each n up to
    30. Beyond that it is 0. Prints the coefficients of each power, each for all n."""
    scale, table, worst = mpf(scale), [], mpf(0)
    for n in range(31):
        piece = lambda u: f((u + n) / scale)
        low = mpf(0) if n == 0 else mpf(-1) / 2
        row = fit_one_by_one(piece, lambda u: 1 / piece(u), low, mpf(1) / 2, range(degree + 1), {})
        worst = max(worst, max(abs(sum(c * u**p for p, c in enumerate(row)) / piece(u) - 1) for u in linspace(low, mpf(1) / 2, 60)))
        table.append(row)
    table.append([mpf(0)] * (degree + 1))
    print("%s: error 2^%.2f" % (name, log(worst, 2)))
    for k in range(degree + 1):
        words = [re.sub(r"\.?0*p", "p", float(row[k]).hex()) + "f" for row in table]
        print("    {" + ", ".join(words) + "},", flush=True)



FITS = {
    "exp_f32": lambda: fit("exp_f32", lambda r: exp(r), lambda r: exp(-r), -half, half, range(2, 7), 32, {0: mpf(1), 1: mpf(1)}),
    "exp_f64": lambda: fit("exp_f64", lambda r: exp(r), lambda r: exp(-r), -half, half, range(2, 12), 64, {0: mpf(1), 1: mpf(1)}),
    "exp2_f32": lambda: fit("exp2_f32", lambda r: mpf(2)**r, lambda r: mpf(2)**-r, -0.5, 0.5, range(1, 7), 32, {0: mpf(1)}),
    "exp2_f64": lambda: fit("exp2_f64", lambda r: mpf(2)**r, lambda r: mpf(2)**-r, -0.5, 0.5, range(1, 12), 64, {0: mpf(1)}),
    # expm1(r) = r + r^2 (1/2 + r P(r)), relative
    "expm1_f32": lambda: fit("expm1_f32", lambda r: series(lambda t: (expm1(t) - t - t * t / 2) / t**3, r, mpf(1) / 6),
                             lambda r: r * r, -half, half, range(0, 5), 32),
    "expm1_f64": lambda: fit("expm1_f64", lambda r: series(lambda t: (expm1(t) - t - t * t / 2) / t**3, r, mpf(1) / 6),
                             lambda r: r * r, -half, half, range(0, 10), 64),
    # log(1 + f) = f - f^2 / 2 + f^3 P(f), relative
    "log_f32": lambda: fit("log_f32", lambda f: series(lambda t: (log1p(t) - t + t * t / 2) / t**3, f, mpf(1) / 3),
                           lambda f: f * f, sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1, range(0, 8), 32),
    # log(1 + f), s = f / (2 + f): log = 2 s + s^3 P(s^2) with z = s^2
    "log_f64": lambda: fit("log_f64", lambda z: series(lambda t: (log((1 + sqrt(t)) / (1 - sqrt(t))) - 2 * sqrt(t)) / sqrt(t)**3, z, mpf(2) / 3),
                           lambda z: z, 0, mpf("0.02944"), range(0, 7), 64),
    # log2(1 + f) = f (c0 + f P(f))
    "log2_f32": lambda: fit("log2_f32", lambda f: series(lambda t: (log1p(t) / log(mpf(2)) / t - 1 / log(mpf(2))) / t, f, -1 / log(mpf(2)) / 2),
                            lambda f: f, sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1, range(0, 9), 32),
    # sin(r) = r + r^3 S(r^2), cos(r) = 1 - r^2 / 2 + r^4 C(r^2)
    "sin_f32": lambda: fit("sin_f32", lambda z: series(lambda t: (sin(sqrt(t)) - sqrt(t)) / sqrt(t)**3, z, mpf(-1) / 6),
                           lambda z: z, 0, (pi / 4)**2 * mpf("1.02"), range(0, 4), 32),
    "cos_f32": lambda: fit("cos_f32", lambda z: series(lambda t: (cos(sqrt(t)) - 1 + t / 2) / t**2, z, mpf(1) / 24),
                           lambda z: z * z, 0, (pi / 4)**2 * mpf("1.02"), range(0, 3), 32),
    "sin_f64": lambda: fit("sin_f64", lambda z: series(lambda t: (sin(sqrt(t)) - sqrt(t)) / sqrt(t)**3, z, mpf(-1) / 6),
                           lambda z: z, 0, (pi / 4)**2 * mpf("1.001"), range(0, 6), 64),
    "cos_f64": lambda: fit("cos_f64", lambda z: series(lambda t: (cos(sqrt(t)) - 1 + t / 2) / t**2, z, mpf(1) / 24),
                           lambda z: z * z, 0, (pi / 4)**2 * mpf("1.001"), range(0, 6), 64),
    # tanh(x) = x + x^3 T(x^2) up to 0.625
    "tanh_f32": lambda: fit("tanh_f32", lambda z: series(lambda t: (tanh(sqrt(t)) - sqrt(t)) / sqrt(t)**3, z, mpf(-1) / 3),
                            lambda z: z, 0, mpf("0.625")**2, range(0, 5), 32),
    "tanh_f32_pieces": tanh_pieces,
    # Phi(-a), and sigmoid(-2 sqrt(2 / pi) (a + 0.044715 a^3)): gelu(x) = max(x, 0) - a f(a), a = |x|
    "gelu_f32_pieces": lambda: tail_pieces("gelu_f32_pieces", lambda a: erfc(a / sqrt(mpf(2))) / 2, 5.5),
    "gelu_tanh_f32_pieces": lambda: tail_pieces("gelu_tanh_f32_pieces", lambda a: 1 / (1 + exp(2 * sqrt(2 / pi) * (a + mpf("0.044715") * a**3))), 6),
    # erf(x) = x + x E(x^2) up to 1
    "erf_f32": lambda: fit("erf_f32", lambda z: series(lambda t: erf(sqrt(t)) / sqrt(t) - 1, z, 2 / sqrt(pi) - 1),
                           lambda z: mpf(1), 0, 1, range(0, 7), 32),
    # log(erfc(x)) for 1 <= x <= 4, absolute error of erfc
    "erfc_f32": lambda: fit("erfc_f32", lambda t: log(erfc(t + 2)), lambda t: erfc(t + 2) , -1.05, 2, range(0, 9), 32),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or FITS:
        FITS[name]()
