#!/usr/bin/env python3
"""A folder of problems (PyTorch modules beside tensor functions) on one device: eager PyTorch, torch.compile and Quern.

Usage: python3 bench/kernelbench.py FOLDER [--device cuda|cpu] [--sizes full|large|medium|small] [--level 1,2] [--only 41,45 or 1:41,2:45]
       [--jobs N] [--memory GB] [--overlap] [--timeout S] [--budget S] [--no-compile] [--compile-below R] [--tf32] [--gradient] [--plan] [--json FILE] [--library FILE] [--quern FILE] [--mode fused|eager] [--processor-time]

FOLDER holds level1.qn, level2.qn ... with tensor functions k1, k2 ..., and level1/1_NAME.py ...: a class Model, get_inputs and
get_init_inputs, the sizes as names of the module. Inputs and parameters are bound to the function's arrays in order,
scalars by their names. Or, as in bench/problems, level1.py with functions k1, k2 ... of the same arrays in the same order;
then the function's `bench` block has the sizes and how inputs are made (weights, called w..., so that sums stay near 1). `large`, `medium` and `small` halve the largest sizes of a problem (not those of windows, groups and channels)
until its numbers and operations fit half a gigabyte or a CPU; they are the same on every machine.
Each problem runs in a process of its own, which is ended after the timeout. --jobs of them compile and are checked side
by side; then each is timed alone, so that nobody's compiling or kernels run beside a measurement; with --overlap the others
go on with theirs as soon as it is done (they are stopped meanwhile), so that the slowest of a group is not waited for.
Where QUERN_GPU_LOCK names a file, nobody else who honours it times meanwhile. Quern is checked
against eager first; what is wrong is not timed. The table is sorted by the ratio of the better peer's time to Quern's (above 1: Quern is faster);
below 0.8 the reason follows, as the plan itself says it (`quern show --stage fusion --why`).
--gradient times the forward with the gradients of all arrays of floats instead, from numbers that arrive at the result.
--plan runs nothing: what fusion estimates for each problem at its sizes, slowest against eager first; needs no device.
"""
import argparse
import ctypes as C
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import statistics
import subprocess
import sys
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from gpu_lock import alone  # noqa: E402
from kernelbench_problems import Problem, Quern  # noqa: E402
UNITS = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}


# ---- times ----

def wait_until_alone(numbers, most_s=3.0):
    """Until thirty fills in a row take about as long as the fastest: what stopped processes had asked for has ended."""
    end, best = time.monotonic() + most_s, float("inf")
    while time.monotonic() < end:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(31)]
        for event in events:
            event.record()
            numbers.zero_()
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in zip(events, events[1:])][1:]
        best = min(best, *times)
        if max(times) < 1.3 * best:
            return


def times_us(calls, device, budget_s, clock=time.perf_counter, clean=False):
    """Median times. On a GPU the calls take turns, its second-level cache is emptied before each, and times are those
    between two events; clean: nothing of what emptied it has still to be written out. On a CPU they do not: the threads of the one before would still look for work."""
    gpu = device == "cuda"
    wait = torch.cuda.synchronize if gpu else lambda: None
    empty = torch.empty(64 << 20, dtype=torch.int32, device=device) if gpu else None
    if gpu:
        wait_until_alone(empty, 0.7 if "QUERN_GPU_LOCK" in os.environ else 3.0)
    counts = {}
    for name, f in calls.items():
        f()
        wait()
        start = time.perf_counter()
        f()
        wait()
        once = time.perf_counter() - start
        counts[name] = 1 if once > 2 else max(5, min(50, int(budget_s / max(once, 1e-5))))
    times, events = {name: [] for name in calls}, {name: [] for name in calls}
    turns = [name for turn in range(max(counts.values())) for name in calls if turn < counts[name]]
    for name in turns if gpu else sorted(turns):
        if gpu:
            empty.zero_()
            if clean:
                empty.sum()
            events[name].append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
            events[name][-1][0].record()
            calls[name]()
            events[name][-1][1].record()
        else:
            start = clock()
            calls[name]()
            times[name].append((clock() - start) * 1e6)
    wait()
    every = {name: times[name] or [a.elapsed_time(b) * 1e3 for a, b in events[name]] for name in calls}
    return {name: statistics.median(x) for name, x in every.items()}


