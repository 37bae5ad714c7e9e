"""The square of a matrix's elements three ways: torch, a Quern kernel, CUDA text (what `load_inline` was for).

    python examples/python/square_three_ways.py [--quick]
"""

import torch
from timing import device, quick, table

import quern

KERNEL = """
kernel square(in T x[m][n], out T y[m][n], const int B = 256) launch (m, cdiv(n, B))
{
    int i = program(0), j = program(1) * B;
    y[i][j : B] = x[i][j : B] * x[i][j : B];
}
"""
CUDA = """
template <typename T> __global__ void square(const T *x, T *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
"""

x = torch.randn(*((32, 48) if quick else (4096, 4096)), device=device)
y = torch.empty_like(x)
kernel = quern.compile(KERNEL)


def cuda_text():
    text = quern.cuda(CUDA)["square<float>"]

    def run():
        text(x, y, x.numel(), blocks=(x.numel() + 255) // 256, threads=256)
        return y

    return run


ways = {"torch": lambda: x.square(), "quern kernel": lambda: kernel.square(x, out=y)}
if device == "cuda" or quick:  # without a GPU the text runs in the emulator
    ways["CUDA text"] = cuda_text()
table(f"square of {x.shape[0]} x {x.shape[1]} floats on {device}", ways, x * x)
