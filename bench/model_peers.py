"""What PyTorch reaches on the models that bench_dlrm, mlp_study and kernels/lora.qn have, on the same device: eager, and
torch.compile where that is asked for. On a GPU figures are medians of Triton's do_bench, on the CPU of wall times.

Usage: python3 bench/model_peers.py [--device cuda|cpu] [--threads N] [--no-compile] [--quern] [--act NAME] [--lock FILE] [--together [--patience SECONDS]]
       lora | layer | lookup | mlp SIZE | dlrm NAME ...
  lora        act(x + bias + m y) with five functions (--act: one) at nine sizes, as a table in microseconds: PyTorch eager and torch.compile,
              called again and again; compiled, as a graph of many calls; with --quern the array code of kernels/lora.qn through the Python
              package (PYTHONPATH=python), called and as a graph likewise, and the ratios of the compiled ones to it. Calls are
              on arrays that take turns, so that large ones come from memory
  layer       a linear layer with a low-rank adapter, and without it (M = 8192, N = K = 4096, rank 16, bf16)
  lookup      26 tables: the lookup of a batch of 8192, and its gradient with Adagrad of sparse rows
  mlp SIZE    d128, d256, d2048 or d4096 of the lecture: layers of a linear layer and GELU, Adam, tf32: a training step
  dlrm NAME   "dot 128", "cat 128", "small 64", "main 128" ...: Meta's network with SGD, the talk's two with Adam, a batch of so many rows: a training
              step and a forward pass, compiled and with graphs; further words: sgd, adagrad, adam or adamw, `sparse` (gradients of the
              tables are rows; Adam and AdamW become SparseAdam there), `bf16` (the tables')
  --lock FILE several of these may compile at once: one of them at a time is timed (other programs join with `flock FILE`); else QUERN_GPU_LOCK
  --together  every workload in a process of its own: all compile side by side, then one after the other is timed while the rest sleeps;
              what is not ready after --patience is left out, and told
Needs PyTorch.
"""
import multiprocessing
import os
import statistics
import sys
import time
import types

words = sys.argv[1:]
if __name__ == "__main__" and (not words or "--help" in words or "-h" in words):
    print(__doc__.strip())
    sys.exit(0 if words else 2)

import torch
import torch.nn.functional as F

from gpu_lock import alone
from torch import nn



def option(name, otherwise):
    if name not in words:
        return otherwise
    at = words.index(name)
    value = words[at + 1]
    del words[at : at + 2]
    return value


device = option("--device", "cuda")
threads = int(option("--threads", "0"))
only_act = option("--act", "")
patience = float(option("--patience", "1e9"))
os.environ["QUERN_GPU_LOCK"] = option("--lock", os.environ.get("QUERN_GPU_LOCK", ""))
compiles, with_quern, together = "--no-compile" not in words, "--quern" in words, "--together" in words
words = [word for word in words if word not in ("--no-compile", "--quern", "--together")]
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


# Each workload is a generator: what comes before its `yield` makes it ready and compiles it, what comes behind is timed.

# ---- act(x + bias + m y) ----

ACTS = {"relu": torch.relu, "sigmoid": torch.sigmoid, "gelu": F.gelu, "silu": F.silu, "none": lambda v: v}
SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
COLD = 200 << 20  # bytes of arrays that take turns
FORMS = ("eager", "compiled", "graph") + (("quern", "quern graph") if with_quern else ())


def us_of_calls(function, sets):
    """Of one of many calls that follow each other, the sets of arguments in turns: as a program sees it, the host's part included where that is longer."""
    calls = min(max(len(sets), 4), 64)
    order = [sets[i % len(sets)] for i in range(calls)]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2)) if gpu else (None, None)
    samples = []
    for _ in range(3 + 15):
        start = time.perf_counter()
        if gpu:
            begin.record()
        for arguments in order:
            function(*arguments)
        if gpu:
            end.record()
            end.synchronize()
        samples.append(begin.elapsed_time(end) * 1e3 / calls if gpu else (time.perf_counter() - start) * 1e6 / calls)
    return statistics.median(samples[3:])


def graph_of(function, sets):
    """A recorded graph of one call for each set, and how many that are."""
    graph, calls = torch.cuda.CUDAGraph(), min(max(len(sets), 4), 64)
    with torch.cuda.graph(graph):
        kept = [function(*sets[i % len(sets)]) for i in range(calls)]
    return graph, calls, kept


