"""Importing: quick, and it loads neither torch nor NumPy and opens no device."""

import os
import subprocess
import sys
import unittest

from .support import quern

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(quern.__file__)))


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": FOLDER}, capture_output=True, text=True, check=True
    ).stdout


class Import(unittest.TestCase):
    def test_loads_nothing_else(self):
        out = run(
            "import sys; before = set(sys.modules); import quern;"
            "new = {m.split('.')[0] for m in set(sys.modules) - before};"
            "print(sorted(new & {'torch', 'numpy', 'inspect', 'dataclasses', 'typing', 'ctypes'}));"
            "print('libcuda' in open('/proc/self/maps').read())"
        )
        self.assertEqual(out.split("\n")[:2], ["[]", "False"])

    def test_is_quick(self):
        best = min(
            float(run("import time; t = time.perf_counter(); import quern; print(time.perf_counter() - t)")) for _ in range(5)
        )
        self.assertLess(best, 0.03 if os.getloadavg()[0] < os.cpu_count() else 0.3)

    def test_symbols_are_hidden(self):
        path = os.path.join(os.path.dirname(quern.__file__), "_quern.abi3.so")
        try:
            out = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
        except FileNotFoundError:
            self.skipTest("nm is not installed")
        names = [line.split()[-1] for line in out.splitlines() if line.split()[-2] in "TD"]
        self.assertEqual([n for n in names if not n.startswith("PyInit")], [])

    def test_version(self):
        self.assertEqual(quern.__version__, "0.1.0")
        self.assertRaises(AttributeError, lambda: quern.nothing)


if __name__ == "__main__":
    unittest.main()
