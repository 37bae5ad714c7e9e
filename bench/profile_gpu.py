"""Do Quern's profiler, Nsight Compute and PyTorch's profiler agree on the time of the same kernels?

Usage: python3 bench/profile_gpu.py [BUILD]. Runs the same launches (bench/profile_gpu.c) under each of the three, where
installed, and prints mean times and ratios to Quern's; the bar is 2 %.
SPDX-License-Identifier: MIT
"""
import csv
import ctypes
import os
import re
import statistics
import subprocess
import sys

build = sys.argv[1] if len(sys.argv) > 1 else "build"
kernels = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kernels")
warm, launches = 5, 20


def by_quern():
    out = subprocess.run([f"{build}/bench_profile", "kernels", kernels], capture_output=True, text=True)
    print(out.stdout, out.stderr, sep="", end="")
    return {m[1]: float(m[2]) for m in re.finditer(r"^kernel (\S+) ([\d.]+) us", out.stdout, re.M)}


def drop_warm(times):
    """The last launches of each kernel; what comes before is warming up."""
    return {name: statistics.fmean(values[-launches:]) for name, values in times.items()}


def by_ncu():
    command = ["ncu", "--clock-control", "none", "--cache-control", "none", "--metrics", "gpu__time_duration.sum",
               "--csv", "--print-units", "base", f"{build}/bench_profile", "plain", kernels]
    out = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in out.stdout.splitlines() if line.startswith('"')]
    if out.returncode or not lines:
        print("ncu:", (out.stdout + out.stderr)[-600:])
        return {}
    times = {}
    for row in csv.DictReader(lines):
        name = re.sub(r"_phase0.*", "", row["Kernel Name"])
        times.setdefault(name, []).append(float(row["Metric Value"].replace(",", "")) / 1000)
    return drop_warm(times)


def by_torch():
    try:
        import torch
    except ImportError:
        return {}
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    library = ctypes.CDLL(f"{build}/libbench_profile_shared.so")
    library.profile_gpu_plain(kernels.encode(), warm)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        library.profile_gpu_plain(kernels.encode(), launches)
        torch.cuda.synchronize()
    times = {}
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA and "_phase0" in event.name:
            times.setdefault(event.name.replace("_phase0", ""), []).append(event.time_range.elapsed_us())
    return drop_warm(times)


quern, ncu, torch_ = by_quern(), by_ncu(), by_torch()
print(f"{'kernel':20} {'quern us':>10} {'ncu us':>10} {'ratio':>7} {'torch us':>10} {'ratio':>7}")
for name, time in ((n, t) for n, t in quern.items() if t):
    columns = [f"{name:20} {time:10.2f}"]
    for other in (ncu, torch_):
        columns.append(f"{other[name]:10.2f} {other[name] / time:7.4f}" if name in other else f"{'-':>10} {'-':>7}")
    print(*columns)