def rough_ratio(calls, device):
    """Eager's time over Quern's, with whatever else runs there."""
    least = {}
    for name, f in calls.items():
        for _ in range(3):
            start = time.perf_counter()
            f()
            if device == "cuda":
                torch.cuda.synchronize()
            least[name] = min(least.get(name, float("inf")), time.perf_counter() - start)
    return least["eager_us"] / least["quern_us"]


def relative_error(got, want, least=1e-3):
    """Of the largest number there; what is smaller than a thousandth (the mean of normalised numbers, or the gradient of what a norm
    takes away) is what remained of others, in PyTorch too."""
    if not want.dtype.is_floating_point:
        return float((got != want).float().mean())
    far = (got - want).abs().max().item() if want.numel() >= 1 << 28 else (got.double() - want.double()).abs().max().item()
    return far / max(want.abs().max().item(), least)


def forward_of(model, tensors):
    def results(f, inputs):
        with torch.no_grad():
            y = f(*inputs)
        return [y if torch.is_tensor(y) else y[0]]
    return results


def gradient_of(model, tensors):
    """Forward and gradient by every array of floats that the result depends on, from numbers that arrive at it."""
    wanted = [x.requires_grad_() for x in tensors if x.dtype.is_floating_point]

    def results(f, inputs):
        y = f(*inputs)
        y = y if torch.is_tensor(y) else y[0]
        if results.arriving is None:
            results.arriving = torch.randn_like(y.detach()) if y.dim() else torch.ones_like(y.detach())
            found = torch.autograd.grad(y, wanted, results.arriving, allow_unused=True, retain_graph=True)
            results.wanted = [x for x, d in zip(wanted, found) if d is not None]
        return [y.detach()] + list(torch.autograd.grad(y, results.wanted, results.arriving))
    results.arriving = None
    return results


def run_one(problem, options, pipe):
    """In a process of its own: sends dictionaries that the parent joins, so that what was known before an end is kept.
    Everything is compiled and checked, then it waits for the parent's word and is timed."""
    os.setpgid(0, 0)  # stopped and ended with the compilers that it starts
    C.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a stopped one ends with its parent
    try:
        device = options.device
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.tf32
        torch.backends.cudnn.benchmark = True
        names, model, inputs = problem.build(problem.sizes(options.sizes), device)
        scalars, tensors = problem.values(names, inputs), problem.tensors(model, inputs)
        pipe.send({"settings": problem.settings(scalars, tensors)})
        quern = Quern(options.library, device)
        results = (gradient_of if options.gradient else forward_of)(model, tensors)
        calls = {"eager_us": lambda: results(model, inputs)}
        want = results(model, [x.detach().clone() if torch.is_tensor(x) else x for x in inputs] if not options.gradient else inputs)
        pipe.send({"stage": "compiling Quern's plan or its first run"})
        got = [torch.empty(tuple(x.shape), dtype=x.dtype, device=device) for x in want]
        if options.gradient:
            by_name = {name: x for (name, _), x in zip(problem.arrays, tensors)}
            problem = problem.gradient(want[0], [n for n, x in by_name.items() if any(x is w for w in results.wanted)])
            tensors = tensors + [results.arriving]
        call, _keep = quern.call(problem, options.mode + (" tf32" if options.tf32 else ""), tensors, scalars, got)
        start = time.perf_counter()
        quern.run(call)
        if device == "cuda":
            torch.cuda.synchronize()
        pipe.send({"first_s": time.perf_counter() - start})
        largest = max((x.abs().max().item() for x in want[1:] if x.numel()), default=0.0)
        least = 1e-2 * largest if options.gradient else 1e-3
        errors = [relative_error(x, y, max(least, 1e-3)) for x, y in zip(got, want)]
        error = max(errors)
        halves = any(x.dtype in (torch.float16, torch.bfloat16) for x in tensors)
        right = error < (2e-2 if options.tf32 or halves else 2e-3)
        pipe.send({"error": error, "status": "ok" if right else "WRONG", "stage": "torch.compile"})
        if not right and len(errors) > 1:
            pipe.send({"why": "errors of result and gradients: " + ", ".join(f"{e:.1e}" for e in errors)})
        del want
        if right:
            calls["quern_us"] = lambda: quern.run(call)
        if not options.no_compile and right and rough_ratio(calls, device) > options.compile_below:
            pipe.send({"why": "not compiled by torch: far above eager"})
        elif not options.no_compile:
            try:
                compiled = torch.compile(model)
                results(compiled, inputs)
                calls["compiled_us"] = lambda: results(compiled, inputs)
            except Exception as why:
                pipe.send({"why": f"torch.compile: {type(why).__name__}: {str(why)[:100]}"})
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        pipe.send({"stage": "times", "ready": True})
        pipe.recv()
        clock = time.process_time if options.processor_time else time.perf_counter
        pipe.send(times_us(calls, device, options.budget, clock))
    except Exception as problem_of_it:
        pipe.send({"status": "ERROR", "why": f"{type(problem_of_it).__name__}: {str(problem_of_it)[:300]}"})
    pipe.close()


