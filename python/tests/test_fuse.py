"""`@quern.fuse`: values and gradients against torch's own, types and shapes of results, guards, what is refused."""

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

    def test_refused(self):
        for function, words in (
            (lambda x: torch.fft.fft(x), "does not know torch's `fft_fft`"),
            (lambda x: x if x.sum() > 0 else -x, "use torch.where"),
            (lambda x: x.shape, "must give tensors"),
            (lambda x: float(x.shape[0]) * x, "the value of an extent is not known"),
            (lambda x: x.nonzero(), "does not know Tensor.nonzero"),
        ):
            with self.assertRaises(TypeError) as caught:
                quern.fuse(function)(self.x)
            self.assertIn(words, str(caught.exception))

    def test_methods_and_modes(self):
        class Layer(torch.nn.Module):
            @quern.fuse(mode="strict")
            def scaled(x, s):
                return x * s

            def forward(self, x):
                return Layer.scaled(x, 2.0)

        torch.testing.assert_close(Layer()(self.x), 2 * self.x)


if __name__ == "__main__":
    unittest.main()
