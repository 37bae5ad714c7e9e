"""What PyTorch reaches on the work of bench_tensor, on the same device: eager, torch.compile, and torch.compile with CUDA
graphs (mode="reduce-overhead"). On a GPU figures are medians of the time between two events around several calls; on
the CPU (--device cpu) the best wall time.

Usage: python3 bench/tensor_peers.py [--device cuda|cpu] [--quick] [--only WORD] [--json FILE]. Needs PyTorch.
bench/tensor_table.py joins the result with that of bench_tensor.
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from peers.timing import event_sampler

quick = "--quick" in sys.argv
json_path = sys.argv[sys.argv.index("--json") + 1] if "--json" in sys.argv else None
device = sys.argv[sys.argv.index("--device") + 1] if "--device" in sys.argv else "cuda"
only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
gpu = device != "cpu"
L2_BYTES = 60e6 if gpu else 32e6
rows = []


def wait():
    if gpu:
        torch.cuda.synchronize()


def timed(function, sets, milliseconds=20):
    """ns of one call."""
    for arguments in sets * 3:
        function(*arguments)
    wait()
    if not gpu:
        best = 1e18
        for i in range(15):
            start = time.perf_counter_ns()
            function(*sets[i % len(sets)])
            best = min(best, time.perf_counter_ns() - start)
        return best
    sample = event_sampler(torch, function, sets, milliseconds * 1e6)
    return statistics.median(sample() for _ in range(7 if quick else 15))


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False, **options)


def measure(name, function, make, graphs=False):
    if only not in name:
        return
    tensors = make()
    size = sum(t.numel() * t.element_size() for t in tensors)
    sets = [tensors] + [make() for _ in range(int(min(max(-(-4 * L2_BYTES // size), 1), 8)) - 1)]
    result = {"name": name}
    variants = [("eager", lambda: function), ("compile", lambda: compiled(function))]
    if graphs and gpu:
        variants.append(("graphs", lambda: compiled(function, mode="reduce-overhead")))
    for label, variant in variants:
        try:
            result[label] = timed(variant(), sets)
        except Exception as problem:  # a peer that cannot run a shape is left out
            print(f"{name} {label}: {type(problem).__name__}: {str(problem)[:200]}", flush=True)
    words = "  ".join(f"{k} {v * 1e-3:.1f} us" for k, v in result.items() if k != "name")
    print(f"{name:46s} {words}", flush=True)
    rows.append(result)
    del sets, tensors
    if gpu:
        torch.cuda.empty_cache()


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=device, dtype=dtype)


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def softmax(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def chain(x, y):
    t = (x + y) * 0.5
    t = torch.relu(torch.tanh(t) * x - 0.25)
    return (t + y) * 1.1


def norm_and_gradient(x, dy, gain, bias):
    x, gain, bias = (t.detach().requires_grad_() for t in (x, gain, bias))
    y = F.layer_norm(x, (x.shape[-1],), gain, bias)
    return (y,) + torch.autograd.grad(y, (x, gain, bias), dy)


def entropy_and_gradient(x, target):
    x = x.detach().requires_grad_()
    loss = F.cross_entropy(x, target)
    return (loss,) + torch.autograd.grad(loss, (x,))


def perceptron(width, layers, batch, steps, tf32):
    name = f"mlp d{width} x {layers} batch {batch}, {steps} steps, {'tf32' if tf32 else 'f32'}"
    if only not in name:
        return
    torch.backends.cuda.matmul.allow_tf32 = tf32
    model = torch.nn.Sequential(*[m for _ in range(layers) for m in (torch.nn.Linear(width, width), torch.nn.GELU())])
    model = model.to(device)
    x = normal(batch, width)
    result = {"name": name}
    for label, options in (("eager", None), ("compile", {}), ("graphs", {"mode": "reduce-overhead"})):
        if label == "graphs" and not gpu:
            continue
        start = time.perf_counter()
        forward = model if options is None else compiled(model, **options)

        def run():
            for _ in range(steps):
                model.zero_grad(set_to_none=True)
                forward(x).mean().backward()

        try:
            for _ in range(3):
                run()
            wait()
            if label == "compile" and width == 128:
                rows.append({"name": "compile mlp cold", "compile": (time.perf_counter() - start) * 1e9})
            samples = []
            for _ in range(11 if quick else 31):
                wait()
                start = time.perf_counter_ns()
                run()
                wait()
                samples.append(time.perf_counter_ns() - start)
            result[label] = statistics.median(samples) if gpu else min(samples)
        except Exception as problem:
            print(f"{name} {label}: {type(problem).__name__}: {str(problem)[:200]}", flush=True)
    print(f"{name:46s} " + "  ".join(f"{k} {v * 1e-3:.1f} us" for k, v in result.items() if k != "name"), flush=True)
    rows.append(result)


def main():
    where = torch.cuda.get_device_name() if gpu else f"the CPU, {torch.get_num_threads()} threads"
    print(f"torch {torch.__version__} on {where}", flush=True)
    f32, bf16 = torch.float32, torch.bfloat16
    if gpu:
        n = 16384
        measure("gelu by hand 16384^2 f32", gelu, lambda: (normal(n, n),))
        measure("softmax by hand 16384^2 f32", softmax, lambda: (normal(n, n),))
        measure("chain of 8 16384^2 f32", chain, lambda: (normal(n, n), normal(n, n)))
        for r, c, word in ((65536, 4096, "65536x4096"), (n, n, "16384^2")):
            measure(f"layer norm and gradient {word} bf16", norm_and_gradient,
                    lambda: (normal(r, c, dtype=bf16), normal(r, c, dtype=bf16), normal(c, dtype=bf16),
                             normal(c, dtype=bf16)))
        measure("cross-entropy and gradient 8192x128256 bf16", entropy_and_gradient,
                lambda: (normal(8192, 128256, dtype=bf16), torch.randint(0, 128256, (8192,), device=device)))
    else:
        n = 4096
        measure("gelu by hand 4096^2 f32", gelu, lambda: (normal(n, n),))
        measure("chain of 8 4096^2 f32", chain, lambda: (normal(n, n), normal(n, n)))
        measure("softmax by hand 4096^2 f32", softmax, lambda: (normal(n, n),))
        measure("layer norm and gradient 16384x1024 f32", norm_and_gradient,
                lambda: (normal(16384, 1024), normal(16384, 1024), normal(1024), normal(1024)))
        measure("cross-entropy and gradient 4096^2 f32", entropy_and_gradient,
                lambda: (normal(n, n), torch.randint(0, n, (n,))))
    for tf32 in (True, False) if gpu else (True,):
        perceptron(128, 16, 128, 5, tf32)
        perceptron(256, 4, 256, 2, tf32)
    if json_path:
        with open(json_path, "w") as file:
            json.dump(rows, file, indent=1)


main()
