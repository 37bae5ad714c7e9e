"""Do Quern's counters say what Nsight Compute says of the same kernels?

Usage: python3 bench/counters_gpu.py [BUILD [KERNEL ...]]. Counts each kernel by `quern profile --counters-json` and by ncu (which neither
flushes caches nor fixes clocks here), and prints those that are shares beside each other. SPDX-License-Identifier: MIT
"""
import csv
import json
import os
import re
import subprocess
import sys
import tempfile

build = sys.argv[1] if len(sys.argv) > 1 else "build"
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
cases = [("gelu.qn", "gelu_tile", ["n=1<<20"]), ("gelu.qn", "gelu_tile", ["n=1<<26"]), ("gelu.qn", "gelu_element", ["n=1<<24"]),
         ("softmax.qn", "softmax_row", ["rows=8192", "cols=8192"]), ("softmax.qn", "softmax_online", ["rows=8192", "cols=1000"]),
         ("layernorm.qn", "layer_norm", ["rows=16384", "cols=4096"]), ("matmul.qn", "matmul_tiled", ["M=2048", "N=2048", "K=2048"])]


def counters():
    """Names of counters.def with their metrics."""
    text = open(os.path.join(root, "src/profile/measure/counters.def")).read()
    return {m[0]: m[1:] for m in re.findall(r'^COUNTER\("([^"]+)", "([^"]*)", \d+, "([^"]+)"', text, re.M)}


def by_quern(arguments, path):
    out = subprocess.run([f"{build}/quern", "profile", *arguments, "--counters", "--counters-json", path], capture_output=True, text=True)
    if out.returncode:
        print(out.stdout[-500:], out.stderr[-800:])
        return {}
    return {c["counter"]: c["value"] for c in json.load(open(path))}


def by_ncu(arguments, kernel, metrics):
    command = ["ncu", "--clock-control", "none", "--cache-control", "none", "--csv", "--print-units", "base", "-k", f"regex:{kernel}",
               "--metrics", ",".join(metrics), f"{build}/quern", "run", *arguments]
    out = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in out.stdout.splitlines() if line.startswith('"')]
    if not lines:
        print("ncu:", (out.stdout + out.stderr)[-600:])
        return {}
    values = {}
    for row in csv.DictReader(lines):
        try:
            values[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
        except ValueError:
            pass
    return values


known = counters()
for file, kernel, sets in (c for c in cases if not sys.argv[2:] or c[1] in sys.argv[2:]):
    arguments = [os.path.join(root, "kernels", file), kernel, "--device", "cuda"] + [w for s in sets for w in ("--set", s)]
    with tempfile.NamedTemporaryFile(suffix=".json") as kept:
        quern = by_quern(arguments, kept.name)
    ncu = by_ncu(arguments, kernel, [m for _, m in known.values()]) if quern else {}
    print(f"{kernel} {' '.join(sets)}")
    for name, (unit, metric) in known.items():
        mine, theirs = quern.get(name), ncu.get(metric)
        if mine is None or theirs is None:
            continue
        ratio = f"{mine / theirs:8.3f}" if theirs else "       -"
        mark = "  MORE THAN ALL" if unit == "%" and mine > 100 else ""
        print(f"  {name:32} {mine:14.6g} {theirs:14.6g} {ratio}{mark}")
