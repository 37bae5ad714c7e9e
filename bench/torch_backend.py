#!/usr/bin/env python3
"""torch.compile's backends beside each other on the sixty models of bench/torch_models.py, forward and gradient: eager, quern, inductor.

    PYTHONPATH=python python3 bench/torch_backend.py [--models a,b] [--workers 8] [--seconds 150] [--no-inductor] [--divide 1]

First every model is compiled, in several processes side by side; then, with all of them idle, one model after the other is
timed: rounds of each form in turns, medians, results compared with eager before and after. Columns: us of a step, the ratio to
eager's (above 1: faster), seconds of the first call (while others compile too), which form Quern's measurement chose. The last lines
are geometric means, the models below 0.9 of eager, and what torch kept most often, and why.
SPDX-License-Identifier: MIT
"""

import argparse
import collections
import copy
import math
import multiprocessing
import os
import queue
import statistics
import sys
import time
import types
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import gpu_lock  # noqa: E402


def leaves_of(torch, function, args):
    """Everything that a gradient is asked for: inputs, parameters, tensors that a closure has."""
    found = [a for a in args if a.requires_grad]
    for layer in [function] + [c.cell_contents for c in getattr(function, "__closure__", None) or ()]:
        for each in layer if isinstance(layer, (list, tuple)) else [layer]:
            if isinstance(each, torch.nn.Module):
                found += [p for p in each.parameters() if p.requires_grad]
            elif isinstance(each, torch.Tensor) and each.is_leaf and each.requires_grad:
                found.append(each)
    return found


def in_double(torch, function):
    """The same model in f64: a module, or a function with modules, lists of them and tensors in its closure."""
    if isinstance(function, torch.nn.Module):
        return copy.deepcopy(function).double()
    if isinstance(function, (list, tuple)):
        return type(function)(in_double(torch, each) for each in function)
    if isinstance(function, torch.Tensor):
        return function.detach().double().requires_grad_(function.requires_grad) if function.is_floating_point() else function
    if isinstance(function, types.FunctionType):
        cells = tuple(types.CellType(in_double(torch, c.cell_contents)) for c in function.__closure__ or ())
        return types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    return function


