#!/usr/bin/env python3
"""How far the tile that is taken by estimate is from the fastest one, over 60 products and convolutions of all kinds.

Usage: python3 bench/tuned_gap.py [WORD ...] [--jobs N] [--near RATIO] [--library FILE] [--quern FILE]

For each case: the tiles that `quern show --stage choices` estimates within RATIO of the best (all with --near 0), timed in
turns with the default as bench/matrix_peers.py times. Gap: the default's time over the fastest's. Needs PyTorch and a GPU.
"""
import argparse
import ctypes as C
import os
import re
import subprocess
import sys

import torch

import kernelbench
from kernelbench import HERE, Quern, Run, times_us
from matrix_peers import B16, F32, FUNCTIONS, Case, quern_call


def cases():
    def product(m, n, k, dtype, word="product", **ways):
        shapes = ((m, k), (k, n)) if word == "product" else ((m, k), (n, k))
        name = f"{'tf32' if ways else 'bf16' if dtype is B16 else 'f32'} {m}x{n}x{k}{'' if word == 'product' else ' b [N][K]'}"
        return Case(name, word, None, dtype, *shapes, **ways)

    for n in (256, 512, 1024, 2048, 4096, 8192):  # square
        yield product(n, n, n, B16)
    yield product(2048, 2048, 2048, F32, "product_turned", tf32=True)
    for n in (512, 1024, 4096):
        yield product(n, n, n, F32)
        yield product(n, n, n, F32, "product_turned", tf32=True)
    for m in (1, 2, 8, 16, 32, 64):  # skinny
        yield product(m, 8192, 4096, B16, "product_turned")
    yield product(16, 4096, 4096, F32, "product_turned")
    for m, n, k in ((65536, 64, 64), (1 << 20, 32, 16), (16384, 16, 1024), (32768, 4096, 64), (8208, 5920, 2952)):  # tall
        yield product(m, n, k, B16)
    yield product(65536, 64, 64, F32)
    for m, n, k in ((100, 1000, 784), (128, 512, 1024), (128, 1024, 512), (128, 4096, 256), (256, 1024, 1024), (1024, 512, 512),
                    (64, 2048, 2048)):  # small
        yield product(m, n, k, B16, "product_turned")
        if m != 100:
            yield product(m, n, k, F32, "product_turned")
    for m, n, k in ((4096, 4096, 1), (1024, 1024, 1), (4096, 4096, 13), (1000, 1000, 13)):
        yield product(m, n, k, B16)
    for m, n, k in ((8192, 512, 256), (8192, 256, 64), (2048, 1024, 480), (128, 512, 512)):  # a recommender's
        yield product(m, n, k, B16, "product_turned")
    for m, n, k in ((8192, 8192, 512), (8192, 8192, 1024), (1024, 8192, 8192), (512, 4096, 4096), (128, 8192, 8192)):  # perceptrons'
        yield product(m, n, k, B16, "product_turned")
    for b, m, n, k in ((96, 512, 512, 64), (64, 1024, 1024, 64), (128, 128, 128, 128), (32, 200, 200, 64)):  # attention's
        yield Case(f"bf16 {b} of {m}x{n}x{k}", "batch_turned", None, B16, (b, m, k), (b, n, k))
    for name, x, w, stride in (("256 28", (32, 28, 28, 256), (256, 3, 3, 256), 1), ("64 56", (32, 56, 56, 64), (64, 3, 3, 64), 1),
                               ("512 28 stride 2", (32, 28, 28, 512), (512, 3, 3, 512), 2), ("128 14", (32, 14, 14, 128), (128, 3, 3, 128), 1)):
        yield Case(f"bf16 convolution {name}", "convolution_last", None, B16, x, w, stride=stride, padding=1)


def tiles_of(case, options):
    """Numbers of the tiles that are worth a try; 0, the default, first."""
    words = [options.quern, "show", FUNCTIONS, case.prefix + case.function, "--stage", "choices", "--device", "cuda"]
    sizes = {"T": "bf16" if case.dtype is B16 else "f32", **case.words}
    for (_, axes), shape in zip(case.arrays, case.shapes):
        sizes.update(zip(re.findall(r"\[(\w+)\]", axes), shape))
    for name, size in sizes.items():
        words += ["--set", f"{name}={size}"]
    found = subprocess.run(words, capture_output=True, text=True)
    times = [(float(t), int(n)) for t, n in re.findall(r"([\d.]+) us  tile.*\(tile=(\d+)\)", found.stdout)]
    best = min(times, default=(0, 0))[0]
    return [0] + [n for t, n in times if not options.near or t <= options.near * best]


def run_one(case, options, pipe):
    try:
        inputs, quern = case.inputs("cuda"), Quern(options.library, "cuda")
        calls, keep = {}, []
        shape = {"product": lambda a, b: (a[0], b[1]), "product_turned": lambda a, b: (a[0], b[0]),
                 "batch_turned": lambda a, b: (a[0], a[1], b[1]),
                 "convolution_last": lambda a, b: (a[0], *((n + 2 - 3) // case.words.get("stride", 1) + 1 for n in a[1:3]), b[0])}
        result = torch.empty(shape[case.function](*case.shapes), dtype=case.dtype, device="cuda")
        first = None
        for tile in tiles_of(case, options):
            call, kept = quern_call(quern, case, inputs, result)
            if tile:
                quern.ok(quern.q.qn_call_set_int(call, b"tile", C.c_int64(tile), quern.error), "tile")
            quern.run(call)
            torch.cuda.synchronize()
            first = result.clone() if first is None else first
            if (result.float() - first.float()).abs().max() > 2e-2 * first.float().abs().max():
                raise RuntimeError(f"tile {tile} gives other results")
            keep += [call, kept]
            calls[str(tile)] = lambda call=call: quern.run(call)
        pipe.send({"status": "ok", "stage": "times", "ready": True})
        pipe.recv()
        times = times_us(calls, "cuda", 0.01)
        pipe.send({"eager_us": 0.0, "times": times})
    except Exception as problem:
        pipe.send({"status": "ERROR", "why": f"{type(problem).__name__}: {str(problem)[:300]}"})
    pipe.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--timeout", type=float, default=30)
    parser.add_argument("--near", type=float, default=1.5)
    parser.add_argument("--library", default=os.path.join(HERE, "..", "build", "libquern.so"))
    parser.add_argument("--quern", default=os.path.join(HERE, "..", "build", "quern"))
    options = parser.parse_args()
    options.device = "cuda"
    kernelbench.run_one = run_one
    chosen = [c for c in cases() if not options.words or any(w in c.name for w in options.words)]
    print(f"{'case':40s} {'default us':>10s} {'best us':>8s} {'tile':>4s} {'gap':>6s}  tried")
    far = bad = 0
    for at in range(0, len(chosen), options.jobs):
        runs = [Run(case, options) for case in chosen[at:at + options.jobs]]
        for run in runs:
            run.follow("ready")
        for run in runs:
            row = run.finish()
            times = row.get("times")
            if not times:
                bad += 1
                print(f"{row['name']:40s} {row['status']} {row.get('why', '')}", flush=True)
                continue
            best = min(times, key=times.get)
            gap = times["0"] / times[best]
            far += gap > 1.1
            print(f"{row['name']:40s} {times['0']:10.1f} {times[best]:8.1f} {best:>4s} {gap:6.2f}  "
                  + " ".join(f"{n}:{t:.1f}" for n, t in times.items()), flush=True)
    print(f"{len(chosen)} cases, {far} more than 10 % from the fastest, {bad} without a time")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
