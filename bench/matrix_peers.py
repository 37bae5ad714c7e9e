#!/usr/bin/env python3
"""Work of matrix units (bench/matrix.qn) beside PyTorch's libraries: products, attention, convolutions, their errors and times.

Usage: python3 bench/matrix_peers.py [WORD ...] [--without WORD] [--bars] [--jobs N] [--timeout S] [--compile] [--library FILE] [--check]

Cases whose names contain one of the words, or all, but for those --without a word; --bars: those that have a bar (BARS). Each runs in a process of its own (as bench/kernelbench.py has it): compiled and checked side
by side, timed alone, in turns with the peer, the second-level cache emptied before each call, medians of the times between two
events; so launches cost nothing, as in a graph. --compile also asks torch.compile with max-autotune. Errors are those of
the largest number against the same work in f64 (where that fits) or f32. --check: errors only.
The last column is the better peer's time over Quern's: above 1 Quern is faster.
"""
import argparse
import functools
import os
import re
import sys

import torch
from torch.nn import functional as F

import kernelbench
from kernelbench import HERE, Quern, Run, relative_error, times_us

B16, F32, I8, F8 = torch.bfloat16, torch.float32, torch.int8, torch.float8_e4m3fn
FUNCTIONS = os.path.join(HERE, "matrix.qn")
LAYOUTS = ("", " b [N][K]")
BARS = {  # the ratio that is wanted
    **{f"bf16 {n}{b}": bar for b in LAYOUTS
       for n, bar in ((16384, 0.98), (8192, 0.98), (4096, 0.98), (2048, 0.98), (1024, 1.05), (512, 1.1), (256, 1.1))},
    "layer k 8192": 1.05, "layer k 512": 1.2, "layer k 1024": 1.2, "layer residual k 512": 1.2, "layer residual k 1024": 1.2,
    **{f"tf32 {n}{b}": 0.97 for b in LAYOUTS for n in (8192, 4096)},
    "fp8 8192": 0.92, "fma 4096": 0.95, "f32 4096": 2.0, "f32 8192": 2.0, "cdist 2048 f32": 2.0,
    **{f"bmm {shape} {elem}{b}": 1.3 for b in ("", " A B^T") for shape in ("128 of 128", "64 of 1024") for elem in ("f32", "bf16")},
    "vector 2048 x 1M f32": 0.97, "deep 256x256x524288 f32": 1.0,
    **{f"skinny {m} rows{b}": 1.1 for b in LAYOUTS for m in (1, 2, 4, 8, 16)},
    "attention 128 full": 1.03, "attention 128 causal": 1.12, "attention long full": 1.03, "attention long causal": 1.12,
    "attention 64 full": 1.05, "attention 64 causal": 1.05,
    "conv bf16 NHWC": 0.95, "conv bf16 NCHW": 0.85, "conv f32": 1.2, "depthwise f32": 1.5, "depthwise bf16": 1.5,
    **{f"transposed 3-D stride {n} {elem}": 0.8 for n in (1, 2) for elem in ("f32", "bf16")},
}


def cudnn(q, k, v, **words):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, **words)


def window_of(q, k, v, width):
    i = torch.arange(q.shape[2], device=q.device)
    mask = (i[None] <= i[:, None]) & (i[None] > i[:, None] - width)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def last(f, x, w, **words):
    """With channels last in memory, as both libraries take them."""
    return f(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), **words).permute(0, 2, 3, 1)


class Case:
    """Looks like a problem of kernelbench.py: a function of matrix.qn, shapes, and what PyTorch does."""

    def __init__(self, name, function, peer, dtype, *shapes, tf32=False, fma=False, clean=False, masks=(), **scalars):
        self.masks = masks  # shapes of truths, after the others
        self.prefix, self.clean = "tf32 " if tf32 else "fma " if fma else "", clean
        self.name, self.function, self.peer, self.dtype, self.shapes, self.words = name, function, peer, dtype, shapes, scalars
        self.functions, self.tf32, self.level, self.number = FUNCTIONS, tf32, 1, 0
        text = open(FUNCTIONS).read()
        head = re.search(r"^tensor %s\((.*?)\)\s*(?:$|\{)" % function, text, re.M | re.S).group(1)
        self.arrays, self.scalars = [], []
        for word in re.split(r",\s*", head):
            m = re.match(r"\w+ (\w+)((?:\[[^\]]*\])*)", word.strip())
            (self.arrays if m.group(2) else self.scalars).append((m.group(1), m.group(2)) if m.group(2) else m.group(1))

    def inputs(self, device):
        torch.manual_seed(1)
        if self.dtype is I8:
            return [torch.randint(-128, 128, s, device=device, dtype=I8) for s in self.shapes]
        masks = [torch.rand(s, device=device) < 0.8 for s in self.masks]
        return [torch.randn(s, device=device).to(self.dtype) for s in self.shapes] + masks


