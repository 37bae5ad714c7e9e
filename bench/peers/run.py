"""README's first table on this machine: the work of table.qn through `quern bench`, NumPy, PyTorch (eager and compiled)
and Triton, as far as they are installed.

Usage: python3 bench/peers/run.py [--quern build/quern] [--device cpu|cuda] [--only WORDS] [--seconds S] [--json FILE]

Every figure is a median. Peers are timed as Quern is: after warming up, on several sets of inputs in turn where one would
fit the last cache, between two events around several calls on a GPU and by the clock around one call on a processor.
Quern's results are checked by its bench, those of the peers against eager PyTorch: one that disagrees is left out with a remark. The last column is the fastest
peer's time over Quern's: above 1 Quern is faster.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import timing
import workloads

COLUMNS = {"numpy": "NumPy", "torch": "PyTorch eager", "compiled": "torch.compile", "triton": "Triton by hand"}


def find(name):
    try:
        return __import__(name)
    except Exception:  # not installed, or broken: there is no such peer here
        return None


def best_device(options):
    """The GPU where `quern devices` has one."""
    told = subprocess.run([options.quern, "devices", "--json", "-"], capture_output=True, text=True).stdout
    return "cuda" if any(row["name"] == "cuda" and row["available"] for row in json.loads(told or "[]")) else "cpu"


def quern_rows(options, names):
    """What `quern bench` says of the one variant of each block; all of them in one run, which measures the machine once."""
    rows = {}
    for name in names if options.only else [None]:
        command = [options.quern, "bench", os.path.join(HERE, "table.qn"), *([name] if name else []),
                   "--device", options.device, "--json", "-", "--seconds", str(options.seconds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)  # its progress goes where ours goes
        if done.returncode == 2:
            sys.exit(2)
        rows.update((row["bench"], row) for row in json.loads(done.stdout))
    return rows


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


def make_sets(inputs, sizes, draw, classes, cache_bytes):
    count = max(1, min(16, -(-4 * cache_bytes // workloads.input_bytes(inputs, sizes))))
    return [[classes() if text == "target" else draw(workloads.shape(text, sizes)) for text in inputs] for _ in range(count)]


def measure_numpy(np, options, name, inputs, sizes, result):
    function = workloads.numpy_functions(np).get(name)
    if not function or sizes.get("T", "f32") != "f32":
        return
    generator = np.random.default_rng(7)
    sets = make_sets(inputs, sizes, lambda shape: generator.standard_normal(shape, dtype=np.float32), None, 32 << 20)
    result["numpy"] = host_timed(function, sets, options.seconds)


def measure_torch(torch, options, name, inputs, sizes, result):
    gpu = options.device != "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # f32 is f32 on both sides
    dtype = torch.bfloat16 if sizes.get("T") == "bf16" else torch.float32
    sets = make_sets(inputs, sizes, lambda shape: torch.randn(shape, device=options.device, dtype=dtype),
                     lambda: torch.randint(int(sizes["cols"]), (int(sizes["rows"]),), device=options.device),
                     (60 if gpu else 32) << 20)
    eager = workloads.torch_functions(torch)[name]
    peers = {"torch": eager, "compiled": torch.compile(eager, dynamic=False)}
    triton = find("triton") if gpu else None
    if triton:
        import triton.language as tl
        function = workloads.triton_functions(torch, triton, tl).get(name)
        if function:
            peers["triton"] = function

    def results(value):
        return [one.float() for one in value] if isinstance(value, tuple) else [value.float()]

    with torch.no_grad():
        expected = results(eager(*sets[0]))
        for label, function in peers.items():
            try:
                if not all(torch.allclose(one, right, rtol=2e-2, atol=1e-3) for one, right in zip(results(function(*sets[0])), expected)):
                    print(f"{name}: {label} disagrees with eager PyTorch and is left out", file=sys.stderr)
                    continue
                timed = device_timed if gpu else lambda _, *rest: host_timed(*rest)
                result[label] = timed(torch, function, sets, options.seconds)
            except Exception as problem:  # a peer that cannot run this is left out
                print(f"{name}: {label}: {type(problem).__name__}: {str(problem)[:150]}", file=sys.stderr)


def words(ns):
    return "" if ns is None else f"{ns * 1e-3:.3g} us" if ns < 999500 else f"{ns * 1e-6:.3g} ms"


def title(text, sizes):
    extents = "x".join(value for key, value in sizes.items() if key != "T")
    return f"{text}, {extents} {sizes.get('T', 'f32')}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quern", default="build/quern")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="the GPU where there is one")
    parser.add_argument("--only", default="", help="bench blocks whose names contain one of these, separated by commas")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--json")
    options = parser.parse_args()
    options.device = options.device or best_device(options)
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
    work = [row for row in workloads.WORK if any(word in row[0] for word in options.only.split(","))]
    measured = quern_rows(options, [name for name, *_ in work])
    print(f"| on {options.device} | Quern | " + "".join(f"{COLUMNS[c]} | " for c in columns) + "fastest peer / Quern |")
    print("|---|---|" + "---|" * len(columns) + "---|", flush=True)
    for name, text, inputs in work:
        row = measured[name]
        sizes = dict(part.split(" = ") for part in row["arguments"].split(", "))
        ns = row["median_ns"] if row["status"] == "ok" else None
        if not ns:
            print(f"{name}: quern: {row['status']}: {row['message']}", file=sys.stderr)
        result = {"name": name, "sizes": sizes, "quern": ns}
        if np and options.device == "cpu":
            measure_numpy(np, options, name, inputs, sizes, result)
        if torch:
            measure_torch(torch, options, name, inputs, sizes, result)
        peers = [result[c] for c in columns if result.get(c)]
        ratio = f"{min(peers) / ns:.2f}" if peers and ns else ""
        print(f"| {title(text, sizes)} | {words(ns)} | " + "".join(f"{words(result.get(c))} | " for c in columns)
              + f"{ratio} |", flush=True)
        rows.append(result)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


main()
