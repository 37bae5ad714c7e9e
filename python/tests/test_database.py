"""torch's own database of operators with sample inputs (its OpInfos) through the backend, values and gradients against eager. It takes a quarter of an hour:
QUERN_TEST_DATABASE=all runs it, QUERN_TEST_DATABASE="softmax nn.functional.l" those whose names begin so, without it nothing is."""

import os
import sys
import types
import unittest
import warnings

from .support import needs_torch, torch

CHOSEN = os.environ.get("QUERN_TEST_DATABASE", "")
# Random numbers, decompositions of matrices, transforms and sparse tensors are torch's; the rest of these has no result to compare.
LEFT_OUT = """fft linalg sparse special. torch.ops svd rand dropout multinomial normal bernoulli uniform cauchy exponential geometric empty stft cholesky eig lu
    qr polygamma mvlgamma complex jiterator masked. signal histogram unique ormqr lstsq pinverse triangular_solve lowrank _segment nested combinations ctc_loss""".split()
# A layout in memory that torch's decomposition does not keep.
OTHER_STRIDES = ("nn.functional.max_unpool",)
# Sizes in them depend on data, which AOTAutograd refuses or tells wrongly: torch runs them, and we say so.
OF_DATA = ("narrow", "put", "index_put", "index_fill")
SAMPLES, MOST_ELEMENTS = 3, 3000


def database():
    if "expecttest" not in sys.modules:  # torch's testing wants its class, and not for this
        try:
            import expecttest  # noqa: F401
        except ImportError:
            sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
    from torch.testing._internal.common_methods_invocations import op_db

    names = () if CHOSEN == "all" else tuple(CHOSEN.split())
    for each in op_db:
        if torch.float32 in each.dtypes and not any(word in each.name for word in LEFT_OUT) and (not names or each.name.startswith(names)):
            yield each


def tensors(tree):
    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def picked(samples):
    small = [s for s in samples if all(t.numel() < MOST_ELEMENTS for t in tensors((s.input, s.args, s.kwargs)))]
    return small if len(small) <= SAMPLES else [small[0], small[len(small) // 2], small[-1]]


def run(function, sample):
    """Results, and gradients of their sum."""
    results = tensors(function(sample.input, sample.args, sample.kwargs))
    seeds = [r for r in results if r.requires_grad]
    leaves = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    gradients = torch.autograd.grad(seeds, leaves, [torch.full_like(r, 0.7) for r in seeds], allow_unused=True) if seeds and leaves else []
    return results, gradients


@needs_torch
@unittest.skipUnless(CHOSEN, "QUERN_TEST_DATABASE=all runs torch's own database of operators")
class Database(unittest.TestCase):
    def compare(self, operator, sample):
        from quern import backend

        def function(given, args, keywords):
            made = operator.op(given, *args, **keywords)
            return torch.utils._pytree.tree_map(lambda t: t * 1.5 + 0.25 if isinstance(t, torch.Tensor) and t.is_floating_point() else t, made)

        try:
            wanted, wanted_gradients = run(function, sample)
        except Exception:  # a sample that torch itself refuses
            return
        torch._dynamo.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if operator.name not in OF_DATA:
                warnings.filterwarnings("error", message="quern: ")
            found, gradients = run(torch.compile(function, backend=backend.backend), sample)
        for a, b in zip(found, wanted):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)
            if not operator.name.startswith(OTHER_STRIDES):
                self.assertEqual(*[[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (a, b)])
        for a, b in zip(gradients, wanted_gradients):
            if b is not None:
                torch.testing.assert_close(torch.zeros_like(b) if a is None else a, b, rtol=1e-3, atol=1e-3, equal_nan=True)

    def test_database(self):
        count = 0
        for operator in database():
            for number, sample in enumerate(picked(operator.sample_inputs("cpu", torch.float32, requires_grad=operator.supports_autograd))):
                with self.subTest(operator.name, variant=operator.variant_test_name, sample=number):
                    self.compare(operator, sample)
                    count += 1
        self.assertTrue(count)


if __name__ == "__main__":
    unittest.main()
