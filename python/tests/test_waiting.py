"""Ctrl-C while something compiles, the line that is told meanwhile, and the ways in that only __dlpack__ and CUDA have: each in a
process of its own."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from .support import needs_numpy, quern

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(quern.__file__)))


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": FOLDER, **environment}, capture_output=True, text=True, timeout=60
    )


INTERRUPTED = """
import array, signal, threading, time, quern
ticks = []
def tick():
    while True:
        ticks.append(0)
        time.sleep(0.01)
threading.Thread(target=tick, daemon=True).start()
q = quern.compile("kernel slow(in float x[n], out float y[n]) launch (1) { y[:] = x[:] * 3; }")
x = array.array("f", [1, 2])
def handler(*ignored):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 1.4)
start = time.perf_counter()
try:
    q.slow(x)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", time.perf_counter() - start < 2.4, len(ticks) > 20)
signal.setitimer(signal.ITIMER_REAL, 0)
print(list(memoryview(q.slow(x))))
"""

LEFT = """
import array, gc, signal, time, quern
q = quern.compile("kernel turns(in float x[n], out float y[n], int times) launch (1) { tile float v = x[:]; for (int i = 0; i < times; i++) { v = v * 0.5 + 1; } y[:] = v; }")
x = array.array("f", range(1000))
def handler(*ignored):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
def spent(times):
    start = time.perf_counter()
    q.turns(x, times=times)
    return time.perf_counter() - start
spent(200000)
times = int(200000 * 0.7 / spent(200000))
took = min(spent(times), spent(times))
signal.setitimer(signal.ITIMER_REAL, took / 8)
start = time.perf_counter()
try:
    q.turns(x, times=times)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", time.perf_counter() - start < 0.8 * took)
signal.setitimer(signal.ITIMER_REAL, 0)
one = q.turns
del q
gc.collect()
print(list(memoryview(one(x, times=1)))[:3])
del one, x
gc.collect()
time.sleep(took)  # what was left ends, and frees what it had
print("ended")
"""

LONG_TEXT = """
import signal, time, quern
def handler(*ignored):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
body = "".join("v = v * %d.5f + x[%d];" % (i % 7, i % 32) for i in range(12000))
signal.setitimer(signal.ITIMER_REAL, 0.3)
start = time.perf_counter()
try:
    quern.cuda('extern "C" __global__ void f(float *x) { float v = x[threadIdx.x]; ' + body + ' x[threadIdx.x] = v; }')
    print("compiled", time.perf_counter() - start)
except KeyboardInterrupt:
    print("interrupted", time.perf_counter() - start < 1.0)
"""

LOGGED = """
import array, quern
quern.compile("kernel thrice(in float x[n], out float y[n]) launch (1) { y[:] = x[:] * 3; }").thrice(array.array("f", [1, 2]))
"""

DLPACK = """
import numpy, quern
class Only:
    def __init__(self, array):
        self.array = array
    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)
class Older(Only):
    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()
q = quern.compile("kernel twice(in T x[n], out T y[n]) launch (1) { y[:] = 2 * x[:]; }")
for kind in (Only, Older):
    x = numpy.arange(5, dtype=numpy.float32)
    print(q.twice(kind(x)), q.twice(kind(x)))
    out = numpy.zeros(5, numpy.float32)
    q.twice(kind(x), out=kind(out))
    print(out)
    import sys
    print(sys.getrefcount(x) <= 3)
x.flags.writeable = False
try:
    q.twice(numpy.zeros(5, numpy.float32), out=Only(x))
except (ValueError, BufferError) as error:
    print("refused")
"""

CUDA = """
import ctypes, os, quern
driver = ctypes.CDLL(os.environ["QUERN_CUDA_PATH"] + "/libcuda.so.1")
class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("extents", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]
capsule = ctypes.pythonapi.PyCapsule_New
capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
driver.cuInit(0)
context = ctypes.c_void_p()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxPushCurrent_v2(context)
class Far:
    def __init__(self, values, count):
        address = ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * count)) == 0
        self.memory = (ctypes.c_float * count).from_address(address.value)
        self.memory[:] = values
        self.extents = (ctypes.c_int64 * 1)(count)
        self.tensor = Tensor(address.value, 2, 0, 1, 2, 32, 1, ctypes.addressof(self.extents), None, 0, None, None)
    def __dlpack_device__(self):
        return (2, 0)
    def __dlpack__(self, **keywords):
        return capsule(ctypes.addressof(self.tensor), b"dltensor", None)
q = quern.compile("kernel twice(in float x[n], out float y[n]) launch (cdiv(n, 64)) { y[program(0) * 64 : 64] = 2 * x[program(0) * 64 : 64]; }"
                  "tensor both(float x[n], float y[n]) { return x * sum(y); }")