class Model:
    """One model in every form."""

    def __init__(self, name, given):
        import torch
        import torch_models
        from quern import backend

        self.name, self.torch, self.device = name, torch, given.device
        torch.manual_seed(0)
        self.function, self.args = torch_models.MODELS[name](given.device, given.divide)
        self.leaves = leaves_of(torch, self.function, self.args)
        self.programs, self.firsts, self.failed = [], {}, {}
        self.exact, self.errors = None, []  # of the model in f64, where that had to be asked
        self.forms, self.wanted, self.seeds = {}, None, None
        self.add("eager", self.function)
        backend._programs.append(self.programs)
        self.add("quern", self.compiled(backend.backend))
        backend._programs.pop()

    def add(self, form, function):
        """Calls one form for the first time; a form that fails or is wrong is left out and does not lose the others."""
        self.forms[form] = function
        start = time.perf_counter()
        try:
            made = self.step(form)
            self.wait()
        except Exception as error:
            self.failed[form] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120] if str(error).strip() else ''}"
            del self.forms[form]
            return
        self.firsts[form] = time.perf_counter() - start
        if form == "eager":
            self.wanted = made
        elif not self.close(made):
            self.failed[form] = "WRONG"
            del self.forms[form]

    def compiled(self, backend):
        def function(*args, f=self.function):
            return f(*args)

        # Code of its own for each backend and model: Dynamo's cache goes by code. A function is compiled itself, as people do it: one that
        # calls it shares its code with others, and is never left alone.
        f = self.function if isinstance(self.function, types.FunctionType) else function
        code = f.__code__.replace(co_name=f"{self.name}_{backend if isinstance(backend, str) else 'quern'}")
        made = types.FunctionType(code, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
        made.__kwdefaults__ = f.__kwdefaults__
        return self.torch.compile(made, backend=backend)

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def step(self, form):
        torch = self.torch
        results = torch.utils._pytree.tree_leaves(self.forms[form](*self.args))
        wanted = [r for r in results if r.requires_grad]
        if self.seeds is None:  # not ones: behind a norm those make gradients of nothing but rounding
            self.seeds = [torch.randn_like(r) for r in wanted]
        grads = torch.autograd.grad(wanted, self.leaves, self.seeds, allow_unused=True)
        return [r.detach() for r in results] + [g for g in grads if g is not None]

    def close(self, made):
        torch = self.torch
        if len(made) != len(self.wanted):
            return False
        sizes = [float(y.abs().max()) if y.is_floating_point() and y.numel() else 0.0 for y in self.wanted]
        for i, (x, y, size) in enumerate(zip(made, self.wanted, sizes)):
            few = 2e-2 if y.dtype == torch.bfloat16 else 2e-3
            # A gradient that is nothing but what rounding left of large ones is as exact as those are.
            if y.is_floating_point() and not torch.allclose(x.float(), y.float(), rtol=few, atol=few * max(size, 0.01 * max(sizes))):
                if not self.is_as_exact(i, x, y):
                    return False
        return True

    def is_as_exact(self, i, x, y):
        """Where a step has kinks (relu behind a norm), a number that rounds to the other side of one has another gradient, in eager as
        elsewhere: x is right if it is no further from the same model in f64 than 1.5 times what eager is."""
        torch = self.torch
        if y.dtype != torch.float32:
            return False
        if self.exact is None:
            forms, args, leaves, seeds = self.forms, self.args, self.leaves, self.seeds
            model, self.args = in_double(torch, self.function), in_double(torch, list(args))
            self.forms, self.leaves, self.seeds = {"f64": model}, leaves_of(torch, model, self.args), [s.double() for s in seeds]
            self.exact = self.step("f64")
            self.forms, self.args, self.leaves, self.seeds = forms, args, leaves, seeds
        ours, eagers = (float((each.double() - self.exact[i]).norm() / self.exact[i].norm()) for each in (x, y))
        self.errors.append((i, ours, eagers))
        return ours <= 1.5 * eagers

    def time(self, rounds):
        """Medians in us by form."""
        from quern import backend

        times = {form: [] for form in self.forms}
        for form in self.forms:
            self.step(form)
            backend.settle()
            for _ in range(3):
                self.step(form)
        self.wait()
        start = time.perf_counter()
        self.step("eager")
        self.wait()
        calls = max(1, min(30, int(0.006 / max(time.perf_counter() - start, 1e-6))))
        for _ in range(rounds):
            for form in self.forms:
                self.wait()
                start = time.perf_counter()
                for _ in range(calls):
                    last = self.step(form)
                self.wait()
                times[form].append((time.perf_counter() - start) / calls * 1e6)
                if form == "quern" and len(times[form]) == rounds and not self.close(last):
                    self.failed["quern"] = "WRONG after timing"
        return {form: statistics.median(t) for form, t in times.items()}


def worker(number, given, names, orders, answers, turn, late):
    """Compiles the models it is given, then times them when it is its turn."""
    warnings.filterwarnings("ignore")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"/tmp/torch_backend_{os.getpid()}")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    import torch

    from quern import backend, choice

    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch._dynamo.config.cache_size_limit = torch._dynamo.config.recompile_limit = 1000
    torch._dynamo.config.accumulated_recompile_limit = 100000
    choice.postponed = True  # until the machine is quiet
    models = []
    while True:
        try:
            name = names.get_nowait()
        except queue.Empty:
            break
        try:
            models.append(Model(name, given))
        except Exception as error:
            answers.put(("lost", name, f"{type(error).__name__}: {str(error).strip().splitlines()[0][:150] if str(error).strip() else ''}"))
    for m in models if given.inductor else ():  # last, as it takes longest: a limit loses columns, not rows
        if not late.is_set():
            m.add("inductor", m.compiled("inductor"))
    answers.put(("ready", number, len(models)))
    orders.get()
    if given.cores:
        os.sched_setaffinity(0, given.cores)
    choice.postponed = False
    for m in models:
        with turn, gpu_lock.alone():
            try:
                times = m.time(given.rounds)
            except Exception as error:
                answers.put(("lost", m.name, f"{type(error).__name__}: {str(error).strip()[:150]}"))
                continue
        kept = collections.Counter()
        for report in [r for p in m.programs for r in p.reports]:
            for (target, reason), count in report.kept.items():
                kept[backend._short(target), reason] += count
        chosen = [(p.form, {k: round(t * 1e6, 1) for k, t in p.times.items()}, p.is_plain) for p in m.programs]
        if m.errors:
            worst = max(m.errors, key=lambda e: e[1] / e[2])
            answers.put(("note", m.name, f"differs from eager beyond the tolerance; relative to f64: {worst[1]:.1e}, eager {worst[2]:.1e} ({len(m.errors)} comparisons)"))
        answers.put(("timed", m.name, (times, m.firsts, m.failed, chosen, kept)))
    answers.put(("over", number, None))


