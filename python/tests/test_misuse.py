"""Calls that cannot work, and places where they are made: exceptions that name the argument, never a crash, a wrong result or a process that does not end."""

import array
import copy
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

from .support import needs_numpy, needs_torch, numpy, quern, torch

SOURCE = """
kernel twice(in T x[n], out T y[n], const int B = 64) launch (cdiv(n, B))
{ y[program(0) * B : B] = 2 * x[program(0) * B : B]; }
kernel more(inout float x[n], const int B = 64) launch (cdiv(n, B))
{ x[program(0) * B : B] = x[program(0) * B : B] + 1; }
kernel grow(inout float x[m][n]) launch (m)
{ x[program(0)][:] = x[program(0)][:] + 1; }
tensor add(float a[m][n], float b[m][n]) { return a + b; }
tensor both(float x[n]) { return x + 1, x * 2; }
"""
REPEATS = "is written, and several of its indices are one element of memory"


def in_a_process(words):
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(quern.__file__))}
    return subprocess.run([sys.executable, "-X", "faulthandler", "-c", words], env=environment, capture_output=True, text=True, timeout=120)


class Misuse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.q = quern.compile(SOURCE, "misuse.qn")

    def raises(self, kind, words, function, *args, **keywords):
        with self.assertRaises(kind) as caught:
            function(*args, **keywords)
        self.assertIn(words, str(caught.exception))

    def test_things_that_are_no_arrays(self):
        x = array.array("f", [1, 2])
        for bad, word in ((None, "NoneType"), ("a", "str"), ([1.0], "list"), (3, "int"), (b"abcd", "bytes"), (object(), "object")):
            self.raises(TypeError, f"argument `x` must be a tensor or an array, not {word}", self.q.both, bad)
        self.raises(TypeError, "both() takes 1 argument", self.q.both, x, x)
        self.raises(TypeError, "both() is missing the array `x`", self.q.both)
        self.raises(TypeError, "both() got several values for `x`", self.q.both, x, x=x)
        self.raises(quern.CallError, "has no setting `foo`", self.q.both, x, foo=1)
        self.raises(TypeError, "both() has 2 results, and out= has 3", self.q.both, x, out=(x, x, x))
        for bad, words in ((-3, "extent -3"), ("a", "needs `a`, which is not set"), (2.5, "is an integer, not a float")):
            self.raises(quern.Error, words, self.q.twice, x, B=bad)
        self.raises(OverflowError, "int too big", self.q.twice, x, B=10**30)
        self.raises(quern.CallError, "`f7` of `T` is not an element type", self.q.twice, x, T="f7")
        self.raises(quern.CallError, "unknown device `tpu`; did you mean `cpu`?", self.q.both, x, device="tpu")

    def test_numbers(self):
        x = array.array("f", [1, 2])
        q = quern.compile("tensor times(float x[n], float s = 2) { return x * s; } tensor add(i64 x[n], i64 k) { return x + k; }")
        for bad, word in (("2", "str"), (None, "NoneType"), (1j, "complex"), ([], "list"), (object(), "object")):
            self.raises(TypeError, f"argument `s` must be a number, not {word}", q.times, x, bad)
        for bad, word in ((1j, "complex"), ([1], "list"), (object(), "object")):
            self.raises(TypeError, f"`B` must be a number, a type or a name, not {word}", self.q.twice, x, B=bad)
        self.raises(OverflowError, "argument `s`: int too big: integers have 64 bits", q.times, x, 10**30)
        for bad, word in ((0, "int"), (True, "bool"), (object(), "object")):
            self.raises(TypeError, f"`device` must be a name, such as \"cpu\" or \"ref\", not {word}", q.times, x, device=bad)

    @needs_numpy
    def test_numbers_of_others(self):
        """Each by its value: one that was prepared for another of the same words would compute with that one."""
        x, q = numpy.ones(2, "f4"), quern.compile("tensor times(float x[n], float s) { return x * s; } tensor add(i64 x[n], i64 k) { return x + k; }")
        for s in (numpy.float32(0.1), numpy.float16(0.1), numpy.array(0.1), numpy.int8(3)):
            self.assertEqual(list(q.times(x, s)), [numpy.float32(s)] * 2)
        self.assertEqual(list(q.add(numpy.ones(1, "i8"), numpy.int64((1 << 60) + 1))), [(1 << 60) + 2])

    def test_launches_of_text(self):
        k = quern.cuda("__global__ void f(float *x) { x[0] = 3; } template <typename T> __global__ void g(T *x) { x[0] = 1; }")
        x = array.array("f", [1, 2])
        for bad in ("1", (1, 1, 1, 1), (), 1.5):
            self.raises(TypeError, "`blocks` must be an integer, or a tuple of one to three", k.f, x, blocks=bad, threads=1)
            self.raises(TypeError, "`threads` must be an integer, or a tuple of one to three", k.f, x, blocks=1, threads=bad)
        self.raises(TypeError, "`shared` must be a number of bytes, not str", k.f, x, blocks=1, threads=1, shared="many")
        self.raises(AttributeError, '`g` is a template: take an instance of it by name, such as k["g<float>"]', getattr, k, "g")
        self.raises(AttributeError, "has no kernel `h`", getattr, k, "h")

    def test_profiles(self):
        self.raises(TypeError, "schedule= is what quern.profile.schedule(wait=1, warmup=1, active=3) gives, not a int", quern.profile, schedule=3)
        unused = quern.profile()
        for use in (unused.step, unused.hints, lambda: unused.key_averages().table(), lambda: unused.export_chrome_trace("x")):
            self.raises(RuntimeError, "quern.profile has recorded nothing yet", use)

    def test_texts(self):
        self.raises(TypeError, "quern.compile: the text must be str, not NoneType", quern.compile, None)
        self.raises(TypeError, "quern.compile: the text must be str, not bytes", quern.compile, b"")
        self.raises(ValueError, "null character", quern.compile, "tensor f(float x[n]) { return x; }\0")
        self.raises(UnicodeEncodeError, "surrogates", quern.compile, "\udcff")
        self.raises(quern.SourceError, "nested deeper than 200", quern.compile, "tensor f(float x[n]) { return " + "(" * 100000 + "x" + ")" * 100000 + "; }")
        self.raises(FileNotFoundError, "nothing.qn", quern.load, "nothing.qn")
        with tempfile.TemporaryDirectory() as folder:
            self.raises(IsADirectoryError, folder, quern.load, folder)
            path = os.path.join(folder, "binary.qn")
            with open(path, "wb") as file:
                file.write(b"tensor \xff\xfe")
            self.raises(quern.SourceError, f"{path}: it is no text in UTF-8 (byte 7)", quern.load, path)
        self.raises(AttributeError, "has no kernel `nothing`", getattr, self.q, "nothing")
        self.assertIn("fuse", dir(quern))
        self.assertIn("explain", dir(quern))

    @needs_numpy
    def test_memory_that_is_written(self):
        x = numpy.ones((4, 6), "f4")
        still = numpy.zeros((4, 6), "f4")
        still.flags.writeable = False
        self.raises(ValueError, "argument `result0`: it is read-only, and would be written", self.q.add, x, x, out=still)
        self.raises(ValueError, "argument `x`: it is read-only, and would be written", self.q.more, still[0])
        wide, windows = numpy.zeros((5, 6), "f4"), numpy.lib.stride_tricks.sliding_window_view
        self.raises(quern.CallError, "arrays `a` and `result0` overlap", self.q.add, wide[:4], x, out=wide[1:])
        repeated = numpy.lib.stride_tricks.as_strided(numpy.zeros(6, "f4"), (4, 6), (0, 4))
        for bad in (repeated, windows(numpy.zeros(9, "f4"), 6, writeable=True), numpy.lib.stride_tricks.as_strided(numpy.zeros(9, "f4")[5:], (4, 6), (4, -4))):
            self.raises(quern.CallError, REPEATS, self.q.add, x, x, out=bad)
            self.raises(quern.CallError, REPEATS, self.q.grow, bad)
        for good in (numpy.zeros((6, 4), "f4").T, numpy.zeros((8, 12), "f4")[::2, ::-2], numpy.lib.stride_tricks.as_strided(numpy.zeros(99, "f4"), (4, 6), (8, 32))):
            self.assertIs(self.q.add(x, x, out=good), good)
            self.assertTrue((good == 2).all())
        self.q.grow(numpy.lib.stride_tricks.as_strided(numpy.zeros(6, "f4"), (1, 6), (0, 4)))  # an axis of one element, and none
        self.q.grow(numpy.lib.stride_tricks.as_strided(numpy.zeros(6, "f4"), (0, 6), (0, 4)))
        self.assertTrue((self.q.add(repeated + 1, repeated) == 1).all())  # what is read may repeat

    @needs_torch
    def test_tensors_that_are_none(self):
        x = torch.randn(4, 6)
        quantised = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
        for bad in (x.to("meta"), x.to_sparse(), quantised):
            self.raises(TypeError, "argument `b`: its memory cannot be read: ", self.q.add, x, bad)
            self.raises(TypeError, "argument `a`: its memory cannot be read: ", self.q.add, bad, x)
        with self.assertRaises(TypeError) as caught:
            self.q.add(x.to("meta"), x)
        self.assertNotIn("\n", str(caught.exception))  # not the stack of a library
        self.raises(quern.CallError, REPEATS, self.q.add, x, x, out=torch.empty(1, 6).expand(4, 6))
        self.raises(ValueError, "argument `result0` requires grad and would be written", self.q.add, x, x, out=torch.empty(4, 6, requires_grad=True))
        self.raises(ValueError, "argument `x` requires grad and would be written", self.q.more, torch.zeros(4, requires_grad=True))
        out = torch.empty(6)
        self.raises(quern.CallError, "arrays `result0` and `result1` overlap", self.q.both, x[0], out=(out, out))

    def test_copies_and_pickles(self):
        x = array.array("f", [1, 2])
        for made in (copy.copy(self.q), copy.deepcopy(self.q), pickle.loads(pickle.dumps(self.q))):
            self.assertEqual(list(made.both(x)[0]), [2, 3])
        for made in (copy.copy(self.q.both), copy.deepcopy(self.q.both), pickle.loads(pickle.dumps(self.q.both)), pickle.loads(pickle.dumps(self.q["strict both"]))):
            self.assertEqual(list(made(x)[1]), [2, 4])
        self.assertEqual(pickle.loads(pickle.dumps(self.q["strict both"])).name, "strict both")
        k = quern.cuda("__global__ void f(float *x) { x[0] = N; }", options=["-DN=3"])
        again = pickle.loads(pickle.dumps(k))
        self.assertEqual((list(again), again._options), (["f"], ("-DN=3",)))

    def test_pickles_of_files_that_import(self):
        x, before = array.array("f", [1, 2]), os.getcwd()
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as elsewhere:
            for name, words in (("main.qn", 'import "more.qn"; tensor f(float x[n]) { return more.g(x) * 2; }'), ("more.qn", "tensor g(float x[n]) { return x + 1; }")):
                with open(os.path.join(folder, name), "w") as file:
                    file.write(words)
            with open(os.path.join(elsewhere, "more.qn"), "w") as file:
                file.write("tensor g(float x[n]) { return x + 5; }")  # of the same name, and not the one that was meant
            try:
                os.chdir(folder)
                packed = pickle.dumps(quern.load("main.qn").f)
                os.chdir(elsewhere)
                again = pickle.loads(packed)
                self.assertEqual(list(again(x)), [4, 6])
                self.assertEqual(list(pickle.loads(pickle.dumps(again))(x)), [4, 6])
                self.assertIn("kernel", again.source("tile", n=4))  # looks at the file, and at what it imports
            finally:
                os.chdir(before)

    @needs_torch
    def test_models_with_functions(self):
        import io

        class Layer(torch.nn.Module):
            def __init__(self, q):
                super().__init__()
                self.q, self.add, self.weight = q, q.add, torch.nn.Parameter(torch.ones(4, 6))

            def forward(self, x):
                return self.add(self.q.add(x, self.weight), x)

        layer, x = Layer(self.q), torch.randn(4, 6)
        other = copy.deepcopy(layer)
        other.weight.data.zero_()
        torch.testing.assert_close(layer(x), x + 1 + x)
        torch.testing.assert_close(other(x), x + x)
        memory = io.BytesIO()
        globals()["Layer"], Layer.__qualname__ = Layer, "Layer"
        try:
            torch.save(layer, memory)
            memory.seek(0)
            torch.testing.assert_close(torch.load(memory, weights_only=False)(x), x + 1 + x)
        finally:
            del globals()["Layer"]

    def test_processes_end(self):
        start = "import array, quern, threading, time\nx = array.array('f', [1] * 5000)\nq = quern.compile('tensor f(float x[n]) { return exp(x) + 1; }')\n"
        for words in (
            "def work():\n    while True: q.f(x)\nfor _ in range(3): threading.Thread(target=work, daemon=True).start()\nq.f(x)",
            "def work(k):\n    r = quern.compile(f'tensor g(float x[n]) {{ return sin(x) * {k}; }}'); r.g(x)\nfor k in range(4): threading.Thread(target=work, args=(k,), daemon=True).start()\ntime.sleep(0.05)",
            "class Late:\n    def __del__(self): q.f(x)\nlate, kept = Late(), q.f(x)",
        ):
            made = in_a_process(start + words)
            self.assertEqual((made.returncode, "Fatal" in made.stderr), (0, False), made.stderr)

    def test_interpreters_inside(self):
        try:
            import _xxsubinterpreters  # noqa: F401
        except ImportError:
            self.skipTest("this Python has no interpreters inside")
        words = """
import array
import _xxsubinterpreters as interpreters
import quern
for _ in range(2):
    inner = interpreters.create()
    try:
        interpreters.run_string(inner, "import array, quern; q = quern.compile('tensor f(float x[n]) { return x + 1; }'); assert list(q.f(array.array('f', [1]))) == [2]")
    except interpreters.RunFailedError as error:  # refused, which Python may do
        assert "ImportError" in str(error), error
    interpreters.destroy(inner)
assert list(quern.compile("tensor f(float x[n]) { return x + 1; }").f(array.array("f", [1]))) == [2]
"""
        made = in_a_process(words)
        self.assertEqual(made.returncode, 0, made.stderr)


if __name__ == "__main__":
    unittest.main()