def products():
    mm, turned = torch.mm, lambda a, b: torch.mm(a, b.t())
    for n in (16384, 8192, 4096, 2048, 1024, 512, 256):
        yield Case(f"bf16 {n}", "product", mm, B16, (n, n), (n, n))
        yield Case(f"bf16 {n} b [N][K]", "product_turned", turned, B16, (n, n), (n, n))
    for n in (8192, 4096, 2048):
        yield Case(f"tf32 {n}", "product", mm, F32, (n, n), (n, n), tf32=True)
        yield Case(f"tf32 {n} b [N][K]", "product_turned", turned, F32, (n, n), (n, n), tf32=True)
    yield Case("tf32 weights gradient 8192x512x256", "product_left", lambda a, b: torch.mm(a.t(), b), F32, (8192, 512),
               (8192, 256), tf32=True)
    for n in (8192, 4096, 1024):
        yield Case(f"f32 {n}", "product", mm, F32, (n, n), (n, n))
    yield Case("fma 4096", "product", mm, F32, (4096, 4096), (4096, 4096), fma=True)
    yield Case("fma 4096 b [N][K]", "product_turned", turned, F32, (4096, 4096), (4096, 4096), fma=True)
    one = functools.cache(lambda: torch.ones((), device="cuda"))
    for n in (4096, 8192):
        yield Case(f"fp8 {n}", "eighths", lambda a, b: torch._scaled_mm(a, b.t(), one(), one(), out_dtype=B16, use_fast_accum=True),
                   F8, (n, n), (n, n))
    for n in (4096, 8192):
        yield Case(f"i8 {n}", "integers", lambda a, b: torch._int_mm(a, b.t()), I8, (n, n), (n, n))
    for m in (1, 2, 4, 8, 16):
        yield Case(f"skinny {m} rows", "product", mm, B16, (m, 4096), (4096, 8192))
        yield Case(f"skinny {m} rows b [N][K]", "product_turned", turned, B16, (m, 4096), (8192, 4096))
        yield Case(f"skinny {m} rows, clean cache", "product", mm, B16, (m, 4096), (4096, 8192), clean=True)
        yield Case(f"skinny {m} rows b [N][K], clean cache", "product_turned", turned, B16, (m, 4096), (8192, 4096), clean=True)
    for b, n in ((128, 128), (64, 1024)):
        for word, dtype in (("f32", F32), ("bf16", B16)):
            yield Case(f"bmm {b} of {n} {word}", "batch", torch.bmm, dtype, (b, n, n), (b, n, n))
            yield Case(f"bmm {b} of {n} {word} A B^T", "batch_turned", lambda a, b: torch.bmm(a, b.mT), dtype, (b, n, n), (b, n, n))
    yield Case("cdist 2048 f32", "distances", torch.cdist, F32, (2048, 1024), (2048, 1024))
    yield Case("vector 2048 x 1M f32", "vector", mm, F32, (2048, 1 << 20), (1 << 20, 1))
    yield Case("deep 256x256x524288 f32", "product", mm, F32, (256, 524288), (524288, 256))


