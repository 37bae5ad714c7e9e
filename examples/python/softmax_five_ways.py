"""Softmax of rows five ways: torch's own, by hand, `@quern.fuse`, a Quern tensor function, Quern kernels; and torch.compile.

    python examples/python/softmax_five_ways.py [--quick]
"""

import torch
from timing import device, quick, table

import quern

SOURCE = """
kernel softmax_row(in T x[rows][cols], out T y[rows][cols]) launch (rows)
{
    int r = program(0);
    tile float v = x[r][:];
    tile float e = exp(v - max(v));
    y[r][:] = e / sum(e);
}
tensor softmax_tensor(T x[m][n]) { return softmax(x, axis = 1); }
"""


def by_hand(x):
    e = torch.exp(x - x.amax(1, keepdim=True))
    return e / e.sum(1, keepdim=True)


x = torch.randn(64 if quick else 4096, 257 if quick else 1823, device=device)
q = quern.compile(SOURCE)
fused = quern.fuse(by_hand)
y = torch.empty_like(x)
ways = {
    "torch": lambda: torch.softmax(x, 1),
    "torch, by hand": lambda: by_hand(x),
    "@quern.fuse": lambda: fused(x),
    "quern tensor function": lambda: q.softmax_tensor(x, out=y),
    "quern kernel": lambda: q.softmax_row(x, out=y),
}
if device == "cuda":
    compiled = torch.compile(by_hand)
    ways["torch.compile"] = lambda: compiled(x)
table(f"softmax of {x.shape[0]} rows of {x.shape[1]} on {device}", ways, torch.softmax(x, 1))
print(q.softmax_tensor.schedule(m=x.shape[0], n=x.shape[1], T="f32").splitlines()[0])
