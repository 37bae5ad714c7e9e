"""What PyTorch reaches on the models that bench_dlrm, mlp_study and kernels/lora.qn have, on the same device: eager, and
torch.compile where that is asked for. On a GPU figures are medians of Triton's do_bench, on the CPU of wall times.

Usage: python3 bench/model_peers.py [--device cuda|cpu] [--threads N] [--no-compile] [--quern PATH] [--act NAME] [--lock FILE]
       lora | layer | lookup | mlp SIZE | dlrm NAME ...
  lora        act(x + bias + m y) with five functions (--act: one) at nine sizes, as a table in microseconds, row by row: PyTorch eager and
              torch.compile; with --quern build/quern also what `quern bench kernels/lora.qn` measures: the best variant, array code, and a kernel
              for each operation
  layer       a linear layer with a low-rank adapter, and without it (M = 8192, N = K = 4096, rank 16, bf16)
  lookup      26 tables: the lookup of a batch of 8192, and its gradient with Adagrad of sparse rows
  mlp SIZE    d128, d256, d2048 or d4096 of the lecture: layers of a linear layer and GELU, Adam, tf32: a training step
  dlrm NAME   "dot 128", "small 64", "main 128" ...: Meta's network with SGD, the talk's two with Adam, a batch of so many rows:
              a training step and a forward pass, compiled and with graphs
  --lock FILE several of these may compile at once: one of them at a time is timed (other programs join with `flock FILE`); else QUERN_GPU_LOCK
Needs PyTorch.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

from gpu_lock import alone
from torch import nn

words = sys.argv[1:]


def option(name, otherwise):
    if name not in words:
        return otherwise
    at = words.index(name)
    value = words[at + 1]
    del words[at : at + 2]
    return value


device = option("--device", "cuda")
threads = int(option("--threads", "0"))
quern = option("--quern", "")
only_act = option("--act", "")
os.environ["QUERN_GPU_LOCK"] = option("--lock", os.environ.get("QUERN_GPU_LOCK", ""))
compiles = "--no-compile" not in words
if not compiles:
    words.remove("--no-compile")
if threads:
    torch.set_num_threads(threads)
gpu = device != "cpu"
torch.backends.cuda.matmul.allow_tf32 = True
torch.manual_seed(0)


def milliseconds(function):
    with alone():
        return milliseconds_alone(function)


def milliseconds_alone(function):
    if gpu:
        from triton.testing import do_bench

        return do_bench(function, warmup=25, rep=100, return_mode="median")
    for _ in range(3):
        function()
    samples = []
    for _ in range(15):
        start = time.perf_counter()
        function()
        samples.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples)


def line(name, how, ms, more=""):
    print(f"{name:36s} {how:16s} {ms * 1e3:10.1f} us {more}", flush=True)


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, **options)


# ---- act(x + bias + m y) ----


def quern_lora(name, n):
    """Microseconds of lora_fused, of eager lora_fused and of the best of all variants at one size."""
    with tempfile.NamedTemporaryFile(suffix=".json") as to:
        command = [quern, "bench", "kernels/lora.qn", "lora_" + name, "--set", f"N={n}", "--device", device, "--seconds", "0.2", "--json", to.name]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        rows = json.load(open(to.name))
    found = {row["variant"].split("(")[0]: row["median_ns"] * 1e-3 for row in rows}
    found["best"] = min(us for variant, us in found.items() if not variant.startswith("eager"))
    return found


def lora():
    acts = {"relu": torch.relu, "sigmoid": torch.sigmoid, "gelu": F.gelu, "silu": F.silu, "none": lambda v: v}
    sizes = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
    print(f"{'act':8s} {'M x N':>16s} {'eager us':>10s} {'compile us':>10s}", end="")
    print(f" {'quern us':>10s} {'fused us':>10s} {'unfused us':>10s} {'of best':>8s}" if quern else "", flush=True)
    for name in acts if not only_act else (only_act,):
        act = acts[name]

        def end(x, bias, y):
            return act(x + bias + 0.5 * y)

        for n in sizes:
            m = n * n // 4
            x, y = torch.randn(m, n, device=device), torch.randn(m, n, device=device)
            bias = torch.randn(n, device=device)
            eager = milliseconds(lambda: end(x, bias, y)) * 1e3
            fast = float("nan")
            if compiles:
                function = compiled(end, dynamic=False)
                function(x, bias, y)
                fast = milliseconds(lambda: function(x, bias, y)) * 1e3
            print(f"{name:8s} {m:>9d} x {n:<4d} {eager:10.2f} {fast:10.2f}", end="", flush=True)
            if quern:
                ours, best = quern_lora(name, n), min(eager, fast) if fast == fast else eager
                print(f" {ours['best']:10.2f} {ours['lora_fused']:10.2f} {ours['eager lora_fused']:10.2f} {best / ours['best']:7.2f}x", end="")
            print(flush=True)


def layer():
    m, n, k, r = 8192, 4096, 4096, 16
    make = lambda *shape: torch.randn(*shape, device=device, dtype=torch.bfloat16) * 0.02
    x, w, bias, a, b = make(m, k), make(k, n), make(n), make(k, r), make(r, n)
    base = lambda x: torch.relu(x @ w + bias)
    adapted = lambda x: torch.relu(x @ w + bias + 0.5 * ((x @ a) @ b))
    for name, function in (("base", base), ("adapted", adapted)):
        line(f"linear {name} {m}x{n}x{k} r{r} bf16", "eager", milliseconds(lambda: function(x)))
        if compiles:
            fast = compiled(function)
            fast(x)
            line(f"linear {name} {m}x{n}x{k} r{r} bf16", "compile", milliseconds(lambda: fast(x)))


# ---- recommenders ----

CARDINALITY = [1234907, 19682, 13779, 6866, 18489, 3, 6263, 1234, 49, 854680, 114026, 75735, 10, 2159, 7532, 61, 4, 918, 14,
               1307783, 404742, 1105613, 87714, 9031, 76, 33]
WIDTH = 16


def perceptron(sizes):
    layers = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


NETWORKS = {  # widths behind the counts, widths behind the interaction, outer, Adam: the talk's two and Meta's
    "small": ([32, WIDTH], [32, 1], True, True),
    "main": ([512, 256, 64, WIDTH], [512, 256, 1], True, True),
    "dot": ([512, 256, 64, WIDTH], [512, 256, 1], False, False),
}


class Recommender(nn.Module):
    def __init__(self, bottom, top, outer):
        super().__init__()
        every = 27 * WIDTH
        self.bottom = perceptron([13] + bottom)
        self.top = perceptron([every * every if outer else WIDTH + 27 * 26 // 2] + top)
        self.tables = nn.ModuleList(nn.Embedding(rows, WIDTH) for rows in CARDINALITY)
        self.register_buffer("rows", torch.tensor(CARDINALITY))
        self.register_buffer("lower", torch.tril_indices(27, 27, -1))
        self.outer = outer

    def forward(self, dense, tokens):
        index = (tokens + 1) % self.rows
        d = self.bottom(dense)
        vectors = [d] + [table(index[:, i]) for i, table in enumerate(self.tables)]
        if self.outer:
            t = torch.cat(vectors, 1)
            z = (t.unsqueeze(2) * t.unsqueeze(1)).flatten(1)
        else:
            t = torch.stack(vectors, 1)
            pairs = torch.bmm(t, t.transpose(1, 2))[:, self.lower[0], self.lower[1]]
            z = torch.cat([d, pairs], 1)
        return torch.sigmoid(self.top(z)).squeeze(-1)


def dlrm(name):
    kind, batch = name.split()[0], int(name.split()[1])
    bottom, top, outer, adam = NETWORKS[kind]
    model = Recommender(bottom, top, outer).to(device)
    dense = torch.rand(batch, 13, device=device) * 10
    tokens = torch.randint(0, 2**31, (batch, 26), device=device)
    labels = torch.randint(0, 2, (batch,), device=device).float()
    optimizer = (torch.optim.Adam if adam else torch.optim.SGD)(model.parameters(), lr=1e-3 if adam else 0.1, foreach=True)
    title = f"dlrm {name} {'adam' if adam else 'sgd'} step"

    def step(function):
        optimizer.zero_grad(set_to_none=True)
        F.binary_cross_entropy(function(dense, tokens), labels).backward()
        optimizer.step()

    step(model)
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    spent = milliseconds(lambda: step(model))
    line(title, "eager", spent, f"peak {torch.cuda.max_memory_allocated() * 1e-6:.0f} MB" if gpu else "")
    with torch.no_grad():
        line(f"dlrm {name} forward", "eager", milliseconds(lambda: model(dense, tokens)))
    if not compiles:
        return
    fast = compiled(model)
    step(fast)
    line(title, "compile", milliseconds(lambda: step(fast)))
    fast = compiled(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            fast(dense, tokens)
        line(f"dlrm {name} forward", "graphs", milliseconds(lambda: fast(dense, tokens)))


def lookup():
    batch = 8192
    tables = nn.ModuleList(nn.Embedding(rows, WIDTH, sparse=True) for rows in CARDINALITY).to(device)
    index = torch.stack([torch.randint(0, rows, (batch,), device=device) for rows in CARDINALITY], 1).contiguous()
    optimizer = torch.optim.Adagrad(tables.parameters(), lr=0.1)
    grad = torch.randn(batch, 26, WIDTH, device=device)
    look = lambda: torch.stack([table(index[:, i]) for i, table in enumerate(tables)], 1)
    with torch.no_grad():
        line("lookup 26 tables b8192", "eager", milliseconds(look))

    def step():
        optimizer.zero_grad(set_to_none=True)
        look().backward(grad)
        optimizer.step()

    line("lookup, gradient, Adagrad b8192", "eager sparse", milliseconds(step))


# ---- perceptrons ----


def mlp(size):
    sizes = {"d128": (128, 16, 128), "d256": (256, 4, 256), "d2048": (2048, 64, 1024), "d4096": (4096, 64, 1024)}
    width, layers, batch = sizes[size]
    model = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.GELU())]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    x = torch.randn(batch, width, device=device)

    def step(function):
        optimizer.zero_grad(set_to_none=True)
        function(x).mean().backward()
        optimizer.step()

    line(f"mlp {size} x {layers} adam tf32 step", "eager", milliseconds(lambda: step(model)))
    if compiles:
        fast = compiled(model)
        start = time.perf_counter()
        step(fast)
        torch.cuda.synchronize()
        spent = time.perf_counter() - start
        line(f"mlp {size} x {layers} adam tf32 step", "compile", milliseconds(lambda: step(fast)), f"compile {spent:.1f} s")


while words:
    word = words.pop(0)
    {"lora": lora, "layer": layer, "lookup": lookup}[word]() if word in ("lora", "layer", "lookup") else {
        "mlp": mlp, "dlrm": dlrm}[word](words.pop(0))