def everyday():
    """Products of models: few hundred rows, odd sizes, batches, tall ones; f32 and tf32."""
    turned = lambda a, b: torch.mm(a, b.t())
    for word, tf32 in (("f32", False), ("tf32", True)):
        for m, k, n in ((1, 4096, 4096), (16, 4096, 4096), (64, 2048, 2048), (100, 784, 1000), (128, 512, 1024), (128, 1024, 512),
                        (128, 256, 4096), (128, 8192, 8192), (256, 1024, 1024), (512, 4096, 4096), (1000, 1000, 1000),
                        (1024, 512, 512), (1024, 8192, 8192)):
            yield Case(f"linear {m}x{n}x{k} {word}", "product_turned", turned, F32, (m, k), (n, k), tf32=tf32)
        for m, k, n in ((128, 1024, 512), (1024, 8192, 8192)):
            yield Case(f"linear gelu {m}x{n}x{k} {word}", "layer", lambda x, w, b: F.gelu(F.linear(x, w, b)), F32, (m, k), (n, k), (n,),
                       tf32=tf32)
        for m, k, n in ((65536, 64, 64), (1 << 20, 16, 32), (16384, 1024, 16), (32768, 64, 4096), (2048, 8192, 4096), (8205, 2949, 5921)):
            yield Case(f"tall {m}x{n}x{k} {word}", "product", torch.mm, F32, (m, k), (k, n), tf32=tf32)
        yield Case(f"both turned 2048x4096x8192 {word}", "product_both", lambda a, b: torch.mm(a.t(), b.t()), F32, (8192, 2048),
                   (4096, 8192), tf32=tf32)
        for b, m, k, n in ((128, 512, 1024, 2048), (96, 512, 64, 512), (512, 64, 64, 64), (32, 197, 64, 197), (128, 128, 128, 128)):
            yield Case(f"batch {b} of {m}x{n}x{k} {word}", "batch", torch.bmm, F32, (b, m, k), (b, k, n), tf32=tf32)
            yield Case(f"batch {b} of {m}x{n}x{k} A B^T {word}", "batch_turned", lambda a, b: torch.bmm(a, b.mT), F32, (b, m, k), (b, n, k),
                       tf32=tf32)
        for name, x, w, stride, padding in (("3x3 64", (16, 64, 57, 57), (96, 64, 3, 3), 1, 1), ("7x7 3", (16, 3, 224, 224), (64, 3, 7, 7), 2, 3),
                                            ("1x1 256", (16, 256, 55, 55), (64, 256, 1, 1), 1, 0), ("5x5 13", (8, 13, 99, 101), (33, 13, 5, 5), 1, 2)):
            yield Case(f"image {name} {word}", "convolution", F.conv2d, F32, x, w, tf32=tf32, stride=stride, padding=padding, groups=1)


def layers():
    def layer(x, w, b):
        return F.gelu(F.linear(x, w, b))

    def residual(x, w, b, r):
        return F.gelu(F.linear(x, w, b)) + r

    for k in (512, 1024, 8192):
        yield Case(f"layer k {k}", "layer", layer, B16, (8192, k), (8192, k), (8192,))
    for k in (512, 1024):
        yield Case(f"layer residual k {k}", "layer_residual", residual, B16, (8192, k), (8192, k), (8192,), (8192, 8192))
        yield Case(f"layer plain k {k}", "product_turned", lambda a, b: torch.mm(a, b.t()), B16, (8192, k), (8192, k))


def attentions():
    for e, h in ((128, 16), (64, 32), (96, 16), (192, 16), (256, 8)):
        x = (4, h, 4096, e)
        yield Case(f"attention {e} full", "attention", cudnn, B16, x, x, x)
        yield Case(f"attention {e} causal", "attention_causal", lambda q, k, v: cudnn(q, k, v, is_causal=True), B16, x, x, x)
    x = (1, 16, 16384, 128)
    yield Case("attention long full", "attention", cudnn, B16, x, x, x)
    yield Case("attention long causal", "attention_causal", lambda q, k, v: cudnn(q, k, v, is_causal=True), B16, x, x, x)
    q, k = (4, 32, 4096, 128), (4, 8, 4096, 128)
    yield Case("attention grouped", "attention_grouped", lambda q, k, v: cudnn(q, k, v, is_causal=True, enable_gqa=True), B16, q, k, k)
    x = (4, 16, 4096, 128)
    yield Case("attention window", "attention_window", window_of, B16, x, x, x, width=512)
    yield Case("attention bias", "attention_bias", lambda q, k, v, b: cudnn(q, k, v, attn_mask=b.expand(4, 16, 4096, 4096)), B16, x, x, x,
               (16, 4096, 4096))
    yield Case("attention dropout", "attention_dropout", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1), B16, x,
               x, x)
    given = F.scaled_dot_product_attention  # cuDNN takes no truths
    yield Case("attention mask", "attention_mask", given, B16, x, x, x, masks=((4, 1, 4096, 4096),))
    yield Case("attention keys", "attention_keys", given, B16, x, x, x, masks=((4, 1, 1, 4096),))


