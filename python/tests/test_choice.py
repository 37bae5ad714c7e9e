"""What is measured on the CPU: islands and programs that torch runs faster are torch's. Time is counted, not waited for: forms that are called move a
clock of ours, so what is chosen and how often each was asked is the same on every machine.
"""

import contextlib
import os
import tempfile
import types
import unittest
import unittest.mock
import warnings

from .support import needs_torch, quern, torch
from .test_backend import compiled
from .test_runtime import gradients, program_of


class Clock:
    """Seconds that calls of islands take, ours and torch's, by what is in their text; `counts` of both."""

    def __init__(self):
        self.now, self.seconds, self.counts = 0.0, {"": (1.0, 1.0)}, {}

    def perf_counter(self):
        self.now += 1e-7
        return self.now

    def spend(self, made, form):
        word = next(word for word in sorted(self.seconds, key=len, reverse=True) if word in made.text)
        self.now += self.seconds[word][form == "torch"]
        self.counts[word, form] = self.counts.get((word, form), 0) + 1


@needs_torch
class Choices(unittest.TestCase):
    def setUp(self):
        from quern import choice, island

        torch.manual_seed(5)
        self.x, self.w = torch.randn(6, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
        self.clock = clock = Clock()
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        replace = lambda *what: stack.enter_context(unittest.mock.patch.object(*what))
        stack.enter_context(unittest.mock.patch.dict(os.environ, {"QUERN_CACHE": folder}))
        replace(choice, "DEVICES", ("cuda", "cpu"))
        replace(choice, "_known", None)
        replace(choice, "_interruptions", lambda: 0)
        replace(choice, "time", types.SimpleNamespace(perf_counter=clock.perf_counter))
        compile, torchs = island.Island.compile, island.Island.torchs.func

        def timed(made, run, form):
            def call(*args):
                clock.spend(made, form)
                return run(*args)

            return call

        replace(island.Island, "compile", lambda made: timed(made, compile(made), "quern"))
        replace(island.Island, "torchs", property(lambda made: timed(made, torchs(made), "torch")))

    def same(self, a, b):
        torch.testing.assert_close(list(a), list(b), rtol=1e-4, atol=1e-5)
        self.assertEqual([x.stride() for x in a], [x.stride() for x in b])

    def again(self):
        """As in the next process."""
        from quern import choice

        choice._known = None
        self.clock.counts.clear()

    def test_islands(self):
        def f(x):
            return torch.tanh(x.t()) * x.t() + 1, (x * 2).exp()

        x = self.x.detach()
        for seconds, wanted in (((1.0, 0.5), "torch"), ((1.0, 0.95), "quern"), ((1.0, 3.0), "quern"), ((60.0, 0.01), "torch"), ((1e-5, 8e-6), "torch"), ((1e-5, 1e-3), "quern")):
            with self.subTest(seconds=seconds), tempfile.TemporaryDirectory() as os.environ["QUERN_CACHE"]:
                self.again()
                self.clock.seconds[""] = seconds
                start = self.clock.now
                with unittest.mock.patch("quern.backend.Program.measure"):  # islands alone
                    c, program, found = program_of(f, x)
                (made,) = program.graphs[0].report.islands
                self.same(found, f(x))
                self.assertEqual((made.form, sorted(made.times)), (wanted, ["quern", "torch"]))
                asked = dict(self.clock.counts)
                self.assertLessEqual(self.clock.now - start, max(4 * sum(seconds), 0.05))
                self.assertLessEqual(min(asked.values()), 110)
                if max(seconds) > 2 * min(seconds) and max(seconds) > 0.1:
                    self.assertEqual(asked, {("", "quern"): 2, ("", "torch"): 2})
                for _ in range(3):
                    self.same(c(x), f(x))
                asked["", wanted] += 3
                self.assertEqual(self.clock.counts, asked)
                self.again()
                with unittest.mock.patch("quern.backend.Program.measure"):
                    self.same(compiled(f)(x), f(x))
                self.assertEqual(self.clock.counts, {("", wanted): 1})

    def test_forward_and_backward_apart(self):
        def f(x, w):
            return torch.sin(x * 2) + torch.sin(w[:6])

        for slow, forms in (("sin", ["torch", "quern"]), ("cos", ["quern", "torch"])):
            with self.subTest(slow=slow), tempfile.TemporaryDirectory() as os.environ["QUERN_CACHE"]:
                self.again()
                self.clock.seconds = {"": (1.0, 1.0), slow: (2.0, 1.0)}
                with unittest.mock.patch("quern.backend.Program.measure"):
                    c, program, _ = program_of(f, self.x, self.w)
                    self.same(gradients(c, self.x, self.w), gradients(f, self.x, self.w))
                self.assertEqual([graph.report.islands[0].form for graph in program.graphs], forms)
                self.same(gradients(c, self.x, self.w), gradients(f, self.x, self.w))

    def test_programs(self):
        """Where torch has one operator for what its graph takes apart, the whole is asked, forward and backward together."""

        def f(x, w):
            return torch.nn.functional.layer_norm(x @ w, (8,)) * 2

        for seconds, wanted in (((1.0, 1.0), "torch"), ((1e-9, 1.0), "quern")):
            with self.subTest(seconds=seconds), tempfile.TemporaryDirectory() as os.environ["QUERN_CACHE"]:
                self.again()
                self.clock.seconds[""] = seconds
                spent = 1e-3 if wanted == "quern" else 0.0
                with unittest.mock.patch("quern.choice._step", self.stepping(spent)):
                    c, program, found = program_of(f, self.x, self.w)
                self.assertEqual((program.form, sorted(program.times)), (wanted, ["quern", "torch"]))
                self.assertLessEqual(max(self.clock.counts.values()), 220 if wanted == "quern" else 10)
                self.same([found], [f(self.x, self.w)])
                self.same(gradients(c, self.x, self.w), gradients(f, self.x, self.w))
                self.again()
                _, program, _ = program_of(f, self.x, self.w)
                self.assertEqual((program.form, program.times), (wanted, {}))

    def stepping(self, seconds):
        from quern import choice

        step = choice._step

        def call(function, *rest):
            step(function, *rest)
            self.clock.now += seconds if "GraphModule" in repr(function) else 0.0

        return call

    def test_what_is_measured_happens_once(self):
        """Buffers, inputs that change, random numbers: as if each call had been one; also where an input that changes wants a gradient."""
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)).train()
        state = {k: v.clone() for k, v in net.state_dict().items()}

        def run(function):
            net.load_state_dict(state)
            torch.manual_seed(7)
            found = [t for _ in range(2) for t in gradients(function, self.x)]
            return found + list(net.buffers()) + [torch.rand(2)]

        wanted = [t.clone() for t in run(net)]
        for seconds in ((1.0, 0.1), (1e-9, 1.0)):
            with tempfile.TemporaryDirectory() as os.environ["QUERN_CACHE"]:
                self.again()
                self.clock.seconds[""] = seconds
                self.same(run(compiled(net)), wanted)

        def change(x, w):
            x.mul_(torch.sin(w[:6]) + 1)
            return torch.tanh(x) * 2

        def result(function):
            x = self.x * 1
            made = function(x, self.w)
            return [made, x, *torch.autograd.grad((made * x).sum(), [self.x, self.w])]

        self.again()
        found = []
        with unittest.mock.patch("quern.backend._programs", [found]):
            self.same(result(compiled(change)), result(change))
        self.assertEqual(sorted(found[0].times), ["quern", "torch"])

    def test_nothing_is_measured(self):
        """Where it was not asked for, and not while somebody watches operators, or compiles many programs: then at a call after."""
        from quern import choice
        from torch.utils.flop_counter import FlopCounterMode

        def f(x):
            return torch.tanh(x) * x + 1

        x, self.clock.seconds[""] = self.x.detach(), (1.0, 0.1)
        _, program, _ = program_of(f, x, measure=False)
        self.assertEqual((program.form, program.times, self.clock.counts), ("quern", {}, {("", "quern"): 1}))
        self.again()
        with unittest.mock.patch.object(choice, "postponed", True):
            c, program, _ = program_of(f, x)
        with FlopCounterMode(display=False):
            program.run(x)
        self.assertEqual((program.times, self.clock.counts), ({}, {("", "quern"): 2}))
        c(x)
        self.assertEqual(sorted(program.times), ["quern", "torch"])
        self.assertEqual(program.graphs[0].report.islands[0].form, "torch")

    def test_what_torch_refuses_stays_ours(self):
        """An island that cannot be run in torch's operators when it is measured, and one whose results would lie otherwise."""
        from quern import island

        def f(x):
            return torch.tanh(x) * x + 1

        def refuses(*args):
            raise IndexError("out of range")

        x, self.clock.seconds[""] = self.x.detach(), (1.0, 0.1)
        for other in (refuses, lambda x: f(x).t().contiguous().t(), lambda x: f(x).double(), lambda x: x):
            with tempfile.TemporaryDirectory() as os.environ["QUERN_CACHE"]:
                self.again()
                with (
                    unittest.mock.patch.object(island.Island, "torchs", property(lambda made: other)),
                    unittest.mock.patch("quern.backend.Program.measure"),
                ):
                    c, program, found = program_of(f, x)
                    self.same([found, c(x)], [f(x)] * 2)
                self.assertEqual(program.graphs[0].report.islands[0].form, "quern")

    def test_it_is_said(self):
        self.clock.seconds[""] = (1.0, 0.1)
        words = str(quern.explain(lambda x: torch.tanh(x) * x + 1, self.x.detach()))
        self.assertIn("    left to torch, which is faster there: Quern 1000000.1 us, torch 100000.1 us", words)

    def test_interpolation_stays_whole(self):
        """Forward and backward are an operator each, ours where the language has it, of known sizes; torch's own tables are as before."""
        from quern import whole

        before = {op: dict(op.py_kernels) for op in whole._operators()}
        self.assertTrue(any(before.values()))
        image, resize = torch.randn(1, 2, 5, 6, requires_grad=True), torch.nn.functional.interpolate
        cases = [dict(scale_factor=2), dict(size=(15, 7)), dict(scale_factor=(2.3, 1.7)), dict(size=(410, 6)), dict(scale_factor=0.5)]
        kinds = ("nearest", "nearest-exact", "bilinear", "bicubic")
        for given, mode in [(each, mode) for each in cases for mode in kinds] + [(dict(size=(9, 4), align_corners=True), "bilinear")]:
            for like in (torch.contiguous_format, torch.channels_last):
                with self.subTest(mode=mode, **given):
                    x = image.detach().contiguous(memory_format=like).requires_grad_()
                    f = lambda x: resize(x, mode=mode, **given) * 2 + 1
                    c, program, found = program_of(f, x, measure=False, smallest_island=1)
                    self.assertEqual([graph.report.count for graph in program.graphs], [3, 2])
                    wanted = f(x)
                    seed = torch.randn_like(wanted)
                    self.same([found, *torch.autograd.grad(found, x, seed)], [wanted, *torch.autograd.grad(wanted, x, seed)])
        line, space = torch.randn(1, 2, 5, requires_grad=True), torch.randn(1, 2, 3, 4, 5, requires_grad=True)
        for x, mode in ((line, "linear"), (line, "nearest"), (space, "trilinear"), (space, "nearest")):
            f = lambda x: resize(x, scale_factor=3, mode=mode) + 1
            with self.subTest(mode=mode):
                self.same(gradients(compiled(f, measure=False, smallest_island=1), x), gradients(f, x))
        wide = lambda x: resize(x, scale_factor=2, mode="bilinear")
        c = compiled(wide, dynamic=True)
        for x in (image, torch.randn(1, 2, 8, 9, requires_grad=True)):
            self.same(gradients(c, x), gradients(wide, x))
        data = lambda x: resize(x[0, 0].nonzero().to(x.dtype)[None, None], scale_factor=2.0, mode="bilinear") + 1
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), warnings.catch_warnings():
            warnings.filterwarnings("error", message="quern: ")
            self.same([compiled(data)(image.detach())], [data(image)])
        self.assertEqual({op: dict(op.py_kernels) for op in whole._operators()}, before)


if __name__ == "__main__":
    unittest.main()
