"""Calls without NumPy or torch: the buffer protocol, and the mistakes that every caller can make."""

import array
import threading
import unittest

from .support import module, quern


class Plain(unittest.TestCase):
    def setUp(self):
        self.q = module()

    def test_call(self):
        x = array.array("f", range(100))
        y = self.q.twice(x)
        self.assertEqual(list(memoryview(y))[:4], [0.0, 2.0, 4.0, 6.0])
        out = array.array("f", [0] * 100)
        self.assertIs(self.q.twice(x, out=out), out)
        self.assertEqual(out[99], 198.0)
        self.assertIs(self.q.twice(x, y=out, B=32), out)
        self.assertEqual(self.q.twice._callable.prepared() >= 2, True)

    def test_types(self):
        for code in "bhiqBHIQfd":
            x = array.array(code, range(20))
            self.assertEqual(list(memoryview(self.q.many(x))), [2 * i for i in range(20)])

    def test_in_place(self):
        x, y = array.array("f", [1, 2, 3]), array.array("f", [10, 20, 30])
        self.assertIs(self.q.axpy(x, y, 2.0), y)
        self.assertEqual(list(y), [12, 24, 36])
        self.q.axpy(x, y, 2)  # a whole number where a float is wanted
        self.assertEqual(list(y), [14, 28, 42])

    def test_functions(self):
        x = memoryview(array.array("f", range(12))).cast("B").cast("f", (3, 4))
        y = self.q.add(x, x)
        self.assertEqual(memoryview(y).tolist(), [[2 * (4 * i + j) for j in range(4)] for i in range(3)])
        p, s = self.q.two(x)
        self.assertEqual(memoryview(s).tolist(), [[14.0], [126.0], [366.0]])

    def test_shapes(self):
        self.assertEqual(self.q.two.shapes(("f32", (3, 4))), [("f32", (3, 4)), ("f32", (3, 1))])
        self.assertEqual(self.q.lin.shapes(("bf16", (3, 4)), ("bf16", (4, 7)), 2.0), [("bf16", (3, 7))])

    def test_names(self):
        self.assertIn("twice", dir(self.q))
        self.assertIn("tests.qn", repr(self.q))
        self.assertIn("in T x", repr(self.q.twice))
        self.assertRaises(AttributeError, lambda: self.q.thrice)

    def test_modes(self):
        x = memoryview(array.array("f", range(12))).cast("B").cast("f", (3, 4))
        for mode in ("fused", "eager", "strict"):
            y = self.q[f"{mode} soft"](x)
            self.assertAlmostEqual(sum(memoryview(y).tolist()[1]), 1, 5)
        self.assertRaises(quern.CallError, lambda: self.q["eager twice"])

    def test_fork(self):
        """Modules, their functions and modes are there in the child, as what it loads itself; the parent's stay as they were."""
        import os

        x = array.array("f", range(5000))
        self.q.twice(x)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                again = quern.compile("kernel thrice(in float x[n], out float y[n]) launch (1) { y[:] = 3 * x[:]; }")
                rows = memoryview(array.array("f", range(6))).cast("B").cast("f", (2, 3))
                found = [list(memoryview(f(x)))[:3] for f in (self.q.twice, again.thrice, self.q["twice"])] + [self.q["strict soft"](rows), self.q.soft.shapes(("f32", (4, 5)))]
                code = 0 if found[:3] == [[0, 2, 4], [0, 3, 6], [0, 2, 4]] else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(list(memoryview(self.q.twice(x)))[:3], [0, 2, 4])

    def test_threads(self):
        wrong = []

        def work(factor):
            for turn in range(50):
                x = array.array("f", [factor + turn] * 1000)
                y = self.q.twice(x)
                if any(v != 2 * (factor + turn) for v in memoryview(y)):
                    wrong.append((factor, turn))

        threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(wrong, [])


class Mistakes(unittest.TestCase):
    def setUp(self):
        self.q = module()
        self.x = array.array("f", range(10))

    def raises(self, kind, words, function, *args, **keywords):
        with self.assertRaises(kind) as caught:
            function(*args, **keywords)
        self.assertIn(words, str(caught.exception))

    def test_arguments(self):
        q, x = self.q, self.x
        self.raises(TypeError, "argument `x` must be a tensor or an array, not int", q.twice, 3)
        self.raises(TypeError, "argument `x` must be a tensor or an array, not str", q.twice, "x")
        self.raises(TypeError, "twice() is missing the array `x`", q.twice)
        self.raises(TypeError, "twice() takes 1 arguments by position, got 2", q.twice, x, x)
        self.raises(TypeError, "twice() got several values for `x`", q.twice, x, x=x)
        self.raises(TypeError, "twice() has 1 results, and out= has 2", q.twice, x, out=(x, x))
        self.raises(quern.CallError, "has no setting `C`", q.twice, x, C=3)
        self.raises(quern.CallError, "`f31` of `T` is not an element type", q.twice, x, T="f31")
        self.raises(quern.CallError, "tpu", q.twice, x, device="tpu")

    def test_memory(self):
        q, x = self.q, self.x
        self.raises(quern.CallError, "arrays `x` and `y` overlap", q.twice, x, out=x)
        self.raises(ValueError, "argument `y`: it is read-only, and would be written", q.twice, x, out=memoryview(bytes(40)).cast("f"))
        self.raises(quern.CallError, "elements of type f64", q.axpy, array.array("d", [1]), x, 2.0)
        self.raises(quern.CallError, "has 1 axis, the parameter has 2", q.soft, x)
        self.raises(TypeError, "buffer format", q.twice, array.array("u", "abc"))
        out = array.array("f", [0] * 9)
        self.raises(quern.CallError, "`n` is 10 in `x` and 9 in `y`", q.twice, x, out=out)
        self.q.twice(x)  # and goes on

    def test_source(self):
        with self.assertRaises(quern.SourceError) as caught:
            quern.compile("kernel f(in float x[n]) launch (1)\n{ y[0] = 1; }\n", "wrong.qn")
        self.assertIn("wrong.qn:2:3: error", str(caught.exception))
        self.assertIn("^", str(caught.exception))
        self.assertTrue(issubclass(quern.SourceError, ValueError))

    def test_findings(self):
        q = quern.compile("kernel f(in float x[n], out float y[n]) launch (1) { assert(x[0] > 0); y[:] = x[:]; }")
        self.raises(quern.Error, "assert", q.f, array.array("f", [-1.0, 2.0]))


if __name__ == "__main__":
    unittest.main()
