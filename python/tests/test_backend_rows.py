"""Every row of the table of ATen operators: written, compiled and compared with eager, many in one graph. A row that Quern does
not take here is a failure, so that none is lost without a word."""

import unittest
import warnings

from .support import needs_torch, torch
from .test_backend import compiled, reports_of

POINTWISE = {
    "add": lambda x, y, p: [x + y, x + 1.5, torch.add(x, y, alpha=2), 3 - x, x - y * 0.3, torch.sub(x, 2.5)],
    "mul": lambda x, y, p: [x * y, x * 0.7, x / p, x / 3, 2 / p, torch.rsub(x, 1.5), x.remainder(1.5), x.square()],
    "pow": lambda x, y, p: [p.pow(2.3), x.pow(2), x.pow(3), p.pow(0.5), p.pow(-0.5), p.pow(-1), torch.pow(p, x), torch.pow(3.0, x), 10000.0 ** (-p)],
    "extremes": lambda x, y, p: [torch.maximum(x, y), torch.minimum(x, y), x.clamp(-1, 1), x.clamp(min=0.2), x.clamp(max=0.1), x.clamp_min(0), x.clamp_max(0)],
    "signs": lambda x, y, p: [-x, x.abs(), x.sign(), torch.sgn(x), p.reciprocal(), torch.logaddexp(x, y)],
    "exponents": lambda x, y, p: [x.exp(), x.exp2(), x.expm1(), p.log(), p.log2(), p.log10(), p.log1p(), p.sqrt(), p.rsqrt()],
    "curves": lambda x, y, p: [x.sin(), x.cos(), x.tanh(), x.erf(), x.sigmoid(), x.relu()],
    "rounding": lambda x, y, p: [x.floor(), x.ceil(), x.round()],
    "activations": lambda x, y, p: [
        torch.nn.functional.silu(x),
        torch.nn.functional.gelu(x),
        torch.nn.functional.gelu(x, approximate="tanh"),
        torch.nn.functional.mish(x),
        torch.nn.functional.hardswish(x),
        torch.nn.functional.hardsigmoid(x),
        torch.nn.functional.hardtanh(x, -0.5, 0.7),
        torch.nn.functional.leaky_relu(x, 0.3),
        torch.nn.functional.elu(x, 1.3),
        torch.nn.functional.selu(x),
    ],
    "truth": lambda x, y, p: [x == y, x != 0, x < y, x <= 0.5, x > y, x >= 0.25, torch.isnan(x), torch.isinf(x), torch.where(x > y, x, 0.5)],
    "logic": lambda x, y, p: [
        (x > 0) & (y > 0),
        (x > 0) | (y > 0),
        (x > 0) ^ (y > 0),
        ~(x > 0),
        torch.logical_and(x, y),
        torch.logical_or(x > 1, y > 1),
        torch.logical_not(x > 0),
        torch.logical_xor(x > 0, y > 0),
        x.masked_fill(y > 0, -1.0),
    ],
    "types": lambda x, y, p: [x.double() * 0.1, x.half() + 1, (x * 9).long() * 2, (x > 0).to(torch.float32), x.bfloat16() * 0.3, (x * 9).int().bool()],
    "making": lambda x, y, p: [
        x + torch.full((5, 7), 0.5),
        x * torch.zeros_like(x),
        torch.ones_like(x) - x,
        torch.full_like(x, 3) * x,
        x + torch.arange(7),
        x + torch.arange(1, 15, 2),
        x * torch.arange(0, 3.5, 0.5),
        x + torch.ones(7),
    ],
}
MOVEMENT = {
    "views": lambda x, y, p: [x.view(7, 5) + 1, x.t() * 2, x.unsqueeze(1) + 1, x.reshape(-1) * 2, x[:, None].expand(5, 3, 7) * 1.0, x.unsqueeze(0).squeeze(0) + 1],
    "slices": lambda x, y, p: [x[1:4] * 2, x[:, ::2] + 1, x[:, -3:] * 2, x[2] + 1, x[:, -1] * 2, x[1, 2] + 1, x[1:-1, 2:6:3] * 1.5],
    "parts": lambda x, y, p: [x.split(3, 1)[2] + 1, x.chunk(2, 0)[1] * 2, x.unbind(0)[3] + 1, x.split([2, 5], 1)[1] * 2],
    "joins": lambda x, y, p: [torch.cat([x, y, x], 1) + 1, torch.stack([x, y], 1) * 2, torch.nn.functional.pad(x, (1, -2, 0, 3), value=2.0) * 1.5, x.repeat(2, 3) + 1],
    "turns": lambda x, y, p: [x.flip(0, 1) * 2, x.roll(2, 1) + 1, x.roll((1, -1), (0, 1)) * 2, x.roll(3) + 1, x.tril(1) * 2, x.triu(-1) + 1],
    "diagonals": lambda x, y, p: [
        x.diagonal() * 2,
        x.diagonal(-2) + 1,
        torch.stack([x, y], 1).diagonal(1, -1, 0) * 2,
        x.diagonal_scatter(y[0, :5]) * 2,
        x.diagonal_scatter(y[0, :5], 2) + 1,
        x.diagonal_scatter(y[:3, 0], -2) + 1,
        torch.stack([x, y, p], 1).diagonal_scatter(y[:3].t(), -1, 0, 1) * 2,
        torch.stack([x, y], 2).diagonal_scatter(p[:, :2], 0, 2, 1) * 2,
    ],
    "by_index": lambda x, y, p: [
        x.index_select(1, torch.tensor([3, 0, 3])) * 2,
        x[torch.tensor([[0, 4], [2, -1]])] + 1,
        x[torch.tensor([0, 4]), torch.tensor([1, -2])] * 2,
        x.gather(1, torch.tensor([[1, 2]] * 5)) + 1,
        torch.nn.functional.embedding(torch.tensor([[1, 2], [0, 3]]), x) * 2,
        x.scatter_add(1, torch.tensor([[1, 1, 2]] * 5), y) * 2,
        x.index_put((torch.tensor([1, 1, 3]),), y[:3], accumulate=True) * 2,
        x.slice_scatter(y[:, :3], 1, 2, 5) * 2,
        torch.ops.aten.copy(x, y[0]) * 2,
        x.slice_scatter(y[:, :3], 1, 1, 7, 2) * 2,
    ],
    "folds": lambda x, y, p: [x.sum(), x.sum(0), x.sum((0, 1), keepdim=True), x.mean(1), x.mean() + 1, x.prod(1), x.amax(1), x.amin((0, 1)), x.max() + 1, x.min() * 2],
    "of_one_number": lambda x, y, p: [f(x[0, 0] * 2) + 1 for f in (lambda v: v.softmax(0), lambda v: v.log_softmax(-1), lambda v: v.cumsum(0), lambda v: v.logsumexp(0), lambda v: v.amax(0), lambda v: v.sum(0), lambda v: v.prod(0), lambda v: v.mean())],
    "more_folds": lambda x, y, p: [
        x.max(1).values,
        x.max(1).indices,
        x.min(0).values + 1,
        x.argmax(1),
        x.argmin(),
        x.var(1),
        x.std((0, 1)),
        torch.var_mean(x, 1, correction=0)[0],
        (x > 1).any(1),
        (x > -9).all(),
        (x > 0).sum(1),
        x.logsumexp(1),
        x.cumsum(1),
        p.cumprod(0),
        x.softmax(0),
        x.log_softmax(1),
        x.norm(dim=1),
    ],
    "products": lambda x, y, p: [x @ y.t(), torch.addmm(p[:, :5], x, y.t(), beta=0.5, alpha=2), torch.bmm(x[None], y.t()[None]), torch.baddbmm(p[None, :, :5], x[None], y.t()[None])],
    "images": lambda x, y, p: [
        torch.nn.functional.conv2d(x[None, None], y[None, None, :2, :3], stride=(2, 1), padding=(0, 1)),
        torch.nn.functional.conv1d(x[None], y[None, :, :3], dilation=2),
        torch.nn.functional.conv_transpose2d(x[None, None], y[None, None, :2, :3], stride=2, output_padding=1),
        torch.nn.functional.max_pool2d(x[None, None], 2, ceil_mode=True),
        torch.nn.functional.avg_pool2d(x[None, None], (2, 3), 1, 1, count_include_pad=False),
        torch.nn.functional.adaptive_avg_pool2d(x[None, None], (2, 3)),
        torch.nn.functional.interpolate(x[None, None], (11, 5), mode="bilinear"),
        torch.nn.functional.interpolate(x[None, None], scale_factor=2),
    ],
}