def geometric(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default=None)
    parser.add_argument("--divide", type=int, default=1, help="of the sizes, for small machines")
    parser.add_argument("--models", default="")
    parser.add_argument("--workers", type=int, default=max(1, min(12, (os.cpu_count() or 2) - 2)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1e9, help="what is not compiled by two thirds of it is left out, inductor's forms first")
    parser.add_argument("--cores", type=lambda text: [i for part in text.split(",") for i in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)], help="on which to time: 0-3,8")
    parser.add_argument("--no-inductor", dest="inductor", action="store_false")
    given = parser.parse_args()
    import torch_models

    if given.device is None:
        import torch

        given.device = "cuda" if torch.cuda.is_available() else "cpu"
    wanted = given.models.split(",") if given.models else list(torch_models.MODELS)
    began = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    names, answers, turn, late = context.Queue(), context.Queue(), context.Lock(), context.Event()
    heavy = ("block", "encoder", "language", "vision", "mlp_deep", "resnet", "mobile", "rnn", "gru", "lstm", "dlrm", "diffusion", "convnext")
    for name in sorted(wanted, key=lambda n: not any(h in n for h in heavy)):  # the long ones first
        names.put(name)
    count = min(given.workers, len(wanted))
    orders = [context.Queue() for _ in range(count)]
    processes = [context.Process(target=worker, args=(i, given, names, orders[i], answers, turn, late), daemon=True) for i in range(count)]
    for p in processes:
        p.start()
    ready, over, timed = set(), set(), {}
    started = False
    first_ratios = []
    print(f"{'model':24} {'eager us':>9} {'quern us':>9} {'ratio':>6} {'first s':>7} {'inductor':>9} {'ratio':>6} {'first s':>7}  chosen")
    while len(over) < count:
        if time.perf_counter() - began > given.seconds * 0.66:
            late.set()
        if not started and (len(ready) == count or late.is_set()):
            while late.is_set():  # what nobody began is left out
                try:
                    print(f"{names.get_nowait():24} not compiled in time")
                except queue.Empty:
                    break
            if len(ready) == count or time.perf_counter() - began > given.seconds * 0.75:
                started = True
                print(f"note: compiled in {time.perf_counter() - began:.0f} s", flush=True)
                for order in orders:
                    order.put("time")
        if time.perf_counter() - began > given.seconds:
            print("note: the seconds are over")
            break
        try:
            kind, name, what = answers.get(timeout=1.0)
        except queue.Empty:
            if not any(p.is_alive() for p in processes):
                break
            continue
        if kind == "ready":
            ready.add(name)
        elif kind == "over":
            over.add(name)
        elif kind == "note":
            print(f"{name:24} note: {what}", flush=True)
        elif kind == "lost":
            print(f"{name:24} LOST {what}", flush=True)
        elif kind == "timed":
            times, firsts, failed, chosen, kept = timed[name] = what
            line = f"{name:24} {times['eager']:9.1f}"
            for form in ("quern", "inductor"):
                line += f" {times[form]:9.1f} {times['eager'] / times[form]:6.2f} {firsts[form]:7.2f}" if form in times else f" {'-':>9} {'-':>6} {'-':>7}"
            line += "  " + ", ".join(f"{f}{'' if plain else ' (aot)'} {t or ''}" for f, t, plain in chosen)
            print(line + ("  FAILED " + str(failed) if failed else ""), flush=True)
            if "quern" in firsts and "inductor" in firsts:
                first_ratios.append(firsts["inductor"] / firsts["quern"])
    for form in ("quern", "inductor"):
        ratios = {n: t["eager"] / t[form] for n, (t, _, failed, _, _) in timed.items() if form in t and form not in failed}
        if ratios:
            low = {n: round(r, 2) for n, r in sorted(ratios.items(), key=lambda item: item[1]) if r < 0.9}
            print(f"{form}: geometric mean {geometric(ratios.values()):.3f} of eager, worst {min(ratios.values()):.2f}, {len(ratios)} models; below 0.9: {low}")
    both = [t["inductor"] / t["quern"] for t, _, failed, _, _ in timed.values() if "inductor" in t and "quern" in t and not failed]
    print(f"quern against inductor: geometric mean {geometric(both):.3f} of {len(both)} models")
    if first_ratios:
        print(f"first call, inductor's time over quern's: geometric mean {geometric(first_ratios):.2f}, least {min(first_ratios):.2f}")
    kept = sum((what[4] for what in timed.values()), collections.Counter())
    for (target, reason), times in kept.most_common(15):
        print(f"torch keeps {target} x{times}: {reason}")
    sys.stdout.flush()
    for p in processes:
        p.terminate()


if __name__ == "__main__":
    main()
