"""CUDA tensors: streams, graphs, no waiting, memory that stays flat. Needs a GPU; what needs none is in test_torch.py."""

import copy
import os
import tempfile
import time
import unittest

from .support import module, needs_cuda, quern, torch

SLOW = """
tensor chain(float x[m][n], float w[n][n]) {
  let y = matmul(x, w);
  let z = matmul(gelu(y), w);
  return z - mean(z, axis = 1);
}
tensor fresh(float x[m][n], float w[n][n]) { return softmax(matmul(exp(x), w), axis = 1) * 3; }
"""


def chain(x, w):
    z = torch.nn.functional.gelu(x @ w) @ w
    return z - z.mean(1, keepdim=True)


@needs_cuda
class Cuda(unittest.TestCase):
    def setUp(self):
        self.q = module()
        self.r = quern.compile(SLOW, "slow.qn")
        torch.manual_seed(1)
        self.x = torch.randn(64, 128, device="cuda")
        self.w = torch.randn(128, 128, device="cuda") / 12

    def close(self, a, b, tolerance=2e-3):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

    def test_default_stream(self):
        self.close(self.r.chain(self.x, self.w), chain(self.x, self.w))
        out = torch.empty_like(self.x)
        self.assertIs(self.r.chain(self.x, self.w, out=out), out)
        self.close(out, chain(self.x, self.w))

    def test_order_on_streams(self):
        big = torch.randn(4096, 4096, device="cuda")
        for stream in [torch.cuda.Stream() for _ in range(3)]:
            with torch.cuda.stream(stream):
                x = self.x
                for _ in range(5):
                    torch.mm(big, big)  # keeps the stream busy, so that what is out of order shows
                    x = self.q.add(x.add(1), x)
                found = x * 1
            stream.synchronize()
            wanted = self.x
            for _ in range(5):
                wanted = 2 * wanted + 1
            self.close(found, wanted)

    def test_does_not_wait(self):
        big = torch.randn(8192, 8192, device="cuda")
        out = torch.empty_like(self.x)
        self.r.chain(self.x, self.w, out=out)
        torch.cuda.synchronize()
        for _ in range(6):
            torch.mm(big, big)
        start = time.perf_counter()
        self.r.chain(self.x, self.w, out=out)
        asked = time.perf_counter() - start
        torch.cuda.synchronize()
        self.assertLess(asked, (time.perf_counter() - start) / 3)

    def test_graph(self):
        """Recorded by torch: after a warm-up, and without one."""
        for name, wanted in (("chain", chain), ("fresh", lambda x, w: torch.softmax(x.exp() @ w, 1) * 3)):
            function = self.r[name]
            if name == "chain":
                function(self.x, self.w)
            x = self.x.clone()
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                y = function(x, self.w)
                z = self.q.add(y, y)
            for turn in range(3):
                x.copy_(torch.randn_like(x))
                graph.replay()
                torch.cuda.synchronize()
                self.close(y, wanted(x, self.w))
                self.close(z, 2 * y)
            del graph

    def test_graph_with_gradient(self):
        x = self.x.clone().requires_grad_()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.q.soft(x).square().sum().backward()
        torch.cuda.current_stream().wait_stream(stream)
        x.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.q.soft(x).square().sum().backward()
        graph.replay()
        torch.cuda.synchronize()
        found, x.grad = x.grad.clone(), None
        torch.softmax(2 * x, 1).square().sum().backward()
        self.close(found, x.grad)

    def test_gradients_are_compiled_beside_their_functions(self):
        from quern import autograd

        text = "tensor waved(float x[m][n], float w[n], float s) { return softmax(sin(x) * s, axis = 1) * w[][:]; }"
        x, w = self.x.clone().requires_grad_(), self.w[0].clone().requires_grad_()
        for waiting in (1, 0):  # the second time there is nothing left to compile
            q = quern.compile(text) if waiting else q
            y = q.waved(x, w, 1.5)
            self.assertEqual(len(autograd._prepared), waiting)
            found = torch.autograd.grad(y, (x, w), y.detach())
            self.assertEqual(autograd._prepared, {})
            wanted = torch.softmax(torch.sin(x) * 1.5, 1) * w
            for a, b in zip(found, torch.autograd.grad(wanted, (x, w), wanted.detach())):
                self.close(a, b)

    def test_devices(self):
        with self.assertRaises(ValueError) as caught:
            self.q.add(self.x, torch.randn(64, 128))
        self.assertIn("argument `b` is on the host (device 0), and `a` on a GPU (device 0)", str(caught.exception))
        with self.assertRaises(ValueError):
            self.q.add(self.x, self.x, device="cpu")

    def test_memory_is_flat(self):
        def turn():
            self.r.chain(self.x, self.w)

        for _ in range(20):
            turn()
        lost = []
        for _ in range(6):  # what others take of the GPU comes and goes; what is lost at each call is lost in every round
            torch.cuda.synchronize()
            torch_bytes, free = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
            for _ in range(3000):
                turn()
            torch.cuda.synchronize()
            self.assertEqual(torch.cuda.memory_allocated(), torch_bytes)
            lost.append(free - torch.cuda.mem_get_info()[0])
            if lost[-1] <= 1 << 22:
                break
        self.assertLessEqual(lost[-1], 1 << 22, lost)

    def test_compiled_programs_are_measured(self):
        """At their first call; the next program like it takes the answer from the record; recorded graphs take what is there."""
        from quern import backend, choice

        layer = torch.nn.Linear(512, 512).cuda()
        x = torch.randn(256, 512, device="cuda", requires_grad=True)

        def f(x):
            return torch.tanh(layer(x)) * 2 + torch.sin(x) + x

        def step(function):
            y = function(x)
            return y.detach(), *torch.autograd.grad(y.square().sum(), [x, layer.weight])

        wanted, old, kept = step(f), os.environ.get("QUERN_CACHE"), choice._known
        with tempfile.TemporaryDirectory() as folder:
            os.environ["QUERN_CACHE"], choice._known = folder, None
            try:
                for turn in range(2):
                    torch._dynamo.reset()
                    found = []
                    backend._programs.append(found)
                    c = torch.compile(f, backend=backend.backend)
                    for a, b in zip(step(c), wanted):
                        self.close(a, b)
                    backend._programs.pop()
                    self.assertEqual(sorted(found[0].times), ["quern", "torch"] if turn == 0 else [])
                    backend.settle()  # large products compile meanwhile
                    for a, b in zip(step(c), wanted):
                        self.close(a, b)
                    self.assertEqual(sorted(found[0].times), ["products", "quern", "torch"] if turn == 0 else [])
                    self.assertIn(found[0].form, ("products", "quern", "torch"))
                for form in ("quern", "products", "torch"):
                    found[0].select(form)
                    for a, b in zip(step(c), wanted):
                        self.close(a, b)
                with torch.no_grad():
                    c(x)
                    given, graph = x.detach().clone(), torch.cuda.CUDAGraph()
                    torch.cuda.synchronize()
                    with torch.cuda.graph(graph):
                        y = c(given)
                    given.copy_(torch.randn_like(given))
                    graph.replay()
                    self.close(y, f(given))
            finally:
                choice._known = kept
                del os.environ["QUERN_CACHE"]
                if old is not None:
                    os.environ["QUERN_CACHE"] = old

    def test_first_calls_without_patience(self):
        """Torch's operators until kernels are there, in training too; a graph that is recorded meanwhile has Quern's."""
        from quern import backend, choice

        layer = torch.nn.Sequential(torch.nn.Linear(128, 96), torch.nn.BatchNorm1d(96), torch.nn.GELU(), torch.nn.LayerNorm(96)).cuda()
        other = copy.deepcopy(layer)
        first, second = (torch.optim.SGD(m.parameters(), 0.05) for m in (layer, other))
        torch._dynamo.reset()
        found, old, kept = [], os.environ.get("QUERN_CACHE"), choice._known
        backend._programs.append(found)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["QUERN_CACHE"], choice._known = folder, None
            try:
                made = torch.compile(layer, backend=backend.backend, options={"patience": 0.0})
                for turn in range(6):
                    for model, optimizer in ((made, first), (other, second)):
                        optimizer.zero_grad()
                        model(self.x).square().mean().backward()
                        optimizer.step()
                    self.assertEqual(bool(found[0].times), turn > 0, found[0].times)
                    backend.settle()
                    for a, b in zip(layer.state_dict().values(), other.state_dict().values()):
                        self.close(a, b, 1e-3)
                torch._dynamo.reset()
                with torch.no_grad():
                    f = lambda x: torch.softmax(torch.sin(x) * 3, -1) + x.mean(0)  # noqa: E731
                    given, graph = self.x.clone(), torch.cuda.CUDAGraph()
                    made = torch.compile(f, backend=backend.backend, options={"patience": 0.0})
                    self.close(made(given), f(given))
                    torch.cuda.synchronize()
                    with torch.cuda.graph(graph):
                        y = made(given)
                    given.copy_(torch.randn_like(given))
                    graph.replay()
                    self.close(y, f(given))
                    backend.settle()
                    self.close(made(given), f(given))
                    self.assertTrue(found[-1].times)
            finally:
                backend._programs.pop()
                choice._known = kept
                del os.environ["QUERN_CACHE"]
                if old is not None:
                    os.environ["QUERN_CACHE"] = old

    def test_compiled_optimizers(self):
        """Their tensors are the program's own, and their step counts lie on the host: neither measured nor mixed up."""
        from quern import backend

        weights = [torch.randn(40, 50, device="cuda"), torch.randn(70, device="cuda")]
        both = [[torch.nn.Parameter(w.clone()) for w in weights] for _ in range(2)]
        plain, other = (torch.optim.Adam(w, 1e-2) for w in both)
        torch._dynamo.reset()
        step = torch.compile(other.step, backend=backend.backend)
        for _ in range(3):
            for a, b in zip(*both):
                a.grad = torch.randn_like(a)
                b.grad = a.grad.clone()
            plain.step()
            step()
        for a, b in zip(*both):
            self.close(a.detach(), b.detach())

        def f(x, y):
            x.add_(y)
            x[:, 0] = 0
            return x * 2 + torch.cos(x) + torch.sin(x)

        x, y = (torch.randn(5, 6, device="cuda") for _ in range(2))
        other = x.clone()
        self.close(torch.compile(f, backend=backend.backend)(x, y), f(other, y))
        self.close(x, other)

    def test_checkpoints_and_cells(self):
        """A checkpoint counts what is saved while forms are measured inside it; cells that torch has as one operator, and a convolution's
        gradients, in every form."""
        from quern import backend

        def stepped(function, x, leaves):
            made = [r for r in torch.utils._pytree.tree_leaves(function(x)) if r.requires_grad]
            return [r.detach() for r in made] + list(torch.autograd.grad([r.sin().sum() for r in made], leaves))

        layers = torch.nn.Sequential(torch.nn.Linear(128, 96), torch.nn.GELU(), torch.nn.LayerNorm(96)).cuda()
        gru, lstm, conv = torch.nn.GRUCell(128, 32).cuda(), torch.nn.LSTMCell(128, 32).cuda(), torch.nn.Conv2d(8, 12, 3, stride=2, padding=1).cuda()
        x = self.x.requires_grad_()
        for model, given in ((layers, x), (gru, x), (lstm, x), (conv, self.x.detach().view(2, 8, 16, 32).requires_grad_())):
            torch._dynamo.reset()
            found, leaves = [], [given, *model.parameters()]
            backend._programs.append(found)
            c = torch.compile(lambda x: torch.utils._pytree.tree_map(torch.tanh, model(x)), backend=backend.backend)
            wanted = stepped(lambda x: torch.utils._pytree.tree_map(torch.tanh, model(x)), given, leaves)
            try:
                for turn in range(3):
                    for a, b in zip(stepped(lambda x: torch.utils.checkpoint.checkpoint(c, x, use_reentrant=False), given, leaves), wanted):
                        self.close(a, b)
                    backend.settle()
            finally:
                backend._programs.pop()
            for form in ("quern", "products", "torch"):
                for program in found:
                    program.select(form)
                for a, b in zip(stepped(c, given, leaves), wanted):
                    self.close(a, b)
            kept = [str(target) for program in found for graph in program.graphs for target, _ in graph.reports.get("products", graph.report).kept]
            self.assertFalse([k for k in kept if "thnn" in k or "convolution" in k], kept)

    def test_profiler_sees_it(self):
        from torch.profiler import ProfilerActivity, profile

        self.q.twice(self.x.view(-1))
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
            self.q.twice(self.x.view(-1))
            torch.cuda.synchronize()
        self.assertTrue([e for e in p.events() if "twice" in e.name])


if __name__ == "__main__":
    unittest.main()
