"""Timing, checking and tuning one function with one choice of arguments."""

import re
import statistics
import time

from . import _quern


class Roofline:
    """What a device can do at best, measured once for a machine (some seconds) and kept."""

    def __init__(self, device):
        words = _quern.roofline("", None, device, None, None, [], 0, 0.0).split(maxsplit=3)
        self.copy_gb_per_s, self.read_gb_per_s, self.gflop_per_s = map(float, words[:3])
        self.device = words[3] if len(words) > 3 else device

    def __repr__(self):
        return f"{self.device}: {self.copy_gb_per_s:.0f} GB/s copied, {self.read_gb_per_s:.0f} GB/s read, {self.gflop_per_s:.0f} GFLOP/s of f32"


class Timing:
    """The time of a call. On a GPU it is the device's own, between two events; on the host the whole call. flops: operations of a
    tensor function; None where nobody counted."""

    def __init__(self, name, samples_us, bytes, device, flops=None):
        self.name = name
        self.samples_us = sorted(samples_us)
        self.median_us = statistics.median(self.samples_us)
        self.least_us = self.samples_us[0]
        self.bytes = bytes
        self.device = device
        self.flops = flops

    def roofline(self):
        return Roofline(self.device)

    @property
    def gb_per_s(self):
        return self.bytes / self.median_us * 1e-3

    def __repr__(self):
        return (
            f"{self.name} on {self.device}: {self.median_us:.2f} us (least {self.least_us:.2f}, {len(self.samples_us)} samples), "
            f"{self.gb_per_s:.1f} GB/s of arguments and results"
        )

    def _repr_mimebundle_(self, include=None, exclude=None):
        from . import notebook

        return notebook.timing_bundle(self)


def _is_cuda(value):
    return getattr(getattr(value, "device", None), "type", None) == "cuda"


def _bytes(values):
    return sum(getattr(v, "nbytes", 0) for v in values)


def bench(function, args, keywords, seconds):
    result = function(*args, **keywords)
    many = result if isinstance(result, tuple) else (result,)
    if any(p[1] == "out" for p in function.parameters):
        keywords = {**keywords, "out": result}
    arrays = [a for a in (*args, *many) if hasattr(a, "nbytes")]
    unique = {id(a): a for a in arrays}.values()
    if any(_is_cuda(a) for a in arrays):
        samples, device = _bench_cuda(lambda: function(*args, **keywords), seconds), "cuda"
    else:
        samples, device = _bench_host(lambda: function(*args, **keywords), seconds), keywords.get("device") or "cpu"
    return Timing(function.name, samples, _bytes(unique), device, _flops(function, args))


def _flops(function, args):
    """Of the kernels that a tensor function became for arguments like these."""
    if not function.is_function:
        return None
    counts = re.findall(r"^kernel \d+: .* FLOPs (\d+)", function._show("fusion", settings=dict(function._callable.known(tuple(args), {}))), re.M)
    return sum(map(int, counts)) or None


def _repeats(call, clock):
    count = 1
    while True:
        took = clock(count)
        if took > 2e-4 or count > 100000:
            return count
        count *= 4


def _bench_host(call, seconds):
    def clock(count):
        start = time.perf_counter()
        for _ in range(count):
            call()
        return time.perf_counter() - start

    count, samples, end = _repeats(call, clock), [], time.perf_counter() + seconds
    while len(samples) < 5 or time.perf_counter() < end:
        samples.append(clock(count) / count * 1e6)
    return samples


def _bench_cuda(call, seconds):
    import torch

    def clock(count):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            call()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e-3

    count, samples, end = _repeats(call, clock), [], time.perf_counter() + seconds
    while len(samples) < 5 or time.perf_counter() < end:
        samples.append(clock(count) / count * 1e6)
    return samples


# ---- checking ----


class Checked:
    """What a check found: nothing wrong, and how far the device is from the interpreter."""

    def __init__(self, name, largest):
        self.name = name
        self.largest_error = largest

    def __repr__(self):
        return f"{self.name}: the interpreter found nothing, the largest error of the device is {self.largest_error:.3g}"


def _on_host(value):
    if hasattr(value, "detach"):
        return value.detach().cpu().clone()
    return value.copy() if hasattr(value, "copy") else value


def _difference(a, b):
    if hasattr(a, "detach"):
        a, b = a.detach().cpu().double(), b.detach().cpu().double()
        return float((a - b).abs().max()) if a.numel() else 0.0
    import numpy

    a, b = numpy.asarray(a, "f8"), numpy.asarray(b, "f8")
    return float(numpy.abs(a - b).max()) if a.size else 0.0


def _quiet(function, args, keywords):
    import sys

    if "torch" not in sys.modules:
        return function(*args, **keywords)
    with sys.modules["torch"].no_grad():
        return function(*args, **keywords)


def check(function, args, keywords):
    keywords = {k: v for k, v in keywords.items() if k not in ("out", "device")}
    slow = _quiet(function, [_on_host(a) for a in args], {**keywords, "device": "ref"})
    in_place = any(p[1] == "inout" for p in function.parameters)
    fast = _quiet(function, [_copy(a) for a in args] if in_place else args, keywords)
    slow, fast = (r if isinstance(r, tuple) else (r,) for r in (slow, fast))
    largest = max((_difference(a, b) for a, b in zip(fast, slow)), default=0.0)
    tolerance = max((_tolerance(a, b) for a, b in zip(fast, slow)), default=0.0)
    if not largest <= tolerance:
        raise _quern.Finding(f"`{function.name}` differs from the interpreter by {largest:.3g} (allowed: {tolerance:.3g})")
    return Checked(function.name, largest)


def _copy(value):
    return value.detach().clone() if hasattr(value, "detach") else _on_host(value)


def _tolerance(a, b):
    steps = {"float64": 1e-10, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1, "float8_e4m3fn": 2e-1}
    step = steps.get(str(getattr(b, "dtype", "float32")).rpartition(".")[2], 0.0)
    top = float(abs(b.double() if hasattr(b, "double") else b).max()) if getattr(b, "size", 1) else 1.0
    return step * max(1.0, top)


# ---- tuning ----


def tune(function, args, keywords, seconds):
    """Sizes and types of these arguments, then `quern tune`; the text that it prints."""
    settings = dict(function._callable.known(tuple(args), keywords))
    consts = {p[0] for p in function.parameters if p[1] == "const"}
    items = [f"{k}={v}" for k, v in settings.items() if k not in consts or k in keywords]
    device = "cuda" if any(_is_cuda(a) for a in args) else keywords.get("device")
    return _quern.tune(function.module.path, function.name, device, None, None, items, 0, seconds)
