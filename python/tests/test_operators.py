"""The operators that real graphs need, as one table: each has a name in C (in the headers, and in the matrix of ops that compares devices with `ref`), a form in
the language and one in torch. Language and backend are compared with torch here, values and gradients; what the backend leaves to torch stands in the table
with its reason. Many operators in one graph, since a graph costs more than an operator."""

import os
import re
import unittest

from .support import needs_torch, quern, torch
from .test_backend import reports_of

ROOT = os.environ.get("QUERN_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
F = torch.nn.functional if torch else None
KINDS = {"x": (4, 6), "y": (4, 6), "p": (4, 6), "line": (2, 4, 9), "image": (2, 4, 7, 6), "box": (1, 2, 5, 4, 6), "c": (4,), "d": (4,), "w": (6, 3), "b": (4, 3), "z": (4, 6)}

# (C names, expression of the language, function of torch, inputs by name of KINDS or by shape)
TABLE = """
batch_norm            | batch_norm(image, detach(c), detach(abs(d) + 1), weight = c, bias = d) | F.batch_norm(image, c.detach(), d.detach().abs() + 1, c, d) | image c d
batch_norm            | let (v, m, s) = batch_norm(image, detach(c), detach(abs(d) + 1), weight = c, bias = d, training = true); v | F.batch_norm(image, c.detach().clone(), d.detach().abs() + 1, c, d, True) | image c d
group_norm            | group_norm(image, 2, c, d) | F.group_norm(image, 2, c, d) | image c d
instance_norm         | instance_norm(image, c, d) | F.instance_norm(image, weight=c, bias=d) | image c d
conv                  | conv1d(line, k, stride = 2, padding = 1, dilation = 2) | F.conv1d(line, k, stride=2, padding=1, dilation=2) | line k:3,4,3
conv                  | conv2d(image, k, c, stride = {2, 1}, padding = {1, 0}, groups = 2) | F.conv2d(image, k, c, stride=(2, 1), padding=(1, 0), groups=2) | image k:4,2,3,2 c
conv                  | conv3d(box, k, padding = 1, stride = {1, 2, 1}) | F.conv3d(box, k, padding=1, stride=(1, 2, 1)) | box k:3,2,2,3,2
conv_transpose        | conv_transpose1d(line, k, stride = 2, padding = 1, output_padding = 1) | F.conv_transpose1d(line, k, stride=2, padding=1, output_padding=1) | line k:4,3,3
conv_transpose        | conv_transpose2d(image, k, stride = {2, 1}, dilation = 2, groups = 2) | F.conv_transpose2d(image, k, stride=(2, 1), dilation=2, groups=2) | image k:4,3,2,3
conv_transpose        | conv_transpose3d(box, k, stride = 2, output_padding = {1, 0, 1}) | F.conv_transpose3d(box, k, stride=2, output_padding=(1, 0, 1)) | box k:2,3,2,2,2
max_pool              | max_pool1d(line, 3, stride = 2) | F.max_pool1d(line, 3, 2) | line
max_pool              | max_pool2d(image, 3, 2, stride = 2, padding = {1, 0}, ceil_mode = true) | F.max_pool2d(image, (3, 2), 2, (1, 0), ceil_mode=True) | image
max_pool              | max_pool3d(box, 2) | F.max_pool3d(box, 2) | box
avg_pool              | avg_pool1d(line, 3, stride = 2, padding = 1) | F.avg_pool1d(line, 3, 2, 1) | line
avg_pool              | avg_pool2d(image, 3, stride = 2, padding = 1, ceil_mode = true, count_include_pad = false) | F.avg_pool2d(image, 3, 2, 1, ceil_mode=True, count_include_pad=False) | image
avg_pool              | avg_pool3d(box, 2, stride = 1) | F.avg_pool3d(box, 2, 1) | box
adaptive_avg_pool     | adaptive_avg_pool1d(line, 4) | F.adaptive_avg_pool1d(line, 4) | line
adaptive_avg_pool     | adaptive_avg_pool2d(image, 3, 4) | F.adaptive_avg_pool2d(image, (3, 4)) | image
adaptive_avg_pool     | adaptive_avg_pool3d(box, 2, 2, 3) | F.adaptive_avg_pool3d(box, (2, 2, 3)) | box
adaptive_max_pool     | adaptive_max_pool1d(line, 4) | F.adaptive_max_pool1d(line, 4) | line
adaptive_max_pool     | adaptive_max_pool2d(image, 3, 4) | F.adaptive_max_pool2d(image, (3, 4)) | image
adaptive_max_pool     | adaptive_max_pool3d(box, 2, 2, 3) | F.adaptive_max_pool3d(box, (2, 2, 3)) | box
upsample_nearest      | upsample_nearest2d(image, 11, 9) | F.interpolate(image, (11, 9)) | image
upsample_linear       | upsample_bilinear2d(image, 11, 9) | F.interpolate(image, (11, 9), mode="bilinear") | image
upsample_linear       | upsample_bilinear2d(image, 5, 12, align_corners = true) | F.interpolate(image, (5, 12), mode="bilinear", align_corners=True) | image
leaky_relu            | leaky_relu(x, 0.2) | F.leaky_relu(x, 0.2) | x
elu                   | elu(x, alpha = 1.3) | F.elu(x, 1.3) | x
selu                  | selu(x) | F.selu(x) | x
celu                  | celu(x, alpha = 1.7) | F.celu(x, 1.7) | x
mish                  | mish(x) | F.mish(x) | x
hardswish             | hardswish(3 * x) | F.hardswish(3 * x) | x
hardsigmoid           | hardsigmoid(3 * x) | F.hardsigmoid(3 * x) | x
hardtanh              | hardtanh(x, -0.5, 0.7) | F.hardtanh(x, -0.5, 0.7) | x
softsign              | softsign(x) | F.softsign(x) | x
logsigmoid            | logsigmoid(x) | F.logsigmoid(x) | x
threshold             | threshold(x, 0.1, -3) | F.threshold(x, 0.1, -3) | x
glu                   | glu(x, axis = 1) | F.glu(x, 1) | x
swiglu                | swiglu(x, y) | F.silu(x) * y | x y
prelu                 | prelu(image, c) | F.prelu(image, c) | image c
cumsum cumsum_with    | cumsum(x, axis = 1, reverse = true) | x.flip(1).cumsum(1).flip(1) | x
cumsum cumsum_with    | cumsum(x, axis = 0, exclusive = true) | x.cumsum(0) - x | x
cumprod cumprod_with  | cumprod(p, axis = 1, reverse = true, exclusive = true) | F.pad(p.flip(1).cumprod(1).flip(1)[:, 1:], (0, 1), value=1.0) | p
tril triu             | tril(x, 1) + triu(y, -1) | x.tril(1) + y.triu(-1) | x y
diagonal              | diagonal(x, offset = 1) | x.diagonal(1) * 1 | x
roll                  | roll(x, 1, -2, axis = {0, 1}) | x.roll((1, -2), (0, 1)) | x
masked_fill           | masked_fill(x, y > 0, -2.0) | x.masked_fill(y > 0, -2.0) | x y
logaddexp             | logaddexp(x, y) | torch.logaddexp(x, y) | x y
max min               | amax(x, axis = 1) + amin(y, axis = 1) | x.amax(1, True) + y.amin(1, True) | x y
smooth_l1_loss        | smooth_l1_loss(x, y, beta = 0.5) | F.smooth_l1_loss(x, y, beta=0.5) | x y
huber_loss            | huber_loss(x, y, delta = 0.7, each = true) | F.huber_loss(x, y, reduction="none", delta=0.7) | x y
kl_div                | kl_div(log_softmax(x, axis = 1), softmax(y, axis = 1), batchmean = true) | F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean") | x y
nll_loss              | nll_loss(log_softmax(x, axis = 1), squeeze(argmax(y, axis = 1), axis = 1)) | F.nll_loss(x.log_softmax(1), y.argmax(1)) | x z=y
hinge_embedding_loss  | hinge_embedding_loss(x, where(y > 0, 1.0, -1.0), margin = 0.8) | F.hinge_embedding_loss(x, torch.where(y > 0, 1.0, -1.0), margin=0.8) | x y
triplet_margin_loss   | triplet_margin_loss(x, y, p, margin = 0.5) | F.triplet_margin_loss(x, y, p, margin=0.5) | x y p
cosine_similarity     | cosine_similarity(x, y, axis = 1) | F.cosine_similarity(x, y, 1) | x y
einsum                | einsum("ij,kj,k->ik", x, y, c) | torch.einsum("ij,kj,k->ik", x, y, c) | x y c
einsum                | einsum("nchw,nchw->nc", image, image) | torch.einsum("nchw,nchw->nc", image, image) | image
bmm                   | bmm(line, transpose(line)) | torch.bmm(line, line.transpose(1, 2)) | line
baddbmm               | baddbmm(expand(reshape(c, 1, 1, 4), 2, 4, 4), line, transpose(line), beta = 0.5, alpha = 2) | torch.baddbmm(c, line, line.transpose(1, 2), beta=0.5, alpha=2) | line c
addmm                 | addmm(b, x, w, beta = 2, alpha = 0.5) | torch.addmm(b, x, w, beta=2, alpha=0.5) | b x w
split                 | let (v, s) = split(x, sizes = {2, 4}, axis = 1); v * s[:][0 : 2] | (lambda v, s: v * s[:, :2])(*x.split([2, 4], 1)) | x
chunk                 | let (v, s) = chunk(x, 2, axis = 1); v / (s * s + 1) | (lambda v, s: v / (s * s + 1))(*x.chunk(2, 1)) | x
unbind                | let (v, s, t, u) = unbind(x, axis = 0); v * s + t * u | (lambda v, s, t, u: v * s + t * u)(*x.unbind(0)) | x
index_put             | index_put(x, iota(2) * 2, iota(2) + 1, c[0 : 2]) | x.index_put((torch.arange(2) * 2, torch.arange(2) + 1), c[:2]) | x c
index_put             | index_put(x, iota(2) * 2, iota(2) + 1, c[0 : 2], accumulate = true) | x.index_put((torch.arange(2) * 2, torch.arange(2) + 1), c[:2], accumulate=True) | x c
index_copy            | index_copy(x, iota(2) * 3, y[0 : 2][:], axis = 0) | x.index_copy(0, torch.arange(2) * 3, y[:2]) | x y
""".strip().splitlines()

# What torch keeps of all that, and why: behind each a step of a sum or copy that costs as much as the operator itself, or a kernel of torch's that is faster.
LEFT = """convolution_backward max_pool2d_with_indices max_pool3d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices_backward
    avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool2d_backward
    adaptive_max_pool3d adaptive_max_pool3d_backward index_put upsample_bilinear2d_backward upsample_nearest2d_backward""".split()


class Row:
    def __init__(self, line):
        names, self.language, self.torch, inputs = (part.strip() for part in line.split(" | "))
        self.names, self.inputs = names.split(), {}
        for word in inputs.split():
            name, _, shape = word.partition(":")
            name, _, real = name.partition("=")
            self.inputs[real or name] = (tuple(map(int, shape.split(","))) if shape else KINDS[real or name], not real)

    def tensors(self):
        made = []
        for name, (shape, wants) in self.inputs.items():
            x = torch.rand(shape) + 0.5 if name == "p" else torch.randn(shape)
            made.append(x.requires_grad_(wants))
        return made

    def text(self, number):
        before, _, value = self.language.rpartition("; ")
        before = before + "; " if before else ""
        given = ", ".join(f"float {n}{''.join(f'[{e}]' for e in shape)}" for n, (shape, _) in self.inputs.items())
        return f"tensor row{number}({given}) {{ {before}return {value}; }}"

    def function(self):
        return eval(f"lambda {', '.join(self.inputs)}: {self.torch}", {"torch": torch, "F": F})


ROWS = [Row(line) for line in TABLE]


class Names(unittest.TestCase):
    def test_every_operator_has_a_name_in_c_and_a_line_in_the_matrix(self):
        folder = os.path.join(ROOT, "include", "quern")
        if not os.path.isdir(folder):
            self.skipTest("the repository is not here")
        headers, matrix = "", ""
        for name in ("nn.h", "tensor.h"):
            with open(os.path.join(folder, name)) as file:
                headers += file.read()
        with open(os.path.join(ROOT, "tests", "tensor_ops.h")) as file:
            matrix = file.read()
        names = {n for row in ROWS for n in row.names}
        self.assertEqual([n for n in sorted(names) if not re.search(rf"\bqn_{n}\(", headers)], [])
        self.assertEqual([n for n in sorted(names) if not re.search(rf"\bqn_{n}\b", matrix)], [])


@needs_torch
class Operators(unittest.TestCase):
    def compare(self, row, found, inputs, gradients, tolerance=2e-5):
        again = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
        wanted = row.function()(*again)
        torch.testing.assert_close(found.reshape(wanted.shape), wanted, rtol=tolerance, atol=tolerance, msg=lambda words: f"{row.language}: {words}")
        leaves = [x for x in again if x.requires_grad]
        seed = torch.linspace(-1, 2, wanted.numel()).view(wanted.shape)
        for a, b in zip(gradients, torch.autograd.grad(wanted, leaves, seed, allow_unused=True)):
            b = torch.zeros_like(a) if b is None else b
            torch.testing.assert_close(a, b, rtol=5 * tolerance, atol=5 * tolerance, msg=lambda words: f"gradient of {row.language}: {words}")

    def test_in_the_language(self):
        torch.manual_seed(3)
        module = quern.compile("\n".join(row.text(i) for i, row in enumerate(ROWS)), "operators.qn")
        for i, row in enumerate(ROWS):
            with self.subTest(row.language):
                inputs = row.tensors()
                found = module[f"row{i}"](*inputs, device="ref")
                leaves = [x for x in inputs if x.requires_grad]
                seed = torch.linspace(-1, 2, found.numel()).view(found.shape)
                gradients = torch.autograd.grad(found, leaves, seed, allow_unused=True)
                self.compare(row, found.detach(), inputs, [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves)])

    def test_cells_of_a_gpu(self):
        """Operators that torch has on a GPU alone, in ours: against its functions of the CPU, forward and backward."""
        from quern import backend, cells

        for kind, count, ours, back in ((torch.gru_cell, 3, cells.gru, cells.gru_backward), (torch.lstm_cell, 4, cells.lstm, cells.lstm_backward)):
            x, w, u = torch.randn(5, 6), torch.randn(count * 8, 6), torch.randn(count * 8, 8)
            state = [torch.randn(5, 8, requires_grad=True) for _ in range(count - 2)]
            for biases in ([torch.randn(count * 8, requires_grad=True) for _ in range(2)], [None, None]):
                given, hidden = ((a @ b.t()).detach().requires_grad_() for a, b in ((x, w), (state[0], u)))
                # The identity as weights: what is multiplied are the gates themselves.
                one = torch.eye(count * 8)
                wanted = kind(given, state[0] if len(state) == 1 else tuple(state), one, u, *biases)
                wanted = wanted if isinstance(wanted, tuple) else (wanted,)
                found = ours(given, hidden, state[-1], *biases)
                for a, b in zip(wanted, found):
                    torch.testing.assert_close(a, b)
                up = [torch.randn(5, 8) for _ in wanted]
                leaves = [given, state[-1], *[b for b in biases if b is not None]]
                slopes = torch.autograd.grad(found[: len(wanted)], [given, hidden, *leaves[1:]], up, retain_graph=True)
                with torch.no_grad():
                    made = back(*up, found[-1], biases[0] is not None) if count == 3 else back(*up, state[-1], found[1], found[2], biases[0] is not None)
                made = (made[0], made[1], *made[2:]) if count == 3 else (made[0], made[0], made[1], made[2], made[2])
                for a, b in zip(slopes, made):
                    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
                self.assertTrue(biases[0] is not None or made[-1] is None)
        self.assertLessEqual(set(cells.TABLE), set(backend.decompositions()))

    def test_through_the_backend(self):
        torch.manual_seed(4)
        for first in range(0, len(ROWS), 11):
            rows = ROWS[first : first + 11]
            functions, inputs = [row.function() for row in rows], [row.tensors() for row in rows]

            def everything(*tensors):
                given, results = list(tensors), []
                for row, function in zip(rows, functions):
                    results.append(function(*[given.pop(0) for _ in row.inputs]))
                return results

            flat = [x for each in inputs for x in each]
            results, reports = reports_of(everything, *flat, smallest_island=1)
            kept = {re.sub(r"^aten\.|\.default$", "", target): reason for report in reports for target, reason in report.kept}
            self.assertEqual({name: reason for name, reason in kept.items() if name not in LEFT}, {}, "torch keeps")
            self.assertTrue(reports[0].islands)
            leaves = [x for x in flat if x.requires_grad]
            gradients = list(torch.autograd.grad(results, leaves, [torch.linspace(-1, 2, r.numel()).view(r.shape) for r in results], allow_unused=True))
            for row, found, tensors in zip(rows, results, inputs):
                mine = [(gradients.pop(0), x) for x in tensors if x.requires_grad]
                self.compare(row, found.detach(), tensors, [torch.zeros_like(x) if g is None else g for g, x in mine], 1e-4)


if __name__ == "__main__":
    unittest.main()
