/*
 * What the functions of the preludes should give, in long double.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_REFERENCES_H
#define QUERN_TESTS_REFERENCES_H

#include <math.h>

typedef long double real;

static inline real ref_sigmoid(real x)
{
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

static inline real ref_gelu(real x)
{
    return isinf(x) ? (x < 0 ? -0.0L : x) : 0.5L * x * erfcl(-x * 0.70710678118654752440084436210484903928L);
}

static inline real ref_gelu_tanh(real x)
{
    if (isinf(x)) return x < 0 ? -0.0L : x;
    return x * ref_sigmoid(2 * 0.79788456080286535587989211986876373695L * (x + 0.044715L * x * x * x));
}

static inline real ref_silu(real x)
{
    return isinf(x) ? (x < 0 ? -0.0L : x) : x * ref_sigmoid(x);
}

static inline real ref_softplus(real x)
{
    return isinf(x) ? (x < 0 ? 0 : x) : (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
}

static inline real ref_rsqrt(real x)
{
    return 1 / sqrtl(x);
}

static inline real ref_relu(real x)
{
    return x < 0 ? 0 : x;
}

static inline real ref_sign(real x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x;
}

#endif