class Run:
    """A problem's process. Forked, so that nothing is imported again; the parent never touches the device."""

    def __init__(self, problem, options):
        self.row = {"level": problem.level, "number": problem.number, "name": problem.name, "status": "NONE",
                    "stage": "eager"}
        self.timeout = options.timeout
        context = multiprocessing.get_context("fork")
        self.pipe, its = context.Pipe()
        self.process = context.Process(target=run_one, args=(problem, options, its))
        self.process.start()
        try:
            os.setpgid(self.process.pid, self.process.pid)  # there for signals before it has come so far itself
        except OSError:
            pass
        its.close()
        self.end = time.monotonic() + self.timeout

    def hear(self):
        """One message; no at its end."""
        try:
            self.row.update(self.pipe.recv())
            return True
        except EOFError:
            return False

    def caught_up(self):
        """What it has said already is heard; is it ready?"""
        while "ready" not in self.row and self.pipe.poll(0):
            if not self.hear():
                return True
        return "ready" in self.row

    def follow(self, last):
        """Until it has sent `last` or has ended."""
        while last not in self.row:
            try:
                said = self.pipe.poll(max(self.end - time.monotonic(), 0))
            except EOFError:
                break
            if not said:
                self.row.update(status="TIME", why=f"not done after {self.timeout:g} s: {self.row['stage']}")
                self.signal(signal.SIGKILL)
                break
            if not self.hear():
                break

    def signal(self, which):
        try:
            os.killpg(self.process.pid, which)
        except ProcessLookupError:
            pass

    def finish(self, others=()):
        """Timed while the others are stopped; what they had asked of the device ends first."""
        row, start = self.row, time.monotonic()
        for other in others:
            other.signal(signal.SIGSTOP)
        time.sleep(0.02 if others else 0)
        if "ready" in row:
            self.end = time.monotonic() + self.timeout
            self.pipe.send(True)
            self.follow("eager_us")
        self.process.join()
        self.pipe.close()
        for other in others:
            other.signal(signal.SIGCONT)
            other.end += time.monotonic() - start
        if row["status"] == "NONE":
            row.update(status="ENDED", why=f"its process ended with {self.process.exitcode}")
        peers = [row[k] for k in ("eager_us", "compiled_us") if k in row]
        if "quern_us" in row and peers:
            row["ratio"] = min(peers) / row["quern_us"]
        row.pop("ready", None)
        row.pop("stage", None)
        return row


def prepare_compiler():
    """What torch.compile imports, once for all that are forked; each compiles by itself, for a pool of its own would be started
    for each problem. Asking whether there is a GPU must not open it: then no child could."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch._dynamo
    import torch._inductor.compile_fx
    import torch._inductor.codegen.triton
    torch._inductor.config.compile_threads = 1


MOST_SLICE_S = 10  # of a GPU that others wait for


def held_bytes(problem, options):
    return (60.0 if options.gradient else 20.0) * problem.cost(problem.sizes(options.sizes))[0] if options.jobs > 1 else 0.0


def groups(problems, options):
    """Problems that are prepared side by side: no more than --jobs, and no more numbers than fit the device's memory."""
    group, held = [], 0.0
    for problem in problems:
        size_bytes = held_bytes(problem, options)
        if group and (len(group) >= options.jobs or held + size_bytes > options.memory * 1e9):
            yield group
            group, held = [], 0.0
        group.append(problem)
        held += size_bytes
    if group:
        yield group


def rows_in_groups(problems, options, start):
    for group in groups(problems, options):
        if time.monotonic() - start > options.seconds:
            print(f"no time for level {group[0].level}, {group[0].number} and what follows")
            return
        runs = [Run(problem, options) for problem in group]
        for run in runs:
            run.follow("ready")
        for run in runs:
            with alone():
                row = run.finish()
            yield row


