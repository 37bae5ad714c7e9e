"""The torch.compile backend: models against eager, forward and gradient, and what a backend promises. A few models in the
ordinary run; QUERN_TEST_MODELS=all for all of them, or names of some."""

import contextlib
import gc
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from unittest import mock

from .support import needs_torch, quern, torch

if torch:
    from torch.utils._pytree import tree_leaves

    from . import backend_fields, backend_images, backend_language, backend_recipes, backend_snippets, backend_writing  # noqa: F401: their programs
    from . import backend_models as models
    from .backend_parts import PROGRAMS, ROUGH

    PROGRAMS.update(models.MODELS)

    warnings.filterwarnings("ignore", message=".*TensorFloat32.*")
    torch.backends.cudnn.allow_tf32 = False  # which torch's convolutions have by default, and miss the tolerance with
DEVICES = ["cpu"] + (["cuda"] if torch and torch.cuda.is_available() else [])
QUICK = """dictionary_of_results channels_last_training gelu_tanh_residual swiglu broadcast_both clamp_where mixed_types sin_cos_rope softmax mean_var cumsum layer_norm
    batch_norm_training cross_entropy cosine views_around slices gather_rows embedding_bag_sum
    index_work in_place_writes grouped_query_rope whole_numbers_and_truth scalar_tensors under_autocast hooked_module
    writes_by_index results_of_every_kind inputs_of_every_layout""".split()


def compiled(function, dynamic=None, **options):
    from quern import backend

    torch._dynamo.reset()
    return torch.compile(function, backend=lambda g, x: backend.backend(g, x, options=options or None), dynamic=dynamic)


def reports_of(function, *args, **options):
    """Runs it once; what became of its graphs."""
    from quern import backend

    found = []
    backend._programs.append(found)
    try:
        result = compiled(function, **options)(*args)
    finally:
        backend._programs.pop()
    return result, [report for program in found for report in program.reports]


def parameters_of(function):
    layers = [function] + [c.cell_contents for c in getattr(function, "__closure__", None) or ()]
    found = []
    for layer in layers:
        for each in layer if isinstance(layer, list) else [layer]:
            if isinstance(each, torch.nn.Module):
                found += each.parameters()
            elif isinstance(each, torch.Tensor) and each.is_leaf and each.requires_grad:
                found.append(each)
    return found


def run(function, args, leaves):
    """Results, and gradients of a weighted sum of them."""
    for leaf in leaves:
        leaf.grad = None
    results = tree_leaves(function(*args))
    seeds = [r for r in results if r.requires_grad]
    if seeds:
        weights = [torch.linspace(0.3, 1.7, r.numel(), device=r.device).sin().view(r.shape).to(r.dtype) for r in seeds]
        torch.autograd.backward(seeds, weights)
    return [r.detach() for r in results], [leaf.grad for leaf in leaves]


@needs_torch
class Models(unittest.TestCase):
    def check(self, name, device):
        torch.manual_seed(0)
        function, args = PROGRAMS[name](device)
        few = 2e-2 if name in ROUGH else 3e-4
        leaves = [a for a in args if a.requires_grad] + parameters_of(function)
        buffers = {k: v.clone() for k, v in function.named_buffers()} if isinstance(function, torch.nn.Module) else {}
        wanted, wanted_gradients = run(function, args, leaves)
        after = {k: v.clone() for k, v in function.named_buffers()} if buffers else {}
        for k, v in buffers.items():
            dict(function.named_buffers())[k].copy_(v)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message="quern: ")  # what was left to torch by a mistake of ours
            found, gradients = run(compiled(function), args, leaves)
        for k, v in after.items():
            torch.testing.assert_close(dict(function.named_buffers())[k], v, rtol=1e-4, atol=1e-5)
        for a, b in zip(found + gradients, wanted + wanted_gradients):
            self.assertEqual(a is None, b is None, name)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=few, atol=few / (1 if name in ROUGH else 10), equal_nan=True, msg=lambda words: f"{name} on {device}: {words}")
                self.assertEqual(a.stride(), b.stride(), name)

    def test_models(self):
        chosen = os.environ.get("QUERN_TEST_MODELS", "")
        names = list(PROGRAMS) if chosen == "all" else chosen.split() or QUICK
        for device in DEVICES:
            for name in names:
                with self.subTest(name, device=device):
                    self.check(name, device)


