#!/usr/bin/env python3
"""torch.compile's backends beside each other on the models of python/tests/backend_models.py: eager, quern, and inductor where it
works. Forward and gradient, results compared before and after timing, rounds interleaved, medians.

    python3 bench/torch_backend.py [--device cuda] [--scale 32] [--grow 1] [--models a,b] [--rounds 15] [--seconds 40] [--inductor]

Columns: us a call of each, the ratio to eager (above 1: faster), first call in seconds. The last lines are geometric means and
what torch kept most often, and why. Models that are not done when the seconds are over are told.
SPDX-License-Identifier: MIT
"""

import argparse
import collections
import math
import os
import statistics
import sys
import time
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.environ.get("QUERN_PYTHON") or os.path.join(ROOT, "python"))
sys.path.insert(1, os.path.join(ROOT, "python"))

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from quern import backend  # noqa: E402

warnings.filterwarnings("ignore")


def extra(scale):
    """Models at sizes that matter."""
    from tests import backend_models as models

    rows, width = 128 * scale, 1024

    def data(*shape, device):
        return torch.randn(*shape, device=device, requires_grad=True)

    found = {
        "big_gelu_residual": lambda d: (lambda x, y: F.gelu(x) + y * 0.5, [data(rows, width, device=d), data(rows, width, device=d)]),
        "big_swiglu": lambda d: (lambda x, y: F.silu(x) * y, [data(rows, width, device=d), data(rows, width, device=d)]),
        "big_softmax": lambda d: (lambda x: torch.softmax(x * 0.3, -1), [data(rows, width, device=d)]),
        "big_layer_norm": lambda d: (lambda x, w, b: F.layer_norm(x, (width,), w, b) * 2, [data(rows, width, device=d), data(width, device=d), data(width, device=d)]),
        "big_rms_norm": lambda d: (lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, [data(rows, width, device=d), data(width, device=d)]),
        "big_cross_entropy": lambda d: (lambda x, t: F.cross_entropy(x * 1.5, t), [data(rows, width, device=d), models.labels(rows, width, d)]),
        "big_smooth_l1": lambda d: (lambda x, y: F.smooth_l1_loss(x, y), [data(rows, width, device=d), data(rows, width, device=d)]),
        "big_chain": lambda d: (lambda x: (torch.tanh(x) * 2 + x.sigmoid()).relu() - x.clamp(-1, 1) * 0.1, [data(rows, width, device=d)]),
        "big_group_norm": lambda d: (lambda x: F.silu(F.group_norm(x, 8)), [data(scale, 64, 64, 64, device=d)]),
        "big_batch_norm": lambda d: (nn.Sequential(nn.BatchNorm2d(64), nn.ReLU()).to(d).train(), [data(scale, 64, 64, 64, device=d)]),
        "big_mlp": lambda d: (nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width)).to(d), [data(rows, width, device=d)]),
        "big_block": lambda d: (models.Block(512, 8).to(d), [data(8, 256, 512, device=d)]),
    }
    return found


def leaves_of(function, args):
    found = [a for a in args if a.requires_grad]
    layers = [function] + [c.cell_contents for c in getattr(function, "__closure__", None) or ()]
    for layer in layers:
        for each in layer if isinstance(layer, list) else [layer]:
            if isinstance(each, nn.Module):
                found += each.parameters()
    return found


def step(function, args, leaves):
    results = [t for t in torch.utils._pytree.tree_leaves(function(*args))]
    wanted = [r for r in results if r.requires_grad]
    grads = torch.autograd.grad(wanted, leaves, [torch.ones_like(r) for r in wanted], allow_unused=True) if wanted else []
    return [r.detach() for r in results] + [g for g in grads if g is not None]