def rows_overlapping(problems, options, start):
    """The first that is ready is timed while the others are stopped; as many as before are begun for each that has ended."""
    waiting, runs = list(problems), []
    while waiting or runs:
        while waiting and len(runs) < options.jobs:
            if time.monotonic() - start > options.seconds:
                print(f"no time for level {waiting[0].level}, {waiting[0].number} and what follows")
                waiting = []
                break
            size_bytes = held_bytes(waiting[0], options)
            if runs and sum(size for _, size in runs) + size_bytes > options.memory * 1e9:
                break
            runs.append((Run(waiting.pop(0), options), size_bytes))
        ended = [run for run, _ in runs if "ready" in run.row]  # left over from the slice before
        now = time.monotonic()
        pipes = {run.pipe: run for run, _ in runs}
        said = [] if ended else multiprocessing.connection.wait(pipes, max(min((run.end for run, _ in runs), default=now) - now, 0))
        ended += [pipes[p] for p in said if not pipes[p].hear() or "ready" in pipes[p].row]
        ended += [run for run, _ in runs if run not in ended and run.end < time.monotonic()]
        if not ended:
            continue
        with alone():
            slice_end = time.monotonic() + MOST_SLICE_S
            ended += [run for run, _ in runs if run not in ended and run.caught_up()]  # while the lock was waited for
            for run in ended:
                if time.monotonic() > slice_end:
                    break
                run.follow("ready")
                runs = [(other, size) for other, size in runs if other is not run]
                yield run.finish([other for other, _ in runs])


# ---- what the plan says ----

def plan_text(problem, settings, options):
    words = [options.quern, "show", problem.functions, f"k{problem.number}", "--stage", "fusion", "--why", "--device",
             options.device, *settings]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else "", (done.stderr.strip().splitlines() or [""])[0]


def plan_reason(text):
    """The slowest kernel by the plan's own estimate, and what it says of it."""
    best, best_us = "", -1.0
    for line in text.splitlines():
        m = re.match(r"  takes about ([0-9.e+]+) (ns|us|ms|s)\b", line)
        if m:
            time_us = float(m.group(1)) * UNITS[m.group(2)]
            if time_us > best_us:
                best, best_us = f"{kernel}: {line.strip()}", time_us
        elif line.startswith("kernel "):
            kernel = " ".join(line.split()[1:3])
    if not best:
        edges = re.findall(r"^boundary \S+ .*?\(([0-9.]+) (KB|MB|GB)\) (from kernel .*)$", text, re.M)
        size = {"KB": 1e3, "MB": 1e6, "GB": 1e9}
        best = "largest boundary " + max(((float(a) * size[b], f"{a} {b} {c}") for a, b, c in edges), default=(0, "none"))[1]
    kernels = len(re.findall(r"^kernel ", text, re.M))
    return f"{kernels} kernels; " + best


def plan_all(problems, options):
    rows = []
    for problem in problems:
        try:
            changed = problem.sizes(options.sizes)
            names, model, inputs = problem.build(changed, "meta")
            settings = problem.settings(problem.values(names, inputs), problem.tensors(model, inputs))
            text, wrong = plan_text(problem, settings, options)
            m = re.search(r"^plan: .*$", text, re.M)
            times = [float(a) * UNITS[b] for a, b in re.findall(r" ([0-9.e+-]+) (ns|us|ms|s)\b", m.group(0))] if m else []
            ratio = times[1] / times[0] if len(times) == 2 and times[0] else 0.0
            rows.append((ratio, problem, m.group(0) if m else wrong or plan_reason(text), plan_reason(text)))
        except Exception as why:
            rows.append((-1.0, problem, f"{type(why).__name__}: {str(why)[:200]}", ""))
    for ratio, problem, words, reason in sorted(rows, key=lambda r: r[0]):
        print(f"L{problem.level} {problem.number:3d} {problem.name[:40]:40s} {words}")
        if reason and reason != words:
            print(f"{'':48s}{reason}")


# ---- the table ----

def number(row, key):
    return f"{row[key]:12.1f}" if key in row else f"{'-':>12s}"


