"""torch.float8_e4m3fn (f8e4m3): in, out, through autograd, torch.compile and quern.fuse; the other types of 8 bits are refused by name."""

import unittest

from .support import needs_torch, numpy, quern, torch

SOURCE = """
tensor widen(f8e4m3 x[m][n]) { return f32(x) * 2; }
tensor narrow(T x[m][n]) { return f8e4m3(x); }
tensor product(f8e4m3 x[m][k], f8e4m3 w[n][k], f32 scale) { return f32(matmul(x, transpose(w))) * scale; }
kernel copy(in T x[n], out T y[n], const int B = 64) launch (cdiv(n, B))
{ y[program(0) * B : B] = x[program(0) * B : B]; }
"""
DEVICES = ["cpu"] + (["cuda"] if torch and torch.cuda.is_available() else [])


@needs_torch
class Float8(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.q, cls.type = quern.compile(SOURCE, "float8.qn"), torch.float8_e4m3fn

    def same(self, a, b):
        """Bit by bit: a NaN is one too."""
        self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
        bits = torch.uint8 if a.dtype == self.type else torch.int32
        mask = 0x7F if a.dtype == self.type else -1  # the sign of a NaN is nobody's
        self.assertTrue(torch.equal(a.view(bits) & mask, b.view(bits) & mask))

    def test_every_number(self):
        for device in DEVICES:
            all_of_them = torch.arange(256, device=device).to(torch.uint8).view(16, 16).view(self.type)
            finite = all_of_them[:, :15].contiguous()  # the last column has both NaNs
            self.same(self.q.widen(finite), finite.float() * 2)
            self.assertTrue(self.q.widen(all_of_them)[7, 15].isnan())
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                steps = torch.linspace(-470, 470, 4001, device=device).to(dtype).view(1, -1)
                small = torch.linspace(-0.02, 0.02, 4001, device=device).to(dtype).view(1, -1)
                edges = torch.tensor([[464.0, 465.0, -464.0, 0.0, -0.0, float("inf"), float("nan"), 2**-10, 3 * 2**-11, 2**-9]], device=device).to(dtype)
                for x in (steps, small, edges):
                    # Beyond its largest number, 448, the type has a NaN; torch from 2.15 on gives 448 there.
                    there = x.float().abs() <= (464 if torch.tensor(1e3).to(self.type).float().isnan() else 448)
                    self.same(self.q.narrow(x)[there], x.to(self.type)[there])
                    beyond = self.q.narrow(x).float()[~(x.float().abs() <= 464)]
                    self.assertTrue(beyond.isnan().all())
                inside = steps.abs() < 448
                self.assertTrue(torch.equal(torch.signbit(self.q.narrow(steps).float())[inside], torch.signbit(steps)[inside]))

    def test_places_and_shapes(self):
        for device in DEVICES:
            x = torch.randn(6, 10, device=device).to(self.type)
            for view in (x, x.t(), x[:, ::2], x[1:, 3:], x[:0], x.unsqueeze(0)[0], x[::3].t()):
                self.same(self.q.widen(view), view.float() * 2)
            out = torch.empty(6, 10, dtype=self.type, device=device)
            self.assertIs(self.q.narrow(x.float(), out=out), out)
            self.same(out, x)
            self.same(self.q.copy(x.view(-1)), x.view(-1))
            self.same(self.q.copy(x.view(-1), T=self.type), x.view(-1))
            a, b = (torch.randn(n, 64, device=device).to(self.type) for n in (33, 17))
            torch.testing.assert_close(self.q.product(a, b, 0.5), a.float() @ b.float().t() * 0.5)

    def test_gradients(self):
        x = torch.randn(4, 6).requires_grad_()
        y = x.detach().clone().requires_grad_()
        (self.q.narrow(x).float() * torch.arange(6)).sum().backward()
        (y.to(self.type).float() * torch.arange(6)).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
        z = torch.randn(4, 6).to(self.type).requires_grad_()
        self.q.widen(z).sum().backward()
        self.assertEqual(z.grad.dtype, self.type)
        self.assertTrue((z.grad.float() == 2).all())

    def test_compiled(self):
        from quern import backend

        def rounded(x, s):
            return (x / s).to(torch.float8_e4m3fn).to(x.dtype) * s + torch.sin(x)

        def stored(x, s):
            y = (x * s).clamp(-448, 448).to(torch.float8_e4m3fn)
            return y, (y.float() * 2).sum(1), y.t(), y[:, 1:]

        def widened(x, y):
            return torch.relu(x.float() * y.float() + 1)

        for device in DEVICES:
            x, s = torch.randn(5, 8, device=device), torch.tensor(0.37, device=device)
            f8 = x.to(self.type)
            for f, args in ((rounded, (x, s)), (rounded, (x.bfloat16(), s.bfloat16())), (stored, (x, s)), (widened, (f8, f8.flip(0)))):
                torch._dynamo.reset()
                found, wanted = torch.compile(f, backend=backend.backend, options={"strict": True})(*args), f(*args)
                for a, b in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(wanted)):
                    self.assertEqual((a.dtype, a.stride()), (b.dtype, b.stride()))
                    torch.testing.assert_close(a.float(), b.float())
            words = str(quern.explain(rounded, x, s))
            self.assertNotIn("torch keeps", words)
            made = torch.compile(lambda x: self.q.widen(self.q.narrow(x * 2)) + 1, backend="aot_eager", fullgraph=True)
            torch.testing.assert_close(made(x), (x * 2).to(self.type).float() * 2 + 1)

    def test_fused(self):
        @quern.fuse
        def rounded(x):
            return x.to(torch.float8_e4m3fn).float() * 2

        @quern.fuse
        def mixed(x, y):
            return x + y

        x = torch.randn(5, 8)
        f8 = x.to(self.type)
        torch.testing.assert_close(rounded(x), f8.float() * 2)
        with self.assertRaisesRegex(TypeError, "f8e4m3 and float have no type in common: convert with .to\\(\\) first"):
            mixed(f8, x)

    def test_others_are_refused_by_name(self):
        x = torch.randn(3, 4)
        for name in ("float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
            with self.assertRaisesRegex(TypeError, f"argument `x`: Quern has no element type like this one \\({name}, .*f8e4m3 \\(float8_e4m3fn\\)"):
                self.q.widen(x.to(getattr(torch, name)))
        with self.assertRaisesRegex(TypeError, r"argument `x`: .*\(complex, DLPack code 5, 64 bits\)"):
            self.q.narrow(torch.zeros(3, 4, dtype=torch.complex64))
        with self.assertRaisesRegex(quern.CallError, "array `x` has elements of type u8, the parameter is f8e4m3"):
            self.q.widen(torch.zeros(3, 4, dtype=torch.uint8))
        with self.assertRaisesRegex((TypeError, quern.CallError), "f32"):
            self.q.narrow(x, out=torch.empty(3, 4))
        if numpy:
            with self.assertRaisesRegex(TypeError, "NumPy has no f8e4m3: give the result with out=, or use torch tensors"):
                self.q.narrow(numpy.zeros((3, 4), "f4"))


if __name__ == "__main__":
    unittest.main()
