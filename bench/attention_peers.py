"""PyTorch's attention on the work of bench_attention, on the same device: cuDNN's kernels (or another backend's:
--backend FLASH_ATTENTION), forward, and forward and backward together, medians of samples of several calls.

Usage: python3 bench/attention_peers.py [--only WORD] [--backend NAME]. Needs PyTorch.
"""
import statistics
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

SHAPES = [("head 128, 4096, full", 4, 16, 4096, 128, False), ("head 128, 4096, causal", 4, 16, 4096, 128, True),
          ("head 128, 16384, full", 1, 16, 16384, 128, False), ("head 128, 16384, causal", 1, 16, 16384, 128, True),
          ("head 64, 4096, full", 4, 32, 4096, 64, False), ("head 64, 4096, causal", 4, 32, 4096, 64, True),
          ("head 96, 4096, full", 4, 16, 4096, 96, False), ("head 192, 4096, full", 4, 16, 4096, 192, False),
          ("head 256, 4096, full", 4, 8, 4096, 256, False), ("head 256, 4096, causal", 4, 8, 4096, 256, True)]


def option(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def timed(function):
    """Seconds of one call."""
    function()
    torch.cuda.synchronize()
    samples, count = [], 1
    for i in range(-1, 9):
        start = time.perf_counter()
        for _ in range(count):
            function()
        torch.cuda.synchronize()
        took = (time.perf_counter() - start) / count
        if i >= 0:
            samples.append(took)
        else:
            count = int(min(max(0.015 / took, 1), 100))
    return statistics.median(samples)


def measure(name, batch, heads, rows, depth, causal):
    q, k, v, w = (torch.randn(batch, heads, rows, depth, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    work = 4 * batch * heads * rows * rows * depth / (2 if causal else 1)
    with torch.no_grad():
        forward = timed(lambda: scaled_dot_product_attention(q, k, v, is_causal=causal))
    for t in (q, k, v):
        t.requires_grad_()
    y = scaled_dot_product_attention(q, k, v, is_causal=causal)
    backward = timed(lambda: torch.autograd.grad(y, (q, k, v), w, retain_graph=True))
    print(f"{name:26} forward {forward * 1e6:8.1f} us {work / forward / 1e12:5.0f} TFLOP/s   "
          f"backward {backward * 1e6:8.1f} us {2.5 * work / backward / 1e12:5.0f} TFLOP/s", flush=True)


for shape in SHAPES:
    if option("--only", "") in shape[0]:
        try:
            with sdpa_kernel(getattr(SDPBackend, option("--backend", "CUDNN_ATTENTION"))):
                measure(*shape)
        except RuntimeError as error:
            print(shape[0], "not taken:", str(error).splitlines()[0])