def print_table(rows, problems, options):
    print(f"\n{'problem':50s} {'status':6s} {'eager us':>12s} {'compiled us':>12s} {'quern us':>12s} {'ratio':>7s} "
          f"{'error':>8s} {'first s':>7s}")
    for row in sorted(rows, key=lambda r: r.get("ratio", -1)):
        ratio = f"{row['ratio']:7.2f}" if "ratio" in row else f"{'-':>7s}"
        error = f"{row['error']:8.1e}" if "error" in row else f"{'-':>8s}"
        first = f"{row['first_s']:7.2f}" if "first_s" in row else f"{'-':>7s}"
        print(f"L{row['level']} {row['number']:3d} {row['name'][:43]:43s} {row['status']:6s} {number(row, 'eager_us')} "
              f"{number(row, 'compiled_us')} {number(row, 'quern_us')} {ratio} {error} {first}")
        if row.get("why"):
            print(f"      {row['why']}")
        if row.get("ratio", 0) < 0.8 and not options.gradient and "settings" in row and os.path.exists(options.quern):
            try:
                row["reason"] = plan_reason(plan_text(problems[row["level"], row["number"]], row["settings"], options)[0])
            except subprocess.TimeoutExpired:
                row["reason"] = "planning takes more than a minute"
            print(f"      because: {row['reason']}")
    for level in sorted({r["level"] for r in rows}):
        mine = [r for r in rows if r["level"] == level]
        ratios = [r["ratio"] for r in mine if "ratio" in r]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")
        print(f"level {level}: {len(ratios)} of {len(mine)} right and timed; geometric mean {mean:.3f}; "
              f"at least 1: {sum(x >= 1 for x in ratios)}; below 0.8: {sum(x < .8 for x in ratios)}; "
              f"below 0.5: {sum(x < .5 for x in ratios)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", default="full", choices=("full", "large", "medium", "small"))
    parser.add_argument("--level", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1, help="problems compiled and checked side by side")
    parser.add_argument("--overlap", action="store_true", help="prepare the next ones while one is timed")
    parser.add_argument("--timeout", type=float, default=60, help="seconds a problem")
    parser.add_argument("--budget", type=float, default=0.25, help="seconds that each side of a problem is timed")
    parser.add_argument("--seconds", type=float, default=1e9, help="for all: what does not fit is not begun")
    parser.add_argument("--memory", type=float, default=100, help="gigabytes of the device that problems prepared side by side may hold")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--compile-below", type=float, default=float("inf"), help="torch.compile only where eager takes less than so many of Quern's times")
    parser.add_argument("--processor-time", action="store_true",
                        help="of a CPU that others use too: time on its cores, under taskset -c N and OMP_NUM_THREADS=1")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--gradient", action="store_true")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--mode", default="fused", choices=("fused", "eager", "strict"))
    parser.add_argument("--json", default="")
    parser.add_argument("--library", default=os.path.join(HERE, "..", "build", "libquern.so"))
    parser.add_argument("--quern", default=os.path.join(HERE, "..", "build", "quern"))
    options = parser.parse_args()
    levels = options.level.split(",") if options.level else sorted(
        re.findall(r"level(\d+)\.qn", " ".join(os.listdir(options.folder))))
    problems = {}
    for level in map(int, levels):
        text = open(os.path.join(options.folder, f"level{level}.qn")).read()
        numbers = sorted(int(x) for x in re.findall(r"^tensor k(\d+)\(", text, re.M))
        if options.only:
            words = [w.split(":") for w in options.only.split(",")]
            numbers = [int(w[-1]) for w in words if int(w[-1]) in numbers and int(w[0] if len(w) > 1 else level) == level]
        problems.update({(level, n): Problem(options.folder, level, n) for n in numbers})
    if options.only:  # in the order asked for, across levels too
        words = [w.split(":") for w in options.only.split(",")]
        asked = [(level, int(w[-1])) for w in words for level in map(int, levels) if len(w) < 2 or int(w[0]) == level]
        problems = {key: problems[key] for key in asked if key in problems}
    if options.plan:
        return plan_all(problems.values(), options)
    if not options.no_compile:
        prepare_compiler()
    rows, start = [], time.monotonic()
    for row in (rows_overlapping if options.overlap else rows_in_groups)(list(problems.values()), options, start):
        rows.append(row)
        print(f"L{row['level']} {row['number']:3d} {row['name'][:43]:43s} {row['status']:6s} {row.get('ratio', 0):7.2f} "
              f"{number(row, 'eager_us')} {number(row, 'quern_us')} {row.get('why', '')}", flush=True)
        if options.json:
            with open(options.json, "w") as f:
                json.dump(rows, f, indent=1)
    print_table(rows, problems, options)
    if options.json:
        with open(options.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
