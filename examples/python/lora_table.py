"""A linear layer with an adapter of low rank, x W + s (x A) B: time by rank, torch against one fused Quern function, with gradients.

    python examples/python/lora_table.py [--quick]
"""

import torch
from timing import device, median_us, quick

import quern

q = quern.compile("""
tensor lora(T x[m][k], T w[k][n], T a[k][r], T b[r][n], float s = 1)
{
    return matmul(x, w) + s * matmul(matmul(x, a), b);
}
""")


def torch_lora(x, w, a, b, s):
    return x @ w + s * ((x @ a) @ b)


m, k, n = (32, 48, 40) if quick else (2048, 1024, 1024)
x, w = torch.randn(m, k, device=device), torch.randn(k, n, device=device) / k**0.5
print(f"x [{m}, {k}], w [{k}, {n}] on {device}; times in us")
print(f"{'rank':>5s} {'torch':>10s} {'quern':>10s} {'torch, gradients':>17s} {'quern, gradients':>17s}")
for rank in (4, 8) if quick else (4, 8, 16, 64):
    a = (torch.randn(k, rank, device=device) / k**0.5).requires_grad_()
    b = torch.zeros(rank, n, device=device).add_(0.1).requires_grad_()

    def step(function):
        a.grad = b.grad = None
        function(x, w, a, b, 0.5).square().mean().backward()
        return a.grad, b.grad

    torch.testing.assert_close(q.lora(x, w, a, b, 0.5), torch_lora(x, w, a, b, 0.5), rtol=2e-3, atol=2e-3)
    for found, wanted in zip(step(q.lora), step(torch_lora)):
        torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3)
    with torch.no_grad():
        forward = [median_us(lambda: f(x, w, a, b, 0.5)) for f in (torch_lora, q.lora)]
    both = [median_us(lambda: step(f)) for f in (torch_lora, q.lora)]
    print(f"{rank:5d} {forward[0]:10.1f} {forward[1]:10.1f} {both[0]:17.1f} {both[1]:17.1f}")
