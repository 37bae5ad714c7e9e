"""NumPy arrays: no copies, strides of every kind, empty ones, what is refused."""

import gc
import unittest
import weakref

from .support import module, needs_numpy, numpy as np


@needs_numpy
class Numpy(unittest.TestCase):
    def setUp(self):
        self.q = module()
        self.random = np.random.default_rng(1)

    def test_strides(self):
        base = self.random.standard_normal((20, 30)).astype(np.float32)
        for x in (base, base.T, base[::-1], base[:, ::-3], base[3:9, 5:20:2], base[:1], base[:0], np.broadcast_to(base[0], (5, 30))):
            np.testing.assert_allclose(self.q.add(x, x), x + x)
            out = np.full(x.shape[::-1], 7, np.float32).T
            self.assertIs(self.q.add(x, x, out=out), out)
            np.testing.assert_array_equal(out, x + x)
        gaps = np.full((20, 60), 7, np.float32)
        self.q.add(base, base, out=gaps[:, ::2])
        np.testing.assert_array_equal(gaps[:, 1::2], 7)
        np.testing.assert_array_equal(gaps[:, ::2], 2 * base)

    def test_types(self):
        for type in (np.float32, np.float64, np.float16):
            x = self.random.standard_normal((5, 7)).astype(type)
            y = self.q.add(x, x)
            self.assertEqual(y.dtype, type)
            np.testing.assert_array_equal(y, x + x)
        self.assertRaises(TypeError, self.q.twice, np.zeros(3, complex))
        self.assertRaises(TypeError, self.q.twice, np.zeros(3, ">f4"))
        self.assertRaises(TypeError, self.q.twice, np.array(["a"]))
        self.assertRaises(ValueError, self.q.twice, np.zeros((1,) * 9, np.float32))

    def test_unaligned(self):
        memory = np.zeros(4 * 64 + 8, np.uint8)
        for offset in (0, 4):
            x = memory[offset : offset + 256].view(np.float32)
            x[:] = np.arange(64)
            np.testing.assert_array_equal(self.q.twice(x), 2 * x)

    def test_new_addresses(self):
        """The same shapes at other addresses, aligned and not, through one prepared call or two."""
        for turn in range(40):
            x = np.empty(1000 + 16, np.float32)[turn % 17 : turn % 17 + 1000].reshape(10, 100)
            x[:] = turn
            np.testing.assert_array_equal(self.q.add(x, x), 2.0 * turn)
            np.testing.assert_allclose(self.q.soft(x).sum(1), 1, rtol=1e-5)
        self.assertLess(self.q.add._callable.prepared(), 40)

    def test_lifetimes(self):
        x = np.ones((4, 4), np.float32)
        y = self.q.add(x, x)
        seen = weakref.ref(x)
        del x
        gc.collect()
        self.assertIsNone(seen())  # nothing holds on to an argument
        np.testing.assert_array_equal(y, 2)
        seen = weakref.ref(y)
        del y
        gc.collect()
        self.assertIsNone(seen())
        x = np.ones((4, 4), np.float32)
        self.assertRaises(Exception, self.q.add, x, np.ones((4, 5), np.float32))
        seen = weakref.ref(x)
        del x
        gc.collect()
        self.assertIsNone(seen())

    def test_many_signatures(self):
        for n in range(1, 150):
            x = np.ones(n, np.float32)
            np.testing.assert_array_equal(self.q.twice(x), 2)
        self.assertLessEqual(self.q.twice._callable.prepared(), 64)

    def test_indices_are_tested(self):
        table = np.arange(12, dtype=np.float32).reshape(4, 3)
        np.testing.assert_array_equal(self.q.pick(table, np.array([3, 0])), table[[3, 0]])
        for _ in range(3):
            self.assertRaises(ValueError, self.q.pick, table, np.array([3, 9]))

    def test_calls_leave_nothing_behind(self):
        import resource

        x, out = np.ones(100, np.float32), np.ones(100, np.float32)
        for _ in range(2000):
            self.q.twice(x, out=out)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(20000):
            self.q.twice(x, out=out)
            self.q.twice(x)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 2000)


if __name__ == "__main__":
    unittest.main()
