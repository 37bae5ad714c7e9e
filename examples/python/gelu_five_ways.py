"""GELU five ways: torch's own, by hand from torch's operations, `@quern.fuse`, a Quern kernel, raw text; and torch.compile.

    python examples/python/gelu_five_ways.py [--quick]
"""

import torch
from timing import device, quick, table

import quern

KERNEL = """
kernel gelu(in T x[n], out T y[n], const int B = 1024) launch (cdiv(n, B))
{
    int i = program(0) * B;
    tile float v = x[i : B];
    y[i : B] = 0.5 * v * (1 + erf(v * 0.7071067811865476));
}
"""
CUDA = """
__global__ void gelu(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.7071067811865476f));
}
"""
C = """
#include <math.h>
void gelu(const float *x, float *y, long n)
{
    for (long i = 0; i < n; i++) y[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.7071067811865476f));
}
"""


def by_hand(x):
    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))


x = torch.randn(1 << (14 if quick else 24), device=device)
y = torch.empty_like(x)
kernel = quern.compile(KERNEL)
fused = quern.fuse(by_hand)
if device == "cuda":
    text = quern.cuda(CUDA)

    def raw():
        text.gelu(x, y, x.numel(), blocks=(x.numel() + 255) // 256, threads=256)
        return y

else:
    text = quern.c(C, "in float x[n], out float y[n]")

    def raw():
        return text(x, out=y)


ways = {
    "torch": lambda: torch.nn.functional.gelu(x),
    "torch, by hand": lambda: by_hand(x),
    "@quern.fuse": lambda: fused(x),
    "quern kernel": lambda: kernel.gelu(x, out=y),
    "raw CUDA" if device == "cuda" else "raw C": raw,
}
if device == "cuda":
    compiled = torch.compile(by_hand)
    ways["torch.compile"] = lambda: compiled(x)
table(f"gelu of {x.numel()} floats on {device}", ways, torch.nn.functional.gelu(x))