def close(a, b):
    return all(torch.allclose(x, y, rtol=2e-3, atol=2e-3 * max(1.0, float(y.abs().max())) if y.numel() and y.is_floating_point() else 0) for x, y in zip(a, b))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--scale", type=int, default=32)
    parser.add_argument("--models", default="")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--grow", type=int, default=1, help="factor of the sizes of the small networks")
    parser.add_argument("--limit", type=int, default=None, help="product_limit")
    given = parser.parse_args()
    from tests import backend_models as models

    models.SCALE = given.grow
    everything = {**extra(given.scale), **models.MODELS}
    names = given.models.split(",") if given.models else list(everything)
    began = time.perf_counter()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    options = {} if given.limit is None else {"product_limit": given.limit}
    kept, ratios, done = collections.Counter(), {"quern": [], "inductor": []}, 0

    def wait():
        if given.device == "cuda":
            torch.cuda.synchronize()

    print(f"{'model':28} {'eager us':>9} {'quern us':>9} {'ratio':>6} {'first s':>7}" + (f" {'inductor':>9} {'ratio':>6} {'first s':>7}" if given.inductor else ""))
    for name in names:
        if time.perf_counter() - began > given.seconds:
            print(f"note: {len(names) - done} models were not reached in {given.seconds:.0f} s")
            break
        torch.manual_seed(0)
        torch._dynamo.reset()
        done += 1
        try:
            function, args = everything[name](given.device)
            if isinstance(function, nn.Module):
                for module in function.modules():
                    if isinstance(module, nn.modules.batchnorm._BatchNorm):
                        module.track_running_stats = False
                        module.running_mean = module.running_var = None
            leaves = leaves_of(function, args)
            reports = []
            backend._reports.append(reports)
            forms = {"eager": function, "quern": torch.compile(function, backend=lambda g, x: backend.backend(g, x, options=options))}
            if given.inductor:
                forms["inductor"] = torch.compile(function)
            firsts, outputs = {}, {}
            for form, f in forms.items():
                start = time.perf_counter()
                outputs[form] = step(f, args, leaves)
                wait()
                firsts[form] = time.perf_counter() - start
            backend._reports.pop()
            if not close(outputs["quern"], outputs["eager"]):
                print(f"{name:28} WRONG")
                continue
            times = {form: [] for form in forms}
            for form, f in forms.items():
                step(f, args, leaves)
            wait()
            start = time.perf_counter()
            step(function, args, leaves)
            wait()
            calls = max(1, min(20, int(0.004 / max(time.perf_counter() - start, 1e-6))))
            for _ in range(given.rounds):
                for form, f in forms.items():
                    wait()
                    start = time.perf_counter()
                    for _ in range(calls):
                        last = step(f, args, leaves)
                    wait()
                    times[form].append((time.perf_counter() - start) / calls)
                    if form == "quern":
                        outputs["after"] = last
            if not close(outputs["after"], outputs["eager"]):
                print(f"{name:28} WRONG after timing")
                continue
            middle = {form: statistics.median(t) * 1e6 for form, t in times.items()}
            line = f"{name:28} {middle['eager']:9.1f}"
            for form in list(forms)[1:]:
                ratio = middle["eager"] / middle[form]
                ratios[form].append(ratio)
                line += f" {middle[form]:9.1f} {ratio:6.2f} {firsts[form]:7.2f}"
            print(line, flush=True)
            for report in reports:
                for (target, reason), count in report.kept.items():
                    kept[backend._short(target), reason] += count
        except Exception as error:  # one model must not lose the others
            print(f"{name:28} {type(error).__name__}: {str(error).strip().splitlines()[0][:150] if str(error).strip() else ''}", flush=True)
    for form, each in ratios.items():
        if each:
            print(f"{form}: geometric mean {math.exp(sum(map(math.log, each)) / len(each)):.2f} of eager, worst {min(each):.2f}, {len(each)} models")
    for (target, reason), count in kept.most_common(12):
        print(f"torch keeps {target} x{count}: {reason}")


if __name__ == "__main__":
    main()
