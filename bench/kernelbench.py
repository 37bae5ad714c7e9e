#!/usr/bin/env python3
"""A folder of problems (PyTorch modules beside tensor functions) on one device: eager PyTorch, torch.compile and Quern.

Usage: python3 bench/kernelbench.py FOLDER [--device cuda|cpu] [--sizes full|medium|small] [--level 1,2] [--only 41,45 or 1:41,2:45]
       [--jobs N] [--memory GB] [--overlap] [--timeout S] [--budget S] [--no-compile] [--tf32] [--plan] [--json FILE] [--library FILE] [--quern FILE] [--mode fused|eager] [--processor-time]

FOLDER holds level1.qn, level2.qn ... with tensor functions k1, k2 ..., and level1/1_NAME.py ...: a class Model, get_inputs and
get_init_inputs, the sizes as names of the module. Inputs and parameters are bound to the function's arrays in order,
scalars by their names. Or, as in bench/problems, level1.py with functions k1, k2 ... of the same arrays in the same order;
then the function's `bench` block has the sizes and how inputs are made (weights, called w..., so that sums stay near 1). `medium` and `small` halve the largest sizes of a problem (not those of windows, groups and channels)
until its numbers and operations fit a CPU; they are the same on every machine.
Each problem runs in a process of its own, which is ended after the timeout. --jobs of them compile and are checked side
by side; then each is timed alone, so that nobody's compiling or kernels run beside a measurement; with --overlap the others
go on with theirs as soon as it is done (they are stopped meanwhile), so that the slowest of a group is not waited for.
Where QUERN_GPU_LOCK names a file, nobody else who honours it times meanwhile. Quern is checked
against eager first; what is wrong is not timed. The table is sorted by the ratio of the better peer's time to Quern's (above 1: Quern is faster);
below 0.8 the reason follows, as the plan itself says it (`quern show --stage fusion --why`).
--plan runs nothing: what fusion estimates for each problem at its sizes, slowest against eager first; needs no device.
"""
import argparse
import ast
import ctypes as C
import glob
import json
import logging
import math
import multiprocessing
import multiprocessing.connection
import os
import re
import runpy
import signal
import statistics
import subprocess
import sys
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from gpu_lock import alone  # noqa: E402
LIMITS = {"medium": (16 << 20, 4e9), "small": (1 << 19, 5e7)}  # numbers, operations
STRUCTURE = re.compile(r"kernel|stride|pad|dilation|group|channel|feature|classes|_dim$|^dim$|heads|^(C|O|S|P|G|HEADS)$")
UNITS = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3, torch.int8: 4, torch.int16: 5,
          torch.int32: 6, torch.int64: 7, torch.uint8: 8, torch.bool: 12, torch.float8_e4m3fn: 13}
TYPES = {"float": torch.float32, "double": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32,
         "i64": torch.int64}


# ---- problems ----

