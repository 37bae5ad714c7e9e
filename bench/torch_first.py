#!/usr/bin/env python3
"""The first call of a compiled model, forward and gradient: Quern's backend, inductor and a backend that compiles nothing, each in a
process of its own with empty caches, and what Quern's part of it is spent on.

    PYTHONPATH=python python3 bench/torch_first.py [--models a,b] [--lanes 4] [--divide 1] [--forms quern,inductor] [--seconds 1e9] [--cold] [--patience 0.05]

With `--forms fuse,inductor` it is @quern.fuse on functions of tensors (gelu_residual, softmax_scaled, ...). With `--cold` Dynamo is imported by each
process for itself, inside its time, as in a program whose first compiled function this is.

A lane is a share of the cores: as many processes run at once, each on cores of its own (what inductor's helpers run on too). Processes are forked
from one that has imported torch and Dynamo. CUDA and its libraries are warm when the clock starts (the model ran eagerly once), and so is Dynamo, which every backend needs (another function was compiled by a
backend that does nothing); what a backend imports itself is in its time. Columns: seconds, inductor's over Quern's, kernels that were compiled, what an empty
backend takes, Quern's share (its call without an empty backend's) of what it may be (0.3 s and 40 ms a kernel), and seconds of Quern's call: importing, cutting
graphs into islands, waiting for what is compiled meanwhile, measuring forms; when all kernels were there (`settled`: a first call has little patience, and torch's
operators serve it while longer ones compile; `--patience inf` waits); the slowest kernels in ms. `--models all` takes the sixty of bench/torch_models.py.
SPDX-License-Identifier: MIT
"""

import argparse
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench"))
USUAL = "gelu_residual,layer_norm,softmax_scaled,cross_entropy,mlp_norm,mlp_classifier,cnn_small,conv_bn_relu,block,block_bf16,encoder_layer,dlrm_dot,lstm_steps"


def one(name, form, device, divide, cold, patience):
    """In a process of its own."""
    import warnings

    warnings.filterwarnings("ignore")
    import torch

    import torch_models
    from torch_backend import leaves_of

    torch.manual_seed(0)
    function, args = torch_models.MODELS[name](device, divide)
    leaves = leaves_of(torch, function, args)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def step(f):
        results = [r for r in torch.utils._pytree.tree_leaves(f(*args)) if r.requires_grad]
        torch.autograd.grad(results, leaves, [torch.ones_like(r) for r in results], allow_unused=True)
        wait()

    step(function)
    step(function)
    if not cold:
        other = torch.compile(lambda x: (torch.sin(x) * x).sum(), backend="aot_eager")
        other(torch.ones(3, device=device, requires_grad=True)).backward()
    spent, programs = {}, []
    start = time.perf_counter()
    if form == "quern":
        from quern import backend

        clock(spent)
        backend._programs.append(programs)
        spent["imports"] = time.perf_counter() - start
        backend.DEFAULTS["patience"] = patience
        made = torch.compile(function, backend=backend.backend)
    elif form == "fuse":
        import quern

        made = quern.fuse(function)
    else:
        made = torch.compile(function, backend=form)
    step(made)
    first = time.perf_counter() - start
    if form == "quern":
        for program in programs if device == "cuda" else ():
            program.compile("quern")
        spent["settled"] = time.perf_counter() - start
    start = time.perf_counter()
    step(made)
    return {"first": first, "second": time.perf_counter() - start, "spent": spent}


def clock(spent):
    """Wraps the steps of the backend so that each adds its seconds."""
    from quern import backend

    def timed(owner, attribute, label):
        inner = getattr(owner, attribute)

        def outer(*args, **keywords):
            start = time.perf_counter()
            try:
                return inner(*args, **keywords)
            finally:
                spent[label] = spent.get(label, 0.0) + time.perf_counter() - start

        setattr(owner, attribute, outer)

    timed(backend.Program, "__init__", "program")
    timed(backend.Graph, "__init__", "cutting")
    timed(backend.Program, "compile", "compiling")
    timed(backend.Program, "measure", "measuring")


