"""What PyTorch reaches on the shapes of bench_gpu, on the same GPU, timed in the same way: medians of the time between
two events around three or more calls in a row, on rotated sets of tensors where one set would fit the L2.

Usage: python3 bench/gpu_peers.py [--quick] [--json FILE] [--only WORDS]. --only: the shapes whose names contain one of
the words, which commas separate. Each shape is measured eager, with torch.compile, and with
torch.compile(mode="max-autotune-no-cudagraphs"); the best compiled one counts. Needs PyTorch with CUDA.
bench/gpu_table.py joins the result with that of bench_gpu.
"""
import json
import statistics
import sys
import time

start = time.perf_counter()
import torch
import torch.nn.functional as F

import_seconds = time.perf_counter() - start
from peers.timing import event_sampler

quick = "--quick" in sys.argv
only = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else [""]
json_path = sys.argv[sys.argv.index("--json") + 1] if "--json" in sys.argv else None
L2_BYTES = 60e6
rows = []


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def softmax(x):
    return F.softmax(x, -1)


def act(x, bias, y):
    return torch.relu(x + bias + 0.5 * y)


def norm(shape):
    return lambda x, gain, bias: F.layer_norm(x, shape, gain, bias)


def timed(function, sets):
    """Median ns of one call, after warming up."""
    sample = event_sampler(torch, function, sets, 2e6)
    return statistics.median(sample() for _ in range(15 if quick else 31))


def measure(name, function, make, copy_bytes):
    if not any(word in name for word in only):
        return
    tensors = make()
    size = sum(t.numel() * t.element_size() for t in tensors)
    sets = [tensors] + [make() for _ in range(int(min(max(-(-4 * L2_BYTES // size), 1), 8)) - 1)]
    result = {"name": name, "bytes": copy_bytes}
    with torch.no_grad():
        variants = [("eager", function)]
        for label, mode in (("compile", None), ("max_autotune", "max-autotune-no-cudagraphs")):
            if quick and label == "max_autotune":
                continue
            torch._dynamo.reset()
            variants.append((label, torch.compile(function, mode=mode, dynamic=False)))
        for label, variant in variants:
            try:
                result[label] = timed(variant, sets)
            except Exception as problem:  # a peer that cannot run a shape is left out
                print(f"{name} {label}: {type(problem).__name__}: {str(problem)[:120]}", flush=True)
    words = "  ".join(f"{k} {v * 1e-3:.1f} us" for k, v in result.items() if k not in ("name", "bytes"))
    print(f"{name:36s} {words}", flush=True)
    rows.append(result)
    del sets, tensors
    torch.cuda.empty_cache()


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def main():
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    context_seconds = time.perf_counter() - start
    compiled = torch.compile(gelu)
    compiled(normal(1 << 20))
    torch.cuda.synchronize()
    first_seconds = time.perf_counter() - start
    rows.append({"name": "startup", "compile": first_seconds * 1e9})
    rows.append({"name": "compile gelu", "compile": (first_seconds - context_seconds) * 1e3})
    print(f"torch {torch.__version__}: import {import_seconds:.2f} s, first compiled result after {first_seconds:.2f} s")
    f32, bf16 = torch.float32, torch.bfloat16
    n = 1 << 26
    measure("add 2^26 f32", lambda a, b: a + b, lambda: (normal(n), normal(n)), 12 * n)
    measure("square 10000^2 f32", lambda x: x * x, lambda: (normal(10000, 10000),), 8e8)
    for dtype, word, size in ((f32, "f32", 4), (bf16, "bf16", 2)):
        measure(f"gelu 16384^2 {word}", gelu, lambda: (normal(16384, 16384, dtype=dtype),), 2 * size * 2**28)
        measure(f"act 262144x1024 {word}", act, lambda: (normal(262144, 1024, dtype=dtype), normal(1024, dtype=dtype),
                                                         normal(262144, 1024, dtype=dtype)), 3 * size * 2**28)
    for r, c, dtype, word, size in ((131072, 256, f32, "f32", 4), (65536, 1024, f32, "f32", 4),
                                    (16384, 16384, f32, "f32", 4), (8192, 65536, f32, "f32", 4),
                                    (1024, 262144, f32, "f32", 4), (16384, 16384, bf16, "bf16", 2)):
        measure(f"softmax {r}x{c} {word}", softmax, lambda: (normal(r, c, dtype=dtype),), 2 * size * r * c)
    for r, c, dtype, word, size in ((8192, 1024, f32, "f32", 4), (65536, 4096, f32, "f32", 4),
                                    (16384, 16384, f32, "f32", 4), (65536, 4096, bf16, "bf16", 2)):
        measure(f"layernorm {r}x{c} {word}", norm((c,)),
                lambda: (normal(r, c, dtype=dtype), normal(c, dtype=dtype), normal(c, dtype=dtype)), 2 * size * r * c)
    measure("layernorm (64,1024,4096) f32", norm((1024, 4096)),
            lambda: (normal(64, 1024, 4096), normal(1024, 4096), normal(1024, 4096)), 8 * 2**28)
    measure("sum 2^30 f32", torch.sum, lambda: (normal(1 << 30),), 4 * 2**30)
    measure("sum 2^26 f32", torch.sum, lambda: (normal(1 << 26),), 4 * 2**26)
    measure("transpose 8192^2 f32", lambda x: x.t().contiguous(), lambda: (normal(8192, 8192),), 8 * 2**26)
    if json_path:
        with open(json_path, "w") as file:
            json.dump(rows, file, indent=1)


main()