@needs_torch
class Rows(unittest.TestCase):
    def check(self, function, args, tolerance):
        found, reports = reports_of(function, *args, smallest_island=1)
        self.assertEqual([dict(r.kept) for r in reports if r.kept], [])
        self.assertTrue(all(r.islands for r in reports))
        for number, (a, b) in enumerate(zip(found, function(*args))):
            self.assertEqual(a.dtype, b.dtype, number)
            torch.testing.assert_close(
                a, b, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda words: f"result {number}: {words}"
            )
            self.assertEqual(a.stride(), b.stride(), number)

    def inputs(self, dtype=None):
        torch.manual_seed(2)
        x, y, p = torch.randn(5, 7), torch.randn(5, 7), torch.rand(5, 7) + 0.5
        return [t.to(dtype) if dtype else t for t in (x, y, p)]

    def test_pointwise(self):
        for name, function in POINTWISE.items():
            with self.subTest(name):
                self.check(function, self.inputs(), 1e-5)

    def test_halves(self):
        for name in ("add", "mul", "exponents", "activations"):
            for dtype in (torch.bfloat16, torch.float16):
                with self.subTest(name, dtype=dtype):
                    self.check(POINTWISE[name], self.inputs(dtype), 2e-2)

    def test_broadcasting(self):
        x, y, p = self.inputs()
        for name in ("add", "mul", "extremes", "truth"):
            with self.subTest(name):
                self.check(POINTWISE[name], [x, y[:1], p[:, :1]], 1e-5)

    def test_special_numbers(self):
        special = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-40, 3e38]
        x = torch.tensor([special] * 5)
        y = torch.tensor([[s] * 7 for s in special[:5]])
        # Not activations: at infinities they are limits here, and NaN in torch where it multiplies by 0.
        for name in ("add", "extremes", "signs", "curves", "truth", "logic"):
            with self.subTest(name):
                self.check(POINTWISE[name], [x, y, y.abs() + 1], 1e-5)
        self.check(lambda x, y, p: [x.amax(1), x.argmax(1), x.max(1).values, x[:, 1:].sum(0), x.mean(0), y.softmax(1), torch.pow(2.0, x)], [x, y, y], 1e-5)
        wrapped = torch.tensor([[-1.0, -0.5, 255.9, 256.0, 300.0, 127.6, -129.0]] * 5)  # as torch's whole numbers do
        self.check(lambda x, y, p: [(x * 2).to(each) + 1 for each in (torch.uint8, torch.int8, torch.int16)], [wrapped, y, y], 0)
        ends = [torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max, 2**53 + 1]
        for kind, numbers in ((torch.int8, (1, 7, 100, 127)), (torch.uint8, (7, 200, 255)), (torch.int64, (7, 2**62 + 3, 2**63 - 1))):  # nothing on the way goes around
            all_of = torch.arange(-128, 127).view(5, 51) if kind != torch.int64 else torch.tensor([[-(2**63), -(2**62) - 9, -7, 0, 7, 2**62, 2**63 - 1]])
            i = all_of.to(kind)
            self.check(lambda i, y, p, numbers=numbers: [form(i, n) for n in numbers for form in (torch.remainder, torch.floor_divide)], [i, i, i], 0)
        self.check(lambda i, y, p: [(i + ends[0]) ^ i, (i % 7) * ends[2], i + ends[1]], [torch.arange(35).view(5, 7), y, y], 0)
        tenths = torch.arange(-175, 175).view(50, 7) * 0.1  # multiples of what they are divided by, as rounded: none is below 0 or as large as that
        ends = torch.tensor([float("inf"), float("-inf"), 0.1, -0.3, 0.7, 1e6, -0.0])
        self.check(lambda x, y, p: [x % 0.1, torch.remainder(x, -0.3), x % y.abs(), torch.remainder(x, p), p % x], [tenths, tenths.flip(0), ends.expand(50, 7)], 0)

    def test_movement(self):
        for name, function in MOVEMENT.items():
            with self.subTest(name):
                self.check(function, self.inputs(), 1e-4)

    def test_whole_numbers(self):
        a, b = torch.arange(12).view(3, 4), torch.tensor([[2], [-3], [5]])

        def f(a, b):
            return [a + b, a * 3, a - b, -a, a.abs(), a == b, a.sum(1), a / 4, a.max(1).values, torch.where(a > 4, a, b), a.float() * 0.5, a & 3, a << 2, b >> 1, a.to(torch.uint8) >> 2, torch.bitwise_left_shift(b, 3), a.cumsum(0), a % 3, b % 4, a // 5, b // 2, (a - 9).relu(), *(a > 4).max(1), *(b == 2).min(0)]

        self.check(f, [a, b], 1e-6)

    def test_types_are_torchs(self):
        """Of folds and scans of small numbers, and of numbers without axes."""
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
            with self.subTest(dtype=dtype):
                self.check(lambda a: [a.cumsum(1, dtype=dtype) + 1, a.cumprod(1, dtype=dtype) * 2, a.sum(0, dtype=dtype) + 1, a.amax(1) * 2, a.max(1).values + 1, a.any(1) * 2], [torch.ones(3, 4, dtype=dtype)], 0)
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
            with self.subTest(dtype=dtype):
                self.check(lambda x, y: [torch.zeros_like(y) * 1.5 + 0.25, x.sum() * 2 + 1, y * 0.3 + 1], [torch.ones(3, dtype=dtype), torch.tensor(1.0, dtype=dtype)], 1e-6)

    def test_numbers_without_axes(self):
        """torch lets them be asked for their axis 0, and a variance of one number is 0, or no number."""

        def f(x, i):
            spreads = [each(x, correction=n) for each in (torch.var, torch.std) for n in (0, 0.5, 1, 3)]
            turned = [x.flip(0), x.roll(1), x.cumsum(0), x.softmax(-1), x.logsumexp(0), x.amax(0), x.sum(-1), i.prod(0), i.any(0)]
            return [each * 2 for each in (*spreads, *torch.var_mean(x, correction=0), *turned)]

        for value in (2.5, float("inf"), float("nan")):
            args = [torch.tensor(value), torch.tensor(3)]
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="quern: ")
                warnings.filterwarnings("ignore", message=".*degrees of freedom")
                found, reports = reports_of(f, *args, smallest_island=1)
                for number, (a, b) in enumerate(zip(found, f(*args))):
                    torch.testing.assert_close(a, b, equal_nan=True, msg=lambda words: f"result {number} of {value}: {words}")
            self.assertTrue(any(report.islands for report in reports))

    def test_a_scatter_from_a_part_of_its_source(self):
        """torch reads the source where the index has elements; it may be larger."""
        x, y, _ = self.inputs()
        for axis, extents in ((0, (1, 7)), (1, (5, 1))):
            index = torch.arange(7).view(extents) % 4 if axis == 0 else torch.arange(5).view(extents)
            for source in (y, y[: extents[0], : extents[1]]):
                for function in (lambda x, i, s: x.scatter(axis, i, s) * 2, lambda x, i, s: x.scatter_add(axis, i, s) * 2):
                    torch.testing.assert_close(compiled(function, smallest_island=1)(x, index, source), function(x, index, source))

    def test_more_values_than_a_function_has(self):
        """One operator of many tensors cannot be cut: it is torch's, with the reason."""
        many = [torch.full((3,), float(k)) for k in range(70)]
        found, reports = reports_of(lambda *xs: torch.stack(xs), *many, smallest_island=1)
        torch.testing.assert_close(found, torch.stack(many))
        self.assertIn("70 inputs and 1 results", [reason for report in reports for _, reason in report.kept])

    def test_gradients_of_convolutions(self):
        """By data, weights and bias, each alone too; of every rank, strided, dilated, in groups, transposed, with channels last."""
        functional, last = torch.nn.functional, torch.channels_last
        cases = (
            (lambda x, w, b: functional.conv2d(x, w, b, stride=2, padding=(1, 2), dilation=2), (2, 3, 11, 13), (4, 3, 3, 2), (0, 1, 2)),
            (lambda x, w, b: functional.conv2d(x, w, padding=1, groups=2), (2, 4, 8, 9), (4, 2, 3, 3), (0, 1)),
            (lambda x, w, b: functional.conv2d(x.contiguous(memory_format=last), w, b), (1, 3, 6, 5), (4, 3, 3, 3), (0,)),
            (lambda x, w, b: functional.conv1d(x, w, b, stride=3), (2, 3, 20), (4, 3, 5), (1,)),
            (lambda x, w, b: functional.conv3d(x, w, b, padding=1), (1, 2, 4, 3, 3), (4, 2, 3, 3, 3), (0, 1, 2)),
            (lambda x, w, b: functional.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1), (2, 3, 5, 6), (3, 4, 3, 3), (0, 1, 2)),
        )
        for number, (function, data, weights, wanted) in enumerate(cases):
            args = [torch.randn(shape, requires_grad=i in wanted) for i, shape in enumerate((data, weights, (4,)))]
            leaves, made = [args[i] for i in wanted], torch.tanh(function(*args))
            with self.subTest(number):
                found, reports = reports_of(lambda *args: torch.tanh(function(*args)), *args)
                self.assertEqual([dict(r.kept) for r in reports if r.kept], [])
                up = made.detach().cos()
                for a, b in zip((found, *torch.autograd.grad(found, leaves, up)), (made, *torch.autograd.grad(made, leaves, up))):
                    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
                    self.assertEqual(a.stride(), b.stride())

    def test_whole_numbers_that_torch_keeps(self):
        """Numbers that a type has not, pools: without a warning."""
        small = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4)
        for function in (lambda x: torch.add(x, x, alpha=-3) + 1, lambda x: torch.nn.functional.max_pool2d(x, 2) + 1, lambda x: torch.nn.functional.avg_pool2d(x.long(), 2) + 1):
            torch._dynamo.reset()
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="quern: ")
                found = compiled(function)(small)
            self.assertEqual(found.dtype, function(small).dtype)
            torch.testing.assert_close(found, function(small), rtol=0, atol=0)


if __name__ == "__main__":
    unittest.main()
