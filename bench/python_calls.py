"""Host time of one call from Python: Quern, torch and Triton in turns in one process, medians in microseconds.

    PYTHONPATH=python python3 bench/python_calls.py [seconds] [direct]

With `direct` programs of torch.compile are left out, whose first calls take longest.

A conversion asks torch of each tensor whether its sign may be another and whether it wants a gradient; a compiled program knows ("nothing asked").
The GPU is kept idle (tiny tensors, a wait before each sample), so that what is timed is the host's work for a launch. On a machine
without CUDA the same is done with CPU tensors, where the time is that of the whole call.
"""

import statistics
import sys
import time

import gpu_lock
import torch

import quern

SOURCE = """
kernel add(in float a[n], in float b[n], out float y[n], const int B = 1024) launch (cdiv(n, B))
{ y[program(0) * B : B] = a[program(0) * B : B] + b[program(0) * B : B]; }
tensor add3(float a[n], float b[n]) { return a + b; }
tensor chain(float a[n], float b[n]) { return gelu(a * b) + a; }
tensor add4(float a[n], float b[n], float c[n]) { return a + b + c; }
"""

cuda = torch.cuda.is_available()
device = "cuda" if cuda else "cpu"
wait = torch.cuda.synchronize if cuda else (lambda: None)
seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
N = 1024

q = quern.compile(SOURCE, "bench.qn")
a, b, out = (torch.randn(N, device=device) for _ in range(3))
g = a.clone().requires_grad_()
converted = q.add._callable.convert
args, keywords, three, plainly = (a, b), {"out": out}, (a, b, out), q.add4._callable.convert

rows = {
    "quern kernel, out=": lambda: q.add(a, b, out=out),
    "quern kernel, allocating": lambda: q.add(a, b),
    "quern function, out=": lambda: q.add3(a, b, out=out),
    "quern function, allocating": lambda: q.add3(a, b),
    "quern function, gradient wanted": lambda: q.add3(g, b),
    "quern conversion alone": lambda: plainly(three, None),
    "quern conversion, one as out=": lambda: converted(args, keywords),
    "quern conversion, nothing asked": lambda: plainly(three, None, True),
    "an empty call": lambda: None,
    "torch.add, out=": lambda: torch.add(a, b, out=out),
    "torch.add": lambda: torch.add(a, b),
    "torch.add, gradient wanted": lambda: torch.add(g, b),
    "torch.empty_like": lambda: torch.empty_like(a),
}

def program(a, b):
    return torch.nn.functional.gelu(a * b) + a


def compiled(backend):
    def own(a, b):  # code of its own: Dynamo's cache goes by code
        return program(a, b)

    own.__code__ = own.__code__.replace(co_name=f"program_{backend if isinstance(backend, str) else 'nothing'}")
    if backend == "quern":  # its own kernels: torch's operators would be taken where they are measured to be faster
        return torch.compile(own, backend=lambda graph, inputs: quern.backend.backend(graph, inputs, options={"measure": False}))
    return torch.compile(own, backend=backend)


def nothing(graph, inputs):
    """AOTAutograd's floor: the graphs give the same tensors at every call, and compute nothing."""
    from torch._dynamo.backends.common import aot_autograd

    def compile_graph(gm, inputs):
        values = [n.meta["val"] if n is not None else None for n in gm.graph.output_node().args[0]]
        made = [torch.zeros(v.shape, dtype=v.dtype, device=v.device) if isinstance(v, torch.Tensor) else v for v in values]

        def run(given):
            given.clear()
            return made

        run._boxed_call = True
        return run

    return aot_autograd(fw_compiler=compile_graph, inference_compiler=compile_graph)(graph, inputs)


for name in ("quern", nothing, "aot_eager") if "direct" not in sys.argv else ():  # a program of one kernel; behind an empty backend; its three operators
    made = compiled(name)
    name = name if isinstance(name, str) else "empty"
    rows[f"torch.compile, {name}"] = lambda made=made: made(a, b)
    rows[f"torch.compile, {name}, gradient"] = lambda made=made: made(g, b)

try:
    import triton
    import triton.language as tl

    @triton.jit
    def _add(a, b, y, n, B: tl.constexpr):
        at = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(y + at, tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n), mask=at < n)

    if cuda:
        rows["triton, out given"] = lambda: _add[(1,)](a, b, out, N, B=1024)
except ImportError:
    pass


def sample(function, count):
    wait()
    start = time.perf_counter()
    for _ in range(count):
        function()
    end = time.perf_counter()
    wait()
    return (end - start) / count * 1e6


def main():
    for function in rows.values():
        function()
        sample(function, 20)
    times = {name: [] for name in rows}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        with gpu_lock.alone():
            for name, function in rows.items():
                times[name].append(sample(function, 100))
    for name, values in times.items():
        values.sort()
        print(f"{name:34s} {statistics.median(values):8.2f} us   (least {values[0]:.2f}, {len(values)} samples of 100)")
    q.add(a, b, out=out)
    torch.testing.assert_close(out, a + b)
    torch.testing.assert_close(q.chain(a, b), torch.nn.functional.gelu(a * b) + a)


main()
