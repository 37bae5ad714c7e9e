"""Importing: quick, and it loads neither torch nor NumPy and opens no device."""

import ast
import importlib
import os
import subprocess
import sys
import unittest

from .support import needs_torch, quern

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

    @needs_torch  # `explain` is its backend's
    def test_stubs_say_what_is_there(self):
        with open(os.path.join(os.path.dirname(quern.__file__), "__init__.pyi")) as file:
            told = {n.name: n for n in ast.parse(file.read()).body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
        self.assertEqual(sorted(set(quern.__all__) - set(told)), [])
        parts = [quern, *(importlib.import_module(f"quern.{name}") for name in ("measure", "fuse"))]
        for name, node in told.items():
            found = next((getattr(part, name) for part in parts if hasattr(part, name)), None)
            self.assertIsNotNone(found, name)
            for each in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(each, (ast.FunctionDef, ast.ClassDef)):
                    self.assertTrue(hasattr(found, each.name), f"{name}.{each.name}")

    def test_version(self):
        self.assertEqual(quern.__version__, "0.1.0")
        self.assertRaises(AttributeError, lambda: quern.nothing)


if __name__ == "__main__":
    unittest.main()