def launch(name, form, given, cores):
    folder = tempfile.mkdtemp(prefix="torch_first_")
    pid = os.fork()
    if pid:
        return pid, folder
    os.environ.update(QUERN_CACHE=f"{folder}/quern", CUDA_CACHE_PATH=f"{folder}/cuda", TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor", TRITON_CACHE_DIR=f"{folder}/triton", QUERN_LOG="compile")
    os.sched_setaffinity(0, cores)
    os.dup2(os.open(f"{folder}/errors", os.O_WRONLY | os.O_CREAT), 2)
    try:
        answer = one(name, form, given.device, given.divide, given.cold, given.patience)
        with open(f"{folder}/answer", "w") as file:
            json.dump(answer, file)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(0)  # helpers of inductor and kernels that nobody waits for end with it


def geometric(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default=None)
    parser.add_argument("--divide", type=int, default=1)
    parser.add_argument("--models", default=USUAL)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--forms", default="quern,inductor,aot_eager")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--patience", type=float, default=0.05, help="seconds that Quern's first call waits for kernels")
    parser.add_argument("--cold", action="store_true", help="Dynamo's imports counted")
    given = parser.parse_args()
    import torch

    if not given.cold:
        import torch._dynamo.backends.common  # noqa: F401: what every backend needs
        import torch._functorch.aot_autograd  # noqa: F401

    import torch_models

    names = list(torch_models.MODELS) if given.models == "all" else given.models.split(",")
    if given.device is None:  # without a look at CUDA, which does not survive a fork
        given.device = "cuda" if os.path.exists("/dev/nvidiactl") else "cpu"
    began, cores = time.perf_counter(), sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // given.lanes)
    waiting = [(m, f) for m in names for f in given.forms.split(",")]
    running, found = {}, {}
    print(f"{'model':22} {'quern':>7} {'inductor':>8} {'ratio':>6} {'empty':>6} {'kernels':>7} {'share':>6} {'bar':>5}  {'imports':>7} {'cutting':>7} {'compile':>7} {'measure':>7} {'settled':>7}")

    def share_of(rows):
        """Quern's part of a first call, and what it may be; None without an empty backend's time."""
        if rows.get("quern") and rows.get("aot_eager"):
            return rows["quern"]["first"] - rows["aot_eager"]["first"], 0.3 + 0.04 * rows["quern"]["kernels"]

    def told(name):
        rows = found[name]
        if len(rows) < len(given.forms.split(",")):
            return
        q, i, e = (rows.get(f) for f in ("fuse" if "fuse" in rows else "quern", "inductor", "aot_eager"))
        if not q:
            return
        spent = q["spent"]
        words = "".join(f" {spent.get(k, 0.0):7.2f}" for k in ("imports", "cutting", "compiling", "measuring", "settled"))
        ratio = f"{i['first'] / q['first']:6.2f}" if i else f"{'-':>6}"
        share = "%6.2f %5.2f" % share_of(rows) if share_of(rows) else f"{'-':>6} {'-':>5}"
        print(f"{name:22} {q['first']:7.2f} {i['first'] if i else float('nan'):8.2f} {ratio} {e['first'] if e else float('nan'):6.2f} {q['kernels']:7d} {share} {words}  {' '.join(f'{ms:.0f}' for ms in q['slowest'])}", flush=True)

    while waiting or running:
        for lane in range(given.lanes):
            if lane in running or not waiting:
                continue
            running[lane] = (*waiting.pop(0), cores[lane * share : (lane + 1) * share])
            running[lane] = (*running[lane][:2], *launch(running[lane][0], running[lane][1], given, running[lane][2]))
        for lane, (name, form, process, folder) in list(running.items()):
            late = time.perf_counter() - began > given.seconds
            if late:
                os.kill(process, signal.SIGKILL)
                waiting.clear()
            if os.waitpid(process, 0 if late else os.WNOHANG)[0] == 0:
                continue
            with open(f"{folder}/errors") as file:
                errors = file.read().splitlines()
            rows = found.setdefault(name, {})
            try:
                with open(f"{folder}/answer") as file:
                    rows[form] = json.load(file)
                made = [line.split() for line in errors if line.startswith("compile: ") and f" for {given.device}" in line and line.endswith(" ms")]
                rows[form]["kernels"], rows[form]["slowest"] = len(made), sorted((float(words[-2]) for words in made), reverse=True)[:5]
            except (OSError, ValueError):
                rows[form] = None
                print(f"{name} {form}: {'out of time' if late else errors[-1][:150] if errors else 'lost'}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            del running[lane]
            told(name)
        time.sleep(0.02)
    both = [(rows.get("quern") or rows.get("fuse"), rows["inductor"]) for rows in found.values() if (rows.get("quern") or rows.get("fuse")) and rows.get("inductor")]
    ratios = [i["first"] / q["first"] for q, i in both]
    shares = [share_of(rows) for rows in found.values() if share_of(rows)]
    if shares:
        print(f"Quern's share is within 0.3 s and 40 ms a kernel for {sum(s <= bar for s, bar in shares)} of {len(shares)} models")
    if ratios:
        print(f"inductor's first call over Quern's: geometric mean {geometric(ratios):.2f}, least {min(ratios):.2f}, {len(ratios)} models")


if __name__ == "__main__":
    main()