class Problem:
    """One function of one file, with the module beside it."""

    def __init__(self, folder, level, number):
        self.folder, self.level, self.number = folder, level, number
        self.functions = os.path.join(folder, f"level{level}.qn")
        found = glob.glob(os.path.join(folder, f"level{level}", f"{number}_*.py"))
        self.path = found[0] if found else None
        self.name = os.path.basename(found[0])[:-3] if found else f"k{number}"
        text = open(self.functions).read()
        head = re.search(r"^tensor k%d\((.*?)\)\s*(?:$|\{)" % number, text, re.M | re.S)
        self.arrays, self.scalars = [], []  # (name, extents), names
        self.types = {}
        for word in re.split(r",\s*", head.group(1)):
            m = re.match(r"(?:const )?(\w+) (\w+)((?:\[[^\]]*\])*)", word.strip())
            extents = re.findall(r"\[([^\]]*)\]", m.group(3))
            if extents:
                self.arrays.append((m.group(2), extents))
                self.types[m.group(2)] = TYPES.get(m.group(1), torch.float32)
            else:
                self.scalars.append(m.group(2))

        self.listed = None  # sizes by name, and how arrays are made: a function of level1.py
        listed = os.path.join(folder, f"level{level}.py")
        if not found and os.path.exists(listed):
            block = re.search(r"^bench k%d \((.*?)\)( on| input| \{)(.*)$" % number, text, re.M)
            self.listed, self.made, self.path = {}, {}, listed
            for word in block.group(1).split(", "):
                name, value = word.split(" = ")
                self.listed[name] = eval(value, {}, dict(self.listed))
            for name, kind, a, b in re.findall(r"(\w+) = (\w+)\(([-\d.]+), ([-\d.]+)\)", block.group(3)):
                self.made[name] = (kind, float(a), float(b))
            said = re.search(r"^// %d: (.*)$" % number, text, re.M)
            self.name = said.group(1) if said else re.sub(r"\s+", " ", text[head.end():].split(";")[0].strip(" {}\n"))

    def array(self, name, shape):
        kind, a, b = self.made.get(name, ("normal", 0.0, 1 / math.sqrt(math.prod(shape[1:]) or 1) if name[0] == "w" else 1.0))
        values = torch.randn(shape) * b + a if kind == "normal" else torch.rand(shape) * (b - a) + a
        return values.to(self.types[name])

    def module(self, changed):
        """The module's names, with some sizes changed as soon as they are given."""
        if self.listed:
            return {**self.listed, **changed}
        names = {"__name__": "problem"}
        for node in ast.parse(open(self.path).read()).body:
            exec(compile(ast.Module([node], []), self.path, "exec"), names)
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for n in ast.walk(target):
                        if isinstance(n, ast.Name) and n.id in changed:
                            names[n.id] = changed[n.id]
        return names

    def build(self, changed, device):
        names = self.module(changed)
        if self.listed:
            functions = runpy.run_path(self.path)
            with torch.device(device):
                torch.manual_seed(self.number)
                shapes = [[eval(e.replace("/", "//"), {}, names) for e in extents] for _, extents in self.arrays]
                inputs = [self.array(name, shape) for (name, _), shape in zip(self.arrays, shapes)]
            return names, functions[f"k{self.number}"], inputs
        with torch.device(device):
            torch.manual_seed(self.number)
            model = names["Model"](*names["get_init_inputs"]())
            inputs = names["get_inputs"]()
        model = model.to(device)
        return names, model, [x.to(device) if torch.is_tensor(x) else x for x in inputs]

    def cost(self, changed):
        """Numbers and operations at these sizes, without computing anything."""
        logging.disable(logging.WARNING)  # it misses a package that is not asked for
        from torch.utils.flop_counter import FlopCounterMode
        _, model, inputs = self.build(changed, "meta")
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            out = model(*inputs)
        outs = [out] if torch.is_tensor(out) else [x for x in out if torch.is_tensor(x)]
        every = self.tensors(model, inputs) + outs
        return sum(x.numel() for x in every), counter.get_total_flops()

    def sizes(self, which):
        if which == "full":
            return {}
        most_numbers, most_operations = LIMITS[which]
        changed, fixed = {}, set()
        names = self.module({})
        while True:
            numbers, operations = self.cost(changed)
            if numbers <= most_numbers and operations <= most_operations:
                return changed
            best, best_size = None, 7
            for name, value in {**names, **changed}.items():
                size = value[0] if isinstance(value, tuple) and len(value) == 1 else value
                if name in fixed or name.startswith("__") or not isinstance(size, int) or isinstance(size, bool):
                    continue
                if STRUCTURE.search(name) and not re.search(r"_features$", name):
                    continue
                size = size * 4 if name.startswith("batch") else size  # what repeats goes first
                if size > best_size:
                    best, best_size = name, size
            if best is None:
                return changed
            value = changed.get(best, names[best])
            half = (value[0] // 2,) if isinstance(value, tuple) else value // 2
            try:
                self.cost({**changed, best: half})
                changed[best] = half
            except Exception:
                fixed.add(best)

    def values(self, names, inputs):
        """Numbers for the function's scalars, and the tensors for its arrays."""
        scalars = {n: names[n] for n in self.scalars if n in names}
        if self.listed:
            return scalars
        words = re.findall(r"def forward\(self, (.*?)\)", open(self.path).read(), re.S)[0].split(",")
        for word, x in zip(words, inputs):
            if not torch.is_tensor(x):
                scalars[word.split(":")[0].strip()] = x
        return scalars

    def tensors(self, model, inputs):
        parameters = [] if self.listed else [p for p in model.parameters() if p.dim()]
        return [x for x in inputs if torch.is_tensor(x)] + parameters

    def settings(self, scalars, tensors):
        """--set words for the command: extents and scalars."""
        numbers = {}
        for (_, extents), t in zip(self.arrays, tensors):
            for name, size in zip(extents, t.shape):
                if re.match(r"[A-Za-z_]\w*$", name):
                    numbers[name] = size
        numbers.update({n: v for n, v in scalars.items() if n in self.scalars})
        return [word for n, v in numbers.items() for word in ("--set", f"{n}={v}")]


# ---- Quern through its C interface ----

class Quern:
    def __init__(self, library, device):
        self.q, self.device, self.error = C.CDLL(library), device.encode(), C.create_string_buffer(65536)
        self.context, self.stream = C.c_void_p(), C.c_void_p()
        self.ok(self.q.qn_context_open(None, C.byref(self.context), self.error), "open")
        if device == "cuda":
            torch.cuda.set_stream(torch.cuda.Stream())
            torch.zeros(1, device="cuda")
            current = C.c_void_p()
            C.CDLL("libcuda.so.1").cuCtxGetCurrent(C.byref(current))
            self.ok(self.q.qn_device_adopt(self.context, self.device, current, self.error), "adopt")
            native = C.c_void_p(torch.cuda.current_stream().cuda_stream)
            self.ok(self.q.qn_stream_wrap(self.context, self.device, native, C.byref(self.stream), self.error), "stream")

    def ok(self, status, what):
        if status:
            words = self.error.raw.replace(b"\0", b" ").strip()[:300].decode("utf8", "replace")
            raise RuntimeError(f"{what}: {words}")

    def bind(self, call, name, t, keep):
        rank = max(t.dim(), 1)
        shape, strides = (C.c_int64 * rank)(*t.shape), (C.c_int64 * rank)(*t.stride())
        if t.is_cuda:
            buffer = C.c_void_p()
            size = t.untyped_storage().nbytes() - t.storage_offset() * t.element_size()
            self.ok(self.q.qn_buffer_wrap_on(self.context, self.device, C.c_void_p(t.data_ptr()),
                                             C.c_size_t(max(size, 1)), None, None, C.byref(buffer), self.error), "wrap")
            self.ok(self.q.qn_call_set_buffer(call, name.encode(), buffer, C.c_size_t(0), DTYPES[t.dtype], t.dim(), shape,
                                              strides, self.error), name)
            keep.append(buffer)
        else:
            self.ok(self.q.qn_call_set_memory(call, name.encode(), C.c_void_p(t.data_ptr()), DTYPES[t.dtype], t.dim(),
                                              shape, strides, self.error), name)
        keep.append(t)

    def call(self, problem, mode, tensors, scalars, result):
        module, call, keep = C.c_void_p(), C.c_void_p(), []
        self.ok(self.q.qn_module_load_file(self.context, problem.functions.encode(), C.byref(module), self.error), "load")
        name = f"{mode} k{problem.number}"
        self.ok(self.q.qn_call_new(module, name.encode(), C.byref(call), self.error), "call")
        for (array, _), t in zip(problem.arrays, tensors):
            self.bind(call, array, t.detach(), keep)
        for n, v in scalars.items():
            if n not in problem.scalars:
                continue
            if isinstance(v, float):
                self.ok(self.q.qn_call_set_float(call, n.encode(), C.c_double(v), self.error), n)
            else:
                self.ok(self.q.qn_call_set_int(call, n.encode(), C.c_int64(int(v)), self.error), n)
        self.bind(call, "result0", result, keep)
        return call, keep

    def run(self, call):
        """On a GPU in PyTorch's stream, and not waited for."""
        if self.stream:
            self.ok(self.q.qn_call_launch(call, self.stream, self.error), "launch")
        else:
            self.ok(self.q.qn_call_run(call, self.device, self.error), "run")


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


def relative_error(got, want):
    """Of the largest number there; what is smaller than a thousandth (the mean of normalised numbers) is what remained of
    others, in PyTorch too."""
    if not want.dtype.is_floating_point:
        return float((got != want).float().mean())
    far = (got - want).abs().max().item() if want.numel() >= 1 << 28 else (got.double() - want.double()).abs().max().item()
    return far / max(want.abs().max().item(), 1e-3)


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
        calls = {"eager_us": lambda: model(*inputs)}
        with torch.no_grad():
            want = model(*[x.clone() if torch.is_tensor(x) else x for x in inputs])
            want = want if torch.is_tensor(want) else want[0]
            pipe.send({"stage": "compiling Quern's plan or its first run"})
            result = torch.empty(tuple(want.shape), dtype=want.dtype, device=device)
            call, _keep = quern.call(problem, options.mode + (" tf32" if options.tf32 else ""), tensors, scalars, result)
            start = time.perf_counter()
            quern.run(call)
            if device == "cuda":
                torch.cuda.synchronize()
            pipe.send({"first_s": time.perf_counter() - start})
            error = relative_error(result, want)
            halves = any(x.dtype in (torch.float16, torch.bfloat16) for x in tensors)
            right = error < (2e-2 if options.tf32 or halves else 2e-3)
            pipe.send({"error": error, "status": "ok" if right else "WRONG", "stage": "torch.compile"})
            del want
            if right:
                calls["quern_us"] = lambda: quern.run(call)
            if not options.no_compile:
                try:
                    compiled = torch.compile(model)
                    compiled(*inputs)
                    calls["compiled_us"] = lambda: compiled(*inputs)
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
    return 20.0 * problem.cost(problem.sizes(options.sizes))[0] if options.jobs > 1 else 0.0


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
        if row.get("ratio", 0) < 0.8 and "settings" in row and os.path.exists(options.quern):
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
    parser.add_argument("--sizes", default="full", choices=("full", "medium", "small"))
    parser.add_argument("--level", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1, help="problems compiled and checked side by side")
    parser.add_argument("--overlap", action="store_true", help="prepare the next ones while one is timed")
    parser.add_argument("--timeout", type=float, default=60, help="seconds a problem")
    parser.add_argument("--budget", type=float, default=0.25, help="seconds that each side of a problem is timed")
    parser.add_argument("--seconds", type=float, default=1e9, help="for all: what does not fit is not begun")
    parser.add_argument("--memory", type=float, default=100, help="gigabytes of the device that problems prepared side by side may hold")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--processor-time", action="store_true",
                        help="of a CPU that others use too: time on its cores, under taskset -c N and OMP_NUM_THREADS=1")
    parser.add_argument("--tf32", action="store_true")
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