def convolutions():
    words = {"stride": 1, "padding": 1, "groups": 1}
    x, w = (32, 256, 28, 28), (256, 256, 3, 3)
    yield Case("conv bf16 NCHW", "convolution", F.conv2d, B16, x, w, **words)
    yield Case("conv bf16 NHWC", "convolution_last", lambda x, w, **o: last(F.conv2d, x, w, **o), B16, (32, 28, 28, 256),
               (256, 3, 3, 256), **words)
    yield Case("conv bf16 NHWC 64", "convolution_last", lambda x, w, **o: last(F.conv2d, x, w, **o), B16, (32, 56, 56, 64),
               (64, 3, 3, 64), **words)
    yield Case("conv bf16 NHWC 512 stride 2", "convolution_last", lambda x, w, **o: last(F.conv2d, x, w, **o), B16,
               (32, 28, 28, 512), (512, 3, 3, 512), stride=2, padding=1, groups=1)
    yield Case("conv f32", "convolution", F.conv2d, F32, (32, 64, 56, 56), (64, 64, 3, 3), **words)
    for name, dtype in (("f32", F32), ("bf16", B16)):
        yield Case(f"depthwise {name}", "convolution", F.conv2d, dtype, (32, 256, 56, 56), (256, 1, 3, 3), stride=1, padding=1, groups=256)
    turned = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
    for name, axes, x, w, stride, padding, dilation in (
            ("1-D stride 2", 1, (16, 64, 65536), (64, 64, 5), 2, 1, 1),
            ("2-D stride 2", 2, (16, 128, 64, 64), (128, 64, 4, 4), 2, 1, 1),
            ("2-D stride 3", 2, (16, 64, 128, 128), (64, 64, 5, 5), 3, 1, 1),
            ("2-D stride 5 dilation 2", 2, (16, 32, 64, 128), (32, 64, 3, 3), 5, 1, 2),
            ("3-D stride 2", 3, (16, 32, 16, 32, 32), (32, 64, 3, 3, 3), 2, 1, 1),
            ("3-D stride 1", 3, (8, 48, 32, 32, 32), (48, 48, 3, 3, 3), 1, 0, 1)):
        for word, dtype in (("f32", F32), ("bf16", B16)):
            yield Case(f"transposed {name} {word}", f"transposed{axes}",
                       lambda x, w, f=turned[axes], **o: f(x, w, **o), dtype, x, w, stride=stride, padding=padding, dilation=dilation)


def drawn(quern, case, inputs):
    """Of random numbers, which the peer draws otherwise: the same work op by op."""
    want = torch.empty_like(inputs[0])
    call, keep = quern_call(quern, case, inputs, want, "eager ")
    quern.run(call)
    torch.cuda.synchronize()
    return want


def truth(case, inputs):
    """The same work with wider numbers; attention and convolutions an image at a time."""
    if case.dtype is I8:
        a, b = inputs
        return torch.mm(a.double(), b.double().t())
    wide = [x if x.dtype is torch.bool else x.float() for x in inputs]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if case.function.startswith("attention"):
        mask = None
        q, k, v = wide[:3]
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
        rows, columns = torch.arange(q.shape[2], device="cuda")[:, None], torch.arange(k.shape[2], device="cuda")[None]
        if case.function in ("attention_causal", "attention_grouped"):
            mask = columns <= rows
        if case.function == "attention_window":
            mask = (columns <= rows) & (columns > rows - case.words["width"])
        outs = []
        for n in range(q.shape[0]):
            for h in range(q.shape[1]):
                s = q[n, h] @ k[n, h].t() / q.shape[3] ** 0.5
                if len(wide) > 3 and wide[3].dtype is torch.bool:
                    s = s.masked_fill(~wide[3][n, 0], -float("inf"))
                elif len(wide) > 3:
                    s = s + wide[3][h]
                outs.append(torch.softmax(s if mask is None else s.masked_fill(~mask, -float("inf")), -1) @ v[n, h])
        return torch.stack(outs).reshape(q.shape)
    if case.function.startswith(("convolution", "transposed")):
        return torch.cat([case.peer(wide[0][n:n + 1], *wide[1:], **case.words) for n in range(wide[0].shape[0])])
    if case.dtype is F8:
        return torch.mm(wide[0], wide[1].t())
    if sum(x.numel() for x in inputs) < 1 << 28 and case.dtype is F32:
        wide = [x.double() for x in inputs]
    return case.peer(*wide, **case.words)


