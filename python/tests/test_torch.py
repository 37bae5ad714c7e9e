"""torch tensors: exchange, what the exchange does not check, gradients, torch.compile. On the CPU, and on CUDA where it is."""

import gc
import unittest
import weakref

from .support import module, needs_torch, quern, torch

F = torch.nn.functional if torch else None
DEVICES = ["cpu"] + (["cuda"] if torch and torch.cuda.is_available() else [])


class _Exported(torch.nn.Module if torch else object):
    def __init__(self, q):
        super().__init__()
        self.q = q

    def forward(self, x):
        return self.q.soft(x) + 1


@needs_torch
class Torch(unittest.TestCase):
    def setUp(self):
        self.q = module()
        torch.manual_seed(1)

    def close(self, a, b, tolerance=1e-5):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

    def test_values(self):
        for device in DEVICES:
            x = torch.randn(20, 30, device=device)
            for v in (x, x.t(), x[:, ::3], x[2:9, 4:], x[:0], x.expand(20, 30), torch.nn.Parameter(x, requires_grad=False)):
                self.close(self.q.add(v, v), 2 * v)
                out = torch.empty_like(v)
                self.assertIs(self.q.add(v, v, out=out), out)
                self.close(out, 2 * v)
            self.assertEqual(self.q.add(x, x).device, x.device)
            for type in (torch.float64, torch.float16, torch.bfloat16):
                y = x.to(type)
                self.close(self.q.add(y, y), y + y, 1e-2)
            p, s = self.q.two(x)
            self.close(p, torch.softmax(x, 1))
            self.close(s[:, 0], (x * x).sum(1), 1e-4)

    def raises(self, kind, words, function, *args, **keywords):
        with self.assertRaises(kind) as caught:
            function(*args, **keywords)
        self.assertIn(words, str(caught.exception))

    def test_bits_of_tensors(self):
        """Read where torch said once that they are, instead of asked for at every call: of every kind of tensor, as it is now."""
        x, weight = torch.randn(4, 4), torch.nn.Parameter(torch.randn(4, 4))
        self.q.add(x, x)
        self.assertTrue(quern._quern.knows_bits())  # of this torch
        followed = x.clone().requires_grad_()
        for wants in (weight, followed, followed.t(), followed * 2, weight[:2].expand(4, 2, 4)[0:4, 0], followed.view(-1).view(4, 4)):
            other = torch.ones(wants.shape)
            self.assertTrue(self.q.add(other, wants).requires_grad)
            self.assertFalse(self.q.add(other, wants.detach()).requires_grad)
            with torch.no_grad():
                self.assertFalse(self.q.add(other, wants).requires_grad)
            with torch.inference_mode():
                self.close(self.q.add(other, wants), other + wants)
        y = x.clone()
        self.assertFalse(self.q.add(x, y).requires_grad)
        self.assertTrue(self.q.add(x, y.requires_grad_()).requires_grad)  # the same object, changed
        self.assertFalse(self.q.add(x, y.requires_grad_(False)).requires_grad)
        with torch.inference_mode():
            inside = torch.ones(4, 4)
        self.close(self.q.add(inside, x), 1 + x)
        # A view of a view that autograd does not know as one, and is row-major.
        self.raises(TypeError, "negative bit", self.q.add, torch._neg_view(x).detach(), x)

    def test_tensors_are_read_as_they_are_exchanged(self):
        """What torch's C interface tells of tensors like those that were exchanged before: views of all kinds, the same object changed, and
        kinds that are met first here, which the exchange must see."""
        deep = quern.compile("tensor sums(T x[a][b][c][d][e][f]) { return sum(x, axis = 5) + 1; }", "deep.qn")
        x = torch.randn(6, 8)
        self.q.add(x, x)
        self.assertTrue(quern._quern.reads_tensors())  # of this torch
        wide = torch.randn(20, 30)
        for y in (wide[3:9, 5:13], wide[::3, ::4][:6], wide.t()[2:8, 1:9], wide[0, :8].expand(6, 8), wide[:6, :1].expand(6, 8), wide[:0, :8], wide.view(-1)[7:].as_strided((6, 8), (2, 3))):
            for type in (torch.float32, torch.float64, torch.bfloat16):
                z = y.to(type)
                self.close(self.q.add(z, z.clone()), z + z)
            self.close(self.q.add(y, y.clone()), y + y)
            self.close(self.q.add(y.clone(), torch.empty_like(y).copy_(y)), y + y)
        six = torch.randn(2, 3, 2, 3, 2, 5)
        for y in (six, six.permute(5, 4, 3, 2, 1, 0), six[:, 1:, :, ::2]):
            self.close(deep.sums(y), y.sum(5, keepdim=True) + 1, 1e-5)
        y = torch.randn(6, 8)
        self.close(self.q.add(y, x), y + x)
        y.set_(wide.untyped_storage(), 11, (6, 8), (1, 6))  # the same object with another memory
        self.close(self.q.add(y, x), y + x)
        y.resize_(2, 3)
        self.close(self.q.add(y, y.clone()), y + y)
        nested = torch.nested.nested_tensor([torch.randn(6, 8)])
        for bad in (x.to_sparse(), x.to_sparse_csr(), x.to_mkldnn(), nested, torch._efficientzerotensor((6, 8)), torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), x.to("meta"), torch._to_functional_tensor(x)):
            with self.assertRaises(Exception):
                self.q.add(x, bad)
        rows = torch.randn(3, 6, 8)
        self.close(torch.func.vmap(lambda row: self.q.add(row, row))(rows), rows + rows)
        self.assertTrue(quern._quern.reads_tensors())

    def test_what_the_exchange_does_not_check(self):
        x = torch.randn(4, 4)
        self.raises(TypeError, "argument `a`: a tensor with its negative bit set", self.q.add, torch._neg_view(x), x)
        imaginary = torch.randn(4, 4, dtype=torch.complex64).conj().imag
        self.assertTrue(imaginary.is_neg())
        self.raises(TypeError, "negative bit", self.q.add, x, imaginary)
        self.close(self.q.add(x, imaginary.resolve_neg()), x + imaginary)
        self.raises(TypeError, "argument `a`", self.q.add, torch.randn(4, 4, dtype=torch.complex64).conj(), x)
        with torch._subclasses.FakeTensorMode():
            fake = torch.empty(4, 4)
        self.raises(TypeError, "argument `a` is a FakeTensor", self.q.add, fake, x)

        class Other(torch.Tensor):
            pass

        self.raises(TypeError, "argument `b` is a Other", self.q.add, x, x.as_subclass(Other))
        for bad in (x.to_sparse(), torch.empty(4, 4, device="meta")):
            with self.assertRaises(Exception):
                self.q.add(bad, x)
        self.raises(TypeError, "argument `s` is a number here: give x.item()", self.q.soft, x, torch.tensor(2.0))
        self.raises(quern.CallError, "overlap", self.q.add, x, x, out=x)
        self.raises(quern.CallError, "overlap", self.q.add, x, x, out=x.t())

    def test_gradients(self):
        for device in DEVICES:
            x = torch.randn(6, 5, dtype=torch.float64, device=device, requires_grad=True)
            w = torch.randn(5, 4, dtype=torch.float64, device=device, requires_grad=True)
            self.assertTrue(torch.autograd.gradcheck(lambda x, w: self.q.lin(x, w, 3.0), (x, w)))
            self.assertTrue(torch.autograd.gradgradcheck(lambda x, w: self.q.lin(x, w), (x, w)))
            self.assertTrue(torch.autograd.gradcheck(lambda x: self.q.lin(x, w.detach(), s=0.5), (x,)))
            f = torch.randn(7, 3, device=device, requires_grad=True)
            p, s = self.q.two(f)
            (p[:, 0].sum() + s.sum()).backward()
            found, f.grad = f.grad, None
            (torch.softmax(f, 1)[:, 0].sum() + (f * f).sum()).backward()
            self.close(found, f.grad, 1e-4)
            p, s = self.q.two(f.detach().requires_grad_())
            s.sum().backward()  # only one of the results

    def test_gradient_of_a_kernel(self):
        for device in DEVICES:
            x = torch.randn(100, device=device, requires_grad=True)
            self.q.scaled(x, 3.0, B=128).sum().backward()
            self.close(x.grad, torch.full_like(x, 3))
            self.raises(quern.Error, "has no gradient", self.q.twice, x)
            with torch.no_grad():
                self.close(self.q.twice(x), 2 * x)
            self.raises(quern.CallError, "out= cannot be followed by autograd", self.q.scaled, x, 3.0, out=torch.empty_like(x))
            fresh = quern.compile("tensor half(float x[n], float s = 0.5) { return s * x; }")  # the first call of it
            self.raises(quern.CallError, "out= cannot be followed by autograd", fresh.half, x, out=torch.empty_like(x))
            self.raises(ValueError, "argument `y` requires grad and would be written", self.q.axpy, x.detach(), x, 2.0)

    def test_results_that_have_no_gradient(self):
        """Are given as without one."""
        q = quern.compile("""
tensor above(float x[n], i64 s[n]) { return s + i64(x > 0); }
kernel signs(in float x[n], out i32 y[n]) launch (n) { y[program(0)] = x[program(0)] < 0 ? -1 : 1; }
""")
        x = torch.linspace(-1, 1, 6, requires_grad=True)
        for _ in range(2):
            self.assertTrue(torch.equal(q.above(x, torch.arange(6)), torch.arange(6) + (x > 0)))
            self.assertTrue(torch.equal(q.signs(x), torch.tensor([-1, -1, -1, 1, 1, 1], dtype=torch.int32)))

    def test_a_wrong_gradient_says_where(self):
        """In the function that the clause names, not where it is called."""
        q = quern.compile("""
kernel weighted(in float x[m][n], in float w[n], out float y[m][n]) launch (m)  gradient (weighted_back)
{ y[program(0)][:] = x[program(0)][:] * w[:]; }
tensor weighted_back(float x[m][n], float w[n], float d_y[m][n])
{
    let d_x = d_y * w;
    return d_x;
}
""")
        self.raises(quern.Error, "the gradient of the kernel `weighted`, line 6: operands have ranks 2 and 1", q.weighted, torch.ones(2, 3, requires_grad=True), torch.ones(3))

    def test_modes_of_autograd(self):
        x = torch.randn(4, 4, requires_grad=True)
        with torch.inference_mode():
            y = self.q.add(x, x)
        self.assertTrue(y.is_inference())
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(self.q.add(x, x).dtype, torch.float32)
        from torch.utils.checkpoint import checkpoint

        checkpoint(lambda x: self.q.soft(x) ** 2, x, use_reentrant=False).sum().backward()
        found, x.grad = x.grad, None
        (torch.softmax(2 * x, 1) ** 2).sum().backward()
        self.close(found, x.grad)

    def test_transforms(self):
        """vmap goes through the operator; other transforms of torch.func, and forward mode, are refused instead of losing tangents."""
        x = torch.randn(4, 6)
        self.close(torch.vmap(self.q.soft)(torch.stack([x, 2 * x])), torch.softmax(2 * torch.stack([x, 2 * x]), 2))
        for transform in (lambda: torch.func.grad(lambda x: self.q.soft(x).sum())(x), lambda: torch.func.jvp(self.q.soft, (x,), (x,))):
            self.raises(quern.CallError, "use torch.autograd", transform)
        import torch.autograd.forward_ad as forward

        with forward.dual_level():
            self.raises(quern.CallError, "forward mode", self.q.soft, forward.make_dual(x, x))
        self.q.soft(x)
        exported = torch.export.export(_Exported(self.q), (x,))
        self.close(exported.module()(x), torch.softmax(2 * x, 1) + 1)

    def test_compile(self):
        x = torch.randn(6, 5, requires_grad=True)
        w = torch.randn(5, 4, requires_grad=True)

        def ours(x, w):
            return self.q.lin(torch.sin(x), w, 3.0).sum()

        (3 * F.gelu(torch.sin(x) @ w)).sum().backward()
        wanted = x.grad, w.grad
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            x.grad = w.grad = None
            torch.compile(ours, backend=backend, fullgraph=True)(x, w).backward()
            self.close(x.grad, wanted[0])
            self.close(w.grad, wanted[1])
        torch._dynamo.reset()

    def test_new_sizes_compile_once(self):
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward

        def ours(x):
            return self.q.soft(x * 2) + 1

        torch._dynamo.reset()
        compiled = torch.compile(ours, backend=backend, dynamic=True, fullgraph=True)
        for n in range(4, 24):
            x = torch.randn(n, 2 * n)
            self.close(compiled(x), torch.softmax(4 * x, 1) + 1)
        self.assertLessEqual(len(graphs), 2)
        torch._dynamo.reset()

    def test_opcheck(self):
        x, w = torch.randn(6, 5, requires_grad=True), torch.randn(5, 4, requires_grad=True)
        torch.library.opcheck(self.q.lin._operator, (x, w, 3.0))
        torch.library.opcheck(self.q.two._operator, (torch.randn(3, 4),))
        torch.library.opcheck(self.q.axpy._operator, (torch.randn(8), torch.randn(8), 2.0))

    def test_lifetimes(self):
        for device in DEVICES:
            x = torch.randn(4, 4, device=device, requires_grad=True)
            y = self.q.add(x, x)
            seen = weakref.ref(x)
            del x, y
            gc.collect()
            self.assertIsNone(seen())

    def test_a_layer(self):
        class Layer(torch.nn.Module):
            def __init__(self, q):
                super().__init__()
                self.q = q
                self.weight = torch.nn.Parameter(torch.randn(5, 4) / 5)

            def forward(self, x):
                return self.q.lin(x, self.weight, 1.0)

        layer = Layer(self.q)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        x, target = torch.randn(64, 5), torch.randn(64, 4)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = F.mse_loss(layer(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    unittest.main()
