"""What PyTorch reaches on the work of bench_tensor, on the same device: eager, torch.compile, and torch.compile with CUDA
graphs (mode="reduce-overhead"). On a GPU figures are medians of the time between two events around several calls; on
the CPU (--device cpu) the best wall time.

Usage: python3 bench/tensor_peers.py [--device cuda|cpu] [--quick] [--rows: the work of tensor_rows.c instead] [--eager] [--only WORD] [--json FILE]. Needs PyTorch.
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
rows_only = "--rows" in sys.argv
eager_only = "--eager" in sys.argv
gpu = device != "cpu"
L2_BYTES = 60e6 if gpu else 32e6
rows = []


def wait():
    if gpu:
        torch.cuda.synchronize()


def timed(function, sets, milliseconds=8 if quick else 20):
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
    return statistics.median(sample() for _ in range(5 if quick else 15))


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
    variants = [("eager", lambda: function)]
    if not eager_only:
        variants.append(("compile", lambda: compiled(function)))
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


def gradient_of(function):
    """Forward and the gradient of the first argument; the second, if there is one, is the gradient of the output."""
    def run(x, dy=None):
        x = x.detach().requires_grad_()
        y = function(x)
        return (y,) + torch.autograd.grad(y, (x,), y.detach() if dy is None else dy.view_as(y))
    return run


def heat(u):
    p = F.pad(u, (1, 1, 1, 1))
    return u + 0.1 * ((p[:-2, 1:-1] + p[2:, 1:-1]) + (p[1:-1, :-2] + p[1:-1, 2:]) - 4 * u)


def row_cases():
    """The work of bench/tensor_rows.c: name, function, shapes, dtype."""
    f32, f16, bf16, f64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
    for n, side, dtype, word in ((64, 128, f32, "f32"), (64, 127, f32, "f32"), (64, 126, f32, "f32"), (64, 127, bf16, "bf16"),
                                 (16, 512, f32, "f32")):
        yield (f"batch norm {n}x64x{side}^2 {word}", lambda x: F.batch_norm(x, None, None, training=True),
               [(n, 64, side, side)], dtype)
    for n, side, dtype, word in ((64, 128, f32, "f32"), (64, 127, f32, "f32"), (512, 32, f16, "f16")):
        yield f"group norm {n}x64x{side}^2 {word}", lambda x: F.group_norm(x, 8), [(n, 64, side, side)], dtype
    for side in (128, 127):
        yield f"instance norm 64x64x{side}^2 f32", lambda x: F.instance_norm(x), [(64, 64, side, side)], f32
    for r, c, dtype, word in ((16384, 4097, f32, "f32"), (131072, 769, f32, "f32"), (16384, 4097, bf16, "bf16"),
                              (65536, 1001, f16, "f16"), (16384, 4097, f64, "f64")):
        yield (f"layer norm {r}x{c} {word}", lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b), [(r, c), (c,), (c,)],
               dtype)
    for r, c, dtype, word in ((64, 2000003, f32, "f32"), (4194304, 31, f32, "f32"), (16777216, 3, f32, "f32"),
                              (32768, 4095, bf16, "bf16")):
        yield f"softmax {r}x{c} {word}", lambda x: x.softmax(1), [(r, c)], dtype
    yield "sum of columns 65536x4096 f32", lambda x: x.sum(0), [(65536, 4096)], f32
    yield "sum of columns 65536x4095 bf16", lambda x: x.sum(0), [(65536, 4095)], bf16
    yield "sum over the middle 32x4096x4095 f32", lambda x: x.sum(1), [(32, 4096, 4095)], f32
    yield "max over the middle 32x4096x4095 f32", lambda x: x.amax(1), [(32, 4096, 4095)], f32
    yield "argmax over the middle 32x4096x4095 f32", lambda x: x.argmax(1), [(32, 4096, 4095)], f32
    yield "softmax down 4096x16384 f32", lambda x: x.softmax(0), [(4096, 16384)], f32
    yield "softmax over the middle 32x512x4095 f32", lambda x: x.softmax(1), [(32, 512, 4095)], f32
    yield "softmax over the middle 32x512x4096 bf16", lambda x: x.softmax(1), [(32, 512, 4096)], bf16
    yield "cumsum reversed 8192x16384 f32", lambda x: x.flip(1).cumsum(1).flip(1), [(8192, 16384)], f32
    yield "cumsum exclusive 8192x16384 f32", lambda x: x.cumsum(1) - x, [(8192, 16384)], f32
    for r, c in ((8192, 32768), (8192, 16383), (262144, 512), (16, 4194304)):
        yield f"cumsum {r}x{c} f32", lambda x: x.cumsum(1), [(r, c)], f32
    yield "cumsum down 16384x8192 f32", lambda x: x.cumsum(0), [(16384, 8192)], f32
    yield "cumsum over the middle 32x512x4096 f32", lambda x: x.cumsum(1), [(32, 512, 4096)], f32
    for r, c, dtype, word in ((16384, 8192, f32, "f32"), (16383, 8191, f32, "f32"), (16384, 8192, bf16, "bf16")):
        yield f"transpose {r}x{c} {word}", lambda x: (x.t() * 2).contiguous(), [(r, c)], dtype
    for side, dtype, word in ((128, f32, "f32"), (127, bf16, "bf16")):
        yield (f"channels last 64x64x{side}^2 {word}", lambda x: (x.permute(0, 2, 1) * 2).contiguous(),
               [(64, 64, side * side)], dtype)
    yield "colours last 2048x3x128^2 f32", lambda x: (x.permute(0, 2, 1) * 2).contiguous(), [(2048, 3, 16384)], f32
    yield "heads 32x2048x16x64 bf16", lambda x: (x.transpose(1, 2) * 2).contiguous(), [(32, 2048, 16, 64)], bf16
    yield ("five axes 64x8x8x16x1024 f32", lambda x: (x.permute(4, 2, 0, 3, 1) * 2).contiguous(), [(64, 8, 8, 16, 1024)],
           f32)
    yield "max pool 2x2 of 512x256x1024 f32", lambda x: F.max_pool2d(x, 2), [(512, 256, 1024)], f32
    yield "max pool 8, stride 1, 4096x16384 f32", lambda x: F.max_pool1d(x, 8, 1, 4), [(64, 64, 16384)], f32
    yield "average pool 5, stride 2, 4096x16384 f32", lambda x: F.avg_pool1d(x, 5, 2, 2), [(64, 64, 16384)], f32
    for r, c in ((8192, 8192), (8190, 8194)):
        yield f"five points of {r}x{c} f32", heat, [(r, c)], f32
    for c, dtype, word in ((1024, f32, "f32"), (1023, f32, "f32"), (1024, bf16, "bf16")):
        yield f"max pool 3x3, stride 1, 512x256x{c} {word}", lambda x: F.max_pool2d(x, 3, 1, 1), [(512, 256, c)], dtype
    yield "max pool 3x3, stride 2, 512x256x1024 f32", lambda x: F.max_pool2d(x, 3, 2, 1), [(512, 256, 1024)], f32
    yield "average pool 3x3, stride 1, 512x256x1024 f32", lambda x: F.avg_pool2d(x, 3, 1, 1), [(512, 256, 1024)], f32
    yield "average pool 11x11 of 512x256x1024 f32", lambda x: F.avg_pool2d(x, 11), [(512, 256, 1024)], f32
    yield "max pool 3x3x3, stride 2, 64x128^3 f32", lambda x: F.max_pool3d(x, 3, 2, 1), [(64, 128, 128, 128)], f32
    yield "average pool 3x3x3, stride 1, 64x128^3 f32", lambda x: F.avg_pool3d(x, 3, 1, 1), [(64, 128, 128, 128)], f32
    yield "8 largest of 131072x1024 f32", lambda x: x.topk(8), [(131072, 1024)], f32
    yield "argsort 8192x4096 f32", lambda x: x.argsort(), [(8192, 4096)], f32
    yield "sort 65536x512 f32", lambda x: x.sort().values, [(65536, 512)], f32
    image, plane = (64, 64, 128, 128), (256, 256, 1024)
    yield ("batch norm and gradient 64x64x128^2 f32", gradient_of(lambda x: F.batch_norm(x, None, None, training=True)),
           [image, image], f32)
    yield "group norm and gradient 64x64x128^2 f32", gradient_of(lambda x: F.group_norm(x, 8)), [image, image], f32
    yield "softmax and gradient 16384x4096 f32", gradient_of(lambda x: x.softmax(1)), [(16384, 4096)] * 2, f32
    yield "max pool 2x2 and gradient 256x256x1024 f32", gradient_of(lambda x: F.max_pool2d(x, 2)), [plane], f32
    yield ("max pool 3x3, stride 2, and gradient 256x256x1024 f32", gradient_of(lambda x: F.max_pool2d(x, 3, 2, 1)),
           [plane], f32)
    yield ("average pool 3x3, stride 2, and gradient 256x256x1024 f32", gradient_of(lambda x: F.avg_pool2d(x, 3, 2, 1)),
           [plane], f32)
    yield "cumsum and gradient 8192x16384 f32", gradient_of(lambda x: x.cumsum(1)), [(8192, 16384)] * 2, f32
    for r, c, dtype, word in ((8388608, 15, f32, "f32"), (1048576, 63, f32, "f32"), (8388608, 16, bf16, "bf16"),
                              (4194304, 31, bf16, "bf16"), (131072, 1023, f32, "f32"), (524288, 257, f32, "f32")):
        yield f"softmax {r}x{c} {word}", lambda x: x.softmax(1), [(r, c)], dtype
    for r, c in ((4194304, 31), (1048576, 96), (131072, 1023)):
        yield f"layer norm {r}x{c} f32", lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b), [(r, c), (c,), (c,)], f32
    for r, c in ((16777216, 7), (4194304, 31)):
        yield f"sum of rows {r}x{c} f32", lambda x: x.sum(1), [(r, c)], f32
    yield "argmax of rows 8388608x10 f32", lambda x: x.argmax(1), [(8388608, 10)], f32
    for r, c in ((1048576, 64), (131072, 512)):
        yield f"norm of columns {r}x{c} f32", lambda x: F.batch_norm(x, None, None, training=True), [(r, c)], f32
    yield ("norm of pixels over 64 channels 64x64x128^2 f32",
           lambda x: (x - x.mean(1, True)) * torch.rsqrt(x.var(1, unbiased=False, keepdim=True) + 1e-5), [(64, 64, 16384)], f32)
    yield "softmax down 16384x4096 bf16", lambda x: x.softmax(0), [(16384, 4096)], bf16
    yield "softmax down 1000000x64 f32", lambda x: x.softmax(0), [(1000000, 64)], f32
    yield "softmax over the middle 32x64x32768 f32", lambda x: x.softmax(1), [(32, 64, 32768)], f32
    yield "cumsum down 16384x8192 bf16", lambda x: x.cumsum(0), [(16384, 8192)], bf16
    for r, c in ((1, 67108864), (262144, 511), (4194304, 32)):
        yield f"cumsum {r}x{c} f32", lambda x: x.cumsum(1), [(r, c)], f32
    yield "cummax 8192x16384 f32", lambda x: x.cummax(1).values, [(8192, 16384)], f32
    yield "transpose 16383x8191 bf16", lambda x: (x.t() * 2).contiguous(), [(16383, 8191)], bf16
    for c, dtype, word in ((1024, bf16, "bf16"), (1023, f32, "f32")):
        yield f"max pool 3x3, stride 2, 512x256x{c} {word}", lambda x: F.max_pool2d(x, 3, 2, 1), [(512, 256, c)], dtype
    yield "average pool 3x3, stride 1, 512x256x1024 bf16", lambda x: F.avg_pool2d(x, 3, 1, 1), [(512, 256, 1024)], bf16
    yield "max pool 3x3x3, stride 2, 64x128^3 bf16", lambda x: F.max_pool3d(x, 3, 2, 1), [(64, 128, 128, 128)], bf16
    for r, c in ((65536, 512), (16, 1048576)):
        yield f"argsort {r}x{c} f32", lambda x: x.argsort(), [(r, c)], f32
    yield "softmax down and gradient 4096x16384 f32", gradient_of(lambda x: x.softmax(0)), [(4096, 16384)] * 2, f32
    yield "softmax and gradient 4194304x31 f32", gradient_of(lambda x: x.softmax(1)), [(4194304, 31)] * 2, f32
    yield "layer norm and gradient 65536x1023 f32", norm_and_gradient, [(65536, 1023)] * 2 + [(1023,)] * 2, f32
    odd = (64, 64, 127, 127)
    yield "group norm and gradient 64x64x127^2 f32", gradient_of(lambda x: F.group_norm(x, 8)), [odd, odd], f32
    yield ("batch norm and gradient 64x64x127^2 bf16",
           gradient_of(lambda x: F.batch_norm(x, None, None, training=True)), [odd, odd], bf16)


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
    if rows_only:
        for name, function, shapes, dtype in row_cases():
            measure(name, function, lambda: tuple(normal(*shape, dtype=dtype) for shape in shapes))
    elif gpu:
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
    for tf32 in () if rows_only else (True, False) if gpu else (True,):
        perceptron(128, 16, 128, 5, tf32)
        perceptron(256, 4, 256, 2, tf32)
    if json_path:
        with open(json_path, "w") as file:
            json.dump(rows, file, indent=1)


main()