for turn in range(3):
    x, y = Far([turn + i for i in range(100)], 100), Far([0] * 100, 100)
    assert q.twice(x, out=y) is y
    print(list(y.memory[:3]))
    z = Far([0] * 100, 100)
    q.both(x, x, out=z)
    print(z.memory[1] == (turn + 1) * sum(turn + i for i in range(100)))
try:
    q.twice(x)
except TypeError as error:
    print(error)
"""

PREPARED = (
    CUDA.partition("q = quern.compile")[0]
    + """
import sys, threading, types
sys.modules["cupy"] = types.SimpleNamespace(float32="f4", empty=lambda shape, dtype=None: Far([0] * shape[0], shape[0]))
texts = ["tensor f(float x[n], float y[n]) { return x * sum(y) + %d; }" % i for i in range(6)]
texts += ["kernel f(in float x[n], in float y[n], out float z[n]) launch (cdiv(n, 64)) { z[program(0) * 64 : 64] = x[program(0) * 64 : 64] + %d; }" % i for i in range(2)]
given, made = (Far([9] * 100, 100), Far([9] * 100, 100)), [quern.compile(text).f._callable for text in texts]
threads = [threading.Thread(target=c.prepare, args=given) for c in made]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for i, c in enumerate(made):
    for turn in range(2):
        x, y = Far([turn + k for k in range(100)], 100), Far([1] * 100, 100)
        wanted = [v * 100 + i if i < 6 else v + i - 6 for v in x.memory]
        assert list(c.launch(x, y).memory) == wanted, (i, turn)
    assert c.prepared() == 1
print("right")
"""
)


class Waiting(unittest.TestCase):
    def test_interrupt(self):
        compiler = shutil.which("gcc") or shutil.which("cc")
        if not compiler:
            self.skipTest("there is no C compiler")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gcc")
            with open(path, "w") as file:
                file.write(f'#!/bin/sh\ncase "$*" in *quern*|*.c*) sleep 3 ;; esac\nexec {compiler} "$@"\n')
            os.chmod(path, 0o755)
            result = run(INTERRUPTED, CC=path, QUERN_CC=path, QUERN_CACHE=os.path.join(folder, "cache"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines(), ["interrupted True True", "[3.0, 6.0]"])  # and other threads went on meanwhile
        self.assertIn("quern: slow is being compiled", result.stderr)

    def test_interrupt_while_it_runs(self):
        """A call like one that took long is left at once; what runs it ends by itself, and what it works on lives as long."""
        with tempfile.TemporaryDirectory() as folder:
            result = run(LEFT, QUERN_CACHE=folder)
        self.assertEqual((result.returncode, result.stdout.splitlines()), (0, ["interrupted True", "[1.0, 1.5, 2.0]", "ended"]), result.stderr)

    def test_interrupt_of_cuda_text(self):
        """Text that NVRTC, or the compiler of the device that stands for a GPU, takes seconds for."""
        with tempfile.TemporaryDirectory() as folder:
            result = run(LONG_TEXT, QUERN_CACHE=folder)
        self.assertEqual((result.returncode, result.stdout), (0, "interrupted True\n"), result.stderr)

    def test_log(self):
        with tempfile.TemporaryDirectory() as folder:
            told = run(LOGGED, QUERN_CACHE=folder, QUERN_LOG="compile")
            wrong = run(LOGGED, QUERN_CACHE=folder, QUERN_LOG="compiled")
        self.assertRegex(told.stderr, r"compile: .*thrice.* for cpu.* ms")
        self.assertIn("QUERN_LOG has no `compiled`", wrong.stderr)

    @needs_numpy
    def test_dlpack(self):
        result = run(DLPACK)
        self.assertEqual(result.returncode, 0, result.stderr)
        each = ["[0. 2. 4. 6. 8.] [0. 2. 4. 6. 8.]", "[0. 2. 4. 6. 8.]", "True"]
        self.assertEqual(result.stdout.splitlines(), each + each + ["refused"])

    @unittest.skipUnless(os.environ.get("QUERN_FAKE_CUDA"), "only with a build of the repository, which has a driver without a GPU")
    def test_cuda_without_a_gpu(self):
        result = run(CUDA, QUERN_CUDA_PATH=os.environ["QUERN_FAKE_CUDA"])
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(lines[:6], ["[0.0, 2.0, 4.0]", "True", "[2.0, 4.0, 6.0]", "True", "[4.0, 6.0, 8.0]", "True"])
        self.assertIn("give them with out=", lines[6])

    @unittest.skipUnless(os.environ.get("QUERN_FAKE_CUDA"), "only with a build of the repository, which has a driver without a GPU")
    def test_prepared_in_threads(self):
        result = run(PREPARED, QUERN_CUDA_PATH=os.environ["QUERN_FAKE_CUDA"])
        self.assertEqual((result.returncode, result.stdout), (0, "right\n"), result.stderr)


if __name__ == "__main__":
    unittest.main()