def lora(name, sizes=SIZES):
    act = ACTS[name]
    if with_quern:
        import quern

        module = quern.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kernels", "lora.qn"))
    rows = []
    for n in sizes:
        m = n * n // 4

        def end(x, bias, y, act=act):
            return act(x + bias + 0.5 * y)

        # Code of its own for each size: what is compiled goes by code, and one code is not compiled for ever more sizes.
        end = types.FunctionType(end.__code__.replace(co_name=f"end_{n}"), globals(), "end", (act,))
        make = lambda: (torch.randn(m, n, device=device), torch.randn(n, device=device), torch.randn(m, n, device=device))
        sets = [make() for _ in range(max(2, min(64, COLD // (12 * m * n))))]
        forms = {"eager": end}
        if compiles:
            forms["compiled"] = torch.compile(end, dynamic=False)
        if with_quern:
            forms["quern"] = lambda x, bias, y: module.lora_fused(x, bias, y, act=name)
        wanted = end(*sets[0])
        for form, function in forms.items():
            worst = max(float((function(*sets[0]) - wanted).abs().max()) for _ in range(3))
            assert worst < 1e-5, f"{form} {name} {m} x {n} differs by {worst}"
        rows.append((m, n, sets, forms))
    yield
    if sizes[0] == SIZES[0] and (name == "relu" or only_act):
        print(f"{'act':8s} {'M x N':>16s}" + "".join(f"{form:>12s}" for form in FORMS) + ("   calls  graphs" if with_quern and compiles else ""))
    for m, n, sets, forms in rows:
        with alone():
            us = {form: us_of_calls(function, sets) for form, function in forms.items()}
            for form, to in (("compiled", "graph"), ("quern", "quern graph")) if gpu else ():
                if form in forms:
                    graph, calls, _ = graph_of(forms[form], sets)
                    us[to] = us_of_calls(graph.replay, [()]) / calls
        line = f"{name:8s} {m:>9d} x {n:<4d}" + "".join(f"{us.get(form, float('nan')):12.2f}" for form in FORMS)
        if with_quern and compiles and gpu:
            line += f" {us['compiled'] / us['quern']:7.2f} {us['graph'] / us['quern graph']:7.2f}"
        print(line, flush=True)


def layer():
    m, n, k, r = 8192, 4096, 4096, 16
    make = lambda *shape: torch.randn(*shape, device=device, dtype=torch.bfloat16) * 0.02
    x, w, bias, a, b = make(m, k), make(k, n), make(n), make(k, r), make(r, n)
    base = lambda x: torch.relu(x @ w + bias)
    adapted = lambda x: torch.relu(x @ w + bias + 0.5 * ((x @ a) @ b))
    forms = {}
    for name, function in (("base", base), ("adapted", adapted)):
        forms[name, "eager"] = function
        if compiles:
            forms[name, "compile"] = torch.compile(function)
            forms[name, "compile"](x)
    yield
    for (name, how), function in forms.items():
        line(f"linear {name} {m}x{n}x{k} r{r} bf16", how, milliseconds(lambda: function(x)))


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


NETWORKS = {  # widths behind the counts, widths behind the interaction, which one, optimiser: the talk's two and Meta's
    "small": ([32, WIDTH], [32, 1], "outer", "adam"),
    "main": ([512, 256, 64, WIDTH], [512, 256, 1], "outer", "adam"),
    "dot": ([512, 256, 64, WIDTH], [512, 256, 1], "dot", "sgd"),
    "cat": ([512, 256, 64, WIDTH], [512, 256, 1], "cat", "sgd"),
}


class Recommender(nn.Module):
    def __init__(self, bottom, top, interaction, sparse, table_type):
        super().__init__()
        every = 27 * WIDTH
        self.bottom = perceptron([13] + bottom)
        self.top = perceptron([{"outer": every * every, "cat": every, "dot": WIDTH + 27 * 26 // 2}[interaction]] + top)
        self.tables = nn.ModuleList(nn.Embedding(rows, WIDTH, sparse=sparse, dtype=table_type) for rows in CARDINALITY)
        self.register_buffer("rows", torch.tensor(CARDINALITY))
        self.register_buffer("lower", torch.tril_indices(27, 27, -1))
        self.interaction = interaction

    def forward(self, dense, tokens):
        index = (tokens + 1) % self.rows
        d = self.bottom(dense)
        vectors = [d] + [table(index[:, i]).float() for i, table in enumerate(self.tables)]
        if self.interaction != "dot":
            z = torch.cat(vectors, 1)
            if self.interaction == "outer":
                z = (z.unsqueeze(2) * z.unsqueeze(1)).flatten(1)
        else:
            t = torch.stack(vectors, 1)
            pairs = torch.bmm(t, t.transpose(1, 2))[:, self.lower[0], self.lower[1]]
            z = torch.cat([d, pairs], 1)
        return torch.sigmoid(self.top(z)).squeeze(-1)


def optimizers(model, kind, sparse):
    """What takes a step: of all parameters, or of the tables apart where their gradients are rows."""
    rate = 1e-3 if kind.startswith("adam") else 0.1
    make = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
    if not sparse:
        return [make(model.parameters(), lr=rate, foreach=True)]
    of_tables = torch.optim.SparseAdam if kind.startswith("adam") else make
    others = [p for name, p in model.named_parameters() if not name.startswith("tables")]
    return [make(others, lr=rate, foreach=True), of_tables(model.tables.parameters(), lr=rate)]


def dlrm(name):
    kind, batch, *more = name.split()
    batch = int(batch)
    bottom, top, interaction, optimizer = NETWORKS[kind]
    optimizer = next((word for word in more if word not in ("sparse", "bf16")), optimizer)
    sparse = "sparse" in more
    model = Recommender(bottom, top, interaction, sparse, torch.bfloat16 if "bf16" in more else torch.float32).to(device)
    dense = torch.rand(batch, 13, device=device) * 10
    tokens = torch.randint(0, 2**31, (batch, 26), device=device)
    labels = torch.randint(0, 2, (batch,), device=device).float()
    steppers = optimizers(model, optimizer, sparse)
    title = f"dlrm {name}{'' if optimizer in more else ' ' + optimizer} step"

    def step(function):
        for each in steppers:
            each.zero_grad(set_to_none=True)
        F.binary_cross_entropy(function(dense, tokens), labels).backward()
        for each in steppers:
            each.step()

    step(model)
    peak = ""
    if gpu:
        torch.cuda.reset_peak_memory_stats()
        step(model)
        torch.cuda.synchronize()
        peak = f"peak {torch.cuda.max_memory_allocated() * 1e-6:.0f} MB"
    if compiles:
        fast = torch.compile(model)
        step(fast)
        graphs = torch.compile(model, mode="reduce-overhead")
        with torch.no_grad():
            for _ in range(4):
                graphs(dense, tokens)
    yield
    line(title, "eager", milliseconds(lambda: step(model)), peak)
    if compiles:
        line(title, "compile", milliseconds(lambda: step(fast)))
    with torch.no_grad():
        line(f"dlrm {name} forward", "eager", milliseconds(lambda: model(dense, tokens)))
        if compiles:
            line(f"dlrm {name} forward", "graphs", milliseconds(lambda: graphs(dense, tokens)))


def lookup():
    batch = 8192
    tables = nn.ModuleList(nn.Embedding(rows, WIDTH, sparse=True) for rows in CARDINALITY).to(device)
    index = torch.stack([torch.randint(0, rows, (batch,), device=device) for rows in CARDINALITY], 1).contiguous()
    optimizer = torch.optim.Adagrad(tables.parameters(), lr=0.1)
    grad = torch.randn(batch, 26, WIDTH, device=device)
    look = lambda: torch.stack([table(index[:, i]) for i, table in enumerate(tables)], 1)

    def step():
        optimizer.zero_grad(set_to_none=True)
        look().backward(grad)
        optimizer.step()

    step()
    yield
    with torch.no_grad():
        line("lookup 26 tables b8192", "eager", milliseconds(look))
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

    if compiles:
        fast = torch.compile(model)
        start = time.perf_counter()
        step(fast)
        if gpu:
            torch.cuda.synchronize()
        spent = time.perf_counter() - start
    yield
    line(f"mlp {size} x {layers} adam tf32 step", "eager", milliseconds(lambda: step(model)))
    if compiles:
        line(f"mlp {size} x {layers} adam tf32 step", "compile", milliseconds(lambda: step(fast)), f"compile {spent:.1f} s")


WORKLOADS = {"lora": lora, "layer": layer, "lookup": lookup, "mlp": mlp, "dlrm": dlrm}


def jobs():
    """(workload, its arguments), as the words of the command say."""
    found, left = [], list(words)
    while left:
        word = left.pop(0)
        if word not in WORKLOADS:
            sys.exit(f"model_peers.py: no workload `{word}`; there are {', '.join(WORKLOADS)} (--help)")
        if word == "lora":
            acts = [act for act in ACTS if only_act in ("", act)]
            parts = [SIZES[i : i + 3] for i in range(0, len(SIZES), 3)] if together else [SIZES]
            found += [(word, (act, part)) for act in acts for part in parts]
        elif word in ("layer", "lookup"):
            found.append((word, ()))
        elif left:
            found.append((word, (left.pop(0),)))
        else:
            sys.exit(f"model_peers.py: `{word}` wants a name behind it (--help)")
    return found


def work(job, ready, turn):
    """One workload in a process of its own: ready when it is compiled, timed when it is its turn."""
    try:
        for _ in WORKLOADS[job[0]](*job[1]):
            ready.set()
            turn.wait()
    finally:
        ready.set()


def run_together(all_jobs):
    spawn = multiprocessing.get_context("spawn")
    workers = []
    for job in all_jobs:
        ready, turn = spawn.Event(), spawn.Event()
        workers.append((spawn.Process(target=work, args=(job, ready, turn), daemon=True), ready, turn))
        workers[-1][0].start()
    until, late = time.monotonic() + patience, 0
    for job, (process, ready, _) in zip(all_jobs, workers):
        while not ready.wait(0.2) and process.is_alive() and time.monotonic() < until:
            pass
        if not ready.is_set() and process.is_alive():
            late += 1
            print(f"left out, not ready after {patience:.0f} s: {job[0]} {job[1]}", flush=True)
            process.terminate()
    for process, _, turn in workers:
        turn.set()
        process.join()
    return 1 if late else max(process.exitcode for process, _, _ in workers)


if __name__ == "__main__":
    if together:
        sys.exit(run_together(jobs()))
    for job in jobs():
        for _ in WORKLOADS[job[0]](*job[1]):
            pass
