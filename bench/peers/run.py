"""Quern beside its peers on one machine: the same work through `quern bench`, NumPy, PyTorch (eager and compiled) and
Triton, as far as they are installed, joined into one table of ratios.

Usage: python3 bench/peers/run.py [--quern build/quern] [--device cpu|cuda] [--only WORDS] [--seconds S] [--json FILE]

Every figure is a median. Peers are timed as Quern is: after warming up, on several sets of inputs in turn where one would
fit the last cache, between two events around several calls on a GPU and by the clock around one call on a processor.
Results are compared with each other first: a peer that disagrees is left out with a remark. Quern's figure is that of its
fastest variant that is right. The last column is the fastest peer's time over Quern's: above 1 Quern is faster.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import timing
import workloads


def find(name):
    try:
        return __import__(name)
    except Exception:  # not installed, or broken: there is no such peer here
        return None


def quern_time(options, name, sizes):
    """The fastest right variant: its label and ns; or why there is none."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    source = os.path.join(root, "kernels", workloads.FILES.get(name, name) + ".qn")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        command = [options.quern, "bench", source, name, "--device", options.device, "--json", path,
                   "--seconds", str(options.seconds)]
        for key, value in sizes.items():
            command += ["--set", f"{key}={value}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 2:
            sys.exit(done.stderr.strip())
        with open(path) as file:
            rows = [row for row in json.load(file) if row["status"] == "ok"]
    if not rows:
        return "no variant is right", None
    best = min(rows, key=lambda row: row["median_ns"])
    return best["variant"], best["median_ns"]


def host_timed(function, sets, seconds):
    for arguments in sets[:2]:
        function(*arguments)
    times, start, turn = [], time.perf_counter(), 0
    while len(times) < 5 or (time.perf_counter() - start < seconds and len(times) < 1000):
        arguments = sets[turn % len(sets)]
        turn += 1
        before = time.perf_counter_ns()
        function(*arguments)
        times.append(time.perf_counter_ns() - before)
    return statistics.median(times)


def device_timed(torch, function, sets, seconds):
    sample = timing.event_sampler(torch, function, sets, 2e6)
    times, start = [], time.perf_counter()
    while len(times) < 7 or (time.perf_counter() - start < seconds and len(times) < 200):
        times.append(sample())
    return statistics.median(times)


def make_sets(name, sizes, draw, cache_bytes):
    count = max(1, min(16, -(-4 * cache_bytes // workloads.input_bytes(name, sizes))))
    return [[draw(shape) for shape in workloads.shapes(name, sizes)] for _ in range(count)]


def measure_numpy(np, options, name, sizes, result):
    generator = np.random.default_rng(7)
    if workloads.element_bytes(sizes) != 4:
        return
    function = workloads.numpy_functions(np)[name]
    sets = make_sets(name, sizes, lambda shape: generator.standard_normal(shape, dtype=np.float32), 32 << 20)
    result["numpy"] = host_timed(function, sets, options.seconds)


def measure_torch(torch, options, name, sizes, result):
    gpu = options.device != "cpu"
    dtype = torch.bfloat16 if workloads.element_bytes(sizes) == 2 else torch.float32
    sets = make_sets(name, sizes, lambda shape: torch.randn(shape, device=options.device, dtype=dtype),
                     (60 if gpu else 32) << 20)
    eager = workloads.torch_functions(torch)[name]
    peers = {"torch": eager}
    try:
        peers["compiled"] = torch.compile(eager, dynamic=False)
    except Exception as problem:
        print(f"{name}: torch.compile: {problem}", file=sys.stderr)
    triton = find("triton") if gpu else None
    if triton:
        import triton.language as tl
        function = workloads.triton_functions(torch, triton, tl).get(name)
        if function:
            peers["triton"] = function
    with torch.no_grad():
        expected = eager(*sets[0]).float()
        for label, function in peers.items():
            try:
                close = torch.allclose(function(*sets[0]).float(), expected, rtol=2e-2, atol=1e-3)
                if not close:
                    print(f"{name}: {label} disagrees with eager PyTorch and is left out", file=sys.stderr)
                    continue
                timed = device_timed if gpu else lambda _, *rest: host_timed(*rest)
                result[label] = timed(torch, function, sets, options.seconds)
            except Exception as problem:  # a peer that cannot run this is left out
                print(f"{name}: {label}: {type(problem).__name__}: {str(problem)[:150]}", file=sys.stderr)


def words(ns):
    return "-" if ns is None else f"{ns * 1e-3:.1f} us" if ns < 1e6 else f"{ns * 1e-6:.2f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quern", default="build/quern")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", help="names that contain one of these, separated by commas")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--json")
    options = parser.parse_args()
    np, torch = find("numpy"), find("torch")
    if options.device == "cuda" and torch and not torch.cuda.is_available():
        torch = None
    columns = (["numpy"] if np and options.device == "cpu" else []) + (["torch", "compiled"] if torch else [])
    if torch and options.device == "cuda" and find("triton"):
        columns.append("triton")
    for missing in ("numpy", "torch"):
        if not find(missing):
            print(f"note: {missing} is not installed here: its columns are left out", file=sys.stderr)
    rows = []
    print("| work | quern | " + "".join(f"{c} | " for c in columns) + "fastest peer / quern |")
    print("|---|---|" + "---|" * len(columns) + "---|")
    for name, sizes_of in workloads.SIZES.items():
        if not any(word in name for word in options.only.split(",")):
            continue
        sizes = sizes_of[options.device]
        label, ns = quern_time(options, name, sizes)
        result = {"name": name, "sizes": sizes, "quern": ns, "variant": label}
        if np and options.device == "cpu":
            measure_numpy(np, options, name, sizes, result)
        if torch:
            measure_torch(torch, options, name, sizes, result)
        peers = [result[c] for c in columns if result.get(c)]
        ratio = f"{min(peers) / ns:.2f}" if peers and ns else "-"
        size = " ".join(f"{k}={v}" for k, v in sizes.items())
        print(f"| {name} {size} | {words(ns)} ({label}) | " + "".join(f"{words(result.get(c))} | " for c in columns)
              + f"{ratio} |", flush=True)
        rows.append(result)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


main()