def run_one(case, options, pipe):
    try:
        torch.backends.cudnn.benchmark = True
        inputs = case.inputs("cuda")
        quern = Quern(options.library, "cuda")
        with torch.no_grad():
            want = drawn(quern, case, inputs) if case.function == "attention_dropout" else truth(case, inputs)
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.tf32
            try:
                theirs = case.peer(*inputs, **case.words)
                pipe.send({"peer_error": relative_error(theirs.double(), want.double())})
                calls = {"eager_us": lambda: case.peer(*inputs, **case.words)}
                del theirs
            except RuntimeError as why:
                pipe.send({"why": "peer: " + str(why).splitlines()[0][:120]})
                calls = {}
            elem = {torch.int32: torch.int32}.get(want.dtype, {I8: torch.int32, F8: B16}.get(case.dtype, case.dtype))
            result = torch.empty(tuple(want.shape), dtype=elem, device="cuda")
            case.functions = FUNCTIONS
            pipe.send({"stage": "compiling Quern's plan or its first run"})
            call, keep = quern_call(quern, case, inputs, result)
            quern.run(call)
            torch.cuda.synchronize()
            error = relative_error(result.double(), want.double())
            right = error < {B16: 1e-2, F32: 2e-3 if case.tf32 else 2e-5, F8: 1e-2, I8: 1e-9}[case.dtype]
            pipe.send({"error": error, "status": "ok" if right else "WRONG", "stage": "torch.compile"})
            del want
            calls["quern_us"] = lambda: quern.run(call)
            if options.compile:
                compiled = torch.compile(lambda *a: case.peer(*a, **case.words), mode="max-autotune-no-cudagraphs")
                compiled(*inputs)
                calls["compiled_us"] = lambda: compiled(*inputs)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            pipe.send({"stage": "times", "ready": True})
            pipe.recv()
            times = {} if options.check else times_us(calls, "cuda", 0.1, clean=case.clean)
            pipe.send({"eager_us": float("nan"), **times})
    except Exception as problem:
        pipe.send({"status": "ERROR", "why": f"{type(problem).__name__}: {str(problem)[:300]}"})
    pipe.close()


def quern_call(quern, case, inputs, result, mode="fused "):
    import ctypes as C
    module, call, keep = C.c_void_p(), C.c_void_p(), []
    quern.ok(quern.q.qn_module_load_file(quern.context, FUNCTIONS.encode(), C.byref(module), quern.error), "load")
    name = mode + case.prefix + case.function
    quern.ok(quern.q.qn_call_new(module, name.encode(), C.byref(call), quern.error), "call")
    for (array, _), t in zip(case.arrays, inputs):
        quern.bind(call, array, t, keep)
    for n, v in case.words.items():
        if n not in case.scalars:
            continue
        quern.ok(quern.q.qn_call_set_int(call, n.encode(), C.c_int64(v), quern.error), n)
    quern.bind(call, "result0", result, keep)
    return call, keep


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=30)
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--bars", action="store_true")
    parser.add_argument("--library", default=os.path.join(HERE, "..", "build", "libquern.so"))
    options = parser.parse_args()
    options.device = "cuda"
    kernelbench.run_one = run_one
    cases = [c for part in (products, everyday, layers, attentions, convolutions) for c in part()]
    cases = [c for c in cases if not any(w in c.name for w in options.without)]
    cases = [c for c in cases if not options.bars or c.name in BARS]
    cases = [c for c in cases if not options.words or any(w in c.name for w in options.words)]
    print(f"{'case':40s} {'status':6s} {'error':>8s} {'peer error':>10s} {'peer us':>10s} {'compiled':>10s} {'quern us':>10s} {'ratio':>6s} {'bar':>5s}")
    bad = 0
    for first in range(0, len(cases), options.jobs):
        runs = [Run(case, options) for case in cases[first:first + options.jobs]]
        for run in runs:
            run.follow("ready")
        for run in runs:
            row = run.finish()
            bad += row["status"] != "ok"
            cell = lambda key, form, width: format(row[key], form) if row.get(key, float("nan")) == row.get(key) else "-" * 1
            print(f"{row['name']:40s} {row['status']:6s} {cell('error', '8.1e', 8):>8s} {cell('peer_error', '8.1e', 8):>10s} "
                  f"{cell('eager_us', '.1f', 10):>10s} {cell('compiled_us', '.1f', 10):>10s} {cell('quern_us', '.1f', 10):>10s} "
                  f"{cell('ratio', '.2f', 6):>6s} {BARS.get(row['name'], ''):>5}  {row.get('why', '')}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
