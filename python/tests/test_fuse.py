"""`@quern.fuse`: values and gradients against torch's own, types and shapes of results, guards, what is refused."""

import functools
import operator
import os
import re
import subprocess
import sys
import tempfile
import unittest

from .support import needs_torch, quern, torch

F = torch.nn.functional if torch else None
DEVICE = "cuda" if torch and torch.cuda.is_available() else "cpu"


@needs_torch
class Fuse(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.x = torch.randn(8, 16, device=DEVICE)
        self.b = torch.randn(16, device=DEVICE)
        self.w = torch.randn(12, 16, device=DEVICE)
        self.c = torch.randn(8, 1, device=DEVICE)

    def same(self, function, *args, tolerance=1e-4, gradient=True):
        fused = quern.fuse(function)
        found, wanted = fused(*args), function(*args)
        found = found if isinstance(found, tuple) else (found,)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for a, b in zip(found, wanted):
            self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype))
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
        if not gradient:
            return
        leaves = [a.detach().clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in args]
        tensors = [a for a in leaves if isinstance(a, torch.Tensor)]
        grads = []
        for f in (fused, function):
            result = f(*leaves)
            result = result[0] if isinstance(result, tuple) else result
            grads.append(torch.autograd.grad(result.square().sum(), tensors, allow_unused=True))
        for a, b in zip(*grads):
            if b is not None:
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)

    def test_pointwise(self):
        self.same(lambda x, b: F.gelu(x + b), self.x, self.b)
        self.same(lambda x, c: x * c + 1, self.x, self.c)
        self.same(lambda x, s: torch.where(x > 0, x, s * x), self.x, 0.1)
        self.same(lambda x: F.relu(x) + torch.sigmoid(x) * x.abs().log1p(), self.x)
        self.same(lambda x: 1 / x.exp() + 2 - x, self.x)

    def test_reductions(self):
        self.same(lambda x: torch.softmax(x / x.shape[-1] ** 0.5, dim=-1), self.x)
        self.same(lambda x, b: F.layer_norm(x, (16,), b, b), self.x, self.b)
        self.same(lambda x: (x.sum(1), x.amax(0)), self.x)
        self.same(lambda x: x.clamp(0, 1).pow(2).sum(), self.x)
        self.same(lambda x: torch.exp(-(x**2)).mean(), self.x)

    def test_one_number(self):
        """Folds and scans of a tensor without axes."""
        x = torch.tensor(1.5, device=DEVICE)
        for function in (lambda v: torch.softmax(v, 0) * 2, lambda v: F.log_softmax(v, -1) + v, lambda v: torch.logsumexp(v, 0) * 2, lambda v: v.cumsum(0) + 1, lambda v: v.mean() * 2, lambda v: v.amax() + v.sum()):
            self.same(function, x)
        self.same(lambda v: (v > 1).any(), x, gradient=False)

    def test_products(self):
        self.same(lambda x, w: F.linear(x, w), self.x, self.w)
        self.same(lambda x: x.T @ x, self.x)
        q = torch.randn(2, 3, 8, 4, device=DEVICE)
        self.same(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q)

    def test_attention_of_rows_that_see_nothing(self):
        """torch's attention is 0 where a mask leaves nothing over, and so are its gradients."""
        q, k, v = (torch.randn(2, 3, 4, 8, device=DEVICE) for _ in range(3))
        seen = torch.ones(4, 4, dtype=torch.bool, device=DEVICE).tril()
        seen[1] = False
        minus = torch.zeros(4, 4, device=DEVICE).masked_fill(~seen, float("-inf"))
        for mask in (seen, minus, torch.zeros(2, 1, 4, 4, dtype=torch.bool, device=DEVICE), minus[1:2]):
            self.same(lambda q, k, v, mask=mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask), q, k, v, mask, gradient=False)
            found = []
            for function in (lambda *args: F.scaled_dot_product_attention(*args), quern.fuse(lambda *args: F.scaled_dot_product_attention(*args))):
                leaves = [x.clone().requires_grad_() for x in (q, k, v)]
                found.append(torch.autograd.grad(function(*leaves, mask).square().sum(), leaves))
            for a, b in zip(*found):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)

    def test_movement(self):
        self.same(lambda x: x.reshape(4, 2, 16).permute(1, 0, 2).sum(0), self.x)
        self.same(lambda x: x[:, :8] * x[:, 8:], self.x)
        self.same(lambda x: F.silu(x[:, None, :] * 2) + x[None].mean(), self.x)
        self.same(lambda x: x[0] + x[-1], self.x)
        self.same(lambda x, w: torch.cat([x, w], 0).tanh(), self.x, self.w)

    def test_types(self):
        self.same(lambda x: (x.to(torch.bfloat16) * 2).float(), self.x, tolerance=0.1, gradient=False)
        self.same(lambda x: x.bfloat16().softmax(-1), self.x, tolerance=0.1, gradient=False)
        self.same(lambda x, s: x * s, self.x, torch.tensor(3.0, device=DEVICE), gradient=False)

    def test_what_torch_makes_of_it(self):
        """Types, numbers, slices and keywords where a stand-in could mean something else: many results of one function, to compile little."""
        i = torch.arange(-12, 116, device=DEVICE).view(8, 16)

        def first(x, c, m, n, s):
            h = x * 2
            g = h
            g += 1  # h too
            left, right = x.chunk(2, -1)
            return (torch.add(x, h, alpha=2), x.sub(h, alpha=3), F.softplus(x, beta=3.0, threshold=2.0), m + n, m * n, m & n, m ^ n, ~m, torch.where(~torch.isnan(c), x, 0.0), x[:, 2:100], x[:, -100:3], x[:, :1] * x,
                    x[:, -1:] + x, x.var(False), x.std(1, unbiased=False), F.rms_norm(x * 1e-4, (16,)), x.sum(()), abs(x) + (+x), torch.sign(c), h, left * right, x.any(), x * s**2, x / x.numel(), x * (x.shape[1] * 0.5))  # fmt: skip

        def second(i, u, d, h, s, zero):
            return (u.sum(1), i.int().sum(), i.int().cumsum(1), i & 7, i ^ 3, ~i, i.clamp(-3, 3), i.clamp(-0.5, 3.2), torch.sqrt(abs(i)).long(), d * s, d * zero, i * zero, F.rms_norm(h * 0.1, (16,)), u * 0.5, torch.where(i > 0, i, 0.5),
                    torch.where(i > 0, 1, -1), i == d, torch.cat([d, h], 1), (i > 0).sum(1), i.bool(), u + i.to(torch.int8), h.type_as(d), i % 5, torch.logical_and(i, u), h.float() % 0.7, (d * 300).to(torch.uint8))  # fmt: skip

        def third(x, w):
            return (F.mish(x), F.hardswish(x), F.hardsigmoid(x), F.relu6(x * 4), F.softsign(x), F.selu(x), F.elu(x, 0.5), F.celu(x, alpha=2.0), F.hardtanh(x, -0.5, 0.25), F.logsigmoid(x), F.glu(x), F.normalize(x, dim=-1),
                    torch.einsum("ij,kj->ik", x, w), torch.einsum("ij,ij->i", x, x), x.argmax(1), x.argmin(-1, keepdim=True), x.clamp_min(0.1), torch.tril(x), x.triu(2), torch.zeros_like(x) + x, x - torch.ones_like(x))  # fmt: skip

        self.same(third, self.x, self.w, tolerance=1e-5, gradient=False)
        self.same(lambda x: F.normalize(F.glu(F.mish(x)), dim=-1) + F.elu(x.tril()[:, :8], 0.5), self.x)
        nan = torch.where(self.c > 0, self.c, float("nan"))
        self.same(first, self.x, nan, self.x > 0, self.x > self.b, 1.7, tolerance=1e-5, gradient=False)
        self.same(second, i, i.to(torch.uint8), self.x.double(), self.x.bfloat16(), 0.1, torch.tensor(1.5, device=DEVICE), tolerance=1e-2, gradient=False)
        doubled = quern.fuse(lambda d, s: d * s + x_of(d, s))
        x_of = lambda d, s: d.shape[-1] ** 0.5 * s  # noqa: E731
        torch.testing.assert_close(doubled(self.x.double(), 0.1), self.x.double() * 0.1 + 4 * 0.1, rtol=1e-14, atol=1e-14)  # no f32 in between
        self.same(lambda x, s: torch.cat([F.softplus(p, beta=2.0) * p[:, :1] for p in x.chunk(2, -1)], -1).sub(x[:, -1:], alpha=2.0) * s, self.x, 0.5)
        for function, form in ((lambda x: [x * 2, x], list), (lambda x: (x * 2,), tuple), (lambda x: {"a": x * 2, "b": x}, dict)):
            found = quern.fuse(function)(self.x)
            self.assertIs(type(found), form)
            torch.testing.assert_close(found["a"] if form is dict else found[0], 2 * self.x)

    def test_whole_numbers(self):
        """Types that stay, and those that torch makes."""
        i = torch.arange(-6, 10, dtype=torch.int32, device=DEVICE).view(2, 8)

        def function(i, b):
            return (F.relu(i), i.floor(), i.round() + i, i.ceil(), i**2, i**2.0, abs(i) ** 0.5, i**3, b**2, i.masked_fill(b, 2.5), b.masked_fill(i > 0, 2), b.sign(), i.sum(dtype=torch.int32),
                    i.sum(0, dtype=torch.uint8), i.cumsum(1, dtype=torch.int8), i.prod(1, dtype=torch.int16), i.long() + -(2**63))  # fmt: skip

        self.same(function, i, i % 2 == 0, gradient=False)
        for kind in (torch.uint8, torch.int8, torch.int16, torch.int64):
            self.same(lambda a: (a @ a.T, a.any(), a.all(1), a.any(0, keepdim=True), a[0].any(0) + a), i.to(kind), gradient=False)
        self.same(lambda b: (b.max(), b.min(), b.amax(1), b.amin(0, keepdim=True), b[0, 0].amax()), i % 3 == 0, gradient=False)
        for number in (-3, 256):
            with self.assertRaisesRegex(TypeError, f"the number {number} does not fit u8"):
                quern.fuse(lambda a: torch.maximum(a, a) % number)(i.to(torch.uint8))
        for refused in (lambda i: i**7, lambda i: 2**i, lambda i: F.hardtanh(i), lambda i: F.relu6(i), lambda i: i.softmax(0), lambda i: i.masked_fill(i > 0, float("nan")), lambda i: torch.add(i > 0, i > 1, alpha=2), lambda i: (i > 0).floor()):
            with self.assertRaises(TypeError):
                quern.fuse(refused)(i)

    def test_results_without_a_gradient(self):
        """Of arguments that want one: truths, places and whole numbers have none."""
        x = self.x.clone().requires_grad_()
        for function in (lambda x: x > 0, lambda x: (x.argmax(1), (x * 9).long()), lambda x: x.isnan().any()):
            fused = quern.fuse(function)
            for _ in range(2):
                found, wanted = fused(x), function(x)
                for a, b in zip(found if isinstance(found, tuple) else [found], wanted if isinstance(wanted, tuple) else [wanted]):
                    self.assertFalse(a.requires_grad)
                    torch.testing.assert_close(a, b, rtol=0, atol=0)
        where, y = quern.fuse(lambda x: (x > 0, x * x))(x)
        self.assertFalse(where.requires_grad)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 2 * x.detach())

    def test_axes(self):
        """Those that are not there are no others, and those of extent one broadcast behind products and joins too."""
        for wrong in (lambda x: x.sum(2), lambda x: x.softmax(-3), lambda x: x.unsqueeze(4), lambda x: torch.cat([x, x], 2), lambda x: x.permute(0, 3), lambda x: x.squeeze(5), lambda x: x.flatten(0, 2), lambda x: x.cumsum(2),
                      lambda x: x.argmax(7), lambda x: x.transpose(0, 2), lambda x: x.chunk(2, 3)[0], lambda x: x.sum((0, -2)), lambda x: x[0, 0, 0], lambda x: F.normalize(x[0])):  # fmt: skip
            with self.assertRaises(IndexError):
                quern.fuse(wrong)(self.x)
        three, one, number = torch.randn(4, 2, 3, device=DEVICE), self.b[None], self.b[0]
        self.same(lambda x: F.softmax(x) + F.log_softmax(x), three)  # torch's choice of an axis
        self.same(lambda x, y, w: (y @ w.T + x[:, :1], torch.cat([y, y], 1) * x.sum(), torch.cat([y, y]).sum(0) + x, (y.flatten(0) + x)), self.x, one, self.w)
        self.same(lambda x, y: F.scaled_dot_product_attention(x[:, :, :1], y, y) + x, *(torch.randn(1, 2, 5, 4, device=DEVICE) for _ in range(2)))
        self.same(lambda x: (x.T + 1, x[None] * 2, x[..., None, None], x.flatten(), x.reshape(()), x.reshape(1)), number)

        def function(x):
            y = x * 1
            z, m = y.sum(), y.mean()
            z += 1
            m *= 3
            return y + z * m

        self.same(function, number)
        pieces = quern.fuse(lambda x: x.chunk(4, 1))
        self.assertEqual([p.shape for p in pieces(self.x[:, :7])], [p.shape for p in self.x[:, :7].chunk(4, 1)])
        for n in (3, 5, 6, 9):  # torch's are three, or two
            with self.assertRaises(quern.Error):
                pieces(self.x[:, :n])

    def test_names_and_numbers(self):
        """What arguments are called, and numbers of every kind."""
        for name in ("v0", "a0", "a0_n0", "float", "let", "exp", "k0", "\u03b2"):
            torch.testing.assert_close(quern.fuse(lambda x, **k: x.exp() * k[name])(self.x, **{name: self.b}), self.x.exp() * self.b)
            torch.testing.assert_close(quern.fuse(lambda x, **k: x.exp() * k[name])(self.x, **{name: 0.5}), self.x.exp() * 0.5)
        double = lambda x: x * 2  # noqa: E731
        double.__name__ = "\u03b2"
        torch.testing.assert_close(quern.fuse(double)(self.x), self.x * 2)
        number = type("Number", (float,), {"__repr__": lambda self: "a number"})(0.1)  # as NumPy's
        self.same(lambda x, e: (F.layer_norm(x, (16,), eps=e), F.rms_norm(x, (16,), None, e), x * number), self.x, 0.1)
        mixed = (lambda x, b: (F.layer_norm(x, (16,), b, b), F.rms_norm(x, (16,), b))) if DEVICE == "cpu" else lambda x, b: F.rms_norm(x, (16,), b)  # of a GPU eager's layer_norm wants one type
        self.same(mixed, self.x.bfloat16(), self.b, tolerance=0.03, gradient=False)
        ends = torch.tensor([1.5, -1.5, float("inf"), -float("inf"), float("nan"), 0.0, -3.0, 3.0], device=DEVICE)
        function = lambda x: (x % float("inf"), x % -float("inf"), 2.5 % x, x[:, None] % x)  # noqa: E731
        torch.testing.assert_close(quern.fuse(function)(ends), function(ends), equal_nan=True)
        self.same(lambda c, x, w: torch.addmm(c, x, w.T, beta=0), torch.full((12,), float("nan"), device=DEVICE), self.x, self.w, gradient=False)
        for elsewhere in (lambda x: torch.cat([x, self.w]), lambda x: x @ self.w.T, lambda x: torch.stack([self.x, x]), lambda x: torch.einsum("ij,ij->i", x, self.x)):
            with self.assertRaisesRegex(TypeError, "comes from elsewhere"):
                quern.fuse(elsewhere)(self.x)
        for refused in (lambda x: x.any(()), lambda x: x.clamp(), lambda x: F.scaled_dot_product_attention(x, x, x, scale=0.0), lambda x: F.scaled_dot_product_attention(x, x, x, x @ x.T, is_causal=True)):
            with self.assertRaises(TypeError):
                quern.fuse(refused)(self.x)

    def test_guards(self):
        f = quern.fuse(lambda x, b: F.gelu(x + b))
        for n in range(2, 12):
            f(torch.randn(n, 16, device=DEVICE), self.b)
        self.assertEqual(len(f.texts), 1)
        f(torch.randn(1, 16, device=DEVICE), self.b)  # an axis of one broadcasts
        f(self.x.double(), self.b.double())
        f(torch.randn(2, 8, 16, device=DEVICE), self.b)
        self.assertEqual(len(f.texts), 4)
        g = quern.fuse(lambda x, s: x * s)
        g(self.x, 1.0), g(self.x, 2.0)
        self.assertEqual(len(g.texts), 1)
        torch.testing.assert_close(g(self.x, 2.0), 2 * self.x)

    def test_new_sizes_compile_nothing(self):
        """Forward and gradient, in a process of its own that tells what it compiles."""
        words = """
import torch, quern
f = quern.fuse(lambda x, b: torch.softmax(torch.nn.functional.gelu(x + b), -1))
for n in range(3, 23):
    x, b = torch.randn(n, 40 + n, requires_grad=True), torch.randn(40 + n)
    f(x, b).square().sum().backward()
"""
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "QUERN_LOG": "compile", "QUERN_CACHE": folder, "PYTHONPATH": os.path.dirname(os.path.dirname(quern.__file__))}
            made = subprocess.run([sys.executable, "-c", words], env=environment, capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        compiled = re.findall(r"^compile: .* for cpu, .* ms$", made.stderr, re.M)
        self.assertTrue(2 <= len(compiled) <= 4, compiled)  # of forty calls: two kernels, for rows that are aligned and for others

    def test_refused_where_it_is_decorated(self):
        for bad, words in ((lambda: quern.fuse(3), "is for functions, not for a int"), (lambda: quern.fuse(mode="quick"), "there is no mode 'quick': it has fused, strict, eager")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                bad()
        for function, args, words in ((lambda x: x[0] + 1, ([self.x],), "those in lists and dictionaries are not looked for"), (lambda x: __import__("numpy").exp(x), (self.x,), "has no values while tracing")):
            with self.assertRaisesRegex(TypeError, words):
                quern.fuse(function)(*args)

        class Half(torch.nn.Module):
            def forward(self, x):
                return x / 2

        torch.testing.assert_close(quern.fuse(Half())(self.x), self.x / 2)  # what has no name
        torch.testing.assert_close(quern.fuse(functools.partial(torch.add, alpha=2))(self.x, self.b), self.x + 2 * self.b)

    def test_refused(self):
        for function, words in (
            (lambda x: torch.fft.fft(x), "does not know torch's `fft_fft`"),
            (lambda x: x if x.sum() > 0 else -x, "use torch.where"),
            (lambda x: x.shape, "must give tensors"),
            (lambda x: float(x.shape[0]) * x, "the value of an extent is not known"),
            (lambda x: x.nonzero(), "does not know Tensor.nonzero"),
            (lambda x: torch.round(x, decimals=2), "`round` got an unexpected keyword argument 'decimals'"),
            (lambda x: torch.div(x, 2, rounding_mode="floor"), "`div` got an unexpected keyword argument 'rounding_mode'"),
            (lambda x: torch.add(x, 1, out=self.x), "unexpected keyword argument 'out'"),
            (lambda x: F.silu(x * 2, inplace=True), "inplace=True changes a tensor"),
            (lambda x: operator.iadd(x, 1), "`+=` would change an argument"),
            (lambda x: operator.iadd(x.clone()[0], 1), "or what a view shows"),
            (lambda x: operator.iadd(x.sum(0), x), "would change the shape or the type"),
            (lambda x: x if x.shape[1] == 16 else -x, "branch on it outside"),
            (lambda x: x * len(x), "the length of a tensor is not known"),
            (lambda x: x * self.b, "a tensor comes from elsewhere"),
            (lambda x: x @ x.double().T, "a product of float and double"),
            (lambda x: (x > 0) - (x < 0), "of two tensors of bools"),
            (lambda x: x & 1, "is for whole numbers and bools"),
            (lambda x: operator.setitem(x, 0, 1.0), "cannot be written to"),
            (lambda x: x[True], "gathering is left to torch"),
        ):
            with self.assertRaises(TypeError) as caught:
                quern.fuse(function)(self.x)
            self.assertIn(words, str(caught.exception))
        with self.assertRaisesRegex(TypeError, "the value of a number argument"):
            quern.fuse(lambda x, s: x if s == 0.5 else -x)(self.x, 0.5)

    def test_methods_and_modes(self):
        class Layer(torch.nn.Module):
            @quern.fuse(mode="strict")
            def scaled(x, s):
                return x * s

            def forward(self, x):
                return Layer.scaled(x, 2.0)

        torch.testing.assert_close(Layer()(self.x), 2 * self.x)

    def test_what_torch_follows(self):
        """torch.compile, vmap and gradients of torch.func see the function as it is written: no break, no refusal."""
        function = lambda x, b: F.gelu(x + b) * 2  # noqa: E731
        fused, wanted = quern.fuse(function), function(self.x, self.b)
        torch.testing.assert_close(torch.compile(lambda x, b: fused(x, b) + 1, backend="aot_eager", fullgraph=True)(self.x, self.b), wanted + 1)
        torch.testing.assert_close(torch.func.vmap(fused, (0, None))(self.x, self.b), wanted)
        gradients = [torch.func.grad(lambda x: f(x, self.b).sum())(self.x) for f in (fused, function)]
        torch.testing.assert_close(*gradients)
        self.assertEqual(fused.texts, [])


if __name__ == "__main__":
    unittest.main()