@needs_torch
class Backend(unittest.TestCase):
    def test_found_by_name(self):
        found = importlib.metadata.entry_points(group="torch_dynamo_backends", name="quern")
        if not list(found):
            self.skipTest("the package is not installed")
        x = torch.randn(5, 6)
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(lambda x: torch.sin(x) * 2, backend="quern")(x), torch.sin(x) * 2)
        self.assertIn("quern", torch._dynamo.list_backends())

    def test_options_are_checked(self):
        from quern.backend import options_from

        self.assertEqual(options_from({"leave": "aten.mm"}, None)["leave"], ("aten.mm",))
        self.assertEqual(options_from({"leave": ["mm.default", "prims.iota.default"]}, None)["leave"], ("mm.default", "prims.iota.default"))
        self.assertEqual(options_from({"patience": 3}, None)["patience"], 3.0)
        for bad, words in (
            (({"fast": 1}, None), "no option 'fast'"),
            (({"strict": 1}, None), "is a bool, not 1"),
            (({"patience": "long"}, None), "is a float, not 'long'"),
            (({"patience": float("nan")}, None), "is a float, not nan"),
            ((None, "reduce-overhead"), "no mode 'reduce-overhead'"),
            (({"leave": 3}, None), "is a list of names, not 3"),
            (({"leave": ["aten.tahn.default"]}, None), "torch has no operator 'aten.tahn.default'"),
            (({"leave": "tahn"}, None), "torch has no operator 'tahn'"),
            (({"smallest_island": -1}, None), "is not negative, as -1 is"),
        ):
            with self.assertRaises((ValueError, TypeError)) as caught:
                options_from(*bad)
            self.assertIn(words, str(caught.exception))

    def test_what_is_left_to_torch_and_why(self):
        x = torch.randn(8, 8)

        def f(x):
            y = torch.dropout(torch.tanh(x) * 2 + 1, 0.5, True)
            return torch.linalg.inv(y + 9 * torch.eye(8)).exp() * y + torch.atan(x)

        _, reports = reports_of(f, x)
        kept = {str(target): reason for report in reports for target, reason in report.kept}
        self.assertEqual(kept["aten.native_dropout.default"], "random numbers are torch's")
        self.assertEqual(next(r for t, r in kept.items() if "atan" in t), "Quern has no row for it")
        self.assertTrue(any("linalg_inv" in t for t in kept))
        _, reports = reports_of(lambda x: torch.tanh(x) * 2 + x, x, leave=("aten.tanh.default",))
        self.assertEqual([k for r in reports for k in r.kept], [("aten.tanh.default", "asked for")])
        _, reports = reports_of(lambda x: (x @ x).relu() + 1, x, product_limit=100)
        self.assertIn("a large product", [r for report in reports for _, r in report.kept][0])
        _, reports = reports_of(lambda x: x + 1, x)
        self.assertEqual([len(r.islands) for r in reports], [0])  # too small an island

    def test_random_numbers_are_torchs(self):
        def f(x):
            return torch.dropout(x * 2, 0.5, True) + 1

        x = torch.randn(64)
        both = []
        for function in (f, torch.compile(f, backend="aot_eager"), compiled(f)):
            torch.manual_seed(3)
            both.append((function(x) != 1).float().mean().item())
        self.assertTrue(all(0.2 < share < 0.8 for share in both))

    def test_random_numbers_are_drawn_in_order(self):
        """An island that would stand on both sides of two that draw is cut: each gets the numbers that it has in eager."""

        def f(x):
            h = torch.rrelu(torch.alpha_dropout(x, 0.1, True), training=True)
            return h, torch.bernoulli(x.sigmoid()) * 2, torch.nn.functional.gumbel_softmax(x, hard=True), torch.rand_like(x) * h + 1

        x, drawn = torch.randn(4, 6), []
        for function in (f, compiled(f)):
            torch.manual_seed(3)
            drawn.append(function(x))
        for a, b in zip(*drawn):
            torch.testing.assert_close(a, b)

    def test_strides_and_views(self):
        x = torch.randn(4, 5, 6)

        def f(x):
            y = torch.tanh(x) * 2
            z = y.permute(2, 0, 1)
            return z, y[1:], (x.transpose(0, 1) * 3).exp(), z.contiguous() + 1, x[:, 1:]

        for a, b in zip(compiled(f)(x), f(x)):
            self.assertEqual((a.stride(), a.storage_offset(), a.shape), (b.stride(), b.storage_offset(), b.shape))
            torch.testing.assert_close(a, b)
        channels = torch.randn(2, 8, 5, 5).to(memory_format=torch.channels_last)
        y = compiled(lambda x: torch.relu(x) * 2 + 1)(channels)
        self.assertTrue(y.is_contiguous(memory_format=torch.channels_last))
        view = compiled(lambda x: (x[0], x.sin() * 2))(x)[0]
        self.assertEqual(view.data_ptr(), x.data_ptr())

    def test_results_are_fresh(self):
        f = compiled(lambda x: torch.sin(x) * 2)
        x = torch.randn(100)
        first = f(x)
        kept = first.clone()
        for _ in range(5):
            f(torch.randn(100))
        self.assertTrue(torch.equal(first, kept))

    def test_inputs_that_change(self):
        def f(x, y):
            x.mul_(2)
            return torch.exp(x) * y + 1

        x, y = torch.randn(6), torch.randn(6)
        other = x.clone()
        torch.testing.assert_close(compiled(f)(other, y), f(x, y))
        self.assertTrue(torch.equal(other, x))

    def test_sizes_that_change(self):
        from quern import backend

        found = []
        backend._programs.append(found)
        try:
            f = compiled(lambda x, w: torch.softmax(x @ w, -1).view(-1) * 2 + x.shape[0], dynamic=True)
            for rows in range(3, 23):
                x, w = torch.randn(rows, 5), torch.randn(5, 7)
                torch.testing.assert_close(f(x, w), torch.softmax(x @ w, -1).view(-1) * 2 + rows, rtol=1e-4, atol=1e-5)
        finally:
            backend._programs.pop()
        self.assertLessEqual(len(found), 2)
        self.assertTrue(all(report.islands for program in found for report in program.reports))

    def test_strict_has_the_bits_of_eager(self):
        x = torch.randn(50, 40).to(torch.bfloat16)

        def f(x):
            return (x * 1.7 + 0.3) * x - x * 0.11

        self.assertTrue(torch.equal(compiled(f, strict=True)(x), f(x)))

    def test_many_values(self):
        """More inputs and results than a tensor function has parameters."""
        given = [torch.randn(3) for _ in range(80)]

        def f(*x):
            return [torch.sin(a) * b + 1 for a, b in zip(x, x[1:] + x[:1])]

        found, reports = reports_of(f, *given)
        for a, b in zip(found, f(*given)):
            torch.testing.assert_close(a, b)
        self.assertGreater(len(reports[0].islands), 1)

    def test_a_first_call_has_little_patience(self):
        """As on CUDA: torch's operators serve calls while kernels compile; Quern's come after, or at once for who waits, or hides what is saved."""
        from quern import backend, choice, island

        def f(x):
            return torch.softmax(torch.sin(x) * 2, -1) + x

        x, gate, ran = torch.randn(4, 6, requires_grad=True), threading.Event(), []
        real = island.Island.__call__

        def prepare(self):
            gate.wait(60)
            self.compile()

        def call(self, *args):
            ran.append(self.name)
            return real(self, *args)

        def step(function):
            y = function(x)
            return [y.detach(), *torch.autograd.grad(y.sin().sum(), x)]

        def same():
            for a, b in zip(step(made), wanted):
                torch.testing.assert_close(a, b)

        wanted = step(f)
        with (
            mock.patch.object(backend, "_on_gpu", lambda inputs: True),
            mock.patch.object(choice, "key_of", lambda *args: None),
            mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: False),
            mock.patch.object(torch.cuda, "current_stream", lambda: None),
            mock.patch.object(torch.cuda, "stream", lambda stream: contextlib.nullcontext()),
            mock.patch.object(island.Island, "prepare", prepare),
            mock.patch.object(island.Island, "__call__", call),
        ):
            made = compiled(f, patience=0.01)
            for _ in range(3):
                same()
            self.assertEqual(ran, [])
            gate.set()
            backend.settle()
            same()
            self.assertEqual(len(ran), 2)
            for options in ({"patience": 100.0}, {"patience": 0.0, "measure": False}):
                gate.clear()
                made = compiled(f, **options)
                threading.Timer(0.3, gate.set).start()
                same()
            gate.clear()
            made = compiled(lambda x: torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False), patience=0.0)
            threading.Timer(0.3, gate.set).start()
            same()
            gate.clear()
            inner = compiled(f, patience=0.0)
            made = lambda x: torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)  # noqa: E731
            threading.Timer(0.3, gate.set).start()
            same()
            self.assertGreaterEqual(len(ran), 8)

    def test_an_island_that_fails_is_torchs(self):
        from quern import island

        real, x = island.Island.compile, torch.randn(4, 6)

        def f(x):
            return torch.sin(x).t() * 2, x.sum() + 1

        def compile(self):
            self.text = self.text.replace("sin(", "no_such_function(")
            return real(self)

        island.Island.compile = compile
        try:
            with self.assertWarnsRegex(UserWarning, "torch computes island0 .*: .*no_such_function"):
                found = compiled(f)(x)
        finally:
            island.Island.compile = real
        for a, b in zip(found, f(x)):
            torch.testing.assert_close(a, b)
            self.assertEqual(a.stride(), b.stride())

    def test_a_cut_that_fails_leaves_the_program_to_torch(self):
        from quern import backend

        real, x = backend.cut, torch.randn(4, 6, requires_grad=True)

        def fail(*args):
            raise KeyError("no such node")

        backend.cut = fail
        try:
            with self.assertWarnsRegex(UserWarning, "torch runs a program of 3 operators itself: KeyError"):
                found = compiled(lambda x: (torch.sin(x) * 2).sum())(x)
        finally:
            backend.cut = real
        torch.testing.assert_close(torch.autograd.grad(found, x)[0], 2 * torch.cos(x))

    def test_sizes_make_no_variants(self):
        """Twenty sizes, forward and gradient: each kernel in two variants at most. In a process of its own, which tells what it compiles."""
        words = """
import sys, torch
from quern import backend
device = sys.argv[1]
layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU()).to(device)
f = torch.compile(layer, backend=backend.backend, dynamic=True)
for rows in range(3, 23):
    f(torch.randn(rows, 8, device=device)).sum().backward()
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""
        for device in DEVICES:
            with self.subTest(device=device), tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, "QUERN_LOG": "compile", "QUERN_CACHE": folder, "PYTHONPATH": os.path.dirname(os.path.dirname(quern.__file__))}
                made = subprocess.run([sys.executable, "-c", words, device], env=environment, capture_output=True, text=True)
                self.assertEqual(made.returncode, 0, made.stderr)
                self.assertLessEqual(int(made.stdout.split()[-1]), 2)
                variants = [line for line in made.stderr.splitlines() if line.startswith("compile: ") and " variant " in line]
                self.assertTrue(variants)
                self.assertFalse([line for line in variants if int(line.split(" variant ")[1].split()[0]) > 2], variants)

    def test_memory_is_flat(self):
        f = compiled(lambda x: torch.sin(x) * 2 + x.sum())
        x = torch.randn(64)
        f(x)
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(2000):
            f(x)
        gc.collect()
        self.assertLess(len(gc.get_objects()) - before, 100)

    def test_explain(self):
        layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Dropout(0.1))
        words = str(quern.explain(layer, torch.randn(4, 8)))
        for part in ("forward: ", "backward: ", "island0: ", "torch keeps ", "random numbers are torch's", "us a call"):
            self.assertIn(part, words)


if __name__ == "__main__":
    unittest.main()
